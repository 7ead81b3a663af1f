"""Types of fields for versioned objects: strict, and frozen where a field has several elements.

oslo.versionedobjects coerces leniently (``True`` to 1, ``3.9`` to 3, any text to a uuid); these
fields reject values of another type. Containers are stored frozen (:class:`FrozenDict`, ``tuple``,
``frozenset``), so that the hash of a value cannot change.

A class declares a field as an attribute, and :func:`~resource_objects.base.register` generates its
constructor from the fields, as :mod:`dataclasses` does::

    total: int = fields.integer(0, fields.MAX_FIGURE, kw_only=False)
    traits: fields.Names = fields.traits(default=frozenset())
    pages: fields.TupleFrom[PagePool] = fields.tuple_of("PagePool", default=())

Type checkers read the annotation (PEP 681). A field that accepts other types than the stored one,
such as any iterable for a tuple, is annotated as :class:`Coerced`. The functions in the second half
of this module take the options of :class:`Field`.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NoReturn,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)

from resource_objects import exceptions, names
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields
from resource_objects.ratio import to_ratio

_T = TypeVar("_T")

Unspecified = ovo_fields.UnspecifiedDefault

#: Bound of amounts: signed 64-bit integers whose negative is one too.
MAX_AMOUNT = 2**63 - 1
#: Bound of the figures that describe an inventory (Placement's schema: 2^31-1).
MAX_FIGURE = 2**31 - 1
#: Maximum number of elements that are read from an iterable, which may be endless.
MAX_ELEMENTS = 2**17


class Shared:
    """A mixin for immutable values: a copy is the value itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class FrozenDict(dict[Any, Any]):
    """An immutable dict, which can be hashed if its values can."""

    __slots__ = ()

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise exceptions.FrozenValue("this mapping cannot change")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict sets it to None
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __copy__(self) -> FrozenDict:
        return self


class Field(ovo_fields.Field[_T]):
    """A field with a description of the values that it accepts.

    :param default: the value if the constructor gets none; with None the field is nullable
    :param nullable: whether the value may be None
    :param read_only: whether the first value is final
    :param kw_only: whether the constructor takes the field only by name; positional fields are
        declared first
    :param factory: ``factory(arguments)`` returns the value if the constructor gets None or nothing
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
        """Return the description of the accepted values, for error messages."""
        return f"{self._type.describe()}{' or None' if self.nullable else ''}"


class _Described(ovo_fields.FieldType[_T]):
    """A type of field with a fixed description."""

    DESCRIPTION: ClassVar[str]

    def describe(self) -> str:
        return self.DESCRIPTION


class StrictInteger(ovo_fields.FieldType[int]):
    """An integer in a range; bool, float and text are rejected."""

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


class Checked(ovo_fields.FieldType[str]):
    """Text that a function checks, mostly one of :mod:`resource_objects.names`.

    :param what: the description of the accepted texts
    :param pattern: a regular expression of these texts, which is part of the fingerprint of a class
    """

    def __init__(self, check: Callable[[object], str], what: str, pattern: str) -> None:
        super().__init__()
        self.check = check
        self.what = what
        self.pattern = pattern

    def coerce(self, obj: Any, attr: str, value: Any) -> str:
        return self.check(value)

    def describe(self) -> str:
        return self.what


def _plain_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    value.encode()  # half of a surrogate pair: neither JSON nor a database accepts it
    return str(value)


class Boolean(_Described[bool]):
    """True or False; 0 and 1 are rejected."""

    DESCRIPTION = "True or False"

    def coerce(self, obj: Any, attr: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(attr)
        return value


class RatioType(_Described[Decimal]):
    """An exact decimal; its wire form is decimal text (see :mod:`resource_objects.ratio`)."""

    DESCRIPTION = "a decimal of at most six places"

    def coerce(self, obj: Any, attr: str, value: Any) -> Decimal:
        return to_ratio(value)

    def to_primitive(self, obj: Any, attr: str, value: Decimal) -> str:
        return f"{value:f}"


class Timestamp(_Described[datetime.datetime]):
    """A moment in UTC, stored to the microsecond; its wire form is ISO 8601."""

    DESCRIPTION = "a date and time"

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


class Nested(ovo_fields.FieldType[Any]):
    """An object of a class or one of its subclasses.

    :param name: the name of the class; for a class of a plug-in, its wire name
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.objname = name if "." in name else f"resource_objects.{name}"

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        if self.objname not in _wire_names(type(value)):  # type: ignore[arg-type]  # classes hash
            raise ValueError(attr)
        return value

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return obj.obj_from_primitive(value, getattr(obj, "_context", None))

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        return value.obj_to_primitive()

    def describe(self) -> str:
        return f"a {self.objname.rpartition('.')[2]}"


