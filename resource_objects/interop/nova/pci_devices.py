"""``pci_devices``: the devices of a host and who has them, read and written.

Read are rows of the table, as mappings by column, and ``PciDevice`` objects of 1.0 to 1.7, or a
``PciDeviceList``; rows and objects are written. What is the same by another name:

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

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from resource_objects.exceptions import (
    CannotDowngrade,
    InvalidInput,
    InvalidInventory,
    InvalidPrimitive,
)
from resource_objects.fields import FrozenDict
from resource_objects.interop.nova import _pci_rows, _primitive
from resource_objects.interop.nova._pci_rows import DeviceHolder, Row
from resource_objects.interop.nova._versions import DEVICE, DEVICES, device_versions
from resource_objects.interop.nova.pci_device_spec import DeviceSpecEntry
from resource_objects.interop.nova.pci_tagging import tagged_device
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import Device, DeviceUse
from resource_objects.resources.pci.shelf import Devices

__all__ = [
    "DeviceFinding",
    "DeviceHolder",
    "NovaDevices",
    "SkippedDevice",
    "dump_pci_devices",
    "load_pci_devices",
]

_ROOT: Final = "pci_devices"
#: What may be left unsaid, for no version or not the one that is asked for has a word for it.
_OPTIONAL: Final = ("numa_node", "request_id", "spent")


class SkippedDevice(NamedTuple):
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
    skipped: tuple[SkippedDevice, ...] = ()
    findings: tuple[DeviceFinding, ...] = ()
    rows: Mapping[str, Mapping[str, Any]] = FrozenDict()


# --- reading --------------------------------------------------------------------------------------


def load_pci_devices(
    source: str | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]] | None,
    *,
    specs: Sequence[DeviceSpecEntry] | None = None,
) -> NovaDevices:
    """Return the devices of a host, and what is taken of them.

    A device whose address cannot be read, or has a domain of more than 16 bits, is left out by
    itself. So is, with ``specs``, a free one that no entry is about; one that is held is kept, and
    is gone when it is free.

    :param source: rows as mappings, or primitives of Nova's objects; or JSON text of these
    :param specs: ``[pci] device_spec`` of the host, as :func:`.parse_device_spec` returns it; None
        for devices as the rows have them
    :raises InvalidPrimitive: if one is no such row, or they are of several hosts
    :raises InvalidWords: if ``specs`` and a device do not go together

    Cost: 80 microseconds for each device, half as much again with ``specs``.

    >>> row = {"address": "0000:04:00.0", "vendor_id": "8086", "product_id": "1563",
    ...     "dev_type": "type-PF", "status": "unavailable"}
    >>> found = load_pci_devices([row, {**row, "address": "0000:04:10.0", "dev_type": "type-VF",
    ...     "parent_addr": "0000:04:00.0", "status": "allocated", "instance_uuid": "a-guest"}])
    >>> print(*found.usage, found.findings)
    DeviceUse(address='0000:04:10.0', state='allocated', then=None, gone=False) ()
    """
    rows, skipped = [], []
    for place, (data, what) in enumerate(_rows_of(source)):
        try:
            row = _pci_rows.read(_primitive.opened(data, "", DEVICE)[0] if what else data)
        except InvalidInput as error:
            _primitive.at(f"{_ROOT}[{place}]", error)
        if row.device is None:
            skipped.append(SkippedDevice(row.address, row.reason))
        else:
            rows.append(row)
    _check_apart(rows)
    return _gathered(rows, skipped, specs)


def _rows_of(source: object) -> Iterator[tuple[dict[Any, Any], bool]]:
    """Yield each row, and whether it is the primitive of an object."""
    document = _primitive.parsed(source, _ROOT)
    if document is None:
        return
    if isinstance(document, Mapping):
        data = _primitive.opened(document, _ROOT, DEVICES)[0]
        _primitive.only(data, {"objects"}, f"{_ROOT}.")
        document = data.get("objects")
    for place, given in enumerate(_primitive.sequence(words.listed(document), _ROOT)):
        row = _primitive.mapping(given, f"{_ROOT}[{place}]")
        yield row, _primitive.is_enveloped(row)


def _check_apart(rows: Sequence[Row]) -> None:
    nodes = {row.rest.get("compute_node_id") for row in rows} - {None}
    if len(nodes) > 1:
        shown = sorted(map(str, nodes))
        raise InvalidPrimitive(f"{_ROOT}.compute_node_id", shown, "the devices of one host")
    counts = Counter(row.address for row in rows)
    twice = sorted(address for address, count in counts.items() if count > 1)
    if twice:
        raise InvalidPrimitive(f"{_ROOT}.address", twice, "each device once")


def _gathered(
    rows: Sequence[Row], skipped: list[SkippedDevice], specs: Sequence[DeviceSpecEntry] | None
) -> NovaDevices:
    kept: dict[str, tuple[Row, Device]] = {}
    usage = []
    types = {row.address: row.device.type for row in rows if row.device is not None}
    for row in rows:
        device, reason = _known_as(row, types, specs)
        if reason and not row.is_held:
            skipped.append(SkippedDevice(row.address, reason))
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
    row: Row, types: Mapping[str, str], specs: Sequence[DeviceSpecEntry] | None
) -> tuple[Device, str]:
    """Return the device of a row, and why it is not to be had when it is free."""
    device: Any = row.device
    tagged = device if specs is None else tagged_device(device, specs)
    if tagged is None:
        return device, "no entry of device_spec is about it"
    above = types.get(device.parent)
    if above not in (None, words.PF):
        return tagged, f"its parent {device.parent} is {above}"
    return tagged, ""


def _findings(row: Row, device: Device, shelf: Devices) -> Iterator[DeviceFinding]:
    """Yield what a row says that contradicts its relatives, or itself."""
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
    if (said in _pci_rows.BLOCKED) != (follows in _pci_rows.BLOCKED):
        yield DeviceFinding(row.address, said, follows)
    if holder is not None:
        yield DeviceFinding(row.address, f"{said}, by {holder}", "that nobody has it")


# --- writing --------------------------------------------------------------------------------------


def dump_pci_devices(
    found: NovaDevices,
    version: str | Mapping[str, str] | None = None,
    *,
    leave_out: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return devices as rows of ``pci_devices``, or as Nova's objects in wire form.

    The state of each follows from who has which. What a row has and no device is taken from
    ``rows``, if it is there; ``dev_id`` and ``label`` are made up as Nova's driver does.

    :param version: of ``PciDevice``, such as ``"1.5"``, or what a receiver reads, ``{name:
        version}``: then objects. None: rows
    :param leave_out: what may be left unsaid where there is no word for it: ``spent``, which is
        available then; of old versions ``numa_node``, ``request_id``
    :raises CannotDowngrade: if it cannot be said
    :raises UnsupportedVersion: if there is no such version
    :raises InvalidInventory: if these are no devices
    :raises InvalidField: if something else is to be left out

    >>> gpu = Device("0000:3b:00.0", "10de", "2330", numa_node=1)
    >>> (row,) = dump_pci_devices(NovaDevices((gpu,)))
    >>> row["status"], row["label"], load_pci_devices([row]).devices == (gpu,)
    ('available', 'label_10de_2330', True)
    """
    if not isinstance(found, NovaDevices):
        raise InvalidInventory("devices", found, "NovaDevices")
    minor = None if version is None else device_versions(version)[DEVICE]
    allowed = _primitive.left_out(leave_out, _OPTIONAL)
    shelf = Devices(found.devices, found.usage)
    return [_written(found, device, shelf, minor, allowed) for device in found.devices]


def _written(
    found: NovaDevices, device: Device, shelf: Devices, minor: int | None, allowed: Collection[str]
) -> dict[str, Any]:
    rest = found.rows.get(device.address, {})
    holder = found.holders.get(device.address, DeviceHolder())
    state = shelf.state(device.address)
    if state in _pci_rows.BLOCKED:
        state = rest.get("status", state)
    said = _pci_rows.NEWEST if minor is None else minor
    reasons = [*_pci_rows.unsaid(device, state, holder, said)]
    if state == words.SPENT:
        reasons.append(("spent", f"the status {state}"))
        state = words.AVAILABLE
    for name, reason in reasons:
        if name not in allowed:
            raise CannotDowngrade(DEVICE, f"1.{said}", f"{device.address} has {reason}")
    row = _pci_rows.write(device, state, holder, rest, minor)
    return row if minor is None else _primitive.enveloped(DEVICE, minor, row)
