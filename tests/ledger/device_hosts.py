"""Hosts with devices for the tests of a ledger, and short ways to look at them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import resource_objects as ro
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.resources.pci import PCIAmount
from resource_objects.testing.conformance import suite

DEVICES, TOPOLOGY = suite.DEVICES, suite.TOPOLOGY
CARD, FUNCTION, card = suite.CARD, suite.FUNCTION, suite.card


def gpu(bus: int, node: int | None = None, **fields: Any) -> ro.Device:
    """Return a GPU, taken as ``PGPU``."""
    fields = {"resource_class": "PGPU", **fields}
    return ro.Device(f"0000:{bus:02x}:00.0", "10de", "2330", numa_node=node, **fields)


def functions(bus: int, *numbers: int) -> tuple[str, ...]:
    """Return the addresses of functions of a card; of three without a number."""
    return tuple(f"0000:{bus:02x}:02.{number}" for number in numbers or (0, 1, 2))


def host_of(devices: Iterable[ro.Device], name: str = "host0", cells: int = 0) -> ro.Provider:
    """Return a host with devices; with cells of four dedicated CPUs each if there are some."""
    own = "VCPU=8,DISK_GB=100" + (f",PCPU={4 * cells}" if cells else "")
    host = ro.Provider(name, own)
    if cells:
        made = [
            HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=64, socket=n // 2)
            for n in range(cells)
        ]
        host.add_parts(TOPOLOGY, NUMATopologyInventory(made))
    host.add_parts(DEVICES, ro.PCIInventory(devices))
    return host


def taken(ledger: ro.Ledger, consumer: str) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    """Return ``{(provider, class): (amount, units)}`` of a consumer."""
    return {
        (one.provider, one.resource_class): (int(one.amount), one.units)  # type: ignore[call-overload]
        for one in ledger.get_claim(consumer).allocations
    }


def told(ledger: ro.Ledger, consumer: str, host: str = "host0") -> PCIAmount:
    """Return which devices the ledger says that a consumer has."""
    found = ledger.assigned_amounts(consumer)[host][DEVICES]
    assert isinstance(found, PCIAmount)
    return found


def chosen(found: ro.Candidate) -> PCIAmount:
    """Return which devices a candidate takes."""
    amount = found.located[DEVICES]
    assert isinstance(amount, PCIAmount)
    return amount


def states(ledger: ro.Ledger, host: str = "host0") -> dict[str, str]:
    """Return the state of each device of a host that is not available."""
    inventory = ledger.inventories(host)[DEVICES]
    assert isinstance(inventory, ro.PCIInventory)
    return {a: state for a, state in inventory.states().items() if state != "available"}


def raw(provider: str, kind: str, *units: str, amount: int | None = None) -> ro.Allocation:
    """Return an allocation by unit, as who decides elsewhere makes it."""
    count = len(units) if amount is None else amount
    return ro.Allocation(
        provider=provider, resource_class=kind, amount=ro.IntegerAmount(count), units=units
    )
