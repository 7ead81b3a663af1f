"""Worked drivers beside a ledger: what they put there, what stays of others, what is told."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.exceptions import InvalidInput, PluginError
from resource_objects.host import provider_tree
from resource_objects.host.machine import (
    MIB,
    Core,
    Disk,
    Machine,
    MediatedType,
    NUMACell,
    Pages,
    PCIDevice,
)
from resource_objects.host.partitions import add_partition
from resource_objects.host.settings import HostSettings
from resource_objects.host.tracker import FindingKind, ResourceTracker
from resource_objects.host.tracker.drivers import (
    BareMetalDriver,
    BareMetalNode,
    LibvirtDriver,
    MachineDriver,
    drivers,
    make_driver,
)
from resource_objects.host.tracker.drivers.baremetal import node_class
from resource_objects.host.tracker.drivers.machine import merge_discovered
from resource_objects.host.tracker.extending import ExtendedDriver
from resource_objects.providers import diff
from resource_objects.testing.refusals import raises_code
from tests.host import trees
from tests.host.libvirt_xml import Connection

GPU = PCIDevice("0000:3b:00.0", "10de", "2330", "030200", numa_node=0, driver="nvidia")
NIC = PCIDevice("0000:60:00.0", "8086", "1572", "020000", numa_node=1)
BOX = Machine(
    hostname="box",
    architecture="x86_64",
    cpus=tuple(range(8)),
    cores=tuple(Core(core // 2, core, (core, core + 4)) for core in range(4)),
    memory_bytes=2048 * MIB,
    huge_pages=(Pages(2 * MIB, 128, free=128),),
    cells=tuple(
        NUMACell(
            number,
            tuple(cpu for cpu in range(8) if cpu % 4 // 2 == number),
            1024 * MIB,
            (Pages(4096, 229376), Pages(2 * MIB, 64, free=64)),
            package_id=number,
        )
        for number in (0, 1)
    ),
    disk=Disk("/", 1024**4, 1024**3),
    devices=(GPU, NIC),
)
RULES = ["10de:*=PGPU+CUSTOM_H100", "8086:*=CUSTOM_NIC"]


class Reading:
    """What a discovery driver reads: a machine that changes."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.times = 0

    def __call__(self) -> Machine:
        self.times += 1
        return self.machine

    def change(self, **facts: Any) -> None:
        self.machine = dataclasses.replace(self.machine, **facts)


def shown(ledger: ro.Ledger, name: str = "box") -> list[str]:
    return [str(provider) for provider in ledger.provider(name).walk()]


def unlike(ledger: ro.Ledger, wanted: ro.Provider) -> list[str]:
    """Return how a kept tree differs from another, nothing if it does not."""
    found = diff(ledger.provider(wanted.name), wanted)
    return str(found).splitlines() if found else []


# --- a machine ---


def test_a_machine_is_kept_as_discovery_finds_it(ledger: ro.Ledger) -> None:
    driver = MachineDriver(
        lambda: BOX, HostSettings(device_rules=RULES, reserved="MEMORY_MB=512"), numa=True
    )
    report = ResourceTracker(ledger, driver).update_available_resource()
    assert not report.findings
    wanted = provider_tree(
        BOX, HostSettings(device_rules=RULES, reserved="MEMORY_MB=512"), numa=True
    )
    assert not unlike(ledger, wanted)


