"""The inventories a change is about: found, locked, and changed by a net amount.

The order of locks is the same for everybody (D8): inventory rows by number, in one statement,
before anything else is written. Two changes then never wait for each other in a circle, and what
was read under the lock is still true when it is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.retry import Transient
from resource_objects.backends.sql.statements import Sized, chosen, listed
from resource_objects.providers.backend import Delta
from resource_objects.resources.records import InventoryRecord

#: (provider's uuid, resource class)
Key = tuple[str, str]


def key_of(delta: Delta) -> Key:
    """Return what a delta is about."""
    return delta.provider_uuid, delta.resource_class


_providers = schema.resource_providers.c
_inventories = schema.inventories.c
_FIGURES = (
    _inventories.total,
    _inventories.reserved,
    _inventories.min_unit,
    _inventories.max_unit,
    _inventories.step_size,
    _inventories.ratio_millionths,
    _inventories.capacity,
    _inventories.used,
)


def _find_query(uuids: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    # SELECT ... FROM resource_providers LEFT JOIN inventories
    #   ON provider_id = resource_providers.id AND class_id IN (:classes) WHERE uuid IN (:uuids)
    return (
        sa.select(_providers.id, _providers.uuid, _providers.name)
        .add_columns(_inventories.id, _inventories.class_id, *_FIGURES)
        .outerjoin_from(
            schema.resource_providers,
            schema.inventories,
            sa.and_(
                _inventories.provider_id == _providers.id,
                listed(_inventories.class_id, "classes", classes),
            ),
        )
        .where(listed(_providers.uuid, "uuids", uuids))
    )


def _lock_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    # by primary key, so that InnoDB, which locks rows as it meets them, meets them in this order
    return (
        sa.select(_inventories.id, *_FIGURES)
        .where(listed(_inventories.id, "ids", ids))
        .order_by(_inventories.id)
        .with_for_update()
    )


def _change_query(ids: int, nets: int) -> sa.Update:
    net = chosen(_inventories.id, "ids", "nets", ids)
    after = _inventories.used + net
    fits = after <= _inventories.capacity
    return (
        sa.update(schema.inventories)
        .where(listed(_inventories.id, "ids", ids), after >= 0, sa.or_(fits, net <= 0))
        .values(used=after)
    )


_FIND = Sized(_find_query)
_LOCK = Sized(_lock_query)
_CHANGE = Sized(_change_query)
#: how many inventories one statement changes: its CASE is looked through for each of them
MOST_CHANGES = 128


@dataclasses.dataclass(slots=True)
class Place:
    """One inventory as kept, with the numbers of its row, provider and class."""

    inventory_id: int
    provider_id: int
    class_id: int
    record: InventoryRecord


@dataclasses.dataclass(slots=True)
class Places:
    """The inventories found for some keys, and the names of their providers by uuid."""

    names: dict[str, str]
    by_key: dict[Key, Place]

    def name(self, provider_uuid: str) -> str:
        """Return the name of a provider.

        :raises ProviderNotFound: if there is none of that uuid
        """
        try:
            return self.names[provider_uuid]
        except KeyError:
            raise exceptions.ProviderNotFound(provider_uuid) from None


def find(connection: Connection, catalogue: Catalogue, keys: Iterable[Key]) -> Places:
    """Return what there is at ``keys``, locked until the transaction ends.

    Two statements on a server; one with SQLite, where the transaction holds the only lock.
    """
    wanted = list(keys)
    classes = catalogue.classes.find(connection, {name for _, name in wanted})
    name_of = {number: name for name, number in classes.items()}
    found = Places({}, {})
    for part in chunks(list(dict.fromkeys(uuid for uuid, _ in wanted))):
        rows = _FIND.rows(connection, uuids=part, classes=list(name_of) or [0])
        for provider_id, uuid, name, inventory_id, class_id, *figures in rows:
            found.names[uuid] = name
            if inventory_id is not None:
                resource_class = name_of[class_id]
                record = InventoryRecord(resource_class, *figures)
                place = Place(inventory_id, provider_id, class_id, record)
                found.by_key[uuid, resource_class] = place
    asked = set(wanted)
    found.by_key = {key: place for key, place in found.by_key.items() if key in asked}
    _refresh(connection, found.by_key.values())
    return found


def _refresh(connection: Connection, found: Iterable[Place]) -> None:
    """Lock what was found and read its figures again, which may have changed meanwhile."""
    if connection.dialect.name == "sqlite":
        return
    by_number = {place.inventory_id: place for place in found}
    for number, *figures in lock(connection, by_number):
        place = by_number[number]
        place.record = InventoryRecord(place.record.resource_class, *figures)


def lock(connection: Connection, numbers: Collection[int]) -> list[Sequence[Any]]:
    """Lock inventories by number and return ``(number, *figures)`` of each.

    With SQLite it does and returns nothing: a writing transaction is alone there.
    """
    if connection.dialect.name == "sqlite":
        return []
    rows: list[Sequence[Any]] = []
    for part in chunks(sorted(numbers)):
        rows += _LOCK.rows(connection, ids=part)
    if len(rows) != len(numbers):
        raise Transient(exceptions.DatabaseBusy("inventory", "it was removed in between"))
    return rows


def change(connection: Connection, nets: Mapping[int, int]) -> None:
    """Add the net change to ``used`` of each inventory, by number.

    Its guard repeats the two rules that no mistake above may break: never below zero, and never
    up beyond the capacity.
    """
    numbers = [number for number, net in sorted(nets.items()) if net]
    for part in chunks(numbers, MOST_CHANGES):
        changed = _CHANGE.run(connection, ids=part, nets=[nets[number] for number in part])
        if changed != len(part):
            refused = f"{len(part) - changed} inventories refused a change"
            raise Transient(exceptions.DatabaseBusy("used", refused))
