"""The stored parts of structured inventories over a fleet, and the views over its trees.

Arrays of parts serve conditions on many trees at once. A view, which decides where an amount of a
placed resource goes, is assembled from the rows of one tree when it is first needed. Fleets that
have the same rows of a tree share its views, whatever else differs between them.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from resource_objects.providers.columns import Columns, KindColumns, UnitColumns
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.providers.tree_shape import NO_EXCLUSIONS, Exclusions, TreeShape
from resource_objects.search.arrays import Integers, Overlay, PlaceIndex, coded, frozen, integers

if TYPE_CHECKING:
    from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The parts of one structured resource, by provider: parallel arrays, one entry each."""

    provider: Integers
    tree: Integers
    shape: Integers  #: index into :attr:`shapes`
    shapes: tuple[tuple[str, ...], ...]  #: different sets of resource classes, sorted
    descriptions: tuple[str, ...]

    def of_tree(self, tree: int) -> slice:
        """Return the entries of a tree. Cost: two binary searches."""
        start, end = self.tree.searchsorted((tree, tree + 1))
        return slice(int(start), int(end))

    def described(self) -> Iterator[tuple[int, str]]:
        """Return the places of the providers, each with the description of its part."""
        return zip(self.provider.tolist(), self.descriptions, strict=True)

    def classes_at(self, provider: int) -> tuple[str, ...]:
        """Return the resource classes of the part that a provider stores, () if it stores none."""
        entry = int(self.provider.searchsorted(provider))
        is_stored = entry < len(self.provider) and self.provider[entry] == provider
        return self.shapes[self.shape[entry]] if is_stored else ()


_NOTHING: Integers = frozen(integers(()))
NO_PARTS = Parts(_NOTHING, _NOTHING, _NOTHING, (), ())


def read_parts(kinds: KindColumns, place: PlaceIndex, tree: Integers) -> dict[str, Parts]:
    """Return the parts by the name of their structured resource, which may have no placement.

    :param tree: of each provider
    """
    rows: dict[str, list[int]] = {name: [] for name in sorted(set(kinds.resource_class))}
    for row, name in enumerate(kinds.resource_class):
        rows[name].append(row)
    parts: dict[str, Parts] = {}
    for name, numbers in rows.items():
        provider = place.of([kinds.provider_id[row] for row in numbers])
        order = np.argsort(provider, kind="stable")
        numbers = [numbers[entry] for entry in order.tolist()]
        shapes, shape = coded(["\n".join(kinds.classes[row]) for row in numbers])
        parts[name] = Parts(
            frozen(provider[order]),
            frozen(tree[provider[order]]),
            frozen(shape),
            tuple(tuple(classes.split("\n")) for classes in shapes),
            tuple([kinds.body[row] for row in numbers]),
        )
    return parts


class View(NamedTuple):
    """The inventory of a placed resource over one tree."""

    kind: str  #: name of the resource
    located: LocatedView
    places: tuple[int, ...]  #: of the providers of its parts, in the order of these
    tree: int


class _TreeDefinition:
    """The definition of one tree, in which the number of a provider is its place at that time."""

    __slots__ = ("_providers", "root", "shape")

    def __init__(self, shape: TreeShape, root: int) -> None:
        """:param root: the place of the root"""
        self.root = root
        self.shape = shape
        columns = self.shape.columns.inventories
        rows = zip(columns.resource_class, columns.provider_id, strict=True)
        self._providers = [
            (name, integers([number for _, number in group]))
            for name, group in itertools.groupby(rows, operator.itemgetter(0))
        ]

    def inventories(self, fleet: Fleet, moved: int) -> Integers:
        """Return the numbers of its inventories in a fleet, in the order of their rows."""
        found = [integers(())]
        for name, providers in self._providers:
            rows = fleet.rows(name)
            found.append(rows.provider.searchsorted(providers + moved) + rows.first)
        return np.concatenate(found)

    def views(self, fleet: Fleet, moved: int) -> LocatedViews:
        """Return the views with the usage in a fleet."""
        used = fleet.inventories.used[self.inventories(fleet, moved)]
        numbers = sorted({number for parts in self.shape.parts.values() for number, _ in parts})
        units = [
            (number, *row) for number in numbers for row in fleet.units.of_provider(number + moved)
        ]
        inventories = self.shape.columns.inventories._replace(used=used.tolist())
        columns = Columns(inventories=inventories, units=UnitColumns(*zip(*units, strict=True)))
        return LocatedViews(columns, shape=self.shape)

    def exclusions(self, fleet: Fleet, moved: int) -> Exclusions:
        """Return the free amounts and units of the tree that are not to be allocated in a fleet."""
        if not fleet.limited and not fleet.free_removed_units:
            return NO_EXCLUSIONS
        providers = self.shape.index.uuids
        units = {n: units for n in providers if (units := fleet.free_removed_units.get(n + moved))}
        amounts = Counter(
            (number, fleet.removed_units[number + moved][unit])
            for number, some in units.items()
            for unit in some
        )
        columns = self.shape.columns.inventories
        limited = (fleet.limited.get(n, 0) for n in self.inventories(fleet, moved).tolist())
        keys = zip(columns.provider_id, columns.resource_class, strict=True)
        by_limits = {key: amount for key, amount in zip(keys, limited, strict=True) if amount}
        return Exclusions(amounts, units, by_limits)


