"""The consumers of the cells of a host, as a ledger stores them."""

from __future__ import annotations

import dataclasses
import json

import pytest

import resource_objects as ro
from resource_objects.host.holdings import CellUser, HostCells, read_cells
from resource_objects.providers.composite import LocatedView, LocatedViews
from resource_objects.providers.orders import ConsumerOrder, Operation, StoredRequest, Write
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.testing.refusals import raises_code

NUMA = "NUMA_TOPOLOGY"


@pytest.fixture
def lab(connect) -> ro.Ledger:
    """A ledger with host0: a cell of four cores with two threads, and one of memory."""
    cells = [
        HostCell(
            0,
            shared=[0, 4],
            dedicated=[1, 2, 3, 5, 6, 7],
            siblings=[(n, n + 4) for n in range(4)],
            memory_mb=4096,
            pages=[PagePool(size_kib=4, total=786432), PagePool(size_kib=2048, total=512)],
        ),
        HostCell(2, memory_mb=1024),
    ]
    host = ro.Provider(
        "host0", "VCPU=2:allocation_ratio=4,PCPU=6,MEMORY_MB=5120:reserved=1024,DISK_GB=10"
    )
    host.add_parts(NUMA, NUMATopologyInventory(cells, cpu_ratio=4))
    created = connect()
    created.sync(host, ro.Provider("plain", "VCPU=4"))
    return created


def view_of(ledger: ro.Ledger) -> LocatedView:
    columns = ledger.backend.read("host0")
    return LocatedViews(columns).of_tree(columns.providers.root_id[0], NUMA)


def take(ledger: ro.Ledger, consumer: str, requested: NUMATopologyAmount) -> NUMATopologyAmount:
    """Claim a topology for a consumer with its request; return it assigned."""
    view = view_of(ledger)
    taken = view.inventory.fit(requested)
    request = StoredRequest(ro.Request({NUMA: requested}))
    order = ConsumerOrder.claim(consumer, view.deltas(taken), request=request)
    ledger.backend.commit(Write(Operation(), "claim", consumer, orders=(order,)))
    return taken


def test_what_each_consumer_holds_of_a_cell(lab):
    take(lab, "job-1", numa(dedicated=2, memory_mb=1024, page_size="2MB"))
    take(lab, "job-2", numa(shared=2, memory_mb=512))
    result = read_cells(lab, "host0")
    assert result.host == "host0"
    assert result.holders == (
        (
            CellUser("job-1", cpus=(1, 5), pages=((2048, 512),)),
            CellUser("job-2", vcpus=2, memory_mb=512),
        ),
        (),
    )
    assert result.inventory.usage[0].pinned == (1, 5)
    assert result.outside_cells == ()


def test_a_cpu_left_empty_on_purpose_differs_from_one_that_runs_something(lab):
    take(lab, "job-1", numa(dedicated=2, thread_policy="isolate"))
    (holder,) = read_cells(lab, "host0").holders[0]
    assert (holder.cpus, holder.idle) == ((1, 2), (5, 6))


def test_the_emulators_cpu_runs_something(lab):
    taken = take(
        lab, "job-1", numa(dedicated=1, thread_policy="isolate", emulator_policy="isolate")
    )
    (holder,) = read_cells(lab, "host0").holders[0]
    assert taken.emulator_cpu in holder.cpus
    assert holder.idle == taken.placed[0].idle


def test_without_what_was_requested_every_cpu_counts_as_running_something(lab):
    view = view_of(lab)
    taken = view.inventory.fit(numa(dedicated=1, thread_policy="isolate"))
    lab.claim("job-1", view.allocations(taken))
    (holder,) = read_cells(lab, "host0").holders[0]
    assert (holder.cpus, holder.idle) == ((1, 5), ())


def test_a_request_that_does_not_explain_what_is_allocated_explains_nothing(lab):
    view = view_of(lab)
    deltas = view.deltas(view.inventory.fit(numa(dedicated=2, thread_policy="isolate")))
    request = StoredRequest(ro.Request({NUMA: numa(dedicated=3)}))
    order = ConsumerOrder.claim("job-1", deltas, request=request)
    lab.backend.commit(Write(Operation(), "claim", "job-1", orders=(order,)))
    (holder,) = read_cells(lab, "host0").holders[0]
    assert (holder.cpus, holder.idle) == ((1, 2, 5, 6), ())


def test_cpus_taken_by_number_are_loose(lab):
    lab.claim("job-1", {"host0/numa0": "PCPU=2"})
    assert read_cells(lab, "host0").holders[0] == (CellUser("job-1", loose=2),)


def test_what_is_allocated_of_the_host_in_no_cell_is_elsewhere(lab):
    lab.claim("job-1", {"host0": "VCPU=1,MEMORY_MB=100,DISK_GB=5"})
    lab.claim("job-2", {"host0": "DISK_GB=5"})
    result = read_cells(lab, "host0")
    assert result.outside_cells == (("job-1", {"VCPU": 1, "MEMORY_MB": 100}),)
    assert result.holders == ((), ())


@pytest.mark.parametrize("name", ["host0", "host0/numa2"])
def test_any_provider_of_the_tree_names_the_host(lab, name):
    assert read_cells(lab, name).host == "host0"
    assert read_cells(lab, lab.provider(name).uuid).host == "host0"


def test_a_host_without_cells_has_none_and_one_that_is_not_stored_is_refused(lab):
    assert read_cells(lab, "plain") is None
    with raises_code("ProviderNotFound", match="nobody"):
        read_cells(lab, "nobody")


def test_cells_that_no_consumer_holds_anything_of():
    inventory = NUMATopologyInventory([HostCell(0, memory_mb=1), HostCell(1, memory_mb=1)])
    assert HostCells.unused("box", inventory).holders == ((), ())


def test_a_holder_is_plain_data_for_json():
    holder = CellUser("job-1", 1, (2,), (3,), 0, 4, ((2048, 5),))
    assert json.loads(json.dumps(holder.to_dict())) == {
        "consumer": "job-1",
        "vcpus": 1,
        "cpus": [2],
        "idle": [3],
        "loose": 0,
        "memory_mb": 4,
        "pages": {"2048": 5},
    }
    assert dataclasses.replace(holder, pages=()).to_dict()["pages"] == {}
