"""From the facts of a machine to the inventory of its NUMA cells. Pure.

* Every NUMA node of the machine is a host cell, by the kernel's number: also one that has memory
  and no CPUs (high-bandwidth memory, memory behind CXL) and one that has CPUs and no memory.
* CPUs serve what :func:`cpu_sets` says. Those that are offline are not there.
  Threads are the online ones of a core, so cores of one machine may have different numbers of them.
* Memory is in whole MiB. The base pages are ordinary memory; what is less than a MiB is left out.
  Pages of any size may be kept for the host: of base pages that is ordinary memory nobody gets.
* A cell is in the socket that its CPUs are in. A cell without CPUs is in the socket of the CPUs
  that reach its memory best (its initiators), where the firmware says so and they are in one.

Where the kernel does not say which cell huge pages are in (before Linux 2.6.32), no cell offers
any: they are reserved of the memory of the host as a whole.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.host.facts import Machine, NUMACell, Pages
from resource_objects.resources import text
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    HostCell,
    NUMATopologyInventory,
    PagePool,
    cpuset,
)
from resource_objects.resources.numa.cells import parse_page_size, show_kib

__all__ = [
    "CPUSet",
    "CPUSplit",
    "ReservedPages",
    "cpu_sets",
    "numa_inventory",
    "read_reserved_pages",
    "size_kib",
]

_KIB = 1024


def numa_inventory(
    machine: Machine,
    *,
    shared: CPUSet = None,
    dedicated: CPUSet = None,
    reserved_pages: ReservedPages = None,
    cpu_ratio: Decimal | int | str | float = 1,
    memory_ratio: Decimal | int | str | float = 1,
    physnets: Mapping[int, Iterable[str]] | None = None,
    tunneled: Iterable[int] = (),
) -> NUMATopologyInventory | None:
    """Return the NUMA cells of a machine, nothing of them used; None if it has no cells.

    Cost: linear in CPUs and cells, some 0.1 ms per cell.

    :param shared: CPUs for shared vCPUs, as ``"0-3"`` or numbers; if neither set is given, all
    :param dedicated: CPUs that are given to one vCPU each
    :param reserved_pages: pages kept for the host, such as ``"0:2MB=64"`` or ``{0: {2048: 64}}``,
        which is cell, size and count
    :param cpu_ratio: how often a shared CPU is given out
    :param memory_ratio: how often ordinary memory is given out; huge pages are given out once
    :param physnets: networks that have devices next to a cell, ``{cell: names}``
    :param tunneled: cells that have devices for tunnelled networks next to them
    :raises InvalidInput: if the machine is none, or a set, mapping or name is none; for a CPU list,
        pages or a page size that do not parse; for pages that are reserved twice; if a ratio is
        none
    :raises InvalidInventory: for CPUs that are not online or are in both sets, cells and pages that
        the machine does not have, more reserved pages than there are, or a page size that is no
        power of two

    >>> from resource_objects.host.facts import MIB, Core, Pages
    >>> pages = (Pages(4096, 131072), Pages(2 * MIB, 256, free=256))
    >>> machine = Machine(
    ...     cpus=(0, 1, 2, 3), cores=(Core(0, 0, (0, 2)), Core(0, 1, (1, 3))),
    ...     memory_bytes=2048 * MIB,
    ...     cells=(NUMACell(0, (0, 1, 2, 3), 1024 * MIB, pages, package_id=0, distances=(10, 17)),
    ...            NUMACell(2, (), 1024 * MIB, distances=(17, 10), initiators=(0,))))
    >>> inventory = numa_inventory(machine, shared="0,2", dedicated="1,3",
    ...                            reserved_pages={0: {"2MB": 16}})
    >>> for cell in inventory.cells:
    ...     print(cell.id, cell.shared, cell.dedicated, cell.ordinary_mb, cell.socket)
    0 (0, 2) (1, 3) 512 0
    2 () () 1024 0
    >>> [pool.free_mb for pool in inventory.cell(0).huge_pages]
    [480]
    """
    if not isinstance(machine, Machine):
        raise InvalidInput("value", "machine", machine, "a Machine, as discover() returns")
    sets = cpu_sets(machine, shared, dedicated)
    kept = read_reserved_pages(machine, reserved_pages)
    networks = _by_cell(machine, "physnets", physnets)
    tunnels = _cells(machine, "tunneled", tunneled)
    if not machine.cells:
        return None
    cores = _cores(machine)
    cells = [
        _host_cell(
            machine,
            cell,
            sets,
            cores[cell.id],
            kept.get(cell.id, {}),
            physnets=_names(networks.get(cell.id, ())),
            tunneled=cell.id in tunnels,
        )
        for cell in machine.cells
    ]
    return NUMA_TOPOLOGY.make_inventory(cells, cpu_ratio=cpu_ratio, memory_ratio=memory_ratio)


def _host_cell(
    machine: Machine,
    cell: NUMACell,
    sets: CPUSplit,
    cores: Iterable[tuple[int, ...]],
    kept: Mapping[int, int],
    **networks: Any,
) -> HostCell:
    here = set(cell.cpus)
    shared, dedicated = here.intersection(sets.shared), here.intersection(sets.dedicated)
    own = here - shared - dedicated
    pages = tuple(
        PagePool(size_kib=size, total=each.total, reserved=kept.get(size, 0))
        for each in cell.pages
        for size in [size_kib(cell.id, each)]
    )
    return HostCell(
        cell.id,
        shared=shared,
        dedicated=dedicated,
        # a core of one thread is named only where nothing else names its CPU
        siblings=[core for core in cores if len(core) > 1 or core[0] in own],
        memory_mb=_memory_mb(cell, pages),
        pages=pages,
        socket=_socket(machine, cell),
        distances=_distances(machine, cell),
        **networks,
    )


def _cores(machine: Machine) -> Mapping[int, list[tuple[int, ...]]]:
    """Return the cores of each cell, by the CPUs of theirs that are in it."""
    owner = {cpu: cell.id for cell in machine.cells for cpu in cell.cpus}
    found: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for core in machine.cores:
        parts: dict[int, list[int]] = defaultdict(list)
        for cpu in core.cpus:
            if cpu in owner:
                parts[owner[cpu]].append(cpu)
        for cell, cpus in parts.items():
            found[cell].append(tuple(cpus))
    return found


def _memory_mb(cell: NUMACell, pages: tuple[PagePool, ...]) -> int:
    """Return the memory in whole MiB; a MiB that huge pages are in counts whole."""
    huge = sum(pool.total * pool.size_kib for pool in pages[1:])
    return max(cell.memory_mb, -(-huge // _KIB))


def _socket(machine: Machine, cell: NUMACell) -> int | None:
    if cell.package_id is not None or cell.cpus:
        return cell.package_id
    there = {each.id: each.package_id for each in machine.cells}
    found = {there.get(initiator) for initiator in cell.initiators}
    return found.pop() if len(found) == 1 else None


def _distances(machine: Machine, cell: NUMACell) -> dict[int, int]:
    if not cell.distances:
        return {}
    return dict(zip((each.id for each in machine.cells), cell.distances, strict=True))


# --- networks -----------------------------------------------------------------------------------


def _by_cell(machine: Machine, what: str, given: Any) -> Mapping[int, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput("value", what, given, "a mapping by cell")
    _cells(machine, what, given)
    return given


def _cells(machine: Machine, what: str, given: Any) -> frozenset[int]:
    """Return ids of cells, refusing those that the machine does not have."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInput("value", what, given, "ids of cells")
    named, ids = list(given), [cell.id for cell in machine.cells]
    for each in named:
        if type(each) is not int or each not in ids:
            known = ", ".join(map(str, ids)) or "none"
            raise InvalidInventory(f"{what}: cell", each, f"a cell of the machine: {known}")
    return frozenset(named)


