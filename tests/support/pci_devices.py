"""Devices of tests: made of the counts of ``pci_stats``, and put into another state."""

from __future__ import annotations

from collections.abc import Iterable

from resource_objects.interop.nova import DevicePool
from resource_objects.resources.pci import Device, DeviceUse, PCIAmount, PCIInventory
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


def put_in_state(inventory: PCIInventory, devices: PCIAmount | str, state: str | None) -> None:
    """Put devices of an inventory into a state, such as ``allocated``; None: free."""
    addresses = {devices} if isinstance(devices, str) else set(devices.addresses)
    uses = {use.address: use for use in inventory.usage}
    for address in addresses:
        use = uses.pop(address, None)
        if state is not None:
            uses[address] = DeviceUse(address, state) if use is None else use.replace(state=state)
    inventory.update(usage=tuple(uses.values()))
