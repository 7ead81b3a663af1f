"""What can be counted: resources, amounts and inventories of every kind. Pure: no I/O.

==================  ===============================================================================
``abstract``        Resource, Amount, Inventory: the three classes a kind derives from
``integer``         the integer kind: memory, disk, CPUs, anything that is only counted
``context``         what else binds one decision: room, parts, host cells
``placed``          what kinds over a tree of providers add; several of them decided at once
``numa``            the NUMA kind: CPUs and memory that are near each other
``pci``             the kind of PCI devices
``catalog``         every resource class by name, standard, custom and from plug-ins
``amounts``         Amounts (absent is zero) and Limits (absent is without bound)
``inventories``     Inventories: several resources in one place, all or nothing
``distances``       sets of host cells in the order of their distances
``matching``        bipartite matchings
``relaxations``     how an amount of a placed resource may request less
``backtracking``    backtracking search within a budget of steps
``records``         what is kept of an inventory and of an amount
``text``            the text form
``traits``          the traits that are known
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
