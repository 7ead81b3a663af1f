"""Values of statistics: exact, typed, the same after every way out and in."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.statistics import (
    MAX_DECIMAL,
    Statistic,
    StatisticsOrder,
    StatisticType,
    ValueType,
)
from resource_objects.testing.conformance.statistics import BUILDS, EVERY, LOAD, STATE, values_of

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


@st.composite
def statistics(draw: st.DrawFn) -> Statistic:
    """Return any statistic."""
    declared = draw(st.sampled_from(EVERY))
    since = draw(st.none() | st.datetimes(timezones=st.just(datetime.UTC)))
    return Statistic(declared, draw(values_of(declared)), since, draw(st.sampled_from("ab")))


@pytest.mark.law(7)
@given(statistics())
def test_what_is_kept_says_the_same_value(one: Statistic) -> None:
    number, text = stored = one.to_stored()
    assert (number is None) != (text is None)
    assert number is None or (type(number) is int and abs(number) < 2**63)
    again = Statistic.from_stored(one.type, stored, one.since, one.source)
    assert again == one and hash(again) == hash(one) and type(again.value) is type(one.value)


@given(statistics())
def test_json_and_pickle_say_the_same_statistic(one: Statistic) -> None:
    assert Statistic.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.law(7)
@given(st.integers(0, 10**8))
def test_no_hundredth_is_lost_on_the_way_through_a_float(hundredths: int) -> None:
    """Nova sends 29 percent as the float 0.29, and reads int(0.29 * 100), which is 28."""
    exact = Decimal(hundredths).scaleb(-2)
    assert LOAD(hundredths / 100).value == LOAD(str(exact)).value == exact


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (29, Decimal(29)),
        (0.29, Decimal("0.29")),
        ("1e-6", Decimal("0.000001")),
        ("-0", Decimal(0)),
        (Decimal("0E-30"), Decimal(0)),
        (Decimal("9E+12"), Decimal(MAX_DECIMAL)),
    ],
)
def test_a_decimal_is_anything_that_says_one_exactly(given: Any, value: Decimal) -> None:
    found = LOAD(given).value
    assert found == value and str(found) == str(LOAD(str(found)).value)


WRONG: dict[ValueType, list[Any]] = {
    ValueType.INTEGER: [True, 1.0, "1", None, MAX_AMOUNT + 1, -MAX_AMOUNT - 1, Decimal(1)],
    ValueType.DECIMAL: [
        *(True, None, "x", "", "1e-7", 1 / 3, float("nan"), float("inf"), MAX_DECIMAL + 1),
        *(Decimal("NaN"), Decimal("sNaN"), Decimal("1E+40"), 10**400, "9000000000000.000001"),
    ],
    ValueType.TEXT: ["", " on", "a\nb", "x" * 256, "\ud800", b"on", 1, None],
    ValueType.BOOLEAN: [0, 1, "true", None],
    ValueType.TIMESTAMP: [
        *(datetime.datetime(2026, 1, 1), NOON.isoformat(), NOON.timestamp(), NOON.date(), None),
        datetime.datetime.max.replace(tzinfo=datetime.timezone(-datetime.timedelta(hours=5))),
    ],
}


@pytest.mark.law(7, 8)
@pytest.mark.parametrize("declared", EVERY, ids=lambda one: one.type)
def test_a_value_of_another_type_is_refused(declared: StatisticType) -> None:
    for value in WRONG[declared.type]:
        with pytest.raises(exceptions.InvalidField, match=rf"^{declared.name}: got .*, expected "):
            declared(value)


@pytest.mark.law(8)
def test_what_declares_nothing_is_refused() -> None:
    for name in ("", "a b", "9lives", "ä", "x" * 256, "a\n", 3, None):
        with pytest.raises(exceptions.InvalidName, match="name of a statistic"):
            StatisticType(name, "integer")  # type: ignore[arg-type]
    for type in ("float", "", None, 3, ["integer"]):
        with pytest.raises(exceptions.InvalidField, match="one of integer, decimal, text"):
            StatisticType("load", type)  # type: ignore[arg-type]
    for unit in ("", " s", "x" * 64, 3):
        with pytest.raises(exceptions.InvalidName, match="unit of a statistic"):
            StatisticType("load", "integer", unit)  # type: ignore[arg-type]
    with pytest.raises(exceptions.InvalidName, match="description of a statistic"):
        StatisticType("load", "integer", None, "two\nlines")
    with pytest.raises(exceptions.InvalidField, match="a StatisticType"):
        Statistic("load", 3)  # type: ignore[arg-type]
    with pytest.raises(exceptions.InvalidField, match=r"since of cpu.percent"):
        LOAD(1, since=datetime.datetime(2026, 1, 1))
    with pytest.raises(exceptions.InvalidName, match="source of a statistic"):
        Statistic(LOAD, 1, source="")


@pytest.mark.law(8)
def test_an_order_says_each_statistic_once_and_in_one_way() -> None:
    with pytest.raises(exceptions.DuplicateKey, match="each once"):
        StatisticsOrder({"a": (LOAD(1), BUILDS(1), LOAD(2))})
    other = StatisticType("cpu.percent", "integer")
    with pytest.raises(exceptions.StatisticConflict, match="decimal in %, not integer"):
        StatisticsOrder({"a": (LOAD(1),), "b": (other(1),)})
    with pytest.raises(exceptions.InvalidName, match="source of statistics"):
        StatisticsOrder(source="")


@pytest.mark.parametrize(
    "data", [{}, {"name": "a"}, {**LOAD(1).to_dict(), "since": "noon"}, {"name": []}, [1]]
)
def test_plain_data_that_is_no_statistic_is_refused(data: Any) -> None:
    with pytest.raises(exceptions.InvalidInput):
        Statistic.from_dict(data)


def test_people_read_the_value_with_its_unit() -> None:
    assert str(LOAD("12.50")) == "cpu.percent 12.5 %"
    assert str(STATE("on")) == "power.state on"
    texts = {one.name: one.text for one in (EVERY[3](True), EVERY[4](NOON))}
    assert texts == {"is_up": "true", "booted_at": "2026-11-22T12:00:00+00:00"}
