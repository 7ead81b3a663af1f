"""A search under limits finds what the naive ones find where so much more is in use."""

import dataclasses
import random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import Provider
from resource_objects.reasons import Reason, Rule
from resource_objects.search.snapshot import Snapshot
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
from tests.ledger.numa_hosts import cells
from tests.search import device_fleets, generated, numa_fleets, oracle
from tests.support import naive_search
from tests.support.columns import columns_of
from tests.support.fleets import alike, cases, fleet, request
from tests.support.lengths import examples, some

# --- against the naive searches ---


def drawn(chance, columns):
    """Return limits of some inventories, by provider and class."""
    rows = list(zip(*columns.inventories[:2], strict=True))
    names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
    capacity = dict(zip(rows, columns.inventories.capacity, strict=True))
    limits = {}
    for number, name in chance.sample(rows, chance.randint(0, min(4, len(rows)))):
        most = capacity[number, name] + 1
        limits.setdefault(names[number], {})[name] = chance.choice(
            [chance.randint(0, most), most // 2, 0]
        )
    return limits


def under(columns, limits):
    """Return columns in which what limits hold back is in use, of that inventory alone."""
    names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
    table = columns.inventories
    used = []
    for number, name, capacity, count in zip(
        table.provider_id, table.resource_class, table.capacity, table.used, strict=True
    ):
        total = limits.get(names[number], {}).get(name, capacity)
        used.append(count + max(0, capacity - total))
    return dataclasses.replace(columns, inventories=table._replace(used=tuple(used)))


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("start", some(range(0, 1200, 60)))
def test_every_candidate_within_limits_is_listed_once(start):
    for seed in range(start, start + 60):
        chance = random.Random(seed)
        roots = fleet(chance, shares=seed % 4 != 0)
        asked = request(chance, roots)
        columns = columns_of(roots)
        oracle.check_under(columns, under, drawn(chance, columns), asked)


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("start", some(range(0, 240, 30)))
def test_equal_devices_under_limits_are_listed_once(start):
    for seed in range(start, start + 30):
        chance = random.Random(seed)
        case = alike(chance, shares=seed % 2 == 0)
        columns = columns_of(case.roots)
        oracle.check_under(columns, under, drawn(chance, columns), case.request)


@pytest.mark.law(5)
@settings(max_examples=examples(200))
@given(cases(), st.randoms(use_true_random=False))
def test_every_candidate_within_limits_in_the_smallest_case(case, chance):
    columns = columns_of(case.roots)
    limits = drawn(chance, columns)
    found = oracle.check_under(columns, under, limits, case.request)
    event("possible" if found else "impossible")


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("make", [generated.mixed, generated.crowded])
@pytest.mark.parametrize("start", some(range(0, 400, 80)))
def test_the_same_hosts_are_found_whatever_is_shared(make, start):
    for seed in range(start, start + 80):
        roots, asked = make(seed)
        columns = columns_of(roots)
        limits = drawn(random.Random(seed), columns)
        found = Snapshot(columns).candidates(asked, limit=None, limits=limits)
        fits = naive_search.hosts_that_fit(under(columns, limits), asked)
        assert [one.host for one in found] == fits, seed
        check_told(found, limits)


def check_told(found, limits):
    """Every host is found or told of; a limit is named only where there is one, and it says no."""
    told = dict(found.explain().by_host())
    assert not {one.host for one in found} & told.keys()
    for reasons in told.values():
        assert reasons
        for reason in reasons:
            if reason.rule is Rule.LIMIT:
                assert reason.requested > reason.free
                assert any(reason.resource in there for there in limits.values())


@pytest.mark.law(4, 5, 6)
@pytest.mark.parametrize("make", [numa_fleets.fleet, device_fleets.fleet])
@pytest.mark.parametrize("start", some(range(0, 480, 40)))
def test_cells_and_devices_within_limits(make, start):
    """The search and the claim find a place where there is one, and each candidate can be had."""
    for seed in range(start, start + 40):
        ledger, asked = make(seed)
        columns = ledger.backend.read()
        limits = drawn(random.Random(seed), columns)
        found = ledger.snapshot().candidates(asked, limit=None, limits=limits)
        if make is numa_fleets.fleet:
            fits = naive_search.hosts_that_fit(under(columns, limits), asked)
            assert [one.host for one in found] == fits, seed
        check_told(found, limits)
        for one in found:
            ledger.claim("try", one, limits=limits)
            ledger.release("try")
            amounts = dict(asked.unnamed.resources.by_name())
            if all(ro.resource(name).is_placed for name in amounts):  # the claim has to place it
                ledger.claim("try", {one.host: amounts}, limits=limits)
                ledger.release("try")
        ledger.close()


# --- against arithmetic ---

figures = st.fixed_dictionaries(
    {"total": st.integers(1, 9), "used": st.integers(0, 9), "limit": st.none() | st.integers(0, 12)}
)


@pytest.mark.law(4, 5, 6)
@settings(max_examples=examples(200))
@given(
    st.lists(st.fixed_dictionaries({"VCPU": figures, "MEMORY_MB": figures}), max_size=3),
    st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB"]), st.integers(1, 9), min_size=1),
)
def test_search_and_claim_do_what_the_figures_say(hosts, asked):
    """A host is found, and can be claimed, where no more is used than both bounds allow."""
    with ro.connect("memory://") as ledger:
        expected, limits = {}, {}
        for number, host in enumerate(hosts):
            name = f"host{number}"
            ledger.sync(Provider(name, {kind: one["total"] for kind, one in host.items()}))
            held = {kind: min(one["used"], one["total"]) for kind, one in host.items()}
            if any(held.values()):
                ledger.claim(f"job-{number}", {name: held})
            bounds = {kind: one["limit"] for kind, one in host.items()}
            limits[name] = {kind: n for kind, n in bounds.items() if n is not None}
            expected[name] = {
                (rule, kind, amount, bound, held[kind])
                for kind, amount in asked.items()
                for rule, bound in [tighter(host[kind]["total"], bounds[kind])]
                if held[kind] + amount > bound
            }
        found = ledger.snapshot().candidates(asked, limits=limits)
        assert [one.host for one in found] == [name for name, why in expected.items() if not why]
        told = dict(found.explain().by_host())
        for name, why in expected.items():
            assert figures_of(told.get(name, ())) == why
            try:
                ledger.claim("try", {name: asked}, limits=limits)
            except exceptions.CapacityException as refusal:
                assert figures_of(refusal.reasons) == why
            else:
                assert not why
                ledger.release("try")


def tighter(total, limit):
    if limit is not None and limit < total:
        return Rule.LIMIT, limit
    return Rule.CAPACITY, total


def figures_of(reasons):
    """Return what reasons say; a claim beyond the total is told so, as one claim takes no more."""
    return {(one.rule, one.resource, one.requested, one.bound, one.used) for one in reasons}


# --- what is told ---


@pytest.fixture
def ledger():
    with ro.connect("memory://") as opened:
        yield opened


def test_a_host_over_its_limit_is_no_candidate_and_says_why(ledger):
    ledger.sync(*(Provider(f"host{n}", "VCPU=8,MEMORY_MB=4096") for n in range(3)))
    ledger.claim("other", {"host0": "VCPU=3"})
    found = ledger.snapshot().candidates("VCPU=3", limits={"host0": "VCPU=5", "host1": "VCPU=2"})
    assert [one.host for one in found] == ["host2"]
    assert dict(found.explain().by_host()) == {
        "host0": (Reason(Rule.LIMIT, 3, 5, 3, "VCPU", "host0", holders=(("other", 3),)),),
        "host1": (Reason(Rule.LIMIT, 3, 2, 0, "VCPU", "host1"),),
    }
    assert ledger.snapshot().free("VCPU") == 21  # a snapshot itself has none


def test_the_capacity_is_named_where_it_is_less(ledger):
    ledger.sync(Provider("host0", "VCPU=8"))
    for limit, rule in (("VCPU=8", Rule.CAPACITY), ("VCPU=7", Rule.LIMIT)):
        found = ledger.snapshot().candidates("VCPU=9", limits={"host0": limit})
        [reason] = found.explain().reasons
        assert (reason.rule, reason.bound) == (rule, int(limit[-1]))


def test_a_cell_under_a_limit_leaves_the_others(ledger):
    ledger.sync(host_of("host0", cells()))
    asked = "NUMA_TOPOLOGY=1:shared=2:memory=512"
    limits = {"host0/numa0": "VCPU=1"}
    [one] = ledger.snapshot().candidates(asked, limits=limits)
    assert list(one.by_provider()) == ["host0/numa1"]
    claim = ledger.claim("first", {"host0": asked}, limits=limits)
    assert list(claim.by_provider()) == ["host0/numa1"]
    both = {**limits, "host0/numa1": "MEMORY_MB=600"}
    found = ledger.snapshot().candidates(asked, limits=both)
    assert str(found.explain()) == (
        "host0: cell 0: VCPU requested 2, free 1 under the limit of 1; "
        "cell 1: MEMORY_MB requested 512, free 88 under the limit of 600 (first holds 512)"
    )
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("second", {"host0": asked}, limits=both)
    assert {reason.rule for reason in refused.value.reasons} == {Rule.LIMIT}


def test_a_search_in_a_part_of_a_tree_keeps_the_limit_of_the_host(ledger):
    ledger.sync(host_of("host0", cells()))
    asked = "NUMA_TOPOLOGY=1:shared=2:memory=512"
    part = ledger.snapshot(at="host0/numa1")
    assert list(part.candidates(asked, limits={"host0": "VCPU=2"}))
    found = part.candidates(asked, limits={"host0": "VCPU=1"})
    assert not found and {one.rule for one in found.explain().reasons} == {Rule.LIMIT}


def test_what_was_found_under_limits_is_claimed_under_them(ledger):
    ledger.sync(*(Provider(f"host{n}", "VCPU=8") for n in range(2)))
    limits = {"host0": "VCPU=4", "host1": "VCPU=2"}
    found = ledger.snapshot().candidates("VCPU=2", limits=limits)
    assert len(found) == 2
    ledger.claim("other", {"host0": "VCPU=3"})
    assert list(ledger.claim("job", found).by_provider()) == ["host1"]
    for take in (ledger.claim, ledger.replace):
        with pytest.raises(exceptions.NoCandidates) as refused:
            take("more", found)
        assert {one.rule for one in refused.value.reasons} == {Rule.LIMIT}
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("more", found, limits={"host0": "VCPU=8", "host1": "VCPU=8"})
    assert not ledger.is_satisfiable(ledger.snapshot().candidates("VCPU=5", limits=limits))


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"nobody": "VCPU=1"}, "ProviderNotFound"),
        ({"host0": "VCPU=-1"}, "NegativeAmount"),
        ({"host0": "VPCU=1"}, "UnknownResourceClass"),
        ({"host0": 1}, "InvalidField"),
        (ro.Limits(VCPU=1), "InvalidField"),
    ],
)
def test_what_is_no_limit_is_refused(ledger, limits, error):
    ledger.sync(Provider("host0", "VCPU=8"))
    with raises_code(error):
        ledger.snapshot().candidates("VCPU=1", limits=limits)


def test_what_is_gone_bounds_nothing_when_it_is_searched_again(ledger):
    ledger.sync(*(Provider(f"host{n}", "VCPU=8,DISK_GB=8") for n in range(3)))
    limits = {"host0": "VCPU=4", "host1": "DISK_GB=1,VCPU=1", "host2": "VCPU=4"}
    found = ledger.snapshot().candidates("VCPU=3", limits=limits)
    ledger.remove("host0")
    ledger.change("host2", inventories="VCPU=9")
    assert list(ledger.claim("job", found).by_provider()) == ["host2"]
