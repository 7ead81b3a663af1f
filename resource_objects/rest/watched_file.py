"""Files of an operator that are read again after a change."""

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


class WatchedFile(Generic[_T]):
    """The parsed content of a file. A change takes effect with the next request.

    While the file is invalid, every request is refused with a 503, and the log names the line: an
    operator's typing error must not leave access to a client that the change was to exclude. Cost
    of :meth:`content` for an unchanged file: one ``stat``.
    """

    def __init__(
        self, label: str, path: str | os.PathLike[str], parse: Callable[[str], _T]
    ) -> None:
        """Read the file.

        :param label: the name of the file in errors
        :param parse: returns the content of a text; raises ``ValueError`` with the line
        :raises InvalidInput: if the file cannot be read, or its content is invalid
        """
        self._label, self._path, self._parse = label, Path(path).absolute(), parse
        self._lock = threading.Lock()
        try:
            self._version, self._content = self._read()
        except (OSError, ValueError) as error:
            raise InvalidInput("field", label, str(path), f"a file; {_cause(error)}") from error
        self._problem: str | None = None

    def content(self) -> _T:
        """Return the present content.

        :raises Refused: a 503 while the file is invalid
        """
        if self._present_version() != self._version:
            with self._lock:
                self._read_again()
        if self._problem is not None:
            label = self._label.replace("_", " ")
            raise errors.Refused(503, f"The {label} cannot be read; the log tells why.")
        return self._content

    def _read_again(self) -> None:
        version = self._present_version()
        if version == self._version:  # another thread has read it
            return
        try:
            self._version, self._content = self._read()
            self._problem = None
            LOG.info("%s: %s was changed and read again", self._label, self._path)
        except (OSError, ValueError) as error:
            self._version, self._problem = version, _cause(error)
            LOG.error("%s: %s: %s: nobody is served", self._label, self._path, self._problem)

    def _present_version(self) -> tuple[int, ...]:
        try:
            return _version_of(self._path.stat())
        except OSError:
            return ()

    def _read(self) -> tuple[tuple[int, ...], _T]:
        with self._path.open(encoding="utf-8") as file:
            return _version_of(os.fstat(file.fileno())), self._parse(file.read())


def _version_of(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _cause(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