def test_what_others_have_in_the_tree_stays(everywhere: ro.Ledger) -> None:
    reading = Reading(BOX)
    tracker = ResourceTracker(
        everywhere, MachineDriver(reading, HostSettings(device_rules=RULES), numa=True)
    )
    tracker.update_available_resource()
    tree = everywhere.provider("box")
    tree.update(
        traits={*tree.traits, "CUSTOM_RACK_1", "COMPUTE_NODE", "HW_CPU_X86_AVX"},
        aggregates=["rack-1"],
    )
    tree.add("box:bandwidth", "NET_BW_EGR_KILOBIT_PER_SEC=1000", traits=["CUSTOM_PHYSNET_A"])
    gpu = tree.find("box/0000:3b:00.0")
    gpu.update(traits={*gpu.traits, "CUSTOM_QUIET"}, aggregates=["pool"])
    gpu.add("box/gpu-monitor", "CUSTOM_PROBE=4")
    everywhere.sync(tree)

    reading.change(devices=(GPU,), memory_bytes=4096 * MIB)
    assert not tracker.update_available_resource().findings
    now = everywhere.provider("box")
    assert now.traits >= {"CUSTOM_RACK_1", "COMPUTE_NODE", "HW_CPU_X86_AVX", "HW_ARCH_X86_64"}
    assert now.aggregates == {"rack-1"}
    assert now.find("box:bandwidth").traits == {"CUSTOM_PHYSNET_A"}
    gpu = now.find("box/0000:3b:00.0")
    assert gpu.traits == {"CUSTOM_H100", "CUSTOM_QUIET"}
    assert gpu.aggregates == {"pool"}
    assert [str(provider) for provider in gpu.children] == ["box/gpu-monitor: CUSTOM_PROBE=4"]
    assert "MEMORY_MB=4096" in str(now)
    assert "box/0000:60:00.0" not in {provider.name for provider in now.walk()}


def test_what_a_machine_does_not_have_any_more_goes(ledger: ro.Ledger) -> None:
    reading = Reading(BOX)
    tracker = ResourceTracker(
        ledger, MachineDriver(reading, HostSettings(device_rules=RULES), numa=True)
    )
    tracker.update_available_resource()
    alone = tuple(Core(0, core, (core,)) for core in range(4))
    reading.change(cpus=(0, 1, 2, 3), cores=alone, cells=BOX.cells[:0], devices=())
    reading.change(architecture="riscv64")
    assert not tracker.update_available_resource().findings
    assert [provider.name for provider in ledger.provider("box").walk()] == ["box"]
    assert not {"HW_CPU_HYPERTHREADING", "HW_ARCH_X86_64"} & ledger.provider("box").traits


def test_a_trait_that_the_rule_does_not_give_any_more_goes(ledger: ro.Ledger) -> None:
    for rules, traits in (
        (["10de:*=PGPU+CUSTOM_H100+CUSTOM_FAST"], {"CUSTOM_H100", "CUSTOM_FAST"}),
        (["10de:*=PGPU+CUSTOM_H100"], {"CUSTOM_H100"}),
    ):
        driver = MachineDriver(lambda: BOX, HostSettings(device_rules=rules))
        ResourceTracker(ledger, driver).update_available_resource()
        assert ledger.provider("box").find("box/0000:3b:00.0").traits == traits


def test_a_split_comes_and_goes_with_its_rule(ledger: ro.Ledger) -> None:
    words = (";halves", "", ";mig-h100-80gb", ";mig-h200-141gb", ";thousandths", "")
    for rules in ([f"10de:*=PGPU{word}"] for word in words):
        driver = MachineDriver(lambda: BOX, HostSettings(device_rules=rules))
        assert not ResourceTracker(ledger, driver).update_available_resource().findings
        assert not unlike(ledger, provider_tree(BOX, HostSettings(device_rules=rules)))


def test_a_partition_that_somebody_made_keeps_what_it_uses(ledger: ro.Ledger) -> None:
    rules = ["10de:*=PGPU;partitions=CUSTOM_SLICE*7"]
    reading = Reading(BOX)
    tracker = ResourceTracker(ledger, MachineDriver(reading, HostSettings(device_rules=rules)))
    tracker.update_available_resource()
    tree = ledger.provider("box")
    add_partition(tree.find("box/0000:3b:00.0"), "box/mig-0", "CUSTOM_MIG", {"CUSTOM_SLICE": 3})
    ledger.sync(tree)
    later = ResourceTracker(
        ledger, MachineDriver(reading, HostSettings(device_rules=["10de:*=PGPU"]))
    )
    assert not later.update_available_resource().findings
    gpu = ledger.provider("box").find("box/0000:3b:00.0")
    assert str(gpu.inventories) == "CUSTOM_SLICE=7,DEVICES=1*PGPU"
    assert [str(share) for share in gpu.shares] == ["PGPU uses 7 CUSTOM_SLICE of box/0000:3b:00.0"]
    assert [provider.name for provider in gpu.children] == ["box/mig-0"]


