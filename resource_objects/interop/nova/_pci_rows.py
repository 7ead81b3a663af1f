"""One row of ``pci_devices``, or one ``PciDevice``: read in any version, written in any.

What means what is told in :mod:`~resource_objects.interop.nova.pci_devices`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from resource_objects.exceptions import InvalidAddress, InvalidPrimitive
from resource_objects.fields import MAX_FIGURE, FrozenDict
from resource_objects.interop.nova import _pci_words, _primitive
from resource_objects.interop.nova.pci_device_spec import PARENT_IFNAME
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import MAX_NODE, Device

#: Columns that only a row has: kept as they are.
_ROW: Final = (
    "id",
    "uuid",
    "compute_node_id",
    "dev_id",
    "label",
    "created_at",
    "updated_at",
    "deleted_at",
    "deleted",
)
_COLUMNS: Final = frozenset(
    {
        *_ROW,
        "address",
        "vendor_id",
        "product_id",
        "dev_type",
        "status",
        "instance_uuid",
        "request_id",
        "extra_info",
        "numa_node",
        "parent_addr",
    }
)
_REMOVED: Final = ("removed", "deleted")
_HELD: Final = (words.CLAIMED, words.ALLOCATED)
#: What follows from who has a relative. After some of them were freed Nova may have either.
BLOCKED: Final = (words.UNCLAIMABLE, words.UNAVAILABLE)
_STATUS: Final = (words.AVAILABLE, *_HELD, *BLOCKED, *_REMOVED)
#: Words of ``extra_info`` that Nova matches by.
_TAGS: Final = (PARENT_IFNAME, "managed")
_LIVE: Final = "live_migratable"
#: Where the parent was before it had a column.
_OLD_PARENT: Final = "phys_function"

#: First version that says each, or has the word.
_REQUEST, _NODE, _PARENT, _BLOCKED, _UUID, _VDPA = 2, 3, 4, 5, 6, 7
NEWEST: Final = 7


class DeviceHolder(NamedTuple):
    """Who has a device, and for which of its requests; uuids as Nova has them."""

    instance_uuid: str | None = None
    request_id: str | None = None


class Row(NamedTuple):
    """What a row says: a device or, for a reason, none."""

    address: str
    device: Device | None
    status: str
    holder: DeviceHolder
    rest: Mapping[str, Any]
    reason: str = ""

    @property
    def is_held(self) -> bool:
        """Whether it says that somebody has it."""
        return self.status in _HELD


# --- reading --------------------------------------------------------------------------------------


def read(data: Mapping[Any, Any]) -> Row:
    """Return what a row says.

    :raises InvalidInput: if it is none, or contradicts itself; not for an address, which is a
        reason to leave it out
    """
    _primitive.only(data, _COLUMNS)
    status = data.get("status")
    if status not in _STATUS:
        raise InvalidPrimitive("status", status, f"one of {', '.join(_STATUS)}")
    said = _text(data, "address")
    holder = DeviceHolder(
        *(_pci_words.label(data.get(name), name) for name in DeviceHolder._fields)
    )
    rest = {name: data[name] for name in _ROW if name in data}
    for name in ("id", "compute_node_id"):
        if rest.get(name) is not None:
            _primitive.number(rest[name], name, 0, MAX_FIGURE)
    if status in _REMOVED or data.get("deleted"):
        return Row(said, None, status, holder, rest, "removed" if status in _REMOVED else "deleted")
    try:
        device = _device(data, words.address(said))
    except InvalidAddress as error:
        return Row(said, None, status, holder, rest, str(error))
    kept = {**rest, "status": status} if status in BLOCKED else rest
    return Row(device.address, device, status, holder, FrozenDict(kept))


def _text(data: Mapping[Any, Any], name: str) -> str:
    found = _pci_words.label(data.get(name), name)
    if found is None:
        raise InvalidPrimitive(name, None, "text")
    return found


def _device(data: Mapping[Any, Any], address: str) -> Device:
    info = _extra_info(data.get("extra_info"))
    node, parent = data.get("numa_node"), _pci_words.label(data.get("parent_addr"), "parent_addr")
    kind = _text(data, "dev_type")
    if parent is None and kind in words.PARTS:
        parent = info.pop(_OLD_PARENT, None)
    live = _pci_words.flag(info.get(_LIVE))
    if live is not None:
        del info[_LIVE]
    tags: dict[str, str] = {name: info.pop(name) for name in _TAGS if name in info}
    return Device(
        address,
        _text(data, "vendor_id").lower(),
        _text(data, "product_id").lower(),
        kind,
        parent=None if parent is None else words.address(parent),
        numa_node=None if node is None else _primitive.number(node, "numa_node", 0, MAX_NODE),
        tags=tags,
        live_migratable=live,
        facts=info,
    )


def _extra_info(given: object) -> dict[str, str]:
    """Return words by name; what is no text is JSON, as Nova makes it."""
    found = _primitive.parsed(given, "extra_info")
    if found is None:
        return {}
    return {
        name: value if isinstance(value, str) else _json(value, f"extra_info.{name}")
        for name, value in _primitive.mapping(found, "extra_info").items()
    }


def _json(value: object, what: str) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise InvalidPrimitive(what, value, "text, or what JSON has") from None


# --- writing --------------------------------------------------------------------------------------


def write(
    device: Device, status: str, holder: DeviceHolder, rest: Mapping[str, Any], minor: int | None
) -> dict[str, Any]:
    """Return a device as a row has it, or the data of a versioned object.

    :param minor: of the version; None for a row
    """
    said = NEWEST if minor is None else minor
    info = {**device.facts, **{name: device.tags[name] for name in _TAGS if name in device.tags}}
    if device.live_migratable is not None:
        info[_LIVE] = _pci_words.flag_text(device.live_migratable)
    if said < _PARENT and device.parent is not None:
        info[_OLD_PARENT] = device.parent
    found: dict[str, Any] = {
        "dev_id": f"pci_{device.address}".replace(":", "_").replace(".", "_"),
        "label": f"label_{device.vendor_id}_{device.product_id}",
        **{name: value for name, value in rest.items() if name in _ROW},
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "dev_type": device.type,
        "status": status,
        "instance_uuid": holder.instance_uuid,
        "extra_info": json.dumps(info) if minor is None else info,
    }
    later = {
        "request_id": (_REQUEST, holder.request_id),
        "numa_node": (_NODE, device.numa_node),
        "parent_addr": (_PARENT, device.parent),
    }
    found |= {name: value for name, (since, value) in later.items() if said >= since}
    if minor is None:
        return found
    if minor < _UUID:
        found.pop("uuid", None)
    return {name: _time(value) for name, value in found.items()}


def _time(value: object) -> object:
    """Return a time as Nova's objects have it in JSON; anything else as it is."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


def unsaid(
    device: Device, status: str, holder: DeviceHolder, minor: int
) -> Iterator[tuple[str, str]]:
    """Yield what a version has no word for, and why; ``""`` is what cannot be left out."""
    if minor < _REQUEST and holder.request_id is not None:
        yield "request_id", f"the request {holder.request_id}"
    if minor < _NODE and device.numa_node is not None:
        yield "numa_node", f"a NUMA node, {device.numa_node}"
    if minor < _BLOCKED and status in BLOCKED:
        yield "", f"the status {status}"
    if minor < _VDPA and device.type == words.VDPA:
        yield "", f"the type {device.type}"
