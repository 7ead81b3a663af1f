"""What is near what, the naive way: for each candidate there is, of how many places it is.

It shares no code with the search. Counts alone: what says where it goes, and host cells that
discovery found, have tests of their own.
"""

from __future__ import annotations

import math

from tests.support.columns import Kept
from tests.support.enumerator import Found


def place_of(kept: Kept, number: int, trait: str) -> int | None:
    """Return the nearest provider with a trait, from one upwards; None if it is in no place.

    Where a tree has one such place, all that is neither its root nor above the place is there.
    """
    for above in kept.above(number):
        if trait in kept.rows[above].traits:
            return above
    tree = kept.tree(kept.root(number))
    places = [one for one in tree if trait in kept.rows[one].traits]
    is_whole = kept.rows[number].parent is None
    if len(places) != 1 or is_whole or number in kept.above(places[0]):
        return None
    return places[0]


def bound(kept: Kept, host: str, trait: str) -> set[str]:
    """Return the classes that a host keeps in some place."""
    (root,) = (number for number in kept.roots() if kept.rows[number].name == host)
    return {
        name
        for number in kept.tree(root)
        if place_of(kept, number, trait) is not None
        for name in kept.rows[number].stocks
    }


def places_of(kept: Kept, found: Found, trait: str) -> float:
    """Return of how many places a candidate is; infinite if not all that is bound is in one."""
    (root,) = (number for number in kept.roots() if kept.rows[number].name == found.host)
    number_of = {row.uuid: row.number for row in kept.rows.values()}
    classes = bound(kept, found.host, trait)
    places: set[int] = set()
    for uuid, name, _ in found.allocations:
        number = number_of[uuid]
        if name in classes:
            place = place_of(kept, number, trait)
            if place is None or kept.root(number) != root:
                return math.inf
            places.add(place)
    return len(places) or math.inf