@functools.cache
def _wire_names(cls: Any) -> frozenset[str]:
    """Return the wire names of a class and its bases."""
    return frozenset(
        base.obj_name() for base in cls.__mro__ if issubclass(base, ovo.VersionedObject)
    )


class FrozenDictOf(ovo_fields.FieldType[FrozenDict]):
    """A frozen mapping of checked keys to elements.

    :param order: the sort key of the keys
    """

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


def _read_iterable(value: Any) -> list[Any] | tuple[Any, ...]:
    """Return the elements of an iterable.

    :raises ValueError: for other values, text, mappings, and more than MAX_ELEMENTS elements
    """
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(value)
    elements = list(itertools.islice(value, MAX_ELEMENTS + 1))
    if len(elements) > MAX_ELEMENTS:
        raise ValueError(value)
    return elements


class TupleOf(ovo_fields.FieldType[tuple[Any, ...]]):
    """A tuple of elements, in the order of the argument; sets are rejected."""

    def __init__(self, element: ovo_fields.FieldType[Any]) -> None:
        super().__init__()
        self.element = element

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, set | frozenset):
            raise ValueError(attr)
        return tuple([self.element.coerce(obj, attr, item) for item in _read_iterable(value)])

    def from_primitive(self, obj: Any, attr: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(attr)
        return tuple(self.element.from_primitive(obj, attr, item) for item in value)

    def to_primitive(self, obj: Any, attr: str, value: tuple[Any, ...]) -> list[Any]:
        return [self.element.to_primitive(obj, attr, item) for item in value]

    def describe(self) -> str:
        return f"a list, each {self.element.describe()}"


class FrozenSetOf(ovo_fields.FieldType[frozenset[str]]):
    """A set of checked names, from any iterable except text and mappings."""

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


class IdSet(_Described[tuple[int, ...]]):
    """Numbers of CPUs or cells, each once, stored in ascending order."""

    DESCRIPTION = "a set of numbers from 0, each once"
    _number = StrictInteger(0, MAX_FIGURE)

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[int, ...]:
        numbers = [self._number.coerce(obj, attr, item) for item in _read_iterable(value)]
        ascending = sorted(set(numbers))
        if len(ascending) != len(numbers):
            raise ValueError(attr)
        return tuple(ascending)

    def to_primitive(self, obj: Any, attr: str, value: tuple[int, ...]) -> list[int]:
        return list(value)


class IntegerPairs(_Described[tuple[tuple[int, int], ...]]):
    """A mapping of numbers to numbers, stored as pairs in ascending order."""

    DESCRIPTION = "a mapping of numbers to numbers, each key once"
    _number = StrictInteger(0, MAX_AMOUNT)

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[tuple[int, int], ...]:
        items = list(value.items()) if isinstance(value, Mapping) else _read_iterable(value)
        if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in items):
            raise ValueError(attr)
        check = functools.partial(self._number.coerce, obj, attr)
        pairs = sorted((check(key), check(number)) for key, number in items)
        if len({key for key, _ in pairs}) != len(pairs):
            raise ValueError(attr)
        return tuple(pairs)

    def to_primitive(
        self, obj: Any, attr: str, value: tuple[tuple[int, int], ...]
    ) -> list[list[int]]:
        return [list(pair) for pair in value]


# --- declarations of fields -----------------------------------------------------------------------

_Stored = TypeVar("_Stored", covariant=True)
_Accepted = TypeVar("_Accepted", contravariant=True)
_Item = TypeVar("_Item")


class Coerced(Generic[_Stored, _Accepted]):
    """The annotation of a field that is read as one type and accepts another, wider one.

    Only type checkers use it: they take the type of the constructor's argument from ``__set__``.
    """

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: type) -> _Stored: ...
        def __get__(self, instance: Any, owner: type) -> Any: ...
        def __set__(self, instance: Any, value: _Accepted) -> None: ...


