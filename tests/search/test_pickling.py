"""Snapshots, candidates and explanations in other processes; a ledger refuses to go there."""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import pickle

import pytest

import resource_objects as ro
from resource_objects.requests import Gang, Member, Request
from resource_objects.scheduler import Scheduler
from resource_objects.search import Candidates, Explanation, Snapshot
from resource_objects.search.fleet_io import columns_of
from tests.search import device_fleets, numa_fleets, worlds
from tests.support.lengths import some

SORTS = sorted(set(worlds.SORTS) - {"server groups"})  # which are filters of a scheduler


def again(value):
    """Return a value as another process receives it."""
    return pickle.loads(pickle.dumps(value))


def told(explanation):
    return [
        explanation.answer,
        *map(str, explanation.nearest()),
        *map(str, explanation.stages),
        *map(str, explanation.reasons),
    ]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("start", some(range(0, 40, 20)))
def test_explanations_are_the_same_after_a_pickle(sort, start):
    for seed in range(start, start + 3):
        explanation = worlds.SORTS[sort](seed).explained()
        expected = told(again(explanation))
        assert told(explanation) == expected, seed


@pytest.mark.parametrize("fleets", [device_fleets, numa_fleets])
@pytest.mark.parametrize("seed", range(4))
def test_snapshots_and_candidates_are_the_same_after_a_pickle(fleets, seed):
    ledger, request = fleets.fleet(seed)
    with ledger:
        for number in range(2):  # read, then refreshed after a claim
            snapshot = ledger.snapshot()
            found = snapshot.candidates(request, limit=None)
            other, there = again((snapshot, found))
            assert columns_of(other._fleet) == columns_of(snapshot._fleet)
            assert (other.at, other.cursor, other.refreshed) == (
                snapshot.at,
                snapshot.cursor,
                snapshot.refreshed,
            )
            assert list(there) == list(found) == list(other.candidates(request, limit=None))
            assert (there.steps, there.cut_short) == (found.steps, found.cut_short)
            assert told(there.explain()) == told(found.explain())
            if found:
                name = f"pickled-{number}"
                other.fork().claim(name, there)
                ledger.claim(name, there)


@pytest.fixture
def lab():
    with ro.connect("memory://") as ledger:
        ledger.sync(*(ro.Provider(f"host{number}", "VCPU=8") for number in range(3)))
        ledger.claim("job-1", {"host0": "VCPU=3"})
        yield ledger


def test_what_is_loaded_cannot_be_written_either(lab):
    snapshot = again(lab.snapshot())
    with pytest.raises(ro.exceptions.FrozenValue):
        snapshot.at = "host0"
    fleet = snapshot._fleet
    for array in (fleet.parent, fleet.inventories.used, fleet.rows("VCPU").free):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    scenario = snapshot.fork()
    scenario.claim("job-2", scenario.candidates("VCPU=8"))
    scenario.claim("job-3", scenario.candidates("VCPU=8"))
    assert (scenario.snapshot.free("VCPU"), snapshot.free("VCPU")) == (5, 21)


def test_a_copy_of_what_never_changes_is_itself(lab):
    found = lab.snapshot().candidates("VCPU=9")
    for value in (lab.snapshot(), found, found.explain()):
        assert copy.copy(value) is value
        assert copy.deepcopy([value])[0] is value


def test_what_is_loaded_is_claimed_and_searched_again_after_a_lost_race(lab):
    found = again(lab.snapshot().candidates("VCPU=8", limit=1))
    lab.claim("faster", {"host1": "VCPU=8"})
    assert lab.claim("job-2", found).allocations[0].provider == "host2"
    with pytest.raises(ro.NoCandidates) as refused:
        lab.claim("job-3", found)
    assert str(again(refused.value)) == str(refused.value)


@pytest.mark.parametrize("spread", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_ledger_is_neither_pickled_nor_copied(lab, spread):
    expected = r"a Ledger cannot be pickled or copied; call connect\(\) in each process"
    for value in (lab, [lab], Scheduler(lab)):
        if spread is not copy.copy or value is lab:
            with pytest.raises(TypeError, match=expected):
                spread(value)


def test_filters_of_a_scheduler_are_not_pickled_but_the_refusal_is(lab):
    scheduler = Scheduler(lab)
    found = scheduler.candidates("VCPU=9")
    for value in (found, found.explain()):
        with pytest.raises(TypeError, match="filters and weighers of a scheduler cannot be"):
            pickle.dumps(value)
        assert copy.copy(value) is value
    with pytest.raises(ro.NoCandidates) as refused:
        scheduler.select_destinations("VCPU=9")
    assert again(refused.value).reasons == refused.value.reasons


def search(snapshot: Snapshot, amount: int) -> tuple[Snapshot, Candidates, Explanation]:
    """Search in another process."""
    found = snapshot.candidates(f"VCPU={amount}")
    return snapshot, found, found.explain()


def claim(found: Candidates) -> None:
    """Claim in a ledger of another process what is not there."""
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("small", "VCPU=1"))
        ledger.claim("job-2", ledger.snapshot().candidates(found.request))


def test_a_pool_of_processes_searches(lab):
    """Started anew, as on every system but Linux: nothing is inherited."""
    spawn = multiprocessing.get_context("spawn")
    snapshot = lab.snapshot()
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        there, found, _ = pool.submit(search, snapshot, 6).result()
        assert [one.host for one in found] == ["host1", "host2"]
        assert there.free("VCPU") == snapshot.free("VCPU")
        _, none, explanation = pool.submit(search, snapshot, 9).result()
        assert not none
        assert told(explanation) == told(snapshot.candidates("VCPU=9").explain())
        refused = pool.submit(claim, found).exception()
        assert isinstance(refused, ro.NoCandidates)
        assert str(refused) == "no candidate for job-2: small: VCPU requested 6, free 1 of 1"
        with pytest.raises(TypeError, match="a Ledger cannot be pickled"):
            pool.submit(search, lab, 6).result()


def test_the_shortage_of_a_gang_is_explained_after_a_pickle(lab):
    fit = lab.snapshot().fit_gang(Gang([Member("worker", Request("VCPU=9"))]))
    (shortage,) = again(fit).shortages
    assert shortage.explanation.answer == fit.shortages[0].explanation.answer
