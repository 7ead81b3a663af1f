"""Our filters and weighers decide all hosts at once; a naive decision of each host agrees."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import plugins
from resource_objects.scheduler.filters.operators import ValueCondition
from resource_objects.scheduler.pipeline import FILTERS, WEIGHERS, Pipeline
from resource_objects.scheduler.states import HostStates, Reports
from tests.scheduler import fleets
from tests.support.lengths import some


def test_every_filter_and_weigher_of_ours_is_compared():
    assert set(fleets.FILTERS) == set(plugins.BUILT_IN[FILTERS])
    assert set(fleets.WEIGHERS) == set(plugins.BUILT_IN[WEIGHERS])


@functools.lru_cache(40)  # those that a test asks: the next one asks the same
def asked(seed):
    ledger = fleets.ledger(seed)
    return HostStates(ledger.snapshot().fleet, Reports(ledger)), fleets.spec(seed)


# --- naive decisions --------------------------------------------------------------------------


def in_zone(host, spec, zones, default):
    inside = host.aggregates & {*zones.get(spec.zone, [spec.zone])}
    in_none = host.aggregates.isdisjoint({name for some in zones.values() for name in some})
    return spec.zone is None or bool(inside) or (spec.zone == default and in_none)


def accepts_project(host, spec, tenants, confined):
    reserved = [projects for name, projects in tenants.items() if name in host.aggregates]
    is_confined = confined and any(spec.project in projects for projects in tenants.values())
    if reserved or is_confined:
        return any(spec.project in projects for projects in reserved)
    return True


def is_not_isolated(host, spec, traits):
    required = {trait for group in spec.full_request.groups for trait in group.required}
    required |= spec.full_request.root_required
    return all(required >= {*traits[name]} for name in host.aggregates & traits.keys())


def has_metadata(host, spec, metadata):
    for key, text in spec.extra_specs.items():
        if key.startswith("aggregate_instance_extra_specs:") or ":" not in key:
            tables = [metadata[name] for name in host.aggregates & metadata.keys()]
            values = [table[name] for table in tables if (name := key.split(":")[-1]) in table]
            if not any(map(ValueCondition.parse(text).is_met, values)):
                return False
    return True


def has_capabilities(host, spec):
    figures = {"vcpus_total": ("VCPU", "capacity"), "free_ram_mb": ("MEMORY_MB", "free")}
    for key, text in spec.extra_specs.items():
        name, is_scoped = key.removeprefix("capabilities:"), key.startswith("capabilities:")
        if not is_scoped and ":" in key:
            continue
        if name in figures:
            kind, figure = figures[name]
            value = getattr(host, figure)(kind) if host.capacity(kind) else None
        else:
            value = statistic.text if (statistic := host.statistic(name)) else None
        if is_scoped if value is None else not ValueCondition.parse(text).is_met(value):
            return False
    return True


def may_join(host, spec):
    group = spec.server_group
    if group is None or group.is_soft:
        return True
    if group.is_apart:
        return len(host.consumers & group.members) < group.max_per_host
    is_anywhere = any(one.consumers & group.members for one in host.hosts.values())
    return bool(host.consumers & group.members) or not is_anywhere


def is_named(host, spec):
    allowed = [names for names in (spec.forced or None, spec.only) if names is not None]
    is_excluded = host.name in spec.ignored or host.name in spec.tried
    return not is_excluded and all(host.name in names for names in allowed)


def has_statistics(host, spec, conditions):
    texts = {name: str(one.value) for name, one in host.statistics.items()}
    return all(
        name in texts and ValueCondition.parse(condition).is_met(texts[name])
        for name, condition in conditions.items()
    )


NAIVE = {
    "hosts": is_named,
    "zones": in_zone,
    "tenants": accepts_project,
    "isolated": is_not_isolated,
    "aggregate_metadata": has_metadata,
    "aggregate_ratios": lambda host, spec, ratios: True,
    "capabilities": has_capabilities,
    "affinity": may_join,
    "statistics": has_statistics,
    "reported": lambda host, spec, within: host.name in host.hosts.reports.seconds_since_report,
}


@pytest.mark.law(5)
@pytest.mark.parametrize("name", fleets.FILTERS)
@pytest.mark.parametrize("start", some(range(0, 400, 40), 2))
def test_a_filter_decides_as_a_naive_one(name, start):
    decisions = set()
    for seed in range(start, start + 40):
        hosts, spec = asked(seed)
        pipeline = Pipeline.of({name: fleets.FILTERS[name]})
        (filter_,) = (one.filter for one in pipeline.filters if one.name == name)
        passing = [NAIVE[name](host, spec, **fleets.FILTERS[name]) for host in hosts.values()]
        assert filter_.passing(hosts, spec).tolist() == passing, seed
        refusals = [filter_.refuses(host, spec) for host in hosts.values()]
        assert [one is None for one in refusals] == passing
        assert all(one is None or one for one in refusals)
        decisions.update(passing)
    assert decisions == ({True} if name == "aggregate_ratios" else {True, False})


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


def free(host, spec, **weights):
    largest = {name: max(one.free(name) for one in host.hosts.values()) for name in weights}
    return sum(w * host.free(name) / max(1, largest[name]) for name, w in weights.items())


def statistics(host, spec, weights, missing):
    values = {name: one.value for name, one in host.statistics.items()}
    return sum(weight * values.get(name, missing) for name, weight in weights.items())


def soft_affinity(host, spec):
    group = spec.server_group
    if group is None or not group.is_soft:
        return 0
    return len(host.consumers & group.members) * (-1 if group.is_apart else 1)


WEIGHTS = {
    "free": free,
    "devices": lambda host, spec: 100 - host.free("PGPU"),
    "statistics": statistics,
    "traits": lambda host, spec, **worth: sum(worth.get(trait, 0) for trait in host.traits),
    "soft_affinity": soft_affinity,
}


@pytest.mark.law(5)
@pytest.mark.parametrize("name", fleets.WEIGHERS)
@pytest.mark.parametrize("start", some(range(0, 400, 40), 2))
def test_a_weigher_weighs_as_a_naive_one(name, start):
    differ = 0
    for seed in range(start, start + 40):
        hosts, spec = asked(seed)
        (one,) = Pipeline.of((), {name: fleets.WEIGHERS[name]}).weighers
        weights = [one.weigher.weigh(host, spec) for host in hosts.values()]
        assert one.weigher.weights(hosts, spec).tolist() == weights
        if name in WEIGHTS:  # test_weighers has the definition of fragmentation
            naive = [WEIGHTS[name](h, spec, **fleets.WEIGHERS[name]) for h in hosts.values()]
            assert weights == pytest.approx(naive), seed
        differ += len(set(weights)) > 1
    assert differ > 2
