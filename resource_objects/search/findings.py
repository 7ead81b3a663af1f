"""What stands against one tree, as reasons: every class and trait that fails, with its figures.

The figures of a class are sums over those providers of the tree that could give it after the
conditions on traits. Where their sum is enough and yet nobody can give all of it alone, the
provider that comes nearest is named instead. Where there is room and a unit rule stands against
it, the rule is named.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from resource_objects.exceptions import Reason, Rule
from resource_objects.resources.catalog import is_device
from resource_objects.search.budget import Budget, Exhausted
from resource_objects.search.fleet import Integers
from resource_objects.search.question import Ask, Question
from resource_objects.search.tree import Asked, decide, plan

#: Steps that explaining may take to find out whether some providers can give a class.
PATIENCE = 10_000


#: The rules that leave nobody of whom one could ask for a trait.
_NOBODY = frozenset({Rule.NO_INVENTORY, Rule.TRAIT_FORBIDDEN})


class Findings:
    """Why trees cannot hold a request. Cost: some 50 microseconds per tree, when it is asked."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def of_tree(self, tree: int) -> tuple[Reason, ...]:
        """Return every constraint of a refused tree that fails: classes first, then traits."""
        return _Tree(self._question, tree, self._blamed).reasons()

    @functools.cached_property
    def _blamed(self) -> tuple[int, ...]:
        """By required trait, the class that is named where nobody in a tree has it."""
        return tuple(map(self._blame, self._question.required))

    def _blame(self, trait: str) -> int:
        """Choose a class whose givers have the trait elsewhere, else one of devices, else any."""
        having = self._question.fleet.traits.get(trait)
        for number, ask in enumerate(self._question.asks):
            if having is not None and bool(np.isin(ask.rows.provider, having).any()):
                return number
        for number, ask in enumerate(self._question.asks):
            if is_device(ask.resource_class) or bool(ask.is_device.any()):
                return number
        return 0


