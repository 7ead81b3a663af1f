"""A complete small backend: everything kept is one object, pickled whole into a file.

All or nothing follows from two lines: a write works on a copy that nobody else sees, and a file
takes the place of another in one step. It is as slow as it is short, and serves any number of
processes. (Unpickle only files that nobody else may write.)
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import pickle
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Self

from resource_objects import exceptions
from resource_objects.providers import selection
from resource_objects.providers.backend import Backend, ClaimRecord, Operation, Outcome
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
from tests.backends import small_feed, small_writes
from tests.backends.small_state import State


class SmallBackend(Backend):
    """Keeps a ledger in a file: ``small:///path``."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._path = Path(url.removeprefix("small://"))
        self._closed = False

    @classmethod
    def open(cls, url: str) -> Self:
        if not url.startswith("small:///"):
            raise exceptions.InvalidURL("ledger URL", url, "small:///path")
        self = cls(url)
        if not self._path.exists():
            with self._writing():
                pass
        return self

    def close(self) -> None:
        self._closed = True

    def _state(self) -> State:
        """Return a copy of what is kept that nobody else sees."""
        if self._closed:
            raise exceptions.LedgerClosed(self._url)
        return pickle.loads(self._path.read_bytes()) if self._path.exists() else State()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[State]:
        """Lend what is kept, to change; unless an error is raised, it is kept as it was left."""
        with open(f"{self._path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed, by whatever
            state = self._state()
            yield state
            new = Path(f"{self._path}.new")
            new.write_bytes(pickle.dumps(state))
            os.replace(new, self._path)  # readers see the one or the other

    # --- reading ---

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        state = self._state()
        roots = state.roots()
        wanted = {roots.get(tree) for tree in trees or roots}
        rows = [row for row in state.top_down() if row.root_uuid in wanted]
        shares = {uuid: row.definition.shares for uuid, row in state.rows.items()}
        claims = state.claims.values() if allocations else ()
        return selection.columns_of(rows, shares, claims, Cursor(tuple(state.heads)))

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        rows = self._state().rows
        return {r.definition.name: uuid for uuid, r in rows.items() if r.definition.name in names}

    def list_providers(
        self, wanted: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        state = self._state()
        found = selection.select_providers(state.listed(), wanted, state.places())
        return tuple(row for row in found if row.number > after)[:limit]

    def list_consumers(
        self, wanted: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ClaimRecord, ...]:
        state = self._state()
        claims = [state.claim(name) for name in sorted(state.claims) if name > (after or "")]
        return tuple(selection.select_consumers(claims, wanted, state.roots()))[:limit]

    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        names = self._state().names[kind]
        return tuple(names[name] for name in sorted(names) if name > (after or ""))[:limit]

    def totals(self, wanted: ConsumerFilter, by: By) -> tuple[Total, ...]:
        state = self._state()
        claims = map(state.claim, state.claims)
        return selection.totals_of(claims, wanted, by, state.roots())

    def held(self, consumer: str) -> ClaimRecord | None:
        return self.held_by([consumer]).get(consumer)

    def held_by(self, consumers: Collection[str]) -> dict[str, ClaimRecord]:
        state = self._state()
        return {name: state.claim(name) for name in consumers if name in state.claims}

    def outcome(self, operation: Operation) -> Outcome | None:
        done = self._state().done.get(operation.id)
        return done and done[2]

    def cursor(self) -> Cursor:
        return Cursor(tuple(self._state().heads))

    def changes(self, after: Cursor, limit: int) -> tuple[Change, ...]:
        state = self._state()
        for shard, number in enumerate(after.heads):
            if not state.forgotten[shard] <= number <= state.heads[shard]:
                raise exceptions.CursorExpired(f"cursor at {number} of shard {shard}")
        # they are kept in the order they were made
        return tuple(c for c in state.changes if c.number > after.heads[c.shard])[:limit]

    # --- writing ---

    def commit(self, write: Write) -> tuple[ClaimRecord, ...]:
        with self._writing() as state:
            if write.operation.id not in state.done:
                return small_writes.commit(state, write)
            _, _, outcome = state.done[write.operation.id]
            outcome.require(write.operation.id, write.kind, write.subject)
            return outcome.claims

    def prune(self, before: datetime.datetime) -> Pruned:
        with self._writing() as state:
            return small_feed.forget(state, before)
