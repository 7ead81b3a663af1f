"""The front door, in memory and on a SQLite file: claims, retries, operations, closing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy, new_operation


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    with ro.connect(url) as opened:
        yield opened


def _hosts(ledger: ro.Ledger, count: int = 2) -> None:
    for number in range(count):
        ledger.sync(ro.Provider(f"host{number}", "VCPU=4,MEMORY_MB=1024"))


# --- claiming ---


def test_the_first_candidate_is_taken(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    claim = ledger.claim("job", ledger.snapshot().candidates(ro.Request("VCPU=3")))
    assert str(claim) == "job holds VCPU=3 of host0"
    assert ledger.held("job") == claim


def test_a_lost_race_takes_the_next_candidate(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    ledger.claim("faster", {"host0": "VCPU=3"})
    assert ledger.claim("job", found).by_provider() == {"host1": ro.Amounts("VCPU=3")}


def test_when_all_candidates_are_gone_it_searches_again(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    ledger.claim("faster", {"host0": "VCPU=3"})
    ledger.sync(ro.Provider("host9", "VCPU=4"))
    assert ledger.claim("job", found).by_provider() == {"host9": ro.Amounts("VCPU=3")}


def test_the_policy_bounds_how_often_it_searches_again(url: str) -> None:
    with ro.connect(url, retries=RetryPolicy(searches=0)) as ledger:
        _hosts(ledger, 1)
        found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
        ledger.claim("faster", {"host0": "VCPU=3"})
        ledger.sync(ro.Provider("host9", "VCPU=4"))
        with pytest.raises(ro.CapacityException, match="host0: VCPU asked 3, free 1 of 4"):
            ledger.claim("job", found)
        with pytest.raises(exceptions.ConsumerNotFound):
            ledger.held("job")


def test_a_search_that_found_nothing_cannot_be_claimed(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    found = ledger.snapshot().candidates(ro.Request("VCPU=5"))
    with pytest.raises(exceptions.NoCandidates, match="VCPU asked 5, free 4 of 4"):
        ledger.claim("job", found)


def test_one_candidate_may_be_claimed_by_itself(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    assert ledger.claim("job", found[1]).by_provider() == {"host1": ro.Amounts("VCPU=3")}


@pytest.mark.law(2)
def test_a_claim_over_several_providers_is_all_or_nothing(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    before = ledger.usage()
    with pytest.raises(ro.CapacityException, match="host1: MEMORY_MB asked 2048"):
        ledger.claim("job", {"host0": "VCPU=1", "host1": "MEMORY_MB=2048"})
    assert ledger.usage() == before


def test_who_holds_something_does_not_claim_again(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"})
    with pytest.raises(exceptions.ConsumerExists, match="job holds something already"):
        ledger.claim("job", {"host0": "VCPU=1"})


@pytest.mark.law(3)
def test_releasing_restores_the_ledger(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    before = ledger.usage()
    ledger.claim("job", {"host0": "VCPU=1,MEMORY_MB=24", "host1": "VCPU=4"})
    released = ledger.release("job")
    assert released.state == "released"
    assert ledger.usage() == before
    with pytest.raises(exceptions.ConsumerNotFound):
        ledger.release("job")


# --- adjusting ---


def test_an_adjustment_changes_what_one_consumer_holds(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    ledger.adjust("job", {"host0": "VCPU=3"})
    held = ledger.adjust("job", {"host0": {"VCPU": -2}, "host1": "MEMORY_MB=64"})
    assert held.by_provider() == {
        "host0": ro.Amounts("VCPU=1"),
        "host1": ro.Amounts("MEMORY_MB=64"),
    }


def test_nobody_gives_back_what_another_holds(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=3"})
    with pytest.raises(ro.CapacityException, match="gives back 1, only 0 used"):
        ledger.adjust("thief", {"host0": {"VCPU": -1}})
    assert ledger.usage()["host0", "VCPU"].used == 3


def test_a_consumer_that_holds_nothing_is_forgotten(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    ledger.adjust("job", {"host0": "VCPU=3"})
    ledger.adjust("job", {"host0": {"VCPU": -3}})
    with pytest.raises(exceptions.ConsumerNotFound):
        ledger.held("job")


# --- operations ---


def test_a_repeated_write_happens_once(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    operation = new_operation()
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    first = ledger.claim("job", found, operation=operation)
    assert ledger.claim("job", found, operation=operation) == first
    assert ledger.usage()["host0", "VCPU"].used == 3
    again = new_operation()
    assert ledger.release("job", operation=again) == ledger.release("job", operation=again)


def test_an_operation_id_is_of_one_operation(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    operation = new_operation()
    ledger.claim("job", {"host0": "VCPU=1"}, operation=operation)
    with pytest.raises(exceptions.OperationConflict, match=operation):
        ledger.claim("other", {"host0": "VCPU=1"}, operation=operation)
    with pytest.raises(exceptions.OperationConflict):
        ledger.release("job", operation=operation)
    assert ledger.usage()["host0", "VCPU"].used == 1


# --- declaring ---


def test_what_is_used_does_not_go(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=4")
    host.add("host0/gpu", "PGPU=1")
    ledger.sync(host)
    ledger.claim("job", {"host0/gpu": "PGPU=1"})
    with pytest.raises(exceptions.ProviderInUse, match="host0/gpu"):
        ledger.sync(ro.Provider("host0", "VCPU=4"))
    with pytest.raises(exceptions.ProviderInUse, match="host0/gpu"):
        ledger.remove("host0")
    with pytest.raises(exceptions.InventoryInUse, match="PGPU"):
        changed = ro.Provider("host0", "VCPU=4")
        changed.add("host0/gpu", {})
        ledger.sync(changed)
    assert ledger.usage()["host0/gpu", "PGPU"].used == 1


def test_a_shrink_below_use_is_allowed_and_visible(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=4"))
    ledger.claim("job", {"host0": "VCPU=3"})
    ledger.sync(ro.Provider("host0", "VCPU=2"))
    usage = ledger.usage()
    assert [(use.provider, use.free) for use in usage.over_capacity] == [("host0", -1)]
    assert usage.consumers == {"job": {"VCPU": 3}}
    with pytest.raises(ro.CapacityException, match="VCPU asked 1, free -1 of 2"):
        ledger.claim("more", {"host0": "VCPU=1"})


def test_removing_takes_all_below_along(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=4")
    host.add("host0/gpu", "PGPU=1")
    ledger.sync(host, ro.Provider("host1", "VCPU=4"))
    assert ledger.remove("host0").removed == 2
    assert [root.name for root in ledger.providers()] == ["host1"]
    with pytest.raises(exceptions.ProviderNotFound):
        ledger.remove("host0")


def test_a_name_of_another_tree_is_refused(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=4")
    host.add("shared", "PGPU=1")
    ledger.sync(host)
    other = ro.Provider("host1", "VCPU=4")
    other.add("shared", "PGPU=1")
    with pytest.raises(exceptions.ProviderExists, match="shared"):
        ledger.sync(other)
    with pytest.raises(exceptions.ProviderExists, match="in the tree of host0"):
        ledger.sync(ro.Provider("shared", "PGPU=1"))
    assert [root.name for root in ledger.providers()] == ["host0"]


def test_entities_carry_their_ledger(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    assert ledger.provider("host0").obj_context is ledger


@pytest.mark.law(4)
def test_threads_that_share_a_ledger_never_go_over(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=10"))
    taken: list[str] = []

    def take(worker: int) -> None:
        for number in range(8):
            name = f"job-{worker}-{number}"
            try:
                ledger.claim(name, {"host0": "VCPU=1"})
            except ro.CapacityException:
                continue
            taken.append(name)

    threads = [threading.Thread(target=take, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 10
    assert sorted(ledger.usage().consumers) == sorted(taken)


# --- opening, closing, bad input ---


def test_two_ledgers_never_mix(tmp_path: Path) -> None:
    urls = ["memory://", "memory://", f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"]
    ledgers = [ro.connect(url) for url in urls]
    for number, ledger in enumerate(ledgers):
        ledger.sync(ro.Provider(f"host{number}", "VCPU=1"))
    for number, ledger in enumerate(ledgers):
        assert [root.name for root in ledger.providers()] == [f"host{number}"]
        ledger.close()


def test_a_closed_ledger_says_so(ledger: ro.Ledger) -> None:
    ledger.close()
    ledger.close()
    with pytest.raises(exceptions.LedgerClosed):
        ledger.snapshot()
    with pytest.raises(exceptions.LedgerClosed):
        ledger.claim("job", {"host0": "VCPU=1"})


@pytest.mark.parametrize("bad", ["", "lab.db", "memory://x", None, 7, "sqlite://", "sqlite:///"])
def test_what_is_no_url_is_refused(bad: object) -> None:
    with pytest.raises(exceptions.InvalidURL):
        ro.connect(bad)  # type: ignore[arg-type]


def test_an_unknown_backend_names_the_known_ones() -> None:
    with pytest.raises(exceptions.BackendNotFound, match=r"oracle .*: installed: .*sqlite"):
        ro.connect("oracle://db/lab")


@pytest.mark.parametrize(
    "found",
    [None, 7, "VCPU=1", [], {}, {"host0": ""}, {"host0": "VCPU=0"}, {"host0": {"VCPU": -1}}],
)
def test_what_cannot_be_claimed_is_refused(ledger: ro.Ledger, found: object) -> None:
    _hosts(ledger, 1)
    before = ledger.usage()
    with pytest.raises(exceptions.InvalidInput):
        ledger.claim("job", found)  # type: ignore[arg-type]
    assert ledger.usage() == before


@pytest.mark.parametrize("name", ["", " x", "x\n", None, 7, "x" * 256])
def test_a_consumer_has_a_name(ledger: ro.Ledger, name: object) -> None:
    _hosts(ledger, 1)
    with pytest.raises(exceptions.InvalidName):
        ledger.claim(name, {"host0": "VCPU=1"})  # type: ignore[arg-type]
    with pytest.raises(exceptions.InvalidName):
        ledger.release(name)  # type: ignore[arg-type]


def test_an_unknown_provider_or_class_is_named(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    with pytest.raises(exceptions.ProviderNotFound, match="host9"):
        ledger.claim("job", {"host9": "VCPU=1"})
    with pytest.raises(exceptions.InventoryNotFound, match="host0: FPGA asked 1, there is none"):
        ledger.claim("job", {"host0": "FPGA=1"})
    with pytest.raises(exceptions.UnknownResourceClass, match="CPU"):
        ledger.claim("job", {"host0": "CPU=1"})
    with pytest.raises(exceptions.ProviderNotFound):
        ledger.usage("host9")
