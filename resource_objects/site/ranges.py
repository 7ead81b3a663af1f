"""Names of a site: a key stands for one provider, or by its ranges for several that are equal."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator

from resource_objects import exceptions

_RANGE = re.compile(r"\[([0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*)\]")
_SPECIAL = re.compile(r"[\[\\]")
_HOW = r"a range such as [0-5], or \[ where a bracket is meant"


def expanded(pattern: str, parent: str | None = None) -> Iterator[str]:
    """Yield the names that a key stands for.

    :param parent: the name of the provider that it is below

    >>> list(expanded("/gpu[08-10]", "lab-0")), list(expanded(r"a\\[0]"))
    (['lab-0/gpu08', 'lab-0/gpu09', 'lab-0/gpu10'], ['a[0]'])
    """
    if "[" not in pattern and "\\" not in pattern:
        yield pattern if parent is None or pattern[:1] != "/" else parent + pattern
        return
    front = "" if parent is None or pattern[:1] != "/" else parent
    for parts in itertools.product(*_pieces(pattern)):
        yield front + "".join(parts)


def count_names(pattern: str) -> int:
    """Return how many names a key stands for, without making them."""
    found = 1
    for piece in _pieces(pattern):
        found *= sum(map(len, piece.runs)) if isinstance(piece, _Numbers) else 1
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers of a range, as text."""

    runs: tuple[range, ...]
    widths: tuple[int, ...]

    def __iter__(self) -> Iterator[str]:
        for run, width in zip(self.runs, self.widths, strict=True):
            for number in run:
                yield str(number).zfill(width)


def _pieces(pattern: str) -> list[Iterable[str]]:
    found: list[Iterable[str]] = []
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\" and place + 1 < len(pattern):
            found.append((pattern[place + 1],))
            place += 2
        elif letter == "\\":
            raise exceptions.InvalidInput("text", "name", pattern, r"\\ where a backslash is meant")
        elif letter == "[":
            match = _RANGE.match(pattern, place)
            if match is None:
                raise exceptions.InvalidInput("text", "name", pattern, _HOW)
            found.append(_numbers(pattern, match[1]))
            place = match.end()
        else:
            special = _SPECIAL.search(pattern, place)
            end = len(pattern) if special is None else special.start()
            found.append((pattern[place:end],))
            place = end
    return found


def _numbers(pattern: str, text: str) -> _Numbers:
    runs: list[range] = []
    widths: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        run = range(int(first), int(last or first) + 1)
        if not run:
            raise exceptions.InvalidInput(
                "text", "name", pattern, "a range that ends after it begins"
            )
        runs.append(run)
        widths.append(len(first) if first[0] == "0" else 0)
    return _Numbers(tuple(runs), tuple(widths))


def literal(name: str) -> str:
    return name.replace("\\", "\\\\").replace("[", "\\[")


def key_below(name: str, parent: str | None) -> str:
    """Return the key of a provider below another."""
    if parent is None:
        return literal(name)
    if name.startswith(f"{parent}/"):
        return literal(name[len(parent) :])
    return f"\\{name}" if name[:1] == "/" else literal(name)
