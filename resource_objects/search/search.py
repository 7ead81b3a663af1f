"""The search over all trees, within a limit and a budget.

Hosts take turns, in the order of the request: the first candidate of each host, then the second of
those that have one. At first no host may take more than a small share of the budget. The few that
need more are searched again at the end, with the rest of it. Candidates come in the order of turns,
then of hosts.

Nothing is searched before its result is read. Where a request only counts, no amount is divided and
no two classes use the same inventory, arrays decide all hosts at once; a candidate is built when it
is read.

Rejected: all candidates of a host before the next host, with which one host of many ways fills the
limit; equal shares of the budget for all hosts, which are too small for the few hard ones and
unused by the others; a merge by how good each candidate is, for which every one has to be found
before the first is returned.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from resource_objects.exceptions import SearchLimitReached
from resource_objects.requests import Request
from resource_objects.resources.backtracking import CutShort
from resource_objects.resources.budget import Budget
from resource_objects.search.arrays import Booleans
from resource_objects.search.candidate import Candidate
from resource_objects.search.candidates import Candidates, Hit
from resource_objects.search.conditions.near import UNCONSTRAINED
from resource_objects.search.explain import Explanation
from resource_objects.search.feasibility import Feasibility, SearchOutcome
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Options, Preference
from resource_objects.search.problem import compile_request, decide_by_arrays, possible_trees
from resource_objects.search.tree_search import TreeSearch, Wider, counted_candidate
from resource_objects.search.usage import with_limits

#: Steps that one host may take before the others had their turn.
FIRST_TURN = 1000


def search(
    fleet: Fleet, request: Request, options: Options, *, at: str | None = None
) -> Candidates:
    """Return the candidates of a request, to be found when they are read.

    Cost: a vectorised pass over the fleet; then a microsecond per host that arrays decide and some
    8 to build its candidate when it is read, some 200 for each other host that may satisfy the
    request where the decision is easy; never more than ``budget`` steps.
    """
    turns = _Turns(fleet, request, options)
    return Candidates(
        turns.hits(),
        request,
        build=turns.build,
        explain=turns.explain,
        ended=turns.ended,
        options=options,
        at=at,
    )


class _Turn(NamedTuple):
    """A tree to be searched. Turns are sorted by the first two figures."""

    places: int  #: the number of places that it needs at least; 0 if few places are not requested
    position: int  #: among the trees, in the order of the request
    tree: int
    search: TreeSearch | None = None  #: None: to be begun


class _Turns:
    """One search over all trees while it runs."""

    def __init__(self, fleet: Fleet, request: Request, options: Options) -> None:
        self._options = options
        self._feasibility = functools.partial(Feasibility, fleet, request, options)
        limited = with_limits(fleet.as_of_now(), options.limits)
        self._problem = problem = compile_request(request, limited, options.filters)
        self._preference = Preference(limited, request, options.order, options.seed, options.keeps)
        self._budget = Budget(options.budget)
        self._possible = possible_trees(problem)
        self._direct = decide_by_arrays(
            problem, self._preference.is_plain, of_each=options.per_host != 1
        )
        self._is_near = problem.near is not None and not problem.near.is_required
        #: where few places are preferred, steps for the search without this preference
        self._reserve = options.budget // 2 if self._is_near else 0
        self._waiting: list[_Turn] = []  # where few places are preferred, a heap
        self._further: list[_Turn] = []  # of trees that may have further candidates
        self._count = 0  # of candidates
        self._with_candidate: set[int] = set()
        self._decided: list[int] = []  # with a candidate or without
        self._refused: list[int] = []
        self._undecided: list[_Turn] = []
        self._exhausted: list[_Turn] = []  # undecided, and a larger budget would not help
        self._may_have_more = False  # some tree may have more candidates than were found
        #: whether pools alone may provide a candidate
        self._is_of_pools = not problem.rules.host_gives and bool(problem.fleet.pools)
        self._pool_keys: set[Hashable] = set()  # of the candidates that pools alone provide
        self._first_by_pools: dict[tuple[int, ...], int] = {}
        self._same_pools: dict[int, list[int]] = {}  # by the first tree, the others

    def hits(self) -> Iterator[Hit]:
        """Yield the candidates by turns, then in the order of the trees."""
        deferred: list[tuple[_Turn, Hit]] = []  # they follow those of a tree that needs more steps
        for turn, hit in self._first_candidates(self._all_turns(), FIRST_TURN):
            if self._undecided:
                deferred.append((turn, hit))
            else:
                yield hit
        again, self._undecided = self._undecided, []
        deferred += self._first_candidates(self._in_order(again), None)
        for _, hit in sorted(deferred, key=lambda one: one[0][:2]):
            yield hit
        self._undecided += self._exhausted
        self._further.sort(key=lambda turn: turn[:2])
        number = 1
        while self._further and not self._is_full and number != self._options.per_host:
            yield from self._next_candidates()
            number += 1

    def build(self, tree: int) -> Candidate:
        """Return the candidate of a tree that arrays decided."""
        assert self._direct is not None, "arrays decided some"
        return counted_candidate(self._problem, tree, self._direct.givers(tree))

    def ended(self) -> tuple[int, bool]:
        """Return the steps that were taken, and whether there may be more candidates."""
        return self._budget.spent, bool(self._undecided) or self._may_have_more

    def explain(self) -> Explanation:
        """Return why hosts have no candidate, after all candidates were found."""
        problem = self._problem
        undecided = self._with_same_pools(turn.tree for turn in self._undecided)
        passing = np.zeros_like(problem.is_explained)
        passing[self._possible] = True
        passing[self._with_same_pools(self._refused)] = False
        told: Booleans = problem.is_explained | passing
        unseen = len(self._possible) - len(self._with_same_pools(self._decided)) - len(undecided)
        outcome = SearchOutcome(
            considered=told,
            refused=np.flatnonzero(problem.is_explained & ~passing),
            undecided=tuple(sorted(undecided)),
            unseen=unseen if self._is_full else 0,
            budget=self._budget.allowed,
            feasibility=self._feasibility,
        )
        return Explanation(problem, outcome)

    @property
    def _is_full(self) -> bool:
        """Whether the limit was reached."""
        return self._count == self._options.limit

    # --- the first candidate of each tree ---

    def _all_turns(self) -> Iterator[_Turn]:
        trees = self._preference.trees(self._possible)
        near = self._problem.near
        if near is None or not self._is_near:
            return map(_Turn, itertools.repeat(0), itertools.count(), trees)
        least = near.least()
        turns = (_Turn(int(least[tree]), position, tree) for position, tree in enumerate(trees))
        return self._in_order(turns)

    def _in_order(self, turns: Iterable[_Turn]) -> Iterator[_Turn]:
        """Yield turns, those of the fewest places first, with those that are added meanwhile."""
        self._waiting = sorted(turns, key=lambda turn: turn[:2])
        while self._waiting:
            yield heapq.heappop(self._waiting)

    def _first_candidates(
        self, turns: Iterator[_Turn], most: int | None
    ) -> Iterator[tuple[_Turn, Hit]]:
        """Yield the first candidate of each tree.

        :param most: the steps that one tree may take; None for all, without another try
        """
        direct = self._direct
        for turn in turns:
            if self._is_full:
                return
            if self._is_of_pools and self._has_same_pools(turn.tree):
                continue
            if direct is not None and direct.decides[turn.tree]:
                self._note_decided(turn)
                yield turn, turn.tree
            elif not self._budget.left:
                self._undecided += [turn, *turns]
                return
            elif not self._spare(turn):
                self._widen(turn, UNCONSTRAINED)
            else:
                hit = self._searched(turn, most)
                if hit is not None:
                    yield turn, hit

    def _note_decided(self, turn: _Turn) -> None:
        """Count the candidate of a tree that arrays decided; it is built when it is read."""
        direct, tree = self._direct, turn.tree
        assert direct is not None, "arrays decided some"
        self._decided.append(tree)
        self._count += 1
        if direct.is_only is not None and self._options.per_host != 1 and not direct.is_only[tree]:
            self._with_candidate.add(tree)
            self._further.append(turn)

    def _spare(self, turn: _Turn) -> int:
        """Return the steps that a tree may take: some remain for the search without few places."""
        is_near = self._is_near and turn.places < UNCONSTRAINED
        return max(0, self._budget.left - self._reserve) if is_near else self._budget.left

    def _searched(self, turn: _Turn, most: int | None) -> Hit | None:
        """Return the first candidate of a tree, None if there is none or it is not known yet."""
        spare = self._spare(turn)
        search = turn.search
        if search is None:
            places = turn.places if self._is_near else None
            search = TreeSearch(self._problem, turn.tree, self._preference, places)
        try:
            hit = self._next(turn.tree, search, spare if most is None else min(most, spare))
        except SearchLimitReached as error:
            is_final = isinstance(error, CutShort)
            is_near = self._is_near and turn.places < UNCONSTRAINED
            if is_near and (is_final or most is None or not self._spare(turn)):
                self._widen(turn, UNCONSTRAINED)
            else:
                (self._exhausted if is_final else self._undecided).append(
                    turn._replace(search=None)
                )
            return None
        if isinstance(hit, Wider):
            self._widen(turn, hit.places, search)
            return None
        self._decided.append(turn.tree)
        if hit is not None and self._options.per_host != 1:
            self._further.append(turn._replace(search=search))
        return hit

    def _widen(self, turn: _Turn, places: int, search: TreeSearch | None = None) -> None:
        """Add a turn of a tree for when the others with this number of places have theirs.

        :param search: None if the budget does not suffice to find out whether fewer are enough
        """
        self._may_have_more |= search is None
        heapq.heappush(self._waiting, _Turn(places, turn.position, turn.tree, search))

    def _has_same_pools(self, tree: int) -> bool:
        """Return whether a tree before has the same candidates, because only pools provide them.

        This is so where no host needs to provide anything itself, for trees without inventories of
        the request that are linked to the same pools.
        """
        if self._problem.has_own[tree]:
            return False
        pools = tuple(self._problem.fleet.pools.of_tree(tree))
        first = self._first_by_pools.setdefault(pools, tree)
        if first != tree:
            self._same_pools.setdefault(first, []).append(tree)
        return first != tree

    def _with_same_pools(self, trees: Iterable[int]) -> list[int]:
        """Return some trees, and those that have the same candidates."""
        return [each for tree in trees for each in (tree, *self._same_pools.get(tree, ()))]

    # --- further candidates ---

    def _next_candidates(self) -> Iterator[Hit]:
        """Yield one more candidate of each tree that has one."""
        turns, self._further = self._further, []
        for turn in turns:
            if self._is_full:
                return
            search = turn.search
            try:
                if search is None:
                    search = TreeSearch(self._problem, turn.tree, self._preference)
                    search.next(self._budget, self._budget.left)  # the one decided by arrays
                hit = self._next(turn.tree, search, self._budget.left)
                while isinstance(hit, Wider):
                    hit = self._next(turn.tree, search, self._budget.left)
            except SearchLimitReached:
                self._may_have_more = True
                continue
            if hit is not None:
                self._further.append(turn._replace(search=search))
                yield hit

    def _next(self, tree: int, search: TreeSearch, most: int) -> Hit | Wider | None:
        """Return the next candidate of a tree, None if there is none.

        A candidate of pools alone is returned once, for the first tree that has it.
        """
        is_of_others = False
        while (found := search.next(self._budget, most)) is not None:
            if isinstance(found, Wider):
                return found
            if found.is_of_pools and self._is_of_pools:
                if found.key in self._pool_keys:
                    is_of_others = True
                    continue
                self._pool_keys.add(found.key)
            self._with_candidate.add(tree)
            self._count += 1
            return found.candidate
        if tree not in self._with_candidate and not is_of_others:
            self._refused.append(tree)
        return None
