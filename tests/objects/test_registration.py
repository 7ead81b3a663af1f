"""Registration: owners of names, and refusals before any harm."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterator

import pytest

from resource_objects import base, fields
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields
from resource_objects.resources import (
    Amount,
    Amounts,
    IntegerAmount,
    IntegerInventory,
    IntegerResource,
    Inventories,
    Inventory,
    Resource,
)
from resource_objects.testing.refusals import raises_code


@pytest.fixture(autouse=True)
def registry() -> Iterator[dict[str, list[type[ovo.VersionedObject]]]]:
    """The process-global registry, as it was before again afterwards."""
    registered = ovo.VersionedObjectRegistry.obj_classes()
    before = {name: list(classes) for name, classes in registered.items()}
    yield registered
    registered.clear()
    registered.update(before)


def test_the_wire_name_of_ours_is_qualified() -> None:
    assert IntegerAmount.obj_name() == "resource_objects.IntegerAmount"
    assert IntegerAmount(1).obj_to_primitive()["versioned_object.name"] == IntegerAmount.obj_name()


def test_every_object_of_ours_is_registered_under_its_wire_name(
    registry: dict[str, list[type[ovo.VersionedObject]]],
) -> None:
    for cls in (Amount, Amounts, IntegerAmount, IntegerInventory, Inventories, Inventory, Resource):
        assert registry[cls.obj_name()] == [cls]


def test_another_class_of_a_taken_name_and_version_is_refused() -> None:
    class First:
        @base.register
        class Thing(base.ResourceObject, frozen=True):
            WIRE_PREFIX = "test_registration"
            fields = {"a": fields.integer()}

    with raises_code("InvalidName", match=r"test_registration\.Thing 1\.0.*First\.Thing"):

        @base.register
        class Thing(base.ResourceObject, frozen=True):
            WIRE_PREFIX = "test_registration"
            fields = {"b": fields.integer()}

    created = First.Thing(a=1)
    assert base.ResourceObject.obj_from_primitive(created.obj_to_primitive()) == created


def test_a_module_that_is_imported_again_registers_its_classes_again() -> None:
    def imported() -> type[base.ResourceObject]:
        @base.register
        class Again(base.ResourceObject, frozen=True):
            WIRE_PREFIX = "test_registration"

        return Again

    first, second = imported(), imported()
    assert first is not second
    assert ovo.VersionedObjectRegistry.obj_classes()["test_registration.Again"] == [second]


def test_several_versions_of_one_class_stand_side_by_side_newest_first(
    registry: dict[str, list[type[ovo.VersionedObject]]],
) -> None:
    created = {}
    for version in ("1.0", "1.10", "1.9"):

        @base.register
        class Grown(base.ResourceObject, frozen=True):
            WIRE_PREFIX = "test_registration"
            VERSION = version

        created[version] = Grown
    assert registry["test_registration.Grown"] == [created["1.10"], created["1.9"], created["1.0"]]


def test_a_class_of_another_distribution_needs_a_prefix_of_its_own() -> None:
    with raises_code("InvalidName", match="a WIRE_PREFIX of its own"):

        @base.register
        class Intruder(Amount):
            fields = {"value": fields.integer()}

    assert "resource_objects.Intruder" not in ovo.VersionedObjectRegistry.obj_classes()


def test_an_entity_keeps_no_field_in_slots_because_a_refused_update_could_not_undo_it() -> None:
    with raises_code("InvalidName", match="only a value may keep fields in slots"):

        @base.register
        class Slotted(base.ResourceObject):
            WIRE_PREFIX = "test_registration"
            __slots__ = ("_obj_a",)
            fields = {"a": fields.integer()}


@pytest.mark.parametrize(
    "ours",
    [
        IntegerAmount(3),
        IntegerInventory(8, used=2),
        IntegerResource("CUSTOM_A", units="pieces"),
        Amounts("VCPU=2"),
        Inventories("VCPU=2:used=1"),
    ],
    ids=lambda ours: type(ours).__name__,
)
def test_foreign_classes_of_our_class_names_change_nothing(ours: base.ResourceObject) -> None:
    before = ours.obj_to_primitive()
    for name in ("ComputeNode", "Resource", "Inventory", *{type(ours).__name__}):
        foreign = type(
            name, (ovo.VersionedObject,), {"fields": {"uuid": ovo_fields.UUIDField(nullable=True)}}
        )
        ovo.VersionedObjectRegistry.register(foreign)
    assert ours.obj_to_primitive() == before
    again = base.ResourceObject.obj_from_primitive(before)
    assert type(again) is type(ours)
    assert again == ours
    assert ovo.VersionedObjectRegistry.obj_classes()["Resource"][0] is not Resource


def test_our_classes_do_not_replace_foreign_ones_of_their_names() -> None:
    foreign = type(
        "ComputeNode",
        (ovo.VersionedObject,),
        {"fields": {"host": ovo_fields.StringField()}, "OBJ_PROJECT_NAMESPACE": "nova"},
    )
    ovo.VersionedObjectRegistry.register(foreign)

    @base.register
    class ComputeNode(base.ResourceObject):
        WIRE_PREFIX = "test_registration"
        fields = {"name": fields.text()}

    primitive = foreign(host="cn1").obj_to_primitive()
    assert type(foreign.obj_from_primitive(primitive)) is foreign


def test_a_foreign_class_is_not_made_from_a_primitive_of_our_namespace() -> None:
    created: list[object] = []

    def remember(self: object, *_args: object, **_kwargs: object) -> None:
        created.append(self)

    foreign = type("Resource", (ovo.VersionedObject,), {"__init__": remember})
    ovo.VersionedObjectRegistry.register(foreign)
    primitive = IntegerAmount(1).obj_to_primitive() | {"versioned_object.name": "Resource"}
    with raises_code("InvalidPrimitive", match="'Resource', expected a "):
        base.ResourceObject.obj_from_primitive(primitive)
    assert created == []


def test_a_foreign_object_of_our_class_name_is_no_child_of_ours() -> None:
    foreign = type("IntegerAmount", (ovo.VersionedObject,), {})
    ovo.VersionedObjectRegistry.register(foreign)
    with raises_code("InvalidField"):
        Amounts().replace(by_class={"VCPU": foreign()})


def test_an_abstract_property_is_fulfilled_by_a_field() -> None:
    class Named(base.ResourceObject, abc.ABC, frozen=True):
        WIRE_PREFIX = "test_registration"

        @property
        @abc.abstractmethod
        def name(self) -> str: ...

    with pytest.raises(TypeError, match="abstract"):
        Named()

    @base.register
    class Cat(Named):
        fields = {"name": fields.text()}

    assert Cat(name="Tom").name == "Tom"


@pytest.mark.parametrize("abstract", [Amount, Inventory, Resource])
def test_an_abstract_class_makes_no_object_in_any_way(abstract: type[base.ResourceObject]) -> None:
    with pytest.raises(TypeError):
        abstract()
    primitive = IntegerAmount(1).obj_to_primitive()
    primitive["versioned_object.name"] = abstract.obj_name()
    with raises_code("InvalidPrimitive"):
        base.ResourceObject.obj_from_primitive(primitive)


def test_a_derived_class_inherits_fields_and_adds_its_own() -> None:
    @base.register
    class Tagged(IntegerInventory):
        WIRE_PREFIX = "test_registration"
        fields = {"tag": fields.text(default="")}

    assert set(Tagged.fields) == {*IntegerInventory.fields, "tag"}
    assert "tag" not in IntegerInventory.fields
    assert Tagged(8).obj_to_primitive()["versioned_object.data"]["tag"] == ""
    assert Tagged(8) != IntegerInventory(8)


def test_field_names_come_in_one_order() -> None:
    shown = [list(cls.fields) for cls in (IntegerInventory, IntegerResource)]
    assert shown == [
        [
            "total",
            "reserved",
            "min_unit",
            "max_unit",
            "step_size",
            "allocation_ratio",
            "used",
            "resource_class",
        ],
        ["name", "type", "units", "description"],
    ]


def test_a_method_that_a_class_brings_itself_is_stored() -> None:
    counter = itertools.count()

    @base.register
    class Counting(base.ResourceObject):
        WIRE_PREFIX = "test_registration"
        fields = {"a": fields.integer(default=0), "b": fields.integer(default=0)}

        def obj_to_primitive(
            self, target_version: str | None = None, version_manifest: dict[str, str] | None = None
        ) -> dict[str, object]:
            next(counter)
            return super().obj_to_primitive(target_version, version_manifest)

        def __getattr__(self, name: str) -> str:
            return f"no {name}"

        def _key(self) -> tuple[object, ...]:
            return ("mine",)

    class Derived(Counting):
        pass

    derived = base.register(Derived)()
    Counting().obj_to_primitive()
    derived.obj_to_primitive()
    assert next(counter) == 2
    assert Counting().colour == "no colour"
    assert derived._key() == ("mine",)


def test_a_class_that_is_derived_without_being_registered_checks_in_its_own_way() -> None:
    class Even(IntegerInventory):
        def _validate(self) -> None:
            super()._validate()
            if self.total % 2:
                raise ValueError(self.total)

    assert Even(8) == Even(8) != IntegerInventory(8)
    assert Even(8).capacity == 8
    with pytest.raises(ValueError, match="7"):
        Even(7)
