"""Statistics: hosts by what their agents tell."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.providers.statistics import statistic_name
from resource_objects.scheduler.reports import number_of
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.scheduler.weighers.base import finite
from resource_objects.search.arrays import Figures


class Statistics:
    """Prefers hosts by statistics: the sum of each times its weight.

    So builds that failed (``{"failed_builds": -1}``), operations under way, a version or a load are
    one weigher; name it several times (:class:`.NamedWeigher`) where each is to be normalised by
    itself.

    :param weights: ``{statistic: weight}``
    :param missing: what a host counts with that does not tell one, as a number; None: that is an
        error, as is a statistic that no host reports
    """

    def __init__(
        self, weights: Mapping[str, float] | None = None, missing: float | None = None
    ) -> None:
        if not isinstance(weights, Mapping | None):
            raise InvalidInput("field", "weights", weights, "a mapping of statistics to numbers")
        self._weights = {
            statistic_name(name): finite(f"weight of {name}", weight)
            for name, weight in (weights or {}).items()
        }
        self._missing = math.nan if missing is None else finite("missing", missing)

    @property
    def is_idle(self) -> bool:
        """Whether no statistic has a weight."""
        return not any(self._weights.values())

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return the sum for a host; NaN if one is missing that has to be there."""
        total = 0.0
        for name, weight in self._weights.items():
            if math.isnan(self._missing):
                host.beside.reports.require_reported(name)
            told = host.statistic(name)
            value = math.nan if told is None else number_of(told)
            total += weight * (self._missing if math.isnan(value) else value)
        return total

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the sum for each host; NaN where one is missing that has to be there."""
        total = np.zeros(len(hosts))
        for name, weight in self._weights.items():
            if math.isnan(self._missing):
                hosts.reports.require_reported(name)
            values = hosts.statistic(name)
            total += weight * np.where(np.isnan(values), self._missing, values)
        return total
