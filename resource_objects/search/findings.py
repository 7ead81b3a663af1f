"""The reasons of a set of hosts while the conditions of a request report them.

Figures are arrays over all hosts of the set (:class:`ReasonColumns`). Reasons that take a decision
on each host are added host by host (:meth:`Findings.add_each`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.conditions.base import (
    OWN,
    POOL,
    Condition,
    Partial,
    Semantics,
    excluded,
    label_field,
    pools_of,
    sums,
)
from resource_objects.search.demands import bits
from resource_objects.search.fleet import ClassRows, Fleet

#: The rules of a class that no provider of a host may provide: a trait is not missing then.
NO_PROVIDER = frozenset(
    {
        Rule.NO_INVENTORY,
        Rule.TRAIT_FORBIDDEN,
        Rule.UNIT_TAKEN,
        Rule.AGGREGATE_MISSING,
        Rule.AGGREGATE_FORBIDDEN,
        Rule.OTHER_TREE,
        Rule.CONDITIONS,
        Rule.DISABLED,
    }
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReasonColumns:
    """Reasons of one rule, of many hosts: the fields of :class:`.Reason` as arrays.

    ``tree`` ascends. ``bound``, ``used`` and ``where`` (providers; None: the hosts) are parallel to
    it. The consumers are those of ``inventories``, which are in the order of the hosts; ``starts``
    is the position of the first of each host. None: no consumers.
    """

    rule: Rule
    tree: Integers
    requested: int
    bound: Integers | int = 0
    used: Integers | int = 0
    resource: str | None = None
    where: Integers | None = None
    trait: str | None = None
    unit: str | None = None
    group: str | None = None
    filter: str | None = None
    inventories: Integers | None = None  #: by number
    starts: Integers | None = None
    counts_providers: bool = False  #: consumers are listed with a number of providers
    demands: tuple[str, ...] = ()
    is_plain: bool = True  #: no inventory is used through shares, or is one of a pool

    @property
    def key(self) -> Hashable:
        """What equal reasons of a host have in common."""
        fields = (self.rule, self.requested, self.resource, self.trait, self.unit)
        return (*fields, self.group, self.demands)

    def reasons(self, fleet: Fleet) -> Iterator[tuple[int, Reason]]:
        """Yield the trees with their reasons. Cost: some 5 microseconds each."""
        names = fleet.hosts if self.where is None else fleet.names
        trees = self.tree.tolist()
        places = trees if self.where is None else self.where.tolist()
        bounds, useds = (
            itertools.repeat(figure) if isinstance(figure, int) else figure.tolist()
            for figure in (self.bound, self.used)
        )
        consumers = self._consumers(fleet)
        of_host = (self.resource, self.trait, self.unit)
        for tree, place, bound, used, holders in zip(
            trees, places, bounds, useds, consumers, strict=False
        ):
            resource, trait, unit = of_host
            yield (
                tree,
                Reason(
                    self.rule,
                    self.requested,
                    bound,
                    used,
                    resource,
                    names[place],
                    holders,
                    trait,
                    unit,
                    None,
                    None,
                    self.group,
                    filter=self.filter,
                    demands=self.demands,
                ),
            )

    def _consumers(self, fleet: Fleet) -> Iterable[tuple[tuple[str, int], ...]]:
        if self.inventories is None or self.starts is None or not len(self.inventories):
            return itertools.repeat(())
        if self.is_plain:
            of_each = (
                fleet.provider_counts_of_each if self.counts_providers else fleet.holders_of_each
            )
            return of_each(self.inventories, self.starts)
        numbers = self.inventories.tolist()
        consumers: Callable[[list[int]], Any]
        consumers = fleet.provider_counts if self.counts_providers else fleet.holders
        ends = itertools.pairwise([*self.starts.tolist(), len(numbers)])
        return (consumers(numbers[start:end]) for start, end in ends)


class Pairs(NamedTuple):
    """Providers, or their inventories of a class, each with a host that it may provide to.

    They are in the order of the hosts: the providers of a host itself, then its pools.
    """

    host: Integers  #: positions in the set of hosts
    entry: Integers  #: places of providers, or entries of the class
    role: Integers  #: :data:`OWN` or :data:`POOL`

    def flags(self, every: Booleans) -> Booleans:
        """Return flags by role and entry as flags of the pairs."""
        found: Booleans = every[self.role, self.entry]
        return found

    def of_host(self, host: int) -> slice:
        """Return the pairs of a host."""
        return slice(*self.host.searchsorted((host, host + 1)).tolist())

    def where(self, flags: Booleans) -> Pairs:
        """Return some of the pairs."""
        return Pairs(self.host[flags], self.entry[flags], self.role[flags])


class Sources(NamedTuple):
    """The sources of a class on some hosts: inventories, or the parts of a placed amount."""

    pairs: Pairs
    allowed: Booleans  #: meets all conditions on each provider
    has_required: tuple[Booleans, ...]  #: by required trait


class HostSet:
    """Some hosts of a fleet, with the providers that may provide to them."""

    def __init__(self, fleet: Fleet, rules: Semantics, trees: Integers) -> None:
        """:param trees: the hosts, ascending"""
        self.fleet = fleet
        self.trees = trees
        self._rules = rules

    def __len__(self) -> int:
        return len(self.trees)

    def none(self) -> Booleans:
        """Return flags of the hosts, all False."""
        return np.zeros(len(self.trees), dtype=np.bool_)

    def any(self, hosts: Integers) -> Booleans:
        """Return the hosts of some pairs."""
        found = self.none()
        found[hosts] = True
        return found

    def sum(self, values: Integers, hosts: Integers) -> Integers:
        """Return the sum of values of pairs for each host."""
        return sums(values, hosts, len(self.trees))

    @functools.cached_property
    def providers(self) -> Pairs:
        """All providers of the hosts, and their pools."""
        return self._with_pools(self.entries(self.fleet.tree), *self._pools)

    def inventories(self, rows: ClassRows) -> Pairs:
        """Return the inventories of a class."""
        own = self.entries(rows.tree)
        hosts, pools = self._pools
        if not len(pools) or not len(rows.provider):
            return own
        entries = np.minimum(rows.provider.searchsorted(pools), len(rows.provider) - 1)
        has_class = rows.provider[entries] == pools
        return self._with_pools(own, hosts[has_class], entries[has_class])

    def entries(self, tree: Integers) -> Pairs:
        """Return the entries of the hosts among some, of which the trees ascend."""
        start, end = tree.searchsorted(self.trees), tree.searchsorted(self.trees, "right")
        count = end - start
        host = np.repeat(np.arange(len(count)), count)
        entry = np.arange(len(host)) + np.repeat(start - (np.cumsum(count) - count), count)
        return Pairs(host, entry, np.full(len(host), OWN))

    def _with_pools(self, own: Pairs, hosts: Integers, entries: Integers) -> Pairs:
        if not len(hosts):
            return own
        host = np.concatenate((own.host, hosts))
        order = np.argsort(host, kind="stable")
        entry = np.concatenate((own.entry, entries))
        role = np.concatenate((own.role, np.full(len(hosts), POOL)))
        return Pairs(host[order], entry[order], role[order])

    @functools.cached_property
    def _pools(self) -> tuple[Integers, Integers]:
        """The hosts and their pools."""
        every = enumerate(self.trees.tolist() if self.fleet.pools else ())
        found = [
            (host, pool) for host, tree in every for pool in pools_of(self.fleet, self._rules, tree)
        ]
        hosts, pools = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return hosts, pools

    @functools.cached_property
    def has_shares(self) -> Booleans:
        """The hosts with inventories that use others."""
        found = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        found[self.fleet.inventories.tree[self.fleet.shares.source]] = True
        return found[self.trees]

    @functools.cached_property
    def has_pools(self) -> Booleans:
        """The hosts that are linked to pools of other trees."""
        return self.any(self._pools[0])

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether none of the hosts has shares or pools."""
        return not (self.has_shares.any() or self.has_pools.any())


