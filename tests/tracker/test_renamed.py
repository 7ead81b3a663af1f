"""What nobody in particular uses of a host that gets another name."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects.host.tracker import ResourceTracker
from resource_objects.providers.holders import unattributed
from resource_objects.testing.refusals import raises_code
from tests.tracker.agents import Agent
from tests.tracker.labs import holdings, used

UUIDS = {name: f"6f1c9e0e-7f5e-4f0e-9e2c-0f3b1f3a000{n}" for n, name in enumerate("ab")}


class Renaming(Agent):
    """Hosts that may have another name than the ledger has, by their uuids."""

    def is_renamed(self, host: str, before: str) -> bool:
        return True


@pytest.fixture
def driver() -> Renaming:
    made = Renaming(old="VCPU=8")
    made.uuids["old"] = made.uuids["new"] = UUIDS["a"]
    made.running = {"old": {}, "new": {}}
    return made


@pytest.fixture
def tracker(everywhere: ro.Ledger, driver: Renaming) -> ResourceTracker:
    """A host of which somebody uses three, and nobody knows who."""
    made = ResourceTracker(everywhere, driver)
    made.update_available_resource()
    made.update_usage("old", "VCPU=3")
    return made


@pytest.mark.law(1)
@pytest.mark.parametrize("by", ["tracker", "change", "sync"])
def test_what_nobody_in_particular_uses_goes_by_the_new_name(
    everywhere: ro.Ledger, tracker: ResourceTracker, driver: Renaming, by: str
) -> None:
    driver.has = {"new": "VCPU=8"}
    if by == "change":
        assert str(everywhere.change("old", name="new")) == "~ new: name or parent"
    elif by == "sync":
        everywhere.sync(ro.Provider("new", "VCPU=8", uuid=UUIDS["a"]))
    else:
        assert "- old/unattributed releases everything" in str(tracker.dry_run("new"))
        assert str(tracker.update_available_resource()) == "~ new: name or parent"
    assert not tracker.update_available_resource()
    assert holdings(everywhere) == {unattributed("new"): "VCPU=3 of new"}
    assert not tracker.drift() and not everywhere.audit()
    assert tracker.update_usage("new", "VCPU=-1").vcpus_used == 2
    everywhere.attribute("new", "vm")
    assert holdings(everywhere) == {"vm": "VCPU=2 of new"}
    with raises_code("ConsumerNotFound"):
        everywhere.get_claim(unattributed("old"))


def test_a_node_that_was_read_before_goes_on_under_the_new_name(
    everywhere: ro.Ledger, tracker: ResourceTracker
) -> None:
    node, mine = tracker.compute_node("old"), tracker.compute_node("old", "vm")
    everywhere.change("old", name="new")
    node.reload()
    for view, amount in ((node, "VCPU=-1"), (mine, "VCPU=2"), (node, "VCPU=4")):
        view.inventories.consume(amount)
        view.save()
    assert holdings(everywhere) == {"vm": "VCPU=2 of new", unattributed("new"): "VCPU=6 of new"}
    node.reload()
    assert (node.vcpus_used, node.consumer) == (8, unattributed("new"))


def test_what_a_node_that_was_not_read_since_writes_is_no_orphan(
    everywhere: ro.Ledger, tracker: ResourceTracker
) -> None:
    """It goes by the old name, but is still what nobody in particular uses."""
    node = tracker.compute_node("old")
    everywhere.change("old", name="new")
    node.inventories.consume("VCPU=2")
    node.save()
    assert everywhere.inventories("new")["VCPU"].used == 5
    assert not tracker.drift("new")


@pytest.mark.law(1)
def test_two_hosts_that_change_names_keep_what_is_theirs(everywhere: ro.Ledger) -> None:
    agent = Agent(a="VCPU=8", b="VCPU=4,MEMORY_MB=64")
    tracker = ResourceTracker(everywhere, agent)
    tracker.update_available_resource()
    tracker.update_usage("a", "VCPU=5")
    tracker.update_usage("b", "VCPU=1,MEMORY_MB=64")
    uuids = {name: everywhere.provider(name).uuid for name in "ab"}
    operation = "0d1f6f0e-5f7e-4b7e-9a55-0f6a4e1c7b22"
    wanted = [ro.Provider(b, uuid=uuids[a]) for a, b in ("ab", "ba")]
    wanted[0].update(inventories=ro.Inventories("VCPU=8"))
    wanted[1].update(inventories=ro.Inventories("VCPU=4,MEMORY_MB=64"))
    for _ in range(2):
        everywhere.sync(*wanted, operation=operation)
        assert used(everywhere) == {("b", "VCPU"): 5, ("a", "VCPU"): 1, ("a", "MEMORY_MB"): 64}
        assert sorted(holdings(everywhere).items()) == [
            ("a/unattributed", "VCPU=1 of a, MEMORY_MB=64 of a"),
            ("b/unattributed", "VCPU=5 of b"),
        ]
    assert not everywhere.audit()


def test_a_host_that_is_over_capacity_is_renamed_with_its_use(
    everywhere: ro.Ledger, tracker: ResourceTracker, driver: Renaming
) -> None:
    driver.has["old"] = "VCPU=2"
    assert tracker.update_available_resource().findings
    everywhere.change("old", name="new")
    assert holdings(everywhere) == {unattributed("new"): "VCPU=3 of new"}


def test_who_gives_back_at_the_same_moment_is_not_overtaken(
    everywhere: ro.Ledger, tracker: ResourceTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions, done = type(everywhere.definitions), []
    following = definitions.rename_orders

    def meddled(self: object, found: object) -> object:
        orders = following(self, found)  # type: ignore[arg-type]
        if not done:
            done.append(tracker.update_usage("old", "VCPU=-2"))
        return orders

    monkeypatch.setattr(definitions, "rename_orders", meddled)
    everywhere.change("old", name="new")
    assert holdings(everywhere) == {unattributed("new"): "VCPU=1 of new"}
