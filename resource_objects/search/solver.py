"""The decision on one tree: who gives what, and who has which trait. Pure Python, pure functions.

Classes seldom compete: each inventory counts one class, and only where several draw on the same
(:mod:`~resource_objects.search.solver`) must they fit together. So what ties them are the required
traits: for each there must be a class all of whose sources have it. The search decides, trait by
trait, which class answers for it; that narrows the sources of the class, and those left at the end
give. Traits that the same sources have are considered once, a trait that leaves one choice is not
a choice, and a set of sources is planned once however often it comes up.

A located amount is one more class, given by the parts it is put on; who may be among them is
narrowed like any sources, and inventories decide, of all such amounts at once
(:mod:`~resource_objects.search.conditions.located`).

Choosing classes for many traits is a hard problem in general (it covers sets), so every trial is
paid for from a budget.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from resource_objects.exceptions import SearchLimitReached
from resource_objects.reasons import Reason
from resource_objects.resources import Amount
from resource_objects.resources.backtracking import CutShort, Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.search.conditions.amounts import (
    Decision,
    Sets,
    Supply,
    TreeDemand,
    members,
    plan,
    shared,
    splits,
)
from resource_objects.search.conditions.contention import Over, Ties
from resource_objects.search.conditions.located import Assigned, LocatedTreeDemand, Placing, Used
from resource_objects.search.fleet import Fleet
from resource_objects.search.placements import no_placement, placements

#: How many traits are looked at before one is chosen to go on with.
_LOOK_AHEAD = 8


class _Planner:
    """Who gives one class, for any set of sources; each set is planned once."""

    def __init__(self, demand: TreeDemand, budget: Budget) -> None:
        self._demand = demand
        self._budget = budget
        self._known: dict[int, Supply | None] = {}

    def plan(self, sources: int) -> Supply | None:
        if sources not in self._known:
            self._known[sources] = plan(self._demand, sources, self._budget)
        return self._known[sources]


class _Locator:
    """Where a located amount would go by itself, for any set of parts."""

    def __init__(self, alone: Placing, budget: Budget) -> None:
        self._alone = alone
        self._budget = budget

    def plan(self, parts: int) -> Assigned | None:
        return self._alone.fit([parts], self._budget)


#: What may still give, and the traits that are not answered for yet (the sources that have each).
_State = tuple[Sets, tuple[Sets, ...]]


def decide(
    asks: Sequence[TreeDemand],
    budget: Budget,
    located: Sequence[LocatedTreeDemand] = (),
    taken: Used | None = None,
) -> Decision | None:
    """Return who gives each class, with every required trait answered for; None if nobody can.

    :param taken: what others of the same request use of inventories; the asks know it already
    :raises SearchLimitReached: if the budget runs out first: neither yes nor no
    :raises CutShort: if a located amount's own decision did not end
    """
    placing = Placing(located, taken)
    found = _TreeDecision(asks, placing, budget).decide()
    if found is None and any(one.cut_short for one in (placing, *placing.alone)):
        raise CutShort(budget.allowed)
    return found


class _TreeDecision:
    """The decision while it is made. Sets are those of the counts, then of what is located."""

    def __init__(self, asks: Sequence[TreeDemand], placing: Placing, budget: Budget) -> None:
        self._asks = asks
        self._placing = placing
        self._located = placing.located
        self._budget = budget
        self._planners = [_Planner(demand, budget) for demand in asks]
        self._locators = [_Locator(alone, budget) for alone in placing.alone]

    def decide(self) -> Decision | None:
        every: Sequence[TreeDemand | LocatedTreeDemand] = (*self._asks, *self._located)
        allowed = tuple(demand.allowed for demand in every)
        if self._plans(allowed) is None:
            return None
        ties = Ties(self._asks)
        traits = tuple(sorted(set(zip(*(demand.with_trait for demand in every), strict=True))))

        def expand(state: _State) -> Iterator[_State | Solution[Decision]]:
            unanswered = _unanswered(*state)
            if unanswered:
                yield from self._choices(state[0], unanswered)
            elif (found := self._together(state[0], ties)) is not None:
                yield Solution(found)

        return next(solutions((allowed, traits), expand, self._budget, lambda state: state), None)

    def _together(self, sources: Sets, ties: Ties) -> Decision | None:
        """Return who of some sets gives what, each as if alone where that fits."""
        found = self._plans(sources)
        if found is None:
            return None
        if ties and ties.over(found.plans):
            plans = solve_joint(ties, sources[: len(self._asks)], self._budget)
            if plans is None:
                return None
            found = found._replace(plans=plans)
        alone = len(self._asks) + len(self._located) == 1 or not self._located
        if alone or not overdrawn(self._asks, self._placing, found):
            return found
        return solve_residual(self._asks, self._placing, sources, self._budget)

    def _plans(self, sources: Sets) -> Decision | None:
        """Return who gives each class of its set, None if some class is not given."""
        plans: list[Supply] = []
        for planner, each in zip(self._planners, sources, strict=False):
            parts = planner.plan(each)
            if parts is None:
                return None
            plans.append(parts)
        assigned: Assigned | None = ()
        if self._located:
            assigned = self._placing.fit(sources[len(plans) :], self._budget)
        return None if assigned is None else Decision(tuple(plans), assigned)

    def _choices(self, sources: Sets, traits: tuple[Sets, ...]) -> Iterator[_State]:
        """Yield what each class that can answer for one trait would leave.

        That trait is the one with the fewest such classes among the next few: with none, nothing
        is yielded; with one, it is no choice.
        """
        options: dict[int, list[Sets]] = {}
        for number, having in enumerate(traits[:_LOOK_AHEAD]):
            options[number] = self._options(sources, having)
            if len(options[number]) < 2:
                break
        fewest = min(options, key=lambda number: len(options[number]))
        rest = traits[:fewest] + traits[fewest + 1 :]
        for narrowed in options[fewest]:
            yield narrowed, rest

    def _options(self, sources: Sets, having: Sets) -> list[Sets]:
        """Return, for each class that can answer for a trait, the sets of sources that remain."""
        planners: Sequence[_Planner | _Locator] = (*self._planners, *self._locators)
        return [
            (*sources[:number], sources[number] & has, *sources[number + 1 :])
            for number, has in enumerate(having)
            if planners[number].plan(sources[number] & has) is not None
        ]


def _unanswered(sources: Sets, traits: tuple[Sets, ...]) -> tuple[Sets, ...]:
    """Leave out the traits that some class answers for, whichever of its sources give."""
    return tuple(
        having
        for having in traits
        if all(each & ~has for each, has in zip(sources, having, strict=True))
    )


# --- shared capacity ----------------------------------------------------------------------------
# Sources that draw on the same inventory: who gives what, when not everything fits everywhere.
#
# What is taken of a NUMA cell is taken of its host too, and each profile of a partitioned device
# uses slices of it. A source alone knows that: what is free to it is the least of what is left
# wherever it draws. But two sources that draw on one inventory, of one class or of two, must fit
# there together.
#
# That is rare, so first everybody gives as if alone, and only if the sum does not fit somewhere the
# sources that meet are tried together: one after the other, and group by group (those that no
# inventory ties to the rest), so that what is left in a group is forgotten when its sources are
# through. A state that led nowhere is not tried twice, and no more is asked of the rest than they
# could give. The problem contains the packing of knapsacks, so each trial is paid for from a
# budget. The search is complete: None means that there is no way. Where there are several, the
# first is taken, trying who comes first and what is most first.


def solve_joint(ties: Ties, sets: Sets, budget: Budget) -> tuple[Supply, ...] | None:
    """Return who of some sets gives how much, with room for all of it; None if they cannot.

    :raises SearchLimitReached: if the budget runs out first
    """
    return None if ties.crowded(sets) else _JointSearch(ties, sets, budget).run()


class _JointSource(NamedTuple):
    """A source that meets others, at its place in the order."""

    ask: int
    place: int
    targets: tuple[tuple[int, int], ...]  #: place among those of its group, and factor


#: What is not given yet, by class.
_Left = tuple[int, ...]
#: What is left of the inventories of a group.
_Rooms = tuple[int, ...]
#: How many sources have given, what is not given yet, and what is left.
_JointState = tuple[int, _Left, _Rooms]


class _JointSearch:
    """The joint decision on some sets of sources."""

    def __init__(self, ties: Ties, sets: Sets, budget: Budget) -> None:
        self._asks = ties.demands
        self._budget = budget
        self._sources: list[_JointSource] = []
        self._opening: dict[int, _Rooms] = {}  # by the first source of each group
        others = list(sets)
        for group in ties.groups(sets):
            targets = dict.fromkeys(target for key in group for target in ties.links[key])
            numbers = {target: number for number, target in enumerate(targets)}
            self._opening[len(self._sources)] = tuple(ties.room[target] for target in targets)
            for ask, place in group:
                links = ties.links[ask, place].items()
                used = tuple((numbers[target], factor) for target, factor in links)
                self._sources.append(_JointSource(ask, place, used))
                others[ask] &= ~(1 << place)
        self._opening[len(self._sources)] = ()  # after the last one nothing of them counts
        self._others = others  # those who meet nobody
        self._known: dict[tuple[int, int], Supply | None] = {}
        self._reach = self._reaches()

    def run(self) -> tuple[Supply, ...] | None:
        self._given = [0] * len(self._sources)
        start = 0, tuple(demand.amount for demand in self._asks), self._opening[0]
        return next(solutions(start, self._expand, self._budget, lambda state: state), None)

    def _expand(self, state: _JointState) -> Iterator[_JointState | Solution[tuple[Supply, ...]]]:
        place, left, rooms = state
        if not self._in_reach(place, left):
            return
        if place < len(self._sources):
            for part, after, rest in self._steps(place, left, rooms):
                self._given[place] = part
                yield place + 1, after, self._opening.get(place + 1, rest)
        elif (found := self._finished(left, self._given)) is not None:
            yield Solution(found)

    def _steps(self, place: int, left: _Left, rooms: _Rooms) -> Iterator[_JointState]:
        """Yield what a source may give, and what is left then; the most first, nothing last."""
        source = self._sources[place]
        later = self._reach[place + 1][0][source.ask]
        for part in self._parts(source, left[source.ask], left[source.ask] - later, rooms):
            after = list(rooms)
            for target, factor in source.targets:
                after[target] -= factor * part
            yield part, _less(left, source.ask, part), tuple(after)
        yield 0, left, rooms

    def _parts(self, source: _JointSource, left: int, least: int, rooms: _Rooms) -> range:
        """Return what a source may give above nothing, when ``least`` is what others cannot."""
        demand = self._asks[source.ask]
        low, high, step, is_device = demand.sources[source.place]
        most = min(high, left, *(rooms[target] // factor for target, factor in source.targets))
        if is_device:
            return range(most // step * step, max(low, least) - 1, -step)
        if most == demand.amount and demand.sources[source.place].gives(most):
            return range(most, most + 1)
        return range(0)

    def _finished(self, left: _Left, given: Sequence[int]) -> tuple[Supply, ...] | None:
        """Return all parts, those of who meets nobody too; None if they cannot give the rest."""
        found: list[list[tuple[int, int]]] = [[] for _ in self._asks]
        for ask, rest in enumerate(left):
            parts = self._rest(ask, rest) if rest else ()
            if parts is None:
                return None
            found[ask] += parts
        for source, part in zip(self._sources, given, strict=True):
            if part:
                found[source.ask].append((source.place, part))
        return tuple(tuple(sorted(parts)) for parts in found)

    def _rest(self, ask: int, rest: int) -> Supply | None:
        """Return how those who meet nobody give the rest of a class."""
        if (ask, rest) not in self._known:
            demand, sources = self._asks[ask], self._others[ask]
            if rest == demand.amount:
                parts = plan(demand, sources, self._budget)
            else:
                parts = shared(demand, sources, rest, self._budget)
            self._known[ask, rest] = parts
        return self._known[ask, rest]

    # --- what can be given from some place on ---

    def _in_reach(self, place: int, left: _Left) -> bool:
        sums, alone = self._reach[place]
        return all(
            rest <= sums[ask] or (alone[ask] and rest == self._asks[ask].amount)
            for ask, rest in enumerate(left)
        )

    def _reaches(self) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
        """Return, by place, how much devices could give, and whether another could give all."""
        sums, alone = [0] * len(self._asks), [False] * len(self._asks)

        def count(ask: int, place: int) -> None:
            source = self._asks[ask].sources[place]
            if source.is_device:
                sums[ask] += source.high if source.high >= source.low else 0
            elif source.gives(self._asks[ask].amount):
                alone[ask] = True

        for ask, demand in enumerate(self._asks):
            for place in members(demand, self._others[ask]):
                count(ask, place)
        found = [(tuple(sums), tuple(alone))]
        end, later = len(self._sources), tuple(sums)
        for number in range(len(self._sources) - 1, -1, -1):
            count(self._sources[number].ask, self._sources[number].place)
            if number in self._opening:
                for ask, most in self._most(number, end).items():
                    sums[ask] = min(sums[ask], later[ask] + most)
                end, later = number, tuple(sums)
            found.append((tuple(sums), tuple(alone)))
        return found[::-1]

    def _most(self, start: int, end: int) -> dict[int, int]:
        """Return the most that a group gives of a class whose sources all draw on one inventory."""
        found: dict[int, int] = {}
        for target, room in enumerate(self._opening[start]):
            factors: dict[int, list[int]] = {}
            for source in self._sources[start:end]:
                factors.setdefault(source.ask, []).append(dict(source.targets).get(target, 0))
            for ask, each in factors.items():
                if min(each):
                    most = max(0, room) // min(each)
                    found[ask] = min(found.get(ask, most), most)
        return found


def _less(left: _Left, ask: int, part: int) -> _Left:
    return (*left[:ask], left[ask] - part, *left[ask + 1 :])


# --- residual -----------------------------------------------------------------------------------
# Counts beside located amounts that draw on the same inventories: who gives what, together.
#
# That is rare: a count that a located amount stands for is no count (D1), and what a part has of
# its host's is the host's to give. But huge pages may be counted too, and a device may draw on
# the memory of its host. So first both are decided as if alone, and only if the sum does not fit
# somewhere
#
# 1. the counts are decided on what the located amounts leave, as they are;
# 2. the located amounts are decided on what the counts leave, for every way to give those counts
# that    come near them.
#
# The second is complete. It may try much, so each trial is paid for from the budget.


#: What is left of an inventory, by its number.
Left = Callable[[int], int]
#: A way to give some classes, by their number in the request.
_Way = dict[int, Supply]


def overdrawn(asks: Sequence[TreeDemand], placing: Placing, found: Decision) -> list[Over]:
    """Return the inventories that located amounts use and of which more is used than is left."""
    located = placing.located
    if not _may_meet(asks, located, found.plans):
        return []
    used = _used(located, found.assigned)
    theirs = set(used)
    for demand, parts in zip(asks, found.plans, strict=True):
        for source, part in parts:
            _add(used, (each for each in demand.drawn(source, part) if each[0] in theirs))
    return [
        Over(number, count, placing.left(number))
        for number, count in sorted(used.items())
        if count > placing.left(number)
    ]


def _may_meet(
    asks: Sequence[TreeDemand], located: Sequence[LocatedTreeDemand], plans: Iterable[Supply]
) -> bool:
    """Return whether several of them draw on the same, looking at classes alone."""
    classes: set[str] = set()
    for one in located:
        if not classes.isdisjoint(one.ask.classes):
            return True
        classes |= one.ask.classes
    fleet = located[0].ask.fleet
    return any(
        fleet.class_of(number) in classes
        for demand, parts in zip(asks, plans, strict=True)
        for source, part in parts
        for number, _ in demand.drawn(source, part)
    )


def _used(located: Sequence[LocatedTreeDemand], assigned: Assigned) -> dict[int, int]:
    """Return what assigned amounts use of inventories, through shares too."""
    found: dict[int, int] = {}
    for one, each in zip(located, assigned, strict=True):
        _add(found, one.uses(each).items())
    return found


def solve_residual(
    asks: Sequence[TreeDemand], placing: Placing, sets: Sets, budget: Budget
) -> Decision | None:
    """Return who of some sets gives what, with room for all of it; None if they cannot.

    :param sets: of the counts, then of the located amounts
    :raises SearchLimitReached: if the budget runs out first
    """
    return _ResidualSearch(asks, placing, sets, budget).run()


class _ResidualSearch:
    """The decision on some sets."""

    def __init__(
        self, asks: Sequence[TreeDemand], placing: Placing, sets: Sets, budget: Budget
    ) -> None:
        self._asks = asks
        self._placing = placing
        self._located = placing.located
        self._sets = sets[: len(asks)]
        self._parts = sets[len(asks) :]
        self._budget = budget
        self._left: Left = placing.left

    def run(self) -> Decision | None:
        return self._located_first() or self._counts_first()

    def _located_first(self) -> Decision | None:
        assigned = self._locate({})
        if assigned is None:
            return None
        every = dict(enumerate(self._asks))
        plans = self._count(every, _used(self._located, assigned))
        return None if plans is None else Decision(tuple(plans.values()), assigned)

    def _counts_first(self) -> Decision | None:
        near = [number for number, demand in enumerate(self._asks) if self._is_near(number, demand)]
        rest = {n: demand for n, demand in enumerate(self._asks) if n not in near}
        start: tuple[_Way, Used] = {}, {}
        expand = functools.partial(self._expand, near)
        for way, used in solutions(start, expand, self._budget):
            assigned = self._locate(used)
            plans = None if assigned is None else self._count(rest, used)
            if assigned is not None and plans is not None:
                every = {**way, **plans}
                return Decision(tuple(every[n] for n in range(len(self._asks))), assigned)
        return None

    def _is_near(self, number: int, demand: TreeDemand) -> bool:
        """Return whether somebody who may give draws on what a located amount may use."""
        return any(
            target in self._placing.reach
            for source in members(demand, self._sets[number])
            for target, _ in demand.drawn(source, 1)
        )

    def _locate(self, used: Used) -> Assigned | None:
        """Return the located amounts assigned, beside what is used and each other."""
        found = self._placing.fit(self._parts, self._budget, used)
        if found is None or self._has_room(found, used):
            return found
        found = self._one_by_one(used)
        self._placing.cut_short |= found is None  # some of them might leave more elsewhere
        return found

    def _has_room(self, assigned: Assigned, used: Used) -> bool:
        """Return whether located amounts fit beside each other wherever they draw on the same."""
        total = _used(self._located, assigned)
        return all(n + used.get(key, 0) <= self._left(key) for key, n in total.items())

    def _one_by_one(self, used: Used) -> Assigned | None:
        """Return them assigned, each beside what those before it use, if they go together."""
        found: list[Amount] = []
        total = dict(used)
        for alone, parts in zip(self._placing.alone, self._parts, strict=True):
            assigned = alone.fit([parts], self._budget, total)
            if assigned is None:
                return None
            found += assigned
            _add(total, _used(alone.located, assigned).items())
        return self._placing.checked(self._parts, tuple(found))

    def _count(self, asks: dict[int, TreeDemand], used: Used) -> _Way | None:
        """Return who gives some classes, beside what is used."""
        rest = [residual(demand, used, self._left) for demand in asks.values()]
        sets = tuple(self._sets[number] for number in asks)
        plans = together(rest, sets, self._budget)
        return None if plans is None else dict(zip(asks, plans, strict=True))

    def _expand(
        self, numbers: Sequence[int], state: tuple[_Way, Used]
    ) -> Iterator[tuple[_Way, Used] | Solution[tuple[_Way, Used]]]:
        """Yield every way to give one more of some classes that fits, with what all use."""
        way, used = state
        if len(way) == len(numbers):
            yield Solution(state)
            return
        number = numbers[len(way)]
        demand = residual(self._asks[number], used, self._left)
        for parts in alternatives(demand, self._sets[number], self._budget):
            total = dict(used)
            for source, part in parts:
                _add(total, demand.drawn(source, part))
            if all(count <= self._left(place) for place, count in total.items()):
                yield {**way, number: parts}, total


def together(asks: Sequence[TreeDemand], sets: Sets, budget: Budget) -> tuple[Supply, ...] | None:
    """Return who of some sets gives each class, with room for all of it; None if they cannot."""
    found: list[Supply] = []
    for demand, sources in zip(asks, sets, strict=True):
        parts = plan(demand, sources, budget)
        if parts is None:
            return None
        found.append(parts)
    ties = Ties(asks)
    return solve_joint(ties, sets, budget) if ties and ties.over(found) else tuple(found)


def residual(demand: TreeDemand, used: Used, left: Left) -> TreeDemand:
    """Return the same asked where more is used of some inventories."""
    if not used:
        return demand
    draws = tuple(draw._replace(room=draw.room - used.get(draw.target, 0)) for draw in demand.draws)
    room = {
        source: left(number) - used[number]
        for source, number in enumerate(demand.numbers)
        if number in used
    }
    for draw in draws:
        if draw.target in used:
            most = draw.room // draw.factor
            room[draw.source] = min(most, room.get(draw.source, most))
    sources = list(demand.sources)
    for place, most in room.items():
        source = sources[place]
        sources[place] = source._replace(high=min(source.high, most // source.step * source.step))
    return dataclasses.replace(demand, sources=tuple(sources), draws=draws)


def alternatives(demand: TreeDemand, sources: int, budget: Budget) -> Iterator[Supply]:
    """Yield every way in which one of some sources, or several devices, give all of a class."""
    places = members(demand, sources)
    for place in places:
        budget.spend()
        if demand.sources[place].gives(demand.amount):
            yield ((place, demand.amount),)
    devices = [[place] for place in places if demand.sources[place].is_device]
    yield from splits(demand, devices, budget)


def _add(used: dict[int, int], more: Iterable[tuple[int, int]]) -> None:
    for number, count in more:
        used[number] = used.get(number, 0) + count


# --- what does not fit together -----------------------------------------------------------------

#: Steps that explaining may take to find out whether some providers can give a class.
PATIENCE = 10_000


def does_not_fit(
    fleet: Fleet, asks: Sequence[TreeDemand], located: Sequence[LocatedTreeDemand] = ()
) -> list[Reason]:
    """Return the inventories of which too much is used if each class is given as if alone.

    Nothing if some class cannot be given even so.
    """
    try:
        plans = [plan(demand, demand.allowed, Budget(PATIENCE)) for demand in asks]
        within = [one.allowed for one in located]
        assigned = Placing(located).fit(within, Budget(PATIENCE)) if located else ()
    except SearchLimitReached:
        return []
    if assigned is None or any(parts is None for parts in plans):
        return []
    found = Decision(tuple(parts for parts in plans if parts is not None), assigned)
    full = {one.target: one for one in Ties(asks).over(found.plans)}
    if located:
        full |= {one.target: one for one in overdrawn(asks, Placing(located), found)}
    if full and fleet.shares:
        reason = _without_placements(fleet, asks)
        if reason is not None:
            return [reason]
    return [_is_full(fleet, over.target, over.used) for over in full.values()]


def _without_placements(fleet: Fleet, asks: Sequence[TreeDemand]) -> Reason | None:
    """Return the reason that the placements of partitions exclude each other, if that is so.

    It is about the first profile that cannot be given next to those before it.
    """
    profiles: list[TreeDemand] = []
    for ask in asks:
        inventories = [ask.numbers[place] for place in members(ask, ask.allowed)]
        if not placements(fleet)[inventories].all():
            continue
        if not can([*profiles, ask]):
            free = _most_next_to(profiles, ask)
            host = fleet.hosts[int(fleet.inventories.tree[inventories[0]])]
            beside = [(fleet.class_of(one.numbers[0]), one.amount) for one in profiles]
            return no_placement(fleet, host, ask.amount, inventories, free, beside)
        profiles.append(ask)
    return None


def _most_next_to(others: Sequence[TreeDemand], ask: TreeDemand) -> int:
    """Return the largest amount of a demand that can be given next to others."""
    least, too_much = 0, ask.amount
    while too_much - least > 1:
        amount = (least + too_much) // 2
        if can([*others, dataclasses.replace(ask, amount=amount)]):
            least = amount
        else:
            too_much = amount
    return least


def _is_full(fleet: Fleet, inventory: int, amount: int) -> Reason:
    rows = fleet.inventories
    return Reason(
        fleet.rule_of([inventory]),
        amount,
        bound=int(rows.capacity[inventory]),
        used=int(rows.used[inventory]),
        resource=fleet.class_of(inventory),
        where=fleet.names[int(rows.provider[inventory])],
        holders=fleet.holders([inventory]),
    )


def can(asks: Sequence[TreeDemand], located: Sequence[LocatedTreeDemand] = ()) -> bool:
    """Return whether classes can be given, or whether that takes too long to find out."""
    try:
        return decide(asks, Budget(PATIENCE), located) is not None
    except SearchLimitReached:
        return True
