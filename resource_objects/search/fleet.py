"""The arrays of a snapshot: providers, inventories, their relations and allocations.

Providers have one order: by the name of the root of their tree, then by depth, then by name. The
*place* of a provider is its index in this order, and the *tree* of a provider is the number of its
root in the order of names. So the providers of a tree are contiguous. Inventories are numbered by
resource class, then by provider, so the inventories of one class in one tree are contiguous, too.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from resource_objects import clock, exceptions
from resource_objects.fields import MAX_AMOUNT, FrozenDict, Shared
from resource_objects.providers.disabled import TRAIT, Disabled
from resource_objects.providers.holders import Blocked, count_units_by_consumer
from resource_objects.providers.orders import Change, UseLimits
from resource_objects.reasons import Rule
from resource_objects.resources import resource
from resource_objects.resources.placed import has_named_units
from resource_objects.resources.records import InventoryRecord
from resource_objects.search.arrays import (
    Booleans,
    Figures,
    Integers,
    Keys,
    Overlay,
    TreeSums,
    ViewCache,
    frozen,
    integers,
    pickled,
    shared_property,
    sums_by,
    writable,
)
from resource_objects.search.relations import (
    NO_PARTS,
    Allocations,
    Members,
    Parts,
    Pools,
    Shares,
    Units,
    by_consumer,
)


class ClassRows(NamedTuple):
    """Inventories of a fleet, mostly those of one class: parallel arrays, one entry each.

    ``free`` is the capacity minus the usage, or less if a target of a share has less. It may be
    negative. It includes parts of other inventories and disabled providers: :meth:`Fleet.free` does
    not. ``low`` and ``high`` are the least and the largest amount of one allocation: multiples of
    the step within the unit rules and the free amount. Nothing fits if ``high < low``.
    """

    provider: Integers
    tree: Integers
    capacity: Integers
    used: Integers
    free: Integers
    min_unit: Integers
    max_unit: Integers  # fields.MAX_AMOUNT if there is no bound
    step_size: Integers
    low: Integers
    high: Integers
    is_below: Booleans  #: of a provider below the root
    is_single: Booleans  #: of a provider below the root that has one unit, or devices
    is_part: Booleans  #: part of another inventory of its tree, for placed amounts only
    total: Integers
    reserved: Integers
    ratio: Integers  #: allocation ratio, in millionths
    first: int = 0  #: number of the first inventory

    def of_tree(self, tree: int) -> slice:
        """Return the entries of a tree. Cost: two binary searches."""
        start, end = self.tree.searchsorted((tree, tree + 1))
        return slice(int(start), int(end))

    def part(self, entries: slice) -> ClassRows:
        """Return contiguous entries without copying them."""
        columns: list[Any] = [column[entries] for column in self[:-1]]
        return ClassRows._make([*columns, self.first + int(entries.start)])

    def provides(self, amount: int, free: Integers | None = None) -> Booleans:
        """Return True for the inventories that can provide an amount in one allocation.

        :param free: the free amount of each inventory in place of the present one
        """
        most = self.high if free is None else np.minimum(free, self.max_unit)
        fits: Booleans = (self.low <= amount) & (amount <= most)
        if self.step_size.max(initial=1) > 1:  # the division takes longer than the rest
            fits &= amount % self.step_size == 0
        return fits


def largest_allocation(free: Integers, max_unit: Integers, step_size: Integers) -> Integers:
    """Return the largest amount of one allocation; :attr:`ClassRows.min_unit` may exceed it."""
    largest: Integers = np.minimum(free, max_unit) // step_size * step_size
    return largest


#: The names of the arrays of :class:`ClassRows`.
CLASS_COLUMNS = ClassRows._fields[:-1]
_EMPTY: dict[str, Any] = {
    name: frozen(np.zeros(0, dtype=np.bool_ if name.startswith("is_") else np.int64))
    for name in CLASS_COLUMNS
}
NO_ROWS = ClassRows(**_EMPTY)


@dataclasses.dataclass(frozen=True, slots=True)
class DisabledPlace:
    """The reason why a provider is disabled, and when that ends by ``clock.monotonic()``.

    ``ends`` is None if it does not end by itself. It is computed from the clock of the ledger at
    the time of reading.
    """

    facts: Disabled
    ends: float | None = None


#: The number of an inventory, the place of its provider, and a change of its usage.
InventoryChange: TypeAlias = tuple[int, int, Change]


def _unpickled(data: bytes) -> Fleet:
    return Fleet(**pickle.loads(data))


@dataclasses.dataclass(frozen=True, eq=False)
class Fleet(Shared):
    """Providers, inventories, traits and their relations, as arrays that cannot be written.

    ==============  ===============================================================================
    other fleets    :meth:`with_use`, :meth:`with_limits`, :meth:`with_figures`, :attr:`released`,
                    :meth:`as_of_now`, :func:`.with_trees`
    providers       :meth:`of_tree`, :meth:`upwards`, :meth:`below`, :meth:`having`,
                    :attr:`place_by_key`, :attr:`roots`, :meth:`disabled_mask`
    inventories     :meth:`rows`, :attr:`classes`, :meth:`number`, :meth:`class_of`,
                    :meth:`record`, :meth:`left`
    free amounts    :meth:`free`, :meth:`counted`, :meth:`totals`, :meth:`fullness`
    consumers       :meth:`holders`, :meth:`provider_counts`, :meth:`unit_consumers`,
                    :attr:`places_of_holders`
    placed          :meth:`parts_of`, :meth:`device_resource`, :func:`.view_of`
    ==============  ===============================================================================
    """

    names: tuple[str, ...]  #: of providers
    uuids: tuple[str, ...]  #: of providers
    generation: Integers  #: of providers
    parent: Integers  #: of providers; of a root the root itself
    tree: Integers  #: of providers
    height: int  #: number of providers on the longest path from a root down
    hosts: tuple[str, ...]  #: of trees: the names of their roots
    inventories: ClassRows  #: of all classes
    by_class: Members  #: the providers of inventories by class; its entries are their numbers
    traits: Members
    aggregates: Members
    shares: Shares
    pools: Pools
    allocations: Allocations
    units: Units
    stored_parts: Mapping[str, Parts]  #: of structured resources, by name
    keys: Keys  #: of providers
    within: int | None = None  #: the only tree that may be searched; None for all
    above: tuple[int, ...] = ()  #: providers above the root of that tree, which is a part of theirs
    #: the providers that are disabled themselves; they also have the trait of disabled ones
    disabled: Mapping[int, DisabledPlace] = FrozenDict()
    #: the capacity that definitions state, if limits or removed units lower it in this fleet
    stored_capacity: Integers | None = None
    #: by how much limits lower the capacity of inventories in this fleet
    limited: Mapping[int, int] = FrozenDict()
    #: classes of the units that were removed while they were allocated, by place and unit. They
    #: count as capacity, except in the fleet that :meth:`as_of_now` returns
    removed_units: Mapping[int, Mapping[str, str]] = FrozenDict()
    #: those of them that are free, by place, in a fleet whose capacity excludes them
    free_removed_units: Mapping[int, frozenset[str]] = FrozenDict()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields without the values that were computed from them."""
        return _unpickled, (pickled({name: getattr(self, name) for name in _FIELDS}),)

    @functools.cached_property
    def view_cache(self) -> ViewCache:
        """The views that fleets with the same usage of a tree share."""
        return ViewCache()

    @functools.cached_property
    def views(self) -> dict[tuple[str, int], Any]:
        """The views by resource and tree that :func:`.view_of` returned."""
        return {}

    @functools.cached_property
    def sums(self) -> TreeSums:
        """The sums by tree that were computed."""
        return TreeSums()

    @shared_property
    def of_definitions(self) -> dict[Any, Any]:
        """Values that other modules computed from the definitions, by their own keys."""
        return {}

    @functools.cached_property
    def has_pools(self) -> bool:
        """Whether a provider is a pool."""
        return bool(len(self.pools.providers))

    @functools.cached_property
    def has_shares(self) -> bool:
        """Whether an inventory uses another one."""
        return bool(len(self.shares.source))

    # --- other fleets of the same definitions ---

    def evolved(self, **changed: Any) -> Fleet:
        """Return a fleet with other values of some fields, which are no definitions.

        It shares the cached values that depend on definitions, and the views, if no other
        ``view_cache`` is passed.
        """
        fleet = object.__new__(Fleet)  # dataclasses.replace takes longer than the rest of a claim
        old, new = self.__dict__, fleet.__dict__
        new.update({name: old[name] for name in _FIELDS})
        new.update({name: old[name] for name in _SHARED if name in old})
        new["view_cache"] = self.view_cache
        new.update(changed)
        return fleet

    def figures(
        self, capacity: Integers, used: Integers, numbers: Integers | None = None
    ) -> tuple[Integers, Integers]:
        """Return ``free`` and ``high`` of inventories with another capacity or usage.

        :param numbers: of these inventories only
        """
        rows, entries = self.inventories, slice(None) if numbers is None else numbers
        free = self.shares.free(capacity, used, numbers)
        return free, largest_allocation(free, rows.max_unit[entries], rows.step_size[entries])

    def with_use(self, changes: Sequence[InventoryChange], *, in_place: bool = False) -> Fleet:
        """Return a fleet after changes of usage, also of the targets of shares.

        The rest belongs to both fleets. Cost: three copies of a column of all inventories.

        :param in_place: write into the columns of this fleet, which must not be used after this
        """
        rows, shares = self.inventories, self.shares
        used, free, high = columns = [
            writable(column) if in_place else column.copy()
            for column in (rows.used, rows.free, rows.high)
        ]
        affected: set[int] = set()
        by_place: dict[int, list[Change]] = {}
        for number, place, change in changes:
            net = change.after - change.before
            for target, factor in ((number, 1), *(shares.of(number) if self.has_shares else ())):
                used[target] += net * factor
                affected.add(target)
            by_place.setdefault(place, []).append(change)
        if self.has_shares:
            affected.update([source for number in affected for source, _ in shares.into(number)])
        numbers = integers(sorted(affected))
        free[numbers], high[numbers] = self.figures(rows.capacity, used, numbers)
        for column in columns:
            frozen(column)
        trees = set(rows.tree[numbers].tolist())
        of_units = {
            place: changes_there
            for place, changes_there in by_place.items()
            if any(change.allocated_units or change.released_units for change in changes_there)
        }
        fleet = self.evolved(
            inventories=rows if in_place else rows._replace(used=used, free=free, high=high),
            allocations=self.allocations.after(by_place),
            units=self.units.after(of_units) if of_units else self.units,
            view_cache=self.view_cache.after(self.view_keys(trees)),
            sums=self.sums.after(trees),
        )
        if "places_of_holders" in self.__dict__:
            fleet.__dict__["places_of_holders"] = self._places_of_holders_after(by_place, fleet)
        return fleet

    def with_limits(self, limits: UseLimits) -> Fleet:
        """Return a fleet with upper bounds of the usage of inventories.

        Limits lower the capacity, so whatever decides by figures, over arrays or on one tree,
        respects them. Views count the difference as used. A refusal names the limit, not the
        capacity (:meth:`rule_of`). A limit of an inventory that does not exist has no effect.

        Cost: some passes over the inventories, and half a microsecond for each limit; nothing
        without limits.
        """
        of_places = [
            (name, place, bound)
            for (uuid, name), bound in limits.items()
            if (place := self.place_by_key.get(uuid)) is not None
        ]
        if not of_places:
            return self
        names, places, bounds = zip(*of_places, strict=True)
        numbers = self.by_class.find(names, integers(places))
        capacity = self.inventories.capacity.copy()
        exists = numbers >= 0
        numbers, lowered = numbers[exists], capacity[numbers[exists]] - integers(bounds)[exists]
        numbers, lowered = numbers[lowered > 0], lowered[lowered > 0]
        if not len(numbers):
            return self
        capacity[numbers] -= lowered
        limited = dict(zip(numbers.tolist(), lowered.tolist(), strict=True))
        return self.with_figures(capacity=capacity, limited=limited)

    def with_figures(
        self, *, capacity: Integers | None = None, used: Integers | None = None, **changed: Any
    ) -> Fleet:
        """Return a fleet with another capacity or usage of all inventories.

        Arrays that are passed become read-only. Pass ``limited`` or ``free_removed_units`` if they
        explain a capacity below that of the definitions; the cached views are valid then, and are
        dropped otherwise. Cost: some passes over the inventories.
        """
        rows, stored = self.inventories, self.stored_capacity
        if used is not None:
            changed.setdefault("view_cache", self.view_cache.without_usage())
        if capacity is not None:
            if not changed.keys().isdisjoint(("limited", "free_removed_units")):
                changed["stored_capacity"] = rows.capacity if stored is None else stored
            else:
                changed["view_cache"] = ViewCache()
                if stored is not None:
                    changed["stored_capacity"] = frozen(capacity + stored - rows.capacity)
        capacity = rows.capacity if capacity is None else frozen(capacity)
        used = rows.used if used is None else frozen(used)
        free, high = map(frozen, self.figures(capacity, used))
        rows = rows._replace(capacity=capacity, used=used, free=free, high=high)
        return self.evolved(inventories=rows, **changed)

    @functools.cached_property
    def released(self) -> Fleet:
        """The fleet without allocations. Cost: some passes over the inventories."""
        return self.with_figures(
            used=np.zeros_like(self.inventories.used),
            allocations=self.allocations.none(),
            units=self.units.none(),
        )

    def as_of_now(self) -> Fleet:
        """Return the fleet as it may be allocated now; mostly this one.

        Providers are enabled if the time until which they were disabled has passed. Free units that
        were removed from their host are excluded from the capacity. Cost: nothing if nothing is
        disabled; with such units, some passes over the inventories, once.
        """
        fleet = self.enabled_as_of_now()
        return fleet._without_free_removed_units if fleet.removed_units else fleet

    @functools.cached_property
    def _without_free_removed_units(self) -> Fleet:
        free: dict[int, frozenset[str]] = {}
        capacity = self.inventories.capacity.copy()
        for place, classes in self.removed_units.items():
            units = classes.keys() - {row[0] for row in self.units.of_provider(place)}
            if units:
                free[place] = frozenset(units)
            for unit in units:
                number = self.number(place, classes[unit])
                if number is not None:
                    capacity[number] -= 1
        return self.with_figures(capacity=capacity, free_removed_units=free)

    def enabled_as_of_now(self) -> Fleet:
        """Return :meth:`as_of_now`, but with the free units that were removed."""
        now = clock.monotonic() if self.disabled else 0.0
        disabled = {
            place: reason
            for place, reason in self.disabled.items()
            if reason.ends is None or reason.ends > now
        }
        if len(disabled) == len(self.disabled):
            return self
        pairs = [(name, places) for name, places in self.traits.items() if name != TRAIT]
        names = [*(name for name, places in pairs for _ in places), *[TRAIT] * len(disabled)]
        places = np.concatenate([*(places for _, places in pairs), integers(list(disabled))])
        # values that were computed from traits are not shared
        traits = Members.of(names, places)
        return self.evolved(traits=traits, disabled=disabled, of_definitions={})

    # --- providers ---

    @shared_property
    def place_by_key(self) -> Mapping[str, int]:
        """The place of each provider by name and by uuid. Cost: 1 ms for 10,000, once."""
        uuids = {uuid: place for place, uuid in enumerate(self.uuids)}
        return uuids | {name: place for place, name in enumerate(self.names)}

    def uuids_of(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the uuids of providers by the name or uuid that the caller passes.

        :raises NotFound: if there is no such provider
        """
        uuids: dict[str, str] = {}
        for key in keys:
            place = self.place_by_key.get(key)
            if place is None:
                raise exceptions.NotFound("provider", key)
            uuids[key] = self.uuids[place]
        return uuids

    def having(self, table: Mapping[str, Integers], names: Iterable[str]) -> Booleans:
        """Return the providers that have one of some traits, or are in one of some aggregates."""
        has_name = np.zeros(len(self.names), dtype=np.bool_)
        for name in names:
            if name in table:
                has_name[table[name]] = True
        return has_name

    def below(self, providers: Booleans) -> Booleans:
        """Return providers and their descendants, also those below a cut."""
        is_below = providers.copy()
        if self.above and providers[list(self.above)].any():
            is_below[self.tree == self.within] = True
        for _ in range(1, self.height):
            is_below |= is_below[self.parent]
        return is_below

    def upwards(self, provider: int) -> Iterator[int]:
        """Yield a provider and its ancestors."""
        yield provider
        while (above := int(self.parent[provider])) != provider:
            provider = above
            yield provider
        if self.within == self.tree[provider]:
            yield from self.above

    def disabled_mask(self) -> Booleans | None:
        """Return the providers that are disabled, or below a disabled one; None for none.

        Cost: nothing if no provider is disabled; else a pass over the providers for each level.
        """
        if not self.disabled:
            return None
        is_disabled = np.zeros(len(self.names), dtype=np.bool_)
        is_disabled[list(self.disabled)] = True
        return self.below(is_disabled)

    @shared_property
    def is_pool(self) -> Booleans:
        """True for pools, by provider."""
        is_pool = np.zeros(len(self.names), dtype=np.bool_)
        is_pool[self.pools.providers] = True
        return is_pool

    # --- trees ---

    def of_tree(self, tree: int) -> range:
        """Return the providers of a tree, the root first. Cost: two binary searches."""
        first, end = self.tree.searchsorted((tree, tree + 1)).tolist()
        return range(first, end)

    @shared_property
    def roots(self) -> Integers:
        """The root of each tree."""
        roots: Integers = frozen(np.flatnonzero(self.parent == np.arange(len(self.parent))))
        return roots

    @shared_property
    def tops(self) -> Integers:
        """The root of each tree; of a tree that was cut out, the root above the cut."""
        if not self.above:
            return self.roots
        tops: Integers = self.roots.copy()
        tops[self.within] = self.above[-1]
        return tops

    def whole_tree(self, provider: int) -> int:
        """Return the tree of a provider; above a cut, the tree that was cut out."""
        tree = int(self.tree[provider])
        if self.above and self.within is not None and tree == int(self.tree[self.above[0]]):
            return self.within
        return tree

    def tree_of_host(self, name: str) -> int | None:
        """Return the tree of a host by its name, None if there is none. Cost: a binary search."""
        tree = bisect.bisect_left(self.hosts, name)
        return tree if self.hosts[tree : tree + 1] == (name,) else None

    def is_within(self, tree: int) -> bool:
        """Return True if a tree may be searched."""
        return self.within is None or self.within == tree

    # --- placed resources ---

    @shared_property
    def parts(self) -> Mapping[str, Parts]:
        """The parts of placed resources, by name in order."""
        parts = self.stored_parts.items()
        return {name: of_resource for name, of_resource in parts if resource(name).is_placed}

    @shared_property
    def device_parts(self) -> Mapping[str, Parts]:
        """The parts of resources whose units are devices, by name."""
        return {name: parts for name, parts in self.parts.items() if has_named_units(name)}

    def parts_of(self, name: str) -> Parts:
        """Return the parts of a placed resource, which may be none."""
        return self.parts.get(name, NO_PARTS)

    def device_resource(self, provider: int, resource_class: str) -> str | None:
        """Return the resource whose devices a provider has under a class, None if it has none."""
        for name, parts in self.device_parts.items():
            if resource_class in parts.classes_at(provider):
                return name
        return None

    def view_keys(self, trees: Iterable[int]) -> list[int]:
        """Return the keys of some trees in the view cache, none without placed resources."""
        if not self.parts:
            return []
        trees = [*trees]
        if self.above and self.within is not None:  # one view covers both parts of a tree
            trees.append(self.within)
        keys: list[int] = self.keys.at[self.roots[trees]].tolist()
        return keys

    # --- inventories ---

    def rows(self, resource_class: str) -> ClassRows:
        """Return the inventories of a class, which may be none."""
        return self.classes.get(resource_class, NO_ROWS)

    @functools.cached_property
    def classes(self) -> Mapping[str, ClassRows]:
        """The inventories of each class, by name."""
        part, span = self.inventories.part, self.by_class.span
        return {name: part(span(name)) for name in self.by_class}

    @shared_property
    def repeated_classes(self) -> frozenset[str]:
        """The classes of which a tree has several inventories."""
        code, tree = self.by_class.codes, self.inventories.tree
        is_repeated = (code[1:] == code[:-1]) & (tree[1:] == tree[:-1])
        return frozenset(self.by_class.names_of(np.flatnonzero(is_repeated)))

    def is_everywhere(self, resource_class: str) -> bool:
        """Return True if each tree has exactly one inventory of a class."""
        count = len(self.rows(resource_class).tree)
        return count == len(self.hosts) and resource_class not in self.repeated_classes

    def class_of(self, inventory: int) -> str:
        """Return the class of an inventory, by its number."""
        return self.by_class.name_of(inventory)

    def number(self, provider: int, resource_class: str) -> int | None:
        """Return the number of the inventory of a provider and class, None if there is none."""
        return self.by_class.entry(resource_class, provider)

    def record(self, inventory: int) -> InventoryRecord:
        """Return the stored figures of an inventory."""
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

    def left(self, inventory: int) -> int:
        """Return the capacity minus the usage of an inventory, without regard to shares."""
        rows = self.inventories
        return int(rows.capacity[inventory]) - int(rows.used[inventory])

    def rule_of(self, inventories: Iterable[int]) -> Rule:
        """Return the rule of a refusal because too little of some inventories is free."""
        return Rule.CAPACITY if self.limited.keys().isdisjoint(inventories) else Rule.LIMIT

    # --- free amounts ---

    def counted(self, rows: ClassRows) -> Booleans:
        """Return True for the inventories of a class that are no part of another in their tree.

        A cell's CPUs, for example, are a part of the host's.
        """
        end = rows.first + len(rows.tree)
        here = self.shares.entries(rows.first, end)
        source, target = self.shares.source[here], self.shares.target[here]
        tree = self.inventories.tree
        is_part = (rows.first <= target) & (target < end) & (tree[source] == tree[target])
        counts = ~rows.is_part
        counts[source[is_part] - rows.first] = False
        return counts

    def free(self, rows: ClassRows) -> Integers:
        """Return the amount that can be allocated of each inventory of a class.

        This is the one definition of what is free: :meth:`totals`, :meth:`.Snapshot.free`, the
        capacity report, the usage of hosts and the fragmentation weigher sum it. It is 0 for a part
        of another inventory of its tree, for a disabled provider, and for an inventory over its
        capacity, whose excess does not reduce the sum.
        """
        free: Integers = np.where(self.counted(rows), self.free_of_each(rows), 0)
        return free

    def free_of_each(self, rows: ClassRows) -> Integers:
        """Return :meth:`free` of each inventory individually, also of a part of another."""
        free, disabled = rows.free.clip(0), self.disabled_mask()
        if disabled is not None:
            free[disabled[rows.provider]] = 0
        return free

    def totals(self, resource_class: str) -> tuple[Integers, Integers, Integers]:
        """Return by tree the capacity of a class, the used and the free amount.

        What cannot be allocated because of shares counts as used. Cost: a pass over the class the
        first time; a fleet with other usage of few trees computes only these again.
        """

        def compute(trees: Sequence[int] | None) -> Sequence[Integers]:
            rows = self.rows(resource_class)
            if trees is None:
                count = len(self.hosts)
                return [sums_by(column, rows.tree, count) for column in self._amounts(rows)]
            parts = (rows.part(rows.of_tree(tree)) for tree in trees)
            sums = [[column.sum() for column in self._amounts(part)] for part in parts]
            return list(np.array(sums, dtype=np.int64).T)

        capacity, used, free = self.sums.get(resource_class, compute)
        return capacity, used, free

    def _amounts(self, rows: ClassRows) -> tuple[Integers, Integers, Integers]:
        counts = ~rows.is_part
        return rows.capacity * counts, (rows.capacity - rows.free) * counts, self.free(rows)

    def fullness(self, weights: Mapping[str, float], requested: Mapping[str, int]) -> Figures:
        """Return the used part of each tree with an amount, the mean over classes by weight.

        Cost: some passes over the trees the first time, then as of :meth:`totals`.
        """

        def compute(trees: Sequence[int] | None) -> list[Figures]:
            entries = slice(None) if trees is None else trees
            full: Figures = np.zeros(len(self.hosts))[entries]
            for name, weight in weights.items():
                capacity, used, _ = (total[entries] for total in self.totals(name))
                used = used + requested.get(name, 0)
                part = np.divide(used, capacity, out=np.zeros(len(used)), where=capacity > 0)
                full += weight * part
            full /= sum(weights.values()) or 1.0
            return [full]

        key = tuple(weights.items()), tuple(requested.items())
        full: Figures = self.sums.get(key, compute)[0]
        return full

    # --- consumers ---

    @functools.cached_property
    def places_of_holders(self) -> Overlay[str, tuple[int, ...]]:
        """The places of the providers of which each consumer uses some. Cost: linear, once."""
        places_of: dict[str, dict[int, None]] = {}
        for place, row in self.allocations.all():
            places_of.setdefault(row[1], {})[place] = None
        return Overlay({consumer: tuple(places) for consumer, places in places_of.items()})

    def _places_of_holders_after(
        self, changes: Mapping[int, Sequence[Change]], fleet: Fleet
    ) -> Overlay[str, tuple[int, ...]]:
        """Return :attr:`places_of_holders` of a fleet after changes at some places."""
        places_of: dict[str, tuple[int, ...] | None] = {}
        for place, changes_there in changes.items():
            consumers = {row[1] for row in fleet.allocations.of_provider(place)}
            for consumer in {change.consumer for change in changes_there}:
                before = places_of.get(consumer, self.places_of_holders.get(consumer)) or ()
                after = tuple([other for other in before if other != place])
                if consumer in consumers:
                    after = (*after, place)
                places_of[consumer] = after or None
        return self.places_of_holders.with_(places_of)

    def holders(self, inventories: list[int]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` for the usage of some inventories, the largest first."""
        provider = self.inventories.provider
        is_of_pools = self.has_pools and bool(self.is_pool[provider[inventories]].all())
        key = tuple(inventories) if is_of_pools else ()
        consumers = self._pool_holders.get(key)
        if consumers is None:
            sources: dict[tuple[int, str, int], None] = {}
            for number in inventories:
                for source, factor in [(number, 1), *self.shares.into(number)]:
                    sources[int(provider[source]), self.class_of(source), factor] = None
            consumers = self.allocations.holders(sources)
            if key:  # a pool has many consumers, and is in the reasons of many hosts
                self._pool_holders[key] = consumers
        return consumers

    @functools.cached_property
    def _pool_holders(self) -> dict[tuple[int, ...], tuple[tuple[str, int], ...]]:
        return {}

    def provider_counts(self, inventories: Iterable[int]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, count)``: at how many providers it uses some of the inventories."""
        return _counted(
            (consumer, int(self.inventories.provider[number]))
            for number in inventories
            for consumer, _ in self.holders([number])
        )

    def holders_of_each(
        self, inventories: Integers, starts: Integers, *, by_provider: bool = False
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        """Yield :meth:`holders` of each of some sets of inventories.

        They must not be targets of shares. Cost: a microsecond for each allocation there.

        :param inventories: the sets, by number, one after the other
        :param starts: the first entry of each set
        :param by_provider: yield :meth:`provider_counts`
        """
        places = self.inventories.provider[inventories]
        names = self.by_class.names_of(inventories)
        rows = list(zip(places.tolist(), names, self.allocations.of_each(places), strict=True))
        for start, end in itertools.pairwise([*starts.tolist(), len(rows)]):
            uses = [
                (consumer, place, amount)
                for place, name, allocations in rows[start:end]
                for resource_class, consumer, amount in allocations
                if resource_class == name
            ]
            if by_provider:
                yield _counted((consumer, place) for consumer, place, _ in uses)
                continue
            amounts: dict[str, int] = {}
            for consumer, _, amount in uses:
                amounts[consumer] = amounts.get(consumer, 0) + amount
            yield by_consumer(amounts)

    def unit_consumers(self, blocked: Blocked, resource_class: str) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, count)`` for the units that block units of a class, by place."""

        def factor(place: int, name: str) -> int:
            number = self.number(place, resource_class)
            for source, count in () if number is None else self.shares.into(number):
                if self.inventories.provider[source] == place and self.class_of(source) == name:
                    return count
            return 1

        counts = count_units_by_consumer(
            blocked, self.units.of(blocked), self.allocations.of(blocked), factor
        )
        return by_consumer(counts)


_FIELDS = tuple(field.name for field in dataclasses.fields(Fleet))
_SHARED = tuple(name for name, value in vars(Fleet).items() if isinstance(value, shared_property))


def _counted(pairs: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return the number of different places of each consumer, the largest first."""
    places_of: dict[str, set[int]] = {}
    for consumer, place in pairs:
        places_of.setdefault(consumer, set()).add(place)
    return by_consumer({consumer: len(places) for consumer, places in places_of.items()})
