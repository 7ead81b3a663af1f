"""Pools: counts of devices that are alike. What a scheduler knows, which sees no devices.

Source: Nova's ``PciDevicePool`` and ``PciDeviceStats``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from resource_objects import base, fields
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import MAX_NODE, Device

if TYPE_CHECKING:
    from resource_objects.resources.pci.shelf import Devices


@base.register
class DevicePool(base.Value):
    """So many free devices that are alike: a typed value, derived from devices.

    What they have in common is as in :class:`Device`. ``address`` is where the functions of one
    device are, its own or that of the physical function; None if they are of any: then it cannot be
    said which of them exclude each other. ``facts`` are other words of whoever made the pool.

    >>> DevicePool("10de", "2330", 4, numa_node=0).count
    4
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "vendor_id": words.IdField(),
        "product_id": words.IdField(),
        "count": fields.IntegerField(0, words.MAX_DEVICES),
        "type": fields.ChoiceField(*words.TYPES, default=words.PCI),
        "resource_class": fields.ResourceClassField(),
        "class_code": words.ClassCodeField(default=""),
        "address": words.AddressField(nullable=True, default=None),
        "numa_node": fields.IntegerField(0, MAX_NODE, nullable=True, default=None),
        "tags": words.TextsField(default=words.NO_TEXTS),
        "traits": fields.TraitsField(default=frozenset()),
        "remote_managed": fields.BooleanField(default=False),
        "live_migratable": fields.BooleanField(nullable=True, default=None),
        "one_time_use": fields.BooleanField(default=False),
        "facts": words.TextsField(default=words.NO_TEXTS),
    }
    vendor_id: str
    product_id: str
    count: int
    type: str
    resource_class: str
    class_code: str
    address: str | None
    numa_node: int | None
    tags: Mapping[str, str]
    traits: frozenset[str]
    remote_managed: bool
    live_migratable: bool | None
    one_time_use: bool
    facts: Mapping[str, str]

    def __init__(
        self,
        vendor_id: str,
        product_id: str,
        count: int,
        type: str = words.PCI,
        *,
        resource_class: str | None = None,
        class_code: str = "",
        address: str | None = None,
        numa_node: int | None = None,
        tags: Mapping[str, str] = words.NO_TEXTS,
        traits: Iterable[str] = (),
        remote_managed: bool = False,
        live_migratable: bool | None = None,
        one_time_use: bool = False,
        facts: Mapping[str, str] = words.NO_TEXTS,
    ) -> None:
        if resource_class is None and isinstance(vendor_id, str) and isinstance(product_id, str):
            resource_class = words.custom_class(vendor_id, product_id)
        super().__init__(
            vendor_id=vendor_id,
            product_id=product_id,
            count=count,
            type=type,
            resource_class=resource_class,
            class_code=class_code,
            address=address,
            numa_node=numa_node,
            tags=tags,
            traits=traits,
            remote_managed=remote_managed,
            live_migratable=live_migratable,
            one_time_use=one_time_use,
            facts=facts,
        )


def pool_of(device: Device, address: str | None, count: int) -> DevicePool:
    """Return the pool of so many devices that are like one.

    Of its facts, a pool has the one that says which provider of a foreign ledger they are.
    """
    provider = device.facts.get(words.PROVIDER)
    return DevicePool(
        device.vendor_id,
        device.product_id,
        count,
        device.type,
        resource_class=device.resource_class,
        class_code=device.class_code,
        address=address,
        numa_node=device.numa_node,
        tags=device.tags,
        traits=device.traits,
        remote_managed=device.remote_managed,
        live_migratable=device.live_migratable,
        one_time_use=device.one_time_use,
        facts={} if provider is None else {words.PROVIDER: provider},
    )


def pools_of(shelf: Devices, *, apart: bool = False) -> tuple[DevicePool, ...]:
    """Return the free devices of a shelf as pools, those with the fewest tags first.

    :param apart: whether a device that is not split is a pool of its own, with its address
    """
    found: list[DevicePool] = []
    for group, free in zip(shelf.groups, shelf.free, strict=True):
        if not isinstance(group.kind, Device):
            continue
        if apart and group.owner is None:
            found += [pool_of(group.kind, address, 1) for address in free]
        elif free:
            found.append(pool_of(group.kind, group.owner, len(free)))
    return tuple(sorted(found, key=lambda pool: len(pool.tags)))
