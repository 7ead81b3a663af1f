"""The search over host cells: each step of Nova's, and where ours differs."""

from __future__ import annotations

import pytest

from resource_objects.reasons import Rule
from resource_objects.resources.context import Context
from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    PlacedCell,
    numa,
)
from tests.resources.numa.hosts import (
    KIB_1G,
    KIB_2M,
    cored,
    cpus_of,
    host,
    on,
    paged,
    plain,
    pools,
    refused,
    rules,
    uneven,
)

# --- step 1: as many host cells as guest cells ----------------------------------------------------


def test_more_guest_cells_than_host_cells_are_refused_as_such() -> None:
    inventory = host(plain(0, range(8)), plain(1, range(8, 16)))
    (reason,) = refused(inventory, numa(3, dedicated=3))
    assert reason.rule is Rule.HOST_CELLS
    assert str(reason) == "NUMA_TOPOLOGY requested 3 host cells, there are 2"


def test_every_guest_cell_goes_to_another_host_cell_though_one_could_hold_both() -> None:
    inventory = host(plain(0, range(8)), plain(1, range(8, 10)))
    assert sorted(on(inventory.fit(numa(2, dedicated=4)))) == [0, 1]
    assert rules(refused(inventory, numa(2, dedicated=6))) == ["together", "capacity"]


# --- step 2: the order of host cells --------------------------------------------------------------


def test_cells_with_the_most_free_come_first() -> None:
    inventory = host(
        plain(0, range(4)), plain(1, range(4, 10)), plain(2, range(10, 14), memory_mb=2048)
    )
    assert on(inventory.fit(numa(dedicated=1))) == [1], "by dedicated CPUs"
    assert on(inventory.fit(numa(2, dedicated=2))) == [1, 2], "then by memory"
    assert on(inventory.fit(numa(dedicated=1), context=Context(pack=True))) == [0]


def test_the_order_counts_also_where_there_are_no_more_host_cells_than_guest_cells() -> None:
    """Nova sorts only if there are more, so that it packs one way or the other by accident."""
    inventory = host(plain(0, range(2)), plain(1, range(2, 6)))
    assert on(inventory.fit(numa(2, dedicated=2))) == [0, 1]
    assert on(inventory.fit(numa(dedicated=1), context=Context(allowed=[0, 1]))) == [1]


def test_shared_vcpus_go_where_the_fewest_are() -> None:
    inventory = host(
        HostCell(0, shared=range(4)),
        HostCell(1, shared=range(4, 8)),
        cpu_ratio=2,
        usage=[CellUsage(0, shared=1)],
    )
    assert [on(inventory.consume(numa(shared=1)))[0] for _ in range(4)] == [1, 0, 1, 0]


# --- step 3: the first choice that satisfies everything -------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 2, 3), [0, 1, 2]),
        ((3, 2, 1), [2, 1, 0]),
        ((2, 3, 1), [1, 2, 0]),
        ((1, 1, 3), [0, 1, 2]),
    ],
    ids=str,
)
def test_uneven_guest_cells_find_their_host_cells_in_any_order(
    sizes: tuple[int, ...], expected: list[int]
) -> None:
    inventory = host(plain(0, [0]), plain(1, [1, 2]), plain(2, [3, 4, 5]))
    assert on(inventory.fit(uneven(*sizes))) == expected


def test_equal_guest_cells_take_host_cells_by_id() -> None:
    inventory = host(*(plain(i, [2 * i, 2 * i + 1]) for i in (5, 3, 8)))
    assert on(inventory.fit(numa(3, dedicated=6))) == [3, 5, 8]


def test_the_way_cells_are_listed_does_not_matter() -> None:
    cells = [plain(i, [2 * i, 2 * i + 1]) for i in range(4)]
    usage = [CellUsage(2, pinned=[4])]
    asked = numa(2, dedicated=2)
    one, other = host(*cells, usage=usage), host(*cells[::-1], usage=usage)
    assert on(one.fit(asked)) == on(other.fit(asked)) == [0, 1]


def test_a_request_may_be_kept_within_some_host_cells() -> None:
    inventory = host(*(plain(i, [2 * i, 2 * i + 1]) for i in range(4)))
    assert on(inventory.fit(numa(2, dedicated=2), context=Context(allowed=[1, 3]))) == [1, 3]
    (reason,) = refused(inventory, numa(2, dedicated=2), context=Context(allowed=[3]))
    assert (reason.rule, reason.bound) == (Rule.HOST_CELLS, 1)


