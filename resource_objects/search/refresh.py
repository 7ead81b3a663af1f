"""The next snapshot, from the last one and the changes after it.

* If only allocations changed, the feed states the amounts and units, and no tree is read: the
  changes go into copies of three columns (:meth:`.Fleet.with_use`).
* If definitions changed, or providers were disabled or enabled, their trees are read, and replace
  those of the last snapshot in copies of all columns (:func:`.with_trees`).
* If a name was renamed or removed, the feed does not reach back, or too many trees changed,
  everything is read.

All three result in the same fleet, and none changes the last snapshot, which other threads may be
searching. A report alone, without another definition, changes nothing that a snapshot has.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection
from typing import Self

from resource_objects.providers.backend import Changed, Touched
from resource_objects.providers.columns import Columns
from resource_objects.search import fleet_io
from resource_objects.search.arrays import Overlay
from resource_objects.search.fleet import Fleet, InventoryChange
from resource_objects.search.snapshot import Refresh, Snapshot
from resource_objects.search.splice import with_trees

#: Everything is read if more trees changed than this number, ...
FEW_TREES = 64
#: ... and more than one in this number of trees.
ONE_IN = 4
#: The maximum number of changes that are read, or the number of providers if that is larger.
FEW_CHANGES = 10_000


class RefreshableSnapshot:
    """A snapshot of a whole ledger that has a cursor, and the next ones made of it. Immutable."""

    __slots__ = ("_host_of", "snapshot")

    def __init__(self, snapshot: Snapshot, host_of: Overlay[str, str]) -> None:
        """:param host_of: the names of the hosts, by the uuids of all their providers"""
        self.snapshot = snapshot
        self._host_of = host_of

    @classmethod
    def of_columns(cls, columns: Columns, changes: int = 0) -> Self:
        """Return the snapshot of a whole ledger.

        :param changes: the number of changes since the snapshot before, if there was one
        """
        fleet = fleet_io.read(columns)
        refreshed = Refresh(changes, len(fleet.hosts), "read")
        return cls(Snapshot._of(fleet, columns.cursor, refreshed), Overlay(_hosts(fleet)))

    @property
    def max_changes(self) -> int:
        """The number of changes above which reading everything costs no more."""
        return max(FEW_CHANGES, len(self.snapshot._fleet.names))

    def trees_to_read(self, touched: Touched) -> Collection[str] | None:
        """Return uuids of providers of all trees to read; None if everything is to be read.

        The root of the tree that a provider was in is among them, since it may have left that tree.
        """
        fleet = self.snapshot._fleet
        if self._uses(touched) is not None:
            return ()
        hosts = self._hosts_of(touched.changed)
        new = sum(self._host_of.get(uuid) is None for uuid in touched.changed)
        are_many = (
            len(hosts) > max(FEW_TREES, len(fleet.hosts) // ONE_IN)
            or new > FEW_TREES + len(fleet.names) // ONE_IN
        )
        if touched.is_wide or are_many:
            return None
        roots = {fleet.uuids[fleet.roots[_tree_of(fleet, host)]] for host in hosts}
        return touched.changed | roots

    def refreshed(self, changed: Changed, touched: Touched) -> RefreshableSnapshot:
        """Return the next snapshot, from the trees that :meth:`trees_to_read` requested.

        Cost: for 100,000 providers one or two milliseconds if only allocations changed, else about
        ten and what the trees take.

        :raises InvalidInput: if the columns contradict each other
        """
        old, columns = self.snapshot._fleet, changed.columns
        assert columns is not None, "the trees were read"
        uses = self._uses(touched)
        if uses is not None:
            trees_used = len({int(old.tree[place]) for _, place, _ in uses})
            fleet = old.with_use(uses) if uses else old
            refreshed = Refresh(changed.changes, trees_used, "patched")
            return RefreshableSnapshot(
                Snapshot._of(fleet, changed.cursor, refreshed), self._host_of
            )
        new = fleet_io.read(columns)
        hosts = self._hosts_of({*touched.changed, *columns.providers.uuid})
        trees = sorted(_tree_of(old, host) for host in hosts)
        fleet = with_trees(old, new, trees)
        removed = {old.uuids[place]: None for tree in trees for place in old.of_tree(tree)}
        refreshed = Refresh(changed.changes, len(new.hosts), "replaced")
        return RefreshableSnapshot(
            Snapshot._of(fleet, changed.cursor, refreshed),
            self._host_of.with_({**removed, **_hosts(new)}),
        )

    def _uses(self, touched: Touched) -> list[InventoryChange] | None:
        """Return the changes of allocations, with the numbers of their inventory and provider.

        None if the definition of an inventory changed too, or was not in this snapshot.
        """
        if touched.is_wide or touched.definitions or touched.disabled:
            return None
        uses: list[InventoryChange] = []
        for use in touched.uses:
            place = self._place(use.key[0])
            number = None if place is None else self.snapshot._fleet.number(place, use.key[1])
            if place is None or number is None:
                return None
            uses.append((number, place, use))
        return uses

    def _place(self, uuid: str) -> int | None:
        fleet, host = self.snapshot._fleet, self._host_of.get(uuid)
        if host is None:
            return None
        return fleet.uuids.index(uuid, int(fleet.roots[_tree_of(fleet, host)]))

    def _hosts_of(self, uuids: Collection[str]) -> set[str]:
        """Return the names of the hosts of those providers that are in this snapshot."""
        hosts = map(self._host_of.get, uuids)
        return {host for host in hosts if host is not None}


def _hosts(fleet: Fleet) -> dict[str, str]:
    hosts = fleet.hosts
    return {uuid: hosts[tree] for uuid, tree in zip(fleet.uuids, fleet.tree.tolist(), strict=True)}


def _tree_of(fleet: Fleet, host: str) -> int:
    return bisect.bisect_left(fleet.hosts, host)
