"""``/ro/search``: who could hold a request, and why nobody can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resource_objects.exceptions import SearchLimitReached
from resource_objects.requests import Request
from resource_objects.rest.native.api import HOSTS, PREFIX, Call, Given
from resource_objects.search import Candidate, Candidates, Snapshot
from resource_objects.search.order import Order

_OPTIONS = ("limit", "per_host", "seed", "budget")


def search(given: Given) -> dict[str, Any]:
    """Search who could hold a request.

    The same request, options and state of the ledger give the same answer. Where nobody could hold
    it, the explanation says for each host why not. Nothing is taken.
    """
    body = given.body
    snapshot = given.ledger.snapshot(body.get("at"))
    found = searched(snapshot, body)
    listed = candidates_of(found)
    explained = bool(body.get("explain")) or not listed
    hosts = body.get("hosts", HOSTS)
    return {
        "request": found.request.to_dict(),
        "candidates": [one.to_dict() for one in listed],
        "cut_short": found.cut_short,
        "steps": found.steps,
        "explanation": found.explain().to_dict(hosts) if explained else None,
        "cursor": None if snapshot.cursor is None else str(snapshot.cursor),
    }


def searched(snapshot: Snapshot, body: Mapping[str, Any]) -> Candidates:
    """Return what a search finds that a body says."""
    said = {name: body[name] for name in _OPTIONS if name in body}
    order = body.get("order", "name")
    if isinstance(order, Mapping):
        order = Order(**order)
    request = Request.from_dict(body["request"])
    return snapshot.candidates(request, order=order, limits=body.get("limits"), **said)


def candidates_of(found: Candidates) -> tuple[Candidate, ...]:
    """Return the candidates; none if the budget ran out before there was one."""
    try:
        return tuple(found)
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
