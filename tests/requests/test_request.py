"""A request is valid from the day it exists, and comes back from the wire as it went."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions, plugins
from resource_objects.base import ResourceObject
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import Amounts, IntegerAmount, IntegerResource, catalog, resource
from resource_objects.testing.refusals import raises_code

JOB = Request(
    "VCPU=16,MEMORY_MB=65536,PGPU=3",
    required=["CUSTOM_H100", "CUSTOM_FAST"],
    forbidden=["HW_CPU_X86_AVX2"],
)


def test_the_loop_of_the_specification_runs_over_a_request():
    assert [(kind.name, int(amount)) for kind, amount in JOB.resources.items()] == [
        ("VCPU", 16),
        ("MEMORY_MB", 65536),
        ("PGPU", 3),
    ]
    assert isinstance(JOB.resources, Amounts)
    assert JOB.resources[resource("VCPU")] == IntegerAmount(16)


def test_a_request_is_one_group_without_a_name():
    (group,) = JOB.groups
    assert group.suffix == ""
    assert group.resources == JOB.resources
    assert group.required == {"CUSTOM_H100", "CUSTOM_FAST"}
    assert group.forbidden == {"HW_CPU_X86_AVX2"}


def test_text_is_one_line_in_a_fixed_order():
    assert str(JOB) == (
        "VCPU=16,MEMORY_MB=65536,PGPU=3 required=CUSTOM_FAST,CUSTOM_H100 forbidden=HW_CPU_X86_AVX2"
    )
    assert str(Request("MEMORY_MB=1,VCPU=1")) == "VCPU=1,MEMORY_MB=1"
    assert repr(Request("VCPU=1")) == "Request('VCPU=1')"
    assert eval(repr(JOB)) == JOB


@pytest.mark.parametrize(
    "given", ["VCPU=2", {"VCPU": 2}, {resource("VCPU"): IntegerAmount(2)}, Amounts(VCPU=2)]
)
def test_a_request_is_made_from_whatever_amounts_are_made_from(given):
    assert Request(given) == Request.of(given) == Request("VCPU=2")


def test_a_request_stays_itself():
    assert Request.of(JOB) is JOB
    assert copy.deepcopy(JOB) is JOB


def test_a_text_is_parsed_once():
    request = Request.of("VCPU=2,PGPU=1")
    assert Request.of("VCPU=2,PGPU=1") is request == Request("VCPU=2,PGPU=1")
    assert pickle.loads(pickle.dumps(request)) == request
    assert Request("VCPU=2,PGPU=1", compatibility="placement") != Request.of("VCPU=2,PGPU=1")
    assert Request.of("VCPU=2,PGPU=1").compatibility is None


def test_a_text_that_was_refused_is_refused_again():
    for _ in range(2):
        with raises_code("UnknownResourceClass"):
            Request.of("NOBODY_KNOWS=1")


def test_a_cached_request_does_not_change():
    request = Request.of("NUMA_TOPOLOGY=1:shared=2")
    before = request.obj_to_primitive()
    group, (amount,) = request.unnamed, request.unnamed.resources.values()
    for value in (request, group, group.resources, amount):
        for name in [*value.fields, "_obj_" + next(iter(value.fields)), "_context", "VERSION"]:
            with pytest.raises(exceptions.FrozenValue):
                setattr(value, name, None)
            with pytest.raises(exceptions.FrozenValue):
                delattr(value, name)
    with pytest.raises(exceptions.FrozenValue):
        request.update(near="numa")
    request.obj_set_defaults("near")
    request.obj_reset_changes()
    assert Request.of("NUMA_TOPOLOGY=1:shared=2").obj_to_primitive() == before


def test_long_texts_are_not_cached():
    text = ",".join(f"CUSTOM_{number:05}=1" for number in range(100))
    assert Request.of(text) is not Request.of(text)


@base.register
class DozenResource(IntegerResource):
    """Counts whose text form is a number of dozens."""

    WIRE_PREFIX = "test_request"
    # Version 1.0: Initial version
    VERSION = "1.0"

    def parse_amount(self, text):
        return IntegerAmount(12 * int(text))


def test_a_class_that_is_registered_later_decides_about_a_cached_text(monkeypatch):
    assert int(Request.of("CUSTOM_EGG=2").resources["CUSTOM_EGG"]) == 2
    eggs = DozenResource("CUSTOM_EGG", "custom", "eggs", "Sold by the dozen")
    monkeypatch.setattr(plugins, "load", lambda *_: eggs)
    classes = plugins.BUILT_IN[catalog.PLUGIN_NAMESPACE]
    monkeypatch.setitem(classes, eggs.name, "nowhere:nothing")
    catalog.forget()
    assert int(Request.of("CUSTOM_EGG=2").resources["CUSTOM_EGG"]) == 24
    monkeypatch.undo()
    catalog.forget()
    assert int(Request.of("CUSTOM_EGG=2").resources["CUSTOM_EGG"]) == 2


def test_equal_requests_are_one_key():
    again = Request(JOB.resources, required={"CUSTOM_FAST", "CUSTOM_H100"},
                    forbidden=("HW_CPU_X86_AVX2",))  # fmt: skip
    assert {JOB: 1}[again] == 1
    assert Request(JOB.resources) != JOB
    assert JOB.groups[0] != JOB.groups[0].replace(suffix="A")


@pytest.mark.parametrize("nothing", ["", {}, "VCPU=0", Amounts()])
def test_asking_for_nothing_is_refused(nothing):
    with raises_code("InvalidRequest", match="expected an amount of something"):
        Request(nothing)


def test_a_negative_amount_is_refused():
    with raises_code("InvalidRequest", match=r"VCPU: got IntegerAmount\(-1\)"):
        Request("VCPU=-1,PGPU=1")


def test_how_near_is_said_beside_a_level_alone():
    with raises_code("InvalidRequest", match="near_policy: got 'required', expected a level"):
        Request("VCPU=1", near_policy="required")
    assert Request("VCPU=1", near="numa", near_policy="required").must_be_near


def test_a_trait_cannot_be_required_and_forbidden():
    with raises_code("InvalidRequest", match="CUSTOM_B"):
        Request("VCPU=1", required=["CUSTOM_A", "CUSTOM_B"], forbidden=["CUSTOM_B"])


@pytest.mark.parametrize("which", ["required", "forbidden"])
@pytest.mark.parametrize(
    ("traits", "error"),
    [
        (["HW_CPU_X86_AVX9"], "UnknownTrait"),
        (["no trait"], "InvalidTrait"),
        ("CUSTOM_A", "InvalidTrait"),
        ({"CUSTOM_A": True}, "InvalidTrait"),
        (None, "InvalidTrait"),
        ([None], "InvalidTrait"),
        (7, "InvalidTrait"),
    ],
)
def test_what_is_no_list_of_known_traits_is_refused(which, traits, error):
    with raises_code(error):
        Request("VCPU=1", **{which: traits})


def test_exactly_one_group_has_no_name_and_comes_first():
    group = RequestGroup("VCPU=1")
    for groups in ([], [group, group], [group.replace(suffix="1")]):
        with raises_code("InvalidRequest", match="one group"):
            JOB.replace(groups=groups)


def test_a_request_does_not_change():
    with pytest.raises(exceptions.FrozenValue):
        JOB.groups = ()
    with pytest.raises(exceptions.FrozenValue):
        JOB.groups[0].resources.by_class["VCPU"] = IntegerAmount(1)


@pytest.mark.parametrize("value", [JOB, JOB.groups[0], Request("CUSTOM_FPGA=1")])
def test_there_and_back(value):
    assert ResourceObject.obj_from_primitive(value.obj_to_primitive()) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_wire_names_are_qualified_and_traits_are_in_order():
    primitive = JOB.obj_to_primitive()
    assert primitive["versioned_object.name"] == "resource_objects.Request"
    (group,) = primitive["versioned_object.data"]["groups"]
    assert group["versioned_object.name"] == "resource_objects.RequestGroup"
    assert group["versioned_object.data"]["required"] == ["CUSTOM_FAST", "CUSTOM_H100"]


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("required", ["HW_CPU_X86_AVX2"], "InvalidRequest"),
        ("required", ["NOBODY_KNOWS"], "UnknownTrait"),
        ("required", "CUSTOM_A", exceptions.ResourceObjectsError),
        ("suffix", "X", "InvalidRequest"),
        ("resources", None, exceptions.ResourceObjectsError),
    ],
)
def test_a_wire_form_is_checked_like_a_constructor(field, value, error):
    primitive = copy.deepcopy(JOB.obj_to_primitive())
    (group,) = primitive["versioned_object.data"]["groups"]
    group["versioned_object.data"][field] = value
    with raises_code(error):
        Request.obj_from_primitive(primitive)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)
almost = st.from_regex(r"[A-Z=,0-9_ -]{0,30}", fullmatch=True) | st.dictionaries(
    st.sampled_from(["VCPU", "PGPU", "CUSTOM_X", "NOPE"]), anything
)


@given(anything | almost, anything | st.just([]), anything | st.just([]))
def test_bad_input_is_refused_with_an_error_of_the_library(given_amounts, required, forbidden):
    try:
        request = Request(given_amounts, required=required, forbidden=forbidden)
    except exceptions.ResourceObjectsError as error:
        assert str(error)
    else:
        assert all(int(amount) > 0 for amount in request.resources.values())
