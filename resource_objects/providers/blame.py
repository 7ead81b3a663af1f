"""Who stands in the way of an amount that lies over a tree: the holders in its reasons (law 6)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.providers.columns import Columns
from resource_objects.providers.decision import largest
from resource_objects.providers.located import Located, Spot

#: The rules that what others hold makes fail.
_BY_OTHERS = frozenset(
    {Rule.CAPACITY, Rule.LIMIT, Rule.PHYSICAL, Rule.THREADS, Rule.EMULATOR, Rule.UNIT_TAKEN}
)


def with_holders(
    refusal: CapacityException, located: Located, columns: Columns
) -> CapacityException:
    """Return a refusal of ``located`` whose reasons name the host, and who holds what is missing.

    Cost: one pass over the rows; it is for explaining, after the decision.

    :param columns: those that the view was made of
    """
    told = (_told(reason, located, columns) for reason in refusal.reasons)
    return CapacityException.of(told)


def _told(reason: Reason, located: Located, columns: Columns) -> Reason:
    reason = dataclasses.replace(reason, where=reason.where or located.host)
    if reason.rule not in _BY_OTHERS or reason.resource is None or reason.holders:
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
        held = _holders(columns, number, str(reason.resource))
        if spot is not None:
            held.update(_elsewhere(located, spot, str(reason.resource), columns))
        found = held.items()
    return dataclasses.replace(reason, holders=largest(found))


def _of_all(reason: Reason, number: int, columns: Columns) -> Reason:
    """Return a reason about what a host as a whole has left with the figures of the host."""
    table = columns.inventories
    rows = zip(table.provider_id, table.resource_class, table.capacity, table.used, strict=True)
    for at, name, capacity, used in rows:
        if (at, name) == (number, reason.resource) and capacity - used == reason.free:
            return dataclasses.replace(reason, bound=capacity, used=used)
    return reason


def _holders(columns: Columns, number: int, name: str) -> Counter[str]:
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


def _elsewhere(located: Located, spot: Spot, name: str, columns: Columns) -> Iterator[str]:
    """Yield who holds each unit of a part that was another part's when it was taken."""
    part = located.inventory.parts()[located.spots.index(spot)]
    units = part.inventory.units(name) or ()
    others = {one.number for one in located.spots} - {spot.number}
    for at, unit, _, who in zip(*columns.units, strict=True):
        if at in others and unit in units:
            yield who
