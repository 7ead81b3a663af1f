"""The demand of a request on one tree, as plain data without arrays.

:class:`TreeDemand` is a count of one class, :class:`LocatedTreeDemand` a placed amount (a topology,
or devices), and :class:`Placing` assigns the placed amounts of a tree.

The view of a placed resource over a tree (:func:`view_of`) decides which parts an amount is
assigned to. It is assembled from the rows of the tree when it is first needed. Fleets that have the
same rows of a tree share its views.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import Allocation
from resource_objects.providers.columns import Columns, UnitColumns
from resource_objects.providers.composite import LocatedView, LocatedViews, fit_together
from resource_objects.providers.tree_shape import NO_EXCLUSIONS, Exclusions, TreeShape
from resource_objects.resources import Amount
from resource_objects.resources.backtracking import Budget
from resource_objects.resources.placed import cell_map_of
from resource_objects.search.arrays import Integers, integers
from resource_objects.search.fleet import Fleet
from resource_objects.search.fleet_io import columns_of
from resource_objects.search.relations import Link, Parts


class View(NamedTuple):
    """The inventory of a placed resource over one tree."""

    kind: str  #: name of the resource
    located: LocatedView
    places: tuple[int, ...]  #: of the providers of its parts, in the order of these
    tree: int


class _TreeDefinition(NamedTuple):
    """The definition of a tree, in which the number of a provider is its place at that time."""

    shape: TreeShape
    root: int  #: the place of the root

    def inventories(self, fleet: Fleet, moved: int) -> Integers:
        """Return the numbers of its inventories in a fleet, in the order of their rows."""
        columns = self.shape.columns.inventories
        places = integers(columns.provider_id) + moved
        return fleet.by_class.find(columns.resource_class, places)

    def views(self, fleet: Fleet, moved: int) -> LocatedViews:
        """Return the views with the usage in a fleet."""
        used = fleet.inventories.used[self.inventories(fleet, moved)]
        numbers = sorted({number for parts in self.shape.parts.values() for number, _ in parts})
        units = [
            (number, *row) for number in numbers for row in fleet.units.of_provider(number + moved)
        ]
        inventories = self.shape.columns.inventories._replace(used=used.tolist())
        columns = Columns(inventories=inventories, units=UnitColumns(*zip(*units, strict=True)))
        return LocatedViews(columns, shape=self.shape)

    def exclusions(self, fleet: Fleet, moved: int) -> Exclusions:
        """Return the free amounts and units of the tree that are not to be allocated in a fleet."""
        if not fleet.limited and not fleet.free_removed_units:
            return NO_EXCLUSIONS
        providers = self.shape.index.uuids
        units = {n: units for n in providers if (units := fleet.free_removed_units.get(n + moved))}
        amounts = Counter(
            (number, fleet.removed_units[number + moved][unit])
            for number, units_there in units.items()
            for unit in units_there
        )
        columns = self.shape.columns.inventories
        limited = (fleet.limited.get(n, 0) for n in self.inventories(fleet, moved).tolist())
        keys = zip(columns.provider_id, columns.resource_class, strict=True)
        by_limits = {key: amount for key, amount in zip(keys, limited, strict=True) if amount}
        return Exclusions(amounts, units, by_limits)


def _views_of_tree(fleet: Fleet, tree: int) -> tuple[LocatedViews, Exclusions, int]:
    """Return the views over a tree, the exclusions from them, and the move of its places.

    The move is added to the number of a provider in the views to get its place.
    """
    if fleet.above and tree == int(fleet.tree[fleet.above[0]]) and fleet.within is not None:
        tree = fleet.within
    root = int(fleet.tree.searchsorted(tree))
    key, cache = int(fleet.keys.at[root]), fleet.view_cache
    views = cache.changed.get(key)
    if views is None:
        views = cache.views
    if key not in views:
        views[key] = _assembled(fleet, tree, root, cache.definitions.get(key))
    definition, located = views[key]
    cache.definitions.setdefault(key, definition)
    moved = root - definition.root
    return located, definition.exclusions(fleet, moved), moved


def _assembled(
    fleet: Fleet, tree: int, root: int, definition: _TreeDefinition | None
) -> tuple[_TreeDefinition, LocatedViews]:
    """Return the views over a tree, with the definition that has the numbers of their parts."""
    if definition is not None:
        return definition, definition.views(fleet, root - definition.root)
    is_cut = tree == fleet.within and fleet.above  # its parts may be at what is above the cut
    trees = {tree, int(fleet.tree[fleet.above[0]])} if is_cut else {tree}
    located = LocatedViews(columns_of(fleet, trees, for_views=True))
    return _TreeDefinition(located.shape, root), located


def view_of(fleet: Fleet, kind: str, tree: int) -> View | None:
    """Return the view of a placed resource over a tree, None if the tree has no part of it.

    If a fleet is confined to a part of a tree, the view covers the whole tree. Cost: that of
    assembling it, the first time.

    :raises InvalidInventory: if the stored parts contradict each other
    """
    key = kind, tree
    if key not in fleet.views:
        fleet.views[key] = _view_of(fleet, kind, tree)
    view: View | None = fleet.views[key]
    return view


def _view_of(fleet: Fleet, kind: str, tree: int) -> View | None:
    parts = fleet.parts_of(kind)
    entries = parts.of_tree(tree)
    if entries.start == entries.stop:
        return None
    views, exclusions, moved = _views_of_tree(fleet, tree)
    root = views.shape.index.roots[int(parts.provider[entries.start]) - moved]
    located = views.excluding(root, kind, exclusions) if any(exclusions) else None
    located = located or views.of_tree(root, kind)
    assert located is not None, "a tree with parts has a view"
    return _view(kind, located, tree, moved)


def view_with_use(fleet: Fleet, view: View, used: Mapping[tuple[int, str], int]) -> View:
    """Return a view with further use, by the place of the provider and the resource class."""
    views, exclusions, moved = _views_of_tree(fleet, view.tree)
    amounts = Counter({(place - moved, name): count for (place, name), count in used.items()})
    amounts.update(exclusions.amounts)
    root = view.located.shape.root
    located = views.excluding(root, view.kind, exclusions._replace(amounts=amounts))
    return _view(view.kind, located, view.tree, moved)


def _view(kind: str, located: LocatedView, tree: int, moved: int) -> View:
    return View(kind, located, tuple([part.number + moved for part in located.parts]), tree)


class Source(NamedTuple):
    """The parts of a class that a provider can provide: multiples of ``step`` within bounds."""

    low: int
    high: int
    step: int
    is_device: bool


@dataclasses.dataclass(frozen=True, slots=True)
class TreeDemand:
    """A count of one class on one tree. Sets of sources are numbers with a bit for each."""

    amount: int
    numbers: Sequence[int]  #: the inventories of the sources
    sources: tuple[Source, ...]
    allowed: int  #: the sources that meet all conditions on each provider
    with_trait: tuple[int, ...]  #: by required trait, the sources that have it
    #: by source, the inventories that it uses through shares, and how much for each unit
    shared_uses: Mapping[int, Sequence[Link]] = FrozenDict()
    own: int = 0  #: the number of sources in the tree itself; the others are pools

    def only(self, sources: int) -> TreeDemand:
        """Return a copy of the demand on some sources, whatever their traits."""
        return dataclasses.replace(self, allowed=sources, with_trait=())

    def with_traits(self, count: int) -> TreeDemand:
        """Return a copy of the demand with only the first required traits."""
        return dataclasses.replace(self, with_trait=self.with_trait[:count])

    @property
    def is_divisible(self) -> bool:
        """Whether several devices may provide parts of it."""
        return self.amount > 1 and sum(source.is_device for source in self.sources) > 1

    def provides(self, source: int, highs: Sequence[int]) -> bool:
        """Return whether a source provides all of it, where ``highs`` bounds each source."""
        low, _, step, _ = self.sources[source]
        return low <= self.amount <= highs[source] and self.amount % step == 0

    def uses(self, source: int, part: int) -> Iterator[tuple[int, int]]:
        """Yield the inventories that a part of a source uses, with the amounts; its own first."""
        yield self.numbers[source], part
        for target, factor in self.shared_uses.get(source, ()):
            yield target, part * factor


#: ``((source, amount), ...)`` of one class
Supply: TypeAlias = tuple[tuple[int, int], ...]


def bits(flags: Iterable[bool]) -> int:
    """Return a number with bit i set where flag i is.

    >>> bits([True, False, True])
    5
    """
    return sum(1 << place for place, flag in enumerate(flags) if flag)


def members(demand: TreeDemand, sources: int) -> list[int]:
    """Return the places of a set of sources."""
    return [place for place in range(len(demand.sources)) if sources >> place & 1]


# --- placed amounts ---


@dataclasses.dataclass(frozen=True, eq=False)
class LocatedTreeDemand:
    """A placed amount on one tree. Sets of parts are numbers with a bit for each."""

    fleet: Fleet
    resource_class: str
    amount: Amount
    parts: Parts  #: in the fleet
    tree: int
    places: tuple[int, ...]  #: the providers of the parts of the tree
    allowed: int  #: the parts that meet all conditions on each provider
    with_trait: tuple[int, ...]  #: by required trait, the parts that have it

    def with_traits(self, count: int) -> LocatedTreeDemand:
        """Return a copy of the demand with only the first required traits."""
        return dataclasses.replace(self, with_trait=self.with_trait[:count])

    def among(self, parts: int) -> LocatedTreeDemand:
        """Return a copy of the demand on the allowed parts that are in a set."""
        return dataclasses.replace(self, allowed=self.allowed & parts)

    def only(self, parts: int) -> LocatedTreeDemand:
        """Return a copy of the demand on some parts, whatever their traits."""
        return dataclasses.replace(self, allowed=parts, with_trait=())

    @property
    def providers(self) -> list[int]:
        """The providers of the parts that it may be on."""
        return [place for bit, place in enumerate(self.places) if self.allowed >> bit & 1]

    def positions(self, parts: int) -> list[int] | None:
        """Return the positions of parts in the view, None for all of them."""
        providers = set(self.only(parts).providers)
        result = [at for at, place in enumerate(self.view.places) if place in providers]
        return None if len(result) == len(self.view.places) else result

    @property
    def view(self) -> View:
        """The view over the tree, which has at least one part."""
        view = view_of(self.fleet, self.resource_class, self.tree)
        assert view is not None, "the tree has parts"
        return view

    def allocations(self, assigned: Amount) -> Iterator[tuple[int, Allocation]]:
        """Yield the allocations of an assigned amount, each with the place of the provider."""
        view = self.view
        places = {part.name: at for part, at in zip(view.located.parts, view.places, strict=True)}
        for taken in view.located.allocations(assigned):
            yield places[taken.provider], taken

    # --- inventories, by their numbers ---

    @functools.cached_property
    def reach(self) -> frozenset[int]:
        """The inventories that it may use on any of its parts."""
        fleet, parts = self.fleet, self.parts
        here = parts.of_tree(self.tree)
        numbers = [
            fleet.number(place, name)
            for place, shape in zip(self.places, parts.shape[here].tolist(), strict=True)
            for name in parts.shapes[shape]
        ]
        of_parts = [number for number in numbers if number is not None]
        targets = (t for n in of_parts for _, t, _ in fleet.shares.between(n, n + 1))
        return frozenset([*of_parts, *targets])

    def uses(self, assigned: Amount) -> dict[int, int]:
        """Return the use of inventories by an assigned amount, also through shares."""
        view, fleet = self.view, self.fleet
        places = dict(zip(view.located.parts, view.places, strict=True))
        used: dict[int, int] = {}
        for position, record in view.located.records(assigned):
            number = fleet.number(places[position], record.resource_class)
            assert number is not None, "an allocation has an inventory"
            links = [(number, 1), *((t, k) for _, t, k in fleet.shares.between(number, number + 1))]
            for target, factor in links:
                used[target] = used.get(target, 0) + record.amount * factor
        return used


# --- placing ------------------------------------------------------------------------------------
# The placed amounts of a request are assigned together on one tree: devices may have to be near
# cells. The inventories decide (:mod:`resource_objects.providers.composite`), as for a claim.


#: Refusals of a tree for a placed amount; the last one is of a stored inventory that is invalid.
_REFUSALS = (exceptions.CapacityException, exceptions.ForeignAmount, exceptions.InvalidInventory)

#: Used amounts of inventories, by their numbers.
Used = Mapping[int, int]
#: The assigned amounts, in the order of the demands.
Assigned = tuple[Amount, ...]
#: A set of parts for each demand.
PartSets = Sequence[int]


class Placing:
    """The placed amounts of one tree. The assignment to each choice of parts is decided once."""

    def __init__(self, located: Sequence[LocatedTreeDemand]) -> None:
        self._located = tuple(located)
        self._names = [demand.resource_class for demand in located]
        #: whether a decision reached its own bound: then there may be an assignment
        self.is_cut_short = False
        self._decided: dict[tuple[PartSets, frozenset[tuple[int, int]]], Assigned | None] = {}

    @functools.cached_property
    def reach(self) -> frozenset[int]:
        """The inventories that they may use on any of their parts."""
        return frozenset[int]().union(*(demand.reach for demand in self._located))

    def fit(self, within: PartSets, budget: Budget, used: Used | None = None) -> Assigned | None:
        """Return the assigned amounts, each within its parts; None if there are none.

        Each of them has capacity; :meth:`assign` returns amounts that have it together.

        :param used: the use by the same request, in addition to the stored one
        :raises SearchLimitReached: if the budget runs out first
        """
        more = frozenset((n, count) for n, count in (used or {}).items() if n in self.reach)
        key = tuple(within), more
        if key not in self._decided:
            budget.spend(1 + sum(len(demand.places) for demand in self._located))
            self._decided[key] = self._fitted(within, dict(more))
        return self._decided[key]

    def assign(self, within: PartSets, budget: Budget, used: Used) -> Assigned | None:
        """Return assigned amounts that have capacity next to each other; None if there are none.

        If those of :meth:`fit` have not, they are assigned one after the other, each next to those
        before it. Others might leave more to each other, so None is not final then.
        """
        used = {number: count for number, count in used.items() if count}
        assigned = self.fit(within, budget, used)
        if assigned is None or self._has_capacity(assigned, used):
            return assigned
        amounts, total = list[Amount](), Counter(used)
        for single, parts in zip(self._singles, within, strict=True):
            result = single.fit([parts], budget, total)
            if result is None:
                break
            amounts += result
            total.update(single._located[0].uses(result[0]))
        else:
            try:
                return self.try_fit(within, None, tuple(amounts))
            except (*_REFUSALS, exceptions.SearchLimitReached):
                pass
        self.is_cut_short = True
        return None

    @functools.cached_property
    def _singles(self) -> tuple[Placing, ...]:
        """Each placed amount as if it were the only one."""
        return (self,) if len(self._located) == 1 else tuple(Placing([d]) for d in self._located)

    def _has_capacity(self, assigned: Assigned, used: Used) -> bool:
        """Return whether assigned amounts have capacity wherever they use the same inventories."""
        total, fleet = Counter(used), self._located[0].fleet
        for demand, amount in zip(self._located, assigned, strict=True):
            total.update(demand.uses(amount))
        return all(count <= fleet.left(number) for number, count in total.items())

    def _fitted(self, within: PartSets, used: Used) -> Assigned | None:
        if not all(within):
            return None
        try:
            return self.try_fit(within, used)
        except _REFUSALS:
            return None
        except exceptions.SearchLimitReached:
            self.is_cut_short = True
            return None

    def try_fit(
        self, within: PartSets, used: Used | None = None, amounts: Assigned | None = None
    ) -> Assigned:
        """Return the assigned amounts, each within its parts, which are not empty.

        :param amounts: in place of the requested ones
        :raises CapacityException: with reasons
        :raises ForeignAmount: if an amount is assigned to parts that do not exist here
        :raises InvalidInventory: if stored parts contradict each other
        :raises SearchLimitReached: if the decision reached its own bound
        """
        amounts = amounts or tuple(demand.amount for demand in self._located)
        demands = list(zip(self._names, self._located, within, strict=True))
        views = {name: _with_use(demand, used or {}).located for name, demand, _ in demands}
        has_cells = any(cell_map_of(view.inventory) is not None for view in views.values())
        positions_of = {
            name: positions
            for name, demand, parts in demands
            if (positions := demand.positions(parts)) is not None
        }
        requested = dict(zip(self._names, amounts, strict=True))
        result = fit_together(
            requested, {**(self._other_views if has_cells else {}), **views}, positions_of
        )
        return tuple(result[name] for name in self._names)

    @functools.cached_property
    def _other_views(self) -> Mapping[str, LocatedView]:
        """The views of the resources that are not requested: next to cells, they matter too."""
        fleet, tree = self._located[0].fleet, self._located[0].tree
        views: dict[str, LocatedView] = {}
        for kind in fleet.parts.keys() - set(self._names):
            try:
                view = view_of(fleet, kind, tree)
            except exceptions.InvalidInventory:
                continue
            if view is not None:
                views[kind] = view.located
        return views


def _with_use(demand: LocatedTreeDemand, used: Used) -> View:
    """Return the view of a demand with further use."""
    fleet = demand.fleet
    more = {
        (int(fleet.inventories.provider[n]), fleet.class_of(n)): count
        for n, count in used.items()
        if n in demand.reach
    }
    return view_with_use(fleet, demand.view, more) if more else demand.view
