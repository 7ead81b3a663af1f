"""One cell of a host in Nova's JSON: read in any version, written in any.

What means what is told in :mod:`~resource_objects.interop.nova.host_topology`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from resource_objects import names
from resource_objects.exceptions import InvalidInput, InvalidPrimitive
from resource_objects.interop.nova import _primitive
from resource_objects.interop.nova._primitive import bounds, ids, number
from resource_objects.interop.nova._versions import HOST_CELL, NETWORKS, PAGES, Versions
from resource_objects.resources.numa import CellUsage, HostCell, PagePool
from resource_objects.resources.numa.host import KIB

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

#: First version of a cell that says each.
_PINS, _PAGES, _NETWORKS, _DEDICATED, _SOCKET = 1, 2, 3, 4, 5

_ID, _SOCKETS = bounds(HostCell, "id"), bounds(HostCell, "socket")
_MEMORY, _USED = bounds(HostCell, "memory_mb"), bounds(CellUsage, "memory_mb")
_SIZE, _TOTAL, _RESERVED = (bounds(PagePool, name) for name in ("size_kib", "total", "reserved"))

_BY_SIZE: Final = operator.itemgetter(0)

#: A host is read again and again, and what it is hardly changes; cells are values.
_make_cell = functools.lru_cache(maxsize=4096)(_primitive.maker(HostCell))
_make_usage = _primitive.maker(CellUsage)


# --- reading --------------------------------------------------------------------------------------


def read_cell(
    data: dict[Any, Any], minor: int, counts_pinned: bool | None
) -> tuple[HostCell, CellUsage]:
    """Return a cell, and what is used of it."""
    _primitive.only(data, _CELL_FIELDS)
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
        siblings=_primitive.groups_of_ids(get("siblings", ()), "siblings"),
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
    for place, given in enumerate(_primitive.sequence(value, "mempages")):
        try:
            data, _ = _primitive.opened(given, "", PAGES)
            _primitive.only(data, _PAGES_FIELDS)
            pool = _pool(data.get("size_kb"), data.get("total"), data.get("reserved", 0))
            used = number(data.get("used", 0), "used", *_USED)
        except TypeError:  # a figure that does not even hash
            raise InvalidPrimitive(f"mempages[{place}]", data, "pages with whole numbers") from None
        except InvalidInput as error:
            _primitive.at(f"mempages[{place}]", error)
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
    data, _ = _primitive.opened(value, "network_metadata", NETWORKS)
    _primitive.only(data, _NETWORK_FIELDS, "network_metadata.")
    physnets, tunneled = data.get("physnets", ()), data.get("tunneled", False)
    if not isinstance(physnets, list | tuple | set | frozenset):
        raise InvalidPrimitive("network_metadata.physnets", physnets, "a list of names")
    if not isinstance(tunneled, bool):
        raise InvalidPrimitive("network_metadata.tunneled", tunneled, "true or false")
    checked = [names.label(name, "network_metadata.physnets") for name in physnets]
    return frozenset(checked), tunneled


def _ordinary_usage(data: Mapping[Any, Any], huge: Iterable[tuple[int, int]]) -> int:
    """Return the MiB used that are not in huge pages."""
    used = number(data.get("memory_usage", 0), "memory_usage", *_USED)
    in_huge = _mib_in(huge)
    if used < in_huge:
        raise InvalidPrimitive("memory_usage", used, f"at least the {in_huge} used in huge pages")
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
        raise InvalidPrimitive(
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
    raise InvalidPrimitive(
        "cpu_usage",
        used,
        f"counts_pinned=True or False: whether the {len(pinned)} pinned CPUs are in it, for hosts"
        " of both kinds wrote version 1.4",
    )


def of_plain(value: object) -> dict[Any, Any]:
    """Return a cell from before Liberty in the names of later ones."""
    plain = _primitive.mapping(value, "")
    _primitive.only(plain, _PLAIN_FIELDS)
    memory = _primitive.mapping(plain.get("mem", {}), "mem")
    _primitive.only(memory, _PLAIN_MEMORY, "mem.")
    return {
        "id": plain.get("id"),
        "cpuset": _primitive.cpu_list(plain.get("cpus", ""), "cpus"),
        "cpu_usage": plain.get("cpu_usage", 0),
        "memory": memory.get("total", 0),
        "memory_usage": memory.get("used", 0),
    }


def _mib_in(pages: Iterable[tuple[int, int]]) -> int:
    """Return how many MiB some huge pages are."""
    return sum([size * count for size, count in pages]) // KIB


# --- writing --------------------------------------------------------------------------------------


def unsaid(
    cell: HostCell, used: CellUsage, versions: Versions, left_out: Collection[str]
) -> Iterator[str]:
    """Yield what versions have no word for, but for what may be left out."""
    minor = versions[HOST_CELL]
    if cell.distances and "distances" not in left_out:
        yield "has distances"
    if used.loose:
        yield "has CPUs that are taken by number only"
    if minor < _SOCKET and cell.socket is not None and "socket" not in left_out:
        yield "has a socket"
    if minor < _DEDICATED and cell.shared != cell.dedicated:
        yield "has CPUs that do not serve either way"
    if minor < _NETWORKS:
        yield from _unsaid_networks(cell, left_out)
    if minor < _PAGES and cell.pages:
        yield "has pages of known sizes"
    if versions[PAGES] < 1 and any(pool.reserved for pool in cell.pages):
        yield "has reserved pages"
    if minor < _PINS and (cell.siblings or used.pinned):
        yield "has siblings or pinned CPUs"


def _unsaid_networks(cell: HostCell, left_out: Collection[str]) -> Iterator[str]:
    if cell.physnets and "physnets" not in left_out:
        yield "is next to networks"
    if cell.tunneled and "tunneled" not in left_out:
        yield "is next to tunnels"


def written_cell(cell: HostCell, used: CellUsage, versions: Versions) -> dict[str, Any]:
    """Return a cell, and what is used of it, in the wire form of some versions."""
    minor = versions[HOST_CELL]
    data: dict[str, Any] = {"id": cell.id, "cpuset": cell.shared}
    if minor >= _DEDICATED:
        data["pcpuset"] = cell.dedicated
    data["memory"] = cell.memory_mb
    data["cpu_usage"] = used.shared + (len(used.pinned) if minor < _DEDICATED else 0)
    data["memory_usage"] = used.memory_mb + _mib_in(used.pages)
    if minor >= _PINS:
        data["pinned_cpus"], data["siblings"] = used.pinned, _every_core(cell)
    if minor >= _PAGES:
        data["mempages"] = [_written_pages(pool, cell, used, versions) for pool in cell.pages]
    if minor >= _NETWORKS:
        networks = {"physnets": sorted(cell.physnets), "tunneled": cell.tunneled}
        data["network_metadata"] = _primitive.enveloped(NETWORKS, versions[NETWORKS], networks)
    if minor >= _SOCKET:
        data["socket"] = cell.socket
    return _primitive.enveloped(HOST_CELL, minor, data)


def _every_core(cell: HostCell) -> list[tuple[int, ...]]:
    """Return all cores, those of one CPU too: Nova neither pins nor finds a CPU that is in none."""
    known = {cpu for core in cell.siblings for cpu in core}
    alone = {*cell.shared, *cell.dedicated}.difference(known)
    return sorted([*cell.siblings, *((cpu,) for cpu in alone)])


def _written_pages(
    pool: PagePool, cell: HostCell, used: CellUsage, versions: Versions
) -> dict[str, Any]:
    size = pool.size_kib
    is_ordinary = size == cell.base_kib
    count = used.memory_mb * KIB // size if is_ordinary else dict(used.pages).get(size, 0)
    data = {"size_kb": size, "total": pool.total, "used": count}
    if versions[PAGES]:
        data["reserved"] = pool.reserved
    return _primitive.enveloped(PAGES, versions[PAGES], data)
