"""What can be wrong with a host: a finding of a kind each; nothing half done, no other held up."""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Callable

import pytest

import resource_objects as ro
from resource_objects import clock
from resource_objects.host.machine import MIB, Core, Machine, NUMACell, PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.host.tracker import FindingKind, HostReport, ResourceTracker
from resource_objects.host.tracker.drivers import MachineDriver
from resource_objects.host.tracker.extending import ExtendedDriver, HostResource
from resource_objects.host.tracker.reconcile import CONTESTED_PERIOD
from resource_objects.providers import Provider
from resource_objects.providers.provider import Share
from resource_objects.resources.pci import PCIInventory
from resource_objects.testing.refusals import raises_code
from tests.tracker.agents import Agent, Word

pytestmark = pytest.mark.law(2)

K = FindingKind


def _loop(tree: Provider) -> None:
    child = tree.add("bad/a", "PGPU=1")
    child.update(children=[tree])


def _twice(tree: Provider) -> None:
    tree.update(children=[Provider("bad/a", "PGPU=1"), Provider("bad/a", "PGPU=1")])


def _named_twice_deeper(tree: Provider) -> None:
    for name in ("bad/a", "bad/b"):
        tree.add(name, "PGPU=1")
    for child in tree.children:
        child.update(children=[Provider("bad/c", "PGPU=1")])


def _leads_nowhere(tree: Provider) -> None:
    tree.add("bad/a", "VCPU=1", shares=[Share(resource_class="VCPU", of="no", of_class="VCPU")])


def _renames(tree: Provider) -> None:
    tree.update(name="other")


def _takes(name: str) -> Callable[[Provider], None]:
    def edit(tree: Provider) -> None:
        tree.add(name, "PGPU=1")

    return edit


