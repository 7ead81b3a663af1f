"""Changes laid over what is kept, as one write will leave it.

Nothing kept changes before ``apply``, which can be done twice: so an interrupt in the middle of it
only means to do it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

_K = TypeVar("_K")
_I = TypeVar("_I")
_V = TypeVar("_V")


class Table(Generic[_K, _V]):
    """A dict as a write will leave it; None is gone."""

    __slots__ = ("changed", "kept")

    def __init__(self, kept: dict[_K, _V]) -> None:
        self.kept = kept
        self.changed: dict[_K, _V | None] = {}

    def get(self, key: _K) -> _V | None:
        """Return what will be there."""
        return self.changed[key] if key in self.changed else self.kept.get(key)

    def __getitem__(self, key: _K) -> _V:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def put(self, key: _K, value: _V | None) -> None:
        """Set a value, or drop it if it is None."""
        self.changed[key] = value

    def items(self) -> Iterator[tuple[_K, _V]]:
        """Yield everything that will be there. Cost: linear in what is kept."""
        for key in {**self.kept, **self.changed}:
            value = self.get(key)
            if value is not None:
                yield key, value

    def changes_keys(self) -> bool:
        """Whether something comes or goes."""
        return any(value is None or key not in self.kept for key, value in self.changed.items())

    def apply(self) -> None:
        """Make it so; twice is as good as once."""
        for key, value in self.changed.items():
            _put(self.kept, key, value)


class Nested(Generic[_K, _I, _V]):
    """A dict of dicts as a write will leave it; None is gone, empty dicts are too."""

    __slots__ = ("changed", "kept")

    def __init__(self, kept: dict[_K, dict[_I, _V]]) -> None:
        self.kept = kept
        self.changed: dict[_K, dict[_I, _V | None]] = {}

    def get(self, key: _K) -> dict[_I, _V]:
        """Return a copy of what will be there. Cost: linear in it."""
        found = dict(self.kept.get(key, {}))
        for inner, value in self.changed.get(key, {}).items():
            _put(found, inner, value)
        return found

    def one(self, key: _K, inner: _I) -> _V | None:
        """Return one value that will be there."""
        changed = self.changed.get(key, {})
        return changed[inner] if inner in changed else self.kept.get(key, {}).get(inner)

    def put(self, key: _K, inner: _I, value: _V | None) -> None:
        """Set a value, or drop it if it is None."""
        self.changed.setdefault(key, {})[inner] = value

    def apply(self) -> None:
        """Make it so; twice is as good as once."""
        for key, changed in self.changed.items():
            kept = self.kept.setdefault(key, {})
            for inner, value in changed.items():
                _put(kept, inner, value)
            _put(self.kept, key, kept or None)


def _put(table: dict[_K, _V], key: _K, value: _V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
