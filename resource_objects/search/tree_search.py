"""The candidates of one tree, one after the other, each once.

Who gives the named groups comes first (:mod:`.assignment`); for each way the unnamed group is
given of what is left (:class:`ResidualDemand`). Ways that differ in which of equal providers gives
what, or in which of the groups that are alike is given by whom, are one candidate.

Rejected: the unnamed group first. It has the most ways, by far, and knows nothing of what the named
groups need; they have few, and what they take is then simply used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import Allocation
from resource_objects.resources import Amount, Amounts, resource
from resource_objects.resources.backtracking import CutShort, Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.resources.located import Identified
from resource_objects.search.assignment import Assigning, Assignment
from resource_objects.search.candidates import Candidate
from resource_objects.search.conditions.amounts import (
    Decision,
    Supply,
    TreeDemand,
    bits,
    members,
    splits,
)
from resource_objects.search.conditions.located import LocatedTreeDemand
from resource_objects.search.conditions.near import ANYWHERE, Near
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Preference
from resource_objects.search.problem import Problem
from resource_objects.search.solver import decide, residual


class TreeCandidate(NamedTuple):
    """A candidate of a tree."""

    candidate: Candidate
    key: Hashable  #: what it has in common with those that are the same but for equal providers
    is_of_pools: bool  #: whether pools give all of it, so that other trees may find it too


class Wider(NamedTuple):
    """There is no further candidate of so few places: the next ones have more."""

    places: int


class TreeSearch:
    """The search on one tree; it may be left and taken up again."""

    def __init__(
        self,
        problem: Problem,
        tree: int,
        preference: Preference,
        places: int | None = None,
        parts: Sequence[int] | None = None,
    ) -> None:
        """:param places: of how few places candidates may be, if few are asked for

        :param parts: for each located amount, the parts it may be on; None: any. Not for what has
            to be near
        """
        self._problem = problem
        self._tree = tree
        self._preference = preference
        self._purse = Budget(0)
        self._has_found = False
        self._seen: set[Hashable] = set()
        self._least = 1 if places is None else places
        self._parts = parts
        self._ways = self._every()

    def next(self, budget: Budget, most: int) -> TreeCandidate | Wider | None:
        """Return the next candidate, None if there is none.

        Where few places of a level are to give it, those of the fewest come first; before those of
        more comes how many these have.

        :param most: steps that it may take of the budget
        :raises SearchLimitReached: if that is not enough; then no more is to be had of this one
        """
        with budget.lend(self._purse, most):
            return next(self._ways, None)

    def _every(self) -> Iterator[TreeCandidate | Wider]:
        problem, near = self._problem, self._problem.near
        if near is not None:
            yield from self._by_places(near)
        if near is None or not near.is_required:
            asks = problem.of_tree(self._tree, self._preference)
            located = problem.located_of_tree(self._tree)
            if self._parts is not None:
                located = [one.among(p) for one, p in zip(located, self._parts, strict=True)]
            yield from self._within(asks, located)

    def _by_places(self, near: Near) -> Iterator[TreeCandidate | Wider]:
        """Yield what few places give, the fewest first."""
        here = near.of_tree(self._tree, self._preference)
        for count in range(self._least, 2 if near.is_required else here.most + 1):
            if count > self._least:
                yield Wider(count)
            for among in here.sets(count, self._purse):
                asks, located = here.within(among)
                options = here.options(among) if self._problem.named else None
                yield from self._within(asks, located, options, only_first=here.splits_counts)
        if not near.is_required and self._least < ANYWHERE:
            yield Wider(ANYWHERE)

    def _within(
        self,
        asks: Sequence[TreeDemand],
        located: Sequence[LocatedTreeDemand],
        options: Sequence[Sequence[int]] | None = None,
        *,
        only_first: bool = False,
    ) -> Iterator[TreeCandidate]:
        """Yield what is found of a demand on this tree.

        :param options: by kind of named group, who may give one; None: whoever does by itself
        :param only_first: whether one way to give the unnamed group is enough
        """
        self._unnamed = ResidualDemand(self._problem.fleet, asks, located, self._purse)
        self._options, self._only_first = options, only_first
        if any(before is not None for before in self._problem.named.equivalent_before):
            # of ways that differ in which of equivalent sets has what, one is enough to find out
            # whether there is a candidate; it is the first one
            found = yield from self._beside(self._assignments(is_once=True), only_one=True)
            if not found:
                return
        yield from self._beside(self._assignments())

    def _beside(
        self, assignments: Iterable[Assignment], *, only_one: bool = False
    ) -> Generator[TreeCandidate, None, bool]:
        """Yield what is found beside ways to give the named groups; return whether there is any.

        :param only_one: whether to go no further than the first way with a candidate
        """
        has_any = False
        for given in assignments:
            found = False
            for one in self._of(given):
                found = has_any = True
                if one.key not in self._seen:
                    self._seen.add(one.key)
                    self._has_found = True
                    yield one
            if (found and only_one) or (not found and self._is_hopeless(given)):
                return has_any
        return has_any

    def _is_hopeless(self, given: Assignment) -> bool:
        """Return whether what could not be given beside this way cannot be given beside another."""
        return self._unnamed.reach.isdisjoint(given.used) and not self._needs_own(given)

    def _assignments(self, *, is_once: bool = False) -> Iterator[Assignment]:
        """Yield the ways to give the named groups, if the unnamed one can be given at all.

        :param is_once: whether equivalent sets are not exchanged
        """
        if not self._problem.named:
            yield Assignment((), {}, {})
        elif self._unnamed.first({}, {}, False) is not None:
            named = self._problem.named
            assigning = Assigning(
                named, self._tree, self._purse, self._preference, self._unnamed, self._options
            )
            yield from assigning.ways(is_once=is_once)

    def _needs_own(self, given: Assignment) -> bool:
        """Return whether the unnamed group has to be given by the tree itself, at least in part."""
        problem = self._problem
        if not problem.rules.host_gives or not problem.fleet.pools:
            return False
        return not any(self._is_own(provider) for _, provider in given.given)

    def _is_own(self, provider: int) -> bool:
        return int(self._problem.fleet.tree[provider]) == self._tree

    def _of(self, given: Assignment) -> Iterator[TreeCandidate]:
        """Yield the candidates beside a way to give the named groups."""
        needs_own = self._needs_own(given)
        first = self._first(given, needs_own)
        if first is None:
            return
        yield first
        if not self._unnamed.asks or self._only_first:
            return
        states: dict[int, Hashable] = {}
        for number, provider in given.given:
            states[provider] = (*states.get(provider, ()), number)  # type: ignore[misc]
        for found in self._unnamed.others(given.used, given.own, needs_own, states):
            try:
                yield self._built(given, found)
            except FewUnits:
                continue

    def _first(self, given: Assignment, needs_own: bool) -> TreeCandidate | None:
        """Return the first candidate, again with less where units are fewer than counted.

        What is too much beside this way may be had beside another.
        """
        unnamed = self._unnamed
        while True:
            found = unnamed.first(given.used, given.own, needs_own)
            if found is None:
                return None
            try:
                return self._built(given, found)
            except FewUnits as few:
                if few.ask < 0:
                    return None
                self._purse.spend()
                unnamed = unnamed.with_less(few.ask, few.source, few.amount - 1)

    def _built(self, given: Assignment, found: Decision) -> TreeCandidate:
        problem, unnamed = self._problem, self._unnamed
        parts = list(parts_of(problem.fleet, unnamed.asks, found))
        if self._has_found:  # the first of each host is as much as there are hosts: never too much
            self._purse.spend(len(parts) + len(given.given))
        made = candidate(problem, self._tree, parts, unnamed.located, found.assigned, given.given)
        providers = [provider for _, provider in given.given]
        providers += [part.provider for part in parts]
        is_of_pools = not unnamed.located and problem.fleet.pools.every.issuperset(providers)
        return TreeCandidate(made, self._key(given, parts, found.assigned), is_of_pools)

    def _key(
        self, given: Assignment, parts: Iterable[ClassShare], assigned: Sequence[Amount]
    ) -> Hashable:
        fleet = self._problem.fleet
        holding: dict[int, list[tuple[int, int, int]]] = {}
        for number, provider in given.given:
            holding.setdefault(provider, []).append((0, number, 1))
        for part in parts:
            holding.setdefault(part.provider, []).append((1, part.ask, part.amount))
        every: dict[Hashable, int] = {}
        for provider, held in holding.items():
            one = equivalence(fleet).of(fleet, provider), tuple(sorted(held))
            every[one] = every.get(one, 0) + 1
        return frozenset(every.items()), tuple(assigned)


# --- the unnamed group --------------------------------------------------------------------------
# Every way to give the unnamed group on one tree, beside what named groups take there.
#
# The first way is that of the decision (:mod:`.solver`), which knows what is hard: amounts in
# parts, several classes that draw on one inventory, amounts that say where they go. Further ways
# are only looked for if somebody wants more than one candidate of a host: class by class, who
# gives all of it or which devices share it; equal providers in the same state are tried once.
# Where an amount says where it goes, the first way is the only one.
#
# What is used beside it decides, not who uses it: most ways to give named groups leave the same
# here, so each such state is decided once. Rejected: one search over named and unnamed classes
# together, in which what is hard about each (matchings and subtrees there; traits, parts and
# topologies here) would have to be known everywhere.


#: How much is used of inventories, by their numbers.
Used = Mapping[int, int]
#: So many states are remembered; then what is known is forgotten, and decided again if need be.
REMEMBERED_STATES = 10_000


class ResidualDemand:
    """The unnamed group asked of one tree, beside what others of the request use there."""

    def __init__(
        self,
        fleet: Fleet,
        asks: Sequence[TreeDemand],
        located: Sequence[LocatedTreeDemand],
        budget: Budget,
    ) -> None:
        self._fleet = fleet
        self.asks = tuple(asks)
        self.located = tuple(located)
        self._budget = budget
        numbers = {number for demand in asks for number in demand.numbers}
        numbers.update(draw.target for demand in asks for draw in demand.draws)
        numbers.update(number for one in located for number in one.reach if one.places)
        #: the inventories that it may use
        self.reach = frozenset(numbers)
        self._known: dict[Hashable, Decision | None] = {}

    def first(self, used: Used, own: Used, own_needed: bool) -> Decision | None:
        """Return the first way; None if there is none. Each state is decided once.

        :param used: what others use of inventories, :param own: not counting shares
        :param own_needed: whether somebody of the tree itself must give something
        :raises SearchLimitReached: if the budget runs out first
        """
        near, own = self._near(used), self._near(own)
        key = frozenset(near.items()), frozenset(own.items()), own_needed
        if key not in self._known:
            if len(self._known) == REMEMBERED_STATES:
                self._known.clear()
            self._known[key] = self._decided(near, own, own_needed)
        return self._known[key]

    def may_be_beside(self, used: Used, own: Used) -> bool:
        """Return whether it can be given at all, or whether that takes too long to find out.

        Asked while others are still being given: what it needs only gets scarcer, so a no is
        final. Without it, one device that only this group can use, given away first, is tried
        beside every way to give the other groups.
        """
        try:
            return self.first(used, own, False) is not None
        except CutShort:
            return True

    def _near(self, used: Used) -> dict[int, int]:
        """Return what is used of inventories that it may use."""
        return {n: count for n, count in used.items() if count and n in self.reach}

    def with_less(self, ask: int, source: int, amount: int) -> ResidualDemand:
        """Return the same where somebody gives no more than so much of a class."""
        asks = list(self.asks)
        asks[ask] = asks[ask].at_most(source, amount)
        return ResidualDemand(self._fleet, asks, self.located, self._budget)

    def left(self, used: Used, own: Used) -> list[TreeDemand]:
        """Return what is asked, of what is left beside what others use."""
        if not used:
            return list(self.asks)
        rows = self._fleet.inventories
        found = []
        for demand in self.asks:
            now = residual(demand, used, self._fleet.left)
            for source, number in enumerate(now.numbers):
                if number in own:
                    now = now.at_most(source, max(0, int(rows.max_unit[number]) - own[number]))
            found.append(now)
        return found

    def _decided(self, used: Used, own: Used, own_needed: bool) -> Decision | None:
        asks = self.left(used, own)
        located = [self._beside(one, own) for one in self.located]
        found = decide(asks, self._budget, located, used)
        if found is None or not own_needed or self._has_own(asks, found):
            return found
        for number, demand in enumerate(asks):
            some = [*asks[:number], demand.within(demand.own), *asks[number + 1 :]]
            found = decide(some, self._budget, located, used)
            if found is not None:
                return found
        return None

    def _beside(self, located: LocatedTreeDemand, own: Used) -> LocatedTreeDemand:
        """Return the same asked of the parts whose units nobody takes without saying which.

        A cell gives a topology its CPUs by name. Of a consumer that has others there by number
        nobody could tell which are the topology's.
        """
        fleet, kind = self._fleet, resource(located.ask.resource_class).inventory_kind
        if not own or not located.places or issubclass(kind, Identified):
            return located
        inventory, taken = located.view.located.inventory, located.ask.amount.located
        barred = {
            int(fleet.inventories.provider[number])
            for number in own
            if (name := fleet.class_of(number)) in taken and inventory.units(name)
        }
        allowed = bits(place not in barred for place in located.places) & located.allowed
        if allowed == located.allowed:
            return located
        return dataclasses.replace(located, allowed=allowed)

    def _has_own(self, asks: Sequence[TreeDemand], found: Decision) -> bool:
        """Return whether somebody of the tree itself gives something."""
        return bool(self.located) or any(
            source < demand.own
            for demand, parts in zip(asks, found.plans, strict=True)
            for source, _ in parts
        )

    def others(
        self, used: Used, own: Used, own_needed: bool, state: Mapping[int, Hashable]
    ) -> Iterator[Decision]:
        """Yield every way, of those that differ in equal providers one; the first is among them.

        :param state: what else the providers give, by their places: equal ones that give different
            things are not equal any more
        """
        if not self.located:
            asks = self.left(used, own)
            for plans in _Alternatives(self._fleet, asks, used, self._budget, state).every():
                found = Decision(plans)
                if not own_needed or self._has_own(asks, found):
                    yield found


class _Alternatives:
    """The ways of some asks while they are found."""

    def __init__(
        self,
        fleet: Fleet,
        asks: Sequence[TreeDemand],
        used: Used,
        budget: Budget,
        state: Mapping[int, Hashable],
    ) -> None:
        self._fleet = fleet
        self._asks = asks
        self._budget = budget
        self._used = dict(used)
        self._held: dict[int, list[Hashable]] = {
            place: [("named", held)] for place, held in state.items()
        }
        rows = fleet.inventories
        self._providers = [
            [int(place) for place in rows.provider[list(demand.numbers)]] for demand in asks
        ]
        self._room = {draw.target: draw.room for demand in asks for draw in demand.draws}
        self._plans: list[Supply] = []
        conditions = len(asks[0].with_trait) if asks else 0
        self._having = [
            [demand.with_trait[number] for demand in asks] for number in range(conditions)
        ]

    def every(self) -> Iterator[tuple[Supply, ...]]:
        """Yield who gives each class."""
        if not self._asks:
            yield ()
            return
        yield from solutions(0, self._expand, self._budget, cost=0)

    def _expand(self, at: int) -> Iterator[int | Solution[tuple[Supply, ...]]]:
        """Let a class be given in every way, one after the other, beside those before it."""
        for parts in self._options(at):
            self._budget.spend()
            self._plans.append(parts)
            self._book(at, parts, 1)
            if self._can_answer(at + 1) and self._has_room():
                yield at + 1 if at + 1 < len(self._asks) else Solution(tuple(self._plans))
            self._book(at, self._plans.pop(), -1)

    def _book(self, at: int, parts: Supply, sign: int) -> None:
        """Note what a class uses of inventories that several draw on, and who gives it."""
        demand = self._asks[at]
        for source, part in parts:
            held = self._held.setdefault(self._providers[at][source], [])
            if sign > 0:
                held.append((at, part))
            else:
                held.pop()
            if demand.draws or self._room:
                for number, count in demand.drawn(source, part):
                    if number in self._room:
                        self._used[number] = self._used.get(number, 0) + sign * count

    def _has_room(self) -> bool:
        left = self._fleet.left  # below 0 where a shrink left too little: then nobody may draw
        return all(
            count <= left(number) for number in self._room if (count := self._used.get(number, 0))
        )

    def _can_answer(self, decided: int) -> bool:
        """Return whether each condition is answered for by some class, or may still be."""
        for having in self._having:
            answered = any(
                all(having[number] >> source & 1 for source, _ in parts)
                for number, parts in enumerate(self._plans[:decided])
            )
            if not answered and not any(
                having[number] & self._asks[number].allowed
                for number in range(decided, len(self._asks))
            ):
                return False
        return True

    def _options(self, at: int) -> Iterator[Supply]:
        """Yield who may give a class, of those that are equal in the same state one."""
        demand = self._asks[at]
        tried: set[Hashable] = set()
        for source in members(demand, demand.allowed):
            if demand.sources[source].gives(demand.amount):
                key = self._key(at, source)
                if key not in tried:
                    tried.add(key)
                    yield ((source, demand.amount),)
        devices = [
            source
            for source in members(demand, demand.allowed)
            if demand.sources[source].is_device and demand.sources[source].high > 0
        ]
        if len(devices) > 1:
            together: dict[Hashable, list[int]] = {}
            for source in devices:
                together.setdefault(self._key(at, source), []).append(source)
            yield from splits(demand, list(together.values()), self._budget)

    def _key(self, at: int, source: int) -> Hashable:
        place = self._providers[at][source]
        return equivalence(self._fleet).of(self._fleet, place), tuple(self._held.get(place, ()))


# --- candidates ---------------------------------------------------------------------------------
# The candidate of a decision: allocations of one tree, with the units that they take.
#
# A count is decided as a count. Where a provider keeps devices by name, those that are free are
# then chosen, in the order of the kind, beside what the rest of the candidate takes there: a
# candidate says which devices (D3, D4).


#: What a candidate locates where nothing says where it goes.
_NO_AMOUNTS = Amounts()


class FewUnits(Exception):
    """A provider has fewer free units than it counts. Internal: it never leaves the search.

    ``ask`` is the number of the class, -1 for one of a named group; ``source`` that of the provider
    among its sources, ``amount`` what it was to give.
    """

    def __init__(self, ask: int, source: int, amount: int) -> None:
        super().__init__(ask, source, amount)
        self.ask, self.source, self.amount = ask, source, amount


class _Count(NamedTuple):
    """What one provider gives of a class."""

    ask: int  #: number of the class in the unnamed group, -1 for one of a named group
    source: int  #: its place among those of the class
    provider: int  #: its place in the fleet
    resource_class: str
    amount: int
    whole: Amount | None  #: as it was asked, where this is all of it
    units: tuple[str, ...]  #: asked for by name


def candidate(
    problem: Problem,
    tree: int,
    parts: Iterable[ClassShare],
    located: Sequence[LocatedTreeDemand] = (),
    assigned: Sequence[Amount] = (),
    given: Sequence[tuple[int, int]] = (),
) -> Candidate:
    """Return the candidate of a decision on a tree.

    :param parts: who gives how much of the unnamed group
    :param assigned: the located amounts, assigned
    :param given: which provider gives a group of which kind, of the named groups
    :raises FewUnits: if a provider has fewer free units than it counts
    """
    fleet = problem.fleet
    given = sorted(given, key=lambda one: one[0])  # in the order of the request
    by_kind = {one.ask.resource_class: a for one, a in zip(located, assigned, strict=True)}
    placed = [
        pair
        for one, amount in zip(located, assigned, strict=True)
        for pair in one.allocations(amount)
    ]
    counts = list(_counts(problem, parts))
    by_name = list(_of_named(problem, given))
    allocations = [
        *_counted(fleet, [*counts, *by_name], placed),
        *(each for _, each in placed),
    ]
    of_unnamed = [*(count.provider for count in counts), *(provider for provider, _ in placed)]
    sources = [*of_unnamed, *(provider for _, provider in given)]
    return Candidate._as_kept(
        host=fleet.hosts[tree],
        allocations=tuple(_summed(allocations) if by_kind or given else allocations),
        generations=tuple(_generations(fleet, sources)),
        located=Amounts(by_kind) if by_kind else _NO_AMOUNTS,
        mappings=_mappings(problem, of_unnamed, given),
    )


def counted_candidate(problem: Problem, tree: int, givers: Sequence[int]) -> Candidate:
    """Return the candidate of a tree where one provider gives all of each class, none by unit.

    It is what :func:`candidate` returns, where nothing is to be summed, placed or chosen.

    Cost: some 6 microseconds for three classes.

    :param givers: for each class, the place of the provider that gives it
    """
    fleet = problem.fleet
    return Candidate._as_kept(
        host=fleet.hosts[tree],
        allocations=tuple(
            [
                _allocation(fleet, provider, ask.resource_class, ask.amount, ask.whole, ask.units)
                for ask, provider in zip(problem.demands, givers, strict=True)
            ]
        ),
        generations=tuple(_generations(fleet, givers)),
        located=_NO_AMOUNTS,
        mappings=_mappings(problem, givers, ()),
    )


def _mappings(
    problem: Problem, of_unnamed: Iterable[int], given: Sequence[tuple[int, int]]
) -> FrozenDict:
    """Return who gives each group, by its suffix."""
    names = problem.fleet.names
    every = tuple([names[place] for place in dict.fromkeys(of_unnamed)])
    found = {"": every} if every else {}
    if not given:
        return FrozenDict(found)
    suffixes = [iter(kind.suffixes) for kind in problem.named.kinds]
    for number, provider in given:
        found[next(suffixes[number])] = (names[provider],)
    return FrozenDict(sorted(found.items()))


class ClassShare(NamedTuple):
    """What a provider gives of a class of the unnamed group."""

    ask: int  #: number of the class
    source: int  #: its place among those of the class, -1 where nobody asks again for less
    provider: int  #: its place in the fleet
    amount: int


def parts_of(fleet: Fleet, asks: Sequence[TreeDemand], found: Decision) -> Iterator[ClassShare]:
    """Yield who gives how much of the classes of the unnamed group."""
    provider = fleet.inventories.provider
    for number, (demand, parts) in enumerate(zip(asks, found.plans, strict=True)):
        for source, amount in parts:
            yield ClassShare(number, source, int(provider[demand.numbers[source]]), amount)


def _counts(problem: Problem, parts: Iterable[ClassShare]) -> Iterator[_Count]:
    for part in parts:
        ask = problem.demands[part.ask]
        whole = ask.whole if part.amount == ask.amount else None
        yield _Count(*part[:3], ask.resource_class, part.amount, whole, ask.units)


def _of_named(problem: Problem, given: Iterable[tuple[int, int]]) -> Iterator[_Count]:
    for number, provider in given:
        kind = problem.named.kinds[number]
        for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
            yield _Count(-1, -1, provider, name, amount, kind.group.resources[name], ())


def _counted(
    fleet: Fleet, counts: Iterable[_Count], placed: Iterable[tuple[int, Allocation]]
) -> Iterator[Allocation]:
    """Yield the allocations of counts, with units beside those that are taken already."""
    gone: dict[int, set[str]] = {}
    for provider, one in placed if fleet.views else ():
        gone.setdefault(provider, set()).update(one.units)
    for count in counts:
        units = count.units
        kind = fleet.views.of_devices(count.provider, count.resource_class)
        if kind is not None and not units:
            units = _units(fleet, kind, count, gone.get(count.provider, ()))
        if units:
            gone.setdefault(count.provider, set()).update(units)
        yield _allocation(fleet, *count[2:6], units)


def _units(fleet: Fleet, kind: str, count: _Count, gone: Iterable[str]) -> tuple[str, ...]:
    few = FewUnits(count.ask, count.source, count.amount)
    try:
        view = fleet.views.of_tree(kind, int(fleet.tree[count.provider]))
    except exceptions.InvalidInventory:
        raise few from None
    assert view is not None, "a part is of a view"
    part = view.places.index(count.provider)
    inventory = view.located.inventory
    assert isinstance(inventory, Identified), "devices are known one by one"
    found = inventory.some_units(part, count.resource_class, count.amount, frozenset(gone))
    if found is None:
        raise few
    return found


def _allocation(
    fleet: Fleet,
    provider: int,
    name: str,
    amount: int,
    whole: Amount | None,
    units: tuple[str, ...],
) -> Allocation:
    return Allocation._as_kept(
        provider=fleet.names[provider],
        provider_uuid=fleet.uuids[provider],
        resource_class=name,
        amount=resource(name).make_amount(amount) if whole is None else whole,
        units=units,
    )


def _summed(allocations: Iterable[Allocation]) -> Iterable[Allocation]:
    """Return allocations with one of each provider and class: several groups may ask for it."""
    found: dict[tuple[str, str], Allocation] = {}
    for one in allocations:
        key = one.provider, one.resource_class
        if key in found:
            amount: Any = found[key].amount
            units = tuple(sorted((*found[key].units, *one.units)))
            one = found[key].replace(amount=amount + one.amount, units=units)
        found[key] = one
    return found.values()


def _generations(fleet: Fleet, sources: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Yield (uuid, generation) of some providers and of all above them, each once."""
    found = dict.fromkeys(sources)
    if fleet.height > 1 or fleet.above:
        found = dict.fromkeys(above for source in found for above in fleet.upwards(source))
    for provider in found:
        yield fleet.uuids[provider], int(fleet.generation[provider])
