"""What makes versioned objects fast, in one place, with a switch.

``RESOURCE_OBJECTS_FAST=0`` in the environment turns all of it off before the first import; every
test passes either way. :func:`accelerate` rewrites a registered class so that

* reading a field is one C-level ``attrgetter`` on its storage (the stock property formats the
  storage name and calls ``hasattr`` for each read);
* an object is filled by a plan computed once per class, in which a default is checked once and
  for all. Names that are missing or unknown go the stock way, which says what is wrong;
* the wire form of an object in its own version is made from such a plan too: all fields are read at
  once, and only those are converted whose kind has a form of its own. Anything versioned (a target
  version, a manifest) goes the stock way;
* equality reads all fields at once.

A method that a class brings itself is neither replaced nor passed by, and what is derived from a
class without being registered goes the stock way. No ``__getattr__`` is added anywhere: with
one, Python's interpreter gives up its fastest attribute reads, and every method of the class would
take twice as long.

Storage is the ``_obj_<field>`` attribute that oslo.versionedobjects has used since 2013.

:func:`set_directly` does the same for the frozen dataclasses of which every write makes some.
"""

from __future__ import annotations

import copy
import dataclasses
import decimal
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from resource_objects._ovo import fields as ovo_fields

# The base of all objects hands itself in, and is not imported: it is what imports this module.
ResourceObject: TypeAlias = Any

_T = TypeVar("_T")

#: Whether :func:`accelerate` is applied when classes are registered, and :func:`set_directly`.
ENABLED = os.environ.get("RESOURCE_OBJECTS_FAST", "1") != "0"

_UNSET: Any = object()

#: Types whose values never change, so that objects share them.
ATOMS = (int, str, bool, decimal.Decimal, type(None))


