"""Whether one guest cell fits one host cell: each rule of Nova's pair test, and where ours differ.

The numbers are the rows of the rules of the field: page size (1, 2, 3), dedicated CPUs (4, 6),
shared CPUs (5), what is used and limits (7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from resource_objects.reasons import Rule
from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
    PagePool,
    PlacedCell,
    numa,
)
from tests.resources.numa.hosts import KIB_1G, KIB_2M, host, paged, plain, pools, refused, rules


def pages_of(cell: HostCell, amount: NUMATopologyAmount, **used: object) -> int | None:
    """Return the page size that is chosen on an otherwise empty cell."""
    inventory = host(cell, usage=[CellUsage(cell.id, **used)])  # type: ignore[arg-type]
    return inventory.fit(amount).placed[0].page_size_kib


# --- row 1: a page size is asked for --------------------------------------------------------------

SIZES = paged(0, 1024, (KIB_2M, 512), (KIB_1G, 2))


@pytest.mark.parametrize(
    ("page_size", "memory_mb", "expected"),
    [
        pytest.param("small", 512, None, id="small is the smallest of the host cell"),
        pytest.param("large", 1024, KIB_1G, id="large is the largest that will do"),
        pytest.param("large", 512, KIB_2M, id="one that divides"),
        pytest.param("any", 2048, KIB_1G, id="any is the largest first"),
        pytest.param("any", 510, KIB_2M, id="any, then the next"),
        pytest.param("any", 511, None, id="any, then ordinary memory"),
        pytest.param("2MB", 1024, KIB_2M, id="a size is that size"),
        pytest.param("4", 1024, None, id="the size of ordinary pages is ordinary memory"),
    ],
)
def test_a_page_size_is_found_largest_first(
    page_size: str, memory_mb: int, expected: int | None
) -> None:
    assert pages_of(SIZES, numa(memory_mb=memory_mb, page_size=page_size)) == expected


@pytest.mark.parametrize(
    ("page_size", "memory_mb", "used", "expected"),
    [
        pytest.param("large", 1024, {KIB_1G: 2}, KIB_2M, id="large, the larger are taken"),
        pytest.param("any", 1024, {KIB_1G: 2, KIB_2M: 1}, None, id="any, all huge ones are taken"),
        pytest.param("any", 1022, {KIB_1G: 2, KIB_2M: 1}, KIB_2M, id="any, just enough are left"),
    ],
)
def test_pages_that_are_taken_are_passed_over(
    page_size: str, memory_mb: int, used: dict[int, int], expected: int | None
) -> None:
    asked = numa(memory_mb=memory_mb, page_size=page_size)
    assert pages_of(SIZES, asked, pages=used) == expected


@pytest.mark.parametrize(
    ("page_size", "memory_mb", "rule", "text"),
    [
        pytest.param(
            "large",
            1023,
            Rule.INDIVISIBLE,
            "cell 0: MEMORY_MB requested 1023, not a whole number of pages of 1048576 KiB",
            id="no size divides",
        ),
        pytest.param(
            "2MB",
            1026,
            Rule.CAPACITY,
            "cell 0: CUSTOM_HUGEPAGES_2048KB requested 513, free 512 of 512",
            id="too few pages",
        ),
        pytest.param(
            "16MB",
            16,
            Rule.PAGE_SIZE,
            "cell 0: MEMORY_MB requested 16, there are no 16 MiB pages",
            id="no such pages",
        ),
        pytest.param(
            "small",
            1025,
            Rule.PHYSICAL,
            "cell 0: MEMORY_MB requested 1025, free 1024 of 1024, never allocated twice",
            id="small is never given out twice",
        ),
        pytest.param(
            "any",
            1025,
            Rule.PHYSICAL,
            "cell 0: MEMORY_MB requested 1025, free 1024 of 1024, never allocated twice",
            id="any says what ordinary memory lacks",
        ),
    ],
)
def test_pages_that_do_not_do_are_refused_with_their_figures(
    page_size: str, memory_mb: int, rule: Rule, text: str
) -> None:
    inventory = host(SIZES, memory_ratio=2)
    reasons = refused(inventory, numa(memory_mb=memory_mb, page_size=page_size))
    assert [(reason.rule, str(reason)) for reason in reasons] == [(rule, text)]


def test_pages_that_are_reserved_are_nobodys() -> None:
    inventory = host(paged(0, 64, (KIB_2M, 8, 3)))
    assert inventory.can_provide(numa(memory_mb=10, page_size="2MB"))
    (reason,) = refused(inventory, numa(memory_mb=12, page_size="2MB"))
    assert (reason.requested, reason.bound) == (6, 5)


def test_the_page_size_is_found_for_each_pair_anew() -> None:
    """Two guest cells of one request get pages of different sizes."""
    inventory = host(paged(0, 64, (KIB_2M, 512)), paged(1, 64, (KIB_1G, 1)))
    assigned = inventory.fit(numa(2, memory_mb=2048, page_size="large"))
    assert [placed.page_size_kib for placed in assigned.placed] == [KIB_2M, KIB_1G]
    assert assigned.pages == {0: {KIB_2M: 512}, 1: {KIB_1G: 1}}


@pytest.mark.parametrize("page_size", ["small", "large", "any", "2MB", "4"])
def test_a_cell_whose_page_sizes_are_unknown_gives_no_pages(page_size: str) -> None:
    inventory = host(HostCell(0, memory_mb=1024))
    (reason,) = refused(inventory, numa(memory_mb=64, page_size=page_size))
    assert reason.rule is Rule.PAGE_SIZE
    assert inventory.can_provide(numa(memory_mb=64))


@pytest.mark.parametrize("page_size", ["small", "large", "any", "2MB"])
def test_who_asks_for_no_memory_needs_no_pages(page_size: str) -> None:
    inventory = host(plain(0, [0], memory_mb=0))
    assert inventory.fit(numa(dedicated=1, page_size=page_size)).placed[0].page_size_kib is None


def test_small_is_a_word_of_each_host_cell() -> None:
    """Where the smallest pages are of 64 KiB, these are small; and of 64 KiB they are called so."""
    cell = HostCell(0, memory_mb=64, pages=pools((64, 1024)))
    for page_size in ("small", "64", "any"):
        assert pages_of(cell, numa(memory_mb=64, page_size=page_size)) is None
    assert rules(refused(host(cell), numa(memory_mb=64, page_size="4"))) == ["page_size"]
    assigned = host(plain(0, [0])).fit(numa(dedicated=1, memory_mb=64))
    (reason,) = refused(host(plain(0, [0])), assigned.replace(page_size="1GB"))
    assert str(reason).endswith("there are no 1 GiB pages")
    assert rules(refused(host(cell), numa(memory_mb=64, page_size="large"))) == ["page_size"]


def test_a_cell_whose_smallest_pages_are_huge_has_nothing_else() -> None:
    cell = HostCell(0, memory_mb=64, pages=pools((KIB_2M, 32)))
    assert pages_of(cell, numa(memory_mb=62)) is None
    (reason,) = refused(host(cell), numa(memory_mb=63))
    assert (reason.rule, reason.bound) == (Rule.INDIVISIBLE, KIB_2M)


# --- rows 2 and 3: no page size ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "used_mb", "expected"),
    [
        pytest.param(numa(shared=1, memory_mb=1024), 1024, [], id="shared, given out twice"),
        pytest.param(
            numa(shared=1, memory_mb=1025), 0, ["max_unit"], id="shared, never against itself"
        ),
        pytest.param(numa(shared=1, memory_mb=1024), 1025, ["capacity"], id="shared, by ratio"),
        pytest.param(numa(dedicated=1, memory_mb=1024), 0, [], id="dedicated, all there is"),
        pytest.param(numa(dedicated=1, memory_mb=1024), 1, ["physical"], id="dedicated, once"),
        pytest.param(
            numa(shared=1, dedicated=1, memory_mb=1024), 1, ["physical"], id="mixed, once"
        ),
        pytest.param(numa(memory_mb=1024), 1024, [], id="memory alone is as shared"),
    ],
)
@pytest.mark.parametrize(
    "pages", [pools((4, 1024 * 256)), []], ids=["pages known", "pages unknown"]
)
def test_ordinary_memory_is_given_out_twice_only_where_cpus_are(
    asked: NUMATopologyAmount, used_mb: int, expected: list[str], pages: Sequence[PagePool]
) -> None:
    cell = HostCell(0, shared=[0], dedicated=[1], memory_mb=1024, pages=pages)
    inventory = host(cell, memory_ratio=2, usage=[CellUsage(0, memory_mb=used_mb)])
    if expected:
        assert rules(refused(inventory, asked)) == expected
    else:
        assert inventory.can_provide(asked)


def test_the_policy_of_the_whole_amount_counts() -> None:
    """A guest cell of shared vCPUs beside one of dedicated ones has memory of its own too."""
    cells = [HostCell(i, shared=[2 * i], dedicated=[2 * i + 1], memory_mb=64) for i in range(2)]
    usage = [CellUsage(i, memory_mb=1) for i in range(2)]
    inventory = host(*cells, usage=usage, memory_ratio=4)
    guests = [GuestCell(shared=[0], memory_mb=64), GuestCell(dedicated=[1])]
    assert inventory.can_provide(NUMATopologyAmount([guests[0]]))
    assert "physical" in rules(refused(inventory, NUMATopologyAmount(guests)))


def test_a_ratio_below_one_binds_everybody() -> None:
    inventory = host(plain(0, [0], shared=[1]), memory_ratio="0.5")
    for asked in (numa(shared=1, memory_mb=513), numa(dedicated=1, memory_mb=513)):
        assert rules(refused(inventory, asked)) == ["capacity"]
    assert inventory.can_provide(numa(dedicated=1, memory_mb=512))


def test_memory_in_huge_pages_never_serves_who_asked_for_none() -> None:
    inventory = host(paged(0, 100, (KIB_2M, 512), shared=[0]), memory_ratio=16)
    assert inventory.can_provide(numa(shared=1, memory_mb=100))
    (reason,) = refused(inventory, numa(shared=1, memory_mb=101))
    assert (reason.rule, reason.bound) == (Rule.MAX_UNIT, 100)


def test_ordinary_memory_that_is_reserved_is_nobodys() -> None:
    cell = HostCell(0, memory_mb=100, pages=pools((4, 25600, 2560)))
    assert host(cell).can_provide(numa(memory_mb=90))
    assert rules(refused(host(cell), numa(memory_mb=91))) == ["max_unit", "capacity"]


# --- rows 4 and 6: dedicated CPUs ----------------------------------------------------------------


def test_dedicated_vcpus_need_as_many_cpus_with_the_emulator() -> None:
    inventory = host(plain(0, range(4)))
    assert inventory.can_provide(numa(dedicated=4))
    assert inventory.can_provide(numa(dedicated=3, emulator_policy="isolate"))
    (reason,) = refused(inventory, numa(dedicated=4, emulator_policy="isolate"))
    assert str(reason) == "cell 0: PCPU requested 5, free 4 of 4"


def test_dedicated_vcpus_need_cpus_that_are_free() -> None:
    inventory = host(plain(0, range(4)), usage=[CellUsage(0, pinned=[1])])
    assert inventory.can_provide(numa(dedicated=3))
    (reason,) = refused(inventory, numa(dedicated=4))
    assert str(reason) == "cell 0: PCPU requested 4, free 3 of 4"


def test_cpus_taken_by_number_are_not_free_though_nobody_knows_which() -> None:
    inventory = host(plain(0, range(4)), usage=[CellUsage(0, pinned=[0], loose=2)])
    assert inventory.free_dedicated == 1
    assert inventory.can_provide(numa(dedicated=1))
    assert rules(refused(inventory, numa(dedicated=2))) == ["capacity"]


def test_the_emulator_is_beside_guest_cell_0_only() -> None:
    cells = [plain(0, range(3)), plain(1, range(3, 5))]
    asked = numa(2, dedicated=4, emulator_policy="isolate")
    assigned = host(*cells).fit(asked)
    assert [placed.cell for placed in assigned.placed] == [0, 1]
    assert assigned.emulator_cpu == 2
    assert assigned.placed_counts["PCPU"] == 5
    swapped = host(plain(0, range(2)), plain(1, range(2, 5))).fit(asked)
    assert [placed.cell for placed in swapped.placed] == [1, 0]


def test_sharing_the_emulators_threads_takes_no_cpu() -> None:
    assigned = host(plain(0, range(2))).fit(numa(dedicated=2, emulator_policy="share"))
    assert assigned.emulator_cpu is None


# --- row 5: shared CPUs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [numa(shared=5), numa(shared=5, dedicated=1)], ids=["shared", "mixed"]
)
def test_no_request_overcommits_against_itself(asked: NUMATopologyAmount) -> None:
    inventory = host(HostCell(0, shared=range(4), dedicated=[4]), cpu_ratio=16)
    assert inventory.can_provide(numa(shared=4))
    (reason,) = refused(inventory, asked)
    assert (reason.rule, reason.requested, reason.bound) == (Rule.MAX_UNIT, 5, 4)


# --- row 7: what is used, and limits -------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "used", "fits"),
    [("1", 2, 2), ("1.5", 2, 4), ("1.5", 6, 0), ("0.5", 0, 2), ("1.15", 2, 2), ("0.1", 0, 0)],
)
def test_what_is_used_counts_without_any_limit(ratio: str, used: int, fits: int) -> None:
    inventory = host(
        HostCell(0, shared=range(4)), cpu_ratio=ratio, usage=[CellUsage(0, shared=used)]
    )
    assert inventory.free_shared == fits
    for count in range(1, 5):
        assert inventory.can_provide(numa(shared=count)) is (count <= fits)


def test_a_limit_is_a_total_of_one_host_cell() -> None:
    inventory = host(HostCell(0, shared=range(4), memory_mb=64), usage=[CellUsage(0, shared=1)])
    asked = numa(shared=2, memory_mb=32)
    assert inventory.can_provide(asked, NUMATopologyLimit(vcpus={0: 3}, memory_mb={0: 32}))
    assert inventory.can_provide(asked, NUMATopologyLimit(vcpus={7: 0}, memory_mb={7: 0}))
    reasons = refused(inventory, asked, NUMATopologyLimit(vcpus={0: 2}, memory_mb={0: 31}))
    assert list(map(str, reasons)) == [
        "cell 0: VCPU requested 2, free 1 under the limit of 2",
        "cell 0: MEMORY_MB requested 32, free 31 under the limit of 31",
    ]


def test_a_limit_sends_a_request_to_another_cell() -> None:
    inventory = host(*(HostCell(i, shared=[2 * i, 2 * i + 1]) for i in range(2)))
    limit = NUMATopologyLimit(vcpus={0: 1})
    assert inventory.fit(numa(shared=2)).placed[0].cell == 0
    assert inventory.fit(numa(shared=2), limit).placed[0].cell == 1


def test_a_limit_never_lets_more_be_used_than_the_capacity() -> None:
    inventory = host(HostCell(0, shared=range(2)))
    assert rules(refused(inventory, numa(shared=3), NUMATopologyLimit(vcpus={0: 99}))) == [
        "max_unit",
        "capacity",
    ]


def test_a_limit_binds_neither_dedicated_cpus_nor_huge_pages() -> None:
    inventory = host(paged(0, 64, (KIB_2M, 8), dedicated=[0, 1]))
    limit = NUMATopologyLimit(vcpus={0: 0}, memory_mb={0: 0})
    assert inventory.can_provide(numa(dedicated=2, memory_mb=16, page_size="2MB"), limit)
    assert rules(refused(inventory, numa(dedicated=2, memory_mb=16), limit)) == ["limit"]


def test_memory_of_dedicated_vcpus_is_bounded_by_the_limit_too() -> None:
    """Nova lets them skip the ratio of memory, and with it the limit."""
    inventory = host(plain(0, [0]))
    limit = NUMATopologyLimit(memory_mb={0: 10})
    assert rules(refused(inventory, numa(dedicated=1, memory_mb=11), limit)) == ["limit"]


def test_who_asks_for_nothing_of_a_class_is_not_refused_for_it() -> None:
    """A cell that is over-full of one thing still gives others."""
    inventory = host(
        HostCell(0, shared=[0], dedicated=[1], memory_mb=64),
        usage=[CellUsage(0, shared=9, memory_mb=99)],
    )
    assert inventory.can_provide(numa(dedicated=1))
    assert rules(refused(inventory, numa(dedicated=1, memory_mb=1))) == ["physical", "capacity"]


# --- CPUs that serve either way ------------------------------------------------------------------


def test_a_cpu_that_serves_either_way_is_pinned_only_if_nobody_needs_it() -> None:
    cell = HostCell(0, shared=range(4), dedicated=range(4))
    inventory = host(cell, usage=[CellUsage(0, shared=3)])
    assert inventory.can_provide(numa(dedicated=1))
    (reason,) = refused(inventory, numa(dedicated=2))
    assert str(reason) == "cell 0: PCPU requested 2, free 1 of 4"
    (reason,) = refused(inventory, numa(shared=1, dedicated=1))
    assert str(reason) == "cell 0: VCPU requested 1, free 0 of 3"


def test_a_cpu_that_is_pinned_serves_no_shared_vcpus() -> None:
    cell = HostCell(0, shared=range(4), dedicated=range(4))
    inventory = host(cell, cpu_ratio=2, usage=[CellUsage(0, pinned=[0, 1])])
    assert inventory.free_shared == 4
    inventory.consume(numa(shared=2))
    inventory.consume(numa(shared=2))
    assert rules(refused(inventory, numa(dedicated=1))) == ["capacity"]


def either(cpu_ratio: int = 4, **figures: Any) -> NUMATopologyInventory:
    cell = HostCell(0, shared=range(4), dedicated=range(4), memory_mb=1000)
    return host(cell, cpu_ratio=cpu_ratio, **figures)


def test_shared_vcpus_run_on_the_cpus_that_nobody_has_dedicated() -> None:
    inventory = either()
    inventory.consume(numa(dedicated=2))
    assert inventory.fit(numa(shared=2)).taskset() == ("taskset", "--cpu-list", "2-3")
    assert inventory.fit(numa(shared=1, dedicated=1)).placed[0].shared == (3,)
    separate = host(HostCell(0, shared=[0, 1], dedicated=[2, 3]))
    separate.consume(numa(dedicated=1))
    assert separate.fit(numa(shared=2)).cpuset == "0-1"


def test_one_guest_has_no_more_shared_vcpus_than_cpus_are_left_for_them() -> None:
    inventory = either()
    inventory.consume(numa(dedicated=3))
    for asked in (numa(shared=2), numa(shared=4)):
        (reason,) = refused(inventory, asked)
        assert (
            str(reason)
            == f"cell 0: VCPU requested {len(asked.cells[0].shared)}, one claim allocates "
            "at most 1"
        )
    placed = PlacedCell(0, shared=[3])
    assert rules(refused(inventory, numa(shared=2).replace(placed=[placed]))) == ["max_unit"]
    assert inventory.consume(numa(shared=1)).cpuset == "3"


def test_a_guest_has_no_more_shared_vcpus_than_its_own_dedicated_ones_leave() -> None:
    (reason,) = refused(either(), numa(shared=2, dedicated=3))
    assert (reason.rule, reason.resource, reason.bound) == (Rule.MAX_UNIT, "VCPU", 1)
    assert either().can_provide(numa(shared=1, dedicated=3))


def test_where_shared_vcpus_may_run_follows_what_is_dedicated_since() -> None:
    inventory = either()
    inventory.taken = ()
    shared = inventory.consume(numa(shared=2))
    assert shared.cpuset == "0-3"
    dedicated = inventory.consume(numa(dedicated=3))
    assert inventory.refreshed(shared).cpuset == "3"
    assert [one.cpuset for one in inventory.taken] == ["3", "0-2"]
    inventory.consume(-dedicated)
    assert inventory.refreshed(shared) == shared == inventory.taken[0]
    inventory.consume(numa(dedicated=1))
    inventory.consume(-shared)
    assert [one.cpuset for one in inventory.taken] == ["0"]
    assert inventory.usage == (CellUsage(0, pinned=[0]),)


def test_an_assigned_amount_is_taken_with_the_cpus_that_are_left_now() -> None:
    inventory = either()
    shared = inventory.fit(numa(shared=1))
    inventory.consume(numa(dedicated=3))
    assert inventory.consume(shared).cpuset == "3"