#: What a driver says of a host, and what kind of finding it is.
WRONG: dict[str, tuple[Word, FindingKind, str]] = {
    "raises": (OSError("no such node"), K.DRIVER_FAILED, "OSError: no such node"),
    "database": (
        ro.exceptions.DatabaseError("unavailable", "its own"),
        K.DRIVER_FAILED,
        "its own cannot be opened",
    ),
    "negative": ("VCPU=-1", K.INVALID, "-1"),
    "float": ({"VCPU": 1.5}, K.INVALID, "1.5"),
    "unknown class": ("SPAGHETTI=1", K.INVALID, "SPAGHETTI"),
    "reserved": ("VCPU=1:reserved=2", K.INVALID, "reserved"),
    "no inventories": (lambda tree: tree.update(inventories=3), K.INVALID, "3"),
    "unknown trait": (lambda tree: tree.update(traits=["FAST"]), K.INVALID, "FAST"),
    "fails in the tree": (lambda tree: 1 / 0, K.DRIVER_FAILED, "division by zero"),
    "loop": (_loop, K.INVALID_TREE, "bad"),
    "twice": (_twice, K.INVALID_TREE, "bad/a"),
    "twice deeper": (_named_twice_deeper, K.INVALID_TREE, "bad/c"),
    "share": (_leads_nowhere, K.INVALID_TREE, "shares"),
    "renamed": (_renames, K.INVALID_TREE, "other"),
    "a stranger's": (_takes("stranger/gpu"), K.OTHER_TREE, "stranger/gpu"),
    "another host": (_takes("stranger"), K.OTHER_TREE, "stranger"),
}


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize(("word", "kind", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_host_is_a_finding_and_stays_as_it_was(
    ledger: ro.Ledger, word: Word, kind: FindingKind, said: str, is_kept: bool
) -> None:
    stranger = ro.Provider("stranger", "VCPU=1")
    stranger.add("stranger/gpu", "PGPU=1")
    ledger.sync(stranger)
    driver = Agent(before="VCPU=1", bad="VCPU=8", after="VCPU=2")
    tracker = ResourceTracker(ledger, driver)
    if is_kept:
        tracker.update_available_resource()
    before = [str(tree) for tree in ledger.trees()]
    driver.has.update(bad=word, before="VCPU=3", after="VCPU=4")
    for _ in range(2):  # as long as it is so
        [finding] = tracker.update_available_resource().findings
        assert (finding.subject, finding.kind) == ("bad", kind)
        assert said in str(finding)
    kept = {tree.name: str(tree) for tree in ledger.trees()}
    assert kept["before"] == "before: VCPU=3"
    assert kept["after"] == "after: VCPU=4"
    assert ("bad" in kept) == is_kept
    assert {kept.get("bad"), kept["stranger"]} - {None} <= {*before, kept["stranger"]}
    driver.has.update(bad="VCPU=9")
    assert tracker.update_available_resource().changed == ("bad",)
    assert not tracker.update_available_resource()


#: What is wrong with the inventory of DISK_GB.
WRONG_DISKS: dict[str, tuple[Word, str]] = {
    "negative": ({"VCPU": 8, "DISK_GB": -1}, "DISK_GB total: got -1"),
    "a float": ({"VCPU": 8, "DISK_GB": 1.5}, "DISK_GB total: got 1.5"),
    "text": ("VCPU=8,DISK_GB=much", "total of DISK_GB: got 'much'"),
    "reserved above total": ("VCPU=8,DISK_GB=4:reserved=5", "DISK_GB reserved: got 5"),
    "reserved of nothing": ("VCPU=8,DISK_GB=0:reserved=5", "DISK_GB reserved: got 5"),
    "units": ("VCPU=8,DISK_GB=4:min_unit=3:max_unit=2", "DISK_GB max_unit: got 2"),
    "ratio of 0": ("VCPU=8,DISK_GB=4:allocation_ratio=0", "DISK_GB allocation_ratio: got '0'"),
    "another kind": ({"VCPU": 8, "DISK_GB": PCIInventory([])}, "inventory of DISK_GB"),
}


@pytest.mark.parametrize(("word", "message"), WRONG_DISKS.values(), ids=WRONG_DISKS)
def test_an_invalid_inventory_is_a_finding_and_the_rest_of_the_host_is_stored(
    ledger: ro.Ledger, word: Word, message: str
) -> None:
    driver = Agent(box=word)
    tracker = ResourceTracker(ledger, driver)
    report = tracker.update_available_resource()
    assert [(finding.subject, finding.kind) for finding in report.findings] == [("box", K.INVALID)]
    assert message in str(report.findings[0])
    assert report.changed == ("box",) and report.hosts[0].is_reported
    assert str(ledger.provider("box")) == "box: VCPU=8"
    [again] = tracker.update_available_resource().findings  # for as long as it is so
    assert again == report.findings[0] and driver.edits == 1

    driver.has["box"] = "VCPU=8,DISK_GB=100"
    assert not tracker.update_available_resource().findings
    driver.has["box"] = {"VCPU": 9, "DISK_GB": -3}
    [later] = tracker.update_available_resource().findings
    assert (later.kind, str(later.error)[:22]) == (K.INVALID, "DISK_GB total: got -3,")
    assert str(ledger.provider("box")) == "box: VCPU=9,DISK_GB=100"
    driver.has["box"] = "VCPU=9,DISK_GB=50"
    assert not tracker.update_available_resource().findings
    assert str(ledger.provider("box")) == "box: VCPU=9,DISK_GB=50"


def test_an_unknown_class_is_a_finding_and_the_rest_of_the_host_is_stored(
    ledger: ro.Ledger,
) -> None:
    driver = Agent(box={"VCPU": 8, "SPAGHETTI": 1}, lab="SPAGHETTI=1,VCPU=4")
    report = ResourceTracker(ledger, driver).update_available_resource()
    assert [(finding.subject, finding.kind) for finding in report.findings] == [
        ("box", K.INVALID),
        ("lab", K.INVALID),
    ]
    assert [*map(str, ledger.trees())] == ["box: VCPU=8", "lab: VCPU=4"]


@pytest.mark.parametrize("word", ["VCPU=8,DISK_GB=0", {"VCPU": 8, "DISK_GB": 0}])
def test_a_resource_of_total_0_is_not_there_and_no_finding(ledger: ro.Ledger, word: Word) -> None:
    driver = Agent(box=word)
    tracker = ResourceTracker(ledger, driver)
    assert not tracker.update_available_resource().findings
    assert str(ledger.provider("box")) == "box: VCPU=8"
    driver.has["box"] = "VCPU=8,DISK_GB=9"
    tracker.update_available_resource()
    driver.has["box"] = word
    assert not tracker.update_available_resource().findings
    assert str(ledger.provider("box")) == "box: VCPU=8"


def test_a_host_may_have_nothing_of_any_resource(ledger: ro.Ledger) -> None:
    driver = Agent(box={"VCPU": 0, "DISK_GB": 0})
    assert not ResourceTracker(ledger, driver).update_available_resource().findings
    assert str(ledger.provider("box")) == "box: "


def test_cells_and_devices_are_stored_next_to_an_invalid_inventory(ledger: ro.Ledger) -> None:
    gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200", numa_node=0)
    machine = Machine(
        hostname="box",
        cpus=(0, 1),
        cores=(Core(0, 0, (0, 1)),),
        memory_bytes=1024 * MIB,
        devices=(gpu,),
        cells=(NUMACell(0, (0, 1), 1024 * MIB), NUMACell(1, (), 0)),
    )
    driver = MachineDriver(
        lambda: machine, HostSettings(device_rules=["10de:*=PGPU"], reserved="VCPU=3"), numa=True
    )
    tracker = ResourceTracker(ledger, driver)
    [finding] = tracker.update_available_resource().findings
    assert str(finding) == ("box: invalid: VCPU reserved: got 3, expected at most the total of 2")
    names = ["box", "box/0000:3b:00.0", "box/numa0", "box/numa1"]
    assert [provider.name for provider in ledger.providers()] == names
    assert str(ledger.provider("box")) == "box: MEMORY_MB=1024"

    enough = MachineDriver(
        lambda: machine, HostSettings(device_rules=["10de:*=PGPU"], reserved="VCPU=1"), numa=True
    )
    assert not ResourceTracker(ledger, enough).update_available_resource().findings
    machine = dataclasses.replace(machine, memory_bytes=512 * MIB)
    [finding] = ResourceTracker(ledger, driver).update_available_resource().findings
    assert finding.kind is K.INVALID
    assert str(ledger.provider("box")) == "box: VCPU=2:reserved=1,MEMORY_MB=512"
    assert [provider.name for provider in ledger.providers()] == names


def test_more_reserved_by_a_setting_than_there_is_is_a_finding(ledger: ro.Ledger) -> None:
    driver = Agent(box="VCPU=8,MEMORY_MB=256", lab="VCPU=8,MEMORY_MB=4096")
    tracker = ResourceTracker(ledger, driver, reserved="MEMORY_MB=512")
    [finding] = tracker.update_available_resource().findings
    assert (finding.subject, finding.kind) == ("box", K.INVALID)
    assert "MEMORY_MB reserved: got 512, expected at most the total of 256" in str(finding)
    assert [*map(str, ledger.trees())] == ["box: VCPU=8", "lab: VCPU=8,MEMORY_MB=4096:reserved=512"]
    driver.has["lab"] = "VCPU=4,MEMORY_MB=128"
    tracker.update_available_resource()
    assert str(ledger.provider("lab")) == "lab: VCPU=4,MEMORY_MB=4096:reserved=512"


def test_a_plug_in_and_an_invalid_inventory_of_its_driver(ledger: ro.Ledger) -> None:
    class Watts(HostResource):
        resource_classes = ("CUSTOM_WATT",)

        def inventories(self, host: str) -> str:
            return "CUSTOM_WATT=1200"

    driver = Agent(box={"VCPU": 8, "DISK_GB": -1})
    tracker = ResourceTracker(ledger, ExtendedDriver(driver, [Watts()]))
    [finding] = tracker.update_available_resource().findings
    assert (finding.subject, finding.kind) == ("box", K.INVALID)
    assert str(ledger.provider("box")) == "box: VCPU=8,CUSTOM_WATT=1200"


def test_children_may_have_nothing_of_a_resource(ledger: ro.Ledger) -> None:
    def edit(tree: Provider) -> None:
        tree.update(
            inventories=ro.Inventories({"VCPU": 8, "DISK_GB": 0}),
            children=[Provider("box/gpu0", "PGPU=0,VGPU=4"), Provider("box/gpu1", {"PGPU": 0})],
        )

    tracker = ResourceTracker(ledger, Agent(box=edit))
    assert not tracker.update_available_resource().findings
    assert [*map(str, next(iter(ledger.trees("box"))).walk())] == [
        "box: VCPU=8",
        "box/gpu0: VGPU=4",
        "box/gpu1: ",
    ]


def test_names_that_cannot_be_or_are_said_twice(ledger: ro.Ledger) -> None:
    driver = Agent(box="VCPU=1", lab="VCPU=2")
    driver.named = ["box", "", "lab", "box", 7]
    report = ResourceTracker(ledger, driver).update_available_resource()
    assert [(finding.subject, finding.kind) for finding in report.findings] == [
        ("box", K.NAMED_TWICE),
        ("''", K.INVALID),
        ("7", K.INVALID),
    ]
    assert report.changed == ("box", "lab")


def test_a_host_that_the_driver_does_not_name(ledger: ro.Ledger) -> None:
    driver = Agent(box="VCPU=1", lab="VCPU=2")
    report = ResourceTracker(ledger, driver).update_available_resource("lab", "bax")
    assert [(finding.subject, finding.kind) for finding in report.findings] == [
        ("bax", K.UNKNOWN_HOST)
    ]
    assert report.changed == ("lab",)
    with raises_code("ProviderNotFound"):
        ResourceTracker(ledger, driver).compute_node("bax")


def test_shrunk_below_use_is_kept_as_it_is_and_reported_with_holders(ledger: ro.Ledger) -> None:
    driver = Agent(box="VCPU=8,MEMORY_MB=1024")
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    for name in ("vm-1", "vm-2"):
        tracker.claim(name, "box", "VCPU=3")
    driver.has["box"] = "VCPU=4,MEMORY_MB=1024"
    for changed in (("box",), (), ()):
        report = tracker.update_available_resource()
        assert report.changed == changed
        [finding] = report.findings
        assert finding.kind is K.OVER_CAPACITY
        said = "box: over capacity: VCPU of box: 6 used of 4 (vm-1 holds 3, vm-2 holds 3)"
        assert str(finding) == said
    ledger.release("vm-2")
    assert not tracker.update_available_resource()
    # by a tracker that begins with it
    ledger.claim("vm-3", {"box": "VCPU=1"})
    driver.has["box"] = "VCPU=3,MEMORY_MB=1024"
    tracker.update_available_resource()
    [finding] = ResourceTracker(ledger, driver).update_available_resource().findings
    assert finding.uses[0].holders == (("vm-1", 3), ("vm-3", 1))


def test_what_is_gone_and_held_is_reported_with_its_holders(ledger: ro.Ledger) -> None:
    cells = [ro.HostCell(n, shared=range(4 * n, 4 * n + 4), memory_mb=512) for n in (0, 1)]

    def edit(tree: Provider) -> None:
        tree.update(inventories=ro.Inventories(f"VCPU={4 * len(cells)}"), children=[])
        tree.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))

    driver = Agent(box=edit)
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    ledger.claim("vm", {"box/numa1": "VCPU=2"})
    del cells[1]
    [finding] = tracker.update_available_resource().findings
    assert (finding.kind, finding.subject) == (K.IN_USE, "box")
    assert "box/numa1" in str(finding)
    assert "VCPU of box/numa1 (vm holds 2)" in str(finding)
    assert len(ledger.provider("box").children) == 2, "the last good view"
    ledger.release("vm")
    assert tracker.update_available_resource().changed == ("box",)
    assert len(ledger.provider("box").children) == 1


