"""What is the same of all parts as they are kept: a cell, a device, what a plug-in has."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from resource_objects import ratio
from resource_objects.exceptions import InvalidInventory
from resource_objects.resources.abstract import Amount
from resource_objects.resources.records import AmountRecord, InventoryRecord, StoredPart


def part_record(
    name: str,
    total: int,
    *,
    reserved: int = 0,
    used: int = 0,
    max_unit: int | None = None,
    ratio_millionths: int = ratio.MILLION,
) -> InventoryRecord:
    """Return the figures of one class of a part, which is allocated one by one.

    >>> part_record("PCPU", 4, reserved=1).capacity
    3
    """
    capacity = (total - reserved) * ratio_millionths // ratio.MILLION
    return InventoryRecord(name, total, reserved, 1, max_unit, 1, ratio_millionths, capacity, used)


@contextlib.contextmanager
def reading(what: str, description: str | None) -> Iterator[Any]:
    """Read what a kind described of a part, JSON of which the block makes something.

    :raises InvalidInventory: if it is none, or the block can make nothing of it

    >>> with reading("a switch", '{"lanes": 4}') as said:
    ...     print(said["ports"])
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInventory: description of a switch: got '{"lanes": 4}', ...
    """
    try:
        yield json.loads(description or "")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InvalidInventory(
            f"description of {what}", description, f"one that describe() made ({error})"
        ) from error


def units_taken(parts: Iterable[StoredPart]) -> frozenset[str]:
    """Return the units that somebody has, of whichever part they were when they were taken."""
    return frozenset(unit for part in parts for units in part.units.values() for unit in units)


def used_otherwise(
    before: Sequence[StoredPart], parts: Sequence[StoredPart]
) -> tuple[list[int], frozenset[str]]:
    """Return the places of the parts of which something else is used, and units that somebody may
    have taken or given back.

    >>> one, two = StoredPart((), None), StoredPart((), None, {"LAMP": ("lamp4",)})
    >>> used_otherwise([one, one], [one, two])
    ([1], frozenset({'lamp4'}))
    """
    changed = [
        place
        for place, (was, now) in enumerate(zip(before, parts, strict=True))
        if was is not now and not (was.records is now.records and was.units is now.units)
    ]
    had = units_taken(before[place] for place in changed)
    return changed, had ^ units_taken(parts[place] for place in changed)


def allocations_of(
    assigned: Amount, taken: Iterable[tuple[int, Iterable[tuple[str, int, Iterable[str]]]]]
) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
    """Return what an assigned amount takes of each part, or gives back to it, as it is kept.

    :param taken: by the part's place its classes, of each the count and the units by name
    """
    sign = -1 if assigned.is_negative else 1
    return tuple(
        (place, tuple(AmountRecord(n, sign * count, tuple(us)) for n, count, us in counts if count))
        for place, counts in taken
    )
