"""Devices for the counts of Nova's ``pci_stats``."""

from __future__ import annotations

from collections.abc import Iterable

from resource_objects.interop.nova import DevicePool
from resource_objects.resources.pci import Device
from resource_objects.resources.pci.device import PARTS


def counted_devices(pools: Iterable[DevicePool]) -> list[Device]:
    """Return one device for each that the pools count; functions of a pool share a parent."""
    devices: list[Device] = []
    for number, pool in enumerate(pools):
        names = set(pool.fields) & set(Device.fields) - {"address"}
        values = {name: getattr(pool, name) for name in names}
        if pool.type in PARTS:
            values["parent"] = pool.address or f"0100:{number:02x}:00.0"
        devices += [
            Device(
                address=f"{number + 1:04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}",
                **values,
            )
            for place in range(pool.count)
        ]
    return devices
