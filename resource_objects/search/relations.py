"""Relations between the providers and inventories of a fleet, as arrays that cannot be written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import os_traits

from resource_objects import exceptions
from resource_objects.providers.columns import KindColumns, ShareColumns
from resource_objects.search.arrays import Booleans, Integers, PlaceIndex, coded, frozen, integers

#: Places are fewer than 2 to the power of this.
PLACE_BITS = 40


class Members(Mapping[str, Integers]):
    """The places of the providers that have something, by its name. Both are sorted."""

    __slots__ = ("_ends", "_keys", "number", "places", "sizes")

    def __init__(self, number: Mapping[str, int], sizes: Integers, places: Integers) -> None:
        """:param number: of each name, in order

        :param sizes: how many providers each name has, at least one
        :param places: of the providers, name by name
        """
        self.number = number
        self.sizes: Integers = frozen(sizes)
        self.places: Integers = frozen(places)
        self._ends = np.cumsum(sizes)
        self._keys: Integers | None = None

    def __getitem__(self, name: str) -> Integers:
        number = self.number[name]
        end = int(self._ends[number])
        return self.places[end - int(self.sizes[number]) : end]

    def __iter__(self) -> Iterator[str]:
        return iter(self.number)

    def __len__(self) -> int:
        return len(self.number)

    def __contains__(self, name: object) -> bool:
        return name in self.number

    def within(self, first: int, end: int) -> Iterator[tuple[str, slice]]:
        """Yield the names that providers from ``first`` to before ``end`` have.

        Each comes with the entries of :attr:`places` of these providers. Cost: two binary searches
        for each name, vectorised; the first time a pass over the places.
        """
        codes = np.arange(len(self.number)) << PLACE_BITS
        if self._keys is None:  # two threads may both compute it: the outcome is the same
            self._keys = np.repeat(codes, self.sizes) + self.places
        starts, stops = self._keys.searchsorted(codes + first), self._keys.searchsorted(codes + end)
        numbers = np.flatnonzero(stops > starts).tolist()
        names = list(self.number) if numbers else []
        for number in numbers:
            yield names[number], slice(int(starts[number]), int(stops[number]))


# --- shares ---------------------------------------------------------------------------------------


#: (number of an inventory, factor): each unit that is allocated uses ``factor`` of that inventory.
Link: TypeAlias = tuple[int, int]
#: Numbers of inventories by the places of their providers and their classes; -1 for none.
Find: TypeAlias = Callable[[Integers, "tuple[str, ...]"], Integers]


class Shares:
    """The shares between the inventories of a fleet, by source: parallel arrays. False if empty.

    Each unit that is allocated of an inventory ``source`` also uses ``factor`` of ``target``. A
    target has no shares of its own.
    """

    __slots__ = ("_by_target", "_targets", "factor", "source", "target")

    def __init__(self, source: Integers, target: Integers, factor: Integers) -> None:
        order = np.lexsort((target, source))
        self.source: Integers = frozen(source[order])
        self.target: Integers = frozen(target[order])
        self.factor: Integers = frozen(factor[order])
        self._targets: Integers | None = None
        self._by_target: tuple[Integers, Integers] | None = None

    def __bool__(self) -> bool:
        return bool(len(self.source))

    @classmethod
    def read(cls, columns: ShareColumns, place: PlaceIndex, find: Find) -> Shares:
        """Return the shares of columns.

        :raises InvalidInput: if one is not between inventories of the columns
        """
        source = find(place.of(columns.provider_id), tuple(columns.resource_class))
        target = find(place.of(columns.of_id), tuple(columns.of_class))
        if bool((source < 0).any()) or bool((target < 0).any()):
            raise exceptions.InvalidInput(
                "row", "ShareColumns", "a share", "one between inventories"
            )
        return cls(source, target, integers(columns.factor))

    @property
    def targets(self) -> Integers:
        """The targets in order, each once."""
        if self._targets is None:  # two threads may both compute it: the outcome is the same
            self._targets = frozen(np.unique(self.target))
        return self._targets

    def entries(self, first: int, end: int) -> slice:
        """Return the entries of the sources from ``first`` to before ``end``."""
        start, stop = self.source.searchsorted((first, end)).tolist()
        return slice(start, stop)

    def between(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Return ``(source, target, factor)`` of the sources from ``first`` to before ``end``."""
        here = self.entries(first, end)
        columns = (self.source[here], self.target[here], self.factor[here])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def of(self, inventory: int) -> list[Link]:
        """Return the inventories that a source uses."""
        return [(target, factor) for _, target, factor in self.between(inventory, inventory + 1)]

    def into(self, inventory: int) -> list[Link]:
        """Return the sources that use a target. Cost: the first time a sort, then two searches."""
        if self._by_target is None:  # two threads may both sort: the outcome is the same
            order = np.argsort(self.target, kind="stable")
            self._by_target = order, self.target[order]
        order, target = self._by_target
        start, stop = target.searchsorted((inventory, inventory + 1)).tolist()
        rows = order[start:stop]
        return list(zip(self.source[rows].tolist(), self.factor[rows].tolist(), strict=True))

    def free(self, capacity: Integers, used: Integers, numbers: Integers | None = None) -> Integers:
        """Return how much can be allocated of inventories, with regard to their targets.

        :param numbers: of these inventories only
        """
        if numbers is None:
            remaining = capacity - used
            if not self:
                return remaining
            free = remaining.copy()
            np.minimum.at(free, self.source, remaining[self.target] // self.factor)
            return free
        free = capacity[numbers] - used[numbers]
        for position, number in enumerate(numbers.tolist()) if self else ():
            for target, factor in self.of(number):
                most = int(capacity[target] - used[target]) // factor
                free[position] = min(int(free[position]), most)
        return free


# --- pools ----------------------------------------------------------------------------------------


#: The trait of a pool.
SHARING: str = os_traits.MISC_SHARES_VIA_AGGREGATE


class Pools:
    """The pools of a fleet, and the trees that are linked to them. False if there is no pool.

    A provider with the trait ``MISC_SHARES_VIA_AGGREGATE`` is a pool for every tree that has a
    provider in one of the aggregates of the pool. Only these aggregates are recorded, as pairs, so
    that many hosts and few pools cost one entry per host.
    """

    __slots__ = ("_aggregates", "_linked", "_members", "every", "providers", "trees")

    def __init__(
        self, aggregates: Members, pools: Integers, tree: Integers, is_root: Booleans
    ) -> None:
        """:param pools: the providers that have the trait themselves

        :param tree: of each provider

        Cost: linear in the members of aggregates if there are pools.
        """
        self.providers: Integers = frozen(np.sort(pools))
        #: the trees whose root is a pool
        self.trees = frozenset(tree[self.providers[is_root[self.providers]]].tolist())
        self.every = frozenset(self.providers.tolist())
        self._aggregates = len(aggregates)
        empty = integers(())
        self._members = self._linked = (empty, empty)
        if len(pools):
            aggregate = np.repeat(np.arange(len(aggregates)), aggregates.sizes)
            of_pool = np.isin(aggregates.places, self.providers)
            has_pool = np.zeros(len(aggregates), dtype=np.bool_)
            has_pool[aggregate[of_pool]] = True
            linked = has_pool[aggregate]
            #: aggregates and their pools, sorted
            self._members = _pairs(aggregate[of_pool], aggregates.places[of_pool])
            #: trees and their aggregates, sorted
            self._linked = _pairs(tree[aggregates.places[linked]], aggregate[linked])

    def __bool__(self) -> bool:
        return bool(len(self.providers))

    def of_tree(self, tree: int) -> list[int]:
        """Return the pools that a tree is linked to, in order; they may be in the tree itself."""
        trees, aggregates = self._linked
        start, end = trees.searchsorted((tree, tree + 1)).tolist()
        of_aggregate, pools = self._members
        linked: set[int] = set()
        for aggregate in aggregates[start:end].tolist():
            first, last = of_aggregate.searchsorted((aggregate, aggregate + 1)).tolist()
            linked.update(pools[first:last].tolist())
        return sorted(linked)

    def linked_to(self, pools: Integers, trees: int) -> Booleans:
        """Return the trees that are linked to some of these pools. Cost: linear in the links.

        :param trees: the number of all trees
        """
        aggregates, members = self._members
        has_pool = np.zeros(self._aggregates, dtype=np.bool_)
        has_pool[aggregates[np.isin(members, pools)]] = True
        is_linked = np.zeros(trees, dtype=np.bool_)
        is_linked[self._linked[0][has_pool[self._linked[1]]]] = True
        return is_linked

    def giving_to(self, trees: Booleans) -> Integers:
        """Return the pools that some of these trees are linked to. Cost: linear in the links."""
        aggregates, members = self._members
        has_tree = np.zeros(self._aggregates, dtype=np.bool_)
        has_tree[self._linked[1][trees[self._linked[0]]]] = True
        pools: Integers = np.unique(members[has_tree[aggregates]])
        return pools


def _pairs(first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """Return the different pairs in order."""
    size = int(second.max()) + 1 if len(second) else 1
    keys = np.unique(first * size + second)
    return frozen(keys // size), frozen(keys % size)


def grouped(names: Iterable[str], provider: Integers) -> Members:
    """Return the members of the names that providers have, both in parallel."""
    codes, code = coded(list(names))
    order = np.lexsort((provider, code))
    return Members(codes, np.bincount(code, minlength=len(codes)), provider[order])


# --- parts of structured resources ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The parts of one structured resource, by provider: parallel arrays, one entry each."""

    provider: Integers
    tree: Integers
    shape: Integers  #: index into :attr:`shapes`
    shapes: tuple[tuple[str, ...], ...]  #: different sets of resource classes, sorted
    descriptions: tuple[str, ...]

    def of_tree(self, tree: int) -> slice:
        """Return the entries of a tree. Cost: two binary searches."""
        start, end = self.tree.searchsorted((tree, tree + 1))
        return slice(int(start), int(end))

    def described(self) -> Iterator[tuple[int, str]]:
        """Return the places of the providers, each with the description of its part."""
        return zip(self.provider.tolist(), self.descriptions, strict=True)

    def classes_at(self, provider: int) -> tuple[str, ...]:
        """Return the resource classes of the part that a provider stores, () if it stores none."""
        entry = int(self.provider.searchsorted(provider))
        is_stored = entry < len(self.provider) and self.provider[entry] == provider
        return self.shapes[self.shape[entry]] if is_stored else ()


_NOTHING: Integers = frozen(integers(()))
NO_PARTS = Parts(_NOTHING, _NOTHING, _NOTHING, (), ())


def read_parts(kinds: KindColumns, place: PlaceIndex, tree: Integers) -> dict[str, Parts]:
    """Return the parts by the name of their structured resource, which may have no placement.

    :param tree: of each provider
    """
    rows: dict[str, list[int]] = {name: [] for name in sorted(set(kinds.resource_class))}
    for row, name in enumerate(kinds.resource_class):
        rows[name].append(row)
    parts: dict[str, Parts] = {}
    for name, numbers in rows.items():
        provider = place.of([kinds.provider_id[row] for row in numbers])
        order = np.argsort(provider, kind="stable")
        numbers = [numbers[entry] for entry in order.tolist()]
        shapes, shape = coded(["\n".join(kinds.classes[row]) for row in numbers])
        parts[name] = Parts(
            frozen(provider[order]),
            frozen(tree[provider[order]]),
            frozen(shape),
            tuple(tuple(classes.split("\n")) for classes in shapes),
            tuple([kinds.body[row] for row in numbers]),
        )
    return parts
