"""What is tried in a scenario is what a ledger would be, verb by verb, and goes back."""

from __future__ import annotations

import random

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.testing.refusals import raises_code
from tests.search.doors import WORLDS, Blind, Doors, kept, told
from tests.support.lengths import some


def lent(fleets, start):
    """Lend three ledgers, with what is asked of them, as far as there are such."""
    for seed in range(start, start + 3):
        made = fleets(seed)
        if made is not None:
            ledger, request = made
            with ledger:
                yield seed, ledger, request


@pytest.mark.law(2, 3, 5)
@pytest.mark.parametrize("fleets", WORLDS)
@pytest.mark.parametrize("start", some(range(0, 90, 3)))
def test_a_scenario_goes_wherever_a_ledger_goes_and_back(fleets, start):
    done = set()
    for seed, ledger, request in lent(fleets, start):
        snapshot = ledger.snapshot()
        scenario, doors = snapshot.fork(), Doors(random.Random(seed), request)
        before, pictures = told(snapshot), {0: told(snapshot)}
        for _ in range(14):
            verb, ways = doors.step(scenario, ledger)
            if not ways:
                continue
            assert ways[0] == ways[1], (seed, verb)
            pictures[len(scenario)] = told(scenario.snapshot)
            assert pictures[len(scenario)] == kept(ledger), (seed, verb)
            done |= {verb} if ways[0] == "done" else set()
        assert told(snapshot) == before, seed
        while len(scenario):
            scenario.undo()
            if len(scenario) in pictures:
                assert told(scenario.snapshot) == pictures[len(scenario)], seed
    assert len(done) > 2


@pytest.mark.law(2, 5)
@pytest.mark.parametrize("fleets", WORLDS)
@pytest.mark.parametrize("start", some(range(0, 60, 3)))
def test_changes_that_nobody_looks_at_in_between_come_to_the_same(fleets, start):
    for seed, ledger, request in lent(fleets, start):
        snapshot = ledger.snapshot()
        scenario, doors = snapshot.fork(), Blind(random.Random(seed), request, snapshot)
        before, looks = told(snapshot), []
        for number in range(20):
            verb, ways = doors.step(scenario, ledger)
            assert not ways or ways[0] == ways[1], (seed, verb)
            if number % 7 == 6:
                looks.append((scenario.snapshot, told(scenario.snapshot)))
        assert told(scenario.snapshot) == kept(ledger), seed
        assert all(told(one) == picture for one, picture in looks), seed
        assert told(snapshot) == before, seed
        scenario.undo(to=0)
        assert told(scenario.snapshot) == before, seed


@pytest.fixture
def lab():
    with ro.connect("memory://", actor="admin") as ledger:
        host = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"])
        host.add("host0/gpu0", "PGPU=1")
        ledger.sync(host, ro.Provider("host1", "VCPU=4"))
        request = ro.Request("VCPU=6")
        ledger.claim("job-1", ledger.snapshot().candidates(request))
        yield ledger


@pytest.mark.parametrize(
    ("verb", "given", "error"),
    [
        ("remove", ["nobody"], "ProviderNotFound"),
        ("remove", ["host0"], "ProviderInUse"),
        ("resize", ["host0", "PGPU"], "InvalidText"),
        ("reparent", ["host0", "host0/gpu0"], exceptions.InvalidTree),
        ("reparent", ["host0", "nobody"], "ProviderNotFound"),
        ("disable", ["nobody"], "ProviderNotFound"),
        ("enable", ["nobody"], "ProviderNotFound"),
        ("add", ["host9"], exceptions.InvalidTree),
        ("add", [ro.Provider("host0")], "ProviderExists"),
        ("add", [ro.Provider("host9", "VCPU=1"), ro.Provider("host9")], "ProviderExists"),
        ("move", ["nobody", []], "ConsumerNotFound"),
        ("drain", ["nobody"], "ProviderNotFound"),
        ("drain", ["host0"], exceptions.NoCandidates),
        ("diff", ["yesterday"], "InvalidField"),
    ],
)
def test_changes_that_cannot_be_are_refused_and_change_nothing(lab, verb, given, error):
    scenario = lab.snapshot().fork()
    before = told(scenario.snapshot)
    with raises_code(error):
        getattr(scenario, verb)(*given)
    assert (len(scenario), told(scenario.snapshot)) == (0, before)


