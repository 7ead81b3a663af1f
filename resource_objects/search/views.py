"""Inventories that lie over trees: who keeps their parts, as arrays, and the view over a tree.

The arrays are for looking at whole fleets at once. A view, which alone can say where an amount
goes, is gathered for a tree when it is first asked for, and kept: a snapshot does not change. What
was gathered for a tree is kept by the snapshots that come after it too, until the tree is touched.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from resource_objects.providers import dry_run
from resource_objects.providers.columns import AllocationColumns, Columns, UnitColumns
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.providers.orders import Change
from resource_objects.providers.tree_shape import Exclusions
from resource_objects.resources import resource
from resource_objects.resources.located import Identified
from resource_objects.search.arrays import (
    Integers,
    Keys,
    Moves,
    Overlay,
    PlaceIndex,
    Splice,
    coded,
    frozen,
    integers,
)


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
    located: LocatedView
    places: tuple[int, ...]  #: of the providers, in the order of the spots
    tree: int


#: How much of a tree counts as in use besides, by the place of the provider and the class.
HeldBack: TypeAlias = Callable[[int], Mapping[tuple[int, str], int]]
#: Which units of a tree are not given, by the place of the provider.
UnitsOut: TypeAlias = Callable[[int], Mapping[int, frozenset[str]]]


def _nothing_back(tree: int) -> Mapping[tuple[int, str], int]:
    return {}


def _nothing_out(tree: int) -> Mapping[int, frozenset[str]]:
    return {}


class Views:
    """The inventories that lie over trees. False if there are none."""

    __slots__ = (
        *("__dict__", "_before", "_changed", "_held_back", "_keys", "_limited", "_out"),
        *("_source", "_tree", "_views", "parts"),
    )

    def __init__(self, columns: Columns, place: PlaceIndex, tree: Integers, keys: Keys) -> None:
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
        self._tree, self._keys = tree, keys
        self._source = _Source.of(columns, place) if names else None
        #: sources of trees that were read again, by the key of the root, which is at 0 there
        self._changed: Overlay[int, _Source] = Overlay({})
        self._views: dict[tuple[int, str], View] = {}
        #: the views without what is held back here; None: nothing is
        self._before: Views | None = None
        #: which units of a tree are not given, and how many that are
        self._out: UnitsOut = _nothing_out
        self._held_back: HeldBack = _nothing_back
        #: how much limits hold back of a tree
        self._limited: HeldBack = _nothing_back

    def __bool__(self) -> bool:
        return bool(self.parts)

    def of(self, kind: str) -> Parts:
        """Return the parts of a kind, which may be none."""
        return self.parts.get(kind, NO_PARTS)

    def described(self, kind: str) -> Iterator[tuple[int, str]]:
        """Yield the places of the providers of a kind's parts, each with its description.

        Cost: some 20 microseconds for each tree that has some.
        """
        parts = self.of(kind)
        first = np.flatnonzero(np.diff(parts.tree, prepend=-1))
        for tree, provider in zip(
            parts.tree[first].tolist(), parts.provider[first].tolist(), strict=True
        ):
            source, moved = self._source_of(tree)
            numbers, texts = source.located.described(source.root_of(provider - moved), kind)
            places = source.place.of(numbers) + moved
            yield from zip(places.tolist(), texts, strict=True)

    def of_devices(self, provider: int, name: str) -> str | None:
        """Return the kind of devices whose parts are kept as a class there, None if there is none.

        :param provider: its place
        """
        for kind, parts in self.devices:
            row = int(parts.provider.searchsorted(provider))
            if row < len(parts.provider) and parts.provider[row] == provider:
                return kind if name in parts.shapes[parts.shape[row]] else None
        return None

    @functools.cached_property
    def devices(self) -> tuple[tuple[str, Parts], ...]:
        """The kinds whose units are known one by one, with their parts."""
        return tuple(
            (kind, parts)
            for kind, parts in self.parts.items()
            if issubclass(resource(kind).inventory_kind, Identified)
        )

    def of_tree(self, kind: str, tree: int) -> View | None:
        """Return the view over a tree, None if it keeps no part.

        A part of it may be of another tree, where the fleet is cut at a provider below the root.
        """
        if (tree, kind) not in self._views and self._before is not None:
            view = self._before.of_tree(kind, tree)
            if view is None or not (self._held_back(tree) or self._limited(tree)):
                return view
            self._views[tree, kind] = self.beside(view, {})
        if (tree, kind) not in self._views:
            parts = self.of(kind)
            here = parts.of_tree(tree)
            if here.start == here.stop:
                return None
            source, moved = self._source_of(tree)
            root = source.root_of(int(parts.provider[here.start]) - moved)
            found = source.located.of_tree(root, kind)
            assert found is not None, "a tree with parts has a view"
            self._views[tree, kind] = self._view(root, kind, found, tree)
        return self._views[tree, kind]

    def beside(self, view: View, used: Mapping[tuple[int, str], int]) -> View:
        """Return a view with more in use, by the provider's place and class, through shares too."""
        source, moved = self._source_of(view.tree)

        def numbered(counts: Mapping[tuple[int, str], int]) -> Counter[tuple[int, str]]:
            rows = ((int(source.number[p - moved]), name, n) for (p, name), n in counts.items())
            return Counter({(number, name): count for number, name, count in rows})

        more = numbered(self._held_back(view.tree))
        more.update(numbered(used))
        gone = self._out(view.tree)
        out = {int(source.number[place - moved]): units for place, units in gone.items()}
        limited = numbered(self._limited(view.tree))
        found = source.located.excluding(view.root, view.kind, Exclusions(more, out, limited))
        return self._view(view.root, view.kind, found, view.tree)

    def unheld(self) -> Views:
        """Return them as if nobody held anything, and all of it were in service.

        Cost: linear in the rows that were read, vectorised in none of them.
        """
        found = self._like(self.parts, self._tree, self._keys, {})
        found._source = None if self._source is None else self._source.unheld()
        found._changed = Overlay({root: one.unheld() for root, one in self._changed.items()})
        return found

    def without_units(self, out: UnitsOut, counts: HeldBack) -> Views:
        """Return them as if some units were not there.

        :param out: which units of a tree
        :param counts: how many of a tree that are
        """
        found = self._holding_back()
        found._out, found._held_back = out, counts
        return found

    def under_limits(self, held_back: HeldBack) -> Views:
        """Return them with less of some inventories to be had, whichever units these are.

        It is of these inventories alone, not of what they use too; units that are not given here
        stay so.

        :param held_back: how much of a tree limits hold back
        """
        found = self._holding_back()
        found._limited = held_back
        return found

    def _holding_back(self) -> Views:
        found = self._like(self.parts, self._tree, self._keys, {})
        found._before = self
        found._out, found._held_back = self._out, self._held_back
        found._limited = self._limited
        return found

    def _view(self, root: int, kind: str, found: LocatedView, tree: int) -> View:
        source, moved = self._source_of(tree)
        places = source.place.of([spot.number for spot in found.parts]) + moved
        return View(root, kind, found, tuple(places.tolist()), tree)

    def kinds(self, tree: int) -> Iterator[tuple[int, str, tuple[str, ...], str]]:
        """Yield (place, kind, classes, description) of what a tree keeps beside its figures.

        Also of kinds that lie over no tree. Cost: linear in the tree, and the first time in the
        rows that were read.
        """
        root, end = self._tree.searchsorted((tree, tree + 1)).tolist()
        key = int(self._keys.at[root])
        source, moved = self._changed.get(key), root
        if source is None:
            source, moved = self._source, root - key
            if source is None or key >= len(source.number):  # it came later, and keeps nothing
                return
        own = source.kinds_of
        for place in range(root, end):
            for kind, classes, body in own.get(int(source.number[place - moved]), ()):
                yield place, kind, classes, body

    def _source_of(self, tree: int) -> tuple[_Source, int]:
        """Return where a tree was read, and how far its providers have moved since."""
        root = int(self._tree.searchsorted(tree))
        key = int(self._keys.at[root])
        source = self._changed.get(key)
        if source is not None:
            return source, root
        assert self._source is not None, "there are views"
        return self._source, root - key  # a key was the place when everything was read

    # --- refreshed ---

    def after(self, changes: Mapping[int, Sequence[Change]]) -> Views:
        """Return them after changes of what consumers hold, by tree.

        Cost: linear in these trees, and the first time in the rows that were read.
        """
        touched: dict[int, _Source] = {}
        for tree, some in changes.items():
            here = [parts.of_tree(tree) for parts in self.parts.values()]
            if any(one.start < one.stop for one in here):
                start, end = self._tree.searchsorted((tree, tree + 1)).tolist()
                source, moved = self._source_of(tree)
                touched[int(self._keys.at[start])] = source.after(start - moved, end - moved, some)
        if not touched:
            return self
        assert self._before is None, "what is taken is taken of all there is"
        return self._like(self.parts, self._tree, self._keys, touched)

    def spliced(self, new: Views, moves: Moves, keys: Keys) -> Views:
        """Return them with other trees in the place of some.

        :param keys: of the providers that are there now

        Cost: copies of the arrays of parts.
        """
        if self._source is None and new._source is None and not self._changed:
            return self._like({}, moves.tree, keys, {})
        kinds = sorted(self.parts.keys() | new.parts.keys())
        parts = {kind: _spliced(self.of(kind), new.of(kind), moves) for kind in kinds}
        gone = self._tree.searchsorted([cut[0] for cut in moves.cuts if cut[1] > cut[0]])
        changed: dict[int, _Source | None] = dict.fromkeys(self._keys.at[gone].tolist())
        for number, one in new._sources().items():
            root = moves.new[new._tree.searchsorted(number)]
            changed[int(keys.at[root])] = one
        kept = {kind: some for kind, some in parts.items() if len(some.provider)}
        return self._like(kept, moves.tree, keys, changed)

    def _like(
        self,
        parts: Mapping[str, Parts],
        tree: Integers,
        keys: Keys,
        changed: Mapping[int, _Source | None],
    ) -> Views:
        found = object.__new__(Views)
        found.parts, found._tree, found._keys = parts, tree, keys
        found._source, found._changed = self._source, self._changed.with_(changed)
        found._views, found._before, found._out = {}, None, _nothing_out
        found._held_back = found._limited = _nothing_back
        return found

    def _sources(self) -> dict[int, _Source]:
        """Return a source of its own for each tree that has parts."""
        if self._source is None:
            return {}
        places = self._source.place.of(self._source.columns.kinds.provider_id)
        return self._source.split(self._tree, set(self._tree[places].tolist()))


