"""Strict conversion of frozen data classes to plain data (JSON) and back.

Fields at their default are not written, so files are short. Each field that is read is checked, and
an error names its position in the file. Keys are the names of fields, without the trailing
underscore that distinguishes a field from a Python keyword.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import arguments

_T = TypeVar("_T")

#: ``{field name: check of each value}``; a check returns the value or raises.
Checks: TypeAlias = Mapping[str, Callable[[Any], Any]]

#: The maximum length of a JSON text, far above the length of a plan.
MAX_LENGTH = 2**28

_SCALARS: dict[Any, str] = {int: "an integer", str: "text", bool: "true or false"}


def to_plain(value: Any) -> Any:
    """Return plain data that ``json.dumps`` takes.

    >>> from resource_objects.providers.orders import Use
    >>> to_plain(Use("1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", "VCPU", 2))["amount"]
    2
    """
    if dataclasses.is_dataclass(value):
        return {
            field.name.rstrip("_"): to_plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        }
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


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
    :raises InvalidInput: if it is not an object, or has no version
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


def from_plain(kind: type[_T], data: Any, path: str, checks: Checks) -> _T:
    """Return an instance of the data class ``kind`` from plain data.

    :param path: the position in the file, for errors
    :raises InvalidInput: if a value has the wrong type, a required field is missing or a key is
        unknown; as the class raises it
    """
    if not isinstance(data, Mapping):
        raise exceptions.InvalidInput("field", path, data, "an object")
    fields = {field.name.rstrip("_"): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise exceptions.InvalidInput("field name", path, key, f"one of {', '.join(fields)}")
    hints = _hints(typing.cast(Any, kind))
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in data:
            reader = _ValueReader(checks, checks.get(key))
            values[field.name] = reader.read(hints[field.name], data[key], f"{path}.{key}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise exceptions.InvalidInput("field", f"{path}.{key}", None, "a value")
    return kind(**values)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@dataclasses.dataclass(frozen=True, slots=True)
class _ValueReader:
    """A reader of the values of one field, in lists and objects of any depth."""

    checks: Checks
    check: Callable[[Any], Any] | None

    def read(self, hint: Any, data: Any, path: str) -> Any:
        if hint in _SCALARS or hint is datetime.datetime:
            return self._checked(_scalar(hint, data, path), path)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _member(hint, data, path)
        if dataclasses.is_dataclass(hint):
            return from_plain(typing.cast(type, hint), data, path, self.checks)
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            return self._optional(typing.get_args(hint), data, path)
        return self._several(typing.get_origin(hint), typing.get_args(hint), data, path)

    def _optional(self, kinds: tuple[Any, ...], data: Any, path: str) -> Any:
        (kind,) = (member for member in kinds if member is not type(None))
        return None if data is None else self.read(kind, data, path)

    def _several(self, origin: Any, kinds: tuple[Any, ...], data: Any, path: str) -> Any:
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if not isinstance(data, Mapping):
                raise exceptions.InvalidInput("field", path, data, "an object")
            return FrozenDict(
                {
                    self._checked(_scalar(str, key, path), path): self.read(
                        kinds[1], value, f"{path}[{key!r}]"
                    )
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


def _scalar(kind: Any, data: Any, path: str) -> Any:
    if kind is datetime.datetime:
        return _moment(data, path)
    if type(data) is not kind:
        raise exceptions.InvalidInput("field", path, data, _SCALARS[kind])
    return data


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
