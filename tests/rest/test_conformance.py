"""What clients compare: the order of refusals, codes, generations, and what is taken as what."""

from __future__ import annotations

from typing import Any

import pytest

from resource_objects.rest.wsgi import Application
from tests.rest.conftest import Client

HOST = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
OTHER = "2fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
JOB = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
PATH = f"/resource_providers/{HOST}"


def claim(generation: int | None, **held: int) -> dict[str, Any]:
    """Return what lets a consumer hold some of the host."""
    return {
        "allocations": {HOST: {"resources": held}} if held else {},
        "consumer_generation": generation,
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "JOB",
    }


def inventories(generation: int, **totals: float) -> dict[str, Any]:
    """Return a body that gives a provider inventories."""
    made = {name: {"total": total} for name, total in totals.items()}
    return {"resource_provider_generation": generation, "inventories": made}


@pytest.fixture
def host(client: Client) -> Client:
    """A service with a host of 8 CPUs, at generation 1."""
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    return client


def code(client: Client, *asked: Any, **said: Any) -> tuple[int, str]:
    """Return the status and the code of a refusal."""
    found = client.ask(*asked, **said)
    return found.status_int, found.json["errors"][0]["code"].removeprefix("placement.")


@pytest.mark.parametrize("what", ["", "/inventories", "/inventories/VCPU", "/aggregates"])
def test_a_provider_that_is_not_there_is_told_before_a_bad_body(client: Client, what: str) -> None:
    assert client.ask("PUT", f"{PATH}{what}", {"x": 1}).status_int == 404
    wrong = client.ask("PUT", f"{PATH}{what}", {}, headers={"content-type": "text/plain"})
    assert wrong.status_int == 415


def test_a_generation_of_a_consumer_is_looked_at_first(host: Client) -> None:
    stale = claim(7, CUSTOM_NO=1)
    assert code(host, "PUT", f"/allocations/{JOB}", stale) == (409, "concurrent_update")
    body = {**inventories(1, CUSTOM_NO=1), "resource_provider_generation": 1}
    reshape = {"inventories": {HOST: body}, "allocations": {JOB: stale}}
    assert code(host, "POST", "/reshaper", reshape) == (409, "concurrent_update")
    first = claim(None, CUSTOM_NO=1)
    first["allocations"][OTHER] = {"resources": {"VCPU": 1}}
    refused = host.ask("PUT", f"/allocations/{JOB}", first)
    assert refused.status_int == 400 and f"'{OTHER}' that does not exist" in refused.text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("resources=VCPU:0", "undefined_code"),
        ("resources=VCPU:1&member_of=x", "undefined_code"),
        ("resources=VCPU:1&required=CUSTOM_A,!CUSTOM_A", "undefined_code"),
        ("resources=VCPU:1&root_required=CUSTOM_A,!CUSTOM_A", "query.bad_value"),
        ("resources=CUSTOM_NO:1&same_subtree=1", "query.bad_value"),
        ("same_subtree=1", "query.missing_value"),
        ("resources=VCPU:x&required1=HW_CPU_X86_AVX", "undefined_code"),
        ("required=HW_CPU_X86_AVX&resources1=VCPU:1", "query.bad_value"),
        ("required=HW_CPU_X86_AVX", "query.missing_value"),
        ("resources=VCPU:x&same_subtree=,", "query.bad_value"),
        ("resources1=VCPU:1&resources2=VCPU:1&same_subtree=3", "query.bad_value"),
        ("resources1=VCPU:1&resources2=VCPU:1", "undefined_code"),
        ("resources1=VCPU:1&required2=HW_CPU_X86_AVX&same_subtree=1,2", "undefined_code"),
        ("resources=&resources=VCPU:1", "undefined_code"),
        ("resources=VCPU:1&required=in:HW_CPU_X86_AVX&required=!HW_CPU_X86_AVX", "undefined_code"),
    ],
)
def test_queries_are_refused_with_the_codes_of_placement(
    client: Client, query: str, expected: str
) -> None:
    assert code(client, "GET", f"/allocation_candidates?{query}") == (400, expected)


def test_blanks_stand_around_what_a_query_lists(host: Client) -> None:
    linked = f"resources=VCPU:1&required1=HW_CPU_X86_AVX&in_tree={HOST}%20&same_subtree=%201%20"
    assert host.do("GET", f"/allocation_candidates?{linked}")["allocation_requests"] == []


