"""Our ComputeNode's cells beside Nova's: its tracker books the same topology on the same record.

What our node decides, Nova's own ``_update_usage`` counts: it takes the assigned topology as Nova
keeps it, and the flavor's figures. Then every column says the same.
"""

from __future__ import annotations

import os
import random
import types
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import resource_objects as ro
from resource_objects.exceptions import CapacityException, SearchLimitReached
from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop.nova import (
    dump_host_numa_topology,
    dump_instance_numa_topology,
    load_host_numa_topology,
)
from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory
from tests.interop.nova import documents
from tests.support.numa_strategies import question_of

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import objects
    from nova.compute import resource_tracker
    from nova.objects import instance_numa as nova_guest
    from nova.virt import hardware

    objects.register_all()

pytestmark = pytest.mark.filterwarnings("ignore")

NUMA = "NUMA_TOPOLOGY"
UUID = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"
SEEDS = range(1200)
FOLLOWING = ("vcpus_used", "memory_mb_used", "free_ram_mb")


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    nova.conf.CONF([], project="nova", default_config_files=[])


def hosts() -> Iterator[tuple[int, NUMATopologyInventory]]:
    """Yield hosts that Nova can account for: it knows the page sizes of every cell."""
    for seed in SEEDS:
        given = question_of(seed).inventory
        if all(cell.pages for cell in given.cells):
            yield (
                seed,
                NUMATopologyInventory(
                    [documents.sayable(cell) for cell in given.cells],
                    usage=[used.replace(loose=0) for used in given.usage],
                ),
            )


def row(inventory: NUMATopologyInventory) -> dict[str, Any]:
    """Return the columns of such a host, with what instances on it use."""
    usage = inventory.usage
    pages = sum(size * count for used in usage for size, count in used.pages) // 1024
    return {
        "vcpus": sum(len(cell.shared) for cell in inventory.cells),
        "vcpus_used": sum(used.shared + len(used.pinned) for used in usage),
        "cpu_allocation_ratio": 4.0,
        "memory_mb": sum(cell.memory_mb for cell in inventory.cells),
        "memory_mb_used": sum(used.memory_mb for used in usage) + pages,
        "ram_allocation_ratio": 1.0,
        "local_gb": 10,
        "local_gb_used": 0,
        "numa_topology": dump_host_numa_topology(inventory),
    }


def nova_node(columns: dict[str, Any]) -> Any:
    return objects.ComputeNode(
        **columns, free_ram_mb=columns["memory_mb"] - columns["memory_mb_used"], free_disk_gb=10
    )


def nova_guest_of(assigned: NUMATopologyAmount, host: NUMATopologyInventory) -> Any:
    """Return an assigned topology as nova keeps it with its instance."""
    text = dump_instance_numa_topology(assigned, host=host, instance_uuid=UUID)
    with mock.patch.object(nova_guest.db, "instance_extra_update_by_uuid"):
        return objects.InstanceNUMATopology.obj_from_db_obj(None, UUID, text)


def track(node: Any, assigned: NUMATopologyAmount, sign: int = 1) -> None:
    """Let nova's tracker count an instance with such a topology."""
    host = load_host_numa_topology(node.numa_topology, counts_pinned=False)
    usage = {
        "vcpus": assigned.vcpus,  # of a flavor: the emulator's CPU is none of them
        "memory_mb": assigned.memory_mb,
        "numa_topology": nova_guest_of(assigned, host),
    }
    tracker = types.SimpleNamespace(
        compute_nodes={"node0": node}, stats={"node0": types.SimpleNamespace(num_instances=0)}
    )
    resource_tracker.ResourceTracker._update_usage(tracker, usage, "node0", sign)


def plain(asked: NUMATopologyAmount) -> NUMATopologyAmount:
    """Return an amount without what nova keeps elsewhere, or nowhere."""
    return asked.replace(physnets=frozenset(), tunneled=False, one_socket=False)


def taken(ours: ComputeNode, chance: random.Random, asked: NUMATopologyAmount) -> Any:
    """Take a topology with its counts, either way; return it assigned, None if it does not fit."""
    amounts = ro.Amounts({NUMA: asked}).with_implied_counts()
    try:
        if not ours.inventories.can_provide(amounts):
            return None
        if chance.random() < 0.5:
            return ours.inventories.consume(amounts)[NUMA]
        return {str(k): ours.inventories[k].consume(a) for k, a in amounts.items()}[NUMA]
    except SearchLimitReached:
        return None


