"""The unnamed group at once: each class can be given, and yet not all of them together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans
from resource_objects.search.conditions.amounts import ClassCondition, TreeDemand
from resource_objects.search.conditions.base import Cut, Partial
from resource_objects.search.conditions.located import LocatedCondition, LocatedTreeDemand
from resource_objects.search.conditions.traits import RequiredTraits
from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Together:
    """All of the unnamed group is given, with each required trait answered for: the decision."""

    fleet: Fleet
    classes: Sequence[ClassCondition]
    located: Sequence[LocatedCondition]
    traits: RequiredTraits
    decide: Callable[[Sequence[TreeDemand], Sequence[LocatedTreeDemand]], bool]
    overdrawn: Callable[[Sequence[TreeDemand], Sequence[LocatedTreeDemand]], list[Reason]]

    rule = Rule.TOGETHER

    def mask(self) -> Booleans:
        """Return all hosts: what can be said of the fleet, the other conditions say."""
        return np.ones(len(self.fleet.hosts), dtype=np.bool_)

    def cuts(self) -> Iterable[Cut]:
        """Return none: what it leaves is what is found."""
        return ()

    def holds(self, tree: int) -> bool:
        """Return whether it can be given, or whether that takes too long to find out."""
        return self._holds(tree, len(self.traits.required))

    def _holds(self, tree: int, traits: int) -> bool:
        """Return the same with the first required traits alone."""
        return self.decide(*self._here(tree, traits))

    def _here(self, tree: int, traits: int) -> tuple[list[TreeDemand], list[LocatedTreeDemand]]:
        here = [one.of_tree(tree).with_traits(traits) for one in self.classes]
        return here, [one.of_tree(tree).with_traits(traits) for one in self.located]

    def reasons(self, host: Partial) -> list[Reason]:
        """Return, if nothing else fails, the first trait not to be had beside those before it."""
        if any(host.told.values()):
            return []
        count = len(self.traits.required)
        for trait in range(count):
            if not self._holds(host.tree, trait + 1):
                return [self.traits.not_beside(host.tree, trait)]
        # it took too long to find out: what the easy way fails by
        found = self.overdrawn(*self._here(host.tree, 0))
        if not found and count:
            return [self.traits.not_beside(host.tree, count - 1)]
        return found or list(self._few_units(host.tree))

    def _few_units(self, tree: int) -> Iterator[Reason]:
        """Yield the classes of which there is enough by count, and not by name."""
        fleet = self.fleet
        for one in self.classes:
            name, numbers = one.demand.resource_class, one.of_tree(tree).numbers
            places = {int(fleet.inventories.provider[number]) for number in numbers}
            if any(fleet.views.of_devices(place, name) for place in places):
                yield Reason(Rule.INVALID, one.demand.amount, 0, 0, name, fleet.hosts[tree])