def test_one_socket_is_one_known_socket() -> None:
    inventory = host(
        plain(0, range(2), socket=0),
        plain(1, range(2, 4), socket=1),
        plain(2, range(4, 6), socket=0),
        plain(3, range(6, 9)),
        plain(4, range(9, 12)),
    )
    assert on(inventory.fit(numa(2, dedicated=4, one_socket=True))) == [0, 2]
    reason, *_ = refused(inventory, numa(3, dedicated=3, one_socket=True))
    assert (reason.rule, reason.bound) == (Rule.ONE_SOCKET, 2)


def test_one_guest_cell_is_always_in_one_socket() -> None:
    inventory = host(plain(0, range(2), socket=0), plain(1, range(2, 5)))
    asked = numa(dedicated=3, one_socket=True)
    assert on(inventory.fit(asked)) == [1]
    assert inventory.fit(inventory.fit(asked)) == inventory.fit(asked)


def test_a_refusal_for_want_of_one_socket_names_cells_whose_socket_is_not_known() -> None:
    inventory = host(plain(0, [0], socket=0), plain(1, [1]), plain(2, [2]), plain(3, [3]))
    asked = numa(2, dedicated=2, one_socket=True)
    reasons = refused(inventory, asked, context=Context(allowed=[0, 1, 3]))
    assert [*map(str, reasons)] == [
        "NUMA_TOPOLOGY requested 2 guest cells in one socket, at most 1 fit in one",
        *(
            f"cell {cell}: NUMA_TOPOLOGY requested 2 guest cells in one socket, "
            "its socket is not known"
            for cell in (1, 3)
        ),
    ]
    placed = [PlacedCell(number, pins={number: number}) for number in (0, 1)]
    assert [
        (reason.rule, reason.cell) for reason in refused(inventory, asked.replace(placed=placed))
    ] == [
        (Rule.ONE_SOCKET, None),
        (Rule.SOCKET_UNKNOWN, 1),
    ]


