"""Several inventories in one place: one decision, all or nothing, every reason."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions
from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import (
    Amounts,
    IntegerAmount,
    IntegerInventory,
    Inventories,
    Limits,
    resource,
)
from resource_objects.resources.numa import numa
from resource_objects.resources.pci import devices
from resource_objects.testing.refusals import raises_code
from tests.support import strategies as ro_st

CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_A"]


def by_class(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(CLASSES), values, max_size=4)


places = by_class(ro_st.integer_inventories(max_total=12)).map(Inventories)
requested_amounts = by_class(st.integers(-14, 14)).map(Amounts)
bounds = st.none() | by_class(st.integers(0, 14)).map(Limits)


def state(place: Inventories) -> Any:
    return copy.deepcopy(place.obj_to_primitive())


# --- one decision, all or nothing ---


@pytest.mark.law(2, 5)
@given(places, requested_amounts, bounds)
def test_several_resources_happen_whole_or_not_at_all(
    place: Inventories, amounts: Amounts, limits: Limits | None
) -> None:
    before = state(place)
    used = {name: stored.used for name, stored in place.by_name()}  # type: ignore[attr-defined]
    reasons = place.refusals(amounts, limits)
    assert state(place) == before
    if reasons:
        for ask in (place.fit, place.consume):
            with pytest.raises(CapacityException) as caught:
                ask(amounts, limits)
            assert caught.value.reasons == reasons
        assert state(place) == before
    else:
        assert place.fit(amounts, limits) == amounts
        assert state(place) == before
        assert place.consume(amounts, limits) == amounts
        for name, stored in place.by_name():
            taken = int(amounts.get(name, IntegerAmount(0)))  # type: ignore[call-overload]
            assert stored.used == used[name] + taken  # type: ignore[attr-defined]


@pytest.mark.law(6)
@given(places, requested_amounts, bounds)
def test_there_is_one_reason_for_each_resource_that_refuses(
    place: Inventories, amounts: Amounts, limits: Limits | None
) -> None:
    expected = []
    for name, amount in amounts.by_name():
        if name not in place:
            expected.append(name)
            continue
        try:
            limit = None if limits is None else limits.get(name)  # type: ignore[call-overload]
            place[name].fit(amount, limit)
        except CapacityException:
            expected.append(name)
    assert [reason.resource for reason in place.refusals(amounts, limits)] == expected


@pytest.mark.law(5)
@given(places, by_class(st.integers(0, 14)).map(Amounts), bounds)
def test_can_provide_is_whether_there_is_no_reason(
    place: Inventories, amounts: Amounts, limits: Limits | None
) -> None:
    before = state(place)
    assert place.can_provide(amounts, limits) is (place.refusals(amounts, limits) == ())
    assert state(place) == before


@pytest.mark.law(3)
@given(places, by_class(st.integers(0, 6)).map(Amounts))
def test_consume_and_release_restores(place: Inventories, amounts: Amounts) -> None:
    before = copy.deepcopy(place)
    try:
        assigned = place.consume(amounts)
    except CapacityException:
        assert place == before
    else:
        place.consume(-assigned)
        assert place == before


@pytest.mark.law(6)
def test_reasons_are_data() -> None:
    place = Inventories("VCPU=8:used=7,DISK_GB=9:step_size=4,MEMORY_MB=100")
    with pytest.raises(CapacityException) as caught:
        place.consume("VCPU=2,MEMORY_MB=50,DISK_GB=3,FPGA=1", "MEMORY_MB=40")
    assert caught.value.reasons == (
        Reason(Rule.CAPACITY, 2, 8, 7, "VCPU"),
        Reason(Rule.LIMIT, 50, 40, 0, "MEMORY_MB"),
        Reason(Rule.STEP_SIZE, 3, 4, 0, "DISK_GB"),
        Reason(Rule.NO_INVENTORY, 1, 0, 0, "FPGA"),
    )


def test_the_type_of_the_refusal_tells_the_most() -> None:
    place = Inventories("VCPU=8:max_unit=4")
    for text, error in (
        ("VCPU=5", "UnitRuleViolated"),
        ("FPGA=1,PGPU=2", "InventoryNotFound"),
        ("VCPU=5,FPGA=1", "CapacityException"),
        ("FPGA=-1", "CapacityException"),
    ):
        with pytest.raises(CapacityException) as caught:
            place.consume(text)
        assert caught.value.code == error


def test_what_is_absent_provides_zero_and_takes_nothing_back() -> None:
    place = Inventories("VCPU=8")
    assert place.can_provide({"DISK_GB": 0})
    assert place.consume(Amounts()) == Amounts()
    assert place.refusals("DISK_GB=-1") == (Reason(Rule.USED_BELOW_ZERO, -1, 0, 0, "DISK_GB"),)


def test_a_move_between_resources_is_one_change() -> None:
    place = Inventories("VCPU=8:used=8,PCPU=8")
    place.consume("VCPU=-4,PCPU=4")
    assert str(place) == "VCPU=8:used=4,PCPU=8:used=4"
    with pytest.raises(CapacityException):
        place.consume("VCPU=-4,PCPU=5")
    assert str(place) == "VCPU=8:used=4,PCPU=8:used=4"


def test_requesting_less_than_nothing_is_an_error() -> None:
    with raises_code("NegativeAmount", match="VCPU"):
        Inventories("VCPU=8:used=3").can_provide("VCPU=-1")


def test_a_limit_for_what_is_not_requested_is_no_matter() -> None:
    place = Inventories("VCPU=8:used=8,DISK_GB=9")
    assert place.can_provide("DISK_GB=1", "VCPU=0")


@pytest.mark.parametrize("bad", [None, 3, "VCPU", {"VCPU": "1"}, {"NOPE": 1}, [("VCPU", 1)]])
def test_amounts_and_limits_that_cannot_be_are_refused_and_nothing_happens(bad: Any) -> None:
    place = Inventories("VCPU=8")
    for ask in (place.refusals, place.can_provide, place.fit, place.consume):
        with pytest.raises(exceptions.InvalidInput):
            ask(bad)
        if bad is not None:
            with pytest.raises(exceptions.InvalidInput):
                ask("VCPU=1", bad)
    assert place == Inventories("VCPU=8")


@pytest.mark.law(2)
def test_a_kind_that_fails_while_it_takes_undoes_what_was_taken_before() -> None:
    class Breaking(IntegerInventory):
        WIRE_PREFIX = "test_inventories"

        def apply(self, assigned: Any) -> None:
            raise RuntimeError("broken kind")

    base.register(Breaking)
    place = Inventories({"VCPU": 8, "MEMORY_MB": 100, "DISK_GB": Breaking(9)})
    place.consume("VCPU=1")
    before = state(place)["versioned_object.data"]
    with pytest.raises(RuntimeError, match="broken kind"):
        place.consume("VCPU=2,MEMORY_MB=50,DISK_GB=3")
    assert state(place)["versioned_object.data"] == before


# --- it owns its inventories ---


def test_what_is_put_in_is_copied() -> None:
    mine = IntegerInventory(8)
    for place in (
        Inventories({"VCPU": mine}),
        Inventories(VCPU=mine),
        Inventories(Inventories({"VCPU": mine})),
    ):
        place.consume("VCPU=2")
        assert mine.used == 0
        assert mine.resource_class is None
    place = Inventories()
    place["VCPU"] = mine
    place.consume("VCPU=1")
    place.by_class = {"VCPU": mine}  # type: ignore[attr-defined]
    place.consume("VCPU=1")
    place.update(by_class={"DISK_GB": mine, "VCPU": 4})
    place.consume("VCPU=1,DISK_GB=1")
    assert mine == IntegerInventory(8)


def test_a_copy_shares_nothing() -> None:
    place = Inventories("VCPU=8,DISK_GB=9")
    for twin in (
        copy.copy(place),
        copy.deepcopy(place),
        place.obj_clone(),
        Inventories(place),
        pickle.loads(pickle.dumps(place)),
    ):
        assert twin == place
        twin.consume("VCPU=1")
        twin["DISK_GB"] = 1
        assert str(place) == "VCPU=8,DISK_GB=9"
    assert Inventories.from_value(place) is place


def test_what_is_taken_out_is_the_live_one() -> None:
    place = Inventories("VCPU=8")
    place[resource("VCPU")].consume(IntegerAmount(2))
    assert str(place) == "VCPU=8:used=2"


# --- the mapping ---


@given(ro_st.inventories())
def test_it_is_a_mapping_whose_keys_may_be_resources_or_names(place: Inventories) -> None:
    assert isinstance(place, Mapping)
    assert len(place) == len(list(place))
    assert bool(place) is (len(place) > 0)
    for key, stored in place.items():
        assert place[key] is place[key.name] is place.get(key) is stored
        assert key in place
        assert key.name in place
        assert stored.resource_class == key.name
    assert "by_class" not in place
    assert 3 not in place
    with pytest.raises(TypeError, match="unhashable"):
        hash(place)


@given(ro_st.inventories())
def test_text_gives_the_inventories_back(place: Inventories) -> None:
    assert Inventories.parse(str(place)) == place
    assert eval(repr(place)) == place


def test_putting_and_removing() -> None:
    place = Inventories("VCPU=8")
    place["DISK_GB"] = 9
    place[resource("CUSTOM_A")] = IntegerInventory(2, max_unit=1)
    place["VCPU"] = IntegerInventory(4)
    assert str(place) == "VCPU=4,DISK_GB=9,CUSTOM_A=2:max_unit=1"
    del place["DISK_GB"]
    del place[resource("CUSTOM_A")]
    assert str(place) == "VCPU=4"
    with pytest.raises(KeyError):
        del place["DISK_GB"]
    for key, value in (("NOPE", 1), ("vcpu", 1), (3, 1), ("VCPU", "8"), ("VCPU", -1)):
        with pytest.raises(exceptions.InvalidInput):
            place[key] = value  # type: ignore[index]
    assert str(place) == "VCPU=4"


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "bad",
    [
        None,
        3,
        ["VCPU"],
        {"VCPU": "8"},
        {"VCPU": -1},
        {"VCPU": False},
        {"VCPU": None},
        {"VCPU": IntegerAmount(8)},
        {"NOPE": 8},
        {"NOPE": IntegerInventory(8, resource_class="NOPE")},
        {"VCPU": IntegerInventory(8, resource_class="PCPU")},
        {resource("VCPU"): 1, "VCPU": 2},
        "VCPU",
        "VCPU=",
        "VCPU=-1",
        "VCPU=0:reserved=1",
        "VCPU=8:",
        "VCPU=8:colour=1",
        "VCPU=8:used",
        "VCPU=8:used=",
        "VCPU=8:used=1:used=1",
        "VCPU=8:reserved=9",
        "VCPU=8:allocation_ratio=x",
        "VCPU=8:allocation_ratio=none",
        "VCPU=8:used=none",
        "VCPU=8,VCPU=8",
    ],
    ids=repr,
)
def test_what_inventories_cannot_be_made_of_is_refused(bad: Any) -> None:
    for make in (
        Inventories,
        Inventories.from_value,
        lambda value: Inventories().update(by_class=value),
    ):
        with pytest.raises(exceptions.InvalidInput):
            make(bad)
    with pytest.raises(exceptions.InvalidInput):
        Inventories.parse(bad)


@pytest.mark.law(8)
@given(st.text(alphabet="VCPU=,:-+0123456789. \nused_tolimarn\x00"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = Inventories.parse(text)
    except exceptions.InvalidInput as error:
        assert str(error)
    else:
        assert Inventories.parse(str(parsed)) == parsed


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "change",
    [
        {"NOPE": ("NOPE", 8)},
        {"VCPU": ("PCPU", 8)},
        {"vcpu": ("VCPU", 8)},
    ],
    ids=["unknown class", "label of another", "no class at all"],
)
def test_a_primitive_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    primitive = Inventories("VCPU=8").obj_to_primitive()
    primitive["versioned_object.data"]["by_class"] = {
        key: IntegerInventory(total, resource_class=label).obj_to_primitive()
        for key, (label, total) in change.items()
    }
    with pytest.raises(exceptions.InvalidInput):
        Inventories.obj_from_primitive(primitive)


def test_a_primitive_without_labels_is_labelled() -> None:
    primitive = Inventories("VCPU=8").obj_to_primitive()
    primitive["versioned_object.data"]["by_class"] = {
        "VCPU": IntegerInventory(8).obj_to_primitive()
    }
    assert Inventories.obj_from_primitive(primitive)["VCPU"].resource_class == "VCPU"


def test_a_plain_number_is_what_the_resource_makes_of_it() -> None:
    slot = resource("CUSTOM_SLOT")
    assert Inventories({slot: 2})["CUSTOM_SLOT"] == slot.make_inventory(2)


# --- what is not there ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CUSTOM_FPGA", "DISK_GB", "NUMA_TOPOLOGY", "DEVICES"])
def test_what_is_not_there_is_an_empty_inventory(name: str) -> None:
    """An absent amount is zero: the loop is refused, and nothing else shows an absent class."""
    place = Inventories("VCPU=8")
    request = {"NUMA_TOPOLOGY": numa(shared=1), "DEVICES": devices("PGPU")}
    amount = request.get(name, IntegerAmount(1))
    result = place[name]
    assert result == resource(name).make_inventory() and result.resource_class == name
    assert not result.can_provide(amount)
    with pytest.raises(CapacityException):
        result.consume(amount)
    assert not place.can_provide({name: amount})
    assert name not in place and place.get(name) is None and place.get(name, 7) == 7
    assert len(place) == 1 and list(place.names()) == ["VCPU"] and str(place) == "VCPU=8"
    assert place[resource(name)] == result


def test_a_word_that_is_no_class_is_named() -> None:
    with raises_code("UnknownResourceClass", match="MEMORY"):
        Inventories("VCPU=8")["MEMORY"]
    with raises_code("InvalidResourceClass"):
        Inventories("VCPU=8")[8]  # type: ignore[index]


@pytest.mark.parametrize(
    "value",
    [
        "VCPU=8,DISK_GB=0",
        {"VCPU": 8, "DISK_GB": 0},
        {"VCPU": 8, "DISK_GB": IntegerInventory(0)},
        {"VCPU": 8, "CUSTOM_FPGA": 0, resource("CUSTOM_SLOT"): 0},
        {"VCPU": 8, "NUMA_TOPOLOGY": resource("NUMA_TOPOLOGY").make_inventory()},
    ],
)
def test_an_inventory_of_total_0_is_left_out(value: Any) -> None:
    place = Inventories(value)
    assert str(place) == "VCPU=8" and list(place.names()) == ["VCPU"]
    place.update(by_class=value)
    assert list(place.names()) == ["VCPU"]
    place["DISK_GB"] = 9
    place["DISK_GB"] = 0
    assert str(place) == "VCPU=8"


@pytest.mark.parametrize("value", ["VCPU=0,DISK_GB=0", {"VCPU": 0}, "", {}])
def test_inventories_may_all_be_of_total_0(value: Any) -> None:
    assert len(Inventories(value)) == 0 and str(Inventories(value)) == ""


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ("-1", "VCPU total: got -1, expected an integer from 0"),
        ("8:reserved=9", "VCPU reserved: got 9, expected at most the total of 8"),
        ("0:reserved=1", "VCPU reserved: got 1, expected at most the total of 0"),
        ("8:min_unit=3:max_unit=2", "VCPU max_unit: got 2, expected from the min_unit of 3"),
        ("8:min_unit=0", "VCPU min_unit: got 0, expected an integer from 1"),
        ("8:allocation_ratio=0", "VCPU allocation_ratio: got '0', expected a decimal above 0"),
    ],
)
def test_a_wrong_figure_is_refused_with_its_class_and_value(figures: str, message: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match=message):
        Inventories(f"VCPU={figures},DISK_GB=9")


def test_an_empty_inventory_has_no_records() -> None:
    with pytest.raises(exceptions.InvalidInventory, match="total"):
        Inventories("VCPU=8")["DISK_GB"].to_records()
