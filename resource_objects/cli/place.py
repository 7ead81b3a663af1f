"""Search and claim, anywhere or at one provider and what is below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Claim
    from resource_objects.requests import Request
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