def test_a_device_that_is_held_stays_when_it_is_gone(ledger: ro.Ledger) -> None:
    reading = Reading(BOX)
    tracker = ResourceTracker(ledger, MachineDriver(reading, HostSettings(device_rules=RULES)))
    tracker.update_available_resource()
    ledger.claim("job", ledger.snapshot().candidates("DEVICES=PGPU"))
    reading.change(devices=(NIC,))
    tracker.update_available_resource()
    gpu = ledger.provider("box").find("box/0000:3b:00.0")
    assert [record.reserved for record in gpu.inventories["DEVICES"].to_records()] == [1]
    ledger.release("job")
    ResourceTracker(
        ledger, MachineDriver(reading, HostSettings(device_rules=RULES))
    ).update_available_resource()
    assert [provider.name for provider in ledger.provider("box").walk()] == [
        "box",
        "box/0000:60:00.0",
    ]


#: A rule about every function that the shapes have, physical or virtual.
ANY_RULES = ["*:154c=SRIOV_NET_VF+CUSTOM_VF", "*:*=CUSTOM_CARD+CUSTOM_PART"]


@given(before=trees.shapes(), after=trees.shapes(), numa=st.tuples(st.booleans(), st.booleans()))
def test_of_any_two_machines_the_later_is_there_beside_what_others_have(
    before: trees.Shape, after: trees.Shape, numa: tuple[bool, bool]
) -> None:
    first, second = (
        provider_tree(
            trees.expected(shape), HostSettings(device_rules=ANY_RULES), name="gen", numa=cells
        )
        for shape, cells in zip((before, after), numa, strict=True)
    )
    kept = merge_discovered(ro.Provider("gen", traits=["CUSTOM_MINE"], aggregates=["rack"]), first)
    kept.add("gen:bridge", "NET_BW_EGR_KILOBIT_PER_SEC=7", traits=["CUSTOM_PHYSNET_A"])
    now = merge_discovered(kept, second)
    found = {provider.name: provider for provider in second.walk()}
    there = {provider.name: provider for provider in now.walk()}
    assert there.keys() == {*found, "gen:bridge"}
    for name, one in found.items():
        assert there[name].inventories == one.inventories
        assert there[name].shares == one.shares
    assert there["gen"].traits == {*second.traits, "CUSTOM_MINE"}
    assert there["gen"].aggregates == {"rack"}
    assert there["gen:bridge"] == kept.find("gen:bridge")
    assert all(there[name].traits == one.traits for name, one in found.items() if name != "gen")
    again = merge_discovered(now, second)
    assert {provider.name: provider for provider in again.walk()}.keys() == there.keys()
    assert not diff(_kept(now), _kept(again))


def _kept(tree: ro.Provider) -> ro.Provider:
    """Return a tree as it would be read, with uuids and generations."""
    for place, one in enumerate(tree.walk()):
        one.update(uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, one.name)), generation=place)
    return tree


def test_use_alone_makes_no_other_machine() -> None:
    used = dataclasses.replace(
        BOX,
        huge_pages=(Pages(2 * MIB, 128, free=3),),
        cells=tuple(
            dataclasses.replace(cell, pages=(cell.pages[0], Pages(2 * MIB, 64, free=1)))
            for cell in BOX.cells
        ),
        disk=Disk("/", 1024**4, 17),
        devices=(dataclasses.replace(GPU, driver="vfio-pci"), NIC),
    )
    assert used != BOX
    assert used.without_use() == BOX.without_use()
    types = (MediatedType("nvidia-222", available=4),)
    offers, none_left = (
        dataclasses.replace(GPU, mediated_types=(dataclasses.replace(types[0], available=left),))
        for left in (4, 0)
    )
    one, other = (dataclasses.replace(BOX, devices=(each,)) for each in (offers, none_left))
    assert one.without_use() == other.without_use()