def test_a_second_socket_is_tried_where_the_first_will_not_do() -> None:
    cells = [plain(i, [2 * i, 2 * i + 1], socket=i // 2) for i in range(4)]
    inventory = host(*cells, usage=[CellUsage(1, pinned=[2, 3])])
    assert on(inventory.fit(numa(2, dedicated=2, one_socket=True))) == [2, 3]


# --- step 4: the emulator -------------------------------------------------------------------------


def test_the_emulators_cpu_is_looked_for_beside_guest_cell_0_wherever_that_goes() -> None:
    inventory = host(plain(0, range(2)), plain(1, range(2, 5)))
    assigned = inventory.fit(numa(2, dedicated=4, emulator_policy="isolate"))
    assert on(assigned) == [1, 0]
    assert (cpus_of(assigned), assigned.emulator_cpu) == ([2, 3, 0, 1], 4)


# --- steps 5 and 6: nothing is remembered, nothing is changed -------------------------------------


@pytest.mark.law(5)
def test_the_request_is_as_it_was_after_a_search() -> None:
    inventory = host(paged(0, 64, (KIB_1G, 4)), paged(1, 64, (KIB_2M, 512)))
    asked = numa(2, memory_mb=2048, page_size="large")
    before = asked.obj_to_primitive()
    assigned = inventory.fit(asked)
    refused(inventory, numa(2, memory_mb=8192, page_size="large"))
    assert asked.obj_to_primitive() == before
    assert asked.page_size == "large" and not asked.is_assigned
    assert assigned.page_size == "large" and assigned.unassigned() == asked


def test_guest_and_host_cells_keep_their_own_numbers() -> None:
    inventory = host(plain(7, [0]), plain(9, [1, 2]))
    assigned = inventory.fit(uneven(2, 1))
    assert [placed.cell for placed in assigned.placed] == [9, 7]
    assert [cell.dedicated for cell in assigned.cells] == [(0, 1), (2,)]


# --- the refusal ----------------------------------------------------------------------------------


def test_a_refusal_says_for_each_host_cell_what_failed() -> None:
    inventory = host(
        plain(0, range(4), memory_mb=64),
        plain(1, range(4, 6)),
        HostCell(2, shared=range(6, 8), memory_mb=1024),
        usage=[CellUsage(0, pinned=[0]), CellUsage(1, memory_mb=1000)],
    )
    reasons = refused(inventory, numa(dedicated=3, memory_mb=100))
    assert [(reason.cell, str(reason)) for reason in reasons] == [
        (0, "cell 0: MEMORY_MB requested 100, free 64 of 64, never allocated twice"),
        (0, "cell 0: MEMORY_MB requested 100, free 64 of 64"),
        (1, "cell 1: PCPU requested 3, free 2 of 2"),
        (1, "cell 1: MEMORY_MB requested 100, free 24 of 1024, never allocated twice"),
        (1, "cell 1: MEMORY_MB requested 100, free 24 of 1024"),
        (2, "cell 2: PCPU requested 3, free 0 of 0"),
    ]


def test_a_refusal_says_which_guest_cell_it_is_about_where_they_differ() -> None:
    inventory = host(plain(0, range(2)), plain(1, range(2, 4)))
    reasons = refused(inventory, uneven(1, 3))
    assert [(reason.guest, reason.cell) for reason in reasons] == [(1, 0), (1, 1)]
    assert str(reasons[0]) == "guest cell 1 on cell 0: PCPU requested 3, free 2 of 2"
    assert {reason.guest for reason in refused(inventory, numa(2, dedicated=6))} == {None}


def test_a_refusal_says_how_many_guest_cells_fit_at_once() -> None:
    """Each fits somewhere; two need the same cell."""
    inventory = host(plain(0, range(4)), plain(1, range(4, 6)))
    reasons = refused(inventory, uneven(3, 4))
    assert (reasons[0].rule, reasons[0].requested, reasons[0].bound) == (Rule.TOGETHER, 2, 1)
    assert [(reason.guest, reason.cell) for reason in reasons[1:]] == [(0, 1), (1, 1)]


def test_guest_cells_of_every_kind_are_placed_together() -> None:
    """Shared, dedicated and mixed ones, and one of memory alone."""
    inventory = host(
        HostCell(0, shared=[0, 1], memory_mb=64),
        HostCell(1, dedicated=[2, 3], memory_mb=64),
        HostCell(2, shared=[4], dedicated=[5], memory_mb=64),
        HostCell(3, memory_mb=256),
    )
    asked = NUMATopologyAmount(
        [
            GuestCell(memory_mb=200),
            GuestCell(shared=[0], dedicated=[1]),
            GuestCell(dedicated=[2, 3]),
            GuestCell(shared=[4, 5]),
        ]
    )
    assigned = inventory.fit(asked)
    assert on(assigned) == [3, 2, 1, 0]
    assert assigned.cpuset == "0-5"
    assert assigned.memory_nodes == "0-3"


def test_where_the_placement_that_draws_least_has_no_room_another_is_taken() -> None:
    """One CPU and ordinary memory come before two and huge pages; the host lacks that memory."""
    plain_core = HostCell(0, dedicated=[0], memory_mb=64, pages=pools((4, 16384)))
    two_threads = paged(1, 64, (KIB_2M, 32), dedicated=[2, 3], siblings=[(2, 3)])
    asked = numa(dedicated=1, memory_mb=64, page_size="any", thread_policy="isolate")
    assert on(host(plain_core, two_threads).fit(asked)) == [0]
    tight = host(plain_core, two_threads, room={"PCPU": 2, "MEMORY_MB": 63})
    assert on(tight.fit(asked)) == [1]
    both = [GuestCell(dedicated=[0], memory_mb=64), GuestCell(dedicated=[1], memory_mb=32)]
    joint = asked.replace(cells=both)
    assert refused(tight, joint)
    wider = host(plain_core, two_threads, room={"PCPU": 3, "MEMORY_MB": 32})
    assert on(wider.fit(joint)) == [1, 0]
    assert refused(host(plain_core, two_threads, room={"PCPU": 1, "MEMORY_MB": 63}), asked)


def test_of_sockets_that_draw_as_little_the_first_by_preference_is_taken() -> None:
    """The emptier socket, which has a core more: half of that would stay empty, so draws vary."""
    threads = cored(4, (8, 9), socket=1)
    cells = [plain(i, [i], socket=i // 2) for i in range(4)]
    asked = numa(2, dedicated=2, thread_policy="isolate", one_socket=True)
    inventory = host(*cells, threads)
    assert on(inventory.consume(asked)) == [2, 3]
    assert on(inventory.consume(asked)) == [0, 1]
