"""Columns out: everything kept, or some trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from resource_objects.backends.memory import feed
from resource_objects.backends.memory.state import Kept, State
from resource_objects.providers.columns import (
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
from resource_objects.resources.records import inventory_row


def read(state: State, keys: Iterable[str], allocations: bool) -> Columns:
    """Return the trees of some providers, or everything. Cost: linear in what is returned."""
    wanted = list(keys)
    if wanted:
        roots = state.roots(wanted)
    else:
        roots = [kept for kept in state.providers.values() if kept.parent_uuid is None]
    return _of_roots(state, roots, allocations)


def read_uuids(state: State, uuids: Iterable[str]) -> Columns:
    """Return the trees of some providers, none if none of them is there."""
    tops = (state.top(uuid) for uuid in uuids if uuid in state.providers)
    return _of_roots(state, {top.uuid: top for top in tops}.values(), allocations=True)


def _of_roots(state: State, roots: Iterable[Kept], allocations: bool) -> Columns:
    below = [(kept, root.number) for root in roots for kept in state.below(root)]
    return _columns(state, below, allocations)


def _columns(state: State, below: list[tuple[Kept, int]], allocations: bool) -> Columns:
    kept = [one for one, _ in below]
    holding = kept if allocations else []
    return Columns(
        ProviderColumns(*zip(*_providers(state, below), strict=True)),
        InventoryColumns(*zip(*_inventories(state, kept), strict=True)),
        TraitColumns(*zip(*_names((k.number, k.traits) for k in kept), strict=True)),
        AllocationColumns(*zip(*_allocations(state, holding), strict=True)),
        AggregateColumns(*zip(*_names((k.number, k.aggregates) for k in kept), strict=True)),
        ShareColumns(*zip(*_shares(state, kept), strict=True)),
        KindColumns(*zip(*_kinds(kept), strict=True)),
        UnitColumns(*zip(*_units(state, holding), strict=True)),
        feed.cursor(state),
    )


def _providers(state: State, below: Iterable[tuple[Kept, int]]) -> Iterator[tuple[object, ...]]:
    for kept, root in below:
        parent = None if kept.parent_uuid is None else state.providers[kept.parent_uuid].number
        yield (
            kept.number,
            kept.uuid,
            kept.name,
            parent,
            root,
            kept.generation,
            kept.reported_at,
        )


def _inventories(state: State, below: Iterable[Kept]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for name in kept.classes:
            yield kept.number, *inventory_row(state.rows[kept.uuid, name].record)


def _names(
    found: Iterable[tuple[int, frozenset[str]]],
) -> Iterator[tuple[int, str]]:
    return ((number, name) for number, names in found for name in sorted(names))


def _kinds(below: Iterable[Kept]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for kind in kept.kinds:
            yield kept.number, kind.resource_class, kind.classes, kind.body


def _allocations(state: State, below: Iterable[Kept]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for name in kept.classes:
            for consumer, amount in state.holders.get((kept.uuid, name), {}).items():
                yield kept.number, name, consumer, amount


def _shares(state: State, below: Iterable[Kept]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for name in kept.classes:
            for (of_uuid, of_class), factor in state.rows[kept.uuid, name].shares:
                yield kept.number, name, state.providers[of_uuid].number, of_class, factor


def _units(state: State, below: Iterable[Kept]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for unit, taken in state.units.get(kept.uuid, {}).items():
            yield kept.number, unit, taken.resource_class, taken.consumer
