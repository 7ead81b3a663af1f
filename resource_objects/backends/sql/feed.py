"""The change feed as rows: written by every write as its last step, read and pruned.

A writing transaction increments the heads of the shards that it changes, which locks them until it
ends, and inserts its rows with these numbers. So the rows of a shard become visible in the order of
their numbers, without gaps. Heads are the last locks of a write, taken in the order of the shards,
so there are no deadlocks and no long waits. A head also records the operation that incremented it
last: a database that has lost writes has another one there (:class:`Cursor`).

Old operations are pruned with their changes, a few at a time. A reader detects a gap after its
cursor; only a deletion before the retention time is recorded (``complete_since``).
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import (
    SQL,
    Insert,
    drawn_at,
    from_moment,
    moment,
    now_of,
)
from resource_objects.providers.backend import Touched
from resource_objects.providers.disabled import Disabled, DisabledChange
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
from resource_objects.providers.listing import Pruned
from resource_objects.providers.orders import Change, Mode

Pairs: TypeAlias = Iterable[tuple[str, str]]

#: The name of a consumer that was pruned before an older write of it.
_FORGOTTEN = "forgotten"
_ENCODER = json.JSONEncoder(separators=(",", ":"))
#: Events of a provider: its definition changed; it reported or was adopted; an order allocated
#: from it although it is disabled.
DEFINITION, REPORT, OVERRIDE = "definition", "report", "override"
_DISABLED, _ENABLED, _NAMES = "disabled", "enabled", "names"

# at least one row, with the number that identifies the ledger
_READ_HEADS = SQL("""
    SELECT epoch, shard, head, operation_id FROM ledger_info LEFT JOIN change_heads ON 1 = 1""")
_LAST_NUMBERS = SQL("SELECT shard, MAX(number) FROM changes GROUP BY shard")
_ADD_HEADS = Insert(tables.change_heads, "shard", "head", "operation_id")
# MySQL would read and lock all rows of so small a table
_LOCK_HEADS = SQL("""
    SELECT shard FROM change_heads {mysql: FORCE INDEX (PRIMARY)}
    WHERE shard IN :shards* ORDER BY shard FOR UPDATE""")
# a head that another transaction has locked is read again when that transaction has ended
_COUNT_UP = SQL("""
    UPDATE change_heads SET head = head + 1, operation_id = :operation
    WHERE shard IN :shards*""")
_PUT = Insert(
    tables.changes,
    *("shard", "number", "part", "operation_id", "what", "consumer_id", "provider_uuid"),
    *("resource_class", "used_before", "used_after", "taken", "given"),
    # the value is the shard
    computed={"number": "(SELECT head FROM change_heads WHERE shard = {})"},
)


# --- writing ---


class FeedRows:
    """The changes of a write, as rows of shards."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        #: (shard, values of the columns from ``what`` on)
        self.rows: list[tuple[int, tuple[Any, ...]]] = []

    def use(self, root: int, mode: Mode, consumer: int, change: Change) -> None:
        """Add a change of the use of a consumer in the tree of a root."""
        allocated = _ENCODER.encode(change.allocated_units) if change.allocated_units else None
        released = _ENCODER.encode(change.released_units) if change.released_units else None
        row = (mode.value, consumer, *change.key, change.before, change.after, allocated, released)
        self.rows.append((root % SHARDS, row))

    def claim(self, roots: Iterable[int], mode: Mode, consumer: int) -> None:
        """Add to some trees that the claim of a consumer changed, but not its use."""
        for shard in sorted({root % SHARDS for root in roots}):
            self.rows.append((shard, (mode.value, consumer, *_NOTHING)))

    def provider(self, root: int, uuid: str, event: str = DEFINITION) -> None:
        """Add to the tree of a root an event of a provider: its definition changed by default."""
        self.rows.append((root % SHARDS, (event, None, uuid, *_NOTHING[1:])))

    def disabled(self, root: int, change: DisabledChange) -> None:
        """Add to the tree of a root that a provider is disabled or enabled."""
        reason = change.disabled
        text = None if reason is None else _ENCODER.encode(reason.to_dict())
        event = _ENABLED if reason is None else _DISABLED
        row = (event, None, change.provider_uuid, None, None, None, text, None)
        self.rows.append((root % SHARDS, row))


_NOTHING = (None,) * 6


def append_entries(
    connection: Connection, operation: int, feed_rows: FeedRows, renamed: Pairs = ()
) -> None:
    """Count the heads up and write the rows. Cost: two statements, on several shards one more.

    :param renamed: the old and the new names of renamed resource classes
    :raises DatabaseError: if a head is missing
    """
    rows = feed_rows.rows
    first = rows[0][0] if rows else 0
    for old, new in renamed:  # recorded once, in one shard of the write
        rows.append((first, (_NAMES, None, None, old, None, None, None, _ENCODER.encode([new]))))
    if not rows:  # a write that concerns no tree
        rows.append((0, (_NAMES, None, *_NOTHING)))
    shards = sorted({shard for shard, _ in rows})
    if len(shards) > 1 and connection.dialect.name != "sqlite":
        _LOCK_HEADS.rows(connection, shards=shards)

    def refused(counted: int) -> exceptions.DatabaseError:
        missing = f"{len(shards) - counted} of its shards have no head"
        return exceptions.DatabaseError("unavailable", "change feed", missing)

    _COUNT_UP.must_match(connection, len(shards), refused, operation=operation, shards=shards)
    _PUT.many(connection, [(s, s, part, operation, *row) for part, (s, row) in enumerate(rows)])


