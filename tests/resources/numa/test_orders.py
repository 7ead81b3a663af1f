"""The preferred host cells: by free counts, and by devices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.resources.context import ANYWHERE, Context
from resource_objects.resources.numa import CellUsage, NUMATopologyInventory, numa
from tests.resources.lamps import Anywhere
from tests.resources.numa.hosts import host, on, plain
from tests.support.numa_strategies import NUMAQuestion, numa_questions


def four(*used: int) -> NUMATopologyInventory:
    """Return four cells of four CPUs, some of which are used."""
    cells = [plain(i, range(4 * i, 4 * i + 4)) for i in range(4)]
    usage = [
        CellUsage(i, pinned=range(4 * i, 4 * i + count)) for i, count in enumerate(used) if count
    ]
    return host(*cells, usage=usage)


SPREAD, PACK = ANYWHERE, Context(pack=True)


# --- devices --------------------------------------------------------------------------------------


def test_cells_with_devices_come_first_for_requests_for_devices() -> None:
    inventory = four(0, 0, 2, 3)
    context = Context(near=(Anywhere({2: 1, 3: 4}),))
    assert on(inventory.fit(numa(dedicated=1), context=context)) == [3]
    assert on(inventory.fit(numa(dedicated=2), context=context)) == [2]
    assert on(inventory.fit(numa(dedicated=4), context=context)) == [0]


def test_cells_with_devices_come_last_for_all_others() -> None:
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
    for item in (SPREAD, context):
        try:
            inventory.fit(amount, limit, item)
        except exceptions.CapacityException:
            answers.add(False)
        else:
            answers.add(True)
    assert len(answers) == 1
