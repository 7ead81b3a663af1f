"""Reading /proc and /sys below a root, and the few text forms the kernel writes there.

A captured machine is a directory with its own ``proc`` and ``sys``. Links inside it are resolved
as a process chrooted into it would (an absolute one starts at the root, ``..`` stops there), so a
capture is never completed with files of the machine that reads it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from resource_objects.exceptions import DiscoveryError, show

_T = TypeVar("_T")

#: No kernel is built for more CPUs or NUMA nodes; what claims to have more is garbled.
MAX_IDS = 1 << 16
#: Far more than any file read here holds (the longest is /proc/self/mounts).
_MAX_BYTES = 1 << 24
#: The kernel's own limit of links in one path (path_resolution(7)).
_MAX_LINKS = 40
# A device or pipe where a file should be must neither block nor become our terminal.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

# The kernel wrote masks before it wrote lists; these files are still masks.
_MASKS = frozenset(("cpumap", "core_cpus", "thread_siblings", "package_cpus", "core_siblings"))

_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
_MASK = re.compile(r"[0-9a-f]{1,8}(?:,[0-9a-f]{8})*")
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


class Tree:
    """The files of one machine, live (root ``/``) or captured.

    Paths are the kernel's, such as ``/sys/devices/system/cpu/online``. Reading: :meth:`text` for
    what must be there, :meth:`optional` for what may be missing, :meth:`names` of a directory,
    :meth:`link` for where a link points, :meth:`resolved` for where a path leads. Links in the path
    to a file are resolved once and kept; what files say is not.

    :param strict: whether what :meth:`tolerated` reads has to be readable

    :raises DiscoveryError: if ``root`` is no directory
    """

    def __init__(self, root: str | os.PathLike[str], *, strict: bool = True) -> None:
        self.strict = strict
        #: what was not read, and why
        self.findings: list[DiscoveryError] = []
        try:
            self.root = os.path.realpath(os.fsdecode(root))
            found = os.path.isdir(self.root)
        except ValueError:  # a NUL character
            found = False
        if not found:
            raise DiscoveryError(os.fsdecode(root), "expected a directory that holds proc and sys")
        self.live = self.root == "/"
        self._prefix = "" if self.live else self.root
        self._directories: dict[str, str] = {}
        self._links: dict[str, str | None] = {}

    def error(self, path: str, detail: str) -> DiscoveryError:
        """Return the error that names the file at ``path``."""
        return DiscoveryError(self._prefix + path, detail)

    def garbled(self, path: str, text: str, expected: str) -> DiscoveryError:
        """Return the error for a file that says ``text`` where ``expected`` should stand."""
        return self.error(path, f"got {show(text)}, expected {expected}")

    def tolerated(self, default: _T, read: Callable[..., _T], *arguments: Any) -> _T:
        """Return what ``read`` returns; if it cannot, note why and return the default.

        :raises DiscoveryError: if it cannot, and the tree is strict
        """
        try:
            return read(*arguments)
        except DiscoveryError as error:
            self.note(error)
            return default

    def note(self, error: DiscoveryError) -> None:
        """Note what was not read, or raise it if the tree is strict."""
        if self.strict:
            raise error
        self.findings.append(error)

    def text(self, path: str, expected: str) -> str:
        """Return the text of a file that must be there.

        :raises DiscoveryError: if it cannot be read, saying what was expected in it
        """
        try:
            return self._read(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise self.error(path, f"{reason}; expected {expected}") from error

    def optional(self, path: str) -> str | None:
        """Return the text of a file, or None if it is missing, empty or cannot be read.

        The kernel leaves no file here empty (nothing is a new line), but the tools that capture a
        machine keep as an empty file what they could not read.
        """
        try:
            return self._read(path) or None
        except OSError:
            return None

    def names(self, path: str) -> list[str] | None:
        """Return the names in a directory, or None if it is missing or cannot be read."""
        try:
            return os.listdir(self._prefix + self._directory(path) or "/")
        except OSError:
            return None

    def link(self, path: str) -> str | None:
        """Return the last name of a link's target, or None if it is not there or is no link."""
        head, _, name = path.rpartition("/")
        try:
            target = os.readlink(f"{self._prefix}{self._directory(head)}/{name}")
        except OSError:
            return None
        return target.rstrip("/").rpartition("/")[2]

    def resolved(self, path: str) -> str:
        """Return the path that ``path`` leads to, every link in it followed; itself if none is."""
        try:
            return self._resolve(path)
        except OSError:  # a loop of links
            return path

    def _read(self, path: str) -> str:
        head, _, name = path.rpartition("/")
        try:
            descriptor = os.open(f"{self._prefix}{self._directory(head)}/{name}", _OPEN)
        except OSError as error:
            if error.errno != errno.ELOOP:  # what O_NOFOLLOW says of a link
                raise
            descriptor = os.open(self._prefix + self._resolve(path), _OPEN)
        try:
            # Any byte decodes, so that garbage is refused by the form expected, not by a codec.
            # Linux 2.6 ends /sys/devices/system/node/online with a NUL.
            return _contents(descriptor).decode("latin-1").rstrip("\0")
        finally:
            os.close(descriptor)

    def _directory(self, path: str) -> str:
        found = self._directories.get(path)
        if found is None:
            found = self._directories[path] = self._resolve(path)
        return found

    def _resolve(self, path: str) -> str:
        """Return ``path`` without links, as path_resolution(7) has it below the root."""
        todo, done, hops = path.split("/")[::-1], "", 0
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                done = done.rpartition("/")[0]
                continue
            target = self._target(f"{done}/{name}")
            if target is None:
                done = f"{done}/{name}"
                continue
            hops += 1
            if hops > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            done = "" if target.startswith("/") else done
            todo.extend(target.split("/")[::-1])
        return done

    def _target(self, path: str) -> str | None:
        if path not in self._links:
            try:
                self._links[path] = os.readlink(self._prefix + path)
            except OSError:  # no link, or missing: whoever opens it will be told
                self._links[path] = None
        return self._links[path]


