"""A request compiled for a fleet: its conditions on hosts, the prefilter, the decision by arrays.

Of each class of the unnamed group, the inventories of the tree itself come first, then those of the
pools that it is linked to. Which of them are eligible is decided once for the whole fleet, as
flags; the demand on one tree is then cut out as plain data (:class:`.TreeDemand`). There is no
condition for a part that the request does not have.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resource_objects import exceptions
from resource_objects.requests import Request
from resource_objects.resources import Amount, resource
from resource_objects.resources.placed import cell_map_of
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.groups import Groups
from resource_objects.search.conditions.host import (
    DisabledParts,
    EnabledHost,
    HostCondition,
    disabled_for,
    enabled,
)
from resource_objects.search.conditions.located import LocatedCondition
from resource_objects.search.conditions.near import TopologyConstraint
from resource_objects.search.conditions.unnamed import (
    HostProvides,
    JointCapacity,
    JointDecision,
    RequiredTraits,
    UnnamedGroup,
)
from resource_objects.search.demands import LocatedTreeDemand, TreeDemand
from resource_objects.search.eligibility import (
    OWN,
    EligibilityCompiler,
    NamedGroups,
    Semantics,
    compile_groups,
    semantics_of,
)
from resource_objects.search.findings import Condition, FilterFactory, HostFilter
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Preference
from resource_objects.search.placements import placements


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ConsideredHosts:
    """The trees of a search. Flags are by tree."""

    may_hold: Booleans  #: may have candidates
    is_explained: Booleans  #: is explained if it has no candidate
    has_any: Booleans  #: has some of a requested class; all trees if there are no pools


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A request over a fleet. Conditions are in the order of the reasons."""

    fleet: Fleet
    request: Request
    hosts: ConsideredHosts
    unnamed: UnnamedGroup
    named: NamedGroups
    near: TopologyConstraint | None
    of_host: tuple[Condition, ...]  #: conditions on the hosts themselves
    of_unnamed: tuple[Condition, ...]  #: on the unnamed group, each class before all of them
    of_groups: tuple[Condition, ...]  #: on the named groups, and the last ones
    disabled: Booleans | None  #: the providers that it may not use because they are disabled
    factories: tuple[FilterFactory, ...] = ()  #: of the conditions of the caller on hosts

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the request, the fleet and the filters, of which the conditions are made."""
        return compile_request, (self.request, self.fleet, self.factories)

    @property
    def rules(self) -> Semantics:
        """The rules by which the request is read."""
        return self.unnamed.rules

    @property
    def classes(self) -> tuple[ClassCondition, ...]:
        """The counts of the unnamed group."""
        return self.unnamed.classes

    @property
    def located(self) -> tuple[LocatedCondition, ...]:
        """The placed amounts of the unnamed group."""
        return self.unnamed.located

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions on a host."""
        return (*self.of_host, *self.of_unnamed, *self.of_groups)

    @property
    def filters(self) -> tuple[HostFilter, ...]:
        """The conditions of the caller on hosts."""
        return tuple([c for c in self.of_host if isinstance(c, HostFilter)])

    def masks(self) -> Iterator[Booleans]:
        """Yield, by condition that arrays can check, the hosts that may meet it."""
        for condition in self.conditions:
            if isinstance(condition, HostFilter):
                yield condition.mask()
            else:
                yield from (check.passing for check in itertools.islice(condition.checks(), 1))

    def of_tree(self, tree: int, preference: Preference | None = None) -> list[TreeDemand]:
        """Return the counts on one tree as plain data. Cost: some 10 microseconds each.

        :param preference: the order of sources; None: those of the tree itself, then pools
        """
        demands = [condition.of_tree(tree) for condition in self.classes]
        if preference is None:
            return demands
        return [preference.of_sources(demand, tree) for demand in demands]

    def located_of_tree(self, tree: int) -> list[LocatedTreeDemand]:
        """Return the placed amounts on one tree."""
        return [condition.of_tree(tree) for condition in self.located]


