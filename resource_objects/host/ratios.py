"""Which allocation ratio counts on a host: the one given, the one stored, or the initial one.

Source: Nova's *initial-allocation-ratios* specification (Stein). A ratio given explicitly wins;
else the one the record states; else the initial ratio of the resource, 4.0 for VCPU and 1.0 for
MEMORY_MB and DISK_GB (Nova since 27.0.0). ``None`` and ``0.0`` in a record state nothing: that is
how Nova stored "not set" in two of its ages. Unlike Nova, finding the ratio never writes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from resource_objects import exceptions
from resource_objects.host._compute_columns import KINDS
from resource_objects.ratio import ratio_from_float_column, to_ratio
from resource_objects.resources import resource, text

__all__ = ["INITIAL_RATIOS", "read_ratios", "stated_ratio"]

#: ``{resource class: ratio}`` where neither a parameter nor the record states one.
INITIAL_RATIOS: Mapping[str, Decimal] = {name: kind.initial_ratio for name, kind in KINDS.items()}


def stated_ratio(column: str, value: float | Decimal | None) -> Decimal | None:
    """Return the ratio that a column of a record states, None if it states none.

    A 32-bit float that was widened to 64 bits is taken by its 32-bit form.

    :raises InvalidRatio: naming the column, for a ratio that is out of range or too precise

    >>> stated_ratio("ram_allocation_ratio", 1.149999976158142)
    Decimal('1.15')
    >>> stated_ratio("ram_allocation_ratio", 0.0) is None
    True
    """
    if value is None or value == 0:
        return None
    try:
        return ratio_from_float_column(value)
    except exceptions.InvalidRatio as error:
        raise exceptions.InvalidRatio(column, value, f"{error.expected}, or 0 for none") from error


def read_ratios(given: Any, what: str = "ratios") -> dict[str, Decimal]:
    """Return the ratios of a parameter: text, or a mapping of resources or their names.

    None, as a whole or for one resource, states nothing.

    :raises InvalidRatio: for a ratio that is none
    :raises InvalidText: for text that does not parse
    :raises InvalidInventory: for a resource that a compute node does not count
    :raises UnknownResourceClass: for a resource that nobody knows

    >>> read_ratios("VCPU=16,MEMORY_MB=1.5")
    {'VCPU': Decimal('16'), 'MEMORY_MB': Decimal('1.5')}
    """
    if given is None:
        return {}
    pairs = given if isinstance(given, Mapping) else text.pairs(given, what)
    found: dict[str, Decimal] = {}
    for key, value in pairs.items():
        name = counted_class(key, what)
        if name in found:
            raise exceptions.DuplicateKey(what, name, "each resource once")
        if value is None:
            continue
        try:
            found[name] = to_ratio(value)
        except exceptions.InvalidRatio as error:
            raise exceptions.InvalidRatio(f"{what}: {name}", value, error.expected) from error
    return found


def counted_class(key: Any, what: str) -> str:
    """Return the name of a resource that a compute node counts.

    :raises UnknownResourceClass: if nobody knows it
    :raises InvalidInventory: if a compute node has no columns for it
    """
    name = resource(key).name
    if name not in KINDS:
        raise exceptions.InvalidInventory(
            what, name, f"a resource that a compute node has columns for: {', '.join(KINDS)}"
        )
    return name
