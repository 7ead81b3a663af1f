"""Traits that are welcome, or unwelcome, though nobody asks for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from resource_objects.resources.traits import known_traits
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.scheduler.weighers.base import finite
from resource_objects.search.arrays import Figures


class PreferredTraits:
    """Prefers hosts by their traits: what each is worth that the host, or one below it, has.

    Beside other weighers it counts by its multiplier; what comes before all of them is preferred in
    the order itself (:class:`~resource_objects.search.order.Order`).

    :param given: what each trait is worth, below 0 if it is unwelcome
    :raises InvalidInput: for a trait that there is not
    """

    def __init__(self, given: Mapping[str, float] | None = None, /, **worth: float) -> None:
        every = {**(given or {}), **worth}
        known_traits(list(every))
        self._worth = {name: finite(f"worth of {name}", value) for name, value in every.items()}

    @property
    def is_idle(self) -> bool:
        """Whether no trait is worth anything."""
        return not any(self._worth.values())

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return what the traits of a host are worth."""
        return sum(worth for name, worth in self._worth.items() if name in host.traits)

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return what the traits of each host are worth."""
        total = np.zeros(len(hosts))
        for name, worth in self._worth.items():
            total += worth * hosts.having(name)
        return total
