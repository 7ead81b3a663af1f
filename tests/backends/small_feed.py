"""The change feed of a small ledger: told with every write, forgotten when it is old."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator

from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.feed import Change, shard_of
from resource_objects.providers.listing import Pruned
from resource_objects.providers.orders import Write
from resource_objects.providers.settle import Settlement
from tests.backends.small_state import State


class Told:
    """What the feed says of a write: by shard, the providers and the consumers it touched."""

    def __init__(self, state: State, changes: DefinitionChanges) -> None:
        self._state = state
        self._uuids = {definition.uuid for definition in changes.creates}
        self._uuids |= {update.definition.uuid for update in changes.updates}
        self._uuids |= {removal.uuid for removal in changes.removals}
        self._shards: dict[int, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
        self._touch(self._uuids)  # where they were

    def _touch(self, uuids: Iterable[str], consumer: str | None = None) -> None:
        roots = self._state.roots()
        for uuid in uuids:
            if uuid in roots:
                providers, consumers = self._at(roots[uuid])
                providers.add(uuid)
                consumers.update([consumer] if consumer else [])

    def _at(self, root: str) -> tuple[set[str], set[str]]:
        return self._shards[shard_of(self._state.rows[root].number)]

    def add(self, reported: Iterable[str], settlement: Settlement, renamed: Iterable[str]) -> None:
        """Note what was touched, while all of it is there."""
        self._touch({*self._uuids, *reported})
        places = self._state.places()
        for settled in settlement.consumers:
            keys = [s.key for s in settled.shifts] or [h.key for h in settled.claim.held]
            keys += [of for key in keys for of, _ in places[key].shares]
            self._touch({uuid for uuid, _ in keys}, settled.claim.consumer)
        if self._shards:  # a rename on its own names nobody
            self._touch(renamed)

    def changes(self, write: Write, now: datetime.datetime) -> Iterator[Change]:
        """Yield what the feed says, counting its heads up."""
        for shard, (providers, consumers) in (self._shards or {0: (set(), set())}).items():
            self._state.heads[shard] += 1
            yield Change(
                shard,
                self._state.heads[shard],
                now,
                write.operation.id,
                write.kind,
                write.subject,
                write.operation.actor,
                tuple(sorted(providers)),
                tuple(sorted(consumers)),
            )


def forget(state: State, before: datetime.datetime) -> Pruned:
    """Forget operations and changes, but no consumer's last operation."""
    last = {claim.generation for claim in state.claims.values()}
    old = [id for id, (number, at, _) in state.done.items() if at < before and number not in last]
    for id in old:
        del state.done[id]
    changes = [change for change in state.changes if change.at < before]
    for change in changes:
        state.forgotten[change.shard] = change.number
        state.changes.remove(change)
    return Pruned(len(old), len(changes))
