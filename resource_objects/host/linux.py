"""Reading a Linux machine from /proc and /sys: the one running, or one captured in a directory.

What may be missing, empty or unreadable, and is then None or (): host name, architecture, offline
CPUs, the package and number of a core, SMT siblings (each CPU is then a core), huge pages,
distances and initiators of cells, and a device's NUMA node, SR-IOV figures, driver, revision and
subsystem, the network interfaces and vDPA devices made of it, and the types of mediated devices
that it offers.

One bad fact does not cost the machine: what else is missing, says nonsense or contradicts the rest
is left out alone, and a :class:`~resource_objects.findings.Finding` names it:

=============================  ====================================================================
what cannot be read            without it
=============================  ====================================================================
ids or class of a PCI device   the device is not there
another fact of it             that fact is unknown
memory of a NUMA node          the node has none
CPUs of a NUMA node            it has none; a CPU of two nodes is in the first
huge pages of a size           those are not there; more than the memory: no pages of that node
distances of a node            unknown
siblings of a CPU              it is a core by itself
memory of the machine          that of its NUMA nodes, or none
=============================  ====================================================================

There have to be CPUs (``/sys/devices/system/cpu``), and what a cpuset allows has to be readable if
it is asked for: without it too much would be offered.

Files in these two trees are formatted by the kernel on each read, so each is read once at most.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.findings import Finding
from resource_objects.host import sysfs
from resource_objects.host.machine import (
    Core,
    DeviceKind,
    Disk,
    Machine,
    MediatedType,
    NetworkInterface,
    NUMACell,
    Pages,
    PCIDevice,
)
from resource_objects.host.sysfs import Tree

__all__ = ["read_disk", "read_machine"]

#: The base page of most architectures; a capture does not say its own.
_CAPTURED_PAGE_SIZE = 4096
_HOSTNAME = "/proc/sys/kernel/hostname"
_ARCHITECTURE = "/proc/sys/kernel/arch"  # Linux 6.1 and later

Path = str | os.PathLike[str]


def read_machine(
    root: Path = "/",
    disk_path: Path | None = None,
    *,
    within_cgroup: bool = False,
    page_size_bytes: int | None = None,
    strict: bool = False,
) -> Machine:
    """Return the machine whose ``proc`` and ``sys`` are below ``root``.

    ``disk_path`` is where consumers' files go, on the running system whatever the root is; by
    default ``/`` for the running machine and no disk for a captured one. The facts are those of
    the whole machine, as an agent that hands it out needs them; ``within_cgroup`` leaves what the
    cpuset of this process (of the one that took the capture) allows, as hwloc does. Memory limits
    of cgroups are no facts of the machine and do not count. ``page_size_bytes`` is the base page:
    by default the running kernel's, and 4096 for a capture. ``strict`` refuses the whole machine
    for the first fact that cannot be read, instead of a finding.

    Costs three small reads per core and ten per PCI function. A CPU or device that comes or goes
    while it reads may be a finding; read again.

    >>> read_machine("/nowhere")
    Traceback (most recent call last):
    resource_objects.exceptions.DiscoveryError: /nowhere cannot be read: expected a directory ...

    :raises DiscoveryError: if something that must be there is missing; if strict, also for what
        else would be a finding. ``subject`` is the file, ``detail`` what was expected of it
    :raises InvalidInput: if the page size is no positive integer, or a path is none
    """
    _require_path("root", root)
    if disk_path is not None:
        _require_path("disk_path", disk_path)
    tree = Tree(root, strict=strict)
    page_size = _page_size(tree, page_size_bytes)
    try:
        machine = _machine(tree, disk_path, page_size)
        return _allowed(tree, machine) if within_cgroup else machine
    except InvalidInput as error:  # files that are well-formed each and contradict each other
        raise DiscoveryError(tree.root, str(error)) from error


def _require_path(what: str, path: object) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        raise InvalidInput("value", what, path, "a path")


def _machine(tree: Tree, disk_path: Path | None, page_size_bytes: int) -> Machine:
    cpus, offline = read_cpus(tree)
    cores = read_cores(tree, cpus)
    packages = {cpu: core.package_id for core in cores for cpu in core.cpus}
    memory = read_memory(tree, packages, page_size_bytes)
    devices = read_devices(tree)
    hostname = tree.tolerated(None, _name, tree, _HOSTNAME)
    architecture = tree.tolerated(None, _name, tree, _ARCHITECTURE)
    return Machine(
        cpus=cpus,
        offline_cpus=offline,
        cores=cores,
        memory_bytes=memory.memory_bytes,
        cells=memory.cells,
        huge_pages=memory.huge_pages,
        devices=devices,
        disk=_disk(tree, disk_path),
        hostname=hostname or (os.uname().nodename or None if tree.live else None),
        architecture=architecture or (os.uname().machine if tree.live else None),
        findings=tuple(Finding(error.name, detail=error.detail) for error in tree.findings),
    )


def _allowed(tree: Tree, machine: Machine) -> Machine:
    allowed = read_allowed(tree)
    return machine.restrict(cpus=allowed.cpus, cells=allowed.cells)


def _page_size(tree: Tree, page_size_bytes: int | None) -> int:
    if page_size_bytes is not None:
        is_integer = isinstance(page_size_bytes, int) and not isinstance(page_size_bytes, bool)
        if not is_integer or page_size_bytes < 1:
            raise InvalidInput("value", "page_size_bytes", page_size_bytes, "an integer, 1 or more")
        return page_size_bytes
    return os.sysconf("SC_PAGE_SIZE") if tree.live else _CAPTURED_PAGE_SIZE


def _disk(tree: Tree, disk_path: Path | None) -> Disk | None:
    return None if disk_path is None and not tree.live else read_disk(disk_path or "/")


def read_disk(disk_path: Path) -> Disk:
    """Return the file system of a path; what root alone may fill does not count as free.

    :raises DiscoveryError: if the path is none
    """
    path = os.fsdecode(disk_path)
    try:
        found = os.statvfs(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DiscoveryError(path, f"{reason}; expected a path on the disk to offer") from error
    size = found.f_frsize * found.f_blocks
    return Disk(path, size, min(found.f_frsize * found.f_bavail, size))


def _name(tree: Tree, path: str) -> str | None:
    text = (tree.optional(path) or "").strip()
    if text and not re.fullmatch(r"[\x21-\x7e]{1,255}", text):
        raise tree.garbled(path, text, "a name of printable characters")
    return text or None


# --- CPUs and cores -------------------------------------------------------------------------------
# CPUs and cores from ``/sys/devices/system/cpu``.
#
# Source: the kernel's ``Documentation/admin-guide/cputopology.rst`` and
# ``Documentation/ABI/stable/sysfs-devices-system-cpu``.

CPU = "/sys/devices/system/cpu"

# The CPUs of a core, and of a package: newest name first.
_CORE = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
_PACKAGE = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")


def read_cpus(tree: Tree) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the online CPUs and the CPUs that are present but offline.

    Old kernels have no ``online`` and ``present`` files: then each CPU says for itself.

    :raises DiscoveryError: if there are no CPUs, or what a file says is no list of them
    """
    names = tree.names(CPU)
    if names is None:
        raise tree.error(CPU, "expected a directory with one cpuN for each CPU")
    each = sysfs.numbered(names, "cpu")
    online = tree.tolerated(None, sysfs.ids, tree, [f"{CPU}/online"])
    cpus = (
        online[1]
        if online
        else tuple(cpu for cpu in each if tree.tolerated(False, _is_online, tree, cpu))
    )
    if not cpus:
        raise tree.error(f"{CPU}/online" if online else CPU, "expected at least one CPU online")
    present = tree.tolerated(None, sysfs.ids, tree, [f"{CPU}/present"])
    return cpus, tuple(sorted(set(present[1] if present else each).difference(cpus)))


