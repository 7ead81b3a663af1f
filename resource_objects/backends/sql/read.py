"""Columns out: everything kept, or one tree, at one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.statements import Statement
from resource_objects.providers.columns import (
    AllocationColumns,
    Columns,
    InventoryColumns,
    ProviderColumns,
    TraitColumns,
)

_providers = schema.resource_providers.c
_inventories = schema.inventories.c
_traits = schema.resource_provider_traits.c
_allocations = schema.allocations.c
_consumers = schema.consumers.c

_PROVIDERS = sa.select(
    _providers.id,
    _providers.uuid,
    _providers.name,
    _providers.parent_id,
    _providers.root_id,
    _providers.generation,
).order_by(_providers.id)
_INVENTORIES = sa.select(
    _inventories.provider_id,
    _inventories.class_id,
    _inventories.total,
    _inventories.reserved,
    _inventories.min_unit,
    _inventories.max_unit,
    _inventories.step_size,
    _inventories.ratio_millionths,
    _inventories.capacity,
    _inventories.used,
).order_by(_inventories.id)
_TRAITS = sa.select(_traits.provider_id, _traits.trait_id).order_by(
    _traits.provider_id, _traits.trait_id
)
_ALLOCATIONS = (
    sa.select(_allocations.provider_id, _allocations.class_id, _consumers.name, _allocations.used)
    .join_from(schema.allocations, schema.consumers)
    .order_by(_allocations.id)
)

#: ``WHERE root_id = :root``, for a table of providers or one that refers to them
_IN_TREE = _providers.root_id == sa.bindparam("root")


def _of_tree(query: Any, table: sa.Table) -> Any:
    joined = query.join(schema.resource_providers, _providers.id == table.c.provider_id)
    return joined.where(_IN_TREE)


_ALL = [Statement(query) for query in (_PROVIDERS, _INVENTORIES, _TRAITS, _ALLOCATIONS)]
_OF_TREE = [
    Statement(_PROVIDERS.where(_IN_TREE)),
    Statement(_of_tree(_INVENTORIES, schema.inventories)),
    Statement(_of_tree(_TRAITS, schema.resource_provider_traits)),
    Statement(_of_tree(_ALLOCATIONS, schema.allocations)),
]

_ROOT = sa.select(_providers.name, _providers.root_id).where(
    sa.or_(_providers.name == sa.bindparam("tree"), _providers.uuid == sa.bindparam("tree"))
)
_UUIDS = sa.select(_providers.name, _providers.uuid).where(
    _providers.name.in_(sa.bindparam("names", expanding=True))
)

_Rows = Sequence[Sequence[Any]]


def read(connection: Connection, catalogue: Catalogue, tree: str | None) -> Columns:
    """Return everything, or the tree of the provider of that name (or else uuid).

    Cost: four queries; some 3 microseconds per row.
    """
    if tree is None:
        found = [statement.rows(connection, {}) for statement in _ALL]
    else:
        root = _root(connection, tree)
        if root is None:
            return Columns()
        found = [statement.rows(connection, {"root": root}) for statement in _OF_TREE]
    providers, inventories, traits, allocations = found
    return Columns(
        ProviderColumns(*_turned(_parents_first(providers))),
        InventoryColumns(*_with_classes(connection, catalogue, inventories)),
        TraitColumns(*_with_traits(connection, catalogue, traits)),
        AllocationColumns(*_with_classes(connection, catalogue, allocations)),
    )


def _root(connection: Connection, tree: str) -> int | None:
    found = dict(connection.execute(_ROOT, {"tree": tree}).all())
    # a name wins over a uuid: somebody may have named a provider after another's uuid
    return found.get(tree, next(iter(found.values()), None))


def uuids(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """Return ``{name: uuid}`` of the providers of these names."""
    found: dict[str, str] = {}
    for part in chunks(list(names)):
        found.update(connection.execute(_UUIDS, {"names": part}).all())
    return found


def _turned(rows: _Rows) -> list[Sequence[Any]]:
    """Return rows as columns; none if there are no rows."""
    return list(zip(*rows, strict=True))


def _with_classes(connection: Connection, catalogue: Catalogue, rows: _Rows) -> list[Sequence[Any]]:
    columns = _turned(rows)
    if columns:
        names = catalogue.classes.names(connection, columns[1])
        columns[1] = [names[number] for number in columns[1]]
    return columns


def _with_traits(connection: Connection, catalogue: Catalogue, rows: _Rows) -> list[Sequence[Any]]:
    columns = _turned(rows)
    if columns:
        names = catalogue.traits.names(connection, columns[1])
        columns[1] = [names[number] for number in columns[1]]
    return columns


def _parents_first(rows: _Rows) -> _Rows:
    """Return providers in an order in which parents come before children.

    By number they nearly always do; only one that was moved below a younger one does not.
    """
    if all(row[3] is None or row[3] < row[0] for row in rows):
        return rows
    below: dict[int | None, list[Sequence[Any]]] = defaultdict(list)
    for row in rows:
        below[row[3]].append(row)
    ordered = list(below[None])
    for row in ordered:  # grows while it is read: breadth first
        ordered.extend(below[row[0]])
    return ordered
