"""The hook that counts requests, and whether the service is well."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from resource_objects import exceptions, plugins
from resource_objects.ledger import Ledger
from resource_objects.rest import application, metrics
from resource_objects.rest.metrics import Answered
from resource_objects.testing.refusals import raises_code
from tests.rest.conftest import Client

HOST = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"


def _served(hook: Any) -> Any:
    return contextlib.closing(
        application("memory://", auth="noauth2", policy="legacy", metrics=hook)
    )


def test_each_request_is_counted_once_by_its_route() -> None:
    found: list[Answered] = []
    with _served(found.append) as app:
        client = Client(app)
        asked = [
            client.ask("PUT", "/traits/CUSTOM_A", version="1.6"),
            client.ask("GET", f"/resource_providers/{HOST}/inventories/VCPU"),
            client.ask("GET", "/nowhere/at/all"),
            client.ask("BREW", "/traits"),
            client.ask("GET", "/traits", version="7.7"),
            client.ask("GET", "/traits", headers={"x-auth-token": ""}),
            client.ask("POST", "/resource_providers", b"{"),
        ]
    inventory = "/resource_providers/{uuid}/inventories/{name}"
    assert [(one.method, one.route, one.status, one.microversion) for one in found] == [
        ("PUT", "/traits/{name}", 201, "1.6"),
        ("GET", inventory, 404, "1.39"),
        ("GET", "", 404, "1.39"),
        ("OTHER", "/traits", 405, "1.39"),
        ("GET", "", 406, None),
        ("GET", "", 401, "1.39"),
        ("POST", "/resource_providers", 400, "1.39"),
    ]
    told = [one.headers["x-openstack-request-id"] for one in asked]
    assert [one.request_id for one in found] == told
    assert all(0 < one.seconds < 600 for one in found)


def test_a_hook_that_fails_breaks_no_request(caplog: pytest.LogCaptureFixture) -> None:
    def fail(answered: Answered) -> None:
        raise ZeroDivisionError(answered.route)

    with _served(fail) as app:
        assert Client(app).ask("GET", "/traits").status_int == 200
    assert "the metrics hook failed" in caplog.text


def test_a_hook_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"lab": "tests.rest.test_metrics:SEEN.append", "text": "tests.rest.test_metrics:HOST"}
    monkeypatch.setitem(plugins.BUILT_IN, metrics.NAMESPACE, here)
    hook = metrics.load_hook("lab")
    assert hook is not None
    hook(Answered("GET", "/", 200, 0.1, None, "req-1"))
    with raises_code("PluginNotFound", match="installed: lab, text"):
        application("memory://", auth="noauth2", metrics="other")
    with raises_code("InvalidField", match="metrics"):
        application("memory://", auth="noauth2", metrics="text")


SEEN: list[Answered] = []


def test_the_service_is_well_as_long_as_its_ledger_answers(
    monkeypatch: pytest.MonkeyPatch, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    well = client.ask("GET", "/health", headers={"x-auth-token": ""})
    assert well.status_int == 200
    assert set(well.json) == {"now"}

    def gone(ledger: Ledger) -> None:
        raise exceptions.DatabaseError("unavailable", "postgresql://someone@db.example/placement")

    monkeypatch.setattr(Ledger, "now", gone)
    ill = client.ask("GET", "/health", headers={"x-auth-token": ""})
    assert ill.status_int == 503
    assert "The ledger does not answer; the log tells why." in ill.json["errors"][0]["detail"]
    assert "db.example" not in ill.text
    assert "someone@db.example/placement cannot be opened" in caplog.text
