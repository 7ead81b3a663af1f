"""What did not change costs nothing, what changed is written once, and others are noticed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from benchmarks import statements
from resource_objects.host import Machine, provider_tree
from resource_objects.host.machine import Core, PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.host.tracker import Driver, ResourceTracker
from resource_objects.host.tracker import reconcile as reconciling
from resource_objects.providers import Provider
from resource_objects.testing.refusals import raises_code
from tests.tracker.agents import Agent

_ASKED = ("commit", "read", "read_changed", "changes", "cursor", "list_providers", "outcome")


@pytest.fixture
def asked(ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the backend is asked, by method."""
    count: Counter[str] = Counter()

    def counting(name: str) -> Callable[..., Any]:
        inner = getattr(ledger.backend, name)

        def method(*args: Any, **options: Any) -> Any:
            count[name] += 1
            return inner(*args, **options)

        return method

    for name in _ASKED:
        monkeypatch.setattr(ledger.backend, name, counting(name))
    return count


def fleet(count: int) -> Agent:
    return Agent(**{f"node-{number}": "CUSTOM_X=1" for number in range(count)})


def test_an_unchanged_fleet_costs_one_question_and_no_write(
    ledger: ro.Ledger, asked: Counter[str]
) -> None:
    driver = fleet(700)
    tracker = ResourceTracker(ledger, driver)
    assert len(tracker.update_available_resource().changed) == 700
    assert asked["commit"] == asked["read"] == 3, "some hundred hosts at once"
    for expected in ({"cursor": 1, "changes": 2}, {"cursor": 1}, {"cursor": 1}):
        asked.clear()
        edits = driver.edits
        assert not tracker.update_available_resource()
        assert (asked, driver.edits) == (expected, edits)
    asked.clear()
    assert not ResourceTracker(ledger, driver).update_available_resource()
    assert asked == {"cursor": 1, "read": 3, "outcome": 3}


def test_statements_do_not_grow_with_the_hosts(sqlite_url: Callable[[str], str]) -> None:
    counts = []
    with statements.counted() as sent:
        for hosts in (20, 200):
            with ro.connect(sqlite_url(f"{hosts}.db")) as ledger:
                tracker = ResourceTracker(ledger, fleet(hosts))
                looks = []
                for _ in range(3):
                    sent.reset()
                    tracker.update_available_resource()
                    looks.append(sent.statements)
                counts.append(looks)
    assert counts[1][2] == counts[0][2] == 1
    assert counts[1][0] <= counts[0][0] + 5


def _with_devices(count: int) -> Agent:
    def edit(tree: Provider) -> None:
        tree.update(inventories=ro.Inventories("VCPU=8"), children=[])
        found = [
            ro.Device(f"0000:{place:02x}:00.0", "10de", "2330", resource_class="PGPU")
            for place in range(3)
        ]
        tree.add_parts("DEVICES", ro.PCIInventory(found))

    return Agent(**{f"gpu-{number}": edit for number in range(count)})


def test_hosts_with_devices_are_read_together(ledger: ro.Ledger, asked: Counter[str]) -> None:
    """By a tracker that was started again: the trees at once, and who holds what of them."""
    driver = _with_devices(12)
    ResourceTracker(ledger, driver).update_available_resource()
    ledger.claim("vm", {"gpu-3": "DEVICES=2*PGPU"})
    asked.clear()
    assert not ResourceTracker(ledger, driver).update_available_resource()
    assert (asked["read"], asked["commit"]) == (2, 0)


def test_one_changed_host_of_many_is_all_that_is_read(
    ledger: ro.Ledger, asked: Counter[str]
) -> None:
    driver = fleet(30)
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    driver.has["node-7"] = "CUSTOM_X=2"
    edits = driver.edits
    assert tracker.update_available_resource().changed == ("node-7",)
    assert driver.edits == edits + 1
    asked.clear()
    ledger.claim("vm", {"node-3": "CUSTOM_X=1"})
    assert not tracker.update_available_resource()
    assert driver.edits == edits + 1, "who claims changes no definition"
    assert asked["read"] == 0


def test_a_value_that_a_driver_changes_in_place_is_noticed(ledger: ro.Ledger) -> None:
    has = {"VCPU": 4}
    tracker = ResourceTracker(ledger, Agent(box=has))
    tracker.update_available_resource()
    has["VCPU"] = 8
    assert tracker.update_available_resource().changed == ("box",)


