"""Which host: filters, weighers, and the driver that claims what they leave.

==================  ===============================================================================
``request_spec``    RequestSpec: a request with what only a scheduler asks about
``states``          HostStates: what filters and weighers see of a fleet, host by host or at once
``filters``         what hosts have to meet, each filter in a file of its own
``weighers``        which hosts come first, each weigher in a file of its own
``pipeline``        which filters and weighers there are, in which order: the list to read first
``reports``         what agents told of their hosts, read when a filter or weigher asks
``driver``          Scheduler: select_destinations
``gangs``           place_gang: many at once, or none
``simulation``      what a trace of jobs does to a fleet, a room of its own
==================  ===============================================================================

Nothing is searched, ranked or retried here. A filter is one more condition of the search, a weigher
one more key of its order, and lost races are tried again by the ledger's policy. So what refuses a
host stands in the explanation beside everything else, and holds for a search that is done again.

    >>> import resource_objects as ro
    >>> from resource_objects.scheduler import Scheduler
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(3)))
    ...     scheduler = Scheduler(ledger, weighers={"free": {"VCPU": 1}})
    ...     for one in scheduler.select_destinations("VCPU=6", consumers=["job-1", "job-2"]):
    ...         print(one)
    job-1: host0
    job-2: host1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazily

if TYPE_CHECKING:
    from resource_objects.scheduler.driver import Destination as Destination
    from resource_objects.scheduler.driver import Scheduler as Scheduler
    from resource_objects.scheduler.driver import Selection as Selection
    from resource_objects.scheduler.pipeline import Pipeline as Pipeline
    from resource_objects.scheduler.request_spec import RequestSpec as RequestSpec
    from resource_objects.scheduler.states import HostState as HostState
    from resource_objects.scheduler.states import HostStates as HostStates

_HOME = {
    "Destination": "driver",
    "HostState": "states",
    "HostStates": "states",
    "Pipeline": "pipeline",
    "RequestSpec": "request_spec",
    "Scheduler": "driver",
    "Selection": "driver",
}

__all__ = [  # noqa: PLE0604  # computed, so that no name is said twice
    *_HOME
]


__getattr__, __dir__ = lazily(globals(), _HOME)
