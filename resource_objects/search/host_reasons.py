"""The reasons of hosts that cannot hold a request.

:func:`find_reasons` lets each condition of a request report its reasons for a set of hosts. The
reasons of many hosts (:class:`HostReasons`) come from arrays where these suffice. Other hosts need
decisions, which take some 100 microseconds or more each: those on which amounts are placed, shared
or provided by pools, or something is disabled. They are made when their reasons are read.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, Figures, Integers
from resource_objects.search.findings import Findings, HostSet, ReasonColumns, label_of
from resource_objects.search.problem import Problem

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
    every = ~hosts.none()
    for condition in problem.of_host:
        findings.begin(condition)
        condition.find(findings, every)
    left = every & ~findings.is_refused
    unnamed = left.copy()
    if decides and (problem.named or problem.near is not None):
        for host in np.flatnonzero(left).tolist():
            unnamed[host] = not problem.together.holds(int(trees[host]))
    if unnamed.any():
        problem.traits.narrow(findings)
        for condition in problem.of_unnamed:
            findings.begin(condition)
            condition.find(findings, unnamed)
    for condition in problem.of_groups:
        findings.begin(condition)
        condition.find(findings, left)
    return findings


class HostReasons:
    """The reasons of many hosts.

    Cost: some passes over the fleet, and 5 microseconds for a host whose reasons are read; some 100
    or more if it needs a decision.
    """

    def __init__(self, problem: Problem, refused: Integers, needs_decision: Booleans) -> None:
        """:param needs_decision: by tree, as :func:`needs_decision` returns it"""
        self._problem = problem
        needs_decision = needs_decision[refused]
        found = find_reasons(problem, refused[~needs_decision], decides=False)
        is_open = found.is_open | ~found.is_refused
        self._findings = found
        #: the hosts that need a decision
        self.open: Integers = np.sort(
            np.concatenate((refused[needs_decision], found.hosts.trees[is_open]))
        )
        self._is_open = np.zeros(len(problem.fleet.hosts), dtype=np.bool_)
        self._is_open[self.open] = True

    def by_tree(self) -> Known:
        """Return the reasons of all hosts."""
        return self._findings.by_tree() | self.decided

    @functools.cached_property
    def decided(self) -> Known:
        """The reasons of the hosts that need a decision."""
        found: Known = {}
        for start in range(0, len(self.open), CHUNK):
            trees = self.open[start : start + CHUNK]
            some = find_reasons(self._problem, trees).by_tree()
            found.update({tree: some.get(tree, ()) for tree in trees.tolist()})
        return found

    def count(self) -> int:
        """Return the number of reasons, most of which are not made for it."""
        trees: dict[Hashable, Booleans] = {}
        found = sum(map(len, self.decided.values()))
        for item in self._findings.items:
            if isinstance(item, ReasonColumns):
                flags = trees.setdefault(item.key, np.zeros_like(self._is_open))
                flags[item.tree] = True
            elif not self._is_open[item[0]]:
                found += len(item[1])
        return found + sum(int(np.count_nonzero(some & ~self._is_open)) for some in trees.values())

    def labels(self, among: Integers) -> Counter[str]:
        """Return how many of some hosts fail by each constraint; one may fail by several."""
        trees = np.zeros_like(self._is_open)
        trees[among] = True
        found, by_label = Counter[str](), dict[str, Booleans]()
        for item in self._findings.items:
            if isinstance(item, ReasonColumns):
                label = label_of(item.rule, item.resource, item.trait, item.filter)
                by_label.setdefault(label, np.zeros_like(trees))[item.tree] = True
            elif trees[item[0]] and not self._is_open[item[0]]:
                found.update(labels(item[1]))
        counted = trees & ~self._is_open
        for label, flags in by_label.items():
            found[label] += int(np.count_nonzero(flags & counted))
        if (trees & self._is_open).any():
            for tree, reasons in self.decided.items():
                if trees[tree]:
                    found.update(labels(reasons))
        return +found

    def lacks(self) -> Lacks:
        """Return how much hosts lack, as far as arrays report it."""
        found = Lacks(len(self._is_open))
        for item in self._findings.items:
            if not isinstance(item, ReasonColumns):
                found.add(*item)
            elif item.rule in OF_AMOUNTS:
                free = np.clip(item.bound - item.used, 0, None)
                found.lack[item.tree] += 1 - free / max(1, item.requested)
            else:
                found.qualities[item.tree] += 1
        return found


def needs_decision(problem: Problem) -> Booleans:
    """Return the trees of which arrays do not suffice, whatever is requested."""
    fleet = problem.fleet
    every = bool(problem.located or problem.near is not None or fleet.above)
    found = np.full(len(fleet.hosts), every or any(ask.units for ask in problem.demands))
    if fleet.shares:
        found[fleet.inventories.tree[fleet.shares.source]] = True
    if fleet.pools:
        found |= fleet.pools.linked_to(fleet.pools.providers, len(found))
    places = [*fleet.disabled, *fleet.removed_units]
    found[fleet.tree[places]] = True
    return found


#: Rules that compare the requested number with the number that can be given.
OF_AMOUNTS = frozenset(
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
        every = list(reasons)
        for reason in [one for one in every if one.disabled is None] or every:
            if reason.rule in OF_AMOUNTS:
                self.lack[tree] += 1 - max(0, reason.free) / max(1, reason.requested)
            else:
                self.qualities[tree] += 1


def labels(reasons: Iterable[Reason]) -> set[str]:
    """Return the labels by which a host with such reasons is counted."""
    return {label_of(one.rule, one.resource, one.trait, one.filter) for one in reasons}
