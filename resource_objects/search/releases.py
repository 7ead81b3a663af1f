"""Consumers whose release may make room for a request: a necessary condition by sums.

A search for each consumer would take too long. So the free amounts of a host, with those that a
consumer would release there, are compared with the requested amounts. A search decides the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans
from resource_objects.search.bounds import CapacityByHost, totals_of
from resource_objects.search.fleet import Fleet
from resource_objects.search.problem import compile_request, placed_amounts, possible_trees

#: The number of consumers of one tree up to which arrays decide their release.
MAX_PASSES = 256


class ReleaseCandidate(NamedTuple):
    """A consumer, its allocations, and the trees that may have room without it."""

    consumer: str
    allocated: Mapping[int, Mapping[str, int]]  #: amounts by tree and resource class
    trees: tuple[int, ...]


def feasible_without_consumers(
    fleet: Fleet, request: Request, *, as_of_now: bool = True
) -> Booleans:
    """Return the trees that may hold a request if all consumers are released.

    :param as_of_now: whether disabled units stay disabled
    """
    released = fleet.released
    is_feasible = np.zeros(len(fleet.hosts), dtype=np.bool_)
    is_feasible[
        possible_trees(compile_request(request, released.as_of_now() if as_of_now else released))
    ] = True
    return is_feasible


def release_candidates(
    fleet: Fleet, request: Request, pool_trees: Collection[int]
) -> Iterator[ReleaseCandidate]:
    """Yield the consumers whose release may make room; no such consumer is left out.

    Cost: some passes over the fleet, and some microseconds for each allocation; for placed
    amounts, a pass for each consumer of the fullest tree.

    :param pool_trees: the trees with a pool: its consumers may make room on each host it serves
    """
    is_feasible = feasible_without_consumers(fleet, request)
    is_feasible[list(pool_trees)] = True
    allocated, grows = _allocated(fleet, is_feasible)
    capacity = CapacityByHost(fleet.as_of_now())
    totals = {name: total for name, total in totals_of(request).items() if name in fleet.classes}
    free = {name: capacity.free(name).tolist() for name in totals}
    placeable = _placeable_after_release(fleet, request, allocated)

    def may_help(consumer: str, tree: int, counts: Mapping[str, int]) -> bool:
        if placeable is not None:
            return (consumer, tree) in placeable
        shared = grows.get((consumer, tree), set())
        short = [name for name, total in totals.items() if free[name][tree] < total]
        if not short and totals:  # the amounts are on the wrong providers
            return not totals.keys().isdisjoint({*counts, *shared})
        return all(
            name in shared or free[name][tree] + counts.get(name, 0) >= totals[name]
            for name in short
        )

    for consumer, by_tree in allocated.items():
        trees: set[int] = set()
        for tree, counts in by_tree.items():
            if tree in pool_trees:
                trees.update(_served_by(fleet, tree))
            elif may_help(consumer, tree, counts):
                trees.add(tree)
        if trees:
            yield ReleaseCandidate(consumer, by_tree, tuple(sorted(trees)))


def _placeable_after_release(
    fleet: Fleet, request: Request, allocated: Mapping[str, Mapping[int, object]]
) -> set[tuple[str, int]] | None:
    """Return the consumers and trees whose release leaves the minimum of the placed amounts.

    A pass releases one consumer of each tree, whichever units it has. None without placed amounts.
    """
    if not placed_amounts(request.unnamed):
        return None
    passes = _passes(allocated)
    tree_of = fleet.tree.tolist()
    uses: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for place, (name, consumer, amount) in fleet.allocations.all():
        number = fleet.number(place, name)
        if number is not None:
            uses[consumer, tree_of[place]].append((number, amount))
    released, used, shares = fleet.as_of_now().released, fleet.inventories.used, fleet.shares
    placeable: set[tuple[str, int]] = set()
    for consumers in passes[:MAX_PASSES]:
        amounts = np.zeros_like(used)
        for tree, consumer in consumers.items():
            for number, amount in uses[consumer, tree]:
                amounts[number] += amount
        remaining = used - amounts
        if shares:
            np.subtract.at(remaining, shares.target, amounts[shares.source] * shares.factor)
        problem = compile_request(request, released.with_figures(used=remaining))
        placeable.update(
            (consumers[tree], tree)
            for tree in possible_trees(problem).tolist()
            if tree in consumers
        )
    placeable.update((name, tree) for part in passes[MAX_PASSES:] for tree, name in part.items())
    return placeable


def _passes(allocated: Mapping[str, Mapping[int, object]]) -> list[dict[int, str]]:
    """Return consumers by tree, one of each tree in each pass."""
    passes: list[dict[int, str]] = []
    counts: Counter[int] = Counter()
    for consumer, trees in allocated.items():
        for tree in trees:
            if counts[tree] == len(passes):
                passes.append({})
            passes[counts[tree]][tree] = consumer
            counts[tree] += 1
    return passes


def _allocated(
    fleet: Fleet, trees: Booleans
) -> tuple[dict[str, dict[int, Counter[str]]], dict[tuple[str, int], set[str]]]:
    """Return the amounts that consumers hold by tree, and the classes that grow through shares."""
    allocated: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    grows: dict[tuple[str, int], set[str]] = defaultdict(set)
    tree_of, is_included = fleet.tree.tolist(), trees.tolist()
    for place, (name, consumer, amount) in fleet.allocations.all():
        tree = tree_of[place]
        if is_included[tree]:
            allocated[consumer][tree][name] += amount
            if fleet.shares:
                grows[consumer, tree] |= _classes_that_share(fleet, fleet.number(place, name))
    return allocated, grows


def _classes_that_share(fleet: Fleet, inventory: int | None) -> set[str]:
    """Return the classes of which more is free through shares if an inventory is used less.

    A share of the same class, as of a cell in the CPUs of its host, changes no sum.
    """
    if inventory is None:
        return set()
    name, shares = fleet.class_of(inventory), fleet.shares
    targets = [target for target, _ in shares.of(inventory) if fleet.class_of(target) != name]
    classes = {fleet.class_of(source) for source, _ in shares.into(inventory)} - {name}
    for target in targets:
        classes.add(fleet.class_of(target))
        classes.update(fleet.class_of(source) for source, _ in shares.into(target))
    return classes


def _served_by(fleet: Fleet, tree: int) -> Iterator[int]:
    """Yield the trees that the pools of a tree serve, and the tree itself."""
    here = fleet.of_tree(tree)
    pools = fleet.pools.providers
    inside = pools[(pools >= here.start) & (pools < here.stop)]
    yield tree
    yield from np.flatnonzero(fleet.pools.linked_to(inside, len(fleet.hosts))).tolist()
