"""A drain, rehearsed: who finds another place, where, and who does not and why."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.testing.refusals import raises_code
from tests.search import device_fleets, numa_fleets
from tests.search.doors import WORLDS, counted, kept, told
from tests.support.lengths import examples


def lab(*sizes):
    ledger = ro.connect("memory://")
    ledger.sync(*(ro.Provider(f"host{n}", f"VCPU={size}") for n, size in enumerate(sizes)))
    return ledger


def made_for(ledger):
    return {one.name: one.request for one in ledger.consumers() if one.request is not None}


def test_who_finds_no_place_first_is_tried_first_the_next_time():
    with lab(8, 4, 4) as ledger:
        for name, cpus in (("a", 4), ("b", 2), ("c", 2)):
            ledger.claim(name, {"host0": f"VCPU={cpus}"})
        done = ledger.snapshot().rehearse_drain("host0")
        assert done and done.is_certain and [one.consumer for one in done.placed] == ["a", "b", "c"]
        ledger.apply(done.plan)
        assert {a.provider for one in ledger.consumers() for a in one.allocations} == {
            "host1",
            "host2",
        }
        assert ledger.provider("host0").disabled.reason == "drained"


def test_where_no_order_is_found_all_are_placed_at_once():
    """10 are 4, 3 and 3, which no one comes to who puts each on the first host that has room."""
    with lab(15, 10, 5) as ledger:
        for name, cpus in (("a", 3), ("b", 4), ("c", 3), ("d", 5)):
            ledger.claim(name, {"host0": f"VCPU={cpus}"})
        done = ledger.snapshot().rehearse_drain("host0")
        assert {one.consumer: one.candidate.host for one in done.placed} == {
            **dict.fromkeys("abc", "host1"),
            "d": "host2",
        }
        ledger.apply(done.plan)
        assert kept(ledger) == told(done.scenario.snapshot)


def test_who_cannot_go_at_all_is_told_apart_from_who_comes_too_late():
    with lab(12, 4) as ledger:
        for name, cpus in (("big", 5), ("one", 3), ("two", 3)):
            ledger.claim(name, {"host0": f"VCPU={cpus}"})
        before = told(ledger.snapshot())
        done = ledger.snapshot().rehearse_drain("host0")
        assert not done and done.is_certain
        big, two = done.stuck
        assert (big.consumer, big.is_certain, two.consumer, two.is_certain) == (
            *("big", True),
            *("two", False),
        )
        assert big.why[1:] == ("host1: VCPU requested 5, free 4 of 4",)
        assert two.why[1:] == ("host1: VCPU requested 3, free 1 of 4 (one holds 3)",)
        assert str(done.placed[0]) == "one: VCPU=3 of host0 -> VCPU=3 of host1"
        assert done.to_dict()["stuck"][0]["why"] == list(big.why)
        assert told(ledger.snapshot()) == before
        with pytest.raises(exceptions.NoCandidates, match="big: VCPU=5 of host0 -> nowhere"):
            done.require()


def test_a_search_that_ends_early_is_no_no():
    with lab(4, 4) as ledger:
        ledger.claim("a", {"host0": "VCPU=2"})
        group = ro.Request("VCPU=1").with_group("x", "VCPU=1")
        done = ledger.snapshot().rehearse_drain("host0", requests={"a": group}, budget=1)
        (one,) = done.stuck
        assert one.cut_short and not one.is_certain and not done.is_certain
        with pytest.raises(exceptions.SearchLimitReached):
            done.require()


def test_nobody_is_there_and_nobody_of_that_name():
    with lab(4) as ledger:
        assert str(ledger.snapshot().rehearse_drain("host0")) == "no allocations to move"
        with raises_code("ProviderNotFound"):
            ledger.snapshot().rehearse_drain("host9")


def test_a_uuid_names_one_as_its_name_does_and_a_request_may_be_text():
    with lab(4, 4) as ledger:
        ledger.claim("a", {"host0": "VCPU=2"})
        for key in ("host0", ledger.provider("host0").uuid.upper()):
            done = ledger.snapshot().rehearse_drain(key, requests={"a": "VCPU=3"})
            assert [str(one.candidate) for one in done.placed] == ["VCPU=3 of host1"]


def test_limits_bind_who_goes():
    with lab(4, 4, 4) as ledger:
        for name in ("a", "b"):
            ledger.claim(name, {"host0": "VCPU=2"})
        limits = {"host1": {"VCPU": 2}, "host2": {"VCPU": 1}}
        done = ledger.snapshot().rehearse_drain("host0", limits=limits)
        assert [len(done.placed), len(done.stuck)] == [1, 1]


def test_what_a_consumer_was_made_for_is_used_and_stays():
    """Also where nobody says it: then its counts are placed, and its request is not lost."""
    with lab(4, 4, 4) as ledger:
        ledger.change("host2", traits=["CUSTOM_SSD"])
        ledger.change("host0", traits=["CUSTOM_SSD"])
        fast = ro.Request("VCPU=2", required=["CUSTOM_SSD"])
        ledger.claim("a", ledger.snapshot().candidates(fast))
        known = ledger.snapshot().rehearse_drain("host0", requests=made_for(ledger))
        assert str(known.placed[0].candidate) == "VCPU=2 of host2"
        unknown = ledger.snapshot().rehearse_drain("host0")
        assert str(unknown.placed[0].candidate) == "VCPU=2 of host1"
        ledger.apply(unknown.plan)
        assert made_for(ledger) == {"a": fast}


def test_what_was_claimed_in_a_scenario_goes_by_what_it_was_claimed_for():
    with lab(4, 4) as ledger:
        scenario = ledger.snapshot().fork()
        one = ro.Request("VCPU=2", in_tree="host0")
        scenario.claim("a", scenario.candidates(one))
        with pytest.raises(exceptions.NoCandidates, match="a: VCPU=2 of host0 -> nowhere"):
            scenario.drain("host0")


def test_one_of_several_devices_may_go():
    with ro.connect("memory://") as ledger:
        host = ro.Provider("host0", "VCPU=4")
        for number in range(3):
            host.add(f"host0/{number}", "PGPU=1")
        ledger.sync(host)
        ledger.claim("a", ledger.snapshot().candidates("VCPU=1,PGPU=1"))
        done = ledger.snapshot().rehearse_drain("host0/0")
        assert str(done.placed[0].candidate) == "VCPU=1 of host0, PGPU=1 of host0/1"


# --- worlds of all sorts ------------------------------------------------------------------------


@pytest.mark.law(5, 6)
@pytest.mark.parametrize(
    ("fleets", "seeds"),
    [
        (counted, [37, 88, 103]),
        (numa_fleets.fleet, [6, 122, 135]),
        (device_fleets.fleet, [19, 48, 56]),
    ],
)
def test_what_is_rehearsed_can_be_done_with_topologies_and_devices(fleets, seeds):
    moved = 0
    for seed in seeds:
        ledger, request = fleets(seed)
        with ledger:
            ledger.claim("job", ledger.snapshot().candidates(request))
            snapshot, requests = ledger.snapshot(), made_for(ledger)
            for host in snapshot.hosts:
                done = snapshot.rehearse_drain(host, requests=requests)
                check(snapshot, host, done)
                moved += len(done.placed)
            where = snapshot.fork().held("job").held[0].provider.partition("/")[0]
            done = snapshot.rehearse_drain(where, requests=requests)
            ledger.apply(done.plan)
            assert kept(ledger) == told(done.scenario.snapshot), seed
    assert moved


@pytest.mark.law(6)
@settings(max_examples=examples(150))
@given(st.sampled_from(WORLDS), st.integers(0, 2**20))
def test_all_find_a_place_where_that_can_be(fleets, seed):
    made = fleets(seed)
    assume(made is not None)
    ledger, request = made
    chance = random.Random(seed)
    with ledger:
        for number in range(4):
            some = list(ledger.snapshot().candidates(request, limit=4))
            if some:
                ledger.claim(f"new-{number}", chance.choice(some))
        snapshot, requests = ledger.snapshot(), made_for(ledger)
        for host in snapshot.hosts:
            done = snapshot.rehearse_drain(host, requests=requests)
            check(snapshot, host, done)
            event(f"{len(done.placed)} placed, {len(done.stuck)} not")


def check(snapshot, host, done):
    """Hold a rehearsal to what comes of trying every place for everybody."""
    for one in done.placed:
        taken = {allocation.provider for allocation in one.candidate.allocations}
        gone = {place.name for place in snapshot.fork().tree(host).walk()}
        assert taken.isdisjoint(gone)
    scenario = snapshot.fork()
    scenario.disable(host)
    everybody = [*done.placed, *done.stuck]
    for one in everybody:
        scenario.release(one.consumer)
    for one in done.stuck:
        if one.is_certain:
            assert not scenario.candidates(one.request, limit=1)
    if done.is_certain and done.stuck:
        # an amount that was claimed of a host may say what no search is asked
        with contextlib.suppress(exceptions.InvalidInput):
            assert not can_all(scenario, [one.request for one in everybody])
    elif done.stuck:
        assert not all(one.is_certain for one in done.stuck)


def can_all(scenario, requests, tries=300):
    """Whether all can be placed, by trying every candidate of each; False beyond so many tries."""
    if not requests:
        return True
    for number, one in enumerate(scenario.candidates(requests[0], limit=None, per_host=99)):
        if number >= tries:
            return False
        mark = len(scenario)
        try:
            scenario.claim(f"(all {mark})", one)
        except exceptions.CapacityException:
            continue
        if can_all(scenario, requests[1:], tries // 4):
            return True
        scenario.undo(mark)
    return False
