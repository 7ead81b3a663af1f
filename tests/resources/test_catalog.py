"""The catalog: every resource class there is, with words for people."""

from __future__ import annotations

from typing import Any

import os_resource_classes
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.resources import (
    IntegerAmount,
    IntegerInventory,
    IntegerResource,
    catalog,
    resource,
    standard_resources,
)
from resource_objects.resources.traits import checked_traits
from resource_objects.testing.refusals import raises_code
from tests.support import strategies


@pytest.mark.parametrize("name", os_resource_classes.STANDARDS)
def test_every_standard_class_has_a_type_units_and_a_description(name: str) -> None:
    result = resource(name)
    assert result.name == name
    assert result.type
    assert result.units
    assert result.description
    assert not result.description.endswith(".")


def test_the_standard_resources_are_those_of_os_resource_classes_in_its_order() -> None:
    assert [standard_resource.name for standard_resource in standard_resources()] == list(
        os_resource_classes.STANDARDS
    )
    assert catalog._STANDARD.keys() == set(os_resource_classes.STANDARDS)


@pytest.mark.parametrize("name", os_resource_classes.STANDARDS)
def test_a_standard_resource_is_a_public_name(name: str) -> None:
    assert getattr(ro, name) == resource(name)


def test_a_class_of_a_newer_release_is_there_before_it_is_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os_resource_classes, "STANDARDS", [*os_resource_classes.STANDARDS, "QUBIT"])
    catalog.forget()
    assert resource("QUBIT").units == "units"
    assert standard_resources()[-1].name == "QUBIT"
    monkeypatch.undo()
    catalog.forget()
    with raises_code("UnknownResourceClass"):
        resource("QUBIT")


@given(strategies.custom_names())
def test_any_custom_class_is_there(name: str) -> None:
    result = resource(name)
    assert (result.name, result.type, result.units) == (name, "custom", "units")
    assert isinstance(result, IntegerResource)
    assert resource(name) == result


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("MEMORY", ["MEMORY_MB"]),
        ("CPU", ["VCPU", "PCPU"]),
        ("DISK", ["DISK_GB"]),
        ("FPGA_INTEL", ["CUSTOM_FPGA_INTEL"]),
        ("LICENCE", ["CUSTOM_LICENCE"]),
    ],
)
def test_an_unknown_class_suggests_known_ones(name: str, suggested: list[str]) -> None:
    with raises_code("UnknownResourceClass") as caught:
        resource(name)
    assert caught.value.value == name
    assert any(close in caught.value.expected for close in suggested)


def test_where_no_name_is_close_the_custom_name_is_suggested() -> None:
    with raises_code("UnknownResourceClass") as of_class:
        resource("Q")
    assert of_class.value.expected == "a standard or CUSTOM_ class, such as CUSTOM_Q"
    with raises_code("UnknownTrait") as of_trait:
        checked_traits(["Q"])
    assert of_trait.value.expected == "a standard or CUSTOM_ trait, such as CUSTOM_Q"


@pytest.mark.parametrize("bad", ["", "vcpu", "CUSTOM_", "CUSTOM_a", "A" * 256, 3, None, b"VCPU"])
def test_a_name_no_class_can_have_is_refused(bad: Any) -> None:
    with raises_code("InvalidResourceClass"):
        resource(bad)


@given(st.text() | st.from_type(object))
def test_any_name_is_known_or_refused(anything: Any) -> None:
    try:
        assert resource(anything).name == anything
    except exceptions.InvalidInput as error:
        assert str(error)


def test_a_resource_is_itself() -> None:
    mine = IntegerResource("CUSTOM_A", "mine")
    assert resource(mine) is mine


def test_a_resource_is_its_name() -> None:
    plain, described = IntegerResource("CUSTOM_A"), IntegerResource("CUSTOM_A", "t", "u", "d")
    assert plain == described
    assert len({plain, described}) == 1
    assert plain != IntegerResource("CUSTOM_B")
    assert plain != "CUSTOM_A"
    assert str(plain) == "CUSTOM_A"


def test_devices_are_things_with_an_identity() -> None:
    devices = [name for name in os_resource_classes.STANDARDS if catalog.is_device(name)]
    assert devices == [
        "PCI_DEVICE",
        "SRIOV_NET_VF",
        "VGPU",
        "VGPU_DISPLAY_HEAD",
        "FPGA",
        "PGPU",
    ]
    assert not catalog.is_device("CUSTOM_A")


def test_the_makers_work_on_the_class_and_on_an_instance() -> None:
    licence = IntegerResource("CUSTOM_LICENCE")
    assert licence.make_amount(2) == IntegerResource.make_amount(2) == IntegerAmount(2)
    assert licence.make_inventory(5, used=1) == IntegerInventory(5, used=1)
    assert licence.make_inventory(5).resource_class == "CUSTOM_LICENCE"
    assert IntegerResource.make_inventory(5).resource_class is None
    assert licence.make_inventory(total=5).total == 5


@pytest.mark.law(8)
@given(st.from_type(type).flatmap(st.from_type))
def test_the_parsers_of_a_resource_refuse_what_they_cannot_read(anything: Any) -> None:
    vcpu = resource("VCPU")
    for parse in (vcpu.parse_amount, vcpu.parse_inventory, vcpu.make_amount, vcpu.make_inventory):
        try:
            parse(anything)
        except exceptions.InvalidInput as error:
            assert str(error)
    for show in (vcpu.format_amount, vcpu.format_inventory):
        with pytest.raises(exceptions.InvalidInput):
            show(anything)


def test_only_its_own_kind_is_formatted() -> None:
    vcpu = resource("VCPU")
    with pytest.raises(exceptions.InvalidInventory, match="an IntegerInventory"):
        vcpu.format_inventory(IntegerAmount(1))  # type: ignore[arg-type]
    with raises_code("WrongAmountKind"):
        vcpu.format_amount(IntegerInventory(1))  # type: ignore[arg-type]