def test_of_others_only_what_they_changed_is_looked_at(ledger: ro.Ledger) -> None:
    driver = fleet(5)
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    other = ro.Ledger(ledger.backend, actor="other")
    edits = driver.edits
    other.sync(ro.Provider("elsewhere", "VCPU=1"))
    tracker.update_available_resource()
    assert driver.edits == edits
    other.change("node-1", traits=["CUSTOM_A"])
    other.change("node-1", inventories="CUSTOM_X=3")
    tracker.update_available_resource()
    assert driver.edits == edits + 1
    kept = ledger.provider("node-1")
    assert (str(kept), kept.traits) == ("node-1: CUSTOM_X=1", {"CUSTOM_A"})
    child = ro.Provider("node-2", "CUSTOM_X=1")
    child.add("node-2/theirs", "PGPU=1")
    other.sync(child)
    tracker.update_available_resource()
    assert driver.edits == edits + 2
    assert [one.name for one in ledger.provider("node-2").children] == ["node-2/theirs"]
    other.change("node-2/theirs", inventories="PGPU=2")
    tracker.update_available_resource()
    assert driver.edits == edits + 3, "also below it"
    other.remove("node-4")
    assert tracker.update_available_resource().changed == ("node-4",)


def test_whoever_missed_too_much_looks_at_all(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "_MOST_CHANGES", 0)
    driver = fleet(2)
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    tracker.update_available_resource()
    other = ro.Ledger(ledger.backend, actor="other")
    for number in range(40):
        other.change("node-1", traits=["CUSTOM_A"] * (number % 2))
        other.change("node-0", inventories=f"CUSTOM_X={number + 2}")
    edits = driver.edits
    assert tracker.update_available_resource().changed == ("node-0",)
    assert driver.edits == edits + 2


