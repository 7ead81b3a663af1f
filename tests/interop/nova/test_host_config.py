"""Options of a compute host, and what its cells become by them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import InvalidInput
from resource_objects.host import HostSettings
from resource_objects.interop.nova import configured_cells, host_settings
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool, numa
from tests.interop.nova.refusals import breaks


def host() -> list[HostCell]:
    """Return two cells of four CPUs on two cores, with pages of three sizes."""
    return [
        HostCell(
            n,
            shared=range(4 * n, 4 * n + 4),
            siblings=[(4 * n, 4 * n + 2), (4 * n + 1, 4 * n + 3)],
            memory_mb=4096,
            pages=[
                PagePool(size_kib=4, total=524288),
                PagePool(size_kib=2048, total=512),
                PagePool(size_kib=1048576, total=1),
            ],
            socket=n,
        )
        for n in range(2)
    ]


def reserved_pages(entries: Any) -> Any:
    """Return the pages that entries of ``reserved_huge_pages`` reserve."""
    return host_settings(reserved_huge_pages=entries).reserved_pages


def served(**options: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    cells = configured_cells(host(), host_settings(**options))
    return [(cell.shared, cell.dedicated) for cell in cells]


# --- cpu_shared_set, cpu_dedicated_set, vcpu_pin_set ---


def test_the_shared_set_serves_shared_vcpus_and_nothing_else_is_given() -> None:
    assert served(cpu_shared_set="0-1,4") == [((0, 1), ()), ((4,), ())]


def test_the_dedicated_set_serves_dedicated_vcpus_and_nothing_else_is_given() -> None:
    assert served(cpu_dedicated_set="2-7,^5") == [((), (2, 3)), ((), (4, 6, 7))]


def test_both_together_leave_the_rest_to_the_host() -> None:
    assert served(cpu_shared_set="0,4", cpu_dedicated_set="2,6") == [((0,), (2,)), ((4,), (6,))]


def test_both_are_disjoint() -> None:
    with breaks(NovaRule.CPU_SETS_OVERLAP, match="got '2'"):
        host_settings(cpu_shared_set="0-2", cpu_dedicated_set="2-3")


def test_the_pin_set_serves_either_way() -> None:
    assert served(vcpu_pin_set="1-2,5") == [((1, 2), (1, 2)), ((5,), (5,))]


def test_the_pin_set_stands_with_no_dedicated_set() -> None:
    with breaks(NovaRule.PIN_SET_CONFLICT):
        host_settings(vcpu_pin_set="1-2", cpu_dedicated_set="3")


def test_with_the_pin_set_the_shared_set_has_no_say() -> None:
    pinned = host_settings(vcpu_pin_set="1-2", cpu_shared_set="0-7")
    assert pinned == host_settings(vcpu_pin_set="1-2")


@pytest.mark.parametrize("unset", [None, ""])
def test_with_no_set_all_cpus_are_shared(unset: str | None) -> None:
    sets = host_settings(cpu_shared_set=unset, cpu_dedicated_set=unset, vcpu_pin_set=unset)
    assert sets == HostSettings()
    cells = configured_cells(host(), sets)
    assert [cell.shared for cell in cells] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [cell.dedicated for cell in cells] == [(), ()]


@pytest.mark.parametrize("option", ["cpu_shared_set", "cpu_dedicated_set", "vcpu_pin_set"])
def test_an_option_that_is_set_leaves_some_cpu(option: str) -> None:
    with breaks(NovaRule.CPU_SET_EMPTY, match=option):
        host_settings(**{option: "0-3,^0-7"})
    with breaks(NovaRule.INVALID_CPU_LIST, match=option):
        host_settings(**{option: "some"})


@pytest.mark.parametrize("option", ["cpu_shared_set", "cpu_dedicated_set", "vcpu_pin_set"])
def test_a_set_names_cpus_of_the_host(option: str) -> None:
    with breaks(NovaRule.CPUS_NOT_OF_HOST, match="got '8-9', expected CPUs among 0-7"):
        configured_cells(host(), host_settings(**{option: "7-9"}))


def test_cores_remain_as_they_are() -> None:
    cells = configured_cells(host(), host_settings(cpu_dedicated_set="2"))
    assert [cell.siblings for cell in cells] == [cell.siblings for cell in host()]


def test_cpus_that_the_cells_keep_are_not_given_away() -> None:
    stored = HostCell(0, shared=[0, 1], siblings=[(0, 2), (1, 3)])
    assert configured_cells([stored])[0].shared == (0, 1)
    with breaks(NovaRule.CPUS_NOT_OF_HOST):
        configured_cells([stored], host_settings(cpu_dedicated_set="2"))


# --- reserved_huge_pages ---


def test_an_entry_names_a_cell_a_size_and_a_count() -> None:
    assert reserved_pages(["node:0,size:2048,count:64"]) == {0: {2048: 64}}


@pytest.mark.parametrize(
    ("size", "kib"), [("2048", 2048), ("2MB", 2048), ("1GB", 1048576), ("4", 4)]
)
def test_a_size_is_in_kib_or_has_a_unit(size: str, kib: int) -> None:
    assert reserved_pages([f"node:1,size:{size},count:1"]) == {1: {kib: 1}}


def test_an_entry_may_be_the_mapping_that_the_configuration_library_makes() -> None:
    entry = {"count": "64", "node": "0", "size": "2MB"}
    assert reserved_pages([entry]) == reserved_pages([" count: 64 , size:2MB,node:0"])


def test_entries_are_gathered_by_cell() -> None:
    assert reserved_pages(
        ["node:0,size:2048,count:64", "node:1,size:2048,count:2", "node:0,size:4,count:9"]
    ) == {0: {2048: 64, 4: 9}, 1: {2048: 2}}
    assert reserved_pages([]) == {}


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "node:0",
        "node:0,size:2048",
        "node:x,size:2048,count:1",
        "node:0,size:big,count:1",
        "node:0,size:2048,count:-1",
        "node:0,size:2048,count:1,more:1",
        "0,2048,64",
        None,
        7,
        "node:0,node:1,size:2048,count:1",
        "node:0,size:3000,count:1",
        "node:0,size:large,count:1",
        {},
        {"node": 0},
        {"node": "0", "size": "2048", "count": 1.5},
        {"node": [], "size": 4, "count": 1},
    ],
)
def test_an_entry_that_cannot_be_read_is_refused(entry: Any) -> None:
    with breaks(NovaRule.INVALID_RESERVED_PAGES, match="reserved_huge_pages"):
        reserved_pages([entry])


@pytest.mark.parametrize("entries", ["node:0,size:2048,count:64", {"node": "0"}, None, 7])
def test_entries_are_a_list(entries: Any) -> None:
    with breaks(NovaRule.NOT_WORDS):
        reserved_pages(entries)


def test_the_same_pages_are_not_reserved_twice() -> None:
    with breaks(NovaRule.PAGES_RESERVED_TWICE):
        reserved_pages(["node:0,size:2048,count:64", "node:0,size:2MB,count:1"])


def test_reserved_pages_are_stored_in_the_cell() -> None:
    first, second = configured_cells(
        host(), host_settings(reserved_huge_pages=["node:1,size:2MB,count:500"])
    )
    assert [pool.reserved for pool in first.pages] == [0, 0, 0]
    assert [pool.reserved for pool in second.pages] == [0, 500, 0]


def test_pages_that_are_not_named_remain_reserved_as_they_are() -> None:
    (cell,) = configured_cells(
        [HostCell(0, memory_mb=64, pages=[PagePool(size_kib=4, total=16384, reserved=7)])],
        host_settings(reserved_huge_pages=[]),
    )
    assert cell.pages[0].reserved == 7


@pytest.mark.parametrize("entry", ["node:2,size:2048,count:1", "node:0,size:16MB,count:1"])
def test_pages_that_the_host_does_not_have_are_refused_where_nova_ignores_them(entry: str) -> None:
    with breaks(NovaRule.RESERVED_PAGES_NOT_OF_HOST):
        configured_cells(host(), host_settings(reserved_huge_pages=[entry]))


def test_no_more_pages_are_reserved_than_there_are() -> None:
    with breaks(NovaRule.TOO_MANY_PAGES_RESERVED, match="got 2, expected at most 1"):
        configured_cells(host(), host_settings(reserved_huge_pages=["node:0,size:1GB,count:2"]))


@pytest.mark.parametrize("cells", [None, [7], {"0": 1}])
def test_what_are_no_cells_is_refused(cells: Any) -> None:
    with breaks(NovaRule.NOT_WORDS, match="HostCells"):
        configured_cells(cells)


@pytest.mark.parametrize("cpus", [{"x": 1}, {}, 7, "0-3", (0, 1)])
def test_what_are_no_settings_is_refused(cpus: Any) -> None:
    with breaks(NovaRule.NOT_WORDS, match=r"settings: got .*host_settings"):
        configured_cells(host(), cpus)


def test_an_inventory_of_the_cells_gives_what_the_options_leave() -> None:
    cells = configured_cells(
        host(),
        host_settings(
            cpu_shared_set="0,4",
            cpu_dedicated_set="1-3,5-7",
            reserved_huge_pages=["node:0,size:1GB,count:1"],
        ),
    )
    inventory = NUMATopologyInventory(cells)
    placed = inventory.fit(numa(dedicated=2, memory_mb=1024, page_size="1GB"))
    assert placed.placed[0].cell == 1
    assert not inventory.can_provide(numa(dedicated=4))


# --- any options ---


@given(*[st.none() | st.text("0123456789,^- x", max_size=12)] * 3)
def test_any_sets_are_read_or_refused(
    shared: str | None, dedicated: str | None, pinned: str | None
) -> None:
    try:
        sets = host_settings(
            cpu_shared_set=shared, cpu_dedicated_set=dedicated, vcpu_pin_set=pinned
        )
        cells = configured_cells(host(), sets)
    except InvalidInput as error:
        assert isinstance(error, InvalidNovaInput)
        return
    given_out = {cpu for cell in cells for cpu in cell.dedicated}
    assert given_out == set(sets.dedicated or ())


@given(
    st.lists(st.text(max_size=20) | st.text("nodesizcut:,0123456789MGB", max_size=30), max_size=3)
)
def test_any_entries_are_read_or_refused(entries: list[str]) -> None:
    try:
        reserved_pages(entries)
    except InvalidInput as error:
        assert isinstance(error, InvalidNovaInput)


CPUS = st.none() | st.lists(st.integers(-1, 9), max_size=4).map(tuple)
PAGES = st.dictionaries(
    st.integers(0, 2),
    st.dictionaries(
        st.sampled_from([4, 2048, 3]), st.integers(-1, 600) | st.just(2**70), max_size=2
    ),
    max_size=2,
)


@given(CPUS, CPUS, PAGES)
def test_any_sets_and_pages_are_taken_or_refused(shared: Any, dedicated: Any, pages: Any) -> None:
    try:
        settings = HostSettings(shared=shared, dedicated=dedicated, reserved_pages=pages)
        cells = configured_cells(host(), settings)
    except InvalidInput:
        return
    NUMATopologyInventory(cells)
