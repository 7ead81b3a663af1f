"""Any input of the algebra is a valid object or one clear error, and nothing half.

Hypothesis makes values of every type it knows. An error of ours names the value and what was
expected; any other exception fails the test. After an error, nothing has changed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resource_objects import base, exceptions
from resource_objects.resources import (
    Amounts,
    IntegerAmount,
    IntegerInventory,
    IntegerResource,
    Inventories,
    Limits,
    resource,
)
from resource_objects.resources.traits import checked_traits
from resource_objects.testing.refusals import raises_code
from tests.support import strategies

pytestmark = pytest.mark.law(8)

#: Values of every type, and those that are nearly right.
anything: st.SearchStrategy[Any] = st.one_of(
    st.from_type(type).flatmap(st.from_type),
    st.sampled_from([None, True, 0, -1, 1, 1.0, "1", "VCPU", "CUSTOM_", "none", [], {}, (), 2**63]),
    strategies.integer_amounts(),
    strategies.integer_inventories(),
    strategies.amounts(max_size=1),
    strategies.inventories(max_size=1),
    strategies.resource_class_names(),
    st.just(resource("VCPU")),
    st.just(IntegerAmount),
)


def hashes(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


keys = anything.filter(hashes)


def made_or_refused(make: Callable[[], Any]) -> Any:
    """Return the object, None if a clear error refused it."""
    try:
        created = make()
    except exceptions.InvalidInput as error:
        assert error.what
        assert error.expected
        assert len(str(error)) < 1000
        return None
    if isinstance(created, base.ResourceObject):
        again = base.ResourceObject.obj_from_primitive(created.obj_to_primitive())
        assert again == created
        assert repr(again) == repr(created)
    return created


@pytest.mark.parametrize("figure", list(IntegerInventory.fields))
@given(value=anything)
def test_a_figure_of_an_inventory(figure: str, value: Any) -> None:
    made_or_refused(lambda: IntegerInventory(**{"total": 8, figure: value}))
    inventory = IntegerInventory(8, max_unit=6, used=3)
    before = inventory.obj_to_primitive()
    try:
        setattr(inventory, figure, value)
    except exceptions.InvalidInput:
        assert inventory.obj_to_primitive() == before


@pytest.mark.parametrize("part", ["name", "type", "units", "description"])
@given(value=anything)
def test_a_part_of_a_resource(part: str, value: Any) -> None:
    made_or_refused(lambda: IntegerResource(**{"name": "CUSTOM_A", part: value}))


@pytest.mark.parametrize("kind", [Amounts, Limits, Inventories])
@given(value=anything)
def test_a_mapping_by_resource(kind: Any, value: Any) -> None:
    for make in (kind, kind.from_value, kind.parse, lambda argument: kind(VCPU=argument)):
        made_or_refused(lambda make=make: make(value))  # type: ignore[misc]


@pytest.mark.parametrize("kind", [Amounts, Limits, Inventories])
@given(key=keys, value=anything)
@example(key="NOPE", value=1)
def test_a_pair_of_a_mapping_by_resource(kind: Any, key: Any, value: Any) -> None:
    created = made_or_refused(lambda: kind({key: value}))
    if created:
        (result,) = created
        assert result in (key, resource(key))


@given(value=anything, limit=anything)
def test_a_question_to_an_inventory(value: Any, limit: Any) -> None:
    inventory = IntegerInventory(8, used=3)
    before = inventory.obj_to_primitive()
    for ask in (inventory.can_provide, inventory.fit):
        try:
            ask(value, limit)
        except (exceptions.InvalidInput, exceptions.CapacityException) as error:
            assert str(error)
        assert inventory.obj_to_primitive() == before


@given(value=anything, limit=anything)
def test_a_question_to_several_inventories(value: Any, limit: Any) -> None:
    place = Inventories("VCPU=8:used=3,MEMORY_MB=100")
    before = copy.deepcopy(place)
    for ask in (place.can_provide, place.fit, place.refusals, place.consume):
        try:
            ask(value, limit)
        except (exceptions.InvalidInput, exceptions.CapacityException) as error:
            assert str(error)
            assert place == before
        place = copy.deepcopy(before)


@given(key=keys, value=anything)
def test_an_inventory_that_is_put_or_taken_away(key: Any, value: Any) -> None:
    place = Inventories("VCPU=8")
    try:
        place[key] = value
    except exceptions.InvalidInput as error:
        assert str(error)
        assert place == Inventories("VCPU=8")
    else:
        assert key in place
    try:
        del place[key]
    except (exceptions.InvalidInput, KeyError):
        assert key not in place
    else:
        assert key not in place


@given(value=anything)
def test_a_set_of_traits(value: Any) -> None:
    assert made_or_refused(lambda: checked_traits(value)) is None or not isinstance(value, str)


@given(anything, anything)
def test_a_comparison_is_an_answer_and_never_an_error(item: Any, other: Any) -> None:
    for ours in (
        IntegerAmount(1),
        IntegerInventory(8),
        Amounts(VCPU=1),
        Inventories(VCPU=1),
        resource("VCPU"),
    ):
        assert isinstance(ours == item, bool)
        assert (ours == other) is not (ours != other)


@pytest.mark.parametrize("digits", [str(2**64), f"-{2**64}", "9" * 5000, "0" * 5000])
def test_too_large_a_number_is_reported_its_bound(digits: str) -> None:
    for text in (f"VCPU={digits}", f"VCPU=8:reserved={digits}"):
        with raises_code("InvalidText", match=f"a whole number within ±{2**63 - 1}"):
            Inventories(text)
