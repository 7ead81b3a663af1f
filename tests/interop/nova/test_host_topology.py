"""A host's topology is read in every version Nova wrote, and written in the newest."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import CannotDowngrade, InvalidInventory
from resource_objects.interop.nova import dump_host_numa_topology, load_host_numa_topology
from resource_objects.interop.nova.primitive import HOST_CELL, KNOWN
from resource_objects.resources.numa import CellUsage, HostCell, NUMATopologyInventory, PagePool
from resource_objects.testing.refusals import raises_code
from tests.interop.nova import documents
from tests.interop.nova.documents import HOSTS, PLAIN_HOST
from tests.support.numa_strategies import numa_inventories

VERSIONS = tuple(KNOWN[HOST_CELL])
CPUS = {"shared": range(4), "dedicated": range(4)}


def cell_of(document: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """Return the data of a cell, to be changed in place."""
    cell: dict[str, Any] = document["nova_object.data"]["cells"][number]["nova_object.data"]
    return cell


def changed(version: str, **data: Any) -> dict[str, Any]:
    """Return the host of a version with some data of its cell changed."""
    document = copy.deepcopy(HOSTS[version])
    cell_of(document).update(data)
    return document


# --- every version is read --------------------------------------------------------------------


def test_the_first_version_has_cpus_that_serve_either_way_and_memory():
    assert load_host_numa_topology(documents.text(HOSTS["1.0"])) == NUMATopologyInventory(
        [HostCell(0, **CPUS, memory_mb=4096)], usage=[CellUsage(0, shared=2, memory_mb=1024)]
    )


def test_the_second_version_has_pinned_cpus_and_counts_them_as_used():
    assert load_host_numa_topology(HOSTS["1.1"]) == NUMATopologyInventory(
        [HostCell(0, **CPUS, siblings=[(0, 1), (2, 3)], memory_mb=4096)],
        usage=[CellUsage(0, shared=2, pinned=[2, 3], memory_mb=1024)],
    )


def test_memory_in_huge_pages_is_not_ordinary_memory():
    host = load_host_numa_topology(HOSTS["1.2"])
    assert host.cells[0].pages == (
        PagePool(size_kib=4, total=524288, reserved=0),
        PagePool(size_kib=2048, total=1024, reserved=0),
    )
    assert (host.usage[0].memory_mb, host.usage[0].pages) == (1024 - 256 * 2, ((2048, 256),))


def test_reserved_pages_and_networks_are_facts_of_the_cell():
    (cell,) = load_host_numa_topology(HOSTS["1.3"]).cells
    assert cell.pages[1].reserved == 64
    assert (cell.physnets, cell.tunneled) == ({"red"}, True)


def test_dedicated_cpus_are_apart_once_the_version_knows_them():
    host = load_host_numa_topology(HOSTS["1.4"])
    assert (host.cells[0].shared, host.cells[0].dedicated) == ((0, 1), (2, 3))


def test_the_newest_version_says_all():
    assert load_host_numa_topology(HOSTS["1.5"]) == NUMATopologyInventory(
        [
            HostCell(
                0,
                shared=[0, 1],
                dedicated=[2, 3],
                siblings=[(0, 1), (2, 3)],
                memory_mb=4096,
                pages=[
                    PagePool(size_kib=4, total=524288, reserved=0),
                    PagePool(size_kib=2048, total=1024, reserved=64),
                ],
                socket=1,
                physnets=["red"],
                tunneled=True,
            )
        ],
        usage=[CellUsage(0, shared=2, pinned=[2, 3], memory_mb=512, pages={2048: 256})],
    )


def test_a_plain_dict_from_before_liberty_is_read():
    assert load_host_numa_topology(PLAIN_HOST) == NUMATopologyInventory(
        [
            HostCell(0, **CPUS, memory_mb=4096),
            HostCell(1, shared=range(4, 8), dedicated=range(4, 8), memory_mb=4096),
        ],
        usage=[CellUsage(0, shared=2, memory_mb=1024), CellUsage(1)],
    )


def test_limits_in_a_plain_dict_are_the_schedulers():
    limits = {"cpu_limit": 16, "mem": {"total": 512, "limit": 1024}, "id": 0, "cpus": ""}
    assert load_host_numa_topology({"cells": [limits]}) == NUMATopologyInventory(
        [HostCell(0, memory_mb=512)]
    )


def test_content_decides_where_a_version_lies():
    document = changed("1.3", cpuset=[0], pcpuset=[2, 3], cpu_usage=2)
    host = load_host_numa_topology(document)
    assert (host.cells[0].shared, host.cells[0].dedicated) == ((0,), (2, 3))


def test_ratios_are_the_callers():
    host = load_host_numa_topology(PLAIN_HOST, cpu_ratio=4.0, memory_ratio="1.5")
    assert (host.cpu_ratio, host.memory_ratio) == (4, Decimal("1.5"))
    with raises_code("InvalidRatio"):
        load_host_numa_topology(PLAIN_HOST, cpu_ratio=0)


def test_what_nova_has_in_memory_is_read_too_with_sets_as_tuples():
    document = changed("1.5", cpuset=(1, 0), pcpuset={2, 3}, siblings=[(1, 0), {2, 3}])
    assert load_host_numa_topology(document) == load_host_numa_topology(HOSTS["1.5"])


def test_fields_that_were_not_set_stand_for_nothing():
    bare = documents.host("1.5", {"id": 3, "cpuset": [], "pcpuset": [], "memory": 64})
    assert load_host_numa_topology(bare) == NUMATopologyInventory([HostCell(3, memory_mb=64)])


def test_pages_come_by_size_and_empty_sibling_sets_are_dropped():
    mempages = [documents.pages(2048, 512), documents.pages(4, 1024, 99)]
    document = changed("1.4", mempages=mempages, siblings=[[], [3, 2], []], cpu_usage=0)
    (cell,) = load_host_numa_topology(document).cells
    assert [pool.size_kib for pool in cell.pages] == [4, 2048]
    assert cell.siblings == ((2, 3),)


@pytest.mark.parametrize("kind", [list, tuple, set], ids=lambda kind: kind.__name__)
def test_cores_come_in_one_order_whichever_they_were_in(kind: Callable[[Any], Any]):
    cores = [kind([3, 2]), kind([]), kind([1, 0])]
    assert load_host_numa_topology(changed("1.5", siblings=cores)) == load_host_numa_topology(
        HOSTS["1.5"]
    )


def test_memory_that_is_neither_ordinary_nor_huge_serves_no_consumer():
    pages = [documents.pages(4, 1024, reserved=256), documents.pages(2048, 3)]
    data = {"cpu_usage": 0, "memory_usage": 0, "mempages": pages}
    for memory, ordinary in ((4096, 3), (8, 2)):
        host = load_host_numa_topology(changed("1.5", **data, memory=memory))
        assert host.cells[0].ordinary_mb == host.free_memory_mb == ordinary
        assert again(host) == host


def test_what_is_used_of_the_smallest_pages_is_identified_by_the_memory():
    mempages = [documents.pages(4, 1024, 77)]
    assert load_host_numa_topology(changed("1.2", mempages=mempages)).usage[0].memory_mb == 1024


# --- whether pinned CPUs are counted as used ---


@pytest.mark.parametrize(
    ("version", "used", "stated", "shared"),
    [
        ("1.3", 4, None, 2),
        ("1.3", 4, False, 4),
        ("1.4", 1, None, 1),
        ("1.4", 4, True, 2),
        ("1.4", 4, False, 4),
        ("1.5", 4, None, 4),
        ("1.5", 4, True, 2),
    ],
)
def test_pinned_cpus_are_counted_as_the_version_says_or_the_caller(
    version: str, used: int, stated: bool | None, shared: int
):
    document = changed(version, cpu_usage=used)
    assert load_host_numa_topology(document, counts_pinned=stated).usage[0].shared == shared


def test_a_cell_without_shared_cpus_tells_that_the_pinned_are_counted():
    document = changed("1.4", cpuset=[], cpu_usage=2)
    assert load_host_numa_topology(document).usage[0].shared == 0


def test_where_it_cannot_be_reported_the_parameter_is_demanded():
    with raises_code("InvalidPrimitive", match=r"cells\[0\].cpu_usage: got 3, .*counts_pinned="):
        load_host_numa_topology(changed("1.4", cpu_usage=3))


def test_less_use_than_pinned_cpus_that_count_as_use_is_refused():
    with raises_code("InvalidPrimitive", match="cpu_usage: got 1, expected at least the 2 pinned"):
        load_host_numa_topology(changed("1.3", cpu_usage=1))


# --- bad input ------------------------------------------------------------------------------------

BAD_CELLS = {
    "id below 0": ({"id": -1}, "id"),
    "id of another type": ({"id": "0"}, "id"),
    "id that is a bool": ({"id": True}, "id"),
    "cpuset missing": ({"cpuset": None}, "cpuset"),
    "cpuset as text": ({"cpuset": "0-3"}, "cpuset"),
    "CPU below 0": ({"cpuset": [-1]}, "cpuset"),
    "CPU beyond all machines": ({"pcpuset": [2, 3, 2**20]}, "pcpuset"),
    "CPU that is no number": ({"pinned_cpus": [2.0]}, "pinned_cpus"),
    "CPU that is true": ({"pinned_cpus": [True]}, "pinned_cpus"),
    "list within a list": ({"cpuset": [[0]]}, "cpuset"),
    "pinned where nothing is dedicated": ({"pinned_cpus": [0]}, ": pinned CPUs"),
    "CPUs that overlap in part": (
        {"cpuset": [1, 0], "pcpuset": [1, 2]},
        ": shared and dedicated CPUs of cell 0",
    ),
    "shared CPUs among dedicated ones": ({"pcpuset": [0, 1, 2]}, ": shared and dedicated CPUs"),
    "siblings that overlap": ({"siblings": [[0, 1], [1, 2]]}, "siblings"),
    "siblings that are numbers": ({"siblings": [0, 1]}, "siblings"),
    "memory below 0": ({"memory": -1}, "memory"),
    "memory that is a fraction": ({"memory": 0.5}, "memory"),
    "more memory than is counted": ({"memory": 2**40}, "memory"),
    "use below 0": ({"memory_usage": -1}, "memory_usage"),
    "more in huge pages than in all": ({"memory_usage": 511}, "memory_usage"),
    "pages that are no list": ({"mempages": {}}, "mempages"),
    "pages that are no object": ({"mempages": [4]}, r"mempages\[0\]"),
    "page size": ({"mempages": [documents.pages(3, 1)]}, r"mempages\[0\]: page size"),
    "page size that does not hash": ({"mempages": [documents.pages([], 1)]}, r"mempages\[0\]"),
    "page size that is true": ({"mempages": [documents.pages(True, 1)]}, r"mempages\[0\].size"),
    "page size twice": ({"mempages": [documents.pages(4, 1)] * 2}, ": page sizes"),
    "more pages reserved than there are": (
        {"mempages": [documents.pages(4, 1, reserved=2)]},
        r"mempages\[0\]: reserved",
    ),
    "more huge pages than memory": (
        {"mempages": [documents.pages(4, 1), documents.pages(2048, 4096)]},
        ": huge pages",
    ),
    "network without a name": ({"network_metadata": documents.networks("")}, "physnets"),
    "tunneled as text": (
        {"network_metadata": documents.networks(tunneled="no")},  # type: ignore[arg-type]
        "network_metadata.tunneled",
    ),
    "networks of another kind": ({"network_metadata": HOSTS["1.0"]}, "nova_object.name"),
    "socket as text": ({"socket": "0"}, "socket"),
    "a name misspelled": ({"pcpusett": []}, "pcpusett"),
}


@pytest.mark.parametrize("name", BAD_CELLS)
def test_a_bad_cell_is_refused_by_path_and_value(name: str):
    data, place = BAD_CELLS[name]
    with raises_code(
        "InvalidPrimitive", match=rf"numa_topology\.cells.*{place}.*: got .*, expected"
    ):
        load_host_numa_topology(changed("1.5", **data))


SOME_CPUS = st.lists(st.integers(0, 4), max_size=4, unique=True)


@given(SOME_CPUS, SOME_CPUS, st.lists(SOME_CPUS, max_size=3), st.integers(0, 6))
def test_a_cell_is_read_if_and_only_if_it_can_be_made(
    shared: list[int], dedicated: list[int], cores: list[list[int]], memory_mb: int
):
    created: HostCell | None
    pages = [PagePool(size_kib=4, total=512, reserved=128), PagePool(size_kib=2048, total=2)]
    data = {
        "id": 0,
        "cpuset": shared,
        "pcpuset": dedicated,
        "siblings": cores,
        "memory": memory_mb,
        "mempages": [documents.pages(2048, 2), documents.pages(4, 512, reserved=128)],
    }
    try:
        created = HostCell(
            0,
            shared=shared,
            dedicated=dedicated,
            siblings=[core for core in cores if core],
            memory_mb=memory_mb,
            pages=pages,
        )
    except InvalidInventory:
        created = None
    document = documents.host("1.5", data)
    if created is None:
        with raises_code("InvalidPrimitive", match=r"^numa_topology\.cells\[0\]: .*, expected "):
            load_host_numa_topology(document)
        return
    result = load_host_numa_topology(document)
    assert result == NUMATopologyInventory([created])
    assert again(result) == NUMATopologyInventory([documents.sayable(created)])


def test_the_path_names_the_cell():
    good = cell_of(HOSTS["1.5"])
    bad = {**good, "id": 1, "cpuset": [], "pcpuset": [], "pinned_cpus": [], "siblings": None}
    with raises_code("InvalidPrimitive") as caught:
        load_host_numa_topology(documents.host("1.5", good, bad))
    assert (caught.value.what, caught.value.value) == ("numa_topology.cells[1].siblings", None)


BAD_DOCUMENTS = {
    "nothing": None,
    "a number": 7,
    "no JSON": "{",
    "no text": b"\xff\xfe\x00",
    "JSON of another thing": "[]",
    "null": "null",
    "an integer of 5000 digits": "1" * 5000,
    "nothing in it": {},
    "no cells": {"cells": []},
    "cells that are none": {"cells": {}},
    "plain cells that are none": {"cells": [7]},
    "a plain field misspelled": {"cells": [{"id": 0, "cpu": "0"}]},
    "plain memory misspelled": {"cells": [{"id": 0, "mem": {"sum": 1}}]},
    "a plain list of CPUs that is none": {"cells": [{"id": 0, "cpus": "0-"}]},
    "a plain list of CPUs that is a list": {"cells": [{"id": 0, "cpus": [0]}]},
    "beside cells": {"cells": [], "more": 1},
    "another object": documents.GUESTS["1.6"],
    "another namespace": {**HOSTS["1.5"], "nova_object.namespace": "cinder"},
    "another version": {**HOSTS["1.5"], "nova_object.version": "1.3"},
    "a version that is no text": {**HOSTS["1.5"], "nova_object.version": [1, 2]},
    "data that are none": {**HOSTS["1.5"], "nova_object.data": None},
    "an envelope without a name": {"nova_object.data": {"cells": []}},
    "cells of another version": documents.host("1.6", cell_of(HOSTS["1.5"])),
    "the same cell twice": documents.host("1.5", *[cell_of(HOSTS["1.5"])] * 2),
    "nested for ever": "[" * 100_000,
    "nested for ever inside": '{"cells": ' + "[" * 100_000,
}


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
def test_a_bad_document_is_refused_by_one_error(name: str):
    with raises_code("InvalidPrimitive", match=r"^numa_topology.*: got .*, expected "):
        load_host_numa_topology(BAD_DOCUMENTS[name])  # type: ignore[arg-type]


# --- the newest version is written ---------------------------------------------------------------


def sayable(inventory: NUMATopologyInventory) -> NUMATopologyInventory:
    """Return an inventory without what Nova has no word for, with every core named."""
    return NUMATopologyInventory(
        [documents.sayable(cell) for cell in inventory.cells],
        usage=[used.replace(loose=0) for used in inventory.usage],
        cpu_ratio=inventory.cpu_ratio,
        memory_ratio=inventory.memory_ratio,
    )


def again(inventory: NUMATopologyInventory, **more: Any) -> NUMATopologyInventory:
    """Return an inventory, written and read."""
    return load_host_numa_topology(
        dump_host_numa_topology(inventory, **more),
        cpu_ratio=inventory.cpu_ratio,
        memory_ratio=inventory.memory_ratio,
    )


@given(numa_inventories())
def test_what_nova_can_say_returns_the_same(inventory: NUMATopologyInventory):
    inventory = sayable(inventory)
    result = again(inventory)
    assert result == inventory
    assert result.obj_to_primitive() == inventory.obj_to_primitive()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_read_in_any_version_is_written_in_the_newest(version: str):
    inventory = load_host_numa_topology(HOSTS[version], counts_pinned=version < "1.4")
    written = json.loads(dump_host_numa_topology(sayable(inventory)))
    assert written["nova_object.version"] == "1.2"
    assert written["nova_object.data"]["cells"][0]["nova_object.version"] == VERSIONS[-1]
    assert again(sayable(inventory)) == sayable(inventory)


def test_the_newest_version_has_all_fields_and_no_other():
    empty = NUMATopologyInventory([HostCell(0, memory_mb=64)])
    document = json.loads(dump_host_numa_topology(empty))
    assert set(cell_of(document)) == set(cell_of(HOSTS["1.5"]))


def test_every_core_is_written_for_nova_finds_no_cpu_that_is_on_none():
    cell = HostCell(0, shared=[0, 4], dedicated=[1, 2, 3], siblings=[(2, 3)])
    document = json.loads(dump_host_numa_topology(NUMATopologyInventory([cell])))
    assert cell_of(document)["siblings"] == [[0], [1], [2, 3], [4]]


def test_the_memory_used_is_that_in_pages_of_any_size():
    document = json.loads(dump_host_numa_topology(load_host_numa_topology(HOSTS["1.5"])))
    cell = cell_of(document)
    assert cell["memory_usage"] == 1024
    used = {
        p["nova_object.data"]["size_kb"]: p["nova_object.data"]["used"] for p in cell["mempages"]
    }
    assert used == {4: 512 * 1024 // 4, 2048: 256}


UNSAYABLE = {
    "distances": (HostCell(0, distances={0: 10}), None),
    "loose CPUs": (HostCell(0, dedicated=[0]), CellUsage(0, loose=1)),
}


@pytest.mark.parametrize("name", UNSAYABLE)
def test_what_nova_cannot_say_is_refused(name: str):
    cell, used = UNSAYABLE[name]
    host = NUMATopologyInventory([cell], usage=[used] if used else ())
    with pytest.raises(
        CannotDowngrade, match=r"NUMACell cannot be expressed in version 1\.5: cell 0"
    ):
        dump_host_numa_topology(host)


def test_distances_may_be_left_out_by_their_name():
    cell, _ = UNSAYABLE["distances"]
    result = again(NUMATopologyInventory([cell]), leave_out=["distances"])
    assert result == NUMATopologyInventory([HostCell(0)])


@pytest.mark.parametrize("names", [["loose"], ["socket", "pages"], "socket", ""])
def test_what_is_used_may_not_be_left_out(names: Any):
    with raises_code("InvalidField", match="leave_out"):
        dump_host_numa_topology(NUMATopologyInventory([HostCell(0)]), leave_out=names)


def test_only_an_inventory_is_written():
    with pytest.raises(InvalidInventory, match="a NUMATopologyInventory"):
        dump_host_numa_topology(HostCell(0))  # type: ignore[arg-type]


# --- what is read is like what is made ------------------------------------------------------------


def test_what_is_read_behaves_like_what_a_constructor_makes():
    host = load_host_numa_topology(HOSTS["1.5"])
    (cell,), (used,) = host.cells, host.usage
    created: list[Any] = [
        type(value)(**{n: getattr(value, n) for n in value.fields}) for value in (cell, used)
    ]
    assert created == [cell, used]
    assert [hash(value) for value in created] == [hash(cell), hash(used)]
    for value in (host, cell, used):
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value
    assert NUMATopologyInventory.obj_from_primitive(host.obj_to_primitive()) == host
