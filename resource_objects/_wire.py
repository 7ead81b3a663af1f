"""Wire forms: reading their header, finding the class they are of, saying them in older versions.

A wire form (*primitive*) is the nested dict that oslo.versionedobjects makes of an object. All that
is done here is done to such dicts, not to objects, so that one may be rewritten for an older reader
by somebody who does not hold the object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from oslo_utils import versionutils

from resource_objects import exceptions
from resource_objects._ovo import base as ovo
from resource_objects._ovo import exception as ovo_exception

if TYPE_CHECKING:
    from resource_objects.base import ResourceObject

#: The version every object starts with.
FIRST = (1, 0)

_KEY = ovo.VersionedObject._obj_primitive_key
_NAME, _VERSION, _DATA, _CHANGES = (_KEY(part) for part in ("name", "version", "data", "changes"))


class IncompatibleVersion(exceptions.UnsupportedVersion, ovo_exception.IncompatibleObjectVersion):
    """A wire form in a version this library does not know.

    It is oslo.versionedobjects' own ``IncompatibleObjectVersion`` too, which its serializer
    catches to ask the sender's side for an older version.
    """


def version_tuple(version: str) -> tuple[int, ...]:
    """Return the two numbers of a version (a third one changes nothing that is said)."""
    try:
        major, minor, *_ = versionutils.convert_version_to_tuple(version)
    except (ValueError, TypeError, AttributeError) as error:
        raise exceptions.InvalidPrimitive("version", version, "a version like 1.0") from error
    return major, minor


def read_header(cls: type[ResourceObject], primitive: Any) -> tuple[str, str]:
    """Return (name, version) of a wire form, or raise if it is not shaped like one."""
    if not isinstance(primitive, dict):
        raise exceptions.InvalidPrimitive("primitive", primitive, f"the dict of a {cls.obj_name()}")
    for part, kind in (("name", str), ("namespace", str), ("version", str), ("data", dict)):
        key = cls._obj_primitive_key(part)
        if not isinstance(primitive.get(key), kind):
            raise exceptions.InvalidPrimitive(key, primitive.get(key), f"a {kind.__name__}")
    changes = primitive.get(cls._obj_primitive_key("changes"), [])
    if not isinstance(changes, list) or not all(isinstance(name, str) for name in changes):
        raise exceptions.InvalidPrimitive("changes", changes, "a list of field names")
    namespace = primitive[cls._obj_primitive_key("namespace")]
    if namespace != cls.OBJ_PROJECT_NAMESPACE:
        raise exceptions.InvalidPrimitive("namespace", namespace, cls.OBJ_PROJECT_NAMESPACE)
    version = primitive[cls._obj_primitive_key("version")]
    version_tuple(version)
    return primitive[cls._obj_primitive_key("name")], version


def class_for(cls: type[ResourceObject], name: str, version: str) -> Any:
    """Return the registered class of a wire name that ``cls`` may stand for."""
    if not ovo.VersionedObjectRegistry.obj_classes().get(name):
        raise exceptions.InvalidPrimitive("primitive", name, "the wire name of a known object")
    found = cls.obj_class_from_name(name, version)
    if not issubclass(found, cls) and (
        found.obj_name() != cls.obj_name() or not hasattr(found, "WIRE_PREFIX")
    ):
        raise exceptions.InvalidPrimitive("primitive", name, f"a {cls.obj_name()}")
    return found


class Reader:
    """What fields see as their object while data is read: it reads objects of any kind."""

    __slots__ = ("_base", "_context")

    def __init__(self, base: type[ResourceObject], context: Any) -> None:
        self._base = base
        self._context = context

    def obj_from_primitive(self, primitive: Any, context: Any = None) -> ResourceObject:
        return self._base.obj_from_primitive(primitive, context)


def make_compatible(
    objclass: type[ovo.VersionedObject],
    data: dict[str, Any],
    target_version: str,
    manifest: dict[str, str] | None,
) -> None:
    """Run a class's own downgrade on the data of a wire form, with a bare instance as self."""
    shell = objclass.__new__(objclass)
    if manifest is not None:
        object.__setattr__(shell, "_obj_version_manifest", manifest)
    shell.obj_make_compatible(data, target_version)


def downgrade_children(
    parent: type[ResourceObject],
    data: dict[str, Any],
    target_version: str,
    manifest: dict[str, str] | None,
) -> None:
    """Rewrite the children inside a parent's data as what ``target_version`` of it carried.

    :raises CannotDowngrade: if it is not known what that was, or a child cannot be said in it
    """
    for child in children_of_primitive(data):
        name, version = child[_NAME], child[_VERSION]
        if manifest and name in manifest:
            wanted = manifest[name]
        else:
            wanted = _child_version(parent, name, version, target_version)
        wanted = min(wanted, version, key=version_tuple)
        objclass = ovo.VersionedObject.obj_class_from_name(name, version)
        make_compatible(objclass, child[_DATA], wanted, manifest)
        child[_VERSION] = wanted
        if _CHANGES in child:
            child[_CHANGES] = [field for field in child[_CHANGES] if field in child[_DATA]]
            if not child[_CHANGES]:
                del child[_CHANGES]


def _child_version(
    parent: type[ResourceObject], name: str, version: str, target_version: str
) -> str:
    """Return the version of child ``name`` that the parent's ``target_version`` carried."""
    if name not in parent.CHILD_VERSIONS:
        if version_tuple(version) == FIRST:
            return version
        raise exceptions.CannotDowngrade(
            parent.obj_name(), target_version, f"no rule for its child {name} {version}"
        )
    target = version_tuple(target_version)
    known = [child for own, child in parent.CHILD_VERSIONS[name] if version_tuple(own) <= target]
    if not known:
        raise exceptions.CannotDowngrade(
            parent.obj_name(), target_version, f"it did not know {name} yet"
        )
    return known[-1]


def children_of_primitive(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the wire forms of the nearest objects inside a primitive."""
    if isinstance(value, dict):
        if _NAME in value:
            yield value
            return
        for item in value.values():
            yield from children_of_primitive(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from children_of_primitive(item)


def children_of(value: Any) -> Iterator[ovo.VersionedObject]:
    """Yield the nearest objects inside a field's value."""
    if isinstance(value, ovo.VersionedObject):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from children_of(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from children_of(item)
