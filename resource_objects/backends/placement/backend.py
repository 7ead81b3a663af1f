"""The backend that stores a ledger in a remote Placement."""

from __future__ import annotations

import datetime
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection
from typing import Any, ClassVar, Self

from resource_objects import clock, exceptions
from resource_objects.backends.placement import codec, unsupported
from resource_objects.backends.placement.allocations import Allocations, PendingWrite
from resource_objects.backends.placement.cache import FEW_TREES, ProviderCache
from resource_objects.backends.placement.client import REPARENTING, Client, client_of
from resource_objects.backends.placement.definitions import Definitions, Steps
from resource_objects.backends.retries import RetryPolicy
from resource_objects.providers.backend import (
    RETENTION,
    AlreadyRecorded,
    Backend,
    Capability,
    Changed,
    Choose,
)
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Total,
)
from resource_objects.providers.orders import ConsumerRecord, NameKind, Operation, Outcome, Write
from resource_objects.store import pages
from resource_objects.store.rows import Rows

#: The maximum number of operations of which this process remembers the outcome.
_MAX_OUTCOMES = 10_000


class PlacementBackend(Backend):
    """A ledger in a remote Placement, by its HTTP API. Safe for use by several threads.

    It refuses unsupported capabilities by name. Otherwise it behaves like Placement: a claim raises
    the generation of its providers, and a definition takes several requests.
    """

    unsupported: ClassVar[frozenset[Capability]] = unsupported.UNSUPPORTED

    def __init__(self, client: Client) -> None:
        if client.minor < REPARENTING:
            self.unsupported = unsupported.UNSUPPORTED | {Capability.REPARENTING}  # type: ignore[misc]
        self._client = client
        consumers = codec.UuidNames(codec.CONSUMERS)
        self._aggregates = codec.UuidNames(codec.AGGREGATES)
        self._cache = ProviderCache(client, consumers, self._aggregates)
        self._allocations = Allocations(client, self._cache, consumers)
        self._definitions = Definitions(client, self._cache, self._allocations, self._aggregates)
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        #: locks of the operations that are being carried out
        self._running: weakref.WeakValueDictionary[str, threading.Lock]
        self._running = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        #: ``is_fresh`` is set in a thread whose last call was :meth:`cursor`
        self._thread = threading.local()
        self._closed = False

    @classmethod
    def open(cls, url: str) -> Self:
        """Open a ``placement+https://`` URL. One request, for the microversions."""
        return cls.open_with(url, None)

    @classmethod
    def open_with(cls, url: str, session: Any, *, retries: RetryPolicy | None = None) -> Self:
        """Open a URL with a session or an adapter of keystoneauth1 (None: a new session).

        :param retries: the policy for requests without an answer, or that Placement gave up
        :raises InvalidInput: for a session of another type
        """
        client = client_of(url, session, retries)
        try:
            client.negotiate()
        except exceptions.DatabaseError as error:
            if not error.is_about("lost"):
                raise
            raise exceptions.DatabaseError("unavailable", error.name, error.detail) from error
        return cls(client)

    @classmethod
    def database_status(cls, url: str) -> dict[str, str]:
        """Return the URL without its password or token, and the microversion. One request."""
        client = cls.open(url)._client
        status = f"Placement, by microversion 1.{client.minor}"
        return {"database": client.service, "status": status}

    def close(self) -> None:
        """Close the backend. The session stays open for its owner."""
        self._closed = True
        self._cache.invalidate()

    def reread(self) -> None:
        """Let the next snapshot read everything, including changes that raised no generation."""
        self._cache.invalidate()

    # --- reading ---

    def now(self) -> datetime.datetime:
        """Return the time of this machine: Placement does not report its own."""
        self._open()
        return clock.now()

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return everything, or some trees (see the contract).

        Allocations are always read, because the used amounts are their sums.

        Cost: for everything a refresh; for trees one or two requests each, and four for each of
        their providers
        """
        cache = self._open()
        return cache.columns(*cache.read(trees or None))

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of names; a request each, or one list."""
        cache = self._open()
        if len(names) > FEW_TREES:
            return {entry.name: entry.uuid for entry in cache.entries() if entry.name in names}
        uuids = {name: cache.uuid_of(name) for name in names}
        return {name: uuid for name, uuid in uuids.items() if uuid is not None}

    def list_providers(
        self, criteria: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers, in the order in which this process first read them.

        Cost: a refresh; for a filter by few names, that of reading their trees
        """
        cache = self._open()
        for name in criteria.forbidden_aggregates.union(*criteria.aggregates):
            self._aggregates.uuid(name)  # which remembers the name
        keys = criteria.uuids or criteria.names or criteria.trees
        states, _ = cache.read(keys if keys and len(keys) <= FEW_TREES else None)
        return pages.page_of_providers(cache.rows(states), criteria, limit, after)

    def list_consumers(
        self, criteria: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ConsumerRecord, ...]:
        """Return a page of consumers by name.

        Cost: a refresh, and a request for each consumer that may be in the page
        """
        rows = self._rows_of(criteria)
        names = sorted(name for name in _selected(rows, criteria) if after is None or name > after)
        page: list[ConsumerRecord] = []
        for first in range(0, len(names), limit):
            batch = names[first : first + limit]
            records = self._allocations.held_by(batch)
            page += pages.select_consumers(rows, records.values(), criteria)
            for name in set(batch) - records.keys():  # released, which raised no generation
                record = rows.consumers.get(name)
                self._cache.invalidate(use.provider_uuid for use in (record.held if record else ()))
            if len(page) >= limit:
                break
        return tuple(page[:limit])

    def _rows_of(self, criteria: ConsumerFilter) -> Rows:
        """Return the present providers that a filter of consumers is about."""
        cache, key = self._open(), criteria.provider or criteria.tree
        if key is None and criteria.names is not None:
            return Rows()
        return cache.rows(cache.read(None if key is None else [key])[0])

    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of names. One request for all of them; for aggregates a refresh."""
        self._open()
        names = enumerate(self._definitions.names(kind), 1)
        page = [ListedName(number, name) for number, name in names if not after or name > after]
        return tuple(page[:limit])

    def totals(self, criteria: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return the amounts allocated to the consumers of a filter.

        Cost: a refresh, and a request for each consumer if the filter or the grouping depends on
        attributes of consumers
        """
        rows = self._rows_of(criteria)
        if criteria == _by_provider(criteria) and by in (By.RESOURCE_CLASS, By.PROVIDER):
            return pages.totals_of_consumers(rows, criteria, by)
        consumers = self._allocations.held_by(_selected(rows, criteria))
        return pages.totals_of(rows, consumers.values(), criteria, by)

    def held_by(self, consumers: Collection[str]) -> dict[str, ConsumerRecord]:
        """Return consumers by name: a request each, so not at one moment."""
        self._open()
        return self._allocations.held_by(consumers)

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return the outcome of an operation of this backend; those of others are not known."""
        self._open()
        with self._lock:
            return self._outcomes.get(operation.id)

    def cursor(self) -> Cursor:
        """Refresh the cache and return its version, which is counted in this process.

        It is no position in a feed: snapshots are refreshed from it, and changes of others that
        raise no generation are missed.
        """
        cache = self._open()
        cache.refresh()
        self._thread.is_fresh = True
        return cache.cursor()

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that changed after a version.

        Cost: a refresh, except directly after :meth:`cursor` in the same thread
        """
        cache = self._open()
        if not getattr(self._thread, "is_fresh", False):
            cache.refresh()
        self._thread.is_fresh = False
        return cache.changed(after, most, choose)

    # --- writing ---

    def check(self, write: Write) -> None:
        """Raise if a write needs an unsupported capability (see the contract)."""
        for capability, subject in unsupported.required_by(write):
            raise unsupported.refusal(capability, subject)
        self._allocations.check(write.orders)

    def carry_out(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write.

        Orders are one request, so they are carried out completely or not at all; with changes of
        inventories they are one too (``/reshaper``). Definitions and names are several requests.

        :raises NotSupported: for an unsupported capability, before the first request
        :raises LedgerError: if one of several requests was refused after others were carried out
        """
        self._open()
        self._thread.is_fresh = False
        self.check(write)
        with self._lock:
            running = self._running.setdefault(write.operation.id, threading.Lock())
        with running:  # a concurrent repetition waits for the outcome
            if self.outcome(write.operation) is not None:
                raise AlreadyRecorded(write.operation.id)
            write.operation.require_known(clock.now(), RETENTION)
            pending = self._send(write)
            records = () if pending is None else pending.records
            with self._lock:
                self._outcomes[write.operation.id] = Outcome(write.kind, write.subject, records)
                while len(self._outcomes) > _MAX_OUTCOMES:
                    self._outcomes.popitem(last=False)
            return records

    def _send(self, write: Write) -> PendingWrite | None:
        changes, pending = write.definitions, None
        steps = Steps(write.subject)
        with steps.named_in_errors():
            for change in write.names:
                self._definitions.change_name(change, steps)
            if changes is None:
                return self._allocations.carry_out(write.orders) if write.orders else None
            if write.orders:
                defined = {definition.uuid: definition for definition in changes.definitions}
                pending = self._allocations.prepare(write.orders, defined)
            self._definitions.write(write, changes, pending, steps)
        return pending

    def refusal(self, capability: Capability) -> exceptions.NotSupported:
        """Return the error for an unsupported capability, with the reason."""
        self._open()
        return unsupported.refusal(capability)

    def _open(self) -> ProviderCache:
        """Return the cache, or raise if the backend is closed."""
        if self._closed:
            raise exceptions.DatabaseError("closed", self._client.service)
        return self._cache


def _selected(rows: Rows, criteria: ConsumerFilter) -> Collection[str]:
    """Return the names of the consumers that a filter may select."""
    if criteria.names is not None:
        return criteria.names
    records = pages.page_of_consumers(rows, _by_provider(criteria), len(rows.consumers))
    return [record.consumer for record in records]


def _by_provider(criteria: ConsumerFilter) -> ConsumerFilter:
    return ConsumerFilter(tree=criteria.tree, provider=criteria.provider)
