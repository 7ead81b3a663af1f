"""What is kept: providers, claims and allocations, and the contract of who keeps them.

==================  ===============================================================================
``provider``        Provider: something with inventories, in a tree; Share
``allocation``      Allocation, Claim and Consumer: who uses what; ResourceClass, Trait, Aggregate
``definition``      what changes when a tree is synced: pure, typed, printable
``disabled``        Disabled: why a provider is out of service
``composite``       inventories of placed resources, assembled from their parts in a tree:
                    ``tree_shape``, ``joint_fit``, ``consistency``
``partitions``      devices that are had whole or in parts, or by the types of a driver
``pools``           providers that give what they have to the members of their aggregates
``usage``           what is used, and by whom; ``use_over_time``: between two moments
``plan``            a typed list of changes; ``dry_run``: what it would come to; ``row_diff``: one
                    that turns rows into others; ``plain``: as plain data and back
``reshape``         moving inventories and allocations; ``transfer``: what becomes of them;
                    ``compile``: the plan that it comes to
``audit``           what is not as it should be; ``holders``: consumers in refusals
``orders``          what a write asks of a backend; ``decision``: whether one change fits
``columns``         what a backend returns when it is read; ``listing``: a page of it;
                    ``selection``: both made by loops, for who has no query language
``name_rules``      what classes, traits and aggregates may be called; ``given``: moments, ages
                    and generations as callers give them
``feed``            what was written, by whom and when; ``changed``: with the trees it was in
``waiting``         who waits for something to be given back
``server_groups``   ServerGroup: consumers that are to be on one host, or on different ones
``statistics``      what a host's agent tells beside what there is: declared, typed, since when
``backend``         the contract of a backend; ``abilities``: what one may lack of it
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
