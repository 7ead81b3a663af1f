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
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.disabled import disabled_for
from resource_objects.search.eligibility import OWN, POOL
from resource_objects.search.feasibility import Feasibility, SearchOutcome
from resource_objects.search.findings import Check, sums
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
    last = considered
    for check, before, after in _checked(problem, considered):
        yield _stage(problem, check, before, after)
        last = after
    yield _stage(problem, Check(is_decided, Rule.TOGETHER), last, last & is_decided)


def _checked(problem: Problem, considered: Booleans) -> Iterator[tuple[Check, Booleans, Booleans]]:
    """Yield each check, with the hosts before and after it."""
    left = considered
    for condition in problem.conditions:
        for check in _in_order(condition.checks()):
            before, left = left, left & check.passing
            yield check, before, left


def _in_order(checks: Iterator[Check]) -> Iterator[Check]:
    """Yield the checks of a condition that are stages, in order."""
    whole = next(checks, None)
    yield from checks
    if whole is not None and whole.rule is not Rule.TOGETHER:
        yield whole


def _stage(problem: Problem, check: Check, before: Booleans, after: Booleans) -> Stage:
    return Stage(
        check.group,
        check.rule,
        before=int(np.count_nonzero(before)),
        after=int(np.count_nonzero(after)),
        resource=check.resource,
        label=check.label,
        requested=check.amount,
        most=None if check.rows is None else _most_free(problem, check, before).amount,
    )


def emptied(every: Iterable[Stage]) -> Stage | None:
    """Return the stage that leaves no host; None if some are left, or there are none at all."""
    return next((stage for stage in every if stage.before and not stage.after), None)


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
        parts = [f"{outcome.found:,} of {_hosts(hosts)} can hold it"]
        parts += [f"{refused:,} cannot"] if refused else []
        parts += [f"of {undecided:,} it is not known, the budget ran out"] if undecided else []
        if outcome.unseen:
            parts.append(f"{outcome.unseen:,} were not looked at, the limit was reached")
        return "; ".join(parts)
    if undecided:
        rest = f"; the other {refused:,} cannot" if refused else ""
        return (
            f"not known: the budget of {outcome.budget:,} steps ran out on {undecided:,} of "
            f"{_hosts(hosts)}{rest}"
        )
    if outcome.unseen:
        return f"not known of {_hosts(outcome.unseen)}: the limit was reached before"
    why = _why(problem, outcome, line)
    return why if feasibility is None else f"{why}; {_if_released(outcome, feasibility)}"


def _if_released(outcome: SearchOutcome, feasibility: Feasibility) -> str:
    """Return how many hosts could hold the request if nothing were allocated."""
    sure, perhaps = feasibility.bounds(outcome.refused)
    if not perhaps:
        return "none could, even if nobody held anything"
    if sure == perhaps == outcome.hosts:
        return f"{'each' if sure > 1 else 'it'} could if nobody held anything"
    number = f"{sure:,}" if sure == perhaps else f"at most {perhaps:,}"
    return f"{number} of {_hosts(outcome.hosts)} could if nobody held anything"


def _hosts(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


def _who(hosts: int, count: int) -> str:
    """Return the hosts that a check leaves out, of those before it."""
    if count == hosts:
        return "no host"
    return f"none of the {count:,} hosts that are left" if count > 1 else "not even the host left"


def _why(problem: Problem, outcome: SearchOutcome, line: Callable[[int], str]) -> str:
    """Return the check that leaves no host; if there is none, the reasons of one host."""
    hosts, left = outcome.hosts, outcome.considered
    for condition in problem.conditions:
        checks = condition.checks()
        whole = next(checks, None)
        if whole is None:
            continue
        if whole.rule is not Rule.TOGETHER and (left & whole.passing).any():
            left = left & whole.passing  # so each of its parts leaves a host
            continue
        for check in _in_order(itertools.chain([whole], checks)):
            before, left = left, left & check.passing
            if not left.any():
                count = int(np.count_nonzero(before))
                who, rest = _who(hosts, count), hosts - count
                others = f" ({'1 other fails' if rest == 1 else f'{rest:,} others fail'} before)"
                lacking = _lacking(problem, check, before)
                return f"{who} {lacking}{others if rest else ''}"
    count = int(np.count_nonzero(left))
    whose = "each host seems"
    if count < hosts:
        whose = f"{count:,} of {_hosts(hosts)} seem{'s' if count == 1 else ''}"
    first = line(int(left.argmax()))
    return f"{whose} to have room for each part of it, none can give all: {first}"


#: What no host does, by the rule of a check.
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


def _lacking(problem: Problem, check: Check, hosts: Booleans) -> str:
    """Return what some hosts lack by a check."""
    group = f" for group {check.group}" if check.group else ""
    if check.rule is Rule.CAPACITY and check.amount is not None:
        return _lacking_amount(problem, check, hosts, group)
    if check.rule is Rule.CAPACITY:
        parts = [check.resource, check.words, None if check.resource is None else "as it is asked"]
        return f"has room for {' '.join(filter(None, parts))}{group}"
    if check.words:
        verb = "has any" if check.rule is Rule.NO_INVENTORY else "has"
        return f"{verb} {check.words}{group}"
    words = _WORDS.get(check.rule, "passes {label}")
    return words.format(resource=check.resource, label=check.label or check.rule.value) + group


def _lacking_amount(problem: Problem, check: Check, hosts: Booleans, group: str) -> str:
    """Return the amount that some hosts lack, and the most that one has free."""
    assert check.amount is not None, "the check compares amounts"
    words = f" {check.words}" if check.words else ""
    requested = f"{check.resource}={check.amount}{words}"
    most = _most_free(problem, check, hosts)
    within = f"{group} within the limits" if most.is_limited else group
    if most.amount >= check.amount:
        return f"can give {requested}{within}, though {most.where} has {most.amount} free"
    if not most.amount:
        return f"has any {check.resource}{words} free{within}, requested {check.amount}"
    return f"has {requested} free{within}, the most is {most.amount} of {most.where}"


class _Most(NamedTuple):
    """The most that is free of a class."""

    amount: int
    where: str = ""  #: the provider, or the host whose devices have it together
    is_limited: bool = False  #: an inventory is under a limit


def _most_free(problem: Problem, check: Check, hosts: Booleans) -> _Most:
    """Return the most free of a class for some hosts: at one provider, or at several devices."""
    fleet, rows = problem.fleet, check.rows
    assert rows is not None, "the check compares amounts"
    disabled = disabled_for(fleet, problem.request)
    is_enabled = np.ones(len(rows.tree), np.bool_)
    if disabled is not None:
        is_enabled = ~disabled[rows.provider]
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
        return _Most(0)
    entry = int(free.argmax())
    where = fleet.names[int(rows.provider[entry])]
    most = _Most(int(free[entry]), where, _are_limited(fleet, rows, able))
    if check.divisible is None:
        return most
    devices = check.divisible & hosts[rows.tree] & is_enabled
    total = sums(rows.free[devices].clip(0), rows.tree[devices], len(hosts))
    tree = int(total.argmax())
    if total[tree] < most.amount:
        return most
    return _Most(int(total[tree]), fleet.hosts[tree], _are_limited(fleet, rows, devices))


def _are_limited(fleet: Fleet, rows: ClassRows, entries: Booleans) -> bool:
    """Return True if some of the inventories are under limits."""
    return bool(fleet.limited) and not fleet.limited.keys().isdisjoint(
        (np.flatnonzero(entries) + rows.first).tolist()
    )
