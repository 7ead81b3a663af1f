"""Arrays that cannot be written, and the indexes, mappings and caches of fleets."""

from __future__ import annotations

import dataclasses
import functools
import io
import pickle
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
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


def sums_by(values: Any, groups: Integers, count: int) -> Integers:
    """Return the sum of the values of each of ``count`` groups, in 64 bits.

    :param groups: the number of the group of each value

    >>> sums_by(integers([3, 4, 5]), integers([0, 2, 0]), 3).tolist()
    [8, 0, 4]
    """
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, groups, values)
    return total


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
    """Make a frozen array writable and return it. Its other references see the changes."""
    array.flags.writeable = True
    return array


def coded(values: Sequence[str]) -> tuple[dict[str, int], Integers]:
    """Return the number of each different value in sorted order, and the number of every value."""
    codes = {value: number for number, value in enumerate(sorted(set(values)))}
    return codes, integers([codes[value] for value in values])


class PlaceIndex:
    """The places of providers by the numbers of a backend."""

    def __init__(self, ids: Sequence[int]) -> None:
        unsorted = integers(ids)
        self._place = np.argsort(unsorted, kind="stable")
        self._ids = unsorted[self._place]

    def renumber(self, rank: Integers) -> None:
        """Replace each place by its rank."""
        self._place = rank[self._place]

    def of(self, ids: Sequence[int]) -> Integers:
        """Return the places of some providers.

        :raises InvalidInput: if there is no provider with a number
        """
        numbers = integers(ids)
        at = self._ids.searchsorted(numbers)
        if not np.array_equal(self._ids[at[at < len(self._ids)]], numbers):
            raise exceptions.InvalidInput(
                "row", "provider_id", "a number", "one of a provider in the columns"
            )
        return self._place[at]


# --- from one fleet to the next -------------------------------------------------------------------


K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


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
        overlay = object.__new__(type(self))
        overlay._below, overlay._above = self._below, {**self._above, **more}
        if len(overlay._above) ** 2 > len(self._below) + 2**12:
            overlay._below, overlay._above = dict(overlay.items()), {}
        return overlay


class Keys:
    """A number of each provider of a fleet that stays the same when others are added or removed.

    A provider that is read again has a new number, and no number is used twice.
    """

    def __init__(self, at: Integers, end: int) -> None:
        #: by place
        self.at: Integers = frozen(at)
        self._end = end

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
        order, ordered = self._sorted
        entries = np.minimum(ordered.searchsorted(keys), len(ordered) - 1)
        return np.where(ordered[entries] == keys, order[entries], -1)

    @functools.cached_property
    def _sorted(self) -> tuple[Integers, Integers]:
        order = np.argsort(self.at, kind="stable")
        return order, self.at[order]


# --- values computed from a fleet -----------------------------------------------------------------
# A cached property of a fleet is not passed to the next fleet. A shared property depends on
# definitions only: fleets with other usage have the same value. Views over trees and sums by tree
# are passed on for those trees whose usage did not change.


class shared_property(functools.cached_property[T]):  # noqa: N801 (it is used as a decorator)
    """A cached property that depends on definitions only: fleets with other usage share it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ViewCache:
    """The views over trees that were assembled, by the key of the root of each tree.

    Fleets with other usage share the definitions, and the views over each tree of which they have
    the same usage. Threads may share a cache: two of them may assemble equal views.
    """

    #: definitions of trees; :func:`.view_of` adds them and the views
    definitions: dict[int, Any] = dataclasses.field(default_factory=dict)
    views: dict[int, Any] = dataclasses.field(default_factory=dict)
    #: in place of ``views`` for each tree whose usage changed, or that was added
    changed: Overlay[int, dict[int, Any]] = dataclasses.field(default_factory=lambda: Overlay({}))

    def after(self, changed: Iterable[int]) -> ViewCache:
        """Return a cache without the views over some trees. Cost: linear in these."""
        return self._with_changed(self.definitions, changed)

    def spliced(self, removed: Collection[int], added: Iterable[int]) -> ViewCache:
        """Return a cache without some trees, and for new trees. Cost: linear in what is cached."""
        definitions = {key: d for key, d in self.definitions.items() if key not in removed}
        return self._with_changed(definitions, added)

    def _with_changed(self, definitions: dict[int, Any], keys: Iterable[int]) -> ViewCache:
        changed = {key: dict[int, Any]() for key in keys}
        return ViewCache(definitions, self.views, self.changed.with_(changed))

    def without_usage(self) -> ViewCache:
        """Return a cache for fleets of the same definitions, whatever their usage."""
        return ViewCache(self.definitions)


#: The number of sums that are stored; a ranking of hosts has a sum for each requested amount.
MAX_SUMS = 64
#: If usage changed in more trees, sums over all trees are computed again.
MAX_CHANGED_TREES = 64


class TreeSums:
    """Arrays by tree that were computed from the figures of a fleet, by a key."""

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        #: with the trees whose usage changed since
        self._sums: dict[Hashable, tuple[tuple[Any, ...], tuple[int, ...]]] = {}

    def get(
        self, key: Hashable, compute: Callable[[Sequence[int] | None], Sequence[Any]]
    ) -> tuple[Any, ...]:
        """Return the arrays of a key, computed for all trees, or again for those that changed.

        :param compute: returns the arrays for some trees, or for all if it is called with None
        """
        arrays, changed = self._sums.get(key, (None, ()))
        if arrays is None:
            arrays = tuple([frozen(array) for array in compute(None)])
        elif changed:
            trees, copies = list(changed), [array.copy() for array in arrays]
            for array, values in zip(copies, compute(trees), strict=True):
                array[trees] = values
            arrays = tuple([frozen(array) for array in copies])
        if len(self._sums) >= MAX_SUMS and key not in self._sums:
            self._sums.clear()
        self._sums[key] = arrays, ()  # two threads may both compute it: the outcome is the same
        return arrays

    def after(self, trees: Iterable[int]) -> TreeSums:
        """Return the sums of a fleet in which the usage of some trees changed."""
        sums = TreeSums()
        for key, (arrays, changed) in list(self._sums.items()):
            changed = tuple({*changed, *trees})
            if len(changed) <= MAX_CHANGED_TREES:
                sums._sums[key] = arrays, changed
        return sums
