"""A ledger's view of devices against an inventory in memory that consumes the same amounts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from resource_objects.ledger import Ledger
from resource_objects.providers import Provider
from resource_objects.resources.pci import Device, PCIAmount, PCIInventory, devices
from tests.support.located_model import LocatedMachine
from tests.support.pci_devices import put_in_state
from tests.support.pci_strategies import pci_amounts, question_of

DEVICES = "DEVICES"


def _lab_of(seed: int) -> PCIInventory:
    """Return devices of any kind, the same for a seed, in the order in which they are kept.

    None is for one use: that it is spent, only an inventory in memory knows.
    """
    for number in itertools.count(seed):
        results = [device.replace(one_time_use=False) for device in question_of(number).devices]
        if results:
            return PCIInventory(sorted(results, key=_order), resource_class=DEVICES)
    raise AssertionError("there are such devices")


def _order(device: Device) -> str:
    return device.parent or device.address


@st.composite
def _asked(draw: st.DrawFn) -> Callable[[PCIInventory], PCIAmount]:
    """Draw an amount, or one that has a chance where it is asked."""
    if draw(st.sampled_from([False, False, True])):
        amount = draw(pci_amounts(max_requests=2))
        return lambda lab: amount
    places, counts = draw(st.lists(st.integers(0, 99), min_size=1, max_size=2)), st.integers(1, 2)
    count = draw(counts)

    def request(lab: PCIInventory) -> PCIAmount:
        classes = [lab.devices[place % len(lab.devices)].resource_class for place in places]
        return sum((devices(kind) for kind in classes[1:]), devices(classes[0], count))

    return request


class DeviceMachine(LocatedMachine):
    """Random claims and releases of the devices of one host; the view is what the model is."""

    kind = DEVICES
    asked = _asked()

    @initialize(like=st.integers(0, 2**20).map(_lab_of))
    def _open(self, like: PCIInventory) -> None:
        self.open()
        self.model = like
        tree = Provider(self.host, "VCPU=4")
        tree.add_parts(DEVICES, like)
        self.ledger.sync(tree)

    def note(self, name: str, decided: Any) -> None:
        super().note(name, decided)
        if isinstance(decided, PCIAmount):
            put_in_state(self.model, decided, "allocated")


def device_machine(fresh: Callable[[], Ledger]) -> type[DeviceMachine]:
    """Return a Hypothesis state machine that compares ledgers with inventories in memory.

    :param fresh: opens a ledger, once per example; the machine clears and closes it
    """
    return type("Machine", (DeviceMachine,), {"fresh": staticmethod(fresh)})