def test_a_feed_of_another_history_is_no_reason_to_stop(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = fleet(2)
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    ledger.change("node-0", inventories="CUSTOM_X=5")

    def expired(*args: object) -> object:
        raise ro.exceptions.Expired("cursor", "cursor", "forgotten")

    with monkeypatch.context() as patched:
        patched.setattr(ledger.feed, "changes", expired)
        assert tracker.update_available_resource().changed == ("node-0",)
    assert not tracker.update_available_resource()


def test_a_renamed_class_is_noticed(ledger: ro.Ledger) -> None:
    driver = fleet(2)
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    ledger.names.classes.rename("CUSTOM_X", "CUSTOM_Y")
    assert tracker.update_available_resource().changed == ("node-0", "node-1")
    assert str(ledger.provider("node-1")) == "node-1: CUSTOM_X=1"


def test_one_wrong_host_among_many_is_found_in_a_few_writes(
    ledger: ro.Ledger, asked: Counter[str]
) -> None:
    stranger = ro.Provider("stranger", "VCPU=1")
    stranger.add("gpu", "PGPU=1")
    ledger.sync(stranger)
    driver = fleet(200)
    driver.has["node-77"] = lambda tree: tree.add("gpu", "PGPU=1") and None
    asked.clear()
    report = ResourceTracker(ledger, driver).update_available_resource()
    assert [finding.subject for finding in report.findings] == ["node-77"]
    assert len(report.changed) == 199
    assert asked["commit"] < 20


def test_somebody_who_writes_in_between_is_read_again(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = ResourceTracker(ledger, driver := fleet(3))
    tracker.update_available_resource()
    driver.has["node-1"] = "CUSTOM_X=9"
    commit = ledger.backend.commit

    def slow(write: Any) -> Any:
        monkeypatch.setattr(ledger.backend, "commit", commit)
        ledger.change("node-1", traits=["CUSTOM_A"])
        return commit(write)

    monkeypatch.setattr(ledger.backend, "commit", slow)
    assert tracker.update_available_resource().changed == ("node-1",)
    kept = ledger.provider("node-1")
    assert (str(kept), kept.traits) == ("node-1: CUSTOM_X=9", {"CUSTOM_A"})


class Found(Driver):
    """A machine as discovery tells it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.edits = 0

    def hosts(self) -> list[str]:
        return ["box"]

    def get_available_resource(self, host: str) -> Machine:
        return self.machine

    def update_provider_tree(self, tree: Provider, available: Any) -> None:
        self.edits += 1
        made = provider_tree(available, HostSettings(device_rules=["10de:*=PGPU"]), name=tree.name)
        tree.update(inventories=made.inventories, traits=made.traits, children=made.children)


def test_a_machine_is_compared_by_its_facts(ledger: ro.Ledger, asked: Counter[str]) -> None:
    def machine(gpus: int) -> Machine:
        found = (PCIDevice(f"0000:{n:02x}:00.0", "10de", "2330", "030200") for n in range(gpus))
        return Machine(
            hostname="box",
            cpus=(0,),
            cores=(Core(0, 0, (0,)),),
            memory_bytes=2**30,
            devices=tuple(found),
        )

    driver = Found(machine(2))
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    driver.machine = machine(2)
    asked.clear()
    assert not tracker.update_available_resource()
    assert (driver.edits, asked["commit"]) == (1, 0)
    driver.machine = machine(3)
    assert "+ box/0000:02:00.0" in str(tracker.update_available_resource())
    assert not ResourceTracker(ledger, driver).update_available_resource(), "after a restart"


def test_hosts_move_between_agents(ledger: ro.Ledger) -> None:
    one, two = fleet(4), Agent()
    first, second = ResourceTracker(ledger, one), ResourceTracker(ledger, two)
    first.update_available_resource()
    first.claim("server", "node-2", "CUSTOM_X=1")
    two.has["node-2"] = one.has.pop("node-2")
    assert not first.update_available_resource()
    assert not second.update_available_resource()
    two.has["node-2"] = "CUSTOM_X=1:reserved=1"  # it is cleaned
    ledger.release("server")
    assert second.update_available_resource().changed == ("node-2",)
    assert not first.update_available_resource()
    with pytest.raises(ro.CapacityException):
        second.claim("other", "node-2", "CUSTOM_X=1")
    # and back
    one.has["node-2"] = "CUSTOM_X=1"
    del two.has["node-2"]
    assert first.update_available_resource().changed == ("node-2",)
    assert not second.update_available_resource()


def test_a_host_is_removed_when_somebody_says_so(ledger: ro.Ledger) -> None:
    driver = fleet(2)
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    tracker.claim("server", "node-1", "CUSTOM_X=1")
    del driver.has["node-1"]
    assert not tracker.update_available_resource()
    with raises_code("ProviderInUse"):
        tracker.remove("node-1")
    ledger.release("server")
    assert tracker.remove("node-1").removed == 1
    with raises_code("ProviderNotFound"):
        tracker.remove("node-1")


def test_threads_that_look_and_claim_at_once(url: str) -> None:
    """One of them looks at a time; what comes of it is as if all had, one after the other."""
    with ro.connect(url) as ledger:
        driver = fleet(40)
        told: list[str] = []
        tracker = ResourceTracker(ledger, driver, on_change=lambda report: told.append(report.host))
        tracker.update_available_resource("node-0")
        failed: list[BaseException] = []

        def work(number: int) -> None:
            try:
                tracker.update_available_resource()
                tracker.claim(f"vm-{number}", f"node-{number}", "CUSTOM_X=1")
                tracker.update_available_resource()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert sorted(told) == sorted(driver.has), "each told once"
        assert {one.name for one in ledger.consumers()} == {f"vm-{n}" for n in range(4)}


# --- what an operator sets, and views -------------------------------------------------------------


@pytest.fixture
def box() -> Agent:
    return Agent(box="VCPU=8,MEMORY_MB=4096:reserved=100,DISK_GB=10")


def test_a_ratio_overrides_or_keeps_and_initial_ones_only_create(
    ledger: ro.Ledger, box: Agent
) -> None:
    def look(ratios: Any = None, initial: Any = None) -> str:
        tracker = ResourceTracker(ledger, box, ratios=ratios, initial_ratios=initial)
        tracker.update_available_resource()
        host = ledger.provider("box").inventories
        return ",".join(str(host[name].allocation_ratio) for name in ("VCPU", "MEMORY_MB"))

    assert look({"VCPU": None}, "VCPU=4,MEMORY_MB=1.5") == "4,1.5"
    assert look({"VCPU": None}, "VCPU=2,MEMORY_MB=2") == "4,1.5"
    assert look("VCPU=16", "MEMORY_MB=2") == "16,1.5"
    assert look({"VCPU": None, "MEMORY_MB": None}) == "16,1.5"
    ledger.change("box", inventories="VCPU=8:allocation_ratio=3,MEMORY_MB=4096,DISK_GB=10")
    assert look({"VCPU": None, "MEMORY_MB": None}) == "3,1"
    assert look() == "1,1", "nothing set: as the driver says"


def test_what_is_given_out_often_is_not_had_beyond_what_exists(
    ledger: ro.Ledger, box: Agent
) -> None:
    tracker = ResourceTracker(ledger, box, ratios="VCPU=16", reserved="MEMORY_MB=512")
    tracker.update_available_resource()
    assert not tracker.update_available_resource()
    assert not ResourceTracker(
        ledger, box, ratios="VCPU=16", reserved="MEMORY_MB=512"
    ).update_available_resource()
    host = ledger.provider("box").inventories
    assert (host["VCPU"].capacity, host["VCPU"].max_unit) == (128, 8)
    assert (host["MEMORY_MB"].reserved, host["MEMORY_MB"].capacity) == (512, 3584)
    box.has["box"] = "VCPU=4,MEMORY_MB=4096,DISK_GB=10"
    tracker.update_available_resource()
    assert ledger.provider("box").inventories["VCPU"].max_unit == 4


def test_ratios_are_those_of_the_cells_too(ledger: ro.Ledger) -> None:
    cells = [ro.HostCell(n, shared=range(4 * n, 4 * n + 4), memory_mb=512) for n in (0, 1)]

    def edit(tree: Provider) -> None:
        tree.update(inventories=ro.Inventories("VCPU=8,MEMORY_MB=1024"), children=[])
        tree.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))

    settings = {"ratios": {"VCPU": 2}, "initial_ratios": {"MEMORY_MB": "1.5"}}
    tracker = ResourceTracker(ledger, Agent(box=edit), **settings)  # type: ignore[arg-type]
    tracker.update_available_resource()
    assert not tracker.update_available_resource()
    topology = tracker.inventories("box")["NUMA_TOPOLOGY"]
    assert (str(topology.cpu_ratio), str(topology.memory_ratio)) == ("2", "1.5")
    for number in range(4):
        ledger.claim(f"vm-{number}", {"box": "NUMA_TOPOLOGY=1:shared=4:memory=256"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"ratios": "VCPU=0"},
        {"ratios": {"VCPU": -1}},
        {"ratios": "PCPU=2"},
        {"ratios": {"SPAGHETTI": 1}},
        {"ratios": 16},
        {"initial_ratios": "VCPU"},
        {"initial_ratios": {"VCPU": None}},
        {"reserved": "MEMORY_MB=-1"},
        {"reserved": "MEMORY_MB=0.5"},
    ],
)
def test_settings_that_cannot_be(ledger: ro.Ledger, box: Agent, wrong: dict[str, Any]) -> None:
    with pytest.raises(ro.exceptions.InvalidInput):
        ResourceTracker(ledger, box, **wrong)


@pytest.mark.law(7)
def test_usage_is_added_and_given_back_exactly(ledger: ro.Ledger, box: Agent) -> None:
    """Nova's disk usage drifted by the halves of gigabytes that swap of 512 MiB is."""
    tracker = ResourceTracker(ledger, box)
    tracker.update_available_resource()
    for _ in range(3):
        node = tracker.update_usage("box", "VCPU=2,DISK_GB=3")
        assert (node.vcpus_used, node.local_gb_used) == (2, 3)
        node = tracker.update_usage("box", "VCPU=-2,DISK_GB=-3")
        assert (node.vcpus_used, node.local_gb_used) == (0, 0)
    with pytest.raises(ro.exceptions.InvalidInput):
        tracker.update_usage("box", {"DISK_GB": 0.5})
    tracker.update_usage("box", "VCPU=2", consumer="vm")
    assert str(ledger.get_claim("vm")) == "vm holds VCPU=2 of box"
    with pytest.raises(ro.CapacityException):
        tracker.update_usage("box", "VCPU=7,DISK_GB=1")
    assert tracker.compute_node("box").local_gb_used == 0
    assert tracker.inventories("box")["VCPU"].free == 6


def test_overhead_is_claimed_with_the_rest_and_given_back_with_it(ledger: ro.Ledger) -> None:
    class Heavy(Agent):
        def overhead(self, request: ro.Amounts) -> Any:
            return {"MEMORY_MB": 64 + 8 * request["VCPU"].value}

    tracker = ResourceTracker(ledger, Heavy(box="VCPU=8,MEMORY_MB=1024"))
    tracker.update_available_resource()
    claim = tracker.claim("vm", "box", "VCPU=2,MEMORY_MB=512")
    assert str(ledger.get_claim("vm")) == "vm holds VCPU=2,MEMORY_MB=592 of box"
    with pytest.raises(ro.CapacityException):
        tracker.claim("other", "box", "VCPU=1,MEMORY_MB=400")
    claim.revert()
    assert ledger.provider("box").inventories["MEMORY_MB"].used == 0


@pytest.mark.parametrize("wrong", [{"MEMORY_MB": 0.5}, "SPAGHETTI=1", {"DISK_GB": 512 / 1024}])
def test_overhead_that_cannot_be_is_no_claim(ledger: ro.Ledger, wrong: Any) -> None:
    class Wrong(Agent):
        def overhead(self, request: ro.Amounts) -> Any:
            return wrong

    tracker = ResourceTracker(ledger, Wrong(box="VCPU=8,MEMORY_MB=1024,DISK_GB=10"))
    tracker.update_available_resource()
    with pytest.raises(ro.exceptions.InvalidInput):
        tracker.claim("vm", "box", "VCPU=2")
    assert not list(ledger.consumers())
