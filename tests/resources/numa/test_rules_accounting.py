"""What an assigned amount takes of each host cell, and that giving it back gives just that back.

Source of the rules: Nova's accounting. Ours refuses where it clamps to zero, and pins only what was
decided.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from resource_objects.reasons import Rule
from resource_objects.resources.context import Context
from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PlacedCell,
    numa,
)
from resource_objects.testing.refusals import raises_code
from tests.resources.numa.hosts import KIB_1G, KIB_2M, cored, host, paged, plain, refused


def cores(*cores: tuple[int, int]) -> dict[str, object]:
    """Return the facts of cores whose CPUs are dedicated."""
    return {"siblings": cores, "dedicated": [cpu for core in cores for cpu in core]}


def machine(**figures: object) -> NUMATopologyInventory:
    """Return two cells that have everything."""
    return host(
        paged(0, 1024, (KIB_2M, 512), shared=[8, 9], **cores((0, 4), (1, 5))),
        paged(1, 1024, (KIB_1G, 2), shared=[10, 11], **cores((2, 6), (3, 7))),
        **figures,
    )


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        pytest.param(
            numa(shared=2, memory_mb=64), CellUsage(0, shared=2, memory_mb=64), id="shared"
        ),
        pytest.param(
            numa(dedicated=2, memory_mb=64),
            CellUsage(0, pinned=[0, 4], memory_mb=64),
            id="dedicated",
        ),
        pytest.param(
            numa(shared=1, dedicated=1, memory_mb=64),
            CellUsage(0, shared=1, pinned=[0], memory_mb=64),
            id="mixed",
        ),
        pytest.param(
            numa(memory_mb=64, page_size="small"), CellUsage(0, memory_mb=64), id="small pages"
        ),
        pytest.param(
            numa(memory_mb=64, page_size="2MB"), CellUsage(0, pages={KIB_2M: 32}), id="huge pages"
        ),
        pytest.param(
            numa(dedicated=1, thread_policy="isolate"),
            CellUsage(0, pinned=[0, 4]),
            id="isolated, with the sibling",
        ),
        pytest.param(
            numa(dedicated=1, thread_policy="isolate", emulator_policy="isolate"),
            CellUsage(0, pinned=[0, 1, 4, 5]),
            id="isolated, the emulator with its sibling",
        ),
        pytest.param(
            numa(dedicated=2, emulator_policy="isolate"),
            CellUsage(0, pinned=[0, 1, 4]),
            id="emulator",
        ),
        pytest.param(numa(memory_mb=64), CellUsage(0, memory_mb=64), id="memory alone"),
    ],
)
def test_what_is_taken_of_a_cell(asked: NUMATopologyAmount, used: CellUsage) -> None:
    inventory = machine()
    assigned = inventory.consume(asked, context=Context(allowed=[0]))
    assert inventory.usage == (used, CellUsage(1))
    inventory.consume(-assigned)
    assert inventory == machine()


def test_each_guest_cell_is_taken_of_its_own_host_cell() -> None:
    inventory = machine()
    asked = numa(2, shared=2, dedicated=4, memory_mb=2048, page_size="large")
    inventory.consume(asked)
    assert inventory.usage == (
        CellUsage(0, shared=1, pinned=[0, 4], pages={KIB_2M: 512}),
        CellUsage(1, shared=1, pinned=[2, 6], pages={KIB_1G: 1}),
    )


def test_the_inventory_before_is_not_the_one_after() -> None:
    """A copy that was made earlier does not change."""
    inventory = machine()
    before = copy.deepcopy(inventory)
    usage = inventory.usage
    inventory.consume(numa(2, dedicated=2, memory_mb=64))
    assert before == machine() and usage == before.usage
    assert before.free_dedicated == 8 and inventory.free_dedicated == 6


def test_a_cell_without_known_pages_is_counted_like_any_other() -> None:
    """Nova raises IndexError there."""
    inventory = host(plain(0, [0]))
    assigned = inventory.consume(numa(dedicated=1, memory_mb=64))
    assert inventory.usage == (CellUsage(0, pinned=[0], memory_mb=64),)
    inventory.consume(-assigned)
    assert inventory.usage == (CellUsage(0),)


@pytest.mark.parametrize(
    ("assigned", "resource", "text"),
    [
        pytest.param(
            NUMATopologyAmount([GuestCell(shared=[0])], placed=[PlacedCell(0, shared=[8, 9])]),
            "VCPU",
            "cell 0: VCPU releases 1, only 0 used",
            id="shared vCPUs",
        ),
        pytest.param(
            NUMATopologyAmount([GuestCell(dedicated=[0])], placed=[PlacedCell(0, pins={0: 4})]),
            "PCPU",
            "cell 0: PCPU releases 1, only 0 used",
            id="a CPU",
        ),
        pytest.param(
            NUMATopologyAmount([GuestCell(memory_mb=2)], placed=[PlacedCell(1)]),
            "MEMORY_MB",
            "cell 1: MEMORY_MB releases 2, only 1 used",
            id="memory",
        ),
        pytest.param(
            NUMATopologyAmount(
                [GuestCell(memory_mb=6)],
                page_size="2MB",
                placed=[PlacedCell(0, page_size_kib=KIB_2M)],
            ),
            "CUSTOM_HUGEPAGES_2048KB",
            "cell 0: CUSTOM_HUGEPAGES_2048KB releases 3, only 2 used",
            id="pages",
        ),
    ],
)
def test_what_is_not_taken_cannot_be_given_back(
    assigned: NUMATopologyAmount, resource: str, text: str
) -> None:
    """Nova clamps at zero and says nothing."""
    usage = [CellUsage(0, pinned=[0], pages={KIB_2M: 2}), CellUsage(1, memory_mb=1)]
    (reason,) = refused(machine(usage=usage), -assigned)
    assert (reason.rule, reason.resource) == (Rule.USED_BELOW_ZERO, resource)
    assert str(reason) == text


def test_giving_back_one_of_two_cells_that_are_not_taken_gives_back_neither() -> None:
    inventory = machine()
    assigned = inventory.fit(numa(2, dedicated=4))
    inventory.consume(numa(dedicated=2), context=Context(allowed=[0]))
    refused(inventory, -assigned)
    assert inventory.usage[0].pinned == (0, 4)


def test_a_cpu_is_never_given_twice() -> None:
    inventory = machine()
    assigned = inventory.consume(numa(dedicated=2), context=Context(allowed=[0]))
    reasons = refused(inventory, assigned)
    assert [(reason.rule, reason.unit) for reason in reasons] == [
        (Rule.UNIT_TAKEN, "cpu0"),
        (Rule.UNIT_TAKEN, "cpu4"),
    ]
    with raises_code("UnitTaken", match="cpu0, which is allocated"):
        inventory.consume(assigned)


def test_an_assigned_amount_is_taken_where_it_says() -> None:
    """So a host takes what somebody else decided, and takes again what it had before a restart."""
    decided = machine().fit(numa(2, dedicated=6, memory_mb=1024))
    inventory = machine()
    inventory.consume(numa(shared=1))
    assert inventory.consume(decided) == decided
    assert [used.pinned for used in inventory.usage] == [(0, 1, 4), (2, 3, 6)]


def test_an_assigned_amount_is_never_given_more_than_exists_once() -> None:
    """Memory of dedicated vCPUs is given out once, also if somebody decided otherwise."""
    asked = NUMATopologyAmount(
        [GuestCell(dedicated=[0], memory_mb=1024)], placed=[PlacedCell(0, pins={0: 0})]
    )
    inventory = machine(memory_ratio=2, usage=[CellUsage(0, memory_mb=1)])
    (reason,) = refused(inventory, asked)
    assert reason.rule is Rule.PHYSICAL
    shared = asked.replace(
        cells=[GuestCell(shared=[0], memory_mb=1024)], placed=[PlacedCell(0, shared=[8, 9])]
    )
    assert inventory.can_provide(shared)


@pytest.mark.parametrize(
    ("asked", "placed", "rule"),
    [
        pytest.param(
            {"thread_policy": "isolate"},
            [PlacedCell(0, pins={0: 0})],
            Rule.THREADS,
            id="isolated, its sibling for others",
        ),
        pytest.param(
            {}, [PlacedCell(0, pins={0: 0}, idle=[4])], Rule.THREADS, id="idle for nothing"
        ),
        pytest.param(
            {"physnets": ["red"]}, [PlacedCell(0, pins={0: 0})], Rule.NETWORK, id="network"
        ),
    ],
)
def test_an_assigned_amount_is_as_it_asks_for_itself(
    asked: dict[str, Any], placed: list[PlacedCell], rule: Rule
) -> None:
    """Who decides elsewhere decides by the same rules."""
    inventory = host(cored(0, (0, 4), (1, 5)), cored(1, (2, 6), physnets=["red"], socket=0))
    amount = NUMATopologyAmount([GuestCell(dedicated=[0])], placed=placed, **asked)
    assert [reason.rule for reason in refused(inventory, amount)] == [rule]
    assert inventory.can_provide(amount.unassigned())


def test_an_assigned_amount_may_be_kept_within_some_host_cells() -> None:
    inventory = machine()
    assigned = inventory.fit(numa(2, dedicated=2))
    (reason,) = refused(inventory, assigned, context=Context(allowed=[0]))
    assert (reason.rule, reason.requested, reason.bound) == (Rule.HOST_CELLS, 2, 1)
    assert inventory.fit(assigned, context=Context(allowed=[0, 1])) == assigned


def test_loose_cpus_stay_loose() -> None:
    inventory = host(plain(0, range(4)), usage=[CellUsage(0, loose=2)])
    assigned = inventory.consume(numa(dedicated=2))
    assert inventory.usage == (CellUsage(0, pinned=[0, 1], loose=2),)
    assert inventory.free_dedicated == 0
    inventory.consume(-assigned)
    assert inventory.usage == (CellUsage(0, loose=2),)


def test_the_room_of_a_host_goes_down_by_what_the_host_gives() -> None:
    """Huge pages are not the host's to give; siblings left empty are."""
    room = {"VCPU": 4, "PCPU": 8, "MEMORY_MB": 2048}
    inventory = machine(room=room)
    asked = numa(dedicated=2, memory_mb=1024, page_size="2MB", thread_policy="isolate")
    assigned = inventory.consume(asked)
    assert inventory.room == {"VCPU": 4, "PCPU": 4, "MEMORY_MB": 2048}
    inventory.consume(numa(shared=1, memory_mb=24))
    assert inventory.room == {"VCPU": 3, "PCPU": 4, "MEMORY_MB": 2024}
    inventory.consume(-assigned)
    assert inventory.room == {"VCPU": 3, "PCPU": 8, "MEMORY_MB": 2024}


