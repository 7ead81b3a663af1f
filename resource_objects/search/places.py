"""The places of a fleet: what is near what, level by level.

A level is a part of every host, such as a NUMA cell or a socket, that some providers stand for. A
provider is in the place of the nearest provider at or above it that has the trait of the level.
The level ``numa`` has the trait ``HW_NUMA_ROOT``, and the host cells that discovery finds: there a
device says which cell it is next to, wherever it stands in the tree.

What else a host has is in none: its root, what is above a place or beside all of them. It is of the
host as a whole. A device is not: if it does not say its cell, nobody knows where it is
(:attr:`Places.is_lost`). Where a host has one place only, whatever is below it is there: there is
no other that it could be in.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from resource_objects.requests.request import CELLS, trait_of_level
from resource_objects.resources import resource
from resource_objects.resources.located import Identified
from resource_objects.search.arrays import Booleans, Integers, frozen
from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(frozen=True, eq=False)
class Places:
    """The places of one level, in the order of their trees."""

    fleet_hosts: tuple[str, ...]
    of: Integers  #: by provider: the number of its place, -1 for none
    is_lost: Booleans  #: by provider: a device of which nobody knows in which of some places it is
    tree: Integers  #: by place
    provider: Integers  #: by place: who stands for it, -1 if only devices say that it is there
    cell: Integers  #: by place: the id of the host cell, -1 if it is none that was discovered
    count: Integers  #: by tree, how many places it has

    def of_tree(self, tree: int) -> range:
        """Return the numbers of the places of a tree. Cost: two binary searches."""
        first, end = self.tree.searchsorted((tree, tree + 1)).tolist()
        return range(first, end)

    def __len__(self) -> int:
        return len(self.tree)

    def binds(self, tree: Integers, provider: Integers) -> Booleans:
        """Return the trees of which somebody among some providers is not of the host as a whole.

        :param tree: of each of them
        """
        found = np.zeros(len(self.fleet_hosts), dtype=np.bool_)
        found[tree[(self.of[provider] >= 0) | self.is_lost[provider]]] = True
        return found


def places_of(fleet: Fleet, level: str) -> Places:
    """Return the places of a level, made when they are first asked for.

    They depend on definitions alone, so a fleet in which something else is used has the same.

    Cost: some passes over the providers; where cells were discovered, some 30 microseconds for each
    host beside that, the first time.
    """
    known: dict[str, Places] = fleet.of_definitions.setdefault(Places, {})
    if level not in known:
        known[level] = _made(fleet, level)
    return known[level]


def _made(fleet: Fleet, level: str) -> Places:
    """Return the places: by a key for each, who stands for it or a number for each cell of a tree.

    What stands somewhere below a place is there; else a device is at the cell that it names.
    """
    count = len(fleet.names)
    key = np.where(fleet.having(fleet.traits, (trait_of_level(level),)), np.arange(count), -1)
    cells, devices = np.full(count, -1), np.full(count, -1)
    if level == CELLS:
        for kind, parts in fleet.parts.items():
            found = devices if _has_identity(kind) else cells
            for provider, description in parts.described():
                number = resource(kind).cell_of_part(description)
                found[provider] = -1 if number is None else number
    size = 1 + max(int(cells.max(initial=0)), int(devices.max(initial=0)))
    first = count + fleet.tree * size
    key = np.where(cells >= 0, first + cells, key)
    stands = key >= 0
    key = _inherited(fleet, key)
    if (devices >= 0).any():
        key = _inherited(fleet, np.where((key < 0) & (devices >= 0), first + devices, key))
    if fleet.above and fleet.within is not None and bool((key[list(fleet.above)] >= 0).any()):
        key[(key < 0) & (fleet.tree == fleet.within)] = count + len(fleet.hosts) * size
    cell = np.where((key >= first) & (key < first + size), key - first, -1)
    return _numbered(fleet, key, stands, cell)


def _has_identity(kind: str) -> bool:
    return issubclass(resource(kind).inventory_kind, Identified)


def _inherited(fleet: Fleet, key: Integers) -> Integers:
    """Return keys where who has none has that of the nearest above who has one."""
    for _ in range(1, fleet.height):
        key = np.where(key >= 0, key, key[fleet.parent])
    return key


def _numbered(fleet: Fleet, key: Integers, stands: Booleans, cell: Integers) -> Places:
    """Return the places of keys, numbered in the order of their trees.

    :param stands: by provider, whether it stands for its place
    :param cell: by provider, the id of the cell if its key is that of one
    """
    inside = np.flatnonzero(key >= 0)
    keys, at = np.unique(key[inside], return_index=True)
    some = inside[at]  # one of each place
    order = np.lexsort((keys, fleet.tree[some]))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    number = np.full(len(key), -1)
    number[inside] = rank[keys.searchsorted(key[inside])]
    tree = fleet.tree[some][order]
    count = np.bincount(tree, minlength=len(fleet.hosts))
    _put_the_rest(fleet, number, tree, count)
    provider = np.full(len(tree), -1)
    standing = np.flatnonzero(stands)
    provider[number[standing]] = standing
    is_lost = np.zeros(len(key), dtype=np.bool_)
    for parts in fleet.device_parts.values():
        is_lost[parts.provider] = True
    is_lost &= (number < 0) & (count[fleet.tree] > 0)
    arrays = (number, is_lost, tree, provider, cell[some][order], count)
    return Places(fleet.hosts, *map(frozen, arrays))


def _put_the_rest(fleet: Fleet, number: Integers, tree: Integers, count: Integers) -> None:
    """Put what nobody knows the place of there, where a tree has one place only."""
    is_whole = fleet.parent == np.arange(len(number))
    at = np.flatnonzero(number >= 0)
    for _ in range(1, fleet.height):
        at = fleet.parent[at]
        is_whole[at[number[at] < 0]] = True
    only = (number < 0) & ~is_whole & (count[fleet.tree] == 1)
    number[only] = tree.searchsorted(fleet.tree[only])
