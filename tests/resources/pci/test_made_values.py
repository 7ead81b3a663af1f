"""The values of a decision are not checked again; they equal checked ones."""

from __future__ import annotations

import pytest

from resource_objects import base
from resource_objects.exceptions import CapacityException
from resource_objects.interop.nova.pci_devices import device_pools
from resource_objects.resources.pci import PCIInventory, PlacedDevice, devices
from tests.resources.pci.hosts import PF, VFS, host, how, nic
from tests.support.pci_strategies import question_of


def checked(value: base.ResourceObject) -> base.ResourceObject:
    """Return the same value, made with checks."""
    return value.replace()


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_what_a_decision_makes_is_what_checking_makes(first: int) -> None:
    created = 0
    for seed in range(first, first + 250):
        question = question_of(seed)
        inventory = question.inventory()
        try:
            taken = inventory.consume(question.amount, **how(question))
        except CapacityException:
            continue
        created += 1
        all_items = (taken, *taken.placed, -taken, taken.unassigned(), *inventory.usage)
        for value in (*all_items, *device_pools(inventory)):
            assert value == checked(value) and hash(value) == hash(checked(value))
            assert repr(value) == repr(checked(value))
        anew = PCIInventory(inventory.devices, usage=inventory.usage)
        assert anew == inventory and anew.states() == inventory.states()
        assert device_pools(anew) == device_pools(inventory)
    assert created


def test_what_it_makes_cannot_change_either() -> None:
    taken = host(nic(2)).consume(devices("8086:1572", types=["type-PF"]))
    with pytest.raises(AttributeError):
        taken.placed = ()
    assert type(taken).obj_from_primitive(taken.obj_to_primitive()) == taken
    assert taken.placed == (PlacedDevice(0, PF, "CUSTOM_PCI_8086_1572", parts=VFS[:2]),)
