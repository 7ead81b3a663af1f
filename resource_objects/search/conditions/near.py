"""The topology constraint of a request: all of it comes from few domains of a level, or from one.

A level, such as ``numa`` or a socket, divides a host into *domains*. Each domain has a provider
with the trait of the level; providers below it are in the same domain. The level ``numa`` has the
trait ``HW_NUMA_ROOT``, and the host cells that were discovered: a device is in the domain of the
cell that it names, wherever its provider is in the tree. Other providers are in no domain: the
root, providers above a domain or next to all of them. They belong to the whole host. A device
without a cell is an exception: its domain is unknown (:attr:`TopologyLevel.is_unknown`). If a host
has a single domain, everything below the root is in that domain.

Resources that a tree has in domains are *bound*: they are provided by the chosen domains. A class
that a tree has only as a whole (its disk, or CPUs outside of every cell) is not bound. A count that
the cells share with their host is provided by the cells, if necessary by several.

The fewest domains are found by search: each single domain whose sums are large enough, then each
pair, and so on. Each set is a decision of its own (:class:`TreeDomains`). If no set has a solution,
the request is decided without the constraint, unless the constraint is required. Over the fleet,
sums by domain are a lower bound of their number (:meth:`TopologyConstraint.least`); hosts are tried
in the order of this bound.

Rejected: a weight of each domain within the decision, which would have to compute every solution
before the best is known; greedy filling of the domain with the most, which finds three domains
where two suffice.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.requests.request import CELLS, trait_of_level
from resource_objects.resources import resource
from resource_objects.resources.backtracking import Budget, Solution, solutions
from resource_objects.resources.distances import DistanceTable, distance_table, sets_by_distance
from resource_objects.resources.placed import cell_map_of
from resource_objects.search.arrays import Booleans, Integers, frozen, sums_by
from resource_objects.search.conditions.amounts import ClassCondition, with_free_units
from resource_objects.search.conditions.groups import Groups
from resource_objects.search.conditions.unnamed import UnnamedGroup
from resource_objects.search.demands import LocatedTreeDemand, TreeDemand, bits, view_of
from resource_objects.search.eligibility import OWN, POOL, NamedGroups
from resource_objects.search.findings import Check, Condition, Findings, HostSet
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Preference


@dataclasses.dataclass(frozen=True, eq=False)
class TopologyLevel:
    """The domains of one level, in the order of their trees."""

    domain: Integers  #: by provider: the number of its domain, -1 for none
    is_unknown: Booleans  #: by provider: a device in an unknown one of several domains
    tree: Integers  #: by domain
    provider: Integers  #: by domain: its own provider, -1 if only devices name it
    cell: Integers  #: by domain: the id of the host cell, -1 for none
    count: Integers  #: by tree: the number of its domains

    def of_tree(self, tree: int) -> range:
        """Return the numbers of the domains of a tree. Cost: two binary searches."""
        first, end = self.tree.searchsorted((tree, tree + 1)).tolist()
        return range(first, end)

    def __len__(self) -> int:
        return len(self.tree)

    def binds(self, tree: Integers, provider: Integers) -> Booleans:
        """Return the trees in which some of the providers do not belong to the whole host.

        :param tree: of each of the providers
        """
        is_bound = np.zeros(len(self.count), dtype=np.bool_)
        is_bound[tree[(self.domain[provider] >= 0) | self.is_unknown[provider]]] = True
        return is_bound


def topology_level(fleet: Fleet, name: str) -> TopologyLevel:
    """Return the domains of a level, computed when they are first needed.

    Fleets of the same definitions share them. Cost: some passes over the providers.
    """
    levels: dict[str, TopologyLevel] = fleet.of_definitions.setdefault(TopologyLevel, {})
    if name not in levels:
        levels[name] = _level(fleet, name)
    return levels[name]


def _level(fleet: Fleet, name: str) -> TopologyLevel:
    """Return the domains from a key of each: its provider, or a number for each cell of a tree."""
    count = len(fleet.names)
    has_trait = fleet.having(fleet.traits, (trait_of_level(name),))
    cells, devices = np.full(count, -1), np.full(count, -1)
    if name == CELLS:
        for kind, parts in fleet.parts.items():
            named = devices if kind in fleet.device_parts else cells
            for provider, description in parts.described():
                number = resource(kind).cell_of_part(description)
                named[provider] = -1 if number is None else number
    size = 1 + max(int(cells.max(initial=0)), int(devices.max(initial=0)))
    first = count + fleet.tree * size
    key = np.where(has_trait, np.arange(count), -1)
    key = np.where(cells >= 0, first + cells, key)
    has_domain = key >= 0
    key = _inherited(fleet, key)
    if (devices >= 0).any():
        key = _inherited(fleet, np.where((key < 0) & (devices >= 0), first + devices, key))
    if fleet.above and fleet.within is not None and bool((key[list(fleet.above)] >= 0).any()):
        key[(key < 0) & (fleet.tree == fleet.within)] = count + len(fleet.hosts) * size
    cell = np.where((key >= first) & (key < first + size), key - first, -1)
    return _numbered(fleet, key, has_domain, cell)


def _inherited(fleet: Fleet, key: Integers) -> Integers:
    """Return keys in which a provider without a key has that of its nearest ancestor with one."""
    for _ in range(1, fleet.height):
        key = np.where(key >= 0, key, key[fleet.parent])
    return key


def _numbered(fleet: Fleet, key: Integers, has_domain: Booleans, cell: Integers) -> TopologyLevel:
    """Return the domains of keys, numbered in the order of their trees.

    :param has_domain: by provider, True for the own provider of a domain
    :param cell: by provider, the id of the cell if its key is that of a cell
    """
    inside = np.flatnonzero(key >= 0)
    keys, index = np.unique(key[inside], return_index=True)
    first = inside[index]  # a provider of each domain
    order = np.lexsort((keys, fleet.tree[first]))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    domain = np.full(len(key), -1)
    domain[inside] = rank[keys.searchsorted(key[inside])]
    tree = fleet.tree[first][order]
    count = np.bincount(tree, minlength=len(fleet.hosts))
    is_whole = _belongs_to_host(fleet, domain)
    is_single = (domain < 0) & ~is_whole & (count[fleet.tree] == 1)
    domain[is_single] = tree.searchsorted(fleet.tree[is_single])
    provider = np.full(len(tree), -1)
    places = np.flatnonzero(has_domain)
    provider[domain[places]] = places
    is_unknown = np.zeros(len(key), dtype=np.bool_)
    for parts in fleet.device_parts.values():
        is_unknown[parts.provider] = True
    is_unknown &= (domain < 0) & (count[fleet.tree] > 0)
    arrays = (domain, is_unknown, tree, provider, cell[first][order], count)
    return TopologyLevel(*map(frozen, arrays))


def _belongs_to_host(fleet: Fleet, domain: Integers) -> Booleans:
    """Return the roots, and the providers above a domain."""
    is_whole: Booleans = fleet.parent == np.arange(len(domain))
    places = np.flatnonzero(domain >= 0)
    for _ in range(1, fleet.height):
        places = fleet.parent[places]
        is_whole[places[domain[places] < 0]] = True
    return is_whole


#: More domains than any tree has: decided without the constraint.
UNCONSTRAINED = 1 << 40
#: In place of the domain of a source that is not bound.
_UNBOUND = -2


@dataclasses.dataclass(frozen=True, eq=False)
class _Need:
    """An amount that the chosen domains provide together. A domain of -1 stands for none."""

    level: TopologyLevel
    amount: int
    domain: Integers  #: by source
    provided: Integers  #: by source, the most that it provides
    is_bound: Booleans  #: by tree, whether domains provide it
    capacity: Integers | None = None  #: by source, the most if nothing were allocated

    def _by_domain(self, values: Integers) -> Integers:
        is_inside = self.domain >= 0
        return sums_by(values[is_inside], self.domain[is_inside], len(self.level))

    @functools.cached_property
    def sums(self) -> Integers:
        """By domain, the most that it provides."""
        return self._by_domain(self.provided)

    @functools.cached_property
    def is_infeasible(self) -> Booleans:
        """By domain, whether it could not provide the amount even if nothing were allocated."""
        if self.capacity is None:
            return np.zeros(len(self.level), dtype=np.bool_)
        return self._by_domain(self.capacity) < self.amount


class TopologyConstraint(Condition):
    """All of a request is provided by few domains of a level, or by one.

    As a condition on hosts, one domain provides all of it. It is a condition of the request only if
    it is required.
    """

    rule = Rule.NEAR

    def __init__(
        self,
        request: Request,
        unnamed: UnnamedGroup,
        named: NamedGroups,
        groups: Groups | None,
    ) -> None:
        """:param groups: the condition on the named groups, whose reasons come first"""
        assert request.near is not None, "the request names a level"
        self.fleet: Fleet = named.fleet
        self.level = topology_level(self.fleet, request.near)
        #: the name of a domain of the level
        self.label = "NUMA cell" if request.near == CELLS else request.near
        self.is_required = request.must_be_near
        #: each count of the unnamed group, provided by domains where it is bound
        self.classes = tuple([self._of_domains(condition) for condition in unnamed.classes])
        self.located = unnamed.located
        #: the unnamed group in domains
        self.unnamed = dataclasses.replace(unnamed, classes=self.classes)
        self.named = named
        self._groups = groups
        #: by class, placed amount and kind of named group
        self.needs = list(self._needs())
        #: by tree, whether anything is bound
        self.is_bound = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        for need in self.needs:
            self.is_bound |= need.is_bound

    def _of_domains(self, condition: ClassCondition) -> ClassCondition:
        """Return the condition where domains provide the class if the tree has some of it there."""
        rows = condition.rows
        of_domain = self.level.domain[rows.provider] >= 0
        is_bound = self._is_bound(rows.provider)[rows.tree]
        allowed = with_free_units(self.fleet, rows, condition.units)
        allowed = allowed & np.where(is_bound, of_domain, ~rows.is_part)
        for failed in condition.failed:
            allowed &= ~failed[OWN]
        is_device = condition.is_device
        if not condition.units:
            is_device = is_device | (rows.is_part & of_domain)
        return dataclasses.replace(
            condition, allowed=np.stack((allowed, *condition.allowed[POOL:])), is_device=is_device
        )

    def _is_bound(self, providers: Integers) -> Booleans:
        return self.level.binds(self.fleet.tree[providers], providers)

    # --- over the fleet ---

    def _needs(self) -> Iterator[_Need]:
        """Yield the need of each class, placed amount and kind of named group."""
        level = self.level
        for condition, allowed in zip(self.classes, self._answering(), strict=True):
            demand, rows = condition, condition.rows
            provided = np.where(demand.is_device, rows.high, 0)
            provided = np.where(demand.provides_all, demand.amount, provided)
            provided = np.where(allowed & (rows.low <= rows.high), provided, 0).clip(0)
            capacity = np.where(demand.allowed[OWN], rows.capacity, 0)
            domain, is_bound = level.domain[rows.provider], self._is_bound(rows.provider)
            yield _Need(level, demand.amount, domain, provided, is_bound, capacity)
        for placed in self.located:  # at least one part of it is in a domain
            domain, allowed = level.domain[placed.providers], placed.allowed[OWN]
            first = np.unique(np.where(allowed, domain, -1), return_index=True)[1]
            provided = np.zeros_like(domain)
            provided[first] = allowed[first]
            yield _Need(level, 1, domain, provided, self._is_bound(placed.providers))
        for kind in self.named.kinds:
            is_bound = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
            for _, rows, _ in kind.amounts:
                is_bound |= self._is_bound(rows.provider[~rows.is_part])
            provided = np.where(kind.provides_own, self.named.times_of(kind), 0)
            yield _Need(level, kind.count, level.domain, provided, is_bound)

    def _answering(self) -> list[Booleans]:
        """Return the inventories that may provide each class.

        They have the traits that only this class can answer for.
        """
        providing = [condition.allowed[OWN] for condition in self.classes]
        for trait in range(len(self.unnamed.required)):
            having = np.array([part.trees_with_trait(trait) for part in self.unnamed.parts])
            is_only = having & (having.sum(axis=0) == 1)
            for number, condition in enumerate(self.classes):
                has = condition.has_required[trait][OWN]
                tree = condition.rows.tree
                providing[number] = providing[number] & (has | ~is_only[number][tree])
        return providing

    def mask(self) -> Booleans:
        """Return the trees that seem to have enough of everything in one domain."""
        is_enough = np.ones(len(self.level), dtype=np.bool_)
        for need in self.needs:
            is_enough &= (need.sums >= need.amount) | ~need.is_bound[self.level.tree]
        trees = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        trees[self.level.tree[is_enough]] = True
        return trees & self.is_bound

    def checks(self) -> Iterator[Check]:
        """Yield one check."""
        yield Check(self.mask(), self.rule, label=self.label)

    def least(self) -> Integers:
        """Return, by tree, a lower bound of the number of domains.

        It is :data:`UNCONSTRAINED` if no number is enough.
        """
        bounds = np.where(self.is_bound, 1, UNCONSTRAINED)
        for need in self.needs:
            most = np.zeros(len(bounds), dtype=np.int64)
            np.maximum.at(most, self.level.tree, need.sums)
            count = np.where(most, -(-need.amount // np.maximum(most, 1)), UNCONSTRAINED)
            bounds = np.where(need.is_bound, np.maximum(bounds, count), bounds)
        bounds[bounds > self.level.count] = UNCONSTRAINED
        return bounds

    # --- reasons ---

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add what the nearest domain of each host lacks, if it meets every other condition."""
        if not findings.decides:
            return
        trees, among = findings.hosts.trees, among & ~findings.is_refused
        if self._groups is not None:
            for host in np.flatnonzero(among).tolist():
                among[host] = self._groups.holds(int(trees[host]))
        bound = trees[among & self.is_bound[trees]]
        in_domain = Findings(HostSet(self.fleet, self.named.rules, bound), decides=True)
        self._find_unnamed(in_domain)
        self._find_named(in_domain)
        lacking = in_domain.by_tree()

        def reasons(host: int) -> list[Reason]:
            tree = int(trees[host])
            name, label = self.fleet.hosts[tree], self.label
            if not self.is_bound[tree]:
                return [Reason(Rule.NO_PLACE, 1, 0, 0, None, name, unit=label)]
            if tree in lacking:
                return [self._about_domain(reason, tree) for reason in lacking[tree]]
            consumers = self.fleet.provider_counts(self._inventories(tree))
            return [Reason(Rule.NEAR_AT_ONCE, 1, 0, 0, None, name, consumers, unit=label)]

        findings.add_known(self, among, reasons)

    @functools.cached_property
    def _nearest(self) -> Integers:
        """By tree, the domain that comes nearest to providing everything, -1 without domains.

        It lacks the fewest amounts that it could not even provide if nothing were allocated, then
        the fewest amounts, then the least of them.
        """
        infeasible, lacking, part = np.zeros((3, len(self.level)))
        for need in self.needs:
            missing = (need.amount - need.sums).clip(0) * need.is_bound[self.level.tree]
            infeasible += (missing > 0) & need.is_infeasible
            lacking += missing > 0
            part += missing / need.amount
        order = np.lexsort((part, lacking, infeasible, self.level.tree))[::-1]
        domains = np.full(len(self.fleet.hosts), -1)
        domains[self.level.tree[order]] = order
        return domains

    def _find_unnamed(self, findings: Findings) -> None:
        """Add the reasons of each count and placed amount, on its sources in the nearest domain."""
        hosts = findings.hosts
        self.unnamed.narrow(findings)
        for condition, need in zip(self.unnamed.parts, self.needs, strict=False):
            if isinstance(condition, ClassCondition):
                requested = condition.amount
            else:
                requested = condition.amount.item_count
            findings.begin(condition)
            sources, flags = findings.sources[condition]
            host, domain = sources.pairs.host, need.domain[sources.pairs.entry]
            is_inside = domain == self._nearest[hosts.trees[host]]
            flags = flags & (is_inside | ~need.is_bound[hosts.trees[host]])
            findings.sources[condition] = sources, flags
            has_source, is_own = hosts.any(host[flags]), sources.pairs.role == OWN
            condition.find(findings, has_source)
            is_unknown = hosts.any(host[is_own]) & ~hosts.any(host[is_own & (domain >= 0)])
            for rule, flags in ((Rule.PLACE_UNKNOWN, is_unknown), (Rule.NEAR, ~is_unknown)):
                at = np.flatnonzero(~has_source & flags)
                subject: dict[str, Any] = {"resource": condition.resource_class, "unit": self.label}
                findings.add(condition, rule, at, requested, **subject)

    def _find_named(self, findings: Findings) -> None:
        """Add the classes of which the nearest domain has too little for groups of a kind."""
        hosts = findings.hosts
        findings.begin(self)
        nearest = self._nearest[hosts.trees]
        needs = self.needs[len(self.unnamed.parts) :]
        for kind, need in zip(self.named.kinds, needs, strict=True):
            is_short = need.is_bound[hosts.trees] & (need.sums[nearest] < kind.count)
            for name, rows, amount in kind.amounts:
                pairs = hosts.entries(rows.tree)
                provider = rows.provider[pairs.entry]
                is_inside = self.level.domain[provider] == nearest[pairs.host]
                pairs = pairs.where(is_inside & kind.would_provide[OWN][provider])
                free = hosts.sum(rows.free[pairs.entry].clip(0), pairs.host)
                used = hosts.sum(rows.capacity[pairs.entry], pairs.host) - free
                requested, is_sum = kind.count * amount, kind.count > 1
                is_few = is_short & (free < requested)
                groups = {"demands": kind.suffixes} if is_sum else {"group": kind.suffixes[0]}
                findings.add_full(self, is_few, pairs, rows, requested, name, used, **groups)

    def _about_domain(self, reason: Reason, tree: int) -> Reason:
        """Return a reason as one about the nearest domain."""
        if reason.cell is not None or reason.rule is Rule.PLACE_UNKNOWN:
            return reason
        is_short = reason.rule in (Rule.CAPACITY, Rule.LIMIT, Rule.NO_INVENTORY)
        if is_short and reason.unit is None:
            reason = dataclasses.replace(reason, rule=Rule.NEAR, unit=self.label)
        if reason.rule is Rule.NOT_WHOLE:
            reason = dataclasses.replace(reason, unit=self.label)
        host, domain = self.fleet.hosts[tree], self._nearest[tree]
        if reason.where not in (None, host):
            return reason
        provider = int(self.level.provider[domain])
        if provider >= 0:
            return dataclasses.replace(reason, where=self.fleet.names[provider])
        return dataclasses.replace(reason, where=host, cell=int(self.level.cell[domain]))

    def _inventories(self, tree: int) -> list[int]:
        """Return the requested inventories of a tree that are in domains, by number."""
        classes = [condition.rows for condition in self.classes]
        classes += [rows for kind in self.named.kinds for _, rows, _ in kind.amounts]
        numbers = {number for placed in self.located for number in placed.of_tree(tree).reach}
        for rows in classes:
            entries = rows.of_tree(tree)
            numbers.update(range(entries.start + rows.first, entries.stop + rows.first))
        provider = self.fleet.inventories.provider
        return [n for n in sorted(numbers) if self.level.domain[provider[n]] >= 0]


