"""Filters by the capabilities that agents report."""

from __future__ import annotations

from typing import Any

import numpy as np

from resource_objects.providers.statistics import Statistic
from resource_objects.scheduler.filters.operators import conditions_of
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans

#: The words of the field for how much a host has: the resource class, and which figure of it.
FIGURES = {
    "vcpus_total": ("VCPU", "capacity"),
    "vcpus_used": ("VCPU", "used"),
    "total_usable_ram_mb": ("MEMORY_MB", "capacity"),
    "free_ram_mb": ("MEMORY_MB", "free"),
    "total_usable_disk_gb": ("DISK_GB", "capacity"),
}
_SCOPE = "capabilities:"


class Capabilities:
    """Passes hosts that can do what the extra specs ask for (Nova's ComputeCapabilitiesFilter).

    ``capabilities:NAME`` is a statistic of that name (``capabilities:cpu_info:vendor`` that of
    ``cpu_info:vendor``), or one of :data:`FIGURES`; a host that does not tell it is refused. A key
    without a scope is asked only of hosts that tell it, and other scopes are others'.
    """

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return what a host cannot do."""
        for name, condition, is_scoped in conditions_of(spec.extra_specs, _SCOPE):
            told = _told(host, name)
            if told is None and is_scoped:
                return f"requested {name} {condition}, it does not report it"
            if told is not None and not condition.is_met(told):
                return f"requested {name} {condition}, it is {told}"
        return None

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts can do it."""
        found = hosts.all()
        for name, condition, is_scoped in conditions_of(spec.extra_specs, _SCOPE):
            if name in FIGURES:
                kind, figure = FIGURES[name]
                values = getattr(hosts, figure)(kind)
                known, at = np.unique(values, return_inverse=True)
                meets = np.array([condition.is_met(one) for one in known.tolist()], dtype=np.bool_)
                found &= np.where(hosts.capacity(kind) > 0, meets[at], not is_scoped)
            else:
                found &= hosts.telling(name, condition.is_met, otherwise=not is_scoped)
        return found


def _told(host: HostState, name: str) -> Any:
    if name in FIGURES:
        kind, figure = FIGURES[name]
        return getattr(host, figure)(kind) if host.capacity(kind) else None
    statistic: Statistic | None = host.statistic(name)
    return None if statistic is None else statistic.text
