"""Whether one guest cell fits one host cell: every rule of a pair, in one place.

Source of the rules: Nova's ``_numa_fit_instance_cell``, with its holes closed: what is used counts
always, and a page size is found anew for every pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from resource_objects import ratio
from resource_objects.exceptions import Rule
from resource_objects.resources.numa import threads, words
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.cells import Cell
from resource_objects.resources.numa.host import KIB


class Need(NamedTuple):
    """What one guest cell asks of a host cell. Equal needs are one."""

    shared: int
    dedicated: int
    memory_mb: int
    has_emulator: bool
    page_size: str
    thread_policy: str | None
    overcommits: bool  #: whether ordinary memory that is given out twice will do

    @property
    def cpus(self) -> int:
        """How many dedicated CPUs it asks for."""
        return self.dedicated + self.has_emulator


class Pick(NamedTuple):
    """How a guest cell would be on a host cell."""

    page_size_kib: int | None
    taken: int  #: mask of dedicated CPUs, those left empty and the emulator's included


class Failure(NamedTuple):
    """A rule that failed, with its figures; ``word`` is a policy or page size."""

    rule: Rule
    resource: str
    asked: int
    bound: int
    used: int
    word: str | None = None


#: How the classes of huge pages begin.
_PAGES = "CUSTOM_HUGEPAGES_"

#: Bounds on what may be used in all: shared vCPUs, MiB of ordinary memory; None for none.
Bounds: TypeAlias = tuple[int | None, int | None]
NO_BOUNDS: Bounds = (None, None)


def needs_of(amount: NUMATopologyAmount) -> tuple[Need, ...]:
    """Return what each guest cell asks for; the emulator is with guest cell 0."""
    overcommits = may_overcommit(amount)
    return tuple(
        Need(
            len(cell.shared),
            len(cell.dedicated),
            cell.memory_mb,
            amount.has_emulator and not number,
            amount.page_size,
            amount.thread_policy,
            overcommits,
        )
        for number, cell in enumerate(amount.cells)
    )


def may_overcommit(amount: NUMATopologyAmount) -> bool:
    """Return whether ordinary memory that is given out twice will do: to shared vCPUs alone."""
    return amount.cpu_policy == words.SHARED and not amount.page_size


def pick(cell: Cell, need: Need, bounds: Bounds) -> Pick | None:
    """Return how a guest cell would be on a host cell, None if some rule forbids it."""
    if need.cpus and need.cpus > cell.free_dedicated:
        return None
    if need.shared and next(_shared(cell, need, bounds), None) is not None:
        return None
    size: int | None = None
    if need.memory_mb:
        sizes = possible_sizes(cell, need)
        for size in sizes:
            if next(_memory(cell, need, bounds, size), None) is None:
                break
        else:
            return None
    if not need.cpus:
        return Pick(size, 0)
    taken = threads.choose(cell, need.dedicated, need.thread_policy, need.has_emulator)
    if taken is None or taken.bit_count() > cell.free_dedicated:
        return None
    if cell.shared_used > cell.shared_capacity(taken) - need.shared and taken & cell.facts.shared:
        return None
    return Pick(size, taken)


def failures(cell: Cell, need: Need, bounds: Bounds) -> Iterator[Failure]:
    """Yield each rule by which a guest cell cannot be on a host cell; none if it can."""
    if need.shared:
        yield from _shared(cell, need, bounds)
    if need.cpus:
        yield from _dedicated(cell, need)
    if need.memory_mb:
        sizes = possible_sizes(cell, need)
        if not sizes:
            word = _said(need.page_size)
            yield Failure(Rule.PAGE_SIZE, "MEMORY_MB", need.memory_mb, 0, 0, word)
        found = [list(_memory(cell, need, bounds, size)) for size in sizes]
        if found and all(found):
            yield from found[-1] if need.page_size == words.ANY else found[0]


def _shared(cell: Cell, need: Need, bounds: Bounds) -> Iterator[Failure]:
    there = cell.facts.shared.bit_count()
    if need.shared > there:
        yield Failure(Rule.MAX_UNIT, "VCPU", need.shared, there, cell.shared_used)
    after, capacity = cell.shared_used + need.shared, cell.shared_capacity()
    if after > capacity:
        yield Failure(Rule.CAPACITY, "VCPU", need.shared, capacity, cell.shared_used)
    elif bounds[0] is not None and after > bounds[0]:
        yield Failure(Rule.LIMIT, "VCPU", need.shared, bounds[0], cell.shared_used)


def _dedicated(cell: Cell, need: Need) -> Iterator[Failure]:
    total = cell.facts.dedicated.bit_count()
    free = cell.free_dedicated
    if need.cpus > free:
        yield Failure(Rule.CAPACITY, "PCPU", need.cpus, total, total - free)
        return
    taken = threads.choose(cell, need.dedicated, need.thread_policy, need.has_emulator)
    if taken is None:
        if threads.choose(cell, need.dedicated, need.thread_policy, False) is not None:
            yield Failure(Rule.EMULATOR, "PCPU", need.cpus, 0, total - free)
        else:
            most = threads.most(cell, need.thread_policy)
            word = need.thread_policy or words.PREFER
            yield Failure(Rule.THREADS, "PCPU", need.dedicated, most, 0, word)
    elif taken.bit_count() > free:
        yield Failure(Rule.CAPACITY, "PCPU", taken.bit_count(), total, total - free)
    elif taken & cell.facts.shared:
        capacity = cell.shared_capacity(taken)
        if cell.shared_used + need.shared <= capacity:
            return
        if need.shared:
            yield Failure(Rule.CAPACITY, "VCPU", need.shared, capacity, cell.shared_used)
        else:
            free = _unneeded(cell)
            yield Failure(Rule.CAPACITY, "PCPU", taken.bit_count(), total, total - free)


def _unneeded(cell: Cell) -> int:
    """Return how many dedicated CPUs the shared vCPUs leave, of those that serve either way."""
    needed = -(-cell.shared_used * ratio.MILLION // cell.facts.ratio)
    either = (cell.free_cpus & cell.facts.shared).bit_count()
    shared = (cell.facts.shared & ~cell.pinned).bit_count()
    return cell.free_dedicated - min(either, max(0, needed - shared + either))


def possible_sizes(cell: Cell, need: Need) -> list[int | None]:
    """Return the page sizes of a host cell that will do, in the order they are tried.

    None is ordinary memory.
    """
    asked, base = need.page_size, cell.facts.base_kib
    if not asked:
        return [None]
    if base is None:
        return []
    if asked == words.SMALL or asked == str(base):
        return [None]
    sizes: list[int | None] = [size for size, _ in cell.facts.huge]
    if asked == words.LARGE:
        return sizes
    if asked == words.ANY:
        return [*sizes, None]
    return [size for size in sizes if str(size) == asked]


def _memory(cell: Cell, need: Need, bounds: Bounds, size: int | None) -> Iterator[Failure]:
    asked = need.memory_mb
    if size is not None:
        yield from _pages(cell, asked, size)
        return
    facts, used = cell.facts, cell.memory_used
    if facts.base_kib is not None and asked * KIB % facts.base_kib:
        yield Failure(Rule.INDIVISIBLE, "MEMORY_MB", asked, facts.base_kib, used)
    if not need.overcommits:
        if used + asked > facts.ordinary_mb:
            yield Failure(Rule.PHYSICAL, "MEMORY_MB", asked, facts.ordinary_mb, used)
    elif asked > facts.ordinary_mb:
        yield Failure(Rule.MAX_UNIT, "MEMORY_MB", asked, facts.ordinary_mb, used)
    if used + asked > facts.memory_capacity:
        yield Failure(Rule.CAPACITY, "MEMORY_MB", asked, facts.memory_capacity, used)
    elif bounds[1] is not None and used + asked > bounds[1]:
        yield Failure(Rule.LIMIT, "MEMORY_MB", asked, bounds[1], used)


def _pages(cell: Cell, asked: int, size: int) -> Iterator[Failure]:
    pages, rest = divmod(asked * KIB, size)
    total, used = dict(cell.facts.huge)[size], cell.pages_used.get(size, 0)
    if rest:
        yield Failure(Rule.INDIVISIBLE, "MEMORY_MB", asked, size, used)
    elif used + pages > total:
        yield Failure(Rule.CAPACITY, page_class(size), pages, total, used)


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


def _said(size: str) -> str:
    return words.show_kib(int(size)) if size.isdecimal() else size
