"""Who holds what: who stands in the way of an amount that lies over a tree (law 6), and nobody.

What is used of a host, and by nobody in particular, is held by the host's *unattributed* consumer.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from resource_objects import fields
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.providers.columns import Columns
from resource_objects.providers.decision import largest, unit_removed
from resource_objects.providers.located import LocatedView, Spot, free_of, removed_by_provider
from resource_objects.resources import Amount
from resource_objects.resources.records import InventoryRecord

_NOTHING: Mapping[str, object] = fields.FrozenDict()
_NOBODY = "/unattributed"
#: The rules that what others hold makes fail.
_BY_OTHERS = frozenset(
    {Rule.CAPACITY, Rule.LIMIT, Rule.PHYSICAL, Rule.THREADS, Rule.EMULATOR, Rule.UNIT_TAKEN}
)


def unattributed(host: str) -> str:
    """Return the name of the consumer of a host that holds what nobody in particular uses.

    >>> unattributed("host0")
    'host0/unattributed'
    """
    return f"{host}{_NOBODY}"


def is_unattributed(consumer: str) -> bool:
    """Return whether a consumer is one of those, whatever its host is called by now.

    >>> is_unattributed(unattributed("host0")), is_unattributed("job-1")
    (True, False)
    """
    return consumer.endswith(_NOBODY)


def with_holders(
    refusal: CapacityException,
    located: LocatedView | Collection[LocatedView],
    columns: Columns,
    refused: Mapping[str, Amount] = _NOTHING,  # type: ignore[assignment]  # it is empty
    within: Mapping[str, Collection[int]] = _NOTHING,  # type: ignore[assignment]
) -> CapacityException:
    """Return a refusal of ``located`` whose reasons name the host, and who holds what is missing.

    Units that were removed from the host are named next to the consumers.

    Cost: one pass over the rows; it is for explaining, after the decision.

    :param located: what was asked, all of one tree
    :param columns: those that the view was made of
    :param refused: what was refused, by resource: units that are in the way are named then
    :param within: by resource, places of the spots that may be used; absent is all
    """
    views = [located] if isinstance(located, LocatedView) else list(located)
    _, removed = free_of(removed_by_provider(columns))
    reasons: dict[Reason, None] = {}
    lacking: dict[Reason, None] = {}
    for reason in refusal.reasons:
        view = _about(reason, views)
        amount, some = refused.get(view.resource.name), within.get(view.resource.name)
        units = {} if amount is None else view.blocking_units(amount, reason, some)
        held: dict[int, Mapping[str, Collection[str]]] = {}
        for spot, lacked in sorted(units.items()):
            free = removed.get(spot.number, ())
            held[spot.number] = without(lacked, free)
            for unit in sorted(frozenset[str]().union(*lacked.values()).intersection(free)):
                lacking[unit_removed(unit, spot.name)] = None
        reasons[_attributed(reason, view, columns, held)] = None
    return CapacityException.of([*reasons, *lacking])


def _about(reason: Reason, views: Sequence[LocatedView]) -> LocatedView:
    """Return which of some views a reason is about."""
    return next((view for view in views if view.is_about(reason)), views[0])


def _attributed(
    reason: Reason,
    located: LocatedView,
    columns: Columns,
    units: Blocked,
) -> Reason:
    """Return a reason with the host, and who holds what is missing.

    :param units: those that are needed, with what is in the way, by the number of their provider
    """
    reason = dataclasses.replace(reason, where=reason.where or located.host)
    if reason.resource is None or reason.holders:
        return reason
    if units:
        named = (row for row in zip(*columns.units, strict=True) if row[0] in units)
        counted = (row for row in zip(*columns.allocations, strict=True) if row[0] in units)
        has = who_has(units, named, counted, _factor(reason.resource, columns))
        return dataclasses.replace(reason, holders=largest(has.items()))
    if reason.rule not in _BY_OTHERS:
        return reason
    spot, given = located.spot_of(reason), columns.providers
    if spot is None:
        number = dict(zip(given.name, given.provider_id, strict=True))[located.host]
        reason = _of_all(reason, number, columns)
    else:
        number = spot.number
    if reason.rule is Rule.UNIT_TAKEN:
        rows = zip(*columns.units, strict=True)
        found: Iterable[tuple[str, int]] = [
            (who, 1) for at, unit, _, who in rows if (at, unit) == (number, reason.unit)
        ]
    else:
        held = holders_of(columns, number, str(reason.resource))
        if spot is not None:
            held.update(_elsewhere(located, spot, str(reason.resource), columns))
        found = held.items()
    return dataclasses.replace(reason, holders=largest(found))


def without(
    blocked: Mapping[str, frozenset[str]], removed: Collection[str]
) -> dict[str, frozenset[str]]:
    """Return the blocked units that are not blocked by a removed unit.

    :param removed: free units that were removed from the host
    """
    return {unit: taken for unit, taken in blocked.items() if taken.isdisjoint(removed)}


#: Of units that are needed and cannot be had, those that are in the way; by where they are kept.
Blocked: TypeAlias = Mapping[int, Mapping[str, Collection[str]]]


def who_has(
    blocked: Blocked,
    units: Iterable[tuple[int, str, str, str]],
    allocations: Iterable[tuple[int, str, str, int]],
    factor: Callable[[int, str], int],
) -> dict[str, int]:
    """Return how many of the units that are needed each consumer has.

    Of who has none itself, but others that are in the way at a place, how many of these it keeps
    from being had: who has two functions of a card has the one card. Who did not say which units it
    took has as many as it took, if of so many nobody says who has them.

    :param blocked: the units that are needed, with those in the way
    :param units: ``(place, unit, class, consumer)``: who has which
    :param allocations: ``(place, class, consumer, amount)``: who has how many
    :param factor: how many of those that are needed one of another class at a place is
    """
    owner: dict[tuple[int, str], str] = {}
    naming: set[tuple[int, str, str]] = set()
    for place, unit, name, who in units:
        owner[place, unit] = who
        naming.add((place, name, who))
    has: Counter[tuple[int, str]] = Counter()
    keeps: Counter[tuple[int, str]] = Counter()
    unsaid: Counter[int] = Counter()
    for place, needed in blocked.items():
        for unit, taken in needed.items():
            known = {owner.get((place, one)) for one in taken}
            unsaid[place] += None in known
            keeps.update((place, who) for who in known if who is not None)
            if unit in taken and (own := owner.get((place, unit))) is not None:
                has[place, own] += 1
    found: Counter[str] = Counter()
    for (place, who), count in keeps.items():
        found[who] += has[place, who] or count
    for place, name, who, amount in allocations:
        if unsaid[place] and (place, name, who) not in naming:
            found[who] += min(amount * factor(place, name), unsaid[place])
    return dict(+found)


def _factor(resource_class: str, columns: Columns) -> Callable[[int, str], int]:
    """Return how many of a class one of another class is, where it uses that up."""
    factors = {
        (number, kind): factor
        for number, kind, of, of_class, factor in zip(*columns.shares, strict=True)
        if (of, of_class) == (number, resource_class)
    }
    return lambda number, kind: factors.get((number, kind), 1)


def _of_all(reason: Reason, number: int, columns: Columns) -> Reason:
    """Return a reason about what a host as a whole has left with the figures of the host."""
    table = columns.inventories
    rows = zip(table.provider_id, table.resource_class, table.capacity, table.used, strict=True)
    for at, name, capacity, used in rows:
        if (at, name) == (number, reason.resource) and capacity - used == reason.free:
            return dataclasses.replace(reason, bound=capacity, used=used)
    return reason


def true_of_all(reasons: Iterable[Reason], columns: Columns) -> Iterator[Reason]:
    """Yield what others hold, and what is out of service, of a refusal within limits.

    Figures of an inventory of which a limit kept some away are not those that are kept: in their
    place each provider of the host is told that others left too little of.
    """
    for reason in reasons:
        is_true = sum(amount for _, amount in reason.holders) == reason.used
        if reason.rule is Rule.DISABLED or (reason.holders and is_true):
            yield reason
        elif reason.holders:
            yield from _of_each(reason, columns)


def _of_each(reason: Reason, columns: Columns) -> Iterator[Reason]:
    """Yield the same of each provider of a host that others have left too little of."""
    given, table = columns.providers, columns.inventories
    named = zip(given.provider_id, given.name, given.root_id, strict=True)
    names = {number: (name, root) for number, name, root in named}
    host = next((root for name, root in names.values() if name == reason.where), None)
    for number, kind, *figures in zip(*table, strict=True):
        one = InventoryRecord(kind, *figures)
        name, root = names[number]
        if kind != reason.resource or root != host or not one.used:
            continue
        if one.capacity - one.used < reason.requested:
            told = Reason(Rule.CAPACITY, reason.requested, one.capacity, one.used, kind, name)
            yield dataclasses.replace(
                told, holders=largest(holders_of(columns, number, kind).items())
            )


def holders_of(columns: Columns, number: int, name: str) -> Counter[str]:
    """Return who holds how much of an inventory, through shares too."""
    factors = {(number, name): 1}
    for at, kind, of, of_class, factor in zip(*columns.shares, strict=True):
        if (of, of_class) == (number, name):
            factors[at, kind] = factor
    held: Counter[str] = Counter()
    for at, kind, who, amount in zip(*columns.allocations, strict=True):
        if (at, kind) in factors:
            held[who] += amount * factors[at, kind]
    return held


def _elsewhere(located: LocatedView, spot: Spot, name: str, columns: Columns) -> Iterator[str]:
    """Yield who holds each unit of a part that was another part's when it was taken."""
    part = located.inventory.parts()[located.spots.index(spot)]
    units = part.inventory.units(name) or ()
    others = {one.number for one in located.spots} - {spot.number}
    for at, unit, _, who in zip(*columns.units, strict=True):
        if at in others and unit in units:
            yield who
