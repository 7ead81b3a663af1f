"""A request over a fleet: who may give what to which tree.

Of each class of the unnamed group, the inventories of the tree itself come first, then those of the
pools that it is linked to. What conditions leave of them is laid down once for the whole fleet, as
flags; what is asked of one tree is then cut out as plain data (:mod:`.asked`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from resource_objects.exceptions import Rule
from resource_objects.requests import Request
from resource_objects.resources import Amount
from resource_objects.resources.catalog import is_device
from resource_objects.search import located, named
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.asked import Asked, Draw, Giver, bits
from resource_objects.search.conditions import Condition, Conditions, Laying
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.located import LocatedAsk, LocatedAsked
from resource_objects.search.named import Named, pools_of
from resource_objects.search.preference import Preference
from resource_objects.search.semantics import Semantics, semantics_of
from resource_objects.search.wanted import Wanted, wanted
from resource_objects.search.wanted import located as located_of


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Givers:
    """Some inventories of a class, by number, with what they meet: parallel sequences."""

    numbers: range | Integers
    is_barred: tuple[Booleans, ...]  #: by condition on everybody who gives: does not meet it
    has_required: tuple[Booleans, ...]  #: by condition on all who give some class: meets it
    allowed: Booleans  #: meets all of the former, and no unit that is asked for is taken


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One class of the unnamed group over the fleet."""

    resource_class: str
    whole: Amount | None  #: as it was asked; None: as a part of another amount
    amount: int  #: the same as a count
    units: tuple[str, ...]  #: asked for by name
    rows: ClassRows
    is_device: Booleans  #: may give a part, while other devices give the rest; parallel to rows
    barriers: tuple[tuple[Rule, str], ...]  #: the conditions on everybody who gives
    own: Givers  #: all of them, to their own trees; parallel to rows
    pooled: Givers | None  #: those of pools, to other trees; None if there are none


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A request over a fleet; ``required`` is in the order of the arrays."""

    fleet: Fleet
    request: Request
    rules: Semantics
    required: tuple[str, ...]  #: the traits that some class has to answer for
    asks: tuple[Ask, ...]
    located: tuple[LocatedAsk, ...]
    named: Named
    of_root: tuple[Condition, ...]  #: on the hosts themselves: flags by tree
    is_host: Booleans  #: by tree: may be found
    is_told: Booleans  #: by tree: is explained if it is not found
    has_own: Booleans  #: by tree: keeps something of what is asked

    @property
    def forbidden(self) -> tuple[str, ...]:
        """The traits that nobody who gives may have, of the unnamed group."""
        return tuple(sorted(self.request.unnamed.forbidden))

    def of_tree(self, tree: int, preference: Preference | None = None) -> list[Asked]:
        """Return the asks of one tree, as plain data. Cost: some 10 microseconds each.

        :param preference: who is looked at first; None: who has a tree, in its order, then pools
        """
        asks = [self._asked(ask, tree) for ask in self.asks]
        if preference is None or preference.is_plain:
            return asks
        return [preference.of_givers(asked, tree) for asked in asks]

    def located_of_tree(self, tree: int) -> list[LocatedAsked]:
        """Return the located amounts, asked of one tree."""
        return [ask.of_tree(tree) for ask in self.located]

    def givers(self, ask: Ask, tree: int) -> Iterator[tuple[Givers, Any]]:
        """Yield who may give a class to a tree: which of whose entries, its own first."""
        yield ask.own, ask.rows.of_tree(tree)
        pools = self.pools(tree) if ask.pooled is not None else []
        if ask.pooled is not None and pools:
            provider = self.fleet.inventories.provider[ask.pooled.numbers]
            yield ask.pooled, np.flatnonzero(np.isin(provider, pools))

    def pools(self, tree: int) -> list[int]:
        """Return the pools of other trees that may give to a tree."""
        return pools_of(self.fleet, self.rules, tree)

    def _asked(self, ask: Ask, tree: int) -> Asked:
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
        return Asked(
            amount=ask.amount,
            numbers=numbers,
            givers=tuple(figures),
            allowed=bits(allowed.tolist()),
            with_trait=tuple(bits(has.tolist()) for has in having),
            draws=tuple(self._draws(numbers)) if self.fleet.shares else (),
            own=here.stop - here.start,
        )

    def _figures(self, rows: Any, is_device: list[bool]) -> list[Giver]:
        kept = self.fleet.inventories
        columns = [column[rows].tolist() for column in (kept.low, kept.high, kept.step_size)]
        return list(map(Giver, *columns, is_device))

    def _draws(self, numbers: Sequence[int]) -> Iterable[Draw]:
        shares = self.fleet.shares
        if isinstance(numbers, range):
            found = shares.between(numbers.start, numbers.stop)
        else:
            found = [link for number in numbers for link in shares.between(number, number + 1)]
        place = {number: place for place, number in enumerate(numbers)} if found else {}
        for source, target, factor in found:
            yield Draw(place[source], target, factor, self.fleet.left(target))


def lay(request: Request, fleet: Fleet) -> Question:
    """Return a request laid over a fleet. Cost: one pass per class and condition, vectorised.

    :raises WrongAmountKind: for an amount that is not kept as counts
    :raises InvalidRequest: if a count does not agree with what locates it
    :raises ProviderNotFound: for a tree that is not there
    """
    rules = semantics_of(request)
    laying = Laying(fleet, rules)
    group = request.unnamed
    laid = laying.of_group(group)
    asks = tuple(
        _ask(fleet, one, laid, tuple(laying.of_class(group, one.resource_class)), rules)
        for one in wanted(request)
    )
    where = located.lay(fleet, located_of(request), laid)
    groups = named.lay(fleet, request, laying, rules)
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
    return Question(fleet, request, rules, required, asks, where, groups, of_root, *flags)


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
) -> Ask:
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
    return Ask(
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
) -> Givers | None:
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
) -> Givers:
    allowed = is_free.copy()
    for barred in is_barred:
        allowed &= ~barred
    return Givers(numbers, tuple(is_barred), tuple(has_required), allowed)
