"""The service as its clients see it: one story of each resource of the API."""

from __future__ import annotations

from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects.rest import application
from resource_objects.testing.refusals import raises_code
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
    with raises_code("InvalidField", match="auth: got 'none', expected one of noauth2"):
        application("memory://", auth="none")
    with raises_code("InvalidField", match="policy: got '/no/file'"):
        application("memory://", auth="noauth2", policy="/no/file")


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
    client = Client(application(url, auth="noauth2", policy="legacy"))
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


def test_inventories_are_made_changed_and_deleted_one_by_one(client: Client) -> None:
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    url = f"/resource_providers/{HOST}/inventories"
    made = client.ask("POST", url, {"resource_class": "DISK_GB", "total": 9, "min_unit": 3})
    assert (made.status_int, made.headers["location"]) == (201, f"http://localhost{url}/DISK_GB")
    assert (made.json["resource_provider_generation"], made.json["min_unit"]) == (1, 3)
    assert client.do("GET", f"{url}/DISK_GB") == made.json
    changed = made.json | {"reserved": 9}
    assert client.do("PUT", f"{url}/DISK_GB", changed)["resource_provider_generation"] == 2
    assert client.ask("GET", f"{url}/VCPU").status_int == 404
    assert error(client, "DELETE", f"{url}/VCPU")[0] == 404
    wrong = {"resource_provider_generation": 2, "total": 1}
    for figures in ({"reserved": 2}, {"allocation_ratio": 5000}, {"min_unit": 3, "max_unit": 1}):
        assert error(client, "PUT", f"{url}/DISK_GB", wrong | figures)[0] == 400, figures
    assert error(client, "PUT", f"{url}/VCPU", wrong)[0] == 400, "there is none yet"
    client.do("POST", url, {"resource_class": "VCPU", "total": 8})
    client.do("PUT", f"/allocations/{JOB}", claim(1))
    in_use = (409, "placement.inventory.inuse")
    assert error(client, "DELETE", f"{url}/VCPU") == in_use
    assert error(client, "DELETE", url) == in_use
    client.do("DELETE", f"{url}/DISK_GB")
    assert list(client.do("GET", url)["inventories"]) == ["VCPU"]
    client.do("DELETE", f"/allocations/{JOB}")
    assert client.ask("DELETE", url, version="1.4").headers["allow"] == "GET, PUT, POST"
    client.do("DELETE", url)
    assert client.do("GET", url)["inventories"] == {}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["host0", "host1", "host1/c"]),
        ("name=host1", ["host1"]),
        (f"uuid={HOST}", ["host0"]),
        ("resources=VCPU:3", ["host1"]),
        ("resources=VCPU:1,DISK_GB:1", []),
        ("required=HW_CPU_X86_AVX", ["host0"]),
        ("required=!HW_CPU_X86_AVX", ["host1", "host1/c"]),
        ("required=in:HW_CPU_X86_AVX,HW_CPU_X86_SSE", ["host0"]),
        (f"in_tree={CELL}", ["host1", "host1/c"]),
        (f"member_of={JOB}", ["host1"]),
        (f"member_of=!{JOB}", ["host0", "host1/c"]),
        (f"member_of=in:{JOB},{HOST}", ["host1"]),
    ],
)
def test_providers_are_listed_by_what_they_are(
    client: Client, query: str, found: list[str]
) -> None:
    host = ro.Provider(
        "host1", "VCPU=4", uuid="3fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", aggregates=[JOB]
    )
    host.add("host1/c", "DISK_GB=4", uuid=CELL)
    client.app.ledger.sync(
        ro.Provider("host0", "VCPU=2", uuid=HOST, traits=["HW_CPU_X86_AVX"]), host
    )
    told = client.do("GET", f"/resource_providers?{query}")["resource_providers"]
    assert [one["name"] for one in told] == found


# --- names ---


def test_classes_come_are_renamed_and_go(client: Client) -> None:
    made = client.ask("POST", "/resource_classes", {"name": "CUSTOM_A"})
    assert (made.status_int, made.headers["location"]) == (
        201,
        "http://localhost/resource_classes/CUSTOM_A",
    )
    assert error(client, "POST", "/resource_classes", {"name": "CUSTOM_A"})[0] == 409
    assert client.ask("PUT", "/resource_classes/CUSTOM_A").status_int == 204
    assert client.ask("PUT", "/resource_classes/CUSTOM_B").status_int == 201
    assert client.ask("PUT", "/resource_classes/VCPUS").status_int == 400
    for name, new, status in (
        ("CUSTOM_A", "CUSTOM_C", 200),
        ("CUSTOM_C", "CUSTOM_B", 409),
        ("CUSTOM_A", "CUSTOM_D", 404),
        ("VCPU", "CUSTOM_D", 400),
    ):
        path = f"/resource_classes/{name}"
        assert client.ask("PUT", path, {"name": new}, version="1.6").status_int == status, name
    told = client.do("GET", "/resource_classes")["resource_classes"]
    assert [one["name"] for one in told if one["name"] > "CUSTOM"][-2:] == ["CUSTOM_B", "CUSTOM_C"]
    assert client.do("GET", "/resource_classes/CUSTOM_C")["name"] == "CUSTOM_C"
    client.provider(HOST, "host0", {"CUSTOM_C": {"total": 1}})
    for name, status in (("CUSTOM_B", 204), ("CUSTOM_B", 404), ("CUSTOM_C", 409), ("VCPU", 400)):
        assert client.ask("DELETE", f"/resource_classes/{name}").status_int == status, name


