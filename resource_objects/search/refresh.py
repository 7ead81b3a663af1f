"""From one snapshot to the next: what was touched is read, and laid into what is there.

A claim changes what is used of a few inventories, and the feed says how much. So of a snapshot that
is one claim old nearly everything can stay, and no tree is read: the changes are put into copies of
three columns (:func:`.used_since`). What lies over a tree, cells and devices, is read with its
tree; its figures go the same way (:func:`patched`). Where a definition changed, the trees are taken
out of every array and put in anew (:func:`replaced`). All give exactly what reading everything
gives, and none touches the old snapshot, which others may be searching. Who only reported that it
is as before is not read.

Not everything is worth it, or can be: a change that names nobody (a class, a trait or an aggregate
is made, renamed or removed), a feed that has forgotten what came after the old snapshot, and so
much change that reading everything is no dearer. Then everything is read.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Collection
from typing import Any, Self

import numpy as np

from resource_objects.providers.changed import Changed, Touched
from resource_objects.providers.columns import Columns
from resource_objects.providers.orders import Change
from resource_objects.search import fleet_build
from resource_objects.search.arrays import (
    Integers,
    Overlay,
    frozen,
)
from resource_objects.search.fleet import (
    ClassRows,
    Fleet,
    Members,
    with_figures,
)
from resource_objects.search.replacing import moved, replaced, rows_of
from resource_objects.search.snapshot import Refresh, Snapshot
from resource_objects.search.taking import used_since

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

    def __init__(self, snapshot: Snapshot, host_of: Overlay[str, str]) -> None:
        self.snapshot = snapshot
        #: the names of the hosts, by the uuids of all providers
        self._host_of = host_of

    @classmethod
    def begin(cls, columns: Columns, changes: int = 0) -> Self:
        """Return what follows once everything is read.

        :param changes: how many came since the snapshot before, as far as it is known
        """
        fleet = fleet_build.read(columns)
        done = Refresh(changes, len(fleet.hosts), "read")
        return cls(Snapshot._of(fleet, columns.cursor, done), Overlay(_hosts(fleet)))

    @property
    def most_changes(self) -> int:
        """Of more changes than so many, reading everything is no dearer."""
        return max(FEW_CHANGES, len(self.snapshot._fleet.names))

    def choose(self, touched: Touched) -> Collection[str] | None:
        """Return the uuids of providers whose trees are to be read, None if they are too many.

        That of the root as it was stands for the tree that a provider has left.
        """
        fleet = self.snapshot._fleet
        if self._located_uses(touched) is not None:
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

    def after(self, changed: Changed, touched: Touched) -> Following:
        """Return what follows once the trees that were chosen are read.

        Cost: what reading the trees takes, and copies of columns, without looking at them: for
        100,000 providers a millisecond or two if only their use changed, else some ten.

        :raises InvalidInput: if the columns do not belong together
        """
        old, columns = self.snapshot._fleet, changed.columns
        assert columns is not None, "the trees were read"
        uses = self._located_uses(touched)
        if uses is not None:
            trees_used = len({int(old.tree[place]) for _, place, _ in uses})
            done = Refresh(changed.changes, trees_used, "patched")
            patch = Snapshot._of(used_since(old, uses), changed.cursor, done)
            return Following(patch, self._host_of)
        hosts = self._hosts_of({*touched.changed, *columns.providers.uuid})
        trees = np.array(sorted(_tree_of(old, host) for host in hosts), dtype=np.int64)
        new = fleet_build.read(columns)
        fleet = patched(old, new, trees)
        host_of, way = self._host_of, "patched"
        if fleet is None:
            fleet, way = replaced(old, new, trees.tolist()), "replaced"
            gone = {old.uuids[place]: None for place in _ranges(old.tree, trees).tolist()}
            host_of = host_of.with_({**gone, **_hosts(new)})
        done = Refresh(changed.changes, len(new.hosts), way)
        return Following(Snapshot._of(fleet, changed.cursor, done), host_of)

    def _located_uses(self, touched: Touched) -> list[tuple[int, int, Change]] | None:
        """Return the changes of what is used, with the inventory and its provider's place.

        None if they are not all: a definition changed, or an inventory is a part of something that
        lies over its tree.
        """
        if touched.is_wide or touched.definitions or touched.disabled or not touched.uses:
            return None
        fleet = self.snapshot._fleet
        found: list[tuple[int, int, Change]] = []
        for use in touched.uses:
            uuid, name = use.key
            rows = fleet.classes.get(name)
            host = self._host_of.get(uuid)
            if rows is None or host is None:
                return None
            tree = _tree_of(fleet, host)
            parts_here = (each.of_tree(tree) for each in fleet.views.parts.values())
            if any(some.start < some.stop for some in parts_here):
                return None
            here = rows.of_tree(tree)
            for entry, place in enumerate(rows.provider[here].tolist(), rows.first + here.start):
                if fleet.uuids[place] == uuid:
                    found.append((entry, place, use))
                    break
            else:
                return None
        return found

    def _hosts_of(self, uuids: Collection[str]) -> set[str]:
        """Return the hosts that some providers had, of those that were there."""
        found = map(self._host_of.get, uuids)
        return {host for host in found if host is not None}


def _hosts(fleet: Fleet) -> dict[str, str]:
    hosts = fleet.hosts
    return {uuid: hosts[tree] for uuid, tree in zip(fleet.uuids, fleet.tree.tolist(), strict=True)}


def _tree_of(fleet: Fleet, host: str) -> int:
    return bisect.bisect_left(fleet.hosts, host)


# --- patching -----------------------------------------------------------------------------------
# Other figures in the place of old ones, where nothing but the use of some trees has changed.
#
# Copied are what is used, what is free and the most that one part may take; everything else,
# which is nearly all, belongs to both fleets.


#: What of an inventory depends on what is used.
_FIGURES = ("used", "free", "high")
#: What of an inventory does not, apart from its place.
_RULES = (
    *("capacity", "min_unit", "max_unit", "step_size", "low"),
    *("is_below", "is_single", "is_part"),
    *("total", "reserved", "ratio"),
)


def patched(old: Fleet, new: Fleet, trees: Integers) -> Fleet | None:
    """Return a fleet with some trees as a new one has them, None if their definitions differ.

    :param new: a fleet of these trees only
    :param trees: their numbers in the old one, in order

    Cost: three copies of a column of all inventories; comparing is linear in the trees.
    """
    places = _ranges(old.tree, trees)
    numbers = _same(old, new, places, trees)
    if numbers is None:
        return None
    inventories = _with_figures(old.inventories, new.inventories, numbers)
    return with_figures(
        old,
        inventories,
        allocations=old.allocations.changed(rows_of(new.allocations, places)),
        units=old.units.changed(rows_of(new.units, places)),
        views=old.views.changed(new.views, trees.tolist()),
        disabled=moved(old.disabled, {}, new.disabled, places),
        removed_units=moved(old.removed_units, {}, new.removed_units, places),
    )


def _with_figures(old: ClassRows, new: ClassRows, numbers: Integers) -> ClassRows:
    given = {name: getattr(new, name) for name in _FIGURES}
    changed: dict[str, Any] = {}
    for name, values in given.items():
        column = getattr(old, name)
        if not np.array_equal(column[numbers], values):
            changed[name] = column.copy()
            changed[name][numbers] = values
            frozen(changed[name])
    return dataclasses.replace(old, **changed) if changed else old


# --- are the definitions the same ---------------------------------------------------------------


def _same(old: Fleet, new: Fleet, places: Integers, trees: Integers) -> Integers | None:
    """Return the old numbers of the new inventories, None if the definitions differ.

    Generations alone would not do: columns that no ledger gave may say one twice.
    """
    if len(places) != len(new.names):
        return None
    at = places.tolist()
    same = (
        [old.names[place] for place in at] == list(new.names)
        and [old.uuids[place] for place in at] == list(new.uuids)
        and np.array_equal(old.generation[places], new.generation)
        and np.array_equal(old.parent[places], places[new.parent])
        and _same_members(old.traits, new.traits, places, old.listed[0])
        and _same_members(old.aggregates, new.aggregates, places, old.listed[1])
        and _same_parts(old, new, places, trees)
    )
    return _same_inventories(old, new, places, trees) if same else None


def _same_members(old: Members, new: Members, places: Integers, listed: Integers) -> bool:
    """Return whether the providers have the same traits, or are in the same aggregates.

    :param listed: how many each provider of the old fleet has
    """
    if int(listed[places].sum()) != len(new.places):
        return False
    return all(name in old and _are_in(old[name], places[some]) for name, some in new.items())


def _are_in(ordered: Integers, wanted: Integers) -> bool:
    at = np.minimum(ordered.searchsorted(wanted), len(ordered) - 1)
    return bool((ordered[at] == wanted).all())


def _same_parts(old: Fleet, new: Fleet, places: Integers, trees: Integers) -> bool:
    """Return whether the same kinds keep the same parts there."""
    for kind in old.views.parts.keys() | new.views.parts.keys():
        was, now = old.views.of(kind), new.views.of(kind)
        here = _ranges(was.tree, trees)
        if not np.array_equal(was.provider[here], places[now.provider]):
            return False
        shapes = [was.shapes[number] for number in was.shape[here].tolist()]
        if shapes != [now.shapes[number] for number in now.shape.tolist()]:
            return False
    return True


def _same_inventories(old: Fleet, new: Fleet, places: Integers, trees: Integers) -> Integers | None:
    """Return the old numbers of the new inventories, None if they or their shares differ."""
    found = [
        rows.first + here for rows in old.classes.values() if len(here := _ranges(rows.tree, trees))
    ]
    numbers = np.concatenate((np.zeros(0, dtype=np.int64), *found))
    was, now = old.inventories, new.inventories
    if len(numbers) != len(now.tree):
        return None
    named = [name for name, rows in old.classes.items() if len(_ranges(rows.tree, trees))]
    same = (
        named == list(new.classes)
        and np.array_equal(was.provider[numbers], places[now.provider])
        and all(np.array_equal(getattr(was, n)[numbers], getattr(now, n)) for n in _RULES)
        and _same_shares(old, new, numbers)
    )
    return numbers if same else None


def _same_shares(old: Fleet, new: Fleet, numbers: Integers) -> bool:
    if not old.shares and not new.shares:
        return True
    here = _ranges(old.shares.source, numbers)
    return (
        np.array_equal(old.shares.source[here], numbers[new.shares.source])
        and np.array_equal(old.shares.target[here], numbers[new.shares.target])
        and np.array_equal(old.shares.factor[here], new.shares.factor)
    )


def _ranges(ordered: Integers, values: Integers) -> Integers:
    """Return where some values stand in an array that is in order; they are in order themselves."""
    starts = ordered.searchsorted(values)
    counts = ordered.searchsorted(values, side="right") - starts
    ends = counts.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    found: Integers = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return found
