"""The contract of weighers, and how they become one key of the search's order.

The weight of a host is the sum, over all weighers, of a multiplier times what the weigher said,
brought to 0 to 1 over the hosts that are left: the lowest is 0, the highest 1, and where all are
alike they are 0 (Nova's ``weights.py``). So a multiplier says how much a weigher counts beside the
others, whatever its unit.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import FilterFailed
from resource_objects.requests import Request
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Figures, Integers
from resource_objects.search.fleet import Fleet

_invalid_field = functools.partial(exceptions.InvalidInput, "field")

#: The greatest multiplier: sums of weights stay exact enough.
MOST = 1e9


@runtime_checkable
class Weigher(Protocol):
    """How good hosts are. It changes nothing, and says the same of the same.

    One that weighs all hosts alike as it is set may say so, by ``is_idle``: who names it is told.
    """

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return how good a host is: the higher, the better."""


@runtime_checkable
class ColumnarWeigher(Protocol):
    """A weigher that says it of all hosts at once, too: for fleets of thousands."""

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return how good each host is, in the order of ``hosts.hosts``."""


@dataclasses.dataclass(frozen=True, slots=True)
class NamedWeigher:
    """A weigher with the name by which errors tell of it, and how much it counts.

    :raises InvalidInput: for a multiplier that is no number up to a thousand million, or is below 0
        where the weigher says that this makes no sense (``takes_negative``)
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
    """Return what some weighers say together of hosts, for an order of the search."""

    def together(fleet: Fleet, request: Request, trees: Integers) -> Figures:
        hosts = states(fleet)
        total = np.zeros(len(trees))
        for one in weighers:
            if one.multiplier:
                total += one.multiplier * normalized(_said(one, hosts, spec(), trees))
        return total

    return together


def normalized(raw: Figures) -> Figures:
    """Return weights from 0 for the lowest to 1 for the highest; 0 where all are alike.

    >>> normalized(np.array([2.0, 8.0, 4.0])).tolist()
    [0.0, 1.0, 0.3333333333333333]
    >>> normalized(np.array([5.0, 5.0])).tolist()
    [0.0, 0.0]
    """
    if not len(raw):
        return raw
    least, most = float(raw.min()), float(raw.max())
    if most == least:
        return np.zeros(len(raw))
    return (raw - least) / (most - least)


def _said(one: NamedWeigher, hosts: HostStates, spec: RequestSpec, trees: Integers) -> Figures:
    weigher, host = one.weigher, None
    try:
        if isinstance(weigher, ColumnarWeigher):
            found = np.asarray(weigher.weights(hosts, spec), dtype=np.float64)
            if found.shape != (len(hosts),):
                expected = f"{len(hosts)} numbers"
                raise _invalid_field("weights", found.shape, expected)
            found = found[trees]
        else:
            said = []
            for tree in trees.tolist():
                host = hosts.hosts[tree]
                said.append(_number(weigher.weigh(hosts.at(tree), spec)))
            found, host = np.array(said, dtype=np.float64), None
        if not np.isfinite(found).all():
            host = hosts.hosts[int(trees[int(np.flatnonzero(~np.isfinite(found))[0])])]
            raise _invalid_field("weight", "infinite or none", "a number")
    except Exception as error:  # whatever it is: it is named
        raise FilterFailed(one.name, host, error) from error
    return found


def finite(what: str, given: Any) -> float:
    """Return a number that settings say.

    :raises InvalidInput: if it is none
    """
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not math.isfinite(given):
        raise _invalid_field(what, given, "a number")
    return float(given)


def _number(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | np.number):
        raise _invalid_field("weight", given, "a number")
    return float(given) if math.isfinite(given) else math.nan
