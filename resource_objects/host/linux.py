"""Read a Linux machine from /proc and /sys: the running one, or one captured in a directory.

These facts may be missing, empty or unreadable, and are then None or (): host name, architecture,
offline CPUs, the package and number of a core, SMT siblings (each CPU is then a core), huge pages,
distances and initiators of cells, and of a device its NUMA node, SR-IOV figures, driver, revision,
subsystem, network interfaces, vDPA devices and types of mediated devices.

One bad fact does not cost the machine. A fact that is missing otherwise, malformed or contradicts
the others is left out, and a :class:`~resource_objects.findings.Finding` names it:

=============================  ====================================================================
unreadable fact                the machine without it
=============================  ====================================================================
ids or class of a PCI device   the device is left out
another fact of it             that fact is unknown
memory of a NUMA node          the node has none
CPUs of a NUMA node            the node has none; a CPU of two nodes is in the first
huge pages of a size           these are left out; more than the memory: no pages of that node
distances of a node            unknown
siblings of a CPU              the CPU is a core
memory of the machine          the sum over its NUMA nodes, or none
=============================  ====================================================================

The CPUs (``/sys/devices/system/cpu``) must be readable, and so must the cpuset if it is requested:
without it too much would be offered.

The kernel formats the files of these two trees on each read, so each is read once at most. Sources:
the kernel's ``Documentation/ABI`` and ``Documentation/admin-guide``, by section below.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from oslo_utils import units

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.findings import Finding
from resource_objects.host.machine import (
    Core,
    Disk,
    Machine,
    MediatedType,
    NetworkInterface,
    NUMACell,
    Pages,
    PCIDevice,
    device_kind,
    order_devices,
)
from resource_objects.host.sysfs import Tree, numbered

__all__ = ["read_devices", "read_disk", "read_machine"]

#: The base page of most architectures; a capture does not contain its own.
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

    The facts are those of the whole machine, as an agent needs them. Memory limits of cgroups are
    not facts of the machine and are ignored. Cost: three small reads per core and ten per PCI
    function. A CPU or device that appears or disappears meanwhile may be a finding; read again.

    :param disk_path: a path on the disk to offer, on the running system whatever the root is; by
        default ``/`` for the running machine and no disk for a captured one
    :param within_cgroup: whether to restrict the machine to the cpuset of this process (of the
        process that took the capture), as hwloc does
    :param page_size_bytes: the size of a base page, by default the running kernel's, and 4096 for a
        capture
    :param strict: whether the first fact that cannot be read is an error and not a finding
    :raises DiscoveryError: if a required fact cannot be read; if strict, for each other finding.
        ``subject`` is the file, ``detail`` what was expected in it
    :raises InvalidInput: if the page size is not a positive integer, or a path is not a path

    >>> read_machine("/nowhere")
    Traceback (most recent call last):
    resource_objects.exceptions.DiscoveryError: /nowhere cannot be read: expected a directory ...
    """
    for name, path in (("root", root), ("disk_path", disk_path)):
        if not isinstance(path, str | bytes | os.PathLike) and (name == "root" or path is not None):
            raise InvalidInput("value", name, path, "a path")
    tree = Tree(root, strict=strict)
    size = page_size_bytes
    if size is None:
        size = os.sysconf("SC_PAGE_SIZE") if tree.is_live else _CAPTURED_PAGE_SIZE
    elif isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidInput("value", "page_size_bytes", size, "an integer, 1 or more")
    if disk_path is None and tree.is_live:
        disk_path = "/"
    try:
        machine = _read_machine(tree, disk_path, size)
        if within_cgroup:
            machine = machine.restrict(*_read_cpuset(tree))
        return machine
    except InvalidInput as error:  # the files are well-formed and contradict each other
        raise DiscoveryError(tree.root, str(error)) from error


