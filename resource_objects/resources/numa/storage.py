"""Storage of cells: each at a provider of its own, as figures and a description.

=================================  ===============================================================
record                             figures
=================================  ===============================================================
``VCPU``                           the shared CPUs with their ratio; one claim gets at most as many
                                   as there are
``PCPU``                           the dedicated CPUs; each allocated one is a unit, ``cpu4``
``MEMORY_MB``                      all memory; the memory that is not ordinary is reserved
``CUSTOM_HUGEPAGES_2048KB`` ...    the number of huge pages
=================================  ===============================================================

The description contains what is not in the figures: the CPUs, the cores, distances, networks. The
first three classes are also classes of the host. Huge pages are not, because they serve only
requests for huge pages.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from resource_objects import ratio
from resource_objects.exceptions import ForeignAmount, InvalidInventory
from resource_objects.resources.matching import best, bits, first_assignment, is_complete
from resource_objects.resources.numa.allocation import cell_allocations
from resource_objects.resources.numa.amount import REQUIRE, CellDemand, NUMATopologyAmount
from resource_objects.resources.numa.cell_fit import CellChoice, assign_cpus, page_sizes
from resource_objects.resources.numa.cells import (
    KIB_PER_MIB,
    CellState,
    CellUsage,
    HostCell,
    PagePool,
    cores_of,
    page_class,
    page_size_of_class,
)
from resource_objects.resources.numa.cpuset import CPUSet, mask_of
from resource_objects.resources.numa.placement import assign_cell
from resource_objects.resources.records import (
    AmountRecord,
    InventoryRecord,
    StoredPart,
    allocated_units,
    allocation_records,
    changed_parts,
    parsed_description,
    part_record,
)

VCPU, PCPU, MEMORY_MB = "VCPU", "PCPU", "MEMORY_MB"
#: The classes of a cell that are also classes of its host.
OF_HOST = (VCPU, PCPU, MEMORY_MB)
_UNIT = re.compile(r"cpu(0|[1-9][0-9]{0,4})", re.ASCII)


def unit_of(cpu: int) -> str:
    """Return the unit of a CPU.

    >>> unit_of(4), cpu_of("cpu4"), cpu_of("gpu4")
    ('cpu4', 4, None)
    """
    return f"cpu{cpu}"


@functools.lru_cache(maxsize=4096)
def cpu_of(unit: str) -> int | None:
    """Return the CPU of a unit, None if it is not the unit of a CPU."""
    match = _UNIT.fullmatch(unit)
    return int(match[1]) if match is not None else None


def part_name(cell: HostCell) -> str:
    """Return the last part of the name of a cell's provider."""
    return f"numa{cell.id}"


# --- an inventory to parts, and back --------------------------------------------------------------


def only_cell(cells: Sequence[HostCell]) -> HostCell:
    """Return the one cell of a provider.

    :raises InvalidInventory: for several cells
    """
    if len(cells) != 1:
        expected = "one: each cell has a provider of its own"
        raise InvalidInventory("cells of one provider", len(cells), expected)
    return cells[0]


def to_records(
    cell: HostCell, usage: CellUsage, cpu_ratio: int, memory_ratio: int
) -> tuple[InventoryRecord, ...]:
    """Return the figures of one cell; ratios in millionths.

    :raises InvalidInventory: for a CPU that is both shared and dedicated
    """
    both = sorted(set(cell.shared).intersection(cell.dedicated))
    if both:
        expected = "each shared or dedicated, to be stored in a ledger"
        raise InvalidInventory(f"CPUs of cell {cell.id}", both, expected)
    records: list[InventoryRecord] = []
    if count := len(cell.shared):
        records.append(
            part_record(VCPU, count, used=usage.shared, max_unit=count, ratio_millionths=cpu_ratio)
        )
    if count := len(cell.dedicated):
        records.append(part_record(PCPU, count, used=len(usage.pinned) + usage.loose))
    if cell.memory_mb:
        records.append(
            part_record(
                MEMORY_MB,
                cell.memory_mb,
                reserved=cell.memory_mb - cell.ordinary_mb,
                used=usage.memory_mb,
                max_unit=cell.ordinary_mb or None,
                ratio_millionths=memory_ratio,
            )
        )
    for pool in cell.huge_pages:
        if pool.total:
            used = dict(usage.pages).get(pool.size_kib, 0)
            name = page_class(pool.size_kib)
            records.append(part_record(name, pool.total, reserved=pool.reserved, used=used))
    return tuple(records)


