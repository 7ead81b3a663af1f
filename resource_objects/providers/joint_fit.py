"""Assignment of several placed resources of one tree at once: cells, and devices near them.

:mod:`resource_objects.resources.located` makes the decision, for the search, for claims and for
inventories without a ledger. This module converts views to its arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from resource_objects import exceptions, fields
from resource_objects.providers.composite import LocatedView, at_host
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount, Inventory, located
from resource_objects.resources.context import ChosenCells, Context
from resource_objects.resources.located import Affine, cell_map_of


def fit_together(
    amounts: Mapping[str, Amount],
    views: Mapping[str, LocatedView],
    within: Mapping[str, Collection[int]] = fields.FrozenDict(),
    retained: Mapping[str, Amount] = fields.FrozenDict(),
) -> dict[str, Amount]:
    """Return the assigned amounts that are feasible at the same time. The views do not change.

    :param amounts: by resource; each has a view
    :param views: all resources of the tree: those that are not requested are left to others
    :param within: by resource, positions of the parts that may be used; absent for all
    :param retained: assigned amounts of other resources that the consumer has in the tree: the
        requested amounts have to be near these
    :raises CapacityException: with reasons that name the host
    :raises ForeignAmount: if an amount is assigned to parts that do not exist here
    :raises SearchLimitReached: if the budget was exhausted before the result was known
    """
    inventories: dict[str, Inventory] = {name: view.inventory for name, view in views.items()}
    for name, amount in retained.items():
        inventories[name] = inventories[name].without(amount)
    ids: dict[str, list[int]] = {}
    for name, positions in within.items():
        part_ids = views[name].inventory.part_ids()
        ids[name] = [part_ids[position] for position in sorted(positions)]
    requested = {**amounts, **retained}
    try:
        assigned = located.fit_together(requested, inventories, within=ids)
    except exceptions.CapacityException as refusal:
        more = _affinity_reasons(requested, inventories, ids, refusal)
        raise at_host((*refusal.reasons, *more), views[next(iter(amounts))].host) from refusal
    for name, positions in within.items():
        _check_within(views[name], assigned[name], positions)
    return {name: assigned[name] for name in amounts}


def _affinity_reasons(
    amounts: Mapping[str, Amount],
    inventories: Mapping[str, Inventory],
    within: Mapping[str, Collection[int]],
    refusal: exceptions.CapacityException,
) -> Iterator[Reason]:
    """Yield why no host cell that all amounts are near has capacity, if affinity was refused.

    Each amount is feasible individually, but the cells near enough may be allocated to others. One
    guest cell on such a host cell is enough, so their number is no reason.
    """
    base = next((name for name in amounts if cell_map_of(inventories[name]) is not None), None)
    if base is None or amounts[base].is_assigned:
        return
    if any(reason.rule is not Rule.AFFINITY for reason in refusal.reasons):
        return
    cells = cell_map_of(inventories[base])
    assert cells is not None, "the base has cells"
    constraints = [
        constraint
        for name, amount in amounts.items()
        if name != base
        and isinstance(inventory := inventories[name], Affine)
        and (constraint := inventory.affinity(amount, cells, within.get(name))) is not None
    ]
    allowed = within.get(base, cells.sockets)
    try:
        near = [
            cell
            for cell in cells.sockets
            if cell in allowed and all(constraint.is_met([cell]) for constraint in constraints)
        ]
        if near:
            inventories[base].fit(amounts[base], None, Context(allowed=near))
    except exceptions.CapacityException as more:
        of_all = (Rule.HOST_CELLS, Rule.TOGETHER)
        yield from (reason for reason in more.reasons if reason.rule not in of_all)
    except exceptions.SearchLimitReached:
        return


def _check_within(view: LocatedView, assigned: Amount, positions: Collection[int]) -> None:
    """Raise CapacityException if the caller assigned an amount to parts that may not be used."""
    used = {position for position, _ in view.inventory.to_allocations(assigned)}
    if not used.issubset(positions):
        allowed, name = len(used.intersection(positions)), view.shape.resource.name
        raise exceptions.CapacityException(
            [Reason(Rule.HOST_CELLS, len(used), allowed, 0, name, view.host)]
        )


def chosen_cells(
    amounts: Mapping[str, Amount], views: Mapping[str, LocatedView]
) -> ChosenCells | None:
    """Return the host cells of the first assigned amount that has cells, None without one."""
    for name, amount in amounts.items():
        cells = cell_map_of(views[name].inventory) if name in views else None
        if cells is not None and amount.is_assigned:
            return ChosenCells(cells, amount.host_cells)
    return None


def in_dependency_order(kinds: Iterable[str], views: Mapping[str, LocatedView]) -> list[str]:
    """Return resources with host cells first: the others may have to be near these."""
    return sorted(
        kinds, key=lambda name: name not in views or cell_map_of(views[name].inventory) is None
    )
