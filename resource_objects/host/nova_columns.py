"""Nova's formats of a host: ``numa_topology``, ``pci_stats``, rows, Nova's own object.

A text is parsed when the inventories are first requested, and a column whose content is unchanged
is the text of the row: reading a row costs little, and an unchanged row comes back as it was. A
changed column is written in the newest version of its format.

**numa_topology** has the cells and their usage. Nova has no field for the distances of cells: the
inventory retains them and the column lacks them. The cells also make an inventory of ``PCPU``,
their dedicated CPUs as a count, which no other column contains.

**pci_stats** counts free devices by kind and names none, so a row makes no inventory of devices:
the text is carried as it is (``load_pci_pools`` reads its counts). If a caller specifies an
inventory of devices, or a ledger has one, the column is written from it. Nova has no field for the
class code of a device, nor for our facts: they are left out.

Nova does not have to be installed: its object is recognized by its interface (``fields``,
``obj_attr_is_set``) and read field by field, so that an error names the field.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from oslo_serialization import jsonutils
from oslo_utils import timeutils

from resource_objects import exceptions
from resource_objects.exceptions import InvalidInput
from resource_objects.host.columns import (
    CARRIED,
    COUNTS,
    DERIVED,
    DISK_REPORT,
    CarriedValue,
    Column,
    NodeState,
    Settings,
    carried_field,
    coerced,
    columns,
    count_of,
)
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.pci_devices import (
    DevicePool,
    device_pools,
    dump_pci_pools,
    load_pci_pools,
)
from resource_objects.interop.nova.topologies import (
    dump_host_numa_topology,
    load_host_numa_topology,
)
from resource_objects.resources import IntegerInventory, Inventory
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    CellUsage,
    HostCell,
    NUMATopologyInventory,
)
from resource_objects.resources.numa.cells import KIB_PER_MIB
from resource_objects.resources.pci import DEVICES, DeviceUse, PCIInventory
from resource_objects.resources.pci.device import CLAIMED, SPENT

_TEXT = carried_field()
_CARRIED = CarriedValue()
_SOURCE = "a row of compute_nodes (a mapping), a nova.objects.ComputeNode or a ComputeNode"
_TARGET = "a row of compute_nodes (a mapping that can change) or a nova.objects.ComputeNode"

VCPU, PCPU, MEMORY = "VCPU", "PCPU", "MEMORY_MB"


class TextColumn(Column):
    """A column of text with a placed resource."""

    def check(self, row: Mapping[str, Any], settings: Settings) -> None:
        coerced(self.names[0], _TEXT, row)

    def content(self, text: Any) -> Any:
        """Return the content of a text, which :meth:`text` writes; empty if there is none.

        :raises InvalidInput: if it cannot be read
        """
        return None

    def content_or_none(self, text: Any) -> Any:
        """Return the content of a text, None if it cannot be read."""
        try:
            return self.content(text)
        except InvalidInput as error:
            if not error.is_about("row"):
                raise
            return None

    def without_inventory(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        """Return the column of a node that has no inventory of the resource.

        Where a ledger has none either, the column stays as it is in the record, unless this library
        has written it.
        """
        (column,) = self.names
        text = row.get(column)
        was_written = column in state.last_row and state.last_row[column] != text
        if was_written or (not state.of_ledger and self.content_or_none(text)):
            return {column: None}
        return {column: text} if column in row else {}


class NUMAColumn(TextColumn):
    """The cells of a host, with their usage."""

    resource = NUMA_TOPOLOGY.name
    names = ("numa_topology",)
    counts = (PCPU,)
    is_read_first = True

    def content(self, text: Any) -> tuple[tuple[HostCell, ...], tuple[CellUsage, ...]] | None:
        """Return the cells and their usage, None for no cells.

        Cost: 0.2 milliseconds for 8 cells; nothing for a text that was read before.
        """
        if text in (None, "", b""):
            return None
        try:
            return _load_cells(text)
        except InvalidInput as error:
            document = _document(text)
            if isinstance(document, Mapping):
                data = document.get("nova_object.data", document)
                if isinstance(data, Mapping) and data.get("cells") == []:
                    return None  # a topology without cells
            raise _unreadable("numa_topology", error) from error

    def read(
        self, row: Mapping[str, Any], settings: Settings, inventories: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        content = self.content(row.get(self.names[0]))
        if content is None:
            return {}
        ratios = [COUNTS[name].ratio_of(row, settings) for name in (VCPU, MEMORY)]
        return _with_cpus(_topology(*content, *ratios))

    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        (column,) = self.names
        topology, text = state.inventories.get(self.resource), row.get(column)
        if topology is None:
            return self.without_inventory(row, state)
        if self.content_or_none(text) == (topology.cells, topology.usage):
            return {column: text}
        written = dump_host_numa_topology(topology, leave_out=("distances",))
        return {column: _of_type(text, written)}

    def accept(
        self, inventory: Inventory, inventories: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if not isinstance(inventory, NUMATopologyInventory):
            raise exceptions.InvalidInventory(self.resource, inventory, "a NUMATopologyInventory")
        for used in inventory.usage:
            if used.loose:
                raise exceptions.InvalidInventory(
                    f"CPUs of cell {used.cell} allocated by number only",
                    used.loose,
                    "0: the column contains the ids of allocated CPUs",
                )
        if not inventory.cells:
            return {}
        ratios = (
            getattr(inventories.get(VCPU), "allocation_ratio", inventory.cpu_ratio),
            getattr(inventories.get(MEMORY), "allocation_ratio", inventory.memory_ratio),
        )
        return _with_cpus(_topology(inventory.cells, inventory.usage, *ratios))

    def new(self, inventory: Inventory, *, used: bool = False) -> Inventory:
        assert isinstance(inventory, NUMATopologyInventory)
        ratios = inventory.cpu_ratio, inventory.memory_ratio
        return _topology(inventory.cells, inventory.usage if used else (), *ratios)

    def close(self, inventory: Inventory) -> None:
        inventory.update(cells=(), usage=())

    def reserved_elsewhere(self, name: str, inventories: Mapping[str, Inventory]) -> int:
        """Return the memory in huge pages: only requests for pages get it."""
        topology = inventories.get(self.resource)
        if name != MEMORY or not isinstance(topology, NUMATopologyInventory):
            return 0
        pools = (pool for cell in topology.cells for pool in cell.huge_pages)
        return -(-sum(pool.total * pool.size_kib for pool in pools) // KIB_PER_MIB)

    def used_elsewhere(
        self, name: str, inventories: Mapping[str, Inventory], of_ledger: bool
    ) -> int:
        """Return the memory in used huge pages, or the dedicated vCPUs.

        Nova's record includes dedicated vCPUs, so those that were allocated since it was read are
        added. A ledger does not separate them from the CPUs of emulators and from those left empty:
        all dedicated CPUs in use are added.
        """
        topology = inventories.get(self.resource)
        if not isinstance(topology, NUMATopologyInventory):
            return 0
        if name == MEMORY:
            pages = (pages for cell in topology.usage for pages in cell.pages)
            return sum(size * count for size, count in pages) // KIB_PER_MIB
        if name != VCPU:
            return 0
        if of_ledger:
            cpus = count_of(inventories, PCPU)
            return 0 if cpus is None else cpus.used
        return sum(
            (-1 if amount.is_negative else 1) * sum(len(cell.dedicated) for cell in amount.cells)
            for amount in topology.taken or ()
        )


def _topology(
    cells: Iterable[HostCell], usage: Iterable[CellUsage], cpu_ratio: Any, memory_ratio: Any
) -> NUMATopologyInventory:
    return NUMATopologyInventory(
        cells,
        usage=usage,
        cpu_ratio=cpu_ratio,
        memory_ratio=memory_ratio,
        resource_class=NUMA_TOPOLOGY.name,
    )


def _with_cpus(topology: NUMATopologyInventory) -> Mapping[str, Inventory]:
    """Return the inventory of cells, after one of their dedicated CPUs as a count."""
    total = sum(len(cell.dedicated) for cell in topology.cells)
    if not total:
        return {NUMA_TOPOLOGY.name: topology}
    used = sum(len(cell.pinned) + cell.loose for cell in topology.usage)
    cpus = IntegerInventory(total, max_unit=total, used=used, resource_class=PCPU)
    return {PCPU: cpus, NUMA_TOPOLOGY.name: topology}


@functools.lru_cache(maxsize=256)
def _load_cells(text: Any) -> tuple[tuple[HostCell, ...], tuple[CellUsage, ...]]:
    topology = load_host_numa_topology(text)
    return topology.cells, topology.usage


class PCIColumn(TextColumn):
    """The devices of a host. They are written as counts of free ones, and never read."""

    resource = DEVICES.name
    names = ("pci_stats",)

    def read(
        self, row: Mapping[str, Any], settings: Settings, inventories: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        return {}  # the counts do not name the free devices

    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        (column,) = self.names
        devices, text = state.inventories.get(self.resource), row.get(column)
        if devices is None:
            return self.without_inventory(row, state)
        written = _write_pools(device_pools(devices, per_device=True))
        try:
            before = _pools(text)
        except InvalidInput:
            before = ()
        if before and _write_pools(before) == written:
            return {column: text}  # the content is the same
        return {column: _of_type(text, written)}

    def accept(
        self, inventory: Inventory, inventories: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if not isinstance(inventory, PCIInventory):
            raise exceptions.InvalidInventory(self.resource, inventory, "a PCIInventory")
        if not inventory.devices:
            return {}
        ordered = sorted(inventory.devices, key=lambda device: device.address)
        devices = PCIInventory(ordered, usage=inventory.usage, resource_class=self.resource)
        return {self.resource: devices}

    def new(self, inventory: Inventory, *, used: bool = False) -> Inventory | None:
        assert isinstance(inventory, PCIInventory)
        withdrawn = {use.address for use in inventory.usage if use.gone}
        devices = [device for device in inventory.devices if device.address not in withdrawn]
        addresses = {device.address for device in devices}
        usage = [
            DeviceUse(use.address, use.state)
            for use in inventory.usage
            if use.address in addresses and (used or use.state == SPENT)
        ]
        if not devices:
            return None
        return PCIInventory(devices, usage=usage, resource_class=self.resource)

    def is_same(self, inventory: Inventory, other: Inventory) -> bool:
        """Compare without the difference of claimed and allocated: a save changes the first."""
        assert isinstance(inventory, PCIInventory)
        assert isinstance(other, PCIInventory)
        usage, others_usage = (
            [
                (use.address, CLAIMED if use.is_held else use.state, use.gone)
                for use in devices.usage
            ]
            for devices in (inventory, other)
        )
        return inventory.devices == other.devices and usage == others_usage

    def close(self, inventory: Inventory) -> None:
        inventory.update(devices=(), usage=())


def _pools(text: Any) -> tuple[DevicePool, ...]:
    """Return the pools of a text; nothing is parsed again that was read before.

    :raises InvalidInput: if it cannot be read
    """
    if text in (None, "", b""):
        return ()
    try:
        return _load_pools(text)
    except InvalidInput as error:
        raise _unreadable("pci_stats", error) from error


@functools.lru_cache(maxsize=256)
def _load_pools(text: Any) -> tuple[DevicePool, ...]:
    return load_pci_pools(text)


def _write_pools(pools: Iterable[DevicePool]) -> str:
    return dump_pci_pools(pools, leave_out=("class_code", "facts"))


def _of_type(before: Any, text: str) -> str | bytes:
    return text.encode() if isinstance(before, bytes) else text


def _unreadable(column: str, error: InvalidInput) -> InvalidInput:
    """Return the error that names an unreadable column, and the position in it."""
    position = error.what.removeprefix(column).lstrip(".")
    expected = f"{error.expected} ({position})" if position else error.expected
    return InvalidInput("row", column, error.value, expected)


def _document(text: Any) -> Any:
    """Return the content of a JSON text, None if it cannot be read."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


