"""Who could hold it: snapshots, candidates, and why the others cannot. Pure: no I/O.

==================  ===============================================================================
``snapshot``        Snapshot: an immutable picture of the ledger; ``candidates`` is asked of it
``candidate``       Candidate: one complete way to satisfy a request
``candidates``      Candidates: the answer, a lazy sequence
``explain``         Explanation: why the hosts that were left out cannot hold a request
``answer``          the same in one line
``host_reasons``    the reasons of hosts that cannot hold a request
``findings``        the reasons of a set of hosts while conditions report them
``feasibility``     whether a host could, if nobody held anything
``order``           Order: which host comes first, and who of a host
``fleet``           Fleet: providers, inventories and allocations of a snapshot as NumPy arrays
``relations``       traits and aggregates, shares and pools of a fleet, as arrays
``holders``         the allocations and allocated units of providers
``located_views``   views of placed resources, such as NUMA topologies, over trees
``host_usage``      what is used and free of each host, and by which consumers
``equivalence``     classes of equal providers, of which a search considers one
``scenario``        Scenario: a fork of a snapshot, in which one may try things
``usage``           a fleet with other usage, or with limits
``splice``          a fleet with other trees, or with other definitions
``relaxations``     the smallest changes after which a candidate exists
``relaxed_request`` a request that asks for less: without a condition, or of an amount
``in_place``        a change of a consumer that keeps its devices, partitions and CPUs
``releases``        consumers whose release may make room for a request
``drain``           who could be placed again if hosts went, and who could not
``bundle``          a question as a file, shrunk to what its answer needs
``script``          changes as lines of text: what is tried in a scenario
``places``          the domains of a topology level, such as NUMA cells
``placements``      placements of GPU partitions: which of them exclude which others
``fleet_io``        columns to fleets, and back
``refresh``         the next snapshot, from the last one and the changes after it
``arrays``          arrays that cannot be written, and mappings in layers
``problem``         one request compiled against one fleet, and the prefilter over all hosts
``conditions``      what a request asks of a host, each condition in a file of its own
``search``          the search over all hosts, within a limit and a budget
``tree_search``     the candidates of one tree, one after the other, each once
``tree_solver``     the search on one tree: named groups, classes and placed amounts
``named_groups``    the named groups of a request over a fleet, and as steps on one tree
``demands``         what a request asks of one tree, as plain data
``gangs``           the placement of gangs: a candidate for each member, all at once
``gang_problem``    a gang over a fleet: kinds of members, bounds of hosts, domains
``how_many``        how many of a request fit at once, with candidates
``counting``        how often hosts can hold requests, decided by arrays
``host_classes``    classes of hosts in the same state, of which one is decided
``capacity``        what there is and is free, and what of that a mix of requests cannot use
``when``            when a request would fit, if claims end as they say
``distribution``    the distribution of members over hosts, within bounds of domains
``split``           one amount in parts that each keep the unit rules
==================  ===============================================================================

NumPy is imported here (and by the scheduler), when a snapshot is made: whoever reads a candidate
from a wire does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazily

if TYPE_CHECKING:
    from resource_objects.search.candidate import Candidate as Candidate
    from resource_objects.search.candidates import Candidates as Candidates
    from resource_objects.search.explain import Explanation
    from resource_objects.search.host_usage import HostUsage as HostUsage
    from resource_objects.search.how_many import HowMany as HowMany
    from resource_objects.search.order import Order as Order
    from resource_objects.search.scenario import Scenario as Scenario
    from resource_objects.search.snapshot import Snapshot as Snapshot

_HOME = {
    "Candidate": "candidate",
    "Candidates": "candidates",
    "Explanation": "explain",
    "HostUsage": "host_usage",
    "HowMany": "how_many",
    "Order": "order",
    "Scenario": "scenario",
    "Snapshot": "snapshot",
}

__all__ = [
    "Candidate",
    "Candidates",
    "Explanation",
    "HostUsage",
    "HowMany",
    "Order",
    "Scenario",
    "Snapshot",
]


__getattr__, __dir__ = lazily(globals(), _HOME)
