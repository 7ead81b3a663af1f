"""Scenarios: a file that begins with a drawn tree, and says who could hold what there, and why.

The drawing (:mod:`~resource_objects.testing.drawing`) is the fixture. What follows is said by words
with a colon at the beginning of a line; lines that go on with them are indented::

    host0            VCPU 8
    └── /gpu[0-1]    PGPU 1   traits: CUSTOM_H100
    host1            VCPU 8

    Why: each GPU is a provider of its own, and one class may come from several devices.
    Difference: splits_devices

    request: Request("VCPU=2,PGPU=2", required=["CUSTOM_H100"])
    ours:
      host0: VCPU=2 of host0, PGPU=1 of host0/gpu0, PGPU=1 of host0/gpu1
    missing:
      host1: PGPU asked 2, there is none
    placement: none

    claim: job-1
    claim: job-2 PGPU=1 of host0/gpu0
      refused: CapacityException: free 0 of 1

=====================  ===========================================================================
``Why:``               the rule, or the bug, in words
``Known from:``        where else it is known from
``Difference:``        the rows of the compatibility table that it reproduces, with commas
``request:``           amounts, or a request as Python writes it; in our semantics
``query:``             a request in Placement's words, in Placement's semantics; lines are joined
``options:``           of the search, as Python writes them: ``limit=2, order="spread"``
``candidates:``        what is found, in both columns of the compatibility table
``ours:``              what is found in ours
``placement:``         what is found in Placement's
``missing:``           all that ``explain()`` says of the answer above it
``claim:``             a consumer takes what was found in the column of the request, or what is
                       said; ``refused:`` if it cannot
``release:``           a consumer gives back all
=====================  ===========================================================================

A candidate is ``host: AMOUNTS of PROVIDER, AMOUNTS of PROVIDER (GROUP), PROVIDER (GROUP)``: by
group, the one without a name first; a group that asks for nothing has a provider only. All
candidates are expected (``limit`` is None unless told), in any order unless one is asked for.
Instead of them stands ``none``, or an error: ``InvalidRequest: a part of what it says``. A line
that is indented deeper goes on with the one above it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from resource_objects import exceptions
from resource_objects.ledger import Ledger, connect
from resource_objects.testing import scenario_words as words
from resource_objects.testing.drawing import Drawing
from resource_objects.testing.scenario_steps import (
    Answer,
    Ask,
    Claim,
    Failure,
    Release,
    Run,
    Step,
)

__all__ = ["Answer", "Ask", "Claim", "Drawing", "Failure", "Release", "Scenario", "Step"]

_WORD = re.compile(r"([A-Za-z][A-Za-z ]*):(?:\s+(.*)|$)")
_ABOUT = ("why", "known from", "difference")
_ASKS = ("request", "query")
_ANSWERS = {"candidates": ("ours", "placement"), "ours": ("ours",), "placement": ("placement",)}
_ERROR = re.compile(r"[A-Z][A-Za-z]+(?::|$)")


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A drawing, what it is about, and the steps that are taken in it.

    >>> scenario = Scenario.parse('''
    ... host0          VCPU 8
    ... └── /gpu[0-1]  PGPU 1
    ...
    ... Why: devices add up.
    ...
    ... request: PGPU=2
    ... ours:
    ...   host0: PGPU=1 of host0/gpu0, PGPU=1 of host0/gpu1
    ... ''')
    >>> scenario.run()
    """

    source: str
    drawing: Drawing
    why: str
    steps: tuple[Step, ...]
    known_from: str = ""
    differences: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, *, source: str = "scenario") -> Self:
        """Return what a text says.

        :param source: where it is from, for errors
        :raises InvalidText: naming the line and what was expected there
        """
        return cls(source, **_Reader(text, source).read())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the scenario of a file."""
        path = Path(path)
        return cls.parse(path.read_text(encoding="utf-8"), source=path.name)

    def build(self, ledger: Ledger) -> None:
        """Make in a ledger what is drawn."""
        self.drawing.build(ledger)

    def failures(self, ledger: Ledger) -> list[Failure]:
        """Build it in an empty ledger, take all steps, and return what is not as it says."""
        self.build(ledger)
        run = Run(ledger)
        for step in self.steps:
            step.run(run)
        return run.failures

    def run(self, ledger: Ledger | None = None) -> None:
        """Build it in an empty ledger and take all steps.

        :param ledger: None for one in memory
        :raises AssertionError: if anything is not as it says; with all that is not
        """
        with contextlib.ExitStack() as stack:
            kept = stack.enter_context(connect("memory://")) if ledger is None else ledger
            failures = self.failures(kept)
        if failures:
            raise AssertionError("\n".join(map(str, failures)))


class _Word(NamedTuple):
    """A word with a colon, what stands behind it, and the indented lines below."""

    number: int
    word: str
    text: str
    below: tuple[tuple[int, str], ...]
    indent: int = 0  #: of the first line below; a line that is deeper goes on with the one above it

    def with_line(self, number: int, line: str) -> _Word:
        """Return this with one more line below it."""
        indent = len(line) - len(line.lstrip())
        if not self.below:
            return self._replace(below=((number, line.strip()),), indent=indent)
        if indent <= self.indent:
            return self._replace(below=(*self.below, (number, line.strip())))
        first, above = self.below[-1]
        return self._replace(below=(*self.below[:-1], (first, f"{above} {line.strip()}")))


class _Reader:
    """The parts of a scenario's text."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        lines = text.splitlines()
        first = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
        end = next((n for n in range(first, len(lines)) if not lines[n].strip()), len(lines))
        self._drawing = Drawing.parse(
            "\n".join(lines[first:end]), source=source, first_line=first + 1
        )
        self._words = list(self._split(lines, end))

    def _split(self, lines: list[str], start: int) -> Iterator[_Word]:
        found: _Word | None = None
        for number, line in enumerate(lines[start:], start + 1):
            match = _WORD.match(line)
            if match is not None:
                if found is not None:
                    yield found
                found = _Word(number, match[1].lower(), (match[2] or "").strip(), ())
            elif line.strip():
                if found is None or not line.startswith(" "):
                    raise self._wrong(number, line, "a word with a colon, or an indented line")
                found = found.with_line(number, line)
        if found is not None:
            yield found

    def _where(self, number: int) -> str:
        return f"{self._source}, line {number}"

    def _wrong(self, number: int, value: str, expected: str) -> exceptions.InvalidText:
        return exceptions.InvalidText(self._where(number), value, expected)

    def read(self) -> dict[str, Any]:
        """Return the fields of the scenario."""
        about: dict[str, str] = {}
        steps: list[Step] = []
        while self._words:
            one = self._words[0]
            if one.word in _ASKS:
                steps.append(self._ask())
                continue
            del self._words[0]
            if one.word in _ABOUT and one.word not in about and not steps:
                about[one.word] = _joined(one)
            elif one.word == "claim":
                steps.append(self._claim(one))
            elif one.word == "release":
                steps.append(Release(self._where(one.number), self._text(one)))
            else:
                known = ", ".join([*_ABOUT, *_ASKS, "claim", "release"])
                raise self._wrong(one.number, f"{one.word}:", f"one of {known}, in this order")
        if not about.get("why") or not steps:
            raise self._wrong(1, self._source, "a Why: with some words, and at least one step")
        differences = [name.strip() for name in about.get("difference", "").split(",")]
        return {
            "drawing": self._drawing,
            "why": about["why"],
            "known_from": about.get("known from", ""),
            "differences": tuple(name for name in differences if name),
            "steps": tuple(steps),
        }

    def _ask(self) -> Ask:
        one = self._words.pop(0)
        where = self._where(one.number)
        options = ""
        if self._words and self._words[0].word == "options":
            options = _joined(self._words.pop(0))
            words.option_nodes(options, where)
        answers: list[Answer] = []
        while self._words and self._words[0].word in _ANSWERS:
            answers.append(self._answer(self._words.pop(0)))
        if not answers:
            raise self._wrong(one.number, _joined(one), "candidates:, ours: or placement: after it")
        columns = [column for answer in answers for column in answer.columns]
        if len(set(columns)) < len(columns):
            raise self._wrong(one.number, _joined(one), "one answer for each column")
        return Ask(where, self._text(one), one.word == "query", options, tuple(answers))

    def _answer(self, one: _Word) -> Answer:
        missing: tuple[str, ...] | None = None
        if self._words and self._words[0].word == "missing":
            below = self._words.pop(0)
            missing = tuple(line for _, line in below.below) or (below.text,)
        where, columns = self._where(one.number), _ANSWERS[one.word]
        lines = tuple(line for _, line in one.below)
        if _ERROR.match(one.text):
            return Answer(where, columns, error=_joined(one), missing=missing)
        if bool(lines) == bool(one.text) or one.text not in ("", "none"):
            raise self._wrong(one.number, one.text, "none, an error, or candidates below")
        for number, line in one.below:
            words.candidate_key(line, self._where(number))
        return Answer(where, columns, lines, missing=missing)

    def _claim(self, one: _Word) -> Claim:
        consumer, _, text = self._text(one._replace(below=())).partition(" ")
        refused = None
        for number, line in one.below:
            word, colon, said = line.partition(": ")
            if word != "refused" or not colon or refused is not None:
                raise self._wrong(number, line, "refused: and an error")
            refused = said
        if text:
            words.amounts_of(text, self._where(one.number))
        return Claim(self._where(one.number), consumer, text, refused)

    def _text(self, one: _Word) -> str:
        if not _joined(one):
            raise self._wrong(one.number, f"{one.word}:", "something behind it")
        return _joined(one)


def _joined(one: _Word) -> str:
    return " ".join([one.text, *(line for _, line in one.below)]).strip()
