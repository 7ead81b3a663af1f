"""The contract on rows in memory (:class:`RowsBackend`), and a ledger in the memory of one process.

:class:`MemoryBackend` is for tests, simulations and programs that store their ledger themselves. It
behaves like a database; its content is lost when it is closed.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import datetime
import functools
import heapq
import itertools
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

from resource_objects import clock, exceptions
from resource_objects.providers.backend import (
    RETENTION,
    AlreadyRecorded,
    Backend,
    Changed,
    Choose,
    Touched,
)
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
from resource_objects.providers.listing import Pruned
from resource_objects.providers.orders import (
    Change,
    ConsumerRecord,
    NameKind,
    Operation,
    Outcome,
    Write,
)
from resource_objects.providers.statistics import StatisticFilter, StatisticsOrder
from resource_objects.providers.use_over_time import (
    MICROSECOND,
    ClassRename,
    Group,
    UseBy,
    UseChange,
    UseFilter,
    UseReport,
    check_span,
    report,
)
from resource_objects.providers.waiting import Waiter, WaiterFilter, WaitOrder
from resource_objects.store import pages
from resource_objects.store.columns import columns_of, roots_of_all, with_present_use
from resource_objects.store.rows import HeadRow, Rows, Table
from resource_objects.store.write import (
    carry_out,
    delete_statistics,
    read_statistics,
    write_statistics,
)

URL = "memory://"
#: After how many operations a write also deletes expired ones, and how many at most.
EVERY, BATCH = 64, 256

T = TypeVar("T")
P = ParamSpec("P")

#: (table, key) of rows.
_Keys: TypeAlias = "list[tuple[Table[Any, Any], Any]]"


def _of_rows(read: Callable[Concatenate[Rows, P], T]) -> Callable[Concatenate[RowsBackend, P], T]:
    """Return a method that reads something of all rows."""

    @functools.wraps(read)
    def method(self: RowsBackend, /, *values: P.args, **more: P.kwargs) -> T:
        with self.reading() as rows:
            return read(rows, *values, **more)

    return method


class RowsBackend(Backend):
    """A backend that has all rows of the ledger in memory when it reads or writes.

    It implements the contract, except for the queue, on the rows of :meth:`reading` and
    :meth:`writing`. A subclass implements these two, ``open`` and ``close``.
    """

    # --- pages and totals: of the rows of one moment, as the contract describes them ---

    list_providers = _of_rows(pages.page_of_providers)
    list_consumers = _of_rows(pages.page_of_consumers)
    list_names = _of_rows(pages.page_of_names)
    list_server_groups = _of_rows(pages.page_of_server_groups)
    totals = _of_rows(pages.totals_of_consumers)
    count_consumers = _of_rows(pages.counts_of_consumers)
    read_statistics = _of_rows(read_statistics)

    # --- transactions ---

    def __init__(self) -> None:
        #: identifies the ledger in cursors; a backend that outlives its process restores it
        self.epoch = secrets.randbits(62) + 1
        self._retention = RETENTION
        #: changes before this moment may have been deleted, regardless of the retention time
        self._complete_since = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    @abc.abstractmethod
    def reading(self) -> AbstractContextManager[Rows]:
        """Return a context with the rows of one moment; changes of them are not stored."""

    @abc.abstractmethod
    def writing(self) -> AbstractContextManager[Rows]:
        """Return a context with the rows, locked. Its end stores the changes; an error none."""

    def now(self) -> datetime.datetime:
        """Return the time of this machine."""
        return clock.now()

    # --- reading ---

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return all trees, or some (see the contract)."""
        with self.reading() as rows:
            roots = rows.roots(trees) if trees else roots_of_all(rows)
            return columns_of(rows, roots, self._end_of_feed(rows), allocations)

    def read_again(self, before: Columns, *trees: str) -> Columns:
        """Return trees that were read before in their present state (see the contract)."""
        with self.reading() as rows:
            return with_present_use(rows, before) or self.read(*trees)

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the stored providers of some names."""
        with self.reading() as rows:
            uuid_of = rows.provider_named.key
            return {name: uuid_of[name] for name in names if name in uuid_of}

    def held_by(self, consumers: Collection[str]) -> dict[str, ConsumerRecord]:
        """Return the records of several consumers, by name."""
        with self.reading() as rows:
            stored = rows.consumers.rows
            return {n: rows.with_present_names(stored[n]) for n in consumers if n in stored}

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return the outcome of an operation, None if none of that id is recorded."""
        with self.reading() as rows:
            row = rows.operations.get(operation.id)
            return None if row is None else row.outcome

    # --- the change feed ---

    def cursor(self) -> Cursor:
        """Return the end of the change feed."""
        with self.reading() as rows:
            return self._end_of_feed(rows)

    def changes(self, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
        """Return changes after a cursor, by time. Cost: linear in all entries after it."""
        with self.reading() as rows:
            shards = [_entries(rows, after, s) for s in after.waiting(self._end_of_feed(rows))]
            merged = heapq.merge(*shards, key=lambda entry: entry.at)
            return tuple(itertools.islice(merged, limit))

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that changed after a cursor (see the contract)."""
        with self.reading() as rows:
            end = self._end_of_feed(rows)
            waiting = after.waiting(end)
            count = sum(waiting.values())
            if count > most:
                return Changed(end, count, None)
            uuids = choose(Touched.of(e for shard in waiting for e in _entries(rows, after, shard)))
            if uuids is None:
                return Changed(end, count, None)
            roots = {rows.root(uuid).uuid: None for uuid in uuids if uuid in rows.providers}
            columns = columns_of(rows, [rows.providers[root] for root in roots], end)
            return Changed(end, count, columns)

    def _end_of_feed(self, rows: Rows) -> Cursor:
        heads = [rows.heads.rows.get(shard, _NO_HEAD) for shard in range(SHARDS)]
        numbers, operations = zip(*heads, strict=True)
        return Cursor(numbers, operations, self.epoch)

    def _feed_complete_since(self) -> datetime.datetime:
        return max(self._complete_since, self.now() - self._retention)

    def use_between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None,
        criteria: UseFilter,
        by: Sequence[UseBy],
    ) -> UseReport:
        """Return the use between two moments. Cost: linear in the change feed and the claims."""
        until = check_span(since, until, self.now())
        groups: dict[str, Group | None] = {}

        def group_of(record: ConsumerRecord) -> Group | None:
            """Return the group of a consumer by its latest record, which is read first."""
            if record.uuid not in groups:
                is_counted = criteria.matches(record.consumer, record.user, record.project)
                group = tuple(getattr(record, dimension.value) for dimension in by)
                groups[record.uuid] = group if is_counted else None
            return groups[record.uuid]

        with self.reading() as rows:
            complete = self._feed_complete_since()
            present: Counter[tuple[Group, str]] = Counter()
            for record in rows.consumers.rows.values():
                group = group_of(record)
                if group is not None:
                    for use in record.held:
                        present[group, use.resource_class] += use.amount
            changed = [
                (at, (group, change.key[1]), change.after - change.before)
                for at, record, change in _changes_of_use(rows, max(since, complete))
                if (group := group_of(record)) is not None
            ]
            entries = rows.changes.rows.values()
            renames = [ClassRename(e.at, *pair) for e in entries for pair in e.renamed_classes]
            classes = [
                name
                for name in criteria.classes or ()
                if (NameKind.RESOURCE_CLASS, name) in rows.names
            ]

        def changes(
            after: datetime.datetime, upto: datetime.datetime | None
        ) -> Iterable[UseChange]:
            sums: dict[tuple[Group, str], list[int]] = defaultdict(lambda: [0, 0])
            for at, key, amount in changed:
                if at > after and (upto is None or at <= upto):
                    sums[key][0] += amount
                    sums[key][1] += amount * ((at - after) // MICROSECOND)
            return [UseChange(*key, *amounts) for key, amounts in sums.items()]

        return report(present, changes, renames, criteria, by, (since, until, complete), classes)

    # --- statistics ---

    def put_statistics(self, order: StatisticsOrder) -> int:
        """Store the statistics of some providers (see the contract)."""
        with self.writing() as rows:
            return write_statistics(rows, order, self.now())

    def forget_statistics(self, criteria: StatisticFilter) -> int:
        """Delete the statistics of a filter (see the contract)."""
        with self.writing() as rows:
            return delete_statistics(rows, criteria)

    # --- writing ---

    def carry_out(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write, completely or not at all (see the contract)."""
        with self.writing() as rows:
            if write.operation.id in rows.operations.rows:
                raise AlreadyRecorded(write.operation.id)
            now = self.now()
            write.operation.require_known(now, self._retention)
            number = next(rows.operation_numbers)
            records = carry_out(rows, write, now, number)
        if number % EVERY == 0:
            with self.writing() as rows:
                self._prune(rows, now - self._retention, BATCH)
        return records

    def retain(self, age: datetime.timedelta) -> None:
        """Set the retention time of operations and changes (see the contract)."""
        with self.reading():
            if age > self._retention:
                self._complete_since = self._feed_complete_since()
            self._retention = age

    def prune(self, before: datetime.datetime) -> Pruned:
        """Delete operations and changes older than a moment (see the contract)."""
        with self.writing() as rows:
            self._complete_since = max(self._complete_since, before)
            return self._prune(rows, before)

    def _prune(self, rows: Rows, before: datetime.datetime, most: int | None = None) -> Pruned:
        """Delete old operations, at most ``most``, and entries. Cost: linear in these.

        The last ones of each shard stay: they identify the history.
        """
        last = {head.operation for head in rows.heads.rows.values()}
        old = itertools.takewhile(lambda pair: pair[1].at < before, rows.operations.rows.items())
        operations: _Keys = [
            (rows.operations, id)
            for id, row in itertools.islice(old, most)
            if row.number not in last
        ]
        entries: _Keys = []
        for shard, keys in rows.changes_of.keys.items():
            # from the oldest on, so that the remaining entries have no gap
            oldest = itertools.takewhile(lambda key: rows.changes[key].at < before, keys)
            head = rows.heads[shard].number
            entries += [(rows.changes, k) for k in itertools.islice(oldest, most) if k[1] < head]
        self._delete(operations + entries)
        return Pruned(len(operations), len(entries))

    def _delete(self, keys: _Keys) -> None:
        """Delete expired rows."""
        for table, key in keys:
            table.write(key, None)


class MemoryBackend(RowsBackend):
    """A ledger in tables of rows. Every method holds one lock; reads return copies.

    A write changes rows and their journal. It is committed by emptying the journal, which is one
    instruction. If the write is refused or interrupted before that, its changes are undone: at once
    or, if that is interrupted too, by the next method.

    Operations and the change feed are stored until they are pruned, so memory grows with the number
    of writes, not only with what is defined and allocated.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._is_closed = False
        self._clear()
        self._rows.add_standard_names()
        self._rows.commit()

    def _clear(self) -> None:
        self._rows = Rows()
        self._cursor: Cursor | None = None
        #: deletions of expired rows that are decided and not done yet
        self._expired: list[tuple[Table[Any, Any], Any, Any]] = []
        #: (entry, waiter) by consumer, in the order of the numbers
        self._waiters: dict[str, tuple[str, Waiter]] = {}
        self._waiter_numbers = itertools.count(1)

    @classmethod
    def open(cls, url: str) -> Self:
        """Return a new, empty ledger: two of them never mix."""
        if url != URL:
            raise exceptions.InvalidInput("URL", "ledger URL", url, f"{URL} with nothing behind it")
        return cls()

    def close(self) -> None:
        """Delete everything."""
        with self._lock:
            self._is_closed = True
            self._clear()

    # --- transactions ---

    @contextlib.contextmanager
    def reading(self) -> Iterator[Rows]:
        """Lock the rows, and finish or undo what an interrupt stopped."""
        with self._lock:
            yield self._open()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Rows]:
        """Lock the rows; commit the changes, or undo them if an error is raised."""
        with self._lock:
            rows = self._open()
            self._cursor = None
            try:
                yield rows
            except BaseException:
                rows.rollback()
                raise
            rows.commit()

    def _open(self) -> Rows:
        if self._is_closed:
            raise exceptions.DatabaseError("closed", URL)
        if self._expired:
            self._delete_expired()
        if self._rows.journal:
            self._rows.rollback()
        return self._rows

    def _delete(self, keys: _Keys) -> None:
        """Delete expired rows, without the journal.

        From the moment it is decided it is done, at the latest by the next method: undone deletions
        would come back at the end of tables that are in the order of time.
        """
        self._expired = [(table, key, table.get(key)) for table, key in keys]
        self._delete_expired()

    def _delete_expired(self) -> None:
        for table, key, row in self._expired:
            table.put_unjournaled(key, row, None)
        self._expired = []

    def _end_of_feed(self, rows: Rows) -> Cursor:
        if self._cursor is None:
            self._cursor = super()._end_of_feed(rows)
        return self._cursor

    # --- the queue ---

    def wait(self, order: WaitOrder) -> Waiter:
        """Put a consumer into the queue, or renew its lease there (see the contract)."""
        with self.reading():
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
        with self.reading():
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
        """Remove an entry from the queue, unless its consumer has entered again."""
        with self.reading():
            queue = {name: pair for name, pair in self._waiters.items() if pair[0] != entry}
            self._waiters = queue


# --- entries of the change feed -------------------------------------------------------------------

_NO_HEAD = HeadRow(0, 0)


def _entries(rows: Rows, after: Cursor, shard: int) -> list[FeedEntry]:
    """Return the entries of a shard after a cursor. Cost: linear in them."""
    entries = rows.changes.rows
    first, last = after.heads[shard], rows.heads[shard].number
    numbers = [n for n in range(max(1, first), last + 1) if (shard, n) in entries]
    after.check(shard, {n: entries[shard, n].generation for n in numbers}, last)
    return [entries[shard, n] for n in range(first + 1, last + 1)]


def _changes_of_use(
    rows: Rows, since: datetime.datetime
) -> Iterator[tuple[datetime.datetime, ConsumerRecord, Change]]:
    """Yield the changes of use after a moment with the consumer's record, the latest first."""
    for entry in reversed(rows.changes.rows.values()):
        if entry.at > since and entry.uses:
            claims = rows.operations[entry.operation].outcome.claims
            records = {record.consumer: record for record in claims}
            for change in entry.uses:
                yield entry.at, records[change.consumer], change
