"""The laws, for NUMA topologies: as properties of any host and any request, and in any order."""

from __future__ import annotations

import contextlib
import copy
import math
import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from resource_objects import exceptions
from resource_objects.reasons import Rule
from resource_objects.resources.context import ANYWHERE, Context
from resource_objects.resources.numa import (
    CellUsage,
    NUMATopologyAmount,
    NUMATopologyInventory,
    numa,
)
from tests.resources.numa.hosts import cored, host, plain, rarely_fits, refused
from tests.support.lengths import examples
from tests.support.numa_reference import faults
from tests.support.numa_strategies import (
    NUMAQuestion,
    numa_amounts,
    numa_inventories,
    numa_questions,
)

contexts = st.sampled_from([ANYWHERE, Context(pack=True), Context(spare={0: 2, 2: 1})])


def fitted(question: NUMAQuestion) -> NUMATopologyAmount:
    """Return the assigned amount; a question that is refused proves nothing here."""
    try:
        return question.inventory.fit(question.amount, question.limit)
    except exceptions.CapacityException:
        assume(False)
        raise


def added(usage: CellUsage, assigned: NUMATopologyAmount) -> CellUsage:
    """Return the usage of a cell with an assigned amount, counted by hand."""
    shared, pinned = usage.shared, set(usage.pinned)
    memory_mb, pages = usage.memory_mb, Counter(dict(usage.pages))
    for number, (guest, placed) in enumerate(zip(assigned.cells, assigned.placed, strict=True)):
        if placed.cell != usage.cell:
            continue
        shared += len(guest.shared)
        pinned |= {cpu for _, cpu in placed.pins} | set(placed.idle)
        if number == 0 and assigned.emulator_cpu is not None:
            pinned.add(assigned.emulator_cpu)
        if placed.page_size_kib is None:
            memory_mb += guest.memory_mb
        else:
            pages[placed.page_size_kib] += guest.memory_mb * 1024 // placed.page_size_kib
    return CellUsage(
        usage.cell,
        shared=shared,
        pinned=pinned,
        loose=usage.loose,
        memory_mb=memory_mb,
        pages=pages,
    )


@pytest.mark.law(1)
@rarely_fits
@given(numa_questions())
def test_used_is_what_was_used_and_what_is_taken(question: NUMAQuestion) -> None:
    before = question.inventory.usage
    assigned = fitted(question)
    assert question.inventory.consume(question.amount, question.limit) == assigned
    assert question.inventory.usage == tuple(added(used, assigned) for used in before)


@pytest.mark.law(1)
@rarely_fits
@given(numa_questions())
def test_the_room_of_the_host_is_what_its_cells_gave(question: NUMAQuestion) -> None:
    assigned = fitted(question)
    before = question.inventory.room
    question.inventory.consume(assigned)
    if before is None:
        assert question.inventory.room is None
        return
    taken = assigned.host_usage
    assert question.inventory.room == {
        name: count - taken.get(name, 0) for name, count in before.items()
    }


@pytest.mark.law(2)
@given(numa_questions(), contexts)
def test_a_refusal_changes_nothing(question: NUMAQuestion, context: Context) -> None:
    inventory, amount, limit = question
    before = copy.deepcopy(inventory)
    try:
        inventory.consume(amount, limit, context)
    except exceptions.CapacityException:
        assert inventory == before
        assert inventory.free_dedicated == before.free_dedicated
    else:
        assert inventory != before


@pytest.mark.law(3)
@rarely_fits
@given(numa_questions())
def test_releasing_what_was_taken_restores_the_inventory(question: NUMAQuestion) -> None:
    before = copy.deepcopy(question.inventory)
    assigned = fitted(question)
    question.inventory.consume(assigned)
    back = question.inventory.consume(-assigned)
    assert back == -assigned and -back == assigned
    assert question.inventory == before
    assert question.inventory.fit(question.amount, question.limit) == assigned


@pytest.mark.law(3)
@rarely_fits
@given(numa_questions())
def test_what_was_released_cannot_be_released_again(question: NUMAQuestion) -> None:
    """Another consumer of the same counts hides it: only named CPUs can be distinguished."""
    assigned = fitted(question)
    question.inventory.update(usage=[])
    (reasons,) = {
        tuple(reason.rule for reason in refused(question.inventory, -assigned)),
    }
    assert set(reasons) == {Rule.USED_BELOW_ZERO}


