"""The service, called in process, and one that speaks to it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import webob

import resource_objects as ro
from resource_objects.rest import application
from tests.support.patience import until
from tests.support.served import Served, served


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


#: A host of the service that runs, with four CPUs.
HOST = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of two processes; to start it takes more than all that is asked of it."""
    folder = tmp_path_factory.mktemp("served")
    url = f"sqlite:///{folder}/lab.db"
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=4", uuid=HOST))
    with served(folder, url, "--workers", "2") as running:
        yield running
        assert "Traceback" not in running.log
        _ends_gracefully(running)


def _ends_gracefully(service: Served) -> None:
    said = b"GET /resource_providers HTTP/1.1\r\nhost: lab\r\nx-auth-token: admin\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), 30) as one:
        one.sendall(said[:20])
        assert service.is_up()
        service.process.terminate()
        until(lambda: "Handling signal: term" in service.log)
        one.sendall(said[20:])
        assert one.recv(12) == b"HTTP/1.1 200"


@pytest.fixture
def client() -> Iterator[Client]:
    """A service on an empty ledger in memory."""
    yield Client(application("memory://", auth="noauth2", policy="legacy"))
