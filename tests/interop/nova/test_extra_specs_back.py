"""A flavor that asks for what a request asks: there and back, and what no flavor can say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import Request
from resource_objects.interop.nova import (
    FlavorSpecs,
    flavor_request,
    request_errors,
    request_flavor,
)
from resource_objects.requests import RequestGroup
from resource_objects.testing.requests import flavors

A, B = "CUSTOM_A", "CUSTOM_B"


@given(flavors())
def test_a_flavor_made_of_a_request_asks_for_it(request: Request) -> None:
    flavor = request_flavor(request)
    assert flavor.request == request
    assert flavor.vcpus >= 1
    assert flavor.memory_mb >= 1


@given(flavors())
def test_a_request_with_our_semantics_comes_back_with_placements(request: Request) -> None:
    assert request_flavor(request.replace(compatibility=None)).request == request


@given(
    st.integers(1, 64),
    st.integers(1, 4096),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9999),
)
def test_a_flavor_without_extra_specs_comes_back_without(
    vcpus: int, memory_mb: int, root: int, ephemeral: int, swap: int
) -> None:
    asked = flavor_request(vcpus, memory_mb, root_gb=root, ephemeral_gb=ephemeral, swap_mb=swap)
    disk = root + ephemeral + -(-swap // 1024)
    assert request_flavor(asked) == FlavorSpecs(vcpus, memory_mb, disk)


@pytest.mark.parametrize(
    ("request_", "flavor"),
    [
        (Request("VCPU=4,MEMORY_MB=512,DISK_GB=9"), FlavorSpecs(4, 512, 9)),
        (Request("MEMORY_MB=512"), FlavorSpecs(1, 512, extra_specs={"resources:VCPU": "0"})),
        (
            Request("PGPU=2"),
            FlavorSpecs(
                1,
                1,
                extra_specs={
                    "resources:PGPU": "2", "resources:VCPU": "0", "resources:MEMORY_MB": "0",
                },
            ),
        ),
        (
            Request("PCPU=4,MEMORY_MB=1"),
            FlavorSpecs(4, 1, extra_specs={"resources:PCPU": "4"}),
        ),
        (
            Request("VCPU=2,PCPU=4,MEMORY_MB=1"),
            FlavorSpecs(6, 1, extra_specs={"resources:PCPU": "4", "resources:VCPU": "2"}),
        ),
        (
            Request("VCPU=2,MEMORY_MB=1").with_group("_A", "MEMORY_MB=7", forbidden=[B]),
            FlavorSpecs(
                2,
                8,
                extra_specs={
                    "resources:MEMORY_MB": "1",
                    "resources_A:MEMORY_MB": "7",
                    f"trait_A:{B}": "forbidden",
                },
            ),
        ),
        (
            Request(f"VCPU={2**40},MEMORY_MB={2**40},DISK_GB={2**40}", required=[A]),
            FlavorSpecs(
                65536,
                2**31 - 1,
                2**31 - 1,
                extra_specs={
                    "resources:VCPU": str(2**40),
                    "resources:MEMORY_MB": str(2**40),
                    "resources:DISK_GB": str(2**40),
                    f"trait:{A}": "required",
                },
            ),
        ),
        (
            Request("VCPU=1,MEMORY_MB=1", group_policy="isolate"),
            FlavorSpecs(1, 1, extra_specs={"group_policy": "isolate"}),
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_flavor_has_what_is_asked_in_all(request_: Request, flavor: FlavorSpecs) -> None:
    assert request_flavor(request_) == flavor
    assert flavor.request == request_.replace(compatibility="placement")


LINKED: dict[str, Any] = {"groups": [RequestGroup("PGPU=1", suffix="a")], "same_subtree": [["a"]]}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("VCPU=4,NUMA_TOPOLOGY=2:shared=4"), "NUMA_TOPOLOGY: got '2:shared=4', expected a"),
        (Request("VCPU=1", any_of=[[A, B]]), "any_of: got "),
        (Request("VCPU=1", member_of=["rack1"]), "member_of: got "),
        (Request("VCPU=1", not_member_of=["rack1"]), "not_member_of: got "),
        (Request("VCPU=1", in_tree="host0"), "in_tree: got 'host0', expected nothing: a flavor"),
        (Request("VCPU=1").with_group("_A", "PGPU=1", in_tree="host0"), "in_tree_A: got 'host0'"),
        (Request("VCPU=1", traits_of={"VCPU": [A]}), "traits_of: got "),
        (Request("VCPU=1", **LINKED), "same_subtree: got "),
        (Request("VCPU=1", root_required=[A]), "root_required: got "),
        (Request("VCPU=1", root_forbidden=[A]), "root_forbidden: got "),
        (
            Request("VCPU=1", groups=[RequestGroup("PGPU=1", suffix=s) for s in "ab"]),
            "group_policy: got None, expected none or isolate",
        ),
        ("VCPU=1", "request: got 'VCPU=1', expected a Request"),
    ],
    ids=str,
)
def test_what_no_flavor_can_say_is_refused(request_: Request, message: str) -> None:
    with pytest.raises(request_errors.NotOfFlavor) as caught:
        request_flavor(request_)
    assert message in str(caught.value)
