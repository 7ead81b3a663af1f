"""The explanation: why the hosts that were left out cannot hold a request."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from resource_objects.exceptions import Reason, Rule
from resource_objects.search.arrays import Integers
from resource_objects.search.findings import Findings
from resource_objects.search.question import Question
from resource_objects.search.stages import Stage, emptied, stages

#: Hosts that ``str()`` tells one by one.
SHOWN_HOSTS = 20


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Outcome:
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

    def __init__(self, question: Question, outcome: Outcome) -> None:
        self._question = question
        self._hosts = question.fleet.hosts
        self._findings = Findings(question)
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
        return stages(self._question, self._outcome.refused)

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
            self._known[tree] = self._findings.of_tree(tree)
        return self._known[tree]

    def __str__(self) -> str:
        if not self._question.is_told.any():
            return "there are no hosts"
        return "\n".join([*self._refused(), *self._open()]) or "no host was left out"

    def _refused(self) -> Iterator[str]:
        refused = self._outcome.refused.tolist()
        for tree in refused[:SHOWN_HOSTS]:
            yield _line(self._hosts[tree], self._of_tree(tree))
        rest = refused[SHOWN_HOSTS:]
        if rest:
            counts = Counter(label for tree in rest for label in _labels(self._of_tree(tree)))
            told = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            yield f"and {_more(len(rest))}: {', '.join(f'{name} {n}' for name, n in told)}"

    def _open(self) -> Iterator[str]:
        undecided = self._outcome.undecided
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
        return " ".join(filter(None, [reason.rule.value, reason.trait]))
    return reason.resource


def _more(count: int) -> str:
    return f"{count} more {'host' if count == 1 else 'hosts'}"
