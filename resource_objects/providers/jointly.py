"""Several amounts that lie over one tree, decided at once: cells, devices near them (D13). Pure.

What is decided is decided by :mod:`resource_objects.resources.together`, for the search, for claims
and for who has only the inventories at hand (law 5); here views become what it asks for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

from resource_objects import exceptions, fields
from resource_objects.exceptions import Reason, Rule
from resource_objects.providers.located import Located, Near
from resource_objects.resources import Amount, Inventory, together

_NOTHING: Mapping[str, object] = fields.FrozenDict()


def fit(
    asked: Mapping[str, Amount],
    views: Mapping[str, Located],
    within: Mapping[str, Collection[int]] = _NOTHING,  # type: ignore[assignment]  # it is empty
    held: Mapping[str, Amount] = _NOTHING,  # type: ignore[assignment]
) -> dict[str, Amount]:
    """Return the assigned amounts: where all of them would go together. Nothing changes.

    :param asked: by resource; each has a view
    :param views: what lies over the tree, also what is not asked for: it is left to others
    :param within: by resource, places of the spots that may be used; absent is all
    :param held: other resources that who asks holds there already, assigned: what is asked has to
        be near these
    :raises CapacityException: with reasons that name the host
    :raises ForeignAmount: if something is assigned to what is not here
    :raises SearchLimitReached: if the budget ran out before it was known
    """
    inventories: dict[str, Inventory] = {name: view.inventory for name, view in views.items()}
    for name, amount in held.items():
        inventories[name] = inventories[name].without(amount)
    ids = {name: _ids(views[name], places) for name, places in within.items()}
    try:
        found = together.fit({**asked, **held}, inventories, within=ids)
    except exceptions.CapacityException as refusal:
        more = _on_cells_near({**asked, **held}, inventories, ids, refusal)
        reasons = (*refusal.reasons, *more)
        raise _at_host(reasons, views[next(iter(asked))].host) from refusal
    for name, places in within.items():
        _check_within(views[name], found[name], places)
    return {name: found[name] for name in asked}


def _at_host(reasons: Iterable[Reason], host: str) -> exceptions.CapacityException:
    """Return a refusal whose reasons say where."""
    return exceptions.CapacityException.of(
        dataclasses.replace(reason, where=reason.where or host) for reason in reasons
    )


def _on_cells_near(
    asked: Mapping[str, Amount],
    inventories: Mapping[str, Inventory],
    within: Mapping[str, Collection[int]],
    refusal: exceptions.CapacityException,
) -> Iterator[Reason]:
    """Yield what stands against host cells that all would be near to, if that is why it is refused.

    Each could be had by itself; the cells that are near enough may be what others hold.
    """
    base = next((name for name in asked if inventories[name].all_cells() is not None), None)
    if base is None or asked[base].is_assigned:
        return
    if any(reason.rule is not Rule.AFFINITY for reason in refusal.reasons):
        return
    cells = inventories[base].all_cells()
    assert cells is not None, "it has some"
    nears = [
        near
        for name, amount in asked.items()
        if name != base
        and (near := inventories[name].near_within(amount, cells, within.get(name))) is not None
    ]
    some = within.get(base, cells.sockets)
    try:
        able = [c for c in cells.sockets if c in some and all(near.is_met([c]) for near in nears)]
        if able:
            inventories[base].fit_within(asked[base], able)
    except exceptions.CapacityException as more:
        yield from more.reasons
    except exceptions.SearchLimitReached:
        return


def _ids(view: Located, places: Iterable[int]) -> list[int]:
    ids = view.inventory.part_ids()
    return [ids[place] for place in sorted(places)]


def _check_within(view: Located, found: Amount, places: Collection[int]) -> None:
    """Refuse what was assigned already to parts that may not be used."""
    used = {place for place, _ in view.inventory.spread(found)}
    if not used.issubset(places):
        there, name = len(used.intersection(places)), view.resource.name
        raise exceptions.CapacityException.of(
            [Reason(Rule.HOST_CELLS, len(used), there, 0, name, view.host)]
        )


def near_to(amounts: Mapping[str, Amount], views: Mapping[str, Located]) -> Near | None:
    """Return the host cells that some assigned amounts are on, None if none is on any."""
    for name, amount in amounts.items():
        cells = views[name].inventory.all_cells() if name in views else None
        if cells is not None and amount.is_assigned:
            return Near(cells, amount.host_cells)
    return None


def cells_first(kinds: Iterable[str], views: Mapping[str, Located]) -> list[str]:
    """Return resources in an order in which what is near something comes after it."""
    return sorted(
        kinds, key=lambda name: name not in views or views[name].inventory.all_cells() is None
    )