@given(
    name=st.sampled_from([None, "other"]), numa=st.booleans(), rules=st.sampled_from([RULES, []])
)
def test_what_follows_from_a_machine_follows_from_it_unused(
    name: str | None, numa: bool, rules: list[str]
) -> None:
    one, other = (
        provider_tree(machine, HostSettings(device_rules=rules), name=name, numa=numa)
        for machine in (BOX, BOX.without_use())
    )
    assert one == other


def test_a_look_at_a_machine_that_did_not_change_reads_it_and_writes_nothing(
    ledger: ro.Ledger,
) -> None:
    reading = Reading(BOX)
    tracker = ResourceTracker(
        ledger, MachineDriver(reading, HostSettings(device_rules=RULES), numa=True)
    )
    tracker.update_available_resource()
    before = ledger.provider("box")
    assert not tracker.update_available_resource()
    assert ledger.provider("box") == before


def test_a_reading_is_good_for_as_long_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("resource_objects.clock.monotonic", lambda: now[0])
    reading = Reading(BOX)
    driver = MachineDriver(reading, max_age=datetime.timedelta(minutes=1))
    assert list(driver.hosts()) == ["box"]
    for _ in range(3):
        driver.get_available_resource("box")
    assert reading.times == 1
    now[0] += 60
    driver.get_available_resource("box")
    assert reading.times == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reading": 7}, "reading: got 7"),
        ({"reading": lambda: BOX, "options": {"root": "/"}}, "options: got"),
        ({"max_age": datetime.timedelta(seconds=-1)}, "max_age: got datetime.timedelta"),
        ({"max_age": 60}, "max_age: got 60"),
        ({"settings": {"device_rules": ["10de:*=PGPU"]}}, "settings: got"),
        ({"sockets": 2}, "sockets"),
        ({"name": ""}, "provider name"),
        ({"uuid": "box"}, "uuid: got 'box'"),
    ],
)
def test_what_a_machine_driver_is_not_given_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make_driver("machine", **options)


def test_rules_may_come_from_a_generator() -> None:
    driver = MachineDriver(Reading(BOX), HostSettings(device_rules=(rule for rule in RULES)))
    for _ in range(2):
        tree = ro.Provider("box")
        driver.update_provider_tree(tree, driver.get_available_resource("box"))
        assert len(tree.children) == 2


def test_a_machine_that_cannot_be_read_is_a_finding(ledger: ro.Ledger) -> None:
    driver = MachineDriver("linux", options={"root": "/nowhere"}, name="box")
    report = ResourceTracker(ledger, driver).update_available_resource()
    assert "/nowhere cannot be read" in str(report.findings[0])


def test_what_a_machine_cannot_offer_is_told(ledger: ro.Ledger) -> None:
    long = dataclasses.replace(NIC, address="10000:01:00.0")
    reading = Reading(dataclasses.replace(BOX, devices=(long,)))
    driver = MachineDriver(reading, HostSettings(device_rules=RULES))
    driver.get_available_resource("box")
    said = "its domain has more than 16 bits"
    assert [str(one) for one in driver.warnings("box")] == [
        f"device of a rule: got '10000:01:00.0', expected one that can be offered: {said}"
    ]
    tracker = ResourceTracker(ledger, driver)
    for _ in range(2):
        (finding,) = tracker.update_available_resource().findings
        assert finding.kind is FindingKind.WARNING
        assert said in str(finding)


# --- libvirt ---


