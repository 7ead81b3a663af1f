"""Hosts and requests that are said to nova and to us alike, and what each answers.

A :class:`Host` cell and a :class:`Guest` cell are plain figures. What is used of a cell is said to
nova as its own accounting leaves it: ``memory_usage`` counts all memory, each page pool its pages,
the smallest those that hold ordinary memory.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from typing import Any

from resource_objects.exceptions import CapacityException
from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
)

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import exception, objects
    from nova.virt import hardware

    objects.register_all()

CONF = nova.conf.CONF

_SIZES = {"": None, "small": -1, "large": -2, "any": -3}


@dataclasses.dataclass(frozen=True)
class Pool:
    """Pages of one size; what is used of the smallest is what holds ordinary memory."""

    size_kib: int
    total: int
    reserved: int = 0
    used: int = 0

    @property
    def mb(self) -> int:
        """MiB of all of them."""
        return self.total * self.size_kib // 1024

    @property
    def used_mb(self) -> int:
        """MiB of those that are used."""
        return self.used * self.size_kib // 1024


@dataclasses.dataclass(frozen=True)
class Host:
    """A host cell and what is used of it. Without pools, ``memory_mb`` is all there is."""

    id: int = 0
    shared: frozenset[int] = frozenset()
    dedicated: frozenset[int] = frozenset()
    siblings: tuple[frozenset[int], ...] = ()
    memory_mb: int = 0
    pools: tuple[Pool, ...] = ()
    shared_used: int = 0
    pinned: frozenset[int] = frozenset()
    used_mb: int = 0  #: of ordinary memory
    physnets: frozenset[str] = frozenset()

    @property
    def threads(self) -> int:
        """Threads of the core with the most."""
        return max(map(len, self.siblings), default=1)

    @property
    def all_used_mb(self) -> int:
        """MiB used in pages of any size."""
        return self.used_mb + sum(pool.used_mb for pool in self.pools[1:])

    def of_nova(self) -> Any:
        """Return nova's object."""
        small, huge = self.pools[:1], self.pools[1:]
        counted = [*(dataclasses.replace(p, used=self.used_mb * 1024 // p.size_kib) for p in small)]
        cell = objects.NUMACell(
            id=self.id,
            cpuset=set(self.shared),
            pcpuset=set(self.dedicated),
            memory=self.memory_mb,
            cpu_usage=self.shared_used,
            memory_usage=self.all_used_mb,
            pinned_cpus=set(self.pinned),
            siblings=[set(core) for core in self.siblings],
            mempages=[
                objects.NUMAPagesTopology(
                    size_kb=pool.size_kib, total=pool.total, used=pool.used, reserved=pool.reserved
                )
                for pool in (*counted, *huge)
            ],
            socket=0,
        )
        if self.physnets:
            cell.network_metadata = objects.NetworkMetadata(
                physnets=set(self.physnets), tunneled=False
            )
        return cell

    def of_ours(self) -> tuple[HostCell, CellUsage]:
        """Return our objects."""
        pools = [
            PagePool(size_kib=p.size_kib, total=p.total, reserved=p.reserved) for p in self.pools
        ]
        cell = HostCell(
            self.id,
            shared=self.shared,
            dedicated=self.dedicated,
            siblings=self.siblings,
            memory_mb=self.memory_mb,
            pages=pools,
            physnets=self.physnets,
        )
        usage = CellUsage(
            self.id,
            shared=self.shared_used,
            pinned=self.pinned,
            memory_mb=self.used_mb,
            pages={pool.size_kib: pool.used for pool in self.pools[1:]},
        )
        return cell, usage


@dataclasses.dataclass(frozen=True)
class Guest:
    """A guest cell by counts."""

    shared: int = 0
    dedicated: int = 0
    memory_mb: int = 0


@dataclasses.dataclass(frozen=True)
class Case:
    """Host cells, guest cells, policies, and the ratios of the host in decimals."""

    hosts: tuple[Host, ...]
    guests: tuple[Guest, ...]
    page_size: str = ""
    thread_policy: str | None = None
    has_emulator: bool = False
    cpu_ratio: str = "1"
    memory_ratio: str = "1"
    physnets: frozenset[str] = frozenset()

    @property
    def policy(self) -> str:
        """CPU policy of all guest cells."""
        dedicated = any(guest.dedicated for guest in self.guests)
        shared = any(guest.shared for guest in self.guests)
        return {(True, False): "dedicated", (True, True): "mixed"}.get(
            (dedicated, shared), "shared"
        )

    # --- nova ---

    def nova_host(self) -> Any:
        """Return nova's host."""
        return objects.NUMATopology(cells=[host.of_nova() for host in self.hosts])

    def nova_request(self) -> Any:
        """Return nova's request, new each time: nova writes into it."""
        size, first = self.page_size, 0
        cells = []
        for number, guest in enumerate(self.guests):
            middle = first + guest.shared
            end = middle + guest.dedicated
            cells.append(
                objects.InstanceNUMACell(
                    id=number,
                    cpuset=set(range(first, middle)),
                    pcpuset=set(range(middle, end)),
                    memory=guest.memory_mb,
                    pagesize=_SIZES[size] if size in _SIZES else int(size),
                    cpu_policy=self.policy,
                    cpu_thread_policy=self.thread_policy,
                )
            )
            first = end
        return objects.InstanceNUMATopology(
            cells=cells, emulator_threads_policy="isolate" if self.has_emulator else None
        )

    def nova_limits(self) -> Any:
        """Return nova's limits, which are the ratios and the networks."""
        limits = objects.NUMATopologyLimits(
            cpu_allocation_ratio=float(self.cpu_ratio),
            ram_allocation_ratio=float(self.memory_ratio),
        )
        if self.physnets:
            limits.network_metadata = objects.NetworkMetadata(
                physnets=set(self.physnets), tunneled=False
            )
        return limits

    def nova_pair(self, guest: int = 0, host: int = 0) -> Any:
        """Return nova's cell for a guest cell on a host cell, None for no; or what it raises."""
        asked = self.nova_request().cells[guest]
        reserved = int(self.has_emulator and guest == 0)
        try:
            return hardware._numa_fit_instance_cell(
                self.hosts[host].of_nova(), asked, self.nova_limits(), reserved
            )
        except exception.MemoryPageSizeNotSupported:
            return None  # as its caller takes it
        except ValueError as error:
            return error

    def nova_search(self) -> Any:
        """Return nova's topology, None for no."""
        return hardware.numa_fit_instance_to_host(
            self.nova_host(), self.nova_request(), {}, self.nova_limits()
        )

    # --- we ---

    def inventory(self) -> NUMATopologyInventory:
        """Return our host."""
        pairs = [host.of_ours() for host in self.hosts]
        return NUMATopologyInventory(
            [cell for cell, _ in pairs],
            usage=[usage for _, usage in pairs],
            cpu_ratio=self.cpu_ratio,
            memory_ratio=self.memory_ratio,
        )

    def amount(self) -> NUMATopologyAmount:
        """Return our request."""
        cells, first = [], 0
        for guest in self.guests:
            middle = first + guest.shared
            end = middle + guest.dedicated
            cells.append(
                GuestCell(
                    shared=range(first, middle),
                    dedicated=range(middle, end),
                    memory_mb=guest.memory_mb,
                )
            )
            first = end
        return NUMATopologyAmount(
            cells,
            page_size=self.page_size,
            thread_policy=self.thread_policy,
            emulator_policy="isolate" if self.has_emulator else None,
            physnets=self.physnets,
        )

    def ours(self) -> NUMATopologyAmount | None:
        """Return our assigned amount, None for no."""
        try:
            return self.inventory().fit(self.amount())
        except CapacityException:
            return None


def cores(cpus: Sequence[int], threads: int) -> tuple[frozenset[int], ...]:
    """Return CPUs as cores of so many threads, consecutive ones together."""
    return tuple(frozenset(cpus[n : n + threads]) for n in range(0, len(cpus), threads))
