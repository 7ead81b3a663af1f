"""Gangs: where many fit at once, against trying everything; and what is told if they do not."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.reasons import Rule
from resource_objects.requests import Gang, Member, RequestGroup
from resource_objects.resources.pci import DeviceSpec
from resource_objects.search.findings import Check
from resource_objects.search.gangs import GangFit
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code

SHARING = "MISC_SHARES_VIA_AGGREGATE"
LEVELS = {"rack": ("r0", "r1"), "row": ("w0",)}


def host(
    name: str, inventories: str, *aggregates: str, gpus: int = 0, traits: Sequence[str] = ()
) -> ro.Provider:
    found = ro.Provider(name, inventories, aggregates=list(aggregates), traits=traits)
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
    assert str(refused) == "rack r0: worker requested 2, fits 1 beside leader"


def test_a_rack_is_not_chosen_for_its_sum(ledger: ro.Ledger) -> None:
    """Eight GPUs free in a rack are no two hosts of four."""
    ledger.sync(*(host(f"a{n}", "PGPU=2", "r0") for n in range(4)), host("b", "PGPU=4", "r1"))
    gang = Gang([Member("worker", "PGPU=4", count=2)], together="rack")
    assert str(fit_of(ledger, gang)) == (
        "rack r1: worker requested 2, fits 1 (PGPU requested 8, free 4)"
    )
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
        "worker requested 5, fits 4 (at most 2 per host, at most 2 per rack)"
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
    assert str(fit_of(ledger, gang)) == "worker requested 2, fits 1 (VCPU requested 4, free 2)"


@pytest.mark.parametrize("bound", [{"together": "rack"}, {"at_most": {"rack": 2}}])
def test_a_level_leaves_hosts_out_only_for_the_members_that_name_it(
    ledger: ro.Ledger, bound: dict[str, Any]
) -> None:
    ledger.sync(host("h0", "VCPU=2", "r0"), host("h1", "VCPU=5"))
    members = [Member("m0", "VCPU=3"), Member("m1", "VCPU=1", **bound)]
    fit = fit_of(ledger, Gang(members))
    assert hosts_of(fit) == {"m0": "h1", "m1": "h0"}
    two = dataclasses.replace(members[1], request="VCPU=2", count=2)
    (shortage,) = fit_of(ledger, Gang([members[0], two])).shortages
    assert (shortage.member, shortage.asked, shortage.fits) == ("m1", 2, 1)
    assert not fit_of(ledger, Gang([members[0], Member("m1", "VCPU=1")], **bound))


def test_levels_lie_within_each_other(ledger: ro.Ledger) -> None:
    ledger.sync(
        host("a", "VCPU=8", "r0", "w0"),
        host("b", "VCPU=8", "r0", "w1"),
        host("c", "VCPU=8", "r1", "w0"),
    )
    gang = Gang([Member("worker", "VCPU=1", count=2)], at_most={"rack": 1, "row": 1})
    crossing = {**LEVELS, "row": ["w0", "w1"]}
    with raises_code("InvalidRequest", match="row w0 across rack r0"):
        ledger.snapshot().fit_gang(gang, levels=crossing)
    ledger.sync(host("d", "VCPU=8", "r0", "r1"))
    with raises_code("InvalidRequest", match="d in r0 and in r1"):
        fit_of(ledger, Gang([Member("worker", "VCPU=1")], together="rack"))
    with raises_code("InvalidRequest", match="'room', expected one that aggregates"):
        fit_of(ledger, Gang([Member("worker", "VCPU=1")], together="room"))


def test_the_power_of_a_rack_bounds_its_hosts(ledger: ro.Ledger) -> None:
    """A pool that serves the hosts of a rack is a bound on them; another rack has room."""
    for rack, watts in (("r0", 500), ("r1", 900)):
        ledger.sync(
            ro.Provider(
                f"power-{rack}",
                {"CUSTOM_WATT": watts},
                aggregates=[rack],
                traits=[SHARING],
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
        "train-driver, b-9 requested 3, fits 1 (VCPU requested 9, free 4)"
    )


# --- exact, though hosts share something ---------------------------------------------------------


def share(ledger: ro.Ledger, pool: str, inventories: str, *hosts: str) -> None:
    ledger.sync(ro.Provider(pool, inventories))
    ledger.pools.share(pool, hosts=list(hosts))


def test_who_has_two_pools_leaves_one_to_who_has_no_other(ledger: ro.Ledger) -> None:
    """The first way of h0 is pool a, which is the only one of h1."""
    ledger.sync(host("h0", "VCPU=4"), host("h1", "VCPU=4"))
    share(ledger, "a", "DISK_GB=2", "h0", "h1")
    share(ledger, "b", "DISK_GB=2", "h0")
    worker = Member("worker", "VCPU=1,DISK_GB=2", count=2, at_most={"host": 1})
    fit = fit_of(ledger, Gang([worker]))
    assert sorted(hosts_of(fit).values()) == ["h0", "h1"]
    ledger.claim_all(fit.candidates)


def test_a_pool_that_nobody_is_linked_to_is_in_nobodys_way(ledger: ro.Ledger) -> None:
    ledger.sync(host("h1", "VCPU=1"), host("pool", "VCPU=4", traits=[SHARING]))
    assert hosts_of(fit_of(ledger, Gang([Member("a", "VCPU=4")]))) == {"a": "pool"}


def test_a_pool_within_a_host_gives_to_it_whoever_else_is_linked(ledger: ro.Ledger) -> None:
    one = host("h1", "VCPU=2")
    one.add("h1/pool", "VCPU=2", traits=[SHARING])
    ledger.sync(one)
    fit = fit_of(ledger, Gang([Member("a", "VCPU=2", count=2)]))
    assert len(ledger.claim_all(fit.candidates)) == 2


def test_pools_that_are_short_of_it_together_are_a_no(ledger: ro.Ledger) -> None:
    """Each host could have what it is dealt; all hosts together have not."""
    ledger.sync(*(host(f"h{n}", "VCPU=4") for n in range(3)))
    share(ledger, "a", "DISK_GB=3", "h0", "h1", "h2")
    share(ledger, "b", "DISK_GB=3", "h0", "h1", "h2")
    two = Member("worker", "VCPU=1,DISK_GB=2", count=2)
    ledger.claim_all(fit_of(ledger, Gang([two])).candidates)
    refused = fit_of(ledger, Gang([Member("worker", "VCPU=1,DISK_GB=1", count=3)]))
    assert str(refused) == "worker requested 3, fits 2 (DISK_GB requested 3, free 2)"
    assert not fit_of(ledger, Gang([Member("worker", "VCPU=1,DISK_GB=2")]))
    with ro.connect("memory://") as other:
        other.sync(*(host(f"h{n}", "VCPU=4") for n in range(3)))
        share(other, "a", "DISK_GB=3", "h0", "h1", "h2")
        share(other, "b", "DISK_GB=3", "h0", "h1", "h2")
        three = dataclasses.replace(two, count=3)
        assert str(fit_of(other, Gang([three]))) == "worker requested 3, fits 2"


def cells(name: str, *cpus: int) -> ro.Provider:
    """Return a host with cells of so many dedicated CPUs."""
    made, first = [], 0
    for number, count in enumerate(cpus):
        made.append(ro.HostCell(number, dedicated=range(first, first + count), memory_mb=4096))
        first += count
    return host_of(name, ro.NUMATopologyInventory(made))


def pinned(name: str, cpus: int, count: int = 1, guest_cells: int = 1) -> Member:
    asked = ro.numa(guest_cells, dedicated=cpus)
    return Member(name, ro.Request({"NUMA_TOPOLOGY": asked}), count)


def test_a_host_that_plainly_has_no_more_cells_is_a_no(ledger: ro.Ledger) -> None:
    ledger.sync(cells("h0", 4, 4), cells("h1", 4, 4))
    fit = fit_of(ledger, Gang([pinned("worker", 4, 4)]))
    assert Counter(hosts_of(fit).values()) == {"h0": 2, "h1": 2}
    ledger.claim_all(fit.candidates)
    with ro.connect("memory://") as other:
        other.sync(cells("h0", 5, 5), cells("h1", 6))
        assert str(fit_of(other, Gang([pinned("worker", 4, 4)]))) == (
            "worker requested 4, fits 3 (PCPU requested 16, free 16)"
        )
        assert fit_of(other, Gang([pinned("worker", 4, 3)]))


def test_of_what_is_on_two_cells_each_is_counted(ledger: ro.Ledger) -> None:
    """Cells of 6 and 2 have 8 CPUs, and hold one guest of 2 and 2, not two."""
    ledger.sync(cells("h0", 6, 2))
    two = pinned("worker", 4, 2, guest_cells=2)
    refused = fit_of(ledger, Gang([two]))
    assert str(refused) == "worker requested 2, fits 1"
    assert fit_of(ledger, Gang([dataclasses.replace(two, count=1), pinned("b", 4)]))


# --- devices that match by more than their class --------------------------------------------------


DEVICES = "DEVICES"


def products(*found: str) -> ro.PCIInventory:
    """Return GPUs of one class; those of product ``bbbb`` have a trait."""
    return ro.PCIInventory(
        ro.Device(
            f"0000:{bus:02x}:00.0",
            "10de",
            product,
            resource_class="PGPU",
            numa_node=0,
            traits=["CUSTOM_B"] if product == "bbbb" else [],
        )
        for bus, product in enumerate(found)
    )


def lab(name: str, *found: str) -> ro.Provider:
    made = ro.Provider(name, "VCPU=8")
    made.add_parts(DEVICES, products(*found))
    return made


def asking(kind: Any, count: int = 1, *required: str, **also: Any) -> ro.Request:
    return ro.Request({DEVICES: ro.devices(kind, count), **also}, required=required)


@pytest.mark.parametrize(
    "wanted",
    [
        asking("10de:bbbb"),
        asking(DeviceSpec(resource_class="PGPU", traits=["CUSTOM_B"])),
        asking(DeviceSpec(vendor_id="10de", traits=["CUSTOM_B"]), VCPU=2),
        asking("PGPU", 1, "CUSTOM_B"),
        asking("10de:*", 1, "CUSTOM_B", VCPU=1),
        asking(["10de:bbbb", "8086:bbbb"]),
    ],
    ids=["product", "class and trait", "vendor and trait", "required", "required of one", "either"],
)
def test_of_devices_of_a_class_only_those_that_match_are_counted(
    ledger: ro.Ledger, wanted: ro.Request
) -> None:
    ledger.sync(lab("lab-0", "aaaa", "bbbb"), lab("lab-1", "bbbb", "aaaa"))
    for count in (3, 4, 5):
        refused = fit_of(ledger, Gang([Member("m", wanted, count)]))
        assert str(refused) == f"m requested {count}, fits 2"
    refused = fit_of(ledger, Gang([Member("m", wanted, 2)], together="host"))
    assert str(refused) == "host lab-0: m requested 2, fits 1"
    scenario = ledger.snapshot().fork()
    scenario.add(lab("lab-2", "bbbb"))
    assert scenario.snapshot.fit_gang(Gang([Member("m", wanted, 3)]))
    fit = fit_of(ledger, Gang([Member("m", wanted, 2)]))
    assert set(hosts_of(fit).values()) == {"lab-0", "lab-1"}
    ledger.claim_all(fit.candidates)
    assert not fit_of(ledger, Gang([Member("m", wanted)]))


def test_devices_of_a_host_are_divided_between_unlike_members(ledger: ro.Ledger) -> None:
    ledger.sync(lab("lab-0", "aaaa", "bbbb", "bbbb"))
    two = Member("b", asking("10de:bbbb"), 2)
    fit = fit_of(ledger, Gang([Member("some", "PGPU=1"), two]))
    assert {name: one.allocations[0].units for name, one in fit.candidates.items()} == {
        "some": ("0000:00:00.0",),
        "b-0": ("0000:01:00.0",),
        "b-1": ("0000:02:00.0",),
    }
    group = RequestGroup("PGPU=1", suffix="_1")
    for other in (ro.Request("PGPU=1"), asking("10de:*"), ro.Request(groups=[group])):
        assert not fit_of(ledger, Gang([Member("some", other, 2), two]))
        assert fit_of(ledger, Gang([Member("some", other), two]))


def test_a_function_that_is_taken_whole_has_no_parts_left(ledger: ro.Ledger) -> None:
    devices = []
    for card in ("0000:01", "0000:02"):
        whole = f"{card}:00.0"
        devices.append(ro.Device(whole, "8086", "1572", "type-PF", resource_class="CUSTOM_CARD"))
        devices += [
            ro.Device(f"{card}:02.{n}", "8086", "154c", "type-VF", parent=whole) for n in range(2)
        ]
    made = ro.Provider("h")
    made.add_parts(DEVICES, ro.PCIInventory(devices))
    ledger.sync(made)
    whole = Member("whole", asking(DeviceSpec(product_id="1572", types=["type-PF"])))
    part = Member("part", asking("8086:154c"), 2)
    assert fit_of(ledger, Gang([whole, part]))
    refused = fit_of(ledger, Gang([whole, dataclasses.replace(part, count=3)]))
    assert str(refused) == "part requested 3, fits 2 beside whole"


def test_members_with_a_topology_are_refused_for_devices_of_a_product(ledger: ro.Ledger) -> None:
    made = cells("lab-0", 8)
    made.add_parts(DEVICES, products("aaaa", "bbbb"))
    ledger.sync(made)
    wanted = asking("10de:bbbb", NUMA_TOPOLOGY=ro.numa(1, dedicated=2))
    assert fit_of(ledger, Gang([Member("m", wanted)]))
    assert str(fit_of(ledger, Gang([Member("m", wanted, 2)]))) == "m requested 2, fits 1"


# --- what is told ---------------------------------------------------------------------------------


def test_a_trait_that_nobody_has_is_told(ledger: ro.Ledger) -> None:
    ledger.sync(host("h0", "VCPU=4"), host("h1", "VCPU=4"))
    asked = ro.Request("VCPU=1", required=["CUSTOM_FAST"])
    refused = fit_of(ledger, Gang([Member("worker", asked, count=2)]))
    assert str(refused) == (
        "worker requested 2, fits 0 (trait missing VCPU CUSTOM_FAST: 2 -> 0 hosts)"
    )
    (shortage,) = refused.shortages
    assert shortage.explanation is not None
    assert (
        str(shortage.explanation).splitlines()[0]
        == "h0: VCPU requested 1 with CUSTOM_FAST, no provider has it"
    )


class Without:
    """A filter that refuses a host."""

    name = "without"

    def __init__(self, fleet: Any, refused: str) -> None:
        self.refused, self.fleet = fleet.hosts.index(refused), fleet
        self.rule = Rule.FILTER

    def mask(self) -> Any:
        found = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        found[self.refused] = False
        return found

    def among(self, trees: Any) -> Any:
        return self.mask()[trees]

    def checks(self) -> Iterator[Any]:
        yield Check(self.mask(), self.rule, label="without")

    def holds(self, tree: int) -> bool:
        return tree != self.refused

    def find(self, findings: Any, hosts: Any) -> None:
        pass


def test_a_filter_that_leaves_nobody_is_told(ledger: ro.Ledger) -> None:
    ledger.sync(host("h0", "VCPU=4"))
    refused = fit_of(
        ledger,
        Gang([Member("worker", "VCPU=1")]),
        filters=[lambda fleet, request: Without(fleet, "h0")],
    )
    assert str(refused) == "worker requested 1, fits 0 (filter without: 1 -> 0 hosts)"


def test_who_stays_together_is_told_of_its_own_place(ledger: ro.Ledger) -> None:
    ledger.sync(*(host(f"h{n}", "VCPU=2", f"r{n // 2}") for n in range(4)))
    gang = Gang([Member("a", "VCPU=2", count=3, together="rack"), Member("b", "VCPU=1")])
    assert str(fit_of(ledger, gang)) == "rack r0: a requested 3, fits 2 (VCPU requested 6, free 4)"
    gang = Gang([Member("a", "VCPU=2", count=2, together="host")])
    assert str(fit_of(ledger, gang)) == "host h0: a requested 2, fits 1 (VCPU requested 4, free 2)"
    three = [Member(name, "VCPU=2", count=2, together="rack") for name in "abc"]
    assert str(fit_of(ledger, Gang(three))) == "a requested 2, fits 0 beside b, c"


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
    with raises_code("InvalidRequest", match=told):
        Gang.from_dict(said)


def test_a_budget_that_ends_is_no_answer(ledger: ro.Ledger) -> None:
    ledger.sync(*(host(f"h{n}", "VCPU=4", gpus=2) for n in range(4)))
    gang = Gang([Member("a", "VCPU=2,PGPU=1", count=5), Member("b", "VCPU=3", count=1)])
    with pytest.raises(exceptions.SearchLimitReached):
        fit_of(ledger, gang, budget=2)


# --- against trying everything ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Machine:
    """A host of a world: what it has, where it stands, and which pools serve it."""

    cpus: int
    gpus: int  # as one inventory
    devices: int  # GPUs that are providers
    disk: int
    rack: str | None
    is_fast: bool
    pools: frozenset[int]


@dataclasses.dataclass(frozen=True)
class World:
    """Hosts, what pools have, and a gang."""

    hosts: tuple[Machine, ...]
    pools: tuple[int, ...]  # disks of each
    gang: Gang

    def open(self) -> ro.Ledger:
        ledger = ro.connect("memory://")
        for number, one in enumerate(self.hosts):
            counts = {"VCPU": one.cpus, "PGPU": one.gpus, "DISK_GB": one.disk}
            kept = ",".join(f"{name}={count}" for name, count in counts.items() if count)
            places = [] if one.rack is None else [one.rack, ROW_OF[one.rack]]
            traits = ["CUSTOM_FAST"] if one.is_fast else []
            ledger.sync(host(f"h{number}", kept, *places, gpus=one.devices, traits=traits))
        for number, disks in enumerate(self.pools):
            linked = [f"h{n}" for n, one in enumerate(self.hosts) if number in one.pools]
            share(ledger, f"pool{number}", f"DISK_GB={disks}", *linked)
        return ledger


@st.composite
def worlds(draw: st.DrawFn) -> World:
    pools = tuple(draw(st.lists(st.integers(1, 4), max_size=2)))
    linked = st.frozensets(st.sampled_from(range(len(pools)))) if pools else st.just(frozenset())
    machines = st.builds(
        Machine,
        cpus=st.integers(1, 4),
        gpus=st.integers(0, 2),
        devices=st.integers(0, 2),
        disk=st.integers(0, 2),
        rack=st.sampled_from(["r0", "r1", "r1", None]),
        is_fast=st.booleans(),
        pools=linked,
    )
    hosts = draw(st.lists(machines, min_size=1, max_size=3))
    if all(one.rack is None for one in hosts):  # a level has a place
        hosts[0] = dataclasses.replace(hosts[0], rack="r0")
    for number in range(len(pools)):  # a pool serves somebody
        hosts[0] = dataclasses.replace(hosts[0], pools=hosts[0].pools | {number})

    def request() -> ro.Request:
        parts = [f"VCPU={draw(st.integers(1, 3))}"]
        if draw(st.booleans()):
            parts.append(f"PGPU={draw(st.integers(1, 2))}")
        if draw(st.booleans()):
            parts.append(f"DISK_GB={draw(st.integers(1, 2))}")
        required = draw(st.sampled_from([(), (), (), ("CUSTOM_FAST",)]))
        return ro.Request(",".join(parts), root_required=required)

    levels = st.none() | st.sampled_from(["rack", "host"])
    places = st.sampled_from(["row", "rack", "host"])
    bounds = st.dictionaries(places, st.integers(2, 3), max_size=2)
    members = [
        Member(name, request(), draw(st.integers(1, 2)), draw(bounds), draw(levels))
        for name in "abc"[: draw(st.integers(1, 3))]
    ]
    together = draw(levels)
    at_most = {} if together else draw(bounds)
    at_most = {} if any(one.count > n for one in members for n in at_most.values()) else at_most
    return World(tuple(hosts), pools, Gang(members, together, at_most))


ROW_OF = {"r0": "w0", "r1": "w1"}


def levels_in(world: World) -> dict[str, list[str]]:
    """Return the places of each level that have a host: of others a gang may not speak."""
    racks = sorted({one.rack for one in world.hosts if one.rack is not None})
    return {"rack": racks, "row": [ROW_OF[rack] for rack in racks]}


def keeps(world: World, placed: Mapping[str, str]) -> bool:
    """Return whether the hosts of the members keep to what the gang asks."""
    racks = {f"h{n}": one.rack for n, one in enumerate(world.hosts)}

    def place(level: str, name: str) -> str | None:
        return placed[name] if level == "host" else racks[placed[name]]  # a rack is a row here

    def is_kept(names: list[str], together: str | None, at_most: Mapping[str, int]) -> bool:
        if any(
            place(level, name) is None
            for level in filter(None, [together, *at_most])
            for name in names
        ):
            return False
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


@given(worlds(), st.sampled_from(["name", "pack", "spread"]))
def test_a_gang_fits_if_and_only_if_some_choice_does(world: World, order: str) -> None:
    with world.open() as ledger:
        expected = is_possible(world, ledger)
        fit = ledger.snapshot().fit_gang(world.gang, levels=levels_in(world), order=order)
        event(f"fits: {bool(fit)}, pools: {len(world.pools)}")
        assert bool(fit) == expected
        if fit:
            assert list(fit.candidates) == [n for one in world.gang.members for n in one.names]
            assert keeps(world, hosts_of(fit))
            ledger.claim_all(fit.candidates)
        else:
            assert fit.shortages
            assert all(one.fits < one.asked for one in fit.shortages)


@dataclasses.dataclass(frozen=True)
class Pinned:
    """Hosts with cells of dedicated CPUs, and members that want some of them."""

    hosts: tuple[tuple[int, ...], ...]  # CPUs of each cell
    members: tuple[tuple[int, int], ...]  # guest cells, and CPUs of each


pinned_worlds = st.builds(
    Pinned,
    hosts=st.lists(
        st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple), min_size=1, max_size=2
    ).map(tuple),
    members=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 4)), min_size=1, max_size=4).map(
        tuple
    ),
)


def can_pin(left: tuple[tuple[int, ...], ...], members: tuple[tuple[int, int], ...]) -> bool:
    """Return whether some way puts each member on cells of one host: all are tried."""
    if not members:
        return True
    (guest_cells, cpus), rest = members[0], members[1:]
    for number, cells_left in enumerate(left):
        for chosen in itertools.combinations(range(len(cells_left)), guest_cells):
            after = tuple(n - cpus * (c in chosen) for c, n in enumerate(cells_left))
            if min(after) >= 0 and can_pin((*left[:number], after, *left[number + 1 :]), rest):
                return True
    return False


@given(pinned_worlds)
def test_topologies_are_placed_if_and_only_if_some_choice_is(world: Pinned) -> None:
    members = [
        pinned(f"m{number}", guest_cells * cpus, guest_cells=guest_cells)
        for number, (guest_cells, cpus) in enumerate(world.members)
    ]
    with ro.connect("memory://") as ledger:
        ledger.sync(*(cells(f"h{n}", *cpus) for n, cpus in enumerate(world.hosts)))
        fit = fit_of(ledger, Gang(members))
        event(f"fits: {bool(fit)}")
        assert bool(fit) == can_pin(world.hosts, world.members)
        if fit:
            ledger.claim_all(fit.candidates)
