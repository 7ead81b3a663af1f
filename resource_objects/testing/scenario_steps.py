"""What a scenario does with what is drawn: it asks, claims and releases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.requests import Request
from resource_objects.testing import scenario_words as words

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.search.candidates import Candidates

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
            parsed = words.query_request(self.text)
            asked, limit = parsed.request, parsed.limit
        else:
            asked = words.python_request(self.text, self.where)
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
            options = {"limit": limit, **words.search_options(self.options, self.where)}
            found = run.ledger.snapshot().candidates(request, **options)
            lines = [words.told(candidate, request) for candidate in found]
        except exceptions.ResourceObjectsError as error:
            said = f"{type(error).__name__}: {error}"
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
        keys = [words.candidate_key(line, self.where) for line in lines]
        has_order = "order" in words.option_nodes(self.options, self.where)
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
        what: Any = words.amounts_of(self.text, self.where) if self.text else run.last
        try:
            if what is None:
                raise exceptions.NoCandidates("nothing was asked before")
            claim = run.ledger.claim(self.consumer, what)
        except exceptions.ResourceObjectsError as error:
            said = f"{type(error).__name__}: {error}"
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
    """Whoever is left out has a reason; where nobody is found somebody is left out."""
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


def _sortable(key: tuple[str, frozenset[words.Taken]]) -> tuple[str, list[words.Taken]]:
    return key[0], sorted(key[1])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in _lines(text))


def _lines(text: str) -> Iterator[str]:
    yield from text.splitlines() or [""]
