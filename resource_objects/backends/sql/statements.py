"""Statements of the hot path: written with SQLAlchemy, compiled once, run on the driver's cursor.

``Connection.execute`` spends some 25 microseconds on a statement that SQLite runs in two: it finds
the compiled text in its cache, prepares parameters, calls listeners, wraps the result. A claim is
eight statements. So those are compiled once for each dialect, and their text goes to the cursor;
connections, transactions and everything else stay with SQLAlchemy. Errors are the driver's own,
which :mod:`~resource_objects.backends.sql.errors` reads too, and times go through
:func:`moment` and :func:`from_moment`.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import operator
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from resource_objects import clock, exceptions, names

Values = Mapping[str, Any]
Rows = list[tuple[Any, ...]]


class Statement:
    """One statement; its values are given by the names of its bind parameters.

    :param core: the statement, or what makes it: one of thousands of values is objects that every
        collection of garbage walks over, so only its text is kept
    :param columns: the columns an INSERT is given
    :param name: what others that are sent together with it read from what it returns by
    """

    def __init__(
        self,
        core: sa.Executable | Callable[[], sa.Executable],
        columns: Sequence[str] | None = None,
        name: str | None = None,
    ) -> None:
        self._core = core
        self._columns = columns
        self._name = name
        self._compiled: dict[str, tuple[str, Callable[[Values], Sequence[Any]]]] = {}

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
        text, given = self._for(connection)
        if sent is not None:
            sent.add(text, given(values), self._name)
            return -1
        cursor: Any = connection.connection.cursor()
        cursor.execute(text, given(values))
        matched: int = cursor.rowcount
        cursor.close()
        return matched

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
        if matched == rows:
            return
        sent = sent_together(connection)
        if sent is None:
            raise instead(matched)
        sent.expect(rows, instead)

    def _for(self, connection: Connection) -> tuple[str, Callable[[Values], Sequence[Any]]]:
        dialect = connection.dialect
        found = self._compiled.get(dialect.name)
        if found is None:
            found = self._compiled[dialect.name] = self._compile(dialect)
        return found

    def _compile(self, dialect: Dialect) -> tuple[str, Callable[[Values], Sequence[Any]]]:
        """Return the text, and what makes the driver's parameters of the values."""
        core: Any = self._core() if callable(self._core) else self._core
        if dialect.name == "postgresql":  # by position, as names would be those of other parts too
            positional: Any = type(dialect)
            dialect = positional(paramstyle="format")
        for part in visitors.iterate(core):
            if isinstance(part, sa.BindParameter):
                part.required = False  # all values are given when it is run
        compiled: Any = core.compile(
            dialect=dialect,
            column_keys=self._columns,
            compile_kwargs={"render_postcompile": True},  # see listed()
        )
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        text, names = str(compiled), compiled.positiontup
        if names is None:  # PyMySQL's, by name
            names = [name for name in _BY_NAME.findall(text) if name]
            text = _BY_NAME.sub(lambda mark: "%s" if mark[1] else mark[0], text)
        # SQLAlchemy counts those of a list from one
        order = [
            f"{found[1]}_{int(found[2]) - 1}" if (found := _IN_LIST.fullmatch(name)) else name
            for name in names
        ]
        read: Callable[[Values], Sequence[Any]]
        if len(order) > 1:
            read = operator.itemgetter(*order)
        else:  # which gives one value by itself, not in a row
            read = lambda values: tuple([values[name] for name in order])  # noqa: E731
        return text, (lambda values: read({**fixed, **values})) if fixed else read


