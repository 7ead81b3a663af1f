"""Names with ranges: a key such as ``lab-[0-5]`` names several equal providers.

The notation is that of the host lists of Slurm and pdsh.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator

from resource_objects.exceptions import InvalidInput

_RANGE = re.compile(r"\[([0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*)\]")
_SPECIAL = re.compile(r"[\[\\]")
_SYNTAX = r"a range such as [0-5], or \[ where a bracket is meant"


def expand(key: str, parent: str = "") -> Iterator[str]:
    """Yield the names of a key.

    :param parent: the name of the provider above, which precedes a key that begins with ``/``

    >>> list(expand("/gpu[08-10]", "lab-0")), list(expand(r"a\\[0]"))
    (['lab-0/gpu08', 'lab-0/gpu09', 'lab-0/gpu10'], ['a[0]'])
    """
    prefix = parent if key[:1] == "/" else ""
    if "[" not in key and "\\" not in key:
        yield prefix + key
        return
    for segments in itertools.product(*_parse(key)):
        yield prefix + "".join(segments)


def count_names(key: str) -> int:
    """Return the number of names of a key without expanding it."""
    return math.prod(map(len, _parse(key)))


def escape(name: str) -> str:
    """Return the key of exactly one name."""
    return name.replace("\\", "\\\\").replace("[", "\\[")


def relative_key(name: str, parent: str | None) -> str:
    """Return the key of a provider below another, beginning with ``/`` if its name extends that.

    >>> relative_key("lab-0/gpu0", "lab-0"), relative_key("gpu0", "lab-0")
    ('/gpu0', 'gpu0')
    """
    if parent is None:
        return escape(name)
    if name.startswith(f"{parent}/"):
        return escape(name[len(parent) :])
    return f"\\{name}" if name[:1] == "/" else escape(name)


@dataclasses.dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers of a range as text, made when they are iterated: a range may be very long."""

    runs: tuple[tuple[range, int], ...]

    def __len__(self) -> int:
        return sum(len(run) for run, _ in self.runs)

    def __iter__(self) -> Iterator[str]:
        for run, width in self.runs:
            for number in run:
                yield str(number).zfill(width)


def _parse(key: str) -> list[_Numbers | tuple[str]]:
    segments: list[_Numbers | tuple[str]] = []
    place = 0
    while place < len(key):
        if key[place] == "\\":
            if place + 1 == len(key):
                raise InvalidInput("text", "name", key, r"\\ where a backslash is meant")
            segments.append((key[place + 1],))
            place += 2
        elif key[place] == "[":
            match = _RANGE.match(key, place)
            if match is None:
                raise InvalidInput("text", "name", key, _SYNTAX)
            runs = []
            for part in match[1].split(","):
                first, _, last = part.partition("-")
                run = range(int(first), int(last or first) + 1)
                if not run:
                    raise InvalidInput("text", "name", key, "a range that ends after it begins")
                runs.append((run, len(first) if first[0] == "0" else 0))
            segments.append(_Numbers(tuple(runs)))
            place = match.end()
        else:
            special = _SPECIAL.search(key, place)
            end = len(key) if special is None else special.start()
            segments.append((key[place:end],))
            place = end
    return segments