def test_a_class_that_is_gone_and_held(ledger: ro.Ledger) -> None:
    driver = Agent(box="VCPU=8,CUSTOM_FPGA=1", lab="VCPU=1")
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    tracker.claim("vm", "box", "CUSTOM_FPGA=1")
    driver.has.update(box="VCPU=9", lab="VCPU=2")
    report = tracker.update_available_resource()
    assert [(finding.subject, finding.kind) for finding in report.findings] == [("box", K.IN_USE)]
    assert report.changed == ("box", "lab")
    assert "CUSTOM_FPGA of box (vm holds 1)" in str(report)
    assert str(ledger.provider("box")) == "box: VCPU=9,CUSTOM_FPGA=1:reserved=1:used=1"


@pytest.mark.law(4)
def test_the_rest_of_a_report_is_stored_if_a_class_in_use_is_gone(everywhere: ro.Ledger) -> None:
    driver = Agent(box="VCPU=8,PGPU=4:reserved=1")
    tracker = ResourceTracker(everywhere, driver)
    tracker.update_available_resource()
    tracker.claim("a", "box", "PGPU=2")
    driver.has["box"] = "VCPU=6,PGPU=1"
    [finding] = tracker.update_available_resource().findings
    assert finding.kind is K.OVER_CAPACITY
    for cpus in (5, 5, 4):
        driver.has["box"] = f"VCPU={cpus}"
        [finding] = tracker.update_available_resource().findings
        assert finding.kind is K.IN_USE
        assert finding.uses[0].holders == (("a", 2),)
        assert "PGPU of box (a holds 2)" in str(finding)
        tracker.claim("b", "box", f"VCPU={cpus}")
        tracker.release("b")
        for request in ("PGPU=1", f"VCPU={cpus + 1}"):
            with pytest.raises(ro.CapacityException):
                tracker.claim("b", "box", request)
    # by a tracker that begins with it
    [finding] = ResourceTracker(everywhere, driver).update_available_resource().findings
    assert finding.kind is K.IN_USE
    # it comes back
    driver.has["box"] = "VCPU=4,PGPU=3"
    assert not tracker.update_available_resource().findings
    tracker.claim("b", "box", "PGPU=1")
    tracker.release("b")
    # and is gone again, until it is released
    driver.has["box"] = "VCPU=4"
    assert [finding.kind for finding in tracker.update_available_resource().findings] == [K.IN_USE]
    tracker.release("a")
    assert not tracker.update_available_resource().findings
    assert str(everywhere.provider("box")) == "box: VCPU=4"
    assert not everywhere.audit()


