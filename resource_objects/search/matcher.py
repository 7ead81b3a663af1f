"""The search over all trees, within a limit and a budget.

Hosts are looked at in the order asked for, and take turns: the first candidate of each, then the
second of those that have one. No host starves the others: at first each may take no more than a
small share of the budget, and the few that need more come again at the end, with what is left. What
is found is given in the order of turns, then of hosts.

Rejected: all candidates of a host before the next host, with which one host of many ways fills the
limit; equal shares of the budget for all hosts, which are too small for the few hard ones and
unused by the others; a merge by how good each candidate is, for which every one has to be found
before the first can be given.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from resource_objects.requests import Request
from resource_objects.search import necessary
from resource_objects.search.budget import Budget, CutShort, Exhausted
from resource_objects.search.candidates import Candidate, Candidates
from resource_objects.search.explain import Explanation, Outcome
from resource_objects.search.fleet import Fleet
from resource_objects.search.hosting import Hosting
from resource_objects.search.order import Options
from resource_objects.search.preference import Preference
from resource_objects.search.question import Question, lay

#: Steps that one host may take before the others had their turn.
FIRST_TURN = 1000


def search(
    fleet: Fleet, request: Request, options: Options, *, at: str | None = None
) -> Candidates:
    """Return the first candidates of a request.

    Cost: a vectorised pass over the fleet, then per host that passes it some 50 microseconds
    where the decision is easy; never more than ``budget`` steps.
    """
    question = lay(request, fleet)
    possible = necessary.possible(question)
    run = _Run(question, options)
    run.all_turns(run.preference.trees(possible))
    ruled_out = question.is_told.copy()
    ruled_out[possible] = False
    ruled_out[run.with_like(run.refused)] = True
    undecided = sorted(run.with_like(run.undecided))
    decided = len(run.with_like(run.seen))
    outcome = Outcome(
        refused=np.flatnonzero(ruled_out),
        undecided=tuple(undecided),
        unseen=len(possible) - decided - len(undecided) if run.is_full else 0,
        budget=options.budget,
    )
    return Candidates(
        run.in_order(),
        request,
        explain=functools.partial(Explanation, question, outcome),
        options=options,
        steps=run.budget.spent,
        cut_short=bool(outcome.undecided) or run.is_cut_short,
        at=at,
    )


class _Run:
    """One search while it runs."""

    def __init__(self, question: Question, options: Options) -> None:
        self.question = question
        self.limit = options.limit
        self.per_host = options.per_host
        self.preference = Preference(question.fleet, question.request, options.order, options.seed)
        self.budget = Budget(options.budget)
        self.found: dict[int, list[Candidate]] = {}
        self.count = 0
        self.seen: set[int] = set()  # trees of which it is known whether they have a candidate
        self.refused: list[int] = []
        self.undecided: list[int] = []
        self.cut_short: list[int] = []  # a larger share of the budget would not help
        self.is_cut_short = False  # some host may have more candidates than were found
        self.of_pools: set[Hashable] = set()  # what no tree gives any of itself
        self.place: dict[int, int] = {}  # of the trees that were looked at, in their order
        self.waiting: dict[int, Hosting] = {}  # may have further candidates
        self.by_pools: dict[tuple[int, ...], int] = {}  # trees that only these serve: the first
        self.like: dict[int, list[int]] = {}  # the others of the same pools

    @property
    def is_full(self) -> bool:
        """Whether the limit was reached."""
        return self.count == self.limit

    def all_turns(self, trees: Sequence[int]) -> None:
        """Search some trees, in their order."""
        self._first(trees, FIRST_TURN)
        again, self.undecided = self.undecided, []
        self._first(again, self.budget.left)
        self.undecided += self.cut_short
        turn = 1
        while self.waiting and not self.is_full and turn != self.per_host:
            self._further(sorted(self.waiting, key=self.place.__getitem__))
            turn += 1

    def with_like(self, trees: Iterable[int]) -> list[int]:
        """Return some trees, and those that find what they find."""
        return [each for tree in trees for each in (tree, *self.like.get(tree, ()))]

    def in_order(self) -> list[Candidate]:
        """Return what was found, by turns, then in the order of the trees."""
        every = [
            (turn, self.place[tree], one)
            for tree, some in self.found.items()
            for turn, one in enumerate(some)
        ]
        return [one for _, _, one in sorted(every, key=lambda item: item[:2])]

    def _first(self, trees: Sequence[int], most: int) -> None:
        """Look for the first candidate of each, with at most ``most`` steps for one."""
        for place, tree in enumerate(trees):
            if self.is_full:
                return
            first = self._served_like(tree)
            if first != tree:
                self.like.setdefault(first, []).append(tree)
                continue
            self.place.setdefault(tree, len(self.place))
            if not self.budget.left:
                self.undecided.extend(trees[place:])
                return
            hosting = Hosting(self.question, tree, self.preference)
            try:
                is_found = self._step(tree, hosting, most)
            except CutShort:
                self.cut_short.append(tree)
            except Exhausted:
                self.undecided.append(tree)
            else:
                self.seen.add(tree)
                if is_found and self.per_host != 1:
                    self.waiting[tree] = hosting

    def _served_like(self, tree: int) -> int:
        """Return the first tree that finds what a tree finds: it itself, but where only pools give.

        Where no host needs to give anything itself, trees that keep nothing of what is asked find
        the same candidates if they are linked to the same pools.
        """
        question = self.question
        if question.rules.host_gives or not question.fleet.pools or question.has_own[tree]:
            return tree
        return self.by_pools.setdefault(tuple(question.fleet.pools.of_tree(tree)), tree)

    def _further(self, trees: Sequence[int]) -> None:
        """Look for one more candidate of each."""
        for tree in trees:
            if self.is_full:
                return
            try:
                is_found = self._step(tree, self.waiting[tree], self.budget.left)
            except Exhausted:
                self.is_cut_short = True
                is_found = False
            if not is_found:
                del self.waiting[tree]

    def _step(self, tree: int, hosting: Hosting, most: int) -> bool:
        """Look for the next candidate of a tree; return whether there is one.

        What pools alone give is found once, by whichever tree comes first.
        """
        is_of_others = False
        while (found := hosting.next(self.budget, most)) is not None:
            if found.is_of_pools and not self.question.rules.host_gives:
                if found.key in self.of_pools:
                    is_of_others = True
                    continue
                self.of_pools.add(found.key)
            self.found.setdefault(tree, []).append(found.candidate)
            self.count += 1
            return True
        if tree not in self.found and not is_of_others:
            self.refused.append(tree)
        return False
