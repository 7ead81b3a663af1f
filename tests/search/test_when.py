"""When it would fit: against giving back one claim after the other, and asking each time."""

from __future__ import annotations

import contextlib
import datetime
import random
from collections.abc import Callable, Iterator, Mapping

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.requests import Request
from resource_objects.search import Snapshot
from resource_objects.search.when import When
from resource_objects.testing.refusals import raises_code
from tests.search import device_fleets, numa_fleets
from tests.support.fleets import fleet
from tests.support.fleets import request as request_for
from tests.support.lengths import examples

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def hour(number: int) -> datetime.datetime:
    return START + datetime.timedelta(hours=number)


@pytest.fixture
def ledger() -> Iterator[ro.Ledger]:
    with ro.connect("memory://") as opened:
        yield opened


def holding(ledger: ro.Ledger, **held: tuple[str, str, int | None]) -> None:
    """Let jobs hold something of a host until an hour, or for ever."""
    for name, (host, amounts, end) in held.items():
        more = {} if end is None else {"expires_at": hour(end)}
        ledger.claim(name, {host: amounts}, **more)


def test_the_first_end_that_makes_it_fit_is_told_with_those_it_needs(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"), ro.Provider("h1", "VCPU=8"))
    holding(
        ledger,
        a=("h0", "VCPU=3", 1),
        b=("h0", "VCPU=2", 5),
        c=("h0", "VCPU=3", 3),
        d=("h1", "VCPU=8", 4),
    )
    found = ledger.earliest_start("VCPU=6")
    assert found.at == hour(3)
    assert [one.consumer for one in found.because] == ["a", "c"]
    assert found.not_after == hour(1)
    assert found.candidate is not None
    assert found.candidate.host == "h0"
    assert str(ledger.earliest_start("VCPU=8")) == f"{hour(4)}, when d ends {hour(4)}"


FAR = 24 * 365 * 50


def test_an_expired_claim_ends_now(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"))
    over = ledger.now() - datetime.timedelta(hours=3)
    ledger.claim("late", {"h0": "VCPU=5"}, expires_at=over)
    holding(ledger, soon=("h0", "VCPU=3", FAR))
    found = ledger.earliest_start("VCPU=4")
    assert (found.now, found.at, found.not_after) == (True, None, None)
    assert [(one.consumer, one.at) for one in found.because] == [("late", over)]
    assert str(found) == f"now, without late, expired {over}"
    both = ledger.earliest_start("VCPU=8")
    assert (both.now, both.at) == (False, hour(FAR))
    assert [one.consumer for one in both.because] == ["late", "soon"]
    assert ledger.release_expired()
    assert ledger.claim("new", ledger.snapshot().candidates("VCPU=4"))
    assert str(ledger.earliest_start("VCPU=1")) == "now"
    assert ledger.earliest_start("VCPU=1").because == ()


def test_who_stays_for_ever_is_not_waited_for(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"))
    holding(ledger, forever=("h0", "VCPU=3", None), soon=("h0", "VCPU=5", 1))
    assert ledger.earliest_start("VCPU=5").at == hour(1)
    never = ledger.earliest_start("VCPU=6")
    assert not never
    assert never.at is None
    assert never.why == ("h0: VCPU requested 6, free 5 of 8 (forever holds 3)",)
    assert str(never).startswith("not by the end of claims\n")


def test_what_fits_waits_for_nobody(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"))
    found = ledger.earliest_start("VCPU=8")
    assert found.now
    assert found.because == ()
    assert str(found) == "now"


def test_claims_that_end_together_are_given_back_together(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"))
    holding(ledger, a=("h0", "VCPU=4", 2), b=("h0", "VCPU=4", 2))
    assert [one.consumer for one in ledger.earliest_start("VCPU=8").because] == ["a", "b"]
    assert len(ledger.earliest_start("VCPU=4").because) == 1


def test_limits_bind_then_as_they_do_now(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"))
    holding(ledger, a=("h0", "VCPU=4", 2), b=("h0", "VCPU=2", 4))
    assert ledger.earliest_start("VCPU=4", limits={"h0": {"VCPU": 6}}).at == hour(2)
    assert ledger.earliest_start("VCPU=6", limits={"h0": {"VCPU": 6}}).at == hour(4)
    assert not ledger.earliest_start("VCPU=7", limits={"h0": {"VCPU": 6}})


def test_a_host_beyond_its_capacity_blames_nobody_without_need(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8,DISK_GB=9"))
    holding(ledger, a=("h0", "VCPU=6", 1), b=("h0", "DISK_GB=9", 2))
    ledger.sync(ro.Provider("h0", "VCPU=4,DISK_GB=9"))
    found = ledger.earliest_start("DISK_GB=5")
    assert [one.consumer for one in found.because] == ["b"]


def test_a_budget_that_ends_is_no_answer(ledger: ro.Ledger) -> None:
    host = ro.Provider("h0")
    for number in range(12):
        host.add(f"h0/{number}", {"VCPU": ro.IntegerInventory(9, min_unit=7, step_size=7)})
    ledger.sync(host)
    holding(ledger, a=("h0/0", "VCPU=7", 1))
    asked = Request(
        groups=[ro.RequestGroup("VCPU=7", suffix=f"_{n}") for n in range(12)],
        group_policy="isolate",
    )
    found = ledger.earliest_start(asked, budget=1)
    assert found.cut_short
    assert not found
    assert str(found).startswith("not known: the budget ended")


@pytest.mark.parametrize("end", ["soon", datetime.datetime(2030, 1, 1)])
def test_an_end_that_is_no_time_is_refused(ledger: ro.Ledger, end: object) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"))
    with pytest.raises(exceptions.InvalidInput, match="end of job-1"):
        ledger.snapshot().when("VCPU=1", {"job-1": end})  # type: ignore[dict-item]


# --- against one after the other ----------------------------------------------------------------


def counted(seed: int) -> tuple[ro.Ledger, Request]:
    """Return a ledger in which some hold candidates of requests, and another request."""
    chance = random.Random(seed)
    roots = fleet(chance)
    ledger = ro.connect("memory://")
    for root in roots:
        with contextlib.suppress(exceptions.Conflict):  # one of them, then
            ledger.sync(root)
    asked = request_for(chance, roots)
    for number in range(chance.randint(1, 12)):
        other = asked if chance.random() < 0.7 else request_for(chance, roots)
        with contextlib.suppress(exceptions.ResourceObjectsError):
            if some := ledger.snapshot().candidates(other, limit=5):
                ledger.claim(f"job-{number}", chance.choice(some))
    return ledger, asked


def naive(
    snapshot: Snapshot, asked: Request, ends: Mapping[str, datetime.datetime]
) -> datetime.datetime | None:
    """Return when it fits, START for now, None for never."""
    scenario = snapshot.fork()
    if scenario.candidates(asked):
        return START
    for time in sorted(set(ends.values())):
        for name, end in ends.items():
            if end == time:
                scenario.release(name)
        if scenario.candidates(asked):
            return time
    return None


def is_free(snapshot: Snapshot, found: When, names: list[str]) -> bool:
    scenario = snapshot.fork()
    for name in names:
        scenario.release(name)
    assert found.candidate is not None
    try:
        scenario.claim("(tried)", found.candidate)
    except exceptions.CapacityException:
        return False
    return True


@given(st.integers(0, 10**6), st.sampled_from([counted, device_fleets.fleet, numa_fleets.fleet]))
@example(918, counted)  # it asks for a tree that there is not
@settings(max_examples=examples(200))
def test_it_is_the_first_time_at_which_a_search_finds_one(
    seed: int, made: Callable[[int], tuple[ro.Ledger, Request]]
) -> None:
    ledger, asked = made(seed)
    with ledger:
        chance, snapshot = random.Random(seed), ledger.snapshot()
        ends = {
            one.name: hour(chance.randint(1, 4))
            for one in ledger.consumers()
            if chance.random() < 0.9
        }
        try:
            right = naive(snapshot, asked, ends)
        except (exceptions.SearchLimitReached, exceptions.InvalidInput):
            assume(False)
        except exceptions.NotFound as error:  # a tree that there is not
            if not error.is_about("provider"):
                raise
            with raises_code("ProviderNotFound", match=error.name):
                snapshot.when(asked, ends)
            return
        found = snapshot.when(asked, ends)
        event("now" if found.now else "later" if found else "never")
        assert (START if found.now else found.at) == right
        if found.at is not None:
            names = [one.consumer for one in found.because]
            assert names
            assert is_free(snapshot, found, names)
            assert max(one.at for one in found.because) == found.at
            for name in names:
                assert not is_free(snapshot, found, [one for one in names if one != name])
