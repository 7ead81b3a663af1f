"""A guest's topology is read in every version Nova wrote, and written in the newest."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from resource_objects.exceptions import (
    CannotDowngrade,
    CapacityException,
    InvalidInventory,
    SearchLimitReached,
)
from resource_objects.interop.nova import dump_instance_numa_topology, load_instance_numa_topology
from resource_objects.interop.nova.primitive import GUEST_CELL, KNOWN
from resource_objects.resources.integer import IntegerAmount
from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    PlacedCell,
    numa,
)
from resource_objects.testing.refusals import raises_code
from tests.interop.nova import documents
from tests.interop.nova.documents import DEDICATED_CELL, GUESTS, PINS, PLAIN_GUEST, SHARED_CELL
from tests.support.numa_strategies import NUMAQuestion, numa_amounts, numa_questions

VERSIONS = tuple(KNOWN[GUEST_CELL])

#: Two cells with two threads on a core; 4 KiB and 2 MiB pages.
HOST = NUMATopologyInventory(
    [
        HostCell(
            number,
            shared=range(first, first + 2),
            dedicated=range(first + 2, first + 8),
            siblings=[(cpu, cpu + 1) for cpu in range(first, first + 8, 2)],
            memory_mb=4096,
            pages=[
                PagePool(size_kib=4, total=524288, reserved=0),
                PagePool(size_kib=2048, total=1024, reserved=0),
            ],
        )
        for number, first in enumerate((0, 8))
    ]
)


def guest(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a guest of cells of the newest version."""
    return documents.guest("1.6", *cells, **more)


def shared(number: int, *vcpus: int, **more: Any) -> dict[str, Any]:
    """Return a cell of shared vCPUs."""
    return {"id": number, "cpuset": list(vcpus), "pcpuset": [], "memory": 512, **more}


def pinned(number: int, pins: dict[str, int] | None, *vcpus: int, **more: Any) -> dict[str, Any]:
    """Return a cell of dedicated vCPUs; ``vcpus`` default to those with a CPU."""
    dedicated = list(vcpus) or [int(vcpu) for vcpu in pins or ()]
    value = {"cpu_policy": "dedicated", "cpu_pinning_raw": pins, "cpuset": [], "pcpuset": dedicated}
    return {"id": number, "memory": 512, **value, **more}


# --- every version is read --------------------------------------------------------------------


def test_the_first_version_has_shared_vcpus():
    assert load_instance_numa_topology(
        documents.text(GUESTS["1.0"]), assigned=False
    ) == NUMATopologyAmount([GuestCell(shared=[0, 1], memory_mb=512)])


def test_the_second_version_has_a_page_size():
    assert load_instance_numa_topology(GUESTS["1.1"]).page_size == "large"


@pytest.mark.parametrize("version", ["1.2", "1.3", "1.4", "1.5"])
def test_versions_with_pinning_say_where_each_vcpu_is(version: str):
    amount = load_instance_numa_topology(GUESTS[version])
    assert amount.cells == (GuestCell(dedicated=[0, 1], memory_mb=512),)
    assert amount.placed == (PlacedCell(1, pins={0: 6, 1: 7}, page_size_kib=2048),)
    assert (amount.cpuset, amount.memory_nodes, amount.page_size) == ("6-7", "1", "2048")


def test_policies_are_on_the_topology():
    amount = load_instance_numa_topology(GUESTS["1.4"])
    assert (amount.thread_policy, amount.emulator_policy, amount.emulator_cpu) == (
        "prefer",
        "isolate",
        5,
    )


def test_the_newest_version_has_shared_and_dedicated_vcpus():
    amount = load_instance_numa_topology(GUESTS["1.6"], host=HOST)
    assert amount.cpu_policy == "mixed"
    assert amount.placed[0].shared == (8, 9)
    assert amount.emulator_policy == "share"


def test_a_plain_dict_from_before_liberty_is_read():
    assert load_instance_numa_topology(PLAIN_GUEST) == NUMATopologyAmount(
        [GuestCell(shared=[0, 1], memory_mb=512)], page_size="small"
    )


@pytest.mark.parametrize(
    ("number", "requested"), [(-1, "small"), (-2, "large"), (-3, "any"), (2048, "2048"), (None, "")]
)
def test_page_sizes_are_words_or_sizes(number: int | None, requested: str):
    document = guest(pinned(0, None, 0, pagesize=number))
    assert load_instance_numa_topology(document).page_size == requested


