"""Filters by the request: the hosts that it names, and its server group."""

from __future__ import annotations

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
        mask = ~hosts.named({*spec.ignored, *spec.tried})
        for names in (spec.forced or None, spec.only):
            if names is not None:
                mask &= hosts.named(names)
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


class Affinity(ArrayFilter):
    """Passes the hosts that a strict server group allows (``affinity``, ``anti-affinity``).

    The snapshot shows where members are; members that are placed by the same call count as soon as
    they are placed. For a group that is stored in the ledger the claim checks again: after a lost
    race against another member, another host is searched.
    """

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts the policy of the group allows."""
        group = spec.server_group
        if group is None or group.is_soft:
            return hosts.all()
        members = hosts.holding(group.members)
        if group.is_apart:
            return members < group.max_per_host
        return members > 0 if members.any() else hosts.all()

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return which members are on a host, or that they are on another one."""
        group = spec.server_group
        assert group is not None, "without a group every host passes"
        if not group.is_apart:
            return f"the others of group {group.name} are elsewhere"
        here = [name for name, _ in self.holders(host, spec)]
        verb = "is" if len(here) == 1 else "are"
        return f"{', '.join(here)} of group {group.name} {verb} there already"

    def holders(self, host: HostState, spec: RequestSpec) -> tuple[tuple[str, int], ...]:
        """Return the members on a host; for the policy affinity, those on any host."""
        group = spec.server_group
        if group is None:
            return ()
        counts = ((name, host.hosts.holding([name])) for name in sorted(group.members))
        return tuple(
            (name, 1)
            for name, count in counts
            if (count[host.tree] if group.is_apart else count.any())
        )
