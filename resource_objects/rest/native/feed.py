"""``/ro/feed``: the change feed."""

from __future__ import annotations

import datetime
from typing import Any

from resource_objects.exceptions import Expired
from resource_objects.ledger.feed import Changes
from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import (
    PREFIX,
    RETRY_AFTER,
    Call,
    CheckedRequest,
    Parameter,
    limit,
    refusal,
)

#: The maximum number of changes, by default.
_LIMIT = 1000


def changes(request: CheckedRequest) -> dict[str, Any]:
    """Return the changes after a cursor.

    Without after, only the present cursor. With wait, if there is no change yet, the answer is sent
    at the next write, or without changes after that time; or at once with a header Retry-After, if
    no thread is free to wait. Continue from the cursor of the answer. A cursor whose changes were
    pruned, or that is of another history, is refused with 410, and with the cursor to continue from
    after everything was read again.
    """
    feed = request.ledger.feed
    after = request.query.get("after")
    if after is None:
        return {"changes": [], "cursor": str(feed.cursor())}
    try:
        page = _changes(request, after)
    except Expired as error:
        raise refusal(error, cursor=str(feed.cursor())) from error
    return {"changes": [change.to_dict() for change in page], "cursor": str(page.cursor)}


def _changes(request: CheckedRequest, after: str) -> Changes:
    """Return the present changes, or the first ones within the time of the request."""
    count = request.query.get("limit", _LIMIT)
    page = request.ledger.feed.changes(after, count)
    seconds = request.query.get("wait", 0)
    if page or not seconds:
        return page
    with request.waiting_ledger() as ledger:
        if ledger is not None:
            wait = datetime.timedelta(seconds=seconds)
            return ledger.feed.changes(after, count, wait=wait)
    request.headers["Retry-After"] = str(RETRY_AFTER)
    return page


CALLS = (
    Call(
        "GET",
        f"{PREFIX}/feed",
        "resource_objects:feed",
        changes,
        "Changes",
        query={
            "after": Parameter(schemas.TEXT, "a cursor of this call or of a search"),
            "limit": limit(_LIMIT, "changes", _LIMIT),
            "wait": Parameter(
                {"type": "integer", "minimum": 0, "maximum": schemas.MAX_SECONDS},
                "the seconds to wait for the first change (0)",
            ),
        },
        refusals=(408, 410, 501),
    ),
)
