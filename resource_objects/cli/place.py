"""Search and claim, anywhere or at one provider and what is below it."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.providers.columns import Columns, TraitColumns

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Claim
    from resource_objects.requests import Request
    from resource_objects.search import Candidates

#: Searches made afresh when somebody else was faster.
TRIES = 4


def search(ledger: Ledger, request: Request, at: str | None = None) -> Candidates:
    """Return who could hold a request; with ``at`` only that provider and what is below it.

    :raises ProviderNotFound: if ``at`` is not kept
    """
    if at is None:
        return ledger.snapshot().candidates(request)
    from resource_objects.search import Snapshot

    return Snapshot(below(ledger.backend.read(at), at)).candidates(request)


def claim(
    ledger: Ledger, consumer: str, request: Request, at: str | None = None
) -> Claim | Candidates:
    """Place a request for a consumer; return its claim, or the search that found nobody.

    :raises CapacityException: if others were faster every time
    """
    if at is None:
        found = search(ledger, request)
        return ledger.claim(consumer, found) if found else found
    tries = TRIES
    while found := search(ledger, request, at):
        try:
            return ledger.claim(consumer, found[0])
        except (exceptions.CapacityException, exceptions.ProviderNotFound):
            tries -= 1
            if tries <= 0:
                raise
    return found


def below(columns: Columns, name: str) -> Columns:
    """Return a provider (by name or uuid) and what is below it, as a tree of its own.

    Traits of those above it apply to it, so they become its own.

    :raises ProviderNotFound: if it is not there
    """
    given = columns.providers
    parents = dict(zip(given.provider_id, given.parent_id, strict=True))
    tops = [
        number
        for number, uuid, own in zip(given.provider_id, given.uuid, given.name, strict=True)
        if name in (own, uuid)
    ]
    if not tops:
        raise exceptions.ProviderNotFound(name)
    top = tops[0]
    kept = {number for number in given.provider_id if top in _upwards(number, parents)}
    providers = _rows(given, kept)
    return Columns(
        providers._replace(
            parent_id=[None if number == top else parents[number] for number in providers[0]],
            root_id=[top for _ in providers[0]],
        ),
        _rows(columns.inventories, kept),
        _with_inherited(columns.traits, kept, top, _upwards(top, parents)),
        _rows(columns.allocations, kept),
    )


def _upwards(number: int, parents: dict[int, int | None]) -> list[int]:
    """Return a provider and all above it."""
    found = [number]
    while (above := parents[found[-1]]) is not None:
        found.append(above)
    return found


def _rows(table: Any, kept: Container[int]) -> Any:
    """Return the rows of some providers; the first column of every table is the provider."""
    rows = [row for row in zip(*table, strict=True) if row[0] in kept]
    return type(table)(*([row[place] for row in rows] for place in range(len(table))))


def _with_inherited(
    table: TraitColumns, kept: Container[int], top: int, above: Container[int]
) -> TraitColumns:
    pairs = dict.fromkeys(
        (top if number in above else number, trait)
        for number, trait in zip(*table, strict=True)
        if number in kept or number in above
    )
    return TraitColumns([number for number, _ in pairs], [trait for _, trait in pairs])
