"""What requests send to a SQL database: a write by how many write, a search by what is new."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from benchmarks.statements import Count, counted
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.rest import application
from tests import databases
from tests.rest.conftest import Client

upgrade = SQLBackend.upgrade_database

HAS = "VCPU=64,MEMORY_MB=64000,DISK_GB=640,CUSTOM_LICENCE=64"
ASKED = {"VCPU": 1, "MEMORY_MB": 10, "CUSTOM_LICENCE": 1}
HOSTS = 12


@pytest.fixture
def count() -> Iterator[Count]:
    with counted() as found:
        yield found


@pytest.fixture
def url(prepared_database: Callable[[databases.Prepare], str], nobody_forgets: None) -> str:
    return prepared_database(upgrade)


@pytest.fixture
def hosts(url: str) -> list[str]:
    """The uuids of some hosts, in order."""
    with ro.connect(url) as ledger:
        ledger.sync(*(ro.Provider(f"host{n:02}", HAS) for n in range(HOSTS)))
        found = [ledger.provider(f"host{n:02}").uuid for n in range(HOSTS)]
    return [one for one in found if one is not None]


@pytest.fixture
def sent(count: Count, url: str, hosts: list[str]) -> Iterator[Callable[..., int]]:
    """Ask a service, and return how many statements it sent."""
    app = application(url, auth="noauth2")
    client = Client(app)

    def asking(method: str, path: str, body: Any = None, status: int = 204) -> int:
        count.reset()
        assert client.ask(method, path, body).status_int == status
        return count.statements

    asking("PUT", f"/allocations/{uuid.uuid4()}", holding(hosts[:1]))  # the first one connects
    yield asking
    app.close()


def holding(hosts: list[str], generation: int | None = None) -> dict[str, Any]:
    return {
        "allocations": {host: {"resources": ASKED} for host in hosts},
        "project_id": "lab",
        "user_id": "ann",
        "consumer_generation": generation,
        "consumer_type": "JOB",
    }


def test_a_new_consumer_costs_what_its_claim_costs(
    sent: Callable[..., int], url: str, hosts: list[str], count: Count
) -> None:
    one, two, all_hosts = (
        sent("PUT", f"/allocations/{uuid.uuid4()}", holding(hosts[:n])) for n in (1, 2, HOSTS)
    )
    with ro.connect(url) as ledger:
        ledger.claim("first", {hosts[0]: ASKED})
        count.reset()
        ledger.claim("job", {hosts[0]: ASKED})
        assert one == count.statements
    assert one <= two == all_hosts


def test_a_replacement_and_a_refusal_do_not_grow_with_what_is_held(
    sent: Callable[..., int], hosts: list[str]
) -> None:
    small, large = str(uuid.uuid4()), str(uuid.uuid4())
    sent("PUT", f"/allocations/{small}", holding(hosts[:2]))
    sent("PUT", f"/allocations/{large}", holding(hosts))
    replaced = [
        sent("PUT", f"/allocations/{name}", holding(some[:-1], 1))
        for name, some in ((small, hosts[:2]), (large, hosts))
    ]
    assert replaced[0] == replaced[1], replaced
    refused = []
    for some in (hosts[:1], hosts):
        body = holding(some)
        body["allocations"][some[0]] = {"resources": {**ASKED, "VCPU": 65}}
        refused.append(sent("PUT", f"/allocations/{uuid.uuid4()}", body, status=409))
    assert refused[0] == refused[1], refused


def test_a_search_asks_whether_something_was_written_and_reads_that(
    sent: Callable[..., int], hosts: list[str]
) -> None:
    path = "/allocation_candidates?resources=VCPU:1,CUSTOM_LICENCE:1&limit="
    sent("GET", f"{path}1", status=200)
    looked = {n: sent("GET", f"{path}{n}", status=200) for n in (1, 10)}
    assert looked[1] == looked[10]
    written = []
    for some in (hosts[:1], hosts):
        sent("PUT", f"/allocations/{uuid.uuid4()}", holding(some))
        written.append(sent("GET", f"{path}10", status=200))
    assert written[0] == written[1] <= looked[1] + 2, (looked, written)


def test_a_usage_by_type_costs_the_same_for_many_consumers(
    sent: Callable[..., int], hosts: list[str]
) -> None:
    few = sent("GET", "/usages?project_id=lab", status=200)
    for _ in range(3):
        sent("PUT", f"/allocations/{uuid.uuid4()}", holding(hosts))
    assert sent("GET", "/usages?project_id=lab", status=200) == few <= 3
