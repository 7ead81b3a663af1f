"""The decision on one tree: who gives what, and who has which trait. Pure Python, pure functions.

Classes seldom compete: each inventory counts one class, and only where several draw on the same
(:mod:`~resource_objects.search.joint`) must they fit together. So what ties them are the required
traits: for each there must be a class all of whose givers have it. The search decides, trait by
trait, which class answers for it; that narrows the givers of the class, and who is left at the end
gives. Traits that are had by the same givers are considered once, a trait that leaves one choice is
not a choice, and a set of givers is planned once however often it comes up.

A located amount is one more class, given by the parts it is put on; who may be among them is
narrowed like any givers, and inventories decide, of all such amounts at once
(:mod:`~resource_objects.search.placing`).

Choosing classes for many traits is a hard problem in general (it covers sets), so every trial is
paid for from a budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resource_objects.search import beside, joint
from resource_objects.search.asked import Asked, Decision, Parts, Sets
from resource_objects.search.budget import Budget, CutShort
from resource_objects.search.located import LocatedAsked
from resource_objects.search.placing import Assigned, Placing, Used
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


class _Locator:
    """Where a located amount would go by itself, for any set of parts."""

    def __init__(self, alone: Placing, budget: Budget) -> None:
        self._alone = alone
        self._budget = budget

    def plan(self, parts: int) -> Assigned | None:
        return self._alone.fit([parts], self._budget)


#: What may still give, and the traits that are not answered for yet (the givers that have each).
_State = tuple[Sets, tuple[Sets, ...]]


def decide(
    asks: Sequence[Asked],
    budget: Budget,
    located: Sequence[LocatedAsked] = (),
    taken: Used | None = None,
) -> Decision | None:
    """Return who gives each class, with every required trait answered for; None if nobody can.

    :param taken: what others of the same request use of inventories; the asks know it already
    :raises Exhausted: if the budget runs out first: neither yes nor no
    :raises CutShort: if a located amount's own decision did not end
    """
    placing = Placing(located, taken)
    found = _Tree(asks, placing, budget).decide()
    if found is None and any(one.cut_short for one in (placing, *placing.alone)):
        raise CutShort
    return found


class _Tree:
    """The decision while it is made. Sets are those of the counts, then of what is located."""

    def __init__(self, asks: Sequence[Asked], placing: Placing, budget: Budget) -> None:
        self._asks = asks
        self._placing = placing
        self._located = placing.located
        self._budget = budget
        self._planners = [_Planner(asked, budget) for asked in asks]
        self._locators = [_Locator(alone, budget) for alone in placing.alone]

    def decide(self) -> Decision | None:
        every: Sequence[Asked | LocatedAsked] = (*self._asks, *self._located)
        allowed = tuple(asked.allowed for asked in every)
        if self._plans(allowed) is None:
            return None
        ties = Ties(self._asks)
        traits = sorted(set(zip(*(asked.with_trait for asked in every), strict=True)))
        waiting: list[Iterator[_State]] = [iter([(allowed, tuple(traits))])]
        seen: set[_State] = set()
        while waiting:
            state = next(waiting[-1], None)
            if state is None:
                waiting.pop()
            elif state not in seen:
                seen.add(state)
                self._budget.spend()
                givers, unanswered = state[0], _unanswered(*state)
                if unanswered:
                    waiting.append(self._choices(givers, unanswered))
                elif (found := self._together(givers, ties)) is not None:
                    return found
        return None

    def _together(self, givers: Sets, ties: Ties) -> Decision | None:
        """Return who of some sets gives what, each as if alone where that fits."""
        found = self._plans(givers)
        if found is None:
            return None
        if ties and ties.over(found.plans):
            plans = joint.solve(ties, givers[: len(self._asks)], self._budget)
            if plans is None:
                return None
            found = found._replace(plans=plans)
        alone = len(self._asks) + len(self._located) == 1 or not self._located
        if alone or not beside.over(self._asks, self._placing, found):
            return found
        return beside.solve(self._asks, self._placing, givers, self._budget)

    def _plans(self, givers: Sets) -> Decision | None:
        """Return who gives each class of its set, None if some class is not given."""
        plans: list[Parts] = []
        for planner, each in zip(self._planners, givers, strict=False):
            parts = planner.plan(each)
            if parts is None:
                return None
            plans.append(parts)
        assigned: Assigned | None = ()
        if self._located:
            assigned = self._placing.fit(givers[len(plans) :], self._budget)
        return None if assigned is None else Decision(tuple(plans), assigned)

    def _choices(self, givers: Sets, traits: tuple[Sets, ...]) -> Iterator[_State]:
        """Yield what each class that can answer for one trait would leave.

        That trait is the one with the fewest such classes among the next few: with none, nothing
        is yielded; with one, it is no choice.
        """
        options: dict[int, list[Sets]] = {}
        for number, having in enumerate(traits[:_LOOK_AHEAD]):
            options[number] = self._options(givers, having)
            if len(options[number]) < 2:
                break
        fewest = min(options, key=lambda number: len(options[number]))
        rest = traits[:fewest] + traits[fewest + 1 :]
        for narrowed in options[fewest]:
            yield narrowed, rest

    def _options(self, givers: Sets, having: Sets) -> list[Sets]:
        """Return, for each class that can answer for a trait, the sets of givers that remain."""
        planners: Sequence[_Planner | _Locator] = (*self._planners, *self._locators)
        return [
            (*givers[:number], givers[number] & has, *givers[number + 1 :])
            for number, has in enumerate(having)
            if planners[number].plan(givers[number] & has) is not None
        ]


def _unanswered(givers: Sets, traits: tuple[Sets, ...]) -> tuple[Sets, ...]:
    """Leave out the traits that some class answers for, whichever of its givers give."""
    return tuple(
        having
        for having in traits
        if all(each & ~has for each, has in zip(givers, having, strict=True))
    )
