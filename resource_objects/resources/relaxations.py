"""Relaxations of placed amounts: topologies and device requests that need less.

A relaxation changes one property of an amount. Its values form a ladder, from the smallest change
to the largest. :meth:`.Resource.relaxations` returns the ladders of a kind; the search for
relaxations of a refused request tries them and knows no kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Generic, TypeVar

_A_co = TypeVar("_A_co", covariant=True)


@dataclasses.dataclass(frozen=True, slots=True)
class RelaxationStep(Generic[_A_co]):
    """One value on a ladder: an amount that requests less than another.

    ``size`` is the part of the property that is given up, 1 for a property without figures.
    ``make()`` returns the relaxed amount, None if nothing is left to request, and raises
    ``InvalidInput`` if there is no such amount.
    """

    description: str  #: the relaxed value and the requested one
    size: Fraction
    make: Callable[[], _A_co | None]


@dataclasses.dataclass(frozen=True, slots=True)
class RelaxationLadder(Generic[_A_co]):
    """The relaxations of one property of an amount, from the smallest change to the largest.

    ``kind`` is ``amount``, ``policy`` or ``topology``, ``subject`` the property. The last step may
    be impossible, such as a CPU policy of no CPUs. If ``is_ordered``, a provider that satisfies one
    step satisfies each later one, so that not every step has to be tried.
    """

    kind: str
    subject: str
    steps: int  #: the number of steps, which are numbered from 1
    step: Callable[[int], RelaxationStep[_A_co]]
    is_ordered: bool = False


def listed_steps(
    kind: str, subject: str, *steps: tuple[str, Callable[[], _A_co | None]]
) -> RelaxationLadder[_A_co]:
    """Return a ladder of listed steps, each with a description and a function that makes it.

    >>> ladder = listed_steps("policy", "colour", ("any colour instead of red", lambda: "lamp"))
    >>> ladder.step(1).description, ladder.step(1).make()
    ('any colour instead of red', 'lamp')
    """

    def step(number: int) -> RelaxationStep[_A_co]:
        description, make = steps[number - 1]
        return RelaxationStep(description, Fraction(1), make)

    return RelaxationLadder(kind, subject, len(steps), step)