def compile_request(
    request: Request, fleet: Fleet, filters: Sequence[FilterFactory] = ()
) -> Problem:
    """Return a request over a fleet. Cost: one vectorised pass per class and condition.

    :param filters: further conditions on hosts
    :raises InvalidInput: for an amount that is not stored as counts; if a count does not agree with
        the placed amount of the class; for an affinity without host cells
    :raises NotFound: for an unknown tree
    """
    rules = semantics_of(request)
    disabled = disabled_for(fleet, request) if fleet.disabled else None
    of_all = () if disabled is None else (enabled(fleet, disabled),)
    compiler = EligibilityCompiler(fleet, rules, of_all)
    unnamed = _compile_unnamed(request, fleet, compiler)
    named = NamedGroups(fleet, rules, (), isolates=False, subtrees=0)
    if request.named:
        named = compile_groups(fleet, request, compiler, rules)
    hosts = _considered_hosts(unnamed, named)
    of_host: list[Condition] = [] if disabled is None else [EnabledHost(fleet, disabled)]
    of_host += [HostCondition(*facts, unnamed.classes) for facts in compiler.of_host(request)]
    for check in itertools.chain.from_iterable([condition.checks() for condition in of_host]):
        np.logical_and(hosts.may_hold, check.passing, out=hosts.may_hold)
    of_caller = [create(fleet, request) for create in filters]
    for host_filter in of_caller:
        np.logical_and(hosts.may_hold, host_filter.mask(), out=hosts.may_hold)
    groups, near, of_groups = None, None, list[Condition]()
    if named.kinds:
        amounts = {condition.resource_class: condition.amount for condition in unnamed.classes}
        is_all = not unnamed.classes and not unnamed.located
        groups = Groups(named, hosts.may_hold, amounts, is_all=is_all)
    if request.near is not None:
        near = TopologyConstraint(request, unnamed, named, groups)
        if near.is_required:
            of_groups.append(near)
    if groups is not None:
        of_groups.append(groups)
    if disabled is not None or fleet.removed_units:
        of_groups.append(DisabledParts(unnamed, named))
    return Problem(
        fleet,
        request,
        hosts,
        unnamed,
        named,
        near,
        of_host=(*of_host, *of_caller),
        of_unnamed=tuple(_conditions_of(unnamed)),
        of_groups=tuple(of_groups),
        disabled=disabled,
        factories=tuple(filters),
    )


def _compile_unnamed(request: Request, fleet: Fleet, compiler: EligibilityCompiler) -> UnnamedGroup:
    group, rules = request.unnamed, compiler.rules
    if group.placed and rules.affinity_needs_cells:
        _check_affinity(group.placed, request.near)
    eligibility = compiler.of_group(group)
    classes = []
    for count in group.counts:
        of_class = compiler.of_class(group, count.resource_class)
        classes.append(ClassCondition.compile(fleet, rules, count, eligibility, of_class))
    located = [LocatedCondition.compile(fleet, *item, eligibility) for item in group.placed.items()]
    required = tuple([trait.label for trait in eligibility.of_some])
    return UnnamedGroup(fleet, rules, tuple(classes), tuple(located), required)


def _check_affinity(amounts: Mapping[str, Amount], near: str | None) -> None:
    """Refuse an affinity if no host cells are requested.

    :param near: the topology level of the request, which is another condition
    """
    for name, amount in amounts.items():
        if amount.has_affinity and not amount.is_assigned:
            cells = (cell_map_of(resource(other).make_inventory()) for other in amounts)
            if all(cell_map is None for cell_map in cells):
                instead = "" if near else "near='numa' in the request (--near numa) instead, "
                expected = f"no affinity, {instead}or a topology beside it to be near to"
                raise exceptions.InvalidInput("request", name, str(amount), expected)


