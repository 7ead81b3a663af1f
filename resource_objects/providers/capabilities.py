"""Capabilities: the parts of the contract that a backend may not support, by name.

Most backends support the whole contract. One that speaks to another service supports what that
service can express. It lists the others in :attr:`Backend.unsupported
<resource_objects.providers.backend.Backend.unsupported>`, and refuses a write that needs one before
anything is sent (:class:`~resource_objects.exceptions.NotSupported`).
"""

from __future__ import annotations

import enum


class Capability(enum.Enum):
    """A part of the contract that some backends do not support; the value names it in a refusal.

    >>> Capability.EXPIRY.value
    'claims that expire'
    """

    UNITS = "units taken by name (CPUs, devices)"
    TOPOLOGIES = "topologies and devices over a tree"
    SHARES = "shares between inventories"
    EXPIRY = "claims that expire"
    CONFIRMING = "claims that are held first and confirmed later"
    CLAIM_IDS = "a claim id of the caller's own"
    REQUESTS = "the request that a consumer was made for"
    LIMITS = "limits of a single claim"
    UNCHANGED = "claims that demand an unchanged definition"
    AGGREGATES_ALONE = "aggregates that are made, renamed or removed by themselves"
    LEVELS = "levels of aggregates"
    RENAMED_TRAITS = "traits that are renamed"
    CONSUMER_TYPES = "consumer types of this form"
    ADOPTING = "consumers that stand for many, and what is adopted"
    REPORTS = "when a host reported"
    DISABLING = "providers out of service, with a reason"
    SERVER_GROUPS = "server groups"
    FEED = "a change feed"
    WAITING = "claims that wait in a queue"
    STATISTICS = "statistics"
    USE_OVER_TIME = "use over time"
    REPARENTING = "providers that are moved"
