"""The inventories a write is about: found, locked, and changed by a net amount.

The order of locks is the same for everybody (D8): inventory rows by number, in one statement,
before anything else is written; a write that brings definitions too locks those of its orders
together with theirs (``figures``). Two changes then do not wait for each other in a circle, and
what was read under the lock is still true when it is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.retry import Transient
from resource_objects.backends.sql.statements import Sized, chosen, listed
from resource_objects.providers.orders import Key
from resource_objects.providers.settle import Place
from resource_objects.resources.records import InventoryRecord

_providers = schema.resource_providers.c
_inventories = schema.inventories.c
_classes = schema.resource_classes.c
_shares = schema.shares.c
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
#: what :meth:`Places.add` reads of an inventory
COLUMNS = (
    *(_providers.id, _providers.uuid, _providers.name, _providers.root_id),
    *(_classes.name, _inventories.id, _inventories.class_id, _inventories.shares),
    *_FIGURES,
)


def _find_query(uuids: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    # SELECT ... FROM resource_providers LEFT JOIN resource_classes ON name IN (:classes)
    #   LEFT JOIN inventories ON provider_id, class_id = those WHERE uuid IN (:uuids)
    # A provider without the inventory is found too. Classes go by name, which may be given to
    # another class at any time.
    wanted = listed(_classes.name, "classes", classes)
    here = sa.and_(_inventories.provider_id == _providers.id, _inventories.class_id == _classes.id)
    return (
        sa.select(*COLUMNS)
        .outerjoin_from(schema.resource_providers, schema.resource_classes, wanted)
        .outerjoin(schema.inventories, here)
        .where(listed(_providers.uuid, "uuids", uuids))
    )


def _shares_query(providers: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    there = sa.and_(
        _inventories.provider_id == _shares.of_provider_id,
        _inventories.class_id == _shares.of_class_id,
    )
    return (
        sa.select(_shares.provider_id, _shares.class_id, _shares.factor, *COLUMNS)
        .join_from(schema.shares, schema.inventories, there)
        .join(schema.resource_providers, _providers.id == _inventories.provider_id)
        .join(schema.resource_classes, _classes.id == _inventories.class_id)
        .where(
            listed(_shares.provider_id, "providers", providers),
            listed(_shares.class_id, "classes", classes),
        )
        .order_by(_inventories.id)
    )


def _lock_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    # by primary key, so that InnoDB, which locks rows as it meets them, meets them in this order
    return (
        sa.select(_inventories.id, _inventories.shares, *_FIGURES)
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
        .values(used=after, writes=_inventories.writes + 1)
    )


_FIND = Sized(_find_query)
_SHARES = Sized(_shares_query)
_LOCK = Sized(_lock_query)
_CHANGE = Sized(_change_query)
#: how many inventories one statement changes: its CASE is looked through for each of them
MOST_CHANGES = 128


@dataclasses.dataclass(slots=True, kw_only=True)
class Found(Place):
    """One inventory as kept, with the numbers of its row, provider and class."""

    key: Key
    inventory_id: int
    provider_id: int
    class_id: int
    declared: int  #: how many shares it has


class Places:
    """What was found: inventories by key, names and roots of providers by uuid."""

    __slots__ = ("by_key", "names", "roots")

    def __init__(self) -> None:
        self.by_key: dict[Key, Found] = {}
        self.names: dict[str, str] = {}
        self.roots: dict[str, int] = {}

    def add(self, row: Sequence[Any]) -> Found | None:
        """Note the provider of a row of :data:`COLUMNS`; return its inventory, if there is one."""
        provider_id, uuid, name, root, resource_class, number, class_id, shares, *figures = row
        self.names[uuid] = name
        self.roots[uuid] = root
        if number is None:
            return None
        return Found(
            provider=name,
            record=InventoryRecord(resource_class, *figures),
            key=(uuid, resource_class),
            inventory_id=number,
            provider_id=provider_id,
            class_id=class_id,
            declared=shares,
        )


def find(connection: Connection, at: Places, keys: Collection[Key]) -> None:
    """Add to ``at`` what there is at ``keys`` and not known yet, with all that it shares; lock it.

    Cost: a statement to find and, on a server, one to lock; one or two more where there are shares.
    """
    sharers = _look(connection, at, keys)
    if at.by_key and connection.dialect.name != "sqlite":  # whose one writer has the only lock
        _lock(connection, at.by_key.values())
        if sharers:
            _check_shares(connection, sharers)


def numbers(connection: Connection, keys: Collection[Key]) -> set[int]:
    """Return the numbers of the inventories at ``keys`` and of all that they share; lock nothing.

    Cost: a statement, one more where there are shares.
    """
    at = Places()
    _look(connection, at, keys)
    return {place.inventory_id for place in at.by_key.values()}


def _look(connection: Connection, at: Places, keys: Collection[Key]) -> list[Found]:
    """Add to ``at`` what is missing in it, with what is shared; return all that shares."""
    missing = [key for key in keys if key not in at.by_key]
    classes = list(dict.fromkeys(name for _, name in missing))
    asked = set(missing)
    for part in chunks(list(dict.fromkeys(uuid for uuid, _ in missing))):
        for row in _FIND.rows(connection, uuids=part, classes=classes):
            found = at.add(row)
            if found is not None and found.key in asked:
                at.by_key[found.key] = found
    sharers = [place for place in at.by_key.values() if place.declared]
    if sharers:
        _add_shares(connection, at, sharers)
    return sharers


def _add_shares(connection: Connection, at: Places, sharers: Iterable[Found]) -> None:
    """Add what is used too where something is taken of some inventories."""
    shares: dict[Key, list[tuple[Key, int]]] = {}
    for sharer, factor, row in _shares_of(connection, sharers):
        target = at.add(row)
        assert target is not None
        at.by_key.setdefault(target.key, target)
        shares.setdefault(sharer.key, []).append((target.key, factor))
    for key, found in shares.items():
        at.by_key[key].shares = tuple(found)


def _shares_of(
    connection: Connection, sharers: Iterable[Found]
) -> list[tuple[Found, int, Sequence[Any]]]:
    """Return ``(sharer, factor, row of the target)`` of each share of some inventories."""
    by_numbers = {(place.provider_id, place.class_id): place for place in sharers}
    classes = list({class_id for _, class_id in by_numbers})
    return [
        (by_numbers[provider_id, class_id], factor, row)
        for part in chunks(list({provider_id for provider_id, _ in by_numbers}))
        for provider_id, class_id, factor, *row in _SHARES.rows(
            connection, providers=part, classes=classes
        )
        if (provider_id, class_id) in by_numbers
    ]


def _lock(connection: Connection, found: Iterable[Found]) -> None:
    """Lock what was found and read its figures again, which may have changed meanwhile."""
    by_number = {place.inventory_id: place for place in found}
    for number, shares, *figures in lock(connection, by_number):
        place = by_number[number]
        place.record = InventoryRecord(place.record.resource_class, *figures)
        if shares != place.declared:
            raise Transient(exceptions.DatabaseBusy(place.provider, "its shares were changed"))


def _check_shares(connection: Connection, sharers: Iterable[Found]) -> None:
    """Look at shares again, now that who would change them waits for our locks."""
    seen: dict[Key, list[tuple[Key, int]]] = {place.key: [] for place in sharers}
    for sharer, factor, row in _shares_of(connection, sharers):
        target = Places().add(row)
        assert target is not None
        seen[sharer.key].append((target.key, factor))
    for place in sharers:
        if place.shares != tuple(seen[place.key]):
            raise Transient(exceptions.DatabaseBusy(place.provider, "its shares were changed"))


def lock(connection: Connection, numbers: Collection[int]) -> list[Sequence[Any]]:
    """Lock inventories by number; return ``(number, how many shares, *figures)`` of each.

    The last of the figures is what is used. With SQLite it does and returns nothing: a writing
    transaction is alone there.
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
    """Add the net change to ``used`` of each inventory, by number, and count the write.

    Its guard repeats the two rules that no mistake above may break: never below zero, and never
    up beyond the capacity.
    """
    for part in chunks(sorted(nets), MOST_CHANGES):
        _CHANGE.must_match(
            connection,
            len(part),
            partial(_refused, len(part)),
            ids=part,
            nets=[nets[number] for number in part],
        )


def _refused(asked: int, changed: int) -> Transient:
    refused = f"{asked - changed} inventories refused a change"
    return Transient(exceptions.DatabaseBusy("used", refused))
