"""The change feed of a ledger, and the snapshot that it keeps fresh."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import os
import threading
import weakref
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from resource_objects import clock, exceptions, names, search
from resource_objects.ledger.context import Store
from resource_objects.providers import Backend
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.changed import Touched
from resource_objects.providers.columns import Columns
from resource_objects.providers.dry_run import in_place, without_consumers
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.listing import MOST_ROWS, ProviderFilter, check_limit
from resource_objects.providers.pools import SHARES

if TYPE_CHECKING:
    from resource_objects.search import Snapshot
    from resource_objects.search.refresh import Following


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """Entries of the change feed after a cursor, in the order of each shard.

    :attr:`cursor` is the position after them.

    It iterates over :class:`~resource_objects.providers.feed.FeedEntry`.
    """

    changes: tuple[FeedEntry, ...]
    cursor: Cursor

    def __iter__(self) -> Iterator[FeedEntry]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


#: Clocks may differ by an hour, and an operation is repeated within one.
_LEAST = datetime.timedelta(hours=2)
#: The longest retention; a time before the year 1 cannot be computed.
_MOST = datetime.timedelta(days=36_525)
_NOTHING = datetime.timedelta(0)
#: Seconds: the first pause between two looks at the heads, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Feed:
    """The change feed of a ledger: ``ledger.feed``.

    =====================  ====================================================================
    :meth:`cursor`         the end of the feed
    :meth:`changes`        the changes after a cursor
    :meth:`is_fresh`       whether nothing was written since a snapshot
    :meth:`set_retention`  set for how long operations and changes are stored
    =====================  ====================================================================
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def cursor(self) -> Cursor:
        """Return the present position of the change feed; ``str()`` of it can be stored.

        :raises NotSupported: if the backend has no feed
        """
        self._store.backend.require(Capability.FEED)
        return self._store.backend.cursor()

    def changes(
        self,
        after: Cursor | str | None,
        limit: int = 1000,
        *,
        wait: datetime.timedelta | None = None,
    ) -> Changes:
        """Return what was written after a cursor; ``.cursor`` of it is where to read on.

        Nothing that was committed is missed. The order is total within a shard, and a tree is
        always in the same one; read on until nothing comes. While a provider moves to another tree,
        a write about it at that very moment may be told in the shard of the tree it leaves: whoever
        reads all shards, as this does, misses nothing.

        :param after: a cursor, of :meth:`cursor`, a snapshot or changes, or its text
        :param limit: at most so many changes
        :param wait: if there are none, for how long to wait for some; None: not at all. Cost: a
            small statement after each pause, of a second at most
        :raises Expired: if changes after it were pruned, or it is of another ledger
        :raises InvalidInput: if it is no cursor: None, of a snapshot without one; if it is no time
            to wait for
        :raises NotSupported: if the ledger is kept where there is no feed
        """
        if wait is not None and (not isinstance(wait, datetime.timedelta) or wait < _NOTHING):
            raise exceptions.InvalidInput("field", "wait", wait, "a timedelta from 0, or None")
        self._store.backend.require(Capability.FEED)
        cursor = after if isinstance(after, Cursor) else Cursor.parse(after)
        found = self._store.backend.changes(cursor, check_limit(limit))
        if not found and wait:
            found = self._waited(cursor, limit, wait)
        return Changes(found, cursor.moved(found))

    def _waited(
        self, cursor: Cursor, limit: int, wait: datetime.timedelta
    ) -> tuple[FeedEntry, ...]:
        """Return the entries after a cursor, polling for some time until there is one."""
        retries, backend = self._store.retries, self._store.backend
        until = retries.clock() + wait.total_seconds()
        for looks in itertools.count():
            left = until - retries.clock()
            if left <= 0:
                break
            longest = clock.longest_pause(_FIRST_PAUSE, _LONGEST_PAUSE, looks)
            retries.sleep(min(left, retries.uniform(longest / 2, longest)))
            if cursor.waiting(backend.cursor()):
                found = backend.changes(cursor, limit)
                if found:
                    return found
        return ()

    def is_fresh(self, snapshot: Snapshot) -> bool:
        """Return whether nothing was written since a snapshot was taken, anywhere.

        Where there is no feed nobody can know that, and it is never said. Cost: one small
        statement.

        :raises InvalidInput: if it is no snapshot
        """
        snapshot = checked_snapshot(snapshot, "is_fresh")
        if Capability.FEED in self._store.backend.unsupported:
            return False
        return snapshot.cursor is not None and snapshot.cursor == self.cursor()

    def set_retention(self, age: datetime.timedelta) -> None:
        """Set how long operations and changes are stored; without a call it is seven days.

        Writes delete older ones, a few at a time. An operation of :func:`new_operation`
        repeated after that is refused (``OperationExpired``), one with an id of one's own is
        done again; and a cursor that needs what is forgotten expires.

        Use over time is known for the same time.

        :raises InvalidInput: if it is no age, shorter than two hours, or longer than 100 years
        """
        if not isinstance(age, datetime.timedelta) or not _LEAST <= age <= _MOST:
            expected = f"a timedelta from {_LEAST} to {_MOST.days} days"
            raise exceptions.InvalidInput("field", "retention", age, expected)
        self._store.backend.require(Capability.FEED)
        self._store.backend.retain(age)


