"""A kind that the library does not know: lamps, each next to a host cell, some wanted near.

And :class:`Scattered`, a condition on host cells that is hard; and how to ask for lamps.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import pytest

from resource_objects import base, fields
from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount, Inventory, placed
from resource_objects.resources.context import ANYWHERE, CellMap, Context
from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory, numa
from resource_objects.resources.placed import HasAffinity
from resource_objects.resources.records import AmountRecord, InventoryRecord
from tests.resources.numa.hosts import host, on, plain

LAMP = "CUSTOM_LAMP"
NUMA = "NUMA_TOPOLOGY"


@base.register
class LampAmount(Amount):
    """A number of lamps: next to the chosen host cells, or anywhere; assigned with their cells."""

    WIRE_PREFIX = "test_lamps"
    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "count": fields.integer(1, 999),
        "is_near": fields.boolean(default=True),
        "placed": fields.integer_pairs(default=()),
        "gives_back": fields.boolean(default=False),
    }
    count: int
    is_near: bool
    placed: tuple[tuple[int, int], ...]
    gives_back: bool

    def __init__(self, count: int, **words: Any) -> None:
        super().__init__(count=count, **words)

    @property
    def is_zero(self) -> bool:
        return False

    @property
    def is_negative(self) -> bool:
        return self.gives_back

    @property
    def is_assigned(self) -> bool:
        return bool(self.placed)

    @property
    def is_placed(self) -> bool:
        return True

    def __neg__(self) -> Self:
        return self.replace(gives_back=not self.gives_back)

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        return (AmountRecord(resource_class, self.count),)


class LampsNear:
    """The condition of lamps on host cells: a number of them next to these."""

    def __init__(self, free: Mapping[int, int], amount: LampAmount) -> None:
        self.counts = dict(amount.placed) if amount.is_assigned else dict(free)
        self.wanted = amount.count if amount.is_near else 0
        self.asked = 0  #: how often, for tests that count

    def is_met(self, cells: Collection[int]) -> bool:
        self.asked += 1
        return sum(self.counts.get(cell, 0) for cell in cells) >= self.wanted

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        return frozenset(cell for cell, count in self.counts.items() if count) - frozenset(cells)

    def symmetry_key(self, cell: int) -> Hashable:
        return self.counts.get(cell, 0)


class CountedLamps(LampsNear):
    """The same, knowing how many host cells it takes."""

    def needed(self, cells: Collection[int], among: Collection[int]) -> int:
        lacking = self.wanted - sum(self.counts.get(cell, 0) for cell in cells)
        most_first = sorted((self.counts.get(cell, 0) for cell in among), reverse=True)
        for number, count in enumerate(most_first, 1):
            lacking -= count
            if lacking <= 0:
                return number
        return len(most_first) + 1


@base.register
class LampInventory(HasAffinity, Inventory):
    """Free lamps by host cell."""

    WIRE_PREFIX = "test_lamps"
    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {"free": fields.integer_pairs(default=())}
    free: tuple[tuple[int, int], ...]

    #: The constraint of lamps.
    near_kind: type[LampsNear] = LampsNear

    def __init__(self, free: Mapping[int, int], **figures: Any) -> None:
        super().__init__(free=dict(free), **figures)

    def fit(
        self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
    ) -> LampAmount:
        assert isinstance(amount, LampAmount)
        allowed = context.allowed
        free = [cell for cell, _ in self.free if allowed is None or cell in allowed]
        if context.chosen is None:
            return self._fit(amount, free)
        chosen = context.chosen.ids
        near = [cell for cell in free if cell in chosen]
        if not amount.is_near:
            return self._fit(amount, [*near, *(cell for cell in free if cell not in near)])
        counts = dict(amount.placed) or dict(self.free)
        existing = sum(counts.get(cell, 0) for cell in chosen if allowed is None or cell in allowed)
        if existing < amount.count:
            raise CapacityException([Reason(Rule.AFFINITY, amount.count, existing, 0, LAMP)])
        return self._fit(amount, near)

    def device_counts(self) -> Mapping[int, int]:
        return dict(self.free)

    def affinity(
        self, amount: Amount, cells: CellMap, allowed: Collection[int] | None = None
    ) -> LampsNear | None:
        assert isinstance(amount, LampAmount)
        free = {cell: count for cell, count in self.free if allowed is None or cell in allowed}
        return self.near_kind(free, amount)

    def _fit(self, amount: Amount, ids: Iterable[int]) -> LampAmount:
        assert isinstance(amount, LampAmount)
        free, missing, placed = dict(self.free), amount.count, []
        if amount.is_assigned:
            return amount
        for cell in ids:
            count = min(missing, free[cell])
            missing -= count
            placed += [(cell, count)] if count else []
        if missing:
            all_items = sum(free.values())
            raise CapacityException([Reason(Rule.CAPACITY, amount.count, all_items, 0, LAMP)])
        return amount.replace(placed=sorted(placed))

    def apply(self, assigned: Amount) -> None:
        assert isinstance(assigned, LampAmount)
        sign = 1 if assigned.gives_back else -1
        free = dict(self.free)
        for cell, count in assigned.placed:
            free[cell] += sign * count
        self.update(free=free)

    def to_records(self) -> tuple[InventoryRecord, ...]:
        raise NotImplementedError


class CountedLampInventory(LampInventory):
    """Free lamps by host cell; their condition computes the number of host cells that it takes."""

    near_kind = CountedLamps

    @classmethod
    def obj_name(cls) -> str:
        return LampInventory.obj_name()


class Anywhere:
    """A constraint that every cell meets, and that prefers some cells."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self.counts = counts

    def is_met(self, cells: Collection[int]) -> bool:
        return True

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        return frozenset()

    def symmetry_key(self, cell: int) -> Hashable:
        return None


