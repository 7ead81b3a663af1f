"""The rules of the integer kind, one by one, and the holes other systems have in them.

The rules are those of Placement: capacity, min_unit, max_unit, step_size, over-full inventories.
Placement 16 lets inventories in that contradict themselves; each such hole is a test here.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amounts, IntegerAmount, IntegerInventory, IntegerResource
from resource_objects.testing.refusals import raises_code


def fits(inventory: IntegerInventory, amount: int, limit: int | None = None) -> bool:
    """Ask, and check that fit and consume on a copy answer the same."""
    request = IntegerAmount(amount)
    bound = None if limit is None else IntegerAmount(limit)
    try:
        inventory.obj_clone().consume(request, bound)
    except CapacityException:
        consumed = False
    else:
        consumed = True
    if amount >= 0:
        assert inventory.can_provide(request, bound) is consumed
    return consumed


# --- capacity ---


@pytest.mark.law(7)
@pytest.mark.parametrize(
    ("figures", "capacity"),
    [
        ({"total": 8}, 8),
        ({"total": 8, "reserved": 3}, 5),
        ({"total": 8, "reserved": 8}, 0),
        ({"total": 8, "allocation_ratio": 16}, 128),
        ({"total": 9, "reserved": 1, "allocation_ratio": "1.5"}, 12),
        ({"total": 3, "allocation_ratio": "0.5"}, 1),
        ({"total": 1, "allocation_ratio": "0.000001"}, 0),
        ({"total": 7, "allocation_ratio": "0.999999"}, 6),
        ({"total": MAX_FIGURE, "allocation_ratio": 4000}, MAX_FIGURE * 4000),
        ({"total": MAX_FIGURE, "allocation_ratio": "3999.999999"}, 8589934585852),
    ],
)
def test_capacity_is_the_floor_of_what_is_not_reserved_times_the_ratio(
    figures: dict[str, Any], capacity: int
) -> None:
    inventory = IntegerInventory(**figures)
    assert inventory.capacity == capacity
    assert inventory.free == capacity
    if capacity:
        inventory.consume(IntegerAmount(capacity))
    assert inventory.free == 0
    assert not fits(inventory, 1)


@pytest.mark.law(7)
@pytest.mark.parametrize("ratio", [1.15, "1.15", Decimal("1.15")])
def test_a_product_that_is_whole_is_not_lost_to_floating_point(ratio: Any) -> None:
    assert int(100 * 1.15) == 114
    inventory = IntegerInventory(100, allocation_ratio=ratio)
    assert inventory.capacity == 115
    assert fits(inventory, 115)
    assert not fits(inventory, 116)


@pytest.mark.law(7)
def test_used_and_amount_add_up_exactly_beyond_the_precision_of_floats() -> None:
    inventory = IntegerInventory(MAX_FIGURE, allocation_ratio=4000, used=MAX_FIGURE * 4000 - 1)
    assert fits(inventory, 1)
    assert not fits(inventory, 2)


# --- unit rules: positive amounts only ---


@pytest.mark.parametrize(
    ("figures", "amount", "broken"),
    [
        ({"min_unit": 3}, 2, (Rule.MIN_UNIT, 3)),
        ({"min_unit": 3}, 3, None),
        ({"max_unit": 4}, 5, (Rule.MAX_UNIT, 4)),
        ({"max_unit": 4}, 4, None),
        ({"step_size": 3}, 4, (Rule.STEP_SIZE, 3)),
        ({"step_size": 3}, 6, None),
        ({"min_unit": 2, "step_size": 4}, 2, (Rule.STEP_SIZE, 4)),
        ({"min_unit": 3, "max_unit": 4, "step_size": 3}, 0, None),
        ({"min_unit": 3, "max_unit": 4, "step_size": 3, "used": 8}, -1, None),
        ({"min_unit": 3, "max_unit": 4, "step_size": 3, "used": 8}, -8, None),
    ],
)
def test_unit_rules_bind_what_is_requested_and_not_what_is_released(
    figures: dict[str, Any], amount: int, broken: tuple[Rule, int] | None
) -> None:
    inventory = IntegerInventory(16, resource_class="VCPU", **figures)
    assert fits(inventory, amount) is (broken is None)
    if broken is not None:
        with raises_code("UnitRuleViolated") as caught:
            inventory.fit(IntegerAmount(amount))
        rule, bound = broken
        assert caught.value.reasons == (Reason(rule, amount, bound, 0, "VCPU"),)


def test_no_max_unit_is_no_bound_of_its_own() -> None:
    assert fits(IntegerInventory(4, allocation_ratio=16), 64)
    assert not fits(IntegerInventory(4, max_unit=4, allocation_ratio=16), 5)


# --- giving back ---


@pytest.mark.parametrize(
    ("used", "amount", "fitting"), [(3, -3, True), (3, -4, False), (0, -1, False)]
)
def test_more_than_is_used_cannot_be_released(used: int, amount: int, fitting: bool) -> None:
    inventory = IntegerInventory(8, used=used)
    assert fits(inventory, amount) is fitting
    if not fitting:
        with pytest.raises(CapacityException, match=f"releases {-amount}, only {used} used"):
            inventory.consume(IntegerAmount(amount))


@pytest.mark.parametrize("amount", [-1, -MAX_AMOUNT])
def test_asking_whether_a_negative_amount_can_be_provided_is_an_error(amount: int) -> None:
    with raises_code("NegativeAmount") as caught:
        IntegerInventory(8, used=8).can_provide(IntegerAmount(amount))
    assert isinstance(caught.value, ValueError)


def test_zero_is_always_possible_and_changes_nothing() -> None:
    full = IntegerInventory(8, min_unit=2, step_size=2, used=99)
    assert full.can_provide(IntegerAmount(0), IntegerAmount(0))
    assert full.consume(IntegerAmount(0)) == IntegerAmount(0)
    assert full.used == 99


# --- over-full inventories: changes that do not make it worse are accepted ---


def test_what_increases_use_of_an_over_full_inventory_is_refused() -> None:
    over = IntegerInventory(8, used=12)
    assert over.free == -4
    with pytest.raises(CapacityException, match=r"requested 1, free -4 of 8"):
        over.consume(IntegerAmount(1))


def test_what_decreases_use_of_an_over_full_inventory_is_accepted_though_it_remains_over_full() -> (
    None
):
    over = IntegerInventory(8, min_unit=4, step_size=4, used=12)
    over.consume(IntegerAmount(-1))
    assert (over.used, over.free) == (11, -3)


def test_an_exchange_that_makes_nothing_worse_is_one_net_amount() -> None:
    over = IntegerInventory(8, used=12)
    over.consume(IntegerAmount(3) - IntegerAmount(3))
    over.consume(IntegerAmount(3) - IntegerAmount(4))
    assert over.used == 11


@pytest.mark.parametrize(
    "change",
    [{"total": 4}, {"reserved": 6}, {"allocation_ratio": "0.5"}],
    ids=["total", "reserved", "ratio"],
)
def test_shrinking_below_use_is_allowed_and_takes_nothing_away(change: dict[str, Any]) -> None:
    inventory = IntegerInventory(10, used=9)
    inventory.update(**change)
    assert inventory.used == 9
    assert inventory.free < 0
    assert not fits(inventory, 1)
    assert fits(inventory, 0)
    assert fits(inventory, -1)
    inventory.consume(IntegerAmount(-9))
    assert fits(inventory, inventory.capacity)


# --- limits ---


@pytest.mark.parametrize(
    ("used", "amount", "limit", "fitting"),
    [
        (0, 4, None, True),
        (0, 4, 4, True),
        (0, 5, 4, False),
        (3, 2, 4, False),
        (3, 1, 4, True),
        (6, 0, 4, True),
        (6, -1, 4, True),
        (6, -1, 0, True),
        (0, 1, 0, False),
        (0, 9, 99, False),
    ],
)
def test_a_limit_is_a_total_with_the_capacity(
    used: int, amount: int, limit: int | None, fitting: bool
) -> None:
    assert fits(IntegerInventory(8, used=used), amount, limit) is fitting


def test_a_refusal_by_limit_is_reported() -> None:
    with pytest.raises(CapacityException) as caught:
        IntegerInventory(8, used=3).fit(IntegerAmount(2), IntegerAmount(4))
    assert caught.value.reasons == (Reason(Rule.LIMIT, 2, 4, 3),)
    assert "free 1 under the limit of 4" in str(caught.value)


@pytest.mark.parametrize("limit", [4, "4", True, Amounts(), 4.0])
def test_a_limit_of_another_kind_is_refused(limit: Any) -> None:
    for ask in (IntegerInventory(8).fit, IntegerInventory(8).can_provide):
        with raises_code("WrongAmountKind", match="limit"):
            ask(IntegerAmount(1), limit)
    with raises_code("NegativeAmount", match="limit"):
        IntegerInventory(8).fit(IntegerAmount(1), IntegerAmount(-1))


@pytest.mark.parametrize("amount", [4, 4.0, "4", None, True, Amounts("VCPU=4")])
def test_an_amount_of_another_kind_is_refused(amount: Any) -> None:
    inventory = IntegerInventory(8)
    for ask in (inventory.fit, inventory.can_provide, inventory.consume):
        with raises_code("WrongAmountKind") as caught:
            ask(amount)
        assert isinstance(caught.value, ValueError)
    assert inventory.used == 0


# --- holes: inventories that contradict themselves cannot be made ---

HOLES = {
    "reserved above total, ratio truncates the product to 0": {
        "total": 1,
        "reserved": 2,
        "allocation_ratio": "0.5",
    },
    "reserved above total": {"total": 1, "reserved": 5},
    "negative ratio": {"total": 8, "allocation_ratio": -1},
    "negative ratio and reserved above total": {
        "total": 1,
        "reserved": 3,
        "allocation_ratio": -2,
    },
    "ratio 0": {"total": 8, "allocation_ratio": 0},
    "ratio out of all reason": {"total": 8, "allocation_ratio": 3.40282e38},
    "ratio that is no number": {"total": 8, "allocation_ratio": float("nan")},
    "min_unit above max_unit": {"total": 8, "min_unit": 5, "max_unit": 4},
    "max_unit above total": {"total": 8, "max_unit": 9},
    "total 0 and reserved": {"total": 0, "reserved": 1},
    "total 0 and max_unit": {"total": 0, "max_unit": 1},
    "total negative": {"total": -1},
    "total beyond 31 bits": {"total": 2**31},
    "reserved negative": {"total": 8, "reserved": -1},
    "min_unit 0": {"total": 8, "min_unit": 0},
    "max_unit 0": {"total": 8, "max_unit": 0},
    "step_size 0": {"total": 8, "step_size": 0},
    "used negative": {"total": 8, "used": -1},
    "used beyond 63 bits": {"total": 8, "used": 2**63},
}


@pytest.mark.law(8)
@pytest.mark.parametrize("figures", HOLES.values(), ids=HOLES)
def test_an_inventory_that_contradicts_itself_is_refused_in_every_way_it_could_come(
    figures: dict[str, Any],
) -> None:
    with pytest.raises(exceptions.InvalidInput):
        IntegerInventory(**figures)
    primitive = IntegerInventory(8).obj_to_primitive()
    primitive["versioned_object.data"].update(figures)
    with pytest.raises(exceptions.InvalidInput):
        IntegerInventory.obj_from_primitive(primitive)
    inventory = IntegerInventory(8)
    with pytest.raises(exceptions.InvalidInput):
        inventory.update(**figures)
    assert inventory == IntegerInventory(8)


@pytest.mark.law(8)
def test_a_contradiction_is_named_with_its_class_value_and_what_was_expected() -> None:
    with pytest.raises(exceptions.InvalidInventory) as caught:
        IntegerInventory(8, max_unit=9, resource_class="VCPU")
    assert str(caught.value) == (
        "VCPU max_unit: got 9, expected from the min_unit of 1 to the total of 8"
    )


def test_figures_that_depend_on_each_other_shrink_together() -> None:
    inventory = IntegerInventory(8, reserved=6, max_unit=8)
    with pytest.raises(exceptions.InvalidInventory):
        inventory.total = 4
    inventory.update(total=4, reserved=2, max_unit=4)
    assert (inventory.capacity, inventory.max_unit) == (2, 4)


def test_a_label_is_put_on_once() -> None:
    inventory = IntegerInventory(8)
    inventory.resource_class = "VCPU"
    inventory.resource_class = "VCPU"
    with pytest.raises(exceptions.InvalidInventory, match="resource_class: got 'PCPU'"):
        inventory.resource_class = "PCPU"
    assert inventory.resource_class == "VCPU"


# --- slots ---


def test_a_slot_is_one_consumer_of_a_type_per_provider() -> None:
    database = IntegerResource("CUSTOM_DATABASE_SLOT")
    host = database.make_inventory(1, max_unit=1)
    first = host.consume(database.make_amount(1))
    with pytest.raises(CapacityException, match="CUSTOM_DATABASE_SLOT requested 1, free 0 of 1"):
        host.consume(database.make_amount(1))
    host.consume(-first)
    assert fits(host, 1)


def test_a_claim_takes_at_most_one_slot_however_many_there_are() -> None:
    database = IntegerResource("CUSTOM_DATABASE_SLOT")
    for host in (database.make_inventory(3, max_unit=1), database.parse_inventory("3:max_unit=1")):
        assert not fits(host, 2)
        assert fits(host, 1)
        assert database.format_inventory(host) == "3:max_unit=1"
    free = database.make_inventory(3, max_unit=None)
    assert database.format_inventory(free) == "3"
    assert database.parse_inventory("3:max_unit=none") == free
