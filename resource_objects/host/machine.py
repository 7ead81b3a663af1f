"""What a machine is: CPUs, cores, NUMA cells, memory pages, a disk, PCI devices.

Facts only: nothing here says what is free, reserved or shared out, and nothing here reads
anything. A :class:`Machine` comes from :func:`resource_objects.host.discovery.discover`, or is
written down by hand; either way one that exists is consistent, or its making raised
:class:`~resource_objects.exceptions.InvalidInput`.

The words are the kernel's and Nova's: a *CPU* is a logical CPU (hwloc's PU, a hardware thread), a
*core* is the CPUs that share one execution core, a *package* is what sits in a socket, a *cell* is
a NUMA node. Sets of ids are ascending tuples; memory is in bytes unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from resource_objects.exceptions import InvalidInput
from resource_objects.findings import Finding

__all__ = [
    "MIB",
    "Core",
    "DeviceKind",
    "Disk",
    "Machine",
    "MediatedType",
    "NUMACell",
    "NetworkInterface",
    "PCIDevice",
    "Pages",
]

#: Bytes in a mebibyte, the unit of ``MEMORY_MB``.
MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Core:
    """A core and the online CPUs (threads) on it, ascending.

    ``core_id`` is the hardware's number, which repeats from package to package and from die to
    die: only ``cpus`` identifies a core. Both ids are None where the kernel does not know them.

    >>> Core(package_id=0, core_id=3, cpus=(3, 19))
    Core(package_id=0, core_id=3, cpus=(3, 19))
    """

    package_id: int | None
    core_id: int | None
    cpus: tuple[int, ...]

    def __post_init__(self) -> None:
        require_integer("Core.package_id", self.package_id, least=None, optional=True)
        require_integer("Core.core_id", self.core_id, least=None, optional=True)
        require_ids("Core.cpus", self.cpus)
        require(len(self.cpus) > 0, "Core.cpus", self.cpus, "at least one CPU")


@dataclasses.dataclass(frozen=True, slots=True)
class Pages:
    """The memory pages of one size: how many there are, and how many nobody uses.

    ``free`` is None for base pages: the kernel's count leaves out what it could reclaim, so it
    says nothing about what could be had.

    >>> Pages(size_bytes=2 * MIB, total=512, free=500).memory_bytes // MIB
    1024
    """

    size_bytes: int
    total: int
    free: int | None = None

    def __post_init__(self) -> None:
        require_integer("Pages.size_bytes", self.size_bytes, least=1)
        require_integer("Pages.total", self.total)
        require_integer("Pages.free", self.free, optional=True)
        free = self.free
        require(free is None or free <= self.total, "Pages.free", free, "0 to total, or None")

    @property
    def memory_bytes(self) -> int:
        """The memory these pages make up, free or not."""
        return self.size_bytes * self.total


@dataclasses.dataclass(frozen=True, slots=True)
class NUMACell:
    """A NUMA node: online CPUs and the memory next to them. Either may be missing.

    ``pages`` ascend by size, base pages first; the base pages are what huge pages leave over, so
    together they do not exceed the memory.
    ``package_id`` (Nova's *socket*) is None when the CPUs of the cell are of several packages or
    there are none. ``distances`` holds one figure per cell of the machine, in the machine's order
    (10 is the cell itself), or nothing where unknown. ``initiators`` are the ids of the cells
    whose CPUs reach this memory best, where the firmware says so.

    >>> NUMACell(id=0, cpus=(0, 1), memory_bytes=64 * MIB).memory_mb
    64
    """

    id: int
    cpus: tuple[int, ...]
    memory_bytes: int
    pages: tuple[Pages, ...] = ()
    package_id: int | None = None
    distances: tuple[int, ...] = ()
    initiators: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require_integer("NUMACell.id", self.id)
        require_ids("NUMACell.cpus", self.cpus)
        require_integer("NUMACell.memory_bytes", self.memory_bytes)
        require_all("NUMACell.pages", self.pages, Pages)
        require_integer("NUMACell.package_id", self.package_id, least=None, optional=True)
        require_all("NUMACell.distances", self.distances, int)
        for distance in self.distances:
            require_integer("NUMACell.distances", distance)
        require_ids("NUMACell.initiators", self.initiators)
        require_ids("sizes of NUMACell.pages", tuple(pages.size_bytes for pages in self.pages))
        least = sum(pages.memory_bytes for pages in self.pages)
        size = self.memory_bytes
        require(size >= least, "NUMACell.memory_bytes", size, f"{least} at least, for its pages")

    @property
    def memory_mb(self) -> int:
        """The memory in whole MiB."""
        return self.memory_bytes // MIB

    @property
    def huge_pages(self) -> tuple[Pages, ...]:
        """The pages larger than the base page, smallest first."""
        return self.pages[1:]


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """The file system that holds ``path``: its size, and what an ordinary user may still write.

    >>> Disk("/srv", total_bytes=1024**4, free_bytes=1024**3).total_gb
    1024
    """

    path: str
    total_bytes: int
    free_bytes: int

    def __post_init__(self) -> None:
        require_text("Disk.path", self.path)
        require_integer("Disk.total_bytes", self.total_bytes)
        require_integer("Disk.free_bytes", self.free_bytes)
        fits = self.free_bytes <= self.total_bytes
        require(fits, "Disk.free_bytes", self.free_bytes, "0 to total_bytes")

    @property
    def total_gb(self) -> int:
        """The size in whole GiB, the unit of ``DISK_GB``."""
        return self.total_bytes // (1024 * MIB)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, as it describes itself.

    Facts: ``hostname`` ``architecture`` ``cpus`` (online) ``offline_cpus`` ``cores``
    ``memory_bytes`` ``cells`` ``huge_pages`` ``disk`` ``devices``; what could not be read is in
    ``findings``. Counts: :attr:`packages`
    :attr:`physical_cores` :attr:`threads_per_core` :attr:`memory_mb`. Looking up: :meth:`cell`
    :meth:`distance` :meth:`virtual_functions`. Less of it: :meth:`restrict` :meth:`without_use`.
    As data: :meth:`to_dict`.

    Every online CPU is on exactly one core and in at most one cell. ``memory_bytes`` and
    ``huge_pages`` are what the kernel counts for the whole machine, which need not be the sum over
    the cells: old kernels count memory they keep for themselves as a cell's, and do not say where
    huge pages are. A device's ``numa_node`` may name a cell that is not in ``cells``.

    >>> cores = [Core(0, 0, (0, 2)), Core(0, 1, (1, 3))]
    >>> machine = Machine(cpus=(0, 1, 2, 3), cores=tuple(cores), memory_bytes=512 * MIB)
    >>> machine.packages, machine.physical_cores, machine.threads_per_core, machine.memory_mb
    (1, 2, 2, 512)
    """

    cpus: tuple[int, ...]
    cores: tuple[Core, ...]
    memory_bytes: int
    cells: tuple[NUMACell, ...] = ()
    hostname: str | None = None
    architecture: str | None = None
    offline_cpus: tuple[int, ...] = ()
    huge_pages: tuple[Pages, ...] = ()
    disk: Disk | None = None
    devices: tuple[PCIDevice, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        require_all("Machine.findings", self.findings, Finding)
        require_ids("Machine.cpus", self.cpus)
        require(len(self.cpus) > 0, "Machine.cpus", self.cpus, "at least one CPU")
        require_ids("Machine.offline_cpus", self.offline_cpus)
        require_all("Machine.cores", self.cores, Core)
        require_integer("Machine.memory_bytes", self.memory_bytes)
        require_all("Machine.cells", self.cells, NUMACell)
        require_text("Machine.hostname", self.hostname, optional=True)
        require_text("Machine.architecture", self.architecture, optional=True)
        require_all("Machine.huge_pages", self.huge_pages, Pages)
        is_disk = self.disk is None or isinstance(self.disk, Disk)
        require(is_disk, "Machine.disk", self.disk, "a Disk or None")
        require_all("Machine.devices", self.devices, PCIDevice)
        sizes = tuple(pages.size_bytes for pages in self.huge_pages)
        require_ids("sizes of Machine.huge_pages", sizes)
        require_apart("CPU of Machine.offline_cpus", (self.cpus, self.offline_cpus))
        self._check_cores()
        self._check_cells()
        require_apart("address of Machine.devices", ([each.address] for each in self.devices))

    def _check_cores(self) -> None:
        require_apart("CPU of Machine.cores", (core.cpus for core in self.cores))
        on_cores = sorted(cpu for core in self.cores for cpu in core.cpus)
        require(on_cores == list(self.cpus), "Machine.cores", on_cores, "the online CPUs")

    def _check_cells(self) -> None:
        require_ids("ids of Machine.cells", tuple(cell.id for cell in self.cells))
        require_apart("CPU of Machine.cells", (cell.cpus for cell in self.cells))
        stray = {cpu for cell in self.cells for cpu in cell.cpus}.difference(self.cpus)
        require(not stray, "Machine.cells", sorted(stray), "online CPUs only")
        for cell in self.cells:
            known = len(cell.distances) in (0, len(self.cells))
            require(known, "NUMACell.distances", cell.distances, "one per cell, or none")

    @property
    def packages(self) -> int:
        """How many packages there are; a machine has one at least."""
        known = {core.package_id for core in self.cores} | {cell.package_id for cell in self.cells}
        return max(1, len(known - {None}))

    @property
    def physical_cores(self) -> int:
        """How many cores have a CPU online."""
        return len(self.cores)

    @property
    def thread_siblings(self) -> tuple[tuple[int, ...], ...]:
        """The online CPUs of each core, as ``lscpu`` would group them."""
        return tuple(core.cpus for core in self.cores)

    @property
    def threads_per_core(self) -> int:
        """The most threads that any core has online: 1 without SMT. Hybrid machines mix."""
        return max(len(core.cpus) for core in self.cores)

    @property
    def memory_mb(self) -> int:
        """The memory in whole MiB."""
        return self.memory_bytes // MIB

    def cell(self, cell_id: int) -> NUMACell:
        """Return the cell of that id; ids need not be consecutive.

        :raises InvalidInput: if there is none
        """
        return self.cells[self._position(cell_id)]

    def distance(self, from_id: int, to_id: int) -> int | None:
        """Return the distance between two cells (10 is the cell itself), None where unknown.

        :raises InvalidInput: if there is no such cell
        """
        distances, position = self.cell(from_id).distances, self._position(to_id)
        return distances[position] if distances else None

    def _position(self, cell_id: int) -> int:
        ids = [cell.id for cell in self.cells]
        require(cell_id in ids, "cell", cell_id, f"one of {', '.join(map(str, ids)) or 'none'}")
        return ids.index(cell_id)

    def virtual_functions(self, address: str) -> tuple[PCIDevice, ...]:
        """Return the virtual functions of the device at ``address``; O(devices)."""
        return tuple(each for each in self.devices if each.parent_address == address)

    def restrict(
        self, cpus: Collection[int] | None = None, cells: Collection[int] | None = None
    ) -> Machine:
        """Return the part that may use only these CPUs and the memory of these cells.

        None leaves that side whole; ids the machine does not have do not count. A cell is where
        memory is: one whose memory may not be used is none, and its CPUs are in no cell, as hwloc
        has it. The machine's memory and huge pages are then the sums over what may be used. The
        disk and the devices are no part of it. This is what a cpuset does (cpuset(7)).

        >>> two = (Core(0, 0, (0,)), Core(0, 1, (1,)))
        >>> Machine(cpus=(0, 1), cores=two, memory_bytes=0).restrict(cpus=[1]).cores
        (Core(package_id=0, core_id=1, cpus=(1,)),)

        :raises InvalidInput: if no CPU would be left
        """
        require_some("restrict: cpus", cpus)
        require_some("restrict: cells", cells)
        allowed = set(self.cpus if cpus is None else cpus)
        every = {cell.id for cell in self.cells}
        memory = every if cells is None else every.intersection(cells)
        kept = self._restricted_cells(allowed, memory)
        return dataclasses.replace(
            self,
            cpus=_within(self.cpus, allowed),
            offline_cpus=self.offline_cpus if cpus is None else _within(self.offline_cpus, allowed),
            cores=tuple(
                dataclasses.replace(core, cpus=_within(core.cpus, allowed))
                for core in self.cores
                if not allowed.isdisjoint(core.cpus)
            ),
            cells=kept,
            memory_bytes=self.memory_bytes if memory == every else _memory(kept),
            huge_pages=self.huge_pages if memory == every else _huge_pages(kept),
        )

    def _restricted_cells(self, cpus: set[int], memory: set[int]) -> tuple[NUMACell, ...]:
        staying = [(index, cell) for index, cell in enumerate(self.cells) if cell.id in memory]
        indexes, left = [index for index, _ in staying], {cell.id for _, cell in staying}
        return tuple(
            dataclasses.replace(
                cell,
                cpus=_within(cell.cpus, cpus),
                distances=tuple(cell.distances[index] for index in indexes if cell.distances),
                initiators=_within(cell.initiators, left),
            )
            for _, cell in staying
        )

    def without_use(self) -> Machine:
        """Return these facts without what changes as the machine is used.

        Free pages and disk space, the drivers of devices, how many virtual functions and mediated
        devices there are, and findings. Two readings of a machine to which nothing was done but
        used are then equal, and so is what :func:`~resource_objects.host.tree.provider_tree`
        makes of them.

        >>> pages = (Pages(4096, 8), Pages(2 * MIB, 2, free=1))
        >>> cell = NUMACell(0, (0,), 8 * MIB, pages)
        >>> machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, cells=(cell,))
        >>> machine.without_use().cells[0].pages[1]
        Pages(size_bytes=2097152, total=2, free=None)
        """
        return dataclasses.replace(
            self,
            cells=tuple(
                dataclasses.replace(cell, pages=_without_free(cell.pages)) for cell in self.cells
            ),
            huge_pages=_without_free(self.huge_pages),
            disk=None if self.disk is None else dataclasses.replace(self.disk, free_bytes=0),
            devices=tuple(map(_device_without_use, self.devices)),
            findings=(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: numbers, text, lists and dicts.

        >>> machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=MIB)
        >>> machine.to_dict()["cores"]
        [{'package_id': 0, 'core_id': 0, 'cpus': [0]}]
        """
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Finding):  # the reader has one kind of finding, and keeps no exception
        return {"subject": value.subject, "detail": value.detail}
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value.value if isinstance(value, enum.Enum) else value


def _without_free(every: tuple[Pages, ...]) -> tuple[Pages, ...]:
    return tuple(Pages(pages.size_bytes, pages.total) for pages in every)


def _device_without_use(device: PCIDevice) -> PCIDevice:
    types = tuple(dataclasses.replace(each, available=None) for each in device.mediated_types)
    return dataclasses.replace(device, driver=None, sriov_numvfs=None, mediated_types=types)


def _within(ids: Iterable[int], allowed: Collection[int]) -> tuple[int, ...]:
    return tuple(each for each in ids if each in allowed)


def _memory(cells: Iterable[NUMACell]) -> int:
    return sum(cell.memory_bytes for cell in cells)


def _huge_pages(cells: Iterable[NUMACell]) -> tuple[Pages, ...]:
    """Return the huge pages of several cells together; free is None if any cell's is."""
    totals: Counter[int] = Counter()
    free: dict[int, int | None] = {}
    for pages in (pages for cell in cells for pages in cell.huge_pages):
        totals[pages.size_bytes] += pages.total
        before = free.get(pages.size_bytes, 0)
        unknown = before is None or pages.free is None
        free[pages.size_bytes] = None if unknown else (before or 0) + (pages.free or 0)
    return tuple(Pages(size, totals[size], free[size]) for size in sorted(totals))


# --- checking -------------------------------------------------------------------------------------
# Checks of facts: what is refused is named, with the value and what was expected.


def require(condition: bool, what: str, value: object, expected: str) -> None:
    if not condition:
        raise InvalidInput("value", what, value, expected)


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def require_integer(
    what: str, value: object, *, least: int | None = 0, optional: bool = False
) -> None:
    """Refuse what is no integer (a bool is none) or less than ``least``."""
    if optional and value is None:
        return
    fits = is_integer(value) and (least is None or value >= least)  # type: ignore[operator]
    expected = "an integer" if least is None else f"an integer, {least} or more"
    require(fits, what, value, f"{expected}, or None" if optional else expected)


def require_text(what: str, value: object, *, optional: bool = False) -> None:
    fits = isinstance(value, str) and value != ""
    expected = "text, not empty, or None" if optional else "text, not empty"
    require(fits or (optional and value is None), what, value, expected)


def require_all(what: str, values: object, kind: type) -> None:
    """Refuse what is no tuple of things of one kind."""
    fits = isinstance(values, tuple) and all(isinstance(each, kind) for each in values)
    require(fits, what, values, f"a tuple of {kind.__name__}")


def require_ids(what: str, ids: object) -> None:
    good = (
        isinstance(ids, tuple)
        and all(map(is_integer, ids))
        and all(low < high for low, high in itertools.pairwise((-1, *ids)))
    )
    require(good, what, ids, "a tuple of integers, ascending, zero or more each")


def require_some(what: str, ids: object) -> None:
    """Refuse what is neither None nor a collection of integers."""
    fits = isinstance(ids, Collection) and all(map(is_integer, ids))
    require(ids is None or fits, what, ids, "a collection of ids, or None for all")


def require_apart(what: str, groups: Iterable[Iterable[object]]) -> None:
    """Refuse a thing that is in two groups, naming it."""
    seen: set[object] = set()
    for each in (each for group in groups for each in group):
        require(each not in seen, what, each, "each once")
        seen.add(each)


# --- PCI devices ----------------------------------------------------------------------------------
# What a PCI function is: ids, place, SR-IOV, what the kernel has made of it. Facts only.
#
# They are part of a :class:`~resource_objects.host.machine.Machine`, and say what a function is,
# never
# whether it may be taken; which of them may, :mod:`resource_objects.host.device_rules` says.


class DeviceKind(enum.StrEnum):
    """What a PCI function is to SR-IOV, in Nova's words."""

    PCI = "type-PCI"  #: a function that cannot be split
    PF = "type-PF"  #: a physical function: it can have virtual functions, and may have none now
    VF = "type-VF"  #: a virtual function of the device at ``parent_address``
    VDPA = "vdpa"  #: a virtual function that serves as a vDPA device

    @property
    def is_part(self) -> bool:
        """Whether it is split off a physical function.

        >>> [kind.value for kind in DeviceKind if kind.is_part]
        ['type-VF', 'vdpa']
        """
        return self in (DeviceKind.VF, DeviceKind.VDPA)


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkInterface:
    """A network interface that the kernel has made of a function, with its MAC address if known.

    >>> NetworkInterface("enp96s0f0", "3c:ec:ef:01:02:03").name
    'enp96s0f0'
    """

    name: str
    mac: str | None = None

    def __post_init__(self) -> None:
        require_text("NetworkInterface.name", self.name)
        require_text("NetworkInterface.mac", self.mac, optional=True)


@dataclasses.dataclass(frozen=True, slots=True)
class MediatedType:
    """A type of mediated device (a vGPU) that the driver of a function can make.

    ``available`` is how many more of it could be made now; making one of another type may lower it.
    ``device_api`` is what the guest sees, ``vfio-pci``. What the driver does not say is None.

    >>> MediatedType("nvidia-256", name="GRID RTX6000-1Q", available=24).available
    24
    """

    id: str
    name: str | None = None
    available: int | None = None
    device_api: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        require_text("MediatedType.id", self.id)
        for name in ("name", "device_api", "description"):
            require_text(f"MediatedType.{name}", getattr(self, name), optional=True)
        require_integer("MediatedType.available", self.available, optional=True)


_TEXTS = ("address", "vendor_id", "product_id", "class_id")
_OPTIONAL_TEXTS = (
    "parent_address",
    "driver",
    "revision",
    "subsystem_vendor_id",
    "subsystem_product_id",
    "uuid",
)


@dataclasses.dataclass(frozen=True, slots=True)
class PCIDevice:
    """A PCI function. Ids are lower-case hexadecimal without ``0x``, as ``lspci -n`` prints them.

    ``class_id`` has six digits: class, subclass, programming interface. ``numa_node`` is the id of
    a cell, None where the firmware does not say; ``parent_address`` is the physical function of a
    virtual one. ``sriov_totalvfs`` is how many virtual functions there could be and
    ``sriov_numvfs`` how many there are; None for a function without SR-IOV. ``interfaces`` are the
    network interfaces on it (of a switch also those that stand for its virtual functions),
    ``vdpa`` the vDPA devices made of it, both by name; ``mediated_types`` the types of mediated
    devices that it offers, by id. ``uuid`` is what its driver calls this very one, wherever it is
    plugged in (``GPU-...`` of NVIDIA's).

    >>> PCIDevice("0000:3b:00.0", vendor_id="10de", product_id="2330", class_id="030200").kind
    <DeviceKind.PCI: 'type-PCI'>
    """

    address: str
    vendor_id: str
    product_id: str
    class_id: str
    numa_node: int | None = None
    kind: DeviceKind = DeviceKind.PCI
    parent_address: str | None = None
    sriov_totalvfs: int | None = None
    sriov_numvfs: int | None = None
    driver: str | None = None
    revision: str | None = None
    subsystem_vendor_id: str | None = None
    subsystem_product_id: str | None = None
    interfaces: tuple[NetworkInterface, ...] = ()
    vdpa: tuple[str, ...] = ()
    mediated_types: tuple[MediatedType, ...] = ()
    uuid: str | None = None

    def __post_init__(self) -> None:
        for name in _TEXTS:
            require_text(f"PCIDevice.{name}", getattr(self, name))
        for name in _OPTIONAL_TEXTS:
            require_text(f"PCIDevice.{name}", getattr(self, name), optional=True)
        for name in ("numa_node", "sriov_totalvfs", "sriov_numvfs"):
            require_integer(f"PCIDevice.{name}", getattr(self, name), optional=True)
        is_kind = isinstance(self.kind, DeviceKind)
        require(is_kind, "PCIDevice.kind", self.kind, "a DeviceKind")
        has_parent = self.parent_address not in (None, self.address)
        good = has_parent if self.kind.is_part else self.parent_address is None
        expected = "another address for a VF, None for any other"
        require(good, "PCIDevice.parent_address", self.parent_address, expected)
        self._check_made_of_it()

    def _check_made_of_it(self) -> None:
        require_all("PCIDevice.interfaces", self.interfaces, NetworkInterface)
        require_all("PCIDevice.mediated_types", self.mediated_types, MediatedType)
        require_all("PCIDevice.vdpa", self.vdpa, str)
        names = ([each.name] for each in self.interfaces)
        require_apart("interface of PCIDevice.interfaces", names)
        ids = ([each.id] for each in self.mediated_types)
        require_apart("id of PCIDevice.mediated_types", ids)
