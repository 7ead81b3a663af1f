"""The named groups of a request over a fleet: each is given by one provider.

Groups that ask for the same under the same conditions, and are in the same sets of
``same_subtree``, are one *kind* of group: who gives which of them does not matter. What a provider
meets by itself, its conditions and its room for each class, is one flag. Over the whole fleet at
once it is then seen which trees have enough providers for each kind, and enough of each class for
all; what remains is decided tree by tree (:mod:`.assigning`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from resource_objects import exceptions
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions import Condition, Laying, met
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.semantics import Semantics

#: With more pools than these, how often each gives is not counted before a tree is looked at.
COUNTED_POOLS = 32


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Named groups that are alike."""

    group: RequestGroup  #: the first of them
    suffixes: tuple[str, ...]
    classes: tuple[tuple[ClassRows, int], ...]  #: what each asks of which class
    names: tuple[str, ...]  #: of these classes
    conditions: tuple[Condition, ...]
    own: Booleans  #: by provider: gives all of one group to its own tree
    pooled: Booleans  #: the same to another tree, as a pool
    subtrees: frozenset[int]  #: the sets of ``same_subtree`` that they are in

    @property
    def count(self) -> int:
        """How many groups there are of it."""
        return len(self.suffixes)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Named:
    """The named groups of a request over a fleet. False if there are none."""

    fleet: Fleet
    rules: Semantics
    kinds: tuple[Kind, ...]
    isolates: bool  #: no two of one provider
    subtrees: int  #: how many sets of ``same_subtree`` there are

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def options(self, kind: Kind, tree: int) -> list[int]:
        """Return who gives one group of a kind to a tree by itself: its own, then pools."""
        here = self.fleet.of_tree(tree)
        found: list[int] = (np.flatnonzero(kind.own[here.start : here.stop]) + here.start).tolist()
        if kind.pooled.any():
            found += [p for p in pools_of(self.fleet, self.rules, tree) if kind.pooled[p]]
        return found

    def possible(self, beside: dict[str, int]) -> Booleans:
        """Return which trees may give them all: no tree that can is left out.

        :param beside: what is asked of each class without a name
        """
        found = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        for kind in self.kinds:
            found &= self._slots(kind) >= kind.count
        for name, amount in self._demand().items():
            found &= self._room(name) >= amount + beside.get(name, 0)
        return found

    def _demand(self) -> dict[str, int]:
        """Return how much all named groups ask of each class."""
        found: dict[str, int] = {}
        for kind in self.kinds:
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                found[name] = found.get(name, 0) + amount * kind.count
        return found

    def _slots(self, kind: Kind) -> Integers:
        """Return, by tree, how many groups of a kind could be given if there were no others."""
        each = self._each(kind)
        fleet = self.fleet
        found = np.zeros(len(fleet.hosts), dtype=np.int64)
        np.add.at(found, fleet.tree[kind.own], each[kind.own])
        return found + self._of_pools(np.where(kind.pooled, each, 0))

    def _each(self, kind: Kind) -> Integers:
        """Return, by provider, how many groups of a kind it could give, no more than there are."""
        most = 1 if self.isolates else kind.count
        found = np.full(len(self.fleet.names), most)
        if most > 1:
            for rows, amount in kind.classes:
                times = np.minimum(rows.free, rows.max_unit).clip(0) // amount
                found[rows.provider] = np.minimum(found[rows.provider], times)
        return found

    def _room(self, name: str) -> Integers:
        """Return, by tree, how much it and its pools have left of a class, at most."""
        rows, fleet = self.fleet.rows(name), self.fleet
        free = np.where(rows.is_part, 0, rows.free.clip(0))
        found = np.zeros(len(fleet.hosts), dtype=np.int64)
        np.add.at(found, rows.tree, free)
        of_pools = np.zeros(len(fleet.names), dtype=np.int64)
        is_pool = np.isin(rows.provider, fleet.pools.providers)
        of_pools[rows.provider[is_pool]] = free[is_pool]
        return found + self._of_pools(of_pools)

    def _of_pools(self, figures: Integers) -> Integers:
        """Return, by tree, the sum of a figure over the pools that it is linked to."""
        pools = self.fleet.pools
        trees = len(self.fleet.hosts)
        having = pools.providers[figures[pools.providers] > 0]
        if len(having) > COUNTED_POOLS:
            return np.where(pools.linked_to(having, trees), np.iinfo(np.int64).max // 2, 0)
        found = np.zeros(trees, dtype=np.int64)
        for pool in having.tolist():
            found += np.where(pools.linked_to(np.array([pool]), trees), figures[pool], 0)
        return found


def pools_of(fleet: Fleet, rules: Semantics, tree: int) -> list[int]:
    """Return the pools of other trees that may give to a tree; by our rules none to a pool's."""
    if rules.host_gives and tree in fleet.pools.trees:
        return []
    return [pool for pool in fleet.pools.of_tree(tree) if int(fleet.tree[pool]) != tree]


def lay(fleet: Fleet, request: Request, laying: Laying, rules: Semantics) -> Named:
    """Return the named groups of a request laid over a fleet. Cost: as for the unnamed one.

    :raises WrongAmountKind: for an amount that is not kept as one count
    :raises ProviderNotFound: for a tree that is not there
    """
    kinds = tuple(_kind(fleet, groups, subtrees, laying) for groups, subtrees in _alike(request))
    return Named(fleet, rules, kinds, request.isolates, len(request.same_subtree))


def _alike(request: Request) -> Iterator[tuple[list[RequestGroup], frozenset[int]]]:
    """Yield the groups that are alike, with the sets of ``same_subtree`` that they are in."""
    found: dict[tuple[RequestGroup, frozenset[int]], list[RequestGroup]] = {}
    for group in request.named:
        subtrees = frozenset(
            number for number, some in enumerate(request.same_subtree) if group.suffix in some
        )
        found.setdefault((group.replace(suffix="_"), subtrees), []).append(group)
    for (_, subtrees), groups in found.items():
        yield groups, subtrees


def _kind(
    fleet: Fleet, groups: list[RequestGroup], subtrees: frozenset[int], laying: Laying
) -> Kind:
    group = groups[0]
    conditions = list(laying.of_group(group).each)
    counts = list(_counts(group))
    for name, _ in counts:
        conditions += laying.of_class(group, name)
    own, pooled = met(conditions, len(fleet.names))
    classes = tuple((fleet.rows(name), amount) for name, amount in counts)
    for rows, amount in classes:
        gives = giving(rows, amount)
        able = np.zeros(len(fleet.names), dtype=np.bool_)
        able[rows.provider[gives]] = True
        own &= able
        pooled &= able
    is_pool = np.zeros(len(fleet.names), dtype=np.bool_)
    is_pool[fleet.pools.providers] = True
    return Kind(
        group,
        tuple(one.suffix for one in groups),
        classes,
        tuple(name for name, _ in counts),
        tuple(conditions),
        own,
        pooled & is_pool,
        subtrees,
    )


def giving(rows: ClassRows, amount: int) -> Booleans:
    """Return which inventories of a class give so much by themselves."""
    found: Booleans = (
        (rows.low <= amount)
        & (amount <= rows.high)
        & (amount % rows.step_size == 0)
        & ~rows.is_part
    )
    return found


def _counts(group: RequestGroup) -> Iterable[tuple[str, int]]:
    """Yield how much a group asks of each class."""
    for name, amount in group.resources.by_name():
        records = amount.to_records(name)
        if len(records) != 1 or records[0].resource_class != name or records[0].units:
            raise exceptions.WrongAmountKind(
                f"group {group.suffix}: {name}", amount, "one that is kept as one count"
            )
        yield name, records[0].amount
