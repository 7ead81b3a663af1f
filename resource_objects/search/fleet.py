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
import itertools
import operator
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import numpy as np
import os_traits

from resource_objects import clock, exceptions
from resource_objects.fields import MAX_AMOUNT, FrozenDict, Shared
from resource_objects.providers.columns import AggregateColumns, ShareColumns
from resource_objects.providers.decision import by_amount
from resource_objects.providers.disabled import TRAIT, Disabled
from resource_objects.providers.holders import Blocked, count_units_by_consumer
from resource_objects.reasons import Rule
from resource_objects.resources import resource
from resource_objects.resources.located import Identified
from resource_objects.resources.records import InventoryRecord
from resource_objects.search.arrays import (
    Booleans,
    Figures,
    Integers,
    Keys,
    Overlay,
    PlaceIndex,
    coded,
    frozen,
    integers,
    pickled,
)
from resource_objects.search.holders import Allocations, Units
from resource_objects.search.located_views import (
    NO_PARTS,
    Parts,
    View,
    ViewCache,
    view_beside,
    view_of,
)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClassRows:
    """Inventories over the fleet, mostly those of one class: parallel arrays, one entry each.

    ``free`` is capacity minus use, or less if an inventory that this one draws on has less. It may
    be negative. It does not exclude parts of other inventories and disabled providers:
    :meth:`Fleet.free` does. ``low`` and ``high`` are the least and most that one part may take:
    multiples of the step within the unit rules and what is free. Nothing fits where ``high < low``.
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
    total: Integers
    reserved: Integers
    ratio: Integers  #: allocation ratio, in millionths
    first: int = 0  #: number of the first of them

    def of_tree(self, tree: int) -> slice:
        """Return which entries are of a tree. Cost: two binary searches."""
        start, end = self.tree.searchsorted((tree, tree + 1))
        return slice(int(start), int(end))

    def part(self, entries: slice) -> ClassRows:
        """Return some entries that stand together; nothing is copied."""
        columns: list[Any] = [getattr(self, name)[entries] for name in CLASS_COLUMNS]
        return ClassRows(*columns, *[self.first + int(entries.start)])

    def could_give(self, amount: int, most: Integers) -> Booleans:
        """Return which of them would give so much at once.

        :param most: as much as there would be of each
        """
        fits: Booleans = (
            (self.min_unit <= amount)
            & (amount <= np.minimum(most, self.max_unit))
            & (amount % self.step_size == 0)
        )
        return fits

    def with_use(self, used: Integers, free: Integers, high: Integers) -> ClassRows:
        """Return them with other figures of use, which nobody else has."""
        columns = list(_COLUMNS(self))
        for (place, _), column in zip(_FIGURES[1:], (used, free, high), strict=True):
            columns[place] = frozen(column)
        return ClassRows(*columns, *[self.first])

    def with_figures(self, every: ClassRows) -> ClassRows:
        """Return them with the figures that all inventories of their fleet have now."""
        columns = list(_COLUMNS(self))
        here = slice(self.first, self.first + len(self.tree))
        for place, column in _FIGURES:
            columns[place] = column(every)[here]
        return ClassRows(*columns, *[self.first])


#: The names of the arrays of :class:`ClassRows`.
CLASS_COLUMNS = tuple(one.name for one in dataclasses.fields(ClassRows) if one.name != "first")
_COLUMNS = operator.attrgetter(*CLASS_COLUMNS)
#: Those that depend on use, or on limits, and their places among all.
FIGURES = ("capacity", "used", "free", "high")
_FIGURES = tuple((CLASS_COLUMNS.index(name), operator.attrgetter(name)) for name in FIGURES)


@dataclasses.dataclass(frozen=True, slots=True)
class DisabledPlace:
    """Why a provider is out of service, and when that ends by ``clock.monotonic()``; None: never.

    The clock of the ledger was read with it: what has passed since is what passed here.
    """

    facts: Disabled
    ends: float | None = None


#: By what hosts are ranked: weights of classes, and what is asked of them.
Ranking: TypeAlias = "tuple[tuple[tuple[str, float], ...], tuple[tuple[str, int], ...]]"
#: So many are kept, for as many kinds of requests that come again and again.
KEPT_RANKINGS = 8
#: Of more trees that were touched since, everything is worked out anew.
MOST_TOUCHED = 64


def _unpickled(data: bytes) -> Fleet:
    fields = pickle.loads(data)
    inventories: ClassRows = fields["inventories"]
    fields["classes"] = {name: inventories.part(some) for name, some in fields["classes"].items()}
    return Fleet(**fields)


class shared_property(functools.cached_property[T]):  # noqa: N801 (it is used as a decorator)
    """A cached property that depends on definitions only: fleets with other usage share it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fleet(Shared):
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
    traits: Members  #: the providers that have it themselves
    aggregates: Members  #: the providers that are in it themselves
    shares: FleetShares
    pools: FleetPools
    allocations: Allocations
    units: Units
    stored_parts: Mapping[str, Parts]  #: of structured resources, by name in order
    keys: Keys  #: of providers
    within: int | None = None  #: the only tree that is asked about; None: all
    above: tuple[int, ...] = ()  #: providers that are above the root of that tree in truth
    #: the providers that are out of service themselves; among ``traits`` they have the trait of it
    disabled: Mapping[int, DisabledPlace] = FrozenDict()
    #: by how much limits lower the capacity of inventories here
    limited: Mapping[int, int] = FrozenDict()
    #: the class of each unit that was removed while it was allocated, by the places of their
    #: providers. Figures and views count them as all others, until :meth:`in_force` excludes them
    removed_units: Mapping[int, Mapping[str, str]] = FrozenDict()
    #: those of them that are free, by place, in a fleet whose capacity excludes them
    free_removed_units: Mapping[int, frozenset[str]] = FrozenDict()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields alone: not what was computed of them, and each array once."""
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        fields["classes"] = {
            name: slice(rows.first, rows.first + len(rows.tree))
            for name, rows in self.classes.items()
        }
        return _unpickled, (pickled(fields),)

    def in_force(self) -> Fleet:
        """Return a fleet in which what is in service again by now is so; mostly this one.

        Free units that were removed from their host are no part of its capacity. Cost: nothing
        where nothing is disabled; where there are such units, three copies of a column of all
        inventories, once.
        """
        fleet = self.providers_in_force()
        return fleet._without_removed if fleet.removed_units else fleet

    @functools.cached_property
    def _without_removed(self) -> Fleet:
        """The fleet without removed units that are free."""
        free: dict[int, frozenset[str]] = {}
        counts: Counter[int] = Counter()
        for place, classes in self.removed_units.items():
            units = classes.keys() - {row[0] for row in self.units.of_provider(place)}
            if units:
                free[place] = frozenset(units)
            found = [self.number(place, classes[unit]) for unit in units]
            counts.update(number for number in found if number is not None)
        numbers = integers(sorted(counts))
        capacity = self.inventories.capacity[numbers]
        capacity = capacity - integers([counts[number] for number in numbers.tolist()])
        return with_capacity(self, numbers, capacity, free_removed_units=free)

    def providers_in_force(self) -> Fleet:
        """Return :meth:`in_force`, but with all units of what is in service."""
        if not self.disabled:
            return self
        now = clock.monotonic()
        over = [p for p, one in self.disabled.items() if one.ends is not None and one.ends <= now]
        if not over:
            return self
        left = {place: one for place, one in self.disabled.items() if place not in over}
        every = {name: places for name, places in self.traits.items() if name != TRAIT}
        if left:
            every[TRAIT] = integers(sorted(left))
        names = sorted(every)
        traits = Members(
            {name: number for number, name in enumerate(names)},
            integers([len(every[name]) for name in names]),
            np.concatenate([integers(()), *(every[name] for name in names)]),
        )
        return with_figures(self, self.inventories, traits=traits, disabled=left)

    # --- placed resources ---

    @shared_property
    def parts(self) -> Mapping[str, Parts]:
        """The parts of placed resources, by name in order."""
        return {name: one for name, one in self.stored_parts.items() if resource(name).is_located}

    @shared_property
    def device_parts(self) -> Mapping[str, Parts]:
        """The parts of resources whose units are devices, by name."""
        return {
            name: parts
            for name, parts in self.parts.items()
            if issubclass(resource(name).inventory_kind, Identified)
        }

    def parts_of(self, name: str) -> Parts:
        """Return the parts of a placed resource, which may be none."""
        return self.parts.get(name, NO_PARTS)

    def device_resource(self, provider: int, resource_class: str) -> str | None:
        """Return the resource whose devices a provider has under a class, None if it has none."""
        for name, parts in self.device_parts.items():
            if resource_class in parts.classes_at(provider):
                return name
        return None

    def view(self, name: str, tree: int) -> View | None:
        """Return the view of a placed resource over a tree, None if it has no part of it.

        Cost: that of assembling it, the first time.

        :raises InvalidInventory: if the stored parts contradict each other
        """
        key = name, tree
        if key not in self._views:
            self._views[key] = view_of(self, name, tree)
        return self._views[key]

    def view_beside(self, view: View, used: Mapping[tuple[int, str], int]) -> View:
        """Return a view with further use, by the place of the provider and the resource class."""
        return view_beside(self, view, used)

    @functools.cached_property
    def _views(self) -> dict[tuple[str, int], View | None]:
        return {}

    @functools.cached_property
    def view_cache(self) -> ViewCache:
        """The views that fleets with the same usage of a tree share."""
        return ViewCache()

    # --- inventories ---

    def rows(self, resource_class: str) -> ClassRows:
        """Return the inventories of a class, which may be none."""
        return self.classes.get(resource_class, NO_ROWS)

    def has_one_each(self, resource_class: str) -> bool:
        """Return whether no tree has two inventories of a class. Cost: a pass over it, once."""
        known = self._ones_each.get(resource_class)
        if known is None:
            tree = self.rows(resource_class).tree
            known = self._ones_each[resource_class] = bool((tree[1:] > tree[:-1]).all())
        return known

    def is_everywhere(self, resource_class: str) -> bool:
        """Return whether each tree has one inventory of a class: it is where its tree is."""
        rows = self.rows(resource_class)
        return len(rows.tree) == len(self.hosts) and self.has_one_each(resource_class)

    @shared_property
    def _ones_each(self) -> dict[str, bool]:
        """Of which classes no tree has two, as far as somebody asked."""
        return {}

    def counted(self, rows: ClassRows) -> Booleans:
        """Return True for the inventories of a class that are not a part of another of their tree.

        A cell's CPUs, for example, are a part of the host's.
        """
        end = rows.first + len(rows.tree)
        here = self.shares.entries(rows.first, end)
        source, target = self.shares.source[here], self.shares.target[here]
        tree = self.inventories.tree
        is_part = (rows.first <= target) & (target < end) & (tree[source] == tree[target])
        found = ~rows.is_part
        found[source[is_part] - rows.first] = False
        return found

    def free(self, rows: ClassRows) -> Integers:
        """Return the amount that can be allocated of each inventory of a class.

        This is the one definition of what is free: :meth:`totals`, :meth:`.Snapshot.free`, the
        capacity report, the usage of hosts and the fragmentation weigher sum it. It is 0 for a part
        of another inventory of its tree, for a disabled provider, and for an inventory over its
        capacity, whose excess does not reduce the sum.
        """
        found: Integers = np.where(self.counted(rows), self.free_of_each(rows), 0)
        return found

    def free_of_each(self, rows: ClassRows) -> Integers:
        """Return :meth:`free` of each inventory individually, also of a part of another."""
        free, disabled = rows.free.clip(0), self.out_of_service()
        if disabled is not None:
            free[disabled[rows.provider]] = 0
        return free

    def totals(self, resource_class: str) -> tuple[Integers, Integers, Integers]:
        """Return by tree the capacity of a class, how much is used, and how much is free.

        What cannot be allocated because of shares counts as used. Cost: a pass over the class the
        first time; it goes on to the next fleet where only use changes.
        """
        totals, touched = self._totals.get(resource_class, (None, ()))
        if totals is None:
            rows, trees = self.rows(resource_class), len(self.hosts)
            counts, sums = ~rows.is_part, []
            of_inventories = (
                np.where(counts, rows.capacity, 0),
                np.where(counts, rows.capacity - rows.free, 0),
                self.free(rows),
            )
            for column in of_inventories:
                total = np.zeros(trees, dtype=np.int64)
                np.add.at(total, rows.tree, column)
                sums.append(total)
            capacity, used, free = sums
        elif touched:
            rows = self.rows(resource_class)
            capacity, used, free = totals[0], totals[1].copy(), totals[2].copy()
            for tree in touched:
                here = rows.part(rows.of_tree(tree))
                used[tree] = (here.capacity - here.free)[~here.is_part].sum()
                free[tree] = self.free(here).sum()
        else:
            return totals
        found = frozen(capacity), frozen(used), frozen(free)
        self._totals[resource_class] = found, ()  # two threads may both do it, alike
        return found

    def fullness(self, weights: Mapping[str, float], asked: Mapping[str, int]) -> Figures:
        """Return how full each tree would be with an amount, the mean over classes by weight.

        Cost: some passes over the trees the first time; it goes on like :meth:`totals`.
        """
        key = tuple(weights.items()), tuple(asked.items())
        full, touched = self._fullness.get(key, (None, ()))
        if full is None:
            full = self._full(key, slice(None))
            if len(self._fullness) >= KEPT_RANKINGS:
                self._fullness.clear()
        elif touched:
            full = full.copy()
            full[list(touched)] = self._full(key, list(touched))
        else:
            return full
        self._fullness[key] = frozen(full), ()
        return full

    def _full(self, key: Ranking, trees: Any) -> Figures:
        weights, asked = key[0], dict(key[1])
        full: Figures = np.zeros(len(self.hosts))[trees]  # as full as each other, by no class
        for name, weight in weights:
            capacity, used, _ = (one[trees] for one in self.totals(name))
            used = used + asked.get(name, 0)
            part = np.divide(used, capacity, out=np.zeros(len(used)), where=capacity > 0)
            full += weight * part
        full /= sum(weight for _, weight in weights) or 1.0
        return full

    @functools.cached_property
    def _totals(self) -> dict[str, tuple[tuple[Integers, Integers, Integers], tuple[int, ...]]]:
        """Totals by class, each with the trees that were touched since they were worked out."""
        return {}

    @functools.cached_property
    def _fullness(self) -> dict[Ranking, tuple[Figures, tuple[int, ...]]]:
        """How full trees are by ranking, each with the trees that were touched since."""
        return {}

    def pass_on(self, new: Fleet, numbers: Integers) -> None:
        """Let a fleet with other use of some inventories begin with what is worked out of this."""
        trees = tuple(dict.fromkeys(self.inventories.tree[numbers].tolist()))
        pairs: Any = ((self._totals, new._totals), (self._fullness, new._fullness))
        for known, begun in pairs:
            for key, (value, touched) in list(known.items()):
                if len(touched) + len(trees) <= MOST_TOUCHED:
                    begun[key] = value, (*touched, *trees)

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

    def out_of_service(self) -> Booleans | None:
        """Return which providers are disabled, or below one that is; None for none.

        Cost: nothing where nothing is disabled; else a pass over the providers for each level.
        """
        if not self.disabled:
            return None
        itself = np.zeros(len(self.names), dtype=np.bool_)
        itself[list(self.disabled)] = True
        return self.below(itself)

    def of_tree(self, tree: int) -> range:
        """Return the providers of a tree, the root first. Cost: two binary searches."""
        first, end = self.tree.searchsorted((tree, tree + 1)).tolist()
        return range(first, end)

    @shared_property
    def roots(self) -> Integers:
        """The root of each tree."""
        found: Integers = frozen(np.flatnonzero(self.parent == np.arange(len(self.parent))))
        return found

    @shared_property
    def is_pool(self) -> Booleans:
        """Which providers are pools."""
        found = np.zeros(len(self.names), dtype=np.bool_)
        found[self.pools.providers] = True
        is_pool: Booleans = frozen(found)
        return is_pool

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

    def place_of(self, key: str) -> int | None:
        """Return the place of a provider by name or uuid. Cost: linear, 1 ms for 100,000."""
        for table in (self.names, self.uuids):
            if key in table:
                return table.index(key)
        return None

    @shared_property
    def place_by_key(self) -> Mapping[str, int]:
        """The place of each provider by name and by uuid. Cost: 1 ms for 10,000, once."""
        uuids = {uuid: place for place, uuid in enumerate(self.uuids)}
        return uuids | {name: place for place, name in enumerate(self.names)}

    def upwards(self, provider: int) -> Iterator[int]:
        """Yield a provider and all above it."""
        yield provider
        while (above := int(self.parent[provider])) != provider:
            provider = above
            yield provider
        if self.within == self.tree[provider]:
            yield from self.above

    def is_within(self, tree: int) -> bool:
        """Return whether a tree is of what is asked about."""
        return self.within is None or self.within == tree

    @functools.cached_property
    def unheld_free(self) -> Integers:
        """What could be taken of each inventory if nobody held anything."""
        found: Integers = frozen(self.shares.left(self.inventories.capacity))
        return found

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

    @functools.cached_property
    def stored_capacity(self) -> Integers:
        """The capacity of each inventory that its definition states, whatever is excluded here."""
        if not self.limited and not self.free_removed_units:
            return self.inventories.capacity
        capacity = self.inventories.capacity.copy()
        capacity[integers(list(self.limited))] += integers(list(self.limited.values()))
        for place, units in self.free_removed_units.items():
            for unit in units:
                number = self.number(place, self.removed_units[place][unit])
                if number is not None:
                    capacity[number] += 1
        return capacity

    @shared_property
    def by_class(self) -> Members:
        """The providers of inventories, by resource class."""
        sizes = integers([len(rows.tree) for rows in self.classes.values()])
        number = {name: code for code, name in enumerate(self.classes)}
        return Members(number, sizes, self.inventories.provider)

    def record(self, inventory: int) -> InventoryRecord:
        """Return the figures of an inventory as they are kept."""
        rows = self.inventories
        most = int(rows.max_unit[inventory])
        return InventoryRecord(
            self.class_of(inventory),
            int(rows.total[inventory]),
            int(rows.reserved[inventory]),
            int(rows.min_unit[inventory]),
            None if most == MAX_AMOUNT else most,
            int(rows.step_size[inventory]),
            int(rows.ratio[inventory]),
            int(rows.capacity[inventory]),
            int(rows.used[inventory]),
        )

    @functools.cached_property
    def places_of_holders(self) -> Overlay[str, tuple[int, ...]]:
        """The places of the providers of which each consumer holds some. Cost: linear, once."""
        found: dict[str, dict[int, None]] = {}
        for place, row in self.allocations.all():
            found.setdefault(row[1], {})[place] = None
        return Overlay({consumer: tuple(places) for consumer, places in found.items()})

    def left(self, inventory: int) -> int:
        """Return what is left of an inventory itself, whatever is left elsewhere."""
        rows = self.inventories
        return int(rows.capacity[inventory]) - int(rows.used[inventory])

    def rule_of(self, inventories: Iterable[int]) -> Rule:
        """Return which rule stands against who asks for more than is left of some inventories."""
        return Rule.CAPACITY if self.limited.keys().isdisjoint(inventories) else Rule.LIMIT

    def holders(self, inventories: list[int]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` of what is used of some inventories, the largest first."""
        pooled = tuple(inventories) if self._are_pooled(inventories) else ()
        if pooled in self._pool_holders:
            return self._pool_holders[pooled]
        found = self._found_holders(inventories)
        if pooled:  # a pool has many holders, and is named by many hosts
            self._pool_holders[pooled] = found
        return found

    def holders_of_each(
        self, inventories: Integers, starts: Integers
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        """Yield :meth:`holders` of each of some sets of inventories of one class.

        Nobody may use them through shares. Cost: a microsecond for each allocation there.

        :param inventories: the sets, by number, one after the other
        :param starts: where each begins
        """
        if len(inventories):
            providers = self.inventories.provider[inventories]
            name = self.class_of(int(inventories[0]))
            yield from self.allocations.holders_of_each(name, providers, starts)

    def there(self, inventories: Iterable[int]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, count)``: at how many providers it uses some of their inventories."""
        at: dict[str, set[int]] = {}
        for number in inventories:
            place = int(self.inventories.provider[number])
            for who, _ in self.holders([number]):
                at.setdefault(who, set()).add(place)
        found = {who: len(places) for who, places in at.items()}
        return tuple(sorted(found.items(), key=by_amount))

    def there_of_each(
        self, inventories: Integers, starts: Integers
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        """Yield :meth:`there` of each of some sets of inventories, which nobody may share.

        :param inventories: the sets, by number, one after the other
        :param starts: where each begins
        """
        places = self.inventories.provider[inventories]
        names = [self.class_of(number) for number in inventories.tolist()]
        rows = list(zip(places.tolist(), names, self.allocations.of_each(places), strict=True))
        for start, end in itertools.pairwise([*starts.tolist(), len(rows)]):
            at: dict[str, set[int]] = {}
            for place, name, some in rows[start:end]:
                for held, who, _ in some:
                    if held == name:
                        at.setdefault(who, set()).add(place)
            counts = ((who, len(where)) for who, where in at.items())
            yield tuple(sorted(counts, key=by_amount))

    def who_has(self, blocked: Blocked, resource_class: str) -> tuple[tuple[str, int], ...]:
        """Return who has what is in the way of units of a class, by the place of their provider."""

        def factor(place: int, name: str) -> int:
            number = self.number(place, resource_class)
            for source, count in () if number is None else self.shares.into(number):
                if self.inventories.provider[source] == place and self.class_of(source) == name:
                    return count
            return 1

        held = count_units_by_consumer(
            blocked, self.units.of(blocked), self.allocations.of(blocked), factor
        )
        return tuple(sorted(held.items(), key=by_amount))

    def _are_pooled(self, inventories: list[int]) -> bool:
        providers = self.inventories.provider[inventories]
        return bool(self.pools) and bool(self.is_pool[providers].all())

    def _found_holders(self, inventories: list[int]) -> tuple[tuple[str, int], ...]:
        provider = self.inventories.provider
        of: dict[tuple[int, str, int], None] = {}
        for number in inventories:
            for source, factor in [(number, 1), *self.shares.into(number)]:
                of[int(provider[source]), self.class_of(source), factor] = None
        return self.allocations.holders(of)

    @shared_property
    def listed(self) -> tuple[Integers, Integers]:
        """How many traits, and how many aggregates, each provider has itself."""
        tables = (self.traits, self.aggregates)
        counts = [np.bincount(table.places, minlength=len(self.names)) for table in tables]
        return frozen(counts[0]), frozen(counts[1])

    @functools.cached_property
    def _pool_holders(self) -> dict[tuple[int, ...], tuple[tuple[str, int], ...]]:
        return {}

    @shared_property
    def of_definitions(self) -> dict[Any, Any]:
        """Values that other modules computed from the definitions, by their own keys."""
        return {}

    @shared_property
    def _starts(self) -> tuple[list[int], list[str]]:
        return [rows.first for rows in self.classes.values()], list(self.classes)


_FIELDS = tuple(one.name for one in dataclasses.fields(Fleet))
_SHARED = tuple(name for name, one in vars(Fleet).items() if isinstance(one, shared_property))


def with_figures(old: Fleet, inventories: ClassRows, **changed: Any) -> Fleet:
    """Return a fleet of the same definitions with other figures, and what was worked out of these.

    :param changed: other fields
    """
    classes = old.classes
    if inventories is not old.inventories:
        classes = {name: rows.with_figures(inventories) for name, rows in classes.items()}
    new = object.__new__(Fleet)  # dataclasses.replace takes longer than all else of a claim
    kept, made = old.__dict__, new.__dict__
    made.update({name: kept[name] for name in _FIELDS})
    made.update({name: kept[name] for name in _SHARED if name in kept})
    made.update(changed, inventories=inventories, classes=classes)
    made.setdefault("view_cache", old.view_cache)
    return new


def with_capacity(old: Fleet, numbers: Integers, capacity: Integers, **changed: Any) -> Fleet:
    """Return a fleet with less capacity of some inventories.

    :param numbers: of the inventories, each once
    :param capacity: what they have then, parallel to these
    :param changed: other fields, which state why

    Cost: some passes over the inventories.
    """
    kept = old.inventories
    every = kept.capacity.copy()
    every[numbers] = capacity
    free = old.shares.left(every - kept.used)
    high = np.minimum(free, kept.max_unit) // kept.step_size * kept.step_size
    rows = dataclasses.replace(kept, capacity=frozen(every), free=frozen(free), high=frozen(high))
    return with_figures(old, rows, **changed)


def unheld(old: Fleet) -> Fleet:
    """Return a fleet as if nobody held anything: all it has is free, but what is out of service.

    Cost: some passes over the inventories.

    :param old: as it is kept, with all units
    """
    return with_used(
        old,
        np.zeros_like(old.inventories.used),
        view_cache=old.view_cache.without_usage(),
        allocations=old.allocations.none(),
        units=old.units.none(),
    )


def with_used(old: Fleet, used: Integers, **changed: Any) -> Fleet:
    """Return a fleet of whose inventories so much is used, whoever has it.

    Cost: some passes over the inventories.

    :param used: parallel to the inventories, with what others use of them; it is taken over
    :param changed: other fields
    """
    kept = old.inventories
    free = old.shares.left(kept.capacity - used)
    high = np.minimum(free, kept.max_unit) // kept.step_size * kept.step_size
    return with_figures(old, kept.with_use(used, free, high), **changed)


_NO_FIGURES: Integers = frozen(integers(()))
_NO_FLAGS: Booleans = frozen(np.zeros(0, dtype=np.bool_))
_NO_COLUMNS: dict[str, Any] = {
    one: _NO_FLAGS if one.startswith("is_") else _NO_FIGURES for one in CLASS_COLUMNS
}
NO_ROWS = ClassRows(**_NO_COLUMNS)


# --- members ------------------------------------------------------------------------------------


#: Places are fewer than 2 to the power of this.
PLACE_BITS = 40


class Members(Mapping[str, Integers]):
    """The providers that have something, by its name; in the order of names, and of providers."""

    __slots__ = ("_ends", "_keys", "number", "places", "sizes")

    def __init__(self, number: Mapping[str, int], sizes: Integers, places: Integers) -> None:
        """:param number: of each name, in order

        :param sizes: how many have each, none of them nobody
        :param places: who they are, one name after the other
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

        Each comes with the entries of :attr:`places` of these. Cost: two binary searches for each
        name, vectorised; the first time a pass over the places.
        """
        codes = np.arange(len(self.number)) << PLACE_BITS
        if self._keys is None:  # two threads may both do it: the outcome is the same
            self._keys = np.repeat(codes, self.sizes) + self.places
        starts, stops = self._keys.searchsorted(codes + first), self._keys.searchsorted(codes + end)
        names = None
        for code in np.flatnonzero(stops > starts).tolist():
            names = names or list(self.number)
            yield names[code], slice(int(starts[code]), int(stops[code]))


# --- shares -------------------------------------------------------------------------------------
# What is taken in one place and used in another too, as arrays.
#
# Inventories are known by their numbers in :class:`~resource_objects.search.fleet.Fleet`. Shares do
# not chain, so one pass tells what is left.


#: (inventory, factor): each unit taken uses ``factor`` of that one.
Link: TypeAlias = tuple[int, int]
#: Numbers of inventories by the places of their providers and their classes; -1 for none.
Find: TypeAlias = Callable[[Integers, "tuple[str, ...]"], Integers]


class FleetShares:
    """Parallel arrays, one entry per share, in the order of the sources. False if none."""

    __slots__ = ("_by_target", "_targets", "factor", "source", "target")

    def __init__(self, source: Integers, target: Integers, factor: Integers) -> None:
        order = np.lexsort((target, source))
        #: inventory whose units use others
        self.source: Integers = frozen(source[order])
        #: inventory of which they are used
        self.target: Integers = frozen(target[order])
        self.factor: Integers = frozen(factor[order])
        self._targets: Integers | None = None
        self._by_target: tuple[Integers, Integers] | None = None

    def __bool__(self) -> bool:
        return bool(len(self.source))

    @property
    def targets(self) -> Integers:
        """The inventories of which others are used, in order, each once."""
        if self._targets is None:  # two threads may both look: the outcome is the same
            self._targets = frozen(np.unique(self.target))
        return self._targets

    def entries(self, first: int, end: int) -> slice:
        """Return which entries are of the sources from ``first`` to before ``end``."""
        start, stop = self.source.searchsorted((first, end)).tolist()
        return slice(start, stop)

    def between(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Return ``(source, target, factor)`` of the sources from ``first`` to before ``end``."""
        here = self.entries(first, end)
        columns = (self.source[here], self.target[here], self.factor[here])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def of(self, inventory: int) -> list[Link]:
        """Return which inventories are used by the units of one."""
        here = self.entries(inventory, inventory + 1)
        return list(zip(self.target[here].tolist(), self.factor[here].tolist(), strict=True))

    def into(self, inventory: int) -> list[Link]:
        """Return whose units use an inventory. Cost: the first time a sort, then two searches."""
        if self._by_target is None:  # two threads may both sort: the outcome is the same
            order = np.argsort(self.target, kind="stable")
            self._by_target = order, self.target[order]
        order, target = self._by_target
        start, stop = target.searchsorted((inventory, inventory + 1)).tolist()
        rows = order[start:stop]
        return list(zip(self.source[rows].tolist(), self.factor[rows].tolist(), strict=True))

    def left(self, free: Integers) -> Integers:
        """Return what can be taken of each inventory, when ``free`` is what each has itself."""
        if not self:
            return free
        found = free.copy()
        np.minimum.at(found, self.source, free[self.target] // self.factor)
        return found

    def left_of(self, numbers: Integers, capacity: Integers, used: Integers) -> Integers:
        """Return what can be taken of some inventories, as :meth:`left` does of all."""
        found = capacity[numbers] - used[numbers]
        if self:
            for place, number in enumerate(numbers.tolist()):
                for target, factor in self.of(number):
                    most = int(capacity[target] - used[target]) // factor
                    found[place] = min(int(found[place]), most)
        return found


def read_shares(given: ShareColumns, place: PlaceIndex, find: Find) -> FleetShares:
    """Return the shares that columns tell.

    :raises InvalidInput: if one is not between inventories of the columns
    """
    source = find(place.of(given.provider_id), tuple(given.resource_class))
    target = find(place.of(given.of_id), tuple(given.of_class))
    if bool((source < 0).any()) or bool((target < 0).any()):
        raise exceptions.InvalidInput("row", "ShareColumns", "a share", "one between inventories")
    return FleetShares(source, target, integers(given.factor))


# --- pools --------------------------------------------------------------------------------------
# Pools: providers whose classes other trees may take.
#
# A provider with the trait ``MISC_SHARES_VIA_AGGREGATE`` is a pool for every tree that has a
# provider in one of the pool's aggregates. Only aggregates of pools are kept here, and as pairs,
# so that many hosts and few pools cost one entry per host.


#: The trait of a pool.
SHARING: str = os_traits.MISC_SHARES_VIA_AGGREGATE


class FleetPools:
    """Which pools there are, and which trees are linked to them. False if there are none."""

    __slots__ = ("_aggregates", "_linked", "_members", "every", "providers", "trees")

    def __init__(
        self,
        providers: Integers,
        trees: Iterable[int],
        aggregates: int,
        members: tuple[Integers, Integers],
        linked: tuple[Integers, Integers],
    ) -> None:
        #: the pools, in order
        self.providers = providers
        #: trees whose root is a pool
        self.trees = frozenset(trees)
        #: the pools, as a set
        self.every = frozenset(providers.tolist())
        self._aggregates = aggregates
        self._members = members  # aggregates and their pools, sorted
        self._linked = linked  # trees and their aggregates, sorted

    def __bool__(self) -> bool:
        return bool(len(self.providers))

    def of_tree(self, tree: int) -> list[int]:
        """Return the pools that a tree is linked to, in order; its own may be among them."""
        trees, aggregates = self._linked
        start, end = trees.searchsorted((tree, tree + 1)).tolist()
        of, pools = self._members
        found: set[int] = set()
        for aggregate in aggregates[start:end].tolist():
            first, last = of.searchsorted((aggregate, aggregate + 1)).tolist()
            found.update(pools[first:last].tolist())
        return sorted(found)

    def linked_to(self, pools: Integers, trees: int) -> Booleans:
        """Return which trees are linked to some of these pools. Cost: linear in the links."""
        aggregates, members = self._members
        useful = np.zeros(self._aggregates, dtype=np.bool_)
        useful[aggregates[np.isin(members, pools)]] = True
        found = np.zeros(trees, dtype=np.bool_)
        found[self._linked[0][useful[self._linked[1]]]] = True
        return found

    def giving_to(self, trees: Booleans) -> Integers:
        """Return the pools that some of these trees are linked to. Cost: linear in the links."""
        aggregates, members = self._members
        useful = np.zeros(self._aggregates, dtype=np.bool_)
        useful[self._linked[1][trees[self._linked[0]]]] = True
        found: Integers = np.unique(members[useful[aggregates]])
        return found


def read_pools(
    given: AggregateColumns, place: PlaceIndex, pools: Integers, tree: Integers, is_root: Booleans
) -> FleetPools:
    """Return the pools of columns.

    :param pools: the providers that have the trait themselves
    :param tree: of each provider
    """
    codes, aggregate = coded(given.aggregate)
    return _made(len(codes), aggregate, place.of(given.provider_id), pools, tree, is_root)


def pools_of_members(
    members: Members, pools: Integers, tree: Integers, is_root: Booleans
) -> FleetPools:
    """Return the pools of aggregates. Cost: linear in their members if there are pools."""
    if not len(pools):
        return NO_POOLS
    aggregate = np.repeat(np.arange(len(members)), members.sizes)
    return _made(len(members), aggregate, members.places, pools, tree, is_root)


def _made(
    aggregates: int,
    aggregate: Integers,
    provider: Integers,
    pools: Integers,
    tree: Integers,
    is_root: Booleans,
) -> FleetPools:
    pools = np.sort(pools)
    of_pool = np.isin(provider, pools)
    shared = np.zeros(aggregates, dtype=np.bool_)
    shared[aggregate[of_pool]] = True
    linked = shared[aggregate]
    return FleetPools(
        frozen(pools),
        tree[pools[is_root[pools]]].tolist(),
        aggregates,
        _pairs(aggregate[of_pool], provider[of_pool]),
        _pairs(tree[provider[linked]], aggregate[linked]),
    )


def _pairs(first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """Return pairs in order, each once."""
    size = int(second.max()) + 1 if len(second) else 1
    found = np.unique(first * size + second)
    return frozen(found // size), frozen(found % size)


_NOTHING = frozen(integers(()))
NO_POOLS = FleetPools(_NOTHING, (), 0, (_NOTHING, _NOTHING), (_NOTHING, _NOTHING))
