"""The backend in memory: the lock, and the one assignment that makes a write happen."""

from __future__ import annotations

import dataclasses
import datetime
import threading
from collections.abc import Collection
from typing import Self

from resource_objects import exceptions
from resource_objects.backends.memory import define, feed, lists, names, orders, read
from resource_objects.backends.memory.draft import Draft
from resource_objects.backends.memory.state import Recorded, State
from resource_objects.providers.backend import Backend, ClaimRecord, Operation, Outcome
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
from resource_objects.providers.orders import NameKind, Write

URL = "memory://"


class MemoryBackend(Backend):
    """Keeps a ledger in dicts. Every method holds one lock; reads copy out.

    A write works out all that it changes, which one assignment makes happen: an interrupt at any
    instruction finds it done or not begun, and what was left to put away, the next method does.
    The outcomes of operations and the change feed are kept until they are pruned, so memory grows
    with the number of writes, not only with what is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._state = State()
        self._order = lists.Order()
        self._pending: Draft | None = None
        self._closed = False
        names.add_standard(self._state)

    @classmethod
    def open(cls, url: str) -> Self:
        """Return a new, empty ledger: two of them never mix."""
        if url != URL:
            raise exceptions.InvalidURL("ledger URL", url, f"{URL} with nothing behind it")
        return cls()

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            self._pending = None
            self._order = lists.Order()
            self._state = State()

    # --- reading ---

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return everything kept, or some trees (see the contract)."""
        with self._lock:
            return read.read(self._open(), trees, allocations)

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of these names that are kept."""
        with self._lock:
            known = self._open().uuid_of
            return {name: known[name] for name in names if name in known}

    def list_providers(
        self, wanted: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers (see the contract)."""
        with self._lock:
            return lists.list_providers(self._open(), self._order, wanted, limit, after)

    def list_consumers(
        self, wanted: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ClaimRecord, ...]:
        """Return a page of consumers (see the contract)."""
        with self._lock:
            return lists.list_consumers(self._open(), self._order, wanted, limit, after)

    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of resource classes, traits or aggregates (see the contract)."""
        with self._lock:
            return lists.list_names(self._open(), kind, limit, after)

    def totals(self, wanted: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return what the consumers of a filter use (see the contract)."""
        with self._lock:
            return lists.totals(self._open(), self._order, wanted, by)

    def held(self, consumer: str) -> ClaimRecord | None:
        """Return what a consumer holds, None if nothing."""
        return self.held_by([consumer]).get(consumer)

    def held_by(self, consumers: Collection[str]) -> dict[str, ClaimRecord]:
        """Return what several consumers hold, by name."""
        with self._lock:
            state = self._open()
            return {
                name: orders.named_today(state, state.claims[name])
                for name in consumers
                if name in state.claims
            }

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return what an operation did, None if none of that id is recorded."""
        with self._lock:
            done = self._open().operations.get(operation.id)
            return None if done is None else done.outcome

    def cursor(self) -> Cursor:
        """Return where the change feed is now."""
        with self._lock:
            return feed.cursor(self._open())

    def changes(self, after: Cursor, limit: int) -> tuple[Change, ...]:
        """Return changes after a cursor (see the contract)."""
        with self._lock:
            return feed.changes(self._open(), after, limit)

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that were touched after a cursor (see the contract)."""
        with self._lock:
            state = self._open()
            now, count = feed.cursor(state), feed.count(state, after)
            keys = choose(feed.touched(state, after)) if count <= most else None
            columns = None if keys is None else read.read_uuids(state, keys)
            return Changed(now, count, columns)

    # --- writing ---

    def commit(self, write: Write) -> tuple[ClaimRecord, ...]:
        """Carry out a write, whole or not at all (see the contract)."""
        with self._lock:
            state = self._open()
            done = state.operations.get(write.operation.id)
            if done is not None:
                done.outcome.require(write.operation.id, write.kind, write.subject)
                return done.outcome.claims
            draft = Draft(state)
            claims = _work_out(draft, write)
            self._make(draft)
            return claims

    def prune(self, before: datetime.datetime) -> Pruned:
        """Forget what is older than a moment (see the contract)."""
        with self._lock:
            state = self._open()
            draft = Draft(state)
            pruned = feed.prune(state, draft, before)
            self._make(draft)
            return pruned

    def _make(self, draft: Draft) -> None:
        self._pending = draft  # it happened: whatever comes now, the next to come finishes it
        self._finish()

    def _finish(self) -> None:
        draft = self._pending
        if draft is None:
            return
        self._order.forget(
            providers=draft.providers.changes_keys(), consumers=draft.claims.changes_keys()
        )
        draft.apply()
        self._pending = None

    def _open(self) -> State:
        """Return what is kept, having finished a write that an interrupt cut short."""
        if self._closed:
            raise exceptions.LedgerClosed(URL)
        self._finish()
        return self._state


def _work_out(draft: Draft, write: Write) -> tuple[ClaimRecord, ...]:
    """Put all that a write changes into a draft, or raise."""
    _check_unchanged(draft, write)
    for uuid in write.reported:
        _report(draft, uuid)
    for change in write.names:
        names.change(draft, change)
    if write.definitions is not None:
        define.begin(draft, write.definitions)
    claims = orders.carry_out(draft, write.orders)
    if write.definitions is not None:
        define.end(draft, write.definitions)
    draft.touch_renamed()
    outcome = Outcome(write.kind, write.subject, claims)
    draft.operations.put(write.operation.id, Recorded(draft.number, draft.now, outcome))
    feed.tell(draft, write)
    return claims


def _check_unchanged(draft: Draft, write: Write) -> None:
    for uuid, generation in write.unchanged:
        kept = draft.providers.get(uuid)
        if kept is None:
            raise exceptions.StaleDefinition(uuid, "it is gone")
        define.check_generation(kept, kept.name, generation)


def _report(draft: Draft, uuid: str) -> None:
    kept = draft.providers.get(uuid)
    if kept is None:
        raise exceptions.ProviderNotFound(uuid)
    draft.providers.put(uuid, dataclasses.replace(kept, reported_at=draft.now))
    draft.touch(uuid)
