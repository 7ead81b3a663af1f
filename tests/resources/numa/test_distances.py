"""Which host cells a topology is on where the firmware reports distances between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.context import Context
from resource_objects.resources.distances import distance_table, sets_by_distance
from resource_objects.resources.numa import GuestCell, HostCell, NUMATopologyInventory, numa
from resource_objects.resources.pci import Device, PCIInventory, devices
from resource_objects.resources.placed import fit_together
from tests.resources.numa.hosts import KIB_2M, host, paged

#: Cells 0 and 2 are close, and so are 1 and 3.
PAIRS = [{to: 11 if (n + to) % 2 == 0 else 21 for to in range(4) if to != n} for n in range(4)]
#: Sockets of two cells each: 0 and 1, 2 and 3.
SOCKETS = [{to: 12 if n // 2 == to // 2 else 20 for to in range(4) if to != n} for n in range(4)]


def cells(distances: Sequence[Mapping[int, int]], **facts: Any) -> NUMATopologyInventory:
    """Return a host of cells with 4 shared and 4 dedicated CPUs each."""
    return host(
        *(
            HostCell(
                n,
                shared=range(8 * n, 8 * n + 4),
                dedicated=range(8 * n + 4, 8 * n + 8),
                memory_mb=1024,
                distances=apart,
                **{name: value[n] for name, value in facts.items()},
            )
            for n, apart in enumerate(distances)
        )
    )


@pytest.mark.parametrize("kind", ["shared", "dedicated"])
def test_guest_cells_are_on_the_closest_host_cells(kind: str) -> None:
    inventory = cells(PAIRS)
    request = numa(2, **{kind: 6})
    assert inventory.fit(request).host_cells == {0, 2}
    inventory.consume(numa(1, **{kind: 2}))  # of cell 0, which is the last now
    assert inventory.consume(request).host_cells == {1, 3}
    assert inventory.fit(numa(2, **{kind: 2})).host_cells == {0, 2}


def test_equal_distances_change_nothing() -> None:
    equal = [{to: 21 for to in range(4) if to != n} for n in range(4)]
    for distances in (equal, [{}, {}, {}, {}], [{0: 10}, {1: 10}, {2: 10}, {3: 10}]):
        inventory = cells(distances)
        inventory.consume(numa(1, dedicated=2))
        assert inventory.fit(numa(2, dedicated=4)).host_cells == {1, 2}
        assert inventory.fit(numa(2, dedicated=4), None, Context(pack=True)).host_cells == {0, 1}


def test_a_distance_in_one_direction_is_valid_for_both() -> None:
    inventory = cells([{1: 21, 2: 21}, {2: 21}, {}, {0: 11, 1: 21, 2: 21}])
    assert inventory.fit(numa(2, dedicated=2)).host_cells == {0, 3}


def test_unknown_distances_are_the_farthest() -> None:
    inventory = cells([{}, {}, {3: 250}, {}])
    assert inventory.fit(numa(2, dedicated=2)).host_cells == {2, 3}


def test_only_cells_that_may_be_used_count() -> None:
    inventory = cells(PAIRS)
    for allowed in ([1, 2, 3], [0, 1, 3]):
        found = inventory.fit(numa(2, dedicated=2), None, Context(allowed=allowed))
        assert found.host_cells == {1, 3}


def test_one_socket_and_networks_are_met_by_the_closest_cells() -> None:
    inventory = cells(PAIRS, socket=[0, 0, 1, 1])
    assert inventory.fit(numa(2, dedicated=2, one_socket=True)).host_cells == {0, 1}
    inventory = cells(PAIRS, physnets=[[], [], [], ["red"]])
    assert inventory.fit(numa(2, dedicated=2, physnets=["red"])).host_cells == {1, 3}


def test_a_device_that_has_to_be_near_is_at_one_of_the_closest_cells() -> None:
    card = Device("0000:03:00.0", "10de", "2330", resource_class="PGPU", numa_node=3)
    inventories = {"NUMA_TOPOLOGY": cells(PAIRS), "DEVICES": PCIInventory([card])}
    request = {"NUMA_TOPOLOGY": numa(2, dedicated=2), "DEVICES": devices("PGPU")}
    found = fit_together(request, inventories)
    assert found["NUMA_TOPOLOGY"].host_cells == {1, 3}


def test_of_placements_that_draw_least_the_closest_is_used() -> None:
    """Cells 1, 2 and 3 have huge pages, so a placement there draws no ordinary memory."""
    pages = [[], *([(KIB_2M, 64)] for _ in range(3))]
    inventory = host(
        *(
            paged(
                n, 1024 if n else 4096, *pages[n], dedicated=[2 * n, 2 * n + 1], distances=PAIRS[n]
            )
            for n in range(4)
        )
    )
    assert inventory.fit(numa(2, dedicated=2, memory_mb=64)).host_cells == {0, 2}
    request = numa(2, dedicated=2, memory_mb=64, page_size="any")
    assert inventory.fit(request).host_cells == {1, 3}


def test_a_guest_cell_without_cpus_is_on_the_closest_cell() -> None:
    memory_only = [{1: 32, 2: 40, 3: 15}, {0: 32, 2: 15, 3: 40}, {}, {}]
    inventory = host(
        *(
            HostCell(
                n,
                dedicated=range(4 * n, 4 * n + 4) if n < 2 else (),
                memory_mb=64 if n < 2 else 4096,
                distances=memory_only[n],
            )
            for n in range(4)
        ),
    )
    request = numa([GuestCell(dedicated=[0], memory_mb=32), GuestCell(memory_mb=2048)])
    assert [one.cell for one in inventory.consume(request).placed] == [0, 3]


def test_the_host_cells_do_not_depend_on_the_order_of_the_cells() -> None:
    forward = cells(SOCKETS)
    backward = host(*reversed(forward.cells))
    for request in (numa(2, dedicated=2), numa(3, shared=3)):
        assert forward.fit(request) == backward.fit(request)


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


def test_a_placement_stays_if_the_search_for_a_closer_one_is_cut_short() -> None:
    context = Context(near=(_Undecided(),))
    assert cells(PAIRS).fit(numa(2, shared=6), None, context).host_cells == {0, 1}
