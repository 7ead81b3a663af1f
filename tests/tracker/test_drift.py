"""Who holds something of a host against who runs there: told, never mended by itself."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.host.tracker import FindingKind, MigrationKind, ResourceTracker
from resource_objects.testing.refusals import raises_code
from tests.tracker.agents import Agent, Word

K = FindingKind


@pytest.fixture
def driver() -> Agent:
    made = Agent(box="VCPU=8,MEMORY_MB=1024", lab="VCPU=4")
    made.running = {"box": {"vm-1": "VCPU=2", "vm-2": None}, "lab": {}}
    return made


@pytest.fixture
def tracker(ledger: ro.Ledger, driver: Agent) -> ResourceTracker:
    """Two hosts: vm-1 and vm-2 run on box, and hold what they run with."""
    made = ResourceTracker(ledger, driver)
    made.update_available_resource()
    for name in ("vm-1", "vm-2"):
        made.claim(name, "box", "VCPU=2")
        ledger.confirm(name)
    return made


def told(tracker: ResourceTracker, **said: Any) -> list[tuple[str, FindingKind, str | None]]:
    return [(one.subject, one.kind, one.consumer) for one in tracker.drift(**said).findings]


def told_of(tracker: ResourceTracker, host: str) -> list[tuple[str, FindingKind, str | None]]:
    return [(one.subject, one.kind, one.consumer) for one in tracker.drift(host).findings]


def test_nothing_differs(tracker: ResourceTracker) -> None:
    assert not tracker.drift()
    assert str(tracker.drift()) == "no drift"
    assert not tracker.drift().plan


def test_orphans_are_told_and_released_by_the_plan_alone(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    driver.running["box"] = {"vm-2": "VCPU=2"}
    found = tracker.drift()
    assert str(found) == "box: orphan: vm-1 has VCPU=2 allocated and does not run here"
    assert not tracker.update_available_resource(), "it is not computed away"
    assert str(ledger.get_claim("vm-1")) == "vm-1 holds VCPU=2 of box"
    assert str(found.plan) == "- vm-1 releases everything"
    ledger.apply(found.plan)
    assert not tracker.drift()
    assert [one.name for one in ledger.consumers()] == ["vm-2"]


def test_of_an_orphan_only_what_is_of_the_host_goes(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    ledger.adjust("vm-1", {"lab": "VCPU=1"})
    driver.running["box"] = {"vm-2": None}
    driver.running["lab"] = {"vm-1": None}
    ledger.apply(tracker.drift().plan)
    assert str(ledger.get_claim("vm-1")) == "vm-1 holds VCPU=1 of lab"


def test_a_plan_that_came_too_late_does_nothing(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    driver.running["box"] = {"vm-2": None}
    plan = tracker.drift().plan
    ledger.adjust("vm-1", {"box": "VCPU=1"})
    with raises_code("StaleConsumer"):
        ledger.apply(plan)


def test_what_is_on_its_way_is_no_orphan(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    tracker.claim("vm-3", "box", "VCPU=1")
    tracker.update_usage("lab", "VCPU=1")
    assert not tracker.drift()
    assert not tracker.drift(older_than=datetime.timedelta(hours=1))
    assert told(tracker, older_than=datetime.timedelta(0)) == [("box", K.ORPHAN, "vm-3")]
    ledger.move("vm-1", {"lab": "VCPU=2"}, source_consumer="vm-1/migration")
    assert "vm-1" in driver.running["box"], "it still runs there"
    assert not tracker.drift()
    driver.running = {"box": {"vm-2": None}, "lab": {"vm-1": None}}
    assert not tracker.drift(), "and now here"
    ledger.release("vm-1/migration")
    assert not tracker.drift()


def test_unknown_ones_are_adopted_by_the_plan_alone(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    driver.running["lab"] = {"stray": "VCPU=6", "nameless": None}
    found = tracker.drift("lab")
    assert [(one.kind, one.consumer) for one in found.findings] == [
        (K.UNKNOWN_CONSUMER, "nameless"),
        (K.UNKNOWN_CONSUMER, "stray"),
    ]
    assert len(list(ledger.consumers())) == 2
    ledger.apply(found.plan)
    assert str(ledger.get_claim("stray")) == "stray holds VCPU=6 of lab"
    assert ledger.usage(over_capacity=True).over_capacity[0].provider == "lab"
    assert told(tracker) == [("lab", K.UNKNOWN_CONSUMER, "nameless")]


def test_one_that_runs_elsewhere_and_one_that_differs(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    driver.running = {"box": {"vm-2": "VCPU=3"}, "lab": {"vm-1": "VCPU=2"}}
    assert told(tracker) == [
        ("box", K.ORPHAN, "vm-1"),
        ("box", K.DIFFERS, "vm-2"),
        ("lab", K.ELSEWHERE, "vm-1"),
    ]
    said = str(tracker.drift())
    assert "vm-2 has VCPU=2 allocated and runs with VCPU=3" in said
    assert "vm-1 runs here and has allocations of box" in said
    ledger.apply(tracker.drift().plan)
    assert str(ledger.get_claim("vm-2")) == "vm-2 holds VCPU=3 of box"
    assert told(tracker) == [("lab", K.UNKNOWN_CONSUMER, "vm-1")]
    ledger.apply(tracker.drift().plan)
    assert not tracker.drift()


def test_who_does_not_know_says_none_and_who_fails_is_told(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    driver.running = {}
    assert not tracker.drift()

    class Failing(Agent):
        def consumers(self, host: str) -> Any:
            if host == "box":
                raise OSError("no hypervisor")
            return {"lab": 5, "new": {}, "odd": {"vm": "VCPU=0.5"}}[host]

    failing = ResourceTracker(ledger, Failing(box="VCPU=8", lab="VCPU=4", odd="VCPU=1"))
    assert [(one.subject, one.kind) for one in failing.drift().findings] == [
        ("box", K.DRIVER_FAILED),
        ("lab", K.INVALID),
        ("odd", K.INVALID),
    ]


def test_a_host_that_the_ledger_does_not_have_is_left_out(ledger: ro.Ledger, driver: Agent) -> None:
    assert not ResourceTracker(ledger, driver).drift()


def test_who_has_parts_of_a_host_is_compared_in_counts(ledger: ro.Ledger) -> None:
    cells = [ro.HostCell(n, shared=range(4 * n, 4 * n + 4), memory_mb=512) for n in (0, 1)]
    gpu = ro.Device("0000:01:00.0", "10de", "2330", resource_class="PGPU")

    def edit(tree: ro.Provider) -> None:
        tree.update(inventories=ro.Inventories("VCPU=8,MEMORY_MB=1024"), children=[])
        tree.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
        tree.add_parts("DEVICES", ro.PCIInventory([gpu]))

    driver = Agent(box=edit)
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    tracker.claim("vm", "box", "NUMA_TOPOLOGY=2:shared=4:memory=512,DEVICES=PGPU").confirm()
    for same in (
        "VCPU=4,MEMORY_MB=512,PGPU=1",
        "VCPU=4,MEMORY_MB=512,DEVICES=PGPU",
        "NUMA_TOPOLOGY=2:shared=4:memory=512,DEVICES=PGPU",
    ):
        driver.running["box"] = {"vm": same}
        assert not tracker.drift()
    for other in ("VCPU=4,MEMORY_MB=512", "VCPU=3,MEMORY_MB=512,DEVICES=PGPU"):
        driver.running["box"] = {"vm": other}
        found = tracker.drift()
        assert [one.kind for one in found.findings] == [K.DIFFERS]
        assert not found.plan, "nobody can say of which cell it has less"


def test_what_is_on_its_way_does_not_differ(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    """Of a resize on its host the old size runs, of a claim on trial not yet all."""
    move = tracker.move("vm-1", "box", "VCPU=3")
    assert not tracker.drift()
    move.confirm()
    assert told(tracker) == [("box", K.DIFFERS, "vm-1")]
    driver.running["box"] = {"vm-1": "VCPU=3", "vm-2": None, "vm-3": "VCPU=1"}
    tracker.claim("vm-3", "box", "VCPU=2")
    assert not tracker.drift()
    assert told(tracker, older_than=datetime.timedelta(0)) == [("box", K.DIFFERS, "vm-3")]


@pytest.mark.parametrize("at", ["both", "source", "destination"])
def test_a_guest_of_a_live_migration_may_run_on_either_host_or_on_both(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent, at: str
) -> None:
    move = tracker.move("vm-1", "lab", kind=MigrationKind.LIVE_MIGRATION)
    driver.running = {
        "box": {"vm-2": None, **({} if at == "destination" else {"vm-1": "VCPU=2"})},
        "lab": {} if at == "source" else {"vm-1": "VCPU=1"},
    }
    assert not tracker.drift()
    assert not tracker.drift(older_than=datetime.timedelta(0))
    driver.running["third"] = {"vm-1": "VCPU=2"}
    ledger.sync(ro.Provider("third", "VCPU=4"))
    assert told_of(tracker, "third") == [("third", K.ELSEWHERE, "vm-1")]
    move.confirm()
    expected = [("box", K.ELSEWHERE, "vm-1")] if at != "destination" else []
    assert told_of(tracker, "box") == expected


def test_who_is_given_back_while_its_migration_is_left_is_not_adopted_once_more(
    ledger: ro.Ledger, tracker: ResourceTracker
) -> None:
    tracker.move("vm-1", "lab", "VCPU=1")
    ledger.release("vm-1")
    assert not tracker.drift()


class Changing(Agent):
    """Says who runs, and then something happens."""

    def __init__(self, **has: Word) -> None:
        super().__init__(**has)
        self.then: list[Callable[[], object]] = []

    def consumers(self, host: str) -> Any:
        found = dict(self.running[host])
        if self.then:
            self.then.pop(0)()
        return found


@pytest.fixture
def changing(ledger: ro.Ledger) -> tuple[ResourceTracker, Changing]:
    driver = Changing(box="VCPU=8")
    driver.running = {"box": {}}
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    return tracker, driver


def test_who_arrives_while_it_is_looked_is_no_orphan(
    ledger: ro.Ledger, changing: tuple[ResourceTracker, Changing]
) -> None:
    tracker, driver = changing

    def arrive() -> None:
        tracker.claim("vm", "box", "VCPU=2").confirm()
        driver.running["box"] = {"vm": "VCPU=2"}

    driver.then.append(arrive)
    assert not tracker.drift()
    assert str(ledger.get_claim("vm")) == "vm holds VCPU=2 of box"


def test_who_leaves_or_changes_while_it_is_looked_is_told_of_the_next_time(
    ledger: ro.Ledger, changing: tuple[ResourceTracker, Changing]
) -> None:
    tracker, driver = changing
    for name in ("gone", "other"):
        tracker.claim(name, "box", "VCPU=2").confirm()
    driver.running["box"] = {"gone": "VCPU=2", "other": "VCPU=2"}

    def change() -> None:
        ledger.release("gone")
        ledger.replace("other", {"box": "VCPU=3"})
        driver.running["box"] = {"other": "VCPU=3"}

    driver.then.append(change)
    assert not tracker.drift()
    driver.running["box"] = {"stray": "VCPU=1", "other": "VCPU=3"}
    driver.then.append(lambda: driver.running.update(box={"other": "VCPU=3"}))
    assert not tracker.drift()


def test_who_cannot_be_asked_again_is_told_and_nothing_is_said_of_its_consumers(
    ledger: ro.Ledger, changing: tuple[ResourceTracker, Changing]
) -> None:
    tracker, driver = changing
    tracker.claim("vm", "box", "VCPU=2").confirm()
    driver.then.append(driver.running.clear)
    found = tracker.drift()
    assert [one.kind for one in found.findings] == [K.DRIVER_FAILED]
    assert not found.plan


def test_an_orphan_gives_back_what_it_holds_of_pools(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    ledger.sync(ro.Provider("rack", "CUSTOM_WATT=1000"), ro.Provider("other", "CUSTOM_MBIT=9"))
    ledger.pools.share("rack", hosts=["box"])
    ledger.pools.share("other", hosts=["lab"])
    ledger.adjust("vm-1", {"rack": "CUSTOM_WATT=300"})
    driver.running["box"] = {"vm-2": None}
    ledger.apply(tracker.drift().plan)
    assert [one.name for one in ledger.consumers()] == ["vm-2"]
    ledger.claim("vm-1", {"box": "VCPU=1", "rack": "CUSTOM_WATT=3", "lab": "VCPU=1"})
    ledger.adjust("vm-1", {"other": "CUSTOM_MBIT=1"})
    ledger.confirm("vm-1")
    driver.running["lab"] = {"vm-1": None}
    ledger.apply(tracker.drift().plan)
    left = {one.provider: str(one.amount) for one in ledger.get_claim("vm-1").allocations}
    assert left == {"lab": "1", "other": "1"}, "a pool of the host where it runs stays"


def test_what_spans_two_hosts_is_one_order(
    ledger: ro.Ledger, tracker: ResourceTracker, driver: Agent
) -> None:
    ledger.adjust("vm-1", {"lab": "VCPU=1"})
    driver.running = {"box": {"vm-2": None}, "lab": {}}
    assert told(tracker) == [("box", K.ORPHAN, "vm-1"), ("lab", K.ORPHAN, "vm-1")]
    ledger.apply(tracker.drift().plan)
    assert [one.name for one in ledger.consumers()] == ["vm-2"]
    driver.running = {"box": {"vm-2": None, "vm-1": "VCPU=2"}, "lab": {"vm-1": "VCPU=1"}}
    ledger.apply(tracker.drift().plan)
    held = {one.provider: str(one.amount) for one in ledger.get_claim("vm-1").allocations}
    assert held == {"box": "2", "lab": "1"}
    assert not tracker.drift()


def test_drift_that_is_not_there_costs_one_read(
    ledger: ro.Ledger, tracker: ResourceTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []
    read = ledger.backend.read
    monkeypatch.setattr(ledger.backend, "read", lambda *a, **k: reads.append(a) or read(*a, **k))
    monkeypatch.setattr(ledger.backend, "held_by", None)
    assert not tracker.drift()
    assert reads == [("box", "lab")]
