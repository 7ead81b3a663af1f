"""From facts to a tree of providers: captured machines, generated ones, and the rules."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.device_rules import DeviceRule
from resource_objects.host.discovery import discover
from resource_objects.host.linux import read_machine
from resource_objects.host.machine import (
    MIB,
    Core,
    DeviceKind,
    Disk,
    Machine,
    NUMACell,
    Pages,
    PCIDevice,
)
from resource_objects.host.settings import HostSettings
from resource_objects.host.tree import provider_tree
from resource_objects.testing.refusals import raises_code
from tests.host.trees import configured, virtual_functions
from tests.support.lengths import examples

GIB = 1024 * MIB
SMT = "HW_CPU_HYPERTHREADING"
GPU = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
AUDIO = PCIDevice("0000:3b:00.1", "10de", "10fa", "040300")
PF = PCIDevice("0000:60:00.0", "8086", "37d2", "020000", kind=DeviceKind.PF, sriov_totalvfs=2)
VFS = virtual_functions(PF, 2)


def box(**facts) -> Machine:
    """A machine of two cores without SMT and 4 GiB."""
    value = {
        "hostname": "box",
        "cpus": (0, 1),
        "cores": (Core(0, 0, (0,)), Core(0, 1, (1,))),
        "memory_bytes": 4 * GIB,
    }
    return Machine(**(value | facts))


def lines(tree: ro.Provider) -> list[str]:
    return [f"{provider.name}: {counts(provider)}" for provider in tree.walk()]


def counts(provider: ro.Provider) -> str:
    """The inventories of a provider; devices are counted by class."""
    devices = provider.inventories.get(ro.DEVICES)
    if devices is None:
        return str(provider.inventories)
    return ",".join(
        f"{to_record.resource_class}={to_record.total}" for to_record in devices.to_records()
    )


# --- captured machines --------------------------------------------------------------------------

HWLOC = {
    "128ia64-17n4s2c": (128, False),
    "16amd64-8n2c": (16, False),
    "16em64t-4s2c2t": (16, True),
    "16em64t-4s2c2t-offlines": (12, True),
    "20em64t-hybrid-1p6c2t+2ca4co1t": (20, True),
    "256ppc-8n8s4t": (256, True),
    "2arm-2c": (2, False),
    "2i386-2c-nohugepage": (2, False),
    "32intel64-2p8co2t+8ve": (32, True),
    "48amd64-4pa2n6c-sparse": (48, False),
}


@pytest.mark.parametrize("name", HWLOC)
def test_a_captured_machine_offers_its_cpus_and_its_memory_once(
    name, captured_machine, hwloc_counts
):
    machine = captured_machine(name)
    tree = provider_tree(machine, name="captured")
    cpus, has_smt = HWLOC[name]
    assert tree.inventories["VCPU"].total == hwloc_counts[name]["counts"]["PU"] == cpus
    memory = tree.inventories["MEMORY_MB"]
    assert memory.total == machine.memory_bytes // MIB
    huge = sum(
        int(size) * int(count)
        for node in hwloc_counts[name]["numa"]
        for size, count in node["pages"].items()
        if int(size) > 65536
    )
    assert memory.reserved == -(-huge // MIB)
    assert (SMT in tree.traits) is has_smt
    assert [child.name for child in tree.children] == []


def test_the_accelerators_of_a_captured_machine_are_its_children(captured_machine):
    machine = captured_machine("32intel64-2p8co2t+8ve")
    accelerators = [device for device in machine.devices if device.class_id.startswith("0b")]
    assert len(accelerators) == 8
    rule = f"{accelerators[0].vendor_id}:*/0b=CUSTOM_ACCELERATOR+CUSTOM_VE"
    tree = provider_tree(machine, HostSettings(device_rules=[rule]), name="host0")
    assert [child.name for child in tree.children] == [
        f"host0/{device.address}" for device in accelerators
    ]
    assert {counts(child) for child in tree.children} == {"CUSTOM_ACCELERATOR=1"}
    assert {child.traits for child in tree.children} == {frozenset({"CUSTOM_VE"})}


# --- generated machines -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes(trees):
    return trees.shapes()


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_machine_offers_its_cpus_its_memory_once_and_the_devices_of_its_rules(
    data, trees, shapes
):
    machine = trees.expected(data.draw(shapes))
    rules = ["8086:*=PCI_DEVICE"]
    tree = provider_tree(machine, HostSettings(device_rules=rules), name="gen")
    assert tree.inventories["VCPU"].capacity == len(machine.cpus)
    huge = sum(pages.memory_bytes for pages in machine.huge_pages)
    assert ("MEMORY_MB" in tree.inventories) is (machine.memory_mb > 0)
    if machine.memory_mb:
        memory = tree.inventories["MEMORY_MB"]
        assert memory.total == machine.memory_mb
        assert (machine.memory_bytes - huge) // MIB - memory.capacity in (0, 1)
    assert (SMT in tree.traits) is any(len(core.cpus) > 1 for core in machine.cores)
    assert {child.name for child in tree.children} == {
        f"gen/{device.parent_address or device.address}"
        for device in machine.devices
        if device.vendor_id == "8086"
    }


@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_syncing_any_machine_twice_changes_nothing(data, trees, shapes):
    machine = trees.expected(data.draw(shapes))
    arguments = {"device_rules": ["8086:*=PCI_DEVICE"], "ratios": "VCPU=16", "name": "gen"}
    assert configured(provider_tree, machine, **arguments) == configured(
        provider_tree, machine, **arguments
    )
    with ro.connect("memory://") as ledger:
        assert ledger.sync(configured(provider_tree, machine, **arguments)).created >= 1
        again = ledger.sync(configured(provider_tree, machine, **arguments))
    assert (again.created, again.updated, again.removed) == (0, 0, 0)
    assert str(again) == "nothing changed"


@pytest.mark.skipif(
    not pathlib.Path("/sys/devices/system/cpu").is_dir(),
    reason="this machine does not show its CPUs in /sys",
)
def test_this_machine_can_be_modelled():
    machine = discover()
    tree = provider_tree(machine, name="here")
    assert tree.inventories["VCPU"].total == len(machine.cpus)
    assert tree.inventories["MEMORY_MB"].total == machine.memory_bytes // MIB


# --- the host -----------------------------------------------------------------------------------


def test_figures_are_rounded_down_to_whole_units():
    disk = Disk("/", total_bytes=3 * GIB - 1, free_bytes=0)
    tree = provider_tree(box(memory_bytes=4 * GIB - 1, disk=disk))
    assert lines(tree) == ["box: VCPU=2,MEMORY_MB=4095,DISK_GB=2"]


def test_less_than_one_unit_is_left_out():
    disk = Disk("/", total_bytes=GIB - 1, free_bytes=0)
    tree = provider_tree(box(memory_bytes=MIB - 1, disk=disk))
    assert lines(tree) == ["box: VCPU=2"]


def test_huge_pages_are_reserved_with_what_is_requested_to_be():
    machine = box(huge_pages=(Pages(2 * MIB, 512, 100), Pages(GIB, 1, 0)))
    assert lines(provider_tree(machine)) == ["box: VCPU=2,MEMORY_MB=4096:reserved=2048"]
    tree = provider_tree(machine, HostSettings(reserved="MEMORY_MB=512,VCPU=1"))
    assert lines(tree) == ["box: VCPU=2:reserved=1,MEMORY_MB=4096:reserved=2560"]


def test_part_of_a_mebibyte_in_a_huge_page_is_reserved_whole():
    tree = provider_tree(box(huge_pages=(Pages(65536, 1, 0),)))
    assert tree.inventories["MEMORY_MB"].reserved == 1


def test_memory_that_is_all_huge_pages_leaves_nothing():
    tree = provider_tree(box(memory_bytes=4 * GIB - 1, huge_pages=(Pages(GIB, 4, 4),)))
    assert tree.inventories["MEMORY_MB"].capacity == 0


def test_reserved_and_ratios_are_taken_as_text_mappings_or_amounts():
    texts = provider_tree(box(), HostSettings(reserved="VCPU=1", ratios="VCPU=1.5"))
    mappings = provider_tree(
        box(), HostSettings(reserved=ro.Amounts(VCPU=1), ratios={ro.resource("VCPU"): "1.50"})
    )
    assert lines(texts) == ["box: VCPU=2:reserved=1:max_unit=2:allocation_ratio=1.5,MEMORY_MB=4096"]
    assert texts == mappings


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"reserved": "MEMORY_MB=4097"},
            exceptions.InvalidInventory,
            "MEMORY_MB reserved: got 4097, expected at most the total of 4096",
        ),
        (
            {"reserved": "DISK_GB=1"},
            exceptions.InvalidInventory,
            "reserved: got 'DISK_GB', expected a class that the host offers: VCPU, MEMORY_MB",
        ),
        (
            {"ratios": "PGPU=2"},
            exceptions.InvalidInventory,
            "ratios: got 'PGPU', expected a class that the host offers: VCPU, MEMORY_MB",
        ),
        ({"reserved": "VCPU=-1"}, exceptions.InvalidInput, "got -1"),
        ({"ratios": "VCPU=0"}, "InvalidRatio", "ratios: VCPU: got '0'"),
        ({"ratios": "VCPU=x"}, "InvalidRatio", "ratios: VCPU: got 'x'"),
        ({"ratios": "VCPU"}, "InvalidText", "ratios: got 'VCPU'"),
        (
            {"ratios": {"VCPU": 2, ro.VCPU: 4}},
            "DuplicateKey",
            "ratios: got 'VCPU', expected each resource once",
        ),
        ({"ratios": {5: 2}}, "InvalidResourceClass", "got 5"),
        ({"ratios": 5}, "InvalidText", "ratios: got 5"),
        ({"ratios": "MEMORY=2"}, "UnknownResourceClass", "got 'MEMORY'"),
        ({"device_rules": ["10de=PGPU"]}, "InvalidRule", "device rule: got '10de=PGPU'"),
        ({"name": ""}, exceptions.InvalidInput, "got ''"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments, error, message):
    with raises_code(error) as refused:
        configured(provider_tree, box(), **arguments)
    assert message in str(refused.value)


def test_a_machine_without_a_name_needs_one():
    nameless = box(hostname=None)
    with raises_code("InvalidName", match="host name: got None, expected a name"):
        provider_tree(nameless)
    assert provider_tree(nameless, name="given").name == "given"
    assert provider_tree(box(), name="given").name == "given"


@pytest.mark.parametrize(
    ("architecture", "traits"),
    [
        ("x86_64", {"HW_ARCH_X86_64"}),
        ("aarch64", {"HW_ARCH_AARCH64"}),
        ("armv7l", set()),  # no trait is exactly this
        (None, set()),
    ],
)
def test_the_architecture_is_a_trait_where_there_is_one(architecture, traits):
    assert provider_tree(box(architecture=architecture)).traits == traits


def test_smt_counts_only_where_it_is_on():
    core = Core(0, 0, (0, 1))
    assert SMT in provider_tree(box(cores=(core,))).traits
    off = box(cpus=(0,), cores=(Core(0, 0, (0,)),), offline_cpus=(1,))
    assert SMT not in provider_tree(off).traits


def test_numa_cells_remain_facts():
    cells = (NUMACell(0, (0,), 2 * GIB), NUMACell(1, (1,), 2 * GIB))
    assert provider_tree(box(cells=cells)) == provider_tree(box())


# --- devices ------------------------------------------------------------------------------------


def test_a_device_that_no_rule_takes_remains_a_fact():
    assert provider_tree(box(devices=(GPU, AUDIO))) == provider_tree(box())


def test_a_device_that_a_rule_takes_is_a_child_with_one_unit_and_the_traits_of_the_rule():
    rule = DeviceRule.parse("10de:*/03=PGPU+CUSTOM_H100+HW_GPU_API_VULKAN")
    tree = provider_tree(box(devices=(GPU, AUDIO)), HostSettings(device_rules=[rule]))
    assert lines(tree)[1:] == ["box/0000:3b:00.0: PGPU=1"]
    assert tree.children[0].traits == {"CUSTOM_H100", "HW_GPU_API_VULKAN"}


def test_a_card_and_its_virtual_functions_are_one_child_with_two_counts():
    machine = box(devices=(PF, *VFS))
    rules = ["8086:154c=SRIOV_NET_VF+CUSTOM_FAST", "8086:37d2=CUSTOM_NIC"]
    tree = provider_tree(machine, HostSettings(device_rules=rules))
    assert lines(tree)[1:] == ["box/0000:60:00.0: CUSTOM_NIC=1,SRIOV_NET_VF=2"]
    (card,) = tree.children
    assert [str(share) for share in card.shares] == [
        "CUSTOM_NIC uses 2 SRIOV_NET_VF of box/0000:60:00.0"
    ]
    assert card.traits == {"CUSTOM_FAST"}
    assert lines(provider_tree(machine, HostSettings(device_rules=rules[:1])))[1:] == [
        "box/0000:60:00.0: SRIOV_NET_VF=2"
    ]
    assert lines(provider_tree(machine, HostSettings(device_rules=rules[1:])))[1:] == [
        "box/0000:60:00.0: CUSTOM_NIC=1"
    ]


def test_any_consumer_has_a_virtual_function_keeps_others_from_the_card_and_the_other_way_round():
    machine = box(devices=(PF, *VFS))
    rules = ["8086:154c=SRIOV_NET_VF", "8086:37d2=CUSTOM_NIC"]
    with ro.connect("memory://") as ledger:
        ledger.sync(provider_tree(machine, HostSettings(device_rules=rules)))
        ledger.claim("job-1", ledger.snapshot().candidates("SRIOV_NET_VF=1"))
        assert not ledger.snapshot().candidates("CUSTOM_NIC=1")
        ledger.release("job-1")
        ledger.claim("job-2", ledger.snapshot().candidates("DEVICES=CUSTOM_NIC"))
        assert not ledger.snapshot().candidates("SRIOV_NET_VF=1")


def test_what_cannot_be_taken_costs_that_device_only():
    vmd = dataclasses.replace(GPU, address="10000:3b:00.0")
    tree = provider_tree(box(devices=(GPU, vmd)), HostSettings(device_rules=["10de:*=PGPU"]))
    assert lines(tree)[1:] == ["box/0000:3b:00.0: PGPU=1"]


def test_many_devices_are_checked_once_and_not_once_per_device(monkeypatch):
    many = [
        dataclasses.replace(VFS[0], address=f"0000:{bus:02x}:02.{index}")
        for bus in range(0x60, 0x80)
        for index in range(8)
    ]
    checked = []
    check = ro.Provider.check
    monkeypatch.setattr(
        ro.Provider, "check", lambda self: checked.append(len(list(self.walk()))) or check(self)
    )
    many = [dataclasses.replace(GPU, address=item.address) for item in many]
    tree = provider_tree(box(devices=tuple(many)), HostSettings(device_rules=["10de:*=PGPU"]))
    assert len(tree.children) == 256
    assert sum(checked) <= 3 * 257  # linear: adding one by one walks 33 thousand


def test_a_device_can_be_claimed_with_its_host():
    with ro.connect("memory://") as ledger:
        ledger.sync(
            provider_tree(
                box(devices=(GPU,)), HostSettings(device_rules=["10de:*=PGPU+CUSTOM_H100"])
            )
        )
        request = ro.Request("VCPU=2,PGPU=1", required=["CUSTOM_H100"])
        result = ledger.snapshot().candidates(request)
        claim = ledger.claim("job-1", result)
    assert str(claim) == "job-1 holds VCPU=2 of box, PGPU=1 of box/0000:3b:00.0"


def test_a_device_that_is_gone_goes_and_one_that_is_allocated_remains_with_everything_else():
    with_gpu = provider_tree(box(devices=(GPU,)), HostSettings(device_rules=["10de:*=PGPU"]))
    without = provider_tree(box(memory_bytes=2 * GIB))
    with ro.connect("memory://") as ledger:
        ledger.sync(with_gpu)
        ledger.claim("job-1", {f"box/{GPU.address}": "PGPU=1"})
        with raises_code("ProviderInUse", match=r"box/0000:3b:00\.0 has allocations"):
            ledger.sync(without)
        assert ledger.provider("box").inventories["MEMORY_MB"].total == 4096
        ledger.release("job-1")
        assert str(ledger.sync(without)).splitlines() == [
            "~ box: MEMORY_MB=2048",
            "- box/0000:3b:00.0",
        ]


def test_the_tree_of_a_captured_directory_needs_no_more_than_its_files(tmp_path, trees):
    trees.write(tmp_path, trees.Shape(hostname="gen"))
    machine = read_machine(pathlib.Path(tmp_path))
    assert lines(provider_tree(machine)) == ["gen: VCPU=2,MEMORY_MB=1024"]
    assert lines(provider_tree(dataclasses.replace(machine, hostname="x"))) == [
        "x: VCPU=2,MEMORY_MB=1024"
    ]
