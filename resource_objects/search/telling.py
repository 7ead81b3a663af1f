"""Why many hosts fail, told at once.

The conditions tell of one host in some 50 microseconds (:func:`reasons_of`), which is much for ten
thousand. What they can tell from arrays alone, of all hosts together, they do (``tell``, beside
their ``reasons``): where counts are asked for, and nobody draws on what another gives, no pool
gives, and nothing is out of service. The other hosts are told of one by one. Both ways tell the
same, which a test compares; so this is no second rule, but the same one over arrays, as
:meth:`.Condition.mask` is the same as :meth:`.Condition.holds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, Figures, Integers
from resource_objects.search.conditions.base import Condition, Partial, Told, label_of
from resource_objects.search.conditions.groups import Groups
from resource_objects.search.conditions.host import HostCondition
from resource_objects.search.conditions.traits import NOBODY
from resource_objects.search.problem import Problem

#: The reasons of some hosts, by tree.
Known = dict[int, tuple[Reason, ...]]


class ManyTold:
    """The reasons of many hosts: of some as arrays, of the others one by one.

    Cost: some passes over the fleet; for each host that arrays do not decide some 50 microseconds
    or more when its reasons are looked at, else 5.
    """

    def __init__(
        self, problem: Problem, refused: Integers, of_tree: Callable[[int], tuple[Reason, ...]]
    ) -> None:
        """:param of_tree: returns the reasons of one host, as :func:`reasons_of`"""
        self._problem = problem
        self._of_tree = of_tree
        trees = np.zeros(len(problem.fleet.hosts), dtype=np.bool_)
        trees[refused] = True
        self._made: Known = {}
        self._told: list[Told] = []
        one_by_one = trees & entangled(problem)
        self._tell(trees & ~one_by_one)
        told = np.zeros_like(trees)
        for one in self._told:
            told[one.tree] = True
        told[list(self._made)] = True
        #: what only a decision tells
        self.one_by_one: Integers = np.flatnonzero(one_by_one | (trees & ~told) | self._open)

    def reasons(self) -> Known:
        """Return the reasons of all of them, each once, in no order."""
        found: dict[int, dict[Reason, None]] = {}
        alone = set(self.one_by_one.tolist())
        for told in self._told:
            for tree, reason in told.reasons(self._problem.fleet):
                found.setdefault(tree, {})[reason] = None
        for tree, reasons in self._made.items():
            found.setdefault(tree, {}).update(dict.fromkeys(reasons))
        known = {tree: tuple(some) for tree, some in found.items() if tree not in alone}
        known.update({tree: self._of_tree(tree) for tree in alone})
        return known

    def count(self) -> int:
        """Return how many reasons there are: :meth:`reasons`, where arrays tell, without them."""
        trees: dict[Hashable, Booleans] = {}  # by what makes two reasons of a host the same
        for told in self._told:
            key = (
                told.rule,
                told.requested,
                told.resource,
                told.trait,
                told.unit,
                told.group,
                told.demands,
            )
            trees.setdefault(key, np.zeros(len(self._problem.fleet.hosts), np.bool_))[told.tree] = (
                True
            )
        alone = self.one_by_one.tolist()
        found = sum(len(some) for tree, some in self._made.items() if tree not in alone)
        for some in trees.values():
            some[alone] = False
            found += int(np.count_nonzero(some))
        return found + sum(len(self._of_tree(tree)) for tree in alone)

    def labels(self, among: Integers) -> Counter[str]:
        """Return how many of some hosts fail by which constraint; one may fail by several."""
        trees = np.zeros(len(self._problem.fleet.hosts), dtype=np.bool_)
        trees[among] = True
        alone = np.zeros_like(trees)
        alone[self.one_by_one] = True
        by_label: dict[str, Booleans] = {}
        for told in self._told:
            by_label.setdefault(told.label, np.zeros_like(trees))[told.tree] = True
        found = Counter(
            {name: int(np.count_nonzero(by & trees & ~alone)) for name, by in by_label.items()}
        )
        for tree in np.flatnonzero(trees & alone).tolist():
            found.update(labels(self._of_tree(tree)))
        for tree, some in self._made.items():
            if trees[tree]:
                found.update(labels(some))
        return +found

    def lacks(self) -> Lacks:
        """Return what arrays tell of how much hosts lack."""
        found = Lacks(len(self._problem.fleet.hosts))
        for told in self._told:
            if told.rule in OF_AMOUNTS:
                free = np.clip(told.bound - told.used, 0, None)
                found.lack[told.tree] += 1 - free / max(1, told.requested)
            else:
                found.qualities[told.tree] += 1
        for tree, reasons in self._made.items():
            found.add(tree, reasons)
        return found

    def _tell(self, trees: Booleans) -> None:
        """Tell what the conditions tell, in the order in which they are told of one host."""
        problem = self._problem
        self._open = np.zeros_like(trees)
        left = trees.copy()
        for condition in problem.of_host:
            if isinstance(condition, HostCondition):
                self._told += [one for one in condition.tell(trees) if len(one.tree)]
            elif condition in problem.filters:
                self._asked_one_by_one(condition, trees)
        for one in self._told:
            left[one.tree] = False
        left[list(self._made)] = False
        self._unnamed(left)
        for condition in problem.of_groups:
            if isinstance(condition, Groups):
                telling = condition.tell(left)
                self._told += telling.told
                self._open |= telling.open
        self._open &= left

    def _asked_one_by_one(self, condition: Condition, trees: Booleans) -> None:
        """Ask what others brought, for they say it of one host alone."""
        for tree in np.flatnonzero(trees).tolist():
            if found := condition.reasons(Partial(tree, {}, {})):
                self._made[tree] = (*self._made.get(tree, ()), *found)

    def _unnamed(self, trees: Booleans) -> None:
        problem = self._problem
        if not trees.any() or not problem.classes:
            return
        sources, missing, open_ = problem.traits.tell(trees)
        self._open |= open_
        nobody = np.zeros((len(sources), len(trees)), dtype=np.bool_)
        for number, (one, some) in enumerate(zip(problem.classes, sources, strict=True)):
            telling = one.tell(trees, some)
            self._told += telling.told
            self._open |= telling.open
            for told in telling.told:
                if told.rule in NOBODY:
                    nobody[number, told.tree] = True
        for number, told in missing:
            at = told.tree[~nobody[number, told.tree]]
            if len(at):
                self._told.append(_of_trees(told, at))


def _of_trees(told: Told, trees: Integers) -> Told:
    return Told(told.rule, trees, told.requested, resource=told.resource, trait=told.trait)


def entangled(problem: Problem) -> Booleans:
    """Return the trees of which arrays alone do not tell, whatever is asked."""
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
    """How much hosts lack, by tree: whole qualities, and parts of amounts."""

    def __init__(self, trees: int) -> None:
        self.qualities: Integers = np.zeros(trees, dtype=np.int64)
        #: each amount by the part of it that is not free, summed
        self.lack: Figures = np.zeros(trees)

    def add(self, tree: int, reasons: Iterable[Reason]) -> None:
        """Count the reasons of a host; what is disabled only where it is the only reason."""
        every = list(reasons)
        for reason in [one for one in every if one.disabled is None] or every:
            if reason.rule in OF_AMOUNTS:
                self.lack[tree] += 1 - max(0, reason.free) / max(1, reason.requested)
            else:
                self.qualities[tree] += 1


# --- one host -----------------------------------------------------------------------------------


def reasons_of(problem: Problem, tree: int) -> tuple[Reason, ...]:
    """Return by which conditions a host fails, each once. Cost: some 50 microseconds.

    What is asked of the host itself comes first, and is all where it fails. Where groups are named,
    or a level all has to be near at, nothing is told of the group without a name if that could be
    given.
    """
    sources: dict[Condition, int] = {}
    host = Partial(tree, sources, {})
    _walk(problem.of_host, host)
    if not any(host.told.values()):
        is_all = not problem.named and problem.near is None
        if is_all or not problem.together.holds(tree):
            sources.update(problem.traits.sources(tree))
            _walk(problem.of_unnamed, host)
        _walk(problem.of_groups, host)
    return tuple(dict.fromkeys(reason for told in host.told.values() for reason in told))


def _walk(conditions: Iterable[Condition], host: Partial) -> None:
    for condition in conditions:
        host.told[condition] = condition.reasons(host)


def labels(reasons: Iterable[Reason]) -> set[str]:
    """Return what a host with such reasons is counted by."""
    return {label_of(one.rule, one.resource, one.trait, one.filter) for one in reasons}
