"""Taking and giving back what is assigned: checked first, then added or subtracted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from resource_objects.exceptions import CapacityException, ForeignAmount
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.numa.amount import (
    ISOLATE,
    PREFER,
    REQUIRE,
    GuestCell,
    NUMATopologyAmount,
    PlacedCell,
)
from resource_objects.resources.numa.cell_fit import (
    CellDemand,
    NUMATopologyLimit,
    cell_demands,
    cpu_layout,
    may_overcommit,
    possible_sizes,
)
from resource_objects.resources.numa.cells import KIB, Cell, page_class
from resource_objects.resources.numa.cpuset import CPUSet, mask_of
from resource_objects.resources.numa.problem import TOPOLOGY, networks_of, not_in_one_socket


class CellUse(NamedTuple):
    """What one guest cell takes of its host cell."""

    place: int
    shared: int
    cpus: int  #: mask, the emulator's and those left empty included
    memory_mb: int  #: ordinary
    page_size_kib: int | None
    pages: int


def parts_of(
    cells: Sequence[Cell], amount: NUMATopologyAmount, *, is_held: bool = False
) -> list[CellUse]:
    """Return what each guest cell takes.

    :param is_held: whether somebody has it, and CPUs may have become something else since
    :raises ForeignAmount: if it is on cells, CPUs or pages that are not here
    """
    places = {cell.facts.id: place for place, cell in enumerate(cells)}
    found: list[CellUse] = []
    for number, (guest, placed) in enumerate(zip(amount.cells, amount.placed, strict=True)):
        place = places.get(placed.cell)
        if place is None:
            raise ForeignAmount("host cell", placed.cell, f"one of {sorted(places)}")
        emulator = amount.emulator_cpu if number == 0 else None
        cpus = placed.pinned_mask | (0 if emulator is None else 1 << emulator)
        if not is_held:
            _check_cpus(cells[place], placed, cpus)
        found.append(_taken(cells[place], place, guest, placed, cpus))
    return found


def _check_cpus(cell: Cell, placed: PlacedCell, cpus: int) -> None:
    foreign = cpus & ~cell.facts.dedicated
    if foreign:
        raise ForeignAmount(
            f"CPUs of cell {placed.cell}",
            CPUSet.from_mask(foreign),
            f"dedicated ones: {CPUSet.from_mask(cell.facts.dedicated)}",
        )
    if mask_of(placed.shared) & ~cell.facts.shared:
        raise ForeignAmount(
            f"shared CPUs of cell {placed.cell}",
            placed.shared,
            f"shared ones: {CPUSet.from_mask(cell.facts.shared)}",
        )


def _taken(cell: Cell, place: int, guest: GuestCell, placed: PlacedCell, cpus: int) -> CellUse:
    size = placed.page_size_kib
    if size is None:
        return CellUse(place, len(guest.shared), cpus, guest.memory_mb, None, 0)
    sizes = [known for known, _ in cell.facts.huge]
    pages, rest = divmod(guest.memory_mb * KIB, size)
    if size not in sizes or rest:
        raise ForeignAmount(
            f"page size of cell {placed.cell}", size, f"one of {sizes} KiB that divides the memory"
        )
    return CellUse(place, len(guest.shared), cpus, 0, size, pages)


def refreshed(cells: Sequence[Cell], amount: NUMATopologyAmount) -> NUMATopologyAmount:
    """Return an assigned amount with the CPUs that its shared vCPUs may run on now.

    They change only where CPUs serve either way, as others of them are dedicated or given back.

    :raises ForeignAmount: if it is on cells or pages that are not here
    """
    if not any(cell.serves_either_way for cell in cells):
        return amount
    placed: list[PlacedCell] = []
    for part, one in zip(parts_of(cells, amount, is_held=True), amount.placed, strict=True):
        cell = cells[part.place]
        left = CPUSet.from_mask(cell.shared_cpus(part.cpus)) if cell.serves_either_way else ()
        placed.append(one.replace(shared=left) if part.shared and left else one)
    return amount._evolve(placed=tuple(placed))


def check(
    cells: Sequence[Cell],
    room: Mapping[str, int] | None,
    amount: NUMATopologyAmount,
    limit: NUMATopologyLimit | None,
    within: Collection[int] | None = None,
) -> None:
    """Raise if an assigned amount cannot be taken, or given back, as it is.

    :param within: ids of the host cells that may be used, None for all
    :raises ForeignAmount: if it is on cells, CPUs or pages that are not here
    :raises CapacityException: with each reason
    """
    taken = parts_of(cells, amount)
    if amount.gives_back:
        found = [reason for part in taken for reason in _not_held(cells[part.place], part)]
    else:
        is_physical = not may_overcommit(amount)
        found = [
            reason
            for part in taken
            for reason in _refused(cells[part.place], part, limit, is_physical)
        ]
        found += [] if found else _short(room, amount)
        found += [] if found else broken(cells, amount, within)
    if found:
        raise CapacityException(found)


def _refused(
    cell: Cell, part: CellUse, limit: NUMATopologyLimit | None, is_physical: bool
) -> Iterator[Reason]:
    ident, facts = cell.facts.id, cell.facts
    for cpu in CPUSet.from_mask(part.cpus & cell.pinned):
        yield Reason(Rule.UNIT_TAKEN, 1, 0, 1, "PCPU", unit=f"cpu{cpu}", cell=ident)
    count, total = part.cpus.bit_count(), facts.dedicated.bit_count()
    if count and count > cell.free_dedicated:
        yield Reason(Rule.CAPACITY, count, total, total - cell.free_dedicated, "PCPU", cell=ident)
    most, memory = (None, None) if limit is None else limit.of_cell(ident)
    there = cell.shared_cpus(part.cpus).bit_count()
    if part.shared > there:
        yield Reason(Rule.MAX_UNIT, part.shared, there, cell.shared_used, "VCPU", cell=ident)
    if part.shared or part.cpus & facts.shared:
        capacity = cell.shared_capacity(part.cpus)
        yield from _over("VCPU", part.shared, cell.shared_used, capacity, most, ident)
    if part.memory_mb:
        requested, used, there = part.memory_mb, cell.memory_used, facts.ordinary_mb
        if is_physical and used + requested > there:
            yield Reason(Rule.PHYSICAL, requested, there, used, "MEMORY_MB", cell=ident)
        elif requested > there:
            yield Reason(Rule.MAX_UNIT, requested, there, used, "MEMORY_MB", cell=ident)
        yield from _over(
            "MEMORY_MB", part.memory_mb, cell.memory_used, facts.memory_capacity, memory, ident
        )
    if part.page_size_kib is not None:
        total_pages = dict(facts.huge)[part.page_size_kib]
        used = cell.pages_used.get(part.page_size_kib, 0)
        name = page_class(part.page_size_kib)
        yield from _over(name, part.pages, used, total_pages, None, ident)


def _over(
    name: str, requested: int, used: int, capacity: int, limit: int | None, cell: int
) -> Iterator[Reason]:
    if used + requested > capacity:
        yield Reason(Rule.CAPACITY, requested, capacity, used, name, cell=cell)
    elif limit is not None and used + requested > limit:
        yield Reason(Rule.LIMIT, requested, limit, used, name, cell=cell)


def _short(room: Mapping[str, int] | None, amount: NUMATopologyAmount) -> list[Reason]:
    """Return what the host as a whole has less of."""
    return [
        Reason(Rule.CAPACITY, count, room[name], 0, name)
        for name, count in amount.host_usage.items()
        if room is not None and count > room.get(name, count)
    ]


def _not_held(cell: Cell, part: CellUse) -> Iterator[Reason]:
    """Yield what is given back and was not taken."""
    ident = cell.facts.id
    free = part.cpus & ~cell.pinned
    if free:
        held = (part.cpus & cell.pinned).bit_count()
        unit = f"cpu{CPUSet.from_mask(free)[0]}"
        yield _below("PCPU", part.cpus.bit_count(), held, ident, unit)
    if part.shared > cell.shared_used:
        yield _below("VCPU", part.shared, cell.shared_used, ident)
    if part.memory_mb > cell.memory_used:
        yield _below("MEMORY_MB", part.memory_mb, cell.memory_used, ident)
    if part.page_size_kib is not None:
        used = cell.pages_used.get(part.page_size_kib, 0)
        if part.pages > used:
            yield _below(page_class(part.page_size_kib), part.pages, used, ident)


def _below(name: str, count: int, used: int, cell: int, unit: str | None = None) -> Reason:
    return Reason(Rule.USED_BELOW_ZERO, -count, 0, used, name, unit=unit, cell=cell)


def after(
    cells: Sequence[Cell], room: Mapping[str, int] | None, amount: NUMATopologyAmount
) -> tuple[dict[int, Cell], Mapping[str, int] | None]:
    """Return the cells that change, by place, and what the host as a whole has left then."""
    sign = -1 if amount.gives_back else 1
    parts = parts_of(cells, amount, is_held=True)  # whoever takes has asked :func:`check`
    changed = {part.place: _moved(cells[part.place], part, sign) for part in parts}
    if room is None:
        return changed, None
    left = {
        name: count - sign * amount.host_usage.get(name, 0) if name in _OF_HOST else count
        for name, count in room.items()
    }
    return changed, left


_OF_HOST: Collection[str] = ("VCPU", "PCPU", "MEMORY_MB")


def _moved(cell: Cell, part: CellUse, sign: int) -> Cell:
    pages = cell.pages_used
    if part.page_size_kib is not None:
        used = pages.get(part.page_size_kib, 0) + sign * part.pages
        pages = {**pages, part.page_size_kib: used}
    return Cell(
        cell.facts,
        shared_used=cell.shared_used + sign * part.shared,
        pinned=cell.pinned | part.cpus if sign > 0 else cell.pinned & ~part.cpus,
        loose=cell.loose,
        memory_used=cell.memory_used + sign * part.memory_mb,
        pages_used=pages,
    )


# --- whether an assigned amount keeps what it asks of itself --------------------------------------


def broken(
    cells: Sequence[Cell], amount: NUMATopologyAmount, within: Collection[int] | None
) -> list[Reason]:
    """Return what of an assigned amount is not as it asks for itself.

    :param within: ids of the host cells that may be used, None for all
    """
    places = {cell.facts.id: place for place, cell in enumerate(cells)}
    hosts = [places[placed.cell] for placed in amount.placed]
    found: list[Reason] = []
    for number, need in enumerate(cell_demands(amount)):
        found += _of_guest(cells[hosts[number]], amount, number, need)
    found += _of_all(cells, hosts, amount)
    if within is not None:
        ids = set(within)
        there = sum(placed.cell in ids for placed in amount.placed)
        if there < len(hosts):
            found.append(Reason(Rule.HOST_CELLS, len(hosts), there, 0, TOPOLOGY))
    return found


def _of_guest(
    cell: Cell, amount: NUMATopologyAmount, number: int, need: CellDemand
) -> Iterator[Reason]:
    placed, ident = amount.placed[number], cell.facts.id
    if need.memory_mb and placed.page_size_kib not in possible_sizes(cell, need):
        word = amount.page_size
        yield Reason(Rule.PAGE_SIZE, need.memory_mb, 0, 0, "MEMORY_MB", unit=word, cell=ident)
    taken = placed.pinned_mask
    if need.has_emulator and amount.emulator_cpu is not None:
        taken |= 1 << amount.emulator_cpu
    if not _keeps_threads(cell, need, taken, placed):
        word = need.thread_policy or PREFER
        yield Reason(Rule.THREADS, need.dedicated, 0, 0, "PCPU", unit=word, cell=ident)


def _keeps_threads(cell: Cell, need: CellDemand, taken: int, placed: PlacedCell) -> bool:
    """Return whether the CPUs taken are what the thread policy takes."""
    cores, vcpus = cell.facts.cores, mask_of(cpu for _, cpu in placed.pins)
    if need.thread_policy == ISOLATE:
        runs = taken & ~mask_of(placed.idle)
        is_alone = all((core & runs).bit_count() < 2 for core in cores)
        count, policy = need.dedicated, need.thread_policy
        laid = cpu_layout(cores, taken, count, policy, need.has_emulator)
        return is_alone and laid is not None
    if taken.bit_count() != need.cpus:
        return False
    if need.thread_policy != REQUIRE or not need.dedicated:
        return True
    counts = sorted((core & vcpus).bit_count() for core in cores if core & vcpus)
    return cell.facts.threads > 1 and (len(counts) < 2 or counts[1] > 1)


def _of_all(
    cells: Sequence[Cell], hosts: Sequence[int], amount: NUMATopologyAmount
) -> Iterator[Reason]:
    there = [cells[place] for place in hosts]
    sockets = Counter(cell.facts.socket for cell in there)
    if amount.one_socket and len(hosts) > 1 and (len(sockets) > 1 or None in sockets):
        sockets.pop(None, None)
        yield from not_in_one_socket(there, len(hosts), max(sockets.values(), default=1))
    used = sum(1 << place for place in hosts)
    for name, places in networks_of(cells, amount).items():
        if not places & used:
            yield Reason(Rule.NETWORK, len(hosts), 0, 0, TOPOLOGY, unit=name)
