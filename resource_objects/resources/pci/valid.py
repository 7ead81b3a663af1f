"""What makes devices an inventory: each address once, parts of what can be split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from resource_objects import exceptions
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import Device, DeviceUse
from resource_objects.resources.pci.pool import DevicePool


def check(
    devices: Sequence[Device], usage: Sequence[DeviceUse], pools: Sequence[DevicePool]
) -> None:
    """Raise unless these go together.

    :raises DuplicateKey: for an address that is stated twice
    :raises InvalidDevice: for a part of what is no physical function, use of what is not here, or a
        physical function that is held beside a part of it
    :raises InvalidInventory: for pools beside devices
    """
    if pools:
        if devices or usage:
            raise exceptions.InvalidInventory("devices", len(devices), "none beside pools")
        return
    _check_apart("address", (device.address for device in devices))
    _check_apart("address of what is taken", (use.address for use in usage))
    known = {device.address: device for device in devices}
    for use in usage:
        if use.address not in known:
            raise exceptions.InvalidDevice("device that is taken", use.address, "one of these")
    _check_parents(_settled(known, usage), usage)
    _check_families(known, usage)


def _settled(known: Mapping[str, Device], usage: Sequence[DeviceUse]) -> dict[str, Device]:
    """Return devices as they are once nobody holds any: until then some wait for it."""
    settled = dict(known)
    for use in usage:
        if use.then is not None:
            settled[use.address] = use.then
        elif use.gone:
            del settled[use.address]
    return settled


def _check_parents(known: Mapping[str, Device], usage: Sequence[DeviceUse]) -> None:
    """Refuse a part of what is no physical function, unless one of them is not given out at all."""
    spent = {use.address for use in usage if use.state == words.SPENT}
    for device in known.values():
        above = known.get(device.parent or "")
        if above is None or above.type == words.PF or spent & {device.address, above.address}:
            continue
        what = f"parent of {device.address}, {above.address}"
        raise exceptions.InvalidDevice(what, above.type, words.PF)


def _check_families(known: Mapping[str, Device], usage: Sequence[DeviceUse]) -> None:
    """Refuse a physical function that is held beside a part of it."""
    held = {use.address for use in usage if use.is_held}
    for address in sorted(held):
        parent = known[address].parent
        if parent in held:
            raise exceptions.InvalidDevice(
                f"devices that are taken, {parent}",
                address,
                "one of the two: they exclude each other",
            )


def _check_apart(what: str, addresses: Iterable[str]) -> None:
    twice = sorted(address for address, count in Counter(addresses).items() if count > 1)
    if twice:
        raise exceptions.DuplicateKey(what, twice, "each device once")
