"""A naive matcher of NUMA topologies: obviously right, for small inputs only, kept for ever.

Written from the rules and nothing else: sets, :mod:`itertools` and exact fractions. It shares no
code with the decision (``resources/numa``), which is tested against it, and so can another one be.
:func:`has_placement` tries everything; :func:`faults` says what is wrong with one placement, rule
by rule; :func:`host_cells` tries everything and tells which host cells are the ones to take.

What it costs grows with the permutations of the host cells and the subsets of their CPUs: four
cells of eight CPUs are some milliseconds, eight cells are not meant.

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
    >>> host = NUMATopologyInventory([HostCell(0, dedicated=[0, 1], memory_mb=64),
    ...                               HostCell(1, dedicated=[2, 3], memory_mb=64)])
    >>> has_placement(host, numa(cells=2, dedicated=4)), has_placement(host, numa(dedicated=3))
    (True, False)
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
)

__all__ = [
    "faults",
    "has_placement",
    "host_cells",
]


_CPUs: TypeAlias = frozenset[int]
_NO_LIMIT = NUMATopologyLimit()


@dataclasses.dataclass(frozen=True)
class _Taken:
    """CPUs of a host cell: those of the vCPUs, those left empty, and the emulator's."""

    vcpus: _CPUs
    idle: _CPUs
    emulator: _CPUs

    @property
    def all(self) -> _CPUs:
        return self.vcpus | self.idle | self.emulator


@dataclasses.dataclass(frozen=True)
class _Cell:
    """A host cell with its usage and the limits on it, as the rules speak of it."""

    facts: HostCell
    usage: CellUsage
    limit: NUMATopologyLimit
    cpu_ratio: Fraction
    memory_ratio: Fraction

    @property
    def shared(self) -> _CPUs:
        return frozenset(self.facts.shared)

    @property
    def free(self) -> _CPUs:
        """Return the dedicated CPUs that nobody has, by name."""
        return frozenset(self.facts.dedicated) - frozenset(self.usage.pinned)

    @property
    def cores(self) -> list[_CPUs]:
        """Return all cores; a CPU in no sibling set is one by itself."""
        cores = [frozenset(core) for core in self.facts.siblings]
        available = frozenset().union(*cores)
        return cores + [frozenset({cpu}) for cpu in frozenset(self.facts.dedicated) - available]

    @property
    def threads(self) -> int:
        return max((len(core) for core in self.cores), default=1)

    @property
    def page_sizes(self) -> list[int]:
        return [pool.size_kib for pool in self.facts.pages]

    @property
    def ordinary_mb(self) -> int:
        """Return what is not in huge pages: the smallest pages, and all of it if none is known."""
        if not self.facts.pages:
            return self.facts.memory_mb
        smallest = self.facts.pages[0]
        mb = (smallest.total - smallest.reserved) * smallest.size_kib // 1024
        huge = math.ceil(sum(pool.total * pool.size_kib for pool in self.facts.pages[1:]) / 1024)
        return min(mb, self.facts.memory_mb - huge)

    def free_pages(self, size_kib: int) -> int:
        """Return how many pages of a huge size are free."""
        (pool,) = [pool for pool in self.facts.pages if pool.size_kib == size_kib]
        return pool.total - pool.reserved - dict(self.usage.pages).get(size_kib, 0)

    def limit_on(self, name: str) -> int | None:
        """Return the bound on ``vcpus`` or ``memory_mb``, None for none."""
        bounds: tuple[tuple[int, int], ...] = getattr(self.limit, name)
        return dict(bounds).get(self.facts.id)


@dataclasses.dataclass(frozen=True)
class _Pair:
    """A guest cell on a host cell, with what the whole amount says of it."""

    amount: NUMATopologyAmount
    number: int
    cell: _Cell

    @property
    def guest(self) -> GuestCell:
        return self.amount.cells[self.number]

    @property
    def has_emulator(self) -> bool:
        """Return whether the emulator's CPU is asked here: beside guest cell 0 only."""
        return self.amount.emulator_policy == "isolate" and self.number == 0

    @property
    def is_shared_only(self) -> bool:
        """Return whether no vCPU of the whole amount is dedicated."""
        return not any(guest.dedicated for guest in self.amount.cells)


# --- rules of the CPUs of a pair ---


