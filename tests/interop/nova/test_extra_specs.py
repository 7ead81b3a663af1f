"""A flavor's resources and traits as a request: each rule, each refusal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import Request
from resource_objects.interop import nova
from resource_objects.interop.nova.flavors import flavor_request
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.requests import RequestGroup
from tests.interop.nova.refusals import breaks

A, B = "CUSTOM_A", "CUSTOM_B"


def requested(
    specs: dict[Any, Any] | None = None,
    image: dict[Any, Any] | None = None,
    vcpus: int = 4,
    memory_mb: int = 2048,
    **sizes: Any,
) -> Request:
    """Return the request of a flavor, by default of 4 vCPUs and 2048 MiB."""
    return flavor_request(vcpus, memory_mb, extra_specs=specs or {}, image=image or {}, **sizes)


def request(amounts: str, *groups: RequestGroup, **wide: Any) -> Request:
    return Request(amounts, groups=groups, compatibility="placement", **wide)


OWN = "VCPU=4,MEMORY_MB=2048"
GPU = RequestGroup("PGPU=1", suffix="1")


# --- the flavor's own amounts -------------------------------------------------------------------


def test_a_flavor_requests_its_vcpus_memory_and_disks() -> None:
    assert requested() == request(OWN)
    assert requested(root_gb=20, ephemeral_gb=5, swap_mb=1025) == request(f"{OWN},DISK_GB=27")


@pytest.mark.parametrize(("swap_mb", "gb"), [(0, 0), (1, 1), (1024, 1), (1025, 2)])
def test_swap_is_rounded_up(swap_mb: int, gb: int) -> None:
    assert requested(swap_mb=swap_mb) == request(f"{OWN},DISK_GB={gb}")


@pytest.mark.parametrize(
    ("specs", "amounts"),
    [
        ({"resources:VCPU": "2"}, "VCPU=2,MEMORY_MB=2048"),
        ({"resources:VCPU": "0"}, "MEMORY_MB=2048"),
        ({"resources:VCPU": 0, "resources:MEMORY_MB": 512}, "MEMORY_MB=512"),
        ({"resources:PCPU": "4"}, "PCPU=4,MEMORY_MB=2048"),
        ({"resources:PCPU": "0"}, "MEMORY_MB=2048"),
        ({"resources:PCPU": "2", "resources:VCPU": "2"}, "VCPU=2,PCPU=2,MEMORY_MB=2048"),
        ({"resources:CUSTOM_X": "3"}, f"{OWN},CUSTOM_X=3"),
        ({"resources:CUSTOM_X": "0"}, OWN),
        ({"resources_A:VCPU": "0"}, "MEMORY_MB=2048"),
        ({"resource:VCPU": "2"}, "VCPU=2,MEMORY_MB=2048"),
        ({"resource:VCPU": "0", "resource:CUSTOM_X": "1"}, "MEMORY_MB=2048,CUSTOM_X=1"),
        ({"resources:VCPU": "004"}, OWN),
    ],
    ids=str,
)
def test_an_extra_spec_is_instead_of_what_the_flavor_has(
    specs: dict[str, Any], amounts: str
) -> None:
    assert requested(specs) == request(amounts)


def test_what_a_named_group_requests_the_group_without_a_name_does_not() -> None:
    """``VCPU`` and ``PCPU`` count as one here, and an amount of 0 as a specified one."""
    for name in ("VCPU", "PCPU"):
        group = RequestGroup(f"{name}=4", suffix="_C")
        assert requested({f"resources_C:{name}": "4"}) == request("MEMORY_MB=2048", group)
    group = RequestGroup("DISK_GB=5", suffix="-d")
    assert requested({"resources-d:DISK_GB": "5"}, root_gb=9) == request(OWN, group)


# --- traits, groups, policy ---------------------------------------------------------------------


def test_traits_are_of_their_group() -> None:
    specs = {
        f"trait:{A}": "required",
        f"trait:{B}": "forbidden",
        "resources1:PGPU": "1",
        f"trait1:{A}": "forbidden",
        "trait1:HW_CPU_X86_AVX2": "required",
    }
    group = GPU.replace(forbidden=[A], required=["HW_CPU_X86_AVX2"])
    assert requested(specs) == request(OWN, group, required=[A], forbidden=[B])


def test_an_image_requires_traits_of_the_group_without_a_name() -> None:
    image = {f"trait:{A}": "required", "hw_cpu_policy": "dedicated", "trait_x": "1", 7: "x"}
    specs = {f"trait:{B}": "required", "resources1:PGPU": "1"}
    assert requested(specs, image) == request(OWN, GPU, required=[A, B])
    assert requested({f"trait:{A}": "required"}, {f"trait:{A}": "required"}) == request(
        OWN, required=[A]
    )


def test_groups_stand_in_the_order_of_the_extra_specs() -> None:
    specs = {"group_policy": "isolate", "resourcesb:PGPU": "1", "resourcesa:PGPU": "1"}
    named = [RequestGroup("PGPU=1", suffix=suffix) for suffix in "ba"]
    assert requested(specs) == request(OWN, *named, group_policy="isolate")


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_a_policy_may_be_specified_of_one_group_or_of_none(policy: str) -> None:
    assert requested({"group_policy": policy}) == request(OWN, group_policy=policy)
    assert requested({"group_policy": policy, "resources1:PGPU": "1"}) == request(
        OWN, GPU, group_policy=policy
    )


def test_a_group_of_nothing_but_zeros_is_none() -> None:
    assert requested({"resources1:PGPU": "1", "resources2:PGPU": "0"}) == request(OWN, GPU)


def test_all_may_be_requested_in_named_groups() -> None:
    specs = {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources1:PGPU": "1"}
    assert requested(specs) == request("", GPU)


def test_keys_of_others_are_left_alone() -> None:
    specs = {
        "hw:cpu_policy": "dedicated",
        "quota:cpu_shares": "5",
        "capabilities:resources": "x",
        "aggregate_instance_extra_specs:trait": "x",
        "resource_pool": "x",
        "traits": "x",
        "accel:device_profile": "gpu",
        "": "x",
        7: object(),
    }
    assert requested(specs) == request(OWN)


# --- what is refused ----------------------------------------------------------------------------

REFUSED: list[tuple[NovaRule, dict[Any, Any], str]] = [
    (
        NovaRule.INVALID_REQUEST_KEY,
        {"resources": "1"},
        "extra specs: got 'resources', expected",
    ),
    (NovaRule.INVALID_REQUEST_KEY, {"trait": "1"}, "extra specs: got 'trait', expected"),
    (
        NovaRule.INVALID_REQUEST_KEY,
        {"resource1:VCPU": "1"},
        "extra specs: got 'resource1:VCPU'",
    ),
    (NovaRule.INVALID_REQUEST_KEY, {"resources$:VCPU": "1"}, "got 'resources$:VCPU', expected"),
    (NovaRule.INVALID_REQUEST_KEY, {f"trait{'x' * 65}:{A}": "required"}, "1 to 64 of A-Z, a-z"),
    (NovaRule.UNKNOWN_FLAVOR_RESOURCE, {"resources:CPU": "1"}, "resources:CPU: got 'CPU', exp"),
    (
        NovaRule.UNKNOWN_FLAVOR_RESOURCE,
        {"resource:vcpu": "1"},
        "resource:vcpu: got 'vcpu', exp",
    ),
    (
        NovaRule.UNKNOWN_FLAVOR_RESOURCE,
        {"resources:": "1"},
        "resources:: got '', expected 1 to",
    ),
    (
        NovaRule.UNKNOWN_FLAVOR_RESOURCE,
        {"resources:VCPU:x": "1"},
        "got 'VCPU:x', expected 1 to",
    ),
    (
        NovaRule.RESOURCE_NOT_COUNTED,
        {"resources:NUMA_TOPOLOGY": "1"},
        "a class that is counted",
    ),
    *(
        (
            NovaRule.INVALID_RESOURCE_AMOUNT,
            {"resources1:VCPU": value},
            f"resources1:VCPU: got {text!r}, expected a whole number from 0 to {2**63 - 1}",
        )
        for value, text in [
            ("many", "many"),
            ("-1", "-1"),
            (-1, "-1"),
            ("1.5", "1.5"),
            ("+2", "+2"),
            ("1_0", "1_0"),
            (" 2", " 2"),
            ("2\n", "2\n"),
            ("٣", "٣"),
            ("", ""),
            (None, ""),
            (True, "true"),
            (str(2**63), str(2**63)),
        ]
    ),
    (
        NovaRule.INVALID_RESOURCE_AMOUNT,
        {"resources:VCPU": str(2**63 - 1), "resources1:VCPU": "1"},
        f"resources1:VCPU: got 1, expected at most {2**63 - 1} over all groups",
    ),
    (NovaRule.NOT_WORDS, {"resources:VCPU": 1.0}, "resources:VCPU: got 1.0, expected text"),
    (
        NovaRule.RESOURCE_SAID_TWICE,
        {"resource:VCPU": "2", "resources:VCPU": "0"},
        "resources:VCPU: got '0', expected resource:VCPU or resources:VCPU, not both",
    ),
    (NovaRule.UNKNOWN_FLAVOR_TRAIT, {"trait:HW_X": "required"}, "trait:HW_X: got 'HW_X', exp"),
    (NovaRule.UNKNOWN_FLAVOR_TRAIT, {"trait1:": "required"}, "trait1:: got '', expected 1 to"),
    (
        NovaRule.INVALID_TRAIT_VALUE,
        {f"trait:{A}": "preferred"},
        "expected required or forbidden",
    ),
    (NovaRule.INVALID_TRAIT_VALUE, {f"trait:{A}": ""}, f"trait:{A}: got '', expected required"),
    (
        NovaRule.INVALID_GROUP_POLICY,
        {"group_policy": "apart"},
        "group_policy: got 'apart', exp",
    ),
    (
        NovaRule.INVALID_GROUP_POLICY,
        {"group_policy": None},
        "group_policy: got '', expected none",
    ),
    (
        NovaRule.GROUP_POLICY_MISSING,
        {"resources1:PGPU": "1", "resources2:PGPU": "1"},
        "group_policy: got 'nothing', expected none or isolate, for the groups 1, 2",
    ),
    (
        NovaRule.GROUP_WITHOUT_RESOURCES,
        {f"trait1:{A}": "required"},
        f"trait1: got ['{A}'], expected resources1:CLASS above 0",
    ),
    (
        NovaRule.GROUP_WITHOUT_RESOURCES,
        {f"traits:{A}": "required"},
        f"traits: got ['{A}'], expected resourcess:CLASS above 0",
    ),
    (
        NovaRule.GROUP_WITHOUT_RESOURCES,
        {
            "resources:VCPU": "0",
            "resources:MEMORY_MB": "0",
            f"trait:{A}": "required",
            "resources1:PGPU": "1",
        },
        f"trait: got ['{A}'], expected resources:CLASS above 0",
    ),
    (
        NovaRule.NOTHING_ASKED,
        {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources1:PGPU": "0"},
        "extra specs: got 'all suppressed', expected an amount of a resource",
    ),
]


@pytest.mark.parametrize(
    ("rule", "specs", "message"), REFUSED, ids=[str(specs)[:60] for _, specs, _ in REFUSED]
)
def test_extra_specs_are_refused(rule: NovaRule, specs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidNovaInput) as caught:
        requested(specs)
    assert caught.value.rule is rule
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "specs", "image", "message"),
    [
        (
            NovaRule.FLAVOR_TRAIT_CONFLICT,
            {f"trait:{A}": "forbidden"},
            {f"trait:{A}": "required"},
            f"trait:{A} of the image: got 'required', expected none: the flavor forbids it",
        ),
        (
            NovaRule.INVALID_TRAIT_VALUE,
            {},
            {f"trait:{A}": "forbidden"},
            f"trait:{A} of the image: got 'forbidden', expected required",
        ),
        (
            NovaRule.UNKNOWN_FLAVOR_TRAIT,
            {},
            {"trait:HW_X": "required"},
            "trait:HW_X of the image: got 'HW_X', expected a standard or CUSTOM_ trait",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_image_is_refused(
    rule: NovaRule, specs: dict[str, Any], image: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidNovaInput) as caught:
        requested(specs, image)
    assert caught.value.rule is rule
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "sizes",
    [
        {"vcpus": 0},
        {"vcpus": True},
        {"vcpus": 2**20},
        {"memory_mb": 0},
        {"memory_mb": "1"},
        {"root_gb": -1},
        {"ephemeral_gb": 1.5},
        {"swap_mb": 2**31},
        {"root_gb": None},
    ],
    ids=str,
)
def test_sizes_that_no_flavor_has_are_refused(sizes: dict[str, Any]) -> None:
    with breaks(NovaRule.INVALID_FLAVOR_SIZE, match=next(iter(sizes))):
        requested(**sizes)


@pytest.mark.parametrize("selected", ["extra_specs", "image"])
@pytest.mark.parametrize("value", [None, "resources:VCPU=1", ["x"], 7], ids=repr)
def test_what_is_no_mapping_is_refused(selected: str, value: object) -> None:
    with breaks(NovaRule.NOT_WORDS, match="a mapping of keys to text"):
        flavor_request(4, 2048, **{selected: value})  # type: ignore[arg-type]


_KEYS = st.builds(
    "{}{}:{}".format,
    st.sampled_from(["resources", "resource", "trait", "hw"]),
    st.sampled_from(["", "1", "_A", "$"]),
    st.sampled_from(["VCPU", "MEMORY_MB", "PGPU", A, "nope", ""]),
)
_VALUES = st.sampled_from(["0", "1", "required", "forbidden", "", "many", 1, None, 1.5])


@given(
    st.dictionaries(_KEYS | st.just("group_policy") | st.text(), _VALUES | st.text(), max_size=6)
)
def test_any_extra_specs_are_read_or_refused_with_an_error_of_words(specs: dict[str, Any]) -> None:
    try:
        result = requested(specs)
    except InvalidNovaInput as error:
        assert str(error)
    else:
        assert result.resources


# --- with a topology -----------------------------------------------------------------------------


def located(specs: dict[str, str], vcpus: int = 4) -> Request:
    topology = nova.flavor_topology(vcpus, 2048, extra_specs=specs)
    return flavor_request(vcpus, 2048, root_gb=5, extra_specs=specs, topology=topology)


def test_a_topology_says_cpus_and_memory_in_place_of_the_flavor() -> None:
    specs = {"hw:cpu_policy": "dedicated", "resources1:PGPU": "1", f"trait:{A}": "required"}
    result = located(specs)
    topology = nova.flavor_topology(4, 2048, extra_specs=specs)
    assert result.unnamed.resources == topology.resources + Request("DISK_GB=5").resources
    assert (result.named, result.unnamed.required) == ((GPU,), {A})
    counts = {kind.name: str(amount) for kind, amount in result.resources.items()}
    counts.pop("NUMA_TOPOLOGY")
    assert counts == {"PCPU": "4", "MEMORY_MB": "2048", "DISK_GB": "5", "PGPU": "1"}


def test_a_flavor_without_a_topology_is_the_same_with_what_is_reported() -> None:
    for specs in ({}, {"resources:VCPU": "4", "hw:cpu_policy": ""}, {"resources:CUSTOM_X": "1"}):
        assert located(specs) == flavor_request(4, 2048, root_gb=5, extra_specs=specs)


def test_cpus_said_in_both_words_are_requested_once() -> None:
    assert located({"resources:PCPU": "4"}) == located({"hw:cpu_policy": "dedicated"})


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"resources1:PCPU": "4"}, "resources1:PCPU: got 4, expected 4 without a group"),
        (
            {"resources:VCPU": "2", "hw:numa_nodes": "2"},
            "resources:VCPU: got 2, expected 4 without",
        ),
        (
            {"resources:MEMORY_MB": "0", "hw:numa_nodes": "2"},
            "resources:MEMORY_MB: got 0, expected 2",
        ),
    ],
    ids=str,
)
def test_what_the_topology_says_otherwise_is_refused(specs: dict[str, str], message: str) -> None:
    with breaks(NovaRule.TOPOLOGY_DISAGREES) as caught:
        located(specs)
    assert message in str(caught.value)


# --- the errors ---------------------------------------------------------------------------------
