"""What Nova's tracker, claims, provider tree and report client do: a named test for each row.

The rows are those of four tables of *Nova's node-local resource model* (sections d.2 to d.5): what
the tracker writes, its claims, its provider tree, and how it tells Placement. A row that does not
apply says why.
"""

from __future__ import annotations

import ast
import copy
import functools
import pickle
from collections.abc import Iterator
from pathlib import Path
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

TESTS = Path(__file__).resolve().parents[1]

#: The tests that show each row, ``file::test``.
ROWS: dict[str, tuple[str, ...]] = {
    # --- d.2: what the tracker writes, and when ---
    "a look: what the driver says, and the ratios of an operator": (
        "tracker/test_tracker.py::test_what_a_driver_says_is_kept_and_told_once",
        "tracker/test_in_step.py::test_a_ratio_overrides_or_keeps_and_initial_ones_only_create",
    ),
    "a look: use is no sum over instances; what differs from who runs there is told": (
        "tracker/test_drift.py::test_nothing_differs",
        "tracker/test_drift.py::test_one_that_runs_elsewhere_and_one_that_differs",
    ),
    "a look: migrations in progress count, at both places": (
        "tracker/test_moves.py::test_an_agent_that_starts_again_finds_its_moves",
        "tracker/test_drift.py::test_what_is_on_its_way_is_no_orphan",
    ),
    "a look: orphaned allocations": (
        "tracker/test_drift.py::test_orphans_are_told_and_released_by_the_plan_alone",
    ),
    "a look: devices that went while somebody had them": (
        "tracker/test_findings.py::test_a_device_that_is_gone_and_held_stays_for_its_holder",
    ),
    "a look: statistics and metrics": (
        "tracker/test_reporting.py::test_what_hosts_tell_is_one_write",
        "interop/nova/test_statistics.py::test_no_metric_loses_a_point",
        "interop/nova/test_statistics.py::test_counters_are_numbers_and_other_words_text",
    ),
    "a look: failed builds stay though the rest is told anew": (
        "tracker/test_reporting.py::test_a_driver_that_tells_nothing_costs_nothing",
        "tracker/test_rows.py::test_what_another_tells_of_a_host_stays",
    ),
    "a look: usage that nobody is told of is kept, not computed from zero": (
        "tracker/test_in_step.py::test_usage_is_added_and_given_back_exactly",
        "tracker/test_drift.py::test_orphans_are_told_and_released_by_the_plan_alone",
    ),
    "instance_claim: test, numa_topology, devices and use in one step": (
        "tracker/test_claims.py::test_all_resources_are_taken_together",
        "tracker/test_kills.py::test_who_is_killed_in_a_step_leaves_all_of_it_or_nothing",
    ),
    "instance_claim: one at a time, without a lock of the process": (
        "tracker/test_in_step.py::test_threads_that_look_and_claim_at_once",
        "tracker/test_kills.py::test_a_host_that_all_claim_of_is_full_and_no_more",
    ),
    "instance_claim: assigned resources are kept by identity": (
        "tracker/test_rows.py::test_units_are_kept_by_name_and_told_to_the_next_agent",
    ),
    "resize_claim, rebuild_claim, live_migration_claim: the new is taken beside the old": (
        "tracker/test_moves.py::test_source_and_destination_are_held_at_once",
        "tracker/test_moves.py::test_a_rebuild_has_room_where_the_old_one_was",
        "tracker/test_moves.py::test_a_live_migration_keeps_the_size_of_its_pages",
    ),
    "live_migration_claim: devices are taken when it begins": (
        "tracker/test_rows.py::test_a_live_migration_takes_its_devices_when_it_begins",
    ),
    "a migration's context: which CPUs and devices were and will be its": (
        "tracker/test_moves.py::test_cpus_and_devices_of_both_sizes_are_others",
        "tracker/test_moves.py::test_reverted_all_is_as_before",
    ),
    "abort_instance_claim": ("tracker/test_claims.py::test_claimed_and_given_back_leaves_nothing",),
    "drop_move_claim at source and destination": (
        "tracker/test_moves.py::test_confirmed_the_source_is_given_back",
        "tracker/test_moves.py::test_reverted_all_is_as_before",
        "tracker/test_claims.py::test_the_claim_of_a_source_gives_back_nothing_of_the_destination",
    ),
    "update_usage: of who is known": (
        "tracker/test_in_step.py::test_usage_is_added_and_given_back_exactly",
        "tracker/test_rows.py::test_nobody_gives_back_what_somebody_else_has",
    ),
    "_update: the driver first, then provider configuration files, in one write": (
        "tracker/test_configuration.py::test_what_files_add_is_there_beside_what_the_driver_says",
        "tracker/test_rows.py::test_a_host_its_children_and_its_files_are_one_write",
    ),
    "_update: tried again on a conflict of generations": (
        "tracker/test_in_step.py::test_somebody_who_writes_in_between_is_read_again",
    ),
    "_update: saved only if something changed": (
        "tracker/test_in_step.py::test_an_unchanged_fleet_costs_one_question_and_no_write",
    ),
    "_update: the last good view stays if it cannot be saved": (
        "tracker/test_findings.py::test_a_wrong_host_is_a_finding_and_stays_as_it_was",
        "tracker/test_adopting.py::test_a_record_that_cannot_be_written_undoes_nothing_and_is_told",
    ),
    "_update: pools of devices in the record": (
        "host/test_compute_node_pci_ledger.py::test_devices_that_come_and_go_are_seen_by_a_reload",
    ),
    "_update_usage: swap takes whole GB, and exactly these are given back": (
        "interop/nova/test_extra_specs.py::test_swap_is_rounded_up",
        "tracker/test_in_step.py::test_usage_is_added_and_given_back_exactly",
    ),
    "_update_usage: who boots from a volume has no root disk": (
        "tracker/test_rows.py::test_who_boots_from_a_volume_takes_no_root_disk",
    ),
    "a resize on the same host counts both sizes": (
        "tracker/test_moves.py::test_a_resize_within_a_host_needs_room_for_both",
    ),
    "evacuate, shelve, unshelve": (
        "tracker/test_moves.py::test_a_dead_host_is_left_though_it_is_out_of_service",
        "tracker/test_moves.py::test_who_is_shelved_holds_nothing_and_comes_back_anywhere",
        "tracker/test_moves.py::test_an_unshelving_that_fails_is_reverted",
    ),
    # --- d.3: claims ---
    "a claim tests when it is made, and nothing is taken by a test": (
        "tracker/test_claims.py::test_a_plan_is_a_decision_and_writes_nothing",
    ),
    "counts are tested with cells and devices": (
        "tracker/test_claims.py::test_a_plan_and_a_claim_say_no_for_the_same_reasons",
    ),
    "all reasons are told, of cells and devices too": (
        "tracker/test_rows.py::test_a_refusal_tells_every_reason",
        "tracker/test_rows.py::test_a_refusal_of_cells_and_devices_tells_both",
    ),
    "no limit is no bound": ("tracker/test_claims.py::test_a_limit_binds_one_claim_and_is_named",),
    "a block that raises aborts": (
        "tracker/test_claims.py::test_a_block_that_raises_gives_back",
        "tracker/test_moves.py::test_a_block_that_raises_reverts",
    ),
    "claimed_numa_topology: where it went": (
        "tracker/test_claims.py::test_what_was_planned_can_be_taken_just_so",
    ),
    "MoveClaim asks anew what flavor and image ask": (
        "tracker/test_rows.py::test_a_resize_asks_what_the_new_flavor_asks",
        "tracker/test_moves.py::test_conditions_go_along",
    ),
    "MoveClaim: a live migration has no other pages": (
        "tracker/test_moves.py::test_a_live_migration_has_no_other_pages",
    ),
    "NopClaim: does not apply, what is not in the ledger is not held": (),
    # --- d.4: the provider tree ---
    "new_root, new_child": (
        "tracker/test_rows.py::test_a_host_its_children_and_its_files_are_one_write",
    ),
    "remove, with descendants": (
        "tracker/test_rows.py::test_who_goes_takes_all_below_along",
        "tracker/test_in_step.py::test_a_host_is_removed_when_somebody_says_so",
    ),
    "exists, find by name or uuid": (
        "tracker/test_rows.py::test_a_provider_is_found_by_either_key",
    ),
    "data, deepcopy, pickle: a copy of a moment": (
        "tracker/test_rows.py::test_what_is_read_is_a_copy_of_a_moment",
        "tracker/test_rows.py::test_a_driver_that_fails_half_way_edited_a_copy",
    ),
    "get_provider_uuids, in all and in a tree: top-down": (
        "tracker/test_rows.py::test_parents_come_first_in_all_trees_and_in_one",
    ),
    "populate_from_iterable: no orphans; another parent takes its descendants along": (
        "tracker/test_rows.py::test_nobody_is_left_without_a_parent",
    ),
    "has_inventory_changed, update_inventory: what is the same is no change": (
        "tracker/test_rows.py::test_the_same_again_is_no_change_and_an_old_generation_is_refused",
    ),
    "has_inventory_changed: also what is not said any more": (
        "tracker/test_rows.py::test_a_class_that_is_not_said_any_more_is_gone",
        "tracker/test_findings.py::test_a_class_that_is_gone_and_held",
    ),
    "add_, remove_, update_, have_ traits and aggregates": (
        "tracker/test_rows.py::test_traits_and_aggregates_come_and_go_by_name",
    ),
    "traits and aggregates of others": (
        "tracker/test_drivers.py::test_what_others_have_in_the_tree_stays",
    ),
    "resources: objects of a provider by class": (
        "tracker/test_rows.py::test_units_are_kept_by_name_and_told_to_the_next_agent",
    ),
    "has_sharing_provider": ("tracker/test_rows.py::test_it_is_known_who_shares_with_a_tree",),
    "subtree: a large tree costs no more for each provider": (
        "providers/test_provider.py::test_an_add_takes_as_many_steps_in_a_large_tree",
    ),
    "a new parent, another name": (
        "ledger/test_declare.py::test_a_provider_moves_within_its_tree",
        "ledger/test_declare.py::test_a_provider_gets_another_name_and_keeps_what_is_held",
    ),
    # --- d.5: the report client ---
    "get_provider_tree_and_ensure_root: made if need be": (
        "tracker/test_rows.py::test_a_host_its_children_and_its_files_are_one_write",
    ),
    "get_provider_tree_and_ensure_root: what others changed is read again": (
        "tracker/test_in_step.py::test_of_others_only_what_they_changed_is_looked_at",
    ),
    "get_provider_tree_and_ensure_root: a deep copy": (
        "tracker/test_rows.py::test_a_driver_that_fails_half_way_edited_a_copy",
    ),
    "update_from_provider_tree, all of it or nothing": (
        "ledger/test_declare.py::test_one_tree_that_cannot_be_leaves_all_as_they_were",
    ),
    "update_from_provider_tree: a conflict of generations is read and written again": (
        "tracker/test_in_step.py::test_somebody_who_writes_in_between_is_read_again",
    ),
    "update_from_provider_tree: other failures are ResourceProviderSyncFailed": (
        "tracker/test_rows.py::test_another_failure_is_a_finding_of_its_host_with_the_error",
        "tracker/test_findings.py::test_a_wrong_host_is_a_finding_and_stays_as_it_was",
        "tracker/test_findings.py::test_what_was_done_before_the_ledger_was_gone_is_told",
    ),
    "reshape, with all allocations": (
        "tracker/test_reshape.py::test_a_host_changes_its_shape_at_any_look",
        "tracker/test_reshape.py::test_who_is_forgotten_is_noticed_and_nothing_is_changed",
        "tracker/test_reshape.py::test_an_agent_that_is_killed_while_it_reshapes_starts_again",
    ),
    "reshape: afterwards generations are those of the reshape": (
        "tracker/test_reshape.py::test_it_is_said_for_ever_and_happens_once",
        "tracker/test_reshape.py::test_there_and_back_and_there",
    ),
    "claim_resources: at the generation of the consumer": (
        "tracker/test_rows.py::test_what_a_consumer_has_changes_at_its_generation",
        "tracker/test_claims.py::test_the_same_again_is_the_same_claim",
    ),
    "claim_resources: again on a conflict": (
        "tracker/test_rows.py::test_a_claim_that_somebody_overtook_is_decided_again",
        "tracker/test_kills.py::test_a_host_that_all_claim_of_is_full_and_no_more",
    ),
    "claim_resources: on a move in addition to what is held": (
        "tracker/test_moves.py::test_source_and_destination_are_held_at_once",
        "tracker/test_kills.py::test_a_move_that_several_make_is_made_once",
    ),
    "move_allocations between a server and its migration, in one write": (
        "tracker/test_rows.py::test_a_server_and_its_migration_change_places_in_one_write",
        "tracker/test_moves.py::test_reverted_all_is_as_before",
    ),
    "get_allocations_for_provider_tree: all that its consumers have, and who has of a pool alone": (
        "tracker/test_rows.py::test_the_consumers_of_a_tree_are_told_with_all_they_have",
        "tracker/test_drift.py::test_an_orphan_gives_back_what_it_holds_of_pools",
    ),
    "delete_allocation_for_instance": (
        "tracker/test_moves.py::test_who_is_deleted_on_the_way_leaves_nothing",
    ),
}


@functools.cache
def _names(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_a_test(row: str) -> None:
    assert ROWS[row] or "does not apply" in row
    for one in ROWS[row]:
        file, name = one.split("::")
        assert name in _names(file), one


# --- rows that no other test is about ---


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
