"""Foreign records of a host: rows of ``compute_nodes`` and Nova's own objects, read and written.

Nova is not needed for either: its object is known by what it can do (``fields``,
``obj_attr_is_set``), and is read field by field, so that the one that cannot be read is named. Its
primitive, or JSON text of that, is what crossed a wire. Nothing here decides anything; it finds
columns and names the wrong one.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from oslo_serialization import jsonutils
from oslo_utils import timeutils

from resource_objects import exceptions
from resource_objects.exceptions import InvalidInput
from resource_objects.host.columns import CARRIED, DERIVED, DISK_REPORT, CarriedValue, columns
from resource_objects.host.located_columns import pools_for_nova
from resource_objects.interop.nova import primitive

_CARRIED = CarriedValue()
_SOURCE = "a row of compute_nodes (a mapping), a nova.objects.ComputeNode or a ComputeNode"
_TARGET = "a row of compute_nodes (a mapping that can change) or a nova.objects.ComputeNode"


def is_nova_object(source: Any) -> bool:
    """Return whether this looks like Nova's compute node: its fields, and telling which are set."""
    known = getattr(source, "fields", None)
    return (
        isinstance(known, Mapping)
        and "vcpus" in known
        and callable(getattr(source, "obj_attr_is_set", None))
        and not isinstance(source, type)
    )


def parsed(source: Any) -> Any:
    """Return what JSON text says; anything else as it is.

    :raises InvalidInput: for text that is no JSON
    """
    try:
        return (
            primitive.parse_document(source, "source")
            if isinstance(source, str | bytes)
            else source
        )
    except InvalidInput as error:
        raise InvalidInput("row", error.what, error.value, error.expected) from None


def is_nova_primitive(source: Any) -> bool:
    """Return whether this is meant as the wire form of one of Nova's objects."""
    return isinstance(source, Mapping) and primitive.is_wrapped(source)


def row_of_nova(source: Any) -> dict[str, Any]:
    """Return the columns of Nova's object that are set, as its own ``save`` would write them.

    Fields that Nova 34 does not have are left with Nova's object, which keeps them.

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
            column: field.of_wire(data[field.name])
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
        except Exception as error:  # a foreign object fails in its own ways
            raise InvalidInput(
                "row", column, node, f"a readable field {field.name}: {error}"
            ) from error
    return row


def row_of_mapping(source: Any) -> dict[str, Any]:
    """Return the columns of a row: a mapping, SQLAlchemy's ``Row``, or a model with ``items``.

    :raises InvalidInput: if it is none of these, or a name of a column is not text
    """
    found = getattr(source, "_mapping", source)  # SQLAlchemy's Row
    if not isinstance(found, Mapping) and not hasattr(found, "items"):
        raise InvalidInput("row", "source", source, _SOURCE)
    try:
        row = dict(found.items())
    except (TypeError, ValueError) as error:
        raise InvalidInput("row", "source", source, _SOURCE) from error
    for name in row:
        if not isinstance(name, str):
            raise InvalidInput("row", "column", name, "the name of a column")
    return row


def checked(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that are kept: all but those that are computed when asked.

    :raises InvalidInput: for a derived figure that is no figure, or a column nobody has a name for
        whose value no row holds
    """
    known = {name for column in columns() for name in column.names}.union(CARRIED, (DISK_REPORT,))
    kept: dict[str, Any] = {}
    for name, value in row.items():
        if name in DERIVED:
            if value is not None and type(value) is not int:
                raise InvalidInput("row", name, value, "an integer or None")
        else:
            kept[name] = value if name in known else _carried(name, value)
    return kept


def _carried(column: str, value: Any) -> Any:
    try:
        column.encode()
        return _CARRIED.coerce(None, column, value)
    except ValueError as error:
        raise InvalidInput("row", column, value, f"{_CARRIED.describe()} or None") from error


def as_row_error(error: InvalidInput) -> InvalidInput:
    """Return the error that names the column, for one that names the field."""
    return InvalidInput("row", error.what.removeprefix("ComputeNode."), error.value, error.expected)


