"""The answer to "why is there no candidate?" in one line that a person understands.

What stops the last hosts is told first: the part of the request after which none is left, what is
asked of it, and the most that there is. Then how many hosts could if nobody held anything. Only
arrays are looked at, so the line is there at once, however many hosts there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from resource_objects.reasons import Rule
from resource_objects.search.arrays import Booleans
from resource_objects.search.conditions.base import OWN, POOL, Check, sums
from resource_objects.search.conditions.disabled import disabled_for
from resource_objects.search.feasibility import Outlooks, SearchOutcome
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.problem import Problem


def answer(
    problem: Problem,
    outcome: SearchOutcome,
    outlooks: Outlooks | None,
    line: Callable[[int], str],
) -> str:
    """Return the answer in one line. Cost: some passes over the fleet.

    :param outlooks: of the hosts, if it is known what would be were all given back
    :param line: tells why one host cannot
    """
    hosts, refused, undecided = outcome.hosts, len(outcome.refused), len(outcome.undecided)
    if not hosts:
        return "there are no hosts"
    if outcome.found:
        return _some(outcome)
    if undecided:
        rest = f"; the other {refused:,} cannot" if refused else ""
        return (
            f"not known: the budget of {outcome.budget:,} steps ran out on {undecided:,} of "
            f"{_hosts(hosts)}{rest}"
        )
    if outcome.unseen:
        return f"not known of {_hosts(outcome.unseen)}: the limit was reached before"
    why = _why(problem, outcome, line)
    return why if outlooks is None else f"{why}; {_then(outcome, outlooks)}"


def _some(outcome: SearchOutcome) -> str:
    more = [
        text
        for count, text in (
            (len(outcome.refused), "{:,} cannot"),
            (len(outcome.undecided), "of {:,} it is not known, the budget ran out"),
            (outcome.unseen, "{:,} were not looked at, the limit was reached"),
        )
        if count
        for text in [text.format(count)]
    ]
    return "; ".join([f"{outcome.found:,} of {_hosts(outcome.hosts)} can hold it", *more])


def _then(outcome: SearchOutcome, outlooks: Outlooks) -> str:
    """Return how many could if nobody held anything."""
    sure, perhaps = outlooks.bounds(outcome.refused)
    if not perhaps:
        return "none could, even if nobody held anything"
    number = f"{sure:,}" if sure == perhaps else f"at most {perhaps:,}"
    if sure == perhaps == outcome.hosts:
        return (
            "each could if nobody held anything" if sure > 1 else "it could if nobody held anything"
        )
    return f"{number} of {_hosts(outcome.hosts)} could if nobody held anything"


def _hosts(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


# --- what stops them ----------------------------------------------------------------------------


def _why(problem: Problem, outcome: SearchOutcome, line: Callable[[int], str]) -> str:
    """Return the part of the request after which no host is left; if there is none, of one why."""
    left, hosts = outcome.told, outcome.hosts
    for condition in problem.conditions:
        for cut in condition.checks():
            passing = left & cut.passing
            if left.any() and not passing.any():
                count = int(np.count_nonzero(left))
                who = "no host" if count == hosts else _left(count)
                others = _others(hosts - count)
                return f"{who} {_of_cut(problem, cut, left)}{others}"
            left = passing
    count = int(np.count_nonzero(left))
    whose = "each host seems" if count == hosts else f"{count:,} of {_hosts(hosts)} seem"
    whose += "s" if count == 1 < hosts else ""
    first = line(int(left.argmax()))
    return f"{whose} to have room for each part of it, none can give all: {first}"


def _left(count: int) -> str:
    return f"none of the {count:,} hosts that are left" if count > 1 else "not even the host left"


def _others(count: int) -> str:
    if not count:
        return ""
    return " (1 other fails before)" if count == 1 else f" ({count:,} others fail before)"


#: What none of the hosts does, for each rule of a part of a request.
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


def _of_cut(problem: Problem, cut: Check, left: Booleans) -> str:
    """Return what one part asks for that none of the hosts before it has."""
    group = f" for group {cut.group}" if cut.group else ""
    if cut.rule is Rule.CAPACITY and cut.amount is not None:
        return _amount(problem, cut, left, group)
    if cut.rule is Rule.CAPACITY:
        what = [cut.resource, cut.words, None if cut.resource is None else "as it is asked"]
        return f"has room for {' '.join(filter(None, what))}{group}"
    if cut.words:
        said = "has any" if cut.rule is Rule.NO_INVENTORY else "has"
        return f"{said} {cut.words}{group}"
    words = _WORDS.get(cut.rule, "passes {label}")
    return words.format(resource=cut.resource, label=cut.label or cut.rule.value) + group


def _amount(problem: Problem, cut: Check, left: Booleans, group: str) -> str:
    """Return how much none has, and the most that there is."""
    assert cut.amount is not None, "it is a question of amounts"
    words = f" {cut.words}" if cut.words else ""
    asked = f"{cut.resource}={cut.amount}{words}"
    most, where, is_limited = most_together(problem, cut, left)
    within = f"{group} within the limits" if is_limited else group
    if most >= cut.amount:
        return f"can give {asked}{within}, though {where} has {most} free"
    if not most:
        return f"has any {cut.resource}{words} free{within}, requested {cut.amount}"
    return f"has {asked} free{within}, the most is {most} of {where}"


class Most(NamedTuple):
    """The most that there is free of a class, and who has it."""

    amount: int
    where: str
    is_limited: bool = False  #: less is there to be had than there is


def _most_free(problem: Problem, cut: Check, left: Booleans) -> Most:
    """Return the most of a class that one provider has free that may give it to some hosts."""
    fleet, rows = problem.fleet, cut.rows
    assert rows is not None, "it is a question of amounts"
    may = np.stack([~rows.is_part] * 2) if cut.allowed is None else cut.allowed
    may = may & _in_service(problem, rows)
    able = may[OWN] & left[rows.tree]
    if len(may) > 1 and fleet.pools:
        to = left.copy()
        if problem.rules.host_gives:
            to[list(fleet.pools.trees)] = False
        able |= may[POOL] & np.isin(rows.provider, fleet.pools.giving_to(to))
    free = np.where(able & ~rows.is_part, rows.free.clip(0), 0)
    if not len(free):
        return Most(0, "")
    entry = int(free.argmax())
    where = fleet.names[int(rows.provider[entry])]
    return Most(int(free[entry]), where, _is_limited(fleet, rows, able))


def most_together(problem: Problem, cut: Check, left: Booleans) -> Most:
    """Return the most free of a class at one provider, or at devices that may share an amount."""
    alone, rows, fleet = _most_free(problem, cut, left), cut.rows, problem.fleet
    if cut.divisible is None or rows is None:
        return alone
    some = cut.divisible & left[rows.tree] & _in_service(problem, rows)
    each = sums(rows.free[some].clip(0), rows.tree[some], len(left))
    tree = int(each.argmax())
    if each[tree] < alone.amount:
        return alone
    return Most(int(each[tree]), fleet.hosts[tree], _is_limited(fleet, rows, some))


def _in_service(problem: Problem, rows: ClassRows) -> Booleans:
    """Return which inventories of a class are at providers that are in service."""
    disabled = disabled_for(problem.fleet, problem.request)
    return np.ones(len(rows.tree), np.bool_) if disabled is None else ~disabled[rows.provider]


def _is_limited(fleet: Fleet, rows: ClassRows, entries: Booleans) -> bool:
    """Return whether some inventories of a class are under limits."""
    if not fleet.limited:
        return False
    numbers = np.flatnonzero(entries) + rows.first
    return not fleet.limited.keys().isdisjoint(numbers.tolist())
