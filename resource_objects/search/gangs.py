"""Placement of gangs: a candidate for each member, so that all of them fit at once. Exact.

1. *Bounds*: arrays bound how many members each host can hold (:func:`.upper_bounds`).
2. *Distribution*: members are assigned to hosts within these bounds (:mod:`.distribution`). If that
   is not possible, the gang does not fit.
3. *Realisation*: candidates are found for the counts of each host. The first providers with
   capacity provide where only counts are requested; else members are allocated in a scenario, by
   the search for candidates of one consumer.
4. *No-goods*: counts that a host cannot hold, whichever candidates are chosen, are excluded, and
   the distribution starts again.

If each host can hold its counts individually, but not all hosts at once, pools lack something: then
all choices of candidates on all hosts are searched. The search ends with a fit, with a refusal, or
when the budget is spent.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import FrozenDict
from resource_objects.requests.gang import HOST, Gang
from resource_objects.resources.backtracking import Budget, Solution, solutions
from resource_objects.search.answer import Feasibility, SearchOutcome, Stage
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.host import disabled_for
from resource_objects.search.conditions.located import LocatedCondition, may_hold
from resource_objects.search.distribution import Counts, Domain, Remaining, distribute, most_of_kind
from resource_objects.search.explain import Explanation
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_problem import (
    CapacityByHost,
    GangProblem,
    Kind,
    Levels,
    first_fit,
)
from resource_objects.search.order import Options, Preference
from resource_objects.search.problem import Problem, compile_request
from resource_objects.search.scenario import Scenario, State
from resource_objects.search.tree_search import TreeSearch

#: The first hosts that are considered have room for ``needed * 2`` members, and 16 follow them.
_SPARE_FACTOR, _SPARE_HOSTS = 2, 16
#: Steps of the budget to compile a request over the fleet again: a constant, and one for each
#: number of hosts.
_COMPILE_STEPS, _HOSTS_PER_STEP = 5, 200


@dataclasses.dataclass(frozen=True, slots=True)
class Shortage:
    """The shortage of one member of a gang, in the domain where most of the gang fits."""

    member: str
    asked: int  #: the requested number of members
    fits: int  #: the number that fits there
    level: str | None = None  #: None: anywhere
    place: str | None = None  #: the domain of the level
    resource: str | None = None  #: the scarcest class; None if each member would fit individually
    requested: int = 0  #: the amount of that class for all of them
    free: int = 0  #: its free amount on the hosts that may hold one
    beside: tuple[str, ...] = ()  #: the other members, if it only lacks something next to them
    at_most: Mapping[str, int] = FrozenDict()  #: by level, the bounds that it exceeds
    stage: Stage | None = None  #: if no host can hold one: the stage of the request that left none
    #: why hosts cannot hold one of them; computed when it is read
    explanation: Explanation | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        where = f"{self.level} {self.place}: " if self.level else ""
        beside = f" beside {', '.join(self.beside)}" if self.beside else ""
        text = f"{where}{self.member} requested {self.asked}, fits {self.fits}{beside}"
        if self.stage is not None:
            return f"{text} ({self.stage})"
        if self.at_most:
            bounds = (f"at most {most} per {name}" for name, most in self.at_most.items())
            return f"{text} ({', '.join(bounds)})"
        if self.resource is None:
            return text
        return f"{text} ({self.resource} requested {self.requested}, free {self.free})"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class GangFit:
    """The placement of a gang: true with a candidate for each member, false with its shortages.

    >>> import resource_objects as ro
    >>> from resource_objects.requests.gang import Gang, Member
    >>> with ro.connect("memory://") as ledger:
    ...     for number in range(2):
    ...         done = ledger.sync(ro.Provider(f"host{number}", "VCPU=4"))
    ...     snapshot = ledger.snapshot()
    ...     fit = snapshot.fit_gang(Gang([Member("worker", "VCPU=2", count=3)]))
    ...     claims = ledger.claim_all(fit.candidates)
    >>> for claim in claims:
    ...     print(claim)
    worker-0 holds VCPU=2 of host0
    worker-1 holds VCPU=2 of host0
    worker-2 holds VCPU=2 of host1
    >>> print(snapshot.fit_gang(Gang([Member("worker", "VCPU=3", count=3)])))
    worker requested 3, fits 2 (VCPU requested 9, free 8)
    """

    gang: Gang
    candidates: Mapping[str, Candidate]  #: by the name of each member; empty if it does not fit
    shortages: tuple[Shortage, ...] = ()  #: what the gang lacks; empty if it fits

    def __bool__(self) -> bool:
        return bool(self.candidates)

    def __str__(self) -> str:
        if not self:
            return "\n".join(map(str, self.shortages))
        return "\n".join(f"{name}: {candidate}" for name, candidate in self.candidates.items())

    def __repr__(self) -> str:
        return f"<GangFit: {len(self.candidates)} of {self.gang.count} members placed>"


def fit_gang(scenario: Scenario[State], gang: Gang, levels: Levels, options: Options) -> GangFit:
    """Return the placement of a gang.

    A member that names a level is placed on hosts of the domains of that level only; if the gang
    itself names the level, that holds for all members.

    Cost: some passes over the fleet for each kind of member; then for each member some 10
    microseconds if only counts are requested, half a millisecond if devices or cells are chosen.

    :param scenario: a fork of the snapshot, to allocate members in; it is left unchanged
    :param levels: the aggregates of each level that the gang names
    :param options: of the search: order, seed, budget, limits and filters
    :raises InvalidInput: for a level without domains, or with a host in two of its domains, or if
        the domains of two levels cross
    :raises SearchLimitReached: if the budget runs out first
    """
    search = GangSearch(scenario, gang, levels, options)
    try:
        with Budget(options.budget).lend(search.budget, options.budget):
            placement = search.place(search.problem.need, search.all_hosts)
    except SearchLimitReached:  # maybe of a part of the budget
        raise SearchLimitReached(search.budget.spent) from None
    if placement is None:  # certain, so the shortages have a budget of their own
        with Budget(options.budget).lend(search.budget, options.budget):
            return GangFit(gang, {}, tuple(_Shortages(search).shortages()))
    by_name: dict[str, Candidate] = {}
    for kind, candidates in zip(search.problem.kinds, placement, strict=True):
        by_name.update(zip(kind.names, candidates, strict=True))
    names = (name for member in gang.members for name in member.names)
    return GangFit(gang, {name: by_name[name] for name in names})


def trial_name(number: int) -> str:
    """Return the name of the consumer that stands for a member while a gang is placed.

    Filters that look at the consumers of a host see these names.
    """
    return f"(member {number})"


def preference_of(problem: Problem, options: Options) -> Preference:
    """Return the order of hosts and providers for a request."""
    return Preference(problem.fleet, problem.request, options.order, options.seed)


def _part_sets(problem: Problem, tree: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of parts for the placed amounts, each of no more parts than it has pieces."""
    sets = []
    for demand in problem.located_of_tree(tree):
        parts = [part for part in range(len(demand.places)) if demand.allowed >> part & 1]
        sizes = range(1, min(len(parts), demand.amount.item_count) + 1)
        choices = (chosen for size in sizes for chosen in itertools.combinations(parts, size))
        sets.append([sum(1 << part for part in chosen) for chosen in choices])
    return itertools.product(*sets)


