"""The decision against a naive matcher that tries everything: both accept the same amounts.

The matcher is checked by hand on a few cases first: an oracle with the same error would prove
nothing.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from resource_objects import exceptions
from resource_objects.resources.context import Context
from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
    PlacedCell,
    numa,
)
from tests.resources.numa.hosts import KIB_2M, cored, host, paged, plain
from tests.support.lengths import examples, some
from tests.support.numa_reference import faults, has_placement, host_cells
from tests.support.numa_strategies import NUMAQuestion, numa_questions, question_of

#: Questions made from seeds, in lots that each are a test.
LOTS, LOT = 12, 500


def judge(question: NUMAQuestion) -> bool:
    """Return whether it fits; the decision and the matcher agree, and what is placed is right."""
    inventory, amount, limit = question
    try:
        assigned = inventory.fit(amount, limit)
    except exceptions.CapacityException as refusal:
        assert not has_placement(inventory, amount, limit), question
        assert refusal.reasons
        return False
    assert faults(inventory, assigned, limit) == [], question
    assert has_placement(inventory, amount, limit), question
    assert assigned.unassigned() == amount
    return True


# --- the matcher itself ---------------------------------------------------------------------------


def test_the_matcher_takes_the_best_set_of_host_cells_then_the_lowest() -> None:
    inventory = host(*(plain(i, [2 * i, 2 * i + 1]) for i in range(4)))
    request = numa(2, dedicated=4)
    assert host_cells(inventory, request, [3, 1, 2, 0]) == (1, 3)
    assert host_cells(inventory, numa(2, dedicated=6), [3, 1, 2, 0]) is None


def test_the_matcher_takes_the_closest_set_of_host_cells() -> None:
    inventory = host(*(plain(i, [2 * i, 2 * i + 1], distances=PAIRS[i]) for i in range(4)))
    request = numa(2, dedicated=4)
    assert host_cells(inventory, request, [3, 2, 1, 0]) == (1, 3)
    assert host_cells(inventory, request, [0, 1, 2, 3]) == (0, 2)


#: Cells 0 and 2 are close, and so are 1 and 3.
PAIRS = [{to: 11 if (n + to) % 2 == 0 else 21 for to in range(4) if to != n} for n in range(4)]


BUSY = host(
    cored(0, (0, 4), (1, 5), shared=[2, 6], physnets=["red"], socket=0, memory_mb=64),
    cored(1, (8, 12), (9, 13), socket=1, memory_mb=64),
    usage=[CellUsage(0, pinned=[1], shared=2, memory_mb=10)],
    room={"PCPU": 3},
)


def judged(placed: list[PlacedCell], **request: object) -> list[str]:
    """Return the faults of guest cells of one dedicated vCPU each, put so."""
    cells = [GuestCell(dedicated=[number]) for number in range(len(placed))]
    amount = NUMATopologyAmount(cells, placed=placed, **request)  # type: ignore[arg-type]
    return faults(BUSY, amount)


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        pytest.param(judged([PlacedCell(0, pins={0: 0})]), None, id="right"),
        pytest.param(judged([PlacedCell(7, pins={0: 0})]), "on host cells [7]", id="cell"),
        pytest.param(judged([PlacedCell(0, pins={0: 1})]), "CPUs [1] are not free", id="taken"),
        pytest.param(judged([PlacedCell(0, pins={0: 8})]), "CPUs [8] are not free", id="other's"),
        pytest.param(judged([PlacedCell(0, pins={0: 0}, idle=[4])]), "idle for nothing", id="idle"),
        pytest.param(
            judged([PlacedCell(0, pins={0: 0})], thread_policy="isolate"),
            "idle CPUs",
            id="not idle",
        ),
        pytest.param(
            judged([PlacedCell(0, pins={0: 5})], thread_policy="isolate"),
            "core [1, 5] is not wholly free",
            id="half a core",
        ),
        pytest.param(
            judged([PlacedCell(0, pins={0: 5})], thread_policy="require"),
            "not threads of the same cores",
            id="no sibling",
        ),
        pytest.param(
            judged(
                [PlacedCell(0, pins={0: 0}, idle=[4]), PlacedCell(1, pins={1: 8}, idle=[12])],
                thread_policy="isolate",
            ),
            "PCPU: 4, room for 3",
            id="room",
        ),
        pytest.param(
            judged([PlacedCell(1, pins={0: 8})], physnets=["red"]), "next to red", id="network"
        ),
        pytest.param(
            judged([PlacedCell(0, pins={0: 0}), PlacedCell(1, pins={1: 8})], one_socket=True),
            "sockets {0, 1}",
            id="sockets",
        ),
        pytest.param(
            judged(
                [PlacedCell(1, pins={0: 8})],
                emulator_policy="isolate",
                emulator_cpu=0,
            ),
            "CPUs [0] are not free",
            id="emulator",
        ),
    ],
)
def test_the_matcher_finds_what_is_wrong_with_a_placement(
    result: list[str], fault: str | None
) -> None:
    assert (fault is None and not result) or any(
        fault is not None and fault in item for item in result
    )


# --- the decision against it ----------------------------------------------------------------------


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("lot", some(range(LOTS), LOTS // 4))
def test_the_decision_agrees_with_the_matcher(lot: int) -> None:
    answers = [judge(question_of(seed)) for seed in range(lot * LOT, (lot + 1) * LOT)]
    assert 0.15 < sum(answers) / LOT < 0.85, "too easy or too hard to tell much"


@pytest.mark.law(5, 6)
@settings(max_examples=examples(300))
@given(numa_questions())
def test_the_decision_agrees_with_the_matcher_on_small_examples(question: NUMAQuestion) -> None:
    judge(question)


def ranked(inventory: NUMATopologyInventory, dedicated: bool, is_packed: bool) -> list[int]:
    """Return the ids of host cells, the one with the most free first, or last."""

    def free(place: int) -> tuple[int, int]:
        cell, used = inventory.cells[place], inventory.usage[place]
        unpinned = set(cell.dedicated) - set(used.pinned)
        shared = len(set(cell.shared) - set(used.pinned))
        capacity = int(shared * inventory.cpu_ratio) - used.shared
        huge = sum(
            (pool.total - pool.reserved - dict(used.pages).get(pool.size_kib, 0)) * pool.size_kib
            for pool in cell.huge_pages
        )
        memory = cell.ordinary_mb - used.memory_mb + huge // 1024
        return len(unpinned) - used.loose if dedicated else capacity, memory

    sign = 1 if is_packed else -1
    keys = {
        cell.id: (*(sign * figure for figure in free(place)), cell.id)
        for place, cell in enumerate(inventory.cells)
    }
    return sorted(keys, key=keys.__getitem__)


@pytest.mark.law(9)
@pytest.mark.parametrize("pack", [False, True], ids=["spread", "pack"])
@pytest.mark.parametrize("lot", some(range(4)))
def test_the_best_host_cells_by_the_order_are_taken(lot: int, pack: bool) -> None:
    fitted = 0
    for seed in range(lot * LOT, (lot + 1) * LOT):
        inventory, amount, limit = question_of(seed)
        amount = amount.replace(one_socket=False, physnets=(), tunneled=False)
        inventory.update(room=None)
        dedicated = "PCPU" in amount.placed_counts
        ranking = ranked(inventory, dedicated, pack)
        expected = host_cells(inventory, amount, ranking, limit)
        if expected is not None:
            fitted += 1
            assigned = inventory.fit(amount, limit, Context(pack=pack))
            assert tuple(placed.cell for placed in assigned.placed) == expected, seed
    assert fitted > LOT / 10


@pytest.mark.law(5)
@pytest.mark.parametrize("lot", some(range(2)))
def test_within_some_host_cells_it_agrees_with_the_matcher(lot: int) -> None:
    for seed in range(lot * LOT, (lot + 1) * LOT):
        inventory, amount, limit = question_of(seed)
        within = [cell.id for cell in inventory.cells][seed % 2 :]
        expected = has_placement(inventory, amount, limit, within)
        try:
            assigned = inventory.fit(amount, limit, context=Context(allowed=within))
        except exceptions.CapacityException:
            assert not expected, seed
        else:
            assert faults(inventory, assigned, limit, within) == [], seed


def test_where_the_room_of_the_host_decides_cells_and_pages_together() -> None:
    """Cell 0 leaves fewer CPUs empty, cell 1 takes no ordinary memory: each alone is too much."""
    cells = [
        paged(0, 64, dedicated=[0, 1]),
        paged(1, 64, (KIB_2M, 1), dedicated=[2, 3], siblings=[(2, 3)]),
        paged(2, 64, (KIB_2M, 1), dedicated=[4, 5, 6], siblings=[(4, 5, 6)]),
    ]
    request = numa(2, dedicated=2, memory_mb=4, page_size="any", thread_policy="isolate")
    roomy = host(*cells, room={"PCPU": 3, "MEMORY_MB": 2})
    assert sorted(placed.cell for placed in roomy.fit(request).placed) == [0, 1]
    for room in ({"PCPU": 2, "MEMORY_MB": 2}, {"PCPU": 4, "MEMORY_MB": 0}):
        short = host(*cells, room=room)
        assert not has_placement(short, request)
        assert not short.can_provide(request)


def test_a_limit_is_requested_of_the_matcher_too() -> None:
    inventory = host(HostCell(0, shared=range(4)), usage=[CellUsage(0, shared=1)])
    request = numa(shared=2)
    for bound, expected in [(3, True), (2, False)]:
        limit = NUMATopologyLimit(vcpus={0: bound})
        assert has_placement(inventory, request, limit) is expected
        assert inventory.can_provide(request, limit) is expected
