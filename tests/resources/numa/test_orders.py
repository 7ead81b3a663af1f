"""Which host cells are taken first: by what is free, and by devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.resources.context import ANYWHERE, Context
from resource_objects.resources.numa import CellUsage, HostCell, NUMATopologyInventory, numa
from tests.resources.lamps import Anywhere
from tests.resources.numa.hosts import KIB_2M, host, on, paged, plain
from tests.support.numa_strategies import NUMAQuestion, numa_questions


def four(*used: int) -> NUMATopologyInventory:
    """Return four cells of four CPUs, some of which are used."""
    cells = [plain(i, range(4 * i, 4 * i + 4)) for i in range(4)]
    usage = [
        CellUsage(i, pinned=range(4 * i, 4 * i + count)) for i, count in enumerate(used) if count
    ]
    return host(*cells, usage=usage)


SPREAD, PACK = ANYWHERE, Context(pack=True)


@pytest.mark.parametrize(
    ("pack", "expected"),
    [
        pytest.param(False, [0, 3, 2, 1], id="spread: the most free first"),
        pytest.param(True, [1, 2, 0, 3], id="pack: the least free first"),
    ],
)
def test_cells_are_taken_in_order(pack: bool, expected: list[int]) -> None:
    """Of cells with 4, 2, 3 and 4 free CPUs, equal ones by id."""
    inventory, allowed = four(0, 2, 1, 0), [0, 1, 2, 3]
    found = []
    while allowed:
        context = Context(allowed=allowed, pack=pack)
        (cell,) = on(inventory.fit(numa(dedicated=1), context=context))
        found.append(cell)
        allowed.remove(cell)
    assert found == expected


def test_spread_goes_round_and_pack_fills_up() -> None:
    spread, pack = four(), four()
    taken = [on(spread.consume(numa(dedicated=1)))[0] for _ in range(8)]
    assert taken == [0, 1, 2, 3, 0, 1, 2, 3]
    taken = [on(pack.consume(numa(dedicated=1), context=PACK))[0] for _ in range(8)]
    assert taken == [0, 0, 0, 0, 1, 1, 1, 1]


def test_pack_passes_over_cells_that_will_not_do() -> None:
    inventory = four(0, 3, 2, 0)
    assert on(inventory.fit(numa(dedicated=2), context=PACK)) == [2]
    assert on(inventory.fit(numa(dedicated=3), context=PACK)) == [0]


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
    assert on(inventory.fit(numa(dedicated=1), context=Context(allowed=[0, 1]))) == [1]
    assert on(inventory.fit(numa(memory_mb=64))) == [0]


# --- devices --------------------------------------------------------------------------------------


def test_cells_with_devices_come_first_for_who_asks_for_devices() -> None:
    inventory = four(0, 0, 2, 3)
    context = Context(near=(Anywhere({2: 1, 3: 4}),))
    assert on(inventory.fit(numa(dedicated=1), context=context)) == [3]
    assert on(inventory.fit(numa(dedicated=2), context=context)) == [2]
    assert on(inventory.fit(numa(dedicated=4), context=context)) == [0]


def test_cells_with_devices_come_last_for_everybody_else() -> None:
    inventory = four(0, 0, 2, 3)
    context = Context(spare={0: 2, 1: 1})
    assert on(inventory.fit(numa(dedicated=1), context=context)) == [2]
    assert on(inventory.fit(numa(dedicated=4), context=context)) == [1]
    context = Context(spare={3: 1}, pack=True)
    assert on(inventory.fit(numa(dedicated=1), context=context)) == [2]


@given(numa_questions(), st.booleans(), st.booleans())
def test_an_order_never_decides_whether_it_fits(
    question: NUMAQuestion, pack: bool, wants_devices: bool
) -> None:
    inventory, amount, limit = question
    devices = {cell.id: cell.id for cell in inventory.cells}
    context = Context(spare=devices, pack=pack)
    if wants_devices:
        context = Context(near=(Anywhere(devices),), pack=pack)
    answers = set()
    for one in (SPREAD, context):
        try:
            inventory.fit(amount, limit, one)
        except exceptions.CapacityException:
            answers.add(False)
        else:
            answers.add(True)
    assert len(answers) == 1
