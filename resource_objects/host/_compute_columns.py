"""The columns of a compute node's record: which are counted, and how the others are carried.

Names are those of Nova's ``compute_nodes`` table (Nova 34). Three sorts:

* *counted*: totals, used figures and ratios of VCPU, MEMORY_MB and DISK_GB. They are ours: checked,
  and changed through the inventories;
* *derived*: ``free_ram_mb`` and ``free_disk_gb``, computed from the counted ones whenever asked;
* *carried*: all others, also those nobody knew when this was written. They are somebody else's:
  kept as they came, type and all, never turned into something else. Two of them are read when
  inventories are asked for, ``numa_topology`` and ``pci_stats``, and follow these.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from oslo_serialization import jsonutils

from resource_objects import fields
from resource_objects._ovo import fields as ovo_fields


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """The columns of one counted resource, and the ratio it has when nobody states one."""

    resource_class: str
    total: str
    used: str
    ratio: str
    initial_ratio: Decimal


#: ``{resource class: its columns}``; initial ratios are those of Nova since 27.0.0.
KINDS = {
    kind.resource_class: kind
    for kind in (
        Kind("VCPU", "vcpus", "vcpus_used", "cpu_allocation_ratio", Decimal(4)),
        Kind("MEMORY_MB", "memory_mb", "memory_mb_used", "ram_allocation_ratio", Decimal(1)),
        Kind("DISK_GB", "local_gb", "local_gb_used", "disk_allocation_ratio", Decimal(1)),
    )
}

COUNTED = tuple(column for kind in KINDS.values() for column in (kind.total, kind.used, kind.ratio))

#: ``{derived column: resource class it is the rest of}``
DERIVED = {"free_ram_mb": "MEMORY_MB", "free_disk_gb": "DISK_GB"}

#: The bound on disk that the host reports, in GiB.
DISK_REPORT = "disk_available_least"

CARRIED = (
    "id",
    "uuid",
    "service_id",
    "host",
    "hypervisor_hostname",
    "hypervisor_type",
    "hypervisor_version",
    "host_ip",
    "cpu_info",
    "numa_topology",
    "pci_stats",
    "supported_instances",
    "current_workload",
    "running_vms",
    "stats",
    "metrics",
    "mapped",
    "extra_resources",
    "created_at",
    "updated_at",
    "deleted_at",
    "deleted",
)

COLUMNS = (*COUNTED, DISK_REPORT, *CARRIED)


# --- field types ----------------------------------------------------------------------------------

_AS_IT_IS = (str, int, float, bool)

#: ``{type: (name on the wire, to text, from text)}`` for what JSON has no word for.
_SPELLED: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    datetime.datetime: (
        "datetime",
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    Decimal: ("decimal", str, Decimal),
    bytes: ("bytes", lambda raw: base64.b64encode(raw).decode(), base64.b64decode),
}
_READERS = {name: read for name, _, read in _SPELLED.values()}


class CarriedValue(ovo_fields.FieldType[Any]):
    """The value of a column that is somebody else's: kept, type and all.

    Takes what a database row holds: text, bytes, numbers, dates. An object would not survive a
    wire, and a list or dict could be changed behind our back: both are refused.
    """

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        if isinstance(value, str):
            value.encode()  # half of a surrogate pair is no text: no wire or database takes it
            return str(value)
        if type(value) not in _AS_IT_IS and type(value) not in _SPELLED:
            raise ValueError(attr)
        if isinstance(value, Decimal) and value.is_snan():  # it cannot even be compared
            raise ValueError(attr)
        return value

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if type(value) in _AS_IT_IS:
            return value
        name, write, _ = _SPELLED[type(value)]
        return {name: write(value)}

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((name, text),) = value.items()
        return _READERS[name](text)

    def describe(self) -> str:
        return "text, bytes, a number, a date or a time"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean", "object"]}


class CarriedField(fields.Field[Any]):
    """A column that is somebody else's."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(CarriedValue(), nullable=True, **kwargs)


def _is_finite(value: Any) -> bool:
    return value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)


class RatioColumn(CarriedValue):
    """An allocation ratio as the record states it; 0 states none. Never rewritten by reading."""

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        if type(value) not in (int, float, Decimal) or not _is_finite(value) or value < 0:
            raise ValueError(attr)
        return value

    def describe(self) -> str:
        return "a number from 0 (none stated)"


class RatioColumnField(fields.Field[Any]):
    """An allocation ratio as the record states it, None or 0 if it states none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(RatioColumn(), nullable=True, **kwargs)


class OtherColumnsField(fields.Field[fields.FrozenDict]):
    """Columns this library has no name for, as they came."""

    def __init__(self, **kwargs: Any) -> None:
        kind = fields.FrozenDictOf(_column_name, NullableCarriedValue())
        super().__init__(kind, default=fields.FrozenDict(), **kwargs)


class NullableCarriedValue(CarriedValue):
    """A carried value or None."""

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        return None if value is None else super().coerce(obj, attr, value)

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return None if value is None else super().to_primitive(obj, attr, value)


class RatiosField(fields.Field[fields.FrozenDict]):
    """``{resource class: allocation ratio}``, exact."""

    def __init__(self, **kwargs: Any) -> None:
        kind = fields.FrozenDictOf(_kind_name, fields.RatioType())
        super().__init__(kind, default=fields.FrozenDict(), **kwargs)


def _column_name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("column")
    value.encode()
    return str(value)


def _kind_name(value: object) -> str:
    if value not in KINDS:
        raise ValueError("resource class")
    return str(value)


# --- Nova's object --------------------------------------------------------------------------------


def _host_ip(address: Any) -> str:
    return str(address)


def _hypervisor_specs(specs: Any) -> str:
    return str(jsonutils.dumps([spec.to_list() for spec in specs]))


def _device_pools(pools: Any) -> str:
    return str(jsonutils.dumps(pools.obj_to_primitive()))


@dataclasses.dataclass(frozen=True, slots=True)
class NovaField:
    """The field of ``nova.objects.ComputeNode`` that stands for a column.

    ``read`` makes the column's value as Nova's own ``save`` does. ``write`` makes the field's;
    where it is None the field is an object of Nova's, which only Nova can make.
    """

    name: str
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Any] | None = lambda value: value


#: ``{column: field}`` where they differ.
_UNLIKE = {
    "stats": NovaField("stats", jsonutils.dumps, jsonutils.loads),
    "host_ip": NovaField("host_ip", _host_ip),
    "supported_instances": NovaField("supported_hv_specs", _hypervisor_specs, None),
    "pci_stats": NovaField("pci_device_pools", _device_pools, None),
}

#: ``{column: field}`` of Nova's ComputeNode 1.19; ``extra_resources`` is in no object.
NOVA_FIELDS = {
    column: _UNLIKE.get(column, NovaField(column))
    for column in (*COLUMNS, *DERIVED)
    if column != "extra_resources"
}
