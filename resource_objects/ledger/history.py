"""What was changed: the change feed, and how it is kept short."""

from __future__ import annotations

import datetime

from resource_objects import exceptions
from resource_objects.ledger.base import LedgerBase
from resource_objects.providers.feed import Change, Cursor
from resource_objects.providers.given import ago
from resource_objects.providers.listing import Pruned, check_limit
from resource_objects.search.snapshot import Snapshot


class HistoryMethods(LedgerBase):
    """The methods of a ledger that tell what was changed."""

    def cursor(self) -> Cursor:
        """Return where the change feed is now; ``str()`` of it may be kept in a file."""
        return self.backend.cursor()

    def changes(self, after: Cursor | str, limit: int = 1000) -> tuple[tuple[Change, ...], Cursor]:
        """Return what was written after a cursor, and the cursor from which to read on.

        Nothing that was committed is missed. The order is total within a shard, and a tree is
        always in the same one; read on until nothing comes. While a provider moves to another tree,
        a write about it at that very moment may be told in the shard of the tree it leaves: whoever
        reads all shards, as this does, misses nothing.

        :param after: a cursor, of :meth:`cursor` or a snapshot, or its text
        :param limit: at most so many changes
        :raises CursorExpired: if changes after it were pruned, or it is of another ledger
        :raises InvalidText: if it is no cursor
        """
        cursor = after if isinstance(after, Cursor) else Cursor.parse(after)
        found = self.backend.changes(cursor, check_limit(limit))
        return found, cursor.moved(found)

    def is_fresh(self, snapshot: Snapshot) -> bool:
        """Return whether nothing was written since a snapshot was taken, anywhere.

        Cost: one small statement.

        :raises InvalidField: if it is no snapshot
        """
        if not isinstance(snapshot, Snapshot):
            raise exceptions.InvalidField("is_fresh", snapshot, "a Snapshot")
        return snapshot.cursor is not None and snapshot.cursor == self.cursor()

    def prune(self, older_than: datetime.timedelta) -> Pruned:
        """Forget operations and changes older than an age; return how many of each.

        A write repeated after that is done again, and a cursor that needs what is forgotten
        expires: let it be longer than anybody waits.

        :raises InvalidField: if it is no positive age, or longer ago than a datetime can say
        """
        before = ago("older_than", older_than, datetime.datetime.now(datetime.UTC))
        if not older_than:
            raise exceptions.InvalidField("older_than", older_than, "more than no time at all")
        return self.backend.prune(before)
