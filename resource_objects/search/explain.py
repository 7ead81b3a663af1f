"""The explanation of a search: why hosts cannot hold a request.

:func:`find_reasons` lets each condition of a request report its reasons for a set of hosts. The
reasons of many hosts (:class:`HostReasons`) come from arrays where these suffice. Other hosts need
decisions, which take some 100 microseconds or more each: those on which amounts are placed, shared
or provided by pools, or something is disabled. They are made when their reasons are read.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import Shared
from resource_objects.names import in_natural_order
from resource_objects.reasons import Reason, Rule, sentences
from resource_objects.search.answer import (
    Feasibility,
    Outlook,
    SearchOutcome,
    Stage,
    answer,
    first_empty,
    stages,
)
from resource_objects.search.arrays import Booleans, Figures, Integers, integers
from resource_objects.search.findings import Condition, Findings, HostSet, ReasonColumns
from resource_objects.search.problem import Problem

#: The number of hosts that ``str()`` lists one by one.
SHOWN_HOSTS = 20
#: The default number of nearest hosts.
NEAREST = 3
#: Of more hosts that need decisions, only those are ranked that fail by the fewest conditions.
MOST_DECIDED = 200
#: The number of hosts that are decided at a time, which bounds the pairs of hosts and pools.
CHUNK = 1000

T = TypeVar("T")

#: The reasons of some hosts, by tree.
Known = dict[int, tuple[Reason, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class HostExplanation:
    """One host that cannot hold a request: its reasons, and whether it ever could."""

    host: str
    outlook: Outlook
    reasons: tuple[Reason, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "host": self.host,
            "outlook": self.outlook.value,
            "reasons": [reason.to_dict() for reason in self.reasons],
        }

    def __str__(self) -> str:
        return _line(self.host, self.reasons)


class _Ranked(NamedTuple):
    """A refused host in the order of what it lacks."""

    tree: int
    is_never: bool  #: it surely never could
    rank: tuple[float, ...]  #: qualities, fractions of amounts, and its position


class Explanation(Shared):
    """Why hosts cannot hold a request, and whether they ever could.

    :attr:`answer` is one line. :attr:`stages` are the numbers of hosts that each part of the
    request leaves; :meth:`nearest` the hosts that come nearest; :meth:`by_host` the reasons of
    every host, with the consumers of what is missing; and :attr:`outlooks` whether it could hold
    the request if nothing were allocated. ``str()`` has one line for each of the first 20 hosts,
    then how many more fail by each constraint (a host that fails by two counts for both);
    :meth:`to_dict` has everything.

    Nothing is computed before it is read. Then the answer costs some passes over the fleet, and a
    refused host some 10 microseconds; 100 or more if it needs a decision, because something is
    placed, shared, disabled or of a pool.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=4"))
    ...     done = ledger.claim("job-1", {"host0": "VCPU=6"})
    ...     told = ledger.snapshot().candidates("VCPU=5").explain()
    >>> print(told.answer)
    no host has VCPU=5 free, the most is 4 of host1; 1 of 2 hosts could if nobody held anything
    >>> for one in told.nearest():
    ...     print(one.outlook.value, "-", one)
    not_now - host0: VCPU requested 5, free 2 of 8 (job-1 holds 6)
    never - host1: VCPU requested 5, free 4 of 4
    """

    def __init__(self, problem: Problem, outcome: SearchOutcome) -> None:
        self._problem = problem
        self._hosts = problem.fleet.hosts
        self._outcome = outcome
        self._reasons: Known = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._problem, self._outcome)

    @functools.cached_property
    def answer(self) -> str:
        """The answer in one line. Cost: some passes over the fleet."""
        return answer(self._problem, self._outcome, self._feasibility, self._line_of)

    @functools.cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The number of hosts that each part of the request leaves, in order."""
        return tuple(stages(self._problem, self._outcome.considered, self._outcome.refused))

    @property
    def emptied(self) -> Stage | None:
        """The stage that leaves no host; None if some are left, or there are none at all."""
        return first_empty(self.stages)

    @property
    def undecided(self) -> tuple[str, ...]:
        """The hosts on which the budget ran out: neither yes nor no."""
        return tuple(self._hosts[tree] for tree in self._outcome.undecided)

    @property
    def outlooks(self) -> Mapping[str, Outlook]:
        """By refused host, whether it could hold the request if nothing were allocated.

        Disabled providers stay disabled, and limits stay. An outlook is unknown, never a no, if the
        budget runs out. Cost: some passes over the fleet; some 200 microseconds for each host that
        they do not decide, in a new state.
        """
        refused = self._outcome.refused.tolist()
        outlooks = self._outlooks_of(refused)
        return {self._hosts[tree]: outlook for tree, outlook in zip(refused, outlooks, strict=True)}

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All reasons of all refused hosts, in the order of the hosts' names."""
        return tuple(reason for _, reasons in self.by_host() for reason in reasons)

    def first_reasons(self, count: int) -> tuple[tuple[Reason, ...], int]:
        """Return the first of :attr:`reasons`, and the number of the others."""
        reasons: list[Reason] = []
        refused = self._outcome.refused.tolist()
        self._find(refused[:count])
        for tree in refused:
            if len(reasons) >= count:
                break
            reasons += self._of_tree(tree)
        return tuple(reasons[:count]), max(0, self._of_refused.count() - count)

    def of(self, host: str) -> tuple[Reason, ...]:
        """Return the reasons of one host; none if it was not refused."""
        refused = self._outcome.refused.tolist()
        return next((self._of_tree(tree) for tree in refused if self._hosts[tree] == host), ())

    def by_host(self) -> Iterator[tuple[str, tuple[Reason, ...]]]:
        """Yield each refused host with its reasons, in the order of names."""
        refused = self._outcome.refused.tolist()
        if len(self._reasons) < len(refused):
            self._reasons = self._of_refused.by_tree()
        for tree in refused:
            yield self._hosts[tree], self._reasons[tree]

    def nearest(self, count: int = NEAREST) -> tuple[HostExplanation, ...]:
        """Return the refused hosts that come nearest to holding the request.

        The hosts are ordered by these keys:

        1. hosts that could hold the request if nothing were allocated, before all others;
        2. the number of qualities that a host lacks, such as a trait, or any inventory of a class;
        3. the missing amounts, each as a fraction of the requested amount, summed;
        4. the name, in natural order.

        Disabled providers count only if nothing else is missing: the missing amount includes a
        disabled device, which is not free. Of more than 200 hosts that need decisions, only those
        are ranked that fail by the fewest conditions of the request.

        :raises InvalidInput: for a count below 1
        """
        if type(count) is not int or count < 1:
            raise exceptions.InvalidInput("request", "nearest", count, "an integer of 1 or more")
        nearest: list[HostExplanation] = []
        infeasible: list[_Ranked] = []
        surely_infeasible: Iterator[_Ranked] = iter(())
        ranked = self._ranked()
        for host in ranked:
            if host.is_never:  # and so are all hosts after it
                surely_infeasible = itertools.chain([host], ranked)
                break
            (outlook,) = self._outlooks_of([host.tree])
            if outlook is Outlook.NEVER:
                infeasible.append(host)
                continue
            nearest.append(self._explained(host.tree, outlook))
            if len(nearest) == count:
                return tuple(nearest)
        remaining = heapq.merge(infeasible, surely_infeasible, key=lambda host: host.rank)
        for host in itertools.islice(remaining, count - len(nearest)):
            nearest.append(self._explained(host.tree, Outlook.NEVER))
        return tuple(nearest)

    def _explained(self, tree: int, outlook: Outlook) -> HostExplanation:
        return HostExplanation(self._hosts[tree], outlook, self._of_tree(tree))

    def _ranked(self) -> Iterator[_Ranked]:
        """Yield refused hosts, those that lack least first; infeasible hosts last."""
        (qualities, lack), refused = self._of_refused.lacks(), self._outcome.refused
        undecided = self._of_refused.open
        decided = undecided
        if len(undecided) > MOST_DECIDED:
            failed = np.zeros(len(self._hosts), dtype=np.int64)
            for passing in self._problem.masks():
                failed += ~passing
            order = np.argsort(failed[undecided], kind="stable")
            decided = undecided[order][:MOST_DECIDED]
        self._find(decided.tolist())
        for tree in decided.tolist():
            qualities[tree], lack[tree] = missing(self._of_tree(tree))
        ranked = refused[~np.isin(refused, np.setdiff1d(undecided, decided))]
        is_never = np.zeros(len(self._hosts), dtype=np.bool_)
        if self._feasibility is not None:
            is_never = self._feasibility.is_never
        keys = (is_never[ranked], qualities[ranked], lack[ranked])
        order = np.lexsort(keys[::-1])
        ranks = zip(*(key[order].tolist() for key in keys), strict=True)
        # hosts are in the order of their names, which is not the natural one: only ties need that
        pairs = zip(ranks, ranked[order].tolist(), strict=True)
        position = itertools.count()
        for (never, *rank), ties in itertools.groupby(pairs, key=lambda pair: pair[0]):
            for tree in self._in_natural_order([tree for _, tree in ties]):
                yield _Ranked(tree, bool(never), (*rank, next(position)))

    def to_dict(self, hosts: int | None = None) -> dict[str, Any]:
        """Return plain data for JSON.

        :param hosts: the number of nearest hosts with their reasons, and the maximum number of
            undecided hosts; None: all. ``more`` is the number of the others
        """
        if hosts is None:
            refused, outlooks = dict(self.by_host()), dict(self.outlooks)
        else:
            nearest = self.nearest(hosts) if hosts else ()
            refused = {explained.host: explained.reasons for explained in nearest}
            outlooks = {explained.host: explained.outlook for explained in nearest}
        undecided = self.undecided[:hosts]
        count = len(self._outcome.refused) + len(self._outcome.undecided)
        return {
            "answer": self.answer,
            "nearest": [explained.host for explained in self.nearest()],
            "refused": {
                host: [reason.to_dict() for reason in reasons] for host, reasons in refused.items()
            },
            "outlooks": {host: outlook.value for host, outlook in outlooks.items()},
            "undecided": list(undecided),
            "stages": [stage.to_dict() for stage in self.stages],
            "more": count - len(refused) - len(undecided),
        }

    # --- computed when it is read ---

    @functools.cached_property
    def _feasibility(self) -> Feasibility | None:
        return None if self._outcome.feasibility is None else self._outcome.feasibility()

    def _outlooks_of(self, trees: Sequence[int]) -> list[Outlook]:
        if self._feasibility is None:
            return [Outlook.UNKNOWN] * len(trees)
        return self._feasibility.of(trees)

    @functools.cached_property
    def _of_refused(self) -> HostReasons:
        return HostReasons(self._problem, self._outcome.refused)

    def _of_tree(self, tree: int) -> tuple[Reason, ...]:
        self._find([tree])
        return self._reasons[tree]

    def _line_of(self, tree: int) -> str:
        return _line(self._hosts[tree], self._of_tree(tree))

    def _find(self, trees: Iterable[int]) -> None:
        """Find the reasons of some refused hosts."""
        if unread := sorted({tree for tree in trees if tree not in self._reasons}):
            reasons = find_reasons(self._problem, integers(unread)).by_tree()
            self._reasons |= {tree: reasons.get(tree, ()) for tree in unread}

    # --- text ---

    def __str__(self) -> str:
        if not self._outcome.considered.any():
            return "there are no hosts"
        return "\n".join([*self._refused_lines(), *self._open_lines()]) or "no host was left out"

    def _in_natural_order(self, trees: Sequence[int]) -> Iterator[int]:
        """Yield ascending trees in the natural order of names: ``lab-2`` before ``lab-10``."""
        return (trees[at] for at in in_natural_order([self._hosts[tree] for tree in trees]))

    def _refused_lines(self) -> Iterator[str]:
        refused = self._outcome.refused
        shown = list(itertools.islice(self._in_natural_order(refused.tolist()), SHOWN_HOSTS))
        self._find(shown)
        for tree in shown:
            yield self._line_of(tree)
        rest = refused[~np.isin(refused, shown)]
        if len(rest):
            counts = self._of_refused.labels(rest)
            labels = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            yield f"and {_more(len(rest))}: {', '.join(f'{name} {n}' for name, n in labels)}"

    def _open_lines(self) -> Iterator[str]:
        undecided = self._outcome.undecided
        for tree in itertools.islice(self._in_natural_order(undecided), SHOWN_HOSTS):
            budget = self._outcome.budget
            yield f"{self._hosts[tree]}: undecided, the budget of {budget} steps ran out"
        if len(undecided) > SHOWN_HOSTS:
            yield f"and {_more(len(undecided) - SHOWN_HOSTS)} undecided"
        if self._outcome.unseen:
            yield f"and {_more(self._outcome.unseen)} not looked at: the limit was reached"


