"""Reasons of requests of which each class can be provided, but not all of them together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from resource_objects.exceptions import SearchLimitReached
from resource_objects.reasons import Reason
from resource_objects.resources.budget import Budget
from resource_objects.search.demands import LocatedTreeDemand, Placing, TreeDemand, members
from resource_objects.search.fleet import Fleet
from resource_objects.search.placements import no_placement, placements
from resource_objects.search.tree_solver import PATIENCE, TreeSolver, may_provide


def overdrawn(
    fleet: Fleet,
    tree: int,
    classes: Sequence[TreeDemand],
    located: Sequence[LocatedTreeDemand] = (),
) -> list[Reason]:
    """Return the inventories that are used too much if each class is provided as if alone.

    Empty if some class cannot be provided even so, or the decision takes too long.
    """
    used: Counter[int] = Counter()
    users: Counter[int] = Counter()
    try:
        for demand in classes:
            alone = dataclasses.replace(demand, draws=(), with_trait=())
            found = next(TreeSolver(fleet, tree, Budget(PATIENCE), [alone]).solutions(), None)
            if found is None:
                return []
            for source, part in found.parts[0]:
                drawn = dict(demand.drawn(source, part))
                used.update(drawn)
                users.update(drawn.keys())
        if located:
            assigned = Placing(located).fit([one.allowed for one in located], Budget(PATIENCE))
            if assigned is None:
                return []
            for one, amount in zip(located, assigned, strict=True):
                uses = one.uses(amount)
                used.update(uses)
                users.update(uses.keys())
    except SearchLimitReached:
        return []
    full = [n for n in sorted(used) if users[n] > 1 and used[n] > fleet.left(n)]
    if full and fleet.shares:
        reason = _without_placements(fleet, tree, classes)
        if reason is not None:
            return [reason]
    return [_is_full(fleet, number, used[number]) for number in full]


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
            beside = [(fleet.class_of(one.numbers[0]), one.amount) for one in profiles]
            host = fleet.hosts[tree]
            return no_placement(fleet, host, demand.amount, inventories, free, beside)
        profiles.append(demand)
    return None


def _most_next_to(fleet: Fleet, tree: int, others: Sequence[TreeDemand], demand: TreeDemand) -> int:
    """Return the largest amount of a demand that can be provided next to others."""
    least, too_much = 0, demand.amount
    while too_much - least > 1:
        amount = (least + too_much) // 2
        if may_provide(fleet, tree, [*others, dataclasses.replace(demand, amount=amount)]):
            least = amount
        else:
            too_much = amount
    return least


def _is_full(fleet: Fleet, inventory: int, amount: int) -> Reason:
    rows = fleet.inventories
    return Reason(
        fleet.rule_of([inventory]),
        amount,
        bound=int(rows.capacity[inventory]),
        used=int(rows.used[inventory]),
        resource=fleet.class_of(inventory),
        where=fleet.names[int(rows.provider[inventory])],
        holders=fleet.holders([inventory]),
    )
