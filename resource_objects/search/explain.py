"""The explanation: why the hosts that were left out cannot hold a request."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from resource_objects.exceptions import Reason, Rule
from resource_objects.names import natural_order
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.base import Condition, Cut, Partial
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.problem import Problem

#: Hosts that ``str()`` tells one by one.
SHOWN_HOSTS = 20


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """What became of the hosts that are no candidates, as trees in the order of names."""

    refused: Integers  #: they cannot hold the request
    undecided: tuple[int, ...]  #: the budget ran out on them
    unseen: int  #: how many were not decided because the limit was reached
    budget: int


class Explanation:
    """Why hosts cannot hold a request: for people by ``str()``, as data by :attr:`reasons`.

    ``str()`` has one line per host for the first 20, then how many more fail by which constraint
    (a host that fails by two counts for both). Nothing is computed before it is looked at; then
    the cost is some 50 microseconds per refused host.
    """

    def __init__(self, problem: Problem, outcome: SearchOutcome) -> None:
        self._problem = problem
        self._hosts = problem.fleet.hosts
        self._outcome = outcome
        self._known: dict[int, tuple[Reason, ...]] = {}

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every reason of every refused host, in the order of the hosts' names."""
        return tuple(reason for _, reasons in self.by_host() for reason in reasons)

    @property
    def undecided(self) -> tuple[str, ...]:
        """The hosts on which the budget ran out: neither yes nor no."""
        return tuple(self._hosts[tree] for tree in self._outcome.undecided)

    def by_host(self) -> Iterator[tuple[str, tuple[Reason, ...]]]:
        """Yield each refused host with its reasons, in the order of names."""
        for tree in self._outcome.refused.tolist():
            yield self._hosts[tree], self._of_tree(tree)

    @functools.cached_property
    def stages(self) -> tuple[Stage, ...]:
        """What each part of the request left of the hosts, in order."""
        return tuple(stages(self._problem, self._outcome.refused))

    @property
    def emptied(self) -> Stage | None:
        """The stage after which no host was left; None if some was, or there was none at all."""
        return emptied(self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "refused": {
                host: [reason.to_dict() for reason in reasons] for host, reasons in self.by_host()
            },
            "undecided": list(self.undecided),
            "stages": [stage.to_dict() for stage in self.stages],
        }

    def _of_tree(self, tree: int) -> tuple[Reason, ...]:
        if tree not in self._known:
            self._known[tree] = reasons_of(self._problem, tree)
        return self._known[tree]

    def __str__(self) -> str:
        if not self._problem.is_told.any():
            return "there are no hosts"
        return "\n".join([*self._refused(), *self._open()]) or "no host was left out"

    def _naturally(self, trees: Iterable[int]) -> list[int]:
        """Return trees as people list machines: ``lab-2`` before ``lab-10``."""
        return sorted(trees, key=lambda tree: natural_order(self._hosts[tree]))

    def _refused(self) -> Iterator[str]:
        refused = self._naturally(self._outcome.refused.tolist())
        for tree in refused[:SHOWN_HOSTS]:
            yield _line(self._hosts[tree], self._of_tree(tree))
        rest = refused[SHOWN_HOSTS:]
        if rest:
            counts = Counter(label for tree in rest for label in _labels(self._of_tree(tree)))
            told = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            yield f"and {_more(len(rest))}: {', '.join(f'{name} {n}' for name, n in told)}"

    def _open(self) -> Iterator[str]:
        undecided = self._naturally(self._outcome.undecided)
        for tree in undecided[:SHOWN_HOSTS]:
            budget = self._outcome.budget
            yield f"{self._hosts[tree]}: undecided, the budget of {budget} steps ran out"
        if len(undecided) > SHOWN_HOSTS:
            yield f"and {_more(len(undecided) - SHOWN_HOSTS)} undecided"
        if self._outcome.unseen:
            yield f"and {_more(self._outcome.unseen)} not looked at: the limit was reached"


