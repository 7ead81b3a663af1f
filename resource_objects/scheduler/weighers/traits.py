"""Welcome and unwelcome traits that the request does not require."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from resource_objects.resources.traits import known_traits
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers import ArrayWeigher, finite
from resource_objects.search.arrays import Figures


class PreferredTraits(ArrayWeigher):
    """Prefers hosts by the value of the traits of the host and of the providers below it.

    A trait that comes before all weighers is a preference of the order instead
    (:class:`~resource_objects.search.order.Order`).

    :param worth: the value of each trait, negative if it is unwelcome
    :raises InvalidInput: for an unknown trait
    """

    def __init__(self, worth: Mapping[str, float] | None = None, /, **more: float) -> None:
        every = {**(worth or {}), **more}
        known_traits(list(every))
        self._worth = {name: finite(f"worth of {name}", value) for name, value in every.items()}

    @property
    def is_idle(self) -> bool:
        """Whether no trait has a value."""
        return not any(self._worth.values())

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the sum of the values of each host's traits."""
        total = np.zeros(len(hosts))
        for name, worth in self._worth.items():
            total += worth * hosts.having(name)
        return total
