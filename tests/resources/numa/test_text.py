"""The text forms of topologies: short to write, and read back as what they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.resources import Amounts, Inventories
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PlacedCell,
    numa,
)
from resource_objects.testing.numa_strategies import (
    NUMAQuestion,
    numa_amounts,
    numa_inventories,
    numa_questions,
)
from tests.resources.numa.hosts import KIB_2M, host, paged


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1:shared=2", numa(shared=2)),
        ("2:dedicated=16:memory=4096", numa(2, dedicated=16, memory_mb=4096)),
        ("1:memory=1024:page_size=1GB", numa(memory_mb=1024, page_size="1GB")),
        ("1:dedicated=2:thread_policy=isolate", numa(dedicated=2, thread_policy="isolate")),
        (
            "1:dedicated=2:emulator_policy=isolate",
            numa(dedicated=2, emulator_policy="isolate"),
        ),
        (
            "1:shared=1:physnets=blue+red:tunneled=yes:one_socket=yes",
            numa(shared=1, physnets=["red", "blue"], tunneled=True, one_socket=True),
        ),
        (
            "0!1-2@1024/3@64",
            numa(
                [
                    GuestCell(shared=[0], dedicated=[1, 2], memory_mb=1024),
                    GuestCell(shared=[3], memory_mb=64),
                ]
            ),
        ),
        (
            "1:dedicated=2:on=3;0>4+1>12",
            numa(dedicated=2).replace(placed=[PlacedCell(3, pins={0: 4, 1: 12})]),
        ),
        (
            "1:shared=1:memory=64:page_size=2MB:on=0;shared>0-1+8;pages>2048",
            numa(shared=1, memory_mb=64, page_size="2MB").replace(
                placed=[PlacedCell(0, shared=[0, 1, 8], page_size_kib=KIB_2M)]
            ),
        ),
    ],
)
def test_amounts_are_written_as_people_write_them(text: str, amount: NUMATopologyAmount) -> None:
    assert str(amount) == text
    assert NUMATopologyAmount.parse(text) == amount
    assert Amounts.parse(f"NUMA_TOPOLOGY={text}") == Amounts(NUMA_TOPOLOGY=amount)


@given(numa_amounts())
def test_every_amount_is_read_back(amount: NUMATopologyAmount) -> None:
    assert NUMATopologyAmount.parse(str(amount)) == amount
    assert eval(repr(amount), {"NUMATopologyAmount": NUMATopologyAmount}) == amount
    asked = Amounts({"NUMA_TOPOLOGY": amount, "VCPU": 2})
    assert Amounts.parse(str(asked)) == asked


@given(numa_questions())
def test_every_assigned_amount_is_read_back(question: NUMAQuestion) -> None:
    try:
        assigned = question.inventory.fit(question.amount, question.limit)
    except exceptions.CapacityException:
        return
    for amount in (assigned, -assigned):
        assert NUMATopologyAmount.parse(str(amount)) == amount


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), max_size=3))
def test_networks_may_have_any_names(names: list[str]) -> None:
    amount = numa(shared=1, physnets=set(names))
    assert NUMATopologyAmount.parse(str(amount)) == amount
    assert Amounts.parse(str(Amounts(NUMA_TOPOLOGY=amount)))["NUMA_TOPOLOGY"] == amount
    cell = HostCell(0, shared=[0], physnets=set(names))
    assert NUMA_TOPOLOGY.parse_inventory(NUMA_TOPOLOGY.format_inventory(host(cell))) == host(cell)


@given(numa_inventories())
def test_every_inventory_is_read_back(inventory: NUMATopologyInventory) -> None:
    text = NUMA_TOPOLOGY.format_inventory(inventory)
    assert NUMA_TOPOLOGY.parse_inventory(text) == inventory
    both = Inventories({"NUMA_TOPOLOGY": inventory, "VCPU": 4})
    assert Inventories.parse(str(both)) == both


def test_inventories_are_written_as_people_write_them() -> None:
    text = (
        "0;shared=8-9;dedicated=0-3;siblings=0+2|1+3;memory=1088;pages=4>16384>0+2048>512>2;"
        "socket=0;distances=0>10+1>21;physnets=red;tunneled=yes;used_shared=1;pinned=0+2;loose=1;"
        "used_memory=10;used_pages=2048>3/1;memory=64:cpu_ratio=1.5:memory_ratio=2:room=PCPU>1"
    )
    expected = host(
        paged(
            0,
            64,
            (KIB_2M, 512, 2),
            shared=[8, 9],
            dedicated=range(4),
            siblings=[(0, 2), (1, 3)],
            socket=0,
            distances={0: 10, 1: 21},
            physnets=["red"],
            tunneled=True,
        ),
        HostCell(1, memory_mb=64),
        usage=[
            CellUsage(0, shared=1, pinned=[0, 2], loose=1, memory_mb=10, pages={KIB_2M: 3}),
        ],
        cpu_ratio="1.5",
        memory_ratio=2,
        room={"PCPU": 1},
    )
    assert NUMA_TOPOLOGY.parse_inventory(text) == expected
    assert NUMA_TOPOLOGY.format_inventory(expected) == text


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "two",
        "2",
        "1:shared",
        "1:shared=x",
        "1:shared=1:shared=1",
        "1:threads=2",
        "2:shared=3",
        "1:shared=1:page_size=3",
        "1:shared=1:page_size=",
        "1:dedicated=1:thread_policy=most",
        "1:dedicated=1:emulator_policy=prefer",
        "1:shared=1:tunneled=maybe",
        "0-1@64:shared=2",
        "0-x@64",
        "0@",
        "@",
        "0@64/0@64",
        "1:dedicated=1:on=0",
        "1:dedicated=1:on=x;0>1",
        "1:dedicated=1:on=0;0>x",
        "1:dedicated=1:on=0;0",
        "1:dedicated=1:on=0;0>1/1;0>2",
        "1:shared=1:on=",
        "1:dedicated=1:emulator_cpu=3",
        "-1:shared=1",
        "--1:shared=1",
    ],
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        NUMATopologyAmount.parse(text)


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0;shared",
        "0;shared=x",
        "0;shared=0;shared=0",
        "0;cpus=0",
        "0;pages=4",
        "0;pages=4>1>1>1",
        "0;distances=0",
        "0;memory=x",
        "0/0",
        "0;dedicated=0/1;dedicated=0",
        "0:cpu_ratio=x",
        "0:room=PCPU",
        "0:ratio=1",
        "0;pinned=0",
    ],
)
def test_what_is_no_inventory_is_refused(text: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        NUMA_TOPOLOGY.parse_inventory(text)


pieces = st.lists(
    st.sampled_from(
        [*"0123456789", *":;=/@!+>-|,%", "shared", "on", "page_size", "dedicated=", "1:"]
    ),
    max_size=14,
).map("".join)


@pytest.mark.law(8)
@given(pieces | st.text())
def test_any_text_is_an_amount_or_a_clear_error(text: str) -> None:
    try:
        amount = NUMATopologyAmount.parse(text)
    except exceptions.InvalidInput:
        return
    assert NUMATopologyAmount.parse(str(amount)) == amount


@pytest.mark.law(8)
@given(pieces | st.text())
def test_any_text_is_an_inventory_or_a_clear_error(text: str) -> None:
    try:
        inventory = NUMA_TOPOLOGY.parse_inventory(text)
    except exceptions.InvalidInput:
        return
    written = NUMA_TOPOLOGY.format_inventory(inventory)
    assert NUMA_TOPOLOGY.parse_inventory(written) == inventory
