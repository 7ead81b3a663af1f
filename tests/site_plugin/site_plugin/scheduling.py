"""What a site asks of hosts besides: a filter and a weigher."""

from __future__ import annotations

from resource_objects.scheduler import HostState, RequestSpec


class Quiet:
    """Passes hosts with at most so many consumers."""

    def __init__(self, most: int = 1) -> None:
        self.most = most

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        count = len(host.consumers)
        return None if count <= self.most else f"has {count} consumers, at most {self.most}"


class Oldest:
    """Prefers hosts by the number at the end of their names: the lowest first."""

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        return -int(host.name.lstrip("host"))
