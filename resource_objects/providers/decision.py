"""The one decision a backend asks before it writes: does this change fit what is kept?

It is the decision of the kind's own inventory, so that filter, claim and simulation never differ
(law 5); this module only finds the words for who stands in the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord

#: A refusal names at most so many holders, the largest.
MOST_HOLDERS = 3


def refusals(record: InventoryRecord, amount: int, where: str) -> tuple[Reason, ...]:
    """Return why ``amount`` (negative: given back) does not fit one kept inventory.

    Cost: about 10 microseconds.

    >>> record = InventoryRecord("VCPU", 8, 0, 1, None, 1, 1_000_000, 8, used=6)
    >>> print(*refusals(record, 3, "host0"))
    host0: VCPU asked 3, free 2 of 8
    """
    kind = resource(record.resource_class)
    try:
        kind.inventory_from_records((record,)).fit(kind.make_amount(amount))
    except exceptions.CapacityException as refusal:
        return tuple(dataclasses.replace(reason, where=where) for reason in refusal.reasons)
    return ()


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
    """Return the largest holders, by amount and then name.

    >>> largest([("a", 1), ("b", 5), ("c", 1), ("d", 1)])
    (('b', 5), ('a', 1), ('c', 1))
    """
    ordered: Sequence[tuple[str, int]] = sorted(holders, key=lambda held: (-held[1], held[0]))
    return tuple(ordered[:MOST_HOLDERS])
