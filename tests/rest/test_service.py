"""The service as its clients see it: one story of each resource of the API."""

from __future__ import annotations

from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects.exceptions import InvalidField
from resource_objects.rest import application
from tests.rest.conftest import Client

HOST = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
CELL = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
JOB = "f5a91a0a-e111-4a9c-8a33-7b320ae1e52a"


def claim(amount: int, generation: int | None = None) -> dict[str, object]:
    return {
        "allocations": {HOST: {"resources": {"VCPU": amount}}},
        "project_id": "lab",
        "user_id": "ann",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }


def error(client: Client, method: str, url: str, body: object = None) -> tuple[int, str]:
    response = client.ask(method, url, body)
    [told] = response.json["errors"]
    assert told["status"] == response.status_int
    return told["status"], told["code"]


# --- what is around all requests ---


def test_versions_need_no_token(client: Client) -> None:
    response = client.ask("GET", "/", headers={"x-auth-token": ""})
    [version] = response.json["versions"]
    assert (version["min_version"], version["max_version"]) == ("1.0", "1.39")
    assert response.headers["openstack-api-version"] == "placement 1.39"
    assert response.headers["x-openstack-request-id"].startswith("req-")


@pytest.mark.parametrize(
    ("method", "url", "headers", "status"),
    [
        ("GET", "/resource_providers", {"x-auth-token": ""}, 401),
        ("GET", "/resource_providers", {"x-auth-token": "ann:lab"}, 403),
        ("GET", "/moo", {}, 404),
        ("DELETE", "/resource_providers", {}, 405),
        ("GET", "/resource_providers", {"accept": "text/plain"}, 406),
        ("GET", "/resource_providers", {"openstack-api-version": "placement 1.40"}, 406),
        ("GET", "/resource_providers", {"openstack-api-version": "placement x"}, 400),
        ("GET", "/resource_providers?spam=eggs", {}, 400),
        ("GET", "/resource_providers?name=%ff", {}, 400),
        ("GET", "/resource_providers/%00", {}, 404),
    ],
)
def test_what_is_refused(
    client: Client, method: str, url: str, headers: dict[str, str], status: int
) -> None:
    assert client.ask(method, url, headers=headers).status_int == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b'{"name": 1}', 400),
        (b'{"name": "a", "more": 1}', 400),
        (b"[" * 100_000, 400),
        (b'{"name": "\xff"}', 400),
    ],
)
def test_a_body_that_cannot_be_is_refused(client: Client, body: bytes, status: int) -> None:
    assert client.ask("POST", "/resource_providers", body).status_int == status


def test_what_is_no_way_of_authentication_is_refused() -> None:
    with pytest.raises(InvalidField, match="auth: got 'none', expected one of noauth2"):
        application("memory://", auth="none")
    with pytest.raises(InvalidField, match="policy: got '/no/file'"):
        application("memory://", policy="/no/file")


# --- providers ---


def test_a_provider_comes_is_renamed_and_goes(client: Client) -> None:
    made = client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    assert (made["generation"], made["root_provider_uuid"]) == (0, HOST)
    child = {"uuid": CELL, "name": "cell0", "parent_provider_uuid": HOST}
    assert client.do("POST", "/resource_providers", child)["root_provider_uuid"] == HOST
    told = client.do("PUT", f"/resource_providers/{HOST}", {"name": "host1"})
    assert (told["name"], told["generation"]) == ("host1", 0)
    cannot = (409, "placement.resource_provider.cannot_delete_parent")
    assert error(client, "DELETE", f"/resource_providers/{HOST}") == cannot
    client.do("DELETE", f"/resource_providers/{CELL}")
    client.do("DELETE", f"/resource_providers/{HOST}")
    assert client.do("GET", "/resource_providers") == {"resource_providers": []}


def test_a_name_or_uuid_is_had_once(client: Client) -> None:
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    taken = (409, "placement.duplicate_name")
    same_name = {"uuid": CELL, "name": "host0"}
    assert error(client, "POST", "/resource_providers", same_name) == taken
    same_uuid = {"uuid": HOST, "name": "host1"}
    assert error(client, "POST", "/resource_providers", same_uuid) == taken


def test_inventories_are_written_at_the_generation_they_were_read_at(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8, "allocation_ratio": 1.5}})
    told = client.do("GET", f"/resource_providers/{HOST}/inventories")
    assert told["resource_provider_generation"] == 1
    assert told["inventories"]["VCPU"] == {
        "total": 8,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": 2147483647,
        "step_size": 1,
        "allocation_ratio": 1.5,
    }
    stale = {"resource_provider_generation": 0, "inventories": {}}
    url = f"/resource_providers/{HOST}/inventories"
    assert error(client, "PUT", url, stale) == (409, "placement.concurrent_update")


