"""``compute_nodes.numa_topology``: a host's NUMA topology as Nova keeps it, read and written.

Every version is read, ``NUMACell`` 1.0 to 1.5 and the plain dicts from before Liberty; the newest
is written. What is the same by another name:

====================================  =============================================================
Nova                                  here
====================================  =============================================================
``cpuset``, ``pcpuset``               ``shared``, ``dedicated``. They are apart, or the same: then
                                      each serves either way. Without ``pcpuset`` (before 1.4) they
                                      are the same
``memory``                            ``memory_mb``, in pages of any size
``memory_usage``                      all memory that is used; ``CellUsage.memory_mb`` is what of it
                                      is not in huge pages
``mempages``                          ``pages``, ascending; ``used`` of the huge ones is
                                      ``CellUsage.pages``
``used`` of the smallest pages        not read, for ``memory_usage`` says it, and before Stein only
                                      those were counted who asked for a size; written anew
``cpu_usage``                         ``CellUsage.shared``. Before 1.4 the pinned CPUs are counted
                                      with it, since 1.5 they are not; 1.4 was written by both
                                      kinds, see ``counts_pinned``
``siblings``                          ``siblings``; a CPU that is in none, and so a core by itself,
                                      is written as one, for Nova finds none without
``network_metadata``                  ``physnets``, ``tunneled``
allocation ratios                     columns of their own beside it: ``cpu_ratio``,
                                      ``memory_ratio``
====================================  =============================================================

What is read and written again is what it was, up to this: sets ascending, cores by their CPUs,
pages by size, no empty sibling sets, ``used`` of the smallest pages, fields that were not set with
what they stand for (0, empty, None), no ``nova_object.changes``, and the newest version.

Nova has no word for ``distances`` and for ``loose`` CPUs: writing refuses them.
What others take of the host as a whole (``room``) is in other columns.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from resource_objects import names
from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.primitive import (
    HOST,
    HOST_CELL,
    NETWORKS,
    PAGES,
    Document,
    bounds,
    ids,
    number,
)
from resource_objects.ratio import to_ratio
from resource_objects.resources.numa import CellUsage, HostCell, NUMATopologyInventory, PagePool
from resource_objects.resources.numa.cells import KIB

_invalid_primitive = functools.partial(InvalidInput, "primitive")

__all__ = ["dump_host_numa_topology", "load_host_numa_topology"]

#: Facts that may be left out, for Nova has no word for them.
_OPTIONAL: Final = ("distances",)

_make_inventory = primitive.maker(NUMATopologyInventory)


def load_host_numa_topology(
    source: Document,
    *,
    cpu_ratio: Decimal | int | str | float = 1,
    memory_ratio: Decimal | int | str | float = 1,
    counts_pinned: bool | None = None,
) -> NUMATopologyInventory:
    """Return the inventory of a host's topology, with what is used of it.

    :param source: JSON text as in ``compute_nodes.numa_topology``, the mapping it stands for, or
        Nova's own ``NUMATopology``
    :param cpu_ratio: ``cpu_allocation_ratio`` of the host, which the topology does not say
    :param memory_ratio: its ``ram_allocation_ratio``
    :param counts_pinned: whether ``cpu_usage`` counts pinned CPUs too; None: as the version says,
        and where both kinds wrote it (1.4), as the figures do
    :raises InvalidInput: if it is no topology, in any version, or contradicts itself; also if it
        cannot be told whether pinned CPUs are counted; for a ratio that is none

    Cost: 0.2 milliseconds for 8 cells of 16 CPUs, a quarter of that for the JSON.

    >>> old = '{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 2048, "used": 512}}]}'
    >>> host = load_host_numa_topology(old, cpu_ratio=4)
    >>> host.free_shared, host.free_dedicated, host.free_memory_mb
    (16, 4, 1536)
    """
    _, result = primitive.cells_of(source, HOST, HOST_CELL, {"cells"}, _of_plain)
    if not result:
        raise _invalid_primitive(f"{primitive.ROOT}.cells", [], "at least one")
    ratios = to_ratio(cpu_ratio), to_ratio(memory_ratio)
    cells, usage = [], []
    for place, (data, minor) in enumerate(result):
        try:
            cell, used = _read_cell(data, minor, counts_pinned)
        except InvalidInput as error:
            primitive.at(f"{primitive.ROOT}.cells[{place}]", error)
        cells.append(cell)
        usage.append(used)
    try:
        return _make_inventory(
            resource_class=None,
            cells=tuple(cells),
            usage=tuple(usage),
            cpu_ratio=ratios[0],
            memory_ratio=ratios[1],
            room=None,
            taken=None,
        )
    except InvalidInput as error:
        primitive.at(f"{primitive.ROOT}.cells", error)


def dump_host_numa_topology(
    inventory: NUMATopologyInventory, *, leave_out: Collection[str] = ()
) -> str:
    """Return a host's topology, with what is used of it, as ``compute_nodes.numa_topology`` has it.

    :param leave_out: what may be left unsaid, for Nova has no word for it: ``distances``
    :raises CannotDowngrade: for distances, and CPUs that are taken by number only
    :raises InvalidInventory: if it is no such inventory
    :raises InvalidInput: if something else is to be left out

    >>> from resource_objects.resources.numa import HostCell
    >>> cores = [(0, 1), (2, 3)]
    >>> cell = HostCell(0, shared=[0, 1], dedicated=[2, 3], siblings=cores, memory_mb=512)
    >>> host = NUMATopologyInventory([cell])
    >>> load_host_numa_topology(dump_host_numa_topology(host)) == host
    True
    >>> far = NUMATopologyInventory([cell.replace(distances={0: 10})])
    >>> dump_host_numa_topology(far)
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: NUMACell cannot be expressed in ...
    """
    if not isinstance(inventory, NUMATopologyInventory):
        raise InvalidInventory("inventory", inventory, "a NUMATopologyInventory")
    allowed = primitive.left_out(leave_out, _OPTIONAL)
    cells = []
    for cell, used in zip(inventory.cells, inventory.usage, strict=True):
        if cell.distances and "distances" not in allowed:
            raise primitive.cannot_say(HOST_CELL, f"cell {cell.id} has distances")
        if used.loose:
            reason = f"cell {cell.id} has CPUs that are taken by number only"
            raise primitive.cannot_say(HOST_CELL, reason)
        cells.append(_written_cell(cell, used))
    return primitive.written(primitive.enveloped(HOST, {"cells": cells}))


_CELL_FIELDS: Final = frozenset(
    {
        "id",
        "cpuset",
        "pcpuset",
        "memory",
        "cpu_usage",
        "memory_usage",
        "pinned_cpus",
        "siblings",
        "mempages",
        "network_metadata",
        "socket",
    }
)
_PAGES_FIELDS: Final = frozenset({"size_kb", "total", "used", "reserved"})
_NETWORK_FIELDS: Final = frozenset({"physnets", "tunneled"})
#: Of the plain dicts; limits were the scheduler's, not the host's.
_PLAIN_FIELDS: Final = frozenset({"id", "cpus", "mem", "cpu_usage", "cpu_limit"})
_PLAIN_MEMORY: Final = frozenset({"total", "used", "limit"})

#: First version of a cell that has dedicated CPUs apart from the shared ones.
_DEDICATED: Final = 4

_ID, _SOCKETS = bounds(HostCell, "id"), bounds(HostCell, "socket")
_MEMORY, _USED = bounds(HostCell, "memory_mb"), bounds(CellUsage, "memory_mb")
_SIZE, _TOTAL, _RESERVED = (bounds(PagePool, name) for name in ("size_kib", "total", "reserved"))

_BY_SIZE: Final = operator.itemgetter(0)

#: A host is read again and again, and what it is hardly changes; cells are values.
_make_cell = functools.lru_cache(maxsize=4096)(primitive.maker(HostCell))
_make_usage = primitive.maker(CellUsage)


# --- reading --------------------------------------------------------------------------------------


def _read_cell(
    data: dict[Any, Any], minor: int, counts_pinned: bool | None
) -> tuple[HostCell, CellUsage]:
    """Return a cell, and what is used of it."""
    primitive.only(data, _CELL_FIELDS)
    get = data.get
    shared = ids(get("cpuset"), "cpuset")
    dedicated = ids(data["pcpuset"], "pcpuset") if "pcpuset" in data else shared
    pinned = ids(get("pinned_cpus", ()), "pinned_cpus")
    pages, used_pages = _read_pages(get("mempages", ()))
    physnets, tunneled = _read_networks(get("network_metadata"))
    socket = get("socket")
    cell_id = number(get("id"), "id", *_ID)
    cell = _make_cell(
        id=cell_id,
        shared=shared,
        dedicated=dedicated,
        siblings=primitive.groups_of_ids(get("siblings", ()), "siblings"),
        memory_mb=number(get("memory"), "memory", *_MEMORY),
        pages=pages,
        socket=None if socket is None else number(socket, "socket", *_SOCKETS),
        distances=(),
        physnets=physnets,
        tunneled=tunneled,
    )
    usage = _make_usage(
        cell=cell_id,
        shared=_shared_usage(data, minor, shared, pinned, counts_pinned),
        pinned=pinned,
        loose=0,
        memory_mb=_ordinary_usage(data, used_pages),
        pages=used_pages,
    )
    return cell, usage


def _read_pages(value: object) -> tuple[tuple[PagePool, ...], tuple[tuple[int, int], ...]]:
    """Return the pages by size, and how many of the huge ones are used."""
    found = []
    for place, given in enumerate(primitive.sequence(value, "mempages")):
        try:
            data, _ = primitive.opened(given, "", PAGES)
            primitive.only(data, _PAGES_FIELDS)
            pool = _pool(data.get("size_kb"), data.get("total"), data.get("reserved", 0))
            used = number(data.get("used", 0), "used", *_USED)
        except TypeError:  # a figure that does not even hash
            raise _invalid_primitive(
                f"mempages[{place}]", data, "pages with whole numbers"
            ) from None
        except InvalidInput as error:
            primitive.at(f"mempages[{place}]", error)
        found.append((pool.size_kib, used, pool))
    found.sort(key=_BY_SIZE)
    in_use = tuple([(size, used) for size, used, _ in found[1:] if used])
    return tuple([pool for _, _, pool in found]), in_use


@functools.lru_cache(maxsize=4096, typed=True)
def _pool(size: Any, total: Any, reserved: Any) -> PagePool:
    """Return some pages: there are as many of them in other cells, and at the next reading."""
    return PagePool(
        size_kib=number(size, "size_kb", *_SIZE),
        total=number(total, "total", *_TOTAL),
        reserved=number(reserved, "reserved", *_RESERVED),
    )


def _read_networks(value: object) -> tuple[frozenset[str], bool]:
    if value is None:
        return frozenset(), False
    data, _ = primitive.opened(value, "network_metadata", NETWORKS)
    primitive.only(data, _NETWORK_FIELDS, "network_metadata.")
    physnets, tunneled = data.get("physnets", ()), data.get("tunneled", False)
    if not isinstance(physnets, list | tuple | set | frozenset):
        raise _invalid_primitive("network_metadata.physnets", physnets, "a list of names")
    if not isinstance(tunneled, bool):
        raise _invalid_primitive("network_metadata.tunneled", tunneled, "true or false")
    checked = [names.label(name, "network_metadata.physnets") for name in physnets]
    return frozenset(checked), tunneled


def _ordinary_usage(data: Mapping[Any, Any], huge: Iterable[tuple[int, int]]) -> int:
    """Return the MiB used that are not in huge pages."""
    used = number(data.get("memory_usage", 0), "memory_usage", *_USED)
    in_huge = _mib_in(huge)
    if used < in_huge:
        raise _invalid_primitive("memory_usage", used, f"at least the {in_huge} used in huge pages")
    return used - in_huge


def _shared_usage(
    data: Mapping[Any, Any],
    minor: int,
    shared: tuple[int, ...],
    pinned: tuple[int, ...],
    counts_pinned: bool | None,
) -> int:
    """Return how many shared vCPUs there are."""
    used = number(data.get("cpu_usage", 0), "cpu_usage", *_USED)
    if not pinned:
        return used
    counts = _counts_pinned(used, minor, shared, pinned) if counts_pinned is None else counts_pinned
    if not counts:
        return used
    if used < len(pinned):
        raise _invalid_primitive(
            "cpu_usage", used, f"at least the {len(pinned)} pinned CPUs, which it should count"
        )
    return used - len(pinned)


def _counts_pinned(used: int, minor: int, shared: tuple[int, ...], pinned: tuple[int, ...]) -> bool:
    """Return whether the pinned CPUs are counted as used ones, where that can be told."""
    if minor != _DEDICATED:
        return minor < _DEDICATED
    if used < len(pinned):
        return False
    if not shared:
        return True
    raise _invalid_primitive(
        "cpu_usage",
        used,
        f"counts_pinned=True or False: whether the {len(pinned)} pinned CPUs are in it, for hosts"
        " of both kinds wrote version 1.4",
    )


def _of_plain(value: object) -> dict[Any, Any]:
    """Return a cell from before Liberty in the names of later ones."""
    cell, plain, memory = primitive.plain_cell(value, _PLAIN_FIELDS, _PLAIN_MEMORY)
    used = {"cpu_usage": plain.get("cpu_usage", 0), "memory_usage": memory.get("used", 0)}
    return {**cell, **used}


def _mib_in(pages: Iterable[tuple[int, int]]) -> int:
    """Return how many MiB some huge pages are."""
    return sum([size * count for size, count in pages]) // KIB


# --- writing --------------------------------------------------------------------------------------


def _written_cell(cell: HostCell, used: CellUsage) -> dict[str, Any]:
    """Return a cell, and what is used of it, in wire form."""
    networks = {"physnets": sorted(cell.physnets), "tunneled": cell.tunneled}
    data: dict[str, Any] = {
        "id": cell.id,
        "cpuset": cell.shared,
        "pcpuset": cell.dedicated,
        "memory": cell.memory_mb,
        "cpu_usage": used.shared,
        "memory_usage": used.memory_mb + _mib_in(used.pages),
        "pinned_cpus": used.pinned,
        "siblings": _every_core(cell),
        "mempages": [_written_pages(pool, cell, used) for pool in cell.pages],
        "network_metadata": primitive.enveloped(NETWORKS, networks),
        "socket": cell.socket,
    }
    return primitive.enveloped(HOST_CELL, data)


def _every_core(cell: HostCell) -> list[tuple[int, ...]]:
    """Return all cores, those of one CPU too: Nova neither pins nor finds a CPU that is in none."""
    known = {cpu for core in cell.siblings for cpu in core}
    alone = {*cell.shared, *cell.dedicated}.difference(known)
    return sorted([*cell.siblings, *((cpu,) for cpu in alone)])


def _written_pages(pool: PagePool, cell: HostCell, used: CellUsage) -> dict[str, Any]:
    size = pool.size_kib
    is_ordinary = size == cell.base_kib
    count = used.memory_mb * KIB // size if is_ordinary else dict(used.pages).get(size, 0)
    data = {"size_kb": size, "total": pool.total, "used": count, "reserved": pool.reserved}
    return primitive.enveloped(PAGES, data)