def _read_machine(tree: Tree, disk_path: Path | None, page_size_bytes: int) -> Machine:
    cpus, offline = _read_cpus(tree)
    cores = _read_cores(tree, cpus)
    packages = {cpu: core.package_id for core in cores for cpu in core.cpus}
    meminfo = tree.optional(MEMINFO)
    huge_pages = _read_huge_pages(tree, _HUGE_PAGES)
    if huge_pages is None:
        huge_pages = _huge_pages_of_meminfo(meminfo or "")
    cells = _read_cells(tree, packages, huge_pages, page_size_bytes)
    memory_bytes = sum(cell.memory_bytes for cell in cells)
    if meminfo is not None:
        memory_bytes = tree.read_or(memory_bytes, _total_bytes, tree, MEMINFO, meminfo)
    devices = read_devices(tree)
    hostname = tree.read_or(None, _read_name, tree, _HOSTNAME)
    architecture = tree.read_or(None, _read_name, tree, _ARCHITECTURE)
    if tree.is_live:
        hostname = hostname or os.uname().nodename or None
        architecture = architecture or os.uname().machine
    return Machine(
        cpus=cpus,
        offline_cpus=offline,
        cores=cores,
        memory_bytes=memory_bytes,
        cells=cells,
        huge_pages=huge_pages,
        devices=devices,
        disk=None if disk_path is None else read_disk(disk_path),
        hostname=hostname,
        architecture=architecture,
        findings=tuple(Finding(error.name, detail=error.detail) for error in tree.findings),
    )


