"""Simulation: what a trace of jobs does to a fleet.

==================  ===============================================================================
``trace``           Trace: hosts and jobs, from CSV files or made from a seed
``packing``         how well a policy packs: jobs placed one by one on arrays, without a ledger
``timeline``        replay: jobs come and go on a ledger in time, by many processes at once
``plots``           pictures of both; needs the extra ``plot``
==================  ===============================================================================

    >>> from resource_objects.scheduler.simulation import Trace, pack
    >>> trace = Trace.generated(hosts=20, jobs=400, seed=3)
    >>> print(pack(trace, "best-fit", seed=1))
    best-fit: allocated 97.05% of all GPUs, fragmented 2.91% (179 jobs)
"""

from __future__ import annotations

from resource_objects.scheduler.simulation.packing import POLICIES, Packing, pack
from resource_objects.scheduler.simulation.timeline import (
    Replay,
    put_hosts,
    replay,
    replay_by_processes,
)
from resource_objects.scheduler.simulation.trace import Trace, TraceHost, TraceJob

__all__ = [
    "POLICIES",
    "Packing",
    "Replay",
    "Trace",
    "TraceHost",
    "TraceJob",
    "pack",
    "put_hosts",
    "replay",
    "replay_by_processes",
]
