"""Stored forms of inventories and amounts: flat records that every backend understands.

A kind turns itself into records and back by pure functions (``Inventory.to_records`` and
``describe``, ``Resource.inventory_from_storage``). The packages above call the kind and name none,
so a plug-in's kind is stored like ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects import ratio
from resource_objects._dataclass import fast_init
from resource_objects.exceptions import InvalidInventory


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class InventoryRecord:
    """The figures of one resource class at one provider, as integers.

    ``ratio_millionths`` is the allocation ratio times 1,000,000. ``capacity`` is
    floor((total - reserved) * ratio); it is stored because databases guard it.
    """

    resource_class: str
    total: int
    reserved: int
    min_unit: int
    max_unit: int | None
    step_size: int
    ratio_millionths: int
    capacity: int
    used: int = 0

    def definition(self) -> InventoryRecord:
        """Return the record without usage: the declaration of a provider."""
        return self.using(0)

    def using(self, used: int) -> InventoryRecord:
        """Return the record with another usage (``dataclasses.replace`` takes 4 times as long)."""
        return InventoryRecord(
            self.resource_class,
            self.total,
            self.reserved,
            self.min_unit,
            self.max_unit,
            self.step_size,
            self.ratio_millionths,
            self.capacity,
            used,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class KindRecord:
    """The description of an inventory that is stored as several records.

    ``classes`` are the resource classes of its records, ``body`` its description (JSON),
    without figures and units. An inventory that is one record of its own class has no description.
    """

    resource_class: str
    classes: tuple[str, ...]
    body: str


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class AmountRecord:
    """A count of one resource class, with the names of the allocated units, if they have any."""

    resource_class: str
    amount: int
    units: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryPart:
    """The part of an inventory that one provider stores.

    ``name`` is appended to the name of the provider above, ``inventory`` is the part, of the same
    resource. Each unit of ``host_classes`` is a unit of the provider above as well. ``traits`` are
    those of the provider; ``uses`` has ``(class, factor, other class)`` of units that use up others
    of the same provider.
    """

    name: str
    inventory: Any
    host_classes: tuple[str, ...] = ()
    traits: frozenset[str] = frozenset()
    uses: tuple[tuple[str, int, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StoredPart:
    """An :class:`InventoryPart` as it is stored: records with usage, description, units.

    ======================  ========================================================================
    ``units``               allocated units by class
    ``traits``              traits of the provider, None if unknown
    ``left_by_shares``      the units of a class that its shares leave; less than 1: all used up
    ``unavailable``         units that must not be allocated, though they are free; ``records``
                            count them as used
    ``without_limit``       the part without a limit, of a kind whose units have an identity.
                            ``records`` count the units that the limit excludes as used, but a
                            limit bounds the number of units and does not name them
    ======================  ========================================================================
    """

    records: tuple[InventoryRecord, ...]
    description: str | None
    units: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    traits: frozenset[str] | None = None
    left_by_shares: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unavailable: frozenset[str] = frozenset()
    without_limit: StoredPart | None = None


# --- functions that kinds share -------------------------------------------------------------------


def part_record(
    name: str,
    total: int,
    *,
    reserved: int = 0,
    used: int = 0,
    max_unit: int | None = None,
    ratio_millionths: int = ratio.MILLION,
) -> InventoryRecord:
    """Return the record of one class of a part, with a min_unit and step_size of 1.

    >>> part_record("PCPU", 4, reserved=1).capacity
    3
    """
    capacity = (total - reserved) * ratio_millionths // ratio.MILLION
    return InventoryRecord(name, total, reserved, 1, max_unit, 1, ratio_millionths, capacity, used)


@contextlib.contextmanager
def parsed_description(label: str, description: str | None) -> Iterator[Any]:
    """Yield the parsed JSON description of a part to the block that reads it.

    :raises InvalidInventory: if it is no JSON, or the block cannot read it

    >>> with parsed_description("a switch", '{"lanes": 4}') as facts:
    ...     print(facts["ports"])
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInventory: description of a switch: got '{"lanes": 4}', ...
    """
    try:
        yield json.loads(description or "")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InvalidInventory(
            f"description of {label}", description, f"one that describe() made ({error})"
        ) from error


def allocated_units(parts: Iterable[StoredPart]) -> frozenset[str]:
    """Return the allocated units of some parts.

    A unit may be listed at the part that it belonged to when it was allocated.
    """
    return frozenset(unit for part in parts for units in part.units.values() for unit in units)


def changed_parts(
    before: Sequence[StoredPart], parts: Sequence[StoredPart]
) -> tuple[list[int], frozenset[str]]:
    """Return the indices of parts whose usage differs, and the units allocated or released there.

    >>> off, on = StoredPart((), None), StoredPart((), None, {"LAMP": ("lamp4",)})
    >>> changed_parts([off, off], [off, on])
    ([1], frozenset({'lamp4'}))
    """
    changed = [
        index
        for index, (old, new) in enumerate(zip(before, parts, strict=True))
        if old is not new and not (old.records is new.records and old.units is new.units)
    ]
    units_before = allocated_units(before[index] for index in changed)
    return changed, units_before ^ allocated_units(parts[index] for index in changed)


def allocation_records(
    parts: Iterable[tuple[int, Iterable[tuple[str, int, Iterable[str]]]]], *, is_negative: bool
) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
    """Return the records of an assigned amount with the index of their part.

    :param parts: the index of each part with its ``(class, count, units)``
    :param is_negative: whether the amount releases: the counts of the result are negative
    """
    sign = -1 if is_negative else 1
    return tuple(
        (
            index,
            tuple(
                AmountRecord(name, sign * count, tuple(units))
                for name, count, units in counts
                if count
            ),
        )
        for index, counts in parts
    )
