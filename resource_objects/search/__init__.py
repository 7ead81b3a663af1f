"""Snapshots and searches: candidates, reasons, gangs and what-if. Pure: no I/O.

===================  ==============================================================================
``snapshot``         Snapshot: an immutable copy of the ledger, with all queries
``scenario``         Scenario: a fork of a snapshot in which changes can be tried
``candidate``        Candidate: one complete way to satisfy a request
``candidates``       Candidates: the result of a search, a lazy sequence
``explain``          Explanation: the reasons of the hosts that cannot hold a request
``answer``           its outcome by host, its stages, and its summary in one line
``order``            Order: the order of hosts and of the providers of a host

The search
``search``           the search over all trees, within a limit and a budget
``problem``          one request compiled for one fleet, and the prefilter by arrays
``eligibility``      the rules by which a request is read, eligible providers, named groups
``conditions``       the conditions of a request, one module for each
``demands``          the demand of a request on one tree, and the views of placed resources
``tree_search``      the candidates of one tree
``tree_solver``      the backtracking search on one tree
``split``            one amount in parts that obey the unit rules
``findings``         conditions on hosts, and the reasons of a set of hosts that they report
``equivalence``      equal providers, of which one is considered
``placements``       placements of GPU partitions that exclude each other

Many at once
``gangs``            the placement of gangs, all members at once
``gang_problem``     a gang over a fleet: kinds of members, upper bounds, domains
``distribution``     the distribution of members over hosts
``how_many``         how many of a request fit at once
``capacity``         the capacity report
``host_usage``       the usage and the consumers of each host

What if
``relaxations``      the smallest changes after which a request fits
``relaxed_request``  requests without a condition, or with less of an amount
``when``             when a request fits if claims end as stated
``drain``            the rehearsal of a drain
``script``           changes of a scenario as lines of text
``bundle``           a search as a file, shrunk to what its answer needs

Arrays
``fleet``            the arrays of a snapshot
``relations``        traits, shares, pools, allocations and other relations of providers
``fleet_io``         arrays from columns, and columns from arrays
``splice``           a fleet with other trees in the place of some
``settlement``       the effects of orders and plans on a fleet
``refresh``          the next snapshot from the last one and the changes after it
``arrays``           read-only arrays and codes
===================  ==============================================================================

NumPy is imported by this package (and by the scheduler) when a snapshot is made. A process that
only reads candidates does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazy_attributes

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


__getattr__, __dir__ = lazy_attributes(globals(), _HOME)
