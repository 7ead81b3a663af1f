"""The text forms of topologies: short to write, and read back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.resources import Amounts, Inventories
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    GuestCell,
    NUMATopologyAmount,
    PlacedCell,
    numa,
)
from resource_objects.testing.refusals import raises_code
from tests.resources.numa.hosts import host, plain
from tests.support.numa_strategies import numa_amounts


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
    amounts = Amounts({"NUMA_TOPOLOGY": amount, "VCPU": 2})
    assert Amounts.parse(str(amounts)) == amounts


def test_where_an_assigned_amount_is_is_for_people() -> None:
    """For people, and no text form: an assigned amount is passed as an object."""
    request = numa(2, dedicated=2, emulator_policy="isolate")
    placed = [PlacedCell(3, pins={0: 4}), PlacedCell(1, pins={1: 12}, idle=[13])]
    amount = request.replace(placed=placed, emulator_cpu=5)
    text = "2:dedicated=2:emulator_policy=isolate:on=3+1:cpus=4-5+12-13"
    assert (str(amount), str(-amount)) == (text, f"-{text}")
    assert repr(amount) == f"<NUMATopologyAmount {text}>"
    with raises_code("InvalidText"):
        NUMATopologyAmount.parse(text)


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), max_size=3))
def test_networks_may_have_any_names(names: list[str]) -> None:
    amount = numa(shared=1, physnets=set(names))
    assert NUMATopologyAmount.parse(str(amount)) == amount
    assert Amounts.parse(str(Amounts(NUMA_TOPOLOGY=amount)))["NUMA_TOPOLOGY"] == amount


def test_an_inventory_has_no_text_form() -> None:
    inventory = host(plain(0, [0, 1]), plain(1, [2]))
    assert NUMA_TOPOLOGY.format_inventory(inventory) == "cell 0+1: 3 dedicated CPUs 2048 MiB"
    with raises_code("InvalidText", match="HostCell"):
        Inventories.parse(str(Inventories({"NUMA_TOPOLOGY": inventory})))
    with pytest.raises(exceptions.InvalidInventory):
        NUMA_TOPOLOGY.format_inventory(Inventories("VCPU=1")["VCPU"])


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
        "1:dedicated=1:on=0;0>1",
        "1:dedicated=1:emulator_cpu=3",
        "-1:shared=1",
    ],
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        NUMATopologyAmount.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:dedicated=1:thread_policy=most", "one of prefer, require, isolate"),
        ("1:dedicated=1:emulator_policy=prefer", "one of share, isolate"),
        ("1:dedicated=1:emulator_policy=", "one of share, isolate"),
    ],
)
def test_a_policy_that_is_none_is_an_error_of_the_text(text: str, expected: str) -> None:
    with raises_code("InvalidText", match=f"policy: got .*, expected {expected}"):
        NUMATopologyAmount.parse(text)


pieces = st.lists(
    st.sampled_from([*"0123456789", *":;=/@!+>-|,%", "shared", "page_size", "dedicated=", "1:"]),
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