@pytest.mark.law(4)
@given(numa_inventories(), st.lists(numa_amounts(), max_size=6))
def test_no_more_is_taken_than_there_is(
    inventory: NUMATopologyInventory, amounts: list[NUMATopologyAmount]
) -> None:
    before = copy.deepcopy(inventory)
    taken: list[int] = []
    for amount in amounts:
        try:
            assigned = inventory.consume(amount)
        except exceptions.CapacityException:
            continue
        cpus = [cpu for placed in assigned.placed for cpu in placed.pinned]
        taken += cpus + ([] if assigned.emulator_cpu is None else [assigned.emulator_cpu])
    assert len(set(taken)) == len(taken), "a CPU is given twice"
    assert_no_cell_is_fuller_than_it_was(before, inventory)


def assert_no_cell_is_fuller_than_it_was(
    before: NUMATopologyInventory, after: NUMATopologyInventory
) -> None:
    """Check that usage is within the capacity, or was above it before."""
    for cell, was, used in zip(after.cells, before.usage, after.usage, strict=True):
        assert set(used.pinned) <= set(cell.dedicated)
        if used.pinned != was.pinned:
            assert len(used.pinned) + used.loose <= len(cell.dedicated)
        shared = len(set(cell.shared) - set(used.pinned))
        capacity = math.floor(shared * Fraction(after.cpu_ratio))
        if used.shared != was.shared or set(used.pinned) & set(cell.shared) - set(was.pinned):
            assert used.shared <= capacity
        if used.memory_mb != was.memory_mb:
            assert used.memory_mb <= math.floor(cell.ordinary_mb * Fraction(after.memory_ratio))
        for size, count in used.pages:
            (pool,) = [pool for pool in cell.huge_pages if pool.size_kib == size]
            assert count <= pool.total - pool.reserved
    for name, remaining in (after.room or {}).items():
        assert remaining >= 0 or remaining == (before.room or {})[name]


@pytest.mark.law(5)
@given(numa_questions(), contexts)
def test_asking_fitting_and_taking_are_one_decision(
    question: NUMAQuestion, context: Context
) -> None:
    inventory, amount, limit = question
    before, request = copy.deepcopy(inventory), copy.deepcopy(amount)
    can = inventory.can_provide(amount, limit)
    assert (inventory, amount) == (before, request), "asking changes nothing"
    try:
        assigned = inventory.fit(amount, limit, context)
    except exceptions.CapacityException:
        assert not can
    else:
        assert can
        assert (inventory, amount) == (before, request)
        taken = inventory.consume(amount, limit, context)
        assert taken == assigned


OTHERS = [numa(dedicated=1), numa(shared=1), numa(memory_mb=64), numa(memory_mb=2, page_size="2MB")]


@pytest.mark.law(5)
@rarely_fits
@given(numa_questions(), st.lists(st.tuples(st.sampled_from(OTHERS), st.integers(0, 3))))
def test_what_is_assigned_is_judged_by_the_same_rules_later(
    question: NUMAQuestion, other_items: list[tuple[NUMATopologyAmount, int]]
) -> None:
    """Another consumer came first: the decision still fits, or is refused by the rule it breaks.

    Threads are siblings only by choice, so this rule is not checked again.
    """
    inventory, _, limit = question
    assigned = fitted(question)
    for other, place in other_items:
        within = [cell.id for cell in inventory.cells[place : place + 1]]
        with contextlib.suppress(exceptions.CapacityException):
            inventory.consume(other, context=Context(allowed=within))
    wrong = faults(inventory, assigned, limit)
    wrong = [fault for fault in wrong if "not threads of the same cores" not in fault]
    assert inventory.can_provide(assigned, limit) == (not wrong), wrong


@pytest.mark.law(6)
@rarely_fits
@given(numa_questions(), contexts)
def test_whatever_fits_can_be_taken_as_it_is(question: NUMAQuestion, context: Context) -> None:
    inventory, amount, limit = question
    try:
        assigned = inventory.fit(amount, limit, context)
    except exceptions.CapacityException:
        assume(False)
    assert faults(inventory, assigned, limit) == []
    assert inventory.consume(assigned, limit) == assigned


