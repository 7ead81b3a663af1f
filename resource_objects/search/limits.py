"""Limits in a search: what a scheduler allows to be used in all of some inventories.

A fleet under limits is one in which these inventories have no more than that: whatever decides by
figures, over arrays or on one tree, so decides within them. What is left of an inventory that lies
over a tree is worked out of rows, where as much counts as in use as the limit holds back
(:meth:`.Views.holding_back`). A refusal names the limit, not the capacity
(:meth:`.Fleet.rule_of`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

import numpy as np

from resource_objects import exceptions
from resource_objects.providers.orders import Totals
from resource_objects.search.arrays import frozen, integers
from resource_objects.search.fleet import Fleet


def uuids_in(fleet: Fleet, keys: Collection[str]) -> dict[str, str]:
    """Return the uuids of providers that are named by name or uuid. Cost: linear in the fleet.

    :raises ProviderNotFound: if one is not there
    """
    wanted = set(keys)
    found = {
        key: uuid
        for name, uuid in zip(fleet.names, fleet.uuids, strict=True)
        for key in (name, uuid)
        if key in wanted
    }
    for key in keys:
        if key not in found:
            raise exceptions.ProviderNotFound(key)
    return found


def under(fleet: Fleet, limits: Totals) -> Fleet:
    """Return a fleet of whose inventories no more may be used than limits say.

    Of what is not there a limit bounds nothing. Cost: linear in the providers, and three copies of
    a column of all inventories.
    """
    kept = fleet.inventories
    lower = {
        number: total
        for number, total in _numbered(fleet, limits)
        if total < int(kept.capacity[number])
    }
    if not lower:
        return fleet
    numbers = integers(sorted(lower))
    capacity, free, high = kept.capacity.copy(), kept.free.copy(), kept.high.copy()
    held_back = capacity[numbers] - integers([lower[number] for number in numbers.tolist()])
    capacity[numbers] -= held_back
    sources = {source for number in lower for source, _ in fleet.shares.into(number)}
    touched = integers(sorted(sources.union(lower)))
    free[touched] = fleet.shares.left_of(touched, capacity, kept.used)
    step = kept.step_size[touched]
    high[touched] = np.minimum(free[touched], kept.max_unit[touched]) // step * step
    rows = dataclasses.replace(
        kept, capacity=frozen(capacity), free=frozen(free), high=frozen(high)
    )
    places = kept.provider[numbers].tolist()
    back: dict[int, dict[tuple[int, str], int]] = {}
    for place, number, count in zip(places, numbers.tolist(), held_back.tolist(), strict=True):
        back.setdefault(fleet.true_tree(place), {})[place, fleet.class_of(number)] = count
    return dataclasses.replace(
        fleet,
        inventories=rows,
        classes={
            name: rows.part(slice(one.first, one.first + len(one.tree)))
            for name, one in fleet.classes.items()
        },
        views=fleet.views.holding_back(back),
        limited=frozenset(lower),
    )


def _numbered(fleet: Fleet, limits: Totals) -> Iterator[tuple[int, int]]:
    """Yield the inventories that limits are of, by number, with their totals."""
    wanted = {uuid for uuid, _ in limits}
    places = {uuid: place for place, uuid in enumerate(fleet.uuids) if uuid in wanted}
    for (uuid, name), total in limits.items():
        number = fleet.number(places[uuid], name) if uuid in places else None
        if number is not None:
            yield number, total
