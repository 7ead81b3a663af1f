"""The versioned-object base of everything that crosses a wire or a database.

There are two kinds of objects:

* *values* (amounts, requests, candidates), whose class is declared
  ``class Amount(ResourceObject, frozen=True)``: hashable, equal when of the same class with equal
  fields, without context and without change tracking, so that threads share them;
* all others, which are entities (providers, compute nodes) and inventories: mutable through checked
  setters, with change tracking, and a context where they need one.

Both are genuine oslo.versionedobjects. What this base adds, because the library leaves it open:

* wire names are qualified (``resource_objects.IntegerAmount``): the library's registry is one dict
  of bare names per process, and nova registers ``ComputeNode`` and ``Resource`` too;
* an object that exists is valid: constructors refuse unknown and missing fields, setters and
  hydration run the same checks, and a refused change leaves the object as it was;
* children inside mappings and sequences, of mixed kinds, are seen by change tracking and taken
  along when an object is said in an older version. That works on primitives alone: the rule for a
  child is found by its concrete wire name, in the receiver's manifest or in the parent's
  :attr:`ResourceObject.CHILD_VERSIONS`;
* a field that is not set raises :class:`~resource_objects.exceptions.FieldNotSet`, so that
  ``hasattr`` answers instead of exploding.

What makes these objects fast is kept apart, in :mod:`resource_objects._fast`, and can be switched
off; nothing here depends on it.
"""

from __future__ import annotations

import abc
import copy
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from oslo_utils import versionutils

from resource_objects import _fast, exceptions, fields
from resource_objects._ovo import base as ovo
from resource_objects._ovo import exception as ovo_exception
from resource_objects._ovo import fields as ovo_fields

__all__ = [
    "NAMESPACE",
    "IncompatibleVersion",
    "ReadOnlyField",
    "ResourceObject",
    "ResourceObjectSerializer",
    "object_classes",
    "register",
    "register_all",
    "version_manifest",
]


NAMESPACE = "resource_objects"

_MISSING: Any = object()
_BAD_VALUE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)

_C = TypeVar("_C", bound="type[ResourceObject]")
_O = TypeVar("_O", bound="ResourceObject")


class ReadOnlyField(ovo_exception.ReadOnlyFieldError, exceptions.FrozenValue):
    """A read-only field that is set already was asked to change."""


