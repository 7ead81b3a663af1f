"""Nova's own device functions in this process, on hosts and requests that stand for ours.

What is called is what Nova's scheduler and compute agent call: ``support_requests``,
``consume_requests`` and ``numa_fit_instance_to_host``. The statistics of a host are with its NUMA
topology, as Nova makes them: each question copies that too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks import nova_numa
from resource_objects.resources.numa import NUMATopologyInventory
from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec, PCIInventory

NAME = nova_numa.NAME


def is_installed() -> bool:
    """Return whether there is a nova to be measured beside."""
    return nova_numa.is_installed()


class _DeviceSpecs:
    """``[pci] device_spec``, which here gives every device its tags as it has them."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._tags = {device.address: dict(device.tags) for device in devices}

    def get_devspec(self, device: Any) -> Any:
        return _Tags(self._tags[device.address])

    def __deepcopy__(self, memo: object) -> _DeviceSpecs:
        return self


class _Tags:
    def __init__(self, tags: dict[str, str]) -> None:
        self._tags = tags

    def get_tags(self) -> dict[str, str]:
        return self._tags


def stats(inventory: PCIInventory, cells: NUMATopologyInventory) -> Any:
    """Return the ``PciDeviceStats`` of a host, which knows its devices."""
    objects, _ = nova_numa.nova()
    from nova.pci import stats as pci_stats

    found = pci_stats.PciDeviceStats(
        nova_numa.host(cells), dev_filter=_DeviceSpecs(inventory.devices)
    )
    known = {device.address: _device(objects, device) for device in inventory.devices}
    for device in known.values():
        if device.parent_addr in known:
            device.parent_device = known[device.parent_addr]
            device.parent_device.child_devices.append(device)
    for device in known.values():
        found.add_device(device)
    return found


def pools(known: Any) -> Any:
    """Return the ``PciDeviceStats`` that the scheduler makes of what a host sent it."""
    return type(known)(known.numa_topology, known.to_device_pools_obj(), known.dev_filter)


def _device(objects: Any, device: Device) -> Any:
    return objects.PciDevice(
        id=int(device.address.translate({58: None, 46: None}), 16),
        compute_node_id=1,
        address=device.address,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        dev_type=device.type,
        status="available",
        instance_uuid=None,
        request_id=None,
        numa_node=device.numa_node,
        parent_addr=device.parent,
        extra_info={},
    )


def requests(asked: Iterable[DeviceRequest]) -> list[Any]:
    """Return ``InstancePCIRequest`` objects that ask for the same."""
    objects, _ = nova_numa.nova()
    return [
        objects.InstancePCIRequest(
            count=request.count,
            spec=[_spec(spec) for spec in request.specs],
            alias_name="alias",
            request_id=f"{number:08x}-0000-0000-0000-000000000000",
            numa_policy=request.affinity,
        )
        for number, request in enumerate(asked, 1)
    ]


def _spec(spec: DeviceSpec) -> dict[str, str]:
    said = {
        "vendor_id": spec.vendor_id,
        "product_id": spec.product_id,
        "dev_type": spec.types[0] if spec.types else None,
    }
    return {name: value for name, value in said.items() if value is not None}
