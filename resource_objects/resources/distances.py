"""Sets of host cells, ordered by the total distance between their cells."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

#: The distance between each two cells, by their positions.
DistanceTable: TypeAlias = tuple[tuple[int, ...], ...]
#: The distance between cells that the firmware does not describe: larger than any other.
_UNKNOWN = 1 << 32
#: The maximum number of sets to sort. Eight of sixteen cells are 12,870 sets.
_MOST_SETS = 1 << 14


def distance_table(
    cells: Sequence[int], distances: Mapping[int, Mapping[int, int]]
) -> DistanceTable | None:
    """Return the distances between cells, None if all are equal.

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


@functools.lru_cache(maxsize=512)  # each fit calls it, for the few models of a fleet
def _table(
    cells: tuple[int, ...], distances: tuple[tuple[tuple[int, int], ...], ...]
) -> DistanceTable | None:
    rows = [dict(pairs) for pairs in distances]
    if not any(rows):
        return None

    def distance(source: int, target: int) -> int:
        if source == target:
            return 0
        forth, back = rows[source].get(cells[target]), rows[target].get(cells[source])
        if forth is None or back is None:
            either = back if forth is None else forth
            return 2 * (_UNKNOWN if either is None else either)
        return forth + back

    positions = range(len(cells))
    table = tuple(tuple(distance(source, target) for target in positions) for source in positions)
    distinct = {entry for source, row in enumerate(table) for entry in row[source + 1 :]}
    return table if len(distinct) > 1 else None


def total_distance(table: DistanceTable, positions: Sequence[int]) -> int:
    """Return the sum of the distances between each two of some cells."""
    return sum(table[first][second] for first, second in itertools.combinations(positions, 2))


@functools.lru_cache(maxsize=128)  # for the few models of a fleet
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
