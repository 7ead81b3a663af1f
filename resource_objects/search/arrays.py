"""Arrays that cannot be written, and what columns are on the way to them."""

from __future__ import annotations

import bisect
import io
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from resource_objects import exceptions

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
#: Such as how full each host is.
Figures = npt.NDArray[np.float64]


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


class _FrozenPickler(pickle.Pickler):
    """Pickles arrays that cannot be written so that they cannot be written when they are loaded."""

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
    """Return a frozen array that may be written: itself, so that whoever has it sees it."""
    array.flags.writeable = True
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


class PlaceIndex:
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

        :raises InvalidInput: if one of them is not there
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


# --- what goes on from one fleet to the next ------------------------------------------------------


K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Overlay(Generic[K, V]):
    """A mapping that never changes, and what was laid over it since; None stands for no entry.

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
        """Return the value of a key, None if it has none."""
        return self._above[key] if key in self._above else self._below.get(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield all entries. Cost: linear."""
        for key, value in {**self._below, **self._above}.items():
            if value is not None:
                yield key, value

    def with_(self, more: Mapping[K, V | None]) -> Self:
        """Return one with other entries laid over these.

        Cost: linear in the entries given and in the square root of all, on average.
        """
        found = object.__new__(type(self))
        found._below, found._above = self._below, {**self._above, **more}
        if len(found._above) ** 2 > len(self._below) + 2**16:
            found._below, found._above = dict(found.items()), {}
        return found


class Keys:
    """A number of each provider of a fleet, by its place, which it keeps while others come and go.

    Who is read again as somebody new gets a new number, and no number is given twice.
    """

    __slots__ = ("_end", "_sorted", "at")

    def __init__(self, at: Integers, end: int) -> None:
        #: by place
        self.at: Integers = frozen(at)
        self._end = end
        self._sorted: tuple[Integers, Integers] | None = None

    def spliced(self, splice: Splice, count: int) -> Keys:
        """Return those of a fleet into which ``count`` new providers are spliced."""
        end = self._end + count
        return Keys(splice.of(self.at, np.arange(self._end, end)), end)

    def places(self, keys: Integers) -> Integers:
        """Return where providers stand now, -1 for those that are gone. Cost: once a sort."""
        if not len(self.at):
            return np.full(len(keys), -1)
        if self._sorted is None:  # two threads may both sort: the outcome is the same
            order = np.argsort(self.at, kind="stable")
            self._sorted = order, self.at[order]
        order, ordered = self._sorted
        found = np.minimum(ordered.searchsorted(keys), len(ordered) - 1)
        return np.where(ordered[found] == keys, order[found], -1)


#: The places from ``start`` to before ``stop`` of something old give way to those from ``first`` to
#: before ``end`` of something new: ``(start, stop, first, end)``.
Cut: TypeAlias = tuple[int, int, int, int]
#: Of fewer cuts the pieces are put together one by one, of more by one array of indices.
FEW_CUTS = 200


