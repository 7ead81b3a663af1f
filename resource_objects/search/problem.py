"""A request over a fleet: who may give what to which tree.

Of each class of the unnamed group, the inventories of the tree itself come first, then those of the
pools that it is linked to. What conditions leave of them is laid down once for the whole fleet, as
flags; what is asked of one tree is then cut out as plain data (:class:`.TreeDemand`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from resource_objects.search.conditions import amounts, contention, located
from resource_objects.search.conditions.amounts import (
    Demand,
    Draw,
    Source,
    Sources,
    TreeDemand,
    bits,
    enough_of_class,
)
from resource_objects.search.conditions.base import (
    Condition,
    Conditions,
    Laying,
    Semantics,
    semantics_of,
)
from resource_objects.search.conditions.groups import Named, lay_groups, pools_of
from resource_objects.search.conditions.located import LocatedDemand, LocatedTreeDemand, lay_located
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.order import Preference


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A request over a fleet; ``required`` is in the order of the arrays."""

    fleet: Fleet
    request: Request
    rules: Semantics
    required: tuple[str, ...]  #: the traits that some class has to answer for
    asks: tuple[Demand, ...]
    located: tuple[LocatedDemand, ...]
    named: Named
    of_root: tuple[Condition, ...]  #: on the hosts themselves: flags by tree
    is_host: Booleans  #: by tree: may be found
    is_told: Booleans  #: by tree: is explained if it is not found
    has_own: Booleans  #: by tree: keeps something of what is asked

    @property
    def forbidden(self) -> tuple[str, ...]:
        """The traits that nobody who gives may have, of the unnamed group."""
        return tuple(sorted(self.request.unnamed.forbidden))

    def of_tree(self, tree: int, preference: Preference | None = None) -> list[TreeDemand]:
        """Return the asks of one tree, as plain data. Cost: some 10 microseconds each.

        :param preference: who is looked at first; None: who has a tree, in its order, then pools
        """
        asks = [self._asked(ask, tree) for ask in self.asks]
        if preference is None or preference.is_plain:
            return asks
        return [preference.of_givers(asked, tree) for asked in asks]

    def located_of_tree(self, tree: int) -> list[LocatedTreeDemand]:
        """Return the located amounts, asked of one tree."""
        return [ask.of_tree(tree) for ask in self.located]

    def givers(self, ask: Demand, tree: int) -> Iterator[tuple[Sources, Any]]:
        """Yield who may give a class to a tree: which of whose entries, its own first."""
        yield ask.own, ask.rows.of_tree(tree)
        pools = self.pools(tree) if ask.pooled is not None else []
        if ask.pooled is not None and pools:
            provider = self.fleet.inventories.provider[ask.pooled.numbers]
            yield ask.pooled, np.flatnonzero(np.isin(provider, pools))

    def pools(self, tree: int) -> list[int]:
        """Return the pools of other trees that may give to a tree."""
        return pools_of(self.fleet, self.rules, tree)

    def _asked(self, ask: Demand, tree: int) -> TreeDemand:
        (own, here), *others = self.givers(ask, tree)
        mine = ask.rows.first + here.start, ask.rows.first + here.stop
        numbers: Sequence[int] = range(*mine)
        figures = self._figures(slice(*mine), ask.is_device[here].tolist())
        allowed = own.allowed[here]
        having = [has[here] for has in own.has_required]
        for pooled, there in others:
            if len(there):
                more = np.asarray(pooled.numbers)[there]
                numbers = [*numbers, *more.tolist()]
                figures += self._figures(more, [False] * len(more))
                allowed = np.concatenate((allowed, pooled.allowed[there]))
                pairs = zip(having, pooled.has_required, strict=True)
                having = [np.concatenate((has, theirs[there])) for has, theirs in pairs]
        return TreeDemand(
            amount=ask.amount,
            numbers=numbers,
            givers=tuple(figures),
            allowed=bits(allowed.tolist()),
            with_trait=tuple(bits(has.tolist()) for has in having),
            draws=tuple(self._draws(numbers)) if self.fleet.shares else (),
            own=here.stop - here.start,
        )

    def _figures(self, rows: Any, is_device: list[bool]) -> list[Source]:
        kept = self.fleet.inventories
        columns = [column[rows].tolist() for column in (kept.low, kept.high, kept.step_size)]
        return list(map(Source, *columns, is_device))

    def _draws(self, numbers: Sequence[int]) -> Iterable[Draw]:
        shares = self.fleet.shares
        if isinstance(numbers, range):
            found = shares.between(numbers.start, numbers.stop)
        else:
            found = [link for number in numbers for link in shares.between(number, number + 1)]
        place = {number: place for place, number in enumerate(numbers)} if found else {}
        for source, target, factor in found:
            yield Draw(place[source], target, factor, self.fleet.left(target))


