"""Several changes sent as one statement: each wait for a server costs, above all under a lock.

PostgreSQL takes them as parts of one query, ``WITH part_0 AS (INSERT ...), part_1 AS (UPDATE ...)
SELECT`` how many rows each of them matched. Within a block of :func:`together` a change is put by,
until the block ends or something is read. What must be known of it is said with it
(:meth:`~resource_objects.backends.sql.statements.Statement.must_match`, and what duplicates mean)
and found out then.

No part sees what another one does, but for one that reads from another by its name, and no two may
change the same row. The order they are counted in is the one they are carried out in.

Other databases are sent each change as it comes: SQLite runs in this process, and MySQL has nothing
of the kind.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql.errors import duplicated_table

_KEY = "resource_objects_together"
#: values of one query, nearly: PostgreSQL takes 65,535
_MOST_VALUES = 30_000


class Together:
    """The changes of one block that are not sent yet."""

    def __init__(self, connection: Connection, tables: Sequence[sa.Table]) -> None:
        self._connection = connection
        self._parts: list[str] = []
        self._values: list[Any] = []
        self._named = False  # whether what follows may read from a part, and must go with it
        self._expected: list[tuple[int, int, Callable[[int], Exception]]] = []
        self._numbers = _numbers(connection, tables)

    def take_number(self, table: str) -> int | None:
        """Return a number for the next row of a table, None if there is none."""
        return self._numbers.pop(table, None)

    def add(self, text: str, values: Sequence[Any], name: str | None = None) -> None:
        """Put a change by; one with a name returns what others read from that."""
        if len(self._values) + len(values) > _MOST_VALUES and not self._named:
            self.send()
        self._named = name is not None or self._named
        part = f"part_{len(self._parts)} AS ({text} RETURNING 1)"
        self._parts.append(part if name is None else f"{name} AS ({text})")
        self._values += values

    def expect(self, rows: int, instead: Callable[[int], Exception]) -> None:
        """Have an error raised unless the change that was just added matches so many rows."""
        self._expected.append((len(self._parts) - 1, rows, instead))

    def send(self) -> None:
        """Send what was put by, and raise what is wrong with it."""
        if not self._parts:
            return
        module: Any = self._connection.dialect.loaded_dbapi
        # psycopg would read a query as long as this one again each time, for its marks
        cursor = module.RawCursor(self._connection.connection.driver_connection)
        parts, values, expected = tuple(self._parts), self._values, self._expected
        self._parts, self._values, self._expected, self._named = [], [], [], False
        cursor.execute(_query(parts), values)
        matched: Any = cursor.fetchone()
        for position, rows, instead in expected:
            if matched[position] != rows:
                raise instead(matched[position])


def _numbers(connection: Connection, tables: Sequence[sa.Table]) -> dict[str, int]:
    """Return a number for a row of each of some tables, by its name."""
    names = [table.name for table in tables]
    cursor = connection.connection.cursor()
    wanted = ", ".join(f"nextval('{name}_id_seq')" for name in names)
    cursor.execute(f"SELECT {wanted}")
    found: Any = cursor.fetchone()
    return dict(zip(names, found, strict=True))


@functools.lru_cache(maxsize=64)
def _query(parts: tuple[str, ...]) -> str:
    """Return the query of some parts; a program has a few."""
    names = [part.partition(" ")[0] for part in parts]
    counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in names)
    places = itertools.count(1)
    marked = re.sub("%[s%]", lambda mark: _mark(mark[0], places), ", ".join(parts))
    return f"WITH {marked} SELECT {counts}"


def _mark(mark: str, places: Iterator[int]) -> str:
    return f"${next(places)}" if mark == "%s" else "%"


@contextlib.contextmanager
def together(
    connection: Connection,
    tables: Sequence[sa.Table],
    duplicates: Mapping[str, exceptions.LedgerError],
) -> Iterator[None]:
    """Send the changes of the block together, where the database takes them so.

    :param tables: those that one row will be made in, which is numbered before it is there
    :param duplicates: what is raised where a unique constraint of a table refuses a row
    """
    if not hasattr(connection.dialect.loaded_dbapi, "RawCursor"):  # psycopg's, from 3.2
        yield
        return
    sent = connection.info[_KEY] = Together(connection, tables)
    info = connection.info
    try:
        yield
        sent.send()
    except Exception as error:
        instead = duplicates.get(duplicated_table(error) or "")
        if instead is None:
            raise
        raise instead from error
    finally:
        info.pop(_KEY, None)


def sent_together(connection: Connection) -> Together | None:
    """Return what changes are put by with, None where they are sent one by one."""
    if connection.dialect.name != "postgresql":
        return None
    found: Together | None = connection.info.get(_KEY)
    return found
