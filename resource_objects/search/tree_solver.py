"""The search on one tree: one search by backtracking decides who provides what.

Its steps are, in this order:

1. each named group, assigned to one provider (:mod:`.named_groups`);
2. each *family* of classes of the unnamed group: one class, or several that draw on the same
   inventories. One source provides all of a class, or devices provide parts of it;
3. the placed amounts, in one step: their inventories decide together (:class:`.demands.Placing`).

Before each step one bound decides whether the rest may still be provided: each class from the
sources that remain, with a class or placed amount left for each required trait. A trait that one
class alone can answer for narrows the sources of that class.

The search is complete: it ends without a solution only where none exists. Equal providers in the
same state are tried once. A state that led to no solution is remembered by what the rest depends
on. Packing groups, dividing amounts by several unit rules and covering traits by classes are hard
problems in general, so a budget pays for each step.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources import Amount, resource
from resource_objects.resources.backtracking import CutShort, Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.resources.located import Identified
from resource_objects.search.demands import (
    Assigned,
    LocatedTreeDemand,
    PartSets,
    Placing,
    Supply,
    TreeDemand,
    bits,
    members,
)
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet
from resource_objects.search.named_groups import GroupSteps, Named
from resource_objects.search.split import split

#: The number of sources that are examined for one step of the budget.
_SOURCES_PER_STEP = 16
#: The number of states of used inventories that are remembered.
_REMEMBERED = 10_000
#: The steps that an explanation may take to decide whether something can be provided.
PATIENCE = 10_000


class TreeSolution(NamedTuple):
    """One way to provide a request on a tree."""

    groups: tuple[tuple[int, int], ...]  #: ``(kind, provider)`` of each named group
    parts: tuple[Supply, ...]  #: by class of the unnamed group, ``(source, amount)``
    assigned: Assigned  #: the placed amounts, each assigned


#: A place in the search: a step; in a family, the next source (else -1) and what is left by class.
_State: TypeAlias = tuple[int, int, tuple[int, ...]]
#: What follows on a state: further states, and solutions; None for one that was found before.
_Next: TypeAlias = _State | Solution[TreeSolution | None]


class TreeSolver:
    """The search on one tree. It may be left and continued."""

    def __init__(
        self,
        fleet: Fleet,
        tree: int,
        budget: Budget,
        classes: Sequence[TreeDemand] = (),
        located: Sequence[LocatedTreeDemand] = (),
        groups: GroupSteps | None = None,
        *,
        needs_own: bool = False,
    ) -> None:
        """Prepare a search.

        :param classes: the counts of the unnamed group, :param located: its placed amounts
        :param needs_own: whether a provider of the tree itself must provide something
        """
        self.fleet = fleet
        self.classes = tuple(classes)
        self.located = tuple(located)
        self._tree = tree
        self._budget = budget
        self._groups = groups
        self._needs_own = needs_own
        self._placing = Placing(located) if located else None
        self._families = _families(self.classes)
        self._first_family = len(groups.kinds) if groups is not None else 0
        self._end = self._first_family + len(self._families)
        with_trait = [demand.with_trait for demand in self.classes]
        with_trait += [demand.with_trait for demand in self.located]
        #: by required trait, the sources of each class and the parts of each placed amount with it
        self.traits = tuple(dict.fromkeys(zip(*with_trait, strict=True)))
        #: by class and source, the traits that it has, as bits; empty where no trait is required
        self.has = tuple([[0] * len(demand.sources) for demand in self.classes if self.traits])
        for trait, having in enumerate(self.traits):
            for demand, has, sources in zip(self.classes, self.has, having, strict=False):
                for source in members(demand, sources) if sources else ():
                    has[source] |= 1 << trait
        self._open = (1 << len(self.traits)) - 1  # the traits that nothing answers for yet
        #: by inventory, the amount that the solution uses so far
        self.used: dict[int, int] = {} if groups is None else groups.used
        self._parts: list[Supply] = [()] * len(self.classes)
        self._shares: list[_Shares] = []
        self._owned = 0  # how often a provider of the tree itself provides something
        self._found = 0
        self._is_done = False
        self._rests: dict[Hashable, _Rest] = {}
        self._serial = 0

    def solutions(self) -> Iterator[TreeSolution]:
        """Yield the solutions, preferred providers first; of equal providers one.

        :raises SearchLimitReached: if the budget runs out first
        :raises CutShort: at the end, if no solution was found and the decision about a placed
            amount came to its own bound
        """
        self._budget.spend()
        self._rest = self._next_to_groups()
        if self._sets(0) is not None and (self._groups is None or self._groups.may_finish()):
            # step -1: nothing is requested
            start: _State = 0 if self._end or self.located else -1, -1, ()
            found = solutions(start, self._expand, self._budget, self._key, cost=0)
            yield from filter(None, found)
        if not self._found and self._is_cut_short:
            raise CutShort(self._budget.allowed)

    def leave_assignment(self) -> None:
        """Look no further with the named groups as they are assigned in the last solution."""
        self._is_done = True

    @property
    def _is_cut_short(self) -> bool:
        """Whether a decision about placed amounts came to its own bound."""
        placing = self._placing
        return placing is not None and any(one.cut_short for one in (placing, *placing.alone))

    # --- steps ---

    def _expand(self, state: _State) -> Iterator[_Next]:
        step, place, _ = state
        if place >= 0:
            return self._provide_part(state)
        if step < 0:
            return filter(None, (self._after(-1),))
        if step < self._first_family:
            return self._assign_group(step)
        return self._place() if step == self._end else self._provide(step)

    def _after(self, step: int) -> _Next | None:
        """Return the state after a step or, after the last, the solution if it is one."""
        if step + 1 < self._end or self.located:
            return step + 1, -1, ()
        if self._open or (self._needs_own and not self._owned):
            return None
        return self._solution(())

    def _assign_group(self, step: int) -> Iterator[_Next]:
        """Assign the next group to each provider that can have it."""
        groups, rest = self._groups, self._rest
        assert groups is not None, "a step assigns a group"
        for place in groups.choices(step):
            self._budget.spend(groups.cost)
            groups.assign(step, place)
            own = self.is_own(groups.providers[place])
            self._owned += own
            if groups.may_finish():
                if not self._reach.isdisjoint(groups.uses(step)):
                    self._rest = self._next_to_groups()
                if self._sets(0) is not None and (following := self._after(step)) is not None:
                    self._is_done = False
                    yield following
            groups.unassign(step)
            self._owned -= own
            self._rest = rest

    def _provide(self, step: int) -> Iterator[_Next]:
        """Let sources provide a family."""
        self._budget.spend(int(step > 0))  # the search pays for the first step
        sets = self._sets(step - self._first_family)
        assert sets is not None, "the step before asked"
        plan = self._plan_of_single(step, sets)
        return self._provide_family(step, sets) if plan is None else self._provide_as(step, plan)

    def _plan_of_single(self, step: int, sets: Sequence[int]) -> dict[int, Supply] | None:
        """Return how a family of one class with a single source is provided; None for another."""
        classes = self._families[step - self._first_family].classes
        sources = sets[classes[0]]
        if len(classes) > 1 or sources & (sources - 1):
            return None
        return {classes[0]: self._plan(classes[0], sources)}

    def _provide_family(self, step: int, sets: Sequence[int]) -> Iterator[_Next]:
        """Let sources provide all classes of a family as if alone, one by one, or in parts."""
        family, count = self._families[step - self._first_family], self._found
        plans: dict[int, Supply] = {}
        for number in family.classes:
            plans[number] = self._plan(number, self._preferred(number, sets[number]))
        number, is_one = family.classes[0], len(family.classes) == 1
        # one source that provides all of the only class comes below, with those like it
        if not (is_one and len(plans[number]) == 1) and self._fit_together(family, plans):
            yield from self._provide_as(step, plans)
        tried = plans if self._found > count else {}
        if is_one and not self._is_done:
            yield from self._provide_whole(step, number, sets[number])
        if not self._is_done and not (is_one and not self.classes[number].is_divisible):
            self._serial += 1
            shares = _Shares(self, family, sets, self._rest.highs, tried, self._serial)
            if len(shares.sources) > is_one:
                self._shares.append(shares)
                yield step, 0, shares.amounts
                self._shares.pop()

    def _fit_together(self, family: _Family, plans: Mapping[int, Supply]) -> bool:
        """Return whether classes that are provided as if alone fit wherever they meet."""
        if not family.links:
            return True
        total: Counter[int] = Counter()
        for number, plan in plans.items():
            for source, part in plan:
                total.update(dict(self.classes[number].drawn(source, part)))
        total.update({number: self.used.get(number, 0) for number in total})
        return all(count <= self.fleet.left(number) for number, count in total.items())

    def _provide_whole(self, step: int, number: int, sources: int) -> Iterator[_Next]:
        """Let each source provide all of a class that can, those that are preferred first."""
        demand, highs = self.classes[number], self._rest.highs[number]
        preferred = self._preferred(number, sources)
        tried: set[Hashable] = set()
        places = [*members(demand, preferred), *members(demand, sources & ~preferred)]
        able = [place for place in places if demand.provides(place, highs)]
        for at, place in enumerate(able):
            if at == 1:
                tried.add(self.state_of(self.provider(number, able[0])))
            if at:
                state = self.state_of(self.provider(number, place))
                if state in tried:
                    continue
                self._budget.spend()  # the plan pays for the first
                tried.add(state)
            yield from self._provide_as(step, {number: ((place, demand.amount),)})
            if self._is_done:
                return

    def _provide_part(self, state: _State) -> Iterator[_Next]:
        """Let the next source of a family provide each part that it can, or nothing."""
        shares, (step, place, left) = self._shares[-1], state
        if not shares.may_provide(place, left):
            return
        self._budget.spend()
        for part in shares.parts_of(place, left):
            rest = shares.give(place, part, left)
            if any(rest):
                yield step, place + 1, rest
            elif shares.is_tried():
                yield Solution(None)
            else:
                yield from self._provide_as(step, shares.by_class())
            shares.take_back()
            if self._is_done:
                return
        yield step, place + 1, left

    def _provide_as(self, step: int, parts: dict[int, Supply]) -> Iterator[_Next]:
        """Let sources provide all of a family and the next ones with a single source; continue."""
        before = self._open
        self._take(parts)
        sets = self._sets(step + 1 - self._first_family)
        while sets is not None and step + 1 < self._end:
            plan = self._plan_of_single(step + 1, sets)
            if plan is None:
                break
            self._budget.spend()
            self._take(plan)
            parts = parts | plan
            step += 1
            sets = self._sets(step + 1 - self._first_family)
        if sets is not None and (following := self._after(step)) is not None:
            yield following
        self._open = before
        for number, supply in parts.items():
            self._parts[number] = ()
            for source, part in supply:
                self._book(number, source, part, -1)

    def _take(self, parts: Mapping[int, Supply]) -> None:
        """Note what sources provide, and the traits that they answer for."""
        for number, supply in parts.items():
            self._parts[number] = supply
            answered = self._open
            for source, part in supply:
                self._book(number, source, part, 1)
                if answered:
                    answered &= self.has[number][source]
            self._open &= ~answered

    def _book(self, number: int, source: int, part: int, sign: int) -> None:
        """Note what a source provides, or (sign -1) remove the note."""
        if self._needs_own:
            self._owned += sign * self.is_own(self.provider(number, source))
        if self.located:
            for inventory, count in self.classes[number].drawn(source, part):
                self.used[inventory] = self.used.get(inventory, 0) + sign * count

    def _solution(self, assigned: Assigned) -> Solution[TreeSolution | None]:
        self._found += 1
        groups = () if self._groups is None else self._groups.assigned()
        return Solution(TreeSolution(groups, tuple(self._parts), assigned))

    # --- what the rest depends on ---

    def _key(self, state: _State) -> Hashable:
        step, place, left = state
        if place >= 0:
            return self._shares[-1].key(place, left)
        if step < self._first_family:
            return step, self._groups.key(step) if self._groups is not None else None
        near, uses = self.reach_of_located, self.used.items() if self.located else ()
        used = tuple(sorted([(n, count) for n, count in uses if count and n in near]))
        return step, self._open, self._owned > 0, self._rest.key, used

    @property
    def reach_of_located(self) -> frozenset[int]:
        """The inventories that placed amounts may use."""
        return frozenset() if self._placing is None else self._placing.reach

    def provider(self, number: int, source: int) -> int:
        """Return the provider of a source of a class."""
        return int(self.fleet.inventories.provider[self.classes[number].numbers[source]])

    def state_of(self, provider: int) -> Hashable:
        """Return a key that equal providers in the same state have in common."""
        groups = () if self._groups is None else self._groups.held_by(provider)
        like = equivalence(self.fleet).of(self.fleet, provider)
        parts = [(n, at, part) for n, supply in enumerate(self._parts) for at, part in supply]
        provided = [(n, part) for n, at, part in parts if self.provider(n, at) == provider]
        return like, groups, tuple(provided)

    def is_own(self, provider: int) -> bool:
        """Return whether a provider is of the tree itself, if one of these has to be."""
        return self._needs_own and int(self.fleet.tree[provider]) == self._tree

    @functools.cached_property
    def _reach(self) -> frozenset[int]:
        """The inventories that the unnamed group may use."""
        numbers = {number for demand in self.classes for number in demand.numbers}
        numbers.update(draw.target for demand in self.classes for draw in demand.draws)
        numbers.update(number for one in self.located if one.places for number in one.reach)
        return frozenset(numbers)

    # --- the unnamed group next to the named ones ---

    def _next_to_groups(self) -> _Rest:
        """Return the unnamed group next to the named groups as they are assigned."""
        used: dict[int, tuple[int, int]] = {}  # by inventory, with shares and without
        if self._groups is not None and self._groups.chosen:
            own, every = self._groups.own, self.used.items()
            used = {n: (count, own[n]) for n, count in every if count and n in self._reach}
        key = tuple(used.items())  # the inventories of groups are always in one order
        if key not in self._rests:
            if len(self._rests) == _REMEMBERED:
                self._rests.clear()
            self._rests[key] = _Rest(
                highs=tuple([self._highs(demand, used) for demand in self.classes]),
                located=tuple([_parts_without(self.fleet, one, used) for one in self.located]),
                used={number: count for number, (count, _) in used.items()},
                key=_canonical(self.fleet, used) if used else None,
            )
        return self._rests[key]

    def _highs(self, demand: TreeDemand, used: Mapping[int, tuple[int, int]]) -> tuple[int, ...]:
        """Return the largest part of each source next to what named groups use."""
        highs = [high for _, high, _, _ in demand.sources]
        if not used:
            return tuple(highs)
        for place, number in enumerate(demand.numbers):
            count, own = used.get(number, (0, 0))
            if count:
                most = int(self.fleet.inventories.max_unit[number]) - own
                highs[place] = min(highs[place], self.fleet.left(number) - count, most)
        for draw in demand.draws:
            count, _ = used.get(draw.target, (0, 0))
            if count:
                highs[draw.source] = min(highs[draw.source], (draw.room - count) // draw.factor)
        steps = [step for _, _, step, _ in demand.sources]
        return tuple([high // step * step for high, step in zip(highs, steps, strict=True)])

    def _plan(self, number: int, sources: int) -> Supply:
        """Return how some sources provide a class as if it were the only one; empty if they cannot.

        The first source that can provide all of it does, else devices in parts.
        """
        plans, key = self._rest.plans, (number, sources)
        if key not in plans:
            plans[key] = self._planned(self.classes[number], self._rest.highs[number], sources)
        return plans[key]

    def _planned(self, demand: TreeDemand, highs: Sequence[int], sources: int) -> Supply:
        self._budget.spend(1 + len(demand.sources) // _SOURCES_PER_STEP)
        amount, devices, places = demand.amount, [], []
        for place, (low, _, unit, is_device) in enumerate(demand.sources):
            if sources >> place & 1:
                if low <= amount <= highs[place] and not amount % unit:
                    return ((place, amount),)
                if is_device:
                    places.append(place)
                    devices.append((low, highs[place], unit))
        parts = split(amount, devices, self._budget)
        return tuple([(places[at], part) for at, part in parts or ()])

    def _sets(self, family: int) -> tuple[int, ...] | None:
        """Return the sources that may provide each class; None if the rest cannot be provided.

        :param family: the first family that is not provided
        """
        # without traits, what the first family was asked answers for the later ones
        sets, key = self._rest.sets, (family if self.traits else 0, self._open)
        if key not in sets:
            sets[key] = self._narrowed(family)
        return sets[key]

    def _narrowed(self, family: int) -> tuple[int, ...] | None:
        count = len(self.classes)
        classes = [number for some in self._families[family:] for number in some.classes]
        sets = [*(demand.allowed for demand in self.classes), *self._rest.located]
        candidates = [*classes, *range(count, len(sets))]
        for having in self._open_traits():
            able = -1
            for number in candidates:
                sources = sets[number] & having[number]
                if sources and (number >= count or self._plan(number, sources)):
                    if able >= 0:
                        break
                    able = number
            else:
                if able < 0:
                    return None
                sets[able] &= having[able]  # no other can answer for it
        if not all(self._plan(number, sets[number]) for number in classes):
            return None
        if self._placing is not None:
            assigned = self._placing.fit(sets[count:], self._budget, self._rest.used)
            if assigned is None and not self._is_cut_short:
                return None
        elif self._open & (self._open - 1) and not self._covers(classes, sets):
            return None
        return tuple(sets)

    def _covers(self, classes: Iterable[int], sets: Sequence[int]) -> bool:
        """Return whether the classes may answer for all traits: each for those of one source."""
        most, required = 0, self._open
        for number in classes:
            sources = sets[number]
            answers = [h & required for s, h in enumerate(self.has[number]) if sources >> s & 1]
            most += max(map(int.bit_count, answers), default=0)
        return most >= required.bit_count()

    def _preferred(self, number: int, sources: int) -> int:
        """Return the sources that answer for as many traits as the class can, one by one."""
        for having in self._open_traits():
            fewer = sources & having[number]
            if fewer and self._plan(number, fewer):
                sources = fewer
        return sources

    def _open_traits(self) -> list[tuple[int, ...]]:
        """Return, for each trait that nothing answers for yet, the sources and parts with it."""
        if not self._open:
            return []
        return [having for trait, having in enumerate(self.traits) if self._open >> trait & 1]

    # --- placed amounts ---

    def _place(self) -> Iterator[_Next]:
        """Yield the solutions with the placed amounts, one of which answers for each open trait."""
        traits, first, tried = self._open_traits(), len(self.classes), set[tuple[int, ...]]()
        for choice in itertools.product(range(len(self.located)), repeat=len(traits)):
            parts = list(self._rest.located)
            for having, number in zip(traits, choice, strict=True):
                parts[number] &= having[first + number]
            if tuple(parts) not in tried and not self._is_done:
                tried.add(tuple(parts))
                assigned = self._placed(parts)
                if assigned is not None:
                    yield self._solution(assigned)

    def _placed(self, parts: PartSets) -> Assigned | None:
        """Return the placed amounts assigned, next to what is used and to each other."""
        placing = self._placing
        assert placing is not None, "an amount is placed"
        used = {number: count for number, count in self.used.items() if count}
        assigned = placing.fit(parts, self._budget, used)
        if assigned is None or self._has_capacity(assigned, used):
            return assigned
        found: list[Amount] = []
        total = Counter(used)
        for alone, some in zip(placing.alone, parts, strict=True):
            one = alone.fit([some], self._budget, total)
            if one is None:
                break
            found += one
            total.update(alone.located[0].uses(one[0]))
        else:
            assigned = placing.checked(parts, tuple(found))
            if assigned is not None:
                return assigned
        placing.cut_short = True  # other assignments might leave more to each other
        return None

    def _has_capacity(self, assigned: Assigned, used: Mapping[int, int]) -> bool:
        """Return whether placed amounts fit next to each other wherever they use the same."""
        total = Counter(used)
        for one, amount in zip(self.located, assigned, strict=True):
            total.update(one.uses(amount))
        return all(count <= self.fleet.left(number) for number, count in total.items())


@dataclasses.dataclass(slots=True)
class _Rest:
    """The unnamed group next to what named groups use."""

    highs: tuple[tuple[int, ...], ...]  #: by class and source, the largest part that it can provide
    located: tuple[int, ...]  #: by placed amount, the parts that it may be on
    used: dict[int, int]  #: by inventory that the unnamed group may use, the amount
    key: Hashable  #: what the rest depends on
    plans: dict[tuple[int, int], Supply] = dataclasses.field(default_factory=dict)
    sets: dict[tuple[int, int], tuple[int, ...] | None] = dataclasses.field(default_factory=dict)


def _parts_without(
    fleet: Fleet, one: LocatedTreeDemand, used: Mapping[int, tuple[int, int]]
) -> int:
    """Return the parts of a placed amount of which no group uses units without naming them.

    A cell provides the CPUs of a topology by name. Next to CPUs of the same consumer that are
    counted, nothing would tell which are the topology's.
    """
    own = [number for number, (_, count) in used.items() if count]
    kind = resource(one.ask.resource_class).inventory_kind
    if not own or not one.places or issubclass(kind, Identified):
        return one.allowed
    inventory, names = one.view.located.inventory, one.ask.amount.located
    barred = {
        int(fleet.inventories.provider[number])
        for number in own
        if (name := fleet.class_of(number)) in names and inventory.units(name)
    }
    return one.allowed & bits(place not in barred for place in one.places)


def _canonical(fleet: Fleet, used: Mapping[int, tuple[int, int]]) -> Hashable:
    """Return the use of inventories without what tells equal providers apart."""
    by_provider: dict[int, list[tuple[str, int, int]]] = {}
    for number, figures in used.items():
        provider = int(fleet.inventories.provider[number])
        by_provider.setdefault(provider, []).append((fleet.class_of(number), *figures))
    classes = equivalence(fleet)
    every = ((classes.of(fleet, p), tuple(sorted(some))) for p, some in by_provider.items())
    return frozenset(Counter(every).items())


# --- families -----------------------------------------------------------------------------------


#: A source, by the number of its class and its place in the class.
_SourceKey: TypeAlias = tuple[int, int]


class _Family(NamedTuple):
    """Classes that are provided together: one, or all of which sources use the same inventories."""

    classes: tuple[int, ...]
    #: by source that uses an inventory with others, these inventories, and how much for each unit
    links: Mapping[_SourceKey, Sequence[tuple[int, int]]]


@functools.cache
def _apart(count: int) -> list[_Family]:
    """Return families of one class each."""
    return [_Family((number,), {}) for number in range(count)]


def _families(classes: Sequence[TreeDemand]) -> list[_Family]:
    """Return the families of some classes, in their order."""
    if not any(demand.draws for demand in classes):
        return _apart(len(classes))
    uses: dict[_SourceKey, list[tuple[int, int]]] = {}
    for number, demand in enumerate(classes):
        for place in members(demand, demand.allowed):
            uses[number, place] = [(demand.numbers[place], 1)]
        for draw in demand.draws:
            if (number, draw.source) in uses:
                uses[number, draw.source].append((draw.target, draw.factor))
    count = Counter(inventory for some in uses.values() for inventory, _ in some)
    links = {key: [use for use in some if count[use[0]] > 1] for key, some in uses.items()}
    together = sorted({number for (number, _), some in links.items() if some})
    found = [_Family(tuple(together), links)] if together else []
    found += [_Family((number,), {}) for number in range(len(classes)) if number not in together]
    return sorted(found)


class _Shares:
    """The sources of a family, one after the other, while they provide parts.

    Sources that use the same inventories are close together, so that what remains of these is
    forgotten once all of them are passed. Of equal sources none provides more than one before it.
    """

    def __init__(
        self,
        solver: TreeSolver,
        family: _Family,
        sets: Sequence[int],
        highs: Sequence[Sequence[int]],
        tried: Mapping[int, Supply],
        serial: int,
    ) -> None:
        """:param sets: by class, its sources, :param highs: the largest part of each

        :param tried: parts, by class, that were tried before; empty for none
        """
        self.serial = serial
        self._solver = solver
        self._family = family
        self._highs = highs
        #: by class of the family, the amount of it
        self.amounts = tuple([solver.classes[number].amount for number in family.classes])
        #: ``(place of its class in the family, class, source)``
        self.sources: list[tuple[int, int, int]] = []
        #: by source, the least and the most of a part, the unit, and whether it may be divided
        self._bounds: list[tuple[int, int, int, bool]] = []
        is_one = len(family.classes) == 1  # one source alone is no division
        self._labels: list[int] = []  # what equal sources have in common
        for _, label, *key in sorted(self._able(sets)):
            self.sources.append((key[0], key[1], key[2]))
            low, _, unit, is_device = solver.classes[key[1]].sources[key[2]]
            most = min(highs[key[1]][key[2]], self.amounts[key[0]] - is_one)
            self._bounds.append((max(1, low), most, unit, is_device))
            self._labels.append(label)
        pairs = itertools.pairwise([-1, *self._labels, -1])
        self._follows = [before == label for before, label in pairs]
        labels = {key[1:]: label for key, label in zip(self.sources, self._labels, strict=True)}
        self._tried = sorted(
            (labels[number, place], part) for number, some in tried.items() for place, part in some
        )
        #: the parts that are provided: ``(place among the sources, part)``
        self._given: list[tuple[int, int]] = []
        #: by class of the family, the traits that all its providers have, as bits
        self._masks: tuple[int, ...] = (-1,) * len(family.classes)
        self._answered: list[tuple[int, ...]] = []
        #: the inventories that several sources use, those that are used last first
        last: dict[int, int] = {}
        links = [family.links.get((number, place), ()) for _, number, place in self.sources]
        for at, some in enumerate(links):
            last.update((number, at) for number, _ in some)
        shared = sorted(last, key=lambda number: -last[number])
        at_of = {number: at for at, number in enumerate(shared)}
        #: by source, where it uses them, and how much for each unit
        self._uses = [[(at_of[number], factor) for number, factor in some] for some in links]
        self._room = [solver.fleet.left(n) - solver.used.get(n, 0) for n in shared]
        lasts = sorted(last.values())
        self._still = [len(lasts) - bisect.bisect_left(lasts, at) for at in range(len(links) + 1)]
        #: by place, how much the devices from there on could provide of each class, and whether
        #: another source could provide all of it
        self._reach = self._reaches()
        self._limits = self._common_uses()
        #: by place, whether placed amounts may use what the source uses
        drawn = [solver.classes[number].drawn(place, 1) for _, number, place in self.sources]
        near = solver.reach_of_located
        self._is_near = [not near.isdisjoint(number for number, _ in uses) for uses in drawn]
        #: by place, whether the provider is of the tree itself, if one of these has to be
        self._is_own = [solver.is_own(solver.provider(*key)) for _, *key in self.sources]
        self._is_tied = any(self._is_near) or any(self._is_own)

    def _able(self, sets: Sequence[int]) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the sources that may provide a part, with numbers that sort them.

        Sources that use inventories of one provider with others have the first number in common,
        equal ones the second.
        """
        solver, family = self._solver, self._family
        is_one = len(family.classes) == 1
        # a provider in several classes is like no other
        count = Counter(
            solver.provider(number, place)
            for number in (() if is_one else family.classes)
            for place in members(solver.classes[number], sets[number])
        )
        order: dict[Hashable, int] = {}
        for at, number in enumerate(family.classes):
            demand = solver.classes[number]
            for place in members(demand, sets[number]):
                low, _, _, is_device = demand.sources[place]
                high, provider = self._highs[number][place], solver.provider(number, place)
                is_whole = not is_one and demand.provides(place, self._highs[number])
                if (is_device and high >= max(1, low)) or is_whole:
                    equal: Hashable = number, place
                    if count[provider] < 2:
                        equal = number, solver.state_of(provider)
                    links = family.links.get((number, place))
                    shared = solver.fleet.inventories.provider[links[0][0]] if links else equal
                    block = order.setdefault(shared, len(order))
                    yield block, order.setdefault(equal, len(order)), at, number, place

    def parts_of(self, place: int, left: Sequence[int]) -> range:
        """Return the parts that a source can provide, the largest first; nothing is no part."""
        at, (low, most, unit, is_device) = self.sources[place][0], self._bounds[place]
        amount, rest = self.amounts[at], left[at]
        for shared, factor in self._uses[place]:
            if most > self._room[shared] // factor:
                most = self._room[shared] // factor
        if not is_device:
            is_whole = rest == amount and low <= amount <= most and amount % unit == 0
            return range(amount, amount + is_whole)
        if self._follows[place]:
            most = min(most, self._before(place))
        most, least = min(most, rest), max(low, rest - self._reach[place + 1][0][at])
        return range(most // unit * unit, least - 1, -unit)

    def give(self, place: int, part: int, left: Sequence[int]) -> tuple[int, ...]:
        """Let a source provide a part; return what is left by class."""
        at, number, source = self.sources[place]
        for shared, factor in self._uses[place]:
            self._room[shared] -= factor * part
        self._given.append((place, part))
        self._answered.append(self._masks)
        if self._solver.traits:
            has = self._solver.has[number][source]
            self._masks = (*self._masks[:at], self._masks[at] & has, *self._masks[at + 1 :])
        return (*left[:at], left[at] - part, *left[at + 1 :])

    def take_back(self) -> None:
        """Undo the last part."""
        place, part = self._given.pop()
        for shared, factor in self._uses[place]:
            self._room[shared] += factor * part
        self._masks = self._answered.pop()

    def _before(self, place: int) -> int:
        """Return the part of the source before."""
        return self._given[-1][1] if self._given and self._given[-1][0] == place - 1 else 0

    def may_provide(self, place: int, left: Sequence[int]) -> bool:
        """Return False if the sources from a place on cannot provide what is left."""
        sums, alone = self._reach[place]
        for at, rest in enumerate(left):
            if rest > sums[at] and not (alone[at] and rest == self.amounts[at]):
                return False
        for at, shared, factor in self._limits:
            if left[at] * factor > self._room[shared]:
                return False
        return place < len(self.sources)

    def _reaches(self) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
        sums, alone = [0] * len(self.amounts), [False] * len(self.amounts)
        found = [(tuple(sums), tuple(alone))]
        for (at, _, _), bounds in zip(self.sources[::-1], self._bounds[::-1], strict=True):
            if bounds[3]:
                sums[at] += bounds[1]
            else:
                alone[at] = True
            found.append((tuple(sums), tuple(alone)))
        return found[::-1]

    def _common_uses(self) -> list[tuple[int, int, int]]:
        """Return the inventories that all sources of a class use, with the least factor."""
        found: list[tuple[int, int, int]] = []
        for at in range(len(self.amounts) if self._room else 0):
            every = zip(self.sources, self._uses, strict=True)
            uses = [dict(some) for key, some in every if key[0] == at]
            for shared in set(uses[0]).intersection(*uses) if uses else ():
                found.append((at, shared, min(some[shared] for some in uses)))
        return found

    def is_tried(self) -> bool:
        """Return whether the parts that are provided were tried before."""
        return bool(self._tried) and self._tried == sorted(
            (self._labels[place], part) for place, part in self._given
        )

    def by_class(self) -> dict[int, Supply]:
        """Return the parts that are provided, by class."""
        found: dict[int, list[tuple[int, int]]] = {number: [] for number in self._family.classes}
        for place, part in self._given:
            _, number, source = self.sources[place]
            found[number].append((source, part))
        return {number: tuple(sorted(parts)) for number, parts in found.items()}

    def key(self, place: int, left: tuple[int, ...]) -> Hashable:
        """Return a key of all that the parts from a place on depend on."""
        room = tuple(self._room[: self._still[place]])
        before = self._before(place) if self._follows[place] else -1
        if not self._is_tied:
            return self.serial, place, left, room, self._masks, before
        has_own = any(self._is_own[at] for at, _ in self._given)
        near = tuple([given for given in self._given if self._is_near[given[0]]])
        return self.serial, place, left, room, self._masks, before, has_own, near


# --- questions of explanations ------------------------------------------------------------------


def may_provide(
    fleet: Fleet,
    tree: int,
    classes: Sequence[TreeDemand],
    located: Sequence[LocatedTreeDemand] = (),
) -> bool:
    """Return whether a tree provides an unnamed group, or the decision takes too long."""
    try:
        solver = TreeSolver(fleet, tree, Budget(PATIENCE), classes, located)
        return next(solver.solutions(), None) is not None
    except SearchLimitReached:
        return True


def may_assign(named: Named, tree: int, options: Sequence[Sequence[int]] | None = None) -> bool:
    """Return whether named groups can be assigned, or the decision takes too long.

    :param options: by kind, the providers of one group; None for all that have capacity for it
    """
    if not named:
        return True
    budget = Budget(PATIENCE)
    try:
        groups = GroupSteps(named, tree, budget, options)
        solver = TreeSolver(named.fleet, tree, budget, groups=groups)
        return next(solver.solutions(), None) is not None
    except SearchLimitReached:
        return True
