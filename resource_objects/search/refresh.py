"""From one snapshot to the next: what was touched is read, and laid into what is there.

A claim changes what is used of a few inventories, and the feed says how much. So of a snapshot that
is one claim old nearly everything can stay, and no tree is read: the changes are put into copies of
three columns (:func:`used_since`). What lies over a tree, cells and devices, is read with its
tree; its figures go the same way (:func:`patched`). Where a definition changed, the trees are taken
out of every array and put in anew (:func:`replaced`). All give exactly what reading everything
gives, and none touches the old snapshot, which others may be searching.

Not everything is worth it, or can be: a change that names nobody (a class, a trait or an aggregate
is made, renamed or removed), a feed that has forgotten what came after the old snapshot, and so
much change that reading everything is no dearer. Then everything is read.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from resource_objects.providers.changed import Changed, Touched
from resource_objects.providers.columns import Columns
from resource_objects.providers.orders import Change
from resource_objects.search import fleet, fleet_build
from resource_objects.search.arrays import Booleans, Integers, Moves, frozen, integers, parts
from resource_objects.search.fleet import (
    CLASS_COLUMNS,
    SHARING,
    ClassRows,
    Fleet,
    Row,
    Rows,
    Shares,
    by_provider,
    pools_of_members,
)
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
        fleet = fleet_build.read(columns)
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
        if self._located_uses(touched) is not None:
            return ()
        hosts = self._hosts_of(touched.providers)
        new = sum(uuid not in self._host_of for uuid in touched.providers)
        are_many = (
            len(hosts) > max(FEW_TREES, len(fleet.hosts) // ONE_IN)
            or new > FEW_TREES + len(fleet.names) // ONE_IN
        )
        if touched.is_wide or are_many:
            return None
        roots = {fleet.uuids[fleet.roots[_tree_of(fleet, host)]] for host in hosts}
        return touched.providers | roots

    def after(self, changed: Changed, touched: Touched) -> Following:
        """Return what follows once the trees that were chosen are read.

        Cost: some milliseconds for 100,000 providers if only their use changed, else ten times
        that; and what reading the trees takes.

        :raises InvalidRow: if the columns do not belong together
        """
        old, columns = self.snapshot._fleet, changed.columns
        assert columns is not None, "the trees were read"
        uses = self._located_uses(touched)
        if uses is not None:
            trees_used = len({int(old.tree[place]) for _, place, _ in uses})
            done = Refresh(changed.changes, trees_used, "patched")
            patch = Snapshot._of(used_since(old, uses), changed.cursor, done)
            return Following(patch, self._host_of)
        hosts = self._hosts_of({*touched.providers, *columns.providers.uuid})
        trees = np.array(sorted(_tree_of(old, host) for host in hosts), dtype=np.int64)
        new = fleet_build.read(columns)
        fleet = patched(old, new, trees)
        is_patched = fleet is not None
        if fleet is None:
            gone = np.zeros(len(old.hosts), dtype=np.bool_)
            gone[trees] = True
            fleet = replaced(old, new, gone)
        done = Refresh(changed.changes, len(new.hosts), "patched" if is_patched else "replaced")
        snapshot = Snapshot._of(fleet, changed.cursor, done)
        return Following(snapshot, self._host_of if is_patched else None)

    def _located_uses(self, touched: Touched) -> list[tuple[int, int, Change]] | None:
        """Return the changes of what is used, with the inventory and its provider's place.

        None if they are not all: a definition changed, or an inventory is a part of something that
        lies over its tree.
        """
        if touched.is_wide or touched.definitions or not touched.uses:
            return None
        fleet = self.snapshot._fleet
        found: list[tuple[int, int, Change]] = []
        for use in touched.uses:
            uuid, name = use.key
            rows = fleet.classes.get(name)
            if rows is None or uuid not in self._host_of:
                return None
            tree = _tree_of(fleet, self._host_of[uuid])
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
        known = self._host_of
        return {known[uuid] for uuid in uuids if uuid in known}


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
)
#: What of a fleet is worked out when it is first asked for, and does not depend on use.
_WORKED_OUT = ("roots", "is_pool", "equivalence", "listed", "_starts")


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
    classes = {
        name: inventories.part(slice(rows.first, rows.first + len(rows.tree)))
        for name, rows in old.classes.items()
    }
    found = dataclasses.replace(
        old,
        inventories=inventories,
        classes=old.classes if inventories is old.inventories else classes,
        allocations=old.allocations.changed(_rows_of(new.allocations, places)),
        units=old.units.changed(_rows_of(new.units, places)),
        views=old.views.changed(new.views, trees.tolist()),
    )
    found.__dict__.update({n: old.__dict__[n] for n in _WORKED_OUT if n in old.__dict__})
    return found


def used_since(old: Fleet, uses: Sequence[tuple[int, int, Change]]) -> Fleet:
    """Return a fleet after changes of what is used, each with its inventory and provider.

    What an inventory shares is used with it. Cost: three copies of a column of all inventories.
    """
    inventories, shares = old.inventories, old.shares
    used = inventories.used.copy()
    for entry, _, use in uses:
        net = use.after - use.before
        used[entry] += net
        start, stop = shares.source.searchsorted((entry, entry + 1)).tolist()
        for share in range(start, stop):
            used[shares.target[share]] += net * shares.factor[share]
    free = shares.left(inventories.capacity - used)
    step = inventories.step_size
    high = np.minimum(free, inventories.max_unit) // step * step
    inventories = dataclasses.replace(
        inventories, used=frozen(used), free=frozen(free), high=frozen(high)
    )
    found = dataclasses.replace(
        old,
        inventories=inventories,
        classes={
            name: inventories.part(slice(rows.first, rows.first + len(rows.tree)))
            for name, rows in old.classes.items()
        },
        allocations=old.allocations.changed(_held_since(old, uses)),
        units=old.units.changed(_taken_since(old, uses)),
    )
    found.__dict__.update({n: old.__dict__[n] for n in _WORKED_OUT if n in old.__dict__})
    return found


def _held_since(
    old: Fleet, uses: Iterable[tuple[int, int, Change]]
) -> Mapping[int, tuple[fleet.Row, ...]]:
    """Return the allocations of the providers of changes: ``(class, consumer, amount)``."""
    found: dict[int, dict[tuple[str, str], int]] = {}
    for _, place, use in uses:
        if place not in found:
            rows = old.allocations.of_provider(place)
            found[place] = {(name, consumer): amount for name, consumer, amount in rows}
        key = use.key[1], use.consumer
        found[place][key] = use.after
        if not use.after:
            del found[place][key]
    return {
        place: tuple((*key, amount) for key, amount in rows.items())
        for place, rows in found.items()
    }


def _taken_since(
    old: Fleet, uses: Iterable[tuple[int, int, Change]]
) -> Mapping[int, tuple[fleet.Row, ...]]:
    """Return the units taken of the providers of changes: ``(unit, class, consumer)``."""
    found: dict[int, dict[str, fleet.Row]] = {}
    for _, place, use in uses:
        if not (use.taken or use.given):
            continue
        if place not in found:
            found[place] = {row[0]: row for row in old.units.of_provider(place)}
        for unit in use.given:
            found[place].pop(unit, None)
        found[place].update({u: (u, use.key[1], use.consumer) for u in use.taken})
    return {place: tuple(sorted(rows.values())) for place, rows in found.items()}


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


def _rows_of(new: fleet.Rows, places: Integers) -> Mapping[int, tuple[fleet.Row, ...]]:
    """Return the rows of the new trees by the old places, also where there are none."""
    at = places.tolist()
    found: dict[int, tuple[fleet.Row, ...]] = dict.fromkeys(at, ())
    for provider, rows in fleet.by_provider(new.all()).items():
        found[at[provider]] = rows
    return found


# --- are the definitions the same ---------------------------------------------------------------


def _same(old: Fleet, new: Fleet, places: Integers, trees: Integers) -> Integers | None:
    """Return the old numbers of the new inventories, None if the definitions differ.

    Generations alone would not do: somebody may have removed a provider and made it again.
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


