"""The search over all trees, within a limit and a budget.

Hosts take turns, in the order of the request: the first candidate of each host, then the second of
those that have one. At first no host may take more than a small share of the budget. The few that
need more are searched again at the end, with the rest of it. Candidates come in the order of turns,
then of hosts.

The request is compiled, and hosts are excluded by arrays, when the search is made; a tree is
searched when its candidate is read. Where a request only counts, no amount is divided and no two
classes use the same inventory, arrays decide all hosts at once, and reading builds the candidate.

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
from resource_objects.resources.backtracking import Budget, CutShort
from resource_objects.search.answer import Feasibility, SearchOutcome
from resource_objects.search.arrays import Booleans
from resource_objects.search.candidate import Candidate
from resource_objects.search.candidates import Candidates, Entry
from resource_objects.search.conditions.near import UNCONSTRAINED
from resource_objects.search.explain import Explanation
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Options, Preference
from resource_objects.search.problem import compile_request, decide_by_arrays, possible_trees
from resource_objects.search.tree_search import Part, TreeSearch, Wider, candidate

#: Steps that one host may take before the others had their turn.
STEPS_OF_FIRST_TURN = 1000


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
        turns.entries(),
        request,
        build=turns.build,
        explain=turns.explain,
        ended=turns.ended,
        options=options,
        at=at,
    )


class _Turn(NamedTuple):
    """A tree to be searched. Turns are sorted by the first two figures."""

    domains: int  #: the number of domains that it needs at least; 1 if few are not requested
    position: int  #: among the trees, in the order of the request
    tree: int
    search: TreeSearch | None = None  #: None: to be begun


class _Turns:
    """One search over all trees while it runs."""

    def __init__(self, fleet: Fleet, request: Request, options: Options) -> None:
        self._options = options
        self._feasibility = functools.partial(Feasibility, fleet, request, options)
        limited = fleet.as_of_now().with_limits(options.limits)
        self._problem = problem = compile_request(request, limited, options.filters)
        self._preference = Preference(limited, request, options.order, options.seed, options.keeps)
        self._budget = Budget(options.budget)
        self._possible = possible_trees(problem)
        self._has_one_each = options.per_host == 1
        self._by_arrays = decide_by_arrays(
            problem, self._preference.keeps_order, of_each=not self._has_one_each
        )
        self._prefers_few = problem.near is not None and not problem.near.is_required
        #: where few domains are preferred, steps for the search without this preference
        self._reserve = options.budget // 2 if self._prefers_few else 0
        self._waiting: list[_Turn] = []  # where few domains are preferred, a heap
        self._further: list[_Turn] = []  # of trees that may have further candidates
        self._count = 0  # of candidates
        self._decided: list[int] = []  # trees with a candidate or without
        self._refused: list[int] = []
        self._undecided: list[_Turn] = []
        self._exhausted: list[_Turn] = []  # undecided, and a larger budget would not help
        self._may_have_more = False  # some tree may have more candidates than were returned
        #: whether pools alone may provide a candidate
        self._is_of_pools = not problem.rules.host_gives and problem.fleet.has_pools
        self._pool_keys: set[Hashable] = set()  # of the candidates that pools alone provide
        self._repeating: set[int] = set()  # trees with such a candidate of a tree before
        self._first_by_pools: dict[tuple[int, ...], int] = {}
        self._same_pools: dict[int, list[int]] = {}  # by the first tree, the others

    def entries(self) -> Iterator[Entry]:
        """Yield the candidates by turns, then in the order of the trees."""
        # candidates that follow those of a tree that needs more steps
        deferred: list[tuple[_Turn, Entry]] = []
        for turn, entry in self._first_candidates(self._all_turns(), STEPS_OF_FIRST_TURN):
            if self._undecided:
                deferred.append((turn, entry))
            else:
                yield entry
        again, self._undecided = self._undecided, []
        deferred += self._first_candidates(self._in_order(again), None)
        for _, entry in sorted(deferred, key=lambda pair: pair[0][:2]):
            yield entry
        self._undecided += self._exhausted
        self._further.sort(key=lambda turn: turn[:2])
        number = 1
        while self._further and not self._is_full and number != self._options.per_host:
            yield from self._next_candidates()
            number += 1

    def build(self, tree: int) -> Candidate:
        """Return the candidate of a tree that arrays decided."""
        return candidate(self._problem, tree, self._parts_by_arrays(tree))

    def _parts_by_arrays(self, tree: int) -> Iterable[Part]:
        assert self._by_arrays is not None, "arrays decided some"
        amounts = [demand.amount for demand in self._problem.classes]
        return zip(itertools.count(), self._by_arrays.givers(tree), amounts)

    def ended(self) -> tuple[int, bool]:
        """Return the steps that were taken, and whether there may be more candidates."""
        return self._budget.spent, bool(self._undecided) or self._may_have_more

    def explain(self) -> Explanation:
        """Return why hosts have no candidate, after all candidates were found."""
        problem = self._problem
        undecided = self._with_same_pools(turn.tree for turn in self._undecided)
        passing = np.zeros_like(problem.hosts.is_explained)
        passing[self._possible] = True
        passing[self._with_same_pools(self._refused)] = False
        considered: Booleans = problem.hosts.is_explained | passing
        unseen = len(self._possible) - len(self._with_same_pools(self._decided)) - len(undecided)
        outcome = SearchOutcome(
            considered=considered,
            refused=np.flatnonzero(problem.hosts.is_explained & ~passing),
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
        if near is None or not self._prefers_few:
            return map(_Turn, itertools.repeat(1), itertools.count(), trees)
        least = near.least()
        turns = (_Turn(int(least[tree]), position, tree) for position, tree in enumerate(trees))
        return self._in_order(turns)

    def _in_order(self, turns: Iterable[_Turn]) -> Iterator[_Turn]:
        """Yield turns, those of the fewest domains first, with those that are added meanwhile."""
        self._waiting = sorted(turns, key=lambda turn: turn[:2])
        while self._waiting:
            yield heapq.heappop(self._waiting)

    def _first_candidates(
        self, turns: Iterator[_Turn], most: int | None
    ) -> Iterator[tuple[_Turn, Entry]]:
        """Yield the first candidate of each tree.

        :param most: the steps that one tree may take; None for all, without another try
        """
        by_arrays = self._by_arrays
        for turn in turns:
            if self._is_full:
                return
            if self._is_of_pools and self._has_same_pools(turn.tree):
                continue
            if by_arrays is not None and by_arrays.decides[turn.tree]:
                self._decided.append(turn.tree)
                self._count += 1
                if by_arrays.is_only is not None and not self._has_one_each:
                    self._further += [] if by_arrays.is_only[turn.tree] else [turn]
                yield turn, turn.tree
            elif not self._budget.remaining:
                self._undecided += [turn, *turns]
                return
            elif not self._allowance(turn):
                self._widen(turn, UNCONSTRAINED)
            else:
                entry = self._searched(turn, most)
                if entry is not None:
                    yield turn, entry

    def _allowance(self, turn: _Turn) -> int:
        """Return the steps that a tree may take: some are reserved for the search without few."""
        reserve = self._reserve if turn.domains < UNCONSTRAINED else 0
        return max(0, self._budget.remaining - reserve)

    def _searched(self, turn: _Turn, most: int | None) -> Candidate | None:
        """Return the first candidate of a tree, None if there is none or it is not known yet."""
        allowance, search = self._allowance(turn), turn.search
        if search is None:
            search = TreeSearch(self._problem, turn.tree, self._preference, turn.domains)
        try:
            result = self._next(search, allowance if most is None else min(most, allowance))
        except SearchLimitReached as error:
            is_final = isinstance(error, CutShort)
            is_few = self._prefers_few and turn.domains < UNCONSTRAINED
            if is_few and (is_final or most is None or not self._allowance(turn)):
                self._widen(turn, UNCONSTRAINED)
            else:
                undecided = self._exhausted if is_final else self._undecided
                undecided.append(turn._replace(search=None))
            return None
        if isinstance(result, Wider):
            self._widen(turn, result.domains, search)
            return None
        self._decided.append(turn.tree)
        if result is None:
            if turn.tree not in self._repeating:
                self._refused.append(turn.tree)
        elif not self._has_one_each:
            self._further.append(turn._replace(search=search))
        return result

    def _widen(self, turn: _Turn, domains: int, search: TreeSearch | None = None) -> None:
        """Add a turn of a tree for when the others with this number of domains have theirs.

        :param search: None if the budget does not suffice to find out whether fewer are enough
        """
        self._may_have_more |= search is None
        heapq.heappush(self._waiting, _Turn(domains, turn.position, turn.tree, search))

    # --- further candidates ---

    def _next_candidates(self) -> Iterator[Candidate]:
        """Yield one more candidate of each tree that has one."""
        turns, self._further = self._further, []
        for turn in turns:
            if self._is_full:
                return
            search = turn.search
            try:
                if search is None:
                    search = TreeSearch(self._problem, turn.tree, self._preference)
                    search.exclude(self._parts_by_arrays(turn.tree))
                result = self._next(search, self._budget.remaining)
                while isinstance(result, Wider):
                    result = self._next(search, self._budget.remaining)
            except SearchLimitReached:
                self._may_have_more = True
                continue
            if result is not None:
                self._further.append(turn._replace(search=search))
                yield result

    def _next(self, search: TreeSearch, most: int) -> Candidate | Wider | None:
        """Return the next candidate of a tree, None if there is none."""
        while (result := search.next(self._budget, most)) is not None:
            if isinstance(result, Wider):
                return result
            if not (result.is_of_pools and self._is_of_pools):
                break
            if result.key not in self._pool_keys:
                self._pool_keys.add(result.key)
                break
            self._repeating.add(search.tree)
        else:
            return None
        self._count += 1
        return result.candidate

    # --- trees that only pools provide to ---
    # Where no host needs to provide anything itself, trees without inventories of the request that
    # are linked to the same pools have the same candidates. Only the first of them is searched.

    def _has_same_pools(self, tree: int) -> bool:
        """Return whether a tree before has the same candidates."""
        if self._problem.hosts.has_any[tree]:
            return False
        pools = tuple(self._problem.fleet.pools.of_tree(tree))
        first = self._first_by_pools.setdefault(pools, tree)
        if first != tree:
            self._same_pools.setdefault(first, []).append(tree)
        return first != tree

    def _with_same_pools(self, trees: Iterable[int]) -> list[int]:
        """Return trees, and those that have the same candidates."""
        return [same for tree in trees for same in (tree, *self._same_pools.get(tree, ()))]
