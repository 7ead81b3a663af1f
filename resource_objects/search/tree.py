"""The decision on one tree: who gives what, and who has which trait. Pure Python, pure functions.

Classes do not compete (each inventory counts one class), so what ties them together are the
required traits alone: for each there must be a class all of whose givers have it. The search
therefore decides, trait by trait, which class answers for it; that narrows the givers of the
class. Traits that are had by the same givers are considered once, a trait that leaves one choice is
not a choice, and a set of givers is planned once however often it comes up.

Choosing classes for many traits is a hard problem in general (it covers sets), so every trial is
paid for from a budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from resource_objects.search.budget import Budget
from resource_objects.search.split import split


class Giver(NamedTuple):
    """What one provider can give of a class in one part: a multiple of ``step`` in between."""

    low: int
    high: int
    step: int
    is_device: bool

    def gives(self, amount: int) -> bool:
        """Return whether it gives all of ``amount`` by itself."""
        return self.low <= amount <= self.high and amount % self.step == 0


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One class asked of one tree. Sets of givers are numbers with a bit for each."""

    amount: int
    first: int  #: row of the first giver in the arrays of the class
    givers: tuple[Giver, ...]
    allowed: int  #: the givers without a forbidden trait
    with_trait: tuple[int, ...]  #: by required trait, the givers that have it


#: ``((giver, amount), ...)`` of one class
Parts = tuple[tuple[int, int], ...]


class _Planner:
    """Who gives one class, for any set of givers; each set is planned once."""

    def __init__(self, asked: Asked, budget: Budget) -> None:
        self._asked = asked
        self._budget = budget
        self._known: dict[int, Parts | None] = {}

    def plan(self, givers: int) -> Parts | None:
        if givers not in self._known:
            self._known[givers] = plan(self._asked, givers, self._budget)
        return self._known[givers]


def plan(asked: Asked, givers: int, budget: Budget) -> Parts | None:
    """Return who of a set of givers gives how much of a class, None if they cannot.

    The first that gives all by itself does; else the devices among them share, the ones that give
    most first. Complete: None means that there is no way. Cost: linear in the givers where their
    steps agree and no min_unit is above the step.
    """
    budget.spend()
    chosen = [place for place in range(len(asked.givers)) if givers >> place & 1]
    for place in chosen:
        if asked.givers[place].gives(asked.amount):
            return ((place, asked.amount),)
    devices = [place for place in chosen if asked.givers[place].is_device]
    found = split(asked.amount, [asked.givers[place][:3] for place in devices], budget)
    if found is None:
        return None
    return tuple((devices[number], amount) for number, amount in found)


#: The sets of givers, by class.
_Sets = tuple[int, ...]


def decide(asks: Sequence[Asked], budget: Budget) -> tuple[Parts, ...] | None:
    """Return who gives each class, with every required trait answered for; None if nobody can.

    :raises Exhausted: if the budget runs out first: neither yes nor no
    """
    planners = [_Planner(asked, budget) for asked in asks]
    allowed = tuple(asked.allowed for asked in asks)
    if any(planner.plan(givers) is None for planner, givers in zip(planners, allowed, strict=True)):
        return None
    traits = frozenset(zip(*(asked.with_trait for asked in asks), strict=True))
    waiting = [iter([(allowed, traits)])]
    seen: set[tuple[_Sets, frozenset[_Sets]]] = set()
    while waiting:
        state = next(waiting[-1], None)
        if state is None:
            waiting.pop()
        elif state not in seen:
            seen.add(state)
            budget.spend()
            narrowed, open_traits = _without_answered(*state)
            if not open_traits:
                plans = [p.plan(givers) for p, givers in zip(planners, narrowed, strict=True)]
                return tuple(parts for parts in plans if parts is not None)
            waiting.append(_choices(planners, narrowed, open_traits))
    return None


def _without_answered(allowed: _Sets, traits: frozenset[_Sets]) -> tuple[_Sets, frozenset[_Sets]]:
    """Leave out the traits that some class answers for, whichever of its givers give."""
    still = frozenset(
        having
        for having in traits
        if all(givers & ~has for givers, has in zip(allowed, having, strict=True))
    )
    return allowed, still


def _choices(
    planners: Sequence[_Planner], allowed: _Sets, traits: frozenset[_Sets]
) -> Iterator[tuple[_Sets, frozenset[_Sets]]]:
    """Yield what each class that can answer for the most constrained trait would leave.

    Nothing is yielded where some trait has no class left.
    """
    fewest: list[_Sets] | None = None
    chosen: _Sets = ()
    for having in sorted(traits):
        options = _options(planners, allowed, having)
        if fewest is None or len(options) < len(fewest):
            fewest, chosen = options, having
        if not options:
            return
    rest = traits - {chosen}
    yield from ((narrowed, rest) for narrowed in fewest or ())


def _options(planners: Sequence[_Planner], allowed: _Sets, having: _Sets) -> list[_Sets]:
    """Return, for each class that can answer for a trait, the sets of givers that remain."""
    return [
        (*allowed[:number], allowed[number] & has, *allowed[number + 1 :])
        for number, has in enumerate(having)
        if planners[number].plan(allowed[number] & has) is not None
    ]
