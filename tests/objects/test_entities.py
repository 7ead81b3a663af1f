"""Entities: valid as long as they exist, unchanged when a change is refused, copied whole."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions, fields
from resource_objects._ovo import exception as ovo_exception
from resource_objects.resources import IntegerAmount, IntegerInventory, Inventories
from resource_objects.resources.integer import follow_total
from resource_objects.testing.refusals import is_one_of, raises_code
from tests.support import strategies

PREFIX = "test_entities"


@base.register
class Span(base.ResourceObject):
    """Two fields that concern each other, one that is written once."""

    WIRE_PREFIX = PREFIX
    VERSION = "1.0"
    fields = {
        "low": fields.integer(),
        "high": fields.integer(),
        "name": fields.text(read_only=True),
        "note": fields.text(nullable=True, default=None),
    }
    low: int
    high: int
    name: str
    note: str | None

    def _validate(self) -> None:
        if self.low > self.high:
            raise exceptions.InvalidInput("field", "Span.low", self.low, f"at most {self.high}")
        self.width = self.high - self.low


@base.register
class Sparse(base.ResourceObject):
    """A record that is read in part; one field can be loaded."""

    WIRE_PREFIX = PREFIX
    VERSION = "1.0"
    PARTIAL = True
    fields = {
        "a": fields.integer(),
        "b": fields.integer(default=5),
        "c": fields.integer(read_only=True),
        "late": fields.integer(),
    }
    a: int
    b: int
    c: int
    late: int

    def obj_load_attr(self, attrname: str) -> None:
        if attrname == "late" and self.obj_context is not None:
            self.late = 7
        else:
            super().obj_load_attr(attrname)


def span(**values: Any) -> Span:
    return Span(**{"low": 1, "high": 3, "name": "s", **values})


def state(entity: base.ResourceObject) -> tuple[Any, ...]:
    """Return everything an entity is, but for its context."""
    return entity.obj_to_primitive(), copy.copy(entity.__dict__)


# --- an object that exists is valid ---


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"low": 4}, "InvalidField", r"Span\.low: got 4, expected at most 3"),
        ({"low": None}, "InvalidField", r"Span\.low: got None, expected an integer from"),
        ({"low": "1"}, "InvalidField", r"Span\.low: got '1', expected an integer from"),
        ({"low": True}, "InvalidField", r"Span\.low: got True"),
        ({"low": 1.0}, "InvalidField", r"Span\.low: got 1\.0"),
        ({"deep": 1}, "UnknownField", r"Span\.deep: got 1, expected one of \['high', "),
    ],
)
def test_bad_values_are_refused_by_constructor_update_and_wire(
    values: dict[str, Any], error: type[Exception] | str, message: str
) -> None:
    with raises_code(error, match=message):
        span(**values)
    entity = span()
    before = state(entity)
    with raises_code(error, match=message):
        entity.update(**values)
    assert state(entity) == before
    if "deep" not in values:
        primitive = span().obj_to_primitive()
        primitive["versioned_object.data"].update(values)
        with raises_code(error, match=message):
            base.ResourceObject.obj_from_primitive(primitive)


@pytest.mark.parametrize("missing", ["low", "high", "name"])
def test_a_missing_field_is_refused(missing: str) -> None:
    values: dict[str, Any] = {"low": 1, "high": 3, "name": "s"}
    del values[missing]
    with raises_code("InvalidField", match=rf"Span\.{missing}: got None.*required"):
        Span(**values)
    primitive = span().obj_to_primitive()
    del primitive["versioned_object.data"][missing]
    with raises_code("InvalidPrimitive", match=rf"Span 1\.0.*also \['{missing}'\]"):
        Span.obj_from_primitive(primitive)


def test_an_error_of_a_field_is_a_value_error_that_carries_its_data() -> None:
    with pytest.raises(ValueError, match="low") as caught:
        span(low="x")
    error = caught.value
    assert is_one_of(error, "InvalidField")
    assert (error.what, error.value) == ("Span.low", "x")


# --- a refused change leaves the object as it was ---


@pytest.mark.law(2, 8)
@pytest.mark.parametrize(
    "change",
    [
        lambda e: setattr(e, "low", 9),
        lambda e: setattr(e, "low", "9"),
        lambda e: setattr(e, "name", "other"),
        lambda e: e.update(high=9, low=10),
        lambda e: e.update(note="new", high=None),
        lambda e: e.update(note="new", width=3),
        lambda e: e.update(note="new", name="other"),
        lambda e: delattr(e, "note"),
    ],
)
def test_a_refused_change_leaves_the_object_as_it_was(change: Callable[[Span], Any]) -> None:
    entity = span()
    before = state(entity)
    with pytest.raises(exceptions.ResourceObjectsError):
        change(entity)
    assert state(entity) == before
    assert entity.width == 2


def test_fields_that_depend_on_each_other_change_together() -> None:
    entity = span()
    assert entity.update(low=10, high=20) is True
    assert (entity.low, entity.high, entity.width) == (10, 20, 10)
    assert entity.update(low=10) is False


@pytest.mark.law(2)
@given(
    strategies.integer_inventories(max_total=100),
    st.dictionaries(
        st.sampled_from(sorted(IntegerInventory.fields)),
        st.integers(-1, 120) | st.sampled_from([None, "1.5", Decimal("0.1"), True, "VCPU"]),
    ),
)
def test_an_update_happens_whole_or_not_at_all(
    inventory: IntegerInventory, changes: dict[str, Any]
) -> None:
    before = state(inventory)
    figures = {name: getattr(inventory, name) for name in inventory.fields}
    stated = dict(figures)
    total = changes.get("total")
    if type(total) is int and total > 0:  # all of it may still be allocated
        stated["max_unit"] = follow_total(inventory.max_unit, inventory.total, total)
    try:
        expected = IntegerInventory(**{**stated, **changes})
    except exceptions.InvalidInput:
        with pytest.raises(exceptions.InvalidInput):
            inventory.update(**changes)
        assert state(inventory) == before
    else:
        assert inventory.update(**changes) is any(
            getattr(expected, name) != figures[name] for name in changes
        )
        assert inventory == expected
        assert inventory.capacity == expected.capacity


def test_a_read_only_field_is_written_once() -> None:
    entity = span()
    entity.name = "s"
    with pytest.raises(exceptions.FrozenValue, match=r"Span\.name is read-only"):
        entity.name = "t"
    with pytest.raises(ovo_exception.ReadOnlyFieldError):
        entity.update(name="t")
    with raises_code("InvalidField"):
        del entity.name
    assert entity.name == "s"


# --- what is not set ---


def test_a_field_that_is_not_set_is_reported() -> None:
    sparse = Sparse(a=1)
    assert not hasattr(sparse, "c")
    assert not sparse.obj_attr_is_set("c")
    assert "c" not in sparse
    with pytest.raises(exceptions.FieldNotSet, match=r"Sparse\.c is not set"):
        sparse.c  # noqa: B018
    with pytest.raises(NotImplementedError):
        sparse.c  # noqa: B018
    with pytest.raises(AttributeError):
        sparse.colour  # type: ignore[attr-defined]  # noqa: B018
    assert sparse.b == 5


def test_a_partial_object_takes_what_it_knows_there_and_back() -> None:
    sparse = Sparse(a=1)
    primitive = sparse.obj_to_primitive()
    assert primitive["versioned_object.data"] == {"a": 1, "b": 5}
    again = Sparse.obj_from_primitive(primitive)
    assert again.obj_to_primitive() == primitive
    assert copy.deepcopy(sparse).obj_to_primitive() == primitive


def test_a_field_of_a_partial_object_can_be_forgotten() -> None:
    sparse = Sparse(a=1)
    del sparse.a
    assert not hasattr(sparse, "a")
    assert sparse.obj_to_primitive()["versioned_object.data"] == {"b": 5}
    with pytest.raises(exceptions.FieldNotSet):
        del sparse.a
    sparse.a = 2
    assert sparse.a == 2


def test_a_refused_change_of_an_unset_field_leaves_it_unset() -> None:
    sparse = Sparse()
    with raises_code("InvalidField"):
        sparse.update(a=1, late="x")
    assert not hasattr(sparse, "a")


def test_a_field_that_can_be_loaded_is_loaded_when_it_is_read() -> None:
    sparse = Sparse(a=1)
    with pytest.raises(exceptions.FieldNotSet):
        sparse.late  # noqa: B018
    sparse._context = "somebody"
    assert sparse.late == 7


# --- copies ---


def test_a_copy_has_its_own_fields_and_the_same_context() -> None:
    entity = span()
    entity._context = context = object()
    entity.note = "kept"
    for twin in (copy.copy(entity), copy.deepcopy(entity), entity.obj_clone()):
        assert twin.obj_context is context
        assert twin.obj_to_primitive() == entity.obj_to_primitive()
        twin.update(low=0)
        assert entity.low == 1


def test_a_copied_inventory_still_knows_its_capacity() -> None:
    inventory = IntegerInventory(8, allocation_ratio=2, used=3)
    for twin in (copy.copy(inventory), pickle.loads(pickle.dumps(inventory))):
        assert (twin.capacity, twin.free) == (16, 13)
        twin.consume(IntegerAmount(1))
        assert (twin.used, inventory.used) == (4, 3)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_leaves_the_context_behind(protocol: int) -> None:
    entity = span()
    entity._context = lambda: "belongs to this process"
    again = pickle.loads(pickle.dumps(entity, protocol))
    assert again.obj_context is None
    assert again.obj_to_primitive() == entity.obj_to_primitive()


def test_a_deep_copy_keeps_what_is_shared_shared() -> None:
    inventories = Inventories("VCPU=2")
    first, second = copy.deepcopy([inventories, inventories])
    assert first is second
    assert first["VCPU"] is not inventories["VCPU"]


# --- what the library's own words mean here ---


def test_the_words_of_the_library_work() -> None:
    inventory = IntegerInventory(8)
    assert inventory.obj_attr_is_set("total")
    assert "total" in inventory
    assert "capacity" not in inventory
    inventory.obj_set_defaults()
    assert inventory == IntegerInventory(8)
    inventory.used = 2
    assert inventory.obj_what_changed() == set()  # changes are not tracked
    assert inventory.obj_get_changes() == {}
    inventory.obj_reset_changes()
    assert repr(inventory).startswith("IntegerInventory(total=8, reserved=0, ")


def test_a_property_shows_what_its_field_takes() -> None:
    doc = type(span()).__dict__["low"].__doc__
    assert doc.startswith("low: an integer from ")
