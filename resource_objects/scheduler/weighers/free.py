"""What hosts have free: spread where it counts upwards, pack where it counts downwards."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from resource_objects.resources import resource
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.scheduler.weighers.base import finite
from resource_objects.search.arrays import Figures


class FreeResources:
    """Prefers hosts with more free of some resource classes, or with less.

    Of each class what is free counts by the largest that some host has of it free, times its
    weight: above 0 the emptiest come first (spread), below 0 the fullest (pack).

    :param weights: by resource class
    :raises InvalidInput: for a class that there is not; for a weight that is no number

    >>> FreeResources(VCPU=1, MEMORY_MB=-0.5)
    FreeResources(VCPU=1.0, MEMORY_MB=-0.5)
    """

    def __init__(self, given: Mapping[str, float] | None = None, /, **weights: float) -> None:
        self._weights = {
            resource(name).name: finite(f"weight of {name}", weight)
            for name, weight in {**(given or {}), **weights}.items()
        }

    @property
    def is_idle(self) -> bool:
        """Whether no class has a weight."""
        return not any(self._weights.values())

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return what is free of a host, as a part of the most that any has."""
        total = 0.0
        for name, weight in self._weights.items():
            total += weight * (host.free(name) / _most(host.beside, name))
        return total

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return what is free of each host, as a part of the most that any has."""
        total = np.zeros(len(hosts))
        for name, weight in self._weights.items():
            total += weight * (hosts.free(name) / _most(hosts, name))
        return total

    def __repr__(self) -> str:
        return f"FreeResources({', '.join(f'{n}={w}' for n, w in self._weights.items())})"


def _most(hosts: HostStates, name: str) -> int:
    """Return the most that a host has free of a class, at least 1."""
    return max(1, int(hosts.free(name).max(initial=0)))
