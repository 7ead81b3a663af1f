"""The allocations of hosts: who uses which NUMA cells, CPUs and devices.

:class:`Holdings` is the allocations of some trees, which others compare with records, drivers and
requests. :func:`read_cells` and :func:`read_devices` read the cells and devices of a host with
their consumers, to display them. The ledger makes all decisions.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from resource_objects import names, ratio
from resource_objects.exceptions import ForeignAmount, InvalidInput, InvalidInventory, NotFound
from resource_objects.providers import Disabled, Provider
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.composite import LocatedView, LocatedViews, located_amounts
from resource_objects.providers.orders import Key, Use
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    OF_HOST,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    cpu_of,
    page_class,
)
from resource_objects.resources.pci import DEVICES, Device, PCIInventory
from resource_objects.resources.pci.device import AVAILABLE, PCI, REMOVED, SPENT, parse_address

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = [
    "CellFigures",
    "CellUser",
    "DeviceStatus",
    "Holdings",
    "HostCells",
    "HostDevices",
    "PageFigures",
    "cores_of",
    "read_cells",
    "read_devices",
]

VCPU, PCPU, MEMORY_MB = OF_HOST


class Holdings:
    """The allocations of some provider trees, at one moment. Providers are named by uuid.

    =================  =============================================================================
    :meth:`of`         the amount of each consumer, of one class at one provider
    :meth:`units`      the consumer of each unit, of one class at one provider
    :meth:`at`         the allocations at one provider, by consumer
    :meth:`consumer`   the allocations of one consumer
    :meth:`totals`     the amounts of all consumers, by tree and class
    :meth:`disabled`   why a provider is disabled
    =================  =============================================================================

    Cost: linear in the rows, once.
    """

    def __init__(self, columns: Columns) -> None:
        """:param columns: rows that have allocations"""
        self.columns = columns
        uuids = columns.index.uuids
        self._units: dict[Key, dict[str, str]] = defaultdict(dict)
        for number, unit, resource_class, consumer in zip(*columns.units, strict=True):
            self._units[uuids[number], resource_class][unit] = consumer
        self._amounts: dict[Key, dict[str, int]] = defaultdict(dict)
        for number, resource_class, consumer, amount in zip(*columns.allocations, strict=True):
            self._amounts[uuids[number], resource_class][consumer] = amount
        #: the names of all allocated units: a unit that moved to another part is allocated too
        self.all_units = frozenset(columns.units.unit)

    def of(self, provider: str, resource_class: str) -> Mapping[str, int]:
        """Return the amount of each consumer of an inventory."""
        return self._amounts.get((provider, resource_class), {})

    def units(self, provider: str, resource_class: str) -> Mapping[str, str]:
        """Return the consumer of each allocated unit of an inventory."""
        return self._units.get((provider, resource_class), {})

    def at(self, provider: str) -> Mapping[str, Mapping[str, Use]]:
        """Return the allocations at a provider, ``{consumer: {class: use}}``, by name."""
        return self._by_provider.get(provider, {})

    def consumer(self, name: str) -> tuple[Use, ...]:
        """Return the allocations of a consumer."""
        return tuple(
            use
            for by_consumer in self._by_provider.values()
            for use in by_consumer.get(name, {}).values()
        )

    def totals(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """Return the amounts of all consumers, ``{root: {consumer: {class: amount}}}``."""
        index = self.columns.index
        totals: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        for (provider, name), amounts in self._amounts.items():
            in_tree = totals[index.uuids[index.roots[index.numbers[provider]]]]
            for consumer, amount in amounts.items():
                in_tree[consumer][name] = in_tree[consumer].get(name, 0) + amount
        return totals

    def disabled(self, provider: str) -> Disabled | None:
        """Return why a provider is disabled: its own reason, or that of the next one above it."""
        disabled, index = self.columns.disabled, self.columns.index
        if not disabled:
            return None
        above = index.ancestors(index.numbers[provider])
        return next((disabled[number] for number in above if number in disabled), None)

    @functools.cached_property
    def _by_provider(self) -> dict[str, dict[str, dict[str, Use]]]:
        units: dict[tuple[str, str, str], tuple[str, ...]] = defaultdict(tuple)
        for key, consumers in self._units.items():
            for unit, consumer in consumers.items():
                units[*key, consumer] += (unit,)
        uses: dict[str, dict[str, dict[str, Use]]] = defaultdict(lambda: defaultdict(dict))
        for (provider, name), amounts in self._amounts.items():
            for consumer, amount in amounts.items():
                use = Use(provider, name, amount, units[provider, name, consumer])
                uses[provider][consumer][name] = use
        return {
            provider: dict(sorted(by_consumer.items())) for provider, by_consumer in uses.items()
        }


def _root(columns: Columns, key: str) -> int:
    """Return the number of the root of a provider's tree; the key is a name or uuid."""
    index = columns.index
    number = index.numbers.get(key, index.numbers_by_name.get(key))
    if number is None:
        raise NotFound("provider", key)
    return index.roots[number]


