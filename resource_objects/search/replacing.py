"""Other trees in the place of old ones, where definitions have changed: every array is made again.

Nothing is sorted or read again but what is new, so it is an order of magnitude cheaper than a fleet
from columns; and what comes out is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resource_objects.search import pools
from resource_objects.search.arrays import Booleans, Integers, frozen, integers, parts
from resource_objects.search.fleet import CLASS_COLUMNS, ClassRows, Fleet
from resource_objects.search.holders import Row, Rows, by_provider
from resource_objects.search.moves import Moves
from resource_objects.search.shares import Shares


def replaced(old: Fleet, new: Fleet, gone: Booleans) -> Fleet:
    """Return a fleet without some trees of an old one, and with all of a new one.

    :param gone: which trees of the old one it does not have; those of the new one are among them,
        or were not there

    Cost: linear in the old fleet, vectorised: 0.1 microseconds per provider and inventory.
    """
    moves = Moves(old.hosts, new.hosts, (old.tree, new.tree), gone)
    parent = frozen(np.concatenate((moves.old[old.parent], moves.new[new.parent]))[moves.pick])
    is_root = parent == np.arange(len(parent))
    names = moves.listed(old.names, new.names)
    traits = _members(old.traits, new.traits, moves)
    aggregates = _members(old.aggregates, new.aggregates, moves)
    rows, classes, shares = _inventories(old, new, moves, is_root)
    sharing = traits.get(pools.SHARING, integers(()))
    return Fleet(
        names=names,
        uuids=moves.listed(old.uuids, new.uuids),
        generation=moves.merged(old.generation, new.generation),
        parent=parent,
        tree=moves.tree,
        height=_height(parent),
        hosts=tuple([names[place] for place in np.flatnonzero(is_root).tolist()]),
        inventories=rows,
        classes=classes,
        traits=traits,
        aggregates=aggregates,
        shares=shares,
        pools=pools.of_members(aggregates, sharing, moves.tree, is_root),
        allocations=old.allocations.moved(moves.old).changed(_placed(new.allocations, moves)),
        units=old.units.moved(moves.old).changed(_placed(new.units, moves)),
        views=old.views.replaced(new.views, moves),
    )


def _height(parent: Integers) -> int:
    """Return how many providers are on the longest way down. Cost: one pass per level."""
    if not len(parent):
        return 0
    height, at = 1, np.arange(len(parent))
    while not np.array_equal(above := parent[at], at):
        height, at = height + 1, above
    return height


def _members(
    old: Mapping[str, Integers], new: Mapping[str, Integers], moves: Moves
) -> dict[str, Integers]:
    """Return who has what, by name, each in order."""
    found: dict[str, Integers] = {}
    nobody = integers(())
    for name in sorted(old.keys() | new.keys()):
        having = np.sort(moves.places(old.get(name, nobody), new.get(name, nobody)))
        if len(having):
            found[name] = frozen(having)
    return found


def _placed(new: Rows, moves: Moves) -> dict[int, tuple[Row, ...]]:
    """Return the rows of the new trees, also where there are none, by their places."""
    at = moves.new.tolist()
    return {**dict.fromkeys(at, ()), **{at[p]: rows for p, rows in by_provider(new.all()).items()}}


def _inventories(
    old: Fleet, new: Fleet, moves: Moves, is_root: Booleans
) -> tuple[ClassRows, dict[str, ClassRows], Shares]:
    """Return all inventories, the same by class, and what they share."""
    was, now = old.inventories, new.inventories
    codes = {name: code for code, name in enumerate(sorted({*old.classes, *new.classes}))}
    provider = np.concatenate((moves.old[was.provider], moves.new[now.provider]))
    code = np.concatenate((_codes(old, codes), _codes(new, codes)))
    here = np.flatnonzero(provider >= 0)
    order = np.argsort((code * len(is_root) + provider)[here], kind="stable")
    here = here[order]
    provider, code = provider[here], code[here]
    columns: dict[str, Any] = {
        name: frozen(np.concatenate((getattr(was, name), getattr(now, name)))[here])
        for name in CLASS_COLUMNS
        if name not in ("provider", "tree")
    }
    rows = ClassRows(provider=frozen(provider), tree=frozen(moves.tree[provider]), **columns)
    classes = {
        name: rows.part(entries)
        for name, entries in parts(codes, code)
        if entries.stop > entries.start
    }
    rank = np.full(len(was.tree) + len(now.tree), -1)
    rank[here] = np.arange(len(here))
    return rows, classes, _shares(old.shares, new.shares, rank, len(was.tree))


def _codes(fleet: Fleet, codes: Mapping[str, int]) -> Integers:
    """Return the code of the class of each inventory."""
    sizes = [len(rows.tree) for rows in fleet.classes.values()]
    return np.repeat(integers([codes[name] for name in fleet.classes]), sizes)


def _shares(old: Shares, new: Shares, rank: Integers, first: int) -> Shares:
    """Return the shares of the trees that stay and of those that come.

    :param rank: the new number of each inventory, ``first`` being the first that comes; -1 for none
    """
    source = rank[np.concatenate((old.source, new.source + first))]
    target = rank[np.concatenate((old.target, new.target + first))]
    factor = np.concatenate((old.factor, new.factor))
    stays = source >= 0
    return Shares(source[stays], target[stays], factor[stays])
