"""Facts as a tree with cells: the offer of the host, the use of its cells, and fitting requests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.machine import MIB, Core, Disk, Machine, NUMACell, Pages, PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.host.tree import numa_inventory, provider_tree
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.resources.numa import NUMATopologyInventory, numa
from resource_objects.testing.refusals import raises_code
from tests.host.trees import configured
from tests.support.lengths import examples

GIB = 1024 * MIB
NUMA = "NUMA_TOPOLOGY"


def box(**facts) -> Machine:
    """Two cells of two cores with two threads, and 2 GiB each, of which a half in huge pages."""
    pages = (Pages(4096, 262144), Pages(2 * MIB, 512, 500))
    value = {
        "hostname": "box",
        "cpus": tuple(range(8)),
        "cores": tuple(Core(core // 2, core % 2, (core, core + 4)) for core in range(4)),
        "memory_bytes": 4 * GIB,
        "huge_pages": (Pages(2 * MIB, 1024, 1000),),
        "cells": (
            NUMACell(0, (0, 1, 4, 5), 2 * GIB, pages, 0, (10, 21)),
            NUMACell(3, (2, 3, 6, 7), 2 * GIB, pages, 1, (21, 10)),
        ),
    }
    return Machine(**(value | facts))


def described(tree: ro.Provider) -> list[str]:
    return [str(provider) for provider in tree.walk()]


def view_of(ledger: ro.Ledger, host: str = "box") -> LocatedView:
    """The inventory of the cells of a host, as a ledger stores it."""
    columns = ledger.backend.read(host)
    return LocatedViews(columns).of_tree(columns.providers.root_id[0], NUMA)


def stored_inventory(view: LocatedView) -> NUMATopologyInventory:
    """The inventory of a view, without what the host as a whole has left."""
    result = view.inventory
    return NUMATopologyInventory(
        result.cells,
        usage=result.usage,
        cpu_ratio=result.cpu_ratio,
        memory_ratio=result.memory_ratio,
        resource_class=NUMA,
    )


def holds(ledger: ro.Ledger, request: str) -> bool:
    return bool(ledger.snapshot().candidates(request))


# --- the tree -----------------------------------------------------------------------------------


def test_cells_are_children_that_share_what_is_the_hosts():
    tree = provider_tree(box(), HostSettings(shared="0,4", dedicated="1-3,5-7"), numa=True)
    assert described(tree)[0] == "box: VCPU=2,MEMORY_MB=4096:reserved=2048,PCPU=6"
    assert [child.name for child in tree.children] == ["box/numa0", "box/numa3"]
    assert [[*map(str, child.shares)] for child in tree.children] == [
        [
            "VCPU uses 1 VCPU of box",
            "PCPU uses 1 PCPU of box",
            "MEMORY_MB uses 1 MEMORY_MB of box",
        ],
        ["PCPU uses 1 PCPU of box", "MEMORY_MB uses 1 MEMORY_MB of box"],
    ]
    assert [next(iter(child.inventories)).name for child in tree.children] == [NUMA, NUMA]


def test_dedicated_cpus_are_pcpus_of_the_host_with_and_without_cells():
    for numa_too in (False, True):
        tree = provider_tree(box(), HostSettings(dedicated="1-3"), numa=numa_too)
        assert described(tree)[0] == "box: MEMORY_MB=4096:reserved=2048,PCPU=3"
    assert described(provider_tree(box(), HostSettings(shared="0-1")))[0].startswith("box: VCPU=2,")


def test_without_being_requested_cells_remain_facts():
    assert provider_tree(box()) == provider_tree(box(), numa=False)
    assert provider_tree(box()).children == ()


def test_a_machine_without_cells_has_a_tree_without_cells():
    assert provider_tree(box(cells=()), numa=True) == provider_tree(box(cells=()))


def test_cells_and_devices_are_children_side_by_side():
    gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200", numa_node=3)
    tree = provider_tree(box(devices=(gpu,)), HostSettings(device_rules=["10de:*=PGPU"]), numa=True)
    assert [child.name for child in tree.children] == ["box/0000:3b:00.0", "box/numa0", "box/numa3"]


def test_ratios_are_those_of_the_cells_too():
    tree = provider_tree(box(), HostSettings(ratios="VCPU=4,MEMORY_MB=1.5"), numa=True)
    assert (
        described(tree)[0] == "box: VCPU=8:max_unit=8:allocation_ratio=4,"
        "MEMORY_MB=4096:reserved=2048:max_unit=4096:allocation_ratio=1.5"
    )
    (cell,) = tree.children[0].inventories.values()
    assert (str(cell.cpu_ratio), str(cell.memory_ratio)) == ("4", "1.5")
    assert (cell.free_shared, cell.free_memory_mb) == (16, 1536)


def test_pages_that_are_stored_are_reserved_of_the_host_as_well():
    tree = provider_tree(box(), HostSettings(reserved_pages={0: {2048: 12, 4: 25600}}), numa=True)
    # huge pages are reserved of the host anyway; 25600 pages of 4 KiB are 100 MiB
    assert tree.inventories["MEMORY_MB"].reserved == 2048 + 100
    (cell,) = tree.children[0].inventories.values()
    assert [pool.reserved for pool in cell.cells[0].pages] == [25600, 12]


def test_a_ratio_of_dedicated_cpus_may_be_1():
    settings = HostSettings(dedicated="1", ratios="PCPU=1")
    assert provider_tree(box(), settings) == provider_tree(box(), HostSettings(dedicated="1"))


def test_huge_pages_that_only_the_cells_know_are_reserved_of_the_host():
    assert provider_tree(box(huge_pages=())).inventories["MEMORY_MB"].reserved == 2048
    more = (Pages(2 * MIB, 1024, 0), Pages(GIB, 1, 1))
    assert provider_tree(box(huge_pages=more)).inventories["MEMORY_MB"].reserved == 3072


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"ratios": "PCPU=2", "dedicated": "1"},
            exceptions.InvalidInventory,
            "ratios: PCPU: got '2', expected 1: a dedicated CPU is allocated once",
        ),
        (
            {"ratios": "VCPU=2", "dedicated": "1"},
            exceptions.InvalidInventory,
            "ratios: got 'VCPU', expected a class that the host offers: PCPU, MEMORY_MB",
        ),
        ({"reserved": "PCPU=4", "dedicated": "1-3"}, exceptions.InvalidInventory, "PCPU reserved"),
        ({"ratios": "VCPU=0", "numa": True}, "InvalidRatio", "got '0'"),
        ({"shared": "0-1", "dedicated": "1"}, exceptions.InvalidInventory, "dedicated CPUs: got"),
        ({"dedicated": "8"}, exceptions.InvalidInventory, "dedicated CPUs: got '8'"),
        (
            {"physnets": {0: ["net"]}},
            exceptions.InvalidInput,
            "physnets: got {0: ['net']}, expected nothing without numa=True",
        ),
        (
            {"reserved_pages": "0:2MB=1"},
            exceptions.InvalidInput,
            "reserved_pages: got {0: {2048: 1}}",
        ),
        ({"tunneled": [0]}, exceptions.InvalidInput, "tunneled: got [0]"),
        ({"numa": True, "tunneled": [1]}, exceptions.InvalidInventory, "tunneled: cell: got 1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments, error, message):
    with raises_code(error) as refused:
        configured(provider_tree, box(), **arguments)
    assert message in str(refused.value)


# --- stored and read back ------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory://", "sqlite://"])
def test_what_is_stored_is_what_was_synced(url, tmp_path):
    at = url if url == "memory://" else f"sqlite:///{tmp_path}/lab.db"
    value = {"shared": "0,4", "dedicated": "1-3,5-7", "reserved_pages": "0:2MB=12"}
    with ro.connect(at) as ledger:
        assert ledger.sync(configured(provider_tree, box(), numa=True, **value)).created == 3
        assert (
            str(ledger.sync(configured(provider_tree, box(), numa=True, **value)))
            == "nothing changed"
        )
        view = view_of(ledger)
    assert stored_inventory(view) == configured(numa_inventory, box(), **value)
    assert view.inventory.room == {"VCPU": 2, "PCPU": 6, "MEMORY_MB": 2048}
    assert [part.name for part in view.parts] == ["box/numa0", "box/numa3"]


def test_a_cell_with_nothing_to_offer_is_stored_with_its_distances():
    cells = (
        NUMACell(0, tuple(range(8)), 4 * GIB, distances=(10, 14)),
        NUMACell(1, (), 0, distances=(14, 10)),
    )
    with ro.connect("memory://") as ledger:
        ledger.sync(provider_tree(box(cells=cells), numa=True))
        assert stored_inventory(view_of(ledger)) == numa_inventory(box(cells=cells))


def test_cells_come_and_go_with_what_is_requested():
    with ro.connect("memory://") as ledger:
        ledger.sync(provider_tree(box()))
        assert ledger.sync(provider_tree(box(), numa=True)).created == 2
        assert ledger.sync(provider_tree(box())).removed == 2


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_any_machine_is_stored_and_read_back_as_it_is(data, trees):
    machine = trees.expected(data.draw(trees.shapes()))
    dedicated = data.draw(st.frozensets(st.sampled_from(machine.cpus))) or None
    tree = provider_tree(machine, HostSettings(dedicated=dedicated), numa=True, name="gen")
    with ro.connect("memory://") as ledger:
        ledger.sync(tree)
        assert str(ledger.sync(tree)) == "nothing changed"
        assert stored_inventory(view_of(ledger, "gen")) == numa_inventory(
            machine, HostSettings(dedicated=dedicated)
        )


# --- the host as a whole ------------------------------------------------------------------------


def test_requests_for_no_topology_fits_exactly_when_the_host_as_a_whole_has_enough():
    with ro.connect("memory://") as ledger:
        ledger.sync(
            provider_tree(box(), HostSettings(shared="0,4", dedicated="1-3,5-7"), numa=True)
        )
        assert holds(ledger, "VCPU=2,MEMORY_MB=2048")
        assert not holds(ledger, "MEMORY_MB=2049")
        view = view_of(ledger)
        taken = view.inventory.fit(numa(cells=2, dedicated=4, memory_mb=1024))
        ledger.claim("job-1", view.allocations(taken))
        assert holds(ledger, "PCPU=2,MEMORY_MB=1024")
        assert not holds(ledger, "PCPU=3")
        assert not holds(ledger, "MEMORY_MB=1025")
        # and in the other direction: allocations of the host reduce the cells
        ledger.claim("job-2", {"box": "MEMORY_MB=1000"})
        assert view_of(ledger).inventory.free_memory_mb == 24


def test_memory_in_huge_pages_never_serves_who_requested_none():
    with ro.connect("memory://") as ledger:
        ledger.sync(provider_tree(box(), HostSettings(dedicated="0-7"), numa=True))
        view = view_of(ledger)
        assert not view.inventory.can_provide(numa(memory_mb=1025))
        taken = view.inventory.fit(numa(dedicated=1, memory_mb=1024, page_size="2MB"))
        ledger.claim("job-1", view.allocations(taken))
        assert holds(ledger, "MEMORY_MB=2048")  # pages are counted separately


def test_where_the_cells_have_more_memory_than_the_host_the_host_binds():
    less = box(memory_bytes=3 * GIB)  # of which 2 GiB are huge pages
    with ro.connect("memory://") as ledger:
        ledger.sync(provider_tree(less, numa=True))
        view = view_of(ledger)
        assert sum(cell.ordinary_mb for cell in view.inventory.cells) == 2048
        assert view.inventory.free_memory_mb == 1024
        assert not view.inventory.can_provide(numa(cells=2, shared=2, memory_mb=2048))
        assert holds(ledger, "MEMORY_MB=1024")
        assert not holds(ledger, "MEMORY_MB=1025")


def test_where_the_cells_have_less_the_rest_serves_requests_for_no_topology():
    more = box(memory_bytes=5 * GIB)
    with ro.connect("memory://") as ledger:
        ledger.sync(provider_tree(more, numa=True))
        view = view_of(ledger)
        taken = view.inventory.fit(numa(cells=2, shared=2, memory_mb=2048))
        ledger.claim("job-1", view.allocations(taken))
        assert view_of(ledger).inventory.free_memory_mb == 0
        assert holds(ledger, "MEMORY_MB=1024")


def test_where_huge_pages_are_is_not_known_the_host_keeps_ordinary_memory_apart():
    cells = tuple(
        NUMACell(number, (2 * number, 2 * number + 1), 2 * GIB, (Pages(4096, 524288),))
        for number in (0, 1)
    )
    with ro.connect("memory://") as ledger:
        ledger.sync(provider_tree(box(cells=cells), numa=True))
        assert view_of(ledger).inventory.free_memory_mb == 2048
        assert not view_of(ledger).inventory.can_provide(numa(cells=2, memory_mb=2050))


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data(), skew=st.integers(-(1 << 30), 1 << 30))
def test_no_topology_takes_more_than_the_host_has(data, skew, trees):
    result = trees.expected(data.draw(trees.shapes()))
    # the kernel's figure for the machine need not be the sum over its cells
    machine = Machine(
        cpus=result.cpus,
        cores=result.cores,
        memory_bytes=max(0, result.memory_bytes + skew),
        cells=result.cells,
        huge_pages=result.huge_pages,
    )
    dedicated = data.draw(st.frozensets(st.sampled_from(machine.cpus))) or None
    with ro.connect("memory://") as ledger:
        ledger.sync(
            provider_tree(machine, HostSettings(dedicated=dedicated), numa=True, name="gen")
        )
        view = view_of(ledger, "gen")
        kind = "dedicated" if dedicated else "shared"
        request = numa(
            **{kind: data.draw(st.integers(0, 2))}, memory_mb=data.draw(st.integers(1, 4096))
        )
        if view.inventory.can_provide(request):
            ledger.claim("job-1", view.allocations(view.inventory.fit(request)))
        root = ledger.provider("gen").inventories
        for name in set(map(str, root)) & {"VCPU", "PCPU", "MEMORY_MB"}:
            free = root[name].capacity - root[name].used
            assert free >= 0
            assert not holds(ledger, f"{name}={free + 1}")
            assert not free or holds(ledger, f"{name}={free}")


def test_the_disk_is_the_hosts():
    tree = provider_tree(box(disk=Disk("/", 10 * GIB, GIB)), numa=True)
    assert tree.inventories["DISK_GB"].total == 10
