"""Limits in a search: what a scheduler allows to be used in all of some inventories.

A fleet under limits is one in which these inventories have no more than that: whatever decides by
figures, over arrays or on one tree, so decides within them. What is left of an inventory that lies
over a tree is worked out of rows, where as much counts as in use as the limit holds back
(:meth:`.Views.holding_back`). A refusal names the limit, not the capacity
(:meth:`.Fleet.rule_of`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from resource_objects import exceptions
from resource_objects.providers.orders import UseLimits
from resource_objects.search.arrays import Integers, integers
from resource_objects.search.fleet import Fleet, with_capacity


def uuids_in(fleet: Fleet, keys: Iterable[str]) -> dict[str, str]:
    """Return the uuids of providers that are named by name or uuid.

    :raises NotFound: if one is not there
    """
    found: dict[str, str] = {}
    for key in keys:
        place = fleet.place_by_key.get(key)
        if place is None:
            raise exceptions.NotFound("provider", key)
        found[key] = fleet.uuids[place]
    return found


def under(fleet: Fleet, limits: UseLimits) -> Fleet:
    """Return a fleet of whose inventories no more may be used than limits say.

    Of what is not there a limit bounds nothing. Cost: some passes over the inventories, and half a
    microsecond for each limit; nothing where there are none.
    """
    if not limits:
        return fleet
    kept = fleet.inventories
    numbers, totals = _numbered(fleet, limits)
    is_lower = totals < kept.capacity[numbers]
    if not is_lower.any():
        return fleet
    numbers, totals = numbers[is_lower], totals[is_lower]
    lowered = (kept.capacity[numbers] - totals).tolist()
    limited = dict(zip(numbers.tolist(), lowered, strict=True))
    return with_capacity(fleet, numbers, totals, limited=limited)


def _numbered(fleet: Fleet, limits: UseLimits) -> tuple[Integers, Integers]:
    """Return the inventories that limits are of, by number, and what these allow."""
    by_class: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for (uuid, name), total in limits.items():
        place = fleet.place_by_key.get(uuid)
        if place is not None:
            by_class[name][0].append(place)
            by_class[name][1].append(total)
    numbers, allowed = [integers(())], [integers(())]
    for name, (places, totals) in by_class.items():
        rows, wanted = fleet.rows(name), integers(places)
        if len(rows.provider):
            at = np.minimum(rows.provider.searchsorted(wanted), len(rows.provider) - 1)
            there = rows.provider[at] == wanted
            numbers.append(at[there] + rows.first)
            allowed.append(integers(totals)[there])
    return np.concatenate(numbers), np.concatenate(allowed)
