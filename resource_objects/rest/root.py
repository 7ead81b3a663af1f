"""``GET /``: the versions; ``GET /health``: whether the ledger answers."""

from __future__ import annotations

import webob

from resource_objects.rest import errors
from resource_objects.rest.native.api import DOCUMENT
from resource_objects.rest.request import ClientRequest


def versions(request: ClientRequest) -> webob.Response:
    response = request.reply(
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
    # RFC 8631: in a header, because clients compare the body
    response.headers["Link"] = f'<{request.url(DOCUMENT)}>; rel="service-desc"'
    return response


def health(request: ClientRequest) -> webob.Response:
    """Read the ledger's time. The response is a 503 if the ledger does not answer."""
    request.require_json_accepted()
    return request.reply(json={"now": request.ledger.now().isoformat()})


ROUTES = (("/", {"GET": (None, versions)}), ("/health", {"GET": (None, health)}))
