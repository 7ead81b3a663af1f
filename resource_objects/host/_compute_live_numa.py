"""The cells of a compute node, live: genuine inventories, whose changes the node's columns follow.

As in ``_compute_live``: what is copied, pickled or sent is a plain inventory and belongs to nobody.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.host._compute_live import LiveInventory
from resource_objects.host._compute_located import NUMA, said_by
from resource_objects.host._compute_numa import Topology
from resource_objects.resources import Amount, IntegerInventory
from resource_objects.resources.numa import (
    OF_HOST,
    SPREAD,
    NUMATopologyAmount,
    NUMATopologyInventory,
    Order,
)
from resource_objects.resources.together import Cells, Near


class CellOwner(Protocol):
    """Whose cells they are."""

    def _place(self, assigned: NUMATopologyAmount, live: NUMATopologyInventory) -> None:
        """Write what was taken of the cells, or given back, into the columns."""

    def _state_cells(self, live: NUMATopologyInventory) -> None:
        """Write cells, and what somebody states is used of them, into the columns."""

    def _free_of(self, resource_class: str) -> int | None:
        """Return what the host has left of a class, None if it does not count it."""

    def _not_located(self, resource_class: str) -> int:
        """Return how much was taken by number and is in no cell, as far as it is this view's."""

    def _not_taken(self, amount: NUMATopologyAmount) -> tuple[Reason, ...]:
        """Return why what is given back cannot have been taken, as far as columns tell."""

    def _devices_beside(self, cells: Cells) -> tuple[Near, ...]:
        """Return what the devices need of host cells that were just taken for whom asks now."""


class LiveTopology(NUMATopologyInventory):
    """The cells of a compute node: the node's columns follow them.

    Asked alone, it locates counts that this view took by themselves before (D1), and takes those
    that were not: they are implied. What else it takes of the host it books there too: CPUs left
    empty, and memory that a request for pages of any size found in ordinary ones.
    """

    _owner: CellOwner | None = None

    @classmethod
    def obj_name(cls) -> str:
        """Return the wire name of a plain inventory."""
        return NUMATopologyInventory.obj_name()

    @classmethod
    def made(
        cls, topology: Topology, ratios: tuple[Decimal, Decimal], owner: CellOwner
    ) -> LiveTopology:
        """Return the live inventory of a node's topology."""
        assert topology.content is not None, "there are cells"
        cells, usage = topology.content
        live = cls(
            cells, usage=usage, cpu_ratio=ratios[0], memory_ratio=ratios[1], resource_class=NUMA
        )
        live.obj_reset_changes()
        live._owner = owner
        return live

    def mirror(self, topology: Topology, ratios: tuple[Decimal, Decimal]) -> None:
        """Take over the cells of the node, which knows them already."""
        assert topology.content is not None, "there are cells"
        figures = (self.cells, self.usage, self.cpu_ratio, self.memory_ratio)
        if figures != (*topology.content, *ratios):
            cells, usage = topology.content
            super().update(cells=cells, usage=usage, cpu_ratio=ratios[0], memory_ratio=ratios[1])
        self.obj_reset_changes()

    def leave(self) -> None:
        """Belong to nobody: the node does not have cells any more, nothing fits."""
        self._owner = None

    # --- asking and taking ---

    def fit(
        self,
        amount: Amount,
        limit: Amount | None = None,
        *,
        order: Order = SPREAD,
        within: Collection[int] | None = None,
    ) -> NUMATopologyAmount:
        """Return where ``amount`` would go, beside the counts that were taken for it already."""
        room, owner = self._left(), self._owner
        if isinstance(amount, NUMATopologyAmount) and not amount.is_negative and owner is not None:
            for name, said in said_by(amount).items():
                if name in room:
                    room[name] += min(said, owner._not_located(name))
        return self._fit(amount, limit, room, order, within)

    def _least_room(self, room: Mapping[str, int]) -> Mapping[str, int] | None:
        """Return what the host as a whole has left, beside the counts of the node."""
        left = self._left()
        narrowed = {name: min(free, left.get(name, free)) for name, free in room.items()}
        return super()._least_room(narrowed)

    def _left(self) -> dict[str, int]:
        """Return what the host as a whole has left."""
        if self._owner is None:
            return {}
        found = ((name, self._owner._free_of(name)) for name in OF_HOST)
        return {name: free for name, free in found if free is not None}

    def _fit(
        self,
        amount: Amount,
        limit: Amount | None,
        room: Mapping[str, int] | None,
        order: Order,
        within: Collection[int] | None,
        nears: Sequence[Near] = (),
    ) -> NUMATopologyAmount:
        owner = self._owner
        if owner is not None and isinstance(amount, Amount) and not amount.is_negative:
            nears = (*nears, *owner._devices_beside(self.all_cells()))
        assigned = super()._fit(amount, limit, room, order, within, nears)
        reasons = (
            (Reason(Rule.NO_INVENTORY, len(assigned.cells), 0, 0, NUMA),)
            if owner is None
            else owner._not_taken(assigned)
        )
        if reasons:
            raise exceptions.CapacityException.of(reasons)
        return assigned

    def _take(self, assigned: Amount) -> None:
        super()._take(assigned)
        if self._owner is None or not isinstance(assigned, NUMATopologyAmount):
            return
        try:
            self._owner._place(assigned, self)
        except BaseException:
            super()._take(-assigned)
            raise

    def update(self, **values: Any) -> bool:
        """State other cells, or what is used of them; return whether anything changed.

        :raises FrozenValue: for ratios and room, which are the node's
        :raises InvalidInventory: if they contradict each other, or the node cannot have them
        """
        for name in values:
            if name not in ("cells", "usage"):
                raise exceptions.FrozenValue(f"{NUMA} {name} follows the compute node")
        before = dict(self.__dict__)
        self._changed_fields = set(self._changed_fields)
        changed = super().update(**values)
        try:
            if self._owner is not None:
                self._owner._state_cells(self)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return changed

    # --- being one that is plain to others ---

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NUMATopologyInventory):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> NUMATopologyInventory:  # type: ignore[override]
        twin = NUMATopologyInventory(**dict(self._set_fields()))
        twin._reset_to(set(self._changed_fields))
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copy.copy, (copy.deepcopy(self),)

    def __repr__(self) -> str:
        return repr(copy.deepcopy(self))


class LiveCPUs(LiveInventory):
    """The dedicated CPUs of a compute node as a count: there are as many as its cells have."""

    def update(self, **values: Any) -> bool:
        """Set what is used; return whether anything changed.

        :raises FrozenValue: for the rest, which follows the cells
        """
        for name in values:
            if name != "used":
                raise exceptions.FrozenValue(f"{self.name} {name} follows the cells")
        return super().update(**values)

    def mirror(self, figures: IntegerInventory) -> None:
        """Take over the figures of the node, which knows them already."""
        IntegerInventory.update(self, **dict(figures._set_fields()))
        self.obj_reset_changes()


__all__ = ["CellOwner", "LiveCPUs", "LiveTopology"]
