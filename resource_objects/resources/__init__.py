"""Resources, amounts and inventories of every kind. Pure: no I/O.

==================  ===============================================================================
``abstract``        Resource, Amount, Inventory: the three classes that a kind derives from
``integer``         the integer kind: memory, disk, CPUs, anything that is only counted
``context``         further conditions of one decision: room, parts, host cells
``placed``          placed resources, over a tree of providers; the joint decision over several
``numa``            NUMA topologies
``pci``             PCI devices
``catalog``         every resource class by name, standard, custom and of plug-ins
``amounts``         Amounts (absent is zero) and Limits (absent is unbounded)
``inventories``     Inventories: several resources at one provider, all or nothing
``relaxations``     relaxations of an amount, step by step
``records``         the stored forms of inventories and amounts
``backtracking``    backtracking search within a budget of steps
``matching``        bipartite matchings
``distances``       sets of host cells, ordered by the distances between their cells
``text``            the text form
``traits``          the known traits
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.resources.abstract import Amount, Inventory, Resource
from resource_objects.resources.amounts import Amounts, AmountsLike, Limits
from resource_objects.resources.catalog import resource, standard_resources
from resource_objects.resources.integer import (
    IntegerAmount,
    IntegerInventory,
    IntegerResource,
)
from resource_objects.resources.inventories import Inventories, InventoriesLike

__all__ = [
    "Amount",
    "Amounts",
    "AmountsLike",
    "IntegerAmount",
    "IntegerInventory",
    "IntegerResource",
    "Inventories",
    "InventoriesLike",
    "Inventory",
    "Limits",
    "Resource",
    "resource",
    "standard_resources",
]
