"""Checks of facts: what is refused is named, with the value and what was expected."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

from resource_objects.exceptions import InvalidInput


def require(condition: bool, what: str, value: object, expected: str) -> None:
    if not condition:
        raise InvalidInput(what, value, expected)


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def require_integer(
    what: str, value: object, *, least: int | None = 0, optional: bool = False
) -> None:
    """Refuse what is no integer (a bool is none) or less than ``least``."""
    if optional and value is None:
        return
    fits = is_integer(value) and (least is None or value >= least)  # type: ignore[operator]
    expected = "an integer" if least is None else f"an integer, {least} or more"
    require(fits, what, value, f"{expected}, or None" if optional else expected)


def require_text(what: str, value: object, *, optional: bool = False) -> None:
    fits = isinstance(value, str) and value != ""
    expected = "text, not empty, or None" if optional else "text, not empty"
    require(fits or (optional and value is None), what, value, expected)


def require_all(what: str, values: object, kind: type) -> None:
    """Refuse what is no tuple of things of one kind."""
    fits = isinstance(values, tuple) and all(isinstance(each, kind) for each in values)
    require(fits, what, values, f"a tuple of {kind.__name__}")


def require_ids(what: str, ids: object) -> None:
    good = (
        isinstance(ids, tuple)
        and all(map(is_integer, ids))
        and all(low < high for low, high in itertools.pairwise((-1, *ids)))
    )
    require(good, what, ids, "a tuple of integers, ascending, zero or more each")


def require_some(what: str, ids: object) -> None:
    """Refuse what is neither None nor a collection of integers."""
    fits = isinstance(ids, Collection) and all(map(is_integer, ids))
    require(ids is None or fits, what, ids, "a collection of ids, or None for all")


def require_apart(what: str, groups: Iterable[Iterable[object]]) -> None:
    """Refuse a thing that is in two groups, naming it."""
    seen: set[object] = set()
    for each in (each for group in groups for each in group):
        require(each not in seen, what, each, "each once")
        seen.add(each)
