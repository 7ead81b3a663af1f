"""No object changes its wire form without a new version.

``PINNED`` holds a fingerprint of every class: its version, then a digest of its fields. When the
test fails, the form of an object has changed. If the change is intended: raise ``VERSION``,
describe the change above it, teach ``obj_make_compatible`` the older form, pin the older form in
``test_primitives.py``, and put the fingerprint that the failure shows here. Until 0.1.0 is tagged
nothing was ever released: the fingerprint alone changes. Older versions are proven with objects of
the tests (``versions.py``).

The library's own fingerprint is blind to what ``extra`` adds: the name of a nested object, the
type of elements, read-only, bounds and patterns.
"""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path
from typing import Any

import pytest

import resource_objects
from resource_objects import base, fields
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields

pytestmark = pytest.mark.law(10)

#: Imported late: it would import the library before our silencer of its warnings.
fixture: Any = importlib.import_module("oslo_versionedobjects.fixture")

PINNED: dict[str, str] = {
    "resource_objects.Aggregate": "1.0-96e64bae74fb0749282831cee69ab3de",
    "resource_objects.Allocation": "1.0-3074d4e38cbff05a673fa88bb78ae520",
    "resource_objects.Amount": "1.0-579a264ce51709307e3410254be5aebd",
    "resource_objects.Amounts": "1.0-2de094dc2862a84680e2d41ae94b0211",
    "resource_objects.Candidate": "1.0-6b5735fd9f3038ad6d2ff0989c9efecd",
    "resource_objects.CellUsage": "1.0-140470fc4b46dcdf9cfe44ef0a19b553",
    "resource_objects.Claim": "1.0-fe83da1a1e711276238d14660c7866ec",
    "resource_objects.ComputeNode": "1.0-2d19057396c4c8c0e9979a8c9ada6147",
    "resource_objects.Consumer": "1.0-78f6565d09db53f637c04536f8f187f6",
    "resource_objects.Device": "1.0-2c941ded6c17ae7c681abc36a70f5305",
    "resource_objects.DevicePool": "1.0-8f793ac59ddade4bb4ba4b335d41aead",
    "resource_objects.DeviceRequest": "1.0-de1b4767d808bca084ea172e4a7b2fbf",
    "resource_objects.DeviceSpec": "1.0-6aaf0b75e635c1293a9a7b2f06edfcfc",
    "resource_objects.DeviceUse": "1.0-af2f7768451d805f544f72fad756cbf7",
    "resource_objects.Disabled": "1.0-f71251d48658c8e8d1fec03dc1eaa1bc",
    "resource_objects.GuestCell": "1.0-ee055bb3786dd4f4077453f778e9ea9a",
    "resource_objects.HostCell": "1.0-b615afcebb43b34f2aa35f85adca7e69",
    "resource_objects.IntegerAmount": "1.0-37d1a0a3ffe1018525b904c46d5a96de",
    "resource_objects.IntegerInventory": "1.0-ef8230e02ecee15a720bc4eb922d6cd3",
    "resource_objects.IntegerResource": "1.0-58583ba4f941e08ab0179ccfc8c775ae",
    "resource_objects.Inventories": "1.0-affd51e02eadfcef2f006ff40204a156",
    "resource_objects.Inventory": "1.0-ad5a4d8880acb554557dcd8b5782a43b",
    "resource_objects.Limits": "1.0-884faeaf5df70aaab5bfce897a5dd940",
    "resource_objects.NUMATopologyAmount": "1.0-7ed7033c56be895f0a83e2fd63a84e54",
    "resource_objects.NUMATopologyInventory": "1.0-4f1af213a89de4dce06a27f733a7e8f6",
    "resource_objects.NUMATopologyLimit": "1.0-e2c15ab8544917e9c5e2b7c6a4300997",
    "resource_objects.NUMATopologyResource": "1.0-8f082e49168802a79ace11f0d1b358b4",
    "resource_objects.PCIAmount": "1.0-cc044d765fd544b1a1cdd2f0019f4cd4",
    "resource_objects.PCIInventory": "1.0-ac460158b265c8a9c08e167a1a6d212d",
    "resource_objects.PCIResource": "1.0-4535b7efe87539101af6bdea4fee3d34",
    "resource_objects.PagePool": "1.0-195d6f5af5487f7e6735b0c9a672c46c",
    "resource_objects.PlacedCell": "1.0-9fe9fe2d22223bd3c1b2ef4039d2da8d",
    "resource_objects.PlacedDevice": "1.0-de636e67b143d0044516eaf0260afac9",
    "resource_objects.Provider": "1.0-91fc34616d05f249a36a49452e9a13a5",
    "resource_objects.Request": "1.0-43a3d9f0273fc0c80794d7d91a7faafc",
    "resource_objects.RequestGroup": "1.0-a536a8e6a63d838ba169d618a6b68b5f",
    "resource_objects.Resource": "1.0-6f5c0ed49cc0248b39bf8f3fc557f841",
    "resource_objects.ResourceClass": "1.0-ce5f63d7464fc00c09f8bf50081cc96c",
    "resource_objects.Share": "1.0-3584060b1c25508487b0f577012dfd1a",
    "resource_objects.Trait": "1.0-2e36b55f4284b588bf4f9e0f391e84ad",
}