@pytest.mark.law(6)
@rarely_fits
@given(numa_questions())
def test_every_refusal_says_which_rule_failed_with_its_figures(question: NUMAQuestion) -> None:
    inventory, amount, limit = question
    try:
        inventory.fit(amount, limit)
    except exceptions.CapacityException as refusal:
        assert refusal.reasons and str(refusal)
        assert not any("None" in str(reason) for reason in refusal.reasons)
        ids = {cell.id for cell in inventory.cells}
        for reason in refusal.reasons:
            assert reason.resource and reason.requested > 0
            assert reason.cell is None or reason.cell in ids
            assert reason.guest is None or reason.guest < len(amount.cells)
            if reason.rule in (Rule.CAPACITY, Rule.LIMIT, Rule.PHYSICAL):
                assert reason.used + reason.requested > reason.bound
            if reason.rule in (Rule.MAX_UNIT, Rule.THREADS, Rule.HOST_CELLS, Rule.TOGETHER):
                assert reason.requested > reason.bound
            if reason.rule is Rule.INDIVISIBLE:
                assert reason.requested * 1024 % reason.bound
    else:
        assume(False)


@pytest.mark.law(6)
@rarely_fits
@given(numa_questions())
def test_a_guest_cell_that_fits_nowhere_is_refused_for_every_host_cell(
    question: NUMAQuestion,
) -> None:
    inventory, amount, limit = question
    first = amount.cells[0]
    request = numa(
        shared=len(first.shared),
        dedicated=len(first.dedicated),
        memory_mb=first.memory_mb,
        page_size=amount.page_size,
        thread_policy=amount.thread_policy if first.dedicated else None,
    )
    inventory.update(room=None)
    try:
        inventory.fit(request, limit)
    except exceptions.CapacityException as refusal:
        assert {reason.cell for reason in refusal.reasons} == {cell.id for cell in inventory.cells}
    else:
        assume(False)


@pytest.mark.law(7)
@given(
    st.integers(1, 64),
    st.integers(1, 5 * 10**6),
    st.integers(0, 2**31 - 1),
    st.integers(1, 4000 * 10**6),
)
def test_capacities_are_floors_of_exact_products(
    cpus: int, cpu_millionths: int, memory_mb: int, memory_millionths: int
) -> None:
    ratios = [Fraction(m, 10**6) for m in (cpu_millionths, memory_millionths)]
    inventory = NUMATopologyInventory(
        [plain(0, []).replace(shared=range(cpus), memory_mb=memory_mb)],
        cpu_ratio=f"{cpu_millionths / 10**6:.6f}",
        memory_ratio=f"{memory_millionths // 10**6}.{memory_millionths % 10**6:06}",
    )
    assert inventory.free_shared == math.floor(cpus * ratios[0])
    assert inventory.free_memory_mb == math.floor(memory_mb * ratios[1])


@pytest.mark.law(7)
@rarely_fits
@given(numa_questions())
def test_no_figure_is_anything_but_an_integer(question: NUMAQuestion) -> None:
    assigned = fitted(question)
    question.inventory.consume(assigned)

    def check(value: object) -> None:
        assert not isinstance(value, float)
        if isinstance(value, dict):
            value = [*value, *value.values()]
        if isinstance(value, list | tuple):
            for item in value:
                check(item)

    check(question.inventory.obj_to_primitive())
    check(assigned.obj_to_primitive())


@pytest.mark.law(8)
@given(
    st.lists(st.tuples(*(st.lists(st.integers(-1, 4), max_size=3),) * 2, st.integers(-1, 3))),
    st.sampled_from([None, "", "prefer", "isolate", "sometimes"]),
    st.sampled_from([None, "share", "isolate", 3]),
    st.sampled_from(["", "small", "2MB", "3000", None, -1, 4]),
)
def test_an_amount_that_exists_is_valid(
    cells: list[tuple[list[int], list[int], int]],
    thread_policy: object,
    emulator_policy: object,
    page_size: object,
) -> None:
    from resource_objects.resources.numa import GuestCell

    try:
        amount = NUMATopologyAmount(
            [GuestCell(shared=s, dedicated=d, memory_mb=m) for s, d, m in cells],
            thread_policy=thread_policy,  # type: ignore[arg-type]
            emulator_policy=emulator_policy,  # type: ignore[arg-type]
            page_size=page_size,  # type: ignore[arg-type]
        )
    except exceptions.InvalidInput as error:
        assert error.what and error.expected
        return
    all_items = [vcpu for cell in amount.cells for vcpu in cell.vcpus]
    assert sorted(all_items) == list(range(amount.vcpus))
    assert amount.cells and all(cell.vcpus or cell.memory_mb for cell in amount.cells)
    assert amount.thread_policy in (None, "prefer", "isolate")
    assert "PCPU" in amount.placed_counts or amount.thread_policy is None
    assert "PCPU" in amount.placed_counts or amount.emulator_policy != "isolate"


