"""Columns: trees of them as objects, and one provider with what is below it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.columns import subtree, trees


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ro.Ledger]:
    """A host with a board with two cards, and another host."""
    host = ro.Provider("host0", "VCPU=4", traits=["CUSTOM_FAST"])
    board = host.add("host0/board", "CUSTOM_FPGA=1", traits=["CUSTOM_WIDE"])
    for number in range(2):
        board.add(f"host0/board/card{number}", "PGPU=1")
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/lab.db"
    with ro.connect(url) as opened:
        opened.sync(host, ro.Provider("host1", "VCPU=4"))
        yield opened


def test_what_is_below_a_provider_is_a_tree_of_its_own_with_inherited_traits(
    ledger: ro.Ledger,
) -> None:
    ledger.claim("job-1", {"host0/board/card0": "PGPU=1"})
    (root,) = trees(subtree(ledger.backend.read("host0/board"), "host0/board"))
    assert [each.name for each in root.walk()] == [
        "host0/board",
        "host0/board/card0",
        "host0/board/card1",
    ]
    assert root.traits == {"CUSTOM_FAST", "CUSTOM_WIDE"}
    assert root.find("host0/board/card0").inventories["PGPU"].used == 1


def test_a_provider_is_found_by_its_uuid_too(ledger: ro.Ledger) -> None:
    uuid = ledger.provider("host0/board").uuid
    assert uuid is not None
    (root,) = trees(subtree(ledger.backend.read(uuid), uuid))
    assert root.name == "host0/board"


def test_a_root_is_its_whole_tree_and_no_other(ledger: ro.Ledger) -> None:
    (root,) = trees(subtree(ledger.backend.read(), "host0"))
    assert root == ledger.provider("host0")


def test_a_provider_that_is_not_there_has_nothing_below(ledger: ro.Ledger) -> None:
    with pytest.raises(exceptions.ProviderNotFound, match="nowhere"):
        subtree(ledger.backend.read(), "nowhere")