def missing_heads(connection: Connection) -> list[int]:
    """Return the shards without a head: none in a ledger that may be written.

    Cost: one small statement.
    """
    stored = {shard for _, shard, *_ in _READ_HEADS.rows(connection)}
    return [shard for shard in range(SHARDS) if shard not in stored]


def ensure_heads(connection: Connection) -> None:
    """Insert the heads that are missing, from where the changes of their shards are."""
    missing = missing_heads(connection)
    if not missing:
        return
    numbers: dict[int, int] = dict(_LAST_NUMBERS.rows(connection))
    _ADD_HEADS.many(connection, [(shard, numbers.get(shard, 0), 0) for shard in missing])


# --- reading ---


def read_cursor(connection: Connection) -> Cursor:
    """Return the cursor at the moment of this transaction. Cost: one small statement."""
    rows = _READ_HEADS.rows(connection)
    if not rows:
        raise exceptions.DatabaseError("unavailable", "ledger_info", "it has no row")
    heads, last = [0] * SHARDS, [0] * SHARDS
    for _, shard, head, operation in rows:
        if shard is not None:
            heads[shard], last[shard] = head, operation
    return Cursor(tuple(heads), tuple(last), epoch=rows[0][0])


def read_changes(connection: Connection, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
    """Return the next entries after a cursor, at most ``limit`` (see the contract).

    Cost: two statements, which read at most about ``2 * limit`` entries.
    """
    waiting = after.waiting(read_cursor(connection))
    most = _share_out(waiting.values(), 2 * limit)
    upto = {s: after.heads[s] + min(number, most) for s, number in waiting.items()}
    return tuple(_in_order_of_time(_entries(connection, after, upto))[:limit])


def read_touched(
    connection: Connection, after: Cursor, most: int
) -> tuple[Cursor, int, Touched | None]:
    """Return the present cursor, the number of entries after one, and the providers they affect.

    The providers are None if there are more than ``most`` entries, which are then not read.

    Cost: one small statement without entries, else two, the second linear in the entries.
    """
    now = read_cursor(connection)
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
    values: dict[str, int] = {}
    for position, (shard, last) in enumerate(upto.items()):
        # the entry at the cursor too, which shows whether the history is the same
        above = after.heads[shard] - 1
        values |= {f"shard{position}": shard, f"above{position}": above, f"upto{position}": last}
    rows = _rows_of(len(upto)).rows(connection, **values)
    entries: list[FeedEntry] = []
    seen: dict[int, dict[int, int]] = {shard: {} for shard in upto}
    for (shard, number), group in itertools.groupby(rows, key=lambda row: (row[0], row[1])):
        parts = list(group)
        seen[shard][number] = parts[0][2]
        if number > after.heads[shard]:
            entries.append(_entry(shard, number, parts))
    for shard, last in upto.items():
        after.check(shard, seen[shard], last)
    return entries


@functools.cache
def _rows_of(shards: int) -> SQL:
    """Return the query for the rows of some shards between two numbers each."""
    between = "(c.shard = :shard{0} AND c.number > :above{0} AND c.number <= :upto{0})"
    condition = " OR ".join(between.format(position) for position in range(shards))
    return SQL(f"""
        SELECT c.shard, c.number, c.operation_id, o.created_at, o.uuid, o.kind, o.subject, o.actor,
        c.what, consumers.name, c.provider_uuid, c.resource_class, c.used_before, c.used_after,
        c.taken, c.given
        FROM changes c JOIN operations o ON o.id = c.operation_id
        LEFT JOIN consumers ON consumers.id = c.consumer_id
        WHERE {condition} ORDER BY c.shard, c.number, c.part""")


def _entry(shard: int, number: int, parts: Sequence[Sequence[Any]]) -> FeedEntry:
    uses: list[Change] = []
    named: dict[str, set[str]] = {event: set() for event in (DEFINITION, REPORT, _NAMES, OVERRIDE)}
    disabled: list[DisabledChange] = []
    claims: set[str] = set()
    renamed: list[tuple[str, str]] = []
    for *_, event, consumer, uuid, kind, before, after, allocated, released in parts:
        if event == _NAMES and kind is not None:
            renamed.append((kind, *json.loads(released)))
        elif event in named:
            named[event].add(uuid)
        elif event in (_DISABLED, _ENABLED):
            reason = None if allocated is None else Disabled(**json.loads(allocated))
            disabled.append(DisabledChange(uuid, reason))
        elif uuid is None:
            claims.add(consumer or _FORGOTTEN)
        else:
            units = (tuple(json.loads(text)) if text else () for text in (allocated, released))
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
        tuple(sorted(named[DEFINITION])),
        tuple(sorted(named[REPORT])),
        tuple(sorted(claims)),
        tuple(disabled),
        tuple(sorted(named[OVERRIDE])),
        tuple(renamed),
    )


