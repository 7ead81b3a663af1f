"""The condition that the named groups of a request are given, and why they cannot be.

It is told kind by kind first, class by class: is the class there, does a provider that has it meet
the conditions, do those have room; then whether one of them gives all classes. If each could be
given, then what keeps them from it together: too few providers for isolated groups, too little of a
class for all of them, no provider above the others. That names the consumers at the providers that
would do, were nobody there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.resources.matching import matched
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import Shortage
from resource_objects.search.conditions.base import OWN, Check, Condition, in_words, pools_of
from resource_objects.search.demands import Source, TreeDemand
from resource_objects.search.findings import Findings, Pairs
from resource_objects.search.fleet import ClassRows
from resource_objects.search.named_groups import GroupKind, Named, giving
from resource_objects.search.tree_solver import may_assign


def _keeping(rows: ClassRows, providers: int) -> Booleans:
    """Return who keeps a class, not as a part of what another has."""
    found = np.zeros(providers, dtype=np.bool_)
    found[rows.provider[~rows.is_part]] = True
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Groups(Condition):
    """The named groups are given, each by one provider, beside what is asked without a name."""

    named: Named
    is_host: Booleans  #: by tree: may be found
    beside: Mapping[str, int]  #: how much is asked of each class without a name
    is_all: bool = False  #: nothing is asked beside them

    rule = Rule.GROUPS

    def mask(self) -> Booleans:
        """Return which hosts may give them all."""
        return self.named.possible(self.beside)

    def checks(self) -> Iterator[Check]:
        """Yield, kind by kind, what is there, each condition, what gives enough; then all."""
        for kind in self.named.kinds:
            yield from self._of_kind(kind)
        yield Check(self.mask(), self.rule)

    def _of_kind(self, kind: GroupKind) -> Iterator[Check]:
        fleet, group = self.named.fleet, _told([kind])
        own, pooled = np.ones((2, len(fleet.names)), dtype=np.bool_)
        for number, (name, (rows, amount)) in enumerate(
            zip(kind.names, kind.classes, strict=True), 1
        ):
            keeps = _keeping(rows, len(own))
            own, pooled = own & keeps, pooled & keeps
            found, words = self._of_providers(own, pooled), " and ".join(kind.names[:number])
            yield Check(
                found, Rule.NO_INVENTORY, group, name, words=words, amount=amount, rows=rows
            )
        said = [(one.rule, one.label) for one in kind.conditions]
        of = kind.names[0] if len(kind.names) == 1 else None
        classes = " and ".join(kind.names) or "provider"
        for number, one in enumerate(kind.conditions, 1):
            own, pooled = own & one.met[OWN], pooled & one.met[-1]
            words = f"{classes} {in_words(said[:number])}"
            found = self._of_providers(own, pooled)
            yield Check(found, one.rule, group, of, one.label, words)
        given = dict.fromkeys(kind.names, "")
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            able = np.zeros(len(own), dtype=np.bool_)
            able[rows.provider[giving(rows, amount)]] = True
            may = np.stack((own[rows.provider], pooled[rows.provider]))
            own, pooled = own & able, pooled & able
            beside = " and ".join(one + given[one] for one in given if one != name)
            given[name] = f"={amount}"
            parts = [f"beside {beside}" if beside else "", in_words(said)]
            yield Check(
                self._of_providers(own, pooled),
                Rule.CAPACITY,
                group,
                name,
                words=" ".join(filter(None, parts)),
                amount=amount,
                rows=rows,
                allowed=may,
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

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add the reasons of some hosts; if there are none, that not all groups fit together."""
        _GroupFindings(self, findings, among).find()

    def not_own(self, tree: int) -> list[Reason]:
        """Return the reasons if none but pools could provide the groups, else none."""
        if self.is_host[tree] and not self._is_of_pools(tree):
            return []
        return list(self._not_own(self.named.fleet.hosts[tree]))

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
    """The findings of some hosts while they are made."""

    def __init__(self, groups: Groups, findings: Findings, among: Booleans) -> None:
        self._groups = groups
        self._named = named = groups.named
        self._fleet = named.fleet
        self._findings = findings
        self._hosts = hosts = findings.hosts
        self._among = among
        self._beside = groups.beside
        #: by kind, the providers of one group, and the number of them on each host
        self._options = [
            hosts.providers.where(self._flags(kind.own, kind.pooled)) for kind in named.kinds
        ]
        self._count = [np.bincount(some.host, minlength=len(hosts)) for some in self._options]

    def _flags(self, own: Booleans, pooled: Booleans, pairs: Pairs | None = None) -> Booleans:
        """Return flags by provider as flags of pairs."""
        here = self._hosts.providers if pairs is None else pairs
        found: Booleans = np.where(here.role == OWN, own[here.entry], pooled[here.entry])
        return found

    def _of_rows(self, rows: ClassRows) -> tuple[Pairs, Pairs]:
        """Return the inventories of a class that are not a part of another; the providers too."""
        pairs = self._hosts.inventories(rows)
        pairs = pairs.where(~rows.is_part[pairs.entry])
        return pairs, pairs._replace(entry=rows.provider[pairs.entry])

    def find(self) -> None:
        findings = self._findings
        for kind, count in zip(self._named.kinds, self._count, strict=True):
            self._of_kind(kind, self._among & (count == 0))
        left = self._left()
        if self._named.isolates and left.any():
            self._too_few(left)
        if (left := self._left()).any():
            self._too_little(left)
        if self._named.subtrees and (left := self._left()).any():
            self._apart(left)
        if not findings.decides:
            return
        left = self._among & ~findings.is_refused
        findings.add_each(
            self._groups, left, lambda host: self._groups.not_own(int(self._hosts.trees[host]))
        )
        left &= ~findings.is_refused
        demands = () if self._groups.is_all else ("", *_suffixes(self._named.kinds))
        self._at_once(Rule.GROUPS, self._named.kinds, left, demands=demands)

    def _left(self) -> Booleans:
        """Return the hosts without a reason by the groups."""
        findings = self._findings
        return self._among & ~findings.failing[self._groups] & ~findings.is_open

    # --- one kind by itself ---

    def _of_kind(self, kind: GroupKind, hosts: Booleans) -> None:
        if not hosts.any():
            return
        lacking = self._hosts.none()
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            lacking |= self._of_class(kind, name, rows, amount, hosts)
        if not kind.classes:
            self._barred(kind, "provider", 1, self._hosts.providers, hosts)
            lacking = hosts
        whole = hosts & ~lacking & ~self._findings.is_open
        if whole.any():
            self._one_provider(kind, whole)

    def _of_class(
        self, kind: GroupKind, name: str, rows: ClassRows, amount: int, hosts: Booleans
    ) -> Booleans:
        """Add why none that meets the conditions provides a class; return the hosts of these."""
        group, findings = _told([kind]), self._findings
        pairs, providers = self._of_rows(rows)
        may = self._flags(kind.met_own, kind.met_pooled, providers)
        able = may & giving(rows, amount)[pairs.entry]
        has_class, has_allowed, is_able = (
            self._hosts.any(pairs.host[flags]) for flags in (slice(None), may, able)
        )
        none = np.flatnonzero(hosts & ~has_class)
        findings.add(self._groups, Rule.NO_INVENTORY, none, amount, resource=name, group=group)
        self._barred(kind, name, amount, providers, hosts & has_class & ~has_allowed)
        short = hosts & has_allowed & ~is_able
        if short.any():
            self._short(name, rows, amount, pairs.where(may), short, group)
        return hosts & ~is_able

    def _barred(
        self, kind: GroupKind, name: str, amount: int, providers: Pairs, hosts: Booleans
    ) -> None:
        """Add the conditions by which none of some providers may give."""
        labels = [(one.rule, one.label) for one in kind.conditions]
        unmet = [~self._flags(one.met[OWN], one.met[-1], providers) for one in kind.conditions]
        self._findings.add_excluded(
            self._groups, hosts, providers.host, labels, unmet, amount, name, _told([kind])
        )

    def _short(
        self, name: str, rows: ClassRows, amount: int, pairs: Pairs, hosts: Booleans, group: str
    ) -> None:
        """Add why none of those who may gives so much of a class."""
        findings, fleet = self._findings, self._fleet
        free = self._hosts.sum(rows.free[pairs.entry].clip(0), pairs.host)
        few = hosts & (free < amount) & ~self._hosts.has_shares & ~self._hosts.has_pools
        findings.add_full(
            self._groups,
            few,
            pairs,
            rows,
            amount,
            name,
            where=self._where(pairs, rows),
            group=group,
        )

        def shortage(host: int) -> Iterator[Reason]:
            here = pairs.of_host(host)
            entries = pairs.entry[here]
            columns = [column[entries].tolist() for column in (rows.low, rows.high, rows.step_size)]
            figures = zip(*columns, strict=True)
            sources = tuple(Source(low, high, step, False) for low, high, step in figures)
            numbers = (entries + rows.first).tolist()
            own = int(np.count_nonzero(pairs.role[here] == OWN))
            demand = TreeDemand(amount, numbers, sources, (1 << len(numbers)) - 1, (), own=own)
            where = fleet.hosts[int(self._hosts.trees[host])]
            for reason in Shortage(fleet, where, name, demand, names_one=True).reasons():
                yield dataclasses.replace(reason, group=group)

        findings.add_each(self._groups, hosts & ~few, shortage)

    def _where(self, pairs: Pairs, rows: ClassRows) -> Integers:
        """Return by host the only provider, else the host."""
        places = self._fleet.roots[self._hosts.trees]
        is_only = np.bincount(pairs.host, minlength=len(self._hosts))[pairs.host] == 1
        places[pairs.host[is_only]] = rows.provider[pairs.entry[is_only]]
        return places

    def _one_provider(self, kind: GroupKind, hosts: Booleans) -> None:
        """Add that each class is provided by some provider, and all of them by none."""
        provides = np.zeros(len(self._fleet.names), dtype=np.int64)
        for rows, amount in kind.classes:
            provides[rows.provider[giving(rows, amount)]] += 1
        most = np.zeros(len(self._hosts), dtype=np.int64)
        some = self._hosts.providers.where(self._flags(kind.met_own, kind.met_pooled))
        np.maximum.at(most, some.host, provides[some.entry])
        self._at_once(Rule.ONE_PROVIDER, [kind], hosts, len(kind.classes), most)

    def _at_once(
        self,
        rule: Rule,
        kinds: Sequence[GroupKind],
        hosts: Booleans,
        count: int | None = None,
        bound: Integers | None = None,
        *,
        but_able: bool = False,
        demands: tuple[str, ...] = (),
    ) -> None:
        """Add what groups lack together, with the consumers of providers that could provide them.

        :param count: the requested number; None: the number of the groups
        :param but_able: whether the providers that can provide them now are left out
        """
        at = np.flatnonzero(hosts)
        if not len(at):
            return
        found: list[Integers] = []
        for kind in kinds:
            for rows, _ in kind.classes:
                pairs, providers = self._of_rows(rows)
                would = self._flags(*kind.would, providers) & hosts[pairs.host]
                if but_able:
                    would &= ~self._flags(kind.own, kind.pooled, providers)
                numbers = pairs.entry[would] + rows.first
                found.append(np.stack((pairs.host[would], numbers)))
        host, numbers = np.unique(
            np.concatenate(found, axis=1) if found else np.zeros((2, 0), dtype=np.int64), axis=1
        )
        self._findings.add(
            self._groups,
            rule,
            at,
            sum(kind.count for kind in kinds) if count is None else count,
            bound=0 if bound is None else bound[at],
            group=None if demands else _told(kinds),
            demands=demands,
            inventories=numbers,
            starts=host.searchsorted(at),
            counts_providers=True,
        )

    # --- all together ---

    def _too_few(self, hosts: Booleans) -> None:
        """Add where isolated groups have too few providers."""
        kinds, every = self._named.kinds, self._hosts.providers
        counts = [kind.count for kind in kinds]
        if len(kinds) == 1:
            most = np.minimum(self._count[0], counts[0])
        else:
            most = np.full(len(hosts), sum(counts))
            first = every.host.searchsorted(np.arange(len(hosts)))
            able = [[0] * len(hosts) for _ in kinds]  # as bits, by kind and host
            for kind, masks in zip(kinds, able, strict=True):
                position = np.flatnonzero(self._flags(kind.own, kind.pooled) & hosts[every.host])
                host = every.host[position]
                bit = position - first[host]
                for number, shift in zip(host.tolist(), bit.tolist(), strict=True):
                    masks[number] |= 1 << shift
            known: dict[tuple[int, ...], int] = {}
            for number in np.flatnonzero(hosts).tolist():
                key = tuple([masks[number] for masks in able])
                if key not in known:
                    known[key] = matched(zip(counts, key, strict=True))
                most[number] = known[key]
        few = hosts & (most < sum(counts))
        self._at_once(Rule.ISOLATED, kinds, few, bound=most, but_able=True)

    def _too_little(self, hosts: Booleans) -> None:
        """Add the classes of which there is too little for all groups, named or not."""
        demand = dict(self._beside)
        kinds: dict[str, list[GroupKind]] = {}
        for kind in self._named.kinds:
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                demand[name] = demand.get(name, 0) + amount * kind.count
                kinds.setdefault(name, []).append(kind)
        in_service = self._named.in_service()
        for name, some in kinds.items():
            rows = self._fleet.rows(name)
            pairs, providers = self._of_rows(rows)
            pairs = pairs.where(in_service[providers.entry])
            capacity = rows.capacity[pairs.entry]
            free = self._hosts.sum((capacity - rows.used[pairs.entry]).clip(0), pairs.host)
            few = hosts & (free < demand[name])
            if few.any():
                self._findings.add_full(
                    *(self._groups, few, pairs, rows, demand[name], name),
                    used=self._hosts.sum(capacity, pairs.host) - free,
                    demands=_sharing(name, some, self._beside),
                )
            few_slots = self._hosts.none()
            for kind in some:
                few_slots |= self._slots(kind) < kind.count
            self._at_once(Rule.GROUPS, some, hosts & ~few & few_slots)

    def _slots(self, kind: GroupKind) -> Integers:
        """Return, by host, how many groups of a kind could be given if there were no others."""
        each = np.full(len(self._fleet.names), kind.count)
        for rows, amount in kind.classes:
            times = np.minimum(rows.free, rows.max_unit).clip(0) // amount
            each[rows.provider] = np.minimum(each[rows.provider], times)
        options = self._options[self._named.kinds.index(kind)]
        return self._hosts.sum(each[options.entry], options.host)

    def _apart(self, hosts: Booleans) -> None:
        """Add the sets of groups of which none is above the others."""
        if not self._findings.decides:
            self._findings.is_open |= hosts
            return
        for subtree in range(self._named.subtrees):
            kinds = tuple(
                dataclasses.replace(kind, subtrees=frozenset({0}))
                for kind in self._named.kinds
                if subtree in kind.subtrees
            )
            few = dataclasses.replace(self._named, kinds=kinds, isolates=False, subtrees=1)
            apart = hosts.copy()
            for host in np.flatnonzero(hosts).tolist():
                apart[host] = not may_assign(few, int(self._hosts.trees[host]))
            self._at_once(Rule.SUBTREE, kinds, apart)
