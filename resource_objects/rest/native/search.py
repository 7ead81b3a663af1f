"""``/ro/search``: the candidates of a request, and the explanation if there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resource_objects.exceptions import SearchLimitReached
from resource_objects.requests import Request
from resource_objects.rest.native.api import HOSTS, PREFIX, Call, CheckedRequest
from resource_objects.search import Candidate, Candidates, Snapshot
from resource_objects.search.order import Order

_OPTIONS = ("limit", "per_host", "seed", "budget")


def search(request: CheckedRequest) -> dict[str, Any]:
    """Search the candidates of a request.

    The same request, options and state of the ledger give the same answer. If there is no
    candidate, the explanation contains the reasons of the nearest hosts. Nothing is allocated.
    """
    body = request.body
    snapshot = request.ledger.snapshot(body.get("at"))
    candidates = search_candidates(snapshot, body)
    listed = candidates_until_limit(candidates)
    is_explained = bool(body.get("explain")) or not listed
    hosts = body.get("hosts", HOSTS)
    return {
        "request": candidates.request.to_dict(),
        "candidates": [candidate.to_dict() for candidate in listed],
        "cut_short": candidates.cut_short,
        "steps": candidates.steps,
        "explanation": candidates.explain().to_dict(hosts) if is_explained else None,
        "cursor": None if snapshot.cursor is None else str(snapshot.cursor),
    }


def search_candidates(snapshot: Snapshot, body: Mapping[str, Any]) -> Candidates:
    """Return the candidates of the request in a body, by its options."""
    options = {name: body[name] for name in _OPTIONS if name in body}
    order = body.get("order", "name")
    if isinstance(order, Mapping):
        order = Order(**order)
    request = Request.from_dict(body["request"])
    return snapshot.candidates(request, order=order, limits=body.get("limits"), **options)


def candidates_until_limit(candidates: Candidates) -> tuple[Candidate, ...]:
    """Return the candidates; none if the budget was exhausted before the first one."""
    try:
        return tuple(candidates)
    except SearchLimitReached:
        return ()


CALLS = (
    Call(
        "POST",
        f"{PREFIX}/search",
        "resource_objects:search",
        search,
        "Found",
        body="Search",
        refusals=(404,),
    ),
)
