"""The domains of topology levels: which providers of a host are near each other.

A level, such as ``numa`` or a socket, divides a host into domains. Each domain has a provider with
the trait of the level; providers below it are in the same domain. The level ``numa`` has the trait
``HW_NUMA_ROOT``, and the host cells that were discovered: a device is in the domain of the cell
that it names, wherever its provider is in the tree.

Other providers are in no domain: the root, providers above a domain or next to all of them. They
belong to the whole host. A device without a cell is an exception: its domain is unknown
(:attr:`TopologyLevel.is_unknown`). If a host has a single domain, everything below the root is in
that domain.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from resource_objects.requests.request import CELLS, trait_of_level
from resource_objects.resources import resource
from resource_objects.search.arrays import Booleans, Integers, frozen
from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(frozen=True, eq=False)
class TopologyLevel:
    """The domains of one level, in the order of their trees."""

    domain: Integers  #: by provider: the number of its domain, -1 for none
    is_unknown: Booleans  #: by provider: a device in an unknown one of several domains
    tree: Integers  #: by domain
    provider: Integers  #: by domain: its own provider, -1 if only devices name it
    cell: Integers  #: by domain: the id of the host cell, -1 for none
    count: Integers  #: by tree: the number of its domains

    def of_tree(self, tree: int) -> range:
        """Return the numbers of the domains of a tree. Cost: two binary searches."""
        first, end = self.tree.searchsorted((tree, tree + 1)).tolist()
        return range(first, end)

    def __len__(self) -> int:
        return len(self.tree)

    def binds(self, tree: Integers, provider: Integers) -> Booleans:
        """Return the trees in which some of the providers do not belong to the whole host.

        :param tree: of each of the providers
        """
        is_bound = np.zeros(len(self.count), dtype=np.bool_)
        is_bound[tree[(self.domain[provider] >= 0) | self.is_unknown[provider]]] = True
        return is_bound


def topology_level(fleet: Fleet, name: str) -> TopologyLevel:
    """Return the domains of a level, computed when they are first needed.

    Fleets of the same definitions share them. Cost: some passes over the providers.
    """
    levels: dict[str, TopologyLevel] = fleet.of_definitions.setdefault(TopologyLevel, {})
    if name not in levels:
        levels[name] = _level(fleet, name)
    return levels[name]


def _level(fleet: Fleet, name: str) -> TopologyLevel:
    """Return the domains from a key of each: its provider, or a number for each cell of a tree."""
    count = len(fleet.names)
    has_trait = fleet.having(fleet.traits, (trait_of_level(name),))
    cells, devices = np.full(count, -1), np.full(count, -1)
    if name == CELLS:
        for kind, parts in fleet.parts.items():
            named = devices if kind in fleet.device_parts else cells
            for provider, description in parts.described():
                number = resource(kind).cell_of_part(description)
                named[provider] = -1 if number is None else number
    size = 1 + max(int(cells.max(initial=0)), int(devices.max(initial=0)))
    first = count + fleet.tree * size
    key = np.where(has_trait, np.arange(count), -1)
    key = np.where(cells >= 0, first + cells, key)
    has_domain = key >= 0
    key = _inherited(fleet, key)
    if (devices >= 0).any():
        key = _inherited(fleet, np.where((key < 0) & (devices >= 0), first + devices, key))
    if fleet.above and fleet.within is not None and bool((key[list(fleet.above)] >= 0).any()):
        key[(key < 0) & (fleet.tree == fleet.within)] = count + len(fleet.hosts) * size
    cell = np.where((key >= first) & (key < first + size), key - first, -1)
    return _numbered(fleet, key, has_domain, cell)


def _inherited(fleet: Fleet, key: Integers) -> Integers:
    """Return keys in which a provider without a key has that of its nearest ancestor with one."""
    for _ in range(1, fleet.height):
        key = np.where(key >= 0, key, key[fleet.parent])
    return key


def _numbered(fleet: Fleet, key: Integers, has_domain: Booleans, cell: Integers) -> TopologyLevel:
    """Return the domains of keys, numbered in the order of their trees.

    :param has_domain: by provider, True for the own provider of a domain
    :param cell: by provider, the id of the cell if its key is that of a cell
    """
    inside = np.flatnonzero(key >= 0)
    keys, index = np.unique(key[inside], return_index=True)
    first = inside[index]  # a provider of each domain
    order = np.lexsort((keys, fleet.tree[first]))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    domain = np.full(len(key), -1)
    domain[inside] = rank[keys.searchsorted(key[inside])]
    tree = fleet.tree[first][order]
    count = np.bincount(tree, minlength=len(fleet.hosts))
    is_whole = _belongs_to_host(fleet, domain)
    is_single = (domain < 0) & ~is_whole & (count[fleet.tree] == 1)
    domain[is_single] = tree.searchsorted(fleet.tree[is_single])
    provider = np.full(len(tree), -1)
    places = np.flatnonzero(has_domain)
    provider[domain[places]] = places
    is_unknown = np.zeros(len(key), dtype=np.bool_)
    for parts in fleet.device_parts.values():
        is_unknown[parts.provider] = True
    is_unknown &= (domain < 0) & (count[fleet.tree] > 0)
    arrays = (domain, is_unknown, tree, provider, cell[first][order], count)
    return TopologyLevel(*map(frozen, arrays))


def _belongs_to_host(fleet: Fleet, domain: Integers) -> Booleans:
    """Return the roots, and the providers above a domain."""
    is_whole: Booleans = fleet.parent == np.arange(len(domain))
    places = np.flatnonzero(domain >= 0)
    for _ in range(1, fleet.height):
        places = fleet.parent[places]
        is_whole[places[domain[places] < 0]] = True
    return is_whole