def test_traits_come_are_listed_and_go(client: Client) -> None:
    for status in (201, 204):
        assert client.ask("PUT", "/traits/CUSTOM_A").status_int == status
    assert client.ask("PUT", "/traits/CUSTOM_a").status_int == 400
    client.do("PUT", "/traits/CUSTOM_B")
    client.do("POST", "/resource_providers", {"uuid": HOST, "name": "host0"})
    url = f"/resource_providers/{HOST}/traits"
    client.do("PUT", url, {"traits": ["CUSTOM_B"], "resource_provider_generation": 0})
    for query, found in (
        ("name=startswith:CUSTOM_", ["CUSTOM_A", "CUSTOM_B"]),
        ("name=in:CUSTOM_A,HW_CPU_X86_AVX,CUSTOM_X", ["HW_CPU_X86_AVX", "CUSTOM_A"]),
        ("associated=true", ["CUSTOM_B"]),
        ("name=startswith:CUSTOM_&associated=False", ["CUSTOM_A"]),
    ):
        assert client.do("GET", f"/traits?{query}")["traits"] == found
    for query in ("name=CUSTOM_A", "associated=perhaps"):
        assert client.ask("GET", f"/traits?{query}").status_int == 400
    assert client.ask("GET", "/traits/CUSTOM_A").status_int == 204
    unknown = {"traits": ["CUSTOM_X"], "resource_provider_generation": 1}
    assert client.ask("PUT", url, unknown).status_int == 400
    for name, status in (("CUSTOM_A", 204), ("CUSTOM_A", 404), ("CUSTOM_B", 409)):
        assert client.ask("DELETE", f"/traits/{name}").status_int == status, name
    assert client.ask("DELETE", "/traits/HW_CPU_X86_AVX").status_int == 400