def test_a_host_that_has_less_left_than_its_cells_gives_no_more() -> None:
    """Consumers without topology draw on the host and on no cell."""
    inventory = machine(room={"PCPU": 2, "MEMORY_MB": 100})
    assert (inventory.free_dedicated, inventory.free_memory_mb) == (2, 100)
    (reason,) = refused(inventory, numa(dedicated=3))
    assert str(reason) == "PCPU requested 3, free 2 of 2"
    (reason,) = refused(inventory, numa(dedicated=2, memory_mb=101))
    assert str(reason) == "MEMORY_MB requested 101, free 100 of 100"
    assert inventory.can_provide(numa(dedicated=2, memory_mb=1024, page_size="large"))


def test_what_is_assigned_is_bound_by_what_the_host_has_left_too() -> None:
    """Its cells would have it: who has no topology took the rest of the host."""
    assigned = machine().fit(numa(dedicated=3, memory_mb=50))
    (reason,) = refused(machine(room={"PCPU": 2, "MEMORY_MB": 100}), assigned)
    assert str(reason) == "PCPU requested 3, free 2 of 2"
    assert machine(room={"PCPU": 3, "MEMORY_MB": 50}).fit(assigned) == assigned


def test_a_refusal_for_want_of_room_says_what_the_least_would_take() -> None:
    """What is taken of a host depends on where: the fewest CPUs left empty, the most huge pages."""
    cells = [
        paged(0, 64, dedicated=[0, 1]),
        paged(1, 64, (KIB_2M, 1), dedicated=[2, 3], siblings=[(2, 3)]),
    ]
    asked = numa(dedicated=1, memory_mb=2, page_size="any", thread_policy="isolate")
    for room, expected in [
        ({"PCPU": 2, "MEMORY_MB": 0}, None),
        ({"PCPU": 1, "MEMORY_MB": 2}, None),
        ({"PCPU": 0}, "PCPU requested 1, free 0 of 0"),
        ({"PCPU": 1, "MEMORY_MB": 1}, "MEMORY_MB requested 2, free 1 of 1"),
    ]:
        inventory = host(*cells, room=room)
        if expected is None:
            assert inventory.can_provide(asked)
        else:
            assert [str(reason) for reason in refused(inventory, asked)] == [expected]


def test_the_room_of_a_host_decides_which_pages_are_taken() -> None:
    inventory = host(
        paged(0, 64, dedicated=range(4)),
        paged(1, 64, (KIB_2M, 4), dedicated=range(4, 6)),
        room={"MEMORY_MB": 1},
    )
    asked = numa(dedicated=1, memory_mb=2, page_size="any")
    assert inventory.fit(asked).placed == (PlacedCell(1, pins={0: 4}, page_size_kib=KIB_2M),)


def test_where_shared_vcpus_run_is_every_shared_cpu_of_the_cell() -> None:
    inventory = host(HostCell(0, shared=range(3)), cored(1, (4, 5)))
    assert inventory.fit(numa(shared=1)).placed == (PlacedCell(0, shared=[0, 1, 2]),)