def _conditions_of(group: UnnamedGroup) -> Iterator[Condition]:
    """Yield the conditions on the unnamed group that may exclude a host."""
    fleet, classes, located = group.fleet, group.classes, group.located
    yield from classes
    yield from located
    if located or (fleet.has_shares and len(classes) > 1):
        yield JointCapacity(group)
    if group.required:
        yield RequiredTraits(group)
    if fleet.has_pools and group.rules.host_gives and not located:
        yield HostProvides(group)
    # one class without traits is decided by its own condition
    if len(classes) != 1 or located or group.required or fleet.has_shares or fleet.parts:
        yield JointDecision(group)


def _considered_hosts(unnamed: UnnamedGroup, named: NamedGroups) -> ConsideredHosts:
    fleet = unnamed.fleet
    within = np.ones(len(fleet.hosts), dtype=np.bool_)
    if fleet.within is not None:
        within[:] = False
        within[fleet.within] = True
    if not fleet.has_pools:
        return ConsideredHosts(within.copy(), within, np.ones_like(within))
    having = [condition.rows.tree for condition in unnamed.classes]
    having += [condition.parts.tree for condition in unnamed.located]
    having += [rows.tree for kind in named.kinds for _, rows, _ in kind.amounts]
    having += [fleet.tree[kind.provides_own] for kind in named.kinds if not kind.amounts]
    has_any, has_all = np.zeros_like(within), np.ones_like(within)
    for trees in having:
        has = np.zeros_like(within)
        has[trees] = True
        has_any |= has
        has_all &= has
    is_pool = np.zeros_like(within)
    is_pool[list(fleet.pools.trees)] = True
    may_hold = within.copy()
    if unnamed.rules.host_gives:
        may_hold &= np.where(is_pool, has_all, has_any)
    return ConsideredHosts(may_hold, within & (has_all | ~is_pool), has_any)


# --- prefilter ----------------------------------------------------------------------------------
# The first check of each condition is cheap and excludes most hosts; the remaining ones are decided
# exactly, tree by tree. If no amount is split and no two traits meet, the checks are the whole
# decision.


def possible_trees(problem: Problem) -> Integers:
    """Return the trees that may hold the request, in order: all that can, and perhaps others.

    Cost: a vectorised pass for each class, and each class and trait.
    """
    near, may_hold = problem.near, problem.hosts.may_hold
    if near is not None and near.is_required:
        passing = may_hold & near.mask()
    else:
        passing = may_hold.copy()
        for condition in (*problem.of_unnamed, *problem.of_groups):
            if not np.count_nonzero(passing):
                break
            for check in itertools.islice(condition.checks(), 1):
                passing &= check.passing
        if near is not None:
            passing |= may_hold & near.mask()
    trees = np.flatnonzero(passing)
    for host_filter in problem.filters:
        trees = trees[host_filter.among(trees)]
    return trees


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ArrayDecision:
    """The trees that arrays decide: one provider of the tree provides all of each class.

    Flags and numbers are by tree.
    """

    decides: Booleans
    is_only: Booleans | None  #: there is no other solution; None: not needed
    first: tuple[Integers, ...]  #: by class, the number of the inventory that provides it
    provider: Integers  #: of inventories, by their number

    def givers(self, tree: int) -> list[int]:
        """Return the provider of each class for a tree."""
        return [int(self.provider[first[tree]]) for first in self.first]


