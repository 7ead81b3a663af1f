"""The named groups of a request over a fleet.

One provider provides each named group. Groups with the same amounts and conditions, in the same
sets of ``same_subtree``, are one *kind*: which of them has which provider does not matter. The
conditions and the capacity for one group are flags by provider, so arrays exclude the trees that
have too few providers of a kind, or too little of a class for all groups. The search decides the
other trees (:mod:`~resource_objects.search.tree_solver`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.reasons import Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.arrays import Booleans, Integers, sums_by
from resource_objects.search.eligibility import (
    OWN,
    Eligibility,
    EligibilityCompiler,
    Semantics,
    eligible_for,
    pools_of,
)
from resource_objects.search.fleet import ClassRows, Fleet

#: With more pools than these, their capacity is not summed before a tree is searched.
COUNTED_POOLS = 32
#: More groups than any request has: sums of it over all providers do not overflow.
_UNBOUNDED = 1 << 40


class ClassAmount(NamedTuple):
    """The amount of a class that one provider provides to a group."""

    name: str
    rows: ClassRows
    amount: int

    @property
    def sources(self) -> Booleans:
        """By inventory of the class, whether it can provide the amount."""
        return self.rows.provides(self.amount) & ~self.rows.is_part


@dataclasses.dataclass(frozen=True, eq=False)
class GroupKind:
    """Named groups that are alike. Flags are by role and provider (:class:`.Eligibility`)."""

    fleet: Fleet
    group: RequestGroup  #: the first of them
    suffixes: tuple[str, ...]
    amounts: tuple[ClassAmount, ...]  #: the amount of each class
    conditions: tuple[Eligibility, ...]
    eligible: Booleans  #: meets all conditions
    provides: Booleans  #: meets them and has capacity for one group
    subtrees: frozenset[int]  #: the sets of ``same_subtree`` that they are in

    @property
    def names(self) -> tuple[str, ...]:
        """The classes."""
        return tuple([name for name, _, _ in self.amounts])

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.suffixes)

    @property
    def provides_own(self) -> Booleans:
        """By provider, whether it provides one group to its own tree."""
        flags: Booleans = self.provides[OWN]
        return flags

    @functools.cached_property
    def provides_as_pool(self) -> Booleans:
        """By provider, whether it provides one group to other trees."""
        flags: Booleans = self.provides[-1] & self.fleet.is_pool
        return flags

    @functools.cached_property
    def times(self) -> Integers:
        """By provider, the maximum number of these groups if there are no others."""
        result = np.full(len(self.fleet.names), self.count)
        if self.count > 1:
            for _, rows, amount in self.amounts:
                fits = np.minimum(rows.free, rows.max_unit).clip(0) // amount
                result[rows.provider] = np.minimum(result[rows.provider], fits)
        return result

    @functools.cached_property
    def would_provide(self) -> Booleans:
        """The providers of one group if nothing were allocated."""
        able, free = self.eligible.copy(), self.fleet.released.inventories.free
        for _, rows, amount in self.amounts:
            is_enough = rows.provides(amount, free[rows.first : rows.first + len(rows.tree)])
            able &= having(self.fleet, rows, is_enough & ~rows.is_part)
        return able


@dataclasses.dataclass(frozen=True, eq=False)
class NamedGroups:
    """The named groups of a request over a fleet. False if there are none."""

    fleet: Fleet
    rules: Semantics
    kinds: tuple[GroupKind, ...]
    isolates: bool  #: no two groups of one provider
    subtrees: int  #: the number of sets of ``same_subtree``

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def enabled(self) -> Booleans:
        """Return, by provider, whether it is enabled, or allocatable although it is disabled."""
        result = np.ones(len(self.fleet.names), dtype=np.bool_)
        for condition in self.kinds[0].conditions:
            if condition.rule is Rule.DISABLED:
                result &= condition.eligible[OWN]
        return result

    @functools.cached_property
    def equivalent_sets(self) -> tuple[int, ...]:
        """By set of ``same_subtree``, the number of the first equivalent set.

        Sets are equivalent if they have the same groups apart from suffixes, and none of the groups
        is in another set too.
        """
        first: dict[Hashable, int] = {}
        result = []
        for number in range(self.subtrees):
            kinds = [kind for kind in self.kinds if number in kind.subtrees]
            is_separate = all(len(kind.subtrees) == 1 for kind in kinds)
            groups = frozenset((kind.group.definition, kind.count) for kind in kinds)
            result.append(first.setdefault(groups, number) if is_separate else number)
        return tuple(result)

    @functools.cached_property
    def equivalent_kinds(self) -> tuple[int, ...]:
        """By number of a kind, the number of the first kind of equal groups in equivalent sets."""
        first, sets = dict[Hashable, int](), self.equivalent_sets
        return tuple(
            first.setdefault((kind.group.definition, *(sets[n] for n in kind.subtrees)), number)
            for number, kind in enumerate(self.kinds)
        )

    def options(self, kind: GroupKind, tree: int) -> list[int]:
        """Return the providers of one group of a kind to a tree: its own, then pools."""
        own = self.fleet.of_tree(tree)
        provides = kind.provides_own[own.start : own.stop]
        providers: list[int] = (np.flatnonzero(provides) + own.start).tolist()
        if (is_pool := kind.provides_as_pool).any():
            providers += [pool for pool in pools_of(self.fleet, self.rules, tree) if is_pool[pool]]
        return providers

    # --- bounds by arrays ---

    def possible(self, unnamed: Mapping[str, int]) -> Booleans:
        """Return which trees may provide all groups: no tree that can is excluded.

        :param unnamed: the amounts of the unnamed group, by class
        """
        result = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        amounts = Counter(unnamed)
        for kind in self.kinds:
            times, own = self.times_of(kind), np.flatnonzero(kind.provides_own)
            pools = np.flatnonzero(kind.provides_as_pool) if self.fleet.has_pools else own[:0]
            sums = self._by_tree(self.fleet.tree[own], times[own], pools, times[pools])
            result &= sums >= kind.count
            for name, _, amount in kind.amounts:
                amounts[name] += amount * kind.count
        for name in dict.fromkeys(name for kind in self.kinds for name in kind.names):
            rows = self.fleet.rows(name)
            free = np.where(rows.is_part, 0, rows.free.clip(0))
            pools = rows.tree[:0]
            if self.fleet.has_pools:
                pools = np.flatnonzero(self.fleet.is_pool[rows.provider])
            sums = self._by_tree(rows.tree, free, rows.provider[pools], free[pools])
            result &= sums >= amounts[name]
        return result

    def times_of(self, kind: GroupKind) -> Integers:
        """Return, by provider, the maximum number of groups of a kind, up to all of them."""
        return np.ones(len(self.fleet.names), np.int64) if self.isolates else kind.times

    def _by_tree(
        self, tree: Integers, figures: Integers, pools: Integers, of_pools: Integers
    ) -> Integers:
        """Return, by tree, the sum of figures, and of those of the pools that it is linked to.

        :param tree: of each figure
        :param of_pools: the figures of ``pools``
        """
        fleet, trees = self.fleet, len(self.fleet.hosts)
        result = sums_by(figures, tree, trees)
        pools, of_pools = pools[of_pools > 0], of_pools[of_pools > 0]
        if len(pools) > COUNTED_POOLS:
            return np.where(
                fleet.pools.linked_to(pools, trees), np.iinfo(np.int64).max // 2, result
            )
        for number, figure in enumerate(of_pools.tolist()):
            result[fleet.pools.linked_to(pools[number : number + 1], trees)] += figure
        return result

    def upper_bounds(self, trees: int) -> Integers:
        """Return, by tree, an upper bound of how many requests have their groups at once.

        The least over three bounds: the capacity of the providers of each kind; the providers that
        may be above the groups of equivalent sets of ``same_subtree``; for each class and amount,
        the capacity for all groups with this amount or more.
        """
        result = np.full(trees, MAX_AMOUNT)
        if any(kind.provides_as_pool.any() for kind in self.kinds):
            return result
        slots: list[Integers] = []  # by kind and provider, the capacity in groups
        for kind in self.kinds:
            times = np.where(kind.provides_own, MAX_AMOUNT, 0)
            for _, rows, amount in kind.amounts:
                fits = rows.free.clip(0) // amount
                times[rows.provider] = np.minimum(times[rows.provider], fits)
            slots.append(times)
            if kind.amounts:
                able = np.flatnonzero(times)
                total = sums_by(times[able], self.fleet.tree[able], trees)
                np.minimum(result, total // kind.count, out=result)
        np.minimum(result, self._most_sets(slots, trees), out=result)
        amounts = [
            (name, rows, amount, kind.count)
            for kind in self.kinds
            for name, rows, amount in kind.amounts
        ]
        for name, rows, least, _ in amounts:
            has = np.where(rows.is_part, 0, rows.free.clip(0) // least)
            groups = sum(n for other, _, amount, n in amounts if other == name and amount >= least)
            np.minimum(result, sums_by(has, rows.tree, trees) // groups, out=result)
        return result

    def _most_sets(self, slots: Sequence[Integers], trees: int) -> Integers:
        """Return, by tree, an upper bound of how many requests have their sets at once."""
        result = np.full(trees, MAX_AMOUNT)
        for subtree, count in Counter(self.equivalent_sets).items():
            numbers = [n for n, kind in enumerate(self.kinds) if subtree in kind.subtrees]
            sets = np.full(len(self.fleet.names), _UNBOUNDED)
            for n in numbers:
                below = self._sums_below(np.minimum(slots[n], _UNBOUNDED))
                np.minimum(sets, below // self.kinds[n].count, out=sets)
            is_top = np.logical_or.reduce([slots[n] > 0 for n in numbers])
            total = sums_by(np.where(is_top, sets, 0), self.fleet.tree, trees)
            np.minimum(result, total // count, out=result)
        return result

    def _sums_below(self, figures: Integers) -> Integers:
        """Return, by provider, the sum of a figure over itself and all providers below it."""
        result, at = figures.copy(), np.arange(len(figures))
        while True:
            above = self.fleet.parent[at]
            has_more = above != at
            if not has_more.any():
                return result
            np.add.at(result, above[has_more], figures[has_more])
            at = above


def having(fleet: Fleet, rows: ClassRows, inventories: Booleans) -> Booleans:
    """Return, by provider, whether it has one of some inventories of a class."""
    flags = np.zeros(len(fleet.names), dtype=np.bool_)
    flags[rows.provider[inventories]] = True
    return flags


def compile_groups(
    fleet: Fleet, request: Request, compiler: EligibilityCompiler, rules: Semantics
) -> NamedGroups:
    """Return the named groups of a request over a fleet. Cost: as for the unnamed group.

    :raises InvalidInput: for an amount that is not stored as one count
    :raises NotFound: for a tree that does not exist
    """
    alike: dict[tuple[Any, frozenset[int]], list[RequestGroup]] = {}
    for group in request.named:
        sets = enumerate(request.same_subtree)
        subtrees = frozenset(number for number, suffixes in sets if group.suffix in suffixes)
        alike.setdefault((group.definition, subtrees), []).append(group)
    kinds = [_kind(fleet, groups, subtrees, compiler) for (_, subtrees), groups in alike.items()]
    return NamedGroups(fleet, rules, tuple(kinds), request.isolates, len(request.same_subtree))


def _kind(
    fleet: Fleet,
    groups: Sequence[RequestGroup],
    subtrees: frozenset[int],
    compiler: EligibilityCompiler,
) -> GroupKind:
    conditions = list(compiler.of_group(groups[0]).of_each)
    amounts = [ClassAmount(name, fleet.rows(name), n) for name, n in _counts(groups[0])]
    for name, _, _ in amounts:
        conditions += compiler.of_class(groups[0], name)
    eligible = eligible_for(fleet, conditions)
    provides = eligible.copy()
    for amount in amounts:
        provides &= having(fleet, amount.rows, amount.sources)
    return GroupKind(
        fleet=fleet,
        group=groups[0],
        suffixes=tuple(group.suffix for group in groups),
        amounts=tuple(amounts),
        conditions=tuple(conditions),
        eligible=eligible,
        provides=provides,
        subtrees=subtrees,
    )


def _counts(group: RequestGroup) -> Iterator[tuple[str, int]]:
    """Yield the amount of each class of a group."""
    counts = {
        count.resource_class: count.amount
        for count in group.counts
        if count.requested is not None and not count.units
    }
    for name, amount in group.resources.by_name():
        if name not in counts:
            raise exceptions.InvalidInput(
                "kind of amount",
                f"group {group.suffix}: {name}",
                amount,
                "one that is stored as one count",
            )
        yield name, counts[name]
