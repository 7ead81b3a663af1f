"""Expired claims in the way of a write are released in the same transaction, if it says so."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent import futures
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import new_operation
from resource_objects.providers import Allocation, Provider
from resource_objects.providers.orders import Write
from resource_objects.testing.conformance.suite import host_of
from tests.ledger.numa_hosts import small

HOUR = datetime.timedelta(hours=1)
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def two_hosts(ledger: ro.Ledger) -> None:
    ledger.sync(*(Provider(f"host{number}", "VCPU=4") for number in range(2)))


@pytest.fixture
def ledger(everywhere_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    """A ledger with host0 and host1."""
    return everywhere_with(two_hosts)


def full(ledger: ro.Ledger, *expired: int) -> None:
    """Let somebody hold all of each host; the claims on some have expired."""
    for number in range(2):
        at = LONG_AGO if number in expired else None
        ledger.claim(f"old-{number}", {f"host{number}": "VCPU=4"}, expires_at=at)


def found(ledger: ro.Ledger, request: str = "VCPU=2", **how: Any) -> ro.Candidates:
    return ledger.snapshot().candidates(request, **how)


def consumers(ledger: ro.Ledger) -> list[str]:
    return [one.name for one in ledger.consumers()]


def before_a_write(
    ledger: ro.Ledger,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[], object],
    when: int,
    kind: str = "claim",
) -> list[Write]:
    """Let something happen before one of the writes of a kind; return those."""
    commit, seen = ledger.backend.commit, []

    def late(write: Write) -> Any:
        if write.kind == kind:
            seen.append(write)
            if len(seen) == when:
                happens()
        return commit(write)

    monkeypatch.setattr(ledger.backend, "commit", late)
    return seen


def test_an_expired_claim_in_the_way_is_released_with_the_claim(ledger: ro.Ledger) -> None:
    full(ledger, 0)
    with pytest.raises(exceptions.CapacityException, match="old-0 holds 4"):
        ledger.claim("job", {"host0": "VCPU=2"})
    cursor = ledger.feed.cursor()
    claim = ledger.claim("job", {"host0": "VCPU=2"}, release_expired=True)
    assert str(claim) == "job holds VCPU=2 of host0"
    assert claim == ledger.held("job")
    assert consumers(ledger) == ["job", "old-1"]
    told = ledger.feed.changes(cursor).changes
    assert len({one.operation for one in told}) == 1
    assert {use.consumer for one in told for use in one.uses} == {"job", "old-0"}


def test_a_repeated_claim_that_released_returns_the_claim(ledger: ro.Ledger) -> None:
    full(ledger, 0)
    operation = new_operation()

    def claim() -> ro.Claim:
        return ledger.claim("job", {"host0": "VCPU=2"}, release_expired=True, operation=operation)

    first = claim()
    ledger.claim("old-0", {"host0": "VCPU=2"}, expires_at=LONG_AGO)
    assert claim() == first
    assert consumers(ledger) == ["job", "old-0", "old-1"]


def test_a_claim_that_has_not_expired_is_never_released(ledger: ro.Ledger) -> None:
    ledger.claim("old-0", {"host0": "VCPU=4"}, expires_in=HOUR)
    ledger.claim("other", {"host1": "VCPU=4"}, expires_at=LONG_AGO)
    with pytest.raises(exceptions.CapacityException, match="old-0 holds 4"):
        ledger.claim("job", {"host0": "VCPU=2"}, release_expired=True)
    assert consumers(ledger) == ["old-0", "other"]


def test_nobody_is_released_where_there_is_room(ledger: ro.Ledger) -> None:
    ledger.claim("old-0", {"host0": "VCPU=4"}, expires_at=LONG_AGO)
    searched = found(ledger)
    claim = ledger.claim("job", searched, release_expired=True)
    assert str(claim) == "job holds VCPU=2 of host1"
    assert consumers(ledger) == ["job", "old-0"]


@pytest.mark.parametrize("at", ["host0", None])
def test_a_search_that_found_nobody_finds_who_is_expired(ledger: ro.Ledger, at: str | None) -> None:
    full(ledger, 0)
    searched = ledger.snapshot(at).candidates("VCPU=2")
    assert not searched
    claim = ledger.claim("job", searched, release_expired=True)
    assert str(claim) == "job holds VCPU=2 of host0"
    assert consumers(ledger) == ["job", "old-1"]


def test_candidates_that_are_lost_are_searched_again_as_if_the_expired_were_gone(
    ledger: ro.Ledger,
) -> None:
    searched = found(ledger)
    full(ledger, 1)
    claim = ledger.claim("job", searched, release_expired=True)
    assert str(claim) == "job holds VCPU=2 of host1"
    assert consumers(ledger) == ["job", "old-0"]


def test_candidates_of_ones_own_choice_are_tried_in_turn(ledger: ro.Ledger) -> None:
    searched = list(found(ledger))
    full(ledger, 1)
    claim = ledger.claim("job", searched, release_expired=True)
    assert str(claim) == "job holds VCPU=2 of host1"
    assert consumers(ledger) == ["job", "old-0"]


@pytest.mark.law(2)
def test_a_claim_that_is_refused_all_the_same_releases_nobody(ledger: ro.Ledger) -> None:
    ledger.claim("old", {"host0": "VCPU=2"}, expires_at=LONG_AGO)
    ledger.claim("other", {"host0": "VCPU=2"})
    ledger.claim("another", {"host1": "VCPU=4"})
    kept = ledger.held("old")
    for asked in ({"host0": "VCPU=3"}, found(ledger, "VCPU=3")):
        with pytest.raises(exceptions.CapacityException, match="VCPU asked"):
            ledger.claim("job", asked, release_expired=True)
    with pytest.raises(exceptions.CapacityException):
        ledger.claim_all({"a": {"host0": "VCPU=2"}, "b": {"host1": "VCPU=1"}}, release_expired=True)
    assert ledger.held("old") == kept
    assert consumers(ledger) == ["another", "old", "other"]


@pytest.mark.law(4)
@pytest.mark.parametrize("asked", ["host", "candidates"])
def test_a_claim_renewed_meanwhile_is_never_released(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    full(ledger, 0)
    what: Any = {"host0": "VCPU=2"} if asked == "host" else found(ledger)

    def renew() -> None:
        ledger.renew("old-0", expires_in=HOUR)

    releasing = 3 if asked == "host" else 2
    seen = before_a_write(ledger, monkeypatch, renew, releasing)
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("job", what, release_expired=True)
    assert "old-0" in [order.consumer for order in seen[releasing - 1].orders]
    assert consumers(ledger) == ["old-0", "old-1"]


def test_one_that_was_released_meanwhile_stands_in_nobodys_way(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(ledger, 0)
    seen = before_a_write(ledger, monkeypatch, lambda: ledger.release("old-0"), 3)
    claim = ledger.claim("job", {"host0": "VCPU=2"}, release_expired=True)
    assert str(claim) == "job holds VCPU=2 of host0"
    assert len(seen) == 4


def test_its_own_expired_claim_is_still_a_claim(ledger: ro.Ledger) -> None:
    full(ledger, 0)
    with pytest.raises(exceptions.ConsumerExists):
        ledger.claim("old-0", {"host0": "VCPU=2"}, release_expired=True)
    assert consumers(ledger) == ["old-0", "old-1"]


def test_several_take_the_place_of_expired_claims(ledger: ro.Ledger) -> None:
    full(ledger, 0, 1)
    searched = found(ledger, "VCPU=3")
    operation = new_operation()
    claims = [
        ledger.claim_all({"a": searched, "b": searched}, release_expired=True, operation=operation)
        for _ in range(2)
    ]
    assert list(map(str, claims[0])) == ["a holds VCPU=3 of host0", "b holds VCPU=3 of host1"]
    assert claims[1] == claims[0]
    assert consumers(ledger) == ["a", "b"]


def test_more_expired_claims_than_a_refusal_names_are_released(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("wide", "VCPU=150"))
    gang = {f"old-{number}": {"wide": "VCPU=1"} for number in range(150)}
    ledger.claim_all(gang, expires_at=LONG_AGO)
    assert ledger.claim("job", {"wide": "VCPU=150"}, release_expired=True)
    assert consumers(ledger) == ["job"]


def test_units_of_expired_claims_are_taken(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("gpus", "PGPU=2"))

    def unit(name: str) -> list[Allocation]:
        one = ro.IntegerAmount(1)
        return [Allocation(provider="gpus", resource_class="PGPU", amount=one, units=(name,))]

    ledger.claim("old", unit("gpu0"), expires_at=LONG_AGO)
    claim = ledger.claim("job", unit("gpu0"), release_expired=True)
    assert claim.allocations[0].units == ("gpu0",)
    assert consumers(ledger) == ["job"]


@pytest.mark.parametrize("by", ["host", "search"])
def test_the_place_of_an_expired_topology_is_taken(ledger: ro.Ledger, by: str) -> None:
    ledger.sync(host_of("cells", small()))
    asked = {"NUMA_TOPOLOGY": ro.numa(2, dedicated=8)}
    ledger.claim("old", {"cells": asked}, expires_at=LONG_AGO)
    what: Any = {"cells": asked} if by == "host" else found(ledger, ro.Request(asked))
    claim = ledger.claim("job", what, release_expired=True)
    assert claim.by_provider()
    assert consumers(ledger) == ["job"]


@pytest.mark.law(4)
def test_of_many_who_release_the_same_claim_one_takes_its_place(ledger: ro.Ledger) -> None:
    full(ledger, 0)

    def claim(number: int) -> bool:
        try:
            ledger.claim(f"job-{number}", {"host0": "VCPU=4"}, release_expired=True)
        except exceptions.CapacityException:
            return False
        return True

    with futures.ThreadPoolExecutor(4) as threads:
        done = list(threads.map(claim, range(8)))
    assert sum(done) == 1
    assert consumers(ledger) == sorted([f"job-{done.index(True)}", "old-1"])


# --- who holds something already ------------------------------------------------------------------


def replace(ledger: ro.Ledger, **how: Any) -> ro.Claim:
    return ledger.replace("job", {"host0": "VCPU=2"}, **how)


def move(ledger: ro.Ledger, **how: Any) -> ro.Claim:
    return ledger.move("job", {"host0": "VCPU=2"}, **how)


def adjust(ledger: ro.Ledger, **how: Any) -> ro.Claim:
    return ledger.adjust("job", {"host0": "VCPU=2", "host1": "VCPU=-1"}, **how)


HELD_AFTER = {
    replace: "job holds VCPU=2 of host0",
    move: "job holds VCPU=2 of host0",
    adjust: "job holds VCPU=2 of host0",
}


def elsewhere(ledger: ro.Ledger, *expired: str) -> None:
    """Let a job hold one of host1, and others all of host0; the claims of some have expired."""
    at = dict.fromkeys(expired, LONG_AGO)
    ledger.claim("job", {"host1": "VCPU=1"}, expires_at=at.get("job"))
    for name in ("one", "two"):
        ledger.claim(name, {"host0": "VCPU=2"}, expires_at=at.get(name))


@pytest.mark.parametrize("verb", HELD_AFTER)
def test_who_holds_something_takes_the_place_of_an_expired_claim(
    ledger: ro.Ledger, verb: Callable[..., ro.Claim]
) -> None:
    elsewhere(ledger, "two")
    with pytest.raises(exceptions.CapacityException, match="VCPU asked 2, free 0"):
        verb(ledger)
    cursor, operation = ledger.feed.cursor(), new_operation()
    claim = verb(ledger, release_expired=True, operation=operation)
    assert str(claim) == HELD_AFTER[verb]
    assert claim == ledger.held("job")
    assert consumers(ledger) == ["job", "one"]
    told = ledger.feed.changes(cursor).changes
    assert {one.operation for one in told} == {operation}
    assert {use.consumer for one in told for use in one.uses} == {"job", "two"}
    assert verb(ledger, release_expired=True, operation=operation) == claim


@pytest.mark.parametrize("verb", HELD_AFTER)
@pytest.mark.law(2)
def test_who_is_refused_all_the_same_releases_nobody(
    ledger: ro.Ledger, verb: Callable[..., ro.Claim]
) -> None:
    elsewhere(ledger, "job")
    ledger.adjust("two", {"host0": "VCPU=-1"})
    ledger.claim("small", {"host0": "VCPU=1"}, expires_at=LONG_AGO)
    kept = [ledger.held(name) for name in ("job", "small")]
    with pytest.raises(exceptions.CapacityException, match="VCPU asked"):
        verb(ledger, release_expired=True)
    assert [ledger.held(name) for name in ("job", "small")] == kept
    assert consumers(ledger) == ["job", "one", "small", "two"]


@pytest.mark.parametrize("verb", HELD_AFTER)
def test_a_refusal_tells_what_was_requested_not_what_a_release_leaves_of_it(
    ledger: ro.Ledger, verb: Callable[..., ro.Claim]
) -> None:
    elsewhere(ledger, "job")
    ledger.adjust("two", {"host0": "VCPU=-1"})
    ledger.claim("small", {"host0": "VCPU=1"}, expires_at=LONG_AGO)
    with pytest.raises(exceptions.CapacityException) as plain:
        verb(ledger)
    with pytest.raises(exceptions.CapacityException, match="VCPU asked 2, free 0 of 4") as refusal:
        verb(ledger, release_expired=True)
    assert refusal.value.reasons == plain.value.reasons


def test_a_refused_claim_tells_what_was_requested_not_what_a_release_leaves(
    ledger: ro.Ledger,
) -> None:
    ledger.claim("old", {"host0": "VCPU=1"}, expires_at=LONG_AGO)
    ledger.claim("other", {"host0": "VCPU=3"})
    for take in (
        lambda: ledger.claim("job", {"host0": "VCPU=2"}, release_expired=True),
        lambda: ledger.claim_all({"job": {"host0": "VCPU=2"}}, release_expired=True),
    ):
        with pytest.raises(exceptions.CapacityException, match="VCPU asked 2, free 0 of 4"):
            take()


@pytest.mark.parametrize("verb", HELD_AFTER)
def test_its_own_expired_claim_is_not_in_its_way(
    ledger: ro.Ledger, verb: Callable[..., ro.Claim]
) -> None:
    elsewhere(ledger, "job", "one")
    before = ledger.held("job")
    claim = verb(ledger, release_expired=True)
    assert (claim.id, claim.expires_at) == (before.id, LONG_AGO)
    assert consumers(ledger) == ["job", "two"]


@pytest.mark.parametrize("verb", [replace, adjust])
def test_at_an_old_generation_nobody_is_released(
    ledger: ro.Ledger, verb: Callable[..., ro.Claim]
) -> None:
    elsewhere(ledger, "two")
    old = ledger.held("job").generation
    ledger.confirm("job")
    with pytest.raises(exceptions.StaleConsumer, match="job was changed"):
        verb(ledger, release_expired=True, generation=old)
    assert consumers(ledger) == ["job", "one", "two"]


@pytest.mark.law(4)
@pytest.mark.parametrize("verb", HELD_AFTER)
def test_one_renewed_meanwhile_is_not_released_by_who_holds_something(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch, verb: Callable[..., ro.Claim]
) -> None:
    elsewhere(ledger, "two")
    seen = before_a_write(
        ledger,
        monkeypatch,
        lambda: ledger.renew("two", expires_in=HOUR),
        3,
        kind=verb.__name__,
    )
    with pytest.raises(exceptions.CapacityException):
        verb(ledger, release_expired=True)
    assert "two" in [order.consumer for order in seen[2].orders]
    assert consumers(ledger) == ["job", "one", "two"]


@pytest.mark.parametrize("verb", [ro.Ledger.replace, ro.Ledger.move])
def test_candidates_of_who_holds_something_are_searched_without_the_expired(
    ledger: ro.Ledger, verb: Callable[..., ro.Claim]
) -> None:
    elsewhere(ledger, "one", "two")
    ledger.claim("three", {"host1": "VCPU=3"})
    searched = found(ledger, "VCPU=3")
    assert not searched
    claim = verb(ledger, "job", searched, release_expired=True)
    assert str(claim) == "job holds VCPU=3 of host0"
    assert consumers(ledger) == ["job", "three"]


def test_what_a_move_leaves_behind_is_not_taken(ledger: ro.Ledger) -> None:
    ledger.claim("job", {"host1": "VCPU=3"}, expires_at=LONG_AGO)
    ledger.claim("one", {"host0": "VCPU=4"})
    with pytest.raises(exceptions.NoCandidates):
        ledger.move("job", found(ledger, "VCPU=2"), source_consumer="old", release_expired=True)
    with pytest.raises(exceptions.CapacityException):
        ledger.move("job", {"host1": "VCPU=2"}, source_consumer="old", release_expired=True)
    assert consumers(ledger) == ["job", "one"]


def test_who_is_to_hold_the_old_place_may_not_have_an_expired_claim(ledger: ro.Ledger) -> None:
    elsewhere(ledger, "one", "two")
    for asked in ("VCPU=2", "VCPU=4"):
        with pytest.raises(exceptions.ConsumerExists, match="two holds"):
            ledger.move("job", {"host0": asked}, source_consumer="two", release_expired=True)
    assert consumers(ledger) == ["job", "one", "two"]
    claim = ledger.move("job", {"host0": "VCPU=2"}, source_consumer="old", release_expired=True)
    assert str(claim) == "job holds VCPU=2 of host0"
    assert str(ledger.held("old")) == "old holds VCPU=1 of host1"


def test_the_place_of_an_expired_topology_is_taken_by_who_holds_something(
    ledger: ro.Ledger,
) -> None:
    ledger.sync(host_of("cells", small()))
    asked = {"NUMA_TOPOLOGY": ro.numa(2, dedicated=8)}
    ledger.claim("job", {"host0": "VCPU=1"})
    for verb in (ledger.replace, ledger.move, ledger.adjust):
        ledger.claim("old", {"cells": asked}, expires_at=LONG_AGO)
        assert "PCPU=8" in str(verb("job", {"cells": asked}, release_expired=True).amounts)
        assert consumers(ledger) == ["job"]
        ledger.replace("job", {"host0": "VCPU=1"})


def test_giving_back_more_than_is_held_releases_nobody(ledger: ro.Ledger) -> None:
    elsewhere(ledger, "one")
    with pytest.raises(exceptions.CapacityException):
        ledger.adjust("job", {"host0": "VCPU=-1"}, release_expired=True)
    assert consumers(ledger) == ["job", "one", "two"]
