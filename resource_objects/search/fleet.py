"""Everything kept at one moment, as NumPy arrays: what a snapshot holds.

Providers are put in one order, whatever order a backend returned them in: by the name of their
host, then by depth, then by name. Everything else refers to a provider by its place in this
order, so the providers of a tree, and the inventories of a tree in one class, stand together. A
*tree* is the number of a host in the order of names. Inventories are numbered too: by class, then
by provider.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from resource_objects.providers.decision import largest
from resource_objects.search.arrays import Booleans, Integers, frozen, integers
from resource_objects.search.holders import Allocations, Units
from resource_objects.search.kin import Kin
from resource_objects.search.pools import Pools
from resource_objects.search.shares import Shares
from resource_objects.search.views import Views


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClassRows:
    """Inventories over the fleet, mostly those of one class: parallel arrays, one entry each.

    ``free`` is what can be taken now: what is left here, and where it is used elsewhere too, what
    is left there. ``low`` and ``high`` are the least and most that one part may take: multiples of
    the step within the unit rules and what is free. Nothing fits where ``high < low``.
    """

    provider: Integers
    tree: Integers
    capacity: Integers
    used: Integers
    free: Integers
    min_unit: Integers
    max_unit: Integers  # fields.MAX_AMOUNT where there is no bound
    step_size: Integers
    low: Integers
    high: Integers
    is_below: Booleans  #: of a provider below the root
    is_single: Booleans  #: of a provider below the root that has one unit, or devices
    is_part: Booleans  #: a part of what another of its tree has: the kind alone gives it here
    first: int = 0  #: number of the first of them

    def of_tree(self, tree: int) -> slice:
        """Return which entries are of a tree. Cost: two binary searches."""
        start, end = self.tree.searchsorted((tree, tree + 1))
        return slice(int(start), int(end))

    def part(self, entries: slice) -> ClassRows:
        """Return some entries that stand together; nothing is copied."""
        columns: list[Any] = [getattr(self, name)[entries] for name in CLASS_COLUMNS]
        return ClassRows(*columns, *[self.first + int(entries.start)])


#: The names of the arrays of :class:`ClassRows`.
CLASS_COLUMNS = tuple(one.name for one in dataclasses.fields(ClassRows) if one.name != "first")


@dataclasses.dataclass(frozen=True, eq=False)
class Fleet:
    """Providers, inventories, traits and what ties them, as arrays that cannot be written."""

    names: tuple[str, ...]  #: of providers
    uuids: tuple[str, ...]  #: of providers
    generation: Integers  #: of providers
    parent: Integers  #: of providers; of a root itself
    tree: Integers  #: of providers
    height: int  #: providers on the longest way from a root down, 0 for no provider at all
    hosts: tuple[str, ...]  #: of trees: the names of their roots
    inventories: ClassRows  #: of all classes
    classes: Mapping[str, ClassRows]  #: those of one class, in the order of names
    traits: Mapping[str, Integers]  #: the providers that have it themselves
    aggregates: Mapping[str, Integers]  #: the providers that are in it themselves
    shares: Shares
    pools: Pools
    allocations: Allocations
    units: Units
    views: Views
    within: int | None = None  #: the only tree that is asked about; None: all
    above: tuple[int, ...] = ()  #: providers that are above the root of that tree in truth

    def rows(self, resource_class: str) -> ClassRows:
        """Return the inventories of a class, which may be none."""
        return self.classes.get(resource_class, NO_ROWS)

    def has_trait(self, trait: str) -> Booleans:
        """Return which providers have a trait, themselves or through a provider above them."""
        return self.below(self.having(self.traits, (trait,)))

    def having(self, table: Mapping[str, Integers], names: Iterable[str]) -> Booleans:
        """Return which providers have one of some traits, or are in one of some aggregates."""
        found = np.zeros(len(self.names), dtype=np.bool_)
        for name in names:
            if name in table:
                found[table[name]] = True
        return found

    def below(self, some: Booleans) -> Booleans:
        """Return some providers and all that are below them, be it across a cut."""
        found = some.copy()
        if self.above and some[list(self.above)].any():
            found[self.tree == self.within] = True
        for _ in range(1, self.height):
            found |= found[self.parent]
        return found

    def of_tree(self, tree: int) -> range:
        """Return the providers of a tree, the root first. Cost: two binary searches."""
        first, end = self.tree.searchsorted((tree, tree + 1)).tolist()
        return range(first, end)

    @functools.cached_property
    def roots(self) -> Integers:
        """The root of each tree."""
        found: Integers = frozen(np.flatnonzero(self.parent == np.arange(len(self.parent))))
        return found

    @functools.cached_property
    def tops(self) -> Integers:
        """The root of each tree in truth: of one that is cut out, that above it."""
        if not self.above:
            return self.roots
        tops = self.roots.copy()
        tops[self.within] = self.above[-1]
        found: Integers = frozen(tops)
        return found

    def true_tree(self, provider: int) -> int:
        """Return the tree of a provider; that cut out of its tree, if there is one."""
        tree = int(self.tree[provider])
        if self.above and self.within is not None and tree == int(self.tree[self.above[0]]):
            return self.within
        return tree

    @property
    def kin(self) -> Kin:
        """What tells equal providers; it depends on definitions alone, not on what is used.

        Its numbers mean nothing to another one, so all threads have the same.
        """
        known: Kin | None = self.__dict__.get("kin")
        return self.__dict__.setdefault("kin", Kin(self)) if known is None else known

    def place_of(self, key: str) -> int | None:
        """Return the place of a provider by name or uuid. Cost: linear, 1 ms for 100,000."""
        for table in (self.names, self.uuids):
            if key in table:
                return table.index(key)
        return None

    def upwards(self, provider: int) -> Iterator[int]:
        """Yield a provider and all above it."""
        yield provider
        while (above := int(self.parent[provider])) != provider:
            provider = above
            yield provider
        if self.within == self.tree[provider]:
            yield from self.above

    def is_asked(self, tree: int) -> bool:
        """Return whether a tree is one that is asked about."""
        return self.within is None or self.within == tree

    def class_of(self, inventory: int) -> str:
        """Return the class of an inventory, by its number."""
        starts, names = self._starts
        return names[bisect.bisect_right(starts, inventory) - 1]

    def classes_of(self, inventories: Integers) -> set[str]:
        """Return the classes of some inventories, by their numbers. Cost: linear, vectorised."""
        starts, names = self._starts
        found = np.unique(np.searchsorted(starts, inventories, side="right") - 1)
        return {names[number] for number in found.tolist()}

    def number(self, provider: int, resource_class: str) -> int | None:
        """Return the number of the inventory of a provider and class, None if there is none."""
        rows = self.rows(resource_class)
        at = int(rows.provider.searchsorted(provider))
        found = at < len(rows.provider) and rows.provider[at] == provider
        return rows.first + at if found else None

    def left(self, inventory: int) -> int:
        """Return what is left of an inventory itself, whatever is left elsewhere."""
        rows = self.inventories
        return int(rows.capacity[inventory]) - int(rows.used[inventory])

    def holders(self, inventories: list[int]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` of what is used of some inventories, the largest first."""
        pooled = tuple(inventories) if self._are_pooled(inventories) else ()
        if pooled in self._pool_holders:
            return self._pool_holders[pooled]
        found = self._found_holders(inventories)
        if pooled:  # a pool has many holders, and is named by many hosts
            self._pool_holders[pooled] = found
        return found

    def who_has(self, units: Mapping[int, Collection[str]]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, how many)`` of some units, by the place of their provider.

        Who did not say which units it took has as many as it took, if some of these are nobody's.
        """
        rows = list(self.units.of(units))
        named = {(place, unit) for place, unit, _, _ in rows}
        held = Counter(who for place, unit, _, who in rows if unit in units[place])
        open_ = [p for p, some in units.items() if any((p, unit) not in named for unit in some)]
        naming = {(place, name, who) for place, _, name, who in rows}
        for place, name, who, amount in self.allocations.of(open_):
            if (place, name, who) not in naming:
                held[who] += amount
        return largest(held.items())

    def _are_pooled(self, inventories: list[int]) -> bool:
        pools = self.pools.providers
        return bool(pools.size) and bool(
            np.isin(self.inventories.provider[inventories], pools).all()
        )

    def _found_holders(self, inventories: list[int]) -> tuple[tuple[str, int], ...]:
        provider = self.inventories.provider
        of: dict[tuple[int, str, int], None] = {}
        for number in inventories:
            for source, factor in [(number, 1), *self.shares.into(number)]:
                of[int(provider[source]), self.class_of(source), factor] = None
        return self.allocations.holders(of)

    @functools.cached_property
    def listed(self) -> tuple[Integers, Integers]:
        """How many traits, and how many aggregates, each provider has itself."""
        tables = (self.traits, self.aggregates)
        every = [np.concatenate((integers(()), *table.values())) for table in tables]
        counts = [frozen(np.bincount(some, minlength=len(self.names))) for some in every]
        return counts[0], counts[1]

    @functools.cached_property
    def _pool_holders(self) -> dict[tuple[int, ...], tuple[tuple[str, int], ...]]:
        return {}

    @functools.cached_property
    def _starts(self) -> tuple[list[int], list[str]]:
        return [rows.first for rows in self.classes.values()], list(self.classes)


NO_ROWS = ClassRows(*[frozen(integers(()))] * 10, *[frozen(np.zeros(0, dtype=np.bool_))] * 3)
