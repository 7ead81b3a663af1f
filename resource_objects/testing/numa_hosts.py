"""Topologies of hosts, read naively from columns: what a naive search needs of them.

It names the NUMA kind and knows its rules only through
:mod:`~resource_objects.testing.numa_reference`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from resource_objects.providers.columns import Columns
from resource_objects.requests import Request
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    NUMATopologyAmount,
    NUMATopologyInventory,
)
from resource_objects.resources.records import InventoryRecord, KeptPart
from resource_objects.testing import numa_reference

_NAME = NUMA_TOPOLOGY.name

#: (provider's number, resource class)
_Place = tuple[int, str]


def topology_of(request: Request) -> NUMATopologyAmount | None:
    """Return the topology that a request asks for, None if it asks for none."""
    for name, amount in request.unnamed.resources.by_name():
        if name == _NAME:
            assert isinstance(amount, NUMATopologyAmount)
            return amount
    return None


def counts_of(request: Request) -> list[tuple[str, int]]:
    """Return the counts that a request asks for beside what its topology says where it is."""
    topology = topology_of(request)
    located = {} if topology is None else topology.located
    return [
        (name, int(amount))  # type: ignore[call-overload]
        for name, amount in request.unnamed.resources.by_name()
        if name != _NAME and name not in located
    ]


class Cells:
    """The cells of one tree."""

    def __init__(self, columns: Columns, providers: Collection[int]) -> None:
        """Read the cells that some providers keep; these are a tree with all its providers."""
        self._columns = columns
        rows = zip(*columns.kinds, strict=True)
        bodies = {pid: (body, c) for pid, name, c, body in rows if name == _NAME}
        #: by provider, the id of its cell
        self.ids = {pid: json.loads(bodies[pid][0])["id"] for pid in providers if pid in bodies}
        self._bodies = {pid: bodies[pid][0] for pid in self.ids}
        self.classes = {pid: set(bodies[pid][1]) for pid in self.ids}

    def __bool__(self) -> bool:
        return bool(self.ids)

    def inventory(self, used: Mapping[_Place, int]) -> NUMATopologyInventory:
        """Return the cells as an inventory, with so much more in use, shares included."""
        parts = [
            KeptPart(tuple(self._records(pid, used)), self._bodies[pid], self._units(pid))
            for pid in sorted(self.ids, key=self.ids.__getitem__)
        ]
        found = NUMA_TOPOLOGY.gather(parts, self._room(used))
        assert isinstance(found, NUMATopologyInventory)
        return found

    def _records(self, pid: int, used: Mapping[_Place, int]) -> Iterable[InventoryRecord]:
        for row in zip(*self._columns.inventories, strict=True):
            if row[0] == pid and row[1] in self.classes[pid]:
                figures: list[Any] = list(row[1:])
                figures[-1] += used.get((pid, row[1]), 0)
                yield InventoryRecord(*figures)

    def _units(self, pid: int) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for at, unit, name, _ in zip(*self._columns.units, strict=True):
            if at == pid:
                found[name] = (*found.get(name, ()), unit)
        return found

    def _room(self, used: Mapping[_Place, int]) -> dict[str, int]:
        """Return what what the cells are part of has left."""
        table = self._columns.inventories
        rows = zip(table.provider_id, table.resource_class, table.capacity, table.used, strict=True)
        left = {(pid, name): capacity - taken for pid, name, capacity, taken in rows}
        found: dict[str, int] = {}
        for pid, name, of, of_name, factor in zip(*self._columns.shares, strict=True):
            if pid in self.ids and name in self.classes[pid]:
                room = (left[of, of_name] - used.get((of, of_name), 0)) // factor
                found[name] = min(room, found.get(name, room))
        return found

    def can_hold(
        self, topology: NUMATopologyAmount, used: Mapping[_Place, int], within: Collection[int]
    ) -> bool:
        """Return whether a topology fits, on some providers, beside what is used."""
        ids = {self.ids[pid] for pid in within}
        return numa_reference.has_placement(self.inventory(used), topology, None, ids)

    def faults(
        self, assigned: NUMATopologyAmount, used: Mapping[_Place, int], within: Collection[int]
    ) -> list[str]:
        """Return what is wrong with where a topology is."""
        ids = {self.ids[pid] for pid in within}
        return numa_reference.faults(self.inventory(used), assigned, None, ids)

    def taken(self, assigned: NUMATopologyAmount) -> dict[_Place, tuple[int, set[str]]]:
        """Return what an assigned topology takes, with units: ``{place: (amount, units)}``."""
        provider = {cell: pid for pid, cell in self.ids.items()}
        found: dict[_Place, tuple[int, set[str]]] = {}
        pairs = zip(assigned.cells, assigned.placed, strict=True)
        for number, (guest, placed) in enumerate(pairs):
            pid = provider[placed.cell]
            cpus = {cpu for _, cpu in placed.pins} | set(placed.idle)
            if number == 0 and assigned.emulator_cpu is not None:
                cpus.add(assigned.emulator_cpu)
            units = {f"cpu{cpu}" for cpu in cpus}
            size, kib = placed.page_size_kib, guest.memory_mb * 1024
            memory = ("MEMORY_MB", guest.memory_mb)
            if size is not None:
                memory = (f"CUSTOM_HUGEPAGES_{size}KB", kib // size)
            for name, amount in (("VCPU", len(guest.shared)), ("PCPU", len(cpus)), memory):
                if amount:
                    found[pid, name] = (amount, units if name == "PCPU" else set())
        return found