# --- versions that lie (Nova's bug 2097360) ---


@pytest.mark.parametrize("version", ["1.3", "1.4", "1.5", "1.6"])
@pytest.mark.parametrize(
    "sets",
    [
        {"cpuset": [0, 1]},
        {"cpuset": [0, 1], "pcpuset": []},
        {"cpuset": [], "pcpuset": [0, 1]},
    ],
    ids=["before", "not migrated", "migrated"],
)
def test_dedicated_vcpus_are_where_they_are_whatever_the_version(
    version: str, sets: dict[str, Any]
):
    cell = {"id": 1, "memory": 64, "cpu_policy": "dedicated", "cpu_pinning_raw": PINS, **sets}
    amount = load_instance_numa_topology(documents.guest(version, cell))
    assert amount.cells[0].dedicated == (0, 1)
    assert amount.placed[0].pins == ((0, 6), (1, 7))


@pytest.mark.parametrize("version", ["1.4", "1.5"])
def test_mixed_cells_are_read_in_versions_that_did_not_know_the_word(version: str):
    cell = pinned(0, {"1": 3}, cpuset=[0], cpu_policy="mixed")
    amount = load_instance_numa_topology(documents.guest(version, cell), host=HOST)
    assert (amount.cells[0].shared, amount.cells[0].dedicated) == ((0,), (1,))


def test_before_policies_pinning_says_who_is_dedicated_if_only_later():
    cell = {"id": 0, "cpuset": [0, 1], "memory": 64, "cpu_pinning_raw": {}}
    amount = load_instance_numa_topology(documents.guest("1.2", cell))
    assert (amount.cpu_policy, amount.is_assigned) == ("dedicated", False)
    later = documents.guest("1.2", {**cell, "cpu_pinning_raw": None})
    assert load_instance_numa_topology(later, assigned=False).cpu_policy == "shared"


# --- what id means ----------------------------------------------------------------------------

