"""What Nova's tracker, claims, provider tree and report client do: a named test for each row.

The rows are those of four tables of *Nova's node-local resource model* (sections d.2 to d.5): what
the tracker writes, its claims, its provider tree, and how it tells Placement. A row that does not
apply says why.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.exceptions import Rule
from resource_objects.host.tracker import MigrationKind, MigrationState
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
        "interop/nova/test_statistics.py::*",
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
    "_update_usage: swap takes whole GB, and exactly these are given back": (
        "interop/nova/test_extra_specs.py::test_swap_is_rounded_up",
        "tracker/test_in_step.py::test_usage_is_added_and_given_back_exactly",
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
    "all reasons are told": ("tracker/test_rows.py::test_a_refusal_tells_every_reason",),
    "no limit is no bound": ("tracker/test_claims.py::test_a_limit_binds_one_claim_and_is_named",),
    "a block that raises aborts": (
        "tracker/test_claims.py::test_a_block_that_raises_gives_back",
        "tracker/test_moves.py::test_a_block_that_raises_reverts",
    ),
    "claimed_numa_topology: where it went": (
        "tracker/test_claims.py::test_what_was_planned_can_be_taken_just_so",
    ),
    "MoveClaim asks anew what flavor and image ask": (
        "tracker/test_moves.py::test_conditions_go_along",
    ),
    "MoveClaim: a live migration has no other pages": (
        "tracker/test_moves.py::test_a_live_migration_has_no_other_pages",
    ),
    "NopClaim: does not apply, what is not in the ledger is not held": (),
    # --- d.4: the provider tree ---
    "new_root, new_child": (
        "tracker/test_tracker.py::test_what_a_driver_says_is_kept_and_told_once",
    ),
    "remove, with descendants": (
        "providers/test_provider.py::test_removals_go_from_the_bottom_up",
        "tracker/test_in_step.py::test_a_host_is_removed_when_somebody_says_so",
    ),
    "exists, find by name or uuid": (
        "providers/test_provider.py::test_finding_what_is_not_there_names_it",
    ),
    "data, deepcopy: a copy of a moment": (
        "providers/test_provider.py::test_a_copy_is_equal_and_its_own",
        "tracker/test_in_step.py::test_a_value_that_a_driver_changes_in_place_is_noticed",
    ),
    "get_provider_uuids: top-down": (
        "providers/test_provider.py::test_walking_gives_parents_before_children",
    ),
    "populate_from_iterable: no orphans": (
        "tracker/test_findings.py::test_a_wrong_host_is_a_finding_and_stays_as_it_was",
    ),
    "has_inventory_changed: also what is not said any more": (
        "tracker/test_rows.py::test_a_class_that_is_not_said_any_more_is_gone",
        "tracker/test_findings.py::test_a_class_that_is_gone_and_held",
    ),
    "traits and aggregates of others": (
        "tracker/test_drivers.py::test_what_others_have_in_the_tree_stays",
    ),
    "resources: objects of a provider by class": (
        "tracker/test_rows.py::test_units_are_kept_by_name_and_told_to_the_next_agent",
    ),
    "has_sharing_provider": ("tracker/test_rows.py::test_a_consumer_of_a_pool_moves_with_it",),
    "subtree: a large tree costs no more for each provider": (
        "providers/test_provider.py::test_an_add_takes_as_many_steps_in_a_large_tree",
    ),
    "a new parent, another name": (
        "ledger/test_declare.py::test_a_provider_moves_within_its_tree",
        "ledger/test_declare.py::test_a_provider_gets_another_name_and_keeps_what_is_held",
    ),
    # --- d.5: the report client ---
    "get_provider_tree_and_ensure_root": (
        "tracker/test_tracker.py::test_what_a_driver_says_is_kept_and_told_once",
        "tracker/test_in_step.py::test_of_others_only_what_they_changed_is_looked_at",
    ),
    "update_from_provider_tree, all of it or nothing": (
        "ledger/test_declare.py::test_one_tree_that_cannot_be_leaves_all_as_they_were",
        "tracker/test_in_step.py::test_somebody_who_writes_in_between_is_read_again",
    ),
    "reshape, with all allocations": (
        "tracker/test_reshape.py::test_a_host_changes_its_shape_at_any_look",
        "tracker/test_reshape.py::test_who_is_forgotten_is_noticed_and_nothing_is_changed",
        "tracker/test_reshape.py::test_an_agent_that_is_killed_while_it_reshapes_starts_again",
    ),
    "claim_resources: at the generation of the consumer, again on a conflict": (
        "tracker/test_kills.py::test_a_move_that_several_make_is_made_once",
        "tracker/test_claims.py::test_the_same_again_is_the_same_claim",
    ),
    "move_allocations between a server and its migration": (
        "tracker/test_moves.py::test_source_and_destination_are_held_at_once",
        "tracker/test_moves.py::test_reverted_all_is_as_before",
    ),
    "get_allocations_for_provider_tree: also of who has something of a pool": (
        "tracker/test_rows.py::test_a_consumer_of_a_pool_moves_with_it",
        "tracker/test_drift.py::test_an_orphan_gives_back_what_it_holds_of_pools",
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
        assert name == "*" or name in _names(file), one


# --- rows that no other test is about ---


def test_units_are_kept_by_name_and_told_to_the_next_agent(lab: ro.Ledger) -> None:
    asked = "NUMA_TOPOLOGY=1:dedicated=2,DEVICES=PGPU"
    first = tracker(lab).claim("vm", "box-0", asked).claim
    second = tracker(lab).claim("vm-2", "box-0", asked).claim
    assert first is not None and second is not None
    units = [{u for a in one.allocations for u in a.units} for one in (first, second)]
    assert [len(some) for some in units] == [3, 3] and not units[0] & units[1]
    again = tracker(lab).claimed("vm").claim  # by an agent that has just begun
    assert again is not None and again.allocations == first.allocations
    tracker(lab).release("vm-2")
    assert tracker(lab).claim("vm-3", "box-0", asked).claim is not None
    assert {u for a in lab.held("vm-3").allocations for u in a.units} == units[1]


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


def test_a_refusal_tells_every_reason(lab: ro.Ledger) -> None:
    tracker(lab).claim("vm", "box-0", "VCPU=3,DISK_GB=90")
    asked = "VCPU=2,DISK_GB=20,CUSTOM_FPGA=3"
    with pytest.raises(exceptions.NoCandidates) as refusal:
        tracker(lab).claim("vm-2", "box-0", asked)
    told = {one.resource: one for one in refusal.value.reasons}
    assert {"VCPU", "DISK_GB", "CUSTOM_FPGA"} <= told.keys()
    assert {told["VCPU"].rule, told["DISK_GB"].rule} == {Rule.CAPACITY}
    assert (told["VCPU"].requested, told["VCPU"].used) == (2, 3)


def test_a_class_that_is_not_said_any_more_is_gone(everywhere: ro.Ledger) -> None:
    from resource_objects.host.tracker import ResourceTracker
    from tests.tracker.agents import Agent

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
    assert tracker(lab).claimed("vm").host == "box-0"
    move = mine.move("vm", "box-1", found("box-1"), kind=MigrationKind.COLD_MIGRATION)
    assert (move.from_host, move.to_host) == ("box-0", "box-1")
    assert used(lab)["nfs", "CUSTOM_SHARE_GB"] == 8  # held at both places until it is decided
    for host in ("box-0", "box-1"):
        assert [one.id for one in tracker(lab).moves(host)] == [move.id]
    assert move.confirm().state is MigrationState.CONFIRMED
    assert used(lab) == {("box-1", "VCPU"): 1, ("nfs", "CUSTOM_SHARE_GB"): 4}
