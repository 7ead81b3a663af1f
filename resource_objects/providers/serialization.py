"""Strict conversion of frozen data classes to plain data (JSON) and back.

Fields at their default are not written, so files are short; a field with a default factory is
always written. Each field that is read is checked, and an error names its position in the file.
Keys are the names of fields, without the trailing underscore that distinguishes a field from a
keyword.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias, TypeVar

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import arguments

_T = TypeVar("_T")

#: ``{field name: check of each value}``; a check returns the value or raises.
Checks: TypeAlias = Mapping[str, Callable[[Any], Any]]

#: ``{type: reader}`` of types with their own form; a reader is passed the data and its position.
Readers: TypeAlias = Mapping[Any, Callable[[Any, str], Any]]
#: ``{type: writer}`` of these types; a writer returns plain data.
Writers: TypeAlias = Mapping[Any, Callable[[Any], Any]]
_NONE: Mapping[Any, Any] = types.MappingProxyType({})

#: The maximum length of a JSON text, far above the length of a plan.
MAX_LENGTH = 2**28

_SCALARS: dict[Any, str] = {int: "an integer", str: "text", bool: "true or false"}


def to_plain(value: Any, writers: Writers = _NONE) -> Any:
    """Return plain data that ``json.dumps`` takes.

    >>> from resource_objects.providers.orders import Use
    >>> to_plain(Use("1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", "VCPU", 2))["amount"]
    2
    """
    kind = type(value)
    if kind in _SCALARS or value is None:
        return value
    if kind in writers:
        return writers[kind](value)
    if dataclasses.is_dataclass(value):
        return {
            field.name.rstrip("_"): to_plain(getattr(value, field.name), writers)
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        }
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: to_plain(item, writers) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [to_plain(item, writers) for item in value] if isinstance(value, tuple) else value


def from_json(text: str | bytes, subject: str) -> Any:
    """Return the plain data of a JSON text.

    :raises InvalidInput: if the text is not JSON, or an object has a key twice
    """
    if not isinstance(text, str | bytes) or len(text) > MAX_LENGTH:
        expected = f"JSON text of at most {MAX_LENGTH} characters"
        raise exceptions.InvalidInput("text", subject, text, expected)
    try:
        return json.loads(text, object_pairs_hook=functools.partial(_once, subject))
    except (ValueError, RecursionError) as error:
        if isinstance(error, exceptions.ResourceObjectsError):
            raise
        raise exceptions.InvalidInput("text", subject, text, f"JSON text ({error})") from None


def _once(subject: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise exceptions.InvalidInput(
            "repetition", subject, [key for key, _ in pairs], "each key once"
        )
    return data


def versioned(
    data: Any, subject: str, version: int, *, oldest: int | None = None
) -> dict[str, Any]:
    """Return the plain data of a file without its ``version``.

    :param version: the version that is written
    :param oldest: the first version that is still read, ``version`` if None
    :raises InvalidInput: if it is not an object with a version
    :raises UnsupportedVersion: if it has an older or newer version
    """
    if not isinstance(data, Mapping) or type(data.get("version")) is not int:
        raise exceptions.InvalidInput(
            "field", subject, data, f'an object with "version": {version}'
        )
    if not (version if oldest is None else oldest) <= data["version"] <= version:
        readable = f"version {version}" if oldest is None else f"versions {oldest} to {version}"
        raise exceptions.UnsupportedVersion(
            f"{subject} is of version {data['version']}, this library reads {readable}"
        )
    return {key: value for key, value in data.items() if key != "version"}


def from_plain(
    kind: type[_T], data: Any, path: str, checks: Checks, readers: Readers = _NONE
) -> _T:
    """Return an instance of the data class ``kind`` from plain data.

    :param path: the position in the file, for errors
    :raises InvalidInput: if a value has the wrong type, a required field is missing or a key is
        unknown; as the class raises it
    """
    names, hints, required = _keys_of(typing.cast(Any, kind))
    values = read_fields(hints, data, path, checks, readers, required)
    return kind(**{names[key]: value for key, value in values.items()})


@functools.cache
def _keys_of(kind: Any) -> tuple[dict[str, str], dict[str, Any], frozenset[str]]:
    """Return the field and the type of each key of a data class, and the keys without a default."""
    fields = {field.name.rstrip("_"): field for field in dataclasses.fields(kind)}
    hints, missing = typing.get_type_hints(kind), dataclasses.MISSING
    return (
        {key: field.name for key, field in fields.items()},
        {key: hints[field.name] for key, field in fields.items()},
        frozenset(
            key
            for key, field in fields.items()
            if field.default is missing and field.default_factory is missing
        ),
    )


def read_fields(
    hints: Mapping[str, Any],
    data: Any,
    path: str,
    checks: Checks,
    readers: Readers,
    required: Collection[str],
) -> dict[str, Any]:
    """Return the values of an object by key.

    :param hints: the type of each key that is allowed
    :raises InvalidInput: if a value has the wrong type, a required key is missing or a key is
        unknown
    """
    if not isinstance(data, Mapping):
        raise exceptions.InvalidInput("field", path, data, "an object")
    for key in data:
        if key not in hints:
            raise exceptions.InvalidInput("field name", path, key, f"one of {', '.join(hints)}")
    values: dict[str, Any] = {}
    for key, hint in hints.items():
        if key in data:
            reader = _ValueReader(checks, readers, checks.get(key))
            values[key] = reader.read(hint, data[key], f"{path}.{key}")
        elif key in required:
            raise exceptions.InvalidInput("field", f"{path}.{key}", None, "a value")
    return values


@dataclasses.dataclass(frozen=True, slots=True)
class _ValueReader:
    """A reader of the values of one field, in lists and objects of any depth."""

    checks: Checks
    readers: Readers
    check: Callable[[Any], Any] | None

    def read(self, hint: Any, data: Any, path: str) -> Any:
        if hint in _SCALARS:
            if type(data) is not hint:
                raise exceptions.InvalidInput("field", path, data, _SCALARS[hint])
            return self._checked(data, path)
        if hint in self.readers:
            return self.readers[hint](data, path)
        if hint is datetime.datetime:
            return self._checked(_moment(data, path), path)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _member(hint, data, path)
        if dataclasses.is_dataclass(hint):
            return from_plain(typing.cast(type, hint), data, path, self.checks, self.readers)
        return self._nested(typing.get_origin(hint), typing.get_args(hint), data, path)

    def _nested(self, origin: Any, kinds: tuple[Any, ...], data: Any, path: str) -> Any:
        if origin in (typing.Union, types.UnionType):
            (kind,) = (member for member in kinds if member is not type(None))
            return None if data is None else self.read(kind, data, path)
        if issubclass(origin, Mapping):
            if not isinstance(data, Mapping):
                raise exceptions.InvalidInput("field", path, data, "an object")
            return FrozenDict(
                {
                    self.read(str, key, path): self.read(kinds[1], value, f"{path}[{key!r}]")
                    for key, value in data.items()
                }
            )
        if not isinstance(data, list | tuple):
            raise exceptions.InvalidInput("field", path, data, "a list")
        items = [self.read(kinds[0], item, f"{path}[{n}]") for n, item in enumerate(data)]
        if origin is frozenset and len(set(items)) != len(items):
            raise exceptions.InvalidInput("repetition", path, data, "each once")
        return origin(items)

    def _checked(self, value: Any, path: str) -> Any:
        if self.check is None:
            return value
        try:
            return self.check(value)
        except exceptions.InvalidInput as error:
            raise exceptions.InvalidInput("field", path, value, error.expected) from error


def _moment(data: Any, path: str) -> datetime.datetime:
    try:
        return arguments.moment(path, datetime.datetime.fromisoformat(data))
    except (TypeError, ValueError):  # InvalidInput is a ValueError
        expected = "a date and time with its offset (ISO 8601), from the year 1 to 9999 in UTC"
        raise exceptions.InvalidInput("field", path, data, expected) from None


def _member(kind: type[enum.Enum], data: Any, path: str) -> enum.Enum:
    try:
        return kind(data)
    except ValueError:
        members = ", ".join(str(member.value) for member in kind)
        raise exceptions.InvalidInput("field", path, data, f"one of {members}") from None