def lay(request: Request, fleet: Fleet) -> Problem:
    """Return a request laid over a fleet. Cost: one pass per class and condition, vectorised.

    :raises WrongAmountKind: for an amount that is not kept as counts
    :raises InvalidRequest: if a count does not agree with what locates it, or an affinity means
        nothing because no host cells are asked for
    :raises ProviderNotFound: for a tree that is not there
    """
    rules = semantics_of(request)
    amounts_of = located_of(request)
    if rules.affinity_needs_cells:
        _check_affinity(amounts_of)
    laying = Laying(fleet, rules)
    group = request.unnamed
    laid = laying.of_group(group)
    asks = tuple(
        _ask(fleet, one, laid, tuple(laying.of_class(group, one.resource_class)), rules)
        for one in wanted(request)
    )
    where = lay_located(fleet, amounts_of, laid)
    groups = lay_groups(fleet, request, laying, rules)
    of_root = (
        *laying.of_root(request.root_required, request.root_forbidden),
        *laying.of_host(group),
    )
    having = [ask.rows.tree for ask in asks] + [ask.parts.tree for ask in where]
    having += [rows.tree for kind in groups.kinds for rows, _ in kind.classes]
    having += [fleet.tree[kind.own] for kind in groups.kinds if not kind.classes]
    flags = _looked_at(fleet, having, rules)
    for one in of_root:
        flags[0][~one.own] = False
    required = tuple(one.label for one in laid.some)
    return Problem(fleet, request, rules, required, asks, where, groups, of_root, *flags)


def _looked_at(
    fleet: Fleet, having: Iterable[Integers], rules: Semantics
) -> tuple[Booleans, Booleans, Booleans]:
    """Return which trees may be found, which are explained if not, which have some of it.

    :param having: for each class that is asked for, the trees that have some of it
    """
    asked = np.ones(len(fleet.hosts), dtype=np.bool_)
    if fleet.within is not None:
        asked[:] = False
        asked[fleet.within] = True
    has_any, has_all = np.zeros_like(asked), np.ones_like(asked)
    for trees in having:
        has = np.zeros_like(asked)
        has[trees] = True
        has_any |= has
        has_all &= has
    is_pool = np.zeros_like(asked)
    is_pool[list(fleet.pools.trees)] = True
    told = asked & (has_all | ~is_pool)
    if not rules.host_gives or not fleet.pools:
        return asked.copy(), told, has_any
    return asked & np.where(is_pool, has_all, has_any), told, has_any


def _ask(
    fleet: Fleet, one: Wanted, laid: Conditions, of_class: Sequence[Condition], rules: Semantics
) -> Demand:
    rows, name = fleet.rows(one.resource_class), one.resource_class
    each = (*laid.each, *of_class)
    taken = list(fleet.units.taken(one.units)) if one.units else []
    is_free = ~np.isin(rows.provider, taken) & ~rows.is_part if taken else ~rows.is_part
    own = _givers(
        range(rows.first, rows.first + len(rows.provider)),
        [~one.own[rows.provider] for one in each],
        [one.own[rows.provider] for one in laid.some],
        is_free,
    )
    return Demand(
        resource_class=name,
        whole=one.whole,
        amount=one.amount,
        units=one.units,
        rows=rows,
        is_device=_splitting(rows, one, rules),
        barriers=tuple((one.rule, one.label) for one in each),
        own=own,
        pooled=_pooled(fleet, rows, each, laid.some, taken),
    )


def _splitting(rows: ClassRows, one: Wanted, rules: Semantics) -> Booleans:
    """Return which inventories may give a part of a class while others give the rest."""
    if one.units or not rules.splits_devices:
        return np.zeros_like(rows.is_below)
    return rows.is_below if is_device(one.resource_class) else rows.is_single


def _pooled(
    fleet: Fleet,
    rows: ClassRows,
    each: Sequence[Condition],
    some: Sequence[Condition],
    taken: Sequence[int],
) -> Sources | None:
    """Return the inventories of pools, None if there are none."""
    entries = np.flatnonzero(np.isin(rows.provider, fleet.pools.providers))
    if not len(entries):
        return None
    provider = rows.provider[entries]
    is_free = ~np.isin(provider, taken)
    barred = [~one.pooled[provider] for one in each]
    return _givers(rows.first + entries, barred, [one.pooled[provider] for one in some], is_free)


