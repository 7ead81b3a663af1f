"""The serializer of message buses: nested objects both ways, older forms on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions
from resource_objects._ovo import base as ovo
from resource_objects.resources import Amounts, IntegerAmount, Inventories
from resource_objects.testing.refusals import raises_code
from tests.objects.versions import (
    PREFIX,
    V12,
    Disk,
    Label,
    Medium,
    Shelf,
    Tape,
    V10Label,
    process_that_knows,
    read,
    version_of,
)
from tests.support import strategies

pytestmark = pytest.mark.law(10)

SERIALIZER = base.ResourceObjectSerializer()


def over_the_wire(entity: Any, serializer: base.ResourceObjectSerializer = SERIALIZER) -> Any:
    text = json.dumps(serializer.serialize_entity(None, entity))
    return serializer.deserialize_entity("context", json.loads(text))


objects = st.one_of(
    strategies.integer_amounts(),
    strategies.amounts(),
    strategies.limits(),
    strategies.inventories(),
)
plain = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
nested = st.recursive(
    objects | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(nested)
def test_whatever_is_nested_returns_equal(entity: Any) -> None:
    assert over_the_wire(entity) == entity


def test_mixed_kinds_in_one_mapping_and_one_list_return() -> None:
    disk = Disk(size_mb=1)
    entity = {
        "list": [IntegerAmount(1), Amounts("VCPU=2"), {"deep": (disk,)}],
        "dict": {"a": Inventories("VCPU=8:used=2"), "b": Tape(length=2, label="x")},
    }
    again = over_the_wire(entity)
    assert again == entity | {"list": [IntegerAmount(1), Amounts("VCPU=2"), {"deep": [disk]}]}


def test_entities_take_the_context_of_the_reader_and_values_none() -> None:
    again = over_the_wire([Inventories("VCPU=8"), IntegerAmount(1), Shelf(labels=[Label()])])
    assert again[0].obj_context == "context"
    assert again[0]["VCPU"].obj_context == "context"
    assert again[1].obj_context is None
    assert again[2].labels[0].obj_context == "context"


def test_what_is_no_object_of_ours_is_refused() -> None:
    primitive = SERIALIZER.serialize_entity(None, IntegerAmount(1))
    with raises_code("InvalidPrimitive", match="namespace"):
        SERIALIZER.deserialize_entity(None, primitive | {"versioned_object.namespace": "nova"})


def test_a_third_number_of_a_version_changes_nothing() -> None:
    primitive = SERIALIZER.serialize_entity(None, IntegerAmount(1))
    again = SERIALIZER.deserialize_entity(None, primitive | {"versioned_object.version": "1.0.7"})
    assert again == IntegerAmount(1)


class Conductor(ovo.VersionedObjectIndirectionAPI):
    """A newer process that answers an older one in its version."""

    def __init__(self, *, knows_manifests: bool = True) -> None:
        self.knows_manifests = knows_manifests
        self.manifests: list[dict[str, str]] = []

    def object_action(self, *_args: Any) -> Any:
        raise NotImplementedError

    def object_backport_versions(self, context: Any, objinst: Any, object_versions: Any) -> Any:
        if not self.knows_manifests:
            raise NotImplementedError
        self.manifests.append(object_versions)
        expected = object_versions[objinst["versioned_object.name"]]
        with process_that_knows(*EVERYTHING):
            older = read(objinst).obj_to_primitive(expected, object_versions)
        return read(older)

    def object_backport(self, context: Any, objinst: Any, target_version: str) -> Any:
        with process_that_knows(*EVERYTHING):
            older = read(objinst).obj_to_primitive(target_version)
        return read(older)


EVERYTHING = (Medium, Disk, Tape, Shelf, Label)


class OlderShelf:
    """The shelf as a process of version 1.1 has it: with the fields of today."""

    class Shelf(Shelf):
        VERSION = "1.1"


base.register(OlderShelf.Shelf)


@pytest.fixture
def conductor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Conductor]:
    api = Conductor()
    monkeypatch.setattr(base.ResourceObject, "indirection_api", api)
    yield api


def newer_shelf() -> Any:
    return Shelf(
        main=Disk(size_mb=2048, rpm=7),
        by_class={"CUSTOM_A": Disk(size_mb=1024)},
        stock_dict={"a": [Tape(length=3, label="x")]},
        labels=[Label(text="a")],
    ).obj_to_primitive()


def test_a_newer_object_is_requested_in_older_words_of_every_kind(conductor: Conductor) -> None:
    primitive = newer_shelf()
    with process_that_knows(Medium, V12.Disk, Tape, OlderShelf.Shelf, V10Label.Label):
        shelf = SERIALIZER.deserialize_entity("context", primitive)
    (manifest,) = conductor.manifests
    assert manifest[f"{PREFIX}.Disk"] == "1.2"
    assert manifest[f"{PREFIX}.Tape"] == "1.1"
    assert manifest["resource_objects.IntegerAmount"] == "1.0"
    assert type(shelf) is OlderShelf.Shelf
    assert shelf.main == V12.Disk(size_gb=2, rpm=7)
    assert shelf.by_class == {"CUSTOM_A": V12.Disk(size_gb=1)}
    assert shelf.stock_dict == {"a": [Tape(length=3, label="x")]}
    assert type(shelf.labels[0]) is V10Label.Label


def test_a_newer_child_of_a_known_parent_is_requested_too(conductor: Conductor) -> None:
    primitive = newer_shelf()
    with process_that_knows(Medium, V12.Disk, Tape, Shelf, Label):
        shelf = SERIALIZER.deserialize_entity("context", [primitive])[0]
    assert version_of(shelf.obj_to_primitive()) == "1.2"
    assert shelf.main == V12.Disk(size_gb=2, rpm=7)


def test_a_conductor_without_manifests_uses_the_table(conductor: Conductor) -> None:
    conductor.knows_manifests = False
    primitive = newer_shelf()
    primitive["versioned_object.data"]["stock_dict"] = {}
    with process_that_knows(Medium, V12.Disk, Tape, OlderShelf.Shelf, V10Label.Label):
        shelf = SERIALIZER.deserialize_entity("context", primitive)
    assert shelf.main == V12.Disk(size_gb=2, rpm=7)


def test_without_a_conductor_a_newer_object_is_refused() -> None:
    primitive = Disk(size_mb=1).obj_to_primitive()
    with process_that_knows(V12.Disk), pytest.raises(base.IncompatibleVersion):
        SERIALIZER.deserialize_entity(None, primitive)


def test_what_cannot_be_specified_in_older_words_is_refused_by_the_conductor(
    conductor: Conductor,
) -> None:
    primitive = Disk(size_mb=1).obj_to_primitive()
    with process_that_knows(V12.Disk), pytest.raises(exceptions.CannotDowngrade):
        SERIALIZER.deserialize_entity(None, primitive)
    assert conductor.manifests
