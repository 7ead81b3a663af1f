"""The stages of a search, and the answer to "why is there no candidate?" in one line.

Both look at arrays only, whatever the number of hosts. The stages are the checks of the conditions,
each on the hosts that the ones before it left, then the exact decision. The answer names the first
check that leaves no host, the requested amount and the most that is free; then how many hosts could
hold the request if nothing were allocated.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from resource_objects.reasons import Rule
from resource_objects.search.arrays import Booleans, Integers, sums_by
from resource_objects.search.eligibility import OWN, POOL
from resource_objects.search.feasibility import Feasibility, SearchOutcome
from resource_objects.search.findings import Check
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.problem import Problem


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """The number of hosts that one part of a request leaves.

    ``group`` are the suffixes of the groups, ``""`` for the unnamed one, None for the host or all
    groups; ``rule`` is what fails, ``label`` the trait, aggregate or provider of a condition.
    ``requested`` is the requested amount of ``resource``, ``most`` the largest amount of it that a
    host before the stage can be allocated: by one provider, or by several devices of the host
    together where these may share the amount. Both are None where no amount is compared.
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
        group = f"group {self.group}: " if self.group else ""
        parts = (self.rule.value.replace("_", " "), self.resource, self.label)
        figures = ""
        if self.requested is not None:
            figures = f" (requested {self.requested}, most free {self.most})"
        words = " ".join(filter(None, parts))
        return f"{group}{words}{figures}: {self.before} -> {self.after} hosts"


def stages(problem: Problem, considered: Booleans, refused: Integers) -> Iterator[Stage]:
    """Yield the stages of a search, in order.

    :param considered: by tree, the hosts of the search
    :param refused: the trees that cannot hold the request, by whatever stage
    """
    is_decided = np.ones(len(considered), dtype=np.bool_)
    is_decided[refused] = False
    after = considered
    for condition in problem.conditions:
        for check in _stage_checks(condition.checks()):
            before, after = after, after & check.passing
            yield _stage(problem, check, before, after)
    yield _stage(problem, Check(is_decided, Rule.TOGETHER), after, after & is_decided)


def _stage_checks(checks: Iterator[Check]) -> Iterator[Check]:
    """Yield the checks of a condition that are stages, in order."""
    first = next(checks, None)
    yield from checks
    if first is not None and first.rule is not Rule.TOGETHER:
        yield first


def _stage(problem: Problem, check: Check, before: Booleans, after: Booleans) -> Stage:
    return Stage(
        check.group,
        check.rule,
        before=int(np.count_nonzero(before)),
        after=int(np.count_nonzero(after)),
        resource=check.resource,
        label=check.label,
        requested=check.amount,
        most=None if check.rows is None else _max_free(problem, check, before).amount,
    )


def first_empty(stages: Iterable[Stage]) -> Stage | None:
    """Return the stage that leaves no host; None if some are left, or there are none at all."""
    return next((stage for stage in stages if stage.before and not stage.after), None)


# --- the answer ---------------------------------------------------------------------------------


def answer(
    problem: Problem,
    outcome: SearchOutcome,
    feasibility: Feasibility | None,
    line: Callable[[int], str],
) -> str:
    """Return the answer in one line. Cost: some passes over the fleet.

    :param feasibility: None if it is not known
    :param line: returns the reasons of one host as a line
    """
    hosts, refused, undecided = outcome.hosts, len(outcome.refused), len(outcome.undecided)
    if not hosts:
        return "there are no hosts"
    if outcome.found:
        parts = [f"{outcome.found:,} of {_count_of_hosts(hosts)} can hold it"]
        parts += [f"{refused:,} cannot"] if refused else []
        parts += [f"of {undecided:,} it is not known, the budget ran out"] if undecided else []
        if outcome.unseen:
            parts.append(f"{outcome.unseen:,} were not looked at, the limit was reached")
        return "; ".join(parts)
    if undecided:
        rest = f"; the other {refused:,} cannot" if refused else ""
        return (
            f"not known: the budget of {outcome.budget:,} steps ran out on {undecided:,} of "
            f"{_count_of_hosts(hosts)}{rest}"
        )
    if outcome.unseen:
        return f"not known of {_count_of_hosts(outcome.unseen)}: the limit was reached before"
    why = _refusal(problem, outcome, line)
    return why if feasibility is None else f"{why}; {_feasible_in_words(outcome, feasibility)}"


def _feasible_in_words(outcome: SearchOutcome, feasibility: Feasibility) -> str:
    """Return the number of hosts that could hold the request if nothing were allocated."""
    least, most = feasibility.bounds(outcome.refused)
    if not most:
        return "none could, even if nobody held anything"
    if least == most == outcome.hosts:
        return f"{'each' if least > 1 else 'it'} could if nobody held anything"
    number = f"{least:,}" if least == most else f"at most {most:,}"
    return f"{number} of {_count_of_hosts(outcome.hosts)} could if nobody held anything"


