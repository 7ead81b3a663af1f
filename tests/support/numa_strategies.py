"""Hypothesis strategies for NUMA topologies: hosts, what is used of them, what is asked.

All are small enough for :mod:`~tests.support.numa_reference`, which tries everything,
and crowded enough that much is refused.

=========================  =======================================================================
:func:`numa_host_cells`    what machines are made of: one to four threads on a core, cores of
                           several kinds, ids with gaps, cells without CPUs or without memory, CPUs
                           kept for the host, huge pages, networks, sockets, distances
:func:`numa_inventories`   such cells with consistent usage, seldom over-full; some with less room
                           in the host as a whole than in its cells
:func:`numa_amounts`       any amounts, not assigned
:func:`numa_questions`     an inventory, an amount and a limit or None: mostly what just fits, or
                           just does not
=========================  =======================================================================

Each takes its chances from a ``random.Random``: Hypothesis's or, in :func:`question_of`, that of a
seed. From a seed a question costs a twentieth, so that thousands can be tried; Hypothesis finds the
smallest one that fails.

    >>> question = question_of(1)
    >>> question == question_of(1), len(question.inventory.cells), question.inventory.free_dedicated
    (True, 2, 3)
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
    PagePool,
)

__all__ = [
    "NUMAQuestion",
    "numa_amounts",
    "numa_host_cells",
    "numa_inventories",
    "numa_questions",
    "question_of",
]


_T = TypeVar("_T")


class NUMAQuestion(NamedTuple):
    """What is asked of whom, under which limit."""

    inventory: NUMATopologyInventory
    amount: NUMATopologyAmount
    limit: NUMATopologyLimit | None


def numa_host_cells(*, max_cells: int = 4) -> st.SearchStrategy[list[HostCell]]:
    """Return the cells of a host, by id."""
    return _by_chance(lambda chance: _host_cells(chance, max_cells))


def numa_inventories(
    *, max_cells: int = 4, has_room: bool = True, serves_either_way: bool = True
) -> st.SearchStrategy[NUMATopologyInventory]:
    """Return inventories with consistent usage; in some cells more is used than there is.

    :param has_room: whether some are bounded by what a host as a whole has left
    :param serves_either_way: whether CPUs may be shared and dedicated, which no ledger keeps
    """
    return _by_chance(lambda chance: _inventory(chance, max_cells, has_room, serves_either_way))


def numa_amounts(*, max_cells: int = 3) -> st.SearchStrategy[NUMATopologyAmount]:
    """Return amounts of any kind, not assigned."""
    return _by_chance(lambda chance: _any_amount(chance, max_cells))


def numa_questions(
    *,
    max_cells: int = 4,
    max_guests: int = 3,
    has_room: bool = True,
    serves_either_way: bool = True,
) -> st.SearchStrategy[NUMAQuestion]:
    """Return inventories with amounts made from what is free, and limits; parameters as above."""

    def question(chance: random.Random) -> NUMAQuestion:
        inventory = _inventory(chance, max_cells, has_room, serves_either_way)
        return _question(chance, inventory, max_guests, has_room)

    return _by_chance(question)


def question_of(seed: int, *, max_cells: int = 4, max_guests: int = 3) -> NUMAQuestion:
    """Return the question of a seed: always the same one."""
    chance = random.Random(seed)
    return _question(chance, _inventory(chance, max_cells, True, True), max_guests, True)


def _by_chance(make: Callable[[random.Random], _T]) -> st.SearchStrategy[_T]:
    return st.randoms(use_true_random=False).map(make)


def _once_in(chance: random.Random, times: int) -> bool:
    """Return True seldom; the smallest example is False."""
    return chance.randrange(times) == times - 1


# --- cells ----------------------------------------------------------------------------------------

#: CPUs of a host cell, at most.
_MAX_CPUS = 8
#: Threads by core, over and over.
_CORES = [(1,), (2,), (4,), (3,), (2, 1), (1, 1, 4)]
#: Huge page sizes that machines have, in KiB, and how many pages a cell has of each at most.
_HUGE = {2048: 8, 1048576: 2}
_NETWORKS = ["red", "blue"]


def _host_cells(
    chance: random.Random, max_cells: int, serves_either_way: bool = True
) -> list[HostCell]:
    count = chance.randint(1, max_cells)
    ids = sorted(chance.sample(range(10), count)) if _once_in(chance, 4) else list(range(count))
    threads = [_threads(chance) for _ in ids]
    numbered = _by_thread(threads) if _once_in(chance, 2) else _by_cell(threads)
    if _once_in(chance, 4):
        numbered = [[[2 * cpu + 1 for cpu in core] for core in cell] for cell in numbered]
    has_distances = _once_in(chance, 4)
    cells = []
    for cell_id, cores in zip(ids, numbered, strict=True):
        distances = {i: 10 if i == cell_id else chance.choice([20, 21, 32]) for i in ids}
        shared, dedicated = _roles(chance, cores, serves_either_way)
        pages, memory_mb = _memory(chance)
        cell = HostCell(
            cell_id,
            shared=shared,
            dedicated=dedicated,
            siblings=[core for core in cores if len(core) > 1 or cell_id % 2],
            memory_mb=memory_mb,
            pages=pages,
            socket=chance.choice([0, 0, 1, None]),
            distances=distances if has_distances else {},
            physnets=_networks(chance),
            tunneled=_once_in(chance, 4),
        )
        cells.append(cell)
    return cells


def _threads(chance: random.Random) -> list[int]:
    """Return the number of threads of each core of a cell; none for a cell without CPUs."""
    kinds = chance.choice(_CORES)
    remaining = chance.randint(0, _MAX_CPUS)
    cores: list[int] = []
    while remaining >= kinds[len(cores) % len(kinds)]:
        cores.append(kinds[len(cores) % len(kinds)])
        remaining -= cores[-1]
    return cores


def _by_cell(cells: Sequence[Sequence[int]]) -> list[list[list[int]]]:
    """Number CPUs cell by cell, core by core."""
    following = itertools.count()
    return [[[next(following) for _ in range(threads)] for threads in cores] for cores in cells]


def _by_thread(cells: Sequence[Sequence[int]]) -> list[list[list[int]]]:
    """Number CPUs as most firmware does: the first threads of all cores, then the second ones."""
    numbers: list[list[list[int]]] = [[[] for _ in cores] for cores in cells]
    following = itertools.count()
    for thread in range(_MAX_CPUS):
        for cell, cores in enumerate(cells):
            for core, threads in enumerate(cores):
                if thread < threads:
                    numbers[cell][core].append(next(following))
    return numbers


def _roles(
    chance: random.Random, cores: Sequence[Sequence[int]], serves_either_way: bool
) -> tuple[set[int], set[int]]:
    """Return shared and dedicated CPUs: whole cores or single threads; some are the host's.

    CPUs that serve either way are all of a cell's, as on the hosts that had them.
    """
    cpus = {cpu for core in cores for cpu in core}
    kind = chance.choice(["dedicated", "dedicated", "cores", "threads", "shared", "either"])
    if kind in ("dedicated", "shared", "either"):
        cpus -= {min(cpus, default=0)} if _once_in(chance, 4) else set()
        if kind == "either" and serves_either_way:
            return cpus, cpus
        return (set(), cpus) if kind == "dedicated" else (cpus, set())
    roles: dict[str, set[int]] = {"shared": set(), "dedicated": set(), "host": set()}
    for group in cores if kind == "cores" else [[cpu] for cpu in sorted(cpus)]:
        roles[chance.choice(["dedicated", "shared", "dedicated", "host"])].update(group)
    return roles["shared"], roles["dedicated"]


def _memory(chance: random.Random) -> tuple[list[PagePool], int]:
    """Return the pages of a cell, and its memory in MiB."""
    ordinary_mb = chance.choice([1024, 64, 2048, 3000, 0])
    if _once_in(chance, 6):
        return [], ordinary_mb
    base_kib = 64 if _once_in(chance, 6) else 4
    total = ordinary_mb * 1024 // base_kib
    reserved = min(total, chance.choice([0, 0, 256]))
    pages = [PagePool(size_kib=base_kib, total=total, reserved=reserved)]
    for size, most in _HUGE.items():
        if _once_in(chance, 2):
            total = chance.randint(0, most)
            reserved = chance.randint(0, min(1, total))
            pages.append(PagePool(size_kib=size, total=total, reserved=reserved))
            ordinary_mb += total * size // 1024
    return pages, ordinary_mb


def _networks(chance: random.Random) -> list[str]:
    return [name for name in _NETWORKS if _once_in(chance, 4)]


# --- what is used ---------------------------------------------------------------------------------

_RATIOS = ["1", "1", "1.5", "16", "0.5"]


def _inventory(
    chance: random.Random, max_cells: int, has_room: bool, serves_either_way: bool
) -> NUMATopologyInventory:
    cells = _host_cells(chance, max_cells, serves_either_way)
    fresh = NUMATopologyInventory(
        cells, cpu_ratio=chance.choice(_RATIOS), memory_ratio=chance.choice(_RATIOS)
    )
    is_empty = _once_in(chance, 4)
    usage = [] if is_empty else [_usage(chance, fresh, cell) for cell in cells]
    fresh.update(usage=usage)
    if has_room and _once_in(chance, 4):
        fresh.update(room=_room(chance, fresh))
    fresh.obj_reset_changes()
    return fresh


def _usage(chance: random.Random, inventory: NUMATopologyInventory, cell: HostCell) -> CellUsage:
    pinned = {cpu for cpu in cell.dedicated if _once_in(chance, 3)}
    over = 3 if _once_in(chance, 12) else 0
    loose = chance.randint(0, len(cell.dedicated) - len(pinned)) if _once_in(chance, 4) else 0
    capacity = int(len(set(cell.shared) - pinned) * inventory.cpu_ratio)
    memory = int(cell.ordinary_mb * inventory.memory_ratio)
    return CellUsage(
        cell.id,
        shared=min(capacity, chance.choice([0, 1, 2, capacity])) + (over if cell.shared else 0),
        pinned=pinned,
        loose=loose,
        memory_mb=min(memory, chance.choice([0, 64, 512, memory])) + (over if memory else 0),
        pages={
            pool.size_kib: chance.randint(0, pool.total - pool.reserved)
            for pool in cell.huge_pages
            if _once_in(chance, 2)
        },
    )


def _room(chance: random.Random, inventory: NUMATopologyInventory) -> dict[str, int]:
    """Return what a host has left of some classes, at most as much as its cells have."""
    free = {
        "VCPU": inventory.free_shared,
        "PCPU": inventory.free_dedicated,
        "MEMORY_MB": inventory.free_memory_mb,
    }
    return {
        name: max(0, count - chance.choice([0, 1, 2, 4, 512]))
        for name, count in free.items()
        if not _once_in(chance, 3)
    }


# --- what is asked --------------------------------------------------------------------------------


def _tight_room(chance: random.Random, amount: NUMATopologyAmount) -> dict[str, int]:
    """Return about what an amount needs of a host as a whole: it depends on where it goes."""
    memory = [cell.memory_mb for cell in amount.cells if _once_in(chance, 2)]
    needed = {
        "VCPU": amount.placed_counts.get("VCPU", 0) + chance.choice([0, 0, 0, 1]),
        "PCPU": amount.placed_counts.get("PCPU", 0) + chance.randint(0, 4),
        "MEMORY_MB": sum(memory) + chance.randint(0, 1),
    }
    return {name: count for name, count in needed.items() if not _once_in(chance, 3)}


class _Counts(NamedTuple):
    """What one guest cell asks for."""

    shared: int
    dedicated: int
    memory_mb: int


_ASKED_MB = [0, 2, 64, 1, 512, 1000, 1024]
_PAGE_SIZES = ["any", "large", "small", "any", "4", "2048", "1048576"]


def _question(
    chance: random.Random, inventory: NUMATopologyInventory, max_guests: int, has_room: bool
) -> NUMAQuestion:
    if _once_in(chance, 12):
        amount = _any_amount(chance, max_guests)
    else:
        count = chance.randint(1, min(max_guests, len(inventory.cells)))
        places = chance.sample(range(len(inventory.cells)), count)
        amount = _amount(chance, [_near(chance, inventory, place) for place in places])
    limit = _limit(chance, inventory) if _once_in(chance, 4) else None
    if has_room and _once_in(chance, 4):
        inventory.update(room=_tight_room(chance, amount))
        inventory.obj_reset_changes()
    return NUMAQuestion(inventory, amount, limit)


def _any_amount(chance: random.Random, max_cells: int) -> NUMATopologyAmount:
    counts = [
        _Counts(chance.randint(0, 4), chance.randint(0, 4), chance.choice(_ASKED_MB))
        for _ in range(chance.randint(1, max_cells))
    ]
    return _amount(chance, counts)


def _near(chance: random.Random, inventory: NUMATopologyInventory, place: int) -> _Counts:
    """Return what is free in a host cell, or a little less, seldom a little more."""
    cell, used = inventory.cells[place], inventory.usage[place]
    free = len(set(cell.dedicated) - set(used.pinned)) - used.loose
    capacity = int(len(set(cell.shared) - set(used.pinned)) * inventory.cpu_ratio)
    huge = [pool.size_kib // 1024 for pool in cell.huge_pages if pool.total > pool.reserved]
    memory = [
        0,
        chance.choice(_ASKED_MB),
        *(size * chance.randint(1, 3) for size in huge),
        cell.ordinary_mb - used.memory_mb,
        int(cell.ordinary_mb * inventory.memory_ratio) - used.memory_mb,
    ]
    more = 1 if _once_in(chance, 32) else 0
    return _Counts(
        _upto(chance, min(len(cell.shared), capacity - used.shared)),
        _upto(chance, free),
        max(0, memory[min(chance.randrange(len(memory)), chance.randrange(len(memory)))] + more),
    )


def _upto(chance: random.Random, figure: int) -> int:
    most = max(0, figure)
    return most + 1 if _once_in(chance, 32) else chance.choice([most, chance.randint(0, most)])


def _amount(chance: random.Random, parts: Sequence[_Counts]) -> NUMATopologyAmount:
    policies = ["dedicated", "shared", "mixed"]
    if not any(part.shared for part in parts):
        policies.remove("shared")
    policy = chance.choice(policies)
    shared = [0 if policy == "dedicated" else part.shared for part in parts]
    dedicated = [0 if policy == "shared" else part.dedicated for part in parts]
    numbers = list(range(sum(shared) + sum(dedicated)))
    if _once_in(chance, 4):
        chance.shuffle(numbers)
    following = iter(numbers)
    cells = [
        GuestCell(
            shared=_next(following, several),
            dedicated=_next(following, other_items),
            memory_mb=part.memory_mb if several or other_items else part.memory_mb or 64,
        )
        for several, other_items, part in zip(shared, dedicated, parts, strict=True)
    ]
    has_policies = any(dedicated)
    return NUMATopologyAmount(
        cells,
        page_size=chance.choice(_PAGE_SIZES) if _once_in(chance, 3) else "",
        thread_policy=chance.choice([None, "prefer", "require", "isolate"])
        if has_policies
        else None,
        emulator_policy=chance.choice([None, "isolate", "share"]) if has_policies else None,
        physnets=_networks(chance) if _once_in(chance, 2) else [],
        tunneled=_once_in(chance, 8),
        one_socket=_once_in(chance, 8),
    )


def _next(following: Iterator[int], count: int) -> list[int]:
    return list(itertools.islice(following, count))


def _limit(chance: random.Random, inventory: NUMATopologyInventory) -> NUMATopologyLimit:
    """Return a limit near to what is used of some cells."""
    vcpus, memory_mb = {}, {}
    for used in inventory.usage:
        if _once_in(chance, 2):
            vcpus[used.cell] = used.shared + chance.randint(0, 4)
        if _once_in(chance, 2):
            memory_mb[used.cell] = used.memory_mb + chance.choice([0, 64, 1024])
    return NUMATopologyLimit(vcpus=vcpus, memory_mb=memory_mb)
