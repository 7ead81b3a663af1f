"""Connections of psycopg that do not wait for ever, and give JSON and uuids as text.

psycopg has no limit on how long an answer may take: where a network swallows packets, or a pooler
stands still, it would wait until somebody kills the program. Imported only where psycopg is used,
which is an extra.

Nor does it say why a server refused a connection: libpq keeps the SQLSTATE of that to itself and
gives the message alone, so the messages of a server that takes nobody yet are known here by their
text, in English. In another language such a server is one that cannot be reached, at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import TextLoader

#: What a server says to those whom it takes later, by SQLSTATE. Source: ``postmaster.c``,
#: ``proc.c`` and ``postinit.c`` of PostgreSQL 12 to 18; ``client.c`` of PgBouncer.
_REFUSALS = {
    "57P03": re.compile(
        "the database system is (starting up|shutting down|in recovery mode"
        "|not (yet )?accepting connections)"
    ),
    "53300": re.compile(
        "too many clients already|remaining connection slots are reserved"
        "|too many connections for (role|database)|no more connections allowed"
    ),
}


def connect(read_timeout: float, **options: Any) -> psycopg.Connection[Any]:
    """Return a new connection on which every answer has so many seconds to go on."""
    try:
        connection: _Connection = _Connection.connect(**options)
    except psycopg.OperationalError as error:
        if error.sqlstate is None:
            said = str(error)
            found = (state for state, text in _REFUSALS.items() if text.search(said))
            error.sqlstate = next(found, None)
        raise
    connection.read_timeout = read_timeout
    # an integer is always a bigint: by default its type follows its value, and a statement would be
    # prepared for each
    connection.adapters.register_dumper(int, Int8Dumper)
    for kind in ("json", "uuid"):  # as they are kept: who needs them parsed does that
        connection.adapters.register_loader(kind, TextLoader)
    return connection


class _Connection(psycopg.Connection[Any]):
    read_timeout: float | None = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for an answer, as everything does that talks to the server."""
        if self.read_timeout is None:  # it is being made, which has a limit of its own
            return super().wait(gen, *args, **options)
        try:
            return super().wait(_while_it_answers(gen, self.read_timeout), *args, **options)
        except _Silence:
            self.pgconn.finish()  # what the server says from now on answers nothing
            raise psycopg.OperationalError(
                f"the server did not answer within {self.read_timeout} s"
            ) from None


class _Silence(Exception):
    """Nothing came for too long."""


def _while_it_answers(gen: Any, seconds: float) -> Generator[Any, Any, Any]:
    """Do as ``gen`` does, which waits for a socket, until the socket is silent for too long.

    psycopg says ten times a second that there was nothing.
    """
    try:
        wanted = next(gen)
        until = time.monotonic() + seconds
        while True:
            ready = yield wanted
            now = time.monotonic()
            if ready:
                until = now + seconds
            elif now > until:
                raise _Silence
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value
