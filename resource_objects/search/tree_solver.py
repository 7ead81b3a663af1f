"""The search on one tree: a backtracking search decides which provider provides what.

:meth:`TreeSolver.expand` shows the steps:

1. each named group is assigned to one provider (:class:`.named_groups.GroupSteps`);
2. each *family* of classes of the unnamed group is provided: one class, or several that use the
   same inventories. One source provides all of a class, or devices provide parts of it
   (:class:`Division`);
3. the placed amounts are assigned together, by their inventories (:class:`.demands.Placing`).

**Capacity** is checked where something is chosen: a provider of a group has a slot, a source is
within its bounds next to the groups (:meth:`TreeSolver._largest_parts`), parts in a family fit next
to each other (:meth:`Division.parts_of`). ``used`` is the use of inventories by the choices so far.

**The bound** is :meth:`TreeSolver._sets`, asked before each step: each remaining class can be
provided by the sources that remain, and for each required trait a class or placed amount remains
that can answer for it. A trait that only one class can answer for narrows the sources of the class.

**Equal providers** in the same state are tried once (:meth:`TreeSolver.state_of`). A state that led
to no solution is remembered by what the rest depends on, and not entered again.

**The budget** pays for each choice. Packing groups, dividing amounts by several unit rules and
covering traits by classes are hard problems in general. The search is complete: it ends without a
solution only where none exists, or raises ``SearchLimitReached``.
"""

from __future__ import annotations

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


class State(NamedTuple):
    """A place in the search: before a step or, in a division, before a source."""

    step: int
    source: int = -1  #: the next source of the division; -1 before a step
    missing: tuple[int, ...] = ()  #: by class of the division, the amount that is not provided yet
    parts: tuple[tuple[int, int], ...] = ()  #: of the division, ``(source, amount)``