PACKAGE = Path(resource_objects.__file__).parent


def describe(thing: Any) -> Any:
    """Return a field, field type or default as text that is the same everywhere."""
    if isinstance(
        thing, ovo_fields.Field
    ):  # the arguments of its constructor do not affect the wire
        return describe(thing._type), thing.nullable, describe(thing.default), thing.read_only
    if isinstance(thing, ovo_fields.FieldType):
        own_part = sorted((key.lstrip("_"), describe(value)) for key, value in vars(thing).items())
        return (type(thing).__name__, own_part)
    if callable(thing):
        return thing.__name__
    if isinstance(thing, frozenset | set):
        return sorted(map(describe, thing))
    return repr(thing)


def extra(cls: type[Any]) -> tuple[Any, ...]:
    """Return the facts that the library's fingerprint omits."""
    return (
        cls.obj_name(),
        [(name, describe(field)) for name, field in sorted(cls.fields.items())],
        sorted(getattr(cls, "CHILD_VERSIONS", {}).items()),
        getattr(cls, "PARTIAL", False),
    )


def fingerprints(classes: dict[str, Any]) -> dict[str, str]:
    checker = fixture.ObjectVersionChecker({name: [cls] for name, cls in classes.items()})
    return checker.get_hashes(extra_data_func=extra)


@functools.cache
def modules_with_objects() -> dict[str, list[str]]:
    """Return ``{module: names of the classes it registers}``, read from the source."""
    result: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        classes = [
            node.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef)
            and {"base.register"} & set(map(ast.unparse, node.decorator_list))
        ]
        if classes:
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            result[".".join(parts)] = classes
    return result


def classes_of_ours() -> dict[str, Any]:
    """Return ``{wire name: class}`` of every object that exists in the source."""
    return {
        f"resource_objects.{name}": getattr(importlib.import_module(module), name)
        for module, classes in modules_with_objects().items()
        for name in classes
    }


def test_every_object_has_the_pinned_fingerprint() -> None:
    result = fingerprints(classes_of_ours())
    unpinned = sorted(result.keys() - PINNED.keys())
    removed = sorted(PINNED.keys() - result.keys())
    changed = sorted(name for name in result.keys() & PINNED.keys() if result[name] != PINNED[name])
    how = "".join(f"\n    {name!r}: {result[name]!r}," for name in [*unpinned, *changed])
    assert not unpinned, f"new objects: pin their fingerprints in PINNED:{how}"
    assert not changed, f"changed: raise VERSION, see the head of {__file__}, then pin:{how}"
    assert not removed, f"these objects are gone, and with them what others still send: {removed}"


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
    ("item", "other"),
    [
        (ovo_fields.ObjectField("A"), ovo_fields.ObjectField("B")),
        (ovo_fields.ObjectField("A"), ovo_fields.ObjectField("A", subclasses=True)),
        (ovo_fields.ListOfIntegersField(), ovo_fields.ListOfStringsField()),
        (ovo_fields.IntegerField(), ovo_fields.IntegerField(read_only=True)),
        (fields.integer(), fields.integer(read_only=True)),
        (fields.integer(0), fields.integer(1)),
        (fields.nested("A"), fields.nested("B")),
        (fields.tuple_of("A"), fields.tuple_of("B")),
        (fields.map_of("A"), fields.map_of("B")),
        (fields.resource_class(), fields.provider_name()),
        (fields.text(), fields.provider_name()),
    ],
)
def test_a_blind_spot_of_the_library_is_seen_by_ours(item: Any, other: Any) -> None:
    (plain_one, our_one), (plain_other, our_other) = pair(field=item), pair(field=other)
    assert plain_one == plain_other
    assert our_one != our_other
    assert pair(field=item)[1] == our_one


def test_the_wire_name_and_the_table_of_children_are_part_of_the_fingerprint() -> None:
    class Tried(base.ResourceObject, frozen=True):
        WIRE_PREFIX = "test_fingerprints"

    class Elsewhere:
        class Tried(base.ResourceObject, frozen=True):
            WIRE_PREFIX = "test_fingerprints_elsewhere"

    class Tabled:
        class Tried(base.ResourceObject, frozen=True):
            WIRE_PREFIX = "test_fingerprints"
            CHILD_VERSIONS = {"x": [("1.0", "1.0")]}

    seen = {fingerprints({"T": cls})["T"] for cls in (Tried, Elsewhere.Tried, Tabled.Tried)}
    assert len(seen) == 3
