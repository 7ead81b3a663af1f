"""A fleet in which new trees replace others: they are spliced into its arrays.

Trees are contiguous in every array, so an array is copied in a few pieces. Only the new trees are
sorted and read. A refresh of a snapshot replaces trees in this way, and a scenario that changes
definitions. Places and numbers that no longer exist are -1.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from resource_objects.search.arrays import Integers, frozen, integers
from resource_objects.search.fleet import CLASS_COLUMNS, ClassRows, Fleet
from resource_objects.search.fleet_io import roots_and_depths
from resource_objects.search.relations import (
    NO_PARTS,
    PLACE_BITS,
    SHARING,
    Members,
    Parts,
    Pools,
    Shares,
)

T = TypeVar("T")

#: ``(start, stop, first, end)``: the old entries from ``start`` to before ``stop`` are replaced by
#: the new entries from ``first`` to before ``end``.
Cut: TypeAlias = tuple[int, int, int, int]


class Splice:
    """The replacement of parts of old arrays by parts of new ones.

    >>> splice = Splice(5, [(1, 3, 0, 1), (5, 5, 1, 3)])
    >>> splice.of(integers([10, 11, 12, 13, 14]), integers([90, 91, 92])).tolist()
    [10, 90, 13, 14, 91, 92]
    >>> splice.listed("abcde", "xyz")
    ('a', 'x', 'd', 'e', 'y', 'z')
    >>> [positions.tolist() for positions in splice.positions()]
    [[0, -1, -1, 2, 3], [1, 4, 5]]
    """

    __slots__ = ("_count", "_cuts")

    def __init__(self, count: int, cuts: Sequence[Cut]) -> None:
        """:param count: number of the old entries

        :param cuts: in order; together they have all new entries, in the order of these
        """
        self._count = count
        self._cuts = cuts

    def of(self, old: Any, new: Any) -> Any:
        """Return an array with parts replaced, which cannot be written. Cost: a copy of it."""
        return frozen(np.concatenate(list(self._pieces(old, new))))

    def listed(self, old: Sequence[T], new: Sequence[T]) -> tuple[T, ...]:
        """Return a sequence with parts replaced. Cost: a copy of it."""
        if all(tuple(old[a:b]) == tuple(new[c:d]) for a, b, c, d in self._cuts):
            return tuple(old)
        entries = list[T]()
        for piece in self._pieces(old, new):
            entries += piece
        return tuple(entries)

    def _pieces(self, old: Any, new: Any) -> Iterator[Any]:
        at = 0
        for start, stop, first, end in self._cuts:
            yield old[at:start]
            yield new[first:end]
            at = stop
        yield old[at:]

    def positions(self) -> tuple[Integers, Integers]:
        """Return the positions of the old entries after the replacement, and of the new ones.

        The position of a removed entry is -1.
        """
        count = self._count + (self._cuts[-1][3] if self._cuts else 0)
        sources = self.of(np.arange(self._count), np.arange(self._count, count))
        positions = np.full(count, -1)
        positions[sources] = np.arange(len(sources))
        return positions[: self._count], positions[self._count :]


class TreeSplice:
    """The replacement of trees of an old fleet by the trees of a new one.

    ``trees`` and ``providers`` are the splices of arrays by tree and by provider, ``old`` and
    ``new`` the places of the providers of both fleets after it, ``tree`` the tree of each provider.
    ``new_trees`` are the numbers of the trees of the new fleet.
    """

    def __init__(self, old: Fleet, new: Fleet, removed: Collection[int]) -> None:
        """:param removed: trees of the old fleet; the hosts of the new one are among them, or not
        in the old fleet"""
        self._cuts = _cuts(old.hosts, new.hosts, set(removed))
        self.trees = Splice(len(old.hosts), self._cuts)
        self.providers = Splice(len(old.tree), self.cuts(old.tree, new.tree))
        self.old, self.new = self.providers.positions()
        trees, self.new_trees = self.trees.positions()
        self.tree: Integers = self.providers.of(trees[old.tree], self.new_trees[new.tree])

    def cuts(
        self, old: Integers, new: Integers, old_first: int = 0, new_first: int = 0
    ) -> list[Cut]:
        """Return the cuts of arrays in the order of trees.

        :param old: the tree of each old entry, of which the first has the number ``old_first``
        """
        if not self._cuts:
            return []
        bounds = np.array(self._cuts)
        at = old.searchsorted(bounds[:, :2]) + old_first
        new_at = new.searchsorted(bounds[:, 2:]) + new_first
        return [(*a, *b) for a, b in zip(at.tolist(), new_at.tolist(), strict=True)]


def _cuts(old: Sequence[str], new: Sequence[str], removed: set[int]) -> list[Cut]:
    added = [bisect.bisect_left(old, name) for name in new]
    cuts: list[Cut] = []
    for number, (at, name) in enumerate(zip(added, new, strict=True)):
        is_replaced = at in removed and old[at] == name
        removed -= {at} if is_replaced else set()
        cuts.append((at, at + is_replaced, number, number + 1))
    for tree in removed:
        before = bisect.bisect_right(added, tree)
        cuts.append((tree, tree + 1, before, before))
    return sorted(cuts)


def with_trees(old: Fleet, new: Fleet, removed: Sequence[int]) -> Fleet:
    """Return a fleet without some trees of an old one, and with all trees of a new one.

    Cost: copies of all columns.

    :param removed: trees of the old fleet; the hosts of the new one are among them, or not in the
        old fleet
    """
    splice = TreeSplice(old, new, removed)
    providers = splice.providers
    keys = old.keys.spliced(providers.of, len(new.names))
    traits = old.traits.spliced(new.traits, splice.old, splice.new)
    aggregates = old.aggregates.spliced(new.aggregates, splice.old, splice.new)
    parent = providers.of(splice.old[old.parent], splice.new[new.parent])
    is_root = parent == np.arange(len(parent))
    inventories, by_class, shares = _inventories(old, new, splice)
    names = sorted({*old.stored_parts, *new.stored_parts})
    parts = {name: _parts(old, new, name, splice) for name in names}
    fleet = Fleet(
        names=providers.listed(old.names, new.names),
        uuids=providers.listed(old.uuids, new.uuids),
        generation=providers.of(old.generation, new.generation),
        parent=parent,
        tree=splice.tree,
        height=int(roots_and_depths(parent)[1].max(initial=-1)) + 1,
        hosts=splice.trees.listed(old.hosts, new.hosts),
        inventories=inventories,
        by_class=by_class,
        traits=traits,
        aggregates=aggregates,
        shares=shares,
        pools=Pools(aggregates, traits.get(SHARING, integers(())), splice.tree, is_root),
        allocations=old.allocations.spliced(new.allocations, keys, splice.old, splice.new),
        units=old.units.spliced(new.units, keys, splice.old, splice.new),
        stored_parts={name: table for name, table in parts.items() if len(table.provider)},
        keys=keys,
        disabled=_moved(old.disabled, new.disabled, splice),
        removed_units=_moved(old.removed_units, new.removed_units, splice),
    )
    views = old.view_cache.spliced(
        removed=frozenset(old.keys.at[old.roots[removed]].tolist()),
        added=fleet.view_keys(splice.new_trees.tolist()),
    )
    if "place_by_key" in vars(old) and fleet.names is old.names and fleet.uuids is old.uuids:
        return fleet.evolved(view_cache=views, place_by_key=old.place_by_key)
    return fleet.evolved(view_cache=views)


def _moved(old: Mapping[int, T], new: Mapping[int, T], splice: TreeSplice) -> Mapping[int, T]:
    """Return values by place."""
    stay = {int(splice.old[place]): value for place, value in old.items()}
    added = {int(splice.new[place]): value for place, value in new.items()}
    return {place: value for place, value in stay.items() if place >= 0} | added


def _inventories(old: Fleet, new: Fleet, splice: TreeSplice) -> tuple[ClassRows, Members, Shares]:
    """Return all inventories, their providers by class, and the shares."""
    was, now = old.inventories, new.inventories
    cuts: list[Cut] = []
    counts: dict[str, int] = {}
    at = new_at = 0
    for name in sorted({*old.by_class, *new.by_class}):
        rows, added = old.rows(name), new.rows(name)
        of_class = splice.cuts(rows.tree, added.tree, at, new_at)
        at, new_at = at + len(rows.tree), new_at + len(added.tree)
        count = len(rows.tree) + sum(d - c - (b - a) for a, b, c, d in of_class)
        if count:
            counts[name] = count
        cuts += of_class
    of_inventories = Splice(len(was.tree), cuts)
    provider = of_inventories.of(splice.old[was.provider], splice.new[now.provider])
    codes = np.repeat(np.arange(len(counts)), list(counts.values()))
    by_class = Members(counts, (codes << PLACE_BITS) + provider)
    columns: dict[str, Any] = {
        name: of_inventories.of(getattr(was, name), getattr(now, name))
        for name in CLASS_COLUMNS
        if name not in ("provider", "tree")
    }
    rows = ClassRows(provider=by_class.places, tree=frozen(splice.tree[provider]), **columns)
    return rows, by_class, _shares(old.shares, new.shares, of_inventories)


def _shares(old: Shares, new: Shares, splice: Splice) -> Shares:
    if not old and not new:
        return old
    was, now = splice.positions()
    source = np.concatenate((was[old.source], now[new.source]))
    target = np.concatenate((was[old.target], now[new.target]))
    factor = np.concatenate((old.factor, new.factor))
    stays = source >= 0
    return Shares(source[stays], target[stays], factor[stays])


def _parts(old: Fleet, new: Fleet, name: str, splice: TreeSplice) -> Parts:
    was, now = old.stored_parts.get(name, NO_PARTS), new.stored_parts.get(name, NO_PARTS)
    of_parts = Splice(len(was.tree), splice.cuts(was.tree, now.tree))
    shapes = sorted({*was.shapes, *now.shapes}, key="\n".join)
    number = {shape: code for code, shape in enumerate(shapes)}
    codes = [integers([number[s] for s in table.shapes])[table.shape] for table in (was, now)]
    used, shape = np.unique(of_parts.of(*codes), return_inverse=True)
    provider = of_parts.of(splice.old[was.provider], splice.new[now.provider])
    return Parts(
        provider,
        frozen(splice.tree[provider]),
        frozen(shape),
        tuple([shapes[code] for code in used.tolist()]),
        of_parts.listed(was.descriptions, now.descriptions),
    )
