"""The string field of resource classes speaks the wire of the enum that it replaces.

Nova and others have resource classes as an enum of oslo.versionedobjects, where each new class of
a newer release is an object that older processes cannot read. Ours is a string. The two meet on
the wire in both directions.
"""

from __future__ import annotations

from typing import Any

import os_resource_classes
import pytest
from hypothesis import given

from resource_objects import base, exceptions, fields
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields
from tests.support import strategies


class Enumerated:
    """The class as a process has it that still uses the enum of an older release."""

    @ovo.VersionedObjectRegistry.register
    class Labelled(ovo.VersionedObject):
        OBJ_PROJECT_NAMESPACE = "resource_objects"
        VERSION = "1.0"
        fields = {"resource_class": ovo_fields.EnumField(["VCPU", "MEMORY_MB", "DISK_GB"])}

        @classmethod
        def obj_name(cls) -> str:
            return "test_enum.Labelled"


@base.register
class Labelled(base.ResourceObject, frozen=True):
    """The class as we have it."""

    WIRE_PREFIX = "test_string"
    VERSION = "1.0"
    fields = {"resource_class": fields.resource_class()}
    resource_class: str


def addressed_to(cls: Any, primitive: dict[str, Any]) -> dict[str, Any]:
    """Return the primitive as it is where both sides have the class under one name."""
    return primitive | {"versioned_object.name": cls.obj_name()}


@pytest.mark.parametrize("name", ["VCPU", "MEMORY_MB", "DISK_GB"])
def test_both_send_the_same(name: str) -> None:
    ours = Labelled(resource_class=name).obj_to_primitive()
    theirs = Enumerated.Labelled(resource_class=name).obj_to_primitive()
    assert ours["versioned_object.data"] == theirs["versioned_object.data"]
    assert ours["versioned_object.data"] == {"resource_class": name}


@pytest.mark.parametrize("name", ["VCPU", "MEMORY_MB", "DISK_GB"])
def test_each_reads_what_the_other_sends(name: str) -> None:
    ours, theirs = Labelled(resource_class=name), Enumerated.Labelled(resource_class=name)
    assert Labelled.obj_from_primitive(addressed_to(Labelled, theirs.obj_to_primitive())) == ours
    read = Enumerated.Labelled.obj_from_primitive(
        addressed_to(Enumerated.Labelled, ours.obj_to_primitive())
    )
    assert read.resource_class == name


@given(strategies.resource_class_names())
def test_ours_takes_every_class_there_will_be_and_an_old_enum_those_it_has(name: str) -> None:
    ours = Labelled(resource_class=name)
    assert Labelled.obj_from_primitive(ours.obj_to_primitive()) == ours
    sent = addressed_to(Enumerated.Labelled, ours.obj_to_primitive())
    if name in ("VCPU", "MEMORY_MB", "DISK_GB"):
        assert Enumerated.Labelled.obj_from_primitive(sent).resource_class == name
    else:
        with pytest.raises(ValueError, match=name[:20]):
            Enumerated.Labelled.obj_from_primitive(sent)


@pytest.mark.parametrize("name", os_resource_classes.STANDARDS)
def test_every_standard_class_is_taken(name: str) -> None:
    assert (
        Labelled(resource_class=name).resource_class
        is Labelled(resource_class=name[:]).resource_class
    )


@pytest.mark.parametrize("bad", ["vcpu", "V CPU", "", "VCPU ", 1, None])
def test_ours_refuses_by_shape_what_the_enum_refuses_by_list(bad: Any) -> None:
    with pytest.raises(exceptions.InvalidInput):
        Labelled(resource_class=bad)
    with pytest.raises(ValueError, match=r"invalid|cannot be None"):
        Enumerated.Labelled(resource_class=bad)
