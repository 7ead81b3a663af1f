"""Fewer runs of Python's garbage collector while large structures are built.

A structure that is being built contains no garbage, but by default the collector takes a third of
the time of applying a site, and more in a program with many objects. It is not switched off,
because other threads may create garbage meanwhile.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

#: The thresholds of the three generations meanwhile; see :func:`gc.set_threshold`.
_THRESHOLDS = (100_000, 20, 100)

_lock = threading.Lock()
#: The thresholds before the first of the open contexts, once for each of them.
_before: list[tuple[int, int, int]] = []


@contextlib.contextmanager
def fewer_collections() -> Iterator[None]:
    """Raise the thresholds of the collector in the whole process, then restore them.

    Contexts may overlap: the last context restores the thresholds before the first context. Higher
    thresholds, and a collector that is switched off, are not changed.

    >>> with fewer_collections():
    ...     gc.get_threshold()[0]
    100000
    """
    with _lock:
        thresholds = _before[0] if _before else gc.get_threshold()
        _before.append(thresholds)
        if 0 < thresholds[0] < _THRESHOLDS[0]:
            gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        with _lock:
            _before.pop()
            # Python 3.14 reports 0 as the third threshold, so only the first two are compared
            if not _before and gc.get_threshold()[:2] == _THRESHOLDS[:2]:
                gc.set_threshold(*thresholds)  # else the program has set others meanwhile