#: The successor of a state; ``Solution(None)`` is a solution that was returned before.
_Next: TypeAlias = State | Solution[TreeSolution | None]


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
        self._families = _families(fleet, self.classes)
        self._first_family = len(groups.kinds) if groups is not None else 0
        self._last = self._first_family + len(self._families)
        with_trait = [demand.with_trait for demand in self.classes]
        with_trait += [demand.with_trait for demand in self.located]
        #: by required trait, the sources of each class and the parts of each placed amount with it
        self.traits = tuple(dict.fromkeys(zip(*with_trait, strict=True)))
        self._open = (1 << len(self.traits)) - 1  # the traits that nothing answers for yet
        #: by inventory, the amount that the choices so far use
        self.used: dict[int, int] = {} if groups is None else groups.used
        self._counts_use = bool(located) or any(family.links for family in self._families)
        self.owned = 0  #: how often a provider of the tree itself provides something, if one has to
        self._parts: list[Supply] = [()] * len(self.classes)
        self._divisions: list[Division] = []
        self._numbers = itertools.count()
        self._found = 0
        self._is_done = False
        self._rests: dict[Hashable, _Rest] = {}

    def solutions(self) -> Iterator[TreeSolution]:
        """Yield the solutions, preferred providers first; of equal providers one.

        :raises SearchLimitReached: if the budget runs out first
        :raises CutShort: at the end, if no solution was found and the decision about a placed
            amount came to its own bound
        """
        self._budget.spend()
        self._rest = self._next_to_groups()
        if self._sets(0) is not None and (self._groups is None or self._groups.may_finish()):
            for first in self._after(-1):
                if isinstance(first, State):
                    result = solutions(first, self.expand, self._budget, self._key, cost=0)
                    yield from filter(None, result)
                elif first.value is not None:
                    yield first.value
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

    def expand(self, state: State) -> Iterator[_Next]:
        """Yield the states after each choice, or the solutions.

        A choice is recorded here and in ``used`` before its state is yielded, and removed when the
        next choice is requested: everything below the state is done then.
        """
        if state.step < self._first_family:
            return self._assign_group(state.step)
        if state.step == self._last:
            return self._place()
        return self._provide(state.step) if state.source < 0 else self._provide_part(state)

    def _after(self, step: int) -> Iterator[_Next]:
        """Yield the state after a step or, after the last, the solution if it is one."""
        if step + 1 < self._last or self.located:
            yield State(step + 1)
        elif not self._open and (self.owned or not self._needs_own):
            yield self._solution(())

    def _solution(self, assigned: Assigned) -> Solution[TreeSolution | None]:
        self._found += 1
        groups = () if self._groups is None else self._groups.assigned()
        return Solution(TreeSolution(groups, tuple(self._parts), assigned))

    def _assign_group(self, step: int) -> Iterator[_Next]:
        """Assign the next group to each provider that has a slot for it."""
        groups, rest = self._groups, self._rest
        assert groups is not None, "a step assigns a group"
        for place in groups.choices(step):
            self._budget.spend(groups.cost)
            groups.assign(step, place)
            own = self.is_own(groups.providers[place])
            self.owned += own
            if groups.may_finish():
                if not self._reach.isdisjoint(groups.uses(step)):
                    self._rest = self._next_to_groups()
                if self._sets(0) is not None:
                    self._is_done = False
                    yield from self._after(step)
            groups.unassign(step)
            self.owned -= own
            self._rest = rest

    def _provide(self, step: int) -> Iterator[_Next]:
        """Let sources provide a family: each class as if it were alone, by one source, in parts."""
        self._budget.spend(int(step > 0))  # the search pays for the first step
        place = step - self._first_family
        family, sets = self._families[place], self._sets(place)
        assert sets is not None, "the step before asked"
        plans = {n: self._plan(n, self._preferred(n, sets[n])) for n in family.classes}
        number, is_one, count = family.classes[0], len(family.classes) == 1, self._found
        if not is_one or len(plans[number]) > 1:
            yield from self._provide_as(step, plans)
        planned = plans if self._found > count else {}
        if is_one and not self._is_done:
            yield from self._provide_whole(step, number, sets[number])
        if not self._is_done and (not is_one or self.classes[number].is_divisible):
            division = Division(self, family, sets, planned, next(self._numbers))
            if len(division.sources) > is_one:
                self._divisions.append(division)
                yield State(step, 0, division.amounts)
                self._divisions.pop()

    def _provide_whole(self, step: int, number: int, sources: int) -> Iterator[_Next]:
        """Let each source provide all of a class that can, those that are preferred first."""
        demand, highs = self.classes[number], self._rest.highs[number]
        preferred = self._preferred(number, sources)
        places = [*members(demand, preferred), *members(demand, sources & ~preferred)]
        able = [place for place in places if demand.provides(place, highs)]
        tried: set[Hashable] = set()
        for place in able:
            state = self.state_of(self.provider(number, place)) if able[1:] else None
            if state in tried:
                continue
            self._budget.spend(int(bool(tried)))  # the plan pays for the first
            tried.add(state)
            yield from self._provide_as(step, {number: ((place, demand.amount),)})
            if self._is_done:
                return

    def _provide_as(self, step: int, parts: Mapping[int, Supply]) -> Iterator[_Next]:
        """Let sources provide all of a family, if they have capacity for it together."""
        booked = [(n, source, part) for n, supply in parts.items() for source, part in supply]
        for number, source, part in booked:
            self._book(number, source, part, 1)
        left = self._families[step - self._first_family].left
        if all(self.used.get(n, 0) <= most for n, most in left.items()):
            yield from self._provided(step, parts)
        for number, source, part in booked:
            self._book(number, source, part, -1)

    def _provide_part(self, state: State) -> Iterator[_Next]:
        """Let the next source of a family provide each part that it can, or nothing."""
        division = self._divisions[-1]
        if not division.may_finish(state):
            return
        self._budget.spend()
        step, at, missing, parts = state
        place, number, source = division.sources[at]
        for part in division.parts_of(state):
            rest = (*missing[:place], missing[place] - part, *missing[place + 1 :])
            provided = (*parts, (at, part))
            self._book(number, source, part, 1)
            if any(rest):
                yield State(step, at + 1, rest, provided)
            elif division.by_class(provided) == division.planned:
                yield Solution(None)
            else:
                yield from self._provided(step, division.by_class(provided))
            self._book(number, source, part, -1)
            if self._is_done:
                return
        yield State(step, at + 1, missing, parts)

    def _provided(self, step: int, parts: Mapping[int, Supply]) -> Iterator[_Next]:
        """Continue after a family, with the traits that its providers answer for."""
        before = self._open
        for number, supply in parts.items():
            self._parts[number] = supply
            self._open &= ~self.answered(number, (source for source, _ in supply))
        if self._sets(step + 1 - self._first_family) is not None:
            yield from self._after(step)
        self._open = before
        for number in parts:
            self._parts[number] = ()

    def _book(self, number: int, source: int, part: int, sign: int) -> None:
        """Add the use of inventories by a part, or (sign -1) remove it."""
        if self._needs_own:
            self.owned += sign * self.is_own(self.provider(number, source))
        if self._counts_use:
            for inventory, factor in self.uses[number][source]:
                self.used[inventory] = self.used.get(inventory, 0) + sign * factor * part

    # --- what the rest depends on ---

    def _key(self, state: State) -> Hashable:
        step = state.step
        if state.source >= 0:
            return self._divisions[-1].key(state)
        if step < self._first_family:
            return step, self._groups.key(step) if self._groups is not None else None
        near, uses = self.reach_of_located, self.used.items() if self.located else ()
        used = tuple(sorted([(n, count) for n, count in uses if count and n in near]))
        return step, self._open, self.owned > 0, tuple(self._rest.used.items()), used

    @property
    def reach_of_located(self) -> frozenset[int]:
        """The inventories that placed amounts may use."""
        return frozenset() if self._placing is None else self._placing.reach

    @functools.cached_property
    def _reach(self) -> frozenset[int]:
        """The inventories that the unnamed group may use."""
        numbers = {number for demand in self.classes for number in demand.numbers}
        numbers.update(draw.target for demand in self.classes for draw in demand.shared_uses)
        numbers.update(number for one in self.located if one.places for number in one.reach)
        return frozenset(numbers)

    @functools.cached_property
    def uses(self) -> tuple[list[list[tuple[int, int]]], ...]:
        """By class and source, the inventories that it uses, and how much for each unit."""
        return tuple(map(_uses, self.classes))

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

    def answered(self, number: int, sources: Iterable[int]) -> int:
        """Return the open traits that all of some sources of a class have, as bits."""
        if not self._open:
            return 0
        some = sum(1 << source for source in sources)
        has = bits(not some & ~having[number] for having in self.traits)
        return has & self._open

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
                highs=tuple([self._largest_parts(demand, used) for demand in self.classes]),
                located=tuple([_parts_without(self.fleet, one, used) for one in self.located]),
                used={number: count for number, (count, _) in used.items()},
                plans={},
                sets={},
            )
        return self._rests[key]

    def _largest_parts(
        self, demand: TreeDemand, used: Mapping[int, tuple[int, int]]
    ) -> tuple[int, ...]:
        """Return the largest part of each source next to the use by named groups."""
        highs = [source.high for source in demand.sources]
        if not used:
            return tuple(highs)
        for place, number in enumerate(demand.numbers):
            count, own = used.get(number, (0, 0))
            if count:
                most = int(self.fleet.inventories.max_unit[number]) - own
                highs[place] = min(highs[place], self.fleet.left(number) - count, most)
        for draw in demand.shared_uses:
            count, _ = used.get(draw.target, (0, 0))
            if count:
                highs[draw.source] = min(highs[draw.source], (draw.room - count) // draw.factor)
        steps = [source.step for source in demand.sources]
        return tuple([high // step * step for high, step in zip(highs, steps, strict=True)])

    def _plan(self, number: int, sources: int) -> Supply:
        """Return how some sources provide a class as if it were the only one; empty if they cannot.

        The first source that can provide all of it does, else devices in parts.
        """
        plans, key = self._rest.plans, (number, sources)
        if key in plans:
            return plans[key]
        demand, highs = self.classes[number], self._rest.highs[number]
        self._budget.spend(1 + len(demand.sources) // _SOURCES_PER_STEP)
        places = members(demand, sources)
        whole = next((place for place in places if demand.provides(place, highs)), None)
        if whole is not None:
            plans[key] = ((whole, demand.amount),)
        else:
            places = [place for place in places if demand.sources[place].is_device]
            bounds = [(demand.sources[p].low, highs[p], demand.sources[p].step) for p in places]
            parts = split(demand.amount, bounds, self._budget) or ()
            plans[key] = tuple([(places[at], part) for at, part in parts])
        return plans[key]

    # --- the bound ---

    def _sets(self, family: int) -> tuple[int, ...] | None:
        """Return the sources and parts that may provide each demand; None if the rest cannot be.

        :param family: the first family that is not provided
        """
        # without traits, the result for the first family holds for the later ones
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
        traits, most = self._open_traits(), 0
        for number in classes:
            sources = members(self.classes[number], sets[number])
            counts = [sum(having[number] >> s & 1 for having in traits) for s in sources]
            most += max(counts, default=0)
        return most >= len(traits)

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
        """Return the placed amounts assigned, next to other demands and to each other."""
        placing = self._placing
        assert placing is not None, "an amount is placed"
        used = {number: count for number, count in self.used.items() if count}
        assigned = placing.fit(parts, self._budget, used)
        if assigned is None or self._has_capacity(assigned, used):
            return assigned
        result: list[Amount] = []
        total = Counter(used)
        for alone, some in zip(placing.alone, parts, strict=True):
            one = alone.fit([some], self._budget, total)
            if one is None:
                break
            result += one
            total.update(alone.located[0].uses(one[0]))
        else:
            assigned = placing.checked(parts, tuple(result))
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


class _Rest(NamedTuple):
    """The unnamed group next to the use by named groups."""

    highs: tuple[tuple[int, ...], ...]  #: by class and source, the largest part that it can provide
    located: tuple[int, ...]  #: by placed amount, the parts that it may be on
    used: dict[int, int]  #: by inventory that the unnamed group may use, the amount
    plans: dict[tuple[int, int], Supply]  #: by class and sources, as returned by ``_plan``
    sets: dict[tuple[int, int], tuple[int, ...] | None]  #: as returned by ``_sets``


def _parts_without(
    fleet: Fleet, one: LocatedTreeDemand, used: Mapping[int, tuple[int, int]]
) -> int:
    """Return the parts of a placed amount of which no group uses units without naming them.

    A cell provides the CPUs of a topology by name. Next to CPUs of the same consumer that are
    counted, it would be unknown which are the topology's.
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


# --- families -----------------------------------------------------------------------------------


class _Family(NamedTuple):
    """Classes that are provided together: one, or all of which sources use the same inventories."""

    classes: tuple[int, ...]
    #: by ``(class, source)``, the inventories that it uses with others, and how much for each unit
    links: Mapping[tuple[int, int], Sequence[tuple[int, int]]]
    left: Mapping[int, int]  #: the remaining capacity of these inventories


@functools.cache
def _separate(count: int) -> list[_Family]:
    """Return families of one class each."""
    return [_Family((number,), {}, {}) for number in range(count)]


def _families(fleet: Fleet, classes: Sequence[TreeDemand]) -> list[_Family]:
    """Return the families of some classes, in their order."""
    if not any(demand.shared_uses for demand in classes):
        return _separate(len(classes))
    uses = {
        (number, place): _uses(demand)[place]
        for number, demand in enumerate(classes)
        for place in members(demand, demand.allowed)
    }
    count = Counter(inventory for some in uses.values() for inventory, _ in some)
    links = {key: [use for use in some if count[use[0]] > 1] for key, some in uses.items()}
    together = sorted({number for (number, _), some in links.items() if some})
    left = {n: max(0, fleet.left(n)) for some in links.values() for n, _ in some}
    result = [_Family(tuple(together), links, left)] if together else []
    result += [_Family((n,), {}, {}) for n in range(len(classes)) if n not in together]
    return sorted(result, key=lambda family: family.classes)


def _uses(demand: TreeDemand) -> list[list[tuple[int, int]]]:
    """Return, by source, the inventories that it uses, and how much for each unit."""
    result = [[(number, 1)] for number in demand.numbers]
    for draw in demand.shared_uses:
        result[draw.source].append((draw.target, draw.factor))
    return result


class Division:
    """The division of a family among sources: each provides a part of its class, or nothing.

    Sources that use the same inventories follow each other, so that their use is forgotten after
    the last of them. Of equal sources, none provides more than the one before it.
    """

    def __init__(
        self,
        solver: TreeSolver,
        family: _Family,
        sets: Sequence[int],
        planned: Mapping[int, Supply],
        number: int,
    ) -> None:
        """:param sets: by class, its sources

        :param planned: the parts by class that were tried before; empty for none
        :param number: different for each division of the solver
        """
        self.planned = planned
        self._number = number
        self._solver = solver
        self._family = family
        self._highs = solver._rest.highs
        #: by class of the family, its amount
        self.amounts = tuple([solver.classes[number].amount for number in family.classes])
        #: ``(place of its class in the family, class, source)``
        self.sources: list[tuple[int, int, int]] = []
        #: by source, the least and the most of a part, the unit, and whether it may be divided
        self._bounds: list[tuple[int, int, int, bool]] = []
        is_one = len(family.classes) == 1  # one source alone is no division
        labels = [-1]
        self._is_like_last: list[bool] = []
        for _, label, place, number, source in sorted(self._able(sets)):
            low, _, unit, is_device = solver.classes[number].sources[source]
            most = min(self._highs[number][source], self.amounts[place] - is_one)
            self.sources.append((place, number, source))
            self._bounds.append((max(1, low), most, unit, is_device))
            self._is_like_last.append(label == labels[-1])
            labels.append(label)
        self._links = [family.links.get(source[1:], ()) for source in self.sources]
        self._sums = self._sums_of_rest()
        self._relevant = self._relevant_inventories()

    def _able(self, sets: Sequence[int]) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the sources that may provide a part, with numbers that sort them.

        Sources that use inventories of one provider with others have the first number in common,
        equal ones the second.
        """
        solver, family = self._solver, self._family
        is_one = len(family.classes) == 1
        # a provider in several classes is like no other
        count = Counter(
            solver.provider(number, source)
            for number in (() if is_one else family.classes)
            for source in members(solver.classes[number], sets[number])
        )
        order: dict[Hashable, int] = {}
        for place, number in enumerate(family.classes):
            demand = solver.classes[number]
            for source in members(demand, sets[number]):
                low, _, _, is_device = demand.sources[source]
                high, provider = self._highs[number][source], solver.provider(number, source)
                is_whole = not is_one and demand.provides(source, self._highs[number])
                if (is_device and high >= max(1, low)) or is_whole:
                    equal: Hashable = number, source
                    if count[provider] < 2:
                        equal = number, solver.state_of(provider)
                    links = family.links.get((number, source))
                    shared = solver.fleet.inventories.provider[links[0][0]] if links else equal
                    block = order.setdefault(shared, len(order))
                    yield block, order.setdefault(equal, len(order)), place, number, source

    def _sums_of_rest(self) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
        """Return, by source, how much the devices from there on could provide of each class.

        And whether another source could provide all of it.
        """
        sums, alone = [0] * len(self.amounts), [False] * len(self.amounts)
        result = [(tuple(sums), tuple(alone))]
        for (place, _, _), bounds in zip(self.sources[::-1], self._bounds[::-1], strict=True):
            if bounds[3]:
                sums[place] += bounds[1]
            else:
                alone[place] = True
            result.append((tuple(sums), tuple(alone)))
        return result[::-1]

    def _relevant_inventories(self) -> list[list[int]]:
        """Return, by source, the inventories whose use matters from there on.

        They are used by a source before and one after, or may be used by placed amounts.
        """
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        near, end = self._solver.reach_of_located, len(self.sources)
        for at, (_, number, source) in enumerate(self.sources):
            for inventory, _ in self._solver.uses[number][source] if near else self._links[at]:
                first.setdefault(inventory, at)
                last[inventory] = end if inventory in near else at
        return [[n for n in last if first[n] < at <= last[n]] for at in range(end + 1)]

    def may_finish(self, state: State) -> bool:
        """Return False if the sources from a state on cannot provide what is missing."""
        sums, alone = self._sums[state.source]
        for place, missing in enumerate(state.missing):
            if missing > sums[place] and not (alone[place] and missing == self.amounts[place]):
                return False
        return state.source < len(self.sources)

    def parts_of(self, state: State) -> range:
        """Return the parts that the next source can provide, the largest first."""
        at, left, used = state.source, self._family.left, self._solver.used
        place = self.sources[at][0]
        low, most, unit, is_device = self._bounds[at]
        amount, missing = self.amounts[place], state.missing[place]
        for inventory, factor in self._links[at]:
            room = (left[inventory] - used.get(inventory, 0)) // factor
            if room < most:
                most = room
        if not is_device:
            is_whole = missing == amount and low <= amount <= most and amount % unit == 0
            return range(amount, amount + is_whole)
        if self._is_like_last[at]:
            most = min(most, self._part_before(state))
        most = min(most, missing)
        least = max(low, missing - self._sums[at + 1][0][place])
        return range(most // unit * unit, least - 1, -unit)

    def _part_before(self, state: State) -> int:
        """Return the part of the source before the next one."""
        source, part = state.parts[-1] if state.parts else (-1, 0)
        return part if source == state.source - 1 else 0

    def by_class(self, parts: Iterable[tuple[int, int]]) -> dict[int, Supply]:
        """Return parts by class."""
        result: dict[int, list[tuple[int, int]]] = {number: [] for number in self._family.classes}
        for at, part in parts:
            _, number, source = self.sources[at]
            result[number].append((source, part))
        return {number: tuple(sorted(some)) for number, some in result.items()}

    def key(self, state: State) -> Hashable:
        """Return a key of all that the parts from a state on depend on."""
        solver, at = self._solver, state.source
        used = tuple([solver.used.get(number, 0) for number in self._relevant[at]])
        like = at < len(self.sources) and self._is_like_last[at]
        before = self._part_before(state) if like else -1
        answered: tuple[int, ...] = ()
        if solver.traits:
            given = self.by_class(state.parts)
            answered = tuple(
                [solver.answered(n, (source for source, _ in given[n])) for n in given]
            )
        return self._number, at, state.missing, used, answered, before, solver.owned > 0


# --- questions of explanations ------------------------------------------------------------------


def may_provide(
    fleet: Fleet,
    tree: int,
    classes: Sequence[TreeDemand] = (),
    located: Sequence[LocatedTreeDemand] = (),
    named: Named | None = None,
) -> bool:
    """Return whether a tree provides some demands, or the decision takes too long."""
    budget = Budget(PATIENCE)
    try:
        groups = GroupSteps(named, tree, budget) if named else None
        solver = TreeSolver(fleet, tree, budget, classes, located, groups)
        return next(solver.solutions(), None) is not None
    except SearchLimitReached:
        return True


def may_assign(named: Named, tree: int) -> bool:
    """Return whether named groups can be assigned, or the decision takes too long."""
    return may_provide(named.fleet, tree, named=named)
