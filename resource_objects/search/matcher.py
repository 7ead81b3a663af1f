"""The search over all trees, within a limit and a budget.

Hosts are looked at in the order of their names, one candidate each. No host starves the others: at
first each may take no more than a small share of the budget, and the few that need more come again
at the end, with what is left. What is found is given in the order of names again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from resource_objects.requests import Request
from resource_objects.search import necessary
from resource_objects.search.asked import Asked
from resource_objects.search.budget import Budget, CutShort, Exhausted
from resource_objects.search.building import Unnamed, candidate
from resource_objects.search.candidates import Candidate, Candidates
from resource_objects.search.explain import Explanation, Outcome
from resource_objects.search.fleet import Fleet
from resource_objects.search.located import LocatedAsked
from resource_objects.search.question import Question, lay
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
                found = self._candidate(tree, asks, located, part)
        except CutShort:
            self.cut_short.append(tree)
        except Exhausted:
            self.undecided.append(tree)
        else:
            if found is None:
                self.refused.append(tree)
            else:
                self.found[tree] = found

    def _candidate(
        self, tree: int, asks: list[Asked], located: Sequence[LocatedAsked], budget: Budget
    ) -> Candidate | None:
        while (found := decide(asks, budget, located)) is not None:
            try:
                return candidate(self.question, tree, asks, located, found)
            except Unnamed as few:
                budget.spend()
                asks[few.ask] = asks[few.ask].at_most(few.giver, few.amount - 1)
        return None
