"""From the facts of a machine to the inventory of its cells: the rules, and generated machines."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.host.linux import read_machine
from resource_objects.host.machine import MIB, Core, Machine, NUMACell, Pages
from resource_objects.host.settings import HostSettings
from resource_objects.host.tree import numa_inventory
from resource_objects.resources.numa import PagePool, numa
from resource_objects.testing.refusals import raises_code
from tests.host.trees import configured
from tests.support.lengths import examples

GIB = 1024 * MIB


def cores(*groups: tuple[int, ...]) -> tuple[Core, ...]:
    return tuple(Core(0, number, cpus) for number, cpus in enumerate(groups))


def box(**facts) -> Machine:
    """Two cells of two cores with two threads, and 2 GiB each, of which a half in huge pages."""
    pages = (Pages(4096, 262144), Pages(2 * MIB, 512, 500))
    value = {
        "hostname": "box",
        "cpus": tuple(range(8)),
        "cores": cores((0, 4), (1, 5), (2, 6), (3, 7)),
        "memory_bytes": 4 * GIB,
        "huge_pages": (Pages(2 * MIB, 1024, 1000),),
        "cells": (
            NUMACell(0, (0, 1, 4, 5), 2 * GIB, pages, 0, (10, 21)),
            NUMACell(3, (2, 3, 6, 7), 2 * GIB, pages, 1, (21, 10)),
        ),
    }
    return Machine(**(value | facts))


def only(machine: Machine, **settings):
    """The one cell of a machine, as a host cell."""
    (cell,) = configured(numa_inventory, machine, **settings).cells
    return cell


# --- CPUs ---------------------------------------------------------------------------------------


def test_the_sets_are_spread_over_the_cells_and_the_rest_is_the_hosts_own():
    inventory = numa_inventory(box(), HostSettings(shared="4-5", dedicated="2-3,6"))
    assert [(c.id, c.shared, c.dedicated) for c in inventory.cells] == [
        (0, (4, 5), ()),
        (3, (), (2, 3, 6)),
    ]
    assert [cell.cpus for cell in inventory.cells] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert [cell.siblings for cell in inventory.cells] == [((0, 4), (1, 5)), ((2, 6), (3, 7))]


def test_without_sets_all_cpus_are_shared():
    assert [cell.shared for cell in numa_inventory(box()).cells] == [(0, 1, 4, 5), (2, 3, 6, 7)]


def test_a_cpu_of_the_host_is_known_where_its_core_has_one_thread():
    item = box(
        cpus=(0, 1),
        cores=cores((0,), (1,)),
        cells=(NUMACell(0, (0, 1), GIB),),
    )
    cell = only(item, dedicated="1")
    assert (cell.cpus, cell.siblings, cell.threads_per_core) == ((0, 1), ((0,),), 1)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_cores_of_one_to_four_threads(threads):
    groups = [tuple(range(first, first + threads)) for first in (0, threads)]
    cpus = tuple(range(2 * threads))
    machine = box(cpus=cpus, cores=cores(*groups), cells=(NUMACell(0, cpus, GIB),))
    inventory = numa_inventory(machine, HostSettings(dedicated=cpus))
    assert inventory.cells[0].threads_per_core == threads
    taken = inventory.fit(numa(dedicated=threads))
    assert taken.placed[0].pinned == tuple(groups[0])


def test_cores_of_one_machine_may_have_different_numbers_of_threads():
    hybrid = box(
        cpus=(0, 1, 2, 3),
        cores=cores((0, 1), (2,), (3,)),
        cells=(NUMACell(0, (0, 1, 2, 3), GIB),),
    )
    assert only(hybrid, dedicated="0-3").siblings == ((0, 1),)
    taken = numa_inventory(hybrid, HostSettings(dedicated="0-3")).fit(
        numa(dedicated=2, thread_policy="require")
    )
    assert taken.cpuset == "0-1"


def test_an_offline_cpu_is_not_there_and_its_sibling_is_a_core_individually():
    machine = box(
        cpus=(0, 1, 4),
        offline_cpus=(5,),
        cores=cores((0, 4), (1,)),
        cells=(NUMACell(0, (0, 1, 4), GIB),),
    )
    assert only(machine, dedicated="0,1,4").siblings == ((0, 4),)
    with pytest.raises(exceptions.InvalidInventory, match="dedicated CPUs: got '5', expected CPUs"):
        numa_inventory(machine, HostSettings(dedicated="0,1,4-5"))


def test_a_core_that_is_in_two_cells_is_one_in_each():
    machine = box(
        cpus=(0, 1, 2, 3),
        cores=cores((0, 1, 2, 3)),
        cells=(NUMACell(0, (0, 1), GIB), NUMACell(1, (2, 3), GIB)),
    )
    assert [cell.siblings for cell in numa_inventory(machine).cells] == [((0, 1),), ((2, 3),)]


def test_a_cpu_in_no_cell_is_in_none():
    machine = box(cpus=(0, 1), cores=cores((0,), (1,)), cells=(NUMACell(0, (0,), GIB),))
    assert [cell.cpus for cell in numa_inventory(machine, HostSettings(dedicated="0-1")).cells] == [
        (0,)
    ]


def test_what_a_cgroup_leaves_is_all_there_is():
    part = box().restrict(cpus=[1, 5, 2], cells=[0])
    (first,) = numa_inventory(part).cells  # the memory of the other may not be used
    assert (first.id, first.cpus, first.memory_mb) == (0, (1, 5), 2048)
    with pytest.raises(exceptions.InvalidInventory, match="got '0', expected CPUs that are online"):
        numa_inventory(part, HostSettings(dedicated="0-1"))


# --- cells --------------------------------------------------------------------------------------


def test_a_machine_without_cells_has_no_inventory():
    assert numa_inventory(box(cells=())) is None


def test_cells_keep_their_numbers_sockets_and_distances():
    first, second = numa_inventory(box()).cells
    assert [(cell.id, cell.socket) for cell in (first, second)] == [(0, 0), (3, 1)]
    assert (dict(first.distances), dict(second.distances)) == ({0: 10, 3: 21}, {0: 21, 3: 10})


def test_unknown_distances_are_none():
    assert only(box(cells=(NUMACell(0, (), GIB),))).distances == ()


def test_a_cell_without_cpus_is_a_host_cell_like_any_other():
    tiers = box(
        cells=(
            NUMACell(0, tuple(range(8)), GIB, package_id=0, distances=(10, 14)),
            NUMACell(1, (), 4 * GIB, distances=(14, 10), initiators=(0,)),
        )
    )
    inventory = numa_inventory(tiers, HostSettings(dedicated="0-7"))
    assert inventory.cell(1).cpus == ()
    assert inventory.consume(numa(memory_mb=4096)).memory_nodes == "1"
    # a request of two guest cells may have its memory there and its CPUs here
    both = numa([numa(dedicated=2).cells[0], numa(memory_mb=1024).cells[0]])
    assert numa_inventory(tiers, HostSettings(dedicated="0-7")).fit(both).memory_nodes == "0-1"


@pytest.mark.parametrize(
    ("initiators", "socket"), [((0,), 0), ((0, 1), 0), ((2,), 1), ((0, 2), None), ((), None)]
)
def test_a_cell_without_cpus_is_in_the_socket_of_those_that_reach_it_best(initiators, socket):
    machine = box(
        cpus=(0, 1, 2),
        cores=cores((0,), (1,), (2,)),
        cells=(
            NUMACell(0, (0,), GIB, package_id=0),
            NUMACell(1, (1,), GIB, package_id=0),
            NUMACell(2, (2,), GIB, package_id=1),
            NUMACell(3, (), GIB, initiators=initiators),
        ),
    )
    assert numa_inventory(machine).cell(3).socket == socket


def test_a_cell_whose_cpus_are_in_several_sockets_is_in_none():
    assert only(box(cells=(NUMACell(0, tuple(range(8)), GIB),))).socket is None


def test_a_cell_without_memory_gives_cpus():
    cell = only(box(cells=(NUMACell(0, tuple(range(8)), 0),)), dedicated="0-7")
    assert (cell.memory_mb, cell.pages, len(cell.dedicated)) == (0, (), 8)


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [4, 16, 64])
def test_base_pages_of_any_size_are_ordinary_memory(base):
    pages = (Pages(base * 1024, GIB // (base * 1024)), Pages(2 * MIB, 512))
    cell = only(box(cells=(NUMACell(0, (), 2 * GIB, pages),)))
    assert (cell.base_kib, cell.ordinary_mb, cell.memory_mb) == (base, 1024, 2048)
    assert cell.huge_pages == (PagePool(size_kib=2048, total=512),)


def test_the_base_pages_of_a_captured_machine_are_those_that_are_specified(tmp_path, trees):
    trees.write(tmp_path, trees.Shape(memory_kib=(1 << 20,), huge=({2048: 16},)))
    machine = read_machine(tmp_path, page_size_bytes=65536)
    cell = only(machine)
    assert [(pool.size_kib, pool.total) for pool in cell.pages] == [(64, 16384), (2048, 16)]
    assert cell.ordinary_mb == 1024


def test_pages_of_several_sizes_with_some_stored_for_the_host():
    pages = (Pages(4096, 262144), Pages(2 * MIB, 512), Pages(GIB, 2))
    machine = box(cells=(NUMACell(0, (), 4 * GIB, pages),))
    cell = only(machine, reserved_pages={0: {"2MB": 64, 1048576: 1, 4: 25600}})
    assert [(pool.size_kib, pool.reserved) for pool in cell.pages] == [
        (4, 25600),
        (2048, 64),
        (1048576, 1),
    ]
    assert [pool.free_mb for pool in cell.pages] == [924, 896, 1024]
    assert cell.ordinary_mb == 924
    text = only(machine, reserved_pages="0:2MB=64, 0:1GB=1,0:4=25600")
    assert text == cell


def test_less_than_a_mebibyte_is_left_out():
    pages = (Pages(4096, 2 * 256 - 1),)
    cell = only(box(cells=(NUMACell(0, (), 2 * MIB - 1, pages),)))
    assert (cell.memory_mb, cell.ordinary_mb) == (1, 1)


def test_a_mebibyte_that_huge_pages_are_in_counts_whole():
    pages = (Pages(4096, 4), Pages(65536, 17))
    size = 17 * 65536 + 4 * 4096
    cell = only(box(cells=(NUMACell(0, (), size, pages),)))
    assert (cell.memory_mb, cell.ordinary_mb, cell.huge_pages[0].total) == (2, 0, 17)


def test_where_huge_pages_are_is_not_known_no_cell_offers_any():
    machine = box(cells=(NUMACell(0, tuple(range(8)), 4 * GIB, (Pages(4096, 1048576),)),))
    assert only(machine).huge_pages == ()


def test_ratios_and_networks_are_those_given():
    inventory = numa_inventory(
        box(),
        HostSettings(ratios={"VCPU": "4.5", "MEMORY_MB": 1.5}),
        physnets={0: ["physnet0", "physnet1"], 3: "physnet2"},
        tunneled=[3],
    )
    assert (str(inventory.cpu_ratio), str(inventory.memory_ratio)) == ("4.5", "1.5")
    assert [sorted(cell.physnets) for cell in inventory.cells] == [
        ["physnet0", "physnet1"],
        ["physnet2"],
    ]
    assert [cell.tunneled for cell in inventory.cells] == [False, True]


# --- what cannot be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"reserved_pages": {1: {2048: 1}}},
            exceptions.InvalidInventory,
            "reserved pages: cell: got 1, expected a cell of the machine: 0, 3",
        ),
        (
            {"reserved_pages": {0: {"1GB": 1}}},
            exceptions.InvalidInventory,
            "reserved pages: size: got '1 GiB', expected one that cell 0 has: 4 KiB, 2 MiB",
        ),
        (
            {"reserved_pages": {0: {2048: 513}}},
            exceptions.InvalidInventory,
            "reserved pages of 2 MiB of cell 0: got 513, expected 0 to 512",
        ),
        ({"reserved_pages": {0: {2048: -1}}}, exceptions.InvalidInventory, "got -1"),
        ({"reserved_pages": {0: {2048: 1.0}}}, exceptions.InvalidInventory, "got 1.0"),
        ({"reserved_pages": {0: {"large": 1}}}, "InvalidText", "got 'large'"),
        ({"reserved_pages": {0: {"x": 1}}}, "InvalidText", "size: got 'x'"),
        ({"reserved_pages": {0: {2048: 1, "2MB": 1}}}, "DuplicateKey", "got '2 MiB'"),
        ({"reserved_pages": {0: 5}}, exceptions.InvalidInput, "reserved pages of cell 0: got 5"),
        ({"reserved_pages": 5}, exceptions.InvalidInput, "reserved pages: got 5"),
        ({"reserved_pages": {"0": {}}}, exceptions.InvalidInventory, "cell: got '0'"),
        ({"reserved_pages": "0:2MB"}, "InvalidText", "got '0:2MB', expected CELL:SIZE"),
        ({"reserved_pages": "2MB=64"}, "InvalidText", "got '2MB=64'"),
        ({"reserved_pages": "x:2MB=64"}, "InvalidText", "got 'x:2MB=64'"),
        ({"reserved_pages": "0:2MB=many"}, "InvalidText", "count: got 'many'"),
        ({"reserved_pages": "0:2MB=1,0:2MB=2"}, "DuplicateKey", "got '0:2MB'"),
        ({"physnets": {1: ["net"]}}, exceptions.InvalidInventory, "physnets: cell: got 1"),
        ({"physnets": ["net"]}, exceptions.InvalidInput, "physnets: got ['net']"),
        ({"tunneled": [2]}, exceptions.InvalidInventory, "tunneled: cell: got 2"),
        ({"tunneled": "0"}, exceptions.InvalidInput, "tunneled: got '0'"),
        ({"ratios": {"VCPU": 0}}, "InvalidRatio", "got 0"),
        ({"ratios": "MEMORY_MB=x"}, "InvalidRatio", "got 'x'"),
        ({"dedicated": "8"}, exceptions.InvalidInventory, "dedicated CPUs: got '8'"),
    ],
)
def test_settings_that_the_machine_cannot_have_are_refused_by_name(settings, error, message):
    with raises_code(error) as refused:
        configured(numa_inventory, box(), **settings)
    assert message in str(refused.value)


@pytest.mark.parametrize("size", [3000, 3 * 4096])
def test_a_page_size_that_is_no_power_of_two_is_refused(size):
    machine = box(cells=(NUMACell(5, (), MIB, (Pages(size, 1),)),))
    with pytest.raises(exceptions.InvalidInventory, match=f"page size of cell 5: got {size}"):
        numa_inventory(machine)


def test_what_is_no_machine_is_refused():
    with pytest.raises(exceptions.InvalidInput, match="machine: got 'box', expected a Machine"):
        numa_inventory("box")


# --- generated machines -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes(trees):
    return trees.shapes()


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_machine_has_the_cells_of_its_facts(data, trees, shapes):
    machine = trees.expected(data.draw(shapes))
    dedicated = data.draw(st.frozensets(st.sampled_from(machine.cpus)))
    inventory = numa_inventory(machine, HostSettings(dedicated=dedicated or None))
    assert [cell.id for cell in inventory.cells] == [cell.id for cell in machine.cells]
    threads = {cpu: core.cpus for core in machine.cores for cpu in core.cpus}
    for result, fact in zip(inventory.cells, machine.cells, strict=True):
        assert result.cpus == fact.cpus
        assert set(result.dedicated) == dedicated.intersection(fact.cpus)
        assert result.shared == (() if dedicated else fact.cpus)
        for core in result.siblings:
            assert set(core) == set(threads[core[0]])
        named = {cpu for core in result.siblings for cpu in core}
        assert named >= {cpu for cpu in fact.cpus if len(threads[cpu]) > 1}
        counted = {pool.size_kib * 1024: pool.total for pool in result.pages}
        assert counted == {pages.size_bytes: pages.total for pages in fact.pages}
        huge = sum(pages.memory_bytes for pages in fact.huge_pages)
        assert 0 <= (fact.memory_bytes - huge) / MIB - result.ordinary_mb < 2
        assert result.memory_mb in (fact.memory_mb, fact.memory_mb + 1)
        assert [far for _, far in result.distances] == list(fact.distances)


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_the_same_facts_give_the_same_inventory(data, trees, shapes):
    shape = data.draw(shapes)
    item, other = (numa_inventory(trees.expected(shape)) for _ in range(2))
    assert item == other
    renamed = dataclasses.replace(trees.expected(shape), hostname="other")
    assert numa_inventory(renamed) == item
