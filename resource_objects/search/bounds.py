"""How many of a request each host can hold, by arrays: upper bounds, without a search.

The bounds come from the free amount of each resource class, of a host itself and of the pools that
serve it, and from the providers that can provide the request once.
"""

from __future__ import annotations

import functools

import numpy as np

from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests import Request
from resource_objects.resources import IntegerAmount
from resource_objects.search.arrays import Booleans, Integers, sums_by
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.eligibility import OWN
from resource_objects.search.fleet import Fleet
from resource_objects.search.problem import Problem, possible_trees


def totals_of(request: Request) -> dict[str, int]:
    """Return the amount of each counted class that a request uses in all."""
    return {
        name: int(amount.value)
        for name, amount in request.resources.by_name()
        if isinstance(amount, IntegerAmount)
    }


class CapacityByHost:
    """The free amount of each resource class on each host, and that of its pools."""

    def __init__(self, fleet: Fleet, disabled: Booleans | None = None) -> None:
        """:param disabled: the providers that provide nothing; None: all provide"""
        self.fleet = fleet
        self._disabled = np.zeros(len(fleet.names), np.bool_) if disabled is None else disabled
        self.own = functools.cache(self._own)
        self.pools = functools.cache(self._pools)
        self.free = functools.cache(self._free)

    def total(self, name: str, hosts: Booleans) -> int:
        """Return the free amount of a class for some hosts, each pool counted once."""
        pools = (free for linked, free in self.pools(name) if hosts[linked].any())
        return int(self.own(name)[hosts].sum()) + sum(pools)

    def _free(self, name: str) -> Integers:
        """Return by host the free amount of a class, that of all its pools included."""
        free = self.own(name).copy()
        for hosts, of_pool in self.pools(name):
            free[hosts] += of_pool
        return np.minimum(free, MAX_AMOUNT)

    def _own(self, name: str) -> Integers:
        """Return by host the free amount of a class without pools.

        Not :meth:`.Fleet.free`, which excludes every disabled provider: a member whose request
        names the trait of disabled providers may use them.
        """
        rows = self.fleet.rows(name)
        counted = self.fleet.counted(rows) & ~self.fleet.is_pool[rows.provider]
        counted &= ~self._disabled[rows.provider]
        return _by_tree(self.fleet, name, np.where(counted, rows.free, 0).clip(0))

    def _pools(self, name: str) -> list[tuple[Integers, int]]:
        """Return for each pool of a class the hosts that it serves, and its free amount."""
        fleet, rows = self.fleet, self.fleet.rows(name)
        if not fleet.has_pools:
            return []
        pools = []
        is_pool = fleet.is_pool[rows.provider] & ~self._disabled[rows.provider]
        for entry in np.flatnonzero(is_pool).tolist():
            pool = rows.provider[entry : entry + 1]
            is_linked = fleet.pools.linked_to(pool, len(fleet.hosts))
            is_linked[fleet.tree[pool]] = True  # a pool serves its own tree without a link
            pools.append((np.flatnonzero(is_linked), max(0, int(rows.free[entry]))))
        return pools


def upper_bounds(problem: Problem, capacity: CapacityByHost, most: int) -> Integers:
    """Return by tree how often it can hold a request at most, up to ``most``.

    Pools count as if they served each host only. Cost: some passes over the fleet for each class
    and group.
    """
    fleet = problem.fleet
    bounds = np.zeros(len(fleet.hosts), dtype=np.int64)
    bounds[possible_trees(problem)] = most
    for name, total in totals_of(problem.request).items():
        if name in fleet.classes:
            np.minimum(bounds, capacity.free(name) // total, out=bounds)
    for condition in problem.classes:
        if not condition.is_split and not condition.has_pools:
            np.minimum(bounds, repetitions(condition), out=bounds)
    if problem.named:
        np.minimum(bounds, problem.named.upper_bounds(len(bounds)), out=bounds)
    for placed in problem.located:
        np.minimum(bounds, placed.most(), out=bounds)
    return bounds


def repetitions(condition: ClassCondition) -> Integers:
    """Return by tree how often its own inventories provide a class.

    Devices that provide parts provide all that they have, in any parts that add up.
    """
    fleet, rows, name = condition.fleet, condition.rows, condition.resource_class
    is_whole, is_part = condition.allowed[OWN] & condition.provides_all, None
    if condition.is_split:
        is_part = (
            condition.allowed[OWN] & condition.is_device & (rows.low <= rows.high) & (rows.high > 0)
        )
        is_whole = is_whole & ~is_part
    times = _by_tree(fleet, name, np.where(is_whole, rows.free // condition.amount, 0))
    if is_part is None:
        return times
    return times + _by_tree(fleet, name, np.where(is_part, rows.free, 0)) // condition.amount


def _by_tree(fleet: Fleet, name: str, figures: Integers) -> Integers:
    """Return the sums by tree of a figure of each inventory of a class."""
    if fleet.is_everywhere(name):
        return figures
    return sums_by(figures, fleet.rows(name).tree, len(fleet.hosts))


def sharing_conflicts(fleet: Fleet, numbers: Integers) -> Booleans:
    """Return the trees where an inventory shares another that one of these uses or is.

    :param numbers: of inventories
    """
    in_conflict = np.zeros(len(fleet.hosts), dtype=np.bool_)
    if not fleet.has_shares:
        return in_conflict
    numbers = np.unique(numbers)
    is_included = np.zeros(len(fleet.inventories.tree), dtype=np.bool_)
    is_included[numbers] = True
    shared_uses = is_included[fleet.shares.source]
    source, target = fleet.shares.source[shared_uses], fleet.shares.target[shared_uses]
    met = np.bincount(np.concatenate([numbers, target]), minlength=len(is_included)) > 1
    in_conflict[fleet.inventories.tree[numbers[met[numbers]]]] = True
    in_conflict[fleet.inventories.tree[source[met[target]]]] = True
    return in_conflict
