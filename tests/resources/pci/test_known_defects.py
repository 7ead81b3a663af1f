"""Defects of the best-known implementation, one by one, each with its smallest case: ours has none.

They were reproduced with nova 34.0.0; the numbers are those of its list of defects.
"""

from __future__ import annotations

import itertools

import pytest

from resource_objects.interop.nova.pci_devices import device_pools
from resource_objects.reasons import Rule
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    devices,
)
from tests.resources.pci.hosts import PF, VFS, gpu, host, nic, refused, rules, used
from tests.support.pci_reference import faults

ANY_VF = devices("8086:154c")
ANY_PF = devices("8086:1572", types=["type-PF"])
#: A PF with three VFs; the request needs the PF and a VF.
BOTH = ANY_PF + ANY_VF


@pytest.mark.parametrize("requested", [BOTH, ANY_VF + ANY_PF], ids=["PF first", "VF first"])
def test_8_devices_do_not_leak_when_a_claim_fails(requested: PCIAmount) -> None:
    """After the exception the 3 VFs were in no pool, although available."""
    inventory = host(nic(3))
    pools = device_pools(inventory)
    (reason,) = refused(inventory, requested)
    assert (reason.rule, reason.requested, reason.bound) == (Rule.AT_ONCE, 2, 1)
    assert device_pools(inventory) == pools
    assert set(inventory.states().values()) == {"available"} and inventory.free == 4
    assert inventory.consume(devices("8086:154c", 3)).addresses == VFS


def test_8_nor_does_a_pf_when_a_claim_of_its_vfs_fails() -> None:
    inventory = host(nic(2), gpu())
    refused(inventory, devices("8086:154c", 2) + devices("PGPU", 2))
    assert inventory.consume(ANY_PF).addresses == (PF,)


def test_8_nor_do_devices_when_what_is_assigned_is_taken_by_then() -> None:
    inventory = host(nic(3), gpu())
    assigned = inventory.fit(ANY_PF + devices("PGPU"))
    other = inventory.consume(devices("PGPU"))
    assert rules(refused(inventory, assigned)) == ["unit_taken"]
    assert [inventory.state(address) for address in (PF, *VFS)] == ["available"] * 4
    inventory.consume(-other)
    assert inventory.consume(assigned) == assigned


@pytest.mark.parametrize("requested", [BOTH, ANY_VF + ANY_PF], ids=["PF first", "VF first"])
def test_9_the_question_and_the_claim_have_one_answer(requested: PCIAmount) -> None:
    """``support_requests`` accepted a request that ``consume_requests`` refused."""
    inventory = host(nic(3))
    assert not inventory.can_provide(requested)
    assert inventory.can_provide(ANY_PF) and inventory.can_provide(ANY_VF)


THERE = [
    Device("0000:01:00.0", "10de", "0443"),
    Device("0000:02:00.0", "10de", "0443"),
    Device("0000:03:00.0", "10de", "0443"),
    Device("0000:04:00.0", "10de", "1db4"),
]


@pytest.mark.parametrize("existing", [THERE, THERE[::-1]], ids=["in order", "the other way round"])
@pytest.mark.parametrize("is_swapped", [False, True], ids=["any first", "any last"])
def test_10_what_can_be_met_is_met_in_whatever_order_it_is_requested(
    existing: list[Device], is_swapped: bool
) -> None:
    """Any 10de, and three 10de:0443, of one 1db4 and three 0443: the first took a 0443."""
    parts = [devices("10de:*"), devices("10de:0443", 3)]
    first, second = parts[::-1] if is_swapped else parts
    inventory = host(existing)
    assigned = inventory.consume(first + second)
    assert assigned.of(int(is_swapped)) == ("0000:04:00.0",)
    assert faults(existing, [], assigned) == []
    assert inventory.free == 0


def test_10_a_chain_of_requests_passes_devices_on() -> None:
    """Each can do with two kinds; only one way leaves something for all."""
    kinds = [f"CUSTOM_{letter}" for letter in "ABCDE"]
    inventory = host(*(gpu(n, resource_class=kind) for n, kind in enumerate(kinds)))
    requests = [
        DeviceRequest([DeviceSpec(resource_class=item) for item in pair])
        for pair in itertools.pairwise(kinds)
    ]
    only_first = DeviceRequest([DeviceSpec(resource_class=kinds[0])])
    assigned = inventory.fit(PCIAmount([*requests, only_first]))
    by_request = [inventory.device(assigned.of(n)[0]).resource_class for n in range(5)]
    assert by_request == [*kinds[1:], kinds[0]]


def test_10_who_could_have_a_pf_or_a_vf_leaves_the_pf_to_who_needs_it() -> None:
    inventory = host(nic(1), nic(1, bus=0x5E))
    either = devices("8086:*", types=["type-PF", "type-VF"])
    assigned = inventory.fit(either + ANY_PF)
    assert faults(inventory.devices, [], assigned) == []
    assert {address[5:7] for address in assigned.addresses} == {"3b", "5e"}


@pytest.mark.parametrize("first", [ANY_VF, ANY_PF, devices("PGPU")], ids=str)
def test_11_two_requests_of_which_the_second_is_impossible_leave_nothing_behind(
    first: PCIAmount,
) -> None:
    """The first stayed applied, and callers swallowed the exception."""
    inventory = host(nic(3), gpu())
    before = inventory.obj_to_primitive()
    assert rules(refused(inventory, first + devices("VGPU"))) == ["no_inventory"]
    assert inventory.obj_to_primitive() == before


@pytest.mark.parametrize("state", ["claimed", "allocated"])
def test_a_pf_is_not_given_while_one_of_its_vfs_is_somebodys(state: str) -> None:
    """``PciDevice.claim`` only logs it (its bug 1969496)."""
    inventory = host(nic(3), usage=used(vf2=state))
    assert rules(refused(inventory, ANY_PF)) == ["capacity"]
