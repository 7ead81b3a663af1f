"""Any input is valid or one clear error, and nothing changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.exceptions import (
    CapacityException,
    ForeignAmount,
    InvalidInput,
    InvalidInventory,
)
from resource_objects.resources import IntegerAmount, Inventories
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    CellUsage,
    CPUSet,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
    PagePool,
    PlacedCell,
    numa,
)
from resource_objects.testing.refusals import raises_code
from tests.resources.numa.hosts import KIB_2M, cored, host, paged, plain, pools, refused

pytestmark = pytest.mark.law(8)


def case(error: type[InvalidInput], make: Callable[[], object], text: str, name: str) -> Any:
    """Return a case: a constructor that raises ``error`` with ``text``."""
    return pytest.param(error, make, text, id=name)


CELL = plain(0, range(4))

HOSTS = [
    case(InvalidInventory, lambda: host().to_records(), "", "no cells to keep"),
    case(
        InvalidInventory,
        lambda: host(plain(0, [0]), plain(0, [1])),
        "host cells: got [0], expected each once",
        "a cell twice",
    ),
    case(
        InvalidInventory,
        lambda: host(plain(0, [0, 1]), plain(1, [1, 2])),
        "CPUs of the host cells: got [1], expected each once",
        "a CPU in two cells",
    ),
    case(
        InvalidInventory,
        lambda: host(plain(0, [0]), HostCell(1, shared=[0])),
        "CPUs of the host cells: got [0]",
        "a CPU shared here and dedicated there",
    ),
    case(
        InvalidInventory,
        lambda: HostCell(0, shared=[0, 1], dedicated=[1, 2]),
        "shared and dedicated CPUs of cell 0: got [1], expected no CPU in both sets, or every one",
        "some CPUs serve either way",
    ),
    case(
        InvalidInventory,
        lambda: host(cored(0, (0, 1)), HostCell(1, dedicated=[2], siblings=[(1, 2)])),
        "CPUs of the host cells: got [1]",
        "a sibling in another cell",
    ),
    case(
        InvalidInventory,
        lambda: cored(0, (0, 1), (1, 2), dedicated=[0]),
        "siblings of cell 0: got ((0, 1), (1, 2)), expected each CPU on one core",
        "a CPU on two cores",
    ),
    case(
        InvalidInventory,
        lambda: HostCell(0, dedicated=[0], siblings=[range(2**16)] * 400),
        "siblings of a cell: got 'more than 65536 CPUs', expected each CPU on one core",
        "more siblings than CPUs can be numbered: refused before they are expanded",
    ),
    case(
        InvalidInventory,
        lambda: HostCell(0, dedicated=[0], siblings=[()]),
        "no core empty",
        "an empty core",
    ),
    case(
        "InvalidField", lambda: HostCell(0, dedicated=[1, 1]), "dedicated", "a CPU twice in a set"
    ),
    case("InvalidField", lambda: HostCell(0, shared=[-1]), "shared", "a CPU below zero"),
    case(InvalidInventory, lambda: HostCell(0, shared=[2**20]), "CPU of cell 0", "no such CPU"),
    case("InvalidField", lambda: HostCell(0, shared="0-3"), "shared", "CPUs as text"),
    case("InvalidField", lambda: HostCell(0, shared=[True]), "shared", "a CPU that is a truth"),
    case("InvalidField", lambda: HostCell(-1), "id", "a cell below zero"),
    case("InvalidField", lambda: HostCell("0"), "id", "a cell as text"),  # type: ignore[arg-type]
    case("InvalidField", lambda: HostCell(0, memory_mb=-1), "memory_mb", "memory below zero"),
    case("InvalidField", lambda: HostCell(0, memory_mb=1.5), "memory_mb", "half a MiB"),  # type: ignore[arg-type]
    case(
        InvalidInventory,
        lambda: HostCell(0, memory_mb=64, pages=pools((4, 16384), (4, 1))),
        "page sizes of cell 0: got [4, 4], expected each size once",
        "a page size twice",
    ),
    case(
        InvalidInventory,
        lambda: HostCell(0, memory_mb=64, pages=pools((KIB_2M, 1), (4, 1))),
        "ascending",
        "page sizes in disorder",
    ),
    case(
        InvalidInventory,
        lambda: HostCell(0, memory_mb=64, pages=pools((4, 0), (KIB_2M, 33))),
        "huge pages of cell 0: got 67584, expected at most the 65536 KiB of the cell",
        "more in pages than there is",
    ),
    case(InvalidInventory, lambda: pools((3000, 1)), "page size: got 3000", "no size of pages"),
    case("InvalidField", lambda: pools((0, 1)), "size_kib", "pages of nothing"),
    case(
        InvalidInventory,
        lambda: pools((4, 1, 2)),
        "reserved pages of 4 KiB: got 2, expected at most the 1 there are",
        "more reserved than there are",
    ),
    case("InvalidField", lambda: HostCell(0, pages=[(4, 1)]), "pages", "pages as pairs"),  # type: ignore[list-item]
    case("InvalidField", lambda: HostCell(0, distances=[(1, 2, 3)]), "distances", "no pairs"),  # type: ignore[list-item]
    case(InvalidInput, lambda: HostCell(0, physnets=[" "]), "", "a network without name"),
    case("InvalidField", lambda: host("0"), "cells", "cells as text"),  # type: ignore[arg-type]
    case("InvalidRatio", lambda: host(CELL, cpu_ratio=0), "", "no ratio"),
    case("InvalidRatio", lambda: host(CELL, memory_ratio="1.1234567"), "", "too precise a ratio"),
    case(
        InvalidInventory,
        lambda: host(CELL, usage=[CellUsage(1)]),
        "usage of host cells: got [1], expected cells of the inventory",
        "usage of another cell",
    ),
    case(
        InvalidInventory,
        lambda: host(CELL, usage=[CellUsage(0), CellUsage(0)]),
        "usage of host cells: got [0], expected each once",
        "usage twice",
    ),
    case(
        InvalidInventory,
        lambda: host(CELL, usage=[CellUsage(0, pinned=[4])]),
        "pinned CPUs of cell 0: got [4], expected dedicated ones: (0, 1, 2, 3)",
        "pinned, and no CPU of the cell",
    ),
    case(
        InvalidInventory,
        lambda: host(paged(0, 64, (KIB_2M, 1)), usage=[CellUsage(0, pages={4: 1})]),
        "used page size of cell 0: got 4, expected one of [2048] KiB",
        "used pages that are ordinary",
    ),
    case("InvalidField", lambda: CellUsage(0, shared=-1), "shared", "used below zero"),
    case("InvalidField", lambda: CellUsage(0, pinned=[1, 1]), "pinned", "a CPU pinned twice"),
    case("InvalidField", lambda: host(CELL, room={"VCPU": 1.5}), "room", "half a CPU of room"),  # type: ignore[dict-item]
]

AMOUNTS = [
    case("InvalidAmount", lambda: NUMATopologyAmount([]), "guest cells: got 0", "no guest cells"),
    case(
        "InvalidAmount",
        lambda: GuestCell(),
        "guest cell: got 'nothing'",
        "a cell that asks nothing",
    ),
    case("InvalidAmount", lambda: numa(), "guest cell: got 'nothing'", "nothing at all"),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount([GuestCell(shared=[0, 2])]),
        "vCPUs: got 'without 1'",
        "a vCPU missing",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount([GuestCell(shared=[0]), GuestCell(shared=[0])]),
        "vCPUs: got [0], expected each in one guest cell, once",
        "a vCPU in two cells",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount([GuestCell(shared=[0], dedicated=[0])]),
        "vCPUs: got [0]",
        "a vCPU shared and dedicated",
    ),
    case("InvalidField", lambda: GuestCell(shared=[0, 0]), "shared", "a vCPU twice"),
    case("InvalidField", lambda: GuestCell(memory_mb=-1), "memory_mb", "memory below zero"),
    case(
        "InvalidAmount",
        lambda: numa(shared=1, thread_policy="require"),
        "thread policy: got 'require', expected none, because no vCPU is dedicated",
        "a thread policy of shared vCPUs",
    ),
    case(
        "InvalidAmount",
        lambda: numa(shared=1, emulator_policy="isolate"),
        "emulator policy: got 'isolate', expected share",
        "an isolated emulator of shared vCPUs",
    ),
    case(
        "InvalidField",
        lambda: numa(dedicated=1, thread_policy="avoid"),
        "expected one of prefer, require, isolate",
        "no thread policy",
    ),
    case(
        "InvalidField",
        lambda: numa(dedicated=1, emulator_policy="prefer"),
        "expected one of share, isolate",
        "no emulator policy",
    ),
    case(
        "InvalidText", lambda: numa(memory_mb=1, page_size="2 pages"), "page size", "no page size"
    ),
    case(
        "InvalidText", lambda: numa(memory_mb=1, page_size=0), "page size: got 0", "size of nothing"
    ),
    case("InvalidText", lambda: numa(memory_mb=1, page_size=3000), "3000", "no power of two"),
    case("InvalidText", lambda: numa(memory_mb=1, page_size=True), "page size", "a truth as size"),
    case(
        "InvalidAmount",
        lambda: numa(2, dedicated=3),
        "dedicated: got 3, expected a multiple of 2 guest cells",
        "CPUs that do not divide",
    ),
    case(
        "InvalidAmount",
        lambda: numa(2, memory_mb=1023),
        "memory_mb: got 1023, expected a multiple of 2 guest cells",
        "memory that does not divide",
    ),
    case("InvalidAmount", lambda: numa(0, shared=1), "guest cells: got 0", "nobody"),
    case("InvalidAmount", lambda: numa(1, shared=-1), "shared: got -1", "CPUs below zero"),
    case("InvalidAmount", lambda: numa("2"), "guest cells: got '2'", "guest cells as text"),  # type: ignore[arg-type]
    case(
        "InvalidAmount",
        lambda: numa([GuestCell(shared=[0])], shared=1),
        "shared: got 1, expected no count with guest cells that specify it",
        "cells and counts",
    ),
    case("InvalidField", lambda: NUMATopologyAmount(["0"]), "cells", "no cells but text"),  # type: ignore[list-item]
    case(
        "NotAssigned",
        lambda: -numa(shared=1),
        "expected an assigned one",
        "giving back what is not assigned",
    ),
]

ONE = [GuestCell(dedicated=[0])]
TWO = [GuestCell(dedicated=[0]), GuestCell(dedicated=[1])]

PLACED = [
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount(TWO, placed=[PlacedCell(0, pins={0: 0})]),
        "placed: got 1, expected one for each of 2 guest cells",
        "a guest cell nowhere",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount(
            TWO, placed=[PlacedCell(0, pins={0: 0}), PlacedCell(0, pins={1: 1})]
        ),
        "host cells: got [0, 0], expected another one for each guest cell",
        "two guest cells on one host cell",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount(
            TWO, placed=[PlacedCell(0, pins={0: 5}), PlacedCell(1, pins={1: 5})]
        ),
        "CPUs: got [5, 5], expected each CPU once",
        "a CPU in two cells",
    ),
    case(
        "InvalidAmount",
        lambda: PlacedCell(0, pins={0: 5, 1: 5}),
        "CPUs of host cell 0: got [5, 5]",
        "a CPU for two vCPUs",
    ),
    case(
        "InvalidAmount",
        lambda: PlacedCell(0, pins={0: 5}, idle=[5]),
        "CPUs of host cell 0: got [5, 5]",
        "a CPU taken and idle",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount(ONE, placed=[PlacedCell(0)]),
        "pinned vCPUs of guest cell 0: got (), expected (0,)",
        "a vCPU without CPU",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount(ONE, placed=[PlacedCell(0, pins={1: 0})]),
        "pinned vCPUs of guest cell 0: got (1,)",
        "a vCPU of another cell",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount(
            ONE, emulator_policy="isolate", placed=[PlacedCell(0, pins={0: 0})]
        ),
        "emulator CPU: got None",
        "an emulator without CPU",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount(ONE, placed=[PlacedCell(0, pins={0: 0})], emulator_cpu=1),
        "emulator CPU: got 1",
        "a CPU without emulator",
    ),
    case(
        "InvalidAmount",
        lambda: NUMATopologyAmount(
            ONE, emulator_policy="isolate", placed=[PlacedCell(0, pins={0: 0})], emulator_cpu=0
        ),
        "CPUs: got [0, 0]",
        "the emulator on a vCPU's CPU",
    ),
    case("NotAssigned", lambda: numa(shared=1).cpuset, "an assigned one", "where it is not"),
    case("NotAssigned", lambda: numa(shared=1).pages, "an assigned one", "pages of nowhere"),
    case("NotAssigned", lambda: numa(shared=1).cgroup(), "an assigned one", "files of nowhere"),
]

OTHERS = [
    case("InvalidField", lambda: NUMATopologyLimit(vcpus={0: -1}), "vcpus", "a limit below zero"),
    case("NegativeAmount", lambda: -NUMATopologyLimit(), "limit", "a limit given back"),
    case("InvalidText", lambda: CPUSet.parse("0-3,x"), "CPU list: got '0-3,x'", "no CPU list"),
    case("InvalidText", lambda: CPUSet.parse("3-0"), "CPU list: got '3-0'", "a range backwards"),
    case("InvalidText", lambda: CPUSet.parse("0-3,^0-3"), "CPU list", "all CPUs left out"),
    case("InvalidText", lambda: CPUSet.parse("0-9999999"), "CPU list", "CPUs that no host has"),
    case("InvalidText", lambda: CPUSet.parse(None), "CPU list: got None", "no text"),  # type: ignore[arg-type]
    case(InvalidInventory, lambda: host(CELL).cell(7), "host cell: got 7", "no such cell"),
    case("InvalidText", lambda: NUMATopologyAmount.parse("two"), "two", "no amount"),
    case("InvalidText", lambda: NUMA_TOPOLOGY.parse_inventory("x"), "HostCell", "no inventory"),
]


@pytest.mark.parametrize(("error", "make", "text"), [*HOSTS, *AMOUNTS, *PLACED, *OTHERS])
def test_what_cannot_be_is_refused_by_an_error_that_has_a_reason(
    error: type[InvalidInput], make: Callable[[], object], text: str
) -> None:
    with raises_code(error) as refusal:
        make()
    assert text in str(refusal.value)
    assert isinstance(refusal.value, ValueError)


# --- asking ---------------------------------------------------------------------------------------

HOST = host(
    cored(0, (0, 4), (1, 5), shared=[8]),
    cored(1, (2, 6), (3, 7), shared=[9]),
    usage=[CellUsage(0, pinned=[0])],
)


def unchanged(
    error: type[Exception] | str, text: str, ask: Callable[[NUMATopologyInventory], object]
) -> None:
    """Check that a question raises an error with its cause, and that nothing changed."""
    request = copy.deepcopy(HOST)
    with raises_code(error) as refusal:
        ask(request)
    assert text in str(refusal.value)
    assert request == HOST
    assert request.fit(numa(dedicated=3)) == HOST.fit(numa(dedicated=3))


@pytest.mark.parametrize("other", [IntegerAmount(1), 1, None, "1", {"VCPU": 1}], ids=repr)
def test_an_amount_of_another_kind_is_refused(other: Any) -> None:
    for method in ("fit", "consume", "can_provide"):
        unchanged(
            "WrongAmountKind", "a NUMATopologyAmount", lambda it, m=method: getattr(it, m)(other)
        )
    unchanged(
        "WrongAmountKind", "a NUMATopologyLimit", lambda it: it.fit(numa(shared=1), other or 0)
    )


def test_inventories_of_several_resources_refuse_another_kind_at_the_door() -> None:
    with raises_code("WrongAmountKind"):
        Inventories({"NUMA_TOPOLOGY": HOST}).fit({"NUMA_TOPOLOGY": IntegerAmount(1)})
    with pytest.raises(exceptions.InvalidInput):
        Inventories({"VCPU": HOST})


PINNED = NUMATopologyAmount(
    [GuestCell(dedicated=[0], memory_mb=2)], placed=[PlacedCell(0, pins={0: 5})]
)


@pytest.mark.parametrize(
    ("foreign", "text"),
    [
        pytest.param(
            PINNED.replace(placed=[PlacedCell(7, pins={0: 5})]),
            "host cell: got 7, expected one of [0, 1]",
            id="cell",
        ),
        pytest.param(
            PINNED.replace(placed=[PlacedCell(1, pins={0: 5})]),
            "CPUs of cell 1: got (5,), expected dedicated ones: 2-3,6-7",
            id="CPU of another cell",
        ),
        pytest.param(
            PINNED.replace(placed=[PlacedCell(0, pins={0: 8})]),
            "CPUs of cell 0: got (8,)",
            id="shared CPU",
        ),
        pytest.param(
            PINNED.replace(placed=[PlacedCell(0, pins={0: 5}, idle=[99])]),
            "CPUs of cell 0: got (99,)",
            id="idle CPU",
        ),
        pytest.param(
            PINNED.replace(
                emulator_policy="isolate",
                placed=[PlacedCell(0, pins={0: 5})],
                emulator_cpu=3,
            ),
            "CPUs of cell 0: got (3,)",
            id="emulator CPU",
        ),
        pytest.param(
            NUMATopologyAmount(
                [GuestCell(dedicated=[0], memory_mb=64)],
                page_size="2MB",
                placed=[PlacedCell(0, pins={0: 5}, page_size_kib=KIB_2M)],
            ),
            "page size of cell 0: got 2048, expected one of []",
            id="page size",
        ),
        pytest.param(
            NUMATopologyAmount([GuestCell(shared=[0])], placed=[PlacedCell(0, shared=[8, 9])]),
            "shared CPUs of cell 0: got (8, 9), expected shared ones: 8",
            id="CPU of shared vCPUs",
        ),
    ],
)
def test_an_assigned_amount_of_another_host_is_foreign(
    foreign: NUMATopologyAmount, text: str
) -> None:
    unchanged(ForeignAmount, text, lambda it: it.consume(foreign))
    unchanged(ForeignAmount, text, lambda it: it.fit(foreign))
    unchanged(ForeignAmount, text, lambda it: it.to_allocations(foreign))
    unchanged((ForeignAmount, CapacityException), "got", lambda it: it.consume(-foreign))


def test_an_amount_released_is_not_requested() -> None:
    unchanged("NegativeAmount", "a requested one", lambda it: it.can_provide(-PINNED))
    unchanged(CapacityException, "releases", lambda it: it.consume(-PINNED))
    unchanged("NotAssigned", "an assigned one", lambda it: it.to_allocations(numa(shared=1)))


def test_memory_that_is_no_whole_number_of_pages_is_refused_with_the_size() -> None:
    (reason,) = refused(host(paged(0, 64, (KIB_2M, 8))), numa(memory_mb=3, page_size="2MB"))
    assert str(reason) == "cell 0: MEMORY_MB requested 3, not a whole number of pages of 2048 KiB"


def test_an_update_that_contradicts_itself_changes_nothing() -> None:
    unchanged(
        InvalidInventory,
        "CPUs of the host cells",
        lambda it: it.update(cells=[CELL, plain(1, [0])]),
    )
    unchanged(InvalidInventory, "usage", lambda it: it.update(cells=[plain(3, [0])]))


def test_amounts_are_frozen() -> None:
    for frozen, field in [
        (PINNED, "cells"),
        (GuestCell(shared=[0]), "shared"),
        (CELL, "dedicated"),
        (CellUsage(0), "pinned"),
        (PagePool(size_kib=4, total=1), "total"),
        (NUMATopologyLimit(), "vcpus"),
    ]:
        with pytest.raises(exceptions.FrozenValue):
            setattr(frozen, field, [])


# --- anything at all ------------------------------------------------------------------------------

#: Values of every type, and those that are nearly right.
anything: st.SearchStrategy[Any] = st.one_of(
    st.from_type(type).flatmap(st.from_type),
    st.sampled_from([None, True, 0, -1, 1.0, "0", "0-3", [0, 0], [[0]], {0: 1}, {"0": 1}, 2**63]),
    st.sampled_from([CELL, PINNED, HOST, CellUsage(0), GuestCell(shared=[0]), numa(shared=1)]),
)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            HostCell,
            ["shared", "dedicated", "siblings", "memory_mb", "pages", "socket", "distances"],
        ),
        (GuestCell, ["shared", "dedicated", "memory_mb"]),
        (NUMATopologyInventory, ["usage", "cpu_ratio", "memory_ratio", "room"]),
        (NUMATopologyAmount, ["page_size", "thread_policy", "physnets", "placed", "emulator_cpu"]),
        (numa, ["shared", "dedicated", "memory_mb", "page_size", "physnets"]),
        (CellUsage, ["shared", "pinned", "loose", "memory_mb", "pages"]),
        (PlacedCell, ["pins", "idle", "shared", "page_size_kib"]),
        (NUMATopologyLimit, ["vcpus", "memory_mb"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@given(data=st.data())
def test_anything_else_makes_a_valid_object_or_a_clear_error(
    kind: Callable[..., Any], names: list[str], data: st.DataObject
) -> None:
    first: dict[Any, list[Any]] = {
        HostCell: [0],
        CellUsage: [0],
        PlacedCell: [0],
        NUMATopologyInventory: [[CELL]],
        NUMATopologyAmount: [[GuestCell(shared=[0])]],
    }
    chosen = data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    given_values = {name: data.draw(anything) for name in chosen}
    try:
        created = kind(*first.get(kind, []), **given_values)
    except exceptions.InvalidInput as error:
        assert error.what and error.expected
    else:
        assert type(created).obj_from_primitive(created.obj_to_primitive()) == created


@given(anything)
def test_anything_else_is_no_list_of_cpus_or_a_valid_one(value: Any) -> None:
    try:
        cpus = CPUSet.parse(value)
    except exceptions.InvalidInput as error:
        if not error.is_about("text"):
            raise
        return
    assert cpus == tuple(sorted(set(cpus))) and cpus