def read_cores(tree: Tree, cpus: tuple[int, ...]) -> tuple[Core, ...]:
    """Return the cores of the online CPUs, in the order of their first CPU.

    Only the first CPU of each core is asked: the files of its siblings say the same.

    :raises DiscoveryError: if cores overlap, or a file is garbled
    """
    online = frozenset(cpus)
    seen: set[int] = set()
    packages = _Packages(tree)
    cores = []
    for cpu in cpus:
        if cpu in seen:
            continue
        alone: tuple[str, tuple[int, ...]] = f"{CPU}/cpu{cpu}", (cpu,)
        path, siblings = tree.tolerated(alone, _siblings, tree, cpu)
        core = tuple(each for each in siblings if each in online)
        if not seen.isdisjoint(core):
            clash = ", ".join(map(str, sorted(seen.intersection(core))))
            tree.note(tree.error(path, f"expected CPUs of this core only, got {clash} of another"))
            core = tuple(each for each in core if each not in seen)
        seen.update(core)
        package = tree.tolerated(None, packages.of, cpu)
        cores.append(Core(package, tree.tolerated(None, _core_id, tree, cpu), core))
    return tuple(cores)


def _is_online(tree: Tree, cpu: int) -> bool:
    path = f"{CPU}/cpu{cpu}/online"
    text = tree.optional(path)
    if text is None:  # a CPU that cannot be taken offline has no such file
        return True
    if text.strip() not in ("0", "1"):
        raise tree.garbled(path, text, "0 or 1")
    return text.strip() == "1"


