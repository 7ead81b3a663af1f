"""Who could hold it: snapshots, candidates, and why the others cannot. Pure: no I/O.

==================  ===============================================================================
``snapshot``        Snapshot: an immutable picture of the ledger; ``candidates`` is asked of it
``order``           Order: which host comes first, and who of a host
``semantics``       by whose rules a request is read: the compatibility table
``fleet``           the picture as NumPy arrays
``reading``         how they are made from columns
``refreshing``      from one snapshot to the next, by what was touched
``patching``        other figures in the place of old ones, where only use has changed
``replacing``       other trees in the place of old ones, where definitions have
``moves``           where providers go when some trees are taken out and others put in
``shares``          what is taken in one place and used in another too
``views``           inventories that lie over trees, such as NUMA topologies
``pools``           providers whose classes other trees may take
``holders``         who holds what, for explanations
``arrays``          what all of these are made of
``kin``             providers that are equal, of which one is considered
``wanted``          what a request asks for, class by class
``conditions``      traits, aggregates and trees of a group: who meets them
``located``         amounts that say where they go: who may be among those that give them
``named``           the named groups over one fleet: alike ones together
``question``        one request laid over one fleet
``necessary``       conditions for whole fleets at once, which rule most hosts out
``crowd``           the same on inventories that several draw on
``at_least``        the same on located amounts
``preference``      an order over one fleet: trees, and who of a tree
``assigning``       who gives which named group on one tree: every way
``slots``           how many groups each provider could still give
``matching``        whether groups that need a provider each can have one
``asked``           what is asked of one tree, as plain data
``tree``            the decision on one tree: who gives what, and who has which trait
``placing``         where located amounts go on one tree, decided together
``plan``            who gives one class, as if it were the only one
``split``           one amount in parts that each keep the unit rules
``ties``            which givers of one tree draw on the same inventories
``joint``           who gives what, when not everything fits there
``beside``          counts beside located amounts that draw on the same
``ways``            every way to give the unnamed group beside the named ones
``hosting``         the candidates of one tree, one after the other, each once
``budget``          counted steps, so that every search ends and can be repeated
``matcher``         the search over all trees, within a limit and a budget
``building``        the candidate of a decision, with the units that it takes
``candidates``      Candidate and Candidates, the answer
``explain``         Explanation: why the hosts that were left out cannot hold it
``findings``        what stands against one tree, as reasons
``group_findings``  the same against named groups
``stages``          how many hosts each part of a request leaves
``shortage``        the same against one class, with figures
``unplaced``        the same against a located amount
==================  ===============================================================================

NumPy is imported in this room only, and only when a snapshot is made: whoever reads a candidate
from a wire does not load it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resource_objects.search.candidates import Candidate as Candidate
    from resource_objects.search.candidates import Candidates as Candidates
    from resource_objects.search.explain import Explanation as Explanation
    from resource_objects.search.order import Order as Order
    from resource_objects.search.snapshot import Snapshot as Snapshot

_HOME = {
    "Candidate": "candidates",
    "Candidates": "candidates",
    "Explanation": "explain",
    "Order": "order",
    "Snapshot": "snapshot",
}

__all__ = ["Candidate", "Candidates", "Explanation", "Order", "Snapshot"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
