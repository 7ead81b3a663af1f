"""The search over all trees, within a limit and a budget.

Hosts are looked at in the order of their names, one candidate each. No host starves the others: at
first each may take no more than a small share of the budget, and the few that need more come again
at the end, with what is left. What is found is given in the order of names again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from resource_objects.providers import Allocation
from resource_objects.requests import Request
from resource_objects.resources import resource
from resource_objects.search import necessary
from resource_objects.search.asked import Asked, Parts
from resource_objects.search.budget import Budget, Exhausted
from resource_objects.search.candidates import Candidate, Candidates
from resource_objects.search.explain import Explanation, Outcome
from resource_objects.search.fleet import Fleet
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
        asks = self.question.of_tree(tree)
        try:
            with self.budget.share(most) as part:
                plans = decide(asks, part)
        except Exhausted:
            self.undecided.append(tree)
            return
        if plans is None:
            self.refused.append(tree)
        else:
            self.found[tree] = self._candidate(tree, asks, plans)

    def _candidate(self, tree: int, asks: Iterable[Asked], plans: Iterable[Parts]) -> Candidate:
        fleet = self.question.fleet
        taken = [
            (ask, asked.numbers[giver], part)
            for ask, asked, parts in zip(self.question.asks, asks, plans, strict=True)
            for giver, part in parts
        ]
        givers = fleet.inventories.provider[[number for _, number, _ in taken]].tolist()
        return Candidate(
            host=fleet.hosts[tree],
            allocations=tuple(
                _allocation(fleet, ask, giver, part)
                for giver, (ask, _, part) in zip(givers, taken, strict=True)
            ),
            generations=tuple(_generations(fleet, givers)),
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


def _generations(fleet: Fleet, givers: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Yield (uuid, generation) of some providers and of all above them, each once."""
    for provider in dict.fromkeys(above for giver in givers for above in fleet.upwards(giver)):
        yield fleet.uuids[provider], int(fleet.generation[provider])
