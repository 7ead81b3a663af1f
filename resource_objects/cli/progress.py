"""The progress bar of commands that take long."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

#: An action that takes longer, in seconds, shows its progress on a terminal.
_PATIENCE = 2.0


class Bar:
    """A progress bar on a terminal, for work that takes longer than two seconds.

    rich draws it, and is imported when it is drawn.

    :param is_told: whether :meth:`tell` reports the progress; otherwise the bar only moves
    """

    def __init__(self, word: str, *, is_told: bool = True) -> None:
        self.done = 0
        self.total = 0
        self._word = word
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._is_seen = sys.__stderr__ is not None and sys.__stderr__.isatty()
        self._drawn: tuple[Any, Any] | None = None
        self._timer: threading.Timer | None = None
        if self._is_seen and not is_told:
            self._timer = threading.Timer(_PATIENCE, self._begin)
            self._timer.daemon = True  # it does not delay the end of the process

    def __enter__(self) -> Bar:
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def tell(self, done: int, total: int) -> None:
        """Show the number of finished machines and the number of all machines."""
        self.done, self.total = done, total
        if self._is_seen and self._drawn is None:
            if time.monotonic() - self._since < _PATIENCE:
                return
            self._begin()
        if self._drawn is not None:
            shown, task = self._drawn
            shown.update(task, completed=done, total=total)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        shown = Progress(console=Console(file=sys.__stderr__), transient=True)
        task = shown.add_task(self._word, total=self.total or None)
        with self._lock:  # the end of the work does not wait for the drawing
            if self._is_seen:
                shown.start()
                self._drawn = shown, task

    def close(self) -> None:
        """Take it away."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self._drawn is not None:
                self._drawn[0].stop()
                self._drawn = None
            self._is_seen = False