def decide_by_arrays(problem: Problem, keeps_order: bool, *, of_each: bool) -> ArrayDecision | None:
    """Return the trees that arrays decide, None if there are none.

    On these the first step of the exact decision is the whole decision: the first provider that has
    all of a class provides it, because every provider answers for the traits, no units are chosen,
    and no inventory is used twice.

    :param keeps_order: whether providers are in their usual order; else there must be no choice
    :param of_each: whether more than one candidate of a tree may be read

    Cost: a pass for each class, and each class and trait.
    """
    fleet, classes = problem.fleet, problem.classes
    if not classes or not has_only_counts(problem):
        return None
    decides = np.ones(len(fleet.hosts), dtype=np.bool_)
    is_only = np.ones_like(decides) if of_each or not keeps_order else None
    first = []
    for condition in classes:
        rows = condition.rows
        provides = condition.allowed[OWN] & condition.provides_all
        number, is_provided = _first_of_each(condition, provides)
        first.append(number)
        decides &= is_provided
        if is_only is not None and not _has_one_each(condition):
            is_only &= _has_one_way(condition, np.flatnonzero(provides))
        if condition.has_pools:
            decides[rows.tree[provides & fleet.is_pool[rows.provider]]] = False
    having = problem.unnamed.always_has_traits() if problem.unnamed.required else None
    if having is not None:
        decides &= having
    if len(classes) > 1 and fleet.has_shares:
        numbers = np.concatenate(first)
        decides &= ~sharing_conflicts(fleet, numbers[numbers >= 0])
    if is_only is not None and not keeps_order:
        decides &= is_only
    if not decides.any():
        return None
    return ArrayDecision(decides, is_only, tuple(first), fleet.inventories.provider)


def _first_of_each(condition: ClassCondition, provides: Booleans) -> tuple[Integers, Booleans]:
    """Return the first inventory of each tree that provides a class, and the trees with one.

    Placements of partitions are left out: which of them is first depends on what is used.
    """
    fleet, rows = condition.fleet, condition.rows
    if fleet.is_everywhere(condition.resource_class):
        number, is_provided = np.arange(rows.first, rows.first + len(provides)), provides
    else:
        (entries,) = provides.nonzero()
        number = np.full(len(fleet.hosts), -1)
        number[rows.tree[entries[::-1]]] = entries[::-1] + rows.first
        is_provided = number >= 0
    if fleet.has_shares:
        is_provided = is_provided & ~placements(fleet)[number]
    return number, is_provided


def sharing_conflicts(fleet: Fleet, numbers: Integers) -> Booleans:
    """Return the trees where an inventory shares another that one of these uses or is.

    :param numbers: of inventories
    """
    in_conflict = np.zeros(len(fleet.hosts), dtype=np.bool_)
    if not fleet.has_shares:
        return in_conflict
    numbers = np.unique(numbers)
    is_included = np.zeros(len(fleet.inventories.tree), dtype=np.bool_)
    is_included[numbers] = True
    shared_uses = is_included[fleet.shares.source]
    source, target = fleet.shares.source[shared_uses], fleet.shares.target[shared_uses]
    met = np.bincount(np.concatenate([numbers, target]), minlength=len(is_included)) > 1
    in_conflict[fleet.inventories.tree[numbers[met[numbers]]]] = True
    in_conflict[fleet.inventories.tree[source[met[target]]]] = True
    return in_conflict


def _has_one_each(condition: ClassCondition) -> bool:
    """Return True if each tree has at most one inventory of a class, which provides all of it."""
    if condition.is_split or condition.has_pools:
        return False
    return condition.resource_class not in condition.fleet.repeated_classes


def _has_one_way(condition: ClassCondition, entries: Integers) -> Booleans:
    """Return the trees with one way to provide a class: one of its inventories provides all."""
    rows, trees = condition.rows, len(condition.fleet.hosts)
    has_one: Booleans = np.bincount(rows.tree[entries], minlength=trees) == 1
    if condition.is_split:
        is_part = condition.is_device & (rows.low <= rows.high) & (rows.high > 0)
        parts = condition.allowed[OWN] & is_part
        has_one &= np.bincount(rows.tree[parts], minlength=trees) < 2
    if condition.has_pools:
        has_one &= ~condition.from_pools()
    return has_one


def has_only_counts(problem: Problem) -> bool:
    """Return True if only counts are requested, and no units have to be chosen."""
    if problem.located or problem.named.kinds or problem.near is not None:
        return False
    names = {condition.resource_class for condition in problem.classes}
    if any(condition.units for condition in problem.classes):
        return False
    by_name = problem.fleet.device_parts.values()
    return all(names.isdisjoint(shape) for parts in by_name for shape in parts.shapes)
