"""``GET /``: which versions there are; ``GET /health``: whether the ledger answers."""

from __future__ import annotations

import webob

from resource_objects.rest import errors
from resource_objects.rest.asked import Asked
from resource_objects.rest.native.discovery import DOCUMENT


def versions(asked: Asked) -> webob.Response:
    made = asked.reply(
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
    # RFC 8631; the body is compared by clients
    made.headers["Link"] = f'<{asked.url(DOCUMENT)}>; rel="service-desc"'
    return made


def health(asked: Asked) -> webob.Response:
    """Ask the ledger for its time; of one that does not answer the status is 503."""
    asked.tells_json()
    return asked.reply(json={"now": asked.ledger.now().isoformat()})


ROUTES = (("/", {"GET": (None, versions)}), ("/health", {"GET": (None, health)}))