def given_back(ours: ComputeNode, chance: random.Random, assigned: NUMATopologyAmount) -> None:
    amounts = ro.Amounts({NUMA: assigned.unassigned()}).with_implied_counts()
    back = -ro.Amounts({**dict(amounts.by_name()), NUMA: assigned})
    if chance.random() < 0.5:
        ours.inventories.consume(back)
    else:
        for resource, amount in back.items():
            ours.inventories[resource].consume(amount)


def test_nova_s_tracker_counts_what_our_node_decides() -> None:
    count = 0
    for seed, inventory in hosts():
        chance = random.Random(seed)
        columns = row(inventory)
        theirs, ours = nova_node(columns), ComputeNode.from_nova(nova_node(columns))
        placed: list[NUMATopologyAmount] = []
        for number in range(4):
            if placed and chance.random() < 0.3:
                back = placed.pop(chance.randrange(len(placed)))
                given_back(ours, chance, back)
                track(theirs, back, -1)
            else:
                asked = plain(question_of(seed + number * len(SEEDS)).amount)
                assigned = taken(ours, chance, asked)
                if assigned is None:
                    continue
                placed.append(assigned)
                track(theirs, assigned)
                count += 1
            found = load_host_numa_topology(theirs.numa_topology, counts_pinned=False)
            mine = load_host_numa_topology(ours.numa_topology, counts_pinned=False)
            assert mine.usage == found.usage == ours.inventories[NUMA].usage
            assert {c: getattr(ours, c) for c in FOLLOWING} == {
                c: getattr(theirs, c) for c in FOLLOWING
            }
        for back in placed:
            given_back(ours, chance, back)
            track(theirs, back, -1)
        assert ours.changes() == {} and ours.numa_topology == columns["numa_topology"]
    assert count > 300


def test_usage_is_what_nova_s_own_function_computes() -> None:
    count = 0
    for seed, inventory in hosts():
        asked = question_of(seed).amount
        ours = ComputeNode.from_row(row(inventory))
        assigned = taken(ours, random.Random(seed), plain(asked))
        if assigned is None:
            continue
        guest = nova_guest_of(assigned, inventory)
        host = objects.NUMATopology.obj_from_db_obj(row(inventory)["numa_topology"])
        theirs = hardware.numa_usage_from_instance_numa(host, guest)
        written = objects.NUMATopology.obj_from_db_obj(ours.numa_topology)
        for mine, cell in zip(written.cells, theirs.cells, strict=True):
            assert (mine.cpu_usage, mine.memory_usage) == (cell.cpu_usage, cell.memory_usage)
            assert mine.pinned_cpus == cell.pinned_cpus
            huge = {p.size_kb: p.used for p in mine.mempages[1:]}
            assert huge == {p.size_kb: p.used for p in cell.mempages[1:]}
        count += 1
    assert count > 100


def test_nova_s_object_is_given_the_column_as_text() -> None:
    for _, inventory in hosts():
        theirs = nova_node(row(inventory))
        theirs.obj_reset_changes()
        ours = ComputeNode.from_nova(theirs)
        try:
            ours.inventories.consume({NUMA: ro.numa(memory_mb=4)})
        except CapacityException:
            continue
        ours.write_to(theirs)
        assert theirs.obj_what_changed() == {"memory_mb_used", "free_ram_mb", "numa_topology"}
        assert ComputeNode.from_nova(theirs).inventories == ours.inventories
        return
    pytest.fail("some host has memory")


def test_a_topology_from_before_liberty_is_kept_where_nova_fails() -> None:
    plain = '{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 2048, "used": 512}}]}'
    columns = {**row(next(hosts())[1]), "memory_mb_used": 512, "vcpus_used": 0}
    ours = ComputeNode.from_row({**columns, "numa_topology": plain})
    assigned = ours.inventories.consume({NUMA: ro.numa(dedicated=2)})[NUMA]
    converted = objects.NUMATopology.from_legacy_object(plain)
    theirs = nova_node({**columns, "numa_topology": converted})
    with pytest.raises(NotImplementedError):
        track(theirs, assigned)  # pcpuset was never set
    assert objects.NUMATopology.obj_from_db_obj(ours.numa_topology).cells[0].pinned_cpus == {0, 1}
