"""The hosts that a request names: only, forced, ignored, and those that refused it already."""

from __future__ import annotations

import numpy as np

from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans


class NamedHosts:
    """Passes the hosts that the request leaves to choose from.

    >>> from resource_objects.scheduler.request_spec import RequestSpec
    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(*(ro.Provider(name, "VCPU=8") for name in "abc"))
    ...     hosts = HostStates(ledger.snapshot().fleet)
    >>> spec = RequestSpec("VCPU=1", ignored=["a"], tried={"b": "no firmware"})
    >>> [NamedHosts().refuses(host, spec) for host in hosts.values()]
    ['is to be ignored', 'refused it already: no firmware', None]
    """

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return why the request does not go there."""
        name = host.name
        if name in spec.ignored:
            return "is to be ignored"
        if name in spec.tried:
            return f"refused it already: {spec.tried[name]}"
        if spec.forced and name not in spec.forced:
            return "is not the host that it is forced to"
        if spec.only is not None and name not in spec.only:
            return "is not one of the hosts that it asks for"
        return None

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts are left."""
        found = np.ones(len(hosts), dtype=np.bool_)
        for names in (spec.forced or None, spec.only):
            if names is not None:
                found &= _named(hosts, names)
        if spec.ignored or spec.tried:
            found &= ~_named(hosts, {*spec.ignored, *spec.tried})
        return found


def _named(hosts: HostStates, names: frozenset[str] | set[str]) -> Booleans:
    found = np.zeros(len(hosts), dtype=np.bool_)
    found[[hosts.number[name] for name in names if name in hosts.number]] = True
    return found
