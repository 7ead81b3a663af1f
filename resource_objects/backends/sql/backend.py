"""The backend that stores a ledger in a SQL database."""

from __future__ import annotations

import contextlib
import datetime
import functools
import secrets
import threading
from collections.abc import Callable, Collection, Sequence
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
    server_groups,
    statistics,
    tables,
    urls,
    use_over_time,
    waiters,
)
from resource_objects.backends.sql.engine import Database
from resource_objects.backends.sql.errors import duplicated
from resource_objects.backends.sql.migrations import Standing
from resource_objects.backends.sql.names import Catalogue
from resource_objects.backends.sql.orders import StoredRows
from resource_objects.backends.sql.rows import TreeRows
from resource_objects.backends.sql.statements import SQL, draw_number, now_of, pipeline
from resource_objects.providers.backend import AlreadyRecorded, Backend, Changed, Choose
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor
from resource_objects.providers.listing import ListedProvider, ProviderFilter, Pruned
from resource_objects.providers.orders import (
    FRESH,
    ConsumerRecord,
    NameKind,
    Operation,
    Outcome,
    Write,
    class_renames,
)
from resource_objects.providers.statistics import StatisticsOrder
from resource_objects.store.decide import Effects, decide, keys_of

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
        self._catalogue = {kind: names.NameNumbers(kind) for kind in NameKind}
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
        self = cls._connect(url, None, read_timeout=3600, idle_timeout=0)
        try:
            return self.upgrade()
        finally:
            self.close()

    @classmethod
    def database_status(cls, url: str) -> dict[str, str]:
        """Return whether this library can use a database; change nothing (see the contract)."""
        self = cls._connect(url, None)
        standing, revision = Standing.EMPTY, 0
        try:
            if not self._database.is_missing():
                standing = self._reading(migrations.standing)
                revision = self._reading(migrations.revision)
        finally:
            self.close()
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
        """Refuse a database this library must not use; create and upgrade an embedded one.

        Insert the rows that every ledger has, such as standard names, if they are missing.
        """
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
    uuids = _transaction(read.uuids)
    list_consumers = _transaction(listing.list_consumers)
    list_names = _transaction(names.list_names)
    list_server_groups = _transaction(server_groups.list_groups)
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

    # --- reading ---

    def list_providers(
        self, criteria: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers (see the contract)."""
        return self._reading(listing.list_providers, self._catalogue, criteria, limit, after)

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return all trees, or some, at one moment (see the contract)."""
        return self._reading(read.read, self._catalogue, trees, allocations)

    def read_again(self, before: Columns, *trees: str) -> Columns:
        """Return trees that were read before in their present state (see the contract).

        Cost: two statements if their definitions are unchanged; else one more than :meth:`read`.
        """
        return self._reading(read.read_again, self._catalogue, before, trees)

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return the outcome of an operation, None if none of that id is recorded."""
        return self._reading(orders.find_outcome, operation.id)

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that were touched after a cursor, in one transaction (see the contract).

        Cost: one small statement if nothing was written, else two, and ten more for the trees.
        """
        return self._reading(read.read_changed, self._catalogue, after, most, choose)

    # --- statistics ---

    def put_statistics(self, order: StatisticsOrder) -> int:
        """Store the statistics of some providers (see the contract).

        Cost: two queries if nothing changes, else up to ten statements more.
        """
        if not self._reading(statistics.is_news, order):
            return 0
        return self._writing(_put_statistics, order)

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
            return commit_write(connection, self._catalogue, write)
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
            created = type(self)(self._database, self._retries)
            created._admit()
            # in place: a read that began before has this catalogue, with numbers of the empty one
            self._catalogue.update(created._catalogue)
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
    names.ensure_standard(connection)
    feed.ensure_heads(connection)


# --- a write --------------------------------------------------------------------------------------
#
# One transaction, in this order:
#
# 1. Providers with a changed definition, those that must be unchanged, that report, or that are
#    disabled or enabled are locked and read (``rows``).
# 2. Names and server groups are changed (``names``, ``server_groups``). The inventories that change
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


def commit_write(
    connection: Connection, catalogue: Catalogue, write: Write
) -> tuple[ConsumerRecord, ...]:
    """Carry out a write, whole or not at all; return a record per order (see the contract)."""
    feed_rows = feed.FeedRows()
    number = draw_number(write.operation.kept_from(clock.now()))
    if _is_alone(write):
        with pipeline(connection):
            records = _carry_out_orders(
                connection, write, StoredRows(connection, number), feed_rows
            )
            feed.append_entries(connection, number, feed_rows)
        return records
    now = now_of(connection)
    _check_age(connection, write, now)
    rows = None
    if write.definitions or write.reported or write.adopted or write.disabling:
        rows = TreeRows(connection, catalogue, write, number, now)
        rows.lock()
    elif write.unchanged:
        check_unchanged(connection, write.unchanged)
    renamed = names.change_names(connection, catalogue, write.names, number, now)
    server_groups.change_groups(connection, write.groups, number, now)
    if rows is not None:
        rows.apply(_inventories_of_orders(connection, write))
    records = ()
    if write.orders:
        records = _carry_out_orders(
            connection, write, StoredRows(connection, number), feed_rows, is_checked=True
        )
    else:
        orders.record_operation(connection, write, number, now)
    if rows is not None:
        if write.orders:
            rows.remove()
        rows.feed(feed_rows)
    if renamed and feed_rows:  # a rename alone is not written for each provider
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
    if orders.find_outcome(connection, write.operation.id) is not None:
        raise AlreadyRecorded(write.operation.id)
    write.operation.require_known(now, feed.retention(connection))


def _inventories_of_orders(connection: Connection, write: Write) -> set[int]:
    """Return the numbers of the inventories of orders, to be locked with those of definitions.

    They are read again when the orders are carried out. Cost: two to four statements.
    """
    if not write.orders or connection.dialect.name == "sqlite":
        return set()
    rows = StoredRows(connection)
    orders.read_consumers(connection, [order.consumer for order in write.orders], rows)
    return orders.inventory_numbers(connection, keys_of(write.orders, rows.records))


def _carry_out_orders(
    connection: Connection,
    write: Write,
    rows: StoredRows,
    feed_rows: feed.FeedRows,
    *,
    is_checked: bool = False,
) -> tuple[ConsumerRecord, ...]:
    """Carry out the orders of a write; return the record of each consumer.

    :param is_checked: whether the age of the operation was checked
    """
    if not _is_one_claim(write):
        orders.read_consumers(connection, [order.consumer for order in write.orders], rows)
    effects = _effects(connection, write, rows, is_checked=is_checked)
    assert rows.now is not None, "it is read with the inventories"
    orders.record_operation(connection, write, rows.number, rows.now)
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


# --- effects ---


def _effects(
    connection: Connection, write: Write, rows: StoredRows, *, is_checked: bool
) -> Effects:
    """Lock the inventories of the orders and decide."""
    keys = keys_of(write.orders, rows.records)
    rows.inventories = {key: row for key, row in rows.inventories.items() if key in keys}
    orders.read_locked_inventories(connection, rows, keys)
    if rows.now is None:
        rows.now = now_of(connection)
    if not is_checked:
        _check_age(connection, write, rows.now)
    try:
        return decide(rows, write.orders, rows.now, generation=rows.number, limits=write.limits)
    except exceptions.ResourceObjectsError:
        _check_consumers(connection, write, rows)
        raise


def _check_consumers(connection: Connection, write: Write, rows: StoredRows) -> None:
    """Read consumers again before a refusal: it must be about their present allocations."""
    is_claim = _is_one_claim(write)
    if connection.dialect.name == "sqlite" and not is_claim:  # nothing can have changed
        return
    names = [order.consumer for order in write.orders]
    if not orders.are_unchanged(connection, names, rows):
        if is_claim:
            raise exceptions.AlreadyExists("consumer", names[0]) from None
        raise orders.changed_since(names[0])


# --- providers that must be unchanged, and those that report ---


_COLUMNS = "SELECT uuid, id, name, generation FROM resource_providers"
_FIND = SQL(f"{_COLUMNS} WHERE uuid IN :uuids*")
_SHARE = SQL(f"""{_COLUMNS} WHERE id IN :ids*
    ORDER BY id {{postgresql: FOR SHARE}}{{mysql: LOCK IN SHARE MODE}}""")
_LOCK = SQL(f"{_COLUMNS} WHERE id IN :ids* ORDER BY id FOR UPDATE")


def check_unchanged(connection: Connection, unchanged: Sequence[tuple[str, int]]) -> None:
    """Raise unless some providers, ``(uuid, generation)``, are at these generations.

    They stay so until the write ends: on servers they are locked, in a mode that several writes can
    have at once. Cost: one statement with SQLite, else two.

    :raises Stale: if one is not
    """
    locked = _locked(connection, {uuid for uuid, _ in unchanged}, _SHARE)
    for uuid, generation in unchanged:
        if uuid not in locked:
            raise exceptions.Stale("provider", uuid, "it was removed")
        _, name, now = locked[uuid]
        if now != generation:
            raise exceptions.Stale("provider", name, f"read at generation {generation}, now {now}")


def _locked(
    connection: Connection, uuids: Collection[str], lock: SQL
) -> dict[str, tuple[int, str, int]]:
    """Lock providers in the order of their numbers; return ``{uuid: (id, name, generation)}``."""
    rows = _FIND.rows_for(connection, uuids)
    if connection.dialect.name != "sqlite":  # there the writer has the lock of the file
        rows = lock.rows_for(connection, [row[1] for row in rows])
    return {uuid: (number, name, generation) for uuid, number, name, generation in rows}


def _put_statistics(connection: Connection, order: StatisticsOrder) -> int:
    """Write statistics of providers and the times of their reports, under locks of these."""
    locked = _locked(connection, order.providers, _LOCK if order.reported else _SHARE)
    numbers = {uuid: number for uuid, (number, _, _) in locked.items()}
    return statistics.write(connection, order, numbers, now_of(connection))