# --- rows and Nova's object -----------------------------------------------------------------------


def row_of(source: Any) -> dict[str, Any]:
    """Return the columns of a row: a mapping, SQLAlchemy's ``Row``, or a model with ``items``.

    :raises InvalidInput: if it is none of these, or the name of a column is not text
    """
    mapping = getattr(source, "_mapping", source)  # SQLAlchemy's Row
    try:
        row = dict(mapping.items())
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput("row", "source", source, _SOURCE) from error
    for name in row:
        if not isinstance(name, str):
            raise InvalidInput("row", "column", name, "the name of a column")
    return row


def row_of_nova(source: Any) -> dict[str, Any]:
    """Return the columns of Nova's object that are set, as its own ``save`` would write them.

    Fields that Nova 34 does not have stay in Nova's object.

    :param source: the object, its primitive, or JSON text of that
    :raises InvalidInput: if it is no such object, or a field of it cannot be read
    """
    if is_nova_object(source):
        return _row_of_object(source)
    document = parsed(source)
    if not is_nova_primitive(document):
        raise InvalidInput("row", "source", source, "a nova.objects.ComputeNode, or its primitive")
    try:
        data, _ = primitive.unwrap(document, "source", primitive.NODE)
        return {
            column: field.column_of(data[field.name])
            for column, field in _nova_fields()
            if field.name in data
        }
    except InvalidInput as error:
        raise InvalidInput("row", error.what, error.value, error.expected) from None