def _left_shared(pair: _Pair, taken: _Taken) -> _CPUs:
    """Return the shared CPUs that nobody has dedicated."""
    return pair.cell.shared - frozenset(pair.cell.usage.pinned) - taken.all


def _shared_vcpus(pair: _Pair, taken: _Taken) -> Iterator[str]:
    """No overcommit against itself; capacity of the CPUs that are not pinned; limit."""
    cell, request = pair.cell, len(pair.guest.shared)
    used = cell.usage.shared + request
    remaining = _left_shared(pair, taken)
    if request > len(remaining):
        yield f"{request} shared vCPUs on {len(remaining)} shared CPUs"
    capacity = math.floor(len(remaining) * cell.cpu_ratio)
    if (request or taken.all & cell.shared) and used > capacity:
        yield f"{used} shared vCPUs, capacity {capacity}"
    bound = cell.limit_on("vcpus")
    if request and bound is not None and used > bound:
        yield f"{used} shared vCPUs, limit {bound}"


def _dedicated_vcpus(pair: _Pair, taken: _Taken) -> Iterator[str]:
    """Free CPUs of the cell, by name; no more than the ones taken by number leave."""
    cell = pair.cell
    if not taken.all <= cell.free:
        yield f"CPUs {sorted(taken.all - cell.free)} are not free"
    if len(taken.all) > len(cell.free) - cell.usage.loose and taken.all:
        yield f"{len(taken.all)} CPUs of {len(cell.free)} free, {cell.usage.loose} of them loose"
    if len(taken.vcpus) != len(pair.guest.dedicated):
        yield f"{len(taken.vcpus)} CPUs for {len(pair.guest.dedicated)} dedicated vCPUs"
    if len(taken.emulator) != pair.has_emulator:
        yield f"{len(taken.emulator)} CPUs for the emulator"


def _isolate(pair: _Pair, taken: _Taken) -> Iterator[str]:
    """Each vCPU, and the emulator, alone on a core that was wholly free.

    The other threads of these cores are taken and idle.
    """
    running = taken.vcpus | taken.emulator
    used = [core for core in pair.cell.cores if core & running]
    for core in used:
        if len(core & taken.vcpus) > 1:
            yield f"several vCPUs on core {sorted(core)}"
        if not core <= pair.cell.free:
            yield f"core {sorted(core)} is not wholly free"
        if core & taken.emulator and core & taken.vcpus:
            yield f"the emulator beside a vCPU on core {sorted(core)}"
    if taken.idle != frozenset().union(*used) - running:
        yield f"idle CPUs {sorted(taken.idle)}"


def _require(pair: _Pair, taken: _Taken) -> Iterator[str]:
    """Some number of threads, 2 or more, of each core that is used; the last may have fewer."""
    cell = pair.cell
    for threads in range(2, cell.threads + 1):
        used = [core for core in cell.cores if core & taken.vcpus]
        counts = sorted((len(core & taken.vcpus) for core in used), reverse=True)
        if all(len(core & cell.free) >= threads for core in used) and (
            all(count == threads for count in counts[:-1]) and counts[-1] <= threads
        ):
            return
    yield f"CPUs {sorted(taken.vcpus)} are not threads of the same cores"


def _threads(pair: _Pair, taken: _Taken) -> Iterator[str]:
    """The thread policy; without dedicated vCPUs it says nothing."""
    if pair.amount.thread_policy == "isolate":
        yield from _isolate(pair, taken)
        return
    if taken.idle:
        yield f"CPUs {sorted(taken.idle)} are idle for nothing"
    if pair.amount.thread_policy == "require" and taken.vcpus:
        yield from _require(pair, taken)


# --- rules of the memory of a pair; None is ordinary memory ---


def _page_size(pair: _Pair, size_kib: int | None) -> Iterator[str]:
    """A size that was asked for, and that the cell has."""
    request, sizes = pair.amount.page_size, pair.cell.page_sizes
    if size_kib is not None and size_kib not in sizes[1:]:
        yield f"no huge pages of {size_kib} KiB"
    is_base = request in ("small", "any") or (sizes and request == str(sizes[0]))
    if request and not sizes:
        yield "no page sizes are known"
    elif size_kib is None and request and not is_base:
        yield f"ordinary memory where {request} pages were asked for"
    elif size_kib is not None and request not in ("large", "any", str(size_kib)):
        yield f"pages of {size_kib} KiB where {request or 'ordinary'} ones were asked for"