def test_a_compute_host_is_kept_as_libvirt_tells_it(ledger: ro.Ledger) -> None:
    connection = Connection(BOX)
    for given_ in (connection, lambda: connection):
        driver = LibvirtDriver(given_, HostSettings(device_rules=RULES), numa=True)
        assert not ResourceTracker(ledger, driver).update_available_resource().findings
    wanted = provider_tree(
        dataclasses.replace(BOX, disk=None), HostSettings(device_rules=RULES), numa=True
    )
    assert not unlike(ledger, wanted)


def test_a_compute_host_keeps_its_last_good_view_while_libvirt_is_away(ledger: ro.Ledger) -> None:
    connection = Connection(BOX)
    tracker = ResourceTracker(ledger, LibvirtDriver(connection, name="box"))
    tracker.update_available_resource()
    before = shown(ledger)
    connection.broken = OSError("broken pipe")
    report = tracker.update_available_resource()
    assert "OSError: broken pipe" in str(report.findings[0])
    assert shown(ledger) == before
    connection.broken = None
    assert not tracker.update_available_resource()


# --- bare metal ---


def node(number: int, **said: Any) -> dict[str, Any]:
    """Return a node as Ironic's API describes it."""
    plain = {
        "uuid": str(uuid.UUID(int=number + 1)),
        "name": f"node-{number}",
        "resource_class": "baremetal.gold",
        "provision_state": "available",
        "power_state": "power off",
        "maintenance": False,
        "instance_uuid": None,
        "traits": [],
        "driver": "redfish",
    }
    return {**plain, **said}


INSTANCE = "7d9f8d4e-31b5-4c5c-a1d5-0f8a7f5f2c11"
STATES = {
    "available": ({}, ""),
    "without states": ({"provision_state": None, "power_state": None}, ""),
    "being cleaned": ({"provision_state": "cleaning"}, ":reserved=1"),
    "waiting to be cleaned": ({"provision_state": "clean wait"}, ":reserved=1"),
    "not enrolled yet": ({"provision_state": "manageable"}, ":reserved=1"),
    "in maintenance": ({"maintenance": True}, ":reserved=1"),
    "without power control": ({"power_state": "error"}, ":reserved=1"),
    "in use": ({"provision_state": "active", "instance_uuid": INSTANCE}, ":reserved=1"),
    "in use and in maintenance": ({"maintenance": True, "instance_uuid": INSTANCE}, ":reserved=1"),
}


@pytest.mark.parametrize("case", STATES)
def test_a_node_is_one_unit_of_its_class_reserved_unless_it_can_be_had(
    ledger: ro.Ledger, case: str
) -> None:
    said, figures = STATES[case]
    driver = BareMetalDriver([node(0, **said)])
    assert not ResourceTracker(ledger, driver).update_available_resource().findings
    assert shown(ledger, "node-0") == [f"node-0: CUSTOM_BAREMETAL_GOLD=1{figures}:max_unit=1"]
    assert ledger.provider("node-0").uuid == node(0)["uuid"]


@pytest.mark.parametrize("said", [{}, {"maintenance": True}])
def test_a_node_in_use_is_reserved_unless_somebody_holds_it(
    ledger: ro.Ledger, said: dict[str, Any]
) -> None:
    """Whoever runs there, and nobody knows who that is: nobody else gets the node."""
    nodes = [node(n, provision_state="active", instance_uuid=INSTANCE, **said) for n in range(2)]
    nodes[1]["instance_uuid"] = str(uuid.UUID(int=99))
    ledger.sync(ro.Provider("node-1", "CUSTOM_BAREMETAL_GOLD=1", uuid=nodes[1]["uuid"]))
    ledger.claim(nodes[1]["instance_uuid"], {"node-1": "CUSTOM_BAREMETAL_GOLD=1"})
    ledger.confirm(nodes[1]["instance_uuid"])
    tracker = ResourceTracker(ledger, BareMetalDriver(lambda: nodes))
    tracker.update_available_resource()
    assert ":reserved=1" in str(ledger.provider("node-0"))
    assert "reserved" not in str(ledger.provider("node-1"))
    assert not ledger.snapshot().candidates("CUSTOM_BAREMETAL_GOLD=1")
    found = tracker.drift()
    assert [(finding.subject, finding.kind) for finding in found.findings] == [
        ("node-0", FindingKind.UNKNOWN_CONSUMER)
    ]
    ledger.apply(found.plan)
    assert not tracker.drift()
    again = ResourceTracker(ledger, BareMetalDriver(lambda: nodes))
    assert not again.update_available_resource().findings
    assert "reserved" not in str(ledger.provider("node-0"))


