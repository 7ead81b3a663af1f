"""Nova's own scheduler filters and weighers in this process, on hosts that stand for ours.

What is called is what Nova's scheduler calls for each host: ``host_passes`` of NUMATopologyFilter
and PciPassthroughFilter, with the host's state and the request in its own objects, and
``get_weighed_objects`` for all hosts at once. Its host states are made beforehand (that costs it
more than a millisecond each), Placement is not asked, and the one allocation candidate of a host
has no mappings. So these figures are Nova's best case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks import nova_numa, nova_pci
from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory
from resource_objects.resources.pci import DeviceRequest, PCIInventory

NAME = nova_numa.NAME


def is_installed() -> bool:
    """Return whether there is a nova to be measured beside."""
    return nova_numa.is_installed()


def state(
    name: str,
    cells: NUMATopologyInventory | None = None,
    devices: PCIInventory | None = None,
    counts: dict[str, int] | None = None,
    operations: int = 0,
) -> Any:
    """Return the ``HostState`` of a host of which nothing is used.

    :param counts: what it has, by resource class
    :param operations: of input and output, that it says are going on
    """
    nova_numa.nova()
    from nova.scheduler import host_manager

    has = counts or {}
    found = host_manager.HostState(name, name, None)
    found.cpu_allocation_ratio = found.ram_allocation_ratio = found.disk_allocation_ratio = 1.0
    found.vcpus_total = has.get("VCPU", 0)
    found.total_usable_ram_mb = found.free_ram_mb = has.get("MEMORY_MB", 0)
    found.total_usable_disk_gb = has.get("DISK_GB", 0)
    found.free_disk_mb = 1024 * has.get("DISK_GB", 0)
    found.num_io_ops = operations
    found.allocation_candidates = [{"mappings": {}}]
    if cells is not None:
        found.numa_topology = nova_numa.host(cells)
    if devices is not None and cells is not None:
        found.pci_stats = nova_pci.pools(nova_pci.stats(devices, cells))
    return found


def request(topology: NUMATopologyAmount | None = None, asked: Iterable[DeviceRequest] = ()) -> Any:
    """Return a ``RequestSpec`` that asks for the same."""
    objects, _ = nova_numa.nova()
    return objects.RequestSpec(
        instance_uuid="00000000-0000-0000-0000-000000000001",
        flavor=objects.Flavor(name="flavor", vcpus=8, memory_mb=4096, extra_specs={}),
        image=objects.ImageMeta(properties=objects.ImageMetaProps()),
        numa_topology=None if topology is None else nova_numa.request(topology),
        pci_requests=objects.InstancePCIRequests(requests=nova_pci.requests(asked)),
        scheduler_hints={},
        instance_group=None,
    )


def filters(*, cells: bool, devices: bool) -> list[Any]:
    """Return the filters of cells and of devices, as far as they are wanted."""
    nova_numa.nova()
    from nova.scheduler.filters import numa_topology_filter, pci_passthrough_filter

    found = []
    if cells:
        found.append(numa_topology_filter.NUMATopologyFilter())
    if devices:
        found.append(pci_passthrough_filter.PciPassthroughFilter())
    return found


def passing(some: Iterable[Any], states: Iterable[Any], spec: Any) -> list[Any]:
    """Return the hosts that all of some filters pass, each asked as long as those before did."""
    found = list(states)
    for one in some:
        found = list(one.filter_all(found, spec))
    return found


def weigh(states: list[Any], spec: Any) -> list[Any]:
    """Return hosts by five weighers: CPUs, memory, disk, devices, operations."""
    nova_numa.nova()
    from nova.scheduler import weights
    from nova.scheduler.weights import cpu, disk, io_ops, pci, ram

    five = [
        cpu.CPUWeigher(),
        ram.RAMWeigher(),
        disk.DiskWeigher(),
        pci.PCIWeigher(),
        io_ops.IoOpsWeigher(),
    ]
    found: list[Any] = weights.HostWeightHandler().get_weighed_objects(five, states, spec)
    return found
