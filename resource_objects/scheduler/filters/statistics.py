"""Filters by the reports of agents: capabilities, statistics, and the time of the last report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.providers.statistics import statistic_name
from resource_objects.scheduler.filters import ArrayFilter
from resource_objects.scheduler.filters.operators import ValueCondition, conditions_of
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans

#: How a host is treated that does not report a statistic, or never reported.
UNKNOWN = ("refuse", "pass")


class Statistics(ArrayFilter):
    """Passes hosts whose statistics meet conditions, such as ``{"failed_builds": "<= 3"}``.

    :param conditions: ``{statistic: condition}``, in the syntax of
        :mod:`~resource_objects.scheduler.filters.operators`
    :param unknown: ``refuse`` or ``pass`` hosts that do not report a statistic. With ``refuse``, a
        statistic that no host reports is an error
    """

    def __init__(
        self, conditions: Mapping[str, str] | None = None, unknown: str = "refuse"
    ) -> None:
        if not isinstance(conditions, Mapping | None):
            raise InvalidInput("field", "conditions", conditions, "a mapping of statistics")
        self._conditions = {
            statistic_name(name): ValueCondition.parse(str(text))
            for name, text in (conditions or {}).items()
        }
        self._passes_unknown = _policy(unknown) == "pass"

    @property
    def is_idle(self) -> bool:
        """Whether there is no condition."""
        return not self._conditions

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts meet all conditions."""
        mask = hosts.all()
        for name, condition in self._conditions.items():
            if not self._passes_unknown:
                hosts.reports.require_reported(name)
            mask &= hosts.statistic_meets(name, condition.is_met, self._passes_unknown)
        return mask

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the first statistic of a host that does not meet its condition."""
        for name, condition in self._conditions.items():
            statistic = host.statistic(name)
            if statistic is None and not self._passes_unknown:
                return f"does not report {name}, which has to be {condition}"
            if statistic is not None and not condition.is_met(statistic.text):
                return f"{statistic}, has to be {condition}"
        raise AssertionError(f"{host.name} meets all conditions")


class Reported(ArrayFilter):
    """Passes hosts whose agent reported within some time, by the clock of the ledger.

    :param within: seconds
    :param unknown: ``refuse`` or ``pass`` hosts that never reported
    """

    def __init__(self, within: float = 180, unknown: str = "refuse") -> None:
        value: Any = within
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InvalidInput("field", "within", within, "seconds above 0")
        self._within = float(within)
        self._passes_unknown = _policy(unknown) == "pass"

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts reported in time."""
        age = hosts.seconds_since_report()
        return np.where(np.isnan(age), self._passes_unknown, age <= self._within)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return the time since the last report of a host."""
        age = host.hosts.reports.seconds_since_report.get(host.name)
        if age is None:
            return "never reported"
        return f"reported {age:.0f} s ago, has to within {self._within:.0f} s"


def _policy(unknown: str) -> str:
    if unknown not in UNKNOWN:
        raise InvalidInput("field", "unknown", unknown, f"one of {', '.join(UNKNOWN)}")
    return unknown


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
