"""Statements of the hot path: written with SQLAlchemy, compiled once, run on the driver's cursor.

``Connection.execute`` spends some 25 microseconds on a statement that SQLite runs in two: it finds
the compiled text in its cache, prepares parameters, calls listeners, wraps the result. A claim is
six statements. So those are compiled once for each dialect, and their text goes to the cursor;
connections, transactions and everything else stay with SQLAlchemy. Errors are the driver's own,
which :mod:`~resource_objects.backends.sql.errors` reads too, and times go through
:func:`moment` and :func:`from_moment`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Dialect

Values = Mapping[str, Any]
Rows = list[tuple[Any, ...]]


class Statement:
    """One statement; its values are given by the names of its bind parameters.

    :param columns: the columns an INSERT is given
    """

    def __init__(self, core: sa.Executable, columns: Sequence[str] | None = None) -> None:
        self._core = core
        self._columns = columns
        self._compiled: dict[str, tuple[str, Callable[[Values], Any]]] = {}

    def rows(self, connection: Connection, values: Values) -> Rows:
        """Return the rows of a query."""
        text, given = self._for(connection)
        cursor = connection.connection.cursor()
        cursor.execute(text, given(values))
        found: Any = cursor.fetchall()
        cursor.close()
        return list(found) if isinstance(found, tuple) else found  # PyMySQL returns a tuple

    def run(self, connection: Connection, values: Values) -> int:
        """Run it once; return the number of rows it matched."""
        return self._run(connection, values)[0]

    def insert(self, connection: Connection, values: Values) -> int:
        """Insert one row; return the number that it got by itself."""
        return self._run(connection, values)[1]

    def _run(self, connection: Connection, values: Values) -> tuple[int, int]:
        """Return how many rows it matched, and the number of the row it made."""
        text, given = self._for(connection)
        cursor: Any = connection.connection.cursor()
        cursor.execute(text, given(values))
        found: Any = cursor.rowcount, getattr(cursor, "lastrowid", None)
        cursor.close()
        return found[0], found[1]

    def run_many(self, connection: Connection, many: Iterable[Values]) -> int:
        """Run it for each of ``many``, in one go; return the number of rows it matched."""
        text, given = self._for(connection)
        cursor = connection.connection.cursor()
        cursor.executemany(text, [given(values) for values in many])
        count = cursor.rowcount
        cursor.close()
        return count

    def _for(self, connection: Connection) -> tuple[str, Callable[[Values], Any]]:
        dialect = connection.dialect
        found = self._compiled.get(dialect.name)
        if found is None:
            found = self._compiled[dialect.name] = self._compile(dialect)
        return found

    def _compile(self, dialect: Dialect) -> tuple[str, Callable[[Values], Any]]:
        """Return the text, and what makes the driver's parameters of the values."""
        core: Any = self._core
        compiled: Any = core.compile(dialect=dialect, column_keys=self._columns)
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        order: Sequence[str] | None = compiled.positiontup

        def by_name(values: Values) -> Values:
            return {**fixed, **values}

        def by_position(values: Values) -> list[Any]:
            return [values[name] if name in values else fixed[name] for name in order or ()]

        return str(compiled), by_name if order is None else by_position


class Insert:
    """An INSERT of one row into a table that numbers its rows."""

    def __init__(self, table: sa.Table, *columns: str) -> None:
        self._plain = Statement(sa.insert(table), columns)
        self._returning = Statement(sa.insert(table).returning(table.c.id), columns)

    def one(self, connection: Connection, values: Values) -> int:
        """Insert one row; return its number."""
        if connection.dialect.name == "postgresql":
            number: int = self._returning.rows(connection, values)[0][0]
            return number
        return self._plain.insert(connection, values)


class Sized:
    """A statement with lists of values, compiled for few lengths of each.

    :param build: given the length of each list by its name, returns the statement; :func:`listed`
        and :func:`chosen` make parts of it
    """

    def __init__(self, build: Callable[..., sa.Executable]) -> None:
        self._build = build
        self._statements: dict[tuple[int, ...], Statement] = {}

    def rows(self, connection: Connection, **lists: Sequence[Any]) -> Rows:
        """Return the rows of a query for some lists, none of them empty."""
        statement, values = self._for(lists)
        return statement.rows(connection, values)

    def run(self, connection: Connection, **lists: Sequence[Any]) -> int:
        """Run it for some lists, none of them empty; return the number of rows it matched."""
        statement, values = self._for(lists)
        return statement.run(connection, values)

    def _for(self, lists: Mapping[str, Sequence[Any]]) -> tuple[Statement, Values]:
        lengths = tuple(_rounded(len(values)) for values in lists.values())
        statement = self._statements.get(lengths)
        if statement is None:
            built = self._build(**dict(zip(lists, lengths, strict=True)))
            statement = self._statements[lengths] = Statement(built)
        given: dict[str, Any] = {}
        for (name, values), length in zip(lists.items(), lengths, strict=True):
            filled = [*values, *[values[-1]] * (length - len(values))]
            given.update((f"{name}_{position}", value) for position, value in enumerate(filled))
        return statement, given


def listed(column: sa.ColumnElement[Any], name: str, length: int) -> sa.ColumnElement[bool]:
    """Return ``column IN (...)`` for a list of a :class:`Sized` statement."""
    return column.in_([sa.bindparam(f"{name}_{position}") for position in range(length)])


def chosen(
    column: sa.ColumnElement[Any], keys: str, values: str, length: int
) -> sa.ColumnElement[int]:
    """Return ``CASE column WHEN key THEN value ... END`` for two lists of one length."""
    pairs = {
        sa.bindparam(f"{keys}_{n}", type_=sa.BigInteger): sa.bindparam(
            f"{values}_{n}", type_=sa.BigInteger
        )
        for n in range(length)
    }
    return sa.case(*((column == key, value) for key, value in pairs.items()))


def _rounded(length: int) -> int:
    """Return the next power of two: a longer list repeats its last value, which changes nothing.

    >>> _rounded(1), _rounded(3), _rounded(4)
    (1, 4, 4)
    """
    return 1 << (length - 1).bit_length()


def moment(connection: Connection, when: datetime.datetime) -> Any:
    """Return a time as the driver takes it, without a zone."""
    plain = when.replace(tzinfo=None)
    return plain.isoformat(" ", "microseconds") if connection.dialect.name == "sqlite" else plain


def from_moment(kept: Any) -> datetime.datetime:
    """Return a time as the driver gave it, in UTC."""
    found = datetime.datetime.fromisoformat(kept) if isinstance(kept, str) else kept
    return found.replace(tzinfo=datetime.UTC)
