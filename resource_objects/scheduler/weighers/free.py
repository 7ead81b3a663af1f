"""Free resources: spread with positive weights, pack with negative ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from resource_objects.resources import resource
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers import ArrayWeigher, finite
from resource_objects.search.arrays import Figures


class FreeResources(ArrayWeigher):
    """Prefers hosts with more free of some resource classes, or with less.

    The free amount of each class counts as a fraction of the largest of any host, times the weight
    of the class: with a positive weight the emptiest hosts come first (spread), with a negative one
    the fullest (pack).

    :param weights: by resource class
    :raises InvalidInput: for an unknown class; for a weight that is not a number

    >>> FreeResources(VCPU=1, MEMORY_MB=-0.5)
    FreeResources(VCPU=1.0, MEMORY_MB=-0.5)
    """

    def __init__(self, weights: Mapping[str, float] | None = None, /, **more: float) -> None:
        self._weights = {
            resource(name).name: finite(f"weight of {name}", weight)
            for name, weight in {**(weights or {}), **more}.items()
        }

    @property
    def is_idle(self) -> bool:
        """Whether no class has a weight."""
        return not any(self._weights.values())

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the weighted sum of the free fractions of each host."""
        total = np.zeros(len(hosts))
        for name, weight in self._weights.items():
            free = hosts.free(name)
            total += weight * (free / max(1, int(free.max(initial=0))))
        return total

    def __repr__(self) -> str:
        return f"FreeResources({', '.join(f'{n}={w}' for n, w in self._weights.items())})"
