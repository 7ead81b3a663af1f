"""Memory, pages and NUMA cells from ``/proc/meminfo`` and ``/sys/devices/system/node``.

Source: the kernel's ``Documentation/ABI/stable/sysfs-devices-node``,
``Documentation/admin-guide/mm/hugetlbpage.rst``, ``Documentation/admin-guide/mm/numaperf.rst`` and,
for meminfo, ``Documentation/filesystems/proc.rst``. Its kB are KiB.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping

from resource_objects.host import _sysfs
from resource_objects.host._sysfs import Tree
from resource_objects.host.facts import NUMACell, Pages

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
    size = in_cells if total is None else _memory_bytes(tree, MEMINFO, total)
    return Memory(size, cells, huge_pages)


def _only_cell(
    tree: Tree, packages: Mapping[int, int | None], huge: tuple[Pages, ...], page_size_bytes: int
) -> NUMACell:
    text = tree.text(MEMINFO, "MemTotal, for there are no NUMA nodes that say it")
    size = _memory_bytes(tree, MEMINFO, text)
    cpus = tuple(sorted(packages))
    pages = _all_pages(tree, MEMINFO, size, huge, page_size_bytes)
    return NUMACell(0, cpus, size, pages, _one_package(cpus, packages))


def _cell_ids(tree: Tree, names: Collection[str]) -> tuple[int, ...]:
    found = _sysfs.ids(tree, [f"{NODE}/online"])
    ids = found[1] if found else tuple(_sysfs.numbered(names, "node"))
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
        """Return the cells, every online CPU in exactly one."""
        cells = tuple(self._cell(each) for each in self.ids)
        owners: dict[int, int] = {}
        for cell in cells:
            for cpu in cell.cpus:
                if owners.setdefault(cpu, cell.id) != cell.id:
                    path = f"{NODE}/node{cell.id}"
                    detail = f"CPU {cpu} is in node{owners[cpu]} too; expected one (numa=fake?)"
                    raise self.tree.error(path, detail)
        lost = sorted(set(self.packages).difference(owners))
        if lost:
            raise self.tree.error(NODE, f"CPU {lost[0]} is online and in no node; expected one")
        return cells

    def _cell(self, cell_id: int) -> NUMACell:
        path = f"{NODE}/node{cell_id}"
        meminfo = f"{path}/meminfo"
        text = self.tree.text(meminfo, "the MemTotal of this node")
        size = _memory_bytes(self.tree, meminfo, text)
        cpus = self._cpus(path)
        huge = self._huge_pages(path)
        return NUMACell(
            id=cell_id,
            cpus=cpus,
            memory_bytes=size,
            pages=_all_pages(self.tree, meminfo, size, huge, self.page_size_bytes),
            package_id=_one_package(cpus, self.packages),
            distances=self._distances(f"{path}/distance"),
            initiators=self._initiators(path),
        )

    def _cpus(self, path: str) -> tuple[int, ...]:
        """Return the online CPUs (old kernels list the offline ones here too)."""
        found = _sysfs.ids(self.tree, (f"{path}/cpulist", f"{path}/cpumap"))
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
                return tuple(each for each in _sysfs.numbered(names, "node") if each in self.ids)
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
        total = _count(tree, f"{path}/nr_hugepages")
        pages.append(_pages(size, total, _optional_count(tree, f"{path}/free_hugepages")))
    return tuple(pages)


def _count(tree: Tree, path: str) -> int:
    return _positive(tree, path, _sysfs.integer(tree, path, tree.text(path, "a count of pages")))


def _optional_count(tree: Tree, path: str) -> int | None:
    count = _sysfs.optional_integer(tree, path)
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
        raise tree.error(path, f"expected {-left} bytes more of MemTotal, to hold the huge pages")
    return (Pages(page_size_bytes, left // page_size_bytes), *huge)