def test_a_child_in_use_that_is_gone_stays_reserved_and_the_rest_is_stored(
    everywhere: ro.Ledger,
) -> None:
    def tree(*cards: int) -> Callable[[Provider], None]:
        def edit(tree: Provider) -> None:
            tree.update(inventories=ro.Inventories(f"VCPU={len(cards)}"), children=[])
            for card in cards:
                tree.add(f"box/fpga{card}", "CUSTOM_FPGA=2,CUSTOM_PORT=4", traits=["CUSTOM_FAST"])

        return edit

    driver = Agent(box=tree(0, 1))
    tracker = ResourceTracker(everywhere, driver)
    tracker.update_available_resource()
    everywhere.claim("vm", {"box/fpga0": "CUSTOM_FPGA=1"})
    for cards in ((1,), (1, 2, 3)):  # another card of the class may come at the same time
        driver.has["box"] = tree(*cards)
        [finding] = tracker.update_available_resource().findings
        assert finding.kind is K.IN_USE
        assert "CUSTOM_FPGA of box/fpga0 (vm holds 1)" in str(finding)
        found = everywhere.provider("box")
        assert found.inventories["VCPU"] == ro.IntegerInventory(len(cards), resource_class="VCPU")
        assert str(found.find("box/fpga0").inventories) == "CUSTOM_FPGA=2:reserved=2:used=1"
        assert found.find("box/fpga0").traits == {"CUSTOM_FAST"}
    everywhere.release("vm")
    assert not tracker.update_available_resource().findings
    assert {provider.name for provider in everywhere.provider("box").walk()} == {
        *("box", "box/fpga1", "box/fpga2", "box/fpga3")
    }


