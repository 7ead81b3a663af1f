"""Where the cells of a guest in Nova's JSON are, if they are anywhere.

The rules are told in :mod:`~resource_objects.interop.nova.instance_topology`.
"""

from __future__ import annotations

from collections.abc import Sequence

from resource_objects.exceptions import CannotDowngrade, InvalidInput, InvalidPrimitive
from resource_objects.interop.nova._guest_cell import CLEARED, PAGE_NUMBERS, Cell
from resource_objects.interop.nova._primitive import at
from resource_objects.interop.nova._versions import GUEST_CELL
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PlacedCell,
    words,
)

#: Sizes up to the first are ordinary pages everywhere, from the second on huge ones.
_ORDINARY_KIB, _HUGE_KIB = 4, 1024


def amount_of(
    cells: Sequence[Cell],
    emulator_policy: str | None,
    host: NUMATopologyInventory | None,
    assigned: bool | None,
    page_size: str | None,
) -> NUMATopologyAmount:
    """Return the amount of some cells, assigned if they are."""
    if not cells:
        raise InvalidPrimitive("cells", [], "at least one")
    _check_alike(cells)
    is_assigned = _is_assigned(cells, assigned)
    has_emulator = emulator_policy == words.ISOLATE
    placed: list[PlacedCell] = []
    if is_assigned:
        for place, cell in enumerate(cells):
            try:
                placed.append(_placed(cell, host))
            except InvalidInput as error:
                at(f"cells[{place}]", error)
    return NUMATopologyAmount(
        [cell.guest for cell in cells],
        page_size=_page_size(cells, placed, page_size),
        thread_policy=cells[0].thread_policy,
        emulator_policy=emulator_policy,
        placed=placed,
        emulator_cpu=_emulator(cells, is_assigned and has_emulator),
    )


def _check_alike(cells: Sequence[Cell]) -> None:
    """Refuse policies that differ: Nova writes them to each cell, and means one."""
    first = cells[0]
    for place, cell in enumerate(cells):
        for name, value, expected in (
            ("cpu_policy", cell.policy, first.policy),
            ("cpu_thread_policy", cell.thread_policy, first.thread_policy),
        ):
            if value != expected:
                raise InvalidPrimitive(
                    f"cells[{place}].{name}", value, f"{expected}, as in cells[0]"
                )


# --- assigned or not ---


def _is_assigned(cells: Sequence[Cell], stated: bool | None) -> bool:
    found = _told(cells)
    numbers = tuple(cell.id for cell in cells)
    if found is None and stated is None:
        raise InvalidPrimitive(
            "cells",
            numbers,
            "assigned=True or False: these ids are those of guest cells as well as of host cells",
        )
    if found is not None and stated is not None and found != stated:
        raise InvalidPrimitive("cells", numbers, f"assigned={found}, which the content tells")
    is_assigned = stated if found is None else found
    if not is_assigned and not _are_guests(numbers):
        raise InvalidPrimitive(
            "cells", numbers, "ids 0, 1, ... or all -1, for it is not assigned: no vCPU has a CPU"
        )
    return bool(is_assigned)


def _told(cells: Sequence[Cell]) -> bool | None:
    """Return whether the content says that it is assigned, None if it does not tell."""
    dedicated = sum(len(cell.guest.dedicated) for cell in cells)
    pinned = sum(len(cell.pins) for cell in cells)
    numbers = tuple(cell.id for cell in cells)
    if pinned and pinned < dedicated:
        raise InvalidPrimitive(
            "cells", f"{pinned} CPUs", f"one for each of {dedicated} dedicated vCPUs, or none"
        )
    is_not = CLEARED in numbers or any(cell.page_size in PAGE_NUMBERS for cell in cells)
    if pinned and is_not:
        raise InvalidPrimitive(
            "cells", numbers, "host cells and a page size in KiB, for its vCPUs have CPUs"
        )
    if pinned:
        return True
    if is_not or dedicated:
        return False
    return None if _are_guests(numbers) else True


def _are_guests(numbers: tuple[int, ...]) -> bool:
    """Return whether ids are such as guest cells have."""
    return numbers == tuple(range(len(numbers))) or set(numbers) == {CLEARED}


# --- where ---


def _placed(cell: Cell, host: NUMATopologyInventory | None) -> PlacedCell:
    there = None if host is None else host.cell(cell.id)
    return PlacedCell(
        cell.id,
        pins=cell.pins,
        idle=_idle(cell, there),
        shared=_shared(cell, there),
        page_size_kib=_huge_kib(cell, there),
    )


