"""The backend that stores a ledger in a SQL database."""

from __future__ import annotations

import contextlib
import datetime
import functools
import secrets
import threading
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import clock, exceptions
from resource_objects.backends.retries import LOG, RetryPolicy, Transient
from resource_objects.backends.sql import (
    engine,
    feed,
    listing,
    migrations,
    names,
    orders,
    read,
    statistics,
    tables,
    urls,
    use_over_time,
    waiters,
)
from resource_objects.backends.sql.engine import Database
from resource_objects.backends.sql.errors import duplicated
from resource_objects.backends.sql.migrations import Standing
from resource_objects.backends.sql.orders import StoredRows
from resource_objects.backends.sql.rows import TreeRows, check_unchanged
from resource_objects.backends.sql.statements import draw_number, now_of, pipeline
from resource_objects.providers.backend import AlreadyRecorded, Backend
from resource_objects.providers.listing import Pruned
from resource_objects.providers.orders import (
    FRESH,
    ConsumerRecord,
    Write,
    class_renames,
)
from resource_objects.providers.statistics import StatisticsOrder
from resource_objects.store.decide import decide, keys_of

T = TypeVar("T")
P = ParamSpec("P")


def _transaction(
    work: Callable[Concatenate[Connection, P], T], *, writes: bool = False
) -> Callable[Concatenate[SQLBackend, P], T]:
    """Return a method that runs a function in a transaction of its own."""

    @functools.wraps(work)
    def method(self: SQLBackend, /, *values: P.args, **more: P.kwargs) -> T:
        if writes:
            return self._writing(work, *values, **more)
        return self._reading(work, *values, **more)

    return method