def _siblings(tree: Tree, cpu: int) -> tuple[str, tuple[int, ...]]:
    """Return the CPUs of the core of ``cpu``, and the file that says so."""
    directory = f"{CPU}/cpu{cpu}"
    found = sysfs.ids(tree, (f"{directory}/topology/{name}" for name in _CORE))
    if found is None:  # no SMT facts (a kernel without topology): the CPU is a core
        if tree.names(directory) is None:
            raise tree.error(directory, "expected a directory, for the CPU is online")
        return directory, (cpu,)
    if cpu not in found[1]:
        raise tree.error(found[0], f"expected CPU {cpu} itself to be among its core's CPUs")
    return found


def _core_id(tree: Tree, cpu: int) -> int | None:
    core = sysfs.optional_integer(tree, f"{CPU}/cpu{cpu}/topology/core_id")
    return core if core is not None and core >= 0 else None


class _Packages:
    """Which package a CPU is of. Where the kernel writes -1 (POWER), packages are counted here."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._counted: dict[tuple[int, ...], int] = {}

    def of(self, cpu: int) -> int | None:
        topology = f"{CPU}/cpu{cpu}/topology"
        package = sysfs.optional_integer(self._tree, f"{topology}/physical_package_id")
        if package is None or package >= 0:
            return package
        found = sysfs.ids(self._tree, (f"{topology}/{name}" for name in _PACKAGE))
        return None if found is None else self._counted.setdefault(found[1], len(self._counted))


# --- memory and cells -----------------------------------------------------------------------------
# Memory, pages and NUMA cells from ``/proc/meminfo`` and ``/sys/devices/system/node``.
#
# Source: the kernel's ``Documentation/ABI/stable/sysfs-devices-node``,
# ``Documentation/admin-guide/mm/hugetlbpage.rst``, ``Documentation/admin-guide/mm/numaperf.rst``
# and,
# for meminfo, ``Documentation/filesystems/proc.rst``. Its kB are KiB.

NODE = "/sys/devices/system/node"
MEMINFO = "/proc/meminfo"
_HUGE_PAGES = "/sys/kernel/mm/hugepages"
_KIB = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a machine and how it is spread."""

    memory_bytes: int
    cells: tuple[NUMACell, ...]
    huge_pages: tuple[Pages, ...]


