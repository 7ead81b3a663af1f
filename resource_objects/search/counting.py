"""How many of requests hosts may hold, as arrays say: never too few, and where it is just so.

Where counts alone are asked for, of inventories that do not meet each other, and of at most one
pool for each host, the arrays decide: some passes over the fleet, and no search. Elsewhere they
bound what a search may find (:mod:`.how_many`), and say which hosts hang together, since one pool
serves them. A mix of counts is dealt out in one pass for each of its members, which shows that so
many fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from resource_objects.fields import MAX_AMOUNT
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.amounts import FleetDemand
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_problem import (
    CapacityByHost,
    FirstFit,
    has_traits,
    totals_of,
    upper_bounds,
)
from resource_objects.search.problem import Problem, counts_alone


class CountedKind:
    """How many of a request hosts may hold, as arrays say. Figures are by tree."""

    def __init__(self, problem: Problem) -> None:
        fleet = problem.fleet
        self.problem, self._fleet = problem, fleet
        self._supply = CapacityByHost(fleet)
        self._totals = totals_of(problem.request)
        #: at most so many, if all pools were its own
        self.most = upper_bounds(problem, self._supply, MAX_AMOUNT)
        #: where that is what it holds
        self.is_exact = np.zeros(len(self.most), dtype=np.bool_)
        #: how many are placed there, where nothing has to be searched
        self.placed = np.zeros_like(self.most)
        self._is_done = np.zeros_like(self.is_exact)
        self._links = self._linked()
        if problem.demands and counts_alone(problem):
            self._decide()

    def together(self, trees: Integers) -> int:
        """Return how many some hosts can hold at most, each pool counted once."""
        found = int(sum(self.most[trees].tolist()))
        if len(trees) > 1:
            some = np.zeros(len(self.most), dtype=np.bool_)
            some[trees] = True
            for name, total in self._totals.items():
                if name in self._fleet.classes:
                    found = min(found, self._supply.total(name, some) // total)
        return found

    def components(self) -> Iterator[Integers]:
        """Yield the hosts that are left to be searched, those together that a pool serves."""
        left = (self.most > 0) & ~self._is_done
        numbers = np.arange(len(left))
        for trees in self._links:  # the smallest number of all that hang together
            numbers[trees] = numbers[trees].min(initial=len(left))
        changed = bool(len(self._links) > 1)
        while changed:
            changed = False
            for trees in self._links:
                least = numbers[trees].min(initial=len(left))
                if (numbers[trees] != least).any():
                    numbers[trees], changed = least, True
        trees = np.flatnonzero(left)
        order = trees[np.argsort(numbers[trees], kind="stable")]
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        yield from np.split(order, starts[1:]) if len(order) else ()

    def placements(self) -> Iterator[Candidate]:
        """Yield who takes what of that which is placed. Cost: some 10 microseconds each."""
        source, used = FirstFit(self.problem), dict[int, int]()
        for tree in np.flatnonzero(self.placed).tolist():
            for _ in range(int(self.placed[tree])):
                found = source.allocate(tree, used)
                assert found is not None, "what arrays decide is what there is"
                yield found

    # --- where counts alone decide ---

    def _decide(self) -> None:
        """Decide the hosts on which nothing that is asked for meets anything else."""
        problem, most = self.problem, self.most.copy()
        pooled = [ask for ask in problem.demands if _gives_of_pools(ask)]
        alone = [ask for ask in problem.demands if ask not in pooled]
        giving = [
            np.flatnonzero(one.own.allowed & (one.rows.free > 0)) + one.rows.first
            for one in problem.demands
        ]
        is_sure = ~meeting(self._fleet, np.concatenate(giving))
        has_trait = has_traits(problem)
        if has_trait is not None:
            is_sure &= has_trait
        for ask in alone:
            is_sure &= _is_sure(ask, len(most))
            np.minimum(most, _copies(ask, len(most)), out=most)
        if not pooled or (len(problem.demands) == 1 and problem.rules.host_gives):
            for ask in pooled:  # who gives nothing itself is given nothing
                is_sure &= _is_sure(ask, len(most))
                np.minimum(most, _copies(ask, len(most)), out=most)
            self._set(is_sure, most, most)
        elif len(pooled) == 1 and problem.rules.host_gives:
            self._decide_pooled(pooled[0], is_sure & _is_sure(pooled[0], len(most)), most)

    def _decide_pooled(self, ask: FleetDemand, is_sure: Booleans, rest: Integers) -> None:
        """Decide hosts of which each has one pool for one of the classes.

        What a host has itself is of use to nobody else, so it comes first. What it lacks beside
        what it has of the other classes its pool gives, to as many as there are.

        :param rest: how many it can hold for the other classes
        """
        fleet, rows = self._fleet, ask.rows
        some = rest > 0
        if some[list(fleet.pools.trees)].any() or not is_sure[some].all():
            return
        links = np.zeros_like(rest)
        for trees in self._links:
            links[trees] += 1
        if links[some].max(initial=0) > 1:
            return
        own = np.minimum(_copies(ask, len(rest)), rest)
        alone, placed = own.copy(), own.copy()
        assert ask.pooled is not None, "it is of pools"
        numbers = np.asarray(ask.pooled.numbers)[ask.pooled.allowed] - rows.first
        for number in numbers[ask.gives_all[numbers]].tolist():
            pool = rows.provider[number : number + 1]
            trees = np.flatnonzero(fleet.pools.linked_to(pool, len(rest)) & some)
            has = int(rows.free[number]) // ask.amount
            lack = (rest - own)[trees]
            alone[trees] += np.minimum(lack, has)
            before = np.cumsum(np.minimum(lack, has)) - np.minimum(lack, has)
            placed[trees] += np.minimum(lack, (has - before).clip(0))
        self._set(np.ones_like(is_sure), alone, placed)

    def _set(self, is_done: Booleans, most: Integers, placed: Integers) -> None:
        self._is_done = is_done
        self.is_exact = is_done | (self.most == 0)
        self.most = np.where(is_done, np.minimum(most, self.most), self.most)
        self.placed = np.where(is_done, np.minimum(placed, self.most), 0)

    def _linked(self) -> list[Integers]:
        """Return the hosts that each pool serves with something that is asked for."""
        problem, fleet = self.problem, self._fleet
        if not fleet.pools:
            return []
        pools: set[int] = set()
        for ask in problem.demands:
            if ask.pooled is not None:
                numbers = np.asarray(ask.pooled.numbers)[ask.pooled.allowed] - ask.rows.first
                pools.update(ask.rows.provider[numbers].tolist())
        for kind in problem.named.kinds:
            pools.update(np.flatnonzero(kind.pooled).tolist())
        found = []
        for pool in sorted(pools):
            some = fleet.pools.linked_to(integers([pool]), len(self.most)) & (self.most > 0)
            tree = int(fleet.tree[pool])
            some[tree] = self.most[tree] > 0
            found.append(np.flatnonzero(some))
        return [trees for trees in found if len(trees)]


class CountedMix:
    """A mix of requests over hosts of which arrays decide what several members take beside another.

    These are the hosts where each class that is asked for is given by one inventory. What is dealt
    out to them is held for sure; where it cannot be dealt another choice of hosts may hold it.
    """

    def __init__(
        self, problems: Sequence[Problem], most: Sequence[Integers], supply: CapacityByHost
    ) -> None:
        """:param most: of each of the requests, how many a tree holds at most if alone"""
        self._problems, self._supply = problems, supply
        self._totals = [totals_of(problem.request) for problem in problems]
        #: the hosts where arrays decide, by tree
        self.is_decided = self._decided()
        self._most = [np.where(self.is_decided, one, 0) for one in most]

    def _decided(self) -> Booleans:
        fleet = self._supply.fleet
        found = np.zeros(len(fleet.hosts), dtype=np.bool_)
        if fleet.shares or not all(one.demands and counts_alone(one) for one in self._problems):
            return found
        found[:] = True
        asks = [ask for one in self._problems for ask in one.demands]
        if any(ask.is_split for ask in asks):
            found[:] = False
        for name in {ask.resource_class for ask in asks}:
            rows = fleet.rows(name)
            found &= np.bincount(rows.tree, minlength=len(found)) <= 1
            for linked, _ in self._supply.pools(name):
                found[linked] = False
        for one in self._problems:
            has_trait = has_traits(one)
            if has_trait is not None:
                found &= has_trait
        return found

    def dealt(self, need: Sequence[int]) -> list[Integers] | None:
        """Return by tree how many of each request hosts take, so many in all; None if it fails.

        The dearest comes first: of whose class there is least. Cost: some passes over the hosts.
        """
        names = {name for totals in self._totals for name in totals}
        room = {name: self._supply.own(name).copy() for name in names}
        dealt = [np.zeros_like(one) for one in self._most]
        for number in sorted(range(len(need)), key=lambda one: (-self._size(one), one)):
            can = self._most[number]
            for name, total in self._totals[number].items():
                can = np.minimum(can, room[name] // total)
            before = np.cumsum(can) - can
            dealt[number] = np.minimum(can, (need[number] - before).clip(0))
            if int(dealt[number].sum()) < need[number]:
                return None
            for name, total in self._totals[number].items():
                room[name] -= dealt[number] * total
        return dealt

    def _size(self, number: int) -> float:
        """Return which part of its scarcest class one of a request takes."""
        own = self._supply.own
        return max(
            total / max(1, int(own(name)[self.is_decided].sum()))
            for name, total in self._totals[number].items()
        )

    def placements(self, dealt: Sequence[Integers]) -> Iterator[list[Candidate]]:
        """Yield the candidates of each request for what was dealt. Cost: some 10 microseconds each.

        Who takes what is told tree by tree: what one takes another one cannot.
        """
        sources = [FirstFit(one) for one in self._problems]
        found: list[list[Candidate]] = [[] for _ in sources]
        for tree in np.flatnonzero(np.logical_or.reduce([one > 0 for one in dealt])).tolist():
            used: dict[int, int] = {}
            for source, counts, some in zip(sources, dealt, found, strict=True):
                for _ in range(int(counts[tree])):
                    one = source.allocate(tree, used)
                    assert one is not None, "what arrays decide is what there is"
                    some.append(one)
        yield from found


def _gives_of_pools(ask: FleetDemand) -> bool:
    """Return whether some pool may give a class to hosts of other trees."""
    if ask.pooled is None:
        return False
    numbers = np.asarray(ask.pooled.numbers)[ask.pooled.allowed] - ask.rows.first
    return bool(ask.gives_all[numbers].any())


def _parts(ask: FleetDemand) -> Booleans:
    """Return which inventories of a class may give a part now."""
    rows = ask.rows
    return ask.own.allowed & ask.is_device & (rows.low <= rows.high) & (rows.high > 0)


def _copies(ask: FleetDemand, trees: int) -> Integers:
    """Return by tree how often its inventories give a class.

    Devices that give parts give all that they have: any parts do that add up.
    """
    rows, parts = ask.rows, _parts(ask)
    found, shared = np.zeros(trees, dtype=np.int64), np.zeros(trees, dtype=np.int64)
    whole = ask.own.allowed & ask.gives_all & ~parts
    np.add.at(found, rows.tree[whole], rows.free[whole] // ask.amount)
    if ask.is_split:
        np.add.at(shared, rows.tree[parts], rows.free[parts])
        found += shared // ask.amount
    return found


def _is_sure(ask: FleetDemand, trees: int) -> Booleans:
    """Return on which trees that is so: no unit rule stands in the way of any part."""
    found = np.ones(trees, dtype=np.bool_)
    if ask.is_split:
        rows = ask.rows
        most = np.minimum(rows.free, ask.amount)
        is_free = (rows.step_size == 1) & (rows.min_unit <= 1) & (rows.max_unit >= most)
        found[rows.tree[ask.own.allowed & ask.is_device & (rows.free > 0) & ~is_free]] = False
    return found


def meeting(fleet: Fleet, numbers: Integers) -> Booleans:
    """Return the trees where some inventories share, or are drawn on, beside another of these.

    :param numbers: of inventories, each once
    """
    found = np.zeros(len(fleet.hosts), dtype=np.bool_)
    if not fleet.shares:
        return found
    gives = np.zeros(len(fleet.inventories.tree), dtype=np.bool_)
    gives[numbers] = True
    draws = gives[fleet.shares.source]
    source, target = fleet.shares.source[draws], fleet.shares.target[draws]
    met = np.bincount(np.concatenate([numbers, target]), minlength=len(gives)) > 1
    tree = fleet.inventories.tree
    found[tree[numbers[met[numbers]]]] = True
    found[tree[source[met[target]]]] = True
    return found