def test_a_pool_is_judged_as_the_ledger_judges_them(lab):
    pool = ro.Provider("pool", "VCPU=4", traits=["MISC_SHARES_VIA_AGGREGATE"], aggregates=["rack"])
    lab.change("host0", aggregates=["rack"])
    scenario = lab.snapshot().fork()
    with raises_code("CountedTwice"):
        scenario.add(pool)


def test_a_confined_snapshot_is_changed_within_its_tree(lab):
    scenario = lab.snapshot("host0/gpu0").fork()
    before = told(scenario.snapshot)
    scenario.resize("host0/gpu0", "PGPU=4")
    assert [str(one) for one in scenario.candidates("PGPU=4")] == ["PGPU=4 of host0/gpu0"]
    assert str(scenario.diff()) == "~ host0/gpu0: PGPU=4"
    scenario.undo()
    assert told(scenario.snapshot) == before


def test_a_resize_to_total_0_removes_the_inventory(lab):
    scenario = lab.snapshot().fork()
    scenario.resize("host0/gpu0", "PGPU=0")
    assert not scenario.candidates("PGPU=1")
    lab.apply(scenario.diff())
    assert not lab.provider("host0/gpu0").inventories


def test_a_gang_is_taken_as_a_whole_or_not_at_all(lab):
    scenario = lab.snapshot().fork()
    found = scenario.candidates("VCPU=2")
    with pytest.raises(exceptions.CapacityException):
        scenario.claim_all({f"member-{n}": found for n in range(4)})
    assert not len(scenario)
    taken = scenario.claim_all({f"member-{n}": found for n in range(3)})
    assert [len(one) for one in taken.values()] == [1, 1, 1]
    assert len(scenario) == 3


def test_a_host_of_the_ledger_is_there_already(lab):
    with raises_code("ProviderExists", match="host1"):
        lab.snapshot().fork().add(lab.provider("host1"))


def test_who_holds_something_at_what_is_drained_goes_elsewhere_and_keeps_its_request(lab):
    scenario = lab.snapshot().fork()
    scenario.resize("host1", "VCPU=16")
    scenario.claim("job-2", scenario.candidates("VCPU=1,PGPU=1"))
    scenario.claim("job-3", scenario.candidates("VCPU=1"))
    before, shown = len(scenario), told(scenario.snapshot)
    with pytest.raises(
        exceptions.NoCandidates, match="job-2: VCPU=1 of host0, PGPU=1 of host0/gpu0 -> nowhere"
    ):
        scenario.drain("host0")
    scenario.release("job-2")
    went = scenario.drain("host0", requests={"job-1": ro.Request("VCPU=6")})
    assert {name: str(*taken) for name, taken in went.items()} == {
        "job-1": "VCPU=6 of host1",
        "job-3": "VCPU=1 of host1",
    }
    lab.apply(scenario.diff())
    assert kept(lab) == told(scenario.snapshot)
    requests = {one.name: str(one.request) for one in lab.consumers()}
    assert requests == {"job-1": "VCPU=6", "job-3": "VCPU=1"}
    scenario.undo(before)
    assert told(scenario.snapshot) == shown


@pytest.mark.law(2)
def test_what_is_drained_and_what_was_rehearsed_do_not_meet(lab):
    scenario = lab.snapshot().fork()
    scenario.resize("host1", "VCPU=16")
    rehearsed = scenario.snapshot.rehearse_drain("host0")
    scenario.drain("host0")
    shown = told(rehearsed.scenario.snapshot)
    scenario.claim("job-2", scenario.candidates("VCPU=3"))
    rehearsed.scenario.claim("job-3", rehearsed.scenario.candidates("VCPU=1"))
    rehearsed.scenario.undo()
    assert told(rehearsed.scenario.snapshot) == shown
    assert scenario.snapshot.free("VCPU") == 16 - 6 - 3


def test_a_drain_of_which_nothing_is_known_is_no_no(lab):
    scenario = lab.snapshot().fork()
    hard = ro.Request("VCPU=1").with_group("_x", "VCPU=1")
    with pytest.raises(exceptions.SearchLimitReached):
        scenario.drain("host0", requests={"job-1": hard}, budget=1)
    assert not len(scenario)
