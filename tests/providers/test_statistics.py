"""Values of statistics: exact, the same after every way out and in."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.statistics import (
    MAX_DECIMAL,
    MAX_STORED,
    Statistic,
    StatisticsOrder,
)
from resource_objects.testing.conformance.statistics import BUILDS, LOAD, STATE, UP, VALUES
from resource_objects.testing.refusals import raises_code

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


@st.composite
def statistics(draw: st.DrawFn) -> Statistic:
    """Return any statistic."""
    since = draw(st.datetimes(timezones=st.just(datetime.UTC)))
    return Statistic("cpu.percent", draw(VALUES), since, draw(st.sampled_from("ab")))


@pytest.mark.law(7)
@given(statistics())
def test_what_is_stored_is_the_same_value(one: Statistic) -> None:
    stored = one.to_stored()
    assert len(stored) <= MAX_STORED
    assert one.since is not None
    again = Statistic.from_stored(one.name, stored, one.since, one.source)
    assert again == one and hash(again) == hash(one) and type(again.value) is type(one.value)
    assert again.to_stored() == stored
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.law(7)
@given(st.integers(0, 10**8))
def test_no_hundredth_is_lost_on_the_way_through_a_float(hundredths: int) -> None:
    """Nova sends 29 percent as the float 0.29, and reads int(0.29 * 100), which is 28."""
    exact = Decimal(hundredths).scaleb(-2)
    assert LOAD(hundredths / 100).value == LOAD(exact).value == exact


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (29, 29),
        (29.0, 29),
        (0.29, Decimal("0.29")),
        (Decimal("1e-6"), Decimal("0.000001")),
        (Decimal("12.50"), Decimal("12.5")),
        (Decimal("0E-30"), 0),
        (Decimal("9E+12"), MAX_DECIMAL),
        (-0.5, Decimal("-0.5")),
    ],
)
def test_a_number_is_exact_and_has_one_form(given: Any, value: Any) -> None:
    found = LOAD(given).value
    assert found == value and type(found) is type(value) and str(found) == str(value)


@pytest.mark.law(7, 8)
@pytest.mark.parametrize(
    "value",
    [
        *(None, 1e-7, 1 / 3, float("nan"), float("inf"), MAX_AMOUNT + 1, -MAX_AMOUNT - 1),
        *(Decimal("NaN"), Decimal("sNaN"), Decimal("1E+40"), Decimal("9000000000000.000001")),
        *("", " on", "a\nb", "x" * 256, "\ud800", b"on", NOON, [1], 10**400),
    ],
)
def test_a_value_of_no_type_is_refused(value: Any) -> None:
    with raises_code("InvalidField", match=r"^cpu.percent: got .*, expected "):
        LOAD(value)


@pytest.mark.law(8)
def test_what_is_no_statistic_is_refused() -> None:
    for name in ("", "a b", "9lives", "ä", "x" * 256, "a\n", 3, None):
        with raises_code("InvalidName", match="name of a statistic"):
            Statistic(name, 1)  # type: ignore[arg-type]
    with raises_code("InvalidField", match=r"since of cpu.percent"):
        LOAD(1, since=datetime.datetime(2026, 1, 1))
    with raises_code("InvalidName", match="source of a statistic"):
        LOAD(1, source="")


@pytest.mark.law(8)
def test_an_order_has_each_statistic_once() -> None:
    with raises_code("DuplicateKey", match="each once"):
        StatisticsOrder({"a": (LOAD(1), BUILDS(1), LOAD(2))})
    with raises_code("InvalidName", match="source of statistics"):
        StatisticsOrder(source="")


def test_the_text_of_a_value() -> None:
    assert str(LOAD(Decimal("12.50"))) == "cpu.percent 12.5"
    assert str(STATE("on")) == "power.state on"
    assert (UP(True).text, UP(False).text) == ("true", "false")
    assert LOAD(12.5).to_dict()["value"] == "12.5" and UP(True).to_dict()["value"] is True
