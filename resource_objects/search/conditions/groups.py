"""The named groups of a request over a fleet: each is given by one provider.

Groups that ask for the same under the same conditions, and are in the same sets of
``same_subtree``, are one *kind* of group: who gives which of them does not matter. What a provider
meets by itself, its conditions and its room for each class, is one flag. Over the whole fleet at
once it is then seen which trees have enough providers for each kind, and enough of each class for
all; what remains is decided tree by tree (:mod:`~resource_objects.search.assignment`).

Why they cannot be given is told kind by kind first: is the class there, is there room at one
provider, do those with room meet the conditions. If each could be given, then what keeps them from
it together: too few providers for isolated groups, too little of a class for all of them, nobody
above the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources.matching import matched
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.base import (
    Cut,
    Laying,
    Partial,
    Qualification,
    Semantics,
    excluded,
    met,
    pools_of,
    trees_of,
)
from resource_objects.search.fleet import ClassRows, Fleet

#: With more pools than these, how often each gives is not counted before a tree is looked at.
COUNTED_POOLS = 32


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GroupKind:
    """Named groups that are alike."""

    group: RequestGroup  #: the first of them
    suffixes: tuple[str, ...]
    classes: tuple[tuple[ClassRows, int], ...]  #: what each asks of which class
    names: tuple[str, ...]  #: of these classes
    conditions: tuple[Qualification, ...]
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
    kinds: tuple[GroupKind, ...]
    isolates: bool  #: no two of one provider
    subtrees: int  #: how many sets of ``same_subtree`` there are

    def __bool__(self) -> bool:
        return bool(self.kinds)

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
) -> GroupKind:
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
    return GroupKind(
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The named groups are given, each by one provider, beside what is asked without a name."""

    named: Named
    is_host: Booleans  #: by tree: may be found
    beside: Mapping[str, int]  #: how much is asked of each class without a name
    decide: Callable[[Named, int], bool]  #: whether some groups can be given, or it takes too long

    rule = Rule.GROUPS

    def mask(self) -> Booleans:
        """Return which hosts may give them all."""
        return self.named.possible(self.beside)

    def cuts(self) -> Iterator[Cut]:
        """Yield, kind by kind, what is there, what gives enough, each condition; then all."""
        for kind in self.named.kinds:
            yield from self._of_kind(kind)
        yield Cut(self.mask(), self.rule)

    def _of_kind(self, kind: GroupKind) -> Iterator[Cut]:
        fleet, group = self.named.fleet, _told([kind])
        own = np.ones(len(fleet.names), dtype=np.bool_)
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            pools = np.isin(rows.provider, fleet.pools.providers)
            found = trees_of(fleet, rows, ~rows.is_part, pools)
            yield Cut(found, Rule.NO_INVENTORY, group, name, amount=amount, rows=rows)
            able = np.zeros(len(own), dtype=np.bool_)
            able[rows.provider[giving(rows, amount)]] = True
            own &= able
            found = self._of_providers(own, own)
            yield Cut(found, Rule.CAPACITY, group, name, amount=amount, rows=rows)
        pooled = own.copy()
        for one in kind.conditions:
            own, pooled = own & one.own, pooled & one.pooled
            yield Cut(self._of_providers(own, pooled), one.rule, group, label=one.label)

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
        found = list(dict.fromkeys(_GroupFindings(self, host.tree).reasons()))
        if found or any(host.told.values()):
            return found
        name = self.named.fleet.hosts[host.tree]
        if not self.is_host[host.tree]:
            found = list(self._not_own(name))
        count = sum(kind.count for kind in self.named.kinds)
        all_at_once = Reason(self.rule, count, 0, 0, where=name, group=_told(self.named.kinds))
        return found or [all_at_once]

    def _not_own(self, host: str) -> Iterator[Reason]:
        """Yield the reasons for a host of which nobody but pools could give the groups."""
        for kind in self.named.kinds:
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                yield Reason(Rule.NOT_OWN, amount, 0, 0, name, host, group=_told([kind]))


def _told(kinds: Sequence[GroupKind]) -> str:
    return ", ".join(suffix for kind in kinds for suffix in kind.suffixes)