def _huge(pair: _Pair, size_kib: int | None) -> Iterator[str]:
    """Whole pages, no more than are free."""
    if size_kib is None or size_kib not in pair.cell.page_sizes[1:]:
        return
    kib = pair.guest.memory_mb * 1024
    if kib % size_kib:
        yield f"{kib} KiB is not a whole number of pages of {size_kib} KiB"
    if kib > pair.cell.free_pages(size_kib) * size_kib:
        yield f"{kib} KiB, {pair.cell.free_pages(size_kib)} pages of {size_kib} KiB are free"


def _ordinary(pair: _Pair, size_kib: int | None) -> Iterator[str]:
    """Capacity for whoever shares, what there is for the others; the limit for all."""
    if size_kib is not None:
        return
    cell, request = pair.cell, pair.guest.memory_mb
    used, there_is = cell.usage.memory_mb + request, cell.ordinary_mb
    if request > there_is:
        yield f"{request} MiB of {there_is} MiB"
    if used > math.floor(there_is * cell.memory_ratio):
        yield f"{used} MiB, beyond capacity of {there_is} MiB times {cell.memory_ratio}"
    if (pair.amount.page_size or not pair.is_shared_only) and used > there_is:
        yield f"{used} MiB of {there_is} MiB without overcommit"
    if cell.page_sizes and request * 1024 % cell.page_sizes[0]:
        yield f"{request} MiB is not a whole number of pages of {cell.page_sizes[0]} KiB"
    bound = cell.limit_on("memory_mb")
    if bound is not None and used > bound:
        yield f"{used} MiB, limit {bound}"


_CPU_RULES = (_shared_vcpus, _dedicated_vcpus, _threads)
_MEMORY_RULES = (_page_size, _huge, _ordinary)


def _cpu_faults(pair: _Pair, taken: _Taken) -> list[str]:
    return [fault for rule in _CPU_RULES for fault in rule(pair, taken)]


def _memory_faults(pair: _Pair, size_kib: int | None) -> list[str]:
    if not pair.guest.memory_mb:
        return [] if size_kib is None else ["pages for no memory"]
    result = list(_page_size(pair, size_kib))
    if result:
        return result
    return [fault for rule in _MEMORY_RULES[1:] for fault in rule(pair, size_kib)]


# --- rules of all of it together ---


@dataclasses.dataclass(frozen=True)
class _Host:
    """All host cells, by id, and what the host as a whole has left."""

    cells: Mapping[int, _Cell]
    within: frozenset[int]
    room: Mapping[str, int]

    @classmethod
    def of(
        cls,
        inventory: NUMATopologyInventory,
        limit: NUMATopologyLimit | None,
        within: Collection[int] | None,
    ) -> _Host:
        cells = {
            facts.id: _Cell(
                facts,
                usage,
                limit or _NO_LIMIT,
                Fraction(inventory.cpu_ratio),
                Fraction(inventory.memory_ratio),
            )
            for facts, usage in zip(inventory.cells, inventory.usage, strict=True)
        }
        allowed = frozenset(cells if within is None else within)
        return cls(cells, allowed, dict(inventory.room or {}))


def _whole_faults(host: _Host, amount: NUMATopologyAmount, chosen: Sequence[int]) -> list[str]:
    """Return what is wrong with the host cells of the guest cells, whatever they take there."""
    results = []
    facts = [host.cells[cell].facts for cell in chosen]
    if len(set(chosen)) != len(chosen):
        results.append(f"host cells {chosen}: two guest cells on one")
    if not set(chosen) <= host.within:
        results.append(f"host cells {chosen}: only {sorted(host.within)} may be used")
    everywhere = [cell.facts for cell in host.cells.values()]
    for network in sorted(amount.physnets):
        if any(network in cell.physnets for cell in everywhere) and not any(
            network in cell.physnets for cell in facts
        ):
            results.append(f"no host cell next to {network}")
    if (
        amount.tunneled
        and any(cell.tunneled for cell in everywhere)
        and not any(cell.tunneled for cell in facts)
    ):
        results.append("no host cell next to tunnelled networks")
    sockets = {cell.socket for cell in facts}
    if amount.one_socket and len(chosen) > 1 and (len(sockets) > 1 or None in sockets):
        results.append(f"sockets {sockets}")
    return results


