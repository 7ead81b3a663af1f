"""Cells and devices together against a naive decision that tries every set of host cells.

A few cases are checked by hand first.
"""

from __future__ import annotations

from collections import Counter

import pytest

from resource_objects.exceptions import CapacityException
from resource_objects.resources import Inventories
from resource_objects.resources.context import Context
from resource_objects.resources.numa import (
    CellUsage,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    numa,
)
from resource_objects.resources.pci import PCIAmount, PCIInventory, devices
from tests.resources.pci.hosts import gpu
from tests.support.lengths import some
from tests.support.numa_reference import has_placement
from tests.support.pci_reference import choices, has_assignment, joint_faults
from tests.support.pci_reference import fits_together as pci_reference_fits_together
from tests.support.pci_strategies import JointQuestion, joint_question_of

#: Questions made from seeds, in lots that each are a test.
LOTS, LOT = 4, 400


def fits_together(question: JointQuestion) -> bool:
    """Return the answer of the naive decision."""
    cells, topology, existing, usage, amount = question
    return pci_reference_fits_together(cells, topology, existing, usage, amount)


def judge(question: JointQuestion) -> bool:
    """Return True if both fit; the decision agrees with the naive one and its result is valid.

    A result is allocated and released.
    """
    cells, topology, existing, usage, amount = question
    host = Inventories({"NUMA_TOPOLOGY": cells, "DEVICES": question.inventory()})
    request = {"NUMA_TOPOLOGY": topology, "DEVICES": amount}
    try:
        assigned = host.fit(request)
    except CapacityException as refusal:
        assert not fits_together(question), question
        assert refusal.reasons and not host.can_provide(request)
        return False
    assert fits_together(question), question
    place, selected = assigned["NUMA_TOPOLOGY"], assigned["DEVICES"]
    assert isinstance(place, NUMATopologyAmount) and isinstance(selected, PCIAmount)
    wrong = joint_faults(cells, place, existing, usage, selected)
    assert wrong == [], question
    assert (place.unassigned(), selected.unassigned()) == (topology, amount)
    assert host.can_provide(request) and host.consume(assigned) == assigned
    assert host["DEVICES"].states()[selected.addresses[0]] == "claimed"  # type: ignore[attr-defined]
    host.consume({"NUMA_TOPOLOGY": -place, "DEVICES": -selected})
    assert host["NUMA_TOPOLOGY"] == cells
    return True


# --- the naive decision itself --------------------------------------------------------------------

#: Two cells in each of two sockets; cell 0 is full, cell 3 has two CPUs left.
CELLS = NUMATopologyInventory(
    [HostCell(i, dedicated=range(4 * i, 4 * i + 4), socket=i // 2) for i in range(4)],
    usage=[CellUsage(0, pinned=range(4)), CellUsage(3, pinned=[12, 13])],
)
GPUS = [gpu(0, numa_node=0), gpu(1, numa_node=1), gpu(2, numa_node=3), gpu(3)]


@pytest.mark.parametrize(
    ("topology", "requested", "expected"),
    [
        pytest.param(numa(dedicated=4), ("PGPU", 1, "required"), [(1,)], id="the only cell"),
        pytest.param(numa(dedicated=1), ("PGPU", 1, "required"), [(1,), (3,)], id="either"),
        pytest.param(numa(dedicated=1), ("PGPU", 2, "required"), [], id="two in one cell"),
        pytest.param(numa(2, dedicated=2), ("PGPU", 2, "required"), [(1, 3)], id="two in two"),
        pytest.param(numa(dedicated=1), ("PGPU", 2, "legacy"), [(1,), (3,)], id="nobody knows"),
        pytest.param(numa(dedicated=1), ("PGPU", 2, "socket"), [(1,)], id="in one socket"),
        pytest.param(
            numa(dedicated=1), ("PGPU", 4, "preferred"), [(1,), (2,), (3,)], id="anywhere"
        ),
        pytest.param(numa(dedicated=1), ("PGPU", 5, "preferred"), [], id="too many"),
        pytest.param(numa(dedicated=5), ("PGPU", 1, "preferred"), [], id="too many CPUs"),
    ],
)
def test_the_naive_decision_says_what_a_person_says(
    topology: NUMATopologyAmount, requested: tuple[str, int, str], expected: list[tuple[int, ...]]
) -> None:
    kind, count, affinity = requested
    amount = devices(kind, count, affinity=affinity)
    assert list(choices(CELLS, topology, GPUS, (), amount)) == expected
    assert judge(JointQuestion(CELLS, topology, tuple(GPUS), (), amount)) is bool(expected)
    within = [cell for chosen in expected[:1] for cell in chosen]
    result = choices(CELLS, topology, GPUS, (), amount, within=within)
    assert list(result) == expected[:1]


@pytest.mark.parametrize(
    ("node", "fault"), [(1, None), (3, "node 3 is not near [1] (required)")], ids=["near", "far"]
)
def test_the_naive_decision_finds_devices_that_are_far_from_the_cells(
    node: int, fault: str | None
) -> None:
    assigned = CELLS.fit(numa(dedicated=4), context=Context(allowed=[1]))
    selected = PCIInventory([gpu(numa_node=node)]).fit(devices("PGPU", affinity="required"))
    result = joint_faults(CELLS, assigned, [gpu(numa_node=node)], (), selected)
    assert result == ([] if fault is None else [f"request 0, 0000:01:00.0: {fault}"])


# --- the decision against it ----------------------------------------------------------------------


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("lot", some(range(LOTS), LOTS // 4))
def test_the_decision_over_both_agrees_with_the_naive_one(lot: int) -> None:
    seen: Counter[tuple[bool, bool, bool]] = Counter()
    for seed in range(lot * LOT, (lot + 1) * LOT):
        question = joint_question_of(seed)
        cells, topology, existing, usage, amount = question
        item = (
            has_placement(cells, topology),
            has_assignment(existing, usage, amount),
        )
        seen[(*item, judge(question))] += 1
    assert seen[True, True, True] > LOT / 5, "too hard to tell much"
    assert seen[True, True, False] > LOT / 20, "each alone fits, and not both"


@pytest.mark.law(5)
@pytest.mark.parametrize("lot", some(range(2)))
def test_of_six_cells_it_agrees_too(lot: int) -> None:
    for seed in range(lot * 100, (lot + 1) * 100):
        judge(joint_question_of(seed, max_cells=6))
