"""By whose rules a request is read: the compatibility table (D14), one field per row.

Nothing in the search asks *whose* rules apply, only what a row says; so each row can be seen, and
tested, by itself. Rows in which both columns agree, because the rule of Placement is right or is a
bug that nobody wants back, are no fields; ``doc/source/explanation/compatibility.rst`` tells all.
"""

from __future__ import annotations

import dataclasses
import enum

from resource_objects.requests import Request


class Reach(enum.Enum):
    """Whose membership of an aggregate counts for a provider."""

    ITSELF = "its own"
    ROOT = "its own, or its root's"
    ABOVE = "its own, or that of any provider above it"


@dataclasses.dataclass(frozen=True, slots=True)
class Semantics:
    """The rules by which a request is read."""

    #: a count of the unnamed group may be given by several devices of a tree
    splits_devices: bool
    #: a host's own providers have the traits of those above them too
    inherits_traits: bool
    #: aggregates of a provider, for the unnamed group
    unnamed_reach: Reach
    #: aggregates of a provider, for a named group
    named_reach: Reach
    #: aggregates of a pool that gives to another tree
    pool_reach: Reach
    #: where the unnamed group has to be in several aggregates, one provider is in all of them: who
    #: gives, or one that counts for it
    members_at_once: bool
    #: an aggregate that the unnamed group must not be in keeps away the pools of a root that is
    root_keeps_pools_out: bool
    #: the tree that the unnamed group has to be of is the host
    in_tree_is_host: bool
    #: what is found has a host that gives something itself
    host_gives: bool
    #: a tree that is named and not there is an error, not an empty answer
    refuses_unknown_trees: bool
    #: candidates per host unless told otherwise; None for all
    per_host: int | None


#: What requests made in Python have.
OURS = Semantics(
    splits_devices=True,
    inherits_traits=True,
    unnamed_reach=Reach.ABOVE,
    named_reach=Reach.ABOVE,
    pool_reach=Reach.ABOVE,
    members_at_once=False,
    root_keeps_pools_out=False,
    in_tree_is_host=False,
    host_gives=True,
    refuses_unknown_trees=True,
    per_host=1,
)

#: What requests in the words of Placement or Nova have: its rules, less its bugs.
PLACEMENT = Semantics(
    splits_devices=False,
    inherits_traits=False,
    unnamed_reach=Reach.ROOT,
    named_reach=Reach.ITSELF,
    pool_reach=Reach.ITSELF,
    members_at_once=True,
    root_keeps_pools_out=True,
    in_tree_is_host=True,
    host_gives=False,
    refuses_unknown_trees=False,
    per_host=None,
)


def semantics_of(request: Request) -> Semantics:
    """Return the rules by which a request is read.

    >>> semantics_of(Request("VCPU=1")) is OURS
    True
    >>> semantics_of(Request("VCPU=1", compatibility="placement")) is PLACEMENT
    True
    """
    return PLACEMENT if request.compatibility == "placement" else OURS
