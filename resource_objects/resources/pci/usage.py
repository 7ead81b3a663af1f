"""Taking devices and giving them back: what is assigned is checked, and then written down."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, ForeignAmount
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.context import ChosenCells
from resource_objects.resources.pci.amount import DeviceRequest, PCIAmount, PlacedDevice
from resource_objects.resources.pci.device import (
    CLAIMED,
    PF,
    SPENT,
    Device,
    DeviceUse,
)
from resource_objects.resources.pci.device_groups import Devices
from resource_objects.resources.pci.fit import rings

_invalid_device = functools.partial(exceptions.InvalidInput, "device")


def check_assigned(
    shelf: Devices, amount: PCIAmount, where: ChosenCells | None, within: Collection[str] | None
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
        reasons += _beyond_limits(shelf, amount)
        reasons += _too_far(amount, where)
        if within is not None:
            out = [device for device in amount.placed if device.address not in within]
            reasons += [
                Reason(Rule.FOREIGN, 1, 0, 0, device.resource_class, unit=device.address)
                for device in out
            ]
    if reasons:
        raise CapacityException(reasons)


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
    parts = shelf.parts_of(device.address) if known.type == PF else ()
    if device.parts != parts:
        what = f"functions split off {device.address}"
        raise ForeignAmount(what, device.parts, f"those there are: {parts}")


def _not_free(shelf: Devices, amount: PCIAmount) -> Iterator[Reason]:
    taken = {device.address for device in amount.placed}
    for device in amount.placed:
        own = shelf.devices[device.address]
        if not shelf.is_free(device.address) or own.parent in taken:
            yield Reason(Rule.UNIT_TAKEN, 1, 0, 1, device.resource_class, unit=device.address)


def _beyond_limits(shelf: Devices, amount: PCIAmount) -> Iterator[Reason]:
    for bound in shelf.bounds():
        own = [one for one in amount.placed if one.address in bound.free]
        if own and len(own) > bound.most:
            yield Reason(Rule.LIMIT, len(own), bound.limit, bound.used, bound.resource_class)


def _not_held(shelf: Devices, amount: PCIAmount) -> Iterator[Reason]:
    for device in amount.placed:
        use = shelf.uses.get(device.address)
        if use is None or not use.is_held:
            yield Reason(Rule.USED_BELOW_ZERO, -1, 0, 0, device.resource_class, unit=device.address)


def _too_far(amount: PCIAmount, where: ChosenCells | None) -> Iterator[Reason]:
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
            device.address: DeviceUse._construct(address=device.address, state=CLAIMED, gone=False)
            for device in amount.placed
        }
    return {device.address: _given_back(shelf, device.address) for device in amount.placed}


def _given_back(shelf: Devices, address: str) -> DeviceUse | None:
    use = shelf.uses.get(address)
    if shelf.devices[address].one_time_use or (use is not None and use.gone):
        return DeviceUse(address, SPENT)
    return None


# --- what makes devices an inventory --------------------------------------------------------------


def check_devices(devices: Sequence[Device], usage: Sequence[DeviceUse]) -> None:
    """Raise unless these go together.

    :raises InvalidInput: for an address that is stated twice; for a part of what is no physical
        function, use of what is not here, or a physical function that is held beside a part of it
    """
    _check_apart("address", (device.address for device in devices))
    _check_apart("address of what is taken", (use.address for use in usage))
    known = {device.address: device for device in devices}
    for use in usage:
        if use.address not in known:
            raise _invalid_device("device that is taken", use.address, "one of these")
    _check_parents(known, usage)
    _check_families(known, usage)


def _check_parents(known: Mapping[str, Device], usage: Sequence[DeviceUse]) -> None:
    """Refuse a part of what is no physical function, unless one of them is not given out at all."""
    spent = {use.address for use in usage if use.state == SPENT or use.gone}
    for device in known.values():
        above = known.get(device.parent or "")
        if above is None or above.type == PF or spent & {device.address, above.address}:
            continue
        what = f"parent of {device.address}, {above.address}"
        raise _invalid_device(what, above.type, PF)


def _check_families(known: Mapping[str, Device], usage: Sequence[DeviceUse]) -> None:
    """Refuse a physical function that is held beside a part of it."""
    held = {use.address for use in usage if use.is_held}
    for address in sorted(held):
        parent = known[address].parent
        if parent in held:
            raise _invalid_device(
                f"devices that are taken, {parent}",
                address,
                "one of the two: they exclude each other",
            )


def _check_apart(what: str, addresses: Iterable[str]) -> None:
    twice = sorted(address for address, count in Counter(addresses).items() if count > 1)
    if twice:
        raise exceptions.InvalidInput("repetition", what, twice, "each device once")


# --- what was taken, net --------------------------------------------------------------------------


def noted_in_part(taken: tuple[PCIAmount, ...], assigned: PCIAmount) -> tuple[PCIAmount, ...]:
    """Return what is taken with one more: of what is given back, both are gone.

    >>> from resource_objects.resources.pci import Device, PCIInventory, devices
    >>> lab = PCIInventory([Device(f"0000:0{n}:00.0", "10de", "2330") for n in (1, 2)])
    >>> two = lab.fit(devices("10de:2330", 2))
    >>> back = -only(two, ["0000:01:00.0"])
    >>> for one in noted_in_part((two,), back):
    ...     print(one)
    10de.2330@on=0000:02:00.0
    """
    if not assigned.gives_back:
        return (*taken, assigned)
    back = set(assigned.addresses)
    kept: list[PCIAmount] = []
    for one in taken:
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


def joined(several: Sequence[PCIAmount]) -> PCIAmount | None:
    """Return one amount that says what several say, None if some are taken and some given back.

    >>> from resource_objects.resources.pci import Device, PCIInventory, devices
    >>> lab = PCIInventory([Device(f"0000:0{n}:00.0", "10de", "2330") for n in (1, 2)])
    >>> print(joined([lab.consume(devices("10de:2330")) for _ in range(2)]))
    10de.2330/10de.2330@on=0000:01:00.0+...
    """
    if len(several) == 1:
        return several[0]
    if any(one.gives_back for one in several):
        return None
    requests: list[DeviceRequest] = []
    placed: list[PlacedDevice] = []
    for one in several:
        placed += [device.replace(request=device.request + len(requests)) for device in one.placed]
        requests += one.requests
    return PCIAmount(requests, placed=placed)
