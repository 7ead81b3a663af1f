"""All of a request from few places of a level, or from one: over the fleet, and on one tree.

What a tree keeps in places of the level (:mod:`~resource_objects.search.places`) is bound: it comes
from those that are chosen. A class that a tree keeps for the host as a whole alone (its disk, or
CPUs that no cell has) is bound to nothing. Counts that cells share with their host are given by the
cells then, and may be given by several.

How few places it takes is found out by trying: all sets of one place that have enough of each class
by itself, then of two, and so on; each is a decision of its own, as if there were nothing else
(:class:`TreePlaces`). A tree that cannot hold the request so, however many places, is asked without
the level, unless the level is required. Over the fleet, sums by place say how few it takes at least
(:meth:`Near.least`), so that hosts are tried in the order of that.

Rejected: a weight for each place in the decision itself, which would have to be made with every
solution before the best is known; greedy filling of the place that has most, which finds three
places where two would do.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.requests.request import CELLS
from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.resources.distances import DistanceTable, distance_table, sets_by_distance
from resource_objects.resources.located import cell_map_of
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.base import Condition, Cut, Partial
from resource_objects.search.conditions.groups import Groups
from resource_objects.search.conditions.located import LocatedCondition
from resource_objects.search.conditions.traits import RequiredTraits
from resource_objects.search.demands import LocatedTreeDemand, TreeDemand, bits
from resource_objects.search.fleet import Fleet
from resource_objects.search.named_groups import GroupKind, Named
from resource_objects.search.order import Preference
from resource_objects.search.places import Places

#: More places than any tree has: asked without the level.
ANYWHERE = 1 << 40


def told(level: str) -> str:
    """Return what one place of a level is called.

    >>> told("numa"), told("CUSTOM_SOCKET")
    ('NUMA cell', 'CUSTOM_SOCKET')
    """
    return "NUMA cell" if level == CELLS else level


class Near:
    """A level over a fleet and for a request: what of it is bound where."""

    def __init__(
        self,
        fleet: Fleet,
        places: Places,
        is_required: bool,
        classes: Sequence[ClassCondition],
        located: Sequence[LocatedCondition],
        named: Named,
    ) -> None:
        """:param classes: each count of the unnamed group, as the places give it"""
        self.fleet = fleet
        self.places = places
        self.is_required = is_required
        self.classes = classes
        self.located = located
        self.named = named
        #: by tree, for each class, located amount and kind of group: whether it is bound there
        self.binds_class = [self._binds(one.demand.rows.provider) for one in classes]
        self.binds_located = [self._binds(one.providers) for one in located]
        self.binds_kind = [self._binds_of(kind) for kind in named.kinds]

    def _binds(self, providers: Integers) -> Booleans:
        """Return the trees in which one of some providers is not of the host as a whole."""
        return self.places.binds(self.fleet.tree[providers], providers)

    def _binds_of(self, kind: GroupKind) -> Booleans:
        """Return the trees in which somebody who keeps a class of a group is not of the whole."""
        found = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        for rows, _ in kind.classes:
            found |= self._binds(rows.provider[~rows.is_part])
        return found

    def binds(self, tree: int) -> bool:
        """Return whether a tree keeps something of what is asked in some place."""
        every = (*self.binds_class, *self.binds_located, *self.binds_kind)
        return any(binds[tree] for binds in every)

    def bound(self, tree: int) -> list[int]:
        """Return the inventories of what is asked that a tree keeps in its places, by number."""
        classes = [one.demand.rows for one in self.classes]
        classes += [rows for kind in self.named.kinds for rows, _ in kind.classes]
        parts = [one.of_tree(tree).reach for one in self.located]
        found = {number for some in parts for number in some}
        for rows in classes:
            here = rows.of_tree(tree)
            at = np.flatnonzero(self.places.of[rows.provider[here]] >= 0)
            found.update((at + here.start + rows.first).tolist())
        provider = self.fleet.inventories.provider
        return sorted(n for n in found if self.places.of[provider[n]] >= 0)

    # --- over the fleet ---

    def mask(self) -> Booleans:
        """Return the trees that seem to have enough of everything in one place.

        Cost: some passes over the inventories of each class.
        """
        able = np.ones(len(self.places), dtype=np.bool_)
        for amount, sums, binds in self._sums():
            able &= (sums >= amount) | ~binds[self.places.tree]
        found = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        found[self.places.tree[able]] = True
        return found & self._binds_any()

    def least(self) -> Integers:
        """Return, by tree, how few places it takes at least; :data:`ANYWHERE` if none will do."""
        found = np.where(self._binds_any(), 1, ANYWHERE)
        for amount, sums, binds in self._sums():
            most = np.zeros(len(found), dtype=np.int64)
            np.maximum.at(most, self.places.tree, sums)
            count = -(-amount // np.maximum(most, 1))
            count[most == 0] = ANYWHERE
            found = np.where(binds, np.maximum(found, count), found)
        found[found > self.places.count] = ANYWHERE
        return found

    def _binds_any(self) -> Booleans:
        found = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        for binds in (*self.binds_class, *self.binds_located, *self.binds_kind):
            found |= binds
        return found

    def _sums(self) -> Iterator[tuple[int, Integers, Booleans]]:
        """Yield how much is asked of each class, what each place gives, and where it is bound.

        Of what says where it goes one piece has to be there at least.
        """
        at = self.places.of
        for one, binds, has in zip(self.classes, self.binds_class, self._answering, strict=True):
            rows, demand = one.demand.rows, one.demand
            able = has & (at[rows.provider] >= 0) & (rows.low <= rows.high)
            part = np.where(demand.is_device, np.minimum(rows.high, demand.amount), 0)
            part = np.where(demand.gives_all, demand.amount, part)
            sums = np.zeros(len(self.places), dtype=np.int64)
            np.add.at(sums, at[rows.provider[able]], part[able].clip(0))
            yield demand.amount, sums, binds
        for located, binds in zip(self.located, self.binds_located, strict=True):
            yield 1, self._ones(located.providers[located.demand.allowed]), binds
        for number, binds in enumerate(self.binds_kind):
            count, each = self.slots[number]
            sums = np.zeros(len(self.places), dtype=np.int64)
            some = np.flatnonzero(self.named.kinds[number].own & (at >= 0))
            np.add.at(sums, at[some], each[some])
            yield count, sums, binds

    @functools.cached_property
    def slots(self) -> list[tuple[int, Integers]]:
        """By kind of group, how many there are, and how many of them each provider could give."""
        return [(kind.count, self.named.each(kind)) for kind in self.named.kinds]

    @functools.cached_property
    def _answering(self) -> list[Booleans]:
        """By class, who of its inventories may give: with the traits that only it answers for."""
        found = [one.demand.own.allowed for one in self.classes]
        every = [(one.demand.own.has_required, one.demand.rows.tree) for one in self.classes]
        every += [(one.demand.has_required, one.demand.parts.tree) for one in self.located]
        allowed = [*found, *(one.demand.allowed for one in self.located)]
        has_pools = any(one.demand.pooled is not None for one in self.classes)
        for trait in range(0 if has_pools else len(every[0][0]) if every else 0):
            having = np.zeros((len(every), len(self.fleet.hosts)), dtype=np.bool_)
            for number, (has_required, tree) in enumerate(every):
                having[number, tree[allowed[number] & has_required[trait]]] = True
            is_only = having & (having.sum(axis=0) == 1)
            for number, (has_required, tree) in enumerate(every[: len(found)]):
                found[number] = found[number] & (has_required[trait] | ~is_only[number][tree])
        return found

    def _ones(self, providers: Integers) -> Integers:
        found = np.zeros(len(self.places), dtype=np.int64)
        at = self.places.of[providers]
        found[at[at >= 0]] = 1
        return found

    @functools.cached_property
    def capacities(self) -> list[Integers]:
        """By class, how much of it each place has if nothing of it is used."""
        found = []
        for one in self.classes:
            rows, at = one.demand.rows, self.places.of[one.demand.rows.provider]
            there = one.demand.own.allowed & (at >= 0)
            found.append(np.zeros(len(self.places), dtype=np.int64))
            np.add.at(found[-1], at[there], rows.capacity[there])
        return found

    # --- on one tree ---

    def of_tree(self, tree: int, preference: Preference | None = None) -> TreePlaces:
        """Return what is asked of one tree, place by place."""
        asks = [one.of_tree(tree) for one in self.classes]
        if preference is not None:
            asks = [preference.of_sources(ask, tree) for ask in asks]
        sign = 0 if preference is None else preference.sign
        return TreePlaces(self, tree, asks, [one.of_tree(tree) for one in self.located], sign)


class _Need(NamedTuple):
    """What has to come together from the places that are chosen."""

    amount: int
    gains: Mapping[int, int]  #: by place, how much it adds at most
    whole: Integers | None = None  #: by place, how much it has if nothing of it is used


class TreePlaces:
    """A request asked of some places of one tree."""

    def __init__(
        self,
        near: Near,
        tree: int,
        asks: Sequence[TreeDemand],
        located: Sequence[LocatedTreeDemand],
        sign: int = 0,
    ) -> None:
        """:param sign: -1 for the fullest places first, 1 for the emptiest, 0 for their order"""
        self._near = near
        self._tree = tree
        self._asks = asks
        self._located = located
        self._options = [near.named.options(kind, tree) for kind in near.named.kinds]
        at, provider = near.places.of, near.fleet.inventories.provider
        #: of each source, part and option the place; None where nothing is bound
        self._of_asks = [
            at[provider[list(ask.numbers)]].tolist() if binds[tree] else None
            for ask, binds in zip(asks, near.binds_class, strict=True)
        ]
        self._of_parts = [
            at[list(one.places)].tolist() if binds[tree] else None
            for one, binds in zip(located, near.binds_located, strict=True)
        ]
        self._of_options = [
            at[some].tolist() if binds[tree] else None
            for some, binds in zip(self._options, near.binds_kind, strict=True)
        ]
        self._needs = list(self._needed())
        self._places = self._in_order(near.places.of_tree(tree), sign)

    @property
    def most(self) -> int:
        """How many places may give something."""
        return len(self._places)

    @property
    def splits_counts(self) -> bool:
        """Whether counts may be given by several cells, in more ways than anybody cares for."""
        parts = self._near.fleet.inventories.is_part
        return any(
            of is not None and bool(parts[list(ask.numbers)].any())
            for ask, of in zip(self._asks, self._of_asks, strict=True)
        )

    def _needed(self) -> Iterator[_Need]:
        allowed = self._answering()
        for number_of_ask, (ask, of) in enumerate(zip(self._asks, self._of_asks, strict=True)):
            if of is not None:
                gains: dict[int, int] = {}
                for place, (number, source) in zip(of, enumerate(ask.sources), strict=True):
                    if allowed[number_of_ask] >> number & 1 and source.high >= max(1, source.low):
                        part = source.high if source.is_device else 0
                        part = ask.amount if source.provides(ask.amount) else part
                        gains[place] = gains.get(place, 0) + part
                yield _Need(ask.amount, gains, self._near.capacities[number_of_ask])
        for one, of in zip(self._located, self._of_parts, strict=True):
            if of is not None:
                yield _Need(1, {p: 1 for n, p in enumerate(of) if one.allowed >> n & 1})
        slots = zip(self._near.slots, self._options, self._of_options, strict=True)
        for (count, each), options, at in slots:
            if at is not None:
                gains = {}
                for place, slot in zip(at, each[options].tolist(), strict=True):
                    gains[place] = gains.get(place, 0) + slot
                yield _Need(count, gains)

    def _answering(self) -> list[int]:
        """Return, by class, who may give it: with the traits that only it can answer for."""
        found = [ask.allowed for ask in self._asks]
        every: Sequence[TreeDemand | LocatedTreeDemand] = (*self._asks, *self._located)
        for having in zip(*(one.with_trait for one in every), strict=True):
            able = [one.allowed & has for one, has in zip(every, having, strict=True)]
            if sum(map(bool, able)) == 1:
                (number,) = (n for n, some in enumerate(able) if some)
                if number < len(found):
                    found[number] &= able[number]
        return found

    def _in_order(self, here: range, sign: int) -> list[int]:
        """Return the places that give something, in the order of who does, or of what they give."""
        every = (p for need in self._needs for p, gain in need.gains.items() if gain and p in here)
        places = list(dict.fromkeys(every))
        if not sign:
            return places
        given = {p: sum(one.gains.get(p, 0) / one.amount for one in self._needs) for p in places}
        return sorted(places, key=lambda place: -sign * given[place])

    def within(self, among: frozenset[int]) -> tuple[list[TreeDemand], list[LocatedTreeDemand]]:
        """Return what is asked of some places."""
        asks = [
            ask if of is None else dataclasses.replace(ask, allowed=ask.allowed & _at(of, among))
            for ask, of in zip(self._asks, self._of_asks, strict=True)
        ]
        located = [
            one if of is None else dataclasses.replace(one, allowed=one.allowed & _at(of, among))
            for one, of in zip(self._located, self._of_parts, strict=True)
        ]
        return asks, located

    def options(self, among: frozenset[int]) -> list[list[int]]:
        """Return who of some places gives a group of each kind."""
        return [
            some if of is None else [p for p, at in zip(some, of, strict=True) if at in among]
            for some, of in zip(self._options, self._of_options, strict=True)
        ]

    def slots(self, place: int) -> Iterator[tuple[GroupKind, int | None]]:
        """Yield how many groups of each kind a place could give; None where they are not bound."""
        near = self._near
        every = zip(near.named.kinds, near.slots, self._options, self._of_options, strict=True)
        for kind, (_, each), options, at in every:
            if at is None:
                yield kind, None
            else:
                here = [option for option, where in zip(options, at, strict=True) if where == place]
                yield kind, int(each[here].sum())

    def sets(self, count: int, budget: Budget) -> Iterator[frozenset[int]]:
        """Yield the sets of so many places that seem to have enough. Cost: a step for each tried.

        Sets of cells are in the order of the distances between their cells, the closest first. Sets
        that are equally close, and sets of more cells than can be sorted, are in the order of the
        places.

        :raises SearchLimitReached: if the budget runs out first
        """
        places = self._places
        table = self._distances if 1 < count < len(places) else None
        by_distance = sets_by_distance(table, count) if table is not None else ()
        if by_distance:
            for _, sets in by_distance:
                for chosen in sets:
                    budget.spend()
                    if self._reaches(chosen, count):
                        yield frozenset(places[number] for number in chosen)
            return

        def expand(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...] | Solution[frozenset[int]]]:
            first = chosen[-1] + 1 if chosen else 0
            if len(chosen) == count:
                yield Solution(frozenset(places[number] for number in chosen))
                return
            for number in range(first, len(places) - (count - len(chosen)) + 1):
                if self._reaches((*chosen, number), count):
                    yield (*chosen, number)

        start: tuple[int, ...] = ()
        if count <= len(places):
            yield from solutions(start, expand, budget)

    @functools.cached_property
    def _distances(self) -> DistanceTable | None:
        """The distances between the cells that the places are, None if they do not differ."""
        near, cells = self._near, self._near.places.cell[self._places].tolist()
        for kind in near.fleet.parts if max(cells) >= 0 else ():
            view = near.fleet.view(kind, self._tree)
            known = None if view is None else cell_map_of(view.located.inventory)
            if known is not None:
                return distance_table(cells, known.distances)
        return None

    def best(self, places: Iterable[int]) -> int:
        """Return the place that comes nearest to giving everything.

        By how many classes it could not even give if others gave back, then by how many now, then
        by how much of each.
        """

        def key(place: int) -> tuple[int, int, float, int]:
            lacking = [
                (one, missing)
                for one in self._needs
                if (missing := one.amount - one.gains.get(place, 0)) > 0
            ]
            never = sum(
                one.whole is not None and one.whole[place] < one.amount for one, _ in lacking
            )
            return never, len(lacking), sum(some / one.amount for one, some in lacking), place

        return min(places, key=key)

    def _reaches(self, chosen: tuple[int, ...], count: int) -> bool:
        """Return whether some places may become enough with others that come after them."""
        places, last = self._places, chosen[-1]
        for amount, gains, _ in self._needs:
            lacking = amount - sum(gains.get(places[number], 0) for number in chosen)
            if lacking > 0 and count > len(chosen):
                later = (gains.get(place, 0) for place in places[last + 1 :])
                lacking -= sum(heapq.nlargest(count - len(chosen), later))
            if lacking > 0:
                return False
        return True


def _at(of: Iterable[int], among: frozenset[int]) -> int:
    return bits(place in among for place in of)


# --- the condition --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OnePlace:
    """All of a request comes from one place of a level."""

    near: Near
    level: str
    traits: RequiredTraits  #: over the classes as the places give them
    groups: Groups | None  #: the named ones, which speak for themselves first

    rule = Rule.NEAR

    def mask(self) -> Booleans:
        """Return which hosts seem to have a place with enough of everything."""
        return self.near.mask()

    def cuts(self) -> Iterator[Cut]:
        """Yield one cut."""
        yield Cut(self.mask(), self.rule, label=told(self.level))

    def reasons(self, host: Partial) -> list[Reason]:
        """Return what the best place lacks, if nothing else stands against the host."""
        if any(host.told.values()) or not (self.groups is None or self.groups.holds(host.tree)):
            return []
        near, tree = self.near, host.tree
        name = near.fleet.hosts[tree]
        here = near.of_tree(tree)
        if not near.binds(tree):
            return [Reason(Rule.NO_PLACE, 1, 0, 0, where=name, unit=told(self.level))]
        place = here.best(near.places.of_tree(tree))
        found = [
            *self._lacking(here, tree, place, self.traits.sources(tree)),
            *self._few_groups(here, tree, place),
        ]
        if not found:
            holders = near.fleet.there(near.bound(tree))
            return [
                Reason(
                    *(Rule.NEAR_AT_ONCE, 1, 0, 0),
                    where=name,
                    unit=told(self.level),
                    holders=holders,
                )
            ]
        return [self._told(reason, place, name) for reason in found]

    def _lacking(
        self, here: TreePlaces, tree: int, place: int, sources: Mapping[Condition, int]
    ) -> Iterator[Reason]:
        """Yield what one place does not give, each class by itself."""
        asks, located = here.within(frozenset((place,)))
        for one, ask in zip(self.near.classes, asks, strict=True):
            some = ask.allowed & sources[one]
            if not one.can(tree, some):
                name, rows = one.demand.resource_class, one.demand.rows
                nobody = self._nobody(tree, ask.amount, name, rows.provider[rows.of_tree(tree)])
                yield from one.short(tree, some) if some else [nobody]
        for other, amount in zip(self.near.located, located, strict=True):
            some = amount.allowed & sources[other]
            if not other.can(tree, some):
                ask_for, places = amount.ask, np.array(amount.places, dtype=np.int64)
                nobody = self._nobody(tree, ask_for.count, ask_for.resource_class, places)
                able = places[[bool(some >> number & 1) for number in range(len(places))]]
                for reason in other.short(tree, some) if some else [nobody]:
                    yield self._of_place(reason, tree, place, able)

    def _few_groups(self, here: TreePlaces, tree: int, place: int) -> Iterator[Reason]:
        """Yield what one place has too little of for the named groups of a kind."""
        fleet = self.near.fleet
        for kind, slots in here.slots(place):
            if slots is None or slots >= kind.count:
                continue
            for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
                entries = np.arange(*rows.of_tree(tree).indices(len(rows.tree))[:2])
                providers = rows.provider[entries]
                some = kind.would[0][providers] & (self.near.places.of[providers] == place)
                numbers = (entries[some] + rows.first).tolist()
                bound, asked = int(rows.capacity[entries[some]].sum()), kind.count * amount
                free = int(rows.free[entries[some]].clip(0).sum())
                if free < asked:
                    is_sum = kind.count > 1
                    yield Reason(
                        *(Rule.NEAR, asked, bound, bound - free, name, fleet.hosts[tree]),
                        fleet.holders(numbers),
                        unit=told(self.level),
                        group=None if is_sum else kind.suffixes[0],
                        demands=kind.suffixes if is_sum else (),
                    )

    def _of_place(self, reason: Reason, tree: int, place: int, able: Integers) -> Reason:
        """Return a reason about devices of the host with the figures of one place.

        :param able: the providers that may be used
        """
        fleet, name = self.near.fleet, reason.resource
        is_of_sums = reason.rule in (Rule.CAPACITY, Rule.LIMIT)
        if not is_of_sums or reason.cell is not None or name is None:
            return reason
        rows = fleet.rows(name)
        here = rows.of_tree(tree)
        is_there = self.near.places.of[rows.provider[here]] == place
        entries = np.flatnonzero(is_there & np.isin(rows.provider[here], able)) + here.start
        if not len(entries):
            return self._nobody(tree, reason.requested, name, rows.provider[here])
        bound = int(rows.capacity[entries].sum())
        return Reason(
            fleet.rule_of((entries + rows.first).tolist()),
            reason.requested,
            bound=bound,
            used=bound - int(rows.free[entries].clip(0).sum()),
            resource=name,
            where=reason.where,
            holders=fleet.holders((entries + rows.first).tolist()),
        )

    def _nobody(self, tree: int, amount: int, name: str, providers: Integers) -> Reason:
        """Return the reason that nobody who may give something is in a place."""
        is_known = self.near.places.of[providers] >= 0
        is_lost = bool(len(providers)) and not is_known.any()
        rule, host = Rule.PLACE_UNKNOWN if is_lost else Rule.NEAR, self.near.fleet.hosts[tree]
        return Reason(rule, amount, 0, 0, name, host, unit=told(self.level))

    def _told(self, reason: Reason, place: int, host: str) -> Reason:
        """Return a reason about a place as one about the best there is."""
        places, fleet = self.near.places, self.near.fleet
        provider, cell = int(places.provider[place]), int(places.cell[place])
        if reason.cell is not None or reason.rule is Rule.PLACE_UNKNOWN:
            return reason
        is_short = reason.rule in (Rule.CAPACITY, Rule.LIMIT, Rule.NO_INVENTORY)
        if is_short and reason.unit is None:
            reason = dataclasses.replace(reason, rule=Rule.NEAR, unit=told(self.level))
        if reason.rule is Rule.NOT_WHOLE:
            reason = dataclasses.replace(reason, unit=told(self.level))
        if reason.where not in (None, host):
            return reason
        if provider >= 0:
            return dataclasses.replace(reason, where=fleet.names[provider])
        return dataclasses.replace(reason, where=host, cell=cell)
