"""The integer amount: arithmetic of whole numbers in 64 bits, and nothing that only looks so."""

from __future__ import annotations

import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.fields import MAX_AMOUNT
from resource_objects.resources import Amount, IntegerAmount
from resource_objects.resources.records import AmountRecord
from resource_objects.testing.refusals import raises_code
from tests.support import strategies

amounts = strategies.integer_amounts(-(2**61), 2**61)
anything = strategies.integer_amounts()


@given(anything)
def test_an_amount_is_its_integer(a: IntegerAmount) -> None:
    assert int(a) == a.value
    assert str(a) == str(a.value)
    assert eval(repr(a)) == a
    assert a.is_zero is (a.value == 0)
    assert a.is_negative is (a.value < 0)
    assert isinstance(a, Amount)


@given(anything, anything)
def test_order_and_equality_are_those_of_integers(a: IntegerAmount, b: IntegerAmount) -> None:
    for compare in (
        operator.eq,
        operator.ne,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
    ):
        assert compare(a, b) is compare(a.value, b.value)
    assert (hash(a) == hash(b)) or a != b
    assert max(a, b).value == max(a.value, b.value)


@given(amounts, amounts)
def test_arithmetic_is_that_of_integers(a: IntegerAmount, b: IntegerAmount) -> None:
    assert (a + b).value == a.value + b.value
    assert (a - b).value == a.value - b.value
    assert (-a).value == -a.value


@given(amounts, amounts, amounts)
def test_addition_is_a_commutative_group(
    a: IntegerAmount, b: IntegerAmount, c: IntegerAmount
) -> None:
    zero = IntegerAmount(0)
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + zero == a
    assert a + (-a) == zero
    assert a - b == a + (-b)
    back = -a
    assert -back == a


@pytest.mark.law(7)
@given(anything, anything)
def test_arithmetic_remains_in_range_or_refuses(a: IntegerAmount, b: IntegerAmount) -> None:
    for operate in (operator.add, operator.sub):
        exact = operate(a.value, b.value)
        if abs(exact) <= MAX_AMOUNT:
            assert operate(a, b).value == exact
        else:
            with raises_code("InvalidAmount", match="expected an integer within ±"):
                operate(a, b)


def test_the_range_is_symmetric_so_that_every_amount_can_be_released() -> None:
    largest = IntegerAmount(MAX_AMOUNT)
    smallest = -largest
    assert -smallest == largest
    for outside in (MAX_AMOUNT + 1, -(2**63), 10**100):
        with raises_code("InvalidAmount"):
            IntegerAmount(outside)


@pytest.mark.parametrize(
    "bad", [True, False, 1.0, "1", None, Decimal(1), Fraction(1), 1j, [1], b"1", IntegerAmount(1)]
)
def test_what_only_looks_like_a_whole_number_is_refused(bad: Any) -> None:
    with raises_code("InvalidAmount") as caught:
        IntegerAmount(bad)
    assert caught.value.value is bad
    assert isinstance(caught.value, ValueError)


@pytest.mark.law(8)
@given(st.from_type(type).flatmap(st.from_type) | st.text() | st.binary() | st.floats())
def test_nothing_else_makes_an_amount(anything: Any) -> None:
    if type(anything) is int and abs(anything) <= MAX_AMOUNT:
        assert IntegerAmount(anything).value == anything
    else:
        with raises_code("InvalidAmount"):
            IntegerAmount(anything)


@pytest.mark.parametrize("other", [1, 1.0, None, "1", Decimal(1)])
def test_a_plain_number_is_no_amount(other: Any) -> None:
    item = IntegerAmount(1)
    assert item != other
    assert (item == other) is False
    for operate in (operator.add, operator.sub, operator.lt, operator.le, operator.gt, operator.ge):
        with pytest.raises(TypeError):
            operate(item, other)


@pytest.mark.law(7)
def test_many_consecutive_operations_lose_nothing() -> None:
    step, total = IntegerAmount(1), IntegerAmount(2**53)
    for _ in range(1000):
        total = total + step
    for _ in range(1000):
        total = total - step
    assert total == IntegerAmount(2**53)
    assert sum((step for _ in range(3)), IntegerAmount(0)) == IntegerAmount(3)


def test_the_kind_is_final_so_that_two_kinds_are_never_one() -> None:
    with pytest.raises(TypeError, match="derives from Amount"):
        type("PagesAmount", (IntegerAmount,), {})


def test_it_is_stored_as_one_count() -> None:
    assert IntegerAmount(3).to_records("VCPU") == (AmountRecord("VCPU", 3),)