TOLD = {
    "vCPUs that have CPUs": (guest(pinned(0, {"0": 3})), True),
    "vCPUs that have none": (guest(pinned(0, None, 0)), False),
    "vCPUs that have none any more": (guest(pinned(-1, {}, 0, pagesize=2048)), False),
    "page size in words": (guest(shared(0, 0, pagesize=-2)), False),
    "shared, taken from the host": (guest(shared(-1, 0), shared(-1, 1)), False),
    "shared, ids from 1": (guest(shared(1, 0)), True),
    "shared, ids in another order": (guest(shared(1, 0), shared(0, 1)), True),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_content_tells_whether_it_is_assigned(name: str):
    document, is_assigned = TOLD[name]
    amount = load_instance_numa_topology(document, host=HOST)
    assert amount.is_assigned == is_assigned
    assert load_instance_numa_topology(document, host=HOST, assigned=is_assigned) == amount
    with raises_code("InvalidPrimitive", match=f"expected assigned={is_assigned}"):
        load_instance_numa_topology(document, host=HOST, assigned=not is_assigned)


@pytest.mark.parametrize("size", [None, 4, 2048])
@pytest.mark.parametrize("numbers", [(0,), (0, 1)])
def test_shared_cells_in_order_look_both_ways_and_the_parameter_is_demanded(
    numbers: tuple[int, ...], size: int | None
):
    document = guest(*[shared(number, number, pagesize=size) for number in numbers])
    with raises_code("InvalidPrimitive", match=r"cells: got .*, expected assigned=True or False"):
        load_instance_numa_topology(document, host=HOST)
    amount = load_instance_numa_topology(document, host=HOST, assigned=True)
    assert tuple(placed.cell for placed in amount.placed) == numbers
    assert load_instance_numa_topology(document, assigned=False) == amount.unassigned()


def test_host_cells_come_in_the_order_of_guest_cells():
    document = guest(pinned(1, {"0": 10}), pinned(0, {"1": 3}))
    amount = load_instance_numa_topology(document)
    assert [(placed.cell, placed.pins) for placed in amount.placed] == [
        (1, ((0, 10),)),
        (0, ((1, 3),)),
    ]


def test_what_is_left_of_an_emulators_cpu_is_nothing():
    document = guest(pinned(-1, {}, 0, cpuset_reserved=[4]), emulator_threads_policy="isolate")
    amount = load_instance_numa_topology(document)
    assert (amount.emulator_policy, amount.emulator_cpu) == ("isolate", None)


CONTRADICTIONS = {
    "no cells": guest(),
    "some have CPUs": guest(pinned(0, {"0": 2}), pinned(1, None, 1)),
    "some of a cell have CPUs": guest(pinned(0, {"0": 2}, 0, 1)),
    "none has a CPU, ids of a host": guest(pinned(3, None, 0)),
    "some were taken from the host": guest(shared(-1, 0), shared(1, 1)),
    "they have CPUs and are on no host": guest(pinned(-1, {"0": 2})),
    "they have CPUs and a page size in words": guest(pinned(0, {"0": 2}, pagesize=-1)),
    "the same host cell twice": guest(pinned(0, {"0": 2}), pinned(0, {"1": 3})),
    "the same CPU twice": guest(pinned(0, {"0": 2}), pinned(1, {"1": 2})),
    "a host cell that is not there": guest(pinned(7, {"0": 2})),
    "policies that differ": guest(pinned(0, {"0": 2}), shared(1, 1)),
    "thread policies that differ": guest(
        pinned(0, {"0": 2}), pinned(1, {"1": 10}, cpu_thread_policy="prefer")
    ),
    "page sizes that differ": guest(
        pinned(0, None, 0, pagesize=4), pinned(1, None, 1, pagesize=2048)
    ),
    "a page size that the host has not": guest(pinned(0, {"0": 2}, pagesize=1048576)),
    "vCPUs that are missing": guest(pinned(0, {"1": 2})),
    "a vCPU twice": guest(shared(0, 0, pagesize=-1), shared(1, 0, pagesize=-1)),
    "an emulator's CPU that nobody asked for": guest(pinned(0, {"0": 2}, cpuset_reserved=[3])),
    "no CPU for the emulator": guest(pinned(0, {"0": 2}), emulator_threads_policy="isolate"),
    "two CPUs for the emulator": guest(
        pinned(0, {"0": 2}, cpuset_reserved=[3, 4]), emulator_threads_policy="isolate"
    ),
    "an emulator beside another cell": guest(
        pinned(0, {"0": 2}),
        pinned(1, {"1": 10}, cpuset_reserved=[11]),
        emulator_threads_policy="isolate",
    ),
    "an emulator of shared vCPUs": guest(
        shared(0, 0, pagesize=-1), emulator_threads_policy="isolate"
    ),
    "a thread policy of shared vCPUs": guest(shared(0, 0, pagesize=-1, cpu_thread_policy="prefer")),
    "another emulator policy": guest(shared(0, 0, pagesize=-1), emulator_threads_policy=[]),
    "a guest cell of nothing": guest({"id": 0, "cpuset": [], "memory": 0, "pagesize": -1}),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_what_contradicts_itself_or_the_host_is_refused(name: str):
    with raises_code("InvalidPrimitive", match=r"^numa_topology.*: got .*, expected "):
        load_instance_numa_topology(CONTRADICTIONS[name], host=HOST)


BAD_CELLS = {
    "id": ({"id": -2}, "id"),
    "vCPUs": ({"cpuset": {"0": 1}}, "cpuset"),
    "vCPUs missing": ({"cpuset": None}, "cpuset"),
    "dedicated in both": ({"cpuset": [0, 1]}, "cpuset"),
    "dedicated though shared": ({"cpu_policy": "shared", "cpu_pinning_raw": None}, "pcpuset"),
    "policy": ({"cpu_policy": "pinned"}, "cpu_policy"),
    "policy of another type": ({"cpu_policy": []}, "cpu_policy"),
    "thread policy": ({"cpu_thread_policy": "share"}, "cpu_thread_policy"),
    "memory": ({"memory": "512"}, "memory"),
    "page size": ({"pagesize": -4}, "pagesize"),
    "page size of nothing": ({"pagesize": 0}, "pagesize"),
    "page size that is odd": ({"pagesize": 2047}, "pagesize"),
    "page size that is a bool": ({"pagesize": True}, "pagesize"),
    "pins": ({"cpu_pinning_raw": [0]}, "cpu_pinning_raw"),
    "pins of no vCPU": ({"cpu_pinning_raw": {"x": 1}}, "cpu_pinning_raw"),
    "pins of another vCPU": ({"cpu_pinning_raw": {"7": 1}}, "cpu_pinning_raw"),
    "pins to no CPU": ({"cpu_pinning_raw": {"0": -1, "1": 2}}, r"cpu_pinning_raw\[0\]"),
    "pins to the same CPU": ({"cpu_pinning_raw": {"0": 6, "1": 6}}, ": .*once"),
    "the emulator's CPUs": ({"cpuset_reserved": 1}, "cpuset_reserved"),
    "a name misspelled": ({"page_size": 4}, "page_size"),
}


@pytest.mark.parametrize("name", BAD_CELLS)
def test_a_bad_cell_is_refused_by_path_and_value(name: str):
    data, place = BAD_CELLS[name]
    with raises_code("InvalidPrimitive", match=rf"^numa_topology\.cells\[0\].*{place}"):
        load_instance_numa_topology(guest({**DEDICATED_CELL, **data}))


def test_mixed_cells_have_a_set_of_dedicated_vcpus():
    cell = {**SHARED_CELL, "cpu_policy": "mixed"}
    with raises_code("InvalidPrimitive", match=r"cells\[0\].pcpuset: got None"):
        load_instance_numa_topology(guest(cell))


BAD_DOCUMENTS = {
    "nothing": None,
    "no JSON": "{'cells': []}",
    "a host": documents.HOSTS["1.5"],
    "a plain host": documents.PLAIN_HOST,
    "nothing in it": {},
    "a newer version": {**GUESTS["1.6"], "nova_object.version": "1.4"},
    "newer cells": documents.guest("1.7", DEDICATED_CELL),
    "nested for ever": '{"cells":' * 100_000,
}


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
def test_a_bad_document_is_refused_by_one_error(name: str):
    with raises_code("InvalidPrimitive", match=r"^numa_topology.*: got .*, expected "):
        load_instance_numa_topology(BAD_DOCUMENTS[name])  # type: ignore[arg-type]


# --- what only the host or the caller knows -------------------------------------------------------


def test_the_cpus_of_shared_vcpus_are_the_hosts_to_say():
    document = guest(shared(1, 0, 1))
    with raises_code("InvalidPrimitive", match=r"cells\[0\].cpuset: got \(0, 1\), expected host="):
        load_instance_numa_topology(document)
    assert load_instance_numa_topology(document, host=HOST).cpuset == "8-9"


def test_shared_vcpus_are_on_no_host_cell_without_cpus_for_them():
    host = NUMATopologyInventory([HostCell(3, dedicated=[1], memory_mb=512), *HOST.cells[1:]])
    expected = r"cells\[1\]\.cpuset: got \(0,\), expected none: host cell 3 has no shared CPUs"
    with raises_code("InvalidPrimitive", match=expected):
        load_instance_numa_topology(guest(shared(1, 1), shared(3, 0)), host=host)


def test_shared_vcpus_run_on_the_cpus_that_no_consumer_has_dedicated():
    """Nova lets shared vCPUs run on all CPUs that serve either way."""
    cell = HostCell(0, shared=range(4), dedicated=range(4), memory_mb=1024)
    host = NUMATopologyInventory([cell], usage=[CellUsage(0, shared=1, pinned=[0, 2])])
    amount = load_instance_numa_topology(guest(shared(0, 0)), host=host, assigned=True)
    assert amount.placed[0].shared == (1, 3)


def test_the_siblings_left_empty_are_the_hosts_to_say():
    document = guest(pinned(0, {"0": 2, "1": 4}, cpu_thread_policy="isolate"))
    with raises_code("InvalidPrimitive", match=r"cells\[0\].cpu_thread_policy: .*host="):
        load_instance_numa_topology(document)
    assert load_instance_numa_topology(document, host=HOST).placed[0].idle == (3, 5)


def test_the_sibling_of_the_emulators_cpu_counts_as_taken_as_nova_counts_it():
    document = guest(
        pinned(0, {"0": 2}, cpu_thread_policy="isolate", cpuset_reserved=[4]),
        emulator_threads_policy="isolate",
    )
    amount = load_instance_numa_topology(document, host=HOST)
    assert (amount.placed[0].idle, amount.emulator_cpu) == ((3, 5), 4)
    assert HOST.fit(amount) == amount


@pytest.mark.parametrize(
    ("size", "huge"), [(4, None), (64, ...), (512, ...), (1024, 1024), (2048, 2048)]
)
def test_small_pages_are_ordinary_large_ones_huge_and_the_host_tells_others(size: int, huge: Any):
    document = guest(pinned(0, {"0": 1}, pagesize=size))
    if huge is ...:
        with raises_code("InvalidPrimitive", match=r"cells\[0\].pagesize: got .*host="):
            load_instance_numa_topology(document)
        return
    amount = load_instance_numa_topology(document)
    assert (amount.placed[0].page_size_kib, amount.page_size) == (huge, str(size))


@pytest.mark.parametrize(("base", "huge"), [(64, None), (4, 64)])
def test_64_kib_are_ordinary_or_huge_as_the_host_has_them(base: int, huge: int | None):
    sizes = sorted({base, 64})
    pools = [PagePool(size_kib=size, total=16, reserved=0) for size in sizes]
    host = NUMATopologyInventory([HostCell(0, dedicated=[1], memory_mb=1024, pages=pools)])
    document = guest(pinned(0, {"0": 1}, memory=1, pagesize=64))
    assert load_instance_numa_topology(document, host=host).placed[0].page_size_kib == huge


@pytest.mark.parametrize(
    ("result", "requested", "is_possible"),
    [
        ((2048, 2048), "large", True),
        ((2048, 2048), "any", True),
        ((2048, 2048), "2MB", True),
        ((2048, 2048), "small", False),
        ((2048, 2048), "", False),
        ((2048, 2048), 4, False),
        ((2048, 2048), 1048576, False),
        ((4, 4), "large", False),
        ((4, 4), "", False),
        ((4, 4), "4", True),
        ((4, 2048), "any", True),
        ((4, 2048), "large", False),
        ((4, 4), "small", True),
        ((None, None), "", True),
        ((None, None), "small", False),
    ],
)
def test_the_caller_says_which_page_size_was_requested(
    result: tuple[int | None, ...], requested: str | int, is_possible: bool
):
    document = guest(
        *[pinned(n, {str(n): 8 * n + 2}, pagesize=size) for n, size in enumerate(result)]
    )
    if not is_possible:
        with raises_code("InvalidPrimitive", match=r"cells\[0\].pagesize: got .*page_size="):
            load_instance_numa_topology(document, page_size=requested)
        return
    amount = load_instance_numa_topology(document, page_size=requested)
    assert amount.page_size == {"2MB": "2048"}.get(str(requested), requested)


def test_sizes_that_differ_need_it_said_which_was_requested():
    document = guest(pinned(0, {"0": 2}, pagesize=4), pinned(1, {"1": 10}, pagesize=2048))
    with raises_code("InvalidPrimitive", match=r"cells: got \['4', '2048'\], .*page_size="):
        load_instance_numa_topology(document)
    amount = load_instance_numa_topology(document, page_size="any")
    assert [placed.page_size_kib for placed in amount.placed] == [None, 2048]


def test_a_page_size_that_is_none_is_refused_as_such():
    with raises_code("InvalidText", match="page size"):
        load_instance_numa_topology(GUESTS["1.5"], page_size="huge")


# --- the newest version is written ---------------------------------------------------------------


def sayable(amount: NUMATopologyAmount) -> NUMATopologyAmount:
    """Return an amount without what Nova has no word for."""
    return amount.replace(physnets=frozenset(), tunneled=False, one_socket=False)


def test_what_is_written_is_what_nova_writes():
    amount = NUMATopologyAmount(
        [GuestCell(shared=[0], dedicated=[1], memory_mb=512)],
        page_size="large",
        emulator_policy="isolate",
        placed=[PlacedCell(1, pins={1: 10}, shared=[8, 9], page_size_kib=2048)],
        emulator_cpu=11,
    )
    document = json.loads(dump_instance_numa_topology(amount, instance_uuid=documents.UUID))
    assert document["nova_object.version"] == "1.3"
    cells = document["nova_object.data"].pop("cells")
    assert document["nova_object.data"] == {
        "emulator_threads_policy": "isolate",
        "instance_uuid": documents.UUID,
    }
    assert [cell["nova_object.data"] for cell in cells] == [
        {
            "id": 1,
            "cpuset": [0],
            "pcpuset": [1],
            "cpuset_reserved": [11],
            "memory": 512,
            "pagesize": 2048,
            "cpu_topology": None,
            "cpu_pinning_raw": {"1": 10},
            "cpu_policy": "mixed",
            "cpu_thread_policy": None,
        }
    ]


@given(numa_amounts())
def test_what_is_requested_returns_the_same(amount: NUMATopologyAmount):
    amount = sayable(amount)
    text = dump_instance_numa_topology(amount)
    assert load_instance_numa_topology(text, assigned=False) == amount


def assigned_of(question: NUMAQuestion) -> NUMATopologyAmount:
    """Return the assigned amount of a question."""
    try:
        return sayable(question.inventory.fit(question.amount))
    except (CapacityException, SearchLimitReached):
        assume(False)
        raise


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # most questions do not fit
@given(numa_questions())
def test_what_is_assigned_returns_the_same(question: NUMAQuestion):
    host, amount = question.inventory, assigned_of(question)
    text = dump_instance_numa_topology(amount, host=host)
    result = load_instance_numa_topology(text, host=host, assigned=True, page_size=amount.page_size)
    assert result == amount


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_read_in_any_version_is_written_in_the_newest(version: str):
    is_assigned = version not in ("1.0", "1.1")
    amount = load_instance_numa_topology(GUESTS[version], host=HOST, assigned=is_assigned)
    text = dump_instance_numa_topology(amount, host=HOST)
    (cell,) = json.loads(text)["nova_object.data"]["cells"]
    assert cell["nova_object.version"] == VERSIONS[-1]
    assert load_instance_numa_topology(text, host=HOST, assigned=is_assigned) == amount


@pytest.mark.parametrize(
    "values", [{"physnets": ["red"]}, {"tunneled": True}, {"one_socket": True}], ids=str
)
def test_what_nova_does_not_say_is_refused_or_left_out_by_its_name(values: dict[str, Any]):
    amount = numa(dedicated=1, **values)
    with pytest.raises(CannotDowngrade, match=f"it has {next(iter(values))}"):
        dump_instance_numa_topology(amount)
    text = dump_instance_numa_topology(amount, leave_out=values)
    assert load_instance_numa_topology(text) == sayable(amount)


def test_only_that_may_be_left_out():
    with raises_code("InvalidField", match="leave_out"):
        dump_instance_numa_topology(numa(dedicated=1), leave_out=["thread_policy"])


def test_what_is_released_is_not_written():
    with pytest.raises(CannotDowngrade, match="it is released"):
        dump_instance_numa_topology(-HOST.fit(numa(dedicated=1)))


PLACES = {
    "ordinary, no size asked": ("", None, None),
    "ordinary, small": ("small", None, 4),
    "ordinary, any": ("any", None, 4),
    "ordinary, by size": ("4", None, 4),
    "huge, large": ("large", 2048, 2048),
    "huge, any": ("any", 2048, 2048),
    "huge, by size": ("2048", 2048, 2048),
    "ordinary, another size": ("2048", None, CannotDowngrade),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_page_size_written_is_the_one_that_was_found(name: str):
    request, size, written = PLACES[name]
    amount = NUMATopologyAmount(
        [GuestCell(dedicated=[0], memory_mb=512)],
        page_size=request,
        placed=[PlacedCell(0, pins={0: 2}, page_size_kib=size)],
    )
    if written is CannotDowngrade:
        with pytest.raises(CannotDowngrade, match="guest cell 0 is in"):
            dump_instance_numa_topology(amount, host=HOST)
        return
    text = dump_instance_numa_topology(amount, host=HOST)
    (cell,) = json.loads(text)["nova_object.data"]["cells"]
    assert cell["nova_object.data"]["pagesize"] == written


def test_the_size_of_ordinary_pages_is_the_hosts_to_say():
    amount = HOST.fit(numa(dedicated=1, memory_mb=64, page_size="small"))
    with pytest.raises(CannotDowngrade, match="host="):
        dump_instance_numa_topology(amount)
    with pytest.raises(InvalidInventory, match="host cell"):
        dump_instance_numa_topology(amount, host=NUMATopologyInventory([HostCell(7)]))


def test_only_an_amount_is_written_and_only_a_uuid_with_it():
    with raises_code("WrongAmountKind"):
        dump_instance_numa_topology(IntegerAmount(1))  # type: ignore[arg-type]
    with raises_code("InvalidName"):
        dump_instance_numa_topology(numa(dedicated=1), instance_uuid="job-1")


def test_reading_changes_nothing_in_what_is_read():
    document = copy.deepcopy(GUESTS["1.6"])
    load_instance_numa_topology(document, host=HOST)
    assert document == GUESTS["1.6"]
