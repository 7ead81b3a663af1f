"""A counter of the SQL statements that reach the database driver.

One ``execute`` is one statement, and so is one ``executemany``, whose rows are counted separately.
Statements that begin or end a transaction or set up a connection are not counted. Connections that
are opened inside the block have counting cursors.
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
    """The number of statements, by text too; ``rows`` are those of ``executemany``."""

    statements: int = 0
    rows: int = 0
    texts: Counter[str] = dataclasses.field(default_factory=Counter)

    def reset(self) -> None:
        """Set all counts to 0."""
        self.statements = self.rows = 0
        self.texts.clear()

    def add(self, statement: object, rows: int = 0) -> None:
        """Count a statement, unless it is about a transaction or a connection."""
        text = " ".join(str(statement).split())
        if text.split(" ", 1)[0].upper() not in _NOT_COUNTED:
            self.statements += 1
            self.rows += rows
            self.texts[text] += 1


@contextlib.contextmanager
def counted() -> Iterator[Count]:
    """Count on every connection that is opened inside the block, until it is closed."""
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
    """Count on the raw cursors of psycopg too, which no factory of the connection creates."""
    try:
        import psycopg
    except ImportError:
        yield
        return
    with mock.patch.object(psycopg, "RawCursor", _counting(psycopg.RawCursor, count)):
        yield


def _counting(base: type[Any], count: Count) -> type[Any]:
    class Cursor(base):  # type: ignore[misc]
        """A cursor that counts its statements."""

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
        """A connection with counting cursors."""

        def cursor(self, factory: Any = cursors) -> Any:
            return super().cursor(factory)

        def execute(self, *args: Any) -> Any:
            return self.cursor().execute(*args)

    return Connection