def _names(given: Any) -> Any:
    """Return names as they are given; one text is one name, not its letters."""
    return (given,) if isinstance(given, str) else given


# --- which CPUs are whose -------------------------------------------------------------------------
# Which CPUs of a machine serve what: shared ones, dedicated ones, and those the host keeps.
#
# =====================  ===========================================================================
# ``shared``             run any number of shared vCPUs, up to a ratio; counted as ``VCPU``
# ``dedicated``          are given to one vCPU each, or left empty for it; counted as ``PCPU``
# in neither             the host's own: its kernel, its agents, whatever serves guests
# =====================  ===========================================================================
#
# Where neither set is given, all CPUs are shared. Where one is, the CPUs it does not name are the
# host's own unless the other names them. Source: ``cpu_shared_set`` and ``cpu_dedicated_set`` of
# Nova's *cpu-resources* specification (Train).

#: CPUs as a list in text (``"2-15,^4"``) or as their numbers; None where none are named.
CPUSet: TypeAlias = str | Iterable[int] | None


@dataclasses.dataclass(frozen=True, slots=True)
class CPUSplit:
    """The CPUs that are shared and those that are dedicated, ascending; no CPU is both."""

    shared: tuple[int, ...]
    dedicated: tuple[int, ...]


def cpu_sets(machine: Machine, shared: CPUSet = None, dedicated: CPUSet = None) -> CPUSplit:
    """Return which CPUs of a machine serve what. O(CPUs).

    :raises InvalidInput: for text that is no list of CPUs, or names none; for anything else that is
        no set of CPUs, or an empty one
    :raises InvalidInventory: for a CPU that is not online, or is in both sets

    >>> from resource_objects.host.facts import Core
    >>> machine = Machine(cpus=(0, 1, 2, 3), memory_bytes=0, offline_cpus=(4,),
    ...                   cores=tuple(Core(0, number, (number,)) for number in range(4)))
    >>> cpu_sets(machine)
    CPUSplit(shared=(0, 1, 2, 3), dedicated=())
    >>> cpu_sets(machine, dedicated="2-3")
    CPUSplit(shared=(), dedicated=(2, 3))
    >>> cpu_sets(machine, shared=[1], dedicated="2-4")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInventory: dedicated CPUs: got '4', expected CPUs that ...
    """
    if shared is None and dedicated is None:
        return CPUSplit(machine.cpus, ())
    found = CPUSplit(
        _online(machine, "shared CPUs", shared), _online(machine, "dedicated CPUs", dedicated)
    )
    both = set(found.shared).intersection(found.dedicated)
    if both:
        raise InvalidInventory(
            "dedicated CPUs", str(cpuset.CPUSet(both)), "CPUs that are not shared too"
        )
    return found


