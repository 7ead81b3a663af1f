"""Which host cells are taken first: documented orders, not a global optimum (D13).

============  =====================================================================================
``SPREAD``    the cell with the most free: dedicated CPUs (shared ones if none is asked for), then
              memory. Source: Nova's default
``PACK``      the cell with the least free that will do, in the same figures
``FEWEST``    cells that somebody uses already before empty ones, so that the fewest are opened;
              then as PACK
``NEAREST``   cells near each other: from each cell in turn, those next to it by distance, as SPREAD
              where equal; of these choices the one with the least distance in all
============  =====================================================================================

Equal cells come by id. Whether devices in a cell draw a request there or keep it away comes before
all of that (:meth:`Order.to_devices`, :meth:`Order.off_devices`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from resource_objects import exceptions, fields
from resource_objects.resources.numa.cells import Cell

_STRATEGIES = ("spread", "pack", "fewest", "nearest")
#: What counts as the distance of cells that do not say: farther than any that can be said.
UNKNOWN_DISTANCE = fields.MAX_AMOUNT


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """A way to choose among host cells that will do.

    >>> Order("pack").to_devices({1: 4}).ranking_hint
    'pack, cells with devices first'
    """

    strategy: str = "spread"
    devices: tuple[tuple[int, int], ...] | None = None  #: (cell id, free devices)
    wants_devices: bool = True

    def __post_init__(self) -> None:
        if self.strategy not in _STRATEGIES:
            raise exceptions.InvalidInput(
                "order", self.strategy, f"one of {', '.join(_STRATEGIES)}"
            )

    def to_devices(self, devices: Mapping[int, int]) -> Order:
        """Return the order that prefers cells with devices, those with the most first."""
        return dataclasses.replace(self, devices=_counts(devices), wants_devices=True)

    def off_devices(self, devices: Mapping[int, int]) -> Order:
        """Return the order that leaves cells with devices to those who need them."""
        return dataclasses.replace(self, devices=_counts(devices), wants_devices=False)

    @property
    def ranking_hint(self) -> str:
        """The order in words."""
        if self.devices is None:
            return self.strategy
        return f"{self.strategy}, cells {'with' if self.wants_devices else 'without'} devices first"

    @property
    def is_nearest(self) -> bool:
        """Whether distances count."""
        return self.strategy == "nearest"

    def rank(self, cells: Sequence[Cell], dedicated: bool) -> list[int]:
        """Return the places of cells, the best first.

        :param dedicated: whether dedicated CPUs are asked for
        """
        devices = dict(self.devices or ())
        keys = [self._key(cell, dedicated, devices.get(cell.facts.id, 0)) for cell in cells]
        return sorted(range(len(cells)), key=keys.__getitem__)

    def _key(self, cell: Cell, dedicated: bool, devices: int) -> tuple[int, ...]:
        free = cell.free_dedicated if dedicated else cell.free_shared
        drawn = -devices if self.wants_devices else devices
        if self.strategy in ("spread", "nearest"):
            return drawn, -free, -cell.available_mb, cell.facts.id
        opened = self.strategy == "fewest" and cell.is_empty
        return drawn, opened, free, cell.available_mb, cell.facts.id


def _counts(devices: object) -> tuple[tuple[int, int], ...]:
    """Return free devices by cell id, as they are kept.

    :raises InvalidInput: if they are none
    """
    is_plain = isinstance(devices, Mapping) and all(
        type(number) is int and number >= 0 for pair in devices.items() for number in pair
    )
    if not is_plain or not isinstance(devices, Mapping):
        raise exceptions.InvalidInput("devices", devices, "{cell id: free devices}")
    return tuple(sorted(devices.items()))


SPREAD = Order("spread")
PACK = Order("pack")
FEWEST = Order("fewest")
NEAREST = Order("nearest")


def distance(one: Cell, other: Cell) -> int:
    """Return the distance from one cell to another."""
    return one.facts.distances.get(other.facts.id, UNKNOWN_DISTANCE)


def apart(cells: Sequence[Cell]) -> int:
    """Return the distances between all pairs of cells, summed both ways."""
    return sum(distance(one, other) for one in cells for other in cells if one is not other)
