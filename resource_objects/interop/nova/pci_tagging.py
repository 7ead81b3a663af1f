"""What ``[pci] device_spec`` makes of a device: its tags, class and traits."""

from __future__ import annotations

import json
from collections.abc import Iterable

from resource_objects.exceptions import InvalidDevice
from resource_objects.interop.nova import pci_errors
from resource_objects.interop.nova.pci_device_spec import (
    PARENT_IFNAME,
    DeviceSpecEntry,
    checked_entries,
)
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import Device

__all__ = ["tagged_device"]


def tagged_device(
    device: Device,
    entries: Iterable[DeviceSpecEntry],
    *,
    ifname: str | None = None,
    serial_number: str | None = None,
) -> Device | None:
    """Return a device as the first entry that is about it calls it; None if none is.

    Its class and traits are those that Nova has in Placement: upper case, with ``CUSTOM_`` if they
    are no standard ones; the class of what says none is that of its ids. Of what it was called
    before, only the interface of its physical function stays.

    :param ifname: the name of its network interface, for entries that say ``devname``
    :param serial_number: of its card; by default as its ``capabilities`` say
    :raises InvalidDevice: if it is no device
    :raises InvalidDeviceSpec: if the entries are not those that :func:`.parse_device_spec` returns
    :raises OneTimeUseOfPart: if it was split off another, and is said to be for one use or not
    :raises RemoteManagedFunction: if it is a physical function that is said, by its address, to be
        managed from elsewhere

    >>> from resource_objects.interop.nova import parse_device_spec
    >>> entries = parse_device_spec({"vendor_id": "10de", "resource_class": "gpu", "traits": "big"})
    >>> gpu = tagged_device(Device("0000:3b:00.0", "10de", "2330"), entries)
    >>> gpu.resource_class, sorted(gpu.traits)
    ('CUSTOM_GPU', ['CUSTOM_BIG'])
    >>> tagged_device(Device("0000:3c:00.0", "8086", "154c"), entries) is None
    True
    """
    if not isinstance(device, Device):
        raise InvalidDevice("device", device, "a Device")
    for entry in checked_entries(entries):
        if not entry.is_about(device, ifname):
            continue
        if entry.remote_managed:
            _check_remote(entry, device)
            if not (serial_number or serial_number_of(device)):
                continue
        return _tagged(entry, device)
    return None


def _check_remote(entry: DeviceSpecEntry, device: Device) -> None:
    is_named = entry.address is not None and entry.address.address == device.address
    if device.type == words.PF and is_named:
        expected = "no physical function: functions that are split off it can be"
        raise pci_errors.RemoteManagedFunction("remote_managed", device.address, expected)


def serial_number_of(device: Device) -> str | None:
    """Return the serial number of a device's card, as the fact ``capabilities`` says it."""
    try:
        said = json.loads(device.facts.get("capabilities", "{}"))
        found = said["vpd"]["card_serial_number"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def _tagged(entry: DeviceSpecEntry, device: Device) -> Device:
    if entry.one_time_use is not None and device.is_part:
        expected = "nothing of what was split off another device"
        raise pci_errors.OneTimeUseOfPart("one_time_use", device.address, expected)
    stays = {name: device.tags[name] for name in device.tags.keys() & {PARENT_IFNAME}}
    return device.replace(
        tags={**entry.tags, **stays},
        resource_class=entry.resource_class
        or words.custom_class(device.vendor_id, device.product_id),
        traits=device.traits | entry.traits,
        remote_managed=entry.remote_managed,
        live_migratable=entry.live_migratable,
        one_time_use=bool(entry.one_time_use),
    )
