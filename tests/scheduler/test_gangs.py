"""Gangs placed on a ledger: alternatives, races, and what is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.requests import Gang, Member
from resource_objects.scheduler import Scheduler
from resource_objects.scheduler.gangs import levels_of, place_gang


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> str:
    return "memory://" if request.param == "memory" else sqlite_url("gangs.db")


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    """Two racks of two hosts, four CPUs each."""
    with ro.connect(url) as opened:
        for rack in ("r0", "r1"):
            opened.names.aggregates.ensure(rack, level="rack")
            for number in range(2):
                opened.sync(ro.Provider(f"{rack}-{number}", "VCPU=4", aggregates=[rack]))
        opened.names.aggregates.ensure("everything")
        yield opened


def workers(count: int, cpus: int = 2, **places: str) -> Gang:
    return Gang([Member("worker", f"VCPU={cpus}", count)], **places)


def test_levels_are_read_from_the_ledger(ledger: ro.Ledger) -> None:
    assert levels_of(ledger) == {"rack": ["r0", "r1"]}


def test_a_gang_is_claimed_in_one_place(ledger: ro.Ledger) -> None:
    placed = place_gang(ledger, workers(4, together="rack"), "job", user="ann")
    assert list(placed.claims) == [f"worker-{n}" for n in range(4)]
    held = {one.name: one.user for one in ledger.consumers()}
    assert held == {f"job/worker-{n}": "ann" for n in range(4)}
    hosts = {one.provider for claim in placed.claims.values() for one in claim.allocations}
    assert hosts == {"r0-0", "r0-1"}
    with pytest.raises(exceptions.ConsumerExists):
        place_gang(ledger, workers(2), "job")


def test_the_first_alternative_that_fits_is_taken(ledger: ro.Ledger) -> None:
    wanted = [workers(5, together="rack"), workers(5), workers(1)]
    placed = place_gang(ledger, wanted, "job")
    assert (placed.alternative, len(placed.claims)) == (1, 5)


def test_a_dry_run_claims_nothing(ledger: ro.Ledger) -> None:
    placed = place_gang(ledger, workers(2))
    assert not placed.claims
    assert set(placed.fit.candidates) == {"worker-0", "worker-1"}
    assert not list(ledger.consumers())


def test_what_each_alternative_lacks_is_told(ledger: ro.Ledger) -> None:
    with pytest.raises(exceptions.NoCandidates) as refused:
        place_gang(ledger, [workers(9), workers(5, together="rack")], "job")
    assert str(refused.value).splitlines()[1:] == [
        "worker asked 9, fits 8 (VCPU asked 18, free 16)",
        "rack r0: worker asked 5, fits 4 (VCPU asked 10, free 8)",
    ]
    with pytest.raises(exceptions.InvalidRequest, match="at least one gang"):
        place_gang(ledger, [], "job")
    with pytest.raises(exceptions.InvalidRequest, match="'row'"):
        place_gang(ledger, workers(1, together="row"), "job")


def test_who_was_faster_leads_to_another_place(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_all, seen = ledger.claim_all, []

    def faster(*args: object, **said: object) -> object:
        if not seen:
            seen.append(1)
            ledger.claim("faster", {"r0-0": "VCPU=3"})
        return claim_all(*args, **said)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "claim_all", faster)
    placed = place_gang(ledger, workers(4, together="rack"), "job")
    hosts = {one.provider for claim in placed.claims.values() for one in claim.allocations}
    assert hosts == {"r1-0", "r1-1"}


def test_gangs_at_once_are_whole_or_not_there(ledger: ro.Ledger) -> None:
    """Four threads want half of the fleet each: two get it, nobody gets a part."""
    refused: list[str] = []

    def place(name: str) -> None:
        try:
            place_gang(ledger, workers(4, together="rack"), name)
        except exceptions.CapacityException:
            refused.append(name)

    threads = [threading.Thread(target=place, args=(f"job-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 2
    assert len(list(ledger.consumers())) == 8
    assert all(one.free == 0 for one in ledger.usage())


def test_a_scheduler_places_a_gang_by_its_filters(ledger: ro.Ledger) -> None:
    scheduler = Scheduler(ledger, order="spread")
    placed = scheduler.place_gang(
        workers(2, together="rack"), "job", ignored=["r0-0", "r0-1"], project="p"
    )
    hosts = {one.provider for claim in placed.claims.values() for one in claim.allocations}
    assert hosts <= {"r1-0", "r1-1"}
    assert {one.project for one in ledger.consumers()} == {"p"}
    with pytest.raises(exceptions.NoCandidates):
        scheduler.place_gang(workers(5), "other", only=["r0-0", "r0-1"])
    with pytest.raises(exceptions.InvalidRequest, match="at least one gang"):
        scheduler.place_gang([])
