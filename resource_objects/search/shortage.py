"""Why some givers cannot give what is asked of a class, with figures.

The figures are sums over those who could give after the conditions on traits. Where their sum is
enough and yet nobody can give all of it alone, the provider that comes nearest is named instead;
of pools, which never add up, always that one. Where there is room here and none where it is used
too, every such inventory is named, with what would be used of it: of devices, those of the one that
has most which it cannot give. Where there is room and a unit rule stands against it, the rule is
named.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from resource_objects.exceptions import Reason, Rule
from resource_objects.search import beside
from resource_objects.search.arrays import Integers
from resource_objects.search.asked import Asked, Decision
from resource_objects.search.budget import Budget, Exhausted
from resource_objects.search.fleet import Fleet
from resource_objects.search.located import LocatedAsked
from resource_objects.search.placing import Placing
from resource_objects.search.plan import members, plan
from resource_objects.search.question import Ask, Question
from resource_objects.search.ties import Ties
from resource_objects.search.tree import decide

#: Steps that explaining may take to find out whether some providers can give a class.
PATIENCE = 10_000


class Shortage:
    """Why some givers, of whom there is at least one, cannot give what is asked of a class."""

    def __init__(self, question: Question, host: str, ask: Ask, asked: Asked, givers: int) -> None:
        self._question = question
        self._fleet = question.fleet
        self._host = host
        self._ask = ask
        self._amount = ask.amount
        self._asked = asked.only(givers)
        places = members(asked, givers)
        self._rows = [asked.numbers[place] for place in places]
        self._shared = [asked.numbers[place] for place in places if asked.givers[place].is_device]
        self._is_pooled = not asked.own

    def reasons(self) -> list[Reason]:
        """Return what stands against them."""
        return does_not_fit(self._question, [self._asked]) or self._short()

    def _short(self) -> list[Reason]:
        free = self._free(self._rows)
        nearest = max(self._rows, key=lambda row: (free[row], -row))
        if sum(free.values()) < self._amount:
            return self._full([nearest] if self._is_pooled else self._rows)
        together = sum(free[row] for row in self._shared)
        if together >= self._amount and (nearest in self._shared or free[nearest] < self._amount):
            return [self._shared_rule() if len(self._shared) > 1 else self._unit_rule(nearest)]
        if free[nearest] >= self._amount:
            return [self._unit_rule(nearest)]
        return self._full(self._shared if together > free[nearest] else [nearest])

    def _free(self, rows: Sequence[int]) -> dict[int, int]:
        """Return what can be taken of some inventories, nothing where it is less."""
        return {row: max(0, int(self._fleet.inventories.free[row])) for row in rows}

    def _full(self, rows: list[int]) -> list[Reason]:
        """Name the capacity of some inventories, and what they share where that leaves less."""
        free = self._free(rows)
        left = {row: max(0, self._fleet.left(row)) for row in rows}
        is_short = sum(left.values()) < self._amount
        found = [self._capacity(rows)] if is_short else []
        if is_short or all(row in self._shared for row in rows):
            # the one that has most which it cannot give would have to give what the others cannot
            named = max(rows, key=lambda row: (left[row] - free[row], -row))
            needed = self._amount - sum(free.values()) + free[named]
            needed = min(needed, left[named]) if is_short else needed
        else:
            named, needed = max(rows, key=lambda row: (free[row], -row)), self._amount
        if free[named] < left[named]:
            found += self._shared_full(named, needed)
        return found or [self._capacity([named])]

    def _shared_full(self, row: int, amount: int) -> list[Reason]:
        """Name what a provider shares that leaves it less than so much."""
        return [
            _is_full(self._fleet, target, amount * factor)
            for _, target, factor in self._fleet.shares.between(row, row + 1)
            if self._fleet.left(target) < amount * factor
        ]

    def _capacity(self, rows: list[int]) -> Reason:
        bound = self._sum(self._fleet.inventories.capacity, rows)
        return self._made(Rule.CAPACITY, bound, rows)

    def _unit_rule(self, row: int) -> Reason:
        """Return the rule that a provider with room for all of it keeps it from giving it."""
        arrays = self._fleet.inventories
        if self._amount < arrays.min_unit[row]:
            return self._made(Rule.MIN_UNIT, int(arrays.min_unit[row]), [row])
        if self._amount > arrays.max_unit[row]:
            return self._made(Rule.MAX_UNIT, int(arrays.max_unit[row]), [row])
        return self._made(Rule.STEP_SIZE, int(arrays.step_size[row]), [row])

    def _shared_rule(self) -> Reason:
        """Return the rule that keeps devices with room for all of it from sharing it."""
        arrays, shared = self._fleet.inventories, self._shared
        most = np.minimum(arrays.free[shared], arrays.max_unit[shared]).clip(0)
        least = [unit for unit in arrays.min_unit[shared].tolist() if unit > 1]
        steps: list[int] = arrays.step_size[shared].tolist()
        if sum(most.tolist()) < self._amount:
            return self._made(Rule.MAX_UNIT, sum(most.tolist()), shared)
        if self._amount % math.gcd(*steps):
            return self._made(Rule.STEP_SIZE, math.gcd(*steps), shared)
        if least:
            return self._made(Rule.MIN_UNIT, min(least), shared)
        if self._amount % max(steps) == 0:  # it is what is left that does not go in steps
            given = sum(arrays.high[shared].clip(0).tolist())
            return dataclasses.replace(self._made(Rule.CAPACITY, given, shared), used=0)
        return self._made(Rule.STEP_SIZE, max(steps), shared)

    def _made(self, rule: Rule, bound: int, rows: list[int]) -> Reason:
        fleet = self._fleet
        is_one = len(rows) == 1 and (len(self._rows) > 1 or self._is_pooled)
        where = fleet.names[int(fleet.inventories.provider[rows[0]])] if is_one else self._host
        holders = fleet.holders(rows) if rule is Rule.CAPACITY else ()
        used = self._sum(fleet.inventories.used, rows)
        return Reason(rule, self._amount, bound, used, self._ask.resource_class, where, holders)

    @staticmethod
    def _sum(column: Integers, rows: list[int]) -> int:
        return sum(column[rows].tolist())


def does_not_fit(
    question: Question, asks: Sequence[Asked], located: Sequence[LocatedAsked] = ()
) -> list[Reason]:
    """Return the inventories of which too much is used if each class is given as if alone.

    Nothing if some class cannot be given even so.
    """
    try:
        plans = [plan(asked, asked.allowed, Budget(PATIENCE)) for asked in asks]
        within = [one.allowed for one in located]
        assigned = Placing(located).fit(within, Budget(PATIENCE)) if located else ()
    except Exhausted:
        return []
    if assigned is None or any(parts is None for parts in plans):
        return []
    found = Decision(tuple(parts for parts in plans if parts is not None), assigned)
    full = {one.target: one for one in Ties(asks).over(found.plans)}
    if located:
        full |= {one.target: one for one in beside.over(asks, Placing(located), found)}
    return [_is_full(question.fleet, over.target, over.used) for over in full.values()]


def _is_full(fleet: Fleet, inventory: int, amount: int) -> Reason:
    rows = fleet.inventories
    return Reason(
        Rule.CAPACITY,
        amount,
        bound=int(rows.capacity[inventory]),
        used=int(rows.used[inventory]),
        resource=fleet.class_of(inventory),
        where=fleet.names[int(rows.provider[inventory])],
        holders=fleet.holders([inventory]),
    )


def can(asks: Sequence[Asked], located: Sequence[LocatedAsked] = ()) -> bool:
    """Return whether classes can be given, or whether that takes too long to find out."""
    try:
        return decide(asks, Budget(PATIENCE), located) is not None
    except Exhausted:
        return True
