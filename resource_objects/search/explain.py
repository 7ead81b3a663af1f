"""The explanation: why the hosts that were left out cannot hold a request."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from resource_objects.exceptions import Reason, Rule
from resource_objects.resources.catalog import is_device
from resource_objects.search import problem
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.assignment import Assigning
from resource_objects.search.backtracking import Budget, Exhausted
from resource_objects.search.conditions import amounts
from resource_objects.search.conditions.amounts import (
    Demand,
    Shortage,
    Sources,
    TreeDemand,
)
from resource_objects.search.conditions.base import Condition, excluded, unmet
from resource_objects.search.conditions.groups import (
    GroupKind,
    Named,
    all_at_once,
    giving,
    not_own_groups,
    reasons_of_groups,
)
from resource_objects.search.conditions.located import LocatedTreeDemand, Unplaced, enough_parts
from resource_objects.search.fleet import ClassRows
from resource_objects.search.problem import Problem
from resource_objects.search.solver import can, does_not_fit

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

    def __init__(self, question: Problem, outcome: Outcome) -> None:
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
    asked: int | None = None
    most: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**dataclasses.asdict(self), "rule": self.rule.value}

    def __str__(self) -> str:
        where = f"group {self.group}: " if self.group else ""
        told = " ".join(
            part for part in (self.rule.value.replace("_", " "), self.resource, self.label) if part
        )
        figures = "" if self.asked is None else f" (asked {self.asked}, most free {self.most})"
        return f"{where}{told}{figures}: {self.before} -> {self.after} hosts"


def stages(question: Problem, refused: Integers) -> tuple[Stage, ...]:
    """Return the stages of a search, in order.

    :param refused: the trees that cannot hold the request, by whatever stage
    """
    return tuple(_Stages(question, refused).every())


class _Stages:
    def __init__(self, question: Problem, refused: Integers) -> None:
        self._question = question
        self._fleet = question.fleet
        self._trees = len(question.is_told)
        self._refused = refused
        self._left: Booleans = question.is_told.copy()

    def every(self) -> Iterator[Stage]:
        for one in self._question.of_root:
            yield self._cut(one.own, None, one.rule, label=one.label)
        for ask in self._question.asks:
            yield from self._of_ask(ask)
        for located in self._question.located:
            found = enough_parts(located, self._trees)
            name = located.resource_class
            yield self._cut(found, "", Rule.CAPACITY, resource=name)
        yield from self._of_traits()
        for kind in self._question.named.kinds:
            yield from self._of_kind(kind)
        if self._question.named:
            beside = {ask.resource_class: ask.amount for ask in self._question.asks}
            yield self._cut(self._question.named.possible(beside), None, Rule.GROUPS)
        decided = np.ones(self._trees, dtype=np.bool_)
        decided[self._refused] = False
        yield self._cut(decided, None, Rule.TOGETHER)

    def _cut(
        self,
        passing: Booleans,
        group: str | None,
        rule: Rule,
        *,
        resource: str | None = None,
        label: str | None = None,
        asked: int | None = None,
        most: int | None = None,
    ) -> Stage:
        """Leave the hosts that pass."""
        before = int(np.count_nonzero(self._left))
        self._left = self._left & passing
        after = int(np.count_nonzero(self._left))
        return Stage(group, rule, before, after, resource, label, asked, most)

    def _of_ask(self, ask: Demand) -> Iterator[Stage]:
        name, amount = ask.resource_class, ask.amount
        able = ~ask.rows.is_part
        pools = np.isin(ask.rows.provider, self._fleet.pools.providers)
        yield self._cut(self._trees_of(ask.rows, able, pools), "", Rule.NO_INVENTORY,
                        resource=name, asked=amount, most=self._most(ask.rows))  # fmt: skip
        pooled = np.flatnonzero(pools)
        of_pool = pools.copy()
        for number, (rule, label) in enumerate(ask.barriers):
            able = able & ~ask.own.is_barred[number]
            if ask.pooled is not None:
                of_pool[pooled] &= ~ask.pooled.is_barred[number]
            found = self._trees_of(ask.rows, able, of_pool)
            yield self._cut(found, "", rule, resource=name, label=label)
        most = self._most(ask.rows)
        found = amounts.enough_of_class(self._fleet, ask)
        yield self._cut(found, "", Rule.CAPACITY, resource=name, asked=amount, most=most)

    def _of_traits(self) -> Iterator[Stage]:
        """Yield what the traits leave that some class has to answer for."""
        for number, label in enumerate(self._question.required):
            found = problem.answered(self._question, number)
            yield self._cut(found, "", Rule.TRAIT_MISSING, label=label)

    def _of_kind(self, kind: GroupKind) -> Iterator[Stage]:
        group = ", ".join(kind.suffixes)
        providers = len(self._fleet.names)
        own = np.ones(providers, dtype=np.bool_)
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            pools = np.isin(rows.provider, self._fleet.pools.providers)
            found = self._trees_of(rows, ~rows.is_part, pools)
            most = self._most(rows)
            yield self._cut(found, group, Rule.NO_INVENTORY, resource=name, asked=amount, most=most)
            gives = giving(rows, amount)
            able = np.zeros(providers, dtype=np.bool_)
            able[rows.provider[gives]] = True
            own &= able
            found = self._of_providers(own, own)
            yield self._cut(found, group, Rule.CAPACITY, resource=name, asked=amount, most=most)
        pooled = own.copy()
        for one in kind.conditions:
            own, pooled = own & one.own, pooled & one.pooled
            found = self._of_providers(own, pooled)
            yield self._cut(found, group, one.rule, label=one.label)

    # --- trees ---

    def _trees_of(self, rows: ClassRows, own: Booleans, pooled: Booleans) -> Booleans:
        """Return the trees of some inventories of a class, and those linked to pools of others."""
        found = np.zeros(self._trees, dtype=np.bool_)
        found[rows.tree[own]] = True
        return found | self._linked(rows.provider[pooled])

    def _of_providers(self, own: Booleans, pooled: Booleans) -> Booleans:
        """Return the trees of some providers, and those linked to pools among others."""
        found = np.zeros(self._trees, dtype=np.bool_)
        found[self._fleet.tree[own]] = True
        pools = self._fleet.pools.providers
        return found | self._linked(pools[pooled[pools]])

    def _linked(self, pools: Integers) -> Booleans:
        if not len(pools):
            return np.zeros(self._trees, dtype=np.bool_)
        return self._fleet.pools.linked_to(pools, self._trees)

    def _most(self, rows: ClassRows) -> int:
        """Return the most that one provider of the hosts that are left, or a pool, has free."""
        here = self._left[rows.tree] | np.isin(rows.provider, self._fleet.pools.providers)
        return max(0, int(rows.free[here].max(initial=0)))


def emptied(every: Iterable[Stage]) -> Stage | None:
    """Return the stage after which no host was left, None if some was, or none there at all."""
    return next((one for one in every if one.before and not one.after), None)


# --- the reasons of one host ---------------------------------------------------------------------
# Each condition tells its own figures, in the file in which it rules out and is decided
# (:mod:`~resource_objects.search.conditions`). Here is asked which of them fail: the host itself,
# class by class whoever may give it, what does not fit together, and the traits that some class
# has to answer for.

#: The rules that leave nobody of whom one could ask for a trait.
_NOBODY = frozenset(
    {
        Rule.NO_INVENTORY,
        Rule.TRAIT_FORBIDDEN,
        Rule.UNIT_TAKEN,
        Rule.AGGREGATE_MISSING,
        Rule.AGGREGATE_FORBIDDEN,
        Rule.OTHER_TREE,
        Rule.CONDITIONS,
    }
)


class Findings:
    """Why trees cannot hold a request. Cost: some 50 microseconds per tree, when it is asked."""

    def __init__(self, question: Problem) -> None:
        self._question = question

    def of_tree(self, tree: int) -> tuple[Reason, ...]:
        """Return every constraint of a refused tree that fails: classes first, then traits."""
        question = self._question
        host = question.fleet.hosts[tree]
        of_root = [one for one in question.of_root if not one.own[tree]]
        if of_root:
            return tuple(reason for one in of_root for reason in self._of_host(one, host))
        if not question.named:
            return _TreeFindings(question, tree, self._blamed).reasons()
        found: tuple[Reason, ...] = ()
        if not can(question.of_tree(tree), question.located_of_tree(tree)):
            found = _TreeFindings(question, tree, self._blamed).reasons()
        beside = {ask.resource_class: ask.amount for ask in question.asks}
        of_groups = reasons_of_groups(
            question.named, tree, beside, lambda few: _can_groups(few, tree)
        )
        if not found and not of_groups and not question.is_host[tree]:
            return tuple(not_own_groups(question.named, host))
        return found + of_groups or (all_at_once(question.named, host),)

    def _of_host(self, one: Condition, host: str) -> Iterator[Reason]:
        """Yield what a condition on the host itself says of what the unnamed group asks."""
        if one.rule in (Rule.ROOT_TRAIT_MISSING, Rule.ROOT_TRAIT_FORBIDDEN):
            yield unmet(one.rule, one.label, 1, None, host)
            return
        for ask in self._question.asks:
            yield unmet(one.rule, one.label, ask.amount, ask.resource_class, host)

    @functools.cached_property
    def _blamed(self) -> tuple[int, ...]:
        """By required trait, the class that is named where nobody in a tree has it."""
        return tuple(map(self._blame, self._question.required))

    def _blame(self, trait: str) -> int:
        """Choose a class whose givers have the trait elsewhere, else one of devices, else any."""
        question = self._question
        having = question.fleet.traits.get(trait)
        givers = [ask.rows.provider[~ask.rows.is_part] for ask in question.asks]
        givers += [ask.parts.provider for ask in question.located]
        for number, providers in enumerate(givers):
            if having is not None and bool(np.isin(providers, having).any()):
                return number
        for number, ask in enumerate(question.asks):
            if is_device(ask.resource_class) or bool(ask.is_device.any()):
                return number
        return 0


class _TreeFindings:
    """The findings of one tree while they are made. Classes are counts, then what is located."""

    def __init__(self, question: Problem, tree: int, blamed: Sequence[int]) -> None:
        self._question = question
        self._tree = tree
        self._host = question.fleet.hosts[tree]
        self._blamed = blamed
        self._asks = question.asks
        self._here = question.of_tree(tree)
        self._where = question.located_of_tree(tree)
        self._every: Sequence[TreeDemand | LocatedTreeDemand] = (*self._here, *self._where)

    def reasons(self) -> tuple[Reason, ...]:
        narrowed, missing = self._narrow()
        by_class = [self._of_class(number, givers) for number, givers in enumerate(narrowed)]
        found = [reason for reasons in by_class for reason in reasons]
        found += self._apart(narrowed, by_class) or self._crowded(by_class)
        for trait, number in missing:
            if not any(reason.rule in _NOBODY for reason in by_class[number]):
                found.append(self._missing(trait, number))
        found += self._of_traits([bool(reasons) for reasons in by_class])
        return tuple(dict.fromkeys(found or self._of_own(narrowed) or self._together()))

    def _of_own(self, narrowed: Sequence[int]) -> list[Reason]:
        """Return why nobody of the tree itself gives anything, if only pools could."""
        if self._where or not self._question.rules.host_gives or not self._question.fleet.pools:
            return []
        own = [(1 << asked.own) - 1 for asked in self._here]
        few = [self._of_class(n, some & own[n]) for n, some in enumerate(narrowed)]
        if not all(few):
            return []
        found: list[Reason] = []
        for ask, mine, reasons in zip(self._asks, own, few, strict=True):
            nobody = Reason(Rule.NOT_OWN, ask.amount, 0, 0, ask.resource_class, self._host)
            found += reasons if mine else [nobody]
        return found

    def _narrow(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Leave, of each class, the givers with the traits that only this class can answer for.

        Also return the traits that nobody has, or nobody beside the others, and their class.
        """
        givers = [asked.allowed for asked in self._every]
        missing: list[tuple[int, int]] = []
        for trait in range(len(self._question.required)):
            owners = self._owners(trait)
            if not owners:
                missing.append((trait, self._blamed[trait]))
            elif len(owners) == 1:
                (number,) = owners
                left = givers[number] & self._every[number].with_trait[trait]
                if left:
                    givers[number] = left
                else:
                    missing.append((trait, number))
        return givers, missing

    def _owners(self, trait: int) -> list[int]:
        """Return the classes of which some giver has a trait."""
        return [
            number
            for number, asked in enumerate(self._every)
            if asked.allowed & asked.with_trait[trait]
        ]

    def _can(self, number: int, givers: int) -> bool:
        """Return whether some givers can give one class."""
        if number < len(self._here):
            return can([self._here[number].only(givers)])
        return can([], [self._where[number - len(self._here)].only(givers)])

    def _of_class(self, number: int, givers: int) -> list[Reason]:
        """Return what stands against one class, if only these may give."""
        if number >= len(self._here):
            return self._unplaced(number).reasons([givers])
        ask, asked = self._asks[number], self._here[number]
        if not asked.givers or not self._may_give(ask).any() or (asked.allowed and not givers):
            return [_nothing(ask, self._host)]
        if not asked.allowed:
            return self._all_barred(ask) or self._all_taken(ask, asked)
        if can([asked.only(givers)]):
            return []
        fleet, some = self._question.fleet, asked.only(givers)
        return does_not_fit(fleet, [some]) or Shortage(fleet, self._host, ask, some).reasons()

    def _unplaced(self, number: int) -> Unplaced:
        asked = self._where[number - len(self._here)]
        return Unplaced([asked], self._host)

    def _apart(self, givers: Sequence[int], by_class: Sequence[Sequence[Reason]]) -> list[Reason]:
        """Name what is not near the rest, though each located amount could be had by itself."""
        first = len(self._here)
        if len(self._where) < 2 or any(by_class[first:]):
            return []
        every = Unplaced(self._where, self._host)
        return every.reasons(givers[first:])

    def _all_barred(self, ask: Demand) -> list[Reason]:
        """Name the conditions that nobody meets, or if there is none all that together exclude."""
        flags = self._barring(ask)
        return excluded(ask.barriers, flags, ask.amount, ask.resource_class, self._host)

    def _barring(self, ask: Demand) -> list[Booleans]:
        """Return, by condition, who of the sources does not meet it."""
        able = self._may_give(ask)
        flags = [
            np.concatenate([givers.is_barred[number][here] for givers, here in self._givers(ask)])
            for number in range(len(ask.barriers))
        ]
        return [some[able] for some in flags]

    def _may_give(self, ask: Demand) -> Booleans:
        """Return which of the sources are not a part of another, which the kind alone gives."""
        inventories = self._question.fleet.inventories
        numbers = [np.asarray(givers.numbers)[here] for givers, here in self._givers(ask)]
        able: Booleans = ~inventories.is_part[np.concatenate(numbers)]
        return able

    def _givers(self, ask: Demand) -> list[tuple[Sources, Any]]:
        return list(self._question.givers(ask, self._tree))

    def _all_taken(self, ask: Demand, asked: TreeDemand) -> list[Reason]:
        """Name the units that are asked for and that somebody has."""
        fleet = self._question.fleet
        taken = fleet.units.taken(ask.units)
        found: dict[Reason, None] = {}
        for number in asked.numbers:
            place = int(fleet.inventories.provider[number])
            if place in taken:
                unit, consumer = taken[place]
                reason = Reason(
                    Rule.UNIT_TAKEN,
                    ask.amount,
                    bound=0,
                    used=1,
                    resource=ask.resource_class,
                    where=fleet.names[place],
                    holders=((consumer, 1),),
                    unit=unit,
                )
                found[reason] = None
        return list(found)

    def _missing(self, trait: int, number: int) -> Reason:
        name = self._question.required[trait]
        if number >= len(self._here):
            return self._unplaced(number).made(Rule.TRAIT_MISSING, name)
        ask = self._asks[number]
        if not self._every[number].allowed & self._every[number].with_trait[trait]:
            having = [givers.has_required[trait][here] for givers, here in self._givers(ask)]
            has = np.concatenate(having)[self._may_give(ask)]
            conditions = [(Rule.TRAIT_MISSING, name), *ask.barriers]
            flags = [~has, *self._barring(ask)]
            told = excluded(conditions, flags, ask.amount, ask.resource_class, self._host)
            if has.any() and told:  # those who have it may not give
                return told[0]
        return Reason(
            Rule.TRAIT_MISSING, ask.amount, 0, 0, ask.resource_class, self._host, trait=name
        )

    def _of_traits(self, is_short: Sequence[bool]) -> list[Reason]:
        """Return what stands against the traits that several classes could answer for.

        A class that is short whoever has the trait said so already.
        """
        found: dict[Reason, None] = {}
        for trait in range(len(self._question.required)):
            tries = [
                (number, self._every[number].allowed & self._every[number].with_trait[trait])
                for number in self._owners(trait)
            ]
            if not any(self._can(number, givers) for number, givers in tries):
                for number, givers in tries:
                    if not is_short[number]:
                        found.update(dict.fromkeys(self._of_class(number, givers)))
        return list(found)

    def _crowded(self, by_class: Sequence[Sequence[Reason]]) -> list[Reason]:
        """Name what is drawn on by classes that do not fit there together, though each does."""
        is_short = [bool(reasons) for reasons in by_class]
        fine = [
            a.with_traits(0) for a, short in zip(self._here, is_short, strict=False) if not short
        ]
        where = [
            one.with_traits(0)
            for one, short in zip(self._where, is_short[len(self._here) :], strict=True)
            if not short
        ]
        if not (where or any(asked.draws for asked in fine)) or can(fine, where):
            return []
        return does_not_fit(self._question.fleet, fine, where)

    def _together(self) -> list[Reason]:
        """Name the first trait that cannot be answered for together with those before it."""
        count = len(self._question.required)
        for trait in range(count):
            few = [one.with_traits(trait + 1) for one in self._where]
            if not can([asked.with_traits(trait + 1) for asked in self._here], few):
                return [self._not_beside(trait)]
        # it took too long to find out: what the easy way fails by
        anybody = [asked.with_traits(0) for asked in self._here]
        where = [one.with_traits(0) for one in self._where]
        found = does_not_fit(self._question.fleet, anybody, where)
        return found or ([self._not_beside(count - 1)] if count else list(self._unnamed()))

    def _unnamed(self) -> Iterator[Reason]:
        """Yield the classes of which there is enough by count, and not by name."""
        fleet = self._question.fleet
        provider = fleet.inventories.provider
        for ask, asked in zip(self._asks, self._here, strict=True):
            places = {int(provider[number]) for number in asked.numbers}
            if any(fleet.views.of_devices(place, ask.resource_class) for place in places):
                name = ask.resource_class
                yield Reason(Rule.INVALID, ask.amount, 0, 0, name, self._host)

    def _not_beside(self, trait: int) -> Reason:
        return self._missing(trait, (self._owners(trait) or [self._blamed[trait]])[0])


def _nothing(ask: Demand, host: str) -> Reason:
    return Reason(Rule.NO_INVENTORY, ask.amount, 0, 0, ask.resource_class, host)


#: Steps that explaining may take to find out whether some groups can be given.
GROUP_PATIENCE = 10_000


def _can_groups(named: Named, tree: int) -> bool:
    """Return whether groups can be given, or whether that takes too long to find out."""
    try:
        return next(Assigning(named, tree, Budget(GROUP_PATIENCE)).ways(), None) is not None
    except Exhausted:
        return True
