"""What some rules require of a backend beyond the contract, by name.

A rule says what it requires::

    @requires(Requirement.PERSISTENCE)
    def test_a_ledger_outlives_its_backend(self, backend, url): ...

and who writes a backend says, once, what it lacks::

    class TestMine(BackendConformance):
        lacks = frozenset({Requirement.PERSISTENCE})

No rule asks for the name of a backend. Modelled on SQLAlchemy's ``testing.requirements``: what is
not lacking is tested, so that a new requirement is noticed by whoever cannot meet it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

_ATTRIBUTE = "requirements"


class Requirement(enum.Enum):
    """What a backend may lack, in words; see ``_BUILT_ON`` for what goes with it."""

    PERSISTENCE = "a ledger outlives the backend: whoever opens its URL again finds it as it was"
    SHARING = "a URL may be open several times at once, and each sees what the others wrote"
    PROCESSES = "several processes may have a URL open at once"


#: ``{requirement: those it is built on}``: who lacks one of these lacks it too.
_BUILT_ON = {Requirement.PROCESSES: {Requirement.PERSISTENCE, Requirement.SHARING}}


def requires(*requirements: Requirement) -> Callable[[_F], _F]:
    """Mark a rule with what it requires; where the backend lacks one of them it is skipped.

    >>> @requires(Requirement.PROCESSES)
    ... def test_mine() -> None: ...
    >>> lacking(test_mine, {Requirement.SHARING})
    (<Requirement.PROCESSES: 'several processes may have a URL open at once'>,)
    >>> lacking(test_mine, ())
    ()
    """

    def mark(test: _F) -> _F:
        setattr(test, _ATTRIBUTE, requirements)
        return test

    return mark


def required_by(test: Callable[..., Any]) -> tuple[Requirement, ...]:
    """Return what a rule requires."""
    return getattr(test, _ATTRIBUTE, ())


def lacking(test: Callable[..., Any], lacks: Collection[Requirement]) -> tuple[Requirement, ...]:
    """Return what a rule requires that is not there, if a backend ``lacks`` some."""
    return tuple(
        item for item in required_by(test) if not {item, *_BUILT_ON.get(item, ())}.isdisjoint(lacks)
    )
