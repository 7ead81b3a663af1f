"""The service, called in process, and one that speaks to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import webob

from resource_objects.rest import application


class Client:
    """Asks a WSGI application as an administrator, at the newest microversion."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def ask(
        self,
        method: str,
        url: str,
        body: Any = None,
        *,
        version: str = "1.39",
        headers: dict[str, str] | None = None,
    ) -> webob.Response:
        """Return the response to a request."""
        said = {
            "x-auth-token": "admin",
            "accept": "application/json",
            "openstack-api-version": f"placement {version}",
            **(headers or {}),
        }
        request = webob.Request.blank(url, method=method, headers=said)
        if body is not None:
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
            request.content_type = said.get("content-type", "application/json")
        return request.get_response(self.app)

    def do(self, method: str, url: str, body: Any = None, *, version: str = "1.39") -> Any:
        """Return the body of the response to a request that must succeed."""
        response = self.ask(method, url, body, version=version)
        assert response.status_int < 300, response.text
        return response.json if response.body else None

    def provider(self, uuid: str, name: str, inventories: dict[str, Any], **said: Any) -> str:
        """Make a provider with inventories."""
        made = self.do("POST", "/resource_providers", {"uuid": uuid, "name": name, **said})
        body = {
            "resource_provider_generation": made["generation"],
            "inventories": inventories,
        }
        self.do("PUT", f"/resource_providers/{uuid}/inventories", body)
        return uuid


@pytest.fixture
def client() -> Iterator[Client]:
    """A service on an empty ledger in memory."""
    yield Client(application("memory://", policy="legacy"))