def test_as_in_nova_a_node_in_use_can_be_reserved_too(ledger: ro.Ledger) -> None:
    given_ = node(0, provision_state="active", instance_uuid=INSTANCE)
    driver = BareMetalDriver([given_], reserve_in_use=True)
    ResourceTracker(ledger, driver).update_available_resource()
    assert ":reserved=1" in str(ledger.provider("node-0"))


def test_a_node_without_a_name_is_called_by_its_uuid(ledger: ro.Ledger) -> None:
    driver = BareMetalDriver([node(0, name=None)])
    assert not ResourceTracker(ledger, driver).update_available_resource().findings
    assert [provider.name for provider in ledger.providers()] == [node(0)["uuid"]]


def test_another_node_under_the_name_of_one_is_told_and_not_taken_for_it(ledger: ro.Ledger) -> None:
    nodes = [node(0)]
    tracker = ResourceTracker(ledger, BareMetalDriver(lambda: nodes))
    tracker.update_available_resource()
    nodes[0] = node(0, uuid=node(7)["uuid"], resource_class="silver")
    (finding,) = tracker.update_available_resource().findings
    assert finding.kind is FindingKind.REPLACED
    assert shown(ledger, "node-0") == ["node-0: CUSTOM_BAREMETAL_GOLD=1:max_unit=1"]


@pytest.mark.law(1)
def test_a_node_that_is_renamed_stays_what_it_is(everywhere: ro.Ledger) -> None:
    nodes = [node(0), node(1)]
    tracker = ResourceTracker(everywhere, ExtendedDriver(BareMetalDriver(lambda: nodes), []))
    tracker.update_available_resource()
    everywhere.claim("vm", {"node-0": "CUSTOM_BAREMETAL_GOLD=1"})
    nodes[0] = node(0, name="rack-7")
    assert str(tracker.update_available_resource()) == "~ rack-7: name or parent"
    assert not tracker.update_available_resource()
    assert everywhere.provider("rack-7").uuid == node(0)["uuid"]
    assert str(everywhere.get_claim("vm")) == "vm holds CUSTOM_BAREMETAL_GOLD=1 of rack-7"
    nodes[:] = [node(0, name="node-1"), node(1, name="rack-7")]  # two change names
    for _ in range(2):
        found = tracker.update_available_resource().findings
        assert {one.kind for one in found} == {FindingKind.REPLACED}
    nodes[:] = [node(0, name="rack-7"), node(1), node(1, name="twin")]
    (finding,) = tracker.update_available_resource().findings
    assert (finding.subject, finding.kind) == ("twin", FindingKind.OTHER_TREE)


def test_who_cannot_say_whether_a_host_is_renamed_stops_no_other(ledger: ro.Ledger) -> None:
    class Broken(BareMetalDriver):
        def is_renamed(self, host: str, before: str) -> bool:
            raise OSError("no answer")

    nodes = [node(0), node(1)]
    tracker = ResourceTracker(ledger, Broken(lambda: nodes))
    tracker.update_available_resource()
    nodes[:] = [node(0, name="rack-7"), node(1, provision_state="cleaning")]
    report = tracker.update_available_resource()
    assert [(finding.subject, finding.kind) for finding in report.findings] == [
        ("rack-7", FindingKind.DRIVER_FAILED)
    ]
    assert report.changed == ("node-1",)
    assert sorted(provider.name for provider in ledger.providers()) == ["node-0", "node-1"]


