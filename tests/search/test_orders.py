"""Orders: which hosts come first, the same ones whatever the order, and the same again."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects import connect, devices
from resource_objects.providers import Provider
from resource_objects.providers.provider import Share
from resource_objects.requests import Request, RequestGroup
from resource_objects.search import Snapshot
from resource_objects.search.order import MOST, Options, Order
from resource_objects.testing.refusals import raises_code
from tests.ledger.device_hosts import FUNCTION, card, host_of
from tests.search import device_fleets, numa_fleets
from tests.support.columns import columns_of
from tests.support.fleets import cases
from tests.support.fleets import fleet as fleets_fleet
from tests.support.fleets import request as fleets_request
from tests.support.lengths import examples

TRAITS = ["CUSTOM_A", "CUSTOM_B"]


def snapshot(*roots: Provider) -> Snapshot:
    return Snapshot(columns_of(roots))


def hosts(kept: Snapshot, request: object, **options: object) -> list[str]:
    return [one.host for one in kept.candidates(request, limit=None, **options)]


orders = st.builds(
    Order,
    st.sampled_from(["name", "pack", "spread", "random"]),
    weights=st.dictionaries(
        st.sampled_from(["VCPU", "PGPU", "CUSTOM_NOBODY"]), st.sampled_from([0, 0.5, 3, MOST])
    ),
    preferred=st.dictionaries(st.sampled_from(TRAITS), st.sampled_from([-MOST, -1, 0, 2, MOST])),
    among=st.sampled_from([None, 1, 2, 50]),
)
seeds = st.sampled_from([None, 0, 1, 2**70])


# --- the same ones, and the same again ---


@pytest.mark.law(9)
@pytest.mark.parametrize("compatibility", [None, "placement"], ids=["ours", "placement"])
@settings(max_examples=examples(60))
@given(order=orders, seed=seeds, chance=st.randoms(use_true_random=False))
def test_every_order_finds_the_same_hosts_and_the_same_again(compatibility, order, seed, chance):
    roots = fleets_fleet(chance, shares=compatibility is None)
    request = fleets_request(chance, roots, compatibility=compatibility)
    kept = snapshot(*roots)
    plain = kept.candidates(request, limit=None, per_host=10**6)
    found = kept.candidates(request, limit=None, per_host=10**6, order=order, seed=seed)
    assert len(found) == len(plain)
    if compatibility is None:
        assert sorted(one.host for one in found) == sorted(one.host for one in plain)
    again = snapshot(*roots).candidates(request, limit=None, per_host=10**6, order=order, seed=seed)
    assert list(found) == list(again)
    assert list(found.explain().by_host()) == list(plain.explain().by_host())


@pytest.mark.drawn
@pytest.mark.law(9)
@pytest.mark.parametrize("by", ["pack", "spread", "random"])
@pytest.mark.parametrize("fleet", [device_fleets.fleet, numa_fleets.fleet], ids=["pci", "numa"])
def test_every_order_finds_the_hosts_of_topologies_and_devices(fleet, by):
    for seed in range(examples(120)):
        ledger, request = fleet(seed)
        kept = ledger.snapshot()
        plain = kept.candidates(request, limit=None)
        found = kept.candidates(request, limit=None, order=by, seed=seed)
        if not plain.cut_short and not found.cut_short:
            assert sorted(one.host for one in found) == [one.host for one in plain], seed


@pytest.mark.law(9)
def test_random_is_by_the_seed_alone_which_is_0_unless_told():
    kept = snapshot(*(Provider(f"host{number:02}", "VCPU=4") for number in range(20)))
    by_seed = [hosts(kept, "VCPU=1", order="random", seed=seed) for seed in (None, 0, 1, 1)]
    assert by_seed[0] == by_seed[1] != by_seed[2] == by_seed[3]
    assert by_seed[0] != sorted(by_seed[0])


@pytest.mark.parametrize(
    ("by", "seed", "next_"), [("pack", None, 9), ("pack", 4, 5), ("random", None, 9)]
)
def test_a_search_anew_is_shuffled_among_more_and_all_else_is_the_same(by, seed, next_):
    options = Options(3, 2, Order(by), seed, 77)
    again = options.again(9)
    assert again == dataclasses.replace(options, seed=next_, order=Order(by, among=40))
    assert again.again(9).order.among == 160


# --- fullness ---


def full(capacity: int, used: int, request: int = 0) -> float:
    return (used + request) / capacity if capacity else 0.0


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(*(st.tuples(st.integers(1, 20), st.integers(0, 20)) for _ in range(2))),
        min_size=1,
        max_size=6,
    ),
    st.tuples(st.integers(1, 3), st.integers(0, 3)),
    st.tuples(*[st.sampled_from([0.0, 1.0, 2.5])] * 2),
)
def test_pack_and_spread_go_by_how_full_hosts_would_be(figures, asked, weights):
    roots, fullness = [], {}
    names = ("VCPU", "CUSTOM_X")
    amounts = {name: amount for name, amount in zip(names, asked, strict=True) if amount}
    for number, each in enumerate(figures):
        told = [(total, min(used, total)) for total, used in each]
        text = ",".join(
            f"{name}={total}:used={used}" for name, (total, used) in zip(names, told, strict=True)
        )
        name = f"host{number}"
        roots.append(Provider(name, text))
        if all(amount <= total - used for (total, used), amount in zip(told, asked, strict=True)):
            fullness[name] = sum(
                weight * full(total, used, amount)
                for weight, (total, used), amount in zip(weights, told, asked, strict=True)
            )
    kept = snapshot(*roots)
    by_name = dict(zip(names, weights, strict=True))
    for by, sign in (("pack", -1), ("spread", 1)):
        found = hosts(kept, amounts, order=Order(by, weights=by_name))
        assert sorted(found) == sorted(fullness)
        told = [sign * fullness[name] for name in found]
        assert all(a <= b + 1e-9 for a, b in itertools.pairwise(told))


def test_what_is_used_elsewhere_because_of_shares_is_not_free():
    """Both have two slices left; of the first all else is taken as slices, and nothing as GPUs.

    host0   SLICES 8, 6 used        GPU 8, each one slice
    host1   SLICES 8, 4 used        GPU 8, each one slice
    """
    roots = []
    for name, used in (("host0", 6), ("host1", 4)):
        root = Provider(name, f"CUSTOM_SLICE=8:used={used}")
        shares = [Share(resource_class="PGPU", of=name, of_class="CUSTOM_SLICE", factor=1)]
        root.add(f"{name}/gpu", "PGPU=8", shares=shares)
        roots.append(root)
    kept = snapshot(*reversed(roots))
    assert hosts(kept, "PGPU=1", order="pack") == ["host0", "host1"]
    assert hosts(kept, "PGPU=1", order="spread") == ["host1", "host0"]


def test_a_host_that_has_nothing_of_a_class_is_no_error_in_any_order():
    """What has no capacity is not full; what is over-full is fuller than full."""
    pool = Provider("pool", "DISK_GB=9", traits=["MISC_SHARES_VIA_AGGREGATE"], aggregates=["r"])
    empty = Provider("host0", "VCPU=4,DISK_GB=1:reserved=1", aggregates=["r"])
    other = Provider("host1", "VCPU=4:used=1", aggregates=["r"])
    over = Provider("host2", "VCPU=4,DISK_GB=2:used=9", aggregates=["r"])
    kept = snapshot(pool, empty, other, over)
    for compatibility in (None, "placement"):
        request = Request("VCPU=1,DISK_GB=1", compatibility=compatibility)
        assert hosts(kept, request, order="spread") == ["host0", "host1", "host2"]
        assert hosts(kept, request, order="pack") == ["host2", "host1", "host0"]


@pytest.mark.parametrize("order", ["pack", "spread"])
def test_what_no_class_is_weighed_for_is_taken_by_name(order: str) -> None:
    request = Request({"DEVICES": devices(FUNCTION)})
    with connect("memory://") as ledger:
        ledger.sync(*(host_of(card(1, 4), name) for name in ("host1", "host0")))
        for number in range(2):  # with all hosts weighed, and with those that were touched since
            found = ledger.snapshot().candidates(request, order=order)
            assert [one.host for one in found] == ["host0", "host1"]
            ledger.claim(f"job{number}", found)


# --- inside a host ---


def test_who_of_a_host_gives_is_by_the_order_too_and_pools_stay_last():
    root = Provider("host", "MEMORY_MB=4", aggregates=["r"])
    for number, used in enumerate((1, 3, 2)):
        root.add(f"host/{number}", f"DISK_GB=4:used={used}")
    pool = Provider("pool", "DISK_GB=9:used=8", traits=["MISC_SHARES_VIA_AGGREGATE"])
    pool.update(aggregates=["r"])
    kept = snapshot(root, pool)
    beside = [RequestGroup("MEMORY_MB=1", suffix="_2")]  # else a host would give nothing itself
    by_group = Request(groups=[RequestGroup("DISK_GB=1", suffix="_1"), *beside])
    for asked in (Request("DISK_GB=1", groups=beside), by_group):
        for by, expected in (("pack", "120"), ("spread", "021")):
            found = kept.candidates(asked, limit=None, per_host=9, order=by)
            disks = [one for each in found for one in each.allocations
                     if one.resource_class == "DISK_GB"]  # fmt: skip
            given_by = [one.provider for one in disks]
            assert given_by == [f"host/{number}" for number in expected] + ["pool"]


# --- preferred traits ---


def test_each_trait_that_some_provider_of_a_host_has_counts_once():
    """A trait counts for the host, however many of its providers have it, and which."""
    apart = Provider("host2", "VCPU=4")
    apart.add("host2/0", "PGPU=1", traits=["CUSTOM_A"])
    apart.add("host2/1", "PGPU=1", traits=["CUSTOM_B"])
    one = Provider("host1", "VCPU=4", traits=["CUSTOM_B"])
    many = Provider("host0", "VCPU=4")
    for number in range(3):
        many.add(f"host0/{number}", "PGPU=1", traits=["CUSTOM_A"])
    kept = snapshot(many, one, apart)
    both = Order(preferred={"CUSTOM_A": 1, "CUSTOM_B": 1.5})
    assert hosts(kept, "VCPU=1", order=both) == ["host2", "host1", "host0"]
    neither = Order(preferred={"CUSTOM_A": -1, "CUSTOM_B": -1.5})
    assert hosts(kept, "VCPU=1", order=neither) == ["host0", "host1", "host2"]
    against = Order(preferred={"CUSTOM_A": -1, "CUSTOM_B": 1.5})
    assert hosts(kept, "VCPU=1", order=against) == ["host1", "host2", "host0"]


# --- near the best ---


@settings(max_examples=examples(30))
@given(st.integers(0, 10**9), st.integers(1, 7))
def test_a_seed_shuffles_those_near_the_best_and_lets_no_other_in(seed, among):
    kept = snapshot(*(Provider(f"host{n:02}", f"VCPU=40:used={n}") for n in range(20)))
    plain = hosts(kept, "VCPU=1", order="spread")
    found = hosts(kept, "VCPU=1", order=Order("spread", among=among), seed=seed)
    for start in range(0, 20, among):
        block = slice(start, start + among)
        assert sorted(found[block]) == sorted(plain[block])


@pytest.mark.law(9)
@settings(max_examples=examples(40))
@given(order=orders, seed=seeds, limit=st.integers(1, 6), case=cases())
def test_a_limit_takes_the_first_in_any_order(order, seed, limit, case):
    kept = snapshot(*case.roots)
    options = {"per_host": 3, "order": order, "seed": seed}
    whole = list(kept.candidates(case.request, limit=None, **options))
    assert list(kept.candidates(case.request, limit=limit, **options)) == whole[:limit]


# --- what is no order ---


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ({"weights": {"VCPU": 10**400}}, "weights VCPU"),
        ({"weights": {"VCPU": -1}}, "weights VCPU"),
        ({"weights": {"VCPU": float("nan")}}, "weights VCPU"),
        ({"weights": {"VCPU": True}}, "weights VCPU"),
        ({"preferred": {"CUSTOM_A": float("inf")}}, "preferred CUSTOM_A"),
        ({"preferred": {"CUSTOM_A": -1e13}}, "preferred CUSTOM_A"),
        ({"preferred": ["CUSTOM_A"]}, "preferred"),
        ({"among": 0}, "among"),
        ({"among": True}, "among"),
    ],
    ids=str,
)
def test_what_is_no_order_is_refused_by_name(given_, told):
    with raises_code("InvalidRequest", match=f"^{told}: "):
        Order("pack", **given_)


@pytest.mark.parametrize("seed", [-1, 1.0, True, "1"], ids=str)
def test_what_is_no_seed_is_refused(seed):
    with raises_code("InvalidRequest", match="seed"):
        snapshot(Provider("h", "VCPU=1")).candidates("VCPU=1", seed=seed)


def test_schedulers_that_say_a_seed_want_different_hosts():
    kept = snapshot(*(Provider(f"host{n:02}", "VCPU=8") for n in range(64)))

    def first(order, seed=None):
        return hosts(kept, "VCPU=1", order=Order(order, among=16), seed=seed)[0]

    for order in ("pack", "spread"):
        assert {first(order) for _ in range(4)} == {"host00"}  # all but one lose the race
        assert len({first(order, seed) for seed in range(16)}) > 8


@pytest.mark.law(9)
@pytest.mark.parametrize("alike", [1, 3, 50, 400])
@pytest.mark.parametrize("seed", [None, 5])
def test_the_first_hosts_are_those_of_all_in_order(alike, seed):
    hosts = [Provider(f"host{n:03}", {"VCPU": 4 + n % (400 // alike)}) for n in range(400)]
    snapshot = Snapshot(columns_of(hosts))
    for order in ("pack", "spread", Order("spread", among=7), "random"):
        every = [
            one.host for one in snapshot.candidates("VCPU=2", limit=None, order=order, seed=seed)
        ]
        assert len(set(every)) == 400
        for limit in (1, 20, 63, 64, 65, 100):
            found = snapshot.candidates("VCPU=2", limit=limit, order=order, seed=seed)
            assert [one.host for one in found] == every[:limit]
