"""The command that lists the candidates of a request."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import request_arguments as arguments
from resource_objects.cli.base import (
    Busy,
    Lister,
    Many,
    Refused,
    SearchCutShort,
    Table,
    Text,
    expired_lines,
    misused,
)
from resource_objects.cli.consumer import COLUMNS, allocation_rows
from resource_objects.cli.job import refused

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Allocation, Claim
    from resource_objects.providers.listing import ListedProvider
    from resource_objects.search import Candidate, Candidates

#: As in ``openstack allocation candidate list``.
_COLUMNS = ("#", "allocation", "resource provider", "inventory used/capacity", "traits")
#: Further columns.
_SOMETIMES = ("groups", "units")
#: The number of providers that are read at once.
_PAGE = 500


class ListCandidates(Lister):
    """List the candidates of a request: each is a complete placement of it.

    The options are those of `openstack allocation candidate list`, and further ones. Nothing is
    allocated, unless --claim is specified. If there is no candidate, prints the reasons of each
    host (exit status 1, with --claim 75 if other consumers use the resources); if the budget was
    exhausted before that was known, exits with status 3.
    """

    columns = (*_COLUMNS, *_SOMETIMES)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_request(parser)
        arguments.add_search(parser)
        parser.add_argument(
            "--claim", metavar="CONSUMER", help="take it for this consumer; prints what was taken"
        )
        parser.add_argument(
            "--explain", action="store_true", help="say why the others cannot, even if some can"
        )
        parser.add_argument(
            "--json", action="store_true", help="the whole answer as one document, for programs"
        )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List the candidates. The status of a document is 0 if there is a candidate."""
        self._status = 0
        super().run(parsed_args)
        return self._status

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Search, and claim if that is requested."""
        with misused():
            parsed = arguments.parse_request(parsed_args)
            options = arguments.parse_search(parsed_args, parsed.limit)
        with self.open_ledger() as ledger:
            snapshot = ledger.snapshot(parsed_args.at)
            with misused():
                candidates = snapshot.candidates(parsed.request, **options)
            listed = _listed(candidates)
            self._check(ledger, candidates, listed, parsed_args)
            claim = None
            if parsed_args.claim is not None and listed:
                try:
                    claim = ledger.claim(parsed_args.claim, candidates)
                except exceptions.CapacityException as refusal:
                    raise refused(ledger, parsed_args.claim, candidates, refusal) from refusal
            self._note(candidates, listed, parsed_args)
            if parsed_args.json:
                answer = _document(ledger, candidates, listed, claim, parsed_args.explain)
                indent = None if parsed_args.noindent else 2
                return (), Text.of(json.dumps(answer, indent=indent))
            if claim is not None:
                return COLUMNS, allocation_rows(claim.consumer, claim.allocations)
            return _table(listed, _providers(ledger, listed))

    def _check(
        self,
        ledger: Ledger,
        candidates: Candidates,
        listed: Sequence[Candidate],
        parsed_args: argparse.Namespace,
    ) -> None:
        """Raise an error if there is no candidate; for a document only set the exit status."""
        if listed:
            return
        kind: type[Refused] = SearchCutShort if candidates.cut_short else Refused
        if kind is Refused and parsed_args.claim is not None and ledger.is_satisfiable(candidates):
            kind = Busy
        self._status = kind.status
        if parsed_args.json:
            return
        consumer = f"{parsed_args.claim} " if parsed_args.claim is not None else ""
        answer = f"no capacity for {consumer}{candidates.request}"
        if candidates.cut_short:
            answer = (
                f"the budget of {candidates.budget} steps ran out on {consumer}{candidates.request}"
            )
        why = candidates.explain()
        expired = expired_lines(ledger, why.reasons)
        raise kind(answer, [*str(why).splitlines(), *expired])

    def _note(
        self, candidates: Candidates, listed: Sequence[Candidate], parsed_args: argparse.Namespace
    ) -> None:
        """Print a note about candidates that the list does not contain."""
        if parsed_args.json or not listed:
            return
        if candidates.cut_short:
            self.app.stderr.write(f"cut short after {candidates.steps} steps: there may be more\n")
        if parsed_args.explain:
            self.app.stderr.write(f"{candidates.explain()}\n")


def _listed(candidates: Candidates) -> tuple[Candidate, ...]:
    """Return the candidates, none if the budget ran out before there was one."""
    try:
        return tuple(candidates)
    except exceptions.SearchLimitReached:
        return ()


def _providers(ledger: Ledger, listed: Iterable[Candidate]) -> dict[str, ListedProvider]:
    """Return the providers of candidates in the ledger, by name."""
    named = {name: None for entry in listed for name in _giving(entry)}
    names = list(named)
    pages = [names[start : start + _PAGE] for start in range(0, len(names), _PAGE)]
    return {entry.name: entry for page in pages for entry in ledger.providers(name=page)}


def _giving(candidate: Candidate) -> dict[str, str]:
    """Return the amounts by provider as text; a provider of a group without amounts has none."""
    taken = {name: str(amounts) for name, amounts in candidate.by_provider().items()}
    for names in candidate.mappings.values():
        for name in names:
            taken.setdefault(name, "")
    return taken


# --- for people ---------------------------------------------------------------------------------


def _table(listed: Sequence[Candidate], providers: Mapping[str, ListedProvider]) -> Table:
    """Return a row for each candidate and provider; groups and units only where there are some."""
    has_groups = any(suffix for candidate in listed for suffix in candidate.mappings)
    has_units = any(taken.units for candidate in listed for taken in candidate.allocations)
    columns = (*_COLUMNS, *(["groups"] if has_groups else []), *(["units"] if has_units else []))
    rows = []
    for number, candidate in enumerate(listed, 1):
        units = _units(candidate.allocations)
        for name, amounts in _giving(candidate).items():
            row: list[Any] = [number, amounts, name, *_summary(providers.get(name))]
            if has_groups:
                row.append(
                    Many([s for s, names in candidate.mappings.items() if s and name in names])
                )
            if has_units:
                row.append(Many(units.get(name, [])))
            rows.append(row)
    return columns, rows


def _summary(provider: ListedProvider | None) -> tuple[str, Many]:
    """Return the usage and traits of a provider; empty if it was removed in the meantime."""
    if provider is None:
        return "", Many([])
    used = [
        f"{record.resource_class}={record.used}/{record.capacity}" for record in provider.records
    ]
    return ",".join(used), Many(sorted(provider.traits))


def _units(allocations: Iterable[Allocation]) -> dict[str, list[str]]:
    units: dict[str, list[str]] = {}
    for allocation in allocations:
        units.setdefault(allocation.provider, []).extend(allocation.units)
    return units


# --- for programs -------------------------------------------------------------------------------


def _document(
    ledger: Ledger,
    candidates: Candidates,
    listed: Sequence[Candidate],
    claim: Claim | None,
    is_explained: bool,
) -> dict[str, Any]:
    """Return the answer as plain data."""
    explained = is_explained or not listed
    return {
        "request": str(candidates.request),
        "candidates": [entry.to_dict() for entry in listed],
        "providers": {
            name: entry.to_dict() for name, entry in sorted(_providers(ledger, listed).items())
        },
        "cut_short": candidates.cut_short,
        "steps": candidates.steps,
        "explanation": candidates.explain().to_dict() if explained else None,
        "claim": None if claim is None else claim.to_dict(),
    }
