"""Host cells and devices decided together: nova's search and ours, on seeded random small hosts.

Guest cells are equal, and no two CPUs share a core: on these nova and we agree cell by cell
(:mod:`tests.peers.nova.test_numa_search` has the rest). What is answered is held to the rules of
devices (:mod:`~tests.peers.nova.pci_rules`), asked for each choice of host cells.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import random
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import pytest

import resource_objects as ro
from benchmarks import nova_objects
from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Rule
from resource_objects.resources.numa import (
    CellUsage,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec, PCIAmount
from tests.peers.nova import pci_chances, pci_differences
from tests.peers.nova.pci_deviations import OURS, SCHEDULER, Deviation
from tests.peers.nova.pci_rules import answer
from tests.peers.nova.pci_sides import NO, YES, Case, nova_mapping

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def ready() -> Iterator[None]:
    """Let nova read no configuration file, and not say what it drops."""
    nova_objects.nova()
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@dataclasses.dataclass(frozen=True)
class Joint:
    """Host cells of some free CPUs each, guest cells that are equal, and devices."""

    case: Case  #: of which no host cells are chosen
    free: dict[int, int]  #: dedicated CPUs by host cell
    guests: int
    vcpus: int  #: of each guest cell

    def host(self) -> NUMATopologyInventory:
        """Return our host cells, of 4 CPUs each."""
        return NUMATopologyInventory(
            [
                HostCell(
                    cell,
                    dedicated=range(4 * cell, 4 * cell + 4),
                    siblings=[(cpu,) for cpu in range(4 * cell, 4 * cell + 4)],
                    memory_mb=64,
                    pages=[PagePool(size_kib=4, total=64 * 256)],
                    socket=self.case.sockets[cell],
                )
                for cell in self.free
            ],
            usage=[
                CellUsage(cell, pinned=range(4 * cell, 4 * cell + 4 - count))
                for cell, count in self.free.items()
            ],
        )

    def topology(self) -> NUMATopologyAmount:
        """Return our guest cells."""
        return numa(cells=self.guests, dedicated=self.guests * self.vcpus)

    def nova_finds(self) -> Any:
        """Return nova's guest cells as it places them, None for no."""
        _, hardware = nova_objects.nova()
        host = nova_objects.host(self.host())
        stats = self.case.nova_scheduler()
        stats.numa_topology = host
        return hardware.numa_fit_instance_to_host(
            host,
            nova_objects.request(self.topology()),
            nova_mapping(self.case.requests),
            nova_objects.limits(),
            self.case.nova_requests(),
            stats,
        )

    def inventories(self) -> ro.Inventories:
        """Return what our host has."""
        inventories = {"NUMA_TOPOLOGY": self.host(), "DEVICES": self.case.inventory()}
        return ro.Inventories(inventories)

    def amounts(self) -> ro.Amounts:
        """Return all that is asked of it."""
        return ro.Amounts({"NUMA_TOPOLOGY": self.topology(), "DEVICES": self.case.amount()})

    def we_find(self) -> ro.Amounts | None:
        """Return our assigned amounts, None for no."""
        try:
            return self.inventories().fit(self.amounts())
        except CapacityException:
            return None

    def choices(self) -> Iterator[tuple[int, ...]]:
        """Yield the host cells on which the guest cells fit."""
        able = [cell for cell, count in self.free.items() if count >= self.vcpus]
        return itertools.combinations(able, self.guests)

    def answer(self, does: Collection[Deviation]) -> str:
        """Return whether there are host cells for both, by the rules with some deviations."""
        chosen = (dataclasses.replace(self.case, chosen=cells) for cells in self.choices())
        return YES if any(answer(case, does) == YES for case in chosen) else NO

    def told_by(self) -> tuple[Deviation, ...]:
        """Return the fewest deviations that make our answer nova's."""
        theirs = self.answer(SCHEDULER)
        ordered = [one for one in Deviation if one in SCHEDULER]
        for count in range(len(ordered) + 1):
            for some in itertools.combinations(ordered, count):
                if self.answer(some) == theirs:
                    return some
        raise AssertionError("all of them together are nova's")


def joint(number: int) -> Joint:
    """Return the question of a number."""
    chance = random.Random(number)
    sockets = pci_chances.cells(chance)
    case = pci_chances.case_on(chance, sockets)
    free = {cell: chance.choice([1, 2, 4, 4]) for cell in sockets}
    guests = chance.randint(1, len(sockets))
    return Joint(case, free, guests, chance.choice([1, 1, 2, 3]))


def test_every_difference_is_one_of_the_devices_and_has_a_name() -> None:
    counts: Counter[str] = Counter()
    for number in range(pci_differences.JOINTS):
        question = joint(number)
        theirs = NO if question.nova_finds() is None else YES
        ours = NO if question.we_find() is None else YES
        assert ours == question.answer(OURS), number
        assert theirs == question.answer(SCHEDULER), number
        if ours != theirs:
            counts.update(one.name for one in question.told_by())
    assert counts == pci_differences.TOGETHER


