"""Who holds what: kept as it came, and put in order when it is first asked, which is seldom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from resource_objects.providers.columns import AllocationColumns, UnitColumns
from resource_objects.search.arrays import Integers, Places


class Allocations:
    """Who holds how much at which provider."""

    __slots__ = ("_columns", "_place", "_sorted")

    def __init__(self, columns: AllocationColumns, place: Places) -> None:
        self._columns = AllocationColumns(*(tuple(column) for column in columns))  # type: ignore[arg-type]
        self._place = place
        self._sorted: tuple[Integers, Integers] | None = None

    def holders(self, of: Iterable[tuple[int, str, int]]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` of all that is taken, the largest first, then by name.

        :param of: ``(provider, resource class, factor)``, each different: what is taken there
            counts ``factor`` times
        """
        ordered, keys = self._index()
        held: dict[str, int] = {}
        for provider, resource_class, factor in of:
            start, end = keys.searchsorted((provider, provider + 1))
            for row in ordered[start:end].tolist():
                if self._columns.resource_class[row] == resource_class:
                    name = self._columns.consumer[row]
                    held[name] = held.get(name, 0) + factor * self._columns.amount[row]
        return tuple(sorted(held.items(), key=lambda item: (-item[1], item[0])))

    def of(self, providers: Iterable[int]) -> Iterator[tuple[int, str, str, int]]:
        """Yield ``(provider, resource class, consumer, amount)`` of some providers."""
        ordered, keys = self._index()
        table = self._columns
        for provider in providers:
            start, end = keys.searchsorted((provider, provider + 1))
            for row in ordered[start:end].tolist():
                yield provider, table.resource_class[row], table.consumer[row], table.amount[row]

    def _index(self) -> tuple[Integers, Integers]:
        """Return the rows in order of providers, and their providers."""
        if self._sorted is None:  # two threads may both sort: the outcome is the same
            self._sorted = _by_provider(self._place, self._columns.provider_id)
        return self._sorted


def _by_provider(place: Places, numbers: Sequence[int]) -> tuple[Integers, Integers]:
    """Return rows in order of providers, and their providers."""
    provider = place.of(numbers)
    ordered = np.argsort(provider, kind="stable")
    return ordered, provider[ordered]


class Units:
    """Which units are taken, and by whom."""

    __slots__ = ("_columns", "_place", "_sorted")

    def __init__(self, columns: UnitColumns, place: Places) -> None:
        self._columns = UnitColumns(*(tuple(column) for column in columns))  # type: ignore[arg-type]
        self._place = place
        self._sorted: tuple[Integers, Integers] | None = None

    def taken(self, units: Iterable[str]) -> dict[int, tuple[str, str]]:
        """Return, of the providers where some of these are taken, one of them and its holder.

        Cost: linear in the units that are taken anywhere.
        """
        wanted = frozenset(units)
        rows = zip(
            self._columns.provider_id, self._columns.unit, self._columns.consumer, strict=True
        )
        found = sorted((row for row in rows if row[1] in wanted), key=lambda row: row[1])
        places = self._place.of([row[0] for row in found]).tolist()
        taken: dict[int, tuple[str, str]] = {}
        for place, (_, unit, consumer) in zip(places, found, strict=True):
            taken.setdefault(place, (unit, consumer))
        return taken

    def of(self, providers: Iterable[int]) -> Iterator[tuple[int, str, str, str]]:
        """Yield ``(provider, unit, resource class, consumer)`` of some providers."""
        if self._sorted is None:
            self._sorted = _by_provider(self._place, self._columns.provider_id)
        ordered, keys = self._sorted
        for provider in providers:
            start, end = keys.searchsorted((provider, provider + 1))
            for row in ordered[start:end].tolist():
                yield (provider, *(column[row] for column in self._columns[1:]))
