"""``pci_devices``: the devices of a host and who has them, read and written.

Read are rows of the table, as mappings by column, and ``PciDevice`` objects of 1.0 to 1.7, or a
``PciDeviceList``. Rows are written, or objects of the newest version. What is the same by another
name:

======================================  ===========================================================
Nova                                    here
======================================  ===========================================================
``address``, ``vendor_id``,             the same
``product_id``, ``numa_node``
``dev_type``                            ``type``
``parent_addr``                         ``parent``; before 1.4 ``phys_function`` in ``extra_info``
``status`` claimed or allocated,        ``usage``, and in ``holders`` who has it
``instance_uuid``, ``request_id``
``status`` available, unclaimable,      not read: it follows from who has which. Where it
unavailable                             contradicts that, ``findings`` tell
``status`` removed, deleted; a row      left out; ``skipped`` tells
that is deleted
``live_migratable`` in ``extra_info``   the same, where it is ``true`` or ``false``
``parent_ifname``, ``managed`` in it    tags: requests may ask for them
anything else in ``extra_info``         ``facts``; what is no text is JSON
``id``, ``uuid``, ``compute_node_id``,  ``rows``: what a row has and no device
``dev_id``, ``label``, times
======================================  ===========================================================

A row does not say what an operator has made of a device: its tags, class, traits, whether it is
managed from elsewhere or for one use. That is in the host's ``[pci] device_spec``; a device that
was loaded with it has them, and they are not written here.

Nova has no word for a device that is spent. What waits until a device is free (``then``, ``gone``)
it does not keep.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.fields import MAX_FIGURE, FrozenDict
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.primitive import DEVICE, DEVICES, Document, NovaObject
from resource_objects.interop.nova.specs import PARENT_IFNAME, NovaDeviceRule, tagged_device
from resource_objects.resources.pci.device import (
    ALLOCATED,
    AVAILABLE,
    CLAIMED,
    MAX_NODE,
    PARTS,
    PF,
    SPENT,
    UNAVAILABLE,
    UNCLAIMABLE,
    Device,
    DeviceUse,
    parse_address,
)
from resource_objects.resources.pci.device_groups import Devices

__all__ = [
    "DeviceFinding",
    "DeviceHolder",
    "NovaDevices",
    "SkippedRow",
    "dump_pci_devices",
    "load_pci_devices",
]

_ROOT: Final = "pci_devices"
#: What may be left unsaid, for Nova has no word for it.
_OPTIONAL: Final = ("spent",)


class SkippedRow(NamedTuple):
    """A row that was left out: its address as it is there, and why."""

    address: str
    reason: str


class DeviceFinding(NamedTuple):
    """A row that contradicts what others say: what it says, and what follows from the others."""

    address: str
    said: str
    follows: str


class NovaDevices(NamedTuple):
    """The devices of a host, and what is taken of them.

    ``devices`` and ``usage`` are those of a :class:`~resource_objects.resources.pci.PCIInventory`;
    ``holders`` says who has which, by address; ``skipped`` and ``findings`` what was left out and
    what contradicts itself; ``rows`` what else a row has, by address.
    """

    devices: tuple[Device, ...]
    usage: tuple[DeviceUse, ...] = ()
    holders: Mapping[str, DeviceHolder] = FrozenDict()
    skipped: tuple[SkippedRow, ...] = ()
    findings: tuple[DeviceFinding, ...] = ()
    rows: Mapping[str, Mapping[str, Any]] = FrozenDict()


# --- reading --------------------------------------------------------------------------------------


def load_pci_devices(
    source: Document | Iterable[Mapping[str, Any] | NovaObject] | None,
    *,
    specs: Sequence[NovaDeviceRule] | None = None,
) -> NovaDevices:
    """Return the devices of a host, and what is taken of them.

    A device whose address cannot be read, or has a domain of more than 16 bits, is left out by
    itself. So is, with ``specs``, a free one that no entry is about; one that is held is kept, and
    is gone when it is free.

    :param source: rows as mappings; ``PciDeviceList`` or several ``PciDevice`` of Nova's, or their
        primitives; or JSON text of these
    :param specs: ``[pci] device_spec`` of the host, as :func:`.parse_device_spec` returns it; None
        for devices as the rows have them
    :raises InvalidInput: if one is no such row, or they are of several hosts
    :raises InvalidNovaInput: if ``specs`` and a device do not go together

    Cost: 80 microseconds for each device, half as much again with ``specs``.

    >>> row = {"address": "0000:04:00.0", "vendor_id": "8086", "product_id": "1563",
    ...     "dev_type": "type-PF", "status": "unavailable"}
    >>> found = load_pci_devices([row, {**row, "address": "0000:04:10.0", "dev_type": "type-VF",
    ...     "parent_addr": "0000:04:00.0", "status": "allocated", "instance_uuid": "a-guest"}])
    >>> print(*found.usage, found.findings)
    DeviceUse(address='0000:04:10.0', state='allocated', gone=False) ()
    """
    rows, skipped = [], []
    for place, (data, what) in enumerate(_rows_of(source)):
        try:
            row = _read_row(primitive.unwrap(data, "", DEVICE)[0] if what else data)
        except InvalidInput as error:
            primitive.reraise_at(f"{_ROOT}[{place}]", error)
        if row.device is None:
            skipped.append(SkippedRow(row.address, row.reason))
        else:
            rows.append(row)
    _check_apart(rows)
    return _gathered(rows, skipped, specs)


def _rows_of(source: object) -> Iterator[tuple[dict[Any, Any], bool]]:
    """Yield each row, and whether it is the primitive of an object."""
    document = primitive.parse_document(source, _ROOT)
    if document is None:
        return
    if isinstance(document, Mapping):
        data = primitive.unwrap(document, _ROOT, DEVICES)[0]
        primitive.reject_unknown(data, {"objects"}, f"{_ROOT}.")
        document = data.get("objects")
    for place, given in enumerate(primitive.parse_list(document, _ROOT)):
        row = primitive.require_object(given, f"{_ROOT}[{place}]")
        yield row, primitive.is_wrapped(row)


def _check_apart(rows: Sequence[_ReadRow]) -> None:
    nodes = {row.rest.get("compute_node_id") for row in rows} - {None}
    if len(nodes) > 1:
        shown = sorted(map(str, nodes))
        raise primitive.invalid(f"{_ROOT}.compute_node_id", shown, "the devices of one host")
    counts = Counter(row.address for row in rows)
    twice = sorted(address for address, count in counts.items() if count > 1)
    if twice:
        raise primitive.invalid(f"{_ROOT}.address", twice, "each device once")


def _gathered(
    rows: Sequence[_ReadRow], skipped: list[SkippedRow], specs: Sequence[NovaDeviceRule] | None
) -> NovaDevices:
    kept: dict[str, tuple[_ReadRow, Device]] = {}
    usage = []
    types = {row.address: row.device.type for row in rows if row.device is not None}
    for row in rows:
        device, reason = _known_as(row, types, specs)
        if reason and not row.is_held:
            skipped.append(SkippedRow(row.address, reason))
            continue
        kept[row.address] = row, device
        if row.is_held:
            usage.append(DeviceUse(row.address, row.status, gone=bool(reason)))
    devices = tuple(device for _, device in kept.values())
    shelf = Devices(devices, usage)
    return NovaDevices(
        devices,
        tuple(usage),
        FrozenDict({use.address: kept[use.address][0].holder for use in usage}),
        tuple(skipped),
        tuple(found for row, device in kept.values() for found in _findings(row, device, shelf)),
        FrozenDict({address: row.rest for address, (row, _) in kept.items()}),
    )


def _known_as(
    row: _ReadRow, types: Mapping[str, str], specs: Sequence[NovaDeviceRule] | None
) -> tuple[Device, str]:
    """Return the device of a row, and why it is not to be had when it is free."""
    device: Any = row.device
    tagged = device if specs is None else tagged_device(device, specs)
    if tagged is None:
        return device, "no entry of device_spec is about it"
    above = types.get(device.parent)
    if above not in (None, PF):
        return tagged, f"its parent {device.parent} is {above}"
    return tagged, ""


def _findings(row: _ReadRow, device: Device, shelf: Devices) -> Iterator[DeviceFinding]:
    said, holder = row.status, row.holder.instance_uuid
    if row.is_held:
        relatives = [device.parent, *shelf.parts_of(row.address)]
        held = [address for address in relatives if address in shelf.uses]
        if held:
            yield DeviceFinding(row.address, said, f"that it cannot be: {held[0]} is held too")
        if holder is None:
            yield DeviceFinding(row.address, f"{said}, by nobody", "that somebody has it")
        return
    follows = shelf.state(row.address)
    if (said in _BLOCKED) != (follows in _BLOCKED):
        yield DeviceFinding(row.address, said, follows)
    if holder is not None:
        yield DeviceFinding(row.address, f"{said}, by {holder}", "that nobody has it")


# --- writing --------------------------------------------------------------------------------------


def dump_pci_devices(
    found: NovaDevices,
    *,
    versioned: bool = False,
    leave_out: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return devices as rows of ``pci_devices``, or as Nova's objects in wire form.

    The state of each follows from who has which. What a row has and no device is taken from
    ``rows``, if it is there; ``dev_id`` and ``label`` are made up as Nova's driver does.

    :param versioned: as the objects that Nova sends, not as rows
    :param leave_out: what may be left unsaid, for Nova has no word for it: ``spent``, which is
        available then
    :raises CannotDowngrade: for a device that is spent
    :raises InvalidInventory: if these are no devices
    :raises InvalidInput: if something else is to be left out

    >>> gpu = Device("0000:3b:00.0", "10de", "2330", numa_node=1)
    >>> (row,) = dump_pci_devices(NovaDevices((gpu,)))
    >>> row["status"], row["label"], load_pci_devices([row]).devices == (gpu,)
    ('available', 'label_10de_2330', True)
    """
    if not isinstance(found, NovaDevices):
        raise InvalidInventory("devices", found, "NovaDevices")
    allowed = primitive.optional_names(leave_out, _OPTIONAL)
    shelf = Devices(found.devices, found.usage)
    return [_written(found, device, shelf, versioned, allowed) for device in found.devices]


