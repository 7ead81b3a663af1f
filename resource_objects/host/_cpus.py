"""CPUs and cores from ``/sys/devices/system/cpu``.

Source: the kernel's ``Documentation/admin-guide/cputopology.rst`` and
``Documentation/ABI/stable/sysfs-devices-system-cpu``.
"""

from __future__ import annotations

from resource_objects.host import _sysfs
from resource_objects.host._sysfs import Tree
from resource_objects.host.facts import Core

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
    each = _sysfs.numbered(names, "cpu")
    online = _sysfs.ids(tree, [f"{CPU}/online"])
    cpus = online[1] if online else tuple(cpu for cpu in each if _is_online(tree, cpu))
    if not cpus:
        raise tree.error(f"{CPU}/online" if online else CPU, "expected at least one CPU online")
    present = _sysfs.ids(tree, [f"{CPU}/present"])
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
        path, siblings = _siblings(tree, cpu)
        core = tuple(each for each in siblings if each in online)
        if not seen.isdisjoint(core):
            clash = ", ".join(map(str, sorted(seen.intersection(core))))
            raise tree.error(path, f"expected CPUs of this core only, got {clash} of another")
        seen.update(core)
        cores.append(Core(packages.of(cpu), _core_id(tree, cpu), core))
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
    found = _sysfs.ids(tree, (f"{directory}/topology/{name}" for name in _CORE))
    if found is None:  # no SMT facts (a kernel without topology): the CPU is a core
        if tree.names(directory) is None:
            raise tree.error(directory, "expected a directory, for the CPU is online")
        return directory, (cpu,)
    if cpu not in found[1]:
        raise tree.error(found[0], f"expected CPU {cpu} itself to be among its core's CPUs")
    return found


def _core_id(tree: Tree, cpu: int) -> int | None:
    core = _sysfs.optional_integer(tree, f"{CPU}/cpu{cpu}/topology/core_id")
    return core if core is not None and core >= 0 else None


class _Packages:
    """Which package a CPU is of. Where the kernel writes -1 (POWER), packages are counted here."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._counted: dict[tuple[int, ...], int] = {}

    def of(self, cpu: int) -> int | None:
        topology = f"{CPU}/cpu{cpu}/topology"
        package = _sysfs.optional_integer(self._tree, f"{topology}/physical_package_id")
        if package is None or package >= 0:
            return package
        found = _sysfs.ids(self._tree, (f"{topology}/{name}" for name in _PACKAGE))
        return None if found is None else self._counted.setdefault(found[1], len(self._counted))
