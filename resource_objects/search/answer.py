"""The outcome of a search by host, its stages, and the answer in one line.

The stages are the checks of the conditions, each on the hosts that the ones before it left, then
the exact decision. The answer to "why is there no candidate?" names the first check that leaves no
host, the requested amount and the most that is free. Both look at arrays only, so their cost does
not depend on the number of hosts that fail.

The answer ends with the number of hosts that could hold the request if nothing were allocated
(:class:`Feasibility`). Of each class of hosts in the same state, one is decided
(:class:`HostClasses`). The state of a host is all that the search reads of it: the eligible
providers, their free amounts and, where units are chosen, the units and those that are allocated.
Of a resource class that is requested in one amount only, by one provider each time, the state has
how often that amount is free: a host with 9 free CPUs is like one with 8 if 4 are requested.
Providers are compared by their positions in the tree, and childless siblings in any order if
nothing ties them. A host that a pool serves is in a class of its own. Nomad has the same idea: the
computed class of a node.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.resources.backtracking import Budget
from resource_objects.search.arrays import Booleans, Integers, sums_by
from resource_objects.search.candidate import Candidate
from resource_objects.search.eligibility import OWN, POOL
from resource_objects.search.equivalence import equivalence
from resource_objects.search.findings import Check
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.order import Options, Order, Preference
from resource_objects.search.problem import (
    Problem,
    compile_request,
    decide_by_arrays,
    possible_trees,
)
from resource_objects.search.tree_search import TreeSearch


def _codes(columns: Integers) -> Integers:
    """Return equal numbers for equal rows of columns; faster than ``np.unique`` of rows."""
    order = np.lexsort(columns)
    ordered = columns[:, order]
    is_new = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    codes = np.zeros(columns.shape[1], dtype=np.int64)
    codes[order[1:]] = is_new.cumsum()
    return codes


class HostClasses:
    """The classes of the hosts of a fleet, for some requests.

    Cost: a sort of the providers; some 50 microseconds for each provider where units are chosen.
    """

    def __init__(self, problems: Sequence[Problem], most: Integers | None = None) -> None:
        """:param problems: requests over one fleet, all of which are searched on a host

        :param most: by tree, an upper bound of how often it can hold all of them; None: unknown
        """
        self._fleet = fleet = problems[0].fleet
        self._most = np.full(len(fleet.tree), MAX_AMOUNT) if most is None else most[fleet.tree]
        nears = [problem.near for problem in problems if problem.near is not None]
        self._domains = [near.level.domain for near in nears]
        self._demands = [demand for problem in problems for demand in problem.classes]
        self._demands += [condition for near in nears for condition in near.classes]
        self._located = [condition for problem in problems for condition in problem.located]
        self._groups = [kind for problem in problems for kind in problem.named.kinds]
        self._rows = {demand.resource_class: demand.rows for demand in self._demands}
        for group in self._groups:
            for name, rows, _ in group.amounts:
                self._rows[name] = rows
        self._chooses_units = bool(self._located) or any(
            not self._rows.keys().isdisjoint(shape)
            for parts in fleet.device_parts.values()
            for shape in parts.shapes
        )
        self._code = _codes(np.stack(list(self._columns())))
        self._order = np.arange(len(fleet.names))
        if not self._is_detailed and not nears:
            self._sort_siblings()

    def of(self, tree: int) -> Hashable:
        """Return the class of a host: equal only for hosts in the same state."""
        fleet = self._fleet
        if fleet.has_pools and fleet.pools.of_tree(tree):
            return tree
        here = fleet.of_tree(tree)
        at = slice(here.start, here.stop)
        parents = (fleet.parent[at] - here.start).tobytes()
        details = tuple(map(self._details, here)) if self._is_detailed else ()
        return self._code[self._order[at]].tobytes(), parents, details

    def transfer(self, candidate: Candidate, old: int, new: int) -> Candidate:
        """Return a candidate of one host for another host of the same class."""
        fleet = self._fleet
        before, after = fleet.of_tree(old), fleet.of_tree(new)
        pairs = zip(self._order[before].tolist(), self._order[after].tolist(), strict=True)
        counterpart: dict[int, int] = dict(pairs)

        def moved(key: str) -> int:
            return counterpart[fleet.place_by_key[key]]

        return candidate.replace(
            host=fleet.hosts[new],
            allocations=tuple(
                allocation.replace(
                    provider=fleet.names[moved(allocation.provider)],
                    provider_uuid=fleet.uuids[moved(allocation.provider)],
                )
                for allocation in candidate.allocations
            ),
            generations=tuple(
                (fleet.uuids[moved(uuid)], int(fleet.generation[moved(uuid)]))
                for uuid, _ in candidate.generations
            ),
            mappings=FrozenDict(
                {
                    suffix: tuple(fleet.names[moved(name)] for name in names)
                    for suffix, names in candidate.mappings.items()
                }
            ),
        )

    def _sort_siblings(self) -> None:
        """Order the childless providers below one parent by their state."""
        parent = self._fleet.parent
        is_leaf = np.ones(len(parent), dtype=np.bool_)
        is_leaf[parent] = False
        leaves = np.flatnonzero(is_leaf)
        before = np.lexsort((leaves, parent[leaves]))
        after = np.lexsort((self._code[leaves], parent[leaves]))
        self._order[leaves[before]] = leaves[after]

    def _columns(self) -> Iterator[Integers]:
        """Yield the figures of providers that make up the state, an array for each."""
        count = len(self._fleet.names)
        yield np.zeros(count, dtype=np.int64)
        for group in self._groups:
            yield group.provides_own.astype(np.int64)
        for demand in self._demands:
            flags = (demand.allowed[OWN], demand.provides_all, demand.is_device)
            for flag in (*flags, *(has[OWN] for has in demand.has_required)):
                yield self._spread(demand.rows, flag)
        rows_of = self._rows
        if self._is_detailed:
            rows_of = {name: self._fleet.rows(name) for name in self._fleet.classes}
        for name, rows in rows_of.items():
            amount = self._only_amount(name)
            if amount is not None:
                times: Integers = np.minimum(rows.free.clip(0) // amount, self._most[rows.provider])
                yield self._spread(rows, times)
                continue
            figures: list[Integers | Booleans] = [
                rows.is_part,
                rows.free,
                rows.min_unit,
                rows.max_unit,
                rows.step_size,
            ]
            figures += [rows.capacity, rows.used] if self._is_detailed else []
            yield from (self._spread(rows, values) for values in figures)
        for located in self._located:
            for flag in (located.allowed, *located.has_required):
                column = np.full(count, -1)
                column[located.parts.provider] = flag[OWN]
                yield column
        for domains in self._domains:  # their numbers, from 0 within each tree
            first = np.full(len(self._fleet.hosts), MAX_AMOUNT)
            inside = np.flatnonzero(domains >= 0)
            np.minimum.at(first, self._fleet.tree[inside], domains[inside])
            yield np.where(domains >= 0, domains - first[self._fleet.tree], -1)

    def _spread(self, rows: ClassRows, values: Integers | Booleans) -> Integers:
        column = np.full(len(self._fleet.names), -1)
        column[rows.provider] = values
        return column

    def _only_amount(self, name: str) -> int | None:
        """Return the one amount in which a class is requested, of one provider each time."""
        if self._domains or self._is_detailed:
            return None
        demands = [demand for demand in self._demands if demand.resource_class == name]
        if any(demand.is_split for demand in demands):
            return None
        amounts = {demand.amount for demand in demands}
        for group in self._groups:
            amounts.update(amount for other, _, amount in group.amounts if other == name)
        return amounts.pop() if len(amounts) == 1 else None

    # --- details, where units are chosen or inventories use others ---

    @property
    def _is_detailed(self) -> bool:
        return self._chooses_units or self._fleet.has_shares

    def _details(self, provider: int) -> Hashable:
        """Return the shares of a provider and, if units are chosen, its units and qualities."""
        fleet, alike = self._fleet, equivalence(self._fleet)
        inventories = fleet.inventories.provider
        first = fleet.of_tree(int(fleet.tree[provider])).start
        links = tuple(
            (fleet.class_of(number), int(inventories[of]) - first, fleet.class_of(of), factor)
            for number in alike.inventories(provider)
            for of, factor in fleet.shares.of(number)
        )
        if not self._chooses_units:
            return links
        units = sorted((unit, name) for unit, name, _ in fleet.units.of_provider(provider))
        removed = sorted(fleet.removed_units.get(provider, ()))
        described = self._descriptions.get(provider)
        return links, tuple(units), tuple(removed), described, alike.qualities(provider)

    @functools.cached_property
    def _descriptions(self) -> dict[int, tuple[tuple[str, str], ...]]:
        """The descriptions of cells and devices, by provider."""
        described: dict[int, tuple[tuple[str, str], ...]] = {}
        for kind, parts in self._fleet.parts.items():
            for provider, text in parts.described():
                described[provider] = (*described.get(provider, ()), (kind, text))
        return described


class Outlook(enum.StrEnum):
    """Whether a host could hold a request if nothing were allocated."""

    NOT_NOW = "not_now"  #: it could: what is missing is allocated to consumers
    NEVER = "never"  #: it could not
    UNKNOWN = "unknown"  #: the budget ran out


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """The outcome of a search by host, as trees in the order of names."""

    considered: Booleans  #: all hosts, without the pools that cannot be a host
    refused: Integers  #: the hosts that cannot hold the request
    undecided: tuple[int, ...]  #: the hosts on which the budget ran out
    unseen: int  #: the number of hosts that are not decided because the limit was reached
    budget: int
    #: whether refused hosts are feasible; None: unknown
    feasibility: Callable[[], Feasibility] | None = None

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return int(self.considered.sum())

    @property
    def found(self) -> int:
        """The number of hosts that can hold the request."""
        return max(0, self.hosts - len(self.refused) - len(self.undecided) - self.unseen)


#: The maximum number of hosts that are decided to count the feasible ones.
FEW_OPEN = 50

_NEVER, _NOT_NOW, _UNKNOWN, _OPEN = range(4)
_OUTLOOKS = (Outlook.NEVER, Outlook.NOT_NOW, Outlook.UNKNOWN)


class Feasibility:
    """The outlook of each host: of the same search if nothing were allocated.

    Disabled providers stay disabled, and limits, traits and places stay as they are. Arrays decide
    most hosts; of each class of hosts in the same state, one is decided. Cost: some passes over the
    fleet; then some 200 microseconds for each class.
    """

    def __init__(self, fleet: Fleet, request: Request, options: Options) -> None:
        """:param fleet: as it is recorded, with all units"""
        released = fleet.released.as_of_now().with_limits(options.limits)
        self._problem = compile_request(request, released, options.filters)
        self._code = np.full(len(released.hosts), _NEVER, dtype=np.int8)
        self._code[possible_trees(self._problem)] = _OPEN
        decided = decide_by_arrays(self._problem, True, of_each=False)
        if decided is not None:
            self._code[decided.decides & (self._code == _OPEN)] = _NOT_NOW
        self._budget = Budget(options.budget)
        self._preference = Preference(released, request, Order(), None)
        self._by_class: dict[Hashable, int] = {}

    @property
    def is_never(self) -> Booleans:
        """By tree, whether the host surely could not, as far as it is known."""
        flags: Booleans = self._code == _NEVER
        return flags

    def bounds(self, trees: Integers) -> tuple[int, int]:
        """Return the numbers of hosts that surely could, and that perhaps could.

        Hosts that arrays leave open are decided if they are few.
        """
        undecided = trees[self._code[trees] == _OPEN]
        if len(undecided) <= FEW_OPEN:
            self.of(undecided.tolist())
        codes = self._code[trees]
        sure = int(np.count_nonzero(codes == _NOT_NOW))
        return sure, sure + int(np.count_nonzero(codes >= _UNKNOWN))

    def of(self, trees: Iterable[int]) -> list[Outlook]:
        """Return the outlooks of some hosts."""
        outlooks = []
        for tree in trees:
            if self._code[tree] == _OPEN:
                host_class = self._classes.of(tree)
                if host_class not in self._by_class:
                    self._by_class[host_class] = self._search(tree)
                self._code[tree] = self._by_class[host_class]
            outlooks.append(_OUTLOOKS[int(self._code[tree])])
        return outlooks

    @functools.cached_property
    def _classes(self) -> HostClasses:
        return HostClasses([self._problem])

    def _search(self, tree: int) -> int:
        search = TreeSearch(self._problem, tree, self._preference)
        try:
            return _NEVER if search.next_candidate(self._budget) is None else _NOT_NOW
        except SearchLimitReached:
            return _UNKNOWN


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
    checks = itertools.chain.from_iterable(_stage_checks(c.checks()) for c in problem.conditions)
    after = considered
    for check in itertools.chain(checks, [Check(is_decided, Rule.TOGETHER)]):
        before, after = after, after & check.passing
        yield Stage(
            check.group,
            check.rule,
            before=int(np.count_nonzero(before)),
            after=int(np.count_nonzero(after)),
            resource=check.resource,
            label=check.label,
            requested=check.amount,
            most=None if check.rows is None else _max_free(problem, check, before).amount,
        )


def _stage_checks(checks: Iterator[Check]) -> Iterator[Check]:
    """Yield the checks of a condition that are stages, in order."""
    first = next(checks, None)
    yield from checks
    if first is not None and first.rule is not Rule.TOGETHER:
        yield first


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
        refusals = f"; the other {refused:,} cannot" if refused else ""
        return (
            f"not known: the budget of {outcome.budget:,} steps ran out on {undecided:,} of "
            f"{_count_of_hosts(hosts)}{refusals}"
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
    """Return the refusal by a check, with the number of the hosts that failed before it."""
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
    provider = fleet.names[int(rows.provider[entry])]
    most = _MaxFree(int(free[entry]), provider, _has_limits(fleet, rows, able))
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