class SQLBackend(Backend):
    """A ledger in a SQLite file, PostgreSQL, MariaDB, Galera or MySQL.

    Safe for several threads, and in the child after a fork, which opens its own connections. Each
    method is one transaction, repeated by ``retries`` if the database was busy.
    """

    def __init__(self, database: Database, retries: RetryPolicy) -> None:
        self._database = database
        self._retries = retries
        self._is_created = True
        self._empty: Database | None = None  # read in place of a file that does not exist yet
        self._creating = threading.Lock()

    @classmethod
    def open(cls, url: str, *, retries: RetryPolicy | None = None) -> Self:
        """Open a database; a SQLite file is upgraded (see the contract).

        A file that does not exist is created by the first write. Until then it reads as empty.

        :param retries: how transactions are tried again; the default suits most
        """
        self = cls._connect(url, retries)
        try:
            if self._database.is_missing():
                self._is_created = False
                self._empty = engine.empty_database(self._database.name)
                with self._empty.writing() as connection:
                    migrations.upgrade(connection)
                    _furnish(connection)
                    # so a cursor of this moment precedes the first write of the ledger
                    connection.execute(sa.update(tables.ledger_info).values(epoch=0))
            else:
                self._admit()
        except BaseException:
            self.close()
            raise
        return self

    @classmethod
    def upgrade_database(cls, url: str) -> list[str]:
        """Bring a database to this library's schema (see the contract)."""
        # DDL may take long, and the connection that has the lock is idle meanwhile
        connected = cls._connect(url, None, read_timeout=3600, idle_timeout=0)
        with contextlib.closing(connected) as self:
            return self.upgrade()

    @classmethod
    def database_status(cls, url: str) -> dict[str, str]:
        """Return whether this library can use a database; change nothing (see the contract)."""
        standing, revision = Standing.EMPTY, 0
        with contextlib.closing(cls._connect(url, None)) as self:
            if not self._database.is_missing():
                standing = self._reading(migrations.standing)
                revision = self._reading(migrations.revision)
        return {
            "database": self._database.name,
            "status": standing.value,
            "schema": str(revision),
            "newest schema this library knows": str(migrations.NEWEST),
        }

    @classmethod
    def _connect(cls, url: str, retries: RetryPolicy | None, **defaults: Any) -> Self:
        address = urls.parse(url, **defaults)
        embedded = address.kind == "sqlite"
        connect = engine.connect_file if embedded else engine.connect_server
        return cls(connect(address), retries or RetryPolicy())

    def _admit(self) -> None:
        """Refuse a database that this library must not use; upgrade an embedded one."""
        standing = self._standing()
        if standing is Standing.USABLE:
            if not self._reading(_is_furnished):
                try:
                    self._writing(_furnish)
                except exceptions.DatabaseError as error:
                    if not error.is_about("read-only"):  # a server may refuse writes
                        raise
        elif self._database.embedded:
            self.upgrade()
        else:
            raise exceptions.DatabaseError("schema too old", self._database.name, standing.value)

    def _standing(self) -> Standing:
        """Return the standing of a database that this library may use; refuse others."""
        standing = self._reading(migrations.standing)
        if standing is Standing.TOO_NEW:
            raise exceptions.DatabaseError("schema too new", self._database.name, standing.value)
        if standing in (Standing.FOREIGN, Standing.BEFORE, Standing.UNRELEASED):
            raise exceptions.DatabaseError("unavailable", self._database.name, standing.value)
        return standing

    def upgrade(self) -> list[str]:
        """Upgrade the schema to the newest revision; return the names of the steps that were run.

        Safe for several processes at once: one of them runs each step, the others wait for it.
        """
        if self._standing() is Standing.USABLE:
            return []
        return self._retries.run(self._upgrade)

    def _upgrade(self) -> list[str]:
        if self._database.embedded:
            self._database.use_wal()
            upgrading = self._database.writing()
        else:
            upgrading = engine.upgrading(self._database)
        with upgrading as connection:
            done = migrations.upgrade(connection)
            _furnish(connection)
        for step in done:
            LOG.info("%s: upgraded by %s", self._database.name, step)
        return done

    def is_missing(self) -> bool:
        """Return whether the file does not exist yet (see the contract)."""
        return not self._is_created and self._database.is_missing()

    def close(self) -> None:
        """Close every connection. Closing twice is allowed."""
        self._database.close()
        if self._empty is not None:
            self._empty.close()

    # --- queries and changes: one transaction each, as the contract describes them ---

    now = _transaction(now_of)
    read_again = _transaction(read.read_again)
    read_changed = _transaction(read.read_changed)
    list_providers = _transaction(listing.list_providers)
    outcome = _transaction(orders.find_outcome)
    uuids = _transaction(read.uuids)
    list_consumers = _transaction(listing.list_consumers)
    list_names = _transaction(names.list_names)
    list_server_groups = _transaction(listing.list_groups)
    totals = _transaction(listing.totals)
    count_consumers = _transaction(listing.count_consumers)
    held_by = _transaction(orders.consumer_records)
    list_waiters = _transaction(waiters.list_waiters)
    read_statistics = _transaction(statistics.read)
    use_between = _transaction(use_over_time.between)
    wait = _transaction(waiters.wait, writes=True)
    leave = _transaction(waiters.leave, writes=True)
    forget_statistics = _transaction(statistics.forget, writes=True)
    retain = _transaction(feed.retain, writes=True)
    cursor = _transaction(feed.read_cursor)
    changes = _transaction(feed.read_changes)
    read = _transaction(read.read)  # the last: from here on it is no module

    # --- statistics ---

    def put_statistics(self, order: StatisticsOrder) -> int:
        """Store the statistics of some providers (see the contract).

        Cost: two queries if nothing changes, else up to ten statements more.
        """
        if not self._reading(statistics.is_news, order):
            return 0
        return self._writing(statistics.write, order)

    # --- writing ---

    def carry_out(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write, completely or not at all (see the contract)."""
        records = self._writing(self._commit_refusing_duplicates, write)
        # the write is committed; another write prunes the rest
        if secrets.randbits(16) % feed.EVERY == 0:
            with contextlib.suppress(exceptions.LedgerError):
                self._writing(feed.delete_some)
        return records

    def _commit_refusing_duplicates(
        self, connection: Connection, write: Write
    ) -> tuple[ConsumerRecord, ...]:
        try:
            return commit_write(connection, write)
        except exceptions.ResourceObjectsError:
            raise
        except Exception as error:
            refusal = _duplicate(write, duplicated(error))
            if refusal is None:
                raise
            raise refusal from error

    def prune(self, before: datetime.datetime) -> Pruned:
        """Delete operations and changes older than a moment, a few at a time (see the contract)."""
        self._writing(feed.note_pruning, before)
        operations = changes = 0
        while True:
            deleted = self._writing(feed.delete_some, before)
            operations += deleted.operations
            changes += deleted.changes
            if deleted.operations < feed.BATCH:
                return Pruned(operations, changes)

    # --- transactions ---

    def _readable(self) -> Database:
        """Return the database to read: an empty one until the file exists."""
        if not self._is_created and not self._database.closed:
            if self._empty is not None and self._database.is_missing():
                return self._empty
            self._create()
        return self._database

    def _create(self) -> None:
        """Create the file with its tables, or find that another process has created it."""
        with self._creating:
            if self._is_created:
                return
            type(self)(self._database, self._retries)._admit()
            self._is_created = True

    def _reading(
        self, query: Callable[Concatenate[Connection, P], T], /, *values: P.args, **more: P.kwargs
    ) -> T:
        def attempt() -> T:
            try:
                with self._readable().reading() as connection:
                    return query(connection, *values, **more)
            except exceptions.DatabaseError as lost:  # a read changes nothing
                if not lost.is_about("lost"):
                    raise
                raise Transient(lost) from lost.__cause__

        return self._retries.run(attempt)

    def _writing(
        self, work: Callable[Concatenate[Connection, P], T], /, *values: P.args, **more: P.kwargs
    ) -> T:
        if not self._is_created:
            self._create()

        def attempt() -> T:
            with self._database.writing() as connection:
                return work(connection, *values, **more)

        return self._retries.run(attempt)


def _is_furnished(connection: Connection) -> bool:
    """Return True if the rows exist that every ledger has."""
    return not feed.missing_heads(connection) and names.has_standard(connection)


def _furnish(connection: Connection) -> None:
    """Insert the rows that every ledger has, such as standard names, if they are missing."""
    names.ensure_standard(connection)
    feed.ensure_heads(connection)


# --- a write --------------------------------------------------------------------------------------
#
# One transaction, in this order:
#
# 1. Providers with a changed definition, those that must be unchanged, that report, or that are
#    disabled or enabled are locked and read (``rows``).
# 2. Names and server groups are changed (``names``). The inventories that change
#    are locked, with those of the orders. Definitions and the service of providers are changed by
#    the rules of ``store``, and flushed (``rows``).
# 3. The consumers of the orders are read and their inventories locked, and the server groups of
#    members that allocate on another host. The rules decide (``store.decide``).
#    The operation is recorded; a repeated one ends here. ``used`` is changed by guarded net
#    amounts, then consumers, allocations and units are written (``orders``).
# 4. Inventories and providers are removed (``rows``).
# 5. The change feed is written (``feed``).
#
# The number of statements does not depend on the number of rows. A claim of one consumer, the most
# frequent write, takes seven statements with SQLite, without BEGIN and COMMIT. On PostgreSQL it
# waits for two answers before the commit: of the statement that finds and locks, and of the
# pipeline of all changes.


def commit_write(connection: Connection, write: Write) -> tuple[ConsumerRecord, ...]:
    """Carry out a write, whole or not at all; return a record per order (see the contract)."""
    feed_rows = feed.FeedRows()
    number = draw_number(write.operation.kept_from(clock.now()))
    if _is_alone(write):
        with pipeline(connection):
            records = _carry_out_orders(connection, write, number, feed_rows)
            feed.append_entries(connection, number, feed_rows)
        return records
    now = now_of(connection)
    _check_age(connection, write, now)
    rows = None
    if write.definitions or write.reported or write.adopted or write.disabling:
        rows = TreeRows(connection, write, number, now)
        rows.lock()
    elif write.unchanged:
        check_unchanged(connection, write, now)
    renamed = names.change_names(connection, write, number, now)
    if rows is not None:
        is_locking = write.orders and connection.dialect.name != "sqlite"
        rows.apply(orders.inventory_numbers(connection, write.orders) if is_locking else ())
    records = ()
    if write.orders:
        records = _carry_out_orders(connection, write, number, feed_rows)
    else:
        orders.record_operation(connection, write, number, now)
    if rows is not None:
        if write.orders:
            rows.remove()
        rows.feed(feed_rows)
    if renamed and feed_rows.rows:  # a rename alone is not written for each provider
        for uuid, root in read.roots(connection, renamed).items():
            feed_rows.provider(root, uuid)
    feed.append_entries(connection, number, feed_rows, class_renames(write.names))
    return records


def _check_age(connection: Connection, write: Write, now: datetime.datetime) -> None:
    """Raise for an operation that may have been recorded and pruned since.

    Cost: nothing for one that was made within the hour.

    :raises Expired: see ``Operation.require_known``
    """
    made_at = write.operation.made_at
    if made_at is None or now - made_at < FRESH:
        return
    if orders.find_outcome(connection, write.operation) is not None:
        raise AlreadyRecorded(write.operation.id)
    write.operation.require_known(now, feed.retention(connection))


def _carry_out_orders(
    connection: Connection, write: Write, number: int, feed_rows: feed.FeedRows
) -> tuple[ConsumerRecord, ...]:
    """Carry out the orders of a write; return the record of each consumer."""
    rows = StoredRows(connection, number)
    ordered = [order.consumer for order in write.orders]
    if not _is_one_claim(write):
        orders.read_consumers(connection, ordered, rows)
    keys = keys_of(write.orders, rows.records)
    rows.inventories = {key: row for key, row in rows.inventories.items() if key in keys}
    orders.read_locked_inventories(connection, rows, keys)
    now = rows.now or now_of(connection)
    _check_age(connection, write, now)
    try:
        effects = decide(rows, write.orders, now, generation=number, limits=write.limits)
    except exceptions.ResourceObjectsError:
        # a refusal must be about the present allocations of the consumers
        is_claim = _is_one_claim(write)
        can_have_changed = is_claim or connection.dialect.name != "sqlite"
        if can_have_changed and not orders.are_unchanged(connection, ordered, rows):
            if is_claim:
                raise exceptions.AlreadyExists("consumer", ordered[0]) from None
            raise orders.changed_since(ordered[0]) from None
        raise
    orders.record_operation(connection, write, number, now)
    if effects.nets:
        numbers = {key: rows.inventories[key].inventory_id for key in effects.nets}
        limits = write.limits
        orders.change_used(
            connection,
            {numbers[key]: net for key, net in effects.nets.items()},
            {numbers[key] for key in effects.counted(rows)},
            adopts=any(order.adopts for order in write.orders),
            bounds={numbers[key]: limits[key] for key in numbers if key in limits},
        )
    consumers = orders.write_consumers(connection, effects.consumers, rows)
    roots = rows.roots
    for uuid in effects.overridden:
        feed_rows.provider(roots[uuid], uuid, feed.OVERRIDE)
    for order, effect in zip(write.orders, effects.consumers, strict=True):
        consumer = consumers[effect.claim.consumer]
        for change in effect.changes:
            feed_rows.use(roots[change.key[0]], order.mode, consumer, change)
        if not effect.changes:
            trees = {roots[use.provider_uuid] for use in effect.claim.held}
            feed_rows.claim(trees, order.mode, consumer)
    return tuple([effect.claim for effect in effects.consumers])


def _duplicate(write: Write, refused: str | None) -> exceptions.LedgerError | None:
    """Return the refusal of a write whose row is a duplicate, None if the cause is unknown.

    A consumer that another write created meanwhile is found at the next attempt, unless the
    order is a claim.

    :param refused: ``table.column`` of the constraint that refused it, if it was one
    """
    if refused == "operations.uuid":
        return AlreadyRecorded(write.operation.id)
    if refused == "consumers.uuid" and write.orders:
        first = write.orders[0]
        claim = first.uuid if len(write.orders) == 1 and first.uuid else write.operation.id
        return exceptions.Conflict("operation", claim, "a claim of this id exists")
    if refused == "consumers.name" and _is_one_claim(write):
        return exceptions.AlreadyExists("consumer", write.orders[0].consumer)
    return None


def _is_one_claim(write: Write) -> bool:
    """Return True if no consumer needs to be read: the unique name refuses a duplicate."""
    return len(write.orders) == 1 and write.orders[0].is_claim


def _is_alone(write: Write) -> bool:
    """Return True if a write is the claim or the release of one consumer, and nothing else."""
    if len(write.orders) != 1 or not (write.orders[0].is_claim or write.orders[0].is_release):
        return False
    more = write.definitions, write.unchanged, write.reported, write.adopted, write.names
    return not any(more) and not write.disabling and not write.groups
