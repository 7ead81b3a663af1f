"""Columns: trees of them as objects, and one provider with what is below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects.providers.columns import trees
from resource_objects.testing.refusals import raises_code


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> Iterator[ro.Ledger]:
    """A host with a board with two cards, and another host."""
    host = ro.Provider("host0", "VCPU=4", traits=["CUSTOM_FAST"])
    board = host.add("host0/board", "CUSTOM_FPGA=1", traits=["CUSTOM_WIDE"])
    for number in range(2):
        board.add(f"host0/board/card{number}", "PGPU=1")
    url = "memory://" if request.param == "memory" else sqlite_url("lab.db")
    with ro.connect(url) as opened:
        opened.sync(host, ro.Provider("host1", "VCPU=4"))
        yield opened


def test_a_snapshot_at_a_provider_searches_what_is_below_it_with_inherited_traits(
    ledger: ro.Ledger,
) -> None:
    ledger.claim("job-1", {"host0/board/card0": "PGPU=1"})
    uuid = ledger.provider("host0/board").uuid
    assert uuid is not None
    for at in ("host0/board", uuid):
        asked = ro.Request("PGPU=1", required=["CUSTOM_FAST", "CUSTOM_WIDE"])
        [found] = ledger.snapshot(at).candidates(asked)
        assert [each.provider for each in found.allocations] == ["host0/board/card1"]
        assert not ledger.snapshot(at).candidates("VCPU=1")


def test_what_is_above_bounds_a_search_below_too(ledger: ro.Ledger) -> None:
    host = ro.Provider("host2", "VCPU=4")
    host.add(
        "host2/cell",
        "VCPU=4",
        shares=[ro.Share(resource_class="VCPU", of="host2", of_class="VCPU")],
    )
    ledger.sync(host)
    ledger.claim("job-1", {"host2": "VCPU=3"})
    assert not ledger.snapshot("host2/cell").candidates("VCPU=2")
    found = ledger.snapshot("host2/cell").candidates("VCPU=1")
    assert str(ledger.claim("job-2", found)) == "job-2 holds VCPU=1 of host2/cell"


def test_trees_of_columns_are_what_was_synced(ledger: ro.Ledger) -> None:
    (root,) = trees(ledger.backend.read("host0/board/card1"))
    assert root == ledger.provider("host0")
    assert [each.name for each in root.walk()][1:] == [
        "host0/board",
        "host0/board/card0",
        "host0/board/card1",
    ]


def test_a_provider_that_is_not_there_cannot_be_searched(ledger: ro.Ledger) -> None:
    with raises_code("ProviderNotFound", match="nowhere"):
        ledger.snapshot("nowhere")
