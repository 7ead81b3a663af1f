"""A request over a fleet: who may give what to which tree.

Of each class of the unnamed group, the inventories of the tree itself come first, then those of the
pools that it is linked to. What conditions leave of them is laid down once for the whole fleet, as
flags; what is asked of one tree is then cut out as plain data (:class:`.TreeDemand`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests import Request
from resource_objects.resources import Amount, resource
from resource_objects.resources.amounts import split
from resource_objects.resources.catalog import is_device
from resource_objects.resources.located import cell_map_of
from resource_objects.resources.records import AmountRecord
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import ClassCondition, FleetDemand, having_free
from resource_objects.search.conditions.disabled import (
    DisabledParts,
    EnabledHost,
    disabled_for,
    enabled,
)
from resource_objects.search.conditions.groups import Groups
from resource_objects.search.conditions.host import HostCondition, HostGives
from resource_objects.search.conditions.located import AffinityCheck, LocatedCondition
from resource_objects.search.conditions.near import TopologyConstraint
from resource_objects.search.conditions.together import Contention, Together
from resource_objects.search.conditions.traits import RequiredTraits
from resource_objects.search.demands import LocatedTreeDemand, TreeDemand, compile_located
from resource_objects.search.eligibility import (
    OWN,
    Eligibility,
    EligibilityCompiler,
    GroupEligibility,
    Semantics,
    semantics_of,
)
from resource_objects.search.findings import Condition, FilterFactory, HostFilter
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.named_groups import Named, compile_groups
from resource_objects.search.order import Preference
from resource_objects.search.placements import placements


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A request over a fleet, as its conditions on hosts."""

    fleet: Fleet
    request: Request
    rules: Semantics
    of_host: tuple[Condition, ...]  #: on the hosts themselves
    classes: tuple[ClassCondition, ...]  #: each count of the unnamed group
    demands: tuple[FleetDemand, ...]  #: of these
    located: tuple[LocatedCondition, ...]  #: each of its placed amounts
    traits: RequiredTraits  #: of which some class has to answer for each
    of_unnamed: tuple[Condition, ...]  #: on the unnamed group, each class before all of them
    together: Together  #: the last of these
    of_groups: tuple[Condition, ...]  #: on the named groups, and the last ones
    named: Named
    is_host: Booleans  #: by tree: may have candidates
    is_explained: Booleans  #: by tree: is explained if it has no candidate
    has_own: Booleans  #: by tree: has some of a requested class
    near: TopologyConstraint | None = None
    filters: tuple[HostFilter, ...] = ()  #: the conditions of the caller on hosts
    factories: tuple[FilterFactory, ...] = ()  #: the functions that made these

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the request, the fleet and the filters, of which the conditions are made."""
        return compile_request, (self.request, self.fleet, self.factories)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions on a host, in the order of the reasons."""
        return (*self.of_host, *self.of_unnamed, *self.of_groups)

    @property
    def required(self) -> tuple[str, ...]:
        """The traits that some class has to answer for, in the order of the arrays."""
        return self.traits.required

    def of_tree(self, tree: int, preference: Preference | None = None) -> list[TreeDemand]:
        """Return the counts on one tree as plain data. Cost: some 10 microseconds each.

        :param preference: the order of sources; None: those of the tree itself, then pools
        """
        here = [one.of_tree(tree) for one in self.classes]
        return here if preference is None else [preference.of_sources(d, tree) for d in here]

    def located_of_tree(self, tree: int) -> list[LocatedTreeDemand]:
        """Return the placed amounts on one tree."""
        return [one.of_tree(tree) for one in self.located]


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
    amounts_of = placed_amounts(request)
    if rules.affinity_needs_cells:
        _check_affinity(amounts_of, request.near)
    disabled = disabled_for(fleet, request)
    compiler = EligibilityCompiler(
        fleet, rules, () if disabled is None else [enabled(fleet, disabled)]
    )
    group = request.unnamed
    laid = compiler.of_group(group)
    demands = [
        _demand(fleet, one, laid, tuple(compiler.of_class(group, one.resource_class)), rules)
        for one in requested_counts(request)
    ]
    classes = tuple(ClassCondition(fleet, rules, one) for one in demands)
    where = tuple(LocatedCondition(one) for one in compile_located(fleet, amounts_of, laid))
    named = compile_groups(fleet, request, compiler, rules)
    of_host: list[Condition] = [] if disabled is None else [EnabledHost(fleet, disabled)]
    of_host += [
        HostCondition(*one, classes)
        for one in (
            *compiler.of_root(request.root_required, request.root_forbidden),
            *compiler.of_host(group),
        )
    ]
    brought = tuple(one(fleet, request) for one in filters)
    of_host += brought
    having = [one.rows.tree for one in demands] + [one.demand.parts.tree for one in where]
    having += [rows.tree for kind in named.kinds for _, rows, _ in kind.amounts]
    having += [fleet.tree[kind.own] for kind in named.kinds if not kind.amounts]
    is_host, is_explained, has_own = _looked_at(fleet, having, rules)
    for condition in of_host:
        if (passing := condition.mask()) is not None:
            is_host &= passing
    traits = RequiredTraits(fleet, rules, tuple(one.label for one in laid.some), (*classes, *where))
    nearness = AffinityCheck(where) if len(where) > 1 else None
    together = Together(fleet, classes, where, traits)
    of_unnamed: list[Condition] = [*classes, *where]
    of_unnamed += [] if nearness is None else [nearness]
    of_unnamed += [
        Contention(fleet, classes, where, nearness),
        traits,
        HostGives(fleet, is_host, classes if rules.host_gives and not where else ()),
        together,
    ]
    beside = {one.resource_class: one.amount for one in demands}
    is_all = not demands and not where
    groups = Groups(named, is_host, beside, is_all) if named else None
    near, of_groups = None, list[Condition]()
    if request.near is not None:
        near = TopologyConstraint(request, classes, where, traits.required, named, groups)
        if near.is_required:
            of_groups.append(near)
    of_groups += [] if groups is None else [groups]
    if disabled is not None or fleet.removed_units:
        placed = [one.demand for one in where]
        of_groups.append(DisabledParts(fleet, rules, demands, placed, named.kinds))
    return Problem(
        fleet,
        request,
        rules,
        tuple(of_host),
        classes,
        tuple(one.demand for one in classes),
        where,
        traits,
        tuple(of_unnamed),
        together,
        tuple(of_groups),
        named,
        is_host,
        is_explained,
        has_own,
        near,
        brought,
        tuple(filters),
    )


