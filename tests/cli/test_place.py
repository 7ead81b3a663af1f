"""Search and claim at one provider: what is below it, with the traits of what is above it."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.cli import place
from resource_objects.providers.columns import trees


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    """A host with a board with two cards, and another host."""
    host = ro.Provider("host0", "VCPU=4", traits=["CUSTOM_FAST"])
    board = host.add("host0/board", "CUSTOM_FPGA=1", traits=["CUSTOM_WIDE"])
    for number in range(2):
        board.add(f"host0/board/card{number}", "PGPU=1")
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/lab.db"
    with ro.connect(url) as ledger:
        ledger.sync(host, ro.Provider("host1", "VCPU=4"))
        yield ledger


def test_what_is_below_a_provider_is_a_tree_of_its_own_with_inherited_traits(ledger):
    ledger.claim("job-1", {"host0/board/card0": "PGPU=1"})
    (root,) = trees(place.below(ledger.backend.read("host0/board"), "host0/board"))
    assert [each.name for each in root.walk()] == [
        "host0/board",
        "host0/board/card0",
        "host0/board/card1",
    ]
    assert root.traits == {"CUSTOM_FAST", "CUSTOM_WIDE"}
    assert root.find("host0/board/card0").inventories["PGPU"].used == 1


def test_a_provider_is_found_by_its_uuid_too(ledger):
    uuid = ledger.provider("host0/board").uuid
    (root,) = trees(place.below(ledger.backend.read(uuid), uuid))
    assert root.name == "host0/board"


def test_a_root_is_its_whole_tree_and_no_other(ledger):
    (root,) = trees(place.below(ledger.backend.read(), "host0"))
    assert root == ledger.provider("host0")


def test_a_provider_that_is_not_there_is_named(ledger):
    with pytest.raises(exceptions.ProviderNotFound, match="nowhere is not a provider"):
        place.search(ledger, ro.Request("VCPU=1"), "nowhere")


def test_a_lost_race_is_searched_again_at_the_same_provider(ledger, monkeypatch):
    request, real, raced = ro.Request("PGPU=1"), ledger.claim, []

    def claim(consumer, found):
        if consumer == "late" and not raced:
            raced.append(str(found))
            real("early", found)
        return real(consumer, found)

    monkeypatch.setattr(ledger, "claim", claim)
    claimed = place.claim(ledger, "late", request, "host0/board")
    assert raced == ["PGPU=1 of host0/board/card0"]
    assert str(claimed) == "late holds PGPU=1 of host0/board/card1"


def test_a_race_that_is_always_lost_ends_with_the_refusal(ledger, monkeypatch):
    asked = []

    def claim(consumer, found):
        asked.append(consumer)
        raise exceptions.CapacityException([])

    monkeypatch.setattr(ledger, "claim", claim)
    with pytest.raises(exceptions.CapacityException):
        place.claim(ledger, "late", ro.Request("PGPU=1"), "host0")
    assert len(asked) == place.TRIES


def test_nobody_found_is_the_search_that_says_why(ledger):
    found = place.claim(ledger, "job-1", ro.Request("PGPU=3"), "host0/board")
    assert not found
    assert str(found.explain()) == "host0/board: PGPU asked 3, free 2 of 2"
