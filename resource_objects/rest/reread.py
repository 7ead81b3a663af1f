"""Files of an operator: read at the start, and again when they were changed."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from resource_objects.exceptions import InvalidInput
from resource_objects.rest import errors

LOG = logging.getLogger("resource_objects.rest")

_T = TypeVar("_T")


class Reread(Generic[_T]):
    """What a file says. A change of it counts from the next request on, without a restart.

    Whoever is to be shut out by a change must not stay in because of a slip in the same file: as
    long as it cannot be understood nobody is served (503), and the log says which line it is.
    Cost of :meth:`said` for a file that was not changed: one ``stat``.
    """

    def __init__(self, what: str, path: str | os.PathLike[str], parse: Callable[[str], _T]) -> None:
        """Read it.

        :param what: what errors call it
        :param parse: makes of the text what it says; raises ``ValueError`` with the line
        :raises InvalidInput: if it is not there, or says what cannot be
        """
        self._what, self._path, self._parse = what, Path(path).absolute(), parse
        self._lock = threading.Lock()
        try:
            self._seen, self._said = self._read()
        except (OSError, ValueError) as error:
            raise InvalidInput("field", what, str(path), f"a file; {_why(error)}") from error
        self._wrong: str | None = None

    def said(self) -> _T:
        """Return what it says now, or refuse the request if nobody can tell."""
        if self._state() != self._seen:
            with self._lock:
                self._read_again()
        if self._wrong is not None:
            what = self._what.replace("_", " ")
            raise errors.Refused(503, f"The {what} cannot be read; the log tells why.")
        return self._said

    def _read_again(self) -> None:
        state = self._state()
        if state == self._seen:  # another thread did
            return
        try:
            self._seen, self._said = self._read()
            self._wrong = None
            LOG.info("%s: %s was changed and read again", self._what, self._path)
        except (OSError, ValueError) as error:
            self._seen, self._wrong = state, _why(error)
            LOG.error("%s: %s: %s: nobody is served", self._what, self._path, self._wrong)

    def _state(self) -> tuple[int, ...]:
        try:
            return _state_of(self._path.stat())
        except OSError:
            return ()

    def _read(self) -> tuple[tuple[int, ...], _T]:
        with self._path.open(encoding="utf-8") as file:
            return _state_of(os.fstat(file.fileno())), self._parse(file.read())


def _state_of(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