def test_of_what_is_said_twice_the_last_counts(host: Client) -> None:
    [one] = host.do("GET", f"/resource_providers?uuid=x&uuid={HOST}")["resource_providers"]
    assert one["uuid"] == HOST
    assert host.ask("GET", f"/resource_providers?uuid={HOST}&uuid=x").status_int == 400


@pytest.mark.parametrize(
    ("path", "version", "expected"),
    [
        ("/resource_classes", "1.1", 404),
        ("/traits", "1.5", 404),
        (f"{PATH}/traits", "1.5", 404),
        ("/usages?project_id=p", "1.8", 404),
        ("/allocation_candidates?resources=VCPU:1", "1.9", 404),
        (f"{PATH}/aggregates", "1.0", 406),
        (f"{PATH}/aggregates", "1.1", 406),
        ("/traits/HW_CPU_X86_AVX", "1.6", 204),
        ("/", "1.0", 200),
        ("/resource_providers", "1.0", 406),
        (f"{PATH}/x", "1.0", 404),
    ],
)
def test_what_a_version_does_not_have_is_told_before_what_is_accepted(
    client: Client, path: str, version: str, expected: int
) -> None:
    found = client.ask("GET", path, version=version, headers={"accept": "text/plain"})
    assert found.status_int == expected
    if expected == 406:
        assert client.ask("GET", path, version=version).status_int == 404 or "uuid" not in path


def test_what_cannot_be_decoded_is_a_fault_only_where_a_query_is_looked_at(host: Client) -> None:
    assert host.ask("GET", f"{PATH}?x=%ff").status_int == 200
    for path in ("/usages", "/resource_providers", "/allocation_candidates", "/traits"):
        assert host.ask("GET", f"{path}?project_id=%ff").status_int == 400
    assert host.ask("GET", "/usages?project_id=%ff", version="1.8").status_int == 404


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_a_body_is_utf_8(client: Client, encoding: str) -> None:
    body = '{"name": "host0"}'
    assert client.ask("POST", "/resource_providers", body.encode(encoding)).status_int == 400
    assert client.ask("POST", "/resource_providers", body.encode()).status_int == 200


def test_a_stale_generation_is_told_before_traits_that_cannot_be(host: Client) -> None:
    url = f"{PATH}/traits"
    for trait in ("x", "é", "CUSTOM_NO"):
        body = {"traits": [trait], "resource_provider_generation": 0}
        assert code(host, "PUT", url, body) == (409, "concurrent_update")
        assert host.ask("PUT", url.replace(HOST, OTHER), body).status_int == 404
        body["resource_provider_generation"] = 1
        assert host.ask("PUT", url, body).status_int == 400


def test_a_stale_generation_is_told_before_classes_that_cannot_be(host: Client) -> None:
    for figures in ({"total": 0}, {}, {"total": 8, "x": 1}, 7):
        body = {"resource_provider_generation": 0, "inventories": {"x": figures}}
        assert code(host, "PUT", f"{PATH}/inventories", body) == (409, "concurrent_update")
        body["resource_provider_generation"] = 1
        assert host.ask("PUT", f"{PATH}/inventories", body).status_int == 400


@pytest.mark.parametrize(
    "figures",
    [
        {"total": 1, "reserved": 2, "allocation_ratio": 0.5},
        {"total": 8, "min_unit": 4, "max_unit": 2},
        {"total": 8, "allocation_ratio": 0.1234567},
        {"total": 8, "allocation_ratio": float("nan")},
    ],
)
def test_what_placement_would_keep_is_refused_after_all_else(
    host: Client, figures: dict[str, Any]
) -> None:
    host.do("PUT", f"/allocations/{JOB}", claim(None, VCPU=1))
    host.do("PUT", "/resource_classes/CUSTOM_A")
    url = f"{PATH}/inventories"
    body = {"resource_provider_generation": 2, "inventories": {"CUSTOM_A": figures}}
    assert code(host, "PUT", url, body) == (409, "inventory.inuse")
    body["inventories"]["VCPU"] = {"total": 8}
    assert host.ask("PUT", url, body).status_int == 400
    again = {"resource_class": "VCPU", **figures}
    assert code(host, "POST", url, again) == (409, "concurrent_update")
    assert host.ask("POST", url, again | {"resource_class": "CUSTOM_A"}).status_int == 400
    one = {"resource_provider_generation": 2, **figures}
    assert host.ask("PUT", f"{url}/CUSTOM_NO", one).status_int == 404
    assert host.ask("PUT", f"{url}/VCPU", one).status_int == 400


