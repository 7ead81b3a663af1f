"""The number of a request that fits at once: a lower bound with candidates, and an upper bound.

Arrays give an upper bound for each host (:mod:`.counting`). Where only counts are requested, of
inventories that share nothing, it is exact, and some passes over the fleet decide all. Elsewhere
members are allocated in a scenario, one on each host in turn, until no host has room. Where that is
less than the upper bound, numbers in between are placed by the exact search of gangs
(:class:`~resource_objects.search.gangs.GangSearch`). A search that is cut short leaves the bounds
as they are.

Hosts are decided individually, but those that one pool serves together, so that the pool is counted
once. One host of each class (:mod:`.host_classes`) is decided.

Bisection is valid: if a number fits, each smaller one does. A member that is left out releases its
resources, and no request depends on the use of another consumer.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.requests import Gang, Member, Request, RequestLike
from resource_objects.resources.budget import Budget
from resource_objects.search.arrays import Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.counting import CountedMix, CountedRequest, first_candidates
from resource_objects.search.distribution import Counts
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_problem import CapacityByHost, kinds_of, upper_bounds
from resource_objects.search.gangs import GangSearch
from resource_objects.search.host_classes import HostClasses
from resource_objects.search.order import Options
from resource_objects.search.problem import compile_request
from resource_objects.search.scenario import Scenario, State
from resource_objects.search.usage import with_limits

#: The name of the member of a mix that was passed as a request.
ONLY_MEMBER = "request"
#: The maximum number of members that are placed by a search. Arrays have no such limit.
MOST_SEARCHED = 100_000
#: The maximum number of steps of the search for one more on a host, so that all hosts have a turn.
FIRST_TURN = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """A number between two bounds.

    >>> print(Count(3, 3), "or", Count(3, 5))
    3 or 3 to 5
    >>> Count(3, 5).is_exact
    False
    """

    at_least: int  #: this number was placed
    at_most: int  #: no larger number fits

    @property
    def is_exact(self) -> bool:
        """True if both bounds are equal."""
        return self.at_least == self.at_most

    def __str__(self) -> str:
        return f"{self.at_least}" if self.is_exact else f"{self.at_least} to {self.at_most}"


class HowMany:
    """The number of a request, or of a mix of requests, that fits at once.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=5"))
    ...     answer = ledger.snapshot().how_many("VCPU=2")
    ...     claims = ledger.claim_all(
    ...         {f"job-{number}": one for number, one in enumerate(answer.placements)})
    >>> print(answer, answer.is_exact)
    6 True
    >>> {host: str(count) for host, count in answer.by_host.items()}
    {'host0': '4', 'host1': '2'}
    >>> print(claims[-1])
    job-5 holds VCPU=2 of host1
    """

    def __init__(
        self,
        mix: Gang,
        total: Count,
        *,
        by_host: Callable[[], Mapping[str, Count]],
        of_member: Callable[[], Mapping[str, Sequence[Candidate]]],
        cut_short: bool = False,
    ) -> None:
        """:param by_host: computes :attr:`by_host` when it is read

        :param of_member: computes :attr:`of_member` when it is read
        """
        self.mix = mix
        #: how many fit in all, each pool counted once; of a mix, how many times all its members
        self.total = total
        #: whether the budget ran out before the bounds met
        self.cut_short = cut_short and not total.is_exact
        self._by_host = by_host
        self._of_member = of_member

    @property
    def at_least(self) -> int:
        """The number that was placed: see :attr:`placements`."""
        return self.total.at_least

    @property
    def at_most(self) -> int:
        """An upper bound."""
        return self.total.at_most

    @property
    def is_exact(self) -> bool:
        """True if both bounds are equal."""
        return self.total.is_exact

    @functools.cached_property
    def by_host(self) -> Mapping[str, Count]:
        """The number that each host holds if no other host is used, by name; 0 included.

        The capacity of a pool counts for each host that it serves, so the sum may exceed
        :attr:`total`.
        """
        return self._by_host()

    @functools.cached_property
    def of_member(self) -> Mapping[str, Sequence[Candidate]]:
        """The candidates of each member of the mix, by its name.

        Computed when it is read, some 10 microseconds for each.
        """
        return self._of_member()

    @property
    def placements(self) -> Sequence[Candidate]:
        """A candidate for each of :attr:`at_least`; they can be claimed one after the other.

        Of a mix, all candidates of its first member come first.
        """
        return tuple(itertools.chain.from_iterable(self.of_member.values()))

    def __str__(self) -> str:
        return f"{self.total}, cut short" if self.cut_short else str(self.total)

    def __repr__(self) -> str:
        return f"<HowMany: {self} of {self.mix}>"


def mix_of(requested: Gang | RequestLike) -> Gang:
    """Return a gang as it is, or a gang of one member for a request.

    :raises InvalidInput: for an invalid request, or a gang with bounds or levels

    >>> print(mix_of("VCPU=2"))
    request of VCPU=2
    """
    if not isinstance(requested, Gang):
        return Gang([Member(ONLY_MEMBER, Request.of(requested))])
    parts: tuple[Gang | Member, ...] = (requested, *requested.members)
    bound = [part for part in parts if part.together is not None or part.at_most]
    if bound:
        raise exceptions.InvalidInput("request", "mix", str(bound[0]), "members without places")
    return requested


def how_many(scenario: Scenario[State], mix: Gang, options: Options) -> HowMany:
    """Return the number of times that all members of a mix fit at once.

    Cost: some passes over the fleet if only counts are requested. Else half a millisecond for each
    one that is placed on a host of a new class, and the exact search, within the budget.

    :param scenario: a fork of the snapshot, to allocate members in; it is left unchanged
    :param options: of the search: budget and limits
    """
    counter: _OneRequest | _Mix
    counter = (_Mix if mix.count > 1 else _OneRequest)(scenario, mix, options)
    return counter.answer()


# --- bisection ----------------------------------------------------------------------------------


class _Narrowed(NamedTuple):
    """Bounds after a bisection."""

    bounds: Count
    candidates: list[list[Candidate]] | None  #: by kind, for the lower bound; None: it is as before
    is_cut_short: bool  #: whether a budget ran out


def _bisect(
    search: GangSearch,
    count: Count,
    budget: Budget,
    *,
    ratio: Counts = (1,),
    hosts: Integers | None = None,
    share: int = 1,
) -> _Narrowed:
    """Narrow bounds: numbers in between are placed by the exact search.

    :param ratio: how many members of each kind are one of them
    :param share: each search may spend this fraction of the remaining budget: 1 / ``share``
    """
    low, most = count.at_least, count.at_most
    high = min(most, MOST_SEARCHED // sum(ratio))
    candidates, is_cut_short = None, False
    search.budget = Budget(0)
    while low < high and budget.left:
        middle = (low + high + 1) // 2
        with budget.lend(search.budget, (budget.left + share - 1) // share):
            try:
                placement = search.place(tuple(middle * count for count in ratio), hosts)
            except SearchLimitReached:  # spent, or unknown: fewer may be certain
                is_cut_short |= not search.budget.left
                high = middle - 1
                continue
        if placement is not None:
            low, candidates = middle, placement
        else:
            most = high = middle - 1
    return _Narrowed(Count(low, most), candidates, is_cut_short)


# --- one request --------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False, slots=True)
class _Component:
    """Hosts that are searched together: one, or those that a pool serves."""

    trees: Integers
    most: int
    candidates: list[Candidate] = dataclasses.field(default_factory=list)
    alike: list[int] = dataclasses.field(default_factory=list)  #: the first host and its class
    is_cut_short: bool = False

    @property
    def count(self) -> Count:
        return Count(len(self.candidates), self.most)


class _OneRequest:
    """The count of one request."""

    def __init__(self, scenario: Scenario[State], mix: Gang, options: Options) -> None:
        self.scenario, self.mix, self.options = scenario, mix, options
        self.fleet = with_limits(scenario.snapshot.fleet, options.limits)
        self.member = mix.members[0]
        self.counted = CountedRequest(compile_request(self.member.request, self.fleet))
        self.budget = Budget(options.budget)
        self.components: list[_Component] = []  # not decided by arrays; one of each class

    def answer(self) -> HowMany:
        """Return the answer."""
        by_class: dict[Hashable, _Component] = {}
        for trees in self.counted.components():
            first = int(trees[0])
            key = self._classes.of(first) if len(trees) == 1 else first
            if key not in by_class:
                by_class[key] = _Component(trees, self.counted.together(trees))
            by_class[key].alike.append(first)
        self.components = list(by_class.values())
        if self.components:
            self._allocate_in_turn()
            self._narrow(self.components, self.budget)
        placed = sum(self.counted.placed.tolist())
        return HowMany(
            self.mix,
            Count(
                placed + sum(c.count.at_least * len(c.alike) for c in self.components),
                placed + sum(c.count.at_most * len(c.alike) for c in self.components),
            ),
            by_host=self._by_host,
            of_member=self._of_member,
            cut_short=not self.budget.left or any(c.is_cut_short for c in self.components),
        )

    @functools.cached_property
    def _classes(self) -> HostClasses:
        return HostClasses([self.counted.problem], self.counted.most)

    def _search(self, count: int) -> GangSearch:
        member = Member(self.member.name, self.member.request, count)
        return GangSearch(self.scenario, Gang([member]), {}, self.options)

    def _allocate_in_turn(self) -> None:
        """Allocate one on each host in each round, until no host has room or the budget ends."""
        open_hosts = [(c, tree) for c in self.components for tree in c.trees.tolist()]
        search, lent, placed = self._search(1), Budget(0), 0
        search.budget = self.budget
        try:
            while open_hosts and placed < MOST_SEARCHED:
                problem, successful = search.problem_now(0), []
                for component, tree in open_hosts:
                    if len(component.candidates) >= component.most:
                        continue
                    search.budget = lent
                    with self.budget.lend(lent, FIRST_TURN):
                        try:
                            candidate = next(search.candidates(problem, tree), None)
                        except SearchLimitReached:
                            component.is_cut_short |= not lent.left
                            continue  # it is unknown whether the host has room
                    if candidate is not None and search.allocate(candidate):
                        component.candidates.append(candidate)
                        successful.append((component, tree))
                placed += len(successful)
                open_hosts, search.budget = successful, self.budget
        except SearchLimitReached:
            pass  # the candidates so far are certain
        finally:
            search.undo()

    def _narrow(self, components: Sequence[_Component], budget: Budget) -> None:
        """Narrow the bounds of components, each with an equal part of the remaining budget."""
        wide = [component for component in components if not component.count.is_exact]
        if not wide or not budget.left:
            return
        search = self._search(min(max(component.most for component in wide), MOST_SEARCHED))
        lent = Budget(0)
        for number, component in enumerate(wide):
            with budget.lend(lent, budget.left // (len(wide) - number)):
                narrowed = _bisect(search, component.count, lent, hosts=component.trees)
            component.most = narrowed.bounds.at_most
            component.is_cut_short |= narrowed.is_cut_short
            if narrowed.candidates is not None:
                (component.candidates,) = narrowed.candidates

    def _of_member(self) -> Mapping[str, Sequence[Candidate]]:
        (candidates,) = first_candidates([self.counted.problem], [self.counted.placed])
        for component in self.components:
            candidates += component.candidates
            first, *same = component.alike
            for tree in same:
                candidates += (self._classes.transfer(c, first, tree) for c in component.candidates)
        return FrozenDict({self.member.name: tuple(candidates)})

    def _by_host(self) -> Mapping[str, Count]:
        at_most = self.counted.most.tolist()
        at_least = np.where(self.counted.is_exact, self.counted.most, 0).tolist()
        single = [component for component in self.components if len(component.trees) == 1]
        for component in single + self._individually():
            for tree in component.alike:
                at_least[tree], at_most[tree] = component.count.at_least, component.count.at_most
        hosts = self.fleet.hosts
        return FrozenDict(
            {hosts[tree]: Count(at_least[tree], at_most[tree]) for tree in _hosts(self.fleet)}
        )

    def _individually(self) -> list[_Component]:
        """Return a component for each host that was searched together with others."""
        components: list[_Component] = []
        for together in self.components:
            by_host: dict[str, list[Candidate]] = {}
            for candidate in together.candidates:
                by_host.setdefault(candidate.host, []).append(candidate)
            for tree in together.trees.tolist() if len(together.trees) > 1 else ():
                most, candidates = int(self.counted.most[tree]), by_host.get(self.fleet.hosts[tree])
                components.append(_Component(integers([tree]), most, candidates or [], [tree]))
        self._narrow(components, Budget(self.options.budget))
        return components


def _hosts(fleet: Fleet) -> Iterator[int]:
    """Yield the trees that are hosts, not pools."""
    for tree in range(len(fleet.hosts)):
        if fleet.is_within(tree) and tree not in fleet.pools.trees:
            yield tree


# --- a mix of requests --------------------------------------------------------------------------


class _Mix:
    """The count of a mix of requests."""

    def __init__(self, scenario: Scenario[State], mix: Gang, options: Options) -> None:
        self.scenario, self.mix, self.options = scenario, mix, options
        self.fleet = with_limits(scenario.snapshot.fleet, options.limits)
        self.capacity = CapacityByHost(self.fleet)
        self.budget = Budget(options.budget)
        self.kinds = kinds_of(mix, self.capacity)
        self.ratio = tuple(kind.count for kind in self.kinds)
        self.problems = [kind.problem for kind in self.kinds]
        #: for each request by tree, how often the tree can hold it at most, without the others
        self.most_of_each = [upper_bounds(p, self.capacity, MAX_AMOUNT) for p in self.problems]
        #: the amount of each class that the mix uses once
        self.totals = Counter[str]()
        for kind in self.kinds:
            for name, total in kind.totals.items():
                if name in self.fleet.classes:
                    self.totals[name] += total * kind.count
        self.counted = CountedMix(self.problems, self.most_of_each, self.capacity)

    def answer(self) -> HowMany:
        """Return the answer."""
        at_most = self._upper_bound()
        low, assigned = self._assign(at_most)
        count, candidates, is_cut_short = self._narrow(Count(low, at_most))

        def of_member() -> Mapping[str, Sequence[Candidate]]:
            if candidates is None and assigned is not None:
                return self._by_member(first_candidates(self.problems, assigned))
            return self._by_member(candidates or [[] for _ in self.kinds])

        return HowMany(
            self.mix,
            count,
            by_host=self._by_host,
            of_member=of_member,
            cut_short=not self.budget.left or is_cut_short,
        )

    def _upper_bound(self) -> int:
        """Return an upper bound for all hosts, each pool counted once."""
        bounds, is_able = [MAX_AMOUNT], np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        for kind, most in zip(self.kinds, self.most_of_each, strict=True):
            is_able |= most > 0
            bounds.append(sum(most.tolist()) // kind.count)
            for name, total in kind.totals.items():
                if name in self.fleet.classes:
                    free = self.capacity.total(name, most > 0)
                    bounds.append(free // (total * kind.count))
        for name, total in self.totals.items():
            bounds.append(self.capacity.total(name, is_able) // total)
        return min(bounds)

    def _assign(self, most: int) -> tuple[int, list[Integers] | None]:
        """Return the number that arrays assign to the hosts they decide, and the assignment."""
        low, high, best = 0, most if self.counted.is_decided.any() else 0, None
        while low < high:
            middle = (low + high + 1) // 2
            assigned = self.counted.assign([middle * count for count in self.ratio])
            if assigned is None:
                high = middle - 1
            else:
                low, best = middle, assigned
        return low, best

    def _narrow(self, count: Count, hosts: Integers | None = None) -> _Narrowed:
        high = min(count.at_most, MOST_SEARCHED // sum(self.ratio))
        if count.at_least >= high:
            return _Narrowed(count, None, False)
        members = [
            dataclasses.replace(member, count=member.count * high) for member in self.mix.members
        ]
        search = GangSearch(self.scenario, Gang(members), {}, self.options)
        return _bisect(search, count, self.budget, ratio=self.ratio, hosts=hosts, share=2)

    def _by_member(
        self, candidates: Sequence[Sequence[Candidate]]
    ) -> Mapping[str, tuple[Candidate, ...]]:
        """Return the candidates of each member, from those of its kind."""
        by_name: dict[str, tuple[Candidate, ...]] = {}
        for kind, of_kind in zip(self.kinds, candidates, strict=True):
            times, first = len(of_kind) // kind.count, 0
            for member in kind.members:
                end = first + times * member.count
                by_name[member.name] = tuple(of_kind[first:end])
                first = end
        return FrozenDict({member.name: by_name[member.name] for member in self.mix.members})

    def _by_host(self) -> Mapping[str, Count]:
        bounds = [most // count for most, count in zip(self.most_of_each, self.ratio, strict=True)]
        bounds += [self.capacity.free(name) // total for name, total in self.totals.items()]
        at_most = np.minimum.reduce(bounds).tolist()
        classes, by_class = HostClasses(self.problems), dict[Hashable, Count]()
        self.budget = Budget(self.options.budget)
        by_host: dict[str, Count] = {}
        for tree in _hosts(self.fleet):
            most = at_most[tree]
            if not most or self.counted.is_decided[tree]:
                by_host[self.fleet.hosts[tree]] = Count(most, most)
                continue
            key = classes.of(tree)
            if key not in by_class:
                by_class[key] = self._narrow(Count(0, most), integers([tree])).bounds
            by_host[self.fleet.hosts[tree]] = by_class[key]
        return FrozenDict(by_host)
