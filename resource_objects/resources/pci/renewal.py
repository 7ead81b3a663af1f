"""Devices that come, go and change while some of them are held (Nova's ``PciDevTracker``, c.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resource_objects import exceptions
from resource_objects.resources.pci import valid, words
from resource_objects.resources.pci.device import Device, DeviceUse
from resource_objects.resources.pci.shelf import Devices


class Renewed(NamedTuple):
    """What a look at the devices changed: addresses."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    waiting: tuple[str, ...]  #: somebody holds it: gone or changed as soon as it is given back


class Renewal(NamedTuple):
    """Devices and their use as they are after a look, and what that changed."""

    devices: tuple[Device, ...]
    usage: tuple[DeviceUse, ...]
    said: Renewed


def renew(shelf: Devices, now: Sequence[Device]) -> Renewal:
    """Return the devices as they are now; what is held stays as it was until it is given back.

    :raises DuplicateKey: for an address that is given twice
    :raises InvalidDevice: for what is no device, or devices that contradict each other
    """
    found = _by_address(now)
    kept: dict[str, Device] = {}
    uses = {use.address: use for use in shelf.uses.values()}
    removed: list[str] = []
    changed: list[str] = []
    waiting: list[str] = []
    for address, old in shelf.devices.items():
        new = found.pop(address, None)
        use = uses.get(address)
        if use is not None and use.is_held:
            kept[address] = old
            uses[address] = DeviceUse(
                address, use.state, then=None if new == old else new, gone=new is None
            )
            if new != old:
                waiting.append(address)
        elif new is None:
            removed.append(address)
            uses.pop(address, None)
        else:
            kept[address] = new
            if new != old:
                changed.append(address)
    kept.update(found)
    devices = tuple(kept[address] for address in sorted(kept))
    usage = tuple(uses[address] for address in sorted(uses))
    said = Renewed(tuple(sorted(found)), *(tuple(sorted(s)) for s in (removed, changed, waiting)))
    return Renewal(devices, usage, said)


def _by_address(now: Sequence[Device]) -> dict[str, Device]:
    if not isinstance(now, list):
        raise exceptions.InvalidDevice("devices", now, f"a list of at most {words.MAX_DEVICES}")
    for device in now:
        if not isinstance(device, Device):
            raise exceptions.InvalidDevice("device", device, "a Device")
    valid.check(now, (), ())
    return {device.address: device for device in now}


def waiting(shelf: Devices, given_back: Mapping[str, DeviceUse | None]) -> dict[str, Device | None]:
    """Return what devices become that are given back, None for those that are gone."""
    found: dict[str, Device | None] = {}
    for address in given_back:
        use = shelf.uses.get(address)
        if use is not None and use.gone:
            found[address] = None
        elif use is not None and use.then is not None:
            found[address] = use.then
    return found
