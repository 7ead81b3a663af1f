"""Pools: providers whose classes other trees may take.

A provider with the trait ``MISC_SHARES_VIA_AGGREGATE`` is a pool for every tree that has a provider
in one of the pool's aggregates. Only aggregates of pools are kept here, and as pairs, so that many
hosts and few pools cost one entry per host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import os_traits

from resource_objects.providers.columns import AggregateColumns
from resource_objects.search.arrays import Booleans, Integers, Places, coded, frozen

#: The trait of a pool.
SHARING: str = os_traits.MISC_SHARES_VIA_AGGREGATE


class Pools:
    """Which pools there are, and which trees are linked to them. False if there are none."""

    __slots__ = ("_aggregates", "_linked", "_members", "every", "providers", "trees")

    def __init__(
        self,
        providers: Integers,
        trees: Iterable[int],
        aggregates: int,
        members: tuple[Integers, Integers],
        linked: tuple[Integers, Integers],
    ) -> None:
        #: the pools, in order
        self.providers = providers
        #: trees whose root is a pool
        self.trees = frozenset(trees)
        #: the pools, as a set
        self.every = frozenset(providers.tolist())
        self._aggregates = aggregates
        self._members = members  # aggregates and their pools, sorted
        self._linked = linked  # trees and their aggregates, sorted

    def __bool__(self) -> bool:
        return bool(len(self.providers))

    def of_tree(self, tree: int) -> list[int]:
        """Return the pools that a tree is linked to, in order; its own may be among them."""
        trees, aggregates = self._linked
        start, end = trees.searchsorted((tree, tree + 1)).tolist()
        of, pools = self._members
        found: set[int] = set()
        for aggregate in aggregates[start:end].tolist():
            first, last = of.searchsorted((aggregate, aggregate + 1)).tolist()
            found.update(pools[first:last].tolist())
        return sorted(found)

    def linked_to(self, pools: Integers, trees: int) -> Booleans:
        """Return which trees are linked to some of these pools. Cost: linear in the links."""
        aggregates, members = self._members
        useful = np.zeros(self._aggregates, dtype=np.bool_)
        useful[aggregates[np.isin(members, pools)]] = True
        found = np.zeros(trees, dtype=np.bool_)
        found[self._linked[0][useful[self._linked[1]]]] = True
        return found


def read(
    given: AggregateColumns, place: Places, pools: Integers, tree: Integers, is_root: Booleans
) -> Pools:
    """Return the pools of columns.

    :param pools: the providers that have the trait themselves
    :param tree: of each provider
    """
    codes, aggregate = coded(given.aggregate)
    return _made(len(codes), aggregate, place.of(given.provider_id), pools, tree, is_root)


def of_members(
    members: Mapping[str, Integers], pools: Integers, tree: Integers, is_root: Booleans
) -> Pools:
    """Return the pools of aggregates, given who is in each, in the order of their names."""
    sizes = [len(some) for some in members.values()]
    aggregate = np.repeat(np.arange(len(members)), sizes)
    provider = np.concatenate((np.zeros(0, dtype=np.int64), *members.values()))
    return _made(len(members), aggregate, provider, pools, tree, is_root)


def _made(
    aggregates: int,
    aggregate: Integers,
    provider: Integers,
    pools: Integers,
    tree: Integers,
    is_root: Booleans,
) -> Pools:
    pools = np.sort(pools)
    of_pool = np.isin(provider, pools)
    shared = np.zeros(aggregates, dtype=np.bool_)
    shared[aggregate[of_pool]] = True
    linked = shared[aggregate]
    return Pools(
        frozen(pools),
        tree[pools[is_root[pools]]].tolist(),
        aggregates,
        _pairs(aggregate[of_pool], provider[of_pool]),
        _pairs(tree[provider[linked]], aggregate[linked]),
    )


def _pairs(first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """Return pairs in order, each once."""
    size = int(second.max()) + 1 if len(second) else 1
    found = np.unique(first * size + second)
    return frozen(found // size), frozen(found % size)
