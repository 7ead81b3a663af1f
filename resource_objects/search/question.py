"""One request laid over one fleet: what is asked of which inventories, under which conditions.

Made once per search, vectorised; both the conditions for whole fleets and the decision on one
tree read it, and so does the explanation, so that all of them speak of the same givers.

Who may give a class to a host: the providers of its tree that have an inventory of it; but a part
of what lies over the tree does not give what is its host's too, for that the host gives. Where
there are none, the pools that the tree is linked to, each alone and with the traits it has itself.
A host gives something of its own; a pool is looked at as a host only where its own tree has all
that is asked, so what only pools give is found once, at the pool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from resource_objects.requests import Request
from resource_objects.resources import Amount
from resource_objects.resources.catalog import is_device
from resource_objects.search import located
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.asked import Asked, Draw, Giver, bits
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.located import LocatedAsk, LocatedAsked
from resource_objects.search.wanted import Wanted, wanted
from resource_objects.search.wanted import located as located_of


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Givers:
    """Some inventories of a class, by number, with their traits: parallel sequences."""

    numbers: range | Integers
    has_forbidden: tuple[Booleans, ...]  #: by forbidden trait
    has_required: tuple[Booleans, ...]  #: by required trait
    allowed: Booleans  #: has none of the forbidden traits, and no unit that is asked for is taken


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One class of a request over the fleet."""

    resource_class: str
    whole: Amount | None  #: as it was asked; None: as a part of another amount
    amount: int  #: the same as a count
    units: tuple[str, ...]  #: asked for by name
    rows: ClassRows
    is_device: Booleans  #: may give a part, while other devices give the rest; parallel to rows
    own: Givers  #: all of them, to their own trees; parallel to rows
    pooled: Givers | None  #: those of pools, to trees without the class; None if there are none


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A request over a fleet; ``required`` and ``forbidden`` are in the order of the arrays."""

    fleet: Fleet
    request: Request
    required: tuple[str, ...]
    forbidden: tuple[str, ...]
    asks: tuple[Ask, ...]
    located: tuple[LocatedAsk, ...]
    is_host: Booleans  #: by tree: may be found, for it gives something of its own
    is_told: Booleans  #: by tree: is explained if it is not found

    def of_tree(self, tree: int) -> list[Asked]:
        """Return the asks of one tree, as plain data. Cost: some 10 microseconds each."""
        return [self._asked(ask, *self.givers(ask, tree)) for ask in self.asks]

    def located_of_tree(self, tree: int) -> list[LocatedAsked]:
        """Return the located amounts, asked of one tree."""
        return [ask.of_tree(tree) for ask in self.located]

    def givers(self, ask: Ask, tree: int) -> tuple[Givers, Any]:
        """Return who may give a class to a tree: which of whose entries."""
        here = ask.rows.of_tree(tree)
        if here.start < here.stop or ask.pooled is None:
            return ask.own, here
        provider = self.fleet.inventories.provider[ask.pooled.numbers]
        return ask.pooled, np.flatnonzero(np.isin(provider, self.fleet.pools.of_tree(tree)))

    def _asked(self, ask: Ask, givers: Givers, here: Any) -> Asked:
        numbers: Sequence[int]
        if isinstance(givers.numbers, range):
            numbers = own = givers.numbers[here]
            rows: Any = slice(own.start, own.stop)
            is_device = ask.is_device[here].tolist()
        else:
            numbers = rows = givers.numbers[here].tolist()
            is_device = [False] * len(numbers)
        kept = self.fleet.inventories
        figures = [column[rows].tolist() for column in (kept.low, kept.high, kept.step_size)]
        return Asked(
            amount=ask.amount,
            numbers=numbers,
            givers=tuple(map(Giver, *figures, is_device)),
            allowed=bits(givers.allowed[here]),
            with_trait=tuple(bits(has[here]) for has in givers.has_required),
            draws=tuple(self._draws(numbers)) if self.fleet.shares else (),
        )

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
    """Return a request laid over a fleet. Cost: one pass per class and trait, vectorised.

    :raises WrongAmountKind: for an amount that is not kept as counts
    :raises InvalidRequest: if a count does not agree with what locates it
    """
    (group,) = request.groups
    required, forbidden = tuple(sorted(group.required)), tuple(sorted(group.forbidden))
    has = {trait: fleet.has_trait(trait) for trait in (*required, *forbidden)}
    asks = tuple(_ask(fleet, one, has, required, forbidden) for one in wanted(request))
    where = located.lay(fleet, located_of(request), has, required, forbidden)
    having = [ask.rows.tree for ask in asks] + [ask.parts.tree for ask in where]
    is_host, is_told = _looked_at(fleet, having)
    return Question(fleet, request, required, forbidden, asks, where, is_host, is_told)


def _looked_at(fleet: Fleet, having: Iterable[Integers]) -> tuple[Booleans, Booleans]:
    """Return which trees may be found, and which are explained if they are not.

    :param having: for each class that is asked for, the trees that have some of it
    """
    asked = np.ones(len(fleet.hosts), dtype=np.bool_)
    if fleet.within is not None:
        asked[:] = False
        asked[fleet.within] = True
    if not fleet.pools:
        return asked, asked
    has_any, has_all = np.zeros_like(asked), np.ones_like(asked)
    for trees in having:
        has = np.zeros_like(asked)
        has[trees] = True
        has_any |= has
        has_all &= has
    is_pool = np.zeros_like(asked)
    is_pool[list(fleet.pools.trees)] = True
    return asked & np.where(is_pool, has_all, has_any), asked & (has_all | ~is_pool)


def _ask(
    fleet: Fleet,
    one: Wanted,
    has: dict[str, Booleans],
    required: Sequence[str],
    forbidden: Sequence[str],
) -> Ask:
    rows, name = fleet.rows(one.resource_class), one.resource_class
    taken = list(fleet.units.taken(one.units)) if one.units else []
    own = _givers(
        range(rows.first, rows.first + len(rows.provider)),
        tuple(has[trait][rows.provider] for trait in forbidden),
        tuple(has[trait][rows.provider] for trait in required),
        ~np.isin(rows.provider, taken) & ~rows.is_part if taken else ~rows.is_part,
    )
    is_single = np.zeros_like(rows.is_below) if one.units else rows.is_single
    return Ask(
        resource_class=name,
        whole=one.whole,
        amount=one.amount,
        units=one.units,
        rows=rows,
        is_device=rows.is_below if is_device(name) and not one.units else is_single,
        own=own,
        pooled=_pooled(fleet, rows, required, forbidden, taken),
    )


def _pooled(
    fleet: Fleet,
    rows: ClassRows,
    required: Sequence[str],
    forbidden: Sequence[str],
    taken: Sequence[int],
) -> Givers | None:
    """Return the inventories of pools, None if there are none; only their own traits count."""
    entries = np.flatnonzero(np.isin(rows.provider, fleet.pools.providers))
    if not len(entries):
        return None
    provider = rows.provider[entries]
    nobody = np.zeros(0, dtype=np.int64)

    def have(traits: Sequence[str]) -> tuple[Booleans, ...]:
        return tuple(np.isin(provider, fleet.traits.get(trait, nobody)) for trait in traits)

    is_free = ~np.isin(provider, taken) if taken else None
    return _givers(rows.first + entries, have(forbidden), have(required), is_free)


def _givers(
    numbers: range | Integers,
    has_forbidden: tuple[Booleans, ...],
    has_required: tuple[Booleans, ...],
    is_free: Booleans | None,
) -> Givers:
    allowed = np.ones(len(numbers), dtype=np.bool_) if is_free is None else is_free
    for has in has_forbidden:
        allowed &= ~has
    return Givers(numbers, has_forbidden, has_required, allowed)
