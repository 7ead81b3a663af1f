"""The change feed as rows: written by every write, as its last step (D9), read and forgotten.

The writing transaction counts the heads of the shards it touched up, which locks them until it
ends, and writes its rows there under that number. So within a shard the rows are there in the order
of their numbers, without gaps. Heads are the last locks a write takes, in the order of the shards:
nobody waits for another in a circle, and nobody waits long. A head also says which operation
counted it last: a database that has lost writes has others there (:class:`Cursor`).

What is old is forgotten with its operations, a few at a time. Nobody notes how far: whoever reads
from a place on sees a gap.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import (
    Insert,
    Sized,
    Statement,
    array,
    chunks,
    drawn_at,
    from_moment,
    listed,
    moment,
    now_of,
    sent_together,
)
from resource_objects.providers.changed import Touched
from resource_objects.providers.disabled import Disabled, DisabledChange
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry, shard_of
from resource_objects.providers.listing import Pruned
from resource_objects.providers.orders import Change, Mode

T = TypeVar("T")

_heads = tables.change_heads.c
_changes = tables.changes.c
_operations = tables.operations.c
_consumers = tables.consumers.c
_info = tables.ledger_info.c

#: the name of a consumer that was forgotten before another write of it was
_FORGOTTEN = "forgotten"
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_DEFINITION, _REPORT, _NAMES = "definition", "report", "names"
_DISABLED, _ENABLED, _OVERRIDE = "disabled", "enabled", "override"

_READ_HEADS = Statement(sa.select(_heads.shard, _heads.head, _heads.operation_id))
_EPOCH = Statement(sa.select(_info.epoch))


def _lock_heads_query(shards: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_heads.shard)
        # of so small a table MySQL would read and lock all
        .with_hint(tables.change_heads, "FORCE INDEX (PRIMARY)", "mysql")
        .where(listed(_heads.shard, "shards", shards))
        .order_by(_heads.shard)
        .with_for_update()
    )


def _count_up_query(shards: int) -> sa.Update:
    # a head that others have locked is looked at again when it is free
    return (
        sa.update(tables.change_heads)
        .where(
            listed(_heads.shard, "shards", shards), _heads.records_use == sa.bindparam("records")
        )
        .values(head=_heads.head + 1, operation_id=sa.bindparam("operation"))
    )


_LOCK_HEADS = Sized(_lock_heads_query)
_COUNT_UP = Sized(_count_up_query)
_HEADS_OF = Sized(
    lambda shards: sa.select(_heads.shard, _heads.head).where(
        listed(_heads.shard, "shards", shards)
    )
)
_COLUMNS = (
    *("shard", "number", "part", "operation_id", "what", "consumer_id", "provider_uuid"),
    *("resource_class", "used_before", "used_after", "taken", "given"),
)
_PUT = Insert(tables.changes, *_COLUMNS)
# changes sent together do not see each other: these rows read what the counting up returns
_COUNT_UP_RETURNING = Sized(
    lambda shards: _count_up_query(shards).returning(_heads.shard, _heads.head), name="counted"
)


# --- writing ---


class FeedRows:
    """What a write changed, as rows by shard."""

    __slots__ = ("_parts", "_rows")

    def __init__(self) -> None:
        self._rows: list[tuple[int, tuple[Any, ...]]] = []
        self._parts: set[tuple[int, str, Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._rows)

    def use(self, root: int, what: Mode, consumer: int, change: Change) -> None:
        """Tell the tree of a root what a consumer uses there now."""
        taken = _ENCODER.encode(change.taken) if change.taken else None
        given = _ENCODER.encode(change.given) if change.given else None
        row = (what.value, consumer, *change.key, change.before, change.after, taken, given)
        self._rows.append((shard_of(root), row))

    def claim(self, roots: Iterable[int], what: Mode, consumer: int) -> None:
        """Tell trees that the claim of a consumer changed, but nothing that it uses."""
        for shard in sorted({shard_of(root) for root in roots}):
            self._rows.append((shard, (what.value, consumer, *_NOTHING)))

    def provider(self, uuid: str, roots: Iterable[int], what: str = _DEFINITION) -> None:
        """Tell the trees of some roots that the definition of a provider changed."""
        shards = {shard_of(root) for root in roots}
        for shard in shards if len(shards) == 1 else sorted(shards):
            part = shard, what, uuid
            if part not in self._parts:
                self._parts.add(part)
                self._rows.append((shard, (what, None, uuid, *_NOTHING[1:])))

    def disabled(self, root: int, change: DisabledChange) -> None:
        """Tell the tree of a root that a provider is out of service, or in it again."""
        said = change.disabled
        told = None if said is None else _ENCODER.encode(said.to_dict())
        what = _ENABLED if said is None else _DISABLED
        row = (what, None, change.provider_uuid, None, None, None, told, None)
        self._rows.append((shard_of(root), row))

    def override(self, uuid: str, root: int) -> None:
        """Tell the tree of a root that a provider was taken of though it is out of service."""
        self.provider(uuid, [root], _OVERRIDE)

    def report(self, uuid: str, root: int) -> None:
        """Tell the tree of a root that the owner of a provider reported, or that it was adopted."""
        self.provider(uuid, [root], _REPORT)

    def rows(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        """Return ``(shard, part, values)``; a write of no tree is told in shard 0."""
        found = self._rows or [(0, (_NAMES, None, *_NOTHING))]
        return [(shard, part, values) for part, (shard, values) in enumerate(found)]


_NOTHING = (None,) * 6


class UseSwitched(Transient):
    """The write believed that use over time is recorded, or is not, and that is not so."""


def tell(connection: Connection, operation: int, told: FeedRows, records: int) -> None:
    """Count the heads up and write the rows. Cost: three statements, on several shards one more.

    :param records: ``records_use`` of the heads, as the write believed it to be
    :raises UseSwitched: if it is another
    """
    rows = told.rows()
    shards = sorted({shard for shard, _, _ in rows})
    if len(shards) > 1 and connection.dialect.name != "sqlite":
        _LOCK_HEADS.rows(connection, shards=shards)
    sent = sent_together(connection)
    refused = partial(_no_head, len(shards))
    values = {"operation": operation, "records": records}
    if sent is None:
        heads = _counted_up(connection, values, shards)
        _PUT.many(connection, [(s, heads[s], part, operation, *row) for s, part, row in rows])
        return
    _COUNT_UP_RETURNING.must_match(connection, len(shards), refused, values, shards=shards)
    columns = zip(*((s, part, operation, *row) for s, part, row in rows), strict=True)
    sent.add(_PUT_TOGETHER, [array(column) for column in columns])


# INSERT INTO changes SELECT shard, head, ... FROM what was told JOIN the heads just counted up
_PUT_TOGETHER = f"""INSERT INTO changes ({", ".join(_COLUMNS)})
 SELECT told.shard, counted.head, told.part, told.operation_id, told.what, told.consumer_id,
 told.provider_uuid, told.resource_class, told.used_before, told.used_after, told.taken, told.given
 FROM unnest(%s::int[], %s::int[], %s::bigint[], %s::text[], %s::bigint[], %s::uuid[], %s::text[],
 %s::bigint[], %s::bigint[], %s::json[], %s::json[])
 AS told (shard, part, operation_id, what, consumer_id, provider_uuid, resource_class,
 used_before, used_after, taken, given) JOIN counted ON counted.shard = told.shard"""


def _counted_up(
    connection: Connection, values: Mapping[str, Any], shards: Sequence[int]
) -> dict[int, int]:
    """Count heads up; return what they are then. Cost: a statement, on MariaDB two."""
    if connection.dialect.name == "mysql":  # which returns nothing of an UPDATE
        counted = _COUNT_UP.run(connection, values, shards=shards)
        heads: dict[int, int] = dict(_HEADS_OF.rows(connection, shards=shards))
    else:
        heads = dict(_COUNT_UP_RETURNING.rows(connection, values, shards=shards))
        counted = len(heads)
    if counted != len(shards):
        raise _no_head(len(shards), counted)
    return heads


def _no_head(expected: int, counted: int) -> UseSwitched:
    """Return what tells that heads are not as the write believed; at last, that they are gone."""
    missing = f"{expected - counted} of its shards have no head"
    return UseSwitched(exceptions.DatabaseUnavailable("change feed", missing))


_HEADS_THERE = Statement(sa.select(_heads.shard, _heads.records_use))


def records_use(connection: Connection) -> int:
    """Return ``records_use`` of the heads. Cost: one small statement.

    :raises DatabaseUnavailable: if one is missing
    """
    missing, records = look_at_heads(connection)
    if missing:
        raise _no_head(SHARDS, SHARDS - len(missing)).final
    return records


def look_at_heads(connection: Connection) -> tuple[list[int], int]:
    """Return the shards without a head, and ``records_use`` of the others.

    Every ledger that may be written has all heads. Cost: one small statement.
    """
    there: dict[int, int] = dict(_HEADS_THERE.rows(connection, {}))
    missing = [shard for shard in range(SHARDS) if shard not in there]
    return missing, max(there.values(), default=0)


def ensure_heads(connection: Connection) -> None:
    """Make the heads that are missing, from where the changes of their shards are."""
    missing, records = look_at_heads(connection)
    if not missing:
        return
    last = sa.select(_changes.shard, sa.func.max(_changes.number)).group_by(_changes.shard)
    found: dict[int, int] = dict(tuple(row) for row in connection.execute(last))
    new = {"operation_id": 0, "records_use": records}
    rows = [{"shard": shard, "head": found.get(shard, 0), **new} for shard in missing]
    connection.execute(sa.insert(tables.change_heads), rows)


# --- reading ---


def read_cursor(connection: Connection, epoch: int) -> Cursor:
    """Return where the feed is at the moment of this transaction. Cost: one small statement."""
    heads, last = [0] * SHARDS, [0] * SHARDS
    for shard, head, operation in _READ_HEADS.rows(connection, {}):
        heads[shard], last[shard] = head, operation
    return Cursor(tuple(heads), tuple(last), epoch)


def read_epoch(connection: Connection) -> int:
    """Return which ledger it is. Cost: one small statement."""
    for (epoch,) in _EPOCH.rows(connection, {}):
        return int(epoch)
    raise exceptions.DatabaseUnavailable("ledger_info", "it has no row")


def read_changes(
    connection: Connection, epoch: int, after: Cursor, limit: int
) -> tuple[FeedEntry, ...]:
    """Return the next entries after a cursor, at most ``limit`` (see the contract).

    Cost: two statements, which read at most about twice as many entries as are returned.
    """
    waiting = after.waiting(read_cursor(connection, epoch))
    most = _share_out(waiting.values(), 2 * limit)
    upto = {s: after.heads[s] + min(number, most) for s, number in waiting.items()}
    return tuple(_in_order_of_time(_entries(connection, after, upto))[:limit])


def read_touched(
    connection: Connection, epoch: int, after: Cursor, most: int
) -> tuple[Cursor, int, Touched | None]:
    """Return where the feed is, how many entries come after a cursor, and whom they touched.

    The last is None if they are more than ``most``: then they are not read.

    Cost: one small statement if there are none, else two, the second linear in the entries.
    """
    now = read_cursor(connection, epoch)
    waiting = after.waiting(now)
    count = sum(waiting.values())
    if count > most:
        return now, count, None
    upto = {shard: now.heads[shard] for shard in waiting}
    return now, count, Touched.of(_entries(connection, after, upto))


def _entries(connection: Connection, after: Cursor, upto: Mapping[int, int]) -> list[FeedEntry]:
    """Return the entries of some shards after a cursor, by shard and number."""
    if not upto:
        return []
    ranges = {
        "shards": list(upto),
        "above": [after.heads[shard] - 1 for shard in upto],  # its own place too: is it the same
        "upto": list(upto.values()),
    }
    rows = _ROWS.rows(connection, **ranges)
    found: list[FeedEntry] = []
    seen: dict[int, dict[int, int]] = {shard: {} for shard in upto}
    for (shard, number), group in itertools.groupby(rows, key=lambda row: (row[0], row[1])):
        parts = list(group)
        seen[shard][number] = parts[0][2]
        if number > after.heads[shard]:
            found.append(_entry(shard, number, parts))
    for shard, last in upto.items():
        after.check(shard, seen[shard], last)
    return found


def _rows_query(shards: int, above: int, upto: int) -> sa.Select[*tuple[Any, ...]]:
    def after(position: int) -> sa.ColumnElement[bool]:
        return sa.and_(
            _changes.shard == sa.bindparam(f"shards_{position}"),
            _changes.number > sa.bindparam(f"above_{position}"),
            _changes.number <= sa.bindparam(f"upto_{position}"),
        )

    return (
        sa.select(_changes.shard, _changes.number, _changes.operation_id)
        .add_columns(_operations.created_at, _operations.uuid, _operations.kind)
        .add_columns(_operations.subject, _operations.actor)
        .add_columns(_changes.what, _consumers.name, _changes.provider_uuid)
        .add_columns(_changes.resource_class, _changes.used_before, _changes.used_after)
        .add_columns(_changes.taken, _changes.given)
        .join_from(tables.changes, tables.operations, _operations.id == _changes.operation_id)
        .outerjoin(tables.consumers, _consumers.id == _changes.consumer_id)
        .where(sa.or_(*(after(position) for position in range(shards))))
        .order_by(_changes.shard, _changes.number, _changes.part)
    )


_ROWS = Sized(_rows_query)


def _entry(shard: int, number: int, parts: Sequence[Sequence[Any]]) -> FeedEntry:
    uses: list[Change] = []
    named: dict[str, set[str]] = {what: set() for what in (_DEFINITION, _REPORT, _NAMES, _OVERRIDE)}
    disabled: list[DisabledChange] = []
    claims: set[str] = set()
    for *_, what, consumer, uuid, kind, before, after, taken, given in parts:
        if what in named:
            named[what].add(uuid)
        elif what in (_DISABLED, _ENABLED):
            disabled.append(DisabledChange(uuid, _disabled_of(taken)))
        elif uuid is None:
            claims.add(consumer or _FORGOTTEN)
        else:
            units = (tuple(json.loads(some)) if some else () for some in (taken, given))
            uses.append(Change(consumer or _FORGOTTEN, (uuid, kind), before, after, *units))
    _, _, generation, at, operation, kind, subject, actor, *_ = parts[0]
    return FeedEntry(
        shard,
        number,
        from_moment(at),
        operation,
        kind,
        subject,
        actor,
        generation,
        tuple(uses),
        tuple(sorted(named[_DEFINITION])),
        tuple(sorted(named[_REPORT])),
        tuple(sorted(claims)),
        tuple(disabled),
        tuple(sorted(named[_OVERRIDE])),
    )


def _disabled_of(told: str | None) -> Disabled | None:
    if told is None:
        return None
    said = json.loads(told)
    moments = {
        name: None if said[name] is None else datetime.datetime.fromisoformat(said[name])
        for name in ("since", "until")
    }
    return Disabled(**{**said, **moments})


def _share_out(waiting: Iterable[int], room: int) -> int:
    """Return how many changes a shard may have, so that all of them together fit ``room``.

    Shards with fewer leave their room to the others; at least one each.

    >>> _share_out([1, 100, 100], 21)
    10
    """
    level, ordered = 0, sorted(waiting)
    for place, number in enumerate(ordered):
        level = max(1, room // (len(ordered) - place))
        if number > level:
            break
        room -= number
        level = number
    return level


def _in_order_of_time(found: Iterable[FeedEntry]) -> list[FeedEntry]:
    """Sort changes by time, those of a shard by number: clocks differ, and waiting takes time.

    A change counts as no older than those before it in its shard.
    """
    keyed: list[tuple[tuple[datetime.datetime, int, int], FeedEntry]] = []
    for shard, ones in itertools.groupby(found, key=lambda change: change.shard):
        latest = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        for one in ones:
            latest = max(latest, one.at)
            keyed.append(((latest, shard, one.number), one))
    return [change for _, change in sorted(keyed, key=lambda pair: pair[0])]


# --- forgetting -----------------------------------------------------------------------------------

#: how many operations one transaction forgets
BATCH = 256
#: how many operations are done, nearly, until somebody forgets what is old
EVERY = 64

_OLD = Statement(
    # by number, which grows with time: nothing younger is looked at. It is not below the time that
    # the operation's id says, so that one made by a clock that is ahead is kept until its
    # repetition is refused
    sa.select(_operations.id)
    .where(_operations.id < sa.bindparam("below"), _operations.created_at < sa.bindparam("before"))
    # the last entry of each shard stays: it tells which history it is
    .where(_operations.id.not_in(sa.select(_heads.operation_id)))
    .order_by(_operations.id)
    .limit(sa.bindparam("batch", type_=sa.Integer))
)
_FORGET_CHANGES = Sized(
    lambda ids: sa.delete(tables.changes).where(listed(_changes.operation_id, "ids", ids))
)
_GONE = Sized(
    lambda ids: (
        sa.select(_changes.consumer_id)
        .where(listed(_changes.operation_id, "ids", ids), _changes.consumer_id.is_not(None))
        .distinct()
    )
)
_FORGET_CONSUMERS = Sized(
    lambda ids, gone: sa.delete(tables.consumers).where(
        listed(_consumers.id, "ids", ids), listed(_consumers.gone, "gone", gone)
    )
)
_FORGET_OPERATIONS = Sized(
    lambda ids: sa.delete(tables.operations).where(listed(_operations.id, "ids", ids))
)
_RETENTION = Statement(sa.select(_info.retention))


class Run(Protocol):
    """Runs work in a transaction of one kind, again if need be."""

    def __call__(self, work: Callable[[Connection], T], /) -> T:
        """Return what the work returns."""


def prune(writing: Run, before: datetime.datetime) -> Pruned:
    """Forget operations and changes older than a moment. Cost: linear in what is forgotten."""
    operations = changes = 0
    forgotten = Pruned(BATCH, 0)
    while forgotten.operations == BATCH:
        forgotten = writing(functools.partial(_forget, before=before))
        operations += forgotten.operations
        changes += forgotten.changes
    return Pruned(operations, changes)


def lock_heads(connection: Connection) -> None:
    """Lock all heads: who has written is done, and nobody else writes until this ends."""
    if connection.dialect.name != "sqlite":
        _LOCK_HEADS.rows(connection, shards=list(range(SHARDS)))


def set_records_use(connection: Connection, number: int) -> None:
    """Have every write that comes now believe that use is recorded since an operation, 0: not."""
    connection.execute(sa.update(tables.change_heads).values(records_use=number))


def forget_some(connection: Connection) -> Pruned:
    """Forget at most :data:`BATCH` operations that are older than the ledger keeps them."""
    keeps = datetime.timedelta(seconds=retention(connection))
    return _forget(connection, now_of(connection) - keeps)


def retain(connection: Connection, age: datetime.timedelta) -> None:
    """Keep operations and changes for so long."""
    seconds = int(age.total_seconds())
    connection.execute(sa.update(tables.ledger_info).values(retention=seconds))


def retention(connection: Connection) -> int:
    """Return for how many seconds operations and changes are kept."""
    return int(_RETENTION.rows(connection, {})[0][0])


def _forget(connection: Connection, before: datetime.datetime) -> Pruned:
    below = drawn_at(before + _TICK)
    values = {"before": moment(connection, before), "below": below, "batch": BATCH}
    ids = [number for (number,) in _OLD.rows(connection, values)]
    if not ids:
        return Pruned(0, 0)
    consumers = [number for (number,) in _GONE.rows(connection, ids=ids)]
    entries = _count_entries(connection, ids)
    _FORGET_CHANGES.run(connection, ids=ids)
    for part in chunks(consumers):
        _FORGET_CONSUMERS.run(connection, ids=part, gone=ids)
    _FORGET_OPERATIONS.run(connection, ids=ids)
    return Pruned(len(ids), entries)


#: what numbers and ids are drawn by
_TICK = datetime.timedelta(milliseconds=1)
_ENTRIES = Sized(
    lambda ids: (
        sa.select(_changes.shard, _changes.number)
        .where(listed(_changes.operation_id, "ids", ids))
        .distinct()
    )
)


def _count_entries(connection: Connection, ids: Collection[int]) -> int:
    return len(_ENTRIES.rows(connection, ids=list(ids)))