def test_a_class_that_is_held_does_not_change_until_it_is_given_back(ledger: ro.Ledger) -> None:
    nodes = [node(0)]
    tracker = ResourceTracker(ledger, BareMetalDriver(lambda: nodes))
    tracker.update_available_resource()
    ledger.claim("vm", {"node-0": "CUSTOM_BAREMETAL_GOLD=1"})
    nodes[0] = node(0, resource_class="silver")
    (finding,) = tracker.update_available_resource().findings
    assert finding.kind is FindingKind.IN_USE
    assert not ledger.snapshot().candidates("CUSTOM_SILVER=1"), "it is one node"
    ledger.release("vm")
    assert not tracker.update_available_resource().findings
    assert shown(ledger, "node-0") == ["node-0: CUSTOM_SILVER=1:max_unit=1"]


def test_the_life_of_a_node(ledger: ro.Ledger) -> None:
    nodes = [node(0)]
    tracker = ResourceTracker(ledger, BareMetalDriver(lambda: nodes))
    tracker.update_available_resource()
    request = "CUSTOM_BAREMETAL_GOLD=1"
    ledger.claim("vm", ledger.snapshot().candidates(request))
    nodes[0] = node(0, provision_state="active", instance_uuid=INSTANCE)
    tracker.update_available_resource()
    assert not ledger.snapshot().candidates(request)
    # the agent looks before it gives back: so nobody gets it before it is clean
    nodes[0] = node(0, provision_state="cleaning")
    tracker.update_available_resource()
    ledger.release("vm")
    assert not ledger.snapshot().candidates(request)
    nodes[0] = node(0)
    tracker.update_available_resource()
    assert ledger.snapshot().candidates(request)


def test_nodes_move_between_agents(everywhere: ro.Ledger) -> None:
    mine, theirs = [node(0), node(1)], [node(2)]
    one = ResourceTracker(everywhere, BareMetalDriver(lambda: mine))
    other = ResourceTracker(everywhere, BareMetalDriver(lambda: theirs))
    one.update_available_resource()
    other.update_available_resource()
    everywhere.claim("vm", {"node-1": "CUSTOM_BAREMETAL_GOLD=1"})
    before = everywhere.provider("node-1")
    theirs.append(mine.pop())
    assert not one.update_available_resource()
    assert not other.update_available_resource()
    assert everywhere.provider("node-1") == before
    mine.append(theirs[-1])  # for a while both have it
    assert not one.update_available_resource()
    assert not other.update_available_resource()


def test_a_node_has_the_traits_it_says_and_those_about_services(ledger: ro.Ledger) -> None:
    nodes = [node(0, traits=["CUSTOM_BOOT_UEFI", "HW_CPU_X86_VMX"])]
    tracker = ResourceTracker(ledger, BareMetalDriver(lambda: nodes))
    tracker.update_available_resource()
    tree = ledger.provider("node-0")
    ledger.sync(_with_traits(tree, "COMPUTE_NODE", "CUSTOM_MINE"))
    nodes[0] = node(0, traits=["CUSTOM_BOOT_UEFI", "HW_CPU_X86_AVX"])
    tracker.update_available_resource()
    assert ledger.provider("node-0").traits == {
        "COMPUTE_NODE",
        "CUSTOM_BOOT_UEFI",
        "HW_CPU_X86_AVX",
    }


def _with_traits(tree: ro.Provider, *traits: str) -> ro.Provider:
    tree.update(traits={*tree.traits, *traits})
    return tree


