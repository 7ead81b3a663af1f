"""Values: frozen, equal by content, keys of dicts, the same after a copy or a pickle."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions, fields
from resource_objects.resources import Amounts, IntegerAmount, IntegerResource, Limits
from resource_objects.resources.numa import HostCell, PlacedCell
from resource_objects.resources.pci import Device
from resource_objects.testing.refusals import raises_code
from tests.objects.versions import Disk, Tape
from tests.support import strategies

VALUES: dict[str, base.ResourceObject] = {
    "IntegerAmount": IntegerAmount(3),
    "Amounts": Amounts("VCPU=2,MEMORY_MB=4096"),
    "Limits": Limits("VCPU=16,DISK_GB=0"),
    "IntegerResource": IntegerResource("CUSTOM_A", "custom", "pieces", "Things"),
    "Disk": Disk(size_mb=1024, rpm=7200),
}

each_value = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)


def pairs() -> st.SearchStrategy[base.ResourceObject]:
    """Values of which two drawn ones are often equal."""
    return st.one_of(
        strategies.integer_amounts(-2, 2),
        strategies.amounts(max_size=2),
        strategies.limits(max_size=2),
        st.builds(Disk, size_mb=st.integers(1, 2), rpm=st.sampled_from([None, 0])),
        st.builds(Tape, length=st.integers(1, 2), label=st.sampled_from(["", "a"])),
    )


@each_value
def test_no_field_can_be_set_or_deleted(value: base.ResourceObject) -> None:
    before = value.obj_to_primitive()
    for name in value.fields:
        with pytest.raises(exceptions.FrozenValue, match=name):
            setattr(value, name, getattr(value, name))
        with pytest.raises(exceptions.FrozenValue, match=name):
            delattr(value, name)
    with pytest.raises(exceptions.FrozenValue):
        value.update(**{next(iter(value.fields)): 1})
    with pytest.raises(exceptions.FrozenValue):
        value.anything = 1  # type: ignore[attr-defined]
    assert value.obj_to_primitive() == before


@each_value
def test_a_value_carries_no_context_and_no_changes(value: base.ResourceObject) -> None:
    assert value.obj_context is None
    assert value.obj_what_changed() == set()
    assert value.obj_get_changes() == {}
    assert "versioned_object.changes" not in value.obj_to_primitive()
    value.obj_reset_changes(recursive=True)
    read = base.ResourceObject.obj_from_primitive(value.obj_to_primitive(), context="somebody")
    assert read.obj_context is None


@each_value
def test_a_copy_is_the_value_itself(value: base.ResourceObject) -> None:
    assert copy.copy(value) is value
    assert copy.deepcopy(value) is value
    assert value.obj_clone() is value
    assert copy.deepcopy([value])[0] is value


@each_value
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_gives_an_equal_value(value: base.ResourceObject, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(value, protocol))
    assert again == value
    assert hash(again) == hash(value)
    assert again.obj_to_primitive() == value.obj_to_primitive()


def test_a_pickle_of_what_cannot_be_is_refused_when_it_is_read() -> None:
    created, (cls, _values) = IntegerAmount(3).__reduce__()
    with raises_code("InvalidField"):
        created(cls, {"value": True})


@given(pairs(), pairs(), pairs())
def test_equality_is_an_equivalence_that_hash_agrees_with(
    a: base.ResourceObject, b: base.ResourceObject, c: base.ResourceObject
) -> None:
    assert a == a
    assert (a == b) is (b == a)
    assert (a != b) is not (a == b)
    if a == b:
        assert hash(a) == hash(b)
        assert type(a) is type(b)
        assert a.obj_to_primitive() == b.obj_to_primitive()
        assert len({a, b}) == 1
    if a == b and b == c:
        assert a == c


@given(pairs())
def test_a_value_equals_its_wire_form_read_back(value: base.ResourceObject) -> None:
    again = base.ResourceObject.obj_from_primitive(value.obj_to_primitive())
    assert again == value
    assert again is not value


def test_kinds_do_not_equal_each_other() -> None:
    assert Amounts("VCPU=1") != Limits("VCPU=1")
    assert IntegerAmount(1) != 1
    assert Amounts("VCPU=1") != {"VCPU": IntegerAmount(1)}
    assert Disk(size_mb=1) != Tape(length=1)


def test_equality_does_not_depend_on_the_order_of_making() -> None:
    item, two = Amounts({"VCPU": 1, "DISK_GB": 2}), Amounts({"DISK_GB": 2, "VCPU": 1})
    assert item == two
    assert hash(item) == hash(two)
    assert str(item) == str(two) == "VCPU=1,DISK_GB=2"


def test_replace_gives_a_checked_value_and_leaves_the_first() -> None:
    disk = Disk(size_mb=1024, rpm=7200)
    assert disk.replace(rpm=None) == Disk(size_mb=1024)
    assert disk == Disk(size_mb=1024, rpm=7200)
    with raises_code("InvalidField", match=r"Disk\.size_mb: got 0"):
        disk.replace(size_mb=0)
    with raises_code("UnknownField", match=r"Disk\.size: got 0, expected one of"):
        disk.replace(size=0)
    with raises_code("UnknownField"):
        IntegerAmount(1).replace(amount=2)
    assert IntegerAmount(1).replace(value=2) == IntegerAmount(2)


def test_an_unknown_or_missing_field_is_refused() -> None:
    with raises_code("UnknownField", match=r"Disk\.colour: got 'red'"):
        Disk(size_mb=1, colour="red")
    with raises_code("InvalidField", match=r"Disk\.size_mb: .*required"):
        Disk()
    with raises_code("InvalidField", match=r"Disk\.size_mb: got None"):
        Disk(size_mb=None)


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "make",
    [
        lambda: Device("0000:3b:00.0", "10de", "2330", traits=iter(["bad"])),
        lambda: HostCell(0, shared=iter([-1])),
        lambda: HostCell(0, pages=iter([1])),
        lambda: PlacedCell(0, pins=iter([(0, -1)])),
    ],
)
def test_what_an_iterator_yields_is_refused_although_it_is_then_used_up(
    make: Callable[[], base.ResourceObject],
) -> None:
    with pytest.raises(exceptions.InvalidInput):
        make()


def test_the_constructor_takes_the_fields_and_is_reported() -> None:
    assert str(inspect.signature(PlacedCell)) == (
        "(cell, *, pins=(), idle=(), shared=(), page_size_kib=None)"
    )
    assert PlacedCell(1, idle={3, 2}) == PlacedCell(cell=1, idle=(2, 3))
    with pytest.raises(
        TypeError, match=r"PlacedCell.__init__\(\) takes from 1 to 2 positional arguments"
    ):
        PlacedCell(1, {})  # type: ignore[misc]
    with pytest.raises(TypeError, match="multiple values for argument 'cell'"):
        PlacedCell(1, cell=1)  # type: ignore[misc]


def test_a_field_that_follows_from_the_others_is_made_where_none_is_given() -> None:
    device = Device("0000:3b:00.0", "10de", "2330", resource_class=None)
    assert device.resource_class == "CUSTOM_PCI_10DE_2330"
    with raises_code("InvalidField", match=r"Device\.vendor_id: got 7"):
        Device("0000:3b:00.0", 7, "2330")  # type: ignore[arg-type]


def test_a_field_with_a_factory_is_not_none_in_a_wire_form_or_a_copy() -> None:
    device = Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU")
    primitive = device.obj_to_primitive()
    primitive["versioned_object.data"]["resource_class"] = None
    refused = r"Device\.resource_class: got None, expected a resource class name"
    with raises_code("InvalidField", match=refused):
        Device.obj_from_primitive(primitive)
    with raises_code("InvalidField", match=refused):
        device.replace(resource_class=None)


def test_what_a_value_was_made_from_can_change_without_it() -> None:
    given_amounts: dict[str, Any] = {"VCPU": 1}
    amounts = Amounts(given_amounts)
    given_amounts["VCPU"] = 2
    assert amounts == Amounts("VCPU=1")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", 1),
        lambda d: d.__delitem__("a"),
        lambda d: d.__ior__({"b": 1}),
        lambda d: d.clear(),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.setdefault("b", 1),
        lambda d: d.update(b=1),
    ],
)
def test_a_frozen_dict_refuses_every_change(change: Any) -> None:
    frozen = fields.FrozenDict(a=0)
    with pytest.raises(exceptions.FrozenValue):
        change(frozen)
    assert frozen == {"a": 0}


def test_a_frozen_dict_is_a_dict_else() -> None:
    frozen = fields.FrozenDict(a=0, b=1)
    assert hash(frozen) == hash(fields.FrozenDict(b=1, a=0))
    assert frozen | {"c": 2} == {"a": 0, "b": 1, "c": 2}
    assert type(frozen | {"c": 2}) is dict
    assert copy.copy(frozen) is frozen
    for again in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert again == frozen
        assert type(again) is fields.FrozenDict


def test_threads_that_share_a_value_see_one_value() -> None:
    amounts = Amounts("VCPU=2,MEMORY_MB=4096,CUSTOM_A=1")
    expected = (hash(amounts), str(amounts), amounts.obj_to_primitive(), -amounts)

    def look(_number: int) -> object:
        return (hash(amounts), str(amounts), amounts.obj_to_primitive(), -amounts)

    with ThreadPoolExecutor(8) as pool:
        assert all(seen == expected for seen in pool.map(look, range(200)))


def test_equal_values_look_equal():
    """A set may be in another order inside; the text is not."""
    names = [f"CUSTOM_{letter}" for letter in "ABCDEFGH"]
    item, other = (frozenset(several) for several in (names, names[::-1]))
    device = {"address": "0000:01:00.0", "vendor_id": "10de", "product_id": "2330"}
    first, second = (Device(**device, traits=traits) for traits in (item, other))
    assert first == second
    assert repr(first) == repr(second)
    assert f"traits=frozenset({{{', '.join(map(repr, names))}}})" in repr(first)
