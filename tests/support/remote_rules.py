"""The rules of the conformance kit that a remote Placement does not satisfy, and the reasons.

A rule fails because of an unsupported :class:`~resource_objects.providers.backend.Capability`,
which is refused by name, or because of a :class:`Difference`. Names are those of the kit's tests;
some fail only with some parameters.
"""

from __future__ import annotations

import enum

from resource_objects.providers.backend import Capability


class Difference(enum.Enum):
    """A difference between a remote Placement and a ledger."""

    GENERATIONS = "claims increase generations: a definition read before a claim is stale"
    AGAIN = "the generation of a consumer begins again when it is created again"
    NAMES = "names other than uuids, and operations, are known to one process only"
    RULES = "unit rules apply to unchanged and reduced amounts, too"
    UNITS31 = "amounts have 31 bits"
    COUNTS = "one number counts writes of definitions and of allocations"
    PARTS = "definitions of several providers need several requests"
    PICTURE = "changes are found by comparison: without their number, and not of one moment"
    MEMBERS = "an aggregate without members does not exist"
    FLOATS = "capacity is a product of floats"
    OVER = "concurrent consumers may exceed the capacity (PostgreSQL)"
    UNANSWERED = "concurrent writes may be answered by 500: the outcome is unknown"


#: 100 of 1.15 are 114.99999999999999 there.
FLOATS = ("test_ratios_are_exact",)

