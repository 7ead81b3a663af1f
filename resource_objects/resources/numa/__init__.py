"""The kind of ``NUMA_TOPOLOGY``: CPUs and memory that are local to each other. Pure: no I/O.

==============  ===================================================================================
``cpuset``      :class:`CPUSet`: sets of CPUs, their text and masks
``cells``       :class:`HostCell`, :class:`PagePool`, :class:`CellUsage`: what a host offers, and
                its usage; page sizes
``amount``      :class:`NUMATopologyAmount`, :class:`GuestCell`, :class:`PlacedCell`, :func:`numa`:
                requests, assigned amounts, limits
``cell_fit``    whether one guest cell fits one host cell: pages, thread policies, limits
``placement``   the placement of all guest cells, or the reasons why there is none
``allocation``  assigned amounts: checked, allocated and released
``storage``     cells and assigned amounts stored at providers, and read back
``inventory``   :class:`NUMATopologyInventory`
``resource``    :class:`NUMATopologyResource` and ``NUMA_TOPOLOGY``
==============  ===================================================================================
"""

from __future__ import annotations

from resource_objects.resources.numa.amount import (
    GuestCell,
    NUMATopologyAmount,
    NUMATopologyLimit,
    PlacedCell,
    numa,
)
from resource_objects.resources.numa.cells import CellUsage, HostCell, PagePool, page_class
from resource_objects.resources.numa.cpuset import CPUSet
from resource_objects.resources.numa.inventory import NUMATopologyInventory
from resource_objects.resources.numa.resource import NUMA_TOPOLOGY, NUMATopologyResource
from resource_objects.resources.numa.storage import OF_HOST, cpu_of

NUMAAmount = NUMATopologyAmount
NUMAInventory = NUMATopologyInventory

__all__ = [
    "NUMA_TOPOLOGY",
    "OF_HOST",
    "CPUSet",
    "CellUsage",
    "GuestCell",
    "HostCell",
    "NUMAAmount",
    "NUMAInventory",
    "NUMATopologyAmount",
    "NUMATopologyInventory",
    "NUMATopologyLimit",
    "NUMATopologyResource",
    "PagePool",
    "PlacedCell",
    "cpu_of",
    "numa",
    "page_class",
]
