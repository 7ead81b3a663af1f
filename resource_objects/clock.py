"""The clock of this machine, read here and nowhere else, and how long to wait by it.

It is never what a ledger on a server judges times by: that is the database's clock
(:meth:`Backend.now <resource_objects.providers.backend.Backend.now>`), which all its clients share.
A ledger in memory or in a file is used on one machine, whose clock this is.

Call these through the module (``clock.now()``), so that whoever replaces one replaces it for all.
"""

from __future__ import annotations

import datetime
import time

#: After so many tries the longest is reached: no float is large enough for every power of 2.
_MOST_DOUBLED = 60


def now() -> datetime.datetime:
    """Return this moment, in UTC."""
    return datetime.datetime.now(datetime.UTC)


def monotonic() -> float:
    """Return seconds that only go on, to tell how long ago something was."""
    return time.monotonic()


def longest_pause(first: float, most: float, tried: int) -> float:
    """Return how long to wait at most before something is tried again: twice as long each time.

    The pause itself is drawn between nothing and this, so that those who met do not meet again
    (Brooker, *Exponential Backoff And Jitter*, AWS Architecture Blog, 2015: "full jitter").

    :param first: seconds, before anything was tried
    :param most: it is never more than so many seconds
    :param tried: how often it was tried already

    >>> [longest_pause(0.5, 3, tried) for tried in (1, 2, 3, 10_000)]
    [1.0, 2.0, 3, 3]
    """
    return min(most, first * 2.0 ** min(tried, _MOST_DOUBLED))


def milliseconds() -> int:
    """Return the milliseconds since 1970, as ids and numbers are drawn from them."""
    return time.time_ns() // 1_000_000