@dataclasses.dataclass(frozen=True, eq=False)
class _Source:
    """Columns as they were read, and where their providers were then."""

    columns: Columns
    place: PlaceIndex
    number: Integers  #: the backend's numbers of the providers, by place

    @classmethod
    def of(cls, columns: Columns, place: PlaceIndex) -> _Source:
        given = integers(columns.providers.provider_id)
        number = np.empty_like(given)
        number[place.of(columns.providers.provider_id)] = given
        return cls(_copied(columns), place, frozen(number))

    @functools.cached_property
    def located(self) -> LocatedViews:
        return LocatedViews(self.columns)

    @functools.cached_property
    def kinds_of(self) -> dict[int, list[tuple[str, tuple[str, ...], str]]]:
        """What each provider keeps beside its figures, by the backend's number of it."""
        found: dict[int, list[tuple[str, tuple[str, ...], str]]] = {}
        for number, kind, classes, body in zip(*self.columns.kinds, strict=True):
            found.setdefault(number, []).append((kind, classes, body))
        return found

    def root_of(self, place: int) -> int:
        """Return the backend's number of the root of a provider."""
        return self.located.shape.index.roots[int(self.number[place])]

    def after(self, first: int, end: int, changes: Iterable[Change]) -> _Source:
        """Return a source of one tree, whose providers stand together, after changes in it."""
        number = self.number[first:end]
        if len(number) == len(self.number):
            return dataclasses.replace(self, columns=dry_run.after(self.columns, changes))
        found: dict[str, Any] = {}
        for name, (order, ids) in self._by_provider.items():
            starts, stops = ids.searchsorted(number), ids.searchsorted(number, side="right")
            every = zip(starts.tolist(), stops.tolist(), strict=True)
            rows = [row for start, stop in every for row in order[start:stop].tolist()]
            table = getattr(self.columns, name)
            found[name] = type(table)(*(tuple([c[row] for row in rows]) for c in table if c))
        columns = dry_run.after(Columns(**found), changes)
        return _Source(columns, PlaceIndex(number.tolist()), frozen(number.copy()))

    def unheld(self) -> _Source:
        """Return the same, of which nobody holds anything."""
        used = (0,) * len(self.columns.inventories.used)
        columns = dataclasses.replace(
            self.columns,
            inventories=self.columns.inventories._replace(used=used),
            allocations=AllocationColumns(),
            units=UnitColumns(),
        )
        return dataclasses.replace(self, columns=columns)

    @functools.cached_property
    def _by_provider(self) -> dict[str, tuple[Integers, Integers]]:
        """The rows of each table in the order of their providers, and the numbers of these."""
        found: dict[str, tuple[Integers, Integers]] = {}
        for name in _TABLES:
            ids = integers(getattr(self.columns, name)[0])
            order = np.argsort(ids, kind="stable")
            found[name] = order, ids[order]
        return found

    def split(self, tree: Integers, wanted: Collection[int]) -> dict[int, _Source]:
        """Return a source for each of some trees, in which its root has the place 0."""
        found: dict[int, _Source] = {}
        for one in sorted(wanted):
            start, end = tree.searchsorted((one, one + 1))
            number = frozen(self.number[start:end])
            ids = number.tolist()
            columns = _of_providers(self.columns, frozenset(ids))
            found[one] = _Source(columns, PlaceIndex(ids), number)
        return found