def _written(
    found: NovaDevices, device: Device, shelf: Devices, versioned: bool, allowed: Collection[str]
) -> dict[str, Any]:
    rest = found.rows.get(device.address, {})
    holder = found.holders.get(device.address, DeviceHolder())
    state = shelf.state(device.address)
    if state in _BLOCKED:
        state = rest.get("status", state)
    if state == SPENT:
        if "spent" not in allowed:
            raise primitive.inexpressible(DEVICE, f"{device.address} has the status {state}")
        state = AVAILABLE
    row = _write_row(device, state, holder, rest, versioned)
    return primitive.wrap(DEVICE, row) if versioned else row


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
_HELD: Final = (CLAIMED, ALLOCATED)
#: What follows from who has a relative. After some of them were freed Nova may have either.
_BLOCKED: Final = (UNCLAIMABLE, UNAVAILABLE)
_STATUS: Final = (AVAILABLE, *_HELD, *_BLOCKED, *_REMOVED)
#: Words of ``extra_info`` that Nova matches by.
_TAGS: Final = (PARENT_IFNAME, "managed")
_LIVE: Final = "live_migratable"
#: Where the parent was before it had a column.
_OLD_PARENT: Final = "phys_function"


class DeviceHolder(NamedTuple):
    """Who has a device, and for which of its requests; uuids as Nova has them."""

    instance_uuid: str | None = None
    request_id: str | None = None