@pytest.mark.parametrize(
    ("mappings", "expected"),
    [
        ({"": []}, 204),
        ({"": [0]}, 204),
        ({"é": 1}, 204),
        ({"a b": [HOST]}, 204),
        ({"a b": ["x"]}, 400),
        ({"1": []}, 400),
        ({}, 400),
    ],
)
def test_mappings_are_looked_at_as_little_as_placement_does(
    host: Client, mappings: dict[str, Any], expected: int
) -> None:
    body = claim(None, VCPU=1) | {"mappings": mappings}
    assert host.ask("PUT", f"/allocations/{JOB}", body).status_int == expected


@pytest.mark.parametrize("amount", [2**31, 2**63, 2**70])
def test_nobody_gives_more_than_2147483647_at_once(client: Client, amount: int) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 2**31 - 1, "allocation_ratio": 16}})
    for path in ("/allocation_candidates", "/resource_providers"):
        told = client.do("GET", f"{path}?resources=VCPU:{amount}")
        assert not any(told.values())
        assert any(client.do("GET", f"{path}?resources=VCPU:2147483647").values())
    refused = client.ask("PUT", f"/allocations/{JOB}", claim(None, VCPU=amount))
    assert refused.status_int == 409 and "violate inventory constraints" in refused.text
    refused = client.ask("PUT", f"/allocations/{JOB}", claim(None, MEMORY_MB=amount))
    assert refused.status_int == 409 and "invalid" in refused.text
    for name in ("CUSTOM_NO", "X" * 256):
        refused = client.ask("PUT", f"/allocations/{JOB}", claim(None, **{name: amount}))
        assert refused.status_int == 400
    client.do("PUT", f"/allocations/{JOB}", claim(None, VCPU=2**31 - 1))


def test_filters_of_names_that_there_are_not(host: Client) -> None:
    every = host.do("GET", "/traits")
    assert host.do("GET", "/traits?name=has:CUSTOM") == every
    assert host.do("GET", "/traits?name=startswith:%25") == {"traits": []}
    assert host.ask("GET", "/traits?name=x").status_int == 400
    assert host.do("GET", "/usages?project_id=p&consumer_type=allx") == {"usages": {}}
    assert host.ask("GET", "/usages?project_id=p&consumer_type=x").status_int == 400


def test_before_1_29_a_limit_cuts_what_one_provider_of_a_tree_gives(client: Client) -> None:
    """What takes of two of a tree is left out before, and who is left is summed up."""
    a, b, c = (f"{n}aaaaaaa-0000-4000-8000-000000000000" for n in (1, 2, 3))
    client.provider(a, "host0", {"VCPU": {"total": 8}})
    client.provider(b, "cell0", {"MEMORY_MB": {"total": 8}}, parent_provider_uuid=a)
    both = {name: {"total": 8} for name in ("VCPU", "MEMORY_MB")}
    client.provider(c, "cell1", both, parent_provider_uuid=a)
    url = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:1&limit=1"
    told = client.do("GET", url, version="1.28")
    [one] = told["allocation_requests"]
    assert set(one["allocations"]) == set(told["provider_summaries"]) == {c}
    told = client.do("GET", url.replace("VCPU:1,", ""), version="1.28")
    assert len(told["allocation_requests"]) == 1
    assert set(told["provider_summaries"]) == {b, c}


def test_only_trees_that_give_something_are_summed_up(client: Client) -> None:
    """A pool gives all; of who stands beside it only a trait is asked."""
    rack = "eeeeeeee-0000-4000-8000-000000000001"
    client.provider(HOST, "pool", {"DISK_GB": {"total": 8}})
    client.do("POST", "/resource_providers", {"name": "host0", "uuid": OTHER})
    for uuid, at, trait in ((HOST, 1, "MISC_SHARES_VIA_AGGREGATE"), (OTHER, 0, "HW_CPU_X86_AVX")):
        said = {"traits": [trait], "resource_provider_generation": at}
        client.do("PUT", f"/resource_providers/{uuid}/traits", said)
        said = {"aggregates": [rack], "resource_provider_generation": at + 1}
        client.do("PUT", f"/resource_providers/{uuid}/aggregates", said)
    query = "resources=DISK_GB:1&required1=HW_CPU_X86_AVX&same_subtree=1"
    told = client.do("GET", f"/allocation_candidates?{query}")
    [one] = told["allocation_requests"]
    assert one["mappings"] == {"": [HOST], "1": [OTHER]}
    assert set(told["provider_summaries"]) == {HOST}


