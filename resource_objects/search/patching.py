"""Other figures in the place of old ones, where nothing but the use of some trees has changed.

Copied are what is used, what is free and the most that one part may take; everything else, which is
nearly all, belongs to both fleets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from resource_objects.search import holders
from resource_objects.search.arrays import Integers, frozen
from resource_objects.search.fleet import ClassRows, Fleet

#: What of an inventory depends on what is used.
_FIGURES = ("used", "free", "high")
#: What of an inventory does not, apart from its place.
_RULES = (
    *("capacity", "min_unit", "max_unit", "step_size", "low"),
    *("is_below", "is_single", "is_part"),
)
#: What of a fleet is worked out when it is first asked for, and does not depend on use.
_WORKED_OUT = ("roots", "kin", "listed", "_starts")


def patched(old: Fleet, new: Fleet, trees: Integers) -> Fleet | None:
    """Return a fleet with some trees as a new one has them, None if their definitions differ.

    :param new: a fleet of these trees only
    :param trees: their numbers in the old one, in order

    Cost: three copies of a column of all inventories; comparing is linear in the trees.
    """
    places = _ranges(old.tree, trees)
    numbers = _same(old, new, places, trees)
    if numbers is None:
        return None
    inventories = _with_figures(old.inventories, new.inventories, numbers)
    classes = {
        name: inventories.part(slice(rows.first, rows.first + len(rows.tree)))
        for name, rows in old.classes.items()
    }
    found = dataclasses.replace(
        old,
        inventories=inventories,
        classes=old.classes if inventories is old.inventories else classes,
        allocations=old.allocations.changed(_rows(new.allocations, places)),
        units=old.units.changed(_rows(new.units, places)),
        views=old.views.changed(new.views, trees.tolist()),
    )
    found.__dict__.update({n: old.__dict__[n] for n in _WORKED_OUT if n in old.__dict__})
    return found


def _with_figures(old: ClassRows, new: ClassRows, numbers: Integers) -> ClassRows:
    given = {name: getattr(new, name) for name in _FIGURES}
    changed: dict[str, Any] = {}
    for name, values in given.items():
        column = getattr(old, name)
        if not np.array_equal(column[numbers], values):
            changed[name] = column.copy()
            changed[name][numbers] = values
            frozen(changed[name])
    return dataclasses.replace(old, **changed) if changed else old


def _rows(new: holders.Rows, places: Integers) -> Mapping[int, tuple[holders.Row, ...]]:
    """Return the rows of the new trees by the old places, also where there are none."""
    at = places.tolist()
    found: dict[int, tuple[holders.Row, ...]] = dict.fromkeys(at, ())
    for provider, rows in holders.by_provider(new.all()).items():
        found[at[provider]] = rows
    return found


# --- are the definitions the same -----------------------------------------------------------------


def _same(old: Fleet, new: Fleet, places: Integers, trees: Integers) -> Integers | None:
    """Return the old numbers of the new inventories, None if the definitions differ.

    Generations alone would not do: somebody may have removed a provider and made it again.
    """
    if len(places) != len(new.names):
        return None
    at = places.tolist()
    same = (
        [old.names[place] for place in at] == list(new.names)
        and [old.uuids[place] for place in at] == list(new.uuids)
        and np.array_equal(old.generation[places], new.generation)
        and np.array_equal(old.parent[places], places[new.parent])
        and _same_members(old.traits, new.traits, places, old.listed[0])
        and _same_members(old.aggregates, new.aggregates, places, old.listed[1])
        and _same_parts(old, new, places, trees)
    )
    return _same_inventories(old, new, places, trees) if same else None


def _same_members(
    old: Mapping[str, Integers], new: Mapping[str, Integers], places: Integers, listed: Integers
) -> bool:
    """Return whether the providers have the same traits, or are in the same aggregates.

    :param listed: how many each provider of the old fleet has
    """
    if int(listed[places].sum()) != sum(map(len, new.values())):
        return False
    return all(name in old and _are_in(old[name], places[some]) for name, some in new.items())


def _are_in(ordered: Integers, wanted: Integers) -> bool:
    at = np.minimum(ordered.searchsorted(wanted), len(ordered) - 1)
    return bool((ordered[at] == wanted).all())


def _same_parts(old: Fleet, new: Fleet, places: Integers, trees: Integers) -> bool:
    """Return whether the same kinds keep the same parts there."""
    for kind in old.views.parts.keys() | new.views.parts.keys():
        was, now = old.views.of(kind), new.views.of(kind)
        here = _ranges(was.tree, trees)
        if not np.array_equal(was.provider[here], places[now.provider]):
            return False
        shapes = [was.shapes[number] for number in was.shape[here].tolist()]
        if shapes != [now.shapes[number] for number in now.shape.tolist()]:
            return False
    return True


def _same_inventories(old: Fleet, new: Fleet, places: Integers, trees: Integers) -> Integers | None:
    """Return the old numbers of the new inventories, None if they or their shares differ."""
    found = [
        rows.first + here for rows in old.classes.values() if len(here := _ranges(rows.tree, trees))
    ]
    numbers = np.concatenate((np.zeros(0, dtype=np.int64), *found))
    was, now = old.inventories, new.inventories
    if len(numbers) != len(now.tree):
        return None
    named = [name for name, rows in old.classes.items() if len(_ranges(rows.tree, trees))]
    same = (
        named == list(new.classes)
        and np.array_equal(was.provider[numbers], places[now.provider])
        and all(np.array_equal(getattr(was, n)[numbers], getattr(now, n)) for n in _RULES)
        and _same_shares(old, new, numbers)
    )
    return numbers if same else None


def _same_shares(old: Fleet, new: Fleet, numbers: Integers) -> bool:
    if not old.shares and not new.shares:
        return True
    here = _ranges(old.shares.source, numbers)
    return (
        np.array_equal(old.shares.source[here], numbers[new.shares.source])
        and np.array_equal(old.shares.target[here], numbers[new.shares.target])
        and np.array_equal(old.shares.factor[here], new.shares.factor)
    )


def _ranges(ordered: Integers, values: Integers) -> Integers:
    """Return where some values stand in an array that is in order; they are in order themselves."""
    starts = ordered.searchsorted(values)
    counts = ordered.searchsorted(values, side="right") - starts
    ends = counts.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    found: Integers = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return found
