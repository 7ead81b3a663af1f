"""The change feed of a ledger, and the snapshot that is refreshed from it."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import operator
import os
import threading
import weakref
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from resource_objects import clock, exceptions, names, search
from resource_objects.ledger.context import LedgerContext
from resource_objects.providers import Backend
from resource_objects.providers.backend import Capability, Touched
from resource_objects.providers.columns import Columns
from resource_objects.providers.dry_run import in_place, without_consumers
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.listing import MOST_ROWS, ProviderFilter, check_limit
from resource_objects.providers.pools import SHARES

if TYPE_CHECKING:
    from resource_objects.search import Snapshot
    from resource_objects.search.refresh import RefreshableSnapshot


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """Entries of the change feed after a cursor, in the order of each shard.

    It iterates over :class:`~resource_objects.providers.feed.FeedEntry`. :attr:`cursor` is the
    position after them.
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

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    def cursor(self) -> Cursor:
        """Return the present position of the change feed; ``str()`` of it can be stored.

        :raises NotSupported: if the backend has no feed
        """
        self._context.backend.require(Capability.FEED)
        return self._context.backend.cursor()

    def changes(
        self,
        after: Cursor | str | None,
        limit: int = 1000,
        *,
        wait: datetime.timedelta | None = None,
    ) -> Changes:
        """Return the entries after a cursor; read on from the ``.cursor`` of the result.

        No committed write is missed. The order is total within a shard, and a tree is always in the
        same shard. A write that is concurrent with a move of its provider to another tree may be in
        the shard of the previous tree.

        :param after: the cursor of :meth:`cursor`, of a snapshot or of changes, or its text
        :param limit: the maximum number of entries
        :param wait: if there are no entries, the time to wait for one. Cost: a small statement
            after each pause, of a second at most
        :raises Expired: if entries after the cursor were pruned, or it is of another ledger
        :raises InvalidInput: for None, which is the cursor of a snapshot without one, and for an
            invalid cursor or time
        :raises NotSupported: if the backend has no feed
        """
        if wait is not None and (not isinstance(wait, datetime.timedelta) or wait < _NOTHING):
            raise exceptions.InvalidInput("field", "wait", wait, "a timedelta from 0, or None")
        retries, backend = self._context.retries, self._context.backend
        backend.require(Capability.FEED)
        cursor = after if isinstance(after, Cursor) else Cursor.parse(after)
        entries = backend.changes(cursor, check_limit(limit))
        turns, until = itertools.count(), retries.clock() + (wait or _NOTHING).total_seconds()
        while not entries and (remaining := until - retries.clock()) > 0:
            longest = clock.longest_pause(_FIRST_PAUSE, _LONGEST_PAUSE, next(turns))
            retries.sleep(min(remaining, retries.uniform(longest / 2, longest)))
            if cursor.waiting(backend.cursor()):
                entries = backend.changes(cursor, limit)
        return Changes(entries, cursor.moved(entries))

    def is_fresh(self, snapshot: Snapshot) -> bool:
        """Return True if nothing was written since a snapshot. Cost: one small statement.

        It is False on a backend without a feed, which cannot determine it.

        :raises InvalidInput: if the argument is not a snapshot
        """
        snapshot = checked_snapshot(snapshot, "is_fresh")
        if Capability.FEED in self._context.backend.unsupported:
            return False
        return snapshot.cursor is not None and snapshot.cursor == self.cursor()

    def set_retention(self, age: datetime.timedelta) -> None:
        """Set how long operations and changes are stored; the default is seven days.

        Writes delete older ones, a few at a time. After that a repeated operation of
        :func:`new_operation` is refused (``OperationExpired``), one with an id of another form is
        carried out again, and a cursor before a deleted entry expires. Use over time is known for
        the same time.

        :raises InvalidInput: unless the age is from two hours to 100 years
        """
        if not isinstance(age, datetime.timedelta) or not _LEAST <= age <= _MOST:
            expected = f"a timedelta from {_LEAST} to {_MOST.days} days"
            raise exceptions.InvalidInput("field", "retention", age, expected)
        self._context.backend.require(Capability.FEED)
        self._context.backend.retain(age)


# --- the last snapshot ----------------------------------------------------------------------------


