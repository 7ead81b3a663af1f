"""The number of a request that fits at once: a lower bound with candidates, and an upper bound.

Arrays give an upper bound for each host (:func:`.upper_bounds`). Where only counts are requested,
of inventories that share nothing, some passes over the fleet decide all. Elsewhere members are
allocated in a scenario, one on each host in turn, until no host has room. Where that is less than
the upper bound, numbers in between are placed by the exact search of gangs
(:class:`~resource_objects.search.gangs.GangSearch`): a mix of requests is a gang whose counts are
multiplied. A search that is cut short leaves the bounds as they are.

Hosts are decided individually, but those that one pool serves together, so that the pool is counted
once; for a mix all hosts are decided together. One host of each class (:class:`.HostClasses`) is
decided.

Bisection is valid: if a number fits, each smaller one does. A member that is left out releases its
resources, and no request depends on the use of another consumer.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.requests import Gang, Member, Request, RequestLike
from resource_objects.resources.backtracking import Budget
from resource_objects.search.answer import HostClasses
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.eligibility import OWN, POOL
from resource_objects.search.gang_problem import (
    CapacityByHost,
    Kind,
    first_fit,
    kinds_of,
    repetitions,
)
from resource_objects.search.gangs import GangSearch
from resource_objects.search.order import Options
from resource_objects.search.problem import Problem, has_only_counts, sharing_conflicts
from resource_objects.search.scenario import Scenario, State

#: The name of the member of a mix that was passed as a request.
ONLY_MEMBER = "request"
#: The maximum number of members that are placed by a search. Arrays have no such limit.
MOST_SEARCHED = 100_000
#: The maximum number of steps of the search for one more on a host, so that all hosts have a turn.
STEPS_OF_FIRST_TURN = 1000


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
    return _HowManySearch(scenario, mix, options).answer()


@dataclasses.dataclass(eq=False, slots=True)
class _Component:
    """Hosts that are searched together, and the bounds of the number that they hold."""

    trees: Integers
    at_most: int
    at_least: int = 0
    #: by kind; empty unless a search placed members
    candidates: list[list[Candidate]] = dataclasses.field(default_factory=list)
    alike: list[int] = dataclasses.field(default_factory=list)  #: the first host and its class
    is_cut_short: bool = False  #: whether a budget ran out


class _HowManySearch:
    """The count of a mix; a request is a mix of one member.

    ``most`` and ``is_decided`` are by host: how often it can hold the mix individually, as if its
    pools served no other host, and whether that is exact.
    """

    def __init__(self, scenario: Scenario[State], mix: Gang, options: Options) -> None:
        self.scenario, self.mix, self.options = scenario, mix, options
        self.fleet = scenario.snapshot.fleet.with_limits(options.limits)
        self.capacity = CapacityByHost(self.fleet)
        self.budget = Budget(options.budget)
        self.kinds = kinds_of(mix, self.capacity, most=MAX_AMOUNT)
        self.problems = [kind.problem for kind in self.kinds]
        #: how many members of each kind are one of the mix
        self.ratio = tuple(kind.count for kind in self.kinds)
        self.is_mix = mix.count > 1
        #: the amount of each class that the mix uses once
        self.totals = Counter[str]()
        for kind in self.kinds:
            for name, total in kind.totals.items():
                if name in self.fleet.classes:
                    self.totals[name] += total * kind.count
        bounds = [kind.most // kind.count for kind in self.kinds]
        bounds += [self.capacity.free(name) // total for name, total in self.totals.items()]
        self.most = np.minimum.reduce(bounds)
        if self.is_mix:
            self.is_decided = decided_for_mix(self.kinds, self.capacity)
            able = np.flatnonzero(np.logical_or.reduce([kind.most > 0 for kind in self.kinds]))
            at_most = self._upper_bound(able)
            low, self.placed = self._assign(at_most)
            self.components = [_Component(able, at_most, low, alike=able[:1].tolist())]
        else:
            served = self._served_by_pools()
            self.is_decided, self.most, placed = decide(self.problems[0], self.most, served)
            self.placed = [placed]  #: by kind and host, the members that need no search
            self.components = list(self._components(served))

    def answer(self) -> HowMany:
        """Return the answer."""
        if not self.is_mix and self.components:
            self._allocate_in_turn()
        self._narrow(self.components, self.budget)
        placed = 0 if self.is_mix else sum(self.placed[0].tolist())
        if self.is_mix and self.components[0].candidates:  # more than arrays assign
            self.placed = []
        total = Count(
            placed + sum(c.at_least * len(c.alike) for c in self.components),
            placed + sum(c.at_most * len(c.alike) for c in self.components),
        )
        return HowMany(
            self.mix,
            total,
            by_host=self._by_host,
            of_member=self._of_member,
            cut_short=not self.budget.remaining or any(c.is_cut_short for c in self.components),
        )

    def _of_member(self) -> Mapping[str, Sequence[Candidate]]:
        candidates = self._placed_by_arrays()
        for component in self.components:
            for of_kind, more in zip(candidates, component.candidates, strict=False):
                first, *same = component.alike
                of_kind += more
                for tree in same:
                    of_kind += (self._classes.transfer(c, first, tree) for c in more)
        by_name: dict[str, tuple[Candidate, ...]] = {}
        for kind, of_kind in zip(self.kinds, candidates, strict=True):
            times, start = len(of_kind) // kind.count, 0
            for member in kind.members:
                end = start + times * member.count
                by_name[member.name] = tuple(of_kind[start:end])
                start = end
        return FrozenDict({member.name: by_name[member.name] for member in self.mix.members})

    def _placed_by_arrays(self) -> list[list[Candidate]]:
        """Return candidates by kind. Cost: some 10 microseconds for each."""
        counts = np.stack(self.placed or [np.zeros_like(self.most) for _ in self.kinds], axis=1)
        is_used = counts.any(axis=1)
        assignment = zip(
            np.flatnonzero(is_used).tolist(), map(tuple, counts[is_used].tolist()), strict=True
        )
        by_tree = first_fit(self.kinds, dict(assignment))
        assert by_tree is not None, "arrays decide what is possible"
        return [
            [candidate for placement in by_tree.values() for candidate in placement[kind]]
            for kind in range(len(self.kinds))
        ]

    def _by_host(self) -> Mapping[str, Count]:
        at_least, at_most = np.where(self.is_decided, self.most, 0), self.most.copy()
        is_open = ~self.is_decided & (self.most > 0)
        single, placed = [], Counter[str]()
        for component in self.components:
            if len(component.trees) == 1:
                single.append(component)
                is_open[component.alike] = False
            elif not self.is_mix:
                placed.update(c.host for c in itertools.chain(*component.candidates))
        others = list(self._by_class(integers([tree]) for tree in np.flatnonzero(is_open).tolist()))
        for component in others:
            component.at_least = placed[self.fleet.hosts[int(component.trees[0])]]
        self._narrow(others, Budget(self.options.budget))
        for component in single + others:
            at_least[component.alike] = component.at_least
            at_most[component.alike] = component.at_most
        bounds = zip(self.fleet.hosts, at_least.tolist(), at_most.tolist(), strict=True)
        return FrozenDict(
            {
                host: Count(low, high)
                for tree, (host, low, high) in enumerate(bounds)
                if self.fleet.is_within(tree) and tree not in self.fleet.pools.trees
            }
        )

    # --- hosts that are searched together ---

    def _components(self, served: Sequence[Integers]) -> Iterator[_Component]:
        """Yield the hosts that a search decides, those together that depend on each other."""
        label, is_stable = np.arange(len(self.most)), False
        while not is_stable:
            before = label.copy()
            for trees in served:
                label[trees] = label[trees].min()
            is_stable = bool((label == before).all())
        trees = np.flatnonzero((self.most > 0) & ~self.is_decided)
        trees = trees[np.argsort(label[trees], kind="stable")]
        starts = np.flatnonzero(np.diff(label[trees], prepend=-1))
        yield from self._by_class(np.split(trees, starts[1:]) if len(trees) else ())

    def _by_class(self, parts: Iterable[Integers]) -> Iterable[_Component]:
        """Return a component for each part of the hosts; one for all hosts of a class."""
        by_class: dict[Hashable, _Component] = {}
        for trees in parts:
            first = int(trees[0])
            key = self._classes.of(first) if len(trees) == 1 else first
            if key not in by_class:
                by_class[key] = _Component(trees, self._upper_bound(trees))
            by_class[key].alike.append(first)
        return by_class.values()

    @functools.cached_property
    def _classes(self) -> HostClasses:
        return HostClasses(self.problems, None if self.is_mix else self.most)

    def _upper_bound(self, trees: Integers) -> int:
        """Return an upper bound for some hosts, each pool counted once."""
        if len(trees) == 1:
            return int(self.most[trees[0]])
        bounds, is_included = [MAX_AMOUNT], np.zeros(len(self.most), dtype=np.bool_)
        is_included[trees] = True
        for kind in self.kinds:
            is_able = is_included & (kind.most > 0)
            bounds.append(sum(kind.most[is_able].tolist()) // kind.count)
            for name, total in kind.totals.items():
                if name in self.fleet.classes:
                    free = self.capacity.total(name, is_able)
                    bounds.append(free // (total * kind.count))
        for name, total in self.totals.items():
            bounds.append(self.capacity.total(name, is_included) // total)
        return min(bounds)

    def _served_by_pools(self) -> list[Integers]:
        """Return the hosts that each pool serves with a requested class."""
        (problem,), pools = self.problems, set[int]()
        for condition in problem.classes:
            pools.update(condition.rows.provider[_pool_rows(condition)].tolist())
        for kind in problem.named.kinds:
            pools.update(np.flatnonzero(kind.provides_as_pool).tolist())
        served = []
        for pool in sorted(pools):
            is_served = self.fleet.pools.linked_to(integers([pool]), len(self.most))
            is_served[self.fleet.tree[pool]] = True
            served.append(np.flatnonzero(is_served & (self.most > 0)))
        return [trees for trees in served if len(trees)]

    # --- search ---

    def _gang_search(self, count: int) -> GangSearch:
        """Return a search for up to ``count`` times the mix."""
        members = [Member(m.name, m.request, m.count * count) for m in self.mix.members]
        return GangSearch(self.scenario, Gang(members), {}, self.options)

    def _allocate_in_turn(self) -> None:
        """Allocate one on each host in each round, until no host has room or the budget ends."""
        for component in self.components:
            component.candidates = [[]]
        open_hosts = [(c, tree) for c in self.components for tree in c.trees.tolist()]
        search, placed = self._gang_search(1), 0
        lent = search.budget
        try:
            while open_hosts and placed < MOST_SEARCHED:
                with self.budget.lend(lent, self.budget.remaining):
                    problem, successful = search.problem_now(0), []
                for component, tree in open_hosts:
                    if component.at_least >= component.at_most:
                        continue
                    with self.budget.lend(lent, STEPS_OF_FIRST_TURN):
                        try:
                            candidate = next(search.candidates(problem, tree), None)
                        except SearchLimitReached:
                            component.is_cut_short |= not lent.remaining
                            continue  # it is unknown whether the host has room
                    if candidate is not None and search.allocate(candidate):
                        component.candidates[0].append(candidate)
                        component.at_least += 1
                        successful.append((component, tree))
                placed += len(successful)
                open_hosts = successful
        except SearchLimitReached:
            pass  # the candidates so far are certain
        finally:
            search.undo()

    def _narrow(self, components: Sequence[_Component], budget: Budget) -> None:
        """Narrow the bounds of components, each with an equal part of the remaining budget."""
        most = MOST_SEARCHED // sum(self.ratio)
        wide = [c for c in components if c.at_least < min(c.at_most, most)]
        if not wide or not budget.remaining:
            return
        search, lent = self._gang_search(min(most, max(c.at_most for c in wide))), Budget(0)
        for number, component in enumerate(wide):
            with budget.lend(lent, budget.remaining // (len(wide) - number)):
                self._bisect(search, component, lent, most)

    def _bisect(self, search: GangSearch, component: _Component, budget: Budget, most: int) -> None:
        """Narrow the bounds of a component: numbers in between are placed by the exact search.

        :param most: the maximum number that is searched
        """
        high = min(component.at_most, most)
        while component.at_least < high and budget.remaining:
            middle = (component.at_least + high + 1) // 2
            need = tuple(middle * count for count in self.ratio)
            # of a mix each search may spend half: the first of them may be hopeless
            steps = (budget.remaining + 1) // 2 if self.is_mix else budget.remaining
            with budget.lend(search.budget, steps):
                try:
                    candidates = search.place(need, component.trees)
                except SearchLimitReached:  # spent, or unknown: fewer may be certain
                    component.is_cut_short |= not search.budget.remaining
                    high = middle - 1
                    continue
            if candidates is not None:
                component.at_least, component.candidates = middle, candidates
            else:
                component.at_most = high = middle - 1

    def _assign(self, most: int) -> tuple[int, list[Integers]]:
        """Return the number of the mix that arrays assign to the hosts they decide, by bisection.

        Also returns by kind how many members each host gets.
        """
        low, high, best = 0, most if self.is_decided.any() else 0, list[Integers]()
        while low < high:
            middle = (low + high + 1) // 2
            need = [middle * count for count in self.ratio]
            assigned = assign(self.kinds, need, self.is_decided, self.capacity)
            if assigned is None:
                high = middle - 1
            else:
                low, best = middle, assigned
        return low, best


# --- counts that arrays decide --------------------------------------------------------------------


class Decision(NamedTuple):
    """The hosts of which arrays decide how often they hold a request. Figures are by host."""

    is_decided: Booleans
    most: Integers  #: individually; an upper bound of the hosts that are not decided
    placed: Integers  #: how many each decided host gets if each pool is counted once


def sure_hosts(problems: Sequence[Problem]) -> Booleans:
    """Return the hosts where free amounts alone decide whether inventories provide requests.

    There only counts are requested, of inventories that share nothing, have every required trait
    and can provide any part of an amount.
    """
    fleet = problems[0].fleet
    is_sure = np.ones(len(fleet.hosts), dtype=np.bool_)
    if not all(problem.classes and has_only_counts(problem) for problem in problems):
        return ~is_sure
    numbers = []
    for problem in problems:
        having = problem.unnamed.always_has_traits()
        if having is not None:
            is_sure &= having
        for condition in problem.classes:
            is_used = condition.allowed[OWN] & (condition.rows.free > 0)
            numbers.append(np.flatnonzero(is_used) + condition.rows.first)
            is_sure &= _is_free_of_unit_rules(condition, len(is_sure))
    return is_sure & ~sharing_conflicts(fleet, np.concatenate(numbers))


def decide(problem: Problem, most: Integers, served: Sequence[Integers]) -> Decision:
    """Return how often hosts hold a request, where at most one pool serves each, with one class.

    :param most: upper bounds by host
    :param served: the hosts that each pool serves
    """
    undecided = Decision(np.zeros(len(most), dtype=np.bool_), most, np.zeros_like(most))
    pooled = [d for d in problem.classes if d.provides_all[_pool_rows(d)].any()]
    is_sure = sure_hosts([problem])
    if not is_sure.any() or (pooled and not problem.rules.host_gives):
        return undecided
    if len(problem.classes) == 1:  # the host itself has to provide something, so all of it
        pooled = []
    times = most
    for condition in problem.classes:
        if condition not in pooled:
            times = np.minimum(times, repetitions(condition))
    if not pooled:
        return Decision(is_sure, np.where(is_sure, times, most), np.where(is_sure, times, 0))
    if len(pooled) > 1 or not is_sure[times > 0].all():
        return undecided
    return _decide_pooled(problem, pooled[0], times, served) or undecided


def _decide_pooled(
    problem: Problem, condition: ClassCondition, most: Integers, served: Sequence[Integers]
) -> Decision | None:
    """Return the decision about hosts with at most one pool each, for one class; None: unknown.

    A host uses its own capacity first, which no other host can use. The pool provides the rest of
    what the host can hold, to one host after the other.

    :param most: how often hosts can hold the other classes
    """
    pools, is_able = problem.fleet.pools, most > 0
    links = np.zeros_like(most)
    for trees in served:
        links[trees] += 1
    if is_able[list(pools.trees)].any() or links[is_able].max(initial=0) > 1:
        return None
    of_host = np.minimum(repetitions(condition), most)
    individually, placed = of_host.copy(), of_host.copy()
    rows = _pool_rows(condition)
    for row in rows[condition.provides_all[rows]].tolist():
        pool = condition.rows.provider[row : row + 1]
        trees = np.flatnonzero(pools.linked_to(pool, len(most)) & is_able)
        free = int(condition.rows.free[row]) // condition.amount
        extra = np.minimum((most - of_host)[trees], free)
        individually[trees] += extra
        placed[trees] += np.minimum(extra, (free - np.cumsum(extra) + extra).clip(0))
    return Decision(np.ones_like(is_able), individually, placed)


def _pool_rows(condition: ClassCondition) -> Integers:
    """Return the rows of a class that belong to eligible pools."""
    if not condition.has_pools:
        return integers(())
    return np.flatnonzero(condition.allowed[POOL])


def _is_free_of_unit_rules(condition: ClassCondition, trees: int) -> Booleans:
    """Return the trees where no unit rule prevents any part of a class."""
    is_free = np.ones(trees, dtype=np.bool_)
    if condition.is_split:
        rows = condition.rows
        is_any = (rows.step_size == 1) & (rows.min_unit <= 1)
        is_any &= rows.max_unit >= np.minimum(rows.free, condition.amount)
        is_device = condition.allowed[OWN] & condition.is_device & (rows.free > 0)
        is_free[rows.tree[is_device & ~is_any]] = False
    return is_free


def decided_for_mix(kinds: Sequence[Kind], capacity: CapacityByHost) -> Booleans:
    """Return the hosts where arrays decide what fits next to other members of a mix.

    On these one inventory provides each requested class.
    """
    fleet, problems = capacity.fleet, [kind.problem for kind in kinds]
    is_decided = sure_hosts(problems)
    for name in {condition.resource_class for problem in problems for condition in problem.classes}:
        is_decided &= np.bincount(fleet.rows(name).tree, minlength=len(is_decided)) <= 1
        for trees, _ in capacity.pools(name):
            is_decided[trees] = False
    return is_decided


def assign(
    kinds: Sequence[Kind], need: Sequence[int], is_decided: Booleans, capacity: CapacityByHost
) -> list[Integers] | None:
    """Return by kind how many members each decided host gets; None if they are not assigned.

    The kind with the largest part of its scarcest class is assigned first. An assignment is
    certain; if there is none, another choice of hosts may hold the members. Cost: some passes over
    the hosts.
    """
    remaining = {name: capacity.own(name).copy() for kind in kinds for name in kind.totals}
    free = {name: max(1, int(of_host[is_decided].sum())) for name, of_host in remaining.items()}
    sizes = [max(total / free[name] for name, total in kind.totals.items()) for kind in kinds]
    assigned = [np.zeros_like(kind.most) for kind in kinds]
    for number in sorted(range(len(kinds)), key=lambda number: (-sizes[number], number)):
        most = np.where(is_decided, kinds[number].most, 0)
        for name, total in kinds[number].totals.items():
            most = np.minimum(most, remaining[name] // total)
        before = np.cumsum(most) - most
        assigned[number] = np.minimum(most, (need[number] - before).clip(0))
        if int(assigned[number].sum()) < need[number]:
            return None
        for name, total in kinds[number].totals.items():
            remaining[name] -= assigned[number] * total
    return assigned