def _looked_at(
    fleet: Fleet, having: Sequence[Integers], rules: Semantics
) -> tuple[Booleans, Booleans, Booleans]:
    """Return the trees that may have candidates, that are explained, and that have some class.

    Without pools the last ones are not needed, and are all trees.

    :param having: for each requested class, the trees that have some of it
    """
    within = np.ones(len(fleet.hosts), dtype=np.bool_)
    if fleet.within is not None:
        within[:] = False
        within[fleet.within] = True
    if not fleet.pools:
        return within.copy(), within, np.ones_like(within)
    has_any = np.zeros_like(within)
    for trees in having:
        has_any[trees] = True
    has_all = np.ones_like(within)
    for trees in having:
        has = np.zeros_like(within)
        has[trees] = True
        has_all &= has
    is_pool = np.zeros_like(within)
    is_pool[list(fleet.pools.trees)] = True
    told = within & (has_all | ~is_pool)
    if not rules.host_gives:
        return within.copy(), told, has_any
    return within & np.where(is_pool, has_all, has_any), told, has_any


def _demand(
    fleet: Fleet,
    one: RequestedCount,
    laid: GroupEligibility,
    of_class: Sequence[Eligibility],
    rules: Semantics,
) -> FleetDemand:
    """Return one class over the fleet."""
    rows, name = fleet.rows(one.resource_class), one.resource_class
    each = (*laid.each, *of_class)
    is_free = having_free(fleet, rows, one.units)
    is_pool = fleet.is_pool[rows.provider]
    roles = 2 if is_pool.any() else 1

    def of_rows(met: Booleans) -> Booleans:
        return met[:roles].take(rows.provider, axis=1)

    failed = [~of_rows(one.eligible) for one in each]
    allowed = np.stack((is_free & ~rows.is_part, is_free & is_pool)[:roles])
    for barred in failed:
        allowed &= ~barred
    is_device = _splitting(rows, one, rules)
    return FleetDemand(
        resource_class=name,
        whole=one.whole,
        amount=one.amount,
        units=one.units,
        rows=rows,
        gives_all=rows.provides(one.amount),
        is_device=is_device,
        is_split=bool(is_device.any()),
        requirements=tuple((one.rule, one.label) for one in each),
        failed=tuple(failed),
        has_required=tuple(of_rows(one.eligible) for one in laid.some),
        allowed=allowed,
    )