def _count_of_hosts(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


def _refusal(problem: Problem, outcome: SearchOutcome, line: Callable[[int], str]) -> str:
    """Return the check that leaves no host; if there is none, the reasons of one host."""
    hosts, passing = outcome.hosts, outcome.considered
    for condition in problem.conditions:
        checks = condition.checks()
        first = next(checks, None)
        if first is None:
            continue
        if first.rule is not Rule.TOGETHER and (passing & first.passing).any():
            passing = passing & first.passing  # so each part of the condition leaves a host
            continue
        for check in _stage_checks(itertools.chain([first], checks)):
            before, passing = passing, passing & check.passing
            if not passing.any():
                return _failed_check(problem, check, before, hosts)
    count = int(np.count_nonzero(passing))
    subject = "each host seems"
    if count < hosts:
        subject = f"{count:,} of {_count_of_hosts(hosts)} seem{'s' if count == 1 else ''}"
    reasons = line(int(passing.argmax()))
    return f"{subject} to have room for each part of it, none can give all: {reasons}"


def _failed_check(problem: Problem, check: Check, before: Booleans, hosts: int) -> str:
    """Return what the hosts before a check lack, and the number of the hosts that failed before."""
    count, missing = int(np.count_nonzero(before)), _missing(problem, check, before)
    if count == hosts:
        return f"no host {missing}"
    failed = "1 other fails" if hosts - count == 1 else f"{hosts - count:,} others fail"
    subject = (
        f"none of the {count:,} hosts that are left" if count > 1 else "not even the host left"
    )
    return f"{subject} {missing} ({failed} before)"


#: What each check requires of a host, by its rule, worded to follow "none of the hosts".
_WORDS = {
    Rule.NO_INVENTORY: "has any {resource}",
    Rule.ROOT_TRAIT_MISSING: "has {label} itself",
    Rule.ROOT_TRAIT_FORBIDDEN: "is without {label} itself",
    Rule.AGGREGATE_MISSING: "is in {label}",
    Rule.AGGREGATE_FORBIDDEN: "is outside {label}",
    Rule.OTHER_TREE: "is of the tree of {label}",
    Rule.DISABLED: "is in service",
    Rule.GROUPS: "can give all groups",
    Rule.NEAR: "has room for all of it in one {label}",
}


def _missing(problem: Problem, check: Check, hosts: Booleans) -> str:
    """Return the words for what hosts lack by a check."""
    group = f" for group {check.group}" if check.group else ""
    if check.rule is Rule.CAPACITY and check.amount is not None:
        return _missing_amount(problem, check, hosts, group)
    if check.rule is Rule.CAPACITY:
        parts = [check.resource, check.words, None if check.resource is None else "as it is asked"]
        return f"has room for {' '.join(filter(None, parts))}{group}"
    if check.words:
        verb = "has any" if check.rule is Rule.NO_INVENTORY else "has"
        return f"{verb} {check.words}{group}"
    words = _WORDS.get(check.rule, "passes {label}")
    return words.format(resource=check.resource, label=check.label or check.rule.value) + group


def _missing_amount(problem: Problem, check: Check, hosts: Booleans, group: str) -> str:
    """Return the amount that some hosts lack, and the most that one has free."""
    assert check.amount is not None, "the check compares amounts"
    words = f" {check.words}" if check.words else ""
    requested = f"{check.resource}={check.amount}{words}"
    most = _max_free(problem, check, hosts)
    within = f"{group} within the limits" if most.is_limited else group
    if most.amount >= check.amount:
        return f"can give {requested}{within}, though {most.where} has {most.amount} free"
    if not most.amount:
        return f"has any {check.resource}{words} free{within}, requested {check.amount}"
    return f"has {requested} free{within}, the most is {most.amount} of {most.where}"


class _MaxFree(NamedTuple):
    """The most that is free of a class."""

    amount: int
    where: str = ""  #: the provider, or the host whose devices have it together
    is_limited: bool = False  #: an inventory is under a limit


def _max_free(problem: Problem, check: Check, hosts: Booleans) -> _MaxFree:
    """Return the most free of a class for some hosts: at one provider, or at several devices."""
    fleet, rows = problem.fleet, check.rows
    assert rows is not None, "the check compares amounts"
    is_enabled = np.ones(len(rows.tree), np.bool_)
    if problem.disabled is not None:
        is_enabled = ~problem.disabled[rows.provider]
    allowed = np.stack([~rows.is_part] * 2) if check.allowed is None else check.allowed
    able = allowed[OWN] & is_enabled & hosts[rows.tree]
    if len(allowed) > 1 and fleet.has_pools:
        linked = hosts.copy()
        if problem.rules.host_gives:
            linked[list(fleet.pools.trees)] = False
        is_linked = np.isin(rows.provider, fleet.pools.giving_to(linked))
        able |= allowed[POOL] & is_enabled & is_linked
    free = np.where(able & ~rows.is_part, rows.free.clip(0), 0)
    if not len(free):
        return _MaxFree(0)
    entry = int(free.argmax())
    where = fleet.names[int(rows.provider[entry])]
    most = _MaxFree(int(free[entry]), where, _has_limits(fleet, rows, able))
    if check.divisible is None:
        return most
    devices = check.divisible & hosts[rows.tree] & is_enabled
    total = sums_by(rows.free[devices].clip(0), rows.tree[devices], len(hosts))
    tree = int(total.argmax())
    if total[tree] < most.amount:
        return most
    return _MaxFree(int(total[tree]), fleet.hosts[tree], _has_limits(fleet, rows, devices))


def _has_limits(fleet: Fleet, rows: ClassRows, entries: Booleans) -> bool:
    """Return True if some of the inventories are under limits."""
    return bool(fleet.limited) and not fleet.limited.keys().isdisjoint(
        (np.flatnonzero(entries) + rows.first).tolist()
    )