def write(target: Any, changes: Mapping[str, Any]) -> None:
    """Set columns on a row, or the fields that stand for them on Nova's object.

    :raises InvalidInput: if the target is neither; for a column that Nova's object has no field
        for, or whose field only Nova can make; nothing was set. Also if Nova's object refuses a
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
    known = dict(_nova_fields())
    for column, value in changes.items():
        field = known.get(column)
        if field is None or field.name not in target.fields:
            raise InvalidInput("field", column, value, "a column that Nova's object can be given")
        write = _pools_of(target) if field.name == _POOLS else field.write
        if write is None:
            raise InvalidInput("field", column, value, "a column that Nova's object can be given")
        values[field.name] = None if value is None else write(value)
    for name, value in values.items():
        try:
            setattr(target, name, value)
        except Exception as error:  # a foreign object refuses in its own ways
            raise InvalidInput(
                "field", name, value, f"what Nova's object takes: {error}"
            ) from error


def _pools_of(target: Any) -> Callable[[Any], Any]:
    """Return what makes Nova's object of a column: its own classes read the primitive."""

    def read(column: Any) -> Any:
        try:
            return type(target).obj_from_primitive(pools_for_nova(column))
        except Exception as error:  # a foreign object refuses in its own ways
            expected = f"what Nova's object takes: {error}"
            raise InvalidInput("field", "pci_stats", column, expected) from error

    return read


# --- Nova's object --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _NovaField:
    """The field of ``nova.objects.ComputeNode`` that stands for a column.

    ``read`` makes the column's value as Nova's own ``save`` does. ``write`` makes the field's;
    where it is None the field is an object of Nova's, which only Nova can make. ``wire`` makes the
    column's value of the field's primitive, where ``read`` does not.
    """

    name: str
    read: Callable[[Any], Any] | None = None
    write: Callable[[Any], Any] | None = lambda value: value
    wire: Callable[[Any], Any] | None = None

    def of_wire(self, value: Any) -> Any:
        """Return the column's value of what the object's primitive has."""
        read = self.wire or self.read
        return value if value is None or read is None else read(value)


#: What a row says of each kind of guests that a host can run, in this order.
_OF_SPEC = ("arch", "hv_type", "vm_mode")


def _hypervisor_specs(specs: Any) -> str:
    return str(jsonutils.dumps([[getattr(spec, name) for name in _OF_SPEC] for spec in specs]))


def _specs_of_wire(specs: Any) -> str:
    found = []
    for place, spec in enumerate(primitive.require_list(specs, "supported_hv_specs")):
        where = f"supported_hv_specs[{place}]"
        data, _ = primitive.unwrap(spec, where, primitive.HYPERVISOR)
        found.append([data.get(name) for name in _OF_SPEC])
    return str(jsonutils.dumps(found))


def _time_of_wire(text: Any) -> datetime.datetime:
    try:
        return timeutils.parse_isotime(text)
    except (TypeError, ValueError):
        raise InvalidInput(
            "primitive", "time", text, "a time such as 2026-11-01T12:00:00Z"
        ) from None


def _device_pools(pools: Any) -> str:
    return str(jsonutils.dumps(pools.obj_to_primitive()))


_POOLS = "pci_device_pools"
_TIMES = ("created_at", "updated_at", "deleted_at")
#: ``{column: field}`` where they differ.
_UNLIKE = {
    "stats": _NovaField("stats", jsonutils.dumps, jsonutils.loads),
    "host_ip": _NovaField("host_ip", str),
    "supported_instances": _NovaField(
        "supported_hv_specs", _hypervisor_specs, None, _specs_of_wire
    ),
    "pci_stats": _NovaField(_POOLS, _device_pools, None, jsonutils.dumps),
    **{name: _NovaField(name, wire=_time_of_wire) for name in _TIMES},
}


def _nova_fields() -> list[tuple[str, _NovaField]]:
    """Return ``(column, field)`` of Nova's ComputeNode 1.19, which has no ``extra_resources``."""
    names = [name for column in columns() for name in column.names]
    every = (*names, DISK_REPORT, *CARRIED, *DERIVED)
    return [(n, _UNLIKE.get(n, _NovaField(n))) for n in every if n != "extra_resources"]
