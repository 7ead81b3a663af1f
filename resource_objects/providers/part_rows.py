"""The rows of providers that keep parts of an inventory, by provider."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects.providers.columns import Columns
from resource_objects.resources.records import InventoryRecord, KeptPart


class PartRows:
    """The rows of the providers that keep parts, and of what these share, by provider."""

    def __init__(self, columns: Columns, keeping: Collection[int]) -> None:
        self._columns = columns
        self._shares = places(columns.shares.provider_id, keeping)
        of = columns.shares.of_id
        targets = {of[row] for rows in self._shares.values() for row in rows}
        self._inventories = places(columns.inventories.provider_id, targets.union(keeping))
        self._units = places(columns.units.provider_id, keeping)
        self._traits: dict[int, list[str]] = defaultdict(list)
        for number, trait in zip(*columns.traits, strict=True):
            if number in keeping:
                self._traits[number].append(trait)

    def part(self, number: int, body: str, used: Mapping[tuple[int, str], int]) -> KeptPart:
        """Return what a provider keeps of an inventory, with more in use."""
        left: dict[str, int] = {}
        for name, room in self.left(number, used):
            left[name] = min(room, left.get(name, room))
        return KeptPart(
            self.records(number, used),
            body,
            self.units(number),
            frozenset(self._traits.get(number, ())),
            left,
        )

    def records(
        self, number: int, used: Mapping[tuple[int, str], int]
    ) -> tuple[InventoryRecord, ...]:
        """Return the figures of a provider, with more in use."""
        table: Sequence[Sequence[Any]] = self._columns.inventories[1:]
        found = (
            InventoryRecord(*[column[row] for column in table])
            for row in self._inventories.get(number, ())
        )
        if not used:
            return tuple(found)
        return tuple(
            dataclasses.replace(one, used=one.used + used.get((number, one.resource_class), 0))
            for one in found
        )

    def units(self, number: int) -> dict[str, tuple[str, ...]]:
        """Return the units that are taken of a provider, by class."""
        table, found = self._columns.units, defaultdict[str, list[str]](list)
        for row in self._units.get(number, ()):
            found[table.resource_class[row]].append(table.unit[row])
        return {name: tuple(units) for name, units in found.items()}

    def left(self, number: int, used: Mapping[tuple[int, str], int]) -> Iterator[tuple[str, int]]:
        """Yield what each share of a provider leaves of it, by the provider's own class."""
        table = self._columns.shares
        for row in self._shares.get(number, ()):
            of = table.of_id[row], table.of_class[row]
            free = self._free(*of) - used.get(of, 0)
            yield table.resource_class[row], free // table.factor[row]

    def _free(self, number: int, name: str) -> int:
        table = self._columns.inventories
        for row in self._inventories.get(number, ()):
            if table.resource_class[row] == name:
                return table.capacity[row] - table.used[row]
        return 0


def places(numbers: Iterable[int], wanted: Collection[int]) -> dict[int, list[int]]:
    """Return the rows of each provider that is wanted."""
    found: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(numbers):
        if number in wanted:
            found[number].append(row)
    return found
