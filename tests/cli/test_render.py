"""Trees with bars: pure text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.cli import render
from resource_objects.cli.render import ASCII, UNICODE
from resource_objects.host.partitions import thousandths


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(2, 40))
def test_a_bar_is_as_wide_as_asked_and_never_lies_about_empty_and_full(used, capacity, width):
    drawn = render.bar(used, capacity, ASCII, width)
    assert len(drawn) == width
    assert drawn == "#" * drawn.count("#") + "." * drawn.count(".")
    assert (drawn.count("#") == 0) is (used == 0)
    assert (drawn.count(".") == 0) is (used >= capacity and used > 0)


@given(st.integers(1, 2000), st.integers(0, 2000))
def test_a_bar_never_shrinks_when_more_is_used(capacity, used):
    entry, more = (render.bar(item, capacity).count("█") for item in (used, used + 1))
    assert entry <= more


@pytest.mark.parametrize(
    ("encoding", "glyphs"),
    [
        ("utf-8", UNICODE),
        ("UTF8", UNICODE),
        ("cp437", UNICODE),
        ("ascii", ASCII),
        ("latin-1", ASCII),
        ("no-such-encoding", ASCII),
        (None, UNICODE),
    ],
)
def test_glyphs_are_those_the_encoding_can_say(encoding, glyphs):
    assert render.glyphs_for(encoding) is glyphs


@pytest.fixture
def ledger():
    """Two levels below a root, holders of many sizes, and one host shrunk below its use."""
    host = ro.Provider("host0", "VCPU=100,MEMORY_MB=1000")
    board = host.add("host0/board", "CUSTOM_FPGA=4")
    board.add("host0/board/slot", "PGPU=1")
    host.add("host0/net", "SRIOV_NET_VF=8")
    with ro.connect("memory://") as ledger:
        ledger.sync(host, ro.Provider("small", "VCPU=8"), ro.Provider("bare"))
        for number in range(5):
            ledger.claim(f"job-{number}", {"host0": {"VCPU": number + 1}})
        ledger.claim("fpga", {"host0/board": "CUSTOM_FPGA=1", "host0/board/slot": "PGPU=1"})
        ledger.claim("big", {"small": "VCPU=8"})
        ledger.sync(ro.Provider("small", "VCPU=4"))
        yield ledger


def test_the_usage_tree_aligns_its_columns_and_nests_what_is_below(ledger):
    assert render.usage_tree(ledger.usage(), ASCII).splitlines() == [
        "bare",
        "host0",
        "|- VCPU             ###.................  15 of 100  job-4 5, job-3 4, job-2 3, 2 more",
        "|- MEMORY_MB        ....................  0 of 1000",
        "|- host0/board",
        "|  |- CUSTOM_FPGA   #####...............     1 of 4  fpga 1",
        "|  `- host0/board/slot",
        "|     `- PGPU       ####################     1 of 1  fpga 1",
        "`- host0/net",
        "   `- SRIOV_NET_VF  ....................     0 of 8",
        "small",
        "`- VCPU             ####################     8 of 4  4 over; big 8",
    ]


def test_the_usage_tree_says_where_less_is_free_than_the_figures_tell():
    with ro.connect("memory://") as ledger:
        ledger.sync(thousandths(ro.Provider("gpu0", "PGPU=1")))
        ledger.claim("half", {"gpu0": "CUSTOM_PGPU_THOUSANDTHS=500"})
        assert render.usage_tree(ledger.usage(), ASCII).splitlines() == [
            "gpu0",
            "|- PGPU                     ....................       0 of 1  0 free",
            "`- CUSTOM_PGPU_THOUSANDTHS  ##########..........  500 of 1000  half 500",
        ]


def test_the_provider_tree_nests_what_is_below(ledger):
    assert render.provider_tree(ledger.trees()).splitlines() == [
        "bare",
        "host0  VCPU=100,MEMORY_MB=1000",
        "├─ host0/board  CUSTOM_FPGA=4",
        "│  └─ host0/board/slot  PGPU=1",
        "└─ host0/net  SRIOV_NET_VF=8",
        "small  VCPU=4",
    ]


def test_nothing_is_drawn_of_nothing():
    with ro.connect("memory://") as ledger:
        assert render.usage_tree(ledger.usage()) == ""
        assert render.provider_tree(ledger.trees()) == ""
