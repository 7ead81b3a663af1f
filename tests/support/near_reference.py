"""What is near what, the naive way: for each candidate there is, of how many places it is.

It shares no code with the search. Counts alone: what says where it goes, and host cells that
discovery found, have tests of their own.
"""

from __future__ import annotations

import math

from tests.support.columns import Kept
from tests.support.enumerator import Found


def place_of(stored: Kept, number: int, trait: str) -> int | None:
    """Return the nearest provider with a trait, from one upwards; None if it is in no place.

    Where a tree has one such place, all that is neither its root nor above the place is there.
    """
    for above in stored.above(number):
        if trait in stored.rows[above].traits:
            return above
    tree = stored.tree(stored.root(number))
    places = [item for item in tree if trait in stored.rows[item].traits]
    is_whole = stored.rows[number].parent is None
    if len(places) != 1 or is_whole or number in stored.above(places[0]):
        return None
    return places[0]


def bound(stored: Kept, host: str, trait: str) -> set[str]:
    """Return the classes that a host keeps in some place."""
    (root,) = (number for number in stored.roots() if stored.rows[number].name == host)
    return {
        name
        for number in stored.tree(root)
        if place_of(stored, number, trait) is not None
        for name in stored.rows[number].stocks
    }


def places_of(stored: Kept, result: Found, trait: str) -> float:
    """Return of how many places a candidate is; infinite if not all that is bound is in one."""
    (root,) = (number for number in stored.roots() if stored.rows[number].name == result.host)
    number_of = {row.uuid: row.number for row in stored.rows.values()}
    classes = bound(stored, result.host, trait)
    places: set[int] = set()
    for uuid, name, _ in result.allocations:
        number = number_of[uuid]
        if name in classes:
            place = place_of(stored, number, trait)
            if place is None or stored.root(number) != root:
                return math.inf
            places.add(place)
    return len(places) or math.inf
