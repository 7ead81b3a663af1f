"""Hosts that were in use before there was a ledger."""

from __future__ import annotations

from typing import Any

import resource_objects as ro
from resource_objects.host.compute_node import ComputeNode
from resource_objects.resources.numa import PagePool

USED = {
    "hypervisor_hostname": "host1",
    "vcpus": 8,
    "vcpus_used": 8,
    "cpu_allocation_ratio": 1.0,
    "memory_mb": 16384,
    "memory_mb_used": 12288,
    "local_gb": 100,
    "local_gb_used": 30,
}


def row(**columns: Any) -> ComputeNode:
    return ComputeNode.from_row({**USED, **columns})


def cells() -> ro.NUMATopologyInventory:
    pages = [PagePool(size_kib=4, total=1966080), PagePool(size_kib=2048, total=256)]
    return ro.NUMATopologyInventory(
        [
            ro.HostCell(
                n,
                shared=[8 * n, 8 * n + 1],
                dedicated=range(8 * n + 2, 8 * n + 8),
                memory_mb=8192,
                pages=pages if n == 0 else (),
            )
            for n in (0, 1)
        ]
    )


def gpus(count: int = 2) -> ro.PCIInventory:
    return ro.PCIInventory(
        [ro.Device(f"0000:3b:0{n}.0", "10de", "2330", resource_class="PGPU") for n in range(count)]
    )


def free(inventories: ro.Inventories) -> dict[str, int]:
    return {str(k): item.free for k, item in inventories.items() if hasattr(item, "free")}


def placed_row() -> ComputeNode:
    """Return the record of a host whose cells and devices are in use."""
    used_cells, used_gpus = cells(), gpus()
    used_cells.consume(ro.numa(cells=2, dedicated=4, memory_mb=1024))
    used_cells.consume(ro.numa(shared=1, memory_mb=64, page_size="2MB"))
    used_gpus.consume(ro.DEVICES.make_amount("PGPU"))
    node = row(vcpus=4, vcpus_used=5, memory_mb_used=2048)
    node.update_inventories({"NUMA_TOPOLOGY": used_cells, "DEVICES": used_gpus})
    return ComputeNode.from_row(node)
