"""States of devices, and what a device that is taken makes of its relatives.

Source: the transitions of Nova's ``PciDevice``; each test names the one it is about. A naive table
(:func:`~tests.support.pci_reference.states`) agrees with every state seen on the way.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from resource_objects.reasons import Rule
from resource_objects.resources.pci import Device, DeviceUse, PCIAmount, PCIInventory, devices
from resource_objects.testing.refusals import raises_code
from tests.resources.pci.hosts import PF, VFS, gpu, host, nic, part, physical, refused, rules, used
from tests.support.pci_devices import put_in_state
from tests.support.pci_reference import states as pci_reference_states
from tests.support.pci_strategies import pci_usages

ANY_VF = devices("8086:154c")


def states(inventory: PCIInventory) -> tuple[str, ...]:
    """Return the states of a NIC, its PF first; the naive table agrees."""
    assert inventory.states() == pci_reference_states(inventory.devices, inventory.usage)
    return tuple(inventory.state(address) for address in inventory.states())


def this(address: str) -> PCIAmount:
    """Return an amount of this very device of the NIC."""
    if address == PF:
        return devices("8086:1572", types=["type-PF"], address=PF)
    return devices("8086:154c", types=["type-VF"], address=address)


# --- available to claimed -------------------------------------------------------------------------


def test_available_to_claimed_a_plain_device() -> None:
    """available → claimed: no other device changes."""
    inventory = host(gpu(), gpu(1))
    inventory.consume(devices("PGPU"))
    assert states(inventory) == ("claimed", "available")
    assert inventory.free == 1


def test_available_to_claimed_a_pf_makes_its_vfs_unclaimable() -> None:
    """available → claimed, PF: every VF available, VFs become unclaimable."""
    inventory = host(nic(2), nic(1, bus=0x5E))
    taken = inventory.consume(this(PF))
    assert taken.placed[0].parts == VFS[:2]
    assert states(inventory)[:3] == ("claimed", "unclaimable", "unclaimable")
    assert set(states(inventory)[3:]) == {"available"}


@pytest.mark.parametrize("state", ["claimed", "allocated", "spent", "unavailable"])
def test_a_pf_is_not_to_be_had_unless_every_vf_is_available(state: str) -> None:
    """available → claimed, PF: Nova only logs VFs that are not available (its bug 1969496)."""
    inventory = host(nic(2), usage=used(vf1=state))
    assert rules(refused(inventory, this(PF))) == ["capacity"]


def test_available_to_claimed_a_vf_makes_its_pf_unclaimable() -> None:
    """available → claimed, VF: an available parent becomes unclaimable; siblings do not change."""
    inventory = host(nic(2))
    inventory.consume(this(VFS[1]))
    assert states(inventory) == ("unclaimable", "available", "claimed")


@pytest.mark.parametrize(
    ("other", "before", "after"),
    [
        ("claimed", "unclaimable", "unclaimable"),
        ("allocated", "unavailable", "unavailable"),
        ("unavailable", "unavailable", "unavailable"),
    ],
)
def test_a_vf_is_to_be_had_whatever_others_made_of_the_pf(
    other: str, before: str, after: str
) -> None:
    """available → claimed, VF: the parent is available, unclaimable or unavailable."""
    inventory = host(nic(2), usage=used(vf0=other))
    assert inventory.state(PF) == before
    inventory.consume(this(VFS[1]))
    assert states(inventory) == (after, other, "claimed")


@pytest.mark.parametrize(
    ("state", "other_items"),
    [("claimed", "unclaimable"), ("allocated", "unavailable"), ("spent", "unavailable")],
)
def test_a_vf_is_not_to_be_had_while_another_consumer_has_the_pf(
    state: str, other_items: str
) -> None:
    """available → claimed, VF: not while the parent is claimed or allocated."""
    inventory = host(nic(2, one_time_use=False), usage=used(pf=state))
    assert states(inventory) == (state, other_items, other_items)
    assert rules(refused(inventory, this(VFS[0]))) == ["capacity"]
    assert rules(refused(inventory, ANY_VF)) == ["capacity"]
    assert inventory.free == 0


def test_a_vdpa_device_is_a_part_as_a_vf_is() -> None:
    """available → claimed, vDPA: as a VF."""
    inventory = host(physical(), part(0, type="vdpa"), part(1))
    inventory.consume(devices("8086:154c", types=["vdpa"]))
    assert states(inventory) == ("unclaimable", "claimed", "available")
    assert rules(refused(inventory, this(PF))) == ["capacity"]


def test_a_part_whose_pf_is_not_offered_is_a_device_like_another() -> None:
    inventory = host(part(0), part(1))
    inventory.consume(this(VFS[0]))
    assert states(inventory) == ("claimed", "available")


# --- claimed to allocated -------------------------------------------------------------------------


def test_claimed_to_allocated_a_pf_makes_its_vfs_unavailable() -> None:
    """claimed → allocated, PF: VFs become unavailable."""
    inventory = host(nic(2))
    put_in_state(inventory, inventory.consume(this(PF)), "allocated")
    assert states(inventory) == ("allocated", "unavailable", "unavailable")


def test_claimed_to_allocated_a_vf_makes_its_pf_unavailable() -> None:
    """claimed → allocated, VF: the parent becomes unavailable."""
    inventory = host(nic(2))
    put_in_state(inventory, inventory.consume(this(VFS[0])), "allocated")
    assert states(inventory) == ("unavailable", "allocated", "available")


def test_what_another_consumer_claimed_and_another_allocated_is_unavailable() -> None:
    inventory = host(nic(3))
    inventory.consume(this(VFS[0]))
    put_in_state(inventory, inventory.consume(this(VFS[1])), "allocated")
    assert states(inventory) == ("unavailable", "claimed", "allocated", "available")


# --- claimed or allocated to available ------------------------------------------------------------


@pytest.mark.parametrize("is_allocated", [False, True], ids=["claimed", "allocated"])
def test_to_available_a_pf_frees_all_its_vfs(is_allocated: bool) -> None:
    """claimed or allocated → available, PF: all VFs become available."""
    inventory = host(nic(3))
    taken = inventory.consume(this(PF))
    if is_allocated:
        put_in_state(inventory, taken, "allocated")
    assert inventory.free == 0
    inventory.consume(-taken)
    assert states(inventory) == ("available",) * 4
    assert inventory.free == 4, "all that became free can be had"


@pytest.mark.parametrize("is_allocated", [False, True], ids=["claimed", "allocated"])
def test_to_available_a_vf_frees_its_pf_once_no_other_is_taken(is_allocated: bool) -> None:
    """claimed or allocated → available, VF: parent available if every other VF is."""
    inventory = host(nic(2))
    first, second = (inventory.consume(this(address)) for address in VFS[:2])
    if is_allocated:
        put_in_state(inventory, first, "allocated")
        put_in_state(inventory, second, "allocated")
    inventory.consume(-first)
    assert inventory.state(PF) == ("unavailable" if is_allocated else "unclaimable")
    assert inventory.state(VFS[0]) == "available"
    inventory.consume(-second)
    assert states(inventory) == ("available",) * 3


def test_what_is_for_one_use_is_spent_when_it_is_released() -> None:
    """The named exception of law 3: it is available again after a reset."""
    inventory = host(gpu(one_time_use=True))
    taken = inventory.consume(devices("PGPU"))
    put_in_state(inventory, taken, "allocated")
    inventory.consume(-taken)
    assert states(inventory) == ("spent",) and inventory.free == 0
    assert rules(refused(inventory, devices("PGPU"))) == ["capacity"]
    assert rules(refused(inventory, -taken)) == ["used_below_zero"]
    put_in_state(inventory, "0000:01:00.0", None)
    assert states(inventory) == ("available",)
    assert inventory.consume(devices("PGPU")) == taken


def test_a_pf_for_one_use_is_spent_with_its_vfs() -> None:
    inventory = host(physical(one_time_use=True), part(0))
    taken = inventory.consume(this(PF))
    inventory.consume(-taken)
    assert states(inventory) == ("spent", "unavailable")
    assert rules(refused(inventory, ANY_VF)) == ["capacity"]
    put_in_state(inventory, PF, None)
    assert states(inventory) == ("available", "available")


# --- to removed -----------------------------------------------------------------------------------


def test_available_to_removed() -> None:
    """available → removed → deleted: it is not there any more."""
    inventory = host(gpu(), gpu(1))
    inventory.rediscover([gpu(1)])
    assert [device.address for device in inventory.devices] == ["0000:02:00.0"]
    with raises_code("InvalidDevice", match=r"0000:01:00\.0"):
        inventory.state("0000:01:00.0")
    assert rules(refused(inventory, devices("PGPU", 2))) == ["capacity"]


@pytest.mark.parametrize("state", ["claimed", "allocated"])
def test_unclaimable_and_unavailable_to_removed(state: str) -> None:
    """unavailable, unclaimable → removed: a PF of which a VF is allocated."""
    inventory = host(nic(2), usage=used(vf0=state))
    assert inventory.state(PF) == ("unclaimable" if state == "claimed" else "unavailable")
    inventory.rediscover([part(0), part(1)])
    assert PF not in inventory.states()
    assert inventory.usage == tuple(used(vf0=state))


# --- any state ------------------------------------------------------------------------------------


@pytest.mark.law(1)
@given(pci_usages())
def test_states_are_those_of_the_naive_table(
    given_both: tuple[tuple[Device, ...], tuple[DeviceUse, ...]],
) -> None:
    inventory = PCIInventory(given_both[0], usage=given_both[1])
    expected = pci_reference_states(*given_both)
    assert inventory.states() == expected
    assert inventory.free == list(expected.values()).count("available")
    for device in given_both[0]:
        assert inventory.device(device.address) == device


@pytest.mark.parametrize("address", [PF, *VFS[:2]])
def test_a_device_that_is_taken_cannot_be_had_again(address: str) -> None:
    inventory = host(nic(2))
    taken = inventory.consume(this(address))
    for again in (taken, this(address)):
        reasons = refused(inventory, again)
        assert {reason.rule for reason in reasons} <= {Rule.UNIT_TAKEN, Rule.CAPACITY}
    with raises_code("UnitTaken", match=f"{address}, which is allocated"):
        inventory.fit(taken)