#: A tuple of elements, from any iterable.
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
    """Return a field of any type."""
    return Field(kind, **options)


def integer(minimum: int = -MAX_AMOUNT, maximum: int = MAX_AMOUNT, **options: Any) -> Any:
    """Return a field for an integer from ``minimum`` to ``maximum``."""
    return Field(StrictInteger(minimum, maximum), **options)


def boolean(**options: Any) -> Any:
    """Return a field for True or False."""
    return Field(Boolean(), **options)


def text(**options: Any) -> Any:
    """Return a field for any text; other types are not converted."""
    return Field(Checked(_plain_text, "text", ""), **options)


def choice(*words: str, **options: Any) -> Any:
    """Return a field for one of several words."""

    def check(value: object) -> str:
        if value not in words:
            raise ValueError(value)
        return str(value)

    kind = Checked(check, f"one of {', '.join(words)}", f"^({'|'.join(words)})$")
    return Field(kind, **options)


def ratio(**options: Any) -> Any:
    """Return a field for an allocation ratio (a :data:`Ratio`)."""
    return Field(RatioType(), **options)


def timestamp(**options: Any) -> Any:
    """Return a field for a moment in UTC."""
    return Field(Timestamp(), **options)


def uuid(**options: Any) -> Any:
    """Return a field for a uuid, stored as 36 lower-case characters."""
    return Field(Checked(names.uuid_text, "a uuid", "^[0-9a-fA-F-]{32,36}$"), **options)


def resource_class(**options: Any) -> Any:
    """Return a field for the name of a resource class.

    It is wire-compatible with an enum, whose wire form is the bare name too. A receiver with the
    enum accepts the names of its enum; this field accepts every well-formed name.
    """
    kind = Checked(names.resource_class_name, "a resource class name", "^[A-Z0-9_]{1,255}$")
    return Field(kind, **options)


def provider_name(**options: Any) -> Any:
    """Return a field for the name of a provider."""
    return Field(Checked(names.provider_name, "a name", "^.{1,200}$"), **options)


def consumer_name(**options: Any) -> Any:
    """Return a field for the name of a consumer."""
    return Field(Checked(names.consumer_name, "a name", "^.{1,255}$"), **options)


def trait(**options: Any) -> Any:
    """Return a field for the name of a trait."""
    return Field(Checked(names.trait_name, "a trait name", "^[A-Z0-9_]{1,255}$"), **options)


def traits(**options: Any) -> Any:
    """Return a field for a set of trait names (:data:`Names`)."""
    return Field(TRAITS, **options)


def aggregates(**options: Any) -> Any:
    """Return a field for a set of names of aggregates (:data:`Names`)."""
    return Field(AGGREGATES, **options)


def label(**options: Any) -> Any:
    """Return a field for the name of a project, user, aggregate or unit."""
    return Field(LABEL, **options)


def labels(**options: Any) -> Any:
    """Return a field for a set of names without further rules, such as those of networks."""
    return Field(LABELS, **options)


def ids(**options: Any) -> Any:
    """Return a field for numbers of CPUs or cells (:data:`Ids`)."""
    return Field(IdSet(), **options)


def integer_pairs(**options: Any) -> Any:
    """Return a field for a mapping of numbers to numbers (:data:`Pairs`), as vCPUs to CPUs."""
    return Field(IntegerPairs(), **options)


def nested(name: str, **options: Any) -> Any:
    """Return a field for one object of a class or of a subclass."""
    return Field(Nested(name), **options)


def tuple_of(element: ovo_fields.FieldType[Any] | str, **options: Any) -> Any:
    """Return a field for a tuple (:data:`TupleFrom`) of elements of a type or of a named class."""
    return Field(TupleOf(Nested(element) if isinstance(element, str) else element), **options)


def counts(**options: Any) -> Any:
    """Return a field for integers by resource class, which may be negative."""
    return map_of(StrictInteger(-MAX_AMOUNT, MAX_AMOUNT), **options)


def map_of(element: ovo_fields.FieldType[Any] | str, **options: Any) -> Any:
    """Return a field for elements of a type or of a named class by resource class."""
    kind = Nested(element) if isinstance(element, str) else element
    return Field(
        FrozenDictOf(names.resource_class_name, kind, names.resource_class_order), **options
    )
