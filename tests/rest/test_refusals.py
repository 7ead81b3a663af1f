"""What is refused, where a slip would be a failure, a wrong write or a worker that is busy."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webob

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.resources.pci import PCIInventory
from resource_objects.rest import application, candidates, native, translation
from resource_objects.rest import request as client_request
from resource_objects.rest.errors import Refused
from resource_objects.rest.wsgi import Application
from tests.rest.conftest import Client

HOST = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
CELL = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
OTHER = "f5a91a0a-e111-4a9c-8a33-7b320ae1e52a"
TRAIT = "COMPUTE_STATUS_DISABLED"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[tuple[Ledger, Client]]:
    """A ledger that a program has, and a service on it."""
    url = f"sqlite:///{tmp_path}/lab.db"
    app = application(url, auth="noauth2", policy="legacy")
    with ro.connect(url, actor="admin") as ledger:
        yield ledger, Client(app)
    app.close()


def told(response: webob.Response) -> tuple[int, str]:
    [one] = response.json["errors"]
    return response.status_int, one["code"]


def test_a_reshape_does_not_overwrite_devices(shared: tuple[Ledger, Client]) -> None:
    ledger, client = shared
    host = ro.Provider("host0", "VCPU=4", uuid=HOST)
    gpu = ro.Device("0000:10:00.0", "10de", "2330", resource_class="PGPU")
    host.add_parts("DEVICES", PCIInventory([gpu]))
    ledger.sync(host)
    before = [*ledger.providers()]
    [device] = [one.uuid for one in before if one.kinds]
    url = f"/resource_providers/{device}/inventories"
    at = client.do("GET", url)["resource_provider_generation"]
    for inventories in ({}, {"VCPU": {"total": 4}}, {"PGPU": {"total": 9}}):
        one = {"inventories": inventories, "resource_provider_generation": at}
        response = client.ask(
            "POST", "/reshaper", {"inventories": {device: one}, "allocations": {}}
        )
        assert response.status_int == 409, inventories
        assert "which this API cannot say" in response.json["errors"][0]["detail"]
    assert [*ledger.providers()] == before


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_long_refusal_is_cut_before_it_takes_time(client: Client, kind: str) -> None:
    began = time.process_time()
    headers = {"accept": kind}
    response = client.ask("POST", "/resource_providers", {"name": "<" * 20_000}, headers=headers)
    assert response.status_int == 400
    assert "is too long" in response.text
    assert len(response.text) < 4000
    body = {"name": "host0", "more": list(range(500_000))}
    response = client.ask("POST", "/resource_providers", body)
    assert "'more' was unexpected" in response.json["errors"][0]["detail"]
    assert len(response.text) < 4000
    assert time.process_time() - began < 3


def test_aggregates_are_compared_in_one_pass(client: Client) -> None:
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    url = f"/resource_providers/{HOST}/aggregates"
    body: dict[str, Any] = {"resource_provider_generation": 0, "aggregates": [CELL, CELL]}
    response = client.ask("PUT", url, body)
    assert response.status_int == 400
    assert "has non-unique elements" in response.json["errors"][0]["detail"]
    body["aggregates"] = [f"{CELL[:-8]}{n:08x}" for n in range(20_000)] + [1]
    began = time.process_time()
    assert client.ask("PUT", url, body).status_int == 400
    assert time.process_time() - began < 3


def test_a_body_in_chunks_is_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_request, "MAX_BODY", 100)

    def send(body: bytes) -> int:
        headers = {"x-auth-token": "admin", "content-type": "application/json"}
        request = webob.Request.blank("/resource_providers", method="POST", headers=headers)
        request.environ |= {"wsgi.input": io.BytesIO(body), "wsgi.input_terminated": True}
        request.environ.pop("CONTENT_LENGTH", None)
        return request.get_response(client.app).status_int

    assert send(json.dumps({"name": "host0"}).encode()) == 201
    assert send(json.dumps({"name": "h" * 100}).encode()) == 413
    body = {"name": "h" * 100}
    assert client.ask("POST", "/resource_providers", body).status_int == 413


def test_a_put_of_traits_does_not_enable_what_an_operator_disabled(
    shared: tuple[Ledger, Client],
) -> None:
    """One from before is stale, for to disable is a write; one that knows of it leaves it so."""
    ledger, client = shared
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    url = f"/resource_providers/{HOST}/traits"
    at = client.do("GET", url)["resource_provider_generation"]
    ledger.disable("host0", reason="fan")
    body = {"traits": ["HW_CPU_X86_AVX"], "resource_provider_generation": at}
    assert told(client.ask("PUT", url, body)) == (409, "placement.concurrent_update")
    assert client.do("GET", url)["traits"] == [TRAIT]
    body["resource_provider_generation"] = at + 1
    assert client.do("PUT", url, body)["traits"] == [TRAIT, "HW_CPU_X86_AVX"]
    client.do("DELETE", url)
    assert client.do("GET", url)["traits"] == [TRAIT]
    [one] = ledger.providers()
    assert one.disabled is not None
    assert one.disabled.reason == "fan"
    ledger.enable("host0")
    assert client.do("GET", url)["traits"] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=abc&limit=5", 400),
        ("limit=-1&limit=5", 400),
        ("limit=5&limit=abc", 400),
        ("limit=99999999999999999999", 200),
        ("limit=" + "9" * 5000, 200),
        ("limit=5%0A", 400),
        ("required1%0A=HW_CPU_X86_AVX", 400),
        ("group_policy=moo&group_policy=none", 400),
    ],
)
def test_a_limit_or_policy_is_checked_however_often_it_is_said(
    client: Client, query: str, status: int
) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    response = client.ask("GET", f"/allocation_candidates?resources=VCPU:1&{query}")
    assert response.status_int == status, response.text


def test_however_many_are_asked_for_so_many_are_told(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight groups by eight equal devices: 40,320 ways."""
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    for number in range(8):
        device = f"{CELL[:-1]}{number}"
        client.provider(device, f"d{number}", {"PGPU": {"total": 1}}, parent_provider_uuid=HOST)
    groups = "&".join(f"resources{number}=PGPU:1" for number in range(1, 9))
    url = f"/allocation_candidates?resources=VCPU:1&{groups}&group_policy=isolate"
    monkeypatch.setattr(candidates, "MAX_CANDIDATES", 100)
    for limit, expected in (("", 100), ("&limit=7", 7), ("&limit=2147483647", 100)):
        found = client.do("GET", f"{url}{limit}")["allocation_requests"]
        ways = {json.dumps(one, sort_keys=True) for one in found}
        assert len(ways) == len(found) == expected


