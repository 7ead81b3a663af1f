"""What is taken in one place is used in another too: scenarios, each with its tree drawn."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import Provider
from resource_objects.providers.columns import ShareColumns
from resource_objects.providers.provider import Share
from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.search import Snapshot
from resource_objects.testing.refusals import raises_code
from tests.support.columns import columns_of
from tests.support.naive_search import candidate_faults, hosts_that_fit


def ask(roots, request, **options):
    """Return the candidates as text, after the reference has agreed with them."""
    columns = columns_of([roots] if isinstance(roots, Provider) else roots)
    request = Request.of(request)
    found = Snapshot(columns).candidates(request, **options)
    assert [candidate.host for candidate in found] == hosts_that_fit(columns, request)
    assert [candidate_faults(columns, request, candidate) for candidate in found] == [[]] * len(
        found
    )
    return [str(candidate) for candidate in found]


def told(roots, request, held=()):
    roots = [roots] if isinstance(roots, Provider) else roots
    found = Snapshot(columns_of(roots, held)).candidates(request)
    assert not found
    return str(found.explain()).splitlines()


def shares(of, *classes, of_class=None, factor=1):
    return [
        Share(resource_class=each, of=of, of_class=of_class or each, factor=factor)
        for each in classes
    ]


def numa(used=0, cells=2, each=8, name="host0"):
    """A host whose CPUs are those of its cells.

    host0        VCPU=16
    +- numa0     VCPU=8, which are the host's
    +- numa1     VCPU=8, which are the host's
    """
    host = Provider(name, f"VCPU={cells * each}:used={used}")
    for number in range(cells):
        host.add(f"{name}/numa{number}", f"VCPU={each}", shares=shares(name, "VCPU"))
    return host


# --- the host as a whole --------------------------------------------------------------------------


def test_without_topology_the_host_as_a_whole_gives():
    assert ask(numa(), "VCPU=12") == ["VCPU=12 of host0"]
    assert ask(numa(), "VCPU=17") == []


def test_what_is_taken_of_the_host_is_not_free_in_its_cells():
    """
    host0        VCPU=16, 14 used
    +- numa0     VCPU=8, none used here, 2 free all the same
    """
    host = numa(used=14)
    assert ask(host, "VCPU=2") == ["VCPU=2 of host0"]
    host.update(traits=["CUSTOM_A"])
    assert ask(host, "VCPU=3") == []
    assert told(host, "VCPU=3") == ["host0: VCPU requested 3, free 2 of 16"]


def test_a_condition_that_only_a_cell_meets_is_held_to_the_host_too():
    """
    host0        VCPU=16, 12 used
    +- numa0     VCPU=8    CUSTOM_NEAR
    +- numa1     VCPU=8
    """
    host = numa(used=12)
    host.find("host0/numa0").update(traits=["CUSTOM_NEAR"])
    near = Request("VCPU=4", required=["CUSTOM_NEAR"])
    assert ask(host, near) == ["VCPU=4 of host0/numa0"]
    assert ask(host, Request("VCPU=5", required=["CUSTOM_NEAR"])) == []
    held = [("job-1", "host0", "VCPU", 8), ("job-2", "host0/numa1", "VCPU", 4)]
    assert told(numa_near(), Request("VCPU=5", required=["CUSTOM_NEAR"]), held) == [
        "host0: VCPU requested 5, free 4 of 16 (job-1 holds 8, job-2 holds 4)"
    ]


def numa_near():
    host = numa()
    host.find("host0/numa0").update(traits=["CUSTOM_NEAR"])
    return host


def test_a_cell_that_is_full_itself_says_so():
    held = [("job-1", "host0/numa0", "VCPU", 6)]
    assert told(numa_near(), Request("VCPU=5", required=["CUSTOM_NEAR"]), held) == [
        "host0: VCPU requested 5, free 2 of 8 (job-1 holds 6)"
    ]


def test_an_over_full_host_gives_nothing_in_its_cells():
    host = numa_near()
    host.inventories["VCPU"].used = 20
    request = Request("VCPU=1", required=["CUSTOM_NEAR"])
    assert ask(host, request) == []
    assert told(host, request) == ["host0: VCPU requested 1, free -4 of 16"]


# --- two classes, one inventory -------------------------------------------------------------------


def dedicated(used=0):
    """CPUs that are shared and CPUs that are pinned are the same CPUs.

    host0        CUSTOM_CPU=16
    +- numa0     VCPU=8, PCPU=8: each is a CPU of the host
    +- numa1     VCPU=8, PCPU=8
    """
    host = Provider("host0", f"CUSTOM_CPU=16:used={used}")
    for number in range(2):
        host.add(
            f"host0/numa{number}",
            "VCPU=8,PCPU=8",
            shares=shares("host0", "VCPU", "PCPU", of_class="CUSTOM_CPU"),
        )
    return host


def test_two_classes_fit_together_where_they_are_both_used():
    assert ask(dedicated(), "VCPU=8,PCPU=8") == ["VCPU=8,PCPU=8 of host0/numa0"]
    assert ask(dedicated(used=4), "VCPU=6,PCPU=6") == ["VCPU=6,PCPU=6 of host0/numa0"]
    assert ask(dedicated(used=5), "VCPU=6,PCPU=6") == []


def test_what_does_not_fit_together_names_where_with_the_sum():
    held = [("job-1", "host0/numa1", "VCPU", 4), ("job-2", "host0/numa1", "PCPU", 1)]
    assert told(dedicated(), "VCPU=6,PCPU=6", held) == [
        "host0: CUSTOM_CPU requested 12, free 11 of 16 (job-1 holds 4, job-2 holds 1)"
    ]


def test_what_cannot_fit_together_is_ruled_out_without_a_step():
    found = Snapshot(columns_of([dedicated(used=5)])).candidates("VCPU=6,PCPU=6")
    assert not found
    assert found.steps == 0


def test_a_part_at_a_cell_and_a_part_at_the_host_fit_together_at_the_host():
    """
    host0        VCPU=16, 9 used; MEMORY_MB=100
    +- numa0     PCPU=8: each is a VCPU of the host
    """
    host = Provider("host0", "VCPU=16:used=9,MEMORY_MB=100")
    host.add("host0/numa0", "PCPU=8", shares=shares("host0", "PCPU", of_class="VCPU"))
    assert ask(host, "VCPU=3,PCPU=4") == ["VCPU=3 of host0, PCPU=4 of host0/numa0"]
    assert ask(host, "VCPU=4,PCPU=4") == []
    assert told(host, "VCPU=4,PCPU=4,MEMORY_MB=200") == [
        "host0: MEMORY_MB requested 200, free 100 of 100; VCPU requested 8, free 7 of 16"
    ]


def test_who_gives_alone_in_the_easy_way_makes_room_for_another():
    """
    host0        CUSTOM_POWER=9
    +- a         VGPU=4, each 2 of the power
    +- b         VGPU=4
    +- c         FPGA=4, each 2 of the power
    """
    host = Provider("host0", "CUSTOM_POWER=9")
    for name, inventory in {"a": "VGPU=4", "b": "VGPU=4", "c": "FPGA=4"}.items():
        tie = shares("host0", inventory.partition("=")[0], of_class="CUSTOM_POWER", factor=2)
        host.add(name, inventory, shares=() if name == "b" else tie)
    assert ask(host, "VGPU=4") == ["VGPU=4 of a"]
    assert ask(host, "VGPU=4,FPGA=3") == ["VGPU=1 of a, VGPU=3 of b, FPGA=3 of c"]
    assert ask(host, "VGPU=6,FPGA=3") == []


# --- devices and their parts ----------------------------------------------------------------------


def test_functions_of_one_card_share_what_is_left_of_it():
    """
    host0
    +- pf0       CUSTOM_PF=8, 6 used
    |  +- vf00   SRIOV_NET_VF=4: each uses up one eighth of pf0
    |  +- vf01   SRIOV_NET_VF=4
    +- pf1       CUSTOM_PF=8
       +- vf10   SRIOV_NET_VF=4
    """
    host = Provider("host0")
    for card, (used, functions) in enumerate([(6, 2), (0, 1)]):
        pf = host.add(f"pf{card}", f"CUSTOM_PF=8:used={used}")
        for number in range(functions):
            tie = shares(f"pf{card}", "SRIOV_NET_VF", of_class="CUSTOM_PF")
            pf.add(f"vf{card}{number}", "SRIOV_NET_VF=4", shares=tie)
    assert ask(host, "SRIOV_NET_VF=6") == ["SRIOV_NET_VF=2 of vf00, SRIOV_NET_VF=4 of vf10"]
    assert ask(host, "SRIOV_NET_VF=7") == []
    assert Snapshot(columns_of([host])).candidates("SRIOV_NET_VF=7").steps == 0


def gpu(used=0, gpus=1):
    """
    host0
    +- gpu0      CUSTOM_SLICE=7, PGPU=1 (7 slices), FPGA=7 (1 slice), VGPU=3 (2 slices)
    """
    host = Provider("host0")
    factors = {"PGPU": 7, "FPGA": 1, "VGPU": 2}
    for number in range(gpus):
        name = f"gpu{number}"
        ties = [
            share
            for each, factor in factors.items()
            for share in shares(name, each, of_class="CUSTOM_SLICE", factor=factor)
        ]
        host.add(name, f"CUSTOM_SLICE=7:used={used},PGPU=1,FPGA=7,VGPU=3", shares=ties)
    return host


@pytest.mark.parametrize(
    ("request_", "used", "fits"),
    [
        ("VGPU=3", 0, True),
        ("VGPU=3", 1, True),
        ("VGPU=3", 2, False),
        ("VGPU=3,FPGA=1", 0, True),
        ("VGPU=3,FPGA=2", 0, False),
        ("PGPU=1", 0, True),
        ("PGPU=1", 1, False),
        ("PGPU=1,FPGA=1", 0, False),
        ("FPGA=5,CUSTOM_SLICE=2", 0, True),
        ("FPGA=5,CUSTOM_SLICE=3", 0, False),
    ],
)
def test_profiles_of_one_device_use_its_slices(request_, used, fits):
    assert bool(ask(gpu(used), request_)) is fits


def test_profiles_are_spread_over_devices_where_they_fit():
    assert ask(gpu(gpus=2), "PGPU=1,FPGA=7") == ["FPGA=7 of gpu0, PGPU=1 of gpu1"]
    assert ask(gpu(gpus=2), "VGPU=6,FPGA=2") != []
    assert ask(gpu(gpus=2), "VGPU=6,FPGA=3") == []


def test_a_device_whose_slices_are_used_says_which():
    held = [("job-1", "gpu0", "FPGA", 4), ("job-2", "gpu0", "VGPU", 1)]
    assert told(gpu(), "VGPU=2", held) == [
        "host0: gpu0: CUSTOM_SLICE requested 4, free 1 of 7 (job-1 holds 4, job-2 holds 2)"
    ]
    found = Snapshot(columns_of([gpu()], held)).candidates("VGPU=2")
    (reason,) = found.explain().reasons
    assert (reason.rule, reason.resource, reason.where) == (Rule.CAPACITY, "CUSTOM_SLICE", "gpu0")


def test_devices_that_others_have_in_part_are_not_told_as_free():
    """One of two is had whole, the other in part: no device is free, whatever the figures say."""
    held = [("job-1", "gpu0", "FPGA", 1), ("job-2", "gpu1", "PGPU", 1)]
    assert told(gpu(gpus=2), "PGPU=2", held) == [
        "host0: PGPU requested 2 whole, none of 2 is whole: job-2 1; job-1 1/7"
    ]
    assert told(gpu(gpus=2), "VGPU=6", held) == [
        "host0: gpu1: CUSTOM_SLICE requested 6, free 0 of 7 (job-2 holds 7)"
    ]
    assert told(gpu(gpus=2), "VGPU=7", held) == [
        "host0: VGPU requested 7, free 6 of 6; "
        "gpu1: CUSTOM_SLICE requested 6, free 0 of 7 (job-2 holds 7)"
    ]


def test_who_has_devices_is_told_in_natural_order():
    held = [(f"job-{10 - n}", f"gpu{n}", "PGPU", 1) for n in (0, 8, 9)]
    held += [("job-30", "gpu1", "FPGA", 2), ("job-9", "gpu2", "FPGA", 1)]
    held += [("job-10", "gpu3", "FPGA", 1), ("job-9", "gpu4", "FPGA", 1)]
    assert told(gpu(gpus=10), "PGPU=4", held) == [
        "host0: PGPU requested 4 whole, 3 of 10 are whole: job-1 1; job-2 1; job-10 1; "
        "job-9 1/7 and 1/7; job-30 2/7; job-10 1/7"
    ]


def test_a_device_that_others_have_in_part_is_not_free():
    held = [("job-1", "gpu0", "FPGA", 2)]
    snapshot = Snapshot(columns_of([gpu(gpus=2)], held))
    assert [snapshot.capacity("PGPU"), snapshot.used("PGPU"), snapshot.free("PGPU")] == [2, 0, 1]
    assert [snapshot.free(name) for name in ("VGPU", "FPGA", "CUSTOM_SLICE")] == [5, 12, 12]


def test_all_that_a_device_lacks_is_told():
    """
    host0
    +- nic0      VF=8, CUSTOM_GBIT=25; CUSTOM_PF=1 (all of both), CUSTOM_FAST=2 (a VF, 10 Gbit)
    """
    host = Provider("host0")
    factors = {"CUSTOM_PF": (8, 25), "CUSTOM_FAST": (1, 10)}
    ties = [
        share
        for name, uses in factors.items()
        for of_class, factor in zip(("SRIOV_NET_VF", "CUSTOM_GBIT"), uses, strict=True)
        for share in shares("nic0", name, of_class=of_class, factor=factor)
    ]
    host.add("nic0", "SRIOV_NET_VF=8,CUSTOM_GBIT=25,CUSTOM_PF=1,CUSTOM_FAST=2", shares=ties)
    held = [("job-1", "nic0", "CUSTOM_FAST", 2), ("job-2", "nic0", "SRIOV_NET_VF", 6)]
    assert told(host, "CUSTOM_PF=1", held) == [
        "host0: nic0: CUSTOM_GBIT requested 25, free 5 of 25 (job-1 holds 20); "
        "nic0: SRIOV_NET_VF requested 8, free 0 of 8 (job-2 holds 6, job-1 holds 2)"
    ]


def test_what_stands_against_two_classes_is_told_once():
    held = [("job-1", "gpu0", "PGPU", 1)]
    assert told(gpu(), "FPGA=2,VGPU=1", held) == [
        "host0: gpu0: CUSTOM_SLICE requested 2, free 0 of 7 (job-1 holds 7)"
    ]


def test_traits_and_shares_are_decided_together():
    """
    host0        CUSTOM_POWER=4
    +- x0        CUSTOM_X=2, 2 of the power each    CUSTOM_A
    +- x1        CUSTOM_X=2                         CUSTOM_B
    +- y0        CUSTOM_Y=2, 1 of the power each    CUSTOM_A, CUSTOM_B
    """
    host = Provider("host0", "CUSTOM_POWER=4")
    tie = shares("host0", "CUSTOM_X", of_class="CUSTOM_POWER", factor=2)
    host.add("x0", "CUSTOM_X=2", traits=["CUSTOM_A"], shares=tie)
    host.add("x1", "CUSTOM_X=2", traits=["CUSTOM_B"])
    host.add(
        "y0",
        "CUSTOM_Y=2",
        traits=["CUSTOM_A", "CUSTOM_B"],
        shares=shares("host0", "CUSTOM_Y", of_class="CUSTOM_POWER"),
    )
    assert ask(host, "CUSTOM_X=2,CUSTOM_Y=1") == ["CUSTOM_X=2 of x1, CUSTOM_Y=1 of y0"]
    host.find("x1").update(inventories=ro.Inventories("CUSTOM_X=1"))
    assert ask(host, "CUSTOM_X=2,CUSTOM_Y=1") == []
    assert told(host, "CUSTOM_X=2,CUSTOM_Y=1") == ["host0: CUSTOM_POWER requested 5, free 4 of 4"]


def test_an_overdrawn_inventory_does_not_exclude_the_sources_that_do_not_use_it():
    """
    host0        CUSTOM_POWER=4, 5 of them used
    +- x0        CUSTOM_X=2, 2 of the power each
    +- x1        CUSTOM_X=2, 2 of the power each
    +- x2        CUSTOM_X=2                         CUSTOM_B
    """
    host = Provider("host0", "CUSTOM_POWER=4:used=5")
    tie = shares("host0", "CUSTOM_X", of_class="CUSTOM_POWER", factor=2)
    host.add("x0", "CUSTOM_X=2", shares=tie)
    host.add("x1", "CUSTOM_X=2", shares=tie)
    host.add("x2", "CUSTOM_X=2", traits=["CUSTOM_B"])
    assert ask(host, Request("CUSTOM_X=2", required=["CUSTOM_B"])) == ["CUSTOM_X=2 of x2"]


# --- bounded --------------------------------------------------------------------------------------


def knapsack(sizes, room):
    """A host whose devices each give one odd part or nothing, of one room for all.

    host0        CUSTOM_ROOM
    +- 1000      VGPU=1000 in one part, FPGA=1003 in one part: both of the room
    +- 1007      VGPU=1007 in one part, ...
    """
    host = Provider("host0", f"CUSTOM_ROOM={room}")
    tie = shares("host0", "VGPU", "FPGA", of_class="CUSTOM_ROOM")
    host.update(
        children=[
            Provider(
                f"host0/{n}", f"VGPU={n}:min_unit={n},FPGA={n + 3}:min_unit={n + 3}", shares=tie
            )
            for n in sizes
        ]
    )
    return host


@pytest.mark.law(9)
def test_what_takes_too_long_to_fit_together_is_cut_short():
    found = Snapshot(columns_of([knapsack(range(1000, 1280, 7), 41_000)])).candidates(
        "VGPU=20999,FPGA=20001", budget=3000
    )
    assert found.cut_short
    with pytest.raises(exceptions.SearchLimitReached):
        bool(found)
    assert found.explain().undecided == ("host0",)


@pytest.mark.law(9)
def test_many_givers_that_draw_on_one_inventory_do_not_exhaust_the_stack():
    host = Provider("host0", "CUSTOM_ROOM=900")
    tie = shares("host0", "VGPU", of_class="CUSTOM_ROOM")
    host.update(children=[Provider(f"host0/{n}", "VGPU=1", shares=tie) for n in range(1200)])
    snapshot = Snapshot(columns_of([host]))
    (found,) = snapshot.candidates("VGPU=900,CUSTOM_ROOM=0")
    assert len(found.allocations) == 900
    assert not snapshot.candidates("VGPU=901")
    assert not snapshot.candidates("VGPU=600,CUSTOM_ROOM=301")
    assert snapshot.candidates("VGPU=600,CUSTOM_ROOM=300")


@pytest.mark.law(7)
def test_the_largest_figures_do_not_overflow():
    most = 2**31 - 1
    host = Provider("host0", f"CUSTOM_ROOM={most}:allocation_ratio=1000")
    tie = shares("host0", "VGPU", "FPGA", of_class="CUSTOM_ROOM", factor=most)
    host.add("host0/0", f"VGPU={most}:allocation_ratio=1000,FPGA={most}", shares=tie)
    assert ask_large(host, f"VGPU={2**62},FPGA={2**62}") == []
    assert ask_large(host, "VGPU=500,FPGA=500") == ["VGPU=500,FPGA=500 of host0/0"]
    assert ask_large(host, "VGPU=500,FPGA=501") == []


def ask_large(host, request):
    return [str(one) for one in Snapshot(columns_of([host])).candidates(request)]


# --- figures, and a part of a tree ----------------------------------------------------------------


def test_what_is_a_part_of_another_is_not_counted_again():
    snapshot = Snapshot(columns_of([numa(), numa(name="host1")], [("j", "host0/numa0", "VCPU", 3)]))
    assert (snapshot.capacity("VCPU"), snapshot.used("VCPU"), snapshot.free("VCPU")) == (32, 3, 29)


def test_confined_to_a_cell_the_host_still_binds():
    """
    host0        VCPU=16, 14 used    CUSTOM_A
    +- numa0     VCPU=8
    """
    host = numa(used=14)
    host.update(traits=["CUSTOM_A"])
    columns = columns_of([host, numa(name="other")])
    snapshot = Snapshot(columns, at="host0/numa0")
    assert snapshot.hosts == ("host0/numa0",)
    assert repr(snapshot) == "<Snapshot: 1 hosts, 1 providers>"
    assert (snapshot.capacity("VCPU"), snapshot.used("VCPU")) == (8, 0)
    assert snapshot.free("VCPU") == 2, "the host has no more"
    request = Request("VCPU=2", required=["CUSTOM_A"])
    (found,) = snapshot.candidates(request)
    assert str(found) == "VCPU=2 of host0/numa0"
    uuids = dict(zip(columns.providers.name, columns.providers.uuid, strict=True))
    assert found.generations == ((uuids["host0/numa0"], 0), (uuids["host0"], 0))
    refused = snapshot.candidates("VCPU=3")
    assert not refused
    assert str(refused.explain()) == "host0/numa0: host0: VCPU requested 3, free 2 of 16"


def test_a_place_that_is_not_there_is_refused():
    with raises_code("ProviderNotFound"):
        Snapshot(columns_of([numa()]), at="nowhere")


@pytest.mark.parametrize(
    "row", [(1, "DISK_GB", 2, "VCPU"), (1, "VCPU", 2, "DISK_GB"), (9, "VCPU", 1, "VCPU")]
)
def test_a_share_of_what_is_not_there_is_refused(row):
    columns = columns_of([numa()])
    odd = ShareColumns(*([value] for value in row), [1])
    with raises_code("InvalidRow"):
        Snapshot(type(columns)(columns.providers, columns.inventories, shares=odd))


def test_all_who_hold_shared_devices_are_named():
    root = Provider("host0", "VCPU=1")
    for number in range(2):
        name = f"host0/gpu{number}"
        share = Share(resource_class="VGPU", of=name, of_class="CUSTOM_SLICE")
        gpu = Provider(name, "CUSTOM_SLICE=7,VGPU=7", shares=[share])
        root.update(children=[*root.children, gpu])
    held = [(f"job-{n}", f"host0/gpu{n % 2}", "CUSTOM_SLICE", 2) for n in range(5)]
    found = Snapshot(columns_of([root], held)).candidates("VGPU=8")
    (reason,) = found.explain().reasons
    assert (reason.resource, reason.requested, reason.free, reason.bound) == (
        "CUSTOM_SLICE", 8, 4, 14)  # fmt: skip
    assert reason.where == "host0"
    assert reason.holders == tuple((f"job-{n}", 2) for n in range(5))
