"""Search and claim, anywhere or at one provider and what is below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resource_objects.ledger import Ledger
    from resource_objects.providers import Claim
    from resource_objects.requests import Request
    from resource_objects.resources import Amounts
    from resource_objects.search import Candidates


def search(ledger: Ledger, request: Request, at: str | None = None) -> Candidates:
    """Return who could hold a request; with ``at`` only that provider and what is below it.

    :raises ProviderNotFound: if ``at`` is not kept
    """
    return ledger.snapshot(at).candidates(request)


def claim(
    ledger: Ledger,
    consumer: str,
    request: Request,
    at: str | None = None,
    **whose: Any,
) -> Claim | Candidates:
    """Place a request for a consumer; return its claim, or the search that found nobody.

    :param whose: the consumer's project, user and consumer_type

    :raises CapacityException: if others were faster every time
    """
    found = search(ledger, request, at)
    return ledger.claim(consumer, found, **whose) if found else found


def request_again(ledger: Ledger, consumer: str) -> Request:
    """Return a request for what a consumer holds: the one its claim was made for, if that is it.

    :raises ConsumerNotFound: if it holds nothing
    :raises Refused: if it holds units that a request cannot say
    """
    from resource_objects.cli.base import Refused
    from resource_objects.requests import Request
    from resource_objects.resources import Amounts

    claim, assigned = ledger.held(consumer), ledger.assigned(consumer)
    told = _units(ledger, assigned)
    lost = [
        f"{one.provider}: {one.resource_class} {unit}"
        for one in claim.allocations
        for unit in one.units
        if unit not in told
    ]
    if lost:
        raise Refused(f"{consumer} holds units that a search cannot ask for again", lost)
    total = Amounts()
    for amounts in assigned.values():
        total += Amounts({name: amount.unassigned() for name, amount in amounts.by_name()})
    if claim.request is not None and claim.request.resources == total.counted():
        return claim.request
    return Request(total)  # it was changed since, or never searched


def _units(ledger: Ledger, assigned: Mapping[str, Amounts]) -> set[str]:
    """Return the units that assigned amounts of hosts take."""
    from resource_objects.providers.located import located_amounts

    return {
        unit
        for host, amounts in assigned.items()
        for name, amount in located_amounts(amounts).items()
        for _, records in ledger.inventories(host)[name].spread(-amount)
        for record in records
        for unit in record.units
    }
