"""Host cells as a decision reads them: bit masks and plain integers, with what is used.

Made from :class:`~resource_objects.resources.numa.host.HostCell` and its usage; :class:`Facts` are
made once for each cell, a :class:`Cell` anew where usage changes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from resource_objects import ratio
from resource_objects.resources.numa.cpus import cpus_of, mask_of
from resource_objects.resources.numa.host import CellUsage, HostCell


class Facts(NamedTuple):
    """What a host cell is: sets of CPUs are masks, memory is in MiB, page sizes in KiB."""

    id: int
    socket: int | None
    shared: int  #: CPUs that run shared vCPUs
    shared_ids: tuple[int, ...]  #: the same
    dedicated: int
    cores: tuple[int, ...]  #: by lowest dedicated CPU; those without one are left out
    threads: int  #: of the core with the most
    ordinary_mb: int
    memory_capacity: int  #: ordinary memory times its ratio
    ratio: int  #: of shared CPUs, in millionths
    base_kib: int | None
    huge: tuple[tuple[int, int], ...]  #: (size, pages that are not reserved), largest first
    distances: Mapping[int, int]
    physnets: frozenset[str]
    tunneled: bool


@dataclasses.dataclass(slots=True, eq=False)
class Cell:
    """A host cell with what is used of it. It does not change: another is made where usage does."""

    facts: Facts
    shared_used: int
    pinned: int  #: mask
    loose: int
    memory_used: int
    pages_used: Mapping[int, int]

    @property
    def free_cpus(self) -> int:
        """The dedicated CPUs that nobody has, as a mask."""
        return self.facts.dedicated & ~self.pinned

    @property
    def free_dedicated(self) -> int:
        """How many dedicated CPUs can still be given."""
        return (self.facts.dedicated & ~self.pinned).bit_count() - self.loose

    def shared_capacity(self, pinned: int = 0) -> int:
        """Return how many shared vCPUs there may be, with some more CPUs pinned (a mask)."""
        left = self.facts.shared & ~(self.pinned | pinned)
        return left.bit_count() * self.facts.ratio // ratio.MILLION

    @property
    def free_shared(self) -> int:
        """How many shared vCPUs there may still be."""
        return self.shared_capacity() - self.shared_used

    @property
    def free_memory(self) -> int:
        """MiB of ordinary memory left, by capacity."""
        return self.facts.memory_capacity - self.memory_used

    @property
    def free_physical(self) -> int:
        """MiB of ordinary memory left that is given out once."""
        return self.facts.ordinary_mb - self.memory_used

    def free_pages(self, size_kib: int) -> int:
        """How many huge pages of a size are left; 0 if there are none."""
        return dict(self.facts.huge).get(size_kib, 0) - self.pages_used.get(size_kib, 0)

    @property
    def available_mb(self) -> int:
        """MiB left in pages of any size, for orders."""
        huge = 0
        for size, count in self.facts.huge:
            huge += (count - self.pages_used.get(size, 0)) * size
        return self.free_physical + huge // 1024

    @property
    def is_empty(self) -> bool:
        """Whether nobody uses anything of it."""
        taken = self.shared_used or self.pinned or self.loose or self.memory_used
        return not taken and not any(self.pages_used.values())


def facts_of(cell: HostCell, cpu_ratio: int, memory_ratio: int) -> Facts:
    """Return what a host cell is; ratios in millionths."""
    dedicated = mask_of(cell.dedicated)
    ordinary = cell.ordinary_mb
    huge = tuple((pool.size_kib, pool.total - pool.reserved) for pool in cell.huge_pages)
    return Facts(
        id=cell.id,
        socket=cell.socket,
        shared=mask_of(cell.shared),
        shared_ids=cell.shared,
        dedicated=dedicated,
        cores=cores_of(cell.siblings, dedicated),
        threads=cell.threads_per_core,
        ordinary_mb=ordinary,
        memory_capacity=ordinary * memory_ratio // ratio.MILLION,
        ratio=cpu_ratio,
        base_kib=cell.base_kib,
        huge=huge[::-1],
        distances=dict(cell.distances),
        physnets=cell.physnets,
        tunneled=cell.tunneled,
    )


@functools.lru_cache(maxsize=1024)
def cores_of(siblings: Iterable[Iterable[int]], dedicated: int) -> tuple[int, ...]:
    """Return the cores that have dedicated CPUs as masks, by the lowest of these.

    A CPU that is in no sibling set is a core by itself.

    >>> [bin(core) for core in cores_of(((0, 2),), 0b111)]
    ['0b101', '0b10']
    """
    cores = [mask_of(core) for core in siblings]
    alone = dedicated
    for core in cores:
        alone &= ~core
    cores += [1 << cpu for cpu in cpus_of(alone)]
    found = [core for core in cores if core & dedicated]
    return tuple(sorted(found, key=lambda core: (core & dedicated) & -(core & dedicated)))


def cell_of(facts: Facts, usage: CellUsage) -> Cell:
    """Return a host cell with its usage."""
    return Cell(
        facts, usage.shared, mask_of(usage.pinned), usage.loose, usage.memory_mb, dict(usage.pages)
    )


def usage_of(cell: Cell) -> CellUsage:
    """Return the usage of a cell, as it is kept."""
    return CellUsage._as_kept(
        cell=cell.facts.id,
        shared=cell.shared_used,
        pinned=cpus_of(cell.pinned),
        loose=cell.loose,
        memory_mb=cell.memory_used,
        pages=tuple(sorted(pair for pair in cell.pages_used.items() if pair[1])),
    )
