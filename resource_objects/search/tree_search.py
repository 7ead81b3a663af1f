"""The candidates of one tree, one after the other, each once.

:class:`~.tree_solver.TreeSolver` decides which provider provides what; a candidate describes it in
the terms of the request, with the units that each provider allocates. Solutions that differ in
which of equal providers provides what, or which of equal groups, are one candidate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import Allocation
from resource_objects.resources import Amount, Amounts, resource
from resource_objects.resources.backtracking import Budget
from resource_objects.resources.placed import HasNamedUnits
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.near import UNCONSTRAINED, TopologyConstraint, TreeDomains
from resource_objects.search.demands import Assigned, LocatedTreeDemand, TreeDemand, view_of
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Preference
from resource_objects.search.problem import Problem
from resource_objects.search.tree_solver import TreeSolution, TreeSolver

#: The part of a class that a provider provides: ``(class, provider, amount)``.
Part: TypeAlias = tuple[int, int, int]
_Groups: TypeAlias = Sequence[tuple[int, int]]  #: the ``(kind, provider)`` of each named group


class TreeCandidate(NamedTuple):
    """A candidate of a tree."""

    candidate: Candidate
    key: Hashable  #: the same for candidates that differ in which of equal providers is used
    is_of_pools: bool  #: whether pools provide all of it, so that other trees may have it too


class Wider(NamedTuple):
    """The next candidates need more domains of a level than those before, namely ``domains``."""

    domains: int


class TreeSearch:
    """The search on one tree. It may be left and continued."""

    def __init__(
        self,
        problem: Problem,
        tree: int,
        preference: Preference,
        domains: int = 1,
        parts: Sequence[int] | None = None,
    ) -> None:
        """:param domains: the number of domains to begin with, if few domains are requested

        :param parts: for each placed amount, the parts that it may be on; None: any. Not for
            requests of few domains
        """
        self._problem = problem
        self.tree = tree
        self._preference = preference
        self._purse = Budget(0)
        self._keys: set[Hashable] = set()  # of the candidates so far, and of the excluded one
        self._has_candidate = False
        self._results = self._search(domains, parts)

    def exclude(self, parts: Iterable[Part]) -> None:
        """Do not return the candidate of these parts, which was decided without a search."""
        self._keys.add(self._key(parts))

    def next(self, budget: Budget, most: int) -> TreeCandidate | Wider | None:
        """Return the next candidate, None if there is none.

        If few domains of a level are requested, candidates of the fewest come first; a ``Wider``
        precedes those of more domains.

        :param most: the steps of the budget that it may take
        :raises SearchLimitReached: if these are not enough; the search cannot be continued then
        """
        with budget.lend(self._purse, most):
            return next(self._results, None)

    def next_candidate(self, budget: Budget) -> TreeCandidate | None:
        """Return the next candidate, of any number of domains; None if there is none.

        :raises SearchLimitReached: if the budget runs out first
        """
        result = self.next(budget, budget.remaining)
        while isinstance(result, Wider):
            result = self.next(budget, budget.remaining)
        return result

    def _search(self, domains: int, parts: Sequence[int] | None) -> Iterator[TreeCandidate | Wider]:
        problem, near = self._problem, self._problem.near
        if near is not None:
            yield from self._by_domains(near, domains)
        if near is None or not near.is_required:
            classes = problem.of_tree(self.tree, self._preference)
            located = problem.located_of_tree(self.tree)
            if parts is not None:
                located = [demand.among(p) for demand, p in zip(located, parts, strict=True)]
            yield from self._solved(classes, located)

    def _by_domains(self, near: TopologyConstraint, least: int) -> Iterator[TreeCandidate | Wider]:
        """Yield the candidates of few domains, those of the fewest first."""
        domains = TreeDomains(near, self.tree, self._preference)
        for count in range(least, 2 if near.is_required else len(domains.domains) + 1):
            if count > least:
                yield Wider(count)
            for chosen in domains.sets(count, self._purse):
                demands = domains.within(chosen)
                yield from self._solved(*demands, only_first=domains.splits_counts)
        if not near.is_required and least < UNCONSTRAINED:
            yield Wider(UNCONSTRAINED)

    def _solved(
        self,
        classes: Sequence[TreeDemand],
        located: Sequence[LocatedTreeDemand],
        options: Sequence[Sequence[int]] | None = None,
        *,
        only_first: bool = False,
    ) -> Iterator[TreeCandidate]:
        """Yield the candidates of a demand on this tree.

        :param options: by kind of named group, its providers; None: all that have capacity for one
        :param only_first: whether one solution for each assignment of the named groups is enough
        """
        solver = TreeSolver(
            self._problem.fleet,
            self.tree,
            self._purse,
            classes,
            located,
            self._problem.named,
            options=options,
            preference=self._preference,
        )
        for solution in solver.solutions():
            result = self._candidate(solver, solution)
            if result is None:
                continue
            if only_first or located:
                solver.leave_assignment()
            if result.key not in self._keys:
                self._keys.add(result.key)
                yield result

    def _candidate(self, solver: TreeSolver, solution: TreeSolution) -> TreeCandidate | None:
        """Return the candidate of a solution.

        None if a provider has fewer units than it counts, or only pools provide something although
        the host has to.
        """
        problem, groups, located = self._problem, solution.groups, solver.located
        pools, tree = problem.fleet.pools, problem.fleet.tree
        parts = [
            (number, solver.provider(number, source), amount)
            for number, supply in enumerate(solution.parts)
            for source, amount in supply
        ]
        providers = [*(provider for _, provider in groups), *(provider for _, provider, _ in parts)]
        needs_own = problem.rules.host_gives and problem.fleet.has_pools and not located
        if needs_own and all(tree[provider] != self.tree for provider in providers):
            return None
        if self._has_candidate:  # the first candidate of each host is free
            self._purse.spend(len(providers))
        try:
            built = candidate(problem, self.tree, parts, located, solution.assigned, groups)
        except FewUnits:
            return None
        self._has_candidate = True
        is_of_pools = not located and pools.places.issuperset(providers)
        return TreeCandidate(built, self._key(parts, groups, solution.assigned), is_of_pools)

    def _key(
        self, parts: Iterable[Part], groups: _Groups = (), assigned: Assigned = ()
    ) -> Hashable:
        fleet = self._problem.fleet
        demands: dict[int, list[tuple[int, int, int]]] = {}  # by provider
        for number, provider in groups:
            demands.setdefault(provider, []).append((0, number, 1))
        for number, provider, amount in parts:
            demands.setdefault(provider, []).append((1, number, amount))
        classes = equivalence(fleet)
        keys = [(classes.of(fleet, p), tuple(sorted(demands[p]))) for p in demands]
        return frozenset(Counter(keys).items()), tuple(assigned)


# --- candidates ---------------------------------------------------------------------------------
# A solution becomes allocations with units. The solver decides amounts; of a provider whose devices
# have names, free units are chosen here, in the order of the kind, next to those of the rest of the
# candidate.


class FewUnits(Exception):
    """A provider has fewer free units than it counts. Internal: it never leaves the search."""


#: A provider, a class, the amount that it provides of it, the requested amount if this is all of
#: it, and the units that are requested by name.
_Count: TypeAlias = tuple[int, str, int, Amount | None, tuple[str, ...]]
#: The placed amounts of a candidate without any.
_NO_AMOUNTS = Amounts()


def candidate(
    problem: Problem,
    tree: int,
    parts: Iterable[Part],
    located: Sequence[LocatedTreeDemand] = (),
    assigned: Sequence[Amount] = (),
    groups: _Groups = (),
) -> Candidate:
    """Return the candidate of a solution on a tree. Cost: some 8 microseconds for three classes.

    :param assigned: the assigned amounts of ``located``
    :raises FewUnits: if a provider has fewer free units than it counts
    """
    fleet, demands = problem.fleet, problem.classes
    counts = []
    for number, provider, amount in parts:
        demand = demands[number]
        requested = demand.requested if amount == demand.amount else None
        counts.append((provider, demand.resource_class, amount, requested, demand.units))
    unnamed = [count[0] for count in counts]
    if groups:  # in the order of the request
        groups = sorted(groups, key=lambda group: group[0])
    for number, provider in groups:
        kind = problem.named.kinds[number]
        for name, _, amount in kind.amounts:
            counts.append((provider, name, amount, kind.group.resources[name], ()))
    placed, placed_amounts = list[tuple[int, Allocation]](), _NO_AMOUNTS
    if located:
        pairs = list(zip(located, assigned, strict=True))
        placed = [pair for demand, amount in pairs for pair in demand.allocations(amount)]
        placed_amounts = Amounts({demand.resource_class: amount for demand, amount in pairs})
        unnamed += [provider for provider, _ in placed]
    if fleet.parts:
        counts = _with_units(fleet, counts, placed)
    allocations = [_allocation(fleet, count) for count in counts]
    if located or groups:
        allocations = _summed([*allocations, *(allocation for _, allocation in placed)])
    return Candidate._construct(
        host=fleet.hosts[tree],
        allocations=tuple(allocations),
        generations=_generations(fleet, unnamed, groups),
        located=placed_amounts,
        mappings=_mappings(problem, unnamed, groups),
    )


def _mappings(problem: Problem, unnamed: Iterable[int], groups: _Groups) -> FrozenDict:
    """Return the providers of each group, by its suffix."""
    names = problem.fleet.names
    result = {"": tuple([names[provider] for provider in dict.fromkeys(unnamed)])}
    if not groups:
        return FrozenDict(result)
    suffixes = [iter(kind.suffixes) for kind in problem.named.kinds]
    for number, provider in groups:
        result[next(suffixes[number])] = (names[provider],)
    return FrozenDict(sorted(item for item in result.items() if item[1]))


def _with_units(
    fleet: Fleet, counts: Iterable[_Count], placed: Iterable[tuple[int, Allocation]]
) -> list[_Count]:
    """Return counts with units that nothing before them has, where devices have names."""
    result, allocated = [], defaultdict[int, set[str]](set)  # by provider
    for provider, allocation in placed:
        allocated[provider].update(allocation.units)
    for provider, name, amount, requested, units in counts:
        kind = fleet.device_resource(provider, name)
        if kind is not None and not units:
            units = _free_units(fleet, kind, provider, name, amount, allocated[provider])
        allocated[provider].update(units)
        result.append((provider, name, amount, requested, units))
    return result


def _free_units(
    fleet: Fleet, kind: str, provider: int, name: str, amount: int, allocated: Iterable[str]
) -> tuple[str, ...]:
    few = FewUnits(fleet.names[provider], name, amount)
    try:
        view = view_of(fleet, kind, int(fleet.tree[provider]))
    except exceptions.InvalidInventory:
        raise few from None
    assert view is not None, "a part is of a view"
    inventory, part = view.located.inventory, view.places.index(provider)
    assert isinstance(inventory, HasNamedUnits), "devices are known one by one"
    units = inventory.select_units(part, name, amount, frozenset(allocated))
    if units is None:
        raise few
    return units


def _allocation(fleet: Fleet, count: _Count) -> Allocation:
    provider, name, amount, requested, units = count
    return Allocation._construct(
        provider=fleet.names[provider],
        provider_uuid=fleet.uuids[provider],
        resource_class=name,
        amount=resource(name).make_amount(amount) if requested is None else requested,
        units=units,
    )


def _summed(allocations: Iterable[Allocation]) -> list[Allocation]:
    """Return one allocation of each provider and class: several groups may request the class."""
    result: dict[tuple[str, str], Allocation] = {}
    for allocation in allocations:
        key = allocation.provider, allocation.resource_class
        if key in result:
            amount: Any = result[key].amount
            units = tuple(sorted((*result[key].units, *allocation.units)))
            allocation = result[key].replace(amount=amount + allocation.amount, units=units)
        result[key] = allocation
    return list(result.values())


def _generations(
    fleet: Fleet, unnamed: Iterable[int], groups: _Groups
) -> tuple[tuple[str, int], ...]:
    """Return (uuid, generation) of the providers and of all above them, each once."""
    providers = [*unnamed, *(provider for _, provider in groups)] if groups else unnamed
    if fleet.height > 1 or fleet.above:
        providers = [above for provider in providers for above in fleet.upwards(provider)]
    uuids, generation = fleet.uuids, fleet.generation
    return tuple([(uuids[p], int(generation[p])) for p in dict.fromkeys(providers)])
