"""The capacity report, against sums and searches that anybody can follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions, search
from resource_objects.host import partitions
from resource_objects.requests import Gang, Member, Request
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers.fragmentation import Fragmentation, Workload, fragmentation
from resource_objects.search.how_many import Count
from resource_objects.testing.refusals import raises_code
from tests.search.test_how_many import world
from tests.support.columns import Kept, columns_of
from tests.support.enumerator import candidates
from tests.support.lengths import examples


@pytest.fixture
def ledger() -> Iterator[ro.Ledger]:
    with ro.connect("memory://") as opened:
        yield opened


def gpus(name: str, cpus: int, count: int, *aggregates: str) -> ro.Provider:
    host = ro.Provider(name, f"VCPU={cpus}", aggregates=list(aggregates))
    for number in range(count):
        host.add(f"{name}/gpu{number}", "PGPU=1")
    return host


def test_overcommit_and_what_is_disabled_are_told_apart(ledger: ro.Ledger) -> None:
    many = ro.IntegerInventory(16, reserved=2, allocation_ratio=4)
    ledger.sync(ro.Provider("h0", {"VCPU": many}), ro.Provider("h1", {"VCPU": many}))
    ledger.claim("job-1", {"h0": "VCPU=20"})
    ledger.claim("job-2", {"h1": "VCPU=6"})
    ledger.disable("h1", reason="fan")
    one = ledger.snapshot().report().whole.classes["VCPU"]
    assert (one.total, one.reserved, one.capacity, one.overcommit) == (32, 4, 112, 84)
    assert (one.used, one.free, one.disabled) == (26, 36, 50)
    assert one.largest == 36
    assert one.stranded is None
    assert one.fragment is None


def test_a_device_that_is_out_of_service_is_not_free(ledger: ro.Ledger) -> None:
    ledger.sync(gpus("h0", 4, 2))
    ledger.disable("h0/gpu1", reason="ecc")
    one = ledger.snapshot().report().whole.classes["PGPU"]
    assert (one.capacity, one.free, one.disabled, one.largest) == (2, 1, 1, 1)


def _over_capacity(ledger: ro.Ledger) -> None:
    """Shrink one of two hosts, one of its devices and a pool below their use."""
    sizes = (("VCPU=10", 4, "DISK_GB=100"), ("VCPU=4", 1, "DISK_GB=50"))
    for cpus, devices, disk in sizes:
        host = ro.Provider("n", cpus, aggregates=["row"])
        host.add("n/a", f"PGPU={devices}")
        host.add("n/b", "PGPU=3")
        pool = ro.Provider("p", disk, aggregates=["row"], traits=["MISC_SHARES_VIA_AGGREGATE"])
        ledger.sync(host, ro.Provider("m", "VCPU=2"), pool)
        if cpus == "VCPU=10":
            ledger.claim("a", {"n": "VCPU=8", "n/a": "PGPU=4", "p": "DISK_GB=60"})


def _partly_disabled(ledger: ro.Ledger) -> None:
    """Disable a host, and a device of another one."""
    ledger.sync(gpus("h0", 4, 2), gpus("h1", 8, 2))
    ledger.disable("h0/gpu1", reason="ecc")
    ledger.disable("h1", reason="fan")


def _in_parts(ledger: ro.Ledger) -> None:
    """Allocate a part of one of two devices."""
    host = gpus("h0", 4, 1)
    partitions.thousandths(host.add("h0/gpu1", "PGPU=1"))
    ledger.sync(host)
    ledger.claim("a", {"h0/gpu1": "CUSTOM_PGPU_THOUSANDTHS=500"})


def _of_one_class_twice(ledger: ro.Ledger) -> None:
    """Define a host whose child provides a part of the host's own inventory."""
    host = ro.Provider("h0", "VCPU=8")
    cpus = ro.Share(resource_class="VCPU", of="h0", of_class="VCPU")
    host.add("h0/cell", "VCPU=4", shares=[cpus])
    ledger.sync(host)
    ledger.claim("a", {"h0/cell": "VCPU=3"})