def test_what_a_project_uses_is_told_by_type(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    client.do("PUT", f"/allocations/{JOB}", claim(2))
    client.do("PUT", f"/allocations/{CELL}", claim(3) | {"consumer_type": "JOB", "user_id": "bob"})
    url = "/usages?project_id=lab"
    assert client.do("GET", url, version="1.37")["usages"] == {"VCPU": 5}
    assert client.do("GET", f"{url}&user_id=bob", version="1.9")["usages"] == {"VCPU": 3}
    for query, found in (
        (
            "",
            {"INSTANCE": {"consumer_count": 1, "VCPU": 2}, "JOB": {"consumer_count": 1, "VCPU": 3}},
        ),
        ("&consumer_type=JOB", {"JOB": {"consumer_count": 1, "VCPU": 3}}),
        ("&consumer_type=all", {"all": {"consumer_count": 2, "VCPU": 5}}),
        ("&consumer_type=unknown", {}),
        ("&user_id=%00", {}),
    ):
        assert client.do("GET", url + query)["usages"] == found
    nobody = "/usages?project_id=nobody&consumer_type=all"
    assert client.do("GET", nobody)["usages"] == {}


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
    assert f"VCPU requested 3, free 2 of 8 ({JOB} holds 6)" in detail


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
    client = Client(application(f"sqlite:///{tmp_path}/lab.db", auth="noauth2", policy="legacy"))
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    for _ in range(2):
        client.do("PUT", f"/allocations/{JOB}", claim(6))
        held = client.do("GET", f"/resource_providers/{HOST}/allocations")["allocations"]
        assert held == {JOB: {"resources": {"VCPU": 6}, "consumer_generation": 1}}
        client.do("DELETE", f"/allocations/{JOB}")


def test_a_consumer_that_comes_again_is_another_one_by_the_native_api_alone(client: Client) -> None:
    """Placement counts from 1 again, so who still means the first one is not refused; here neither.

    Its own tests compare that number. Who must be sure writes by the generation of the native API.
    """
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    lives = []
    for _ in range(2):
        client.do("PUT", f"/allocations/{JOB}", claim(1))
        number = client.do("GET", f"/allocations/{JOB}")["consumer_generation"]
        lives.append(
            (number, client.do("GET", f"/ro/consumers/{JOB}", version="1.0")["generation"])
        )
        client.do("DELETE", f"/allocations/{JOB}")
    client.do("PUT", f"/allocations/{JOB}", claim(1))
    (first, before), (second, _) = lives
    assert first == second == 1
    stale = {"request": "VCPU=2", "generation": before}
    assert error(client, "PUT", f"/ro/consumers/{JOB}", stale) == (409, "StaleConsumer")
    client.do("PUT", f"/allocations/{JOB}", claim(2, first))
    assert error(client, "PUT", f"/allocations/{JOB}", claim(3, first))[0] == 409


def test_who_asked_is_told_by_the_change_feed(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    ledger = client.app.ledger
    cursor = ledger.feed.cursor()
    ann = {"x-auth-token": "ann:lab", "x-roles": "admin"}
    url = f"/resource_providers/{HOST}"
    for method, path, body in (
        ("PUT", f"/allocations/{JOB}", claim(1)),
        ("PUT", f"/allocations/{JOB}", claim(2, 1)),
        ("DELETE", f"/allocations/{JOB}", None),
        ("PUT", f"{url}/traits", {"traits": ["HW_CPU_X86_AVX"], "resource_provider_generation": 3}),
        ("POST", "/resource_providers", {"name": "cell0", "uuid": CELL}),
        ("PUT", f"/resource_providers/{CELL}", {"name": "x", "parent_provider_uuid": HOST}),
        ("DELETE", f"/resource_providers/{CELL}", None),
    ):
        response = client.ask(method, path, body, headers=ann)
        assert response.status_int < 300, response.text
    assert {one.actor for one in ledger.feed.changes(cursor)} == {"ann"}
    assert len({one.operation for one in ledger.feed.changes(cursor)}) == 7
    unprintable = {"x-auth-token": "\xe4\x85:lab", "x-roles": "admin"}
    assert client.ask("PUT", f"/allocations/{JOB}", claim(1), headers=unprintable).status_int == 204
    assert list(ledger.feed.changes(cursor))[-1].actor == "rest"


# --- its words, and the ledger's: the table of doc/source/explanation/placement_api.rst ---


def test_words_of_the_ledger_are_told_in_those_of_placement(client: Client) -> None:
    ledger = client.app.ledger
    rack = "2fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    ledger.sync(ro.Provider("host0", "VCPU=8", uuid=HOST, aggregates=[rack]))
    other = ledger.claim("job-1", {"host0": "VCPU=1"})
    ledger.claim(JOB, {"host0": "VCPU=1"}, project="lab")
    url = f"/resource_providers/{HOST}"
    told = client.do("GET", f"{url}/allocations")["allocations"]
    assert set(told) == {JOB, other.consumer_uuid}, "one of another name is told by its uuid"
    assert client.do("GET", f"/allocations/{other.consumer_uuid}") == {"allocations": {}}
    held = client.do("GET", f"/allocations/{JOB}")
    assert (held["project_id"], held["consumer_type"]) == ("lab", "unknown")
    assert held["user_id"] == "00000000-0000-0000-0000-000000000000"
    assert client.do("GET", f"{url}/aggregates")["aggregates"] == [rack]
    inventory = client.do("GET", f"{url}/inventories/VCPU")
    assert inventory["max_unit"] == 2147483647
    client.do("PUT", f"{url}/inventories/VCPU", inventory | {"max_unit": 9})
    assert client.do("GET", f"{url}/inventories/VCPU")["max_unit"] == 2147483647
    came = client.ask("GET", f"/allocations/{JOB}").last_modified
    assert came == ledger.get_claim(JOB).created_at.replace(microsecond=0)


def test_a_consumer_of_old_has_a_project_and_a_user_of_nobody(client: Client) -> None:
    client.provider(HOST, "host0", {"VCPU": {"total": 8}})
    held = [{"resource_provider": {"uuid": HOST}, "resources": {"VCPU": 1}}]
    client.do("PUT", f"/allocations/{JOB}", {"allocations": held}, version="1.7")
    told = client.do("GET", f"/allocations/{JOB}")
    nobody = "00000000-0000-0000-0000-000000000000"
    assert (told["project_id"], told["user_id"], told["consumer_type"]) == (
        *(nobody,) * 2,
        "unknown",
    )
    assert client.app.ledger.get_claim(JOB).consumer_type is None


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
        client = Client(application(url, auth="noauth2", policy="legacy"))
        assert client.do("GET", f"/resource_providers/{HOST}/usages")["usages"] == {"VCPU": 3}
        client.do("PUT", f"/allocations/{JOB}", claim(5))
        assert [one.name for one in ledger.consumers()] == [JOB, "job-1"]
        assert ledger.usage().over_capacity == ()
