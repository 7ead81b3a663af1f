"""Whether an amount fits a stored inventory, decided by the resource's own inventory class.

Search, claim and dry run share the decision. Reasons are completed with the consumers.
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

#: The maximum number of consumers that a reason names: the largest.
MOST_HOLDERS = 100


def refusals(
    record: InventoryRecord,
    amount: int,
    provider: str,
    allocated: int = 0,
    *,
    aggregate: bool = False,
    limit: int | None = None,
    free_removed: int = 0,
) -> tuple[Reason, ...]:
    """Return why an amount does not fit a stored inventory. Cost: 3 microseconds if it fits.

    :param amount: negative to release, which no rule refuses
    :param provider: the name of the provider
    :param allocated: the amount that the consumer uses already: unit rules bind the sum
    :param aggregate: whether the consumer stands for many: unit rules do not bind it
    :param limit: the maximum usage of the inventory, whatever its capacity
    :param free_removed: the number of units that were removed from the host and are free; they do
        not count as capacity

    >>> record = InventoryRecord("VCPU", 8, 0, 1, None, 1, 1_000_000, 8, used=6)
    >>> print(*refusals(record, 3, "host0"))
    host0: VCPU requested 3, free 2 of 8
    >>> print(*refusals(record, 2, "host0", limit=7))
    host0: VCPU requested 2, free 1 under the limit of 7
    >>> print(*refusals(record, 2, "host0", free_removed=1))
    host0: VCPU requested 2, free 1 of 7
    """
    resource_object = resource(record.resource_class)
    requested, used = amount, record.used
    if amount > 0 and not aggregate:
        requested, used = allocated + amount, record.used - allocated
    rule = Rule.LIMIT
    if free_removed and (limit is None or record.capacity - free_removed <= limit):
        limit, rule = max(0, record.capacity - free_removed), Rule.CAPACITY
    is_within = limit is None or used + requested <= limit
    if is_within and resource_object.surely_fits(record, requested, used):
        return ()
    remaining = dataclasses.replace(record, used=used)
    if aggregate:
        remaining = dataclasses.replace(remaining, min_unit=1, max_unit=None, step_size=1)
    try:
        resource_object.inventory_from_records((remaining,)).fit(
            resource_object.make_amount(requested),
            None if limit is None else resource_object.make_amount(limit),
        )
    except exceptions.CapacityException as refusal:
        return tuple(
            _with_figures(reason, rule, record, amount, provider) for reason in refusal.reasons
        )
    return ()


def _with_figures(
    reason: Reason, limit: Rule, record: InventoryRecord, amount: int, provider: str
) -> Reason:
    """Return a reason with the figures of the whole inventory and of the request.

    :param limit: the rule in place of :attr:`Rule.LIMIT`
    """
    if reason.rule in UNIT_RULES:
        return dataclasses.replace(reason, where=provider, used=record.used)
    rule = limit if reason.rule is Rule.LIMIT else reason.rule
    return dataclasses.replace(
        reason, rule=rule, where=provider, used=record.used, requested=amount
    )


def absent(resource_class: str, amount: int, provider: str) -> Reason:
    """Return the reason that a provider has no inventory of a class."""
    return Reason(Rule.NO_INVENTORY, amount, 0, 0, resource_class, provider)


def not_held(resource_class: str, amount: int, allocated: int, provider: str) -> Reason:
    """Return the reason that a consumer releases more than is allocated to it."""
    return Reason(Rule.USED_BELOW_ZERO, amount, 0, allocated, resource_class, provider)


def unit_removed(unit: str, provider: str) -> Reason:
    """Return the reason why a unit that was removed from its host is not allocated."""
    return Reason(Rule.DISABLED, 1, 0, 0, where=provider, unit=unit, disabled=REMOVED)


def held_by(reason: Reason, holders: Iterable[tuple[str, int]]) -> Reason:
    """Return a reason with the consumers of what is used, the largest first."""
    return dataclasses.replace(reason, holders=largest(holders))


def largest(holders: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return the :data:`MOST_HOLDERS` largest consumers, in the order of :func:`by_amount`.

    Among equal ones the first by name are returned, as a database can select these.

    >>> largest([("job-10", 1), ("b", 5), ("job-2", 1)])
    (('b', 5), ('job-2', 1), ('job-10', 1))
    """
    ordered: Sequence[tuple[str, int]] = sorted(holders, key=lambda holder: (-holder[1], holder[0]))
    return tuple(sorted(ordered[:MOST_HOLDERS], key=by_amount))


def by_amount(holder: tuple[str, Any]) -> tuple[Any, ...]:
    """Return a sort key of consumers: the largest first, then by name in natural order."""
    return -holder[1], natural_order(holder[0])
