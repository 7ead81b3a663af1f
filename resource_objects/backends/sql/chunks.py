"""What every database takes in one statement: lists of values for IN in parts, and long texts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from resource_objects import exceptions

T = TypeVar("T")

#: SQLite takes at most 32,766 values in one statement, PostgreSQL 65,535.
MOST = 10_000
#: MariaDB and MySQL take statements of 16 MiB, if not told otherwise.
MOST_TEXT = 12 * 2**20


def chunks(values: Sequence[T], most: int = MOST) -> Iterator[Sequence[T]]:
    """Yield the values in parts of at most ``most``, none if there are none.

    >>> [len(part) for part in chunks(range(25_000))]
    [10000, 10000, 5000]
    """
    for start in range(0, len(values), most):
        yield values[start : start + most]


def check_size(texts: Collection[str]) -> None:
    """Raise if texts of JSON are too long for one statement.

    A server refuses it by hanging up: the write would look like one that may have been done, and
    be tried again for ever. So it is refused before, on every database alike.

    :raises InvalidField: if they are too long
    """
    size = sum(map(len, texts))
    if 2 * size > MOST_TEXT:  # with what a driver puts before each of these
        size += sum(text.count('"') + text.count("\\") for text in texts)
        if size > MOST_TEXT:
            expected = f"at most {MOST_TEXT} bytes to record; do it in parts"
            raise exceptions.InvalidField("write", size, expected)
