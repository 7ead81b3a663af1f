"""How many fit: what is placed can be claimed, and no choice of a small world holds more."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions, search
from resource_objects.requests import Gang, Member, Request, RequestGroup
from resource_objects.resources.pci import DeviceSpec
from resource_objects.search.how_many import Count, HowMany
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
from tests.search import generated
from tests.search.doors import WORLDS
from tests.search.how_many_oracle import TooManyStates, most
from tests.support.columns import columns_of
from tests.support.fleets import alike, fleet
from tests.support.fleets import request as request_for
from tests.support.lengths import examples, some


@pytest.fixture
def ledger() -> Iterator[ro.Ledger]:
    with ro.connect("memory://") as opened:
        yield opened


def claimed(ledger: ro.Ledger, found: HowMany) -> int:
    """Claim all that was placed; return how many claims that makes."""
    if not found.placements:
        return 0
    return len(ledger.claim_all({f"new-{n}": one for n, one in enumerate(found.placements)}))


def group(suffix: str, asked: str) -> RequestGroup:
    return RequestGroup(asked, suffix=suffix)


# --- cases --------------------------------------------------------------------------------------


def test_a_pool_is_counted_once(ledger: ro.Ledger) -> None:
    """Two hosts of one VCPU, a pool of 3: what both may have is counted once."""
    for name in ("h0", "h1"):
        ledger.sync(ro.Provider(name, "VCPU=1", aggregates=["a"]))
    traits = ["MISC_SHARES_VIA_AGGREGATE"]
    ledger.sync(ro.Provider("pool", "DISK_GB=3", aggregates=["a"], traits=traits))
    snapshot = ledger.snapshot()
    assert str(snapshot.how_many("VCPU=1,DISK_GB=1")) == "2"
    assert str(snapshot.how_many("VCPU=1,DISK_GB=2")) == "1"
    assert {h: str(c) for h, c in snapshot.how_many("VCPU=1,DISK_GB=2").by_host.items()} == {
        "h0": "1",
        "h1": "1",
    }
    mix = Gang([Member("large", "VCPU=1,DISK_GB=2"), Member("small", "VCPU=1,DISK_GB=1")])
    assert snapshot.how_many(mix).total == Count(1, 1)


def test_devices_give_together_before_a_pool_gives_all() -> None:
    """A pool that gives all of it leaves nothing of the host itself, which has to give something.

    A ledger lets nobody count a class twice so; a picture of a Placement may have it.
    """
    host = ro.Provider("host0", "VCPU=8", aggregates=["a"])
    for number in range(3):
        host.add(f"host0/{number}", "PGPU=1")
    traits = ["MISC_SHARES_VIA_AGGREGATE"]
    pool = ro.Provider("pool", "PGPU=8", aggregates=["a"], traits=traits)
    snapshot = search.Snapshot(columns_of([host, pool]))
    found = snapshot.how_many("PGPU=2")
    assert found.total == Count(5, 5)
    assert str(found.placements[0]) == "PGPU=1 of host0/0, PGPU=1 of host0/1"
    taken = {f"new-{n}": one for n, one in enumerate(found.placements)}
    assert len(snapshot.fork().claim_all(taken)) == 5


def test_a_mix_of_counts_is_dealt_out_to_hosts_of_which_arrays_decide(ledger: ro.Ledger) -> None:
    """Also where no budget would do for a search over all hosts."""
    ledger.sync(*(ro.Provider(f"h{n:03}", "VCPU=17,MEMORY_MB=64") for n in range(200)))
    mix = Gang([Member("large", "VCPU=8,MEMORY_MB=16"), Member("small", "VCPU=1", 1)])
    found = ledger.snapshot().how_many(mix, budget=1)
    assert (str(found), found.cut_short) == ("377", False)  # 17 * 200 // 9
    assert {name: len(some) for name, some in found.of_member.items()} == {
        "large": found.at_least,
        "small": found.at_least,
    }
    assert found.by_host["h000"] == Count(1, 1)
    assert claimed(ledger, found) == 2 * found.at_least


def test_who_has_two_pools_leaves_one_to_who_has_no_other(ledger: ro.Ledger) -> None:
    """Greedy order gives the first host the pool that the second one needs."""
    traits = ["MISC_SHARES_VIA_AGGREGATE"]
    ledger.sync(
        ro.Provider("h0", "VCPU=1", aggregates=["a", "b"]),
        ro.Provider("h1", "VCPU=1", aggregates=["a"]),
        ro.Provider("pool0", "DISK_GB=3", aggregates=["a"], traits=traits),
        ro.Provider("pool1", "DISK_GB=3", aggregates=["b"], traits=traits),
    )
    found = ledger.snapshot().how_many("VCPU=1,DISK_GB=2")
    assert found.total == Count(2, 2)
    assert claimed(ledger, found) == 2


def test_greedy_packing_of_groups_loses_one(ledger: ro.Ledger) -> None:
    """Free 6 and 4 against groups of 3 and 2: two go, if the first takes all of the 6 in threes."""
    host = ro.Provider("host0")
    host.add("host0/a", "VCPU=6")
    host.add("host0/b", "VCPU=4")
    ledger.sync(host)
    asked = Request(groups=[group("_3", "VCPU=3"), group("_2", "VCPU=2")], group_policy="none")
    found = ledger.snapshot().how_many(asked)
    assert found.total == Count(2, 2)
    assert claimed(ledger, found) == 2


def test_of_two_classes_the_scarcer_decides_by_host(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8,MEMORY_MB=2048"), ro.Provider("h1", "VCPU=2"))
    ledger.sync(ro.Provider("h2", "VCPU=3,MEMORY_MB=9999"))
    found = ledger.snapshot().how_many("VCPU=1,MEMORY_MB=1024")
    assert found.by_host == {"h0": Count(2, 2), "h1": Count(0, 0), "h2": Count(3, 3)}
    assert claimed(ledger, found) == found.at_least == found.at_most == 5
    assert ledger.snapshot().how_many("VCPU=1,MEMORY_MB=1024").total == Count(0, 0)


def test_isolated_groups_need_a_provider_each(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0")
    for number in range(3):
        host.add(f"host0/nic{number}", "CUSTOM_NIC=2")
    ledger.sync(host)
    asked = [group("_a", "CUSTOM_NIC=1"), group("_b", "CUSTOM_NIC=1")]
    snapshot = ledger.snapshot()
    for policy in ("none", "isolate"):
        assert snapshot.how_many(Request(groups=asked, group_policy=policy)).total == Count(3, 3)
    three = [*asked, group("_c", "CUSTOM_NIC=1")]
    assert str(snapshot.how_many(Request(groups=three, group_policy="isolate"))) == "2"


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_groups_without_amounts_do_not_bound_what_fits(ledger: ro.Ledger, gpus: int) -> None:
    host = ro.Provider("host0", "VCPU=8")
    for number in range(gpus):
        host.add(f"host0/gpu{number}", "PGPU=1")
    ledger.sync(host)
    above, below = RequestGroup(suffix="_above"), group("_gpu", "PGPU=1")
    asked = Request("VCPU=1", groups=[above, below], same_subtree=[["_above", "_gpu"]])
    found = ledger.snapshot().how_many(asked)
    assert found.total == Count(gpus, gpus)
    assert ledger.snapshot().fit_gang(Gang([Member("worker", asked, gpus)]))
    markers = [above, RequestGroup(suffix="_beside")]
    asked = Request("VCPU=1", groups=markers, same_subtree=[["_above", "_beside"]])
    assert ledger.snapshot().how_many(asked).total == Count(8, 8)
    assert claimed(ledger, found) == gpus


def test_limits_and_what_is_out_of_service_count(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"), ro.Provider("h1", "VCPU=8"))
    ledger.disable("h1", reason="fan")
    snapshot = ledger.snapshot()
    assert str(snapshot.how_many("VCPU=2")) == "4"
    found = snapshot.how_many("VCPU=2", limits={"h0": {"VCPU": 5}})
    assert found.total == Count(2, 2)
    assert found.by_host["h1"] == Count(0, 0)


def test_hosts_alike_are_decided_once_and_claimed_each(ledger: ro.Ledger) -> None:
    hosts = []
    for number in range(20):
        host = ro.Provider(f"host{number:02}", "VCPU=8")
        for card in range(2):
            host.add(f"{host.name}/gpu{card}", "PGPU=1")
            host.add(f"{host.name}/nic{card}", "CUSTOM_NIC=1")
        hosts.append(host)
    ledger.sync(*hosts)
    asked = Request(
        "VCPU=2", groups=[group("_g", "PGPU=1"), group("_n", "CUSTOM_NIC=1")], group_policy="none"
    )
    found = ledger.snapshot().how_many(asked, budget=500)  # not enough for each by itself
    assert found.total == Count(40, 40)
    assert claimed(ledger, found) == 40


def cells(name: str, *cpus: int) -> ro.Provider:
    """Return a host with cells of so many dedicated CPUs."""
    ends = list(itertools.accumulate(cpus))
    made = [
        ro.HostCell(number, dedicated=range(end - count, end), memory_mb=4096)
        for number, (count, end) in enumerate(zip(cpus, ends, strict=True))
    ]
    return host_of(name, ro.NUMATopologyInventory(made))


def test_topologies_are_placed_cell_by_cell(ledger: ro.Ledger) -> None:
    """Hosts alike stand for each other with their cells, and claims say which CPUs they take."""
    ledger.sync(cells("h0", 5, 5), cells("h1", 5, 5), cells("h2", 6, 2))
    asked = Request({"NUMA_TOPOLOGY": ro.numa(1, dedicated=2)})
    found = ledger.snapshot().how_many(asked)
    assert found.total == Count(12, 12)
    assert found.by_host == {"h0": Count(4, 4), "h1": Count(4, 4), "h2": Count(4, 4)}
    assert claimed(ledger, found) == 12
    two = Request({"NUMA_TOPOLOGY": ro.numa(2, dedicated=4)})
    with ro.connect("memory://") as other:
        other.sync(cells("h0", 6, 2))
        assert other.snapshot().how_many(two).total == Count(1, 1)


def test_devices_are_placed_one_by_one(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=8")
    for number in range(4):
        host.add(f"host0/gpu{number}", "PGPU=1", traits=["CUSTOM_H100"] * (number < 3))
    ledger.sync(host)
    asked = Request("VCPU=1,PGPU=2", traits_of={"PGPU": ["CUSTOM_H100"]})
    snapshot = ledger.snapshot()
    assert str(snapshot.how_many(asked)) == "1"
    found = snapshot.how_many("VCPU=1,PGPU=2")
    assert found.total == Count(2, 2)
    assert claimed(ledger, found) == 2


@pytest.mark.parametrize("kind", ["10de:bbbb", DeviceSpec(traits=["CUSTOM_B"])])
def test_devices_are_counted_by_what_is_requested_of_them(
    ledger: ro.Ledger, kind: str | DeviceSpec
) -> None:
    """Of a class there are four, of the product two: no bound is left between them."""
    for name in ("lab-0", "lab-1"):
        host = ro.Provider(name, "VCPU=8")
        cards = [
            ro.Device("0000:01:00.0", "10de", "aaaa", resource_class="PGPU"),
            ro.Device("0000:02:00.0", "10de", "bbbb", resource_class="PGPU", traits=["CUSTOM_B"]),
        ]
        host.add_parts("DEVICES", ro.PCIInventory(cards))
        ledger.sync(host)
    asked = Request({"DEVICES": ro.devices(kind)})
    found = ledger.snapshot().how_many(asked)
    assert found.total == Count(2, 2)
    assert found.by_host == {"lab-0": Count(1, 1), "lab-1": Count(1, 1)}
    mix = Gang([Member("b", asked), Member("any", "PGPU=1")])
    assert ledger.snapshot().how_many(mix).total == Count(2, 2)
    pair = Gang([Member("b", asked), Member("any", "PGPU=1", 2)])
    assert ledger.snapshot().how_many(pair).total == Count(1, 1)
    assert claimed(ledger, found) == 2


def check_sound(ledger: ro.Ledger, asked: Request, seed: int) -> HowMany:
    """Claim what was placed; and let nobody who takes candidates by chance get more than bounds."""
    chance = random.Random(seed)
    with ledger:
        try:
            found = ledger.snapshot().how_many(asked)
        except exceptions.InvalidInput:
            assume(False)
        for _ in range(3):
            scenario = ledger.snapshot().fork()
            while ways := scenario.candidates(asked, limit=8, per_host=4):
                scenario.claim(f"(by chance {len(scenario)})", chance.choice(ways))
                assert len(scenario) <= found.at_most, (seed, found)
        assert claimed(ledger, found) == found.at_least
    return found


def test_a_budget_that_ends_leaves_the_bounds_apart(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0")
    for number in range(6):
        host.add(f"host0/{number}", "VCPU=7")
    ledger.sync(host)
    asked = [group("_3", "VCPU=3"), group("_4", "VCPU=4"), group("_2", "VCPU=2")]
    request = Request(groups=asked, group_policy="none")
    short = ledger.snapshot().how_many(request, budget=12)
    whole = ledger.snapshot().how_many(request)
    assert short.cut_short
    assert not short.is_exact
    assert whole.is_exact
    assert short.at_least <= whole.at_least <= short.at_most
    assert str(short).endswith(", cut short")
    assert claimed(ledger, short) == short.at_least


def test_a_mix_is_told_by_its_members(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=9"), ro.Provider("h1", "VCPU=4"))
    mix = Gang([Member("web", "VCPU=1", 2), Member("db", "VCPU=4")])
    found = ledger.snapshot().how_many(mix)
    assert found.total == Count(2, 2)
    assert {name: len(some) for name, some in found.of_member.items()} == {"web": 4, "db": 2}
    assert found.by_host == {"h0": Count(1, 1), "h1": Count(0, 0)}
    assert claimed(ledger, found) == 6


def test_the_only_host_of_a_mix_is_counted(ledger: ro.Ledger) -> None:
    host = ro.Provider("h0", "VCPU=4")
    for number in range(2):
        host.add(f"h0/gpu{number}", "PGPU=1")
    ledger.sync(host, ro.Provider("h1", "MEMORY_MB=64"))
    found = ledger.snapshot().how_many(Gang([Member("a", "VCPU=1,PGPU=1"), Member("b", "VCPU=1")]))
    assert found.by_host == {"h0": Count(2, 2), "h1": Count(0, 0)}
    assert claimed(ledger, found) == 4
    none = ledger.snapshot().how_many(Gang([Member("a", "VCPU=9", 2)]))
    assert (none.total, none.placements) == (Count(0, 0), ())
    assert none.by_host == {"h0": Count(0, 0), "h1": Count(0, 0)}


@pytest.mark.parametrize(
    "mix",
    [
        Gang([Member("a", "VCPU=1", 2)], together="rack"),
        Gang([Member("a", "VCPU=1", 2, at_most={"host": 1})]),
    ],
    ids=["together", "at most"],
)
def test_a_mix_that_is_bound_to_places_is_refused(ledger: ro.Ledger, mix: Gang) -> None:
    with raises_code("InvalidRequest", match="expected members without places"):
        ledger.snapshot().how_many(mix)


def test_what_does_not_exist_fits_nowhere(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h0", "VCPU=8"))
    found = ledger.snapshot().how_many("PGPU=1")
    assert found.total == Count(0, 0)
    assert found.placements == ()


# --- every world of a kind ----------------------------------------------------------------------


def pooled(*asked: str) -> Iterator[tuple[int, ...]]:
    """Ask all worlds of two hosts and a pool for a mix; yield what they have, and hold them."""
    requests = [Request(one) for one in asked]
    for one, other, disks in itertools.product(range(3), range(3), range(6)):
        pool = ["MISC_SHARES_VIA_AGGREGATE"]
        roots = [
            ro.Provider("h0", f"VCPU={one}" if one else None, aggregates=["a"]),
            ro.Provider("h1", f"VCPU={other}" if other else None, aggregates=["a"]),
            ro.Provider("pool", f"DISK_GB={disks}" if disks else None, traits=pool),
        ]
        roots[2].update(aggregates=["a"])
        check(roots, requests, 400)
        yield one, other, disks


@pytest.mark.parametrize(
    "asked",
    [
        ("VCPU=1,DISK_GB=1",),
        ("VCPU=1,DISK_GB=2",),
        ("VCPU=2,DISK_GB=1",),
        ("VCPU=1,DISK_GB=2", "VCPU=1,DISK_GB=1"),
        ("VCPU=1,DISK_GB=1", "VCPU=1,DISK_GB=2"),
        ("VCPU=1,DISK_GB=1", "DISK_GB=1"),
    ],
)
def test_no_choice_of_any_small_world_with_a_pool_holds_more(asked: tuple[str, ...]) -> None:
    assert len(list(pooled(*asked))) == 3 * 3 * 6


def copies(free: tuple[int, ...], sizes: tuple[int, ...], *, apart: bool) -> int:
    """Return how often groups of some sizes fit, each group of one provider: by trying all."""

    @functools.cache
    def most(left: tuple[int, ...]) -> int:
        best = 0
        for way in itertools.product(range(len(left)), repeat=len(sizes)):
            if apart and len(set(way)) < len(way):
                continue
            after = list(left)
            for place, size in zip(way, sizes, strict=True):
                after[place] -= size
            if min(after) >= 0:
                best = max(best, 1 + most(tuple(sorted(after))))
        return best

    return most(tuple(sorted(free)))


@pytest.mark.parametrize("policy", ["none", "isolate"])
@pytest.mark.parametrize("sizes", some(["32", "21", "11", "31", "22", "211"], 2))
def test_no_packing_of_groups_into_any_two_devices_holds_more(sizes: str, policy: str) -> None:
    each = tuple(map(int, sizes))
    groups = [group(f"_{n}", f"VCPU={size}") for n, size in enumerate(each)]
    asked = Request(groups=groups, group_policy=policy)
    for free in itertools.combinations_with_replacement(range(1, 8), 2):
        host = ro.Provider("host0")
        for number, count in enumerate(free):
            host.add(f"host0/{number}", f"VCPU={count}")
        found = search.Snapshot(columns_of([host])).how_many(asked)
        right = copies(free, each, apart=policy == "isolate")
        assert found.total == Count(right, right), free
        assert len(found.placements) == right


# --- laws ---------------------------------------------------------------------------------------


def world(seed: int) -> tuple[list[ro.Provider], Request]:
    """Return a small fleet of one of four sorts, with a request."""
    chance, sort = random.Random(seed), seed % 4
    compatibility = None if seed % 3 else "placement"
    shares = compatibility is None and seed % 5 == 0
    if sort == 0:
        roots = fleet(chance, shares=shares)
        return roots, request_for(chance, roots, compatibility=compatibility)
    if sort == 3:
        case = alike(chance, shares=shares, compatibility=compatibility)
        return list(case.roots), case.request
    return (generated.mixed if sort == 1 else generated.crowded)(seed)


def modest(roots: list[ro.Provider], seed: int) -> Request:
    """Return a request that asks for little of what there is: in most worlds something fits."""
    chance = random.Random(seed)
    every = [one for root in roots for one in root.walk()]
    classes = sorted({str(kind) for one in every for kind in one.inventories}) or ["VCPU"]
    groups = [group(f"_{n}", f"{chance.choice(classes)}=1") for n in range(chance.randint(0, 2))]
    policy = chance.choice(["none", "isolate"]) if groups else None
    return Request(
        {chance.choice(classes): chance.choice([1, 2])}, groups=groups, group_policy=policy
    )


def check(roots: list[ro.Provider], asked: list[Request], states: int) -> int:
    """Hold an answer to all that could be, and take what it placed; return how many fit."""
    columns = columns_of(roots)
    try:
        right = most(columns, asked, states)
    except (TooManyStates, exceptions.NotFound):
        assume(False)
    snapshot = search.Snapshot(columns)
    mix = Gang([Member(f"m{n}", one) for n, one in enumerate(asked)])
    try:
        found = snapshot.how_many(mix if len(asked) > 1 else asked[0])
    except exceptions.NotFound as error:  # of the second, which nobody came to ask for
        if not error.is_about("provider"):
            raise
        assume(False)
    assert found.at_least <= right <= found.at_most
    assert found.is_exact or found.cut_short, "nothing is hard in a world so small"
    scenario = snapshot.fork()
    for number, one in enumerate(found.placements):
        scenario.claim(f"job-{number}", one)
    assert len(scenario) == found.at_least * len(asked)
    for host, count in found.by_host.items():
        with contextlib.suppress(TooManyStates):
            alone = most(columns, asked, states, host)
            assert count.at_least <= alone <= count.at_most, host
            assert count.is_exact or found.cut_short, host
    return right


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=examples(300))
def test_as_many_fit_as_any_choice_holds(seed: int, is_modest: bool) -> None:
    roots, asked = world(seed)
    event(f"{check(roots, [modest(roots, seed) if is_modest else asked], 400)} fit")


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=examples(120))
def test_as_many_of_a_mix_fit_as_any_choice_holds(seed: int, is_modest: bool) -> None:
    roots, asked = world(seed)
    both = [asked, world(seed + 12)[1]]  # of the same sort, in the same words
    if is_modest:
        both = [modest(roots, seed), modest(roots, seed + 1)]
    event(f"{check(roots, both, 300)} fit")


@given(st.integers(0, 10**6), st.sampled_from(WORLDS))
@settings(max_examples=examples(200))
def test_what_is_placed_is_claimed_of_a_ledger_and_no_chance_gets_more(
    seed: int, made: Callable[[int], tuple[ro.Ledger, Request] | None]
) -> None:
    world_made = made(seed)
    assume(world_made is not None)
    assert world_made is not None
    found = check_sound(*world_made, seed)
    event(f"{'some' if found.at_most else 'none'}, {'exact' if found.is_exact else 'bounded'}")
