"""Pools that other trees take from: scenarios, each with its trees drawn."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects.providers import Provider
from resource_objects.requests import Request, RequestGroup
from resource_objects.search import Snapshot
from tests.support.columns import columns_of
from tests.support.naive_search import candidate_faults, hosts_that_fit

SHARING = "MISC_SHARES_VIA_AGGREGATE"
SSD, RAID = "CUSTOM_SSD", "CUSTOM_RAID"


def found_in(roots, request, held=()):
    """Return what is found, after the reference has agreed with it."""
    columns, request = columns_of(roots, held), Request.of(request)
    found = Snapshot(columns).candidates(request, limit=None)
    assert [candidate.host for candidate in found] == hosts_that_fit(columns, request)
    assert [candidate_faults(columns, request, candidate) for candidate in found] == [[]] * len(
        found
    )
    return found


def ask(roots, request):
    return [str(candidate) for candidate in found_in(roots, request)]


def told(roots, request, held=()):
    return str(found_in(roots, request, held).explain()).splitlines()


def pool(name="nfs", inventories="DISK_GB=1000", aggregates=("rack",), traits=()):
    return Provider(name, inventories, traits=[SHARING, *traits], aggregates=aggregates)


def host(name="host0", inventories="VCPU=8", aggregates=("rack",), **more):
    return Provider(name, inventories, aggregates=aggregates, **more)


def test_a_host_takes_of_a_pool_what_it_does_not_have():
    """
    host0   VCPU=8            rack
    host1   VCPU=8
    nfs     DISK_GB=1000      rack, a pool
    """
    lab = [host(), host("host1", aggregates=()), pool()]
    assert ask(lab, "VCPU=2,DISK_GB=10") == ["VCPU=2 of host0, DISK_GB=10 of nfs"]
    assert told(lab, "VCPU=2,DISK_GB=10") == ["host1: DISK_GB requested 10, there is none"]


def test_any_provider_of_a_tree_links_it():
    """
    host0                     VCPU=8
    +- host0/net              rack
    nfs     DISK_GB=1000      rack, a pool
    """
    root = host(aggregates=())
    root.add("host0/net", aggregates=["rack"])
    assert ask([root, pool()], "VCPU=2,DISK_GB=10") == ["VCPU=2 of host0, DISK_GB=10 of nfs"]


def test_a_host_that_has_the_class_uses_its_own_first():
    """
    host0   VCPU=8, DISK_GB=50    rack
    host1   VCPU=8                rack
    nfs     DISK_GB=1000          rack, a pool
    """
    lab = [host(inventories="VCPU=8,DISK_GB=50"), host("host1"), pool()]
    assert ask(lab, "VCPU=2,DISK_GB=10") == [
        "VCPU=2,DISK_GB=10 of host0",
        "VCPU=2 of host1, DISK_GB=10 of nfs",
    ]
    assert ask(lab, "VCPU=2,DISK_GB=60") == [
        "VCPU=2 of host0, DISK_GB=60 of nfs",
        "VCPU=2 of host1, DISK_GB=60 of nfs",
    ]
    assert told(lab, "VCPU=2,DISK_GB=2000")[0] == "host0: DISK_GB requested 2000, free 1050 of 1050"


def test_what_only_pools_have_is_found_once_at_the_pool():
    """
    host0, host1   VCPU=8         rack
    nfs            DISK_GB=1000   rack, a pool
    """
    lab = [host(), host("host1"), pool()]
    (found,) = found_in(lab, "DISK_GB=10")
    assert (found.host, str(found)) == ("nfs", "DISK_GB=10 of nfs")
    assert told(lab, "DISK_GB=2000") == [
        "host0: nfs: DISK_GB requested 2000, free 1000 of 1000",
        "host1: nfs: DISK_GB requested 2000, free 1000 of 1000",
        "nfs: DISK_GB requested 2000, free 1000 of 1000",
    ]


def test_a_pool_is_no_host_for_what_it_does_not_have():
    lab = [host(), pool()]
    assert told(lab, "VCPU=100") == ["host0: VCPU requested 100, free 8 of 8"]
    snapshot = Snapshot(columns_of(lab))
    assert (snapshot.hosts, snapshot.pools) == (("host0",), ("nfs",))
    assert repr(snapshot) == "<Snapshot: 1 hosts, 2 providers>"
    assert told([pool()], "VCPU=1") == ["there are no hosts"]


def test_a_pool_takes_of_no_other_pool():
    """
    nfs     DISK_GB=1000        rack, a pool
    net     IPV4_ADDRESS=100    rack, a pool
    host0   VCPU=8              rack
    """
    lab = [host(), pool(), pool("net", "IPV4_ADDRESS=100")]
    assert ask(lab, "DISK_GB=1,IPV4_ADDRESS=1") == []
    assert ask(lab, "VCPU=1,DISK_GB=1,IPV4_ADDRESS=1") == [
        "VCPU=1 of host0, DISK_GB=1 of nfs, IPV4_ADDRESS=1 of net"
    ]


def test_a_full_pool_is_named_with_its_holders():
    held = [("job-1", "nfs", "DISK_GB", 950)]
    assert told([host(), pool()], "VCPU=2,DISK_GB=60", held) == [
        "host0: nfs: DISK_GB requested 60, free 50 of 1000 (job-1 holds 950)"
    ]


def test_the_first_pool_that_has_room_gives_and_pools_do_not_add_up():
    lab = [host(), pool("a", "DISK_GB=10"), pool("b", "DISK_GB=40"), pool("c", "DISK_GB=40")]
    assert ask(lab, "VCPU=1,DISK_GB=20") == ["VCPU=1 of host0, DISK_GB=20 of b"]
    assert told(lab, "VCPU=1,DISK_GB=50")[0] == "host0: b: DISK_GB requested 50, free 40 of 40"
    assert told(lab, "VCPU=1,DISK_GB=500")[0] == "host0: b: DISK_GB requested 500, free 40 of 40"


def test_devices_of_a_pool_are_not_added_up_either():
    lab = [host(), pool("a", "VGPU=4"), pool("b", "VGPU=4")]
    assert ask(lab, "VCPU=1,VGPU=6") == []
    assert ask(lab, "VCPU=1,VGPU=4") == ["VCPU=1 of host0, VGPU=4 of a"]


def test_unit_rules_of_a_pool_hold():
    lab = [host(), pool(inventories="DISK_GB=1000:step_size=10:max_unit=100")]
    assert ask(lab, "VCPU=1,DISK_GB=100") == ["VCPU=1 of host0, DISK_GB=100 of nfs"]
    assert told(lab, "VCPU=1,DISK_GB=15") == [
        "host0: nfs: DISK_GB requested 15, not a multiple of 10"
    ]


# --- traits ---------------------------------------------------------------------------------------


def test_a_pool_may_answer_for_a_trait_by_its_own_traits_only():
    """
    host0            VCPU=8          rack, CUSTOM_SSD
    store            CUSTOM_RAID
    +- store/disks   DISK_GB=1000    rack, a pool
    """
    store = Provider("store", traits=[RAID])
    store.add("store/disks", "DISK_GB=1000", traits=[SHARING], aggregates=["rack"])
    lab = [host(traits=[SSD]), store]
    assert len(ask(lab, Request("VCPU=1,DISK_GB=1", required=[SSD]))) == 1
    assert ask(lab, Request("VCPU=1,DISK_GB=1", required=[RAID])) == []
    store.find("store/disks").update(traits=[SHARING, RAID])
    assert ask(lab, Request("VCPU=1,DISK_GB=1", required=[RAID, SSD])) == [
        "VCPU=1 of host0, DISK_GB=1 of store/disks"
    ]


def test_traits_of_the_host_are_not_the_pools():
    lab = [host(inventories="VCPU=8", traits=[SSD]), pool()]
    assert ask(lab, Request("VCPU=1,DISK_GB=1", forbidden=[SSD])) == []
    lab = [host(), pool(traits=[RAID])]
    assert ask(lab, Request("VCPU=1,DISK_GB=1", forbidden=[RAID])) == []
    assert told(lab, Request("VCPU=1,DISK_GB=1", forbidden=[RAID])) == [
        "host0: DISK_GB requested 1 without CUSTOM_RAID, every provider has it"
    ]


def test_a_pool_with_the_trait_is_chosen():
    lab = [host(), pool("a"), pool("b", traits=[SSD])]
    assert ask(lab, Request("VCPU=1,DISK_GB=1", required=[SSD])) == [
        "VCPU=1 of host0, DISK_GB=1 of b"
    ]
    assert ask(lab, Request("VCPU=1,DISK_GB=1", forbidden=[SSD])) == [
        "VCPU=1 of host0, DISK_GB=1 of a"
    ]


# --- pools within trees ---------------------------------------------------------------------------


def test_a_provider_of_a_host_may_be_a_pool_for_others():
    """
    host0            VCPU=8
    +- host0/disks   DISK_GB=100     rack, a pool
    host1            VCPU=8          rack
    """
    root = host(aggregates=())
    root.add("host0/disks", "DISK_GB=100", traits=[SHARING], aggregates=["rack"])
    lab = [root, host("host1")]
    assert ask(lab, "VCPU=1,DISK_GB=10") == [
        "VCPU=1 of host0, DISK_GB=10 of host0/disks",
        "VCPU=1 of host1, DISK_GB=10 of host0/disks",
    ]
    assert ask(lab, "DISK_GB=10") == ["DISK_GB=10 of host0/disks"]


def test_what_a_pool_shares_in_its_own_tree_binds_too():
    """
    store            DISK_GB=100, 90 used
    +- store/fast    CUSTOM_IOPS=1000: each uses a DISK_GB of store; rack, a pool
    """
    store = Provider("store", "DISK_GB=100:used=90")
    tie = ro.Share(resource_class="CUSTOM_IOPS", of="store", of_class="DISK_GB")
    store.add("store/fast", "CUSTOM_IOPS=1000", traits=[SHARING], aggregates=["rack"], shares=[tie])
    lab = [host(), store]
    assert len(ask(lab, "VCPU=1,CUSTOM_IOPS=10")) == 1
    assert told(lab, "VCPU=1,CUSTOM_IOPS=11")[0] == (
        "host0: store: DISK_GB requested 11, free 10 of 100"
    )


# --- many hosts -----------------------------------------------------------------------------------


@pytest.mark.law(9)
def test_hosts_whose_pools_are_full_are_ruled_out_without_a_step():
    lab = [*(host(f"host{n:03}") for n in range(100)), pool(inventories="DISK_GB=10:used=10")]
    found = found_in(lab, "VCPU=1,DISK_GB=1")
    assert (len(found), found.steps) == (0, 0)
    assert found.explain().reasons[99].where == "nfs"


def test_the_holders_of_a_pool_are_looked_up_once_for_all_hosts():
    held = [(f"job-{n:02}", "nfs", "DISK_GB", 1) for n in range(10)]
    lab = [*(host(f"host{n:02}") for n in range(20)), pool(inventories="DISK_GB=10")]
    reasons = found_in(lab, "VCPU=1,DISK_GB=1", held).explain().reasons
    assert [reason.holders for reason in reasons] == [
        tuple((f"job-{n:02}", 1) for n in range(10))
    ] * 20
    assert len({id(reason.holders) for reason in reasons}) == 1


def test_a_candidate_of_a_pool_can_be_claimed():
    with ro.connect("memory://") as ledger:
        ledger.sync(host(), pool())
        request = Request("VCPU=2,DISK_GB=10")
        snapshot = ledger.snapshot()
        assert snapshot.cursor == ledger.feed.cursor()
        claim = ledger.claim("job-1", snapshot.candidates(request), if_generation=True)
        assert str(claim) == "job-1 holds VCPU=2 of host0, DISK_GB=10 of nfs"
        assert ledger.snapshot().used("DISK_GB") == 10


def test_a_pool_that_is_full_is_not_told_as_none():
    held = [("job-1", "nfs", "DISK_GB", 995)]
    full = "nfs: DISK_GB requested 10, free 5 of 1000 (job-1 holds 995)"
    assert told([host(), pool()], "DISK_GB=10", held) == [f"host0: {full}", full]
    named = Request(groups=[RequestGroup("DISK_GB=10", suffix="_1")])
    assert told([host(), pool()], named, held)[0] == full.replace("nfs: ", "host0: nfs: group _1: ")


def test_a_host_that_gives_nothing_itself_says_that_pools_may():
    assert told([host(), pool()], "DISK_GB=10") == [
        "host0: DISK_GB requested 10, pools may provide it, the host itself does not"
    ]
