"""Use over time, as rows: intervals that writes end and begin, summed, forgotten, and the switch.

That it is recorded stands in the heads of the change feed (``records_use``), because these are what
every write locks, as its last step. A process believes what it saw there last; the statement that
counts a head up says so in its condition, and a write that was wrong is rolled back and done again.
So it costs no statement, whether it is recorded or not, and who switches it on locks all heads:
whoever wrote before is done, and what they left is what begins to count; whoever writes later
records it. The number that stands there is that of the operation which switched it on, so that
somebody who saw it on, and was away while it was switched off and on again, is wrong too.

Locks: the consumers of a write are locked by then (``claims.pass_on``), and nobody else ends or
begins their intervals. Heads come after them, so who switches it off ends no interval while it
holds heads; that is done afterwards, and every reader knows until when those without an end count.

A claim inserts a row for each class, and a release is one UPDATE; with PostgreSQL both are parts of
the one statement that has all changes. Any other write that changes what a consumer uses reads its
open intervals first.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from resource_objects import exceptions
from resource_objects.backends.sql import feed, statements, tables
from resource_objects.backends.sql.consumers import ConsumerRow
from resource_objects.backends.sql.places import Places
from resource_objects.backends.sql.statements import (
    Insert,
    Sized,
    Statement,
    chunks,
    draw_number,
    from_moment,
    listed,
    moment,
    now_of,
    plain,
    refuse_too_many,
)
from resource_objects.providers.use_over_time import (
    UseBy,
    UseFilter,
    UseRecording,
    UseReport,
    by_class,
    report,
    span,
    used_by,
)
from resource_objects.store.decide import ConsumerEffect
from resource_objects.store.use_over_time import is_changed

_intervals = tables.use_intervals.c
_info = tables.ledger_info.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c
_classes = tables.resource_classes.c
_removed = tables.removed_classes.c

_KEYS = ("consumer_id", "class_id", "operation_id")
_BEGIN = Insert(
    tables.use_intervals,
    *(*_KEYS, "consumer", "project_id", "user_id", "amount", "began_at"),
)


def _ended_at(at: str) -> sa.ColumnElement[Any]:
    """Return when an interval ends that ends at a moment: clocks may go back, intervals do not."""
    when = sa.bindparam(at, type_=_intervals.ended_at.type)
    return sa.case((_intervals.began_at > when, _intervals.began_at), else_=when)


_END = Sized(
    lambda ids: (
        sa.update(tables.use_intervals)
        .where(listed(_intervals.consumer_id, "ids", ids), _intervals.ended_at.is_(None))
        .values(ended_at=_ended_at("at"))
    )
)


class _These(FunctionElement[Any]):
    """The values of a list after IN, of which SQLite does not think the primary key is best."""

    inherit_cache = True
    name = "these"


@compiles(_These)
def _these(element: Any, compiler: Any, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)})"


@compiles(_These, "sqlite")
def _these_of_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    # by the primary key it would read all that a consumer ever used, by the index what is open
    rows = (f"({compiler.process(one, **options)})" for one in element.clauses)
    return f"(VALUES {', '.join(rows)})"


def _these_ids(length: int) -> sa.ColumnElement[bool]:
    given = (sa.bindparam(f"ids_{n}", type_=sa.BigInteger) for n in range(length))
    return _intervals.consumer_id.op("IN", is_comparison=True)(_These(*given))


_OPEN = Sized(
    lambda ids: sa.select(
        *(_intervals.consumer_id, _intervals.class_id, _intervals.operation_id),
        *(_intervals.amount, _intervals.user_id, _intervals.project_id, _intervals.began_at),
    ).where(_these_ids(ids), _intervals.ended_at.is_(None))
)


# --- what a write ends and begins ---


def record(
    connection: Connection,
    settled: Iterable[ConsumerEffect],
    kept: Mapping[str, ConsumerRow],
    numbers: Mapping[str, int],
    at: Places,
    operation: int,
) -> None:
    """Record what consumers use from now on. Cost: a statement, or three where amounts change.

    :param kept: what the consumers held, by name
    :param numbers: those of the consumers, by name
    """
    assert at.now is not None, "it is read with the places"
    gone: list[int] = []
    wanted: dict[int, dict[int, _Wanted]] = {}
    new: list[tuple[int, int, _Wanted, datetime.datetime]] = []
    for one in settled:
        if not is_changed(one):
            continue
        number, row = numbers[one.claim.consumer], kept.get(one.claim.consumer)
        if one.is_gone:
            gone.append(number)
        elif row is None:
            new += ((number, kind, use, at.now) for kind, use in _wanted(one, row, at).items())
        else:
            wanted[number] = _wanted(one, row, at)
    for part in chunks(sorted(gone)):
        _END.run(connection, {"at": moment(connection, at.now)}, ids=part)
    if wanted:
        new += _change(connection, wanted, at.now)
    if new:
        rows = [
            (number, kind, operation, *use, moment(connection, began))
            for number, kind, use, began in new
        ]
        _BEGIN.many(connection, rows)


#: consumer, project, user, amount
_Wanted = tuple[str, str | None, str | None, int]


def _wanted(settled: ConsumerEffect, kept: ConsumerRow | None, at: Places) -> dict[int, _Wanted]:
    """Return what a consumer uses from now on, by the numbers of classes."""
    claim = settled.claim
    found: dict[str, int] = {}
    for use in claim.held:
        place = at.by_key.get(use.key)
        if place is None:  # nothing of it changes
            assert kept is not None
            place = kept.holdings[use.key].at
        found[use.resource_class] = place.class_id
    whose = claim.consumer, claim.project, claim.user
    return {found[kind]: (*whose, amount) for kind, amount in by_class(claim.held).items()}


def _change(
    connection: Connection, wanted: Mapping[int, dict[int, _Wanted]], now: datetime.datetime
) -> list[tuple[int, int, _Wanted, datetime.datetime]]:
    """End the intervals of consumers that are others from now on; return those that begin."""
    began = {(number, kind): now for number, uses in wanted.items() for kind in uses}
    left = dict(began)
    ended: list[dict[str, Any]] = []
    for part in chunks(sorted(wanted)):
        for number, kind, operation, amount, user, project, since in _OPEN.rows(
            connection, ids=part
        ):
            use = wanted[number].get(kind)
            if use is not None and (project, user, amount) == use[1:]:
                left.pop((number, kind), None)
                continue
            end = max(now, from_moment(since))
            left[number, kind] = end
            values = (number, kind, operation)
            ended.append(
                {**dict(zip(_KEYS, values, strict=True)), "ended_at": moment(connection, end)}
            )
    statements.update(connection, tables.use_intervals, _KEYS, ended)
    return [
        (number, kind, wanted[number][kind], since)
        for (number, kind), since in left.items()
        if kind in wanted[number]
    ]


# --- the switch ---


_RECORDING = Statement(sa.select(_info.use_retention, _info.use_since, _info.use_until))


def recording(connection: Connection) -> UseRecording | None:
    """Return whether use is recorded, None if it never was. Cost: one small statement."""
    for keep, since, until in _RECORDING.rows(connection, {}):
        if since is not None:
            ended = None if until is None else from_moment(until)
            return UseRecording(from_moment(since), ended, datetime.timedelta(seconds=keep))
    return None


def _keep(connection: Connection, now: UseRecording) -> None:
    connection.execute(
        sa.update(tables.ledger_info).values(
            use_retention=int(now.keep.total_seconds()),
            use_since=plain(now.since),
            use_until=None if now.until is None else plain(now.until),
        )
    )


def switch_on(connection: Connection, keep: datetime.timedelta) -> None:
    """Record use from now on, beginning with all that is held; or keep it for another time."""
    feed.lock_heads(connection)
    now, known = now_of(connection), recording(connection)
    if known is not None and known.is_on:
        _keep(connection, known.kept_for(keep, now))
        return
    if known is not None and known.until is not None:
        # all of them, however the clock went: of each consumer and class one at most is open
        _end_open(connection, known.until)
    number = draw_number()
    feed.set_records_use(connection, number)
    held = (
        sa.select(
            *(_allocations.consumer_id, _allocations.class_id, sa.literal(number, sa.BigInteger)),
            *(_consumers.name, _consumers.project_id, _consumers.user_id),
            sa.func.sum(_allocations.used),
            sa.literal(plain(now), _intervals.began_at.type),
        )
        .join_from(tables.allocations, tables.consumers)
        .group_by(
            *(_allocations.consumer_id, _allocations.class_id),
            *(_consumers.name, _consumers.project_id, _consumers.user_id),
        )
    )
    columns = [*_KEYS, "consumer", "project_id", "user_id", "amount", "began_at"]
    connection.execute(sa.insert(tables.use_intervals).from_select(columns, held))
    _keep(connection, UseRecording(now, None, keep))


def switch_off(connection: Connection) -> None:
    """Record use no more, if it is recorded. :func:`end_intervals` comes after it."""
    feed.lock_heads(connection)
    known = recording(connection)
    if known is None or not known.is_on:
        return
    feed.set_records_use(connection, 0)
    _keep(connection, UseRecording(known.since, now_of(connection), known.keep))


def end_intervals(connection: Connection) -> None:
    """Write down when intervals ended that were open when use was recorded last."""
    known = recording(connection)
    if known is not None and known.until is not None:
        # somebody may switch it on at this moment
        _end_open(connection, known.until, _intervals.began_at <= plain(known.until))


def _end_open(
    connection: Connection, when: datetime.datetime, *only: sa.ColumnElement[bool]
) -> None:
    ended = sa.update(tables.use_intervals).where(_intervals.ended_at.is_(None), *only)
    connection.execute(ended.values(ended_at=_ended_at("at")), {"at": plain(when)})


# --- what was used ---


class _MicrosecondsBetween(FunctionElement[Any]):
    """The microseconds from one time to another, exact."""

    type = sa.BigInteger()
    inherit_cache = True
    name = "microseconds_between"


@compiles(_MicrosecondsBetween)
def _between_mysql(element: Any, compiler: Any, **options: Any) -> str:
    return f"TIMESTAMPDIFF(MICROSECOND, {compiler.process(element.clauses, **options)})"


@compiles(_MicrosecondsBetween, "postgresql")
def _between_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    began, ended = (compiler.process(one, **options) for one in element.clauses)
    # before PostgreSQL 14 EXTRACT was a double, which has six places for some 200 years
    seconds = f"CAST(EXTRACT(EPOCH FROM ({ended} - {began})) AS NUMERIC)"
    return f"CAST(ROUND({seconds} * 1000000) AS BIGINT)"


@compiles(_MicrosecondsBetween, "sqlite")
def _between_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    # 2026-11-22 10:00:00.123456: SQLite's own functions know milliseconds
    began, ended = (
        f"(strftime('%s', substr({text}, 1, 19)) * 1000000 + substr({text}, 21, 6))"
        for text in (compiler.process(one, **options) for one in element.clauses)
    )
    return f"({ended} - {began})"


class _SumOfProducts(FunctionElement[Any]):
    """The sum of the products of two columns, exact: it may leave 64 bits."""

    type = sa.types.NullType()  # a Decimal or text, as the driver gives it
    inherit_cache = True
    name = "sum_of_products"


@compiles(_SumOfProducts)
def _sum_of_servers(element: Any, compiler: Any, **options: Any) -> str:
    one, other = (compiler.process(part, **options) for part in element.clauses)
    return f"SUM(CAST({one} AS DECIMAL(38, 0)) * {other})"


@compiles(_SumOfProducts, "sqlite")
def _sum_of_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    # ``engine`` makes it, of Python's integers
    return f"sum_of_products({compiler.process(element.clauses, **options)})"


def between(
    connection: Connection,
    since: datetime.datetime,
    until: datetime.datetime | None,
    wanted: UseFilter,
    by: Sequence[UseBy],
) -> UseReport:
    """Return what was used between two moments (see the contract).

    Cost: three small queries, two more for classes, and one that reads the intervals which were
    open in between, and of which the database makes sums.
    """
    now, known = now_of(connection), recording(connection)
    upto, end = span(known, since, until, now)
    assert known is not None
    query = _query(plain(since), plain(end), by).where(*_of(connection, wanted))
    rows = [
        used_by(by, group, kind, int(total)) for *group, kind, total in connection.execute(query)
    ]
    return report(rows, by, since, upto, known, now)


_COLUMNS = {
    UseBy.CONSUMER: _intervals.consumer,
    UseBy.USER: _intervals.user_id,
    UseBy.PROJECT: _intervals.project_id,
}


def _query(
    since: datetime.datetime, end: datetime.datetime, by: Sequence[UseBy]
) -> sa.Select[*tuple[Any, ...]]:
    # SELECT user_id, class, SUM(amount * (LEAST(ended_at, :end) - GREATEST(began_at, :since)))
    #   WHERE began_at < :end AND (ended_at > :since OR ended_at IS NULL) GROUP BY user_id, class
    began = sa.case((_intervals.began_at < since, since), else_=_intervals.began_at)
    ended = sa.case((_intervals.ended_at < end, _intervals.ended_at), else_=end)
    kind = sa.func.coalesce(_classes.name, _removed.name)
    group = [_COLUMNS[one] for one in by]
    return (
        sa.select(
            *group, kind, _SumOfProducts(_intervals.amount, _MicrosecondsBetween(began, ended))
        )
        .outerjoin_from(
            tables.use_intervals, tables.resource_classes, _classes.id == _intervals.class_id
        )
        .outerjoin(tables.removed_classes, _removed.id == _intervals.class_id)
        .where(
            _intervals.began_at < end,
            sa.or_(_intervals.ended_at > since, _intervals.ended_at.is_(None)),
        )
        .group_by(*group, kind)
    )


def _of(connection: Connection, wanted: UseFilter) -> list[sa.ColumnElement[bool]]:
    """Return what a filter asks of an interval.

    :raises InvalidInput: if it names more than a statement takes
    """
    named = (wanted.consumers, wanted.users, wanted.projects, wanted.classes)
    refuse_too_many([some for some in named if some is not None])
    found = [
        _one_of(column, some)
        for column, some in (
            (_intervals.consumer, wanted.consumers),
            (_intervals.user_id, wanted.users),
            (_intervals.project_id, wanted.projects),
        )
        if some is not None
    ]
    if wanted.classes is not None:
        # in the text: of one name there may be several, so they may be more than was asked for
        numbers: sa.BindParameter[Any] = sa.bindparam(
            "numbers",
            _numbers(connection, sorted(wanted.classes)),
            expanding=True,
            literal_execute=True,
        )
        found.append(_intervals.class_id.in_(numbers))
    return found


def _one_of(column: sa.Column[Any], some: Iterable[str | None]) -> sa.ColumnElement[bool]:
    given = list(some)
    named = column.in_([value for value in given if value is not None])
    return sa.or_(named, column.is_(None)) if None in given else named


def _numbers(connection: Connection, classes: Sequence[str]) -> list[int]:
    """Return the numbers of classes that are there, or were.

    :raises NotFound: if one never was, as far as is known
    """
    found = [
        row
        for part in chunks(classes)
        for column in (_classes.name, _removed.name)
        for row in connection.execute(sa.select(column.table.c.id, column).where(column.in_(part)))
    ]
    known = {name for _, name in found}
    for name in classes:
        if name not in known:
            raise exceptions.NotFound("resource class", name)
    return [number for number, _ in found]


# --- forgetting ---


#: how many intervals one transaction forgets
BATCH = 2000

_OLD = Statement(
    sa.select(_intervals.consumer_id, _intervals.class_id, _intervals.operation_id)
    .where(_intervals.ended_at < sa.bindparam("before"))
    .order_by(_intervals.ended_at)
    .limit(sa.bindparam("batch", type_=sa.Integer))
)


def forget_some(writing: feed.Run, turns: int) -> None:
    """Forget intervals that ended longer ago than the ledger keeps them.

    :param turns: in at most so many transactions of :data:`BATCH`
    """
    for _ in range(turns):
        if writing(_forget) < BATCH:
            return


def _forget(connection: Connection) -> int:
    """Forget a batch of intervals; return how many they were."""
    known = recording(connection)
    if known is None:
        return 0
    before = now_of(connection) - known.keep
    values = {"before": moment(connection, before), "batch": BATCH}
    rows = [dict(zip(_KEYS, row, strict=True)) for row in _OLD.rows(connection, values)]
    statements.delete(connection, tables.use_intervals, rows)
    if rows:
        _forget_names(connection, sorted({row["class_id"] for row in rows}))
    return len(rows)


def _forget_names(connection: Connection, classes: Sequence[int]) -> None:
    """Forget the names of those of some classes that were removed and of which nothing is left.

    Consumers are numbered by time, so what is left of a class that was removed is among the first
    rows that are looked at; all are, once, when nothing is.
    """
    for part in chunks(classes):
        left = sa.exists().where(_intervals.class_id == _removed.id)
        connection.execute(sa.delete(tables.removed_classes).where(_removed.id.in_(part), ~left))
