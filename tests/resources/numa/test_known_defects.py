"""Defects of the best-known implementation, one by one, each with its smallest case: ours has none.

They were reproduced with nova 34.0.0; the numbers are those of its list of defects.
"""

from __future__ import annotations

import pytest

from resource_objects.resources.numa import CellUsage, GuestCell, HostCell, NUMATopologyAmount, numa
from tests.resources.numa.hosts import (
    KIB_1G,
    KIB_2M,
    cored,
    cpus_of,
    host,
    paged,
    plain,
    refused,
    rules,
    uneven,
)
from tests.support.numa_reference import faults


def test_1_what_cannot_fit_does_not_fit() -> None:
    """Three host cells of 4 CPUs, guest cells of 1, 1 and 5: the answer was yes, on host cell 0."""
    inventory = host(*(HostCell(i, shared=range(4 * i, 4 * i + 4)) for i in range(3)))
    asked = NUMATopologyAmount(
        [GuestCell(shared=[0]), GuestCell(shared=[1]), GuestCell(shared=range(2, 7))]
    )
    reasons = refused(inventory, asked)
    assert [
        (reason.guest, reason.cell, reason.rule) for reason in reasons if reason.guest == 2
    ] == [(2, cell, rule) for cell in range(3) for rule in ("max_unit", "capacity")]


def test_1_with_dedicated_cpus_no_cell_comes_back_without_its_cpus() -> None:
    inventory = host(*(plain(i, range(4 * i, 4 * i + 4)) for i in range(3)))
    assert rules(refused(inventory, uneven(1, 1, 5))) == ["capacity"]
    assert len(cpus_of(inventory.fit(uneven(1, 1, 4)))) == 6


@pytest.mark.parametrize("sizes", [(1, 3, 2), (3, 1, 2), (2, 3, 1), (3, 2, 1)], ids=str)
def test_2_vcpus_are_pinned_to_cpus_of_their_own_host_cell(sizes: tuple[int, ...]) -> None:
    """Uneven guest cells came back with CPUs of another cell; accounting then raised."""
    inventory = host(plain(0, [0]), plain(1, [1, 2]), plain(2, [3, 4, 5]))
    assigned = inventory.fit(uneven(*sizes))
    assert faults(inventory, assigned) == []
    for placed in assigned.placed:
        assert {cpu for _, cpu in placed.pins} <= set(inventory.cell(placed.cell).dedicated)
    inventory.consume(assigned)
    assert inventory.free_dedicated == 0


@pytest.mark.parametrize("sizes", [(1024, 2048), (2048, 1024)], ids=str)
@pytest.mark.parametrize("is_swapped", [False, True], ids=["cells", "cells swapped"])
def test_3_what_fits_is_found_whatever_page_size_is_looked_at_first(
    sizes: tuple[int, int], is_swapped: bool
) -> None:
    """``large`` became the size of the first try, and stayed so for all that followed."""
    pages = [(KIB_1G, 4), (KIB_2M, 512)]
    cells = [paged(i, 64, its) for i, its in enumerate(pages[::-1] if is_swapped else pages)]
    assigned = host(*cells).fit(uneven(0, 0, memory_mb=sizes, page_size="large"))
    by_memory = dict(zip(sizes, assigned.placed, strict=True))
    assert by_memory[1024].page_size_kib == KIB_2M
    assert by_memory[2048].page_size_kib == KIB_1G


def test_3_the_request_is_still_large_for_the_next_host() -> None:
    asked = numa(memory_mb=2048, page_size="large")
    assert host(paged(0, 64, (KIB_1G, 2))).fit(asked).placed[0].page_size_kib == KIB_1G
    assert host(paged(0, 64, (KIB_2M, 1024))).fit(asked).placed[0].page_size_kib == KIB_2M


def test_4_the_emulators_cpu_that_was_found_is_the_one_that_is_taken() -> None:
    """Isolated vCPUs and emulator, a core half used: its CPU was pinned with its taken sibling."""
    inventory = host(cored(0, (0, 4), (1, 5), (2, 6)), usage=[CellUsage(0, pinned=[0])])
    asked = numa(dedicated=1, thread_policy="isolate", emulator_policy="isolate")
    assert not inventory.can_provide(asked.replace(cells=[GuestCell(dedicated=[0, 1])]))
    assigned = inventory.consume(asked)
    assert assigned.emulator_cpu == 2
    assert inventory.usage[0].pinned == (0, 1, 2, 5, 6)
    inventory.consume(-assigned)
    assert inventory.usage[0].pinned == (0,)


@pytest.mark.parametrize(
    "asked",
    [numa(shared=1, memory_mb=64), numa(dedicated=1, memory_mb=64), numa(memory_mb=64)],
    ids=["shared", "dedicated", "memory"],
)
def test_5_what_fits_a_cell_without_known_pages_is_counted(asked: object) -> None:
    inventory = host(HostCell(0, shared=[0], dedicated=[1], memory_mb=64))
    assigned = inventory.consume(asked)  # type: ignore[arg-type]
    assert inventory.usage[0].memory_mb == 64
    inventory.consume(-assigned)
    assert inventory.usage[0].memory_mb == 0


@pytest.mark.parametrize("policy", [None, "prefer", "isolate"])
def test_6_a_cell_without_siblings_gives_its_cpus(policy: str | None) -> None:
    """The largest of no sibling sets was asked for: ValueError."""
    inventory = host(HostCell(0, dedicated=[0, 1], siblings=[]))
    assert cpus_of(inventory.fit(numa(dedicated=2, thread_policy=policy))) == [0, 1]
    assert rules(refused(inventory, numa(dedicated=2, thread_policy="require"))) == ["threads"]


def test_7_a_cell_whose_cpus_serve_either_way_fits_and_is_counted() -> None:
    """What the oldest hosts wrote has one set of CPUs: the dedicated ones were left unset."""
    inventory = host(HostCell(0, shared=range(4), dedicated=range(4), memory_mb=64))
    shared, dedicated = inventory.consume(numa(shared=2)), inventory.consume(numa(dedicated=2))
    assert inventory.usage == (CellUsage(0, shared=2, pinned=[0, 1]),)
    inventory.consume(-shared)
    inventory.consume(-dedicated)
    assert inventory.usage == (CellUsage(0),)