class Insert:
    """An INSERT into one table, of one row or of many in one statement."""

    def __init__(self, table: sa.Table, *columns: str) -> None:
        self._table = table
        self._columns = columns
        self._texts: dict[tuple[str, int], str] = {}

    def many(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, each in the order of the columns, in one statement for very many of them."""
        sent = sent_together(connection)
        if sent is None and len(rows) > _FEW and connection.dialect.name == "postgresql":
            # whose driver reads the text of a statement, and each mark in it, letter by letter
            insert_tuples(connection, self._table, self._columns, [*map(tuple, rows)])
            return
        width = len(self._columns)
        is_sqlite = connection.dialect.name == "sqlite"  # which takes any text
        most = _MOST_VALUES_OF_INSERT // width
        for part in chunks(rows, most) if is_sqlite else _statements_of(rows, most):
            text = self._text(connection.dialect, len(part))
            values = [*itertools.chain.from_iterable(part)]
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
_MOST_VALUES_OF_INSERT = 10_000
_MOST_TEXT = 2_000_000


def _statements_of(rows: Sequence[Sequence[Any]], most: int) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield the rows of each INSERT, at most so many: nearly always all of them."""
    if len(rows) == 1:
        yield rows
        return
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
        lengths = tuple(
            [n if (n := len(values)) <= _AS_IT_IS else _rounded(n) for values in lists.values()]
        )
        statement = self._statements.get(lengths)
        if statement is None:
            build = functools.partial(self._build, **dict(zip(lists, lengths, strict=True)))
            statement = self._statements[lengths] = Statement(build, name=self._name)
        given: dict[str, Any] = {} if values is None else dict(values)
        for (name, found), length in zip(lists.items(), lengths, strict=True):
            more = length - len(found)
            filled = [*found, *[found[-1]] * more] if more else found
            given.update(zip(_places(name, length), filled, strict=True))
        return statement, given


@functools.lru_cache(maxsize=64)
def _places(name: str, length: int) -> tuple[str, ...]:
    """Return the names of the values of a list."""
    return tuple([f"{name}_{position}" for position in range(length)])


def listed(column: sa.ColumnElement[Any], name: str, length: int) -> sa.ColumnElement[bool]:
    """Return ``column IN (...)`` for a list of a :class:`Sized` statement."""
    # SQLAlchemy writes thousands of values of one parameter at once, but takes a tenth of a second
    # for as many parameters
    return column.in_(sa.bindparam(f"{name}{_LIST}", [None] * length, expanding=True))


_LIST = "_listed"
_BY_NAME = re.compile(r"%%|%\((\w+)\)s")
_IN_LIST = re.compile(rf"(\w+){_LIST}_([0-9]+)")


#: what no provider has
_NO_UUID = "00000000-0000-0000-0000-000000000000"


def uuids_among(keys: Iterable[str]) -> list[str]:
    """Return those of some keys that are uuids, at least one: a uuid may be compared with no other.

    >>> uuids_among(["host0"])
    ['00000000-0000-0000-0000-000000000000']
    """
    return [key for key in keys if names.is_uuid(key)] or [_NO_UUID]


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


#: up to which length a list is given as it is: so many classes is what most claims are about
_AS_IT_IS = 4


def _rounded(length: int) -> int:
    """Return the next power of two: a longer list repeats its last value, which changes nothing.

    >>> _rounded(5), _rounded(8)
    (8, 8)
    """
    return 1 << (length - 1).bit_length()


class now_as_kept(FunctionElement[Any]):  # noqa: N801  # as SQL functions are written
    """The time of the database, as times are kept; nothing with SQLite, whose time is ours."""

    type = sa.DateTime()
    inherit_cache = True
    name = "now_as_kept"


@compiles(now_as_kept)
def _now_of_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    return "NULL"


@compiles(now_as_kept, "postgresql")
def _now_of_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    return "clock_timestamp() AT TIME ZONE 'UTC'"


@compiles(now_as_kept, "mysql", "mariadb")
def _now_of_mysql(element: Any, compiler: Any, **options: Any) -> str:
    return "UTC_TIMESTAMP(6)"


_NOW = Statement(sa.select(now_as_kept()))


def now_of(connection: Connection) -> datetime.datetime:
    """Return the time of the database. Cost: a statement on a server."""
    if connection.dialect.name == "sqlite":
        return clock.now()
    return from_moment(_NOW.rows(connection, {})[0][0])


#: Numbers are drawn from the time since then, in milliseconds, and 21 random bits.
_EPOCH_MS = 1_577_836_800_000
#: what 63 bits leave for the time: until the year 2159
_MOST_MS = 2**42 - 1


def draw_number(when: datetime.datetime | None = None) -> int:
    """Return a number for a new row, which nobody else draws: by time and chance, in 63 bits.

    The time keeps indexes growing at one end; nothing is judged by it, so this machine's will do.
    Chance, not a sequence of the database, keeps a database from giving a number again that it gave
    in writes it has lost. Two who draw the same one meet at the primary key, and one tries again.

    :param when: the moment to draw it by; None: this one
    """
    return drawn_at(when or clock.now()) | secrets.randbits(21)


def drawn_at(when: datetime.datetime) -> int:
    """Return the least number that is drawn at a moment."""
    since = int(when.timestamp() * 1000) - _EPOCH_MS
    return min(max(since, 0), _MOST_MS) << 21


def moment(connection: Connection, when: datetime.datetime) -> Any:
    """Return a time as the driver takes it: in UTC, without a zone."""
    kept = plain(when)
    return kept.isoformat(" ", "microseconds") if connection.dialect.name == "sqlite" else kept


def plain(when: datetime.datetime) -> datetime.datetime:
    """Return a time as it is kept, and as SQLAlchemy takes it: in UTC, without a zone."""
    if when.tzinfo is not None and when.tzinfo is not datetime.UTC:
        when = when.astimezone(datetime.UTC)
    return when.replace(tzinfo=None)


def from_moment(kept: Any) -> datetime.datetime:
    """Return a time as the driver gave it, in UTC."""
    found = datetime.datetime.fromisoformat(kept) if isinstance(kept, str) else kept
    return found.replace(tzinfo=datetime.UTC)


# --- together -------------------------------------------------------------------------------------
#
# Several changes sent as one statement: each wait for a server costs, above all under a lock.
#
# PostgreSQL takes them as parts of one query, ``WITH part_0 AS (INSERT ...), part_1 AS (UPDATE ...)
# SELECT`` how many rows each of them matched. Within a block of :func:`together` a change is put
# by, until the block ends or something is read. What must be known of it is said with it
# (:meth:`~resource_objects.backends.sql.statements.Statement.must_match`) and found out then.
#
# No part sees what another one does, but for one that reads from another by its name, and no two
# may change the same row. The order they are counted in is the one they are carried out in.
#
# Other databases are sent each change as it comes: SQLite runs in this process, and MySQL has
# nothing of the kind.


_KEY = "resource_objects_together"
#: values of one query, nearly: PostgreSQL takes 65,535
_MOST_VALUES = 30_000


class StatementBatch:
    """The changes of one block that are not sent yet."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parts: list[str] = []
        self._values: list[Any] = []
        self._named = False  # whether what follows may read from a part, and must go with it
        self._expected: list[tuple[int, int, Callable[[int], Exception]]] = []

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


@functools.lru_cache(maxsize=64)
def _query(parts: tuple[str, ...]) -> str:
    """Return the query of some parts; a program has a few."""
    names = [part.partition(" ")[0] for part in parts]
    counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in names)
    places = itertools.count(1)
    marked = re.sub("%[s%]", lambda mark: _numbered_mark(mark[0], places), ", ".join(parts))
    return f"WITH {marked} SELECT {counts}"


def _numbered_mark(mark: str, places: Iterator[int]) -> str:
    return f"${next(places)}" if mark == "%s" else "%"


def together(connection: Connection) -> contextlib.AbstractContextManager[object]:
    """Send the changes of the block together, where the database takes them so."""
    if not hasattr(connection.dialect.loaded_dbapi, "RawCursor"):  # psycopg's, from 3.2
        return _ONE_BY_ONE
    return _sending(connection)


_ONE_BY_ONE = contextlib.nullcontext()


@contextlib.contextmanager
def _sending(connection: Connection) -> Iterator[None]:
    info = connection.info
    sent = info[_KEY] = StatementBatch(connection)
    try:
        yield
        sent.send()
    finally:
        info.pop(_KEY, None)


def sent_together(connection: Connection) -> StatementBatch | None:
    """Return what changes are put by with, None where they are sent one by one."""
    if connection.dialect.name != "postgresql":
        return None
    found: StatementBatch | None = connection.info.get(_KEY)
    return found


# --- rows -----------------------------------------------------------------------------------------
#
# Many rows in one statement: inserted, changed and removed, each with values of its own.
#
# A driver's ``executemany`` will not do everywhere: PyMySQL sends an UPDATE per row, psycopg a
# message per row. So on servers the rows are given as a table that the statement joins with:
#
# * PostgreSQL: ``unnest`` of one array for each column;
# * MariaDB and MySQL: ``SELECT ... UNION ALL SELECT ...``, which all their versions know. Its
#   ``executemany`` does make one INSERT of many rows;
# * SQLite runs in the process: one prepared statement, run for each row, is what it does best.
#
# Rows are mappings with the same keys. Values go to the driver as they are: times are those of
# ``statements.moment``.


RowValues: TypeAlias = Sequence[Mapping[str, Any]]

#: Rows of one statement: MySQL parses a SELECT for each.
_MOST = {"mysql": 500, "postgresql": 10_000, "sqlite": 10_000}


def insert(connection: Connection, table: sa.Table, rows: RowValues) -> None:
    """Insert rows, none of which may be there. Cost: a statement for thousands of rows."""
    if rows:
        names = list(rows[0])
        insert_tuples(connection, table, names, _tuples(rows, names))


def insert_tuples(
    connection: Connection,
    table: sa.Table,
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
) -> None:
    """Insert rows as :func:`insert` does, each the values of some columns: for very many rows."""
    if not rows:
        return
    listed = ", ".join(names)
    if connection.dialect.name == "postgresql":
        text = f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {_arrays(table, names)}"
        for part in chunks(rows, _MOST["postgresql"]):
            columns = map(array, zip(*part, strict=True))
            connection.exec_driver_sql(text, dict(zip(names, columns, strict=True)))
        return
    marks = ", ".join([_mark_of(connection)] * len(names))
    text = f"INSERT INTO {table} ({listed}) VALUES ({marks})"
    connection.exec_driver_sql(text, list(rows))


def update(connection: Connection, table: sa.Table, keys: Sequence[str], rows: RowValues) -> int:
    """Give each row that has the values of ``keys`` its other values; return how many there were.

    Cost: a statement for thousands of rows, on MariaDB for 500.
    """
    if not rows:
        return 0
    changed = [name for name in rows[0] if name not in keys]
    sets = {
        "sqlite": ", ".join(f"{name} = ?" for name in changed),
        "postgresql": ", ".join(f"{name} = given.{name}" for name in changed),
        "mysql": ", ".join(f"kept.{name} = given.{name}" for name in changed),
    }
    forms = {
        "sqlite": "UPDATE {table} SET {sets} WHERE {where}",
        "postgresql": "UPDATE {table} AS kept SET {sets} FROM {given} WHERE {where}",
        "mysql": "UPDATE {given} STRAIGHT_JOIN {table} AS kept ON {where} SET {sets}",
    }
    dialect = connection.dialect.name
    return _for_each(
        connection, table, [*changed, *keys], keys, rows, forms[dialect], sets[dialect]
    )


def delete(connection: Connection, table: sa.Table, rows: RowValues) -> int:
    """Delete the rows that have these values; return how many there were. Cost: as ``update``."""
    if not rows:
        return 0
    forms = {
        "sqlite": "DELETE FROM {table} WHERE {where}",
        "postgresql": "DELETE FROM {table} AS kept USING {given} WHERE {where}",
        "mysql": "DELETE kept FROM {given} STRAIGHT_JOIN {table} AS kept ON {where}",
    }
    keys = list(rows[0])
    return _for_each(connection, table, keys, keys, rows, forms[connection.dialect.name], "")


def _for_each(
    connection: Connection,
    table: sa.Table,
    names: Sequence[str],
    keys: Sequence[str],
    rows: RowValues,
    form: str,
    sets: str,
) -> int:
    """Run a statement on the rows of a table that have the values of ``keys``."""
    dialect = connection.dialect.name
    count = 0
    for part in chunks(rows, _most(dialect, rows)):
        if dialect == "sqlite":
            where = " AND ".join(f"{name} = ?" for name in keys)
            given: Any = _tuples(part, names)
            text = form.format(table=table, sets=sets, where=where)
        else:
            where = " AND ".join(f"kept.{name} = given.{name}" for name in keys)
            if dialect == "postgresql":
                source, given = _arrays(table, names), _columns(part, names)
            else:
                source = _selects(names, len(part))
                given = tuple(row[name] for row in part for name in names)
            text = form.format(table=table, sets=sets, where=where, given=source)
        count += connection.exec_driver_sql(text, given).rowcount
    return count


def _most(dialect: str, rows: RowValues) -> int:
    """Return how many of some rows go into one statement, which MySQL takes of 16 MiB only."""
    if dialect != "mysql":
        return _MOST[dialect]
    longest = max(sum(len(v) for v in row.values() if type(v) is str) for row in rows)
    return max(1, min(_MOST[dialect], MOST_TEXT // (4 * longest + 1)))  # up to 4 bytes each


def _mark_of(connection: Connection) -> str:
    return "?" if connection.dialect.name == "sqlite" else "%s"


def _arrays(table: sa.Table, names: Sequence[str]) -> str:
    """Return ``unnest(...) AS given (...)`` for an array of each column, by its name."""
    arrays = ", ".join(f"%({name})s::{_array_type(table.c[name])}" for name in names)
    return f"unnest({arrays}) AS given ({', '.join(names)})"


def array(column: Sequence[Any]) -> str | list[Any]:
    """Return the values of a column for an array of PostgreSQL: as its text, where that is plain.

    The driver takes some ten times as long for each.

    >>> array([1, 2]), array(["VCPU", "PGPU"]), array([None, 3]), array(['say "no"'])
    ('{1,2}', '{"VCPU","PGPU"}', '{NULL,3}', ['say "no"'])
    """
    kinds = set(map(type, column))
    if kinds == {str}:
        said = '","'.join(column)
        is_plain = "\\" not in said and said.count('"') == 2 * (len(column) - 1)
        return f'{{"{said}"}}' if is_plain else list(column)
    if kinds <= {int, type(None)}:
        return f"{{{','.join(['NULL' if one is None else str(one) for one in column])}}}"
    return list(column)


@functools.cache
def _postgresql() -> Dialect:
    from sqlalchemy.dialects import postgresql  # who connects to another need not load it

    return postgresql.dialect()  # type: ignore[no-untyped-call]


def _array_type(column: sa.Column[Any]) -> str:
    if isinstance(column.type, sa.Integer):
        return "bigint[]"
    if isinstance(column.type, sa.JSON):
        return "json[]"
    if isinstance(column.type.dialect_impl(_postgresql()), sa.Uuid):
        return "uuid[]"
    return "timestamp[]" if isinstance(column.type, sa.DateTime) else "text[]"


def _tuples(rows: RowValues, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the values of rows in the order of some names."""
    if len(names) == 1:
        return [(row[names[0]],) for row in rows]
    return list(map(operator.itemgetter(*names), rows))


def _columns(rows: RowValues, names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in names}


def _selects(names: Sequence[str], count: int) -> str:
    """Return ``(SELECT ... UNION ALL SELECT ...) AS given`` for a number of rows."""
    first = ", ".join(f"%s AS {name}" for name in names)
    another = f" UNION ALL SELECT {', '.join(['%s'] * len(names))}"
    return f"(SELECT {first}{another * (count - 1)}) AS given"


# --- chunks ---------------------------------------------------------------------------------------
#
# What every database takes in one statement: lists of values for IN in parts, and long texts.


T = TypeVar("T")

#: SQLite takes at most 32,766 values in one statement, PostgreSQL 65,535.
MOST = 10_000
#: MariaDB and MySQL take statements of 16 MiB, if not told otherwise.
MOST_TEXT = 12 * 2**20


def chunks(values: Sequence[T], most: int = MOST) -> list[Sequence[T]]:
    """Return the values in parts of at most ``most``, none if there are none.

    >>> [len(part) for part in chunks(range(25_000))]
    [10000, 10000, 5000]
    """
    if 0 < len(values) <= most:  # nearly always
        return [values]
    return [values[start : start + most] for start in range(0, len(values), most)]


#: What a filter may name, less than SQLite's values to leave some for what else is asked.
_MOST_NAMES = 30_000


def refuse_too_many(names: Iterable[Collection[Any]]) -> None:
    """Refuse a filter that names more than one statement takes.

    :raises InvalidField: if it does

    >>> refuse_too_many([range(20_000), range(20_000)])
    Traceback (most recent call last):
        ...
    resource_objects.exceptions.InvalidField: filter: got 40000, expected at most 30000 names in all
    """
    count = sum(map(len, names))
    if count > _MOST_NAMES:
        raise exceptions.InvalidField("filter", count, f"at most {_MOST_NAMES} names in all")
