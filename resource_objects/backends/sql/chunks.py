"""Lists of values for IN, in parts that every database takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

#: SQLite takes at most 32,766 values in one statement, PostgreSQL 65,535.
MOST = 10_000


def chunks(values: Sequence[T], most: int = MOST) -> Iterator[Sequence[T]]:
    """Yield the values in parts of at most ``most``, none if there are none.

    >>> [len(part) for part in chunks(range(25_000))]
    [10000, 10000, 5000]
    """
    for start in range(0, len(values), most):
        yield values[start : start + most]
