"""Hosts and drivers for the tests of claims and moves, and short ways to look at them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import resource_objects as ro
from resource_objects.host.tracker import Driver, ResourceTracker
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool
from resource_objects.resources.pci import PCIInventory

#: Of everything some: counts, a pinned topology, and a device near it.
WHOLE = "DISK_GB=10,NUMA_TOPOLOGY=1:dedicated=2:memory=512,DEVICES=PGPU"


class Lab(Driver):
    """An agent that says no more than which hosts it has."""

    def __init__(
        self,
        *hosts: str,
        overhead: Any = "",
        accept: Callable[[str, str, Mapping[str, ro.Amounts]], Any] | None = None,
    ) -> None:
        self._hosts, self._overhead, self._accept = hosts, overhead, accept

    def hosts(self) -> tuple[str, ...]:
        return self._hosts

    def get_available_resource(self, host: str) -> str:
        raise AssertionError("claims do not ask what a host has")

    def overhead(self, request: ro.Amounts) -> Any:
        return self._overhead(request) if callable(self._overhead) else self._overhead

    def admit(self, host: str, consumer: str, held: Mapping[str, ro.Amounts]) -> Any:
        return None if self._accept is None else self._accept(host, consumer, held)


def tracker(ledger: ro.Ledger, **how: Any) -> ResourceTracker:
    """Return the tracker of an agent that has both hosts."""
    return ResourceTracker(ledger, Lab("box-0", "box-1", **how))


def box(name: str, *, pages: int = 512) -> ro.Provider:
    """Return a host: 4 VCPU, 2 cells of 4 dedicated CPUs and 2 GiB each, 2 GPUs, a card with VFs.

    :param pages: of 2 MiB, that each cell has of its memory
    """
    host = ro.Provider(name, "VCPU=4,DISK_GB=100,PCPU=8,MEMORY_MB=4096")
    cells = [
        HostCell(
            number,
            dedicated=range(4 * number, 4 * number + 4),
            memory_mb=2048,
            pages=[
                PagePool(size_kib=4, total=(2048 - 2 * pages) * 256),
                PagePool(size_kib=2048, total=pages),
            ],
        )
        for number in (0, 1)
    ]
    host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells))
    gpus = [
        ro.Device(f"0000:{n + 1}0:00.0", "10de", "2330", resource_class="PGPU", numa_node=n)
        for n in (0, 1)
    ]
    host.add_parts("DEVICES", PCIInventory(gpus))
    host.add(f"{name}/fpga", "CUSTOM_FPGA=2", traits=["CUSTOM_FAST"])
    return host


def declare(ledger: ro.Ledger) -> None:
    """Let a ledger know two hosts."""
    ledger.sync(box("box-0"), box("box-1"))


def used(ledger: ro.Ledger) -> dict[tuple[str, str], int]:
    """Return all that is used, and of what; nothing of what is not."""
    return {(one.provider, one.resource_class): one.used for one in ledger.usage() if one.used}


def holdings(ledger: ro.Ledger) -> dict[str, str]:
    """Return who holds what, with the units, as text."""
    return {
        one.name: ", ".join(f"{held}{list(held.units) or ''}" for held in one.claim.allocations)
        for one in ledger.consumers()
        if one.claim is not None
    }
