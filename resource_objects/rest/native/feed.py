"""``/ro/feed``: what was written, as a long poll."""

from __future__ import annotations

import datetime
from typing import Any

from resource_objects.exceptions import Expired
from resource_objects.ledger.feed import Changes
from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import PREFIX, RETRY_AFTER, Call, Given, Parameter, refusal

#: So many changes are told at most, unless another limit is said.
_LIMIT = 1000


def changes(given: Given) -> dict[str, Any]:
    """Tell what was written after a place in the feed.

    Without after, only the place where the feed is now. With wait, if nothing was written yet, it
    is answered as soon as something is, or with nothing when the time is over; or at once with a
    header Retry-After, where all places to wait are taken. Read on from the cursor. A place of
    which the changes are forgotten, or that is of another history, is refused with 410, and with
    the cursor where to begin anew after everything was read.
    """
    feed = given.ledger.feed
    after = given.query.get("after")
    if after is None:
        return {"changes": [], "cursor": str(feed.cursor())}
    try:
        found = _found(given, after)
    except Expired as error:
        raise refusal(error, cursor=str(feed.cursor())) from error
    return {"changes": [one.to_dict() for one in found], "cursor": str(found.cursor)}


def _found(given: Given, after: str) -> Changes:
    """Return what there is, or what is there within the time."""
    feed, limit = given.ledger.feed, given.query.get("limit", _LIMIT)
    found = feed.changes(after, limit)
    seconds = given.query.get("wait", 0)
    if found or not seconds:
        return found
    with given.waiting.place() as has_one:
        if has_one:
            wait = datetime.timedelta(seconds=seconds)
            return given.waits(given.ledger).feed.changes(after, limit, wait=wait)
    given.headers["Retry-After"] = str(RETRY_AFTER)
    return found


CALLS = (
    Call(
        "GET",
        f"{PREFIX}/feed",
        "resource_objects:feed",
        changes,
        "Changes",
        query={
            "after": Parameter(schemas.TEXT, "a cursor: of this call, or of a search"),
            "limit": Parameter(schemas.one_to(_LIMIT, "so many"), "at most so many changes (1000)"),
            "wait": Parameter(
                {"type": "integer", "minimum": 0, "maximum": schemas.MOST_SECONDS},
                "for how many seconds to wait if there is nothing (0)",
            ),
        },
        refusals=(408, 410, 501),
    ),
)
