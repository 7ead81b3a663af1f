"""The named groups of a request over a fleet: each is given by one provider.

Groups that ask for the same under the same conditions, and are in the same sets of
``same_subtree``, are one *kind* of group: who gives which of them does not matter. What a provider
meets by itself, its conditions and its room for each class, is one flag. Over the whole fleet at
once it is then seen which trees have enough providers for each kind, and enough of each class for
all; what remains is decided tree by tree (:mod:`~resource_objects.search.assignment`).

Why they cannot be given is told kind by kind first, class by class: is the class there, does
somebody who keeps it meet the conditions, do those have room; then whether one of them gives all
classes. If each could be given, then what keeps them from it together: too few providers for
isolated groups, too little of a class for all of them, nobody above the others. That names who is
at the providers that would do, were nobody there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources.matching import matched
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.conditions.amounts import Shortage, Source, TreeDemand
from resource_objects.search.conditions.base import (
    Cut,
    Laying,
    Partial,
    Qualification,
    Semantics,
    Telling,
    Told,
    excluded,
    in_words,
    met,
    pools_of,
    sums,
    told_unmet,
)
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


def _of_both(own: Booleans, pooled: Booleans, providers: Integers, count: int) -> Booleans:
    """Return flags of some providers: the first so many give to their own tree, the rest as pools.

    :param own: by provider, and so is ``pooled``
    """
    return np.concatenate((own[providers[:count]], pooled[providers[count:]]))


def _keeping(rows: ClassRows, providers: int) -> Booleans:
    """Return who keeps a class, not as a part of what another has."""
    found = np.zeros(providers, dtype=np.bool_)
    found[rows.provider[~rows.is_part]] = True
    return found


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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The named groups are given, each by one provider, beside what is asked without a name."""

    named: Named
    is_host: Booleans  #: by tree: may be found
    beside: Mapping[str, int]  #: how much is asked of each class without a name
    decide: Callable[[Named, int], bool]  #: whether some groups can be given, or it takes too long
    is_all: bool = False  #: nothing is asked beside them

    rule = Rule.GROUPS

    def mask(self) -> Booleans:
        """Return which hosts may give them all."""
        return self.named.possible(self.beside)

    def cuts(self) -> Iterator[Cut]:
        """Yield, kind by kind, what is there, each condition, what gives enough; then all."""
        for kind in self.named.kinds:
            yield from self._of_kind(kind)
        yield Cut(self.mask(), self.rule)

    def _of_kind(self, kind: GroupKind) -> Iterator[Cut]:
        fleet, group = self.named.fleet, _told([kind])
        own, pooled = np.ones((2, len(fleet.names)), dtype=np.bool_)
        for number, (name, (rows, amount)) in enumerate(
            zip(kind.names, kind.classes, strict=True), 1
        ):
            keeps = _keeping(rows, len(own))
            own, pooled = own & keeps, pooled & keeps
            found, words = self._of_providers(own, pooled), " and ".join(kind.names[:number])
            yield Cut(found, Rule.NO_INVENTORY, group, name, words=words, amount=amount, rows=rows)
        said = [(one.rule, one.label) for one in kind.conditions]
        of = kind.names[0] if len(kind.names) == 1 else None
        classes = " and ".join(kind.names) or "provider"
        for number, one in enumerate(kind.conditions, 1):
            own, pooled = own & one.own, pooled & one.pooled
            words = f"{classes} {in_words(said[:number])}"
            found = self._of_providers(own, pooled)
            yield Cut(found, one.rule, group, of, one.label, words)
        given = dict.fromkeys(kind.names, "")
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            able = np.zeros(len(own), dtype=np.bool_)
            able[rows.provider[giving(rows, amount)]] = True
            may = own[rows.provider], pooled[rows.provider]
            own, pooled = own & able, pooled & able
            beside = " and ".join(one + given[one] for one in given if one != name)
            given[name] = f"={amount}"
            parts = [f"beside {beside}" if beside else "", in_words(said)]
            yield Cut(
                self._of_providers(own, pooled),
                Rule.CAPACITY,
                group,
                name,
                words=" ".join(filter(None, parts)),
                amount=amount,
                rows=rows,
                may=may,
            )

    def _of_providers(self, own: Booleans, pooled: Booleans) -> Booleans:
        """Return the trees of some providers, and those linked to pools among others."""
        fleet = self.named.fleet
        found = np.zeros(len(fleet.hosts), dtype=np.bool_)
        found[fleet.tree[own]] = True
        pools = fleet.pools.providers
        pools = pools[pooled[pools]]
        return found | fleet.pools.linked_to(pools, len(found)) if len(pools) else found

    def holds(self, tree: int) -> bool:
        """Return whether they could be given if nothing else were asked for."""
        return self.decide(self.named, tree)

    def reasons(self, host: Partial) -> list[Reason]:
        """Return what stands against them; if it is nothing, that not all can be given at once.

        Cost: some 50 microseconds for each kind of group.
        """
        findings = _GroupFindings(self, host.tree)
        found = list(dict.fromkeys(findings.reasons()))
        if found or any(host.told.values()):
            return found
        if not self.is_host[host.tree] or self._is_of_pools(host.tree):
            found = list(self._not_own(self.named.fleet.hosts[host.tree]))
        return found or [findings.all_at_once()]

    def tell(self, trees: Booleans) -> Telling:
        """Return :meth:`reasons` of some trees, but that not all can be given at once.

        :param trees: of which none has shares, or is linked to pools
        """
        return _GroupsTold(self, trees).telling()

    def _is_of_pools(self, tree: int) -> bool:
        """Return whether they could be given, but by nobody of the tree itself."""
        rules = self.named.rules
        if not (self.is_all and rules.host_gives and pools_of(self.named.fleet, rules, tree)):
            return False
        return self.holds(tree)

    def _not_own(self, host: str) -> Iterator[Reason]:
        """Yield the reasons for a host of which nobody but pools could give the groups."""
        for kind in self.named.kinds:
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                yield Reason(Rule.NOT_OWN, amount, 0, 0, name, host, group=_told([kind]))


