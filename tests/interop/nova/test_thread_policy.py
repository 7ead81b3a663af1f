"""How dedicated vCPUs use the threads of a core, by a policy or by the trait."""

from __future__ import annotations

import pytest

from resource_objects.interop.nova.rules import NovaRule
from tests.interop.nova.said import DEDICATED, TRAIT, amount, asked, refused

POLICIES = ["prefer", "require", "isolate"]


def threads(flavor: str, image: str) -> str | None:
    specs = DEDICATED | ({"hw:cpu_thread_policy": flavor} if flavor else {})
    return amount(specs, {"hw_cpu_thread_policy": image} if image else {}).thread_policy


# --- hw:cpu_thread_policy, hw_cpu_thread_policy ---


@pytest.mark.parametrize("policy", ["", *POLICIES])
def test_the_flavor_says_it(policy: str) -> None:
    assert threads(policy, "") == (policy or None)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_image_says_it_where_the_flavor_says_nothing(policy: str) -> None:
    assert threads("", policy) == policy


@pytest.mark.parametrize("image", POLICIES)
def test_under_prefer_an_image_may_say_anything_and_has_no_say(image: str) -> None:
    assert threads("prefer", image) == "prefer"


@pytest.mark.parametrize("policy", ["require", "isolate"])
def test_an_image_may_repeat_what_the_flavor_says(policy: str) -> None:
    assert threads(policy, policy) == policy


@pytest.mark.parametrize(
    ("flavor", "image"),
    [("require", "isolate"), ("require", "prefer"), ("isolate", "require"), ("isolate", "prefer")],
)
def test_an_image_may_not_say_another_policy(flavor: str, image: str) -> None:
    assert f"expected none or {flavor}" in refused(
        NovaRule.THREAD_POLICY_CONFLICT,
        DEDICATED | {"hw:cpu_thread_policy": flavor},
        {"hw_cpu_thread_policy": image},
    )


def test_a_policy_that_there_is_not_is_refused() -> None:
    refused(NovaRule.INVALID_THREAD_POLICY, DEDICATED | {"hw:cpu_thread_policy": "avoid"})
    refused(NovaRule.INVALID_THREAD_POLICY, DEDICATED, {"hw_cpu_thread_policy": "avoid"})


@pytest.mark.parametrize("specs", [{}, {"hw:cpu_policy": "shared"}, {"resources:VCPU": "4"}])
@pytest.mark.parametrize("policy", POLICIES)
def test_shared_vcpus_have_no_thread_policy(specs: dict[str, str], policy: str) -> None:
    refused(NovaRule.THREAD_POLICY_WITHOUT_PINNING, specs | {"hw:cpu_thread_policy": policy})


@pytest.mark.parametrize("policy", POLICIES)
def test_the_dedicated_vcpus_of_a_mix_have_one(policy: str) -> None:
    specs = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"}
    assert amount(specs | {"hw:cpu_thread_policy": policy}).thread_policy == policy


# --- trait:HW_CPU_HYPERTHREADING ---


@pytest.mark.parametrize(
    "key", [TRAIT, "trait1:HW_CPU_HYPERTHREADING", "trait_A:HW_CPU_HYPERTHREADING"]
)
def test_the_trait_implies_a_policy_in_any_group(key: str) -> None:
    assert amount(DEDICATED | {key: "forbidden"}).thread_policy == "isolate"
    assert amount(DEDICATED | {key: "required"}).thread_policy == "require"


def test_an_image_can_require_it() -> None:
    assert amount(DEDICATED, {TRAIT: "required"}).thread_policy == "require"


@pytest.mark.parametrize("specs", [{TRAIT: "required"}, {TRAIT: "forbidden"}])
def test_it_is_not_said_beside_a_policy(specs: dict[str, str]) -> None:
    policy = {"hw:cpu_thread_policy": "prefer"}
    refused(NovaRule.HYPERTHREADING_TRAIT_WITH_POLICY, DEDICATED | specs | policy)
    refused(
        NovaRule.HYPERTHREADING_TRAIT_WITH_POLICY,
        DEDICATED | specs,
        {"hw_cpu_thread_policy": "prefer"},
    )
    refused(NovaRule.HYPERTHREADING_TRAIT_WITH_POLICY, DEDICATED | policy, {TRAIT: "required"})


def test_it_needs_dedicated_vcpus_as_the_policy_does() -> None:
    refused(NovaRule.THREAD_POLICY_WITHOUT_PINNING, {TRAIT: "required"})
    refused(NovaRule.THREAD_POLICY_WITHOUT_PINNING, {}, {TRAIT: "required"})


@pytest.mark.parametrize(
    ("specs", "image"),
    [
        ({TRAIT: "required", "trait1:HW_CPU_HYPERTHREADING": "forbidden"}, {}),
        ({"trait1:HW_CPU_HYPERTHREADING": "forbidden", TRAIT: "required"}, {}),
        ({TRAIT: "forbidden"}, {TRAIT: "required"}),
    ],
)
def test_it_is_not_required_and_forbidden(specs: dict[str, str], image: dict[str, str]) -> None:
    refused(NovaRule.HYPERTHREADING_TRAIT_CONFLICT, DEDICATED | specs, image)


def test_it_may_be_said_twice() -> None:
    assert amount(DEDICATED | {TRAIT: "required"}, {TRAIT: "required"}).thread_policy == "require"


def test_other_values_are_refused_where_nova_ignores_them() -> None:
    refused(NovaRule.INVALID_HYPERTHREADING_TRAIT, DEDICATED | {TRAIT: "preferred"})
    refused(NovaRule.INVALID_HYPERTHREADING_TRAIT, DEDICATED, {TRAIT: "forbidden"})


def test_other_traits_imply_nothing() -> None:
    longer = {f"{TRAIT}_X": "required", "trait:HW_CPU_X86_AVX2": "required"}
    assert amount(DEDICATED | longer).thread_policy is None
    assert asked(longer).amount is None
