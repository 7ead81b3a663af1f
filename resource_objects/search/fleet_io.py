"""Convert the columns of a backend to the arrays of a fleet, and back.

The way back serves a changed definition, the difference between two snapshots, the views over a
tree and a bundle: code that works on the columns of a backend does this work.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resource_objects import clock, exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.columns import (
    TIMES,
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    KindColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
    UnitColumns,
)
from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.tree_shape import removed_by_provider
from resource_objects.resources import resource
from resource_objects.resources.placed import has_named_units
from resource_objects.search.arrays import (
    Booleans,
    Integers,
    Keys,
    PlaceIndex,
    coded,
    frozen,
    integers,
)
from resource_objects.search.fleet import ClassRows, DisabledPlace, Fleet, largest_allocation
from resource_objects.search.relations import (
    PLACE_BITS,
    SHARING,
    Allocations,
    Members,
    Parts,
    Pools,
    Rows,
    Shares,
    Units,
    read_parts,
)


def read(columns: Columns, at: str | None = None) -> Fleet:
    """Return the fleet of some columns.

    Cost: linear but for sorting the names, about 2 microseconds per provider and per inventory.

    :param at: a provider by name or uuid: it is a root then, and its tree the only one to search
    :raises InvalidInput: if the columns contradict each other
    :raises InvalidTree: if parents form a circle
    :raises NotFound: if there is no provider ``at``
    """
    _check(columns)
    providers = columns.providers
    place = PlaceIndex(providers.provider_id)
    pairs = zip(providers.provider_id, providers.parent_id, strict=True)
    parent = place.of([number if above is None else above for number, above in pairs])
    top, above = _cut(providers, parent, at)
    root, depth = roots_and_depths(parent)
    order = _order(providers.name, root, depth)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    place.renumber(rank)
    is_root = depth[order] == 0
    tree: Integers = frozen(np.cumsum(is_root) - 1)
    names = tuple([providers.name[row] for row in order.tolist()])
    disabled = _disabled(columns, place)
    trait_places = np.concatenate((place.of(columns.traits.provider_id), integers(list(disabled))))
    traits = Members.of([*columns.traits.trait, *[TRAIT] * len(disabled)], trait_places)
    in_aggregates = place.of(columns.aggregates.provider_id)
    aggregates = Members.of(columns.aggregates.aggregate, in_aggregates)
    keys = Keys(np.arange(len(names)), len(names))
    stored_parts = read_parts(columns.kinds, place, tree)
    inventories, by_class, shares = _inventories(columns, place, tree, is_root, stored_parts)
    removed = removed_by_provider(columns)
    return Fleet(
        names=names,
        uuids=tuple([providers.uuid[row] for row in order.tolist()]),
        generation=frozen(integers(providers.generation)[order]),
        parent=frozen(rank[parent[order]]),
        tree=tree,
        height=int(depth.max(initial=-1)) + 1,
        hosts=tuple([names[row] for row in np.flatnonzero(is_root).tolist()]),
        inventories=inventories,
        by_class=by_class,
        traits=traits,
        aggregates=aggregates,
        shares=shares,
        pools=Pools(aggregates, traits.get(SHARING, integers(())), tree, is_root),
        allocations=Allocations(columns.allocations, place, keys),
        units=Units(columns.units, place, keys),
        stored_parts=stored_parts,
        keys=keys,
        within=None if top is None else int(tree[rank[top]]),
        above=tuple(rank[integers(above)].tolist()),
        disabled=disabled,
        removed_units={
            int(place.of([number])[0]): {unit.unit: unit.resource_class for unit in units}
            for number, units in removed.items()
        },
    )


def _check(columns: Columns) -> None:
    providers = columns.providers
    for name in (*TIMES, "disabled"):
        if not getattr(providers, name):  # an optional column
            providers = providers._replace(**{name: providers.provider_id})  # type: ignore[arg-type]
    tables: list[Any] = [providers, columns.inventories, columns.traits, columns.allocations]
    tables += [columns.aggregates, columns.shares, columns.units, columns.kinds]
    for table in tables:
        if len({len(column) for column in table}) > 1:
            raise exceptions.InvalidInput(
                "row", type(table).__name__, "columns", "all of one length"
            )


def _disabled(columns: Columns, place: PlaceIndex) -> dict[int, DisabledPlace]:
    began, disabled = clock.monotonic(), columns.disabled
    by_place: dict[int, DisabledPlace] = {}
    for provider, facts in zip(place.of(list(disabled)).tolist(), disabled.values(), strict=True):
        ends = None
        if facts.until is not None and columns.now is not None:
            ends = began + (facts.until - columns.now).total_seconds()
        by_place[provider] = DisabledPlace(facts, ends)
    return by_place


def _cut(
    providers: ProviderColumns, parent: Integers, at: str | None
) -> tuple[int | None, list[int]]:
    """Make a provider a root; return its row, and those of the providers that were above it."""
    if at is None:
        return None, []
    keys = zip(providers.name, providers.uuid, strict=True)
    top = row = next((row for row, key in enumerate(keys) if at in key), None)
    if top is None or row is None:
        raise exceptions.NotFound("provider", at)
    above: list[int] = []
    while parent[row] != row and len(above) < len(parent):  # a circle is detected later
        row = int(parent[row])
        above.append(row)
    parent[top] = top
    return top, above


def roots_and_depths(parent: Integers) -> tuple[Integers, Integers]:
    """Return the root and the depth of every provider. Cost: one pass per level."""
    root = np.arange(len(parent))
    depth = np.zeros(len(parent), dtype=np.int64)
    for _ in range(len(parent)):
        above = parent[root]
        moved = above != root
        if not moved.any():
            return root, depth
        depth += moved
        root = above
    if len(parent):
        raise exceptions.InvalidTree("parent_id", "a circle", "a root above every provider")
    return root, depth


def _order(names: Sequence[str], root: Integers, depth: Integers) -> Integers:
    """Return the rows by the name of the root, then by depth, then by name."""
    by_name = integers(sorted(range(len(names)), key=names.__getitem__))
    rank = np.empty_like(by_name)
    rank[by_name] = np.arange(len(by_name))
    return np.lexsort((rank, depth, rank[root]))


def _inventories(
    columns: Columns,
    place: PlaceIndex,
    tree: Integers,
    is_root: Booleans,
    stored_parts: Mapping[str, Parts],
) -> tuple[ClassRows, Members, Shares]:
    """Return all inventories, their providers by class, and the shares."""
    table = columns.inventories
    codes, code = coded(table.resource_class)
    keys = (code << PLACE_BITS) + place.of(table.provider_id)
    order = np.argsort(keys, kind="stable")
    by_class = Members(codes, keys[order])
    provider, code = by_class.places, by_class.codes
    shares = Shares.read(columns.shares, place, by_class)
    of_cells, of_devices = _count_parts(stored_parts, by_class)
    source, target = shares.source, shares.target
    in_tree = (code[source] == code[target]) & (tree[provider[source]] == tree[provider[target]])
    uses_own_class = np.zeros(len(code), dtype=np.bool_)
    uses_own_class[source[in_tree]] = True
    capacity, used = integers(table.capacity)[order], integers(table.used)[order]
    free = shares.free(capacity, used)
    bounds = [MAX_AMOUNT if most is None else most for most in table.max_unit]
    min_unit, max_unit = integers(table.min_unit)[order], integers(bounds)[order]
    step_size, total = integers(table.step_size)[order], integers(table.total)[order]
    is_below = ~is_root[provider]
    arrays: dict[str, Any] = {
        "provider": provider,
        "tree": tree[provider],
        "capacity": capacity,
        "used": used,
        "free": free,
        "min_unit": min_unit,
        "max_unit": max_unit,
        "step_size": step_size,
        "low": (min_unit + step_size - 1) // step_size * step_size,
        "high": largest_allocation(free, max_unit, step_size),
        "is_below": is_below,
        "is_single": is_below & (of_devices | ((total == 1) & ~of_cells)),
        "is_part": (of_cells | of_devices) & uses_own_class,
        "total": total,
        "reserved": integers(table.reserved)[order],
        "ratio": integers(table.ratio_millionths)[order],
    }
    rows = ClassRows(**{name: frozen(array) for name, array in arrays.items()})
    return rows, by_class, shares


def _count_parts(stored_parts: Mapping[str, Parts], by_class: Members) -> tuple[Booleans, Booleans]:
    """Return the inventories that count cells or other parts, and those that count devices."""
    of_cells, of_devices = np.zeros((2, len(by_class.packed)), dtype=np.bool_)
    for name, parts in stored_parts.items():
        counts = of_devices if has_named_units(name) else of_cells
        for number, classes in enumerate(parts.shapes if resource(name).is_placed else ()):
            providers = parts.provider[parts.shape == number]
            for resource_class in classes:
                rows = by_class.find([resource_class] * len(providers), providers)
                counts[rows[rows >= 0]] = True
    return of_cells, of_devices


# --- columns of a fleet ---------------------------------------------------------------------------


def columns_of(
    fleet: Fleet, trees: Collection[int] | None = None, *, for_views: bool = False
) -> Columns:
    """Return the columns of a fleet, as far as a search uses them; numbers are places in it.

    The times of reports and adoptions are not known. Of a fleet that is confined to a part of a
    tree, the columns have the whole tree.

    Cost: linear in the rows of these trees, and two binary searches for each trait and class.

    :param trees: only these; None for all
    :param for_views: without allocations and aggregates, which views do not read
    """
    spans = _spans(fleet, trees)
    places = [place for first, end in spans for place in range(first, end)]

    def rows(table: Rows) -> Iterable[tuple[Any, ...]]:
        if trees is None:
            return ((place, *row) for place, row in table.all())
        return table.of(places)

    return Columns(
        providers=_providers(fleet, places),
        inventories=InventoryColumns(*_turned(_inventory_rows(fleet, spans), 10)),
        traits=TraitColumns(*_turned(_member_rows(fleet.traits, spans), 2)),
        allocations=AllocationColumns(*_turned(() if for_views else rows(fleet.allocations), 4)),
        aggregates=AggregateColumns(
            *_turned(() if for_views else _member_rows(fleet.aggregates, spans), 2)
        ),
        shares=ShareColumns(*_turned(_share_rows(fleet, spans), 5)),
        kinds=KindColumns(*_turned(_kind_rows(fleet, spans), 4)),
        units=UnitColumns(*_turned(rows(fleet.units), 4)),
        now=_now(fleet),
    )


def _spans(fleet: Fleet, trees: Collection[int] | None) -> list[tuple[int, int]]:
    """Return (first, end) of the providers of some trees; contiguous trees have one span."""
    if trees is None:
        return [(0, len(fleet.names))]
    spans: list[tuple[int, int]] = []
    for tree in sorted(trees):
        places = fleet.of_tree(tree)
        if spans and spans[-1][1] == places.start:
            spans[-1] = spans[-1][0], places.stop
        else:
            spans.append((places.start, places.stop))
    return spans


def _turned(rows: Iterable[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    """Return the columns of rows."""
    return list(zip(*rows, strict=True)) or [()] * count


def _providers(fleet: Fleet, places: list[int]) -> ProviderColumns:
    parent, tree = fleet.parent[places].tolist(), fleet.tree[places].tolist()
    above = fleet.above
    if above and fleet.within is not None:  # a part of a tree that was cut out of it
        top = int(fleet.roots[fleet.within])
        parent = [above[0] if at == top else up for at, up in zip(places, parent, strict=True)]
    tops = fleet.tops
    return ProviderColumns(
        provider_id=places,
        uuid=[fleet.uuids[place] for place in places],
        name=[fleet.names[place] for place in places],
        parent_id=[None if up == at else up for at, up in zip(places, parent, strict=True)],
        root_id=tops[tree].tolist(),
        generation=fleet.generation[places].tolist(),
        disabled=[fleet.disabled[p].facts if p in fleet.disabled else None for p in places],
        **dict.fromkeys(TIMES, [None] * len(places)),
    )


def _inventory_rows(fleet: Fleet, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    rows, stored = fleet.inventories, fleet.stored_capacity
    if stored is None:
        stored = rows.capacity
    columns = (
        *(rows.provider, rows.total, rows.reserved, rows.min_unit, rows.max_unit),
        *(rows.step_size, rows.ratio, stored, rows.used),
    )
    for first, end in spans:
        for name, entries in fleet.by_class.within(first, end):
            figures = (column[entries].tolist() for column in columns)
            for place, total, reserved, least, most, *numbers in zip(*figures, strict=True):
                bound = None if most == MAX_AMOUNT else most
                yield place, name, total, reserved, least, bound, *numbers


def _member_rows(table: Members, spans: list[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    for first, end in spans:
        for name, entries in table.within(first, end):
            if name != TRAIT:  # it follows from the disabled providers
                for place in table.places[entries].tolist():
                    yield place, name


def _kind_rows(fleet: Fleet, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    for name, of_resource in fleet.stored_parts.items():
        for first, end in spans:
            start, stop = of_resource.provider.searchsorted((first, end)).tolist()
            places = of_resource.provider[start:stop].tolist()
            shapes = of_resource.shape[start:stop].tolist()
            texts = of_resource.descriptions[start:stop]
            for place, shape, text in zip(places, shapes, texts, strict=True):
                yield place, name, of_resource.shapes[shape], text


def _share_rows(fleet: Fleet, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    if not fleet.has_shares:
        return
    provider = fleet.inventories.provider
    for first, end in spans:
        for name, entries in fleet.by_class.within(first, end):
            for source, target, factor in fleet.shares.between(entries.start, entries.stop):
                used = int(provider[target]), fleet.class_of(target)
                yield int(provider[source]), name, *used, factor


def _now(fleet: Fleet) -> datetime.datetime | None:
    """Return the present time of the ledger's clock if a provider is disabled until a time."""
    for place in fleet.disabled.values():
        if place.ends is not None and place.facts.until is not None:
            return place.facts.until - datetime.timedelta(seconds=place.ends - clock.monotonic())
    return None