def read_memory(tree: Tree, packages: Mapping[int, int | None], page_size_bytes: int) -> Memory:
    """Return the memory, given the package of each online CPU.

    A kernel without NUMA (no ``node`` directory) is one cell, number 0, with all CPUs and all
    memory. Without ``/proc/meminfo`` the memory is the sum over the cells.

    :raises DiscoveryError: if a cell's memory, CPUs or distances are missing or garbled, a CPU is
        in no cell or in two, or nothing says how much memory there is
    """
    total = tree.optional(MEMINFO)
    huge_pages = _machine_huge_pages(tree, total)
    names = tree.names(NODE)
    cells: tuple[NUMACell, ...]
    if names is None:
        cells = (_only_cell(tree, packages, huge_pages, page_size_bytes),)
    else:
        spread = _Spread(tree, _cell_ids(tree, names), packages, huge_pages, page_size_bytes)
        cells = spread.cells()
    in_cells = sum(cell.memory_bytes for cell in cells)
    size = in_cells
    if total is not None:
        size = tree.tolerated(in_cells, _memory_bytes, tree, MEMINFO, total)
    return Memory(size, cells, huge_pages)


def _only_cell(
    tree: Tree, packages: Mapping[int, int | None], huge: tuple[Pages, ...], page_size_bytes: int
) -> NUMACell:
    what = "MemTotal, for there are no NUMA nodes that say it"
    size = tree.tolerated(0, _memory_of, tree, MEMINFO, what)
    cpus = tuple(sorted(packages))
    pages = _all_pages(tree, MEMINFO, size, huge, page_size_bytes)
    return NUMACell(0, cpus, size, pages, _one_package(cpus, packages))


def _memory_of(tree: Tree, path: str, what: str) -> int:
    return _memory_bytes(tree, path, tree.text(path, what))


def _cell_ids(tree: Tree, names: Collection[str]) -> tuple[int, ...]:
    found = tree.tolerated(None, sysfs.ids, tree, [f"{NODE}/online"])
    ids = found[1] if found else tuple(sysfs.numbered(names, "node"))
    if not ids:
        raise tree.error(NODE, "expected one nodeN at least")
    return ids


@dataclasses.dataclass(frozen=True, slots=True)
class _Spread:
    """Reads the cells of a kernel with NUMA."""

    tree: Tree
    ids: tuple[int, ...]
    packages: Mapping[int, int | None]
    huge_pages: tuple[Pages, ...]
    page_size_bytes: int

    def cells(self) -> tuple[NUMACell, ...]:
        """Return the cells, every online CPU in one at most."""
        owners: dict[int, int] = {}
        cells = []
        for each in self.ids:
            cell = self._cell(each)
            for cpu in cell.cpus:
                if owners.setdefault(cpu, cell.id) != cell.id:
                    path = f"{NODE}/node{cell.id}"
                    detail = f"CPU {cpu} is in node{owners[cpu]} too; expected one (numa=fake?)"
                    self.tree.note(self.tree.error(path, detail))
            own = tuple(cpu for cpu in cell.cpus if owners[cpu] == cell.id)
            cells.append(dataclasses.replace(cell, cpus=own))
        lost = sorted(set(self.packages).difference(owners))
        if lost:
            detail = f"CPU {lost[0]} is online and in no node; expected one"
            self.tree.note(self.tree.error(NODE, detail))
        return tuple(cells)

    def _cell(self, cell_id: int) -> NUMACell:
        path = f"{NODE}/node{cell_id}"
        meminfo = f"{path}/meminfo"
        tree, what = self.tree, "the MemTotal of this node"
        size = tree.tolerated(0, _memory_of, tree, meminfo, what)
        none: tuple[int, ...] = ()
        cpus = tree.tolerated(none, self._cpus, path)
        huge = self._huge_pages(path)
        return NUMACell(
            id=cell_id,
            cpus=cpus,
            memory_bytes=size,
            pages=_all_pages(tree, meminfo, size, huge, self.page_size_bytes),
            package_id=_one_package(cpus, self.packages),
            distances=tree.tolerated(none, self._distances, f"{path}/distance"),
            initiators=self._initiators(path),
        )

    def _cpus(self, path: str) -> tuple[int, ...]:
        """Return the online CPUs (old kernels list the offline ones here too)."""
        found = sysfs.ids(self.tree, (f"{path}/cpulist", f"{path}/cpumap"))
        if found is None:
            raise self.tree.error(f"{path}/cpulist", "missing; expected the CPUs of this node")
        return tuple(cpu for cpu in found[1] if cpu in self.packages)

    def _huge_pages(self, path: str) -> tuple[Pages, ...]:
        found = _huge_pages(self.tree, f"{path}/hugepages")
        if found is not None:
            return found
        # Kernels before 2.6.32 do not say which node huge pages are on; one node has them all.
        return self.huge_pages if len(self.ids) == 1 else ()

    def _distances(self, path: str) -> tuple[int, ...]:
        text = self.tree.optional(path)
        if text is None:
            return ()
        figures = text.split()
        good = all(re.fullmatch(r"[0-9]{1,9}", figure) for figure in figures)
        if not good or len(figures) != len(self.ids):
            raise self.tree.garbled(path, text, f"{len(self.ids)} distances, one per online node")
        return tuple(map(int, figures))

    def _initiators(self, path: str) -> tuple[int, ...]:
        """Return the cells with the best CPUs for this memory (access0 also counts devices)."""
        for access in ("access1", "access0"):
            names = self.tree.names(f"{path}/{access}/initiators")
            if names is not None:
                return tuple(each for each in sysfs.numbered(names, "node") if each in self.ids)
        return ()


