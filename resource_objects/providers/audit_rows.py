"""Columns as an audit looks at them: rows that belong together, and those that belong to nothing.

Nothing is taken for granted here: a row may be of a provider or an inventory that is not there.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from resource_objects.providers.columns import Columns
from resource_objects.providers.orders import Key
from resource_objects.providers.pools import SHARES
from resource_objects.resources.records import InventoryRecord


class Allocated(NamedTuple):
    """One allocation."""

    key: Key
    consumer: str
    amount: int


class TakenUnit(NamedTuple):
    """One unit that is taken."""

    key: Key
    unit: str
    consumer: str


class KeptKind(NamedTuple):
    """What is kept of a structured inventory beside its figures."""

    uuid: str
    name: str
    classes: tuple[str, ...]
    body: str


@dataclasses.dataclass(frozen=True, slots=True)
class Orphan:
    """A row that belongs to something that is not there."""

    table: str
    provider: str
    resource_class: str = ""
    consumer: str = ""


class Rows:
    """The rows of columns, by uuid of their provider; ``orphans`` are left out of the others."""

    def __init__(self, columns: Columns) -> None:
        given = columns.providers
        self.orphans: list[Orphan] = []
        self._uuid = dict(zip(given.provider_id, given.uuid, strict=True))
        self._names = dict(zip(given.uuid, given.name, strict=True))
        #: when the owner of each said last how it is
        self.reported_at: dict[str, datetime.datetime | None] = dict(
            zip(given.uuid, given.reported_at or [None] * len(given.uuid), strict=True)
        )
        self._tree = self._trees(columns)
        self.inventories: dict[Key, InventoryRecord] = {
            (uuid, figures[0]): InventoryRecord(*figures)
            for uuid, *figures in self._known("inventory", columns.inventories)
        }
        traits = self._grouped("trait", columns.traits)
        #: the providers that are pools
        self.pools = frozenset(uuid for uuid, own in traits.items() if SHARES in own)
        self.aggregates = self._grouped("membership", columns.aggregates)
        self.aggregates_of_tree: dict[str, set[str]] = defaultdict(set)
        self._links: dict[str, set[str]] = defaultdict(set)
        for uuid, own in self.aggregates.items():
            self.aggregates_of_tree[self._tree[uuid]] |= own
            if uuid not in self.pools:
                self._links[self._tree[uuid]] |= own
        self.shares = self._shares(columns)
        self.allocations = [
            Allocated((uuid, name), consumer, amount)
            for uuid, name, consumer, amount in self._known("allocation", columns.allocations)
            if self._has_inventory("allocation", uuid, name, consumer)
        ]
        self.kinds = [KeptKind(*row) for row in self._known("kind", columns.kinds)]
        self.units = [
            TakenUnit((uuid, name), unit, consumer)
            for uuid, unit, name, consumer in self._known("unit", columns.units)
        ]

    def name(self, uuid: str) -> str:
        """Return the name of a provider."""
        return self._names[uuid]

    def tree(self, uuid: str) -> str:
        """Return the uuid of the root of a provider."""
        return self._tree[uuid]

    def links(self, uuid: str) -> Iterable[str]:
        """Return the aggregates through which the tree of a provider has something from pools."""
        return self._links.get(self._tree[uuid], ())

    def by_consumer(self) -> dict[str, dict[str, list[Allocated]]]:
        """Return what each consumer holds, by tree (the uuid of the root)."""
        found: dict[str, dict[str, list[Allocated]]] = defaultdict(lambda: defaultdict(list))
        for one in self.allocations:
            found[one.consumer][self._tree[one.key[0]]].append(one)
        return {consumer: dict(by_tree) for consumer, by_tree in sorted(found.items())}

    def are_of_pools(self, held: Iterable[Allocated]) -> bool:
        """Return whether all of this is held of pools."""
        return all(one.key[0] in self.pools for one in held)

    def is_given(self, key: Key, aggregates: Iterable[str]) -> bool:
        """Return whether something is of a pool that gives to the members of aggregates."""
        return key[0] in self.pools and not self.aggregates[key[0]].isdisjoint(aggregates)

    # --- made ---

    def _known(self, table: str, rows: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table with the uuid of their provider instead of its number."""
        for number, *values in zip(*rows, strict=True):
            if number in self._uuid:
                yield (self._uuid[number], *values)
            else:
                self.orphans.append(Orphan(table, f"provider {number}"))

    def _grouped(self, table: str, rows: Any) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for uuid, value in self._known(table, rows):
            found[uuid].add(value)
        return found

    def _has_inventory(self, table: str, uuid: str, name: str, consumer: str = "") -> bool:
        if (uuid, name) in self.inventories:
            return True
        self.orphans.append(Orphan(table, self._names[uuid], name, consumer))
        return False

    def _trees(self, columns: Columns) -> dict[str, str]:
        """Return the uuid of the root of each provider; of one whose parent is gone, its own."""
        given = columns.providers
        parents = dict(zip(given.provider_id, given.parent_id, strict=True))
        found: dict[str, str] = {}
        for number, parent in parents.items():
            if parent is not None and parent not in parents:
                self.orphans.append(Orphan("child", self._names[self._uuid[number]]))
            top, seen = number, {number}
            while (above := parents[top]) is not None and above in parents and above not in seen:
                top = above
                seen.add(above)
            found[self._uuid[number]] = self._uuid[top]
        return found

    def _shares(self, columns: Columns) -> dict[Key, list[tuple[Key, int]]]:
        found: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for uuid, name, of_id, of_class, factor in self._known("share", columns.shares):
            of = self._uuid.get(of_id)
            if of is None:
                self.orphans.append(Orphan("share", self._names[uuid], name))
            elif self._has_inventory("share", uuid, name) and self._has_inventory(
                "share", of, of_class
            ):
                found[uuid, name].append(((of, of_class), factor))
        return found
