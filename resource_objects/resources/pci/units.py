"""Devices as units: who asks for a count gets some by name, and who has those that are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.resources.pci import pieces, refusal, words
from resource_objects.resources.pci.amount import PCIAmount
from resource_objects.resources.pci.device import Device
from resource_objects.resources.pci.flow import Flow
from resource_objects.resources.pci.near import Where
from resource_objects.resources.pci.question import demands_of, lay
from resource_objects.resources.pci.shelf import Devices
from resource_objects.resources.pci.wish import DeviceRequest

#: The rules that fail because somebody has devices.
_BY_OTHERS = frozenset({Rule.CAPACITY, Rule.AFFINITY, Rule.AT_ONCE})


def some_units(
    shelf: Devices,
    devices: Sequence[Device],
    resource_class: str,
    count: int,
    taken: Collection[str],
) -> tuple[str, ...] | None:
    """Return units of so many devices of a class, None if so many are not free.

    Plain devices come before those with tags, then the order is by address. What goes with a
    physical function is among them.

    :param devices: those of one part
    :param taken: units that somebody else is going to have
    """
    free = [
        device
        for device in devices
        if device.resource_class == resource_class
        and shelf.is_free(device.address)
        and taken_with(shelf, device).isdisjoint(taken)
    ]
    if len(free) < count:
        return None
    free.sort(
        key=lambda device: (shelf.groups[shelf.group_of[device.address]].cost, device.address)
    )
    return tuple(sorted(unit for one in free[:count] for unit in taken_with(shelf, one)))


def taken_with(shelf: Devices, device: Device) -> frozenset[str]:
    """Return the units that whoever has a device has: itself, and functions split off it."""
    parts = shelf.parts_of(device.address) if device.type == words.PF else ()
    return frozenset((device.address, *parts))


def in_the_way(shelf: Devices, amount: PCIAmount, reason: Reason) -> frozenset[str]:
    """Return the devices that somebody has and a refused amount would need.

    Of a function that is needed whole they are those that are split off it.
    """
    if reason.rule is Rule.UNIT_TAKEN:
        device = shelf.devices.get(reason.unit or "")
        return frozenset() if device is None else frozenset(_held(shelf, device))
    if reason.rule not in _BY_OTHERS:
        return frozenset()
    meant = [request for request in amount.requests if _is_about(reason, request)]
    return frozenset(
        unit
        for device in shelf.devices.values()
        if any(request.matches(device) for request in meant)
        for unit in _held(shelf, device)
    )


def _is_about(reason: Reason, request: DeviceRequest) -> bool:
    if reason.rule is Rule.AT_ONCE:
        return reason.resource == refusal.ANY_CLASS
    kind = "|".join(map(pieces.say_spec, request.specs))
    is_class = reason.resource == (request.resource_class or refusal.ANY_CLASS)
    return is_class and reason.unit in (None, kind)


def _held(shelf: Devices, device: Device) -> Iterator[str]:
    """Yield what is held of a device: itself, or what it excludes."""
    address = device.address
    if address in shelf.uses or device.parent in shelf.uses:
        yield address
    yield from (part for part in shelf.split.get(address, ()) if part in shelf.uses)


def some_of(amount: PCIAmount, devices: Sequence[Device], where: Where | None) -> list[Device]:
    """Return those of some devices that meet an amount, as many as it asks for, by address.

    :param devices: by address
    :raises ForeignAmount: if they do not meet it
    """
    own = Devices(devices, (), apart=True)
    question = lay(own, demands_of(own, amount), where)
    flow = Flow(question.counts, question.may, dict.fromkeys(range(len(devices)), 1))
    if not flow.is_complete:
        shown = [device.address for device in devices]
        raise exceptions.ForeignAmount("devices", shown, f"what {amount} takes")
    return [devices[group] for group in sorted({g for has in flow.given for g in has})]
