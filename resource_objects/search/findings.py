"""The conditions of a request on hosts, and the reasons of a set of hosts that they report.

A request is a list of conditions (``problem.Problem.conditions``). The prefilter, the stages and
the reasons walk that list without knowing any of them.

Figures of reasons are arrays over all hosts of the set (:class:`ReasonColumns`). Reasons that take
a decision on each host are added host by host (:meth:`Findings.add_each`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans, Integers, integers, sums_by
from resource_objects.search.demands import bits
from resource_objects.search.eligibility import OWN, POOL, Semantics, pools_of
from resource_objects.search.fleet import ClassRows, Fleet

# --- conditions on hosts --------------------------------------------------------------------------


class Check(NamedTuple):
    """The hosts that pass one part of a condition: a stage of an explanation."""

    passing: Booleans  #: by tree
    rule: Rule
    group: str | None = None  #: suffixes of the groups, "" for the unnamed one; None: the host
    resource: str | None = None
    label: str | None = None  #: the trait, aggregate or provider
    words: str = ""  #: this condition on providers and those before it
    amount: int | None = None  #: the requested amount
    rows: ClassRows | None = None  #: the inventories of which the most that is free is reported
    allowed: Booleans | None = None  #: by role, which of them may provide it; None: all
    divisible: Booleans | None = None  #: which of them may provide it in parts; None: none


class HostContext(NamedTuple):
    """One host while its reasons are collected."""

    findings: Findings
    position: int  #: in the set of hosts

    @property
    def tree(self) -> int:
        """The number of the host in the fleet."""
        return int(self.findings.hosts.trees[self.position])

    @property
    def is_refused(self) -> bool:
        """Whether the host has a reason so far."""
        return bool(self.findings.is_refused[self.position])

    def fails(self, condition: Condition) -> bool:
        """Return True if the host has a reason by a condition before this one."""
        return bool(self.findings.failing[condition][self.position])

    def sources(self, condition: Condition) -> int:
        """Return the sources that may provide a class of the unnamed group, as bits.

        They have the traits that only this class can answer for.
        """
        sources, may_provide = self.findings.sources[condition]
        return bits(may_provide[sources.pairs.of_host(self.position)].tolist())


class Condition:
    """A condition on hosts: a filter over the fleet, stages, and reasons.

    A condition that decides host by host overrides :meth:`reasons` in place of :meth:`find`.
    """

    rule: Rule  #: that fails where it is not met

    def checks(self) -> Iterator[Check]:
        """Yield the check of the whole condition, then its parts in the order of the stages.

        The first check is the prefilter: it passes each host that may meet the condition, and no
        host that a part excludes. An explanation lists it as the last stage of the condition, or
        not at all if its rule is :attr:`.Rule.TOGETHER`. A condition by which arrays exclude no
        host yields nothing.
        """
        return iter(())

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add the reasons by which some hosts do not meet it.

        A condition on several parts adds none where a part failed already. Conditions that
        override :meth:`reasons` fail only on hosts that need a decision, so without decisions
        (:attr:`.Findings.decides`) they add nothing.

        :param among: by position of the host in ``findings.hosts``
        """
        if findings.decides:
            findings.add_known(
                self, among, lambda position: self.reasons(HostContext(findings, position))
            )

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return the reasons by which one host does not meet it."""
        raise NotImplementedError


class HostFilter(Condition):
    """A condition of a caller, such as a scheduler's filter.

    :meth:`mask` is cheap and may pass hosts that do not meet the condition; :meth:`among` is exact.
    """

    def mask(self) -> Booleans:
        """Return, by tree, False where it is surely not met."""
        raise NotImplementedError

    def among(self, trees: Integers) -> Booleans:
        """Return which of some hosts meet it, parallel to these; by default those of the mask."""
        return self.mask()[trees]

    def holds(self, tree: int) -> bool:
        """Return True if a host meets it."""
        return bool(self.among(np.array([tree]))[0])


#: Makes a condition of a caller over a fleet, for a request: once for each search.
FilterFactory: TypeAlias = Callable[[Fleet, Request], HostFilter]


# --- reasons of many hosts ------------------------------------------------------------------------


_FIELDS = tuple(field.name for field in dataclasses.fields(Reason))
_VALUES = operator.attrgetter(*_FIELDS)
#: Creates a reason nine times as fast as its class, which is frozen: its fields can be assigned.
_Draft: Any = dataclasses.make_dataclass("_Draft", _FIELDS, slots=True, eq=False)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReasonColumns:
    """Reasons of many hosts that differ in figures, provider and consumers only.

    ``tree`` ascends. ``bound``, ``used`` and ``where`` (providers; None: the hosts) are parallel to
    it. The consumers are those of ``inventories``, which are in the order of the hosts; ``starts``
    is the position of the first of each host. None: no consumers.
    """

    shared: Reason  #: the fields in which they are equal
    tree: Integers
    bound: Integers | int = 0
    used: Integers | int = 0
    where: Integers | None = None
    inventories: Integers | None = None  #: by number
    starts: Integers | None = None
    counts_providers: bool = False  #: consumers are listed with a number of providers
    has_no_links: bool = True  #: no inventory is used through shares, or is one of a pool

    def reasons(self, fleet: Fleet) -> Iterator[tuple[int, Reason]]:
        """Yield the trees with their reasons. Cost: some microseconds each."""
        names = fleet.hosts if self.where is None else fleet.names
        trees = self.tree.tolist()
        places = trees if self.where is None else self.where.tolist()
        bounds, useds = (
            itertools.repeat(figure) if isinstance(figure, int) else figure.tolist()
            for figure in (self.bound, self.used)
        )
        rule, requested, _, _, resource, _, _, *others = _VALUES(self.shared)
        rows = zip(trees, places, bounds, useds, self._consumers(fleet), strict=False)
        for tree, place, bound, used, consumers in rows:
            reason = _Draft(
                rule, requested, bound, used, resource, names[place], consumers, *others
            )
            reason.__class__ = Reason
            yield tree, reason

    def _consumers(self, fleet: Fleet) -> Iterable[tuple[tuple[str, int], ...]]:
        if self.inventories is None or self.starts is None or not len(self.inventories):
            return itertools.repeat(())
        if self.has_no_links:
            return fleet.holders_of_each(
                self.inventories, self.starts, by_provider=self.counts_providers
            )
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

    def flags(self, by_role: Booleans) -> Booleans:
        """Return flags by role and entry as flags of the pairs."""
        flags: Booleans = by_role[self.role, self.entry]
        return flags

    def of_host(self, host: int) -> slice:
        """Return the pairs of a host."""
        return slice(*self.host.searchsorted((host, host + 1)).tolist())

    def where(self, flags: Booleans) -> Pairs:
        """Return a part of the pairs."""
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
        flags = self.none()
        flags[hosts] = True
        return flags

    def sum(self, values: Integers, hosts: Integers) -> Integers:
        """Return the sum of values of pairs for each host."""
        return sums_by(values, hosts, len(self.trees))

    @functools.cached_property
    def providers(self) -> Pairs:
        """All providers of the hosts, and their pools."""
        pairs, (hosts, pools) = self.entries(self.fleet.tree), self._pools
        if not len(pools):
            return pairs
        host = np.concatenate((pairs.host, hosts))
        order = np.argsort(host, kind="stable")
        entry = np.concatenate((pairs.entry, pools))
        role = np.repeat((OWN, POOL), (len(pairs.host), len(pools)))
        return Pairs(host[order], entry[order], role[order])

    def inventories(self, rows: ClassRows) -> Pairs:
        """Return the inventories of a class."""
        if not len(self._pools[1]):
            return self.entries(rows.tree)
        pairs = self.providers.where(np.isin(self.providers.entry, rows.provider))
        return pairs._replace(entry=rows.provider.searchsorted(pairs.entry))

    def entries(self, tree: Integers) -> Pairs:
        """Return the entries of the hosts among some, of which the trees ascend."""
        start, end = tree.searchsorted(self.trees), tree.searchsorted(self.trees, "right")
        count = end - start
        host = np.repeat(np.arange(len(count)), count)
        entry = np.arange(len(host)) + np.repeat(start - (np.cumsum(count) - count), count)
        return Pairs(host, entry, np.full(len(host), OWN))

    @functools.cached_property
    def _pools(self) -> tuple[Integers, Integers]:
        """The hosts and their pools."""
        numbered = enumerate(self.trees.tolist() if self.fleet.has_pools else ())
        pairs = [
            (host, pool)
            for host, tree in numbered
            for pool in pools_of(self.fleet, self._rules, tree)
        ]
        hosts, pools = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return hosts, pools

    @functools.cached_property
    def has_shares(self) -> Booleans:
        """The hosts with inventories that use others."""
        flags = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        flags[self.fleet.inventories.tree[self.fleet.shares.source]] = True
        return flags[self.trees]

    @functools.cached_property
    def has_pools(self) -> Booleans:
        """The hosts that are linked to pools of other trees."""
        return self.any(self._pools[0])

    @functools.cached_property
    def has_no_links(self) -> bool:
        """Whether none of the hosts has shares or pools."""
        return not (self.has_shares.any() or self.has_pools.any())


#: The rules of a class that no provider of a host may provide: a trait is not missing then.
_NO_PROVIDER = frozenset(
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


class Findings:
    """The reasons of a set of hosts, condition by condition. Hosts are positions in the set."""

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
        #: ``(trait, number of a class, hosts)`` of the traits that no source of it has, and the
        #: hosts where several classes may answer for a trait (:meth:`.UnnamedGroup.narrow`)
        self.missing_traits: tuple[list[tuple[int, int, Booleans]], Booleans] = [], hosts.none()

    def begin(self, condition: Condition) -> None:
        """Begin with a condition."""
        self.failing[condition] = self.hosts.none()
        self.without_provider[condition] = self.hosts.none()

    def by_tree(self) -> dict[int, tuple[Reason, ...]]:
        """Return the reasons of the hosts that have some, each once."""
        by_tree = defaultdict[int, list[Reason]](list)
        for item in self.items:
            if isinstance(item, ReasonColumns):
                for tree, reason in item.reasons(self.hosts.fleet):
                    by_tree[tree].append(reason)
            else:
                by_tree[item[0]] += item[1]
        columns = {item.shared for item in self.items if isinstance(item, ReasonColumns)}
        if len(columns) == len(self.items):  # reasons of different columns differ
            return {tree: tuple(reasons) for tree, reasons in by_tree.items()}
        return {tree: tuple(dict.fromkeys(reasons)) for tree, reasons in by_tree.items()}

    # --- one reason of many hosts ---

    def add(
        self,
        condition: Condition,
        rule: Rule,
        hosts: Integers,
        requested: int,
        *,
        bound: Integers | int = 0,
        used: Integers | int = 0,
        where: Integers | None = None,
        inventories: Integers | None = None,
        starts: Integers | None = None,
        counts_providers: bool = False,
        **fields: Any,
    ) -> None:
        """Add a reason of each of some hosts; the arrays are those of :class:`ReasonColumns`.

        :param fields: further fields of :class:`.Reason`
        """
        if not len(hosts):
            return
        self._note(condition, hosts, [rule])
        shared, trees = Reason(rule, requested, 0, 0, **fields), self.hosts.trees[hosts]
        consumers = inventories, starts, counts_providers, self.hosts.has_no_links
        self.items.append(ReasonColumns(shared, trees, bound, used, where, *consumers))

    def add_unmet(
        self,
        condition: Condition,
        hosts: Booleans,
        requirement: tuple[Rule, str],
        requested: int,
        resource: str | None,
        group: str | None = None,
    ) -> None:
        """Add that no provider of some hosts meets a condition on providers."""
        rule, label = requirement
        fields: dict[str, Any] = {_label_field(rule): label, "resource": resource, "group": group}
        self.add(condition, rule, np.flatnonzero(hosts), requested, **fields)

    def add_excluded(
        self,
        condition: Condition,
        hosts: Booleans,
        of_pairs: Integers,
        requirements: Sequence[tuple[Rule, str]],
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
        is_explained = self.hosts.none()
        for requirement, flags in zip(requirements, unmet, strict=True):
            failing = hosts & ~self.hosts.any(of_pairs[~flags])
            is_explained |= failing
            self.add_unmet(condition, failing, requirement, requested, resource, group)

        def jointly(host: int) -> Iterable[Reason]:
            here = slice(*of_pairs.searchsorted((host, host + 1)).tolist())
            name = self.hosts.fleet.hosts[int(self.hosts.trees[host])]
            flags = [flags[here] for flags in unmet]
            reasons = excluded(requirements, flags, requested, resource, name, group)
            return reasons or otherwise(host)

        self.add_each(condition, hosts & ~is_explained, jointly)

    def add_full(
        self,
        condition: Condition,
        hosts: Booleans,
        pairs: Pairs,
        rows: ClassRows,
        requested: int,
        resource: str,
        used: Integers | None = None,
        where: Integers | None = None,
        **fields: Any,
    ) -> None:
        """Add that the inventories of some hosts have too little together.

        :param pairs: the inventories
        :param used: by host; None: the sum of the used amounts
        :param where: by host, the provider that the reason names; None: the host
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
        for rule, flags in ((Rule.CAPACITY, ~is_limited), (Rule.LIMIT, is_limited)):
            at, is_inside = np.flatnonzero(hosts & flags), flags[pairs.host]
            self.add(
                *(condition, rule, at, requested),
                bound=capacity[at],
                used=used[at],
                resource=resource,
                where=None if where is None else where[at],
                inventories=numbers[is_inside],
                starts=pairs.host[is_inside].searchsorted(at),
                **fields,
            )

    # --- reasons of each host ---

    def add_each(
        self, condition: Condition, hosts: Booleans, reasons: Callable[[int], Iterable[Reason]]
    ) -> None:
        """Add the reasons of each of some hosts, which take a decision.

        :param reasons: returns the reasons of a host
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
            if of_host := tuple(reasons(host)):
                self._note(condition, host, [reason.rule for reason in of_host])
                self.items.append((int(self.hosts.trees[host]), of_host))

    def _note(self, condition: Condition, hosts: Any, rules: Sequence[Rule]) -> None:
        self.is_refused[hosts] = True
        self.failing[condition][hosts] = True
        if not _NO_PROVIDER.isdisjoint(rules):
            self.without_provider[condition][hosts] = True


# --- conditions on providers ----------------------------------------------------------------------


#: The rules whose label is a trait.
_OF_TRAITS = frozenset(
    {
        Rule.TRAIT_MISSING,
        Rule.TRAIT_FORBIDDEN,
        Rule.ROOT_TRAIT_MISSING,
        Rule.ROOT_TRAIT_FORBIDDEN,
    }
)


def _label_field(rule: Rule) -> str:
    """Return the field of a reason that has the label of a condition."""
    return "trait" if rule in _OF_TRAITS else "unit"


#: The words before the label of a condition on providers.
_WORDS = {
    Rule.TRAIT_MISSING: "with",
    Rule.TRAIT_FORBIDDEN: "without",
    Rule.AGGREGATE_MISSING: "in",
    Rule.AGGREGATE_FORBIDDEN: "outside",
    Rule.OTHER_TREE: "of the tree of",
    Rule.DISABLED: "in service",
}


def in_words(conditions: Iterable[tuple[Rule, str]]) -> str:
    """Return conditions on providers in words.

    >>> in_words([(Rule.TRAIT_MISSING, "CUSTOM_A"), (Rule.AGGREGATE_MISSING, "rack1")])
    'with CUSTOM_A in rack1'
    """
    parts = (part for rule, label in conditions for part in (_WORDS[rule], label))
    return " ".join(filter(None, parts))


def excluded(
    conditions: Sequence[tuple[Rule, str]],
    flags: Sequence[Booleans],
    amount: int,
    resource_class: str,
    host: str,
    group: str | None = None,
) -> list[Reason]:
    """Return the conditions that leave no provider of a class; nothing if they leave one.

    Each condition that no provider meets is a reason. If there is none, conditions exclude each
    other: :func:`conflict` is the reason.

    :param flags: by condition, the providers that do not meet it
    """
    pairs = zip(conditions, flags, strict=True)
    failed = [condition for condition, unmet_by in pairs if unmet_by.all()]
    if not failed and (words := conflict(conditions, flags)):
        failed = [(Rule.CONDITIONS, words)]
    reasons = []
    for rule, label in failed:
        field: dict[str, Any] = {_label_field(rule): label, "group": group}
        reasons.append(Reason(rule, amount, 0, 0, resource_class, host, **field))
    return reasons


def conflict(conditions: Sequence[tuple[Rule, str]], unmet: Sequence[Booleans]) -> str:
    """Return conditions that exclude each other, in words; empty if all leave a provider.

    Without any of them, the others would leave one: a deletion filter.

    :param unmet: by condition, the providers that do not meet it
    """

    def excludes(numbers: Sequence[int]) -> bool:
        return bool(np.logical_or.reduce([unmet[number] for number in numbers]).all())

    needed = [number for number, flags in enumerate(unmet) if flags.any()]
    if not needed or not excludes(needed):
        return ""
    for number in tuple(needed):
        others = [other for other in needed if other != number]
        if excludes(others):
            needed = others
    return in_words(conditions[number] for number in needed)
