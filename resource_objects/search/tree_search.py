"""The candidates of one tree, one after the other, each once.

:class:`~.tree_solver.TreeSolver` finds who provides what; a candidate says so in the words of the
request, with the units that each provider allocates. Solutions that differ in which of equal
providers provides what, or which of equal groups, are one candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import Allocation
from resource_objects.resources import Amount, Amounts, resource
from resource_objects.resources.budget import Budget
from resource_objects.resources.located import Identified
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.near import UNCONSTRAINED, TopologyConstraint, TreeDomains
from resource_objects.search.demands import LocatedTreeDemand, TreeDemand
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet
from resource_objects.search.located_views import view_of
from resource_objects.search.order import Preference
from resource_objects.search.problem import Problem
from resource_objects.search.tree_solver import TreeSolution, TreeSolver


class TreeCandidate(NamedTuple):
    """A candidate of a tree."""

    candidate: Candidate
    key: Hashable  #: the same for candidates that differ in which of equal providers is used
    is_of_pools: bool  #: whether pools provide all of it, so that other trees may have it too


class Wider(NamedTuple):
    """The next candidates need more places of a level than those before, namely ``places``."""

    places: int


class TreeSearch:
    """The search on one tree. It may be left and continued."""

    def __init__(
        self,
        problem: Problem,
        tree: int,
        preference: Preference,
        places: int | None = None,
        parts: Sequence[int] | None = None,
    ) -> None:
        """:param places: the number of places to begin with, if few places are requested

        :param parts: for each placed amount, the parts that it may be on; None: any. Not for
            requests of few places
        """
        self._problem = problem
        self._tree = tree
        self._preference = preference
        self._purse = Budget(0)
        self._seen: set[Hashable] = set()
        self._least = 1 if places is None else places
        self._parts = parts
        self._ways = self._every()

    def next(self, budget: Budget, most: int) -> TreeCandidate | Wider | None:
        """Return the next candidate, None if there is none.

        If few places of a level are requested, candidates of the fewest come first; a ``Wider``
        precedes those of more places.

        :param most: the steps of the budget that it may take
        :raises SearchLimitReached: if these are not enough; the search cannot be continued then
        """
        with budget.lend(self._purse, most):
            return next(self._ways, None)

    def _every(self) -> Iterator[TreeCandidate | Wider]:
        problem, near = self._problem, self._problem.near
        if near is not None:
            yield from self._by_places(near)
        if near is None or not near.is_required:
            asks = tuple(problem.of_tree(self._tree, self._preference))
            located: Sequence[LocatedTreeDemand] = tuple(problem.located_of_tree(self._tree))
            if self._parts is not None:
                located = [one.among(p) for one, p in zip(located, self._parts, strict=True)]
            yield from self._within(asks, located)

    def _by_places(self, near: TopologyConstraint) -> Iterator[TreeCandidate | Wider]:
        """Yield the candidates of few places, those of the fewest first."""
        here = TreeDomains(near, self._tree, self._preference)
        for count in range(self._least, 2 if near.is_required else len(here.domains) + 1):
            if count > self._least:
                yield Wider(count)
            for among in here.sets(count, self._purse):
                asks, located, options = here.within(among)
                yield from self._within(asks, located, options, only_first=here.splits_counts)
        if not near.is_required and self._least < UNCONSTRAINED:
            yield Wider(UNCONSTRAINED)

    def _within(
        self,
        asks: Sequence[TreeDemand],
        located: Sequence[LocatedTreeDemand],
        options: Sequence[Sequence[int]] | None = None,
        *,
        only_first: bool = False,
    ) -> Iterator[TreeCandidate]:
        """Yield the candidates of a demand on this tree.

        :param options: by kind of named group, its providers; None: all that have capacity for one
        :param only_first: whether one solution for each assignment of the named groups is enough
        """
        problem = self._problem
        solver = TreeSolver(
            problem.fleet,
            self._tree,
            self._purse,
            asks,
            located,
            problem.named,
            options=options,
            preference=self._preference,
            needs_own=problem.rules.host_gives and bool(problem.fleet.pools) and not located,
        )
        for solution in solver.solutions():
            result = self._candidate(solver, solution)
            if result is None:
                continue
            if only_first or located:
                solver.leave_assignment()
            if result.key not in self._seen:
                self._seen.add(result.key)
                yield result

    def _candidate(self, solver: TreeSolver, solution: TreeSolution) -> TreeCandidate | None:
        """Return the candidate of a solution; None if a provider has fewer units than it counts."""
        problem, groups, located = self._problem, solution.groups, solver.located
        parts = [
            (number, solver.provider(number, source), amount)
            for number, supply in enumerate(solution.parts)
            for source, amount in supply
        ]
        if self._seen:  # the first candidate of each host is free
            self._purse.spend(len(parts) + len(groups))
        try:
            built = candidate(problem, self._tree, parts, located, solution.assigned, groups)
        except FewUnits:
            return None
        providers = [*(provider for _, provider in groups), *(provider for _, provider, _ in parts)]
        is_of_pools = not located and problem.fleet.pools.every.issuperset(providers)
        return TreeCandidate(built, self._key(solution, parts), is_of_pools)

    def _key(self, solution: TreeSolution, parts: Iterable[tuple[int, int, int]]) -> Hashable:
        fleet = self._problem.fleet
        demands: dict[int, list[tuple[int, int, int]]] = {}  # by provider
        for number, provider in solution.groups:
            demands.setdefault(provider, []).append((0, number, 1))
        for number, provider, amount in parts:
            demands.setdefault(provider, []).append((1, number, amount))
        like = equivalence(fleet)
        keys = [(like.of(fleet, p), tuple(sorted(some))) for p, some in demands.items()]
        return frozenset(Counter(keys).items()), tuple(solution.assigned)


# --- candidates ---------------------------------------------------------------------------------
# A solution becomes allocations with units. The solver decides amounts; of a provider whose devices
# have names, free units are chosen here, in the order of the kind, next to those of the rest of the
# candidate.


class FewUnits(Exception):
    """A provider has fewer free units than it counts. Internal: it never leaves the search."""


class _Count(NamedTuple):
    """The amount that a provider provides of a class."""

    provider: int  #: its place in the fleet
    resource_class: str
    amount: int
    whole: Amount | None  #: the requested amount, if this is all of it
    units: tuple[str, ...]  #: the units that are requested by name


def candidate(
    problem: Problem,
    tree: int,
    parts: Iterable[tuple[int, int, int]],
    located: Sequence[LocatedTreeDemand] = (),
    assigned: Sequence[Amount] = (),
    groups: Sequence[tuple[int, int]] = (),
) -> Candidate:
    """Return the candidate of a solution on a tree. Cost: some 8 microseconds for three classes.

    :param parts: ``(class, provider, amount)`` of the unnamed group
    :param assigned: the assigned amounts of ``located``
    :param groups: the ``(kind, provider)`` of each named group
    :raises FewUnits: if a provider has fewer free units than it counts
    """
    fleet, demands = problem.fleet, problem.demands
    groups = sorted(groups, key=lambda group: group[0])  # in the order of the request
    counts = []
    for number, provider, amount in parts:
        ask = demands[number]
        whole = ask.whole if amount == ask.amount else None
        counts.append(_Count(provider, ask.resource_class, amount, whole, ask.units))
    unnamed = [count.provider for count in counts]
    for number, provider in groups:
        kind = problem.named.kinds[number]
        for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
            counts.append(_Count(provider, name, amount, kind.group.resources[name], ()))
    placed = [
        pair
        for demand, amount in zip(located, assigned, strict=True)
        for pair in demand.allocations(amount)
    ]
    unnamed += [provider for provider, _ in placed]
    if fleet.parts:
        counts = _with_units(fleet, counts, placed)
    allocations = [_allocation(fleet, count) for count in counts]
    allocations += [allocation for _, allocation in placed]
    by_name = {one.ask.resource_class: a for one, a in zip(located, assigned, strict=True)}
    return Candidate._as_kept(
        host=fleet.hosts[tree],
        allocations=tuple(_summed(allocations) if located or groups else allocations),
        generations=tuple(_generations(fleet, [*unnamed, *(provider for _, provider in groups)])),
        located=Amounts(by_name) if by_name else _NO_AMOUNTS,
        mappings=_mappings(problem, unnamed, groups),
    )


def counted_candidate(problem: Problem, tree: int, providers: Sequence[int]) -> Candidate:
    """Return the candidate of a tree where one provider provides all of each class, without units.

    It equals that of :func:`candidate`, in two thirds of the time.

    :param providers: by class of the unnamed group
    """
    fleet = problem.fleet
    counts = [
        _Count(provider, ask.resource_class, ask.amount, ask.whole, ask.units)
        for ask, provider in zip(problem.demands, providers, strict=True)
    ]
    return Candidate._as_kept(
        host=fleet.hosts[tree],
        allocations=tuple([_allocation(fleet, count) for count in counts]),
        generations=tuple(_generations(fleet, providers)),
        located=_NO_AMOUNTS,
        mappings=_mappings(problem, providers, ()),
    )


#: The placed amounts of a candidate without any.
_NO_AMOUNTS = Amounts()


def _mappings(
    problem: Problem, unnamed: Iterable[int], groups: Sequence[tuple[int, int]]
) -> FrozenDict:
    """Return the providers of each group, by its suffix."""
    names = problem.fleet.names
    every = tuple([names[place] for place in dict.fromkeys(unnamed)])
    result = {"": every} if every else {}
    if not groups:
        return FrozenDict(result)
    suffixes = [iter(kind.suffixes) for kind in problem.named.kinds]
    for number, provider in groups:
        result[next(suffixes[number])] = (names[provider],)
    return FrozenDict(sorted(result.items()))


def _with_units(
    fleet: Fleet, counts: Iterable[_Count], placed: Iterable[tuple[int, Allocation]]
) -> list[_Count]:
    """Return counts with units that nothing before them has, where devices have names."""
    result, taken = [], dict[int, set[str]]()
    for provider, allocation in placed:
        taken.setdefault(provider, set()).update(allocation.units)
    for count in counts:
        kind = fleet.device_resource(count.provider, count.resource_class)
        before = taken.setdefault(count.provider, set())
        if kind is not None and not count.units:
            count = count._replace(units=_units(fleet, kind, count, frozenset(before)))
        before.update(count.units)
        result.append(count)
    return result


def _units(fleet: Fleet, kind: str, count: _Count, taken: frozenset[str]) -> tuple[str, ...]:
    few = FewUnits(fleet.names[count.provider], count.resource_class, count.amount)
    try:
        view = view_of(fleet, kind, int(fleet.tree[count.provider]))
    except exceptions.InvalidInventory:
        raise few from None
    assert view is not None, "a part is of a view"
    part = view.places.index(count.provider)
    inventory = view.located.inventory
    assert isinstance(inventory, Identified), "devices are known one by one"
    result = inventory.some_units(part, count.resource_class, count.amount, taken)
    if result is None:
        raise few
    return result


def _allocation(fleet: Fleet, count: _Count) -> Allocation:
    provider, name, amount, whole, units = count
    return Allocation._as_kept(
        provider=fleet.names[provider],
        provider_uuid=fleet.uuids[provider],
        resource_class=name,
        amount=resource(name).make_amount(amount) if whole is None else whole,
        units=units,
    )


def _summed(allocations: Iterable[Allocation]) -> Iterable[Allocation]:
    """Return one allocation of each provider and class: several groups may request the class."""
    result: dict[tuple[str, str], Allocation] = {}
    for allocation in allocations:
        key = allocation.provider, allocation.resource_class
        if key in result:
            amount: Any = result[key].amount
            units = tuple(sorted((*result[key].units, *allocation.units)))
            allocation = result[key].replace(amount=amount + allocation.amount, units=units)
        result[key] = allocation
    return result.values()


def _generations(fleet: Fleet, sources: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Yield (uuid, generation) of some providers and of all above them, each once."""
    result = dict.fromkeys(sources)
    if fleet.height > 1 or fleet.above:
        result = dict.fromkeys(above for source in result for above in fleet.upwards(source))
    for provider in result:
        yield fleet.uuids[provider], int(fleet.generation[provider])