def _row_of_object(node: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column, field in _nova_fields():
        try:
            if field.name not in node.fields or not node.obj_attr_is_set(field.name):
                continue
            value = getattr(node, field.name)
            row[column] = value if value is None or field.read is None else field.read(value)
        except exceptions.ResourceObjectsError:
            raise
        except Exception as error:  # Nova's object raises errors of any type
            expected = f"a readable field {field.name}: {error}"
            raise InvalidInput("row", column, node, expected) from error
    return row


def is_nova_object(source: Any) -> bool:
    """Return True for an object with the interface of Nova's compute node."""
    declared = getattr(source, "fields", None)
    return (
        isinstance(declared, Mapping)
        and "vcpus" in declared
        and callable(getattr(source, "obj_attr_is_set", None))
        and not isinstance(source, type)
    )


def is_nova_primitive(source: Any) -> bool:
    """Return True for the wire form of an object of Nova."""
    return isinstance(source, Mapping) and primitive.is_wrapped(source)


def parsed(source: Any) -> Any:
    """Return the content of JSON text; another source is returned as it is.

    :raises InvalidInput: for text that is not JSON
    """
    try:
        return (
            primitive.parse_document(source, "source")
            if isinstance(source, str | bytes)
            else source
        )
    except InvalidInput as error:
        raise InvalidInput("row", error.what, error.value, error.expected) from None


def checked(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row without the derived ones.

    :raises InvalidInput: for a derived figure that is no integer, or an unknown column with a value
        that no row can have
    """
    names = {name for column in columns() for name in column.names}.union(CARRIED, (DISK_REPORT,))
    stored: dict[str, Any] = {}
    for name, value in row.items():
        if name in DERIVED:
            if value is not None and type(value) is not int:
                raise InvalidInput("row", name, value, "an integer or None")
        elif name in names:
            stored[name] = value
        else:
            try:
                name.encode()
                stored[name] = _CARRIED.coerce(None, name, value)
            except ValueError as error:
                expected = f"{_CARRIED.describe()} or None"
                raise InvalidInput("row", name, value, expected) from error
    return stored


def as_row_error(error: InvalidInput) -> InvalidInput:
    """Return the error that names the column, for an error that names the field."""
    return InvalidInput("row", error.what.removeprefix("ComputeNode."), error.value, error.expected)


def write(target: Any, changes: Mapping[str, Any]) -> None:
    """Set columns of a row, or the fields of Nova's object that correspond to them.

    :raises InvalidInput: if the target is neither; for a column without a field in Nova's object,
        or with a field that only Nova can make: nothing was set. Also if Nova's object refuses a
        value
    """
    if isinstance(target, MutableMapping):
        target.update(changes)
    elif is_nova_object(target):
        _write_nova(target, changes)
    elif hasattr(target, "__setitem__"):
        for column, value in changes.items():
            target[column] = value
    else:
        raise InvalidInput("row", "target", target, _TARGET)


def _write_nova(target: Any, changes: Mapping[str, Any]) -> None:
    values: dict[str, Any] = {}
    by_column = dict(_nova_fields())
    for column, value in changes.items():
        field = by_column.get(column)
        make = None if field is None else field.write
        if field is not None and field.name == _POOLS:
            make = functools.partial(_pools_object, type(target))
        if field is None or make is None or field.name not in target.fields:
            raise InvalidInput("field", column, value, "a column that Nova's object can be given")
        values[field.name] = None if value is None else make(value)
    for name, value in values.items():
        try:
            setattr(target, name, value)
        except Exception as error:  # Nova's object raises errors of any type
            expected = f"a value that Nova's object accepts: {error}"
            raise InvalidInput("field", name, value, expected) from error


def _pools_object(node_class: Any, text: Any) -> Any:
    """Return Nova's object of a ``pci_stats``, which Nova's own classes make of a primitive."""
    try:
        document = _document(text)
        if not isinstance(document, Mapping) or "nova_object.name" not in document:
            document = _document(_write_pools(_pools(text)))
        return node_class.obj_from_primitive(document)
    except Exception as error:  # Nova's object raises errors of any type
        expected = f"a value that Nova's object accepts: {error}"
        raise InvalidInput("field", "pci_stats", text, expected) from error


@dataclasses.dataclass(frozen=True, slots=True)
class _NovaField:
    """The field of ``nova.objects.ComputeNode`` that corresponds to a column.

    ``read`` converts the field to the column as Nova's own ``save`` does, ``write`` the column to
    the field; None if only Nova can make the object in it. ``read_primitive`` converts the field's
    primitive to the column, if ``read`` does not.
    """

    name: str
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Any] | None = lambda value: value
    read_primitive: Callable[[Any], Any] | None = None

    def column_of(self, value: Any) -> Any:
        """Return the column of the field's primitive."""
        read = self.read_primitive or self.read
        return value if value is None or read is None else read(value)


#: The fields of each kind of guest in a row, in this order.
_SPEC_FIELDS = ("arch", "hv_type", "vm_mode")


def _hypervisor_specs(specs: Any) -> str:
    return str(jsonutils.dumps([[getattr(spec, name) for name in _SPEC_FIELDS] for spec in specs]))


def _specs_of_primitive(specs: Any) -> str:
    rows = []
    for position, spec in enumerate(primitive.require_list(specs, "supported_hv_specs")):
        path = f"supported_hv_specs[{position}]"
        data, _ = primitive.unwrap(spec, path, primitive.HYPERVISOR)
        rows.append([data.get(name) for name in _SPEC_FIELDS])
    return str(jsonutils.dumps(rows))


def _time_of_primitive(text: Any) -> datetime.datetime:
    try:
        return timeutils.parse_isotime(text)
    except (TypeError, ValueError):
        expected = "a time such as 2026-11-01T12:00:00Z"
        raise InvalidInput("primitive", "time", text, expected) from None


_POOLS = "pci_device_pools"
#: ``{column: field}`` where name or value differ.
_DIFFERENT = {
    "stats": _NovaField("stats", jsonutils.dumps, jsonutils.loads),
    "host_ip": _NovaField("host_ip", str),
    "supported_instances": _NovaField(
        "supported_hv_specs", _hypervisor_specs, None, _specs_of_primitive
    ),
    "pci_stats": _NovaField(
        _POOLS,
        lambda pools: str(jsonutils.dumps(pools.obj_to_primitive())),
        None,
        jsonutils.dumps,
    ),
    **{
        name: _NovaField(name, read_primitive=_time_of_primitive)
        for name in ("created_at", "updated_at", "deleted_at")
    },
}


def _nova_fields() -> list[tuple[str, _NovaField]]:
    """Return ``(column, field)`` of Nova's ComputeNode 1.19, which has no ``extra_resources``."""
    names = [name for column in columns() for name in column.names]
    columns_of_node = (*names, DISK_REPORT, *CARRIED, *DERIVED)
    return [
        (n, _DIFFERENT.get(n, _NovaField(n))) for n in columns_of_node if n != "extra_resources"
    ]
