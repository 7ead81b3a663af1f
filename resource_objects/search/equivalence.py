"""Classes of equal providers, of which a search considers only one.

Providers are equal if they have the same parent and no children, the same traits, aggregates and
resource classes, equal unit rules and free amounts, and the same shares. Devices are equal if they
differ only in their addresses: their resource, NUMA node, networks and labels are equal. A pool, a
target of shares and a cell of a topology are equal to no other provider.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping

import numpy as np

from resource_objects import exceptions
from resource_objects.resources.catalog import is_device
from resource_objects.resources.placed import has_named_units
from resource_objects.search.arrays import Integers
from resource_objects.search.demands import view_of
from resource_objects.search.fleet import Fleet


def equivalence(fleet: Fleet) -> Equivalence:
    """Return the equivalence classes of a fleet's providers, computed when they are first needed.

    Fleets of the same definitions share them.
    """
    classes: Equivalence | None = fleet.of_definitions.get(Equivalence)
    return classes or fleet.of_definitions.setdefault(Equivalence, Equivalence(fleet))


class Equivalence:
    """The equivalence classes of providers, as far as they depend on definitions.

    It refers to no fleet, so that fleets with other usage can share it.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._inventories = _Index(fleet.inventories.provider)
        self._traits = _index_of(fleet.traits)
        self._aggregates = _index_of(fleet.aggregates)
        is_root = fleet.parent == np.arange(len(fleet.parent))
        is_unique = is_root.copy()
        is_unique[fleet.parent[~is_root]] = True  # it has children
        is_unique[fleet.pools.providers] = True
        is_unique[fleet.inventories.provider[fleet.shares.targets]] = True
        self._is_unique = is_unique
        #: by provider: the number of its definition, and its inventories; None if it is unique
        self._definitions: dict[int, tuple[int, list[int]] | None] = {}
        self._number: dict[Hashable, int] = {}
        self._next = itertools.count()

    def inventories(self, provider: int) -> list[int]:
        """Return the numbers of the inventories of a provider."""
        return self._inventories.of(provider)

    def qualities(self, provider: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the numbers of the traits of a provider, and of its aggregates."""
        return frozenset(self._traits.of(provider)), frozenset(self._aggregates.of(provider))

    def of(self, fleet: Fleet, provider: int) -> Hashable:
        """Return a key that exactly the providers equal to this one have.

        Cost: some 20 microseconds the first time, then 2.
        """
        if self._is_unique[provider]:
            return provider
        if provider not in self._definitions:
            self._definitions[provider] = self._numbered(fleet, provider)
        definition = self._definitions[provider]
        if definition is None:
            return provider
        number, inventories = definition
        return number, tuple(fleet.inventories.free[inventories].tolist())

    def _numbered(self, fleet: Fleet, provider: int) -> tuple[int, list[int]] | None:
        parts = self._parts(fleet, provider)
        if parts is None:
            return None
        key = parts, self._definition(fleet, provider)
        # if two threads add a key, one number is not used, and none is used twice
        return self._number.setdefault(key, next(self._next)), self.inventories(provider)

    def _parts(self, fleet: Fleet, provider: int) -> Hashable | None:
        """Return a key of equal parts of placed resources; None for a unique part."""
        keys: list[Hashable] = []
        for name, parts in fleet.parts.items():
            if not parts.classes_at(provider):
                continue
            if not has_named_units(name):
                return None
            try:
                view = view_of(fleet, name, int(fleet.tree[provider]))
            except exceptions.InvalidInventory:
                return None
            if view is None:
                return None
            key = view.located.inventory.symmetry_key(view.places.index(provider))
            if key is None:
                return None
            keys.append((name, key))
        return tuple(keys)

    def _definition(self, fleet: Fleet, provider: int) -> Hashable:
        rows = fleet.inventories
        inventories = tuple(
            (
                name := fleet.class_of(number),
                int(rows.min_unit[number]),
                int(rows.max_unit[number]),
                int(rows.step_size[number]),
                is_device(name) or bool(rows.is_single[number]),  # may provide a part of an amount
                tuple(fleet.shares.of(number)),
            )
            for number in self.inventories(provider)
        )
        return int(fleet.parent[provider]), *self.qualities(provider), inventories


class _Index:
    """The values of each provider, from parallel arrays of providers and values."""

    def __init__(self, provider: Integers, values: Integers | None = None) -> None:
        """:param values: None for the positions in the array"""
        order = np.argsort(provider, kind="stable")
        self._provider = provider[order]
        self._values = order if values is None else values[order]

    def of(self, provider: int) -> list[int]:
        """Return the values of a provider."""
        start, end = self._provider.searchsorted((provider, provider + 1))
        values: list[int] = self._values[start:end].tolist()
        return values


def _index_of(table: Mapping[str, Integers]) -> _Index:
    """Return the numbers of the names that each provider has."""
    arrays = [np.zeros(0, dtype=np.int64), *table.values()]
    numbers = [np.full(len(places), number) for number, places in enumerate(arrays)]
    return _Index(np.concatenate(arrays), np.concatenate(numbers))
