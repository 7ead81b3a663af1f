"""``/ro/claims`` and ``/ro/consumers``: allocations with their providers and units."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from resource_objects.exceptions import InvalidInput
from resource_objects.ledger import Ledger
from resource_objects.ledger.demand import Claimable
from resource_objects.ledger.feed import snapshot_in_place
from resource_objects.providers import Allocation
from resource_objects.requests import Request
from resource_objects.rest import errors
from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import (
    PREFIX,
    RETRY_AFTER,
    Call,
    CheckedRequest,
    Parameter,
    limit,
)
from resource_objects.rest.native.search import search_candidates
from resource_objects.search import Candidate
from resource_objects.search.candidate import Chosen

_CLAIMS, _ROOT = f"{PREFIX}/claims", f"{PREFIX}/consumers"
_ITEM = f"{_ROOT}/{{consumer:path}}"
_OWNER = ("project", "user", "consumer_type", "group")
#: The number of consumers in a page, by default.
_PAGE = 500


def claim(request: CheckedRequest) -> dict[str, Any]:
    """Allocate resources for a consumer without allocations, completely or not at all.

    The body has a request, for which candidates are searched (again, after a lost race); a
    candidate of a search; or allocations, which may name units. With an operation the call can be
    repeated after a lost answer: it happens once. With wait it waits for its turn if other
    consumers use the resources; if no thread is free to wait, it is refused with 503.
    """
    body = request.body
    with _wait(request) as (ledger, wait):
        allocated = ledger.claim(
            body["consumer"],
            _claimable(request),
            expires_in=_duration(body, "expires_in"),
            expires_at=_time(body, "expires_at"),
            wait=wait,
            **_arguments(body),
        )
    return allocated.to_dict()


def replace(request: CheckedRequest) -> dict[str, Any]:
    """Replace the allocations of a consumer, completely or not at all; create it if necessary.

    Its claim keeps its id, state and expiry. Other fields change only if the body has them.
    """
    body = request.body
    with _wait(request) as (ledger, wait):
        allocated = ledger.replace(
            request.path["consumer"],
            _claimable(request, request.path["consumer"]),
            generation=body.get("generation"),
            wait=wait,
            **_arguments(body),
        )
    return allocated.to_dict()


def change(request: CheckedRequest) -> dict[str, Any]:
    """Confirm a claim, which then does not expire; or renew it with another expiry."""
    body, ledger, consumer = request.body, request.ledger, request.path["consumer"]
    key = {"claim": body.get("claim"), "operation": body.get("operation")}
    if "state" in body:
        return ledger.confirm(consumer, generation=body.get("generation"), **key).to_dict()
    return ledger.renew(
        consumer,
        expires_in=_duration(body, "expires_in"),
        expires_at=_time(body, "expires_at"),
        **key,
    ).to_dict()


def release(request: CheckedRequest) -> dict[str, Any]:
    """Release all allocations of a consumer; the answer contains them."""
    operation = request.query.get("operation")
    return request.ledger.release(request.path["consumer"], operation=operation).to_dict()


def show(request: CheckedRequest) -> dict[str, Any]:
    """Return the allocations of a consumer with their providers and units."""
    return request.ledger.get_claim(request.path["consumer"]).to_dict()


def list_(request: CheckedRequest) -> dict[str, Any]:
    """List consumers with their allocations, sorted by name, one page at a time."""
    count = request.query.get("limit", _PAGE)
    conditions = {name: value for name, value in request.query.items() if name != "limit"}
    consumers = [
        consumer.claim.to_dict() for consumer in request.ledger.consumers(limit=count, **conditions)
    ]
    return {
        "consumers": consumers,
        "after": consumers[-1]["consumer"] if len(consumers) == count else None,
    }


# --- bodies ---------------------------------------------------------------------------------------


def _claimable(request: CheckedRequest, replaced: str | None = None) -> Claimable:
    """Return the candidates or allocations of a body.

    :param replaced: a consumer whose present allocations are free in the search
    """
    body = request.body
    if body.get("release_expired"):
        _release_expired(request)
    search_request = None if "request" not in body else Request.from_dict(body["request"])
    if "allocations" in body:
        return [Allocation.from_dict(allocation) for allocation in body["allocations"]]
    if "candidate" in body:
        candidate = Candidate.from_dict(body["candidate"])
        return candidate if search_request is None else Chosen(candidate, search_request)
    if replaced is None:
        snapshot = request.ledger.snapshot(body.get("at"))
    else:
        snapshot = snapshot_in_place(request.ledger.backend, replaced, body.get("at"))
    return search_candidates(snapshot, body)


def _release_expired(request: CheckedRequest) -> None:
    """Release the expired claims of other consumers on the hosts in question."""
    body = request.body
    allocations = body.get("allocations") or body.get("candidate", {}).get("allocations") or []
    trees = {allocation.get("uuid") or allocation["provider"] for allocation in allocations}
    consumer = request.path.get("consumer", body.get("consumer"))
    for tree in trees or {body.get("at")}:
        request.ledger.release_expired(tree=tree, excluding=consumer)


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the ledger that all claims have."""
    return {
        **{name: body.get(name) for name in _OWNER},
        "if_generation": body.get("unchanged", False),
        "ignore_maintenance": body.get("override_disabled", False),
        "limits": body.get("limits"),
        "operation": body.get("operation"),
    }