class _Signature:
    """The signature of a class: the fields, unless it has a constructor of its own."""

    def __get__(self, instance: object, owner: type[ResourceObject]) -> inspect.Signature:
        if owner.__init__ is not ResourceObject.__init__:
            own = inspect.signature(owner.__init__)
            return own.replace(parameters=[*own.parameters.values()][1:])
        by_place = dict.fromkeys(owner._BY_PLACE, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        found = [
            inspect.Parameter(
                name,
                by_place.get(name, inspect.Parameter.KEYWORD_ONLY),
                default=_shown_default(name, owner),
            )
            for name in (*by_place, *(one for one in owner.fields if one not in by_place))
        ]
        return inspect.Signature(found)


def _shown_default(name: str, cls: type[ResourceObject]) -> Any:
    if name in cls._FACTORIES:
        return None
    default = cls.fields[name].default
    return inspect.Parameter.empty if default is ovo_fields.UnspecifiedDefault else default


class ResourceObject(ovo.VersionedObject):
    """Base of all objects of the library; see the module for what it adds.

    Subclasses state their fields and are decorated with :func:`register`. A subclass of another
    distribution sets :attr:`WIRE_PREFIX` to its own name, so that two plug-ins never collide.

    A subclass that is declared with ``frozen=True`` makes values, and so do those derived from it:
    frozen, hashable, equal when of the same class with equal fields, their own ``copy``.
    """

    OBJ_PROJECT_NAMESPACE = NAMESPACE

    #: First part of the wire name.
    WIRE_PREFIX: ClassVar[str] = NAMESPACE
    #: Whether it is a value: its class, or one that it is derived from, says ``frozen=True``.
    FROZEN: ClassVar[bool] = False
    #: Whether fields may be left unset (a record that is read in part).
    PARTIAL: ClassVar[bool] = False
    #: ``{wire name of a child: [(own version, child's version), ...]}``, oldest first: what an
    #: own version carried. Needed from the day a child's version leaves 1.0.
    CHILD_VERSIONS: ClassVar[Mapping[str, list[tuple[str, str]]]] = {}
    #: Fields that play no part in equality.
    NOT_COMPARED: ClassVar[frozenset[str]] = frozenset()

    #: The constructor's signature, as type checkers and :mod:`inspect` see it.
    __signature__ = _Signature()
    #: The fields that the constructor also takes by place, in that order.
    _BY_PLACE: ClassVar[tuple[str, ...]] = ()
    #: What makes a field of the others where the constructor is not given it.
    _FACTORIES: ClassVar[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {}

    def __init_subclass__(cls, *, frozen: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if frozen:
            cls.FROZEN = True
            for name, one in _OF_FROZEN.items():
                if name not in vars(cls):
                    setattr(cls, name, one)

    def __init__(self, *given: Any, **values: Any) -> None:
        if not self.FROZEN:  # as _prepare does, whose call costs more than all of this
            self._context = None
            self._changed_fields = set()
        self._fill(self._by_name(given, values) if given or self._FACTORIES else values)

    @classmethod
    def obj_name(cls) -> str:
        """Return the wire name, ``<prefix>.<class name>``."""
        return f"{cls.WIRE_PREFIX}.{cls.__name__}"

    # --- being valid ---

    def _by_name(self, given: Sequence[Any], values: dict[str, Any]) -> dict[str, Any]:
        """Return the constructor's arguments by name, with what follows from the others."""
        if len(given) > len(self._BY_PLACE):
            raise TypeError(
                f"{type(self).__name__} takes {len(self._BY_PLACE)} arguments by place,"
                f" got {len(given)}"
            )
        named = dict(zip(self._BY_PLACE, given))  # noqa: B905  # to say strict takes half as long
        if values:
            for name in named.keys() & values.keys():
                raise TypeError(f"{type(self).__name__} got {name} twice")
            named |= values
        for name, factory in self._FACTORIES.items():
            if named.get(name) is None:
                named[name] = factory(named)
        return named

    def _validate(self) -> None:
        """Check what concerns several fields together; raise on contradiction."""

    def _fill(self, values: Mapping[str, Any]) -> None:
        """Set every field from ``values`` or its default, or raise and leave nothing usable."""
        for name in values:
            self._refuse_unknown(name, values[name])
        for name, field in self.fields.items():
            value = values.get(name, _MISSING)
            if value is _MISSING:
                if field.default is ovo_fields.UnspecifiedDefault:
                    if self.PARTIAL:
                        continue
                    raise exceptions.InvalidInput(
                        "field",
                        f"{type(self).__name__}.{name}",
                        None,
                        f"{field.describe()}, required",
                    )
                value = copy.deepcopy(field.default)
            self._store(name, self._coerce(name, value))
        self._validate()

    def _refuse_unknown(self, name: str, value: Any) -> None:
        if name not in self.fields:
            raise exceptions.InvalidInput(
                "field name",
                f"{type(self).__name__}.{name}",
                value,
                f"one of {sorted(self.fields)}",
            )

    def _coerce(self, name: str, value: Any) -> Any:
        """Return the value as the field keeps it, or raise one clear error."""
        field = self.fields[name]
        try:
            if value is None and not field.nullable:
                raise ValueError("None")
            return field.coerce(self, name, value)
        except Exception as error:
            self._refuse_value(name, value, error)

    def _refuse_value(self, name: str, value: Any, error: Exception) -> NoReturn:
        """Raise the one clear error for what a field did not take, given what it raised."""
        is_ours = isinstance(error, exceptions.ResourceObjectsError)
        if value is not None and (is_ours or not isinstance(error, _BAD_VALUE)):
            raise error
        raise exceptions.InvalidInput(
            "field", f"{type(self).__name__}.{name}", value, self.fields[name].describe()
        ) from error

    def _store(self, name: str, value: Any) -> None:
        """Write the raw storage of a field and mark it changed."""
        object.__setattr__(self, f"_obj_{name}", value)
        self._mark((name,))

    def _mark(self, names: Iterable[str]) -> None:
        """Note that fields changed."""
        self._changed_fields.update(names)

    def _key(self) -> tuple[Any, ...]:
        """Return what equality is about."""
        return tuple(
            getattr(self, f"_obj_{name}", _MISSING)
            for name in self.fields
            if name not in self.NOT_COMPARED
        )

    def update(self, **values: Any) -> bool:
        """Set several fields at once, checked together; return whether anything changed.

        Refused: nothing changed. Cost: a copy of the object's attributes and one check of each
        value.
        """
        before = dict(self.__dict__)
        self._changed_fields = set(self._changed_fields)
        try:
            for name, value in values.items():
                self._refuse_unknown(name, value)
                coerced = self._coerce(name, value)
                if self.fields[name].read_only and f"_obj_{name}" in before:
                    if coerced != before[f"_obj_{name}"]:
                        raise ReadOnlyField(f"{type(self).__name__}.{name} is read-only")
                    continue
                self._store(name, coerced)
            self._validate()
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return any(
            before.get(f"_obj_{name}", _MISSING) != self.__dict__[f"_obj_{name}"] for name in values
        )

    def obj_load_attr(self, attrname: str) -> None:
        """Refuse to invent a field that is not set (loading never happens behind a read)."""
        raise exceptions.FieldNotSet(f"{type(self).__name__}.{attrname} is not set")

    # --- there and back ---

    @classmethod
    def obj_from_primitive(cls, primitive: Any, context: Any = None) -> Self:
        """Return the object of a wire form.

        :raises InvalidInput: if it is not the wire form of this kind of object
        :raises IncompatibleVersion: if its version is newer than this library knows
        """
        name, version = _read_header(cls, primitive)
        try:
            found = _class_for(cls, name, version)._obj_from_primitive(context, version, primitive)
        except exceptions.ResourceObjectsError:
            raise
        except ovo_exception.IncompatibleObjectVersion as error:
            raise IncompatibleVersion(**error.kwargs) from error
        except (ovo_exception.VersionedObjectsException, *_BAD_VALUE) as error:
            raise exceptions.InvalidInput(
                "primitive",
                f"primitive of {name} {version}",
                primitive,
                f"a readable {cls.obj_name()}: {error}",
            ) from error
        return typing.cast(Self, found)

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        """Hydrate without ever having an object whose fields are not all checked.

        Unlike the library's own method it does not stamp the old version on the object: fields
        that an older version lacks take their defaults, so the object *is* of this version.
        """
        self = cls.__new__(cls)
        self._prepare(context)
        data = primitive[cls._obj_primitive_key("data")]
        _check_fields(cls, objver, data)
        reader: Any = _PrimitiveReader(ResourceObject, context)
        values = {
            name: field.from_primitive(reader, name, data[name])
            for name, field in cls.fields.items()
            if name in data
        }
        self._fill(values)
        changes = primitive.get(cls._obj_primitive_key("changes"), ())
        self._reset_to({name for name in changes if name in cls.fields})
        return self

    def _prepare(self, context: Any) -> None:
        """Give a bare instance what ``__init__`` gives it before the fields."""
        self._context = context
        self._changed_fields = set()

    def _reset_to(self, changes: set[str]) -> None:
        self._changed_fields = changes

    def obj_to_primitive(
        self, target_version: str | None = None, version_manifest: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the wire form, in an older version where one is asked for.

        :param version_manifest: ``{wire name: version}`` that the receiver reads; what it does
            not name follows :attr:`CHILD_VERSIONS`
        :raises CannotDowngrade: if the older version cannot say it
        :raises IncompatibleVersion: if the version asked for is newer than this one
        """
        if target_version is not None:
            self._refuse_target(target_version)
        primitive = super().obj_to_primitive(target_version, version_manifest)
        changes = self._obj_primitive_key("changes")
        if changes in primitive:
            order = list(self.fields)
            primitive[changes] = sorted(primitive[changes], key=order.index)
        return primitive

    def _refuse_target(self, target_version: str) -> None:
        target = _version_tuple(target_version)
        if target < _FIRST:
            raise exceptions.CannotDowngrade(
                self.obj_name(), target_version, "the first version is 1.0"
            )
        if target > _version_tuple(self.VERSION):
            raise IncompatibleVersion(
                objname=self.obj_name(), objver=target_version, supported=self.VERSION
            )

    def obj_make_compatible_from_manifest(
        self,
        primitive: dict[str, Any],
        target_version: str,
        version_manifest: dict[str, str] | None,
    ) -> None:
        """Rewrite ``primitive`` as an older version, children by the receiver's manifest."""
        _make_compatible(type(self), primitive, target_version, version_manifest)

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Rewrite ``primitive`` (the data of a wire form) as ``target_version``.

        Overrides undo their own changes, newest version first, and call this one, which takes
        the children along. ``self`` is bare: read ``primitive``, never the fields.
        """
        manifest = getattr(self, "_obj_version_manifest", None)
        _downgrade_children(type(self), primitive, target_version, manifest)

    # --- change tracking that sees children ---

    def obj_what_changed(self) -> set[str]:
        """Return the names of the fields that changed, also deep inside their containers."""
        changed = {name for name in self._changed_fields if name in self.fields}
        for name in self.fields:
            value = getattr(self, f"_obj_{name}", None)
            if name not in changed and any(c.obj_what_changed() for c in _children_of(value)):
                changed.add(name)
        return changed

    def obj_reset_changes(self, fields: list[str] | None = None, recursive: bool = False) -> None:
        """Forget what changed; ``recursive`` also in children, wherever they are held."""
        names = set(self.fields if fields is None else fields)
        if recursive:
            for name in names:
                for child in _children_of(getattr(self, f"_obj_{name}", None)):
                    child.obj_reset_changes(recursive=True)
        self._changed_fields -= names

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the fields and what changed; the context is shared."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin._prepare(self._context)
        for name, value in self._set_fields().items():
            if type(value) not in _fast.ATOMS:  # asked here, for a call of deepcopy costs more
                value = copy.deepcopy(value, memo)
            object.__setattr__(twin, f"_obj_{name}", value)
        twin._after_copy()
        twin._reset_to(set(self._changed_fields))
        return twin

    def _after_copy(self) -> None:
        """Derive again what is kept beside the fields."""

    def __copy__(self) -> Self:
        return copy.deepcopy(self)

    def _copied(self, **changes: Any) -> Self:
        """Return a copy whose fields are these very ones but for ``changes``, given as they are
        kept: for fields that are values, where copying what is in them costs more than deciding.

        Nothing is checked again, but without :mod:`resource_objects._fast`.
        """
        kind: Any = type(self)
        twin: Self = kind.__new__(kind)
        twin._prepare(self._context)
        kept = self.__dict__
        for name, attribute in _storage(kind):
            object.__setattr__(twin, attribute, changes.get(name, kept[attribute]))
        twin._reset_to(set(self._changed_fields))
        twin._after_copy()
        if not _fast.ENABLED:
            twin._validate()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything but the context, which belongs to a process."""
        return {**self.__dict__, "_context": None}

    def _set_fields(self) -> dict[str, Any]:
        """Return the values of the fields that are set, by name."""
        found: dict[str, Any] = {}
        for name in self.fields:
            value = getattr(self, f"_obj_{name}", _MISSING)
            if value is not _MISSING:
                found[name] = value
        return found

    if typing.TYPE_CHECKING:  # of values alone, see _OF_FROZEN

        def replace(self, **changes: Any) -> Self: ...

        @classmethod
        def _as_kept(cls, **values: Any) -> Self: ...

        def _altered(self, **changes: Any) -> Self: ...

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in self._set_fields().items())
        return f"{type(self).__name__}({shown})"


def _shown(value: Any) -> str:
    """Return a value as Python says it, sets in order: what is equal looks equal."""
    if isinstance(value, frozenset):
        told = ", ".join(sorted(map(_shown, value)))
        return f"frozenset({{{told}}})" if value else "frozenset()"
    if type(value) is tuple:
        told = ", ".join(map(_shown, value))
        return f"({told},)" if len(value) == 1 else f"({told})"
    return repr(value)


# --- frozen ---------------------------------------------------------------------------------------
# What a class has of its own that is declared ``frozen=True``, and that it does not write itself:
# no layer of classes lies between, as with ``dataclasses.dataclass(frozen=True)``.


def _replace(self: _O, **changes: Any) -> _O:
    """Return a value like this one but for ``changes``."""
    twin = type(self).__new__(type(self))
    twin._fill({**self._set_fields(), **changes})
    return twin


def _as_kept(cls: type[_O], /, **values: Any) -> _O:
    """Return the value of all its fields, given as they are kept; nothing is checked again.

    For what is decided from checked values, where checking costs more than deciding. Without
    :mod:`resource_objects._fast` everything is checked, and found right.
    """
    made = cls.__new__(cls)
    if not _fast.ENABLED:
        made._fill(values)
        return made
    kind: Any = cls
    for name, attribute in _storage(kind):
        object.__setattr__(made, attribute, values[name])
    return made


def _altered(self: _O, **changes: Any) -> _O:
    """Return a value like this one but for ``changes``, which are as for ``_as_kept``."""
    kind: Any = type(self)
    if not _fast.ENABLED:
        return self._as_kept(**{**self._set_fields(), **changes})
    made: _O = kind.__new__(kind)
    kept = self.__dict__
    for name, attribute in _storage(kind):
        object.__setattr__(made, attribute, changes[name] if name in changes else kept[attribute])
    return made


def _nothing(self: Any, ignored: Any) -> None:
    """Do nothing: a value has no context and no changes."""


def _no_change(self: Any, **values: Any) -> NoReturn:
    """Refuse: a value does not change; use :meth:`replace`."""
    raise exceptions.FrozenValue(f"{type(self).__name__} is a value; use replace()")


def _no_changes(self: Any) -> set[str]:
    """Return nothing: a value has no changes."""
    return set()


def _keep_changes(self: Any, fields: list[str] | None = None, recursive: bool = False) -> None:
    """Do nothing: a value has no changes."""


def _refuse(self: Any, name: str, *value: Any) -> NoReturn:
    raise exceptions.FrozenValue(f"{type(self).__name__}.{name} cannot change; use replace()")


def _is_equal(self: Any, other: Any) -> Any:
    return self._key() == other._key() if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    found: int | None = self._hashed
    if found is None:  # once: a request is what caches go by
        found = hash((type(self).__name__, self._key()))
        object.__setattr__(self, "_hashed", found)
    return found


def _itself(self: _O, *memo: Any) -> _O:
    return self


def _reduce(self: Any) -> tuple[Any, ...]:
    return _rebuild, (type(self), self._set_fields())


def _rebuild(cls: type[_O], values: dict[str, Any]) -> _O:
    self = cls.__new__(cls)
    self._fill(values)
    return self


_OF_FROZEN: Mapping[str, Any] = {
    "_context": None,
    "_hashed": None,
    "_changed_fields": frozenset(),
    "_mark": _nothing,
    "_prepare": _nothing,
    "_reset_to": _nothing,
    "replace": _replace,
    "_as_kept": classmethod(_as_kept),
    "_altered": _altered,
    "update": _no_change,
    "obj_what_changed": _no_changes,
    "obj_reset_changes": _keep_changes,
    "__eq__": _is_equal,
    "__hash__": _hash,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__copy__": _itself,
    "__deepcopy__": _itself,
    "__reduce__": _reduce,
}


@functools.cache
def _storage(cls: type[ResourceObject]) -> tuple[tuple[str, str], ...]:
    """Return where each field of a class is kept."""
    return tuple((name, sys.intern(f"_obj_{name}")) for name in cls.fields)


class ResourceObjectSerializer(ovo.VersionedObjectSerializer):
    """Serializer for message buses and files: objects to primitives and back, nested anywhere."""

    OBJ_BASE_CLASS: type[ovo.VersionedObject] = ResourceObject

    def _do_backport(self, context: Any, objprim: Any, objclass: Any) -> Any:
        """Ask for a form that this side reads, naming every kind that may be inside.

        The library names only the kinds that fields declare; what is held is of derived ones.
        """
        api: Any = self.OBJ_BASE_CLASS.indirection_api
        try:
            return api.object_backport_versions(context, objprim, _known_versions())
        except NotImplementedError:
            return api.object_backport(context, objprim, objclass.VERSION)


# --- registration ---------------------------------------------------------------------------------


@typing.dataclass_transform(
    eq_default=False,
    kw_only_default=True,
    field_specifiers=(
        fields.field,
        fields.integer,
        fields.boolean,
        fields.text,
        fields.choice,
        fields.ratio,
        fields.timestamp,
        fields.uuid,
        fields.resource_class,
        fields.provider_name,
        fields.consumer_name,
        fields.trait,
        fields.traits,
        fields.aggregates,
        fields.label,
        fields.labels,
        fields.ids,
        fields.integer_pairs,
        fields.nested,
        fields.tuple_of,
        fields.counts,
        fields.map_of,
    ),
)
def register(cls: _C) -> _C:
    """Register a versioned object under its qualified wire name (class decorator).

    The fields are the class's attributes that are made by :mod:`resource_objects.fields`, after
    them those it inherits; fields whose names are computed stand in a mapping named ``fields``. The
    constructor takes the fields. Where its arguments are something else (text that is parsed, say)
    a class writes its own, which those derived from it inherit.

    :raises InvalidInput: if another class holds that name and version already, or a class of
        another distribution claims a name of this one
    """
    _refuse_foreign(cls)
    _refuse_collision(cls)
    cls.fields = {**vars(cls).get("fields", {}), **_stated(cls)}
    ovo.VersionedObjectRegistry.register(cls)
    for name in cls.fields:
        setattr(cls, name, _guarded(cls, name))
    options = {name: one for name, one in cls.fields.items() if isinstance(one, fields.Field)}
    cls._BY_PLACE = tuple(name for name, one in options.items() if not one.kw_only)
    cls._FACTORIES = {name: one.factory for name, one in options.items() if one.factory}
    abc.update_abstractmethods(cls)
    if _fast.ENABLED:
        _fast.accelerate(cls, ResourceObject)
    return cls


def _stated(cls: type) -> dict[str, fields.Field[Any]]:
    """Return the fields that a class, or what it is derived from unregistered, states."""
    return {
        name: one
        for made_of in reversed(cls.__mro__)
        for name, one in vars(made_of).items()
        if isinstance(one, fields.Field)
    }


def register_all() -> None:
    """Import every module that defines objects, so that any wire form can be read.

    Cost: the imports; nothing on the second call.
    """
    import importlib

    for module in (
        "resources",
        "resources.numa",
        "requests",
        "providers",
        "search.candidate",
        "host.compute_node",
    ):
        importlib.import_module(f"{NAMESPACE}.{module}")


def object_classes() -> dict[str, type[ResourceObject]]:
    """Return ``{wire name: newest class}`` of the library's own objects.

    Other projects' classes in the same process-global registry are left out, and so are plug-ins'.
    """
    register_all()
    return {
        name: typing.cast(type[ResourceObject], classes[0])
        for name, classes in sorted(ovo.VersionedObjectRegistry.obj_classes().items())
        if name.startswith(f"{NAMESPACE}.")
    }


def version_manifest() -> dict[str, str]:
    """Return ``{wire name: version}``: what a receiver sends to be sent what it understands.

    Objects of plug-ins that are loaded are in it.
    """
    register_all()
    return _known_versions()


def _known_versions() -> dict[str, str]:
    """Return ``{wire name: newest version}`` of what is registered now."""
    return {
        name: classes[0].VERSION
        for name, classes in sorted(ovo.VersionedObjectRegistry.obj_classes().items())
        if classes and issubclass(classes[0], ResourceObject)
    }


def _refuse_foreign(cls: type[ResourceObject]) -> None:
    distribution = cls.__module__.partition(".")[0]
    if cls.WIRE_PREFIX == NAMESPACE != distribution:
        raise exceptions.InvalidInput(
            "name",
            f"wire name of {cls.__module__}.{cls.__qualname__}",
            cls.obj_name(),
            "a WIRE_PREFIX of its own, such as the name of its distribution",
        )
    slots = [slot for base in cls.__mro__ for slot in base.__dict__.get("__slots__", ())]
    if slots and not cls.FROZEN:
        raise exceptions.InvalidInput(
            "name",
            f"{cls.__qualname__}.__slots__",
            slots,
            "none: only a value may keep fields in slots",
        )


def _refuse_collision(cls: type[ResourceObject]) -> None:
    for other in ovo.VersionedObjectRegistry.obj_classes().get(cls.obj_name(), ()):
        same_source = (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__)
        if other.VERSION == cls.VERSION and not same_source:
            raise exceptions.InvalidInput(
                "name",
                f"wire name of {cls.__module__}.{cls.__qualname__}",
                f"{cls.obj_name()} {cls.VERSION}",
                f"a name not taken by {other.__module__}.{other.__qualname__}",
            )


def _guarded(cls: type[ResourceObject], name: str) -> property:
    """Return the property of a field: the library's getter, our checked setter."""
    stock: property = cls.__dict__[name]

    def setter(self: ResourceObject, value: Any) -> None:
        self.update(**{name: value})

    def deleter(self: ResourceObject) -> None:
        if not self.PARTIAL or self.fields[name].read_only:
            raise exceptions.InvalidInput("field", f"{cls.__name__}.{name}", "del", "a value")
        if not self.obj_attr_is_set(name):
            self.obj_load_attr(name)
        object.__delattr__(self, f"_obj_{name}")
        self._changed_fields.discard(name)

    return property(stock.fget, setter, deleter, doc=f"{name}: {cls.fields[name].describe()}")


# --- wire forms -----------------------------------------------------------------------------------
# A wire form (*primitive*) is the nested dict that oslo.versionedobjects makes of an object. All
# below is done to such dicts, not to objects, so that one may be rewritten for an older reader by
# somebody who does not hold the object.


#: The version every object starts with.
_FIRST = (1, 0)

_KEY = ovo.VersionedObject._obj_primitive_key
_NAME, _VERSION, _DATA, _CHANGES = (_KEY(part) for part in ("name", "version", "data", "changes"))


class IncompatibleVersion(exceptions.UnsupportedVersion, ovo_exception.IncompatibleObjectVersion):
    """A wire form in a version this library does not know.

    It is oslo.versionedobjects' own ``IncompatibleObjectVersion`` too, which its serializer
    catches to ask the sender's side for an older version.
    """


def _version_tuple(version: str) -> tuple[int, ...]:
    """Return the two numbers of a version (a third one changes nothing that is said)."""
    try:
        major, minor, *_ = versionutils.convert_version_to_tuple(version)
    except (ValueError, TypeError, AttributeError) as error:
        raise exceptions.InvalidInput(
            "primitive", "version", version, "a version like 1.0"
        ) from error
    return major, minor


def _read_header(cls: type[ResourceObject], primitive: Any) -> tuple[str, str]:
    """Return (name, version) of a wire form, or raise if it is not shaped like one."""
    if not isinstance(primitive, dict):
        raise exceptions.InvalidInput(
            "primitive", "primitive", primitive, f"the dict of a {cls.obj_name()}"
        )
    for part, kind in (("name", str), ("namespace", str), ("version", str), ("data", dict)):
        key = cls._obj_primitive_key(part)
        if not isinstance(primitive.get(key), kind):
            raise exceptions.InvalidInput(
                "primitive", key, primitive.get(key), f"a {kind.__name__}"
            )
    changes = primitive.get(cls._obj_primitive_key("changes"), [])
    if not isinstance(changes, list) or not all(isinstance(name, str) for name in changes):
        raise exceptions.InvalidInput("primitive", "changes", changes, "a list of field names")
    namespace = primitive[cls._obj_primitive_key("namespace")]
    if namespace != cls.OBJ_PROJECT_NAMESPACE:
        raise exceptions.InvalidInput(
            "primitive", "namespace", namespace, cls.OBJ_PROJECT_NAMESPACE
        )
    version = primitive[cls._obj_primitive_key("version")]
    _version_tuple(version)
    return primitive[cls._obj_primitive_key("name")], version


def _check_fields(cls: type[ResourceObject], version: str, data: Mapping[str, Any]) -> None:
    """Raise unless the data of a wire form have the fields of a version that is known.

    An older version may lack some. This tells what libraries before 0.1.0 wrote, whose versions
    began at 1.0 too, from what is written now: it is refused, not read as something else.
    """
    unknown = [name for name in data if name not in cls.fields]
    is_present = _version_tuple(version) == _version_tuple(cls.VERSION)
    missing = [] if cls.PARTIAL or not is_present else [n for n in cls.fields if n not in data]
    if unknown or missing:
        raise exceptions.InvalidInput(
            "primitive",
            f"fields of {cls.obj_name()} {version}",
            sorted(data),
            f"no {unknown}" if unknown else f"also {missing}",
        )


def _class_for(cls: type[ResourceObject], name: str, version: str) -> Any:
    """Return the registered class of a wire name that ``cls`` may stand for."""
    if not ovo.VersionedObjectRegistry.obj_classes().get(name):
        raise exceptions.InvalidInput(
            "primitive", "primitive", name, "the wire name of a known object"
        )
    found = cls.obj_class_from_name(name, version)
    if not issubclass(found, cls) and (
        found.obj_name() != cls.obj_name() or not hasattr(found, "WIRE_PREFIX")
    ):
        raise exceptions.InvalidInput("primitive", "primitive", name, f"a {cls.obj_name()}")
    return found


class _PrimitiveReader:
    """What fields see as their object while data is read: it reads objects of any kind."""

    __slots__ = ("_base", "_context")

    def __init__(self, base: type[ResourceObject], context: Any) -> None:
        self._base = base
        self._context = context

    def obj_from_primitive(self, primitive: Any, context: Any = None) -> ResourceObject:
        return self._base.obj_from_primitive(primitive, context)


def _make_compatible(
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


def _downgrade_children(
    parent: type[ResourceObject],
    data: dict[str, Any],
    target_version: str,
    manifest: dict[str, str] | None,
) -> None:
    """Rewrite the children inside a parent's data as what ``target_version`` of it carried.

    :raises CannotDowngrade: if it is not known what that was, or a child cannot be said in it
    """
    for child in _children_of_primitive(data):
        name, version = child[_NAME], child[_VERSION]
        if manifest and name in manifest:
            wanted = manifest[name]
        else:
            wanted = _child_version(parent, name, version, target_version)
        wanted = min(wanted, version, key=_version_tuple)
        objclass = ovo.VersionedObject.obj_class_from_name(name, version)
        _make_compatible(objclass, child[_DATA], wanted, manifest)
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
        if _version_tuple(version) == _FIRST:
            return version
        raise exceptions.CannotDowngrade(
            parent.obj_name(), target_version, f"no rule for its child {name} {version}"
        )
    target = _version_tuple(target_version)
    known = [child for own, child in parent.CHILD_VERSIONS[name] if _version_tuple(own) <= target]
    if not known:
        raise exceptions.CannotDowngrade(
            parent.obj_name(), target_version, f"it did not know {name} yet"
        )
    return known[-1]


def _children_of_primitive(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the wire forms of the nearest objects inside a primitive."""
    if isinstance(value, dict):
        if _NAME in value:
            yield value
            return
        for item in value.values():
            yield from _children_of_primitive(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _children_of_primitive(item)


def _children_of(value: Any) -> Iterator[ovo.VersionedObject]:
    """Yield the nearest objects inside a field's value."""
    if isinstance(value, ovo.VersionedObject):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _children_of(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _children_of(item)
