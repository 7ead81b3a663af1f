"""Where somebody is who holds something of cells: :func:`.kept.spread` undone.

The ledger keeps counts and the CPUs by name. Which of them a topology took follows from the
topology, if there is no more than one way to read it; what else is held of the cells is beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.resources.numa import fit, threads
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.cells import Cell, cores_of
from resource_objects.resources.numa.cpus import cpus_of, mask_of
from resource_objects.resources.numa.host import KIB, HostCell
from resource_objects.resources.numa.kept import MEMORY_MB, PCPU, VCPU, cpu_of, spread
from resource_objects.resources.numa.matching import best, first_assignment, is_complete
from resource_objects.resources.numa.pair import (
    Need,
    Pick,
    needs_of,
    page_class,
    possible_sizes,
    size_of_pages,
)
from resource_objects.resources.numa.words import REQUIRE
from resource_objects.resources.records import AmountRecord

if TYPE_CHECKING:
    from resource_objects.resources.numa.inventory import NUMATopologyInventory

#: What is held of the cells, by their place.
_Held = Mapping[int, Sequence[AmountRecord]]


def placed(
    inventory: NUMATopologyInventory, cells: Sequence[Cell], amount: NUMATopologyAmount, held: _Held
) -> NUMATopologyAmount:
    """Return the assigned amount that takes ``held`` of the cells, by their place.

    More may be held beside it, as long as that leaves one way to read it. Guest cells that hold the
    same are put in the order of the host cells, as :mod:`.fit` does. An amount that is assigned to
    what is held is returned as it is.

    :raises ForeignAmount: if it cannot take that, or the CPUs are of other cells now
    """
    needs = needs_of(amount)
    places = [place for place, records in held.items() if records]
    unknown = [place for place in places if not 0 <= place < len(cells)]
    if unknown:
        raise exceptions.ForeignAmount("held of the cells", unknown, f"0 to {len(cells) - 1}")
    if amount.placed and _is_held(inventory, amount, held):
        return amount
    places.sort(key=lambda place: cells[place].facts.id)
    taken = {place: _cpus_held(held[place]) for place in places}
    cells = _as_taken(inventory, cells, taken)
    chosen = _exact(cells, needs, places, held) or _beside(cells, needs, places, held)
    if chosen is None:
        shown = {cells[place].facts.id: [*map(str, held[place])] for place in places}
        raise exceptions.ForeignAmount("held of the cells", shown, f"what {amount} takes")
    put = [
        fit.put(amount, guest, needs[guest], cells[place], pick)
        for guest, (place, pick) in enumerate(chosen)
    ]
    emulators = [cpu for _, cpu in put if cpu is not None]
    return amount.replace(
        placed=[cell for cell, _ in put], emulator_cpu=emulators[0] if emulators else None
    )


def _is_held(inventory: NUMATopologyInventory, amount: NUMATopologyAmount, held: _Held) -> bool:
    """Return whether all that an assigned amount takes is held, on CPUs that are of its cells."""
    try:
        given = spread(inventory, -amount)
    except exceptions.ForeignAmount:
        return False
    for place, records in given:
        here = {record.resource_class: record for record in held.get(place, ())}
        for record in records:
            kept = here.get(record.resource_class)
            if kept is None or kept.amount < -record.amount:
                return False
            if not set(record.units).issubset(kept.units):
                return False
        if _cpus_held(records) & _of_others(inventory.cells, place):
            return False
    return True


# --- the cells as they were -----------------------------------------------------------------------


def _as_taken(
    inventory: NUMATopologyInventory, cells: Sequence[Cell], taken: Mapping[int, int]
) -> Sequence[Cell]:
    """Return the cells as they were when CPUs were taken that are not dedicated any more.

    :raises ForeignAmount: for a CPU of another cell, or of which it is not known any more which
        core it is on
    """
    found = list(cells)
    for place, cpus in taken.items():
        facts, cell = cells[place].facts, inventory.cells[place]
        gone = cpus & ~facts.dedicated
        if not gone:
            continue
        moved = gone & _of_others(inventory.cells, place)
        if moved:
            raise exceptions.ForeignAmount(
                f"CPUs of cell {cell.id}", cpus_of(moved), "CPUs that are not of another cell"
            )
        known = mask_of(cpu for core in cell.siblings for cpu in core)
        if cell.siblings and gone & ~known:
            lost = cpus_of(gone & ~known)
            raise exceptions.ForeignAmount(f"CPUs of cell {cell.id}", lost, "CPUs on known cores")
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
_Chosen = list[tuple[int, Pick]]


def _exact(
    cells: Sequence[Cell], needs: Sequence[Need], places: Sequence[int], held: _Held
) -> _Chosen | None:
    """Return where each guest cell is if they take all that is held, None if they do not."""
    if len(places) != len(needs):
        return None
    picks = [Pick(_size_held(held[place]), _cpus_held(held[place])) for place in places]
    may = [
        sum(
            1 << number
            for number, place in enumerate(places)
            if _is_all(need, held[place], picks[number])
            and _is_laid(cells[place], need, picks[number].taken)
        )
        for need in needs
    ]
    if not is_complete(may):
        return None
    chosen = first_assignment(may, (1 << len(places)) - 1)
    return [(places[number], picks[number]) for number in chosen]


def _size_held(records: Iterable[AmountRecord]) -> int | None:
    sizes = [size for one in records if (size := size_of_pages(one.resource_class)) is not None]
    return sizes[-1] if sizes else None


def _is_all(need: Need, records: Iterable[AmountRecord], pick: Pick) -> bool:
    counts = {record.resource_class: record.amount for record in records}
    size, memory = pick.page_size_kib, counts.get(MEMORY_MB, 0)
    if size is not None:
        memory += counts[page_class(size)] * size // KIB
    if pick.taken.bit_count() != counts.get(PCPU, 0):
        return False
    return (need.shared, need.memory_mb) == (counts.get(VCPU, 0), memory)


def _is_laid(cell: Cell, need: Need, taken: int) -> bool:
    """Return whether the dedicated vCPUs of a guest cell take just these CPUs."""
    if not need.cpus:
        return not taken
    laid = threads.layout(
        cell.facts.cores, taken, need.dedicated, need.thread_policy, need.has_emulator
    )
    return laid is not None and _keeps_policy(cell, need, laid.vcpus)


def _keeps_policy(cell: Cell, need: Need, vcpus: Collection[int]) -> bool:
    """Return whether the CPUs can be of one that requires siblings, if this one does."""
    if need.thread_policy != REQUIRE:
        return True
    able = [core for core in cell.facts.cores if (core & cell.facts.dedicated).bit_count() > 1]
    return not mask_of(vcpus) & ~sum(able)


def _beside(
    cells: Sequence[Cell], needs: Sequence[Need], places: Sequence[int], held: _Held
) -> _Chosen | None:
    """Return where each guest cell is if more is held besides, None unless there is one way."""
    ways = [[_parts(cells[place], need, held[place]) for place in places] for need in needs]
    if any(len(picks) > 1 for row in ways for picks in row):
        return None  # which pages it has cannot be told
    may = [sum(1 << number for number, picks in enumerate(row) if picks) for row in ways]
    used = best(may, range(len(places)))
    if used.size < len(needs):
        return None
    chosen = first_assignment(may, sum(1 << number for number in used.host_of))
    for guest, number in enumerate(chosen):
        otherwise = [
            allowed & ~(1 << number) if need == needs[guest] else allowed
            for need, allowed in zip(needs, may, strict=True)
        ]
        if is_complete(otherwise):
            return None
    return [(places[number], ways[guest][number][0]) for guest, number in enumerate(chosen)]


def _parts(cell: Cell, need: Need, records: Sequence[AmountRecord]) -> list[Pick]:
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
        return [Pick(None, taken)]
    return [
        Pick(size, taken)
        for size in possible_sizes(cell, need)
        if _is_enough(need.memory_mb, size, counts)
    ]


def _is_enough(memory_mb: int, size: int | None, counts: Mapping[str, int]) -> bool:
    if size is None:
        return memory_mb <= counts.get(MEMORY_MB, 0)
    pages, rest = divmod(memory_mb * KIB, size)
    return not rest and pages <= counts.get(page_class(size), 0)
