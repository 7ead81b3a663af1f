"""Providers, claims and allocations as they are stored, and the contract of a backend.

==================  ===============================================================================
``provider``        Provider: something with inventories, in a tree; Share, and the rules of shares
``allocation``      Allocation, Claim and Consumer; ResourceClass, Trait, Aggregate
``definition``      definitions of providers as records, and the changes between two definitions
``disabled``        Disabled: the reason why a provider is disabled
``composite``       inventories of placed resources, assembled from their parts in a tree:
                    ``tree_shape``, ``consistency``
``pools``           providers that share their inventories with the members of an aggregate
``usage``           usage at one moment; ``use_over_time``: usage between two moments
``plan``            a typed list of changes, and the plan that turns rows into others; ``dry_run``:
                    its effects; ``serialization``: data classes as plain data and back
``reshape``         moves of inventories and allocations; ``reshape_plan``: the definitions and
                    orders that carry them out
``audit``           findings about a ledger; ``holders``: reasons with the consumers that they name
``orders``          writes, orders and recorded operations
``columns``         rows of trees in bulk, with lookups; ``listing``: filters, and the rows of pages
                    of providers and consumers
``arguments``       arguments of callers, checked: times, ages, generations, limits
``feed``            entries and cursors of the change feed
``waiting``         consumers that wait in the queue
``server_groups``   ServerGroup: consumers to be placed on one host, or on different hosts
``statistics``      statistics that the agent of a host reports
``backend``         the contract of a backend, with its optional parts
==================  ===============================================================================
"""

from __future__ import annotations

from resource_objects.providers.allocation import (
    Aggregate,
    Allocation,
    Claim,
    Consumer,
    ResourceClass,
    Trait,
)
from resource_objects.providers.backend import Backend
from resource_objects.providers.definition import DefinitionChanges, diff
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.feed import Cursor
from resource_objects.providers.provider import Provider, Share
from resource_objects.providers.server_groups import ServerGroup

__all__ = [
    "Aggregate",
    "Allocation",
    "Backend",
    "Claim",
    "Consumer",
    "Cursor",
    "DefinitionChanges",
    "Disabled",
    "Provider",
    "ResourceClass",
    "ServerGroup",
    "Share",
    "Trait",
    "diff",
]