def _line(host: str, reasons: tuple[Reason, ...]) -> str:
    """Return one line for one host; a reason that is about one provider of it names that one.

    >>> from resource_objects.reasons import Rule
    >>> few = Reason(Rule.CAPACITY, 3, bound=4, used=3, resource="PGPU", where="host0",
    ...              holders=(("job-1", 1), ("job-2", 1), ("job-3", 1), ("job-4", 1)))
    >>> print(_line("host0", (few,)))
    host0: PGPU requested 3, free 1 of 4 (job-1 holds 1, job-2 holds 1, job-3 holds 1 and 1 more)
    """
    parts = [
        dataclasses.replace(reason, where=None) if reason.where == host else reason
        for reason in reasons
    ]
    return f"{host}: {'; '.join(sentences(parts))}"


def _more(count: int) -> str:
    return f"{count} more {'host' if count == 1 else 'hosts'}"


# --- the reasons of many hosts --------------------------------------------------------------------


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

    def __init__(self, problem: Problem, refused: Integers) -> None:
        self._problem = problem
        is_undecided = needs_decision(problem)[refused]
        self._findings = findings = find_reasons(problem, refused[~is_undecided], decides=False)
        is_open = findings.is_open | ~findings.is_refused
        undecided = refused[is_undecided], findings.hosts.trees[is_open]
        #: the hosts that need a decision
        self.open: Integers = np.sort(np.concatenate(undecided))
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

    def lacks(self) -> tuple[Integers, Figures]:
        """Return :func:`missing` by tree, as far as arrays report it."""
        qualities, lack = np.zeros(len(self._is_open), dtype=np.int64), np.zeros(len(self._is_open))
        for item in self._findings.items:
            if not isinstance(item, ReasonColumns):
                of_host = missing(item[1])
                qualities[item[0]] += of_host[0]
                lack[item[0]] += of_host[1]
            elif item.shared.rule in _OF_AMOUNTS:
                free = np.clip(item.bound - item.used, 0, None)
                lack[item.tree] += 1 - free / max(1, item.shared.requested)
            else:
                qualities[item.tree] += 1
        return qualities, lack

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


def missing(reasons: Sequence[Reason]) -> tuple[int, float]:
    """Return how many qualities a host lacks, and the missing fraction of each amount, summed.

    Disabled providers count only if there is no other reason.
    """
    counted = [reason for reason in reasons if reason.disabled is None] or reasons
    amounts = [reason for reason in counted if reason.rule in _OF_AMOUNTS]
    lack = sum(1 - max(0, reason.free) / max(1, reason.requested) for reason in amounts)
    return len(counted) - len(amounts), lack
