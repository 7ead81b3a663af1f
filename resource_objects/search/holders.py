"""Who holds what: kept as it came, and put in order when it is first asked, which is seldom.

A refreshed snapshot has the rows of the old one, and beside them those of the providers that were
read again: what is changed is laid over what was there, which nobody copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

import numpy as np

from resource_objects.providers.columns import AllocationColumns, UnitColumns
from resource_objects.search.arrays import Integers, Places, frozen

#: One row, without its provider.
Row: TypeAlias = "tuple[Any, ...]"


class Rows:
    """Rows of providers, by their places: columns, and what is laid over them since."""

    __slots__ = ("_changed", "_columns", "_provider", "_sorted")

    def __init__(self, provider: Integers, columns: Sequence[Sequence[Any]]) -> None:
        """:param provider: of each row, -1 for a row that is no more"""
        self._provider: Integers = frozen(provider)
        self._columns = tuple(columns)
        self._sorted: tuple[Integers, Integers] | None = None
        self._changed: Mapping[int, tuple[Row, ...]] = {}

    def of_provider(self, provider: int) -> list[Row]:
        """Return the rows of a provider. Cost: the first time a sort, then two searches."""
        if provider in self._changed:
            return list(self._changed[provider])
        ordered, keys = self._index()
        start, end = keys.searchsorted((provider, provider + 1)).tolist()
        rows = ordered[start:end].tolist()
        return [tuple(column[row] for column in self._columns) for row in rows]

    def all(self) -> Iterator[tuple[int, Row]]:
        """Yield every row with its provider. Cost: linear in all of them."""
        for provider, *row in zip(self._provider.tolist(), *self._columns, strict=True):
            if provider >= 0 and provider not in self._changed:
                yield provider, tuple(row)
        for provider, rows in self._changed.items():
            for found in rows:
                yield provider, found

    def changed(self, rows: Mapping[int, tuple[Row, ...]]) -> Self:
        """Return them with other rows of some providers. Cost: linear in all ever changed so."""
        found = self._like(self._provider, {**self._changed, **rows})
        found._sorted = self._sorted
        return found

    def moved(self, rank: Integers) -> Self:
        """Return them with other places of the providers; those at -1 are gone.

        Cost: linear in all rows, vectorised.
        """
        provider = np.where(self._provider < 0, -1, rank[self._provider])
        places = rank.tolist() if self._changed else []
        changed = {places[old]: rows for old, rows in self._changed.items()}
        changed.pop(-1, None)
        return self._like(frozen(provider), changed)

    def _like(self, provider: Integers, changed: Mapping[int, tuple[Row, ...]]) -> Self:
        found = object.__new__(type(self))
        found._provider, found._columns = provider, self._columns
        found._sorted, found._changed = None, changed
        return found

    def _index(self) -> tuple[Integers, Integers]:
        """Return the rows in order of providers, and their providers."""
        if self._sorted is None:  # two threads may both sort: the outcome is the same
            ordered = np.argsort(self._provider, kind="stable")
            self._sorted = ordered, self._provider[ordered]
        return self._sorted


def by_provider(rows: Iterable[tuple[int, Row]]) -> dict[int, tuple[Row, ...]]:
    """Return rows by the places of their providers. Cost: linear, for few rows."""
    found: dict[int, list[Row]] = {}
    for place, row in rows:
        found.setdefault(place, []).append(row)
    return {place: tuple(some) for place, some in found.items()}


class Allocations(Rows):
    """Who holds how much at which provider: ``(resource class, consumer, amount)``."""

    __slots__ = ()

    def __init__(self, columns: AllocationColumns, place: Places) -> None:
        super().__init__(place.of(columns.provider_id), _shared(columns[1:]))

    def holders(self, of: Iterable[tuple[int, str, int]]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` of all that is taken, the largest first, then by name.

        :param of: ``(provider, resource class, factor)``, each different: what is taken there
            counts ``factor`` times
        """
        held: dict[str, int] = {}
        for provider, resource_class, factor in of:
            for name, consumer, amount in self.of_provider(provider):
                if name == resource_class:
                    held[consumer] = held.get(consumer, 0) + factor * amount
        return tuple(sorted(held.items(), key=lambda item: (-item[1], item[0])))

    def of(self, providers: Iterable[int]) -> Iterator[tuple[int, str, str, int]]:
        """Yield ``(provider, resource class, consumer, amount)`` of some providers."""
        for provider in providers:
            for name, consumer, amount in self.of_provider(provider):
                yield provider, name, consumer, amount


class Units(Rows):
    """Which units are taken, and by whom: ``(unit, resource class, consumer)``."""

    __slots__ = ()

    def __init__(self, columns: UnitColumns, place: Places) -> None:
        super().__init__(place.of(columns.provider_id), _shared(columns[1:]))

    def taken(self, units: Iterable[str]) -> dict[int, tuple[str, str]]:
        """Return, of the providers where some of these are taken, one of them and its holder.

        Cost: linear in the units that are taken anywhere.
        """
        wanted = frozenset(units)
        found = [(row[0], row[2], provider) for provider, row in self.all() if row[0] in wanted]
        taken: dict[int, tuple[str, str]] = {}
        for unit, consumer, provider in sorted(found, key=lambda one: one[0]):
            taken.setdefault(provider, (unit, consumer))
        return taken

    def of(self, providers: Iterable[int]) -> Iterator[tuple[int, str, str, str]]:
        """Yield ``(provider, unit, resource class, consumer)`` of some providers."""
        for provider in providers:
            for unit, name, consumer in self.of_provider(provider):
                yield provider, unit, name, consumer


def _shared(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return columns with equal values kept once: a name stands in many rows."""
    known: dict[Any, Any] = {}
    return [tuple([known.setdefault(value, value) for value in column]) for column in columns]
