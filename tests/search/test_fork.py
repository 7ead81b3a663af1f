"""What is claimed and released in a scenario: as a ledger would, and seen by nobody else."""

from __future__ import annotations

import random

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.testing.refusals import raises_code
from tests.search.doors import WORLDS, kept, outcome, told


@pytest.fixture
def lab():
    with ro.connect("memory://", actor="admin") as ledger:
        host = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"])
        host.add("host0/gpu0", "PGPU=1")
        ledger.sync(host, ro.Provider("host1", "VCPU=4"))
        ledger.claim("job-1", {"host0": "VCPU=6"})
        yield ledger


@pytest.mark.law(2)
@pytest.mark.parametrize("fleets", WORLDS)
def test_who_looks_between_changes_keeps_what_it_saw(fleets):
    """Changes that nobody looks at in between are written in one place."""
    seen = 0
    for seed in range(20):
        made = fleets(seed)
        if made is None:
            continue
        ledger, request = made
        chance = random.Random(seed)
        snapshot = ledger.snapshot()
        found = list(snapshot.candidates(request, limit=20, per_host=4))
        scenario, took, looks = snapshot.fork(), [], [(snapshot, told(snapshot))]
        for number in range(12 if found else 0):
            if chance.random() < 0.7:
                name, one = f"new-{number}", chance.choice(found)
                ways = [outcome(door.claim, name, one) for door in (scenario, ledger)]
                assert ways[0] == ways[1], seed
                took += [name] if ways[0] == "done" else []
            elif took:
                scenario.undo()
                ledger.release(took.pop())
            if chance.random() < 0.3:
                looks.append((scenario.snapshot, told(scenario.snapshot)))
                seen += 1
        assert told(scenario.snapshot) == kept(ledger), seed
        assert all(told(one) == before for one, before in looks), seed
    assert seen > 2


def test_what_was_found_before_a_change_is_refused_with_who_holds_it(lab):
    scenario = lab.snapshot().fork()
    early = scenario.candidates("VCPU=2")
    scenario.claim("job-2", early)
    scenario.claim("job-3", early)  # the next candidate: host1
    scenario.claim("job-4", scenario.candidates("VCPU=1"))
    with pytest.raises(exceptions.CapacityException) as refused:
        scenario.claim("job-5", early)
    assert (
        str(refused.value) == "host0: VCPU requested 2, free 0 of 8 (job-1 holds 6, job-2 holds 2)"
    )
    with pytest.raises(exceptions.NoCandidates) as refused:
        scenario.claim("job-5", scenario.candidates("VCPU=3"))
    assert [reason.free for reason in refused.value.reasons] == [0, 1]


def test_a_consumer_takes_once_and_who_holds_nothing_gives_nothing_back(lab):
    scenario = lab.snapshot().fork()
    with raises_code("ConsumerExists"):
        scenario.claim("job-1", scenario.candidates("VCPU=1"))
    scenario.release("job-1")
    with raises_code("ConsumerNotFound"):
        scenario.release("job-1")
    scenario.claim("job-1", scenario.candidates("VCPU=1"))
    assert len(scenario) == 2


def test_what_is_out_of_service_is_not_taken_in_a_scenario_either(lab):
    found = list(lab.snapshot().candidates("VCPU=1"))
    lab.disable("host1", reason="fan")
    scenario = lab.snapshot().fork()
    with raises_code("ProviderDisabled", match="fan"):
        scenario.claim("job-2", found[1])
    assert not len(scenario)


@pytest.mark.parametrize("wrong", [[], {"host0": "VCPU=1"}, "VCPU=1", None, [3]])
def test_only_what_was_found_is_taken(lab, wrong):
    scenario = lab.snapshot().fork()
    with raises_code("InvalidAmount", exceptions.NoCandidates):
        scenario.claim("job-2", wrong)
    assert not len(scenario)


@pytest.mark.law(5, 6)
def test_limits_bind_a_claim_as_they_bound_the_search(lab):
    limits = {"host0": {"VCPU": 7}, "host1": {"VCPU": 1}}
    scenario = lab.snapshot().fork()
    found = scenario.candidates("VCPU=1", limits=limits)
    taken = [str(*scenario.claim(f"new-{number}", found)) for number in range(2)]
    assert taken == ["VCPU=1 of host0", "VCPU=1 of host1"]
    with pytest.raises(exceptions.CapacityException, match="free 0 under the limit of 7"):
        scenario.claim("late", found)
    one = scenario.candidates("VCPU=2")[0]
    with pytest.raises(
        exceptions.CapacityException, match="requested 2, free 1 under the limit of 2"
    ):
        scenario.claim("late", one, limits={"host1": "VCPU=2"})
    with pytest.raises(
        exceptions.CapacityException, match="requested 2, free 1 under the limit of 2"
    ):
        scenario.move("new-0", one, limits={"host1": "VCPU=2"})
    with raises_code("ProviderNotFound"):
        scenario.claim("late", found, limits={"host9": "VCPU=2"})
    assert len(scenario) == 2


@pytest.mark.law(2)
def test_it_goes_back_to_when_there_were_so_many_changes(lab):
    scenario = lab.snapshot().fork()
    before = told(scenario.snapshot)
    scenario.release("job-1")
    released = told(scenario.snapshot)
    for number in range(3):
        scenario.claim(f"new-{number}", scenario.candidates("VCPU=2"))
    for wrong in (-1, 5, "1", True):
        with raises_code("InvalidField", match="undo"):
            scenario.undo(wrong)
    scenario.undo(to=4)
    assert len(scenario) == 4
    scenario.undo(to=1)
    assert told(scenario.snapshot) == released
    scenario.undo(to=0)
    assert told(scenario.snapshot) == before


def test_there_is_nothing_to_undo_where_nothing_was_done(lab):
    scenario = lab.snapshot().fork()
    with raises_code("InvalidField", match="undo"):
        scenario.undo()


def test_two_scenarios_of_one_snapshot_do_not_meet(lab):
    snapshot = lab.snapshot()
    one, other = snapshot.fork(), snapshot.fork()
    one.claim("job-2", one.candidates("VCPU=2"))
    other.claim("job-3", other.candidates("VCPU=1"))
    free = [each.snapshot.free("VCPU") for each in (one, other)]
    assert (*free, snapshot.free("VCPU")) == (4, 5, 6)


def test_a_confined_snapshot_stays_confined(lab):
    scenario = lab.snapshot("host1").fork()
    scenario.claim("job-2", scenario.candidates("VCPU=2"))
    assert scenario.snapshot.at == "host1"
    assert [one.host for one in scenario.candidates("VCPU=2")] == ["host1"]
