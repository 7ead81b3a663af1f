"""A gang over a fleet: kinds of members, what each host can hold, and domains with bounds.

A :class:`GangProblem` is a value; what a search learns of hosts is passed to it. Arrays bound how
many members of a kind a host can hold (:func:`upper_bounds`), and how many of several kinds at
once. The bounds come from the free amount of each resource class, of a host itself and of the pools
that serve it, and from the providers that can provide the request once.

The domains of a level are sets of hosts, and so are the hosts that one pool serves. The domains
that bound the members of a gang form a tree.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests import Request
from resource_objects.requests.gang import HOST, Gang, Member
from resource_objects.resources import Amount, IntegerAmount
from resource_objects.resources.backtracking import Budget
from resource_objects.resources.placed import HasNamedUnits, PartialRequest
from resource_objects.search.arrays import Booleans, Integers, integers, sums_by
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.located import LocatedCondition
from resource_objects.search.demands import Supply, TreeDemand, View, members, view_of
from resource_objects.search.distribution import Counts, Domain, LinearBound, maximal, within_bound
from resource_objects.search.eligibility import OWN
from resource_objects.search.findings import FilterFactory
from resource_objects.search.fleet import Fleet
from resource_objects.search.problem import (
    Problem,
    compile_request,
    has_only_counts,
    possible_trees,
)
from resource_objects.search.tree_search import candidate


def totals_of(request: Request) -> dict[str, int]:
    """Return the amount of each counted class that a request uses in all."""
    return {
        name: int(amount.value)
        for name, amount in request.resources.by_name()
        if isinstance(amount, IntegerAmount)
    }


class CapacityByHost:
    """The free amount of each resource class on each host, and that of its pools."""

    def __init__(self, fleet: Fleet, disabled: Booleans | None = None) -> None:
        """:param disabled: the providers that provide nothing; None: all provide"""
        self.fleet = fleet
        self._disabled = np.zeros(len(fleet.names), np.bool_) if disabled is None else disabled
        self.own = functools.cache(self._own)
        self.pools = functools.cache(self._pools)
        self.free = functools.cache(self._free)

    def total(self, name: str, hosts: Booleans) -> int:
        """Return the free amount of a class for some hosts, each pool counted once."""
        pools = (free for linked, free in self.pools(name) if hosts[linked].any())
        return int(self.own(name)[hosts].sum()) + sum(pools)

    def _free(self, name: str) -> Integers:
        """Return by host the free amount of a class, that of all its pools included."""
        free = self.own(name).copy()
        for hosts, of_pool in self.pools(name):
            free[hosts] += of_pool
        return np.minimum(free, MAX_AMOUNT)

    def _own(self, name: str) -> Integers:
        """Return by host the free amount of a class without pools.

        Not :meth:`.Fleet.free`, which excludes every disabled provider: a member whose request
        names the trait of disabled providers may use them.
        """
        rows = self.fleet.rows(name)
        counted = self.fleet.counted(rows) & ~self.fleet.is_pool[rows.provider]
        counted &= ~self._disabled[rows.provider]
        return _by_tree(self.fleet, name, np.where(counted, rows.free, 0).clip(0))

    def _pools(self, name: str) -> list[tuple[Integers, int]]:
        """Return for each pool of a class the hosts that it serves, and its free amount."""
        fleet, rows = self.fleet, self.fleet.rows(name)
        if not fleet.has_pools:
            return []
        pools = []
        is_pool = fleet.is_pool[rows.provider] & ~self._disabled[rows.provider]
        for entry in np.flatnonzero(is_pool).tolist():
            pool = rows.provider[entry : entry + 1]
            is_linked = fleet.pools.linked_to(pool, len(fleet.hosts))
            is_linked[fleet.tree[pool]] = True  # a pool serves its own tree without a link
            pools.append((np.flatnonzero(is_linked), max(0, int(rows.free[entry]))))
        return pools


def upper_bounds(problem: Problem, capacity: CapacityByHost, most: int) -> Integers:
    """Return by tree how often it can hold a request at most, up to ``most``.

    Pools count as if they served each host only. Cost: some passes over the fleet for each class
    and group.
    """
    fleet = problem.fleet
    bounds = np.zeros(len(fleet.hosts), dtype=np.int64)
    bounds[possible_trees(problem)] = most
    for name, total in totals_of(problem.request).items():
        if name in fleet.classes:
            np.minimum(bounds, capacity.free(name) // total, out=bounds)
    for condition in problem.classes:
        if not condition.is_split and not condition.has_pools:
            np.minimum(bounds, repetitions(condition), out=bounds)
    if problem.named:
        np.minimum(bounds, problem.named.upper_bounds(len(bounds)), out=bounds)
    for placed in problem.located:
        np.minimum(bounds, placed.most(), out=bounds)
    return bounds


def repetitions(condition: ClassCondition) -> Integers:
    """Return by tree how often its own inventories provide a class.

    Devices that provide parts provide all that they have, in any parts that add up.
    """
    fleet, rows, name = condition.fleet, condition.rows, condition.resource_class
    is_whole, is_part = condition.allowed[OWN] & condition.provides_all, None
    if condition.is_split:
        is_part = (
            condition.allowed[OWN] & condition.is_device & (rows.low <= rows.high) & (rows.high > 0)
        )
        is_whole = is_whole & ~is_part
    times = _by_tree(fleet, name, np.where(is_whole, rows.free // condition.amount, 0))
    if is_part is None:
        return times
    return times + _by_tree(fleet, name, np.where(is_part, rows.free, 0)) // condition.amount


def _by_tree(fleet: Fleet, name: str, figures: Integers) -> Integers:
    """Return the sums by tree of a figure of each inventory of a class."""
    if fleet.is_everywhere(name):
        return figures
    return sums_by(figures, fleet.rows(name).tree, len(fleet.hosts))


_EMPTY = integers(())
#: Steps of the budget for one decision about the devices of a host.
_DEVICES_OF_HOST = 8

#: The aggregates of each level.
Levels: TypeAlias = Mapping[str, Collection[str]]
#: By host, counts of members that it cannot hold.
NoGoods: TypeAlias = Mapping[int, Sequence[Counts]]


# --- kinds of members ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """Members with the same request and the same bounds, over a fleet."""

    members: tuple[Member, ...]
    problem: Problem
    totals: Mapping[str, int]  #: by resource class, the amount that one of them uses in all
    most: Integers  #: by tree, an upper bound of how many it can hold; exact if arrays decide
    is_counted: bool  #: only counts are requested: :meth:`allocate` may find candidates
    _demands: dict[int, list[TreeDemand]] = dataclasses.field(default_factory=dict)  # by tree

    @property
    def count(self) -> int:
        """The number of consumers."""
        return sum(member.count for member in self.members)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the consumers."""
        return tuple(name for member in self.members for name in member.names)

    @property
    def label(self) -> str:
        """The names of the members, as text."""
        return ", ".join(member.name for member in self.members)

    @property
    def at_most(self) -> Mapping[str, int]:
        """By level, how many of them one domain may get."""
        return self.members[0].at_most

    @property
    def together(self) -> str | None:
        """The level of which one domain gets all of them."""
        return self.members[0].together

    # --- the first providers with capacity provide ---

    @functools.cached_property
    def _has_traits(self) -> Booleans | None:
        return self.problem.unnamed.always_has_traits()

    def allocate(self, tree: int, used: dict[int, int]) -> Candidate | None:
        """Return a candidate for one more member on a tree, and add its use to ``used``.

        None if there is none, or the first providers do not suffice; ``used`` is unchanged then.
        It is no search, and only for counts of inventories that do not share others. Cost: some 10
        microseconds, and as many for each new tree.

        :param used: by number of an inventory, the amount that other members use
        """
        problem = self.problem
        if self._has_traits is not None and not self._has_traits[tree]:
            return None
        if tree not in self._demands:
            self._demands[tree] = problem.of_tree(tree)
        shares, more, has_own = list[tuple[int, int, int]](), dict[int, int](), False
        provider = problem.fleet.inventories.provider
        for at, demand in enumerate(self._demands[tree]):
            supply = self._first(demand, used)
            if not supply:
                return None
            has_own |= supply[0][0] < demand.own
            for source, amount in supply:
                number = demand.numbers[source]
                shares.append((at, int(provider[number]), amount))
                more[number] = used.get(number, 0) + amount
        if problem.rules.host_gives and not has_own:
            return None
        used |= more
        return candidate(problem, tree, shares)

    def _first(self, demand: TreeDemand, used: Mapping[int, int]) -> Supply:
        """Return the sources that provide a class; empty if there are none.

        The first in this order: one inventory of the tree itself, several devices of the tree, one
        pool. Pools come last because other trees can use them.
        """
        free = self.problem.fleet.inventories.free
        highs = [
            min(source.high, (int(free[number]) - used[number]) // source.step * source.step)
            if number in used
            else source.high
            for number, source in zip(demand.numbers, demand.sources, strict=True)
        ]
        sources = members(demand, demand.allowed)
        able = [source for source in sources if demand.provides(source, highs)]
        if able and able[0] < demand.own:
            return ((able[0], demand.amount),)
        missing, parts = demand.amount, []
        for at in sources:
            low, _, step, is_device = demand.sources[at]
            part = min(missing, highs[at]) // step * step
            if is_device and part >= max(low, 1):
                parts.append((at, part))
                missing -= part
            if not missing:
                return tuple(parts)
        return ((able[0], demand.amount),) if able else ()


def kinds_of(
    gang: Gang,
    capacity: CapacityByHost,
    filters: Sequence[FilterFactory] = (),
    most: int | None = None,
) -> list[Kind]:
    """Return the kinds of members of a gang. Cost: some passes over the fleet for each.

    :param most: the largest upper bound of a host; None: the number of members
    """
    fleet, alike = capacity.fleet, defaultdict[Hashable, list[Member]](list)
    for member in gang.members:
        is_bounded = bool(member.at_most) or member.together is not None  # individually
        alike[member.request, member.name if is_bounded else None].append(member)
    kinds = []
    for same in alike.values():
        problem = compile_request(same[0].request, fleet, filters)
        count = sum(member.count for member in same) if most is None else most
        kinds.append(
            Kind(
                members=tuple(same),
                problem=problem,
                totals=totals_of(problem.request),
                most=upper_bounds(problem, capacity, count),
                is_counted=bool(problem.classes) and has_only_counts(problem),
            )
        )
    return kinds


def first_fit(
    kinds: Sequence[Kind], assignment: Mapping[int, Counts]
) -> dict[int, list[list[Candidate]]] | None:
    """Return candidates by host and kind for the counts of each host.

    None if a kind is not only counted, or lacks capacity somewhere.
    """
    used: dict[int, int] = {}
    by_host: dict[int, list[list[Candidate]]] = {}
    for tree, counts in assignment.items():
        by_host[tree] = [[] for _ in counts]
        for kind, count, candidates in zip(kinds, counts, by_host[tree], strict=True):
            for _ in range(count):
                placed = kind.allocate(tree, used) if kind.is_counted else None
                if placed is None:
                    return None
                candidates.append(placed)
    return by_host


# --- domains ------------------------------------------------------------------------------------


class BoundedDomain(NamedTuple):
    """A set of hosts with bounds on the members that they get together."""

    name: str
    trees: Integers
    bounds: tuple[LinearBound, ...]
    is_of_level: bool
    parent: int = -1  #: number of the smallest domain that contains it; -1: none


def domains_of_level(levels: Levels, level: str, fleet: Fleet) -> dict[str, Integers]:
    """Return the hosts of each domain of a level, by name.

    :raises InvalidInput: if there is none, or a host is in two of them
    """
    names, count = sorted(levels.get(level, ())), len(fleet.hosts)
    members = [fleet.aggregates.get(name, _EMPTY) for name in names]
    number = np.repeat(np.arange(len(names)), [len(places) for places in members])
    tree = fleet.tree[np.concatenate([_EMPTY, *members])]
    is_host = np.ones(count, dtype=np.bool_)
    is_host[list(fleet.pools.trees)] = False  # a pool may serve several domains
    pairs = np.sort((number * count + tree)[is_host[tree]])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    if not len(pairs):
        raise exceptions.InvalidInput(
            "request", "level", level, "one that aggregates with hosts in them have"
        )
    number, tree = pairs // count, pairs % count
    by_tree = np.argsort(tree, kind="stable")
    again = by_tree[1:][np.diff(tree[by_tree]) == 0]
    if len(again):
        at = int(again.min())
        host, other = fleet.hosts[int(tree[at])], names[int(number[(tree == tree[at]).argmax()])]
        in_two = f"{host} in {other} and in {names[int(number[at])]}"
        raise exceptions.InvalidInput("request", level, in_two, f"each host in one {level}")
    starts = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    ends = (*starts[1:], len(tree))  # numpy.split takes longer
    return {names[number[start]]: tree[start:end] for start, end in zip(starts, ends, strict=True)}


def nested(domains: Iterable[BoundedDomain], hosts: int) -> list[BoundedDomain]:
    """Return domains, the largest first, each with its parent.

    Hosts of a pool that cross another domain are left out: the capacity of the pool is checked
    when members are allocated.

    :raises InvalidInput: if domains of levels cross
    """
    domains = list(domains)
    innermost = np.full(hosts, -1)
    nesting: list[BoundedDomain] = []
    for domain in sorted(domains, key=lambda domain: -len(domain.trees)):
        around = np.unique(innermost[domain.trees])
        if len(around) == 1:
            innermost[domain.trees] = len(nesting)
            nesting.append(domain._replace(parent=int(around[0])))
        elif domain.is_of_level:
            crossed = [nesting[number] for number in around.tolist() if number >= 0]
            pools = {id(other.trees) for other in crossed if not other.is_of_level}
            if pools:
                return nested((d for d in domains if id(d.trees) not in pools), hosts)
            raise exceptions.InvalidInput(
                "request",
                "levels",
                f"{domain.name} across {crossed[-1].name}",
                "domains of one level within those of another",
            )
    return nesting


# --- the problem --------------------------------------------------------------------------------


class GangProblem:
    """A gang over a fleet: kinds of members, and domains that bound them.

    :raises InvalidInput: for a level without domains, or with a host in two of its domains, or if
        the domains of two levels cross
    """

    def __init__(
        self, gang: Gang, fleet: Fleet, levels: Levels, filters: Sequence[FilterFactory] = ()
    ) -> None:
        self.gang = gang
        self.fleet = fleet
        self.capacity = CapacityByHost(fleet)
        self.kinds = kinds_of(gang, self.capacity, filters)
        self.need: Counts = tuple(kind.count for kind in self.kinds)
        #: by level and domain, the hosts
        self.domains = {level: domains_of_level(levels, level, fleet) for level in gang.levels}
        #: by level, that of hosts included, and by host the number of its domain; -1: none
        self.domain_of = {HOST: np.arange(len(fleet.hosts))}
        for level, domains in self.domains.items():
            self.domain_of[level] = np.full(len(fleet.hosts), -1)
            for number, trees in enumerate(domains.values()):
                self.domain_of[level][trees] = number
        #: by resource class, the amount that a member of each kind uses
        self.weights: dict[str, Counts] = {
            name: tuple(kind.totals.get(name, 0) for kind in self.kinds)
            for name in dict.fromkeys(name for kind in self.kinds for name in kind.totals)
            if name in fleet.classes
        }
        located = {each.resource_class for kind in self.kinds for each in kind.problem.located}
        #: the resources of devices that members request by more than a count
        self._devices = [name for name in fleet.device_parts if name in located]
        self._provided: dict[tuple[int, Counts], bool] = {}
        self._nesting = nested(self._bounded_domains(), len(fleet.hosts))
        #: by host, the smallest domain that contains it, by its number in the nesting; -1: none
        self._innermost = np.full(len(fleet.hosts), -1)
        for number, domain in enumerate(self._nesting):
            self._innermost[domain.trees] = number

    def bounds(self, level: str) -> tuple[LinearBound, ...]:
        """Return the bounds on the members of each domain of a level."""
        kinds = range(len(self.kinds))
        bounds = [
            LinearBound(tuple(int(n == number) for n in kinds), kind.at_most[level])
            for number, kind in enumerate(self.kinds)
            if level in kind.at_most
        ]
        if level in self.gang.at_most:
            bounds.append(LinearBound((1,) * len(kinds), self.gang.at_most[level]))
        return tuple(bounds)

    def _bounded_domains(self) -> Iterator[BoundedDomain]:
        """Yield the domains of levels with bounds, and the hosts that need one pool for a class."""
        for level in self.domains:
            if bounds := self.bounds(level):
                for name, trees in self.domains[level].items():
                    yield BoundedDomain(f"{level} {name}", trees, bounds, True)
        for name, weights in self.weights.items():
            pools = np.zeros(len(self.fleet.hosts), dtype=np.int64)
            for trees, _ in self.capacity.pools(name):
                pools[trees] += 1
            for trees, free in self.capacity.pools(name):
                if not self.capacity.own(name)[trees].any() and pools[trees].max(initial=0) == 1:
                    yield BoundedDomain(name, trees, (LinearBound(weights, free),), False)

    def domain_name(self, level: str, number: int) -> str:
        """Return the name of a domain."""
        return self.fleet.hosts[number] if level == HOST else list(self.domains[level])[number]

    def reachable(self, kind: Kind) -> Booleans:
        """Return the hosts that are in a domain of each level that bounds a kind."""
        is_reachable = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        for level in {*self.gang.at_most, *kind.at_most}:
            is_reachable &= self.domain_of[level] >= 0
        return is_reachable

    def root(
        self, trees: Integers, most: Sequence[Integers], no_goods: NoGoods, budget: Budget
    ) -> Domain:
        """Return the tree of domains with some hosts, in their order.

        :param most: by kind and tree, how many members it may get
        """
        bounds = self.bounds(HOST)
        limits = zip(
            *(np.minimum(m[trees], n).tolist() for m, n in zip(most, self.need, strict=True)),
            strict=True,
        )
        numbers = self._innermost[trees].tolist()
        children: dict[int, list[Domain | int]] = defaultdict(list)
        seen = {-1}
        for tree, number, limit in zip(trees.tolist(), numbers, limits, strict=True):
            counts = self._maximal_counts(tree, limit, no_goods.get(tree, ()), budget)
            children[number].append(Domain(tree, counts, bounds=bounds))
            while number not in seen:
                seen.add(number)
                children[self._nesting[number].parent].append(number)
                number = self._nesting[number].parent

        def build(number: int) -> Domain:
            below = tuple(build(c) if isinstance(c, int) else c for c in children[number])
            return Domain(parts=below, bounds=() if number < 0 else self._nesting[number].bounds)

        return build(-1)

    def _maximal_counts(
        self, tree: int, limit: Counts, refused: Sequence[Counts], budget: Budget
    ) -> Sequence[Counts]:
        """Return the maximal counts that a host may hold, as far as it is known."""
        frontier: Sequence[Counts] = (limit,)
        if len(limit) > 1:
            for name, weights in self.weights.items():
                bound = LinearBound(weights, int(self.capacity.free(name)[tree]))
                bounded = [part for counts in frontier for part in within_bound(counts, bound)]
                budget.spend(len(bounded) - len(frontier))
                frontier = maximal(bounded)
        for counts in refused:
            frontier = maximal(part for other in frontier for part in without(other, counts))
        return frontier

    # --- devices ---

    def lacks_devices(self, tree: int, counts: Counts, budget: Budget) -> Counts | None:
        """Return the smallest part of counts for which a host lacks devices; None: it may hold all.

        Only devices are checked that are requested by more than a count.
        """
        if self._may_provide(tree, counts, budget):
            return None
        for number, count in enumerate(counts):

            def lacks(size: int, counts: Counts = counts, number: int = number) -> bool:
                part = (*counts[:number], size, *counts[number + 1 :])
                return not self._may_provide(tree, part, budget)

            size = bisect.bisect_left(range(count), True, key=lacks)
            counts = (*counts[:number], size, *counts[number + 1 :])
        return counts

    def _may_provide(self, tree: int, counts: Counts, budget: Budget) -> bool:
        key = tree, counts
        if key not in self._provided:
            self._provided[key] = all(
                self._may_provide_of(name, tree, counts, budget) for name in self._devices
            )
        return self._provided[key]

    def _may_provide_of(self, name: str, tree: int, counts: Counts, budget: Budget) -> bool:
        budget.spend(_DEVICES_OF_HOST)
        try:
            view = view_of(self.fleet, name, tree)
        except exceptions.InvalidInventory:  # its devices are unknown
            return True
        if view is None:
            return True
        inventory = view.located.inventory
        assert isinstance(inventory, HasNamedUnits), "an inventory of devices"
        return inventory.may_provide_all(
            request._replace(times=request.times * count)
            for kind, count in zip(self.kinds, counts, strict=True)
            if count
            for request in device_requests(kind.problem, view)
        )


def without(counts: Counts, refused: Counts) -> Iterator[Counts]:
    """Yield the maximal counts within others that do not contain refused counts.

    >>> list(without((3, 2), (2, 1)))
    [(1, 2), (3, 0)]
    >>> list(without((1, 2), (2, 1)))
    [(1, 2)]
    """
    if any(count < other for count, other in zip(counts, refused, strict=True)):
        yield counts
        return
    for kind, count in enumerate(refused):
        if count:
            yield (*counts[:kind], count - 1, *counts[kind + 1 :])


def device_requests(problem: Problem, view: View) -> Iterator[PartialRequest]:
    """Yield the devices that a request needs of a host, with the parts that can provide them.

    A count that other providers may provide too is left out.
    """
    fleet, tree, provider = problem.fleet, view.tree, problem.fleet.inventories.provider
    needed: list[tuple[str, Amount | int, list[int], int]] = []
    for condition, sources in problem.unnamed.sources(tree).items():
        if isinstance(condition, LocatedCondition):
            if condition.resource_class == view.kind:
                places = condition.of_tree(tree).only(sources).providers
                needed.append((condition.resource_class, condition.amount, places, 1))
        elif isinstance(condition, ClassCondition):
            here = condition.of_tree(tree)
            places = [int(provider[here.numbers[at]]) for at in members(here, sources)]
            needed.append((condition.resource_class, condition.amount, places, 1))
    for kind in problem.named.kinds:
        places = problem.named.options(kind, tree)
        for name, _, count in kind.amounts:
            needed.append((name, count, places, kind.count))
    id_of = dict(zip(view.places, view.located.inventory.part_ids(), strict=True))
    for name, amount, places, count in needed:
        if name == view.kind or all(
            fleet.device_resource(place, name) == view.kind for place in places
        ):
            yield PartialRequest(name, amount, [id_of[place] for place in places], count)
