"""Claims, adjustments and releases: the hot path.

All three go the same way, in one transaction:

1. find the inventories and lock them, by number, in one statement (``places``);
2. decide (``decide``);
3. record the operation, which ends here if it was done before (``operations``);
4. change ``used`` by the net amounts, guarded (``places``);
5. write the consumer, the claim and the allocations, each with one statement for all rows
   (``consumers``).

So the number of statements does not grow with the number of rows.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Iterable

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import consumers, places
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.decide import decide
from resource_objects.backends.sql.errors import on_duplicate
from resource_objects.backends.sql.operations import Write
from resource_objects.backends.sql.places import Key, Places, key_of
from resource_objects.exceptions import CapacityException
from resource_objects.providers.allocation import HELD, RELEASED
from resource_objects.providers.backend import Adjustment, ClaimOrder, ClaimRecord, Delta, Held


def held(connection: Connection, consumer: str) -> ClaimRecord | None:
    """Return what a consumer holds, None if nothing. Cost: two queries."""
    found = consumers.find(connection, consumer)
    return None if found is None else found.record


def claim(
    connection: Connection, catalogue: Catalogue, write: Write, order: ClaimOrder
) -> ClaimRecord:
    """Take all deltas of an order for a new consumer, or none (see the contract)."""
    at = places.find(connection, catalogue, map(key_of, order.deltas))
    try:
        decide(connection, at, order.deltas, {})
    except (CapacityException, exceptions.ProviderNotFound):
        if consumers.find(connection, order.consumer) is not None:
            raise exceptions.ConsumerExists(order.consumer) from None
        raise
    record = ClaimRecord(
        id=order.claim_id,
        consumer=order.consumer,
        consumer_uuid=str(uuids.uuid4()),
        created_at=write.now,
        held=_held(at, ((key_of(delta), delta.amount) for delta in order.deltas)),
        request=order.request,
    )
    number = write.record(connection, record)
    _change_used(connection, at, order.deltas)
    with on_duplicate(exceptions.ConsumerExists(order.consumer)):
        consumer = consumers.make(connection, record, number)
    consumers.make_claim(connection, record, consumer)
    consumers.make_allocations(connection, at, consumer, order.deltas)
    return record


def adjust(
    connection: Connection, catalogue: Catalogue, write: Write, order: Adjustment
) -> ClaimRecord:
    """Change what one consumer holds by all deltas, or by none (see the contract)."""
    kept = consumers.find(connection, order.consumer)
    holds = {} if kept is None else {key: one.amount for key, one in kept.holdings.items()}
    at = places.find(connection, catalogue, map(key_of, order.deltas))
    decide(connection, at, order.deltas, holds, aggregate=order.aggregate)
    record = _adjusted(kept, at, holds, write, order)
    number = write.record(connection, record)
    _change_used(connection, at, order.deltas)
    if kept is not None:
        consumers.pass_on(connection, kept, number)
        consumers.change_allocations(connection, at, kept, order.deltas)
        if not record.held:
            consumers.forget(connection, kept)
    elif record.held:
        # one made by somebody else meanwhile is a duplicate here, and found at the next try
        consumer = consumers.make(connection, record, number)
        consumers.make_claim(connection, record, consumer)
        consumers.make_allocations(connection, at, consumer, order.deltas)
    return record


def release(connection: Connection, write: Write, consumer: str) -> ClaimRecord:
    """Give back all that a consumer holds and forget the consumer (see the contract)."""
    kept = consumers.find(connection, consumer)
    if kept is None:
        raise exceptions.ConsumerNotFound(consumer)
    nets = {holding.inventory_id: -holding.amount for holding in kept.holdings.values()}
    places.lock(connection, nets.keys())
    record = dataclasses.replace(kept.record, state=RELEASED)
    number = write.record(connection, record)
    consumers.pass_on(connection, kept, number)
    places.change(connection, nets)
    consumers.forget(connection, kept)
    return record


def _adjusted(
    kept: consumers.Consumer | None,
    at: Places,
    holds: dict[Key, int],
    write: Write,
    order: Adjustment,
) -> ClaimRecord:
    """Return what a consumer that held ``holds`` holds after an adjustment."""
    after = dict(holds)
    for delta in order.deltas:
        after[key_of(delta)] = after.get(key_of(delta), 0) + delta.amount
    if kept is None:
        record = ClaimRecord(order.claim_id, order.consumer, str(uuids.uuid4()), write.now, ())
    else:
        record = kept.record
        at.names.update((one.provider_uuid, one.provider) for one in kept.holdings.values())
    left = _held(at, ((key, amount) for key, amount in after.items() if amount))
    return dataclasses.replace(record, held=left, state=HELD if left else RELEASED)


def _held(at: Places, holds: Iterable[tuple[Key, int]]) -> tuple[Held, ...]:
    return tuple(Held(uuid, at.names[uuid], name, amount) for (uuid, name), amount in holds)


def _change_used(connection: Connection, at: Places, deltas: Iterable[Delta]) -> None:
    places.change(
        connection, {at.by_key[key_of(delta)].inventory_id: delta.amount for delta in deltas}
    )