def read_disk(disk_path: Path) -> Disk:
    """Return the file system of a path; space that only root may fill does not count as free.

    :raises DiscoveryError: if there is no such path
    """
    path = os.fsdecode(disk_path)
    try:
        status = os.statvfs(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DiscoveryError(path, f"{reason}; expected a path on the disk to offer") from error
    size = status.f_frsize * status.f_blocks
    return Disk(path, size, min(status.f_frsize * status.f_bavail, size))


def _read_name(tree: Tree, path: str) -> str | None:
    text = (tree.optional(path) or "").strip()
    if text and not re.fullmatch(r"[\x21-\x7e]{1,255}", text):
        raise tree.malformed(path, text, "a name of printable characters")
    return text or None


# --- CPUs and cores -------------------------------------------------------------------------------
#
# Sources: ``admin-guide/cputopology.rst`` and ``ABI/stable/sysfs-devices-system-cpu``.

CPU = "/sys/devices/system/cpu"

# The CPUs of a core, and of a package: newest name first.
_CORE = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
_PACKAGE = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")


def _read_cpus(tree: Tree) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the online CPUs, and the CPUs that are present but offline.

    Old kernels have no files ``online`` and ``present``: then each CPU has its own.
    """
    names = tree.names(CPU)
    if names is None:
        raise tree.error(CPU, "expected a directory with one cpuN for each CPU")
    numbers = numbered(names, "cpu")
    online = tree.read_or(None, tree.ids, f"{CPU}/online")
    cpus = (
        online[1]
        if online
        else tuple(cpu for cpu in numbers if tree.read_or(False, _is_online, tree, cpu))
    )
    if not cpus:
        raise tree.error(f"{CPU}/online" if online else CPU, "expected at least one CPU online")
    present = tree.read_or(None, tree.ids, f"{CPU}/present")
    offline = set(present[1] if present else numbers).difference(cpus)
    return tuple(cpus), tuple(sorted(offline))


def _is_online(tree: Tree, cpu: int) -> bool:
    path = f"{CPU}/cpu{cpu}/online"
    text = tree.optional(path)
    if text is None:  # a CPU that cannot be taken offline has no such file
        return True
    if text.strip() not in ("0", "1"):
        raise tree.malformed(path, text, "0 or 1")
    return text.strip() == "1"


def _read_cores(tree: Tree, cpus: tuple[int, ...]) -> tuple[Core, ...]:
    """Return the cores of the online CPUs, in the order of their first CPU.

    Only the first CPU of each core is read: the files of its siblings are the same.
    """
    online, assigned = frozenset(cpus), set[int]()
    packages: dict[tuple[int, ...], int] = {}
    cores = []
    for cpu in cpus:
        if cpu in assigned:
            continue
        directory = f"{CPU}/cpu{cpu}"
        single: tuple[str, tuple[int, ...]] = directory, (cpu,)
        path, siblings = tree.read_or(single, _read_siblings, tree, cpu)
        core = online.intersection(siblings)
        if clash := core & assigned:
            others = ", ".join(map(str, sorted(clash)))
            detail = f"expected CPUs of this core only, got {others} of another"
            tree.add_finding(tree.error(path, detail))
            core -= clash
        assigned |= core
        package = tree.read_or(None, _read_package, tree, cpu, packages)
        core_id = tree.read_or(None, tree.integer, f"{directory}/topology/core_id")
        core_id = None if core_id is None or core_id < 0 else core_id
        cores.append(Core(package, core_id, tuple(sorted(core))))
    return tuple(cores)


def _read_siblings(tree: Tree, cpu: int) -> tuple[str, tuple[int, ...]]:
    """Return the CPUs of the core of a CPU, and the file that lists them."""
    directory = f"{CPU}/cpu{cpu}"
    siblings = tree.ids(*(f"{directory}/topology/{name}" for name in _CORE))
    if siblings is None:  # a kernel without topology: the CPU is a core
        if tree.names(directory) is None:
            raise tree.error(directory, "expected a directory, for the CPU is online")
        return directory, (cpu,)
    if cpu not in siblings[1]:
        raise tree.error(siblings[0], f"expected CPU {cpu} itself to be among its core's CPUs")
    return siblings


def _read_package(tree: Tree, cpu: int, packages: dict[tuple[int, ...], int]) -> int | None:
    """Return the package of a CPU. Where the kernel writes -1 (POWER), packages are numbered."""
    topology = f"{CPU}/cpu{cpu}/topology"
    package = tree.integer(f"{topology}/physical_package_id")
    if package is None or package >= 0:
        return package
    siblings = tree.ids(*(f"{topology}/{name}" for name in _PACKAGE))
    return None if siblings is None else packages.setdefault(siblings[1], len(packages))


# --- memory and cells -----------------------------------------------------------------------------
#
# Sources: ``ABI/stable/sysfs-devices-node``, ``admin-guide/mm/hugetlbpage.rst``,
# ``admin-guide/mm/numaperf.rst``; for meminfo, ``filesystems/proc.rst``. Its kB are KiB.

NODE = "/sys/devices/system/node"
MEMINFO = "/proc/meminfo"
_NONE: tuple[int, ...] = ()
_HUGE_PAGES = "/sys/kernel/mm/hugepages"


def _read_cells(
    tree: Tree,
    packages: Mapping[int, int | None],
    huge_pages: tuple[Pages, ...],
    page_size_bytes: int,
) -> tuple[NUMACell, ...]:
    """Return the cells, each online CPU in one at most.

    A kernel without NUMA (no ``node`` directory) has one cell, number 0, with all CPUs and memory.

    :param packages: the package of each online CPU
    :param huge_pages: those of the machine
    """
    names = tree.names(NODE)
    if names is None:
        expected = "MemTotal, because there are no NUMA nodes"
        size = tree.read_or(0, _read_total_bytes, tree, MEMINFO, expected)
        cpus = tuple(sorted(packages))
        pages = _all_pages(tree, MEMINFO, size, huge_pages, page_size_bytes)
        return (NUMACell(0, cpus, size, pages, _common_package(cpus, packages)),)
    online = tree.read_or(None, tree.ids, f"{NODE}/online")
    ids = tuple(online[1] if online else numbered(names, "node"))
    if not ids:
        raise tree.error(NODE, "expected one nodeN at least")
    cell_of: dict[int, int] = {}
    cells = []
    for cell_id in ids:
        path = f"{NODE}/node{cell_id}"
        size = tree.read_or(0, _read_total_bytes, tree, f"{path}/meminfo", "its MemTotal")
        cpus = tree.read_or(_NONE, _read_cell_cpus, tree, path, packages)
        huge = _read_huge_pages(tree, f"{path}/hugepages")
        if huge is None:
            # Kernels before 2.6.32 do not report the node of huge pages; one node has them all.
            huge = huge_pages if len(ids) == 1 else ()
        pages = _all_pages(tree, f"{path}/meminfo", size, huge, page_size_bytes)
        distances = tree.read_or(_NONE, _read_distances, tree, f"{path}/distance", len(ids))
        for cpu in cpus:
            if cell_of.setdefault(cpu, cell_id) != cell_id:
                detail = f"CPU {cpu} is in node{cell_of[cpu]} too; expected one (numa=fake?)"
                tree.add_finding(tree.error(path, detail))
        cells.append(
            NUMACell(
                id=cell_id,
                cpus=tuple(cpu for cpu in cpus if cell_of[cpu] == cell_id),
                memory_bytes=size,
                pages=pages,
                package_id=_common_package(cpus, packages),
                distances=distances,
                initiators=_read_initiators(tree, path, ids),
            )
        )
    missing = sorted(set(packages).difference(cell_of))
    if missing:
        detail = f"CPU {missing[0]} is online and in no node; expected one"
        tree.add_finding(tree.error(NODE, detail))
    return tuple(cells)


def _read_cell_cpus(tree: Tree, path: str, online: Collection[int]) -> tuple[int, ...]:
    cpus = tree.ids(f"{path}/cpulist", f"{path}/cpumap")
    if cpus is None:
        raise tree.error(f"{path}/cpulist", "missing; expected the CPUs of this node")
    # old kernels list offline CPUs here too
    return tuple(cpu for cpu in cpus[1] if cpu in online)


def _common_package(cpus: tuple[int, ...], packages: Mapping[int, int | None]) -> int | None:
    ids = {packages[cpu] for cpu in cpus}
    return ids.pop() if len(ids) == 1 else None


def _read_distances(tree: Tree, path: str, cells: int) -> tuple[int, ...]:
    text = tree.optional(path)
    if text is None:
        return ()
    figures = text.split()
    are_valid = all(re.fullmatch(r"[0-9]{1,9}", figure) for figure in figures)
    if not are_valid or len(figures) != cells:
        raise tree.malformed(path, text, f"{cells} distances, one per online node")
    return tuple(map(int, figures))


def _read_initiators(tree: Tree, path: str, ids: tuple[int, ...]) -> tuple[int, ...]:
    """Return the cells whose CPUs reach this memory best (access0 also counts devices)."""
    for access in ("access1", "access0"):
        names = tree.names(f"{path}/{access}/initiators")
        if names is not None:
            return tuple(number for number in numbered(names, "node") if number in ids)
    return ()


def _read_total_bytes(tree: Tree, path: str, expected: str) -> int:
    return _total_bytes(tree, path, tree.text(path, expected))


def _total_bytes(tree: Tree, path: str, text: str) -> int:
    size_kib = _meminfo_figure(text, "MemTotal", " kB")
    if size_kib is None:
        raise tree.malformed(path, text, "a line such as MemTotal: 16384 kB")
    return size_kib * units.Ki


def _meminfo_figure(text: str, name: str, unit: str = "") -> int | None:
    match = re.search(rf"^(?:Node \d+ )?{name}:\s+([0-9]{{1,15}}){unit}$", text, re.MULTILINE)
    return int(match[1]) if match else None


def _huge_pages_of_meminfo(meminfo: str) -> tuple[Pages, ...]:
    """Return the huge pages of a kernel whose sysfs does not list them, or () if it has none."""
    size_kib = _meminfo_figure(meminfo, "Hugepagesize", " kB")
    total = _meminfo_figure(meminfo, "HugePages_Total")
    if not size_kib or total is None:
        return ()
    return (_pages(size_kib, total, _meminfo_figure(meminfo, "HugePages_Free")),)


def _read_huge_pages(tree: Tree, directory: str) -> tuple[Pages, ...] | None:
    names = tree.names(directory)
    if names is None:
        return None
    matches = (re.fullmatch(r"hugepages-([1-9][0-9]{0,14})kB", name) for name in names)
    pages = []
    for size_kib in sorted(int(match[1]) for match in matches if match):
        path = f"{directory}/hugepages-{size_kib}kB"
        total = tree.read_or(None, _read_page_total, tree, f"{path}/nr_hugepages")
        expected = "a count of pages, zero or more"
        free = tree.read_or(None, tree.count, f"{path}/free_hugepages", expected)
        if total is not None:
            pages.append(_pages(size_kib, total, free))
    return tuple(pages)


def _read_page_total(tree: Tree, path: str) -> int | None:
    total = tree.count(path, "a count of pages, zero or more")
    if total is None:
        raise tree.error(path, "missing or empty; expected a count of pages")
    return total


def _pages(size_kib: int, total: int, free: int | None) -> Pages:
    # The counts are read one after the other: pages may be released in between.
    return Pages(size_kib * units.Ki, total, None if free is None else min(free, total))


def _all_pages(
    tree: Tree, path: str, size: int, huge: tuple[Pages, ...], page_size_bytes: int
) -> tuple[Pages, ...]:
    """Return base and huge pages: memory that is not in huge pages is in base pages."""
    base_bytes = size - sum(pages.memory_bytes for pages in huge)
    if base_bytes < 0:
        detail = f"expected {-base_bytes} bytes more of MemTotal, to hold the huge pages"
        tree.add_finding(tree.error(path, detail))
        return ()
    return (Pages(page_size_bytes, base_bytes // page_size_bytes), *huge)


# --- the cpuset -----------------------------------------------------------------------------------
#
# Sources: ``admin-guide/cgroup-v2.rst`` (``cpuset.cpus.effective``),
# ``admin-guide/cgroup-v1/cpusets.rst`` and cgroups(7).

# /proc/mounts is a link to self/mounts; captures contain it as a file.
_MOUNTS = ("/proc/self/mounts", "/proc/mounts")

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


def _read_cpuset(tree: Tree) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return the CPUs and the cells of the cpuset of the process; None where it has no restriction.

    A machine without cgroups, or without a cpuset controller, has none.
    """
    directories = list(_cgroup_directories(tree))

    def first(names: Mapping[str, tuple[str, ...]]) -> tuple[int, ...] | None:
        # the innermost cgroup that names any applies: the others inherit
        for path in (
            f"{directory}/{name}" for kind, directory in directories for name in names[kind]
        ):
            text = tree.optional(path)
            if text and text.strip():
                return tree.id_list(path, text)
        return None

    return first(_CPU_FILES), first(_CELL_FILES)


def _cgroup_directories(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the kind and directory of the cgroup and its parents, innermost first.

    Inside a container the mount may begin below the path that the process sees. The parents end at
    the root of the mount, which is then the container's cgroup.
    """
    mounts = next((text for path in _MOUNTS if (text := tree.optional(path)) is not None), "")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        kind, options = fields[2], fields[3].split(",")
        if kind not in (_V2, _CPUSET) and not (kind == _V1 and _CPUSET in options):
            continue
        # the kernel writes a space as \040
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1]).rstrip("/")
        path = _cgroup_path(tree, kind)
        while path is not None:
            yield kind, f"{mount}{path}"
            path = path.rpartition("/")[0] if path else None


def _cgroup_path(tree: Tree, kind: str) -> str | None:
    """Return the path of the cgroup below its mount, without a slash at the end."""
    for line in (tree.optional("/proc/self/cgroup") or "").splitlines():
        hierarchy, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        is_v2 = hierarchy == "0" and not controllers
        if is_v2 if kind == _V2 else _CPUSET in controllers.split(","):
            return path.rstrip("/")
    text = tree.optional("/proc/self/cpuset") or ""
    return text.strip().rstrip("/") if text.startswith("/") else None


# --- PCI functions --------------------------------------------------------------------------------
#
# Sources: ``ABI/testing/sysfs-bus-pci``, ``sysfs-bus-vdpa`` and ``sysfs-bus-vfio-mdev``,
# ``PCI/pci-iov-howto.rst``; for the UUIDs of GPUs the README of NVIDIA's driver, *Using the /proc
# File System Interface*. It does not list MIG instances.

DEVICES = "/sys/bus/pci/devices"
VDPA = "/sys/bus/vdpa/devices"
GPUS = "/proc/driver/nvidia/gpus"

# Domains above ffff exist (Intel VMD creates 10000:...).
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_VDPA = re.compile(r"vdpa[0-9]+")
_NVIDIA = "10de"
_GPU_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*$", re.M)
#: The directory between a function and its interfaces if its driver is one of virtio.
_VIRTIO = re.compile(r"virtio[0-9]+")
#: 6 bytes of Ethernet, 20 of InfiniBand.
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){0,31}")


def read_devices(tree: Tree) -> tuple[PCIDevice, ...]:
    """Return the PCI functions by address; none for a machine without PCI.

    Names that are no PCI address, and functions that were removed since the directory was listed,
    are left out. A function without ids or class is a finding.
    """
    names = [name for name in tree.names(DEVICES) or () if _ADDRESS.fullmatch(name)]
    vdpa = _read_vdpa(tree)
    devices = (
        tree.read_or(None, _read_device, tree, name, vdpa.get(name, ()))
        for name in sorted(names, key=_by_length)
    )
    return order_devices(device for device in devices if device is not None)


def _by_length(name: str) -> tuple[int, str]:
    """Return the key that orders a longer number, such as a domain, after a shorter one."""
    return len(name), name


def _read_device(tree: Tree, address: str, vdpa: Collection[str]) -> PCIDevice | None:
    path = f"{DEVICES}/{address}"
    names = tree.names(path)
    if names is None:  # unplugged since, or a dangling link
        return None
    parent = tree.link(f"{path}/physfn")
    if parent is not None and (parent == address or not _ADDRESS.fullmatch(parent)):
        expected = "a link to the physical function of this one"
        raise tree.malformed(f"{path}/physfn", parent, expected)
    vendor_id = _read_id(tree, f"{path}/vendor", 4)
    expected = "a count of virtual functions"
    totalvfs = tree.read_or(None, tree.count, f"{path}/sriov_totalvfs", expected)
    numvfs = None
    if totalvfs is not None:
        numvfs = tree.read_or(None, tree.count, f"{path}/sriov_numvfs", expected)
    vdpa = {*vdpa, *(name for name in names if _VDPA.fullmatch(name))}
    numa_node = tree.read_or(None, tree.integer, f"{path}/numa_node")
    uuid = None
    if vendor_id == _NVIDIA:
        # before its first use, the driver reports GPU-????????-????-????-????-????????????
        match = _GPU_UUID.search(tree.optional(f"{GPUS}/{address}/information") or "")
        uuid = match[1] if match else None
    subsystem = [(tree, f"{path}/subsystem_{name}", 4) for name in ("vendor", "device")]
    return PCIDevice(
        address=address,
        vendor_id=vendor_id,
        product_id=_read_id(tree, f"{path}/device", 4),
        class_id=_read_id(tree, f"{path}/class", 6),
        numa_node=None if numa_node is None or numa_node < 0 else numa_node,  # -1: not reported
        kind=device_kind(parent, vdpa, totalvfs),
        parent_address=parent,
        sriov_totalvfs=totalvfs,
        sriov_numvfs=numvfs,
        driver=tree.link(f"{path}/driver"),
        revision=tree.read_or(None, _read_hexadecimal, tree, f"{path}/revision", 2),
        subsystem_vendor_id=tree.read_or(None, _read_hexadecimal, *subsystem[0]),
        subsystem_product_id=tree.read_or(None, _read_hexadecimal, *subsystem[1]),
        interfaces=tuple(_read_interfaces(tree, path, names)),
        vdpa=tuple(sorted(vdpa, key=_by_length)),
        mediated_types=tuple(_read_mediated_types(tree, path, names)),
        uuid=uuid,
    )


def _read_vdpa(tree: Tree) -> Mapping[str, list[str]]:
    """Return the vDPA devices by the function that they belong to, however far below it."""
    devices: dict[str, list[str]] = defaultdict(list)
    for name in tree.names(VDPA) or ():
        path = tree.resolved(f"{VDPA}/{name}").split("/")
        functions = [part for part in path if _ADDRESS.fullmatch(part)]
        if _VDPA.fullmatch(name) and functions:
            devices[functions[-1]].append(name)
    return devices


def _read_interfaces(tree: Tree, path: str, names: Collection[str]) -> Iterator[NetworkInterface]:
    directories = [f"{path}/net"] if "net" in names else []
    directories += [f"{path}/{name}/net" for name in sorted(names) if _VIRTIO.fullmatch(name)]
    for directory in directories:
        for name in sorted(tree.names(directory) or ()):
            mac = tree.read_or(None, _read_mac, tree, f"{directory}/{name}/address")
            yield NetworkInterface(name, mac)


def _read_mac(tree: Tree, path: str) -> str | None:
    text = (tree.optional(path) or "").strip()
    if text and not _MAC.fullmatch(text):
        raise tree.malformed(path, text, "a MAC address such as 3c:ec:ef:01:02:03")
    return text or None


def _read_mediated_types(tree: Tree, path: str, names: Collection[str]) -> Iterator[MediatedType]:
    directory = f"{path}/mdev_supported_types"
    types = tree.names(directory) if "mdev_supported_types" in names else None
    for name in sorted(types or ()):
        # the driver's own words, on one line
        words = {
            fact: " ".join((tree.optional(f"{directory}/{name}/{fact}") or "").split()) or None
            for fact in ("name", "device_api", "description")
        }
        count = f"{directory}/{name}/available_instances"
        available = tree.read_or(None, tree.count, count, "a count, 0 or more")
        yield MediatedType(id=name, available=available, **words)


def _read_hexadecimal(tree: Tree, path: str, digits: int) -> str | None:
    """Return hexadecimal digits without 0x, or None if the file is missing or empty."""
    text = tree.optional(path)
    match = None if text is None else re.fullmatch(rf"0x([0-9a-f]{{{digits}}})", text.strip())
    if text is not None and match is None:
        raise tree.malformed(path, text, f"0x and {digits} hexadecimal digits")
    return match[1] if match else None


def _read_id(tree: Tree, path: str, digits: int) -> str:
    value = _read_hexadecimal(tree, path, digits)
    if value is None:
        raise tree.error(path, f"missing or empty; expected 0x and {digits} hexadecimal digits")
    return value
