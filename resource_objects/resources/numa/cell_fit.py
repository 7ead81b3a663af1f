"""Whether one guest cell fits one host cell: every rule about the pair.

Source of the rules: Nova's ``_numa_fit_instance_cell``. Unlike in Nova, usage always counts, and a
page size is chosen for every pair of cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from resource_objects import ratio
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.matching import bits
from resource_objects.resources.numa.amount import ISOLATE, PREFER, REQUIRE, CellDemand
from resource_objects.resources.numa.cells import (
    ANY,
    KIB_PER_MIB,
    LARGE,
    SMALL,
    CellState,
    page_class,
    show_kib,
)


class CellChoice(NamedTuple):
    """The resources of a host cell for one guest cell."""

    page_size_kib: int | None  #: of huge pages, None for ordinary memory
    cpus: int  #: mask of the dedicated CPUs, including idle siblings and the emulator's CPU


#: Limits of the usage of a host cell: shared vCPUs and MiB of ordinary memory; None for no limit.
CellLimits: TypeAlias = tuple[int | None, int | None]
NO_LIMITS: CellLimits = (None, None)


def fit_cell(state: CellState, demand: CellDemand, limits: CellLimits) -> CellChoice | None:
    """Return the resources of a host cell for a guest cell, None if it does not fit."""
    if demand.cpus and demand.cpus > state.free_dedicated:
        return None  # before CPUs are chosen: it excludes most cells of a full host
    if demand.shared and any(shared_failures(state, demand.shared, limits[0])):
        return None
    page_size: int | None = None
    if demand.memory_mb:
        for page_size in page_sizes(state, demand):
            if not any(memory_failures(state, demand, page_size, limits[1])):
                break
        else:
            return None
    if not demand.cpus:
        return CellChoice(page_size, 0)
    cpus = choose_cpus(state, demand.dedicated, demand.thread_policy, demand.has_emulator)
    if cpus is None or cpus.bit_count() > state.free_dedicated:  # idle siblings count too
        return None
    if cpus & state.facts.shared and any(_pinning_failures(state, demand.shared, cpus)):
        return None
    return CellChoice(page_size, cpus)


def cell_failures(state: CellState, demand: CellDemand, limits: CellLimits) -> Iterator[Reason]:
    """Yield each rule that a guest cell breaks on a host cell; none if it fits."""
    if demand.shared:
        yield from shared_failures(state, demand.shared, limits[0])
    if demand.cpus:
        yield from _dedicated_failures(state, demand)
    if demand.memory_mb:
        by_size = [
            [*memory_failures(state, demand, size_kib, limits[1])]
            for size_kib in page_sizes(state, demand)
        ]
        if not by_size:
            yield page_size_failure(demand, state.cell.id)
        elif all(by_size):
            # the failures of one size: of ordinary memory, of which hosts have most, where any
            # size is accepted; else of the size that is tried first
            yield from by_size[-1 if demand.page_size == ANY else 0]


def page_size_failure(demand: CellDemand, cell: int) -> Reason:
    """Return the reason that a host cell has no pages of the size that a guest cell accepts."""
    size = demand.page_size
    unit = show_kib(int(size)) if size.isdecimal() else size
    return Reason(Rule.PAGE_SIZE, demand.memory_mb, 0, 0, "MEMORY_MB", unit=unit, cell=cell)


# --- shared CPUs ----------------------------------------------------------------------------------


def shared_failures(
    state: CellState, requested: int, limit: int | None, pinned: int = 0
) -> Iterator[Reason]:
    """Yield the rules that shared vCPUs break on a host cell.

    :param limit: of the usage after the allocation
    :param pinned: mask of the CPUs that the same allocation pins
    """
    used, cell = state.shared_used, state.cell.id
    count = state.shared_cpus(pinned).bit_count()
    capacity = count * state.cpu_ratio // ratio.MILLION
    if requested > count:
        yield Reason(Rule.MAX_UNIT, requested, count, used, "VCPU", cell=cell)
    if used + requested > capacity:
        yield Reason(Rule.CAPACITY, requested, capacity, used, "VCPU", cell=cell)
    elif limit is not None and used + requested > limit:
        yield Reason(Rule.LIMIT, requested, limit, used, "VCPU", cell=cell)


def _pinning_failures(state: CellState, requested: int, cpus: int) -> Iterator[Reason]:
    """Yield the rules about shared vCPUs that are broken if CPUs that serve them are pinned."""
    if requested:
        yield from islice(shared_failures(state, requested, None, cpus), 1)
    elif state.shared_used > state.shared_capacity(cpus):
        # the other CPUs do not suffice for the shared vCPUs of other consumers
        facts = state.facts
        needed = -(-state.shared_used * ratio.MILLION // state.cpu_ratio)  # rounded up
        dual = (state.free_cpus & facts.shared).bit_count()
        excess = state.shared_cpus().bit_count() - needed
        free = state.free_dedicated - min(dual, max(0, dual - excess))
        total, requested = facts.dedicated.bit_count(), cpus.bit_count()
        yield Reason(Rule.CAPACITY, requested, total, total - free, "PCPU", cell=state.cell.id)


# --- memory ---------------------------------------------------------------------------------------


def page_sizes(state: CellState, demand: CellDemand) -> list[int | None]:
    """Return the page sizes of a host cell that a guest cell accepts, in the order of preference.

    None is ordinary memory.
    """
    requested, base = demand.page_size, state.facts.base_kib
    if not requested:
        return [None]
    if base is None:
        return []
    if requested == SMALL or requested == str(base):
        return [None]
    sizes: list[int | None] = [size for size, _ in state.facts.huge]
    if requested == LARGE:
        return sizes
    if requested == ANY:
        return [*sizes, None]
    return [size for size in sizes if str(size) == requested]


def memory_failures(
    state: CellState, demand: CellDemand, page_size: int | None, limit: int | None
) -> Iterator[Reason]:
    """Yield the rules that the memory of a guest cell breaks on a host cell.

    :param page_size: KiB of a huge page of the host cell, None for ordinary memory
    :param limit: of the usage of ordinary memory after the allocation
    """
    requested, facts, cell = demand.memory_mb, state.facts, state.cell.id
    if page_size is not None:
        pages, remainder = divmod(requested * KIB_PER_MIB, page_size)
        total, used = dict(facts.huge)[page_size], state.pages_used.get(page_size, 0)
        if remainder:
            yield Reason(Rule.INDIVISIBLE, requested, page_size, used, "MEMORY_MB", cell=cell)
        elif used + pages > total:
            yield Reason(Rule.CAPACITY, pages, total, used, page_class(page_size), cell=cell)
        return
    used, capacity, physical = state.memory_used, state.memory_capacity, facts.ordinary_mb
    if facts.base_kib is not None and requested * KIB_PER_MIB % facts.base_kib:
        yield Reason(Rule.INDIVISIBLE, requested, facts.base_kib, used, "MEMORY_MB", cell=cell)
    if not demand.overcommits and used + requested > physical:
        yield Reason(Rule.PHYSICAL, requested, physical, used, "MEMORY_MB", cell=cell)
    elif requested > physical:
        yield Reason(Rule.MAX_UNIT, requested, physical, used, "MEMORY_MB", cell=cell)
    if used + requested > capacity:
        yield Reason(Rule.CAPACITY, requested, capacity, used, "MEMORY_MB", cell=cell)
    elif limit is not None and used + requested > limit:
        yield Reason(Rule.LIMIT, requested, limit, used, "MEMORY_MB", cell=cell)


# --- dedicated CPUs -------------------------------------------------------------------------------
# Source of the rules: Nova's ``_pack_instance_onto_cores``, stated for whole cores. Where Nova's
# result depends on the order of a set, the order here is:
#
# 1. Cores with the fewest free threads that suffice come first, so that whole cores remain whole.
#    Of equal cores, the one with the lowest free CPU comes first; threads ascend.
# 2. Which vCPU is on which CPU follows from the set of CPUs alone (:func:`assign_cpus`), because
#    the ledger stores only the set.


def _dedicated_failures(state: CellState, demand: CellDemand) -> Iterator[Reason]:
    cell, total, free = state.cell.id, state.facts.dedicated.bit_count(), state.free_dedicated
    count, policy = demand.dedicated, demand.thread_policy
    if demand.cpus > free:
        yield Reason(Rule.CAPACITY, demand.cpus, total, total - free, "PCPU", cell=cell)
        return
    cpus = choose_cpus(state, count, policy, demand.has_emulator)
    if cpus is None and choose_cpus(state, count, policy, False) is not None:
        yield Reason(Rule.EMULATOR, demand.cpus, 0, total - free, "PCPU", cell=cell)
    elif cpus is None:
        maximum = _max_dedicated(state, policy)
        yield Reason(Rule.THREADS, count, maximum, 0, "PCPU", unit=policy or PREFER, cell=cell)
    elif cpus.bit_count() > free:
        yield Reason(Rule.CAPACITY, cpus.bit_count(), total, total - free, "PCPU", cell=cell)
    elif cpus & state.facts.shared:
        yield from _pinning_failures(state, demand.shared, cpus)


def _max_dedicated(state: CellState, policy: str | None) -> int:
    cores, free, threads = state.facts.cores, state.free_cpus, state.facts.threads
    if policy == ISOLATE:
        return sum(not core & ~free for core in cores)
    if policy != REQUIRE:
        return free.bit_count()
    counts = [(core & free).bit_count() for core in cores]
    return max((n * sum(c >= n for c in counts) for n in range(2, threads + 1)), default=0)


def choose_cpus(state: CellState, count: int, policy: str | None, has_emulator: bool) -> int | None:
    """Return the mask of CPUs for ``count`` dedicated vCPUs, None if the policy allows none.

    It includes the siblings that remain idle and the emulator's CPU.
    """
    free, cores, threads = state.free_cpus, state.facts.cores, state.facts.threads
    if policy == ISOLATE:  # siblings of the emulator's CPU are idle too, as Nova counts them
        whole_cores = sorted([core for core in cores if not core & ~free], key=int.bit_count)
        needed = count + has_emulator
        return sum(whole_cores[:needed]) if len(whole_cores) >= needed else None
    cpus = _pack(_free_threads(cores, free), count, threads, policy)
    if cpus is None or not has_emulator:
        return cpus
    remaining = free & ~cpus
    if policy == REQUIRE:
        remaining = remaining & _incomplete_core(cores, cpus) or remaining
    if not remaining:
        return None
    core = _free_threads(cores, remaining)[0]
    return cpus | core & -core


def _free_threads(cores: Iterable[int], free: int) -> list[int]:
    """Return the free threads of each core as masks, the fewest first, then the lowest."""
    ordered = sorted([(t.bit_count(), t & -t, t) for core in cores if (t := core & free)])
    return [threads for _, _, threads in ordered]


def _pack(cores: Sequence[int], count: int, threads: int, policy: str | None) -> int | None:
    """Return CPUs of the same number of threads of each core, as many threads as possible.

    If no number of threads suffices, the CPUs are on any cores, except with ``require``.
    """
    if not count:
        return 0
    for per_core in range(threads, 1 if policy == REQUIRE else 0, -1):
        usable = [core for core in cores if core.bit_count() >= per_core]
        if per_core * len(usable) >= count:
            break
    else:
        if policy == REQUIRE or sum(map(int.bit_count, cores)) < count:
            return None
        per_core, usable = threads, list(cores)
    cpus = 0
    for core in usable:
        for _ in range(per_core):
            if not core or not count:
                break
            cpus |= core & -core
            core &= core - 1
            count -= 1
    return cpus


def _incomplete_core(cores: Iterable[int], cpus: int) -> int:
    """Return the core of which fewer CPUs are used than of the others, or the only one; 0 if none.

    The emulator's CPU on this core can be distinguished from the CPUs of vCPUs.
    """
    used = [core for core in cores if core & cpus]
    counts = [(core & cpus).bit_count() for core in used]
    if not used or (len(used) > 1 and min(counts) == max(counts)):
        return 0
    return used[counts.index(min(counts))]


class CPUAssignment(NamedTuple):
    """The purpose of each of some dedicated CPUs."""

    vcpus: tuple[int, ...]  #: the CPUs of the dedicated vCPUs, in their order
    emulator: int | None
    idle: tuple[int, ...]


def assign_cpus(
    cores: Iterable[int], cpus: int, count: int, policy: str | None, has_emulator: bool
) -> CPUAssignment | None:
    """Return the purpose of each CPU of a set, None if ``count`` vCPUs do not need just this set.

    Cores come by the number of their CPUs in the set, largest first, then by lowest CPU. vCPUs use
    CPUs in this order (isolated ones the first CPU of each core), and the emulator the last one.
    If the first core has one CPU more than each of the others, which have equally many, the
    emulator uses that one, so that vCPUs remain with their siblings.

    >>> assign_cpus([0b0101, 0b1010], 0b0111, 2, None, True)
    CPUAssignment(vcpus=(0, 2), emulator=1, idle=())
    """
    if not count and not has_emulator:
        return None if cpus else CPUAssignment((), None, ())
    used = [core & cpus for core in cores if core & cpus]
    ordered = sorted([(-core.bit_count(), core & -core, [*bits(core)]) for core in used])
    groups = [group for _, _, group in ordered]
    idle: tuple[int, ...] = ()
    if policy == ISOLATE:
        if any(core & cpus and core & ~cpus for core in cores):
            return None
        idle = tuple(sorted([cpu for group in groups for cpu in group[1:]]))
        groups = [group[:1] for group in groups]
    vcpus = [cpu for group in groups for cpu in group]
    if len(vcpus) != count + has_emulator:
        return None
    if not has_emulator:
        return CPUAssignment(tuple(vcpus), None, idle)
    first, *counts = map(len, groups)
    is_odd = len(set(counts)) == 1 and first == counts[0] + 1 > 2
    emulator = vcpus.pop(first - 1 if is_odd else -1)
    return CPUAssignment(tuple(vcpus), emulator, idle)
