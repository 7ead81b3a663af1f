"""Cells stored by one provider each, and gathered to the same answers."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    numa,
)
from resource_objects.resources.records import AmountRecord, StoredPart
from tests.resources.numa.hosts import (
    KIB_1G,
    KIB_2M,
    cored,
    host,
    on,
    paged,
    plain,
    rarely_fits,
    uneven,
)
from tests.support.lengths import some
from tests.support.numa_strategies import (
    NUMAQuestion,
    numa_inventories,
    numa_questions,
    question_of,
)

questions = numa_questions(has_room=False, serves_either_way=False)


class Books:
    """The stored form of an inventory: definitions, counts and units."""

    def __init__(self, inventory: NUMATopologyInventory) -> None:
        self.parts = inventory.parts()
        self.used: list[Counter[str]] = [Counter() for _ in self.parts]
        self.units: list[set[str]] = [set() for _ in self.parts]
        for place, usage in enumerate(inventory.usage):
            single = NUMATopologyInventory([inventory.cells[place]], usage=[usage])
            for record in single.to_records():
                self.used[place][record.resource_class] = record.used
            self.units[place] = {f"cpu{cpu}" for cpu in usage.pinned}

    def write(self, spread: Sequence[tuple[int, Sequence[AmountRecord]]]) -> None:
        for place, records in spread:
            for record in records:
                self.used[place][record.resource_class] += record.amount
                if record.amount > 0:
                    assert self.units[place].isdisjoint(record.units)
                    self.units[place] |= set(record.units)
                else:
                    assert self.units[place].issuperset(record.units)
                    self.units[place] -= set(record.units)

    def read(self, room: Mapping[str, int] | None = None) -> NUMATopologyInventory:
        stored = []
        for part, used, units in zip(self.parts, self.used, self.units, strict=True):
            records = tuple(
                dataclasses.replace(record, used=used[record.resource_class])
                for record in part.inventory.to_records()
            )
            stored.append(StoredPart(records, part.inventory.describe(), {"PCPU": tuple(units)}))
        return NUMA_TOPOLOGY.inventory_from_parts(stored, room)


def answer(inventory: NUMATopologyInventory, question: NUMAQuestion) -> object:
    """Return the assigned amount, or the reasons of the refusal."""
    try:
        return inventory.fit(question.amount, question.limit)
    except exceptions.CapacityException as refusal:
        return refusal.reasons


@pytest.mark.law(1, 5)
@given(questions)
def test_what_is_gathered_is_what_was_stored(question: NUMAQuestion) -> None:
    inventory = question.inventory
    gathered = Books(inventory).read()
    assert gathered.cells == inventory.cells
    assert gathered.usage == inventory.usage
    assert answer(gathered, question) == answer(inventory, question)


@pytest.mark.law(1, 3)
@rarely_fits
@given(questions)
def test_what_is_taken_is_stored_and_gathered_as_taken(question: NUMAQuestion) -> None:
    inventory = question.inventory
    books = Books(inventory)
    assigned = answer(inventory, question)
    assume(isinstance(assigned, NUMATopologyAmount))
    assert isinstance(assigned, NUMATopologyAmount)
    spread = inventory.to_allocations(assigned)
    books.write(spread)
    inventory.consume(assigned)
    assert books.read().usage == inventory.usage
    books.write(inventory.to_allocations(-assigned))
    inventory.consume(-assigned)
    assert books.read().usage == inventory.usage


@pytest.mark.law(3)
@rarely_fits
@given(questions)
def test_what_was_taken_is_known_from_what_is_stored(question: NUMAQuestion) -> None:
    inventory = question.inventory
    assigned = answer(inventory, question)
    assume(isinstance(assigned, NUMATopologyAmount))
    assert isinstance(assigned, NUMATopologyAmount)
    allocated = dict(inventory.to_allocations(assigned))
    assert inventory.from_allocations(question.amount, allocated) == assigned
    inventory.consume(assigned)
    assert inventory.from_allocations(question.amount, allocated) == assigned
    assert inventory.from_allocations(assigned, allocated) == assigned


@pytest.mark.law(3)
@pytest.mark.parametrize("lot", some(range(4)))
def test_what_was_taken_is_known_of_thousands(lot: int) -> None:
    for seed in range(lot * 1000, (lot + 1) * 1000):
        question = question_of(seed)
        assigned = answer(question.inventory, question)
        if isinstance(assigned, NUMATopologyAmount):
            allocated = dict(question.inventory.to_allocations(assigned))
            assert question.inventory.from_allocations(question.amount, allocated) == assigned, seed


@rarely_fits
@given(questions)
def test_what_it_needs_at_least_is_what_the_host_cells_have(question: NUMAQuestion) -> None:
    inventory = question.inventory
    assigned = answer(inventory, question)
    assume(isinstance(assigned, NUMATopologyAmount))
    assert isinstance(assigned, NUMATopologyAmount)
    for number, placed in enumerate(assigned.placed):
        (part,) = [part for part in inventory.parts() if part.inventory.cells[0].id == placed.cell]
        single = NUMATopologyInventory(
            part.inventory.cells,
            usage=[used for used in inventory.usage if used.cell == placed.cell],
            cpu_ratio=inventory.cpu_ratio,
            memory_ratio=inventory.memory_ratio,
        )
        remaining = {r.resource_class: r.capacity - r.used for r in single.to_records()}
        needed = NUMA_TOPOLOGY.lower_bounds(question.amount, remaining)[number]
        assert all(remaining[name] >= count for name, count in needed.items())


# --- the figures ----------------------------------------------------------------------------------


def test_a_cell_is_stored_as_plain_figures() -> None:
    cell = paged(0, 100, (KIB_2M, 8, 3), (KIB_1G, 0), shared=[0, 1], dedicated=[2, 3, 4])
    (part,) = host(cell, cpu_ratio=4, memory_ratio="1.5").parts()
    assert (part.name, part.host_classes) == ("numa0", ("VCPU", "PCPU", "MEMORY_MB"))
    assert [
        (r.resource_class, r.total, r.reserved, r.max_unit, r.capacity, r.used)
        for r in part.inventory.to_records()
    ] == [
        ("VCPU", 2, 0, 2, 8, 0),
        ("PCPU", 3, 0, None, 3, 0),
        ("MEMORY_MB", 116, 16, 100, 150, 0),
        ("CUSTOM_HUGEPAGES_2048KB", 8, 3, None, 5, 0),
    ]


def test_what_is_used_is_no_part_of_what_is_declared() -> None:
    cell, usage = plain(0, [0, 1]), CellUsage(0, pinned=[0], memory_mb=5)
    (part,) = host(cell, usage=[usage]).parts()
    assert part.inventory == host(cell)
    used = {r.resource_class: r.used for r in host(cell, usage=[usage]).to_records()}
    assert used == {"PCPU": 1, "MEMORY_MB": 5}


def test_what_a_cell_has_not_is_not_stored() -> None:
    parts = host(HostCell(3, memory_mb=64), HostCell(5, dedicated=[1])).parts()
    assert [(part.name, part.host_classes) for part in parts] == [
        ("numa3", ("MEMORY_MB",)),
        ("numa5", ("PCPU",)),
    ]


def test_what_is_taken_of_a_cell_is_counts_and_units() -> None:
    inventory = host(cored(0, (0, 4), (1, 5), (2, 6), shared=[8]), plain(1, [9]))
    request = numa(
        [GuestCell(shared=[0], dedicated=[1], memory_mb=64)],
        thread_policy="isolate",
        emulator_policy="isolate",
    )
    ((place, records),) = inventory.to_allocations(inventory.fit(request))
    assert place == 0
    assert records == (
        AmountRecord("VCPU", 1),
        AmountRecord("PCPU", 4, ("cpu0", "cpu1", "cpu4", "cpu5")),
        AmountRecord("MEMORY_MB", 64),
    )


def test_huge_pages_are_a_class_of_their_own() -> None:
    inventory = host(paged(0, 64, (KIB_2M, 8)))
    request = numa(memory_mb=6, page_size="large")
    spread = inventory.to_allocations(inventory.fit(request))
    assert spread == ((0, (AmountRecord("CUSTOM_HUGEPAGES_2048KB", 3),)),)
    assert inventory.to_allocations(-inventory.fit(request)) == (
        (0, (AmountRecord("CUSTOM_HUGEPAGES_2048KB", -3),)),
    )


def test_cpus_taken_without_units_are_loose() -> None:
    """Two CPUs of the cell were allocated by number, or one that does not exist any more."""
    (part,) = host(plain(0, range(4))).parts()
    records = tuple(dataclasses.replace(r, used=3) for r in part.inventory.to_records()[:1])
    stored = StoredPart(records, part.inventory.describe(), {"PCPU": ("cpu1", "cpu77", "gpu2")})
    assert NUMA_TOPOLOGY.inventory_from_parts([stored]).usage == (
        CellUsage(0, pinned=[1], loose=2),
    )


def test_a_view_over_the_whole_host_knows_what_the_host_has_left() -> None:
    inventory = host(plain(0, [0, 1]), plain(1, [2, 3]))
    view = Books(inventory).read(room={"PCPU": 1})
    assert not view.can_provide(numa(2, dedicated=2)) and view.can_provide(numa(dedicated=1))


# --- forms that cannot be stored, or that others stored ------------------------------------------


@pytest.mark.law(8)
def test_cpus_that_serve_either_way_are_not_stored() -> None:
    """Units of two classes would be one CPU twice."""
    with pytest.raises(exceptions.InvalidInventory, match="each shared or dedicated"):
        host(HostCell(0, shared=[0], dedicated=[0])).parts()


@pytest.mark.law(8)
def test_several_cells_are_not_stored_by_one_provider() -> None:
    with pytest.raises(exceptions.InvalidInventory, match="one: each cell has a provider"):
        host(plain(0, [0]), plain(1, [1])).to_records()


def part_of(cell: HostCell, **figures: object) -> StoredPart:
    """Return the stored form of a cell."""
    (part,) = host(cell, **figures).parts()
    return StoredPart(part.inventory.to_records(), part.inventory.describe())


@pytest.mark.law(8)
def test_cells_of_one_host_have_one_ratio() -> None:
    parts = [part_of(HostCell(i, shared=[i]), cpu_ratio=i + 1) for i in range(2)]
    with pytest.raises(exceptions.InvalidInventory, match="one for all cells of a host"):
        NUMA_TOPOLOGY.inventory_from_parts(parts)


NO_DESCRIPTIONS = [
    *[None, "", "{", "[]", "7", "null", '"0"', "{}", '{"id": "0"}', '{"id": -1}'],
    *['{"id": 0, "x": 1}', '{"id": 0, "dedicated": [0, 0]}', '{"id": 0, "base": 4}'],
    *['{"id": 0, "base": [4]}', '{"id": 0, "empty": 3}', '{"id": 0, "empty": [3]}'],
    *['{"id": 0, "memory_mb": 3}', '{"id": 0, "siblings": [0]}', '{"id": 0, "distances": [[0]]}'],
    "[" * 5000,
]


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "description",
    NO_DESCRIPTIONS,
    ids=lambda text: str(text)[:30],
)
def test_a_description_that_is_none_is_refused(description: str | None) -> None:
    with pytest.raises(exceptions.InvalidInventory, match="description of a cell"):
        NUMA_TOPOLOGY.inventory_from_parts(
            [StoredPart(part_of(plain(0, [0])).records, description)]
        )
    with pytest.raises(exceptions.InvalidInventory):
        NUMA_TOPOLOGY.inventory_from_records(part_of(plain(0, [0])).records)


@pytest.mark.law(8)
@given(numa_inventories(max_cells=1, serves_either_way=False), st.data())
def test_a_damaged_description_is_read_or_refused(
    inventory: NUMATopologyInventory, data: st.DataObject
) -> None:
    document = json.loads(inventory.parts()[0].inventory.describe())
    key = data.draw(st.sampled_from(sorted(document)))
    document[key] = data.draw(
        st.recursive(
            st.none() | st.booleans() | st.integers(-1, 2**40) | st.floats() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
            max_leaves=4,
        )
    )
    part = StoredPart(inventory.to_records(), json.dumps(document))
    try:
        gathered = NUMA_TOPOLOGY.inventory_from_parts([part])
    except exceptions.InvalidInventory:
        return
    assert len(gathered.cells) == 1


def test_a_description_is_equal_for_the_same() -> None:
    item = host(plain(0, [1, 0], physnets=["b", "a"]))
    other = host(plain(0, [0, 1], physnets=["a", "b"]))
    assert item.describe() == other.describe()
    used = host(plain(0, [1, 0], physnets=["b", "a"]), usage=[CellUsage(0, pinned=[1])])
    assert used.describe() == item.describe(), "what is used is rows"


# --- allocations that contradict the amount -------------------------------------------------------

TWO = host(plain(0, range(4)), plain(1, range(4, 8)))


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "allocated",
    [
        pytest.param({}, id="nothing"),
        pytest.param({0: [AmountRecord("PCPU", 1, ("cpu0",))]}, id="one cell of two"),
        pytest.param(
            {i: [AmountRecord("PCPU", 2, (f"cpu{4 * i}", f"cpu{4 * i + 1}"))] for i in range(2)},
            id="more CPUs",
        ),
        pytest.param({i: [AmountRecord("PCPU", 1)] for i in range(2)}, id="no units"),
        pytest.param({i: [AmountRecord("MEMORY_MB", 1)] for i in range(2)}, id="something else"),
    ],
)
def test_what_is_allocated_has_to_be_what_was_requested(
    allocated: dict[int, list[AmountRecord]],
) -> None:
    with pytest.raises(exceptions.ForeignAmount, match="allocations of the cells"):
        TWO.from_allocations(numa(2, dedicated=2), allocated)


def test_more_may_be_allocated_with_it() -> None:
    request = numa(2, dedicated=2)
    assigned = TWO.fit(request)
    more = [AmountRecord("MEMORY_MB", 1)]
    allocated = {place: [*records, *more] for place, records in TWO.to_allocations(assigned)}
    assert (
        TWO.from_allocations(request, allocated)
        == TWO.from_allocations(assigned, allocated)
        == assigned
    )


@pytest.mark.parametrize(
    ("requested", "counts"),
    [
        pytest.param(numa(2, shared=2), (1, 1, 1), id="which cells"),
        pytest.param(NUMATopologyAmount.parse("0@0/1-2@0"), (2, 3), id="which guest cell"),
    ],
)
def test_what_can_be_read_in_two_ways_is_not_reported(
    requested: NUMATopologyAmount, counts: tuple[int, ...]
) -> None:
    three = host(*(HostCell(n, shared=range(4 * n, 4 * n + 4)) for n in range(3)))
    allocated = {n: [AmountRecord("VCPU", count)] for n, count in enumerate(counts)}
    with pytest.raises(exceptions.ForeignAmount):
        three.from_allocations(requested, allocated)
    single = {n: [AmountRecord("VCPU", len(c.shared))] for n, c in enumerate(requested.cells)}
    assert on(three.from_allocations(requested, single)) == [0, 1]


def test_which_guest_cell_holds_what_is_found_whatever_the_order() -> None:
    inventory = host(plain(0, [0]), plain(1, [1, 2]), plain(2, [3, 4, 5]))
    for sizes in [(1, 2, 3), (3, 1, 2), (2, 3, 1)]:
        request = uneven(*sizes)
        assigned = inventory.fit(request)
        allocated = dict(inventory.to_allocations(assigned))
        assert inventory.from_allocations(request, allocated) == assigned
        assert on(assigned) == [size - 1 for size in sizes]


def test_a_cpu_of_the_emulator_differs_from_one_of_a_vcpu() -> None:
    """Guest cell 0 with its emulator takes as many CPUs as guest cell 1: there is one reading."""
    inventory = host(
        cored(0, (0, 1), (2, 3)),
        cored(1, (4, 5), (6, 7)),
        usage=[CellUsage(1, pinned=[7])],
    )
    parsed = NUMATopologyAmount.parse("!0-1@0/!2-4@0:thread_policy=require:emulator_policy=isolate")
    assigned = inventory.fit(parsed)
    assert inventory.from_allocations(parsed, dict(inventory.to_allocations(assigned))) == assigned
