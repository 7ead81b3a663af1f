"""Arrays that cannot be written, and what columns are on the way to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from resource_objects import exceptions

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


def integers(values: Iterable[int]) -> Integers:
    """Return values as an array of its own."""
    return np.array(values, dtype=np.int64)


def frozen(array: Any) -> Any:
    """Return an array that cannot be written; a part of a frozen one is frozen already."""
    if not array.flags.writeable:
        return array
    if array.base is not None:
        array = array.copy()
    array.flags.writeable = False
    return array


def coded(values: Sequence[str]) -> tuple[dict[str, int], Integers]:
    """Return the different values, numbered in their order, and the numbers of all."""
    codes = {value: number for number, value in enumerate(sorted(set(values)))}
    return codes, integers([codes[value] for value in values])


def parts(codes: dict[str, int], ordered: Integers) -> Iterator[tuple[str, slice]]:
    """Yield which part of sorted codes each value has."""
    ends = np.searchsorted(ordered, np.arange(len(codes) + 1)).tolist()
    for name, start, end in zip(codes, ends[:-1], ends[1:], strict=True):
        yield name, slice(start, end)


class Places:
    """From a backend's number of a provider to its place in the order."""

    def __init__(self, ids: Sequence[int]) -> None:
        given = integers(ids)
        self._place = np.argsort(given, kind="stable")
        self._ids = given[self._place]

    def renumber(self, rank: Integers) -> None:
        """Put the providers into another order, that of ``rank``."""
        self._place = rank[self._place]

    def of(self, ids: Sequence[int]) -> Integers:
        """Return the places of some providers.

        :raises InvalidRow: if one of them is not there
        """
        wanted = integers(ids)
        at = np.searchsorted(self._ids, wanted)
        if len(wanted) and (
            not len(self._ids)
            or bool(np.any(self._ids[np.minimum(at, len(self._ids) - 1)] != wanted))
        ):
            raise exceptions.InvalidRow(
                "provider_id", "a number", "one of a provider in the columns"
            )
        return self._place[at]