class _Tree:
    """The findings of one tree while they are made."""

    def __init__(self, question: Question, tree: int, blamed: Sequence[int]) -> None:
        self._question = question
        self._host = question.fleet.hosts[tree]
        self._blamed = blamed
        self._asks = question.asks
        self._here = [ask.of_tree(tree) for ask in question.asks]

    def reasons(self) -> tuple[Reason, ...]:
        narrowed, missing = self._narrow()
        by_class = [self._of_class(number, givers) for number, givers in enumerate(narrowed)]
        found = [reason for reasons in by_class for reason in reasons]
        for trait, number in missing:
            if not any(reason.rule in _NOBODY for reason in by_class[number]):
                found.append(self._missing(trait, number))
        found += self._of_traits([bool(reasons) for reasons in by_class])
        return tuple(found or self._together())

    def _narrow(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Leave, of each class, the givers with the traits that only this class can answer for.

        Also return the traits that nobody has, or nobody beside the others, and their class.
        """
        givers = [asked.allowed for asked in self._here]
        missing: list[tuple[int, int]] = []
        for trait in range(len(self._question.required)):
            owners = self._owners(trait)
            if not owners:
                missing.append((trait, self._blamed[trait]))
            elif len(owners) == 1:
                (number,) = owners
                left = givers[number] & self._here[number].with_trait[trait]
                if left:
                    givers[number] = left
                else:
                    missing.append((trait, number))
        return givers, missing

    def _owners(self, trait: int) -> list[int]:
        """Return the classes of which some giver has a trait."""
        return [
            number
            for number, asked in enumerate(self._here)
            if asked.allowed & asked.with_trait[trait]
        ]

    def _of_class(self, number: int, givers: int) -> list[Reason]:
        """Return what stands against one class, if only these may give."""
        ask, asked = self._asks[number], self._here[number]
        if not asked.givers:
            return [Reason(Rule.NO_INVENTORY, ask.amount, 0, 0, ask.resource_class, self._host)]
        if not asked.allowed:
            return self._all_forbidden(ask, asked)
        if _can(asked, givers):
            return []
        return [_Shortage(self._question, self._host, ask, asked, givers).reason()]

    def _all_forbidden(self, ask: Ask, asked: Asked) -> list[Reason]:
        """Name the traits that everybody has, or if there is none all that together exclude."""
        here = slice(asked.first, asked.first + len(asked.givers))
        flags = list(zip(self._question.forbidden, ask.has_forbidden, strict=True))
        named = [trait for trait, has in flags if has[here].all()]
        named = named or [trait for trait, has in flags if has[here].any()]
        name = ask.resource_class
        return [
            Reason(Rule.TRAIT_FORBIDDEN, ask.amount, 0, 0, name, self._host, trait=trait)
            for trait in named
        ]

    def _missing(self, trait: int, number: int) -> Reason:
        ask, name = self._asks[number], self._question.required[trait]
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
                (number, self._here[number].allowed & self._here[number].with_trait[trait])
                for number in self._owners(trait)
            ]
            if not any(_can(self._here[number], givers) for number, givers in tries):
                for number, givers in tries:
                    if not is_short[number]:
                        found.update(dict.fromkeys(self._of_class(number, givers)))
        return list(found)

    def _together(self) -> list[Reason]:
        """Name the first trait that cannot be answered for together with those before it."""
        count = len(self._question.required)
        for trait in range(count):
            fewer = [_first_traits(asked, trait + 1) for asked in self._here]
            if not _can_decide(fewer) or trait == count - 1:
                return [self._missing(trait, (self._owners(trait) or [self._blamed[trait]])[0])]
        return []


class _Shortage:
    """Why some givers, of whom there is at least one, cannot give what is asked of a class."""

    def __init__(self, question: Question, host: str, ask: Ask, asked: Asked, givers: int) -> None:
        self._fleet = question.fleet
        self._host = host
        self._ask = ask
        self._amount = ask.amount
        self._rows = [
            asked.first + place for place in range(len(asked.givers)) if givers >> place & 1
        ]
        self._shared = [row for row in self._rows if ask.is_device[row]]

    def reason(self) -> Reason:
        rows = self._ask.rows
        free = {row: max(0, int(rows.free[row])) for row in self._rows}
        if sum(free.values()) < self._amount:
            return self._capacity(self._rows)
        nearest = max(self._rows, key=lambda row: (free[row], -row))
        together = sum(free[row] for row in self._shared)
        if together >= self._amount and (nearest in self._shared or free[nearest] < self._amount):
            return self._shared_rule() if len(self._shared) > 1 else self._unit_rule(nearest)
        if free[nearest] >= self._amount:
            return self._unit_rule(nearest)
        return self._capacity(self._shared if together > free[nearest] else [nearest])

    def _capacity(self, rows: list[int]) -> Reason:
        arrays = self._ask.rows
        bound = self._sum(arrays.capacity, rows)
        return self._reason(Rule.CAPACITY, bound, rows)

    def _unit_rule(self, row: int) -> Reason:
        """Return the rule that a provider with room for all of it keeps it from giving it."""
        arrays = self._ask.rows
        if self._amount < arrays.min_unit[row]:
            return self._reason(Rule.MIN_UNIT, int(arrays.min_unit[row]), [row])
        if self._amount > arrays.max_unit[row]:
            return self._reason(Rule.MAX_UNIT, int(arrays.max_unit[row]), [row])
        return self._reason(Rule.STEP_SIZE, int(arrays.step_size[row]), [row])

    def _shared_rule(self) -> Reason:
        """Return the rule that keeps devices with room for all of it from sharing it."""
        arrays, shared = self._ask.rows, self._shared
        most = np.minimum(arrays.free[shared], arrays.max_unit[shared]).clip(0)
        least = [unit for unit in arrays.min_unit[shared].tolist() if unit > 1]
        steps: list[int] = arrays.step_size[shared].tolist()
        if sum(most.tolist()) < self._amount:
            return self._reason(Rule.MAX_UNIT, sum(most.tolist()), shared)
        if self._amount % math.gcd(*steps):
            return self._reason(Rule.STEP_SIZE, math.gcd(*steps), shared)
        if least:
            return self._reason(Rule.MIN_UNIT, min(least), shared)
        return self._reason(Rule.STEP_SIZE, max(steps), shared)

    def _reason(self, rule: Rule, bound: int, rows: list[int]) -> Reason:
        arrays, name = self._ask.rows, self._ask.resource_class
        providers = [int(arrays.provider[row]) for row in rows]
        holders: tuple[tuple[str, int], ...] = ()
        if rule is Rule.CAPACITY:
            holders = self._fleet.allocations.holders(providers, name)
        alone = len(rows) == 1 and len(self._rows) > 1
        where = self._fleet.names[providers[0]] if alone else self._host
        used = self._sum(arrays.used, rows)
        return Reason(rule, self._amount, bound, used, name, where, holders)

    @staticmethod
    def _sum(column: Integers, rows: list[int]) -> int:
        return sum(column[rows].tolist())


def _can(asked: Asked, givers: int) -> bool:
    """Return whether these can give a class, or whether that takes too long to find out."""
    try:
        return plan(asked, givers, Budget(PATIENCE)) is not None
    except Exhausted:
        return True


def _can_decide(asks: Sequence[Asked]) -> bool:
    try:
        return decide(asks, Budget(PATIENCE)) is not None
    except Exhausted:
        return True


def _first_traits(asked: Asked, count: int) -> Asked:
    """Return the ask with only its first required traits."""
    return Asked(asked.amount, asked.first, asked.givers, asked.allowed, asked.with_trait[:count])