_Entry: TypeAlias = "tuple[_TreeDefinition, LocatedViews]"


class ViewCache:
    """The views that were assembled over the trees of a fleet, by the key of the root of each.

    Fleets with other usage share the definitions, and the views over each tree of which they have
    the same usage. Threads may share a cache: two of them may assemble equal views.
    """

    __slots__ = ("_changed", "_definitions", "_views")

    def __init__(self, definitions: dict[int, _TreeDefinition] | None = None) -> None:
        self._definitions = {} if definitions is None else definitions
        #: with the definitions that have the numbers of their parts
        self._views: dict[int, _Entry] = {}
        #: in place of ``_views`` for each tree whose usage changed, or that was added
        self._changed: Overlay[int, dict[int, _Entry]] = Overlay({})

    def after(self, changed: Collection[int]) -> ViewCache:
        """Return a cache without the views over some trees. Cost: linear in these."""
        if not changed:
            return self
        cache = ViewCache(self._definitions)
        cache._views, cache._changed = self._views, self._changed.with_({k: {} for k in changed})
        return cache

    def spliced(self, removed: Collection[int], added: Collection[int]) -> ViewCache:
        """Return a cache without some trees, and for new trees. Cost: linear in what is cached."""
        cache = ViewCache({k: d for k, d in self._definitions.items() if k not in removed})
        cache._views, cache._changed = self._views, self._changed.with_({k: {} for k in added})
        return cache

    def without_usage(self) -> ViewCache:
        """Return a cache for fleets of the same definitions, whatever their usage."""
        return ViewCache(self._definitions)

    def of_tree(self, fleet: Fleet, tree: int) -> tuple[LocatedViews, Exclusions, int]:
        """Return the views over a tree, what is excluded from them, and the move of its places.

        The move is added to the number of a provider in the views to get its place.
        """
        if fleet.above and tree == int(fleet.tree[fleet.above[0]]) and fleet.within is not None:
            tree = fleet.within
        root = int(fleet.tree.searchsorted(tree))
        key = int(fleet.keys.at[root])
        changed = self._changed.get(key)
        views = self._views if changed is None else changed
        entry = views.get(key)
        if entry is None:
            definition = self._definitions.get(key)
            if definition is None:
                located = _read_views(fleet, tree)
                definition = _TreeDefinition(located.shape, root)
            else:
                located = definition.views(fleet, root - definition.root)
            entry = views[key] = definition, located
        definition, located = entry
        self._definitions.setdefault(key, definition)
        moved = root - definition.root
        return located, definition.exclusions(fleet, moved), moved


def _read_views(fleet: Fleet, tree: int) -> LocatedViews:
    from resource_objects.search.fleet_io import columns_of  # it needs this module

    is_cut = tree == fleet.within and fleet.above  # its parts may be at what is above the cut
    trees = {tree, int(fleet.tree[fleet.above[0]])} if is_cut else {tree}
    return LocatedViews(columns_of(fleet, trees, for_views=True))


def view_of(fleet: Fleet, kind: str, tree: int) -> View | None:
    """Return the view of a placed resource over a tree, None if the tree has no part of it.

    Where a fleet is confined to a part of a tree, the view covers the whole tree.

    :raises InvalidInventory: if the stored parts contradict each other
    """
    parts = fleet.parts.get(kind, NO_PARTS)
    here = parts.of_tree(tree)
    if here.start == here.stop:
        return None
    views, exclusions, moved = fleet.view_cache.of_tree(fleet, tree)
    root = views.shape.index.roots[int(parts.provider[here.start]) - moved]
    found = views.excluding(root, kind, exclusions) if any(exclusions) else None
    found = found or views.of_tree(root, kind)
    assert found is not None, "a tree with parts has a view"
    return _view(kind, found, tree, moved)


def view_beside(fleet: Fleet, view: View, used: Mapping[tuple[int, str], int]) -> View:
    """Return a view with further use, by the place of the provider and the resource class."""
    views, exclusions, moved = fleet.view_cache.of_tree(fleet, view.tree)
    amounts = Counter({(place - moved, name): count for (place, name), count in used.items()})
    amounts.update(exclusions.amounts)
    root = view.located.shape.root
    found = views.excluding(root, view.kind, exclusions._replace(amounts=amounts))
    return _view(view.kind, found, view.tree, moved)


def _view(kind: str, located: LocatedView, tree: int, moved: int) -> View:
    return View(kind, located, tuple([part.number + moved for part in located.parts]), tree)
