"""The loop of the specification on random rows: figures and rows move by the request."""

from __future__ import annotations

import random

import pytest

import resource_objects as ro
from resource_objects.host.compute_node import ComputeNode
from resource_objects.resources.numa import PagePool


def cells(chance: random.Random) -> ro.NUMATopologyInventory:
    result, cpu = [], 0
    for number in range(chance.choice([1, 2, 3])):
        shared, dedicated = chance.randint(1, 4), chance.choice([0, 2, 4])
        memory, huge = chance.choice([1024, 4096]), chance.choice([0, 64])
        pools = (
            PagePool(size_kib=4, total=(memory - 2 * huge) * 256),
            PagePool(size_kib=2048, total=huge),
        )
        ids = range(cpu, cpu + shared + dedicated)
        cpu += shared + dedicated
        result.append(
            ro.HostCell(
                number,
                shared=ids[:shared],
                dedicated=ids[shared:],
                memory_mb=memory,
                pages=pools if huge else (),
            )
        )
    return ro.NUMATopologyInventory(result)


def row(chance: random.Random) -> dict[str, object]:
    existing = cells(chance)
    return {
        "vcpus": sum(len(cell.shared) for cell in existing.cells),
        "vcpus_used": chance.randint(0, 2),
        "cpu_allocation_ratio": chance.choice([None, 0.0, 1.0, 4.0]),
        "memory_mb": sum(cell.memory_mb for cell in existing.cells),
        "memory_mb_used": chance.choice([0, 256]),
        "ram_allocation_ratio": chance.choice([None, 1.0, 1.5]),
        "local_gb_used": 11,
        "numa_topology": ComputeNode(numa_topology=existing).numa_topology,
        "uptime": "nobody's",
    }


def request(chance: random.Random) -> tuple[str, int, int]:
    """Return a request, with the vCPUs and the memory that it comes to."""
    count, memory = chance.choice([1, 2]), chance.choice([64, 128])
    vcpus = count * chance.randint(1, 2)
    texts = (
        f"VCPU={vcpus},MEMORY_MB={memory}",
        f"VCPU={vcpus},MEMORY_MB={memory},NUMA_TOPOLOGY={count}:shared={vcpus}:memory={memory}",
        f"NUMA_TOPOLOGY={count}:dedicated={vcpus}:memory={memory}",
        f"NUMA_TOPOLOGY={count}:shared={vcpus}:memory={memory}:page_size=2MB",
    )
    return chance.choice(texts), vcpus, memory


@pytest.mark.parametrize("seed", range(150))
def test_a_loop_moves_the_row_by_what_was_requested_and_back(seed: int) -> None:
    chance = random.Random(seed)
    node = ComputeNode.from_row(row(chance))
    first, free = node.to_row(), node.get_inventories()
    allocated = []
    for _ in range(4):
        text, vcpus, memory = request(chance)
        before, amounts = node.to_row(), ro.Request(text).resources
        if not node.inventories.can_provide(amounts):
            assert node.to_row() == before
            continue
        for resource, amount in chance.sample(list(amounts.items()), len(amounts)):
            assert node.inventories[resource].can_provide(amount), (text, resource)
            allocated.append((resource, node.inventories[resource].consume(amount)))
        after = node.to_row()
        assert after["vcpus_used"] == before["vcpus_used"] + vcpus, text
        assert after["memory_mb_used"] == before["memory_mb_used"] + memory, text
        moved = {name for name in after if after[name] != before[name]}
        assert moved <= {"vcpus_used", "memory_mb_used", "free_ram_mb", "numa_topology"}
        again = ComputeNode.from_row(after)
        assert again.to_row() == after and again.vcpus_used == node.vcpus_used
    for resource, amount in reversed(allocated):
        node.inventories[resource].consume(-amount)
    assert node.get_inventories() == free and node.to_row() == first
