"""The one decision a backend asks before it writes: does this change fit what is kept?

It is the decision of the kind's own inventory, so that filter, claim and simulation never differ
(law 5); this module only finds the words for who stands in the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects import exceptions
from resource_objects.names import natural_order
from resource_objects.providers.disabled import REMOVED
from resource_objects.reasons import UNIT_RULES, Reason, Rule
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord

#: A refusal carries at most so many holders, the largest, so that no refusal is unbounded.
MOST_HOLDERS = 100


def refusals(
    record: InventoryRecord,
    amount: int,
    where: str,
    held: int = 0,
    *,
    aggregate: bool = False,
    limit: int | None = None,
    out: int = 0,
) -> tuple[Reason, ...]:
    """Return why ``amount`` (negative: given back) does not fit one kept inventory.

    ``held`` is what the same consumer holds there already: unit rules bind all that it will hold,
    or a consumer could go around max_unit in steps. Giving back is bound by none, and neither is
    an ``aggregate``, a consumer that stands for many. ``limit`` is the most that may be used of it
    in all, whatever its capacity; None is no such bound. ``out`` is how many of its units are out
    of service and nobody's: they are no part of the capacity. The tighter of both bounds is told.

    Cost: about 3 microseconds where a counted amount fits, else 15.

    >>> record = InventoryRecord("VCPU", 8, 0, 1, None, 1, 1_000_000, 8, used=6)
    >>> print(*refusals(record, 3, "host0"))
    host0: VCPU asked 3, free 2 of 8
    >>> print(*refusals(record, 2, "host0", limit=7))
    host0: VCPU asked 2, free 1 under the limit of 7
    >>> print(*refusals(record, 2, "host0", out=1))
    host0: VCPU asked 2, free 1 of 7
    """
    kind = resource(record.resource_class)
    requested, used = amount, record.used
    if amount > 0 and not aggregate:
        requested, used = held + amount, record.used - held
    rule = Rule.LIMIT
    if out and (limit is None or record.capacity - out <= limit):
        limit, rule = max(0, record.capacity - out), Rule.CAPACITY
    is_within = limit is None or used + requested <= limit
    if is_within and kind.surely_fits(record, requested, used):  # what all rules allow, fewer do
        return ()
    others = dataclasses.replace(record, used=used)
    if aggregate:
        others = dataclasses.replace(others, min_unit=1, max_unit=None, step_size=1)
    try:
        kind.inventory_from_records((others,)).fit(
            kind.make_amount(requested), None if limit is None else kind.make_amount(limit)
        )
    except exceptions.CapacityException as refusal:
        return tuple(_told(reason, rule, record, amount, where) for reason in refusal.reasons)
    return ()


def _told(reason: Reason, limit: Rule, record: InventoryRecord, amount: int, where: str) -> Reason:
    """Return a reason with the figures as the asker knows them.

    :param limit: which rule the limit was
    """
    if reason.rule in UNIT_RULES:
        return dataclasses.replace(reason, where=where, used=record.used)
    if reason.rule is Rule.LIMIT:
        reason = dataclasses.replace(reason, rule=limit)
    return dataclasses.replace(reason, where=where, used=record.used, requested=amount)


def absent(resource_class: str, amount: int, where: str) -> Reason:
    """Return the reason that a provider has no inventory of a class."""
    return Reason(Rule.NO_INVENTORY, amount, bound=0, used=0, resource=resource_class, where=where)


def not_held(resource_class: str, amount: int, held: int, where: str) -> Reason:
    """Return the reason that a consumer gives back more than it holds somewhere."""
    return Reason(
        Rule.USED_BELOW_ZERO, amount, bound=0, used=held, resource=resource_class, where=where
    )


def held_by(reason: Reason, holders: Iterable[tuple[str, int]]) -> Reason:
    """Return the reason with those who hold what is used, the largest first."""
    return dataclasses.replace(reason, holders=largest(holders))


def largest(holders: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return the largest holders, in the order in which people are told of them.

    Of more than :data:`MOST_HOLDERS` that hold as much, those are named that come first by name:
    a database can say who these are.

    >>> largest([("job-10", 1), ("b", 5), ("job-2", 1)])
    (('b', 5), ('job-2', 1), ('job-10', 1))
    """
    ordered: Sequence[tuple[str, int]] = sorted(holders, key=lambda held: (-held[1], held[0]))
    return tuple(sorted(ordered[:MOST_HOLDERS], key=by_amount))


def by_amount(held: tuple[str, Any]) -> tuple[Any, ...]:
    """Return a sort key of holders: the largest first, then by name in natural order."""
    return -held[1], natural_order(held[0])


def unit_removed(unit: str, where: str) -> Reason:
    """Return the reason why a unit that was removed from its host is not allocated."""
    return Reason(Rule.DISABLED, 1, 0, 0, where=where, unit=unit, disabled=REMOVED)
