"""The backend that keeps a ledger in a SQL database."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Self, TypeVar

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import (
    claim,
    define,
    migrations,
    operations,
    read,
    server,
    sqlite,
    urls,
)
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.engine import Database
from resource_objects.backends.sql.migrations import Standing
from resource_objects.backends.sql.operations import Write
from resource_objects.backends.sql.retry import Retries
from resource_objects.providers.backend import (
    Adjustment,
    Backend,
    ClaimOrder,
    ClaimRecord,
    Operation,
    Outcome,
)
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import DefinitionChanges

T = TypeVar("T")

#: What says nothing about the ledger, so that asking it again for an outcome is no use.
_NOT_ASKED = (
    exceptions.DatabaseBusy,
    exceptions.DatabaseUnavailable,
    exceptions.LedgerClosed,
    exceptions.LostConnection,
    exceptions.ReadOnlyDatabase,
)


class SQLBackend(Backend):
    """Keeps a ledger in a SQLite file, PostgreSQL, MariaDB, Galera or MySQL.

    Safe for use by several threads, and after a fork in the child, which makes connections of its
    own. Each method is one transaction, tried again by ``retries`` where the database was busy.
    """

    def __init__(self, database: Database, retries: Retries) -> None:
        self._database = database
        self._retries = retries
        self._catalogue = Catalogue()

    @classmethod
    def open(cls, url: str, *, retries: Retries | None = None) -> Self:
        """Open a database; a SQLite file is created and upgraded (see the contract).

        :param retries: how transactions are tried again; the default suits most
        """
        self = cls._connect(url, retries)
        try:
            self._admit()
        except BaseException:
            self.close()
            raise
        return self

    @classmethod
    def upgrade_database(cls, url: str) -> list[str]:
        """Bring a database to this library's schema (see the contract)."""
        self = cls._connect(url, None)
        try:
            return self.upgrade()
        finally:
            self.close()

    @classmethod
    def _connect(cls, url: str, retries: Retries | None) -> Self:
        parsed = urls.parse(url)
        embedded = parsed.get_backend_name() == "sqlite"
        connect = sqlite.connect if embedded else server.connect
        return cls(connect(parsed), retries or Retries())

    def _admit(self) -> None:
        """Refuse a database this library must not use; create and upgrade an embedded one."""
        standing = self._standing()
        if standing in (Standing.EMPTY, Standing.OLD):
            if not self._database.embedded:
                raise exceptions.SchemaTooOld(self._database.where, standing.value)
            self.upgrade()

    def _standing(self) -> Standing:
        """Return what the database is to this library, of what it may use."""
        found = self._reading(migrations.standing)
        if found is Standing.TOO_NEW:
            raise exceptions.SchemaTooNew(self._database.where, found.value)
        if found is Standing.FOREIGN:
            raise exceptions.DatabaseUnavailable(self._database.where, found.value)
        return found

    def upgrade(self) -> list[str]:
        """Bring the schema up to this library's; return the names of the steps that were run.

        Safe while others do the same: one of them runs each step, all of them wait for it.
        """
        if self._standing() is Standing.USABLE:
            return []
        return self._retries.run(self._upgrade)

    def _upgrade(self) -> list[str]:
        if self._database.embedded:
            sqlite.use_wal(self._database)
            upgrading = self._database.writing()
        else:
            upgrading = server.upgrading(self._database)
        with upgrading as connection:
            return migrations.upgrade(connection)

    def close(self) -> None:
        """Give back every connection. Closing twice is allowed."""
        self._database.close()

    # --- reading ---

    def read(self, tree: str | None = None) -> Columns:
        """Return everything kept, or one tree, at one moment (see the contract)."""
        return self._reading(lambda connection: read.read(connection, self._catalogue, tree))

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of these names that are kept."""
        return self._reading(lambda connection: read.uuids(connection, names))

    def held(self, consumer: str) -> ClaimRecord | None:
        """Return what a consumer holds, None if nothing."""
        return self._reading(lambda connection: claim.held(connection, consumer))

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return what an operation did, None if none of that id is recorded."""
        return self._reading(lambda connection: operations.find(connection, operation.id))

    # --- writing ---

    def define(self, operation: Operation, changes: DefinitionChanges) -> None:
        """Apply changes of definitions, all or none (see the contract)."""
        write = Write(operation, "define", changes.root)
        self._once(
            write, lambda connection: define.define(connection, self._catalogue, write, changes)
        )

    def claim(self, operation: Operation, order: ClaimOrder) -> ClaimRecord:
        """Take all deltas of an order for a new consumer, or none (see the contract)."""
        write = Write(operation, "claim", order.consumer)
        return _made(
            self._once(
                write, lambda connection: claim.claim(connection, self._catalogue, write, order)
            )
        )

    def adjust(self, operation: Operation, order: Adjustment) -> ClaimRecord:
        """Change what one consumer holds by all deltas, or by none (see the contract)."""
        write = Write(operation, "adjust", order.consumer)
        return _made(
            self._once(
                write, lambda connection: claim.adjust(connection, self._catalogue, write, order)
            )
        )

    def release(self, operation: Operation, consumer: str) -> ClaimRecord:
        """Give back all that a consumer holds and forget the consumer (see the contract)."""
        write = Write(operation, "release", consumer)
        return _made(
            self._once(write, lambda connection: claim.release(connection, write, consumer))
        )

    # --- transactions ---

    def _reading(self, ask: Callable[[Connection], T]) -> T:
        def attempt() -> T:
            with self._database.reading() as connection:
                return ask(connection)

        return self._retries.run(attempt)

    def _writing(self, work: Callable[[Connection], T]) -> T:
        def attempt() -> T:
            with self._database.writing() as connection:
                return work(connection)

        return self._retries.run(attempt)

    def _once(
        self, write: Write, work: Callable[[Connection], ClaimRecord | None]
    ) -> ClaimRecord | None:
        """Return the outcome of a write, the recorded one if it was done before.

        Whether it was is asked after a failure only: the first try of an operation, which is
        nearly every one, does not pay for it.
        """
        try:
            return self._writing(work)
        except _NOT_ASKED:
            raise
        except exceptions.ResourceObjectsError:
            done, outcome = self._reading(write.outcome)
            if not done:
                raise
            return outcome


def _made(outcome: ClaimRecord | None) -> ClaimRecord:
    assert outcome is not None  # of writes about consumers
    return outcome
