"""Units that are asked for by name: who has them gives them, unless somebody took them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans
from resource_objects.search.fleet import ClassRows, Fleet


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
