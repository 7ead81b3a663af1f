"""Counts and a topology of one request (D1), through the loop and together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.reasons import Rule
from resource_objects.resources.numa import NUMATopologyLimit
from resource_objects.testing.refusals import raises_code

BASE = ro.PagePool(size_kib=4, total=1048576)


def cells(*, smt: bool = False, huge: bool = False) -> list[ro.HostCell]:
    """Two host cells: two shared and four dedicated CPUs, 4 GiB of ordinary memory."""
    result: list[ro.HostCell] = []
    for n in range(2):
        first = 6 * n
        pages = [BASE, ro.PagePool(size_kib=2048, total=2048)] if huge else [BASE]
        result.append(
            ro.HostCell(
                n,
                shared=(first, first + 1),
                dedicated=range(first + 2, first + 6),
                siblings=[(first + 2, first + 3), (first + 4, first + 5)] if smt else [],
                memory_mb=8192 if huge else 4096,
                pages=pages,
            )
        )
    return result


def host(**kwargs: bool) -> ro.Inventories:
    topology = ro.NUMATopologyInventory(cells(**kwargs))
    memory = ro.IntegerInventory(16384, reserved=8192) if kwargs.get("huge") else 8192
    figures = {"VCPU": 4, "PCPU": 8, "MEMORY_MB": memory, "DISK_GB": 100}
    return ro.Inventories({**figures, "NUMA_TOPOLOGY": topology})


def used(inventories: ro.Inventories) -> dict[str, int]:
    return {
        name: stored.used
        for name, stored in inventories.by_name()
        if isinstance(stored, ro.IntegerInventory) and stored.used
    }


def through_the_loop(request: ro.Request, inventories: ro.Inventories) -> None:
    """The loop of the specification, verbatim."""
    for resource, amount in request.resources.items():
        if inventories[resource].can_provide(amount):
            inventories[resource].consume(amount)


STATED = "VCPU=2,PCPU=4,MEMORY_MB=2048,NUMA_TOPOLOGY=2:shared=2:dedicated=4:memory=2048"
IMPLIED = "NUMA_TOPOLOGY=2:shared=2:dedicated=4:memory=2048"


@pytest.mark.parametrize("text", [STATED, IMPLIED], ids=["stated", "implied"])
def test_four_cpus_and_a_topology_of_them_are_four_through_the_loop(text: str) -> None:
    inventories = host()
    through_the_loop(ro.Request(text), inventories)
    assert used(inventories) == {"VCPU": 2, "PCPU": 4, "MEMORY_MB": 2048}
    (first, second) = inventories["NUMA_TOPOLOGY"].usage
    assert (first.shared, first.pinned, first.memory_mb) == (1, (2, 3), 1024)
    assert (second.shared, second.pinned, second.memory_mb) == (1, (8, 9), 1024)


@pytest.mark.parametrize("text", [STATED, IMPLIED], ids=["stated", "implied"])
def test_all_at_once_is_the_same_as_one_after_the_other(text: str) -> None:
    item, other = host(), host()
    through_the_loop(ro.Request(text), item)
    assigned = other.consume(text)
    assert item == other
    assert dict(assigned["NUMA_TOPOLOGY"].placed_counts) == {
        "VCPU": 2,
        "PCPU": 4,
        "MEMORY_MB": 2048,
    }
    other.consume(-assigned)
    assert other == host()


def test_a_count_that_disagrees_is_an_error_of_who_asks() -> None:
    with raises_code("InvalidRequest", match=r"^PCPU: got IntegerAmount\(8\), expected 4"):
        ro.Request("PCPU=8,NUMA_TOPOLOGY=1:dedicated=4")
    inventories = host()
    with raises_code("InvalidAmount", match="expected 4, as NUMA_TOPOLOGY specifies"):
        inventories.consume("PCPU=8,NUMA_TOPOLOGY=1:dedicated=4")
    assert inventories == host()


def test_other_counts_are_taken_as_ever() -> None:
    inventories = host()
    inventories.consume("DISK_GB=20,NUMA_TOPOLOGY=1:shared=1")
    assert used(inventories) == {"VCPU": 1, "DISK_GB": 20}


def test_huge_pages_are_not_taken_of_memory() -> None:
    inventories = host(huge=True)
    request = "MEMORY_MB=4096,NUMA_TOPOLOGY=1:shared=1:memory=4096:page_size=2MB"
    through_the_loop(ro.Request(request), inventories)
    assert used(inventories) == {"VCPU": 1}
    assert inventories["NUMA_TOPOLOGY"].usage[0].pages == ((2048, 2048),)
    joint = host(huge=True)
    joint.consume(request)
    assert joint == inventories


def test_memory_set_aside_in_huge_pages_never_serves_who_did_not_request_it() -> None:
    inventories = host(huge=True)
    assert inventories.can_provide("MEMORY_MB=8192")
    assert not inventories.can_provide("MEMORY_MB=8193")
    assert not inventories.can_provide("NUMA_TOPOLOGY=1:shared=1:memory=4097")


def test_whatever_page_size_any_finds_counts_where_it_is() -> None:
    inventories = host(huge=True)
    request = "NUMA_TOPOLOGY=1:memory=4096:page_size=any"
    for _ in range(2):
        inventories.consume(request)
    assert used(inventories) == {}
    inventories.consume(request)
    assert used(inventories) == {"MEMORY_MB": 4096}


def test_a_thread_left_empty_is_taken_of_the_host_too() -> None:
    inventories = host(smt=True)
    assigned = inventories.consume("PCPU=2,NUMA_TOPOLOGY=1:dedicated=2:thread_policy=isolate")
    assert used(inventories) == {"PCPU": 4}
    inventories.consume(-assigned)
    assert inventories == host(smt=True)


def test_who_has_no_topology_bounds_who_has_one() -> None:
    inventories = host()
    inventories.consume("PCPU=6")
    assert inventories.can_provide("NUMA_TOPOLOGY=1:dedicated=2")
    assert not inventories.can_provide("NUMA_TOPOLOGY=1:dedicated=3")
    (reason,) = inventories.refusals("NUMA_TOPOLOGY=1:dedicated=3")
    assert (reason.rule, reason.resource, reason.requested) == (Rule.CAPACITY, "PCPU", 3)
    inventories.consume("NUMA_TOPOLOGY=1:dedicated=2")
    assert not inventories.can_provide("PCPU=1")


def test_a_topology_where_there_is_none_is_refused_as_absent() -> None:
    (reason,) = ro.Inventories("VCPU=4").refusals("NUMA_TOPOLOGY=1:shared=1")
    assert (reason.rule, reason.resource) == (Rule.NO_INVENTORY, "NUMA_TOPOLOGY")


def test_a_count_that_is_only_implied_is_not_missed() -> None:
    single = ro.Inventories({"NUMA_TOPOLOGY": ro.NUMATopologyInventory(cells())})
    assert single.can_provide("NUMA_TOPOLOGY=1:shared=1")
    (reason,) = single.refusals("VCPU=1,NUMA_TOPOLOGY=1:shared=1")
    assert (reason.rule, reason.resource) == (Rule.NO_INVENTORY, "VCPU")


def test_a_limit_on_the_counts_binds_a_topology_too() -> None:
    inventories = host()
    assert inventories.can_provide("NUMA_TOPOLOGY=1:shared=2", {"VCPU": 2})
    assert not inventories.can_provide("NUMA_TOPOLOGY=1:shared=2", {"VCPU": 1})
    per_cell = NUMATopologyLimit(vcpus={0: 1, 1: 1})
    assert not inventories.can_provide("NUMA_TOPOLOGY=1:shared=2", {"NUMA_TOPOLOGY": per_cell})
    with raises_code("WrongAmountKind"):
        ro.Limits({"NUMA_TOPOLOGY": ro.numa(shared=1)})


counts = st.fixed_dictionaries(
    {
        "cells": st.integers(1, 2),
        "shared": st.integers(0, 2),
        "dedicated": st.integers(0, 4),
        "memory_mb": st.sampled_from([0, 512, 4096]),
    }
)


@given(counts, st.integers(0, 8), st.booleans())
def test_taking_and_releasing_restores_everything(
    item: Mapping[str, int], floating: int, smt: bool
) -> None:
    if not (item["shared"] or item["dedicated"] or item["memory_mb"]):
        return
    number = item["cells"]
    request = ro.numa(number, **{name: number * n for name, n in item.items() if name != "cells"})
    inventories, before = host(smt=smt), host(smt=smt)
    for stored in (inventories, before):
        stored.consume(ro.Amounts(PCPU=floating))
    if inventories.can_provide({"NUMA_TOPOLOGY": request}):
        inventories.consume(-inventories.consume({"NUMA_TOPOLOGY": request}))
    else:
        assert inventories.refusals({"NUMA_TOPOLOGY": request})
    assert inventories == before


def test_a_topology_goes_to_the_cell_that_needs_less_and_limits_on_counts_bind_it() -> None:
    smt = ro.HostCell(0, dedicated=range(4), siblings=[(0, 1), (2, 3)])
    inventories = ro.Inventories(
        {
            "PCPU": 6,
            "NUMA_TOPOLOGY": ro.NUMATopologyInventory([smt, ro.HostCell(1, dedicated=[4, 5])]),
        }
    )
    request = "NUMA_TOPOLOGY=1:dedicated=2:thread_policy=isolate"
    assert inventories.fit(request)["NUMA_TOPOLOGY"].memory_nodes == "1"
    assert inventories.fit(request, {"PCPU": 2})["NUMA_TOPOLOGY"].memory_nodes == "1"
    assert not inventories.can_provide(request, {"PCPU": 1})


def test_rules_of_one_claim_on_the_host_do_not_bind_what_is_taken_of_a_cell() -> None:
    inventories = ro.Inventories(
        {
            "PCPU": ro.IntegerInventory(6, max_unit=2),
            "NUMA_TOPOLOGY": ro.NUMATopologyInventory([ro.HostCell(0, dedicated=range(6))]),
        }
    )
    assert not inventories.can_provide("PCPU=3")
    assert inventories.can_provide("PCPU=3,NUMA_TOPOLOGY=1:dedicated=3")


def test_the_loop_counts_threads_left_empty_too() -> None:
    """The count is the requested one; the topology draws the idle CPUs itself."""
    inventories = host(smt=True)
    through_the_loop(ro.Request("NUMA_TOPOLOGY=1:dedicated=2:thread_policy=isolate"), inventories)
    assert used(inventories) == {"PCPU": 4}
    assert len(inventories["NUMA_TOPOLOGY"].usage[0].pinned) == 4


@pytest.mark.parametrize(
    "text", ["vcpus=", "vcpus=0>16+1>16", "memory=0>4096", "vcpus=3>0:memory=3>1"]
)
def test_limits_of_a_topology_have_a_text_form(text: str) -> None:
    limits = ro.Limits({"NUMA_TOPOLOGY": ro.resource("NUMA_TOPOLOGY").parse_limit(text)})
    assert ro.Limits.parse(str(limits)) == limits
    assert eval(repr(limits), {"Limits": ro.Limits}) == limits


def test_two_topologies_do_not_add_up() -> None:
    amounts = ro.Amounts("NUMA_TOPOLOGY=1:shared=1")
    assert amounts + ro.Amounts("VCPU=1") == ro.Amounts("VCPU=1,NUMA_TOPOLOGY=1:shared=1")
    with raises_code("WrongAmountKind", match="expected amounts that add up"):
        amounts + amounts