class Findings:
    """The reasons of a set of hosts, condition by condition."""

    def __init__(self, hosts: HostSet, *, decides: bool) -> None:
        """:param decides: whether reasons that take a decision are added; else hosts are open"""
        self.hosts = hosts
        self.decides = decides
        #: reasons in the order in which they are listed; of one host with its tree
        self.items: list[ReasonColumns | tuple[int, tuple[Reason, ...]]] = []
        self.is_open = hosts.none()  #: a decision is needed
        self.is_refused = hosts.none()  #: has a reason
        #: by condition, the hosts that have a reason by it
        self.failing: dict[Condition, Booleans] = {}
        #: the same of reasons by which no provider of a class is left
        self.without_provider: dict[Condition, Booleans] = {}
        #: by class of the unnamed group, its sources, and which of them may provide it: with the
        #: traits that only they can answer for
        self.sources: dict[Condition, tuple[Sources, Booleans]] = {}
        #: see :meth:`.RequiredTraits.narrow`
        self.missing_traits: tuple[list[tuple[int, int, Booleans]], Booleans] = [], hosts.none()

    def begin(self, condition: Condition) -> None:
        """Begin with a condition."""
        self.failing[condition] = self.hosts.none()
        self.without_provider[condition] = self.hosts.none()

    def add(
        self, condition: Condition, rule: Rule, hosts: Integers, requested: int, **columns: Any
    ) -> None:
        """Add a reason of each of some hosts, given by position.

        :param columns: further fields of :class:`ReasonColumns`
        """
        if not len(hosts):
            return
        self._note(condition, hosts, [rule])
        trees = self.hosts.trees[hosts]
        is_plain = self.hosts.is_plain
        self.items.append(ReasonColumns(rule, trees, requested, **columns, is_plain=is_plain))

    def add_each(
        self, condition: Condition, hosts: Booleans, reasons: Callable[[int], Iterable[Reason]]
    ) -> None:
        """Add the reasons of each of some hosts, which take a decision.

        :param reasons: returns the reasons of a host, given by position
        """
        if self.decides:
            self.add_known(condition, hosts, reasons)
        else:
            self.is_open |= hosts

    def add_known(
        self, condition: Condition, hosts: Booleans, reasons: Callable[[int], Iterable[Reason]]
    ) -> None:
        """Add the reasons of each of some hosts, whether decisions are made or not."""
        for host in np.flatnonzero(hosts).tolist():
            self._add_of(condition, host, tuple(reasons(host)))

    def add_decided(
        self, condition: Condition, hosts: Booleans, reasons: Callable[[Partial], list[Reason]]
    ) -> None:
        """Add the reasons of a condition that reports them host by host.

        Hosts that need no decision meet all such conditions.
        """
        if self.decides:
            self.add_each(condition, hosts, lambda host: reasons(self._partial(host)))

    def _partial(self, host: int) -> Partial:
        failing = {condition: bool(flags[host]) for condition, flags in self.failing.items()}
        sources = {
            condition: bits(flags[here.pairs.of_host(host)].tolist())
            for condition, (here, flags) in self.sources.items()
        }
        return Partial(int(self.hosts.trees[host]), sources, failing)

    def _add_of(self, condition: Condition, host: int, reasons: tuple[Reason, ...]) -> None:
        if reasons:
            self._note(condition, host, [reason.rule for reason in reasons])
            self.items.append((int(self.hosts.trees[host]), reasons))

    def _note(self, condition: Condition, hosts: Any, rules: Sequence[Rule]) -> None:
        self.is_refused[hosts] = True
        self.failing[condition][hosts] = True
        if not NO_PROVIDER.isdisjoint(rules):
            self.without_provider[condition][hosts] = True

    def add_unmet(
        self,
        condition: Condition,
        hosts: Booleans,
        qualification: tuple[Rule, str],
        requested: int,
        resource: str | None,
        group: str | None = None,
    ) -> None:
        """Add that no provider of some hosts meets a condition on providers."""
        rule, label = qualification
        subject = {label_field(rule): label}
        at = np.flatnonzero(hosts)
        self.add(condition, rule, at, requested, resource=resource, group=group, **subject)

    def add_excluded(
        self,
        condition: Condition,
        hosts: Booleans,
        of_pairs: Integers,
        qualifications: Sequence[tuple[Rule, str]],
        unmet: Sequence[Booleans],
        requested: int,
        resource: str,
        group: str | None = None,
        otherwise: Callable[[int], Iterable[Reason]] = lambda _: (),
    ) -> None:
        """Add the conditions by which no provider of some hosts is left.

        :param of_pairs: the host of each provider
        :param unmet: by condition, the providers that do not meet it
        :param otherwise: returns the reasons if conditions leave a provider
        """
        if not hosts.any():
            return
        is_told = self.hosts.none()
        for qualification, flags in zip(qualifications, unmet, strict=True):
            failing = hosts & ~self.hosts.any(of_pairs[~flags])
            is_told |= failing
            self.add_unmet(condition, failing, qualification, requested, resource, group)

        def jointly(host: int) -> Iterable[Reason]:
            here = slice(*of_pairs.searchsorted((host, host + 1)).tolist())
            name = self.hosts.fleet.hosts[int(self.hosts.trees[host])]
            flags = [some[here] for some in unmet]
            found = excluded(qualifications, flags, requested, resource, name)
            found = [dataclasses.replace(reason, group=group) for reason in found]
            return found or otherwise(host)

        self.add_each(condition, hosts & ~is_told, jointly)

    def add_full(
        self,
        condition: Condition,
        hosts: Booleans,
        pairs: Pairs,
        rows: ClassRows,
        requested: int,
        resource: str,
        used: Integers | None = None,
        **columns: Any,
    ) -> None:
        """Add that the inventories of some hosts have too little together.

        :param pairs: the inventories
        :param used: by host; None: the sum of the used amounts
        """
        fleet = self.hosts.fleet
        pairs = pairs.where(hosts[pairs.host])
        numbers = pairs.entry + rows.first
        capacity = self.hosts.sum(rows.capacity[pairs.entry], pairs.host)
        used = self.hosts.sum(rows.used[pairs.entry], pairs.host) if used is None else used
        is_limited = self.hosts.none()
        if fleet.limited:
            limited = np.isin(numbers, integers(sorted(fleet.limited)))
            is_limited = self.hosts.any(pairs.host[limited])
        where = columns.pop("where", None)
        for rule, some in ((Rule.CAPACITY, hosts & ~is_limited), (Rule.LIMIT, hosts & is_limited)):
            at = np.flatnonzero(some)
            is_here = some[pairs.host]
            self.add(
                condition,
                rule,
                at,
                requested,
                bound=capacity[at],
                used=used[at],
                resource=resource,
                where=None if where is None else where[at],
                inventories=numbers[is_here],
                starts=pairs.host[is_here].searchsorted(at),
                **columns,
            )

    def by_tree(self) -> dict[int, tuple[Reason, ...]]:
        """Return the reasons of the hosts that have some, each once."""
        found: dict[int, dict[Reason, None]] = {}
        for item in self.items:
            if isinstance(item, ReasonColumns):
                for tree, reason in item.reasons(self.hosts.fleet):
                    found.setdefault(tree, {})[reason] = None
            else:
                found.setdefault(item[0], {}).update(dict.fromkeys(item[1]))
        return {tree: tuple(reasons) for tree, reasons in found.items()}
