"""``/ro/search``: what is found over HTTP is what the snapshot finds, with the reasons."""

from __future__ import annotations

import random

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.requests import Request
from resource_objects.search import Candidate
from tests.rest.conftest import Client
from tests.rest.native.conftest import Native, serving
from tests.search import device_fleets
from tests.support import fleets, strategies


@given(strategies.requests())
def test_a_request_is_plain_data_and_back(request: Request) -> None:
    assert Request.from_dict(request.to_dict()) == request


@given(fleets.cases(), st.sampled_from(["name", "pack", "spread"]))
def test_a_search_over_http_is_that_of_the_snapshot(case: fleets.Case, order: str) -> None:
    with ro.connect("memory://") as ledger:
        try:
            ledger.sync(*case.roots)
        except exceptions.Conflict as error:  # fleets are drawn for searches, which take them all
            if not error.is_about("pool"):
                raise
            hypothesis.reject()
        native = Native(serving(ledger))
        asked = {"request": case.request.to_dict(), "order": order, "limit": 50}
        try:
            found = ledger.snapshot().candidates(case.request, order=order, limit=50)
            expected = list(found)
        except exceptions.NotFound as error:
            if not error.is_about("provider"):
                raise
            assert native.refused("POST", "/search", asked) == (404, "ProviderNotFound")
            return
        answer = native.do("POST", "/search", {**asked, "hosts": 1000})
    assert [Candidate.from_dict(one) for one in answer["candidates"]] == expected
    assert (answer["cut_short"], answer["steps"]) == (found.cut_short, found.steps)
    assert Request.from_dict(answer["request"]) == case.request
    if not expected:
        told = {
            host: [reason["text"] for reason in reasons]
            for host, reasons in answer["explanation"]["refused"].items()
        }
        assert told == {
            host: [str(reason) for reason in reasons] for host, reasons in found.explain().by_host()
        }


@given(st.integers(0, 2**32))
def test_devices_and_topologies_are_found_as_in_process(seed: int) -> None:
    ledger, request = device_fleets.fleet(seed)
    with ledger:
        found = list(ledger.snapshot().candidates(request))
        answer = Native(serving(ledger)).do("POST", "/search", {"request": request.to_dict()})
    assert [Candidate.from_dict(one) for one in answer["candidates"]] == found


def test_reasons_stand_beside_an_empty_answer(native: Native) -> None:
    native.ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8,PGPU=4") for n in range(3)))
    native.ledger.claim("job-1", {"host0": "PGPU=3"})
    answer = native.do("POST", "/search", {"request": {"resources": {"PGPU": 5}}, "hosts": 2})
    assert answer["candidates"] == []
    explanation = answer["explanation"]
    assert explanation["answer"].startswith("no host has PGPU=5 free, the most is 4")
    assert (sorted(explanation["refused"]), explanation["more"]) == (["host1", "host2"], 1)
    asked = {"request": "PGPU=5", "at": "host0"}
    [reason] = native.do("POST", "/search", asked)["explanation"]["refused"]["host0"]
    assert (reason["rule"], reason["holders"]) == ("capacity", [["job-1", 3]])
    assert [one["after"] for one in explanation["stages"]][-2:] == [0, 0]


def test_who_cannot_is_told_beside_who_can_where_that_is_asked(native: Native) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=2"))
    asked = {"request": "VCPU=4"}
    assert native.do("POST", "/search", asked)["explanation"] is None
    explanation = native.do("POST", "/search", {**asked, "explain": True})["explanation"]
    assert list(explanation["refused"]) == ["host1"]


def test_near_and_limits_and_order_are_asked_for(native: Native) -> None:
    for name in ("a", "b"):
        host = ro.Provider(name, "VCPU=8")
        for cell in range(2):
            host.add(f"{name}/numa{cell}", "PGPU=2", traits=["HW_NUMA_ROOT"])
        native.ledger.sync(host)
    native.ledger.claim("job", {"a": "VCPU=4"})
    request = {"resources": "VCPU=2,PGPU=2", "near": "numa", "near_policy": "required"}
    asked = {"request": request, "order": {"by": "pack", "weights": {"VCPU": 1}}}
    found = native.do("POST", "/search", asked)["candidates"]
    assert [one["host"] for one in found] == ["a", "b"]
    asked |= {"limits": {"a": {"VCPU": 5}, "b": "VCPU=0"}}
    assert native.do("POST", "/search", asked)["candidates"] == []


