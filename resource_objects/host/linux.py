"""Reading a Linux machine from /proc and /sys: the one running, or one captured in a directory.

What must be there: ``/sys/devices/system/cpu``; the memory of the machine or of its NUMA nodes;
for each NUMA node its memory and CPUs; for each PCI function its ids and class. What may be
missing, empty or unreadable, and is then None or (): host name, architecture, offline CPUs, the
package and number of a core, SMT siblings (each CPU is then a core), huge pages, distances and
initiators of cells, and a device's NUMA node, SR-IOV figures, driver, revision and subsystem, the
network interfaces and vDPA devices made of it, and the types of mediated devices that it offers. A
file that is there and says nonsense is never taken for missing: it raises.

Files in these two trees are formatted by the kernel on each read, so each is read once at most.
"""

from __future__ import annotations

import os
import re

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.host import _cgroup, _cpus, _memory, _pci
from resource_objects.host._sysfs import Tree
from resource_objects.host.facts import Disk, Machine

__all__ = ["read_machine"]

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
) -> Machine:
    """Return the machine whose ``proc`` and ``sys`` are below ``root``.

    ``disk_path`` is where consumers' files go, on the running system whatever the root is; by
    default ``/`` for the running machine and no disk for a captured one. The facts are those of
    the whole machine, as an agent that hands it out needs them; ``within_cgroup`` leaves what the
    cpuset of this process (of the one that took the capture) allows, as hwloc does. Memory limits
    of cgroups are no facts of the machine and do not count. ``page_size_bytes`` is the base page:
    by default the running kernel's, and 4096 for a capture.

    Costs three small reads per core and ten per PCI function. A CPU or device that comes or goes
    while it reads may raise; read again.

    >>> read_machine("/nowhere")
    Traceback (most recent call last):
    resource_objects.exceptions.DiscoveryError: /nowhere cannot be read: expected a directory ...

    :raises DiscoveryError: if something that must be there is missing, or anything is garbled;
        ``subject`` is the file, ``detail`` what was expected of it
    :raises InvalidInput: if the page size is no positive integer, or a path is none
    """
    _require_path("root", root)
    if disk_path is not None:
        _require_path("disk_path", disk_path)
    tree = Tree(root)
    page_size = _page_size(tree, page_size_bytes)
    try:
        machine = _machine(tree, disk_path, page_size)
        return _allowed(tree, machine) if within_cgroup else machine
    except InvalidInput as error:  # files that are well-formed each and contradict each other
        raise DiscoveryError(tree.root, str(error)) from error


def _require_path(what: str, path: object) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        raise InvalidInput(what, path, "a path")


def _machine(tree: Tree, disk_path: Path | None, page_size_bytes: int) -> Machine:
    cpus, offline = _cpus.read_cpus(tree)
    cores = _cpus.read_cores(tree, cpus)
    packages = {cpu: core.package_id for core in cores for cpu in core.cpus}
    memory = _memory.read_memory(tree, packages, page_size_bytes)
    return Machine(
        cpus=cpus,
        offline_cpus=offline,
        cores=cores,
        memory_bytes=memory.memory_bytes,
        cells=memory.cells,
        huge_pages=memory.huge_pages,
        devices=_pci.read_devices(tree),
        disk=_disk(tree, disk_path),
        hostname=_name(tree, _HOSTNAME) or (os.uname().nodename or None if tree.live else None),
        architecture=_name(tree, _ARCHITECTURE) or (os.uname().machine if tree.live else None),
    )


def _allowed(tree: Tree, machine: Machine) -> Machine:
    allowed = _cgroup.read_allowed(tree)
    return machine.restrict(cpus=allowed.cpus, cells=allowed.cells)


def _page_size(tree: Tree, page_size_bytes: int | None) -> int:
    if page_size_bytes is not None:
        is_integer = isinstance(page_size_bytes, int) and not isinstance(page_size_bytes, bool)
        if not is_integer or page_size_bytes < 1:
            raise InvalidInput("page_size_bytes", page_size_bytes, "an integer, 1 or more")
        return page_size_bytes
    return os.sysconf("SC_PAGE_SIZE") if tree.live else _CAPTURED_PAGE_SIZE


def _disk(tree: Tree, disk_path: Path | None) -> Disk | None:
    """Return the file system of a path; what root alone may fill does not count as free."""
    if disk_path is None and not tree.live:
        return None
    path = os.fsdecode(disk_path or "/")
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
