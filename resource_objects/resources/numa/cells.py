"""A host cell: the CPUs and the memory of one NUMA node of a host, and their usage.

A host offers a :class:`HostCell`. :class:`CellState` is what the search reads: the same cell with
its usage, as masks and integers. :class:`CellUsage` is the form in which usage is sent.

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
from resource_objects.resources.matching import bits
from resource_objects.resources.numa.cpuset import MAX_ID, CPUSet, mask_of

#: KiB in a MiB.
KIB_PER_MIB = 1024


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
            subject = f"reserved pages of {self.size_kib} KiB"
            raise InvalidInventory(subject, self.reserved, f"at most the {self.total} there are")

    @property
    def free_mb(self) -> int:
        """MiB in pages that are not reserved, used or not."""
        return (self.total - self.reserved) * self.size_kib // KIB_PER_MIB


class _Cores(fields.TupleOf):
    """The CPUs of each core, at most as many as there are CPU numbers.

    A CPU is on one core, so repeated ranges of all CPUs are refused before they are expanded.
    """

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[Any, ...]:
        remaining = MAX_ID + 1

        def bounded(core: Any) -> Any:
            nonlocal remaining
            remaining -= len(core) if isinstance(core, Sized) else 0
            if remaining < 0:
                raise InvalidInventory(
                    "siblings of a cell", f"more than {MAX_ID + 1} CPUs", "each CPU on one core"
                )
            return core

        if isinstance(value, set | frozenset | str | bytes | Mapping):
            return super().coerce(obj, attr, value)
        return super().coerce(obj, attr, map(bounded, value))


class CellFacts(NamedTuple):
    """A host cell as masks of CPUs, MiB, and KiB of page sizes."""

    shared: int
    dedicated: int
    dual: int  #: CPUs that serve either shared or dedicated vCPUs
    cores: tuple[int, ...]  #: cores with dedicated CPUs, by the lowest of these
    threads: int  #: of the core with the most threads
    ordinary_mb: int
    base_kib: int | None  #: size of an ordinary page, None if no page size is known
    huge: tuple[tuple[int, int], ...]  #: (KiB, pages that are not reserved), the largest first


@base.register
class HostCell(base.ResourceObject, frozen=True):
    """One NUMA node as a host offers it, without usage.

    =============  =================================================================================
    ``id``         of the node; ids of a host need not be consecutive
    ``shared``     CPUs that run shared vCPUs, as many as the allocation ratio allows
    ``dedicated``  CPUs that run one vCPU each. Where both sets are equal, a CPU serves either
                   purpose, never both at once (Nova hosts with ``vcpu_pin_set``)
    ``siblings``   CPUs of each core with several threads. They may include CPUs that the host
                   does not offer; a CPU that is not in ``siblings`` is a core of one thread
    ``memory_mb``  MiB in all, in pages of any size
    ``pages``      pools by size, ascending. The smallest pages are the ordinary memory, which
                   also serves requests without a page size. Empty: all memory is ordinary, and
                   no page size is known
    ``socket``     id of the package that contains the cell, None if unknown
    ``distances``  ``{cell id: distance}``, 10 for the cell itself; empty if unknown
    ``physnets``   names of the physical networks whose devices are local to the cell
    ``tunneled``   whether devices of tunnelled networks are local to the cell
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
        on_cores: set[int] = set().union(*cores)
        both = set(self.shared).intersection(self.dedicated)
        if both and self.shared != self.dedicated:
            subject = f"shared and dedicated CPUs of cell {self.id}"
            raise InvalidInventory(subject, sorted(both), "no CPU in both sets, or every one")
        highest = max((*on_cores, *self.shared[-1:], *self.dedicated[-1:]), default=0)
        if highest > MAX_ID:
            raise InvalidInventory(f"CPU of cell {self.id}", highest, f"0-{MAX_ID}")
        if len(on_cores) != sum(map(len, cores)) or () in cores:
            expected = "each CPU on one core, no core empty"
            raise InvalidInventory(f"siblings of cell {self.id}", cores, expected)
        if len(self.pages) < 2:
            return
        sizes = [pool.size_kib for pool in self.pages]
        if sizes != sorted(set(sizes)):
            expected = "each size once, ascending"
            raise InvalidInventory(f"page sizes of cell {self.id}", sizes, expected)
        huge_kib = sum(pool.total * pool.size_kib for pool in self.pages[1:])
        if huge_kib > self.memory_mb * KIB_PER_MIB:
            expected = f"at most the {self.memory_mb * KIB_PER_MIB} KiB of the cell"
            raise InvalidInventory(f"huge pages of cell {self.id}", huge_kib, expected)

    @property
    def cpus(self) -> tuple[int, ...]:
        """All known CPUs of the cell, including those that the host does not offer."""
        return tuple(sorted({*self.shared, *self.dedicated}.union(*self.siblings)))

    @property
    def threads_per_core(self) -> int:
        """The number of threads of the core with the most threads; 1 without SMT."""
        return max(map(len, self.siblings), default=1)

    @property
    def base_kib(self) -> int | None:
        """Size of an ordinary page in KiB, None if no page size is known."""
        return self.pages[0].size_kib if self.pages else None

    @property
    def ordinary_mb(self) -> int:
        """MiB of ordinary memory: not in huge pages and not reserved."""
        if not self.pages:
            return self.memory_mb
        huge_kib = sum(pool.total * pool.size_kib for pool in self.pages[1:])
        return min(self.pages[0].free_mb, self.memory_mb - -(-huge_kib // KIB_PER_MIB))

    @property
    def huge_pages(self) -> tuple[PagePool, ...]:
        """The pools of pages larger than ordinary ones, the smallest first."""
        return self.pages[1:]

    @functools.cached_property
    def facts(self) -> CellFacts:
        """The cell as masks and integers."""
        shared, dedicated = mask_of(self.shared), mask_of(self.dedicated)
        return CellFacts(
            shared,
            dedicated,
            shared & dedicated,
            cores_of(self.siblings, dedicated),
            self.threads_per_core,
            self.ordinary_mb,
            self.base_kib,
            tuple((pool.size_kib, pool.total - pool.reserved) for pool in self.pages[:0:-1]),
        )


@functools.lru_cache(maxsize=1024)
def cores_of(siblings: Iterable[Iterable[int]], dedicated: int) -> tuple[int, ...]:
    """Return the cores that contain dedicated CPUs as masks, by the lowest of these CPUs.

    A CPU that is in no sibling set is a core of one thread.

    >>> [bin(core) for core in cores_of(((0, 2),), 0b111)]
    ['0b101', '0b10']
    """
    cores = [core for core in map(mask_of, siblings) if core & dedicated]
    cores += [1 << cpu for cpu in bits(dedicated & ~sum(cores))]
    return tuple(sorted(cores, key=lambda core: (core & dedicated) & -(core & dedicated)))


@base.register
class CellUsage(base.ResourceObject, frozen=True):
    """The usage of one host cell.

    ``shared`` vCPUs, ``pinned`` CPUs (allocated to a vCPU or an emulator, or left idle for one),
    ``loose`` CPUs that are used by number only, so that it is unknown which they are, ``memory_mb``
    of ordinary memory, and huge ``pages`` by size in KiB.

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
            self._store("pages", tuple((size, count) for size, count in self.pages if count))


@dataclasses.dataclass(slots=True, eq=False)
class CellState:
    """A host cell and its usage, as the search reads them. It does not change.

    Sets of CPUs are masks, memory is in MiB. ``choices`` remembers how guest cells fit.
    """

    cell: HostCell
    facts: CellFacts
    cpu_ratio: int  #: of shared CPUs, in millionths
    memory_capacity: int  #: ordinary memory times its ratio
    shared_used: int
    pinned: int
    loose: int
    memory_used: int
    pages_used: Mapping[int, int]
    choices: dict[Any, Any] = dataclasses.field(default_factory=dict)
    free_cpus: int = dataclasses.field(init=False)  #: dedicated CPUs that are not pinned
    free_dedicated: int = dataclasses.field(init=False)  #: the number of them, less loose ones
    free_shared: int = dataclasses.field(init=False)  #: shared vCPUs that still fit
    #: MiB in pages of any size that are not used, without overcommitment
    free_physical_mb: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.free_cpus = self.facts.dedicated & ~self.pinned
        self.free_dedicated = self.free_cpus.bit_count() - self.loose
        self.free_shared = self.shared_capacity() - self.shared_used
        free_kib = 0
        for size, count in self.facts.huge:
            free_kib += (count - self.pages_used.get(size, 0)) * size
        self.free_physical_mb = self.facts.ordinary_mb - self.memory_used + free_kib // KIB_PER_MIB

    @classmethod
    def of(cls, cell: HostCell, usage: CellUsage, cpu_ratio: int, memory_ratio: int) -> CellState:
        """Return the state of a host cell; ratios in millionths."""
        facts = cell.facts
        return cls(
            cell,
            facts,
            cpu_ratio,
            facts.ordinary_mb * memory_ratio // ratio.MILLION,
            usage.shared,
            mask_of(usage.pinned),
            usage.loose,
            usage.memory_mb,
            dict(usage.pages),
        )

    def usage(self) -> CellUsage:
        """Return the usage as it is sent."""
        return CellUsage._construct(
            cell=self.cell.id,
            shared=self.shared_used,
            pinned=CPUSet.from_mask(self.pinned),
            loose=self.loose,
            memory_mb=self.memory_used,
            pages=tuple(sorted(pair for pair in self.pages_used.items() if pair[1])),
        )

    def with_usage(self, usage: CellUsage) -> CellState:
        """Return the same cell with another usage."""
        return dataclasses.replace(
            self,
            shared_used=usage.shared,
            pinned=mask_of(usage.pinned),
            loose=usage.loose,
            memory_used=usage.memory_mb,
            pages_used=dict(usage.pages),
            choices={},
        )

    def shared_cpus(self, pinned: int = 0) -> int:
        """Return the mask of the CPUs that run shared vCPUs if more CPUs were pinned (a mask)."""
        return self.facts.shared & ~(self.pinned | pinned)

    def shared_capacity(self, pinned: int = 0) -> int:
        """Return the capacity for shared vCPUs if more CPUs were pinned (a mask)."""
        return self.shared_cpus(pinned).bit_count() * self.cpu_ratio // ratio.MILLION


#: Page sizes by kind: the smallest (ordinary memory without overcommitment), any larger size, any.
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


_PAGE_CLASS_PREFIX = "CUSTOM_HUGEPAGES_"


def page_class(size_kib: int) -> str:
    """Return the resource class of huge pages of a size.

    >>> page_class(2048)
    'CUSTOM_HUGEPAGES_2048KB'
    """
    return f"{_PAGE_CLASS_PREFIX}{size_kib}KB"


def page_size_of_class(resource_class: str) -> int | None:
    """Return the KiB of a page of a resource class, None if the class does not count huge pages.

    >>> page_size_of_class("CUSTOM_HUGEPAGES_2048KB"), page_size_of_class("MEMORY_MB")
    (2048, None)
    """
    if not resource_class.startswith(_PAGE_CLASS_PREFIX):
        return None
    return int(resource_class.removeprefix(_PAGE_CLASS_PREFIX).removesuffix("KB"))
