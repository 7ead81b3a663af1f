"""Frozen data classes as plain data (JSON) and back, strictly.

What is written leaves out what is at its default, so that a file stays short; what is read is
checked field by field, and every error says where in the file it is. Keys are the names of the
fields; a trailing underscore, which keeps a name apart from a word of Python, is not written.
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

#: ``{name of a field: what checks each value of it}``; a check returns the value or raises.
Checks: TypeAlias = Mapping[str, Callable[[Any], Any]]

#: The largest text that is read as JSON: far more than any plan has.
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


def from_json(text: str | bytes, what: str) -> Any:
    """Return the plain data of a JSON text, in which no key of an object comes twice.

    :raises InvalidInput: if it is no JSON
    :raises InvalidInput: if it says something twice
    """
    if not isinstance(text, str | bytes) or len(text) > MAX_LENGTH:
        expected = f"JSON text of at most {MAX_LENGTH} characters"
        raise exceptions.InvalidInput("text", what, text, expected)
    try:
        return json.loads(text, object_pairs_hook=functools.partial(_once, what))
    except (ValueError, RecursionError) as error:
        if isinstance(error, exceptions.ResourceObjectsError):
            raise
        raise exceptions.InvalidInput("text", what, text, f"JSON text ({error})") from None


def _once(what: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise exceptions.InvalidInput(
            "repetition", what, [key for key, _ in pairs], "each key once"
        )
    return found


def versioned(data: Any, what: str, version: int, *, oldest: int | None = None) -> dict[str, Any]:
    """Return the plain data of a file without its ``version``.

    :param version: the version that is written
    :param oldest: the first version that is still read, ``version`` if None
    :raises InvalidInput: if it is not an object, or has no version
    :raises UnsupportedVersion: if it has an older or newer version
    """
    if not isinstance(data, Mapping) or type(data.get("version")) is not int:
        raise exceptions.InvalidInput("field", what, data, f'an object with "version": {version}')
    if not (version if oldest is None else oldest) <= data["version"] <= version:
        known = f"version {version}" if oldest is None else f"versions {oldest} to {version}"
        raise exceptions.UnsupportedVersion(
            f"{what} is of version {data['version']}, this library reads {known}"
        )
    return {key: value for key, value in data.items() if key != "version"}


def from_plain(kind: type[_T], data: Any, where: str, checks: Checks) -> _T:
    """Return the data class ``kind`` that plain data says.

    :param where: where in the whole it is, for errors
    :raises InvalidInput: if a value is of the wrong type, or a field that must be there is not
    :raises InvalidInput: if there is a key that is no field
    :raises InvalidInput: what the class itself refuses
    """
    if not isinstance(data, Mapping):
        raise exceptions.InvalidInput("field", where, data, "an object")
    known = {field.name.rstrip("_"): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise exceptions.InvalidInput("field name", where, key, f"one of {', '.join(known)}")
    hints = _hints(typing.cast(Any, kind))
    values: dict[str, Any] = {}
    for key, field in known.items():
        if key in data:
            reader = _ValueReader(checks, checks.get(key))
            values[field.name] = reader.read(hints[field.name], data[key], f"{where}.{key}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise exceptions.InvalidInput(
                "field", f"{where}.{key}", None, "a value: it must be there"
            )
    return kind(**values)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@dataclasses.dataclass(frozen=True, slots=True)
class _ValueReader:
    """Reads the values of one field, however deep they are in lists and objects."""

    checks: Checks
    check: Callable[[Any], Any] | None

    def read(self, hint: Any, data: Any, where: str) -> Any:
        if hint in _SCALARS or hint is datetime.datetime:
            return self._checked(_scalar(hint, data, where), where)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _member(hint, data, where)
        if dataclasses.is_dataclass(hint):
            return from_plain(typing.cast(type, hint), data, where, self.checks)
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            return self._optional(typing.get_args(hint), data, where)
        return self._several(typing.get_origin(hint), typing.get_args(hint), data, where)

    def _optional(self, kinds: tuple[Any, ...], data: Any, where: str) -> Any:
        (kind,) = (one for one in kinds if one is not type(None))
        return None if data is None else self.read(kind, data, where)

    def _several(self, origin: Any, kinds: tuple[Any, ...], data: Any, where: str) -> Any:
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if not isinstance(data, Mapping):
                raise exceptions.InvalidInput("field", where, data, "an object")
            return FrozenDict(
                {
                    self._checked(_scalar(str, key, where), where): self.read(
                        kinds[1], value, f"{where}[{key!r}]"
                    )
                    for key, value in data.items()
                }
            )
        if not isinstance(data, list | tuple):
            raise exceptions.InvalidInput("field", where, data, "a list")
        items = [self.read(kinds[0], item, f"{where}[{n}]") for n, item in enumerate(data)]
        if origin is frozenset and len(set(items)) != len(items):
            raise exceptions.InvalidInput("repetition", where, data, "each once")
        return origin(items)

    def _checked(self, value: Any, where: str) -> Any:
        if self.check is None:
            return value
        try:
            return self.check(value)
        except exceptions.InvalidInput as error:
            raise exceptions.InvalidInput("field", where, value, error.expected) from error


def _scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is datetime.datetime:
        return _moment(data, where)
    if type(data) is not kind:
        raise exceptions.InvalidInput("field", where, data, _SCALARS[kind])
    return data


def _moment(data: Any, where: str) -> datetime.datetime:
    try:
        return arguments.moment(where, datetime.datetime.fromisoformat(data))
    except (TypeError, ValueError):  # InvalidField is one too
        expected = "a date and time with its offset (ISO 8601), from the year 1 to 9999 in UTC"
        raise exceptions.InvalidInput("field", where, data, expected) from None


def _member(kind: type[enum.Enum], data: Any, where: str) -> enum.Enum:
    try:
        return kind(data)
    except ValueError:
        known = ", ".join(str(one.value) for one in kind)
        raise exceptions.InvalidInput("field", where, data, f"one of {known}") from None
