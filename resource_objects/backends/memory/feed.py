"""The change feed in memory: read from a cursor, pruned, and summed as use over time."""

from __future__ import annotations

import datetime
import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from resource_objects import clock
from resource_objects.providers.changed import Touched
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
from resource_objects.providers.orders import ConsumerRecord, NameKind
from resource_objects.providers.use_over_time import (
    MICROSECOND,
    ClassRename,
    Group,
    UseBy,
    UseChange,
    UseFilter,
    UseReport,
    check_span,
    report,
)
from resource_objects.store.rows import HeadRow, Rows

#: The keys of operations and of entries of the feed.
Expired: TypeAlias = "tuple[list[str], list[tuple[int, int]]]"

_NO_HEAD = HeadRow(0, 0)


def cursor_of(rows: Rows, epoch: int) -> Cursor:
    """Return the cursor at the end of the feed. Cost: linear in the shards."""
    heads = [rows.heads.rows.get(shard, _NO_HEAD) for shard in range(SHARDS)]
    numbers, operations = zip(*heads, strict=True)
    return Cursor(numbers, operations, epoch)


def changes_after(rows: Rows, after: Cursor, end: Cursor, limit: int) -> tuple[FeedEntry, ...]:
    """Return entries after a cursor, the oldest first, each shard in its order.

    Cost: linear in the entries after the cursor.
    """
    shards = [_entries(rows, after, shard) for shard in after.waiting(end)]
    merged = heapq.merge(*shards, key=lambda entry: entry.at)
    return tuple(itertools.islice(merged, limit))


def touched_in(rows: Rows, after: Cursor, shards: Iterable[int]) -> Touched:
    """Return the providers of the entries of shards after a cursor. Cost: linear in the entries."""
    return Touched.of(entry for shard in shards for entry in _entries(rows, after, shard))


def _entries(rows: Rows, after: Cursor, shard: int) -> list[FeedEntry]:
    entries = rows.changes.rows
    first, last = after.heads[shard], rows.heads[shard].number
    numbers = [n for n in range(max(1, first), last + 1) if (shard, n) in entries]
    after.check(shard, {n: entries[shard, n].generation for n in numbers}, last)
    return [entries[shard, n] for n in range(first + 1, last + 1)]


def expired(rows: Rows, before: datetime.datetime, most: int | None = None) -> Expired:
    """Return operations and entries that are older than a moment, at most ``most`` operations.

    The last operation and entry of each shard are not included: they identify the history. Cost:
    linear in the result.
    """
    last = {head.operation for head in rows.heads.rows.values()}
    old = itertools.takewhile(lambda pair: pair[1].at < before, rows.operations.rows.items())
    operations = [id for id, row in itertools.islice(old, most) if row.number not in last]
    entries: list[tuple[int, int]] = []
    for shard, keys in rows.changes_of.keys.items():
        # from the oldest on, so that the entries that stay have no gap
        oldest = itertools.takewhile(lambda key: rows.changes[key].at < before, keys)
        head = rows.heads[shard].number
        entries += [key for key in itertools.islice(oldest, most) if key[1] < head]
    return operations, entries


# --- use over time ---


def use_between(
    rows: Rows,
    since: datetime.datetime,
    until: datetime.datetime | None,
    criteria: UseFilter,
    by: Sequence[UseBy],
    complete: datetime.datetime,
) -> UseReport:
    """Return the use between two moments. Cost: linear in the change feed and the claims.

    :param complete: the moment from which on the feed is complete
    """
    until = check_span(since, until, clock.now())
    owners: dict[str, Group | None] = {}
    present: Counter[tuple[Group, str]] = Counter()
    for record in rows.consumers.rows.values():
        group = owners[record.uuid] = _group(record, criteria, by)
        if group is not None:
            for use in record.held:
                present[group, use.resource_class] += use.amount
    first = max(since, complete)
    use_changes = list(_changes(rows, first, criteria, by, owners))

    def changes(after: datetime.datetime, upto: datetime.datetime | None) -> Iterable[UseChange]:
        sums: dict[tuple[Group, str], list[int]] = defaultdict(lambda: [0, 0])
        for at, group, name, amount in use_changes:
            if at > after and (upto is None or at <= upto):
                sums[group, name][0] += amount
                sums[group, name][1] += amount * ((at - after) // MICROSECOND)
        return [UseChange(*key, *amounts) for key, amounts in sums.items()]

    renames = (
        ClassRename(entry.at, *pair)
        for entry in rows.changes.rows.values()
        for pair in entry.renamed_classes
    )
    classes = [
        name for name in criteria.classes or () if (NameKind.RESOURCE_CLASS, name) in rows.names
    ]
    return report(present, changes, renames, criteria, by, (since, until, complete), classes)


def _changes(
    rows: Rows,
    since: datetime.datetime,
    criteria: UseFilter,
    by: Sequence[UseBy],
    owners: dict[str, Group | None],
) -> Iterator[tuple[datetime.datetime, Group, str, int]]:
    """Yield the changes after a moment: time, group, class and amount, the latest first.

    A consumer's group is the one that it had last: that of its latest record.
    """
    for entry in reversed(rows.changes.rows.values()):
        if entry.at <= since or not entry.uses:
            continue
        records = {
            record.consumer: record for record in rows.operations[entry.operation].outcome.claims
        }
        for change in entry.uses:
            record = records[change.consumer]
            if record.uuid not in owners:
                owners[record.uuid] = _group(record, criteria, by)
            group = owners[record.uuid]
            if group is not None:
                yield entry.at, group, change.key[1], change.after - change.before


def _group(record: ConsumerRecord, criteria: UseFilter, by: Sequence[UseBy]) -> Group | None:
    """Return the group of a consumer, None if it does not match the filter."""
    if not criteria.matches(record.consumer, record.user, record.project):
        return None
    return tuple(getattr(record, dimension.value) for dimension in by)