def test_a_trait_in_use_may_go(ledger: ro.Ledger) -> None:
    def edit(tree: Provider) -> None:
        tree.update(inventories=ro.Inventories("VCPU=8"), traits=traits)

    traits = {"CUSTOM_FAST"}
    tracker = ResourceTracker(ledger, Agent(box=edit))
    tracker.update_available_resource()
    ledger.claim("vm", {"box": "VCPU=1"})
    traits.clear()
    assert not tracker.update_available_resource().findings
    assert not ledger.provider("box").traits


def _gpus(*places: int) -> Callable[[Provider], None]:
    def edit(tree: Provider) -> None:
        found = [
            ro.Device(f"0000:{place:02x}:00.0", "10de", "2330", resource_class="PGPU")
            for place in places
        ]
        tree.update(inventories=ro.Inventories("VCPU=8"), children=[])
        if found:
            tree.add_parts("DEVICES", ro.PCIInventory(found))

    return edit


def test_a_device_that_is_gone_and_held_stays_for_its_holder(ledger: ro.Ledger) -> None:
    driver = Agent(box=_gpus(1, 2))
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    [address] = next(iter(ledger.claim("vm", {"box": "DEVICES=PGPU"}).allocations)).units
    driver.has["box"] = _gpus(*({1, 2} - {int(address[5:7])}))
    for changed in (("box",), ()):
        report = tracker.update_available_resource()
        assert report.changed == changed
        [finding] = report.findings
        assert finding.kind is K.DEVICE_RETAINED
        assert f"{address}: retained: no longer offered" in str(finding)
        assert "allocated to vm" in str(finding)
    # a driver that does not touch devices does not bring it back
    driver.has["box"] = lambda tree: tree.update(inventories=ro.Inventories("VCPU=9"))
    report = tracker.update_available_resource()
    assert [finding.kind for finding in report.findings] == [K.DEVICE_RETAINED]
    ledger.release("vm")
    with pytest.raises(ro.CapacityException):
        ledger.claim("vm", {"box": "DEVICES=2*PGPU"})
    assert f"- box/{address}" in str(tracker.update_available_resource())
    assert len(ledger.provider("box").children) == 1