def test_a_name_that_is_a_uuid_is_told_as_it_was_given(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lab.db"
    client = Client(application(url, policy="legacy"))
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": CELL})
    assert client.do("GET", f"/resource_providers/{HOST}")["name"] == CELL
    [found] = client.do("GET", f"/resource_providers?name={CELL}")["resource_providers"]
    assert found["uuid"] == HOST
    with ro.connect(url) as ledger:  # programs can read it
        assert ledger.provider(HOST).name == f"={CELL}"


@pytest.mark.parametrize("name", [" host0", "a\nb", "\x00"])
def test_a_name_that_cannot_be_printed_is_refused(client: Client, name: str) -> None:
    assert client.ask("POST", "/resource_providers", {"name": name}).status_int == 400


def test_a_trait_takes_a_provider_out_of_service(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    url = f"/resource_providers/{HOST}/traits"
    trait = "COMPUTE_STATUS_DISABLED"
    body = {"traits": [trait], "resource_provider_generation": 1}
    assert client.do("PUT", url, body) == {"traits": [trait], "resource_provider_generation": 2}
    assert client.do("GET", url)["traits"] == [trait]
    assert client.do("GET", "/allocation_candidates?resources=VCPU:1")["allocation_requests"] == []
    client.do("DELETE", url)
    assert client.do("GET", "/allocation_candidates?resources=VCPU:1")["allocation_requests"] != []


# --- allocations ---


def test_a_claim_is_counted_and_given_back(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    client.do("PUT", f"/allocations/{JOB}", claim(6))
    told = client.do("GET", f"/allocations/{JOB}")
    assert told["allocations"] == {HOST: {"generation": 2, "resources": {"VCPU": 6}}}
    assert (told["consumer_generation"], told["consumer_type"]) == (1, "INSTANCE")
    assert client.do("GET", f"/resource_providers/{HOST}/usages")["usages"] == {"VCPU": 6}
    by_type = client.do("GET", "/usages?project_id=lab")["usages"]
    assert by_type == {"INSTANCE": {"consumer_count": 1, "VCPU": 6}}
    client.do("DELETE", f"/allocations/{JOB}")
    assert client.do("GET", f"/allocations/{JOB}") == {"allocations": {}}


def test_a_claim_that_does_not_fit_says_who_holds_what(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    client.do("PUT", f"/allocations/{JOB}", claim(6))
    response = client.ask("PUT", f"/allocations/{CELL}", claim(3))
    assert response.status_int == 409
    detail = response.json["errors"][0]["detail"]
    assert "The requested amount would exceed the capacity" in detail
    assert f"VCPU asked 3, free 2 of 8 ({JOB} holds 6)" in detail


def test_a_consumer_is_written_at_the_generation_it_was_read_at(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    client.do("PUT", f"/allocations/{JOB}", claim(1))
    conflict = (409, "placement.concurrent_update")
    assert error(client, "PUT", f"/allocations/{JOB}", claim(2)) == conflict
    client.do("PUT", f"/allocations/{JOB}", claim(2, 1))
    assert client.do("GET", f"/allocations/{JOB}")["consumer_generation"] == 2


def test_several_consumers_are_written_together_or_not_at_all(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    assert client.ask("POST", "/allocations", {JOB: claim(5), CELL: claim(5)}).status_int == 409
    assert client.do("GET", f"/resource_providers/{HOST}/usages")["usages"] == {"VCPU": 0}
    client.do("POST", "/allocations", {JOB: claim(4), CELL: claim(4)})
    assert client.do("GET", f"/resource_providers/{HOST}/usages")["usages"] == {"VCPU": 8}


def test_a_consumer_that_went_may_come_again(tmp_path: Path) -> None:
    client = Client(application(f"sqlite:///{tmp_path}/lab.db", policy="legacy"))
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    for _ in range(2):
        client.do("PUT", f"/allocations/{JOB}", claim(6))
        held = client.do("GET", f"/resource_providers/{HOST}/allocations")["allocations"]
        assert held == {JOB: {"resources": {"VCPU": 6}, "consumer_generation": 1}}
        client.do("DELETE", f"/allocations/{JOB}")


# --- candidates ---


def test_candidates_are_those_of_the_moment(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    found = client.do("GET", "/allocation_candidates?resources=VCPU:6")
    [one] = found["allocation_requests"]
    assert one == {"allocations": {HOST: {"resources": {"VCPU": 6}}}, "mappings": {"": [HOST]}}
    summary = found["provider_summaries"][HOST]
    assert summary["resources"] == {"VCPU": {"capacity": 8, "used": 0}}
    client.do("PUT", f"/allocations/{JOB}", claim(6))
    found = client.do("GET", "/allocation_candidates?resources=VCPU:6")
    assert found == {"allocation_requests": [], "provider_summaries": {}}


def test_it_serves_what_the_library_wrote(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lab.db"
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8", uuid=HOST))
        ledger.claim("job-1", {"host0": "VCPU=3"})
        client = Client(application(url, policy="legacy"))
        assert client.do("GET", f"/resource_providers/{HOST}/usages")["usages"] == {"VCPU": 3}
        client.do("PUT", f"/allocations/{JOB}", claim(5))
        assert [one.name for one in ledger.consumers()] == [JOB, "job-1"]
        assert ledger.usage().over_capacity == ()
