"""Providers that are equal: whoever chooses between them need consider one only.

Equal are providers below one parent with nobody below them that have the same traits, are in the
same aggregates, and keep the same classes by the same unit rules with the same amounts free, used
of the same inventories elsewhere. A pool is like nobody, for others know it by its name; so is
whose inventory others draw on, and whose parts have a place of their own in what lies over a tree.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from resource_objects.resources.catalog import is_device
from resource_objects.search.arrays import Integers

if TYPE_CHECKING:
    from resource_objects.search.fleet import Fleet


class Kin:
    """What of the definitions tells equal providers. Made when it is first asked for."""

    def __init__(self, fleet: Fleet) -> None:
        self._parent = fleet.parent
        self._inventories = _Index(fleet.inventories.provider)
        self._traits = _index_of(fleet.traits)
        self._aggregates = _index_of(fleet.aggregates)
        providers = np.arange(len(fleet.parent))
        apart = np.zeros(len(providers), dtype=np.bool_)
        is_root = fleet.parent == providers
        apart[is_root] = True
        apart[fleet.parent[~is_root]] = True  # somebody is below it
        apart[fleet.pools.providers] = True
        apart[fleet.inventories.provider[fleet.shares.targets]] = True
        for parts in fleet.views.parts.values():
            apart[parts.provider] = True
        self._is_apart = apart
        self._shares = fleet.shares
        self._classes = fleet.class_of
        self._rows = fleet.inventories
        self._rules: dict[int, tuple[int, list[int]]] = {}
        self._number: dict[Hashable, int] = {}
        self._next = itertools.count()

    def inventories(self, provider: int) -> list[int]:
        """Return the numbers of the inventories of a provider."""
        return self._inventories.of(provider)

    def of(self, fleet: Fleet, provider: int) -> Hashable:
        """Return what equal providers have in common; nobody else has it.

        Cost: some 20 microseconds the first time, then 2.
        """
        if self._is_apart[provider]:
            return provider
        if provider not in self._rules:
            # two threads may both count on: then a number is left out, and none is used twice
            number = self._number.setdefault(self._rule(provider), next(self._next))
            self._rules[provider] = number, self.inventories(provider)
        rule, numbers = self._rules[provider]
        return rule, tuple(fleet.inventories.free[numbers].tolist())

    def _rule(self, provider: int) -> Hashable:
        rows = self._rows
        kept = tuple(
            (
                name := self._classes(number),
                int(rows.min_unit[number]),
                int(rows.max_unit[number]),
                int(rows.step_size[number]),
                is_device(name) or bool(rows.is_single[number]),  # may give a part
                tuple(link[1:] for link in self._shares.between(number, number + 1)),
            )
            for number in self.inventories(provider)
        )
        traits, aggregates = self._traits.of(provider), self._aggregates.of(provider)
        return int(self._parent[provider]), frozenset(traits), frozenset(aggregates), kept


class _Index:
    """From a provider to the places in an array at which it stands."""

    def __init__(self, provider: Integers, values: Integers | None = None) -> None:
        order = np.argsort(provider, kind="stable")
        self._provider = provider[order]
        self._values = order if values is None else values[order]

    def of(self, provider: int) -> list[int]:
        """Return what belongs to a provider."""
        start, end = self._provider.searchsorted((provider, provider + 1))
        found: list[int] = self._values[start:end].tolist()
        return found


def _index_of(table: Mapping[str, Integers]) -> _Index:
    """Return which numbers of names each provider has."""
    arrays: Iterable[Integers] = table.values()
    every = [np.zeros(0, dtype=np.int64), *arrays]
    numbers = [np.full(len(having), number) for number, having in enumerate(every)]
    return _Index(np.concatenate(every), np.concatenate(numbers))
