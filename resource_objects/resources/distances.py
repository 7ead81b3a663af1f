"""Sets of host cells in the order of the distances between their cells."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

#: The distance of each cell from each other cell, by their positions.
DistanceTable: TypeAlias = tuple[tuple[int, ...], ...]
#: The distance of two cells that no firmware table describes: farther than any other.
_UNKNOWN = 1 << 32
#: More sets than this are not sorted. Eight of sixteen cells are 12,870 sets.
_MOST_SETS = 1 << 14


def distance_table(
    cells: Sequence[int], distances: Mapping[int, Mapping[int, int]]
) -> DistanceTable | None:
    """Return the distances between cells, None if all pairs are equally far apart.

    A distance that is specified in one direction only is valid for both. Where the directions
    differ, the sum of both counts, so each entry is twice the mean. An unspecified distance counts
    as farther than any other.

    :param cells: ids
    :param distances: by cell id, then cell id; both levels may be incomplete

    >>> distance_table([0, 1, 2], {0: {1: 21, 2: 11}, 1: {2: 21}})
    ((0, 42, 22), (42, 0, 42), (22, 42, 0))
    """
    if len(cells) < 3:
        return None
    return _table(tuple(cells), tuple([tuple(distances.get(cell, {}).items()) for cell in cells]))


@functools.lru_cache(maxsize=512)  # every fit asks, and the machines of a fleet are of few models
def _table(
    cells: tuple[int, ...], given: tuple[tuple[tuple[int, int], ...], ...]
) -> DistanceTable | None:
    rows = [dict(pairs) for pairs in given]
    if not any(rows):
        return None
    known = [[row.get(cell) for cell in cells] for row in rows]
    table = tuple(
        tuple(0 if at == to else _both_ways(there, known[to][at]) for to, there in enumerate(row))
        for at, row in enumerate(known)
    )
    between = {apart for at, row in enumerate(table) for apart in row[at + 1 :]}
    return table if len(between) > 1 else None


def _both_ways(there: int | None, back: int | None) -> int:
    if there is None or back is None:
        one_way = back if there is None else there
        return 2 * (_UNKNOWN if one_way is None else one_way)
    return there + back


def total_distance(table: DistanceTable, positions: Sequence[int]) -> int:
    """Return the sum of the distances between each two of some cells."""
    return sum(table[one][other] for one, other in itertools.combinations(positions, 2))


@functools.lru_cache(maxsize=128)  # the machines of a fleet are of few models
def sets_by_distance(
    table: DistanceTable, count: int
) -> tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]:
    """Return the sets of ``count`` positions, grouped by total distance, the closest first.

    The result is an empty tuple above 16,384 sets, which are too many to sort.

    >>> sets_by_distance(((0, 42, 22), (42, 0, 42), (22, 42, 0)), 2)
    ((22, ((0, 2),)), (42, ((0, 1), (1, 2))))
    """
    if math.comb(len(table), count) > _MOST_SETS:
        return ()
    groups: dict[int, list[tuple[int, ...]]] = {}
    for positions in itertools.combinations(range(len(table)), count):
        groups.setdefault(total_distance(table, positions), []).append(positions)
    return tuple((distance, tuple(groups[distance])) for distance in sorted(groups))
