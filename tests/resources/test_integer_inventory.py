"""The integer inventory against a naive reference in exact fractions, and its laws.

The rules one by one, and the holes that other systems have in them: ``test_integer_rules.py``.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import IntegerAmount, IntegerInventory, IntegerResource
from resource_objects.testing.refusals import raises_code
from tests.support import strategies


@dataclasses.dataclass
class Reference:
    """The rules as in the documentation, in fractions, without regard to speed."""

    inventory: IntegerInventory

    @property
    def capacity(self) -> int:
        i = self.inventory
        return math.floor(Fraction(i.total - i.reserved) * Fraction(i.allocation_ratio))

    def broken(self, amount: int, limit: int | None = None) -> set[Rule]:
        """Return every rule that refuses ``amount``."""
        i = self.inventory
        after = i.used + amount
        if amount <= 0:
            return {Rule.USED_BELOW_ZERO} if after < 0 else set()
        rules = {
            Rule.MIN_UNIT: amount < i.min_unit,
            Rule.MAX_UNIT: i.max_unit is not None and amount > i.max_unit,
            Rule.STEP_SIZE: Fraction(amount, i.step_size).denominator != 1,
            Rule.CAPACITY: after > self.capacity,
            Rule.LIMIT: limit is not None and after > limit,
        }
        return {broken for broken, is_broken in rules.items() if is_broken}


def figures(inventory: IntegerInventory) -> dict[str, Any]:
    return {name: getattr(inventory, name) for name in inventory.fields}


small = strategies.integer_inventories(max_total=24)
near = st.integers(-60, 60)
limits = st.none() | st.integers(0, 60)


@st.composite
def questions(draw: st.DrawFn) -> tuple[IntegerInventory, int, int | None]:
    """Return an inventory and an amount and limit near its bounds."""
    inventory = draw(small | strategies.integer_inventories())
    bounds = [inventory.free, inventory.capacity, inventory.min_unit, -inventory.used]
    bounds.append(inventory.max_unit or 1)
    close = st.sampled_from(bounds).flatmap(lambda bound: st.integers(bound - 1, bound + 1))
    return inventory, draw(close | near), draw(limits)


@pytest.mark.law(5, 7)
@given(questions())
@example((IntegerInventory(100, allocation_ratio="1.15"), 115, None))
def test_the_decision_is_the_references(question: tuple[IntegerInventory, int, int | None]) -> None:
    inventory, amount, limit = question
    request = IntegerAmount(amount)
    bound = None if limit is None else IntegerAmount(limit)
    broken = Reference(inventory).broken(amount, limit)
    assert inventory.capacity == Reference(inventory).capacity
    assert inventory.free == inventory.capacity - inventory.used
    if broken:
        with pytest.raises(CapacityException) as caught:
            inventory.fit(request, bound)
        (reason,) = caught.value.reasons
        assert reason.rule in broken
        assert (reason.requested, reason.used) == (amount, inventory.used)
    else:
        assert inventory.fit(request, bound) == request


@pytest.mark.law(2, 5)
@given(questions())
def test_can_provide_fit_and_consume_agree_and_the_first_two_change_nothing(
    question: tuple[IntegerInventory, int, int | None],
) -> None:
    inventory, amount, limit = question
    request = IntegerAmount(amount)
    bound = None if limit is None else IntegerAmount(limit)
    before = figures(inventory)
    try:
        assigned = inventory.fit(request, bound)
        refusal = None
    except CapacityException as error:
        refusal = error
    if amount < 0:
        with raises_code("NegativeAmount"):
            inventory.can_provide(request, bound)
    else:
        assert inventory.can_provide(request, bound) is (refusal is None)
    assert figures(inventory) == before
    if refusal is None:
        assert inventory.consume(request, bound) == assigned == request
        assert figures(inventory) == before | {"used": before["used"] + amount}
    else:
        with pytest.raises(type(refusal)) as caught:
            inventory.consume(request, bound)
        assert caught.value.reasons == refusal.reasons
        assert figures(inventory) == before


@pytest.mark.law(3)
@given(small, near, limits)
def test_consume_and_release_restores(
    inventory: IntegerInventory, amount: int, limit: int | None
) -> None:
    before = figures(inventory)
    bound = None if limit is None else IntegerAmount(limit)
    try:
        assigned = inventory.consume(IntegerAmount(amount), bound)
    except CapacityException:
        assert figures(inventory) == before
        return
    if amount >= 0:
        assert inventory.consume(-assigned) == IntegerAmount(-amount)
        assert figures(inventory) == before


@pytest.mark.law(4)
@given(small, st.lists(near, max_size=20))
def test_no_sequence_of_claims_goes_above_what_was_there(
    inventory: IntegerInventory, amounts: list[int]
) -> None:
    highest = max(inventory.capacity, inventory.used)
    taken = inventory.used
    for amount in amounts:
        try:
            inventory.consume(IntegerAmount(amount))
        except CapacityException:
            pass
        else:
            taken += amount
        assert inventory.used == taken
        assert 0 <= inventory.used <= highest


@given(small, st.integers(1, 24))
def test_shrinking_below_use_takes_nothing_and_then_only_releasing_passes(
    inventory: IntegerInventory, total: int
) -> None:
    used = inventory.used
    inventory.update(total=total, reserved=0, max_unit=None, min_unit=1, step_size=1)
    assert inventory.used == used
    assert inventory.free == inventory.capacity - used
    assert inventory.can_provide(IntegerAmount(0))
    assert inventory.can_provide(IntegerAmount(1)) is (inventory.free >= 1)
    if used:
        inventory.consume(IntegerAmount(-1))
        assert inventory.used == used - 1


@given(small, small)
def test_equality_is_about_figures_not_labels_or_changes(
    item: IntegerInventory, other: IntegerInventory
) -> None:
    def compared(inventory: IntegerInventory) -> dict[str, Any]:
        return {k: v for k, v in figures(inventory).items() if k != "resource_class"}

    assert (item == other) is (compared(item) == compared(other))
    twin = item.obj_clone()
    twin.update(resource_class="VCPU")
    assert twin == item
    assert item != IntegerAmount(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(item)


@given(strategies.integer_inventories())
def test_records_and_text_give_the_inventory_back(inventory: IntegerInventory) -> None:
    vcpu = IntegerResource("VCPU")
    assert vcpu.parse_inventory(vcpu.format_inventory(inventory)) == inventory
    labelled = inventory.obj_clone()
    labelled.resource_class = "VCPU"
    records = labelled.to_records()
    assert vcpu.inventory_from_records(records) == inventory
    assert records[0].capacity == inventory.capacity
    with pytest.raises(exceptions.InvalidInventory, match="resource_class: got None"):
        inventory.to_records()


class Life(RuleBasedStateMachine):
    """One inventory through claims, releases and changes of its figures, next to a plain sum."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[IntegerAmount] = []

    @initialize(total=st.integers(1, 30), ratio=strategies.ratios())
    def begin(self, total: int, ratio: Any) -> None:
        self.inventory = IntegerInventory(total, allocation_ratio=ratio, resource_class="VCPU")

    @rule(amount=st.integers(0, 20))
    def claim(self, amount: int) -> None:
        fits = not Reference(self.inventory).broken(amount)
        assert self.inventory.can_provide(IntegerAmount(amount)) is fits
        if fits:
            self.held.append(self.inventory.consume(IntegerAmount(amount)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        amount = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.inventory.consume(-amount)

    @rule(
        changes=st.fixed_dictionaries(
            {},
            optional={
                "total": st.integers(1, 30),
                **{
                    name: st.integers(0, 30)
                    for name in ("reserved", "min_unit", "max_unit", "step_size")
                },
            },
        )
    )
    def change(self, changes: dict[str, int]) -> None:
        before = figures(self.inventory)
        try:
            self.inventory.update(**changes)
        except exceptions.InvalidInput:
            assert figures(self.inventory) == before

    @invariant()
    def used_is_the_sum_of_what_is_held(self) -> None:
        assert self.inventory.used == sum(amount.value for amount in self.held)
        assert self.inventory.capacity == Reference(self.inventory).capacity


TestLife = Life.TestCase


def test_a_reason_names_what_is_requested_the_bound_and_what_is_used() -> None:
    inventory = IntegerInventory(8, allocation_ratio=2, used=13, resource_class="VCPU")
    with pytest.raises(CapacityException) as caught:
        inventory.consume(IntegerAmount(4))
    assert caught.value.reasons == (Reason(Rule.CAPACITY, 4, 16, 13, "VCPU"),)
    assert str(caught.value) == "VCPU requested 4, free 3 of 16"
