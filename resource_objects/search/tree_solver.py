"""The search on one tree: a backtracking search decides which provider provides what.

:meth:`TreeSolver.expand` shows the steps:

1. each named group is assigned to one provider (:class:`GroupSlots`);
2. each *family* of classes of the unnamed group is provided: one class, or several that use the
   same inventories. One source provides all of a class, or devices provide parts of it
   (:class:`Division`);
3. the placed amounts are assigned together, by their inventories (:class:`.demands.Placing`).

**The state** is what the choices so far use of inventories (:class:`Account`), the groups and parts
that each provider has, and the required traits that nothing answers for yet.

**The bound** is :meth:`TreeSolver.may_finish`, asked after each choice: there are slots for the
remaining groups, each remaining class can be provided by the sources that remain, and for each open
trait a class or placed amount remains that can answer for it (:class:`UnnamedBounds`).

**Equal providers** in the same state are tried once (:meth:`TreeSolver.equality_key`). A state that
led to no solution is remembered by what the rest depends on, and not entered again.

**The budget** pays for each choice. Packing groups, dividing amounts by several unit rules and
covering traits by classes are hard problems in general. The search is complete: it ends without a
solution only where none exists, or raises ``SearchLimitReached``.

Rejected: the product of the providers of each group with a filter, which is n!/(n-k)! for k groups
and n devices.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.backtracking import Budget, CutShort, Solution, solutions
from resource_objects.resources.matching import Matching
from resource_objects.resources.placed import has_named_units
from resource_objects.search.demands import (
    Assigned,
    LocatedTreeDemand,
    Placing,
    Supply,
    TreeDemand,
    bits,
    members,
)
from resource_objects.search.eligibility import GroupKind, NamedGroups
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Preference
from resource_objects.search.split import split

#: The steps that an explanation may take to decide whether something can be provided.
PATIENCE = 10_000
#: The number of sources that are examined for one step of the budget.
_SOURCES_PER_STEP = 16
#: The number of small things of named groups that are examined for one step: a step of a large
#: request counts as several, so that a budget bounds the time of any request.
_GROUP_THINGS_PER_STEP = 512
#: The small things that it takes to find the providers of a kind, and to prepare each of them.
_PER_KIND, _PER_OPTION = 128, 32
#: The number of states of used inventories that are remembered.
_REMEMBERED = 10_000
#: More groups than any request has.
_UNBOUNDED = 1 << 40


class TreeSolution(NamedTuple):
    """One way to provide a request on a tree."""

    groups: tuple[tuple[int, int], ...]  #: ``(kind, provider)`` of each named group
    parts: tuple[Supply, ...]  #: by class of the unnamed group, ``(source, amount)``
    assigned: Assigned  #: the placed amounts, each assigned


class SearchState(NamedTuple):
    """A position in the search: before a step or, in a division, before a source."""

    step: int  #: -1 before the first
    source: int = -1  #: the next source of the division; -1 before a step
    missing: tuple[int, ...] = ()  #: by class of the division, the amount that is not provided yet
    parts: tuple[tuple[int, int], ...] = ()  #: of the division, ``(source, amount)``


#: The successor of a state; ``Solution(None)`` is a solution that was returned before.
_Next: TypeAlias = SearchState | Solution[TreeSolution | None]
#: The use of an inventory: the inventory, the amount including shares, and the amount without
#: shares, to which ``max_unit`` applies. Of a source it is the use by one unit.
Use: TypeAlias = tuple[int, int, int]


class TreeSolver:
    """The search on one tree. It may be left and continued."""

    def __init__(
        self,
        fleet: Fleet,
        tree: int,
        budget: Budget,
        classes: Sequence[TreeDemand] = (),
        located: Sequence[LocatedTreeDemand] = (),
        named: NamedGroups | None = None,
        *,
        options: Sequence[Sequence[int]] | None = None,
        preference: Preference | None = None,
    ) -> None:
        """Prepare a search.

        :param classes: the counts of the unnamed group, :param located: its placed amounts
        :param options: by kind of named group, its providers; None: all with capacity for one
        :param preference: the order of these providers; those of classes have their order
        """
        self.fleet = fleet
        self.budget = budget
        self.account = Account(fleet)
        self.classes = tuple(classes)
        self.families = _families(fleet, self.classes)
        self.located = tuple(located)
        self.placing = Placing(located) if located else None
        self._groups: GroupSlots | None = None
        if named:
            self._groups = GroupSlots(named, tree, budget, self.account, options, preference)
        self._first_family = 0 if self._groups is None else len(self._groups.kinds)
        self._last = self._first_family + len(self.families)
        self._counts_use = bool(located) or any(family.shared for family in self.families)
        with_trait = [demand.with_trait for demand in self.classes]
        with_trait += [demand.with_trait for demand in self.located]
        #: by required trait, the sources of each class and the parts of each placed amount with it
        self.traits = tuple(dict.fromkeys(zip(*with_trait, strict=True)))
        #: the traits that nothing answers for yet, as bits
        self.open = (1 << len(self.traits)) - 1
        self._parts: list[Supply] = [()] * len(self.classes)
        self._divisions: list[Division] = []
        self._division_numbers = itertools.count()
        self._solution_count = 0
        self._is_done = False
        #: the unnamed group next to the named groups as they are assigned
        self.unnamed = UnnamedBounds(self, ())
        self._unnamed_groups: dict[Hashable, UnnamedBounds] = {(): self.unnamed}
        for family in self.families:
            self.account.read(family.inventories)

    def solutions(self) -> Iterator[TreeSolution]:
        """Yield the solutions, preferred providers first; of equal providers one.

        :raises SearchLimitReached: if the budget runs out first
        :raises CutShort: at the end, if no solution was found and the decision about a placed
            amount came to its own bound
        """
        self.budget.spend()
        yield from filter(
            None, solutions(SearchState(-1), self.expand, self.budget, self._key, cost=0)
        )
        if self.placing is not None and self.placing.is_cut_short and not self._solution_count:
            raise CutShort(self.budget.allowed)

    def leave_assignment(self) -> None:
        """Search no further with the named groups as they are assigned in the last solution."""
        self._is_done = True

    # --- steps ---

    def expand(self, state: SearchState) -> Iterator[_Next]:
        """Yield the states after each choice of a step, or the solutions.

        The steps assign each named group, then provide each family of classes, then assign the
        placed amounts. Each choice is recorded in the solver (:attr:`account`, the groups, the
        parts, :attr:`open`), then :meth:`may_finish` decides whether the state after it is yielded.
        The choice is undone when the next one is requested. The search is depth-first
        (:func:`.backtracking.solutions`), so everything below the state is done then.
        """
        step = state.step
        if step < 0:
            return self._after(step)
        if step < self._first_family:
            return self._assign_group(step)
        if step == self._last:
            return self._assign_located()
        return self._provide(step) if state.source < 0 else self._provide_part(state)

    def may_finish(self, step: int) -> bool:
        """Return False if the request cannot be provided from a step on.

        This is the bound of the search, asked after each choice. It excludes no solution. It also
        sets :attr:`unnamed` for the present assignment of the named groups.
        """
        if self._groups is not None and step <= self._first_family:
            if not self._groups.may_finish():
                return False
            self.unnamed = self._next_to_groups()
        return self.unnamed.sets(max(0, step - self._first_family)) is not None

    def _after(self, step: int) -> Iterator[_Next]:
        """Yield the state after a step or, after the last, the solution; nothing if none can be."""
        if not self.may_finish(step + 1):
            return
        if step + 1 < self._last or self.located:
            yield SearchState(step + 1)
        elif not self.open:
            yield self._solution(())

    def _solution(self, assigned: Assigned) -> Solution[TreeSolution | None]:
        self._solution_count += 1
        groups = () if self._groups is None else self._groups.assigned
        return Solution(TreeSolution(groups, tuple(self._parts), assigned))

    def _assign_group(self, step: int) -> Iterator[_Next]:
        """Assign the next group to each provider that has a slot for it."""
        groups = self._groups
        assert groups is not None, "a step assigns a group"
        for place in groups.choices():
            self.budget.spend(groups.cost)
            groups.assign(place)
            self._is_done = False
            yield from self._after(step)
            groups.unassign()

    def _provide(self, step: int) -> Iterator[_Next]:
        """Let sources provide a family: each class as if it were alone, by one source, in parts."""
        self.budget.spend(int(step > 0))  # the search pays for the first step
        unnamed, family_number = self.unnamed, step - self._first_family
        family, sets = self.families[family_number], unnamed.sets(family_number)
        assert sets is not None, "the step before asked"
        plans = {n: unnamed.plan(n, unnamed.preferred(n, sets[n])) for n in family.classes}
        number, is_one, count = family.classes[0], len(family.classes) == 1, self._solution_count
        if not is_one or len(plans[number]) > 1:
            yield from self._provide_as(step, plans)
        # a division does not return parts again that led to a solution as the plans
        planned = plans if self._solution_count > count else {}
        if is_one and not self._is_done:
            yield from self._provide_whole(step, number, sets[number])
        if not self._is_done and (not is_one or self.classes[number].is_divisible):
            division = Division(self, family, sets, planned, next(self._division_numbers))
            if len(division.sources) > is_one:
                self._divisions.append(division)
                yield SearchState(step, 0, division.amounts)
                self._divisions.pop()

    def _provide_whole(self, step: int, number: int, sources: int) -> Iterator[_Next]:
        """Let each source provide all of a class that can, those that are preferred first."""
        demand, highs = self.classes[number], self.unnamed.highs[number]
        preferred = self.unnamed.preferred(number, sources)
        places = [*members(demand, preferred), *members(demand, sources & ~preferred)]
        able = [place for place in places if demand.provides(place, highs)]
        states: set[Hashable] = set()
        for place in able:
            state = self.equality_key(self.provider(number, place)) if able[1:] else None
            if state in states:
                continue
            self.budget.spend(int(bool(states)))  # the plan pays for the first
            states.add(state)
            yield from self._provide_as(step, {number: ((place, demand.amount),)})
            if self._is_done:
                return

    def _provide_as(self, step: int, parts: Mapping[int, Supply]) -> Iterator[_Next]:
        """Let sources provide all of a family, if they have capacity for it together."""
        booked = [(n, source, part) for n, supply in parts.items() for source, part in supply]
        for number, source, part in booked:
            self._book(number, source, part)
        if self.account.is_within(self.families[step - self._first_family].inventories):
            yield from self._after_family(step, parts)
        for number, source, part in booked:
            self._book(number, source, -part)

    def _provide_part(self, state: SearchState) -> Iterator[_Next]:
        """Let the next source of a family provide each part that it can, or nothing."""
        division = self._divisions[-1]
        if not division.may_finish(state):
            return
        self.budget.spend()
        step, at, missing, parts = state
        place, number, source = division.sources[at]
        for part in division.parts_of(state):
            still_missing = (*missing[:place], missing[place] - part, *missing[place + 1 :])
            provided = (*parts, (at, part))
            self._book(number, source, part)
            if any(still_missing):
                yield SearchState(step, at + 1, still_missing, provided)
            elif division.by_class(provided) == division.planned:
                yield Solution(None)
            else:
                yield from self._after_family(step, division.by_class(provided))
            self._book(number, source, -part)
            if self._is_done:
                return
        yield SearchState(step, at + 1, missing, parts)

    def _after_family(self, step: int, parts: Mapping[int, Supply]) -> Iterator[_Next]:
        """Continue after a family, with the traits that its providers answer for."""
        before = self.open
        for number, supply in parts.items():
            self._parts[number] = supply
            self.open &= ~self.answered(number, (source for source, _ in supply))
        yield from self._after(step)
        self.open = before
        for number in parts:
            self._parts[number] = ()

    def _book(self, number: int, source: int, part: int) -> None:
        """Add the use of inventories by a part or, if it is negative, remove it."""
        if self._counts_use:  # elsewhere no two parts use the same inventory
            self.account.add(self.uses[number][source], part)

    def _assign_located(self) -> Iterator[_Next]:
        """Yield the solutions with the placed amounts, one of which answers for each open trait."""
        assert self.placing is not None, "an amount is placed"
        traits, first, part_sets = self.open_traits(), len(self.classes), set[tuple[int, ...]]()
        for choice in itertools.product(range(len(self.located)), repeat=len(traits)):
            parts = list(self.unnamed.located)
            for having, number in zip(traits, choice, strict=True):
                parts[number] &= having[first + number]
            if tuple(parts) not in part_sets and not self._is_done:
                part_sets.add(tuple(parts))
                assigned = self.placing.assign(parts, self.budget, self.account.used)
                if assigned is not None:
                    yield self._solution(assigned)

    # --- what the rest depends on ---

    def _key(self, state: SearchState) -> Hashable:
        """Return a key of all that the search depends on from a state on."""
        step = state.step
        if state.source >= 0:
            return self._divisions[-1].key(state)
        if self._groups is not None and step < self._first_family:
            return step, self._groups.key
        reach, uses = self.reach_of_located, self.account.used.items() if self.located else ()
        used = tuple(sorted([(n, count) for n, count in uses if count and n in reach]))
        return step, self.open, self.unnamed.key, used

    @property
    def reach_of_located(self) -> frozenset[int]:
        """The inventories that placed amounts may use."""
        return frozenset() if self.placing is None else self.placing.reach

    @functools.cached_property
    def _reach(self) -> tuple[int, ...]:
        """The inventories that the unnamed group may use."""
        numbers = {number for demand in self.classes for number in demand.numbers}
        for demand in self.classes:
            numbers.update(n for uses in demand.shared_uses.values() for n, _ in uses)
        numbers.update(n for placed in self.located if placed.places for n in placed.reach)
        return tuple(numbers)

    def _next_to_groups(self) -> UnnamedBounds:
        """Return the unnamed group next to the named groups as they are assigned."""
        used, direct = self.account.used, self.account.direct
        key = tuple([(n, used[n], direct[n]) for n in self._reach if used.get(n)])
        if key not in self._unnamed_groups:
            if len(self._unnamed_groups) == _REMEMBERED:
                self._unnamed_groups.clear()
            self.account.read(self._reach)
            self._unnamed_groups[key] = UnnamedBounds(self, key)
        return self._unnamed_groups[key]

    @functools.cached_property
    def uses(self) -> tuple[list[tuple[Use, ...]], ...]:
        """By class and source, the use of inventories by one unit."""
        return tuple(map(_uses_of_sources, self.classes))

    def provider(self, number: int, source: int) -> int:
        """Return the provider of a source of a class."""
        return int(self.fleet.inventories.provider[self.classes[number].numbers[source]])

    def equality_key(self, provider: int) -> Hashable:
        """Return a key that equal providers in the same state have in common."""
        groups = () if self._groups is None else self._groups.kinds_at.get(provider, ())
        like = equivalence(self.fleet).of(self.fleet, provider)
        parts = [(n, at, part) for n, supply in enumerate(self._parts) for at, part in supply]
        provided = [(n, part) for n, at, part in parts if self.provider(n, at) == provider]
        return like, groups, tuple(provided)

    def answered(self, number: int, sources: Iterable[int]) -> int:
        """Return the open traits that all of some sources of a class have, as bits."""
        if not self.open:
            return 0
        chosen = bits_of(sources)
        return bits(not chosen & ~having[number] for having in self.traits) & self.open

    def open_traits(self) -> list[tuple[int, ...]]:
        """Return, for each trait that nothing answers for yet, the sources and parts with it."""
        if not self.open:
            return []
        return [having for trait, having in enumerate(self.traits) if self.open >> trait & 1]


class Account:
    """The use of inventories by the choices of a search so far.

    A provider of a group, or of a part of a class, uses its own inventories and, through shares,
    those of others. All capacity is counted here: the slots of groups, the largest parts of sources
    next to groups, and the parts of a division next to each other.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        #: by inventory, the amount in use; and the same without the use through shares
        self.used: dict[int, int] = defaultdict(int)
        self.direct: dict[int, int] = defaultdict(int)
        self._limits: dict[int, tuple[int, int]] = {}  # free capacity and ``max_unit``

    def read(self, inventories: Iterable[int]) -> None:
        """Read the limits of inventories: they are used only after this."""
        numbers = [number for number in inventories if number not in self._limits]
        if numbers:
            rows = self._fleet.inventories
            free = (rows.capacity[numbers] - rows.used[numbers]).tolist()
            limits = zip(free, rows.max_unit[numbers].tolist(), strict=True)
            self._limits.update(zip(numbers, limits, strict=True))

    def add(self, uses: Iterable[Use], times: int) -> None:
        """Add the use of inventories, or (below 0) remove it."""
        for inventory, amount, direct in uses:
            self.used[inventory] += times * amount
            self.direct[inventory] += times * direct

    def times(self, uses: Iterable[Use], most: int) -> int:
        """Return the number of times that inventories can be used in addition, up to ``most``."""
        for inventory, amount, direct in uses:
            free, max_unit = self._limits[inventory]
            times = (free - self.used[inventory]) // amount
            if direct and (of_unit := (max_unit - self.direct[inventory]) // direct) < times:
                times = of_unit
            if times < most:
                most = times
        return most

    def is_within(self, inventories: Iterable[int]) -> bool:
        """Return whether inventories have capacity for their use."""
        return all(self.used[n] <= max(0, self._limits[n][0]) for n in inventories)


# --- named groups -------------------------------------------------------------------------------

#: A provider by its place among those that may provide a group.
Local: TypeAlias = int


class GroupSlots:
    """The named groups on one tree: the assigned ones, and the slots for those that remain.

    A *slot* is capacity for one group of a kind at a provider if no further group is assigned. An
    assignment changes the slots of its provider, and of those that share the inventories it uses.
    Groups are assigned in the order of :attr:`kinds`, equal groups in the order of the providers,
    so each assignment comes once. Sets of providers are numbers with a bit for each.
    """

    def __init__(
        self,
        named: NamedGroups,
        tree: int,
        budget: Budget,
        account: Account,
        options: Sequence[Sequence[int]] | None = None,
        preference: Preference | None = None,
    ) -> None:
        """:param options: by kind, the providers of one group; None: all with capacity for it"""
        self._fleet = fleet = named.fleet
        self._kinds = named.kinds
        self._account = account
        self._isolates = named.isolates
        self._equivalent_sets = named.equivalent_sets
        self._like = named.equivalent_kinds
        budget.spend(len(named.kinds) * _PER_KIND // _GROUP_THINGS_PER_STEP)
        if options is None:
            options = [named.options(kind, tree) for kind in named.kinds]
        budget.spend(sum(map(len, options)) * _PER_OPTION // _GROUP_THINGS_PER_STEP)
        #: the providers by local place, and a number for each that equal ones have in common
        self.providers, self._equal = _in_order(fleet, tree, options, preference)
        local = {provider: place for place, provider in enumerate(self.providers)}
        self._options = [sorted(local[p] for p in of_kind) for of_kind in options]
        #: by kind and provider, the use of inventories by one group
        self._uses = [
            dict(zip(places, _uses_of_group(fleet, kind, providers), strict=True))
            for kind, places in zip(self._kinds, self._options, strict=True)
            for providers in [[self.providers[place] for place in places]]
        ]
        self._sets = [
            [number for number, kind in enumerate(self._kinds) if subtree in kind.subtrees]
            for subtree in range(named.subtrees)
        ]
        self._above = [
            bits_of(local[p] for p in fleet.upwards(provider) if p in local)
            for provider in (self.providers if self._sets else ())
        ]
        #: the kind of each group, in the order of the steps
        self.kinds = self._kinds_in_order(named.subtrees)
        self._kinds_alike = self._grouped_kinds()
        size = len(self._kinds) + len(self.kinds) + len(self.providers) * (1 + named.subtrees)
        #: the steps of the budget that assigning one group costs
        self.cost = 1 + size // _GROUP_THINGS_PER_STEP
        #: by provider, the kinds of the groups that are assigned to it
        self.kinds_at: dict[int, tuple[int, ...]] = {}
        self._chosen: list[Local] = []  # the provider of each assigned group
        self._remaining = [kind.count for kind in self._kinds]
        self._matching = Matching()
        #: by set, the providers below a provider that can be above the whole set
        self._below = [-1] * len(self._sets)
        self._above_any: dict[int, int] = {}
        #: by set, how many of its groups each provider has
        self._members: list[Counter[Local]] = [Counter() for _ in self._sets]
        self._count_slots()

    def _kinds_in_order(self, subtrees: int) -> list[int]:
        """Return the kinds in the order of the steps, once for each group.

        The groups of a subtree are together, those without resources first; then those with the
        fewest providers.
        """

        def key(number: int) -> tuple[int, bool, int, int]:
            kind = self._kinds[number]
            first = min(kind.subtrees, default=subtrees)
            return first, bool(kind.amounts), len(self._options[number]), self._like[number]

        order = sorted(range(len(self._kinds)), key=key)
        return [number for number in order for _ in range(self._kinds[number].count)]

    def _grouped_kinds(self) -> list[list[int]]:
        """Return the kinds, those together that differ in their subtrees only."""
        result: dict[Hashable, list[int]] = {}
        for number, kind in enumerate(self._kinds):
            key: Hashable = number
            if self._sets:
                key = kind.group.definition, tuple(self._options[number])
            result.setdefault(key, []).append(number)
        return list(result.values())

    # --- one group ---

    def choices(self) -> Iterator[Local]:
        """Yield the providers that the next group may be assigned to; of equal ones the first."""
        kind = self.kinds[len(self._chosen)]
        allowed = self._open[kind] & self._inside(kind) & -1 << self._first(kind)
        states: set[Hashable] = set()
        for place in self._options[kind]:
            if allowed >> place & 1:
                state = self._equal[place], self.kinds_at.get(self.providers[place])
                if state not in states:
                    states.add(state)
                    yield place

    def assign(self, place: Local) -> None:
        """Assign the next group to a provider."""
        kind, provider = self.kinds[len(self._chosen)], self.providers[place]
        self._chosen.append(place)
        self.kinds_at[provider] = tuple(sorted((*self.kinds_at.get(provider, ()), kind)))
        self._change(kind, place, 1)

    def unassign(self) -> None:
        """Undo the last assignment."""
        place = self._chosen.pop()
        kind, provider = self.kinds[len(self._chosen)], self.providers[place]
        kinds = list(self.kinds_at.pop(provider))
        kinds.remove(kind)
        if kinds:
            self.kinds_at[provider] = tuple(kinds)
        self._change(kind, place, -1)

    def _change(self, kind: int, place: Local, sign: int) -> None:
        self._remaining[kind] -= sign
        for subtree in self._kinds[kind].subtrees:
            counts = self._members[subtree]
            counts[place] += sign
            if not counts[place]:
                del counts[place]
        changed = {(other, place) for other, slots in enumerate(self._slots) if place in slots}
        uses = self._uses[kind][place]
        self._account.add(uses, sign)
        for inventory, _, _ in uses:
            changed.update(self._sharing.get(inventory, ()))
        for other, at in changed:
            self._set_slots(other, at)

    @property
    def assigned(self) -> tuple[tuple[int, int], ...]:
        """``(kind, provider)`` of each assigned group."""
        providers = [self.providers[place] for place in self._chosen]
        return tuple(zip(self.kinds, providers, strict=False))

    @property
    def key(self) -> Hashable:
        """A key of all that the search depends on before the next group.

        States in which equal sets of ``same_subtree`` are exchanged have the same key.
        """
        assigned = [
            (self._equal[place], tuple(sorted([self._like[kind] for kind in kinds])))
            for place in dict.fromkeys(self._chosen)
            for kinds in [self.kinds_at[self.providers[place]]]
        ]
        open_sets = [
            bits_of(self._members[subtree])
            for subtree, kinds in enumerate(self._sets)
            if any(self._remaining[kind] for kind in kinds)
        ]
        first = self._first(self.kinds[len(self._chosen)])
        return first, tuple(sorted(assigned)), tuple(open_sets)

    # --- slots ---

    def _count_slots(self) -> None:
        """Count all slots. Cost: some 5 microseconds for each provider of each kind."""
        #: by inventory that is used through shares, the slots that depend on it
        self._sharing: dict[int, list[tuple[int, Local]]] = {}
        users = [
            (use, kind, place)
            for kind, of_kind in enumerate(self._uses)
            for place, uses in of_kind.items()
            for use in uses
        ]
        self._account.read({inventory for (inventory, _, _), _, _ in users})
        if self._fleet.has_shares:
            shared = {inventory for (inventory, amount, direct), _, _ in users if direct < amount}
            for (inventory, _, _), kind, place in users:
                if inventory in shared:
                    self._sharing.setdefault(inventory, []).append((kind, place))
        #: by kind, the slots of each provider, of all, and the providers that have one
        self._slots: list[dict[Local, int]] = [dict.fromkeys(of, 0) for of in self._options]
        self._slot_totals = [0] * len(self._kinds)
        self._open = [0] * len(self._kinds)
        for kind, slots in enumerate(self._slots):
            for place in slots:
                self._set_slots(kind, place)

    def _set_slots(self, kind: int, place: Local) -> None:
        count = _UNBOUNDED
        if self._isolates:
            count = int(self.providers[place] not in self.kinds_at)
        count = max(0, self._account.times(self._uses[kind][place], count))
        self._slot_totals[kind] += count - self._slots[kind][place]
        self._slots[kind][place] = count
        bit = 1 << place
        self._open[kind] = self._open[kind] | bit if count else self._open[kind] & ~bit

    # --- bounds ---

    def may_finish(self) -> bool:
        """Return False if the remaining groups cannot be assigned.

        These bounds are cheap, and exclude no solution:

        * isolated groups need a provider each: a matching of groups and providers with a slot;
        * other groups with the same conditions need as many slots as there are groups;
        * the groups of a ``same_subtree`` need one of their providers above them all.

        The providers below those are remembered for the next :meth:`choices`.
        """
        if not self._find_below():
            return False
        for kinds in self._kinds_alike:
            count = sum(self._remaining[kind] for kind in kinds)
            if count and self._slots_of(kinds) < count:
                return False
        return not self._isolates or self._matching.can_match(
            [
                (count, self._open[kind] & self._inside(kind) & -1 << self._first(kind))
                for kind, count in enumerate(self._remaining)
            ]
        )

    def _slots_of(self, kinds: Sequence[int]) -> int:
        """Return the maximum number of groups of equal kinds that can still be assigned."""
        inside, first = 0, self._first(kinds[0]) if len(kinds) == 1 else 0
        for kind in kinds:
            if self._remaining[kind]:
                inside |= self._inside(kind)
        if inside == -1 and not first:
            return self._slot_totals[kinds[0]]
        slots = self._slots[kinds[0]].items()
        return sum(count for place, count in slots if place >= first and inside >> place & 1)

    def _first(self, kind: int) -> Local:
        """Return the first provider that a group of a kind may still be assigned to."""
        is_last = bool(self._chosen) and self.kinds[len(self._chosen) - 1] == kind
        return self._chosen[-1] if is_last else 0

    def _inside(self, kind: int) -> int:
        """Return the providers within the subtrees that a kind is in."""
        result = -1
        for subtree in self._kinds[kind].subtrees:
            result &= self._below[subtree]
        return result

    def _find_below(self) -> bool:
        """Find the providers of the rest of each set; return False if a set has none."""
        last: dict[int, int] = {}
        for subtree, equivalent in enumerate(self._equivalent_sets):
            before, last[equivalent] = last.get(equivalent), subtree
            if before is not None and not self._members[before]:
                self._below[subtree] = self._below[before]  # nothing of either is assigned
                continue
            tops = self._tops(subtree)
            if not tops:
                return False
            self._below[subtree] = bits_of(
                place for place, above in enumerate(self._above) if above & tops
            )
        return True

    def _tops(self, subtree: int) -> int:
        """Return the providers that can be above all groups of a set."""
        with_group = self._members[subtree]
        tops, possible = -1, bits_of(with_group)
        for place in with_group:
            tops &= self._above[place]
        for kind in self._sets[subtree]:
            if self._remaining[kind]:
                places = self._open[kind]
                if places not in self._above_any:
                    above = [above for at, above in enumerate(self._above) if places >> at & 1]
                    self._above_any[places] = functools.reduce(int.__or__, above, 0)
                possible |= places
                tops &= self._above_any[places]
        return tops & possible


def bits_of(places: Iterable[int]) -> int:
    """Return a number with the bits of some places set.

    >>> bits_of([0, 2])
    5
    """
    result = 0
    for place in places:
        result |= 1 << place
    return result


def _in_order(
    fleet: Fleet, tree: int, options: Sequence[Sequence[int]], preference: Preference | None
) -> tuple[list[int], list[int]]:
    """Return all providers, the preferred first, equal ones together; and what is equal."""
    of_tree = fleet.of_tree(tree)
    providers = sorted({p for of_kind in options for p in of_kind})
    providers.sort(key=lambda provider: provider not in of_tree)
    if preference is not None:
        providers = preference.of_providers(tree, providers)
    classes = equivalence(fleet)
    by_class: dict[Hashable, list[int]] = {}
    for provider in providers:
        by_class.setdefault(classes.of(fleet, provider), []).append(provider)
    equal = [number for number, of_class in enumerate(by_class.values()) for _ in of_class]
    return [provider for of_class in by_class.values() for provider in of_class], equal


def _uses_of_group(
    fleet: Fleet, kind: GroupKind, providers: Sequence[int]
) -> Iterator[tuple[Use, ...]]:
    """Yield the use of inventories by a group at each provider, one entry for each inventory."""
    amounts = [amount for _, _, amount in kind.amounts]
    numbers = [
        (rows.provider.searchsorted(providers) + rows.first).tolist() for _, rows, _ in kind.amounts
    ]
    for at_provider in zip(*numbers, strict=True) if numbers else ((),) * len(providers):
        uses = {n: (n, amount, amount) for n, amount in zip(at_provider, amounts, strict=True)}
        for inventory, amount, _ in tuple(uses.values()) if fleet.has_shares else ():
            for target, factor in fleet.shares.of(inventory):
                _, total, direct = uses.get(target, (target, 0, 0))
                uses[target] = target, total + amount * factor, direct
        yield tuple(uses.values())


# --- the unnamed group --------------------------------------------------------------------------


class UnnamedBounds:
    """The unnamed group next to the named groups as they are assigned: bounds of what is possible.

    Each class is decided as if it were the only one, by :func:`.split.split` where several devices
    provide it. The results are remembered by the sources and the open traits.
    """

    def __init__(self, solver: TreeSolver, used: tuple[tuple[int, int, int], ...]) -> None:
        """:param used: by inventory, its use by the named groups, with shares and without"""
        self._solver = solver
        self.key = used
        self._used = {number: count for number, count, _ in used}
        #: by class and source, the largest part that it can provide
        self.highs = tuple(map(self._largest_parts, range(len(solver.classes))))
        direct = [number for number, _, count in used if count]
        #: by placed amount, the parts that it may be on
        self.located = [_parts_without(direct, demand) for demand in solver.located]
        self._plans: dict[tuple[int, int], Supply] = {}
        self._sets: dict[tuple[int, int], tuple[int, ...] | None] = {}

    def _largest_parts(self, number: int) -> list[int]:
        solver, sources = self._solver, self._solver.classes[number].sources
        highs = [source.high for source in sources]
        for place, uses in enumerate(solver.uses[number]) if self._used else ():
            if any(use[0] in self._used for use in uses):
                times, step = solver.account.times(uses, highs[place]), sources[place].step
                highs[place] = times // step * step
        return highs

    def plan(self, number: int, sources: int) -> Supply:
        """Return the supply of a class by some sources, without the other classes; empty for none.

        The first source that can provide all of it does, else devices in parts.
        """
        key = number, sources
        if key not in self._plans:
            self._plans[key] = self._planned(number, sources)
        return self._plans[key]

    def _planned(self, number: int, sources: int) -> Supply:
        demand, highs = self._solver.classes[number], self.highs[number]
        self._solver.budget.spend(1 + len(demand.sources) // _SOURCES_PER_STEP)
        places = members(demand, sources)
        for place in places:
            if demand.provides(place, highs):
                return ((place, demand.amount),)
        places = [place for place in places if demand.sources[place].is_device]
        bounds = [(demand.sources[p].low, highs[p], demand.sources[p].step) for p in places]
        parts = split(demand.amount, bounds, self._solver.budget) or ()
        return tuple([(places[at], part) for at, part in parts])

    def preferred(self, number: int, sources: int) -> int:
        """Return the sources that answer for as many open traits as the class can, one by one."""
        for having in self._solver.open_traits():
            answering = sources & having[number]
            if answering and self.plan(number, answering):
                sources = answering
        return sources

    def sets(self, family: int) -> tuple[int, ...] | None:
        """Return the sources and parts that may provide each demand; None if one has none.

        A trait that only one demand can answer for narrows its sources.

        :param family: the first family that is not provided
        """
        # without traits, the result for the first family holds for the later ones
        key = family if self._solver.traits else 0, self._solver.open
        if key not in self._sets:
            self._sets[key] = self._narrowed(family)
        return self._sets[key]

    def _narrowed(self, family: int) -> tuple[int, ...] | None:
        solver, count = self._solver, len(self._solver.classes)
        classes = [number for later in solver.families[family:] for number in later.classes]
        sets = [*(demand.allowed for demand in solver.classes), *self.located]
        for having in solver.open_traits():
            answering = (
                number
                for number in (*classes, *range(count, len(sets)))
                if (sources := sets[number] & having[number])
                and (number >= count or self.plan(number, sources))
            )
            able = list(itertools.islice(answering, 2))
            if not able:
                return None
            if len(able) == 1:
                sets[able[0]] &= having[able[0]]
        if not all(self.plan(number, sets[number]) for number in classes):
            return None
        if solver.placing is not None:
            assigned = solver.placing.fit(sets[count:], solver.budget, self._used)
            if assigned is None and not solver.placing.is_cut_short:
                return None
        elif solver.open & (solver.open - 1) and not self._covers(classes, sets):
            return None
        return tuple(sets)

    def _covers(self, classes: Iterable[int], sets: Sequence[int]) -> bool:
        """Return whether the classes may answer for all traits: each for those of one source."""
        traits, most = self._solver.open_traits(), 0
        for number in classes:
            sources = members(self._solver.classes[number], sets[number])
            counts = [sum(having[number] >> s & 1 for having in traits) for s in sources]
            most += max(counts, default=0)
        return most >= len(traits)


def _parts_without(used: Sequence[int], demand: LocatedTreeDemand) -> int:
    """Return the parts of a placed amount of which no group uses units without naming them.

    A cell provides the CPUs of a topology by name. Next to CPUs of the same consumer that are
    counted, it would be unknown which are the topology's.

    :param used: the inventories that groups use, other than through shares
    """
    if not used or not demand.places or has_named_units(demand.resource_class):
        return demand.allowed
    inventory, names = demand.view.located.inventory, demand.amount.placed_counts
    excluded = {
        int(demand.fleet.inventories.provider[number])
        for number in used
        if (name := demand.fleet.class_of(number)) in names and inventory.units(name)
    }
    return demand.allowed & bits(provider not in excluded for provider in demand.places)


# --- families -----------------------------------------------------------------------------------


class _Family(NamedTuple):
    """Classes that are provided together: one, or all of which sources use the same inventories."""

    classes: tuple[int, ...]
    #: by ``(class, source)``, its use of inventories that others use too
    shared: Mapping[tuple[int, int], Sequence[Use]]
    inventories: Iterable[int] = ()  #: these inventories


@functools.cache
def _separate(count: int) -> list[_Family]:
    """Return families of one class each."""
    return [_Family((number,), {}) for number in range(count)]


def _families(fleet: Fleet, classes: Sequence[TreeDemand]) -> list[_Family]:
    """Return the families of some classes, in their order."""
    if not any(demand.shared_uses for demand in classes):
        return _separate(len(classes))
    uses = {
        (number, place): _uses_of_sources(demand)[place]
        for number, demand in enumerate(classes)
        for place in members(demand, demand.allowed)
    }
    count = Counter(use[0] for of_source in uses.values() for use in of_source)
    shared = {key: [use for use in uses[key] if count[use[0]] > 1] for key in uses}
    together = sorted({number for (number, _), of_source in shared.items() if of_source})
    inventories = {use[0] for of_source in shared.values() for use in of_source}
    result = [_Family(tuple(together), shared, inventories)] if together else []
    result += [_Family((n,), {}) for n in range(len(classes)) if n not in together]
    return sorted(result, key=lambda family: family.classes)


def _uses_of_sources(demand: TreeDemand) -> list[tuple[Use, ...]]:
    """Return, by source, the use of inventories by one unit; that of its own inventory first."""
    uses: list[tuple[Use, ...]] = [((number, 1, 1),) for number in demand.numbers]
    for source, links in demand.shared_uses.items():
        uses[source] += tuple([(target, factor, 0) for target, factor in links])
    return uses


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
        division_number: int,
    ) -> None:
        """:param sets: by class, its sources

        :param planned: the parts by class that were tried before; empty for none
        :param division_number: different for each division of the solver
        """
        self.planned = planned
        self._number = division_number
        self._solver = solver
        self._family = family
        #: by class of the family, its amount
        self.amounts = tuple([solver.classes[number].amount for number in family.classes])
        #: ``(place of its class in the family, class, source)``
        self.sources: list[tuple[int, int, int]] = []
        #: by source, the least and the most of a part, the unit, and whether it may be divided
        self._bounds: list[tuple[int, int, int, bool]] = []
        self._is_like_last: list[bool] = []
        is_one = len(family.classes) == 1  # a single source is no division
        last = -1
        for _, label, place, number, source in sorted(self._usable_sources(sets)):
            low, _, unit, is_device = solver.classes[number].sources[source]
            most = min(solver.unnamed.highs[number][source], self.amounts[place] - is_one)
            if not is_device:  # it provides all of its class, or nothing
                low = most = unit = self.amounts[place]
            self.sources.append((place, number, source))
            self._bounds.append((max(1, low), most, unit, is_device))
            self._is_like_last.append(label == last)
            last = label
        self._shared = [family.shared.get(source[1:], ()) for source in self.sources]
        self._sums = self._sums_of_rest()
        self._relevant = self._relevant_inventories()

    def _usable_sources(self, sets: Sequence[int]) -> Iterator[tuple[int, int, int, int, int]]:
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
            demand, highs = solver.classes[number], solver.unnamed.highs[number]
            for source in members(demand, sets[number]):
                low, _, _, is_device = demand.sources[source]
                is_whole = not is_one and demand.provides(source, highs)
                if (is_device and highs[source] >= max(1, low)) or is_whole:
                    provider = solver.provider(number, source)
                    equal: Hashable = number, source
                    if count[provider] < 2:
                        equal = number, solver.equality_key(provider)
                    uses = family.shared.get((number, source))
                    shared = solver.fleet.inventories.provider[uses[0][0]] if uses else equal
                    block = order.setdefault(shared, len(order))
                    yield block, order.setdefault(equal, len(order)), place, number, source

    def _sums_of_rest(self) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
        """Return, by source, how much the devices from there on could provide of each class.

        And whether another source could provide all of it.
        """
        sums, is_whole = [0] * len(self.amounts), [False] * len(self.amounts)
        result = [(tuple(sums), tuple(is_whole))]
        for (place, _, _), bounds in zip(self.sources[::-1], self._bounds[::-1], strict=True):
            if bounds[3]:
                sums[place] += bounds[1]
            else:
                is_whole[place] = True
            result.append((tuple(sums), tuple(is_whole)))
        return result[::-1]

    def _relevant_inventories(self) -> list[list[int]]:
        """Return, by source, the inventories whose use matters from there on.

        They are used by a source before and one after, or may be used by placed amounts.
        """
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        reach, end = self._solver.reach_of_located, len(self.sources)
        for at, (_, number, source) in enumerate(self.sources):
            for use in self._solver.uses[number][source] if reach else self._shared[at]:
                first.setdefault(use[0], at)
                last[use[0]] = end if use[0] in reach else at
        return [[n for n in last if first[n] < at <= last[n]] for at in range(end + 1)]

    def may_finish(self, state: SearchState) -> bool:
        """Return False if the sources from a state on cannot provide what is missing."""
        sums, is_whole = self._sums[state.source]
        for place, missing in enumerate(state.missing):
            if missing > sums[place] and not (is_whole[place] and missing == self.amounts[place]):
                return False
        return state.source < len(self.sources)

    def parts_of(self, state: SearchState) -> range:
        """Return the parts that the next source can provide, the largest first."""
        at = state.source
        place = self.sources[at][0]
        low, most, unit, is_device = self._bounds[at]
        missing = state.missing[place]
        most = min(self._solver.account.times(self._shared[at], most), missing)
        if self._is_like_last[at]:
            most = min(most, self._part_before(state))
        least = max(low, missing - self._sums[at + 1][0][place]) if is_device else low
        return range(most // unit * unit, least - 1, -unit)

    def _part_before(self, state: SearchState) -> int:
        """Return the part of the source before the next one."""
        source, part = state.parts[-1] if state.parts else (-1, 0)
        return part if source == state.source - 1 else 0

    def by_class(self, parts: Iterable[tuple[int, int]]) -> dict[int, Supply]:
        """Return parts by class."""
        result: dict[int, list[tuple[int, int]]] = {number: [] for number in self._family.classes}
        for at, part in parts:
            _, number, source = self.sources[at]
            result[number].append((source, part))
        return {number: tuple(sorted(result[number])) for number in result}

    def key(self, state: SearchState) -> Hashable:
        """Return a key of all that the parts from a state on depend on."""
        solver, at = self._solver, state.source
        used = tuple([solver.account.used[number] for number in self._relevant[at]])
        like = at < len(self.sources) and self._is_like_last[at]
        before = self._part_before(state) if like else -1
        answered: tuple[int, ...] = ()
        if solver.traits:
            supplies = self.by_class(state.parts).items()
            answered = tuple([solver.answered(n, (s for s, _ in supply)) for n, supply in supplies])
        return self._number, at, state.missing, used, answered, before


# --- questions of explanations ------------------------------------------------------------------


def may_provide(
    fleet: Fleet,
    tree: int,
    classes: Sequence[TreeDemand] = (),
    located: Sequence[LocatedTreeDemand] = (),
    named: NamedGroups | None = None,
) -> bool:
    """Return whether a tree provides some demands, or the decision takes too long."""
    try:
        solver = TreeSolver(fleet, tree, Budget(PATIENCE), classes, located, named)
        return next(solver.solutions(), None) is not None
    except SearchLimitReached:
        return True
