"""The experiment of many schedulers counts what it says it counts."""

from __future__ import annotations

import itertools
import pathlib
import random

import pytest

import resource_objects as ro
from benchmarks import schedulers, servers
from resource_objects.ledger import RetryPolicy


def ledger_of(folder: pathlib.Path, hosts: int) -> str:
    url = f"sqlite:///{folder}/jobs.db"
    with ro.connect(url) as ledger:
        ledger.sync(*(ro.Provider(f"host-{n}", schedulers.HAS) for n in range(hosts)))
    return url


@pytest.mark.long
def test_two_schedulers_fill_a_fleet() -> None:
    jobs = schedulers.Jobs("halves of hosts", 2, 5)
    rows = list(servers.in_a_process(schedulers.experiments, "sqlite", jobs, (2,), ("random",)))
    figures = {row.name.rpartition(": ")[2]: row.ours for row in rows}
    assert figures["searches"] >= 100 and figures["lost races"] >= 0
    assert all("2 schedulers, order random" in row.name for row in rows)


def test_a_claim_of_a_host_that_was_changed_and_has_room_is_counted(tmp_path: pathlib.Path) -> None:
    url = ledger_of(tmp_path, 1)
    with ro.connect(url) as ledger, ro.connect(url) as other:
        one = schedulers.Scheduler(ledger, schedulers.Jobs("jobs", 8, 1), "name", 1)
        assert one.place()
        between(one, lambda: other.claim("another", {"host-0": "VCPU=1"}))
        assert one.place()
        result = one.result(1.0)
    assert (result.searches, result.lost) == (2, 0)
    assert schedulers.changed_meanwhile(url, result.placed) == 1


def test_a_lost_race_goes_to_the_next_candidate(tmp_path: pathlib.Path) -> None:
    url = ledger_of(tmp_path, 2)
    with ro.connect(url) as ledger, ro.connect(url) as other:
        one = schedulers.Scheduler(ledger, schedulers.Jobs("jobs", 1, 2), "name", 1)
        between(one, lambda: other.claim("another", {"host-0": "VCPU=1"}))
        assert one.place()
        result = one.result(1.0)
    assert (result.searches, result.lost, result.placed[0].tries) == (1, 1, 2)
    assert schedulers.changed_meanwhile(url, result.placed) == 0


def test_a_claim_of_which_all_is_gone_is_given_up(tmp_path: pathlib.Path) -> None:
    url = ledger_of(tmp_path, 1)
    policy = RetryPolicy(searches=0)
    with ro.connect(url, retries=policy) as ledger, ro.connect(url) as other:
        one = schedulers.Scheduler(ledger, schedulers.Jobs("jobs", 1, 1), "name", 1)
        between(one, lambda: other.claim("another", {"host-0": "VCPU=1"}))
        assert not one.place()
        assert (one.result(1.0).lost, one.result(1.0).given_up) == (1, 1)


@pytest.mark.parametrize("order", ["name", "pack", "spread"])
def test_who_lost_every_candidate_looks_elsewhere_than_those_who_took_them(order: str) -> None:
    """Somebody takes the ten hosts that come first, after each search: there are sixty more."""
    policy = RetryPolicy(uniform=random.Random(1).uniform)
    with ro.connect("memory://", retries=policy) as ledger:
        ledger.sync(*(ro.Provider(f"host-{n:03}", "VCPU=8") for n in range(100)))
        request = ro.Request("VCPU=8")
        snapshot, numbers = ledger._snapshots.snapshot, itertools.count()

        def others(at: str | None = None) -> ro.Snapshot:
            found = snapshot(at)
            for one in found.candidates(request, order=order, limit=10):
                ledger.claim(f"other-{next(numbers)}", one)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger._snapshots, "snapshot", others)
            found = others().candidates(request, order=order)
            assert ledger.claim("job", found).allocations
        assert next(numbers) < 40  # after the first search, or the second


def between(one: schedulers.Scheduler, act: object) -> None:
    """Let something happen after the next snapshot, before its candidates are claimed."""
    counted = one.ledger.snapshot

    def snapshot(at: str | None = None) -> ro.Snapshot:
        one.ledger.snapshot = counted  # type: ignore[method-assign]
        found = counted(at)
        act()  # type: ignore[operator]
        return found

    one.ledger.snapshot = snapshot  # type: ignore[method-assign]
