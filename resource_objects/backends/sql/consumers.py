"""Consumers as rows: with their claim and allocations, found, made, changed and forgotten.

What a consumer holds is read without a lock. Its generation tells whether that was still true when
it is written (:func:`pass_on`): every write changes it, and no later life repeats it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.errors import on_duplicate
from resource_objects.backends.sql.places import MOST_CHANGES, Key, Places, key_of
from resource_objects.backends.sql.retry import Transient
from resource_objects.backends.sql.statements import (
    Insert,
    Sized,
    Statement,
    chosen,
    from_moment,
    listed,
    moment,
)
from resource_objects.providers.backend import ClaimRecord, Delta, Held

_providers = schema.resource_providers.c
_inventories = schema.inventories.c
_classes = schema.resource_classes.c
_consumers = schema.consumers.c
_claims = schema.claims.c
_allocations = schema.allocations.c

_CONSUMER = Statement(
    sa.select(
        _consumers.id,
        _consumers.uuid,
        _consumers.generation,
        _consumers.request,
        _claims.uuid.label("claim"),
        _claims.state,
        _claims.created_at,
    )
    .join_from(schema.consumers, schema.claims)
    .where(_consumers.name == sa.bindparam("consumer"))
)
_HOLDS = Statement(
    sa.select(
        _allocations.id,
        _inventories.id.label("inventory"),
        _providers.uuid,
        _providers.name,
        _classes.name.label("resource_class"),
        _allocations.used,
    )
    .join_from(schema.allocations, schema.inventories)
    .join(schema.resource_providers, _providers.id == _inventories.provider_id)
    .join(schema.resource_classes, _classes.id == _inventories.class_id)
    .where(_allocations.consumer_id == sa.bindparam("consumer"))
    .order_by(_allocations.id)
)
_MAKE_CONSUMER = Insert(schema.consumers, "uuid", "name", "generation", "request", "created_at")
_MAKE_CLAIM = Statement(sa.insert(schema.claims), ["uuid", "consumer_id", "state", "created_at"])
_MAKE_ALLOCATION = Statement(
    sa.insert(schema.allocations), ["consumer_id", "provider_id", "class_id", "used"]
)
_NEXT_GENERATION = Statement(
    sa.update(schema.consumers)
    .where(_consumers.id == sa.bindparam("consumer"), _consumers.generation == sa.bindparam("was"))
    .values(generation=sa.bindparam("now"))
)


def _change_allocations_query(ids: int, amounts: int) -> sa.Update:
    return (
        sa.update(schema.allocations)
        .where(listed(_allocations.id, "ids", ids))
        .values(used=chosen(_allocations.id, "ids", "amounts", ids))
    )


def _drop_allocations_query(ids: int) -> sa.Delete:
    return sa.delete(schema.allocations).where(listed(_allocations.id, "ids", ids))


_CHANGE_ALLOCATIONS = Sized(_change_allocations_query)
_DROP_ALLOCATIONS = Sized(_drop_allocations_query)
#: what goes with a consumer, in this order
_FORGET = [
    Statement(sa.delete(table).where(column == sa.bindparam("consumer")))
    for table, column in (
        (schema.allocations, _allocations.consumer_id),
        (schema.claims, _claims.consumer_id),
        (schema.consumers, _consumers.id),
    )
]


class Holding(NamedTuple):
    """One allocation as kept."""

    allocation_id: int
    inventory_id: int
    provider_uuid: str
    provider: str
    resource_class: str
    amount: int


@dataclasses.dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer as kept, with what it holds."""

    number: int
    generation: int
    record: ClaimRecord
    holdings: dict[Key, Holding]


def find(connection: Connection, name: str) -> Consumer | None:
    """Return a consumer with what it holds, None if there is none. Cost: two queries."""
    rows = _CONSUMER.rows(connection, {"consumer": name})
    if not rows:
        return None
    [(number, uuid, generation, request, claim_id, state, created_at)] = rows
    holdings = [Holding(*one) for one in _HOLDS.rows(connection, {"consumer": number})]
    record = ClaimRecord(
        id=claim_id,
        consumer=name,
        consumer_uuid=uuid,
        created_at=from_moment(created_at),
        held=tuple(Held(h.provider_uuid, h.provider, h.resource_class, h.amount) for h in holdings),
        state=state,
        request=request,
    )
    by_key = {(holding.provider_uuid, holding.resource_class): holding for holding in holdings}
    return Consumer(number, generation, record, by_key)


def make(connection: Connection, record: ClaimRecord, generation: int) -> int:
    """Insert a consumer; return its number."""
    values = {
        "uuid": record.consumer_uuid,
        "name": record.consumer,
        "generation": generation,
        "request": record.request,
        "created_at": moment(connection, record.created_at),
    }
    return _MAKE_CONSUMER.one(connection, values)


def make_claim(connection: Connection, record: ClaimRecord, consumer: int) -> None:
    """Insert the claim of a consumer just made."""
    values = {
        "uuid": record.id,
        "consumer_id": consumer,
        "state": record.state,
        "created_at": moment(connection, record.created_at),
    }
    with on_duplicate(exceptions.OperationConflict(record.id, "a claim of this id exists")):
        _MAKE_CLAIM.run(connection, values)


def make_allocations(
    connection: Connection, at: Places, consumer: int, deltas: Iterable[Delta]
) -> None:
    """Insert what a consumer takes."""
    rows = []
    for delta in deltas:
        place = at.by_key[key_of(delta)]
        rows.append(
            {
                "consumer_id": consumer,
                "provider_id": place.provider_id,
                "class_id": place.class_id,
                "used": delta.amount,
            }
        )
    if rows:
        _MAKE_ALLOCATION.run_many(connection, rows)


def pass_on(connection: Connection, kept: Consumer, number: int) -> None:
    """Move a consumer on from the generation it was read at, which also locks it."""
    values = {"consumer": kept.number, "was": kept.generation, "now": number}
    if _NEXT_GENERATION.run(connection, values) != 1:
        raise Transient(
            exceptions.DatabaseBusy(kept.record.consumer, "somebody else changes it all the time")
        )


def change_allocations(
    connection: Connection, at: Places, kept: Consumer, deltas: Iterable[Delta]
) -> None:
    """Add deltas to what a consumer holds: rows are made, changed, and dropped at zero."""
    new: list[Delta] = []
    changed: dict[int, int] = {}
    dropped: list[int] = []
    for delta in deltas:
        holding = kept.holdings.get(key_of(delta))
        if holding is None:
            new.append(delta)
        elif holding.amount + delta.amount:
            changed[holding.allocation_id] = holding.amount + delta.amount
        else:
            dropped.append(holding.allocation_id)
    make_allocations(connection, at, kept.number, new)
    for ids in chunks(list(changed), MOST_CHANGES):
        amounts = [changed[number] for number in ids]
        _CHANGE_ALLOCATIONS.run(connection, ids=ids, amounts=amounts)
    for ids in chunks(dropped):
        _DROP_ALLOCATIONS.run(connection, ids=ids)


def forget(connection: Connection, kept: Consumer) -> None:
    """Delete a consumer with its claim and whatever allocations are left."""
    for statement in _FORGET:
        statement.run(connection, {"consumer": kept.number})
