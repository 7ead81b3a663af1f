"""Which vCPUs are real-time, and which are dedicated under the policy mixed."""

from __future__ import annotations

import pytest

from resource_objects.interop.nova.rules import NovaRule
from tests.interop.nova.said import DEDICATED, amount, asked, refused

RT = {"hw:cpu_realtime": "yes"}
MIXED = {"hw:cpu_policy": "mixed"}
ISOLATE = {"hw:emulator_threads_policy": "isolate"}


def masked(mask: str) -> dict[str, str]:
    return {"hw:cpu_realtime_mask": mask}


# --- hw:cpu_realtime, hw:cpu_realtime_mask, hw_cpu_realtime_mask ---


@pytest.mark.parametrize(
    ("mask", "vcpus"),
    [
        ("2-3", (2, 3)),
        ("^0-1", (2, 3)),
        ("^0,^2", (1, 3)),
        (" ^0", (1, 2, 3)),
        ("0-3,^1", (0, 2, 3)),
    ],
)
def test_a_mask_names_vcpus_or_with_a_caret_all_but_those(
    mask: str, vcpus: tuple[int, ...]
) -> None:
    assert asked(DEDICATED | RT | masked(mask)).realtime == vcpus


def test_the_mask_of_the_image_goes_first() -> None:
    assert asked(DEDICATED | RT | masked("1"), {"hw_cpu_realtime_mask": "^0"}).realtime == (1, 2, 3)


@pytest.mark.parametrize("flag", ["no", "false", "0", "", None, False])
def test_a_mask_alone_makes_nothing_real_time(flag: object) -> None:
    assert asked(DEDICATED | masked("1") | {"hw:cpu_realtime": flag}).realtime == ()


@pytest.mark.parametrize("flag", ["yes", "True", "on", "1", True])
def test_yes_is_said_in_several_ways(flag: object) -> None:
    assert asked(DEDICATED | masked("1") | {"hw:cpu_realtime": flag}).realtime == (1,)


def test_neither_yes_nor_no_is_refused_where_nova_takes_it_for_no() -> None:
    refused(NovaRule.INVALID_FLAG, DEDICATED | {"hw:cpu_realtime": "maybe"})


def test_a_mask_leaves_some_vcpu() -> None:
    refused(NovaRule.REALTIME_MASK_EMPTY, DEDICATED | RT | masked("^0-3"))
    refused(NovaRule.REALTIME_MASK_EMPTY, DEDICATED | RT, {"hw_cpu_realtime_mask": "1,^1"})


@pytest.mark.parametrize("mask", ["", "0-3", "^7"])
def test_all_vcpus_are_real_time_only_with_an_emulator_policy(mask: str) -> None:
    words = DEDICATED | RT | masked(mask)
    refused(NovaRule.REALTIME_WITHOUT_REST, words)
    for policy in ("share", "isolate"):
        assert asked(words | {"hw:emulator_threads_policy": policy}).realtime == (0, 1, 2, 3)


def test_an_emulator_policy_that_there_is_not_makes_nothing_real_time() -> None:
    refused(
        NovaRule.INVALID_EMULATOR_POLICY, DEDICATED | RT | {"hw:emulator_threads_policy": "own"}
    )


@pytest.mark.parametrize("mask", ["4", "0-4", "3-7"])
def test_a_mask_names_vcpus_of_the_flavor(mask: str) -> None:
    assert "vCPUs below 4" in refused(
        NovaRule.REALTIME_MASK_OUT_OF_RANGE, DEDICATED | RT | ISOLATE | masked(mask)
    )


def test_a_mask_is_a_list_of_vcpus() -> None:
    refused(NovaRule.INVALID_CPU_LIST, DEDICATED | RT | masked("some"))


@pytest.mark.parametrize("policy", [{}, {"hw:cpu_policy": "shared"}, {"resources:VCPU": "4"}])
def test_real_time_needs_dedicated_vcpus(policy: dict[str, str]) -> None:
    refused(NovaRule.REALTIME_WITHOUT_PINNING, policy | RT | masked("^0"))


def test_under_dedicated_real_time_changes_nothing_of_the_topology() -> None:
    assert amount(DEDICATED | RT | masked("^0")) == amount(DEDICATED)


# --- hw:cpu_dedicated_mask ---


@pytest.mark.parametrize(
    ("mask", "vcpus"), [("1,3", (1, 3)), ("^0", (1, 2, 3)), ("0-2,^1", (0, 2))]
)
def test_under_mixed_a_mask_says_which_are_dedicated(mask: str, vcpus: tuple[int, ...]) -> None:
    (cell,) = amount(MIXED | {"hw:cpu_dedicated_mask": mask}).cells
    assert cell.dedicated == vcpus
    assert cell.shared == tuple(sorted({0, 1, 2, 3}.difference(vcpus)))


@pytest.mark.parametrize("mask", ["^0-3", "1,^1", ",", "0-3", "^7", "0-7"])
def test_it_is_some_of_the_vcpus_and_not_all(mask: str) -> None:
    refused(NovaRule.DEDICATED_MASK_IMPROPER, MIXED | {"hw:cpu_dedicated_mask": mask})


@pytest.mark.parametrize("mask", ["4", "0,9"])
def test_it_names_vcpus_of_the_flavor(mask: str) -> None:
    refused(NovaRule.DEDICATED_MASK_OUT_OF_RANGE, MIXED | {"hw:cpu_dedicated_mask": mask})


def test_it_is_a_list_of_vcpus() -> None:
    refused(NovaRule.INVALID_CPU_LIST, MIXED | {"hw:cpu_dedicated_mask": "0-"})


@pytest.mark.parametrize("policy", ["", "shared", "dedicated"])
def test_it_is_said_only_under_mixed(policy: str) -> None:
    words = {"hw:cpu_dedicated_mask": "0", "hw:cpu_policy": policy}
    assert f"the policy is {policy or 'shared'}" in refused(
        NovaRule.DEDICATED_MASK_WITHOUT_MIXED, words
    )
    refused(
        NovaRule.DEDICATED_MASK_WITHOUT_MIXED, {"hw:cpu_dedicated_mask": "0", "resources:PCPU": "4"}
    )


def test_under_mixed_the_real_time_vcpus_are_the_dedicated_ones() -> None:
    found = asked(MIXED | RT | masked("^0-1"))
    assert found.realtime == (2, 3)
    assert found.amount is not None
    assert found.amount.cells[0].dedicated == (2, 3)


def test_under_mixed_exactly_one_mask_is_needed() -> None:
    refused(NovaRule.MIXED_WITHOUT_MASK, MIXED)
    refused(NovaRule.MIXED_WITHOUT_MASK, MIXED | masked("0"))
    refused(
        NovaRule.MIXED_WITH_TWO_MASKS, MIXED | RT | masked("^0") | {"hw:cpu_dedicated_mask": "1"}
    )


def test_a_mix_whose_vcpus_are_all_real_time_is_dedicated() -> None:
    assert amount(MIXED | RT | ISOLATE).cpu_policy == "dedicated"


def test_a_mix_counts_as_vcpu_and_pcpu() -> None:
    found = asked(MIXED | ISOLATE | {"hw:cpu_dedicated_mask": "0"})
    assert found.amount is not None
    assert found.amount.placed_counts == {"VCPU": 3, "PCPU": 2, "MEMORY_MB": 2048}
