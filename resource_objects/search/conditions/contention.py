"""Inventories that several sources draw on: over the whole fleet at once, and on one tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import (
    ClassCondition,
    FleetDemand,
    Sets,
    Supply,
    TreeDemand,
    from_pools,
    left_of,
    members,
)
from resource_objects.search.conditions.base import Cut, Partial
from resource_objects.search.conditions.located import (
    LocatedCondition,
    LocatedTreeDemand,
    Nearness,
)
from resource_objects.search.conditions.located import drawing as drawing_of_located
from resource_objects.search.fleet import ClassRows, Fleet

#: How much of a class is asked for, and which of its inventories may give it.
Drawing: TypeAlias = tuple[int, ClassRows, Booleans]


def contended(fleet: Fleet, drawing: Iterable[Drawing]) -> Booleans:
    """Return the trees in which classes that can only draw on one inventory do not fit there."""
    kept = fleet.inventories
    targets = fleet.shares.targets
    left = left_of(fleet, targets).clip(0)
    needed = np.zeros(len(targets), dtype=np.int64)
    for amount, rows, able in drawing:
        number, factor = _all_draw_on(fleet, rows, able, targets)
        room = left[number]
        # what does not fit by itself counts as one too much, which cannot overflow
        needed[number] += np.where(
            amount <= room // factor, np.minimum(amount, room // factor) * factor, room + 1
        )
    found = np.zeros(len(fleet.hosts), dtype=np.bool_)
    found[kept.tree[targets[needed > left]]] = True
    return found


def drawing(fleet: Fleet, ask: FleetDemand) -> Drawing:
    """Return how much of a class is asked for, and who may give: which of its inventories."""
    rows = ask.rows
    shares = ask.is_device & (rows.low <= rows.high)
    able = ask.own.allowed & (shares | ask.gives_all)
    return ask.amount, rows, able & ~from_pools(fleet, ask)[rows.tree]


def _all_draw_on(
    fleet: Fleet, rows: ClassRows, able: Booleans, targets: Integers
) -> tuple[Integers, Integers]:
    """Return the targets on which all sources of a class in their tree draw, and least factors."""
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


# --- ties ---------------------------------------------------------------------------------------
# Which sources of one tree draw on the same inventories.


#: A source by the number of its class in the request, and its place.
SourceKey: TypeAlias = tuple[int, int]


class Over(NamedTuple):
    """An inventory of which more would be used than is left."""

    target: int
    used: int
    room: int


class Ties:
    """Which sources of a tree draw on which inventories. False if no two draw on the same."""

    def __init__(self, demands: Sequence[TreeDemand]) -> None:
        self.demands = demands
        #: by inventory, what is left
        self.room: dict[int, int] = {}
        #: by source, the inventories drawn on with others, and the factor
        self.links: dict[SourceKey, dict[int, int]] = {}
        for number, demand in enumerate(demands):
            for source, target, factor, room in demand.draws:
                self.room[target] = room
                self.links.setdefault((number, source), {})[target] = factor
        if self.links:
            self._draw_on_themselves()
            self._leave_those_alone()

    def __bool__(self) -> bool:
        return bool(self.links)

    def _draw_on_themselves(self) -> None:
        for ask, demand in enumerate(self.demands):
            for source, number in enumerate(demand.numbers):
                if number in self.room:
                    self.links.setdefault((ask, source), {})[number] = 1

    def _leave_those_alone(self) -> None:
        """Forget inventories on which one source draws alone: it knows what is left."""
        count = dict.fromkeys(self.room, 0)
        for targets in self.links.values():
            for target in targets:
                count[target] += 1
        met = {
            source: {target: factor for target, factor in targets.items() if count[target] > 1}
            for source, targets in sorted(self.links.items())
        }
        self.links = {source: targets for source, targets in met.items() if targets}

    def over(self, plans: Sequence[Supply]) -> list[Over]:
        """Return the inventories of which these parts use more than is left."""
        used: dict[int, int] = {}
        for ask, parts in enumerate(plans):
            for source, part in parts:
                for target, factor in self.links.get((ask, source), {}).items():
                    used[target] = used.get(target, 0) + factor * part
        return [
            Over(target, total, self.room[target])
            for target, total in sorted(used.items())
            if total > self.room[target]
        ]

    def crowded(self, sets: Sets) -> bool:
        """Return whether classes that can only draw on one inventory do not fit there."""
        needed = dict.fromkeys(self.room, 0)
        for ask, demand in enumerate(self.demands):
            sources = members(demand, sets[ask])
            drawn = [self.links.get((ask, source), {}) for source in sources]
            for target in drawn[0] if drawn else ():
                if all(target in links for links in drawn):
                    needed[target] += demand.amount * min(links[target] for links in drawn)
        return any(needed[target] > max(room, 0) for target, room in self.room.items())

    def groups(self, sets: Sets) -> list[list[SourceKey]]:
        """Return the sources of some sets that draw on the same, directly or through others."""
        above: dict[int, int] = {}

        def top(target: int) -> int:
            while above.setdefault(target, target) != target:
                above[target] = above[above[target]]
                target = above[target]
            return target

        keys = [key for key in self.links if sets[key[0]] >> key[1] & 1]
        for key in keys:
            first, *rest = self.links[key]
            for target in rest:
                above[top(target)] = top(first)
        found: dict[int, list[SourceKey]] = {}
        for key in keys:
            found.setdefault(top(next(iter(self.links[key]))), []).append(key)
        return list(found.values())


# --- the condition ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Contention:
    """Classes that draw on the same inventories fit there together."""

    fleet: Fleet
    classes: Sequence[ClassCondition]
    located: Sequence[LocatedCondition]
    nearness: Nearness | None
    decide: Callable[[Sequence[TreeDemand], Sequence[LocatedTreeDemand]], bool]
    overdrawn: Callable[[Sequence[TreeDemand], Sequence[LocatedTreeDemand]], list[Reason]]

    rule = Rule.CAPACITY

    def mask(self) -> Booleans:
        """Return which hosts have room where classes can only draw on one inventory."""
        if not self.fleet.shares or not (len(self.classes) > 1 or self.located):
            return np.ones(len(self.fleet.hosts), dtype=np.bool_)
        every = [drawing(self.fleet, one.demand) for one in self.classes]
        every += [each for one in self.located for each in drawing_of_located(one.demand)]
        return ~contended(self.fleet, every)

    def cuts(self) -> Iterable[Cut]:
        """Return none: it is one of what is decided together."""
        return ()

    def holds(self, tree: int) -> bool:
        """Return whether all can be given at once, whatever their traits."""
        return self._holds(tree, self.classes, self.located)

    def _holds(
        self, tree: int, classes: Sequence[ClassCondition], located: Sequence[LocatedCondition]
    ) -> bool:
        here = [one.of_tree(tree).with_traits(0) for one in classes]
        if not located and not any(one.draws for one in here):
            return True
        return self.decide(here, [one.of_tree(tree).with_traits(0) for one in located])

    def reasons(self, host: Partial) -> list[Reason]:
        """Return what too much is drawn on by those that are not short by themselves."""
        if self.nearness is not None and host.told[self.nearness]:
            return []
        tree = host.tree
        classes = [one for one in self.classes if not host.told[one]]
        located = [one for one in self.located if not host.told[one]]
        if self._holds(tree, classes, located):
            return []
        return self.overdrawn(
            [one.of_tree(tree).with_traits(0) for one in classes],
            [one.of_tree(tree).with_traits(0) for one in located],
        )