class Snapshots:
    """The last snapshot of everything, kept fresh for all threads of a ledger.

    Each caller reads the position of the change feed. If nothing was written, the last snapshot is
    returned. Otherwise one thread at a time refreshes it; a waiting thread returns the result if it
    has everything that was committed before the call.
    """

    def __init__(self, context: LedgerContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._last: RefreshableSnapshot | None = None
        _all.add(self)

    def snapshot(self, at: str | None = None) -> Snapshot:
        """Return a snapshot that shows everything committed before the call.

        :param at: a provider (by name or uuid) to confine it to, with its descendants and the pools
            of its tree
        """
        backend = self._context.backend
        if at is not None:
            return search.Snapshot(_read(backend, at), at=names.provider_key(at))
        before = self._last
        now = backend.cursor()
        if before is not None and before.snapshot.cursor == now:
            return before.snapshot
        with self._lock:
            last = self._last
            if last is not None and last is not before and last.snapshot.cursor is not None:
                heads = last.snapshot.cursor.heads
                if heads and all(map(operator.ge, heads, now.heads)):  # it shows all of that
                    return last.snapshot
            return self._next(backend, last)

    def forget(self) -> None:
        """Drop the snapshot."""
        self._last = None

    def _next(self, backend: Backend, last: RefreshableSnapshot | None) -> Snapshot:
        following, changes = (None, 0) if last is None else _followed(backend, last)
        if following is None:
            from resource_objects.search.refresh import RefreshableSnapshot  # loads NumPy

            following = RefreshableSnapshot.of_columns(backend.read(), changes)
        # without a cursor the changes after it cannot be read
        self._last = None if following.snapshot.cursor is None else following
        return following.snapshot


def checked_snapshot(value: object, field: str) -> Snapshot:
    """Return a snapshot that was passed as an argument, or raise ``InvalidInput``."""
    if not isinstance(value, search.Snapshot):
        raise exceptions.InvalidInput("field", field, value, "a Snapshot")
    return value


def snapshot_in_place(
    backend: Backend, consumer: str, at: str | None = None, *, pools_only: bool = False
) -> Snapshot:
    """Return a snapshot in which the use of a consumer does not count, and stays possible.

    :func:`in_place` describes it. Cost: everything is read, unless it is confined to a provider.

    :param at: as :meth:`Snapshots.snapshot`
    :param pools_only: whether only its use of pools is meant, as for a move
    """
    columns, pools = _read(backend, at), None
    if pools_only:
        traits = zip(columns.traits.provider_id, columns.traits.trait, strict=True)
        pools = {number for number, trait in traits if trait == SHARES}
    return search.Snapshot(in_place(columns, consumer, only=pools), at=at)


def unused_snapshot(backend: Backend, at: str | None = None) -> Snapshot:
    """Return a snapshot without any allocations. Cost: as :func:`snapshot_in_place`."""
    columns = _read(backend, at)
    consumers = set(columns.allocations.consumer)
    return search.Snapshot(without_consumers(columns, *consumers), at=at)


def _read(backend: Backend, at: str | None) -> Columns:
    """Read everything, or the tree of a provider and those of its pools.

    Cost: a read; if the tree is in aggregates a list, and if these have pools one read more.
    """
    if at is None:
        return backend.read()
    key = names.provider_key(at)
    columns = backend.read(key)
    linked = frozenset(columns.aggregates.aggregate)
    if not linked:
        return columns
    criteria = ProviderFilter(aggregates=(linked,), required=frozenset({SHARES}))
    pools = {pool.uuid for pool in backend.list_providers(criteria, MOST_ROWS)}
    elsewhere = pools.difference(columns.providers.uuid)
    return backend.read(key, *sorted(elsewhere)) if elsewhere else columns


def _followed(
    backend: Backend, last: RefreshableSnapshot
) -> tuple[RefreshableSnapshot | None, int]:
    """Return the next snapshot, None if all must be read, and the number of changes."""
    cursor = last.snapshot.cursor
    assert cursor is not None, "only snapshots with a cursor are stored"
    seen: list[Touched] = []

    def choose(touched: Touched) -> Collection[str] | None:
        seen.append(touched)
        return last.trees_to_read(touched)

    try:
        changed = backend.read_changed(cursor, last.max_changes, choose)
    except exceptions.Expired as error:
        if not error.is_about("cursor"):
            raise
        return None, 0
    if changed.columns is None:
        return None, changed.changes
    return last.refreshed(changed, seen[-1]), changed.changes


_all: weakref.WeakSet[Snapshots] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for snapshots in list(_all):
        snapshots._lock = threading.Lock()  # a thread that had locked it stayed in the parent


os.register_at_fork(after_in_child=_after_fork_in_child)
