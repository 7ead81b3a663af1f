"""The cells of a compute node as a view of a ledger: what it reads, what a save writes."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.host.settings import HostSettings
from resource_objects.interop.nova import load_host_numa_topology
from resource_objects.resources.context import Context
from resource_objects.resources.numa import (
    CellUsage,
    HostCell,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.testing.refusals import raises_code
from tests.host.takers import taken_by
from tests.host.views import held, pending_topologies
from tests.support.lengths import some

NUMA = "NUMA_TOPOLOGY"


def cells(count: int = 2) -> NUMATopologyInventory:
    """Return cells of two shared CPUs and four dedicated ones, a quarter of them in huge pages."""
    return NUMATopologyInventory(
        [
            HostCell(
                n,
                shared=[8 * n, 8 * n + 1],
                dedicated=range(8 * n + 4, 8 * n + 8),
                siblings=[
                    *([8 * n], [8 * n + 1]),
                    *([8 * n + 4, 8 * n + 6], [8 * n + 5, 8 * n + 7]),
                ],
                memory_mb=8192,
                pages=[PagePool(size_kib=4, total=1572864), PagePool(size_kib=2048, total=1024)],
            )
            for n in range(count)
        ],
        cpu_ratio=2,
    )


@pytest.fixture
def host(connect) -> ro.Ledger:
    """A ledger with host0, which has two cells."""
    made = connect()
    root = ro.Provider(
        "host0", "VCPU=4:allocation_ratio=2,PCPU=8,MEMORY_MB=16384:reserved=4608,CUSTOM_SEATS=3"
    )
    root.add_parts(NUMA, cells())
    made.sync(root)
    return made


def place(node: ComputeNode, **asked: object) -> ro.NUMATopologyAmount:
    """Take a topology with its counts; return it assigned."""
    found = node.inventories.consume({NUMA: numa(**asked)})[NUMA]
    assert isinstance(found, ro.NUMATopologyAmount)
    return found


def used_of(ledger: ro.Ledger, host: str) -> dict[str, int]:
    """Return what is used of a host itself."""
    return {use.resource_class: use.used for use in ledger.usage() if use.provider == host}


def used(ledger: ro.Ledger) -> dict[str, int]:
    return used_of(ledger, "host0")


def said(node: ComputeNode) -> tuple[CellUsage, ...]:
    return load_host_numa_topology(node.numa_topology).usage


# --- loading ------------------------------------------------------------------------------------


def test_load_of_a_host_with_cells_gives_the_view(host) -> None:
    host.claim("job-1", {"host0": {"VCPU": 1, "MEMORY_MB": 256}})
    host.claim("job-2", {"host0": {NUMA: numa(dedicated=2, memory_mb=512)}})
    host.claim("job-3", {"host0": {NUMA: numa(shared=1, memory_mb=1024, page_size="2MB")}})
    node = ComputeNode.load(host, "host0")
    inventories = node.inventories
    assert inventories[NUMA].cells == cells().cells and inventories[NUMA].cpu_ratio == 2
    assert [(str(k), i.used) for k, i in inventories.items() if str(k) != NUMA] == [
        ("VCPU", 2),
        ("MEMORY_MB", 768),
        ("PCPU", 2),
    ]
    assert said(node) == inventories[NUMA].usage
    row = node.to_row()
    # 1 by number, 1 and 2 of topologies; 512 the host's own, 768 ordinary, 1024 in pages
    assert (row["vcpus"], row["vcpus_used"]) == (4, 4)
    assert (row["memory_mb"], row["memory_mb_used"]) == (16384, 512 + 768 + 1024)
    assert node.changes() == {} and not node.pending and node.limits == ro.Limits()


def test_reading_writes_nothing(host) -> None:
    before = host.provider("host0")
    node = ComputeNode.load(host, "host0")
    node.reload()
    assert not node.save() and host.provider("host0") == before


def test_a_machine_that_was_discovered_is_loaded_with_its_cells(connect) -> None:
    from resource_objects.host.machine import MIB, Core, Machine, NUMACell
    from resource_objects.host.tree import provider_tree

    machine = Machine(
        hostname="box",
        cpus=(0, 1, 2, 3),
        cores=tuple(Core(0, n, (n,)) for n in range(4)),
        memory_bytes=4096 * MIB,
        cells=tuple(
            NUMACell(n, (2 * n, 2 * n + 1), 2048 * MIB, distances=(10, 20)) for n in (0, 1)
        ),
    )
    ledger = connect()
    ledger.sync(provider_tree(machine, HostSettings(dedicated="1,3", shared="0,2"), numa=True))
    node = ComputeNode.load(ledger, "box", "job-1")
    place(node, cells=2, dedicated=2, memory_mb=512)
    row = node.to_row()
    assert [used.pinned for used in said(node)] == [(1,), (3,)]
    node.save()
    assert node.to_row() == row == ComputeNode.load(ledger, "box").to_row()


# --- saving -------------------------------------------------------------------------------------


def test_save_writes_what_a_topology_takes_to_its_cells(host) -> None:
    node = ComputeNode.load(host, "host0")
    for resource, amount in ro.Request(
        {NUMA: numa(cells=2, shared=2, memory_mb=512)}
    ).resources.items():
        node.inventories[resource].consume(amount)
    node.inventories.consume("VCPU=1")
    before = node.to_row()
    assert held(host, "host0/unattributed") == "nothing"
    result = node.save()
    assert str(result) == (
        "host0/unattributed holds VCPU=1 of host0, VCPU=1,MEMORY_MB=256 of host0/numa0, "
        "VCPU=1,MEMORY_MB=256 of host0/numa1"
    )
    assert used(host) == {"VCPU": 3, "PCPU": 0, "MEMORY_MB": 512, "CUSTOM_SEATS": 0}
    assert node.to_row() == before and not node.pending and not pending_topologies(node)
    assert not node.save()


@pytest.mark.parametrize(
    "asked",
    [
        {"shared": 2, "memory_mb": 512},
        {"dedicated": 3, "memory_mb": 512},
        {"dedicated": 2, "thread_policy": "isolate"},
        {"cells": 2, "dedicated": 4, "emulator_policy": "isolate"},
        {"cells": 2, "memory_mb": 2048, "page_size": "2MB"},
        {"shared": 1, "memory_mb": 3, "page_size": "any"},
    ],
    ids=str,
)
@pytest.mark.parametrize("consumer", [None, "job-1"])
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_the_view_before_a_save_is_the_view_after(host, asked, consumer, together) -> None:
    node = ComputeNode.load(host, "host0", consumer)
    empty = node.to_row()
    amounts = ro.Request({NUMA: numa(**asked)}).resources
    taken = (
        node.inventories.consume(amounts)
        if together
        else ro.Amounts({r: node.inventories[r].consume(a) for r, a in amounts.items()})
    )
    before, inventories = node.to_row(), node.get_inventories()
    node.save()
    assert node.to_row() == before == ComputeNode.load(host, "host0").to_row()
    assert node.get_inventories() == inventories
    located = ComputeNode.load(host, "host0").inventories[NUMA]
    assert located.usage == inventories[ro.resource(NUMA)].usage
    node.inventories.consume(-taken)
    node.save()
    assert node.to_row() == empty and held(host, node.consumer) == "nothing"


def test_the_ledger_knows_what_a_consumer_asked_for(host) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    place(node, dedicated=2)
    node.save()
    request = host.get_claim("job-1").request
    assert request is not None and request.resources[NUMA].vcpus == 2


def test_several_topologies_are_one_claim(host) -> None:
    node = ComputeNode.load(host, "host0")
    taken = [place(node, dedicated=1, memory_mb=64) for _ in range(3)]
    assert pending_topologies(node) == tuple(taken)
    node.inventories.consume("VCPU=2,PCPU=1")
    before = node.to_row()
    assert node.save() and node.to_row() == before
    assert used(host)["PCPU"] == 4 and node.inventories["PCPU"].used == 4
    node.inventories.consume(-ro.Amounts({NUMA: taken[1]}).with_implied_counts())
    node.inventories.consume({NUMA: numa(cells=2, shared=2)})
    before = node.to_row()
    assert node.save() and node.to_row() == before
    assert used(host) == {"VCPU": 4, "PCPU": 3, "MEMORY_MB": 128, "CUSTOM_SEATS": 0}


def test_a_consumer_with_a_name_has_one_topology(host) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    first = place(node, dedicated=1)
    place(node, dedicated=1)
    view = copy.deepcopy(node)
    with raises_code("InvalidAmount", match=r"topologies of job-1.*a consumer for each"):
        node.save()
    assert node == view and held(host, "job-1") == "nothing"
    node.inventories.consume(-ro.Amounts({NUMA: first}).with_implied_counts())
    node.save()
    place(node, dedicated=1)
    view = copy.deepcopy(node)
    with raises_code("InvalidAmount", match="job-1 has one already"):
        node.save()
    assert node == view and used(host)["PCPU"] == 1


@pytest.mark.parametrize("cells_of_both", [[0, 0], [0, 1]], ids=["in one cell", "to another"])
def test_a_consumer_with_a_name_exchanges_its_topology(host, cells_of_both) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    before, after = cells_of_both
    first = node.inventories[NUMA].fit(
        numa(dedicated=1, memory_mb=64), context=Context(allowed=[before])
    )
    node.inventories.consume({NUMA: first})
    node.save()
    second = node.inventories[NUMA].fit(numa(dedicated=2), context=Context(allowed=[after]))
    node.inventories.consume({NUMA: second})
    node.inventories.consume(-ro.Amounts({NUMA: first}).with_implied_counts())
    row = node.to_row()
    node.save()
    assert node.to_row() == row and used(host)["PCPU"] == 2
    assert str(host.get_claim("job-1")) == f"job-1 holds PCPU=2 of host0/numa{after}"
    request = host.get_claim("job-1").request
    assert request is not None
    assert request.resources[NUMA].unassigned() == second.unassigned()


def test_what_is_given_back_and_taken_by_another_name_is_nothing_to_send(host) -> None:
    node = ComputeNode.load(host, "host0")
    node.inventories.consume({NUMA: numa(dedicated=1)})
    (first,) = pending_topologies(node)
    node.save()
    same = first.replace(thread_policy="prefer")
    node.inventories.consume(-ro.Amounts({NUMA: first}).with_implied_counts())
    node.inventories.consume({NUMA: same})
    assert pending_topologies(node) == (-first, same) and not node.pending
    assert not node.save() and not pending_topologies(node) and used(host)["PCPU"] == 1


def test_what_is_taken_and_given_back_is_nothing_to_save(host) -> None:
    node = ComputeNode.load(host, "host0")
    taken = place(node, dedicated=2, memory_mb=64)
    node.inventories.consume(-ro.Amounts({NUMA: taken}).with_implied_counts())
    assert node.changes() == {} and not node.save()


def test_cpus_are_moved_within_a_cell(host) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    taken = node.inventories.consume({NUMA: numa(dedicated=1, memory_mb=64)})
    node.save()
    other = ComputeNode.load(host, "host0", "job-1")
    kept = other.inventories[NUMA].fit(numa(dedicated=2))
    live = other.inventories
    live.consume({NUMA: kept})
    live.consume(-taken)
    before = other.to_row()
    result = other.save(operation="0b6f7c1e-58a5-4a5b-8c39-3d7f3f0f5f11")
    assert other.to_row() == before and not pending_topologies(other)
    assert str(result.claim) == "job-1 holds PCPU=2 of " + f"host0/numa{kept.placed[0].cell}"
    assert set(said(other)[kept.placed[0].cell].pinned) == set(kept.placed[0].pinned)


def moving(host: ro.Ledger) -> ComputeNode:
    """Return a view that gives back a CPU of cell 0 and takes another of it."""
    node = ComputeNode.load(host, "host0", "job-1")
    first = node.inventories[NUMA].fit(numa(dedicated=1), context=Context(allowed=[0]))
    node.inventories.consume({NUMA: first})
    node.save()
    second = node.inventories[NUMA].fit(numa(dedicated=1), context=Context(allowed=[0]))
    node.inventories.consume({NUMA: second})
    node.inventories.consume(-ro.Amounts({NUMA: first}).with_implied_counts())
    return node


def test_cpus_are_moved_once_whatever_is_lost(host, monkeypatch) -> None:
    operation = "0b6f7c1e-58a5-4a5b-8c39-3d7f3f0f5f11"
    node = moving(host)
    again = copy.deepcopy(node)
    before = node.to_row()
    node.save(operation=operation)
    assert node.to_row() == before
    again.save(operation=operation)  # as another process would, that does not know
    assert again.to_row() == before and used(host)["PCPU"] == 1


def test_a_move_that_does_not_fit_gives_nothing_back(connect, host) -> None:
    node = moving(host)
    (wanted,) = [one for one in pending_topologies(node) if not one.is_negative]
    connect().claim("job-2", {"host0": {NUMA: wanted}})
    kept, before = copy.deepcopy(node), host.provider("host0")
    with pytest.raises(ro.CapacityException, match="cpu"):
        node.save()
    assert node == kept and host.provider("host0") == before and used(host)["PCPU"] == 2


def test_refused_nothing_changed_in_the_ledger_nor_in_the_view(connect, host) -> None:
    node = ComputeNode.load(host, "host0")
    taken = place(node, dedicated=2, memory_mb=64)
    node.inventories.consume("VCPU=1")
    connect().claim("job-1", {"host0": {NUMA: taken}})
    before, view = host.provider("host0"), copy.deepcopy(node)
    with pytest.raises(ro.CapacityException, match="job-1"):
        node.save()
    assert host.provider("host0") == before and node == view
    assert held(host, "host0/unattributed") == "nothing" and node.vcpus_used == 3
    node.reload()
    assert not pending_topologies(node) and node.inventories["PCPU"].used == 2
    place(node, dedicated=2, memory_mb=64)
    assert node.save() and used(host)["PCPU"] == 4


def test_counts_and_cells_are_refused_together(connect, host) -> None:
    node = ComputeNode.load(host, "host0")
    place(node, shared=1)
    node.inventories.consume("VCPU=4")
    connect().claim("job-1", {"host0": "VCPU=4"})
    connect().claim("job-2", {"host0": "VCPU=1"})
    view = copy.deepcopy(node)
    with pytest.raises(ro.CapacityException, match="VCPU"):
        node.save()
    assert node == view and held(host, "host0/unattributed") == "nothing"


def test_somebody_else_s_topology_is_never_given_back(host) -> None:
    taken = place(owner := ComputeNode.load(host, "host0", "job-1"), dedicated=2)
    owner.save()
    node = ComputeNode.load(host, "host0")
    node.inventories.consume(-ro.Amounts({NUMA: taken}).with_implied_counts())
    view = copy.deepcopy(node)
    with pytest.raises(ro.ResourceObjectsError):
        node.save()
    assert node == view and used(host)["PCPU"] == 2


def test_a_topology_of_a_request_locates_what_is_held_of_the_host(host) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    node.inventories.consume("PCPU=2,MEMORY_MB=512")
    node.save()
    assert node.inventories["PCPU"].used == 2 and said(node) == (CellUsage(0), CellUsage(1))
    asked = ro.Request({NUMA: numa(dedicated=2, memory_mb=512)}).resources
    node.inventories[NUMA].consume(asked[ro.resource(NUMA)])
    before = node.to_row()
    node.save()
    assert node.to_row() == before and used(host)["PCPU"] == 2 and used(host)["MEMORY_MB"] == 512
    assert str(host.get_claim("job-1")) == "job-1 holds MEMORY_MB=512,PCPU=2 of host0/numa0"


@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_a_topology_alone_takes_the_counts_that_go_with_it(host, consumer) -> None:
    """As a claim of the ledger does: counts that nobody said are implied."""
    node = ComputeNode.load(host, "host0", consumer)
    empty = node.to_row()
    taken = node.inventories[NUMA].consume(numa(2, dedicated=4, shared=2, memory_mb=512))
    assert node.pending == ro.Amounts(VCPU=2, PCPU=4, MEMORY_MB=512)
    assert [node.inventories[name].used for name in ("VCPU", "PCPU", "MEMORY_MB")] == [2, 4, 512]
    before = node.to_row()
    node.save()
    assert node.to_row() == before == ComputeNode.load(host, "host0").to_row()
    assert used(host) == {"VCPU": 2, "PCPU": 4, "MEMORY_MB": 512, "CUSTOM_SEATS": 0}
    node.inventories[NUMA].consume(-taken)
    node.save()
    assert node.to_row() == empty and held(host, node.consumer) == "nothing"


def test_a_topology_alone_goes_back_as_it_came(host) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    before = copy.deepcopy(node)
    asked = numa(dedicated=2, memory_mb=64, thread_policy="isolate", emulator_policy=None)
    node.inventories[NUMA].consume(-node.inventories[NUMA].consume(asked))
    assert node == before and not node.pending
    node.inventories.consume("PCPU=2")
    node.save()
    before = copy.deepcopy(node)
    node.inventories[NUMA].consume(-node.inventories[NUMA].consume(numa(dedicated=2)))
    assert node == before and node.inventories["PCPU"].used == 2


def test_what_is_promised_to_others_is_not_located_for_a_topology_alone(host) -> None:
    host.claim("batch", {"host0": "PCPU=6"})
    for consumer in (None, "job-1"):
        node = ComputeNode.load(host, "host0", consumer)
        for asked in (numa(dedicated=3), numa(dedicated=2), numa(dedicated=2, shared=1)):
            fits = node.inventories.can_provide({NUMA: asked})
            assert node.inventories[NUMA].can_provide(asked) is fits
            assert host.inventories("host0")[NUMA].can_provide(asked) is fits
            assert fits is (asked.vcpus < 3 or asked.placed_counts["PCPU"] < 3)
        with pytest.raises(ro.CapacityException, match="PCPU requested 3, free 2"):
            node.inventories[NUMA].consume(numa(dedicated=3))
    holder = ComputeNode.load(host, "host0", "batch")
    assert not holder.inventories[NUMA].can_provide(numa(dedicated=4))  # by itself it takes four
    asked = ro.Request({NUMA: numa(dedicated=4)}).resources
    assert holder.inventories[NUMA].can_provide(asked[ro.resource(NUMA)])  # of the six it holds


def test_what_many_hold_by_number_is_promised_too(host) -> None:
    node = ComputeNode.load(host, "host0")
    node.inventories.consume("PCPU=6")
    asked = ro.Request({NUMA: numa(dedicated=4)}).resources
    assert node.inventories[NUMA].can_provide(asked[ro.resource(NUMA)])  # whose counts these are
    for _ in range(2):
        assert not node.inventories[NUMA].can_provide(numa(dedicated=4))
        node.save()


def lose_connection(monkeypatch, ledger: ro.Ledger, *, done: bool) -> None:
    """Lose the connection at the next write, after or before it is done."""
    commit = ledger.backend.commit

    def lost(*args, **kwargs):
        monkeypatch.undo()
        if done:
            commit(*args, **kwargs)
        raise exceptions.DatabaseError("lost", "ledger")

    monkeypatch.setattr(ledger.backend, "commit", lost)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_after_a_lost_connection_saving_again_takes_it_once(
    host, monkeypatch, done, consumer
) -> None:
    node = ComputeNode.load(host, "host0", consumer)
    taken = place(node, dedicated=2, memory_mb=64)
    lose_connection(monkeypatch, host, done=done)
    with raises_code("LostConnection"):
        node.save()
    assert pending_topologies(node) == (taken,) and used(host)["PCPU"] == (2 if done else 0)
    if consumer is None:
        place(node, shared=1)
    before = node.to_row()
    assert node.save() and node.to_row() == before and used(host)["PCPU"] == 2
    assert not node.save()


# --- definitions --------------------------------------------------------------------------------


def record(**changes: object) -> ComputeNode:
    """Return a node of a record that no ledger knows."""
    row = {
        "hypervisor_hostname": "host1",
        "vcpus": 4,
        "vcpus_used": 0,
        "cpu_allocation_ratio": 2.0,
        "memory_mb": 16384,
        "memory_mb_used": 512,
        "numa_topology": ComputeNode(numa_topology=cells()).numa_topology,
    }
    return ComputeNode.from_row({**row, **changes}, reserved="MEMORY_MB=512")


def test_cells_are_made_with_a_host_that_is_not_there(connect) -> None:
    ledger = connect()
    node = record(local_gb=0, local_gb_used=0)
    taken = place(node, dedicated=2, memory_mb=64)
    node.bind(ledger)
    assert node.reserved == ro.Amounts(MEMORY_MB=512)  # huge pages are set aside besides
    assert node.inventories["MEMORY_MB"].reserved == 512 + 4096
    assert (node.vcpus_used, node.memory_mb_used) == (2, 512 + 64)
    before = node.to_row()
    node.save()
    assert node.to_row() == before
    made = ledger.provider("host1")
    assert [provider.name for provider in made.walk()] == ["host1", "host1/numa0", "host1/numa1"]
    figures = {str(kind): (there.total, there.reserved) for kind, there in made.inventories.items()}
    assert figures == {"VCPU": (4, 0), "PCPU": (8, 0), "MEMORY_MB": (16384, 4608)}
    assert used_of(ledger, "host1") == {"VCPU": 0, "PCPU": 2, "MEMORY_MB": 64}
    view = ComputeNode.load(ledger, "host1")
    assert view.inventories[NUMA].cells == cells().cells
    assert {cpu for one in said(view) for cpu in one.pinned} == set(taken.placed[0].pinned)
    assert not pending_topologies(node) and not node.save()


def test_cells_of_a_host_that_is_there_are_the_ledger_s(host) -> None:
    before = host.provider("host0")
    fewer = ComputeNode(numa_topology=cells(1)).numa_topology
    node = record(hypervisor_hostname="host0", numa_topology=fewer)
    node.bind(host)
    assert node.inventories[NUMA].cells == cells().cells
    assert node.inventories == ComputeNode.load(host, "host0").inventories
    assert not node.save()
    after = host.provider("host0")
    assert after.inventories == before.inventories and after.children == before.children
    with pytest.raises(exceptions.InvalidInventory, match="a sync of the host changes them"):
        node.update_inventories({NUMA: cells(1)})
    with pytest.raises(exceptions.InvalidInventory, match="a sync of the host changes them"):
        node.update_inventories({NUMA: None})
    assert node.update_inventories(node.get_inventories()) is False


def test_a_host_without_cells_has_none_whatever_the_record_says(ledger) -> None:
    node = record(hypervisor_hostname="host0", memory_mb_used=512)
    text = node.numa_topology
    node.bind(ledger)
    assert NUMA not in node.inventories and "PCPU" not in node.inventories
    assert node.numa_topology == text and "numa_topology" not in node.changes()
    node.inventories.consume("VCPU=1")
    node.save()
    with pytest.raises(exceptions.InvalidInventory, match="a sync of the host adds them"):
        node.update_inventories({NUMA: cells()})
    placed = record(hypervisor_hostname="host0", memory_mb_used=512)
    place(placed, dedicated=1)
    kept = copy.deepcopy(placed)
    with pytest.raises(ro.CapacityException, match="NUMA_TOPOLOGY"):
        placed.bind(ledger)
    assert placed == kept


def test_cells_that_come_and_go_are_seen_by_a_reload(connect, ledger) -> None:
    node = ComputeNode.load(ledger, "host0")
    tree = connect().provider("host0")
    tree.add_parts(NUMA, cells())
    ledger.sync(tree)
    node.reload()
    live = node.inventories[NUMA]
    assert live.cells == cells().cells and said(node)
    assert node.inventories["MEMORY_MB"].reserved == 512
    node.obj_reset_changes()  # it was written to the record
    tree = ledger.provider("host0")
    tree.update(children=[child for child in tree.children if "numa" not in child.name])
    ledger.sync(tree)
    node.reload()
    assert NUMA not in node.inventories and node.changes()["numa_topology"] is None
    assert not live.can_provide(numa(shared=1))


def test_cpus_that_serve_either_way_are_kept_by_no_ledger(connect) -> None:
    either = NUMATopologyInventory([HostCell(0, shared=[0, 1], dedicated=[0, 1], memory_mb=64)])
    ledger = connect()
    node = record(numa_topology=ComputeNode(numa_topology=either).numa_topology).bind(ledger)
    with pytest.raises(exceptions.InvalidInventory, match="each shared or dedicated"):
        node.save()
    with raises_code("ProviderNotFound"):
        ledger.provider("host1")


def test_what_is_held_back_in_pages_is_not_lost_by_a_definition(host) -> None:
    node = ComputeNode.load(host, "host0")
    node.inventories["MEMORY_MB"].update(total=20480)
    place(node, memory_mb=2048, page_size="2MB")
    taken = place(node, dedicated=2)
    before = node.to_row()
    assert node.save() and node.to_row() == before
    kept = host.provider("host0").inventories["MEMORY_MB"]
    assert (kept.total, kept.reserved, kept.used) == (20480, 4608, 0)
    node.inventories["VCPU"].total = 6
    node.inventories.consume(-ro.Amounts({NUMA: taken}).with_implied_counts())
    before = node.to_row()
    assert node.save() and node.to_row() == before and used(host)["PCPU"] == 0


def test_binding_again_starts_from_what_is_the_host_s_own(connect, host) -> None:
    node = ComputeNode.load(host, "host0")
    with ro.connect("memory://") as other:
        node.bind(other)
        assert node.inventories["MEMORY_MB"].reserved == 4608
        node.save()
        assert other.provider("host0").inventories["MEMORY_MB"].reserved == 4608
    record_of = ComputeNode.from_row(ComputeNode.load(host, "host0"))
    assert record_of.reserved == ro.Amounts(MEMORY_MB=512)
    assert record_of.memory_mb_used == 512 and record_of.inventories["MEMORY_MB"].used == 0


def test_a_view_that_is_pickled_says_the_same_without_the_ledger(host) -> None:
    node = ComputeNode.load(host, "host0")
    place(node, dedicated=2, memory_mb=512, page_size="2MB")
    twin = pickle.loads(pickle.dumps(node))
    assert twin == node and twin.to_row() == node.to_row()
    assert twin.inventories[NUMA] == node.inventories[NUMA]
    used_there = {str(k): i.used for k, i in node.inventories.items() if str(k) != NUMA}
    assert {str(k): i.used for k, i in twin.inventories.items() if str(k) != NUMA} == used_there
    with raises_code("NotBound"):
        twin.save()


def test_an_unreadable_column_is_named_when_it_is_bound(connect) -> None:
    node = record(numa_topology="nothing")
    kept = copy.deepcopy(node)
    with raises_code("InvalidRow", match="numa_topology"):
        node.bind(connect())
    assert node == kept


# --- many at once -------------------------------------------------------------------------------


def test_no_cpu_is_given_twice_by_many_processes(sqlite_url: Callable[[str], str]) -> None:
    url = sqlite_url("lab.db")
    with ro.connect(url) as ledger:
        root = ro.Provider(
            "host0", "VCPU=4:allocation_ratio=2,PCPU=8,MEMORY_MB=16384:reserved=4096"
        )
        root.add_parts(NUMA, cells())
        ledger.sync(root)
    taken = taken_by(url, "NUMA_TOPOLOGY=1:dedicated=1", (None, "job-1", None), most_named=1)
    cpus = sorted(int(found[NUMA].cpuset) for one in taken for found in one)
    assert cpus == [4, 5, 6, 7, 12, 13, 14, 15]
    with ro.connect(url) as ledger:
        assert used(ledger)["PCPU"] == 8


@pytest.mark.parametrize("seed", some(range(6), 2))
def test_views_and_claims_in_any_order_count_the_same(seed: int) -> None:
    """A view before a save says what it says after; and what is kept is what was taken."""
    chance = random.Random(seed)
    with ro.connect("memory://") as ledger:
        root = ro.Provider(
            "host0", "VCPU=4:allocation_ratio=2,PCPU=8,MEMORY_MB=16384:reserved=4608"
        )
        root.add_parts(NUMA, cells())
        ledger.sync(root)
        empty = ComputeNode.load(ledger, "host0").to_row()
        view, kept = ComputeNode.load(ledger, "host0"), []
        for step in range(40):
            if chance.random() < 0.2:
                try:
                    ledger.claim(f"job-{step}", {"host0": {NUMA: anything(chance)}})
                except ro.CapacityException:
                    continue
                view.reload()
                ledger.release(f"job-{step}")
                view.reload()
                continue
            took, gave = [], []
            for _ in range(chance.randint(1, 3)):
                if kept and chance.random() < 0.4:
                    gave.append(back := kept.pop(chance.randrange(len(kept))))
                    give_back(view, back, alone=chance.random() < 0.5)
                    continue
                try:
                    took.append(take(view, anything(chance), alone=chance.random() < 0.5))
                except ro.CapacityException:
                    continue
            kept += took
            before = view.to_row(), view.get_inventories()
            view.save()
            assert (view.to_row(), view.get_inventories()) == before
        for amounts in kept:
            view.inventories.consume(-amounts)
        view.save()
        assert ComputeNode.load(ledger, "host0").to_row() == empty == view.to_row()


def take(view: ComputeNode, asked: ro.NUMATopologyAmount, *, alone: bool) -> ro.Amounts:
    """Take a topology with its counts, which it implies if it is taken alone."""
    if alone:
        return ro.Amounts({NUMA: view.inventories[NUMA].consume(asked)})
    return view.inventories.consume({NUMA: asked})


def give_back(view: ComputeNode, taken: ro.Amounts, *, alone: bool) -> None:
    """Give back a topology with its counts, one by one or together."""
    if alone:
        for resource, amount in taken.items():
            view.inventories[resource].consume(-amount)
    else:
        view.inventories.consume(-taken)


def anything(chance: random.Random) -> ro.NUMATopologyAmount:
    """Return a topology that often fits."""
    asked: dict = {"cells": chance.choice([1, 1, 2])}
    kind = chance.choice(["shared", "dedicated", "memory_mb"])
    asked[kind] = asked["cells"] * chance.choice([1, 1, 2])
    if kind == "dedicated":
        asked["thread_policy"] = chance.choice([None, "isolate", "require", "prefer"])
        asked["emulator_policy"] = chance.choice([None, "isolate"])
    else:
        asked["memory_mb"] = asked["cells"] * chance.choice([2, 64, 1024])
        asked["page_size"] = chance.choice(["", "any", "large", "2MB", "small"])
    return numa(**asked)
