"""The compute node and its cells: the column, the allocations and the other columns."""

from __future__ import annotations

import copy
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host import nova_columns
from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop.nova import dump_host_numa_topology, load_host_numa_topology
from resource_objects.resources.context import Context
from resource_objects.resources.numa import (
    CellUsage,
    HostCell,
    NUMATopologyInventory,
    NUMATopologyLimit,
    PagePool,
    numa,
)
from resource_objects.testing.refusals import raises_code
from tests.host.views import pending_topologies
from tests.interop.nova import documents
from tests.support.numa_strategies import numa_questions

NUMA = "NUMA_TOPOLOGY"

#: From before Liberty: no versions, no pinning.
PLAIN = '{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 2048, "used": 512}, "cpu_usage": 1}]}'


def cell(number: int, **changes: object) -> HostCell:
    """Return a cell of four shared CPUs and two dedicated cores, a quarter of it in huge pages."""
    first = 8 * number
    facts: dict = {
        "shared": range(first, first + 4),
        "dedicated": range(first + 4, first + 8),
        "siblings": [(first + n, first + n + 2) for n in (0, 1, 4, 5)],
        "memory_mb": 8192,
        "pages": [PagePool(size_kib=4, total=1572864), PagePool(size_kib=2048, total=1024)],
        "socket": number,
    }
    return HostCell(number, **{**facts, **changes})


def cells(count: int = 2, **changes: object) -> NUMATopologyInventory:
    return NUMATopologyInventory([cell(number, **changes) for number in range(count)])


TEXT = dump_host_numa_topology(cells())
ROW = {
    "hypervisor_hostname": "node0",
    "vcpus": 8,
    "vcpus_used": 0,
    "cpu_allocation_ratio": 2.0,
    "memory_mb": 16384,
    "memory_mb_used": 512,
    "ram_allocation_ratio": 1.0,
    "numa_topology": TEXT,
}


def node(**changes: object) -> ComputeNode:
    return ComputeNode.from_row({**ROW, **changes}, reserved="MEMORY_MB=512")


def loop(compute_node: ComputeNode, request: object) -> dict:
    """Take a request as the specification does; return what was assigned."""
    taken = {}
    for resource, amount in ro.Request(request).resources.items():
        if compute_node.inventories[resource].can_provide(amount):
            taken[resource] = compute_node.inventories[resource].consume(amount)
    return taken


def usage(compute_node: ComputeNode) -> tuple[CellUsage, ...]:
    """Return the usage that the column reports."""
    return load_host_numa_topology(compute_node.numa_topology).usage


# --- reading ------------------------------------------------------------------------------------


def test_a_row_s_topology_is_an_inventory() -> None:
    result = node().inventories[NUMA]
    assert result == load_host_numa_topology(TEXT, cpu_ratio=2)
    assert result.resource_class == NUMA and isinstance(result, NUMATopologyInventory)


