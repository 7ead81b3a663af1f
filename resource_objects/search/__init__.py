"""Who could hold it: snapshots, candidates, and why the others cannot. Pure: no I/O.

==================  ===============================================================================
``snapshot``        Snapshot: an immutable picture of the ledger; ``candidates`` is asked of it
``candidates``      Candidate and Candidates, the answer
``explain``         Explanation: why the hosts that were left out cannot hold a request
``order``           Order: which host comes first, and who of a host
``fleet``           the picture as NumPy arrays: providers, inventories, shares, pools, holders
``holders``         who holds what, put in order when somebody asks
``views``           inventories that lie over trees, such as NUMA topologies
``host_usage``      who has what, host by host: what people look at
``equivalence``     providers that are equal, of which one is considered
``scenario``        Scenario: a fork of a snapshot, in which one may try things
``limits``          a fleet under totals that a scheduler sets for one claim
``places``          the places of a level, such as NUMA cells: what is near what
``fleet_build``     how the arrays are made from columns
``refresh``         from one snapshot to the next, by what was changed
``arrays``          what all of these are made of
``problem``         one request compiled against one fleet, and the prefilter over all hosts
``conditions``      what a request asks of a host, each condition in a file of its own
``search``          the search over all hosts, within a limit and a budget
``tree_search``     the candidates of one tree, one after the other, each once
``solver``          the decision on one tree: who gives what of the unnamed group
``assignment``      who gives which named group on one tree
``gangs``           where many fit at once; ``gang_fleet``: what hosts can hold of them
``dealing``         how many members of a gang each host gets, over places within places
``split``           one amount in parts that each keep the unit rules
==================  ===============================================================================

NumPy is imported here (and by the scheduler), when a snapshot is made: whoever reads a candidate
from a wire does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazily

if TYPE_CHECKING:
    from resource_objects.search.candidates import Candidate as Candidate
    from resource_objects.search.candidates import Candidates as Candidates
    from resource_objects.search.explain import Explanation
    from resource_objects.search.host_usage import HostUsage as HostUsage
    from resource_objects.search.order import Order as Order
    from resource_objects.search.scenario import Scenario as Scenario
    from resource_objects.search.snapshot import Snapshot as Snapshot

_HOME = {
    "Candidate": "candidates",
    "Candidates": "candidates",
    "Explanation": "explain",
    "HostUsage": "host_usage",
    "Order": "order",
    "Scenario": "scenario",
    "Snapshot": "snapshot",
}

__all__ = ["Candidate", "Candidates", "Explanation", "HostUsage", "Order", "Scenario", "Snapshot"]


__getattr__, __dir__ = lazily(globals(), _HOME)