def test_an_allocated_device_for_one_use_is_not_over_capacity(ledger: ro.Ledger) -> None:
    gpu = ro.Device("0000:01:00.0", "10de", "2330", resource_class="PGPU", one_time_use=True)

    def edit(tree: Provider) -> None:
        tree.update(inventories=ro.Inventories(f"VCPU={cpus}"), children=[])
        tree.add_parts("DEVICES", PCIInventory([gpu]))

    cpus = 8
    tracker = ResourceTracker(ledger, Agent(box=edit))
    tracker.update_available_resource()
    ledger.claim("vm", {"box": "DEVICES=PGPU"})
    cpus = 9
    report = tracker.update_available_resource()
    assert report.changed == ("box",)
    assert not report.findings
    assert not tracker.update_available_resource()
    ledger.release("vm")
    cpus = 10
    [finding] = tracker.update_available_resource().findings
    assert finding.kind is K.DEVICE_RETAINED
    assert "used once, reserved until it is reset" in str(finding)


def test_a_host_replaced_under_its_name(ledger: ro.Ledger) -> None:
    driver = Agent(box="VCPU=8", lab="VCPU=1")
    driver.uuids["box"] = first = str(uuids.uuid4())
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    assert ledger.provider("box").uuid == first
    driver.uuids["box"] = second = str(uuids.uuid4())
    driver.has["box"] = "VCPU=64"
    [finding] = tracker.update_available_resource().findings
    assert finding.kind is K.REPLACED
    assert first in str(finding)
    assert second in str(finding)
    assert str(ledger.provider("box")) == "box: VCPU=8"
    tracker.remove("box")  # somebody looked, and says so
    assert tracker.update_available_resource().changed == ("box",)
    assert ledger.provider("box").uuid == second