# --- NUMA cells -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class CellUser:
    """The allocations of one consumer in one host cell.

    ``vcpus`` are shared CPUs, with overcommit. ``cpus`` are the dedicated CPUs that run a thread of
    the consumer, ``idle`` those that it leaves empty, ``loose`` the number of further ones without
    a recorded id. ``memory_mb`` is ordinary memory in MiB, ``pages`` are huge pages,
    ``((size in KiB, count), ...)``.
    """

    consumer: str
    vcpus: int = 0
    cpus: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    loose: int = 0
    memory_mb: int = 0
    pages: tuple[tuple[int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON.

        >>> CellUser("job-1", cpus=(4, 5), pages=((2048, 8),)).to_dict()["pages"]
        {'2048': 8}
        """
        cpus = {"cpus": list(self.cpus), "idle": list(self.idle)}
        pages = {str(size): count for size, count in self.pages}
        return {**dataclasses.asdict(self), **cpus, "pages": pages}


@dataclasses.dataclass(frozen=True, slots=True)
class PageFigures:
    """The huge pages of one size in a host cell; ``reserved`` ones cannot be allocated."""

    size_kib: int
    total: int
    reserved: int
    used: int


@dataclasses.dataclass(frozen=True, slots=True)
class CellFigures:
    """The usage and the capacity of a host cell, of all consumers together.

    The capacities of shared CPUs and of ordinary memory (MiB) include the allocation ratio, and
    exclude memory in huge pages. ``pages`` are the huge pages.
    """

    shared_used: int
    shared_capacity: int
    dedicated_used: int
    dedicated: int
    memory_used_mb: int
    memory_capacity_mb: int
    pages: tuple[PageFigures, ...]

    @classmethod
    def of(cls, inventory: NUMATopologyInventory, position: int) -> CellFigures:
        """Return the figures of a cell of an inventory, by its position.

        >>> cells = [HostCell(0, shared=range(4), memory_mb=1024)]
        >>> figures = CellFigures.of(NUMATopologyInventory(cells, cpu_ratio=2), 0)
        >>> figures.shared_capacity, figures.memory_capacity_mb
        (8, 1024)
        """
        cell, used = inventory.cells[position], inventory.usage[position]
        pages = dict(used.pages)

        def capacity(total: int, allocation_ratio: Decimal) -> int:
            return total * ratio.to_millionths(allocation_ratio) // ratio.MILLION

        return cls(
            shared_used=used.shared,
            shared_capacity=capacity(len(cell.shared), inventory.cpu_ratio),
            dedicated_used=len(used.pinned) + used.loose,
            dedicated=len(cell.dedicated),
            memory_used_mb=used.memory_mb,
            memory_capacity_mb=capacity(cell.ordinary_mb, inventory.memory_ratio),
            pages=tuple(
                PageFigures(pool.size_kib, pool.total, pool.reserved, pages.get(pool.size_kib, 0))
                for pool in cell.huge_pages
                if pool.total
            ),
        )


def cores_of(cell: HostCell) -> list[tuple[int, ...]]:
    """Return the CPUs of each core of a cell, ordered by their first CPU.

    >>> cores_of(HostCell(0, dedicated=range(4), siblings=[(1, 3)], memory_mb=1024))
    [(0,), (1, 3), (2,)]
    """
    threaded = {cpu for core in cell.siblings for cpu in core}
    return sorted((*cell.siblings, *((cpu,) for cpu in cell.cpus if cpu not in threaded)))


@dataclasses.dataclass(frozen=True, slots=True)
class HostCells:
    """The NUMA cells of a host, with their usage and consumers.

    ``holders`` are the consumers of each cell of the inventory, in its order, sorted by name.
    ``outside_cells`` are the CPUs and memory of the host that are allocated in no cell:
    ``((consumer, {class: amount}), ...)``. ``disabled`` lists the disabled ones of the host and its
    cells, by name.
    """

    host: str
    inventory: NUMATopologyInventory
    holders: tuple[tuple[CellUser, ...], ...]
    outside_cells: tuple[tuple[str, Mapping[str, int]], ...] = ()
    disabled: tuple[tuple[str, Disabled], ...] = ()

    @classmethod
    def unused(cls, host: str, inventory: NUMATopologyInventory) -> HostCells:
        """Return the cells of a host without consumers."""
        return cls(host, inventory, tuple(() for _ in inventory.cells))

    def figures(self) -> tuple[CellFigures, ...]:
        """Return the figures of each cell, in the order of the inventory."""
        positions = range(len(self.inventory.cells))
        return tuple(CellFigures.of(self.inventory, position) for position in positions)

    def holders_outside_cells(self) -> tuple[CellUser, ...]:
        """Return the consumers outside of cells; their dedicated CPUs have no ids."""
        return tuple(
            CellUser(
                name,
                vcpus=amounts.get(VCPU, 0),
                loose=amounts.get(PCPU, 0),
                memory_mb=amounts.get(MEMORY_MB, 0),
            )
            for name, amounts in self.outside_cells
        )


def read_cells(ledger: Ledger, host: str) -> HostCells | None:
    """Return the cells of a host with their consumers, None if the host has no cells.

    Cost: one read of the tree, and one of its consumers if dedicated CPUs are allocated.

    :param host: a provider of its tree, by name or uuid
    :raises NotFound: if it does not exist

    >>> import resource_objects as ro
    >>> host = ro.Provider("host0", "VCPU=4,MEMORY_MB=1024")
    >>> cell = ro.HostCell(0, shared=range(4), memory_mb=1024)
    >>> _ = host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory([cell]))
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(host)
    ...     _ = ledger.claim("job-1", {"host0/numa0": "VCPU=2,MEMORY_MB=512"})
    ...     print(*read_cells(ledger, "host0").holders[0])
    CellUser(consumer='job-1', vcpus=2, cpus=(), idle=(), loose=0, memory_mb=512, pages=())
    """
    key = names.provider_key(host)
    columns = ledger.backend.read(key)
    root = _root(columns, key)
    view = LocatedViews(columns).of_tree(root, NUMA_TOPOLOGY.name)
    if view is None or not isinstance(view.inventory, NUMATopologyInventory):
        return None
    sizes = sorted({pool.size_kib for cell in view.inventory.cells for pool in cell.huge_pages})
    idle: Mapping[str, frozenset[int]] = {}
    if any(used.pinned for used in view.inventory.usage):
        idle = _idle_cpus(view, ledger, key)
    holdings = Holdings(columns)

    def cell_user(name: str, uses: Mapping[str, Use]) -> CellUser:
        amounts = {resource_class: use.amount for resource_class, use in uses.items()}
        units = uses[PCPU].units if PCPU in uses else ()
        cpus = sorted(cpu for unit in units if (cpu := cpu_of(unit)) is not None)
        empty = idle.get(name, frozenset())
        return CellUser(
            name,
            vcpus=amounts.get(VCPU, 0),
            cpus=tuple(cpu for cpu in cpus if cpu not in empty),
            idle=tuple(cpu for cpu in cpus if cpu in empty),
            loose=amounts.get(PCPU, 0) - len(cpus),
            memory_mb=amounts.get(MEMORY_MB, 0),
            pages=tuple(
                (size, amounts[page_class(size)]) for size in sizes if page_class(size) in amounts
            ),
        )

    outside_cells = tuple(
        (name, counts)
        for name, uses in holdings.at(columns.index.uuids[root]).items()
        if (counts := {kind: uses[kind].amount for kind in OF_HOST if kind in uses})
    )
    numbers = (root, *(part.number for part in view.parts))
    disabled = columns.disabled
    return HostCells(
        view.host,
        view.inventory,
        tuple(
            tuple(cell_user(name, uses) for name, uses in holdings.at(part.uuid).items())
            for part in view.parts
        ),
        outside_cells,
        tuple((columns.index.names[n], disabled[n]) for n in numbers if n in disabled),
    )


def _idle_cpus(view: LocatedView, ledger: Ledger, key: str) -> dict[str, frozenset[int]]:
    """Return the CPUs that each consumer leaves empty: its request explains its allocations."""
    idle: dict[str, frozenset[int]] = {}
    for consumer in ledger.consumers(tree=key):
        if consumer.request is None:
            continue
        amount = located_amounts(consumer.request.resources).get(NUMA_TOPOLOGY.name)
        if not isinstance(amount, NUMATopologyAmount):
            continue
        uses = [
            Use(allocation.provider_uuid or "", record.resource_class, record.amount, units)
            for allocation in consumer.allocations
            for units in (allocation.units,)
            for record in allocation.amount.to_records(allocation.resource_class)
        ]
        try:
            assigned = view.assigned_amount(amount.unassigned(), uses)
        except ForeignAmount:  # its allocations were changed: all its CPUs may run a thread
            continue
        if isinstance(assigned, NUMATopologyAmount):
            idle[consumer.name] = frozenset(cpu for cell in assigned.placed for cpu in cell.idle)
    return idle


# --- devices --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceStatus:
    """A stored device, its state and its consumers.

    ``state`` is one of :mod:`resource_objects.resources.pci.device`. The state of a device that is
    not allocated follows from its relatives; ``spent`` waits for a reset, ``removed`` for the next
    sync. ``holders`` are its consumers; if some devices were allocated without their addresses, all
    consumers that may have this one. ``is_allocated`` is about the device itself, not about its
    relatives; ``is_withdrawn`` means that the host does not offer it any more. ``disabled`` is why
    it, its card or its host is disabled.
    """

    host: str
    provider: str
    device: Device
    state: str
    holders: tuple[str, ...] = ()
    is_allocated: bool = False
    is_withdrawn: bool = False
    disabled: Disabled | None = None

    @property
    def name(self) -> str:
        """The host and the address, which name a device among several hosts."""
        return f"{self.host}/{self.device.address}"

    @property
    def is_free(self) -> bool:
        """Whether the device can be allocated."""
        return self.state == AVAILABLE and self.disabled is None


@dataclasses.dataclass(frozen=True, slots=True)
class HostDevices:
    """The stored devices of one host, by address."""

    host: str
    devices: tuple[DeviceStatus, ...] = ()
    #: the stored providers of allocated devices, by name
    providers: Mapping[str, Provider] = dataclasses.field(default_factory=dict, compare=False)

    def without(self, providers: Collection[str]) -> HostDevices:
        """Return the devices without those of some providers, by name."""
        return HostDevices(
            self.host,
            tuple(device for device in self.devices if device.provider not in providers),
            {name: stored for name, stored in self.providers.items() if name not in providers},
        )

    def find(self, address: str) -> DeviceStatus:
        """Return the device at an address.

        :raises InvalidInput: if it is no address, or no device is stored at it
        """
        parsed = parse_address(address)
        for status in self.devices:
            if status.device.address == parsed:
                return status
        raise InvalidInput(
            "device", f"device of {self.host}", address, "the address of a stored device"
        )

    def relatives(self, device: Device) -> tuple[DeviceStatus, ...]:
        """Return the other functions of the same physical function: they exclude each other."""
        family = device.parent or device.address
        return tuple(
            status
            for status in self.devices
            if status.device.address != device.address
            and family in (status.device.address, status.device.parent)
        )


def read_devices(ledger: Ledger, *hosts: str) -> tuple[HostDevices, ...]:
    """Return the devices of hosts with their consumers; without a host, of all that have devices.

    Cost: provider read of these trees, or of all.

    :param hosts: providers of their trees, by name or uuid
    :raises NotFound: if provider does not exist

    >>> import resource_objects as ro
    >>> host = ro.Provider("host0", "VCPU=4")
    >>> gpus = [ro.Device(f"0000:3b:00.{n}", "10de", "2330", resource_class="PGPU") for n in (0, 1)]
    >>> _ = host.add_parts("DEVICES", ro.PCIInventory(gpus))
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(host)
    ...     _ = ledger.claim("job-1", ledger.snapshot().candidates("DEVICES=PGPU"))
    ...     for status in read_devices(ledger, "host0")[0].devices:
    ...         print(status.name, status.state, *status.holders)
    host0/0000:3b:00.0 allocated job-1
    host0/0000:3b:00.1 available
    """
    keys = [names.provider_key(host) for host in hosts]
    columns = ledger.backend.read(*keys)
    views, holdings = LocatedViews(columns), Holdings(columns)
    devices: list[HostDevices] = []
    for root in dict.fromkeys([_root(columns, key) for key in keys] or views.trees(DEVICES.name)):
        view = views.of_tree(root, DEVICES.name)
        if view is None:
            devices.append(HostDevices(columns.index.names[root]))
            continue
        statuses = tuple(_statuses(holdings, view))
        allocated = {status.provider for status in statuses if status.is_allocated}
        providers = (
            provider for tree in (trees(columns) if allocated else ()) for provider in tree.walk()
        )
        stored = {provider.name: provider for provider in providers if provider.name in allocated}
        devices.append(HostDevices(view.host, statuses, stored))
    return tuple(sorted(devices, key=lambda host: host.host))


def _statuses(holdings: Holdings, view: LocatedView) -> Iterator[DeviceStatus]:
    """Yield the devices of a host by address."""
    inventory = view.inventory
    if not isinstance(inventory, PCIInventory):
        raise InvalidInventory(f"{DEVICES} of {view.host}", inventory, "a PCIInventory")
    part_of = {
        device.address: part
        for part, content in zip(view.parts, inventory.parts(), strict=True)
        for device in content.inventory.devices
    }
    states, uses = inventory.states(), {use.address: use for use in inventory.usage}
    for device in sorted(inventory.devices, key=lambda device: device.address):
        address, use = device.address, uses.get(device.address)
        part = part_of[address]
        holders = () if use is None else _holders(holdings, part.uuid, device)
        is_removed = device.withdrawn and states[address] == SPENT and not device.one_time_use
        yield DeviceStatus(
            view.host,
            part.name,
            device,
            REMOVED if is_removed else states[address],
            holders,
            is_allocated=bool(holders) or (use is not None and use.state != SPENT),
            is_withdrawn=device.withdrawn,
            disabled=holdings.disabled(part.uuid),
        )


def _holders(holdings: Holdings, provider: str, device: Device) -> tuple[str, ...]:
    """Return the consumer of a device in use, or all that may have it if its address is unknown."""
    units = holdings.units(provider, device.resource_class)
    if device.address in units:
        return (units[device.address],)
    by_count = set(holdings.of(provider, device.resource_class)) - set(units.values())
    if not by_count and device.type == PCI:  # such a device is the only one of its provider
        by_count = set(holdings.at(provider))
    return tuple(sorted(by_count))
