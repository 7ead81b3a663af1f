"""What makes versioned objects fast, in one place, with a switch.

``RESOURCE_OBJECTS_FAST=0`` in the environment turns all of it off before the first import; every
test passes either way. :func:`accelerate` rewrites a registered class so that

* reading a field is one C-level ``attrgetter`` on its storage (the stock property formats the
  storage name and calls ``hasattr`` for each read);
* an object is filled by a plan computed once per class, in which a default is checked once and
  for all. Whatever the plan does not take goes the stock way, which says what is wrong;
* the wire form of an object in its own version is made from such a plan too. Anything versioned
  (a target version, a manifest) goes the stock way;
* equality reads all fields at once.

A method that a class brings itself is neither replaced nor passed by, and what is derived from a
class without being registered goes the stock way. No ``__getattr__`` is added anywhere: with
one, Python's interpreter gives up its fastest attribute reads, and every method of the class would
take twice as long.

Storage is the ``_obj_<field>`` attribute that oslo.versionedobjects has used since 2013.
"""

from __future__ import annotations

import copy
import decimal
import operator
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resource_objects.base import ResourceObject

#: Whether :func:`accelerate` is applied when classes are registered.
ENABLED = os.environ.get("RESOURCE_OBJECTS_FAST", "1") != "0"

_UNSET: Any = object()

#: Types of which one default can be shared by all objects.
_ATOMS = (int, str, bool, decimal.Decimal, type(None))


def accelerate(cls: type[ResourceObject], base: type[ResourceObject]) -> None:
    """Speed up ``cls``, a class derived from ``base``, the unregistered base of all."""
    if not cls.PARTIAL:  # else a read may find nothing, and the stock property says so
        _read_directly(cls)
    for name, passed_by, plan in (
        ("obj_to_primitive", (), _dehydration_plan),
        ("_fill", ("_coerce", "_store", "_refuse_unknown"), _filling_plan),
        ("_key", (), _key_plan),
    ):
        if all(_is_stock(cls, base, method) for method in (name, *passed_by)):
            stock = getattr(base, name)
            planned: Any = plan(cls, stock)
            planned.__name__, planned.__doc__, planned.stock = name, stock.__doc__, stock
            setattr(cls, name, planned)


def _is_stock(cls: type[ResourceObject], base: type[ResourceObject], method: str) -> bool:
    """Return whether a class has a method from ``base``, planned already or not."""
    found = getattr(cls, method)
    return getattr(found, "stock", found) is getattr(base, method)


def _read_directly(cls: type[ResourceObject]) -> None:
    """Read fields by C-level getters."""
    for name in cls.fields:
        slow: property = cls.__dict__[name]
        getter = operator.attrgetter(f"_obj_{name}")
        setattr(cls, name, property(getter, slow.fset, slow.fdel, slow.__doc__))


def _dehydration_plan(
    cls: type[ResourceObject], stock: Callable[..., dict[str, Any]]
) -> Callable[..., dict[str, Any]]:
    """Return ``obj_to_primitive`` with a short way for the object's own version."""
    plan = tuple((name, f"_obj_{name}", field.to_primitive) for name, field in cls.fields.items())
    keys = {part: cls._obj_primitive_key(part) for part in ("name", "namespace", "version")}
    head = {
        keys["name"]: cls.obj_name(),
        keys["namespace"]: cls.OBJ_PROJECT_NAMESPACE,
        keys["version"]: cls.VERSION,
    }
    data_key = cls._obj_primitive_key("data")
    changes_key = cls._obj_primitive_key("changes")

    def obj_to_primitive(
        self: ResourceObject,
        target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        if target_version is not None or version_manifest or type(self) is not cls:
            return stock(self, target_version, version_manifest)
        data: dict[str, Any] = {}
        for name, attribute, to_primitive in plan:
            value = getattr(self, attribute, _UNSET)
            if value is not _UNSET:
                data[name] = to_primitive(self, name, value)
        primitive = {**head, data_key: data}
        changed = self.obj_what_changed()
        if changed:
            changes = [name for name in data if name in changed]
            if changes:
                primitive[changes_key] = changes
        return primitive

    return obj_to_primitive


def _filling_plan(
    cls: type[ResourceObject], stock: Callable[..., None]
) -> Callable[[ResourceObject, Mapping[str, Any]], None]:
    """Return ``_fill`` with a short way for values that are in order."""
    plan = tuple(_step(cls, name) for name in cls.fields)
    names = tuple(cls.fields)
    store = object.__setattr__

    def _fill(self: ResourceObject, values: Mapping[str, Any]) -> None:
        if type(self) is not cls:
            return stock(self, values)
        storage: dict[str, Any] = {}
        given = 0
        try:
            for name, attribute, default, checked, coerce in plan:
                value = values.get(name, _UNSET)
                if value is not _UNSET:
                    given += 1
                elif checked is _UNSET:
                    return stock(self, values)  # required, or made anew for each object
                if value is _UNSET or value is default:
                    storage[attribute] = checked
                else:
                    storage[attribute] = coerce(self, name, value)
        except Exception:  # the stock way meets it again, and names it
            return stock(self, values)
        if given != len(values):
            return stock(self, values)
        for attribute, value in storage.items():  # through __dict__, later reads would be slower
            store(self, attribute, value)
        self._mark(names)
        self._validate()
        return None

    return _fill


def _step(cls: type[ResourceObject], name: str) -> tuple[str, str, Any, Any, Callable[..., Any]]:
    """Return (name, storage, default as declared, default as kept, check) of a field.

    A default is shared only if it cannot change: else both places say that there is none.
    """
    field = cls.fields[name]
    default = checked = _UNSET
    if isinstance(field.default, _ATOMS):
        bare = cls.__new__(cls) if not getattr(cls, "__abstractmethods__", None) else None
        kept = field.coerce(bare, name, copy.deepcopy(field.default))
        if isinstance(kept, _ATOMS):
            default, checked = field.default, kept

    def coerce(self: ResourceObject, name: str, value: Any) -> Any:
        if value is None and not field.nullable:
            raise ValueError(name)
        return field.coerce(self, name, value)

    return name, f"_obj_{name}", default, checked, coerce


def _key_plan(
    cls: type[ResourceObject], stock: Callable[..., tuple[Any, ...]]
) -> Callable[[ResourceObject], tuple[Any, ...]]:
    """Return ``_key`` that reads every field in one call."""
    compared = [f"_obj_{name}" for name in cls.fields if name not in cls.NOT_COMPARED]
    if cls.PARTIAL or len(compared) < 2:  # one attribute would not come as a tuple

        def _key(self: ResourceObject) -> tuple[Any, ...]:
            return stock(self)

    else:
        read = operator.attrgetter(*compared)

        def _key(self: ResourceObject) -> tuple[Any, ...]:
            return read(self) if type(self) is cls else stock(self)

    return _key


__all__ = ["ENABLED", "accelerate"]