def _splitting(rows: ClassRows, one: RequestedCount, rules: Semantics) -> Booleans:
    """Return the inventories that may provide a part of a class while others provide the rest."""
    if one.units or not rules.splits_devices:
        return np.zeros_like(rows.is_below)
    return rows.is_below if is_device(one.resource_class) else rows.is_single


# --- what is asked for --------------------------------------------------------------------------
# The requested amounts: counts by class, and placed amounts.


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedCount:
    """A requested count of one class.

    ``whole`` is the requested amount; None if the count is a part of an amount of several classes.
    ``units`` are requested by name: then one provider provides all of it.
    """

    resource_class: str
    amount: int
    whole: Amount | None = None
    units: tuple[str, ...] = ()


def placed_amounts(request: Request) -> Mapping[str, Amount]:
    """Return the placed amounts of the unnamed group, by class."""
    every = request.unnamed.resources.by_name()
    return {name: amount for name, amount in every if _is_located(name)}


def _check_affinity(amounts_of: Mapping[str, Amount], near: str | None) -> None:
    """Refuse an affinity if no host cells are requested.

    :param near: the topology level of the request, which is another condition
    """
    for name, amount in amounts_of.items():
        if amount.names_affinity and not amount.is_assigned:
            cells = (cell_map_of(resource(other).make_inventory()) for other in amounts_of)
            if all(one is None for one in cells):
                instead = "" if near else "near='numa' in the request (--near numa) instead, "
                expected = f"no affinity, {instead}or a topology beside it to be near to"
                raise exceptions.InvalidInput("request", name, str(amount), expected)


def requested_counts(request: Request) -> tuple[RequestedCount, ...]:
    """Return each class that the unnamed group requests as a count, once, in order.

    Placed amounts, and the counts that they include, are left out. A count of a class and an
    amount that is stored in the same class at one provider request the same thing: they have to
    agree.

    :raises InvalidInput: for an amount that is not stored as counts above 0; if a count does not
        agree with the amount that includes it
    """
    counted: dict[str, RequestedCount] = {}
    kept: dict[str, RequestedCount] = {}
    for name, amount in _counts_wanted(request):
        records = amount.to_records(name)
        _check_records(name, amount, records)
        if [record.resource_class for record in records] == [name]:
            counted[name] = RequestedCount(name, records[0].amount, amount, records[0].units)
        else:
            for record in records:
                _add(kept, record)
    for name, part in kept.items():
        if name in counted and counted[name].amount != part.amount:
            raise exceptions.InvalidInput(
                "request",
                name,
                counted[name].amount,
                f"{part.amount}, as the amount that locates it says",
            )
    return tuple({**counted, **kept}.values())


def _counts_wanted(request: Request) -> Iterable[tuple[str, Amount]]:
    """Return the requested amounts that are not placed, and what placed amounts leave."""
    parts = split(request.unnamed.resources)
    every: Iterable[tuple[str, Amount]] = request.unnamed.resources.by_name()
    if parts is not None:
        every = [*parts.others.items(), *parts.located.items()]
    return [(name, amount) for name, amount in every if not _is_located(name)]


def _is_located(name: str) -> bool:
    return resource(name).is_located


def _check_records(name: str, amount: Amount, records: Iterable[AmountRecord]) -> None:
    found = [record.amount for record in records]
    if not found or min(found) < 1:
        raise exceptions.InvalidInput(
            "kind of amount", name, amount, "one that is kept as counts above 0"
        )


def _add(kept: dict[str, RequestedCount], record: AmountRecord) -> None:
    before = kept.get(record.resource_class, RequestedCount(record.resource_class, 0))
    amount = before.amount + record.amount
    if amount > MAX_AMOUNT:
        raise exceptions.InvalidInput(
            "request", record.resource_class, amount, f"at most {MAX_AMOUNT}"
        )
    kept[record.resource_class] = dataclasses.replace(
        before, amount=amount, units=(*before.units, *record.units)
    )


# --- prefilter ----------------------------------------------------------------------------------
# The masks of the conditions are cheap and exclude most hosts; the others are decided exactly, tree
# by tree. If no amount is split and no two traits meet, the masks are the whole decision.


def possible_trees(problem: Problem) -> Integers:
    """Return the trees that may hold the request, in order: all that can, and perhaps others.

    Cost: a vectorised pass for each class, and each class and trait.
    """
    passing = problem.is_host.copy()
    near = problem.near
    if near is not None and near.is_required:
        passing &= near.mask()
    else:
        for condition in problem.conditions:
            if np.count_nonzero(passing) and (mask := condition.mask()) is not None:
                passing &= mask
        if near is not None:
            passing |= problem.is_host & near.mask()
    found = np.flatnonzero(passing)
    for one in problem.filters:
        found = found[one.among(found)]
    return found


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


