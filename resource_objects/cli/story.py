"""How much the tour takes, and of what: twice that fits, three times does not. Pure."""

from __future__ import annotations

import dataclasses

from resource_objects.providers import Provider
from resource_objects.providers.usage import Usage
from resource_objects.resources.records import InventoryRecord


def half(host: Provider) -> dict[str, int] | None:
    """Return ``{class: amount}``: about half of what is free of each class of a host itself.

    Twice that fits and three times does not; None if there is no such amount. A class that a
    provider below the host has too is left out.

    >>> half(Provider("box", "VCPU=3,MEMORY_MB=1001:used=1"))
    {'VCPU': 1, 'MEMORY_MB': 500}
    >>> half(Provider("box", "VCPU=1")) is None
    True
    """
    below = {kind for child in host.children for each in child.walk() for kind in each.inventories}
    parts = {
        record: _part(record)
        for kind, inventory in host.inventories.items()
        if kind not in below
        for record in inventory.to_records()
    }
    taken = {record.resource_class: part for record, part in parts.items() if part}
    third_fits = all(_free(record) >= 3 * part for record, part in parts.items() if part)
    return None if third_fits else taken


def _free(record: InventoryRecord) -> int:
    return record.capacity - record.used


def _part(record: InventoryRecord) -> int:
    """Return the most that two consumers may take each, 0 if that is less than one may take."""
    most = _free(record) // 2
    if record.max_unit is not None:
        most = min(most, record.max_unit)
    part = most // record.step_size * record.step_size
    return part if part >= record.min_unit else 0


def own(usage: Usage, host: str) -> Usage:
    """Return the usage of a host itself, without what is below it."""
    found = next(each for root in usage.providers for each in root.walk() if each.name == host)
    return dataclasses.replace(
        usage,
        providers=(Provider(host, found.inventories),),
        uses=tuple(use for use in usage if use.provider == host),
    )