def test_a_uuid_that_is_another_hosts(ledger: ro.Ledger) -> None:
    driver = Agent(box="VCPU=8", lab="VCPU=1")
    driver.uuids = dict.fromkeys(("box", "lab"), str(uuids.uuid4()))
    report = ResourceTracker(ledger, driver).update_available_resource()
    assert report.changed == ("box",)
    assert [(finding.subject, finding.kind) for finding in report.findings] == [
        ("lab", K.OTHER_TREE)
    ]
    assert [provider.name for provider in ledger.providers()] == ["box"]


def test_a_host_that_is_a_part_of_another(ledger: ro.Ledger) -> None:
    chassis = ro.Provider("chassis", "VCPU=64")
    chassis.add("blade", "VCPU=8")
    ledger.sync(chassis)
    [finding] = ResourceTracker(ledger, Agent(blade="VCPU=4")).update_available_resource().findings
    assert (finding.kind, finding.detail) == (K.OTHER_TREE, "it is in the tree of chassis")


def test_two_trackers_of_one_host_stop_undoing_each_other(url: str) -> None:
    with ro.connect(url, actor="agent-1") as ledger:
        other = ro.Ledger(ledger.backend, actor="agent-2")
        one = ResourceTracker(ledger, Agent(box="VCPU=8"))
        two = ResourceTracker(other, Agent(box="VCPU=4"))
        reports = [tracker.update_available_resource() for _ in range(6) for tracker in (one, two)]
        assert sum(bool(report.changed) for report in reports) < 5
        assert not any(report.changed for report in reports[5:])
        for report in reports[-2:]:
            for finding in report.findings:
                assert finding.kind is K.CONTESTED
                assert "agent-" in str(finding)
        assert {finding.subject for report in reports[-2:] for finding in report.findings} == {
            "box"
        }


def test_of_two_trackers_the_one_that_is_left_is_right_again_later(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: seconds[0])
    with ro.connect(url, actor="agent-1") as ledger:
        other = ro.Ledger(ledger.backend, actor="agent-2")
        one = ResourceTracker(ledger, Agent(box="VCPU=8"))
        two = ResourceTracker(other, Agent(box="VCPU=4"))
        looks = [tracker.update_available_resource for _ in range(4) for tracker in (one, two)]
        reports = [look() for look in looks]
        [left] = [t for t, found in ((one, reports[-2]), (two, reports[-1])) if found.findings]
        seconds[0] += CONTESTED_PERIOD.total_seconds() - 1
        assert [finding.kind for finding in left.update_available_resource().findings] == [
            K.CONTESTED
        ]
        seconds[0] += 1
        writes = [bool(look().changed) for look in looks]
        assert any(writes) and sum(writes) < 5, "who both live go on as before, from time to time"
        assert not any(writes[4:])
        seconds[0] += CONTESTED_PERIOD.total_seconds()
        left = one if ledger.inventories("box")["VCPU"].total == 4 else two
        assert left.update_available_resource().changed == ("box",)
        for _ in range(3):
            seconds[0] += 1
            assert not left.update_available_resource(), "nobody else is there"


