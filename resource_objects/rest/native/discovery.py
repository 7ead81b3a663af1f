"""``/ro``: the versions of the native API."""

from __future__ import annotations

from typing import Any

from resource_objects.rest.native.api import DOCUMENT, PREFIX, VERSIONS, Call, CheckedRequest


def versions(request: CheckedRequest) -> dict[str, Any]:
    """Return the versions of this API."""
    return {
        "id": "v1.0",
        "min_version": VERSIONS[0],
        "max_version": VERSIONS[-1],
        "links": [
            {"rel": "self", "href": request.client.url(PREFIX)},
            {"rel": "service-desc", "href": request.client.url(DOCUMENT)},
        ],
    }


CALLS = (Call("GET", PREFIX, None, versions, "Version"),)