@pytest.mark.parametrize(
    ("build", "free"),
    [
        (_over_capacity, {"VCPU": 2, "PGPU": 3, "DISK_GB": 0}),
        (_partly_disabled, {"VCPU": 4, "PGPU": 1}),
        (_in_parts, {"VCPU": 4, "PGPU": 1, "CUSTOM_PGPU_THOUSANDTHS": 500}),
        (_of_one_class_twice, {"VCPU": 5}),
    ],
)
def test_free_capacity_has_one_definition(
    ledger: ro.Ledger, build: Callable[[ro.Ledger], None], free: dict[str, int]
) -> None:
    build(ledger)
    snapshot = ledger.snapshot()
    report, states = snapshot.report(), HostStates(snapshot.fleet)
    assert {name: snapshot.free(name) for name in snapshot.classes} == free
    assert {name: one.free for name, one in report.whole.classes.items()} == free
    assert {name: int(states.free(name).sum()) for name in snapshot.classes} == free
    assert {name: sum(states[host].free(name) for host in states) for name in free} == free
    of_pools = {"DISK_GB", "CUSTOM_PGPU_THOUSANDTHS"}  # in no line of a host
    lines = [one for line in snapshot.host_usage() for one in line.classes]
    for name in free.keys() - of_pools:
        assert sum(one.free for one in lines if one.resource_class == name) == free[name]
        assert snapshot.how_many(f"{name}=1").total.at_most == free[name]
    assert {name: snapshot.fork().snapshot.free(name) for name in free} == free


def test_racks_and_hosts_add_up(ledger: ro.Ledger) -> None:
    ledger.sync(gpus("a0", 8, 4, "r0"), gpus("a1", 8, 2, "r0"), gpus("b0", 2, 4, "r1"))
    ledger.claim("job-1", {"a0": "VCPU=6"})
    mix = Gang([Member("one", "VCPU=2,PGPU=1", 3), Member("four", "VCPU=4,PGPU=4")])
    report = ledger.snapshot().report(mix, levels={"rack": ["r0", "r1"]})
    assert report.hosts["a0"].fits == {"one": Count(1, 1), "four": Count(0, 0)}
    assert report.levels["rack"]["r0"].fits == {"one": Count(3, 3), "four": Count(0, 0)}
    for name in ("VCPU", "PGPU"):
        parts = [place.classes[name] for place in report.levels["rack"].values()]
        whole = report.whole.classes[name]
        for field in ("total", "capacity", "used", "free", "stranded", "fragment"):
            assert sum(getattr(one, field) for one in parts) == getattr(whole, field), field
    # three of four ask for one, which every host holds: nothing of that is lost; nobody holds four
    assert report.whole.classes["PGPU"].fragmentation == Fraction(1, 4)
    assert report.whole.classes["PGPU"].stranded == 0
    assert report.to_dict()["whole"]["fits"]["one"] == {"at_least": 4, "at_most": 4}


def test_what_nobody_of_the_mix_can_use_is_stranded(ledger: ro.Ledger) -> None:
    ledger.sync(gpus("h0", 4, 4), gpus("h1", 4, 2))
    ledger.claim("greedy", {"h0": "VCPU=4"})
    report = ledger.snapshot().report("VCPU=1,PGPU=1")
    assert report.hosts["h0"].classes["PGPU"].stranded == 4
    assert report.hosts["h1"].classes["PGPU"].stranded == 0
    assert report.whole.classes["PGPU"].fragmentation == Fraction(4, 6)


def test_a_level_without_places_is_refused(ledger: ro.Ledger) -> None:
    ledger.sync(gpus("h0", 4, 4))
    with raises_code("InvalidRequest", match="level"):
        ledger.snapshot().report(levels={"rack": ["nowhere"]})


