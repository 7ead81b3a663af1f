"""Rules of Nova's tracker, claims, provider tree and report client that no other test covers."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import (
    FindingKind,
    MigrationKind,
    MigrationState,
    ProviderConfiguration,
    ResourceTracker,
)
from resource_objects.host.tracker.moves import migration_of
from resource_objects.interop import nova as novas
from resource_objects.providers.feed import FeedEntry
from resource_objects.providers.statistics import Statistic
from resource_objects.reasons import Rule
from resource_objects.testing.refusals import raises_code
from tests.tracker.agents import Agent
from tests.tracker.labs import holdings, tracker, used


def test_units_are_kept_by_name_and_told_to_the_next_agent(lab: ro.Ledger) -> None:
    asked = "NUMA_TOPOLOGY=1:dedicated=2,DEVICES=PGPU"
    first = tracker(lab).claim("vm", "box-0", asked).claim
    second = tracker(lab).claim("vm-2", "box-0", asked).claim
    assert first is not None and second is not None
    units = [{u for a in one.allocations for u in a.units} for one in (first, second)]
    assert [len(some) for some in units] == [3, 3] and not units[0] & units[1]
    again = tracker(lab).get_claim("vm").claim  # by an agent that has just begun
    assert again is not None and again.allocations == first.allocations
    tracker(lab).release("vm-2")
    assert tracker(lab).claim("vm-3", "box-0", asked).claim is not None
    assert {u for a in lab.get_claim("vm-3").allocations for u in a.units} == units[1]


def test_nobody_gives_back_what_somebody_else_has(lab: ro.Ledger) -> None:
    mine = tracker(lab)
    mine.claim("vm", "box-0", "VCPU=2")
    mine.update_usage("box-0", "VCPU=1")
    for consumer, most in ((None, 2), ("unknown", 1), ("vm", 3)):
        with pytest.raises(exceptions.CapacityException):
            mine.update_usage("box-0", f"VCPU=-{most}", consumer)
    assert used(lab) == {("box-0", "VCPU"): 3}
    mine.update_usage("box-0", "VCPU=-1")
    assert holdings(lab) == {"vm": "VCPU=2 of box-0"}


def test_a_live_migration_takes_its_devices_when_it_begins(lab: ro.Ledger) -> None:
    asked = "VCPU=1,DEVICES=2*PGPU"
    mine = tracker(lab)
    mine.claim("vm", "box-0", asked).confirm()
    move = mine.move("vm", "box-1", kind=MigrationKind.LIVE_MIGRATION, migration="m")
    for host in ("box-0", "box-1"):
        with pytest.raises(exceptions.CapacityException):
            tracker(lab).claim("other", host, "DEVICES=PGPU")
    move.confirm()
    tracker(lab).claim("other", "box-0", asked)


def test_who_boots_from_a_volume_takes_no_root_disk(lab: ro.Ledger) -> None:
    for name, root_gb, taken in (("of-a-volume", 0, 5), ("of-a-disk", 20, 25)):
        flavor = novas.Flavor(1, 512, root_gb=root_gb, ephemeral_gb=4, swap_mb=512)
        claim = tracker(lab).claim(name, "box-0", novas.request(flavor).request)
        assert used(lab)["box-0", "DISK_GB"] == taken
        claim.revert()
    assert not used(lab)


def test_what_another_tells_of_a_host_stays(lab: ro.Ledger) -> None:
    builds = functools.partial(Statistic, "failed_builds")
    load = functools.partial(Statistic, "load")
    agent = Agent(box="VCPU=4")
    ResourceTracker(lab, agent).update_available_resource()
    lab.statistics.put({"box": [builds(3)]}, source="builder")
    for value in (1, 2):
        agent.tells["box"] = [load(value)]
        ResourceTracker(lab, agent).update_available_resource()  # as after a restart
        told = lab.statistics.read("box")["box"]
        assert {name: int(str(one.value)) for name, one in told.items()} == {
            "failed_builds": 3,
            "load": value,
        }


def test_a_refusal_tells_every_reason(lab: ro.Ledger) -> None:
    tracker(lab).claim("vm", "box-0", "VCPU=3,DISK_GB=90")
    asked = "VCPU=2,DISK_GB=20,CUSTOM_FPGA=3"
    with pytest.raises(exceptions.NoCandidates) as refusal:
        tracker(lab).claim("vm-2", "box-0", asked)
    told = {reason.resource: reason for reason in refusal.value.reasons}
    assert {"VCPU", "DISK_GB", "CUSTOM_FPGA"} <= told.keys()
    assert {told["VCPU"].rule, told["DISK_GB"].rule} == {Rule.CAPACITY}
    assert (told["VCPU"].requested, told["VCPU"].used) == (2, 3)


def test_a_refusal_of_cells_and_devices_tells_both(lab: ro.Ledger) -> None:
    asked = "NUMA_TOPOLOGY=1:dedicated=5:memory=512,DEVICES=3*PGPU"
    with pytest.raises(exceptions.NoCandidates) as refusal:
        tracker(lab).claim("vm", "box-0", asked)
    told = {(reason.resource, reason.rule) for reason in refusal.value.reasons}
    assert {kind for kind, _ in told} >= {"PCPU", "PGPU"}, told
    assert not used(lab)


def test_a_resize_asks_what_the_new_flavor_asks(lab: ro.Ledger) -> None:
    small, large = (
        novas.request(
            novas.Flavor(vcpus=cpus, memory_mb=512, extra_specs={"hw:cpu_policy": "dedicated"})
        ).request
        for cpus in (2, 4)
    )
    tracker(lab).claim("vm", "box-0", small)
    tracker(lab).move("vm", "box-1", large, migration="m").confirm()
    assert len(lab.assigned_amounts("vm")["box-1"]["NUMA_TOPOLOGY"].placed[0].pinned) == 4
    assert lab.get_claim("vm").request == large


def test_a_class_that_is_not_said_any_more_is_gone(everywhere: ro.Ledger) -> None:
    agent = Agent(box="VCPU=4,CUSTOM_FPGA=1")
    mine = ResourceTracker(everywhere, agent)
    mine.update_available_resource()
    agent.has["box"] = "VCPU=4"
    assert mine.update_available_resource().changed == ("box",)
    assert "CUSTOM_FPGA" not in everywhere.inventories("box").names()


def test_a_consumer_of_a_pool_moves_with_it(lab: ro.Ledger) -> None:
    lab.sync(ro.Provider("nfs", "CUSTOM_SHARE_GB=10"))
    lab.pools.share("nfs", hosts=["box-0", "box-1"])
    request = ro.Request("VCPU=1,CUSTOM_SHARE_GB=4")

    def found(host: str) -> ro.Candidate:
        return next(c for c in lab.snapshot().candidates(request) if c.host == host)

    mine = tracker(lab)
    mine.claim("vm", "box-0", found("box-0")).confirm()
    assert tracker(lab).get_claim("vm").host == "box-0"
    move = mine.move("vm", "box-1", found("box-1"), kind=MigrationKind.COLD_MIGRATION)
    assert (move.from_host, move.to_host) == ("box-0", "box-1")
    assert used(lab)["nfs", "CUSTOM_SHARE_GB"] == 4  # both hosts use the same share of the pool
    for host in ("box-0", "box-1"):
        assert [one.id for one in tracker(lab).moves(host)] == [move.id]
    assert move.confirm().state is MigrationState.CONFIRMED
    assert used(lab) == {("box-1", "VCPU"): 1, ("nfs", "CUSTOM_SHARE_GB"): 4}


# --- the provider tree ---


def shelves(tree: ro.Provider) -> None:
    """Say a host with two shelves of a GPU each, as a driver does."""
    tree.update(inventories=ro.Inventories("VCPU=4"))
    there = {one.name for one in tree.children}
    for name in {f"{tree.name}/shelf0", f"{tree.name}/shelf1"} - there:
        tree.add(name).add(f"{name}/gpu", "PGPU=1")


def parents(ledger: ro.Ledger, tree: str) -> dict[str, str | None]:
    """Return who is below whom in a tree."""
    return {one.name: one.parent for one in ledger.providers(tree=tree)}


SHELVES = {
    "box": None,
    "box/shelf0": "box",
    "box/shelf0/gpu": "box/shelf0",
    "box/shelf1": "box",
    "box/shelf1/gpu": "box/shelf1",
}


def since(ledger: ro.Ledger, cursor: Any) -> Iterator[FeedEntry]:
    """Yield what was written after a cursor."""
    yield from ledger.feed.changes(cursor)


def test_a_host_its_children_and_its_files_are_one_write(everywhere: ro.Ledger) -> None:
    configured = ProviderConfiguration.parse(
        "meta: {schema_version: '1.0'}\nproviders:\n- identification: {name: box}\n"
        "  inventories: {additional: [{CUSTOM_LICENCE: {total: 3}}]}"
    )
    mine = ResourceTracker(everywhere, Agent(box=shelves), configuration=configured)
    cursor = everywhere.feed.cursor()
    assert mine.update_available_resource().changed == ("box",)
    assert len({one.operation for one in since(everywhere, cursor)}) == 1
    assert parents(everywhere, "box") == SHELVES
    assert set(everywhere.inventories("box").names()) == {"VCPU", "CUSTOM_LICENCE"}
    assert not mine.update_available_resource()


def test_who_goes_takes_all_below_along(everywhere: ro.Ledger) -> None:
    agent = Agent(box=shelves)
    mine = ResourceTracker(everywhere, agent)
    mine.update_available_resource()

    def one_shelf(tree: ro.Provider) -> None:
        tree.update(children=[one for one in tree.children if one.name != "box/shelf0"])

    agent.has["box"] = one_shelf
    everywhere.claim("job", {"box/shelf0/gpu": "PGPU=1"})
    [finding] = mine.update_available_resource().findings
    assert finding.kind is FindingKind.IN_USE
    assert parents(everywhere, "box") == SHELVES, "somebody holds something below it"
    everywhere.release("job")
    mine.update_available_resource()
    left = {name: parent for name, parent in SHELVES.items() if "shelf0" not in name}
    assert parents(everywhere, "box") == left
    assert mine.remove("box").removed == len(left)
    assert not list(everywhere.providers())


def test_a_provider_is_found_by_either_key(everywhere: ro.Ledger) -> None:
    ResourceTracker(everywhere, Agent(box=shelves)).update_available_resource()
    by_name = everywhere.provider("box/shelf1")
    assert by_name.uuid is not None
    assert everywhere.provider(by_name.uuid) == by_name
    assert [one.name for one in by_name.walk()] == ["box/shelf1", "box/shelf1/gpu"]
    listed = {key: list(everywhere.providers(**{key: [getattr(by_name, key)]})) for key in KEYS}
    assert listed["name"] == listed["uuid"] != []
    for missing in ("box/shelf2", migration_of("box")):
        with raises_code("ProviderNotFound", match=missing):
            everywhere.provider(missing)
        with raises_code("ProviderNotFound", match=missing):
            by_name.find(missing)


KEYS = ("name", "uuid")


def test_what_is_read_is_a_copy_of_a_moment(everywhere: ro.Ledger) -> None:
    mine = ResourceTracker(everywhere, agent := Agent(box=shelves))
    mine.update_available_resource()
    read = everywhere.provider("box")
    twins = [copy.deepcopy(read), pickle.loads(pickle.dumps(read))]
    assert twins == [read, read]
    agent.has["box"] = "VCPU=9"
    mine.update_available_resource()
    assert read.inventories["VCPU"].total == 4, "what was read stays as it was"
    twins[0].find("box/shelf0/gpu").update(inventories=ro.Inventories("PGPU=7"))
    assert read == twins[1] != twins[0]
    assert everywhere.provider("box").find("box/shelf0/gpu").inventories["PGPU"].total == 1


def test_a_driver_that_fails_half_way_edited_a_copy(everywhere: ro.Ledger) -> None:
    agent = Agent(box=shelves)
    mine = ResourceTracker(everywhere, agent)
    mine.update_available_resource()

    def half(tree: ro.Provider) -> None:
        tree.update(inventories=ro.Inventories("VCPU=99"), traits=["CUSTOM_HALF"])
        tree.find("box/shelf0").add("box/more", "PGPU=1")
        raise OSError("the node does not answer")

    agent.has["box"] = half
    before = everywhere.provider("box")
    [finding] = mine.update_available_resource().findings
    assert finding.kind is FindingKind.DRIVER_FAILED
    assert everywhere.provider("box") == before
    agent.has["box"] = shelves
    assert not mine.update_available_resource(), "nothing of it is remembered either"


def test_parents_come_first_in_all_trees_and_in_one(everywhere: ro.Ledger) -> None:
    agent = Agent(box=shelves, other=shelves)
    ResourceTracker(everywhere, agent).update_available_resource()
    for root in everywhere.trees():
        seen: set[str] = set()
        for provider, parent in root.parents():
            assert parent is None or parent.name in seen
            seen.add(provider.name)
        assert seen == {name.replace("box", root.name) for name in SHELVES}
    assert parents(everywhere, "box/shelf0/gpu") == SHELVES, "of any provider of the tree"


def test_nobody_is_left_without_a_parent(everywhere: ro.Ledger) -> None:
    ResourceTracker(everywhere, Agent(box=shelves)).update_available_resource()
    with raises_code("ProviderNotFound", match="nobody"):
        everywhere.change("box/shelf0", parent="nobody")
    with pytest.raises(exceptions.InvalidTree):
        everywhere.change("box/shelf0", parent="box/shelf0/gpu")
    assert parents(everywhere, "box") == SHELVES
    everywhere.change("box/shelf0", parent="box/shelf1")
    assert parents(everywhere, "box") == {**SHELVES, "box/shelf0": "box/shelf1"}
    everywhere.remove("box/shelf1")
    assert parents(everywhere, "box") == {"box": None}


def test_the_same_again_is_no_change_and_an_old_generation_is_refused(
    everywhere: ro.Ledger,
) -> None:
    ResourceTracker(everywhere, Agent(box="VCPU=4")).update_available_resource()
    read = everywhere.provider("box")
    assert not everywhere.change("box", inventories="VCPU=4")
    assert not everywhere.sync(read)
    assert everywhere.provider("box").generation == read.generation
    assert everywhere.change("box", inventories="VCPU=4:reserved=1")
    read.update(inventories=ro.Inventories("VCPU=5"))
    with raises_code("StaleDefinition", match="box"):
        everywhere.sync(read)
    assert str(everywhere.provider("box").inventories["VCPU"].reserved) == "1"


def test_traits_and_aggregates_come_and_go_by_name(everywhere: ro.Ledger) -> None:
    agent = Agent(box=shelves)
    mine = ResourceTracker(everywhere, agent)
    mine.update_available_resource()

    def edit(add: set[str], remove: set[str]) -> Any:
        def edited(tree: ro.Provider) -> None:
            shelf = tree.find("box/shelf0")
            shelf.update(
                traits=(shelf.traits | add) - remove,
                aggregates=((shelf.aggregates or frozenset()) | add) - remove,
            )

        return edited

    for add, remove, left in (
        ({"CUSTOM_A", "CUSTOM_B"}, set(), {"CUSTOM_A", "CUSTOM_B"}),
        ({"CUSTOM_C"}, {"CUSTOM_A"}, {"CUSTOM_B", "CUSTOM_C"}),
        (set(), {"CUSTOM_B", "CUSTOM_C"}, set()),
    ):
        agent.has["box"] = edit(add, remove)
        assert mine.update_available_resource().changed == ("box",)
        assert not mine.update_available_resource()
        shelf = everywhere.provider("box/shelf0")
        assert (shelf.traits, shelf.aggregates) == (left, left)
        having = everywhere.providers(required=sorted(left), aggregates=sorted(left))
        assert not left or [one.name for one in having] == ["box/shelf0"]


def test_it_is_known_who_shares_with_a_tree(lab: ro.Ledger) -> None:
    assert not list(lab.pools.list())
    lab.sync(ro.Provider("nfs", "CUSTOM_SHARE_GB=10"))
    assert not list(lab.pools.list()), "nobody has it yet"
    lab.pools.share("nfs", hosts=["box-0"])
    [pool] = lab.pools.list()
    assert (pool.name, list(pool.members)) == ("nfs", ["box-0"])
    found = lab.snapshot().candidates("VCPU=1,CUSTOM_SHARE_GB=1")
    assert {one.host for one in found} == {"box-0"}


# --- the report client ---


class Odd(exceptions.LedgerError):
    """No conflict, nothing that a caller could know."""


def test_another_failure_is_a_finding_of_its_host_with_the_error(
    everywhere: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(**{f"box{n}": "VCPU=4" for n in range(4)})
    mine = ResourceTracker(everywhere, agent)
    mine.update_available_resource()
    agent.has.update({f"box{n}": "VCPU=8" for n in range(4)})
    odd = everywhere.provider("box2").uuid
    commit = everywhere.backend.commit

    def refuses(write: Any) -> Any:
        if any(one.definition.uuid == odd for one in write.definitions.updates):
            raise Odd("ledger", "box2")
        return commit(write)

    with monkeypatch.context() as patched:
        patched.setattr(everywhere.backend, "commit", refuses)
        for changed in (("box0", "box1", "box3"), ()):
            report = mine.update_available_resource()
            assert report.changed == changed
            [finding] = report.findings
            assert (finding.subject, finding.kind) == ("box2", FindingKind.REFUSED)
            assert isinstance(finding.error, Odd)
    totals = {n: everywhere.inventories(f"box{n}")["VCPU"].total for n in range(4)}
    assert totals == {0: 8, 1: 8, 2: 4, 3: 8}
    assert mine.update_available_resource().changed == ("box2",), "and again as soon as it can be"


def test_what_a_consumer_has_changes_at_its_generation(lab: ro.Ledger) -> None:
    claim = tracker(lab).claim("vm", "box-0", "VCPU=1").claim
    assert claim is not None
    lab.replace("vm", {"box-0": "VCPU=2"}, generation=claim.generation)
    with raises_code("StaleConsumer", match="vm"):
        lab.replace("vm", {"box-0": "VCPU=3"}, generation=claim.generation)
    assert used(lab) == {("box-0", "VCPU"): 2}


def test_a_claim_that_somebody_overtook_is_decided_again(
    lab: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tracker(lab)
    commit, tries = lab.backend.commit, []

    def overtaken(write: Any) -> Any:
        monkeypatch.setattr(lab.backend, "commit", commit)
        tries.append(write)
        other.claim("faster", "box-0", "DEVICES=PGPU")
        return commit(write)

    monkeypatch.setattr(lab.backend, "commit", overtaken)
    tracker(lab).claim("slower", "box-0", "VCPU=1,DEVICES=PGPU")
    assert len(tries) == 1
    have = {
        name: {unit for one in lab.get_claim(name).allocations for unit in one.units}
        for name in ("faster", "slower")
    }
    assert have["faster"] | have["slower"] == {"0000:10:00.0", "0000:20:00.0"}
    assert len(have["faster"]) == len(have["slower"]) == 1


def test_a_server_and_its_migration_change_places_in_one_write(lab: ro.Ledger) -> None:
    mine = tracker(lab)
    mine.claim("vm", "box-0", "VCPU=1").confirm()
    for step, left in (
        (lambda: mine.move("vm", "box-1", "VCPU=2", migration="m"), {"box-0": 1, "box-1": 2}),
        (lambda: mine.revert_move("vm", "m"), {"box-0": 1}),
    ):
        cursor = lab.feed.cursor()
        step()
        written = list(since(lab, cursor))
        assert len({one.operation for one in written}) == 1
        assert {name for one in written for name in one.consumers} == {"vm", migration_of("vm")}
        assert {host: count for (host, _), count in used(lab).items()} == left


def test_the_consumers_of_a_tree_are_told_with_all_they_have(lab: ro.Ledger) -> None:
    lab.sync(ro.Provider("nfs", "CUSTOM_SHARE_GB=10"))
    lab.pools.share("nfs", hosts=["box-0", "box-1"])
    both = {"box-0": "VCPU=1", "nfs": "CUSTOM_SHARE_GB=4"}
    lab.claim("vm", both)
    lab.claim("volume", {"nfs": "CUSTOM_SHARE_GB=3"})
    [told] = lab.consumers(tree="box-0")
    assert told.name == "vm" and told.claim is not None
    assert {host: str(one) for host, one in told.claim.by_provider().items()} == both
    assert {one.name for one in lab.consumers(tree="nfs")} == {"vm", "volume"}
    assert not list(lab.consumers(tree="box-1"))
