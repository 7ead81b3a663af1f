"""Allocation ratios: exact in every form, and for any precision of the thread."""

from __future__ import annotations

import decimal
import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.ratio import (
    MAX_RATIO,
    MILLION,
    from_millionths,
    ratio_from_float_column,
    to_millionths,
    to_ratio,
)
from resource_objects.testing.refusals import raises_code
from tests.support import strategies

pytestmark = pytest.mark.law(7)

millionths = st.integers(1, MAX_RATIO * MILLION)


def single(value: float) -> float:
    """Return ``value`` as a column of 32-bit floats gives it back."""
    narrowed: float = struct.unpack("f", struct.pack("f", value))[0]
    return narrowed


@given(millionths)
def test_millionths_there_and_back(given_millionths: int) -> None:
    ratio = from_millionths(given_millionths)
    assert to_millionths(ratio) == given_millionths
    assert Fraction(ratio) == Fraction(given_millionths, MILLION)


@given(strategies.ratios())
def test_a_ratio_is_the_same_in_every_form(ratio: Decimal) -> None:
    assert to_ratio(ratio) == ratio
    assert to_ratio(str(ratio)) == ratio
    assert to_ratio(f"{ratio:f}000") == ratio if "." in f"{ratio:f}" else True
    assert to_ratio(float(ratio)) == ratio
    assert to_ratio(numpy.float64(float(ratio))) == ratio
    assert ratio_from_float_column(float(ratio)) == ratio


@given(strategies.ratios())
def test_a_ratio_is_stored_in_one_way(ratio: Decimal) -> None:
    stored = to_ratio(f"{ratio:f}")
    assert str(stored) == f"{stored:f}" == str(to_ratio(Decimal(f"{ratio:f}")))
    assert "." not in str(stored) or not str(stored).endswith("0")


@pytest.mark.parametrize(
    ("given_ratio", "stored"),
    [
        (1, "1"),
        (16, "16"),
        (4000, "4000"),
        ("1.50", "1.5"),
        ("+1.5", "1.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1e1", "10"),
        ("1E-6", "0.000001"),
        (1.15, "1.15"),
        (0.1, "0.1"),
        (1e-06, "0.000001"),
        (100.0, "100"),
        (Decimal("1.500"), "1.5"),
        (Decimal("1e3"), "1000"),
        (numpy.float32(1.15), "1.15"),
        (numpy.float64(1.15), "1.15"),
        (numpy.float16(1.15), "1.15"),
        (numpy.int64(2), "2"),
        (True, None),
        (numpy.bool_(True), None),
        (0, None),
        (-1, None),
        (4001, None),
        (10**5000, None),
        ("4000.000001", None),
        ("0.0000001", None),
        ("1.0000001", None),
        ("1." + "0" * 30 + "1", None),
        (Decimal("1." + "0" * 30 + "1"), None),
        (Decimal("3999.9999999999999999999999999999"), None),
        (0.1234567, None),
        (1 / 3, None),
        (math.nan, None),
        (math.inf, None),
        (-0.0, None),
        (Decimal("NaN"), None),
        (Decimal("sNaN"), None),
        (Decimal("-Infinity"), None),
        (Decimal("1e999999"), None),
        (Decimal("1e-999999"), None),
        ("nan", None),
        ("Infinity", None),
        ("", None),
        (".", None),
        ("e5", None),
        ("1e", None),
        ("1_0", None),
        (" 1", None),
        ("1,5", None),
        ("\N{FULLWIDTH DIGIT ONE}", None),
        ("1" * 5000, None),
        (b"1", None),
        (None, None),
        ([1], None),
        (1 + 0j, None),
        (Fraction(1, 2), None),
        (numpy.array([1.0]), None),
        (numpy.float32("nan"), None),
    ],
    ids=exceptions.show,
)
def test_what_is_a_ratio_and_what_is_not(given_ratio: Any, stored: str | None) -> None:
    if stored is not None:
        assert str(to_ratio(given_ratio)) == stored
        assert type(to_ratio(given_ratio)) is Decimal
        return
    for read in (to_ratio, ratio_from_float_column):
        with raises_code("InvalidRatio") as caught:
            read(given_ratio)
        assert caught.value.value is given_ratio
        assert "at most six places" in str(caught.value)