@pytest.mark.law(9)
@given(numa_questions(), contexts, st.randoms(use_true_random=False))
def test_the_answer_is_the_same_however_the_cells_are_listed(
    question: NUMAQuestion, context: Context, chance: object
) -> None:
    inventory, amount, limit = question
    cells, usage = list(inventory.cells), list(inventory.usage)
    chance.shuffle(cells)  # type: ignore[attr-defined]
    chance.shuffle(usage)  # type: ignore[attr-defined]
    shuffled = NUMATopologyInventory(
        cells,
        usage=usage,
        cpu_ratio=inventory.cpu_ratio,
        memory_ratio=inventory.memory_ratio,
        room=inventory.room,
    )
    answers = []
    for request in (inventory, copy.deepcopy(inventory), shuffled):
        try:
            answers.append(request.fit(amount, limit, context))
        except exceptions.CapacityException:
            answers.append(None)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.law(9)
def test_a_search_that_would_take_too_long_is_cut_short_and_is_reported() -> None:
    """Networks that several cells are next to are a cover: forty of them, by eleven of 64 cells."""
    chance = random.Random(0)
    names = [f"net{number}" for number in range(40)]
    cells = [plain(i, [i], physnets=chance.sample(names, 4)) for i in range(64)]
    request = numa(11, dedicated=11, physnets=names)
    with pytest.raises(exceptions.SearchLimitReached, match="neither yes nor no"):
        host(*cells).fit(request)
    assert host(*cells).fit(request.replace(physnets=names[:5])).is_assigned


@pytest.mark.law(9)
@pytest.mark.parametrize("guests", [8, 16])
def test_what_no_permutation_fits_is_refused_at_once(guests: int) -> None:
    """Sixteen cells, all full but for one CPU too few: permutations would take more than a life."""
    cells = [cored(i, *((4 * i + n,) for n in range(4))) for i in range(16)]
    reasons = refused(host(*cells), numa(guests, dedicated=5 * guests))
    assert {reason.rule for reason in reasons} == {Rule.CAPACITY}
    assert len(reasons) == 16


class Users(RuleBasedStateMachine):
    """Consumers allocate and release in any order; the usage is the sum of their allocations."""

    allocated_cpus = Bundle("held")

    @initialize(inventory=numa_inventories(has_room=True))
    def begin(self, inventory: NUMATopologyInventory) -> None:
        self.first = copy.deepcopy(inventory)
        self.inventory = inventory
        self.holds: list[NUMATopologyAmount] = []

    @rule(target=allocated_cpus, amount=numa_amounts(max_cells=2), context=contexts)
    def take(self, amount: NUMATopologyAmount, context: Context) -> object:
        try:
            assigned = self.inventory.consume(amount, None, context)
        except exceptions.CapacityException:
            return multiple()
        self.holds.append(assigned)
        return assigned

    @rule(assigned=consumes(allocated_cpus))
    def give_back(self, assigned: NUMATopologyAmount) -> None:
        self.inventory.consume(-assigned)
        self.holds.remove(assigned)

    @rule(assigned=allocated_cpus)
    def take_again(self, assigned: NUMATopologyAmount) -> None:
        """An amount with allocated CPUs is always refused."""
        if any(placed.pinned for placed in assigned.placed):
            assert not self.inventory.can_provide(assigned)

    @invariant()
    def used_is_the_sum_of_what_is_held(self) -> None:
        if not hasattr(self, "first"):
            return
        expected = self.first.usage
        for assigned in self.holds:
            expected = tuple(added(used, assigned) for used in expected)
        assert self.inventory.usage == expected

    @invariant()
    def nothing_is_over_full(self) -> None:
        if hasattr(self, "first"):
            assert_no_cell_is_fuller_than_it_was(self.first, self.inventory)

    @invariant()
    def it_is_as_one_made_anew(self) -> None:
        """The working form never differs from the fields."""
        if not hasattr(self, "first"):
            return
        anew = NUMATopologyInventory.obj_from_primitive(self.inventory.obj_to_primitive())
        assert anew == self.inventory
        request = numa(dedicated=1)
        assert anew.can_provide(request) == self.inventory.can_provide(request)
        assert anew.free_shared == self.inventory.free_shared


Users.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=15)
TestUsers = pytest.mark.law(1, 3, 4)(Users.TestCase)
