"""Nova's own NUMA and PCI functions in this process, and its objects for our hosts and requests.

The measured functions are those that Nova's scheduler and compute agent call:
``numa_fit_instance_to_host``, ``NUMATopology.obj_from_db_obj`` and the ``support_requests`` of
``PciDeviceStats``. Nova's callers copy a request before a fit, because the fit writes into it; no
copy is measured here.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import warnings
from collections.abc import Iterable
from typing import Any

from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory
from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec, PCIInventory

NAME = "nova 34"
_PAGE_SIZES = {"": None, "small": -1, "large": -2, "any": -3}


def is_installed() -> bool:
    """Return True if Nova is installed."""
    return importlib.util.find_spec("nova") is not None


@functools.cache
def nova() -> tuple[Any, Any]:
    """Return Nova's objects and its ``virt.hardware``, loaded without configuration files."""
    os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries at their import
        import nova.conf
        from nova import objects

        objects.register_all()
        from nova.virt import hardware
    nova.conf.CONF([], project="nova", default_config_files=[])
    logging.disable(logging.CRITICAL)
    return objects, hardware


# --- NUMA -----------------------------------------------------------------------------------------


def host(inventory: NUMATopologyInventory) -> Any:
    """Return a ``NUMATopology`` of the same cells with the same usage."""
    objects, _ = nova()
    return objects.NUMATopology(
        cells=[
            objects.NUMACell(
                id=cell.id,
                cpuset=set(cell.shared),
                pcpuset=set(cell.dedicated),
                memory=cell.memory_mb,
                socket=cell.socket,
                cpu_usage=used.shared,
                memory_usage=used.memory_mb,
                pinned_cpus=set(used.pinned),
                siblings=[set(core) for core in cell.siblings],
                mempages=[
                    objects.NUMAPagesTopology(
                        size_kb=pool.size_kib, total=pool.total, used=0, reserved=pool.reserved
                    )
                    for pool in cell.pages
                ],
            )
            for cell, used in zip(inventory.cells, inventory.usage, strict=True)
        ]
    )


def request(amount: NUMATopologyAmount) -> Any:
    """Return an ``InstanceNUMATopology`` of the same request."""
    objects, _ = nova()
    size = amount.page_size
    return objects.InstanceNUMATopology(
        cells=[
            objects.InstanceNUMACell(
                id=number,
                cpuset=set(cell.shared),
                pcpuset=set(cell.dedicated),
                memory=cell.memory_mb,
                pagesize=_PAGE_SIZES[size] if size in _PAGE_SIZES else int(size),
                cpu_policy=amount.cpu_policy,
                cpu_thread_policy=amount.thread_policy,
            )
            for number, cell in enumerate(amount.cells)
        ],
        emulator_threads_policy=amount.emulator_policy,
    )


def limits() -> Any:
    """Return limits by ratios of 1; without limits Nova does not count used shared CPUs."""
    objects, _ = nova()
    return objects.NUMATopologyLimits(cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0)


# --- PCI ------------------------------------------------------------------------------------------


class _DeviceSpecs:
    """A stub of ``[pci] device_spec`` in which each device has its own tags."""

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


def device_stats(inventory: PCIInventory, cells: NUMATopologyInventory) -> Any:
    """Return the ``PciDeviceStats`` of a compute agent, with its devices."""
    objects, _ = nova()
    from nova.pci import stats as pci_stats

    stats = pci_stats.PciDeviceStats(host(cells), dev_filter=_DeviceSpecs(inventory.devices))
    devices = {device.address: _device(objects, device) for device in inventory.devices}
    for device in devices.values():
        if device.parent_addr in devices:
            device.parent_device = devices[device.parent_addr]
            device.parent_device.child_devices.append(device)
    for device in devices.values():
        stats.add_device(device)
    return stats


def pools(stats: Any) -> Any:
    """Return the ``PciDeviceStats`` that the scheduler builds from the pools of a host."""
    return type(stats)(stats.numa_topology, stats.to_device_pools_obj(), stats.dev_filter)


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


def device_requests(requests: Iterable[DeviceRequest]) -> list[Any]:
    """Return ``InstancePCIRequest`` objects of the same requests."""
    objects, _ = nova()
    return [
        objects.InstancePCIRequest(
            count=request.count,
            spec=[_spec(spec) for spec in request.specs],
            alias_name="alias",
            request_id=f"{number:08x}-0000-0000-0000-000000000000",
            numa_policy=request.affinity,
        )
        for number, request in enumerate(requests, 1)
    ]


def _spec(spec: DeviceSpec) -> dict[str, str]:
    values = {
        "vendor_id": spec.vendor_id,
        "product_id": spec.product_id,
        "dev_type": spec.types[0] if spec.types else None,
    }
    return {name: value for name, value in values.items() if value is not None}
