"""The base class of all versioned objects, and their registration.

There are two kinds of objects:

* *values* (amounts, requests, candidates), whose class is declared
  ``class Amount(ResourceObject, frozen=True)``: hashable, equal to objects of the same class with
  equal fields, without a context, so that threads can share them;
* *entities* (providers, compute nodes) and inventories: mutable through setters that check.

Both are oslo.versionedobjects. :func:`register` generates the constructor, the equality key and the
wire form of a class from its fields, as :mod:`dataclasses` does, because the generic methods of
oslo.versionedobjects take two to four times as long. ``tests/objects/test_generated.py`` compares
each registered class with those generic methods. Further differences to oslo.versionedobjects:

* Wire names are qualified (``resource_objects.IntegerAmount``), because the registry of
  oslo.versionedobjects is one dict of bare names, and nova registers ``ComputeNode`` too.
* An object that exists is valid. Constructors reject unknown and missing fields; setters and
  :meth:`~ResourceObject.obj_from_primitive` run the same checks; a rejected change leaves the
  object as it was.
* Backporting also covers children of any class inside mappings and sequences. It works on wire
  forms alone: the version of a child is looked up by its own wire name, in the receiver's manifest
  or in :attr:`ResourceObject.CHILD_VERSIONS` of its parent.
* Reading a field that is not set raises :class:`~resource_objects.exceptions.FieldNotSet`, which is
  an ``AttributeError``, so that ``hasattr`` returns False.
* Changes are not tracked: ``obj_what_changed()`` returns an empty set unless a class overrides it.

A field is stored in the attribute ``_obj_<field>``, as oslo.versionedobjects has done since 2013.
"""

from __future__ import annotations

import abc
import copy
import decimal
import functools
import importlib
import inspect
import operator
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from oslo_utils import versionutils

from resource_objects import exceptions, fields
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
_set = object.__setattr__
_BAD_VALUE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
#: Types whose instances are immutable, so that copies share them.
_ATOMS = (int, str, bool, decimal.Decimal, type(None))

_C = TypeVar("_C", bound="type[ResourceObject]")


class ReadOnlyField(ovo_exception.ReadOnlyFieldError, exceptions.FrozenValue):
    """A change of a read-only field that is already set."""


class _Signature:
    """The signature of a class: that of its own constructor, or its fields."""

    def __get__(self, instance: object, owner: type[ResourceObject]) -> inspect.Signature:
        method: Any = owner.__init__
        signature = inspect.signature(
            owner._init_fields if method is ResourceObject.__init__ else method
        )
        empty = inspect.Parameter.empty
        parameters = [
            parameter.replace(default=empty) if parameter.default is _MISSING else parameter
            for name, parameter in signature.parameters.items()
            if name not in ("self", "_none_is_default", "_unknown")
        ]
        return signature.replace(parameters=parameters)


