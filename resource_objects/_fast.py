"""What makes versioned objects fast, in one place, with a switch.

``RESOURCE_OBJECTS_FAST=0`` in the environment turns all of it off before the first import; every
test passes either way. :func:`accelerate` rewrites a registered class so that

* reading a field is one C-level ``attrgetter`` on its storage (the stock property formats the
  storage name and calls ``hasattr`` for each read);
* the wire form of an object in its own version is made from a plan computed once per class.
  Anything versioned (a target version, a manifest) goes the stock way.

Storage is the ``_obj_<field>`` attribute that oslo.versionedobjects has used since 2013.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resource_objects.base import ResourceObject

#: Whether :func:`accelerate` is applied when classes are registered.
ENABLED = os.environ.get("RESOURCE_OBJECTS_FAST", "1") != "0"

_UNSET: Any = object()


def accelerate(cls: type[ResourceObject]) -> None:
    """Give ``cls`` C-level getters and a precomputed wire form."""
    for name in cls.fields:
        slow: property = cls.__dict__[name]
        getter = operator.attrgetter(f"_obj_{name}")
        setattr(cls, name, property(getter, slow.fset, slow.fdel, slow.__doc__))
    cls.__getattr__ = _field_not_set  # type: ignore[attr-defined]
    cls.obj_to_primitive = _planned(cls, cls.obj_to_primitive)  # type: ignore[method-assign]


def _field_not_set(self: ResourceObject, name: str) -> Any:
    """Say which field is missing; called only after the normal look-up failed."""
    if name in type(self).fields:
        self.obj_load_attr(name)
        return getattr(self, f"_obj_{name}")
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _planned(
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
    stock = getattr(stock, "stock", stock)  # a subclass inherits an accelerated method

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
            primitive[changes_key] = [name for name in data if name in changed]
        return primitive

    obj_to_primitive.__doc__ = stock.__doc__
    obj_to_primitive.stock = stock  # type: ignore[attr-defined]
    return obj_to_primitive


__all__ = ["ENABLED", "accelerate"]
