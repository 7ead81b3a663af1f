"""Backends that break the laws on purpose: each in one way, of which the kill suite must tell.

They do their damage when they are opened, to the process they are opened in, so only processes
that are started for it may open them.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import commit as commits
from resource_objects.backends.sql import operations, places, schema, units
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.backends.sql.statements import Sized, chosen, listed
from resource_objects.providers.orders import ClaimRecord, Write

_inventories = schema.inventories.c


def _look_away(*_: Any) -> None:
    """Give others the time to change what was read."""
    time.sleep(0.01)


def _blind_update(ids: int, nets: int) -> sa.Update:
    return (
        sa.update(schema.inventories)
        .where(listed(_inventories.id, "ids", ids))
        .values(
            used=_inventories.used + chosen(_inventories.id, "ids", "nets", nets),
            writes=_inventories.writes + 1,
        )
    )


class Blind(SQLBackend):
    """Decides on what it read without a lock, and adds without a look."""

    @classmethod
    def open(cls, url: str, **options: Any) -> Self:
        places._CHANGE = Sized(_blind_update)
        places._lock = _look_away  # type: ignore[assignment]
        return super().open(url, **options)


class Absolute(SQLBackend):
    """Writes what is used as it worked it out, whatever others have written since."""

    @classmethod
    def open(cls, url: str, **options: Any) -> Self:
        places._lock = _look_away  # type: ignore[assignment]
        places.change = _set_used
        return super().open(url, **options)


def _set_used(connection: Connection, nets: Mapping[int, int]) -> None:
    query = sa.select(_inventories.id, _inventories.used).where(_inventories.id.in_(nets))
    for number, used in connection.execute(query).all():
        changed = sa.update(schema.inventories).where(_inventories.id == number)
        connection.execute(changed.values(used=used + nets[number], writes=_inventories.writes + 1))


class Careless(SQLBackend):
    """Does not look who has a unit, and has no key that would."""

    @classmethod
    def open(cls, url: str, **options: Any) -> Self:
        units.takers = lambda *_: {}
        self = super().open(url, **options)
        drop = "ALTER TABLE allocation_units DROP CONSTRAINT IF EXISTS pk_allocation_units"
        self._writing(lambda connection: connection.execute(sa.text(drop)))
        return self


class Late(SQLBackend):
    """Records an operation after its changes are committed: a kill in between finds it out."""

    @classmethod
    def open(cls, url: str, **options: Any) -> Self:
        operations.record = _take_a_number
        commits.operations.record = _take_a_number
        commits._together = _one_by_one
        return super().open(url, **options)

    def commit(self, write: Write) -> tuple[ClaimRecord, ...]:
        done = self.outcome(write.operation)
        if done is not None:
            return done.claims
        claims = super().commit(write)
        time.sleep(0.1)  # to be killed in
        self._writing(_PENDING.pop(write.operation.id))
        return claims


def _one_by_one(connection: Connection, write: Write) -> contextlib.AbstractContextManager[None]:
    """Send each change as it comes: a record that is not sent yet cannot be taken back."""
    return contextlib.nullcontext()


_record = operations.record
_PENDING: dict[str, Any] = {}


def _take_a_number(
    connection: Connection, write: Write, now: datetime.datetime, claims: Sequence[ClaimRecord]
) -> int:
    """Record the operation, and take the record back: it comes again in its own transaction."""
    number = _record(connection, write, now, claims)
    query = sa.select(schema.operations).where(schema.operations.c.id == number)
    [row] = connection.execute(query).mappings().all()
    connection.execute(sa.delete(schema.operations).where(schema.operations.c.id == number))
    _PENDING[write.operation.id] = lambda later: later.execute(
        sa.insert(schema.operations).values(**row)
    )
    return number


class Forgetful(SQLBackend):
    """Acknowledges some writes that it rolls back."""

    def commit(self, write: Write) -> tuple[ClaimRecord, ...]:
        if not write.operation.id.startswith("0"):
            return super().commit(write)
        claims: tuple[ClaimRecord, ...] = ()

        def work(connection: Connection) -> None:
            nonlocal claims
            claims = commits.commit(connection, self._catalogue, write)
            raise exceptions.DatabaseBusy("never mind")

        try:
            self._writing(work)
        except exceptions.DatabaseBusy:
            return claims
        raise AssertionError("it was not rolled back")