class Scattered:
    """A number of colours, of which each cell has some: a cover, which is hard in general."""

    counts: Mapping[int, int] = {}

    def __init__(self, colours: int, of_cell: Sequence[Collection[int]]) -> None:
        self._colours, self._of_cell = frozenset(range(colours)), of_cell

    def _missing(self, cells: Collection[int]) -> frozenset[int]:
        return self._colours.difference(*(self._of_cell[cell] for cell in cells))

    def is_met(self, cells: Collection[int]) -> bool:
        return not self._missing(cells)

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        missing = min(self._missing(cells))
        return frozenset(c for c, several in enumerate(self._of_cell) if missing in several)

    def symmetry_key(self, cell: int) -> Hashable:
        return frozenset(self._of_cell[cell])


def hard() -> tuple[NUMATopologyInventory, NUMATopologyAmount, Scattered]:
    """Return forty colours of which each of 64 cells has four, and a topology of eleven cells."""
    chance = random.Random(0)
    colours = Scattered(40, [chance.sample(range(40), 4) for _ in range(64)])
    return host(*(plain(i, [i]) for i in range(64))), numa(11, dedicated=11), colours


# --- asking ---


def two_cpu_cells(count: int, **facts: Any) -> NUMATopologyInventory:
    """Return host cells of two CPUs each."""
    return host(*(plain(i, [2 * i, 2 * i + 1], **facts) for i in range(count)))


def decide(
    cells: NUMATopologyInventory,
    topology: NUMATopologyAmount,
    free: Mapping[int, int] | LampInventory,
    lamps: LampAmount | None,
    **how: Any,
) -> dict[str, Amount]:
    """Return the cells and lamps of both; the request does not change."""
    existing = free if isinstance(free, LampInventory) else LampInventory(free)
    request = {NUMA: topology, **({} if lamps is None else {LAMP: lamps})}
    before = copy.deepcopy((cells, existing, request))
    try:
        return placed.fit_together(request, {NUMA: cells, LAMP: existing}, **how)
    finally:
        assert (cells, existing, request) == before


def cells_of(result: Mapping[str, Amount]) -> list[int]:
    """Return the host cells, guest cell by guest cell."""
    topology = result[NUMA]
    assert isinstance(topology, NUMATopologyAmount)
    return on(topology)


def lamps_of(result: Mapping[str, Amount]) -> dict[int, int]:
    """Return the number of lamps by host cell."""
    lamps = result[LAMP]
    assert isinstance(lamps, LampAmount)
    return dict(lamps.placed)


def reasons(*args: Any, **how: Any) -> list[Reason]:
    """Return the reasons of a refusal."""
    with pytest.raises(CapacityException) as refusal:
        decide(*args, **how)
    return list(refusal.value.reasons)
