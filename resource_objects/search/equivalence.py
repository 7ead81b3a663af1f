"""Providers that are equal: whoever chooses between them need consider one only.

Equal are providers below one parent with nobody below them that have the same traits, are in the
same aggregates, and keep the same classes by the same unit rules with the same amounts free, used
of the same inventories elsewhere. Devices that are known one by one are equal if they are in all
but their addresses: kind, NUMA node, networks, labels. A pool is like nobody, for others know it by
its name; so is whose inventory others draw on, and who keeps a cell of a topology.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from resource_objects import exceptions
from resource_objects.resources import resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.located import Identified
from resource_objects.search.arrays import Integers
from resource_objects.search.fleet import Fleet


def equivalence(fleet: Fleet) -> Equivalence:
    """Return the equivalence classes of a fleet's providers, made when they are first asked for.

    They depend on definitions alone, not on what is used, so that a fleet in which something else
    is used has the same. Their numbers mean nothing to another one, so all threads have the same.
    """
    known: Equivalence | None = fleet.of_definitions.get(Equivalence)
    return known or fleet.of_definitions.setdefault(Equivalence, Equivalence(fleet))


class Equivalence:
    """What of the definitions tells equal providers. Made when it is first asked for.

    It keeps nothing of a fleet but what depends on definitions alone, so that it may go over to the
    fleet in which something else is used.
    """

    def __init__(self, fleet: Fleet) -> None:
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
        self._is_apart = apart
        self._rules: dict[int, tuple[int, list[int]] | None] = {}
        self._number: dict[Hashable, int] = {}
        self._next = itertools.count()

    def inventories(self, provider: int) -> list[int]:
        """Return the numbers of the inventories of a provider."""
        return self._inventories.of(provider)

    def qualities(self, provider: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the traits of a provider and the aggregates that it is in, by their numbers."""
        return frozenset(self._traits.of(provider)), frozenset(self._aggregates.of(provider))

    def of(self, fleet: Fleet, provider: int) -> Hashable:
        """Return what equal providers have in common; nobody else has it.

        Cost: some 20 microseconds the first time, then 2.
        """
        if self._is_apart[provider]:
            return provider
        if provider not in self._rules:
            self._rules[provider] = self._numbered(fleet, provider)
        found = self._rules[provider]
        if found is None:
            return provider
        rule, numbers = found
        return rule, tuple(fleet.inventories.free[numbers].tolist())

    def _numbered(self, fleet: Fleet, provider: int) -> tuple[int, list[int]] | None:
        """Return a number that those have who may be equal, with the inventories; None: nobody."""
        parts = self._parts(fleet, provider)
        if parts is None:
            return None
        rule = parts, self._rule(fleet, provider)
        # two threads may both count on: then a number is left out, and none is used twice
        return self._number.setdefault(rule, next(self._next)), self.inventories(provider)

    def _parts(self, fleet: Fleet, provider: int) -> Hashable | None:
        """Return what is told of it as a part of what lies over its tree; None: like nobody."""
        found: list[Hashable] = []
        for kind, parts in fleet.parts.items():
            at = int(parts.provider.searchsorted(provider))
            if at == len(parts.provider) or parts.provider[at] != provider:
                continue
            if not issubclass(resource(kind).inventory_kind, Identified):
                return None
            try:
                view = fleet.view(kind, int(fleet.tree[provider]))
            except exceptions.InvalidInventory:
                return None
            if view is None:
                return None
            like = view.located.inventory.symmetry_key(view.places.index(provider))
            if like is None:
                return None
            found.append((kind, like))
        return tuple(found)

    def _rule(self, fleet: Fleet, provider: int) -> Hashable:
        rows = fleet.inventories
        kept = tuple(
            (
                name := fleet.class_of(number),
                int(rows.min_unit[number]),
                int(rows.max_unit[number]),
                int(rows.step_size[number]),
                is_device(name) or bool(rows.is_single[number]),  # may give a part
                tuple(link[1:] for link in fleet.shares.between(number, number + 1)),
            )
            for number in self.inventories(provider)
        )
        return int(fleet.parent[provider]), *self.qualities(provider), kept


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
