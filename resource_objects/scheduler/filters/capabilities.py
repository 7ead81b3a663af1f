"""Filters by the capabilities that agents report."""

from __future__ import annotations

from typing import Any

import numpy as np

from resource_objects.scheduler.filters import ArrayFilter
from resource_objects.scheduler.filters.operators import conditions_of
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans

#: Nova's names of figures of a host: the resource class, and the method that returns the figure.
FIGURES = {
    "vcpus_total": ("VCPU", "capacity"),
    "vcpus_used": ("VCPU", "used"),
    "total_usable_ram_mb": ("MEMORY_MB", "capacity"),
    "free_ram_mb": ("MEMORY_MB", "free"),
    "total_usable_disk_gb": ("DISK_GB", "capacity"),
}
_SCOPE = "capabilities:"


class Capabilities(ArrayFilter):
    """Passes hosts with the capabilities of the extra specs (Nova's ComputeCapabilitiesFilter).

    ``capabilities:NAME`` is the statistic of that name (``capabilities:cpu_info:vendor`` that of
    ``cpu_info:vendor``), or one of :data:`FIGURES`; a host that does not report it is refused. A
    key without a scope is a condition only on hosts that report it; other scopes are ignored.
    """

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts have the capabilities."""
        mask = hosts.all()
        for name, condition, is_scoped in conditions_of(spec.extra_specs, _SCOPE):
            if name in FIGURES:
                resource_class, figure = FIGURES[name]
                values = getattr(hosts, figure)(resource_class)
                distinct, at = np.unique(values, return_inverse=True)
                meets = np.array([condition.is_met(value) for value in distinct.tolist()], bool)
                mask &= np.where(hosts.capacity(resource_class) > 0, meets[at], not is_scoped)
            else:
                mask &= hosts.statistic_meets(name, condition.is_met, not is_scoped)
        return mask

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the first capability that a host lacks."""
        for name, condition, is_scoped in conditions_of(spec.extra_specs, _SCOPE):
            value = _reported(host, name)
            if value is None and is_scoped:
                return f"requested {name} {condition}, it does not report it"
            if value is not None and not condition.is_met(value):
                return f"requested {name} {condition}, it is {value}"
        raise AssertionError(f"{host.name} has all capabilities")


def _reported(host: HostState, name: str) -> Any:
    if name in FIGURES:
        resource_class, figure = FIGURES[name]
        return getattr(host, figure)(resource_class) if host.capacity(resource_class) else None
    statistic = host.statistic(name)
    return None if statistic is None else statistic.text
