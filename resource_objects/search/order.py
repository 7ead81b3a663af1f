"""In which order hosts are looked at, and found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.resources import resource
from resource_objects.resources.traits import known_traits

#: The orders there are.
ORDERS = ("name", "pack", "spread", "random")
#: How many of the best are shuffled where a seed is given and nothing else is said.
AMONG = 10
#: The greatest weight and worth: sums of these are exact enough, and never too large.
MOST = 1e12


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """In which order hosts are looked at, and found.

    :param by: ``name``; ``pack``: the fullest first, as they would be with the request; ``spread``:
        the emptiest first; ``random``: by the seed alone, 0 unless told
    :param weights: by resource class, how much its fullness counts (1 unless told); classes that
        are not asked for count too if they are named
    :param preferred: by trait, how much it is worth that the host has a provider with it: hosts are
        first in the order of these sums, then in that of ``by``; below 0 it is unwelcome
    :param among: with a seed, so many of the best are shuffled, then the next so many, so that
        many who ask at once do not all take the same host

    :raises InvalidRequest: for what is no such thing

    >>> Order("pack", weights={"VCPU": 2}, preferred={"CUSTOM_SSD": 1})
    Order(by='pack', weights={'VCPU': 2.0}, preferred={'CUSTOM_SSD': 1.0}, among=None)
    >>> Order("best")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidRequest: order: got 'best', expected one of name, pack, ...
    """

    by: str = "name"
    weights: Mapping[str, float] = FrozenDict()
    preferred: Mapping[str, float] = FrozenDict()
    among: int | None = None

    def __post_init__(self) -> None:
        if self.by not in ORDERS:
            raise exceptions.InvalidRequest("order", self.by, f"one of {', '.join(ORDERS)}")
        object.__setattr__(self, "weights", _figures("weights", self.weights, 0))
        object.__setattr__(self, "preferred", _figures("preferred", self.preferred, -MOST))
        for name in self.weights:
            resource(name)
        known_traits(list(self.preferred))
        if self.among is not None and (type(self.among) is not int or self.among < 1):
            raise exceptions.InvalidRequest("among", self.among, "an integer of 1 or more")

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return ``given`` itself if it is an order already, else the one of that name."""
        return given if isinstance(given, cls) else cls(given)

    @property
    def is_plain(self) -> bool:
        """Whether it is the order of names."""
        return self.by == "name" and not self.preferred

    def block(self, seed: int | None) -> int:
        """Return how many of the best are shuffled: 1 for none."""
        if seed is None:
            return 1
        return AMONG if self.among is None else self.among


def check_seed(seed: object) -> int | None:
    """Return a seed, or raise ``InvalidRequest``."""
    if seed is not None and (type(seed) is not int or seed < 0):
        raise exceptions.InvalidRequest("seed", seed, "an integer of 0 or more, or None")
    return seed


def _figures(what: str, given: object, least: float) -> FrozenDict:
    if not isinstance(given, Mapping):
        raise exceptions.InvalidRequest(what, given, "a mapping of names to numbers")
    for name, value in given.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= MOST:
            expected = f"a number from {least:.0f} to {MOST:.0f}"
            raise exceptions.InvalidRequest(f"{what} {name}", value, expected)
    return FrozenDict({name: float(value) for name, value in given.items()})


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a search is made, beside what is asked."""

    limit: int | None
    per_host: int | None
    order: Order
    seed: int | None
    budget: int

    def again(self) -> Options:
        """Return how a search is made anew: with another seed, so that luck is another too."""
        if self.seed is None and self.order.by != "random":
            return self
        return dataclasses.replace(self, seed=(self.seed or 0) + 1)
