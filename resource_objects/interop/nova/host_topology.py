"""``compute_nodes.numa_topology``: a host's NUMA topology as Nova keeps it, read and written.

Every version is read, ``NUMACell`` 1.0 to 1.5 and the plain dicts from before Liberty; each
versioned one is written. What is the same by another name:

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
what they stand for (0, empty, None), no ``nova_object.changes``, and the version asked for.

Nova has no word for ``distances`` and for ``loose`` CPUs: writing refuses them in every version.
What others take of the host as a whole (``room``) is in other columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, Final

from resource_objects.exceptions import CannotDowngrade, InvalidInput, InvalidInventory
from resource_objects.interop.nova import _host_cell, _primitive
from resource_objects.interop.nova._versions import HOST, HOST_CELL, host_versions
from resource_objects.ratio import to_ratio
from resource_objects.resources.numa import NUMATopologyInventory

__all__ = ["dump_host_numa_topology", "load_host_numa_topology"]

#: Facts that may be left out where a version cannot say them.
_OPTIONAL: Final = ("distances", "socket", "physnets", "tunneled")

_make_inventory = _primitive.maker(NUMATopologyInventory)


def load_host_numa_topology(
    source: str | bytes | Mapping[str, Any],
    *,
    cpu_ratio: Decimal | int | str | float = 1,
    memory_ratio: Decimal | int | str | float = 1,
    counts_pinned: bool | None = None,
) -> NUMATopologyInventory:
    """Return the inventory of a host's topology, with what is used of it.

    :param source: JSON text as in ``compute_nodes.numa_topology``, or the mapping it stands for
    :param cpu_ratio: ``cpu_allocation_ratio`` of the host, which the topology does not say
    :param memory_ratio: its ``ram_allocation_ratio``
    :param counts_pinned: whether ``cpu_usage`` counts pinned CPUs too; None: as the version says,
        and where both kinds wrote it (1.4), as the figures do
    :raises InvalidPrimitive: if it is no topology, in any version, or contradicts itself; also if
        it cannot be told whether pinned CPUs are counted
    :raises InvalidRatio: for a ratio that is none

    Cost: 0.2 milliseconds for 8 cells of 16 CPUs, a quarter of that for the JSON.

    >>> old = '{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 2048, "used": 512}}]}'
    >>> host = load_host_numa_topology(old, cpu_ratio=4)
    >>> host.free_shared, host.free_dedicated, host.free_memory_mb
    (16, 4, 1536)
    """
    _, found = _primitive.cells_of(source, HOST, HOST_CELL, {"cells"}, _host_cell.of_plain)
    ratios = to_ratio(cpu_ratio), to_ratio(memory_ratio)
    cells, usage = [], []
    for place, (data, minor) in enumerate(found):
        try:
            cell, used = _host_cell.read_cell(data, minor, counts_pinned)
        except InvalidInput as error:
            _primitive.at(f"{_primitive.ROOT}.cells[{place}]", error)
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
        )
    except InvalidInput as error:
        _primitive.at(f"{_primitive.ROOT}.cells", error)


def dump_host_numa_topology(
    inventory: NUMATopologyInventory,
    version: str | Mapping[str, str] | None = None,
    *,
    leave_out: Collection[str] = (),
) -> str:
    """Return a host's topology, with what is used of it, as ``compute_nodes.numa_topology`` has it.

    :param version: of ``NUMACell``, such as ``"1.4"``; or what a receiver reads, ``{name:
        version}``; None for the newest
    :param leave_out: what may be left unsaid where the version has no word for it: ``distances``,
        ``socket``, ``physnets``, ``tunneled``
    :raises CannotDowngrade: if the version cannot say it
    :raises UnsupportedVersion: if there is no such version
    :raises InvalidInventory: if it is no such inventory
    :raises InvalidField: if something else is to be left out

    >>> from resource_objects.resources.numa import HostCell
    >>> cores = [(0, 1), (2, 3)]
    >>> cell = HostCell(0, shared=[0, 1], dedicated=[2, 3], siblings=cores, memory_mb=512)
    >>> host = NUMATopologyInventory([cell])
    >>> load_host_numa_topology(dump_host_numa_topology(host)) == host
    True
    >>> dump_host_numa_topology(host, "1.3")
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: NUMACell cannot be said in version 1.3: cell 0 ...
    """
    if not isinstance(inventory, NUMATopologyInventory):
        raise InvalidInventory("inventory", inventory, "a NUMATopologyInventory")
    versions = host_versions(version)
    allowed = _primitive.left_out(leave_out, _OPTIONAL)
    cells = []
    for cell, used in zip(inventory.cells, inventory.usage, strict=True):
        for reason in _host_cell.unsaid(cell, used, versions, allowed):
            raise CannotDowngrade(HOST_CELL, f"1.{versions[HOST_CELL]}", f"cell {cell.id} {reason}")
        cells.append(_host_cell.written_cell(cell, used, versions))
    return _primitive.written(_primitive.enveloped(HOST, versions[HOST], {"cells": cells}))
