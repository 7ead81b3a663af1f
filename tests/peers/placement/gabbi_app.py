"""The application that Placement's own API tests are run against: ``gabbi_app:factory``."""

from __future__ import annotations

from typing import Any

from resource_objects.ledger import backend_for
from resource_objects.rest import application

_open: list[Any] = []


def factory(db_url: str, options: dict[str, Any] | None = None) -> Any:
    """Return the service on an empty database; the tests are written for the policy of old."""
    given = options or {}
    backend_for(db_url).upgrade_database(db_url)
    made = application(
        db_url,
        auth="noauth2",
        policy=given.get("policy", "legacy"),
        cors_allowed_origin=given.get("cors_allowed_origin", ()),
        cors_allow_headers=given.get("cors_allow_headers", ()),
    )
    _open.append(made)
    return made


def close() -> None:
    """Close what was made, so that its database can be used again."""
    while _open:
        _open.pop().close()
