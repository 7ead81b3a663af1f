"""Where a gang fits: which host gets how many of which member, and what each of them takes.

Arrays say what each host can hold at most (:mod:`.gang_fleet`), and within that the members are
dealt out (:mod:`.dealing`); if that cannot be, the gang does not fit, for sure. What was dealt is
then given by whoever comes first, where counts alone are asked for, and else tried in a scenario,
with the search that finds candidates for one consumer. A host that cannot hold what it got,
whichever candidates are taken, is bound to what it can hold, and all is dealt again. Where each
host can hold what it got, and not all at once, pools are short of something: then all ways of all
hosts are tried. In the end the gang fits, or it does not, or the budget is spent.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.requests.gang import HOST, Gang
from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.search.arrays import Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.disabled import disabled_for
from resource_objects.search.conditions.located import may_hold
from resource_objects.search.dealing import Portion, deal, most_of
from resource_objects.search.demands import LocatedFleetDemand
from resource_objects.search.explain import Explanation, Stage
from resource_objects.search.feasibility import SearchOutcome, UnheldFleet
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_fleet import GangFleet, Kind, Levels, Rooms, Supply
from resource_objects.search.limits import under
from resource_objects.search.order import Options, Preference
from resource_objects.search.problem import Problem, lay
from resource_objects.search.scenario import Scenario
from resource_objects.search.tree_search import TreeSearch, Wider

#: More hosts are looked at first than seem to be needed, by this factor and so many.
_SPARE = 2, 16
#: Steps of the budget for laying a request over the fleet once more: so many, and one for each so
#: many hosts.
_LAYING = 5, 200


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
    stage: Stage | None = None  #: where no host may take one: what of the request left none
    #: why hosts may not take one of it, worked out when somebody looks
    explanation: Explanation | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        where = f"{self.level} {self.place}: " if self.level else ""
        beside = f" beside {', '.join(self.beside)}" if self.beside else ""
        what = f"{where}{self.member} requested {self.asked}, fits {self.fits}{beside}"
        if self.stage is not None:
            return f"{what} ({self.stage})"
        if self.at_most:
            told = ", ".join(f"at most {most} per {name}" for name, most in self.at_most.items())
            return f"{what} ({told})"
        if self.resource is None:
            return what
        return f"{what} ({self.resource} requested {self.requested}, free {self.free})"


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
    worker requested 3, fits 2 (VCPU requested 9, free 8)
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


def fit_gang(scenario: Scenario, gang: Gang, levels: Levels, options: Options) -> GangFit:
    """Return where a gang fits.

    A member that names a level goes only to hosts that are in some place of it; where the gang
    itself names the level, so do all members.

    Cost: some passes over the fleet for each kind of member, then some 10 microseconds for each
    member where counts alone are asked for, half a millisecond where devices or cells are chosen.

    :param scenario: a fork of what is asked, in which members may be tried; left as it was
    :param levels: the aggregates of each level that the gang names
    :param options: of the search: order, seed, budget, limits and filters
    :raises InvalidInput: for a level without places, one with a host in two of its places, or
        levels that do not lie within each other
    :raises SearchLimitReached: if the budget is spent before it is known
    """
    return Fitting(scenario, gang, levels, options).fit()


#: By kind, the trees where it may go.
_Allowed: TypeAlias = tuple[Integers, ...]
#: By kind, what was found for its members.
_Given: TypeAlias = list[list[Candidate]]


class _Point(NamedTuple):
    """Where trying all ways has come to."""

    at: int  #: the place of the host among those that are tried
    kind: int  #: the first kind that this host may still get
    left: Portion  #: what is still to be placed


class Fitting:
    """One gang while it is placed."""

    def __init__(self, scenario: Scenario, gang: Gang, levels: Levels, options: Options) -> None:
        self.gang = gang
        self.options = options
        self.budget = Budget(options.budget)
        self.scenario = scenario
        self.fleet = self._fleet_now()
        self.within = GangFleet(gang, self.fleet, levels, options.filters)
        self.kinds, self.need = self.within.kinds, self.within.need
        self.is_located = any(kind.problem.located for kind in self.kinds)
        scarce = min(self.kinds, key=lambda kind: np.count_nonzero(kind.most))
        every = np.flatnonzero(np.logical_or.reduce([kind.most > 0 for kind in self.kinds]))
        self.order = integers(list(self._preference(scarce.problem).trees(every)))
        self.rank = np.full(len(self.fleet.hosts), len(self.order))
        self.rank[self.order] = np.arange(len(self.order))
        self.held: dict[tuple[int, Portion], _Given] = {}  # what hosts hold, where that was tried
        self.laid: dict[int, Problem] = {}  # kinds over the scenario as it is now

    def fit(self) -> GangFit:
        """Return where it fits, or what it lacks."""
        try:
            given = self.fitted(self.need)
        except SearchLimitReached:  # maybe of a budget that was lent
            raise SearchLimitReached(self.budget.spent) from None
        if given is None:
            self.budget = Budget(self.options.budget)  # it is known that it does not fit
            return GangFit(self.gang, {}, tuple(self._shortages()))
        found: dict[str, Candidate] = {}
        for kind, some in zip(self.kinds, given, strict=True):
            found.update(zip(kind.names, some, strict=True))
        names = (name for one in self.gang.members for name in one.names)
        return GangFit(self.gang, {name: found[name] for name in names})

    def fitted(self, need: Portion, around: Integers | None = None) -> _Given | None:
        """Return candidates by kind for so many of each; None if they cannot be had.

        :param around: only of these hosts; None: of all
        """
        for allowed in self._confinements(need, around):
            given = self._placed(allowed, need)
            if given is not None:
                return given
        return None

    def _fleet_now(self) -> Fleet:
        return under(self.scenario.snapshot.fleet, self.options.limits)

    def _preference(self, problem: Problem) -> Preference:
        options = self.options
        return Preference(problem.fleet, problem.request, options.order, options.seed)

    # --- where each kind may go ---

    @property
    def _everywhere(self) -> Integers:
        return np.arange(len(self.fleet.hosts))

    def _reachable(self, number: int, around: Integers) -> Integers:
        """Return those of some hosts that are in a place of each level that binds a kind."""
        return around[self.within.reachable(number)[around]]

    def _confinements(self, need: Portion, around: Integers | None) -> Iterator[_Allowed]:
        """Yield where each kind may go: one place of a level for those that stay together."""
        anywhere = self._everywhere if around is None else around
        for here in self._roomy(self.gang.together, range(len(need)), anywhere, need):
            each = [
                self._roomy(kind.like.together, [number], self._reachable(number, here), need)
                for number, kind in enumerate(self.kinds)
            ]
            for allowed in itertools.product(*each):
                self.budget.spend()
                yield allowed

    def _roomy(
        self, level: str | None, kinds: Collection[int], around: Integers, need: Portion
    ) -> Sequence[Integers]:
        """Return the places of a level that may hold all of some kinds, the preferred first.

        :param around: only of what is in there
        """
        if level is None:
            return [around]
        if level == HOST:
            enough = np.ones(len(around), dtype=np.bool_)
            for number in kinds:
                enough &= self.kinds[number].most[around] >= need[number]
            for name, total in self._totals(kinds, need).items():
                enough &= self.within.supply.of(name)[around] >= total
            found = around[enough]
            return list(found[np.argsort(self.rank[found], kind="stable")].reshape(-1, 1))
        is_around = np.zeros(len(self.rank), dtype=np.bool_)
        is_around[around] = True
        every = (trees[is_around[trees]] for trees in self.within.places[level].values())
        places = [
            trees
            for trees in every
            if all(self.kinds[k].most[trees].sum() >= need[k] for k in kinds) and len(trees)
        ]
        return sorted(places, key=lambda one: int(self.rank[one].min()))

    def _totals(self, kinds: Iterable[int], need: Portion) -> dict[str, int]:
        """Return how much of each class all of some kinds use."""
        found: dict[str, int] = {}
        for number in kinds:
            for name, total in self.kinds[number].totals.items():
                found[name] = found.get(name, 0) + total * need[number]
        return {name: min(total, MAX_AMOUNT) for name, total in found.items()}

    # --- dealing, and trying what was dealt ---

    def _placed(self, allowed: _Allowed, need: Portion) -> _Given | None:
        """Return candidates by kind, None if they cannot be had where each kind may go."""
        most = [self._most(kind, trees) for kind, trees in zip(self.kinds, allowed, strict=True)]
        can = np.logical_or.reduce([counts > 0 for counts in most])
        trees = self.order[can[self.order]]
        looked_at = self._likely(trees, most, need)
        while True:
            dealt = self._dealt(trees[:looked_at].tolist(), most, need)
            if dealt is None:
                if looked_at >= len(trees):
                    return None
                looked_at = len(trees)
                continue
            given, has_learned = self._tried(dealt)
            if given is not None:
                return given
            if not has_learned:
                return self._searched(trees.tolist(), most, need, self.within.rooms(need))

    def _dealt(
        self, trees: Sequence[int], most: Sequence[Integers], need: Portion
    ) -> dict[int, Portion] | None:
        """Return the members of each host, None if the known bounds of the hosts exclude it."""
        while True:
            dealt = deal(self.within.root(trees, most, self.budget), need, self.budget)
            if dealt is None:
                return None
            found = {int(name): some for name, some in dealt.items()}
            has = [self.within.has_devices(*one, self.budget) for one in found.items()]
            if all(has):
                return found

    def _most(self, kind: Kind, trees: Integers) -> Integers:
        """Return how many of a kind each tree may get, where it may go to some."""
        found = np.zeros_like(kind.most)
        found[trees] = kind.most[trees]
        return found

    def _likely(self, trees: Integers, most: Sequence[Integers], need: Portion) -> int:
        """Return how many trees are likely to be enough."""
        factor, more = _SPARE
        enough = 0
        for counts, count in zip(most, need, strict=True):
            total = np.cumsum(counts[trees])
            enough = max(enough, int(total.searchsorted(factor * count)))
        return enough + more

    def _tried(self, dealt: Mapping[int, Portion]) -> tuple[_Given | None, bool]:
        """Return candidates for what was dealt, None if hosts cannot hold it all at once.

        Also returns whether more is known then of what some host can hold.
        """
        given = self._counted(dealt)
        if given is not None and self._pass_filters(given):
            return self._by_kind(given), False
        given = {tree: self.held[tree, p] for tree, p in dealt.items() if (tree, p) in self.held}
        try:
            for some in given.values():
                if not all(map(self.take, itertools.chain.from_iterable(some))):
                    return None, False
            new = {tree: portion for tree, portion in dealt.items() if tree not in given}
            found, failed = self._rounds(new)
        finally:
            self.undo()
        given |= found
        for tree, portion in new.items():
            if tree not in failed:
                self.held[tree, portion] = found[tree]
        for tree, more in failed.items():
            self._learn(tree, more, new[tree])
        return None if failed else self._by_kind(given), bool(failed)

    def _by_kind(self, given: Mapping[int, _Given]) -> _Given:
        return [[one for some in given.values() for one in some[k]] for k in range(len(self.kinds))]

    def _counted(self, dealt: Mapping[int, Portion]) -> dict[int, _Given] | None:
        """Return candidates of each host, who comes first giving each; None where that fails."""
        used: dict[int, int] = {}
        given: dict[int, _Given] = {}
        for tree, portion in dealt.items():
            given[tree] = [[] for _ in portion]
            for kind, count, some in zip(self.kinds, portion, given[tree], strict=True):
                for _ in range(count):
                    found = None if kind.counts is None else kind.counts.take(tree, used)
                    if found is None:
                        return None
                    some.append(found)
        return given

    def _pass_filters(self, given: Mapping[int, _Given]) -> bool:
        """Return whether filters pass each host for each of its members, beside those before."""
        if not self.options.filters:
            return True
        left = {tree: [list(some) for some in each] for tree, each in given.items()}
        try:
            while left:
                for number in range(len(self.kinds)):
                    now = {tree: some[number].pop() for tree, some in left.items() if some[number]}
                    if not now:
                        continue
                    trees = integers(sorted(now))
                    if len(self.scenario) and not self._are_let_in(number, trees):
                        return False
                    if not self.take(*now.values()):
                        return False
                left = {tree: some for tree, some in left.items() if any(some)}
            return True
        finally:
            self.undo()

    def _are_let_in(self, number: int, trees: Integers) -> bool:
        """Return whether filters pass some hosts for a kind, as the scenario is now."""
        fleet, request = self._fleet_now(), self.kinds[number].like.request
        return all(
            bool(laid.mask()[trees].all() and laid.among(trees).all())
            for laid in (one(fleet, request) for one in self.options.filters)
        )

    def _rounds(self, dealt: Mapping[int, Portion]) -> tuple[dict[int, _Given], dict[int, Portion]]:
        """Take what was dealt in the scenario, one member of each host in each round.

        Returns what each host gave, and of those that failed what they did not take.
        """
        given: dict[int, _Given] = {tree: [[] for _ in self.kinds] for tree in dealt}
        left = {tree: list(portion) for tree, portion in dealt.items()}
        failed: dict[int, Portion] = {}
        while left:
            for number in range(len(self.kinds)):
                trees = [tree for tree, counts in left.items() if counts[number]]
                problem = self.laid_now(number) if trees else self.kinds[number].problem
                for tree in trees:
                    found = next(self.ways(problem, tree), None)
                    if found is not None and self.take(found):
                        given[tree][number].append(found)
                        left[tree][number] -= 1
                        continue
                    failed[tree] = tuple(
                        len(some) + (k == number) for k, some in enumerate(given[tree])
                    )
                    del left[tree]
            left = {tree: counts for tree, counts in left.items() if any(counts)}
        return given, failed

    def laid_now(self, number: int) -> Problem:
        """Return what a kind asks of the scenario as it is now."""
        kind = self.kinds[number]
        if not len(self.scenario):
            return kind.problem
        if number not in self.laid:
            least, hosts = _LAYING
            self.budget.spend(least + len(self.fleet.hosts) // hosts)
            self.laid[number] = lay(kind.like.request, self._fleet_now(), self.options.filters)
        return self.laid[number]

    def ways(self, problem: Problem, tree: int, *, is_every: bool = False) -> Iterator[Candidate]:
        """Yield the candidates of a tree.

        :param is_every: also those in which an amount that says where it goes is elsewhere: of
            what may be on the same parts one way is found
        """
        if not problem.is_host[tree] or not all(one.holds(tree) for one in problem.filters):
            return
        preference, seen = self._preference(problem), set[Candidate]()
        parts_of: Iterable[Sequence[int] | None] = [None]
        if is_every and problem.located and problem.near is None:
            parts_of = itertools.chain([None], _part_sets(problem, tree))
        for parts in parts_of:
            search = TreeSearch(problem, tree, preference, parts=parts)
            while (hit := search.next(self.budget, self.budget.left)) is not None:
                if not isinstance(hit, Wider) and (not is_every or hit.candidate not in seen):
                    seen.add(hit.candidate)
                    yield hit.candidate

    def take(self, *found: Candidate) -> bool:
        """Take candidates in the scenario, all for one consumer; return whether they are free."""
        allocations = [one for each in found for one in each.allocations]
        try:
            self.scenario.claim(trial_name(len(self.scenario)), allocations)
        except exceptions.CapacityException:
            return False
        self.laid.clear()
        return True

    def undo(self) -> None:
        self.scenario.undo(to=0)
        self.laid.clear()

    def _learn(self, tree: int, more: Portion, portion: Portion) -> None:
        """Find out whether a host can hold a portion at all, of which it did not take ``more``."""
        for one in dict.fromkeys((more, portion)):
            held = self.hold(tree, one)
            if held is None:
                self.within.refuse(tree, one)
                return
            self.held[tree, one] = held

    def hold(self, tree: int, portion: Portion) -> _Given | None:
        """Return how one host can hold a portion, None if it cannot: all ways are tried.

        An amount that says where it goes, such as a topology, is tried on each set of parts, and
        of each set in one way. Where none of these will do, and what its parts have left does not
        say no, that is no no.

        :raises SearchLimitReached: if it is not known
        """
        if not self._may_hold(tree, portion):
            return None
        found = self._searched([tree], [kind.most for kind in self.kinds], portion)
        if found is None and any(
            self.kinds[k].problem.located for k, count in enumerate(portion) if count
        ):
            raise SearchLimitReached(self.budget.spent)
        return found

    def _may_hold(self, tree: int, portion: Portion) -> bool:
        """Return whether a host has what located amounts of a portion need at least."""
        by_class: dict[str, list[LocatedFleetDemand]] = {}
        for kind, count in zip(self.kinds, portion, strict=True):
            for one in kind.problem.located:
                by_class.setdefault(one.demand.resource_class, []).extend([one.demand] * count)
        return all(may_hold(asks, tree, self.budget) for asks in by_class.values() if asks)

    # --- trying all ways ---

    def _searched(
        self,
        trees: Sequence[int],
        most: Sequence[Integers],
        need: Portion,
        rooms: Rooms | None = None,
    ) -> _Given | None:
        """Return how hosts can hold what is needed, None if they cannot: all ways are tried.

        Host by host, each as much as it can take first.

        :param most: by kind and tree, how many it may get
        :param rooms: what places may get; None: no place binds
        """
        given: _Given = [[] for _ in self.kinds]
        rest = [np.cumsum(counts[trees][::-1])[::-1].tolist() for counts in most]
        relevant = _Relevant(self.fleet, trees)

        def expand(point: _Point) -> Iterator[_Point | Solution[_Given]]:
            at, first, left = point
            if not any(left):
                yield Solution([list(some) for some in given])
                return
            if at == len(trees) or any(count > rest[k][at] for k, count in enumerate(left)):
                return
            tree = trees[at]
            for number in range(first, len(left)):
                has_room = rooms is None or rooms.left(tree, number) > 0
                if left[number] and most[number][tree] and has_room:
                    less = tuple(count - (k == number) for k, count in enumerate(left))
                    # where an amount says where it goes, who comes first matters
                    point = _Point(at, 0 if self.is_located else number, less)
                    for one in self._taken_each(tree, number):
                        given[number].append(one)
                        if rooms is not None:
                            rooms.take(tree, number, 1)
                        yield point
                        given[number].pop()
                        if rooms is not None:
                            rooms.take(tree, number, -1)
            yield _Point(at + 1, 0, left)

        def state(point: _Point) -> Hashable:
            taken = itertools.chain.from_iterable(given)
            used = relevant.state(self.scenario.snapshot.fleet, point.at, taken)
            return point, used, None if rooms is None else rooms.state

        try:
            return next(solutions(_Point(0, 0, need), expand, self.budget, state), None)
        finally:
            self.undo()

    def _taken_each(self, tree: int, number: int) -> Iterator[Candidate]:
        """Yield each way to give one of a kind, taken in the scenario until the next."""
        for one in self.ways(self.laid_now(number), tree, is_every=self.is_located):
            if self.take(one):
                yield one
                self.scenario.undo()
                self.laid.clear()

    # --- what it lacks ---

    def _shortages(self) -> Iterator[Shortage]:
        """Yield what the gang lacks, in the place of its level where most of it fits."""
        every = range(len(self.kinds))
        around, place = self._best(self.gang.together, every, self._everywhere)
        short = []
        for number, kind in enumerate(self.kinds):
            here, name, level = self._reachable(number, around), place, self.gang.together
            if kind.like.together is not None:
                here, name = self._best(kind.like.together, [number], here)
                level = kind.like.together
            one = self._short_of(number, here)
            if one is not None:
                short.append(dataclasses.replace(one, level=level, place=name))
        if not short:
            beside = self._beside(around)
            short = [dataclasses.replace(beside, level=self.gang.together, place=place)]
        yield from short

    def _best(
        self, level: str | None, kinds: Collection[int], around: Integers
    ) -> tuple[Integers, str | None]:
        """Return the hosts of the place where most of some kinds fits, and its name."""
        if level is None:
            return around, None
        if level == HOST:
            most = np.ones(len(around))
            for number in kinds:
                part = self.kinds[number].most[around] / self.need[number]
                np.minimum(most, part, out=most)
            found = around[[int(most.argmax())]] if len(around) else around
            return found, self.fleet.hosts[int(found[0])] if len(found) else None
        is_around = np.zeros(len(self.rank), dtype=np.bool_)
        is_around[around] = True
        places = {
            name: trees[is_around[trees]] for name, trees in self.within.places[level].items()
        }

        def fits(name: str) -> list[float]:
            return sorted(
                min(1.0, self.kinds[k].most[places[name]].sum() / self.need[k]) for k in kinds
            )

        best = max(places, key=fits)
        return places[best], best

    def _short_of(self, number: int, around: Integers) -> Shortage | None:
        """Return what a kind lacks by itself: the class that allows fewest, or a bound.

        None if it fits by itself.
        """
        kind, asked = self.kinds[number], self.need[number]
        most = [np.zeros_like(one.most) for one in self.kinds]
        most[number][around] = kind.most[around]
        trees = self.order[most[number][self.order] > 0]
        able = most[number] > 0
        if not able.any():
            able[around] = True
        disabled, each = disabled_for(self.within.fleet, kind.problem.request), kind.totals
        supply = self.within.supply if disabled is None else Supply(self.within.fleet, disabled)
        free = {name: supply.together(name, able) for name in each}
        count = {
            name: min(free[name] // total, int((supply.of(name)[able] // total).sum()))
            for name, total in each.items()
        }
        root = self.within.root(trees.tolist(), most, self.budget)
        fits = min([most_of(root, self.need, number), *count.values()])
        if fits >= asked:
            return None
        scarce = min(count, key=lambda name: count[name], default=None)
        is_enough = scarce is None or count[scarce] >= asked
        if is_enough and kind.problem.located:  # hosts may have devices, but not of its kind
            fits = self._dealt_at_most(number, fits, trees.tolist(), most)
        told = Shortage(kind.label, asked, fits, explanation=self._explained(kind))
        stage = None if kind.most.any() else self._explained(kind).emptied
        if stage is not None and stage.requested is None:  # it is no question of amounts
            return dataclasses.replace(told, stage=stage)
        if scarce is None or is_enough:
            bounds = FrozenDict({**self.gang.at_most, **kind.like.at_most})
            return dataclasses.replace(told, at_most=bounds)  # what is free would do
        return dataclasses.replace(
            told, resource=scarce, requested=asked * each[scarce], free=free[scarce]
        )

    def _dealt_at_most(
        self, number: int, bound: int, trees: Sequence[int], most: Sequence[Integers]
    ) -> int:
        """Return how many of a kind hosts can hold by what is known of them, within a bound."""

        def is_short(count: int) -> bool:
            alone = tuple(count if k == number else 0 for k in range(len(self.need)))
            return self._dealt(trees, most, alone) is None

        try:
            if is_short(bound):
                return bisect.bisect_left(range(bound), True, key=is_short) - 1
        except SearchLimitReached:
            pass  # so many at most
        return bound

    def _explained(self, kind: Kind) -> Explanation:
        """Return why hosts may not take one of a kind."""
        refused = np.flatnonzero(kind.problem.is_told & (kind.most == 0))
        outlooks = functools.partial(
            UnheldFleet, self.scenario.snapshot._fleet, kind.problem.request, self.options
        )
        told = kind.problem.is_told
        outcome = SearchOutcome(told, refused, (), 0, self.options.budget, outlooks)
        return Explanation(kind.problem, outcome)

    def _beside(self, around: Integers) -> Shortage:
        """Return how many of the most numerous kind fit beside all others."""
        number = max(range(len(self.kinds)), key=lambda k: self.need[k])
        low, high = 0, self.need[number]
        while low + 1 < high:  # so many fit, and so many do not
            count = (low + high) // 2
            need = tuple(count if k == number else n for k, n in enumerate(self.need))
            try:
                does_fit = self.fitted(need, around) is not None
            except SearchLimitReached:
                break
            low, high = (count, high) if does_fit else (low, count)
        others = tuple(kind.label for k, kind in enumerate(self.kinds) if k != number)
        return Shortage(self.kinds[number].label, self.need[number], low, beside=others)


def trial_name(number: int) -> str:
    """Return what a consumer is called for whom members are taken while a gang is fitted.

    Filters that look at who holds something meet these.
    """
    return f"(member {number})"


class _Relevant:
    """What of a fleet's use later hosts of a search can see: their own, and that of pools."""

    def __init__(self, fleet: Fleet, trees: Sequence[int]) -> None:
        self._fleet, self._trees = fleet, trees
        rows = fleet.inventories
        at = np.full(len(fleet.hosts), -1)
        at[list(trees)] = np.arange(len(trees))
        #: by inventory, the last host that can see it
        self._last = np.where(fleet.is_pool[rows.provider], len(trees), at[rows.tree])
        self._known: tuple[int, Integers] = (-1, integers(()))

    def state(self, fleet: Fleet, at: int, taken: Iterable[Candidate]) -> Hashable:
        """Return what is used there, with the units that say more than a count."""
        if self._known[0] != at:
            self._known = at, np.flatnonzero(self._last >= at)
        host = self._fleet.hosts[self._trees[at]] if at < len(self._trees) else None
        seen = (one for one in taken if one.host == host or self._fleet.pools)
        units = sorted((a.provider, u) for one in seen for a in one.allocations for u in a.units)
        return fleet.inventories.used[self._known[1]].tobytes(), tuple(units)


def _part_sets(problem: Problem, tree: int) -> Iterator[tuple[int, ...]]:
    """Yield for each located amount parts that it may be on, no more than it has pieces."""
    each = []
    for one in problem.located_of_tree(tree):
        parts = [part for part in range(len(one.places)) if one.allowed >> part & 1]
        most = min(len(parts), one.ask.count)
        some = itertools.chain.from_iterable(
            itertools.combinations(parts, size) for size in range(1, most + 1)
        )
        each.append([sum(1 << part for part in chosen) for chosen in some])
    return itertools.product(*each)