def test_one_wrong_node_holds_up_no_other(ledger: ro.Ledger) -> None:
    wrong = [
        node(0, resource_class=None),
        node(1, uuid="none"),
        node(2, traits=["custom_small"]),
        node(3, maintenance="yes"),
        {"power_state": "error"},
        "node-5",
        node(6),
        node(7, name="node-6"),
    ]
    report = ResourceTracker(ledger, BareMetalDriver(wrong)).update_available_resource()
    assert [provider.name for provider in ledger.providers()] == ["node-6"]
    twice = str(uuid.UUID(int=8))
    said = {finding.subject: str(finding.error) for finding in report.findings}
    assert said.pop(twice)
    assert {host: text.partition(":")[0] for host, text in said.items()} == {
        "node-0": "resource_class of node node-0",
        "node-1": "uuid",
        "node-2": "trait",
        "node-3": "maintenance of node node-3",
        "nodes[4]": "uuid of node {'power_state'",
        "nodes[5]": "uuid of node node-5",
    }
    with raises_code("DuplicateKey", match="name of a node: got 'node-6'"):
        BareMetalDriver(wrong).get_available_resource(twice)


CLASSES = {
    "baremetal": "CUSTOM_BAREMETAL",
    "baremetal.gold-2": "CUSTOM_BAREMETAL_GOLD_2",
    "large  disk": "CUSTOM_LARGE_DISK",
    "CUSTOM_GOLD": "CUSTOM_CUSTOM_GOLD",
    "größe": "CUSTOM_GR_E",
    "-x-": "CUSTOM__X_",
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_named_as_nova_names_it(name: str) -> None:
    assert node_class(name) == CLASSES[name]


@pytest.mark.parametrize("name", ["", None, 7, "x" * 255])
def test_what_is_no_resource_class_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="resource class"):
        node_class(name)


def test_resource_classes_that_become_the_same_are_told() -> None:
    names = ["gold-1", "gold.1", "gold-1", "silver"]
    driver = BareMetalDriver([node(n, resource_class=one) for n, one in enumerate(names)])
    told = {host: [str(one) for one in driver.warnings(host)] for host in driver.hosts()}
    assert told == {
        "node-0": [],
        "node-1": [
            "resource class of a node: got 'gold.1', expected one name for CUSTOM_GOLD_1: gold-1 "
            "of node-0 becomes that too"
        ],
        "node-2": [],
        "node-3": [],
    }


def test_a_node_of_another_kind_of_client_is_taken_by_its_attributes() -> None:
    class Ironic:
        uuid = uuid.UUID(int=9)
        resource_class = "gold"
        provision_state = "available"
        maintenance = True

    found = BareMetalNode.of(Ironic())
    assert (found.host, found.is_available) == (str(uuid.UUID(int=9)), False)
    assert BareMetalNode.of(found) is found
    assert copy.deepcopy(found) == found


def test_who_has_a_node_is_its_instance() -> None:
    driver = BareMetalDriver([node(0, instance_uuid=INSTANCE), node(1)])
    assert driver.consumers("node-0") == {INSTANCE: {"CUSTOM_BAREMETAL_GOLD": 1}}
    assert driver.consumers("node-1") == {}


@pytest.mark.parametrize("nodes", [7, "node-0", None])
def test_what_are_no_nodes_is_refused(nodes: Any) -> None:
    with pytest.raises(InvalidInput, match="nodes: got"):
        BareMetalDriver(nodes)


def test_a_node_that_was_not_there_is_not_found() -> None:
    with raises_code("ProviderNotFound", match="no node of this agent"):
        BareMetalDriver([node(0)]).get_available_resource("node-1")


# --- by name ---


def test_drivers_are_found_by_name(ledger: ro.Ledger) -> None:
    assert drivers() == ["baremetal", "libvirt", "machine"]
    assert isinstance(make_driver("libvirt", connection=Connection(BOX)), LibvirtDriver)
    assert isinstance(make_driver("machine"), MachineDriver)


@pytest.mark.parametrize("name", ["xen", "", 7])
def test_a_driver_that_there_is_not_is_named(name: Any) -> None:
    with pytest.raises((PluginError, InvalidInput), match="baremetal, libvirt, machine"):
        make_driver(name)


def test_what_is_no_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for made, said in ((7, "it is a int, not callable"), (dict, "it returned a dict, no Driver")):
        monkeypatch.setattr("resource_objects.plugins.load", lambda *_, made=made: made)
        with pytest.raises(PluginError, match=said):
            make_driver("mine")
