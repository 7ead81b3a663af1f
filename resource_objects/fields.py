"""Field types of the library's objects: strict, and frozen where they hold several things.

oslo.versionedobjects coerces generously (``True`` to 1, ``3.9`` to 3, any text to a uuid); these
fields refuse what is not meant. Containers come out frozen (:class:`FrozenDict`, ``tuple``,
``frozenset``), so that a value cannot change behind its hash.

Each class ending in ``Field`` is what ``fields`` mappings use. Of a field's type, ``TAKES_NONE``
says whether it can make something of None, and ``HOLDS_OBJECTS`` whether there may be objects
inside that change; ``_fast`` reads both.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NoReturn, TypeVar

from resource_objects import exceptions, names, ratio
from resource_objects._ovo import base as ovo
from resource_objects._ovo import fields as ovo_fields

_T = TypeVar("_T")

Unspecified = ovo_fields.UnspecifiedDefault

#: Bounds of what is counted: a signed 64-bit integer whose negative is one too.
MAX_AMOUNT = 2**63 - 1
#: Bound of the figures that describe an inventory (Placement's schema: 2^31-1).
MAX_FIGURE = 2**31 - 1


class FrozenDict(dict[Any, Any]):
    """A dict that cannot change and can be hashed if its values can."""

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
    """A field that describes itself in words."""

    def describe(self) -> str:
        return f"{self._type.describe()}{' or None' if self.nullable else ''}"


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


class IntegerField(Field[int]):
    """A whole number from ``minimum`` to ``maximum``."""

    def __init__(
        self, minimum: int = -MAX_AMOUNT, maximum: int = MAX_AMOUNT, **kwargs: Any
    ) -> None:
        super().__init__(StrictInteger(minimum, maximum), **kwargs)


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


class ResourceClassField(Field[str]):
    """A resource class by name, as a string.

    Wire-compatible with the enum it replaces: both say the bare name. An old receiver that only
    knows the enum takes every name that its enum has; a new receiver takes any well-formed one.
    """

    def __init__(self, **kwargs: Any) -> None:
        check = Checked(names.resource_class_name, "a resource class name", "^[A-Z0-9_]{1,255}$")
        super().__init__(check, **kwargs)


class NameField(Field[str]):
    """A provider's name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Checked(names.provider_name, "a name", "^.{1,200}$"), **kwargs)


class ConsumerNameField(Field[str]):
    """A consumer's name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Checked(names.consumer_name, "a name", "^.{1,255}$"), **kwargs)


class UUIDField(Field[str]):
    """A uuid, kept as 36 lower-case characters. Anything else is refused."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Checked(names.uuid_text, "a uuid", "^[0-9a-fA-F-]{32,36}$"), **kwargs)


def _plain_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    value.encode()  # half of a surrogate pair is no text: no wire or database takes it
    return str(value)


class TextField(Field[str]):
    """Any text; nothing else is turned into text."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Checked(_plain_text, "text", ""), **kwargs)


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


class BooleanField(Field[bool]):
    """True or False."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Boolean(), **kwargs)


class RatioType(ovo_fields.FieldType[Decimal]):
    """An exact decimal; its wire form is decimal text (see :mod:`resource_objects.ratio`)."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    def coerce(self, obj: Any, attr: str, value: Any) -> Decimal:
        return ratio.to_ratio(value)

    def to_primitive(self, obj: Any, attr: str, value: Decimal) -> str:
        return f"{value:f}"

    def describe(self) -> str:
        return "a decimal of at most six places"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["string"], "pattern": r"^[0-9]+(\.[0-9]{1,6})?$"}


class RatioField(Field[Decimal]):
    """An allocation ratio."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(RatioType(), **kwargs)

    def get_schema(self) -> dict[str, Any]:
        schema = super().get_schema()
        if isinstance(schema.get("default"), Decimal):
            schema["default"] = f"{schema['default']:f}"
        return schema


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


class TimestampField(Field[datetime.datetime]):
    """A moment in UTC."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Timestamp(), **kwargs)


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
        from resource_objects.base import ResourceObject

        return ResourceObject.obj_from_primitive(value, getattr(obj, "_context", None))

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


class ObjectField(Field[Any]):
    """One object, concrete or derived."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(Nested(name), **kwargs)


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


class MapOfObjectsField(Field[FrozenDict]):
    """Objects by resource class name, of mixed kinds."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        kind = FrozenDictOf(names.resource_class_name, Nested(name), names.resource_class_order)
        super().__init__(kind, **kwargs)


class TupleOf(ovo_fields.FieldType[tuple[Any, ...]]):
    """A sequence of elements, frozen."""

    TAKES_NONE = False

    def __init__(self, element: ovo_fields.FieldType[Any]) -> None:
        super().__init__()
        self.element = element

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(attr)
        return tuple(self.element.coerce(obj, attr, item) for item in value)

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


class TupleOfObjectsField(Field[tuple[Any, ...]]):
    """A sequence of objects, of mixed kinds."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(TupleOf(Nested(name)), **kwargs)


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


