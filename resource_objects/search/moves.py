"""Where the providers of a fleet go when some of its trees are taken out and others put in."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from resource_objects.search.arrays import Booleans, Integers, frozen

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
