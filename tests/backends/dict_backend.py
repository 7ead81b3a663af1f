"""A small backend: rows in one dict, and the rules of ``resource_objects.store``."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import secrets
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Self

from resource_objects import clock, exceptions
from resource_objects.backends.memory import feed, reading
from resource_objects.providers.backend import RETENTION, Backend
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Pruned,
    Total,
)
from resource_objects.providers.orders import ConsumerRecord, NameKind, Operation, Outcome, Write
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.statistics import (
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
)
from resource_objects.providers.use_over_time import UseBy, UseFilter, UseReport
from resource_objects.providers.waiting import Waiter, WaiterFilter, WaitOrder
from resource_objects.store.columns import columns_of, roots_of_all
from resource_objects.store.rows import Rows
from resource_objects.store.tables import Table, changes
from resource_objects.store.write import carry_out

URL = "dict://"


class DictBackend(Backend):
    """A ledger in one dict, ``{(table, key): row}``, as a key-value store would have it.

    Each method loads all rows, so its cost is linear in the ledger.
    """

    unsupported = frozenset(
        {Capability.WAITING, Capability.STATISTICS, Capability.USE_OVER_TIME},
    )

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stored: dict[tuple[str, Any], Any] = {}
        self._retention = RETENTION
        self._epoch = secrets.randbits(62) + 1  # of the history that cursors belong to
        # numbers are never used twice, so they are drawn outside of the rows of one write
        self._numbers = {
            name: itertools.count(1)
            for name in ("provider_numbers", "name_numbers", "operation_numbers")
        }
        with self._writing() as rows:
            rows.add_standard_names()

    @classmethod
    def open(cls, url: str) -> Self:
        """Return a new, empty ledger."""
        if url != URL:
            raise exceptions.InvalidURL("ledger URL", url, URL)
        return cls()

    def close(self) -> None:
        """Close nothing: the rows are removed with this object."""

    # --- rows: a database backend does the same within a transaction ---

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Rows]:
        """Lock the ledger and load its rows."""
        with self._lock:
            rows = Rows()
            for name, numbers in self._numbers.items():
                setattr(rows, name, numbers)
            tables = _tables(rows)
            for (name, key), row in self._stored.items():
                tables[name].change(key, None, row)
            yield rows

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Rows]:
        """Lock the ledger, load its rows, and store those that changed; after an error, none."""
        with self._reading() as rows:
            yield rows
            names = {id(table): name for name, table in _tables(rows).items()}
            stored = dict(self._stored)
            for table, key, _, row in changes(rows.journal):
                if row is None:
                    del stored[names[id(table)], key]
                else:
                    stored[names[id(table)], key] = row
            self._stored = stored  # one assignment: an interrupt finds all changes or none

    # --- writing ---

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write, whole or not at all."""
        with self._writing() as rows:
            operation, now = write.operation, self.now()
            done = rows.operations.get(operation.id)
            if done is not None:
                done.outcome.require(operation.id, write.kind, write.subject)
                return done.outcome.claims
            operation.require_known(now, self._retention)
            return carry_out(rows, write, now, next(rows.operation_numbers))

    def retain(self, age: datetime.timedelta) -> None:
        """Set the retention time of operations and changes."""
        self._retention = age

    def prune(self, before: datetime.datetime) -> Pruned:
        """Delete operations and changes older than a moment."""
        with self._writing() as rows:
            operations, entries = feed.expired(rows, before)
            for id in operations:
                rows.operations.put(id, None)
            for key in entries:
                rows.changes.put(key, None)
            return Pruned(len(operations), len(entries))

    # --- reading ---

    def now(self) -> datetime.datetime:
        """Return the time of this machine."""
        return clock.now()

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return all trees, or some."""
        with self._reading() as rows:
            roots = rows.roots(trees) if trees else roots_of_all(rows)
            return columns_of(rows, roots, feed.cursor_of(rows, self._epoch), allocations)

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return the uuids of providers by name."""
        with self._reading() as rows:
            uuid_of = rows.provider_named.key
            return {name: uuid_of[name] for name in names if name in uuid_of}

    def held(self, consumer: str) -> ConsumerRecord | None:
        """Return the record of a consumer."""
        return self.held_by([consumer]).get(consumer)

    def held_by(self, consumers: Collection[str]) -> dict[str, ConsumerRecord]:
        """Return the records of consumers by name."""
        with self._reading() as rows:
            records = {name: rows.consumer(name) for name in consumers}
            return {name: record for name, record in records.items() if record is not None}

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return the recorded outcome of an operation."""
        with self._reading() as rows:
            row = rows.operations.get(operation.id)
            return None if row is None else row.outcome

    def cursor(self) -> Cursor:
        """Return the end of the change feed."""
        with self._reading() as rows:
            return feed.cursor_of(rows, self._epoch)

    def changes(self, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
        """Return entries of the change feed after a cursor."""
        with self._reading() as rows:
            return feed.changes_after(rows, after, feed.cursor_of(rows, self._epoch), limit)

    def list_providers(
        self, wanted: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers."""
        with self._reading() as rows:
            return reading.page_of_providers(rows, wanted, limit, after)

    def list_consumers(
        self, wanted: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ConsumerRecord, ...]:
        """Return a page of consumers."""
        with self._reading() as rows:
            return reading.page_of_consumers(rows, wanted, limit, after)

    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of resource classes, traits or aggregates."""
        with self._reading() as rows:
            return reading.page_of_names(rows, kind, limit, after)

    def list_server_groups(
        self, limit: int, after: str | None = None, *, names: Collection[str] | None = None
    ) -> tuple[ServerGroup, ...]:
        """Return a page of server groups."""
        with self._reading() as rows:
            return reading.page_of_server_groups(rows, limit, after, names)

    def totals(self, wanted: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return the amounts allocated to consumers, by group and class."""
        with self._reading() as rows:
            return reading.totals_of_consumers(rows, wanted, by)

    # --- unsupported: each call raises NotSupported, before anything is read or written ---

    def wait(self, order: WaitOrder) -> Waiter:
        """Raise NotSupported."""
        raise _not_supported(Capability.WAITING)

    def list_waiters(self, wanted: WaiterFilter, limit: int, after: int = 0) -> tuple[Waiter, ...]:
        """Raise NotSupported."""
        raise _not_supported(Capability.WAITING)

    def leave(self, entry: str) -> None:
        """Raise NotSupported."""
        raise _not_supported(Capability.WAITING)

    def put_statistics(self, order: StatisticsOrder) -> int:
        """Raise NotSupported."""
        raise _not_supported(Capability.STATISTICS)

    def read_statistics(self, wanted: StatisticFilter) -> StatisticsByProvider:
        """Raise NotSupported."""
        raise _not_supported(Capability.STATISTICS)

    def forget_statistics(self, wanted: StatisticFilter) -> int:
        """Raise NotSupported."""
        raise _not_supported(Capability.STATISTICS)

    def use_between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None,
        wanted: UseFilter,
        by: Sequence[UseBy],
    ) -> UseReport:
        """Raise NotSupported."""
        raise _not_supported(Capability.USE_OVER_TIME)


def _tables(rows: Rows) -> dict[str, Table[Any, Any]]:
    return {name: table for name, table in vars(rows).items() if isinstance(table, Table)}


def _not_supported(capability: Capability) -> exceptions.NotSupported:
    return exceptions.NotSupported("capability", capability.value)
