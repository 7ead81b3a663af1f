"""What a ledger keeps of hosts, with who holds what: their NUMA cells, and their devices.

Read at one moment, to be shown; what is decided is decided by the ledger. Only why a CPU is taken,
to run something or to be left empty, is read after that, from the request of whoever holds it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from resource_objects import names, ratio
from resource_objects.exceptions import ForeignAmount, InvalidInput, InvalidInventory, NotFound
from resource_objects.providers import Consumer, Disabled, Provider
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.composite import LocatedView, LocatedViews, located_amounts
from resource_objects.providers.orders import Use
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
    "CellHolder",
    "HostCells",
    "HostDevices",
    "KeptDevice",
    "PageFigures",
    "cores_of",
    "read_cells",
    "read_devices",
]

VCPU, PCPU, MEMORY_MB = OF_HOST


@dataclasses.dataclass(frozen=True, slots=True)
class CellHolder:
    """What one consumer holds of one host cell.

    ``vcpus`` are shared ones; ``cpus`` are the dedicated CPUs that run something of its, ``idle``
    those it has left empty, ``loose`` how many it took without saying which; ``memory_mb`` is
    ordinary memory and ``pages`` are huge ones, ``((size in KiB, count), ...)``.
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

        >>> CellHolder("job-1", cpus=(4, 5), pages=((2048, 8),)).to_dict()["pages"]
        {'2048': 8}
        """
        cpus = {"cpus": list(self.cpus), "idle": list(self.idle)}
        pages = {str(size): count for size, count in self.pages}
        return {**dataclasses.asdict(self), **cpus, "pages": pages}


@dataclasses.dataclass(frozen=True, slots=True)
class PageFigures:
    """What there is of the huge pages of one size of a host cell; ``reserved`` nobody gets."""

    size_kib: int
    total: int
    reserved: int
    used: int


@dataclasses.dataclass(frozen=True, slots=True)
class CellFigures:
    """How much of a host cell is used, and of how much, by everybody together.

    Of shared vCPUs and of ordinary memory, in MiB, the capacity is what is given out: the ratio
    counts, and memory in huge pages does not. ``pages`` are the huge ones there are.
    """

    shared_used: int
    shared_capacity: int
    dedicated_used: int
    dedicated: int
    memory_used_mb: int
    memory_capacity_mb: int
    pages: tuple[PageFigures, ...]

    @classmethod
    def of(cls, inventory: NUMATopologyInventory, place: int) -> CellFigures:
        """Return the figures of a cell of an inventory, by its place.

        >>> cells = [HostCell(0, shared=range(4), memory_mb=1024)]
        >>> figures = CellFigures.of(NUMATopologyInventory(cells, cpu_ratio=2), 0)
        >>> figures.shared_capacity, figures.memory_capacity_mb
        (8, 1024)
        """
        cell, used = inventory.cells[place], inventory.usage[place]
        pages = dict(used.pages)
        return cls(
            shared_used=used.shared,
            shared_capacity=_times(len(cell.shared), inventory.cpu_ratio),
            dedicated_used=len(used.pinned) + used.loose,
            dedicated=len(cell.dedicated),
            memory_used_mb=used.memory_mb,
            memory_capacity_mb=_times(cell.ordinary_mb, inventory.memory_ratio),
            pages=tuple(
                PageFigures(pool.size_kib, pool.total, pool.reserved, pages.get(pool.size_kib, 0))
                for pool in cell.huge_pages
                if pool.total
            ),
        )


def cores_of(cell: HostCell) -> list[tuple[int, ...]]:
    """Return the cores of a cell by their first CPU, those of one thread too.

    >>> cores_of(HostCell(0, dedicated=range(4), siblings=[(1, 3)], memory_mb=1024))
    [(0,), (1, 3), (2,)]
    """
    known = {cpu for core in cell.siblings for cpu in core}
    return sorted((*cell.siblings, *((cpu,) for cpu in cell.cpus if cpu not in known)))


def _times(count: int, times: Decimal) -> int:
    return count * ratio.to_millionths(times) // ratio.MILLION


@dataclasses.dataclass(frozen=True, slots=True)
class HostCells:
    """The NUMA cells of a host: what there is, what is used, and by whom.

    ``holders`` are those of each cell of the inventory, in its order, by name. ``elsewhere`` is
    what is held of the host's CPUs and memory in no cell: ``((consumer, {class: amount}), ...)``.
    ``disabled`` is what is out of service of the host and its cells, by name.
    """

    host: str
    inventory: NUMATopologyInventory
    holders: tuple[tuple[CellHolder, ...], ...]
    elsewhere: tuple[tuple[str, Mapping[str, int]], ...] = ()
    disabled: tuple[tuple[str, Disabled], ...] = ()

    @classmethod
    def unused(cls, host: str, inventory: NUMATopologyInventory) -> HostCells:
        """Return the cells of a host that nobody holds anything of."""
        return cls(host, inventory, tuple(() for _ in inventory.cells))

    def figures(self) -> tuple[CellFigures, ...]:
        """Return how much is used of each cell, in the order of the inventory."""
        return tuple(
            CellFigures.of(self.inventory, place) for place in range(len(self.inventory.cells))
        )

    def in_no_cell(self) -> tuple[CellHolder, ...]:
        """Return who holds what is in no cell; dedicated CPUs of that sort have no names."""
        return tuple(
            CellHolder(
                name,
                vcpus=amounts.get(VCPU, 0),
                loose=amounts.get(PCPU, 0),
                memory_mb=amounts.get(MEMORY_MB, 0),
            )
            for name, amounts in self.elsewhere
        )


def read_cells(ledger: Ledger, host: str) -> HostCells | None:
    """Return the cells of a host and who holds what of them, None if it is kept without cells.

    Cost: one read of the tree, and one of its consumers if any has CPUs of its own.

    :param host: a provider of its tree, by name or uuid
    :raises NotFound: if it is not there

    >>> import resource_objects as ro
    >>> host = ro.Provider("host0", "VCPU=4,MEMORY_MB=1024")
    >>> cell = ro.HostCell(0, shared=range(4), memory_mb=1024)
    >>> _ = host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory([cell]))
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(host)
    ...     _ = ledger.claim("job-1", {"host0/numa0": "VCPU=2,MEMORY_MB=512"})
    ...     print(*read_cells(ledger, "host0").holders[0])
    CellHolder(consumer='job-1', vcpus=2, cpus=(), idle=(), loose=0, memory_mb=512, pages=())
    """
    key = names.provider_key(host)
    columns = ledger.backend.read(key)
    root = _root(columns, key)
    view = LocatedViews(columns).of_tree(root, NUMA_TOPOLOGY.name)
    if view is None or not isinstance(view.inventory, NUMATopologyInventory):
        return None
    idle: Mapping[str, frozenset[int]] = {}
    if any(used.pinned for used in view.inventory.usage):
        idle = _idle(view, ledger.consumers(tree=key))
    held = _held(columns)
    holders = tuple(
        tuple(
            _holder(view.inventory, name, kinds, idle.get(name, frozenset()))
            for name, kinds in sorted(held[spot.number].items())
        )
        for spot in view.parts
    )
    elsewhere = tuple(
        (name, counts)
        for name, kinds in sorted(held[root].items())
        if (counts := {kind: kinds[kind][0] for kind in OF_HOST if kind in kinds})
    )
    kept = columns.disabled
    numbers = (root, *(spot.number for spot in view.parts))
    disabled = tuple((_name(columns, n), kept[n]) for n in numbers if n in kept)
    return HostCells(view.host, view.inventory, holders, elsewhere, disabled)


def _root(columns: Columns, key: str) -> int:
    given = columns.providers
    for root, name, uuid in zip(given.root_id, given.name, given.uuid, strict=True):
        if key in (name, uuid):
            return root
    raise NotFound("provider", key)


#: ``{class: (amount, units)}`` of one consumer at one provider.
_Kinds = dict[str, tuple[int, tuple[str, ...]]]


def _held(columns: Columns) -> Mapping[int, dict[str, _Kinds]]:
    """Return what is held of each provider, by its number and by consumer."""
    units: dict[tuple[int, str, str], tuple[str, ...]] = defaultdict(tuple)
    for number, unit, kind, consumer in zip(*columns.units, strict=True):
        units[number, kind, consumer] += (unit,)
    found: dict[int, dict[str, _Kinds]] = defaultdict(lambda: defaultdict(dict))
    for number, kind, consumer, amount in zip(*columns.allocations, strict=True):
        found[number][consumer][kind] = amount, units[number, kind, consumer]
    return found


def _holder(
    inventory: NUMATopologyInventory, consumer: str, kinds: _Kinds, empty: Collection[int]
) -> CellHolder:
    count, units = kinds.get(PCPU, (0, ()))
    taken = sorted(cpu for unit in units if (cpu := cpu_of(unit)) is not None)
    sizes = sorted({pool.size_kib for cell in inventory.cells for pool in cell.huge_pages})
    return CellHolder(
        consumer,
        vcpus=kinds.get(VCPU, (0, ()))[0],
        cpus=tuple(cpu for cpu in taken if cpu not in empty),
        idle=tuple(cpu for cpu in taken if cpu in empty),
        loose=count - len(taken),
        memory_mb=kinds.get(MEMORY_MB, (0, ()))[0],
        pages=tuple(
            (size, kinds[page_class(size)][0]) for size in sizes if page_class(size) in kinds
        ),
    )


# --- CPUs left empty on purpose -----------------------------------------------------------------


def _idle(view: LocatedView, consumers: Iterable[Consumer]) -> dict[str, frozenset[int]]:
    """Return the CPUs that each consumer has left empty, as its request explains what it holds."""
    found = {}
    for consumer in consumers:
        amount = _topology_of(consumer)
        if amount is None:
            continue
        try:
            placed = view.assigned_amount(amount, _held_at(consumer))
        except ForeignAmount:  # it holds something else by now: all its CPUs may run something
            continue
        if isinstance(placed, NUMATopologyAmount):
            found[consumer.name] = frozenset(cpu for cell in placed.placed for cpu in cell.idle)
    return found


def _topology_of(consumer: Consumer) -> NUMATopologyAmount | None:
    """Return the topology that a consumer asked for, None if that is not known."""
    if consumer.request is None:
        return None
    amount = located_amounts(consumer.request.resources).get(NUMA_TOPOLOGY.name)
    return amount.unassigned() if isinstance(amount, NUMATopologyAmount) else None


def _held_at(consumer: Consumer) -> Iterator[Use]:
    for one in consumer.allocations:
        for record in one.amount.to_records(one.resource_class):
            uuid = one.provider_uuid or ""
            yield Use(uuid, record.resource_class, record.amount, one.units, one.provider)


# --- devices --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class KeptDevice:
    """A device that is kept, its state, and who holds it.

    ``state`` is as :mod:`resource_objects.resources.pci.device` has them: that of a device nobody
    holds follows from its relatives; ``spent`` waits for a reset, ``removed`` for the next sync.
    ``holders`` are the consumers that have it; where some took devices without saying which, all of
    those who may have this one. ``is_taken`` says that something is taken of it itself, not of its
    relatives; ``gone`` that the host does not offer it any more. ``disabled`` is why it is out of
    service, alone, with its card or with its host.
    """

    host: str
    provider: str
    device: Device
    state: str
    holders: tuple[str, ...] = ()
    is_taken: bool = False
    gone: bool = False
    disabled: Disabled | None = None

    @property
    def name(self) -> str:
        """Host and address, as devices are named across hosts."""
        return f"{self.host}/{self.device.address}"

    @property
    def is_free(self) -> bool:
        """Whether somebody could have it now."""
        return self.state == AVAILABLE and self.disabled is None


@dataclasses.dataclass(frozen=True, slots=True)
class HostDevices:
    """The devices of one host that are kept, by address; none if it is kept without."""

    host: str
    devices: tuple[KeptDevice, ...] = ()
    #: their providers as they are kept, by name
    providers: Mapping[str, Provider] = dataclasses.field(default_factory=dict, compare=False)

    def without(self, providers: Collection[str]) -> HostDevices:
        """Return the devices but those of some providers, by name."""
        return HostDevices(
            self.host,
            tuple(one for one in self.devices if one.provider not in providers),
            {name: one for name, one in self.providers.items() if name not in providers},
        )

    def find(self, address: str) -> KeptDevice:
        """Return the device at an address.

        :raises InvalidInput: if it is none; if none is kept there
        """
        wanted = parse_address(address)
        for one in self.devices:
            if one.device.address == wanted:
                return one
        raise InvalidInput(
            "device", f"device of {self.host}", address, "the address of one that is kept"
        )

    def relatives(self, device: Device) -> tuple[KeptDevice, ...]:
        """Return the functions of the same physical one, itself not: they exclude each other."""
        family = device.parent or device.address
        return tuple(
            one
            for one in self.devices
            if one.device.address != device.address
            and family in (one.device.address, one.device.parent)
        )


def read_devices(ledger: Ledger, *hosts: str) -> tuple[HostDevices, ...]:
    """Return the devices of hosts and who holds them; without a host those of all that have some.

    Cost: one read of these trees, or of all.

    :param hosts: providers of their trees, by name or uuid
    :raises NotFound: if one is not there

    >>> import resource_objects as ro
    >>> host = ro.Provider("host0", "VCPU=4")
    >>> gpus = [ro.Device(f"0000:3b:00.{n}", "10de", "2330", resource_class="PGPU") for n in (0, 1)]
    >>> _ = host.add_parts("DEVICES", ro.PCIInventory(gpus))
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(host)
    ...     _ = ledger.claim("job-1", ledger.snapshot().candidates("DEVICES=PGPU"))
    ...     for kept in read_devices(ledger, "host0")[0].devices:
    ...         print(kept.name, kept.state, *kept.holders)
    host0/0000:3b:00.0 allocated job-1
    host0/0000:3b:00.1 available
    """
    keys = [names.provider_key(host) for host in hosts]
    columns = ledger.backend.read(*keys)
    views = LocatedViews(columns)
    roots = [_root(columns, key) for key in keys] or views.trees(DEVICES.name)
    found = []
    for root in dict.fromkeys(roots):
        view = views.of_tree(root, DEVICES.name)
        if view is None:
            found.append(HostDevices(_name(columns, root)))
        else:
            kept = tuple(_kept(columns, view))
            found.append(HostDevices(view.host, kept, _providers(columns, kept)))
    return tuple(sorted(found, key=lambda one: one.host))


def _providers(columns: Columns, kept: Iterable[KeptDevice]) -> dict[str, Provider]:
    """Return the providers of devices that somebody has, by name."""
    wanted = {one.provider for one in kept if one.is_taken}
    if not wanted:
        return {}
    every = (one for root in trees(columns) for one in root.walk())
    return {one.name: one for one in every if one.name in wanted}


def _name(columns: Columns, number: int) -> str:
    given = columns.providers
    return given.name[list(given.provider_id).index(number)]


def _kept(columns: Columns, view: LocatedView) -> Iterator[KeptDevice]:
    """Yield the devices of a host by address."""
    inventory = view.inventory
    if not isinstance(inventory, PCIInventory):
        raise InvalidInventory(f"{DEVICES} of {view.host}", inventory, "a PCIInventory")
    spot_of = {
        device.address: spot
        for spot, part in zip(view.parts, inventory.parts(), strict=True)
        for device in part.inventory.devices
    }
    states, uses = inventory.states(), {use.address: use for use in inventory.usage}
    holders, disabled = _Holders(columns), columns.disabled
    above = columns.index.parents
    for device in sorted(inventory.devices, key=lambda device: device.address):
        address, use = device.address, uses.get(device.address)
        who = () if use is None else holders.of(spot_of[address].number, device)
        is_removed = device.withdrawn and states[address] == SPENT and not device.one_time_use
        yield KeptDevice(
            view.host,
            spot_of[address].name,
            device,
            REMOVED if is_removed else states[address],
            who,
            is_taken=bool(who) or (use is not None and use.state != SPENT),
            gone=device.withdrawn,
            disabled=_disabled(disabled, above, spot_of[address].number),
        )


def _disabled(
    disabled: Mapping[int, Disabled], above: Mapping[int, int | None], number: int
) -> Disabled | None:
    """Return why a provider is out of service: its own reason, or that of the next above it."""
    at: int | None = number if disabled else None
    while at is not None and at not in disabled:
        at = above[at]
    return None if at is None else disabled[at]


class _Holders:
    """Who holds which device, by the provider's number in some columns."""

    def __init__(self, columns: Columns) -> None:
        self._named: dict[tuple[int, str, str], str] = {}
        units: Counter[tuple[int, str, str]] = Counter()
        for number, unit, kind, consumer in zip(*columns.units, strict=True):
            self._named[number, kind, unit] = consumer
            units[number, kind, consumer] += 1
        #: those who did not say which
        self._others: dict[tuple[int, str], list[str]] = defaultdict(list)
        #: those who have anything of a provider, such as a part of its device
        self._any: dict[int, set[str]] = defaultdict(set)
        for number, kind, consumer, _ in zip(*columns.allocations, strict=True):
            self._any[number].add(consumer)
            if not units[number, kind, consumer]:
                self._others[number, kind].append(consumer)

    def of(self, number: int, device: Device) -> tuple[str, ...]:
        """Return who has a device that is taken; where nobody said which, all who may have it."""
        named = self._named.get((number, device.resource_class, device.address))
        if named is not None:
            return (named,)
        others: Iterable[str] = self._others.get((number, device.resource_class), ())
        if not others and device.type == PCI:  # it has its provider to itself
            others = self._any.get(number, ())
        return tuple(sorted(others))
