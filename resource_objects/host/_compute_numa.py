"""The column ``numa_topology``: kept as it came, read when asked, written when asked.

Reading a row must not pay for a topology that nobody asks about, and what nobody changed must come
back as it was. So the record holds a :class:`Topology`: a value that knows the column as it was
read, or the cells with what is used of them now, and makes either from the other when asked.

What is written is in the version that was read, if that can say it, else in the newest. Nova has no
word for distances between cells: they stay with the node and are left out of the column.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Self, TypeAlias

from resource_objects import exceptions, fields
from resource_objects.exceptions import InvalidRow
from resource_objects.host._compute_columns import CarriedValue
from resource_objects.host._compute_located import NUMA, Content, Figures, figures_of
from resource_objects.interop.nova.host_topology import (
    dump_host_numa_topology,
    load_host_numa_topology,
)
from resource_objects.resources.numa import CellUsage, HostCell, NUMATopologyInventory

COLUMN = "numa_topology"

#: ``{name of Nova's object: version}``
Versions: TypeAlias = Mapping[str, str]

_LEFT_OUT = ("distances",)


class Topology:
    """What the column says: as it came, or the cells as they are now. A value: not changed.

    Equal where cells and what is used of them are.
    """

    def __init__(
        self, origin: Any = None, now: Content | None = None, versions: Versions | None = None
    ) -> None:
        self._origin = origin
        self.now = now
        if versions is not None:
            self.versions = versions

    @classmethod
    def of(cls, inventory: NUMATopologyInventory) -> Self:
        """Return the topology of an inventory."""
        return cls(now=(inventory.cells, inventory.usage))

    def become(self, cells: tuple[HostCell, ...], usage: tuple[CellUsage, ...]) -> Topology:
        """Return the topology that is like this now, to be written in the version of this one."""
        return Topology(self._origin, (cells, usage), vars(self).get("versions"))

    @functools.cached_property
    def content(self) -> Content | None:
        """The cells and what is used of them, None if the column says that there are none.

        :raises InvalidRow: if the column cannot be read
        """
        return read_content(self._origin) if self.now is None else self.now

    @functools.cached_property
    def versions(self) -> Versions | None:
        """The versions that the column was read in, None for the newest."""
        return None if self._origin is None else versions_in(self._origin)

    @functools.cached_property
    def column(self) -> Any:
        """What the column holds.

        :raises CannotDowngrade: if no version can say it
        """
        if self.now is None:
            return self._origin
        text = written(self.inventory(), self.versions)
        return text.encode() if isinstance(self._origin, bytes) else text

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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        if self.now is None and other.now is None:
            return _is_same(self._origin, other._origin)
        return bool(self._known() == other._known())

    __hash__ = None  # type: ignore[assignment]  # what it is equal to may have to be read first

    def _known(self) -> Any:
        try:
            return self.content
        except InvalidRow:
            return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        return repr(self._origin) if self.now is None else f"Topology{self.now!r}"


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) and type(one) is type(other)


class TopologyColumn(CarriedValue):
    """The column: whatever a row holds, or an inventory of the cells."""

    def coerce(self, obj: Any, attr: str, value: Any) -> Topology:
        if isinstance(value, Topology):
            return value
        if isinstance(value, NUMATopologyInventory):
            check_sayable(value)
            return Topology.of(value)
        return Topology(super().coerce(obj, attr, value))

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        kept = vars(obj)[f"_obj_{attr}"]  # the value may be the column already
        said = kept.to_primitive()
        return super().to_primitive(obj, attr, kept.column) if said is None else said

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if isinstance(value, dict) and "topology" in value:
            return Topology.from_primitive(value)
        return super().from_primitive(obj, attr, value)

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
        place = error.what.removeprefix(COLUMN).lstrip(".")
        expected = f"{error.expected} ({place})" if place else error.expected
        raise InvalidRow(COLUMN, error.value, expected) from error


@functools.lru_cache(maxsize=256)
def _read(raw: Any) -> Content:
    found = load_host_numa_topology(raw)
    return found.cells, found.usage


def _document(raw: Any) -> Mapping[str, Any]:
    """Return what is in a topology's text, bare of its envelope; empty if it cannot be read."""
    try:
        found = json.loads(raw)
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _has_no_cells(raw: Any) -> bool:
    found = _document(raw)
    inside = found.get("nova_object.data", found)
    return isinstance(inside, Mapping) and inside.get("cells") == []


def versions_in(raw: Any) -> Versions | None:
    """Return the newest version of each of Nova's objects in a column, None for plain dicts."""
    found: dict[str, tuple[int, ...]] = {}
    for name, version in _versioned(_document(raw)):
        numbers = tuple(int(part) for part in version.split("."))
        found[name] = max(numbers, found.get(name, numbers))
    return {name: ".".join(map(str, numbers)) for name, numbers in found.items()} or None


def _versioned(value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _versioned(item)
    elif isinstance(value, Mapping):
        if "nova_object.name" in value:
            yield value["nova_object.name"], value["nova_object.version"]
        for item in value.values():
            yield from _versioned(item)


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
