"""Which vCPUs have a CPU each: the policy of flavor and image, and the resources that imply one."""

from __future__ import annotations

import pytest

from resource_objects.interop.nova.rules import NovaRule
from tests.interop.nova.said import DEDICATED, amount, asked, refused

CELLS = {"hw:numa_nodes": "1"}
MASK = {"hw:cpu_dedicated_mask": "0"}


def policy(flavor: str, image: str) -> str:
    specs = CELLS | ({"hw:cpu_policy": flavor} if flavor else {})
    if flavor == "mixed":
        specs |= MASK
    return amount(specs, {"hw_cpu_policy": image} if image else {}).cpu_policy


# --- hw:cpu_policy, hw_cpu_policy ---


@pytest.mark.parametrize("image", ["", "shared", "dedicated", "mixed"])
def test_a_dedicated_flavor_wins_over_any_image(image: str) -> None:
    assert policy("dedicated", image) == "dedicated"


@pytest.mark.parametrize("image", ["", "shared", "mixed"])
def test_a_mixed_flavor_wins_over_images_that_ask_for_no_more(image: str) -> None:
    assert policy("mixed", image) == "mixed"


def test_a_mixed_flavor_refuses_a_dedicated_image() -> None:
    said = refused(
        NovaRule.CPU_POLICY_CONFLICT,
        {"hw:cpu_policy": "mixed"} | MASK,
        {"hw_cpu_policy": "dedicated"},
    )
    assert said == (
        "hw_cpu_policy: got 'dedicated', expected none or mixed, "
        "for hw:cpu_policy of the flavor is mixed"
    )


@pytest.mark.parametrize("image", ["", "shared"])
def test_a_shared_flavor_wins_over_a_shared_image(image: str) -> None:
    assert policy("shared", image) == "shared"


@pytest.mark.parametrize("image", ["mixed", "dedicated"])
def test_a_shared_flavor_refuses_an_image_that_wants_cpus_of_its_own(image: str) -> None:
    said = {"hw_cpu_policy": image}
    assert image in refused(NovaRule.CPU_POLICY_CONFLICT, {"hw:cpu_policy": "shared"}, said)


@pytest.mark.parametrize("image", ["", "shared", "dedicated"])
def test_the_image_decides_where_the_flavor_says_nothing(image: str) -> None:
    assert policy("", image) == (image or "shared")


def test_a_mixed_image_needs_the_mask_of_the_flavor() -> None:
    assert amount(MASK, {"hw_cpu_policy": "mixed"}).cpu_policy == "mixed"
    refused(NovaRule.MIXED_WITHOUT_MASK, {}, {"hw_cpu_policy": "mixed"})


@pytest.mark.parametrize("value", ["pinned", "Dedicated", " dedicated"])
def test_a_policy_that_there_is_not_is_refused(value: str) -> None:
    assert "hw:cpu_policy: got" in refused(NovaRule.INVALID_CPU_POLICY, {"hw:cpu_policy": value})
    assert "hw_cpu_policy: got" in refused(
        NovaRule.INVALID_CPU_POLICY, {}, {"hw_cpu_policy": value}
    )


def test_dedicated_vcpus_are_all_of_them_and_shared_ones_the_rest() -> None:
    assert amount(DEDICATED).cells[0].dedicated == (0, 1, 2, 3)
    assert amount(CELLS).cells[0].shared == (0, 1, 2, 3)
    (cell,) = amount({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "1,3"}).cells
    assert (cell.shared, cell.dedicated) == ((0, 2), (1, 3))


# --- hw:emulator_threads_policy ---


@pytest.mark.parametrize("value", ["share", "isolate"])
def test_the_emulator_may_share_or_be_isolated(value: str) -> None:
    assert amount(DEDICATED | {"hw:emulator_threads_policy": value}).emulator_policy == value


def test_an_isolated_emulator_takes_one_more_cpu() -> None:
    isolated = amount(DEDICATED | {"hw:emulator_threads_policy": "isolate"})
    assert isolated.placed_counts == {"PCPU": 5, "MEMORY_MB": 2048}