@given(st.floats())
def test_a_float_is_taken_by_its_shortest_form_or_refused(value: float) -> None:
    try:
        ratio = to_ratio(value)
    except exceptions.InvalidInput as error:
        if not error.is_about("ratio"):
            raise
        exact = Decimal(repr(value))
        assert not exact.is_finite() or not 0 < exact <= MAX_RATIO or exact.as_tuple().exponent < -6  # type: ignore[operator]
    else:
        assert ratio == Decimal(repr(value))
        assert float(ratio) == value


@given(st.from_type(type).flatmap(st.from_type) | st.text())
def test_whatever_is_given_is_a_ratio_or_refused(anything: Any) -> None:
    for read in (to_ratio, ratio_from_float_column, from_millionths):
        try:
            ratio = read(anything)
        except exceptions.InvalidInput as error:
            if not error.is_about("ratio"):
                raise
            assert str(error)
        else:
            assert 0 < ratio <= MAX_RATIO


@pytest.mark.parametrize("bad", [0, -1, MAX_RATIO * MILLION + 1, 1.0, "1", None, True])
def test_millionths_that_are_none_are_refused(bad: Any) -> None:
    with raises_code("InvalidRatio", match="millionths"):
        from_millionths(bad)


# --- the thread's decimal context belongs to the program around us ---


@given(strategies.ratios(), st.sampled_from([1, 2, 3, 28]), st.booleans())
def test_no_result_depends_on_the_decimal_context(ratio: Decimal, prec: int, traps: bool) -> None:
    text, number = f"{ratio:f}", to_millionths(ratio)
    everything = list(decimal.getcontext().traps) if traps else []
    with decimal.localcontext(decimal.Context(prec=prec, traps=everything)):
        assert str(to_ratio(text)) == text
        assert to_millionths(to_ratio(text)) == number
        assert str(from_millionths(number)) == text
        assert str(to_ratio(Decimal(text))) == text


# --- columns of floats ---


@given(strategies.ratios().filter(lambda ratio: len(ratio.as_tuple().digits) <= 6))
@example(Decimal("1.15"))
@example(Decimal("0.000001"))
def test_a_ratio_of_six_digits_survives_a_column_of_32_bits(ratio: Decimal) -> None:
    assert ratio_from_float_column(single(float(ratio))) == ratio
    assert to_ratio(numpy.float32(float(ratio))) == ratio


@given(st.floats(0, MAX_RATIO, width=32, exclude_min=True))
def test_a_single_is_read_as_numpy_shows_it_or_refused(value: float) -> None:
    shown = Decimal(str(numpy.float32(value)))
    too_precise = shown.as_tuple().exponent < -6  # type: ignore[operator]
    wide = Decimal(repr(value))
    if wide.as_tuple().exponent >= -6:  # type: ignore[operator]
        assert ratio_from_float_column(value) == wide
    elif too_precise:
        with raises_code("InvalidRatio"):
            ratio_from_float_column(value)
    else:
        assert ratio_from_float_column(value) == shown
        assert single(float(ratio_from_float_column(value))) == value


@given(strategies.ratios())
def test_a_column_of_64_bits_is_never_taken_for_one_of_32(ratio: Decimal) -> None:
    assert ratio_from_float_column(float(ratio)) == ratio


def test_a_double_that_is_too_precise_and_no_single_is_refused() -> None:
    value = 1.1499999761
    assert single(value) != value
    with raises_code("InvalidRatio"):
        ratio_from_float_column(value)
