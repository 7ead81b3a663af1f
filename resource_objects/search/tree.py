"""The decision on one tree: who gives what, and who has which trait. Pure Python, pure functions.

Classes seldom compete: each inventory counts one class, and only where several draw on the same
(:mod:`~resource_objects.search.joint`) must they fit together. So what ties them are the required
traits: for each there must be a class all of whose givers have it. The search decides, trait by
trait, which class answers for it; that narrows the givers of the class, and who is left at the end
gives. Traits that are had by the same givers are considered once, a trait that leaves one choice is
not a choice, and a set of givers is planned once however often it comes up.

Choosing classes for many traits is a hard problem in general (it covers sets), so every trial is
paid for from a budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resource_objects.search import joint
from resource_objects.search.asked import Asked, Parts, Sets
from resource_objects.search.budget import Budget
from resource_objects.search.plan import plan
from resource_objects.search.ties import Ties

#: How many traits are looked at before one is chosen to go on with.
_LOOK_AHEAD = 8


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


#: What may still give, and the traits that are not answered for yet (the givers that have each).
_State = tuple[Sets, tuple[Sets, ...]]


def decide(asks: Sequence[Asked], budget: Budget) -> tuple[Parts, ...] | None:
    """Return who gives each class, with every required trait answered for; None if nobody can.

    :raises Exhausted: if the budget runs out first: neither yes nor no
    """
    planners = [_Planner(asked, budget) for asked in asks]
    allowed = tuple(asked.allowed for asked in asks)
    if _plans(planners, allowed) is None:
        return None
    ties = Ties(asks)
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
            if unanswered:
                waiting.append(_choices(planners, givers, unanswered))
            elif (found := _together(planners, givers, ties, budget)) is not None:
                return found
    return None


def _together(
    planners: Sequence[_Planner], givers: Sets, ties: Ties, budget: Budget
) -> tuple[Parts, ...] | None:
    """Return who gives each class of its set, each as if alone where that fits."""
    found = _plans(planners, givers)
    if found is None or not ties or not ties.over(found):
        return found
    return joint.solve(ties, givers, budget)


def _plans(planners: Sequence[_Planner], givers: Sets) -> tuple[Parts, ...] | None:
    """Return who gives each class of its set, None if some class is not given."""
    found: list[Parts] = []
    for planner, each in zip(planners, givers, strict=True):
        parts = planner.plan(each)
        if parts is None:
            return None
        found.append(parts)
    return tuple(found)


def _unanswered(givers: Sets, traits: tuple[Sets, ...]) -> tuple[Sets, ...]:
    """Leave out the traits that some class answers for, whichever of its givers give."""
    return tuple(
        having
        for having in traits
        if all(each & ~has for each, has in zip(givers, having, strict=True))
    )


def _choices(
    planners: Sequence[_Planner], givers: Sets, traits: tuple[Sets, ...]
) -> Iterator[_State]:
    """Yield what each class that can answer for one trait would leave.

    That trait is the one with the fewest such classes among the next few: with none, nothing is
    yielded; with one, it is no choice.
    """
    options: dict[int, list[Sets]] = {}
    for number, having in enumerate(traits[:_LOOK_AHEAD]):
        options[number] = _options(planners, givers, having)
        if len(options[number]) < 2:
            break
    fewest = min(options, key=lambda number: len(options[number]))
    rest = traits[:fewest] + traits[fewest + 1 :]
    for narrowed in options[fewest]:
        yield narrowed, rest


def _options(planners: Sequence[_Planner], givers: Sets, having: Sets) -> list[Sets]:
    """Return, for each class that can answer for a trait, the sets of givers that remain."""
    return [
        (*givers[:number], givers[number] & has, *givers[number + 1 :])
        for number, has in enumerate(having)
        if planners[number].plan(givers[number] & has) is not None
    ]
