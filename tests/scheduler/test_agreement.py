"""One host and all at once: what a filter or weigher says of each, it says of all."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import plugins
from resource_objects.scheduler.filters.base import ColumnarFilter
from resource_objects.scheduler.pipeline import FILTERS, WEIGHERS, Pipeline
from resource_objects.scheduler.reports import Reports
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers.base import ColumnarWeigher
from tests.scheduler import fleets
from tests.support.lengths import some


def test_every_filter_and_weigher_of_ours_is_compared():
    assert set(fleets.FILTERS) == set(plugins.BUILT_IN[FILTERS])
    assert set(fleets.WEIGHERS) == set(plugins.BUILT_IN[WEIGHERS])


@functools.lru_cache(40)  # those that a test asks: the next one asks the same
def asked(seed):
    ledger = fleets.ledger(seed)
    return HostStates(ledger.snapshot().fleet, Reports(ledger)), fleets.spec(seed)


@pytest.mark.law(5)
@pytest.mark.parametrize("name", fleets.FILTERS)
@pytest.mark.parametrize("start", some(range(0, 400, 40), 2))
def test_a_filter_passes_at_once_those_that_it_does_not_refuse_one_by_one(name, start):
    found = set()
    for seed in range(start, start + 40):
        hosts, spec = asked(seed)
        pipeline = Pipeline.of({name: fleets.FILTERS[name]})
        (filter_,) = (one.filter for one in pipeline.filters if one.name == name)
        assert isinstance(filter_, ColumnarFilter)
        refusals = [filter_.refuses(host, spec) for host in hosts.values()]
        assert all(one is None or one for one in refusals)
        assert filter_.passing(hosts, spec).tolist() == [one is None for one in refusals], seed
        found.update(one is None for one in refusals)
    assert found == ({True} if name == "aggregate_ratios" else {True, False})


@st.composite
def machines(draw):
    """Return a host whose CPUs and GPUs several providers have."""
    host = ro.Provider("h", {"VCPU": draw(st.integers(1, 4))} if draw(st.booleans()) else {})
    for number in range(draw(st.integers(1, 3))):
        rules = draw(st.sampled_from(["", "", ":max_unit=2", ":min_unit=2"]))
        host.add(f"h/a{number}", f"VCPU={draw(st.integers(2, 4))}{rules}")
    for number in range(draw(st.integers(0, 3))):
        host.add(f"h/gpu{number}", f"PGPU={draw(st.integers(1, 2))}")
    return host


@pytest.mark.law(5)
@given(machines(), st.integers(0, 3), st.integers(1, 9))
def test_what_a_host_can_provide_is_what_a_search_gives_of_it(host, taken, asked):
    with ro.connect("memory://") as ledger:
        ledger.sync(host)
        for number in range(taken):
            found = ledger.snapshot().candidates("VCPU=1")
            if found:
                ledger.claim(f"job-{number}", found)
        snapshot = ledger.snapshot()
        (state,) = HostStates(snapshot.fleet).values()
        for name, inventory in state.inventories.by_name():
            found = bool(snapshot.candidates({name: asked}))
            assert inventory.can_provide(ro.IntegerAmount(asked)) == found


@pytest.mark.law(5)
@pytest.mark.parametrize("name", fleets.WEIGHERS)
@pytest.mark.parametrize("start", some(range(0, 400, 40), 2))
def test_a_weigher_weighs_at_once_as_it_weighs_one_by_one(name, start):
    differ = 0
    for seed in range(start, start + 40):
        hosts, spec = asked(seed)
        (one,) = Pipeline.of((), {name: fleets.WEIGHERS[name]}).weighers
        assert isinstance(one.weigher, ColumnarWeigher)
        weights = [one.weigher.weigh(host, spec) for host in hosts.values()]
        assert one.weigher.weights(hosts, spec).tolist() == pytest.approx(weights), seed
        differ += len(set(weights)) > 1
    assert differ > 2
