"""Amounts that say where they go: over the fleet, and on one tree.

An amount whose inventory lies over a tree is one class of a request, given by the parts it is put
on. Which parts those are, the inventory decides, a view over the tree (:class:`.demands.Placing`);
what is known before is which parts may be among them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.holders import without_removed_units
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import resource
from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.resources.located import Identified
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.base import Cut, Partial, excluded, in_words
from resource_objects.search.demands import LocatedFleetDemand, LocatedTreeDemand, Placing
from resource_objects.search.findings import Findings, HostSet, Sources
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.tree_solver import may_provide

# --- lower bounds -------------------------------------------------------------------------------
# Necessary conditions on located amounts, over the whole fleet at once.
#
# A kind may tell what each part that an amount is on has to have left at least. Then a tree needs
# as many parts with that much as there are such; equal ones are counted together. Or it tells
# what all parts together have to have left: so many devices of a class, whichever give them. Of
# devices there have to be as many as are asked for, whatever they are.


#: What one part has to have, for each way in which parts are kept.
_Need = tuple[tuple[tuple[str, int], ...], ...]


def enough_parts(ask: LocatedFleetDemand, trees: int, trait: int | None = None) -> Booleans:
    """Return, by tree, whether it seems to have the parts that an amount needs.

    :param trait: number of a required trait that these must have, None for none
    """
    able = ask.allowed if trait is None else ask.allowed & ask.has_required[trait]
    needs = _needs(ask)
    found: Booleans = _count_parts(ask, able, trees) >= max(1, needs.total())
    free: dict[str, Integers] = {}
    for need, count in needs.items():
        found &= _count_parts(ask, able & _having(ask, need, free), trees) >= count
    for name, count in ask.amount.of_parts.items():
        found &= _sum(ask, (name,), able, trees) >= count
    kind = resource(ask.resource_class)
    if issubclass(kind.inventory_kind, Identified):
        every = {name for shape in ask.parts.shapes for name in shape}
        found &= _sum(ask, every, able, trees) >= ask.amount.pieces
    return found


def most_of_parts(ask: LocatedFleetDemand, trees: int) -> Integers:
    """Return, by tree, for how many of an amount it has parts at most."""
    found = np.full(trees, MAX_AMOUNT)
    for name, count in [*_in_all(ask).items(), *ask.amount.of_parts.items()]:
        np.minimum(found, _sum(ask, (name,), ask.allowed, trees) // count, out=found)
    if issubclass(resource(ask.resource_class).inventory_kind, Identified):
        every = {name for shape in ask.parts.shapes for name in shape}
        pieces = max(1, ask.amount.pieces)
        np.minimum(found, _sum(ask, every, ask.allowed, trees) // pieces, out=found)
    return found


def _in_all(ask: LocatedFleetDemand) -> Mapping[str, int]:
    """Return what all pieces of an amount need at least, by class, whichever parts they are on."""
    kind, found = resource(ask.resource_class), Counter[str]()
    by_shape = [kind.lower_bounds(ask.amount, classes) for classes in ask.parts.shapes]
    for piece in zip(*by_shape, strict=True):
        for name in piece[0]:
            found[name] += min(counts.get(name, 0) for counts in piece)
    return {name: count for name, count in found.items() if count}


def may_hold(asks: Sequence[LocatedFleetDemand], tree: int, budget: Budget) -> bool:
    """Return whether the parts of a tree have what amounts of one class need at least, all at once.

    Each piece of an amount is on a part of its own. All ways are tried, so a no is one; a yes says
    nothing of what lower bounds do not tell, such as which CPUs of a cell are taken.

    :raises SearchLimitReached: if the budget runs out first
    """
    fleet, parts = asks[0].fleet, asks[0].parts
    here = parts.of_tree(tree)
    places, shapes = parts.provider[here].tolist(), parts.shape[here].tolist()
    kind = resource(asks[0].resource_class)
    #: by amount and part, what each piece needs of it
    needs = [
        [kind.lower_bounds(one.amount, parts.shapes[shape]) for shape in shapes] for one in asks
    ]
    is_allowed = [one.allowed[here].tolist() for one in asks]
    names = sorted({name for one in needs for of in one for piece in of for name in piece})
    numbers = [[fleet.number(place, name) for name in names] for place in places]
    free = fleet.inventories.free
    start = tuple(
        tuple(0 if number is None else int(free[number]) for number in some) for some in numbers
    )

    def expand(state: _Filled) -> Iterator[_Filled | Solution[bool]]:
        number, piece, taken, left = state
        while number < len(needs) and (not needs[number] or piece == len(needs[number][0])):
            number, piece, taken = number + 1, 0, 0
        if number == len(needs):
            yield Solution(True)
            return
        for part, counts in enumerate(left):
            if taken >> part & 1 or not is_allowed[number][part]:
                continue
            need = needs[number][part][piece]
            after = tuple(has - need.get(name, 0) for has, name in zip(counts, names, strict=True))
            if min(after, default=0) >= 0:
                others = (*left[:part], after, *left[part + 1 :])
                yield number, piece + 1, taken | 1 << part, others

    start_at: _Filled = (0, 0, 0, start)
    return next(solutions(start_at, expand, budget, lambda state: state), False)


#: Of which amount which piece comes next, the parts that this one is on, what each part has left.
_Filled = tuple[int, int, int, tuple[tuple[int, ...], ...]]


def _sum(ask: LocatedFleetDemand, names: Iterable[str], parts: Booleans, trees: int) -> Integers:
    """Return how much of some classes some parts of each tree have left together."""
    found = np.zeros(trees, dtype=np.int64)
    for name in names:
        np.add.at(found, ask.parts.tree, np.where(parts, _free(ask, name).clip(0), 0))
    return found


def _needs(ask: LocatedFleetDemand) -> Counter[_Need]:
    """Return what the parts have to have, and how many of them so much."""
    kind = resource(ask.resource_class)
    by_shape = [kind.lower_bounds(ask.amount, classes) for classes in ask.parts.shapes]
    return Counter(
        tuple(tuple(sorted(counts.items())) for counts in one)
        for one in zip(*by_shape, strict=True)
    )


def _having(ask: LocatedFleetDemand, need: _Need, free: dict[str, Integers]) -> Booleans:
    """Return which parts have so much left; ``free`` remembers what each has."""
    parts = ask.parts
    found = np.ones(len(parts.provider), dtype=np.bool_)
    for shape, counts in enumerate(need):
        here = parts.shape == shape
        for name, count in counts:
            if name not in free:
                free[name] = _free(ask, name)
            found &= ~here | (free[name] >= count)
    return found


def _free(ask: LocatedFleetDemand, name: str) -> Integers:
    """Return what each part has left of a class, 0 where it has no such inventory."""
    rows, wanted = ask.fleet.rows(name), ask.parts.provider
    found = np.zeros(len(wanted), dtype=np.int64)
    if len(rows.provider):
        at = np.minimum(rows.provider.searchsorted(wanted), len(rows.provider) - 1)
        there = rows.provider[at] == wanted
        found[there] = rows.free[at[there]]
    return found


def _count_parts(ask: LocatedFleetDemand, parts: Booleans, trees: int) -> Integers:
    """Return how many of some parts each tree has."""
    return np.bincount(ask.parts.tree[parts], minlength=trees)


def drawing(ask: LocatedFleetDemand) -> Iterator[tuple[int, ClassRows, Booleans]]:
    """Yield, by class, how much is given by a host, and which of its inventories may give it.

    By the host as a whole, or by its parts together. Flags are parallel to the inventories of the
    class.
    """
    providers = ask.parts.provider[ask.allowed]
    for name, count in {**ask.amount.of_host, **ask.amount.of_parts}.items():
        rows = ask.fleet.rows(name)
        yield count, rows, np.isin(rows.provider, providers)


# --- reasons ------------------------------------------------------------------------------------
# What stands against a located amount on one tree: what its inventory says, and who holds it.


#: The rules that fail because others hold something.
_BY_OTHERS = frozenset(
    {Rule.CAPACITY, Rule.LIMIT, Rule.PHYSICAL, Rule.THREADS, Rule.EMULATOR, Rule.UNIT_TAKEN}
)


class Unplaced:
    """Why located amounts, one or several that are decided together, are nowhere on a tree."""

    def __init__(self, demand: Sequence[LocatedTreeDemand], host: str) -> None:
        self._every = demand
        self._demand = demand[0]
        self._ask = demand[0].ask
        self._fleet: Fleet = demand[0].ask.fleet
        self._host = host

    def reasons(self, within: Sequence[int]) -> list[Reason]:
        """Return what stands against them, each on some of its parts; nothing if they fit there."""
        if not self._demand.places:
            return [self.made(Rule.NO_INVENTORY)]
        if not self._demand.allowed:
            return self._all_barred()
        try:
            Placing(self._every).try_fit(within)
        except exceptions.CapacityException as refusal:
            return [one for reason in refusal.reasons for one in self._every_told(reason, within)]
        except exceptions.ForeignAmount:
            return [self.made(Rule.FOREIGN)]
        except exceptions.InvalidInventory:
            return [self.made(Rule.INVALID)]
        except exceptions.SearchLimitReached:
            return []
        return []

    def made(self, rule: Rule, trait: str | None = None) -> Reason:
        """Return a reason about all of it."""
        name = self._ask.resource_class
        return Reason(rule, self._ask.count, 0, 0, name, self._host, trait=trait)

    def _all_barred(self) -> list[Reason]:
        """Name the conditions that no part meets, or if there is none all that together exclude."""
        ask = self._ask
        here = ask.parts.of_tree(self._demand.tree)
        flags = [flags[here] for flags in ask.is_barred]
        return excluded(ask.barriers, flags, ask.count, ask.resource_class, self._host)

    def barred_with(self, trait: int, label: str) -> list[Reason]:
        """Return the conditions that parts with a required trait do not meet."""
        ask = self._ask
        here = ask.parts.of_tree(self._demand.tree)
        flags = [~ask.has_required[trait][here], *(flags[here] for flags in ask.is_barred)]
        conditions = [(Rule.TRAIT_MISSING, label), *ask.barriers]
        return excluded(conditions, flags, ask.count, ask.resource_class, self._host)

    def _every_told(self, reason: Reason, within: Sequence[int]) -> list[Reason]:
        """Return a reason with who holds what is missing; a limit, and who holds the rest."""
        if reason.resource is None:
            return [reason]
        every = list(zip(self._every, within, strict=True))
        demand, parts = next((one for one in every if _is_about(one[0], reason)), every[0])
        shared = self._of_limit_shared(demand, reason)
        if shared is not None:
            return [shared, *self._held_of(demand, reason)]
        return self._barred_class(demand, reason) or [self._told(reason, demand, parts)]

    def _barred_class(self, demand: LocatedTreeDemand, reason: Reason) -> list[Reason]:
        """Return the conditions by which no part may give a class that some of them keep."""
        name = reason.resource or ""
        is_class = reason.cell is None and name != demand.ask.resource_class
        if reason.rule is not Rule.CAPACITY or reason.bound or not is_class:
            return []
        keeps = {place for place, _ in self._numbers(demand, name)}
        here = self._ask.parts.of_tree(demand.tree) if demand is self._demand else None
        if not keeps or here is None:
            return []
        some = np.isin(self._ask.parts.provider[here], sorted(keeps))
        flags = [flags[here][some] for flags in self._ask.is_barred]
        if not flags or not np.logical_or.reduce(flags).all():
            return []
        return excluded(self._ask.barriers, flags, reason.requested, name, self._host)

    def _held_of(self, demand: LocatedTreeDemand, reason: Reason) -> Iterator[Reason]:
        """Yield what others have left too little of, of each part."""
        fleet = self._fleet
        for place, number in self._numbers(demand, reason.resource or ""):
            holders = () if number in fleet.limited else fleet.holders([number])
            if holders and fleet.left(number) < reason.requested:
                yield dataclasses.replace(
                    self._of_inventory(reason, number),
                    resource=fleet.class_of(number),
                    where=fleet.names[place],
                    unit=None,
                    holders=holders,
                )

    def _numbers(self, demand: LocatedTreeDemand, name: str) -> Iterator[tuple[int, int]]:
        """Yield the inventories of a class that parts keep, with their places.

        Of the kind itself those of all that is asked for, whatever its class.
        """
        fleet, view = self._fleet, demand.view
        inventory = view.located.inventory
        for place in view.places:
            names: tuple[str, ...] = (name,)
            if name == demand.ask.resource_class and isinstance(inventory, Identified):
                names = tuple(
                    one
                    for one in view.located.shape.classes
                    if any(
                        inventory.is_asked(demand.ask.amount, unit)
                        for unit in inventory.units(one) or ()
                    )
                )
            for one in names:
                number = fleet.number(place, one)
                if number is not None:
                    yield place, number

    def _told(self, reason: Reason, demand: LocatedTreeDemand, parts: int) -> Reason:
        """Return a reason with who holds what is missing, of the parts that may be used."""
        assert reason.resource is not None, "it is about a class"
        view = demand.view
        units = view.located.blocking_units(demand.ask.amount, reason, demand.spots(parts))
        if units:
            place = dict(zip(view.located.parts, view.places, strict=True))
            held = {
                place[spot]: self._in_service(place[spot], some) for spot, some in units.items()
            }
            return dataclasses.replace(reason, holders=self._fleet.who_has(held, reason.resource))
        if reason.rule not in _BY_OTHERS:
            return reason
        spot = view.located.part_of(reason)
        if spot is None:
            return self._of_host(demand, reason, reason.resource)
        provider = view.places[view.located.parts.index(spot)]
        if reason.rule is Rule.UNIT_TAKEN and reason.unit is not None:
            taken = self._fleet.units.taken([reason.unit]).get(provider)
            return dataclasses.replace(reason, holders=((taken[1], 1),) if taken else ())
        number = self._fleet.number(provider, reason.resource)
        if number is None:
            return reason
        if number in self._fleet.limited:
            reason = self._under_limit(reason, number)
        return dataclasses.replace(reason, holders=self._fleet.holders([number]))

    def _in_service(
        self, place: int, blocked: Mapping[str, frozenset[str]]
    ) -> dict[str, frozenset[str]]:
        """Return the blocked units that are not blocked by a removed unit."""
        removed = self._fleet.removed_units.get(place, {})
        taken = {row[0] for row in self._fleet.units.of_provider(place)} if removed else set()
        return without_removed_units(blocked, removed.keys() - taken)

    def _of_host(self, demand: LocatedTreeDemand, reason: Reason, name: str) -> Reason:
        """Return what the host as a whole has left, with its own figures."""
        fleet, shares = self._fleet, self._fleet.shares
        numbers = [fleet.number(place, name) for place in demand.view.places]
        links = [link for n in numbers if n is not None for link in shares.between(n, n + 1)]
        targets = sorted({target for _, target, _ in links if fleet.class_of(target) == name})
        if reason.rule is not Rule.CAPACITY or not targets:
            return reason
        target = min(targets, key=fleet.left)
        if fleet.left(target) != reason.free:
            return reason
        return dataclasses.replace(
            self._of_inventory(reason, target), holders=fleet.holders([target])
        )

    def _of_limit_shared(self, demand: LocatedTreeDemand, reason: Reason) -> Reason | None:
        """Return the limit of what a device uses up, if that leaves none of its class."""
        fleet, name = self._fleet, reason.resource or ""
        if not fleet.limited or reason.rule is not Rule.CAPACITY or reason.cell is not None:
            return None
        found: list[tuple[int, int]] = []
        for _, number in self._numbers(demand, name):
            if fleet.left(number) > 0:
                found += [
                    (target, factor)
                    for target, factor in fleet.shares.of(number)
                    if target in fleet.limited and fleet.left(target) < factor
                ]
        if not found:
            return None
        target, factor = max(found, key=lambda one: (fleet.left(one[0]) / one[1], -one[0]))
        place = int(fleet.inventories.provider[target])
        told = dataclasses.replace(
            self._of_inventory(reason, target),
            requested=reason.requested * factor,
            resource=fleet.class_of(target),
            where=fleet.names[place],
            unit=None,
        )
        return dataclasses.replace(told, holders=fleet.holders([target]))

    def _under_limit(self, reason: Reason, number: int) -> Reason:
        """Return a reason with what is used, where a limit holds back as much as if it were."""
        used = int(self._fleet.inventories.used[number])
        if reason.rule is Rule.PHYSICAL and used + reason.requested > reason.bound:
            return dataclasses.replace(reason, used=used)
        if reason.rule in (Rule.CAPACITY, Rule.PHYSICAL):
            return self._of_inventory(reason, number)
        return reason

    def _of_inventory(self, reason: Reason, number: int) -> Reason:
        """Return a reason with the figures of an inventory: its capacity, or the limit of it."""
        rows = self._fleet.inventories
        return dataclasses.replace(
            reason,
            rule=self._fleet.rule_of([number]),
            bound=int(rows.capacity[number]),
            used=int(rows.used[number]),
        )


def _is_about(demand: LocatedTreeDemand, reason: Reason) -> bool:
    return bool(demand.places) and demand.view.located.is_about(reason)


# --- the conditions -----------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class LocatedCondition:
    """A located amount is somewhere on the host."""

    demand: LocatedFleetDemand
    trees: int

    rule = Rule.CAPACITY
    is_of_devices = False  # who lacks a trait is told of the counts of devices first

    def __post_init__(self) -> None:
        self._last: LocatedTreeDemand | None = None

    def mask(self) -> Booleans:
        """Return which hosts seem to have the parts for it."""
        return self.enough(None)

    def enough(self, trait: int | None) -> Booleans:
        """Return the same of the parts that have a required trait, None for all."""
        return enough_parts(self.demand, self.trees, trait)

    def cuts(self) -> Iterator[Cut]:
        """Yield one cut."""
        words = in_words(self.demand.barriers)
        yield Cut(self.mask(), self.rule, "", self.demand.resource_class, words=words)

    def cut_of_trait(self, trait: int, label: str) -> Cut:
        """Return the cut that it seems to have room on parts that have a required trait."""
        words = in_words([*self.demand.barriers, (Rule.TRAIT_MISSING, label)])
        name = self.demand.resource_class
        return Cut(self.enough(trait), self.rule, "", name, label, words)

    def had(self, trait: int) -> Booleans:
        """Return, by tree, whether a part that may be used has a required trait, full or not."""
        found = np.zeros(self.trees, dtype=np.bool_)
        able = self.demand.allowed & self.demand.has_required[trait]
        found[self.demand.parts.tree[able]] = True
        return found

    @property
    def name(self) -> str:
        """The class of it as a whole."""
        return self.demand.resource_class

    @property
    def providers(self) -> Integers:
        """The parts it could be on anywhere."""
        return self.demand.parts.provider

    def of_tree(self, tree: int) -> LocatedTreeDemand:
        """Return the same asked of one tree; the last one is remembered."""
        last = self._last
        if last is None or last.tree != tree:
            self._last = last = self.demand.of_tree(tree)
        return last

    def sources_on(self, hosts: HostSet) -> Sources:
        """Return the parts on some hosts."""
        demand = self.demand
        pairs = hosts.entries(demand.parts.tree)
        allowed = demand.allowed[pairs.entry]
        return Sources(pairs, allowed, tuple(has[pairs.entry] for has in demand.has_required))

    def can(self, tree: int, sources: int) -> bool:
        """Return whether it can be on some parts, or whether that takes too long to find out."""
        return may_provide(self.demand.fleet, tree, (), [self.of_tree(tree).only(sources)])

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add the reasons of some hosts, one by one."""
        findings.add_decided(self, hosts, self.reasons)

    def reasons(self, host: Partial) -> list[Reason]:
        """Return what stands against it, if only those parts may be used that have its traits."""
        return self.short(host.tree, host.sources[self])

    def short(self, tree: int, sources: int) -> list[Reason]:
        """Return what stands against it, on some parts."""
        return self._unplaced(tree).reasons([sources])

    def lacks(self, tree: int, trait: int, required: Sequence[str]) -> Reason:
        """Return the reason that no part has a required trait, or none beside those before it."""
        here, unplaced = self.of_tree(tree), self._unplaced(tree)
        if not here.allowed & here.with_trait[trait]:
            barred = unplaced.barred_with(trait, required[trait]) if here.with_trait[trait] else []
            return barred[0] if barred else unplaced.made(Rule.TRAIT_MISSING, required[trait])
        words = " ".join(f"with {one}" for one in required[: trait + 1])
        return dataclasses.replace(unplaced.made(Rule.TRAITS_AT_ONCE), unit=words)

    def _unplaced(self, tree: int) -> Unplaced:
        return Unplaced([self.of_tree(tree)], self.demand.fleet.hosts[tree])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Nearness:
    """Located amounts that have to be near each other are, where each could be had by itself."""

    each: Sequence[LocatedCondition]

    rule = Rule.AFFINITY

    def mask(self) -> Booleans:
        """Return all hosts: nothing over a fleet says what is near."""
        return np.ones(self.each[0].trees, dtype=np.bool_)

    def cuts(self) -> Iterable[Cut]:
        """Return none: it is one of what is decided together."""
        return ()

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add the reasons of some hosts, one by one."""
        findings.add_decided(self, hosts, self.reasons)

    def reasons(self, host: Partial) -> list[Reason]:
        """Return what is not near the rest."""
        if any(host.told[one] for one in self.each):
            return []
        here = [one.of_tree(host.tree) for one in self.each]
        name = self.each[0].demand.fleet.hosts[host.tree]
        return Unplaced(here, name).reasons([host.sources[one] for one in self.each])
