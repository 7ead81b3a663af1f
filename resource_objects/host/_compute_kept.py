"""Columns that are kept as they came, read when asked, written when asked.

Reading a row must not pay for what nobody asks about, and what nobody changed must come back as it
was. So the record holds a :class:`KeptColumn`: a value that knows the column as it was read, or
what it stands for as that is now, and makes either from the other when asked.
"""

from __future__ import annotations

import abc
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NoReturn, Self, TypeAlias, TypeVar

from resource_objects.exceptions import InvalidInput, InvalidRow
from resource_objects.host._compute_columns import CarriedValue

_C = TypeVar("_C")

#: ``{name of Nova's object: version}``
Versions: TypeAlias = Mapping[str, str]


class KeptColumn(abc.ABC, Generic[_C]):
    """What a column says: as it came, or what it stands for as that is now. A value: not changed.

    Equal where what it stands for is.
    """

    def __init__(
        self, origin: Any = None, now: _C | None = None, versions: Versions | None = None
    ) -> None:
        self._origin = origin
        self.now = now
        if versions is not None:
            self.versions = versions

    @functools.cached_property
    def content(self) -> _C | None:
        """What the column stands for, None if it says that there is nothing.

        :raises InvalidRow: if the column cannot be read
        """
        return self._read(self._origin) if self.now is None else self.now

    @functools.cached_property
    def versions(self) -> Versions | None:
        """The versions that the column was read in, None for the newest."""
        return None if self._origin is None else versions_in(self._origin)

    @functools.cached_property
    def column(self) -> Any:
        """What the column holds.

        :raises CannotDowngrade: if no version can say it
        """
        if self.now is None:
            return self._origin
        text = self._written(self.now)
        return text.encode() if isinstance(self._origin, bytes) else text

    @abc.abstractmethod
    def _read(self, raw: Any) -> _C | None:
        """Return what a column stands for, None for nothing."""

    @abc.abstractmethod
    def _written(self, now: _C) -> str:
        """Return the text of what it stands for, in the version of this column if that can say."""

    @abc.abstractmethod
    def to_primitive(self) -> Any:
        """Return what goes to a wire instead of the column, None where the column does."""

    @classmethod
    @abc.abstractmethod
    def from_primitive(cls, primitive: Mapping[str, Any]) -> Self:
        """Return what :meth:`to_primitive` said."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        if self.now is None and other.now is None:
            return _is_same(self._origin, other._origin)
        return bool(self._known() == other._known())

    __hash__ = None  # type: ignore[assignment]  # what it is equal to may have to be read first

    def _known(self) -> Any:
        try:
            return self.content
        except InvalidRow:
            return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        if self.now is None:
            return repr(self._origin)
        return f"{type(self).__name__}({self.now!r})"


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) and type(one) is type(other)


class KeptValue(CarriedValue):
    """The type of such a column: whatever a row holds, or what it stands for."""

    #: What the column is kept as, and the word that its wire form has.
    KIND: type[KeptColumn[Any]]
    WORD: str

    def to_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        kept = vars(obj)[f"_obj_{attr}"]  # the value may be the column already
        said = kept.to_primitive()
        return super().to_primitive(obj, attr, kept.column) if said is None else said

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        if isinstance(value, dict) and self.WORD in value:
            return self.KIND.from_primitive(value)
        return super().from_primitive(obj, attr, value)


def as_column(value: Any) -> Any:
    """Return what a column holds, also where it is kept as something else."""
    return value.column if isinstance(value, KeptColumn) else value


def column_getter(name: str) -> Callable[[Any], Any]:
    """Return what reads such a column of a record."""

    def column(record: Any) -> Any:
        if not record.obj_attr_is_set(name):
            record.obj_load_attr(name)
        return as_column(record._value(name))

    return column


# --- columns of text that is JSON -----------------------------------------------------------------


def refuse(column: str, error: InvalidInput) -> NoReturn:
    """Raise what says that a column cannot be read, and where in it.

    :raises InvalidRow: always
    """
    place = error.what.removeprefix(column).lstrip(".")
    expected = f"{error.expected} ({place})" if place else error.expected
    raise InvalidRow(column, error.value, expected) from error


def document(raw: Any) -> Any:
    """Return what the JSON text of a column says; None if it cannot be read."""
    try:
        return json.loads(raw)
    except (TypeError, ValueError, RecursionError):
        return None


def versions_in(raw: Any) -> Versions | None:
    """Return the newest version of each of Nova's objects in a column, None for plain dicts."""
    found: dict[str, tuple[int, ...]] = {}
    for name, version in _versioned(document(raw)):
        numbers = tuple(int(part) for part in version.split("."))
        found[name] = max(numbers, found.get(name, numbers))
    return {name: ".".join(map(str, numbers)) for name, numbers in found.items()} or None


def _versioned(value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _versioned(item)
    elif isinstance(value, Mapping):
        if "nova_object.name" in value:
            yield value["nova_object.name"], value["nova_object.version"]
        for item in value.values():
            yield from _versioned(item)
