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
      host1: PGPU requested 2, there is none
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

import ast
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from resource_objects import exceptions
from resource_objects.ledger import Ledger, connect
from resource_objects.requests import Request, RequestGroup, query
from resource_objects.resources import Amounts
from resource_objects.search import order
from resource_objects.search.candidate import Candidate
from resource_objects.testing.drawing import Drawing

if TYPE_CHECKING:
    from resource_objects.search.candidates import Candidates

__all__ = [
    "Answer",
    "Ask",
    "Claim",
    "Drawing",
    "DrawnCase",
    "Failure",
    "Release",
    "Step",
]


#: One thing that a candidate takes: (suffix, provider, amounts as text); no amounts for a group
#: that asks for none.
Taken = tuple[str, str, str]

_CALLS: dict[str, Callable[..., Any]] = {
    "Order": order.Order,
    "Request": Request,
    "RequestGroup": RequestGroup,
}
_PART = re.compile(
    r"(?:(?P<amounts>[A-Z0-9_]+=[^\s]+) of )?(?P<name>.+?)(?: \((?P<suffix>[A-Za-z0-9_-]+)\))?\Z"
)
_NEXT = re.compile(r",\s+")
#: What may be said of a search.
_OPTIONS = ("limit", "per_host", "order", "seed", "budget")


def python_request(text: str, where: str) -> Request:
    """Return a request that is written as in Python, or as amounts alone. Nothing is executed.

    >>> print(python_request("PGPU=2", "line 1"))
    PGPU=2
    >>> print(python_request("Request('VCPU=1', groups=[RequestGroup('PGPU=1', suffix='a')])", ""))
    VCPU=1; a: PGPU=1
    """
    if not text.startswith("Request("):
        return Request(text)
    made: Request = _value(_expression(text, where), where)
    return made


def query_request(text: str) -> query.ParsedQuery:
    """Return what Placement's words ask; spaces between them do not count."""
    return query.parse("".join(text.split()))


def search_options(text: str, where: str) -> dict[str, Any]:
    """Return what is said of a search: ``limit=2, order="spread"``.

    >>> search_options("limit=2, order='spread'", "line 1")
    {'limit': 2, 'order': 'spread'}
    """
    return {name: _value(node, where) for name, node in option_nodes(text, where).items()}


def option_nodes(text: str, where: str) -> dict[str, ast.expr]:
    """Return the expressions of what is said of a search, by name.

    :raises InvalidInput: for what is no option
    """
    call = _expression(f"options({text})", where)
    assert isinstance(call, ast.Call)
    found = {word.arg: word.value for word in call.keywords if word.arg}
    if call.args or len(found) < len(call.keywords) or not set(found) <= set(_OPTIONS):
        raise exceptions.InvalidInput(
            "text", where, text, f"of {', '.join(_OPTIONS)}: name=value, ..."
        )
    return found


