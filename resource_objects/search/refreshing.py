"""From one snapshot to the next: what was touched is read, and laid into what is there.

A claim changes what is used of a few inventories. So of a snapshot that is one claim old nearly
everything can stay: the figures of the trees that were touched are put into copies of three columns
(:mod:`~resource_objects.search.patching`). Where a definition changed, the trees are taken out of
every array and put in anew (:mod:`~resource_objects.search.replacing`). Both give exactly what
reading everything gives, and neither touches the old snapshot, which others may be searching.

Not everything is worth it, or can be: a change that names nobody (a class, a trait or an aggregate
is made, renamed or removed), a feed that has forgotten what came after the old snapshot, and so
much change that reading everything is no dearer. Then everything is read.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping
from typing import Self

import numpy as np

from resource_objects.providers.changed import Changed, Touched
from resource_objects.providers.columns import Columns
from resource_objects.search import reading
from resource_objects.search.fleet import Fleet
from resource_objects.search.patching import patched
from resource_objects.search.replacing import replaced
from resource_objects.search.snapshot import Refresh, Snapshot

#: Of fewer trees than so many, those that were touched are always read alone.
FEW_TREES = 64
#: Of more trees than one in so many, everything is read instead.
ONE_IN = 4
#: So many changes are always looked through, and as many as there are providers.
FEW_CHANGES = 10_000


class Following:
    """A snapshot of everything, and what it takes to make the next one of it. It never changes.

    :param snapshot: one that has a cursor
    """

    __slots__ = ("_host_of", "snapshot")

    def __init__(self, snapshot: Snapshot, host_of: Mapping[str, str] | None = None) -> None:
        self.snapshot = snapshot
        #: the names of the hosts, by the uuids of all providers
        self._host_of = _hosts(snapshot._fleet) if host_of is None else host_of

    @classmethod
    def begin(cls, columns: Columns, changes: int = 0) -> Self:
        """Return what follows once everything is read.

        :param changes: how many came since the snapshot before, as far as it is known
        """
        fleet = reading.read(columns)
        done = Refresh(changes, len(fleet.hosts), "read")
        return cls(Snapshot._of(fleet, columns.cursor, done))

    @property
    def most_changes(self) -> int:
        """Of more changes than so many, reading everything is no dearer."""
        return max(FEW_CHANGES, len(self._host_of))

    def choose(self, touched: Touched) -> Collection[str] | None:
        """Return the uuids of providers whose trees are to be read, None if they are too many.

        That of the root as it was stands for the tree that a provider has left.
        """
        fleet = self.snapshot._fleet
        hosts = self._hosts_of(touched.providers)
        new = sum(uuid not in self._host_of for uuid in touched.providers)
        are_many = (
            len(hosts) > max(FEW_TREES, len(fleet.hosts) // ONE_IN)
            or new > FEW_TREES + len(fleet.names) // ONE_IN
        )
        if touched.is_wide or are_many:
            return None
        roots = {fleet.uuids[fleet.roots[_tree(fleet, host)]] for host in hosts}
        return touched.providers | roots

    def after(self, changed: Changed, touched: Touched) -> Following:
        """Return what follows once the trees that were chosen are read.

        Cost: some milliseconds for 100,000 providers if only their use changed, else ten times
        that; and what reading the trees takes.

        :raises InvalidRow: if the columns do not belong together
        """
        old, columns = self.snapshot._fleet, changed.columns
        assert columns is not None, "the trees were read"
        hosts = self._hosts_of({*touched.providers, *columns.providers.uuid})
        trees = np.array(sorted(_tree(old, host) for host in hosts), dtype=np.int64)
        new = reading.read(columns)
        fleet = patched(old, new, trees)
        is_patched = fleet is not None
        if fleet is None:
            gone = np.zeros(len(old.hosts), dtype=np.bool_)
            gone[trees] = True
            fleet = replaced(old, new, gone)
        done = Refresh(changed.changes, len(new.hosts), "patched" if is_patched else "replaced")
        snapshot = Snapshot._of(fleet, changed.cursor, done)
        return Following(snapshot, self._host_of if is_patched else None)

    def _hosts_of(self, uuids: Collection[str]) -> set[str]:
        """Return the hosts that some providers had, of those that were there."""
        known = self._host_of
        return {known[uuid] for uuid in uuids if uuid in known}


def _hosts(fleet: Fleet) -> dict[str, str]:
    hosts = fleet.hosts
    return {uuid: hosts[tree] for uuid, tree in zip(fleet.uuids, fleet.tree.tolist(), strict=True)}


def _tree(fleet: Fleet, host: str) -> int:
    return bisect.bisect_left(fleet.hosts, host)
