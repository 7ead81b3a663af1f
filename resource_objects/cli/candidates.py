"""The command that lists the candidates of a request."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import base
from resource_objects.cli.consumer import COLUMNS, allocation_rows
from resource_objects.cli.job import refused
from resource_objects.cli.request_arguments import REQUEST, SEARCH, parse_request_and_search

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


@base.table(
    *REQUEST,
    SEARCH,
    base.argument("--claim", "CONSUMER", "take it for this consumer; prints what was taken"),
    base.flag("--explain", "say why the others cannot, even if some can"),
    base.flag("--json", "the whole answer as one document, for programs"),
    columns=(*_COLUMNS, *_SOMETIMES),
    reads=True,
    opens=False,
)
def list_candidates(command: base.Command, args: Namespace) -> base.Answer:
    """List the candidates of a request: each is a complete placement of it.

    The options are those of `openstack allocation candidate list`, and further ones. Nothing is
    allocated, unless --claim is specified. If there is no candidate, prints the reasons of each
    host (exit status 1, with --claim 75 if other consumers use the resources); if the budget was
    exhausted before that was known, exits with status 3.
    """
    request, options = parse_request_and_search(args)
    with command.open_ledger() as ledger:
        snapshot = ledger.snapshot(args.at)
        with base.misused():
            candidates = snapshot.candidates(request, **options)
        placements = candidates_of(candidates)
        status = 0
        if not placements:
            refusal = _refusal(ledger, candidates, args.claim)
            if not args.json:
                raise refusal
            status = refusal.status
        claim = None
        if args.claim is not None and placements:
            try:
                claim = ledger.claim(args.claim, candidates)
            except exceptions.CapacityException as error:
                raise refused(ledger, args.claim, candidates, error) from error
        if args.json:
            document = _document(ledger, candidates, placements, claim, args.explain)
            indent = None if args.noindent else 2
            return base.Answer(text=json.dumps(document, indent=indent), status=status)
        if candidates.cut_short:
            base.note(f"cut short after {candidates.steps} steps: there may be more")
        if args.explain:
            base.note(str(candidates.explain()))
        if claim is not None:
            return base.Answer(allocation_rows(claim), COLUMNS)
        return _table(placements, _providers(ledger, placements))


def _refusal(ledger: Ledger, candidates: Candidates, consumer: str | None) -> base.Refused:
    """Return the error that reports that there is no candidate."""
    subject = f"{candidates.request}" if consumer is None else f"{consumer} {candidates.request}"
    why = candidates.explain()
    reasons = [*str(why).splitlines(), *base.expired_lines(ledger, why.reasons)]
    if candidates.cut_short:
        answer = f"the budget of {candidates.budget} steps ran out on {subject}"
        return base.SearchCutShort(answer, reasons)
    is_busy = consumer is not None and ledger.is_satisfiable(candidates)
    return (base.Busy if is_busy else base.Refused)(f"no capacity for {subject}", reasons)


def candidates_of(candidates: Candidates) -> tuple[Candidate, ...]:
    """Return the candidates, none if the budget ran out before there was one."""
    try:
        return tuple(candidates)
    except exceptions.SearchLimitReached:
        return ()


def _providers(ledger: Ledger, listed: Iterable[Candidate]) -> dict[str, ListedProvider]:
    """Return the providers of candidates in the ledger, by name."""
    names = list({name: None for entry in listed for name in _amounts(entry)})
    pages = [names[start : start + _PAGE] for start in range(0, len(names), _PAGE)]
    return {entry.name: entry for page in pages for entry in ledger.providers(name=page)}


def _amounts(candidate: Candidate) -> dict[str, str]:
    """Return the amounts by provider as text; a provider of a group without amounts has none."""
    amounts = {name: str(amounts) for name, amounts in candidate.by_provider().items()}
    for names in candidate.mappings.values():
        for name in names:
            amounts.setdefault(name, "")
    return amounts


# --- for people ---------------------------------------------------------------------------------


def _table(candidates: Sequence[Candidate], providers: Mapping[str, ListedProvider]) -> base.Answer:
    """Return a row for each candidate and provider; groups and units only where there are some."""
    has_groups = any(suffix for candidate in candidates for suffix in candidate.mappings)
    has_units = any(
        allocation.units for candidate in candidates for allocation in candidate.allocations
    )
    columns = (*_COLUMNS, *(["groups"] if has_groups else []), *(["units"] if has_units else []))
    rows = []
    for number, candidate in enumerate(candidates, 1):
        units = _units(candidate.allocations)
        for name, amounts in _amounts(candidate).items():
            row: list[Any] = [number, amounts, name, *_summary(providers.get(name))]
            if has_groups:
                mappings = candidate.mappings.items()
                row.append(
                    base.listed(suffix for suffix, names in mappings if suffix and name in names)
                )
            if has_units:
                row.append(base.listed(units.get(name, [])))
            rows.append(row)
    return base.Answer(rows, columns)


def _summary(provider: ListedProvider | None) -> tuple[str, base.Cell]:
    """Return the usage and traits of a provider; empty if it was removed in the meantime."""
    if provider is None:
        return "", base.listed([])
    used = [
        f"{record.resource_class}={record.used}/{record.capacity}" for record in provider.records
    ]
    return ",".join(used), base.listed(sorted(provider.traits))


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
