"""``/ro``: which versions there are, and where the document of all calls is."""

from __future__ import annotations

from typing import Any

from resource_objects.rest.native.api import PREFIX, VERSIONS, Call, Given

DOCUMENT = f"{PREFIX}/openapi.json"


def versions(given: Given) -> dict[str, Any]:
    """Tell which versions of this API there are."""
    return {
        "id": "v1.0",
        "min_version": VERSIONS[0],
        "max_version": VERSIONS[-1],
        "links": [
            {"rel": "self", "href": given.asked.url(PREFIX)},
            {"rel": "service-desc", "href": given.asked.url(DOCUMENT)},
        ],
    }


CALLS = (Call("GET", PREFIX, None, versions, "Version"),)
