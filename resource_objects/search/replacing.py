"""Other trees in the place of some of a fleet: what is new is spliced in.

Trees stand together in every array, so an array is copied in a few pieces; nothing is sorted or
read again but what is new. Both who keeps a picture fresh and who tries a change of definitions in
a scenario come here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from resource_objects.search.arrays import Cut, Integers, Moves, Splice, frozen, integers
from resource_objects.search.fleet import (
    CLASS_COLUMNS,
    NO_ROWS,
    PLACE_BITS,
    SHARING,
    ClassRows,
    Fleet,
    FleetShares,
    Members,
    pools_of_members,
)
from resource_objects.search.holders import Row, Rows, by_provider
from resource_objects.search.located_views import NO_PARTS, Parts

_D = TypeVar("_D")


def replaced(old: Fleet, new: Fleet, gone: Sequence[int]) -> Fleet:
    """Return a fleet without some trees of an old one, and with all of a new one.

    :param gone: which trees of the old one it does not have, in order; those of the new one are
        among them, or were not there

    Cost: copies of all columns.
    """
    moves = Moves(old.hosts, new.hosts, (old.tree, new.tree), gone)
    splice = moves.providers
    keys = old.keys.spliced(splice, len(new.names))
    traits = _members(old.traits, new.traits, moves)
    aggregates = _members(old.aggregates, new.aggregates, moves)
    parent = splice.of(moves.old[old.parent], moves.new[new.parent])
    is_root = parent == np.arange(len(parent))
    rows, classes, shares = _spliced_inventories(old, new, moves)
    left = np.flatnonzero(moves.old < 0)
    fleet = Fleet(
        names=splice.listed(old.names, new.names),
        uuids=splice.listed(old.uuids, new.uuids),
        generation=splice.of(old.generation, new.generation),
        parent=parent,
        tree=moves.tree,
        height=_height(parent),
        hosts=moves.trees.listed(old.hosts, new.hosts),
        inventories=rows,
        classes=classes,
        traits=traits,
        aggregates=aggregates,
        shares=shares,
        pools=pools_of_members(aggregates, traits.get(SHARING, integers(())), moves.tree, is_root),
        allocations=old.allocations.spliced(keys, left, _rows_of(new.allocations, moves.new)),
        units=old.units.spliced(keys, left, _rows_of(new.units, moves.new)),
        stored_parts=_parts(old.stored_parts, new.stored_parts, moves),
        keys=keys,
        disabled=_moved(old.disabled, new.disabled, moves),
        removed_units=_moved(old.removed_units, new.removed_units, moves),
    )
    with_parts = [parts.tree for parts in new.parts.values()]
    added = moves.new[new.roots[np.unique(np.concatenate((integers(()), *with_parts)))]]
    removed = old.keys.at[old.roots[gone]].tolist()
    fleet.__dict__["view_cache"] = old.view_cache.spliced(set(removed), keys.at[added].tolist())
    return fleet


def _parts(old: Mapping[str, Parts], new: Mapping[str, Parts], moves: Moves) -> Mapping[str, Parts]:
    names = sorted({*old, *new})
    found = {n: old.get(n, NO_PARTS).spliced(new.get(n, NO_PARTS), moves) for n in names}
    return {name: parts for name, parts in found.items() if len(parts.provider)}


def _moved(old: Mapping[int, _D], new: Mapping[int, _D], moves: Moves) -> Mapping[int, _D]:
    """Return values by place, of the trees that stay and of the new ones."""
    stay = {int(moves.old[place]): value for place, value in old.items()}
    come = {int(moves.new[place]): value for place, value in new.items()}
    return {place: value for place, value in stay.items() if place >= 0} | come


def _height(parent: Integers) -> int:
    """Return how many providers are on the longest way down. Cost: one pass per level."""
    if not len(parent):
        return 0
    height, at = 1, np.arange(len(parent))
    while not np.array_equal(above := parent[at], at):
        height, at = height + 1, above
    return height


def _members(old: Members, new: Members, moves: Moves) -> Members:
    """Return who has what."""
    number = old.number
    if any(name not in number for name in new):
        number = {name: n for n, name in enumerate(sorted({*old, *new}))}
    both = []
    for table, places in ((old, moves.old), (new, moves.new)):
        codes = np.arange(len(table))
        if table.number is not number:
            codes = integers([number[name] for name in table])
        at = places[table.places]
        both.append(((np.repeat(codes, table.sizes) << PLACE_BITS) + at)[at >= 0])
    keys = np.insert(both[0], both[0].searchsorted(both[1]), both[1])
    sizes = np.bincount(keys >> PLACE_BITS, minlength=len(number))
    if not sizes.all():  # nobody has it any more
        kept = [name for name, size in zip(number, sizes.tolist(), strict=True) if size]
        number, sizes = {name: n for n, name in enumerate(kept)}, sizes[sizes > 0]
    return Members(number, sizes, keys & ((1 << PLACE_BITS) - 1))


def _spliced_inventories(
    old: Fleet, new: Fleet, moves: Moves
) -> tuple[ClassRows, dict[str, ClassRows], FleetShares]:
    """Return all inventories, the same by class, and what they share."""
    was, now = old.inventories, new.inventories
    cuts: list[Cut] = []
    ends: dict[str, slice] = {}
    at = here = first = 0
    for name in sorted({*old.classes, *new.classes}):
        rows, more = old.classes.get(name, NO_ROWS), new.classes.get(name, NO_ROWS)
        some = moves.within(rows.tree, more.tree, at, here)
        at, here = at + len(rows.tree), here + len(more.tree)
        cuts += some
        end = first + len(rows.tree) + sum(d - c - (b - a) for a, b, c, d in some)
        ends[name] = slice(first, end)
        first = end
    splice = Splice(len(was.tree), cuts)
    provider = splice.of(moves.old[was.provider], moves.new[now.provider])
    columns: dict[str, Any] = {
        name: splice.of(getattr(was, name), getattr(now, name))
        for name in CLASS_COLUMNS
        if name not in ("provider", "tree")
    }
    rows = ClassRows(provider=provider, tree=frozen(moves.tree[provider]), **columns)
    classes = {name: rows.part(some) for name, some in ends.items() if some.stop > some.start}
    return rows, classes, _shares(old.shares, new.shares, splice)


def _shares(old: FleetShares, new: FleetShares, splice: Splice) -> FleetShares:
    """Return the shares of the trees that stay and of those that come."""
    if not old and not new:
        return old
    was, now = splice.old(), splice.new()
    source = np.concatenate((was[old.source], now[new.source]))
    target = np.concatenate((was[old.target], now[new.target]))
    factor = np.concatenate((old.factor, new.factor))
    stays = source >= 0
    return FleetShares(source[stays], target[stays], factor[stays])


def _rows_of(new: Rows, places: Integers) -> dict[int, tuple[Row, ...]]:
    """Return the rows of the new trees by the old places, also where there are none."""
    at = places.tolist()
    found: dict[int, tuple[Row, ...]] = dict.fromkeys(at, ())
    for provider, rows in by_provider(new.all()).items():
        found[at[provider]] = rows
    return found
