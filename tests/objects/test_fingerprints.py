"""No object changes its wire form without a new version.

``PINNED`` holds a fingerprint of every class: its version, then a digest of its fields. When the
test fails, the form of an object has changed. If that was meant: raise ``VERSION``, say above it
what changed, teach ``obj_make_compatible`` to say the older form, pin the older form in
``test_primitives.py``, and put the fingerprint that the failure shows here. Until 0.1.0 is tagged
nothing was ever released: the fingerprint alone changes. What is said in older versions is proven
with objects of the tests (``versions.py``).

The library's own fingerprint is blind to what ``extra`` adds: the name of a nested object, the
type of elements, read-only, bounds and patterns.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import resource_objects
from resource_objects import base, fields
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields

pytestmark = pytest.mark.law(10)

#: Imported late: by itself it would import the library before our silencer of its warnings has.
fixture: Any = importlib.import_module("oslo_versionedobjects.fixture")

PINNED: dict[str, str] = {
    "resource_objects.Aggregate": "1.0-a7a0360b1aee05be817d1e1c38b93a44",
    "resource_objects.Allocation": "1.0-f4e6b26b508c4be09ed90807d8226949",
    "resource_objects.Amount": "1.0-579a264ce51709307e3410254be5aebd",
    "resource_objects.Amounts": "1.0-50642b813a984a283124f664bd367c66",
    "resource_objects.Candidate": "1.0-dbf96517af52ea8cbdf909d0b0a26a43",
    "resource_objects.CellUsage": "1.0-b47db1bcb9a52e98ff5beb13583c5f1b",
    "resource_objects.Claim": "1.0-02342a4c85c68938d847a0349e2756a7",
    "resource_objects.ComputeNode": "1.0-32dac9952307a7714236ce708fdbde00",
    "resource_objects.Consumer": "1.0-f674c3333d92abba37f4c15cdb32b59b",
    "resource_objects.Device": "1.0-4622c51b6f08630a903c7cd8b9cf84d9",
    "resource_objects.DevicePool": "1.0-0e4bd47e43286fde3a8899154a9dafcf",
    "resource_objects.DeviceRequest": "1.0-f8b39ce6ea503843642cfde1bbc2f824",
    "resource_objects.DeviceSpec": "1.0-2b2f6fe1e0a19295f3cf0de4639e117c",
    "resource_objects.DeviceUse": "1.0-2be81d39e567895bdb2f7caa3f092645",
    "resource_objects.GuestCell": "1.0-79743c010eda17cdaf10d44746b9bac9",
    "resource_objects.HostCell": "1.0-e95ca7b2891b7eb3b3ab1b70bbf3e611",
    "resource_objects.IntegerAmount": "1.0-48cf6af49be08f04229dcf9004f698bb",
    "resource_objects.IntegerInventory": "1.0-87d40809adb34f7bb5f77ceebfdbd9f0",
    "resource_objects.IntegerResource": "1.0-06bda4c6fb261a6edb28eb98f28506df",
    "resource_objects.Inventories": "1.0-4fbb845ff60e9d8ca6e938c6b07ca6e6",
    "resource_objects.Inventory": "1.0-48eed1c6f826bab0ae671f947f2f2f08",
    "resource_objects.Limits": "1.0-4b906cba80dc42ddf98dc19f946b91b3",
    "resource_objects.NUMATopologyAmount": "1.0-40817ef833c222e57f42695ea7332bb8",
    "resource_objects.NUMATopologyInventory": "1.0-fb11b5e676f0ec5e183aa3e1d12fd7c9",
    "resource_objects.NUMATopologyLimit": "1.0-4d766b0b0a430920ee72c31e25da692e",
    "resource_objects.NUMATopologyResource": "1.0-53895bd98e42f845efbd28f96a9bcddb",
    "resource_objects.PCIAmount": "1.0-a1f1d09d00f5cf44eea8516d8f9e8062",
    "resource_objects.PCIInventory": "1.0-62ff415e74ba3c950a3df206ad634904",
    "resource_objects.PCIResource": "1.0-eca140c0b7815878ff9d97f57bb42693",
    "resource_objects.PagePool": "1.0-128468d229a53dbe4adb563dea738c68",
    "resource_objects.PlacedCell": "1.0-3a9fb9755316c91f8c99677eece7811f",
    "resource_objects.PlacedDevice": "1.0-d9f5db2b4ef8bb49b68338601b53216b",
    "resource_objects.Provider": "1.0-099d15c6ccebb6010bd1ba9f830cea04",
    "resource_objects.Request": "1.0-eae9c75c41541c2ce30c6a265e411301",
    "resource_objects.RequestGroup": "1.0-012d23212d89d8137ce69428e795ee74",
    "resource_objects.Resource": "1.0-38fc104ba440c5bc68ac3ec8d6e60f1a",
    "resource_objects.ResourceClass": "1.0-7444f336a8d98fc17f91aac69a778866",
    "resource_objects.Share": "1.0-8de73879692aa8a7f2fe4f808b84a283",
    "resource_objects.SlotResource": "1.0-9258e79e129f3f681d391d239f906ef2",
    "resource_objects.Trait": "1.0-606b00d656efd60bc3796648e9e4a7bd",
}

PACKAGE = Path(resource_objects.__file__).parent


def describe(thing: Any) -> Any:
    """Return what a field, field type or default says, so that it reads the same everywhere."""
    if isinstance(thing, ovo_fields.Field | ovo_fields.FieldType):
        own = sorted((key.lstrip("_"), describe(value)) for key, value in vars(thing).items())
        return (type(thing).__name__, own)
    if callable(thing):
        return thing.__name__
    if isinstance(thing, frozenset | set):
        return sorted(map(describe, thing))
    return repr(thing)


def extra(cls: type[Any]) -> tuple[Any, ...]:
    """Return what the library's fingerprint leaves out."""
    return (
        cls.obj_name(),
        [(name, describe(field)) for name, field in sorted(cls.fields.items())],
        sorted(getattr(cls, "CHILD_VERSIONS", {}).items()),
        getattr(cls, "PARTIAL", False),
    )


