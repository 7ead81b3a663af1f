"""The draft that a write works on: all of it, before any of it happens."""

from __future__ import annotations

import dataclasses
import datetime

from resource_objects.backends.memory.state import Kept, State
from resource_objects.backends.memory.tables import Nested, Table
from resource_objects.providers.feed import shard_of


class Draft:
    """What is kept as one write will leave it, and which keys the feed will name."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.now = datetime.datetime.now(datetime.UTC)
        self.number = next(state.operation_numbers)
        self.names = Table(state.names)
        self.providers = Table(state.providers)
        self.uuid_of = Table(state.uuid_of)
        self.children = Nested(state.children)
        self.rows = Table(state.rows)
        self.sharers = Nested(state.sharers)
        self.claims = Table(state.claims)
        self.claim_ids = Table(state.claim_ids)
        self.holders = Nested(state.holders)
        self.units = Nested(state.units)
        self.operations = Table(state.operations)
        self.changes = Nested(state.changes)
        self.heads = Table(state.heads)
        self.oldest = Table(state.oldest)
        #: by shard: uuids of providers, names of consumers
        self.touched: dict[int, tuple[set[str], set[str]]] = {}
        #: uuids of providers whose definition says a name that is another now
        self.renamed: set[str] = set()

    def apply(self) -> None:
        """Make it so; twice is as good as once."""
        for table in (
            self.names,
            self.providers,
            self.uuid_of,
            self.children,
            self.rows,
            self.sharers,
            self.claims,
            self.claim_ids,
            self.holders,
            self.units,
            self.operations,
            self.changes,
            self.heads,
            self.oldest,
        ):
            table.apply()

    def top(self, uuid: str) -> Kept:
        """Return the root of the tree of a provider, which is there."""
        kept = self.providers[uuid]
        while kept.parent_uuid is not None:
            kept = self.providers[kept.parent_uuid]
        return kept

    def bumped(self, kept: Kept) -> Kept:
        """Return a provider at the generation after the one it was at: one write, one step."""
        return dataclasses.replace(kept, generation=self.providers.kept[kept.uuid].generation + 1)

    def rename(self, kept: Kept) -> None:
        """Put a provider whose definition says another name now at its next generation."""
        self.providers.put(kept.uuid, self.bumped(kept))
        self.renamed.add(kept.uuid)

    def touch_renamed(self) -> None:
        """Note whom a rename touched, if the same write does more; alone it names nobody."""
        if self.touched:
            for uuid in self.renamed:
                if self.providers.get(uuid) is not None:
                    self.touch(uuid)

    def touch(self, uuid: str, root: int | None = None) -> None:
        """Note that the definition or use of a provider, which is there, is changed.

        :param root: number of the root it has or had, where that is not the one it has now
        """
        self._shard(uuid, root)[0].add(uuid)

    def touch_consumer(self, uuid: str, consumer: str) -> None:
        """Note that what a consumer holds at a provider is changed."""
        self._shard(uuid)[1].add(consumer)

    def _shard(self, uuid: str, root: int | None = None) -> tuple[set[str], set[str]]:
        number = self.top(uuid).number if root is None else root
        return self.touched.setdefault(shard_of(number), (set(), set()))
