"""The condition that the named groups of a request are given, and why they cannot be.

It is told kind by kind first, class by class: is the class there, does a provider that has it meet
the conditions, do those have room; then whether one of them gives all classes. If each could be
given, then what keeps them from it together: too few providers for isolated groups, too little of a
class for all of them, no provider above the others. That names the consumers at the providers that
would do, were nobody there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.resources.matching import matched
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.conditions.amounts import Shortage
from resource_objects.search.conditions.base import (
    Cut,
    Partial,
    Telling,
    Told,
    excluded,
    in_words,
    pools_of,
    sums,
    told_unmet,
)
from resource_objects.search.demands import Source, TreeDemand
from resource_objects.search.fleet import ClassRows
from resource_objects.search.named_groups import GroupKind, Named, giving
from resource_objects.search.tree_solver import may_assign


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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The named groups are given, each by one provider, beside what is asked without a name."""

    named: Named
    is_host: Booleans  #: by tree: may be found
    beside: Mapping[str, int]  #: how much is asked of each class without a name
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
        return may_assign(self.named, tree)

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
            if not may_assign(few, self._tree):
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
