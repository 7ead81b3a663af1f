"""Who holds what: who stands in the way of an amount that lies over a tree (law 6), and nobody.

What is used of a host, and by nobody in particular, is held by the host's *unattributed* consumer.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects import fields
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.providers.columns import Columns
from resource_objects.providers.decision import largest, unit_disabled
from resource_objects.providers.located import LocatedView, Spot, disabled_units
from resource_objects.resources import Amount

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

    What nobody holds since it is out of service is told beside that.

    Cost: one pass over the rows; it is for explaining, after the decision.

    :param located: what was asked, all of one tree
    :param columns: those that the view was made of
    :param refused: what was refused, by resource: units that are in the way are named then
    :param within: by resource, places of the spots that may be used; absent is all
    """
    views = [located] if isinstance(located, LocatedView) else list(located)
    out = {
        number: {one.unit: one.disabled for one in some if one.is_free}
        for number, some in disabled_units(columns).items()
    }
    reasons: dict[Reason, None] = {}
    lacking: dict[Reason, None] = {}
    for reason in refusal.reasons:
        view = _about(reason, views)
        amount, some = refused.get(view.resource.name), within.get(view.resource.name)
        units = {} if amount is None else view.blocking_units(amount, reason, some)
        held: dict[int, frozenset[str]] = {}
        for spot, lacked in sorted(units.items()):
            disabled = out.get(spot.number, {})
            held[spot.number] = lacked.difference(disabled)
            for unit in sorted(lacked.intersection(disabled)):
                lacking[unit_disabled(unit, disabled[unit], spot.name)] = None
        reasons[_attributed(reason, view, columns, held)] = None
    return CapacityException.of([*reasons, *lacking])


def _about(reason: Reason, views: Sequence[LocatedView]) -> LocatedView:
    """Return which of some views a reason is about."""
    return next((view for view in views if view.is_about(reason)), views[0])


def _attributed(
    reason: Reason,
    located: LocatedView,
    columns: Columns,
    units: Mapping[int, Collection[str]],
) -> Reason:
    """Return a reason with the host, and who holds what is missing.

    :param units: those that somebody has and that are needed, by the number of their provider
    """
    reason = dataclasses.replace(reason, where=reason.where or located.host)
    if reason.resource is None or reason.holders:
        return reason
    if units:
        return dataclasses.replace(reason, holders=largest(who_has(units, columns).items()))
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
        held = _holders(columns, number, str(reason.resource))
        if spot is not None:
            held.update(_elsewhere(located, spot, str(reason.resource), columns))
        found = held.items()
    return dataclasses.replace(reason, holders=largest(found))


def who_has(units: Mapping[int, Collection[str]], columns: Columns) -> Counter[str]:
    """Return how many of some units each consumer has, by the number of their provider.

    Who did not say which it took has as many as it took, if some of these are nobody's by name.
    """
    found: Counter[str] = Counter()
    named: set[tuple[int, str]] = set()
    naming: set[tuple[int, str, str]] = set()
    for number, unit, kind, who in zip(*columns.units, strict=True):
        naming.add((number, kind, who))
        if unit in units.get(number, ()):
            named.add((number, unit))
            found[who] += 1
    open_ = {n for n, some in units.items() if any((n, unit) not in named for unit in some)}
    for number, kind, who, amount in zip(*columns.allocations, strict=True):
        if number in open_ and (number, kind, who) not in naming:
            found[who] += amount
    return found


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


def _elsewhere(located: LocatedView, spot: Spot, name: str, columns: Columns) -> Iterator[str]:
    """Yield who holds each unit of a part that was another part's when it was taken."""
    part = located.inventory.parts()[located.spots.index(spot)]
    units = part.inventory.units(name) or ()
    others = {one.number for one in located.spots} - {spot.number}
    for at, unit, _, who in zip(*columns.units, strict=True):
        if at in others and unit in units:
            yield who
