"""Everything a small ledger keeps: plain records in dicts, and what follows from them by loops.

What is used is not kept: it is counted whenever somebody asks, so it cannot be wrong.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import os_resource_classes

from resource_objects import exceptions
from resource_objects.providers.backend import ClaimRecord, Outcome
from resource_objects.providers.definition import ProviderDefinition
from resource_objects.providers.feed import SHARDS, Change
from resource_objects.providers.listing import ListedName, ListedProvider
from resource_objects.providers.orders import Key, NameKind
from resource_objects.providers.settle import Place, Unit
from resource_objects.resources.traits import standard_traits

#: What there is from the start, and stays.
STANDARD: dict[NameKind, Collection[str]] = {
    NameKind.RESOURCE_CLASS: frozenset(os_resource_classes.STANDARDS),
    NameKind.TRAIT: standard_traits(),
    NameKind.AGGREGATE: (),
}


@dataclasses.dataclass
class Row:
    """A provider: what was defined, and what happened to it."""

    number: int
    definition: ProviderDefinition
    generation: int = 0
    allocation_writes: int = 0
    reported_at: datetime.datetime | None = None


class State:
    """Everything kept."""

    def __init__(self) -> None:
        self.last_number = 0
        self.rows: dict[str, Row] = {}  # by uuid
        self.claims: dict[str, ClaimRecord] = {}  # by consumer
        self.done: dict[str, tuple[int, datetime.datetime, Outcome]] = {}  # by operation
        self.names: dict[NameKind, dict[str, ListedName]] = {kind: {} for kind in NameKind}
        self.changes: list[Change] = []
        self.heads, self.forgotten = [0] * SHARDS, [0] * SHARDS
        for kind, names in STANDARD.items():
            self.ensure(kind, names)

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def ensure(self, kind: NameKind, names: Iterable[str]) -> None:
        for name in sorted(set(names) - set(self.names[kind])):
            self.names[kind][name] = ListedName(self.next_number(), name)

    # --- what follows from what is kept ---

    def roots(self) -> dict[str, str]:
        """Return the root of every provider, by its uuid and by its name."""
        found: dict[str, str] = {}
        for uuid, row in self.rows.items():
            top = uuid
            while (above := self.rows[top].definition.parent_uuid) is not None:
                top = above
            found[uuid] = found[row.definition.name] = top
        return found

    def places(self) -> dict[Key, Place]:
        """Return every inventory, with what is used of it and what it shares."""
        found = {
            (uuid, record.resource_class): Place(row.definition.name, record)
            for uuid, row in self.rows.items()
            for record in row.definition.inventories
        }
        for uuid, row in self.rows.items():
            for share in row.definition.shares:
                key, of = (uuid, share.resource_class), (share.of_uuid, share.of_class)
                if key not in found or of not in found:
                    raise exceptions.StaleDefinition(row.definition.name, f"{share}: it is gone")
                found[key].shares += ((of, share.factor),)
        for key, _, amount in self._drawn(found):
            record = found[key].record
            found[key].record = dataclasses.replace(record, used=record.used + amount)
        return found

    def _drawn(self, places: dict[Key, Place]) -> Iterator[tuple[Key, str, int]]:
        """Yield how much of which inventory each consumer uses, directly and through shares."""
        for consumer, claim in self.claims.items():
            for held in claim.held:
                yield held.key, consumer, held.amount
                for key, factor in places[held.key].shares:
                    yield key, consumer, held.amount * factor

    def claim(self, consumer: str) -> ClaimRecord:
        """Return what a consumer holds, with the names that providers have today."""
        claim = self.claims[consumer]
        held = (
            dataclasses.replace(one, provider=self.rows[one.provider_uuid].definition.name)
            for one in claim.held
        )
        return dataclasses.replace(claim, held=tuple(held))

    def holders(self, keys: Collection[Key]) -> dict[Key, list[tuple[str, int]]]:
        """Return who uses some inventories."""
        found: dict[Key, dict[str, int]] = {key: defaultdict(int) for key in keys}
        for key, consumer, amount in self._drawn(self.places()):
            if key in found:
                found[key][consumer] += amount
        return {key: list(drawn.items()) for key, drawn in found.items()}

    def takers(self, units: Collection[Unit]) -> dict[Unit, str]:
        """Return who has which of some units."""
        return {
            (held.provider_uuid, unit): consumer
            for consumer, claim in self.claims.items()
            for held in claim.held
            for unit in held.units
            if (held.provider_uuid, unit) in units
        }

    def listed(self) -> list[ListedProvider]:
        """Return every provider, in order of creation."""
        places, roots = self.places(), self.roots()
        return [self._listed(row, places, roots) for row in self.rows.values()]

    def top_down(self) -> list[ListedProvider]:
        """Return every provider, parents before children."""
        rows = self.listed()
        ordered = [row for row in rows if row.parent_uuid is None]
        for row in ordered:  # grows while it is read
            ordered += [below for below in rows if below.parent_uuid == row.uuid]
        return ordered

    def _listed(self, row: Row, places: dict[Key, Place], roots: dict[str, str]) -> ListedProvider:
        wanted = row.definition
        above, root = self.rows.get(wanted.parent_uuid or ""), self.rows[roots[wanted.uuid]]
        return ListedProvider(
            row.number,
            wanted.uuid,
            wanted.name,
            row.generation,
            above.definition.name if above else None,
            wanted.parent_uuid,
            root.definition.name,
            root.definition.uuid,
            tuple(places[wanted.uuid, one.resource_class].record for one in wanted.inventories),
            wanted.traits,
            wanted.aggregates or frozenset(),
            wanted.kinds,
            row.reported_at,
            row.allocation_writes,
        )
