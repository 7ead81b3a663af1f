"""Every host cell of a topology has the minimum that the topology needs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from resource_objects import exceptions
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    HostCell,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from tests.support.lengths import examples
from tests.support.numa_strategies import numa_questions


def free_amounts(inventory, place):
    """Return the free amounts of a cell, by its stored classes."""
    part = inventory.parts()[place].inventory
    used = inventory.usage[place]
    taken = {
        "VCPU": used.shared,
        "PCPU": len(used.pinned) + used.loose,
        "MEMORY_MB": used.memory_mb,
        **{f"CUSTOM_HUGEPAGES_{size}KB": count for size, count in used.pages},
    }
    return {
        record.resource_class: record.capacity - taken.get(record.resource_class, 0)
        for record in part.to_records()
    }


@pytest.mark.law(5)
@settings(max_examples=examples(200))
@given(numa_questions(has_room=False, serves_either_way=False))
def test_where_it_fits_there_is_at_least_so_much(question):
    inventory, amount, _ = question
    try:
        assigned = inventory.fit(amount)
    except (exceptions.CapacityException, exceptions.SearchLimitReached):
        return
    ids = inventory.part_ids()
    for guest, placed in enumerate(assigned.placed):
        free = free_amounts(inventory, ids.index(placed.cell))
        needed = NUMA_TOPOLOGY.lower_bounds(amount, tuple(free))[guest]
        assert all(free.get(name, 0) >= count for name, count in needed.items())


@pytest.mark.parametrize(
    ("page_size", "classes", "memory"),
    [
        ("", ["CUSTOM_HUGEPAGES_2048KB"], {"MEMORY_MB": 64}),
        ("small", [], {"MEMORY_MB": 64}),
        ("2MB", ["CUSTOM_HUGEPAGES_2048KB"], {"CUSTOM_HUGEPAGES_2048KB": 32}),
        ("2MB", ["CUSTOM_HUGEPAGES_1048576KB"], {"MEMORY_MB": 64}),
        ("large", ["CUSTOM_HUGEPAGES_2048KB"], {"CUSTOM_HUGEPAGES_2048KB": 32}),
        ("large", ["CUSTOM_HUGEPAGES_2048KB", "CUSTOM_HUGEPAGES_1048576KB"], {}),
        ("any", ["CUSTOM_HUGEPAGES_2048KB"], {}),
    ],
)
def test_memory_is_needed_in_pages_where_it_is_known_in_which(page_size, classes, memory):
    request = numa(shared=1, memory_mb=64, page_size=page_size)
    assert NUMA_TOPOLOGY.lower_bounds(request, ["MEMORY_MB", *classes]) == ({"VCPU": 1, **memory},)


def test_the_emulator_is_needed_with_the_first_guest_cell():
    request = numa(2, dedicated=4, emulator_policy="isolate")
    assert NUMA_TOPOLOGY.lower_bounds(request, []) == ({"PCPU": 3}, {"PCPU": 2})


def test_cells_whose_ordinary_pages_are_large_are_no_huge_pages():
    cell = HostCell(0, shared=[0], memory_mb=64, pages=[PagePool(size_kib=2048, total=32)])
    inventory = NUMATopologyInventory([cell], resource_class="NUMA_TOPOLOGY")
    classes = [record.resource_class for record in inventory.to_records()]
    request = numa(shared=1, memory_mb=64, page_size="2MB")
    assert NUMA_TOPOLOGY.lower_bounds(request, classes) == ({"VCPU": 1, "MEMORY_MB": 64},)
    assert inventory.can_provide(request)
