"""What is kept: providers, claims and allocations, and the contract of who keeps them.

==================  ===============================================================================
``provider``        Provider: something with inventories, in a tree
``definition``      what changes when a tree is synced: pure, typed, printable
``allocation``      Allocation and Claim: who uses what
``entities``        Consumer, ResourceClass, Trait, Aggregate
``columns``         what a backend returns when it is read
``located``         inventories that lie over a tree, gathered from their parts
``partitions``      devices that are had whole or in parts; ``mediated``: by the types of a driver
``feed``            what was written, by whom and when; ``changed``: with the trees it was in
``backend``         the contract of a backend
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.providers.allocation import Allocation, Claim
from resource_objects.providers.backend import Backend
from resource_objects.providers.definition import DefinitionChanges, diff
from resource_objects.providers.entities import Aggregate, Consumer, ResourceClass, Trait
from resource_objects.providers.feed import Cursor
from resource_objects.providers.provider import Provider, Share

__all__ = [
    "Aggregate",
    "Allocation",
    "Backend",
    "Claim",
    "Consumer",
    "Cursor",
    "DefinitionChanges",
    "Provider",
    "ResourceClass",
    "Share",
    "Trait",
    "diff",
]