def describe(cell: HostCell) -> str:
    """Return the facts of a cell that are not in its figures, as JSON; equal texts if equal."""
    facts: dict[str, Any] = {
        "id": cell.id,
        "shared": cell.shared,
        "dedicated": cell.dedicated,
        "siblings": cell.siblings,
        "socket": cell.socket,
        "distances": cell.distances,
        "physnets": sorted(cell.physnets),
        "tunneled": cell.tunneled,
    }
    if cell.pages:
        base = cell.pages[0]
        facts["base"] = [base.size_kib, base.total, base.reserved]
        facts["empty"] = [pool.size_kib for pool in cell.huge_pages if not pool.total]
    return json.dumps({key: value for key, value in facts.items() if value not in ((), [], None)})


class StoredCells(NamedTuple):
    """The fields of an inventory that is read from parts."""

    cells: Sequence[HostCell]
    usage: Sequence[CellUsage]
    cpu_ratio: Decimal
    memory_ratio: Decimal


def from_parts(parts: Sequence[StoredPart]) -> StoredCells:
    """Return the cells of stored parts and their usage.

    A CPU that was allocated from one cell is pinned in the cell that contains it now, because
    firmware may renumber cells.

    :raises InvalidInventory: if a description is none, or does not match its records
    """
    allocated = set(map(cpu_of, allocated_units(parts)))
    cells: list[HostCell] = []
    usage: list[CellUsage] = []
    ratios: dict[str, int] = {}
    for part in parts:
        records = {record.resource_class: record for record in part.records}
        huge = sorted(
            (size, record.total, record.reserved)
            for name, record in records.items()
            if (size := page_size_of_class(name)) is not None
        )
        memory_mb = records[MEMORY_MB].total if MEMORY_MB in records else 0
        cell = _host_cell(part.description, memory_mb, tuple(huge))
        cells.append(cell)
        usage.append(_cell_usage(cell, part, allocated))
        for name in (VCPU, MEMORY_MB):
            if name in records:
                millionths = records[name].ratio_millionths
                if ratios.setdefault(name, millionths) != millionths:
                    value = ratio.from_millionths(millionths)
                    subject = f"{name} ratio of cell {cell.id}"
                    raise InvalidInventory(subject, value, "one for all cells of a host")
    cpu_ratio, memory_ratio = (ratios.get(name, ratio.MILLION) for name in (VCPU, MEMORY_MB))
    return StoredCells(
        cells, usage, ratio.from_millionths(cpu_ratio), ratio.from_millionths(memory_ratio)
    )


def changed_usage(
    cells: Sequence[HostCell], before: Sequence[StoredPart], parts: Sequence[StoredPart]
) -> Iterator[tuple[int, CellUsage]]:
    """Yield the index and the usage of each cell whose usage is another one now."""
    changed, units = changed_parts(before, parts)
    moved = set(map(cpu_of, units))
    indices = {n for n, cell in enumerate(cells) if moved and not moved.isdisjoint(cell.dedicated)}
    indices.update(changed)
    allocated = set(map(cpu_of, allocated_units(parts))) if indices else set[int | None]()
    for index in sorted(indices):
        yield index, _cell_usage(cells[index], parts[index], allocated)


@functools.lru_cache(maxsize=4096)  # the cells of a fleet are alike, and are read often
def _host_cell(
    description: str | None, memory_mb: int, huge: tuple[tuple[int, int, int], ...]
) -> HostCell:
    with parsed_description("a cell", description) as facts:
        pools = [PagePool(size_kib=s, total=t, reserved=r) for s, t, r in huge]
        pools += [PagePool(size_kib=size, total=0) for size in facts.pop("empty", ())]
        base = facts.pop("base", None)
        if base is not None:
            pools.append(PagePool(size_kib=base[0], total=base[1], reserved=base[2]))
        pools.sort(key=lambda pool: pool.size_kib)
        return HostCell(**facts, memory_mb=memory_mb, pages=pools)


@functools.lru_cache(maxsize=4096)
def cell_id(description: str) -> int | None:
    """Return the id of a described cell, None if the text does not describe a cell.

    >>> cell_id('{"id": 1, "shared": [4, 5]}')
    1
    """
    try:
        with parsed_description("a cell", description) as facts:
            return int(facts["id"])
    except InvalidInventory:
        return None


def _cell_usage(cell: HostCell, part: StoredPart, allocated: Collection[int | None]) -> CellUsage:
    """Return the usage of a stored cell.

    :param allocated: CPUs that are allocated, of any cell
    """
    used = {record.resource_class: record.used for record in part.records}
    pinned = [cpu for cpu in cell.dedicated if cpu in allocated]
    counted = set(map(cpu_of, part.units.get(PCPU, ()))).intersection(pinned)
    return CellUsage(
        cell.id,
        shared=used.get(VCPU, 0),
        pinned=pinned,
        loose=max(0, used.get(PCPU, 0) - len(counted)),
        memory_mb=used.get(MEMORY_MB, 0),
        pages={pool.size_kib: used.get(page_class(pool.size_kib), 0) for pool in cell.huge_pages},
    )


