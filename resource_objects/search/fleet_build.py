"""How the arrays of a fleet are made from columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from resource_objects import clock, exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.columns import TIMES, Columns, InventoryColumns, ProviderColumns
from resource_objects.providers.disabled import TRAIT, Disabled
from resource_objects.providers.removed_units import removed_by_provider
from resource_objects.resources import resource
from resource_objects.resources.located import Identified
from resource_objects.search import fleet
from resource_objects.search.arrays import (
    Booleans,
    Integers,
    Keys,
    PlaceIndex,
    coded,
    frozen,
    integers,
    parts,
)
from resource_objects.search.fleet import ClassRows, Find, Fleet, FleetShares, Members
from resource_objects.search.holders import Allocations, Units
from resource_objects.search.located_views import Parts, read_parts


def read(columns: Columns, at: str | None = None) -> Fleet:
    """Return the arrays of what a backend returned.

    :param at: a provider by name or uuid: it is then a root, and its tree the only one asked about

    Cost: linear but for sorting the names, about 2 microseconds per provider and per inventory.

    :raises InvalidInput: if the columns do not belong together
    :raises InvalidTree: if the parents of some provider never end
    :raises NotFound: if ``at`` is not there
    """
    _check(columns)
    given = columns.providers
    place = PlaceIndex(given.provider_id)
    parent = place.of(_parents(given))
    top, above = _cut(given, parent, at)
    root, depth = _roots(parent)
    order = _order(given.name, root, depth)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    place.renumber(rank)
    is_root = depth[order] == 0
    tree = frozen(np.cumsum(is_root) - 1)
    names = tuple(given.name[row] for row in order.tolist())
    disabled = columns.disabled
    who, what = columns.traits
    if disabled:  # others know it as a trait
        who, what = (*who, *disabled), (*what, *[TRAIT] * len(disabled))
    traits = _grouped(what, place.of(who))
    sharing = traits.get(fleet.SHARING, integers(()))
    members = columns.aggregates
    aggregates = _grouped(members.aggregate, place.of(members.provider_id))
    keys = Keys(np.arange(len(names)), len(names))
    stored_parts = read_parts(columns.kinds, place, tree)
    inventories, classes, ties = _inventories(columns, place, tree, is_root, stored_parts)
    return Fleet(
        names=names,
        uuids=tuple(given.uuid[row] for row in order.tolist()),
        generation=frozen(integers(given.generation)[order]),
        parent=frozen(rank[parent[order]]),
        tree=tree,
        height=int(depth.max()) + 1 if len(order) else 0,
        hosts=tuple(names[row] for row in np.flatnonzero(is_root).tolist()),
        inventories=inventories,
        classes=classes,
        traits=traits,
        aggregates=aggregates,
        shares=ties,
        pools=fleet.read_pools(columns.aggregates, place, sharing, tree, is_root),
        allocations=Allocations(columns.allocations, place, keys),
        units=Units(columns.units, place, keys),
        stored_parts=stored_parts,
        keys=keys,
        within=None if top is None else int(tree[rank[top]]),
        above=tuple(rank[integers(above)].tolist()),
        disabled=_disabled(columns, disabled, place) if disabled else {},
        removed_units=_removed_units(columns, place),
    )


def _disabled(
    columns: Columns, disabled: Mapping[int, Disabled], place: PlaceIndex
) -> dict[int, fleet.DisabledPlace]:
    """Return the providers that are out of service, by their places."""
    began = clock.monotonic()
    found: dict[int, fleet.DisabledPlace] = {}
    for at, facts in zip(place.of(list(disabled)).tolist(), disabled.values(), strict=True):
        found[at] = fleet.DisabledPlace(facts, _end(columns, facts, began))
    return found


def _end(columns: Columns, facts: Disabled, began: float) -> float | None:
    """Return when something is in service again, by the clock that said ``began`` just now."""
    if facts.until is None or columns.now is None:
        return None
    return began + (facts.until - columns.now).total_seconds()


def _removed_units(columns: Columns, place: PlaceIndex) -> dict[int, dict[str, str]]:
    """Return the class of each unit that was removed while allocated, by place of its provider."""
    removed = removed_by_provider(columns)
    places = place.of(list(removed)).tolist() if removed else ()
    return {
        at: {one.unit: one.resource_class for one in some}
        for at, some in zip(places, removed.values(), strict=True)
    }


def _check(columns: Columns) -> None:
    given = columns.providers
    for name in (*TIMES, "disabled"):
        if not getattr(given, name):  # nobody says: nothing here depends on it
            given = given._replace(**{name: given.provider_id})  # type: ignore[arg-type]
    tables: list[Any] = [given, columns.inventories, columns.traits, columns.allocations]
    tables += [columns.aggregates, columns.shares, columns.units, columns.kinds]
    for table in tables:
        if len({len(column) for column in table}) > 1:
            raise exceptions.InvalidInput(
                "row", type(table).__name__, "columns", "all of one length"
            )


def _parents(given: ProviderColumns) -> list[int]:
    pairs = zip(given.provider_id, given.parent_id, strict=True)
    return [own if parent is None else parent for own, parent in pairs]


def _cut(given: ProviderColumns, parent: Integers, at: str | None) -> tuple[int | None, list[int]]:
    """Make a provider a root; return its row, and those of the providers that were above it."""
    if at is None:
        return None, []
    rows = zip(given.name, given.uuid, strict=True)
    found = [row for row, keys in enumerate(rows) if at in keys]
    if not found:
        raise exceptions.NotFound("provider", at)
    top = row = found[0]
    above: list[int] = []
    while parent[row] != row and len(above) < len(parent):  # a circle is found later
        row = int(parent[row])
        above.append(row)
    parent[top] = top
    return top, above


def _roots(parent: Integers) -> tuple[Integers, Integers]:
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
) -> tuple[ClassRows, dict[str, ClassRows], FleetShares]:
    """Return all inventories, the same by class, and what they share."""
    given = columns.inventories
    provider = place.of(given.provider_id)
    codes, code = coded(given.resource_class)
    order = np.lexsort((provider, code))
    provider, code = provider[order], code[order]
    find = _finder(codes, code, provider, len(tree))
    ties = fleet.read_shares(columns.shares, place, find)
    kept, devices = (
        _are_of_parts(stored_parts, find, len(code), of_devices) for of_devices in (False, True)
    )
    is_part = (kept | devices) & _is_shared(ties, code, tree[provider])
    rows = _rows(given, order, provider, tree, is_root, ties, (kept, devices, is_part))
    return rows, {name: rows.part(entries) for name, entries in parts(codes, code)}, ties


def _finder(codes: dict[str, int], code: Integers, provider: Integers, providers: int) -> Find:
    """Return what finds the number of an inventory by its provider and class, -1 for none."""

    def find(wanted: Integers, classes: tuple[str, ...]) -> Integers:
        if not len(wanted):
            return wanted
        keys = code * providers + provider
        sought = integers([codes.get(name, len(codes)) for name in classes]) * providers + wanted
        at = np.minimum(keys.searchsorted(sought), max(len(keys) - 1, 0))
        if not len(keys):
            return np.full(len(wanted), -1)
        return np.where(keys[at] == sought, at, -1)

    return find


def _are_of_parts(
    stored_parts: Mapping[str, Parts], find: Find, count: int, of_devices: bool
) -> Booleans:
    """Return which inventories count parts of placed resources.

    :param of_devices: whether the resources are those whose units are devices, or the others
    """
    found = np.zeros(count, dtype=np.bool_)
    for name, of_kind in stored_parts.items():
        kind = resource(name)
        if not kind.is_located or issubclass(kind.inventory_kind, Identified) is not of_devices:
            continue
        for number, classes in enumerate(of_kind.shapes):
            providers = of_kind.provider[of_kind.shape == number]
            for resource_class in classes:
                rows = find(providers, (resource_class,) * len(providers))
                found[rows[rows >= 0]] = True
    return found


def _is_shared(ties: FleetShares, code: Integers, tree: Integers) -> Booleans:
    """Return which inventories use the same class of another provider of their tree."""
    found = np.zeros(len(code), dtype=np.bool_)
    source, target = ties.source, ties.target
    found[source[(code[source] == code[target]) & (tree[source] == tree[target])]] = True
    return found


def _rows(
    given: InventoryColumns,
    order: Integers,
    provider: Integers,
    tree: Integers,
    is_root: Booleans,
    ties: FleetShares,
    of_parts: tuple[Booleans, Booleans, Booleans],
) -> ClassRows:
    bounds = [MAX_AMOUNT if most is None else most for most in given.max_unit]
    capacity, used = integers(given.capacity)[order], integers(given.used)[order]
    min_unit, max_unit = integers(given.min_unit)[order], integers(bounds)[order]
    step_size = integers(given.step_size)[order]
    free = ties.left(capacity - used)
    is_below = ~is_root[provider]
    kept, devices, is_part = of_parts
    arrays: list[Any] = [
        provider,
        tree[provider],
        capacity,
        used,
        free,
        min_unit,
        max_unit,
        step_size,
        (min_unit + step_size - 1) // step_size * step_size,
        np.minimum(free, max_unit) // step_size * step_size,
        is_below,
        is_below & (devices | ((integers(given.total)[order] == 1) & ~kept)),
        is_part,
        integers(given.total)[order],
        integers(given.reserved)[order],
        integers(given.ratio_millionths)[order],
    ]
    return ClassRows(*map(frozen, arrays))


def _grouped(names: Sequence[str], provider: Integers) -> Members:
    """Return the providers by name of what each is or has."""
    codes, code = coded(names)
    order = np.lexsort((provider, code))
    return Members(codes, np.bincount(code, minlength=len(codes)), provider[order])
