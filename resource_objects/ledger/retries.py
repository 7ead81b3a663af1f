"""How often a write is tried again."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable

from resource_objects import exceptions

#: Seconds: the longest of the pauses before a fit is made again, and that before the first.
_LONGEST_PAUSE, _FIRST_PAUSE = 0.25, 0.002


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a write is tried again after somebody else was faster.

    ``searches``: how many times ``claim`` looks for candidates afresh after all it was given are
    gone. ``fits``: how many times the ledger fits an amount afresh that it puts somewhere itself (a
    topology that is not assigned) after somebody took of that host in between; before each it
    waits a short time at random, growing to a quarter of a second, or those who met once would meet
    again. ``definitions``: how many times anything that reads and then writes is done again after
    somebody wrote in between: ``sync`` and all that changes definitions compare again, ``reshape``
    is worked out again, ``move``, ``swap`` and ``renew`` read the consumer again. ``apply`` is not
    tried again: its plan holds for what it was made from.

    :raises InvalidField: for what is no count from 0
    """

    searches: int = 3
    definitions: int = 5
    fits: int = 20
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform

    def __post_init__(self) -> None:
        for name in ("searches", "definitions", "fits"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise exceptions.InvalidField(f"RetryPolicy.{name}", value, "an integer from 0")

    def pause(self, tried: int) -> None:
        """Wait before something is tried again that was tried so often.

        >>> RetryPolicy(sleep=print, uniform=lambda least, most: most).pause(2)
        0.008
        """
        self.sleep(self.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tried)))
