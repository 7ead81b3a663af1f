"""The last snapshot of a ledger, kept fresh for all its threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection

from resource_objects import exceptions
from resource_objects.providers import Backend
from resource_objects.providers.changed import Touched
from resource_objects.providers.feed import Cursor
from resource_objects.search.refreshing import Following
from resource_objects.search.snapshot import Snapshot


class Fresh:
    """Keeps the last snapshot of everything, and makes the next one of it.

    Whoever asks looks first where the change feed is, by itself. If nothing was written, that is
    all. Else one thread at a time goes on; who waited for it takes what it has made, if that has
    everything that was there when it asked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: Following | None = None
        _all.add(self)

    def snapshot(self, backend: Backend) -> Snapshot:
        """Return a snapshot that shows everything committed before the call."""
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
        """Let go of the snapshot."""
        self._kept = None

    def _next(self, backend: Backend, kept: Following | None) -> Snapshot:
        changes = 0
        if kept is not None:
            following, changes = _followed(backend, kept)
            if following is not None:
                self._kept = following
                return following.snapshot
        following = Following.begin(backend.read(), changes)
        # of columns that do not say when they were read nothing can be told later
        self._kept = None if following.snapshot.cursor is None else following
        return following.snapshot


def _followed(backend: Backend, kept: Following) -> tuple[Following | None, int]:
    """Return what follows on a snapshot, None if all must be read, and how many changes it had."""
    cursor = kept.snapshot.cursor
    assert cursor is not None, "it is kept because it has one"
    seen: list[Touched] = []

    def choose(touched: Touched) -> Collection[str] | None:
        seen.append(touched)
        return kept.choose(touched)

    try:
        changed = backend.read_changed(cursor, kept.most_changes, choose)
    except exceptions.CursorExpired:
        return None, 0
    if changed.columns is None:
        return None, changed.changes
    return kept.after(changed, seen[-1]), changed.changes


def _shows(snapshot: Snapshot, now: Cursor) -> bool:
    """Return whether a snapshot shows everything that the feed told at a moment."""
    have = snapshot.cursor
    return have is not None and all(a >= b for a, b in zip(have.heads, now.heads, strict=True))


_all: weakref.WeakSet[Fresh] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for fresh in list(_all):
        fresh._lock = threading.Lock()  # whoever held it stayed in the parent


os.register_at_fork(after_in_child=_after_fork_in_child)
