"""Placement of gangs: a candidate for each member, so that all of them fit at once. Exact.

1. *Bounds*: arrays bound how many members each host can hold (:mod:`.gang_problem`).
2. *Distribution*: members are assigned to hosts within these bounds (:mod:`.distribution`). If that
   is not possible, the gang does not fit.
3. *Realisation*: candidates are found for what each host was assigned. The first providers with
   capacity provide where only counts are requested; else members are allocated in a scenario, by
   the search for candidates of one consumer.
4. *Learning*: a host that cannot hold what it was assigned, whichever candidates are chosen, gets
   a tighter bound, and the distribution starts again.

If each host can hold its part individually, but not all hosts at once, pools lack something: then
all choices of candidates on all hosts are searched. The search ends with a fit, with a refusal, or
when the budget is spent.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import FrozenDict
from resource_objects.requests.gang import HOST, Gang
from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.search.answer import Stage
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.disabled import disabled_for
from resource_objects.search.conditions.located import LocatedCondition, may_hold
from resource_objects.search.distribution import Counts, Domain, Remaining, distribute, most_of_kind
from resource_objects.search.explain import Explanation
from resource_objects.search.feasibility import Feasibility, SearchOutcome
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_problem import CapacityByHost, GangProblem, Kind, Levels, split_at
from resource_objects.search.order import Options, Preference
from resource_objects.search.problem import Problem, compile_request
from resource_objects.search.scenario import Scenario, State
from resource_objects.search.tree_search import TreeSearch
from resource_objects.search.usage import with_limits

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

    __slots__ = ("candidates", "gang", "shortages")

    def __init__(
        self,
        gang: Gang,
        candidates: Mapping[str, Candidate],
        shortages: tuple[Shortage, ...] = (),
    ) -> None:
        self.gang = gang
        #: by the name of each member; empty if the gang does not fit
        self.candidates = candidates
        #: what the gang lacks; empty if it fits
        self.shortages = shortages

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
    return GangSearch(scenario, gang, levels, options).fit()


def trial_name(number: int) -> str:
    """Return the name of the consumer that stands for a member while a gang is placed.

    Filters that look at the consumers of a host see these names.
    """
    return f"(member {number})"


#: By kind, the hosts that its members may be on.
_Hosts: TypeAlias = tuple[Integers, ...]
#: By kind, candidates for its members.
_Placement: TypeAlias = list[list[Candidate]]


class GangSearch:
    """The search for a placement of one gang."""

    def __init__(
        self, scenario: Scenario[State], gang: Gang, levels: Levels, options: Options
    ) -> None:
        self.gang = gang
        self.options = options
        self.budget = Budget(options.budget)
        self.scenario = scenario
        self.problem = GangProblem(gang, self._fleet_now(), levels, options.filters)
        self.kinds, self.need = self.problem.kinds, self.problem.need
        self._is_placed = any(kind.problem.located for kind in self.kinds)
        scarce = min(self.kinds, key=lambda kind: np.count_nonzero(kind.most))
        able = np.flatnonzero(np.logical_or.reduce([kind.most > 0 for kind in self.kinds]))
        #: the hosts in the order of preference
        self._order = np.concatenate(list(self._preference(scarce.problem).sorted_parts(able)))
        self._held: dict[tuple[int, Counts], _Placement] = {}  # what hosts can hold
        self._compiled: dict[int, Problem] = {}  # kinds over the scenario as it is now

    def fit(self) -> GangFit:
        """Return the placement, or the shortages."""
        try:
            placement = self.place(self.need)
        except SearchLimitReached:  # maybe of a budget that was lent
            raise SearchLimitReached(self.budget.spent) from None
        if placement is None:
            self.budget = Budget(self.options.budget)  # the refusal is certain
            return GangFit(self.gang, {}, tuple(self._shortages()))
        by_name: dict[str, Candidate] = {}
        for kind, candidates in zip(self.kinds, placement, strict=True):
            by_name.update(zip(kind.names, candidates, strict=True))
        names = (name for member in self.gang.members for name in member.names)
        return GangFit(self.gang, {name: by_name[name] for name in names})

    def place(self, need: Counts, hosts: Integers | None = None) -> _Placement | None:
        """Return candidates for counts of each kind; None if they do not fit.

        :param hosts: only on these; None: on all
        """
        for allowed in self._allowed_hosts(need, self._all_hosts if hosts is None else hosts):
            placement = self._place(allowed, need)
            if placement is not None:
                return placement
        return None

    def _fleet_now(self) -> Fleet:
        return with_limits(self.scenario.snapshot.fleet, self.options.limits)

    def _preference(self, problem: Problem) -> Preference:
        options = self.options
        return Preference(problem.fleet, problem.request, options.order, options.seed)

    # --- levels of which one domain gets all ---

    @property
    def _all_hosts(self) -> Integers:
        return np.arange(len(self.problem.fleet.hosts))

    @functools.cached_property
    def _rank(self) -> Integers:
        """By tree, its position in the order of preference."""
        rank = np.full(len(self.problem.fleet.hosts), len(self._order))
        rank[self._order] = np.arange(len(self._order))
        return rank

    def _reachable(self, kind: int, hosts: Integers) -> Integers:
        return hosts[self.problem.reachable(self.kinds[kind])[hosts]]

    def _allowed_hosts(self, need: Counts, hosts: Integers) -> Iterator[_Hosts]:
        """Yield the hosts of each kind: one domain for members that stay together."""
        for inside in self._domains(self.gang.together, range(len(need)), hosts, need):
            by_kind = [
                self._domains(kind.together, [number], self._reachable(number, inside), need)
                for number, kind in enumerate(self.kinds)
            ]
            for allowed in itertools.product(*by_kind):
                self.budget.spend()
                yield allowed

    def _domains(
        self, level: str | None, kinds: Sequence[int], hosts: Integers, need: Counts
    ) -> Sequence[Integers]:
        """Return the domains of a level that may hold all of some kinds, the preferred first.

        :param hosts: only these
        """
        if level is None:
            return [hosts]
        if level == HOST:
            has_room = np.ones(len(hosts), dtype=np.bool_)
            for kind in kinds:
                has_room &= self.kinds[kind].most[hosts] >= need[kind]
            for name, weights in self.problem.weights.items():
                total = sum(weights[kind] * need[kind] for kind in kinds)
                has_room &= self.problem.capacity.free(name)[hosts] >= total
            able = hosts[has_room]
            return list(able[np.argsort(self._rank[able], kind="stable")].reshape(-1, 1))
        domain_of = np.full(len(self._rank), -1)
        for number, trees in enumerate(self.problem.domains[level].values()):
            domain_of[trees] = number
        inside = hosts[domain_of[hosts] >= 0]
        inside = inside[np.argsort(domain_of[inside], kind="stable")]
        starts = np.flatnonzero(np.diff(domain_of[inside], prepend=-1))
        if not len(starts):
            return []
        sums = [np.add.reduceat(self.kinds[kind].most[inside], starts) for kind in kinds]
        is_able = [of_kind >= need[kind] for kind, of_kind in zip(kinds, sums, strict=True)]
        able = np.flatnonzero(np.logical_and.reduce(is_able))
        rank = np.minimum.reduceat(self._rank[inside], starts)[able]
        domains = split_at(inside, starts)
        return [domains[number] for number in able[np.argsort(rank, kind="stable")].tolist()]

    # --- distribution and realisation ---

    def _place(self, allowed: _Hosts, need: Counts) -> _Placement | None:
        """Return candidates by kind on allowed hosts, None if there are none."""
        most = []
        for kind, trees in zip(self.kinds, allowed, strict=True):
            most.append(np.zeros_like(kind.most))
            most[-1][trees] = kind.most[trees]
        is_able = np.logical_or.reduce([counts > 0 for counts in most])
        trees = self._order[is_able[self._order]]
        first = self._likely_enough(trees, most, need)
        while True:
            assignment = self._distribute(trees[:first].tolist(), most, need)
            if assignment is None and first < len(trees):
                first = len(trees)
                continue
            if assignment is None:
                return None
            placement, failed = self._realise(assignment)
            for tree, counts in failed.items():
                self._learn(tree, counts, assignment[tree])
            if placement is not None:
                return placement
            if not failed:
                hosts = trees.tolist()
                root = self.problem.root(hosts, most, self.budget)
                return self._search_all(hosts, most, need, Remaining(root, need))

    def _likely_enough(self, trees: Integers, most: Sequence[Integers], need: Counts) -> int:
        """Return a number of first trees that is likely to hold the needed counts."""
        enough = 0
        for counts, count in zip(most, need, strict=True):
            total = np.cumsum(counts[trees])
            enough = max(enough, int(total.searchsorted(_SPARE_FACTOR * count)))
        return enough + _SPARE_HOSTS

    def _distribute(
        self, trees: Sequence[int], most: Sequence[Integers], need: Counts
    ) -> dict[int, Counts] | None:
        """Return the counts of each host; None if the known bounds exclude it."""
        while True:
            root = self.problem.root(trees, most, self.budget)
            assignment = distribute(root, need, self.budget)
            if assignment is None:
                return None
            by_tree = {int(name): counts for name, counts in assignment.items()}
            # each host that lacks devices is refused its counts, not only the first
            has_devices = [self.problem.has_devices(*pair, self.budget) for pair in by_tree.items()]
            if all(has_devices):
                return by_tree

    def _realise(
        self, assignment: Mapping[int, Counts]
    ) -> tuple[_Placement | None, dict[int, Counts]]:
        """Return candidates by kind for the counts of each host; None if they are not found.

        Also returns the hosts that failed, with the smallest counts that failed. If none did and
        there are no candidates, the hosts cannot hold their counts all at once.
        """
        by_tree = self._first_fit(assignment)
        if by_tree is not None and self._pass_filters(by_tree):
            return self._by_kind(by_tree), {}
        by_tree = {
            tree: self._held[tree, counts]
            for tree, counts in assignment.items()
            if (tree, counts) in self._held
        }
        try:
            for candidates in by_tree.values():
                if not all(map(self.allocate, itertools.chain.from_iterable(candidates))):
                    return None, {}
            new = {tree: counts for tree, counts in assignment.items() if tree not in by_tree}
            placements, failed = self._in_rounds(new)
        finally:
            self.undo()
        by_tree |= placements
        self._held |= {(tree, new[tree]): placements[tree] for tree in new if tree not in failed}
        return None if failed else self._by_kind(by_tree), failed

    def _by_kind(self, by_tree: Mapping[int, _Placement]) -> _Placement:
        return [
            [candidate for placement in by_tree.values() for candidate in placement[kind]]
            for kind in range(len(self.kinds))
        ]

    def _first_fit(self, assignment: Mapping[int, Counts]) -> dict[int, _Placement] | None:
        """Return candidates by host if the first providers with capacity provide; None if not."""
        used: dict[int, int] = {}
        by_tree: dict[int, _Placement] = {}
        for tree, counts in assignment.items():
            by_tree[tree] = [[] for _ in counts]
            for kind, count, candidates in zip(self.kinds, counts, by_tree[tree], strict=True):
                for _ in range(count):
                    candidate = kind.first_fit.allocate(tree, used) if kind.first_fit else None
                    if candidate is None:
                        return None
                    candidates.append(candidate)
        return by_tree

    def _pass_filters(self, by_tree: Mapping[int, _Placement]) -> bool:
        """Return True if filters accept each host for each of its members, next to those before."""
        if not self.options.filters:
            return True
        remaining = {
            tree: [list(of_kind) for of_kind in placement] for tree, placement in by_tree.items()
        }
        try:
            while any(any(placement) for placement in remaining.values()):
                for kind in range(len(self.kinds)):
                    now = {
                        tree: placement[kind].pop()
                        for tree, placement in remaining.items()
                        if placement[kind]
                    }
                    if not now:
                        continue
                    trees = integers(sorted(now))
                    if len(self.scenario) and not self._are_accepted(kind, trees):
                        return False
                    if not self.allocate(*now.values()):
                        return False
            return True
        finally:
            self.undo()

    def _are_accepted(self, kind: int, trees: Integers) -> bool:
        fleet, request = self._fleet_now(), self.kinds[kind].problem.request
        filters = (compiled(fleet, request) for compiled in self.options.filters)
        return all(bool(f.mask()[trees].all() and f.among(trees).all()) for f in filters)

    def _in_rounds(
        self, assignment: Mapping[int, Counts]
    ) -> tuple[dict[int, _Placement], dict[int, Counts]]:
        """Allocate counts in the scenario, one member on each host in each round.

        Returns the candidates of each host, and for each host that failed the counts that failed.
        """
        placements: dict[int, _Placement] = {tree: [[] for _ in self.kinds] for tree in assignment}
        remaining = {tree: list(counts) for tree, counts in assignment.items()}
        failed: dict[int, Counts] = {}
        while remaining:
            for kind in range(len(self.kinds)):
                trees = [tree for tree, counts in remaining.items() if counts[kind]]
                problem = self.problem_now(kind) if trees else self.kinds[kind].problem
                for tree in trees:
                    candidate = next(self.candidates(problem, tree), None)
                    if candidate is not None and self.allocate(candidate):
                        placements[tree][kind].append(candidate)
                        remaining[tree][kind] -= 1
                    else:
                        counts = [len(of_kind) for of_kind in placements[tree]]
                        counts[kind] += 1
                        failed[tree] = tuple(counts)
                        del remaining[tree]
            remaining = {tree: counts for tree, counts in remaining.items() if any(counts)}
        return placements, failed

    # --- members in the scenario ---

    def problem_now(self, kind: int) -> Problem:
        """Return the request of a kind over the scenario as it is now."""
        if not len(self.scenario):
            return self.kinds[kind].problem
        if kind not in self._compiled:
            fleet = self._fleet_now()
            self.budget.spend(_COMPILE_STEPS + len(fleet.hosts) // _HOSTS_PER_STEP)
            request = self.kinds[kind].problem.request
            self._compiled[kind] = compile_request(request, fleet, self.options.filters)
        return self._compiled[kind]

    def candidates(
        self, problem: Problem, tree: int, *, is_every: bool = False
    ) -> Iterator[Candidate]:
        """Yield the candidates of a tree.

        :param is_every: also those with a placed amount on other parts: of those on the same
            parts, one is found
        """
        if not problem.is_host[tree] or not all(
            condition.holds(tree) for condition in problem.filters
        ):
            return
        preference, seen = self._preference(problem), set[Candidate]()
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
        """Undo the steps of the scenario after the first ones; None: the last step."""
        self.scenario.undo(to=to)
        self._compiled.clear()

    # --- what is learned of hosts ---

    def _learn(self, tree: int, failed: Counts, counts: Counts) -> None:
        """Search whether a host can hold counts at all, after a part of them failed."""
        for part in dict.fromkeys((failed, counts)):
            placement = self._hold(tree, part)
            if placement is None:
                self.problem.refuse(tree, part)
                return
            self._held[tree, part] = placement

    def _hold(self, tree: int, counts: Counts) -> _Placement | None:
        """Return candidates for counts on one host, None if it cannot hold them. Complete.

        A placed amount, such as a topology, is tried on each set of parts, in one way on each set.
        If no such way fits, and lower bounds do not exclude the counts, the answer is unknown.

        :raises SearchLimitReached: if it is unknown
        """
        by_class: dict[str, list[LocatedCondition]] = {}
        for kind, count in zip(self.kinds, counts, strict=True):
            for condition in kind.problem.located:
                by_class.setdefault(condition.name, []).extend([condition] * count)
        if not all(
            may_hold(conditions, tree, self.budget)
            for conditions in by_class.values()
            if conditions
        ):
            return None
        unbounded = Remaining(Domain(str(tree)), counts)
        placement = self._search_all([tree], [kind.most for kind in self.kinds], counts, unbounded)
        if placement is None and any(by_class.values()):
            raise SearchLimitReached(self.budget.spent)
        return placement

    # --- the search of all choices ---

    def _search_all(
        self,
        trees: Sequence[int],
        most: Sequence[Integers],
        need: Counts,
        remaining: Remaining,
    ) -> _Placement | None:
        """Return candidates for counts on some hosts, None if there are none. Complete.

        Hosts are filled one after the other.

        :param most: by kind and tree, how many members it may get
        :param remaining: the bounds of the domains of the hosts
        """
        placement: _Placement = [[] for _ in self.kinds]
        most_from = [np.cumsum(counts[trees][::-1])[::-1].tolist() for counts in most]
        visible = _VisibleUse(self.problem.fleet, trees)

        def expand(state: _State) -> Iterator[_State | Solution[_Placement]]:
            at, first, missing = state
            if not any(missing):
                yield Solution([list(candidates) for candidates in placement])
                return
            if at == len(trees) or any(
                count > most_from[kind][at] for kind, count in enumerate(missing)
            ):
                return
            tree, host = trees[at], str(trees[at])
            for kind in range(first, len(missing)):
                if not (missing[kind] and most[kind][tree] and remaining.most(host, kind) > 0):
                    continue
                less = (*missing[:kind], missing[kind] - 1, *missing[kind + 1 :])
                # the order of members matters if an amount is placed
                after = _State(at, 0 if self._is_placed else kind, less)
                for candidate in self._allocationallocated(tree, kind):
                    placement[kind].append(candidate)
                    remaining.assign(host, kind, 1)
                    yield after
                    placement[kind].pop()
                    remaining.assign(host, kind, -1)
            yield _State(at + 1, 0, missing)

        def key(state: _State) -> Hashable:
            allocated = itertools.chain.from_iterable(placement)
            used = visible.key(self.scenario.snapshot.fleet, state.at, allocated)
            return state, used, remaining.state

        try:
            return next(solutions(_State(0, 0, need), expand, self.budget, key), None)
        finally:
            self.undo()

    def _allocationallocated(self, tree: int, kind: int) -> Iterator[Candidate]:
        """Yield each candidate of a kind, allocated in the scenario until the next is requested."""
        problem = self.problem_now(kind)
        for candidate in self.candidates(problem, tree, is_every=self._is_placed):
            if self.allocate(candidate):
                yield candidate
                self.undo(to=None)

    # --- shortages ---

    def _shortages(self) -> Iterator[Shortage]:
        """Yield the shortages in the domain of its level where most of the gang fits."""
        hosts, name = self._best(self.gang.together, range(len(self.kinds)), self._all_hosts)
        is_short = False
        for number, kind in enumerate(self.kinds):
            inside, place, level = self._reachable(number, hosts), name, self.gang.together
            if kind.together is not None:
                inside, place = self._best(kind.together, [number], inside)
                level = kind.together
            shortage = self._shortage_of(number, inside)
            if shortage is not None:
                is_short = True
                yield dataclasses.replace(shortage, level=level, place=place)
        if not is_short:
            shortage = self._shortage_next_to_others(hosts)
            yield dataclasses.replace(shortage, level=self.gang.together, place=name)

    def _best(
        self, level: str | None, kinds: Sequence[int], hosts: Integers
    ) -> tuple[Integers, str | None]:
        """Return the hosts of the domain where most of some kinds fits, and its name."""
        if level is None:
            return hosts, None
        if level == HOST:
            parts = [self.kinds[kind].most[hosts] / self.need[kind] for kind in kinds]
            most = np.minimum.reduce([np.ones(len(hosts)), *parts])
            best = hosts[[int(most.argmax())]] if len(hosts) else hosts
            return best, self.problem.fleet.hosts[int(best[0])] if len(best) else None
        is_included = np.zeros(len(self.problem.fleet.hosts), dtype=np.bool_)
        is_included[hosts] = True
        domains = {
            name: trees[is_included[trees]] for name, trees in self.problem.domains[level].items()
        }

        def fits(name: str) -> list[float]:
            sums = ((kind, self.kinds[kind].most[domains[name]].sum()) for kind in kinds)
            return sorted(min(1.0, most / self.need[kind]) for kind, most in sums)

        name = max(domains, key=fits)
        return domains[name], name

    def _shortage_of(self, number: int, hosts: Integers) -> Shortage | None:
        """Return the shortage of a kind without the others: the scarcest class, or a bound.

        None if it fits without the others.
        """
        kind, need = self.kinds[number], self.need[number]
        most = [np.zeros_like(other.most) for other in self.kinds]
        most[number][hosts] = kind.most[hosts]
        is_able = most[number] > 0
        trees = self._order[is_able[self._order]].tolist()
        if not is_able.any():
            is_able[hosts] = True
        free, times = self._amounts(kind, is_able)
        root = self.problem.root(trees, most, self.budget)
        fits = min([most_of_kind(root, self.need, number), *times.values()])
        if fits >= need:
            return None
        scarcest = min(times, key=lambda name: times[name], default=None)
        is_of_amounts = scarcest is not None and times[scarcest] < need
        if not is_of_amounts and kind.problem.located:  # maybe devices of another kind
            fits = self._most_distributed(number, fits, trees, most)
        explanation = self._explanation(kind)
        shortage = Shortage(kind.label, need, fits, explanation=explanation)
        stage = None if kind.most.any() else explanation.emptied
        if stage is not None and stage.requested is None:  # not a question of amounts
            return dataclasses.replace(shortage, stage=stage)
        if scarcest is None or not is_of_amounts:
            bounds = FrozenDict({**self.gang.at_most, **kind.at_most})
            return dataclasses.replace(shortage, at_most=bounds)
        requested = need * kind.totals[scarcest]
        return dataclasses.replace(
            shortage, resource=scarcest, requested=requested, free=free[scarcest]
        )

    def _amounts(self, kind: Kind, hosts: Booleans) -> tuple[dict[str, int], dict[str, int]]:
        """Return by class what is free on some hosts, and for how many of a kind that is enough."""
        fleet, capacity = self.problem.fleet, self.problem.capacity
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
        self, number: int, bound: int, trees: Sequence[int], most: Sequence[Integers]
    ) -> int:
        """Return an upper bound for one kind, no larger than ``bound``, by distribution."""

        def is_refused(count: int) -> bool:
            only = tuple(count if n == number else 0 for n in range(len(self.need)))
            return self._distribute(trees, most, only) is None

        try:
            if is_refused(bound):
                return bisect.bisect_left(range(bound), True, key=is_refused) - 1
        except SearchLimitReached:
            pass  # the bound holds
        return bound

    def _explanation(self, kind: Kind) -> Explanation:
        """Return the reasons that hosts cannot hold one of a kind."""
        problem = kind.problem
        refused = np.flatnonzero(problem.is_explained & (kind.most == 0))
        outlooks = functools.partial(
            Feasibility, self.scenario.snapshot._fleet, problem.request, self.options
        )
        outcome = SearchOutcome(problem.is_explained, refused, (), 0, self.options.budget, outlooks)
        return Explanation(problem, outcome)

    def _shortage_next_to_others(self, hosts: Integers) -> Shortage:
        """Return the shortage of the most numerous kind next to all others."""
        number = max(range(len(self.kinds)), key=lambda kind: self.need[kind])
        fits, refused = 0, self.need[number]
        while fits + 1 < refused:
            count = (fits + refused) // 2
            need = (*self.need[:number], count, *self.need[number + 1 :])
            try:
                is_placed = self.place(need, hosts) is not None
            except SearchLimitReached:
                break
            fits, refused = (count, refused) if is_placed else (fits, count)
        other_labels = tuple(kind.label for n, kind in enumerate(self.kinds) if n != number)
        return Shortage(self.kinds[number].label, self.need[number], fits, beside=other_labels)


class _State(NamedTuple):
    """A state of the search of all choices."""

    at: int  #: the position of the host
    first: int  #: the first kind that this host may still get
    missing: Counts  #: the members without candidates


class _VisibleUse:
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
        visible = (c for c in allocated if c.host == host or self._fleet.pools)
        units = sorted(
            (a.provider, unit) for c in visible for a in c.allocations for unit in a.units
        )
        return fleet.inventories.used[self._known[1]].tobytes(), tuple(units)


def _part_sets(problem: Problem, tree: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of parts for the placed amounts, each of no more parts than it has pieces."""
    sets = []
    for demand in problem.located_of_tree(tree):
        parts = [part for part in range(len(demand.places)) if demand.allowed >> part & 1]
        sizes = range(1, min(len(parts), demand.ask.count) + 1)
        choices = (chosen for size in sizes for chosen in itertools.combinations(parts, size))
        sets.append([sum(1 << part for part in chosen) for chosen in choices])
    return itertools.product(*sets)
