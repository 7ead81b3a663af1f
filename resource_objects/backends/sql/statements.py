"""SQL as text: statements with named marks, many rows in one statement, numbers and times.

A claim is seven statements, and SQLite runs one in two microseconds. ``Connection.execute`` of
SQLAlchemy spends 25 on each: it looks up the compiled text, processes parameters, calls listeners
and wraps the result. So the statements of writes and of bulk reads are text for the
driver's own cursor. SQLAlchemy is used for engines, pools, the schema and filters.

Such a cursor raises the driver's own errors, which
:mod:`~resource_objects.backends.sql.errors` translates too, and takes and returns times as the
driver does: see :func:`moment` and :func:`from_moment`.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import operator
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Dialect

from resource_objects import clock, exceptions, names
from resource_objects.providers.disabled import Disabled

T = TypeVar("T")
#: The rows of a query.
Result = list[tuple[Any, ...]]

# --- statements -----------------------------------------------------------------------------------

#: The time of a database as it is stored.
NOW: Final = {
    "sqlite": "NULL",
    "postgresql": "clock_timestamp() AT TIME ZONE 'UTC'",
    "mysql": "UTC_TIMESTAMP(6)",
}
_WORD = re.compile(r"\{(\w+)(?:: ([^}]*))?\}")
_MARK = re.compile(r"WHEN :(\w+) THEN :(\w+)\*|:(\w+(?:,\w+)*)(\*?)|%")


class SQL:
    """A statement as text, run with the values of its marks.

    ====================== =======================================================================
    ``:name``              one value
    ``:names*``            a list of values after IN: ``(?, ?, ?)``
    ``:uuids,classes*``    a list of pairs after IN: ``((?, ?), (?, ?))``
    ``WHEN :a THEN :b*``   a branch of CASE for each pair of values
    ``{mysql: HINT}``      text for one database; ``{server: ...}`` for all but SQLite
    ``{now}``              the time of the database as it is stored; NULL on SQLite
    ====================== =======================================================================

    No list may be empty. The text is made once for each database and few lengths of a list: a list
    of more than four values is filled up to a power of two with its last value, which changes
    neither an IN nor a CASE.

    >>> SQL("SELECT name FROM hosts WHERE id IN :ids*").text("sqlite", ids=[1, 2, 3])
    'SELECT name FROM hosts WHERE id IN (?, ?, ?)'
    """

    __slots__ = ("_lists", "_statements", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        names: dict[str, None] = {}
        for key, value, lists, star in _MARK.findall(text):
            if key or star:
                names.update(dict.fromkeys([key, value] if key else lists.split(",")))
        self._lists = tuple(names)
        self._statements: dict[tuple[str, tuple[int, ...]], _Statement] = {}

    def rows(self, connection: Connection, /, **values: Any) -> Result:
        """Return the rows of a query."""
        cursor = self._execute(connection, values)
        rows: Any = cursor.fetchall()
        cursor.close()
        return list(rows) if isinstance(rows, tuple) else rows  # PyMySQL returns a tuple

    def run(self, connection: Connection, /, **values: Any) -> None:
        """Run the statement."""
        self._execute(connection, values)

    def rows_for(self, connection: Connection, keys: Collection[Any], /, **values: Any) -> Result:
        """Return the rows for keys, the only list without a value, and the values of other marks.

        Cost: a query for thousands of keys, none without keys.
        """
        [name] = [name for name in self._lists if name not in values]
        rows: Result = []
        for part in chunks(sorted(keys)):
            rows += self.rows(connection, **{name: part}, **values)
        return rows

    def run_for(self, connection: Connection, keys: Collection[Any], /, **values: Any) -> None:
        """Run the statement for keys, as :meth:`rows_for`."""
        [name] = [name for name in self._lists if name not in values]
        for part in chunks(sorted(keys)):
            self.run(connection, **{name: part}, **values)

    def must_match(
        self, connection: Connection, rows: int, error: Callable[[int], Exception], /, **values: Any
    ) -> None:
        """Run the statement; raise ``error(matched)`` unless it matches ``rows`` rows.

        Inside a pipeline the number is known, and the error raised, at its end.
        """
        cursor = self._execute(connection, values)
        checks: _Checks | None = connection.info.get(_KEY)
        if checks is not None:
            checks.append((cursor, rows, error))
        elif cursor.rowcount != rows:
            raise error(cursor.rowcount)

    def text(self, dialect: str, **values: Any) -> str:
        """Return the text that a driver is sent for some values."""
        return self._for(dialect, values)[0]

    def _execute(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        text, parameters = self._for(connection.dialect.name, values)
        cursor: Any = connection.connection.cursor()
        cursor.execute(text, parameters)
        return cursor

    def _for(self, dialect: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        lengths = tuple([_padded(len(values[name])) for name in self._lists])
        statement = self._statements.get((dialect, lengths))
        if statement is None:
            sizes = dict(zip(self._lists, lengths, strict=True))
            statement = self._statements[dialect, lengths] = _make(self._text, dialect, sizes)
        text, marks = statement
        parameters: list[Any] = []
        for name, columns, length in marks:
            if not length:
                parameters.append(values[name])
            elif len(columns) == 1:
                parameters += _filled(values[name], length)
            else:
                pairs = zip(*[_filled(values[column], length) for column in columns], strict=True)
                parameters += itertools.chain.from_iterable(pairs)
        return text, parameters


#: A text, and the values that it takes: a name, the lists that form pairs, and their length
_Statement = tuple[str, list[tuple[str, tuple[str, ...], int]]]
#: A list up to this length is not filled up: most claims are about so few classes.
_EXACT = 4


def _padded(length: int) -> int:
    """Return the length that a list is filled up to.

    >>> _padded(3), _padded(5), _padded(8)
    (3, 8, 8)
    """
    return length if length <= _EXACT else 1 << (length - 1).bit_length()


def _filled(values: Sequence[Any], length: int) -> Sequence[Any]:
    missing = length - len(values)
    return [*values, *[values[-1]] * missing] if missing else values


def _make(text: str, dialect: str, sizes: Mapping[str, int]) -> _Statement:
    mark = "?" if dialect == "sqlite" else "%s"
    marks: list[tuple[str, tuple[str, ...], int]] = []

    def replace_word(match: re.Match[str]) -> str:
        word, text_for = match.groups()
        if text_for is None:
            return {"now": NOW[dialect]}[word]
        return text_for if word == dialect or (word == "server" and dialect != "sqlite") else ""

    def replace_mark(match: re.Match[str]) -> str:
        key, value, name, star = match.groups()
        if key:
            marks.append((key, (key, value), sizes[key]))
            return " ".join([f"WHEN {mark} THEN {mark}"] * sizes[key])
        if not name:  # a percent sign, by which the drivers of servers know their marks
            return "%" if dialect == "sqlite" else "%%"
        if not star:
            marks.append((name, (), 0))
            return mark
        columns = tuple(name.split(","))
        marks.append((name, columns, sizes[columns[0]]))
        entry = mark if len(columns) == 1 else f"({', '.join([mark] * len(columns))})"
        return f"({', '.join([entry] * sizes[columns[0]])})"

    return _MARK.sub(replace_mark, " ".join(_WORD.sub(replace_word, text).split())), marks


_NO_UUID = "00000000-0000-0000-0000-000000000000"


def uuids_among(keys: Iterable[str]) -> list[str]:
    """Return the keys that are uuids, at least one: PostgreSQL compares a uuid with nothing else.

    >>> uuids_among(["host0"])
    ['00000000-0000-0000-0000-000000000000']
    """
    return [key for key in keys if names.is_uuid(key)] or [_NO_UUID]


# --- pipelines ------------------------------------------------------------------------------------

_KEY = "resource_objects_checks"
#: A cursor, the number of rows that its statement must match, and the error if it does not.
_Checks = list[tuple[Any, int, Callable[[int], Exception]]]


def pipeline(connection: Connection) -> contextlib.AbstractContextManager[object]:
    """Send the changes of the block to PostgreSQL without waiting for the answer to each.

    Under row locks each round trip costs. A query inside the block waits for its rows, and for all
    that was sent before it. SQLite runs in this process, and MySQL has no pipeline: there each
    statement is run at once.
    """
    module: Any = connection.dialect.loaded_dbapi
    if connection.dialect.name != "postgresql" or not module.Pipeline.is_supported():  # by libpq 14
        return _NO_PIPELINE
    return _pipeline(connection, module)


_NO_PIPELINE: Final = contextlib.nullcontext()


@contextlib.contextmanager
def _pipeline(connection: Connection, module: Any) -> Iterator[None]:
    driver: Any = connection.connection.driver_connection
    checks: _Checks = []
    connection.info[_KEY] = checks
    failure: Exception | None = None
    try:
        with driver.pipeline():
            yield
    except module.Error as error:
        failure = error
    finally:
        connection.info.pop(_KEY, None)
    for cursor, rows, unmatched in checks:  # before the failure of a later statement
        if cursor.rowcount not in (rows, -1):  # -1: a statement before it failed
            raise unmatched(cursor.rowcount) from failure
    if failure is not None:
        raise failure


# --- many rows ------------------------------------------------------------------------------------
#
# One statement for many rows that are inserted, updated or deleted, each with values of its own.
#
# A driver's ``executemany`` is not enough everywhere: PyMySQL sends an UPDATE for each row, psycopg
# a message for each row. So a statement to a server has the rows as a table that it joins with:
#
# * PostgreSQL: ``unnest`` of one array for each column;
# * MariaDB and MySQL: ``SELECT ... UNION ALL SELECT ...``, which all their versions know;
# * SQLite runs in this process: one prepared statement, run for each row, is the fastest.
#
# Values are passed to the driver unchanged: times are those of :func:`moment`.


class Insert:
    """An INSERT into one table, of one row or of many.

    :param computed: expressions in place of values, by column; ``{}`` stands for the row's value
    """

    def __init__(
        self, table: sa.Table, *columns: str, computed: Mapping[str, str] | None = None
    ) -> None:
        self._table = table
        self._columns = columns
        self._into = f"INSERT INTO {table.name} ({', '.join(columns)})"
        self._values = [(computed or {}).get(name, "{}") for name in columns]
        self._texts: dict[tuple[str, int], str] = {}

    def many(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, each with its values in the order of the columns.

        Cost: a statement for thousands of rows.
        """
        if not rows:
            return
        dialect = connection.dialect.name
        cursor = connection.connection.cursor()
        if dialect == "sqlite":
            cursor.executemany(self._text("sqlite", 1), rows)
        elif dialect == "postgresql" and len(rows) > _FEW:
            # psycopg parses the text of a long statement, and each mark in it, every time
            for part in chunks(rows):
                arrays = [array(column) for column in zip(*part, strict=True)]
                pairs = zip(self._values, self._columns, strict=True)
                selected = ", ".join([value.format(f"sent.{name}") for value, name in pairs])
                sent = _arrays(connection.dialect, self._table, self._columns)
                cursor.execute(f"{self._into} SELECT {selected} FROM {sent}", arrays)
        else:
            for part in _statements_of(rows, MOST // len(self._columns)):
                values = [*itertools.chain.from_iterable(part)]
                cursor.execute(self._text(dialect, len(part)), values)

    def _text(self, dialect: str, rows: int) -> str:
        text = self._texts.get((dialect, rows))
        if text is None:
            mark = "?" if dialect == "sqlite" else "%s"
            row = f"({', '.join([value.format(mark) for value in self._values])})"
            text = f"{self._into} VALUES {', '.join([row] * rows)}"
            if rows <= _FEW:
                self._texts[dialect, rows] = text
        return text


#: The number of rows up to which the text of an INSERT is stored.
_FEW = 16


def _statements_of(rows: Sequence[Sequence[Any]], most: int) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield the rows of each statement, at most ``most``: nearly always all of them."""
    if len(rows) == 1:
        yield rows
        return
    start = size = 0
    for position, row in enumerate(rows):
        length = sum(len(value) for value in row if type(value) is str)
        if position > start and (position - start == most or size + length > _MOST_TEXT):
            yield rows[start:position]
            start, size = position, 0
        size += length
    yield rows[start:]


#: The statements that change rows: ``{sent}`` is the table of the rows' values.
_UPDATE: Final = {
    "sqlite": "UPDATE {table} SET {sets} WHERE {where}",
    "postgresql": "UPDATE {table} AS stored SET {sets} FROM {sent} WHERE {where}",
    "mysql": "UPDATE {sent} STRAIGHT_JOIN {table} AS stored ON {where} SET {sets}",
}
_DELETE: Final = {
    "sqlite": "DELETE FROM {table} WHERE {where}",
    "postgresql": "DELETE FROM {table} AS stored USING {sent} WHERE {where}",
    "mysql": "DELETE stored FROM {sent} STRAIGHT_JOIN {table} AS stored ON {where}",
}


def update(
    connection: Connection, table: sa.Table, keys: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> int:
    """Set the other columns of the rows that have the values of ``keys``; return their number.

    Rows are changed in the order of their keys. Cost: a statement for thousands of rows with the
    same columns, on MariaDB for 500.
    """
    groups: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for row in sorted(rows, key=operator.itemgetter(*keys)):
        groups.setdefault(tuple(row), []).append(tuple(row.values()))
    return sum(
        [_for_each(connection, table, _UPDATE, keys, columns, g) for columns, g in groups.items()]
    )


def delete(
    connection: Connection, table: sa.Table, keys: Sequence[str], rows: Sequence[Sequence[Any]]
) -> int:
    """Delete the rows with these values of ``keys``; return their number.

    Cost: as :func:`update`.
    """
    return _for_each(connection, table, _DELETE, keys, keys, rows) if rows else 0


def replace(
    connection: Connection,
    table: sa.Table,
    keys: int,
    old: Set[tuple[Any, ...]],
    new: Set[tuple[Any, ...]],
) -> None:
    """Replace whole rows of a table by others, as far as they differ. Cost: two statements.

    :param keys: how many of the first columns are the primary key
    """
    columns = table.columns.keys()
    delete(connection, table, columns[:keys], [row[:keys] for row in sorted(old - new)])
    Insert(table, *columns).many(connection, sorted(new - old))


def _for_each(
    connection: Connection,
    table: sa.Table,
    forms: Mapping[str, str],
    keys: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
) -> int:
    """Run a statement for rows, each with its values in the order of ``columns``."""
    dialect = connection.dialect.name
    is_sqlite = dialect == "sqlite"
    stored, assigned = "" if is_sqlite else "stored.", "stored." if dialect == "mysql" else ""
    value = {name: f"?{n}" if is_sqlite else f"sent.{name}" for n, name in enumerate(columns, 1)}
    condition = " AND ".join([f"{stored}{name} = {value[name]}" for name in keys])
    sets = ", ".join([f"{assigned}{name} = {value[name]}" for name in columns if name not in keys])
    text = functools.partial(forms[dialect].format, table=table, sets=sets, where=condition)
    cursor = connection.connection.cursor()
    count = 0
    most = _MOST_SELECTS if dialect == "mysql" else MOST
    for values in _statements_of(rows, most):
        if is_sqlite:
            cursor.executemany(text(), values)
        elif dialect == "postgresql":
            arrays = [array(column) for column in zip(*values, strict=True)]
            cursor.execute(text(sent=_arrays(connection.dialect, table, columns)), arrays)
        else:
            parameters = [*itertools.chain.from_iterable(values)]
            first = f"SELECT {', '.join([f'%s AS {name}' for name in columns])}"
            further = f" UNION ALL SELECT {', '.join(['%s'] * len(columns))}" * (len(values) - 1)
            cursor.execute(text(sent=f"({first}{further}) AS sent"), parameters)
        count += cursor.rowcount
    return count


def _arrays(dialect: Dialect, table: sa.Table, columns: Sequence[str]) -> str:
    """Return ``unnest(...) AS sent (...)`` with a mark for the array of each column."""
    arrays = ", ".join(f"%s::{_array_type(dialect, table.c[name])}" for name in columns)
    return f"unnest({arrays}) AS sent ({', '.join(columns)})"


def array(column: Sequence[Any]) -> str | list[Any]:
    """Return the values of a column for an array of PostgreSQL: as its text where that is plain.

    psycopg takes ten times as long to write a list.

    >>> array([1, 2]), array(["VCPU", "PGPU"]), array([None, 3]), array(['say "no"'])
    ('{1,2}', '{"VCPU","PGPU"}', '{NULL,3}', ['say "no"'])
    """
    kinds = set(map(type, column))
    if kinds == {str}:
        text = '","'.join(column)
        is_plain = "\\" not in text and text.count('"') == 2 * (len(column) - 1)
        return f'{{"{text}"}}' if is_plain else list(column)
    if kinds <= {int, type(None)}:
        return f"{{{','.join(['NULL' if n is None else str(n) for n in column])}}}"
    return list(column)


def _array_type(dialect: Dialect, column: sa.Column[Any]) -> str:
    if isinstance(column.type, sa.Integer):
        return "bigint[]"
    if isinstance(column.type, sa.JSON):
        return "json[]"
    if isinstance(column.type.dialect_impl(dialect), sa.Uuid):
        return "uuid[]"
    return "timestamp[]" if isinstance(column.type, sa.DateTime) else "text[]"


#: The most values of one list: SQLite takes 32,766 values in a statement, PostgreSQL 65,535.
MOST = 10_000
#: The most rows of an UPDATE or DELETE on MySQL, which parses a SELECT for each.
_MOST_SELECTS = 500
#: Characters of a statement, of up to 4 bytes each: MariaDB and MySQL take 16 MiB by default.
_MOST_TEXT = 2_000_000


def chunks(values: Sequence[T], most: int = MOST) -> list[Sequence[T]]:
    """Return the values in parts of at most ``most``, no part if there are no values.

    >>> [len(part) for part in chunks(range(25_000))]
    [10000, 10000, 5000]
    """
    if 0 < len(values) <= most:  # nearly always
        return [values]
    return [values[start : start + most] for start in range(0, len(values), most)]


#: The most names in a filter: fewer than SQLite takes values, which leaves some for the rest.
_MOST_NAMES = 30_000


def refuse_too_many(names: Iterable[Collection[Any]]) -> None:
    """Raise unless one statement takes all names of a filter.

    :raises InvalidInput: if there are more than 30,000

    >>> refuse_too_many([range(20_000), range(20_000)])
    Traceback (most recent call last):
        ...
    resource_objects.exceptions.InvalidInput: filter: got 40000, expected at most 30000 names in all
    """
    count = sum(map(len, names))
    if count > _MOST_NAMES:
        raise exceptions.InvalidInput(
            "field", "filter", count, f"at most {_MOST_NAMES} names in all"
        )


# --- numbers and times ----------------------------------------------------------------------------

_READ_NOW = SQL("SELECT {now}")


def now_of(connection: Connection) -> datetime.datetime:
    """Return the time of the database. Cost: a statement on a server."""
    if connection.dialect.name == "sqlite":
        return clock.now()
    return from_moment(_READ_NOW.rows(connection)[0][0])


def sql_now(connection: Connection) -> sa.ColumnElement[datetime.datetime]:
    """Return the time of the database, as it is stored, as an expression of SQLAlchemy."""
    dialect = connection.dialect.name
    if dialect == "sqlite":
        return sa.literal(plain(clock.now()))
    return sa.literal_column(NOW[dialect], sa.DateTime)


#: Row numbers count milliseconds since the year 2020, followed by 21 random bits.
_EPOCH_MS = 1_577_836_800_000
#: The most milliseconds that 63 bits have room for: until the year 2159.
_MOST_MS = 2**42 - 1


def draw_number(when: datetime.datetime | None = None) -> int:
    """Return a number of 63 bits for a new row: unique by time and chance.

    The time makes indexes grow at one end; nothing is decided by it, so this machine's clock is
    enough. A sequence of the database could return the numbers of writes again that the database
    has lost; chance does not. If two processes draw the same number, the primary key refuses one,
    which tries again.

    :param when: the moment to draw it by; None: this one
    """
    return drawn_at(when or clock.now()) | secrets.randbits(21)


def drawn_at(when: datetime.datetime) -> int:
    """Return the least number that is drawn at a moment."""
    since = int(when.timestamp() * 1000) - _EPOCH_MS
    return min(max(since, 0), _MOST_MS) << 21


def moment(connection: Connection, when: datetime.datetime) -> Any:
    """Return a time as the driver takes it: in UTC, without a zone, as text for SQLite."""
    stored = plain(when)
    return stored.isoformat(" ", "microseconds") if connection.dialect.name == "sqlite" else stored


def plain(when: datetime.datetime) -> datetime.datetime:
    """Return a time as it is stored, and as SQLAlchemy takes it: in UTC, without a zone."""
    if when.tzinfo is not None and when.tzinfo is not datetime.UTC:
        when = when.astimezone(datetime.UTC)
    return when.replace(tzinfo=None)


def from_moment(stored: Any) -> datetime.datetime:
    """Return a time in UTC from the form in which the driver returned it."""
    time = datetime.datetime.fromisoformat(stored) if isinstance(stored, str) else stored
    return time.replace(tzinfo=datetime.UTC)


def from_moment_or_none(stored: Any) -> datetime.datetime | None:
    """Return a time in UTC from the form in which the driver returned it, None for NULL."""
    return None if stored is None else from_moment(stored)


# --- disabled providers ---


def disabled_of(facts: Sequence[Any], now: datetime.datetime | None = None) -> Disabled | None:
    """Return the reason that the columns ``tables.DISABLED`` of a row state.

    :param now: the time of the database; a reason that ended before it is left out
    """
    reason, by, since, until = facts
    if reason is None:
        return None
    disabled = Disabled(reason=reason, by=by, since=since, until=until)  # in each form of a time
    return None if now is not None and disabled.ends_at <= now else disabled


def disabled_columns(connection: Connection, reason: Disabled | None) -> tuple[Any, ...]:
    """Return the values of ``tables.DISABLED``: all null if a provider is not disabled."""
    if reason is None:
        return None, None, None, None
    until = None if reason.until is None else moment(connection, reason.until)
    return reason.reason, reason.by, moment(connection, reason.since), until
