"""The search over all trees, within a limit and a budget.

Hosts are looked at in the order of their names, one candidate each. No host starves the others: at
first each may take no more than a small share of the budget, and the few that need more come again
at the end, with what is left. What is found is given in the order of names again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from resource_objects.providers import Allocation
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts, resource
from resource_objects.search import necessary
from resource_objects.search.asked import Asked, Decision
from resource_objects.search.budget import Budget, CutShort, Exhausted
from resource_objects.search.candidates import Candidate, Candidates
from resource_objects.search.explain import Explanation, Outcome
from resource_objects.search.fleet import Fleet
from resource_objects.search.located import LocatedAsked
from resource_objects.search.question import Ask, Question, lay
from resource_objects.search.tree import decide

#: Steps that one host may take before the others had their turn.
FIRST_TURN = 1000


def search(
    fleet: Fleet, request: Request, limit: int | None, budget: int, *, at: str | None = None
) -> Candidates:
    """Return the first candidates of a request, one per host.

    Cost: a vectorised pass over the fleet, then per host that passes it some 50 microseconds
    where the decision is easy; never more than ``budget`` steps.
    """
    question = lay(request, fleet)
    possible = necessary.possible(question)
    run = _Run(question, limit, budget)
    run.turn(possible.tolist(), FIRST_TURN)
    again, run.undecided = run.undecided, []
    run.turn(again, budget)
    run.undecided += run.cut_short
    ruled_out = question.is_told.copy()
    ruled_out[possible] = False
    ruled_out[run.refused] = True
    outcome = Outcome(
        refused=np.flatnonzero(ruled_out),
        undecided=tuple(sorted(run.undecided)),
        unseen=len(possible) - len(run.found) - len(run.refused) if run.is_full else 0,
        budget=budget,
    )
    return Candidates(
        [run.found[tree] for tree in sorted(run.found)],
        request,
        explain=functools.partial(Explanation, question, outcome),
        budget=budget,
        steps=run.budget.spent,
        cut_short=bool(outcome.undecided),
        at=at,
    )


class _Run:
    """One search while it runs."""

    def __init__(self, question: Question, limit: int | None, budget: int) -> None:
        self.question = question
        self.limit = limit
        self.budget = Budget(budget)
        self.found: dict[int, Candidate] = {}
        self.refused: list[int] = []
        self.undecided: list[int] = []
        self.cut_short: list[int] = []  # a larger share of the budget would not help

    @property
    def is_full(self) -> bool:
        """Whether the limit was reached."""
        return len(self.found) == self.limit

    def turn(self, trees: Sequence[int], most: int) -> None:
        """Decide some trees, with at most ``most`` steps for each."""
        for place, tree in enumerate(trees):
            if self.is_full:
                return
            if not self.budget.left:
                self.undecided.extend(trees[place:])
                return
            self._decide(tree, most)

    def _decide(self, tree: int, most: int) -> None:
        asks, located = self.question.of_tree(tree), self.question.located_of_tree(tree)
        try:
            with self.budget.share(most) as part:
                found = decide(asks, part, located)
        except CutShort:
            self.cut_short.append(tree)
            return
        except Exhausted:
            self.undecided.append(tree)
            return
        if found is None:
            self.refused.append(tree)
        else:
            self.found[tree] = self._candidate(tree, asks, located, found)

    def _candidate(
        self,
        tree: int,
        asks: Iterable[Asked],
        located: Sequence[LocatedAsked],
        found: Decision,
    ) -> Candidate:
        fleet = self.question.fleet
        taken = [
            (ask, asked.numbers[giver], part)
            for ask, asked, parts in zip(self.question.asks, asks, found.plans, strict=True)
            for giver, part in parts
        ]
        givers = fleet.inventories.provider[[number for _, number, _ in taken]].tolist()
        allocations = [
            _allocation(fleet, ask, giver, part)
            for giver, (ask, _, part) in zip(givers, taken, strict=True)
        ]
        assigned: dict[str, Amount] = {}
        for one, amount in zip(located, found.assigned, strict=True):
            assigned[one.ask.resource_class] = amount
            for place, each in one.allocations(amount):
                givers.append(place)
                allocations.append(each)
        return Candidate(
            host=fleet.hosts[tree],
            allocations=tuple(_summed(allocations) if assigned else allocations),
            generations=tuple(_generations(fleet, givers)),
            located=Amounts(assigned),
        )


def _allocation(fleet: Fleet, ask: Ask, provider: int, part: int) -> Allocation:
    whole, name = ask.whole, ask.resource_class
    return Allocation(
        provider=fleet.names[provider],
        provider_uuid=fleet.uuids[provider],
        resource_class=name,
        amount=whole
        if whole is not None and part == ask.amount
        else resource(name).make_amount(part),
        units=ask.units,
    )


def _summed(allocations: Iterable[Allocation]) -> Iterable[Allocation]:
    """Return allocations with one of each provider and class: pages may be counted and located."""
    found: dict[tuple[str, str], Allocation] = {}
    for one in allocations:
        key = one.provider, one.resource_class
        if key in found:
            amount: Any = found[key].amount
            units = (*found[key].units, *one.units)
            one = found[key].replace(amount=amount + one.amount, units=units)
        found[key] = one
    return found.values()


def _generations(fleet: Fleet, givers: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Yield (uuid, generation) of some providers and of all above them, each once."""
    for provider in dict.fromkeys(above for giver in givers for above in fleet.upwards(giver)):
        yield fleet.uuids[provider], int(fleet.generation[provider])
