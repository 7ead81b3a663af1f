"""The backend that keeps a ledger in a SQL database."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Collection
from typing import Self, TypeVar

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import (
    commit,
    feed,
    history,
    listing,
    migrations,
    names,
    operations,
    read,
    server,
    sqlite,
    totals,
    urls,
)
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.consumers import held_by
from resource_objects.backends.sql.engine import Database
from resource_objects.backends.sql.migrations import Standing
from resource_objects.backends.sql.retry import Retries
from resource_objects.providers.backend import Backend
from resource_objects.providers.changed import Changed, Choose
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Change, Cursor
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Pruned,
    Total,
)
from resource_objects.providers.orders import ClaimRecord, NameKind, Operation, Outcome, Write

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
    def database_status(cls, url: str) -> dict[str, str]:
        """Return what a database is to this library; nothing is made of it (see the contract)."""
        self = cls._connect(url, None)
        try:
            found, revision = self._look()
        finally:
            self.close()
        return {
            "database": self._database.where,
            "status": found.value,
            "schema": str(revision),
            "newest schema this library knows": str(migrations.NEWEST),
        }

    def _look(self) -> tuple[Standing, int]:
        if self._database.is_missing():
            return Standing.EMPTY, 0
        return self._reading(lambda c: (migrations.standing(c), migrations.revision(c)))

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
        elif not self._database.read_only:
            self._furnish()

    def _furnish(self) -> None:
        """Make the rows that every ledger has, such as standard names, where they are missing."""
        if not self._reading(_is_furnished):
            with contextlib.suppress(exceptions.ReadOnlyDatabase):  # a server may refuse writes
                self._writing(_furnish)

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
            done = migrations.upgrade(connection)
            _furnish(connection)
            return done

    def close(self) -> None:
        """Give back every connection. Closing twice is allowed."""
        self._database.close()

    # --- reading ---

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return everything kept, or some trees, at one moment (see the contract)."""
        return self._reading(
            lambda connection: read.read(connection, self._catalogue, trees, allocations)
        )

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of these names that are kept."""
        return self._reading(lambda connection: read.uuids(connection, names))

    def list_providers(
        self, wanted: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers (see the contract)."""
        return self._reading(
            lambda connection: listing.providers(connection, self._catalogue, wanted, limit, after)
        )

    def list_consumers(
        self, wanted: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ClaimRecord, ...]:
        """Return a page of consumers with what they hold (see the contract)."""
        return self._reading(
            lambda connection: listing.consumers(connection, self._catalogue, wanted, limit, after)
        )

    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of resource classes, traits or aggregates (see the contract)."""
        return self._reading(lambda connection: names.listed(connection, kind, limit, after))

    def totals(self, wanted: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return what the consumers of a filter use (see the contract)."""
        return self._reading(
            lambda connection: totals.totals(connection, self._catalogue, wanted, by)
        )

    def held(self, consumer: str) -> ClaimRecord | None:
        """Return what a consumer holds, None if nothing."""
        return self.held_by([consumer]).get(consumer)

    def held_by(self, consumers: Collection[str]) -> dict[str, ClaimRecord]:
        """Return what several consumers hold, by name, at one moment. Cost: three queries."""
        return self._reading(lambda connection: held_by(connection, consumers))

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return what an operation did, None if none of that id is recorded."""
        return self._reading(lambda connection: operations.find(connection, operation.id))

    def cursor(self) -> Cursor:
        """Return where the change feed is now. Cost: one small statement."""
        return self._reading(feed.heads)

    def changes(self, after: Cursor, limit: int) -> tuple[Change, ...]:
        """Return the next changes after a cursor (see the contract). Cost: two statements."""
        return self._reading(lambda connection: feed.changes(connection, after, limit))

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that were touched after a cursor, in one transaction (see the contract).

        Cost: one small statement if nothing was written, else two, and ten more for the trees.
        """
        return self._reading(
            lambda connection: read.read_changed(connection, self._catalogue, after, most, choose)
        )

    # --- writing ---

    def commit(self, write: Write) -> tuple[ClaimRecord, ...]:
        """Carry out a write, whole or not at all (see the contract).

        Whether it was done before is asked after a failure only: the first try of an operation,
        which is nearly every one, does not pay for it.
        """
        try:
            return self._writing(
                lambda connection: commit.commit(connection, self._catalogue, write)
            )
        except _NOT_ASKED:
            raise
        except exceptions.ResourceObjectsError:
            done = self.outcome(write.operation)
            if done is None:
                raise
            done.require(write.operation.id, write.kind, write.subject)
            return done.claims

    def prune(self, before: datetime.datetime) -> Pruned:
        """Forget operations and changes older than a moment, a few at a time (see the contract)."""
        return history.prune(self._reading, self._writing, before)

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


def _is_furnished(connection: Connection) -> bool:
    return names.has_standard(connection) and not feed.missing_heads(connection)


def _furnish(connection: Connection) -> None:
    names.ensure_standard(connection)
    feed.ensure_heads(connection)