def _givers(
    numbers: range | Integers,
    is_barred: Sequence[Booleans],
    has_required: Sequence[Booleans],
    is_free: Booleans,
) -> Sources:
    allowed = is_free.copy()
    for barred in is_barred:
        allowed &= ~barred
    return Sources(numbers, tuple(is_barred), tuple(has_required), allowed)


# --- what is asked for --------------------------------------------------------------------------
# What a request asks for: counts, class by class, and amounts that say where they go.


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """One class that is asked for.

    ``whole`` is the amount that says so; None where it is a part of an amount of several classes.
    ``units`` are those asked for by name: then one provider gives all of it.
    """

    resource_class: str
    amount: int
    whole: Amount | None = None
    units: tuple[str, ...] = ()


def located_of(request: Request) -> Mapping[str, Amount]:
    """Return the amounts of the unnamed group whose inventories lie over trees, by class."""
    asked = request.unnamed.resources.by_name()
    return {name: amount for name, amount in asked if _is_located(name)}


def _check_affinity(amounts_of: Mapping[str, Amount]) -> None:
    """Refuse an affinity where nothing is asked for that it could be near to."""
    for name, amount in amounts_of.items():
        if amount.names_affinity and not amount.is_assigned:
            cells = (cell_map_of(resource(other).make_inventory()) for other in amounts_of)
            if all(one is None for one in cells):
                raise exceptions.InvalidRequest(
                    name, str(amount), "no affinity, or a topology beside it to be near to"
                )


def wanted(request: Request) -> tuple[Wanted, ...]:
    """Return each class that the unnamed group asks for as a count, once, in the order it comes in.

    Not those that a located amount stands for (D1), nor that amount. A count of a class and an
    amount that is kept in the same class in one place ask for the same thing, which the latter
    locates; they have to agree.

    :raises WrongAmountKind: for an amount that is kept as nothing, or not as counts above 0
    :raises InvalidRequest: if a count does not agree with what locates it
    """
    counted: dict[str, Wanted] = {}
    kept: dict[str, Wanted] = {}
    for name, amount in _counts_wanted(request):
        records = amount.to_records(name)
        _check_records(name, amount, records)
        if [record.resource_class for record in records] == [name]:
            counted[name] = Wanted(name, records[0].amount, amount, records[0].units)
        else:
            for record in records:
                _add(kept, record)
    for name, part in kept.items():
        if name in counted and counted[name].amount != part.amount:
            raise exceptions.InvalidRequest(
                name, counted[name].amount, f"{part.amount}, as the amount that locates it says"
            )
    return tuple({**counted, **kept}.values())


def _counts_wanted(request: Request) -> Iterable[tuple[str, Amount]]:
    """Return what a request asks for beside what lies over trees."""
    asked = split(request.unnamed.resources)
    every: Iterable[tuple[str, Amount]] = request.unnamed.resources.by_name()
    if asked is not None:
        every = [*asked.others.items(), *asked.located.items()]
    return [(name, amount) for name, amount in every if not _is_located(name)]


def _is_located(name: str) -> bool:
    return resource(name).is_located


def _check_records(name: str, amount: Amount, records: Iterable[AmountRecord]) -> None:
    found = [record.amount for record in records]
    if not found or min(found) < 1:
        raise exceptions.WrongAmountKind(name, amount, "one that is kept as counts above 0")


def _add(kept: dict[str, Wanted], record: AmountRecord) -> None:
    before = kept.get(record.resource_class, Wanted(record.resource_class, 0))
    amount = before.amount + record.amount
    if amount > MAX_AMOUNT:
        raise exceptions.InvalidRequest(record.resource_class, amount, f"at most {MAX_AMOUNT}")
    kept[record.resource_class] = dataclasses.replace(
        before, amount=amount, units=(*before.units, *record.units)
    )


# --- prefilter ----------------------------------------------------------------------------------
# Conditions that every host which can hold a request meets: over the whole fleet at once.
#
# They are cheap and rule most hosts out; what remains is decided exactly, tree by tree. A host
# passes
#
# * if it may be a host at all: it gives something of its own, and its root has the traits asked;
# * if, for each class, one provider gives all by itself, or its devices together have enough, or a
#   pool that it is linked to gives all;
# * if there are enough providers for the named groups, and enough of each class (:mod:`.groups`);
# * if it has the parts that located amounts need at least (:mod:`.located`);
# * if, for each required trait, that is so for some class among the providers that have it;
# * if there is room where several classes draw on one inventory (:mod:`.contention`).
#
# Where no amount is split and no two traits meet this is the whole decision already.