def _online(machine: Machine, what: str, given: CPUSet) -> tuple[int, ...]:
    """Return the CPUs of a set, all online; none where it is not given."""
    if given is None:
        return ()
    cpus = cpuset.CPUSet.parse(given, what) if isinstance(given, str) else _numbers(what, given)
    away = sorted(set(cpus).difference(machine.cpus))
    if away:
        expected = f"CPUs that are online: {cpuset.CPUSet(machine.cpus)}"
        raise InvalidInventory(what, str(cpuset.CPUSet(away)), expected)
    return cpus


def _numbers(what: str, given: Any) -> tuple[int, ...]:
    numbers = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes) else ()
    if not numbers or not all(type(each) is int and each >= 0 for each in numbers):
        raise InvalidInput("value", what, given, "a list of CPUs such as 0-3,8, or their numbers")
    return tuple(sorted(set(numbers)))


# --- pages kept for the host ----------------------------------------------------------------------
# Pages of NUMA cells that are kept for the host, checked against the facts of a machine.
#
# As a mapping, ``{cell: {size: count}}`` with sizes in KiB or as text, or in one line of text:
# ``0:2MB=64,1:2MB=64``, which is cell, size and count.

#: What is kept, as a mapping or as text; None and "" for nothing.
ReservedPages: TypeAlias = Mapping[int, Mapping[int | str, int]] | str | None

