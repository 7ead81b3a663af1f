"""Search and claim at one provider: what is below it, with the traits of what is above it."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects.cli import consumer
from resource_objects.testing.refusals import raises_code


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, sqlite_url):
    """A host with a board with two cards, and another host."""
    host = ro.Provider("host0", "VCPU=4", traits=["CUSTOM_FAST"])
    board = host.add("host0/board", "CUSTOM_FPGA=1", traits=["CUSTOM_WIDE"])
    for number in range(2):
        board.add(f"host0/board/card{number}", "PGPU=1")
    url = "memory://" if request.param == "memory" else sqlite_url("lab.db")
    with ro.connect(url) as ledger:
        ledger.sync(host, ro.Provider("host1", "VCPU=4"))
        yield ledger


def test_a_provider_that_is_not_there_is_named(ledger):
    with raises_code("ProviderNotFound", match="nowhere is not a provider"):
        consumer.search_at(ledger, ro.Request("VCPU=1"), "nowhere")


def test_nobody_found_is_the_search_that_says_why(ledger):
    found = consumer.claim_at(ledger, "job-1", ro.Request("PGPU=3"), "host0/board")
    assert not found
    assert str(found.explain()) == "host0/board: PGPU requested 3, free 2 of 2"