class _GroupFindings:
    """The findings of one tree while they are made."""

    def __init__(self, groups: Groups, tree: int) -> None:
        self._named = named = groups.named
        self._fleet = fleet = named.fleet
        self._tree = tree
        self._beside = groups.beside
        self._decide = groups.decide
        self._host = fleet.hosts[tree]
        own = fleet.of_tree(tree)
        self._providers = np.array([*own, *pools_of(fleet, named.rules, tree)], dtype=np.int64)
        self._own = len(own)

    def reasons(self) -> list[Reason]:
        found = [reason for kind in self._named.kinds for reason in self._of_kind(kind)]
        return found or self._of_all()

    # --- one kind by itself ---

    def _of_kind(self, kind: GroupKind) -> Iterator[Reason]:
        if self._named.options(kind, self._tree):
            return
        group = _told([kind])
        for reason in self._of_classes(kind) or self._of_conditions(kind):
            yield dataclasses.replace(reason, group=group)

    def _of_classes(self, kind: GroupKind) -> list[Reason]:
        """Return what there is not enough of, or that nobody has enough of all."""
        found: list[Reason] = []
        gives = np.zeros(len(self._providers), dtype=np.int64)
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            here = np.flatnonzero(np.isin(rows.provider, self._providers) & ~rows.is_part)
            able = here[giving(rows, amount)[here]]
            if not len(here):
                found.append(Reason(Rule.NO_INVENTORY, amount, 0, 0, name, self._host))
            elif not len(able):
                found.append(self._short(name, rows, amount, here))
            gives += np.isin(self._providers, rows.provider[able])
        most, count = int(gives.max(initial=0)), len(kind.classes)
        if not found and most < count:
            found.append(Reason(Rule.ONE_PROVIDER, count, most, 0, where=self._host))
        return found

    def _short(self, name: str, rows: ClassRows, amount: int, here: Integers) -> Reason:
        """Return why whoever has most of a class does not give so much."""
        entry = int(max(here.tolist(), key=lambda at: (int(rows.free[at]), -at)))
        where = self._fleet.names[int(rows.provider[entry])]
        capacity, used = int(rows.capacity[entry]), int(rows.used[entry])
        full = self._fleet.rule_of([rows.first + entry])
        rules = (
            (int(rows.free[entry]) < amount, full, capacity),
            (amount < rows.min_unit[entry], Rule.MIN_UNIT, int(rows.min_unit[entry])),
            (amount > rows.max_unit[entry], Rule.MAX_UNIT, int(rows.max_unit[entry])),
            (True, Rule.STEP_SIZE, int(rows.step_size[entry])),
        )
        rule, bound = next((rule, bound) for fails, rule, bound in rules if fails)
        holders: tuple[tuple[str, int], ...] = ()
        if rule is full:
            holders = self._fleet.holders([rows.first + entry])
            used = max(used, capacity - int(rows.free[entry]))
        return Reason(rule, amount, bound, used, name, where, holders)

    def _of_conditions(self, kind: GroupKind) -> list[Reason]:
        """Return the conditions that those with room do not meet."""
        able = np.ones(len(self._providers), dtype=np.bool_)
        for rows, amount in kind.classes:
            able &= np.isin(self._providers, rows.provider[giving(rows, amount)])
        some = self._providers[able]
        is_own = np.flatnonzero(able) < self._own
        flags = [~np.where(is_own, one.own[some], one.pooled[some]) for one in kind.conditions]
        (_, amount), name = (kind.classes or ((None, 1),))[0], (kind.names or ("provider",))[0]
        barriers = [(one.rule, one.label) for one in kind.conditions]
        return excluded(barriers, flags, amount, name, self._host)

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
            group = _told(kinds)
            yield Reason(Rule.ISOLATED, sum(counts), most, 0, where=self._host, group=group)

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
            here = np.isin(rows.provider, self._providers) & ~rows.is_part
            free = int(rows.free[here].clip(0).sum())
            if free < demand[name]:
                capacity = int(rows.capacity[here].sum())
                numbers = (np.flatnonzero(here) + rows.first).tolist()
                yield Reason(
                    self._fleet.rule_of(numbers),
                    demand[name],
                    capacity,
                    capacity - free,
                    name,
                    self._host,
                    self._fleet.holders(numbers),
                    group=_told(some),
                )
            elif any(self._slots(kind) < kind.count for kind in some):
                count = sum(kind.count for kind in some)
                group = _told(some)
                yield Reason(Rule.GROUPS, count, 0, 0, where=self._host, group=group)

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
                count = sum(kind.count for kind in kinds)
                yield Reason(Rule.SUBTREE, count, 0, 0, where=self._host, group=_told(kinds))
