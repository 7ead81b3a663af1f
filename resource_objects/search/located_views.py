"""The views of placed resources over the trees of a fleet.

A view decides which parts an amount of a placed resource is assigned to. It is assembled from the
rows of one tree when it is first needed. Fleets that have the same rows of a tree share its views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from resource_objects.providers.columns import Columns, UnitColumns
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.providers.tree_shape import NO_EXCLUSIONS, Exclusions, TreeShape
from resource_objects.search.arrays import Integers, integers
from resource_objects.search.fleet import Fleet
from resource_objects.search.fleet_io import columns_of


class View(NamedTuple):
    """The inventory of a placed resource over one tree."""

    kind: str  #: name of the resource
    located: LocatedView
    places: tuple[int, ...]  #: of the providers of its parts, in the order of these
    tree: int


class _TreeDefinition(NamedTuple):
    """The definition of a tree, in which the number of a provider is its place at that time."""

    shape: TreeShape
    root: int  #: the place of the root

    def inventories(self, fleet: Fleet, moved: int) -> Integers:
        """Return the numbers of its inventories in a fleet, in the order of their rows."""
        columns = self.shape.columns.inventories
        places = integers(columns.provider_id) + moved
        return fleet.by_class.find(columns.resource_class, places)

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
            for number, units_there in units.items()
            for unit in units_there
        )
        columns = self.shape.columns.inventories
        limited = (fleet.limited.get(n, 0) for n in self.inventories(fleet, moved).tolist())
        keys = zip(columns.provider_id, columns.resource_class, strict=True)
        by_limits = {key: amount for key, amount in zip(keys, limited, strict=True) if amount}
        return Exclusions(amounts, units, by_limits)


def _views_of_tree(fleet: Fleet, tree: int) -> tuple[LocatedViews, Exclusions, int]:
    """Return the views over a tree, the exclusions from them, and the move of its places.

    The move is added to the number of a provider in the views to get its place.
    """
    if fleet.above and tree == int(fleet.tree[fleet.above[0]]) and fleet.within is not None:
        tree = fleet.within
    root = int(fleet.tree.searchsorted(tree))
    key, cache = int(fleet.keys.at[root]), fleet.view_cache
    views = cache.changed.get(key)
    if views is None:
        views = cache.views
    if key not in views:
        views[key] = _assembled(fleet, tree, root, cache.definitions.get(key))
    definition, located = views[key]
    cache.definitions.setdefault(key, definition)
    moved = root - definition.root
    return located, definition.exclusions(fleet, moved), moved


def _assembled(
    fleet: Fleet, tree: int, root: int, definition: _TreeDefinition | None
) -> tuple[_TreeDefinition, LocatedViews]:
    """Return the views over a tree, with the definition that has the numbers of their parts."""
    if definition is not None:
        return definition, definition.views(fleet, root - definition.root)
    is_cut = tree == fleet.within and fleet.above  # its parts may be at what is above the cut
    trees = {tree, int(fleet.tree[fleet.above[0]])} if is_cut else {tree}
    located = LocatedViews(columns_of(fleet, trees, for_views=True))
    return _TreeDefinition(located.shape, root), located


def view_of(fleet: Fleet, kind: str, tree: int) -> View | None:
    """Return the view of a placed resource over a tree, None if the tree has no part of it.

    If a fleet is confined to a part of a tree, the view covers the whole tree. Cost: that of
    assembling it, the first time.

    :raises InvalidInventory: if the stored parts contradict each other
    """
    key = kind, tree
    if key not in fleet.views:
        fleet.views[key] = _view_of(fleet, kind, tree)
    view: View | None = fleet.views[key]
    return view


def _view_of(fleet: Fleet, kind: str, tree: int) -> View | None:
    parts = fleet.parts_of(kind)
    entries = parts.of_tree(tree)
    if entries.start == entries.stop:
        return None
    views, exclusions, moved = _views_of_tree(fleet, tree)
    root = views.shape.index.roots[int(parts.provider[entries.start]) - moved]
    located = views.excluding(root, kind, exclusions) if any(exclusions) else None
    located = located or views.of_tree(root, kind)
    assert located is not None, "a tree with parts has a view"
    return _view(kind, located, tree, moved)


def view_with_use(fleet: Fleet, view: View, used: Mapping[tuple[int, str], int]) -> View:
    """Return a view with further use, by the place of the provider and the resource class."""
    views, exclusions, moved = _views_of_tree(fleet, view.tree)
    amounts = Counter({(place - moved, name): count for (place, name), count in used.items()})
    amounts.update(exclusions.amounts)
    root = view.located.shape.root
    located = views.excluding(root, view.kind, exclusions._replace(amounts=amounts))
    return _view(view.kind, located, view.tree, moved)


def _view(kind: str, located: LocatedView, tree: int, moved: int) -> View:
    return View(kind, located, tuple([part.number + moved for part in located.parts]), tree)
