"""What changed is known, however deep inside its containers it happened."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resource_objects import base
from resource_objects._ovo import fields as ovo_fields
from resource_objects.resources import IntegerAmount, IntegerInventory, Inventories
from tests.objects.versions import PREFIX, Disk, Label, Shelf, read


class _DictOfListsOfLabels(ovo_fields.AutoTypedField):  # type: ignore[type-arg]
    AUTO_TYPE = ovo_fields.Dict(ovo_fields.List(ovo_fields.Object(f"{PREFIX}.Label")))


@base.register
class Box(base.ResourceObject):
    """An entity that holds entities in the library's own fields."""

    WIRE_PREFIX = "test_change_tracking"
    VERSION = "1.0"
    fields = {
        "many": ovo_fields.ListOfObjectsField(f"{PREFIX}.Label"),
        "lists": _DictOfListsOfLabels(),
        "sole": ovo_fields.ObjectField(f"{PREFIX}.Label"),
    }


def label(text: str, *inner: Label) -> Label:
    return Label(text=text, inner=inner)


@pytest.fixture
def shelf() -> Shelf:
    made = Shelf(labels=[label("a", label("b", label("c"))), label("d")])
    made.obj_reset_changes(recursive=True)
    return made


def test_a_new_object_has_changed_in_every_field() -> None:
    assert IntegerInventory(8).obj_what_changed() == set(IntegerInventory.fields)
    assert Shelf().obj_what_changed() == set(Shelf.fields)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda s: None, set()),
        (lambda s: setattr(s, "name", "new"), {"name"}),
        (lambda s: s.update(name="new", row=[Disk(size_mb=1)]), {"name", "row"}),
        (lambda s: setattr(s.labels[1], "text", "new"), {"labels"}),
        (lambda s: setattr(s.labels[0].inner[0].inner[0], "text", "new"), {"labels"}),
    ],
)
def test_a_change_is_seen_at_the_top(
    shelf: Shelf, change: Callable[[Shelf], object], changed: set[str]
) -> None:
    change(shelf)
    assert shelf.obj_what_changed() == changed


def test_a_change_inside_the_librarys_own_containers_is_seen() -> None:
    one, two, three = (Label(text=text) for text in "123")
    box = Box(many=[one], lists={"k": [two]}, sole=three)
    box.obj_reset_changes(recursive=True)
    assert box.obj_what_changed() == set()
    for child, field in ((one, "many"), (two, "lists"), (three, "sole")):
        child.text = "new"
        assert box.obj_what_changed() == {field}
        assert read(box.obj_to_primitive()).obj_what_changed() == {field}
        box.obj_reset_changes(recursive=True)
        assert child.obj_what_changed() == set()


def test_a_consumed_inventory_is_a_change_of_its_inventories() -> None:
    inventories = Inventories("VCPU=8,DISK_GB=100")
    inventories.obj_reset_changes(recursive=True)
    assert inventories.obj_what_changed() == set()
    inventories["DISK_GB"].consume(IntegerAmount(1))
    assert inventories["VCPU"].obj_what_changed() == set()
    assert inventories["DISK_GB"].obj_what_changed() == {"used"}
    assert inventories.obj_what_changed() == {"by_class"}


def test_forgetting_is_recursive_only_when_asked(shelf: Shelf) -> None:
    shelf.name = "new"
    shelf.labels[0].inner[0].text = "new"
    shelf.obj_reset_changes()
    assert shelf.obj_what_changed() == {"labels"}
    shelf.obj_reset_changes(recursive=True)
    assert shelf.obj_what_changed() == set()
    assert shelf.labels[0].inner[0].obj_what_changed() == set()


def test_forgetting_can_name_fields(shelf: Shelf) -> None:
    shelf.name = "new"
    shelf.labels[0].text = "new"
    shelf.obj_reset_changes(["name"], recursive=True)
    assert shelf.obj_what_changed() == {"labels"}
    shelf.obj_reset_changes(["labels"], recursive=True)
    assert shelf.obj_what_changed() == set()


def test_changes_travel_in_the_order_of_the_fields(shelf: Shelf) -> None:
    assert "versioned_object.changes" not in shelf.obj_to_primitive()
    for name in ("row", "by_class", "name", "main"):
        setattr(shelf, name, getattr(shelf, name))
    expected = ["name", "main", "by_class", "row"]
    for primitive in (shelf.obj_to_primitive(), shelf.obj_to_primitive("1.2")):
        assert primitive["versioned_object.changes"] == expected
    assert read(shelf.obj_to_primitive()).obj_what_changed() == set(expected)


def test_changes_of_children_travel_too(shelf: Shelf) -> None:
    shelf.labels[0].inner[0].text = "new"
    again = read(shelf.obj_to_primitive())
    assert again.obj_what_changed() == {"labels"}
    assert again.labels[0].inner[0].obj_what_changed() == {"text"}
    assert again.labels[1].obj_what_changed() == set()


def test_a_change_that_an_older_version_lacks_does_not_travel() -> None:
    made = label("a")
    made.obj_reset_changes()
    made.inner = ()
    assert made.obj_to_primitive()["versioned_object.changes"] == ["inner"]
    assert "versioned_object.changes" not in made.obj_to_primitive("1.0")
    shelf = Shelf(labels=[made]).obj_to_primitive("1.1")
    (old,) = shelf["versioned_object.data"]["labels"]
    assert "versioned_object.changes" not in old


def test_an_unknown_change_on_the_wire_is_forgotten() -> None:
    primitive = IntegerInventory(8).obj_to_primitive()
    primitive["versioned_object.changes"] = ["used", "colour"]
    assert read(primitive).obj_what_changed() == {"used"}
