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

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from resource_objects import exceptions, ratio
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.cpus import cpus_of
from resource_objects.resources.numa.host import CellUsage, HostCell, PagePool
from resource_objects.resources.numa.pair import page_class, size_of_pages
from resource_objects.resources.numa.taking import parts_of
from resource_objects.resources.records import AmountRecord, InventoryRecord, KeptPart, Part

if TYPE_CHECKING:
    from resource_objects.resources.numa.inventory import NUMATopologyInventory

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


def part_of(inventory: NUMATopologyInventory, cell: HostCell) -> Part:
    """Return one cell of an inventory as an inventory of its own, without what is used."""
    alone = type(inventory)(
        [cell],
        cpu_ratio=inventory.cpu_ratio,
        memory_ratio=inventory.memory_ratio,
        resource_class=inventory.resource_class,
    )
    classes = {record.resource_class for record in to_records(alone)}
    return Part(f"numa{cell.id}", alone, tuple(name for name in OF_HOST if name in classes))


def to_records(inventory: NUMATopologyInventory) -> tuple[InventoryRecord, ...]:
    """Return the figures of the one cell of an inventory."""
    (cell, used) = _only(inventory)
    both = sorted(set(cell.shared).intersection(cell.dedicated))
    if both:
        raise exceptions.InvalidInventory(
            f"CPUs of cell {cell.id}", both, "each shared or dedicated, to be kept in a ledger"
        )
    return tuple(_records(inventory, cell, used))


def _only(inventory: NUMATopologyInventory) -> tuple[HostCell, CellUsage]:
    if len(inventory.cells) != 1:
        raise exceptions.InvalidInventory(
            "cells of one provider", len(inventory.cells), "one: each has a provider of its own"
        )
    return inventory.cells[0], inventory.usage[0]


def _records(
    inventory: NUMATopologyInventory, cell: HostCell, used: CellUsage
) -> Iterator[InventoryRecord]:
    if cell.shared:
        times = ratio.to_millionths(inventory.cpu_ratio)
        count = len(cell.shared)
        yield _record(VCPU, count, 0, count, times, used.shared)
    if cell.dedicated:
        count = len(cell.dedicated)
        taken = len(used.pinned) + used.loose
        yield _record(PCPU, count, 0, None, ratio.MILLION, taken)
    if cell.memory_mb:
        times, ordinary = ratio.to_millionths(inventory.memory_ratio), cell.ordinary_mb
        reserved = cell.memory_mb - ordinary
        yield _record(MEMORY_MB, cell.memory_mb, reserved, ordinary or None, times, used.memory_mb)
    pages = dict(used.pages)
    for pool in cell.huge_pages:
        if pool.total:
            name = page_class(pool.size_kib)
            taken = pages.get(pool.size_kib, 0)
            yield _record(name, pool.total, pool.reserved, None, ratio.MILLION, taken)


def _record(
    name: str, total: int, reserved: int, most: int | None, times: int, used: int
) -> InventoryRecord:
    capacity = (total - reserved) * times // ratio.MILLION
    return InventoryRecord(name, total, reserved, 1, most, 1, times, capacity, used)


def describe(inventory: NUMATopologyInventory) -> str:
    """Return what the figures do not tell of the one cell, as JSON; the same text for the same."""
    cell, _ = _only(inventory)
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


class Gathered(NamedTuple):
    """What an inventory over cells is made of."""

    cells: Sequence[HostCell]
    usage: Sequence[CellUsage]
    cpu_ratio: Decimal
    memory_ratio: Decimal


def gather(parts: Sequence[KeptPart]) -> Gathered:
    """Return cells as they are kept, and what is used of them.

    A CPU that somebody took of one cell is pinned in whichever it is now: firmware may number cells
    anew.

    :raises InvalidInventory: if a description is none, or does not go with its records
    """
    taken = {cpu_of(unit) for part in parts for units in part.units.values() for unit in units}
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
                    raise exceptions.InvalidInventory(
                        f"{name} ratio of cell {cells[-1].id}", shown, "one for all cells of a host"
                    )
    return Gathered(
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
    try:
        said = json.loads(description or "")
        pools = [PagePool(size_kib=s, total=t, reserved=r) for s, t, r in huge]
        pools += [PagePool(size_kib=size, total=0) for size in said.pop("empty", ())]
        base = said.pop("base", None)
        if base is not None:
            pools.append(PagePool(size_kib=base[0], total=base[1], reserved=base[2]))
        pools.sort(key=lambda pool: pool.size_kib)
        return HostCell(**said, memory_mb=memory, pages=pools)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise exceptions.InvalidInventory(
            "description of a cell", description, f"one that describe() made ({error})"
        ) from error


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


def spread(
    inventory: NUMATopologyInventory, amount: NUMATopologyAmount
) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
    """Return what an assigned amount takes of each cell, by the cell's place.

    What is given back may be on CPUs that have gone offline since, or serve others.

    :raises NotAssigned: if it does not say where it is
    :raises ForeignAmount: if it is on what is not here
    """
    if not amount.placed:
        raise exceptions.NotAssigned("topology", str(amount), "an assigned one, as fit() returns")
    sign = -1 if amount.gives_back else 1
    found: list[tuple[int, tuple[AmountRecord, ...]]] = []
    for part in parts_of(inventory._working, amount, is_held=amount.gives_back):
        units = tuple(map(unit_of, cpus_of(part.cpus)))
        counts: Iterable[tuple[str, int, tuple[str, ...]]] = (
            (VCPU, part.shared, ()),
            (PCPU, len(units), units),
            (MEMORY_MB, part.memory_mb, ()),
            (page_class(part.page_size_kib or 0), part.pages, ()),
        )
        records = tuple(AmountRecord(name, sign * n, unit) for name, n, unit in counts if n)
        found.append((part.place, records))
    return tuple(found)
