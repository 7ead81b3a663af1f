"""The NUMA kind: CPUs and memory that are near each other. Pure: no I/O.

==============  ===================================================================================
``host``        HostCell, PagePool, CellUsage: what a host has, and what is used
``guest``       GuestCell, PlacedCell: a part of what is asked, and where it is
``amount``      NUMATopologyAmount: all that is asked, and where it went
``build``       :func:`numa`, from plain words to an amount
``text``        the text form of amounts
``host_text``   the text forms of inventories and limits
``pieces``      what text forms are made of
``limit``       NUMATopologyLimit: totals per cell for one claim
``inventory``   NUMATopologyInventory: who fits where
``resource``    NUMATopologyResource and ``NUMA_TOPOLOGY``
``kept``        how cells are kept by providers, and gathered again (D2, D3)
``laying``      where somebody is who holds something of cells
``question``    an amount laid over host cells: who may be where
``fit``         the decision: every guest cell on a host cell of its own
``covers``      which host cells have to be used, next to networks and near devices
``totals``      what a placement uses of the host as a whole
``pair``        whether one guest cell fits one host cell, by which page size
``least``       what it needs at least, for whoever looks at many hosts at once
``threads``     which CPUs of a host cell, under a thread policy
``matching``    complete matchings, polynomial
``order``       which host cells are taken first
``refusal``     why not, per host cell
``taking``      taking and giving back what is assigned
``policies``    whether what is assigned keeps what it asks of itself
``valid``       what makes an amount one
``forms``       where it is, for taskset, numactl and cgroups
``cells``       host cells as a decision reads them
``cpus``        CPU lists and masks
``words``       policies and page sizes
==============  ===================================================================================
"""

from __future__ import annotations

from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.build import numa
from resource_objects.resources.numa.cpus import format_cpus, parse_cpus
from resource_objects.resources.numa.guest import GuestCell, PlacedCell
from resource_objects.resources.numa.host import CellUsage, HostCell, PagePool
from resource_objects.resources.numa.inventory import NUMATopologyInventory
from resource_objects.resources.numa.kept import OF_HOST, cpu_of
from resource_objects.resources.numa.limit import NUMATopologyLimit
from resource_objects.resources.numa.order import FEWEST, NEAREST, PACK, SPREAD, Order
from resource_objects.resources.numa.pair import page_class
from resource_objects.resources.numa.resource import NUMA_TOPOLOGY, NUMATopologyResource

NUMAAmount = NUMATopologyAmount
NUMAInventory = NUMATopologyInventory

__all__ = [
    "FEWEST",
    "NEAREST",
    "NUMA_TOPOLOGY",
    "OF_HOST",
    "PACK",
    "SPREAD",
    "CellUsage",
    "GuestCell",
    "HostCell",
    "NUMAAmount",
    "NUMAInventory",
    "NUMATopologyAmount",
    "NUMATopologyInventory",
    "NUMATopologyLimit",
    "NUMATopologyResource",
    "Order",
    "PagePool",
    "PlacedCell",
    "cpu_of",
    "format_cpus",
    "numa",
    "page_class",
    "parse_cpus",
]
