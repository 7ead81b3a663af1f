"""Arrays that cannot be written, and what columns are on the way to them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

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


# --- moves --------------------------------------------------------------------------------------
# Where the providers of a fleet go when some of its trees are taken out and others put in.


T = TypeVar("T")


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
        gone: Booleans,
    ) -> None:
        """:param old: the names of the hosts of the old fleet
        :param new: those of the new one, none of which stays in the old one
        :param trees: of the providers of each
        :param gone: which trees of the old one are taken out
        """
        tree, new_tree = trees
        # between two hosts of the old fleet is room for any number of new ones
        stays = np.flatnonzero(~gone[tree])
        before = np.array([bisect.bisect_left(old, name) for name in new], dtype=np.int64)
        keys = np.concatenate((2 * tree[stays] + 1, 2 * before[new_tree]))
        here = np.concatenate((stays, len(tree) + np.arange(len(new_tree))))
        #: who stands where: a place of the old fleet, or one of the new one behind all of those
        self.pick: Integers = here[np.argsort(keys, kind="stable")]
        rank = np.full(len(tree) + len(new_tree), -1)
        rank[self.pick] = np.arange(len(self.pick))
        #: the places of the providers of the old fleet, and of the new one
        self.old: Integers = rank[: len(tree)]
        self.new: Integers = rank[len(tree) :]
        both = np.concatenate((tree, new_tree + len(old)))[self.pick]
        changes = np.ones(len(both), dtype=np.bool_)
        changes[1:] = both[1:] != both[:-1]
        #: the tree of each provider
        self.tree: Integers = frozen(np.cumsum(changes) - 1)
        at = np.full(len(old) + len(new), -1)
        at[both[changes]] = np.arange(np.count_nonzero(changes))
        #: the numbers of the trees of the old fleet, and of the new one
        self.old_tree: Integers = at[: len(old)]
        self.new_tree: Integers = at[len(old) :]

    def merged(self, old: Integers, new: Integers) -> Integers:
        """Return what each provider has."""
        found: Integers = frozen(np.concatenate((old, new))[self.pick])
        return found

    def listed(self, old: Sequence[T], new: Sequence[T]) -> tuple[T, ...]:
        """Return what each provider has, which is no number."""
        both = [*old, *new]
        return tuple([both[place] for place in self.pick.tolist()])

    def places(self, old: Integers, new: Integers) -> Integers:
        """Return some providers of the old fleet that stay, and some of the new one."""
        found = np.concatenate((self.old[old], self.new[new]))
        return found[found >= 0]