class TraitField(Field[str]):
    """A trait by name."""

    def __init__(self, **kwargs: Any) -> None:
        check = Checked(names.trait_name, "a trait name", "^[A-Z0-9_]{1,255}$")
        super().__init__(check, **kwargs)


class TraitsField(Field[frozenset[str]]):
    """A set of trait names."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(FrozenSetOf(names.trait_name, "trait names"), **kwargs)


class AggregatesField(Field[frozenset[str]]):
    """A set of aggregates by name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(FrozenSetOf(names.aggregate_name, "aggregate names"), **kwargs)


class TupleOfTraitsField(Field[tuple[frozenset[str], ...]]):
    """Sets of trait names."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(TupleOf(FrozenSetOf(names.trait_name, "trait names")), **kwargs)


class TupleOfAggregatesField(Field[tuple[frozenset[str], ...]]):
    """Sets of aggregates by name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(TupleOf(FrozenSetOf(names.aggregate_name, "aggregate names")), **kwargs)


class LabelsField(Field[frozenset[str]]):
    """A set of names that people give, such as those of networks."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(FrozenSetOf(names.label, "names"), **kwargs)


class TupleOfLabelSetsField(Field[tuple[frozenset[str], ...]]):
    """Sets of names that people give, such as those of groups."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(TupleOf(FrozenSetOf(names.label, "names")), **kwargs)


class LabelField(Field[str]):
    """A name that people give: of a project, user, consumer type, aggregate or unit."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Checked(names.label, "a name", r"^\S(.*\S)?$"), **kwargs)


class TupleOfLabelsField(Field[tuple[str, ...]]):
    """Names in an order, such as units."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(TupleOf(Checked(names.label, "a name", r"^\S(.*\S)?$")), **kwargs)


class IdSet(ovo_fields.FieldType[tuple[int, ...]]):
    """Numbers of CPUs or cells, each once: kept ascending."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    _number = StrictInteger(0, MAX_FIGURE)
    #: How many there may be: what never ends is refused too.
    _MOST = 2**20

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[int, ...]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ValueError(attr)
        some = itertools.islice(value, self._MOST + 1)
        given = [self._number.coerce(obj, attr, item) for item in some]
        found = sorted(set(given))
        if len(found) != len(given) or len(given) > self._MOST:
            raise ValueError(attr)
        return tuple(found)

    def to_primitive(self, obj: Any, attr: str, value: tuple[int, ...]) -> list[int]:
        return list(value)

    def describe(self) -> str:
        return "a set of numbers from 0, each once"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["array"], "items": self._number.get_schema()}


class IdsField(Field[tuple[int, ...]]):
    """Numbers of CPUs or cells, ascending."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(IdSet(), **kwargs)


class TupleOfIdsField(Field[tuple[tuple[int, ...], ...]]):
    """Several sets of numbers, such as the CPUs of each core."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(TupleOf(IdSet()), **kwargs)


class IntegerPairs(ovo_fields.FieldType[tuple[tuple[int, int], ...]]):
    """A mapping of numbers to numbers: kept as pairs, ascending, frozen."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    _number = StrictInteger(0, MAX_AMOUNT)

    def coerce(self, obj: Any, attr: str, value: Any) -> tuple[tuple[int, int], ...]:
        given = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(given, list | tuple) or any(
            not isinstance(pair, list | tuple) or len(pair) != 2 for pair in given
        ):
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


class IntegerPairsField(Field[tuple[tuple[int, int], ...]]):
    """A mapping of numbers to numbers, such as vCPUs to CPUs."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(IntegerPairs(), **kwargs)


class ChoiceField(Field[str]):
    """One of some words."""

    def __init__(self, *words: str, **kwargs: Any) -> None:
        def check(value: object) -> str:
            if value not in words:
                raise ValueError(value)
            return str(value)

        super().__init__(
            Checked(check, f"one of {', '.join(words)}", f"^({'|'.join(words)})$"), **kwargs
        )


class CountsField(Field[FrozenDict]):
    """Whole numbers by resource class; they may be below 0."""

    def __init__(self, **kwargs: Any) -> None:
        kind = FrozenDictOf(
            names.resource_class_name,
            StrictInteger(-MAX_AMOUNT, MAX_AMOUNT),
            names.resource_class_order,
        )
        super().__init__(kind, **kwargs)
