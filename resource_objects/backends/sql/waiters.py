"""The queue of consumers that wait for resources to be released, as rows.

The database numbers a row when it is inserted, so the numbers are the order of the queue. A
consumer that enters removes the entries whose lease has expired. Locks: only rows of waiters, first
the consumer's own if it exists, then the expired ones in the order of their numbers. Two consumers
whose own leases have expired may so wait for each other; the database refuses one of them, which is
repeated. Nothing that a claim locks is locked, so claims never wait for the queue.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.statements import SQL, chunks, from_moment, now_of, plain
from resource_objects.providers.arguments import later
from resource_objects.providers.waiting import Awaited, Waiter, WaiterFilter, WaitOrder

_waiters = tables.waiters.c
_amounts = tables.waiter_amounts.c

_COLUMNS = _waiters.id, _waiters.consumer, _waiters.since, _waiters.lease_until, _waiters.actor
_AMOUNTS = SQL("""
    SELECT waiter_id, position, resource_class, amount, root_uuid FROM waiter_amounts
    WHERE waiter_id IN :ids*""")


def wait(connection: Connection, order: WaitOrder) -> Waiter:
    """Put a consumer into the queue, or renew its entry (see the contract).

    Cost: four statements to renew, up to six to enter.
    """
    now = now_of(connection)
    ends = later("lease", order.lease, now)
    query = sa.select(*_COLUMNS).where(_waiters.consumer == order.consumer).with_for_update()
    entry = next(iter(_listed(connection, connection.execute(query).all())), None)
    if entry is None or entry.lease_until < now or entry.awaits != order.awaits:
        _remove_expired(connection, now, [] if entry is None else [entry.number])
        return _enter(connection, order, now, ends)
    changed: dict[str, Any] = {"lease_until": plain(ends)}
    if not order.renews:
        changed["entry"] = order.entry
    connection.execute(sa.update(tables.waiters).where(_waiters.id == entry.number).values(changed))
    return dataclasses.replace(entry, lease_until=ends)


def _enter(
    connection: Connection, order: WaitOrder, now: datetime.datetime, ends: datetime.datetime
) -> Waiter:
    values = {
        "consumer": order.consumer,
        "entry": order.entry,
        "actor": order.actor,
        "since": plain(now),
        "lease_until": plain(ends),
    }
    # if another call enters the consumer at this moment, the transaction is repeated
    result = connection.execute(sa.insert(tables.waiters), values)
    assert result.inserted_primary_key is not None, "the database numbers it"
    number = result.inserted_primary_key[0]
    rows = [
        {"waiter_id": number, "position": position, **dataclasses.asdict(awaited)}
        for position, awaited in enumerate(order.awaits)
    ]
    connection.execute(sa.insert(tables.waiter_amounts), rows)
    return Waiter(number, order.consumer, order.awaits, now, ends, order.actor)


def _remove_expired(connection: Connection, now: datetime.datetime, numbers: Sequence[int]) -> None:
    """Remove the entries whose lease has expired, and those of some numbers."""
    is_expired = _waiters.lease_until < plain(now)
    rows = connection.execute(sa.select(_waiters.id).where(is_expired))
    expired = sorted({number for (number,) in rows} - set(numbers))
    for part in chunks(expired):  # not an entry that was renewed meanwhile
        connection.execute(sa.delete(tables.waiters).where(_waiters.id.in_(part), is_expired))
    if numbers:
        connection.execute(sa.delete(tables.waiters).where(_waiters.id.in_(numbers)))


def list_waiters(
    connection: Connection, criteria: WaiterFilter, limit: int, after: int = 0
) -> tuple[Waiter, ...]:
    """Return a page of the queue (see the contract).

    Cost: a statement, and one more for the awaited amounts if the page is not empty.
    """
    is_waiting = _waiters.lease_until >= statements.sql_now(connection)
    query = sa.select(*_COLUMNS).where(_waiters.id > after, is_waiting)
    if criteria.upto is not None:
        query = query.where(_waiters.id <= criteria.upto)
    if criteria.awaits is not None:
        query = query.where(_meets(criteria.awaits))
    return _listed(connection, connection.execute(query.order_by(_waiters.id).limit(limit)).all())


def leave(connection: Connection, entry: str) -> None:
    """Remove the consumer that entered last by an entry from the queue."""
    connection.execute(sa.delete(tables.waiters).where(_waiters.entry == entry))


def _meets(awaits: Iterable[Awaited]) -> sa.ColumnElement[bool]:
    # EXISTS (SELECT 1 FROM waiter_amounts WHERE waiter_id = waiters.id AND (resource_class = 'PGPU'
    # AND (root_uuid IS NULL OR root_uuid IN ('...')) OR ...): a term for each class, not each tree
    roots: dict[str, set[str] | None] = {}
    for awaited in awaits:
        trees = roots.setdefault(awaited.resource_class, set())
        if awaited.root_uuid is None or trees is None:
            roots[awaited.resource_class] = None
        else:
            trees.add(awaited.root_uuid)
    matches = [
        (_amounts.resource_class == name)
        if trees is None
        else (_amounts.resource_class == name)
        & (_amounts.root_uuid.is_(None) | _amounts.root_uuid.in_(sorted(trees)))
        for name, trees in roots.items()
    ]
    return sa.exists().where(_amounts.waiter_id == _waiters.id, sa.or_(sa.false(), *matches))


def _listed(connection: Connection, rows: Sequence[Any]) -> tuple[Waiter, ...]:
    """Return rows of :data:`_COLUMNS` as waiters, in their order."""
    awaits: dict[int, list[Awaited]] = {row[0]: [] for row in rows}
    for number, _, *values in sorted(_AMOUNTS.rows_for(connection, awaits)):
        awaits[number].append(Awaited(*values))
    return tuple(
        Waiter(number, name, tuple(awaits[number]), from_moment(since), from_moment(until), actor)
        for number, name, since, until, actor in rows
    )