def test_what_we_find_nova_supports_on_these_cells() -> None:
    """Unless it is a deviation of nova's that keeps it from it: asked for our host cells alone."""
    for number in range(pci_differences.JOINTS):
        question = joint(number)
        found = question.we_find()
        if found is None:
            continue
        cells = tuple(sorted(found["NUMA_TOPOLOGY"].host_cells))
        assert cells in [*question.choices()]
        case = dataclasses.replace(question.case, chosen=cells)
        assert case.nova_supports(case.nova_scheduler()) == answer(case, SCHEDULER)


# --- which host cells -----------------------------------------------------------------------------

ANY = DeviceSpec(vendor_id="10de")


def lab(nodes: Collection[int | None], product: str = "1db4") -> tuple[Device, ...]:
    """Return a GPU next to each of some cells."""
    return tuple(
        Device(f"0000:{number:02x}:00.0", "10de", product, numa_node=node)
        for number, node in enumerate(nodes, 1)
    )


def on_four_cells(devices: tuple[Device, ...], *requests: DeviceRequest, guests: int = 1) -> Joint:
    """Return guest cells that fit anywhere on four host cells, two to a socket."""
    case = Case(devices, requests, None, {0: 0, 1: 0, 2: 1, 3: 1})
    return Joint(case, dict.fromkeys(range(4), 4), guests, 1)


@pytest.mark.parametrize("affinity", ["legacy", "preferred", "required", "socket"])
@pytest.mark.parametrize("guests", [1, 2, 3])
def test_cells_with_the_most_devices_are_taken_first(affinity: str, guests: int) -> None:
    """b.3 (2): the last sort of nova's has precedence."""
    devices = lab([3, 3, 3, 1, 1, 2])
    question = on_four_cells(devices, DeviceRequest([ANY], 1, affinity), guests=guests)
    theirs = {cell.id for cell in question.nova_finds().cells}
    found = question.we_find()
    assert found is not None
    assert found["NUMA_TOPOLOGY"].host_cells == theirs
    assert theirs == {*[3, 1, 2][:guests]}


def test_cells_with_devices_are_left_to_who_asks_for_them() -> None:
    """b.3 (2): nova's search without devices takes the cells that have none first."""
    question = on_four_cells(lab([0, 1, 1]), guests=2)
    theirs = {cell.id for cell in question.nova_finds().cells}
    found = question.inventories().fit(ro.Amounts({"NUMA_TOPOLOGY": question.topology()}))
    assert found["NUMA_TOPOLOGY"].host_cells == theirs == {2, 3}


def test_devices_that_would_not_do_draw_nobody() -> None:
    """Nova counts all devices next to a cell, also those that are not asked for."""
    devices = (*lab([1]), *(one.replace(product_id="0443") for one in lab([1, 2, 2])[1:]))
    asked = DeviceRequest([DeviceSpec(vendor_id="10de", product_id="1db4")], 1, "preferred")
    question = on_four_cells(devices, asked)
    assert [cell.id for cell in question.nova_finds().cells] == [2]
    found = question.we_find()
    assert found is not None
    assert found["NUMA_TOPOLOGY"].host_cells == {1}
    assert found["DEVICES"].addresses == ("0000:01:00.0",)  # type: ignore[attr-defined]


def test_a_refusal_says_that_it_is_for_the_distance() -> None:
    """f.2: nova tries all permutations of host cells and says no; we say what is too far."""
    question = on_four_cells(lab([0, 1]), DeviceRequest([ANY], 2, "required"))
    assert question.nova_finds() is None
    with pytest.raises(CapacityException) as refused:
        question.inventories().fit(question.amounts())
    assert [(one.rule, one.requested, one.free) for one in refused.value.reasons] == [
        (Rule.AFFINITY, 2, 1)
    ]


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [("required", None), ("socket", {0}), ("legacy", None), ("preferred", {0})],
    ids=["required", "socket", "legacy", "preferred"],
)
def test_a_policy_narrows_the_cells(affinity: str, expected: set[int] | None) -> None:
    """b.8: host cell 0 alone has CPUs, the device is next to cell 1 in the same socket."""
    case = Case(lab([1]), (DeviceRequest([ANY], 1, affinity),), None, {0: 0, 1: 0, 2: 1, 3: 1})
    question = Joint(case, {0: 4, 1: 1, 2: 1, 3: 1}, 1, 2)
    theirs, found = question.nova_finds(), question.we_find()
    assert (None if theirs is None else {cell.id for cell in theirs.cells}) == expected
    ours = None if found is None else found["NUMA_TOPOLOGY"].host_cells
    assert ours == expected


def test_an_amount_is_asked_of_all_at_once() -> None:
    """The device of one request and that of another are next to different cells: two are used."""
    kinds = [DeviceSpec(vendor_id="10de", product_id=product) for product in ("1db4", "0443")]
    devices = (lab([2])[0], lab([0, 3], "0443")[1])
    asked = [DeviceRequest([kind], 1, "required") for kind in kinds]
    question = on_four_cells(devices, *asked, guests=2)
    found = question.we_find()
    assert found is not None
    assert found["NUMA_TOPOLOGY"].host_cells == {2, 3}
    assert {cell.id for cell in question.nova_finds().cells} == {2, 3}
    assert isinstance(found["DEVICES"], PCIAmount)
