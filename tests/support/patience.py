"""Waiting for what another thread or process does, not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds that a busy machine may take.
PATIENCE = 60.0


def until(condition: Callable[[], object], at_most: float = PATIENCE) -> None:
    """Wait until something is so."""
    end = time.monotonic() + at_most
    while not condition():
        assert time.monotonic() < end, f"it did not come about in {at_most:g} seconds"
        time.sleep(0.01)
