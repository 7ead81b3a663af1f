"""What can be counted: resources, amounts and inventories of every kind. Pure: no I/O.

==================  ===============================================================================
``abstract``        Resource, Amount, Inventory: the three classes a kind derives from
``integer``         the integer kind: memory, disk, CPUs, anything that is only counted
``slot``            an abstract resource: at most so many consumers of a type per provider
``amounts``         Amounts (absent is zero) and Limits (absent is without bound)
``inventories``     Inventories: several resources in one place, all or nothing
``joint``           counts, and what says where they are, asked for together
``together``        host cells, and what has to be near them, decided at once
``numa``            the NUMA kind: CPUs and memory that are near each other
``catalog``         every resource class by name, standard, custom and from plug-ins
``text``            the text form
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.resources.abstract import Amount, Inventory, Resource
from resource_objects.resources.amounts import Amounts, Limits
from resource_objects.resources.catalog import resource, standard_resources
from resource_objects.resources.integer import IntegerAmount, IntegerInventory, IntegerResource
from resource_objects.resources.inventories import Inventories
from resource_objects.resources.slot import SlotResource

__all__ = [
    "Amount",
    "Amounts",
    "IntegerAmount",
    "IntegerInventory",
    "IntegerResource",
    "Inventories",
    "Inventory",
    "Limits",
    "Resource",
    "SlotResource",
    "resource",
    "standard_resources",
]