def _shared(cell: Cell, there: HostCell | None) -> tuple[int, ...]:
    """Return the CPUs that shared vCPUs run on: all that the host cell has for them."""
    if not cell.guest.shared:
        return ()
    if there is None:
        raise InvalidPrimitive("cpuset", cell.guest.shared, "host=, whose CPUs these run on")
    if not there.shared:
        expected = f"none: host cell {there.id} has none for them"
        raise InvalidPrimitive("cpuset", cell.guest.shared, expected)
    return there.shared


def _idle(cell: Cell, there: HostCell | None) -> tuple[int, ...]:
    """Return the CPUs left empty beside isolated vCPUs."""
    if cell.thread_policy != words.ISOLATE or not cell.pins:
        return ()
    if there is None:
        raise InvalidPrimitive(
            "cpu_thread_policy", cell.thread_policy, "host=, whose siblings are left empty"
        )
    taken = set(cell.pins.values())
    beside = {cpu for core in there.siblings if taken.intersection(core) for cpu in core}
    beside.intersection_update(there.dedicated)
    return tuple(sorted(beside.difference(taken, cell.reserved)))


def _huge_kib(cell: Cell, there: HostCell | None) -> int | None:
    """Return the size of the huge pages that a cell is in, None for ordinary memory."""
    size = cell.size_kib
    if size is None or not cell.guest.memory_mb:
        return None
    if there is None:
        if _ORDINARY_KIB < size < _HUGE_KIB:
            raise InvalidPrimitive(
                "pagesize", size, "host=, which has it as ordinary or huge pages"
            )
        return None if size <= _ORDINARY_KIB else size
    sizes = [pool.size_kib for pool in there.pages]
    if size not in sizes:
        raise InvalidPrimitive("pagesize", size, f"one of the host cell's: {sizes}")
    return None if size == there.base_kib else size


def _emulator(cells: Sequence[Cell], is_placed: bool) -> int | None:
    """Return the emulator's CPU; what a cell keeps after it was taken from its host is none."""
    for place, cell in enumerate(cells):
        expected = int(is_placed and place == 0)
        if len(cell.reserved) != expected and cell.id != CLEARED:
            raise InvalidPrimitive(
                f"cells[{place}].cpuset_reserved",
                cell.reserved,
                "one CPU for the emulator" if expected else "none",
            )
    return cells[0].reserved[0] if is_placed else None


# --- page sizes ---


def _page_size(cells: Sequence[Cell], placed: Sequence[PlacedCell], stated: str | None) -> str:
    """Return the page size that was asked for."""
    counted = [place for place, cell in enumerate(cells) if cell.guest.memory_mb] or range(
        len(cells)
    )
    found = list(dict.fromkeys(cells[place].page_size for place in counted))
    if stated is None:
        if len(found) > 1:
            raise InvalidPrimitive(
                "cells", found, "one pagesize in all, or page_size=: the one asked"
            )
        return found[0]
    for place in counted:
        cell = cells[place]
        if cell.guest.memory_mb and not _agrees(stated, cell, placed[place] if placed else None):
            raise InvalidPrimitive(
                f"cells[{place}].pagesize", cell.page_size, f"what page_size={stated!r} may lead to"
            )
    return stated


def _agrees(asked: str, cell: Cell, placed: PlacedCell | None) -> bool:
    """Return whether a page size that was asked may have led to what a cell has."""
    if asked == cell.page_size:
        return True
    if cell.size_kib is None or not asked or asked.isdecimal():
        return False
    if placed is None or asked == words.ANY:
        return True
    return (placed.page_size_kib is None) == (asked == words.SMALL)


def written_size(
    amount: NUMATopologyAmount, place: int, host: NUMATopologyInventory | None, minor: int
) -> int | None:
    """Return the page size of a guest cell as Nova has it, in KiB or as the number of a word.

    :raises CannotDowngrade: if it is not known, or not what was asked
    """
    asked, guest = amount.page_size, amount.cells[place]
    said = int(asked) if asked.isdecimal() else None
    if not amount.placed:
        return PAGE_NUMBERS.get(asked, said)
    if not guest.memory_mb:
        return said
    size = amount.placed[place].page_size_kib
    if size is not None or not asked:
        return size
    base = host.cell(amount.placed[place].cell).base_kib if host else said
    is_known_huge = host is None and base is not None and base >= _HUGE_KIB
    if said not in (None, base) or is_known_huge:
        raise _cannot(minor, f"guest cell {place} is in ordinary memory, and asked for huge pages")
    if base is None:
        raise _cannot(minor, f"guest cell {place} is in pages whose size only host= tells")
    return base


def _cannot(minor: int, reason: str) -> CannotDowngrade:
    return CannotDowngrade(GUEST_CELL, f"1.{minor}", reason)
