"""Being stopped while there is something to clean up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stopped_once() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the block by an exception, and be ignored from then on.

    So the block's clean-up runs whatever ends it, and runs undisturbed. Signals that were ignored
    before (``nohup``) stay so. Outside of the main thread nothing changes.

    :raises KeyboardInterrupt: when it is interrupted
    :raises SystemExit: with 128 and the number of another signal, as a shell would say it
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        for each in heeded:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, stop) for each in heeded}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