class Splice:
    """Where parts of something old give way to parts of something new.

    >>> splice = Splice(5, [(1, 3, 0, 1), (5, 5, 1, 3)])
    >>> splice.of(integers([10, 11, 12, 13, 14]), integers([90, 91, 92])).tolist()
    [10, 90, 13, 14, 91, 92]
    >>> splice.listed("abcde", "xyz")
    ('a', 'x', 'd', 'e', 'y', 'z')
    >>> splice.old().tolist(), splice.new().tolist()
    ([0, -1, -1, 2, 3], [1, 4, 5])
    """

    __slots__ = ("_count", "_cuts", "_pick")

    def __init__(self, count: int, cuts: Sequence[Cut]) -> None:
        """:param count: how many the old ones are

        :param cuts: in order; they take up all the new ones, which are in the same order
        """
        self._count = count
        self._cuts = cuts
        self._pick: Integers | None = None
        if len(cuts) > FEW_CUTS:
            self._pick = self._pieces(np.arange(count), count + np.arange(self._new_count))

    @property
    def _new_count(self) -> int:
        return self._cuts[-1][3] if self._cuts else 0

    def of(self, old: Any, new: Any) -> Any:
        """Return an array with parts replaced, which cannot be written.

        Cost: a copy of it; nothing is sorted.
        """
        if self._pick is not None:
            return frozen(np.concatenate((old, new))[self._pick])
        return frozen(self._pieces(old, new))

    def _pieces(self, old: Any, new: Any) -> Any:
        at, pieces = 0, list[Any]()
        for start, stop, first, end in self._cuts:
            pieces += (old[at:start], new[first:end])
            at = stop
        return np.concatenate((*pieces, old[at:]))

    def listed(self, old: Sequence[T], new: Sequence[T]) -> tuple[T, ...]:
        """Return a sequence with parts replaced. Cost: a copy of it."""
        differ = [c for c in self._cuts if tuple(old[c[0] : c[1]]) != tuple(new[c[2] : c[3]])]
        if not differ:
            return tuple(old)
        found = list(old)
        if self._pick is not None:
            found += new
            return tuple([found[place] for place in self._pick.tolist()])
        for start, stop, first, end in reversed(differ):
            found[start:stop] = new[first:end]
        return tuple(found)

    def old(self) -> Integers:
        """Return where the old ones stand now, -1 for those that gave way."""
        at, moved, pieces = 0, 0, list[Integers]()
        for start, stop, first, end in self._cuts:
            pieces += (np.arange(at + moved, start + moved), np.full(stop - start, -1))
            at, moved = stop, moved + (end - first) - (stop - start)
        return np.concatenate((*pieces, np.arange(at + moved, self._count + moved)))

    def new(self) -> Integers:
        """Return where the new ones stand."""
        moved, pieces = 0, [integers(())]
        for start, stop, first, end in self._cuts:
            pieces.append(np.arange(start + moved, start + moved + end - first))
            moved += (end - first) - (stop - start)
        return np.concatenate(pieces)


class Moves:
    """The order of a fleet in which some trees of an old one are replaced by those of a new one.

    Trees stand in the order of the names of their hosts, as in every fleet; within a tree nothing
    moves. Places that are no more are -1.
    """

    def __init__(
        self,
        old: Sequence[str],
        new: Sequence[str],
        trees: tuple[Integers, Integers],
        gone: Sequence[int],
    ) -> None:
        """:param old: the names of the hosts of the old fleet

        :param new: those of the new one, none of which stays in the old one
        :param trees: of the providers of each
        :param gone: which trees of the old one are taken out, in order
        """
        #: trees of the old fleet that give way to trees of the new one
        self.cuts = _cuts(old, new, gone)
        self.trees = Splice(len(old), self.cuts)
        self.providers = Splice(len(trees[0]), self.within(*trees))
        #: the places of the providers of the old fleet, and of the new one
        self.old: Integers = self.providers.old()
        self.new: Integers = self.providers.new()
        #: the tree of each provider
        self.tree: Integers = self.providers.of(
            self.trees.old()[trees[0]], self.trees.new()[trees[1]]
        )

    def within(
        self, old: Integers, new: Integers, old_first: int = 0, new_first: int = 0
    ) -> list[Cut]:
        """Return the cuts of something that stands in the order of trees.

        :param old: the trees of the old ones, the first of which has the number ``old_first``
        """
        if not self.cuts:
            return []
        bounds = np.array(self.cuts)
        at = old.searchsorted(bounds[:, :2]) + old_first
        here = new.searchsorted(bounds[:, 2:]) + new_first
        return [(*a, *b) for a, b in zip(at.tolist(), here.tolist(), strict=True)]


def _cuts(old: Sequence[str], new: Sequence[str], gone: Sequence[int]) -> list[Cut]:
    """Return which trees give way to which."""
    # between two hosts of the old fleet is room for any number of new ones
    came = [bisect.bisect_left(old, name) for name in new]
    left = set(gone)
    cuts: list[Cut] = []
    for number, (at, name) in enumerate(zip(came, new, strict=True)):
        is_again = at in left and old[at] == name
        left -= {at} if is_again else set()
        cuts.append((at, at + is_again, number, number + 1))
    for tree in left:
        before = bisect.bisect_right(came, tree)
        cuts.append((tree, tree + 1, before, before))
    return sorted(cuts)
