"""Where the located amounts of a request go on one tree: decided together (D13).

What is near something and what it is near to are one decision, that of the inventories
(:mod:`resource_objects.providers.jointly`), which a claim asks too (law 5).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from resource_objects import exceptions
from resource_objects.providers import jointly
from resource_objects.providers.located import Located
from resource_objects.resources import Amount
from resource_objects.search.budget import Budget
from resource_objects.search.located import LocatedAsked
from resource_objects.search.views import View

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

    def __init__(self, located: Sequence[LocatedAsked], taken: Used | None = None) -> None:
        """Make the question.

        :param taken: what others of the same request use
        """
        self.located = tuple(located)
        self._taken: Used = taken or {}
        #: whether a decision came to its own bound: then no way found is not a no
        self.cut_short = False
        self._known: dict[tuple[PartSets, frozenset[tuple[int, int]]], Assigned | None] = {}

    @functools.cached_property
    def alone(self) -> tuple[Placing, ...]:
        """Each of them by itself, as if the others were not asked for."""
        if len(self.located) == 1:
            return (self,)
        return tuple(Placing([one], self._taken) for one in self.located)

    @functools.cached_property
    def reach(self) -> frozenset[int]:
        """The inventories that they may use somewhere, whichever parts they are on."""
        return frozenset[int]().union(*(one.reach for one in self.located))

    def fit(self, within: PartSets, budget: Budget, used: Used | None = None) -> Assigned | None:
        """Return the assigned amounts, each on some of its parts; None if there is no way.

        :param used: what is used beside what is kept
        :raises Exhausted: if the budget runs out first
        """
        total = dict(self._taken)
        for number, count in (used or {}).items():
            total[number] = total.get(number, 0) + count
        more = frozenset((n, count) for n, count in total.items() if n in self.reach)
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
        asked = dict(zip(names, given, strict=True))
        found = jointly.fit(asked, {**self._others(views), **views}, spots)
        return tuple(found[name] for name in names)

    def left(self, inventory: int) -> int:
        """Return what is left of an inventory itself, beside what others of the request use."""
        return self.located[0].ask.fleet.left(inventory) - self._taken.get(inventory, 0)

    def checked(self, within: PartSets, assigned: Assigned) -> Assigned | None:
        """Return assigned amounts if they go together, whatever room they leave each other."""
        try:
            return self.try_fit(within, None, assigned)
        except (*_REFUSALS, exceptions.SearchLimitReached):
            return None

    def _beside(self, one: LocatedAsked, used: Used) -> View:
        """Return the view over the tree with more in use."""
        fleet = one.ask.fleet
        more = {
            (int(fleet.inventories.provider[n]), fleet.class_of(n)): count
            for n, count in used.items()
            if n in one.reach
        }
        return fleet.views.beside(one.view, more) if more else one.view

    def _others(self, views: Mapping[str, Located]) -> Mapping[str, Located]:
        """Return what else lies over the tree, and is left to others where that is possible."""
        has_cells = any(view.inventory.all_cells() is not None for view in views.values())
        return self._rest if has_cells else {}

    @functools.cached_property
    def _rest(self) -> Mapping[str, Located]:
        fleet, tree = self.located[0].ask.fleet, self.located[0].tree
        found: dict[str, Located] = {}
        for kind in fleet.views.parts.keys() - {one.ask.resource_class for one in self.located}:
            try:
                view = fleet.views.of_tree(kind, tree)
            except exceptions.InvalidInventory:
                continue
            if view is not None:
                found[kind] = view.located
        return found
