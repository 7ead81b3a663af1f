"""Which host cells a topology is on where the firmware reports distances between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.context import Context
from resource_objects.resources.distances import distance_table, sets_by_distance
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
from resource_objects.resources.pci import Device, PCIInventory, devices
from resource_objects.resources.placed import fit_together
from tests.resources.numa.hosts import host

#: Cells 0 and 2 are close, and so are 1 and 3.
PAIRS = [{to: 11 if (n + to) % 2 == 0 else 21 for to in range(4) if to != n} for n in range(4)]


def cells(distances: Sequence[Mapping[int, int]], **facts: Any) -> NUMATopologyInventory:
    """Return a host of cells with 4 shared and 4 dedicated CPUs each."""
    return host(
        *(
            HostCell(
                n,
                shared=range(8 * n, 8 * n + 4),
                dedicated=range(8 * n + 4, 8 * n + 8),
                memory_mb=1024,
                distances=distance,
                **{name: value[n] for name, value in facts.items()},
            )
            for n, distance in enumerate(distances)
        )
    )


def test_a_device_that_has_to_be_near_is_at_one_of_the_closest_cells() -> None:
    card = Device("0000:03:00.0", "10de", "2330", resource_class="PGPU", numa_node=3)
    inventories = {"NUMA_TOPOLOGY": cells(PAIRS), "DEVICES": PCIInventory([card])}
    request = {"NUMA_TOPOLOGY": numa(2, dedicated=2), "DEVICES": devices("PGPU")}
    result = fit_together(request, inventories)
    assert result["NUMA_TOPOLOGY"].host_cells == {1, 3}


def test_sets_are_sorted_once_for_a_table_and_not_where_there_are_too_many() -> None:
    table = distance_table(range(4), dict(enumerate(PAIRS)))
    assert table is not None
    assert sets_by_distance(table, 2) is sets_by_distance(table, 2)
    assert [len(sets) for _, sets in sets_by_distance(table, 2)] == [2, 4]
    many = distance_table(range(40), {0: {1: 11}})
    assert many is not None
    assert sets_by_distance(many, 20) == ()


class _Undecided:
    """A constraint that cells 0 and 1 meet; its budget ends at any other cells."""

    counts: Mapping[int, int] = {0: 1, 1: 1}

    def is_met(self, cells: Collection[int]) -> bool:
        if set(cells) != {0, 1}:
            raise SearchLimitReached(1)
        return True

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        return frozenset({0, 1}.difference(cells))

    def symmetry_key(self, cell: int) -> int:
        return cell


def test_a_placement_remains_if_the_search_for_a_closer_one_is_cut_short() -> None:
    context = Context(near=(_Undecided(),))
    assert cells(PAIRS).fit(numa(2, shared=6), None, context).host_cells == {0, 1}
