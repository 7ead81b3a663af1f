"""Consumers of a server group: on one host, or apart."""

from __future__ import annotations

from resource_objects.providers import ServerGroup
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans


class Affinity:
    """Passes hosts that the server group of a request allows (``affinity``, ``anti-affinity``).

    Who is where is what the picture shows; the members that are placed by the same call count as
    soon as they are placed. Of a group that the ledger keeps, which the request names, the claim
    judges again: who is faster with a member of it is seen there, and another host is searched.
    """

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return who of the group is there, or is elsewhere."""
        group = spec.server_group
        if group is None or group.is_soft:
            return None
        here = self._here(host, group)
        if group.is_apart:
            told = f"{', '.join(here)} of group {group.name} {'is' if len(here) == 1 else 'are'}"
            return None if len(here) < group.max_per_host else f"{told} there already"
        if here or not host.beside.holding(group.members).any():
            return None
        return f"the others of group {group.name} are elsewhere"

    def holders(self, host: HostState, spec: RequestSpec) -> tuple[tuple[str, int], ...]:
        """Return the members that are there; or, where they are to be together, elsewhere."""
        group = spec.server_group
        if group is None:
            return ()
        if group.is_apart:
            return tuple((one, 1) for one in self._here(host, group))
        there = (one for one in sorted(group.members) if host.beside.holding([one]).any())
        return tuple((one, 1) for one in there)

    @staticmethod
    def _here(host: HostState, group: ServerGroup) -> list[str]:
        known = sorted(host.consumers & group.members)
        return [one for one in known if host.beside.holding([one])[host.tree]]

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts are allowed."""
        group = spec.server_group
        if group is None or group.is_soft:
            return hosts.all()
        held = hosts.holding(group.members)
        if group.is_apart:
            return held < group.max_per_host
        return held > 0 if held.any() else hosts.all()
