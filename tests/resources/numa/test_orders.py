"""Which host cells are taken first: by what is free, by who is there, by distance, by devices."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.resources.numa import (
    FEWEST,
    NEAREST,
    PACK,
    SPREAD,
    CellUsage,
    HostCell,
    NUMATopologyInventory,
    Order,
    numa,
)
from resource_objects.testing import numa_reference
from resource_objects.testing.numa_strategies import NUMAQuestion, numa_questions, question_of
from tests.resources.numa.hosts import KIB_2M, host, on, paged, plain


def four(*used: int) -> NUMATopologyInventory:
    """Return four cells of four CPUs, some of which are used."""
    cells = [plain(i, range(4 * i, 4 * i + 4)) for i in range(4)]
    usage = [
        CellUsage(i, pinned=range(4 * i, 4 * i + count)) for i, count in enumerate(used) if count
    ]
    return host(*cells, usage=usage)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param(SPREAD, [0, 3, 2, 1], id="spread: the most free first"),
        pytest.param(PACK, [1, 2, 0, 3], id="pack: the least free first"),
        pytest.param(FEWEST, [1, 2, 0, 3], id="fewest: those in use first"),
    ],
)
def test_cells_are_taken_in_order(order: Order, expected: list[int]) -> None:
    """Of cells with 4, 2, 3 and 4 free CPUs, equal ones by id."""
    inventory, allowed = four(0, 2, 1, 0), [0, 1, 2, 3]
    found = []
    while allowed:
        (cell,) = on(inventory.fit(numa(dedicated=1), order=order, within=allowed))
        found.append(cell)
        allowed.remove(cell)
    assert found == expected


def test_spread_goes_round_and_pack_fills_up() -> None:
    spread, pack = four(), four()
    taken = [on(spread.consume(numa(dedicated=1), order=SPREAD))[0] for _ in range(8)]
    assert taken == [0, 1, 2, 3, 0, 1, 2, 3]
    taken = [on(pack.consume(numa(dedicated=1), order=PACK))[0] for _ in range(8)]
    assert taken == [0, 0, 0, 0, 1, 1, 1, 1]


def test_pack_passes_over_cells_that_will_not_do() -> None:
    inventory = four(0, 3, 2, 0)
    assert on(inventory.fit(numa(dedicated=2), order=PACK)) == [2]
    assert on(inventory.fit(numa(dedicated=3), order=PACK)) == [0]


def test_fewest_opens_no_cell_while_one_in_use_will_do() -> None:
    inventory = four(0, 0, 1, 0)
    taken = [on(inventory.consume(numa(dedicated=1), order=FEWEST))[0] for _ in range(5)]
    assert taken == [2, 2, 2, 0, 0]
    assert on(four(0, 1).fit(numa(2, dedicated=2), order=FEWEST)) == [0, 1]
    assert on(four(0, 1).fit(numa(2, dedicated=2), order=SPREAD)) == [0, 2]


def test_a_cell_is_in_use_whatever_is_used_of_it() -> None:
    cells = [paged(i, 64, (KIB_2M, 4), shared=[i]) for i in range(2)]
    for usage in (
        CellUsage(1, shared=1),
        CellUsage(1, memory_mb=1),
        CellUsage(1, pages={KIB_2M: 1}),
    ):
        inventory = host(*cells, usage=[usage], cpu_ratio=4)
        assert on(inventory.fit(numa(shared=1), order=FEWEST)) == [1]


def test_what_is_free_is_counted_in_what_is_asked_for() -> None:
    """Dedicated CPUs where there are dedicated vCPUs, shared ones else; then memory of any kind."""
    inventory = host(
        HostCell(0, shared=[0, 1, 2], dedicated=[3], memory_mb=64),
        HostCell(1, shared=[4], dedicated=[5, 6], memory_mb=64),
        paged(2, 64, (KIB_2M, 1), shared=[7], dedicated=[8, 9]),
    )
    assert on(inventory.fit(numa(shared=1))) == [0]
    assert on(inventory.fit(numa(dedicated=1))) == [2]
    assert on(inventory.fit(numa(shared=1, dedicated=1))) == [2]
    assert on(inventory.fit(numa(dedicated=1), within=[0, 1])) == [1]
    assert on(inventory.fit(numa(memory_mb=64))) == [0]


# --- distances ------------------------------------------------------------------------------------


def ring(*sizes: int) -> NUMATopologyInventory:
    """Return cells in a ring: neighbours are at 16, others at 22."""
    count = len(sizes)
    numbers = itertools.count()
    cells = []
    for i, size in enumerate(sizes):
        apart = {j: min((i - j) % count, (j - i) % count) for j in range(count)}
        far = {j: 10 if not steps else 16 if steps == 1 else 22 for j, steps in apart.items()}
        cells.append(plain(i, [next(numbers) for _ in range(size)], distances=far))
    return host(*cells)


def test_nearest_takes_neighbours() -> None:
    """Spread takes cells 0 and 2, with the most free; they are not next to each other."""
    inventory = ring(4, 3, 4, 2)
    asked = numa(2, dedicated=2)
    assert on(inventory.fit(asked, order=SPREAD)) == [0, 2]
    assert on(inventory.fit(asked, order=NEAREST)) == [0, 1]
    assert on(inventory.fit(numa(3, dedicated=3), order=NEAREST)) == [0, 1, 3]


def test_nearest_leaves_a_cell_out_whose_neighbours_will_not_do() -> None:
    inventory = ring(4, 1, 4, 4, 4, 1)
    asked = numa(2, dedicated=4)
    assert on(inventory.fit(asked, order=NEAREST)) == [2, 3]


def test_without_distances_nearest_is_as_spread() -> None:
    inventory = four(0, 2, 1, 0)
    asked = numa(2, dedicated=2)
    assert inventory.fit(asked, order=NEAREST) == inventory.fit(asked, order=SPREAD)


def test_two_guest_cells_are_as_near_as_any_two_can_be() -> None:
    """Where it is as far there as back. For more guest cells it is an order and no optimum."""
    judged = 0
    for seed in range(1500):
        inventory, amount, limit = question_of(seed, max_guests=2)
        ids = [cell.id for cell in inventory.cells]
        far = {(i, j): [20, 21, 32][(i * j + i + j) % 3] for i in ids for j in ids}
        inventory.update(
            cells=[
                cell.replace(distances={j: far[cell.id, j] for j in ids})
                for cell in inventory.cells
            ],
            room=None,
        )
        amount = amount.replace(physnets=(), tunneled=False, one_socket=False)
        pairs = [
            pair
            for pair in itertools.combinations(ids, len(amount.cells))
            if len(pair) == 2 and numa_reference.has_placement(inventory, amount, limit, pair)
        ]
        if pairs:
            found = on(inventory.fit(amount, limit, order=NEAREST))
            assert far[found[0], found[1]] == min(far[pair] for pair in pairs), seed
            judged += 1
    assert judged > 50


# --- devices --------------------------------------------------------------------------------------


def test_cells_with_devices_come_first_for_who_asks_for_devices() -> None:
    inventory = four(0, 0, 2, 3)
    order = SPREAD.to_devices({2: 1, 3: 4})
    assert on(inventory.fit(numa(dedicated=1), order=order)) == [3]
    assert on(inventory.fit(numa(dedicated=2), order=order)) == [2]
    assert on(inventory.fit(numa(dedicated=4), order=order)) == [0]


def test_cells_with_devices_come_last_for_everybody_else() -> None:
    inventory = four(0, 0, 2, 3)
    order = SPREAD.off_devices({0: 2, 1: 1})
    assert on(inventory.fit(numa(dedicated=1), order=order)) == [2]
    assert on(inventory.fit(numa(dedicated=4), order=order)) == [1]
    assert on(inventory.fit(numa(dedicated=1), order=PACK.off_devices({3: 1}))) == [2]


@given(numa_questions(), st.sampled_from([SPREAD, PACK, FEWEST, NEAREST]), st.booleans())
def test_an_order_never_decides_whether_it_fits(
    question: NUMAQuestion, order: Order, wants_devices: bool
) -> None:
    inventory, amount, limit = question
    devices = {cell.id: cell.id for cell in inventory.cells}
    order = order.to_devices(devices) if wants_devices else order.off_devices(devices)
    answers = set()
    for one in (SPREAD, order):
        try:
            inventory.fit(amount, limit, order=one)
        except exceptions.CapacityException:
            answers.add(False)
        else:
            answers.add(True)
    assert len(answers) == 1
    assert order.ranking_hint.startswith(order.strategy)
