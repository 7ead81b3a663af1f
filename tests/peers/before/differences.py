"""What the version before and this one answer differently, by name; everything else is a fault.

Answers are compared figure by figure (:func:`differing`), and each figure that differs has to be
explained by one of :data:`DIFFERENCES`.

To add a difference, add one row to :data:`DIFFERENCES`:

* a name, for the output;
* a sentence, which the documentation has: the behaviour of this version, and of the one before;
* a function of the question (as :mod:`.subjects` draws it) and of a figure that differs. It returns
  True where the difference explains the figure. Say as exactly as can be of which questions and
  which figures: what is explained too widely hides faults. ``case["kind"]`` is the subject;
  ``found.path`` is where the figure is in the answer, such as ``("done", "sqlite", 3, "used")``;
  ``found.has("figures")`` is True where a part of the path has that name. Where a step of a ledger
  differs, so do the steps after it: a row about ledgers explains these too.

Then write the page with ``python -m tests.peers.before.compare --page``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Case = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Differing:
    """A figure of two answers, by its path in them."""

    path: tuple[str | int, ...]
    before: Any
    now: Any

    def has(self, *names: str) -> bool:
        """Return whether one of some names is a part of the path."""
        return not {*names}.isdisjoint(self.path)


def differing(before: Any, now: Any, path: tuple[str | int, ...] = ()) -> Iterator[Differing]:
    """Yield the figures in which two answers differ.

    >>> for one in differing({"used": 1, "rules": ["CAPACITY"]}, {"used": 2, "rules": []}):
    ...     print(one.path, one.before, one.now)
    ('used',) 1 2
    ('rules',) ['CAPACITY'] []
    """
    if before == now and type(before) is type(now):
        return
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        for key in before:
            yield from differing(before[key], now[key], (*path, key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, pair in enumerate(zip(before, now, strict=True)):
            yield from differing(*pair, (*path, number))
    else:
        yield Differing(path, before, now)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference that has a name, and the figures that it explains."""

    name: str
    sentence: str
    explains: Callable[[Case, Differing], bool]


DIFFERENCES: list[Difference] = []


def name_of(case: Case, found: Differing) -> str | None:
    """Return the name of the difference that explains a figure, None if there is none."""
    names = (one.name for one in DIFFERENCES if one.explains(case, found))
    return next(names, None)
