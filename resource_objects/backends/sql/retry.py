"""The one policy by which a whole transaction is tried again.

A deadlock, a serialization failure or a lock that somebody else holds says nothing about the
change itself: the transaction was rolled back whole, so it is simply run again. Sleeps grow and
are drawn at random, or writers that met once meet again.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable
from typing import TypeVar

from resource_objects.exceptions import InvalidField, LedgerError

T = TypeVar("T")


class Transient(Exception):
    """A transaction was rolled back and may be tried again; ``final`` is raised at the end."""

    def __init__(self, final: LedgerError) -> None:
        super().__init__(str(final))
        self.final = final


@dataclasses.dataclass(frozen=True, slots=True)
class Retries:
    """How often and how long a transaction is tried: ``tries`` times, within ``seconds``.

    Before try n + 1 it sleeps a random time of up to ``first_sleep * 2**n``, at most
    ``longest_sleep``. ``seconds`` bounds when a try may begin, not how long it takes.

    :raises InvalidField: for less than one try, or a time below 0

    >>> Retries(tries=3).run(lambda: "done")
    'done'
    """

    tries: int = 20
    seconds: float = 30.0
    first_sleep: float = 0.002
    longest_sleep: float = 0.25
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform

    def __post_init__(self) -> None:
        if type(self.tries) is not int or self.tries < 1:
            raise InvalidField("Retries.tries", self.tries, "an integer from 1")
        for name in ("seconds", "first_sleep", "longest_sleep"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value >= 0:  # nor NaN
                raise InvalidField(f"Retries.{name}", value, "seconds, at least 0")

    def run(self, attempt: Callable[[], T]) -> T:
        """Return what ``attempt`` returns, calling it again after each :class:`Transient`.

        :raises LedgerError: the last transient error's ``final``, when the tries are used up
        """
        began = self.clock()
        for tried in range(1, self.tries + 1):
            try:
                return attempt()
            except Transient as error:
                if tried == self.tries or self.clock() - began >= self.seconds:
                    raise error.final from error.__cause__
            self.sleep(self.uniform(0, min(self.longest_sleep, self.first_sleep * 2**tried)))
        raise AssertionError("tries is at least 1")
