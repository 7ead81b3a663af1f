"""What changed in a record since it was read: what is changed and changed back is no change."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Mapping
from typing import Any, Self

from resource_objects import base


class _Mark(enum.Enum):
    """Stands where no value is; an enum, because it stays itself through a pickle."""

    UNSET = enum.auto()


UNSET: Any = _Mark.UNSET


class Tracked(base.ResourceObject):
    """A record in which fields may be unset, and which compares with what was read."""

    PARTIAL = True

    #: ``{changed field: value as read}``, ``UNSET`` where that is unset or not known.
    _originals: Mapping[str, Any] = {}

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Check the whole afterwards; on any error everything is as it was."""
        before = dict(self.__dict__)
        self._changed_fields = set(self._changed_fields)
        try:
            yield
            self._validate()
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _store(self, name: str, value: Any) -> None:
        before = self._value(name)
        original = self._originals.get(name, before)
        if original is not UNSET and _same(original, value):
            object.__setattr__(self, f"_obj_{name}", original)
            self._changed_fields.discard(name)
            self._originals = {kept: was for kept, was in self._originals.items() if kept != name}
            return
        super()._store(name, value)
        if name not in self._originals:
            self._originals = {**self._originals, name: before}

    def _set(self, name: str, value: Any) -> None:
        """Set a field that follows the inventories."""
        self._store(name, self._coerce(name, value))

    def _forget(self, name: str) -> None:
        """Forget what a field was when it was read."""
        self._originals = {kept: was for kept, was in self._originals.items() if kept != name}

    def obj_what_changed(self) -> set[str]:
        """Return the names of the fields that changed; what they hold are values."""
        return {name for name in self._changed_fields if name in self.fields}

    def obj_reset_changes(self, fields: list[str] | None = None, recursive: bool = False) -> None:
        """Forget what changed: what is there now counts as read."""
        super().obj_reset_changes(fields, recursive)
        forgotten = set(self.fields if fields is None else fields)
        self._originals = {
            name: was for name, was in self._originals.items() if name not in forgotten
        }

    def _reset_to(self, changes: set[str]) -> None:
        super()._reset_to(changes)
        self._originals = dict.fromkeys(changes, UNSET)

    def _value(self, name: str, default: Any = UNSET) -> Any:
        return self.__dict__.get(f"_obj_{name}", default)

    def _has(self, name: str) -> bool:
        return self._value(name) is not UNSET

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = super().__deepcopy__(memo)
        twin._originals = dict(self._originals)
        return twin

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes


def _same(one: Any, other: Any) -> bool:
    """Return whether two values of a column are the same (True is not 1)."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


__all__ = ["UNSET", "Tracked"]
