"""How cells are kept: each by a provider of its own, as figures and a description (D2, D3, D11).

=================================  ===============================================================
record                             figures
=================================  ===============================================================
``VCPU``                           the shared CPUs, given out by the ratio; nobody gets more than
                                   there are
``PCPU``                           the dedicated CPUs; taken, each is a unit, ``cpu4``
``MEMORY_MB``                      all memory; reserved is what is not ordinary
``CUSTOM_HUGEPAGES_2048KB`` ...    huge pages, by number
=================================  ===============================================================

The description says what no figure does: which CPUs, which cores, distances, networks. The first
three classes are the host's too; huge pages are not, for they never serve who did not ask for them.
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
from resource_objects.exceptions import ForeignAmount, InvalidInput, InvalidInventory
from resource_objects.resources.matching import best, first_assignment, is_complete
from resource_objects.resources.numa.amount import REQUIRE, NUMATopologyAmount
from resource_objects.resources.numa.cell_fit import (
    CellChoice,
    CellDemand,
    cell_demands,
    cpu_layout,
    possible_sizes,
)
from resource_objects.resources.numa.cells import (
    KIB,
    Cell,
    CellUsage,
    HostCell,
    PagePool,
    cores_of,
    page_class,
    size_of_pages,
)
from resource_objects.resources.numa.cpuset import CPUSet, mask_of
from resource_objects.resources.numa.fit import put
from resource_objects.resources.numa.usage import CellUse, parts_of
from resource_objects.resources.parts import (
    allocations_of,
    part_record,
    reading,
    units_taken,
    used_otherwise,
)
from resource_objects.resources.records import AmountRecord, InventoryRecord, StoredPart

VCPU, PCPU, MEMORY_MB = "VCPU", "PCPU", "MEMORY_MB"
#: The classes of a cell that are its host's too.
OF_HOST = (VCPU, PCPU, MEMORY_MB)
_UNIT = re.compile(r"cpu(0|[1-9][0-9]{0,4})\Z", re.ASCII)


def unit_of(cpu: int) -> str:
    """Return the unit that a CPU is kept as.

    >>> unit_of(4), cpu_of("cpu4"), cpu_of("gpu4")
    ('cpu4', 4, None)
    """
    return f"cpu{cpu}"


@functools.lru_cache(maxsize=4096)
def cpu_of(unit: str) -> int | None:
    """Return the CPU of a unit, None if it is no CPU."""
    found = _UNIT.match(unit)
    return int(found[1]) if found is not None else None


def units_of(cells: Iterable[HostCell], resource_class: str) -> frozenset[str]:
    """Return the units of a class: each dedicated CPU is one."""
    if resource_class != PCPU:
        return frozenset()
    return frozenset(unit_of(cpu) for cell in cells for cpu in cell.dedicated)


def units_elsewhere(cells: Iterable[HostCell], resource_class: str) -> frozenset[str]:
    """Return the CPUs that are no units of a class, for they are shared alone."""
    if resource_class != PCPU:
        return frozenset()
    own = (set(cell.shared).difference(cell.dedicated) for cell in cells)
    return frozenset(unit_of(cpu) for cpus in own for cpu in cpus)


# --- what is kept of an inventory -----------------------------------------------------------------


def part_name(cell: HostCell) -> str:
    """Return the name of a cell's part, which its provider's name ends in."""
    return f"numa{cell.id}"


def classes_of_host(records: Iterable[InventoryRecord]) -> tuple[str, ...]:
    """Return the classes of a cell's records that are its host's too."""
    classes = {record.resource_class for record in records}
    return tuple(name for name in OF_HOST if name in classes)


def to_records(
    cells: Sequence[HostCell],
    usage: Sequence[CellUsage],
    cpu_ratio: Decimal,
    memory_ratio: Decimal,
) -> tuple[InventoryRecord, ...]:
    """Return the figures of one cell.

    :raises InvalidInventory: for several cells, or a CPU that is both shared and dedicated
    """
    cell = _only(cells)
    both = sorted(set(cell.shared).intersection(cell.dedicated))
    if both:
        raise InvalidInventory(
            f"CPUs of cell {cell.id}", both, "each shared or dedicated, to be kept in a ledger"
        )
    ratios = ratio.to_millionths(cpu_ratio), ratio.to_millionths(memory_ratio)
    return tuple(_records(cell, usage[0], *ratios))


def _only(cells: Sequence[HostCell]) -> HostCell:
    if len(cells) != 1:
        raise InvalidInventory(
            "cells of one provider", len(cells), "one: each has a provider of its own"
        )
    return cells[0]


def _records(
    cell: HostCell, used: CellUsage, cpu_ratio: int, memory_ratio: int
) -> Iterator[InventoryRecord]:
    if cell.shared:
        count = len(cell.shared)
        yield part_record(VCPU, count, used=used.shared, max_unit=count, ratio_millionths=cpu_ratio)
    if cell.dedicated:
        yield part_record(PCPU, len(cell.dedicated), used=len(used.pinned) + used.loose)
    if cell.memory_mb:
        yield part_record(
            MEMORY_MB,
            cell.memory_mb,
            reserved=cell.memory_mb - cell.ordinary_mb,
            used=used.memory_mb,
            max_unit=cell.ordinary_mb or None,
            ratio_millionths=memory_ratio,
        )
    pages = dict(used.pages)
    for pool in cell.huge_pages:
        if pool.total:
            name = page_class(pool.size_kib)
            taken = pages.get(pool.size_kib, 0)
            yield part_record(name, pool.total, reserved=pool.reserved, used=taken)


def describe(cells: Sequence[HostCell]) -> str:
    """Return what the figures do not tell of the one cell, as JSON; the same text for the same."""
    cell = _only(cells)
    said: dict[str, Any] = {
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
        said["base"] = [base.size_kib, base.total, base.reserved]
        said["empty"] = [pool.size_kib for pool in cell.huge_pages if not pool.total]
    return json.dumps({key: value for key, value in said.items() if value not in ((), [], None)})


# --- and back -------------------------------------------------------------------------------------


class GatheredCells(NamedTuple):
    """What an inventory over cells is made of."""

    cells: Sequence[HostCell]
    usage: Sequence[CellUsage]
    cpu_ratio: Decimal
    memory_ratio: Decimal


def usage_changed(
    cells: Sequence[HostCell], before: Sequence[StoredPart], parts: Sequence[StoredPart]
) -> Iterator[tuple[int, CellUsage]]:
    """Yield what is used of each cell where it is something else now, by place."""
    changed, units = used_otherwise(before, parts)
    moved = set(map(cpu_of, units))
    places = {n for n, cell in enumerate(cells) if moved and not moved.isdisjoint(cell.dedicated)}
    places.update(changed)
    taken = set(map(cpu_of, units_taken(parts))) if places else set[int | None]()
    for place in sorted(places):
        part = parts[place]
        records = {record.resource_class: record for record in part.records}
        yield place, _usage(cells[place], records, part.units.get(PCPU, ()), taken)


def from_parts(parts: Sequence[StoredPart]) -> GatheredCells:
    """Return cells as they are kept, and what is used of them.

    A CPU that somebody took of one cell is pinned in whichever it is now: firmware may number cells
    anew.

    :raises InvalidInventory: if a description is none, or does not go with its records
    """
    taken = set(map(cpu_of, units_taken(parts)))
    cells: list[HostCell] = []
    usage: list[CellUsage] = []
    ratios: dict[str, int] = {}
    for part in parts:
        records = {record.resource_class: record for record in part.records}
        cells.append(_cell(part.description, _figures(records)))
        usage.append(_usage(cells[-1], records, part.units.get(PCPU, ()), taken))
        for name in (VCPU, MEMORY_MB):
            if name in records:
                times = records[name].ratio_millionths
                if ratios.setdefault(name, times) != times:
                    shown = ratio.from_millionths(times)
                    raise InvalidInventory(
                        f"{name} ratio of cell {cells[-1].id}", shown, "one for all cells of a host"
                    )
    return GatheredCells(
        cells,
        usage,
        ratio.from_millionths(ratios.get(VCPU, ratio.MILLION)),
        ratio.from_millionths(ratios.get(MEMORY_MB, ratio.MILLION)),
    )


_Figures = tuple[int, tuple[tuple[int, int, int], ...]]


def _figures(records: Mapping[str, InventoryRecord]) -> _Figures:
    """Return what of the figures is in a host cell: MiB in all, and huge pages by size."""
    memory = records[MEMORY_MB].total if MEMORY_MB in records else 0
    pages = sorted(
        (size, record.total, record.reserved)
        for name, record in records.items()
        if (size := size_of_pages(name)) is not None
    )
    return memory, tuple(pages)


@functools.lru_cache(maxsize=4096)  # hosts of a fleet are alike, and read often
def _cell(description: str | None, figures: _Figures) -> HostCell:
    memory, huge = figures
    with reading("a cell", description) as said:
        pools = [PagePool(size_kib=s, total=t, reserved=r) for s, t, r in huge]
        pools += [PagePool(size_kib=size, total=0) for size in said.pop("empty", ())]
        base = said.pop("base", None)
        if base is not None:
            pools.append(PagePool(size_kib=base[0], total=base[1], reserved=base[2]))
        pools.sort(key=lambda pool: pool.size_kib)
        return HostCell(**said, memory_mb=memory, pages=pools)


@functools.lru_cache(maxsize=4096)
def cell_id(description: str) -> int | None:
    """Return the id of the cell that is described, None if that is no description of one.

    >>> cell_id('{"id": 1, "shared": [4, 5]}')
    1
    """
    try:
        with reading("a cell", description) as said:
            return int(said["id"])
    except InvalidInventory:
        return None


def _usage(
    cell: HostCell,
    records: Mapping[str, InventoryRecord],
    units: Iterable[str],
    taken: Collection[int | None],
) -> CellUsage:
    """Return what is used of a cell.

    :param units: its own that are counted as dedicated CPUs
    :param taken: CPUs taken of any cell
    """
    used = {name: record.used for name, record in records.items()}
    pinned = [cpu for cpu in cell.dedicated if cpu in taken]
    named = set(map(cpu_of, units)).intersection(pinned)
    return CellUsage(
        cell.id,
        shared=used.get(VCPU, 0),
        pinned=pinned,
        loose=max(0, used.get(PCPU, 0) - len(named)),
        memory_mb=used.get(MEMORY_MB, 0),
        pages={pool.size_kib: used.get(page_class(pool.size_kib), 0) for pool in cell.huge_pages},
    )


# --- what is kept of an amount --------------------------------------------------------------------


def to_allocations(
    cells: Sequence[Cell], amount: NUMATopologyAmount
) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
    """Return what an assigned amount takes of each cell, by the cell's place.

    What is given back may be on CPUs that have gone offline since, or serve others.

    :raises InvalidInput: if it does not say where it is
    :raises ForeignAmount: if it is on what is not here
    """
    if not amount.placed:
        raise InvalidInput(
            "unassigned amount", "topology", str(amount), "an assigned one, as fit() returns"
        )
    taken = parts_of(cells, amount, is_held=amount.gives_back)
    return allocations_of(amount, ((part.place, _counts(part)) for part in taken))


def _counts(part: CellUse) -> Iterator[tuple[str, int, Iterable[str]]]:
    cpus = CPUSet.from_mask(part.cpus)
    yield VCPU, part.shared, ()
    yield PCPU, len(cpus), map(unit_of, cpus)
    yield MEMORY_MB, part.memory_mb, ()
    yield page_class(part.page_size_kib or 0), part.pages, ()


def in_use(
    cells: Iterable[HostCell], usage: Iterable[CellUsage]
) -> Iterator[tuple[str, tuple[AmountRecord, ...]]]:
    """Yield what is used of each cell, by the name of its part."""
    for cell, used in zip(cells, usage, strict=True):
        counts = (
            (VCPU, used.shared),
            (PCPU, used.loose),
            (MEMORY_MB, used.memory_mb),
            *((page_class(size), count) for size, count in used.pages),
        )
        found = [AmountRecord(name, count) for name, count in counts if count]
        found += (AmountRecord(PCPU, 1, (unit_of(cpu),)) for cpu in used.pinned)
        yield part_name(cell), tuple(found)


# --- from allocations: to_allocations undone ------------------------------------------------------
# The ledger keeps counts and the CPUs by name. Which of them a topology took follows from the
# topology, if there is no more than one way to read it; what else is held of the cells is beside.


#: What is held of the cells, by their place.
_Held = Mapping[int, Sequence[AmountRecord]]


def from_allocations(
    facts: Sequence[HostCell], cells: Sequence[Cell], amount: NUMATopologyAmount, held: _Held
) -> NUMATopologyAmount:
    """Return the assigned amount that takes ``held`` of the cells, by their place.

    More may be held beside it, as long as that leaves one way to read it. Guest cells that hold the
    same are put in the order of the host cells, as :mod:`.fit` does. An amount that is assigned to
    what is held is returned as it is.

    :raises ForeignAmount: if it cannot take that, or the CPUs are of other cells now
    """
    needs = cell_demands(amount)
    places = [place for place, records in held.items() if records]
    unknown = [place for place in places if not 0 <= place < len(cells)]
    if unknown:
        raise ForeignAmount("held of the cells", unknown, f"0 to {len(cells) - 1}")
    if amount.placed and _is_held(facts, cells, amount, held):
        return amount
    places.sort(key=lambda place: cells[place].facts.id)
    taken = {place: _cpus_held(held[place]) for place in places}
    cells = _as_taken(facts, cells, taken)
    chosen = _exact(cells, needs, places, held) or _beside(cells, needs, places, held)
    if chosen is None:
        shown = {cells[place].facts.id: [*map(str, held[place])] for place in places}
        raise ForeignAmount("held of the cells", shown, f"what {amount} takes")
    laid = [
        put(amount, guest, needs[guest], cells[place], pick)
        for guest, (place, pick) in enumerate(chosen)
    ]
    emulators = [cpu for _, cpu in laid if cpu is not None]
    return amount.replace(
        placed=[cell for cell, _ in laid], emulator_cpu=emulators[0] if emulators else None
    )


def _is_held(
    facts: Sequence[HostCell], cells: Sequence[Cell], amount: NUMATopologyAmount, held: _Held
) -> bool:
    """Return whether all that an assigned amount takes is held, on CPUs that are of its cells."""
    try:
        given = to_allocations(cells, -amount)
    except ForeignAmount:
        return False
    for place, records in given:
        here = {record.resource_class: record for record in held.get(place, ())}
        for record in records:
            kept = here.get(record.resource_class)
            if kept is None or kept.amount < -record.amount:
                return False
            if not set(record.units).issubset(kept.units):
                return False
        if _cpus_held(records) & _of_others(facts, place):
            return False
    return True


# --- the cells as they were -----------------------------------------------------------------------


def _as_taken(
    hosts: Sequence[HostCell], cells: Sequence[Cell], taken: Mapping[int, int]
) -> Sequence[Cell]:
    """Return the cells as they were when CPUs were taken that are not dedicated any more.

    :raises ForeignAmount: for a CPU of another cell, or of which it is not known any more which
        core it is on
    """
    found = list(cells)
    for place, cpus in taken.items():
        facts, cell = cells[place].facts, hosts[place]
        gone = cpus & ~facts.dedicated
        if not gone:
            continue
        moved = gone & _of_others(hosts, place)
        if moved:
            raise ForeignAmount(
                f"CPUs of cell {cell.id}",
                CPUSet.from_mask(moved),
                "CPUs that are not of another cell",
            )
        known = mask_of(cpu for core in cell.siblings for cpu in core)
        if cell.siblings and gone & ~known:
            lost = CPUSet.from_mask(gone & ~known)
            raise ForeignAmount(f"CPUs of cell {cell.id}", lost, "CPUs on known cores")
        cores = cores_of(cell.siblings, facts.dedicated | gone)
        facts = facts._replace(cores=cores)
        found[place] = dataclasses.replace(cells[place], facts=facts)
    return found


def _of_others(cells: Sequence[HostCell], place: int) -> int:
    """Return the CPUs of all cells but one, as a mask."""
    others = (cell for number, cell in enumerate(cells) if number != place)
    return mask_of(cpu for cell in others for cpu in cell.cpus)


def _cpus_held(records: Iterable[AmountRecord]) -> int:
    """Return the CPUs that are held by name, as a mask."""
    units = (unit for record in records if record.resource_class == PCPU for unit in record.units)
    return mask_of(cpu for unit in units if (cpu := cpu_of(unit)) is not None)


# --- which guest cell is where --------------------------------------------------------------------

#: By guest cell: the place of its host cell, and what it takes there.
_Chosen = list[tuple[int, CellChoice]]


def _exact(
    cells: Sequence[Cell], needs: Sequence[CellDemand], places: Sequence[int], held: _Held
) -> _Chosen | None:
    """Return where each guest cell is if they take all that is held, None if they do not."""
    if len(places) != len(needs):
        return None
    choices = [CellChoice(_size_held(held[place]), _cpus_held(held[place])) for place in places]
    may = [
        sum(
            1 << number
            for number, place in enumerate(places)
            if _is_all(need, held[place], choices[number])
            and _is_laid(cells[place], need, choices[number].taken)
        )
        for need in needs
    ]
    if not is_complete(may):
        return None
    chosen = first_assignment(may, (1 << len(places)) - 1)
    return [(places[number], choices[number]) for number in chosen]


def _size_held(records: Iterable[AmountRecord]) -> int | None:
    sizes = [size for one in records if (size := size_of_pages(one.resource_class)) is not None]
    return sizes[-1] if sizes else None


def _is_all(need: CellDemand, records: Iterable[AmountRecord], pick: CellChoice) -> bool:
    counts = {record.resource_class: record.amount for record in records}
    size, memory = pick.page_size_kib, counts.get(MEMORY_MB, 0)
    if size is not None:
        memory += counts[page_class(size)] * size // KIB
    if pick.taken.bit_count() != counts.get(PCPU, 0):
        return False
    return (need.shared, need.memory_mb) == (counts.get(VCPU, 0), memory)


def _is_laid(cell: Cell, need: CellDemand, taken: int) -> bool:
    """Return whether the dedicated vCPUs of a guest cell take just these CPUs."""
    if not need.cpus:
        return not taken
    laid = cpu_layout(
        cell.facts.cores, taken, need.dedicated, need.thread_policy, need.has_emulator
    )
    return laid is not None and _keeps_policy(cell, need, laid.vcpus)


def _keeps_policy(cell: Cell, need: CellDemand, vcpus: Collection[int]) -> bool:
    """Return whether the CPUs can be of one that requires siblings, if this one does."""
    if need.thread_policy != REQUIRE:
        return True
    able = [core for core in cell.facts.cores if (core & cell.facts.dedicated).bit_count() > 1]
    return not mask_of(vcpus) & ~sum(able)


def _beside(
    cells: Sequence[Cell], needs: Sequence[CellDemand], places: Sequence[int], held: _Held
) -> _Chosen | None:
    ways = [[_parts(cells[place], need, held[place]) for place in places] for need in needs]
    if any(len(choices) > 1 for row in ways for choices in row):
        return None  # which pages it has cannot be told
    may = [sum(1 << number for number, choices in enumerate(row) if choices) for row in ways]
    used = best(may, range(len(places)))
    if len(used) < len(needs):
        return None
    chosen = first_assignment(may, sum(1 << number for number in used))
    for guest, number in enumerate(chosen):
        otherwise = [
            allowed & ~(1 << number) if need == needs[guest] else allowed
            for need, allowed in zip(needs, may, strict=True)
        ]
        if is_complete(otherwise):
            return None
    return [(places[number], ways[guest][number][0]) for guest, number in enumerate(chosen)]


def _parts(cell: Cell, need: CellDemand, records: Sequence[AmountRecord]) -> list[CellChoice]:
    """Return what of that which is held in a cell a guest cell may take, by page size.

    Of CPUs that are held by name it takes all or none.
    """
    counts = {record.resource_class: record.amount for record in records}
    taken = _cpus_held(records) if need.cpus else 0
    if need.shared > counts.get(VCPU, 0) or not _is_laid(cell, need, taken):
        return []
    if need.cpus and taken.bit_count() != counts.get(PCPU, 0):
        return []  # which of them are its own cannot be told
    if not need.memory_mb:
        return [CellChoice(None, taken)]
    return [
        CellChoice(size, taken)
        for size in possible_sizes(cell, need)
        if _is_enough(need.memory_mb, size, counts)
    ]


def _is_enough(memory_mb: int, size: int | None, counts: Mapping[str, int]) -> bool:
    if size is None:
        return memory_mb <= counts.get(MEMORY_MB, 0)
    pages, rest = divmod(memory_mb * KIB, size)
    return not rest and pages <= counts.get(page_class(size), 0)
