"""Where an assigned topology is, in the forms that ``taskset``, ``numactl`` and cgroups take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.resources.numa import words
from resource_objects.resources.numa.cpus import format_cpus
from resource_objects.resources.numa.host import KIB

if TYPE_CHECKING:
    from resource_objects.resources.numa.guest import GuestCell, PlacedCell


def cpuset(placed: Iterable[PlacedCell]) -> str:
    """Return the host CPUs of all vCPUs as a list."""
    return format_cpus(
        {cpu for cell in placed for cpu in (*cell.shared, *dict(cell.pins).values())}
    )


def pages(
    cells: Iterable[GuestCell], placed: Iterable[PlacedCell]
) -> Mapping[int, Mapping[int, int]]:
    """Return ``{host cell: {page size in KiB: pages}}`` of huge pages."""
    return {
        on.cell: {on.page_size_kib: guest.memory_mb * KIB // on.page_size_kib}
        for guest, on in zip(cells, placed, strict=True)
        if on.page_size_kib is not None and guest.memory_mb
    }


def taskset(cpus: str) -> tuple[str, ...]:
    """Return the arguments of ``taskset`` for a list of CPUs."""
    if not cpus:
        raise exceptions.InvalidAmount("CPUs of the topology", "none", "one to run a command on")
    return "taskset", "--cpu-list", cpus


def numactl(cpus: str, nodes: str) -> tuple[str, ...]:
    """Return the arguments of ``numactl`` for a list of CPUs, perhaps empty, and of nodes."""
    bound = (f"--physcpubind={cpus}",) if cpus else ()
    return "numactl", *bound, f"--membind={nodes}"


def cgroup(cpus: str, nodes: str, used: Mapping[int, Mapping[int, int]]) -> Mapping[str, str]:
    """Return the files of a version 2 control group and what to write into them.

    :param used: huge pages by host cell and size
    """
    files = {"cpuset.cpus": cpus} if cpus else {}
    files["cpuset.mems"] = nodes
    by_size: Counter[int] = Counter()
    for of_cell in used.values():
        by_size.update({size: size * count * KIB for size, count in of_cell.items()})
    for size, count in sorted(by_size.items()):
        name = words.show_kib(size).replace("iB", "B").replace(" ", "")
        files[f"hugetlb.{name}.max"] = str(count)
    return files
