"""Older versions: written where they can express the value, else refused; read with defaults."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions, fields
from resource_objects._ovo import exception as ovo_exception
from resource_objects.resources import Amounts, IntegerAmount, IntegerInventory, Inventories
from resource_objects.testing.refusals import raises_code
from tests.objects.versions import (
    PREFIX,
    V10,
    V11,
    V12,
    Disk,
    Label,
    Medium,
    Shelf,
    Tape,
    V10Label,
    data_of,
    process_that_knows,
    read,
    version_of,
)

pytestmark = pytest.mark.law(10)

DISK = f"{PREFIX}.Disk"


@base.register
class Loose(base.ResourceObject, frozen=True):
    """A parent without a table of its children's versions."""

    WIRE_PREFIX = "test_backports"
    VERSION = "1.1"
    fields = {
        "held": fields.nested(f"{PREFIX}.Medium", nullable=True, default=None),
        "shelf": fields.nested(f"{PREFIX}.Shelf", nullable=True, default=None),
    }


def children(primitive: dict[str, Any]) -> dict[str, set[tuple[str, str]]]:
    """Return the kinds and versions of the objects in each field of a primitive."""

    def result(value: Any) -> set[tuple[str, str]]:
        if isinstance(value, dict) and "versioned_object.name" in value:
            kind = value["versioned_object.name"].removeprefix(f"{PREFIX}.")
            return {(kind, version_of(value)), *result(data_of(value))}
        items = value.values() if isinstance(value, dict) else value
        is_container = isinstance(value, dict | list)
        return set().union(*map(result, items)) if is_container else set()

    return {name: kinds for name, value in data_of(primitive).items() if (kinds := result(value))}


def full_shelf(disk: Disk, tape: Tape) -> Shelf:
    """Return a shelf that holds both kinds in every way an object can hold others."""
    return Shelf(
        main=disk,
        by_class={"CUSTOM_A": tape, "CUSTOM_B": disk},
        row=[disk, tape],
        stock_list=[tape, disk],
        stock_dict={"both": [disk, tape], "none": []},
    )


# --- one object ---


@pytest.mark.parametrize(
    ("version", "data"),
    [
        ("2.0", {"size_mb": 2048, "rpm": 7200, "encrypted": False}),
        ("1.2", {"size_gb": 2, "rpm": 7200, "encrypted": False}),
        ("1.1", {"size_gb": 2, "rpm": 7200}),
        ("1.0", {"size_gb": 2}),
    ],
)
def test_every_older_version_is_reachable_newest_to_oldest(
    version: str, data: dict[str, Any]
) -> None:
    primitive = Disk(size_mb=2048, rpm=7200).obj_to_primitive(version)
    assert version_of(primitive) == version
    assert data_of(primitive) == data


@pytest.mark.parametrize(
    ("disk", "version", "reason"),
    [
        (Disk(size_mb=1025), "1.2", "not whole GB"),
        (Disk(size_mb=1024, encrypted=True), "1.1", "it is encrypted"),
        (Disk(size_mb=1024, encrypted=True), "1.0", "it is encrypted"),
        (Disk(size_mb=1024), "0.9", "the first version is 1.0"),
    ],
)
def test_what_an_older_version_cannot_say_is_refused(disk: Disk, version: str, reason: str) -> None:
    before = disk.obj_to_primitive()
    with pytest.raises(exceptions.CannotDowngrade) as caught:
        disk.obj_to_primitive(version)
    error = caught.value
    assert (error.objname, error.version, error.reason) == (f"{PREFIX}.Disk", version, reason)
    assert str(error) == f"{PREFIX}.Disk cannot be expressed in version {version}: {reason}"
    assert disk.obj_to_primitive() == before


def test_a_version_that_is_newer_or_none_is_refused() -> None:
    with pytest.raises(exceptions.UnsupportedVersion, match=r"2\.1 of test_versions\.Disk"):
        Disk(size_mb=1).obj_to_primitive("2.1")
    for version in ("", "x", "1.x", "one.two", 1.0, ()):
        with raises_code("InvalidPrimitive", match="version"):
            Disk(size_mb=1).obj_to_primitive(version)  # type: ignore[arg-type]
    with raises_code("InvalidPrimitive", match="version"):
        Shelf(main=Disk(size_mb=1024)).obj_to_primitive("1.2", {f"{PREFIX}.Disk": "old"})