#: By what stands against them, the rules that cannot be kept.
CANNOT: dict[Capability | Difference, tuple[str, ...]] = {
    Capability.UNITS: (
        "test_two_consumers_of_a_full_provider_exchange_their_units",
        "test_a_repeated_write_returns_its_first_outcome_after_later_writes",
        "test_a_unit_is_allocated_to_one_consumer_whatever_its_class",
        "test_a_unit_is_allocated_to_one_of_many_threads",
        "test_a_unit_passes_from_one_consumer_to_another_in_one_write",
        "test_allocations_are_read_only_on_request",
        "test_a_release_of_the_whole_amount_releases_its_units",
        "test_many_units_are_one_write",
        "test_no_free_unit_of_a_disabled_provider_is_allocated",
        "test_a_consumer_cannot_release_a_unit_that_is_not_allocated_to_it",
        "test_a_replacement_keeps_releases_and_allocates_units",
        "test_two_orders_of_one_write_cannot_allocate_one_unit",
        "test_an_adjustment_releases_and_allocates_single_units",
        "test_units_move_with_their_consumers",
        "test_units_of_a_renamed_provider_stay_allocated",
        "test_the_same_name_at_another_provider_is_another_unit",
        "test_units_that_look_alike_differ",
        "test_a_partial_release_names_its_units",
    ),
    Capability.TOPOLOGIES: (
        "test_a_removed_unit_counts_as_used_until_it_is_released",
        "test_a_removed_unit_is_not_allocated_again",
        "test_a_refusal_names_the_consumers_next_to_the_removed_unit",
        "test_the_tighter_of_a_limit_and_the_capacity_without_the_removed_unit_is_reported",
        "test_consumers_may_exchange_a_removed_unit",
        "test_a_placed_resource_is_changed_and_removed",
        "test_a_placed_resource_keeps_its_classes_when_one_is_renamed",
        "test_a_placed_resource_of_several_records_is_stored",
        "test_a_tree_that_is_read_again_is_current",
        "test_placed_resources_are_read_as_they_were_defined",
        "test_the_view_equals_the_inventory_after_the_same_allocations",
        "test_no_unit_is_allocated_twice_at_once",
    ),
    Capability.SHARES: (
        "test_a_whole_card_and_its_functions_exclude_each_other",
        "test_an_entry_has_the_units_and_nothing_of_what_follows_from_shares",
        "test_a_full_target_refuses",
        "test_a_limit_bounds_use_through_shares",
        "test_a_listed_provider_has_every_field",
        "test_a_renamed_class_keeps_its_inventories_shares_and_allocations",
        "test_threads_never_exceed_the_target_of_shares",
        "test_a_target_that_became_shared_is_not_removed",
        "test_one_unit_uses_several_of_several_inventories",
        "test_an_empty_set_matches_no_row",
        "test_consumers_are_listed_counted_and_summed_as_by_loops",
        "test_handles_may_be_uuids",
        "test_a_removed_inventory_cannot_become_shared",
        "test_a_share_of_a_disabled_provider_refuses",
        "test_a_target_above_its_capacity_through_shares_may_not_grow",
        "test_pages_cover_each_row_once",
        "test_providers_are_filtered_as_by_loops",
        "test_the_target_of_a_share_bounds_several_orders_together",
        "test_a_sharing_provider_and_its_target_can_be_removed_together",
        "test_shares_are_flat",
        "test_an_inventory_whose_figures_change_keeps_its_shares",
        "test_changed_shares_count_for_the_orders_of_the_write",
        "test_the_filled_ledger_has_every_kind_of_record",
        "test_unit_rules_of_the_target_bind_only_direct_allocations",
        "test_units_and_shares_are_allocated_together",
        "test_existing_use_is_adopted_above_the_capacity",
        "test_a_share_that_changes_counts_existing_allocations_at_once",
        "test_an_allocation_is_used_at_the_target_of_a_share_too",
        "test_a_replacement_with_the_same_amounts_is_counted_a_renewal_is_not",
        "test_writes_of_allocations_are_counted_at_each_provider_once_whatever_the_classes",
    ),
    Capability.EXPIRY: (
        "test_a_replacement_keeps_the_claim_of_its_consumer",
        "test_a_consumer_has_every_field",
        "test_a_renewal_changes_expiry_and_state_and_nothing_else",
        "test_an_expired_claim_holds_until_it_is_released",
    ),
    Capability.CONFIRMING: (
        "test_a_renewal_changes_no_tree",
        "test_a_renewal_needs_a_consumer_at_the_stated_generation",
        "test_every_kind_of_write_happens_once",
        "test_many_consumers_change_in_one_write",
    ),
    Capability.CLAIM_IDS: ("test_the_uuid_of_a_claim_belongs_to_one_consumer",),
    Capability.REQUESTS: (
        "test_each_of_several_consumers_has_its_request",
        "test_the_request_is_stored_with_the_claim",
    ),
    Capability.LIMITS: (
        "test_a_limit_is_of_one_write",
        "test_a_limit_of_an_inventory_that_the_write_does_not_use_refuses_nothing",
        "test_a_limit_refuses_more_than_it_allows",
        "test_a_limit_below_the_use_refuses_only_an_increase",
        "test_of_many_inventories_each_has_its_limit",
        "test_a_refusal_names_the_tighter_of_limit_and_capacity",
        "test_claims_at_once_never_exceed_a_limit",
        "test_a_limit_bounds_several_orders_together",
    ),
    Capability.UNCHANGED: (
        "test_a_write_can_demand_unchanged_definitions",
        "test_claims_leave_definitions_unchanged",
        "test_a_generation_of_a_provider_never_repeats",
    ),
    Capability.AGGREGATES_ALONE: (
        "test_a_new_aggregate_is_created_once",
        "test_a_missing_aggregate_is_not_found",
        "test_a_new_aggregate_gets_its_level_in_the_same_write",
        "test_no_aggregate_gets_the_name_of_another_one",
        "test_a_renamed_name_keeps_its_number[aggregate]",
        "test_a_renamed_aggregate_keeps_its_providers",
        "test_names_are_listed_by_their_code_points_in_pages",
        "test_one_refused_change_of_a_name_refuses_the_others",
        "test_another_backend_sees_that_a_name_was_deleted",
        "test_the_aggregate_of_a_provider_cannot_be_deleted",
        "test_a_follower_sees_a_provider_move_to_another_tree",
    ),
    Capability.LEVELS: ("test_an_aggregate_has_a_level_or_none",),
    Capability.RENAMED_TRAITS: (
        "test_a_rename_with_other_changes_names_the_providers",
        "test_a_missing_trait_is_not_found",
        "test_no_trait_gets_the_name_of_another_one",
        "test_a_renamed_name_keeps_its_number[trait]",
        "test_a_renamed_trait_keeps_its_providers",
        "test_a_standard_trait_can_be_neither_renamed_nor_deleted",
    ),
    Capability.CONSUMER_TYPES: ("test_a_replacement_creates_its_consumer",),
    Capability.ADOPTING: (
        "test_sums_are_exact_beyond_64_bits",
        "test_a_host_can_be_created_adopted_and_reported_in_one_write",
        "test_unit_rules_do_not_bind_a_consumer_that_aggregates_many",
        "test_the_time_of_adoption_is_stored_once_and_is_no_report",
    ),
    Capability.REPORTS: (
        "test_a_report_is_written_with_its_definition_or_not_at_all",
        "test_an_unknown_provider_is_not_reported",
        "test_stale_reports_are_listed",
        "test_the_time_of_a_report_is_stored",
    ),
    Capability.DISABLING: (
        "test_an_order_can_override_a_disabled_provider_and_the_feed_records_it",
        "test_two_consumers_exchange_their_allocations_at_a_disabled_provider",
        "test_a_removed_provider_is_disabled_again_when_it_returns_with_any_uuid",
        "test_disabling_with_a_time_limit_expires",
        "test_disabling_and_enabling_are_writes_of_the_definition_once_each",
        "test_the_actor_time_and_reason_of_disabling_are_stored",
        "test_a_disabled_provider_stays_disabled_across_definitions",
        "test_lists_filter_disabled_providers_by_a_trait",
        "test_a_provider_created_below_a_disabled_one_is_disabled_in_the_same_write",
        "test_nothing_is_allocated_at_a_disabled_provider_or_below_it",
        "test_a_write_can_create_and_disable_a_provider",
        "test_an_unknown_provider_cannot_be_disabled",
        "test_each_disabled_ancestor_is_a_reason",
        "test_a_removed_tree_is_forgotten_with_what_was_disabled_in_it",
        "test_a_missing_inventory_of_a_disabled_provider_is_missing_not_disabled",
        "test_a_provider_is_disabled_with_its_new_parent",
        "test_a_write_can_demand_the_service_state",
        "test_allocations_at_a_disabled_provider_stay_and_can_shrink",
        "test_a_provider_is_enabled_with_the_tree_that_it_moves_to",
        "test_existing_use_is_adopted_at_a_disabled_provider",
    ),
    Capability.SERVER_GROUPS: (
        "test_a_consumer_stays_in_its_group_until_it_is_removed",
        "test_a_group_is_created_once_and_removed_without_members",
        "test_an_unknown_group_has_no_members_and_cannot_be_removed",
        "test_a_host_is_the_whole_tree_and_a_pool_is_no_host",
        "test_a_refusal_has_the_capacity_and_the_group_as_reasons",
        "test_groups_are_listed_by_name",
        "test_members_of_an_anti_affinity_group_are_at_different_hosts",
        "test_members_of_an_affinity_group_are_at_one_host",
        "test_one_of_two_claims_at_once_for_a_group_succeeds",
        "test_a_policy_is_compared_with_the_hosts_after_the_whole_write",
        "test_soft_policies_refuse_nothing",
        "test_the_text_of_a_refusal_names_the_group_and_its_first_members",
        "test_a_policy_does_not_bind_allocations_that_stay_at_their_host",
        "test_the_group_of_a_consumer_is_in_every_record",
    ),
    Capability.FEED: (
        "test_use_is_the_amount_times_its_duration",
        "test_a_longer_retention_does_not_restore_pruned_use",
        "test_a_class_counts_under_its_name_at_the_time",
        "test_each_kind_of_write_has_one_entry",
        "test_each_tree_has_an_entry_of_the_changes_in_it",
        "test_an_entry_names_the_changed_providers",
        "test_a_busy_shard_does_not_starve_others",
        "test_a_cursor_after_the_pruned_entries_is_valid",
        "test_a_cursor_of_another_history_expires",
        "test_a_provider_that_changes_its_tree_has_an_entry_in_both_shards",
        "test_claims_are_complete_during_another_write[entries are pruned]",
        "test_entries_within_the_retention_are_not_pruned",
        "test_pages_cover_everything_once",
        "test_pruning_removes_operations_and_no_state",
        "test_writes_prune_entries_older_than_the_retention",
        "test_pruned_entries_expire_the_cursors_before_them",
        "test_a_reader_that_continues_from_a_snapshot_misses_nothing",
    ),
    Capability.WAITING: (
        "test_a_listed_waiter_has_every_field",
        "test_threads_that_enter_at_once_get_different_numbers",
        "test_a_filter_of_waiters_can_name_thousands_of_trees",
        "test_pages_of_waiters_continue_after_a_number",
        "test_the_queue_is_no_part_of_the_feed",
        "test_the_queue_agrees_with_a_list",
        "test_an_invalid_wait_is_refused",
        "test_a_waiter_with_an_expired_lease_is_removed",
        "test_a_waiter_that_enters_again_keeps_its_number",
        "test_a_renewed_waiter_keeps_its_number",
    ),
    Capability.STATISTICS: (
        "test_a_value_has_the_time_of_its_last_change",
        "test_threads_write_statistics_at_once",
        "test_a_value_keeps_its_time_when_another_source_writes_it",
        "test_every_value_is_read_as_it_was_written",
        "test_many_providers_are_one_write",
        "test_an_unknown_provider_refuses_all_statistics_of_the_order",
        "test_statistics_are_removed_by_provider_and_by_name",
        "test_statistics_are_read_by_provider_and_by_name",
        "test_statistics_agree_with_a_dict",
        "test_statistics_change_neither_the_feed_nor_the_definition",
        "test_statistics_are_removed_with_their_provider",
        "test_statistics_of_a_provider_that_is_removed_meanwhile_are_refused",
        "test_the_time_of_a_report_is_stored_with_statistics",
    ),
    Capability.USE_OVER_TIME: (
        "test_use_of_a_removed_class_and_provider_stays_in_the_report",
        "test_use_counts_for_the_last_user_and_project",
        "test_use_before_the_retention_is_not_counted",
        "test_reports_are_filtered_and_grouped",
        "test_a_report_on_the_future_is_refused",
    ),
    Difference.GENERATIONS: (
        "test_a_consumer_that_releases_everything_is_removed",
        "test_an_inventory_becomes_one_that_its_children_share_and_again_its_own",
        "test_definitions_and_claims_do_not_disturb_each_other",
        "test_a_replacement_counts_its_own_allocations_as_free",
        "test_claims_are_complete_during_another_write[shares change]",
    ),
    Difference.AGAIN: (
        "test_a_generation_never_repeats_also_of_a_consumer_that_is_created_again",
        "test_a_renewal_may_demand_a_claim_also_of_a_consumer_that_is_created_again",
    ),
    Difference.NAMES: (
        "test_names_exchanged_by_another_backend_are_not_confused",
        "test_two_backends_of_one_ledger_agree",
        "test_a_ledger_outlives_its_backend",
    ),
    Difference.RULES: (
        "test_unit_rules_bind_a_replacement_that_increases_an_amount",
        "test_unit_rules_do_not_bind_a_release",
    ),
    Difference.UNITS31: (
        "test_the_largest_figures_are_exact",
        "test_a_share_of_more_than_can_be_counted_is_refused",
    ),
    Difference.COUNTS: (
        "test_a_release_is_counted_only_on_request",
        "test_the_counter_of_writes_never_decreases",
        "test_writes_of_a_definition_are_counted",
    ),
    Difference.PARTS: (
        "test_two_providers_exchange_their_names",
        "test_a_thread_that_compares_again_loses_no_change",
    ),
    Difference.PICTURE: (
        "test_a_rename_alone_concerns_every_tree",
        "test_more_changes_than_requested_are_not_read",
        "test_a_follower_sees_each_write_completely",
    ),
    Difference.MEMBERS: ("test_a_definition_without_aggregates_leaves_them",),
}

