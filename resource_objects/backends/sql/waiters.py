"""Who waits for something to be given back, as rows.

The number of a row is drawn by the database as it is inserted, so it tells who came first. Who
comes forgets those whose lease is over. Locks: rows of waiters alone, first its own if it is there,
then those over in the order of their numbers. Two whose own leases are over may so wait for each
other; the database refuses one of them, which is done again. Nothing that a claim locks is locked,
so nobody who claims waits for those who wait.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import (
    NOW,
    chunks,
    from_moment,
    now_of,
    plain,
)
from resource_objects.providers.given import later
from resource_objects.providers.waiting import Awaited, Waiter, WaiterFilter, WaitOrder

_waiters = tables.waiters.c
_amounts = tables.waiter_amounts.c

_COLUMNS = (
    *(_waiters.id, _waiters.consumer, _waiters.since, _waiters.lease_until),
    _waiters.actor,
)


def wait(connection: Connection, order: WaitOrder) -> Waiter:
    """Put a consumer into the queue, or keep it there (see the contract).

    Cost: four statements for one that stays, and up to six for one that comes.
    """
    now = now_of(connection)
    ends = later("lease", order.lease, now)
    mine = sa.select(*_COLUMNS).where(_waiters.consumer == order.consumer).with_for_update()
    kept = _listed(connection, connection.execute(mine).all())
    known = kept[0] if kept else None
    if known is None or known.lease_until < now or known.awaits != order.awaits:
        _forget(connection, now, [] if known is None else [known.number])
        return _enter(connection, order, now, ends)
    changed: dict[str, Any] = {"lease_until": plain(ends)}
    if not order.renews:
        changed["entry"] = order.entry
    connection.execute(sa.update(tables.waiters).where(_waiters.id == known.number).values(changed))
    return Waiter(known.number, known.consumer, known.awaits, known.since, ends, known.actor)


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
    # if another call enters it at this very moment, all of it is done again
    made = connection.execute(sa.insert(tables.waiters), values)
    assert made.inserted_primary_key is not None, "the database draws it"
    number = made.inserted_primary_key[0]
    rows = [
        {
            "waiter_id": number,
            "position": position,
            "resource_class": one.resource_class,
            "amount": one.amount,
            "root_uuid": one.root_uuid,
        }
        for position, one in enumerate(order.awaits)
    ]
    connection.execute(sa.insert(tables.waiter_amounts), rows)
    return Waiter(number, order.consumer, order.awaits, now, ends, order.actor)


def _forget(connection: Connection, now: datetime.datetime, numbers: Sequence[int]) -> None:
    """Forget those whose lease is over, and some others."""
    over = sa.select(_waiters.id).where(_waiters.lease_until < plain(now))
    found = sorted({number for (number,) in connection.execute(over)} - set(numbers))
    for part in chunks(found):  # one that has renewed since stays
        is_over = _waiters.lease_until < plain(now)
        connection.execute(sa.delete(tables.waiters).where(_waiters.id.in_(part), is_over))
    if numbers:
        connection.execute(sa.delete(tables.waiters).where(_waiters.id.in_(numbers)))


def list_waiters(
    connection: Connection, wanted: WaiterFilter, limit: int, after: int
) -> tuple[Waiter, ...]:
    """Return a page of those in the queue (see the contract).

    Cost: a statement, and one more for what they wait for, if there is anybody.
    """
    dialect = connection.dialect.name
    now = (
        sa.literal(plain(now_of(connection)))
        if dialect == "sqlite"
        else sa.literal_column(NOW[dialect])
    )
    query = sa.select(*_COLUMNS).where(_waiters.id > after, _waiters.lease_until >= now)
    if wanted.upto is not None:
        query = query.where(_waiters.id <= wanted.upto)
    if wanted.awaits is not None:
        query = query.where(_meets(wanted.awaits))
    return _listed(connection, connection.execute(query.order_by(_waiters.id).limit(limit)).all())


def leave(connection: Connection, entry: str) -> None:
    """Take whoever entered last by an entry out of the queue."""
    connection.execute(sa.delete(tables.waiters).where(_waiters.entry == entry))


def _meets(awaits: Iterable[Awaited]) -> sa.ColumnElement[bool]:
    # EXISTS (SELECT 1 FROM waiter_amounts WHERE waiter_id = waiters.id AND (resource_class = 'PGPU'
    # AND (root_uuid IS NULL OR root_uuid IN ('...')) OR ...): a term for each class, not each tree
    roots: dict[str, set[str] | None] = {}
    for one in awaits:
        known = roots.setdefault(one.resource_class, set())
        if one.root_uuid is None or known is None:
            roots[one.resource_class] = None
        else:
            known.add(one.root_uuid)
    same = [
        (_amounts.resource_class == name)
        if some is None
        else (_amounts.resource_class == name)
        & (_amounts.root_uuid.is_(None) | _amounts.root_uuid.in_(sorted(some)))
        for name, some in roots.items()
    ]
    return sa.exists().where(_amounts.waiter_id == _waiters.id, sa.or_(sa.false(), *same))


def _listed(connection: Connection, rows: Sequence[Any]) -> tuple[Waiter, ...]:
    """Return rows of :data:`_COLUMNS` as waiters, in their order."""
    awaits: dict[int, list[Awaited]] = {row[0]: [] for row in rows}
    for part in chunks(sorted(awaits)):
        query = (
            sa.select(
                *(_amounts.waiter_id, _amounts.resource_class, _amounts.amount, _amounts.root_uuid)
            )
            .where(_amounts.waiter_id.in_(part))
            .order_by(_amounts.waiter_id, _amounts.position)
        )
        for number, *said in connection.execute(query):
            awaits[number].append(Awaited(*said))
    return tuple(
        Waiter(
            number, consumer, tuple(awaits[number]), from_moment(since), from_moment(until), actor
        )
        for number, consumer, since, until, actor in rows
    )
