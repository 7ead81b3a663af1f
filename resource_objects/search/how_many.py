"""How many of a request fit: so many for sure, with who takes what, and so many at most.

The two bounds are kept apart all the way. What arrays say of each host is never too little; where
counts alone are asked for, of inventories that do not meet, it is not too much either, and all is
decided in some passes over the fleet. Elsewhere members are taken in a
scenario, host by host in turn, as many as go, and where that is less than arrays allow, the exact
search of gangs (:class:`~resource_objects.search.gangs.GangSearch`) is asked of each number in
between. A search that is cut short leaves the bounds where they are.

Hosts are decided apart from each other, but for those that one pool serves: these are decided at
once, so that a pool is counted once. Hosts in the same state are decided once.

That it is enough to ask for numbers in between by halves: where so many fit, fewer do, for who is
left out gives back what it would have taken, and nothing that a request can ask for is met only
because somebody else holds something.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.requests import Gang, Member, Request, RequestLike
from resource_objects.resources.budget import Budget
from resource_objects.search.alike_hosts import AlikeHosts
from resource_objects.search.arrays import Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.counting import CountedKind, CountedMix
from resource_objects.search.gang_problem import CapacityByHost, kinds_of, upper_bounds
from resource_objects.search.gangs import GangSearch
from resource_objects.search.limits import under
from resource_objects.search.order import Options
from resource_objects.search.problem import Problem, lay
from resource_objects.search.scenario import Scenario

#: What the member of a mix is called that is given as a request alone.
ALONE = "request"
#: So many members are placed by a search at most. Where counts alone decide there is no bound.
MOST_SEARCHED = 100_000
#: Steps that the search for one more on a host may take, so that all hosts have their turn.
FIRST_TURN = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """How many fit: at least, and at most.

    >>> print(Count(3, 3), "or", Count(3, 5))
    3 or 3 to 5
    >>> Count(3, 5).is_exact
    False
    """

    at_least: int  #: so many were placed
    at_most: int  #: more cannot be

    @property
    def is_exact(self) -> bool:
        """Whether both are the same."""
        return self.at_least == self.at_most

    def __str__(self) -> str:
        return f"{self.at_least}" if self.is_exact else f"{self.at_least} to {self.at_most}"


class HowMany:
    """How many of a request, or of a mix of requests, fit at once.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=5"))
    ...     found = ledger.snapshot().how_many("VCPU=2")
    ...     claims = ledger.claim_all(
    ...         {f"job-{number}": one for number, one in enumerate(found.placements)})
    >>> print(found, found.is_exact)
    6 True
    >>> {host: str(count) for host, count in found.by_host.items()}
    {'host0': '4', 'host1': '2'}
    >>> print(claims[-1])
    job-5 holds VCPU=2 of host1
    """

    __slots__ = ("_by_host", "_placed", "cut_short", "mix", "total")

    def __init__(
        self,
        mix: Gang,
        total: Count,
        *,
        by_host: Callable[[], Mapping[str, Count]],
        placed: Callable[[], Mapping[str, Sequence[Candidate]]],
        cut_short: bool = False,
    ) -> None:
        """:param by_host: how many each host holds by itself, worked out when somebody looks

        :param placed: by the name of each member, who takes what
        """
        self.mix = mix
        #: how many fit in all, each pool counted once; of a mix, how many times all its members
        self.total = total
        #: whether the budget ended before the bounds met
        self.cut_short = cut_short and not total.is_exact
        self._by_host: Callable[[], Mapping[str, Count]] | Mapping[str, Count] = by_host
        self._placed: Any = placed

    @property
    def at_least(self) -> int:
        """So many fit for sure: :attr:`placements` says how."""
        return self.total.at_least

    @property
    def at_most(self) -> int:
        """No more than so many fit."""
        return self.total.at_most

    @property
    def is_exact(self) -> bool:
        """Whether it is known how many fit."""
        return self.total.is_exact

    @property
    def by_host(self) -> Mapping[str, Count]:
        """How many each host could hold if all were its own, by name; those that hold none too.

        What a pool has counts for each host that it serves, so these may add up to more than
        :attr:`total`.
        """
        if callable(self._by_host):
            self._by_host = self._by_host()
        return self._by_host

    @property
    def of_member(self) -> Mapping[str, Sequence[Candidate]]:
        """Who takes what, by the name of each member of the mix.

        Built when somebody looks, some 10 microseconds for each.
        """
        if callable(self._placed):
            self._placed = self._placed()
        found: Mapping[str, Sequence[Candidate]] = self._placed
        return found

    @property
    def placements(self) -> Sequence[Candidate]:
        """A candidate for each of :attr:`at_least`; they can be claimed one after the other.

        Of a mix, all of its first member come first.
        """
        return tuple(itertools.chain.from_iterable(self.of_member.values()))

    def __str__(self) -> str:
        return f"{self.total}, cut short" if self.cut_short else str(self.total)

    def __repr__(self) -> str:
        return f"<HowMany: {self} of {self.mix}>"


def mix_of(given: Gang | RequestLike) -> Gang:
    """Return a mix of what one is made from: a gang as it is, or a request as its only member.

    :raises InvalidInput: for what is no request, or members that are bound to places: how often
        these fit is not asked here

    >>> print(mix_of("VCPU=2"))
    request of VCPU=2
    """
    if not isinstance(given, Gang):
        return Gang([Member(ALONE, Request.of(given))])
    every: tuple[Gang | Member, ...] = (given, *given.members)
    bound = [one for one in every if one.together is not None or one.at_most]
    if bound:
        raise exceptions.InvalidInput("request", "mix", str(bound[0]), "members without places")
    return given


def how_many(scenario: Scenario, mix: Gang, options: Options) -> HowMany:
    """Return how many times all members of a mix fit at once.

    Cost: some passes over the fleet where one request asks for counts alone. Else half a
    millisecond for each that is placed on a host of a state of its own, and what the exact search
    takes, within the budget.

    :param scenario: a fork of what is asked, in which members may be tried; left as it was
    :param options: of the search: budget and limits
    """
    if len(mix.members) > 1 or mix.count > 1:
        return _Mixed(scenario, mix, options).answer()
    return _Alone(scenario, mix, options).answer()


# --- one request ----------------------------------------------------------------------------------


class _Together:
    """Hosts that are decided at once: mostly one, or those that one pool serves."""

    def __init__(self, trees: Integers, most: int) -> None:
        self.trees = trees
        self.most = most
        self.found: list[Candidate] = []
        self.alike: list[int] = []  # of one host: those in the same state, itself among them
        self.is_cut = False  # whether a budget ended before it was known

    @property
    def count(self) -> Count:
        """How many fit there."""
        return Count(len(self.found), self.most)


class _Alone:
    """One request while it is counted."""

    def __init__(self, scenario: Scenario, mix: Gang, options: Options) -> None:
        self.scenario, self.mix, self.options = scenario, mix, options
        self.fleet = under(scenario.snapshot.fleet, options.limits)
        self.like = mix.members[0]
        self.problem: Problem = lay(self.like.request, self.fleet)
        self.counted = CountedKind(self.problem)
        self.budget = Budget(options.budget)
        self.apart: list[_Together] = []  # what arrays do not decide, each state once

    def answer(self) -> HowMany:
        """Return how many fit."""
        states: dict[Hashable, _Together] = {}
        for trees in self.counted.components():
            first = int(trees[0])
            key = self.states.of(first) if len(trees) == 1 else first
            if key not in states:
                states[key] = _Together(trees, self.counted.together(trees))
                self.apart.append(states[key])
            states[key].alike.append(first)
        if self.apart:
            self._take_in_turn()
            self._narrow(self.apart, self.budget)
        placed = sum(self.counted.placed.tolist())
        return HowMany(
            self.mix,
            Count(
                placed + sum(one.count.at_least * len(one.alike) for one in self.apart),
                placed + sum(one.count.at_most * len(one.alike) for one in self.apart),
            ),
            by_host=self._by_host,
            placed=self._placed,
            cut_short=not self.budget.left or any(one.is_cut for one in self.apart),
        )

    def _take_in_turn(self) -> None:
        """Take what hosts can hold, one on each host in each round, as far as the budget goes."""
        going = [(one, tree) for one in self.apart for tree in one.trees.tolist()]
        fitting, purse = self._fitting(1), Budget(0)
        fitting.budget = self.budget
        placed = 0
        try:
            while going and placed < MOST_SEARCHED:
                problem, stay = fitting.problem_now(0), []
                for one, tree in going:
                    if len(one.found) >= one.most:
                        continue
                    fitting.budget = purse
                    with self.budget.lend(purse, FIRST_TURN):
                        try:
                            found = next(fitting.candidates(problem, tree), None)
                        except SearchLimitReached:
                            one.is_cut |= not purse.left
                            continue  # of this host nothing more is known
                    if found is not None and fitting.allocate(found):
                        one.found.append(found)
                        stay.append((one, tree))
                placed += len(stay)
                going, fitting.budget = stay, self.budget
        except SearchLimitReached:
            pass  # what was placed is known
        finally:
            fitting.undo()

    def _narrow(self, every: Sequence[_Together], budget: Budget) -> None:
        """Bring bounds together by asking whether numbers in between fit."""
        wide = [one for one in every if len(one.found) < one.most]
        if not wide or not budget.left:
            return
        fitting = self._fitting(min(max(one.most for one in wide), MOST_SEARCHED))
        fitting.budget = purse = Budget(0)
        for number, one in enumerate(wide):
            with budget.lend(purse, budget.left // (len(wide) - number)):
                _narrow(one, fitting)

    @functools.cached_property
    def states(self) -> AlikeHosts:
        """The states of hosts."""
        return AlikeHosts([self.problem], self.counted.most)

    def _fitting(self, count: int) -> GangSearch:
        """Return the search for so many."""
        member = Member(self.like.name, self.like.request, count)
        return GangSearch(self.scenario, Gang([member]), {}, self.options)

    # --- what is told ---

    def _placed(self) -> Mapping[str, Sequence[Candidate]]:
        every = list(self.counted.placements())
        for one in self.apart:
            every += one.found
            for tree in one.alike[1:]:
                every += (self.states.moved(found, one.alike[0], tree) for found in one.found)
        return FrozenDict({self.like.name: tuple(every)})

    def _by_host(self) -> Mapping[str, Count]:
        fleet, most = self.fleet, self.counted.most
        at_least = np.where(self.counted.is_exact, most, 0).tolist()
        at_most = most.tolist()
        each = [one for one in self.apart if len(one.trees) == 1]
        for one in each + self._by_themselves():
            for tree in one.alike:
                at_least[tree], at_most[tree] = one.count.at_least, one.count.at_most
        return FrozenDict(
            {
                name: Count(least, most)
                for tree, (name, least, most) in enumerate(
                    zip(fleet.hosts, at_least, at_most, strict=True)
                )
                if fleet.is_within(tree) and tree not in fleet.pools.trees
            }
        )

    def _by_themselves(self) -> list[_Together]:
        """Return each of the hosts that were decided at once, as if it were the only one."""
        every: list[_Together] = []
        for one in self.apart:
            placed: dict[str, list[Candidate]] = {}
            for found in one.found:
                placed.setdefault(found.host, []).append(found)
            for tree in one.trees.tolist() if len(one.trees) > 1 else ():
                alone = _Together(integers([tree]), int(self.counted.most[tree]))
                alone.alike = [tree]
                alone.found = placed.get(self.fleet.hosts[tree], [])
                every.append(alone)
        self._narrow(every, Budget(self.options.budget))
        return every


def _narrow(one: _Together, fitting: GangSearch) -> None:
    """Find how many hosts hold between what they took in turn and what they may hold at most."""
    low, high = len(one.found), min(one.most, MOST_SEARCHED)
    while low < high and fitting.budget.left:
        count = (low + high + 1) // 2
        try:
            given = fitting.place((count,), one.trees)
        except SearchLimitReached:  # spent, or it cannot be said: fewer may fit for sure
            one.is_cut |= not fitting.budget.left
            high = count - 1
            continue
        if given is not None:
            low, one.found = count, given[0]
        else:
            high = count - 1
            if one.most > high:
                one.most = high


# --- a mix of requests ----------------------------------------------------------------------------


class _Mixed:
    """A mix of requests while it is counted: how many times all of its members fit at once."""

    def __init__(self, scenario: Scenario, mix: Gang, options: Options) -> None:
        self.scenario, self.mix, self.options = scenario, mix, options
        self.fleet = under(scenario.snapshot.fleet, options.limits)
        self.supply = CapacityByHost(self.fleet)
        self.budget = Budget(options.budget)
        one = kinds_of(mix, self.supply)
        self.ratio = tuple(kind.count for kind in one)
        self.labels = [[member.name for member in kind.members] for kind in one]
        self.problems = [kind.problem for kind in one]
        self.totals = [kind.totals for kind in one]
        #: of each request by tree, how many it can hold at most if alone
        self.each = [upper_bounds(problem, self.supply, MAX_AMOUNT) for problem in self.problems]
        self.most = self._most()
        self.counted = CountedMix(self.problems, self.each, self.supply)
        self.is_cut = False  # whether a budget ended before it was known

    def answer(self) -> HowMany:
        """Return how many fit."""
        every = self._most_in_all()
        low, dealt = self._dealt(every)
        found, given = self._narrowed(every, low=low)
        return HowMany(
            self.mix,
            found,
            by_host=self._by_host,
            placed=lambda: self._by_member(
                list(self.counted.placements(dealt)) if given is None and dealt else given or ()
            ),
            cut_short=not self.budget.left or self.is_cut,
        )

    def _dealt(self, most: int) -> tuple[int, list[Integers] | None]:
        """Return how many can be dealt to the hosts of which arrays decide, and what each gets."""
        low, high, found = 0, most if self.counted.is_decided.any() else 0, None
        while low < high:
            count = (low + high + 1) // 2
            dealt = self.counted.dealt([count * each for each in self.ratio])
            if dealt is None:
                high = count - 1
            else:
                low, found = count, dealt
        return low, found

    def _most(self) -> Integers:
        """Return by tree how many it can hold at most, if all pools were its own."""
        found = np.full(len(self.fleet.hosts), MAX_AMOUNT)
        for most, count in zip(self.each, self.ratio, strict=True):
            np.minimum(found, most // count, out=found)
        for name, total in self._together().items():
            np.minimum(found, self.supply.free(name) // total, out=found)
        return found

    def _together(self) -> dict[str, int]:
        """Return how much of each class that there is all members use."""
        found: dict[str, int] = {}
        for totals, count in zip(self.totals, self.ratio, strict=True):
            for name, total in totals.items():
                if name in self.fleet.classes:
                    found[name] = min(found.get(name, 0) + total * count, MAX_AMOUNT)
        return found

    def _most_in_all(self) -> int:
        """Return how many all hosts can hold at most, each pool counted once."""
        found = MAX_AMOUNT
        able = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        for most, totals, count in zip(self.each, self.totals, self.ratio, strict=True):
            able |= most > 0
            found = min(found, sum(most.tolist()) // count)
            for name, total in totals.items():
                if name in self.fleet.classes:
                    free = self.supply.total(name, most > 0)
                    found = min(found, free // (total * count))
        for name, total in self._together().items():
            found = min(found, self.supply.total(name, able) // total)
        return found

    def _narrowed(
        self, most: int, trees: Integers | None = None, low: int = 0
    ) -> tuple[Count, list[list[Candidate]] | None]:
        """Return how many fit, and candidates by kind for those that do.

        :param low: so many do for sure; no candidates are returned for that alone
        """
        high = min(most, MOST_SEARCHED // sum(self.ratio))
        given: list[list[Candidate]] | None = None
        if low >= high:
            return Count(low, most), given
        fitting = self._fitting(high)
        fitting.budget = purse = Budget(0)
        while low < high and self.budget.left:
            count = (low + high + 1) // 2
            with self.budget.lend(purse, (self.budget.left + 1) // 2):
                try:
                    some = fitting.place(tuple(count * each for each in self.ratio), trees)
                except SearchLimitReached:  # spent, or it cannot be said: fewer may fit for sure
                    self.is_cut |= not purse.left
                    high = count - 1
                    continue
            if some is not None:
                low, given = count, some
            else:
                most = min(most, count - 1)
                high = count - 1
        return Count(low, most), given

    def _fitting(self, count: int) -> GangSearch:
        """Return the search for so many of the mix."""
        members = [dataclasses.replace(one, count=one.count * count) for one in self.mix.members]
        return GangSearch(self.scenario, Gang(members), {}, self.options)

    def _by_member(
        self, given: Sequence[Sequence[Candidate]]
    ) -> Mapping[str, tuple[Candidate, ...]]:
        """Return candidates by the names of members, of those alike the first ones first."""
        counts = {one.name: one.count for one in self.mix.members}
        found: dict[str, tuple[Candidate, ...]] = {}
        each = given or [()] * len(self.ratio)
        for names, ratio, some in zip(self.labels, self.ratio, each, strict=True):
            times, at = len(some) // ratio, 0
            for name in names:
                found[name] = tuple(some[at : at + times * counts[name]])
                at += times * counts[name]
        return FrozenDict({one.name: found[one.name] for one in self.mix.members})

    def _by_host(self) -> Mapping[str, Count]:
        fleet, states = self.fleet, AlikeHosts(self.problems)
        known: dict[Hashable, Count] = {}
        found: dict[str, Count] = {}
        self.budget = Budget(self.options.budget)
        for tree, (name, most) in enumerate(zip(fleet.hosts, self.most.tolist(), strict=True)):
            if not fleet.is_within(tree) or tree in fleet.pools.trees:
                continue
            if not most:
                found[name] = Count(0, 0)
                continue
            if self.counted.is_decided[tree]:
                found[name] = Count(most, most)
                continue
            key = states.of(tree)
            if key not in known:
                known[key], _ = self._narrowed(most, integers([tree]))
            found[name] = known[key]
        return FrozenDict(found)