def test_what_cannot_be_asked_is_refused_by_name(native: Native) -> None:
    for body, code in (
        ({}, "BadRequest"),
        ({"request": 3}, "BadRequest"),
        ({"request": "VCPU"}, "InvalidText"),
        ({"request": ""}, "InvalidRequest"),
        ({"request": {"resources": "VCPU=1", "requird": []}}, "BadRequest"),
        ({"request": {"resources": {"VCPU": -1}}}, "InvalidRequest"),
        ({"request": {"resources": {"NOTHING": 1}}}, "UnknownResourceClass"),
        ({"request": "VCPU=1", "order": "best"}, "InvalidRequest"),
        ({"request": "VCPU=1", "limit": 0}, "BadRequest"),
        (b"{", "BadRequest"),
    ):
        assert native.refused("POST", "/search", body) == (400, code), body
    [one] = native.ask("POST", "/search", {"request": {"requird": []}}).json["errors"]
    assert "'requird' was unexpected" in one["detail"]
    assert native.refused("POST", "/search?x=1", {"request": "VCPU=1"}) == (400, "UnknownField")
    groups = [{"suffix": f"_{n}", "resources": "VCPU=1"} for n in range(1001)]
    asked = {"request": {"groups": groups}}
    assert native.refused("POST", "/search", asked) == (400, "InvalidRequest")


def test_a_search_that_is_cut_short_says_so(native: Native) -> None:
    chance = random.Random(1)
    native.ledger.sync(*(root for root in fleets.fleet(chance)))
    native.ledger.sync(*(ro.Provider(f"h{n}", "VCPU=8,DISK_GB=9") for n in range(9)))
    groups = [{"suffix": f"_{n}", "resources": "VCPU=1,DISK_GB=1"} for n in range(3)]
    request = {"groups": groups, "group_policy": "isolate"}
    answer = native.do("POST", "/search", {"request": request, "budget": 1, "limit": 100})
    expected = native.ledger.snapshot().candidates(Request.from_dict(request), budget=1, limit=100)
    assert answer["cut_short"] == expected.cut_short


@pytest.mark.parametrize("version", ["1.10", "1.39"])
def test_a_client_of_placement_is_told_reasons_if_it_asks(native: Native, version: str) -> None:
    native.ledger.sync(ro.Provider("host0", "VCPU=8"))
    client = Client(native.app)
    plain = {"openstack-api-version": f"placement {version}"}
    both = {"openstack-api-version": f"placement {version}, resource-objects 1.0"}
    for url in (
        "/allocation_candidates?resources=VCPU:2",
        "/allocation_candidates?resources=VCPU:9",
    ):
        told = client.ask("GET", url, headers=plain)
        assert sorted(told.json) == ["allocation_requests", "provider_summaries"]
        assert told.headers.getall("openstack-api-version") == [f"placement {version}"]
    told = client.ask("GET", url, headers=both)
    [reason] = told.json["explanation"]["refused"]["host0"]
    assert reason["text"] == "host0: VCPU requested 9, free 8 of 8"
    assert sorted(told.headers.getall("openstack-api-version")) == [
        f"placement {version}",
        "resource-objects 1.0",
    ]
    wrong = {"openstack-api-version": f"placement {version}, resource-objects 9.0"}
    assert client.ask("GET", url, headers=wrong).status_int == 406


def test_a_refused_claim_of_placements_api_tells_reasons_if_it_is_asked(native: Native) -> None:
    host, job = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e", "f5a91a0a-e111-4a9c-8a33-7b320ae1e52a"
    native.ledger.sync(ro.Provider("host0", "VCPU=8", uuid=host))
    native.ledger.claim("job-1", {"host0": "VCPU=6"})
    body = {
        "allocations": {host: {"resources": {"VCPU": 3}}},
        "project_id": "lab",
        "user_id": "ann",
        "consumer_generation": None,
        "consumer_type": "JOB",
    }
    client = Client(native.app)
    [plain] = client.ask("PUT", f"/allocations/{job}", body).json["errors"]
    both = {"openstack-api-version": "placement 1.39, resource-objects 1.0"}
    [told] = client.ask("PUT", f"/allocations/{job}", body, headers=both).json["errors"]
    assert told.pop("reasons")[0]["holders"] == [["job-1", 6]]
    assert told.pop("more_reasons") == 0
    assert {**told, "request_id": ""} == {**plain, "request_id": ""}
