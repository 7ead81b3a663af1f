"""The change feed in memory: read from a cursor, and pruned."""

from __future__ import annotations

import datetime
import heapq
import itertools
from collections.abc import Iterable
from typing import TypeAlias

from resource_objects.providers.changed import Touched
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
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
