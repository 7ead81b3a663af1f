"""The cells of a compute node as a view of a ledger: loads and saves."""

from __future__ import annotations

import copy

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop.nova import load_host_numa_topology
from resource_objects.resources.numa import (
    CellUsage,
    HostCell,
    NUMATopologyInventory,
    numa,
)
from resource_objects.testing.refusals import raises_code
from tests.host.placed import NUMA, cells, record, sync
from tests.host.views import held, pending_topologies


@pytest.fixture
def host(connect) -> ro.Ledger:
    """A ledger with host0, which has two cells."""
    created = connect()
    sync(created, cells=cells())
    return created


def place(node: ComputeNode, **request: object) -> ro.NUMATopologyAmount:
    """Take a topology with its counts; return it assigned."""
    result = node.inventories.consume({NUMA: numa(**request)})[NUMA]
    assert isinstance(result, ro.NUMATopologyAmount)
    return result


def used_of(ledger: ro.Ledger, host: str) -> dict[str, int]:
    """Return the used counts of the host itself, without its parts."""
    return {use.resource_class: use.used for use in ledger.usage() if use.provider == host}


def used(ledger: ro.Ledger) -> dict[str, int]:
    return used_of(ledger, "host0")


def usage_of(node: ComputeNode) -> tuple[CellUsage, ...]:
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
    assert usage_of(node) == inventories[NUMA].usage
    row = node.to_row()
    # 1 by number, 1 and 2 of topologies; 512 the host's own, 768 ordinary, 1024 in pages
    assert (row["vcpus"], row["vcpus_used"]) == (4, 4)
    assert (row["memory_mb"], row["memory_mb_used"]) == (16384, 512 + 768 + 1024)
    assert node.changes() == {} and not node.pending and node.limits == ro.Limits()


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


def test_what_is_released_and_taken_by_another_name_is_nothing_to_send(host) -> None:
    node = ComputeNode.load(host, "host0")
    node.inventories.consume({NUMA: numa(dedicated=1)})
    (first,) = pending_topologies(node)
    node.save()
    same = first.replace(thread_policy="prefer")
    node.inventories.consume(-ro.Amounts({NUMA: first}).with_implied_counts())
    node.inventories.consume({NUMA: same})
    assert pending_topologies(node) == (-first, same) and not node.pending
    assert not node.save() and not pending_topologies(node) and used(host)["PCPU"] == 1


def test_a_topology_of_a_request_locates_what_is_allocated_of_the_host(host) -> None:
    node = ComputeNode.load(host, "host0", "job-1")
    node.inventories.consume("PCPU=2,MEMORY_MB=512")
    node.save()
    assert node.inventories["PCPU"].used == 2 and usage_of(node) == (
        CellUsage(0),
        CellUsage(1),
    )
    amounts = ro.Request({NUMA: numa(dedicated=2, memory_mb=512)}).resources
    node.inventories[NUMA].consume(amounts[ro.resource(NUMA)])
    before = node.to_row()
    node.save()
    assert node.to_row() == before and used(host)["PCPU"] == 2 and used(host)["MEMORY_MB"] == 512
    assert str(host.get_claim("job-1")) == "job-1 holds MEMORY_MB=512,PCPU=2 of host0/numa0"


