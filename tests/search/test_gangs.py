"""Gangs: where many fit at once, against trying everything; and what is told if they do not."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.requests import Gang, Member
from resource_objects.search.gangs import GangFit
from resource_objects.testing.conformance.suite import host_of

LEVELS = {"rack": ("r0", "r1"), "row": ("w0",)}


def host(name: str, inventories: str, *aggregates: str, gpus: int = 0) -> ro.Provider:
    found = ro.Provider(name, inventories, aggregates=list(aggregates))
    for number in range(gpus):
        found.add(f"{name}/gpu{number}", "PGPU=1")
    return found


@pytest.fixture
def ledger() -> Iterator[ro.Ledger]:
    with ro.connect("memory://") as opened:
        yield opened


def fit_of(ledger: ro.Ledger, gang: Gang, **options: Any) -> GangFit:
    return ledger.snapshot().fit_gang(gang, levels=LEVELS, **options)


def hosts_of(fit: GangFit) -> dict[str, str]:
    return {name: one.host for name, one in fit.candidates.items()}


# --- cases that other systems got wrong ---------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1])
def test_a_feasible_gang_is_not_refused_for_the_order_of_its_members(
    ledger: ro.Ledger, first: int
) -> None:
    """Kubernetes 138765: a member that fits anywhere takes the only host of another."""
    ledger.sync(host("h1", "VCPU=2", gpus=1), host("h2", "VCPU=2"))
    members = [Member("any", "VCPU=2"), Member("gpu", "VCPU=2,PGPU=1")]
    fit = fit_of(ledger, Gang([members[first], members[1 - first]]))
    assert hosts_of(fit) == {"any": "h2", "gpu": "h1"}
    ledger.claim_all(fit.candidates)


def test_leader_and_workers_are_in_one_rack_whichever(ledger: ro.Ledger) -> None:
    """Kueue 7446, 12420: in one domain; the first rack has room for either, not for both."""
    ledger.sync(
        *(host(f"a{n}", "VCPU=4,PGPU=4", "r0") for n in range(2)),
        *(host(f"b{n}", "VCPU=4,PGPU=4", "r1") for n in range(3)),
    )
    members = [Member("leader", "VCPU=4"), Member("worker", "PGPU=4,VCPU=1", count=2)]
    fit = fit_of(ledger, Gang(members, together="rack"))
    assert {one.host[0] for one in fit.candidates.values()} == {"b"}
    ledger.claim_all(fit.candidates)
    refused = fit_of(ledger, Gang(members, together="rack"))
    assert str(refused) == "rack r0: worker asked 2, fits 1 beside leader"


def test_a_rack_is_not_chosen_for_its_sum(ledger: ro.Ledger) -> None:
    """Eight GPUs free in a rack are no two hosts of four."""
    ledger.sync(*(host(f"a{n}", "PGPU=2", "r0") for n in range(4)), host("b", "PGPU=4", "r1"))
    gang = Gang([Member("worker", "PGPU=4", count=2)], together="rack")
    assert str(fit_of(ledger, gang)) == ("rack r1: worker asked 2, fits 1 (PGPU asked 8, free 4)")
    assert hosts_of(
        fit_of(ledger, Gang([Member("worker", "PGPU=2", count=4)], together="rack"))
    ) == {f"worker-{n}": f"a{n}" for n in range(4)}


# --- bounds -------------------------------------------------------------------------------------


def test_so_many_per_place(ledger: ro.Ledger) -> None:
    ledger.sync(*(host(f"h{n}", "VCPU=8", f"r{n // 2}") for n in range(4)))
    worker = Member("worker", "VCPU=1", count=4, at_most={"host": 2, "rack": 2})
    assert Counter(hosts_of(fit_of(ledger, Gang([worker]))).values()) == {"h0": 2, "h2": 2}
    more = dataclasses.replace(worker, count=5)
    assert str(fit_of(ledger, Gang([more]))) == (
        "worker asked 5, fits 4 (at most 2 per host, at most 2 per rack)"
    )
    spread = Gang(
        [Member("a", "VCPU=1", count=2), Member("b", "VCPU=2", count=2)], at_most={"host": 1}
    )
    assert sorted(hosts_of(fit_of(ledger, spread)).values()) == ["h0", "h1", "h2", "h3"]


def test_a_member_is_together_by_itself(ledger: ro.Ledger) -> None:
    ledger.sync(*(host(f"h{n}", "VCPU=2", f"r{n // 2}") for n in range(4)))
    gang = Gang(
        [
            Member("a", "VCPU=1", count=3, together="rack"),
            Member("b", "VCPU=2", count=2, together="rack"),
        ]
    )
    found = hosts_of(fit_of(ledger, gang))
    assert {found["a-0"], found["a-1"], found["a-2"]} == {"h0", "h1"}
    assert {found["b-0"], found["b-1"]} == {"h2", "h3"}


def test_hosts_of_no_place_are_left_out(ledger: ro.Ledger) -> None:
    ledger.sync(host("a", "VCPU=8"), host("b", "VCPU=2", "r0"))
    gang = Gang([Member("worker", "VCPU=2", count=2)], at_most={"rack": 2})
    assert str(fit_of(ledger, gang)) == "worker asked 2, fits 1 (VCPU asked 4, free 2)"


def test_levels_lie_within_each_other(ledger: ro.Ledger) -> None:
    ledger.sync(
        host("a", "VCPU=8", "r0", "w0"),
        host("b", "VCPU=8", "r0", "w1"),
        host("c", "VCPU=8", "r1", "w0"),
    )
    gang = Gang([Member("worker", "VCPU=1", count=2)], at_most={"rack": 1, "row": 1})
    crossing = {**LEVELS, "row": ["w0", "w1"]}
    with pytest.raises(exceptions.InvalidRequest, match="row w0 across rack r0"):
        ledger.snapshot().fit_gang(gang, levels=crossing)
    ledger.sync(host("d", "VCPU=8", "r0", "r1"))
    with pytest.raises(exceptions.InvalidRequest, match="d in r0 and in r1"):
        fit_of(ledger, Gang([Member("worker", "VCPU=1")], together="rack"))
    with pytest.raises(exceptions.InvalidRequest, match="'room', expected one that aggregates"):
        fit_of(ledger, Gang([Member("worker", "VCPU=1")], together="room"))


def test_the_power_of_a_rack_bounds_its_hosts(ledger: ro.Ledger) -> None:
    """A pool that serves the hosts of a rack is a bound on them; another rack has room."""
    for rack, watts in (("r0", 500), ("r1", 900)):
        ledger.sync(
            ro.Provider(
                f"power-{rack}",
                {"CUSTOM_WATT": watts},
                aggregates=[rack],
                traits=["MISC_SHARES_VIA_AGGREGATE"],
            ),
            *(host(f"{rack}-{n}", "VCPU=8", rack) for n in range(2)),
        )
    worker = Member("worker", "VCPU=2,CUSTOM_WATT=300", count=4)
    fit = fit_of(ledger, Gang([worker]))
    assert Counter(name[:2] for name in hosts_of(fit).values()) == {"r0": 1, "r1": 3}
    ledger.claim_all(fit.candidates)
    assert "CUSTOM_WATT" in str(fit_of(ledger, Gang([worker])))


def test_what_one_provider_cannot_give_is_not_counted(ledger: ro.Ledger) -> None:
    made = ro.Provider("h0", "MEMORY_MB=1")
    made.add("h0/a", "VCPU=4")
    made.add("h0/b", "VCPU=8:max_unit=1")
    ledger.sync(made)
    worker = Member("worker", "VCPU=2", count=2)
    ledger.claim_all(fit_of(ledger, Gang([worker])).candidates)
    assert not fit_of(ledger, Gang([worker]))


def test_a_pool_across_racks_does_not_forbid_them(ledger: ro.Ledger) -> None:
    for rack in ("r0", "r1"):
        ledger.sync(*(host(f"{rack}-{n}", "VCPU=4", rack) for n in range(3)))
    ledger.sync(ro.Provider("power", {"CUSTOM_WATT": 100}))
    ledger.pools.share("power", hosts=["r0-0", "r0-1", "r1-0", "r1-1"])
    gang = Gang([Member("worker", "VCPU=1,CUSTOM_WATT=10", count=2)], at_most={"rack": 1})
    fit = fit_of(ledger, gang)
    assert {name[:2] for name in hosts_of(fit).values()} == {"r0", "r1"}
    ledger.claim_all(fit.candidates)


@pytest.mark.parametrize("first", [0, 1])
def test_a_topology_that_hides_another_is_no_sure_no(ledger: ro.Ledger, first: int) -> None:
    """Of cells of 4 and 2 CPUs, who wants 2 must leave the larger one to who wants 4."""
    cells = [
        ro.HostCell(0, dedicated=range(4), memory_mb=4096),
        ro.HostCell(1, dedicated=range(4, 6), memory_mb=4096),
    ]
    ledger.sync(host_of("h0", ro.NUMATopologyInventory(cells)))
    members = [
        Member(name, ro.Request({"NUMA_TOPOLOGY": ro.numa(1, dedicated=cpus)}))
        for name, cpus in (("a", 2), ("b", 4))
    ]
    fit = fit_of(ledger, Gang([members[first], members[1 - first]]))
    ledger.claim_all(fit.candidates)


def test_members_are_told_by_the_names_they_have(ledger: ro.Ledger) -> None:
    """A name may have a dash itself; members alike are told together."""
    ledger.sync(host("h", "VCPU=4"))
    members = [Member("train-driver", "VCPU=3"), Member("b-9", "VCPU=3", count=2)]
    assert str(fit_of(ledger, Gang(members))) == (
        "train-driver, b-9 asked 3, fits 1 (VCPU asked 9, free 4)"
    )


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "members"),
        ({"members": {"a": {"request": "VCPU=1", "count": 0}}}, "count"),
        ({"members": {"a": {"request": "VCPU=1", "count": True}}}, "count"),
        ({"members": {"a": {"count": 1}}}, "a request"),
        ({"members": {"a": {"request": "VCPU=1", "near": "numa"}}}, "'near'"),
        ({"members": {"a": {"request": "VCPU=1"}}, "apart": "rack"}, "'apart'"),
        ({"members": {"a": {"request": "VCPU=1", "at_most": {"rack": 0}}}}, "at_most rack"),
        ({"members": {"a": {"request": "VCPU=1", "at_most": 1}}}, "at_most"),
        ({"members": {"a": "VCPU=1"}}, "member a"),
        (
            {"members": {"a": {"request": "VCPU=1", "count": 2}, "a-1": {"request": "VCPU=1"}}},
            "a-1",
        ),
        (
            {
                "members": {"a": {"request": "VCPU=1", "count": 3}},
                "together": "rack",
                "at_most": {"rack": 2},
            },
            "all in one rack",
        ),
    ],
)
def test_a_gang_that_cannot_be_is_refused_at_the_door(said: Mapping[str, Any], told: str) -> None:
    with pytest.raises(exceptions.InvalidRequest, match=told):
        Gang.from_dict(said)


def test_a_budget_that_ends_is_no_answer(ledger: ro.Ledger) -> None:
    ledger.sync(*(host(f"h{n}", "VCPU=4", gpus=2) for n in range(4)))
    gang = Gang([Member("a", "VCPU=2,PGPU=1", count=5), Member("b", "VCPU=3", count=1)])
    with pytest.raises(exceptions.SearchLimitReached):
        fit_of(ledger, gang, budget=2)


# --- against trying everything ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class World:
    """Hosts with their racks, and a gang."""

    hosts: tuple[tuple[int, int, int, str], ...]  # CPUs, GPUs as one inventory, GPU devices, rack
    disks: int | None  # of a pool that serves all racks
    gang: Gang

    def open(self) -> ro.Ledger:
        ledger = ro.connect("memory://")
        for number, (cpus, gpus, devices, rack) in enumerate(self.hosts):
            whole = f",PGPU={gpus}" if gpus else ""
            ledger.sync(host(f"h{number}", f"VCPU={cpus}{whole}", rack, gpus=devices))
        if self.disks is not None:
            sharing = ["MISC_SHARES_VIA_AGGREGATE"]
            racks = ["r0", "r1"]
            ledger.sync(
                ro.Provider("disks", {"DISK_GB": self.disks}, aggregates=racks, traits=sharing)
            )
        return ledger


@st.composite
def worlds(draw: st.DrawFn) -> World:
    hosts = tuple(
        (
            draw(st.integers(1, 4)),
            draw(st.integers(0, 2)),
            draw(st.integers(0, 2)),
            draw(st.sampled_from(["r0", "r1"])),
        )
        for _ in range(draw(st.integers(1, 3)))
    )
    disks = draw(st.none() | st.integers(1, 4))

    def request() -> str:
        parts = [f"VCPU={draw(st.integers(1, 3))}"]
        if draw(st.booleans()):
            parts.append(f"PGPU={draw(st.integers(1, 2))}")
        if disks is not None and draw(st.booleans()):
            parts.append(f"DISK_GB={draw(st.integers(1, 2))}")
        return ",".join(parts)

    levels = st.none() | st.sampled_from(["rack", "host"])
    bounds = st.dictionaries(st.sampled_from(["rack", "host"]), st.integers(2, 3), max_size=1)
    members = [
        Member(name, request(), draw(st.integers(1, 2)), draw(bounds), draw(levels))
        for name in "abc"[: draw(st.integers(1, 3))]
    ]
    count = sum(one.count for one in members)
    together = draw(levels)
    at_most = {} if together else draw(bounds)
    at_most = {} if any(one.count > n for one in members for n in at_most.values()) else at_most
    assert count <= 6
    return World(hosts, disks, Gang(members, together, at_most))


def keeps(world: World, placed: Mapping[str, str]) -> bool:
    """Return whether the hosts of the members keep to what the gang asks."""
    racks = {f"h{n}": rack for n, (*_, rack) in enumerate(world.hosts)}

    def place(level: str, name: str) -> str:
        return placed[name] if level == "host" else racks[placed[name]]

    def is_kept(names: list[str], together: str | None, at_most: Mapping[str, int]) -> bool:
        if together and len({place(together, name) for name in names}) > 1:
            return False
        counts = {level: Counter(place(level, name) for name in names) for level in at_most}
        return all(max(counts[level].values()) <= most for level, most in at_most.items())

    gang = world.gang
    every = [name for one in gang.members for name in one.names]
    return is_kept(every, gang.together, gang.at_most) and all(
        is_kept(list(one.names), one.together, one.at_most) for one in gang.members
    )


def is_possible(world: World, ledger: ro.Ledger) -> bool:
    """Return whether some choice of candidates does: all are tried, one member after the other."""
    scenario = ledger.snapshot().fork()
    asked = [(name, one.request) for one in world.gang.members for name in one.names]

    def placed(number: int, hosts: dict[str, str]) -> bool:
        if number == len(asked):
            return keeps(world, hosts)
        name, request = asked[number]
        for candidate in scenario.candidates(request, limit=None, per_host=1000):
            scenario.claim(name, candidate)
            found = placed(number + 1, {**hosts, name: candidate.host})
            scenario.undo()
            if found:
                return True
        return False

    return placed(0, {})


@given(worlds())
def test_a_gang_fits_if_and_only_if_some_choice_does(world: World) -> None:
    with world.open() as ledger:
        expected = is_possible(world, ledger)
        try:
            fit = fit_of(ledger, world.gang)
        except exceptions.SearchLimitReached:
            event("cut short")
            assert world.disks is not None, "only a pool makes it hard to tell"
            return
        event(f"fits: {bool(fit)}")
        assert bool(fit) == expected
        if fit:
            assert list(fit.candidates) == [n for one in world.gang.members for n in one.names]
            assert keeps(world, hosts_of(fit))
            ledger.claim_all(fit.candidates)
        else:
            assert fit.shortages
            assert all(one.fits < one.asked for one in fit.shortages)
