"""Members of a server group: on one host, or on different hosts."""

from __future__ import annotations

from resource_objects.scheduler.filters import ArrayFilter
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans


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
