"""The clock of this machine, which only this module reads, and the length of pauses.

A ledger on a server compares times with the database's clock, which all clients share
(:meth:`Backend.now <resource_objects.providers.backend.Backend.now>`). A ledger in memory or in a
file is used on one machine, by the clock of this machine.

Call these functions through the module (``clock.now()``), so that a test can replace them.
"""

from __future__ import annotations

import datetime
import time

#: The exponent is limited: a float cannot represent every power of 2.
_MOST_DOUBLED = 60


def now() -> datetime.datetime:
    """Return this moment, in UTC."""
    return datetime.datetime.now(datetime.UTC)


def monotonic() -> float:
    """Return seconds that never decrease, to measure durations."""
    return time.monotonic()


def longest_pause(first: float, most: float, tried: int) -> float:
    """Return the maximum pause before the next try: it doubles with each try.

    The pause is a random time up to this one, so that processes that collided do not collide again
    (Brooker, *Exponential Backoff And Jitter*, AWS Architecture Blog, 2015: "full jitter").

    :param first: seconds, before the first try
    :param most: the upper bound of the result, in seconds
    :param tried: the number of tries so far

    >>> [longest_pause(0.5, 3, tried) for tried in (1, 2, 3, 10_000)]
    [1.0, 2.0, 3, 3]
    """
    return min(most, first * 2.0 ** min(tried, _MOST_DOUBLED))


def milliseconds() -> int:
    """Return the milliseconds since 1970, with which ids and numbers begin."""
    return time.time_ns() // 1_000_000