def _expression(text: str, where: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise exceptions.InvalidInput("text", where, text, "what Python reads") from error


def _value(node: ast.expr, where: str) -> Any:
    """Return the value of an expression of literals, requests and groups."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        given = [_value(one, where) for one in node.args]
        named = {word.arg: _value(word.value, where) for word in node.keywords if word.arg}
        return _CALLS[node.func.id](*given, **named)
    if isinstance(node, ast.List):
        return [_value(one, where) for one in node.elts]
    try:
        return ast.literal_eval(node)
    except (ValueError, RecursionError) as error:
        expected = f"literals and {', '.join(_CALLS)}"
        raise exceptions.InvalidInput("text", where, _source(node), expected) from error


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        return "signs within signs"


# --- candidates ---


def told(candidate: Candidate, request: Request) -> str:
    """Return a candidate as a line: the host, and what is taken of whom, by group.

    >>> from resource_objects.resources import IntegerAmount
    >>> from resource_objects.providers import Allocation
    >>> found = Candidate(host="host0", mappings={"": ("host0",), "a": ("gpu0",)}, allocations=[
    ...     Allocation(provider="host0", resource_class="VCPU", amount=IntegerAmount(1)),
    ...     Allocation(provider="gpu0", resource_class="PGPU", amount=IntegerAmount(1))])
    >>> request = Request("VCPU=1", groups=[RequestGroup("PGPU=1", suffix="a")])
    >>> print(told(found, request))
    host0: VCPU=1 of host0, PGPU=1 of gpu0 (a)
    """
    parts = ", ".join(map(_said, _taken(candidate, request)))
    return f"{candidate.host}: {parts}"


def _said(taken: Taken) -> str:
    suffix, provider, amounts = taken
    what = f"{amounts} of {provider}" if amounts else provider
    return f"{what} ({suffix})" if suffix else what


def _taken(candidate: Candidate, request: Request) -> list[Taken]:
    """Return what is taken, of whom, and for which group."""
    left = {
        (one.provider, one.resource_class): int(str(one.amount)) for one in candidate.allocations
    }
    named: list[Taken] = []
    for group in request.named:
        (provider,) = candidate.mappings[group.suffix]
        named.append((group.suffix, provider, str(group.resources)))
        for kind, amount in group.resources.items():
            left[provider, kind.name] -= int(str(amount))
    rest: dict[str, dict[str, int]] = {}
    for (provider, name), count in left.items():
        if count:
            rest.setdefault(provider, {})[name] = count
    unnamed = [("", provider, str(Amounts(amounts))) for provider, amounts in rest.items()]
    return [*unnamed, *named]


def candidate_key(line: str, where: str) -> tuple[str, frozenset[Taken]]:
    """Return what a line says of a candidate, in whatever order it says it.

    :raises InvalidInput: if it is no such line

    >>> candidate_key("host0: PGPU=1 of gpu0 (a)", "line 1")
    ('host0', frozenset({('a', 'gpu0', 'PGPU=1')}))
    """
    host, colon, rest = line.partition(": ")
    if not colon:
        raise exceptions.InvalidInput("text", where, line, "host: AMOUNTS of PROVIDER (GROUP), ...")
    parts: list[Taken] = []
    for part in _NEXT.split(rest.strip()):
        match = _PART.match(part)
        if match is None or not (match["amounts"] or match["suffix"]):
            raise exceptions.InvalidInput("text", where, part, "AMOUNTS of PROVIDER (GROUP)")
        amounts = str(Amounts(match["amounts"])) if match["amounts"] else ""
        parts.append((match["suffix"] or "", match["name"], amounts))
    if len(set(parts)) < len(parts):
        raise exceptions.InvalidInput("text", where, line, "each part once")
    return host.strip(), frozenset(parts)


def amounts_of(text: str, where: str) -> dict[str, Amounts]:
    """Return what is taken of whom: ``VCPU=1 of host0, PGPU=1 of gpu0``."""
    _, parts = candidate_key(f"somewhere: {text}", where)
    if any(suffix or not amounts for suffix, _, amounts in parts):
        raise exceptions.InvalidInput(
            "text", where, text, "AMOUNTS of PROVIDER, ... without groups"
        )
    found: dict[str, Amounts] = {}
    for _, provider, amounts in sorted(parts):
        found[provider] = found.get(provider, Amounts()) + Amounts(amounts)
    return found


# --- what a case does: it asks, claims and releases ---


#: The two columns of the compatibility table, with what a request says for each.
COLUMNS = {"ours": None, "placement": "placement"}


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """What is not as a scenario says."""

    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}\n  expected:\n{_indented(self.expected)}\n  found:\n" + _indented(
            self.found
        )


@dataclasses.dataclass
class Run:
    """A scenario while it runs: the ledger, what was found last, what went wrong."""

    ledger: Ledger
    last: Candidates | None = None
    failures: list[Failure] = dataclasses.field(default_factory=list)

    def fail(self, where: str, expected: Iterable[str], found: Iterable[str]) -> None:
        """Note that something is not as it should be."""
        self.failures.append(Failure(where, "\n".join(expected), "\n".join(found)))


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What is answered in some columns: candidates, or an error; and why others are missing."""

    where: str
    columns: tuple[str, ...]
    candidates: tuple[str, ...] = ()
    error: str | None = None
    missing: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """A request, and what is answered.

    Every candidate is claimed and released again: who could hold it, can; and everybody who is left
    out has a reason (law 6).
    """

    where: str
    text: str
    is_query: bool
    options: str
    answers: tuple[Answer, ...]

    def request(self, column: str) -> tuple[Request, int | None]:
        """Return the request as it is read in a column, and the limit that it says itself."""
        limit = None
        if self.is_query:
            parsed = query_request(self.text)
            asked, limit = parsed.request, parsed.limit
        else:
            asked = python_request(self.text, self.where)
        return asked.replace(compatibility=COLUMNS[column]), limit

    @property
    def own_column(self) -> str:
        """The column that the request is in unless told otherwise."""
        return "placement" if self.is_query else "ours"

    def run(self, run: Run) -> None:
        """Ask, and compare."""
        for answer in self.answers:
            for column in answer.columns:
                self._compare(run, answer, column)

    def _compare(self, run: Run, answer: Answer, column: str) -> None:
        where = f"{answer.where}, {column}"
        try:
            request, limit = self.request(column)
            options = {"limit": limit, **search_options(self.options, self.where)}
            found = run.ledger.snapshot().candidates(request, **options)
            lines = [told(candidate, request) for candidate in found]
        except exceptions.ResourceObjectsError as error:
            said = f"{error.code}: {error}"
            if answer.error is None or not _says(said, answer.error):
                run.fail(where, [answer.error or "\n".join(answer.candidates) or "none"], [said])
            return
        if answer.error is not None:
            run.fail(where, [answer.error], lines or ["none"])
        elif self._keys(lines) != self._keys(answer.candidates):
            run.fail(where, answer.candidates or ["none"], lines or ["none"])
        self._compare_missing(run, answer, found, where)
        _check_reasons(run, found, where)
        for candidate in found:
            _try(run, candidate, where)
        if column == self.own_column:
            run.last = found

    def _keys(self, lines: Iterable[str]) -> list[Any]:
        """Return what lines say; in their order if the search has one."""
        keys = [candidate_key(line, self.where) for line in lines]
        has_order = "order" in option_nodes(self.options, self.where)
        return keys if has_order else sorted(keys, key=_sortable)

    def _compare_missing(self, run: Run, answer: Answer, found: Candidates, where: str) -> None:
        if answer.missing is None:
            return
        told = [" ".join(line.split()) for line in str(found.explain()).splitlines()]
        if told != [" ".join(line.split()) for line in answer.missing]:
            run.fail(f"{where}, missing", answer.missing, told)


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A consumer takes what was found last, or what is said; it may be refused."""

    where: str
    consumer: str
    text: str
    refused: str | None = None

    def run(self, run: Run) -> None:
        """Claim."""
        what: Any = amounts_of(self.text, self.where) if self.text else run.last
        try:
            if what is None:
                raise exceptions.NoCandidates("nothing was asked before")
            claim = run.ledger.claim(self.consumer, what)
        except exceptions.ResourceObjectsError as error:
            said = f"{error.code}: {error}"
            if self.refused is None or not _says(said, self.refused):
                run.fail(self.where, [self.refused or "a claim"], [said])
        else:
            if self.refused is not None:
                run.fail(self.where, [self.refused], [str(claim)])


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """A consumer gives back all it has."""

    where: str
    consumer: str

    def run(self, run: Run) -> None:
        """Release."""
        try:
            run.ledger.release(self.consumer)
        except exceptions.ResourceObjectsError as error:
            run.fail(self.where, ["a release"], [f"{type(error).__name__}: {error}"])


Step = Ask | Claim | Release


def _check_reasons(run: Run, found: Candidates, where: str) -> None:
    told = dict(found.explain().by_host())
    without = [host for host, reasons in told.items() if not reasons]
    if without or not (found or told or not run.ledger.snapshot().hosts):
        run.fail(f"{where}, reasons", ["one for everybody who is left out"], [*without, "none"])


def _try(run: Run, candidate: Any, where: str) -> None:
    try:
        run.ledger.claim("who-tries", candidate)
    except exceptions.ResourceObjectsError as error:
        run.fail(where, [f"a candidate that can be claimed: {candidate}"], [str(error)])
    else:
        run.ledger.release("who-tries")


def _says(found: str, wanted: str) -> bool:
    """Return whether an error is one: its type, and what it says, or a part of that."""
    kind, _, text = wanted.partition(":")
    return found.partition(":")[0] == kind and text.strip() in found


def _sortable(key: tuple[str, frozenset[Taken]]) -> tuple[str, list[Taken]]:
    return key[0], sorted(key[1])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in _lines(text))


def _lines(text: str) -> Iterator[str]:
    yield from text.splitlines() or [""]


# --- the file ---


_WORD = re.compile(r"([A-Za-z][A-Za-z ]*):(?:\s+(.*)|$)")
_ABOUT = ("why", "known from", "difference")
_ASKS = ("request", "query")
_ANSWERS = {"candidates": ("ours", "placement"), "ours": ("ours",), "placement": ("placement",)}
_ERROR = re.compile(r"[A-Z][A-Za-z]+(?::|$)")


@dataclasses.dataclass(frozen=True)
class DrawnCase:
    """A drawing, what it is about, and the steps that are taken in it.

    >>> case = DrawnCase.parse('''
    ... host0          VCPU 8
    ... └── /gpu[0-1]  PGPU 1
    ...
    ... Why: devices add up.
    ...
    ... request: PGPU=2
    ... ours:
    ...   host0: PGPU=1 of host0/gpu0, PGPU=1 of host0/gpu1
    ... ''')
    >>> case.run()
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
        :raises InvalidInput: naming the line and what was expected there
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

    def _wrong(self, number: int, value: str, expected: str) -> exceptions.InvalidInput:
        return exceptions.InvalidInput("text", self._where(number), value, expected)

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
            option_nodes(options, where)
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
            candidate_key(line, self._where(number))
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
            amounts_of(text, self._where(one.number))
        return Claim(self._where(one.number), consumer, text, refused)

    def _text(self, one: _Word) -> str:
        if not _joined(one):
            raise self._wrong(one.number, f"{one.word}:", "something behind it")
        return _joined(one)


def _joined(one: _Word) -> str:
    return " ".join([one.text, *(line for _, line in one.below)]).strip()