def accelerate(cls: type[ResourceObject], base: type[ResourceObject]) -> None:
    """Speed up ``cls``, a class derived from ``base``, the unregistered base of all."""
    if not cls.PARTIAL:  # else a read may find nothing, and the stock property says so
        _read_directly(cls)
    for name, passed_by, plan in (
        ("obj_to_primitive", (), _dehydration_plan),
        ("_fill", ("_coerce", "_refuse_value", "_store", "_refuse_unknown"), _filling_plan),
        ("_key", (), _key_plan),
    ):
        if all(_is_stock(cls, base, method) for method in (name, *passed_by)):
            stock = getattr(base, name)
            planned: Any = plan(cls, base, stock)
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
    cls: type[ResourceObject], base: type[ResourceObject], stock: Callable[..., dict[str, Any]]
) -> Callable[..., dict[str, Any]]:
    """Return ``obj_to_primitive`` with a short way for the object's own version."""
    names = tuple(cls.fields)
    every = frozenset(names)
    read = _reader(names)
    converted = tuple(
        (name, field.to_primitive) for name, field in cls.fields.items() if not _stays_as_is(field)
    )
    tracks_children = cls.obj_what_changed is not base.obj_what_changed or not all(
        not getattr(field._type, "HOLDS_OBJECTS", True) for field in cls.fields.values()
    )
    key = cls._obj_primitive_key
    name_key, namespace_key, version_key = key("name"), key("namespace"), key("version")
    data_key, changes_key = key("data"), key("changes")
    wire_name, namespace, version = cls.obj_name(), cls.OBJ_PROJECT_NAMESPACE, cls.VERSION

    def obj_to_primitive(
        self: ResourceObject,
        target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        if target_version is not None or version_manifest or type(self) is not cls:
            return stock(self, target_version, version_manifest)
        try:
            data = dict(zip(names, read(self), strict=True))
        except AttributeError:  # a field is not set
            found = {n: getattr(self, f"_obj_{n}", _UNSET) for n in names}
            data = {n: value for n, value in found.items() if value is not _UNSET}
        for name, to_primitive in converted:
            if name in data:
                data[name] = to_primitive(self, name, data[name])
        primitive = {
            name_key: wire_name,
            namespace_key: namespace,
            version_key: version,
            data_key: data,
        }
        changed = self.obj_what_changed() if tracks_children else self._changed_fields
        if changed:
            changes = list(data) if changed == every else [n for n in data if n in changed]
            if changes:
                primitive[changes_key] = changes
        return primitive

    return obj_to_primitive


def _reader(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads some fields of an object at once."""
    stored = [f"_obj_{name}" for name in names]
    if len(stored) > 1:
        return operator.attrgetter(*stored)
    return lambda self: tuple([getattr(self, name) for name in stored])


def _stays_as_is(field: Any) -> bool:
    """Return whether the values of a field go to the wire as they are kept."""
    return (
        type(field).to_primitive is ovo_fields.Field.to_primitive
        and type(field._type).to_primitive is ovo_fields.FieldType.to_primitive
    )


def _filling_plan(
    cls: type[ResourceObject], base: type[ResourceObject], stock: Callable[..., None]
) -> Callable[[ResourceObject, Mapping[str, Any]], None]:
    """Return ``_fill`` with a short way for values that are in order."""
    plan = tuple(_step(cls, name) for name in cls.fields)
    known = frozenset(cls.fields)
    required = frozenset(name for name, _, _, checked, _ in plan if checked is _UNSET)
    names = tuple(cls.fields)
    store = object.__setattr__
    validates = cls._validate is not base._validate  # the one of the base does nothing

    def _fill(self: ResourceObject, values: Mapping[str, Any]) -> None:
        if type(self) is not cls or not known.issuperset(values) or not required <= values.keys():
            return stock(self, values)
        storage: dict[str, Any] = {}
        for name, attribute, default, checked, coerce in plan:
            value = values.get(name, default)
            if value is default:
                storage[attribute] = checked
                continue
            try:
                storage[attribute] = coerce(self, name, value)
            except Exception as error:  # not the stock way: an iterator may be used up by now
                self._refuse_value(name, value, error)
        for attribute, value in storage.items():  # through __dict__, later reads would be slower
            store(self, attribute, value)
        self._mark(names)
        if validates:
            self._validate()
        return None

    return _fill


def _step(cls: type[ResourceObject], name: str) -> tuple[str, str, Any, Any, Callable[..., Any]]:
    """Return (name, storage, default as declared, default as kept, check) of a field.

    A default is shared only if it cannot change: else both places say that there is none.
    """
    field = cls.fields[name]
    default = checked = _UNSET
    if _is_fixed(field.default):
        bare: Any = object.__new__(cls) if not getattr(cls, "__abstractmethods__", None) else None
        kept = field.coerce(bare, name, copy.deepcopy(field.default))
        if _is_fixed(kept):
            default, checked = field.default, kept
    return name, f"_obj_{name}", default, checked, _check(field)


def _is_fixed(value: object) -> bool:
    """Return whether a default cannot change: an atom, or empty and hashable."""
    return isinstance(value, ATOMS) or (type(value).__hash__ is not None and not value)


def _check(field: Any) -> Callable[..., Any]:
    """Return what makes of a value what a field keeps, or raises; also for None."""
    coerce: Callable[..., Any] = field.coerce
    of_type: Callable[..., Any] = field._type.coerce
    if field.nullable:
        return coerce
    if type(field).coerce is ovo_fields.Field.coerce and _takes_no_none(field):
        return of_type  # the other one looks for None first

    def checked(self: ResourceObject, name: str, value: Any) -> Any:
        if value is None:
            raise ValueError(name)
        return coerce(self, name, value)

    return checked


def _key_plan(
    cls: type[ResourceObject], base: type[ResourceObject], stock: Callable[..., tuple[Any, ...]]
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


__all__ = ["ENABLED", "accelerate", "set_directly"]


def _takes_no_none(field: Any) -> bool:
    """Return whether the type of a field itself says so; one derived from it may differ."""
    return vars(type(field._type)).get("TAKES_NONE") is False


def set_directly(kind: type[_T]) -> type[_T]:
    """Have a frozen dataclass with slots made by its slots' own descriptors, in half the time.

    The constructor that ``dataclasses`` writes calls ``object.__setattr__`` for each field, which
    looks the slot up again. This one takes the same arguments.
    """
    if not ENABLED:
        return kind
    written: Any = kind.__init__
    fields = [one for one in dataclasses.fields(kind) if one.init]  # type: ignore[arg-type]
    scope = {f"set_{one.name}": getattr(kind, one.name).__set__ for one in fields}
    lines = [f"set_{one.name}(self, {one.name})" for one in fields]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    names, body = ", ".join(one.name for one in fields), "; ".join(lines)
    exec(f"def __init__(self, {names}): {body}", scope)  # as dataclasses does
    made: Any = scope["__init__"]
    for what in ("__defaults__", "__annotations__", "__doc__", "__module__", "__qualname__"):
        setattr(made, what, getattr(written, what))
    kind.__init__ = made  # type: ignore[method-assign]
    return kind
