"""What a gang asks of a fleet: kinds of members, what hosts have for them, and what binds hosts.

Arrays say of every host how many of a member it can hold at most, and several together, by what is
free of each class. Places of a level are sets of hosts, and so are the hosts that one pool serves;
those that bind what a gang gets lie within each other, so that they are a tree.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests import Request
from resource_objects.requests.gang import HOST, Gang, Member
from resource_objects.resources import Amount, IntegerAmount
from resource_objects.resources.budget import Budget
from resource_objects.resources.located import Identified, PartialRequest
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.conditions.amounts import ClassCondition, FleetDemand
from resource_objects.search.conditions.base import LaysFilter, pools_of
from resource_objects.search.conditions.located import LocatedCondition, most_of_parts
from resource_objects.search.dealing import Bound, Place, Portion, Room, bounded, largest
from resource_objects.search.demands import members
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.problem import Problem, counts_alone, lay, possible
from resource_objects.search.tree_search import ClassShare, candidate, counted_candidate
from resource_objects.search.views import View

_NOTHING = integers(())
#: Steps of the budget for one decision about the devices of a host.
_DEVICES_OF_HOST = 8

#: The aggregates of each level.
Levels: TypeAlias = Mapping[str, Collection[str]]


# --- kinds --------------------------------------------------------------------------------------
# Members that ask for the same and are bound alike, and how many of them each host can hold.


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Members alike, over the fleet."""

    names: tuple[str, ...]
    members: tuple[str, ...]  #: what the members are called of which there may be several
    like: Member  #: one of them
    problem: Problem
    totals: Mapping[str, int]  #: how much of each class one of them uses in all
    most: Integers  #: by tree, at most so many; where arrays decide, exactly
    counts: CountSource | None  #: who gives it where counts alone are asked for

    @property
    def label(self) -> str:
        """What people call them."""
        return ", ".join(self.members)


def kinds_of(gang: Gang, supply: Supply, filters: Sequence[LaysFilter] = ()) -> list[Kind]:
    """Return the kinds of members of a gang. Cost: some passes over the fleet for each.

    :param supply: of the fleet
    """
    alike: dict[Hashable, list[Member]] = defaultdict(list)
    for one in gang.members:
        is_bound = bool(one.at_most) or one.together is not None  # to each other, not to others
        alike[one.request, one.name if is_bound else None].append(one)
    return [
        _kind(some, lay(some[0].request, supply.fleet, filters), supply) for some in alike.values()
    ]


def _kind(alike: Sequence[Member], problem: Problem, supply: Supply) -> Kind:
    fleet, like = problem.fleet, alike[0]
    names = tuple(name for one in alike for name in one.names)
    totals = totals_of(like.request)
    most = most_of_each(problem, totals, supply, len(names))
    members = tuple(one.name for one in alike)
    is_counted = problem.demands and counts_alone(problem) and not fleet.shares
    return Kind(
        names, members, like, problem, totals, most, CountSource(problem) if is_counted else None
    )


def totals_of(request: Request) -> dict[str, int]:
    """Return how much of each class a request uses in all, of what is counted."""
    return {
        name: int(amount.value)
        for name, amount in request.resources.by_name()
        if isinstance(amount, IntegerAmount)
    }


