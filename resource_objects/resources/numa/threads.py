"""Which CPUs of a host cell dedicated vCPUs take: the thread policies.

Source of the rules: Nova's ``_pack_instance_onto_cores``, stated for whole cores. Where that leaves
a choice to chance (the order of a set), here it is:

1. cores with the fewest free threads that will do come first, so that whole cores stay whole; of
   those, the one with the lowest free CPU; threads ascending;
2. which vCPU is on which CPU is a function of the set of CPUs taken alone (:func:`layout`): so the
   ledger, which keeps that set, keeps all there is to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from resource_objects.resources.numa.cells import Cell
from resource_objects.resources.numa.cpus import cpus_of
from resource_objects.resources.numa.words import ISOLATE, REQUIRE


class Layout(NamedTuple):
    """What each of some taken CPUs is for."""

    vcpus: tuple[int, ...]  #: by dedicated vCPU, ascending
    emulator: int | None
    idle: tuple[int, ...]


_NOTHING = Layout((), None, ())


def choose(cell: Cell, count: int, policy: str | None, has_emulator: bool) -> int | None:
    """Return the CPUs to take for ``count`` dedicated vCPUs as a mask, None if there are none.

    CPUs that are left empty on purpose are in it, and the emulator's.
    """
    free = cell.free_cpus
    taken = (
        _isolated(cell, free, count) if policy == ISOLATE else _packed(cell, free, count, policy)
    )
    if taken is None:
        return None
    if has_emulator:
        spare = free & ~_cores_with(cell, taken) if policy == ISOLATE else free & ~taken
        if not spare:
            return None
        if policy == REQUIRE:
            spare = spare & _odd_core(cell, taken) or spare
        taken |= _first(_free_threads(cell, spare))
    return taken


def most(cell: Cell, policy: str | None) -> int:
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


def layout(
    cores: Iterable[int], taken: int, count: int, policy: str | None, has_emulator: bool
) -> Layout | None:
    """Return what each taken CPU is for, None if so many vCPUs do not take just these.

    Cores come by how many of their threads are taken, most first, then by lowest CPU; vCPUs take
    threads in that order, the emulator the last one. Where the first core has one more than each of
    the others, that one is the emulator's, so that vCPUs stay with their siblings.

    >>> layout([0b0101, 0b1010], 0b0111, 2, None, True)
    Layout(vcpus=(0, 2), emulator=1, idle=())
    """
    if not count and not has_emulator:
        return None if taken else _NOTHING
    groups = [(core, core & taken) for core in cores if core & taken]
    if policy == ISOLATE:
        return _layout_isolated(groups, count, has_emulator)
    groups.sort(key=lambda group: (-group[1].bit_count(), group[1] & -group[1]))
    ordered = [cpu for _, threads in groups for cpu in cpus_of(threads)]
    if len(ordered) != count + has_emulator:
        return None
    counts = [threads.bit_count() for _, threads in groups]
    emulator = ordered.pop(_emulators(counts)) if has_emulator else None
    return Layout(tuple(ordered), emulator, ())


def _emulators(counts: list[int]) -> int:
    """Return which CPU in order is the emulator's, given how many are taken of each core.

    The last one; but the odd one of the first core where without it all cores are equal, of several
    threads each: so vCPUs that took threads of cores together keep them together.
    """
    first, *others = counts
    is_odd = len(set(others)) == 1 and first == others[0] + 1 > 2
    return first - 1 if is_odd else -1


def _layout_isolated(
    groups: list[tuple[int, int]], count: int, has_emulator: bool
) -> Layout | None:
    ordered = sorted(
        groups,
        key=lambda group: (group[0] != group[1], -group[1].bit_count(), group[1] & -group[1]),
    )
    if len(ordered) != count + has_emulator:
        return None
    threads = [cpus_of(taken) for _, taken in ordered]
    if any(core != taken for core, taken in ordered[:count]):
        return None
    if has_emulator and len(threads[-1]) != 1:
        return None
    return Layout(
        tuple(core[0] for core in threads[:count]),
        threads[-1][0] if has_emulator else None,
        tuple(sorted(cpu for core in threads[:count] for cpu in core[1:])),
    )


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


def _cores_with(cell: Cell, taken: int) -> int:
    """Return every CPU of the cores that some taken CPU is on."""
    found = 0
    for core in cell.facts.cores:
        if core & taken:
            found |= core
    return found


def _first(threads: list[int]) -> int:
    return threads[0] & -threads[0]
