"""Statements of the hot path: written with SQLAlchemy, compiled once, run on the driver's cursor.

``Connection.execute`` spends some 25 microseconds on a statement that SQLite runs in two: it finds
the compiled text in its cache, prepares parameters, calls listeners, wraps the result. A claim is
eight statements. So those are compiled once for each dialect, and their text goes to the cursor;
connections, transactions and everything else stay with SQLAlchemy. Errors are the driver's own,
which :mod:`~resource_objects.backends.sql.errors` reads too, and times go through
:func:`moment` and :func:`from_moment`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Dialect
from sqlalchemy.types import TypeEngine

from resource_objects.backends.sql.together import sent_together

Values = Mapping[str, Any]
Rows = list[tuple[Any, ...]]


class Statement:
    """One statement; its values are given by the names of its bind parameters.

    :param columns: the columns an INSERT is given
    :param name: what others that are sent together with it read from what it returns by
    """

    def __init__(
        self, core: sa.Executable, columns: Sequence[str] | None = None, name: str | None = None
    ) -> None:
        self._core = core
        self._columns = columns
        self._name = name
        self._compiled: dict[str, tuple[str, Callable[[Values], Any]]] = {}

    def rows(self, connection: Connection, values: Values) -> Rows:
        """Return the rows of a query."""
        sent = sent_together(connection)
        if sent is not None:
            sent.send()
        text, given = self._for(connection)
        cursor = connection.connection.cursor()
        cursor.execute(text, given(values))
        found: Any = cursor.fetchall()
        cursor.close()
        return list(found) if isinstance(found, tuple) else found  # PyMySQL returns a tuple

    def run(self, connection: Connection, values: Values) -> int:
        """Run it once; return the number of rows it matched, -1 if that is not known yet."""
        sent = sent_together(connection)
        if sent is None:
            return self._run(connection, values)[0]
        text, given = self._for(connection)
        sent.add(text, given(values), self._name)
        return -1

    def must_match(
        self,
        connection: Connection,
        values: Values,
        rows: int,
        instead: Callable[[int], Exception],
    ) -> None:
        """Run it once; raise ``instead(matched)`` unless it matches so many rows.

        Of changes that are sent together that is known when they are.
        """
        matched = self.run(connection, values)
        sent = sent_together(connection)
        if sent is not None:
            sent.expect(rows, instead)
        elif matched != rows:
            raise instead(matched)

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

    def _for(self, connection: Connection) -> tuple[str, Callable[[Values], Any]]:
        dialect = connection.dialect
        found = self._compiled.get(dialect.name)
        if found is None:
            found = self._compiled[dialect.name] = self._compile(dialect)
        return found

    def _compile(self, dialect: Dialect) -> tuple[str, Callable[[Values], Any]]:
        """Return the text, and what makes the driver's parameters of the values."""
        core: Any = self._core
        if dialect.name == "postgresql":  # by position, as names would be those of other parts too
            positional: Any = type(dialect)
            dialect = positional(paramstyle="format")
        compiled: Any = core.compile(dialect=dialect, column_keys=self._columns)
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        order: Sequence[str] | None = compiled.positiontup

        def by_name(values: Values) -> Values:
            return {**fixed, **values}

        def by_position(values: Values) -> list[Any]:
            return [values[name] if name in values else fixed[name] for name in order or ()]

        return str(compiled), by_name if order is None else by_position