def _same_members(
    old: Mapping[str, Integers], new: Mapping[str, Integers], places: Integers, listed: Integers
) -> bool:
    """Return whether the providers have the same traits, or are in the same aggregates.

    :param listed: how many each provider of the old fleet has
    """
    if int(listed[places].sum()) != sum(map(len, new.values())):
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


# --- replacing ----------------------------------------------------------------------------------
# Other trees in the place of old ones, where definitions have changed: every array is made again.
#
# Nothing is sorted or read again but what is new, so it is an order of magnitude cheaper than a
# fleet from columns; and what comes out is the same.


def replaced(old: Fleet, new: Fleet, gone: Booleans) -> Fleet:
    """Return a fleet without some trees of an old one, and with all of a new one.

    :param gone: which trees of the old one it does not have; those of the new one are among them,
        or were not there

    Cost: linear in the old fleet, vectorised: 0.1 microseconds per provider and inventory.
    """
    moves = Moves(old.hosts, new.hosts, (old.tree, new.tree), gone)
    parent = frozen(np.concatenate((moves.old[old.parent], moves.new[new.parent]))[moves.pick])
    is_root = parent == np.arange(len(parent))
    names = moves.listed(old.names, new.names)
    traits = _members(old.traits, new.traits, moves)
    aggregates = _members(old.aggregates, new.aggregates, moves)
    rows, classes, shares = _merged_inventories(old, new, moves, is_root)
    sharing = traits.get(SHARING, integers(()))
    return Fleet(
        names=names,
        uuids=moves.listed(old.uuids, new.uuids),
        generation=moves.merged(old.generation, new.generation),
        parent=parent,
        tree=moves.tree,
        height=_height(parent),
        hosts=tuple([names[place] for place in np.flatnonzero(is_root).tolist()]),
        inventories=rows,
        classes=classes,
        traits=traits,
        aggregates=aggregates,
        shares=shares,
        pools=pools_of_members(aggregates, sharing, moves.tree, is_root),
        allocations=old.allocations.moved(moves.old).changed(_placed(new.allocations, moves)),
        units=old.units.moved(moves.old).changed(_placed(new.units, moves)),
        views=old.views.replaced(new.views, moves),
    )