_WHAT = "reserved pages"
_FORM = "CELL:SIZE=COUNT such as 0:2MB=64"


def read_reserved_pages(machine: Machine, given: ReservedPages) -> dict[int, dict[int, int]]:
    """Return the pages that are kept: ``{cell: {size in KiB: count}}``.

    :raises InvalidInput: if it is no mapping of that form; for text or a size that does not parse;
        for a size of a cell that is said twice
    :raises InvalidInventory: if the machine has no such cell, the cell no such pages, or fewer

    >>> from resource_objects.host.facts import MIB, Core, NUMACell
    >>> cell = NUMACell(0, (0,), 64 * MIB, (Pages(4096, 0), Pages(2 * MIB, 32)))
    >>> machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, cells=(cell,))
    >>> read_reserved_pages(machine, "0:2MB=8") == read_reserved_pages(machine, {0: {2048: 8}})
    True
    """
    if given is None:
        return {}
    mapping = _parsed(given) if isinstance(given, str) else given
    if not isinstance(mapping, Mapping):
        raise InvalidInput("value", _WHAT, given, f"counts by cell and size, or {_FORM}")
    ids = [cell.id for cell in machine.cells]
    found: dict[int, dict[int, int]] = {}
    for cell, sizes in mapping.items():
        if type(cell) is not int or cell not in ids:
            known = ", ".join(map(str, ids)) or "none"
            raise InvalidInventory(f"{_WHAT}: cell", cell, f"a cell of the machine: {known}")
        if not isinstance(sizes, Mapping):
            raise InvalidInput("value", f"{_WHAT} of cell {cell}", sizes, "counts by size")
        there = {size_kib(cell, pages): pages.total for pages in machine.cell(cell).pages}
        found[cell] = _checked(cell, sizes, there)
    return found


def size_kib(cell: int, pages: Pages) -> int:
    """Return the size of pages in KiB.

    :raises InvalidInventory: if it is no power of two of them
    """
    size, rest = divmod(pages.size_bytes, _KIB)
    if rest or size & (size - 1):
        raise InvalidInventory(
            f"page size of cell {cell}", pages.size_bytes, "a power of two of 1024 bytes or more"
        )
    return size


def _parsed(given: str) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for item in given.split(",") if given.strip() else ():
        place, equals, count = (part.strip() for part in item.partition("="))
        cell, colon, size = (part.strip() for part in place.partition(":"))
        if not equals or not colon or not cell.isdecimal():
            raise InvalidInput("text", _WHAT, item, _FORM)
        sizes = found.setdefault(text.integer(cell, f"{_WHAT}: cell"), {})
        if size in sizes:
            raise InvalidInput("repetition", _WHAT, place, "each size of a cell once")
        sizes[size] = text.integer(count, f"{_WHAT}: count")
    return found


def _checked(cell: int, sizes: Mapping[Any, Any], there: Mapping[int, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for kib, count in _in_kib(sizes):
        if kib not in there:
            known = ", ".join(map(show_kib, there)) or "none"
            raise InvalidInventory(
                f"{_WHAT}: size", show_kib(kib), f"one that cell {cell} has: {known}"
            )
        if kib in found:
            raise InvalidInput(
                "repetition", f"{_WHAT} of cell {cell}", show_kib(kib), "each size once"
            )
        if type(count) is not int or not 0 <= count <= there[kib]:
            raise InvalidInventory(
                f"{_WHAT} of {show_kib(kib)} of cell {cell}", count, f"0 to {there[kib]}"
            )
        found[kib] = count
    return found


def _in_kib(sizes: Mapping[Any, Any]) -> Iterator[tuple[int, Any]]:
    for size, count in sizes.items():
        kib = parse_page_size(size)
        if not kib.isdecimal():
            raise InvalidInput(
                "text", f"{_WHAT}: size", size, "a size such as 2MB, and no word for several"
            )
        yield int(kib), count