def decide_by_arrays(problem: Problem, is_plain: bool, *, of_each: bool) -> ArrayDecision | None:
    """Return the trees that arrays decide, None if there are none.

    On these the first step of the exact decision is the whole decision: the first provider that has
    all of a class provides it, because every provider answers for the traits, no units are chosen,
    and no inventory is used twice.

    :param is_plain: whether providers are in their usual order; else there must be no choice
    :param of_each: whether more than one candidate of a tree may be asked for

    Cost: a pass for each class, and each class and trait.
    """
    fleet, asks = problem.fleet, problem.demands
    if not asks or not has_only_counts(problem):
        return None
    decides = np.ones(len(problem.is_host), dtype=np.bool_)
    is_only = np.ones_like(decides) if of_each or not is_plain else None
    answers = [np.zeros_like(decides) for _ in problem.required]
    first = []
    for ask in asks:
        rows = ask.rows
        gives = ask.allowed[OWN] & ask.gives_all
        at, is_given = _first_of_each(fleet, ask, gives)
        first.append(at)
        decides &= is_given
        if is_only is not None and not _has_one_each(fleet, ask):
            is_only &= _gives_alone(fleet, ask, np.flatnonzero(gives))
        if ask.has_pools:
            decides[rows.tree[gives & fleet.is_pool[rows.provider]]] = False
        for number, has in enumerate(ask.has_required):
            if not ask.has_pools:
                lacks = np.zeros_like(decides)
                lacks[rows.tree[(ask.allowed & ~has)[OWN]]] = True
                answers[number] |= ~lacks
    for answered_for in answers:
        decides &= answered_for
    if len(asks) > 1 and fleet.shares:
        decides &= ~_may_meet(fleet, first)
    if is_only is not None and not is_plain:
        decides &= is_only
    provider = fleet.inventories.provider
    return ArrayDecision(decides, is_only, tuple(first), provider) if decides.any() else None


def _first_of_each(fleet: Fleet, ask: FleetDemand, gives: Booleans) -> tuple[Integers, Booleans]:
    """Return the first inventory of each tree that provides a class, and the trees with one.

    Placements of partitions are left out: which of them is first depends on what is used.
    """
    rows = ask.rows
    if fleet.is_everywhere(ask.resource_class):
        found, is_given = np.arange(rows.first, rows.first + len(gives)), gives
    else:
        (entries,) = gives.nonzero()
        found = np.full(len(fleet.hosts), -1)
        found[rows.tree[entries[::-1]]] = entries[::-1] + rows.first
        is_given = found >= 0
    if fleet.shares:
        is_given = is_given & ~placements(fleet)[found]
    return found, is_given


def _may_meet(fleet: Fleet, first: Iterable[Integers]) -> Booleans:
    """Return the trees in which one of the inventories uses another, or is used by one."""
    met = np.zeros(len(fleet.inventories.tree), dtype=np.bool_)
    met[fleet.shares.source] = met[fleet.shares.targets] = True
    found: Booleans = np.logical_or.reduce([met[at] for at in first])
    return found


def _has_one_each(fleet: Fleet, ask: FleetDemand) -> bool:
    """Return True if each tree has at most one inventory of a class, which provides all of it."""
    return (
        not ask.is_split and not ask.has_pools and ask.resource_class not in fleet.repeated_classes
    )


def _gives_alone(fleet: Fleet, ask: FleetDemand, entries: Integers) -> Booleans:
    """Return the trees with one way to provide a class: one of its inventories provides all."""
    rows, trees = ask.rows, len(fleet.hosts)
    found: Booleans = np.bincount(rows.tree[entries], minlength=trees) == 1
    if ask.is_split:
        parts = ask.allowed[OWN] & ask.is_device & (rows.low <= rows.high) & (rows.high > 0)
        found &= np.bincount(rows.tree[parts], minlength=trees) < 2
    if ask.has_pools:
        found &= ~ask.from_pools(fleet)
    return found


def has_only_counts(problem: Problem) -> bool:
    """Return True if only counts are requested, and no units have to be chosen."""
    if problem.located or problem.named or problem.near:
        return False
    names = {ask.resource_class for ask in problem.demands}
    by_name = problem.fleet.device_parts.values()
    return not any(ask.units for ask in problem.demands) and all(
        names.isdisjoint(shape) for parts in by_name for shape in parts.shapes
    )
