"""Devices that facts and rules make, and those that are skipped."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import InvalidInput
from resource_objects.host.device_rules import DeviceRule, MachineDevices, machine_devices
from resource_objects.host.machine import (
    Core,
    DeviceKind,
    Machine,
    MediatedType,
    NetworkInterface,
    PCIDevice,
)
from resource_objects.resources.pci import DEVICES, Device, PCIInventory
from resource_objects.testing.refusals import raises_code

GPU = PCIDevice("0000:3b:00.0", "10de", "2330", "030200", numa_node=1, driver="nvidia")
PF = PCIDevice(
    "0000:60:00.0",
    "8086",
    "37d2",
    "020000",
    kind=DeviceKind.PF,
    sriov_totalvfs=8,
    sriov_numvfs=2,
    interfaces=(NetworkInterface("eth0", "3c:ec:ef:01:02:03"),),
)
VFS = tuple(
    PCIDevice(f"0000:60:02.{index}", "8086", "154c", "020000", kind=kind, parent_address=PF.address)
    for index, kind in enumerate([DeviceKind.VF, DeviceKind.VDPA])
)
VMD = PCIDevice("10000:01:00.0", "144d", "a808", "010802")


def found(rules: list[str], *devices: PCIDevice) -> MachineDevices:
    machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, devices=devices)
    return machine_devices(machine, rules)


def reasons(of: MachineDevices) -> dict[str, str]:
    return {item.subject: item.detail for item in of.skipped}


# --- what is taken ------------------------------------------------------------------------------


def test_a_device_is_what_its_facts_and_its_rule_say():
    rule = "10de:*/0302=PGPU+CUSTOM_H100;pool=lab;one_time_use;live_migratable=no"
    (device,) = found([rule], GPU).devices
    assert device == Device(
        "0000:3b:00.0",
        "10de",
        "2330",
        resource_class="PGPU",
        class_code="030200",
        numa_node=1,
        tags={"pool": "lab"},
        traits=["CUSTOM_H100"],
        one_time_use=True,
        live_migratable=False,
    )


def test_without_a_class_a_device_is_one_of_its_own():
    """Row a.3 (zed): the class defaults to CUSTOM_PCI_<VENDOR>_<PRODUCT>."""
    assert found(["10de:*="], GPU).devices[0].resource_class == "CUSTOM_PCI_10DE_2330"


def test_facts_that_last_are_stored_and_the_driver_is_not():
    card = dataclasses.replace(
        PF,
        driver="i40e",
        revision="02",
        subsystem_vendor_id="15d9",
        subsystem_product_id="37d2",
        interfaces=(NetworkInterface("eth0", "3c:ec:ef:01:02:03"), NetworkInterface("eth1")),
        mediated_types=(MediatedType("a-1", available=3), MediatedType("a-2")),
        vdpa=("vdpa0",),
        uuid="GPU-7",
    )
    (device,) = found(["8086:*="], card).devices
    assert dict(device.facts) == {
        "interface": "eth0,eth1",
        "mac": "3c:ec:ef:01:02:03",
        "mediated_types": "a-1,a-2",
        "revision": "02",
        "sriov_totalvfs": "8",
        "subsystem": "15d9:37d2",
        "uuid": "GPU-7",
        "vdpa": "vdpa0",
    }
    bound = dataclasses.replace(card, driver="vfio-pci", sriov_numvfs=0)
    assert found(["8086:*="], bound).devices == (device,)


def test_a_card_and_its_functions_are_all_taken_where_rules_match_all():
    """Rows a.3 and c.1: both are available and exclude each other; Nova offers one of them."""
    taken = found(["8086:154c=SRIOV_NET_VF", "8086:37d2=CUSTOM_NIC"], PF, *VFS)
    assert [(device.address, device.type, device.parent) for device in taken.devices] == [
        ("0000:60:00.0", "type-PF", None),
        ("0000:60:02.0", "type-VF", "0000:60:00.0"),
        ("0000:60:02.1", "vdpa", "0000:60:00.0"),
    ]
    inventory = PCIInventory(taken.devices)
    inventory.consume(DEVICES.make_amount("SRIOV_NET_VF"))
    assert inventory.state("0000:60:00.0") == "unclaimable"


def test_functions_are_taken_where_no_rule_is_about_their_card():
    assert [device.address for device in found(["8086:154c=SRIOV_NET_VF"], PF, *VFS).devices] == [
        "0000:60:02.0",
        "0000:60:02.1",
    ]


# --- what is skipped ----------------------------------------------------------------------------


def test_a_domain_of_more_than_16_bits_costs_that_device_only():
    """Row c.2 (discovery): an address that cannot be parsed skips that device only."""
    taken = found(["*:*=PCI_DEVICE"], GPU, VMD)
    assert [device.address for device in taken.devices] == [GPU.address]
    assert reasons(taken) == {VMD.address: "its domain has more than 16 bits"}
    assert str(taken.skipped[0]) == f"{VMD.address}: skipped: {taken.skipped[0].detail}"


def test_an_address_that_is_none_costs_that_device_only():
    odd = dataclasses.replace(GPU, address="slot-3")
    assert reasons(found(["*:*=PGPU"], odd, GPU)) == {
        "slot-3": "its address is not of the form DOMAIN:BUS:SLOT.FUNCTION"
    }


def test_what_no_rule_is_about_is_not_skipped_but_a_fact():
    assert found(["10de:*=PGPU"], VMD, PF) == MachineDevices()


def test_a_virtual_function_without_its_card_is_skipped():
    taken = found(["8086:*=SRIOV_NET_VF"], *VFS)
    assert taken.devices == ()
    assert set(reasons(taken).values()) == {"its physical function 0000:60:00.0 does not exist"}


def test_a_virtual_function_of_what_is_no_card_is_skipped():
    other = dataclasses.replace(PF, kind=DeviceKind.PCI)
    assert list(reasons(found(["8086:154c=SRIOV_NET_VF"], other, VFS[0]))) == [VFS[0].address]


def test_a_virtual_function_is_not_for_one_use():
    """Row c.5 (one_time_use): type-PCI and type-PF only."""
    taken = found(["8086:*=;one_time_use"], PF, VFS[0])
    assert [device.address for device in taken.devices] == [PF.address]
    assert reasons(taken) == {VFS[0].address: "only a whole device can be for one use"}


def test_a_physical_function_is_not_managed_by_another_machine():
    """Row c.5 (remote_managed): physical functions are refused."""
    taken = found(["8086:*=;remote_managed"], PF, VFS[0])
    assert [(device.address, device.remote_managed) for device in taken.devices] == [
        (VFS[0].address, True)
    ]
    assert reasons(taken) == {PF.address: "no other machine manages a physical function"}


def test_a_card_of_the_class_of_its_own_functions_is_skipped_and_they_remain():
    taken = found(["8086:*=SRIOV_NET_VF"], PF, *VFS)
    assert [device.address for device in taken.devices] == [device.address for device in VFS]
    assert reasons(taken) == {PF.address: "its virtual functions are offered as SRIOV_NET_VF too"}
    single = found(["8086:*=SRIOV_NET_VF"], PF)
    assert [device.address for device in single.devices] == [PF.address]


def test_functions_that_are_skipped_themselves_do_not_cost_their_card():
    taken = found(["8086:*=CUSTOM_NIC;one_time_use"], PF, *VFS)
    assert [device.address for device in taken.devices] == [PF.address]


# --- any machine --------------------------------------------------------------------------------

KINDS = st.sampled_from([DeviceKind.PCI, DeviceKind.PF])
RULES = st.builds(
    DeviceRule,
    vendor_id=st.sampled_from(["8086", "*"]),
    product_id=st.sampled_from(["37d2", "154c", "*"]),
    resource_class=st.none() | st.sampled_from(["PCI_DEVICE", "CUSTOM_NIC"]),
    types=st.sampled_from([(), (DeviceKind.VF,), (DeviceKind.PF, DeviceKind.VDPA)]),
    one_time_use=st.booleans(),
    remote_managed=st.booleans(),
)


@given(st.lists(RULES, max_size=3), st.permutations([GPU, PF, *VFS, VMD]), st.integers(0, 5))
def test_what_is_taken_is_always_an_inventory_and_nothing_is_lost(rules, devices, count):
    devices = devices[:count]
    machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, devices=tuple(devices))
    taken = machine_devices(machine, rules)
    for part in PCIInventory(taken.devices).parts():
        part.inventory.resource_class = "DEVICES"
        assert part.inventory.to_records()
    about = {d.address for d in devices if any(rule.matches(d) for rule in rules)}
    addresses = [device.address for device in taken.devices]
    assert sorted([*addresses, *reasons(taken)]) == sorted(about)
    assert taken == machine_devices(machine, rules)


# --- bad input ----------------------------------------------------------------------------------


def test_what_is_no_machine_or_no_rule_is_refused():
    with pytest.raises(InvalidInput, match="machine: got None"):
        machine_devices(None)
    with raises_code("InvalidRule"):
        found(["nvidia=PGPU"], GPU)
    with pytest.raises(InvalidInput, match="device rules"):
        found("10de:*=PGPU", GPU)