def _of_providers(columns: Columns, wanted: frozenset[int]) -> Columns:
    """Return the rows of some providers. Cost: linear in all rows."""
    found: dict[str, Any] = {}
    for name in _TABLES:
        table = getattr(columns, name)
        said = [column for column in table if column]  # the last ones may say nothing
        rows = [row for row in zip(*said, strict=True) if row[0] in wanted] if table[0] else []
        found[name] = type(table)(*zip(*rows, strict=True))
    return Columns(**found)


#: The tables of columns, by name.
_TABLES = tuple(
    field.name for field in dataclasses.fields(Columns) if field.name not in ("cursor", "now")
)


def _copied(columns: Columns) -> Columns:
    """Return columns that whoever made them cannot change."""
    tables = {name: getattr(columns, name) for name in _TABLES}
    copied: dict[str, Any] = {name: type(t)(*map(tuple, t)) for name, t in tables.items()}
    return Columns(**copied)


def _spliced(old: Parts, new: Parts, moves: Moves) -> Parts:
    """Return the parts of one kind, of the trees that stay and those that come."""
    splice = Splice(len(old.tree), moves.within(old.tree, new.tree))
    shapes = tuple(dict.fromkeys((*old.shapes, *new.shapes)))
    number = {shape: code for code, shape in enumerate(shapes)}
    coded = splice.of(old.shape, integers([number[s] for s in new.shapes])[new.shape])
    kept = np.flatnonzero(np.bincount(coded, minlength=len(shapes))).tolist()
    ordered = sorted(kept, key=lambda code: "\n".join(shapes[code]))
    rank = np.zeros(len(shapes), dtype=np.int64)
    rank[ordered] = np.arange(len(ordered))
    provider = splice.of(moves.old[old.provider], moves.new[new.provider])
    return Parts(
        provider,
        frozen(moves.tree[provider]),
        frozen(rank[coded]),
        tuple([shapes[code] for code in ordered]),
    )


def _parts(provider: Integers, classes: Sequence[tuple[str, ...]], tree: Integers) -> Parts:
    order = np.argsort(provider, kind="stable")
    shapes, shape = coded(["\n".join(some) for some in classes])
    return Parts(
        frozen(provider[order]),
        frozen(tree[provider[order]]),
        frozen(shape[order]),
        tuple(tuple(name.split("\n")) for name in shapes),
    )


_NOTHING: Integers = frozen(integers(()))
NO_PARTS = Parts(_NOTHING, _NOTHING, _NOTHING, ())