def _suffixes(kinds: Sequence[GroupKind]) -> tuple[str, ...]:
    return tuple(suffix for kind in kinds for suffix in kind.suffixes)


def _told(kinds: Sequence[GroupKind]) -> str:
    return ", ".join(_suffixes(kinds))


def _sharing(name: str, kinds: Sequence[GroupKind], beside: Mapping[str, int]) -> tuple[str, ...]:
    """Return the parts of a request that need a class: groups, "" for what is beside them."""
    return (*([""] if name in beside else []), *_suffixes(kinds))


class _GroupFindings:
    """The findings of one tree while they are made."""

    def __init__(self, groups: Groups, tree: int) -> None:
        self._named = named = groups.named
        self._fleet = fleet = named.fleet
        self._tree = tree
        self._beside = groups.beside
        self._is_all = groups.is_all
        self._decide = groups.decide
        self._host = fleet.hosts[tree]
        own, pools = fleet.of_tree(tree), pools_of(fleet, named.rules, tree)
        self._providers = np.array([*own, *pools], dtype=np.int64)
        self._pools = np.array(sorted(pools), dtype=np.int64)
        self._own = len(own)

    def reasons(self) -> list[Reason]:
        found = [reason for kind in self._named.kinds for reason in self._of_kind(kind)]
        return found or self._of_all()

    def all_at_once(self) -> Reason:
        """Return that all groups, with the request without a group, cannot be given at once."""
        found = self._at_once(Rule.GROUPS, self._named.kinds)
        if self._is_all:
            return found
        suffixes = _suffixes(self._named.kinds)
        return dataclasses.replace(found, group=None, demands=("", *suffixes))

    # --- one kind by itself ---

    def _of_kind(self, kind: GroupKind) -> Iterator[Reason]:
        if self._named.options(kind, self._tree):
            return
        classes = list(zip(kind.names, kind.classes, strict=True))
        found = [one for name, each in classes for one in self._of_class(kind, name, *each)]
        if not classes:
            found = self._barred(kind, "provider", 1, self._providers, self._own)
        if not found:
            found = [self._one_provider(kind)]
        group = _told([kind])
        yield from (dataclasses.replace(reason, group=group) for reason in found)

    def _of_class(
        self, kind: GroupKind, name: str, rows: ClassRows, amount: int
    ) -> Iterable[Reason]:
        """Return why nobody who meets the conditions gives a class; nothing if somebody does."""
        here, own = self._entries(rows)
        if not len(here):
            return [Reason(Rule.NO_INVENTORY, amount, 0, 0, name, self._host)]
        some = rows.provider[here]
        may = _of_both(kind.met_own, kind.met_pooled, some, own)
        if not may.any():
            return self._barred(kind, name, amount, some, own)
        if giving(rows, amount)[here[may]].any():
            return []
        return self._short(name, rows, amount, here[may], int(np.count_nonzero(may[:own])))

    def _entries(self, rows: ClassRows) -> tuple[Integers, int]:
        """Return who keeps a class, not as a part: of the tree, then pools; and how many of it."""
        here = rows.of_tree(self._tree)
        own = np.arange(here.start, here.stop)
        at = np.minimum(rows.provider.searchsorted(self._pools), max(0, len(rows.provider) - 1))
        pooled = at[rows.provider[at] == self._pools] if len(rows.provider) else at[:0]
        own, pooled = own[~rows.is_part[own]], pooled[~rows.is_part[pooled]]
        return np.concatenate((own, pooled)), len(own)

    def _short(
        self, name: str, rows: ClassRows, amount: int, entries: Integers, own: int
    ) -> list[Reason]:
        """Return why none of those who may gives so much of a class."""
        columns = [column[entries].tolist() for column in (rows.low, rows.high, rows.step_size)]
        figures = zip(*columns, strict=True)
        sources = tuple(Source(low, high, step, False) for low, high, step in figures)
        numbers = (entries + rows.first).tolist()
        demand = TreeDemand(amount, numbers, sources, (1 << len(numbers)) - 1, (), own=own)
        return Shortage(self._fleet, self._host, name, demand, names_one=True).reasons()

    def _barred(
        self, kind: GroupKind, name: str, amount: int, providers: Integers, own: int
    ) -> list[Reason]:
        """Return the conditions by which none of some providers may give.

        :param own: so many of them, the first, are of the tree itself
        """
        flags = [~_of_both(one.own, one.pooled, providers, own) for one in kind.conditions]
        barriers = [(one.rule, one.label) for one in kind.conditions]
        return excluded(barriers, flags, amount, name, self._host)

    def _one_provider(self, kind: GroupKind) -> Reason:
        """Return that each class is given by somebody, and all by nobody."""
        gives: dict[int, int] = {}
        for rows, amount in kind.classes:
            here, own = self._entries(rows)
            able = giving(rows, amount)[here]
            some = rows.provider[here]
            able &= _of_both(kind.met_own, kind.met_pooled, some, own)
            for place in some[able].tolist():
                gives[place] = gives.get(place, 0) + 1
        count, most = len(kind.classes), max(gives.values())
        holders = self._there([kind])
        return Reason(Rule.ONE_PROVIDER, count, most, 0, where=self._host, holders=holders)

    def _there(
        self, kinds: Sequence[GroupKind], *, but_able: bool = False
    ) -> tuple[tuple[str, int], ...]:
        """Return who is at providers that would give, were nobody there, and at how many.

        :param but_able: whether those do not count that give now
        """
        found: dict[int, None] = {}
        for kind in kinds:
            for rows, _ in kind.classes:
                here, own = self._entries(rows)
                some = rows.provider[here]
                may = _of_both(*kind.would, some, own)
                if but_able:
                    may &= ~_of_both(kind.own, kind.pooled, some, own)
                found.update(dict.fromkeys((here[may] + rows.first).tolist()))
        return self._fleet.there(found)

    # --- all together ---

    def _of_all(self) -> list[Reason]:
        found = list(self._too_few())
        found += [] if found else list(self._too_little())
        return found or list(self._apart())

    def _too_few(self) -> Iterator[Reason]:
        """Yield that isolated groups have too few providers."""
        if not self._named.isolates:
            return
        kinds = self._named.kinds
        options = [self._named.options(kind, self._tree) for kind in kinds]
        place = {p: at for at, p in enumerate(sorted({p for some in options for p in some}))}
        masks = [sum(1 << place[p] for p in some) for some in options]
        counts = [kind.count for kind in kinds]
        most = matched(zip(counts, masks, strict=True))
        if most < sum(counts):
            holders, group = self._there(kinds, but_able=True), _told(kinds)
            yield Reason(
                Rule.ISOLATED, sum(counts), most, 0, where=self._host, holders=holders, group=group
            )

    def _too_little(self) -> Iterator[Reason]:
        """Yield the classes of which there is too little for all groups, named or not."""
        demand = dict(self._beside)
        kinds: dict[str, list[GroupKind]] = {}
        for kind in self._named.kinds:
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                demand[name] = demand.get(name, 0) + amount * kind.count
                kinds.setdefault(name, []).append(kind)
        for name, some in kinds.items():
            rows = self._fleet.rows(name)
            here, _ = self._entries(rows)
            here = here[self._named.in_service()[rows.provider[here]]]
            capacity = int(rows.capacity[here].sum())
            free = int((rows.capacity[here] - rows.used[here]).clip(0).sum())
            if free < demand[name]:
                numbers = (here + rows.first).tolist()
                yield Reason(
                    self._fleet.rule_of(numbers),
                    demand[name],
                    capacity,
                    capacity - free,
                    name,
                    self._host,
                    self._fleet.holders(numbers),
                    demands=_sharing(name, some, self._beside),
                )
            elif any(self._slots(kind) < kind.count for kind in some):
                yield self._at_once(Rule.GROUPS, some)

    def _slots(self, kind: GroupKind) -> int:
        """Return how many groups of a kind could be given if there were no others."""
        options = self._named.options(kind, self._tree)
        total = 0
        for provider in options:
            times = [kind.count]
            for rows, amount in kind.classes:
                entry = int(rows.provider.searchsorted(provider))
                most = min(int(rows.free[entry]), int(rows.max_unit[entry]))
                times.append(max(0, most) // amount)
            total += min(times)
        return total

    def _apart(self) -> Iterator[Reason]:
        """Yield the sets of groups of which none is above the others."""
        for subtree in range(self._named.subtrees):
            kinds = tuple(
                dataclasses.replace(kind, subtrees=frozenset({0}))
                for kind in self._named.kinds
                if subtree in kind.subtrees
            )
            few = dataclasses.replace(self._named, kinds=kinds, isolates=False, subtrees=1)
            if not self._decide(few, self._tree):
                yield self._at_once(Rule.SUBTREE, kinds)

    def _at_once(self, rule: Rule, kinds: Sequence[GroupKind]) -> Reason:
        """Return that some groups, each of which could be given, cannot be all at once."""
        count, holders = sum(kind.count for kind in kinds), self._there(kinds)
        group = _told(kinds)
        return Reason(rule, count, 0, 0, where=self._host, holders=holders, group=group)


class _GroupsTold:
    """What arrays tell of many trees: as :class:`_GroupFindings`, in the same order."""

    def __init__(self, groups: Groups, trees: Booleans) -> None:
        self._named = named = groups.named
        self._fleet = named.fleet
        self._beside = groups.beside
        self._trees = trees
        self._open = np.zeros_like(trees)
        self._is_told = np.zeros_like(trees)
        self._found: list[Told] = []
        #: by kind, who gives one group of it, and how many these are in each tree
        self._count = [
            np.bincount(self._fleet.tree[kind.own], minlength=len(trees)) for kind in named.kinds
        ]

    def telling(self) -> Telling:
        for kind, count in zip(self._named.kinds, self._count, strict=True):
            self._of_kind(kind, self._trees & (count == 0))
        # where each kind could be given
        left = self._trees & ~self._is_told & ~self._open
        if self._named.isolates and left.any():
            left &= ~self._too_few(left)
        if left.any():
            left &= ~self._too_little(left)
        if self._named.subtrees:
            self._open |= left
        return Telling(self._found, self._open)

    def _tell(self, told: Told) -> None:
        if len(told.tree):
            self._found.append(told)
            self._is_told[told.tree] = True

    # --- one kind by itself ---

    def _of_kind(self, kind: GroupKind, trees: Booleans) -> None:
        if not trees.any():
            return
        lacking = np.zeros_like(trees)
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            lacking |= self._of_class(kind, name, rows, amount, trees)
        if not kind.classes:
            every = np.ones(len(self._fleet.names), dtype=np.bool_)
            lacking = self._barred(kind, "provider", 1, every, trees)
        whole = trees & ~lacking & ~self._open
        if whole.any():
            self._one_provider(kind, whole)

    def _of_class(
        self, kind: GroupKind, name: str, rows: ClassRows, amount: int, trees: Booleans
    ) -> Booleans:
        """Tell why nobody who meets the conditions gives a class; return the trees of these."""
        group = _told([kind])
        there, might, able = np.zeros((3, len(trees)), dtype=np.bool_)
        keeps = ~rows.is_part
        may = keeps & kind.met_own[rows.provider]
        there[rows.tree[keeps]] = True
        might[rows.tree[may]] = True
        able[rows.tree[may & giving(rows, amount)]] = True
        none = np.flatnonzero(trees & ~there)
        self._tell(Told(Rule.NO_INVENTORY, none, amount, resource=name, group=group))
        self._barred(
            kind, name, amount, _keeping(rows, len(self._fleet.names)), trees & there & ~might
        )
        short = trees & might & ~able
        if short.any():
            self._short(name, rows, amount, np.flatnonzero(may & short[rows.tree]), short, group)
        return trees & ~able

    def _barred(
        self, kind: GroupKind, name: str, amount: int, some: Booleans, trees: Booleans
    ) -> Booleans:
        """Tell the conditions that none of some providers meets; return the trees it is about."""
        if not trees.any():
            return trees
        told, able = np.zeros_like(trees), np.zeros_like(trees)
        able[self._fleet.tree[some & kind.met_own]] = True
        trees = trees & ~able
        for one in kind.conditions:
            failing = trees.copy()
            failing[self._fleet.tree[some & one.own]] = False
            unmet = told_unmet(one.rule, one.label, failing, amount, name)
            self._tell(dataclasses.replace(unmet, group=_told([kind])))
            told |= failing
        self._open |= trees & ~told
        return trees

    def _short(
        self,
        name: str,
        rows: ClassRows,
        amount: int,
        entries: Integers,
        trees: Booleans,
        group: str,
    ) -> None:
        """Tell why none of those who may gives so much of a class."""
        limited = integers(sorted(self._fleet.limited))
        if len(limited):  # whether the rule is of a limit is looked up one by one
            is_limited = np.isin(entries + rows.first, limited)
            self._open[rows.tree[entries[is_limited]]] = True
            entries = entries[~self._open[rows.tree[entries]]]
        tree = rows.tree[entries]
        free = sums(rows.free[entries].clip(0), tree, len(trees))
        few = (free < amount)[tree]
        self._together(name, rows, amount, entries[few], group)
        entries = entries[~few]
        tree = rows.tree[entries]
        order = np.lexsort((entries, -rows.free[entries], tree))
        entry = entries[order[np.flatnonzero(np.diff(tree[order], prepend=-1))]]
        is_full, is_small = rows.free[entry] < amount, amount < rows.min_unit[entry]
        rules = np.select([is_full, is_small, amount > rows.max_unit[entry]], [0, 1, 2], 3)
        self._together(name, rows, amount, entry[rules == 0], group)
        bounds = (rows.capacity, rows.min_unit, rows.max_unit, rows.step_size)
        for number, rule in ((1, Rule.MIN_UNIT), (2, Rule.MAX_UNIT), (3, Rule.STEP_SIZE)):
            some = entry[rules == number]
            of = (rows.tree[some], amount, bounds[number][some], rows.used[some], name)
            self._tell(Told(rule, *of, where=rows.provider[some], group=group))

    def _together(
        self, name: str, rows: ClassRows, amount: int, entries: Integers, group: str
    ) -> None:
        """Tell the capacity of some inventories, those of each tree together."""
        tree, size = rows.tree[entries], len(self._trees)
        starts = np.flatnonzero(np.diff(tree, prepend=-1))
        at = tree[starts]
        is_one = np.bincount(tree, minlength=size)[at] == 1
        where = np.where(is_one, rows.provider[entries[starts]], self._fleet.roots[at])
        self._tell(
            Told(
                Rule.CAPACITY,
                at,
                amount,
                sums(rows.capacity[entries], tree, size)[at],
                sums(rows.used[entries], tree, size)[at],
                name,
                where=where,
                group=group,
                inventories=entries + rows.first,
                starts=starts,
            )
        )

    def _one_provider(self, kind: GroupKind, trees: Booleans) -> None:
        """Tell that each class is given by somebody, and all by nobody."""
        gives = np.zeros(len(self._fleet.names), dtype=np.int64)
        for rows, amount in kind.classes:
            gives[rows.provider[giving(rows, amount)]] += 1
        most = np.zeros(len(trees), dtype=np.int64)
        some = np.flatnonzero(kind.met_own)
        np.maximum.at(most, self._fleet.tree[some], gives[some])
        self._at_once(Rule.ONE_PROVIDER, [kind], trees, len(kind.classes), most)

    def _at_once(
        self,
        rule: Rule,
        kinds: Sequence[GroupKind],
        trees: Booleans,
        count: int,
        bound: Integers | None = None,
        *,
        but_able: bool = False,
    ) -> None:
        """Tell what stands against groups at once, with who is at providers that would give."""
        at = np.flatnonzero(trees)
        some = np.zeros(len(self._fleet.inventories.tree), dtype=np.bool_)
        for kind in kinds:
            would = kind.would[0] & trees[self._fleet.tree]
            some[kind.numbers(would & ~kind.own if but_able else would)] = True
        numbers = np.flatnonzero(some)
        tree = self._fleet.inventories.tree[numbers]
        order = np.argsort(tree, kind="stable")
        self._tell(
            Told(
                rule,
                at,
                count,
                0 if bound is None else bound[at],
                group=_told(kinds),
                inventories=numbers[order],
                starts=tree[order].searchsorted(at),
                counts_providers=True,
            )
        )

    # --- all together ---

    def _too_few(self, trees: Booleans) -> Booleans:
        """Tell where isolated groups have too few providers."""
        kinds, fleet = self._named.kinds, self._fleet
        counts = [kind.count for kind in kinds]
        if len(kinds) == 1:
            most = np.minimum(self._count[0], counts[0])
        else:
            most = np.full(len(trees), sum(counts))
            known: dict[tuple[int, ...], int] = {}
            options = [np.flatnonzero(kind.own & trees[fleet.tree]) for kind in kinds]
            within = [fleet.tree[some] for some in options]
            masks = [np.zeros(len(trees), dtype=object) for _ in kinds]
            for mask, some, at in zip(masks, options, within, strict=True):
                bit = some - fleet.roots[at]
                for number, shift in zip(at.tolist(), bit.tolist(), strict=True):
                    mask[number] |= 1 << shift
            for number in np.flatnonzero(trees).tolist():
                key: tuple[int, ...] = tuple([int(mask[number]) for mask in masks])
                if key not in known:
                    known[key] = matched(zip(counts, key, strict=True))
                most[number] = known[key]
        few = trees & (most < sum(counts))
        self._at_once(Rule.ISOLATED, kinds, few, sum(counts), most, but_able=True)
        return few

    def _too_little(self, trees: Booleans) -> Booleans:
        """Tell the classes of which there is too little for all groups, named or not."""
        demand = dict(self._beside)
        kinds: dict[str, list[GroupKind]] = {}
        for kind in self._named.kinds:
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                demand[name] = demand.get(name, 0) + amount * kind.count
                kinds.setdefault(name, []).append(kind)
        found, size = np.zeros_like(trees), len(trees)
        for name, some in kinds.items():
            rows = self._fleet.rows(name)
            entries = np.flatnonzero(~rows.is_part & trees[rows.tree])
            tree = rows.tree[entries]
            left = (rows.capacity[entries] - rows.used[entries]).clip(0)
            free = sums(left, tree, size)
            few = trees & (free < demand[name])
            if few.any():
                self._tell_too_little(name, demand[name], some, few, entries, free)
            few_slots = np.zeros_like(trees)
            for kind in some:
                few_slots |= self._slots(kind) < kind.count
            short = trees & ~few & few_slots
            self._at_once(Rule.GROUPS, some, short, sum(kind.count for kind in some))
            found |= few | short
        return found

    def _tell_too_little(
        self,
        name: str,
        amount: int,
        kinds: Sequence[GroupKind],
        trees: Booleans,
        entries: Integers,
        free: Integers,
    ) -> None:
        rows, fleet = self._fleet.rows(name), self._fleet
        here = entries[trees[rows.tree[entries]]]
        if fleet.limited:
            limited = np.isin(here + rows.first, integers(sorted(fleet.limited)))
            self._open[rows.tree[here[limited]]] = True
            trees = trees & ~self._open
            here = here[trees[rows.tree[here]]]
        at = np.flatnonzero(trees)
        tree = rows.tree[here]
        capacity = sums(rows.capacity[here], tree, len(trees))[at]
        self._tell(
            Told(
                Rule.CAPACITY,
                at,
                amount,
                capacity,
                capacity - free[at],
                name,
                demands=_sharing(name, kinds, self._beside),
                inventories=here + rows.first,
                starts=tree.searchsorted(at),
            )
        )

    def _slots(self, kind: GroupKind) -> Integers:
        """Return, by tree, how many groups of a kind could be given if there were no others."""
        fleet = self._fleet
        each = np.full(len(fleet.names), kind.count)
        for rows, amount in kind.classes:
            times = np.minimum(rows.free, rows.max_unit).clip(0) // amount
            each[rows.provider] = np.minimum(each[rows.provider], times)
        return sums(each[kind.own], fleet.tree[kind.own], len(self._trees))
