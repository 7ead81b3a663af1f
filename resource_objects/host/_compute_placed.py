"""What is pending of assigned amounts: what is given back of it is pending no more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from resource_objects.resources.numa import NUMATopologyAmount
from resource_objects.resources.pci import DeviceRequest, PCIAmount, PlacedDevice

_PlacedT = TypeVar("_PlacedT", bound=NUMATopologyAmount | PCIAmount)


def with_placed(pending: tuple[_PlacedT, ...], assigned: _PlacedT) -> tuple[_PlacedT, ...]:
    """Return what is pending with one more."""
    for place, one in enumerate(pending):
        opposite = one.is_negative != assigned.is_negative and one.placed == assigned.placed
        if opposite and -one == assigned:
            return (*pending[:place], *pending[place + 1 :])
    return (*pending, assigned)


def with_devices(pending: tuple[PCIAmount, ...], assigned: PCIAmount) -> tuple[PCIAmount, ...]:
    """Return what is pending with one more; also if only some of the devices are given back.

    >>> from resource_objects.resources.pci import Device, PCIInventory, devices
    >>> lab = PCIInventory([Device(f"0000:0{n}:00.0", "10de", "2330") for n in (1, 2)])
    >>> two = lab.fit(devices("10de:2330", 2))
    >>> for one in with_devices((two,), -only(two, ["0000:01:00.0"])):
    ...     print(one)
    10de.2330@on=CUSTOM_PCI_10DE_2330>0000:02:00.0
    """
    found = with_placed(pending, assigned)
    if not assigned.gives_back or len(found) < len(pending):
        return found
    back = set(assigned.addresses)
    kept: list[PCIAmount] = []
    for one in pending:
        both = set() if one.gives_back else back.intersection(one.addresses)
        left = set(one.addresses) - both
        if left:
            kept.append(only(one, left) if both else one)
        back -= both
    return (*kept, only(assigned, back)) if back else tuple(kept)


def only(amount: PCIAmount, addresses: Collection[str]) -> PCIAmount:
    """Return an amount of some of its devices alone, as if no more had been asked for."""
    if len(addresses) == len(amount.placed):
        return amount
    requests: list[DeviceRequest] = []
    placed: list[PlacedDevice] = []
    for number, request in enumerate(amount.requests):
        own = [d for d in amount.placed if d.request == number and d.address in addresses]
        if own:
            placed += [device.replace(request=len(requests)) for device in own]
            given = request.providers if len(own) == request.count else ()
            requests.append(request.replace(count=len(own), providers=given))
    return PCIAmount(requests, placed=placed, gives_back=amount.gives_back)


def in_one(devices: Sequence[PCIAmount]) -> PCIAmount | None:
    """Return one amount that says what several say, None if some are taken and some given back.

    >>> from resource_objects.resources.pci import Device, PCIInventory, devices
    >>> lab = PCIInventory([Device(f"0000:0{n}:00.0", "10de", "2330") for n in (1, 2)])
    >>> print(in_one([lab.consume(devices("10de:2330")) for _ in range(2)]))
    10de.2330@on=CUSTOM_PCI_10DE_2330>0000:01:00.0/10de.2330@on=...
    """
    if len(devices) == 1:
        return devices[0]
    if any(one.gives_back for one in devices):
        return None
    requests: list[DeviceRequest] = []
    placed: list[PlacedDevice] = []
    for one in devices:
        placed += [device.replace(request=device.request + len(requests)) for device in one.placed]
        requests += one.requests
    return PCIAmount(requests, placed=placed)


__all__ = ["in_one", "only", "with_devices", "with_placed"]
