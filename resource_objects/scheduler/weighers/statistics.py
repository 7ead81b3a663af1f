"""Statistics that agents report."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.providers.statistics import statistic_name
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers import ArrayWeigher, finite
from resource_objects.search.arrays import Figures


class Statistics(ArrayWeigher):
    """Prefers hosts by statistics: the sum of each times its weight (``{"failed_builds": -1}``).

    Use several (:class:`.NamedWeigher`) where each statistic is to be normalized individually.

    :param weights: ``{statistic: weight}``
    :param missing: the value of a statistic that a host does not report as a number; None: that is
        an error, as is a statistic that no host reports
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

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the weighted sum of each host; NaN without a value for a missing statistic."""
        total = np.zeros(len(hosts))
        for name, weight in self._weights.items():
            if math.isnan(self._missing):
                hosts.reports.require_reported(name)
            values = hosts.statistic(name)
            total += weight * np.where(np.isnan(values), self._missing, values)
        return total
