"""What a machine has, as data: CPUs, cores, NUMA cells, memory pages, a disk, PCI devices.

Facts only: nothing here says what is allocated, reserved or offered, and nothing here reads a file.
:func:`resource_objects.host.discovery.discover` returns a :class:`Machine`; a test may write one
down. An instance is consistent, or its constructor raised
:class:`~resource_objects.exceptions.InvalidInput`.

The words are the kernel's and Nova's: a *CPU* is a logical CPU (a hardware thread), a *core* is the
CPUs that share one execution core, a *package* is the chip in one socket, a *cell* is a NUMA node.
Memory is in bytes unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from oslo_utils import units

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
    "device_kind",
    "order_devices",
    "sum_huge_pages",
]

#: Bytes in a mebibyte, the unit of ``MEMORY_MB``.
MIB = units.Mi

# The kinds of fields. A constructor checks each field by the name of its kind, see _KINDS.
#: Text, not empty.
Text: TypeAlias = str
#: An integer, zero or more.
Count: TypeAlias = int
#: Several of these.
Counts: TypeAlias = tuple[int, ...]
#: Ids, zero or more each, ascending.
Ids: TypeAlias = tuple[int, ...]


class _Facts:
    """A data class whose constructor checks each field by its annotation."""

    __slots__ = ()

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Core(_Facts):
    """A core and its online CPUs (threads).

    ``core_id`` is the hardware's number, which repeats from package to package: only ``cpus``
    identifies a core. Both ids are None where the kernel does not know them.

    >>> Core(package_id=0, core_id=3, cpus=(3, 19))
    Core(package_id=0, core_id=3, cpus=(3, 19))
    """

    package_id: int | None
    core_id: int | None
    cpus: Ids

    def __post_init__(self) -> None:
        _check_fields(self)
        _require(self.cpus, "Core.cpus", self.cpus, "at least one CPU")


@dataclasses.dataclass(frozen=True, slots=True)
class Pages(_Facts):
    """The memory pages of one size: their number, and the number of free ones.

    ``free`` is None for base pages: the kernel's count leaves out pages that it can reclaim.

    >>> Pages(size_bytes=2 * MIB, total=512, free=500).memory_bytes // MIB
    1024
    """

    size_bytes: Count
    total: Count
    free: Count | None = None

    def __post_init__(self) -> None:
        _check_fields(self)
        _require(self.size_bytes, "Pages.size_bytes", self.size_bytes, "1 or more")
        is_valid = self.free is None or self.free <= self.total
        _require(is_valid, "Pages.free", self.free, "0 to total, or None")

    @property
    def memory_bytes(self) -> int:
        """The memory in these pages, free or not."""
        return self.size_bytes * self.total


@dataclasses.dataclass(frozen=True, slots=True)
class NUMACell(_Facts):
    """A NUMA node: online CPUs and the memory next to them. Either may be missing.

    ``pages`` ascend by size, base pages first; they are at most the memory. ``package_id`` (Nova's
    *socket*) is None if the CPUs of the cell are in several packages or there are none.
    ``distances`` has one figure for each cell of the machine, in the machine's order (10 is the
    cell itself), or is empty if they are not known. ``initiators`` are the ids of the cells whose
    CPUs reach this memory best, if the firmware reports them.

    >>> NUMACell(id=0, cpus=(0, 1), memory_bytes=64 * MIB).memory_mb
    64
    """

    id: Count
    cpus: Ids
    memory_bytes: Count
    pages: tuple[Pages, ...] = ()
    package_id: int | None = None
    distances: Counts = ()
    initiators: Ids = ()

    def __post_init__(self) -> None:
        _check_fields(self)
        _check_sizes("NUMACell.pages", self.pages)
        least = sum(pages.memory_bytes for pages in self.pages)
        size = self.memory_bytes
        _require(size >= least, "NUMACell.memory_bytes", size, f"{least} or more, for its pages")

    @property
    def memory_mb(self) -> int:
        """The memory in whole MiB."""
        return self.memory_bytes // MIB

    @property
    def huge_pages(self) -> tuple[Pages, ...]:
        """The pages larger than the base page, smallest first."""
        return self.pages[1:]


@dataclasses.dataclass(frozen=True, slots=True)
class Disk(_Facts):
    """The file system of ``path``: its size, and the space that an ordinary user may still write.

    >>> Disk("/srv", total_bytes=1024**4, free_bytes=1024**3).total_gb
    1024
    """

    path: Text
    total_bytes: Count
    free_bytes: Count

    def __post_init__(self) -> None:
        _check_fields(self)
        is_valid = self.free_bytes <= self.total_bytes
        _require(is_valid, "Disk.free_bytes", self.free_bytes, "0 to total_bytes")

    @property
    def total_gb(self) -> int:
        """The size in whole GiB, the unit of ``DISK_GB``."""
        return self.total_bytes // units.Gi


# --- PCI devices ----------------------------------------------------------------------------------


class DeviceKind(enum.StrEnum):
    """The role of a PCI function in SR-IOV, in Nova's words."""

    PCI = "type-PCI"  #: a function without SR-IOV
    PF = "type-PF"  #: a physical function: it can have virtual functions, and may have none now
    VF = "type-VF"  #: a virtual function of the device at ``parent_address``
    VDPA = "vdpa"  #: a virtual function that serves as a vDPA device

    @property
    def is_part(self) -> bool:
        """Whether it is a virtual function.

        >>> [kind.value for kind in DeviceKind if kind.is_part]
        ['type-VF', 'vdpa']
        """
        return self in (DeviceKind.VF, DeviceKind.VDPA)


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkInterface(_Facts):
    """A network interface of a PCI function, with its MAC address if that is known.

    >>> NetworkInterface("enp96s0f0", "3c:ec:ef:01:02:03").name
    'enp96s0f0'
    """

    name: Text
    mac: Text | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MediatedType(_Facts):
    """A type of mediated device (a vGPU) that the driver of a PCI function can create.

    ``available`` is the number of further devices of this type that could be created now; a device
    of another type may lower it. ``device_api`` is the interface to the guest, ``vfio-pci``.

    >>> MediatedType("nvidia-256", name="GRID RTX6000-1Q", available=24).available
    24
    """

    id: Text
    name: Text | None = None
    available: Count | None = None
    device_api: Text | None = None
    description: Text | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PCIDevice(_Facts):
    """A PCI function. Ids are lower-case hexadecimal without ``0x``, as ``lspci -n`` prints them.

    ``class_id`` has six digits: class, subclass, programming interface. ``numa_node`` is the id of
    a cell, None if the firmware does not report it; ``parent_address`` is the physical function of
    a virtual one. ``sriov_totalvfs`` is the maximum number of virtual functions and
    ``sriov_numvfs`` the present number; None without SR-IOV. ``interfaces`` are its network
    interfaces (of a switch also those that represent virtual functions), ``vdpa`` its vDPA devices,
    ``mediated_types`` its types of mediated devices. ``uuid`` is the driver's name of this very
    device wherever it is plugged in (``GPU-...`` of NVIDIA's).

    >>> PCIDevice("0000:3b:00.0", vendor_id="10de", product_id="2330", class_id="030200").kind
    <DeviceKind.PCI: 'type-PCI'>
    """

    address: Text
    vendor_id: Text
    product_id: Text
    class_id: Text
    numa_node: Count | None = None
    kind: DeviceKind = DeviceKind.PCI
    parent_address: Text | None = None
    sriov_totalvfs: Count | None = None
    sriov_numvfs: Count | None = None
    driver: Text | None = None
    revision: Text | None = None
    subsystem_vendor_id: Text | None = None
    subsystem_product_id: Text | None = None
    interfaces: tuple[NetworkInterface, ...] = ()
    vdpa: tuple[str, ...] = ()
    mediated_types: tuple[MediatedType, ...] = ()
    uuid: Text | None = None

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.kind.is_part:
            is_valid = self.parent_address not in (None, self.address)
        else:
            is_valid = self.parent_address is None
        expected = "another address for a VF, None for any other"
        _require(is_valid, "PCIDevice.parent_address", self.parent_address, expected)
        names = [interface.name for interface in self.interfaces]
        _check_unique("interface of PCIDevice.interfaces", names)
        ids = [kind.id for kind in self.mediated_types]
        _check_unique("id of PCIDevice.mediated_types", ids)


