"""The hosts that a request names: only, forced, ignored, and those that refused it before."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from resource_objects.scheduler.filters import ArrayFilter
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans


class NamedHosts(ArrayFilter):
    """Passes the hosts that the request allows.

    >>> from resource_objects.scheduler.request_spec import RequestSpec
    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     plan = ledger.sync(*(ro.Provider(name, "VCPU=8") for name in "abc"))
    ...     hosts = HostStates(ledger.snapshot().fleet)
    >>> spec = RequestSpec("VCPU=1", ignored=["a"], tried={"b": "no firmware"})
    >>> [NamedHosts().refuses(host, spec) for host in hosts.values()]
    ['is to be ignored', 'refused it already: no firmware', None]
    """

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts the request allows."""
        mask = ~_named(hosts, {*spec.ignored, *spec.tried})
        for names in (spec.forced or None, spec.only):
            if names is not None:
                mask &= _named(hosts, names)
        return mask

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return which names of the request exclude a host."""
        if host.name in spec.ignored:
            return "is to be ignored"
        if host.name in spec.tried:
            return f"refused it already: {spec.tried[host.name]}"
        if spec.forced and host.name not in spec.forced:
            return "is not the host that it is forced to"
        return "is not one of the hosts that it asks for"


def _named(hosts: HostStates, names: Iterable[str]) -> Booleans:
    mask = np.zeros(len(hosts), dtype=np.bool_)
    mask[[hosts.number[name] for name in names if name in hosts.number]] = True
    return mask
