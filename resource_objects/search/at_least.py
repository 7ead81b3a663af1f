"""Necessary conditions on located amounts, over the whole fleet at once.

A kind may tell what each part that an amount is on has to have left at least. Then a tree needs as
many parts with that much as there are such; equal ones are counted together. Or it tells what all
parts together have to have left: so many devices of a class, whichever give them. Of devices there
have to be as many as are asked for, whatever they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from resource_objects.resources import resource
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.located import LocatedAsk

#: What one part has to have, for each way in which parts are kept.
_Need = tuple[tuple[tuple[str, int], ...], ...]


def enough(ask: LocatedAsk, trees: int, trait: int | None = None) -> Booleans:
    """Return, by tree, whether it seems to have the parts that an amount needs.

    :param trait: number of a required trait that these must have, None for none
    """
    able = ask.allowed if trait is None else ask.allowed & ask.has_required[trait]
    needs = _needs(ask)
    found: Booleans = _count(ask, able, trees) >= max(1, needs.total())
    free: dict[str, Integers] = {}
    for need, count in needs.items():
        found &= _count(ask, able & _having(ask, need, free), trees) >= count
    for name, count in ask.amount.of_parts.items():
        found &= _sum(ask, (name,), able, trees) >= count
    if resource(ask.resource_class).inventory_kind.of_devices:
        every = {name for shape in ask.parts.shapes for name in shape}
        found &= _sum(ask, every, able, trees) >= ask.amount.pieces
    return found


def _sum(ask: LocatedAsk, names: Iterable[str], parts: Booleans, trees: int) -> Integers:
    """Return how much of some classes some parts of each tree have left together."""
    found = np.zeros(trees, dtype=np.int64)
    for name in names:
        np.add.at(found, ask.parts.tree, np.where(parts, _free(ask, name).clip(0), 0))
    return found


def _needs(ask: LocatedAsk) -> Counter[_Need]:
    """Return what the parts have to have, and how many of them so much."""
    by_shape = [ask.amount.at_least(classes) for classes in ask.parts.shapes]
    return Counter(
        tuple(tuple(sorted(counts.items())) for counts in one)
        for one in zip(*by_shape, strict=True)
    )


def _having(ask: LocatedAsk, need: _Need, free: dict[str, Integers]) -> Booleans:
    """Return which parts have so much left; ``free`` remembers what each has."""
    parts = ask.parts
    found = np.ones(len(parts.provider), dtype=np.bool_)
    for shape, counts in enumerate(need):
        here = parts.shape == shape
        for name, count in counts:
            if name not in free:
                free[name] = _free(ask, name)
            found &= ~here | (free[name] >= count)
    return found


def _free(ask: LocatedAsk, name: str) -> Integers:
    """Return what each part has left of a class, 0 where it has no such inventory."""
    rows, wanted = ask.fleet.rows(name), ask.parts.provider
    found = np.zeros(len(wanted), dtype=np.int64)
    if len(rows.provider):
        at = np.minimum(rows.provider.searchsorted(wanted), len(rows.provider) - 1)
        there = rows.provider[at] == wanted
        found[there] = rows.free[at[there]]
    return found


def _count(ask: LocatedAsk, parts: Booleans, trees: int) -> Integers:
    """Return how many of some parts each tree has."""
    return np.bincount(ask.parts.tree[parts], minlength=trees)


def of_host(ask: LocatedAsk) -> Mapping[str, tuple[int, Booleans]]:
    """Return, by class, how much is given by a host, and which of its inventories may give it.

    By the host as a whole, or by its parts together. Flags are parallel to the inventories of the
    class.
    """
    providers = ask.parts.provider[ask.allowed]
    return {
        name: (count, np.isin(ask.fleet.rows(name).provider, providers))
        for name, count in {**ask.amount.of_host, **ask.amount.of_parts}.items()
    }