#: How many CPUs and how much ordinary memory is taken.
_Footprint: TypeAlias = tuple[int, int]


def _room_faults(
    host: _Host, amount: NUMATopologyAmount, footprints: Sequence[_Footprint]
) -> list[str]:
    """Return where the whole of it is more than the host as a whole has left."""
    request = {
        "VCPU": sum(len(guest.shared) for guest in amount.cells),
        "PCPU": sum(cpus for cpus, _ in footprints),
        "MEMORY_MB": sum(mb for _, mb in footprints),
    }
    return [
        f"{name}: {count}, room for {host.room[name]}"
        for name, count in request.items()
        if count and name in host.room and count > host.room[name]
    ]


# --- trying everything ---


def _ways_of_cpus(pair: _Pair) -> Iterator[_Taken]:
    """Yield every way in which the rules let a guest cell have CPUs of a host cell."""
    cell, none = pair.cell, frozenset[int]()
    for chosen in itertools.combinations(sorted(cell.free), len(pair.guest.dedicated)):
        vcpus = frozenset(chosen)
        remainder = sorted(cell.free - vcpus)
        emulators = [frozenset({cpu}) for cpu in remainder] if pair.has_emulator else [none]
        for emulator in emulators:
            idle = none
            if pair.amount.thread_policy == "isolate":
                running = vcpus | emulator
                idle = none.union(*(core for core in cell.cores if core & running)) - running
            taken = _Taken(vcpus, idle, emulator)
            if not _cpu_faults(pair, taken):
                yield taken


def _ways_of_memory(pair: _Pair) -> Iterator[int | None]:
    """Yield every page size that the rules allow, None for ordinary memory."""
    for size in (None, *pair.cell.page_sizes[1:]):
        if not _memory_faults(pair, size):
            yield size


def _footprints(pair: _Pair) -> frozenset[_Footprint]:
    """Return what a guest cell may take of a host cell; empty if it does not fit there."""
    memory = {pair.guest.memory_mb if size is None else 0 for size in _ways_of_memory(pair)}
    if not memory:
        return frozenset()
    cpus = {len(taken.all) for taken in _ways_of_cpus(pair)}
    return frozenset(itertools.product(cpus, memory))


def _choices(host: _Host, amount: NUMATopologyAmount) -> Iterator[tuple[int, ...]]:
    """Yield every choice of a host cell for each guest cell that the rules allow."""

    @functools.cache
    def footprints(guest: int, cell: int) -> frozenset[_Footprint]:
        return _footprints(_Pair(amount, guest, host.cells[cell]))

    for chosen in itertools.permutations(sorted(host.cells), len(amount.cells)):
        if _whole_faults(host, amount, chosen):
            continue
        options = [footprints(guest, cell) for guest, cell in enumerate(chosen)]
        if any(not _room_faults(host, amount, taken) for taken in itertools.product(*options)):
            yield chosen


def has_placement(
    inventory: NUMATopologyInventory,
    amount: NUMATopologyAmount,
    limit: NUMATopologyLimit | None = None,
    within: Collection[int] | None = None,
) -> bool:
    """Return whether the rules allow any placement of ``amount``. Cost: everything is tried."""
    host = _Host.of(inventory, limit, within)
    return next(_choices(host, amount), None) is not None


def host_cells(
    inventory: NUMATopologyInventory,
    amount: NUMATopologyAmount,
    ranking: Sequence[int],
    limit: NUMATopologyLimit | None = None,
    within: Collection[int] | None = None,
) -> tuple[int, ...] | None:
    """Return the host cell to take for each guest cell, None if there is no placement.

    The placement draws least on the host as a whole: the fewest CPUs, those left empty included,
    then the least ordinary memory. Of equal ones, the host cells are the closest to each other: the
    sum of the distances of each two is the least, both ways; where one way is not known it is as
    the other, and where neither is they are farther apart than any others. Of equally close ones,
    the set of host cells is the first by ``ranking``
    (their ids, best first), read as a word whose letters are the places of its cells in it,
    ascending. Of the ways to use this set, the one is taken that gives guest cell 0 the lowest id,
    then guest cell 1, and so on.
    """
    place = {cell: number for number, cell in enumerate(ranking)}
    host = _Host.of(inventory, limit, within)

    def between(item: int, other: int) -> int:
        existing = dict(host.cells[item].facts.distances).get(other)
        back = dict(host.cells[other].facts.distances).get(item)
        available = [option for option in (existing, back) if option is not None] or [10**12]
        return available[0] + available[-1]

    def separate(chosen: Sequence[int]) -> int:
        return sum(between(*pair) for pair in itertools.combinations(chosen, 2))

    def draw(chosen: Sequence[int]) -> tuple[int, int]:
        least = [
            min(_footprints(_Pair(amount, *pair)))
            for pair in enumerate(map(host.cells.__getitem__, chosen))
        ]
        return sum(cpus for cpus, _ in least), sum(memory for _, memory in least)

    return min(
        _choices(host, amount),
        key=lambda chosen: (
            *(draw(chosen), separate(chosen)),
            *(sorted(place[cell] for cell in chosen), chosen),
        ),
        default=None,
    )


