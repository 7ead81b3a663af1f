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

#: How many givers are looked through for one step of the budget.
_GIVERS_PER_STEP = 16
#: How many traits are looked at before one is chosen to go on with.
_LOOK_AHEAD = 8


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
    budget.spend(1 + len(asked.givers) // _GIVERS_PER_STEP)
    chosen = [place for place in range(len(asked.givers)) if givers >> place & 1]
    for place in chosen:
        if asked.givers[place].gives(asked.amount):
            return ((place, asked.amount),)
    devices = [place for place in chosen if asked.givers[place].is_device]
    found = split(asked.amount, [asked.givers[place][:3] for place in devices], budget)
    if found is None:
        return None
    return tuple((devices[number], amount) for number, amount in found)


#: The sets of givers, by class; also of a trait, the givers that have it, by class.
_Sets = tuple[int, ...]
#: What may still give, and the traits that are not answered for yet.
_State = tuple[_Sets, tuple[_Sets, ...]]


def decide(asks: Sequence[Asked], budget: Budget) -> tuple[Parts, ...] | None:
    """Return who gives each class, with every required trait answered for; None if nobody can.

    :raises Exhausted: if the budget runs out first: neither yes nor no
    """
    planners = [_Planner(asked, budget) for asked in asks]
    allowed = tuple(asked.allowed for asked in asks)
    if _plans(planners, allowed) is None:
        return None
    traits = sorted(set(zip(*(asked.with_trait for asked in asks), strict=True)))
    waiting: list[Iterator[_State]] = [iter([(allowed, tuple(traits))])]
    seen: set[_State] = set()
    while waiting:
        state = next(waiting[-1], None)
        if state is None:
            waiting.pop()
        elif state not in seen:
            seen.add(state)
            budget.spend()
            givers, unanswered = state[0], _unanswered(*state)
            if not unanswered:
                return _plans(planners, givers)
            waiting.append(_choices(planners, givers, unanswered))
    return None


def _plans(planners: Sequence[_Planner], givers: _Sets) -> tuple[Parts, ...] | None:
    """Return who gives each class of its set, None if some class is not given."""
    found: list[Parts] = []
    for planner, each in zip(planners, givers, strict=True):
        parts = planner.plan(each)
        if parts is None:
            return None
        found.append(parts)
    return tuple(found)


def _unanswered(givers: _Sets, traits: tuple[_Sets, ...]) -> tuple[_Sets, ...]:
    """Leave out the traits that some class answers for, whichever of its givers give."""
    return tuple(
        having
        for having in traits
        if all(each & ~has for each, has in zip(givers, having, strict=True))
    )


def _choices(
    planners: Sequence[_Planner], givers: _Sets, traits: tuple[_Sets, ...]
) -> Iterator[_State]:
    """Yield what each class that can answer for one trait would leave.

    That trait is the one with the fewest such classes among the next few: with none, nothing is
    yielded; with one, it is no choice.
    """
    options: dict[int, list[_Sets]] = {}
    for number, having in enumerate(traits[:_LOOK_AHEAD]):
        options[number] = _options(planners, givers, having)
        if len(options[number]) < 2:
            break
    fewest = min(options, key=lambda number: len(options[number]))
    rest = traits[:fewest] + traits[fewest + 1 :]
    for narrowed in options[fewest]:
        yield narrowed, rest


def _options(planners: Sequence[_Planner], givers: _Sets, having: _Sets) -> list[_Sets]:
    """Return, for each class that can answer for a trait, the sets of givers that remain."""
    return [
        (*givers[:number], givers[number] & has, *givers[number + 1 :])
        for number, has in enumerate(having)
        if planners[number].plan(givers[number] & has) is not None
    ]
