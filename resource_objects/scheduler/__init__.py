"""The scheduler: filters, weighers, and the driver that claims the remaining hosts.

==================  ===============================================================================
``pipeline``        the installed filters and weighers and their order: read this first
``filters``         conditions on hosts
``weighers``        preferences between hosts
``request_spec``    RequestSpec: a request with the conditions that only a scheduler knows
``states``          HostStates: the view of a snapshot that filters and weighers have; Reports
``driver``          Scheduler: select_destinations
``gangs``           place_gang: all members at once, or none
``replay``          a trace of jobs on a ledger
==================  ===============================================================================

The search, its order and the retries are those of :mod:`resource_objects.search` and of the ledger.
A filter is one more condition of the search, a weigher one more key of its order. So the reasons of
filters are part of every explanation, and filters decide again when a search is repeated.

    >>> import resource_objects as ro
    >>> from resource_objects.scheduler import Scheduler
    >>> with ro.connect("memory://") as ledger:
    ...     plan = ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(3)))
    ...     scheduler = Scheduler(ledger, weighers={"free": {"VCPU": 1}})
    ...     for destination in scheduler.select_destinations("VCPU=6", consumers=["j-1", "j-2"]):
    ...         print(destination)
    j-1: host0
    j-2: host1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazy_attributes

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

__all__ = [  # noqa: PLE0604  # computed: each name is written once
    *_HOME
]


__getattr__, __dir__ = lazy_attributes(globals(), _HOME)