def possible(question: Problem) -> Integers:
    """Return the trees that may hold the request, in order. No tree that can is left out.

    Cost: one vectorised pass for each class, and each class and trait.
    """
    passing = question.is_host.copy()
    for ask in question.asks:
        passing &= enough_of_class(question.fleet, ask)
    for one in question.located:
        passing &= located.enough_parts(one, len(passing))
    if question.named:
        passing &= question.named.possible(
            {ask.resource_class: ask.amount for ask in question.asks}
        )
    for number in range(len(question.required)):
        if passing.any():
            passing &= answered(question, number)
    is_tied = len(question.asks) > 1 or bool(question.located)
    if question.fleet.shares and is_tied and passing.any():
        drawing = [contention.drawing(question.fleet, ask) for ask in question.asks]
        drawing += [each for one in question.located for each in located.drawing(one)]
        passing &= ~contention.contended(question.fleet, drawing)
    return np.flatnonzero(passing)


def answered(question: Problem, trait: int) -> Booleans:
    """Return, by tree, whether some class seems to be given by who has a required trait."""
    found = np.zeros(len(question.is_host), dtype=np.bool_)
    for ask in question.asks:
        found |= enough_of_class(question.fleet, ask, trait)
    for one in question.located:
        found |= located.enough_parts(one, len(found), trait)
    return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Direct:
    """The trees that arrays decide: one provider of the tree gives all of each class.

    Flags and numbers are by tree.
    """

    decides: Booleans
    is_only: Booleans  #: that is the only way
    first: tuple[Integers, ...]  #: by class, the number of the inventory that gives


def direct(question: Problem, is_plain: bool) -> Direct | None:
    """Return the trees that arrays decide, None if there are none.

    On these, what the exact decision does first is all it does: of each class the first provider
    that gives all of it gives, for traits are answered for whoever does, no units are to be chosen,
    and nobody draws on what another draws on.

    :param is_plain: whether who stands first comes first; else there is to be no choice

    Cost: a pass for each class, and each class and trait.
    """
    fleet, asks = question.fleet, question.asks
    if not asks or question.located or question.named or _gives_units(question):
        return None
    decides = np.ones(len(question.is_host), dtype=np.bool_)
    is_only = decides.copy()
    answers = [np.zeros_like(decides) for _ in question.required]
    first = []
    for ask in asks:
        rows = ask.rows
        gives = ask.own.allowed & amounts.alone(ask, slice(None))
        entries = np.flatnonzero(gives)
        count = np.bincount(rows.tree[entries], minlength=len(decides))
        at = np.full(len(decides), -1)
        at[rows.tree[entries[::-1]]] = entries[::-1] + rows.first
        first.append(at)
        decides &= count > 0
        parts = ask.own.allowed & ask.is_device & (rows.low <= rows.high) & (rows.high > 0)
        is_only &= (count == 1) & (np.bincount(rows.tree[parts], minlength=len(decides)) < 2)
        if ask.pooled is not None:
            is_only &= ~amounts.from_pools(fleet, ask)
            decides[rows.tree[entries[fleet.is_pool[rows.provider[entries]]]]] = False
        for number, has in enumerate(ask.own.has_required):
            if ask.pooled is None:
                lacks = np.zeros_like(decides)
                lacks[rows.tree[ask.own.allowed & ~has]] = True
                answers[number] |= ~lacks
    for answered_for in answers:
        decides &= answered_for
    if len(asks) > 1 and fleet.shares:
        met = np.zeros(len(fleet.inventories.tree), dtype=np.bool_)
        met[fleet.shares.source] = met[fleet.shares.targets] = True
        for at in first:
            decides &= ~met[at]
    if not is_plain:
        decides &= is_only
    return Direct(decides, is_only, tuple(first)) if decides.any() else None


def _gives_units(question: Problem) -> bool:
    """Return whether somebody would have to say which units it takes."""
    names = {ask.resource_class for ask in question.asks}
    by_name = (parts for _, parts in question.fleet.views.devices)
    return any(ask.units for ask in question.asks) or any(
        not names.isdisjoint(shape) for parts in by_name for shape in parts.shapes
    )
