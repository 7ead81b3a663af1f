"""The files of ``/proc`` and ``/sys`` below a root, and the text forms of the kernel.

A captured machine is a directory with its own ``proc`` and ``sys``. Links inside it are resolved
as a process would that is chrooted into it (an absolute link starts at the root, ``..`` stops
there), so that a capture is never completed with files of the machine that reads it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from resource_objects.exceptions import DiscoveryError, InvalidInput, show
from resource_objects.resources.numa.cpuset import CPUSet

_T = TypeVar("_T")

#: Far above the size of any file that is read (the longest is /proc/self/mounts).
_MAX_BYTES = 1 << 24
#: The kernel's own limit of links in one path (path_resolution(7)).
_MAX_LINKS = 40
# A device or pipe in place of a file must neither block nor become our terminal.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

# The kernel wrote masks before it wrote lists; these files are still masks.
_MASKS = frozenset(("cpumap", "core_cpus", "thread_siblings", "package_cpus", "core_siblings"))
_LIST = re.compile(r"(?:\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*)?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


class Tree:
    """The files of one machine, running (root ``/``) or captured.

    Paths are the kernel's, such as ``/sys/devices/system/cpu/online``. Links in the directories of
    a path are resolved once; the text of files is not cached.

    =========================================  =====================================================
    :meth:`text`, :meth:`optional`             the text of a file that must exist, or may be missing
    :meth:`ids`, :meth:`integer`,              the value in a file that may be missing
    :meth:`count`
    :meth:`names`, :meth:`link`,               the names in a directory, the name that a link points
    :meth:`resolved`                           to, a path without links
    :meth:`read_or`, :meth:`add_finding`       a default in place of a value that cannot be read
    :meth:`error`, :meth:`malformed`           the exception that names a file
    =========================================  =====================================================

    :param strict: whether a value that cannot be read is an error and not a finding
    :raises DiscoveryError: if ``root`` is not a directory
    """

    def __init__(self, root: str | os.PathLike[str], *, strict: bool = True) -> None:
        self.strict = strict
        #: why values could not be read
        self.findings: list[DiscoveryError] = []
        try:
            self.root = os.path.realpath(os.fsdecode(root))
            is_directory = os.path.isdir(self.root)
        except ValueError:  # a NUL character
            is_directory = False
        if not is_directory:
            raise DiscoveryError(os.fsdecode(root), "expected a directory that holds proc and sys")
        self.is_live = self.root == "/"
        self._prefix = "" if self.is_live else self.root
        self._directories: dict[str, str] = {}
        self._links: dict[str, str | None] = {}

    # --- findings ---

    def error(self, path: str, detail: str) -> DiscoveryError:
        """Return the error that names the file at ``path``."""
        return DiscoveryError(self._prefix + path, detail)

    def malformed(self, path: str, text: str, expected: str) -> DiscoveryError:
        """Return the error for a file whose text is not of the expected form."""
        return self.error(path, f"got {show(text)}, expected {expected}")

    def read_or(self, default: _T, read: Callable[..., _T], *arguments: Any) -> _T:
        """Return ``read(*arguments)``; if it raises, add the finding and return the default.

        :raises DiscoveryError: as ``read`` does, if the tree is strict
        """
        try:
            return read(*arguments)
        except DiscoveryError as error:
            self.add_finding(error)
            return default

    def add_finding(self, error: DiscoveryError) -> None:
        """Record why a value could not be read, or raise the error if the tree is strict."""
        if self.strict:
            raise error
        self.findings.append(error)

    # --- files ---

    def text(self, path: str, expected: str) -> str:
        """Return the text of a file that must exist.

        :raises DiscoveryError: if it cannot be read, with what was expected in it
        """
        try:
            return self._read(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise self.error(path, f"{reason}; expected {expected}") from error

    def optional(self, path: str) -> str | None:
        """Return the text of a file, or None if it is missing, empty or cannot be read.

        The kernel leaves no file here empty (no value is a newline), but tools that capture a
        machine store a file that they cannot read as an empty one.
        """
        try:
            return self._read(path) or None
        except OSError:
            return None

    def integer(self, path: str) -> int | None:
        """Return a decimal integer, or None if the file is missing, empty or cannot be read.

        :raises DiscoveryError: if the text is not an integer
        """
        text = self.optional(path)
        if text is None:
            return None
        if not _INTEGER.fullmatch(text.strip()):
            raise self.malformed(path, text, "an integer")
        return int(text)

    def count(self, path: str, expected: str) -> int | None:
        """Return an integer as :meth:`integer` does, and raise for a negative one."""
        count = self.integer(path)
        if count is not None and count < 0:
            raise self.malformed(path, str(count), expected)
        return count

    def ids(self, *paths: str) -> tuple[str, CPUSet] | None:
        """Return the first of several files that exists, and the ids in it; None if none exists.

        A file is a list such as ``0-3,8`` or a mask such as ``00000000,0000000f``.

        :raises DiscoveryError: if the text is neither
        """
        for path in paths:
            text = self.optional(path)
            if text is not None:
                return path, self.id_list(path, text)
        return None

    def id_list(self, path: str, text: str) -> CPUSet:
        """Return the ids of the text of a file, by its name a list or a mask.

        :raises DiscoveryError: if the text is neither
        """
        is_mask = path.rpartition("/")[2] in _MASKS
        expected = "a mask such as 00000000,0000000f"
        try:
            if is_mask:
                return CPUSet.parse_mask(text.strip())
            expected = "an ascending list of ids such as 0-3,8"
            numbers = [int(number) for number in re.findall(r"\d+", text, re.ASCII)]
            if _LIST.fullmatch(text.strip()) and numbers == sorted(numbers):
                return CPUSet.parse(text.strip(), allow_empty=True)
        except InvalidInput:
            pass
        raise self.malformed(path, text, expected)

    def names(self, path: str) -> list[str] | None:
        """Return the names in a directory, or None if it is missing or cannot be read."""
        try:
            return os.listdir(self._prefix + self._directory(path) or "/")
        except OSError:
            return None

    def link(self, path: str) -> str | None:
        """Return the last name in the target of a link, or None if there is no such link."""
        head, _, name = path.rpartition("/")
        try:
            target = os.readlink(f"{self._prefix}{self._directory(head)}/{name}")
        except OSError:
            return None
        return target.rstrip("/").rpartition("/")[2]

    def resolved(self, path: str) -> str:
        """Return the path with every link in it followed; the path itself in a loop of links."""
        try:
            return self._resolve(path)
        except OSError:
            return path

    def _read(self, path: str) -> str:
        head, _, name = path.rpartition("/")
        try:
            descriptor = os.open(f"{self._prefix}{self._directory(head)}/{name}", _OPEN)
        except OSError as error:
            if error.errno != errno.ELOOP:  # the error of O_NOFOLLOW for a link
                raise
            descriptor = os.open(self._prefix + self._resolve(path), _OPEN)
        try:
            chunks, size = [], 0
            while chunk := os.read(descriptor, 1 << 16):
                chunks.append(chunk)
                size += len(chunk)
                if size > _MAX_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        finally:
            os.close(descriptor)
        # Any byte decodes, so garbage is rejected by the expected form and not by a codec.
        # Linux 2.6 ends /sys/devices/system/node/online with a NUL.
        return b"".join(chunks).decode("latin-1").rstrip("\0")

    def _directory(self, path: str) -> str:
        if path not in self._directories:
            self._directories[path] = self._resolve(path)
        return self._directories[path]

    def _resolve(self, path: str) -> str:
        """Return ``path`` without links, resolved as in path_resolution(7) below the root."""
        todo, result, hops = path.split("/")[::-1], "", 0
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                result = result.rpartition("/")[0]
                continue
            target = self._target(f"{result}/{name}")
            if target is None:
                result = f"{result}/{name}"
                continue
            hops += 1
            if hops > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            result = "" if target.startswith("/") else result
            todo.extend(target.split("/")[::-1])
        return result

    def _target(self, path: str) -> str | None:
        if path not in self._links:
            try:
                self._links[path] = os.readlink(self._prefix + path)
            except OSError:  # not a link, or missing: opening it will report that
                self._links[path] = None
        return self._links[path]


def numbered(names: Iterable[str], prefix: str) -> list[int]:
    """Return the numbers in the names that are ``prefix`` and a number, ascending.

    >>> numbered(["cpu10", "cpu2", "cpufreq"], "cpu")
    [2, 10]
    """
    matches = (re.fullmatch(rf"{prefix}(0|[1-9][0-9]{{0,5}})", name) for name in names)
    return sorted(int(match[1]) for match in matches if match)
