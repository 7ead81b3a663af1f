"""Amounts that say where they go: over the fleet, and on one tree.

An amount whose inventory lies over a tree is one class of a request, given by the parts it is put
on. Which parts those are, the inventory decides, a view over the tree; what is known before is who
may be among them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from resource_objects import exceptions
from resource_objects.providers import Allocation
from resource_objects.resources import Amount
from resource_objects.search.arrays import Booleans
from resource_objects.search.asked import bits
from resource_objects.search.budget import Budget
from resource_objects.search.fleet import Fleet
from resource_objects.search.views import Parts, View

#: What says that an amount is nowhere on a tree, be it that what is kept of that is no inventory.
_REFUSALS = (exceptions.CapacityException, exceptions.ForeignAmount, exceptions.InvalidInventory)

#: How much is used of inventories, by their numbers.
Used = Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LocatedAsk:
    """An amount that says where it goes, over the fleet. Flags are parallel to the parts."""

    fleet: Fleet
    resource_class: str
    amount: Amount
    parts: Parts
    has_forbidden: tuple[Booleans, ...]  #: by forbidden trait
    has_required: tuple[Booleans, ...]  #: by required trait
    allowed: Booleans  #: has none of the forbidden traits
    classes: frozenset[str]  #: those that it may use anywhere, through shares too

    @property
    def count(self) -> int:
        """How many parts it is on, as far as its kind tells beforehand: at least one."""
        return max(1, len(self.amount.at_least(())))

    def of_tree(self, tree: int) -> LocatedAsked:
        """Return the same asked of one tree; no view is looked at yet."""
        here = self.parts.of_tree(tree)
        return LocatedAsked(
            self,
            tree,
            places=tuple(self.parts.provider[here].tolist()),
            allowed=bits(self.allowed[here].tolist()),
            with_trait=tuple(bits(has[here].tolist()) for has in self.has_required),
        )


def lay(
    fleet: Fleet,
    amounts: Mapping[str, Amount],
    has: Mapping[str, Booleans],
    required: Sequence[str],
    forbidden: Sequence[str],
) -> tuple[LocatedAsk, ...]:
    """Return located amounts laid over a fleet.

    :param has: which providers have a trait
    """
    found = []
    for name, amount in amounts.items():
        parts = fleet.views.of(name)
        has_forbidden = tuple(has[trait][parts.provider] for trait in forbidden)
        allowed = np.ones(len(parts.provider), dtype=np.bool_)
        for flags in has_forbidden:
            allowed &= ~flags
        has_required = tuple(has[trait][parts.provider] for trait in required)
        classes = _reached(fleet, {name for shape in parts.shapes for name in shape})
        found.append(
            LocatedAsk(fleet, name, amount, parts, has_forbidden, has_required, allowed, classes)
        )
    return tuple(found)


def _reached(fleet: Fleet, classes: set[str]) -> frozenset[str]:
    """Return some classes, and those of all that they use through shares."""
    found = set(classes)
    for name in classes:
        rows = fleet.rows(name)
        here = fleet.shares.entries(rows.first, rows.first + len(rows.provider))
        found |= fleet.classes_of(fleet.shares.target[here])
    return frozenset(found)


class LocatedAsked:
    """A located amount asked of one tree. Sets of parts are numbers with a bit for each."""

    def __init__(
        self,
        ask: LocatedAsk,
        tree: int,
        places: tuple[int, ...],
        allowed: int,
        with_trait: tuple[int, ...],
    ) -> None:
        self.ask = ask
        self.tree = tree
        self.places = places  #: the providers of the parts
        self.allowed = allowed
        self.with_trait = with_trait  #: by required trait, the parts that have it
        #: whether a decision came to its own bound: then no way found is not a no
        self.cut_short = False
        self._known: dict[tuple[int, frozenset[tuple[int, int]]], Amount | None] = {}
        self._reach: frozenset[int] | None = None

    def with_traits(self, count: int) -> LocatedAsked:
        """Return the same with only the first required traits."""
        few = self.with_trait[:count]
        return LocatedAsked(self.ask, self.tree, self.places, self.allowed, few)

    def only(self, parts: int) -> LocatedAsked:
        """Return the same asked of some parts, whatever their traits."""
        return LocatedAsked(self.ask, self.tree, self.places, parts, ())

    def fit(self, within: int, budget: Budget, used: Used | None = None) -> Amount | None:
        """Return the assigned amount on some of the parts, None if there is no way.

        :param used: what is used beside what is kept
        :raises Exhausted: if the budget runs out first
        """
        more = {n: count for n, count in (used or {}).items() if n in self.reach}
        key = within, frozenset(more.items())
        if key not in self._known:
            budget.spend(1 + len(self.places))
            self._known[key] = self._fitted(within, more)
        return self._known[key]

    def _fitted(self, within: int, used: Used) -> Amount | None:
        if not within:
            return None
        try:
            return self.try_fit(within, used)
        except _REFUSALS:
            return None
        except exceptions.SearchLimitReached:
            self.cut_short = True
            return None

    def try_fit(self, within: int, used: Used | None = None) -> Amount:
        """Return the assigned amount on some of the parts, of which there is at least one.

        :raises CapacityException: with reasons
        :raises ForeignAmount: if it is assigned to what is not here
        :raises InvalidInventory: if what is kept contradicts itself
        :raises SearchLimitReached: if the decision came to its own bound
        """
        view = self.view
        if used:
            view = self.ask.fleet.views.beside(view, self._by_place(used))
        wanted = {place for bit, place in enumerate(self.places) if within >> bit & 1}
        spots = [spot for spot, place in enumerate(view.places) if place in wanted]
        every = len(spots) == len(view.places)
        return view.located.fit(self.ask.amount, None if every else spots)

    def _by_place(self, used: Used) -> dict[tuple[int, str], int]:
        fleet = self.ask.fleet
        provider = fleet.inventories.provider
        return {(int(provider[n]), fleet.class_of(n)): count for n, count in used.items()}

    @property
    def view(self) -> View:
        """The view over the tree, which has at least one part."""
        found = self.ask.fleet.views.of_tree(self.ask.resource_class, self.tree)
        assert found is not None, "it is only asked where there are parts"
        return found

    def allocations(self, assigned: Amount) -> Iterator[tuple[int, Allocation]]:
        """Yield what an assigned amount takes, each with the place of the provider."""
        view = self.view
        places = {spot.name: at for spot, at in zip(view.located.spots, view.places, strict=True)}
        for taken in view.located.allocations(assigned):
            yield places[taken.provider], taken

    # --- inventories, by their numbers ---

    @property
    def reach(self) -> frozenset[int]:
        """The inventories that it may use somewhere, whichever parts it is on."""
        if self._reach is None:
            fleet, parts = self.ask.fleet, self.ask.parts
            here = parts.of_tree(self.tree)
            numbers = [
                fleet.number(place, name)
                for place, shape in zip(self.places, parts.shape[here].tolist(), strict=True)
                for name in parts.shapes[shape]
            ]
            own = [number for number in numbers if number is not None]
            drawn = (t for n in own for _, t, _ in fleet.shares.between(n, n + 1))
            self._reach = frozenset([*own, *drawn])
        return self._reach

    def uses(self, assigned: Amount) -> dict[int, int]:
        """Return what an assigned amount uses of inventories, through shares too."""
        view, fleet = self.view, self.ask.fleet
        places = dict(zip(view.located.spots, view.places, strict=True))
        used: dict[int, int] = {}
        for spot, record in view.located.taken(assigned):
            number = fleet.number(places[spot], record.resource_class)
            assert number is not None, "what is taken is there"
            links = [(number, 1), *((t, k) for _, t, k in fleet.shares.between(number, number + 1))]
            for target, factor in links:
                used[target] = used.get(target, 0) + record.amount * factor
        return used
