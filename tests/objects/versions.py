"""Test-only objects in several versions: they prove machinery that no class of ours needs yet.

A ``Shelf`` (an entity) holds media (values, of the kinds ``Disk`` and ``Tape``) in every way an
object can hold others: alone, in our frozen map and tuple, in the library's own list and dict.

========  ==========================================================================================
Disk 1.0  ``size_gb``
Disk 1.1  adds ``rpm``, which is only information: older versions drop it
Disk 1.2  adds ``encrypted``, which older versions cannot express
Disk 2.0  has ``size_mb`` instead of ``size_gb``
Tape 1.0  ``length``
Tape 1.1  adds ``label``, which is only information
Shelf     1.0 carried disks 1.0 and no tapes, 1.1 disks 1.2 and tapes 1.0, 1.2 disks 2.0 and
          tapes 1.1
========  ==========================================================================================

The class of an older version is in a holder named after it, so that it may bear the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from oslo_utils import versionutils

from resource_objects import base, exceptions, fields
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields

PREFIX = "test_versions"


def below(target_version: str, version: str) -> bool:
    """Return whether a target version is older than ``version``."""
    expected = versionutils.convert_version_to_tuple(target_version)
    return expected < versionutils.convert_version_to_tuple(version)


@base.register
class Medium(base.ResourceObject, frozen=True):
    """The common fields of disks and tapes."""

    WIRE_PREFIX = PREFIX
    VERSION = "1.0"


class V10:
    """Objects of version 1.0."""

    @base.register
    class Disk(Medium):
        VERSION = "1.0"
        fields = {"size_gb": fields.integer(1)}

    @base.register
    class Tape(Medium):
        VERSION = "1.0"
        fields = {"length": fields.integer(1)}


class V11:
    """Objects of version 1.1."""

    @base.register
    class Disk(Medium):
        VERSION = "1.1"
        fields = {
            "size_gb": fields.integer(1),
            "rpm": fields.integer(0, nullable=True, default=None),
        }


class V12:
    """Objects of version 1.2."""

    @base.register
    class Disk(Medium):
        VERSION = "1.2"
        fields = {
            **V11.Disk.fields,
            "encrypted": fields.boolean(default=False),
        }


@base.register
class Disk(Medium):
    # Version 1.0: Initial version
    # Version 1.1: Add rpm
    # Version 1.2: Add encrypted
    # Version 2.0: Say size_mb instead of size_gb
    VERSION = "2.0"

    fields = {
        "size_mb": fields.integer(1),
        "rpm": fields.integer(0, nullable=True, default=None),
        "encrypted": fields.boolean(default=False),
    }
    size_mb: int
    rpm: int | None
    encrypted: bool

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        if below(target_version, "2.0"):
            gigabytes, remainder = divmod(primitive.pop("size_mb"), 1024)
            if remainder:
                raise exceptions.CannotDowngrade(self.obj_name(), target_version, "not whole GB")
            primitive["size_gb"] = gigabytes
        if below(target_version, "1.2") and primitive.pop("encrypted", False):
            raise exceptions.CannotDowngrade(self.obj_name(), target_version, "it is encrypted")
        if below(target_version, "1.1"):
            primitive.pop("rpm", None)
        super().obj_make_compatible(primitive, target_version)


@base.register
class Tape(Medium):
    # Version 1.0: Initial version
    # Version 1.1: Add label
    VERSION = "1.1"

    fields = {
        "length": fields.integer(1),
        "label": fields.text(default=""),
    }
    length: int
    label: str

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        if below(target_version, "1.1"):
            primitive.pop("label", None)
        super().obj_make_compatible(primitive, target_version)


class _ListOfMedia(ovo_fields.AutoTypedField):  # type: ignore[type-arg]
    AUTO_TYPE = ovo_fields.List(ovo_fields.Object(f"{PREFIX}.Medium", subclasses=True))


class _DictOfListsOfMedia(ovo_fields.AutoTypedField):  # type: ignore[type-arg]
    AUTO_TYPE = ovo_fields.Dict(
        ovo_fields.List(ovo_fields.Object(f"{PREFIX}.Medium", subclasses=True))
    )


@base.register
class Shelf(base.ResourceObject):
    WIRE_PREFIX = PREFIX
    # Version 1.0: Initial version
    # Version 1.1: Disk 1.2, Tape 1.0
    # Version 1.2: Disk 2.0, Tape 1.1
    VERSION = "1.2"
    CHILD_VERSIONS = {
        f"{PREFIX}.Disk": [("1.0", "1.0"), ("1.1", "1.2"), ("1.2", "2.0")],
        f"{PREFIX}.Tape": [("1.1", "1.0"), ("1.2", "1.1")],
        f"{PREFIX}.Medium": [("1.0", "1.0")],
        f"{PREFIX}.Label": [("1.0", "1.0"), ("1.2", "1.1")],
    }

    fields = {
        "name": fields.text(default="shelf"),
        "main": fields.nested(f"{PREFIX}.Medium", nullable=True, default=None),
        "by_class": fields.map_of(f"{PREFIX}.Medium", default={}),
        "row": fields.tuple_of(f"{PREFIX}.Medium", default=()),
        "stock_list": _ListOfMedia(default=[]),
        "stock_dict": _DictOfListsOfMedia(default={}),
        "labels": fields.tuple_of(f"{PREFIX}.Label", default=()),
    }
    name: str
    main: Medium | None
    by_class: dict[str, Medium]
    row: tuple[Medium, ...]
    stock_list: list[Medium]
    stock_dict: dict[str, list[Medium]]
    labels: tuple[Label, ...]


class V10Label:
    """The label of version 1.0."""

    @base.register
    class Label(base.ResourceObject):
        WIRE_PREFIX = PREFIX
        VERSION = "1.0"
        fields = {"text": fields.text(default="")}


@base.register
class Label(base.ResourceObject):
    """An entity that other entities hold: it can change inside them."""

    WIRE_PREFIX = PREFIX
    # Version 1.0: Initial version
    # Version 1.1: Add inner
    VERSION = "1.1"

    fields = {
        "text": fields.text(default=""),
        "inner": fields.tuple_of(f"{PREFIX}.Label", default=()),
    }
    text: str
    inner: tuple[Label, ...]

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        if below(target_version, "1.1") and primitive.pop("inner", None):
            raise exceptions.CannotDowngrade(self.obj_name(), target_version, "it has labels")
        super().obj_make_compatible(primitive, target_version)


@contextlib.contextmanager
def process_that_knows(*classes: type[ovo.VersionedObject]) -> Iterator[None]:
    """Act on the wire as a process in which only these test-only classes exist."""
    registered = ovo.VersionedObjectRegistry.obj_classes()
    before = dict(registered)
    for name in [name for name in registered if name.startswith(f"{PREFIX}.")]:
        del registered[name]
    for available in classes:
        registered[available.obj_name()].append(available)
    try:
        yield
    finally:
        registered.clear()
        registered.update(before)


def read(primitive: Any) -> Any:
    """Return the object of a primitive, of any kind."""
    return base.ResourceObject.obj_from_primitive(primitive)


def version_of(primitive: dict[str, Any]) -> str:
    """Return the version of a primitive."""
    version: str = primitive["versioned_object.version"]
    return version


def data_of(primitive: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a primitive."""
    data: dict[str, Any] = primitive["versioned_object.data"]
    return data
