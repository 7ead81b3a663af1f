"""The document of the native API, its versions, and who may ask."""

from __future__ import annotations

import re

import jsonschema
import pytest

import resource_objects as ro
from resource_objects.rest import application, policy
from resource_objects.rest.native import CALLS, RULES
from resource_objects.rest.native.schemas import SCHEMAS
from tests.rest.conftest import Client
from tests.rest.native import pages
from tests.rest.native.conftest import DOCUMENT, Native, strict

HOST, JOB = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e", "f5a91a0a-e111-4a9c-8a33-7b320ae1e52a"


def test_the_document_is_openapi(native: Native) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(native.do("GET", "/openapi.json"))


def test_each_schema_is_one_and_refers_to_what_is_there() -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    used = set(re.findall(r"#/components/schemas/(\w+)", repr(DOCUMENT)))
    assert used == set(SCHEMAS)


def test_each_call_is_in_the_document_once_and_told() -> None:
    found = [
        one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values()
    ]
    ours = [name for name in found if not name.startswith("placement_")]
    assert sorted(ours) == sorted(call.name for call in CALLS)
    assert len(set(found)) == len(found)
    for methods in DOCUMENT["paths"].values():
        for one in methods.values():
            assert one["summary"].endswith("."), one["operationId"]
            assert all(said.get("description") for said in one["parameters"] if "name" in said)


def test_calls_of_placement_that_say_more_are_in_the_document(native: Native) -> None:
    paths = DOCUMENT["paths"]
    said = {
        (method.upper(), path): one["x-policy-rule"]
        for path, methods in paths.items()
        for method, one in methods.items()
        if one["operationId"].startswith("placement_")
    }
    assert said == {
        (method, path.replace("{uuid}", "{consumer}")): rule
        for path, methods in native.app.routes.items()
        for method, rule in methods.items()
        if (method, path.replace("{uuid}", "{consumer}")) in said
    }
    native.ledger.sync(ro.Provider("host0", "VCPU=8", uuid=HOST))
    both = "placement 1.39, resource-objects 1.0"
    held = {
        "allocations": {HOST: {"resources": {"VCPU": 9}}},
        "project_id": "lab",
        "user_id": "ann",
        "consumer_generation": None,
        "consumer_type": "JOB",
    }
    for method, path, url, body in (
        ("get", "/allocation_candidates", "/allocation_candidates?resources=VCPU:1", None),
        ("get", "/allocation_candidates", "/allocation_candidates?resources=VCPU:9", None),
        ("put", "/allocations/{consumer}", f"/allocations/{JOB}", held),
        ("post", "/allocations", "/allocations", {JOB: held}),
        (
            "post",
            "/reshaper",
            "/reshaper",
            {
                "inventories": {
                    HOST: {"inventories": {"VCPU": {"total": 8}}, "resource_provider_generation": 0}
                },
                "allocations": {JOB: held},
            },
        ),
    ):
        response = Client(native.app).ask(method.upper(), url, body, headers=said_as(both))
        answers = paths[path][method]["responses"]
        schema = answers[str(response.status_int)]["content"]["application/json"]["schema"]
        told = {**strict(schema), "components": {"schemas": strict(SCHEMAS)}}
        jsonschema.Draft202012Validator(told).validate(response.json)
        if response.status_int == 409:
            assert response.json["errors"][0]["reasons"][0]["rule"] == "capacity"


def said_as(version: str) -> dict[str, str]:
    return {"openstack-api-version": version, "x-roles": "admin,service"}


def test_versions_and_the_document_need_no_token(native: Native) -> None:
    nobody = {"x-auth-token": ""}
    told = native.ask("GET", "", headers=nobody).json
    assert (told["min_version"], told["max_version"]) == ("1.0", "1.0")
    assert native.ask("GET", "/openapi.json", headers=nobody).json["info"]["version"] == "1.0"
    response = native.ask("POST", "/search", {"request": "VCPU=1"}, headers=nobody)
    assert (response.status_int, response.json["errors"][0]["code"]) == (401, "Unauthorized")


def test_the_root_leads_to_it_and_says_what_it_said(native: Native) -> None:
    response = Client(native.app).ask("GET", "/")
    assert response.headers["link"] == '</ro/openapi.json>; rel="service-desc"'
    assert sorted(response.json) == ["versions"]
    assert len(response.json["versions"]) == 1


def test_a_version_that_there_is_not_is_refused(native: Native) -> None:
    for said, status in (
        ("resource-objects 1.0", 200),
        ("resource-objects latest", 200),
        ("placement 1.39", 200),
        ("resource-objects 1.1", 406),
        ("resource-objects one", 400),
    ):
        response = native.ask("GET", "", headers={"openstack-api-version": said})
        assert response.status_int == status, said
    assert native.ask("GET", "").headers["openstack-api-version"] == "resource-objects 1.0"


def test_each_rule_has_a_default_in_each_policy() -> None:
    assert set(RULES) <= set(policy.RULES)
    admin, service, nobody = ({"roles": [role]} for role in ("admin", "service", "reader"))
    for name, may in (("secure", (1, 1, 0)), ("legacy", (1, 0, 0)), ("open", (1, 1, 1))):
        rules = policy.Policy(name)
        for rule in RULES:
            asked = [rules.allows(rule, {}, creds) for creds in (admin, service, nobody)]
            assert asked == [bool(one) for one in may], rule


def test_who_may_not_is_told_so() -> None:
    app = application("memory://", auth="noauth2", policy="secure")
    native = Native(app)
    someone = {"x-auth-token": "ann:lab", "x-roles": "reader"}
    for call in CALLS:
        if call.rule is None:
            continue
        path = re.sub(r"\{\w+:path\}", "x", call.path).removeprefix("/ro")
        response = native.ask(call.method, path, {}, headers=someone)
        assert (response.status_int, response.json["errors"][0]["code"]) == (403, "Forbidden")
    app.close()


def test_a_path_or_a_method_that_there_is_not_is_refused(native: Native) -> None:
    assert native.refused("GET", "/nothing") == (404, "NotFound")
    assert native.refused("DELETE", "/search") == (405, "MethodNotAllowed")


def test_the_pages_are_in_step() -> None:
    """After a change of the API: ``python -m tests.rest.native.pages``."""
    assert pages.PAGE.read_text(encoding="utf-8") == pages.page()
    assert pages.RAW.read_text(encoding="utf-8") == pages.raw()