@pytest.mark.parametrize("consumer", [None, "job-1"])
def test_a_topology_alone_takes_the_counts_that_go_with_it(host, consumer) -> None:
    """As in a claim of the ledger, absent counts are implied."""
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
    request = numa(dedicated=2, memory_mb=64, thread_policy="isolate", emulator_policy=None)
    node.inventories[NUMA].consume(-node.inventories[NUMA].consume(request))
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
        for amounts in (numa(dedicated=3), numa(dedicated=2), numa(dedicated=2, shared=1)):
            fits = node.inventories.can_provide({NUMA: amounts})
            assert node.inventories[NUMA].can_provide(amounts) is fits
            assert host.inventories("host0")[NUMA].can_provide(amounts) is fits
            assert fits is (amounts.vcpus < 3 or amounts.placed_counts["PCPU"] < 3)
        with pytest.raises(ro.CapacityException, match="PCPU requested 3, free 2"):
            node.inventories[NUMA].consume(numa(dedicated=3))
    holder = ComputeNode.load(host, "host0", "batch")
    assert not holder.inventories[NUMA].can_provide(
        numa(dedicated=4)
    )  # without its counts it takes four
    amounts = ro.Request({NUMA: numa(dedicated=4)}).resources
    assert holder.inventories[NUMA].can_provide(amounts[ro.resource(NUMA)])  # of the six it holds


def test_what_many_hold_by_number_is_promised_too(host) -> None:
    node = ComputeNode.load(host, "host0")
    node.inventories.consume("PCPU=6")
    amounts = ro.Request({NUMA: numa(dedicated=4)}).resources
    assert node.inventories[NUMA].can_provide(amounts[ro.resource(NUMA)])  # the counts are its own
    for _ in range(2):
        assert not node.inventories[NUMA].can_provide(numa(dedicated=4))
        node.save()


# --- definitions --------------------------------------------------------------------------------


def test_cells_are_made_with_a_host_that_is_not_there(connect) -> None:
    ledger = connect()
    node = record(local_gb=0, local_gb_used=0)
    taken = place(node, dedicated=2, memory_mb=64)
    node.bind(ledger)
    assert node.reserved == ro.Amounts(MEMORY_MB=512)  # huge pages are reserved in addition
    assert node.inventories["MEMORY_MB"].reserved == 512 + 4096
    assert (node.vcpus_used, node.memory_mb_used) == (2, 512 + 64)
    before = node.to_row()
    node.save()
    assert node.to_row() == before
    created = ledger.provider("host1")
    assert [provider.name for provider in created.walk()] == ["host1", "host1/numa0", "host1/numa1"]
    figures = {
        str(kind): (existing.total, existing.reserved)
        for kind, existing in created.inventories.items()
    }
    assert figures == {"VCPU": (4, 0), "PCPU": (8, 0), "MEMORY_MB": (16384, 4608)}
    assert used_of(ledger, "host1") == {"VCPU": 0, "PCPU": 2, "MEMORY_MB": 64}
    view = ComputeNode.load(ledger, "host1")
    assert view.inventories[NUMA].cells == cells().cells
    assert {cpu for item in usage_of(view) for cpu in item.pinned} == set(taken.placed[0].pinned)
    assert not pending_topologies(node) and not node.save()


def test_cpus_that_serve_either_way_are_stored_by_no_ledger(connect) -> None:
    either = NUMATopologyInventory([HostCell(0, shared=[0, 1], dedicated=[0, 1], memory_mb=64)])
    ledger = connect()
    node = record(numa_topology=ComputeNode(numa_topology=either).numa_topology).bind(ledger)
    with pytest.raises(exceptions.InvalidInventory, match="each shared or dedicated"):
        node.save()
    with raises_code("ProviderNotFound"):
        ledger.provider("host1")


def test_what_is_allocated_back_in_pages_is_not_lost_by_a_definition(host) -> None:
    node = ComputeNode.load(host, "host0")
    node.inventories["MEMORY_MB"].update(total=20480)
    place(node, memory_mb=2048, page_size="2MB")
    taken = place(node, dedicated=2)
    before = node.to_row()
    assert node.save() and node.to_row() == before
    stored = host.provider("host0").inventories["MEMORY_MB"]
    assert (stored.total, stored.reserved, stored.used) == (20480, 4608, 0)
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


def test_an_unreadable_column_is_named_when_it_is_bound(connect) -> None:
    node = record(numa_topology="nothing")
    stored = copy.deepcopy(node)
    with raises_code("InvalidRow", match="numa_topology"):
        node.bind(connect())
    assert node == stored