def _height(parent: Integers) -> int:
    """Return how many providers are on the longest way down. Cost: one pass per level."""
    if not len(parent):
        return 0
    height, at = 1, np.arange(len(parent))
    while not np.array_equal(above := parent[at], at):
        height, at = height + 1, above
    return height


def _members(
    old: Mapping[str, Integers], new: Mapping[str, Integers], moves: Moves
) -> dict[str, Integers]:
    """Return who has what, by name, each in order."""
    found: dict[str, Integers] = {}
    nobody = integers(())
    for name in sorted(old.keys() | new.keys()):
        having = np.sort(moves.places(old.get(name, nobody), new.get(name, nobody)))
        if len(having):
            found[name] = frozen(having)
    return found


def _placed(new: Rows, moves: Moves) -> dict[int, tuple[Row, ...]]:
    """Return the rows of the new trees, also where there are none, by their places."""
    at = moves.new.tolist()
    return {**dict.fromkeys(at, ()), **{at[p]: rows for p, rows in by_provider(new.all()).items()}}


def _merged_inventories(
    old: Fleet, new: Fleet, moves: Moves, is_root: Booleans
) -> tuple[ClassRows, dict[str, ClassRows], Shares]:
    """Return all inventories, the same by class, and what they share."""
    was, now = old.inventories, new.inventories
    codes = {name: code for code, name in enumerate(sorted({*old.classes, *new.classes}))}
    provider = np.concatenate((moves.old[was.provider], moves.new[now.provider]))
    code = np.concatenate((_codes(old, codes), _codes(new, codes)))
    here = np.flatnonzero(provider >= 0)
    order = np.argsort((code * len(is_root) + provider)[here], kind="stable")
    here = here[order]
    provider, code = provider[here], code[here]
    columns: dict[str, Any] = {
        name: frozen(np.concatenate((getattr(was, name), getattr(now, name)))[here])
        for name in CLASS_COLUMNS
        if name not in ("provider", "tree")
    }
    rows = ClassRows(provider=frozen(provider), tree=frozen(moves.tree[provider]), **columns)
    classes = {
        name: rows.part(entries)
        for name, entries in parts(codes, code)
        if entries.stop > entries.start
    }
    rank = np.full(len(was.tree) + len(now.tree), -1)
    rank[here] = np.arange(len(here))
    return rows, classes, _shares(old.shares, new.shares, rank, len(was.tree))


def _codes(fleet: Fleet, codes: Mapping[str, int]) -> Integers:
    """Return the code of the class of each inventory."""
    sizes = [len(rows.tree) for rows in fleet.classes.values()]
    return np.repeat(integers([codes[name] for name in fleet.classes]), sizes)


def _shares(old: Shares, new: Shares, rank: Integers, first: int) -> Shares:
    """Return the shares of the trees that stay and of those that come.

    :param rank: the new number of each inventory, ``first`` being the first that comes; -1 for none
    """
    source = rank[np.concatenate((old.source, new.source + first))]
    target = rank[np.concatenate((old.target, new.target + first))]
    factor = np.concatenate((old.factor, new.factor))
    stays = source >= 0
    return Shares(source[stays], target[stays], factor[stays])
