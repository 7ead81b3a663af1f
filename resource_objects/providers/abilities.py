"""What a backend may be unable to keep, by name.

Most backends can do all of the contract. One that speaks to another service is bound by what that
has words for. What it cannot do it says once (:attr:`Backend.lacks
<resource_objects.providers.backend.Backend.lacks>`), and refuses by that name before anything is
sent (:class:`~resource_objects.exceptions.NotSupported`); nothing that was asked is left out
silently.
"""

from __future__ import annotations

import enum


class Ability(enum.Enum):
    """What some backend lacks, in the words in which it is refused.

    >>> Ability.EXPIRY.value
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
