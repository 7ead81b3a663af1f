"""Counts of requests that hosts can hold, by arrays: upper bounds, which are exact on most hosts.

Arrays decide where only counts are requested, of inventories that share nothing, and of at most one
pool for each host: some passes over the fleet, without a search. Elsewhere they bound the search of
:mod:`.how_many`, and report which hosts depend on each other because a pool serves them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from resource_objects.fields import MAX_AMOUNT
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.amounts import FleetDemand
from resource_objects.search.eligibility import OWN, POOL
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_problem import (
    CapacityByHost,
    FirstFit,
    has_traits,
    totals_of,
    upper_bounds,
)
from resource_objects.search.problem import Problem, has_only_counts


class CountedRequest:
    """The count of one request on each host. Figures are by tree."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._fleet = problem.fleet
        self._capacity = CapacityByHost(problem.fleet)
        #: an upper bound for each host, as if all its pools served it only
        self.most = upper_bounds(problem, self._capacity, MAX_AMOUNT)
        self.is_exact = self.most == 0  #: where that is what the host can hold
        #: how many are placed where no search is needed
        self.placed = np.zeros_like(self.most)
        self._is_decided = np.zeros_like(self.is_exact)
        self._served = self._served_by_pools()
        if problem.demands and has_only_counts(problem):
            self._decide()

    def together(self, trees: Integers) -> int:
        """Return an upper bound for some hosts, each pool counted once."""
        most = int(sum(self.most[trees].tolist()))
        if len(trees) > 1:
            is_included = np.zeros(len(self.most), dtype=np.bool_)
            is_included[trees] = True
            for name, total in totals_of(self.problem.request).items():
                if name in self._fleet.classes:
                    most = min(most, self._capacity.total(name, is_included) // total)
        return most

    def components(self) -> Iterator[Integers]:
        """Yield the hosts that have to be searched, those together that depend on each other."""
        label, is_stable = np.arange(len(self.most)), False
        while not is_stable:
            before = label.copy()
            for trees in self._served:
                label[trees] = label[trees].min()
            is_stable = bool((label == before).all())
        trees = np.flatnonzero((self.most > 0) & ~self._is_decided)
        trees = trees[np.argsort(label[trees], kind="stable")]
        starts = np.flatnonzero(np.diff(label[trees], prepend=-1))
        yield from np.split(trees, starts[1:]) if len(trees) else ()

    def _served_by_pools(self) -> list[Integers]:
        """Return the hosts that each pool serves with a requested class."""
        pools: set[int] = set()
        for demand in self.problem.demands:
            pools.update(demand.rows.provider[_pool_rows(demand)].tolist())
        for kind in self.problem.named.kinds:
            pools.update(np.flatnonzero(kind.pooled).tolist())
        served = []
        for pool in sorted(pools):
            is_served = self._fleet.pools.linked_to(integers([pool]), len(self.most))
            is_served[self._fleet.tree[pool]] = True
            served.append(np.flatnonzero(is_served & (self.most > 0)))
        return [trees for trees in served if len(trees)]

    # --- where only counts are requested ---

    def _decide(self) -> None:
        """Decide the hosts whose inventories share nothing."""
        problem, most = self.problem, self.most.copy()
        numbers = [
            np.flatnonzero(demand.allowed[OWN] & (demand.rows.free > 0)) + demand.rows.first
            for demand in problem.demands
        ]
        is_sure = ~sharing_conflicts(self._fleet, np.concatenate(numbers))
        having = has_traits(problem)
        if having is not None:
            is_sure &= having
        pooled = [d for d in problem.demands if d.gives_all[_pool_rows(d)].any()]
        if pooled and not problem.rules.host_gives:
            return
        if len(problem.demands) == 1:  # the host itself has to provide something, so all of it
            pooled = []
        for demand in problem.demands:
            is_sure &= _is_free_of_unit_rules(demand, len(most))
            if demand not in pooled:
                np.minimum(most, _repetitions(demand, len(most)), out=most)
        if not pooled:
            self._set(is_sure, most, most)
        elif len(pooled) == 1:
            self._decide_pooled(pooled[0], is_sure, most)

    def _decide_pooled(self, demand: FleetDemand, is_sure: Booleans, most: Integers) -> None:
        """Decide hosts with at most one pool each, for one class.

        A host uses its own capacity first, which no other host can use. The pool provides the rest
        of what the host can hold, to one host after the other.

        :param most: how often hosts can hold the other classes
        """
        pools, is_able = self._fleet.pools, most > 0
        links = np.zeros_like(most)
        for trees in self._served:
            links[trees] += 1
        if (
            is_able[list(pools.trees)].any()
            or not is_sure[is_able].all()
            or links[is_able].max(initial=0) > 1
        ):
            return
        of_host = np.minimum(_repetitions(demand, len(most)), most)
        most_alone, placed = of_host.copy(), of_host.copy()
        rows = _pool_rows(demand)
        for row in rows[demand.gives_all[rows]].tolist():
            pool = demand.rows.provider[row : row + 1]
            trees = np.flatnonzero(pools.linked_to(pool, len(most)) & is_able)
            free = int(demand.rows.free[row]) // demand.amount
            extra = np.minimum((most - of_host)[trees], free)
            most_alone[trees] += extra
            placed[trees] += np.minimum(extra, (free - np.cumsum(extra) + extra).clip(0))
        self._set(np.ones_like(is_sure), most_alone, placed)

    def _set(self, is_decided: Booleans, most: Integers, placed: Integers) -> None:
        self._is_decided = is_decided
        self.is_exact |= is_decided
        self.most = np.where(is_decided, np.minimum(most, self.most), self.most)
        self.placed = np.where(is_decided, np.minimum(placed, self.most), 0)


class CountedMix:
    """A mix of requests on the hosts where arrays decide what fits next to other members.

    On these hosts one inventory provides each requested class. An assignment to them is certain; if
    there is none, another choice of hosts may hold the mix.
    """

    def __init__(
        self, problems: Sequence[Problem], most: Sequence[Integers], capacity: CapacityByHost
    ) -> None:
        """:param most: for each request by tree, how often the tree can hold it at most"""
        self._problems, self._capacity = problems, capacity
        self._totals = [totals_of(problem.request) for problem in problems]
        self.is_decided = self._decided()  #: by tree
        self._most = [np.where(self.is_decided, of_request, 0) for of_request in most]

    def _decided(self) -> Booleans:
        fleet = self._capacity.fleet
        demands = [demand for problem in self._problems for demand in problem.demands]
        if (
            fleet.shares
            or any(demand.is_split for demand in demands)
            or not all(problem.demands and has_only_counts(problem) for problem in self._problems)
        ):
            return np.zeros(len(fleet.hosts), dtype=np.bool_)
        is_decided = np.ones(len(fleet.hosts), dtype=np.bool_)
        for name in {demand.resource_class for demand in demands}:
            is_decided &= np.bincount(fleet.rows(name).tree, minlength=len(is_decided)) <= 1
            for trees, _ in self._capacity.pools(name):
                is_decided[trees] = False
        for problem in self._problems:
            having = has_traits(problem)
            if having is not None:
                is_decided &= having
        return is_decided

    def assign(self, need: Sequence[int]) -> list[Integers] | None:
        """Return by tree how many of each request it gets; None if they are not assigned.

        The request with the largest part of its scarcest class is assigned first. Cost: some passes
        over the hosts.
        """
        names = {name for totals in self._totals for name in totals}
        remaining = {name: self._capacity.own(name).copy() for name in names}
        assigned = [np.zeros_like(of_request) for of_request in self._most]
        for number in sorted(range(len(need)), key=lambda number: (-self._size(number), number)):
            most = self._most[number]
            for name, total in self._totals[number].items():
                most = np.minimum(most, remaining[name] // total)
            before = np.cumsum(most) - most
            assigned[number] = np.minimum(most, (need[number] - before).clip(0))
            if int(assigned[number].sum()) < need[number]:
                return None
            for name, total in self._totals[number].items():
                remaining[name] -= assigned[number] * total
        return assigned

    def _size(self, number: int) -> float:
        """Return the part of its scarcest class that a request uses."""
        return max(
            total / max(1, int(self._capacity.own(name)[self.is_decided].sum()))
            for name, total in self._totals[number].items()
        )


def first_candidates(
    problems: Sequence[Problem], counts: Sequence[Integers]
) -> list[list[Candidate]]:
    """Return candidates of each request, as many on each tree as arrays decided.

    Cost: some 10 microseconds for each.
    """
    sources = [FirstFit(problem) for problem in problems]
    candidates: list[list[Candidate]] = [[] for _ in problems]
    used: dict[int, int] = {}
    for tree in np.flatnonzero(
        np.logical_or.reduce([of_request > 0 for of_request in counts])
    ).tolist():
        for source, count, of_request in zip(sources, counts, candidates, strict=True):
            for _ in range(int(count[tree])):
                candidate = source.allocate(tree, used)
                assert candidate is not None, "arrays decide what is possible"
                of_request.append(candidate)
    return candidates


def sharing_conflicts(fleet: Fleet, numbers: Integers) -> Booleans:
    """Return the trees where an inventory shares another that one of these uses or is.

    :param numbers: of inventories, each once
    """
    in_conflict = np.zeros(len(fleet.hosts), dtype=np.bool_)
    if not fleet.shares:
        return in_conflict
    is_included = np.zeros(len(fleet.inventories.tree), dtype=np.bool_)
    is_included[numbers] = True
    shared_uses = is_included[fleet.shares.source]
    source, target = fleet.shares.source[shared_uses], fleet.shares.target[shared_uses]
    met = np.bincount(np.concatenate([numbers, target]), minlength=len(is_included)) > 1
    in_conflict[fleet.inventories.tree[numbers[met[numbers]]]] = True
    in_conflict[fleet.inventories.tree[source[met[target]]]] = True
    return in_conflict


def _pool_rows(demand: FleetDemand) -> Integers:
    """Return the rows of a class that belong to eligible pools."""
    if not demand.has_pools:
        return integers(())
    return np.flatnonzero(demand.allowed[POOL])


def _repetitions(demand: FleetDemand, trees: int) -> Integers:
    """Return by tree how often its inventories provide a class.

    Devices that provide parts provide all that they have: any parts that add up will do.
    """
    rows = demand.rows
    is_part = demand.allowed[OWN] & demand.is_device & (rows.low <= rows.high) & (rows.high > 0)
    is_whole = demand.allowed[OWN] & demand.gives_all & ~is_part
    times, together = np.zeros(trees, dtype=np.int64), np.zeros(trees, dtype=np.int64)
    np.add.at(times, rows.tree[is_whole], rows.free[is_whole] // demand.amount)
    if demand.is_split:
        np.add.at(together, rows.tree[is_part], rows.free[is_part])
        times += together // demand.amount
    return times


def _is_free_of_unit_rules(demand: FleetDemand, trees: int) -> Booleans:
    """Return the trees where no unit rule prevents any part of a class."""
    is_free = np.ones(trees, dtype=np.bool_)
    if demand.is_split:
        rows = demand.rows
        is_any = (rows.step_size == 1) & (rows.min_unit <= 1)
        is_any &= rows.max_unit >= np.minimum(rows.free, demand.amount)
        is_device = demand.allowed[OWN] & demand.is_device & (rows.free > 0)
        is_free[rows.tree[is_device & ~is_any]] = False
    return is_free