def test_what_was_undone_long_ago_is_put_right_again(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: seconds[0])
    tracker = ResourceTracker(ledger, Agent(box="VCPU=8"))
    tracker.update_available_resource()
    by_hand = ro.Ledger(ledger.backend, actor="ann")
    for _ in range(3):
        by_hand.change("box", inventories="VCPU=2")
        assert tracker.update_available_resource().changed == ("box",)
        seconds[0] += CONTESTED_PERIOD.total_seconds()
    seconds[0] -= 1
    by_hand.change("box", inventories="VCPU=2")
    for later in (0, CONTESTED_PERIOD.total_seconds() - 1):
        seconds[0] += later
        assert [finding.kind for finding in tracker.update_available_resource().findings] == [
            K.CONTESTED
        ]
    seconds[0] += 1
    assert tracker.update_available_resource().changed == ("box",)


def test_who_changes_a_host_by_hand_is_put_right_once(ledger: ro.Ledger) -> None:
    driver = Agent(box="VCPU=8", lab="VCPU=1")
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    by_hand = ro.Ledger(ledger.backend, actor="ann")
    by_hand.change("box", inventories="VCPU=2")
    assert tracker.update_available_resource().changed == ("box",)
    by_hand.change("box", traits=["CUSTOM_MINE"])  # what the driver does not say is not its own
    assert not tracker.update_available_resource()
    by_hand.change("box", inventories="VCPU=2")
    [finding] = tracker.update_available_resource().findings
    assert finding.kind is K.CONTESTED
    assert "ann" in finding.detail
    assert tracker.update_available_resource().findings == (finding,)
    driver.has["box"] = "VCPU=16"
    assert tracker.update_available_resource().changed == ("box",)
    assert ledger.provider("box").traits == {"CUSTOM_MINE"}
    assert not tracker.update_available_resource()


def test_who_is_told_of_a_change_and_raises_keeps_it_from_nobody_else(ledger: ro.Ledger) -> None:
    told: list[str] = []

    def tell(report: HostReport) -> None:
        told.append(report.host)
        if report.host == "box1":
            raise KeyError("no such topic")

    driver = Agent(**{f"box{n}": "VCPU=8" for n in range(3)})
    tracker = ResourceTracker(ledger, driver, on_change=tell)
    report = tracker.update_available_resource()
    assert report.changed == ("box0", "box1", "box2") == tuple(told)
    assert [(finding.subject, finding.kind) for finding in report.findings] == [
        ("box1", K.NOTIFICATION)
    ]
    assert "no such topic" in str(report)
    assert not tracker.update_available_resource(), "it was told, and is told once"


def test_a_ledger_that_is_gone_ends_the_look(ledger: ro.Ledger) -> None:
    driver = Agent(**{f"box{n}": "VCPU=8" for n in range(3)})
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    ledger.close()
    with raises_code("LedgerClosed"):
        tracker.update_available_resource()


class Unavailable(ro.exceptions.DatabaseError):
    """The database, gone for a moment."""

    def __init__(self, name: str = "lab.db") -> None:
        super().__init__("unavailable", name)


def test_what_was_done_before_the_ledger_was_gone_is_told(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resource_objects.host.tracker import reconcile

    monkeypatch.setattr(reconcile, "_PAGE", 2)
    told: list[str] = []
    driver = Agent(**{f"box{n}": "VCPU=8" for n in range(5)})
    tracker = ResourceTracker(ledger, driver, on_change=lambda report: told.append(report.host))
    commit, commits = ledger.backend.commit, []

    def gone(write: object) -> object:
        commits.append(write)
        if len(commits) == 2:
            raise Unavailable("db")
        return commit(write)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger.backend, "commit", gone)
    with raises_code("DatabaseUnavailable"):
        tracker.update_available_resource()
    assert told == ["box0", "box1"]
    assert tracker.update_available_resource().changed == ("box2", "box3", "box4")
    assert told == [f"box{n}" for n in range(5)]