def _one_package(cpus: tuple[int, ...], packages: Mapping[int, int | None]) -> int | None:
    found = {packages[cpu] for cpu in cpus}
    return found.pop() if len(found) == 1 else None


def _memory_bytes(tree: Tree, path: str, text: str) -> int:
    size = _field(text, "MemTotal", " kB")
    if size is None:
        raise tree.garbled(path, text, "a line such as MemTotal: 16384 kB")
    return size * _KIB


def _field(text: str, name: str, unit: str = "") -> int | None:
    match = re.search(rf"^(?:Node \d+ )?{name}:\s+([0-9]{{1,15}}){unit}$", text, re.MULTILINE)
    return int(match[1]) if match else None


def _machine_huge_pages(tree: Tree, meminfo: str | None) -> tuple[Pages, ...]:
    """Return the huge pages of the whole machine; none for a kernel without them."""
    found = _huge_pages(tree, _HUGE_PAGES)
    if found is not None:
        return found
    size = _field(meminfo or "", "Hugepagesize", " kB")
    total = _field(meminfo or "", "HugePages_Total")
    if not size or total is None:
        return ()
    free = _field(meminfo or "", "HugePages_Free")
    return (_pages(size, total, free),)


def _huge_pages(tree: Tree, directory: str) -> tuple[Pages, ...] | None:
    names = tree.names(directory)
    if names is None:
        return None
    matches = (re.fullmatch(r"hugepages-([1-9][0-9]{0,14})kB", name) for name in names)
    pages = []
    for size in sorted(int(match[1]) for match in matches if match):
        path = f"{directory}/hugepages-{size}kB"
        total = tree.tolerated(None, _count, tree, f"{path}/nr_hugepages")
        free = tree.tolerated(None, _optional_count, tree, f"{path}/free_hugepages")
        if total is not None:
            pages.append(_pages(size, total, free))
    return tuple(pages)


def _count(tree: Tree, path: str) -> int:
    return _positive(tree, path, sysfs.integer(tree, path, tree.text(path, "a count of pages")))


def _optional_count(tree: Tree, path: str) -> int | None:
    count = sysfs.optional_integer(tree, path)
    return None if count is None else _positive(tree, path, count)


def _positive(tree: Tree, path: str, count: int) -> int:
    if count < 0:
        raise tree.garbled(path, str(count), "a count of pages, zero or more")
    return count


def _pages(size_kib: int, total: int, free: int | None) -> Pages:
    # The two counts are read one after the other: pages may have been given back in between.
    return Pages(size_kib * _KIB, total, None if free is None else min(free, total))