def _line(host: str, reasons: tuple[Reason, ...]) -> str:
    """Return one line for one host; a reason that is about one provider of it names that one.

    >>> few = Reason(Rule.CAPACITY, 3, bound=4, used=3, resource="PGPU", where="host0",
    ...              holders=(("job-1", 1), ("job-2", 1), ("job-3", 1), ("job-4", 1)))
    >>> print(_line("host0", (few,)))
    host0: PGPU asked 3, free 1 of 4 (job-1 holds 1, job-2 holds 1, job-3 holds 1 and 1 more)
    """
    return f"{host}: {'; '.join(_part(host, reason) for reason in reasons)}"


def _part(host: str, reason: Reason) -> str:
    return str(dataclasses.replace(reason, where=None if reason.where == host else reason.where))


def _labels(reasons: tuple[Reason, ...]) -> set[str]:
    return {_label(reason) for reason in reasons}


def _label(reason: Reason) -> str:
    match reason.rule:
        case Rule.TRAIT_MISSING:
            return f"{reason.resource} with {reason.trait}"
        case Rule.TRAIT_FORBIDDEN:
            return f"{reason.resource} without {reason.trait}"
    if reason.resource is None:  # about the host, or about groups as a whole
        return " ".join(filter(None, [reason.rule.value, reason.filter or reason.trait]))
    return reason.resource


def _more(count: int) -> str:
    return f"{count} more {'host' if count == 1 else 'hosts'}"


# --- stages -------------------------------------------------------------------------------------
# How many hosts each part of a request leaves: which of them emptied the set.
#
# The stages follow the request: what is asked of the host itself, class by class what the unnamed
# group asks, kind by kind the named groups, all groups together, and at last the exact decision.
# Each looks at the hosts that the ones before it left, with the same flags as the search; so it
# is a pass over the fleet for each, whatever the number of hosts.


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """What one part of a request leaves of the hosts.

    ``group`` are the suffixes it is about, ``""`` for the unnamed group, None for the host or all
    groups; ``rule`` says what fails, ``label`` the trait, aggregate or provider of a condition.
    ``asked`` is how much of ``resource``, ``most`` the largest amount that one provider of the
    hosts before has free of it; None where it is no question of amounts.
    """

    group: str | None
    rule: Rule
    before: int
    after: int
    resource: str | None = None
    label: str | None = None
    requested: int | None = None
    most: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**dataclasses.asdict(self), "rule": self.rule.value}

    def __str__(self) -> str:
        where = f"group {self.group}: " if self.group else ""
        told = " ".join(
            part for part in (self.rule.value.replace("_", " "), self.resource, self.label) if part
        )
        figures = (
            "" if self.requested is None else f" (asked {self.requested}, most free {self.most})"
        )
        return f"{where}{told}{figures}: {self.before} -> {self.after} hosts"


def stages(problem: Problem, refused: Integers) -> Iterator[Stage]:
    """Yield the stages of a search, in order.

    :param refused: the trees that cannot hold the request, by whatever stage
    """
    left = problem.is_told
    decided = np.ones(len(left), dtype=np.bool_)
    decided[refused] = False
    every = (cut for condition in problem.conditions for cut in condition.cuts())
    for cut in itertools.chain(every, [Cut(decided, Rule.TOGETHER)]):
        most = None if cut.rows is None else _most(problem.fleet, cut.rows, left)
        before, left = left, left & cut.passing
        yield Stage(
            cut.group,
            cut.rule,
            before=int(np.count_nonzero(before)),
            after=int(np.count_nonzero(left)),
            resource=cut.resource,
            label=cut.label,
            requested=cut.amount,
            most=most,
        )


def _most(fleet: Fleet, rows: ClassRows, left: Booleans) -> int:
    """Return the most that one provider of some hosts, or a pool, has free."""
    here = left[rows.tree] | np.isin(rows.provider, fleet.pools.providers)
    return max(0, int(rows.free[here].max(initial=0)))


def emptied(every: Iterable[Stage]) -> Stage | None:
    """Return the stage after which no host was left, None if some was, or none there at all."""
    return next((one for one in every if one.before and not one.after), None)


# --- the reasons of one host ---------------------------------------------------------------------


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
