"""The explanation: why the hosts that were left out cannot hold a request."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import Shared
from resource_objects.names import in_natural_order
from resource_objects.reasons import Reason, Rule, sentences
from resource_objects.search.answer import answer, most_together
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.conditions.base import Check
from resource_objects.search.feasibility import Outlook, Outlooks, SearchOutcome
from resource_objects.search.host_reasons import HostReasons, needs_decision
from resource_objects.search.problem import Problem

#: Hosts that ``str()`` tells one by one.
SHOWN_HOSTS = 20
#: Hosts that come nearest, unless told otherwise.
NEAREST = 3
#: Of more hosts that are told one by one, those are looked at that fail by the fewest parts.
MOST_ALONE = 200


@dataclasses.dataclass(frozen=True, slots=True)
class HostTold:
    """One host that cannot hold a request: what it lacks, and whether others hold that."""

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
    """A refused host, and how little it lacks."""

    tree: int
    is_never: bool  #: it never could, for sure
    rank: tuple[int, float, int]  #: qualities, parts of amounts, and its place among all


class Explanation(Shared):
    """Why hosts cannot hold a request, and whether they ever could.

    The answer first, in one line: :attr:`answer`. Then figures: :attr:`stages`, what each part of
    the request left of the hosts; :meth:`nearest`, the hosts that come nearest; and of every host
    :meth:`by_host` its reasons, with all who hold what is missing, and :attr:`outlooks`, whether it
    could if nobody held anything. ``str()`` has one line per host for the first 20, then how many
    more fail by which constraint (a host that fails by two counts for both); :meth:`to_dict` has
    all of it.

    Nothing is computed before it is looked at. Then the answer costs some passes over the fleet,
    and a refused host some 10 microseconds; 50 or more where only a decision tells, for what it
    asks lies over a tree, is shared, or of a pool.

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
        self._known: dict[int, tuple[Reason, ...]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._problem, self._outcome)

    @functools.cached_property
    def answer(self) -> str:
        """The answer in one line. Cost: some passes over the fleet."""
        return answer(self._problem, self._outcome, self._outlooks, self._line_of)

    def _line_of(self, tree: int) -> str:
        return _line(self._hosts[tree], self._of_tree(tree))

    @property
    def outlooks(self) -> Mapping[str, Outlook]:
        """Of each refused host whether it could hold the request if nobody held anything.

        What is out of service stays so, and so do limits. Where the budget ran out on that it is
        unknown, never a no. Cost: some passes over the fleet; for each host that they do not decide
        and that is like no other some 200 microseconds.
        """
        refused = self._outcome.refused.tolist()
        return {
            self._hosts[tree]: one
            for tree, one in zip(refused, self._outlook(refused), strict=True)
        }

    def nearest(self, count: int = NEAREST) -> tuple[HostTold, ...]:
        """Return the refused hosts that come nearest to holding the request.

        The hosts are ordered by these keys:

        1. hosts that could hold the request if nothing were allocated, before all others;
        2. the number of qualities that a host lacks, such as a trait, or any inventory of a class;
        3. the missing amounts, each as a fraction of the requested amount, summed;
        4. the name, in natural order.

        What is disabled counts only where nothing else is missing: a disabled device is not free,
        so the missing amount counts it already. Of more than 200 hosts that are decided one by one,
        only those are looked at that fail by the fewest parts of the request.

        :raises InvalidInput: for a count below 1
        """
        if type(count) is not int or count < 1:
            raise exceptions.InvalidInput("request", "nearest", count, "an integer of 1 or more")
        found: list[HostTold] = []
        never: list[_Ranked] = []
        rest: Iterator[_Ranked] = iter(())
        ranked = self._ranked()
        for one in ranked:
            if one.is_never:  # and so are all after it
                rest = itertools.chain([one], ranked)
                break
            (outlook,) = self._outlook([one.tree])
            if outlook is Outlook.NEVER:
                never.append(one)
                continue
            found.append(self._told(one.tree, outlook))
            if len(found) == count:
                return tuple(found)
        hopeless = heapq.merge(never, rest, key=lambda one: one.rank)
        for one in itertools.islice(hopeless, count - len(found)):
            found.append(self._told(one.tree, Outlook.NEVER))
        return tuple(found)

    def _told(self, tree: int, outlook: Outlook) -> HostTold:
        return HostTold(self._hosts[tree], outlook, self._of_tree(tree))

    def _ranked(self) -> Iterator[_Ranked]:
        """Yield refused hosts, those first that lack least; those last that surely never could."""
        many, refused = self._many, self._outcome.refused
        alone = many.open
        if len(alone) > MOST_ALONE:  # those that fail by the fewest parts, as arrays see it
            failed = np.zeros(len(self._hosts), dtype=np.int64)
            for condition in self._problem.conditions:
                if (passing := condition.mask()) is not None:
                    failed += ~passing
            alone = alone[np.argsort(failed[alone], kind="stable")][:MOST_ALONE]
        lacks = many.lacks()
        self._find(alone.tolist())
        for tree in alone.tolist():
            lacks.qualities[tree] = lacks.lack[tree] = 0
            lacks.add(tree, self._of_tree(tree))
        left_out = np.setdiff1d(many.open, alone)
        some = refused[np.isin(refused, left_out, invert=True)] if len(left_out) else refused
        never = np.zeros(len(self._hosts), dtype=np.bool_)
        if self._outlooks is not None:
            never = self._outlooks.never.copy()
        keys = (never[some], lacks.qualities[some], lacks.lack[some])
        order = np.lexsort(keys[::-1])
        ordered, ranks = some[order], zip(*(one[order].tolist() for one in keys), strict=True)
        # hosts are in the order of their names, which is not the natural one; only ties need that
        pairs = list(zip(ranks, ordered.tolist(), strict=True))
        place = itertools.count()
        for (is_never, qualities, lack), same in itertools.groupby(pairs, key=lambda pair: pair[0]):
            for tree in self._naturally([tree for _, tree in same]):
                yield _Ranked(tree, bool(is_never), (qualities, lack, next(place)))

    def _outlook(self, trees: Sequence[int]) -> list[Outlook]:
        if self._outlooks is None:
            return [Outlook.UNKNOWN] * len(trees)
        return self._outlooks.of(trees)

    @functools.cached_property
    def _outlooks(self) -> Outlooks | None:
        return None if self._outcome.outlooks is None else self._outcome.outlooks()

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every reason of every refused host, in the order of the hosts' names."""
        return tuple(reason for _, reasons in self.by_host() for reason in reasons)

    def first_reasons(self, count: int) -> tuple[tuple[Reason, ...], int]:
        """Return the first of :attr:`reasons`, and how many more there are."""
        found: list[Reason] = []
        refused = self._outcome.refused.tolist()
        self._find(refused[:count])
        for tree in refused:
            if len(found) >= count:
                break
            found += self._of_tree(tree)
        return tuple(found[:count]), max(0, self._many.count() - count)

    def of(self, host: str) -> tuple[Reason, ...]:
        """Return the reasons of one host; none if it was not refused."""
        refused = self._outcome.refused.tolist()
        return next((self._of_tree(one) for one in refused if self._hosts[one] == host), ())

    @property
    def undecided(self) -> tuple[str, ...]:
        """The hosts on which the budget ran out: neither yes nor no."""
        return tuple(self._hosts[tree] for tree in self._outcome.undecided)

    def by_host(self) -> Iterator[tuple[str, tuple[Reason, ...]]]:
        """Yield each refused host with its reasons, in the order of names."""
        refused = self._outcome.refused.tolist()
        if len(self._known) < len(refused):
            self._known = self._many.by_tree()
        for tree in refused:
            yield self._hosts[tree], self._of_tree(tree)

    @functools.cached_property
    def stages(self) -> tuple[Stage, ...]:
        """What each part of the request left of the hosts, in order."""
        return tuple(stages(self._problem, self._outcome.told, self._outcome.refused))

    @property
    def emptied(self) -> Stage | None:
        """The stage after which no host was left; None if some was, or there was none at all."""
        return emptied(self.stages)

    def to_dict(self, hosts: int | None = None) -> dict[str, Any]:
        """Return plain data for JSON.

        :param hosts: reasons of at most so many hosts, of those that come nearest, and as many
            undecided ones; None: of all. ``more`` counts the others
        """
        if hosts is None:
            refused, outlooks = dict(self.by_host()), dict(self.outlooks)
        else:
            near = self.nearest(hosts) if hosts else ()
            refused = {one.host: one.reasons for one in near}
            outlooks = {one.host: one.outlook for one in near}
        undecided = self.undecided[:hosts]
        untold = len(self._outcome.refused) + len(self._outcome.undecided)
        return {
            "answer": self.answer,
            "nearest": [one.host for one in self.nearest()],
            "refused": {
                host: [reason.to_dict() for reason in reasons] for host, reasons in refused.items()
            },
            "outlooks": {host: one.value for host, one in outlooks.items()},
            "undecided": list(undecided),
            "stages": [stage.to_dict() for stage in self.stages],
            "more": untold - len(refused) - len(undecided),
        }

    @functools.cached_property
    def _many(self) -> HostReasons:
        return HostReasons(self._problem, self._outcome.refused, self._needs_decision)

    def _of_tree(self, tree: int) -> tuple[Reason, ...]:
        if tree not in self._known:
            self._find([tree])
        return self._known[tree]

    def _find(self, trees: Iterable[int]) -> None:
        """Find the reasons of some refused hosts."""
        some = integers(sorted(set(trees) - self._known.keys()))
        if len(some):
            self._known |= HostReasons(self._problem, some, self._needs_decision).by_tree()

    @functools.cached_property
    def _needs_decision(self) -> Booleans:
        return needs_decision(self._problem)

    def __str__(self) -> str:
        if not self._outcome.told.any():
            return "there are no hosts"
        return "\n".join([*self._refused(), *self._open()]) or "no host was left out"

    def _naturally(self, trees: Sequence[int]) -> Iterator[int]:
        """Yield ascending trees as people list machines: ``lab-2`` before ``lab-10``."""
        return (trees[at] for at in in_natural_order([self._hosts[tree] for tree in trees]))

    def _refused(self) -> Iterator[str]:
        refused = self._outcome.refused.tolist()
        shown = list(itertools.islice(self._naturally(refused), SHOWN_HOSTS))
        self._find(shown)
        for tree in shown:
            yield _line(self._hosts[tree], self._of_tree(tree))
        is_shown = np.zeros(len(self._hosts), dtype=np.bool_)
        is_shown[shown] = True
        rest = self._outcome.refused[~is_shown[self._outcome.refused]]
        if len(rest):
            counts = self._many.labels(rest)
            told = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            yield f"and {_more(len(rest))}: {', '.join(f'{name} {n}' for name, n in told)}"

    def _open(self) -> Iterator[str]:
        undecided = self._outcome.undecided
        for tree in itertools.islice(self._naturally(undecided), SHOWN_HOSTS):
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
    host0: PGPU requested 3, free 1 of 4 (job-1 holds 1, job-2 holds 1, job-3 holds 1 and 1 more)
    """
    parts = [
        dataclasses.replace(reason, where=None) if reason.where == host else reason
        for reason in reasons
    ]
    return f"{host}: {'; '.join(sentences(parts))}"


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
    ``requested`` is the requested amount of ``resource``, ``most`` the largest amount of it that a
    host before the stage can be given: by one provider, or by several devices of the host together
    where these may share the amount. Both are None where no amount is compared.
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
            ""
            if self.requested is None
            else f" (requested {self.requested}, most free {self.most})"
        )
        return f"{where}{told}{figures}: {self.before} -> {self.after} hosts"


def stages(problem: Problem, told: Booleans, refused: Integers) -> Iterator[Stage]:
    """Yield the stages of a search, in order.

    :param told: the trees that it is about
    :param refused: the trees that cannot hold the request, by whatever stage
    """
    left = told
    decided = np.ones(len(left), dtype=np.bool_)
    decided[refused] = False
    every = (cut for condition in problem.conditions for cut in condition.checks())
    for cut in itertools.chain(every, [Check(decided, Rule.TOGETHER)]):
        most = None if cut.rows is None else most_together(problem, cut, left).amount
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


def emptied(every: Iterable[Stage]) -> Stage | None:
    """Return the stage after which no host was left, None if some was, or none there at all."""
    return next((one for one in every if one.before and not one.after), None)