# --- children, by the parent's own table ---


@pytest.mark.parametrize(
    ("version", "disk", "tape"), [("1.2", "2.0", "1.1"), ("1.1", "1.2", "1.0")]
)
def test_children_of_every_kind_in_every_container_follow_the_table(
    version: str, disk: str, tape: str
) -> None:
    shelf = full_shelf(Disk(size_mb=1024), Tape(length=5, label="x"))
    both = {("Disk", disk), ("Tape", tape)}
    assert children(shelf.obj_to_primitive(version)) == {
        "main": {("Disk", disk)},
        "by_class": both,
        "row": both,
        "stock_list": both,
        "stock_dict": both,
    }


def test_a_child_that_the_older_parent_did_not_know_is_refused() -> None:
    assert children(Shelf(main=Disk(size_mb=1024)).obj_to_primitive("1.0")) == {
        "main": {("Disk", "1.0")}
    }
    with pytest.raises(exceptions.CannotDowngrade, match=r"it did not know test_versions\.Tape"):
        Shelf(row=[Tape(length=1)]).obj_to_primitive("1.0")


def test_a_child_that_says_too_much_refuses_its_parent() -> None:
    shelf = Shelf(stock_dict={"a": [Disk(size_mb=1024, encrypted=True)]})
    with pytest.raises(exceptions.CannotDowngrade, match="it is encrypted"):
        shelf.obj_to_primitive("1.0")
    assert version_of(shelf.obj_to_primitive("1.1")) == "1.1"


def test_a_kind_without_a_rule_passes_only_while_it_has_one_version() -> None:
    assert version_of(Loose().obj_to_primitive("1.0")) == "1.0"
    with pytest.raises(exceptions.CannotDowngrade, match=r"no rule for its child .*Disk 2\.0"):
        Loose(held=Disk(size_mb=1024)).obj_to_primitive("1.0")


# --- children, by the receiver's manifest ---


def test_a_manifest_decides_by_the_concrete_kind() -> None:
    shelf = full_shelf(Disk(size_mb=1024), Tape(length=5, label="x"))
    manifest = {
        f"{PREFIX}.Shelf": "1.2",
        f"{PREFIX}.Medium": "1.0",
        f"{PREFIX}.Disk": "1.0",
        f"{PREFIX}.Tape": "1.1",
    }
    both = {("Disk", "1.0"), ("Tape", "1.1")}
    assert children(shelf.obj_to_primitive("1.2", manifest)) == {
        "main": {("Disk", "1.0")},
        "by_class": both,
        "row": both,
        "stock_list": both,
        "stock_dict": both,
    }


def test_what_a_manifest_does_not_name_follows_the_table() -> None:
    shelf = Shelf(main=Disk(size_mb=1024), row=[Tape(length=1)])
    result = children(shelf.obj_to_primitive("1.1", {f"{PREFIX}.Disk": "1.1"}))
    assert result == {"main": {("Disk", "1.1")}, "row": {("Tape", "1.0")}}


def test_a_manifest_reaches_below_a_child_that_it_leaves_as_it_is() -> None:
    tower = Label(text="a", inner=[Label(text="b")])
    manifest = {f"{PREFIX}.Label": "9.9", f"{PREFIX}.Shelf": "1.2"}
    shelf = Shelf(labels=[tower])
    assert children(shelf.obj_to_primitive("1.2", manifest))["labels"] == {("Label", "1.1")}
    loose = Loose(shelf=Shelf(main=Disk(size_mb=1024)))
    result = children(loose.obj_to_primitive("1.1", {f"{PREFIX}.Shelf": "9.0", DISK: "1.0"}))
    assert result == {"shelf": {("Shelf", "1.2"), ("Disk", "1.0")}}


def test_the_manifest_of_this_process_changes_nothing() -> None:
    shelf = full_shelf(Disk(size_mb=1025, encrypted=True), Tape(length=5, label="x"))
    manifest = base._known_versions()
    assert manifest[DISK] == "2.0"
    assert manifest["resource_objects.IntegerAmount"] == IntegerAmount.VERSION
    assert "ComputeNode" not in manifest
    assert shelf.obj_to_primitive("1.2", manifest) == shelf.obj_to_primitive()