def fingerprints(classes: dict[str, Any]) -> dict[str, str]:
    checker = fixture.ObjectVersionChecker({name: [cls] for name, cls in classes.items()})
    return checker.get_hashes(extra_data_func=extra)


def modules_with_objects() -> dict[str, list[str]]:
    """Return ``{module: names of the classes it registers}``, as the source says."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        classes = [
            node.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef)
            and {"base.register", "base.register_record"}
            & set(map(ast.unparse, node.decorator_list))
        ]
        if classes:
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            found[".".join(parts)] = classes
    return found


def classes_of_ours() -> dict[str, Any]:
    """Return ``{wire name: class}`` of every object that exists in the source."""
    return {
        f"resource_objects.{name}": getattr(importlib.import_module(module), name)
        for module, classes in modules_with_objects().items()
        for name in classes
    }


def test_every_object_has_the_pinned_fingerprint() -> None:
    found = fingerprints(classes_of_ours())
    unpinned = sorted(found.keys() - PINNED.keys())
    gone = sorted(PINNED.keys() - found.keys())
    changed = sorted(name for name in found.keys() & PINNED.keys() if found[name] != PINNED[name])
    how = "".join(f"\n    {name!r}: {found[name]!r}," for name in [*unpinned, *changed])
    assert not unpinned, f"new objects: pin their fingerprints in PINNED:{how}"
    assert not changed, f"changed: raise VERSION, see the head of {__file__}, then pin:{how}"
    assert not gone, f"these objects are gone, and with them what others still send: {gone}"


def test_a_pinned_fingerprint_begins_with_the_version_of_its_class() -> None:
    classes = classes_of_ours()
    versions = {name: pin.partition("-")[0] for name, pin in PINNED.items() if name in classes}
    assert versions == {name: classes[name].VERSION for name in versions}


def test_every_version_is_explained_above_it() -> None:
    for module, classes in modules_with_objects().items():
        source = (PACKAGE.parent / Path(*module.split("."))).with_suffix(".py").read_text()
        assert source.count("# Version 1.0: Initial version") == len(classes), module


def test_registering_all_finds_every_object() -> None:
    assert base.object_classes() == classes_of_ours()


def test_the_manifest_names_every_object_with_its_version() -> None:
    manifest = base.version_manifest()
    assert {
        name: cls.VERSION for name, cls in classes_of_ours().items()
    }.items() <= manifest.items()


# --- the blind spots ---


def pair(**declared: Any) -> tuple[str, str]:
    """Return the plain and our fingerprint of an object with these fields."""
    cls = type("Tried", (ovo.VersionedObject,), {"fields": declared})
    checker = fixture.ObjectVersionChecker({"Tried": [cls]})
    return checker.get_hashes()["Tried"], checker.get_hashes(extra_data_func=extra)["Tried"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ovo_fields.ObjectField("A"), ovo_fields.ObjectField("B")),
        (ovo_fields.ObjectField("A"), ovo_fields.ObjectField("A", subclasses=True)),
        (ovo_fields.ListOfIntegersField(), ovo_fields.ListOfStringsField()),
        (ovo_fields.IntegerField(), ovo_fields.IntegerField(read_only=True)),
        (fields.IntegerField(), fields.IntegerField(read_only=True)),
        (fields.IntegerField(0), fields.IntegerField(1)),
        (fields.ObjectField("A"), fields.ObjectField("B")),
        (fields.TupleOfObjectsField("A"), fields.TupleOfObjectsField("B")),
        (fields.MapOfObjectsField("A"), fields.MapOfObjectsField("B")),
        (fields.ResourceClassField(), fields.NameField()),
        (fields.TextField(), fields.NameField()),
    ],
)
def test_a_blind_spot_of_the_library_is_seen_by_ours(one: Any, other: Any) -> None:
    (plain_one, our_one), (plain_other, our_other) = pair(field=one), pair(field=other)
    assert plain_one == plain_other
    assert our_one != our_other
    assert pair(field=one)[1] == our_one


def test_the_wire_name_and_the_table_of_children_are_part_of_the_fingerprint() -> None:
    class Tried(base.Value):
        WIRE_PREFIX = "test_fingerprints"

    class Elsewhere:
        class Tried(base.Value):
            WIRE_PREFIX = "test_fingerprints_elsewhere"

    class Tabled:
        class Tried(base.Value):
            WIRE_PREFIX = "test_fingerprints"
            CHILD_VERSIONS = {"x": [("1.0", "1.0")]}

    seen = {fingerprints({"T": cls})["T"] for cls in (Tried, Elsewhere.Tried, Tabled.Tried)}
    assert len(seen) == 3
