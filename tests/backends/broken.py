"""Backends that break the laws on purpose: each in one way, of which the kill suite must tell.

They do their damage when they are opened, to the process they are opened in, so only processes
that are started for it may open them.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import backend, orders, tables
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.backends.sql.statements import SQL
from resource_objects.providers.orders import ConsumerRecord, Key, Write


def _look_away() -> None:
    """Give others the time to change what was read."""
    time.sleep(0.01)


def _only_look(connection: Connection, rows: orders.StoredRows, keys: Collection[Key]) -> None:
    """Find inventories as ``orders.read_locked_inventories`` does, and lock none of them."""
    orders._find(connection, rows, keys)
    _look_away()


_BLIND_UPDATE = SQL("""
    UPDATE inventories SET used = used + CASE id WHEN :ids THEN :nets* END,
    writes = writes + CASE id WHEN :ids THEN :counts* END WHERE id IN :ids*""")


def _replace(module: ModuleType | type, name: str, made: object) -> None:
    """Put something else in the place of what a module has by that name now."""
    assert hasattr(module, name), f"{module.__name__} has no {name} any more"
    setattr(module, name, made)


class Blind(SQLBackend):
    """Decides on what it read without a lock, and adds without a look."""

    @classmethod
    def open(cls, url: str, **options: Any) -> Self:
        _replace(orders, "_CHANGE_USED", _BLIND_UPDATE)
        _replace(orders, "read_locked_inventories", _only_look)
        return super().open(url, **options)


class Absolute(SQLBackend):
    """Writes what is used as it worked it out, whatever others have written since."""

    @classmethod
    def open(cls, url: str, **options: Any) -> Self:
        _replace(orders, "read_locked_inventories", _only_look)
        _replace(orders, "change_used", _set_used)
        return super().open(url, **options)


def _set_used(
    connection: Connection, nets: Mapping[int, int], counted: Collection[int], **_: Any
) -> None:
    read = _USED.rows(connection, ids=list(nets))
    _look_away()
    for number, used in read:
        _SET_USED.run(
            connection, id=number, used=used + nets[number], counted=int(number in counted)
        )


_USED = SQL("SELECT id, used FROM inventories WHERE id IN :ids*")
_SET_USED = SQL("UPDATE inventories SET used = :used, writes = writes + :counted WHERE id = :id")


class Careless(SQLBackend):
    """Does not look who has a unit, and has no key that would."""

    @classmethod
    def open(cls, url: str, **options: Any) -> Self:
        _replace(orders.StoredRows, "unit_consumers", lambda *_: {})
        self = super().open(url, **options)
        drop = "ALTER TABLE allocation_units DROP CONSTRAINT IF EXISTS pk_allocation_units"
        self._writing(lambda connection: connection.execute(sa.text(drop)))
        return self


class Late(SQLBackend):
    """Records an operation after its changes are committed: a kill in between finds it out."""

    @classmethod
    def open(cls, url: str, **options: Any) -> Self:
        _replace(orders, "record_operation", _record_later)
        _replace(backend, "pipeline", _one_by_one)
        return super().open(url, **options)

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        done = self.outcome(write.operation)
        if done is not None:
            return done.claims
        claims = super().commit(write)
        time.sleep(0.1)  # to be killed in
        self._writing(_PENDING.pop(write.operation.id))
        return claims


def _one_by_one(connection: Connection) -> contextlib.AbstractContextManager[None]:
    """Send each change as it comes: a record that is not sent yet cannot be taken back."""
    return contextlib.nullcontext()


_record = orders.record_operation
_PENDING: dict[str, Callable[[Connection], None]] = {}


def _record_later(
    connection: Connection, write: Write, number: int, now: datetime.datetime
) -> None:
    """Record the operation, and take the record back: it comes again in its own transaction."""
    _record(connection, write, number, now)
    connection.execute(sa.delete(tables.operations).where(tables.operations.c.id == number))
    _PENDING[write.operation.id] = lambda later: _record(later, write, number, now)


class Forgetful(SQLBackend):
    """Acknowledges some writes that it rolls back."""

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        if write.kind == "define" or not write.operation.id.endswith("0"):
            return super().commit(write)
        claims: tuple[ConsumerRecord, ...] = ()

        def work(connection: Connection) -> None:
            nonlocal claims
            claims = self._commit_refusing_duplicates(connection, write)
            raise exceptions.DatabaseError("busy", "never mind")

        try:
            self._writing(work)
        except exceptions.DatabaseError as error:
            if not error.is_about("busy"):
                raise
            return claims
        raise AssertionError("it was not rolled back")
