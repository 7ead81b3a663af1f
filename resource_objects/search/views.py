"""Inventories that lie over trees: who keeps their parts, as arrays, and the view over a tree.

The arrays are for looking at whole fleets at once. A view, which alone can say where an amount
goes, is gathered for a tree when it is first asked for, and kept: a snapshot does not change.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from resource_objects.providers.columns import Columns
from resource_objects.providers.located import Located, LocatedViews
from resource_objects.resources import resource
from resource_objects.search.arrays import Integers, Places, coded, frozen, integers


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The parts of one kind over the fleet, in the order of their providers: parallel arrays."""

    provider: Integers
    tree: Integers
    shape: Integers  #: which of :attr:`shapes` it is kept as
    shapes: tuple[tuple[str, ...], ...]  #: sets of classes

    def of_tree(self, tree: int) -> slice:
        """Return which parts are of a tree. Cost: two binary searches."""
        start, end = self.tree.searchsorted((tree, tree + 1))
        return slice(int(start), int(end))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class View:
    """An inventory over one tree, with the places of the providers of its parts."""

    root: int  #: the backend's number of the root
    kind: str
    located: Located
    places: tuple[int, ...]  #: of the providers, in the order of the spots


class Views:
    """The inventories that lie over trees. False if there are none."""

    __slots__ = ("__dict__", "_columns", "_number", "_place", "_views", "parts")

    def __init__(self, columns: Columns, place: Places, tree: Integers) -> None:
        self._place = place
        table = columns.kinds
        names = set(table.resource_class)
        kinds: dict[str, list[int]] = {kind: [] for kind in names if resource(kind).is_located}
        for row, kind in enumerate(table.resource_class):
            if kind in kinds:
                kinds[kind].append(row)
        #: the parts by kind
        self.parts: Mapping[str, Parts] = {
            kind: _parts(
                place.of([table.provider_id[row] for row in some]),
                [table.classes[row] for row in some],
                tree,
            )
            for kind, some in sorted(kinds.items())
        }
        self._columns = _copied(columns) if kinds else Columns()
        self._number = _numbers(columns, place) if kinds else ()
        self._views: dict[tuple[int, str], View] = {}

    def __bool__(self) -> bool:
        return bool(self.parts)

    def of(self, kind: str) -> Parts:
        """Return the parts of a kind, which may be none."""
        return self.parts.get(kind, NO_PARTS)

    def of_devices(self, provider: int, name: str) -> str | None:
        """Return the kind of devices whose parts are kept as a class there, None if there is none.

        :param provider: its place
        """
        for kind, parts in self._devices:
            row = int(parts.provider.searchsorted(provider))
            if row < len(parts.provider) and parts.provider[row] == provider:
                return kind if name in parts.shapes[parts.shape[row]] else None
        return None

    @functools.cached_property
    def _devices(self) -> tuple[tuple[str, Parts], ...]:
        return tuple(
            (kind, parts)
            for kind, parts in self.parts.items()
            if resource(kind).inventory_kind.of_devices
        )

    def of_tree(self, kind: str, tree: int) -> View | None:
        """Return the view over a tree, None if it keeps no part.

        A part of it may be of another tree, where the fleet is cut at a provider below the root.
        """
        if (tree, kind) not in self._views:
            parts = self.of(kind)
            here = parts.of_tree(tree)
            if here.start == here.stop:
                return None
            root = self._located.root_of(self._number[int(parts.provider[here.start])])
            found = self._located.of_tree(root, kind)
            assert found is not None, "a tree with parts has a view"
            self._views[tree, kind] = self._view(root, kind, found)
        return self._views[tree, kind]

    def beside(self, view: View, used: Mapping[tuple[int, str], int]) -> View:
        """Return a view with more in use, by the provider's place and class, through shares too."""
        more = {(self._number[place], name): count for (place, name), count in used.items()}
        return self._view(view.root, view.kind, self._located.beside(view.root, view.kind, more))

    def _view(self, root: int, kind: str, found: Located) -> View:
        places = self._place.of([spot.number for spot in found.spots])
        return View(root, kind, found, tuple(places.tolist()))

    @functools.cached_property
    def _located(self) -> LocatedViews:
        return LocatedViews(self._columns)


def _copied(columns: Columns) -> Columns:
    """Return columns that whoever made them cannot change."""
    names = [field.name for field in dataclasses.fields(columns) if field.name != "cursor"]
    tables = {name: getattr(columns, name) for name in names}
    copied: dict[str, Any] = {name: type(t)(*map(tuple, t)) for name, t in tables.items()}
    return Columns(**copied)


def _parts(provider: Integers, classes: Sequence[tuple[str, ...]], tree: Integers) -> Parts:
    order = np.argsort(provider, kind="stable")
    shapes, shape = coded(["\n".join(some) for some in classes])
    return Parts(
        frozen(provider[order]),
        frozen(tree[provider[order]]),
        frozen(shape[order]),
        tuple(tuple(name.split("\n")) for name in shapes),
    )


def _numbers(columns: Columns, place: Places) -> tuple[int, ...]:
    """Return the backend's numbers of the providers, by place."""
    given = integers(columns.providers.provider_id)
    found = np.empty_like(given)
    found[place.of(columns.providers.provider_id)] = given
    return tuple(found.tolist())


_NOTHING: Integers = frozen(integers(()))
NO_PARTS = Parts(_NOTHING, _NOTHING, _NOTHING, ())
