"""How an amount that says where it goes may ask for less.

A kind knows what of its amounts may be weaker (:meth:`.Resource.weaker`), and by which steps.
Whoever looks for what would help tries them, and knows no kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Generic, TypeVar

_A_co = TypeVar("_A_co", covariant=True)


@dataclasses.dataclass(frozen=True, slots=True)
class RelaxationStep(Generic[_A_co]):
    """An amount that asks for less than another."""

    description: str  #: what is asked then, and what was
    size: Fraction  #: the part that is given up; 1 of what is had or not
    make: Callable[[], _A_co | None]  #: None for none at all; raises InvalidInput for no such one


@dataclasses.dataclass(frozen=True, slots=True)
class RelaxationLadder(Generic[_A_co]):
    """One thing that an amount may ask less of, by steps from the smallest change on.

    ``kind`` is that of the relaxation (``amount``, ``policy``, ``topology``), ``subject`` what is
    weaker. The last step may be one that cannot be, such as a policy of no CPUs. ``is_ordered``
    says that whoever can give it after one step can after each later one: then not every step has
    to be tried.
    """

    kind: str
    subject: str
    steps: int  #: how many, numbered from 1
    step: Callable[[int], RelaxationStep[_A_co]]
    is_ordered: bool = False


def stated(
    kind: str, subject: str, *steps: tuple[str, Callable[[], _A_co | None]]
) -> RelaxationLadder[_A_co]:
    """Return one whose steps are stated: what each is told as, and what makes it.

    >>> one = stated("policy", "colour", ("any colour instead of red", lambda: "lamp"))
    >>> one.step(1).told, one.step(1).made()
    ('any colour instead of red', 'lamp')
    """

    def step(number: int) -> RelaxationStep[_A_co]:
        told, made = steps[number - 1]
        return RelaxationStep(told, Fraction(1), made)

    return RelaxationLadder(kind, subject, len(steps), step)
