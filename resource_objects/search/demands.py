"""What a request asks of one tree, as plain data; no array is read any more.

:class:`TreeDemand` is one class as a count, :class:`LocatedTreeDemand` an amount that says where it
goes, and :class:`Placing` decides about the latter.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.providers import Allocation
from resource_objects.providers.composite import LocatedView, fit_together
from resource_objects.reasons import Rule
from resource_objects.resources import Amount
from resource_objects.resources.budget import Budget
from resource_objects.resources.located import cell_map_of
from resource_objects.search.arrays import Booleans
from resource_objects.search.conditions.base import Qualifications
from resource_objects.search.fleet import Fleet
from resource_objects.search.views import Parts, View


class Source(NamedTuple):
    """What one provider can give of a class in one part: a multiple of ``step`` in between."""

    low: int
    high: int
    step: int
    is_device: bool

    def gives(self, amount: int) -> bool:
        """Return whether it gives all of ``amount`` by itself."""
        return self.low <= amount <= self.high and amount % self.step == 0


class Draw(NamedTuple):
    """What a source gives is used of another inventory too, of which ``room`` is left."""

    source: int
    target: int  #: number of an inventory
    factor: int
    room: int


@dataclasses.dataclass(frozen=True, slots=True)
class TreeDemand:
    """One class asked of one tree. Sets of sources are numbers with a bit for each."""

    amount: int
    numbers: Sequence[int]  #: the inventories of the sources
    sources: tuple[Source, ...]
    allowed: int  #: the sources without a forbidden trait
    with_trait: tuple[int, ...]  #: by required trait, the sources that have it
    draws: tuple[Draw, ...] = ()
    own: int = 0  #: how many of the sources are of the tree itself: the others are pools

    def only(self, sources: int) -> TreeDemand:
        """Return the same asked of some sources, whatever their traits."""
        return dataclasses.replace(self, allowed=sources, with_trait=())

    def with_traits(self, count: int) -> TreeDemand:
        """Return the same with only the first required traits."""
        return dataclasses.replace(self, with_trait=self.with_trait[:count])

    @property
    def is_divisible(self) -> bool:
        """Whether several devices may provide parts of it."""
        return self.amount > 1 and sum(source.is_device for source in self.sources) > 1

    def provides(self, source: int, highs: Sequence[int]) -> bool:
        """Return whether a source provides all of it, where ``highs`` bounds each source."""
        low, _, step, _ = self.sources[source]
        return low <= self.amount <= highs[source] and self.amount % step == 0

    def drawn(self, source: int, part: int) -> Iterator[tuple[int, int]]:
        """Yield what a part that a source gives uses of which inventories, its own first."""
        yield self.numbers[source], part
        for draw in self.draws:
            if draw.source == source:
                yield draw.target, part * draw.factor


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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LocatedFleetDemand:
    """An amount that says where it goes, over the fleet. Flags are parallel to the parts."""

    fleet: Fleet
    resource_class: str
    amount: Amount
    parts: Parts
    barriers: tuple[tuple[Rule, str], ...]  #: the conditions on everybody who gives
    is_barred: tuple[Booleans, ...]  #: by such a condition: does not meet it
    has_required: tuple[Booleans, ...]  #: by condition on all who give some class: meets it
    allowed: Booleans  #: meets all conditions on everybody who gives
    classes: frozenset[str]  #: those that it may use anywhere, through shares too

    @property
    def count(self) -> int:
        """Of how many pieces it is, as far as its kind tells beforehand: at least one."""
        return self.amount.pieces

    def of_tree(self, tree: int) -> LocatedTreeDemand:
        """Return the same asked of one tree; no view is looked at yet."""
        here = self.parts.of_tree(tree)
        return LocatedTreeDemand(
            self,
            tree,
            places=tuple(self.parts.provider[here].tolist()),
            allowed=bits(self.allowed[here].tolist()),
            with_trait=tuple(bits(has[here].tolist()) for has in self.has_required),
        )


def lay_located(
    fleet: Fleet, amounts: Mapping[str, Amount], laid: Qualifications
) -> tuple[LocatedFleetDemand, ...]:
    """Return located amounts laid over a fleet."""
    barriers = tuple((one.rule, one.label) for one in laid.each)
    found = []
    for name, amount in amounts.items():
        parts = fleet.views.of(name)
        is_barred = tuple(~one.own[parts.provider] for one in laid.each)
        allowed = np.ones(len(parts.provider), dtype=np.bool_)
        for flags in is_barred:
            allowed &= ~flags
        has_required = tuple(one.own[parts.provider] for one in laid.some)
        classes = _reached(fleet, {name for shape in parts.shapes for name in shape})
        flags_of = (barriers, is_barred, has_required, allowed)
        found.append(LocatedFleetDemand(fleet, name, amount, parts, *flags_of, classes))
    return tuple(found)


def _reached(fleet: Fleet, classes: set[str]) -> frozenset[str]:
    """Return some classes, and those of all that they use through shares."""
    found = set(classes)
    for name in classes:
        rows = fleet.rows(name)
        here = fleet.shares.entries(rows.first, rows.first + len(rows.provider))
        found |= fleet.classes_of(fleet.shares.target[here])
    return frozenset(found)


@dataclasses.dataclass(frozen=True, eq=False)
class LocatedTreeDemand:
    """A located amount asked of one tree. Sets of parts are numbers with a bit for each."""

    ask: LocatedFleetDemand
    tree: int
    places: tuple[int, ...]  #: the providers of the parts
    allowed: int  #: the parts without a forbidden trait
    with_trait: tuple[int, ...]  #: by required trait, the parts that have it

    def with_traits(self, count: int) -> LocatedTreeDemand:
        """Return the same with only the first required traits."""
        return dataclasses.replace(self, with_trait=self.with_trait[:count])

    def among(self, parts: int) -> LocatedTreeDemand:
        """Return the same asked of those of its parts that are among some."""
        return dataclasses.replace(self, allowed=self.allowed & parts)

    def only(self, parts: int) -> LocatedTreeDemand:
        """Return the same asked of some parts, whatever their traits."""
        return dataclasses.replace(self, allowed=parts, with_trait=())

    @property
    def providers(self) -> list[int]:
        """The providers of the parts that it may be on."""
        return [place for bit, place in enumerate(self.places) if self.allowed >> bit & 1]

    def spots(self, parts: int) -> list[int] | None:
        """Return which spots of the view some parts are, None for all of them."""
        wanted = set(self.only(parts).providers)
        found = [spot for spot, place in enumerate(self.view.places) if place in wanted]
        return None if len(found) == len(self.view.places) else found

    @property
    def view(self) -> View:
        """The view over the tree, which has at least one part."""
        found = self.ask.fleet.views.of_tree(self.ask.resource_class, self.tree)
        assert found is not None, "it is only asked where there are parts"
        return found

    def allocations(self, assigned: Amount) -> Iterator[tuple[int, Allocation]]:
        """Yield what an assigned amount takes, each with the place of the provider."""
        view = self.view
        places = {spot.name: at for spot, at in zip(view.located.parts, view.places, strict=True)}
        for taken in view.located.allocations(assigned):
            yield places[taken.provider], taken

    # --- inventories, by their numbers ---

    @functools.cached_property
    def reach(self) -> frozenset[int]:
        """The inventories that it may use somewhere, whichever parts it is on."""
        fleet, parts = self.ask.fleet, self.ask.parts
        here = parts.of_tree(self.tree)
        numbers = [
            fleet.number(place, name)
            for place, shape in zip(self.places, parts.shape[here].tolist(), strict=True)
            for name in parts.shapes[shape]
        ]
        own = [number for number in numbers if number is not None]
        drawn = (t for n in own for _, t, _ in fleet.shares.between(n, n + 1))
        return frozenset([*own, *drawn])

    def uses(self, assigned: Amount) -> dict[int, int]:
        """Return what an assigned amount uses of inventories, through shares too."""
        view, fleet = self.view, self.ask.fleet
        places = dict(zip(view.located.parts, view.places, strict=True))
        used: dict[int, int] = {}
        for spot, record in view.located.records(assigned):
            number = fleet.number(places[spot], record.resource_class)
            assert number is not None, "what is taken is there"
            links = [(number, 1), *((t, k) for _, t, k in fleet.shares.between(number, number + 1))]
            for target, factor in links:
                used[target] = used.get(target, 0) + record.amount * factor
        return used


# --- placing ------------------------------------------------------------------------------------
# Where the located amounts of a request go on one tree: decided together (D13).
#
# What is near something and what it is near to are one decision, that of the inventories
# (:mod:`resource_objects.providers.composite`), which a claim asks too (law 5).


#: What says that an amount is nowhere on a tree, be it that what is kept of that is no inventory.
_REFUSALS = (exceptions.CapacityException, exceptions.ForeignAmount, exceptions.InvalidInventory)

#: How much is used of inventories, by their numbers.
Used = Mapping[int, int]
#: An amount for each of those that are asked for, in their order.
Assigned = tuple[Amount, ...]
#: A set of parts for each.
PartSets = Sequence[int]


class Placing:
    """Located amounts asked of one tree; each way to ask for them is decided once."""

    def __init__(self, located: Sequence[LocatedTreeDemand]) -> None:
        self.located = tuple(located)
        #: whether a decision came to its own bound: then no way found is not a no
        self.cut_short = False
        self._known: dict[tuple[PartSets, frozenset[tuple[int, int]]], Assigned | None] = {}

    @functools.cached_property
    def alone(self) -> tuple[Placing, ...]:
        """Each of them by itself, as if the others were not asked for."""
        if len(self.located) == 1:
            return (self,)
        return tuple(Placing([one]) for one in self.located)

    @functools.cached_property
    def reach(self) -> frozenset[int]:
        """The inventories that they may use somewhere, whichever parts they are on."""
        return frozenset[int]().union(*(one.reach for one in self.located))

    def fit(self, within: PartSets, budget: Budget, used: Used | None = None) -> Assigned | None:
        """Return the assigned amounts, each on some of its parts; None if there is no way.

        :param used: what is used beside what is kept
        :raises SearchLimitReached: if the budget runs out first
        """
        more = frozenset((n, count) for n, count in (used or {}).items() if n in self.reach)
        key = tuple(within), more
        if key not in self._known:
            budget.spend(1 + sum(len(one.places) for one in self.located))
            self._known[key] = self._fitted(within, dict(more))
        return self._known[key]

    def _fitted(self, within: PartSets, used: Used) -> Assigned | None:
        if not all(within):
            return None
        try:
            return self.try_fit(within, used)
        except _REFUSALS:
            return None
        except exceptions.SearchLimitReached:
            self.cut_short = True
            return None

    def try_fit(
        self, within: PartSets, used: Used | None = None, amounts: Assigned | None = None
    ) -> Assigned:
        """Return the assigned amounts, each on some of its parts, of which there is at least one.

        :param amounts: instead of those that are asked for
        :raises CapacityException: with reasons
        :raises ForeignAmount: if one is assigned to what is not here
        :raises InvalidInventory: if what is kept contradicts itself
        :raises SearchLimitReached: if the decision came to its own bound
        """
        given = amounts or tuple(one.ask.amount for one in self.located)
        names = [one.ask.resource_class for one in self.located]
        views = {
            name: self._beside(one, used or {}).located
            for name, one in zip(names, self.located, strict=True)
        }
        spots = {
            name: some
            for name, one, parts in zip(names, self.located, within, strict=True)
            if (some := one.spots(parts)) is not None
        }
        demand = dict(zip(names, given, strict=True))
        found = fit_together(demand, {**self._others(views), **views}, spots)
        return tuple(found[name] for name in names)

    def checked(self, within: PartSets, assigned: Assigned) -> Assigned | None:
        """Return assigned amounts if they go together, whatever room they leave each other."""
        try:
            return self.try_fit(within, None, assigned)
        except (*_REFUSALS, exceptions.SearchLimitReached):
            return None

    def _beside(self, one: LocatedTreeDemand, used: Used) -> View:
        """Return the view over the tree with more in use."""
        fleet = one.ask.fleet
        more = {
            (int(fleet.inventories.provider[n]), fleet.class_of(n)): count
            for n, count in used.items()
            if n in one.reach
        }
        return fleet.views.beside(one.view, more) if more else one.view

    def _others(self, views: Mapping[str, LocatedView]) -> Mapping[str, LocatedView]:
        """Return what else lies over the tree, and is left to others where that is possible."""
        has_cells = any(cell_map_of(view.inventory) is not None for view in views.values())
        return self._rest if has_cells else {}

    @functools.cached_property
    def _rest(self) -> Mapping[str, LocatedView]:
        fleet, tree = self.located[0].ask.fleet, self.located[0].tree
        found: dict[str, LocatedView] = {}
        for kind in fleet.views.parts.keys() - {one.ask.resource_class for one in self.located}:
            try:
                view = fleet.views.of_tree(kind, tree)
            except exceptions.InvalidInventory:
                continue
            if view is not None:
                found[kind] = view.located
        return found
