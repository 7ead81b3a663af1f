"""What is decided on a kept record is what the inventory itself decides."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.reasons import Rule
from resource_objects.resources import IntegerInventory, IntegerResource, resource
from resource_objects.resources.records import InventoryRecord

_FEW = st.integers(1, 12)


@st.composite
def inventories(draw: st.DrawFn) -> IntegerInventory:
    """Small inventories, over-full ones among them."""
    total = draw(_FEW)
    figures: dict[str, Any] = {
        "reserved": draw(st.integers(0, total)),
        "step_size": draw(st.integers(1, 3)),
        "used": draw(st.integers(0, 30)),
        "allocation_ratio": draw(st.sampled_from(["0.5", "1", "2"])),
    }
    most = draw(st.none() | st.integers(1, total))
    figures |= {"max_unit": most, "min_unit": draw(st.integers(1, most or total))}
    return IntegerInventory(total, resource_class="VCPU", **figures)


def refused_by(inventory: IntegerInventory, amount: int) -> list[Rule]:
    """Return the rules that the inventory itself says are broken."""
    try:
        inventory.fit(resource("VCPU").make_amount(amount))
    except exceptions.CapacityException as refusal:
        return [reason.rule for reason in refusal.reasons]
    return []


@pytest.mark.law(5)
@given(inventories(), st.integers(-20, 30))
def test_a_kept_record_is_decided_on_as_its_inventory(
    inventory: IntegerInventory, amount: int
) -> None:
    (record,) = inventory.to_records()
    expected = refused_by(inventory, amount)
    assert resource("VCPU").certainly_fits(record, amount, record.used) is not bool(expected)
    assert [reason.rule for reason in resource("VCPU").refusals(record, amount, "h")] == expected


@pytest.mark.law(5)
@given(inventories(), st.integers(1, 30), st.integers(0, 30))
def test_unit_rules_bind_all_that_a_consumer_holds(
    inventory: IntegerInventory, amount: int, held: int
) -> None:
    (record,) = inventory.to_records()
    held = min(held, record.used)
    others = inventory.obj_clone()
    others.update(used=record.used - held)
    expected = refused_by(others, held + amount)
    found = resource("VCPU").refusals(record, amount, "h", held)
    assert [reason.rule for reason in found] == expected


@given(inventories(), st.integers(1, 30))
def test_an_aggregate_is_bound_by_the_capacity_alone(
    inventory: IntegerInventory, amount: int
) -> None:
    (record,) = inventory.to_records()
    found = resource("VCPU").refusals(record, amount, "h", aggregate=True)
    assert bool(found) is (amount > inventory.free)


def test_a_kind_of_its_own_is_asked_itself() -> None:
    class Slot(IntegerResource):
        """A kind that may decide in another way."""

    slot, record = Slot("CUSTOM_SLOT"), InventoryRecord("VCPU", 8, 0, 1, None, 1, 10**6, 8)
    assert not slot.certainly_fits(dataclasses.replace(record, resource_class="CUSTOM_SLOT"), 1, 0)
    assert resource("VCPU").certainly_fits(record, 1, 0)
