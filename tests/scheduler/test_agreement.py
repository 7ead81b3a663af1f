"""One host and all at once: what a filter or weigher says of each, it says of all."""

from __future__ import annotations

import functools

import pytest

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
