"""Small machines for the tests of devices, and how to ask them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import hypothesis
import pytest

from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Reason
from resource_objects.resources.context import CellMap, ChosenCells, Context
from resource_objects.resources.pci import Device, DeviceUse, PCIAmount, PCIInventory
from tests.support.pci_strategies import PCIQuestion

#: For laws about what fits: of random questions about half do not, and that is no fault of theirs.
rarely_fits = hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.filter_too_much])

#: The PF of :func:`nic`, and those split off it.
PF = "0000:3b:00.0"
VFS = ("0000:3b:02.0", "0000:3b:02.1", "0000:3b:02.2")


def gpu(number: int = 0, **facts: Any) -> Device:
    """Return a GPU that is taken whole, by default as ``PGPU``."""
    facts.setdefault("resource_class", "PGPU")
    return Device(f"0000:{number + 1:02x}:00.0", "10de", "2330", class_code="030200", **facts)


def part(number: int = 0, *, bus: int = 0x3B, **facts: Any) -> Device:
    """Return a virtual function of the NIC on a bus."""
    facts.setdefault("type", "type-VF")
    facts.setdefault("parent", f"0000:{bus:02x}:00.0")
    return Device(f"0000:{bus:02x}:02.{number}", "8086", "154c", **facts)


def physical(*, bus: int = 0x3B, **facts: Any) -> Device:
    """Return the physical function of the NIC on a bus."""
    return Device(f"0000:{bus:02x}:00.0", "8086", "1572", "type-PF", **facts)


def nic(parts: int = 3, *, bus: int = 0x3B, **facts: Any) -> list[Device]:
    """Return a NIC: a physical function and ``count`` virtual ones."""
    return [physical(bus=bus, **facts), *(part(n, bus=bus, **facts) for n in range(parts))]


def host(*value: Device | Iterable[Device], **figures: Any) -> PCIInventory:
    """Return an inventory of these devices."""
    all_items = [
        item
        for several in value
        for item in ([several] if isinstance(several, Device) else several)
    ]
    return PCIInventory(all_items, **figures)


def used(**states: str) -> list[DeviceUse]:
    """Return usage of devices of :func:`nic`: ``used(pf="claimed", vf1="allocated")``."""
    names = {"pf": PF, **{f"vf{number}": address for number, address in enumerate(VFS)}}
    return [DeviceUse(names[name], state) for name, state in states.items()]


def cells(sockets: Mapping[int, int | None] | int = 2) -> CellMap:
    """Return host cells: their sockets, or how many of them, each in a socket of its own."""
    if isinstance(sockets, int):
        sockets = {cell: cell for cell in range(sockets)}
    return CellMap(sockets=dict(sockets), distances={})


def on_cells(existing: CellMap, chosen: Iterable[int]) -> Context:
    """Return the context with some chosen host cells."""
    return Context(chosen=ChosenCells(existing, chosen))


def how(question: PCIQuestion, **more: Any) -> dict[str, Context]:
    """Return the context of a question: near to these host cells."""
    if question.chosen is None:
        return {"context": Context(**more)}
    chosen = ChosenCells(cells(question.sockets), question.chosen)
    return {"context": Context(chosen=chosen, **more)}


def refused(inventory: PCIInventory, amount: PCIAmount, **place: Any) -> tuple[Reason, ...]:
    """Return the reasons of a refusal; asking and taking refuse alike, and nothing changes."""
    before, states = copy.deepcopy(inventory), inventory.states()
    with pytest.raises(CapacityException) as request:
        inventory.fit(amount, **place)
    with pytest.raises(CapacityException) as taken:
        inventory.consume(amount, **place)
    assert inventory == before and inventory.states() == states
    assert taken.value.reasons == request.value.reasons
    return request.value.reasons


def rules(reasons: Iterable[Reason]) -> list[str]:
    """Return the rules that were broken, each once, in order."""
    return list(dict.fromkeys(reason.rule.value for reason in reasons))
