"""Which CPUs and NUMA cells the cpuset of this process leaves it.

Source: the kernel's ``Documentation/admin-guide/cgroup-v2.rst`` (``cpuset.cpus.effective``),
``Documentation/admin-guide/cgroup-v1/cpusets.rst`` and cgroups(7).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from resource_objects.host import _sysfs
from resource_objects.host._sysfs import Tree

MOUNTS = "/proc/self/mounts"
# /proc/mounts is a link to self/mounts; captures keep it as a file.
_MOUNTS = (MOUNTS, "/proc/mounts")

_V2 = "cgroup2"
_V1 = "cgroup"
_CPUSET = "cpuset"  # the cpuset file system, older than cgroups
_CPU_FILES = {
    _V2: ("cpuset.cpus.effective",),
    _V1: ("cpuset.effective_cpus", "cpuset.cpus"),
    _CPUSET: ("cpus",),
}
_CELL_FILES = {
    _V2: ("cpuset.mems.effective",),
    _V1: ("cpuset.effective_mems", "cpuset.mems"),
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
            return _sysfs.id_list(tree, path, text)
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