class Insert:
    """An INSERT into one table, of one row or of many in one statement."""

    def __init__(self, table: sa.Table, *columns: str) -> None:
        self._table = table
        self._columns = columns
        self._plain = Statement(sa.insert(table), columns)
        self._numbered = Statement(sa.insert(table), ("id", *columns))
        self._returning: Statement | None = None
        self._texts: dict[tuple[str, int], str] = {}

    def one(self, connection: Connection, values: Values) -> int:
        """Insert one row into a table that numbers its rows; return its number."""
        if connection.dialect.name != "postgresql":
            return self._plain.insert(connection, values)
        sent = sent_together(connection)
        number = None if sent is None else sent.take_number(self._table.name)
        if number is not None:
            self._numbered.run(connection, {"id": number, **values})
            return number
        if self._returning is None:
            returning = sa.insert(self._table).returning(self._table.c.id)
            self._returning = Statement(returning, self._columns)
        made: int = self._returning.rows(connection, values)[0][0]
        return made

    def many(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, each in the order of the columns, in one statement for very many of them."""
        sent = sent_together(connection)
        for part in _statements_of(rows, len(self._columns)):
            text = self._text(connection.dialect, len(part))
            values = [value for row in part for value in row]
            if sent is not None:
                sent.add(text, values)
            else:
                cursor = connection.connection.cursor()
                cursor.execute(text, values)
                cursor.close()

    def _text(self, dialect: Dialect, rows: int) -> str:
        """Return ``INSERT INTO table (...) VALUES (...), (...)``."""
        text = self._texts.get((dialect.name, rows))
        if text is None:
            quote = dialect.identifier_preparer.quote
            mark = "?" if dialect.name == "sqlite" else "%s"
            columns = ", ".join(map(quote, self._columns))
            row = f"({', '.join([mark] * len(self._columns))})"
            text = f"INSERT INTO {quote(self._table.name)} ({columns}) VALUES "
            text += ", ".join([row] * rows)
            if rows <= _FEW:
                self._texts[dialect.name, rows] = text
        return text


#: of how many rows the text of an INSERT is kept
_FEW = 16
#: what one INSERT takes: SQLite has at most 32,766 values, MySQL 16 MiB unless told otherwise
_MOST_VALUES = 10_000
_MOST_TEXT = 2_000_000


def _statements_of(rows: Sequence[Sequence[Any]], width: int) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield the rows of each INSERT: nearly always all of them."""
    if len(rows) == 1:
        yield rows
        return
    most = _MOST_VALUES // width
    start = size = 0
    for place, row in enumerate(rows):
        own = sum(len(value) for value in row if type(value) is str)
        if place > start and (place - start == most or size + own > _MOST_TEXT):
            yield rows[start:place]
            start, size = place, 0
        size += own
    if start < len(rows):
        yield rows[start:]


class Sized:
    """A statement with lists of values, compiled for few lengths of each.

    :param build: given the length of each list by its name, returns the statement; :func:`listed`
        and :func:`chosen` make parts of it
    """

    def __init__(self, build: Callable[..., sa.Executable], name: str | None = None) -> None:
        self._build = build
        self._name = name
        self._statements: dict[tuple[int, ...], Statement] = {}

    def rows(
        self, connection: Connection, values: Values | None = None, /, **lists: Sequence[Any]
    ) -> Rows:
        """Return the rows of a query for some lists, none of them empty, and single values."""
        statement, given = self._for(lists, values)
        return statement.rows(connection, given)

    def run(
        self, connection: Connection, values: Values | None = None, /, **lists: Sequence[Any]
    ) -> int:
        """Run it for some lists and values; return as :meth:`Statement.run` does."""
        statement, given = self._for(lists, values)
        return statement.run(connection, given)

    def must_match(
        self,
        connection: Connection,
        rows: int,
        instead: Callable[[int], Exception],
        values: Values | None = None,
        /,
        **lists: Sequence[Any],
    ) -> None:
        """Run it for some lists and values; raise unless it matches so many rows, as above."""
        statement, given = self._for(lists, values)
        statement.must_match(connection, given, rows, instead)

    def _for(
        self, lists: Mapping[str, Sequence[Any]], values: Values | None
    ) -> tuple[Statement, Values]:
        lengths = tuple(_rounded(len(values)) for values in lists.values())
        statement = self._statements.get(lengths)
        if statement is None:
            built = self._build(**dict(zip(lists, lengths, strict=True)))
            statement = self._statements[lengths] = Statement(built, name=self._name)
        given: dict[str, Any] = {} if values is None else dict(values)
        for (name, found), length in zip(lists.items(), lengths, strict=True):
            filled = [*found, *[found[-1]] * (length - len(found))]
            given.update((f"{name}_{position}", value) for position, value in enumerate(filled))
        return statement, given


def listed(column: sa.ColumnElement[Any], name: str, length: int) -> sa.ColumnElement[bool]:
    """Return ``column IN (...)`` for a list of a :class:`Sized` statement."""
    return column.in_([sa.bindparam(f"{name}_{position}") for position in range(length)])


def chosen(
    column: sa.ColumnElement[Any],
    keys: str,
    values: str,
    length: int,
    kind: TypeEngine[Any] | None = None,
) -> sa.ColumnElement[Any]:
    """Return ``CASE WHEN column = key THEN value ... END`` for two lists of one length.

    It is for rows that :func:`listed` finds by those keys: of a single one the value is enough.

    :param kind: the type of the values; a number unless given
    """
    kind = kind or sa.BigInteger()
    if length == 1:
        return sa.bindparam(f"{values}_0", type_=kind)
    return sa.case(
        *(
            (
                column == sa.bindparam(f"{keys}_{n}", type_=sa.BigInteger),
                sa.bindparam(f"{values}_{n}", type_=kind),
            )
            for n in range(length)
        )
    )


def _rounded(length: int) -> int:
    """Return the next power of two: a longer list repeats its last value, which changes nothing.

    >>> _rounded(1), _rounded(3), _rounded(4)
    (1, 4, 4)
    """
    return 1 << (length - 1).bit_length()


def moment(connection: Connection, when: datetime.datetime) -> Any:
    """Return a time as the driver takes it: in UTC, without a zone."""
    if when.tzinfo is not None and when.tzinfo is not datetime.UTC:
        when = when.astimezone(datetime.UTC)
    plain = when.replace(tzinfo=None)
    return plain.isoformat(" ", "microseconds") if connection.dialect.name == "sqlite" else plain


def from_moment(kept: Any) -> datetime.datetime:
    """Return a time as the driver gave it, in UTC."""
    found = datetime.datetime.fromisoformat(kept) if isinstance(kept, str) else kept
    return found.replace(tzinfo=datetime.UTC)
