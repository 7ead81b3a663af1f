"""The reasons that take the figures of single inventories, on one tree.

:class:`Shortage` is about one class of which some sources provide too little. :func:`overdrawn` is
about classes that can be provided one by one, and not together. :func:`full` is the reason that
both have in common.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from resource_objects.exceptions import SearchLimitReached
from resource_objects.providers.holders import by_amount
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.backtracking import Budget
from resource_objects.search.demands import LocatedTreeDemand, Placing, TreeDemand, members
from resource_objects.search.fleet import Fleet
from resource_objects.search.placements import no_placement, placements
from resource_objects.search.tree_solver import PATIENCE, TreeSolver, may_provide


def figures_of(fleet: Fleet, inventories: list[int]) -> dict[str, Any]:
    """Return the capacity, or the limit, of inventories, their use and their consumers.

    :return: fields of a reason; inventories are numbers
    """
    rows = fleet.inventories
    return {
        "rule": fleet.rule_of(inventories),
        "bound": sum(rows.capacity[inventories].tolist()),
        "used": sum(rows.used[inventories].tolist()),
        "holders": fleet.holders(inventories),
    }


def full(fleet: Fleet, host: str, requested: int, inventories: list[int]) -> Reason:
    """Return the reason that too little of some inventories of a class is free together.

    It names the provider if they are at one, else the host.
    """
    providers = set(fleet.inventories.provider[inventories].tolist())
    return Reason(
        requested=requested,
        resource=fleet.class_of(inventories[0]),
        where=fleet.names[providers.pop()] if len(providers) == 1 else host,
        **figures_of(fleet, inventories),
    )


@dataclasses.dataclass(eq=False)
class Shortage:
    """Why some inventories, at least one, cannot provide an amount of a class.

    The figures are sums over these inventories. If the sum is enough, but no inventory can provide
    the whole amount, the reason is about the inventory with the most; of pools, which never add up,
    always. If an inventory has enough, but an inventory that it uses through shares has not, the
    reason is about the latter and all its consumers. If both have enough, it is about a unit rule.
    """

    fleet: Fleet
    host: str
    resource: str
    amount: int
    inventories: list[int]
    devices: Collection[int] = ()  #: the inventories that may provide parts of it together
    _: dataclasses.KW_ONLY
    is_pooled: bool  #: whether the tree itself has no inventory of the class
    names_provider: bool = False  #: whether the reason names even the only provider

    def __post_init__(self) -> None:
        fleet, numbers = self.fleet, self.inventories
        self._devices = [number for number in numbers if number in self.devices]
        free = fleet.inventories.free[numbers].clip(0).tolist()
        #: by inventory, the free amount; and the same without regard to shares
        self._free: dict[int, int] = dict(zip(numbers, free, strict=True))
        self._unshared = self._free
        if fleet.has_shares:
            self._unshared = {n: max(0, fleet.left(n)) for n in numbers}
        #: whether the sum is too little: then no search is needed
        self.is_of_sums = sum(free) < self.amount

    def reasons(self) -> list[Reason]:
        """Return the reasons, at least one."""
        nearest = self._nearest(self.inventories)
        if self.is_of_sums:
            if not self.is_pooled and self._are_partly_used():
                return [self._not_whole()]
            return self._full([nearest] if self.is_pooled else self.inventories)
        most, together = self._free[nearest], self._sum(self._devices)
        if together >= self.amount and (nearest in self._devices or most < self.amount):
            is_several = len(self._devices) > 1
            return [self._unit_rule_of_devices() if is_several else self._unit_rule(nearest)]
        if most >= self.amount:
            return [self._unit_rule(nearest)]
        return self._full(self._devices if together > most else [nearest])

    def _nearest(self, numbers: Iterable[int]) -> int:
        return max(numbers, key=lambda number: (self._free[number], -number))

    def _sum(self, numbers: Iterable[int]) -> int:
        return sum(self._free[number] for number in numbers)

    # --- devices that are used in parts ---

    def _are_partly_used(self) -> bool:
        """Return True for several devices of which others have allocated parts.

        A device in parts uses all of some slices of its own provider, and nothing else. The reason
        about a single device has its slices.
        """
        fleet, rows = self.fleet, self.fleet.inventories
        is_used = False
        for number in self.inventories:
            if rows.capacity[number] != 1 or number not in self._devices:
                return False
            for target, factor in fleet.shares.of(number):
                is_slice = rows.provider[target] == rows.provider[number]
                if not is_slice or rows.capacity[target] != factor:
                    return False
            is_used = is_used or (self._free[number] == 0 and fleet.left(number) > 0)
        return is_used and len(self.inventories) > 1

    def _not_whole(self) -> Reason:
        """Return the reason with the consumers of the devices and of parts of them."""
        fleet, provider = self.fleet, self.fleet.inventories.provider
        whole = [number for number in self.inventories if fleet.left(number) <= 0]
        parts = [
            (consumer, int(provider[number]), part)
            for number in self.inventories
            if number not in whole
            for consumer, part in self._parts_of(number).items()
        ]
        total = defaultdict[str, Fraction](Fraction)
        for consumer, _, part in parts:
            total[consumer] += part
        parts.sort(key=lambda item: by_amount((item[0], total[item[0]])))
        return Reason(
            Rule.NOT_WHOLE,
            self.amount,
            bound=len(self.inventories),
            used=len(self.inventories) - self._sum(self.inventories),
            resource=self.resource,
            where=self.host,
            holders=fleet.allocations.holders(
                (int(provider[number]), self.resource, 1) for number in whole
            ),
            parts=tuple(
                (consumer, fleet.names[place], part.numerator, part.denominator)
                for consumer, place, part in parts
            ),
        )

    def _parts_of(self, number: int) -> dict[str, Fraction]:
        """Return the part of a device that each consumer has: the largest over its slices."""
        fleet = self.fleet
        largest: dict[str, Fraction] = {}
        for target, _ in fleet.shares.of(number):
            for consumer, amount in fleet.holders([target]):
                part = Fraction(amount, int(fleet.inventories.capacity[target]))
                largest[consumer] = max(part, largest.get(consumer, part))
        return largest

    # --- capacity ---

    def _full(self, numbers: list[int]) -> list[Reason]:
        """Return that inventories are full, or others that they use through shares."""
        fleet, amount, free, unshared = self.fleet, self.amount, self._free, self._unshared
        is_limited = fleet.rule_of(numbers) is Rule.LIMIT
        if fleet.has_shares and not is_limited and placements(fleet)[numbers].all():
            return [no_placement(fleet, self.host, amount, numbers, self._sum(numbers))]
        is_short = sum(unshared[number] for number in numbers) < amount
        reasons = [self._capacity(numbers)] if is_short else []
        nearest = self._nearest(numbers)
        if is_short or all(number in self._devices for number in numbers):
            # What the others cannot provide has to come from those that have less through shares:
            # from all of them or, if these have that much, from the one that lacks most.
            limited = [number for number in numbers if free[number] < unshared[number]]
            most = sorted(limited, key=lambda number: (free[number] - unshared[number], number))[:1]
            for sources in (limited, most):
                needed = amount - self._sum(numbers) + self._sum(sources)
                if is_short:
                    needed = min(needed, sum(unshared[number] for number in sources))
                shared = self._full_through_shares(sources, needed)
                if all(reason.requested > reason.free for reason in shared):
                    # other devices that are allocated whole would do as well as the limited ones
                    if not is_short:
                        allocated = [n for n in numbers if not unshared[n] and fleet.holders([n])]
                        reasons += [self._capacity([number]) for number in allocated]
                    return reasons + shared or [self._capacity([nearest])]
        elif free[nearest] < unshared[nearest]:
            reasons += self._full_through_shares([nearest], amount)
        return reasons or [self._capacity([nearest])]

    def _full_through_shares(self, numbers: Sequence[int], amount: int) -> list[Reason]:
        """Return the inventories used by others that have too little for an amount of these."""
        fleet = self.fleet
        by_class: dict[tuple[str, int, int], dict[int, None]] = {}
        for number in numbers:
            for target, factor in fleet.shares.of(number):
                if fleet.left(target) < amount * factor:
                    # those of several sources are one reason; those of one are a reason each
                    key = fleet.class_of(target), factor, -1 if len(numbers) > 1 else target
                    by_class.setdefault(key, {})[target] = None
        return [
            full(fleet, self.host, amount * factor, list(targets))
            for (_, factor, _), targets in by_class.items()
        ]

    def _capacity(self, numbers: list[int]) -> Reason:
        figures, where = figures_of(self.fleet, numbers), self._where(numbers)
        return Reason(requested=self.amount, resource=self.resource, where=where, **figures)

    # --- unit rules ---

    def _unit_rule(self, number: int) -> Reason:
        """Return the unit rule by which an inventory with enough does not provide the amount."""
        rows = self.fleet.inventories
        if self.amount < rows.min_unit[number]:
            return self._reason(Rule.MIN_UNIT, int(rows.min_unit[number]), [number])
        if self.amount > rows.max_unit[number]:
            return self._reason(Rule.MAX_UNIT, int(rows.max_unit[number]), [number])
        return self._reason(Rule.STEP_SIZE, int(rows.step_size[number]), [number])

    def _unit_rule_of_devices(self) -> Reason:
        """Return the unit rule by which devices with enough do not provide the amount together."""
        rows, devices = self.fleet.inventories, self._devices
        most = sum(np.minimum(rows.free[devices], rows.max_unit[devices]).clip(0).tolist())
        least = [unit for unit in rows.min_unit[devices].tolist() if unit > 1]
        steps: list[int] = rows.step_size[devices].tolist()
        if most < self.amount:
            return self._reason(Rule.MAX_UNIT, most, devices)
        if self.amount % math.gcd(*steps):
            return self._reason(Rule.STEP_SIZE, math.gcd(*steps), devices)
        if least:
            return self._reason(Rule.MIN_UNIT, min(least), devices)
        if self.amount % max(steps) == 0:  # the free amounts are no multiples of the steps
            usable = sum(rows.high[devices].clip(0).tolist())
            return self._reason(Rule.IN_STEPS, usable, devices)
        return self._reason(Rule.STEP_SIZE, max(steps), devices)

    def _reason(self, rule: Rule, bound: int, numbers: list[int]) -> Reason:
        used = sum(self.fleet.inventories.used[numbers].tolist())
        return Reason(rule, self.amount, bound, used, self.resource, self._where(numbers))

    def _where(self, numbers: list[int]) -> str:
        is_one_of_several = self.is_pooled or len(self.inventories) > 1
        if len(numbers) > 1 or not (self.names_provider or is_one_of_several):
            return self.host
        return self.fleet.names[int(self.fleet.inventories.provider[numbers[0]])]


def reasons_of_units(
    fleet: Fleet, resource: str, amount: int, units: Sequence[str], inventories: Sequence[int]
) -> list[Reason]:
    """Return the requested units that are already allocated, with their consumers."""
    taken = fleet.units.allocated(units)
    places = dict.fromkeys(fleet.inventories.provider[list(inventories)].tolist())
    return [
        Reason(
            *(Rule.UNIT_TAKEN, amount, 0, 1, resource, fleet.names[place]),
            holders=((consumer, 1),),
            unit=unit,
        )
        for place in places
        if place in taken
        for unit, consumer in [taken[place]]
    ]


# --- several classes ------------------------------------------------------------------------------


def overdrawn(
    fleet: Fleet,
    tree: int,
    classes: Sequence[TreeDemand],
    located: Sequence[LocatedTreeDemand] = (),
) -> list[Reason]:
    """Return the inventories that are used too much if each class is provided individually.

    Empty if some class cannot be provided even so, or the decision takes too long.
    """
    uses: list[Mapping[int, int]] = []
    try:
        for demand in classes:
            individual = dataclasses.replace(demand, shared_uses={}, with_trait=())
            solver = TreeSolver(fleet, tree, Budget(PATIENCE), [individual])
            solution = next(solver.solutions(), None)
            if solution is None:
                return []
            uses += [dict(demand.uses(source, part)) for source, part in solution.parts[0]]
        if located:
            assigned = Placing(located).fit(
                [placed.allowed for placed in located], Budget(PATIENCE)
            )
            if assigned is None:
                return []
            pairs = zip(located, assigned, strict=True)
            uses += [placed.uses(amount) for placed, amount in pairs]
    except SearchLimitReached:
        return []
    used, users = Counter[int](), Counter(itertools.chain.from_iterable(uses))
    for amounts in uses:
        used.update(amounts)
    overfull = [n for n in sorted(used) if users[n] > 1 and used[n] > fleet.left(n)]
    if overfull and fleet.has_shares:
        reason = _without_placements(fleet, tree, classes)
        if reason is not None:
            return [reason]
    return [full(fleet, fleet.hosts[tree], used[number], [number]) for number in overfull]


def _without_placements(fleet: Fleet, tree: int, classes: Sequence[TreeDemand]) -> Reason | None:
    """Return the reason that the placements of partitions exclude each other, if that is so.

    It is about the first profile that cannot be provided next to those before it.
    """
    profiles: list[TreeDemand] = []
    for demand in classes:
        inventories = [demand.numbers[place] for place in members(demand, demand.allowed)]
        if not placements(fleet)[inventories].all():
            continue
        if not may_provide(fleet, tree, [*profiles, demand]):
            free = _most_next_to(fleet, tree, profiles, demand)
            requested = [(fleet.class_of(p.numbers[0]), p.amount) for p in profiles]
            host = fleet.hosts[tree]
            return no_placement(fleet, host, demand.amount, inventories, free, requested)
        profiles.append(demand)
    return None


def _most_next_to(
    fleet: Fleet, tree: int, profiles: Sequence[TreeDemand], demand: TreeDemand
) -> int:
    """Return the largest amount of a demand that can be provided next to other profiles."""
    least, too_much = 0, demand.amount
    while too_much - least > 1:
        amount = (least + too_much) // 2
        if may_provide(fleet, tree, [*profiles, dataclasses.replace(demand, amount=amount)]):
            least = amount
        else:
            too_much = amount
    return least
