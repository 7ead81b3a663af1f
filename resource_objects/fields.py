"""Field types of the library's objects: strict, and frozen where they hold several things.

oslo.versionedobjects coerces generously (``True`` to 1, ``3.9`` to 3, any text to a uuid); these
fields refuse what is not meant. Containers come out frozen (:class:`FrozenDict`, ``tuple``,
``frozenset``), so that a value cannot change behind its hash.

A class states a field once, as an attribute, and :func:`~resource_objects.base.register` makes its
constructor of them, as :mod:`dataclasses` does::

    total: int = fields.integer(0, fields.MAX_FIGURE, kw_only=False)
    traits: fields.Names = fields.traits(default=frozenset())
    pages: fields.TupleFrom[PagePool] = fields.tuple_of("PagePool", default=())

The annotation is what type checkers read (PEP 681). Where a field takes more than it keeps, such as
any iterable for a tuple, it is a :class:`Coerced`. All functions of the second half take the
options of :class:`Field`. Of a field's type, ``TAKES_NONE`` says whether it can make something of
None, and ``HOLDS_OBJECTS`` whether there may be objects inside that change; ``_fast`` reads both.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeAlias, TypeVar, overload

from resource_objects import exceptions, names
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields
from resource_objects.ratio import to_ratio

_T = TypeVar("_T")

Unspecified = ovo_fields.UnspecifiedDefault

#: Bounds of what is counted: a signed 64-bit integer whose negative is one too.
MAX_AMOUNT = 2**63 - 1
#: Bound of the figures that describe an inventory (Placement's schema: 2^31-1).
MAX_FIGURE = 2**31 - 1
#: How many there may be of what is gone through to be kept: what never ends is refused too.
MAX_ELEMENTS = 2**17


class Shared:
    """A value that never changes: a copy of it is the value itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class FrozenDict(dict[Any, Any]):
    """A dict that cannot change and can be hashed if its values can."""

    __slots__ = ()

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise exceptions.FrozenValue("this mapping cannot change")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict's None is what we replace
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __copy__(self) -> FrozenDict:
        return self


class Field(ovo_fields.Field[_T]):
    """A field that describes itself in words.

    :param default: what it is if nobody says; a field whose default is None may be None
    :param nullable: whether it may be None
    :param read_only: whether it stays as it was set first
    :param kw_only: whether the constructor takes it by name only; those it takes by place have to
        stand first
    :param factory: ``factory(values)`` makes what the constructor puts for None, from the others
    """

    def __init__(
        self,
        kind: ovo_fields.FieldType[_T],
        *,
        default: Any = Unspecified,
        nullable: bool = False,
        read_only: bool = False,
        kw_only: bool = True,
        factory: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        super().__init__(kind, nullable or default is None, default, read_only)
        self.kw_only = kw_only
        self.factory = factory

    def describe(self) -> str:
        return f"{self._type.describe()}{' or None' if self.nullable else ''}"

    def get_schema(self) -> dict[str, Any]:
        """Return the JSON schema; the default stands in it as it is sent."""
        schema: dict[str, Any] = super().get_schema()
        if schema.get("default") is not None:
            schema["default"] = self.to_primitive(None, "default", schema["default"])  # type: ignore[arg-type]
        return schema


class StrictInteger(ovo_fields.FieldType[int]):
    """A whole number in a range; bool, float and text are refused."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    def __init__(self, minimum: int, maximum: int) -> None:
        super().__init__()
        self.minimum = minimum
        self.maximum = maximum

    def coerce(self, obj: Any, attr: str, value: Any) -> int:
        if type(value) is not int or not self.minimum <= value <= self.maximum:
            raise ValueError(attr)
        return value

    def describe(self) -> str:
        return f"an integer from {self.minimum} to {self.maximum}"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["integer"], "minimum": self.minimum, "maximum": self.maximum}


class Checked(ovo_fields.FieldType[str]):
    """Text that a function of :mod:`resource_objects.names` accepts."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    def __init__(self, check: Callable[[object], str], what: str, pattern: str) -> None:
        super().__init__()
        self.check = check
        self.what = what
        self.pattern = pattern

    def coerce(self, obj: Any, attr: str, value: Any) -> str:
        return self.check(value)

    def describe(self) -> str:
        return self.what

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["string"], "pattern": self.pattern}


def _plain_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    value.encode()  # half of a surrogate pair is no text: no wire or database takes it
    return str(value)


