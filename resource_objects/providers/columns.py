"""What a backend returns when it is read: columns, not objects.

Four tables as parallel sequences, all of one moment. ``provider_id`` is the backend's own number,
good only within one :class:`Columns`. The search turns them into arrays; a single tree of them is
turned into :class:`~resource_objects.providers.provider.Provider` objects by :func:`trees`.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.providers.provider import Provider
from resource_objects.resources import Inventories, resource
from resource_objects.resources.records import InventoryRecord


class ProviderColumns(NamedTuple):
    """One entry per provider; parents before children, ``parent_id`` None for a root."""

    provider_id: Sequence[int] = ()
    uuid: Sequence[str] = ()
    name: Sequence[str] = ()
    parent_id: Sequence[int | None] = ()
    root_id: Sequence[int] = ()
    generation: Sequence[int] = ()


class InventoryColumns(NamedTuple):
    """One entry per (provider, resource class), with what is used."""

    provider_id: Sequence[int] = ()
    resource_class: Sequence[str] = ()
    total: Sequence[int] = ()
    reserved: Sequence[int] = ()
    min_unit: Sequence[int] = ()
    max_unit: Sequence[int | None] = ()
    step_size: Sequence[int] = ()
    ratio_millionths: Sequence[int] = ()
    capacity: Sequence[int] = ()
    used: Sequence[int] = ()


class TraitColumns(NamedTuple):
    """One entry per (provider, trait)."""

    provider_id: Sequence[int] = ()
    trait: Sequence[str] = ()


class AllocationColumns(NamedTuple):
    """One entry per (consumer, provider, resource class)."""

    provider_id: Sequence[int] = ()
    resource_class: Sequence[str] = ()
    consumer: Sequence[str] = ()
    amount: Sequence[int] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """Everything kept about some trees at one moment."""

    providers: ProviderColumns = dataclasses.field(default_factory=ProviderColumns)
    inventories: InventoryColumns = dataclasses.field(default_factory=InventoryColumns)
    traits: TraitColumns = dataclasses.field(default_factory=TraitColumns)
    allocations: AllocationColumns = dataclasses.field(default_factory=AllocationColumns)


def trees(columns: Columns) -> list[Provider]:
    """Return the providers as objects: the roots, with everything below them, by name.

    Cost: linear in the rows, some 20 microseconds per provider.
    """
    records = _by_provider(columns.inventories)
    traits: dict[int, list[str]] = defaultdict(list)
    for provider_id, trait in zip(*columns.traits, strict=True):
        traits[provider_id].append(trait)
    children: dict[int | None, list[Provider]] = defaultdict(list)
    # children before parents, so that each provider is made once, with its children
    rows = sorted(zip(*columns.providers, strict=True), key=lambda row: row[2], reverse=True)
    for provider_id, uuid, name, parent_id, _root_id, generation in _bottom_up(rows):
        provider = Provider(
            name,
            _inventories(records.get(provider_id, ())),
            traits=traits.get(provider_id, ()),
            uuid=uuid,
            generation=generation,
            children=sorted(children.pop(provider_id, ()), key=lambda child: child.name),
        )
        provider.obj_reset_changes(recursive=True)
        children[parent_id].append(provider)
    return sorted(children[None], key=lambda root: root.name)


_ProviderRow = tuple[int, str, str, int | None, int, int]


def _bottom_up(rows: Iterable[_ProviderRow]) -> list[_ProviderRow]:
    below: dict[int | None, list[_ProviderRow]] = defaultdict(list)
    for row in rows:
        below[row[3]].append(row)
    ordered = list(below[None])
    for row in ordered:  # grows while it is read: breadth first, parents before children
        ordered.extend(below[row[0]])
    return ordered[::-1]


def _by_provider(table: InventoryColumns) -> dict[int, list[InventoryRecord]]:
    found: dict[int, list[InventoryRecord]] = defaultdict(list)
    for provider_id, *figures in zip(*table, strict=True):
        found[provider_id].append(InventoryRecord(*figures))
    return found


def _inventories(records: Iterable[InventoryRecord]) -> Inventories:
    by_class: dict[str, list[InventoryRecord]] = defaultdict(list)
    for record in records:
        by_class[record.resource_class].append(record)
    return Inventories(
        {name: resource(name).inventory_from_records(kept) for name, kept in by_class.items()}
    )


def find(columns: Columns, key: str) -> tuple[Provider, Provider] | None:
    """Return the provider of a name or uuid with the root of its tree, None if it is not there."""
    for root in trees(columns):
        for provider in root.walk():
            if key in (provider.name, provider.uuid):
                return root, provider
    return None


def subtree(columns: Columns, name: str) -> Columns:
    """Return a provider (by name or uuid) and what is below it, as a tree of its own.

    Traits of those above it apply to it, so they become its own.

    :raises ProviderNotFound: if it is not there
    """
    given = columns.providers
    parents = dict(zip(given.provider_id, given.parent_id, strict=True))
    tops = [
        number
        for number, uuid, own in zip(given.provider_id, given.uuid, given.name, strict=True)
        if name in (own, uuid)
    ]
    if not tops:
        raise exceptions.ProviderNotFound(name)
    top = tops[0]
    kept = {number for number in given.provider_id if top in _upwards(number, parents)}
    providers = _rows(given, kept)
    return Columns(
        providers._replace(
            parent_id=[None if number == top else parents[number] for number in providers[0]],
            root_id=[top for _ in providers[0]],
        ),
        _rows(columns.inventories, kept),
        _with_inherited(columns.traits, kept, top, _upwards(top, parents)),
        _rows(columns.allocations, kept),
    )


def _upwards(number: int, parents: dict[int, int | None]) -> list[int]:
    """Return a provider and all above it."""
    found = [number]
    while (above := parents[found[-1]]) is not None:
        found.append(above)
    return found


def _rows(table: Any, kept: Container[int]) -> Any:
    """Return the rows of some providers; the first column of every table is the provider."""
    rows = [row for row in zip(*table, strict=True) if row[0] in kept]
    return type(table)(*([row[place] for row in rows] for place in range(len(table))))


def _with_inherited(
    table: TraitColumns, kept: Container[int], top: int, above: Container[int]
) -> TraitColumns:
    pairs = dict.fromkeys(
        (top if number in above else number, trait)
        for number, trait in zip(*table, strict=True)
        if number in kept or number in above
    )
    return TraitColumns([number for number, _ in pairs], [trait for _, trait in pairs])
