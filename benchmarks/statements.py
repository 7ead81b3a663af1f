"""Counting the SQL statements that a piece of code sends, whoever sends them.

Counted is what the driver is asked to run: one ``execute`` is one, and so is one ``executemany``,
whose rows are counted apart. What begins and ends transactions and what sets up a connection is
not counted. It works by handing counting cursors to the connections that are opened meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import sqlalchemy
from sqlalchemy import event

_NOT_COUNTED = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA", "SET", "START"}


@dataclasses.dataclass
class Count:
    """How many statements were sent, and of which texts; ``rows`` of those for many rows."""

    statements: int = 0
    rows: int = 0
    texts: Counter[str] = dataclasses.field(default_factory=Counter)

    def reset(self) -> None:
        """Count from nothing again."""
        self.statements = self.rows = 0
        self.texts.clear()

    def add(self, statement: object, rows: int = 0) -> None:
        """Count one."""
        text = " ".join(str(statement).split())
        if text.split(" ", 1)[0].upper() not in _NOT_COUNTED:
            self.statements += 1
            self.rows += rows
            self.texts[text] += 1


@contextlib.contextmanager
def counted() -> Iterator[Count]:
    """Count on every connection that is opened inside the block, as long as it lives."""
    count = Count()

    def connecting(dialect: Any, record: Any, args: Any, options: dict[str, Any]) -> None:
        if dialect.driver == "pysqlite":
            options["factory"] = _sqlite_connection(count)
        elif dialect.driver == "psycopg":
            import psycopg

            options["cursor_factory"] = _counting(psycopg.Cursor, count)
        elif dialect.driver == "psycopg2":
            import psycopg2.extensions

            options["cursor_factory"] = _counting(psycopg2.extensions.cursor, count)
        elif dialect.driver == "pymysql":
            import pymysql.cursors

            options["cursorclass"] = _counting(pymysql.cursors.Cursor, count)
        else:
            raise NotImplementedError(dialect.driver)

    event.listen(sqlalchemy.Engine, "do_connect", connecting)
    try:
        with _raw_cursors(count):
            yield count
    finally:
        event.remove(sqlalchemy.Engine, "do_connect", connecting)


@contextlib.contextmanager
def _raw_cursors(count: Count) -> Iterator[None]:
    """Count on psycopg's other cursors too, which are made without asking the connection."""
    try:
        import psycopg
    except ImportError:
        yield
        return
    with mock.patch.object(psycopg, "RawCursor", _counting(psycopg.RawCursor, count)):
        yield


def _counting(base: type[Any], count: Count) -> type[Any]:
    class Cursor(base):  # type: ignore[misc]
        """A cursor that counts."""

        def execute(self, statement: Any, *args: Any, **options: Any) -> Any:
            count.add(statement)
            return super().execute(statement, *args, **options)

        def executemany(self, statement: Any, many: Any, *args: Any, **options: Any) -> Any:
            many = list(many)
            count.add(statement, len(many))
            return super().executemany(statement, many, *args, **options)

    return Cursor


def _sqlite_connection(count: Count) -> type[sqlite3.Connection]:
    cursors = _counting(sqlite3.Cursor, count)

    class Connection(sqlite3.Connection):
        """A connection whose cursors count."""

        def cursor(self, factory: Any = cursors) -> Any:
            return super().cursor(factory)

        def execute(self, *args: Any) -> Any:
            return self.cursor().execute(*args)

    return Connection
