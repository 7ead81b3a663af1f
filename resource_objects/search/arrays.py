"""Arrays that cannot be written, and indexes and mappings that fleets are made of."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from resource_objects import exceptions

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
#: For example how full each host is.
Figures = npt.NDArray[np.float64]


def integers(values: Iterable[int]) -> Integers:
    """Return a new array of values."""
    return np.array(values, dtype=np.int64)


def frozen(array: Any) -> Any:
    """Return an array that cannot be written; a part of a frozen array is frozen already."""
    if not array.flags.writeable:
        return array
    if array.base is not None:
        array = array.copy()
    array.flags.writeable = False
    return array


class _FrozenPickler(pickle.Pickler):
    """Pickles frozen arrays so that they are frozen when they are loaded."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            return frozen, (value.copy(),)
        return NotImplemented


def pickled(value: object) -> bytes:
    """Return a pickle of a value whose frozen arrays are frozen again when it is loaded."""
    file = io.BytesIO()
    _FrozenPickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def writable(array: Any) -> Any:
    """Make a frozen array writable and return it; whatever refers to it sees the changes."""
    array.flags.writeable = True
    return array


def coded(values: Sequence[str]) -> tuple[dict[str, int], Integers]:
    """Return the number of each different value in sorted order, and the number of every value."""
    codes = {value: number for number, value in enumerate(sorted(set(values)))}
    return codes, integers([codes[value] for value in values])


def parts(codes: dict[str, int], ordered: Integers) -> Iterator[tuple[str, slice]]:
    """Yield each value with its part of the sorted codes."""
    ends = np.searchsorted(ordered, np.arange(len(codes) + 1)).tolist()
    for name, start, end in zip(codes, ends[:-1], ends[1:], strict=True):
        yield name, slice(start, end)


class PlaceIndex:
    """The places of providers by the numbers of a backend."""

    def __init__(self, ids: Sequence[int]) -> None:
        given = integers(ids)
        self._place = np.argsort(given, kind="stable")
        self._ids = given[self._place]

    def renumber(self, rank: Integers) -> None:
        """Replace each place by its rank."""
        self._place = rank[self._place]

    def of(self, ids: Sequence[int]) -> Integers:
        """Return the places of some providers.

        :raises InvalidInput: if there is no provider with a number
        """
        wanted = integers(ids)
        at = np.searchsorted(self._ids, wanted)
        if len(wanted) and (
            not len(self._ids)
            or bool(np.any(self._ids[np.minimum(at, len(self._ids) - 1)] != wanted))
        ):
            raise exceptions.InvalidInput(
                "row", "provider_id", "a number", "one of a provider in the columns"
            )
        return self._place[at]


# --- from one fleet to the next -------------------------------------------------------------------


K = TypeVar("K")
V = TypeVar("V")


class Overlay(Generic[K, V]):
    """An immutable mapping in two layers, of which the upper one is small; None removes an entry.

    >>> first = Overlay({"a": 1, "b": 2})
    >>> second = first.with_({"a": None, "c": 3})
    >>> dict(first.items()), dict(second.items())
    ({'a': 1, 'b': 2}, {'b': 2, 'c': 3})
    """

    __slots__ = ("_above", "_below")

    def __init__(self, below: Mapping[K, V]) -> None:
        self._below = below
        self._above: Mapping[K, V | None] = {}

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if there is none."""
        return self._above[key] if key in self._above else self._below.get(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield all entries. Cost: linear."""
        for key, value in {**self._below, **self._above}.items():
            if value is not None:
                yield key, value

    def with_(self, more: Mapping[K, V | None]) -> Self:
        """Return a mapping with other entries added.

        Cost: linear in these, and in the square root of all entries on average.
        """
        if not more:
            return self
        found = object.__new__(type(self))
        found._below, found._above = self._below, {**self._above, **more}
        if len(found._above) ** 2 > len(self._below) + 2**12:
            found._below, found._above = dict(found.items()), {}
        return found


class Keys:
    """A number of each provider of a fleet that stays the same when others are added or removed.

    A provider that is read again has a new number, and no number is used twice.
    """

    __slots__ = ("_end", "_sorted", "at")

    def __init__(self, at: Integers, end: int) -> None:
        #: by place
        self.at: Integers = frozen(at)
        self._end = end
        self._sorted: tuple[Integers, Integers] | None = None

    def spliced(self, splice: Callable[[Integers, Integers], Any], count: int) -> Keys:
        """Return the keys after ``count`` new providers were spliced in.

        :param splice: returns the array by place after that, from those of old and new providers
        """
        end = self._end + count
        return Keys(splice(self.at, np.arange(self._end, end)), end)

    def places(self, keys: Integers) -> Integers:
        """Return the places of keys, -1 for removed providers. Cost: once a sort."""
        if not len(self.at):
            return np.full(len(keys), -1)
        if self._sorted is None:  # two threads may both sort: the outcome is the same
            order = np.argsort(self.at, kind="stable")
            self._sorted = order, self.at[order]
        order, ordered = self._sorted
        found = np.minimum(ordered.searchsorted(keys), len(ordered) - 1)
        return np.where(ordered[found] == keys, order[found], -1)
