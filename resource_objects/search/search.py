"""The search over all trees, within a limit and a budget.

Hosts are looked at in the order asked for, and take turns: the first candidate of each, then the
second of those that have one. No host starves the others: at first each may take no more than a
small share of the budget, and the few that need more come again at the end, with what is left. What
is found is given in the order of turns, then of hosts.

Nothing is looked for before somebody looks at it. Where a request only counts, no amount is split
and nothing meets, arrays decide all hosts at once; a candidate is built when it is looked at.

Rejected: all candidates of a host before the next host, with which one host of many ways fills the
limit; equal shares of the budget for all hosts, which are too small for the few hard ones and
unused by the others; a merge by how good each candidate is, for which every one has to be found
before the first can be given.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np

from resource_objects.exceptions import SearchLimitReached
from resource_objects.requests import Request
from resource_objects.resources.backtracking import CutShort
from resource_objects.resources.budget import Budget
from resource_objects.search import limits
from resource_objects.search.candidate import Candidate
from resource_objects.search.candidates import Candidates, Hit
from resource_objects.search.conditions.near import UNCONSTRAINED
from resource_objects.search.explain import Explanation
from resource_objects.search.feasibility import Outlooks, SearchOutcome, UnheldFleet
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Options, Preference
from resource_objects.search.problem import Direct, Problem, direct, lay, possible
from resource_objects.search.tree_search import TreeSearch, Wider, counted_candidate

#: Steps that one host may take before the others had their turn.
FIRST_TURN = 1000


def search(
    fleet: Fleet, request: Request, options: Options, *, at: str | None = None
) -> Candidates:
    """Return the candidates of a request, to be found when somebody looks at them.

    Cost: a vectorised pass over the fleet; then a microsecond per host that arrays decide and some
    8 to build its candidate when it is looked at, some 200 for each other that may hold it where
    the decision is easy; never more than ``budget`` steps.
    """
    within = limits.under(fleet.in_force(), options.limits)
    outlooks = functools.partial(UnheldFleet, fleet, request, options)
    run = _Run(lay(request, within, options.filters), options, outlooks)
    return Candidates(
        run.hits(),
        request,
        build=run.build,
        explain=run.explain,
        ended=run.ended,
        options=options,
        at=at,
    )


class _Run:
    """One search while it runs."""

    def __init__(
        self, problem: Problem, options: Options, outlooks: Callable[[], Outlooks]
    ) -> None:
        self.problem = problem
        self.outlooks = outlooks
        self.limit = options.limit
        self.per_host = options.per_host
        self.preference = Preference(
            problem.fleet, problem.request, options.order, options.seed, options.keeps
        )
        self.budget = Budget(options.budget)
        self.possible = possible(problem)
        self.direct = direct(problem, self.preference.is_plain, of_each=self.per_host != 1)
        self.count = 0
        self.found: set[int] = set()  # trees with a candidate
        self.seen: set[int] = set()  # trees of which it is known whether they have a candidate
        self.refused: list[int] = []
        self.undecided: list[int] = []
        self.cut_short: list[int] = []  # a larger share of the budget would not help
        self.is_cut_short = False  # some host may have more candidates than were found
        self.of_pools: set[Hashable] = set()  # what no tree gives any of itself
        #: of the trees that were looked at: of how few places, and in which order
        self.place: dict[int, tuple[int, int]] = {}
        self.looks = itertools.count()
        #: trees that may have further candidates, None for one that arrays decided
        self.waiting: dict[int, TreeSearch | None] = {}
        self.by_pools: dict[tuple[int, ...], int] = {}  # trees that only these serve: the first
        self.like: dict[int, list[int]] = {}  # the others of the same pools
        self.near = self._near()  # where few places are best: of how few each tree may be next
        self.is_last = False  # what takes too long now comes not again
        #: steps that are left to what is asked without few places
        self.reserve = 0 if self.near is None else options.budget // 2
        self.begun: dict[int, TreeSearch] = {}  # trees that may have something of more places

    def _near(self) -> dict[int, int] | None:
        near = self.problem.near
        if near is None or near.is_required:
            return None
        return dict(zip(self.possible.tolist(), near.least()[self.possible].tolist(), strict=True))

    @property
    def is_full(self) -> bool:
        """Whether the limit was reached."""
        return self.count == self.limit

    def hits(self) -> Iterator[Hit]:
        """Yield what is found, by turns, then in the order of the trees."""
        trees = self.preference.trees(self.possible)
        late: list[
            tuple[tuple[int, int], Hit]
        ] = []  # comes after what a host that needs more may still have
        for place, hit in self._first(trees, FIRST_TURN):
            if self.undecided:
                late.append((place, hit))
            else:
                yield hit
        again, self.undecided = self.undecided, []
        self.is_last = True
        late += self._first(again, self.budget.left)
        for _, hit in sorted(late, key=lambda one: one[0]):
            yield hit
        self.undecided += self.cut_short
        turn = 1
        while self.waiting and not self.is_full and turn != self.per_host:
            yield from self._further(sorted(self.waiting, key=self.place.__getitem__))
            turn += 1

    def build(self, tree: int) -> Candidate:
        """Return the candidate of a tree that arrays decided."""
        assert self.direct is not None, "arrays decided some"
        return counted_candidate(self.problem, tree, self.direct.givers(tree))

    def ended(self) -> tuple[int, bool]:
        """Return the steps that were taken, and whether some host may have more than was found."""
        return self.budget.spent, bool(self.undecided) or self.is_cut_short

    def explain(self) -> Explanation:
        """Return why hosts were left out, when all that is to be found was found."""
        ruled_out = self.problem.is_told.copy()
        ruled_out[self.possible] = False
        ruled_out[self._with_like(self.refused)] = True
        ruled_out &= self.problem.is_told
        told = ruled_out.copy()
        told[self.possible] = True
        told[self._with_like(self.refused)] &= self.problem.is_told[self._with_like(self.refused)]
        undecided = sorted(self._with_like(self.undecided))
        decided = len(self._with_like(self.seen))
        outcome = SearchOutcome(
            told=told,
            refused=np.flatnonzero(ruled_out),
            undecided=tuple(undecided),
            unseen=len(self.possible) - decided - len(undecided) if self.is_full else 0,
            budget=self.budget.allowed,
            outlooks=self.outlooks,
        )
        return Explanation(self.problem, outcome)

    def _with_like(self, trees: Iterable[int]) -> list[int]:
        """Return some trees, and those that find what they find."""
        return [each for tree in trees for each in (tree, *self.like.get(tree, ()))]

    def _first(self, trees: Sequence[int], most: int) -> Iterator[tuple[tuple[int, int], Hit]]:
        """Yield the first candidate of each with its place, with at most ``most`` steps for one.

        Where few places are best, those of the fewest come first, of whichever tree.
        """
        if self.near is None:
            yield from self._turn(trees, most, 0)
            return
        left = list(trees)
        while left and not self.is_full:
            count = min([self.near[tree] for tree in left])
            yield from self._turn([tree for tree in left if self.near[tree] == count], most, count)
            left = [tree for tree in left if self.near[tree] > count]
            if left and not self.budget.left:
                self.undecided.extend(left)
                return

    def _turn(
        self, trees: Sequence[int], most: int, count: int
    ) -> Iterator[tuple[tuple[int, int], Hit]]:
        """Yield the first candidate of some trees with its place, of so many places or fewer."""
        direct = self.direct
        for number, tree in enumerate(trees):
            if self.is_full:
                return
            if self._is_served_alike(tree):
                continue
            place = self.place.setdefault(tree, (count, next(self.looks)))
            if direct is not None and direct.decides[tree]:
                self._note(tree, direct)
                yield place, tree
                continue
            if not self.budget.left:
                self.undecided.extend(trees[number:])
                return
            spare = self._spare(tree)
            if not spare:
                self._widen(tree, UNCONSTRAINED, None)
                continue
            hit = self._tried(tree, min(most, spare))
            if hit is not None:
                yield place, hit

    def _spare(self, tree: int) -> int:
        """Return how many steps a tree may take, so that each can be asked without few places."""
        is_near = self.near is not None and self.near[tree] < UNCONSTRAINED
        return max(0, self.budget.left - self.reserve) if is_near else self.budget.left

    def _tried(self, tree: int, most: int) -> Hit | None:
        """Return the first candidate of a tree, None if there is none or the steps ran out."""
        least = None if self.near is None else self.near[tree]
        hosting: TreeSearch | None = self.begun.pop(tree, None)
        if hosting is None:
            hosting = TreeSearch(self.problem, tree, self.preference, least)
        try:
            hit = self._step(tree, hosting, most)
        except SearchLimitReached as error:
            is_own = isinstance(error, CutShort)
            is_near = least is not None and least < UNCONSTRAINED
            if not is_near or not (is_own or self.is_last or not self._spare(tree)):
                (self.cut_short if is_own else self.undecided).append(tree)
                return None
            hit, hosting = Wider(UNCONSTRAINED), None
        if isinstance(hit, Wider):
            self._widen(tree, hit.places, hosting)
            return None
        self.seen.add(tree)
        if hit is not None and self.per_host != 1:
            self.waiting[tree] = hosting
        return hit

    def _widen(self, tree: int, places: int, hosting: TreeSearch | None) -> None:
        """Let a tree be looked at again when it is the turn of so many places.

        :param hosting: None if it took too long to find out that it cannot be fewer
        """
        assert self.near is not None, "it was asked for few places"
        self.near[tree] = places
        if hosting is None:
            self.is_cut_short = True
        else:
            self.begun[tree] = hosting
        del self.place[tree]

    def _note(self, tree: int, direct: Direct) -> None:
        """Count the first candidate of a tree that arrays decide; it is built when looked at."""
        self.seen.add(tree)
        self.found.add(tree)
        self.count += 1
        if direct.is_only is not None and self.per_host != 1 and not direct.is_only[tree]:
            self.waiting[tree] = None

    def _is_served_alike(self, tree: int) -> bool:
        """Return whether a tree finds what one before it finds, because only pools give.

        Where no host needs to give anything itself, trees that keep nothing of what is asked find
        the same candidates if they are linked to the same pools.
        """
        problem = self.problem
        if problem.rules.host_gives or not problem.fleet.pools or problem.has_own[tree]:
            return False
        first = self.by_pools.setdefault(tuple(problem.fleet.pools.of_tree(tree)), tree)
        if first != tree:
            self.like.setdefault(first, []).append(tree)
        return first != tree

    def _further(self, trees: Sequence[int]) -> Iterator[Hit]:
        """Yield one more candidate of each."""
        for tree in trees:
            if self.is_full:
                return
            try:
                hit = self._step(tree, self._taken_up(tree), self.budget.left)
                while isinstance(hit, Wider):
                    hit = self._step(tree, self._taken_up(tree), self.budget.left)
            except SearchLimitReached:
                self.is_cut_short = True
                hit = None
            if hit is None:
                del self.waiting[tree]
            else:
                yield hit

    def _taken_up(self, tree: int) -> TreeSearch:
        """Return the search on a tree, after what was found of it."""
        known = self.waiting[tree]
        if known is None:
            known = self.waiting[tree] = TreeSearch(self.problem, tree, self.preference)
            known.next(self.budget, self.budget.left)  # what arrays have found already
        return known

    def _step(self, tree: int, hosting: TreeSearch, most: int) -> Hit | Wider | None:
        """Return the next candidate of a tree, None if there is none.

        What pools alone give is found once, by whichever tree comes first.
        """
        is_of_others = False
        while (found := hosting.next(self.budget, most)) is not None:
            if isinstance(found, Wider):
                return found
            if found.is_of_pools and not self.problem.rules.host_gives:
                if found.key in self.of_pools:
                    is_of_others = True
                    continue
                self.of_pools.add(found.key)
            self.found.add(tree)
            self.count += 1
            return found.candidate
        if tree not in self.found and not is_of_others:
            self.refused.append(tree)
        return None
