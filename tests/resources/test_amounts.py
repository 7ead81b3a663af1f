"""Amounts and limits: the same mapping, with two meanings of absence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions, fields
from resource_objects.resources import (
    Amount,
    Amounts,
    IntegerAmount,
    IntegerResource,
    Limits,
    resource,
)
from resource_objects.resources.records import AmountRecord
from resource_objects.testing.refusals import raises_code
from tests.support import strategies

modest = strategies.amounts(-(2**61), 2**61)
both_kinds = pytest.mark.parametrize("kind", [Amounts, Limits])
NOTHING = Amounts()


@base.register
class Colour(Amount):
    """A kind of amount that can be negated and compared, and nothing more; it is always falsy."""

    WIRE_PREFIX = "test_amounts"
    VERSION = "1.0"
    fields = {"name": fields.text(), "back": fields.boolean(default=False)}
    name: str
    back: bool

    is_zero = False

    @property
    def is_negative(self) -> bool:
        return self.back

    def __neg__(self) -> Colour:
        return Colour(name=self.name, back=not self.back)

    def __bool__(self) -> bool:
        return False

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        return (AmountRecord(resource_class, 1),)


# --- the text form ---


@pytest.mark.law(7)
@given(strategies.amounts())
def test_text_gives_the_amounts_back(amounts: Amounts) -> None:
    assert Amounts.parse(str(amounts)) == amounts
    assert Amounts(str(amounts)) == amounts
    assert eval(repr(amounts)) == amounts


@given(strategies.limits())
def test_text_gives_the_limits_back(limits: Limits) -> None:
    assert Limits.parse(str(limits)) == limits
    assert eval(repr(limits)) == limits


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        (" \n", ""),
        ("VCPU=2", "VCPU=2"),
        (" MEMORY_MB = 4096 , VCPU=2 ", "VCPU=2,MEMORY_MB=4096"),
        ("CUSTOM_B=1,CUSTOM_A=1,DISK_GB=1", "DISK_GB=1,CUSTOM_A=1,CUSTOM_B=1"),
        ("VCPU=-2", "VCPU=-2"),
        ("VCPU=+2", "VCPU=2"),
        ("VCPU=0002", "VCPU=2"),
        ("VCPU=0", ""),
        ("VCPU=9223372036854775807", "VCPU=9223372036854775807"),
    ],
)
def test_the_text_form_is_read_and_shown_in_one_way(text: str, shown: str) -> None:
    assert str(Amounts.parse(text)) == shown


@both_kinds
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("VCPU", "InvalidText"),
        ("VCPU=", "InvalidText"),
        ("=2", "InvalidResourceClass"),
        ("VCPU=2,", "InvalidText"),
        (",", "InvalidText"),
        ("VCPU=two", "InvalidText"),
        ("VCPU=2.0", "InvalidText"),
        ("VCPU=1e3", "InvalidText"),
        ("VCPU=1_000", "InvalidText"),
        ("VCPU=- 2", "InvalidText"),
        ("VCPU=\N{FULLWIDTH DIGIT TWO}", "InvalidText"),
        ("VCPU=9223372036854775808", "InvalidAmount"),
        ("VCPU=" + "9" * 20, "InvalidText"),
        ("vcpu=2", "InvalidResourceClass"),
        ("VCPU=2;DISK_GB=1", "InvalidText"),
        ("MEMORY=2", "UnknownResourceClass"),
        ("VCPU=1,VCPU=2", "DuplicateKey"),
        ("VCPU=1,VCPU=1", "DuplicateKey"),
        ("VCPU=1," * 10000 + "DISK_GB=1", "InvalidText"),
    ],
)
def test_a_text_that_is_none_is_refused(kind: Any, text: str, error: type[Exception]) -> None:
    for read in (kind, kind.parse, kind.from_value):
        with raises_code(error) as caught:
            read(text)
        assert isinstance(caught.value, exceptions.InvalidInput)


@pytest.mark.law(8)
@both_kinds
@given(st.text(alphabet="VCPU=,:-+0123456789 \n_DISKGB\x00é"))
def test_any_text_is_read_or_refused(kind: Any, text: str) -> None:
    try:
        parsed = kind.parse(text)
    except exceptions.InvalidInput as error:
        assert str(error)
    else:
        assert kind.parse(str(parsed)) == parsed


@both_kinds
@pytest.mark.parametrize("bad", [b"VCPU=1", 3, [], None, {"VCPU": 1}])
def test_only_text_is_parsed(kind: Any, bad: Any) -> None:
    with raises_code("InvalidText"):
        kind.parse(bad)


# --- making ---


@both_kinds
def test_every_way_of_making_makes_the_same(kind: Any) -> None:
    vcpu = resource("VCPU")
    options = [
        kind("VCPU=2"),
        kind.parse("VCPU=2"),
        kind(VCPU=2),
        kind({"VCPU": 2}),
        kind({vcpu: 2}),
        kind({vcpu: IntegerAmount(2)}),
        kind({IntegerResource("VCPU"): 2}),
        kind(kind("VCPU=2")),
        kind.from_value("VCPU=2"),
    ]
    assert all(created == options[0] for created in options)
    assert kind.from_value(options[0]) is options[0]


@both_kinds
@pytest.mark.parametrize(
    "bad",
    [
        None,
        3,
        ["VCPU"],
        [("VCPU", 1)],
        {"VCPU"},
        b"VCPU=1",
        {"VCPU": "2"},
        {"VCPU": 2.0},
        {"VCPU": True},
        {"VCPU": None},
        {"vcpu": 2},
        {"NOPE": 2},
        {3: 2},
        {None: 2},
        {IntegerResource("NOPE"): 2},
        {"VCPU": IntegerResource("VCPU")},
        {resource("VCPU"): 1, "VCPU": 2},
    ],
    ids=repr,
)
def test_what_amounts_cannot_be_made_of_is_refused(kind: Any, bad: Any) -> None:
    for make in (kind, kind.from_value):
        with pytest.raises(exceptions.InvalidInput):
            make(bad)


@both_kinds
def test_a_mapping_and_keywords_together_are_refused(kind: Any) -> None:
    with raises_code("DuplicateKey"):
        kind({"VCPU": 1}, DISK_GB=2)


@pytest.mark.law(8)
@both_kinds
@given(st.from_type(type).flatmap(st.from_type))
def test_whatever_is_given_is_taken_or_refused(kind: Any, anything: Any) -> None:
    try:
        created = kind(anything)
    except exceptions.InvalidInput as error:
        assert str(error)
    else:
        assert kind.parse(str(created)) == created


@pytest.mark.parametrize("holder", [Amounts, Limits])
def test_an_amount_of_another_kind_than_its_resource_has_is_refused(holder: Any) -> None:
    with raises_code("WrongAmountKind", match=r"VCPU: got Colour.*kind IntegerAmount"):
        holder({"VCPU": Colour(name="red")})
    primitive = holder(VCPU=1).obj_to_primitive()
    red = Colour(name="red").obj_to_primitive()
    primitive["versioned_object.data"]["by_class"]["VCPU"] = red
    with raises_code("WrongAmountKind"):
        holder.obj_from_primitive(primitive)


# --- two kinds of absence ---


def test_an_absent_amount_is_zero() -> None:
    amounts = Amounts({"VCPU": 2, "DISK_GB": 0})
    assert amounts == Amounts(VCPU=2)
    assert "DISK_GB" not in amounts
    assert Amounts(DISK_GB=0) == NOTHING
    assert NOTHING.is_zero
    assert not NOTHING
    assert hash(Amounts(DISK_GB=0)) == hash(NOTHING)


def test_an_absent_limit_is_no_bound_and_zero_is_one() -> None:
    limits = Limits({"VCPU": 2, "DISK_GB": 0})
    assert limits != Limits(VCPU=2)
    assert limits["DISK_GB"] == IntegerAmount(0)
    assert limits.get("MEMORY_MB") is None
    assert str(limits) == "VCPU=2,DISK_GB=0"


def test_a_limit_is_not_negative() -> None:
    with raises_code("NegativeAmount", match="limit of VCPU"):
        Limits("VCPU=-1")


# --- the mapping ---


@given(strategies.amounts())
def test_it_is_a_mapping_whose_keys_may_be_resources_or_names(amounts: Amounts) -> None:
    assert isinstance(amounts, Mapping)
    assert len(amounts) == len(list(amounts)) == len(amounts.keys())
    assert bool(amounts) is (len(amounts) > 0) is not amounts.is_zero
    for key, amount in amounts.items():
        assert amounts[key] == amounts[key.name] == amounts.get(key) == amounts.get(key.name)
        assert amounts[key] == amount
        assert key in amounts
        assert key.name in amounts
        assert amounts.keys() >= {key}
    assert dict(amounts) == {resource(name): amount for name, amount in amounts.by_name()}
    assert list(amounts.names()) == [key.name for key in amounts]


def test_what_is_not_there_is_a_key_error_and_what_is_no_key_is_reported() -> None:
    amounts = Amounts(VCPU=2)
    for key in ("DISK_GB", resource("DISK_GB"), "NOPE", ""):
        assert key not in amounts
        assert amounts.get(key) is None
        with pytest.raises(KeyError):
            amounts[key]
    for key in (3, None, ("VCPU",)):
        assert key not in amounts
        with raises_code("InvalidResourceClass", match="a resource or its name"):
            amounts[key]  # type: ignore[index]


def test_a_field_name_is_no_key() -> None:
    assert "by_class" not in Amounts(VCPU=2)
    assert "by_class" not in Limits(VCPU=2)


# --- arithmetic ---


@given(modest, modest, modest)
def test_addition_is_a_commutative_group(a: Amounts, b: Amounts, c: Amounts) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + NOTHING == a == NOTHING + a
    assert a + (-a) == NOTHING
    back = -a
    assert -back == a
    assert a - b == a + (-b)
    assert (a - b) + b == a


@given(modest, modest)
def test_addition_is_that_of_each_class(a: Amounts, b: Amounts) -> None:
    zero = IntegerAmount(0)
    added = a + b
    for name in {*a.names(), *b.names()}:
        expected = a.get(name, zero) + b.get(name, zero)  # type: ignore[operator]
        assert added.get(name, zero) == expected


@pytest.mark.parametrize("other", [1, None, "VCPU=1", {"VCPU": 1}, IntegerAmount(1), Limits()])
def test_amounts_are_added_to_amounts_only(other: Any) -> None:
    with pytest.raises(TypeError):
        Amounts(VCPU=1) + other
    with pytest.raises(TypeError):
        Amounts(VCPU=1) - other
    assert Amounts(VCPU=1) != other


def test_a_kind_without_addition_combines_where_one_side_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(IntegerResource, "amount_kind", Amount)
    red = Colour(name="red")
    painted = Amounts({"CUSTOM_COLOUR": red})
    assert painted + Amounts(VCPU=1) == Amounts({"CUSTOM_COLOUR": red, "VCPU": 1})
    assert Amounts(VCPU=1) - painted == Amounts({"CUSTOM_COLOUR": -red, "VCPU": 1})
    assert NOTHING + painted == painted - NOTHING == painted
    assert -painted == NOTHING - painted
    with pytest.raises(TypeError):
        painted + painted