@pytest.mark.parametrize(
    "ours", [Amounts("VCPU=2,MEMORY_MB=4"), Inventories("VCPU=8:used=3"), IntegerInventory(3)]
)
def test_our_objects_are_the_same_in_their_own_version_by_any_way(ours: Any) -> None:
    manifest = base._known_versions()
    assert ours.obj_to_primitive() == ours.obj_to_primitive("1.0")
    assert ours.obj_to_primitive() == ours.obj_to_primitive("1.0", manifest)


# --- reading ---


def test_an_older_primitive_is_read_as_the_present_version_with_defaults() -> None:
    old = V10.Disk(size_gb=4).obj_to_primitive()
    with process_that_knows(V12.Disk):
        disk = read(old)
    assert type(disk) is V12.Disk
    assert disk.VERSION == "1.2"
    assert disk.obj_to_primitive() == V12.Disk(size_gb=4).obj_to_primitive()
    assert data_of(disk.obj_to_primitive()) == {"size_gb": 4, "rpm": None, "encrypted": False}


def test_an_older_primitive_is_read_by_the_class_of_its_version_where_that_is_stored() -> None:
    primitive = Disk(size_mb=4096, rpm=5).obj_to_primitive("1.1")
    assert read(primitive) == V11.Disk(size_gb=4, rpm=5)


@given(st.integers(1, 5), st.none() | st.integers(0, 9), st.booleans())
def test_an_old_process_reads_what_is_specified_in_its_version(
    size: int, rpm: int | None, encrypted: bool
) -> None:
    disk = Disk(size_mb=size * 1024, rpm=rpm, encrypted=encrypted)
    for old, expected in (
        (V12.Disk, V12.Disk(size_gb=size, rpm=rpm, encrypted=encrypted)),
        (V11.Disk, V11.Disk(size_gb=size, rpm=rpm)),
        (V10.Disk, V10.Disk(size_gb=size)),
    ):
        try:
            primitive = disk.obj_to_primitive(old.VERSION)
        except exceptions.CannotDowngrade:
            assert encrypted
            assert old is not V12.Disk
            continue
        with process_that_knows(Medium, old):
            assert read(primitive) == expected


@pytest.mark.parametrize(
    ("available", "objver", "supported"),
    [(V12.Disk, "2.0", "1.2"), (V10.Disk, "2.0", "1.0")],
)
def test_a_newer_primitive_is_refused(available: Any, objver: str, supported: str) -> None:
    primitive = Disk(size_mb=1).obj_to_primitive()
    with process_that_knows(available):
        with pytest.raises(base.IncompatibleVersion) as caught:
            read(primitive)
        assert isinstance(caught.value, exceptions.UnsupportedVersion)
        assert isinstance(caught.value, ovo_exception.IncompatibleObjectVersion)
        assert caught.value.kwargs["supported"] == supported
        assert objver in str(caught.value)


def test_a_newer_child_is_refused_wherever_it_is() -> None:
    for shelf in (
        Shelf(main=Tape(length=1)),
        Shelf(by_class={"VCPU": Tape(length=1)}),
        Shelf(row=[Tape(length=1)]),
        Shelf(stock_list=[Tape(length=1)]),
        Shelf(stock_dict={"a": [Tape(length=1)]}),
    ):
        primitive = shelf.obj_to_primitive()
        with process_that_knows(Shelf, V10.Tape), pytest.raises(base.IncompatibleVersion):
            read(primitive)


def test_downgrading_and_reading_touch_neither_object_nor_primitive() -> None:
    shelf = Shelf(main=Disk(size_mb=1024), labels=[Label(text="a")])
    before = shelf.obj_to_primitive()
    primitive = shelf.obj_to_primitive("1.1")
    stored = copy.deepcopy(primitive)
    with process_that_knows(Shelf, V12.Disk, V10Label.Label):
        read(primitive)
    assert primitive == stored
    assert shelf.obj_to_primitive() == before