def test_a_search_that_takes_too_long_is_no_empty_answer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine amounts, of which no two go into one of eight devices."""
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    for number in range(8):
        device = f"{CELL[:-1]}{number}"
        figures = {"total": 30 + number}
        client.provider(device, f"d{number}", {"VGPU": figures}, parent_provider_uuid=HOST)
    groups = "&".join(f"resources{number}=VGPU:{20 + number}" for number in range(1, 10))
    monkeypatch.setattr(candidates, "BUDGET", 3)
    response = client.ask("GET", f"/allocation_candidates?{groups}&group_policy=none")
    assert response.status_int == 503
    assert "The search was cut short, neither yes nor no" in response.text


def test_a_name_ends_where_it_ends(client: Client) -> None:
    new = {"name": "CUSTOM_A\n"}
    assert client.ask("POST", "/resource_classes", new).status_int == 400
    assert client.ask("PUT", "/resource_classes/CUSTOM_A%0A").status_int == 400
    assert client.ask("GET", "/usages?project_id=lab&consumer_type=all%0A").status_int == 400
    reshape = {
        "inventories": {"-" * 36: {"inventories": {}, "resource_provider_generation": 0}},
        "allocations": {},
    }
    assert client.ask("POST", "/reshaper", reshape).status_int == 400
    claim = {
        "allocations": {HOST: {"resources": {"VCPU": 1}}},
        "project_id": "lab",
        "user_id": "ann",
        "consumer_generation": None,
        "consumer_type": "JOB\n",
    }
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    assert client.ask("PUT", f"/allocations/{OTHER}", claim).status_int == 400


def test_a_parent_and_a_name_come_together_or_not_at_all(shared: tuple[Ledger, Client]) -> None:
    _, client = shared
    for uuid, name in ((HOST, "host0"), (CELL, "cell0"), (OTHER, "taken")):
        client.do("POST", "/resource_providers", {"uuid": uuid, "name": name})
    url = f"/resource_providers/{CELL}"
    new = {"name": "taken", "parent_provider_uuid": HOST}
    assert told(client.ask("PUT", url, new)) == (409, "placement.duplicate_name")
    assert client.do("GET", url)["parent_provider_uuid"] is None
    client.do("PUT", url, new | {"name": "cell1"})
    now = client.do("GET", url)
    assert (now["name"], now["parent_provider_uuid"], now["generation"]) == ("cell1", HOST, 0)


def test_a_parent_that_goes_meanwhile_is_refused(shared: tuple[Ledger, Client]) -> None:
    ledger, client = shared
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    with pytest.raises(Refused, match="parent provider UUID does not exist") as refused:
        translation.move_provider(ledger, HOST, CELL, "host0")
    assert refused.value.status == 400


def test_who_deletes_looks_again_after_a_change(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    really, tried = translation.remove_provider, []

    def remove(ledger: Ledger, one: Any) -> None:
        tried.append(one.generation)
        if len(tried) == 1:  # somebody writes in between
            body = {"traits": ["HW_CPU_X86_AVX"], "resource_provider_generation": 0}
            client.do("PUT", f"/resource_providers/{HOST}/traits", body)
        if len(tried) == 3:  # somebody deletes it in between
            really(ledger, one)
        really(ledger, one)

    monkeypatch.setattr(translation, "remove_provider", remove)
    url = f"/resource_providers/{HOST}"
    client.do("DELETE", url)
    assert len(tried) == 2
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    assert client.ask("DELETE", url).status_int == 404


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exceptions.DatabaseError("busy", "lab.db", "x"), (503, "placement.undefined_code")),
        (exceptions.DatabaseError("unavailable", "lab.db", "x"), (503, "placement.undefined_code")),
        (exceptions.DatabaseError("lost", "lab.db", "x"), (503, "placement.undefined_code")),
        (exceptions.DatabaseError("full", "lab.db", "x"), (503, "placement.undefined_code")),
        (exceptions.DatabaseError("read-only", "lab.db", "x"), (503, "placement.undefined_code")),
        (exceptions.Stale("provider", "host0", "x"), (409, "placement.concurrent_update")),
    ],
)
def test_what_may_go_better_soon_is_no_failure(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    expected: tuple[int, str],
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(translation, "get_provider", fail)
    assert told(client.ask("GET", f"/resource_providers/{HOST}")) == expected


@pytest.mark.parametrize(
    ("url", "code"),
    [("/resource_providers", "placement.undefined_code"), ("/ro/providers", "InternalServerError")],
)
def test_a_failure_of_the_service_is_told_by_its_log_alone(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    url: str,
    code: str,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of /etc/secret")

    monkeypatch.setattr(Ledger, "providers", fail)
    monkeypatch.setattr(translation, "list_providers", fail)
    response = client.ask("GET", url)
    assert told(response) == (500, code)
    number = response.headers["x-openstack-request-id"]
    assert response.json["errors"][0]["request_id"] == number
    assert "secret" not in response.text
    assert f"{number} failed" in caplog.text
    assert "ZeroDivisionError: of /etc/secret" in caplog.text


def test_a_failure_before_the_service_is_told_likewise(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of /etc/secret")

    monkeypatch.setattr(native.Dispatcher, "__call__", fail)
    client = Client(application("memory://", auth="noauth2"))
    response = client.ask("GET", "/traits")
    assert response.status_int == 500
    assert "secret" not in response.text
    assert "ZeroDivisionError: of /etc/secret" in caplog.text


@pytest.mark.parametrize("origins", [(), ("https://lab.example",)])
def test_an_application_is_closed(origins: tuple[str, ...]) -> None:
    app = application("memory://", auth="noauth2", policy="legacy", cors_allowed_origin=origins)
    assert isinstance(app, Application)
    client = Client(app)
    assert client.ask("GET", "/health").status_int == 200
    app.close()
    assert client.ask("GET", "/health").status_int == 503