# --- the search -----------------------------------------------------------------------------------

#: By kind, the hosts that its members may be on.
_Hosts: TypeAlias = tuple[Integers, ...]
#: By kind, candidates for its members.
Placement: TypeAlias = list[list[Candidate]]


class _Domains(NamedTuple):
    """The domains of a level that have some of a set of hosts, in the order of the level."""

    numbers: Integers  #: by domain, its number within the level
    hosts: Integers  #: those of each domain after each other
    starts: Integers  #: by domain, the position of its first host
    most: Integers  #: by kind and domain, the sum of the upper bounds of its hosts

    def hosts_of(self, position: int) -> Integers:
        """Return the hosts of the domain at a position."""
        after = self.starts[position + 1 : position + 2].tolist()
        return self.hosts[int(self.starts[position]) : (*after, len(self.hosts))[0]]


class GangSearch:
    """The search for a placement of one gang.

    It knows the upper bound of each host, counts that a host cannot hold, and candidates for
    counts that a host can hold: each holds for every later call too. :attr:`budget` has the steps
    that the caller lends to it.
    """

    def __init__(
        self, scenario: Scenario[State], gang: Gang, levels: Levels, options: Options
    ) -> None:
        fleet = scenario.snapshot.fleet.with_limits(options.limits)
        self.options, self.budget = options, Budget(0)
        self.problem = GangProblem(gang, fleet, levels, options.filters)
        self.kinds = self.problem.kinds
        self.scenario = scenario
        self._compiled: dict[int, Problem] = {}  # over the scenario as it is now
        #: by kind and host, an upper bound of how many members it can hold
        self.most = [kind.most.copy() for kind in self.kinds]
        self._no_goods = defaultdict[int, list[Counts]](list)
        self._placements: dict[tuple[int, Counts], Placement] = {}  # by host and its counts
        self._has_placed_amounts = any(kind.problem.located for kind in self.kinds)
        scarce = min(self.kinds, key=lambda kind: np.count_nonzero(kind.most))
        able = np.flatnonzero(np.logical_or.reduce([most > 0 for most in self.most]))
        #: the hosts in the order of preference
        self._order = np.concatenate(
            list(preference_of(scarce.problem, options).sorted_parts(able))
        )

    def place(self, need: Counts, hosts: Integers) -> Placement | None:
        """Return candidates for counts of each kind on some hosts; None if they do not fit."""
        for allowed in self._domain_choices(need, hosts):
            placement = self._place(allowed, need)
            if placement is not None:
                return placement
        return None

    # --- domains of which one gets all members ---

    @property
    def all_hosts(self) -> Integers:
        """All hosts, pools included."""
        return np.arange(len(self.problem.fleet.hosts))

    @functools.cached_property
    def _rank(self) -> Integers:
        """By tree, its position in the order of preference."""
        rank = np.full(len(self.problem.fleet.hosts), len(self._order))
        rank[self._order] = np.arange(len(self._order))
        return rank

    def reachable(self, kind: int, hosts: Integers) -> Integers:
        """Return the hosts that are in a domain of each level that bounds a kind."""
        return hosts[self.problem.reachable(self.kinds[kind])[hosts]]

    def _domain_choices(self, need: Counts, hosts: Integers) -> Iterator[_Hosts]:
        """Yield the hosts of each kind: one domain for members that stay together."""
        together = self.problem.gang.together
        for inside in self._able_domains(together, range(len(need)), hosts, need):
            by_kind = [
                self._able_domains(kind.together, [number], self.reachable(number, inside), need)
                for number, kind in enumerate(self.kinds)
            ]
            for allowed in itertools.product(*by_kind):
                self.budget.spend()
                yield allowed

    def _able_domains(
        self, level: str | None, kinds: Sequence[int], hosts: Integers, need: Counts
    ) -> Iterator[Integers]:
        """Yield the domains of a level that may hold all of some kinds, the preferred first."""
        if level is None:
            yield hosts
            return
        domains = self.by_domain(level, kinds, hosts)
        is_able = (domains.most >= integers([need[kind] for kind in kinds])[:, None]).all(axis=0)
        if level == HOST:
            for name, weights in self.problem.weights.items():
                total = sum(weights[kind] * need[kind] for kind in kinds)
                is_able &= self.problem.capacity.free(name)[domains.numbers] >= total
        able = np.flatnonzero(is_able)
        if len(able):
            rank = np.minimum.reduceat(self._rank[domains.hosts], domains.starts)[able]
            yield from map(domains.hosts_of, able[np.argsort(rank, kind="stable")].tolist())

    def by_domain(self, level: str, kinds: Sequence[int], hosts: Integers) -> _Domains:
        """Return the domains of a level with some hosts, and how many of some kinds they hold."""
        domain_of = self.problem.domain_of[level][hosts]
        order = np.argsort(domain_of, kind="stable")[np.count_nonzero(domain_of < 0) :]
        hosts, domain_of = hosts[order], domain_of[order]
        starts = np.flatnonzero(np.diff(domain_of, prepend=-1))
        return _Domains(
            numbers=domain_of[starts],
            hosts=hosts,
            starts=starts,
            most=np.stack([np.add.reduceat(self.most[kind][hosts], starts) for kind in kinds]),
        )

    # --- distribution ---

    def _place(self, allowed: _Hosts, need: Counts) -> Placement | None:
        """Return candidates by kind on allowed hosts, None if there are none."""
        most = []
        for of_kind, hosts in zip(self.most, allowed, strict=True):
            most.append(np.zeros_like(of_kind))
            most[-1][hosts] = of_kind[hosts]
        hosts = self.ordered(most)
        first = self._likely_enough(hosts, most, need)
        while True:
            assignment = self.distribute(hosts[:first], most, need)
            if assignment is None and first < len(hosts):
                first = len(hosts)
                continue
            if assignment is None:
                return None
            placement, failed = self._realise(assignment)
            for tree, counts in failed.items():
                self._learn(tree, counts, assignment[tree])
            if placement is not None:
                return placement
            if not failed:
                bounds = Remaining(self.root(hosts, most), need)
                return self._search_all(hosts.tolist(), most, need, bounds)

    def ordered(self, most: Sequence[Integers]) -> Integers:
        """Return the hosts that may get members in the order of preference.

        :param most: by kind and tree, how many members it may get
        """
        is_able = np.logical_or.reduce([of_kind > 0 for of_kind in most])
        hosts: Integers = self._order[is_able[self._order]]
        return hosts

    def _likely_enough(self, hosts: Integers, most: Sequence[Integers], need: Counts) -> int:
        """Return a number of first hosts that is likely to hold the needed counts."""
        enough = 0
        for of_kind, count in zip(most, need, strict=True):
            total = np.cumsum(of_kind[hosts])
            enough = max(enough, int(total.searchsorted(_SPARE_FACTOR * count)))
        return enough + _SPARE_HOSTS

    def distribute(
        self, hosts: Integers, most: Sequence[Integers], need: Counts
    ) -> dict[int, Counts] | None:
        """Return the counts of each host; None if the known bounds exclude it."""
        while True:
            assignment = distribute(self.root(hosts, most), need, self.budget)
            if assignment is None:
                return None
            lacking = [
                (tree, part)
                for tree, counts in assignment.items()
                if (part := self.problem.lacks_devices(tree, counts, self.budget)) is not None
            ]
            if not lacking:
                return assignment
            for tree, counts in lacking:
                self._add_no_good(tree, counts)

    def root(self, hosts: Integers, most: Sequence[Integers]) -> Domain:
        """Return the tree of domains with some hosts, within what is known of them."""
        return self.problem.root(hosts, most, self._no_goods, self.budget)

    # --- realisation ---

    def _realise(
        self, assignment: Mapping[int, Counts]
    ) -> tuple[Placement | None, dict[int, Counts]]:
        """Return candidates by kind for the counts of each host; None if they are not found.

        Also returns the hosts that failed, with the smallest counts that failed. If none did and
        there are no candidates, the hosts cannot hold their counts all at once.
        """
        by_tree = None
        if not self.problem.fleet.has_shares:
            by_tree = first_fit(self.kinds, assignment)
        if by_tree is not None and self._pass_filters(by_tree):
            return self._by_kind(by_tree), {}
        by_tree = {
            tree: self._placements[tree, counts]
            for tree, counts in assignment.items()
            if (tree, counts) in self._placements
        }
        new = {tree: counts for tree, counts in assignment.items() if tree not in by_tree}
        try:
            for placement in by_tree.values():
                if not all(map(self.allocate, itertools.chain.from_iterable(placement))):
                    return None, {}
            placements, failed = self._allocate_in_turn(new)
        finally:
            self.undo()
        by_tree |= placements
        self._placements |= {(tree, new[tree]): placements[tree] for tree in new.keys() - failed}
        return None if failed else self._by_kind(by_tree), failed

    def _by_kind(self, by_tree: Mapping[int, Placement]) -> Placement:
        return [
            [candidate for placement in by_tree.values() for candidate in placement[kind]]
            for kind in range(len(self.kinds))
        ]

    def _pass_filters(self, by_tree: Mapping[int, Placement]) -> bool:
        """Return True if filters accept each host for each of its members, next to those before."""
        if not self.options.filters:
            return True
        waiting = {tree: list(map(list, placement)) for tree, placement in by_tree.items()}
        try:
            for kind, trees in _rounds({t: list(map(len, p)) for t, p in by_tree.items()}):
                problem, hosts = self.problem_now(kind), integers(sorted(trees))
                is_open = problem.hosts.may_hold[hosts].all()
                if not (is_open and all(f.among(hosts).all() for f in problem.filters)):
                    return False
                if not self.allocate(*(waiting[tree][kind].pop() for tree in trees)):
                    return False
            return True
        finally:
            self.undo()

    def _allocate_in_turn(
        self, assignment: Mapping[int, Counts]
    ) -> tuple[dict[int, Placement], dict[int, Counts]]:
        """Allocate counts in the scenario, one member on each host in each round.

        Returns the candidates of each host, and for each host that failed the counts that failed.
        """
        placements: dict[int, Placement] = {tree: [[] for _ in self.kinds] for tree in assignment}
        failed: dict[int, Counts] = {}
        remaining = {tree: list(counts) for tree, counts in assignment.items()}
        for kind, trees in _rounds(remaining):
            problem = self.problem_now(kind)
            for tree in trees:
                candidate = next(self.candidates(problem, tree), None)
                if candidate is not None and self.allocate(candidate):
                    placements[tree][kind].append(candidate)
                else:
                    counts = [len(of_kind) for of_kind in placements[tree]]
                    counts[kind] += 1
                    failed[tree] = tuple(counts)
                    remaining[tree][:] = [0] * len(counts)
        return placements, failed

    # --- no-goods ---

    def _learn(self, tree: int, failed: Counts, counts: Counts) -> None:
        """Search whether a host can hold counts at all, after a part of them failed."""
        for part in dict.fromkeys((failed, counts)):
            placement = self._place_on_host(tree, part)
            if placement is None:
                self._add_no_good(tree, part)
                return
            self._placements[tree, part] = placement

    def _add_no_good(self, tree: int, counts: Counts) -> None:
        """Record that a host cannot hold counts."""
        self._no_goods[tree].append(counts)
        kinds = [kind for kind, count in enumerate(counts) if count]
        if len(kinds) == 1:
            most = self.most[kinds[0]]
            most[tree] = min(most[tree], counts[kinds[0]] - 1)

    def _place_on_host(self, tree: int, counts: Counts) -> Placement | None:
        """Return candidates for counts on one host, None if it cannot hold them. Complete.

        A placed amount, such as a topology, is tried on each set of parts, in one way on each set.
        If no such way fits, and lower bounds do not exclude the counts, the answer is unknown.

        :raises SearchLimitReached: if it is unknown
        """
        by_class: dict[str, list[LocatedCondition]] = {}
        for kind, count in zip(self.kinds, counts, strict=True):
            for condition in kind.problem.located if count else ():
                by_class.setdefault(condition.resource_class, []).extend([condition] * count)
        if not all(may_hold(conditions, tree, self.budget) for conditions in by_class.values()):
            return None
        placement = self._search_all([tree], self.most, counts, Remaining(Domain(tree), counts))
        if placement is None and by_class:
            raise SearchLimitReached(self.budget.spent)
        return placement

    # --- members in the scenario, allocated one after the other and released again ---

    def problem_now(self, kind: int) -> Problem:
        """Return the request of a kind over the scenario as it is now."""
        problem = self.kinds[kind].problem
        if not len(self.scenario):
            return problem
        if kind not in self._compiled:
            fleet = self.scenario.snapshot.fleet.with_limits(self.options.limits)
            self.budget.spend(_COMPILE_STEPS + len(fleet.hosts) // _HOSTS_PER_STEP)
            self._compiled[kind] = compile_request(problem.request, fleet, self.options.filters)
        return self._compiled[kind]

    def candidates(
        self, problem: Problem, tree: int, *, is_every: bool = False
    ) -> Iterator[Candidate]:
        """Yield the candidates of a tree.

        :param is_every: also those with a placed amount on other parts: of those on the same
            parts, one is found
        """
        if not problem.hosts.may_hold[tree] or not all(
            condition.holds(tree) for condition in problem.filters
        ):
            return
        preference, seen = preference_of(problem, self.options), set[Candidate]()
        part_sets: Iterable[Sequence[int] | None] = [None]
        if is_every and problem.located and problem.near is None:
            part_sets = itertools.chain([None], _part_sets(problem, tree))
        for parts in part_sets:
            search = TreeSearch(problem, tree, preference, parts=parts)
            while (reached := search.next_candidate(self.budget)) is not None:
                if not is_every or reached.candidate not in seen:
                    seen.add(reached.candidate)
                    yield reached.candidate

    def allocate(self, *candidates: Candidate) -> bool:
        """Allocate candidates to one consumer of the scenario; return whether there is capacity."""
        allocations = [
            allocation for candidate in candidates for allocation in candidate.allocations
        ]
        try:
            self.scenario.claim(trial_name(len(self.scenario)), allocations)
        except exceptions.CapacityException:
            return False
        self._compiled.clear()
        return True

    def undo(self, to: int | None = 0) -> None:
        """Undo the allocations after the first ones; None: the last one."""
        self.scenario.undo(to=to)
        self._compiled.clear()

    # --- the search of all choices ---

    def _search_all(
        self,
        trees: Sequence[int],
        most: Sequence[Integers],
        need: Counts,
        remaining: Remaining,
    ) -> Placement | None:
        """Return candidates for counts on some hosts, None if there are none. Complete.

        Hosts are filled one after the other.

        :param most: by kind and tree, how many members it may get
        :param remaining: the bounds of the domains of the hosts
        """
        placement: Placement = [[] for _ in self.kinds]
        most_from = [np.cumsum(counts[trees][::-1])[::-1].tolist() for counts in most]
        visible = _VisibleUsage(self.problem.fleet, trees)

        def expand(state: _SearchState) -> Iterator[_SearchState | Solution[Placement]]:
            at, first, missing = state
            if not any(missing):
                yield Solution([list(candidates) for candidates in placement])
                return
            if at == len(trees) or any(
                count > most_from[kind][at] for kind, count in enumerate(missing)
            ):
                return
            tree = trees[at]
            for kind in range(first, len(missing)):
                if not (missing[kind] and most[kind][tree] and remaining.most(tree, kind) > 0):
                    continue
                less = (*missing[:kind], missing[kind] - 1, *missing[kind + 1 :])
                # the order of members matters if an amount is placed
                after = _SearchState(at, 0 if self._has_placed_amounts else kind, less)
                for candidate in self._allocated(tree, kind):
                    placement[kind].append(candidate)
                    remaining.assign(tree, kind, 1)
                    yield after
                    placement[kind].pop()
                    remaining.assign(tree, kind, -1)
            yield _SearchState(at + 1, 0, missing)

        def key(state: _SearchState) -> Hashable:
            allocated = itertools.chain.from_iterable(placement)
            used = visible.key(self.scenario.snapshot.fleet, state.at, allocated)
            return state, used, remaining.state

        try:
            return next(solutions(_SearchState(0, 0, need), expand, self.budget, key), None)
        finally:
            self.undo()

    def _allocated(self, tree: int, kind: int) -> Iterator[Candidate]:
        """Yield each candidate of a kind, allocated in the scenario until the next is requested."""
        problem = self.problem_now(kind)
        for candidate in self.candidates(problem, tree, is_every=self._has_placed_amounts):
            if self.allocate(candidate):
                yield candidate
                self.undo(to=None)


def _rounds(remaining: dict[int, list[int]]) -> Iterator[tuple[int, list[int]]]:
    """Yield kinds with hosts that get one member each, until no host has members left.

    :param remaining: by host, the number of members of each kind; counted down, and a host is
        left out once its counts are set to 0
    """
    while remaining:
        for kind in range(max(map(len, remaining.values()))):
            trees = [tree for tree, counts in remaining.items() if counts[kind]]
            for tree in trees:
                remaining[tree][kind] -= 1
            if trees:
                yield kind, trees
        remaining = {tree: counts for tree, counts in remaining.items() if any(counts)}


class _SearchState(NamedTuple):
    """A state of the search of all choices."""

    at: int  #: the position of the host
    first: int  #: the first kind that this host may still get
    missing: Counts  #: the members without candidates


class _VisibleUsage:
    """The use of inventories that later hosts of a search depend on: their own, and of pools."""

    def __init__(self, fleet: Fleet, trees: Sequence[int]) -> None:
        self._fleet, self._trees = fleet, trees
        rows = fleet.inventories
        at = np.full(len(fleet.hosts), -1)
        at[list(trees)] = np.arange(len(trees))
        #: by inventory, the last host that depends on it
        self._last = np.where(fleet.is_pool[rows.provider], len(trees), at[rows.tree])
        self._known: tuple[int, Integers] = (-1, integers(()))

    def key(self, fleet: Fleet, at: int, allocated: Iterable[Candidate]) -> Hashable:
        """Return the use from the host at a position on, with the allocated units."""
        if self._known[0] != at:
            self._known = at, np.flatnonzero(self._last >= at)
        host = self._fleet.hosts[self._trees[at]] if at < len(self._trees) else None
        visible = (c for c in allocated if c.host == host or self._fleet.has_pools)
        units = sorted(
            (a.provider, unit) for c in visible for a in c.allocations for unit in a.units
        )
        return fleet.inventories.used[self._known[1]].tobytes(), tuple(units)


# --- shortages ------------------------------------------------------------------------------------


class _Shortages:
    """The shortages of a gang that does not fit, from what its search learned."""

    def __init__(self, search: GangSearch) -> None:
        self._search = search
        self._problem, self._kinds = search.problem, search.kinds
        self._need = search.problem.need

    def shortages(self) -> Iterator[Shortage]:
        """Yield the shortages in the domain of its level where most of the gang fits."""
        together = self._problem.gang.together
        hosts, name = self._best(together, range(len(self._kinds)), self._search.all_hosts)
        is_short = False
        for number, kind in enumerate(self._kinds):
            inside, place, level = self._search.reachable(number, hosts), name, together
            if kind.together is not None:
                inside, place = self._best(kind.together, [number], inside)
                level = kind.together
            shortage = self._shortage_of(number, inside)
            if shortage is not None:
                is_short = True
                yield dataclasses.replace(shortage, level=level, place=place)
        if not is_short:
            shortage = self._shortage_next_to_others(hosts)
            yield dataclasses.replace(shortage, level=together, place=name)

    def _best(
        self, level: str | None, kinds: Sequence[int], hosts: Integers
    ) -> tuple[Integers, str | None]:
        """Return the hosts of the domain where most of some kinds fits, and its name.

        Compared is the kind of which the smallest part fits, then the next one; of hosts only the
        former, so that the first by name is reported of many that hold none of a kind.
        """
        if level is None:
            return hosts, None
        domains = self._search.by_domain(level, kinds, hosts)
        if not len(domains.numbers):
            return hosts[:0], None if level == HOST else self._problem.domain_name(level, 0)
        need = integers([self._need[kind] for kind in kinds])[:, None]
        parts = np.sort(np.minimum(domains.most / need, 1), axis=0)
        compared = parts[:1] if level == HOST else parts
        best = int(np.lexsort(-compared[::-1])[0])
        return domains.hosts_of(best), self._problem.domain_name(level, int(domains.numbers[best]))

    def _shortage_of(self, number: int, hosts: Integers) -> Shortage | None:
        """Return the shortage of a kind without the others: the scarcest class, or a bound.

        None if it fits without the others.
        """
        search, kind, need = self._search, self._kinds[number], self._need[number]
        most = [np.zeros_like(of_kind) for of_kind in search.most]
        most[number][hosts] = search.most[number][hosts]
        is_able = most[number] > 0
        trees = search.ordered(most)
        if not is_able.any():
            is_able[hosts] = True
        free, times = self._amounts(kind, is_able)
        fits = most_of_kind(search.root(trees, most), self._need, number)
        fits = min([fits, *times.values()])
        if fits >= need:
            return None
        scarcest = min(times, key=lambda name: times[name], default=None)
        is_of_amounts = scarcest is not None and times[scarcest] < need
        if not is_of_amounts and kind.problem.located:  # maybe devices of another kind
            fits = self._most_distributed(number, fits, trees, most)
        explanation = self._explanation(number)
        shortage = Shortage(kind.label, need, fits, explanation=explanation)
        stage = None if search.most[number].any() else explanation.emptied
        if stage is not None and stage.requested is None:  # not a question of amounts
            return dataclasses.replace(shortage, stage=stage)
        if scarcest is None or not is_of_amounts:
            bounds = FrozenDict({**self._problem.gang.at_most, **kind.at_most})
            return dataclasses.replace(shortage, at_most=bounds)
        requested = need * kind.totals[scarcest]
        return dataclasses.replace(
            shortage, resource=scarcest, requested=requested, free=free[scarcest]
        )

    def _amounts(self, kind: Kind, hosts: Booleans) -> tuple[dict[str, int], dict[str, int]]:
        """Return by class what is free on some hosts, and for how many of a kind that is enough."""
        fleet, capacity = self._problem.fleet, self._problem.capacity
        disabled = disabled_for(fleet, kind.problem.request)
        if disabled is not None:
            capacity = CapacityByHost(fleet, disabled)
        free = {name: capacity.total(name, hosts) for name in kind.totals}
        times = {
            name: min(free[name] // total, int((capacity.free(name)[hosts] // total).sum()))
            for name, total in kind.totals.items()
        }
        return free, times

    def _most_distributed(
        self, number: int, bound: int, trees: Integers, most: Sequence[Integers]
    ) -> int:
        """Return an upper bound for one kind, no larger than ``bound``, by distribution."""

        def is_refused(count: int) -> bool:
            only = tuple(count if n == number else 0 for n in range(len(self._need)))
            return self._search.distribute(trees, most, only) is None

        try:
            if is_refused(bound):
                return bisect.bisect_left(range(bound), True, key=is_refused) - 1
        except SearchLimitReached:
            pass  # the bound holds
        return bound

    def _explanation(self, number: int) -> Explanation:
        """Return the reasons that hosts cannot hold one of a kind."""
        problem, options = self._kinds[number].problem, self._search.options
        refused = np.flatnonzero(problem.hosts.is_explained & (self._search.most[number] == 0))
        fleet = self._search.scenario.snapshot._fleet
        outlooks = functools.partial(Feasibility, fleet, problem.request, options)
        outcome = SearchOutcome(
            problem.hosts.is_explained, refused, (), 0, options.budget, outlooks
        )
        return Explanation(problem, outcome)

    def _shortage_next_to_others(self, hosts: Integers) -> Shortage:
        """Return the shortage of the most numerous kind next to all others."""
        number = max(range(len(self._kinds)), key=lambda kind: self._need[kind])
        fits, refused = 0, self._need[number]
        while fits + 1 < refused:
            count = (fits + refused) // 2
            need = (*self._need[:number], count, *self._need[number + 1 :])
            try:
                is_placed = self._search.place(need, hosts) is not None
            except SearchLimitReached:
                break
            fits, refused = (count, refused) if is_placed else (fits, count)
        other_labels = tuple(kind.label for n, kind in enumerate(self._kinds) if n != number)
        return Shortage(self._kinds[number].label, self._need[number], fits, beside=other_labels)
