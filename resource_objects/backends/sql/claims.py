"""The effects of orders as rows: consumers, allocations and units.

Consumers were read (``consumers``) and inventories locked (``places``) before; the rules are in
``store.decide``. The number of statements of a function does not depend on the number of consumers.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import disabled, places, server_groups, statements, tables
from resource_objects.backends.sql.consumers import ConsumerRow
from resource_objects.backends.sql.places import Found, Places
from resource_objects.backends.sql.statements import (
    SQL,
    Insert,
    chunks,
    draw_number,
    moment,
)
from resource_objects.providers.disabled import Disabled, RemovedUnit
from resource_objects.providers.orders import ConsumerRecord, Key, StoredRequest
from resource_objects.store.decide import (
    ConsumerEffect,
    GroupMembers,
    OrderRows,
    Service,
    Unit,
)

# --- the rows that the rules read ---


class LockedRows(OrderRows):
    """The rows that orders are about, locked; the rest is read if a rule asks for it.

    :param consumers: the records of the consumers that exist, by name
    :param number: of the operation
    """

    def __init__(
        self,
        connection: Connection,
        consumers: Mapping[str, ConsumerRecord],
        at: Places,
        number: int = 0,
    ) -> None:
        self._connection = connection
        self._consumers = consumers
        self._at = at
        self._number = number
        self._service = {
            key[0]: Service(found.disabled_until, found.removed_units)
            for key, found in at.by_key.items()
            if found.disabled_until is not None or found.removed_units
        }

    def consumer(self, name: str) -> ConsumerRecord | None:
        """Return a consumer."""
        return self._consumers.get(name)

    def inventory(self, key: Key) -> Found | None:
        """Return a locked inventory."""
        return self._at.by_key.get(key)

    def provider_name(self, uuid: str) -> str | None:
        """Return the name of a provider."""
        return self._at.names.get(uuid)

    def service(self, uuid: str) -> Service | None:
        """Return until when a provider is disabled, and how many of its units were removed."""
        return self._service.get(uuid)

    def users_of(self, keys: Collection[Key]) -> dict[Key, list[tuple[str, int]]]:
        """Return the largest consumers of inventories."""
        return places.holders(self._connection, self._at, keys)

    def unit_consumers(self, units: Collection[Unit]) -> dict[Unit, str]:
        """Return the consumers of those units that are allocated."""
        return places.takers(self._connection, units)

    def disabled_at(self, uuids: Collection[str], now: datetime.datetime) -> dict[str, Disabled]:
        """Return why providers or their ancestors are disabled, by name."""
        return disabled.out_of_service(self._connection, uuids, now)

    def removed_units_of(self, uuids: Collection[str]) -> dict[str, tuple[RemovedUnit, ...]]:
        """Return the units that were removed while allocated, by provider."""
        return disabled.removed_units_of(self._connection, uuids)

    def group_members(self, names: Collection[str], uuids: Collection[str]) -> GroupMembers:
        """Lock server groups, give them the generation of the write, and return their members."""
        return server_groups.members_of(self._connection, names, uuids, self._number)


# --- consumers ---


_OF_GENERATION = "WHERE id IN :ids* AND generation IN :generations*"
_PASS_ON = SQL(f"UPDATE consumers SET generation = :now, writes = writes + 1 {_OF_GENERATION}")
_FORGET = SQL(
    f"UPDATE consumers SET generation = :now, writes = writes + 1, gone = :now {_OF_GENERATION}"
)
_EMPTY = SQL("DELETE FROM allocations WHERE consumer_id IN :ids*")
_MAKE_CONSUMERS = Insert(
    tables.consumers,
    *("id", "uuid", "name", "gone", "state", "generation", "request", "project_id", "user_id"),
    *("consumer_type", "created_at", "expires_at", "writes", "server_group"),
)


def pass_on(connection: Connection, kept: Iterable[ConsumerRow], number: int, query: SQL) -> None:
    """Store consumers at the next generation if they are still as they were read; lock them.

    The generations of all consumers of one query are compared as a set. That is enough: a query
    reads one moment, so no consumer can have reached a generation that another one had then.
    """
    parts: dict[int, list[ConsumerRow]] = defaultdict(list)
    for one in kept:
        parts[one.part].append(one)
    for part in parts.values():
        ids = sorted(one.number for one in part)
        generations = list({one.record.generation for one in part})
        busy = exceptions.DatabaseError(
            "busy", part[0].record.consumer, "somebody else changes it all the time"
        )
        query.must_match(
            connection,
            len(ids),
            lambda _, busy=busy: Transient(busy),  # type: ignore[misc]
            now=number,
            ids=ids,
            generations=generations,
        )


def make_consumers(
    connection: Connection, records: Sequence[ConsumerRecord], generation: int
) -> dict[str, int]:
    """Insert consumers; return their numbers by name. Cost: one statement."""
    numbers: dict[str, int] = {}
    values: list[tuple[Any, ...]] = []
    for one in records:
        number = numbers[one.consumer] = draw_number()
        created, request = moment(connection, one.created_at), _text(one.request)
        until = None if one.expires_at is None else moment(connection, one.expires_at)
        values.append(
            (
                *(number, one.uuid, one.consumer, 0, one.state, generation, request),
                *(one.project, one.user, one.consumer_type, created, until, 1, one.group),
            )
        )
    _MAKE_CONSUMERS.many(connection, values)
    return numbers


def _text(request: StoredRequest | None) -> str | None:
    return None if request is None else request.text


def change_consumers(
    connection: Connection, changed: Iterable[tuple[ConsumerRow, ConsumerRecord]]
) -> None:
    """Update the changed columns of consumers and of their claims."""
    described: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for kept, now in changed:
        was = kept.record
        whose = {
            "request": _text(now.request),
            "project_id": now.project,
            "user_id": now.user,
            "consumer_type": now.consumer_type,
            "server_group": now.group,
        }
        before = _text(was.request), was.project, was.user, was.consumer_type, was.group
        if (*whose.values(),) != before:
            described.append({"id": kept.number, **whose})
        if (now.state, now.expires_at) != (was.state, was.expires_at):
            until = None if now.expires_at is None else moment(connection, now.expires_at)
            claims.append({"id": kept.number, "state": now.state, "expires_at": until})
    if described:
        statements.update(connection, tables.consumers, ["id"], described)
    if claims:
        statements.update(connection, tables.consumers, ["id"], claims)


def forget_consumers(connection: Connection, gone: Sequence[ConsumerRow], number: int) -> None:
    """Mark consumers as removed, and delete their allocations."""
    for part in chunks(sorted(one.number for one in gone)):
        _EMPTY.run(connection, ids=part)
    pass_on(connection, gone, number, _FORGET)


def put(
    connection: Connection,
    settled: Sequence[ConsumerEffect],
    kept: Mapping[str, ConsumerRow],
    at: Places,
    number: int,
) -> dict[str, int]:
    """Write consumers with their allocations: first what is released, then what is allocated.

    Returns the numbers of the consumers, by name.
    """
    work = Work(at)
    gone: list[ConsumerRow] = []
    stays: list[tuple[ConsumerRow, ConsumerRecord]] = []
    new: list[ConsumerEffect] = []
    for one in settled:
        consumer = kept.get(one.claim.consumer)
        if consumer is None:
            new.append(one)
        elif one.is_gone:
            gone.append(consumer)
        else:
            stays.append((consumer, one.claim))
            work.add(one, consumer, consumer.number)
    if stays:
        pass_on(connection, [consumer for consumer, _ in stays], number, _PASS_ON)
    if gone:
        forget_consumers(connection, gone, number)
    if stays:
        work.free(connection)
        change_consumers(connection, stays)
    numbers = {name: one.number for name, one in kept.items()}
    if new:
        numbers |= make_consumers(connection, [one.claim for one in new], number)
        for one in new:
            work.add(one, None, numbers[one.claim.consumer])
    work.take(connection)
    return numbers


# --- allocations and units ------------------------------------------------------------------------
#
# Releases are written before allocations, so that consumers can exchange inventories and units.
# The primary key (provider, unit) guarantees that a unit is allocated once: of two writers the
# second is refused as a duplicate, and its next try finds the consumer of the unit.

#: The key of an allocation: the numbers of consumer, provider and class.
_Row = tuple[int, int, int]
_KEYS = ("consumer_id", "provider_id", "class_id")


_MAKE_ALLOCATIONS = Insert(tables.allocations, *_KEYS, "used", "position")
_TAKE_UNITS = Insert(tables.allocation_units, "provider_id", "unit", "consumer_id", "class_id")


class Work:
    """Changes of allocations and units, collected and then written by a few statements."""

    def __init__(self, at: Places) -> None:
        self._at = at
        self._made: list[tuple[int, int, int, int, int]] = []
        self._changed: list[dict[str, int]] = []
        self._dropped: list[dict[str, int]] = []
        self._emptied: list[dict[str, Any]] = []  # released units
        self._taken: list[tuple[int, str, int, int]] = []

    def add(self, settled: ConsumerEffect, kept: ConsumerRow | None, consumer: int) -> None:
        """Add the changes of a consumer that is stored or new."""
        last = (
            0 if kept is None else max((one.position for one in kept.holdings.values()), default=0)
        )
        for change in settled.changes:
            place = self._at.by_key[change.key]
            row = (consumer, place.provider_id, place.class_id)
            if kept is None or change.key not in kept.holdings:
                last += 1
                self._made.append((*row, change.after, last))
            elif not change.after:
                self._dropped.append(dict(zip(_KEYS, row, strict=True)))
            elif change.after != change.before:
                self._changed.append(dict(zip(_KEYS, row, strict=True), used=change.after))
            if change.given and change.after:  # units of a deleted allocation are deleted with it
                self._emptied += [{"provider_id": row[1], "unit": unit} for unit in change.given]
            if change.taken:
                self._taken += [(row[1], unit, row[0], row[2]) for unit in change.taken]

    def free(self, connection: Connection) -> None:
        """Write what is released."""
        statements.delete(connection, tables.allocation_units, self._emptied)
        statements.delete(connection, tables.allocations, self._dropped)
        statements.update(connection, tables.allocations, _KEYS, self._changed)

    def take(self, connection: Connection) -> None:
        """Write what is allocated."""
        if self._made:
            _MAKE_ALLOCATIONS.many(connection, self._made)
        if self._taken:
            _TAKE_UNITS.many(connection, sorted(self._taken))
