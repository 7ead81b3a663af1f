"""Connections of psycopg with a time limit for answers, and JSON and uuids as text.

psycopg does not limit the time of an answer: where a network drops packets, or a pooler hangs, it
would wait until the program is killed. This module is imported only where psycopg is used, which is
installed by an extra.

libpq does not report the SQLSTATE of a refused connection, only its message. So a server that
accepts no connection yet is recognized by the English text of its message. In another language it
counts as a server that cannot be reached, and is not tried again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import TextLoader

#: Messages of a server that accepts connections later, by SQLSTATE. Source: ``postmaster.c``,
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
    """Return a new connection; an answer on it may pause for at most ``read_timeout`` seconds."""
    try:
        connection: _Connection = _Connection.connect(**options)
    except psycopg.OperationalError as error:
        if error.sqlstate is None:
            message = str(error)
            states = (state for state, text in _REFUSALS.items() if text.search(message))
            error.sqlstate = next(states, None)
        raise
    connection.read_timeout = read_timeout
    # an integer is always a bigint: by default its type follows its value, and a statement would be
    # prepared for each
    connection.adapters.register_dumper(int, Int8Dumper)
    for kind in ("json", "uuid"):  # as stored; a reader parses what it needs
        connection.adapters.register_loader(kind, TextLoader)
    return connection


class _Connection(psycopg.Connection[Any]):
    read_timeout: float | None = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for an answer, for at most ``read_timeout`` seconds of silence."""
        if self.read_timeout is None:  # while connecting, which has its own limit
            return super().wait(gen, *args, **options)
        try:
            return super().wait(_while_it_answers(gen, self.read_timeout), *args, **options)
        except _Silence:
            self.pgconn.finish()  # a late answer would be read as that of another statement
            raise psycopg.OperationalError(
                f"the server did not answer within {self.read_timeout} s"
            ) from None


class _Silence(Exception):
    """The server sent nothing for too long."""


def _while_it_answers(gen: Any, seconds: float) -> Generator[Any, Any, Any]:
    """Run ``gen``, which waits for a socket, until the socket is silent for ``seconds``.

    psycopg resumes it ten times a second while the socket is silent.
    """
    try:
        event = next(gen)
        until = time.monotonic() + seconds
        while True:
            ready = yield event
            now = time.monotonic()
            if ready:
                until = now + seconds
            elif now > until:
                raise _Silence
            event = gen.send(ready)
    except StopIteration as done:
        return done.value