class TreeDomains:
    """A request on the domains of one tree."""

    def __init__(self, constraint: TopologyConstraint, tree: int, preference: Preference) -> None:
        """:param preference: the order of sources and domains"""
        self._constraint = constraint
        self._tree = tree
        self._classes = [
            preference.of_sources(condition.of_tree(tree), tree) for condition in constraint.classes
        ]
        self._located = [condition.of_tree(tree) for condition in constraint.located]
        named = constraint.named
        self._options = [named.options(kind, tree) for kind in named.kinds]
        needs: list[_Need] = []
        #: by need of the constraint, the domain of each source; _UNBOUND if the need is not bound
        self._domains_of: list[list[int]] = []
        order: dict[int, None] = {}
        domains = constraint.level.of_tree(tree)
        for need, sources in zip(constraint.needs, self._sources(), strict=True):
            if not need.is_bound[tree]:
                self._domains_of.append([_UNBOUND] * len(sources))
                continue
            needs.append(need)
            self._domains_of.append(need.domain[sources].tolist())
            providing = need.domain[sources[need.provided[sources] > 0]].tolist()
            order.update(dict.fromkeys(domain for domain in providing if domain in domains))
        #: the domains that provide something
        self.domains = list(order)
        if preference.sign:  # the fullest first, or the emptiest
            parts = {n: sum(int(need.sums[n]) / need.amount for need in needs) for n in order}
            self.domains.sort(key=lambda number: -preference.sign * parts[number])
        at = np.array(self.domains, dtype=np.int64)
        #: by bound need, the amount, and the most that each domain provides
        self._provided = [(need.amount, need.sums[at].tolist()) for need in needs]

    def _sources(self) -> Iterator[Integers]:
        """Yield, by need, the positions of the tree's sources, in the order of preference."""
        for condition, demand in zip(self._constraint.classes, self._classes, strict=True):
            yield np.array(demand.numbers, dtype=np.int64) - condition.rows.first
        for placed in self._located:
            parts = placed.parts.of_tree(self._tree)
            yield np.arange(parts.start, parts.stop)
        for providers in self._options:
            yield np.array(providers, dtype=np.int64)

    @property
    def splits_counts(self) -> bool:
        """Whether several cells may provide a count, in more ways than are of interest."""
        parts, needs = self._constraint.fleet.inventories.is_part, self._constraint.needs
        return any(
            need.is_bound[self._tree] and parts[list(demand.numbers)].any()
            for demand, need in zip(self._classes, needs, strict=False)
        )

    def within(
        self, chosen: frozenset[int]
    ) -> tuple[list[TreeDemand], list[LocatedTreeDemand], list[list[int]]]:
        """Return the counts, the placed amounts and the providers of named groups in domains."""
        allowed = {*chosen, _UNBOUND}
        is_inside = iter(
            [[domain in allowed for domain in of_need] for of_need in self._domains_of]
        )
        return (
            [
                dataclasses.replace(demand, allowed=demand.allowed & bits(next(is_inside)))
                for demand in self._classes
            ],
            [placed.among(bits(next(is_inside))) for placed in self._located],
            [list(itertools.compress(options, next(is_inside))) for options in self._options],
        )

    def sets(self, count: int, budget: Budget) -> Iterator[frozenset[int]]:
        """Yield the sets of ``count`` domains that seem to have enough.

        Sets of cells come in the order of the distances between their cells, the closest first.
        Equally close sets, and sets of more cells than can be sorted, come in the order of the
        domains. Cost: a step of the budget for each set that is examined.

        :raises SearchLimitReached: if the budget runs out first
        """
        domains = self.domains
        table = self._distances if 1 < count < len(domains) else None
        by_distance = sets_by_distance(table, count) if table is not None else ()
        if by_distance:
            for chosen in itertools.chain.from_iterable(sets for _, sets in by_distance):
                budget.spend()
                if self._may_reach(chosen, count):
                    yield frozenset(domains[number] for number in chosen)
            return

        def expand(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...] | Solution[frozenset[int]]]:
            first = chosen[-1] + 1 if chosen else 0
            if len(chosen) == count:
                yield Solution(frozenset(domains[number] for number in chosen))
                return
            for number in range(first, len(domains) - (count - len(chosen)) + 1):
                if self._may_reach((*chosen, number), count):
                    yield (*chosen, number)

        start: tuple[int, ...] = ()
        if count <= len(domains):
            yield from solutions(start, expand, budget)

    def _may_reach(self, chosen: tuple[int, ...], count: int) -> bool:
        """Return whether domains may provide enough with others that come after them."""
        for amount, provided in self._provided:
            lacking = amount - sum(provided[number] for number in chosen)
            if lacking > 0 and count > len(chosen):
                lacking -= sum(heapq.nlargest(count - len(chosen), provided[chosen[-1] + 1 :]))
            if lacking > 0:
                return False
        return True

    @functools.cached_property
    def _distances(self) -> DistanceTable | None:
        """The distances between the cells that the domains are, None if they are equal."""
        constraint = self._constraint
        fleet, cells = constraint.fleet, constraint.level.cell[self.domains].tolist()
        for kind in fleet.parts if max(cells) >= 0 else ():
            view = view_of(fleet, kind, self._tree)
            cell_map = None if view is None else cell_map_of(view.located.inventory)
            if cell_map is not None:
                return distance_table(cells, cell_map.distances)
        return None