# --- judging one placement ---


def faults(
    inventory: NUMATopologyInventory,
    assigned: NUMATopologyAmount,
    limit: NUMATopologyLimit | None = None,
    within: Collection[int] | None = None,
) -> list[str]:
    """Return what is wrong with an assigned amount, nothing if it may be taken as it is."""
    host = _Host.of(inventory, limit, within)
    chosen = [placed.cell for placed in assigned.placed]
    if len(chosen) != len(assigned.cells) or not set(chosen) <= set(host.cells):
        return [f"{len(assigned.cells)} guest cells on host cells {chosen} of {list(host.cells)}"]
    result = _whole_faults(host, assigned, chosen)
    footprints = []
    for number, placed in enumerate(assigned.placed):
        pair = _Pair(assigned, number, host.cells[placed.cell])
        emulator = assigned.emulator_cpu if pair.has_emulator else None
        taken = _Taken(
            frozenset(cpu for _, cpu in placed.pins),
            frozenset(placed.idle),
            frozenset() if emulator is None else frozenset({emulator}),
        )
        wrong = _cpu_faults(pair, taken) + _memory_faults(pair, placed.page_size_kib)
        wrong += _named_faults(pair, taken, placed.pins, placed.shared)
        result += [f"guest cell {number} on host cell {placed.cell}: {fault}" for fault in wrong]
        in_huge_pages = placed.page_size_kib is not None
        footprints.append((len(taken.all), 0 if in_huge_pages else pair.guest.memory_mb))
    return result + _room_faults(host, assigned, footprints)


def _named_faults(
    pair: _Pair, taken: _Taken, pins: Sequence[tuple[int, int]], shared: Sequence[int]
) -> list[str]:
    """Return what is wrong with which vCPU has which CPU."""
    results = []
    if [vcpu for vcpu, _ in pins] != sorted(pair.guest.dedicated):
        results.append(f"vCPUs {[vcpu for vcpu, _ in pins]} are pinned")
    if len({cpu for _, cpu in pins}) != len(pins):
        results.append(f"pins {pins}: a CPU twice")
    remaining = _left_shared(pair, taken) if pair.guest.shared else frozenset()
    if frozenset(shared) != remaining:
        results.append(f"shared vCPUs run on {sorted(shared)}, not on {sorted(remaining)}")
    value = [*(cpu for _, cpu in pins), *taken.emulator]
    if value != _in_order(pair, taken):
        results.append(f"CPUs {value}, not {_in_order(pair, taken)}")
    return results


def _in_order(pair: _Pair, taken: _Taken) -> list[int]:
    """Return the CPU of each dedicated vCPU, then the emulator's, as the set of them says.

    Cores come by how many of their threads are taken, most first, then by the lowest CPU taken;
    threads ascending. The emulator has the last one; if the first core has one more than each of
    the others, which have several, then that one.
    """
    is_isolated = pair.amount.thread_policy == "isolate"

    def place(core: _CPUs) -> tuple[int, int]:
        return -len(core & taken.all), min(core & taken.all)

    cores = sorted((core for core in pair.cell.cores if core & taken.all), key=place)
    named = [sorted(core & (taken.vcpus | taken.emulator)) for core in cores]
    in_order = [cpu for threads in named for cpu in threads]
    other_items = {len(threads) for threads in named[1:]}
    if (
        taken.emulator
        and not is_isolated
        and other_items in ({len(named[0]) - 1},)
        and min(other_items) > 1
    ):
        odd = named[0][-1]
        in_order.remove(odd)
        in_order.append(odd)
    return in_order