class _ReadRow(NamedTuple):
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


def _read_row(data: Mapping[Any, Any]) -> _ReadRow:
    """Return what a row says.

    :raises InvalidInput: if it is none, or contradicts itself; not for an address, which is a
        reason to leave it out
    """
    primitive.reject_unknown(data, _COLUMNS)
    status = data.get("status")
    if status not in _STATUS:
        raise primitive.invalid("status", status, f"one of {', '.join(_STATUS)}")
    said = _text(data, "address")
    holder = DeviceHolder(
        *(primitive.require_label(data.get(name), name) for name in DeviceHolder._fields)
    )
    rest = {name: data[name] for name in _ROW if name in data}
    for name in ("id", "compute_node_id"):
        if rest.get(name) is not None:
            primitive.require_int(rest[name], name, 0, MAX_FIGURE)
    if status in _REMOVED or data.get("deleted"):
        return _ReadRow(
            said, None, status, holder, rest, "removed" if status in _REMOVED else "deleted"
        )
    try:
        device = _device(data, parse_address(said))
    except InvalidInput as error:
        if not error.is_about("PCI address"):
            raise
        return _ReadRow(said, None, status, holder, rest, str(error))
    kept = {**rest, "status": status} if status in _BLOCKED else rest
    return _ReadRow(device.address, device, status, holder, FrozenDict(kept))


