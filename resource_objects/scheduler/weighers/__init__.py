"""Weighers: preferences between hosts.

==================  ===============================================================================
``hosts``           free resources, devices, traits, statistics, members of a soft server group
``fragmentation``   devices that stay most useful for the usual requests (FGD)
==================  ===============================================================================

A weigher is an object with one method, ``weigh(host, spec)``, which returns a number: higher is
better. :class:`ArrayWeigher` weighs all hosts at once.

The weight of a host is the sum over all weighers of a multiplier times the result of the weigher,
normalized to 0 to 1 over the remaining hosts: the lowest is 0, the highest 1, equal ones are 0
(Nova's ``weights.py``). So a multiplier is the importance of a weigher in any unit; a negative one
reverses the order.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from resource_objects.exceptions import FilterFailed, InvalidInput
from resource_objects.requests import Request
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Figures, Integers
from resource_objects.search.fleet import Fleet

_invalid_field = functools.partial(InvalidInput, "field")

#: The greatest multiplier: sums of weights stay exact enough.
MOST = 1e9


@runtime_checkable
class Weigher(Protocol):
    """A preference between hosts. It has no side effects, and equal arguments have equal results.

    A weigher may have further methods and properties:

    ``weights(hosts, spec)``
        returns the weight of each host in the order of ``hosts.hosts``: for large fleets
    ``takes_negative``
        is False if its order must not be reversed
    ``is_idle``
        is True if it weighs all hosts equally with its present settings; it is then reported as
        skipped
    """

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return the weight of a host: higher is better."""


class ArrayWeigher(abc.ABC):
    """A weigher that computes the weights of all hosts at once."""

    @abc.abstractmethod
    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the weight of each host, in the order of ``hosts.hosts``."""

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return the weight of a host: higher is better. Cost: the weights of all hosts."""
        return float(self.weights(host.hosts, spec)[host.tree])


@dataclasses.dataclass(frozen=True, slots=True)
class NamedWeigher:
    """A weigher with the name that errors report, and its multiplier.

    :raises InvalidInput: for a multiplier that is no number from -1e9 to 1e9; for a negative one of
        a weigher that excludes it (``takes_negative``)
    """

    name: str
    weigher: Weigher
    multiplier: float = 1.0

    def __post_init__(self) -> None:
        value: Any = self.multiplier
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not -MOST <= value <= MOST:
            expected = f"a number from -{MOST:.0f} to {MOST:.0f}"
            raise _invalid_field(f"multiplier of {self.name}", value, expected)
        if value < 0 and not getattr(self.weigher, "takes_negative", True):
            raise _invalid_field(f"multiplier of {self.name}", value, "0 or more")


def weigh(
    weighers: Sequence[NamedWeigher],
    states: Callable[[Fleet], HostStates],
    spec: Callable[[], RequestSpec],
) -> Callable[[Fleet, Request, Integers], Figures]:
    """Return the sum of some weighers as the weight of an order of the search."""

    def total_weights(fleet: Fleet, request: Request, trees: Integers) -> Figures:
        hosts, total = states(fleet), np.zeros(len(trees))
        for named in weighers:
            if named.multiplier:
                total += named.multiplier * normalized(_weights(named, hosts, spec(), trees))
        return total

    return total_weights


def normalized(weights: Figures) -> Figures:
    """Return weights from 0 for the lowest to 1 for the highest; all 0 if they are equal.

    >>> normalized(np.array([2.0, 8.0, 4.0])).tolist()
    [0.0, 1.0, 0.3333333333333333]
    >>> normalized(np.array([5.0, 5.0])).tolist()
    [0.0, 0.0]
    """
    if not len(weights):
        return weights
    least, most = float(weights.min()), float(weights.max())
    if most == least:
        return np.zeros(len(weights))
    return (weights - least) / (most - least)


def _weights(named: NamedWeigher, hosts: HostStates, spec: RequestSpec, trees: Integers) -> Figures:
    """Return the weights of some hosts by one weigher, or raise FilterFailed."""
    weigher: Any = named.weigher
    host = None
    try:
        if hasattr(weigher, "weights"):
            weights = np.asarray(weigher.weights(hosts, spec), dtype=np.float64)
            if weights.shape != (len(hosts),):
                raise _invalid_field("weights", weights.shape, f"{len(hosts)} numbers")
            weights = weights[trees]
        else:
            weights = np.empty(len(trees))
            for at, tree in enumerate(trees.tolist()):
                host = hosts.hosts[tree]
                weights[at] = _weight(weigher.weigh(hosts.at(tree), spec))
            host = None
        infinite = np.flatnonzero(~np.isfinite(weights))
        if len(infinite):
            host = hosts.hosts[int(trees[int(infinite[0])])]
            raise _invalid_field("weight", "infinite or none", "a number")
    except Exception as error:  # it may raise anything
        raise FilterFailed(named.name, host, error) from error
    return weights


def finite(name: str, value: Any) -> float:
    """Return the number of a setting.

    :raises InvalidInput: if it is not a finite number
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise _invalid_field(name, value, "a number")
    return float(value)


def _weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise _invalid_field("weight", value, "a number")
    return float(value) if math.isfinite(value) else math.nan
