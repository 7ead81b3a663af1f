"""One class as a count: over the fleet, asked of one tree, and why nobody gives it.

One provider gives all of it, or devices share it; each part keeps the unit rules. Over the fleet
that is a mask (:func:`enough_of_class`). What is asked of one tree is plain data
(:class:`.TreeDemand`). :class:`Shortage` tells the figures that leave nobody to give it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from resource_objects.providers.decision import by_amount
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount
from resource_objects.resources.catalog import is_device
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.conditions.base import (
    OWN,
    POOL,
    Check,
    Condition,
    Semantics,
    excluded,
    in_words,
    pools_of,
    trees_of,
    unmet,
)
from resource_objects.search.conditions.overdrawn import overdrawn
from resource_objects.search.demands import Draw, Source, TreeDemand, bits, members
from resource_objects.search.findings import Findings, HostSet, Pairs, Sources
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.placements import no_placement, placements
from resource_objects.search.tree_solver import may_provide

#: Equal sources are one object: a search that is suspended has those of its tree.
_source = functools.lru_cache(1024)(Source)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FleetDemand:
    """One class of the unnamed group over the fleet."""

    resource_class: str
    whole: Amount | None  #: as it was asked; None: as a part of another amount
    amount: int  #: the same as a count
    units: tuple[str, ...]  #: asked for by name
    rows: ClassRows
    gives_all: Booleans  #: could give all of it by itself; parallel to rows
    is_device: Booleans  #: may give a part, while other devices give the rest; parallel to rows
    is_split: bool  #: whether any of them may
    barriers: tuple[tuple[Rule, str], ...]  #: the conditions on each provider
    # flags of the inventories by role, see base.Qualification
    is_barred: tuple[Booleans, ...]  #: by such a condition, those that do not meet it
    has_required: tuple[Booleans, ...]  #: by required trait, those that have it
    allowed: Booleans  #: those that meet all conditions on each provider, with units that are free

    @property
    def has_pools(self) -> bool:
        """Whether a pool has an inventory of the class."""
        return len(self.allowed) > 1

    def having(self, trait: int | None) -> Booleans:
        """Return the allowed inventories, by role, that have a required trait, if one is passed."""
        return self.allowed if trait is None else self.allowed & self.has_required[trait]

    def trees(self, fleet: Fleet, provides: Booleans) -> Booleans:
        """Return the trees that some inventories, by role, may provide to."""
        return trees_of(fleet, self.rows.provider, provides)


class Shortage:
    """Why some sources, of whom there is at least one, cannot give what is asked of a class.

    The figures are sums over these sources. Where their sum is enough and yet nobody can give all
    of it alone, the one that comes nearest is named instead; of pools, which never add up, always
    that one. Where there is room here and none where it is used too, what is left there is told,
    with all who hold it. Where there is room and a unit rule stands against it, the rule is named.
    """

    def __init__(
        self, fleet: Fleet, host: str, name: str, demand: TreeDemand, *, names_one: bool = False
    ) -> None:
        """:param name: the class

        :param names_one: whether it is told where, also if there is one source alone
        """
        self._fleet = fleet
        self._host = host
        self._name = name
        self._names_one = names_one
        self._amount = demand.amount
        places = members(demand, demand.allowed)
        self._rows = [demand.numbers[place] for place in places]
        self._shared = [
            demand.numbers[place] for place in places if demand.sources[place].is_device
        ]
        self._is_pooled = not demand.own
        #: what can be taken of each inventory, nothing where it is less
        figures = fleet.inventories.free[self._rows].clip(0).tolist()
        self._free: dict[int, int] = dict(zip(self._rows, figures, strict=True))
        #: whether all of them have less than is asked for: then no search is needed to know
        self.is_of_sums = sum(figures) < self._amount

    def reasons(self) -> list[Reason]:
        """Return what stands against them."""
        free = self._free
        nearest = max(self._rows, key=lambda row: (free[row], -row))
        if self.is_of_sums:
            if not self._is_pooled and self._has_parts():
                return [self._not_whole()]
            return self._full([nearest] if self._is_pooled else self._rows)
        together = sum(free[row] for row in self._shared)
        if together >= self._amount and (nearest in self._shared or free[nearest] < self._amount):
            return [self._shared_rule() if len(self._shared) > 1 else self._unit_rule(nearest)]
        if free[nearest] >= self._amount:
            return [self._unit_rule(nearest)]
        return self._full(self._shared if together > free[nearest] else [nearest])

    def _has_parts(self) -> bool:
        """Return whether these are several devices, and others have a part of some of them.

        A device that is had in parts uses all of some slices of its own provider, and nothing else.
        Of a single one it is told which of its slices are missing.
        """
        fleet, kept = self._fleet, self._fleet.inventories
        found = False
        for row in self._rows:
            if kept.capacity[row] != 1 or row not in self._shared:
                return False
            for target, factor in fleet.shares.of(row):
                is_slice = kept.provider[target] == kept.provider[row]
                if not is_slice or kept.capacity[target] != factor:
                    return False
            found = found or (self._free[row] == 0 and fleet.left(row) > 0)
        return found and len(self._rows) > 1

    def _not_whole(self) -> Reason:
        """Name all who have one of the devices, or a part of one."""
        fleet, kept = self._fleet, self._fleet.inventories
        whole = [row for row in self._rows if fleet.left(row) <= 0]
        held = [
            (who, row, part)
            for row in self._rows
            if row not in whole
            for who, part in self._parts_of(row).items()
        ]
        total: dict[str, Fraction] = {}
        for who, _, part in held:
            total[who] = total.get(who, Fraction()) + part
        held.sort(key=lambda one: by_amount((one[0], total[one[0]])))
        parts = [
            (who, fleet.names[int(kept.provider[row])], part.numerator, part.denominator)
            for who, row, part in held
        ]
        return Reason(
            Rule.NOT_WHOLE,
            self._amount,
            bound=len(self._rows),
            used=len(self._rows) - sum(self._free.values()),
            resource=self._name,
            where=self._host,
            holders=fleet.allocations.holders(
                (int(kept.provider[row]), self._name, 1) for row in whole
            ),
            parts=tuple(parts),
        )

    def _parts_of(self, row: int) -> dict[str, Fraction]:
        """Return how much of a device each has: the largest part over its slices."""
        fleet, kept = self._fleet, self._fleet.inventories
        found: dict[str, Fraction] = {}
        for target, _ in fleet.shares.of(row):
            for who, amount in fleet.holders([target]):
                part = Fraction(amount, int(kept.capacity[target]))
                found[who] = max(part, found.get(who, part))
        return found

    def _full(self, rows: list[int]) -> list[Reason]:
        """Name the capacity of some inventories, and what they share where that leaves less."""
        if self._fleet.shares and placements(self._fleet)[rows].all():
            count = sum(self._free[row] for row in rows)
            return [no_placement(self._fleet, self._host, self._amount, rows, count)]
        free = {row: self._free[row] for row in rows}
        left = {row: max(0, self._fleet.left(row)) for row in rows} if self._fleet.shares else free
        is_short = sum(left.values()) < self._amount
        found = [self._capacity(rows)] if is_short else []
        nearest = max(rows, key=lambda row: (free[row], -row))
        if is_short or all(row in self._shared for row in rows):
            # what the others cannot give is asked of those whose inventories elsewhere leave less:
            # of all of them, or if these have that much together, of the one that lacks most
            drawing = [row for row in rows if free[row] < left[row]]
            most = sorted(drawing, key=lambda row: (free[row] - left[row], row))[:1]
            for some in (drawing, most):
                needed = self._amount - sum(free.values()) + sum(free[row] for row in some)
                needed = min(needed, sum(left[row] for row in some)) if is_short else needed
                elsewhere = self._elsewhere(some, needed)
                if all(reason.requested > reason.free for reason in elsewhere):
                    return found + self._held(rows, left) + elsewhere or [self._capacity([nearest])]
        elif free[nearest] < left[nearest]:
            found += self._elsewhere([nearest], self._amount)
        return found or [self._capacity([nearest])]

    def _held(self, rows: list[int], left: dict[int, int]) -> list[Reason]:
        """Name who has devices whole that would do as well as one that is short elsewhere."""
        if sum(left.values()) < self._amount:  # all of them are told together
            return []
        full = [row for row in rows if not left[row] and self._fleet.holders([row])]
        return [self._capacity([row]) for row in full]

    def _elsewhere(self, rows: Sequence[int], amount: int) -> list[Reason]:
        """Name what some sources use elsewhere too, where that leaves them less than so much."""
        fleet, inventories = self._fleet, self._fleet.inventories
        drawn: dict[tuple[str, int, int], dict[int, None]] = {}
        for row in rows:
            for _, target, factor in fleet.shares.between(row, row + 1):
                if fleet.left(target) < amount * factor:
                    # all that several draw on together; what one draws on is short each by itself
                    key = fleet.class_of(target), factor, -1 if len(rows) > 1 else target
                    drawn.setdefault(key, {})[target] = None
        found = []
        for (name, factor, _), some in drawn.items():
            targets = list(some)
            where = {int(place) for place in inventories.provider[targets]}
            found.append(
                Reason(
                    fleet.rule_of(targets),
                    amount * factor,
                    bound=self._sum(inventories.capacity, targets),
                    used=self._sum(inventories.used, targets),
                    resource=name,
                    where=fleet.names[where.pop()] if len(where) == 1 else self._host,
                    holders=fleet.holders(targets),
                )
            )
        return found

    def _capacity(self, rows: list[int]) -> Reason:
        bound = self._sum(self._fleet.inventories.capacity, rows)
        return self._made(self._fleet.rule_of(rows), bound, rows)

    def _unit_rule(self, row: int) -> Reason:
        """Return the rule that a provider with room for all of it keeps it from giving it."""
        arrays = self._fleet.inventories
        if self._amount < arrays.min_unit[row]:
            return self._made(Rule.MIN_UNIT, int(arrays.min_unit[row]), [row])
        if self._amount > arrays.max_unit[row]:
            return self._made(Rule.MAX_UNIT, int(arrays.max_unit[row]), [row])
        return self._made(Rule.STEP_SIZE, int(arrays.step_size[row]), [row])

    def _shared_rule(self) -> Reason:
        """Return the rule that keeps devices with room for all of it from sharing it."""
        arrays, shared = self._fleet.inventories, self._shared
        most = np.minimum(arrays.free[shared], arrays.max_unit[shared]).clip(0)
        least = [unit for unit in arrays.min_unit[shared].tolist() if unit > 1]
        steps: list[int] = arrays.step_size[shared].tolist()
        if sum(most.tolist()) < self._amount:
            return self._made(Rule.MAX_UNIT, sum(most.tolist()), shared)
        if self._amount % math.gcd(*steps):
            return self._made(Rule.STEP_SIZE, math.gcd(*steps), shared)
        if least:
            return self._made(Rule.MIN_UNIT, min(least), shared)
        if self._amount % max(steps) == 0:  # it is what is left that does not go in steps
            given = sum(arrays.high[shared].clip(0).tolist())
            return self._made(Rule.IN_STEPS, given, shared)
        return self._made(Rule.STEP_SIZE, max(steps), shared)

    def _made(self, rule: Rule, bound: int, rows: list[int]) -> Reason:
        fleet = self._fleet
        is_named = self._names_one or len(self._rows) > 1 or self._is_pooled
        is_one = len(rows) == 1 and is_named
        where = fleet.names[int(fleet.inventories.provider[rows[0]])] if is_one else self._host
        holders = fleet.holders(rows) if rule in (Rule.CAPACITY, Rule.LIMIT) else ()
        used = self._sum(fleet.inventories.used, rows)
        return Reason(rule, self._amount, bound, used, self._name, where, holders)

    @staticmethod
    def _sum(column: Integers, rows: list[int]) -> int:
        return sum(column[rows].tolist())


def alone(rows: ClassRows, amount: int) -> Booleans:
    """Return which entries of a class could give all of an amount by themselves."""
    found: Booleans = (rows.low <= amount) & (amount <= rows.high)
    if rows.step_size.max(initial=1) > 1:  # a division takes longer than all else here
        found &= amount % rows.step_size == 0
    return found


def from_pools(fleet: Fleet, ask: FleetDemand, trait: int | None = None) -> Booleans:
    """Return which trees are linked to a pool that provides all of a class."""
    if not ask.has_pools:
        return np.zeros(len(fleet.hosts), dtype=np.bool_)
    pools = ask.rows.provider[ask.having(trait)[POOL] & ask.gives_all]
    return fleet.pools.linked_to(pools, len(fleet.hosts))


def excess(fleet: Fleet, ask: FleetDemand, parts: Integers) -> Integers:
    """Return, by tree, how much of a class its sources seem to have and cannot give together.

    ``parts`` is the most that each entry gives. What those that draw on one inventory give is at
    most what is left of it. A source may draw on several: they are looked at one after the other,
    the first of each, then the second, and what finds the most counts.
    """
    kept, shares = fleet.inventories, fleet.shares
    worst = np.zeros(len(fleet.hosts), dtype=np.int64)
    first = ask.rows.first
    here = shares.entries(first, first + len(parts))
    source, target = shares.source[here] - first, shares.target[here]
    turn = np.arange(len(source)) - source.searchsorted(source)
    for number in range(int(turn.max()) + 1 if len(turn) else 0):
        now = turn == number
        order = np.argsort(target[now], kind="stable")
        on = target[now][order]
        begins = np.flatnonzero(np.diff(on, prepend=-1))
        given = np.add.reduceat(parts[source[now][order]], begins)
        factor = np.minimum.reduceat(shares.factor[here][now][order], begins)
        found = np.zeros_like(worst)
        over = np.maximum(given - left_of(fleet, on[begins]).clip(0) // factor, 0)
        np.add.at(found, kept.tree[on[begins]], over)
        np.maximum(worst, found, out=worst)
    return worst


def left_of(fleet: Fleet, inventories: Integers) -> Integers:
    """Return what is left of some inventories themselves."""
    kept = fleet.inventories
    found: Integers = kept.capacity[inventories] - kept.used[inventories]
    return found


def enough_of_class(fleet: Fleet, ask: FleetDemand, trait: int | None = None) -> Booleans:
    """Return, by tree, whether who may give seems to give all that is asked of a class.

    :param trait: number of a required trait that those who give must have, None for none
    """
    rows = ask.rows
    found = np.zeros(len(fleet.hosts), dtype=np.bool_)
    if not len(rows.tree):
        return found
    sources = ask.having(trait)[OWN]
    if fleet.is_everywhere(ask.resource_class):
        found = sources & ask.gives_all
    else:
        found[rows.tree[sources & ask.gives_all]] = True
    if ask.is_split:
        shares = sources & ask.is_device & (rows.low <= rows.high)
        # exact in 64 bits: a capacity is below 2^43, so no sum over a tree comes near 2^63
        parts = np.where(shares, np.minimum(rows.high, ask.amount), 0)
        # np.diff would take longer than all else here
        starts = np.concatenate(([True], rows.tree[1:] != rows.tree[:-1])).nonzero()[0]
        together = np.add.reduceat(parts, starts)
        if fleet.shares:
            together -= excess(fleet, ask, parts)[rows.tree[starts]]
        found[rows.tree[starts[together >= ask.amount]]] = True
    if ask.has_pools:
        found |= from_pools(fleet, ask, trait)
    return found


# --- the condition ------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class ClassCondition(Condition):
    """Enough of a class: one source gives all of it, or devices share it."""

    fleet: Fleet
    rules: Semantics
    demand: FleetDemand

    rule = Rule.CAPACITY

    def __post_init__(self) -> None:
        self._last: tuple[int, TreeDemand] | None = None

    # --- over the fleet ---

    def mask(self) -> Booleans:
        """Return which hosts seem to have enough."""
        return self.enough(None)

    def enough(self, trait: int | None) -> Booleans:
        """Return the same of the sources that have a required trait, None for all."""
        return enough_of_class(self.fleet, self.demand, trait)

    def checks(self) -> Iterator[Check]:
        """Yield whether the class is there, then each condition on sources, then the amount."""
        demand, rows = self.demand, self.demand.rows
        name, amount = demand.resource_class, demand.amount
        able = np.stack((~rows.is_part, self.fleet.is_pool[rows.provider]))[: len(demand.allowed)]
        parts = demand.is_device & ~rows.is_part if demand.is_split else None
        found = demand.trees(self.fleet, able)
        yield Check(found, Rule.NO_INVENTORY, "", name, amount=amount, rows=rows, divisible=parts)
        for number, (rule, label) in enumerate(demand.barriers):
            able = able & ~demand.is_barred[number]
            words = f"{name} {in_words(demand.barriers[: number + 1])}"
            yield Check(demand.trees(self.fleet, able), rule, "", name, label, words)
        yield self._cut(self.mask(), demand.allowed)

    def check_of_trait(self, trait: int, label: str) -> Check:
        """Return the cut that enough is to be had of who has a required trait."""
        cut = self._cut(self.enough(trait), self.demand.having(trait))
        words = in_words([*self.demand.barriers, (Rule.TRAIT_MISSING, label)])
        return cut._replace(label=label, words=words)

    def _cut(self, passing: Booleans, may: Booleans) -> Check:
        demand = self.demand
        return Check(
            passing,
            self.rule,
            "",
            demand.resource_class,
            words=in_words(demand.barriers),
            amount=demand.amount,
            rows=demand.rows,
            allowed=may,
            divisible=may[OWN] & demand.is_device if demand.is_split else None,
        )

    def had(self, trait: int) -> Booleans:
        """Return, by tree, whether somebody who may give it has a required trait, full or not."""
        return self.demand.trees(self.fleet, self.demand.having(trait))

    @property
    def name(self) -> str:
        """The class."""
        return self.demand.resource_class

    @property
    def providers(self) -> Integers:
        """Who could give it anywhere."""
        return self.demand.rows.provider[~self.demand.rows.is_part]

    @property
    def is_of_devices(self) -> bool:
        """Whether it is a class of devices, or devices share it."""
        return is_device(self.demand.resource_class) or self.demand.is_split

    # --- on one host ---

    def of_tree(self, tree: int) -> TreeDemand:
        """Return what is asked of one tree, as plain data; the last one is remembered.

        Cost: some 10 microseconds.
        """
        last = self._last
        if last is None or last[0] != tree:
            self._last = last = tree, self._of_tree(tree)
        return last[1]

    def _of_tree(self, tree: int) -> TreeDemand:
        demand, rows = self.demand, self.demand.rows
        here = rows.of_tree(tree)
        numbers: Sequence[int] = range(rows.first + here.start, rows.first + here.stop)
        columns: Any = slice(rows.first + here.start, rows.first + here.stop)
        is_device = demand.is_device[here].tolist()
        at: Any = (OWN, here)
        pools = pools_of(self.fleet, self.rules, tree) if demand.has_pools else ()
        if pools:
            of_pools = np.flatnonzero(np.isin(rows.provider, pools))
            entries = np.concatenate((np.arange(here.start, here.stop), of_pools))
            numbers = columns = (entries + rows.first).tolist()
            is_device += [False] * len(of_pools)
            at = np.repeat((OWN, POOL), (here.stop - here.start, len(of_pools))), entries
        return TreeDemand(
            amount=demand.amount,
            numbers=numbers,
            sources=tuple(self._figures(columns, is_device)),
            allowed=bits(demand.allowed[at].tolist()),
            with_trait=tuple(bits(has[at].tolist()) for has in demand.has_required),
            draws=tuple(self._draws(numbers)) if self.fleet.shares else (),
            own=here.stop - here.start,
        )

    def _figures(self, rows: Any, is_device: list[bool]) -> list[Source]:
        kept = self.fleet.inventories
        columns = [column[rows].tolist() for column in (kept.low, kept.high, kept.step_size)]
        return list(map(_source, *columns, is_device))

    def _draws(self, numbers: Sequence[int]) -> Iterable[Draw]:
        shares = self.fleet.shares
        if isinstance(numbers, range):
            found = shares.between(numbers.start, numbers.stop)
        else:
            found = [link for number in numbers for link in shares.between(number, number + 1)]
        place = {number: place for place, number in enumerate(numbers)} if found else {}
        for source, target, factor in found:
            yield Draw(place[source], target, factor, self.fleet.left(target))

    def can(self, tree: int, sources: int) -> bool:
        """Return whether some sources can give it, or whether that takes too long to find out."""
        here = self.of_tree(tree).only(sources)
        most = 0
        for source in here.sources:  # what no sum reaches needs no search
            if source.high >= source.low:
                most += source.high if source.is_device else 0
                most = max(most, source.high)
        return most >= here.amount and may_provide(self.fleet, tree, [here])

    # --- reasons ---

    def sources_on(self, hosts: HostSet) -> Sources:
        """Return the sources on some hosts."""
        pairs = hosts.inventories(self.demand.rows)
        if not self.demand.has_pools and hosts.fleet.pools:
            pairs = pairs.where(pairs.role == OWN)
        flags = (pairs.flags(has) for has in self.demand.has_required)
        return Sources(pairs, pairs.flags(self.demand.allowed), tuple(flags))

    def short(self, tree: int, sources: int) -> list[Reason]:
        """Return the reasons on one tree if only some sources may provide it."""
        hosts = HostSet(self.fleet, self.rules, integers([tree]))
        findings = Findings(hosts, decides=True)
        findings.begin(self)
        here = self.sources_on(hosts)
        flags = np.array([sources >> n & 1 for n in range(len(here.allowed))], dtype=np.bool_)
        findings.sources[self] = here, flags
        self.find(findings, ~hosts.none())
        return list(findings.by_tree().get(tree, ()))

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add the reasons of some hosts."""
        demand, rows, hosts = self.demand, self.demand.rows, findings.hosts
        name, amount = demand.resource_class, demand.amount
        here, may_provide = findings.sources[self]
        pairs = here.pairs
        counts = ~rows.is_part[pairs.entry]
        has_allowed = hosts.any(pairs.host[here.allowed])
        is_lost = has_allowed & ~hosts.any(pairs.host[may_provide])
        none = among & (is_lost | ~hosts.any(pairs.host[counts]))
        findings.add(self, Rule.NO_INVENTORY, np.flatnonzero(none), amount, resource=name)
        barred = among & ~none & ~has_allowed
        able = pairs.where(counts)
        unmet = [able.flags(flags) for flags in demand.is_barred]
        findings.add_excluded(
            self,
            barred,
            able.host,
            demand.barriers,
            unmet,
            amount,
            name,
            otherwise=self._of_units(findings),
        )
        left = among & ~none & ~barred
        some = pairs.where(may_provide)
        free = rows.free[some.entry].clip(0)
        is_few = hosts.sum(free, some.host) < amount
        needs_decision = hosts.has_shares | (hosts.has_pools if demand.has_pools else False)
        findings.add_full(self, left & is_few & ~needs_decision, some, rows, amount, name)
        left &= needs_decision | ~is_few
        left[some.host[demand.gives_all[some.entry]]] = False
        if demand.is_split:
            left &= needs_decision | ~self._add_up(hosts, some)

        def decided(host: int) -> Iterable[Reason]:
            here = pairs.of_host(host)
            return self._decided(int(hosts.trees[host]), bits(may_provide[here].tolist()))

        findings.add_each(self, left, decided)

    def _add_up(self, hosts: HostSet, some: Pairs) -> Booleans:
        """Return the hosts whose devices provide it together: they can provide any part."""
        rows = self.demand.rows
        entry = some.entry
        is_part = self.demand.is_device[entry] & (rows.low[entry] <= rows.high[entry])
        host, entry = some.host[is_part], entry[is_part]
        most = np.minimum(rows.high[entry], self.demand.amount)
        is_odd = (rows.step_size[entry] > 1) | (rows.low[entry] > 1)
        enough: Booleans = hosts.sum(most, host) >= self.demand.amount
        return enough & ~hosts.any(host[is_odd])

    def _decided(self, tree: int, sources: int) -> list[Reason]:
        """Return the reasons on one tree of sources of which the arrays do not report."""
        some = self.of_tree(tree).only(sources)
        host = self.fleet.hosts[tree]
        shortage = Shortage(self.fleet, host, self.demand.resource_class, some)
        if not shortage.is_of_sums:
            if self.can(tree, sources):
                return []
            if found := overdrawn(self.fleet, tree, [some]):
                return found
        return shortage.reasons()

    def _of_units(self, findings: Findings) -> Callable[[int], list[Reason]]:
        def reasons(host: int) -> list[Reason]:
            demand = self.demand
            numbers = self.of_tree(int(findings.hosts.trees[host])).numbers
            return reasons_of_units(
                self.fleet, demand.resource_class, demand.amount, demand.units, numbers
            )

        return reasons

    def lacks(self, tree: int, trait: int, required: Sequence[str]) -> Reason:
        """Return the reason that no provider has a required trait, by its number.

        If a provider has it, the reason has the other conditions too: on each provider, and the
        traits before it.
        """
        demand, host = self.demand, self.fleet.hosts[tree]
        amount, name = demand.amount, demand.resource_class
        hosts = HostSet(self.fleet, self.rules, integers([tree]))
        here = self.sources_on(hosts)
        able = ~demand.rows.is_part[here.pairs.entry]
        has = [flags[able] for flags in here.has_required[: trait + 1]]
        barred = [here.pairs.flags(flags)[able] for flags in demand.is_barred]
        is_allowed = bool((here.allowed & here.has_required[trait]).any())
        traits = range(trait + 1) if is_allowed else [trait]
        conditions = [(Rule.TRAIT_MISSING, required[number]) for number in traits]
        flags = [~has[number] for number in traits]
        found = excluded([*conditions, *demand.barriers], [*flags, *barred], amount, name, host)
        if found and (is_allowed or has[trait].any()):
            return found[0]
        if not is_allowed:
            return unmet(Rule.TRAIT_MISSING, required[trait], amount, name, host)
        words = in_words(conditions)
        numbers = (here.pairs.entry[here.allowed] + demand.rows.first).tolist()
        holders = self.fleet.holders(numbers)
        return Reason(Rule.TRAITS_AT_ONCE, amount, 0, 0, name, host, holders, unit=words)


# --- units that are asked for by name ---


def having_free(fleet: Fleet, rows: ClassRows, units: Sequence[str]) -> Booleans:
    """Return which inventories of a class are at providers where none of some units is taken."""
    if not units:
        return np.ones(len(rows.provider), dtype=np.bool_)
    return ~np.isin(rows.provider, list(fleet.units.taken(units)))


def reasons_of_units(
    fleet: Fleet, name: str, amount: int, units: Sequence[str], inventories: Sequence[int]
) -> list[Reason]:
    """Return which of the units asked for are taken of some inventories, and who has them."""
    taken = fleet.units.taken(units)
    found: dict[Reason, None] = {}
    for number in inventories:
        place = int(fleet.inventories.provider[number])
        if place in taken:
            unit, consumer = taken[place]
            reason = Reason(
                Rule.UNIT_TAKEN,
                amount,
                bound=0,
                used=1,
                resource=name,
                where=fleet.names[place],
                holders=((consumer, 1),),
                unit=unit,
            )
            found[reason] = None
    return list(found)
