"""Assigned amounts on host cells: check them, allocate them, release them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from resource_objects.exceptions import CapacityException, ForeignAmount
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.matching import bits
from resource_objects.resources.numa.amount import (
    ISOLATE,
    PREFER,
    REQUIRE,
    CellDemand,
    NUMATopologyAmount,
    NUMATopologyLimit,
    PlacedCell,
)
from resource_objects.resources.numa.cell_fit import (
    NO_LIMITS,
    CellLimits,
    assign_cpus,
    memory_failures,
    page_size_failure,
    page_sizes,
    shared_failures,
)
from resource_objects.resources.numa.cells import KIB_PER_MIB, CellState, page_class
from resource_objects.resources.numa.cpuset import CPUSet, mask_of
from resource_objects.resources.numa.placement import (
    TOPOLOGY,
    host_shortage,
    near_networks,
    socket_reasons,
)


class CellAllocation(NamedTuple):
    """The usage of one guest cell at its host cell."""

    cell_index: int
    shared: int
    cpus: int  #: mask, including idle siblings and the emulator's CPU
    memory_mb: int  #: ordinary memory
    page_size_kib: int | None
    pages: int


def cell_allocations(
    states: Sequence[CellState], amount: NUMATopologyAmount, *, is_allocated: bool = False
) -> list[CellAllocation]:
    """Return the usage of each guest cell at its host cell.

    :param is_allocated: whether the amount is allocated; then CPUs may have another purpose now
    :raises ForeignAmount: if a cell, CPU or page size is not of this host
    """
    indices = {state.cell.id: index for index, state in enumerate(states)}
    allocations: list[CellAllocation] = []
    for number, placed in enumerate(amount.placed):
        cell, memory, size, pages = placed.cell, amount.demands[number].memory_mb, None, 0
        index = indices.get(cell)
        if index is None:
            raise ForeignAmount("host cell", cell, f"one of {sorted(indices)}")
        facts, cpus = states[index].facts, placed.pinned_mask
        if number == 0 and amount.emulator_cpu is not None:
            cpus |= 1 << amount.emulator_cpu
        if not is_allocated and cpus & ~facts.dedicated:
            unknown = CPUSet.from_mask(cpus & ~facts.dedicated)
            dedicated = CPUSet.from_mask(facts.dedicated)
            raise ForeignAmount(f"CPUs of cell {cell}", unknown, f"dedicated ones: {dedicated}")
        if not is_allocated and mask_of(placed.shared) & ~facts.shared:
            shared = CPUSet.from_mask(facts.shared)
            subject = f"shared CPUs of cell {cell}"
            raise ForeignAmount(subject, placed.shared, f"shared ones: {shared}")
        if placed.page_size_kib is not None:
            size = placed.page_size_kib
            sizes = [huge for huge, _ in facts.huge]
            pages, remainder = divmod(memory * KIB_PER_MIB, size)
            memory = 0
            if size not in sizes or remainder:
                expected = f"one of {sizes} KiB that divides the memory"
                raise ForeignAmount(f"page size of cell {cell}", size, expected)
        shared_vcpus = amount.demands[number].shared
        allocations.append(CellAllocation(index, shared_vcpus, cpus, memory, size, pages))
    return allocations


def with_current_cpus(
    states: Sequence[CellState], amount: NUMATopologyAmount
) -> NUMATopologyAmount:
    """Return an assigned amount with the CPUs that may run its shared vCPUs now.

    They change only where CPUs serve either purpose, when other CPUs are pinned or released.

    :raises ForeignAmount: if a cell or page size is not of this host
    """
    if not any(state.facts.dual for state in states):
        return amount
    current: list[PlacedCell] = []
    allocations = cell_allocations(states, amount, is_allocated=True)
    for allocation, placed in zip(allocations, amount.placed, strict=True):
        state = states[allocation.cell_index]
        cpus = state.shared_cpus(allocation.cpus) if state.facts.dual else 0
        if allocation.shared and cpus:
            placed = placed.replace(shared=CPUSet.from_mask(cpus))
        current.append(placed)
    return amount._evolve(placed=tuple(current))


# --- checks ---------------------------------------------------------------------------------------


def check_assigned(
    states: Sequence[CellState],
    room: Mapping[str, int] | None,
    amount: NUMATopologyAmount,
    limit: NUMATopologyLimit | None,
    within: Collection[int] | None = None,
) -> None:
    """Raise if an assigned amount cannot be allocated, or released, exactly as it is assigned.

    :param room: free counts of the whole host by class, None for no bound
    :param within: ids of the host cells that may be used, None for all
    :raises ForeignAmount: if a cell, CPU or page size is not of this host
    :raises CapacityException: with each reason
    """
    allocations = cell_allocations(states, amount)
    reasons: list[Reason] = []
    if amount.gives_back:
        for allocation in allocations:
            reasons += _release_failures(states[allocation.cell_index], allocation)
    else:
        for allocation, demand in zip(allocations, amount.demands, strict=True):
            state = states[allocation.cell_index]
            limits = NO_LIMITS if limit is None else limit.of_cell(state.cell.id)
            reasons += _cell_failures(state, allocation, demand, limits)
        reasons = reasons or [*host_shortage(amount, room)]
        reasons = reasons or [*_violations(states, allocations, amount, within)]
    if reasons:
        raise CapacityException(reasons)


def _cell_failures(
    state: CellState, allocation: CellAllocation, demand: CellDemand, limits: CellLimits
) -> Iterator[Reason]:
    cell, facts, cpus = state.cell.id, state.facts, allocation.cpus
    for cpu in bits(cpus & state.pinned):
        yield Reason(Rule.UNIT_TAKEN, 1, 0, 1, "PCPU", unit=f"cpu{cpu}", cell=cell)
    count, total, free = cpus.bit_count(), facts.dedicated.bit_count(), state.free_dedicated
    if count > max(free, 0):
        yield Reason(Rule.CAPACITY, count, total, total - free, "PCPU", cell=cell)
    if demand.shared or cpus & facts.shared:
        yield from shared_failures(state, demand.shared, limits[0], cpus)
    if demand.memory_mb:
        size = allocation.page_size_kib
        for reason in memory_failures(state, demand, size, limits[1]):
            if reason.rule is not Rule.INDIVISIBLE:  # page sizes may have changed since the fit
                yield reason


def _release_failures(state: CellState, allocation: CellAllocation) -> Iterator[Reason]:
    """Yield each released amount that was not allocated."""
    size, cpus = allocation.page_size_kib, allocation.cpus
    free = cpus & ~state.pinned
    unit = f"cpu{next(bits(free))}" if free else None
    releases = [
        ("PCPU", cpus.bit_count(), (cpus & state.pinned).bit_count(), unit),
        ("VCPU", allocation.shared, state.shared_used, None),
        ("MEMORY_MB", allocation.memory_mb, state.memory_used, None),
    ]
    if size is not None:
        releases.append((page_class(size), allocation.pages, state.pages_used.get(size, 0), None))
    for name, count, used, unit in releases:
        if count > used:
            yield Reason(Rule.USED_BELOW_ZERO, -count, 0, used, name, unit=unit, cell=state.cell.id)


def _violations(
    states: Sequence[CellState],
    allocations: Sequence[CellAllocation],
    amount: NUMATopologyAmount,
    within: Collection[int] | None,
) -> Iterator[Reason]:
    """Yield each policy of an amount that its own assignment breaks. The bound is 0 for threads."""
    used, count = [states[allocation.cell_index] for allocation in allocations], len(allocations)
    for number, (state, placed) in enumerate(zip(used, amount.placed, strict=True)):
        demand, cpus = amount.demands[number], allocations[number].cpus
        if demand.memory_mb and placed.page_size_kib not in page_sizes(state, demand):
            yield page_size_failure(demand, placed.cell)
        if not _keeps_thread_policy(state, demand, cpus, placed):
            unit = demand.thread_policy or PREFER
            yield Reason(Rule.THREADS, demand.dedicated, 0, 0, "PCPU", unit=unit, cell=placed.cell)
    if amount.one_socket and count > 1:
        sockets = Counter(state.cell.socket for state in used)
        if len(sockets) > 1 or None in sockets:
            sockets.pop(None, None)
            yield from socket_reasons(used, count, max(sockets.values(), default=1))
    cells = mask_of(allocation.cell_index for allocation in allocations)
    for name, near in near_networks(states, amount).items():
        if not near & cells:
            yield Reason(Rule.NETWORK, count, 0, 0, TOPOLOGY, unit=name)
    if within is not None:
        allowed = sum(placed.cell in within for placed in amount.placed)
        if allowed < count:
            yield Reason(Rule.HOST_CELLS, count, allowed, 0, TOPOLOGY)


def _keeps_thread_policy(
    state: CellState, demand: CellDemand, cpus: int, placed: PlacedCell
) -> bool:
    cores, policy = state.facts.cores, demand.thread_policy
    if policy == ISOLATE:
        busy = cpus & ~mask_of(placed.idle)
        if any((core & busy).bit_count() > 1 for core in cores):
            return False
        emulator = demand.has_emulator
        return assign_cpus(cores, cpus, demand.dedicated, policy, emulator) is not None
    if cpus.bit_count() != demand.cpus:
        return False
    if policy != REQUIRE or not demand.dedicated:
        return True
    vcpus = mask_of(cpu for _, cpu in placed.pins)
    counts = sorted((core & vcpus).bit_count() for core in cores if core & vcpus)
    return state.facts.threads > 1 and (len(counts) < 2 or counts[1] > 1)


# --- changes --------------------------------------------------------------------------------------


def apply_allocation(
    states: Sequence[CellState], room: Mapping[str, int] | None, amount: NUMATopologyAmount
) -> tuple[dict[int, CellState], Mapping[str, int] | None]:
    """Return the cells that an assigned amount changes, by index, and the new room of the host.

    The caller has called :func:`check_assigned`.
    """
    sign = -1 if amount.gives_back else 1
    changed: dict[int, CellState] = {}
    for allocation in cell_allocations(states, amount, is_allocated=True):
        state, size = states[allocation.cell_index], allocation.page_size_kib
        pages = state.pages_used
        if size is not None:
            pages = {**pages, size: pages.get(size, 0) + sign * allocation.pages}
        cpus = allocation.cpus
        changed[allocation.cell_index] = CellState(
            state.cell,
            state.facts,
            state.cpu_ratio,
            state.memory_capacity,
            state.shared_used + sign * allocation.shared,
            state.pinned | cpus if sign > 0 else state.pinned & ~cpus,
            state.loose,
            state.memory_used + sign * allocation.memory_mb,
            pages,
        )
    if room is not None:
        usage = amount.host_usage
        room = {name: count - sign * usage.get(name, 0) for name, count in room.items()}
    return changed, room
