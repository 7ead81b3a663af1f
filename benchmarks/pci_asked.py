"""Hosts and requests that the benchmarks of devices ask about."""

from __future__ import annotations

import resource_objects as ro
from benchmarks.numa_asked import host
from resource_objects.exceptions import CapacityException
from resource_objects.resources.numa import numa
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    PCIInventory,
)

CELLS = 8  #: host cells of a host with devices
PARTS = 7  #: functions split off each physical function
NIC, PART, GPU = ("8086", "1572"), ("8086", "154c"), ("10de", "2330")


def address(number: int, slot: int = 0) -> str:
    """Return the address of a device by its number."""
    return f"{number >> 8:04x}:{number & 0xFF:02x}:{slot:02x}.0"


def gpus(count: int, nowhere: int = 0) -> PCIInventory:
    """Return GPUs, one next to each host cell in turn; the last of them are next to none."""
    return PCIInventory(
        [
            Device(address(number), *GPU, numa_node=number % CELLS if number < count else None)
            for number in range(count + nowhere)
        ]
    )


def nics(count: int) -> PCIInventory:
    """Return so many functions: physical ones with their parts."""
    found: list[Device] = []
    for number in range(count // (PARTS + 1)):
        node = number % CELLS
        whole = address(number)
        found.append(Device(whole, *NIC, "type-PF", numa_node=node))
        found += (
            Device(address(number, slot), *PART, "type-VF", parent=whole, numa_node=node)
            for slot in range(1, PARTS + 1)
        )
    return PCIInventory(found)


def asked(*kinds: tuple[str, str], count: int = 1, affinity: str = "legacy") -> PCIAmount:
    """Return an amount with a request for so many devices of each kind."""
    return PCIAmount(
        [
            DeviceRequest(
                [
                    DeviceSpec(
                        vendor_id=vendor,
                        product_id=product,
                        types=["type-PF"] if (vendor, product) == NIC else [],
                    )
                ],
                count,
                affinity,
            )
            for vendor, product in kinds
        ]
    )


class Joint:
    """Guest cells on host cells, and GPUs that have to be next to them: a GPU at each host cell.

    As many GPUs as guest cells can be near enough. One more never can, though there is one.
    """

    def __init__(self, guests: int, hosts: int, *, holds: bool) -> None:
        self.cells = host(hosts)
        self.devices = gpus(hosts, nowhere=1)
        self.topology = numa(cells=guests, dedicated=4 * guests, memory_mb=1024 * guests)
        self.asked = asked(GPU, count=guests + (not holds), affinity="required")
        self.inventories = ro.Inventories({"NUMA_TOPOLOGY": self.cells, "DEVICES": self.devices})
        self.amounts = ro.Amounts({"NUMA_TOPOLOGY": self.topology, "DEVICES": self.asked})
        if self.fits() is not holds:
            raise AssertionError(f"{guests} guest cells on {hosts} host cells: not {holds}")

    def fits(self) -> bool:
        """Return whether they fit; a refusal is made with its reasons."""
        try:
            self.inventories.fit(self.amounts)
        except CapacityException:
            return False
        return True
