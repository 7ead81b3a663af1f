"""The reasons of hosts that cannot hold a request.

:func:`find_reasons` lets each condition of a request report its reasons for a set of hosts. The
reasons of many hosts (:class:`HostReasons`) come from arrays where these suffice. Other hosts need
decisions, which take some 100 microseconds or more each: those on which amounts are placed, shared
or provided by pools, or something is disabled. They are made when their reasons are read.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, Figures, Integers
from resource_objects.search.findings import Condition, Findings, HostSet, ReasonColumns
from resource_objects.search.problem import Problem

T = TypeVar("T")

#: The reasons of some hosts, by tree.
Known = dict[int, tuple[Reason, ...]]
#: The number of hosts that are decided at a time, which bounds the pairs of hosts and pools.
CHUNK = 1000


def find_reasons(problem: Problem, trees: Integers, *, decides: bool = True) -> Findings:
    """Return the reasons of some hosts.

    If a condition on the host itself fails, the others are not reported. Where groups are named, or
    all has to be near at a level, no reason is about the group without a name if that fits.

    :param trees: the hosts, ascending
    :param decides: whether reasons that take a decision are included; else those hosts are open
    """
    hosts = HostSet(problem.fleet, problem.rules, trees)
    findings = Findings(hosts, decides=decides)

    def find(conditions: Iterable[Condition], among: Booleans) -> None:
        for condition in conditions:
            findings.begin(condition)
            condition.find(findings, among)

    find(problem.of_host, ~hosts.none())
    passing = ~findings.is_refused
    unnamed = passing.copy()
    if decides and (problem.named or problem.near is not None):
        for host in np.flatnonzero(passing).tolist():
            unnamed[host] = not problem.unnamed.may_fit(int(trees[host]))
    if unnamed.any():
        problem.unnamed.narrow(findings)
        find(problem.of_unnamed, unnamed)
    find(problem.of_groups, passing)
    return findings


class HostReasons:
    """The reasons of many hosts.

    Cost: some passes over the fleet, and some microseconds for a host whose reasons are read; 100
    or more if it needs a decision.
    """

    def __init__(self, problem: Problem, refused: Integers, needs_decision: Booleans) -> None:
        """:param needs_decision: by tree, as :func:`needs_decision` returns it"""
        self._problem = problem
        needs_decision = needs_decision[refused]
        findings = find_reasons(problem, refused[~needs_decision], decides=False)
        is_open = findings.is_open | ~findings.is_refused
        self._findings = findings
        #: the hosts that need a decision
        self.open: Integers = np.sort(
            np.concatenate((refused[needs_decision], findings.hosts.trees[is_open]))
        )
        self._is_open = np.zeros(len(problem.fleet.hosts), dtype=np.bool_)
        self._is_open[self.open] = True

    def by_tree(self) -> Known:
        """Return the reasons of all hosts."""
        return self._findings.by_tree() | self._decided

    def count(self) -> int:
        """Return the number of reasons, most of which are not made for it."""
        of_columns = self._hosts_by(lambda reason: reason).values()
        single = sum(len(reasons) for _, reasons in self._single())
        return int(single + sum(map(np.count_nonzero, of_columns)))

    def labels(self, among: Integers) -> Counter[str]:
        """Return the number of hosts that fail by each constraint; a host may fail by several."""
        is_counted = np.zeros_like(self._is_open)
        is_counted[among] = True
        counts = Counter[str]()
        for name, hosts in self._hosts_by(label).items():
            counts[name] += int(np.count_nonzero(hosts & is_counted))
        for tree, reasons in self._single():
            if is_counted[tree]:
                counts.update(set(map(label, reasons)))
        return +counts

    def lacks(self) -> Lacks:
        """Return the amounts that hosts lack, as far as arrays report them."""
        lacks = Lacks(len(self._is_open))
        for item in self._findings.items:
            if not isinstance(item, ReasonColumns):
                lacks.add(*item)
            elif item.shared.rule in _OF_AMOUNTS:
                free = np.clip(item.bound - item.used, 0, None)
                lacks.lack[item.tree] += 1 - free / max(1, item.shared.requested)
            else:
                lacks.qualities[item.tree] += 1
        return lacks

    def _hosts_by(self, key: Callable[[Reason], T]) -> dict[T, Booleans]:
        """Return the hosts, by tree, with reasons in columns, by a key of these reasons."""
        hosts: dict[T, Booleans] = {}
        for item in self._findings.items:
            if isinstance(item, ReasonColumns):
                flags = hosts.setdefault(key(item.shared), np.zeros_like(self._is_open))
                flags[item.tree] = True
        return {shared: flags & ~self._is_open for shared, flags in hosts.items()}

    def _single(self) -> Iterator[tuple[int, tuple[Reason, ...]]]:
        """Yield the trees with reasons that are not in columns."""
        for item in self._findings.items:
            if not isinstance(item, ReasonColumns) and not self._is_open[item[0]]:
                yield item
        yield from self._decided.items()

    @functools.cached_property
    def _decided(self) -> Known:
        """The reasons of the hosts that need a decision."""
        decided: Known = {}
        for start in range(0, len(self.open), CHUNK):
            trees = self.open[start : start + CHUNK]
            reasons = find_reasons(self._problem, trees).by_tree()
            decided.update({tree: reasons.get(tree, ()) for tree in trees.tolist()})
        return decided


def needs_decision(problem: Problem) -> Booleans:
    """Return the trees of which arrays do not suffice, whatever is requested."""
    fleet = problem.fleet
    is_placed = bool(problem.located or problem.near is not None or fleet.above)
    has_units = any(demand.units for demand in problem.classes)
    flags = np.full(len(fleet.hosts), is_placed or has_units)
    if fleet.has_shares:
        flags[fleet.inventories.tree[fleet.shares.source]] = True
    if fleet.has_pools:
        flags |= fleet.pools.linked_to(fleet.pools.providers, len(flags))
    flags[fleet.tree[[*fleet.disabled, *fleet.removed_units]]] = True
    return flags


def label(reason: Reason) -> str:
    """Return the label by which hosts with a reason are counted."""
    match reason.rule:
        case Rule.TRAIT_MISSING:
            return f"{reason.resource} with {reason.trait}"
        case Rule.TRAIT_FORBIDDEN:
            return f"{reason.resource} without {reason.trait}"
    if reason.resource is None:  # about the host, or about groups as a whole
        return " ".join(filter(None, (reason.rule.value, reason.filter or reason.trait)))
    return reason.resource


#: Rules that compare the requested number with the number that can be given.
_OF_AMOUNTS = frozenset(
    {
        Rule.CAPACITY,
        Rule.LIMIT,
        Rule.PHYSICAL,
        Rule.NOT_WHOLE,
        Rule.NEAR,
        Rule.ISOLATED,
        Rule.ONE_PROVIDER,
        Rule.AFFINITY,
        Rule.AT_ONCE,
        Rule.HOST_CELLS,
        Rule.TOGETHER,
    }
)


class Lacks:
    """How much hosts lack, by tree: qualities, and missing fractions of amounts."""

    def __init__(self, trees: int) -> None:
        self.qualities: Integers = np.zeros(trees, dtype=np.int64)
        #: the missing fraction of each requested amount, summed
        self.lack: Figures = np.zeros(trees)

    def add(self, tree: int, reasons: Iterable[Reason]) -> None:
        """Count the reasons of a host; disabled providers only if there is no other reason."""
        reasons = list(reasons)
        for reason in [reason for reason in reasons if reason.disabled is None] or reasons:
            if reason.rule in _OF_AMOUNTS:
                self.lack[tree] += 1 - max(0, reason.free) / max(1, reason.requested)
            else:
                self.qualities[tree] += 1
