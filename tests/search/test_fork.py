"""A scenario is what a ledger would be, and can always go back."""

from __future__ import annotations

import random

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.search import Snapshot
from tests.ledger.fleet_pictures import picture_of
from tests.search import device_fleets, generated, numa_fleets
from tests.support.lengths import some


def counted(seed):
    """Return a ledger of hosts with shares and pools, and a request."""
    roots, request = generated.mixed(seed)
    ledger = ro.connect("memory://")
    for root in roots:
        for one in root.walk():
            for inventory in one.inventories.values():
                inventory.used = 0
        try:
            ledger.sync(root)
        except exceptions.ResourceObjectsError:  # what a ledger refuses is tested elsewhere
            ledger.close()
            return None
    return ledger, request


def read(ledger):
    return picture_of(Snapshot(ledger.backend.read()))


def attempt(action, *arguments):
    try:
        action(*arguments)
    except exceptions.CapacityException as refusal:
        return sorted(set(map(str, refusal.reasons)))
    except exceptions.ResourceObjectsError as error:
        return type(error).__name__
    return "done"


@pytest.mark.law(2, 3, 5)
@pytest.mark.parametrize("fleets", [counted, numa_fleets.fleet, device_fleets.fleet])
@pytest.mark.parametrize("start", some(range(0, 200, 20)))
def test_a_scenario_goes_where_the_ledger_goes_and_back(fleets, start):
    taken = 0
    for seed in range(start, start + 20):
        made = fleets(seed)
        if made is None:
            continue
        ledger, request = made
        chance = random.Random(seed)
        snapshot = ledger.snapshot()
        before = picture_of(snapshot)
        scenario, pictures = snapshot.fork(), [before]
        for number in range(6):
            if chance.random() < 0.6:
                found = list(scenario.candidates(request, limit=4))
                if not found:
                    continue
                one = chance.choice(found)
                ways = [attempt(door.claim, f"new-{number}", one) for door in (scenario, ledger)]
                taken += ways[0] == "done"
            else:
                kept = [*(one.name for one in ledger.consumers()), "nobody"]
                gone = chance.choice(kept)
                ways = [attempt(door.release, gone) for door in (scenario, ledger)]
            assert ways[0] == ways[1], seed
            pictures += [picture_of(scenario.snapshot)] * (len(scenario) - len(pictures) + 1)
            assert pictures[-1] == read(ledger), seed
        assert picture_of(snapshot) == before
        for _ in range(len(scenario)):
            assert picture_of(scenario.snapshot) == pictures.pop(), seed
            scenario.undo()
        assert picture_of(scenario.snapshot) == before
        ledger.close()
    assert taken > 2 or start >= 40  # of some seeds hardly anything fits


@pytest.fixture
def lab():
    with ro.connect("memory://", actor="admin") as ledger:
        host = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"])
        host.add("host0/gpu0", "PGPU=1")
        ledger.sync(host, ro.Provider("host1", "VCPU=4"))
        ledger.claim("job-1", {"host0": "VCPU=6"})
        yield ledger


@pytest.mark.law(6)
@pytest.mark.law(2)
@pytest.mark.parametrize("fleets", [counted, numa_fleets.fleet, device_fleets.fleet])
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
        scenario, took, looks = snapshot.fork(), [], [(snapshot, picture_of(snapshot))]
        for number in range(12 if found else 0):
            if chance.random() < 0.7:
                name, one = f"new-{number}", chance.choice(found)
                ways = [attempt(door.claim, name, one) for door in (scenario, ledger)]
                assert ways[0] == ways[1], seed
                took += [name] if ways[0] == "done" else []
            elif took:
                scenario.undo()
                ledger.release(took.pop())
            if chance.random() < 0.3:
                looks.append((scenario.snapshot, picture_of(scenario.snapshot)))
                seen += 1
        assert picture_of(scenario.snapshot) == read(ledger), seed
        assert all(picture_of(one) == before for one, before in looks), seed
    assert seen > 2


def test_what_was_found_before_a_change_is_refused_with_who_holds_it(lab):
    scenario = lab.snapshot().fork()
    early = scenario.candidates("VCPU=2")
    scenario.claim("job-2", early)
    scenario.claim("job-3", early)  # the next candidate: host1
    scenario.claim("job-4", scenario.candidates("VCPU=1"))
    with pytest.raises(exceptions.CapacityException) as refused:
        scenario.claim("job-5", early)
    assert str(refused.value) == "host0: VCPU asked 2, free 0 of 8 (job-1 holds 6, job-2 holds 2)"
    with pytest.raises(exceptions.NoCandidates) as refused:
        scenario.claim("job-5", scenario.candidates("VCPU=3"))
    assert [reason.free for reason in refused.value.reasons] == [0, 1]


def test_a_consumer_takes_once_and_who_holds_nothing_gives_nothing_back(lab):
    scenario = lab.snapshot().fork()
    with pytest.raises(exceptions.ConsumerExists):
        scenario.claim("job-1", scenario.candidates("VCPU=1"))
    scenario.release("job-1")
    with pytest.raises(exceptions.ConsumerNotFound):
        scenario.release("job-1")
    scenario.claim("job-1", scenario.candidates("VCPU=1"))
    assert len(scenario) == 2


def test_what_is_out_of_service_is_not_taken_in_a_scenario_either(lab):
    found = list(lab.snapshot().candidates("VCPU=1"))
    lab.disable("host1", reason="fan")
    scenario = lab.snapshot().fork()
    with pytest.raises(exceptions.ProviderDisabled, match="fan"):
        scenario.claim("job-2", found[1])
    assert not len(scenario)


@pytest.mark.parametrize("wrong", [[], {"host0": "VCPU=1"}, "VCPU=1", None, [3]])
def test_only_what_was_found_is_taken(lab, wrong):
    scenario = lab.snapshot().fork()
    with pytest.raises((exceptions.InvalidAmount, exceptions.NoCandidates)):
        scenario.claim("job-2", wrong)
    assert not len(scenario)


def test_there_is_nothing_to_undo_where_nothing_was_done(lab):
    scenario = lab.snapshot().fork()
    with pytest.raises(exceptions.InvalidField, match="undo"):
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