def most_of_each(
    problem: Problem, totals: Mapping[str, int], supply: Supply, most: int
) -> Integers:
    """Return by tree how many of a request it can hold at most, no more than ``most``.

    Cost: some passes over the fleet for each class and group.
    """
    fleet = problem.fleet
    found = np.zeros(len(fleet.hosts), dtype=np.int64)
    found[possible(problem)] = most
    for name, total in totals.items():
        if name in fleet.classes:
            np.minimum(found, supply.of(name) // total, out=found)
    for ask in problem.demands:
        if not ask.is_split and ask.pooled is None:
            gives = ask.own.allowed & ask.gives_all
            np.minimum(found, _times(ask.rows, gives, ask.amount, len(found)), out=found)
    if problem.named:
        np.minimum(found, problem.named.most(len(found)), out=found)
    for condition in problem.located:
        np.minimum(found, most_of_parts(condition.demand, len(found)), out=found)
    return found


def _times(rows: ClassRows, gives: Booleans, amount: int, trees: int) -> Integers:
    """Return by tree how often some of its inventories give an amount, one each time."""
    found = np.zeros(trees, dtype=np.int64)
    np.add.at(found, rows.tree, np.where(gives, rows.free // amount, 0).clip(0))
    return found


def requested_of(problem: Problem, view: View) -> Iterator[PartialRequest]:
    """Yield the devices that a request needs of a host, with the parts that can provide them.

    A count that other providers may provide, too, is left out.
    """
    fleet, tree, provider = problem.fleet, view.tree, problem.fleet.inventories.provider
    found: list[tuple[str, Amount | int, list[int], int]] = []
    for one, sources in problem.traits.sources(tree).items():
        if isinstance(one, LocatedCondition):
            if one.name == view.kind:
                places = one.of_tree(tree).only(sources).providers
                found.append((one.name, one.demand.amount, places, 1))
        elif isinstance(one, ClassCondition):
            here = one.of_tree(tree)
            places = [int(provider[here.numbers[at]]) for at in members(here, sources)]
            found.append((one.name, one.demand.amount, places, 1))
    for kind in problem.named.kinds:
        places = problem.named.options(kind, tree)
        for name, (_, count) in zip(kind.names, kind.classes, strict=True):
            found.append((name, count, places, kind.count))
    id_of = dict(zip(view.places, view.located.inventory.part_ids(), strict=True))
    for name, amount, places, count in found:
        if name == view.kind or all(
            fleet.views.of_devices(place, name) == view.kind for place in places
        ):
            yield PartialRequest(name, amount, [id_of[place] for place in places], count)


class CountSource:
    """Who gives members of a kind, one after the other, where they only count: the first who can.

    It is no search: where it finds nobody there may be another way.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._answered = answered(problem)
        self._entries: dict[int, list[list[_Entry]]] = {}

    def take(self, tree: int, used: dict[int, int]) -> Candidate | None:
        """Return a candidate for one more member on a tree, and add its use to ``used``.

        None if there is none; ``used`` is unchanged then. Cost: some 10 microseconds, and as many
        for each tree that is new.

        :param used: by the number of an inventory, the amount that other members use
        """
        if self._answered is not None and not self._answered[tree]:
            return None
        if tree not in self._entries:
            self._entries[tree] = [self._of_tree(ask, tree) for ask in self._problem.demands]
        demands, parts = self._problem.demands, list[ClassShare]()
        is_own, is_whole, more = False, True, dict[int, int]()
        for number, (ask, entries) in enumerate(zip(demands, self._entries[tree], strict=True)):
            some = _shares_of(ask.amount, entries, used)
            if not some:
                return None
            is_own |= any(one.is_own for one, _ in some)
            is_whole &= len(some) == 1
            parts += [ClassShare(number, one.provider, amount) for one, amount in some]
            for one, amount in some:
                more[one.number] = used.get(one.number, 0) + amount
        if self._problem.rules.host_gives and not is_own:
            return None
        used |= more
        if is_whole:
            return counted_candidate(self._problem, tree, [part.provider for part in parts])
        return candidate(self._problem, tree, parts)

    def _of_tree(self, ask: FleetDemand, tree: int) -> list[_Entry]:
        """Return who may give a class, those of the tree itself first."""
        fleet, rows = self._problem.fleet, ask.rows
        here = rows.of_tree(tree)
        at = here.start + np.flatnonzero(ask.own.allowed[here])
        found = _entries(rows, at, True, ask.is_device[at].tolist())
        if ask.pooled is not None:
            numbers = np.asarray(ask.pooled.numbers)[ask.pooled.allowed] - rows.first
            pools = pools_of(fleet, self._problem.rules, tree)
            numbers = numbers[np.isin(rows.provider[numbers], pools)]
            found += _entries(rows, numbers, False, [False] * len(numbers))
        return found


class _Entry(NamedTuple):
    """An inventory that may give a class."""

    number: int
    provider: int
    low: int
    most: int  #: in one part
    free: int
    step: int
    is_own: bool  #: of the tree itself
    is_device: bool  #: may give a part

    def gives(self, wanted: int, used: Mapping[int, int]) -> int:
        """Return how much it gives of what is wanted, beside what is used of it."""
        high = min(wanted, self.most, self.free - used.get(self.number, 0))
        high = high // self.step * self.step
        return high if high >= self.low else 0


def _entries(
    rows: ClassRows, at: Integers, is_own: bool, is_device: Sequence[bool]
) -> list[_Entry]:
    columns = (rows.provider, rows.low, rows.max_unit, rows.free, rows.step_size)
    provider, low, most, free, step = (column[at].tolist() for column in columns)
    numbers = (at + rows.first).tolist()
    own = [is_own] * len(at)
    every = zip(numbers, provider, low, most, free, step, own, is_device, strict=True)
    return [_Entry(*one) for one in every]


def _shares_of(
    amount: int, entries: Sequence[_Entry], used: Mapping[int, int]
) -> list[tuple[_Entry, int]]:
    """Return the inventories that provide an amount of a class, with the share of each.

    Tried in this order: one inventory of the tree itself, devices of the tree with a share each,
    any one inventory. Pools come last because other trees can use them. The list is empty if none
    of these has the capacity.

    :param used: by the number of an inventory, the amount that is used; not changed
    """
    for one in entries:
        if one.is_own and one.gives(amount, used) == amount:
            return [(one, amount)]
    left, found = amount, list[tuple[_Entry, int]]()
    for one in entries:
        part = one.gives(left, used) if one.is_device else 0
        if part > 0:
            found.append((one, part))
            left -= part
        if not left:
            return found
    for one in entries:
        if one.gives(amount, used) == amount:
            return [(one, amount)]
    return []


def answered(problem: Problem) -> Booleans | None:
    """Return on which trees each required trait is had whoever gives some class; None for all."""
    found: Booleans | None = None
    for number in range(len(problem.required)):
        some = np.zeros(len(problem.is_host), dtype=np.bool_)
        for ask in problem.demands:
            if ask.pooled is None:
                lacks = np.zeros_like(some)
                lacks[ask.rows.tree[ask.own.allowed & ~ask.own.has_required[number]]] = True
                some |= ~lacks
        found = some if found is None else found & some
    return found


class Supply:
    """What is free of each class to the trees of a fleet, with what pools have for them."""

    def __init__(self, fleet: Fleet, disabled: Booleans | None = None) -> None:
        """:param disabled: by provider: it is disabled and provides nothing; None: none is"""
        self.fleet = fleet
        self._disabled = np.zeros(len(fleet.names), np.bool_) if disabled is None else disabled
        self._own: dict[str, Integers] = {}
        self._all: dict[str, Integers] = {}
        self._pools: dict[str, list[tuple[Integers, int]]] = {}

    def of(self, name: str) -> Integers:
        """Return by tree what it may be given of a class, by itself and by pools."""
        if name not in self._all:
            found = self.own(name).copy()
            for trees, free in self.pools(name):
                found[trees] += free
            self._all[name] = np.minimum(found, MAX_AMOUNT)
        return self._all[name]

    def together(self, name: str, trees: Booleans) -> int:
        """Return what some trees may be given of a class in all, each pool counted once."""
        pools = (free for linked, free in self.pools(name) if trees[linked].any())
        return int(self.own(name)[trees].sum()) + sum(pools)

    def own(self, name: str) -> Integers:
        """Return by tree the free amount of its own inventories of a class, without pools.

        Not :meth:`.Fleet.free`, which excludes every disabled provider: a member whose request
        names the trait of disabled providers may use them.
        """
        if name not in self._own:
            rows = self.fleet.rows(name)
            some = self.fleet.counted(rows) & ~self.fleet.is_pool[rows.provider]
            some &= ~self._disabled[rows.provider]
            free = np.where(some, rows.free, 0).clip(0)
            found = np.zeros(len(self.fleet.hosts), dtype=np.int64)
            np.add.at(found, rows.tree, free)
            self._own[name] = found
        return self._own[name]

    def pools(self, name: str) -> list[tuple[Integers, int]]:
        """Return of each pool of a class the trees that it may give to, and what is free."""
        if name not in self._pools:
            fleet, rows = self.fleet, self.fleet.rows(name)
            found = self._pools[name] = []
            is_pool = fleet.is_pool[rows.provider] & ~self._disabled[rows.provider]
            entries = np.flatnonzero(is_pool) if fleet.pools else ()
            for entry in map(int, entries):
                pool = rows.provider[entry : entry + 1]
                linked = fleet.pools.linked_to(pool, len(fleet.hosts))
                linked[fleet.tree[pool]] = True  # it gives to its own tree whatever it is linked to
                found.append((np.flatnonzero(linked), max(0, int(rows.free[entry]))))
        return self._pools[name]


# --- places -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class BindingSet:
    """A set of hosts that binds what they get together, among sets that lie within each other."""

    name: str
    trees: Integers
    most: Portion | None
    bounds: tuple[Bound, ...]
    is_of_level: bool = False
    parent: int = -1  #: number of the smallest set around it, -1 for none


def places_of_level(levels: Levels, level: str, fleet: Fleet) -> dict[str, Integers]:
    """Return the hosts of each place of a level.

    :raises InvalidInput: if there is none, or some host is in two
    """
    is_host = np.ones(len(fleet.hosts), dtype=np.bool_)
    is_host[list(fleet.pools.trees)] = False  # a pool may serve several places
    found = {}
    for name in sorted(levels.get(level, ())):
        trees = np.unique(fleet.tree[fleet.aggregates.get(name, _NOTHING)])
        if is_host[trees].any():
            found[name] = trees[is_host[trees]]
    if not found:
        raise exceptions.InvalidInput(
            "request", "level", level, "one that aggregates with hosts in them have"
        )
    place = np.full(len(fleet.hosts), -1)
    for number, (name, trees) in enumerate(found.items()):
        twice = trees[place[trees] >= 0]
        if len(twice):
            host, other = fleet.hosts[int(twice[0])], list(found)[int(place[twice[0]])]
            raise exceptions.InvalidInput(
                "request", level, f"{host} in {other} and in {name}", f"each host in one {level}"
            )
        place[trees] = number
    return found


def within_each_other(some: Iterable[BindingSet], hosts: int) -> list[BindingSet]:
    """Return sets, the largest first, each with the smallest around it.

    A set that crosses another is left out, where it is not of a level: what a pool has is looked at
    again when it is taken.

    :raises InvalidInput: if places of levels cross
    """
    some = list(some)
    owner = np.full(hosts, -1)
    found: list[BindingSet] = []
    for one in sorted(some, key=lambda each: -len(each.trees)):
        around = np.unique(owner[one.trees])
        if len(around) > 1:
            pools = {n for n in around.tolist() if n >= 0 and not found[n].is_of_level}
            if one.is_of_level and pools:
                names = {id(found[n].trees) for n in pools}
                return within_each_other([s for s in some if id(s.trees) not in names], hosts)
            if one.is_of_level:
                crossed = f"{one.name} across {found[int(around[-1])].name}"
                raise exceptions.InvalidInput(
                    "request", "levels", crossed, "places that lie within each other"
                )
            continue
        owner[one.trees] = len(found)
        found.append(dataclasses.replace(one, parent=int(around[0])))
    return found


# --- the tree of places -------------------------------------------------------------------------


class GangFleet:
    """A gang over a fleet: what each host may hold, within the places that bind."""

    def __init__(
        self, gang: Gang, fleet: Fleet, levels: Levels, filters: Sequence[LaysFilter] = ()
    ) -> None:
        self.gang = gang
        self.fleet = fleet
        self.supply = Supply(fleet)
        self.kinds = kinds_of(gang, self.supply, filters)
        self.need: Portion = tuple(len(kind.names) for kind in self.kinds)
        #: by level, the hosts of each place
        self.places = {level: places_of_level(levels, level, fleet) for level in gang.levels}
        #: the classes that are asked for
        self.classes = tuple(dict.fromkeys(name for kind in self.kinds for name in kind.totals))
        #: the levels of which a place may get so many at most
        self.binding = tuple(
            dict.fromkeys((*gang.at_most, *(name for k in self.kinds for name in k.like.at_most)))
        )
        self._refused: dict[int, list[Portion]] = defaultdict(list)
        self._links_of: dict[str, Integers] = {}
        located = {one.name for kind in self.kinds for one in kind.problem.located}
        #: the resources of devices that members request by more than a count
        self._devices = [name for name, _ in fleet.views.devices if name in located]
        self._provided: dict[tuple[int, Portion], bool] = {}
        every = np.ones(len(fleet.hosts), dtype=np.bool_)
        self._sets(every)  # which refuses places of levels that cross

    def refuse(self, tree: int, portion: Portion) -> None:
        """Note that a host cannot hold a portion."""
        self._refused[tree].append(portion)
        numbers = [number for number, count in enumerate(portion) if count]
        if len(numbers) == 1:
            most = self.kinds[numbers[0]].most
            most[tree] = min(most[tree], portion[numbers[0]] - 1)

    def has_devices(self, tree: int, portion: Portion, budget: Budget) -> bool:
        """Return whether a host may have the devices for a portion.

        If not, note the smallest part of the portion for which it lacks devices.
        """
        if self._may_provide(tree, portion, budget):
            return True
        for number, count in enumerate(portion):
            fewer = [(*portion[:number], n, *portion[number + 1 :]) for n in range(count)]
            least = bisect.bisect_left(
                fewer, True, key=lambda some: not self._may_provide(tree, some, budget)
            )
            portion = fewer[least] if least < count else portion
        self.refuse(tree, portion)
        return False

    def _may_provide(self, tree: int, portion: Portion, budget: Budget) -> bool:
        key = tree, portion
        if key not in self._provided:
            self._provided[key] = all(
                self._may_provide_of(name, tree, portion, budget) for name in self._devices
            )
        return self._provided[key]

    def _may_provide_of(self, name: str, tree: int, portion: Portion, budget: Budget) -> bool:
        budget.spend(_DEVICES_OF_HOST)
        try:
            view = self.fleet.views.of_tree(name, tree)
        except exceptions.InvalidInventory:  # nothing is known of its devices
            return True
        if view is None:
            return True
        inventory = view.located.inventory
        assert isinstance(inventory, Identified), "it is one of devices"
        return inventory.may_provide_all(
            one._replace(times=one.times * count)
            for kind, count in zip(self.kinds, portion, strict=True)
            if count
            for one in requested_of(kind.problem, view)
        )

    def rooms(self, need: Portion) -> Rooms:
        """Return what places of levels may get, for who gives members one after the other."""
        every = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        sets = [one for one in self._sets(every) if one.is_of_level]
        return Rooms(sets, self._bounds(HOST), need)

    def reachable(self, number: int) -> Booleans:
        """Return the hosts that are in some place of each level that binds a kind."""
        found = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        for level in {*self.gang.at_most, *self.kinds[number].like.at_most} - {HOST}:
            some = np.zeros_like(found)
            for trees in self.places[level].values():
                some[trees] = True
            found &= some
        return found

    def root(self, trees: Sequence[int], most: Sequence[Integers], budget: Budget) -> Place:
        """Return the places that bind, with some hosts in their order.

        :param most: by kind and tree, how many it may get
        """
        within = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        within[list(trees)] = True
        sets = self._sets(within)
        owner = np.full(len(within), -1)
        for number, one in enumerate(sets):
            owner[one.trees] = number
        below: dict[int, list[Place | int]] = defaultdict(list)
        seen = {-1}
        for tree in trees:
            at = int(owner[tree])
            below[at].append(self._host(tree, most, budget))
            while at not in seen:
                seen.add(at)
                at, inner = sets[at].parent, at
                below[at].append(inner)

        def place(number: int) -> Place:
            some = tuple(place(one) if isinstance(one, int) else one for one in below[number])
            if number < 0:
                return Place("", below=some)
            one = sets[number]
            return Place(one.name, below=some, most=one.most, bounds=one.bounds)

        return place(-1)

    def _host(self, tree: int, most: Sequence[Integers], budget: Budget) -> Place:
        portions = self._portions(tuple(int(counts[tree]) for counts in most), tree, budget)
        most_here, bounds = self._bounds(HOST)
        return Place(str(tree), portions, most=most_here, bounds=bounds)

    def _bounds(self, level: str) -> tuple[Portion | None, tuple[Bound, ...]]:
        """Return what a place of a level may get: of each kind, and of all together."""
        each = self.gang.at_most.get(level)
        bounds = () if each is None else (Bound((1,) * len(self.need), each),)
        return self._of_each(level), bounds

    def _of_each(self, level: str) -> Portion | None:
        """Return how many of each kind a place of a level may get, None if there is no bound."""
        if not any(level in kind.like.at_most for kind in self.kinds):
            return None
        kinds = zip(self.kinds, self.need, strict=True)
        return tuple(kind.like.at_most.get(level, count) for kind, count in kinds)

    def _sets(self, within: Booleans) -> list[BindingSet]:
        """Return what binds hosts together: the places of levels, and pools that alone give."""
        found = []
        for level in self.binding:
            if level != HOST:
                said, bounds = self._bounds(level)
                for name, trees in self.places[level].items():
                    found.append(BindingSet(f"{level} {name}", trees, said, bounds, True))
        for name in self.classes:
            weights = tuple(kind.totals.get(name, 0) for kind in self.kinds)
            for trees, free in self.supply.pools(name):
                if (
                    not self.supply.own(name)[trees].any()
                    and self._links(name)[trees].max(initial=0) == 1
                ):
                    found.append(BindingSet(name, trees, None, (Bound(weights, free),)))
        here = [dataclasses.replace(one, trees=one.trees[within[one.trees]]) for one in found]
        return within_each_other((one for one in here if len(one.trees)), len(within))

    def _links(self, name: str) -> Integers:
        """Return to how many pools of a class each host is linked."""
        if name not in self._links_of:
            found = self._links_of[name] = np.zeros(len(self.fleet.hosts), dtype=np.int64)
            for linked, _ in self.supply.pools(name):
                found[linked] += 1
        return self._links_of[name]

    def _portions(self, most: Portion, tree: int, budget: Budget) -> tuple[Portion, ...]:
        """Return the largest portions that a host may hold, by what is known of it."""
        found = [tuple(map(min, most, self.need))]
        if len(found[0]) > 1:
            for name in self.classes:
                if name not in self.fleet.classes:
                    continue
                weights = tuple(kind.totals.get(name, 0) for kind in self.kinds)
                free = int(self.supply.of(name)[tree])
                cut = [each for one in found for each in bounded(one, weights, free)]
                budget.spend(len(cut) - len(found))
                found = list(largest(cut))
        for refused in self._refused.get(tree, ()):
            found = list(largest(each for one in found for each in _without(one, refused)))
        return tuple(found)


class Rooms:
    """What hosts, and the places of levels around them, may still get."""

    def __init__(
        self,
        sets: Sequence[BindingSet],
        of_host: tuple[Portion | None, tuple[Bound, ...]],
        need: Portion,
    ) -> None:
        self._need, self._of_host = need, of_host
        self._places = [Room(Place(s.name, most=s.most, bounds=s.bounds), need) for s in sets]
        self._around: dict[int, list[Room]] = defaultdict(list)
        for one, room in zip(sets, self._places, strict=True):
            for tree in one.trees.tolist():
                self._around[tree].append(room)
        self._hosts: dict[int, Room] = {}

    def left(self, tree: int, kind: int) -> int:
        """Return how many more of a kind a host may get."""
        return min(room.left(kind) for room in self._of(tree))

    def take(self, tree: int, kind: int, count: int) -> None:
        """Count members of a kind at a host and in the places around it.

        A negative count removes members. :meth:`left` returns that much less.
        """
        for room in self._of(tree):
            room.take(kind, count)

    @property
    def state(self) -> tuple[tuple[int, ...], ...]:
        """What places of levels may still get."""
        return tuple(room.state for room in self._places)

    def _of(self, tree: int) -> list[Room]:
        if tree not in self._hosts:
            most, bounds = self._of_host
            self._hosts[tree] = Room(Place(str(tree), most=most, bounds=bounds), self._need)
        return [self._hosts[tree], *self._around.get(tree, ())]


def _without(portion: Portion, refused: Portion) -> Iterator[Portion]:
    """Yield the largest portions within one that do not contain another.

    >>> list(_without((3, 2), (2, 1)))
    [(1, 2), (3, 0)]
    >>> list(_without((1, 2), (2, 1)))
    [(1, 2)]
    """
    if any(has < count for has, count in zip(portion, refused, strict=True)):
        yield portion
        return
    for kind, count in enumerate(refused):
        if count:
            yield tuple(count - 1 if k == kind else has for k, has in enumerate(portion))
