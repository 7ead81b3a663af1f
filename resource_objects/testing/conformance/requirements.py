"""Abilities that some tests require of a backend beyond the contract.

A test declares its requirements::

    @requires(Requirement.PERSISTENCE)
    def test_a_ledger_outlives_its_backend(self, backend, url): ...

and the test class of a backend declares once the abilities that it lacks::

    class TestMine(BackendConformance):
        lacks = frozenset({Requirement.PERSISTENCE})

No test depends on the name of a backend. As in SQLAlchemy's ``testing.requirements``, all abilities
that are not declared as lacking are tested, so that a new requirement fails where it is not met.
A test, or all tests of a class, can require a capability too: it is skipped if it is listed in
:attr:`Backend.unsupported <resource_objects.providers.backend.Backend.unsupported>`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Any, TypeAlias, TypeVar

from resource_objects.providers.backend import Capability

_F = TypeVar("_F", bound=Callable[..., Any])

_ATTRIBUTE = "requirements"


class Requirement(enum.Enum):
    """An optional ability of a backend; see ``_BUILT_ON`` for its prerequisites."""

    PERSISTENCE = "a ledger outlives the backend: its URL can be opened again with the same state"
    SHARING = "a URL can be open several times at once, and each backend sees all writes"
    PROCESSES = "several processes can have a URL open at once"


_Required: TypeAlias = Requirement | Capability

#: ``{requirement: its prerequisites}``: a backend that lacks one of these lacks it too.
_BUILT_ON: dict[_Required, set[_Required]] = {
    Requirement.PROCESSES: {Requirement.PERSISTENCE, Requirement.SHARING}
}


def requires(*requirements: _Required) -> Callable[[_F], _F]:
    """Mark a test, or each test of a class; it is skipped if the backend lacks a requirement.

    >>> @requires(Requirement.PROCESSES)
    ... def test_mine() -> None: ...
    >>> lacking(test_mine, {Requirement.SHARING})
    (<Requirement.PROCESSES: 'several processes can have a URL open at once'>,)
    >>> lacking(test_mine, ())
    ()
    """

    def mark(test: _F) -> _F:
        functions: list[Any] = [test]
        if isinstance(test, type):
            functions = [value for name, value in vars(test).items() if name.startswith("test_")]
        for function in functions:
            setattr(function, _ATTRIBUTE, (*required_by(function), *requirements))
        return test

    return mark


def required_by(test: Callable[..., Any]) -> tuple[_Required, ...]:
    """Return the requirements of a test."""
    return getattr(test, _ATTRIBUTE, ())


def lacking(test: Callable[..., Any], lacks: Collection[_Required]) -> tuple[_Required, ...]:
    """Return the missing requirements of a test, if a backend ``lacks`` some."""
    return tuple(
        item for item in required_by(test) if not {item, *_BUILT_ON.get(item, ())}.isdisjoint(lacks)
    )
