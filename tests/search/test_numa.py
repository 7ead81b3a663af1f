"""Topologies are searched on the cells of each host, counts on the host as a whole."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Provider
from resource_objects.providers.columns import UnitColumns
from resource_objects.providers.composite import LocatedViews
from resource_objects.providers.provider import Share
from resource_objects.providers.tree_shape import ResourceParts
from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.resources import IntegerInventory
from resource_objects.resources.context import Context
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    HostCell,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.search import Snapshot
from resource_objects.testing.refusals import raises_code
from tests.search import numa_fleets
from tests.support import naive_search
from tests.support.lengths import examples, some
from tests.support.numa_reference import faults, has_placement
from tests.support.numa_strategies import numa_questions

TOPOLOGY, PAGES = "NUMA_TOPOLOGY", "CUSTOM_HUGEPAGES_2048KB"
NEAR, FAST = "CUSTOM_NEAR", "CUSTOM_FAST"


def cells(count=2, shared=2, dedicated=4, memory_mb=1024, pages=256, **facts):
    """Host cells whose CPUs are numbered through; half a GiB of huge pages in each."""
    size = shared + dedicated
    return [
        HostCell(
            n,
            shared=range(size * n, size * n + shared),
            dedicated=range(size * n + shared, size * (n + 1)),
            memory_mb=memory_mb + 2 * pages,
            pages=[
                PagePool(size_kib=4, total=memory_mb * 256),
                PagePool(size_kib=2048, total=pages),
            ],
            **facts,
        )
        for n in range(count)
    ]


def host(name="host0", given=None, own="VCPU=4,PCPU=8,MEMORY_MB=2048,DISK_GB=100", **said):
    """A host with cells below it, two unless others are given.

    host0           VCPU=4,PCPU=8,MEMORY_MB=2048,DISK_GB=100
    +- numa0        NUMA_TOPOLOGY: VCPU=2,PCPU=4,MEMORY_MB=1024 of the host, 256 pages of 2 MiB
    +- numa1        the same
    """
    root = Provider(name, own, **said)
    root.add_parts(TOPOLOGY, NUMATopologyInventory(given or cells()))
    return root


def kept(*hosts):
    """A ledger in memory that keeps some hosts."""
    ledger = ro.connect("memory://")
    ledger.sync(*(hosts or [host()]))
    return ledger


def cell(root, number, **said):
    """Say something of a cell of a host."""
    root.find(f"{root.name}/numa{number}").update(**said)
    return root


def ask(ledger, request, **options):
    """Return the candidates as text, after the reference has agreed with them."""
    columns, request = ledger.backend.read(), Request.of(request)
    found = Snapshot(columns).candidates(request, **options)
    assert [one.host for one in found] == naive_search.hosts_that_fit(columns, request)
    assert [naive_search.candidate_faults(columns, request, one) for one in found] == [[]] * len(
        found
    )
    return [str(one) for one in found]


def told(ledger, request, **options):
    """Return why nobody can, line by line."""
    assert ask(ledger, request) == []
    return str(ledger.snapshot().candidates(request, **options).explain()).splitlines()


# --- what a candidate is --------------------------------------------------------------------------


def test_a_candidate_takes_of_the_cells_with_units_and_of_the_host():
    request = "DISK_GB=20,NUMA_TOPOLOGY=2:dedicated=4:memory=512:page_size=2MB"
    (found,) = kept().snapshot().candidates(request)
    assert str(found) == (
        "DISK_GB=20 of host0, PCPU=2,CUSTOM_HUGEPAGES_2048KB=128 of host0/numa0, "
        "PCPU=2,CUSTOM_HUGEPAGES_2048KB=128 of host0/numa1"
    )
    units = {(one.provider, one.resource_class): one.units for one in found.allocations}
    assert units == {
        ("host0", "DISK_GB"): (),
        ("host0/numa0", "PCPU"): ("cpu2", "cpu3"),
        ("host0/numa0", PAGES): (),
        ("host0/numa1", "PCPU"): ("cpu8", "cpu9"),
        ("host0/numa1", PAGES): (),
    }


def test_a_candidate_carries_the_assigned_amount():
    (found,) = kept().snapshot().candidates("NUMA_TOPOLOGY=2:dedicated=4:memory=512:page_size=2MB")
    assert list(found.located) == [NUMA_TOPOLOGY]
    assigned = found.located[TOPOLOGY]
    assert (assigned.cpuset, assigned.memory_nodes) == ("2-3,8-9", "0-1")
    assert assigned.unassigned() == numa(2, dedicated=4, memory_mb=512, page_size="2MB")


def test_a_candidate_without_topology_locates_nothing():
    (found,) = kept().snapshot().candidates("VCPU=1")
    assert not found.located


def test_the_definitions_it_was_decided_on_are_those_of_cells_and_host():
    ledger = kept()
    (found,) = ledger.snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=1")
    tree = ledger.provider("host0")
    assert {uuid for uuid, _ in found.generations} == {tree.uuid, tree.children[0].uuid}
    tree.children[0].traits = [NEAR]
    ledger.sync(tree)
    with raises_code("StaleDefinition"):
        ledger.claim("job", found, if_generation=True)


def test_every_guest_cell_of_another_size_is_told_apart():
    ledger = kept(host(given=[*cells(1), HostCell(7, dedicated=range(20, 30))], own="PCPU=14"))
    uneven = numa([ro.GuestCell(dedicated=range(6)), ro.GuestCell(dedicated=range(6, 10))])
    (found,) = ledger.snapshot().candidates({TOPOLOGY: uneven})
    assert [placed.cell for placed in found.located[TOPOLOGY].placed] == [7, 0]


# --- a topology says where; it adds nothing (D1) --------------------------------------------------


@pytest.mark.parametrize(
    "counts",
    ["", "PCPU=4,", "MEMORY_MB=512,", "PCPU=4,MEMORY_MB=512,"],
    ids=["implied", "cpus", "memory", "both"],
)
def test_counts_that_agree_are_not_asked_for_again(counts):
    found = ask(kept(), f"{counts}NUMA_TOPOLOGY=2:dedicated=4:memory=512")
    assert found == ["MEMORY_MB=256,PCPU=2 of host0/numa0, MEMORY_MB=256,PCPU=2 of host0/numa1"]


def test_counts_that_do_not_agree_are_refused():
    with raises_code("InvalidRequest", match=r"PCPU: got .*5.*, expected 4"):
        kept().snapshot().candidates("PCPU=5,NUMA_TOPOLOGY=2:dedicated=4")


def test_a_count_that_the_topology_does_not_stand_for_is_given_by_the_host():
    found = ask(kept(), "VCPU=3,MEMORY_MB=2000,NUMA_TOPOLOGY=1:dedicated=4")
    assert found == ["VCPU=3,MEMORY_MB=2000 of host0, PCPU=4 of host0/numa0"]


def test_what_is_taken_of_cells_is_taken_of_the_host():
    ledger = kept()
    ledger.claim("a", ledger.snapshot().candidates("NUMA_TOPOLOGY=2:dedicated=6:memory=1024"))
    assert ask(ledger, "PCPU=2,MEMORY_MB=1024") == ["MEMORY_MB=1024,PCPU=2 of host0"]
    assert told(ledger, "PCPU=3") == ["host0: PCPU requested 3, free 2 of 8 (a holds 6)"]


def test_what_is_taken_of_the_host_bounds_what_its_cells_give():
    ledger = kept()
    ledger.claim("a", ledger.snapshot().candidates("PCPU=5"))
    assert ask(ledger, "NUMA_TOPOLOGY=1:dedicated=3") == ["PCPU=3 of host0/numa0"]
    assert told(ledger, "NUMA_TOPOLOGY=1:dedicated=4") == [
        "host0: PCPU requested 4, free 3 of 8 (a holds 5)"
    ]
    assert told(ledger, "NUMA_TOPOLOGY=2:dedicated=4") == [
        "host0: PCPU requested 4, free 3 of 8 (a holds 5)"
    ]


def test_a_negative_topology_is_no_request():
    (found,) = kept().snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=1")
    with raises_code("InvalidRequest"):
        kept().snapshot().candidates({TOPOLOGY: -found.located[TOPOLOGY]})


# --- without a topology: the host as a whole ------------------------------------------------------


def test_a_count_is_given_by_the_host_not_by_a_cell():
    found = ask(kept(), "VCPU=2,PCPU=4,MEMORY_MB=1024")
    assert found == ["VCPU=2,MEMORY_MB=1024,PCPU=4 of host0"]


@pytest.mark.parametrize("name", ["VCPU", "PCPU"])
def test_a_count_is_not_split_over_cells_of_one_cpu(name):
    """
    host0           VCPU=4, PCPU=4: no more than 2 at once
    +- numa0 to 3   VCPU=1, PCPU=1
    """
    own = {name: IntegerInventory(4, max_unit=2) for name in ("VCPU", "PCPU")}
    ledger = kept(host(given=cells(4, 1, 1), own=own))
    assert ask(ledger, f"{name}=2") == [f"{name}=2 of host0"]
    assert told(ledger, f"{name}=3") == [
        f"host0: {name} requested 3, one claim allocates at most 2"
    ]


def test_a_cell_does_not_give_what_a_rule_of_the_host_forbids():
    ledger = kept(host(own={"VCPU": IntegerInventory(4, min_unit=2)}))
    assert told(ledger, "VCPU=1") == ["host0: VCPU requested 1, one claim allocates at least 2"]


def test_a_trait_of_a_cell_is_none_of_the_host():
    ledger = kept(cell(host(), 0, traits=[NEAR]))
    assert told(ledger, Request("VCPU=1", required=[NEAR])) == [
        "host0: VCPU requested 1 with CUSTOM_NEAR, no provider has it"
    ]
    assert ask(ledger, Request("VCPU=1", forbidden=[NEAR])) == ["VCPU=1 of host0"]


def test_a_trait_of_the_host_applies_with_and_without_topology():
    ledger = kept(host(traits=[NEAR]), host("host1"))
    for asked in ("VCPU=1", "NUMA_TOPOLOGY=1:shared=1"):
        (found,) = ledger.snapshot().candidates(Request(asked, required=[NEAR]))
        (other,) = ledger.snapshot().candidates(Request(asked, forbidden=[NEAR]))
        assert (found.host, other.host) == ("host0", "host1")


def test_huge_pages_never_serve_who_did_not_ask_for_them():
    ledger = kept(host(own="MEMORY_MB=3072:reserved=1024"))
    assert ask(ledger, "MEMORY_MB=2048") == ["MEMORY_MB=2048 of host0"]
    assert ask(ledger, "MEMORY_MB=2049") == []
    assert ask(ledger, "NUMA_TOPOLOGY=2:memory=2048:shared=2") != []
    assert ask(ledger, "NUMA_TOPOLOGY=2:memory=2052:shared=2") == []


def test_huge_pages_that_are_asked_for_by_number_are_given_by_one_cell():
    ledger = kept(host(given=cells(2, pages=1)), host("host1"))
    assert ask(ledger, f"{PAGES}=2") == [f"{PAGES}=2 of host1/numa0"]


def test_a_host_that_has_no_count_of_its_own_leaves_it_to_its_cells():
    ledger = kept(host(own="DISK_GB=5"))
    assert ask(ledger, "VCPU=2") == ["VCPU=2 of host0/numa0"]
    assert ask(ledger, "VCPU=3") == []


def test_a_cell_that_is_asked_itself_gives_what_it_has():
    snapshot = kept().snapshot(at="host0/numa1")
    (found,) = snapshot.candidates("VCPU=2")
    assert str(found) == "VCPU=2 of host0/numa1"
    assert not snapshot.candidates("VCPU=3")


# --- traits of cells ------------------------------------------------------------------------------


def test_a_required_trait_of_some_cells_restricts_the_topology_to_them():
    root = cell(cell(host(given=cells(3)), 1, traits=[NEAR]), 2, traits=[NEAR])
    ledger = kept(root)
    near = Request("NUMA_TOPOLOGY=2:dedicated=4", required=[NEAR])
    assert ask(ledger, near) == ["PCPU=2 of host0/numa1, PCPU=2 of host0/numa2"]
    assert told(ledger, Request("NUMA_TOPOLOGY=3:dedicated=6", required=[NEAR])) == [
        "host0: NUMA_TOPOLOGY requested 3 host cells, there are 2"
    ]


def test_a_forbidden_trait_leaves_cells_out():
    ledger = kept(cell(host(), 0, traits=[NEAR]))
    apart = Request("NUMA_TOPOLOGY=1:dedicated=4", forbidden=[NEAR])
    assert ask(ledger, apart) == ["PCPU=4 of host0/numa1"]
    assert told(ledger, Request("NUMA_TOPOLOGY=2:dedicated=4", forbidden=[NEAR])) == [
        "host0: NUMA_TOPOLOGY requested 2 host cells, there are 1"
    ]


def test_a_forbidden_trait_of_the_host_leaves_all_cells_out():
    ledger = kept(host(traits=[NEAR]))
    assert told(ledger, Request("NUMA_TOPOLOGY=2:dedicated=4", forbidden=[NEAR])) == [
        "host0: NUMA_TOPOLOGY requested 2 without CUSTOM_NEAR, every provider has it"
    ]


def test_traits_are_answered_for_by_the_topology_or_by_another_class():
    """
    host0
    +- numa0        CUSTOM_NEAR, full
    +- numa1
    +- fpga         CUSTOM_NEAR
    """
    root = cell(host(), 0, traits=[NEAR])
    root.add("host0/fpga", "FPGA=1", traits=[NEAR])
    ledger = kept(root)
    ledger.claim("a", _all_of(ledger, 0))
    both = Request("FPGA=1,NUMA_TOPOLOGY=1:dedicated=2", required=[NEAR])
    assert ask(ledger, both) == ["FPGA=1 of host0/fpga, PCPU=2 of host0/numa1"]
    alone = Request("NUMA_TOPOLOGY=1:dedicated=2", required=[NEAR])
    assert told(ledger, alone) == ["host0: cell 0: PCPU requested 2, free 0 of 4 (a holds 4)"]


def _all_of(ledger, number):
    """Return allocations of all CPUs of a cell."""
    columns = ledger.backend.read()
    view = LocatedViews(columns).of_tree(columns.providers.root_id[0], TOPOLOGY)
    cell = Context(allowed=[number])
    return list(view.allocations(view.inventory.fit(numa(dedicated=4), None, cell)))


def test_two_traits_may_narrow_the_cells_together_or_one_by_one():
    root = cell(cell(host(given=cells(3)), 0, traits=[NEAR]), 2, traits=[NEAR, FAST])
    root.add("host0/fpga", "FPGA=1", traits=[FAST])
    ledger = kept(root)
    assert ask(ledger, Request("NUMA_TOPOLOGY=1:dedicated=1", required=[NEAR, FAST])) == [
        "PCPU=1 of host0/numa2"
    ]
    both = Request("FPGA=1,NUMA_TOPOLOGY=2:dedicated=2", required=[NEAR, FAST])
    assert ask(ledger, both) == [
        "FPGA=1 of host0/fpga, PCPU=1 of host0/numa0, PCPU=1 of host0/numa2"
    ]


def test_a_network_next_to_a_cell_left_out_still_is_a_condition():
    """Networks are conditions where some cell of the host is next to one, whoever may be used."""
    root = host(given=[*cells(1, physnets=["red"]), *cells(2)[1:]])
    ledger = kept(cell(root, 0, traits=[NEAR]))
    asked = {TOPOLOGY: numa(dedicated=1, physnets=["red"])}
    assert ask(ledger, asked) == ["PCPU=1 of host0/numa0"]
    assert ask(ledger, Request(asked, forbidden=[NEAR])) == []


# --- assigned already -----------------------------------------------------------------------------


def test_an_assigned_topology_is_found_where_it_can_be_just_so():
    other = [HostCell(0, dedicated=range(40, 44)), HostCell(1, dedicated=range(44, 48))]
    ledger = kept(host(), host("host1"), host("host2", other), Provider("host3", "VCPU=4"))
    (found, _, _) = ledger.snapshot().candidates("NUMA_TOPOLOGY=2:dedicated=4")
    ledger.claim("a", found)
    found = ledger.snapshot().candidates({TOPOLOGY: found.located[TOPOLOGY]})
    assert [one.host for one in found] == ["host1"]
    assert str(found.explain()).splitlines() == [
        "host0: cell 0: PCPU requested 1 with unit cpu2, which is allocated (a holds 1); "
        "cell 0: PCPU requested 1 with unit cpu3, which is allocated (a holds 1); "
        "cell 1: PCPU requested 1 with unit cpu8, which is allocated (a holds 1); "
        "cell 1: PCPU requested 1 with unit cpu9, which is allocated (a holds 1)",
        "host2: NUMA_TOPOLOGY requested 2 as assigned already, "
        "to units that the host does not have",
        "host3: NUMA_TOPOLOGY requested 2, there is none",
    ]
    assert ledger.claim("b", found).consumer == "b"


def test_an_assigned_topology_does_not_go_around_traits():
    ledger = kept(cell(host(), 0, traits=[NEAR]))
    (found,) = ledger.snapshot().candidates("NUMA_TOPOLOGY=2:dedicated=4")
    again = Request({TOPOLOGY: found.located[TOPOLOGY]}, forbidden=[NEAR])
    refused = ledger.snapshot().candidates(again)
    assert not refused
    assert [one.rule for one in refused.explain().reasons] == [Rule.HOST_CELLS]


# --- where, how many, how long --------------------------------------------------------------------


def test_a_search_at_a_cell_uses_that_cell_alone():
    snapshot = kept().snapshot(at="host0/numa1")
    (found,) = snapshot.candidates("NUMA_TOPOLOGY=1:dedicated=2")
    assert (found.host, str(found)) == ("host0/numa1", "PCPU=2 of host0/numa1")
    assert not snapshot.candidates("NUMA_TOPOLOGY=2:dedicated=2")


def test_a_search_at_a_cell_keeps_to_what_the_host_has_left():
    ledger = kept()
    ledger.claim("a", ledger.snapshot().candidates("PCPU=7"))
    assert ledger.snapshot(at="host0/numa1").candidates("NUMA_TOPOLOGY=1:dedicated=1")
    assert not ledger.snapshot(at="host0/numa1").candidates("NUMA_TOPOLOGY=1:dedicated=2")


def test_a_search_at_the_host_or_beside_it():
    ledger = kept(host(), host("host1"))
    for name in ("host0", "host1"):
        (found,) = ledger.snapshot(at=name).candidates("NUMA_TOPOLOGY=2:dedicated=2")
        assert found.host == name


def test_what_a_host_has_not_is_given_by_a_pool():
    own = "PCPU=8"
    ledger = kept(host(own=own, aggregates=["rack"]), host("host1", own=own))
    sharing = ["MISC_SHARES_VIA_AGGREGATE"]
    ledger.sync(Provider("nfs", "DISK_GB=50", traits=sharing, aggregates=["rack"]))
    request = "DISK_GB=20,NUMA_TOPOLOGY=1:dedicated=2"
    assert ask(ledger, request) == ["DISK_GB=20 of nfs, PCPU=2 of host0/numa0"]
    assert str(ledger.snapshot().candidates(request).explain()) == (
        "host1: DISK_GB requested 20, there is none"
    )


def test_the_first_hosts_by_name_are_found():
    ledger = kept(*(host(f"host{n}") for n in (2, 0, 1)))
    found = ledger.snapshot().candidates("NUMA_TOPOLOGY=2:dedicated=4", limit=2)
    assert [one.host for one in found] == ["host0", "host1"]
    assert str(found.explain()) == "and 1 more host not looked at: the limit was reached"


def test_each_look_at_a_view_is_paid_for_from_the_budget():
    snapshot = kept(*(host(f"host{n}") for n in range(3))).snapshot()
    found = snapshot.candidates("NUMA_TOPOLOGY=2:dedicated=4", limit=None)
    assert (len(found), found.steps) == (3, 3 * (1 + 2 + 1))  # a look at two cells, and a state
    some = snapshot.candidates("NUMA_TOPOLOGY=2:dedicated=4", limit=None, budget=5)
    assert (len(some), some.cut_short, some.steps) == (1, True, 5)
    with pytest.raises(exceptions.SearchLimitReached):
        len(snapshot.candidates("NUMA_TOPOLOGY=2:dedicated=4", budget=2))


def test_a_decision_that_does_not_end_is_no_refusal(monkeypatch):
    """Which cells are next to all networks is hard to decide in general."""
    networks = [f"net{n}" for n in range(4)]
    near = [one.replace(physnets=networks[n % 4 : n % 4 + 2]) for n, one in enumerate(cells(5))]
    ledger = kept(host(given=near, own="PCPU=20"), Provider("bare", "PCPU=4"))
    asked = {TOPOLOGY: numa(2, dedicated=2, physnets=networks)}
    assert len(ledger.snapshot().candidates(asked)) == 1
    monkeypatch.setattr("resource_objects.resources.numa.placement.DECISION", 0)
    found = ledger.snapshot().candidates(asked, limit=None)
    assert found.cut_short
    assert found.explain().undecided == ("host0",)
    assert [name for name, _ in found.explain().by_host()] == ["bare"]
    with pytest.raises(exceptions.SearchLimitReached):
        bool(found)


def test_no_view_is_gathered_of_trees_that_cannot(monkeypatch):
    ledger = kept(
        host(), host("full"), host("small", cells(2, dedicated=1)), Provider("bare", "VCPU=4")
    )
    ledger.claim("a", ledger.snapshot(at="full").candidates("NUMA_TOPOLOGY=2:dedicated=6"))
    gathered = []
    real = ResourceParts.inventory

    def inventory(self, usage, exclusions):
        gathered.append(self.host)
        return real(self, usage, exclusions)

    monkeypatch.setattr(ResourceParts, "inventory", inventory)
    snapshot = ledger.snapshot()
    for _ in range(2):
        assert len(snapshot.candidates("NUMA_TOPOLOGY=2:dedicated=4", limit=None)) == 1
    assert gathered == ["host0"]  # once: a snapshot does not change
    pages = "NUMA_TOPOLOGY=2:dedicated=4:memory=2048:page_size=2MB"
    assert not snapshot.candidates(pages)
    assert gathered == ["host0"]


def test_a_snapshot_does_not_change_with_the_columns_it_was_made_of():
    columns = kept().backend.read()
    loose = dataclasses.replace(
        columns,
        inventories=type(columns.inventories)(*map(list, columns.inventories)),
        kinds=type(columns.kinds)(*map(list, columns.kinds)),
    )
    snapshot = Snapshot(loose)
    for table in (loose.inventories, loose.kinds):
        for column in table:
            column.clear()
    assert len(snapshot.candidates("NUMA_TOPOLOGY=2:dedicated=4")) == 1


# --- why nobody can -------------------------------------------------------------------------------


def test_a_refusal_names_the_cell_the_figures_and_who_holds_what():
    ledger = kept()
    for consumer in ("a", "b"):
        ledger.claim(consumer, ledger.snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=3"))
    refused = ledger.snapshot().candidates("DISK_GB=200,NUMA_TOPOLOGY=1:dedicated=2")
    assert str(refused.explain()) == (
        "host0: DISK_GB requested 200, free 100 of 100; "
        "cell 0: PCPU requested 2, free 1 of 4 (a holds 3); "
        "cell 1: PCPU requested 2, free 1 of 4 (b holds 3)"
    )
    _, first, second = refused.explain().reasons
    assert (first.rule, first.cell, first.where, first.holders) == (
        Rule.CAPACITY,
        0,
        "host0",
        (("a", 3),),
    )
    assert (second.cell, second.free) == (1, 1)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("3:dedicated=3", "NUMA_TOPOLOGY requested 3 host cells, there are 2"),
        ("1:dedicated=1:memory=4:page_size=1GB", "there are no 1 GiB pages"),
        ("1:dedicated=4:thread_policy=require", "free 0 under the policy require"),
        ("1:shared=3", "each of cells 0, 1: VCPU requested 3, one claim allocates at most 2"),
    ],
)
def test_each_rule_of_the_kind_is_told(asked, said):
    (line,) = told(kept(), f"NUMA_TOPOLOGY={asked}")
    assert line.startswith("host0: ")
    assert said in line


def test_a_host_without_cells_says_so():
    ledger = kept(Provider("bare", "VCPU=4,PCPU=4"))
    assert told(ledger, "VCPU=2,NUMA_TOPOLOGY=2:dedicated=2") == [
        "bare: NUMA_TOPOLOGY requested 2, there is none"
    ]


def test_a_trait_that_no_cell_has_is_told_of_the_topology():
    ledger = kept(host(), cell(host("host1"), 0, traits=[NEAR]))
    near = Request("NUMA_TOPOLOGY=2:dedicated=2", required=[NEAR])
    assert told(ledger, near) == [
        "host0: NUMA_TOPOLOGY requested 2 with CUSTOM_NEAR, no provider has it",
        "host1: NUMA_TOPOLOGY requested 2 host cells, there are 1",
    ]


def test_a_trait_that_only_cells_elsewhere_have_is_told_of_the_topology():
    ledger = kept(host(), cell(host("host1"), 0, traits=[NEAR]))
    near = Request("DISK_GB=1,NUMA_TOPOLOGY=1:dedicated=2", required=[NEAR])
    (found,) = ledger.snapshot().candidates(near)
    assert found.host == "host1"
    assert str(ledger.snapshot().candidates(near).explain()) == (
        "host0: NUMA_TOPOLOGY requested 1 with CUSTOM_NEAR, no provider has it"
    )


def test_a_host_whose_cells_contradict_each_other_does_not_keep_others_from_being_found():
    """A sync refuses such a host; rows that somebody else changed are read all the same."""
    root = Provider("bad", "VCPU=8")
    root.add_parts(TOPOLOGY, NUMATopologyInventory(cells()))
    columns = kept(root, host()).backend.read()
    names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
    rows = columns.inventories
    ratios = [
        2_000_000 if (names[number], name) == ("bad/numa1", "VCPU") else ratio
        for number, name, ratio in zip(
            rows.provider_id, rows.resource_class, rows.ratio_millionths, strict=True
        )
    ]
    changed = dataclasses.replace(columns, inventories=rows._replace(ratio_millionths=ratios))
    found = Snapshot(changed).candidates("NUMA_TOPOLOGY=1:shared=1", limit=None)
    assert [one.host for one in found] == ["host0"]
    assert str(found.explain()) == (
        "bad: NUMA_TOPOLOGY requested 1, its stored inventory contradicts itself"
    )


# --- counts beside a topology ---------------------------------------------------------------------


def test_pages_may_be_counted_and_located_in_one_request():
    ledger = kept(host(given=cells(2, pages=4)))
    request = f"{PAGES}=3,NUMA_TOPOLOGY=1:dedicated=1:memory=6:page_size=2MB"
    assert ask(ledger, request) == [f"{PAGES}=3 of host0/numa0, PCPU=1,{PAGES}=3 of host0/numa1"]
    (found,) = ledger.snapshot().candidates(f"{PAGES}=1,NUMA_TOPOLOGY=2:memory=12:page_size=2MB")
    assert str(found) == f"{PAGES}=4 of host0/numa0, {PAGES}=3 of host0/numa1"
    assert ledger.claim("a", found).amounts == ro.Amounts({PAGES: 7})


def test_pages_that_only_fit_one_by_one_are_refused_with_the_figures():
    ledger = kept(host(given=cells(1, pages=4)))
    request = f"{PAGES}=3,NUMA_TOPOLOGY=1:memory=4:page_size=2MB"
    assert told(ledger, request) == [f"host0: host0/numa0: {PAGES} requested 5, free 4 of 4"]


def test_a_topology_moves_out_of_the_way_of_a_count():
    """A card draws on the pages of cell 0; the topology would be there first.

    host0
    +- numa0        6 pages of 2 MiB, of which card uses 2 each
    +- numa1        4 pages of 2 MiB
    +- card         CUSTOM_CARD=2
    """
    six, four = cells(1, pages=6)[0], cells(2, pages=4)[1]
    root = host(given=[six, four])
    shares = [Share(resource_class="CUSTOM_CARD", of="host0/numa0", of_class=PAGES, factor=2)]
    root.add("host0/card", "CUSTOM_CARD=2", shares=shares)
    ledger = kept(root)
    both = "CUSTOM_CARD=2,NUMA_TOPOLOGY=1:dedicated=1:memory=8:page_size=2MB"
    assert ask(ledger, both) == [f"CUSTOM_CARD=2 of host0/card, PCPU=1,{PAGES}=4 of host0/numa1"]


def test_memory_that_a_count_uses_of_the_host_is_not_left_to_its_cells():
    root = host(own="MEMORY_MB=2048")
    shares = [Share(resource_class="FPGA", of="host0", of_class="MEMORY_MB", factor=100)]
    root.add("host0/fpga", "FPGA=4", shares=shares)
    ledger = kept(root)
    assert ask(ledger, "FPGA=4,NUMA_TOPOLOGY=2:memory=1648") != []
    assert told(ledger, "FPGA=4,NUMA_TOPOLOGY=2:memory=1656") == [
        "host0: MEMORY_MB requested 2056, free 2048 of 2048"
    ]


# --- the same answer as the references ------------------------------------------------------------


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("start", some(range(0, 600, 75), 2))
def test_what_is_found_is_what_trying_everything_finds_and_can_be_claimed(start):
    for seed in range(start, start + 75):
        ledger, request = numa_fleets.fleet(seed)
        columns = ledger.backend.read()
        snapshot = Snapshot(columns)
        found = snapshot.candidates(request, limit=None)
        assert [one.host for one in found] == naive_search.hosts_that_fit(columns, request), seed
        explained = dict(found.explain().by_host())
        refused = set(snapshot.hosts).difference(one.host for one in found)
        assert all(explained[name] for name in refused), seed
        for one in found:
            assert naive_search.candidate_faults(columns, request, one) == [], seed
            ledger.claim("taker", one)
            ledger.release("taker")


@pytest.mark.drawn
@pytest.mark.law(9)
@pytest.mark.parametrize("budget", [1, 2, 3, 5, 8, 13, 30])
def test_a_small_budget_never_changes_a_yes_or_no_into_the_other(budget):
    for seed in range(examples(200)):
        ledger, request = numa_fleets.fleet(seed)
        columns = ledger.backend.read()
        found = Snapshot(columns).candidates(request, limit=None, budget=budget)
        fits = naive_search.hosts_that_fit(columns, request)
        refused = {name for name, _ in found.explain().by_host()}
        assert found.steps <= budget
        assert not refused.intersection(fits), seed
        assert found.cut_short or [one.host for one in found] == fits, seed


@pytest.mark.law(5)
@settings(max_examples=examples(150))
@given(numa_questions(max_cells=3, max_guests=2, has_room=False, serves_either_way=False))
def test_a_kept_inventory_gives_the_same_answer_as_itself(question):
    """What is used is put into the columns, so that it may be more than there is."""
    inventory, amount, _ = question
    columns = _columns_of(inventory)
    found = Snapshot(columns).candidates({TOPOLOGY: amount})
    assert bool(found) == has_placement(inventory, amount)
    for one in found:
        assert faults(inventory, one.located[TOPOLOGY]) == []


def _columns_of(inventory):
    """Return what a backend returns of a host that has only cells, with what is used of them."""
    root = Provider("host", "DISK_GB=1")
    root.add_parts(TOPOLOGY, inventory)
    columns = kept(root).backend.read()
    names = dict(zip(columns.providers.name, columns.providers.provider_id, strict=True))
    used, units = {}, []
    for usage in inventory.usage:
        number = names[f"host/numa{usage.cell}"]
        used[number, "VCPU"] = usage.shared
        used[number, "PCPU"] = len(usage.pinned) + usage.loose
        used[number, "MEMORY_MB"] = usage.memory_mb
        for size, count in usage.pages:
            used[number, f"CUSTOM_HUGEPAGES_{size}KB"] = count
        units += [(number, f"cpu{cpu}", "PCPU", "somebody") for cpu in usage.pinned]
    table = columns.inventories
    figures = [
        used.get(key, 0) for key in zip(table.provider_id, table.resource_class, strict=True)
    ]
    return dataclasses.replace(
        columns,
        inventories=table._replace(used=figures),
        units=UnitColumns(*zip(*units, strict=True)) if units else UnitColumns(),
    )


# --- on every backend -----------------------------------------------------------------------------


@pytest.fixture
def url(database_kind, sqlite_url, request):
    """The URL of an empty ledger, once for each kind of database."""
    if database_kind == "sqlite":
        return sqlite_url("ledger.db")
    return request.getfixturevalue("prepared_database")(SQLBackend.upgrade_database)


@pytest.mark.law(6)
def test_what_is_found_can_be_claimed_until_nothing_is_left(url):
    request = "DISK_GB=10,NUMA_TOPOLOGY=2:dedicated=4:memory=256:page_size=2MB"
    with ro.connect(url) as ledger:
        ledger.sync(host(), host("host1"))
        names = iter(f"job-{n}" for n in range(9))
        while found := ledger.snapshot().candidates(request):
            claim = ledger.claim(next(names), found)
            assert claim.allocations == found[0].allocations
        assert next(names) == "job-4"
        taken = ledger.backend.read().units
        assert len(set(zip(taken.provider_id, taken.unit, strict=True))) == 16
        assert str(found.explain()).splitlines()[1] == (
            "host1: each of cells 0, 1: PCPU requested 2, free 0 of 4 "
            "(job-2 holds 2, job-3 holds 2)"
        )


# --- machines of many cells -----------------------------------------------------------------------


def many_cells() -> Provider:
    """A machine of 34 cells: two with CPUs and memory, and 32 of memory that is elsewhere."""
    machine = Provider("gh", "PCPU=16,MEMORY_MB=2000")
    cells = [
        HostCell(n, dedicated=range(8 * n, 8 * n + 8), memory_mb=1000, socket=n) for n in range(2)
    ]
    cells += [HostCell(n, memory_mb=0) for n in range(2, 34)]
    machine.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells))
    return machine


@pytest.mark.parametrize(
    ("held", "asked", "lines"),
    [
        (
            (),
            "1:dedicated=4:memory=2000",
            ["each of cells 0, 1: MEMORY_MB requested 2000, free 1000 of 1000"],
        ),
        (
            (),
            "3:dedicated=6:memory=300",
            ["NUMA_TOPOLOGY requested 3 guest cells, at most 2 fit at once"],
        ),
        (
            ("1:dedicated=5", "1:dedicated=6"),
            "1:dedicated=4:memory=10",
            [
                "cell 0: PCPU requested 4, free 3 of 8 (job-0 holds 5)",
                "cell 1: PCPU requested 4, free 2 of 8 (job-1 holds 6)",
            ],
        ),
    ],
)
def test_cells_that_are_alike_are_one_sentence_and_each_fact_is_told_once(held, asked, lines):
    with ro.connect("memory://") as ledger:
        ledger.sync(many_cells())
        for number, taken in enumerate(held):
            ledger.claim(f"job-{number}", {"gh": f"NUMA_TOPOLOGY={taken}"})
        explanation = ledger.snapshot().candidates(f"NUMA_TOPOLOGY={asked}").explain()
        expected = [*lines, "32 cells without CPUs and memory"]
        assert str(explanation) == f"gh: {'; '.join(expected)}"
        assert str(explanation.nearest()[0]) == str(explanation)
        with pytest.raises(exceptions.CapacityException) as refused:
            ledger.claim("job", {"gh": f"NUMA_TOPOLOGY={asked}"})
    assert str(refused.value) == "; ".join(f"gh: {line}" for line in expected)
    assert {reason.cell for reason in refused.value.reasons} >= set(range(2, 34))
