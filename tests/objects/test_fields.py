"""Fields: accepted and refused values, and the stored and sent forms."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions, fields
from resource_objects._ovo import fields as ovo_fields
from resource_objects.resources import IntegerAmount, IntegerInventory, Inventories
from resource_objects.testing.refusals import raises_code
from tests.objects.versions import PREFIX, Disk, Shelf, Tape

UTC = datetime.UTC
UUID = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"


class Five(enum.IntEnum):
    FIVE = 5


class Upper(str):
    """Text that shows itself differently."""

    def __repr__(self) -> str:
        return "Upper"


integer = fields.integer(-2, 9)
resource_class = fields.resource_class()
name = fields.provider_name()
text = fields.text()
flag = fields.boolean()
ratio = fields.ratio()
moment = fields.timestamp()
uuid_field = fields.uuid()
traits = fields.traits()
one = fields.nested(f"{PREFIX}.Medium")
amount = fields.nested("Amount")
row = fields.tuple_of(f"{PREFIX}.Medium")
by_class = fields.map_of(f"{PREFIX}.Medium")
labels = fields.labels()
ids = fields.ids()
many_ids = fields.tuple_of(fields.IdSet())
pairs = fields.integer_pairs()
choice = fields.choice("prefer", "require")
counts = fields.counts()

TAKEN: list[tuple[Any, Any, Any, Any]] = [
    # field, argument, stored, sent
    (integer, -2, -2, -2),
    (integer, 9, 9, 9),
    (resource_class, "CUSTOM_A", "CUSTOM_A", "CUSTOM_A"),
    (resource_class, "A" * 255, "A" * 255, "A" * 255),
    (name, "host0/gpu 1", "host0/gpu 1", "host0/gpu 1"),
    (name, "é" * 200, "é" * 200, "é" * 200),
    (text, "", "", ""),
    (text, "a\nb", "a\nb", "a\nb"),
    (flag, False, False, False),
    (ratio, "1.50", Decimal("1.5"), "1.5"),
    (ratio, 16, Decimal(16), "16"),
    (ratio, Decimal("0.000001"), Decimal("0.000001"), "0.000001"),
    (uuid_field, UUID.upper(), UUID, UUID),
    (uuid_field, UUID.replace("-", ""), UUID, UUID),
    (uuid_field, uuid.UUID(UUID), UUID, UUID),
    (
        moment,
        "2026-01-02T03:04:05.000006+02:00",
        datetime.datetime(2026, 1, 2, 1, 4, 5, 6, UTC),
        "2026-01-02T01:04:05.000006+00:00",
    ),
    (
        moment,
        datetime.datetime(2026, 1, 2),
        datetime.datetime(2026, 1, 2, tzinfo=UTC),
        "2026-01-02T00:00:00+00:00",
    ),
    (
        traits,
        ["CUSTOM_B", "CUSTOM_A"],
        frozenset({"CUSTOM_A", "CUSTOM_B"}),
        ["CUSTOM_A", "CUSTOM_B"],
    ),
    (traits, (), frozenset(), []),
    (labels, {"physnet 1"}, frozenset({"physnet 1"}), ["physnet 1"]),
    (ids, {9, 0, 3}, (0, 3, 9), [0, 3, 9]),
    (ids, range(2), (0, 1), [0, 1]),
    (many_ids, [{2, 0}, [1]], ((0, 2), (1,)), [[0, 2], [1]]),
    (pairs, {4: 1, 2: 0}, ((2, 0), (4, 1)), [[2, 0], [4, 1]]),
    (pairs, [[2, 0]], ((2, 0),), [[2, 0]]),
    (choice, "prefer", "prefer", "prefer"),
    (
        counts,
        {"MEMORY_MB": -2, "VCPU": 3},
        fields.FrozenDict({"VCPU": 3, "MEMORY_MB": -2}),
        {"VCPU": 3, "MEMORY_MB": -2},
    ),
    (one, Disk(size_mb=1), Disk(size_mb=1), Disk(size_mb=1).obj_to_primitive()),
    (amount, IntegerAmount(1), IntegerAmount(1), IntegerAmount(1).obj_to_primitive()),
    (row, [Tape(length=1)], (Tape(length=1),), [Tape(length=1).obj_to_primitive()]),
    (
        by_class,
        {"VCPU": Tape(length=1)},
        {"VCPU": Tape(length=1)},
        {"VCPU": Tape(length=1).obj_to_primitive()},
    ),
]

REFUSED: list[tuple[Any, list[Any]]] = [
    (integer, [-3, 10, True, 3.0, "3", Five.FIVE, None, Decimal(3), [3], 10**5000]),
    (resource_class, ["vcpu", "", "CUSTOM_", "A" * 256, "A B", "VCPU\n", "ÄB", b"VCPU", 1, None]),
    (name, ["", " a", "a ", "a\nb", "a\x00b", "x" * 201, "\ud800", b"a", 1, None]),
    (text, [b"a", 1, None, ["a"], "\ud800"]),
    (flag, [0, 1, "true", None, []]),
    (ratio, [0, -1, 4001, "nan", "inf", "", "1.1234567", True, None, "1_0", " 1", [], b"1"]),
    (
        uuid_field,
        [
            UUID[:-1],
            UUID + "0",
            "{" + UUID.replace("-", "") + "}",
            UUID.replace("-", "") + "----",
            "+" + UUID.replace("-", "")[1:],
            " " + UUID.replace("-", "")[1:],
            UUID.replace("6b7c0a9e", "6b7c_0a9e")[:32],
            "urn:uuid:" + UUID.replace("-", "")[:27],
            UUID.replace("6", "\N{FULLWIDTH DIGIT SIX}"),
            17,
            None,
        ],
    ),
    (
        moment,
        [
            "yesterday",
            "",
            17,
            None,
            datetime.date(2026, 1, 2),
            datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        ],
    ),
    (traits, ["CUSTOM_A", b"CUSTOM_A", {"CUSTOM_A": 1}, ["bad"], [1], 17, None, [["CUSTOM_A"]]]),
    (labels, ["physnet1", b"a", [" a"], [""], [1], None]),
    (ids, ["0-3", [0, 0], [-1], [True], [1.0], ["1"], {1: 2}, 3, None, [2**31]]),
    (many_ids, ["0", [0], [[0, 0]], 7, None]),
    (pairs, [[[1, 2], [1, 3]], [[1]], {1: -1}, {"1": 2}, [1, 2], 7, None, {True: 1}]),
    (choice, ["", "isolate", None, 1, ["prefer"], "Prefer"]),
    (counts, [{"VCPU": 1.0}, {"vcpu": 1}, [("VCPU", 1)], {"VCPU": True}, None]),
    (one, [IntegerAmount(1), {}, "Disk", None, Disk, IntegerInventory(1), ...]),
    (amount, [1, "1", Disk(size_mb=1), IntegerInventory(1), IntegerAmount]),
    (row, [Disk(size_mb=1), "ab", {"a": 1}, [1], [None], None, {Disk(size_mb=1)}]),
    (by_class, [[], "VCPU=1", {"vcpu": Tape(length=1)}, {"VCPU": 1}, {"VCPU": None}, None]),
]


class Holder(base.ResourceObject):
    """An object with the field under test."""


@pytest.mark.parametrize(("field", "argument", "stored", "sent"), TAKEN)
def test_what_a_field_takes_it_keeps_sends_and_reads_back(
    field: Any, argument: Any, stored: Any, sent: Any
) -> None:
    holder = Holder()
    value = field.coerce(holder, "field", argument)
    assert value == stored
    assert type(value) is type(stored) or isinstance(value, type(stored))
    assert field.to_primitive(holder, "field", value) == sent
    json.dumps(sent)
    assert (
        field.coerce(holder, "field", field.from_primitive(base.ResourceObject, "field", sent))
        == stored
    )


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("field", "bad"),
    [(field, value) for field, values in REFUSED for value in values],
    ids=lambda value: exceptions.show(value).encode("ascii", "backslashreplace").decode(),
)
def test_what_a_field_refuses_is_one_clear_error(field: Any, bad: Any) -> None:
    holder = Holder()
    holder.fields = {"field": field}
    with pytest.raises(exceptions.InvalidInput) as caught:
        holder._coerce("field", bad)
    assert caught.value.value is bad or isinstance(bad, list | dict)
    assert caught.value.expected


def test_a_stored_name_is_plain_text() -> None:
    for field in (resource_class, name, text):
        stored = field.coerce(Holder(), "field", Upper("VCPU"))
        assert type(stored) is str
        assert stored == "VCPU"


def test_nullable_is_specified_in_words() -> None:
    assert fields.integer(0, 3).describe() == "an integer from 0 to 3"
    assert fields.integer(0, 3, nullable=True).describe() == "an integer from 0 to 3 or None"
    assert row.describe() == "a list, each a Medium"
    assert by_class.describe() == "a mapping of names to a Medium"


def test_a_default_is_not_given_for_none() -> None:
    with raises_code("InvalidField", match="got None"):
        IntegerInventory(8, reserved=None)  # type: ignore[arg-type]
    assert IntegerInventory(8, max_unit=None).max_unit is None


def test_a_map_keeps_the_order_of_the_field_not_of_the_giver() -> None:
    given_map = {name: Tape(length=1) for name in ("CUSTOM_B", "DISK_GB", "CUSTOM_A", "VCPU")}
    stored = by_class.coerce(Holder(), "field", given_map)
    assert list(stored) == ["VCPU", "DISK_GB", "CUSTOM_A", "CUSTOM_B"]


def test_containers_come_out_frozen() -> None:
    shelf = Shelf(by_class={"VCPU": Tape(length=1)}, row=[Tape(length=1)])
    assert type(shelf.by_class) is fields.FrozenDict
    assert type(shelf.row) is tuple
    with pytest.raises(exceptions.FrozenValue):
        shelf.by_class["VCPU"] = Tape(length=2)


def test_a_derived_class_fits_where_its_base_is_named() -> None:
    class Tagged(IntegerInventory):
        WIRE_PREFIX = "test_fields"

    base.register(Tagged)
    inventories = Inventories({"VCPU": Tagged(8)})
    assert type(inventories["VCPU"]) is Tagged
    again = Inventories.obj_from_primitive(inventories.obj_to_primitive())
    assert type(again["VCPU"]) is Tagged
    assert again == inventories


@given(st.datetimes(timezones=st.timezones() | st.none()))
def test_a_moment_is_stored_to_the_microsecond(given_moment: datetime.datetime) -> None:
    try:
        stored = moment.coerce(Holder(), "field", given_moment)
    except OverflowError:
        return  # a zone at the very end of time
    sent = moment.to_primitive(Holder(), "field", stored)
    assert moment.coerce(Holder(), "field", sent) == stored
    if given_moment.tzinfo is not None:
        assert stored == given_moment.astimezone(UTC)
    assert (stored.microsecond, stored.utcoffset()) == (
        given_moment.microsecond,
        datetime.timedelta(),
    )


def test_the_precision_of_the_thread_does_not_reach_a_ratio() -> None:
    with decimal.localcontext(prec=2):
        assert ratio.coerce(Holder(), "field", "1.2345") == Decimal("1.2345")


def test_our_fields_are_the_librarys() -> None:
    for field in (integer, text, ratio, one, row, by_class, traits):
        assert isinstance(field, ovo_fields.Field)
