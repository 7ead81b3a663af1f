"""Hosts with cells and devices, and the kinds of resources that the suite of views is run on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import resource_objects as ro
from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop.nova.pci_devices import DevicePool, dump_pci_pools, load_pci_pools
from resource_objects.resources import Inventory
from resource_objects.resources.numa import (
    CellUsage,
    HostCell,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.resources.pci import Device, PCIAmount, PCIInventory, devices

NUMA, PCI = "NUMA_TOPOLOGY", "DEVICES"
WHOLE = "0000:81:00.0"
GPU = devices("PGPU")
PF = devices("8086:1572", types=["type-PF"])
VF = devices("8086:154c")


def cells(count: int = 2) -> NUMATopologyInventory:
    """Return cells of two shared CPUs and four dedicated ones, a quarter of them in huge pages."""
    return NUMATopologyInventory(
        [
            HostCell(
                n,
                shared=[8 * n, 8 * n + 1],
                dedicated=range(8 * n + 4, 8 * n + 8),
                siblings=[
                    *([8 * n], [8 * n + 1]),
                    *([8 * n + 4, 8 * n + 6], [8 * n + 5, 8 * n + 7]),
                ],
                memory_mb=8192,
                pages=[PagePool(size_kib=4, total=1572864), PagePool(size_kib=2048, total=1024)],
            )
            for n in range(count)
        ],
        cpu_ratio=2,
    )


def gpu(bus: str, node: int | None = None, **changes: object) -> Device:
    facts: dict[str, Any] = {"resource_class": "PGPU", "numa_node": node, **changes}
    return Device(f"0000:{bus}:00.0", "10de", "2330", **facts)


def card(node: int | None = None, parts: int = 2) -> list[Device]:
    """Return a physical function, and the functions split off it."""
    return [
        Device(WHOLE, "8086", "1572", "type-PF", numa_node=node),
        *(
            Device(f"0000:81:02.{n}", "8086", "154c", "type-VF", parent=WHOLE, numa_node=node)
            for n in range(parts)
        ),
    ]


def lab() -> PCIInventory:
    """Return two GPUs, one next to each of two cells, and a network card in three pieces."""
    return PCIInventory([gpu("3b", 0), gpu("5e", 1), *card()])


POOLS = (
    DevicePool("10de", "2330", 2, numa_node=0),
    DevicePool("8086", "154c", 3, "type-VF", address=WHOLE, numa_node=1),
)
ROW = {
    "hypervisor_hostname": "host1",
    "vcpus": 4,
    "vcpus_used": 0,
    "cpu_allocation_ratio": 2.0,
    "memory_mb": 16384,
    "memory_mb_used": 512,
    "ram_allocation_ratio": 1.0,
    "local_gb": 0,
    "local_gb_used": 0,
    "numa_topology": ComputeNode(numa_topology=cells()).numa_topology,
    "pci_stats": dump_pci_pools(POOLS),
}


def record(**changes: object) -> ComputeNode:
    """Return a node of a record: its cells are known, of its devices only pools."""
    return ComputeNode.from_row({**ROW, **changes}, reserved="MEMORY_MB=512")


def agent(inventory: PCIInventory | None = None, **changes: object) -> ComputeNode:
    """Return a node of a record after its devices were reported, as a compute agent does."""
    node = record(**changes)
    node.update_inventories({PCI: inventory or lab()})
    node.obj_reset_changes()
    return node


def sync(
    ledger: ro.Ledger, devices: PCIInventory | None = None, cells: Inventory | None = None
) -> None:
    """Store host0 with these devices and cells."""
    root = ro.Provider(
        "host0", "VCPU=4:allocation_ratio=2,PCPU=8,MEMORY_MB=16384:reserved=4608,CUSTOM_SEATS=3"
    )
    for name, inventory in ((NUMA, cells), (PCI, devices)):
        if inventory is not None:
            root.add_parts(name, inventory)
    ledger.sync(root)


def consume(node: ComputeNode, amounts: ro.Amounts, together: bool = True) -> ro.Amounts:
    """Consume amounts at once or resource by resource; return them assigned."""
    if together:
        return node.inventories.consume(amounts)
    return ro.Amounts({r: node.inventories[r].consume(amount) for r, amount in amounts.items()})


def pools_of(node: ComputeNode) -> dict[tuple[str, int | None], int]:
    """Return the counts of the column, by product and NUMA node."""
    pools = load_pci_pools(node.pci_stats)
    return {(pool.product_id, pool.numa_node): pool.count for pool in pools}


def live_of(node: ComputeNode) -> PCIInventory:
    """Return the live inventory of the devices."""
    live = node.inventories[PCI]
    assert isinstance(live, PCIInventory)
    return live


def states(node: ComputeNode) -> dict[str, str]:
    return dict(live_of(node).states())


def addresses(amounts: ro.Amounts) -> tuple[str, ...]:
    amount = amounts[PCI]
    assert isinstance(amount, PCIAmount)
    return amount.addresses


def with_counts(**request: Any) -> ro.Amounts:
    """Return a topology with the counts that it implies."""
    return ro.Request({NUMA: numa(**request)}).resources


@dataclasses.dataclass(frozen=True)
class Kind:
    """A resource of a compute node, and requests of it that fit host0 of the suite."""

    resource: str
    requests: Mapping[str, ro.Amounts]
    #: allocates something else after the first request
    further: ro.Amounts
    #: the column, its field of parts, and inventories, of a placed resource
    column: str = ""
    parts: str = ""
    inventory: Callable[[], Inventory] = ro.Inventories
    smaller: Callable[[], Inventory] = ro.Inventories
    foreign: Callable[[], ro.Amount] = ro.Amount
    #: inventories that ``update_inventories`` refuses, with a part of the message
    invalid: tuple[tuple[dict[str, Any], str], ...] = ()

    def __str__(self) -> str:
        return self.resource

    @property
    def first(self) -> ro.Amounts:
        return next(iter(self.requests.values()))

    @property
    def amount(self) -> ro.Amount:
        return self.first[self.resource]

    def conflict(self, taken: ro.Amounts) -> ro.Amounts:
        """Return amounts that cannot be allocated at the same time as ``taken``."""
        return ro.Amounts("VCPU=8") if self is COUNTS else ro.Amounts(taken)


#: a CPU allocated without its number
LOOSE = NUMATopologyInventory(cells().cells, usage=[CellUsage(0, loose=1)])
COUNTS = Kind(
    "VCPU",
    {"CPUs": ro.Amounts("VCPU=2"), "CPUs and memory": ro.Amounts("VCPU=3,MEMORY_MB=1024")},
    ro.Amounts("VCPU=3"),
)
CELLS = Kind(
    NUMA,
    {
        "dedicated": with_counts(dedicated=2, memory_mb=512),
        "shared": with_counts(shared=2, memory_mb=512),
        "odd": with_counts(dedicated=3, memory_mb=512),
        "isolated": with_counts(dedicated=2, thread_policy="isolate"),
        "emulator": with_counts(cells=2, dedicated=4, emulator_policy="isolate"),
        "pages": with_counts(cells=2, memory_mb=2048, page_size="2MB"),
        "any page": with_counts(shared=1, memory_mb=3, page_size="any"),
        "shared pages": with_counts(cells=2, shared=2, memory_mb=2048, page_size="2MB"),
    },
    with_counts(shared=1),
    "numa_topology",
    "cells",
    cells,
    lambda: cells(1),
    lambda: NUMATopologyInventory([HostCell(7, dedicated=[1], memory_mb=64)]).fit(
        numa(dedicated=1)
    ),
    (
        ({NUMA: ro.IntegerInventory(2)}, "expected NUMATopologyInventory"),
        (
            {NUMA: NUMATopologyInventory(cells().cells, usage=[CellUsage(0, loose=1)])},
            "by number only",
        ),
        ({"PCPU": ro.IntegerInventory(9)}, "PCPU total: got 9, expected 8"),
        ({"PCPU": ro.IntegerInventory(8, reserved=1)}, "PCPU reserved"),
        ({"PCPU": None}, "PCPU: got None"),
        ({"PCPU": cells()}, "PCPU"),
        ({NUMA: None, "PCPU": ro.IntegerInventory(8)}, "PCPU"),
        ({NUMA: cells(1), "VCPU": 8}, "VCPU"),
        ({NUMA: cells(1), "PGPU": None}, "PGPU"),
    ),
)
DEVICES = Kind(
    PCI,
    {
        name: ro.Amounts({PCI: amount, "VCPU": 1})
        for name, amount in {
            "one": GPU,
            "two": devices("PGPU", 2),
            "whole": PF,
            "pieces": devices("8086:154c", 2),
            "mixed": GPU + VF,
            "any of": devices(["PGPU", "8086:154c"], 3),
        }.items()
    },
    ro.Amounts({PCI: VF}),
    "pci_stats",
    "devices",
    lab,
    lambda: PCIInventory([gpu("3b", 0)]),
    lambda: PCIInventory([gpu("99")]).fit(GPU),
    (
        ({PCI: ro.IntegerInventory(2)}, "expected PCIInventory, or None"),
        ({PCI: POOLS}, "expected PCIInventory, or None"),
        ({PCI: PCIInventory(resource_class="PGPU")}, "DEVICES"),
        ({PCI: lab(), "VCPU": 8}, "VCPU"),
        ({PCI: lab(), "PGPU": None}, "PGPU"),
        ({PCI: lab(), "PCI_DEVICE": ro.IntegerInventory(2)}, "PCI_DEVICE"),
    ),
)
PLACED = (CELLS, DEVICES)
KINDS = (COUNTS, *PLACED)