@contextlib.contextmanager
def _wait(request: CheckedRequest) -> Iterator[tuple[Ledger, datetime.timedelta | None]]:
    """Yield the ledger to write to, and the time to wait; meanwhile a slot is occupied."""
    seconds = request.body.get("wait", 0)
    if not seconds:
        yield request.ledger, None
        return
    with request.waiting_ledger() as ledger:
        if ledger is None:
            detail = "no thread is free to wait: repeat the request, or send it without wait"
            headers = {"Retry-After": str(RETRY_AFTER)}
            raise errors.Refused(503, detail, "NoPlaceToWait", headers=headers)
        yield ledger, datetime.timedelta(seconds=seconds)


def _duration(body: Mapping[str, Any], name: str) -> datetime.timedelta | None:
    return datetime.timedelta(seconds=body[name]) if name in body else None


def _time(body: Mapping[str, Any], name: str) -> datetime.datetime | None:
    return parse_time(name, body[name]) if name in body else None


def parse_time(name: str, text: str) -> datetime.datetime:
    """Return a time with its time zone.

    :raises InvalidInput: for another text
    """
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        expected = "a moment with its time zone, such as 2030-01-01T08:00:00Z"
        raise InvalidInput("field", name, text, expected)
    return time


#: The query of calls that may be repeated.
REPEATABLE = {
    "operation": Parameter(schemas.UUID, "an id: a repeated call with the same id happens once")
}
#: The errors of calls that may wait.
_WAITING = 404, 408, 409

_RULE, _CREATE = "resource_objects:consumers:", "resource_objects:claims:create"
_LIST = {
    **{
        name: Parameter(schemas.TEXT, f"consumers with this {name.replace('_', ' ')}")
        for name in _OWNER
    },
    "state": Parameter({"enum": ["held", "confirmed"]}, "consumers with a claim in this state"),
    "tree": Parameter(schemas.TEXT, "consumers with allocations in the tree of this provider"),
    "provider": Parameter(schemas.TEXT, "consumers with allocations at this provider"),
    "limit": limit(1000, "consumers", _PAGE),
    "after": Parameter(schemas.TEXT, "the last name of the previous page"),
}

CALLS = (
    Call("POST", _CLAIMS, _CREATE, claim, "Claim", status=201, body="NewClaim", refusals=_WAITING),
    Call("GET", _ROOT, _RULE + "list", list_, "Consumers", query=_LIST, refusals=(404,)),
    Call("GET", _ITEM, _RULE + "show", show, "Claim", refusals=(404,)),
    Call("PUT", _ITEM, _RULE + "update", replace, "Claim", body="Replacement", refusals=_WAITING),
    Call("PATCH", _ITEM, _RULE + "update", change, "Claim", body="Change", refusals=(404, 409)),
    Call(
        "DELETE", _ITEM, _RULE + "delete", release, "Claim", query=REPEATABLE, refusals=(404, 409)
    ),
)
