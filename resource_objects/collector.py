"""How often Python looks for garbage while something large is built.

What is built stays, so looking for garbage in it finds none: by default the collector takes a third
of the time of applying a site, and more the more a program has already. It is not switched off,
for what other threads make meanwhile may be garbage.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

#: After so many new objects, and so many rounds of those and of the older ones.
_SELDOM = (100_000, 20, 100)

_lock = threading.Lock()
_usual: list[tuple[int, int, int]] = []  # what was set before, once for each who is building


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """Look for garbage seldom meanwhile, in the whole process; then as before.

    Who is the last to leave sets what the first one found. A program that looks as seldom already,
    or not at all, goes on doing so.

    >>> with seldom():
    ...     gc.get_threshold()[0]
    100000
    """
    with _lock:
        usual = _usual[0] if _usual else gc.get_threshold()
        _usual.append(usual)
        if 0 < usual[0] < _SELDOM[0]:
            gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        with _lock:
            _usual.pop()
            if not _usual and _found() == _SELDOM[:2]:  # else somebody has set another
                gc.set_threshold(*usual)


def _found() -> tuple[int, ...]:
    """Return what is set, without the third number: Python 3.14 says 0 for it, whatever was set."""
    return gc.get_threshold()[:2]
