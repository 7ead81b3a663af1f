"""Members of a soft server group on one host, or on different hosts, where possible."""

from __future__ import annotations

import numpy as np

from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers import ArrayWeigher
from resource_objects.search.arrays import Figures


class SoftAffinity(ArrayWeigher):
    """Prefers hosts with the most members of the server group, or with the fewest, by its policy.

    Without a group, or with a strict policy, all hosts weigh the same.
    """

    takes_negative = False

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the number of members on each host; negative for ``soft-anti-affinity``."""
        group = spec.server_group
        if group is None or not group.is_soft:
            return np.zeros(len(hosts))
        sign = -1.0 if group.is_apart else 1.0
        return sign * hosts.holding(group.members).astype(np.float64)
