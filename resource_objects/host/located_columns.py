"""The columns of text that say where things are: ``numa_topology`` and ``pci_stats``.

Reading a row must not pay for what nobody asks about, and what nobody changed must come back as it
was. So texts are parsed when inventories are first asked for, and a column whose content is still
what the row said is the text of the row. Else it is written in the newest version.

**numa_topology** says the cells and what is used of each. Nova has no word for distances between
cells: they stay with the inventory and are left out of the column. With the cells comes ``PCPU``:
their dedicated CPUs as a count, so that a request's counts find it; no other column says it.

**pci_stats** counts free devices by kind and names none, so a row that is read has no inventory of
devices: the text is carried as it is (``load_pci_pools`` reads its counts). Where an inventory of
devices was specified, or a ledger has one, the column is written from it. Nova has no field for the
class code of a device, nor for our facts: they are left out.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.host.columns import (
    COUNTS,
    Column,
    NodeState,
    Settings,
    carried_field,
    coerced,
    members,
)
from resource_objects.interop.nova.pci_devices import (
    DevicePool,
    device_pools,
    dump_pci_pools,
    load_pci_pools,
)
from resource_objects.interop.nova.topologies import (
    dump_host_numa_topology,
    load_host_numa_topology,
)
from resource_objects.resources import IntegerInventory, Inventory
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    CellUsage,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
)
from resource_objects.resources.numa.cells import KIB
from resource_objects.resources.pci import DEVICES, Device, DeviceUse, PCIInventory
from resource_objects.resources.pci.device import CLAIMED, SPENT

_TEXT = carried_field()

VCPU, CPUS, MEMORY = "VCPU", "PCPU", "MEMORY_MB"


class NUMAColumn(Column):
    """The cells of a host and what is used of each."""

    resource = NUMA_TOPOLOGY.name
    names = ("numa_topology",)
    counts = (CPUS,)
    is_read_first = True

    def check(self, row: Mapping[str, Any], settings: Settings) -> None:
        coerced(self.names[0], _TEXT, row)

    def read(
        self, row: Mapping[str, Any], settings: Settings, found: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        content = _cells(row.get(self.names[0]))
        if content is None:
            return {}
        return _with_cpus(
            NUMATopologyInventory(
                content[0],
                usage=content[1],
                cpu_ratio=COUNTS[VCPU].ratio_of(row, settings),
                memory_ratio=COUNTS[MEMORY].ratio_of(row, settings),
                resource_class=self.resource,
            )
        )

    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        (column,) = self.names
        now, raw = members(state.inventories).get(self.resource), row.get(column)
        if now is None:
            return _gone(row, column, state, _or_none(_cells, raw))
        assert isinstance(now, NUMATopologyInventory)
        if _or_none(_cells, raw) == (now.cells, now.usage):
            return {column: raw}
        text = dump_host_numa_topology(now, leave_out=("distances",))
        return {column: _like(raw, text)}

    def stated(
        self, inventory: Inventory, found: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if not isinstance(inventory, NUMATopologyInventory):
            raise exceptions.InvalidInventory(self.resource, inventory, "a NUMATopologyInventory")
        for used in inventory.usage:
            if used.loose:
                raise exceptions.InvalidInventory(
                    f"CPUs of cell {used.cell} taken by number only",
                    used.loose,
                    "0: the column says which are taken",
                )
        if not inventory.cells:
            return {}
        cpus, memory = found.get(VCPU), found.get(MEMORY)
        return _with_cpus(
            NUMATopologyInventory(
                inventory.cells,
                usage=inventory.usage,
                cpu_ratio=getattr(cpus, "allocation_ratio", inventory.cpu_ratio),
                memory_ratio=getattr(memory, "allocation_ratio", inventory.memory_ratio),
                resource_class=self.resource,
            )
        )

    def new(self, inventory: Inventory, *, used: bool = False) -> Inventory:
        assert isinstance(inventory, NUMATopologyInventory)
        return NUMATopologyInventory(
            inventory.cells,
            usage=inventory.usage if used else (),
            cpu_ratio=inventory.cpu_ratio,
            memory_ratio=inventory.memory_ratio,
            resource_class=self.resource,
        )

    def close(self, inventory: Inventory) -> None:
        inventory.update(cells=(), usage=())

    def aside(self, name: str, inventories: Mapping[str, Inventory]) -> int:
        """Return the memory in huge pages: who does not ask for them is not given any."""
        cells = inventories.get(self.resource)
        if name != MEMORY or not isinstance(cells, NUMATopologyInventory):
            return 0
        huge = sum(pool.total * pool.size_kib for cell in cells.cells for pool in cell.huge_pages)
        return -(-huge // KIB)

    def beside(self, name: str, inventories: Mapping[str, Inventory], of_ledger: bool) -> int:
        """Return the pages in use, and the dedicated CPUs.

        Nova's record counts of the latter the vCPUs, so those of what was taken since it was read
        add to it. A ledger cannot tell these from emulators and CPUs left empty: there all count.
        """
        cells = inventories.get(self.resource)
        if not isinstance(cells, NUMATopologyInventory):
            return 0
        if name == MEMORY:
            used = sum(size * count for one in cells.usage for size, count in one.pages)
            return used // KIB
        if name != VCPU:
            return 0
        if of_ledger:
            cpus = inventories.get(CPUS)
            return cpus.used if isinstance(cpus, IntegerInventory) else 0
        return sum(_dedicated(amount) for amount in cells.taken or ())


def _with_cpus(cells: NUMATopologyInventory) -> Mapping[str, Inventory]:
    """Return the cells, and their dedicated CPUs as a count."""
    dedicated = sum(len(cell.dedicated) for cell in cells.cells)
    taken = sum(len(used.pinned) + used.loose for used in cells.usage)
    count = (
        IntegerInventory(dedicated, max_unit=dedicated, used=taken, resource_class=CPUS)
        if dedicated
        else None
    )
    return {**({} if count is None else {CPUS: count}), NUMA_TOPOLOGY.name: cells}


def _dedicated(amount: NUMATopologyAmount) -> int:
    count = sum(len(cell.dedicated) for cell in amount.cells)
    return -count if amount.is_negative else count


def _cells(raw: Any) -> tuple[tuple[HostCell, ...], tuple[CellUsage, ...]] | None:
    """Return the cells that a column says, None if it says that there are none.

    Cost: 0.2 milliseconds for 8 cells; nothing for a text that was read before.

    :raises InvalidInput: if it cannot be read
    """
    if raw in (None, "", b""):
        return None
    try:
        return _load_cells(raw)
    except exceptions.InvalidInput as error:
        if _has_no_cells(raw):
            return None
        raise _unreadable("numa_topology", error) from error


@functools.lru_cache(maxsize=256)
def _load_cells(raw: Any) -> tuple[tuple[HostCell, ...], tuple[CellUsage, ...]]:
    found = load_host_numa_topology(raw)
    return found.cells, found.usage


def _has_no_cells(raw: Any) -> bool:
    """Return whether a column says that there is none, which a topology cannot."""
    found = _document(raw)
    inside = found.get("nova_object.data", found) if isinstance(found, Mapping) else None
    return isinstance(inside, Mapping) and inside.get("cells") == []


# --- devices --------------------------------------------------------------------------------------


class PCIColumn(Column):
    """The devices of a host. They are written as counts of free ones, and never read."""

    resource = DEVICES.name
    names = ("pci_stats",)

    def check(self, row: Mapping[str, Any], settings: Settings) -> None:
        coerced(self.names[0], _TEXT, row)

    def read(
        self, row: Mapping[str, Any], settings: Settings, found: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        return {}  # the counts do not say which devices are free

    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        (column,) = self.names
        now, raw = members(state.inventories).get(self.resource), row.get(column)
        if now is None:
            return _gone(row, column, state, None)
        assert isinstance(now, PCIInventory)
        text = _write_pools(device_pools(now, per_device=True))
        known = _or_none(_pools, raw)
        if known and _write_pools(known) == text:
            return {column: raw}  # it would say the same in other words
        return {column: _like(raw, text)}

    def stated(
        self, inventory: Inventory, found: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if not isinstance(inventory, PCIInventory):
            raise exceptions.InvalidInventory(self.resource, inventory, "a PCIInventory")
        if not inventory.devices:
            return {}
        return {self.resource: _in_order(inventory)}

    def new(self, inventory: Inventory, *, used: bool = False) -> Inventory | None:
        """Return devices as a new host has them."""
        assert isinstance(inventory, PCIInventory)
        uses = {use.address: use for use in inventory.usage}
        devices: list[Device] = []
        for device in inventory.devices:
            use = uses.get(device.address)
            if use is None or not use.gone:
                devices.append(device)
        if not devices:
            return None
        there = {device.address for device in devices}
        usage: list[DeviceUse] = [
            DeviceUse(use.address, use.state)
            for use in inventory.usage
            if use.address in there and (used or use.state == SPENT)
        ]
        return PCIInventory(devices, usage=usage, resource_class=self.resource)

    def is_same(self, one: Inventory, other: Inventory) -> bool:
        """Compare, whether held devices are claimed or in use: who takes one again claims it."""
        return _with_claims(one) == _with_claims(other)

    def close(self, inventory: Inventory) -> None:
        inventory.update(devices=(), usage=())


def _with_claims(inventory: Inventory) -> PCIInventory:
    assert isinstance(inventory, PCIInventory)
    found = inventory.obj_clone()
    claimed = (u.replace(state=CLAIMED) if u.is_held else u for u in found.usage)
    found.update(usage=tuple(claimed))
    return found


def _in_order(inventory: PCIInventory) -> PCIInventory:
    """Return devices by address: the same in whatever order somebody states them."""
    return PCIInventory(
        sorted(inventory.devices, key=lambda device: device.address),
        usage=inventory.usage,
        resource_class=DEVICES.name,
    )


def _pools(raw: Any) -> tuple[DevicePool, ...]:
    """Return the pools that a column says; nothing is parsed again that was read before.

    :raises InvalidInput: if it cannot be read
    """
    if raw in (None, "", b""):
        return ()
    try:
        return _load_pools(raw)
    except exceptions.InvalidInput as error:
        raise _unreadable("pci_stats", error) from error


@functools.lru_cache(maxsize=256)
def _load_pools(raw: Any) -> tuple[DevicePool, ...]:
    return load_pci_pools(raw)


def _write_pools(pools: Iterable[DevicePool]) -> str:
    return dump_pci_pools(pools, leave_out=("class_code", "facts"))


def pools_for_nova(text: Any) -> Any:
    """Return the primitive of Nova's own object for what ``pci_stats`` says.

    :raises InvalidInput: if it cannot be read
    """
    return _document(text if _is_object(_document(text)) else _write_pools(_pools(text)))


# --- text that is JSON ----------------------------------------------------------------------------


def _gone(row: Mapping[str, Any], column: str, state: NodeState, said: Any) -> Mapping[str, Any]:
    """Return a column of which there is nothing, or nothing any more.

    Where a ledger has nothing of it, what the record says is the record's affair, unless it was
    written from here.
    """
    was_written = column in state.known and state.known[column] != row.get(column)
    if was_written or (said and not state.of_ledger):
        return {column: None}
    return {column: row[column]} if column in row else {}


def _or_none(read: Callable[[Any], Any], raw: Any) -> Any:
    """Return what a column says, None if it cannot be read."""
    try:
        return read(raw)
    except exceptions.InvalidInput as error:
        if not error.is_about("row"):
            raise
        return None


def _like(raw: Any, text: str) -> str | bytes:
    return text.encode() if isinstance(raw, bytes) else text


def _unreadable(column: str, error: exceptions.InvalidInput) -> exceptions.InvalidInput:
    """Return the error that says that a column cannot be read, and where in it."""
    place = error.what.removeprefix(column).lstrip(".")
    expected = f"{error.expected} ({place})" if place else error.expected
    return exceptions.InvalidInput("row", column, error.value, expected)


def _document(raw: Any) -> Any:
    """Return what the JSON text of a column says; None if it cannot be read."""
    try:
        return json.loads(raw)
    except (TypeError, ValueError, RecursionError):
        return None


def _is_object(document: Any) -> bool:
    """Return whether a document is of one of Nova's objects, and no list of dicts."""
    return isinstance(document, Mapping) and "nova_object.name" in document
