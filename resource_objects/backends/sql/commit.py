"""A write, from its first lock to its last row, in one transaction (D8).

1. providers that are defined, must be unchanged, or report are locked and looked at (``define``,
   ``standing``);
2. names are changed (``names``) and definitions applied (``define``), for which inventories are
   locked, those of the orders with them;
3. orders are carried out: what their consumers hold is read (``consumers``), the inventories
   concerned are found and locked, by number, in one statement (``places``), it is decided
   (``decide``), the operation is recorded, which ends here if it was done before
   (``operations``), ``used`` is changed by the net amounts, guarded, and consumers, claims,
   allocations and units are written (``consumers``, ``allocations``, ``units``);
4. what definitions remove is removed;
5. the change feed is told (``feed``).

The number of statements does not grow with the number of rows. The claim of one consumer, which is
what is done most, takes eight of them, and one more to lock on a server; on PostgreSQL its changes
are one statement, which makes four of all (``together``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import (
    consumers,
    define,
    feed,
    names,
    operations,
    places,
    read,
    schema,
    standing,
)
from resource_objects.backends.sql.allocations import Work
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.consumers import Consumer
from resource_objects.backends.sql.decide import decide
from resource_objects.backends.sql.errors import on_duplicate
from resource_objects.backends.sql.feed import Touched
from resource_objects.backends.sql.places import Places
from resource_objects.backends.sql.retry import Transient
from resource_objects.backends.sql.together import together
from resource_objects.providers.orders import ClaimOrder, ClaimRecord, Key, Write
from resource_objects.providers.settle import Settled, Settlement, Shift, keys_of


def commit(connection: Connection, catalogue: Catalogue, write: Write) -> tuple[ClaimRecord, ...]:
    """Carry out a write, whole or not at all; return a record per order (see the contract)."""
    now = datetime.datetime.now(datetime.UTC)
    touched = Touched()
    definition, locked = None, None
    if write.definitions:
        definition = define.Definition(connection, catalogue, write.definitions, now)
        locked = definition.lock(standing.asked(write))
    if write.unchanged or write.reported:
        standing.hold(connection, write, now, touched, locked)
    renamed = names.change(connection, catalogue, write.names) if write.names else set()
    if definition is not None:
        definition.apply(_inventories_of_orders(connection, write))
    claims: tuple[ClaimRecord, ...] = ()
    if _is_one_claim(write) and definition is None and not renamed:
        with _together(connection, write):
            claims = _carry_out(connection, write, now, touched)
            feed.tell(connection, write, now, touched)
        return claims
    if write.orders:
        claims = _carry_out(connection, write, now, touched)
    else:
        operations.record(connection, write, now, ())
    if definition is not None:
        definition.remove()
        for uuid, roots in definition.touched().items():
            touched.provider(uuid, roots)
    if renamed and touched:  # alone it names nobody, however many there are
        for uuid, root in read.roots(connection, renamed).items():
            touched.provider(uuid, [root])
    feed.tell(connection, write, now, touched)
    return claims


def _inventories_of_orders(connection: Connection, write: Write) -> set[int]:
    """Return the numbers of the inventories that orders are about, to be locked with others.

    They are looked at again when the orders are carried out. Cost: two to four statements.
    """
    if not write.orders or connection.dialect.name == "sqlite":
        return set()
    kept = consumers.find(connection, [order.consumer for order in write.orders], Places())
    records = {name: one.record for name, one in kept.items()}
    return places.numbers(connection, keys_of(write.orders, records))


def _carry_out(
    connection: Connection, write: Write, now: datetime.datetime, touched: Touched
) -> tuple[ClaimRecord, ...]:
    """Carry out the orders of a write; return what became of each consumer."""
    at = Places()
    kept: dict[str, Consumer] = {}
    if not _is_one_claim(write):
        kept = consumers.find(connection, [order.consumer for order in write.orders], at)
    settlement = _settlement(connection, write, kept, at, now)
    claims = [settled.claim for settled in settlement.consumers]
    number = operations.record(connection, write, now, claims)
    nets = _nets(settlement, at)
    if nets:
        places.change(connection, nets)
    _put(connection, write, settlement.consumers, kept, at, number)
    for settled in settlement.consumers:
        _touch(settled, at, touched)
    return tuple([dataclasses.replace(claim, generation=number) for claim in claims])


def _together(connection: Connection, write: Write) -> contextlib.AbstractContextManager[None]:
    """Send the changes of a claim together, where the database takes them so."""
    duplicates = {
        schema.operations.name: operations.DoneBefore(write.operation.id),
        schema.consumers.name: exceptions.ConsumerExists(write.orders[0].consumer),
        schema.claims.name: _claim_exists(write),
    }
    return together(connection, [schema.operations, schema.consumers], duplicates)


def _claim_exists(write: Write) -> exceptions.OperationConflict:
    taken = getattr(write.orders[0], "claim_id", None) if len(write.orders) == 1 else None
    return exceptions.OperationConflict(taken or write.operation.id, "a claim of this id exists")


def _is_one_claim(write: Write) -> bool:
    """Return whether nothing needs to be known of consumers: the new one is no duplicate, or is."""
    return len(write.orders) == 1 and isinstance(write.orders[0], ClaimOrder)


# --- what it comes to ---


def _settlement(
    connection: Connection,
    write: Write,
    kept: Mapping[str, Consumer],
    at: Places,
    now: datetime.datetime,
) -> Settlement:
    """Lock the inventories concerned and decide."""
    records = {name: one.record for name, one in kept.items()}
    keys = keys_of(write.orders, records)
    for consumer in kept.values():
        for key, holding in consumer.holdings.items():
            if key in keys:
                at.by_key.setdefault(key, holding.at)
    places.find(connection, at, keys)
    try:
        return decide(connection, write.orders, records, at, now)
    except exceptions.ResourceObjectsError:
        _check_consumers(connection, write, kept)
        raise


def _check_consumers(connection: Connection, write: Write, kept: Mapping[str, Consumer]) -> None:
    """Look at consumers again before a refusal: it must be about what they hold now."""
    asked = [order.consumer for order in write.orders]
    if _is_one_claim(write):
        if consumers.is_there(connection, asked[0]):
            raise exceptions.ConsumerExists(asked[0]) from None
    elif connection.dialect.name != "sqlite" and not consumers.are_unchanged(
        connection, asked, kept
    ):
        raise Transient(exceptions.DatabaseBusy(asked[0], "somebody else changes it all the time"))


def _nets(settlement: Settlement, at: Places) -> dict[int, int]:
    """Return the net change of each inventory that is written, by number.

    It may be 0, where consumers change places: that is a write too, and counted.
    """
    return {
        at.by_key[key].inventory_id: settlement.nets.get(key, 0)
        for settled in settlement.consumers
        for shift in settled.shifts
        for key in _counted_at(shift, at)
    }


def _counted_at(shift: Shift, at: Places) -> Iterator[Key]:
    """Yield where a change is counted: the place itself, and what it shares."""
    yield shift.key
    for key, _ in at.by_key[shift.key].shares:
        yield key


def _touch(settled: Settled, at: Places, touched: Touched) -> None:
    """Name a consumer and the providers of what changed for it."""
    for shift in settled.shifts:
        for uuid, _ in _counted_at(shift, at):
            touched.provider(uuid, [at.roots[uuid]])
    changed = [shift.key for shift in settled.shifts]
    uuids = {uuid for uuid, _ in changed or [held.key for held in settled.claim.held]}
    touched.consumer(settled.claim.consumer, {at.roots[uuid] for uuid in uuids})


# --- written down ---


def _put(
    connection: Connection,
    write: Write,
    settled: Sequence[Settled],
    kept: Mapping[str, Consumer],
    at: Places,
    number: int,
) -> None:
    """Write what becomes of consumers: first what is given back, then what is taken."""
    work = Work(at)
    gone: list[int] = []
    stays: list[tuple[Consumer, ClaimRecord]] = []
    new: list[Settled] = []
    for one in settled:
        consumer = kept.get(one.claim.consumer)
        if consumer is None:
            new.append(one)
        elif one.is_gone:
            gone.append(consumer.number)
            work.give_back(one, consumer)
        else:
            stays.append((consumer, one.claim))
            work.add(one, consumer, consumer.number)
    if kept:
        consumers.pass_on(connection, kept.values(), number)
    work.free(connection)
    consumers.forget(connection, sorted(gone))
    consumers.change(connection, stays)
    if new:
        numbers = _make(connection, write, [one.claim for one in new], number)
        for one in new:
            work.add(one, None, numbers[one.claim.consumer])
    work.take(connection)


def _make(
    connection: Connection, write: Write, claims: Sequence[ClaimRecord], generation: int
) -> dict[str, int]:
    """Make consumers with their claims; return their numbers by name."""
    if _is_one_claim(write):
        with on_duplicate(exceptions.ConsumerExists(claims[0].consumer)):
            numbers = consumers.make(connection, claims, generation)
    else:
        # one made by somebody else meanwhile is a duplicate here, and found at the next try
        numbers = consumers.make(connection, claims, generation)
    with on_duplicate(_claim_exists(write)):
        consumers.make_claims(connection, claims, numbers)
    return numbers