def _share_out(waiting: Iterable[int], room: int) -> int:
    """Return the largest number of changes of one shard with which all shards fit ``room``.

    Shards with fewer changes leave their part to the others; each shard has at least one.

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


def _in_order_of_time(entries: Iterable[FeedEntry]) -> list[FeedEntry]:
    """Sort changes by time, but those of one shard by number, because clocks differ.

    A change counts as no older than those before it in its shard.
    """
    keyed: list[tuple[tuple[datetime.datetime, int, int], FeedEntry]] = []
    for shard, changes in itertools.groupby(entries, key=lambda change: change.shard):
        latest = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        for change in changes:
            latest = max(latest, change.at)
            keyed.append(((latest, shard, change.number), change))
    return [change for _, change in sorted(keyed, key=lambda pair: pair[0])]


# --- pruning -----------------------------------------------------------------------------------

#: The most operations that one transaction removes.
BATCH = 256
#: The average number of operations after which a writer removes old ones.
EVERY = 64

# Operations are found by number, which grows with time, so that nothing younger is read. The number
# is not below the time in the operation's id: an operation from a clock that is ahead is
# stored until its repetition is refused. The last entry of each shard remains: it identifies the
# history.
_OLD = SQL("""
    SELECT id FROM operations WHERE id < :below AND created_at < :before
    AND id NOT IN (SELECT operation_id FROM change_heads) ORDER BY id LIMIT :batch""")
_ENTRIES = SQL("SELECT DISTINCT shard, number FROM changes WHERE operation_id IN :ids*")
_GONE = SQL("""
    SELECT DISTINCT consumer_id FROM changes
    WHERE operation_id IN :ids* AND consumer_id IS NOT NULL""")
_DELETE_CHANGES = SQL("DELETE FROM changes WHERE operation_id IN :ids*")
_DELETE_CONSUMERS = SQL("DELETE FROM consumers WHERE id IN :ids* AND gone IN :gone*")
_DELETE_OPERATIONS = SQL("DELETE FROM operations WHERE id IN :ids*")
_RETENTION = SQL("SELECT retention, complete_since FROM ledger_info")
_SET_RETENTION = SQL("UPDATE ledger_info SET retention = :seconds")
_SET_COMPLETE_SINCE = SQL("UPDATE ledger_info SET complete_since = :since")


def note_pruning(connection: Connection, before: datetime.datetime) -> None:
    """Record that changes before a moment may be deleted."""
    if complete_since(connection, now_of(connection)) < before:
        _SET_COMPLETE_SINCE.run(connection, since=moment(connection, before))


def retain(connection: Connection, age: datetime.timedelta) -> None:
    """Set the retention time of operations and changes."""
    if age > retention(connection):
        since = complete_since(connection, now_of(connection))
        _SET_COMPLETE_SINCE.run(connection, since=moment(connection, since))
    _SET_RETENTION.run(connection, seconds=int(age.total_seconds()))


def complete_since(connection: Connection, now: datetime.datetime) -> datetime.datetime:
    """Return the moment from which on no change was deleted. Cost: one small statement."""
    [(seconds, since)] = _RETENTION.rows(connection)
    retained = now - datetime.timedelta(seconds=int(seconds))
    return retained if since is None else max(from_moment(since), retained)


def retention(connection: Connection) -> datetime.timedelta:
    """Return the retention of operations and changes."""
    return datetime.timedelta(seconds=int(_RETENTION.rows(connection)[0][0]))


def delete_some(connection: Connection, before: datetime.datetime | None = None) -> Pruned:
    """Delete at most :data:`BATCH` operations older than a moment, with their changes.

    :param before: None: the retention time before now
    """
    before = before or now_of(connection) - retention(connection)
    below = drawn_at(before + _TICK)
    at = moment(connection, before)
    rows = _OLD.rows(connection, before=at, below=below, batch=BATCH)
    ids = [number for (number,) in rows]
    if not ids:
        return Pruned(0, 0)
    consumers = [number for (number,) in _GONE.rows(connection, ids=ids)]
    entries = len(_ENTRIES.rows(connection, ids=ids))
    _DELETE_CHANGES.run(connection, ids=ids)
    _DELETE_CONSUMERS.run_for(connection, consumers, gone=ids)
    _DELETE_OPERATIONS.run(connection, ids=ids)
    return Pruned(len(ids), entries)


#: The resolution of the time in row numbers and ids of operations.
_TICK = datetime.timedelta(milliseconds=1)
