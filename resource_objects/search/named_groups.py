"""The named groups of a request over a fleet: each is given by one provider.

Groups that ask for the same under the same conditions, and are in the same sets of
``same_subtree``, are one *kind* of group: who gives which of them does not matter. What a provider
meets by itself, its conditions and its room for each class, is one flag. Over the whole fleet at
once it is then seen which trees have enough providers for each kind, and enough of each class for
all; what remains is decided tree by tree (:mod:`~resource_objects.search.tree_solver`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.reasons import Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.base import Laying, Qualification, Semantics, met, pools_of
from resource_objects.search.fleet import ClassRows, Fleet

#: With more pools than these, how often each gives is not counted before a tree is looked at.
COUNTED_POOLS = 32
#: More sets of groups than any host holds; sums of it over all providers do not overflow.
_PLENTY = 1 << 40


@dataclasses.dataclass(frozen=True, eq=False)
class GroupKind:
    """Named groups that are alike."""

    fleet: Fleet
    group: RequestGroup  #: the first of them
    without_suffix: RequestGroup  #: ``group`` with the suffix ``_``; equal in equivalent sets
    suffixes: tuple[str, ...]
    classes: tuple[tuple[ClassRows, int], ...]  #: what each asks of which class
    names: tuple[str, ...]  #: of these classes
    conditions: tuple[Qualification, ...]
    met_own: Booleans  #: by provider: meets all of them, giving to its own tree
    met_pooled: Booleans  #: the same to another tree, as a pool
    own: Booleans  #: by provider: gives all of one group to its own tree
    pooled: Booleans  #: the same to another tree, as a pool
    subtrees: frozenset[int]  #: the sets of ``same_subtree`` that they are in

    @property
    def count(self) -> int:
        """How many groups there are of it."""
        return len(self.suffixes)

    @functools.cached_property
    def would(self) -> tuple[Booleans, Booleans]:
        """Who would give all of one group if nobody held anything, to its own tree and to others.

        By provider: who meets the conditions, keeps all classes, and enough of each.
        """
        able, every = np.ones(len(self.own), dtype=np.bool_), self.fleet.unheld_free
        for rows, amount in self.classes:
            has = np.zeros(len(able), dtype=np.bool_)
            most = every[rows.first : rows.first + len(rows.tree)]
            has[rows.provider[rows.could_give(amount, most) & ~rows.is_part]] = True
            able &= has
        return self.met_own & able, self.met_pooled & able

    def numbers(self, providers: Booleans) -> Integers:
        """Return the inventories of its classes that some providers keep, by number."""
        found = [rows.first + np.flatnonzero(providers[rows.provider]) for rows, _ in self.classes]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class Named:
    """The named groups of a request over a fleet. False if there are none."""

    fleet: Fleet
    rules: Semantics
    kinds: tuple[GroupKind, ...]
    isolates: bool  #: no two of one provider
    subtrees: int  #: how many sets of ``same_subtree`` there are

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def in_service(self) -> Booleans:
        """Return, by provider, whether it is in service, or may be allocated all the same."""
        found = np.ones(len(self.fleet.names), dtype=np.bool_)
        for one in self.kinds[0].conditions:
            if one.rule is Rule.DISABLED:
                found &= one.own
        return found

    @functools.cached_property
    def equivalent_before(self) -> tuple[int | None, ...]:
        """By set of ``same_subtree``, the last equivalent set before it, None for none.

        Sets are equivalent if they have the same groups apart from suffixes, and none of the groups
        is in another set too.
        """
        last: dict[Hashable, int] = {}
        found: list[int | None] = []
        for number in range(self.subtrees):
            kinds = [kind for kind in self.kinds if number in kind.subtrees]
            key: Hashable = number
            if all(len(kind.subtrees) == 1 for kind in kinds):
                key = frozenset((kind.without_suffix, kind.count) for kind in kinds)
            found.append(last.get(key))
            last[key] = number
        return tuple(found)

    @functools.cached_property
    def equivalent_kinds(self) -> tuple[int, ...]:
        """By number of a kind, the number of the equivalent kind in the first equivalent set.

        It is the kind's own number if no set before its set is equivalent.
        """
        numbers = list(range(len(self.kinds)))
        of_set: list[dict[RequestGroup, int]] = []
        for subtree, before in enumerate(self.equivalent_before):
            here = {k.without_suffix: n for n, k in enumerate(self.kinds) if subtree in k.subtrees}
            if before is not None:
                for group, number in here.items():
                    numbers[number] = here[group] = of_set[before][group]
            of_set.append(here)
        return tuple(numbers)

    def options(self, kind: GroupKind, tree: int) -> list[int]:
        """Return who gives one group of a kind to a tree by itself: its own, then pools."""
        here = self.fleet.of_tree(tree)
        found: list[int] = (np.flatnonzero(kind.own[here.start : here.stop]) + here.start).tolist()
        if kind.pooled.any():
            found += [p for p in pools_of(self.fleet, self.rules, tree) if kind.pooled[p]]
        return found

    def possible(self, beside: Mapping[str, int]) -> Booleans:
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

    def most(self, trees: int) -> Integers:
        """Return, by tree, how often all groups can be given at most, one time beside the other.

        Of each kind so often as its providers give one; of equivalent sets of ``same_subtree`` so
        often as providers that may be above the groups of one have these below them; of each class
        and amount so often as inventories have so much, for all groups together that ask for so
        much or more.
        """
        found = np.full(trees, MAX_AMOUNT)
        if any(kind.pooled.any() for kind in self.kinds):
            return found
        gives_of: list[Integers] = []
        for kind in self.kinds:
            each = np.where(kind.own, MAX_AMOUNT, 0)
            for rows, amount in kind.classes:
                each[rows.provider] = np.minimum(each[rows.provider], rows.free.clip(0) // amount)
            gives_of.append(each)
            if kind.classes:
                gives = np.flatnonzero(each)
                slots = np.zeros(trees, dtype=np.int64)
                np.add.at(slots, self.fleet.tree[gives], each[gives])
                np.minimum(found, slots // kind.count, out=found)
        np.minimum(found, self._most_of_sets(gives_of, trees), out=found)
        asked = [
            (name, rows, amount, kind.count)
            for kind in self.kinds
            for name, (rows, amount) in zip(kind.names, kind.classes, strict=True)
        ]
        for name, rows, least, _ in asked:
            slots = np.zeros(trees, dtype=np.int64)
            has = np.where(rows.is_part, 0, rows.free.clip(0) // least)
            np.add.at(slots, rows.tree, has)
            many = sum(n for other, _, amount, n in asked if other == name and amount >= least)
            np.minimum(found, slots // many, out=found)
        return found

    def _most_of_sets(self, gives_of: Sequence[Integers], trees: int) -> Integers:
        """Return, by tree, how often all sets of ``same_subtree`` can be given at most.

        :param gives_of: by kind and provider, how often it gives one group
        """
        found, first = np.full(trees, MAX_AMOUNT), list(range(self.subtrees))
        for subtree, before in enumerate(self.equivalent_before):
            first[subtree] = subtree if before is None else first[before]
        for subtree, count in Counter(first).items():
            numbers = [n for n, kind in enumerate(self.kinds) if subtree in kind.subtrees]
            below = [
                self._below(np.minimum(gives_of[n], _PLENTY)) // self.kinds[n].count
                for n in numbers
            ]
            each = np.minimum(np.minimum.reduce(below), _PLENTY)
            is_top = np.logical_or.reduce([gives_of[n] > 0 for n in numbers])
            sets = np.zeros(trees, dtype=np.int64)
            np.add.at(sets, self.fleet.tree, np.where(is_top, each, 0))
            np.minimum(found, sets // count, out=found)
        return found

    def _below(self, figures: Integers) -> Integers:
        """Return, by provider, the sum of a figure over itself and all below it."""
        found, at = figures.copy(), np.arange(len(figures))
        while True:
            above = self.fleet.parent[at]
            has_more = above != at
            if not has_more.any():
                return found
            np.add.at(found, above[has_more], figures[has_more])
            at = above

    def _slots(self, kind: GroupKind) -> Integers:
        """Return, by tree, how many groups of a kind could be given if there were no others."""
        each = self.each(kind)
        fleet = self.fleet
        found = np.zeros(len(fleet.hosts), dtype=np.int64)
        np.add.at(found, fleet.tree[kind.own], each[kind.own])
        return found + self._of_pools(np.where(kind.pooled, each, 0))

    def each(self, kind: GroupKind) -> Integers:
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


def lay_groups(fleet: Fleet, request: Request, laying: Laying, rules: Semantics) -> Named:
    """Return the named groups of a request laid over a fleet. Cost: as for the unnamed one.

    :raises InvalidInput: for an amount that is not kept as one count
    :raises NotFound: for a tree that is not there
    """
    kinds = tuple(_kind(fleet, *groups, laying) for groups in _alike(request))
    return Named(fleet, rules, kinds, request.isolates, len(request.same_subtree))


def _alike(request: Request) -> Iterator[tuple[RequestGroup, list[RequestGroup], frozenset[int]]]:
    """Yield the groups that are alike, with the sets of ``same_subtree`` that they are in."""
    found: dict[tuple[RequestGroup, frozenset[int]], list[RequestGroup]] = {}
    for group in request.named:
        subtrees = frozenset(
            number for number, some in enumerate(request.same_subtree) if group.suffix in some
        )
        found.setdefault((group.replace(suffix="_"), subtrees), []).append(group)
    for (without_suffix, subtrees), groups in found.items():
        yield without_suffix, groups, subtrees


def _kind(
    fleet: Fleet,
    without_suffix: RequestGroup,
    groups: list[RequestGroup],
    subtrees: frozenset[int],
    laying: Laying,
) -> GroupKind:
    group = groups[0]
    conditions = list(laying.of_group(group).each)
    counts = list(_counts(group))
    for name, _ in counts:
        conditions += laying.of_class(group, name)
    met_own, met_pooled = own, pooled = met(conditions, len(fleet.names))
    classes = tuple((fleet.rows(name), amount) for name, amount in counts)
    for rows, amount in classes:
        gives = giving(rows, amount)
        able = np.zeros(len(fleet.names), dtype=np.bool_)
        able[rows.provider[gives]] = True
        own, pooled = own & able, pooled & able
    is_pool = np.zeros(len(fleet.names), dtype=np.bool_)
    is_pool[fleet.pools.providers] = True
    return GroupKind(
        fleet,
        group,
        without_suffix,
        tuple(one.suffix for one in groups),
        classes,
        tuple(name for name, _ in counts),
        tuple(conditions),
        met_own,
        met_pooled & is_pool,
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
            raise exceptions.InvalidInput(
                "kind of amount",
                f"group {group.suffix}: {name}",
                amount,
                "one that is kept as one count",
            )
        yield name, records[0].amount
