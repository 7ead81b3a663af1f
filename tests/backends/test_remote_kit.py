"""The conformance kit on a remote Placement that is the service of this library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from resource_objects.rest import application
from tests.support.remote_kit import ADAPTERS, RemoteConformance
from tests.support.wsgi_transport import WSGITransport, session_for


def served(url: str) -> Iterator[str]:
    """Serve an empty ledger under a URL."""
    service = application("memory://", auth="noauth2", policy="open")
    ADAPTERS[url] = session_for(WSGITransport(service))
    yield url
    del ADAPTERS[url]
    service.close()


@pytest.mark.long
class TestRemotePlacement(RemoteConformance):
    """The kit."""

    backend_name = "placement"

    @pytest.fixture
    def url(self) -> Iterator[str]:
        yield from served("placement://one")

    @pytest.fixture
    def another_url(self) -> Iterator[str]:
        yield from served("placement://another")