# --- an assigned amount to allocations ------------------------------------------------------------


def to_allocations(
    states: Sequence[CellState], amount: NUMATopologyAmount
) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
    """Return the usage of an assigned amount: the index of each host cell, and records.

    CPUs of a released amount may be offline now, or serve another purpose.

    :raises InvalidInput: if the amount is not assigned
    :raises ForeignAmount: if a cell, CPU or page size is not of this host
    """
    amount.check_assigned()
    allocations = cell_allocations(states, amount, is_allocated=amount.gives_back)
    return allocation_records(
        (
            (
                allocation.cell_index,
                (
                    (VCPU, allocation.shared, ()),
                    (PCPU, allocation.cpus.bit_count(), map(unit_of, bits(allocation.cpus))),
                    (MEMORY_MB, allocation.memory_mb, ()),
                    (page_class(allocation.page_size_kib or 0), allocation.pages, ()),
                ),
            )
            for allocation in allocations
        ),
        is_negative=amount.is_negative,
    )


def usage_records(usage: CellUsage) -> tuple[AmountRecord, ...]:
    """Return the usage of a cell: counts, and each dedicated CPU by name."""
    counts = (
        (VCPU, usage.shared),
        (PCPU, usage.loose),
        (MEMORY_MB, usage.memory_mb),
        *((page_class(size), count) for size, count in usage.pages),
    )
    records = [AmountRecord(name, count) for name, count in counts if count]
    records += (AmountRecord(PCPU, 1, (unit_of(cpu),)) for cpu in usage.pinned)
    return tuple(records)


# --- and back -------------------------------------------------------------------------------------
# The ledger stores counts, and CPUs by name. The assignment of a topology follows from its
# allocations if they can be read in one way only. Other amounts of the same consumer may have
# allocated more of the cells.

#: Allocations by the index of their host cell.
_Allocations = Mapping[int, Sequence[AmountRecord]]
#: By guest cell, the index of its host cell and its choice there.
_Assignment = list[tuple[int, CellChoice]]


def from_allocations(
    states: Sequence[CellState], amount: NUMATopologyAmount, allocations: _Allocations
) -> NUMATopologyAmount:
    """Return the assigned amount that has these allocations.

    Guest cells with equal allocations are in the order of the host cells, as :mod:`.placement`
    assigns them. An assigned amount that has these allocations is returned unchanged.

    :raises ForeignAmount: if the amount cannot have them, if several assignments are possible, or
        if the CPUs are of other cells now
    """
    indices = [index for index, records in allocations.items() if records]
    unknown = [index for index in indices if not 0 <= index < len(states)]
    if unknown:
        raise ForeignAmount("allocations of the cells", unknown, f"0 to {len(states) - 1}")
    if amount.placed and _contains(states, amount, allocations):
        return amount
    indices.sort(key=lambda index: states[index].cell.id)
    states = _with_former_cpus(states, allocations, indices)
    arguments = states, amount.demands, indices, allocations
    assignment = _find_assignment(*arguments, True) or _find_assignment(*arguments, False)
    if assignment is None:
        by_cell = {states[n].cell.id: [*map(str, allocations[n])] for n in indices}
        raise ForeignAmount("allocations of the cells", by_cell, f"the usage of {amount}")
    placed = [
        assign_cell(states[index], amount, guest, choice)
        for guest, (index, choice) in enumerate(assignment)
    ]
    emulators = [cpu for _, cpu in placed if cpu is not None]
    return amount.replace(
        placed=[cell for cell, _ in placed], emulator_cpu=emulators[0] if emulators else None
    )


def _contains(
    states: Sequence[CellState], amount: NUMATopologyAmount, allocations: _Allocations
) -> bool:
    """Return whether allocations contain the usage of an assigned amount, on CPUs of its cells."""
    try:
        usage = to_allocations(states, -amount)
    except ForeignAmount:
        return False
    for index, records in usage:
        by_class = {record.resource_class: record for record in allocations.get(index, ())}
        for record in records:
            stored = by_class.get(record.resource_class)
            if stored is None or stored.amount < -record.amount:
                return False
            if not set(record.units).issubset(stored.units):
                return False
        if _cpus_by_name(records) & _cpus_of_others(states, index):
            return False
    return True


