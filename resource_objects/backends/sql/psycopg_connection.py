"""Connections of psycopg that do not wait for ever, and give JSON and uuids as text.

psycopg has no limit on how long an answer may take: where a network swallows packets, or a pooler
stands still, it would wait until somebody kills the program. Imported only where psycopg is used,
which is an extra.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.types.string import TextLoader


def connect(read_timeout: float, **options: Any) -> psycopg.Connection[Any]:
    """Return a new connection on which every answer has so many seconds to go on."""
    connection: _Connection = _Connection.connect(**options)
    connection.read_timeout = read_timeout
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