def test_reading_a_row_does_not_read_its_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nova_columns, "load_host_numa_topology", None)
    compute_node = node(numa_topology="what nobody can read")
    assert compute_node.to_row()["numa_topology"] == "what nobody can read"
    assert compute_node.changes() == {} and compute_node == copy.deepcopy(compute_node)
    there_and_back = ComputeNode.obj_from_primitive(compute_node.obj_to_primitive())
    assert there_and_back == compute_node


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("what nobody can read", "JSON"),
        ("{}", "cells"),
        ("[]", "an object"),
        (b"\xff", "JSON"),
        (7, "an object"),
        (True, "an object"),
        (TEXT.replace('"1.5"', '"9.0"'), "a known version"),
        (TEXT.replace('"memory": 8192', '"memory": -1'), "an integer from 0"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_column_that_cannot_be_read_is_named(raw: object, expected: str) -> None:
    compute_node = node(numa_topology=raw)
    for ask in (
        lambda: compute_node.inventories,
        compute_node.get_inventories,
        lambda: compute_node.update_inventories({NUMA: cells()}),
    ):
        with raises_code("InvalidRow", match=expected) as refusal:
            ask()
        assert refusal.value.what == "numa_topology"
    assert str(compute_node).startswith("node0: numa_topology: ")
    assert compute_node.changes() == {} and compute_node.to_row()["numa_topology"] == raw


@pytest.mark.parametrize("none", [None, "", b"", '{"cells": []}'])
def test_a_host_without_cells_has_no_topology(none: object) -> None:
    compute_node = node(numa_topology=none)
    assert list(compute_node.inventories.names()) == ["VCPU", "MEMORY_MB"]
    assert compute_node.limits == ro.Limits() and compute_node.to_row()["numa_topology"] == none
    assert compute_node.inventories[NUMA].is_empty


def test_what_is_read_once_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def load(text: str) -> NUMATopologyInventory:
        read.append(text)
        return load_host_numa_topology(text)

    monkeypatch.setattr(nova_columns, "load_host_numa_topology", load)
    text = dump_host_numa_topology(cells(physnets=["only here"]))
    item, other = node(numa_topology=text), node(numa_topology=text)
    loop(item, {NUMA: numa(shared=2, memory_mb=64)})
    assert other.inventories[NUMA].usage == (CellUsage(0), CellUsage(1)) and read == [text]


def test_the_ratios_of_the_cells_are_the_node_s() -> None:
    compute_node = node()
    result = compute_node.inventories[NUMA]
    compute_node.inventories["VCPU"].allocation_ratio = 3
    compute_node.inventories["MEMORY_MB"].allocation_ratio = "1.5"
    assert (result.cpu_ratio, result.memory_ratio) == (2, 1)  # no inventory follows another
    again = ComputeNode.from_row(compute_node.to_row()).inventories[NUMA]
    assert (again.cpu_ratio, again.memory_ratio) == (3, Decimal("1.5"))
    assert compute_node.changes() == {"cpu_allocation_ratio": 3.0, "ram_allocation_ratio": 1.5}
    assert ComputeNode.from_row(ROW, ratios="VCPU=5").inventories[NUMA].cpu_ratio == 5


def test_a_node_made_by_hand_takes_text_or_an_inventory() -> None:
    by_text = ComputeNode(vcpus=8, vcpus_used=0, numa_topology=TEXT)
    by_cells = ComputeNode(vcpus=8, vcpus_used=0, numa_topology=cells())
    assert by_text.inventories == by_cells.inventories and by_text == by_cells
    assert by_cells.changes()["numa_topology"] == TEXT
    with pytest.raises(exceptions.FieldNotSet, match="numa_topology is not set"):
        ComputeNode().numa_topology  # noqa: B018
    with pytest.raises(exceptions.InvalidInventory, match="allocated by number only"):
        ComputeNode(numa_topology=NUMATopologyInventory([cell(0)], usage=[CellUsage(0, loose=1)]))
    with raises_code("InvalidField", match="numa_topology"):
        ComputeNode(numa_topology=json.loads(TEXT))


# --- the specification's words ------------------------------------------------------------------


def test_a_topology_adds_nothing_to_the_counts() -> None:
    compute_node = node()
    taken = loop(compute_node, "VCPU=4,MEMORY_MB=4096,NUMA_TOPOLOGY=2:shared=4:memory=4096")
    assert len(taken) == 3
    assert (compute_node.vcpus_used, compute_node.memory_mb_used) == (4, 512 + 4096)
    assert usage(compute_node) == (
        CellUsage(0, shared=2, memory_mb=2048),
        CellUsage(1, shared=2, memory_mb=2048),
    )
    assert compute_node.pending == ro.Amounts("VCPU=4,MEMORY_MB=4096")
    assert pending_topologies(compute_node) == (taken[ro.resource(NUMA)],)


REQUESTS = {
    "shared": "NUMA_TOPOLOGY=2:shared=4:memory=4096",
    "dedicated": "NUMA_TOPOLOGY=1:dedicated=3:memory=512",
    "mixed": "NUMA_TOPOLOGY=1;shared=0;dedicated=1-2;memory=512",
    "isolated": "NUMA_TOPOLOGY=1:dedicated=2:memory=512:thread_policy=isolate",
    "emulator": "NUMA_TOPOLOGY=2:dedicated=4:memory=512:emulator_policy=isolate",
    "pages": "NUMA_TOPOLOGY=2:shared=2:memory=2048:page_size=2MB",
    "any": "NUMA_TOPOLOGY=1:shared=2:memory=1024:page_size=any",
    "any, ordinary": "NUMA_TOPOLOGY=1:shared=2:memory=3:page_size=any",
    "with others": "DISK_GB=3,NUMA_TOPOLOGY=1:dedicated=2",
}
#: ``{request: (CPUs and MiB that Nova counts, dedicated CPUs, ordinary MiB that were not said)}``
COUNTED = {
    "shared": (4, 4096, 0),
    "dedicated": (3, 512, 3),
    "mixed": (3, 512, 2),
    "isolated": (2, 512, 4),
    "emulator": (4, 512, 5),
    "pages": (2, 2048, 0),
    "any": (2, 1024, 0),
    "any, ordinary": (2, 3, 0),
    "with others": (2, 0, 2),
}


def amounts_of(name: str) -> ro.Amounts:
    if name == "mixed":
        guest = ro.GuestCell(shared=[0], dedicated=[1, 2], memory_mb=512)
        return ro.Amounts({NUMA: ro.NUMATopologyAmount([guest])}).with_implied_counts()
    return ro.Request(REQUESTS[name]).resources


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_columns_are_what_nova_would_write(name: str, together: bool) -> None:
    compute_node = node(local_gb=10, local_gb_used=0)
    request = amounts_of(name)
    if together:
        compute_node.inventories.consume(request)
    else:
        for resource, amount in request.items():
            compute_node.inventories[resource].consume(amount)
    cpus, memory, dedicated = COUNTED[name]
    assert (compute_node.vcpus_used, compute_node.memory_mb_used) == (cpus, 512 + memory)
    assert compute_node.inventories["PCPU"].used == dedicated
    assert sum(len(used.pinned) for used in usage(compute_node)) == dedicated


def test_what_is_taken_together_is_taken_all_or_nothing() -> None:
    compute_node = node()
    topology = numa(cells=2, shared=4, memory_mb=1024)
    with pytest.raises(ro.CapacityException, match="PCPU requested 9"):
        compute_node.inventories.consume({"PCPU": 9, NUMA: topology})
    with pytest.raises(ro.CapacityException, match="host cells"):
        compute_node.inventories.consume({"PCPU": 1, NUMA: numa(cells=3, shared=3)})
    with raises_code("InvalidAmount", match="VCPU"):
        compute_node.inventories.consume({"VCPU": 8, NUMA: topology})
    assert compute_node == node() and compute_node.inventories == node().inventories


def test_counts_of_the_host_bound_what_cells_would_give() -> None:
    compute_node = node()
    compute_node.inventories.consume("VCPU=8,MEMORY_MB=10000")
    compute_node.inventories.consume("VCPU=6")
    assert not compute_node.inventories.can_provide({NUMA: numa(shared=3)})
    assert compute_node.inventories.can_provide({NUMA: numa(shared=2, memory_mb=1024)})
    assert not compute_node.inventories.can_provide({NUMA: numa(memory_mb=2048)})
    assert compute_node.inventories.can_provide({NUMA: numa(memory_mb=2048, page_size="2MB")})


def test_idle_cpus_have_to_be_there_too() -> None:
    compute_node = node()
    compute_node.inventories["PCPU"].consume(ro.IntegerAmount(5))
    isolated = numa(dedicated=2, thread_policy="isolate")
    assert not compute_node.inventories.can_provide({NUMA: isolated})
    assert not compute_node.inventories[NUMA].can_provide(isolated)
    amounts = ro.Request({NUMA: isolated}).resources
    assert compute_node.inventories["PCPU"].consume(
        amounts[ro.resource("PCPU")]
    ) == ro.IntegerAmount(2)
    assert not compute_node.inventories[NUMA].can_provide(amounts[ro.resource(NUMA)])
    compute_node.inventories["PCPU"].consume(ro.IntegerAmount(-1))
    assert compute_node.inventories[NUMA].can_provide(amounts[ro.resource(NUMA)])
    assert not compute_node.inventories[NUMA].can_provide(
        isolated
    )  # without its counts it takes four


def test_a_cpu_is_never_given_twice() -> None:
    compute_node = node()
    taken = [loop(compute_node, {NUMA: numa(dedicated=2)})[ro.resource(NUMA)] for _ in range(4)]
    cpus = [cpu for item in taken for placed in item.placed for cpu in placed.pinned]
    assert sorted(cpus) == [4, 5, 6, 7, 12, 13, 14, 15]
    assert len(loop(compute_node, {NUMA: numa(dedicated=1)})) == 0
    with pytest.raises(ro.CapacityException, match="cpu"):
        compute_node.inventories[NUMA].consume(taken[0])


def test_a_row_that_contradicts_itself_does_not_keep_any_consumer_from_releasing() -> None:
    taken = loop(first := node(), {NUMA: numa(dedicated=2, memory_mb=512, page_size="2MB")})
    assert len(taken) == 2
    contradicting = node(numa_topology=first.numa_topology, vcpus_used=1)
    contradicting.inventories[NUMA].consume(-taken[ro.resource(NUMA)])
    assert contradicting.vcpus_used == 0 and usage(contradicting) == usage(node())


def test_idle_cpus_that_were_released_already_are_not_released_again() -> None:
    compute_node = node(vcpus_used=4)
    taken = loop(compute_node, {NUMA: numa(dedicated=2, thread_policy="isolate")})
    compute_node.inventories["PCPU"].consume(ro.IntegerAmount(-4))  # as many as there were
    with pytest.raises(ro.CapacityException, match="PCPU releases 2, only 0 used"):
        compute_node.inventories[NUMA].consume(-taken[ro.resource(NUMA)])


def test_a_topology_alone_takes_the_counts_that_go_with_it() -> None:
    single, together = node(), node()
    request = numa(cells=2, dedicated=2, shared=2, memory_mb=512)
    taken = single.inventories[NUMA].consume(request)
    together.inventories.consume({NUMA: request})
    assert single == together and single.inventories == together.inventories
    single.inventories[NUMA].consume(-taken)
    assert single == node() and single.to_row() == node().to_row()


def test_a_topology_alone_does_not_take_what_others_use() -> None:
    compute_node = node(vcpus_used=16)
    assert not compute_node.inventories[NUMA].can_provide(numa(shared=1))
    with pytest.raises(ro.CapacityException, match="VCPU requested 1, free 0"):
        compute_node.inventories[NUMA].consume(numa(shared=1))
    assert compute_node.changes() == {}


# --- limits -------------------------------------------------------------------------------------


def test_limits_per_cell_bind() -> None:
    compute_node = node()
    limit = NUMATopologyLimit(vcpus={0: 1, 1: 3}, memory_mb={1: 1024})
    request = numa(shared=3, memory_mb=1024)
    assigned = compute_node.inventories.consume({NUMA: request}, {NUMA: limit})
    assert assigned[NUMA].memory_nodes == "1"
    for ask in (compute_node.inventories[NUMA].can_provide,):
        assert not ask(numa(shared=2), limit) and ask(numa(shared=1), limit)
    limits = ro.Limits({NUMA: limit, "VCPU": 3})
    assert not compute_node.inventories.can_provide({NUMA: numa(shared=1)}, limits)
    assert compute_node.inventories.can_provide({NUMA: numa(shared=1)}, {NUMA: limit})


def test_orders_and_cells_can_be_specified_of_the_live_inventory() -> None:
    compute_node = node()
    loop(compute_node, {NUMA: numa(shared=1)})
    live = compute_node.inventories[NUMA]
    assert live.fit(numa(shared=1), context=Context(pack=True)).memory_nodes in ("0", "1")
    assert live.consume(numa(shared=1), context=Context(allowed=[0])).memory_nodes == "0"
    assert live.consume(numa(shared=1), context=Context(allowed=[0])).memory_nodes == "0"


def test_page_memory_serves_no_consumer_who_did_not_request_it() -> None:
    compute_node = node()
    memory = compute_node.inventories["MEMORY_MB"]
    assert (memory.reserved, memory.used) == (512 + 4096, 0) and compute_node.limits == ro.Limits()
    assert compute_node.reserved == ro.Amounts(MEMORY_MB=512)
    assert memory.can_provide(ro.IntegerAmount(11776))
    assert not memory.can_provide(ro.IntegerAmount(11777))
    loop(compute_node, {NUMA: numa(memory_mb=2048, page_size="2MB")})
    assert compute_node.memory_mb_used == 512 + 2048
    assert memory.can_provide(ro.IntegerAmount(11776))
    assert not memory.can_provide(ro.IntegerAmount(11777))


# --- dedicated CPUs -----------------------------------------------------------------------------


def test_dedicated_cpus_are_counted_where_cells_have_some() -> None:
    compute_node = node()
    cpus = compute_node.inventories["PCPU"]
    assert (cpus.total, cpus.used, cpus.max_unit, cpus.allocation_ratio) == (8, 0, 8, 1)
    assert "PCPU" not in node(numa_topology=None).inventories
    bare = dump_host_numa_topology(cells(dedicated=(), siblings=()))
    assert "PCPU" not in node(numa_topology=bare).inventories


def test_dedicated_cpus_are_used_vcpus_also_where_none_are_shared() -> None:
    value = NUMATopologyInventory([cell(0, shared=())])
    ours = node(vcpus=0, numa_topology=dump_host_numa_topology(value))
    before = ours.to_row()
    amounts = ro.Amounts({NUMA: numa(dedicated=2)}).with_implied_counts()
    assigned = ours.inventories.consume(amounts)
    assert (ours.vcpus, ours.vcpus_used) == (0, 2)
    ours.inventories.consume(-assigned)
    assert ours.to_row() == before


def test_how_many_dedicated_cpus_there_are_the_cells_say() -> None:
    for figure in ("total", "reserved", "allocation_ratio"):
        compute_node = node()
        compute_node.inventories["PCPU"].update(**{figure: 3})
        for write in (compute_node.changes, compute_node.to_row):
            with pytest.raises(exceptions.InvalidInventory, match=f"PCPU {figure}: got "):
                write()
    compute_node = node()
    compute_node.inventories["PCPU"].used = 3
    assert compute_node.changes() == {} and compute_node.pending == ro.Amounts(PCPU=3)


def test_cpus_taken_by_number_are_pending() -> None:
    compute_node = node()
    compute_node.inventories.consume("PCPU=3")
    assert compute_node.pending == ro.Amounts(PCPU=3)
    assert not compute_node.inventories.can_provide({NUMA: numa(cells=2, dedicated=6)})
    assert compute_node.changes() == {}  # Nova has no word for it
    compute_node.inventories.consume("PCPU=-3")
    assert compute_node == node()


# --- writing back -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"])
def test_the_column_is_written_in_the_newest_version_whichever_it_came_in(version: str) -> None:
    cell = {"id": 0, "cpuset": [0, 1, 2, 3], "memory": 2048}
    text = documents.text(documents.host(version, cell))
    compute_node = node(numa_topology=text)
    loop(compute_node, {NUMA: numa(shared=2, memory_mb=512)})
    changed = compute_node.changes()["numa_topology"]
    assert '"1.5"' in changed and changed == compute_node.numa_topology
    assert load_host_numa_topology(changed).usage == (CellUsage(0, shared=2, memory_mb=512),)
    target = {"numa_topology": text}
    compute_node.write_to(target)
    assert target["numa_topology"] == changed == compute_node.to_row()["numa_topology"]


def test_a_topology_from_before_liberty_is_read_and_written_anew() -> None:
    compute_node = node(numa_topology=PLAIN, vcpus_used=1, memory_mb_used=1024)
    assert compute_node.inventories[NUMA].usage == (CellUsage(0, shared=1, memory_mb=512),)
    assert compute_node.to_row()["numa_topology"] == PLAIN
    loop(compute_node, {NUMA: numa(dedicated=2, memory_mb=512)})
    assert '"nova_object.version": "1.5"' in compute_node.numa_topology
    assert usage(compute_node) == (CellUsage(0, shared=1, pinned=[0, 1], memory_mb=1024),)


def test_a_version_from_before_pinning_is_read_and_pinned() -> None:
    cell = {"id": 0, "cpuset": [0, 1, 2, 3], "memory": 2048}
    compute_node = node(numa_topology=documents.text(documents.host("1.0", cell)))
    loop(compute_node, {NUMA: numa(dedicated=2)})
    assert '"nova_object.version": "1.5"' in compute_node.numa_topology
    assert usage(compute_node)[0].pinned == (0, 1)


def test_distances_remain_with_the_node() -> None:
    near = NUMATopologyInventory([cell(n, distances={0: 10, 1: 20}) for n in (0, 1)])
    compute_node = node()
    compute_node.update_inventories({NUMA: near})
    assert compute_node.inventories[NUMA].cells == near.cells
    assert compute_node.numa_topology == TEXT
    back = ComputeNode.obj_from_primitive(compute_node.obj_to_primitive())
    assert back.inventories[NUMA].cells == near.cells


# --- the adapter --------------------------------------------------------------------------------


def test_update_inventories_takes_over_cells_and_usage() -> None:
    compute_node = node()
    live, cpus = compute_node.inventories[NUMA], compute_node.inventories["PCPU"]
    stated = NUMATopologyInventory(
        [cell(0, dedicated=[4, 5], siblings=())], usage=[CellUsage(0, shared=3, pinned=[5])]
    )
    assert compute_node.update_inventories({NUMA: stated}) is True
    assert (live.cells, live.usage) == (stated.cells, stated.usage)
    assert (cpus.total, cpus.used) == (2, 1) and not compute_node.pending
    assert compute_node.changes() == {"numa_topology": dump_host_numa_topology(stated)}
    assert live.consume(numa(dedicated=1)).cpuset == "4"
    assert compute_node.update_inventories({NUMA: live, "PCPU": cpus}) is False


def test_cells_can_be_stated_of_a_node_that_had_none() -> None:
    compute_node = node(numa_topology=None)
    inventories = compute_node.inventories
    assert compute_node.update_inventories({ro.resource(NUMA): cells()}) is True
    assert NUMA in inventories and inventories["PCPU"].total == 8
    assert compute_node.changes() == {"numa_topology": TEXT}


def test_stated_on_the_live_inventory_it_counts_too() -> None:
    compute_node = node()
    live = compute_node.inventories[NUMA]
    live.usage = [CellUsage(0, pinned=[4]), CellUsage(1)]
    assert usage(compute_node)[0].pinned == (4,)
    assert load_host_numa_topology(compute_node.numa_topology).usage[0].pinned == (4,)
    with pytest.raises(exceptions.InvalidInventory):
        live.usage = [CellUsage(0, pinned=[99])]
    assert live.usage[0].pinned == (4,) == usage(compute_node)[0].pinned
    live.usage = [CellUsage(0, loose=1)]
    with pytest.raises(exceptions.InvalidInventory, match="by number only"):
        compute_node.update_inventories({NUMA: live})


# --- laws ---------------------------------------------------------------------------------------


def outcome(inventories: ro.Inventories, amounts: dict, limits: object) -> object:
    """Return the assigned topology, or why there is none."""
    try:
        return inventories.consume(amounts, limits)[NUMA]
    except ro.CapacityException as refusal:
        return refusal.reasons
    except exceptions.SearchLimitReached as cut_short:
        return str(cut_short)


@given(numa_questions(), st.booleans())
def test_a_node_decides_like_its_inventories_and_its_column_follows(question, in_ledger) -> None:
    existing = question.inventory
    stated = NUMATopologyInventory(
        existing.cells, usage=[used.replace(loose=0) for used in existing.usage]
    )
    compute_node = ComputeNode(
        hypervisor_hostname="host0",
        vcpus=1000,
        vcpus_used=0,
        cpu_allocation_ratio=existing.cpu_ratio,
        memory_mb=1 << 24,
        memory_mb_used=0,
        ram_allocation_ratio=existing.memory_ratio,
        numa_topology=stated,
    )
    either_way = any(set(item.shared).intersection(item.dedicated) for item in existing.cells)
    with ro.connect("memory://") as stored:
        if in_ledger and not either_way:
            compute_node.bind(stored).save()
        compute_node.obj_reset_changes()
        before = copy.deepcopy(compute_node)
        model = ro.Inventories(compute_node.get_inventories())
        request = {NUMA: question.amount}
        limits = {} if question.limit is None else {NUMA: question.limit}
        result = outcome(compute_node.inventories, request, limits)
        assert result == outcome(model, request, limits)
        assert compute_node.inventories[NUMA] == model[NUMA]
        read = load_host_numa_topology(compute_node.numa_topology, counts_pinned=False)
        assert read.usage == model[NUMA].usage
        wire = json.loads(json.dumps(compute_node.obj_to_primitive()))
        assert ComputeNode.obj_from_primitive(wire) == compute_node
        if isinstance(result, ro.NUMATopologyAmount):
            compute_node.save() if compute_node._view else None
            back = ro.Amounts({NUMA: result.unassigned()}).with_implied_counts()
            compute_node.inventories.consume(-ro.Amounts({**dict(back.by_name()), NUMA: result}))
        compute_node.save() if compute_node._view else None
        assert compute_node.to_row() == before.to_row() and compute_node.changes() == {}
