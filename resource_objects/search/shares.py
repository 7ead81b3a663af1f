"""What is taken in one place and used in another too, as arrays (D2).

Inventories are known by their numbers in :class:`~resource_objects.search.fleet.Fleet`. Shares do
not chain, so one pass tells what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.providers.columns import ShareColumns
from resource_objects.search.arrays import Integers, Places, frozen, integers

#: (inventory, factor): each unit taken uses ``factor`` of that one.
Link: TypeAlias = tuple[int, int]
#: Numbers of inventories by the places of their providers and their classes; -1 for none.
Find: TypeAlias = Callable[[Integers, "tuple[str, ...]"], Integers]


class Shares:
    """Parallel arrays, one entry per share, in the order of the sources. False if none."""

    __slots__ = ("_by_target", "factor", "source", "target", "targets")

    def __init__(self, source: Integers, target: Integers, factor: Integers) -> None:
        order = np.lexsort((target, source))
        #: inventory whose units use others
        self.source: Integers = frozen(source[order])
        #: inventory of which they are used
        self.target: Integers = frozen(target[order])
        self.factor: Integers = frozen(factor[order])
        #: inventories of which others are used, in order, each once
        self.targets: Integers = frozen(np.unique(target))
        self._by_target: tuple[Integers, Integers] | None = None

    def __bool__(self) -> bool:
        return bool(len(self.source))

    def entries(self, first: int, end: int) -> slice:
        """Return which entries are of the sources from ``first`` to before ``end``."""
        start, stop = self.source.searchsorted((first, end)).tolist()
        return slice(start, stop)

    def between(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Return ``(source, target, factor)`` of the sources from ``first`` to before ``end``."""
        here = self.entries(first, end)
        columns = (self.source[here], self.target[here], self.factor[here])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def into(self, inventory: int) -> list[Link]:
        """Return whose units use an inventory. Cost: the first time a sort, then two searches."""
        if self._by_target is None:  # two threads may both sort: the outcome is the same
            order = np.argsort(self.target, kind="stable")
            self._by_target = order, self.target[order]
        order, target = self._by_target
        start, stop = target.searchsorted((inventory, inventory + 1)).tolist()
        rows = order[start:stop]
        return list(zip(self.source[rows].tolist(), self.factor[rows].tolist(), strict=True))

    def left(self, free: Integers) -> Integers:
        """Return what can be taken of each inventory, when ``free`` is what each has itself."""
        if not self:
            return free
        found = free.copy()
        np.minimum.at(found, self.source, free[self.target] // self.factor)
        return found


def read(given: ShareColumns, place: Places, find: Find) -> Shares:
    """Return the shares that columns tell.

    :raises InvalidRow: if one is not between inventories of the columns
    """
    source = find(place.of(given.provider_id), tuple(given.resource_class))
    target = find(place.of(given.of_id), tuple(given.of_class))
    if bool((source < 0).any()) or bool((target < 0).any()):
        raise exceptions.InvalidRow("ShareColumns", "a share", "one between inventories")
    return Shares(source, target, integers(given.factor))