class Boolean(ovo_fields.FieldType[bool]):
    """True or False, nothing that only looks like it."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    def coerce(self, obj: Any, attr: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(attr)
        return value

    def describe(self) -> str:
        return "True or False"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["boolean"]}


class RatioType(ovo_fields.FieldType[Decimal]):
    """An exact decimal; its wire form is decimal text (see :mod:`resource_objects.ratio`)."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    def coerce(self, obj: Any, attr: str, value: Any) -> Decimal:
        return to_ratio(value)

    def to_primitive(self, obj: Any, attr: str, value: Decimal) -> str:
        return f"{value:f}"

    def describe(self) -> str:
        return "a decimal of at most six places"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["string"], "pattern": r"^[0-9]+(\.[0-9]{1,6})?$"}


class Timestamp(ovo_fields.FieldType[datetime.datetime]):
    """A moment in UTC, kept to the microsecond; its wire form is ISO 8601."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    def coerce(self, obj: Any, attr: str, value: Any) -> datetime.datetime:
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
        if not isinstance(value, datetime.datetime):
            raise ValueError(attr)
        if value.tzinfo is None:
            return value.replace(tzinfo=datetime.UTC)
        return value.astimezone(datetime.UTC)

    def to_primitive(self, obj: Any, attr: str, value: datetime.datetime) -> str:
        return value.isoformat()

    def describe(self) -> str:
        return "a date and time"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["string"], "format": "date-time"}


class Nested(ovo_fields.FieldType[Any]):
    """An object of a class, or of one derived from it, by class name (a plug-in's: wire name)."""

    TAKES_NONE = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self.objname = name if "." in name else f"resource_objects.{name}"

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        if self.objname not in _family(type(value)):  # type: ignore[arg-type]  # classes hash
            raise ValueError(attr)
        return value

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return obj.obj_from_primitive(value, getattr(obj, "_context", None))

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return value.obj_to_primitive()

    def describe(self) -> str:
        return f"a {self.objname.rpartition('.')[2]}"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["object"], "description": self.objname}


@functools.cache
def _family(cls: Any) -> frozenset[str]:
    """Return the wire names of a class and its bases."""
    return frozenset(
        base.obj_name() for base in cls.__mro__ if issubclass(base, ovo.VersionedObject)
    )


class FrozenDictOf(ovo_fields.FieldType[FrozenDict]):
    """A mapping of checked keys to elements, frozen, in a fixed order of the keys."""

    TAKES_NONE = False

    def __init__(
        self,
        key: Callable[[object], str],
        element: ovo_fields.FieldType[Any],
        order: Callable[[str], Any] = str,
    ) -> None:
        super().__init__()
        self.key = key
        self.order = order
        self.element = element

    def coerce(self, obj: Any, attr: str, value: Any) -> FrozenDict:
        if not isinstance(value, Mapping):
            raise ValueError(attr)
        checked = {self.key(k): self.element.coerce(obj, attr, v) for k, v in value.items()}
        return FrozenDict({k: checked[k] for k in sorted(checked, key=self.order)})

    def from_primitive(self, obj: Any, attr: str, value: Any) -> FrozenDict:
        if not isinstance(value, Mapping):
            raise ValueError(attr)
        return FrozenDict({k: self.element.from_primitive(obj, attr, v) for k, v in value.items()})

    def to_primitive(self, obj: Any, attr: str, value: FrozenDict) -> dict[str, Any]:
        return {k: self.element.to_primitive(obj, attr, v) for k, v in value.items()}

    def describe(self) -> str:
        return f"a mapping of names to {self.element.describe()}"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["object"], "additionalProperties": self.element.get_schema()}


def _listed(value: Any) -> list[Any] | tuple[Any, ...]:
    """Return what can be gone through and ends.

    :raises ValueError: for anything else, and for text and mappings
    """
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(value)
    found = list(itertools.islice(value, MAX_ELEMENTS + 1))
    if len(found) > MAX_ELEMENTS:
        raise ValueError(value)
    return found