def _text(data: Mapping[Any, Any], name: str) -> str:
    found = primitive.require_label(data.get(name), name)
    if found is None:
        raise primitive.invalid(name, None, "text")
    return found


def _device(data: Mapping[Any, Any], address: str) -> Device:
    info = _extra_info(data.get("extra_info"))
    node, parent = (
        data.get("numa_node"),
        primitive.require_label(data.get("parent_addr"), "parent_addr"),
    )
    kind = _text(data, "dev_type")
    if parent is None and kind in PARTS:
        parent = info.pop(_OLD_PARENT, None)
    live = primitive.parse_flag(info.get(_LIVE))
    if live is not None:
        del info[_LIVE]
    tags: dict[str, str] = {name: info.pop(name) for name in _TAGS if name in info}
    return Device(
        address,
        _text(data, "vendor_id").lower(),
        _text(data, "product_id").lower(),
        kind,
        parent=None if parent is None else parse_address(parent),
        numa_node=None if node is None else primitive.require_int(node, "numa_node", 0, MAX_NODE),
        tags=tags,
        live_migratable=live,
        facts=info,
    )


def _extra_info(given: object) -> dict[str, str]:
    """Return words by name; what is no text is JSON, as Nova makes it."""
    found = primitive.parse_document(given, "extra_info")
    if found is None:
        return {}
    return {
        name: value if isinstance(value, str) else _json(value, f"extra_info.{name}")
        for name, value in primitive.require_object(found, "extra_info").items()
    }


def _json(value: object, what: str) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise primitive.invalid(what, value, "text, or what JSON has") from None


# --- writing --------------------------------------------------------------------------------------


def _write_row(
    device: Device, status: str, holder: DeviceHolder, rest: Mapping[str, Any], versioned: bool
) -> dict[str, Any]:
    """Return a device as a row has it, or the data of a versioned object."""
    info = {**device.facts, **{name: device.tags[name] for name in _TAGS if name in device.tags}}
    if device.live_migratable is not None:
        info[_LIVE] = primitive.format_flag(device.live_migratable)
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
        "request_id": holder.request_id,
        "numa_node": device.numa_node,
        "parent_addr": device.parent,
        "extra_info": info if versioned else json.dumps(info),
    }
    return {name: _time(value) for name, value in found.items()} if versioned else found


def _time(value: object) -> object:
    """Return a time as Nova's objects have it in JSON; anything else as it is."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return value
