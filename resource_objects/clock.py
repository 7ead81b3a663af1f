"""The clock of this machine, read here and nowhere else.

It is never what a ledger on a server judges times by: that is the database's clock
(:meth:`Backend.now <resource_objects.providers.backend.Backend.now>`), which all its clients share.
A ledger in memory or in a file is used on one machine, whose clock this is.

Call these through the module (``clock.now()``), so that whoever replaces one replaces it for all.
"""

from __future__ import annotations

import datetime
import time


def now() -> datetime.datetime:
    """Return this moment, in UTC."""
    return datetime.datetime.now(datetime.UTC)


def monotonic() -> float:
    """Return seconds that only go on, to tell how long ago something was."""
    return time.monotonic()


def milliseconds() -> int:
    """Return the milliseconds since 1970, as ids and numbers are drawn from them."""
    return time.time_ns() // 1_000_000
