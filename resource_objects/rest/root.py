"""``GET /``: which versions there are; ``GET /health``: whether the ledger answers."""

from __future__ import annotations

import webob

from resource_objects import exceptions
from resource_objects.rest import errors
from resource_objects.rest.asked import Asked


def versions(asked: Asked) -> webob.Response:
    return asked.reply(
        json={
            "versions": [
                {
                    "id": "v1.0",
                    "max_version": errors.MAX_VERSION,
                    "min_version": errors.MIN_VERSION,
                    "status": "CURRENT",
                    "links": [{"rel": "self", "href": ""}],
                }
            ]
        }
    )


def health(asked: Asked) -> webob.Response:
    """Ask the ledger for its time; of one that does not answer the status is 503."""
    try:
        now = asked.ledger.now()
    except exceptions.LedgerError as error:
        raise errors.Refused(503, f"The ledger does not answer: {error}") from error
    return asked.reply(json={"now": now.isoformat()})


ROUTES = (("/", {"GET": (None, versions)}), ("/health", {"GET": (None, health)}))