def _with_former_cpus(
    states: Sequence[CellState], allocations: _Allocations, indices: Iterable[int]
) -> Sequence[CellState]:
    """Return the cells with the cores of allocated CPUs that are not dedicated any more.

    :raises ForeignAmount: for a CPU of another cell, or one whose core is unknown now
    """
    current = list(states)
    for index in indices:
        cell, facts = states[index].cell, states[index].facts
        former = _cpus_by_name(allocations[index]) & ~facts.dedicated
        if not former:
            continue
        subject = f"CPUs of cell {cell.id}"
        moved = former & _cpus_of_others(states, index)
        if moved:
            raise ForeignAmount(
                subject, CPUSet.from_mask(moved), "CPUs that are not of another cell"
            )
        unknown = former & ~mask_of(cpu for core in cell.siblings for cpu in core)
        if cell.siblings and unknown:
            raise ForeignAmount(subject, CPUSet.from_mask(unknown), "CPUs on known cores")
        cores = cores_of(cell.siblings, facts.dedicated | former)
        facts = facts._replace(cores=cores)
        current[index] = dataclasses.replace(states[index], facts=facts, choices={})
    return current


def _cpus_of_others(states: Sequence[CellState], index: int) -> int:
    other_cells = [state.cell.cpus for n, state in enumerate(states) if n != index]
    return mask_of(cpu for cpus in other_cells for cpu in cpus)


def _cpus_by_name(records: Iterable[AmountRecord]) -> int:
    """Return the mask of the CPUs that are allocated by name."""
    units = (unit for record in records if record.resource_class == PCPU for unit in record.units)
    return mask_of(cpu for unit in units if (cpu := cpu_of(unit)) is not None)


def _find_assignment(
    states: Sequence[CellState],
    demands: Sequence[CellDemand],
    indices: Sequence[int],
    allocations: _Allocations,
    is_exact: bool,
) -> _Assignment | None:
    """Return the only assignment within the allocations, None if there is none, or several.

    If ``is_exact``, the first of several is returned, unless a page size is ambiguous.

    :param is_exact: whether the guest cells have to use all of the allocations
    """
    if is_exact and len(indices) != len(demands):
        return None
    choices = [
        [
            _possible_choices(states[index], demand, allocations[index], is_exact)
            for index in indices
        ]
        for demand in demands
    ]
    if any(len(options) > 1 for row in choices for options in row):
        return None  # the page size is ambiguous
    fits = [mask_of(n for n, options in enumerate(row) if options) for row in choices]
    positions = best(fits, range(len(indices)))
    if len(positions) < len(demands):
        return None
    assignment = first_assignment(fits, mask_of(positions))
    for guest, position in enumerate(assignment):
        without = [
            row & ~(1 << position) if demand == demands[guest] else row
            for demand, row in zip(demands, fits, strict=True)
        ]
        if not is_exact and is_complete(without):
            return None
    return [(indices[n], choices[guest][n][0]) for guest, n in enumerate(assignment)]


def _possible_choices(
    state: CellState, demand: CellDemand, records: Sequence[AmountRecord], is_exact: bool
) -> list[CellChoice]:
    """Return the ways in which a guest cell uses allocations of a host cell, by page size.

    It uses all CPUs that are allocated by name, or none.
    """
    counts = {record.resource_class: record.amount for record in records}
    vcpus, memory_mb = counts.get(VCPU, 0), counts.get(MEMORY_MB, 0)
    cpus = _cpus_by_name(records) if demand.cpus or is_exact else 0
    if not _can_use(state, demand, cpus):
        return []
    if (demand.cpus or is_exact) and cpus.bit_count() != counts.get(PCPU, 0):
        return []  # some of the CPUs have no name
    if is_exact:
        sizes = [size for name in counts if (size := page_size_of_class(name)) is not None]
        page_size = sizes[-1] if sizes else None
        if page_size is not None:
            memory_mb += counts[page_class(page_size)] * page_size // KIB_PER_MIB
        is_equal = (demand.shared, demand.memory_mb) == (vcpus, memory_mb)
        return [CellChoice(page_size, cpus)] if is_equal else []
    if demand.shared > vcpus:
        return []
    if not demand.memory_mb:
        return [CellChoice(None, cpus)]
    choices: list[CellChoice] = []
    for size in page_sizes(state, demand):
        name, unit = (MEMORY_MB, KIB_PER_MIB) if size is None else (page_class(size), size)
        count, remainder = divmod(demand.memory_mb * KIB_PER_MIB, unit)
        if not remainder and count <= counts.get(name, 0):
            choices.append(CellChoice(size, cpus))
    return choices


def _can_use(state: CellState, demand: CellDemand, cpus: int) -> bool:
    """Return whether the dedicated vCPUs of a guest cell use exactly these CPUs."""
    if not demand.cpus:
        return not cpus
    cores, policy = state.facts.cores, demand.thread_policy
    assignment = assign_cpus(cores, cpus, demand.dedicated, policy, demand.has_emulator)
    if assignment is None:
        return False
    if policy != REQUIRE:
        return True
    with_siblings = [core for core in cores if (core & state.facts.dedicated).bit_count() > 1]
    return not mask_of(assignment.vcpus) & ~sum(with_siblings)
