"""Several classes at once: inventories that they share, and all of the unnamed group."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import ClassCondition, FleetDemand
from resource_objects.search.conditions.located import AffinityCheck, LocatedCondition
from resource_objects.search.conditions.shortage import overdrawn
from resource_objects.search.conditions.traits import RequiredTraits
from resource_objects.search.demands import LocatedTreeDemand, TreeDemand
from resource_objects.search.eligibility import OWN
from resource_objects.search.findings import Condition, HostContext
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.tree_solver import may_provide


@dataclasses.dataclass(frozen=True, eq=False)
class Contention(Condition):
    """Classes that use the same inventories through shares fit there together."""

    fleet: Fleet
    classes: Sequence[ClassCondition]
    located: Sequence[LocatedCondition]
    nearness: AffinityCheck | None

    rule = Rule.CAPACITY

    def mask(self) -> Booleans | None:
        """Return the hosts with enough where classes can only use one inventory."""
        if not self.fleet.shares or not (len(self.classes) > 1 or self.located):
            return None
        every = [drawing(self.fleet, one.demand) for one in self.classes]
        every += [each for one in self.located for each in one.drawing()]
        return ~contended(self.fleet, every)

    def checks(self) -> tuple[()]:
        """Return none: it is part of the last stage."""
        return ()

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return the inventories that are used too much by classes that fit individually."""
        if self.nearness is not None and host.fails(self.nearness):
            return []
        tree = host.tree
        here = [one.of_tree(tree).with_traits(0) for one in self.classes if not host.fails(one)]
        parts = [one.of_tree(tree).with_traits(0) for one in self.located if not host.fails(one)]
        if not parts and not any(one.shared_uses for one in here):
            return []
        if may_provide(self.fleet, tree, here, parts):
            return []
        return overdrawn(self.fleet, tree, here, parts)


@dataclasses.dataclass(frozen=True, eq=False)
class Together(Condition):
    """All of the unnamed group is provided, and a class answers for each required trait."""

    fleet: Fleet
    classes: Sequence[ClassCondition]
    located: Sequence[LocatedCondition]
    traits: RequiredTraits

    rule = Rule.TOGETHER

    def holds(self, tree: int) -> bool:
        """Return True if it can be provided, or if the decision takes too long."""
        return may_provide(self.fleet, tree, *self._here(tree, len(self.traits.required)))

    def _here(self, tree: int, traits: int) -> tuple[list[TreeDemand], list[LocatedTreeDemand]]:
        here = [one.of_tree(tree).with_traits(traits) for one in self.classes]
        return here, [one.of_tree(tree).with_traits(traits) for one in self.located]

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return, if nothing else fails, the first trait that excludes those before it."""
        if host.is_refused:
            return []
        count = len(self.traits.required)
        for trait in range(count):
            if not may_provide(self.fleet, host.tree, *self._here(host.tree, trait + 1)):
                return [self.traits.not_beside(host.tree, trait)]
        # the decision took too long: why each class as if alone fails
        found = overdrawn(self.fleet, host.tree, *self._here(host.tree, 0))
        if not found and count:
            return [self.traits.not_beside(host.tree, count - 1)]
        return found or list(self._few_units(host.tree))

    def _few_units(self, tree: int) -> Iterator[Reason]:
        """Yield the classes with enough free by count, and too few units."""
        fleet = self.fleet
        for one in self.classes:
            name, numbers = one.demand.resource_class, one.of_tree(tree).numbers
            places = {int(fleet.inventories.provider[number]) for number in numbers}
            if any(fleet.device_resource(place, name) for place in places):
                yield Reason(Rule.INVALID, one.demand.amount, 0, 0, name, fleet.hosts[tree])


# --- over the fleet ---

#: The requested amount of a class, and the inventories that may provide it.
Drawing: TypeAlias = tuple[int, ClassRows, Booleans]


def contended(fleet: Fleet, drawing: Iterable[Drawing]) -> Booleans:
    """Return the trees in which classes that can only use one inventory do not fit there."""
    every = fleet.inventories
    targets = fleet.shares.targets
    left = (every.capacity[targets] - every.used[targets]).clip(0)
    needed = np.zeros(len(targets), dtype=np.int64)
    for amount, rows, able in drawing:
        number, factor = _all_draw_on(fleet, rows, able, targets)
        room = left[number]
        # an amount that does not fit alone counts as one too much, which cannot overflow
        needed[number] += np.where(
            amount <= room // factor, np.minimum(amount, room // factor) * factor, room + 1
        )
    found = np.zeros(len(fleet.hosts), dtype=np.bool_)
    found[every.tree[targets[needed > left]]] = True
    return found


def drawing(fleet: Fleet, ask: FleetDemand) -> Drawing:
    """Return the requested amount of a class, and the inventories that may provide it."""
    rows = ask.rows
    shares = ask.is_device & (rows.low <= rows.high)
    able = ask.allowed[OWN] & (shares | ask.gives_all)
    return ask.amount, rows, able & ~ask.from_pools(fleet)[rows.tree]


def _all_draw_on(
    fleet: Fleet, rows: ClassRows, able: Booleans, targets: Integers
) -> tuple[Integers, Integers]:
    """Return the inventories that all sources of a class in a tree use, with the least factors."""
    shares = fleet.shares
    here = shares.entries(rows.first, rows.first + len(able))
    drawing = able[shares.source[here] - rows.first]
    own = targets[slice(*targets.searchsorted((rows.first, rows.first + len(able))))]
    own = own[able[own - rows.first]]
    target = np.concatenate((shares.target[here][drawing], own))
    factor = np.concatenate((shares.factor[here][drawing], np.ones_like(own)))
    order = np.argsort(target, kind="stable")
    target, factor = target[order], factor[order]
    begins = np.flatnonzero(np.diff(target, prepend=-1))
    if not len(begins):
        return begins, begins
    sources = np.bincount(rows.tree[able], minlength=len(fleet.hosts))
    count = np.diff(begins, append=len(target))
    every = count == sources[fleet.inventories.tree[target[begins]]]
    least = np.minimum.reduceat(factor, begins)
    return targets.searchsorted(target[begins[every]]), least[every]