def _all_pages(
    tree: Tree, path: str, size: int, huge: tuple[Pages, ...], page_size_bytes: int
) -> tuple[Pages, ...]:
    """Return base and huge pages: what is not in huge pages is in base pages."""
    left = size - sum(pages.memory_bytes for pages in huge)
    if left < 0:
        tree.note(
            tree.error(path, f"expected {-left} bytes more of MemTotal, to hold the huge pages")
        )
        return ()
    return (Pages(page_size_bytes, left // page_size_bytes), *huge)


# --- what a cpuset leaves -------------------------------------------------------------------------
# Which CPUs and NUMA cells the cpuset of this process leaves it.
#
# Source: the kernel's ``Documentation/admin-guide/cgroup-v2.rst`` (``cpuset.cpus.effective``),
# ``Documentation/admin-guide/cgroup-v1/cpusets.rst`` and cgroups(7).

MOUNTS = "/proc/self/mounts"
# /proc/mounts is a link to self/mounts; captures keep it as a file.
_MOUNTS = (MOUNTS, "/proc/mounts")

_V2 = "cgroup2"
_V1 = "cgroup"
_CPUSET = "cpuset"  # the cpuset file system, older than cgroups
_CPU_FILES = {
    _V2: ("cpuset.cpus.effective",),
    # mounted with noprefix, names are those of the cpuset file system
    _V1: ("cpuset.effective_cpus", "cpuset.cpus", "effective_cpus", "cpus"),
    _CPUSET: ("cpus",),
}
_CELL_FILES = {
    _V2: ("cpuset.mems.effective",),
    _V1: ("cpuset.effective_mems", "cpuset.mems", "effective_mems", "mems"),
    _CPUSET: ("mems",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Allowed:
    """What a cpuset leaves: ids of CPUs and of cells. None where nothing restricts them."""

    cpus: tuple[int, ...] | None
    cells: tuple[int, ...] | None


def read_allowed(tree: Tree) -> Allowed:
    """Return what the cpuset of the process (the one that took a capture) allows.

    A machine without cgroups, or without a cpuset controller, restricts nothing.

    :raises DiscoveryError: if a cpuset file is garbled
    """
    directories = list(_directories(tree))
    return Allowed(
        cpus=_first(tree, directories, _CPU_FILES), cells=_first(tree, directories, _CELL_FILES)
    )


def _first(
    tree: Tree, directories: list[tuple[str, str]], names: dict[str, tuple[str, ...]]
) -> tuple[int, ...] | None:
    """Return the ids of the innermost cgroup that names any: the others inherit."""
    paths = (f"{directory}/{name}" for kind, directory in directories for name in names[kind])
    for path in paths:
        text = tree.optional(path)
        if text and text.strip():
            return sysfs.id_list(tree, path, text)
    return None


def _directories(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the kind and directory of the cgroup and its parents, innermost first.

    Inside a container the mount may begin below the path that the process is told; the parents
    end at the mount's own root, which is then the container's cgroup.
    """
    for kind, mount in _mounts(tree):
        path = _path(tree, kind)
        while path is not None:
            yield kind, f"{mount}{path}"
            path = path.rpartition("/")[0] if path else None


def _mounts(tree: Tree) -> Iterator[tuple[str, str]]:
    text = next((text for path in _MOUNTS if (text := tree.optional(path)) is not None), "")
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        kind, options = fields[2], fields[3].split(",")
        if kind in (_V2, _CPUSET) or (kind == _V1 and _CPUSET in options):
            yield kind, _unescaped(fields[1]).rstrip("/")


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _path(tree: Tree, kind: str) -> str | None:
    """Return the cgroup's path below its mount, without a slash at the end."""
    for line in (tree.optional("/proc/self/cgroup") or "").splitlines():
        hierarchy, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        is_v2 = hierarchy == "0" and not controllers
        if is_v2 if kind == _V2 else _CPUSET in controllers.split(","):
            return path.rstrip("/")
    text = tree.optional("/proc/self/cpuset") or ""
    return text.strip().rstrip("/") if text.startswith("/") else None


# --- PCI functions --------------------------------------------------------------------------------
# PCI functions from ``/sys/bus/pci/devices``: SR-IOV, interfaces, vDPA and mediated devices.
#
# Source: the kernel's ``Documentation/ABI/testing/sysfs-bus-pci``, ``sysfs-bus-vdpa`` and
# ``sysfs-bus-vfio-mdev``, and ``Documentation/PCI/pci-iov-howto.rst``; for the UUIDs of GPUs the
# README of NVIDIA's driver, *Using the /proc File System Interface*. None tells MIG instances.

DEVICES = "/sys/bus/pci/devices"
VDPA = "/sys/bus/vdpa/devices"
GPUS = "/proc/driver/nvidia/gpus"

# Domains above ffff exist (Intel VMD makes 10000:...).
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_VDPA = re.compile(r"vdpa[0-9]+")
_NVIDIA = "10de"
_GPU_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*$", re.M)
#: What stands between a function and its interfaces where its driver is one of virtio.
_VIRTIO = re.compile(r"virtio[0-9]+")
#: 6 bytes of Ethernet, 20 of InfiniBand.
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){0,31}")


def read_devices(tree: Tree) -> tuple[PCIDevice, ...]:
    """Return the PCI functions by address; none for a machine without PCI.

    Names that are no PCI address, and functions that went away since the directory was listed,
    are left out.

    One that does not say what it is, is a finding.
    """
    names = [name for name in tree.names(DEVICES) or () if _ADDRESS.fullmatch(name)]
    vdpa = _vdpa(tree)
    # A longer domain is a larger one.
    in_order = sorted(names, key=lambda name: (len(name), name))
    found = (tree.tolerated(None, _device, tree, name, vdpa.get(name, ())) for name in in_order)
    devices = [device for device in found if device is not None]
    split = {device.parent_address for device in devices}
    return tuple(
        dataclasses.replace(device, kind=DeviceKind.PF)
        if device.kind is DeviceKind.PCI and device.address in split  # it does not say how many
        else device
        for device in devices
    )


def _device(tree: Tree, address: str, vdpa: Collection[str]) -> PCIDevice | None:
    path = f"{DEVICES}/{address}"
    vendor = tree.optional(f"{path}/vendor")
    within = tree.names(path)
    if vendor is None and within is None:  # unplugged since, or a dangling link
        return None
    parent = _physical_function(tree, f"{path}/physfn", address)
    vendor_id = _digits(tree, f"{path}/vendor", vendor or "", 4)
    counted = "a count of virtual functions"
    totalvfs = tree.tolerated(None, _device_count, tree, f"{path}/sriov_totalvfs", counted)
    known = within or ()
    made = {*vdpa, *(name for name in within or () if _VDPA.fullmatch(name))}
    return PCIDevice(
        address=address,
        vendor_id=vendor_id,
        product_id=_hexadecimal(tree, f"{path}/device", 4),
        class_id=_hexadecimal(tree, f"{path}/class", 6),
        numa_node=tree.tolerated(None, _numa_node, tree, f"{path}/numa_node"),
        kind=_kind(parent, totalvfs, made),
        parent_address=parent,
        sriov_totalvfs=totalvfs,
        sriov_numvfs=None
        if totalvfs is None
        else tree.tolerated(None, _device_count, tree, f"{path}/sriov_numvfs", counted),
        driver=tree.link(f"{path}/driver"),
        revision=_or_none(tree, f"{path}/revision", 2),
        subsystem_vendor_id=_or_none(tree, f"{path}/subsystem_vendor", 4),
        subsystem_product_id=_or_none(tree, f"{path}/subsystem_device", 4),
        interfaces=tuple(_interfaces(tree, path, known)),
        vdpa=tuple(sorted(made, key=_by_number)),
        mediated_types=tuple(_mediated_types(tree, path, known)),
        uuid=_gpu_uuid(tree, address) if vendor_id == _NVIDIA else None,
    )


def _gpu_uuid(tree: Tree, address: str) -> str | None:
    """Return the UUID of a GPU, None where its driver does not tell it.

    Until somebody uses it first, the driver says ``GPU-????????-????-????-????-????????????``.
    """
    found = _GPU_UUID.search(tree.optional(f"{GPUS}/{address}/information") or "")
    return found[1] if found else None


# --- SR-IOV -------------------------------------------------------------------------------------


def _kind(parent: str | None, totalvfs: int | None, vdpa: Collection[str]) -> DeviceKind:
    if parent is not None:
        return DeviceKind.VDPA if vdpa else DeviceKind.VF
    return DeviceKind.PF if totalvfs else DeviceKind.PCI


def _physical_function(tree: Tree, path: str, address: str) -> str | None:
    parent = tree.link(path)
    if parent is not None and (parent == address or not _ADDRESS.fullmatch(parent)):
        raise tree.garbled(path, parent, "a link to the physical function of this one")
    return parent


# --- what the kernel made of a function ---------------------------------------------------------


def _vdpa(tree: Tree) -> Mapping[str, list[str]]:
    """Return the vDPA devices by the function that they are made of, however far below it."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in tree.names(VDPA) or ():
        path = tree.resolved(f"{VDPA}/{name}").split("/")
        functions = [each for each in path if _ADDRESS.fullmatch(each)]
        if _VDPA.fullmatch(name) and functions:
            found[functions[-1]].append(name)
    return found


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _interfaces(tree: Tree, path: str, within: Collection[str]) -> Iterator[NetworkInterface]:
    places = [f"{path}/net"] if "net" in within else []
    places += [f"{path}/{name}/net" for name in sorted(within) if _VIRTIO.fullmatch(name)]
    for place in places:
        for name in sorted(tree.names(place) or ()):
            mac = tree.tolerated(None, _mac, tree, f"{place}/{name}/address")
            yield NetworkInterface(name, mac)


def _mac(tree: Tree, path: str) -> str | None:
    text = (tree.optional(path) or "").strip()
    if text and not _MAC.fullmatch(text):
        raise tree.garbled(path, text, "a MAC address such as 3c:ec:ef:01:02:03")
    return text or None


def _mediated_types(tree: Tree, path: str, within: Collection[str]) -> Iterator[MediatedType]:
    place = f"{path}/mdev_supported_types"
    names = tree.names(place) if "mdev_supported_types" in within else None
    for name in sorted(names or ()):
        yield MediatedType(
            id=name,
            name=_said(tree, f"{place}/{name}/name"),
            available=tree.tolerated(
                None,
                _device_count,
                tree,
                f"{place}/{name}/available_instances",
                "a count, 0 or more",
            ),
            device_api=_said(tree, f"{place}/{name}/device_api"),
            description=_said(tree, f"{place}/{name}/description"),
        )


def _said(tree: Tree, path: str) -> str | None:
    """Return what a driver says in its own words, on one line."""
    return " ".join((tree.optional(path) or "").split()) or None


# --- figures ------------------------------------------------------------------------------------


def _numa_node(tree: Tree, path: str) -> int | None:
    node = sysfs.optional_integer(tree, path)
    return node if node is not None and node >= 0 else None  # -1: the firmware does not say


def _device_count(tree: Tree, path: str, expected: str) -> int | None:
    count = sysfs.optional_integer(tree, path)
    if count is not None and count < 0:
        raise tree.garbled(path, str(count), expected)
    return count


def _hexadecimal(tree: Tree, path: str, digits: int) -> str:
    expected = f"0x and {digits} hexadecimal digits"
    return _digits(tree, path, tree.text(path, expected), digits)


def _or_none(tree: Tree, path: str, digits: int) -> str | None:
    text = tree.optional(path)
    return None if text is None else tree.tolerated(None, _digits, tree, path, text, digits)


def _digits(tree: Tree, path: str, text: str, digits: int) -> str:
    match = re.fullmatch(rf"0x([0-9a-f]{{{digits}}})", text.strip())
    if match is None:
        raise tree.garbled(path, text, f"0x and {digits} hexadecimal digits")
    return match[1]
