"""The column ``numa_topology``: kept as it came (``_compute_kept``), or the cells as they are now.

What is written is in the version that was read, if that can say it, else in the newest. Nova has no
word for distances between cells: they stay with the node and are left out of the column.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Self

from resource_objects import exceptions, fields
from resource_objects.host._compute_kept import KeptColumn, KeptValue, Versions, document, refuse
from resource_objects.host._compute_located import NUMA, Content, Figures, figures_of
from resource_objects.interop.nova.host_topology import (
    dump_host_numa_topology,
    load_host_numa_topology,
)
from resource_objects.resources.numa import CellUsage, HostCell, NUMATopologyInventory

COLUMN = "numa_topology"

_LEFT_OUT = ("distances",)


class Topology(KeptColumn[Content]):
    """What the column says: as it came, or the cells with what is used of them now."""

    @classmethod
    def of(cls, inventory: NUMATopologyInventory) -> Self:
        """Return the topology of an inventory."""
        return cls(now=(inventory.cells, inventory.usage))

    def become(self, cells: tuple[HostCell, ...], usage: tuple[CellUsage, ...]) -> Topology:
        """Return the topology that is like this now, to be written in the version of this one."""
        return Topology(self._origin, (cells, usage), vars(self).get("versions"))

    @functools.cached_property
    def figures(self) -> Figures:
        """What the cells come to."""
        return figures_of(*(self.content or ((), ())))

    def inventory(
        self, cpu_ratio: Decimal | int = 1, memory_ratio: Decimal | int = 1
    ) -> NUMATopologyInventory:
        """Return an inventory of the cells, which there have to be."""
        assert self.content is not None, "there are cells"
        cells, usage = self.content
        return NUMATopologyInventory(
            cells,
            usage=usage,
            cpu_ratio=cpu_ratio,
            memory_ratio=memory_ratio,
            resource_class=NUMA,
        )

    def _read(self, raw: Any) -> Content | None:
        return read_content(raw)

    def _written(self, now: Content) -> str:
        return written(self.inventory(), self.versions)

    def to_primitive(self) -> Any:
        """Return what goes to a wire instead of the column, None where the column does."""
        if self.now is None:
            return None
        said = None if self.versions is None else dict(self.versions)
        return {"topology": self.inventory().obj_to_primitive(), "versions": said}

    @classmethod
    def from_primitive(cls, primitive: Mapping[str, Any]) -> Self:
        """Return the topology of its wire form."""
        inventory = NUMATopologyInventory.obj_from_primitive(primitive["topology"])
        return cls(None, (inventory.cells, inventory.usage), primitive["versions"])


class TopologyColumn(KeptValue):
    """The column: whatever a row holds, or an inventory of the cells."""

    KIND = Topology
    WORD = "topology"

    def coerce(self, obj: Any, attr: str, value: Any) -> Topology:
        if isinstance(value, Topology):
            return value
        if isinstance(value, NUMATopologyInventory):
            check_sayable(value)
            return Topology.of(value)
        return Topology(super().coerce(obj, attr, value))

    def describe(self) -> str:
        return f"a NUMATopologyInventory, {super().describe()}"


class TopologyColumnField(fields.Field[Any]):
    """The column ``numa_topology``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(TopologyColumn(), nullable=True, **kwargs)


def check_sayable(inventory: NUMATopologyInventory) -> None:
    """Refuse cells that no version of the column can say.

    :raises InvalidInventory: for CPUs that are taken by number only
    """
    for used in inventory.usage:
        if used.loose:
            raise exceptions.InvalidInventory(
                f"CPUs of cell {used.cell} taken by number only",
                used.loose,
                "0: the column says which are taken",
            )


# --- reading and writing the column -------------------------------------------------------------


def read_content(raw: Any) -> Content | None:
    """Return the cells that a column says, None if it says that there are none.

    Cost: 0.2 milliseconds for 8 cells; nothing for a text that was read before.

    :raises InvalidRow: if it cannot be read
    """
    if raw == "" or raw == b"":
        return None
    try:
        return _read(raw)
    except exceptions.InvalidInput as error:
        if _has_no_cells(raw):
            return None
        refuse(COLUMN, error)


@functools.lru_cache(maxsize=256)
def _read(raw: Any) -> Content:
    found = load_host_numa_topology(raw)
    return found.cells, found.usage


def _has_no_cells(raw: Any) -> bool:
    found = document(raw)
    inside = found.get("nova_object.data", found) if isinstance(found, Mapping) else None
    return isinstance(inside, Mapping) and inside.get("cells") == []


def written(inventory: NUMATopologyInventory, versions: Versions | None) -> str:
    """Return the text of a topology, in some versions if they can say it, else in the newest.

    :raises CannotDowngrade: if the newest cannot say it either
    """
    if versions is not None:
        try:
            return dump_host_numa_topology(inventory, versions, leave_out=_LEFT_OUT)
        except exceptions.CannotDowngrade:
            pass  # such as the CPUs that are taken, in a version from before there was pinning
    return dump_host_numa_topology(inventory, leave_out=_LEFT_OUT)
