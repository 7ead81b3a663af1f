"""The decision: which devices meet an amount, all or nothing. Pure; the inputs do not change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException
from resource_objects.resources.pci import refusal, words
from resource_objects.resources.pci.amount import PCIAmount, PlacedDevice
from resource_objects.resources.pci.device import Device
from resource_objects.resources.pci.divide import Given, divide
from resource_objects.resources.pci.flow import Flow
from resource_objects.resources.pci.near import Where, rings
from resource_objects.resources.pci.question import Demand, Question, demands_of, lay
from resource_objects.resources.pci.shelf import Devices


def place(
    shelf: Devices, amount: PCIAmount, where: Where | None, within: Collection[str] | None
) -> PCIAmount:
    """Return the amount, assigned.

    :param within: addresses that may be used, None for all
    :raises CapacityException: if it cannot be met
    :raises SearchLimitReached: if the budget ran out before it was known
    """
    if names_addresses(amount):
        shelf = Devices(shelf.devices.values(), shelf.uses.values(), apart=True)
    demands = demands_of(shelf, amount)
    question = lay(shelf, demands, where, within)
    given = divide(question)
    if given is None:
        raise CapacityException.of(refusal.reasons(question, where))
    chosen = _chosen(shelf, question, given)
    if len(amount.requests) == 1:
        return with_devices(shelf, amount, ((0, device) for device in chosen))
    return with_devices(shelf, amount, assigned(shelf, amount, chosen, where))


def names_addresses(amount: PCIAmount) -> bool:
    """Return whether an amount asks for a device by its address."""
    return any(spec.address for request in amount.requests for spec in request.specs)


def _chosen(shelf: Devices, question: Question, given: Given) -> list[Device]:
    """Return the devices that are taken, by address: of each group the first ones."""
    counts: dict[int, int] = {}
    for has in given:
        for group, count in has.items():
            counts[group] = counts.get(group, 0) + count
    found: list[str] = []
    for group, count in counts.items():
        found += question.free[group][:count]
    return [shelf.devices[address] for address in sorted(found)]


def assigned(
    shelf: Devices, amount: PCIAmount, chosen: Sequence[Device], where: Where | None
) -> list[tuple[int, Device]]:
    """Return which request has which of the chosen devices.

    It follows from the amount, the devices and the host cells alone, whatever else is on the shelf
    or taken of it: a ledger that keeps which devices somebody has can tell it again.

    :param chosen: by address, as many as the amount asks for
    :raises ForeignAmount: if they do not meet it
    """
    if names_addresses(amount):
        shelf = Devices(chosen, (), apart=True)
    groups = [shelf.group_of[device.address] for device in chosen]
    demands = demands_of(shelf, amount)
    counts = [demand.needed for demand in demands]
    may = [_in_order(shelf, demand, groups, where) for demand in demands]
    flow = Flow(counts, may, dict.fromkeys(range(len(chosen)), 1))
    if not flow.is_complete or sum(counts) != len(chosen):
        shown = [device.address for device in chosen]
        raise exceptions.ForeignAmount("devices", shown, f"what {amount.unassigned()} takes")
    found = [
        (demand.request, place)
        for demand, has in zip(demands, flow.given, strict=True)
        for place in has
    ]
    return [(request, chosen[place]) for request, place in sorted(found)]


def _in_order(
    shelf: Devices, demand: Demand, groups: Sequence[int], where: Where | None
) -> list[int]:
    """Return the places of the devices that a demand may have, the nearest and plainest first.

    :param groups: the group of each device
    """
    far = rings(demand.asked.affinity, where)
    keys = {
        group: (distance, shelf.groups[group].cost)
        for group in set(groups).intersection(demand.serving)
        if (distance := far(shelf.groups[group].node)) is not None
    }
    places = [place for place, group in enumerate(groups) if group in keys]
    return sorted(places, key=lambda place: keys[groups[place]])


def with_devices(
    shelf: Devices, amount: PCIAmount, ours: Iterable[tuple[int, Device]]
) -> PCIAmount:
    """Return an amount that says which devices it has, by request."""
    placed = (
        PlacedDevice._as_kept(
            request=request,
            address=device.address,
            resource_class=device.resource_class,
            numa_node=device.numa_node,
            parts=shelf.parts_of(device.address) if device.type == words.PF else (),
        )
        for request, device in ours
    )
    return amount._altered(placed=tuple(placed), gives_back=False)