# --- the last snapshot ----------------------------------------------------------------------------


class Snapshots:
    """The last snapshot of everything, kept fresh for all threads of a ledger.

    Each caller reads the position of the change feed. If nothing was written, the last snapshot is
    returned. Otherwise one thread at a time refreshes it; a waiting thread returns the result if it
    has everything that was committed before the call.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: Following | None = None
        _all.add(self)

    def snapshot(self, at: str | None = None) -> Snapshot:
        """Return a snapshot that shows everything committed before the call.

        :param at: a provider (by name or uuid): then only that one, what is below it, and the
            pools that give to its tree
        """
        backend = self._store.backend
        if at is not None:
            key = names.provider_key(at)
            return search.Snapshot(_confined(backend, key), at=key)
        before = self._kept
        now = backend.cursor()
        if before is not None and before.snapshot.cursor == now:
            return before.snapshot
        with self._lock:
            kept = self._kept
            if kept is not None and kept is not before and _shows(kept.snapshot, now):
                return kept.snapshot
            return self._next(backend, kept)

    def forget(self) -> None:
        """Drop the snapshot."""
        self._kept = None

    def _next(self, backend: Backend, kept: Following | None) -> Snapshot:
        changes = 0
        if kept is not None:
            following, changes = _followed(backend, kept)
            if following is not None:
                self._kept = following
                return following.snapshot
        from resource_objects.search.refresh import Following  # NumPy: only who searches loads it

        following = Following.begin(backend.read(), changes)
        # of columns that do not say when they were read nothing can be told later
        self._kept = None if following.snapshot.cursor is None else following
        return following.snapshot


def checked_snapshot(given: object, what: str) -> Snapshot:
    """Return a snapshot that was passed as an argument, or raise ``InvalidInput``."""
    if not isinstance(given, search.Snapshot):
        raise exceptions.InvalidInput("field", what, given, "a Snapshot")
    return given


def snapshot_without(
    backend: Backend,
    at: str | None = None,
    consumers: Collection[str] | None = None,
    moving: str | None = None,
) -> Snapshot:
    """Return a snapshot without the allocations of some consumers; None: of all consumers.

    Cost: everything is read, unless it is confined to a provider.

    :param at: as :meth:`Snapshots.snapshot`
    :param moving: a consumer whose use of pools does not count, and stays possible
    """
    columns = backend.read() if at is None else _confined(backend, names.provider_key(at))
    gone = set(columns.allocations.consumer) if consumers is None else consumers
    columns = without_consumers(columns, *gone)
    if moving is not None:
        traits = zip(columns.traits.provider_id, columns.traits.trait, strict=True)
        pools = {number for number, trait in traits if trait == SHARES}
        columns = in_place(columns, moving, only=pools)
    return search.Snapshot(columns, at=at)


def snapshot_in_place(
    backend: Backend, consumer: str, at: str | None = None, others: Collection[str] = ()
) -> Snapshot:
    """Return a snapshot for a change in place of a consumer; see :func:`in_place`.

    :param at: as :meth:`Snapshots.snapshot`
    :param others: consumers that hold nothing in it either
    """
    columns = backend.read() if at is None else _confined(backend, names.provider_key(at))
    columns = in_place(without_consumers(columns, *others) if others else columns, consumer)
    return search.Snapshot(columns, at=at)


def _confined(backend: Backend, at: str) -> Columns:
    """Read the tree of a provider, and those of the pools that give to it.

    Cost: a read; if the tree is in aggregates a list, and if these have pools one read more.
    """
    columns = backend.read(at)
    linked = frozenset(columns.aggregates.aggregate)
    if not linked:
        return columns
    wanted = ProviderFilter(aggregates=(linked,), required=frozenset({SHARES}))
    pools = {one.uuid for one in backend.list_providers(wanted, MOST_ROWS)}
    others = pools.difference(columns.providers.uuid)
    return backend.read(at, *sorted(others)) if others else columns


def _followed(backend: Backend, kept: Following) -> tuple[Following | None, int]:
    """Return the next snapshot, None if all must be read, and how many changes there were."""
    cursor = kept.snapshot.cursor
    assert cursor is not None, "it is kept because it has one"
    seen: list[Touched] = []

    def choose(touched: Touched) -> Collection[str] | None:
        seen.append(touched)
        return kept.choose(touched)

    try:
        changed = backend.read_changed(cursor, kept.most_changes, choose)
    except exceptions.Expired as error:
        if not error.is_about("cursor"):
            raise
        return None, 0
    if changed.columns is None:
        return None, changed.changes
    return kept.after(changed, seen[-1]), changed.changes


def _shows(snapshot: Snapshot, now: Cursor) -> bool:
    """Return whether a snapshot includes all changes up to a cursor."""
    have = snapshot.cursor
    return have is not None and all(a >= b for a, b in zip(have.heads, now.heads, strict=True))


_all: weakref.WeakSet[Snapshots] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for kept in list(_all):
        kept._lock = threading.Lock()  # whoever held it stayed in the parent


os.register_at_fork(after_in_child=_after_fork_in_child)