class TupleOf(ovo_fields.FieldType[tuple[Any, ...]]):
    """Elements in the order they are given, frozen."""

    TAKES_NONE = False

    def __init__(self, element: ovo_fields.FieldType[Any]) -> None:
        super().__init__()
        self.element = element

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, set | frozenset):
            raise ValueError(attr)  # it has no order
        return tuple([self.element.coerce(obj, attr, item) for item in _listed(value)])

    def from_primitive(self, obj: Any, attr: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(attr)
        return tuple(self.element.from_primitive(obj, attr, item) for item in value)

    def to_primitive(self, obj: Any, attr: str, value: tuple[Any, ...]) -> list[Any]:
        return [self.element.to_primitive(obj, attr, item) for item in value]

    def describe(self) -> str:
        return f"a list, each {self.element.describe()}"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["array"], "items": self.element.get_schema()}


class FrozenSetOf(ovo_fields.FieldType[frozenset[str]]):
    """A set of checked names, from any iterable but text."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    def __init__(self, check: Callable[[object], str], what: str) -> None:
        super().__init__()
        self.check = check
        self.what = what

    def coerce(self, obj: Any, attr: str, value: Any) -> frozenset[str]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ValueError(attr)
        return frozenset(self.check(item) for item in value)

    def to_primitive(self, obj: Any, attr: str, value: frozenset[str]) -> list[str]:
        return sorted(value)

    def describe(self) -> str:
        return f"a set of {self.what}"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["array"], "items": {"type": ["string"]}}


class IdSet(ovo_fields.FieldType[tuple[int, ...]]):
    """Numbers of CPUs or cells, each once: kept ascending."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    _number = StrictInteger(0, MAX_FIGURE)

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[int, ...]:
        given = [self._number.coerce(obj, attr, item) for item in _listed(value)]
        found = sorted(set(given))
        if len(found) != len(given):
            raise ValueError(attr)
        return tuple(found)

    def to_primitive(self, obj: Any, attr: str, value: tuple[int, ...]) -> list[int]:
        return list(value)

    def describe(self) -> str:
        return "a set of numbers from 0, each once"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["array"], "items": self._number.get_schema()}


class IntegerPairs(ovo_fields.FieldType[tuple[tuple[int, int], ...]]):
    """A mapping of numbers to numbers: kept as pairs, ascending, frozen."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    _number = StrictInteger(0, MAX_AMOUNT)

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[tuple[int, int], ...]:
        given = list(value.items()) if isinstance(value, Mapping) else _listed(value)
        if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in given):
            raise ValueError(attr)
        check = functools.partial(self._number.coerce, obj, attr)
        found = sorted((check(key), check(number)) for key, number in given)
        if len({key for key, _ in found}) != len(found):
            raise ValueError(attr)
        return tuple(found)

    def to_primitive(
        self, obj: Any, attr: str, value: tuple[tuple[int, int], ...]
    ) -> list[list[int]]:
        return [list(pair) for pair in value]

    def describe(self) -> str:
        return "a mapping of numbers to numbers, each key once"

    def get_schema(self) -> dict[str, Any]:
        pair = {"type": ["array"], "items": self._number.get_schema(), "minItems": 2, "maxItems": 2}
        return {"type": ["array"], "items": pair}


# --- what a class states --------------------------------------------------------------------------

_Kept = TypeVar("_Kept", covariant=True)
_Given = TypeVar("_Given", contravariant=True)
_Item = TypeVar("_Item")


class Coerced(Generic[_Kept, _Given]):
    """The annotation of a field that is read as one type and made of another, wider one.

    For type checkers alone: they take the constructor's argument from ``__set__``.
    """

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: type) -> _Kept: ...
        def __get__(self, instance: Any, owner: type) -> Any: ...
        def __set__(self, instance: Any, value: _Given) -> None: ...


#: Elements in an order, of whatever can be gone through.
TupleFrom: TypeAlias = Coerced[tuple[_Item, ...], Iterable[_Item]]
#: A set of names.
Names: TypeAlias = Coerced[frozenset[str], Iterable[str]]
#: Numbers, ascending, each once.
Ids: TypeAlias = Coerced[tuple[int, ...], Iterable[int]]
#: Pairs of numbers, ascending, each key once.
Pairs: TypeAlias = Coerced[
    tuple[tuple[int, int], ...], Mapping[int, int] | Iterable[tuple[int, int]]
]
#: An exact decimal.
Ratio: TypeAlias = Coerced[Decimal, Decimal | int | str | float]

LABEL = Checked(names.label, "a name", r"^\S(.*\S)?$")
LABELS = FrozenSetOf(names.label, "names")
TRAITS = FrozenSetOf(names.trait_name, "trait names")
AGGREGATES = FrozenSetOf(names.aggregate_name, "aggregate names")


def field(kind: ovo_fields.FieldType[Any], **options: Any) -> Any:
    """Return a field of any kind."""
    return Field(kind, **options)


def integer(minimum: int = -MAX_AMOUNT, maximum: int = MAX_AMOUNT, **options: Any) -> Any:
    """Return the field of a whole number from ``minimum`` to ``maximum``."""
    return Field(StrictInteger(minimum, maximum), **options)


def boolean(**options: Any) -> Any:
    """Return the field of True or False."""
    return Field(Boolean(), **options)


def text(**options: Any) -> Any:
    """Return the field of any text; nothing else is turned into text."""
    return Field(Checked(_plain_text, "text", ""), **options)


def choice(*words: str, **options: Any) -> Any:
    """Return the field of one of some words."""

    def check(value: object) -> str:
        if value not in words:
            raise ValueError(value)
        return str(value)

    kind = Checked(check, f"one of {', '.join(words)}", f"^({'|'.join(words)})$")
    return Field(kind, **options)


def ratio(**options: Any) -> Any:
    """Return the field of an allocation ratio (a :data:`Ratio`)."""
    return Field(RatioType(), **options)


def timestamp(**options: Any) -> Any:
    """Return the field of a moment in UTC."""
    return Field(Timestamp(), **options)


def uuid(**options: Any) -> Any:
    """Return the field of a uuid, kept as 36 lower-case characters. Anything else is refused."""
    return Field(Checked(names.uuid_text, "a uuid", "^[0-9a-fA-F-]{32,36}$"), **options)


def resource_class(**options: Any) -> Any:
    """Return the field of a resource class by name, as a string.

    Wire-compatible with an enum: both say the bare name. A receiver that only knows the enum takes
    every name that its enum has; this one takes any well-formed one.
    """
    kind = Checked(names.resource_class_name, "a resource class name", "^[A-Z0-9_]{1,255}$")
    return Field(kind, **options)


def provider_name(**options: Any) -> Any:
    """Return the field of a provider's name."""
    return Field(Checked(names.provider_name, "a name", "^.{1,200}$"), **options)


