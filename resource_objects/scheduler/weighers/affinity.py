"""Consumers of a server group near each other, or apart, where that can be had."""

from __future__ import annotations

import numpy as np

from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Figures


class SoftAffinity:
    """Prefers hosts with most of the server group of the request, or with fewest, by its policy.

    Hosts are alike where the request has no group, or one whose policy is strict.
    """

    takes_negative = False

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return how many of the group a host holds; below 0 where they are to be apart."""
        group = spec.server_group
        if group is None or not group.is_soft:
            return 0.0
        return _sign(spec) * int(host.beside.holding(group.members)[host.tree])

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return how many of the group each host holds; below 0 where they are to be apart."""
        group = spec.server_group
        members = group.members if group is not None and group.is_soft else ()
        return _sign(spec) * hosts.holding(members).astype(np.float64)


def _sign(spec: RequestSpec) -> float:
    return -1.0 if spec.server_group is not None and spec.server_group.is_apart else 1.0
