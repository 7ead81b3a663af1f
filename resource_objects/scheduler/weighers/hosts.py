"""Weighers by one figure of each host: free resources, devices, traits, statistics, members."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.providers.statistics import statistic_name
from resource_objects.resources import resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.traits import checked_traits
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers import ArrayWeigher, finite
from resource_objects.search.arrays import Booleans, Figures

#: Hosts with more free devices weigh the same: there is no shortage.
MOST_DEVICES = 99


class WeightedSum(ArrayWeigher):
    """A weigher by a sum over names: of a figure of each host, times the weight of the name."""

    _weights: Mapping[str, float]

    @property
    def is_idle(self) -> bool:
        """Whether no name has a weight."""
        return not any(self._weights.values())

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the weighted sum of each host."""
        total = np.zeros(len(hosts))
        for name, weight in self._weights.items():
            total += weight * self._figure(hosts, name)
        return total

    @abc.abstractmethod
    def _figure(self, hosts: HostStates, name: str) -> Figures | Booleans: ...


class FreeResources(WeightedSum):
    """Prefers hosts with more free of some resource classes, or with less.

    The free amount of each class counts as a fraction of the largest of any host, times the weight
    of the class: with a positive weight the emptiest hosts come first (spread), with a negative one
    the fullest (pack).

    :param weights: by resource class
    :raises InvalidInput: for an unknown class; for a weight that is not a number

    >>> FreeResources(VCPU=1, MEMORY_MB=-0.5)
    FreeResources(VCPU=1.0, MEMORY_MB=-0.5)
    """

    def __init__(self, weights: Mapping[str, float] | None = None, /, **by_class: float) -> None:
        self._weights = {
            resource(name).name: finite(f"weight of {name}", weight)
            for name, weight in {**(weights or {}), **by_class}.items()
        }

    def _figure(self, hosts: HostStates, name: str) -> Figures:
        free = hosts.free(name)
        return free / max(1, int(free.max(initial=0)))

    def __repr__(self) -> str:
        return f"FreeResources({', '.join(f'{n}={w}' for n, w in self._weights.items())})"


class PreferredTraits(WeightedSum):
    """Prefers hosts by the value of the traits of the host and of the providers below it.

    A trait that comes before all weighers is a preference of the order instead
    (:class:`~resource_objects.search.order.Order`).

    :param worth: the value of each trait, negative if it is unwelcome
    :raises InvalidInput: for an unknown trait
    """

    def __init__(self, worth: Mapping[str, float] | None = None, /, **by_trait: float) -> None:
        values = {**(worth or {}), **by_trait}
        checked_traits(list(values))
        self._weights = {name: finite(f"worth of {name}", value) for name, value in values.items()}

    def _figure(self, hosts: HostStates, name: str) -> Booleans:
        return hosts.having(name)


class Statistics(WeightedSum):
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

    def _figure(self, hosts: HostStates, name: str) -> Figures:
        if math.isnan(self._missing):
            hosts.reports.require_reported(name)
        values = hosts.statistic(name)
        return np.where(np.isnan(values), self._missing, values)


class FreeDevices(ArrayWeigher):
    """Prefers hosts with the fewest free devices (Nova's PCIWeigher).

    A request without devices avoids hosts that have some; a request with devices fills up hosts
    that are partly used. Classes of parts of devices do not count.
    """

    takes_negative = False

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return 100 for a host without free devices, less by one for each, at least 1."""
        free = np.zeros(len(hosts), dtype=np.int64)
        for name in filter(is_device, hosts.fleet.classes):
            free += hosts.free(name)
        return (1 + MOST_DEVICES - np.minimum(free, MOST_DEVICES)).astype(np.float64)


class SoftAffinity(ArrayWeigher):
    """Prefers hosts with the most members of the server group, or with the fewest, by its policy.

    Without a group, or with a strict policy, all hosts weigh the same.
    """

    takes_negative = False

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the number of members on each host; negative for ``soft-anti-affinity``."""
        group = spec.server_group
        if group is None or not group.is_soft:
            return np.zeros(len(hosts))
        sign = -1.0 if group.is_apart else 1.0
        return sign * hosts.holding(group.members).astype(np.float64)