def consumer_name(**options: Any) -> Any:
    """Return the field of a consumer's name."""
    return Field(Checked(names.consumer_name, "a name", "^.{1,255}$"), **options)


def trait(**options: Any) -> Any:
    """Return the field of a trait by name."""
    return Field(Checked(names.trait_name, "a trait name", "^[A-Z0-9_]{1,255}$"), **options)


def traits(**options: Any) -> Any:
    """Return the field of a set of trait names (a :data:`Names`)."""
    return Field(TRAITS, **options)


def aggregates(**options: Any) -> Any:
    """Return the field of a set of aggregates by name (a :data:`Names`)."""
    return Field(AGGREGATES, **options)


def label(**options: Any) -> Any:
    """Return the field of a name that people give: of a project, user, aggregate or unit."""
    return Field(LABEL, **options)


def labels(**options: Any) -> Any:
    """Return the field of a set of names that people give, such as those of networks."""
    return Field(LABELS, **options)


def ids(**options: Any) -> Any:
    """Return the field of numbers of CPUs or cells (an :data:`Ids`)."""
    return Field(IdSet(), **options)


def integer_pairs(**options: Any) -> Any:
    """Return the field of a mapping of numbers to numbers (:data:`Pairs`), as vCPUs to CPUs."""
    return Field(IntegerPairs(), **options)


def nested(name: str, **options: Any) -> Any:
    """Return the field of one object of a class, or of one derived from it."""
    return Field(Nested(name), **options)


def tuple_of(element: ovo_fields.FieldType[Any] | str, **options: Any) -> Any:
    """Return the field of elements in an order (a :data:`TupleFrom`); objects by class name."""
    return Field(TupleOf(Nested(element) if isinstance(element, str) else element), **options)


def counts(**options: Any) -> Any:
    """Return the field of whole numbers by resource class; they may be below 0."""
    return map_of(StrictInteger(-MAX_AMOUNT, MAX_AMOUNT), **options)


def map_of(element: ovo_fields.FieldType[Any] | str, **options: Any) -> Any:
    """Return the field of elements by resource class; objects by the name of their class."""
    kind = Nested(element) if isinstance(element, str) else element
    return Field(
        FrozenDictOf(names.resource_class_name, kind, names.resource_class_order), **options
    )