#: What the real Placement cannot keep besides, by the database that it is on.
REAL_CANNOT: dict[str, dict[Difference, tuple[str, ...]]] = {
    "sqlite": {
        Difference.FLOATS: FLOATS,
        Difference.UNANSWERED: (
            "test_claims_are_complete_during_another_write[a class is renamed]",
            "test_a_name_is_deleted_while_it_is_used",
            "test_claims_are_complete_during_another_write[an inventory moves]",
            "test_one_of_the_writers_with_the_same_generation_succeeds",
            "test_one_consumer_claims_once",
            "test_many_threads_create_one_name",
            "test_one_of_many_threads_creates_a_tree",
            "test_exchanges_in_opposite_orders_do_not_deadlock",
            "test_claims_at_once_never_exceed_the_capacity",
            "test_writes_of_many_consumers_meet_in_any_order",
        ),
    },
    "postgresql": {
        Difference.FLOATS: FLOATS,
        Difference.OVER: ("test_claims_at_once_never_exceed_the_capacity",),
        Difference.UNANSWERED: (  # after a deadlock
            "test_writes_of_many_consumers_meet_in_any_order",
        ),
    },
}

#: Where it is chance whether a rule fails: who writes first.
BY_CHANCE = frozenset({Difference.UNANSWERED, Difference.OVER})

#: Rules that are not run, for they would wait for what is refused.
NOT_RUN: dict[str, Capability] = {
    "test_no_claim_succeeds_after_disable_returned": Capability.DISABLING,
    "test_any_valid_name_is_stored": Capability.UNITS,
}

_WHY = {name: why for why, names in CANNOT.items() for name in names}


def why_of(name: str, function: str) -> Capability | Difference | None:
    """Return why a test of the kit cannot pass, None if it has to.

    :param name: with its parameters
    """
    return _WHY.get(name, _WHY.get(function))


def real_why_of(name: str, database: str) -> Difference | None:
    """Return why a test cannot pass on the real Placement alone, None if it is not that."""
    return next((why for why, names in REAL_CANNOT[database].items() if name in names), None)
