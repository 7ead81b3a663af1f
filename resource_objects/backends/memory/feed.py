"""The change feed in memory: told with every write, read on from a cursor, forgotten when old."""

from __future__ import annotations

import datetime
import heapq
import itertools
from collections.abc import Iterator

from resource_objects import exceptions
from resource_objects.backends.memory.draft import Draft
from resource_objects.backends.memory.state import State
from resource_objects.providers.changed import Touched
from resource_objects.providers.feed import SHARDS, Change, Cursor
from resource_objects.providers.listing import Pruned
from resource_objects.providers.orders import Write


def tell(draft: Draft, write: Write) -> None:
    """Add what a write touched to the feed, one change for each shard."""
    operation = write.operation
    for shard, (providers, consumers) in (draft.touched or {0: (set(), set())}).items():
        number = (draft.heads.get(shard) or 0) + 1
        draft.heads.put(shard, number)
        change = Change(
            shard,
            number,
            draft.now,
            operation.id,
            write.kind,
            write.subject,
            operation.actor,
            tuple(sorted(providers)),
            tuple(sorted(consumers)),
        )
        draft.changes.put(shard, number, change)


def cursor(state: State) -> Cursor:
    """Return where the feed is."""
    return Cursor(tuple(state.heads.get(shard, 0) for shard in range(SHARDS)))


def changes(state: State, after: Cursor, limit: int) -> tuple[Change, ...]:
    """Return changes after a cursor, the oldest first, each shard in its order.

    Cost: linear in those returned.
    """
    parts = [_of_shard(state, shard, head) for shard, head in enumerate(after.heads)]
    merged = heapq.merge(*parts, key=lambda change: change.at)
    return tuple(itertools.islice(merged, limit))


def count(state: State, after: Cursor) -> int:
    """Return how many changes there are after a cursor."""
    pairs = enumerate(after.heads)
    return sum(_check(state, shard, head) - head for shard, head in pairs)


def touched(state: State, after: Cursor) -> Touched:
    """Return whom the changes after a cursor touched. Cost: linear in these changes."""
    parts = (_of_shard(state, shard, head) for shard, head in enumerate(after.heads))
    return Touched.of(itertools.chain.from_iterable(parts))


def _of_shard(state: State, shard: int, after: int) -> Iterator[Change]:
    head = _check(state, shard, after)
    told = state.changes.get(shard, {})
    return (told[number] for number in range(after + 1, head + 1))


def _check(state: State, shard: int, after: int) -> int:
    """Return the head of a shard that can be read from a place on."""
    head = state.heads.get(shard, 0)
    if not state.oldest.get(shard, 0) <= after <= head:
        raise exceptions.CursorExpired(f"cursor at {after} of shard {shard}")
    return head


def prune(state: State, draft: Draft, before: datetime.datetime) -> Pruned:
    """Forget what is older than a moment, but no consumer's last operation.

    Cost: linear in what is kept.
    """
    last = {claim.generation for claim in state.claims.values()}
    operations = [
        id for id, done in state.operations.items() if done.at < before and done.number not in last
    ]
    for id in operations:
        draft.operations.put(id, None)
    count = 0
    for shard, told in state.changes.items():
        # from the oldest on, so that what is left has no gap
        for number, _ in itertools.takewhile(lambda one: one[1].at < before, told.items()):
            draft.changes.put(shard, number, None)
            draft.oldest.put(shard, number)
            count += 1
    return Pruned(len(operations), count)