@pytest.mark.parametrize("used", range(5))
def test_the_fragment_is_that_of_the_weigher(ledger: ro.Ledger, used: int) -> None:
    """One definition (FGD), which the scheduler's weigher computes in its own way."""
    host = ro.Provider("h0", "VCPU=8")
    for number in range(4):
        host.add(f"h0/gpu{number}", "PGPU=1")
    ledger.sync(host)
    for number in range(used):
        ledger.claim(f"job-{number}", {f"h0/gpu{number}": "PGPU=1", "h0": "VCPU=2"})
    mix = {"VCPU=2,PGPU=1": 2, "VCPU=1,PGPU=3": 1, "VCPU=4": 1}
    weigher = Fragmentation(mix)
    members = [Member(f"m{n}", asked, count) for n, (asked, count) in enumerate(mix.items())]
    report = ledger.snapshot().report(Gang(members))
    free = [0] * used + [1] * (4 - used)
    usual = Workload.of(weigher._tasks, ["VCPU"])
    (right,) = fragmentation(np.array([[8 - 2 * used]]), np.array([free]), usual)
    assert float(report.whole.classes["PGPU"].fragment or 0) == pytest.approx(right)


# --- against sums -------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
@settings(max_examples=examples(250))
def test_each_figure_is_what_the_rows_say(seed: int) -> None:
    roots, asked = world(seed)
    columns = columns_of(roots)
    kept = Kept(columns)
    try:
        holding = {found.host for found in candidates(columns, asked)}
    except exceptions.NotFound as error:
        if not error.is_about("provider"):
            raise
        assume(False)
    report = search.Snapshot(columns).report(asked)
    names = {row.number: row.name for row in kept.rows.values()}
    for root in kept.roots():
        host = names[root]
        if host not in report.hosts:
            continue
        places = [(n, c) for n in kept.tree(root) for c in kept.rows[n].stocks]
        for name in {c for _, c in places}:
            some = [place for place in places if place[1] == name]
            some = [
                place
                for place in some
                if all(of not in some for of, _ in kept.shares.get(place, []))
            ]
            one = report.hosts[host].classes[name]
            stocks = [kept.rows[n].stocks[c] for n, c in some]
            free = {place: max(0, kept.left(place)) for place in some}
            assert one.capacity == sum(stock.capacity for stock in stocks)
            assert one.used == sum(stock.used for stock in stocks)
            assert one.free == sum(free.values())
            can = host in holding and _asks(asked, name)
            assert one.stranded == (0 if can else one.free)
            assert one.fragment is not None
            assert 0 <= one.fragment <= one.free
            if not can:
                assert one.fragment == one.free
    event("holds" if holding else "refused")


def _asks(asked: Request, name: str) -> bool:
    return any(str(kind) == name for kind, _ in asked.resources.by_name())


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4]))
@settings(max_examples=examples(100))
def test_a_budget_that_ends_leaves_bounds_of_the_largest(seed: int, budget: int) -> None:
    snapshot = search.Snapshot(columns_of(world(seed)[0]))
    whole, short = snapshot.report(), snapshot.report(budget=budget)
    for host, line in whole.hosts.items():
        for name, right in line.classes.items():
            one = short.hosts[host].classes[name]
            assert one.largest <= right.largest <= one.largest_at_most, (host, name)
            event("known" if one.largest == one.largest_at_most else "bounded")


@given(st.integers(0, 10**6))
@settings(max_examples=examples(150))
def test_the_largest_is_what_the_largest_candidate_has(seed: int) -> None:
    snapshot = search.Snapshot(columns_of(world(seed)[0]))
    for host, line in snapshot.report().hosts.items():
        for name, one in line.classes.items():
            assert one.largest == one.largest_at_most
            for amount in range(max(1, one.largest), min(one.free, one.largest + 9) + 1):
                asked = Request({name: amount}, in_tree=host)
                found = snapshot.candidates(asked, limit=1)
                assert bool(found) == (amount == one.largest), (host, name, amount)