def device_kind(parent: str | None, vdpa: Collection[str], totalvfs: int | None) -> DeviceKind:
    """Return the role of a function in SR-IOV from its physical function and its own facts."""
    if parent is not None:
        return DeviceKind.VDPA if vdpa else DeviceKind.VF
    return DeviceKind.PF if totalvfs else DeviceKind.PCI


def order_devices(devices: Iterable[PCIDevice]) -> tuple[PCIDevice, ...]:
    """Return devices by address; the parent of another one is a physical function in any case."""
    # a longer domain is a larger one
    ordered = sorted(devices, key=lambda device: (len(device.address), device.address))
    parents = {device.parent_address for device in ordered}
    return tuple(
        dataclasses.replace(device, kind=DeviceKind.PF)
        if device.kind is DeviceKind.PCI and device.address in parents
        else device
        for device in ordered
    )


# --- the machine ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine(_Facts):
    """A machine, as it describes itself.

    Facts: ``hostname`` ``architecture`` ``cpus`` (online) ``offline_cpus`` ``cores``
    ``memory_bytes`` ``cells`` ``huge_pages`` ``disk`` ``devices``; ``findings`` are the facts that
    could not be read. Counts: :attr:`packages` :attr:`physical_cores` :attr:`threads_per_core`
    :attr:`memory_mb`. Other forms: :meth:`cell` :meth:`restrict` :meth:`without_use`
    :meth:`to_dict`.

    Each online CPU is on exactly one core and in at most one cell. ``memory_bytes`` and
    ``huge_pages`` are the kernel's figures for the whole machine. They may differ from the sums
    over the cells: old kernels count memory that they reserve as a cell's, and do not report the
    cells of huge pages. A device's ``numa_node`` may be a cell that is not in ``cells``.

    >>> cores = [Core(0, 0, (0, 2)), Core(0, 1, (1, 3))]
    >>> machine = Machine(cpus=(0, 1, 2, 3), cores=tuple(cores), memory_bytes=512 * MIB)
    >>> machine.packages, machine.physical_cores, machine.threads_per_core, machine.memory_mb
    (1, 2, 2, 512)
    """

    cpus: Ids
    cores: tuple[Core, ...]
    memory_bytes: Count
    cells: tuple[NUMACell, ...] = ()
    hostname: Text | None = None
    architecture: Text | None = None
    offline_cpus: Ids = ()
    huge_pages: tuple[Pages, ...] = ()
    disk: Disk | None = None
    devices: tuple[PCIDevice, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        _check_fields(self)
        _require(self.cpus, "Machine.cpus", self.cpus, "at least one CPU")
        _check_sizes("Machine.huge_pages", self.huge_pages)
        _check_unique("CPU of Machine.offline_cpus", (*self.cpus, *self.offline_cpus))
        on_cores = [cpu for core in self.cores for cpu in core.cpus]
        _check_unique("CPU of Machine.cores", on_cores)
        on_cores.sort()
        _require(on_cores == [*self.cpus], "Machine.cores", on_cores, "the online CPUs")
        ids = tuple(cell.id for cell in self.cells)
        _require(_are_ids(ids), "ids of Machine.cells", ids, _ASCENDING)
        in_cells = [cpu for cell in self.cells for cpu in cell.cpus]
        _check_unique("CPU of Machine.cells", in_cells)
        offline = sorted(set(in_cells).difference(self.cpus))
        _require(not offline, "Machine.cells", offline, "online CPUs only")
        for cell in self.cells:
            is_valid = len(cell.distances) in (0, len(ids))
            _require(is_valid, "NUMACell.distances", cell.distances, "one per cell, or none")
        _check_unique("address of Machine.devices", [device.address for device in self.devices])

    @property
    def packages(self) -> int:
        """The number of packages, 1 or more."""
        ids = {core.package_id for core in self.cores} | {cell.package_id for cell in self.cells}
        return max(1, len(ids - {None}))

    @property
    def physical_cores(self) -> int:
        """The number of cores with an online CPU."""
        return len(self.cores)

    @property
    def threads_per_core(self) -> int:
        """The maximum number of online CPUs of a core: 1 without SMT. Hybrid machines mix."""
        return max(len(core.cpus) for core in self.cores)

    @property
    def memory_mb(self) -> int:
        """The memory in whole MiB."""
        return self.memory_bytes // MIB

    def cell(self, cell_id: int) -> NUMACell:
        """Return the cell with an id; ids need not be consecutive.

        :raises InvalidInput: if there is none
        """
        ids = [cell.id for cell in self.cells]
        expected = f"one of {', '.join(map(str, ids)) or 'none'}"
        _require(cell_id in ids, "cell", cell_id, expected)
        return self.cells[ids.index(cell_id)]

    def restrict(
        self, cpus: Collection[int] | None = None, cells: Collection[int] | None = None
    ) -> Machine:
        """Return the part of the machine with these CPUs and the memory of these cells.

        None leaves that side whole; ids that the machine does not have are ignored. A cell without
        its memory is left out, and its CPUs are then in no cell, as in hwloc. Memory and huge pages
        become the sums over the cells; the disk and the devices stay. A cpuset has this effect
        (cpuset(7)).

        >>> two = (Core(0, 0, (0,)), Core(0, 1, (1,)))
        >>> Machine(cpus=(0, 1), cores=two, memory_bytes=0).restrict(cpus=[1]).cores
        (Core(package_id=0, core_id=1, cpus=(1,)),)

        :raises InvalidInput: if no CPU would be left
        """
        for subject, ids in (("restrict: cpus", cpus), ("restrict: cells", cells)):
            are_ids = isinstance(ids, Collection) and all(map(_is_integer, ids))
            _require(ids is None or are_ids, subject, ids, "a collection of ids, or None for all")
        allowed = set(self.cpus if cpus is None else cpus)
        all_cells = {cell.id for cell in self.cells}
        memory = all_cells if cells is None else all_cells.intersection(cells)
        positions = [place for place, cell in enumerate(self.cells) if cell.id in memory]
        restricted = tuple(
            dataclasses.replace(
                cell,
                cpus=_only(cell.cpus, allowed),
                distances=tuple(cell.distances[place] for place in positions if cell.distances),
                initiators=_only(cell.initiators, memory),
            )
            for cell in self.cells
            if cell.id in memory
        )
        is_whole = memory == all_cells
        return dataclasses.replace(
            self,
            cpus=_only(self.cpus, allowed),
            offline_cpus=self.offline_cpus if cpus is None else _only(self.offline_cpus, allowed),
            cores=tuple(
                dataclasses.replace(core, cpus=_only(core.cpus, allowed))
                for core in self.cores
                if not allowed.isdisjoint(core.cpus)
            ),
            cells=restricted,
            memory_bytes=self.memory_bytes if is_whole else sum(c.memory_bytes for c in restricted),
            huge_pages=self.huge_pages if is_whole else sum_huge_pages(restricted),
        )

    def without_use(self) -> Machine:
        """Return the machine without the facts that change while it is used.

        These are free pages and disk space, the drivers of devices, the numbers of virtual
        functions and of mediated devices, and findings. Two readings of an unchanged machine are
        then equal, and so are the trees of :func:`~resource_objects.host.tree.provider_tree`.

        >>> pages = (Pages(4096, 8), Pages(2 * MIB, 2, free=1))
        >>> cell = NUMACell(0, (0,), 8 * MIB, pages)
        >>> machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, cells=(cell,))
        >>> machine.without_use().cells[0].pages[1]
        Pages(size_bytes=2097152, total=2, free=None)
        """
        replace = dataclasses.replace

        def unused(pages: tuple[Pages, ...]) -> tuple[Pages, ...]:
            return tuple(replace(of_size, free=None) for of_size in pages)

        return replace(
            self,
            cells=tuple(replace(cell, pages=unused(cell.pages)) for cell in self.cells),
            huge_pages=unused(self.huge_pages),
            disk=None if self.disk is None else replace(self.disk, free_bytes=0),
            devices=tuple(
                replace(
                    device,
                    driver=None,
                    sriov_numvfs=None,
                    mediated_types=tuple(
                        replace(kind, available=None) for kind in device.mediated_types
                    ),
                )
                for device in self.devices
            ),
            findings=(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: numbers, text, lists and dicts.

        >>> machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=MIB)
        >>> machine.to_dict()["cores"]
        [{'package_id': 0, 'core_id': 0, 'cpus': [0]}]
        """
        data: dict[str, Any] = _plain(self)
        return data


def sum_huge_pages(cells: Iterable[NUMACell]) -> tuple[Pages, ...]:
    """Return the huge pages of cells together; ``free`` is None if it is None in any cell."""
    totals: Counter[int] = Counter()
    free: dict[int, int | None] = {}
    for pages in itertools.chain.from_iterable(cell.huge_pages for cell in cells):
        size = pages.size_bytes
        totals[size] += pages.total
        before = free.get(size, 0)
        free[size] = None if before is None or pages.free is None else before + pages.free
    return tuple(Pages(size, totals[size], free[size]) for size in sorted(totals))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Finding):  # a reader has one kind of finding, and keeps no exception
        return {"subject": value.subject, "detail": value.detail}
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    return value.value if isinstance(value, enum.Enum) else value


def _only(ids: Iterable[int], allowed: Collection[int]) -> tuple[int, ...]:
    return tuple(number for number in ids if number in allowed)


# --- checks ---------------------------------------------------------------------------------------

_ASCENDING = "a tuple of integers, ascending, zero or more each"


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_ids(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and all(map(_is_integer, value))
        and all(low < high for low, high in itertools.pairwise((-1, *value)))
    )


def _tuple_of(kind: type) -> tuple[Callable[[Any], bool], str]:
    def are_all(value: object) -> bool:
        return isinstance(value, tuple) and all(isinstance(item, kind) for item in value)

    return are_all, f"a tuple of {kind.__name__}"


#: The check of a field by its annotation, and what it allows.
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "Text": (lambda value: isinstance(value, str) and value != "", "text, not empty"),
    "int": (_is_integer, "an integer"),
    "Count": (lambda value: _is_integer(value) and value >= 0, "an integer, 0 or more"),
    "Counts": (
        lambda value: isinstance(value, tuple) and all(_is_integer(n) and n >= 0 for n in value),
        "a tuple of integers, 0 or more",
    ),
    "Ids": (_are_ids, _ASCENDING),
    "DeviceKind": (lambda value: isinstance(value, DeviceKind), "a DeviceKind"),
    "Disk": (lambda value: isinstance(value, Disk), "a Disk"),
    **{
        f"tuple[{kind.__name__}, ...]": _tuple_of(kind)
        for kind in (str, Core, Pages, NUMACell, NetworkInterface, MediatedType, PCIDevice, Finding)
    },
}


@functools.cache
def _checks(kind: Any) -> tuple[tuple[str, Callable[[Any], bool], str, bool], ...]:
    """Return the name, check, expected value and whether None is allowed, of each field."""
    checks = []
    for field in dataclasses.fields(kind):
        annotation, _, optional = field.type.partition(" | ")
        is_valid, expected = _KINDS[annotation]
        expected += ", or None" if optional else ""
        checks.append((field.name, is_valid, expected, bool(optional)))
    return tuple(checks)


def _check_fields(instance: Any) -> None:
    kind: Any = type(instance)
    for name, is_valid, expected, is_optional in _checks(kind):
        value = getattr(instance, name)
        if not is_valid(value) and not (is_optional and value is None):
            raise InvalidInput("value", f"{kind.__name__}.{name}", value, expected)


def _require(condition: object, subject: str, value: object, expected: str) -> None:
    if not condition:
        raise InvalidInput("value", subject, value, expected)


def _check_unique(subject: str, values: Iterable[object]) -> None:
    seen: set[object] = set()
    for value in values:
        _require(value not in seen, subject, value, "each once")
        seen.add(value)


def _check_sizes(subject: str, pages: Iterable[Pages]) -> None:
    sizes = tuple(of_size.size_bytes for of_size in pages)
    _require(_are_ids(sizes), f"sizes of {subject}", sizes, _ASCENDING)
