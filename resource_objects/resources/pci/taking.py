"""Taking devices and giving them back: what is assigned is checked, and then written down."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from resource_objects.exceptions import (
    CapacityException,
    ForeignAmount,
    NegativeAmount,
    Reason,
    Rule,
)
from resource_objects.resources.pci import words
from resource_objects.resources.pci.amount import PCIAmount, PlacedDevice
from resource_objects.resources.pci.device import DeviceUse
from resource_objects.resources.pci.near import Where, rings
from resource_objects.resources.pci.shelf import Devices


def check(
    shelf: Devices, amount: PCIAmount, where: Where | None, within: Collection[str] | None
) -> None:
    """Raise unless what is assigned can be taken, or given back, as it is.

    :raises ForeignAmount: if a device is not here, or is another than it was
    :raises CapacityException: if one is taken, or is not held by anybody who could give it back
    """
    for device in amount.placed:
        _check_known(shelf, amount, device)
    found = _not_held(shelf, amount) if amount.gives_back else _not_free(shelf, amount)
    reasons = [*found]
    if not amount.gives_back:
        reasons += _too_far(amount, where)
        if within is not None:
            out = [device for device in amount.placed if device.address not in within]
            reasons += [
                Reason(Rule.FOREIGN, 1, 0, 0, device.resource_class, unit=device.address)
                for device in out
            ]
    if reasons:
        raise CapacityException.of(reasons)


def _check_known(shelf: Devices, amount: PCIAmount, device: PlacedDevice) -> None:
    known = shelf.devices.get(device.address)
    if known is None:
        raise ForeignAmount("device", device.address, "one of these devices")
    if known.resource_class != device.resource_class:
        what = f"device {device.address}"
        raise ForeignAmount(what, device.resource_class, known.resource_class)
    if amount.gives_back:
        return
    if not amount.requests[device.request].matches(known):
        what = f"device {device.address}"
        raise ForeignAmount(what, str(known), f"what {amount.unassigned()} asks for")
    if device.numa_node != known.numa_node:
        what = f"node of device {device.address}"
        raise ForeignAmount(what, device.numa_node, f"{known.numa_node}, as it is")
    parts = shelf.parts_of(device.address) if known.type == words.PF else ()
    if device.parts != parts:
        what = f"functions split off {device.address}"
        raise ForeignAmount(what, device.parts, f"those there are: {parts}")


def _not_free(shelf: Devices, amount: PCIAmount) -> Iterator[Reason]:
    taken = {device.address for device in amount.placed}
    for device in amount.placed:
        own = shelf.devices[device.address]
        if not shelf.is_free(device.address) or own.parent in taken:
            yield Reason(Rule.UNIT_TAKEN, 1, 0, 1, device.resource_class, unit=device.address)


def _not_held(shelf: Devices, amount: PCIAmount) -> Iterator[Reason]:
    for device in amount.placed:
        use = shelf.uses.get(device.address)
        if use is None or not use.is_held:
            yield Reason(Rule.USED_BELOW_ZERO, -1, 0, 0, device.resource_class, unit=device.address)


def _too_far(amount: PCIAmount, where: Where | None) -> Iterator[Reason]:
    for place, request in enumerate(amount.requests):
        far = rings(request.affinity, where)
        mine = [device for device in amount.placed if device.request == place]
        near = [device for device in mine if far(device.numa_node) is not None]
        if len(near) < len(mine):
            name = mine[0].resource_class
            yield Reason(Rule.AFFINITY, len(mine), len(near), 0, name)


def after(shelf: Devices, amount: PCIAmount) -> dict[str, DeviceUse | None]:
    """Return what is taken of each device of an assigned amount after it; None for nothing."""
    if not amount.gives_back:
        return {
            device.address: DeviceUse._as_kept(
                address=device.address, state=words.CLAIMED, then=None, gone=False
            )
            for device in amount.placed
        }
    return {device.address: _given_back(shelf, device.address) for device in amount.placed}


def _given_back(shelf: Devices, address: str) -> DeviceUse | None:
    use = shelf.uses.get(address)
    is_gone = use is not None and use.gone
    if shelf.devices[address].one_time_use and not is_gone:
        return DeviceUse(address, words.SPENT)
    return None


def allocated(shelf: Devices, amount: PCIAmount) -> dict[str, DeviceUse | None]:
    """Return what is taken of devices that are claimed once they are in use.

    :raises NotAssigned: if it does not say which devices
    :raises NegativeAmount: if it gives them back
    :raises CapacityException: if one is not claimed
    """
    if amount.gives_back:
        raise NegativeAmount("devices", amount, "claimed ones, to use: not given back")
    reasons = []
    found: dict[str, DeviceUse | None] = {}
    for address in amount.addresses:
        use = shelf.uses.get(address)
        if use is None or use.state != words.CLAIMED:
            device = next(one for one in amount.placed if one.address == address)
            reasons.append(
                Reason(Rule.USED_BELOW_ZERO, -1, 0, 0, device.resource_class, unit=address)
            )
        else:
            found[address] = use.replace(state=words.ALLOCATED)
    if reasons:
        raise CapacityException.of(reasons)
    return found