def _contents(descriptor: int) -> bytes:
    chunks, size = [], 0
    while chunk := os.read(descriptor, 1 << 16):
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return b"".join(chunks)


def id_list(tree: Tree, path: str, text: str) -> tuple[int, ...]:
    """Return the ids of a kernel list such as ``0-3,8`` (bitmap_parselist's form), ascending.

    :raises DiscoveryError: if it is none
    """
    expected = "an ascending list of ids such as 0-3,8"
    ids: list[int] = []
    for part in text.strip().split(",") if text.strip() else ():
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, MAX_IDS)
        if not (ids[-1] if ids else -1) < first <= last < MAX_IDS:
            raise tree.garbled(path, text, expected)
        ids.extend(range(first, last + 1))
    return tuple(ids)


def id_mask(tree: Tree, path: str, text: str) -> tuple[int, ...]:
    """Return the ids of a kernel mask such as ``00000000,0000000f``, ascending.

    :raises DiscoveryError: if it is none
    """
    digits = text.strip()
    if not _MASK.fullmatch(digits):
        raise tree.garbled(path, text, "a mask such as 00000000,0000000f")
    mask = int(digits.replace(",", ""), 16)
    ids: list[int] = []
    while mask:
        lowest = mask & -mask
        ids.append(lowest.bit_length() - 1)
        mask ^= lowest
    if ids and ids[-1] >= MAX_IDS:
        raise tree.garbled(path, text, f"a mask of less than {MAX_IDS} bits")
    return tuple(ids)


def ids(tree: Tree, paths: Iterable[str]) -> tuple[str, tuple[int, ...]] | None:
    """Return the first of several files that is there, and the ids in it; None if none is.

    :raises DiscoveryError: if it says something else
    """
    for path in paths:
        text = tree.optional(path)
        if text is not None:
            read = id_mask if path.rpartition("/")[2] in _MASKS else id_list
            return path, read(tree, path, text)
    return None


def integer(tree: Tree, path: str, text: str) -> int:
    """Return a decimal integer.

    :raises DiscoveryError: if it is none
    """
    digits = text.strip()
    if not _INTEGER.fullmatch(digits):
        raise tree.garbled(path, text, "an integer")
    return int(digits)


def optional_integer(tree: Tree, path: str) -> int | None:
    """Return a decimal integer, or None if the file is missing, empty or cannot be read.

    :raises DiscoveryError: if it says something else
    """
    text = tree.optional(path)
    return None if text is None else integer(tree, path, text)


def numbered(names: Iterable[str], prefix: str) -> list[int]:
    """Return the numbers of the names that are ``prefix`` and a number, ascending.

    >>> numbered(["cpu10", "cpu2", "cpufreq"], "cpu")
    [2, 10]
    """
    matches = (re.fullmatch(rf"{prefix}(0|[1-9][0-9]{{0,5}})", name) for name in names)
    return sorted(int(match[1]) for match in matches if match)
