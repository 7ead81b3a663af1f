"""A host cell: the CPUs and the memory of one NUMA node of a host, and what is used of them.

Not to be confused with a *guest cell*, which is a part of a request
(:mod:`resource_objects.resources.numa.amount`).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sized
from typing import Any, NamedTuple

from resource_objects import base, fields, ratio
from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.fields import MAX_FIGURE
from resource_objects.resources.numa.cpuset import MAX_ID, CPUSet, mask_of

#: KiB in a MiB.
KIB = 1024


@base.register
class PagePool(base.ResourceObject, frozen=True):
    """The memory pages of one size in a host cell.

    >>> PagePool(size_kib=2048, total=512, reserved=64).free_mb
    896
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    size_kib: int = fields.integer(1, fields.MAX_FIGURE)
    total: int = fields.integer(0, fields.MAX_AMOUNT // fields.MAX_FIGURE)
    reserved: int = fields.integer(0, fields.MAX_FIGURE, default=0)

    def _validate(self) -> None:
        if self.size_kib & (self.size_kib - 1):
            raise InvalidInventory("page size", self.size_kib, "a power of two, in KiB")
        if self.reserved > self.total:
            raise InvalidInventory(
                f"reserved pages of {self.size_kib} KiB",
                self.reserved,
                f"at most the {self.total} there are",
            )

    @property
    def free_mb(self) -> int:
        """MiB in pages that are not reserved, used or not."""
        return (self.total - self.reserved) * self.size_kib // KIB


class _Cores(fields.TupleOf):
    """The CPUs of each core, no more than can be numbered.

    Each CPU is on one core, so a few repeated ranges of all CPUs are never expanded.
    """

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[Any, ...]:
        left = MAX_ID + 1

        def bounded(core: Any) -> Any:
            nonlocal left
            left -= len(core) if isinstance(core, Sized) else 0
            if left < 0:
                raise InvalidInventory(
                    "siblings of a cell", f"more than {MAX_ID + 1} CPUs", "each CPU on one core"
                )
            return core

        if isinstance(value, set | frozenset | str | bytes | Mapping):
            return super().coerce(obj, attr, value)
        return super().coerce(obj, attr, map(bounded, value))


@base.register
class HostCell(base.ResourceObject, frozen=True):
    """One NUMA node of a host: facts and settings, nothing of what is used.

    =============  =================================================================================
    ``id``         of the node; ids of a host need not be consecutive
    ``shared``     CPUs that run shared vCPUs; any number of them, up to the ratio
    ``dedicated``  CPUs that are given to one vCPU each. Where both sets are the same, a CPU serves
                   either way, never both at once (hosts of Nova before PCPU)
    ``siblings``   CPUs of each core with several threads. They may name CPUs in neither set, which
                   the host keeps; a CPU that is in none is a core by itself
    ``memory_mb``  MiB in all, in pages of any size
    ``pages``      by size, ascending. The smallest are the ordinary memory, which also serves
                   whoever asks for no page size; empty: all is ordinary, and no page size is known
    ``socket``     the package it is in, None if unknown
    ``distances``  ``{cell id: distance}``, 10 being the cell itself; empty if unknown
    ``physnets``   names of the networks whose devices are next to it
    ``tunneled``   whether those of tunnelled networks are
    =============  =================================================================================

    >>> cell = HostCell(id=0, dedicated=range(4), siblings=[(0, 2), (1, 3)], memory_mb=1024)
    >>> cell.cpus, cell.threads_per_core, cell.ordinary_mb
    ((0, 1, 2, 3), 2, 1024)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    id: int = fields.integer(0, MAX_ID, kw_only=False)
    shared: fields.Ids = fields.ids(default=())
    dedicated: fields.Ids = fields.ids(default=())
    siblings: fields.Coerced[tuple[tuple[int, ...], ...], Iterable[Iterable[int]]] = fields.field(
        _Cores(fields.IdSet()), default=()
    )
    memory_mb: int = fields.integer(0, fields.MAX_FIGURE, default=0)
    pages: fields.TupleFrom[PagePool] = fields.tuple_of("PagePool", default=())
    socket: int | None = fields.integer(default=None)
    distances: fields.Pairs = fields.integer_pairs(default=())
    physnets: fields.Names = fields.labels(default=frozenset())
    tunneled: bool = fields.boolean(default=False)

    def _validate(self) -> None:
        cores = tuple(sorted(self.siblings))
        if cores != self.siblings:
            self._store("siblings", cores)
        self._check_cpus()
        self._check_memory()

    def _check_cpus(self) -> None:
        on_cores: set[int] = set().union(*self.siblings)
        both = set(self.shared).intersection(self.dedicated)
        if both and self.shared != self.dedicated:
            raise InvalidInventory(
                f"shared and dedicated CPUs of cell {self.id}",
                sorted(both),
                "no CPU in both sets, or every one",
            )
        highest = max((*on_cores, *self.shared[-1:], *self.dedicated[-1:]), default=0)
        if highest > MAX_ID:
            raise InvalidInventory(f"CPU of cell {self.id}", highest, f"0-{MAX_ID}")
        if len(on_cores) != sum(map(len, self.siblings)) or () in self.siblings:
            raise InvalidInventory(
                f"siblings of cell {self.id}", self.siblings, "each CPU on one core, no core empty"
            )

    def _check_memory(self) -> None:
        pages = self.pages
        if len(pages) < 2:
            return
        sizes = [pool.size_kib for pool in pages]
        if sizes != sorted(set(sizes)):
            raise InvalidInventory(
                f"page sizes of cell {self.id}", sizes, "each size once, ascending"
            )
        in_huge_pages = sum(pool.total * pool.size_kib for pool in pages[1:])
        if in_huge_pages > self.memory_mb * KIB:
            raise InvalidInventory(
                f"huge pages of cell {self.id}",
                in_huge_pages,
                f"at most the {self.memory_mb * KIB} KiB of the cell",
            )

    @property
    def cpus(self) -> tuple[int, ...]:
        """Every CPU of the cell that is known, those kept for the host too."""
        return tuple(sorted(self.cpu_set))

    @property
    def cpu_set(self) -> set[int]:
        """The same in no order."""
        return set(self.shared).union(self.dedicated, *self.siblings)

    @property
    def threads_per_core(self) -> int:
        """The most threads that any core has; 1 without SMT."""
        return max(map(len, self.siblings), default=1)

    @property
    def base_kib(self) -> int | None:
        """Size of an ordinary page, None if no page size is known."""
        return self.pages[0].size_kib if self.pages else None

    @property
    def ordinary_mb(self) -> int:
        """MiB that serve whoever asks for no huge pages."""
        if not self.pages:
            return self.memory_mb
        huge = sum(pool.total * pool.size_kib for pool in self.pages[1:])
        return min(self.pages[0].free_mb, self.memory_mb - -(-huge // KIB))

    @property
    def huge_pages(self) -> tuple[PagePool, ...]:
        """The pages larger than ordinary ones, smallest first."""
        return self.pages[1:]


@base.register
class CellUsage(base.ResourceObject, frozen=True):
    """What is used of one host cell.

    ``shared`` vCPUs, ``pinned`` CPUs (given to a vCPU or an emulator, or left empty for one),
    ``loose`` CPUs taken by number only, nobody knows which, ``memory_mb`` of ordinary memory, and
    huge ``pages`` by size in KiB.

    >>> CellUsage(cell=0, pinned=[4, 5], pages={2048: 12}).pages
    ((2048, 12),)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    cell: int = fields.integer(0, MAX_ID, kw_only=False)
    shared: int = fields.integer(0, default=0)
    pinned: fields.Ids = fields.ids(default=())
    loose: int = fields.integer(0, fields.MAX_FIGURE, default=0)
    memory_mb: int = fields.integer(0, default=0)
    pages: fields.Pairs = fields.integer_pairs(default=())

    def _validate(self) -> None:
        if any(not count for _, count in self.pages):
            used = tuple((size, count) for size, count in self.pages if count)
            self._store("pages", used)


#: Page sizes by kind: the smallest (ordinary memory, never given out twice), any larger, any.
SMALL, LARGE, ANY = "small", "large", "any"
PAGE_SIZES = (SMALL, LARGE, ANY)

#: KiB of each unit. ``2MB`` means 2 MiB: pages have no decimal sizes.
_UNITS = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
_SIZE = re.compile(r"([0-9]{1,12})\s*(?:([kmgt])(?:i?b)?)?", re.ASCII | re.IGNORECASE)


def parse_size_kib(value: object) -> int | None:
    """Return the KiB of a page size, None if it is not the size of a page: a power of two.

    :param value: KiB as an integer or in digits, or digits with a unit such as ``2MB``, ``1 GiB``

    >>> [parse_size_kib(size) for size in ("2MB", "1 GiB", 2048, "4", "3MB", "large")]
    [2048, 1048576, 2048, 4, None, None]
    """
    text = str(value) if type(value) is int else value
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return None
    kib = int(match[1]) * _UNITS[(match[2] or "k").lower()]
    return kib if 0 < kib <= MAX_FIGURE and not kib & (kib - 1) else None


def parse_page_size(value: object) -> str:
    """Return a page size of a request as it is stored: a word, or KiB in digits.

    :param value: ``small``, ``large``, ``any``, or a size as :func:`parse_size_kib` takes it
    :raises InvalidInput: for any other value

    >>> [parse_page_size(size) for size in ("2MB", "1 GiB", 2048, "large")]
    ['2048', '1048576', '2048', 'large']
    >>> parse_page_size("2 pages")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: page size: got '2 pages', expected small, large, ...
    """
    if isinstance(value, str) and value.lower() in PAGE_SIZES:
        return value.lower()
    kib = parse_size_kib(value)
    if kib is None:
        expected = "small, large, any, or a power of two such as 2048 (KiB) or 1GB"
        raise InvalidInput("text", "page size", value, expected)
    return str(kib)


def show_kib(kib: int) -> str:
    """Return a size in the largest unit that divides it.

    >>> show_kib(4), show_kib(2048), show_kib(1048576)
    ('4 KiB', '2 MiB', '1 GiB')
    """
    for unit, factor in (("TiB", 1024**3), ("GiB", 1024**2), ("MiB", 1024)):
        if kib % factor == 0:
            return f"{kib // factor} {unit}"
    return f"{kib} KiB"


#: How the classes of huge pages begin.
_PAGES = "CUSTOM_HUGEPAGES_"


def page_class(size_kib: int) -> str:
    """Return the resource class of huge pages of a size.

    >>> page_class(2048)
    'CUSTOM_HUGEPAGES_2048KB'
    """
    return f"{_PAGES}{size_kib}KB"


def size_of_pages(resource_class: str) -> int | None:
    """Return the size in KiB of the huge pages that a class counts, None if it counts others.

    >>> size_of_pages("CUSTOM_HUGEPAGES_2048KB"), size_of_pages("MEMORY_MB")
    (2048, None)
    """
    if not resource_class.startswith(_PAGES):
        return None
    return int(resource_class.removeprefix(_PAGES).removesuffix("KB"))


# --- host cells as decisions read them: masks and plain integers ----------------------------------


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
    #: What guest cells would take of it, by what they ask; None where nobody asks twice.
    choices: dict[Any, Any] | None = None

    @property
    def free_cpus(self) -> int:
        """The dedicated CPUs that nobody has, as a mask."""
        return self.facts.dedicated & ~self.pinned

    @property
    def free_dedicated(self) -> int:
        """How many dedicated CPUs can still be given."""
        return (self.facts.dedicated & ~self.pinned).bit_count() - self.loose

    @property
    def serves_either_way(self) -> bool:
        """Whether its CPUs are shared and dedicated both."""
        return bool(self.facts.shared & self.facts.dedicated)

    def shared_cpus(self, pinned: int = 0) -> int:
        """Return the CPUs that run shared vCPUs, with some more pinned; both are masks.

        Where CPUs serve either way, one that is dedicated runs them no more.
        """
        return self.facts.shared & ~(self.pinned | pinned)

    def shared_capacity(self, pinned: int = 0) -> int:
        """Return how many shared vCPUs there may be, with some more CPUs pinned (a mask)."""
        return self.shared_cpus(pinned).bit_count() * self.facts.ratio // ratio.MILLION

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

    @property
    def available_mb(self) -> int:
        """MiB left in pages of any size, for orders."""
        huge = 0
        for size, count in self.facts.huge:
            huge += (count - self.pages_used.get(size, 0)) * size
        return self.free_physical + huge // 1024


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
    cores += [1 << cpu for cpu in CPUSet.from_mask(alone)]
    found = [core for core in cores if core & dedicated]
    return tuple(sorted(found, key=lambda core: (core & dedicated) & -(core & dedicated)))


def cell_of(facts: Facts, usage: CellUsage) -> Cell:
    """Return a host cell with its usage."""
    return Cell(
        facts, usage.shared, mask_of(usage.pinned), usage.loose, usage.memory_mb, dict(usage.pages)
    )


def usage_of(cell: Cell) -> CellUsage:
    """Return the usage of a cell, as it is kept."""
    return CellUsage._construct(
        cell=cell.facts.id,
        shared=cell.shared_used,
        pinned=CPUSet.from_mask(cell.pinned),
        loose=cell.loose,
        memory_mb=cell.memory_used,
        pages=tuple(sorted(pair for pair in cell.pages_used.items() if pair[1])),
    )
