"""Expired claims are released on request, of one tree, and by claims that wait."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent import futures

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import Provider

HOUR = datetime.timedelta(hours=1)
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def two_hosts(ledger: ro.Ledger) -> None:
    ledger.sync(*(Provider(f"host{number}", "VCPU=4") for number in range(2)))


@pytest.fixture
def ledger(everywhere_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    """A ledger with host0 and host1."""
    return everywhere_with(two_hosts)


def fill(ledger: ro.Ledger, *expired: int) -> None:
    """Allocate each host to a consumer; the claims on some have expired."""
    for number in range(2):
        at = LONG_AGO if number in expired else None
        ledger.claim(f"old-{number}", {f"host{number}": "VCPU=4"}, expires_at=at)


def consumers(ledger: ro.Ledger) -> list[str]:
    return [consumer.name for consumer in ledger.consumers()]


def test_expired_claims_of_one_tree_are_released(ledger: ro.Ledger) -> None:
    fill(ledger, 0, 1)
    with pytest.raises(exceptions.CapacityException, match="old-0 holds 4") as refused:
        ledger.claim("job", {"host0": "VCPU=2"})
    expired = ledger.expired(reasons=refused.value.reasons)
    assert [claim.consumer for claim in expired] == ["old-0"]
    uuid = ledger.provider("host0").uuid
    assert [claim.consumer for claim in ledger.release_expired(tree=uuid)] == ["old-0"]
    assert str(ledger.claim("job", {"host0": "VCPU=2"})) == "job holds VCPU=2 of host0"
    assert consumers(ledger) == ["job", "old-1"]


def test_the_claim_of_an_excluded_consumer_stays(ledger: ro.Ledger) -> None:
    fill(ledger, 0, 1)
    assert [claim.consumer for claim in ledger.release_expired(excluding="old-0")] == ["old-1"]
    assert consumers(ledger) == ["old-0"]
    assert ledger.release_expired(tree="host0", excluding="old-0") == ()


def test_a_claim_that_has_not_expired_is_never_released(ledger: ro.Ledger) -> None:
    ledger.claim("old-0", {"host0": "VCPU=4"}, expires_in=HOUR)
    assert ledger.release_expired(tree="host0") == ()
    assert consumers(ledger) == ["old-0"]


@pytest.mark.parametrize("at", ["host0", None])
def test_a_claim_that_waits_releases_what_has_expired(ledger: ro.Ledger, at: str | None) -> None:
    fill(ledger, 0)
    candidates = ledger.snapshot(at).candidates("VCPU=2")
    assert not candidates
    claim = ledger.claim("job", candidates, wait=HOUR)
    assert str(claim) == "job holds VCPU=2 of host0"
    assert consumers(ledger) == ["job", "old-1"]


def test_a_claim_that_waits_releases_only_in_the_trees_that_it_names(ledger: ro.Ledger) -> None:
    fill(ledger, 0, 1)
    claim = ledger.claim("job", {"host1": "VCPU=2"}, wait=HOUR)
    assert str(claim) == "job holds VCPU=2 of host1"
    assert consumers(ledger) == ["job", "old-0"]


def test_a_replacement_that_waits_keeps_its_own_expired_claim(ledger: ro.Ledger) -> None:
    fill(ledger, 0, 1)
    before = ledger.get_claim("old-0")
    claim = ledger.replace("old-0", {"host1": "VCPU=2"}, wait=HOUR)
    assert (claim.id, claim.expires_at) == (before.id, LONG_AGO)
    assert str(claim) == "old-0 holds VCPU=2 of host1"
    assert consumers(ledger) == ["old-0"]


def test_several_processes_release_a_claim_once(ledger: ro.Ledger) -> None:
    fill(ledger, 0)
    with futures.ThreadPoolExecutor(4) as pool:
        released = [
            done.result()
            for done in [pool.submit(ledger.release_expired, tree="host0") for _ in range(4)]
        ]
    assert [claim.consumer for claims in released for claim in claims] == ["old-0"]
    assert consumers(ledger) == ["old-1"]
