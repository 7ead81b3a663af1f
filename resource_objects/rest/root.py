"""``GET /``: which versions there are."""

from __future__ import annotations

import webob

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


ROUTES = (("/", {"GET": (None, versions)}),)
