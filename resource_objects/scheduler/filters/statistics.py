"""What agents tell of their hosts: figures that have to be so, and that they were heard of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.providers.statistics import statistic_name
from resource_objects.scheduler.filters.operators import ValueCondition
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Booleans

#: What becomes of a host that does not tell a statistic, or never reported.
UNKNOWN = ("refuse", "pass")


class Statistics:
    """Passes hosts whose statistics meet conditions, in the words of extra specs.

    So builds that failed (``{"failed_builds": "<= 3"}``), load, temperature or the number of
    servers are one filter.

    :param conditions: ``{statistic: condition}``, as
        :mod:`~resource_objects.scheduler.filters.operators` says them
    :param unknown: what becomes of a host that does not tell one: ``refuse`` or ``pass``. With
        ``refuse``, a statistic that no host reports is an error
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
        self._passes = _policy(unknown) == "pass"

    @property
    def is_idle(self) -> bool:
        """Whether there is no condition."""
        return not self._conditions

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return which statistic of a host is not as it has to be."""
        for name, condition in self._conditions.items():
            if not self._passes:
                host.beside.reports.require_reported(name)
            told = host.statistic(name)
            if told is None and not self._passes:
                return f"does not tell {name}, which has to be {condition}"
            if told is not None and not condition.is_met(told.text):
                return f"{told}, has to be {condition}"
        return None

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts meet all conditions."""
        found = hosts.all()
        for name, condition in self._conditions.items():
            if not self._passes:
                hosts.reports.require_reported(name)
            found &= hosts.telling(name, condition.is_met, otherwise=self._passes)
        return found


class Reported:
    """Passes hosts whose agent was heard of within some time, by the clock of the ledger.

    :param within: seconds
    :param unknown: what becomes of a host that never reported: ``refuse`` or ``pass``
    """

    def __init__(self, within: float = 180, unknown: str = "refuse") -> None:
        value: Any = within
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InvalidInput("field", "within", within, "seconds above 0")
        self._within = float(within)
        self._passes = _policy(unknown) == "pass"

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return when a host was heard of last."""
        silence = float(host.beside.silence()[host.tree])
        if np.isnan(silence):
            return None if self._passes else "never reported"
        if silence <= self._within:
            return None
        return f"reported {silence:.0f} s ago, has to within {self._within:.0f} s"

    def passing(self, hosts: HostStates, spec: RequestSpec) -> Booleans:
        """Return which hosts were heard of."""
        silence = hosts.silence()
        return np.where(np.isnan(silence), self._passes, silence <= self._within)


def _policy(given: str) -> str:
    if given not in UNKNOWN:
        raise InvalidInput("field", "unknown", given, f"one of {', '.join(UNKNOWN)}")
    return given
