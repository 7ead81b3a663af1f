"""Whether one guest cell fits one host cell: every rule of a pair, in one place.

Source of the rules: Nova's ``_numa_fit_instance_cell``, with its holes closed: what is used counts
always, and a page size is found anew for every pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self, TypeAlias

from resource_objects import base, fields, ratio
from resource_objects.exceptions import InvalidInput
from resource_objects.reasons import Rule
from resource_objects.resources import abstract
from resource_objects.resources.numa import text
from resource_objects.resources.numa.amount import (
    ISOLATE,
    PREFER,
    REQUIRE,
    SHARED,
    NUMATopologyAmount,
)
from resource_objects.resources.numa.cells import ANY, KIB, LARGE, SMALL, Cell, page_class, show_kib
from resource_objects.resources.numa.cpuset import CPUSet
from resource_objects.resources.records import AmountRecord


class CellDemand(NamedTuple):
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


class CellChoice(NamedTuple):
    """How a guest cell would be on a host cell."""

    page_size_kib: int | None
    taken: int  #: mask of dedicated CPUs, those left empty and the emulator's included


class Failure(NamedTuple):
    """A rule that failed, with its figures; ``word`` is a policy or page size."""

    rule: Rule
    resource: str
    requested: int
    bound: int
    used: int
    word: str | None = None


#: Bounds on what may be used in all: shared vCPUs, MiB of ordinary memory; None for none.
Bounds: TypeAlias = tuple[int | None, int | None]
NO_BOUNDS: Bounds = (None, None)


def cell_demands(amount: NUMATopologyAmount) -> tuple[CellDemand, ...]:
    """Return what each guest cell asks for; the emulator is with guest cell 0."""
    overcommits = may_overcommit(amount)
    return tuple(
        CellDemand(
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
    return amount.cpu_policy == SHARED and not amount.page_size


def choose_cell(cell: Cell, need: CellDemand, bounds: Bounds) -> CellChoice | None:
    """Return how a guest cell would be on a host cell, None if some rule forbids it."""
    if need.cpus and need.cpus > cell.free_dedicated:
        return None  # a count, which rules out most cells of a full host, before CPUs are looked at
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
        return CellChoice(size, 0)
    taken = choose_cpus(cell, need.dedicated, need.thread_policy, need.has_emulator)
    if taken is None or taken.bit_count() > cell.free_dedicated:
        return None  # siblings that are left empty are taken too: it may be more than was asked for
    if taken & cell.facts.shared and next(_left_shared(cell, need, taken), None) is not None:
        return None
    return CellChoice(size, taken)


def cell_failures(cell: Cell, need: CellDemand, bounds: Bounds) -> Iterator[Failure]:
    """Yield each rule by which a guest cell cannot be on a host cell; none if it can."""
    if need.shared:
        yield from _shared(cell, need, bounds)
    if need.cpus:
        yield from _dedicated(cell, need)
    if need.memory_mb:
        sizes = possible_sizes(cell, need)
        if not sizes:
            size = need.page_size
            word = show_kib(int(size)) if size.isdecimal() else size
            yield Failure(Rule.PAGE_SIZE, "MEMORY_MB", need.memory_mb, 0, 0, word)
        found = [list(_memory(cell, need, bounds, size)) for size in sizes]
        if found and all(found):
            # one of the sizes is told: where any would do, ordinary memory, of which hosts have
            # most; else the one that would have been tried first
            yield from found[-1] if need.page_size == ANY else found[0]


def _shared(cell: Cell, need: CellDemand, bounds: Bounds) -> Iterator[Failure]:
    there = cell.shared_cpus().bit_count()
    if need.shared > there:
        yield Failure(Rule.MAX_UNIT, "VCPU", need.shared, there, cell.shared_used)
    after, capacity = cell.shared_used + need.shared, cell.shared_capacity()
    if after > capacity:
        yield Failure(Rule.CAPACITY, "VCPU", need.shared, capacity, cell.shared_used)
    elif bounds[0] is not None and after > bounds[0]:
        yield Failure(Rule.LIMIT, "VCPU", need.shared, bounds[0], cell.shared_used)


def _dedicated(cell: Cell, need: CellDemand) -> Iterator[Failure]:
    total = cell.facts.dedicated.bit_count()
    free = cell.free_dedicated
    if need.cpus > free:
        yield Failure(Rule.CAPACITY, "PCPU", need.cpus, total, total - free)
        return
    taken = choose_cpus(cell, need.dedicated, need.thread_policy, need.has_emulator)
    if taken is None:
        if choose_cpus(cell, need.dedicated, need.thread_policy, False) is not None:
            yield Failure(Rule.EMULATOR, "PCPU", need.cpus, 0, total - free)
        else:
            most = most_cpus(cell, need.thread_policy)
            word = need.thread_policy or PREFER
            yield Failure(Rule.THREADS, "PCPU", need.dedicated, most, 0, word)
    elif taken.bit_count() > free:
        yield Failure(Rule.CAPACITY, "PCPU", taken.bit_count(), total, total - free)
    elif taken & cell.facts.shared:
        yield from _left_shared(cell, need, taken)


def _left_shared(cell: Cell, need: CellDemand, taken: int) -> Iterator[Failure]:
    requested, used = need.shared, cell.shared_used
    there, capacity = cell.shared_cpus(taken).bit_count(), cell.shared_capacity(taken)
    if requested > there:
        yield Failure(Rule.MAX_UNIT, "VCPU", requested, there, used)
    elif used + requested > capacity and requested:
        yield Failure(Rule.CAPACITY, "VCPU", requested, capacity, used)
    elif used > capacity:  # nobody asks here for shared CPUs, but who has some would lack them
        total, free = cell.facts.dedicated.bit_count(), _unneeded(cell)
        yield Failure(Rule.CAPACITY, "PCPU", taken.bit_count(), total, total - free)


def _unneeded(cell: Cell) -> int:
    needed = -(-cell.shared_used * ratio.MILLION // cell.facts.ratio)  # rounded up
    either = (cell.free_cpus & cell.facts.shared).bit_count()
    shared = (cell.facts.shared & ~cell.pinned).bit_count()
    return cell.free_dedicated - min(either, max(0, needed - shared + either))


def possible_sizes(cell: Cell, need: CellDemand) -> list[int | None]:
    """Return the page sizes of a host cell that will do, in the order they are tried.

    None is ordinary memory.
    """
    requested, base = need.page_size, cell.facts.base_kib
    if not requested:
        return [None]
    if base is None:
        return []
    if requested == SMALL or requested == str(base):
        return [None]
    sizes: list[int | None] = [size for size, _ in cell.facts.huge]
    if requested == LARGE:
        return sizes
    if requested == ANY:
        return [*sizes, None]
    return [size for size in sizes if str(size) == requested]


def _memory(cell: Cell, need: CellDemand, bounds: Bounds, size: int | None) -> Iterator[Failure]:
    requested = need.memory_mb
    if size is not None:
        yield from _pages(cell, requested, size)
        return
    facts, used = cell.facts, cell.memory_used
    if facts.base_kib is not None and requested * KIB % facts.base_kib:
        yield Failure(Rule.INDIVISIBLE, "MEMORY_MB", requested, facts.base_kib, used)
    if not need.overcommits:
        if used + requested > facts.ordinary_mb:
            yield Failure(Rule.PHYSICAL, "MEMORY_MB", requested, facts.ordinary_mb, used)
    elif requested > facts.ordinary_mb:
        yield Failure(Rule.MAX_UNIT, "MEMORY_MB", requested, facts.ordinary_mb, used)
    if used + requested > facts.memory_capacity:
        yield Failure(Rule.CAPACITY, "MEMORY_MB", requested, facts.memory_capacity, used)
    elif bounds[1] is not None and used + requested > bounds[1]:
        yield Failure(Rule.LIMIT, "MEMORY_MB", requested, bounds[1], used)


def _pages(cell: Cell, requested: int, size: int) -> Iterator[Failure]:
    pages, rest = divmod(requested * KIB, size)
    total, used = dict(cell.facts.huge)[size], cell.pages_used.get(size, 0)
    if rest:
        yield Failure(Rule.INDIVISIBLE, "MEMORY_MB", requested, size, used)
    elif used + pages > total:
        yield Failure(Rule.CAPACITY, page_class(size), pages, total, used)


# --- which CPUs dedicated vCPUs take: the thread policies -----------------------------------------
# Source of the rules: Nova's ``_pack_instance_onto_cores``, stated for whole cores. Where that
# leaves a choice to chance (the order of a set), here it is:
#
# 1. cores with the fewest free threads that will do come first, so that whole cores stay whole; of
#    those, the one with the lowest free CPU; threads ascending;
# 2. which vCPU is on which CPU is a function of the set of CPUs taken alone (:func:`cpu_layout`):
#    so the ledger, which keeps that set, keeps all there is to know.


class CPULayout(NamedTuple):
    """What each of some taken CPUs is for."""

    vcpus: tuple[int, ...]  #: by dedicated vCPU, ascending
    emulator: int | None
    idle: tuple[int, ...]


_NOTHING = CPULayout((), None, ())


def choose_cpus(cell: Cell, count: int, policy: str | None, has_emulator: bool) -> int | None:
    """Return the CPUs to take for ``count`` dedicated vCPUs as a mask, None if there are none.

    CPUs that are left empty on purpose are in it, and the emulator's.
    """
    free = cell.free_cpus
    if policy == ISOLATE:  # the emulator's siblings stay empty too: Nova's accounting takes them
        return _isolated(cell, free, count + has_emulator)
    taken = _packed(cell, free, count, policy)
    spare = 0 if taken is None else free & ~taken
    if taken is None or not has_emulator:
        return taken
    if not spare:
        return None
    if policy == REQUIRE:
        spare = spare & _odd_core(cell, taken) or spare
    return taken | _first(_free_threads(cell, spare))


def most_cpus(cell: Cell, policy: str | None) -> int:
    """Return how many dedicated vCPUs a policy leaves room for in a cell."""
    free = cell.free_cpus
    if policy == ISOLATE:
        return len(_whole(cell, free))
    if policy != REQUIRE:
        return free.bit_count()
    threads = _free_threads(cell, free)
    return max(
        (k * sum(1 for core in threads if core.bit_count() >= k) for k in _levels(cell, policy)),
        default=0,
    )


def cpu_layout(
    cores: Iterable[int], taken: int, count: int, policy: str | None, has_emulator: bool
) -> CPULayout | None:
    """Return what each taken CPU is for, None if so many vCPUs do not take just these.

    Cores come by how many of their threads are taken, most first, then by lowest CPU; vCPUs take
    threads in that order (isolated ones the first of each core), the emulator the last one. Where
    the first core has one more than each of the others, that one is the emulator's, so that vCPUs
    stay with their siblings.

    >>> cpu_layout([0b0101, 0b1010], 0b0111, 2, None, True)
    CPULayout(vcpus=(0, 2), emulator=1, idle=())
    """
    if not count and not has_emulator:
        return None if taken else _NOTHING
    used = [core for core in cores if core & taken]
    groups: list[tuple[int, ...]] = [CPUSet.from_mask(core & taken) for core in used]
    groups.sort(key=lambda cpus: (-len(cpus), cpus[0]))
    idle: tuple[int, ...] = ()
    if policy == ISOLATE:
        if any(core & ~taken for core in used):
            return None
        idle = tuple(sorted(cpu for cpus in groups for cpu in cpus[1:]))
        groups = [cpus[:1] for cpus in groups]
    ordered = [cpu for cpus in groups for cpu in cpus]
    if len(ordered) != count + has_emulator:
        return None
    emulator = ordered.pop(_emulators([*map(len, groups)])) if has_emulator else None
    return CPULayout(tuple(ordered), emulator, idle)


def _emulators(counts: list[int]) -> int:
    """Return which CPU in order is the emulator's, given how many are taken of each core.

    The last one; but the odd one of the first core where without it all cores are equal, of several
    threads each: so vCPUs that took threads of cores together keep them together.
    """
    first, *others = counts
    is_odd = len(set(others)) == 1 and first == others[0] + 1 > 2
    return first - 1 if is_odd else -1


def _isolated(cell: Cell, free: int, count: int) -> int | None:
    whole = _whole(cell, free)
    if len(whole) < count:
        return None
    taken = 0
    for core in whole[:count]:
        taken |= core
    return taken


def _whole(cell: Cell, free: int) -> list[int]:
    """Return the cores of which every thread is free, those with the fewest threads first."""
    return sorted(
        (core for core in cell.facts.cores if core & free == core),
        key=lambda core: core.bit_count(),
    )


def _packed(cell: Cell, free: int, count: int, policy: str | None) -> int | None:
    if not count:
        return 0
    threads = _free_threads(cell, free)
    for level in _levels(cell, policy):
        able = [core for core in threads if core.bit_count() >= level]
        if level * len(able) >= count:
            return _fill(able, level, count)
    if policy == REQUIRE or free.bit_count() < count:
        return None
    return _fill(threads, cell.facts.threads, count)


def _levels(cell: Cell, policy: str | None) -> range:
    """Return how many threads of a core are taken together, the most first."""
    return range(cell.facts.threads, 1 if policy == REQUIRE else 0, -1)


def _fill(threads: Iterable[int], level: int, count: int) -> int:
    taken = 0
    for core in threads:
        for _ in range(level):
            lowest = core & -core
            if not lowest:
                break
            taken |= lowest
            core ^= lowest
            count -= 1
            if not count:
                return taken
    return taken


def _free_threads(cell: Cell, free: int) -> list[int]:
    """Return the free threads of each core that has some, the fewest first, then the lowest."""
    found = [core & free for core in cell.facts.cores if core & free]
    found.sort(key=lambda threads: (threads.bit_count(), threads & -threads))
    return found


def _odd_core(cell: Cell, taken: int) -> int:
    """Return the CPUs of the core of which fewer are taken than of the others, or of the only one.

    Beside its vCPUs the emulator leaves no doubt which CPU is whose.
    """
    used = sorted(
        (core for core in cell.facts.cores if core & taken), key=lambda c: (c & taken).bit_count()
    )
    if not used or ((used[0] & taken).bit_count() == (used[-1] & taken).bit_count() and used[1:]):
        return 0
    return used[0]


def _first(threads: list[int]) -> int:
    return threads[0] & -threads[0]


# --- limits ---------------------------------------------------------------------------------------


@base.register
class NUMATopologyLimit(abstract.Amount):
    """The most that may be used of each host cell, in all: shared vCPUs, MiB of ordinary memory.

    What is not named is without bound. Dedicated CPUs and huge pages need no limit: they are never
    given out twice.

    >>> limit = NUMATopologyLimit(vcpus={0: 16, 1: 16})
    >>> limit.of_cell(0), limit.of_cell(7)
    ((16, None), (None, None))
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    vcpus: fields.Pairs = fields.integer_pairs(default=())
    memory_mb: fields.Pairs = fields.integer_pairs(default=())

    @classmethod
    def parse(cls, text_form: str) -> NUMATopologyLimit:
        """Return the limit of ``vcpus=0>16+1>16:memory=0>4096``; :func:`str` gives it back.

        :raises InvalidInput: if it does not parse
        """
        return cls(**text.read_limit(text_form))

    def __str__(self) -> str:
        return text.format_limit(self.vcpus, self.memory_mb)

    def of_cell(self, cell: int) -> tuple[int | None, int | None]:
        """Return the bounds on shared vCPUs and on memory of one host cell, None for none."""
        return dict(self.vcpus).get(cell), dict(self.memory_mb).get(cell)

    @property
    def is_zero(self) -> bool:
        """False: a limit of nothing is a limit."""
        return False

    @property
    def is_negative(self) -> bool:
        """False: limits are 0 or more."""
        return False

    def __neg__(self) -> Self:
        raise InvalidInput("negative amount", "limit", self, "a limit, which is not given back")

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return nothing: limits are not kept."""
        return ()


def given_limit(value: object) -> NUMATopologyLimit | None:
    """Return a limit as it is, refusing other kinds.

    :raises InvalidInput: for an amount of another kind
    """
    if value is not None and not isinstance(value, NUMATopologyLimit):
        raise InvalidInput("kind of amount", "limit", value, "a NUMATopologyLimit or None")
    return value
