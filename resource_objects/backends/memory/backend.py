"""The backend in memory: the lock, and the commit or rollback of each write."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from resource_objects import clock, exceptions
from resource_objects.backends.memory import feed, reading, statistics, use_over_time
from resource_objects.providers.backend import RETENTION, Backend, Operation, Outcome
from resource_objects.providers.changed import Changed, Choose
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Pruned,
    Total,
)
from resource_objects.providers.orders import ConsumerRecord, NameKind, Write
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.statistics import (
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
)
from resource_objects.providers.use_over_time import (
    UseBy,
    UseFilter,
    UseReport,
)
from resource_objects.providers.waiting import Waiter, WaiterFilter, WaitOrder
from resource_objects.store.columns import columns_of, roots_of_all, with_present_use
from resource_objects.store.rows import Rows
from resource_objects.store.tables import Table
from resource_objects.store.write import carry_out

URL = "memory://"
#: After how many operations a write also deletes expired ones, and how many at most.
EVERY, BATCH = 64, 256


class MemoryBackend(Backend):
    """A ledger in tables of rows. Every method holds one lock; reads return copies.

    A write changes rows and their journal. It is committed by emptying the journal, which is one
    instruction. If the write is refused or interrupted before that, its changes are undone: at once
    or, if that is interrupted too, by the next method.

    Operations and the change feed are stored until they are pruned, so memory grows with the number
    of writes, not only with what is defined and allocated.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_closed = False
        self._clear()
        self._rows.add_standard_names()
        self._rows.commit()

    def _clear(self) -> None:
        self._rows = Rows()
        self._epoch = secrets.randbits(62) + 1
        self._retention = RETENTION
        #: changes before it may have been deleted, whatever the retention time
        self._complete_since = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self._cursor: Cursor | None = None
        #: deletions of what is expired, which are decided and not yet done
        self._expired: list[tuple[Table[Any, Any], Any, Any]] = []
        #: (entry, waiter) by consumer, in the order of the numbers
        self._waiters: dict[str, tuple[str, Waiter]] = {}
        self._waiter_numbers = itertools.count(1)

    @classmethod
    def open(cls, url: str) -> Self:
        """Return a new, empty ledger: two of them never mix."""
        if url != URL:
            raise exceptions.InvalidURL("ledger URL", url, f"{URL} with nothing behind it")
        return cls()

    def close(self) -> None:
        """Delete everything."""
        with self._lock:
            self._is_closed = True
            self._clear()

    # --- reading ---

    def now(self) -> datetime.datetime:
        """Return the time of this machine."""
        return clock.now()

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return all trees, or some (see the contract)."""
        with self._lock:
            rows = self._open()
            roots = rows.roots(trees) if trees else roots_of_all(rows)
            return columns_of(rows, roots, self._end_of_feed(), allocations)

    def read_again(self, before: Columns, *trees: str) -> Columns:
        """Return trees that were read before with their present use (see the contract)."""
        with self._lock:
            columns = with_present_use(self._open(), before)
            return columns or self.read(*trees)

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the stored providers of these names."""
        with self._lock:
            uuid_of = self._open().provider_named.key
            return {name: uuid_of[name] for name in names if name in uuid_of}

    def list_providers(
        self, criteria: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers (see the contract)."""
        with self._lock:
            return reading.page_of_providers(self._open(), criteria, limit, after)

    def list_consumers(
        self, criteria: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ConsumerRecord, ...]:
        """Return a page of consumers (see the contract)."""
        with self._lock:
            return reading.page_of_consumers(self._open(), criteria, limit, after)

    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of resource classes, traits or aggregates (see the contract)."""
        with self._lock:
            return reading.page_of_names(self._open(), kind, limit, after)

    def list_server_groups(
        self, limit: int, after: str | None = None, *, names: Collection[str] | None = None
    ) -> tuple[ServerGroup, ...]:
        """Return a page of server groups with their members (see the contract)."""
        with self._lock:
            return reading.page_of_server_groups(self._open(), limit, after, names)

    def totals(self, criteria: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return the sums used by the consumers of a filter (see the contract)."""
        with self._lock:
            return reading.totals_of_consumers(self._open(), criteria, by)

    def count_consumers(
        self, criteria: ConsumerFilter, by: Description
    ) -> Mapping[str | None, int]:
        """Return the number of consumers of a filter (see the contract)."""
        with self._lock:
            return reading.counts_of_consumers(self._open(), criteria, by)

    def held(self, consumer: str) -> ConsumerRecord | None:
        """Return the record of a consumer, None if it does not exist."""
        return self.held_by([consumer]).get(consumer)

    def held_by(self, consumers: Collection[str]) -> dict[str, ConsumerRecord]:
        """Return the records of several consumers, by name."""
        with self._lock:
            rows = self._open()
            return {
                name: rows.with_present_names(rows.consumers[name])
                for name in consumers
                if name in rows.consumers
            }

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return the outcome of an operation, None if none of that id is recorded."""
        with self._lock:
            row = self._open().operations.get(operation.id)
            return None if row is None else row.outcome

    def cursor(self) -> Cursor:
        """Return the cursor at the end of the change feed."""
        with self._lock:
            self._open()
            return self._end_of_feed()

    def changes(self, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
        """Return changes after a cursor (see the contract)."""
        with self._lock:
            return feed.changes_after(self._open(), after, self._end_of_feed(), limit)

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that changed after a cursor (see the contract)."""
        with self._lock:
            rows, end = self._open(), self._end_of_feed()
            waiting = after.waiting(end)
            count = sum(waiting.values())
            uuids = choose(feed.touched_in(rows, after, waiting)) if count <= most else None
            if uuids is None:
                return Changed(end, count, None)
            roots = {rows.root(uuid).uuid: None for uuid in uuids if uuid in rows.providers}
            columns = columns_of(rows, [rows.providers[root] for root in roots], end)
            return Changed(end, count, columns)

    # --- the queue ---

    def wait(self, order: WaitOrder) -> Waiter:
        """Put a consumer into the queue, or renew its lease there (see the contract)."""
        with self._lock:
            self._open()
            now = clock.now()
            queue = {
                name: pair for name, pair in self._waiters.items() if pair[1].lease_until >= now
            }
            lease_until = now + order.lease
            entry, waiting = queue.get(order.consumer, ("", None))
            if waiting is not None and waiting.awaits == order.awaits:
                waiter = dataclasses.replace(waiting, lease_until=lease_until)
                queue[order.consumer] = entry if order.renews else order.entry, waiter
            else:
                queue.pop(order.consumer, None)  # so that it comes last
                number = next(self._waiter_numbers)
                waiter = Waiter(number, order.consumer, order.awaits, now, lease_until, order.actor)
                queue[order.consumer] = order.entry, waiter
            self._waiters = queue
            return waiter

    def list_waiters(
        self, criteria: WaiterFilter, limit: int, after: int = 0
    ) -> tuple[Waiter, ...]:
        """Return a page of the queue (see the contract)."""
        with self._lock:
            self._open()
            queue = [waiter for _, waiter in self._waiters.values()]
        now = clock.now()
        waiters = (
            waiter
            for waiter in queue
            if waiter.number > after
            and waiter.lease_until >= now
            and (criteria.upto is None or waiter.number <= criteria.upto)
            and (
                criteria.awaits is None
                or any(mine.meets(its) for mine in criteria.awaits for its in waiter.awaits)
            )
        )
        return tuple(itertools.islice(waiters, limit))

    def leave(self, entry: str) -> None:
        """Remove the consumer from the queue that entered last by an entry."""
        with self._lock:
            self._open()
            queue = {name: pair for name, pair in self._waiters.items() if pair[0] != entry}
            self._waiters = queue

    # --- statistics ---

    def put_statistics(self, order: StatisticsOrder) -> int:
        """Store the statistics of some providers (see the contract)."""
        with self._writing() as rows:
            return statistics.put(rows, order, clock.now())

    def read_statistics(self, criteria: StatisticFilter) -> StatisticsByProvider:
        """Return the statistics of a filter (see the contract)."""
        with self._lock:
            return statistics.read(self._open(), criteria)

    def forget_statistics(self, criteria: StatisticFilter) -> int:
        """Delete the statistics of a filter (see the contract)."""
        with self._writing() as rows:
            return statistics.forget(rows, criteria)

    # --- writing ---

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write, whole or not at all (see the contract)."""
        with self._lock:
            rows = self._open()
            done = rows.operations.get(write.operation.id)
            if done is not None:
                done.outcome.require(write.operation.id, write.kind, write.subject)
                return done.outcome.claims
            now = clock.now()
            write.operation.require_known(now, self._retention)
            number = next(rows.operation_numbers)
            self._cursor = None
            try:
                records = carry_out(rows, write, now, number)
            except BaseException:
                rows.rollback()
                raise
            rows.commit()
            if number % EVERY == 0:
                self._prune(now - self._retention, BATCH)
            return records

    def retain(self, age: datetime.timedelta) -> None:
        """Set the retention time of operations and changes (see the contract)."""
        with self._lock:
            self._open()
            if age > self._retention:
                self._complete_since = self._feed_complete_since()
            self._retention = age

    def prune(self, before: datetime.datetime) -> Pruned:
        """Delete operations and changes older than a moment (see the contract)."""
        with self._lock:
            self._open()
            self._complete_since = max(self._complete_since, before)
            return self._prune(before)

    def _prune(self, before: datetime.datetime, most: int | None = None) -> Pruned:
        rows = self._rows
        operations, entries = feed.expired(rows, before, most)
        tables: list[tuple[Table[Any, Any], Any]] = [(rows.operations, id) for id in operations]
        self._delete([*tables, *((rows.changes, key) for key in entries)])
        return Pruned(len(operations), len(entries))

    # --- use over time ---

    def use_between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None,
        criteria: UseFilter,
        by: Sequence[UseBy],
    ) -> UseReport:
        """Return what was used between two moments (see the contract)."""
        with self._lock:
            complete = self._feed_complete_since()
            return use_over_time.between(self._open(), since, until, criteria, by, complete)

    def _feed_complete_since(self) -> datetime.datetime:
        return max(self._complete_since, clock.now() - self._retention)

    # --- transactions ---

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Rows]:
        """Lock the rows; commit what is changed, or undo it if an error is raised."""
        with self._lock:
            rows = self._open()
            try:
                yield rows
            except BaseException:
                rows.rollback()
                raise
            rows.commit()

    def _delete(self, keys: Iterable[tuple[Table[Any, Any], Any]]) -> None:
        """Delete rows that are expired.

        From the moment it is decided it is done, at the latest by the next method: undone deletions
        would come back at the end of tables that are in the order of time.
        """
        self._expired = [(table, key, table.get(key)) for table, key in keys]
        self._delete_expired()

    def _delete_expired(self) -> None:
        for table, key, row in self._expired:
            table.change(key, row, None)
        self._expired = []

    def _end_of_feed(self) -> Cursor:
        if self._cursor is None:
            self._cursor = feed.cursor_of(self._rows, self._epoch)
        return self._cursor

    def _open(self) -> Rows:
        """Return the rows, after finishing what an interrupt stopped."""
        if self._is_closed:
            raise exceptions.DatabaseError("closed", URL)
        if self._expired:
            self._delete_expired()
        if self._rows.journal:
            self._rows.rollback()
        return self._rows
