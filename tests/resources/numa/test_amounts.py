"""A topology amount: its text, its counts, and its place."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.resources import Amounts
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    CPUSet,
    GuestCell,
    NUMATopologyAmount,
    NUMATopologyLimit,
    NUMATopologyResource,
    PlacedCell,
    numa,
)
from resource_objects.resources.records import AmountRecord
from tests.resources.numa.hosts import KIB_1G, KIB_2M
from tests.support.numa_strategies import NUMAQuestion, numa_amounts, numa_questions

# --- plain words ----------------------------------------------------------------------------------


def test_counts_are_split_evenly_over_guest_cells() -> None:
    assert numa(cells=2, shared=2, dedicated=4, memory_mb=1024).cells == (
        GuestCell(shared=[0], dedicated=[1, 2], memory_mb=512),
        GuestCell(shared=[3], dedicated=[4, 5], memory_mb=512),
    )


def test_guest_cells_may_be_specified_one_by_one() -> None:
    cells = [GuestCell(dedicated=[1, 2], memory_mb=64), GuestCell(dedicated=[0])]
    assert numa(cells, thread_policy="isolate") == NUMATopologyAmount(
        cells, thread_policy="isolate"
    )
    assert numa(iter(cells)).cells == tuple(cells)


def test_memory_alone_is_an_amount_too() -> None:
    assert numa(3, memory_mb=192).cells == (GuestCell(memory_mb=64),) * 3


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ("small", "small"),
        ("LARGE", "large"),
        ("2MB", "2048"),
        ("2 MiB", "2048"),
        ("2048", "2048"),
        (2048, "2048"),
        ("1G", "1048576"),
        ("1gb", "1048576"),
        ("", ""),
    ],
    ids=repr,
)
def test_page_sizes_are_specified_in_many_ways_and_stored_in_one(
    values: str | int, stored: str
) -> None:
    assert numa(memory_mb=1024, page_size=values).page_size == stored
    assert numa(memory_mb=1024, page_size=values) == numa(memory_mb=1024, page_size=stored)


def test_the_resource_makes_the_same_amounts() -> None:
    assert NUMA_TOPOLOGY.make_amount(2, dedicated=4) == numa(2, dedicated=4)
    assert NUMATopologyResource.make_amount(shared=1) == numa(shared=1)
    assert Amounts(NUMA_TOPOLOGY=numa(shared=1))["NUMA_TOPOLOGY"] == numa(shared=1)


def test_what_is_requested_is_stored_in_one_order() -> None:
    assert GuestCell(shared=[2, 0, 1]) == GuestCell(shared=range(3))
    assert hash(GuestCell(shared=[2, 0, 1])) == hash(GuestCell(shared=range(3)))
    assert numa(shared=1, physnets=["b", "a"]) == numa(shared=1, physnets=("a", "b"))


# --- its counts (D1) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "policy", "located"),
    [
        (numa(shared=4, memory_mb=64), "shared", {"VCPU": 4, "MEMORY_MB": 64}),
        (numa(dedicated=4), "dedicated", {"PCPU": 4}),
        (numa(shared=1, dedicated=3), "mixed", {"VCPU": 1, "PCPU": 3}),
        (numa(dedicated=4, emulator_policy="isolate"), "dedicated", {"PCPU": 5}),
        (numa(dedicated=4, emulator_policy="share"), "dedicated", {"PCPU": 4}),
        (numa(memory_mb=64, page_size="2MB"), "shared", {"MEMORY_MB": 64}),
    ],
    ids=str,
)
def test_what_is_located_is_counts(
    requested: NUMATopologyAmount, policy: str, located: dict[str, int]
) -> None:
    assert (requested.cpu_policy, requested.placed_counts) == (policy, located)
    assert requested.vcpus == sum(located.get(name, 0) for name in ("VCPU", "PCPU")) - (
        requested.emulator_policy == "isolate"
    )


PINNED = NUMATopologyAmount(
    [GuestCell(dedicated=[0, 1], memory_mb=1024), GuestCell(shared=[2], memory_mb=64)],
    page_size="any",
    thread_policy="isolate",
    emulator_policy="isolate",
    placed=[
        PlacedCell(1, pins={0: 4, 1: 5}, idle=[12, 13], page_size_kib=KIB_2M),
        PlacedCell(0, shared=[0, 1, 2]),
    ],
    emulator_cpu=6,
)


def test_what_the_host_gives_is_known_when_it_is_assigned() -> None:
    """Huge pages are not counted by the host, siblings left empty are."""
    assert PINNED.placed_counts == {"VCPU": 1, "PCPU": 3, "MEMORY_MB": 1088}
    assert PINNED.host_usage == {"VCPU": 1, "PCPU": 5, "MEMORY_MB": 64}
    assert PINNED.unassigned().host_usage == {"VCPU": 1, "PCPU": 3}, "memory: who knows"
    assert numa(memory_mb=64).host_usage == numa(memory_mb=64, page_size="small").host_usage


@pytest.mark.law(1)
@given(numa_questions())
def test_what_is_located_is_the_same_before_and_after(question: NUMAQuestion) -> None:
    try:
        assigned = question.inventory.fit(question.amount, question.limit)
    except exceptions.CapacityException:
        return
    assert assigned.placed_counts == question.amount.placed_counts
    available = question.amount.host_usage
    assert all(assigned.host_usage[name] >= count for name, count in available.items())
    assert assigned.to_records("NUMA_TOPOLOGY") == question.amount.to_records("NUMA_TOPOLOGY")


def test_records_are_plain_counts() -> None:
    assert PINNED.to_records("NUMA_TOPOLOGY") == (
        AmountRecord("VCPU", 1),
        AmountRecord("PCPU", 3),
        AmountRecord("MEMORY_MB", 1088),
    )
    assert (-PINNED).to_records("NUMA_TOPOLOGY")[0] == AmountRecord("VCPU", -1)


# --- being an amount ------------------------------------------------------------------------------


def test_what_is_released_is_the_negative_of_what_is_assigned() -> None:
    assert (-PINNED).is_negative and not PINNED.is_negative
    back = -PINNED
    assert -back == PINNED != back
    assert hash(-back) == hash(PINNED)
    assert not PINNED.is_zero and PINNED.is_assigned and not PINNED.unassigned().is_assigned
    assert (-PINNED).unassigned() == PINNED.unassigned()


@pytest.mark.law(10)
@given(numa_amounts())
def test_amounts_return_from_the_wire_and_from_pickle(amount: NUMATopologyAmount) -> None:
    for again in (
        NUMATopologyAmount.obj_from_primitive(amount.obj_to_primitive()),
        pickle.loads(pickle.dumps(amount)),
        copy.deepcopy(amount),
    ):
        assert again == amount and hash(again) == hash(amount)


def test_assigned_amounts_return_from_the_wire() -> None:
    for amount in (PINNED, -PINNED):
        assert NUMATopologyAmount.obj_from_primitive(amount.obj_to_primitive()) == amount


def test_a_limit_binds_what_it_names() -> None:
    limit = NUMATopologyLimit(vcpus={3: 4, 0: 2}, memory_mb={0: 64})
    assert limit.of_cell(0) == (2, 64)
    assert limit.of_cell(3) == (4, None)
    assert limit.of_cell(1) == (None, None)
    assert not limit.is_zero and not limit.is_negative
    assert limit == NUMATopologyLimit(vcpus=[(0, 2), (3, 4)], memory_mb={0: 64})


# --- where it is, in the forms that others take ---------------------------------------------------


def test_it_says_where_it_is_as_others_want_it() -> None:
    assert PINNED.cpuset == "0-2,4-5"
    assert PINNED.memory_nodes == "0-1"
    assert PINNED.pages == {1: {KIB_2M: 512}}
    assert PINNED.taskset() == ("taskset", "--cpu-list", "0-2,4-5")
    assert PINNED.numactl() == ("numactl", "--physcpubind=0-2,4-5", "--membind=0-1")
    assert PINNED.cgroup() == {
        "cpuset.cpus": "0-2,4-5",
        "cpuset.mems": "0-1",
        "hugetlb.2MB.max": str(1024 * 1024 * 1024),
    }


def test_neither_idle_cpus_nor_the_emulators_are_those_of_its_vcpus() -> None:
    assert {6, 12, 13}.isdisjoint(CPUSet.parse(PINNED.cpuset))


def test_pages_of_one_size_in_several_cells_are_one_file() -> None:
    amount = NUMATopologyAmount(
        [GuestCell(memory_mb=1024)] * 3,
        page_size="large",
        placed=[
            PlacedCell(0, page_size_kib=KIB_1G),
            PlacedCell(1, page_size_kib=KIB_1G),
            PlacedCell(2, page_size_kib=KIB_2M),
        ],
    )
    assert amount.pages == {0: {KIB_1G: 1}, 1: {KIB_1G: 1}, 2: {KIB_2M: 512}}
    assert amount.cgroup() == {
        "cpuset.mems": "0-2",
        "hugetlb.2MB.max": str(2**30),
        "hugetlb.1GB.max": str(2**31),
    }
    assert amount.numactl() == ("numactl", "--membind=0-2")


@pytest.mark.skipif(sys.platform != "linux", reason="taskset is a command of Linux")
def test_taskset_takes_what_it_is_given() -> None:
    mine = NUMATopologyAmount([GuestCell(dedicated=[0])], placed=[PlacedCell(0, pins={0: 0})])
    try:
        ran = subprocess.run(
            [*mine.taskset(), sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("there is no taskset on this machine")
    assert ran.stdout.strip() == "{0}" or "failed to set" in ran.stderr


# --- lists of CPUs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", (0,)),
        ("0-3", (0, 1, 2, 3)),
        ("8,0-1", (0, 1, 8)),
        ("^2,0-3", (0, 1, 3)),
        ("0-7,^2-5,^7", (0, 1, 6)),
        ("1,1,0-1", (0, 1)),
        (" 0 , 2,,", (0, 2)),
    ],
)
def test_lists_of_cpus_are_read(text: str, cpus: tuple[int, ...]) -> None:
    assert CPUSet.parse(text) == cpus


@given(numa_amounts())
def test_lists_of_cpus_that_are_written_are_read_back(amount: NUMATopologyAmount) -> None:
    for cell in amount.cells:
        if cell.vcpus:
            assert CPUSet.parse(str(CPUSet(cell.vcpus))) == cell.vcpus


@given(st.sets(st.integers(0, 200)), st.sets(st.integers(0, 200)))
def test_a_set_of_cpus_is_a_set_a_mask_and_a_text(several: set[int], more: set[int]) -> None:
    cpus, other_items = CPUSet(several), CPUSet(more)
    assert cpus == tuple(sorted(several)) and CPUSet.from_mask(cpus.mask) == cpus
    assert CPUSet.parse(str(cpus), allow_empty=True) == cpus
    assert (cpus | other_items, cpus & other_items) == (
        CPUSet(several | more),
        CPUSet(several & more),
    )
    assert cpus - other_items == CPUSet(several - more)
    assert CPUSet.parse_mask(f"{cpus.mask:x}"[-8:]) == CPUSet(cpu for cpu in several if cpu < 32)


@pytest.mark.parametrize(
    "text", ["", "0x1", "g", "1,1,", "00000001,0000000", "1" + ",00000000" * 2048]
)
def test_what_is_no_mask_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match="CPU mask"):
        CPUSet.parse_mask(text)
