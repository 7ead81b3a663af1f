"""The NUMA kind: CPUs and memory that are near each other. Pure: no I/O.

==================  ===============================================================================
``cpuset``          :class:`CPUSet`: CPU lists and masks
``cells``           HostCell, PagePool, CellUsage: what a host has, and what is used; page sizes
``amount``          NUMATopologyAmount, GuestCell, PlacedCell, :func:`numa`: what is asked
``text``            the text forms of requests and limits
``cell_fit``        whether one guest cell fits one host cell: pages, threads, limits
``problem``         an amount laid over host cells: who may be where, and what that costs the host
``matching``        complete matchings, polynomial
``required_cells``  which host cells have to be used, next to networks and near devices
``fit``             the decision: every guest cell on a host cell of its own; or the reasons
``weaker``          how a topology may ask for less
``usage``           assigned amounts: checked as they are, taken and given back
``storage``         how cells are kept by providers, and read again (D2, D3)
``inventory``       NUMATopologyInventory: who fits where
``resource``        NUMATopologyResource and ``NUMA_TOPOLOGY``
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.resources.numa.amount import GuestCell, NUMATopologyAmount, PlacedCell, numa
from resource_objects.resources.numa.cell_fit import NUMATopologyLimit
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
