"""Primitives: the exact wire form, and malformed ones."""

from __future__ import annotations

import copy
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions
from resource_objects.resources import (
    Amounts,
    IntegerAmount,
    IntegerInventory,
    IntegerResource,
    Inventories,
    Limits,
    Resource,
    resource,
)
from resource_objects.testing.refusals import raises_code
from tests.objects.versions import Disk, Label, Shelf, Tape
from tests.support import strategies


def wire(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return a wire form of version 1.0, written out."""
    return {
        "versioned_object.name": f"resource_objects.{name}",
        "versioned_object.namespace": "resource_objects",
        "versioned_object.version": "1.0",
        "versioned_object.data": data,
    }


def figures(**differing: Any) -> dict[str, Any]:
    return {
        "total": 8,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": None,
        "step_size": 1,
        "allocation_ratio": "1",
        "used": 0,
        "resource_class": None,
        **differing,
    }


def described(name: str, **differing: str) -> dict[str, Any]:
    return {"name": name, "type": "", "units": "", "description": "", **differing}


#: The form of 1.0: a later version still reads it, and writes it for 1.0.
PINNED: list[tuple[base.ResourceObject, dict[str, Any]]] = [
    (IntegerAmount(-3), wire("IntegerAmount", {"value": -3})),
    (
        IntegerInventory(8, 1, 2, 4, 2, "1.50", 6, resource_class="VCPU"),
        wire(
            "IntegerInventory",
            figures(
                reserved=1,
                min_unit=2,
                max_unit=4,
                step_size=2,
                allocation_ratio="1.5",
                used=6,
                resource_class="VCPU",
            ),
        ),
    ),
    (
        IntegerResource("CUSTOM_A", "custom", "pieces", "Things"),
        wire(
            "IntegerResource",
            described("CUSTOM_A", type="custom", units="pieces", description="Things"),
        ),
    ),
    (
        IntegerResource("CUSTOM_SLOT", "abstract", "slots"),
        wire("IntegerResource", described("CUSTOM_SLOT", type="abstract", units="slots")),
    ),
    (
        Amounts("DISK_GB=1,VCPU=2,FPGA=0"),
        wire(
            "Amounts",
            {
                "by_class": {
                    "VCPU": wire("IntegerAmount", {"value": 2}),
                    "DISK_GB": wire("IntegerAmount", {"value": 1}),
                }
            },
        ),
    ),
    (
        Limits("VCPU=0"),
        wire("Limits", {"by_class": {"VCPU": wire("IntegerAmount", {"value": 0})}}),
    ),
    (
        Inventories("VCPU=8"),
        wire(
            "Inventories",
            {
                "by_class": {
                    "VCPU": wire("IntegerInventory", figures(resource_class="VCPU")),
                }
            },
        ),
    ),
]

each_pinned = pytest.mark.parametrize(
    ("ours", "pinned"), PINNED, ids=[type(ours).__name__ for ours, _ in PINNED]
)


@pytest.mark.law(10)
@each_pinned
def test_the_wire_form_is_the_pinned_one(ours: base.ResourceObject, pinned: dict[str, Any]) -> None:
    assert ours.obj_to_primitive("1.0") == pinned
    assert json.loads(json.dumps(ours.obj_to_primitive())) == ours.obj_to_primitive()


@pytest.mark.law(10)
@each_pinned
def test_the_pinned_wire_form_is_read(ours: base.ResourceObject, pinned: dict[str, Any]) -> None:
    for reader in (base.ResourceObject, type(ours)):
        again = reader.obj_from_primitive(copy.deepcopy(pinned))
        assert again == ours
        assert type(again) is type(ours)
        assert again.obj_to_primitive() == pinned


def test_a_wire_form_with_changes_is_read() -> None:
    """Libraries until 0.1.0 tracked changes of entities, and sent their names."""
    pinned = wire("IntegerInventory", figures()) | {"versioned_object.changes": list(figures())}
    again = base.ResourceObject.obj_from_primitive(pinned)
    assert again == IntegerInventory(8)
    assert again.obj_to_primitive() == wire("IntegerInventory", figures())


@given(strategies.inventories())
def test_inventories_return_with_every_figure(inventories: Inventories) -> None:
    again = Inventories.obj_from_primitive(json.loads(json.dumps(inventories.obj_to_primitive())))
    assert again == inventories
    assert str(again) == str(inventories)
    assert [inventory.free for inventory in again.values()] == [
        inventory.free for inventory in inventories.values()
    ]


def test_a_class_reads_its_own_kind_and_derived_ones_only() -> None:
    amount = IntegerAmount(1).obj_to_primitive()
    with raises_code("InvalidPrimitive", match=r"expected a resource_objects\.Amounts"):
        Amounts.obj_from_primitive(amount)
    with raises_code("InvalidPrimitive", match="expected a"):
        IntegerInventory.obj_from_primitive(amount)
    topology = resource("NUMA_TOPOLOGY")
    with raises_code("InvalidPrimitive", match="expected a"):
        IntegerResource.obj_from_primitive(topology.obj_to_primitive())
    assert Resource.obj_from_primitive(topology.obj_to_primitive()) == topology


def test_a_process_reads_a_wire_form_of_any_room_after_registering_all() -> None:
    primitives = json.dumps([ours.obj_to_primitive() for ours, _ in PINNED])
    program = (
        "import json, sys\n"
        "from resource_objects import base\n"
        "import resource_objects.resources\n"
        "for primitive in json.load(sys.stdin):\n"
        "    print(type(base.ResourceObject.obj_from_primitive(primitive)).__name__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        input=primitives,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [type(ours).__name__ for ours, _ in PINNED]
    assert ran.stderr == ""


# --- malformed ---

HEADER = ("name", "namespace", "version", "data")
SHELF = Shelf(
    main=Disk(size_mb=1024),
    by_class={"VCPU": Tape(length=1)},
    row=[Disk(size_mb=1), Tape(length=2)],
    stock_list=[Tape(length=3)],
    stock_dict={"a": [Disk(size_mb=5)]},
    labels=[Label(text="a", inner=[Label(text="b")])],
)
VALID: list[base.ResourceObject] = [*(ours for ours, _ in PINNED), SHELF]


@pytest.mark.parametrize("bad", [None, 1, "x", [], (), {}, {"versioned_object.name": "x"}, b"{}"])
def test_what_is_not_shaped_like_a_primitive_is_refused(bad: Any) -> None:
    with raises_code("InvalidPrimitive"):
        base.ResourceObject.obj_from_primitive(bad)


@pytest.mark.parametrize("part", HEADER)
@pytest.mark.parametrize("bad", [None, 1, [], True])
def test_each_part_of_the_header_must_be_there_and_right(part: str, bad: Any) -> None:
    key = f"versioned_object.{part}"
    primitive = IntegerAmount(1).obj_to_primitive()
    with raises_code("InvalidPrimitive", match=part):
        IntegerAmount.obj_from_primitive({**primitive, key: bad})
    del primitive[key]
    with raises_code("InvalidPrimitive", match=part):
        IntegerAmount.obj_from_primitive(primitive)


@pytest.mark.parametrize("version", ["", "1", "x", "1.x", ".", "1.", "-1.0", "1.0.x", "1" * 5000])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    primitive = IntegerAmount(1).obj_to_primitive() | {"versioned_object.version": version}
    with pytest.raises(exceptions.ResourceObjectsError, match="ersion"):
        IntegerAmount.obj_from_primitive(primitive)


def test_an_unknown_name_is_refused_without_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    primitive = IntegerAmount(1).obj_to_primitive() | {"versioned_object.name": "IntegerAmount"}
    with caplog.at_level(logging.DEBUG), raises_code("InvalidPrimitive"):
        base.ResourceObject.obj_from_primitive(primitive)
    assert caplog.records == []


def test_too_deep_a_primitive_is_refused() -> None:
    primitive = Label(text="x").obj_to_primitive()
    for _ in range(3000):
        outer = Label(text="x").obj_to_primitive()
        outer["versioned_object.data"]["inner"] = [primitive]
        primitive = outer
    with raises_code("InvalidPrimitive"):
        base.ResourceObject.obj_from_primitive(primitive)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)
tempting = st.sampled_from(
    [
        *(ours.obj_to_primitive() for ours in VALID),
        *(ours.obj_to_primitive()["versioned_object.name"] for ours in VALID),
        "resource_objects.Amount",
        "1.0",
        "1.0.1",
        "2.0",
        "VCPU",
        "NOPE",
        "1e400",
        "NaN",
        2**63,
        -(2**63),
        0,
        {},
        [],
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside nested dicts and lists."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    result = [path] if path else []
    for key, inner in items:
        result += places(inner, (*path, key))
    return result


@st.composite
def mutants(draw: st.DrawFn) -> Any:
    """Return a valid primitive with one to three values replaced, removed or added."""
    primitive = copy.deepcopy(draw(st.sampled_from(VALID)).obj_to_primitive())
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(places(primitive)))
        holder = primitive
        for key in above:
            holder = holder[key]
        change = draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "remove":
            del holder[last]
        elif change == "add" and isinstance(holder, dict):
            holder[draw(st.text(max_size=5))] = copy.deepcopy(draw(json_values | tempting))
        else:
            holder[last] = copy.deepcopy(draw(json_values | tempting))
        if not places(primitive):
            break
    return primitive


@pytest.mark.law(8)
@given(mutants() | json_values)
def test_a_malformed_primitive_gives_an_error_of_ours_or_a_valid_object(primitive: Any) -> None:
    before = copy.deepcopy(primitive)
    try:
        created = base.ResourceObject.obj_from_primitive(primitive)
    except exceptions.ResourceObjectsError as error:
        assert str(error)
    else:
        again = base.ResourceObject.obj_from_primitive(created.obj_to_primitive())
        assert again.obj_to_primitive() == created.obj_to_primitive()
        assert repr(created)
        assert isinstance(str(created), str)
    assert repr(primitive) == repr(before)
