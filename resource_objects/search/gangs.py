"""Where a gang fits: which host gets how many of which member, and what each of them takes.

Arrays say what each host can hold at most (:mod:`.gang_fleet`), and within that the members are
dealt out (:mod:`.dealing`); if that cannot be, the gang does not fit, for sure. What was dealt is
then tried, in a scenario, with the search that finds candidates for one consumer. A host that
cannot hold what it got, whichever candidates are taken, is bound to what it can hold, and all is
dealt again: in the end the gang fits, or it does not, or the budget is spent.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import FrozenDict
from resource_objects.requests.gang import HOST, Gang
from resource_objects.resources.budget import Budget
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.backtracking import Solution, solutions
from resource_objects.search.candidates import Candidate
from resource_objects.search.dealing import Place, Portion, deal, most_of
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_fleet import GangFleet, Kind, Levels
from resource_objects.search.limits import under
from resource_objects.search.order import Options, Preference
from resource_objects.search.problem import Problem, lay
from resource_objects.search.scenario import Scenario
from resource_objects.search.tree_search import TreeSearch, Wider, counted_candidate

#: More hosts are looked at first than seem to be needed, by this factor and so many.
_SPARE = 2, 16
#: Steps of the budget for laying a request over the fleet once more.
_LAYING = 50


@dataclasses.dataclass(frozen=True, slots=True)
class Shortage:
    """What a gang lacks: of one member, in the place of a level where most of it fits."""

    member: str
    asked: int  #: how many
    fits: int  #: how many could be placed there
    level: str | None = None  #: None: anywhere
    place: str | None = None
    resource: str | None = None  #: the class of which there is least; None if all kinds fit alone
    requested: int = 0  #: of the class, by all of these members
    free: int = 0  #: of it, on the hosts that may hold one
    beside: tuple[str, ...] = ()  #: the other members, if it is only beside these that it is short
    at_most: Mapping[str, int] = FrozenDict()  #: by level, the bounds that are in the way

    def __str__(self) -> str:
        where = f"{self.level} {self.place}: " if self.level else ""
        beside = f" beside {', '.join(self.beside)}" if self.beside else ""
        what = f"{where}{self.member} asked {self.asked}, fits {self.fits}{beside}"
        if self.at_most:
            told = ", ".join(f"at most {most} per {name}" for name, most in self.at_most.items())
            return f"{what} ({told})"
        if self.resource is None:
            return what
        return f"{what} ({self.resource} asked {self.requested}, free {self.free})"


class GangFit:
    """Where a gang fits: true with a candidate for each member, false with what it lacks.

    >>> import resource_objects as ro
    >>> from resource_objects.requests.gang import Gang, Member
    >>> with ro.connect("memory://") as ledger:
    ...     for number in range(2):
    ...         done = ledger.sync(ro.Provider(f"host{number}", "VCPU=4"))
    ...     snapshot = ledger.snapshot()
    ...     fit = snapshot.fit_gang(Gang([Member("worker", "VCPU=2", count=3)]))
    ...     claims = ledger.claim_all(fit.candidates)
    >>> for claim in claims:
    ...     print(claim)
    worker-0 holds VCPU=2 of host0
    worker-1 holds VCPU=2 of host0
    worker-2 holds VCPU=2 of host1
    >>> print(snapshot.fit_gang(Gang([Member("worker", "VCPU=3", count=3)])))
    worker asked 3, fits 2 (VCPU asked 9, free 8)
    """

    __slots__ = ("candidates", "gang", "shortages")

    def __init__(
        self,
        gang: Gang,
        candidates: Mapping[str, Candidate],
        shortages: tuple[Shortage, ...] = (),
    ) -> None:
        self.gang = gang
        #: by the name of each member; empty if the gang does not fit
        self.candidates = candidates
        #: what it lacks; empty if it fits
        self.shortages = shortages

    def __bool__(self) -> bool:
        return bool(self.candidates)

    def __str__(self) -> str:
        if not self:
            return "\n".join(map(str, self.shortages))
        return "\n".join(f"{name}: {one}" for name, one in self.candidates.items())

    def __repr__(self) -> str:
        return f"<GangFit: {len(self.candidates)} of {self.gang.count} members placed>"


def fit_gang(scenario: Scenario[Any], gang: Gang, levels: Levels, options: Options) -> GangFit:
    """Return where a gang fits.

    Cost: some passes over the fleet for each kind of member, then some 10 microseconds for each
    member where counts alone are asked for, half a millisecond where devices or cells are chosen.

    :param scenario: a fork of what is asked, in which members may be tried; left as it was
    :param levels: the aggregates of each level that the gang names
    :param options: of the search: order, seed, budget, limits and filters
    :raises InvalidRequest: for a level without places, one with a host in two of its places, or
        levels that do not lie within each other
    :raises SearchLimitReached: if the budget is spent before it is known
    """
    return _Fitting(scenario, gang, levels, options).fit()


#: By kind, the trees where it may go.
_Allowed: TypeAlias = tuple[Booleans, ...]
#: By kind, what was found for its members.
_Given: TypeAlias = list[list[Candidate]]


class _Fitting:
    """One gang while it is placed."""

    def __init__(
        self, scenario: Scenario[Any], gang: Gang, levels: Levels, options: Options
    ) -> None:
        self.gang = gang
        self.options = options
        self.budget = Budget(options.budget)
        self.scenario = scenario
        self.fleet = self._fleet_now()
        self.within = GangFleet(gang, self.fleet, levels, options.filters)
        self.kinds, self.need = self.within.kinds, self.within.need
        scarce = min(self.kinds, key=lambda kind: np.count_nonzero(kind.most))
        every = np.flatnonzero(np.logical_or.reduce([kind.most > 0 for kind in self.kinds]))
        self.order = self._preference(scarce.problem).trees(every)
        self.rank = np.full(len(self.fleet.hosts), len(self.order))
        self.rank[self.order] = np.arange(len(self.order))
        self.held: dict[tuple[int, Portion], _Given] = {}  # what hosts hold, where that was tried

    def fit(self) -> GangFit:
        """Return where it fits, or what it lacks."""
        for allowed in self._confinements():
            given = self._placed(allowed)
            if given is not None:
                found: dict[str, Candidate] = {}
                for kind, some in zip(self.kinds, given, strict=True):
                    found.update(zip(kind.names, some, strict=True))
                names = (name for one in self.gang.members for name in one.names)
                return GangFit(self.gang, {name: found[name] for name in names})
        return GangFit(self.gang, {}, tuple(self._shortages()))

    def _fleet_now(self) -> Fleet:
        limits = self.options.limits
        fleet = self.scenario.snapshot.fleet
        return under(fleet, limits) if limits else fleet

    def _preference(self, problem: Problem) -> Preference:
        options = self.options
        return Preference(problem.fleet, problem.request, options.order, options.seed)

    # --- where each kind may go ---

    def _confinements(self) -> Iterator[_Allowed]:
        """Yield where each kind may go: one place of a level for those that stay together."""
        anywhere = self.within.reachable
        for around in self._roomy(self.gang.together, range(len(self.kinds)), anywhere):
            each = [
                self._roomy(kind.like.together, [number], around)
                for number, kind in enumerate(self.kinds)
            ]
            for allowed in itertools.product(*each):
                self.budget.spend()
                yield allowed

    def _roomy(self, level: str | None, kinds: Iterable[int], around: Booleans) -> list[Booleans]:
        """Return the places of a level that may hold all of some kinds, the preferred first.

        :param around: only of what is in there
        """
        if level is None:
            return [around]
        places: Iterable[Integers]
        if level == HOST:
            enough = [self.kinds[k].most >= self.need[k] for k in kinds]
            places = np.flatnonzero(np.logical_and.reduce([around, *enough])).reshape(-1, 1)
        else:
            every = (trees[around[trees]] for trees in self.within.places[level].values())
            places = [
                trees
                for trees in every
                if all(self.kinds[k].most[trees].sum() >= self.need[k] for k in kinds)
            ]
        masks = []
        for trees in sorted(places, key=lambda one: int(self.rank[one].min())):
            mask = np.zeros_like(around)
            mask[trees] = True
            masks.append(mask)
        return masks

    # --- dealing, and trying what was dealt ---

    def _placed(self, allowed: _Allowed) -> _Given | None:
        """Return candidates by kind, None if they cannot be had where each kind may go."""
        kinds = zip(allowed, self.kinds, strict=True)
        most = [np.where(mask, kind.most, 0) for mask, kind in kinds]
        can = np.logical_or.reduce([counts > 0 for counts in most])
        trees = [tree for tree in self.order if can[tree]]
        looked_at = self._likely(trees, most)
        while True:
            root = self.within.root(trees[:looked_at], most, self.budget)
            dealt = deal(root, self.need, self.budget)
            if dealt is None:
                if looked_at >= len(trees):
                    return None
                looked_at = len(trees)
                continue
            given = self._tried({int(name): portion for name, portion in dealt.items()})
            if given is not None:
                return given

    def _likely(self, trees: Sequence[int], most: Sequence[Integers]) -> int:
        """Return how many trees are likely to be enough."""
        factor, more = _SPARE
        enough = 0
        for counts, count in zip(most, self.need, strict=True):
            total = np.cumsum(counts[list(trees)])
            enough = max(enough, int(total.searchsorted(factor * count)))
        return enough + more

    def _tried(self, dealt: Mapping[int, Portion]) -> _Given | None:
        """Return candidates for what was dealt, None if some host cannot hold what it got.

        :raises SearchLimitReached: if hosts could hold it by themselves, but not all at once
        """
        if self._is_counted(dealt):
            return self._counted(dealt)
        given: dict[int, _Given] = {}
        for tree, portion in dealt.items():
            if (tree, portion) in self.held:
                given[tree] = self.held[tree, portion]
                if not all(map(self._take, itertools.chain.from_iterable(given[tree]))):
                    raise SearchLimitReached(self.budget.allowed)  # pools are short of it together
        new = {tree: portion for tree, portion in dealt.items() if tree not in given}
        found, failed = self._rounds(new)
        given |= found
        self._undo()
        for tree, portion in new.items():
            if tree in failed:
                self._learn(tree, failed[tree], portion)
            else:
                self.held[tree, portion] = given[tree]
        if failed:
            return None
        return [[c for some in given.values() for c in some[k]] for k in range(len(self.kinds))]

    def _rounds(self, dealt: Mapping[int, Portion]) -> tuple[dict[int, _Given], dict[int, Portion]]:
        """Take what was dealt in the scenario, one member of each host in each round.

        Returns what each host gave, and of those that failed what they did not take.
        """
        given: dict[int, _Given] = {tree: [[] for _ in self.kinds] for tree in dealt}
        left = {tree: list(portion) for tree, portion in dealt.items()}
        failed: dict[int, Portion] = {}
        while left:
            for number, kind in enumerate(self.kinds):
                trees = [tree for tree, counts in left.items() if counts[number]]
                problem = self._laid_now(kind) if trees else kind.problem
                for tree in trees:
                    found = next(self._ways(problem, tree), None)
                    if found is not None and self._take(found):
                        given[tree][number].append(found)
                        left[tree][number] -= 1
                        continue
                    failed[tree] = tuple(
                        len(some) + (k == number) for k, some in enumerate(given[tree])
                    )
                    del left[tree]
            left = {tree: counts for tree, counts in left.items() if any(counts)}
        return given, failed

    def _is_counted(self, dealt: Mapping[int, Portion]) -> bool:
        """Return whether arrays have decided what was dealt."""
        found = self.kinds[0].direct
        if len(self.kinds) > 1 or found is None or self.fleet.pools or self.fleet.shares:
            return False
        return found.is_only is not None and bool((found.decides & found.is_only)[[*dealt]].all())

    def _counted(self, dealt: Mapping[int, Portion]) -> _Given:
        """Return candidates where arrays have decided."""
        (kind,) = self.kinds
        assert kind.direct is not None, "arrays have decided"
        found: list[Candidate] = []
        for tree, (count,) in dealt.items():
            found += [counted_candidate(kind.problem, tree, kind.direct.givers(tree))] * count
        return [found]

    def _laid_now(self, kind: Kind) -> Problem:
        """Return what a kind asks of the scenario as it is now."""
        if not len(self.scenario):
            return kind.problem
        self.budget.spend(_LAYING)
        return lay(kind.like.request, self._fleet_now(), self.options.filters)

    def _ways(self, problem: Problem, tree: int) -> Iterator[Candidate]:
        """Yield the candidates of a tree."""
        search = TreeSearch(problem, tree, self._preference(problem))
        while (hit := search.next(self.budget, self.budget.left)) is not None:
            if not isinstance(hit, Wider):
                yield hit.candidate

    def _take(self, found: Candidate) -> bool:
        """Take a candidate in the scenario; return whether it is free."""
        try:
            self.scenario.claim(f"(member {len(self.scenario)})", found)
        except exceptions.CapacityException:
            return False
        return True

    def _undo(self) -> None:
        while len(self.scenario):
            self.scenario.undo()

    def _learn(self, tree: int, more: Portion, portion: Portion) -> None:
        """Find out whether a host can hold a portion at all, of which it did not take ``more``."""
        for one in dict.fromkeys((more, portion)):
            held = self._hold(tree, one)
            if held is None:
                self.within.refuse(tree, one)
                return
            self.held[tree, one] = held

    def _hold(self, tree: int, portion: Portion) -> _Given | None:
        """Return how one host can hold a portion, None if it cannot: all ways are tried.

        Of an amount that says where it goes, such as a topology, a search finds one way beside what
        is taken, so which member comes first matters; if no order does, that is no no.

        :raises SearchLimitReached: if it is not known
        """
        asked = [kind for kind, count in enumerate(portion) if count]
        if not any(self.kinds[kind].problem.located for kind in asked):
            return self._held_in(tree, portion, asked)
        for order in itertools.permutations(asked):
            found = self._held_in(tree, portion, order)
            if found is not None:
                return found
        raise SearchLimitReached(self.budget.allowed)

    def _held_in(self, tree: int, portion: Portion, order: Sequence[int]) -> _Given | None:
        """Return how one host can hold a portion, the kinds taken in an order."""
        given: _Given = [[] for _ in self.kinds]

        def expand(left: Portion) -> Iterator[Portion | Solution[_Given]]:
            if not any(left):
                yield Solution([list(some) for some in given])
                return
            number = next(kind for kind in order if left[kind])
            for one in self._ways(self._laid_now(self.kinds[number]), tree):
                if self._take(one):
                    given[number].append(one)
                    yield tuple(c - (k == number) for k, c in enumerate(left))
                    given[number].pop()
                    self.scenario.undo()

        found = next(solutions(portion, expand, self.budget), None)
        self._undo()
        return found

    # --- what it lacks ---

    def _shortages(self) -> Iterator[Shortage]:
        """Yield what the gang lacks, in the place of its level where most of it fits."""
        around, place = self._best()
        most = [np.where(around, kind.most, 0) for kind in self.kinds]
        root = self.within.root([tree for tree in self.order if around[tree]], most, self.budget)
        short = [(number, most_of(root, self.need, number)) for number in range(len(self.kinds))]
        short = [(number, fits) for number, fits in short if fits < self.need[number]]
        level = self.gang.together if place is not None else None
        for number, fits in short:
            one = self._short_of(number, fits, around)
            yield dataclasses.replace(one, level=level, place=place)
        if not short:
            yield dataclasses.replace(self._beside(root), level=level, place=place)

    def _best(self) -> tuple[Booleans, str | None]:
        """Return the hosts of the place where most fits, and its name; all where none is asked."""
        level, anywhere = self.gang.together, self.within.reachable
        if level is None:
            return anywhere, None
        if level == HOST:
            places = {name: np.array([tree]) for tree, name in enumerate(self.fleet.hosts)}
        else:
            places = self.within.places[level]

        def fits(name: str) -> list[float]:
            each = zip(self.kinds, self.need, strict=True)
            return sorted(min(1.0, kind.most[places[name]].sum() / count) for kind, count in each)

        best = max(places, key=fits)
        found = np.zeros_like(anywhere)
        found[places[best]] = True
        return found & anywhere, best

    def _short_of(self, number: int, fits: int, around: Booleans) -> Shortage:
        """Return what a kind lacks by itself: the class that allows fewest, or a bound."""
        kind, asked = self.kinds[number], self.need[number]
        told = Shortage(kind.label, asked, fits)
        most = np.where(around, kind.most, 0)
        able = most > 0 if most.any() else around
        supply, each = self.within.supply, kind.totals
        free = {name: supply.together(name, able) for name in each}
        count = {
            name: min(free[name] // total, int((supply.of(name)[able] // total).sum()))
            for name, total in each.items()
        }
        scarce = min(count, key=lambda name: count[name], default=None)
        if scarce is None or count[scarce] >= asked:
            bounds = FrozenDict({**self.gang.at_most, **kind.like.at_most})
            return dataclasses.replace(told, at_most=bounds)  # what is free would do
        return dataclasses.replace(
            told, resource=scarce, requested=asked * each[scarce], free=free[scarce]
        )

    def _beside(self, root: Place) -> Shortage:
        """Return how many of the most numerous kind fit beside all others."""
        number = max(range(len(self.kinds)), key=lambda k: self.need[k])
        low, high = 0, self.need[number]
        while low + 1 < high:  # so many fit, and so many do not
            count = (low + high) // 2
            need = tuple(count if k == number else n for k, n in enumerate(self.need))
            low, high = (count, high) if deal(root, need, self.budget) else (low, count)
        others = tuple(kind.label for k, kind in enumerate(self.kinds) if k != number)
        return Shortage(self.kinds[number].label, self.need[number], low, beside=others)