class ResourceObject(ovo.VersionedObject):
    """Base of all objects of the library; the docstring of the module describes it.

    Subclasses declare their fields and are decorated with :func:`register`. A subclass of another
    distribution sets :attr:`WIRE_PREFIX` to its own name, so that two plug-ins never collide.

    Instances of a subclass that is declared with ``frozen=True`` are values: hashable, equal to
    values of the same class with equal fields, and their own copies. Subclasses inherit this.
    """

    OBJ_PROJECT_NAMESPACE = NAMESPACE

    #: The first part of the wire name.
    WIRE_PREFIX: ClassVar[str] = NAMESPACE
    #: Whether instances are values: the class or one of its bases is declared ``frozen=True``.
    FROZEN: ClassVar[bool] = False
    #: ``{removed field: value}``: an older wire form with this value of the field can be read,
    #: because it does not use the removed feature.
    REMOVED_FIELDS: ClassVar[Mapping[str, Any]] = {}
    #: Whether fields may be left unset, as in a record of which some columns were read.
    PARTIAL: ClassVar[bool] = False
    #: ``{wire name of a child: [(own version, version of the child), ...]}``, oldest first.
    #: Required from the first version of a child after 1.0.
    CHILD_VERSIONS: ClassVar[Mapping[str, list[tuple[str, str]]]] = {}
    #: Fields that equality ignores.
    NOT_COMPARED: ClassVar[frozenset[str]] = frozenset()

    #: The signature of the constructor for :mod:`inspect`.
    __signature__ = _Signature()
    # What register() derives from the fields:
    #: the attribute of each field,
    _STORAGE: ClassVar[Mapping[str, str]] = {}
    #: the functions that convert values to their wire form, where it differs,
    _CONVERTED: ClassVar[Mapping[str, Callable[[Any, str, Any], Any]]] = {}
    #: and functions that read all values, and those that are compared.
    _read_fields: ClassVar[Any] = staticmethod(lambda self: ())
    _read_key: ClassVar[Any] = staticmethod(lambda self: ())
    _context: Any = None
    _hashed: int | None = None

    def __init_subclass__(cls, *, frozen: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if frozen:
            cls.FROZEN = True
            for name, method in vars(_FrozenMethods).items():
                if callable(method) and name not in vars(cls):
                    setattr(cls, name, method)

    def __init__(self, *arguments: Any, **values: Any) -> None:
        self._init_fields(*arguments, **values)

    @classmethod
    def obj_name(cls) -> str:
        """Return the wire name, ``<prefix>.<class name>``."""
        return f"{cls.WIRE_PREFIX}.{cls.__name__}"

    # --- checks ---

    def _init_fields(self, *arguments: Any, **values: Any) -> None:
        """Set all fields, checked; :func:`register` generates it for each class."""
        if values:
            self._refuse_unknown(values)
        self._validate()

    def _validate(self) -> None:
        """Check conditions on several fields together; raise if they contradict each other."""

    def _refuse_unknown(self, values: Mapping[str, Any]) -> NoReturn:
        name, value = next(iter(values.items()))
        subject = f"{type(self).__name__}.{name}"
        raise exceptions.InvalidInput("field name", subject, value, f"one of {sorted(self.fields)}")

    def _refuse_value(self, name: str, value: Any, error: Exception) -> NoReturn:
        """Raise ``InvalidInput`` for a value of a field, or the error if it is more specific."""
        expected = _describe(self.fields[name])
        if value is _MISSING:
            value, expected = None, f"{expected}, required"
        is_ours = isinstance(error, exceptions.ResourceObjectsError)
        if value is not None and (is_ours or not isinstance(error, _BAD_VALUE)):
            raise error
        subject = f"{type(self).__name__}.{name}"
        raise exceptions.InvalidInput("field", subject, value, expected) from error

    def _key(self) -> tuple[Any, ...]:
        """Return the compared values."""
        if self.PARTIAL:
            names = self.fields.keys() - self.NOT_COMPARED
            return tuple([getattr(self, f"_obj_{name}", _MISSING) for name in sorted(names)])
        key: tuple[Any, ...] = self._read_key(self)
        return key

    def _coerce(self, name: str, value: Any) -> Any:
        """Return a value as its field stores it.

        :raises InvalidInput: naming the field, the value and what is allowed
        """
        field = self.fields[name]
        try:
            if value is None and not field.nullable:
                raise ValueError(name)
            return field.coerce(self, name, value)
        except Exception as error:
            self._refuse_value(name, value, error)

    def _store(self, name: str, value: Any) -> None:
        """Store a value that was checked."""
        _set(self, f"_obj_{name}", value)

    def update(self, **values: Any) -> bool:
        """Set several fields at once, checked together; return whether anything changed.

        After an error nothing has changed. Cost: a copy of the object's attributes and one check of
        each value.
        """
        before = dict(self.__dict__)
        try:
            for name, value in values.items():
                if name not in self.fields:
                    self._refuse_unknown({name: value})
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
        """Raise ``FieldNotSet``: reading a field never loads it."""
        raise exceptions.FieldNotSet(f"{type(self).__name__}.{attrname} is not set")

    def obj_what_changed(self) -> set[str]:
        """Return an empty set: changes are not tracked."""
        return set()

    def obj_reset_changes(self, fields: list[str] | None = None, recursive: bool = False) -> None:
        """Do nothing: changes are not tracked."""

    # --- wire form ---

    @classmethod
    def obj_from_primitive(cls, primitive: Any, context: Any = None) -> Self:
        """Return the object of a wire form.

        :raises InvalidInput: if it is not the wire form of this kind of object
        :raises IncompatibleVersion: if its version is newer than this library knows
        """
        name, version = _read_header(cls, primitive)
        try:
            result = _class_for(cls, name, version)._obj_from_primitive(context, version, primitive)
        except exceptions.ResourceObjectsError:
            raise
        except ovo_exception.IncompatibleObjectVersion as error:
            raise IncompatibleVersion(**error.kwargs) from error
        except (ovo_exception.VersionedObjectsException, *_BAD_VALUE) as error:
            expected = f"a readable {cls.obj_name()}: {error}"
            subject = f"primitive of {name} {version}"
            raise _invalid_primitive(subject, primitive, expected) from error
        return typing.cast(Self, result)

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        """Return the object of a checked header. It never has unchecked fields.

        Unlike the method of oslo.versionedobjects this one does not set an old version on the
        object: fields that an older version lacks have their defaults.
        """
        data = primitive[_DATA]
        _check_fields(cls, objver, data)
        reader: Any = _PrimitiveReader(context)
        values = {
            name: field.from_primitive(reader, name, data[name])
            for name, field in cls.fields.items()
            if name in data
        }
        return cls._from_fields(values, context)

    def obj_to_primitive(
        self, target_version: str | None = None, version_manifest: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the wire form, in an older version if one is requested.

        :param version_manifest: ``{wire name: version}`` that the receiver can read; the versions
            of other objects follow :attr:`CHILD_VERSIONS`
        :raises CannotDowngrade: if the older version cannot express it
        :raises IncompatibleVersion: if the requested version is newer than this one
        """
        cls: Any = type(self)
        data = self._set_fields()
        for name, convert in self._CONVERTED.items():
            if name in data:
                data[name] = convert(self, name, data[name])
        version = self.VERSION if target_version is None else target_version
        if version != self.VERSION or version_manifest:
            self._check_target(version)
            _make_compatible(type(self), data, version, version_manifest)
        primitive = {
            _NAME: _wire_name(cls),
            _NAMESPACE: self.OBJ_PROJECT_NAMESPACE,
            _VERSION: version,
            _DATA: data,
        }
        if cls.obj_what_changed is not ResourceObject.obj_what_changed:
            changed = self.obj_what_changed() & data.keys()
            if changed:
                primitive[_CHANGES] = [name for name in self.fields if name in changed]
        return primitive

    def _check_target(self, target_version: str) -> None:
        target = _version_tuple(target_version)
        if target < _FIRST_VERSION:
            raise exceptions.CannotDowngrade(
                self.obj_name(), target_version, "the first version is 1.0"
            )
        if target > _version_tuple(self.VERSION):
            raise IncompatibleVersion(
                objname=self.obj_name(), objver=target_version, supported=self.VERSION
            )

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Rewrite ``primitive`` (the data of a wire form) as ``target_version``.

        Overrides undo their own changes, newest version first, and call this method, which rewrites
        the children. ``self`` has no fields: read ``primitive``.
        """
        manifest = getattr(self, "_obj_version_manifest", None)
        _downgrade_children(type(self), primitive, target_version, manifest)

    # --- copies ---

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields, checked."""
        return self._from_fields({**self._set_fields(), **changes})

    @classmethod
    def _from_fields(cls, values: Mapping[str, Any], context: Any = None) -> Self:
        """Return an object of its fields, checked; a factory replaces missing values, not None."""
        self = cls.__new__(cls)
        if context is not None and not cls.FROZEN:
            self._context = context
        self._init_fields(**values, _none_is_default=False)
        return self

    @classmethod
    def _construct(cls, /, **values: Any) -> Self:
        """Return an object of all its fields, without a check.

        The values must be those that the fields would store. For results of a search on checked
        values, where checking takes longer than the search.
        """
        self = cls.__new__(cls)
        for name, attribute in cls._STORAGE.items():
            _set(self, attribute, values[name])
        return self

    def _evolve(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields, as :meth:`_construct` without a check.

        Values of fields are shared, not copied.
        """
        twin = type(self).__new__(type(self))
        if self._context is not None:
            twin._context = self._context
        for name, attribute in self._STORAGE.items():
            value = changes[name] if name in changes else getattr(self, attribute)
            _set(twin, attribute, value)
        twin._after_copy()
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy of the object and its fields with the same context."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        if self._context is not None:
            twin._context = self._context
        for attribute in self._STORAGE.values():
            value = getattr(self, attribute, _MISSING)
            if type(value) not in _ATOMS:  # checked here, because a call of deepcopy costs more
                if value is _MISSING:
                    continue
                value = copy.deepcopy(value, memo)
            _set(twin, attribute, value)
        twin._after_copy()
        return twin

    def _after_copy(self) -> None:
        """Compute attributes that depend on the fields."""

    def __copy__(self) -> Self:
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the context, which belongs to a process."""
        return {**self.__dict__, "_context": None}

    def _set_fields(self) -> dict[str, Any]:
        """Return the values of the fields that are set, by name."""
        if not self.PARTIAL:
            return dict(zip(self._STORAGE, self._read_fields(self), strict=True))
        values = {name: getattr(self, key, _MISSING) for name, key in self._STORAGE.items()}
        return {name: value for name, value in values.items() if value is not _MISSING}

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={_show(value)}" for name, value in self._set_fields().items())
        return f"{type(self).__name__}({values})"


def _show(value: Any) -> str:
    """Return the ``repr`` of a value with sets in order, so that equal values look equal."""
    if isinstance(value, frozenset):
        items = ", ".join(sorted(map(_show, value)))
        return f"frozenset({{{items}}})" if value else "frozenset()"
    if type(value) is tuple:
        items = ", ".join(map(_show, value))
        return f"({items},)" if len(value) == 1 else f"({items})"
    return repr(value)


class _FrozenMethods:
    """The methods that ``frozen=True`` adds to a class, unless the class defines them.

    They are copied, as by ``dataclasses.dataclass(frozen=True)``, so that no base class is added.
    """

    def __eq__(self: Any, other: Any) -> Any:
        return self._key() == other._key() if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:
        hashed: int | None = self._hashed
        if hashed is None:  # computed once, because requests are keys of caches
            hashed = hash((type(self).__name__, self._key()))
            _set(self, "_hashed", hashed)
        return hashed

    def __setattr__(self: Any, name: str, value: Any) -> NoReturn:
        raise exceptions.FrozenValue(f"{type(self).__name__}.{name} cannot change; use replace()")

    def __delattr__(self: Any, name: str) -> NoReturn:
        raise exceptions.FrozenValue(f"{type(self).__name__}.{name} cannot change; use replace()")

    def update(self: Any, **values: Any) -> NoReturn:
        """Raise ``FrozenValue``; use :meth:`replace`."""
        raise exceptions.FrozenValue(f"{type(self).__name__} is a value; use replace()")

    def __copy__(self: Any) -> Any:
        return self

    def __deepcopy__(self: Any, memo: object) -> Any:
        return self

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._set_fields())


def _rebuild(cls: type[ResourceObject], values: dict[str, Any]) -> ResourceObject:
    return cls._from_fields(values)


class ResourceObjectSerializer(ovo.VersionedObjectSerializer):
    """Serializer for message buses and files: objects to primitives and back, nested anywhere."""

    OBJ_BASE_CLASS: type[ovo.VersionedObject] = ResourceObject

    def _do_backport(self, context: Any, objprim: Any, objclass: Any) -> Any:
        """Request a form that this side can read, with the versions of all classes.

        oslo.versionedobjects names only the classes that fields declare; the children may be of
        subclasses.
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

    The fields are the attributes of the class that :mod:`resource_objects.fields` makes, followed
    by those of its bases; fields with computed names are declared in a mapping named ``fields``.
    The constructor takes the fields. A class whose constructor takes something else, such as text
    to parse, defines its own, which its subclasses inherit.

    :raises InvalidInput: if another class has that name and version already, or a class of another
        distribution uses the prefix of this one
    """
    _check_name(cls)
    declared = {
        name: field
        for base in reversed(cls.__mro__)
        for name, field in vars(base).items()
        if isinstance(field, fields.Field)
    }
    cls.fields = {**vars(cls).get("fields", {}), **declared}
    ovo.VersionedObjectRegistry.register(cls)
    for name in cls.fields:
        setattr(cls, name, _property(cls, name))
    cls._init_fields = _generate_constructor(cls)  # type: ignore[method-assign]
    cls._STORAGE = {name: f"_obj_{name}" for name in cls.fields}
    cls._read_fields = _reader(list(cls._STORAGE.values()))
    cls._read_key = _reader([f"_obj_{name}" for name in cls.fields if name not in cls.NOT_COMPARED])
    cls._CONVERTED = {
        name: field.to_primitive if field.nullable else field._type.to_primitive
        for name, field in cls.fields.items()
        if type(field._type).to_primitive is not ovo_fields.FieldType.to_primitive
    }
    abc.update_abstractmethods(cls)
    return cls


def _reader(attributes: list[str]) -> Any:
    """Return a function that reads some attributes of an object at once, as a tuple."""
    if len(attributes) > 1:
        return operator.attrgetter(*attributes)
    if not attributes:
        return staticmethod(lambda self: ())
    read = operator.attrgetter(*attributes)
    return staticmethod(lambda self: (read(self),))


def _property(cls: type[ResourceObject], name: str) -> property:
    """Return the property of a field, whose setter checks."""
    getter: Any = operator.attrgetter(f"_obj_{name}")
    if cls.PARTIAL:  # the getter of oslo.versionedobjects calls obj_load_attr if it is unset
        getter = vars(cls)[name].fget

    def setter(self: ResourceObject, value: Any) -> None:
        self.update(**{name: value})

    def deleter(self: ResourceObject) -> None:
        if not self.PARTIAL or self.fields[name].read_only:
            raise exceptions.InvalidInput("field", f"{cls.__name__}.{name}", "del", "a value")
        if not self.obj_attr_is_set(name):
            self.obj_load_attr(name)
        object.__delattr__(self, f"_obj_{name}")

    return property(getter, setter, deleter, doc=f"{name}: {_describe(cls.fields[name])}")


def _describe(field: Any) -> str:
    text: str = field.describe()
    return text


def _generate_constructor(cls: type[ResourceObject]) -> Any:
    """Compile ``_init_fields`` of a class.

    For ``total: int = fields.integer(0)`` and ``traits = fields.traits(default=frozenset())``::

        def _init_fields(
            self, *, total=MISSING, traits=default_traits, _none_is_default=True, **_unknown
        ):
            if _unknown: self._refuse_unknown(_unknown)
            try:
                _name = 'total'
                if total is None or total is MISSING: raise ValueError(_name)
                total = coerce_total(self, _name, total)
                _name = 'traits'
                if traits is None: raise ValueError(_name)
                if traits is not default_traits: traits = coerce_traits(self, _name, traits)
            except Exception as _error: self._refuse_value(_name, locals()[_name], _error)
            store(self, '_obj_total', total)
            store(self, '_obj_traits', traits)
            self._validate()
    """
    scope: dict[str, Any] = {"MISSING": _MISSING, "store": _set, "deepcopy": copy.deepcopy}
    by_position: list[str] = []
    by_keyword: list[str] = []
    checks: list[str] = []
    stores: list[str] = []
    for name in cls.fields:
        field: Any = cls.fields[name]
        is_stock = type(field).coerce is ovo_fields.Field.coerce
        scope[f"coerce_{name}"] = field._type.coerce if is_stock else field.coerce
        default = "MISSING"
        refused = [] if field.nullable else ["None"]
        unchecked = ["None"] if field.nullable else []
        checks.append(f"_name = {name!r}")
        if factory := getattr(field, "factory", None):
            scope[f"factory_{name}"] = factory
            checks.append(
                f"if {name} is MISSING or (_none_is_default and {name} is None): "
                f"{name} = factory_{name}(locals())"
            )
        elif field.default is None:
            default = "None"
        elif field.default is not ovo_fields.UnspecifiedDefault:
            checked = field.coerce(None, name, copy.deepcopy(field.default))
            scope[f"default_{name}"] = checked
            if type(checked).__hash__ is None:  # it is mutable: each object has its own
                checks.append(f"if {name} is MISSING: {name} = deepcopy(default_{name})")
            else:
                default = f"default_{name}"
                unchecked.append(default)
        elif cls.PARTIAL:
            unchecked.append("MISSING")
        else:
            refused.append("MISSING")
        if refused:
            condition = " or ".join(f"{name} is {value}" for value in refused)
            checks.append(f"if {condition}: raise ValueError(_name)")
        condition = " and ".join(f"{name} is not {value}" for value in unchecked)
        coerce = f"{name} = coerce_{name}(self, _name, {name})"
        checks.append(f"if {condition}: {coerce}" if condition else coerce)
        store = f"store(self, '_obj_{name}', {name})"
        stores.append(f"if {name} is not MISSING: {store}" if cls.PARTIAL else store)
        is_keyword = getattr(field, "kw_only", True)
        (by_keyword if is_keyword else by_position).append(f"{name}={default}")
    parameters = ["self", *by_position, "*", *by_keyword, "_none_is_default=True", "**_unknown"]
    source = [
        f"def _init_fields({', '.join(parameters)}):",
        "    if _unknown: self._refuse_unknown(_unknown)",
        "    try:",
        *(f"        {line}" for line in [*checks, "pass"]),
        "    except Exception as _error: self._refuse_value(_name, locals()[_name], _error)",
        *(f"    {line}" for line in stores),
        "    self._validate()",
    ]
    exec(compile("\n".join(source), f"<constructor of {cls.__qualname__}>", "exec"), scope)
    method = scope["_init_fields"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    return method


def register_all() -> None:
    """Import every module that defines objects, so that any wire form can be read.

    Cost: the imports; nothing on the second call.
    """
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

    Classes of plug-ins, and of other projects in the same process-global registry, are left out.
    """
    register_all()
    return {
        name: typing.cast(type[ResourceObject], classes[0])
        for name, classes in sorted(ovo.VersionedObjectRegistry.obj_classes().items())
        if name.startswith(f"{NAMESPACE}.")
    }


def version_manifest() -> dict[str, str]:
    """Return ``{wire name: version}`` of all objects, which a receiver sends to its peers.

    It includes the objects of loaded plug-ins.
    """
    register_all()
    return _known_versions()


def _known_versions() -> dict[str, str]:
    return {
        name: classes[0].VERSION
        for name, classes in sorted(ovo.VersionedObjectRegistry.obj_classes().items())
        if classes and issubclass(classes[0], ResourceObject)
    }


def _check_name(cls: type[ResourceObject]) -> None:
    subject = f"wire name of {cls.__module__}.{cls.__qualname__}"
    if cls.WIRE_PREFIX == NAMESPACE != cls.__module__.partition(".")[0]:
        expected = "a WIRE_PREFIX of its own, such as the name of its distribution"
        raise exceptions.InvalidInput("name", subject, cls.obj_name(), expected)
    for other in ovo.VersionedObjectRegistry.obj_classes().get(cls.obj_name(), ()):
        is_same = (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__)
        if other.VERSION == cls.VERSION and not is_same:
            expected = f"a name not taken by {other.__module__}.{other.__qualname__}"
            raise exceptions.InvalidInput(
                "name", subject, f"{cls.obj_name()} {cls.VERSION}", expected
            )
    slots = [slot for base in cls.__mro__ for slot in base.__dict__.get("__slots__", ())]
    if slots and not cls.FROZEN:  # update() could not restore them
        expected = "none: only a value may keep fields in slots"
        raise exceptions.InvalidInput("name", f"{cls.__qualname__}.__slots__", slots, expected)


# --- wire forms -----------------------------------------------------------------------------------
# A wire form (*primitive*) is the nested dict that oslo.versionedobjects makes of an object. The
# functions below work on such dicts, so that a service can rewrite a wire form for an older reader
# without the object.


_FIRST_VERSION = (1, 0)

_NAME, _NAMESPACE, _VERSION, _DATA, _CHANGES = (
    ovo.VersionedObject._obj_primitive_key(part)
    for part in ("name", "namespace", "version", "data", "changes")
)


@functools.cache
def _wire_name(cls: Any) -> str:
    name: str = cls.obj_name()
    return name


class IncompatibleVersion(exceptions.UnsupportedVersion, ovo_exception.IncompatibleObjectVersion):
    """A wire form in a version that this library does not know.

    It is also the ``IncompatibleObjectVersion`` of oslo.versionedobjects, which its serializer
    catches to request an older version from the sender.
    """


def _invalid_primitive(subject: str, value: object, expected: str) -> exceptions.InvalidInput:
    return exceptions.InvalidInput("primitive", subject, value, expected)


def _version_tuple(version: str) -> tuple[int, ...]:
    """Return the two numbers of a version; a third one does not change the wire form."""
    try:
        major, minor, *_ = versionutils.convert_version_to_tuple(version)
    except (ValueError, TypeError, AttributeError) as error:
        raise _invalid_primitive("version", version, "a version like 1.0") from error
    return major, minor


def _read_header(cls: type[ResourceObject], primitive: Any) -> tuple[str, str]:
    """Return (name, version) of a wire form.

    :raises InvalidInput: if it does not have the structure of a wire form
    """
    if not isinstance(primitive, dict):
        raise _invalid_primitive("primitive", primitive, f"the dict of a {cls.obj_name()}")
    for key, kind in ((_NAME, str), (_NAMESPACE, str), (_VERSION, str), (_DATA, dict)):
        if not isinstance(primitive.get(key), kind):
            raise _invalid_primitive(key, primitive.get(key), f"a {kind.__name__}")
    changes = primitive.get(_CHANGES, [])
    if not isinstance(changes, list) or not all(isinstance(name, str) for name in changes):
        raise _invalid_primitive("changes", changes, "a list of field names")
    namespace = primitive[_NAMESPACE]
    if namespace != cls.OBJ_PROJECT_NAMESPACE:
        raise _invalid_primitive("namespace", namespace, cls.OBJ_PROJECT_NAMESPACE)
    _version_tuple(primitive[_VERSION])
    return primitive[_NAME], primitive[_VERSION]


def _check_fields(cls: type[ResourceObject], version: str, data: Mapping[str, Any]) -> None:
    """Raise ``InvalidInput`` unless the data have the fields of the version.

    The data of an older version may lack fields. Versions before 0.1.0 of this library also began
    at 1.0, with other fields: their wire forms are refused here.
    """
    removed = {name for name, value in cls.REMOVED_FIELDS.items() if data.get(name) == value}
    unknown = [name for name in data if name not in cls.fields and name not in removed]
    is_present = _version_tuple(version) == _version_tuple(cls.VERSION)
    missing = [] if cls.PARTIAL or not is_present else [n for n in cls.fields if n not in data]
    if unknown or missing:
        expected = f"no {unknown}" if unknown else f"also {missing}"
        raise _invalid_primitive(f"fields of {cls.obj_name()} {version}", sorted(data), expected)


def _class_for(cls: type[ResourceObject], name: str, version: str) -> Any:
    """Return the registered class of a wire name, which is ``cls`` or a subclass of it."""
    if not ovo.VersionedObjectRegistry.obj_classes().get(name):
        raise _invalid_primitive("primitive", name, "the wire name of a known object")
    objclass = cls.obj_class_from_name(name, version)
    if not issubclass(objclass, cls) and (
        objclass.obj_name() != cls.obj_name() or not hasattr(objclass, "WIRE_PREFIX")
    ):
        raise _invalid_primitive("primitive", name, f"a {cls.obj_name()}")
    return objclass


class _PrimitiveReader:
    """The object that fields get while data is read: it reads objects of any class."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def obj_from_primitive(self, primitive: Any, context: Any = None) -> ResourceObject:
        return ResourceObject.obj_from_primitive(primitive, context)


def _make_compatible(
    objclass: type[ovo.VersionedObject],
    data: dict[str, Any],
    target_version: str,
    manifest: dict[str, str] | None,
) -> None:
    """Call ``obj_make_compatible`` of a class on data, with an instance that has no fields."""
    shell = objclass.__new__(objclass)
    if manifest is not None:
        _set(shell, "_obj_version_manifest", manifest)
    shell.obj_make_compatible(data, target_version)


def _downgrade_children(
    parent: type[ResourceObject],
    data: dict[str, Any],
    target_version: str,
    manifest: dict[str, str] | None,
) -> None:
    """Rewrite the children inside a parent's data in the versions that ``target_version`` had.

    :raises CannotDowngrade: if such a version is not known or cannot express the child
    """
    for child in _children(data):
        name, version = child[_NAME], child[_VERSION]
        if manifest and name in manifest:
            target = manifest[name]
        else:
            target = _child_version(parent, name, version, target_version)
        target = min(target, version, key=_version_tuple)
        objclass = ovo.VersionedObject.obj_class_from_name(name, version)
        _make_compatible(objclass, child[_DATA], target, manifest)
        child[_VERSION] = target
        if changes := [field for field in child.pop(_CHANGES, ()) if field in child[_DATA]]:
            child[_CHANGES] = changes


def _child_version(
    parent: type[ResourceObject], name: str, version: str, target_version: str
) -> str:
    """Return the version of child ``name`` in ``target_version`` of the parent."""
    if name not in parent.CHILD_VERSIONS:
        if _version_tuple(version) == _FIRST_VERSION:
            return version
        raise exceptions.CannotDowngrade(
            parent.obj_name(), target_version, f"no rule for its child {name} {version}"
        )
    target = _version_tuple(target_version)
    versions = [
        child_version
        for parent_version, child_version in parent.CHILD_VERSIONS[name]
        if _version_tuple(parent_version) <= target
    ]
    if not versions:
        raise exceptions.CannotDowngrade(
            parent.obj_name(), target_version, f"it did not know {name} yet"
        )
    return versions[-1]


def _children(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the wire forms of the nearest objects inside a primitive."""
    if isinstance(value, dict) and _NAME in value:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _children(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _children(item)
