"""``/ro/claims`` and ``/ro/consumers``: who holds what, with places and units."""

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
from resource_objects.rest.native.api import PREFIX, RETRY_AFTER, Call, Given, Parameter
from resource_objects.rest.native.search import searched
from resource_objects.search import Candidate
from resource_objects.search.candidate import Chosen

_ROOT = f"{PREFIX}/consumers"
_ONE = f"{_ROOT}/{{consumer:path}}"
_WHOSE = ("project", "user", "consumer_type", "group")
#: A page of consumers, unless another limit is said.
_PAGE = 500


def claim(given: Given) -> dict[str, Any]:
    """Take for a consumer that holds nothing yet; all or nothing.

    What is taken is said by a request, which is searched (again, after a lost race); by a candidate
    that a search found; or by allocations, which may name units. With an operation it may be sent
    again after a lost answer: it happens once. With wait it waits for its turn if others hold what
    it asks for; where all places to wait are taken it is refused with 503.
    """
    body = given.body
    with _wait(given) as (ledger, wait):
        made = ledger.claim(
            body["consumer"],
            _found(given),
            expires_in=_seconds(body, "expires_in"),
            expires_at=_moment(body, "expires_at"),
            wait=wait,
            **_taking(body),
        )
    return made.to_dict()


def replace(given: Given) -> dict[str, Any]:
    """Let a consumer hold this and nothing else; all or nothing. It is made if need be.

    Its claim keeps its id, state and expiry; of the rest, what is not said stays.
    """
    body = given.body
    with _wait(given) as (ledger, wait):
        made = ledger.replace(
            given.path["consumer"],
            _found(given, given.path["consumer"]),
            generation=body.get("generation"),
            wait=wait,
            **_taking(body),
        )
    return made.to_dict()


def change(given: Given) -> dict[str, Any]:
    """Confirm a claim, which then expires no more; or renew it, which gives it another expiry."""
    body, ledger, consumer = given.body, given.ledger, given.path["consumer"]
    said = {"claim": body.get("claim"), "operation": body.get("operation")}
    if "state" in body:
        return ledger.confirm(consumer, generation=body.get("generation"), **said).to_dict()
    return ledger.renew(
        consumer,
        expires_in=_seconds(body, "expires_in"),
        expires_at=_moment(body, "expires_at"),
        **said,
    ).to_dict()


def release(given: Given) -> dict[str, Any]:
    """Give back all that a consumer holds; what it held is answered."""
    operation = given.query.get("operation")
    return given.ledger.release(given.path["consumer"], operation=operation).to_dict()


def show(given: Given) -> dict[str, Any]:
    """Tell what a consumer holds, where, and which units."""
    return given.ledger.get_claim(given.path["consumer"]).to_dict()


def list_(given: Given) -> dict[str, Any]:
    """List consumers with what they hold, by name, a page at a time."""
    limit = given.query.get("limit", _PAGE)
    said = {name: value for name, value in given.query.items() if name != "limit"}
    found = [one.claim.to_dict() for one in given.ledger.consumers(limit=limit, **said)]
    return {
        "consumers": found,
        "after": found[-1]["consumer"] if len(found) == limit else None,
    }


# --- what a body says -----------------------------------------------------------------------------


def _found(given: Given, holding: str | None = None) -> Claimable:
    """Return what is to be taken.

    :param holding: who gives back what it holds in the same write, and so is searched without
    """
    body = given.body
    if body.get("release_expired"):
        _release_expired(given)
    request = None if "request" not in body else Request.from_dict(body["request"])
    if "allocations" in body:
        return [Allocation.from_dict(one) for one in body["allocations"]]
    if "candidate" in body:
        candidate = Candidate.from_dict(body["candidate"])
        return candidate if request is None else Chosen(candidate, request)
    if holding is None:
        return searched(given.ledger.snapshot(body.get("at")), body)
    picture = snapshot_in_place(given.ledger.backend, holding, body.get("at"))
    return searched(picture, body)


def _release_expired(given: Given) -> None:
    """Release the expired claims of other consumers on the hosts in question."""
    body = given.body
    allocations = body.get("allocations") or body.get("candidate", {}).get("allocations") or []
    trees = {allocation.get("uuid") or allocation["provider"] for allocation in allocations}
    for tree in trees or {body.get("at")}:
        given.ledger.release_expired(
            tree=tree, excluding=given.path.get("consumer", body.get("consumer"))
        )


def _taking(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: body.get(name) for name in _WHOSE},
        "if_generation": body.get("unchanged", False),
        "ignore_maintenance": body.get("override_disabled", False),
        "limits": body.get("limits"),
        "operation": body.get("operation"),
    }


@contextlib.contextmanager
def _wait(given: Given) -> Iterator[tuple[Ledger, datetime.timedelta | None]]:
    """Yield the ledger to write, and for how long to wait, while a place to do so is taken."""
    seconds = given.body.get("wait", 0)
    if not seconds:
        yield given.ledger, None
        return
    with given.waiting.place() as has_one:
        if not has_one:
            said = "all places to wait are taken: ask again, or without wait"
            headers = {"Retry-After": str(RETRY_AFTER)}
            raise errors.Refused(503, said, "NoPlaceToWait", headers=headers)
        yield given.waits(given.ledger), datetime.timedelta(seconds=seconds)


def _seconds(body: Mapping[str, Any], name: str) -> datetime.timedelta | None:
    return datetime.timedelta(seconds=body[name]) if name in body else None


def _moment(body: Mapping[str, Any], name: str) -> datetime.datetime | None:
    return moment(name, body[name]) if name in body else None


def moment(name: str, text: str) -> datetime.datetime:
    """Return a moment that somebody wrote, with its time zone.

    :raises InvalidInput: if it is none
    """
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        expected = "a moment with its time zone, such as 2030-01-01T08:00:00Z"
        raise InvalidInput("field", name, text, expected)
    return found


_RULE = "resource_objects:consumers:"
_LIST = {
    **{name: Parameter(schemas.TEXT, f"whose {name.replace('_', ' ')} is this") for name in _WHOSE},
    "state": Parameter({"enum": ["held", "confirmed"]}, "whose claim is in this state"),
    "tree": Parameter(schemas.TEXT, "that hold something in the tree of this provider"),
    "provider": Parameter(schemas.TEXT, "that hold something at this provider"),
    "limit": Parameter(schemas.one_to(1000, "so many"), "at most so many (500)"),
    "after": Parameter(schemas.TEXT, "only those after this name: where the page before ended"),
}
_OPERATION = Parameter(schemas.UUID, "sent again with the same one, it happens once")

CALLS = (
    Call(
        "POST",
        f"{PREFIX}/claims",
        "resource_objects:claims:create",
        claim,
        "Claim",
        status=201,
        body="NewClaim",
        refusals=(404, 408, 409),
    ),
    Call("GET", _ROOT, _RULE + "list", list_, "Consumers", query=_LIST, refusals=(404,)),
    Call("GET", _ONE, _RULE + "show", show, "Claim", refusals=(404,)),
    Call(
        "PUT",
        _ONE,
        _RULE + "update",
        replace,
        "Claim",
        body="Replacement",
        refusals=(404, 408, 409),
    ),
    Call("PATCH", _ONE, _RULE + "update", change, "Claim", body="Change", refusals=(404, 409)),
    Call(
        "DELETE",
        _ONE,
        _RULE + "delete",
        release,
        "Claim",
        query={"operation": _OPERATION},
        refusals=(404, 409),
    ),
)