def test_an_inventory_that_is_there_and_a_class_that_is_not(host: Client) -> None:
    again = {"resource_class": "VCPU", "total": 4}
    assert code(host, "POST", f"{PATH}/inventories", again) == (409, "concurrent_update")
    body = {"resource_provider_generation": 1, "total": 4}
    assert host.ask("PUT", f"{PATH}/inventories/CUSTOM_NO", body).status_int == 404
    small = {"VCPU": {"total": 4, "allocation_ratio": 0.1}}
    body = {"resource_provider_generation": 1, "inventories": small}
    assert host.ask("PUT", f"{PATH}/inventories", body, version="1.25").status_int == 400
    assert host.ask("PUT", f"{PATH}/inventories", body, version="1.26").status_int == 200


def test_a_uuid_in_braces_is_one_in_a_body_and_none_in_a_query(client: Client) -> None:
    client.do("POST", "/resource_providers", {"name": "host0", "uuid": f"{{{HOST.upper()}}}"})
    assert client.do("GET", PATH)["uuid"] == HOST
    assert client.ask("GET", f"/resource_providers?in_tree={{{HOST}}}").status_int == 400
    assert client.do("GET", "/allocations/nobody") == {"allocations": {}}


def test_no_name_is_asked_for_by_an_empty_one(host: Client) -> None:
    assert len(host.do("GET", "/resource_providers?name=")["resource_providers"]) == 1


def test_a_whole_number_with_a_point_is_kept_as_one(client: Client) -> None:
    client.do("POST", "/resource_providers", {"name": "host0", "uuid": HOST})
    client.do("PUT", f"{PATH}/inventories", inventories(0, VCPU=8.0))
    body = claim(None)
    body["allocations"] = {HOST: {"resources": {"VCPU": 2.0}}}
    client.do("PUT", f"/allocations/{JOB}", body)
    told = client.ask("GET", f"{PATH}/inventories").text + client.ask("GET", f"{PATH}/usages").text
    assert '"total": 8,' in told and '"VCPU": 2}' in told


def test_before_1_12_a_provider_that_is_listed_twice_is_the_last_one(host: Client) -> None:
    held = [{"resource_provider": {"uuid": HOST}, "resources": {"VCPU": n}} for n in (1, 2)]
    host.do("PUT", f"/allocations/{JOB}", {"allocations": held}, version="1.7")
    assert host.do("GET", f"{PATH}/usages")["usages"] == {"VCPU": 2}


def test_a_write_answers_the_generation_that_it_made(
    host: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is claimed meanwhile counts; what somebody else defines makes it one of nobody."""
    assert isinstance(host.app, Application)
    backend = host.app.ledger.backend
    commit = type(backend).commit
    meanwhile: list[Any] = []

    def slow(self: Any, write: Any) -> Any:
        if write.kind == "define" and meanwhile:
            meanwhile.pop()()
        return commit(self, write)

    monkeypatch.setattr(type(backend), "commit", slow)
    meanwhile.append(lambda: host.do("PUT", f"/allocations/{JOB}", claim(None, VCPU=1)))
    told = host.do("PUT", f"{PATH}/inventories", inventories(1, VCPU=9))
    assert told["resource_provider_generation"] == host.do("GET", PATH)["generation"] == 3
    told = host.do("PUT", f"{PATH}/traits", {"traits": [], "resource_provider_generation": 3})
    assert told["resource_provider_generation"] == 3


def test_who_is_taken_out_of_service_has_another_generation(host: Client) -> None:
    assert isinstance(host.app, Application)
    host.app.ledger.disable("host0", reason="fan")
    said = {"resource_provider_generation": 1, "traits": []}
    assert host.ask("PUT", f"{PATH}/traits", said).status_int == 409
    assert host.do("GET", PATH)["generation"] == 2
    host.app.ledger.enable("host0")
    out = {"resource_provider_generation": 3, "traits": ["COMPUTE_STATUS_DISABLED"]}
    assert host.do("PUT", f"{PATH}/traits", out)["resource_provider_generation"] == 4


def test_a_reshape_counts_as_placement_counts_it(host: Client) -> None:
    def reshape(body: dict[str, Any], **held: Any) -> int:
        said = {"inventories": {HOST: body}, "allocations": held}
        host.do("POST", "/reshaper", said)
        found: int = host.do("GET", PATH)["generation"]
        return found

    assert reshape(inventories(1, VCPU=8), **{JOB: claim(None, VCPU=1)}) == 4
    assert reshape(inventories(4, VCPU=8), **{JOB: claim(1, VCPU=1)}) == 7
    host.do("DELETE", f"/allocations/{JOB}")
    assert reshape(inventories(7)) == 8
