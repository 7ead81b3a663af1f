"""What a site asks of hosts besides: filters, one of which limits, and weighers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from resource_objects.fields import MAX_AMOUNT
from resource_objects.scheduler import HostState, HostStates, RequestSpec


class Quiet:
    """Passes hosts with at most so many consumers."""

    def __init__(self, most: int = 1) -> None:
        self.most = most

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        count = len(host.consumers)
        return None if count <= self.most else f"has {count} consumers, at most {self.most}"


class Headroom:
    """Passes hosts that have so much bandwidth left."""

    def __init__(self, mbit: int = 0) -> None:
        self.mbit = mbit

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        left = host.free("CUSTOM_SITE_NET_MBIT")
        return None if left >= self.mbit else f"has {left} Mbit/s left, less than {self.mbit}"


class Batch:
    """Lets projects of batch work fill a part of each host's CPU entitlement, and no more."""

    def __init__(self, projects: Iterable[str] = (), percent: int = 75) -> None:
        self.projects, self.percent = frozenset(projects), percent

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        return None  # what does not fit under a limit the search refuses

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Any:
        return hosts.all()

    def limits(self, hosts: HostStates, spec: RequestSpec) -> dict[str, Any]:
        if spec.project not in self.projects:
            return {}
        capacity = hosts.capacity("CUSTOM_SITE_CPU_ENTITLEMENT")
        most = np.where(capacity > 0, capacity * self.percent // 100, MAX_AMOUNT)
        return {"CUSTOM_SITE_CPU_ENTITLEMENT": most}


class Oldest:
    """Prefers hosts by the number at the end of their names: the lowest first."""

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        return -int(host.name.lstrip("host"))


class PowerLeft:
    """Prefers hosts whose rack has the most power left: pools are called like their aggregates."""

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        racks = [host.hosts[name] for name in host.aggregates if name in host.hosts]
        return max((rack.free("CUSTOM_SITE_WATT") for rack in racks), default=0)