def test_an_emulator_policy_that_there_is_not_is_refused() -> None:
    refused(NovaRule.INVALID_EMULATOR_POLICY, DEDICATED | {"hw:emulator_threads_policy": "own"})


@pytest.mark.parametrize("specs", [{}, CELLS, {"hw:cpu_policy": "shared"}, {"resources:VCPU": "4"}])
def test_an_emulator_is_not_isolated_where_no_vcpu_is_dedicated(specs: dict[str, str]) -> None:
    refused(
        NovaRule.EMULATOR_POLICY_WITHOUT_PINNING, specs | {"hw:emulator_threads_policy": "isolate"}
    )
    asked(specs | {"hw:emulator_threads_policy": "share"})


def test_an_image_has_no_say_in_the_emulator() -> None:
    assert amount(DEDICATED, {"hw_emulator_threads_policy": "isolate"}).emulator_policy is None


# --- resources:PCPU, resources:VCPU ---


@pytest.mark.parametrize("key", ["resources:PCPU", "resources1:PCPU", "resources_A:PCPU"])
def test_pcpu_implies_dedicated_in_any_group(key: str) -> None:
    assert amount({key: "4"}).cells[0].dedicated == (0, 1, 2, 3)


def test_pcpu_of_several_groups_is_added_up() -> None:
    assert amount({"resources1:PCPU": "1", "resources2:PCPU": "3"}).cpu_policy == "dedicated"


@pytest.mark.parametrize("count", ["3", "5"])
def test_pcpu_is_as_much_as_the_vcpus(count: str) -> None:
    assert "expected 4: 4 of the flavor" in refused(
        NovaRule.PCPU_COUNT_MISMATCH, {"resources:PCPU": count}
    )


@pytest.mark.parametrize("count", ["4", "6"])
def test_pcpu_is_one_more_for_an_isolated_emulator(count: str) -> None:
    isolate = {"hw:emulator_threads_policy": "isolate"}
    assert "5: 4 of the flavor and 1 for the emulator" in refused(
        NovaRule.PCPU_COUNT_MISMATCH, {"resources:PCPU": count} | isolate
    )
    assert amount({"resources:PCPU": "5"} | isolate).placed_counts["PCPU"] == 5


@pytest.mark.parametrize("count", ["4", "2"])
def test_vcpu_implies_shared_however_much_it_is(count: str) -> None:
    assert asked({"resources:VCPU": count}).amount is None
    assert amount(CELLS | {"resources:VCPU": count}).placed_counts["VCPU"] == 4


def test_an_amount_of_0_implies_nothing() -> None:
    assert amount(DEDICATED | {"resources:VCPU": "0"}).cpu_policy == "dedicated"
    assert asked({"resources:PCPU": 0}).amount is None


def test_vcpu_and_pcpu_are_not_asked_for_together() -> None:
    assert "got 'VCPU=2, PCPU=4', expected one of them" in refused(
        NovaRule.RESOURCES_OF_BOTH_KINDS, {"resources:VCPU": "2", "resources1:PCPU": "4"}
    )


@pytest.mark.parametrize("key", ["resources:VCPU", "resources7:PCPU"])
def test_vcpu_or_pcpu_is_not_asked_for_beside_a_policy(key: str) -> None:
    refused(NovaRule.RESOURCES_WITH_POLICY, {key: "4", "hw:cpu_policy": "shared"})
    refused(NovaRule.RESOURCES_WITH_POLICY, {key: "4"}, {"hw_cpu_policy": "dedicated"})


@pytest.mark.parametrize("value", ["four", "-4", "4.0", " 4"])
def test_an_amount_that_is_no_number_is_refused_where_nova_ignores_it(value: str) -> None:
    assert "resources:PCPU: got" in refused(
        NovaRule.INVALID_RESOURCE_COUNT, {"resources:PCPU": value}
    )


@pytest.mark.parametrize("key", ["resources:PCPU_X", "resources.1:PCPU", "resources:CUSTOM_PCPU"])
def test_a_class_of_another_name_implies_nothing(key: str) -> None:
    assert asked({key: "4"}).amount is None
