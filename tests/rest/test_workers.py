"""Several workers on one database: what one acknowledged, each of them knows at once.

Each request has a connection of its own, so the kernel says which worker answers it; the log says
which did.
"""

from __future__ import annotations

import re
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.backends.sql.backend import SQLBackend
from tests.support.checker import problems
from tests.support.patience import until
from tests.support.served import Served, served

#: Of the host that everybody wants.
CPUS = 40


def claim(host: str, generation: int | None = None) -> dict[str, Any]:
    return {
        "allocations": {host: {"resources": {"VCPU": 1}}},
        "project_id": "lab",
        "user_id": "ann",
        "consumer_generation": generation,
        "consumer_type": "JOB",
    }


def made(service: Served) -> str:
    """Make a host with some CPUs, of which all workers are asked before anybody claims."""
    host = str(uuid.uuid4())
    body: dict[str, Any] = {"uuid": host, "name": f"host-{host}"}
    assert service.ask("POST", "/resource_providers", body)[0] == 200
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": CPUS}}}
    assert service.ask("PUT", f"/resource_providers/{host}/inventories", body)[0] == 200
    return host


def used(service: Served, host: str) -> int:
    """Return what is used of a host by the summary of a search, which is the snapshot's."""
    found = service.ask("GET", f"/allocation_candidates?resources=VCPU:1&in_tree={host}")[1]
    if not found["allocation_requests"]:
        return CPUS
    return int(found["provider_summaries"][host]["resources"]["VCPU"]["used"])


def workers(service: Served) -> set[str]:
    """Return which processes answered until now."""
    return set(re.findall(r"^\S+ \S+ (\d+) INFO resource_objects\.rest req-", service.log, re.M))


def searches_know_all_that_was_acknowledged(service: Served, count: int) -> None:
    """Write by one worker, and at once search by another, or the same."""
    host, jobs = made(service), [str(uuid.uuid4()) for _ in range(CPUS)]
    for number, job in enumerate(jobs, 1):
        assert service.ask("PUT", f"/allocations/{job}", claim(host))[0] == 204
        assert used(service, host) == number
    for number, job in enumerate(jobs[:5], 1):
        assert service.ask("DELETE", f"/allocations/{job}")[0] == 204
        assert used(service, host) == CPUS - number
    asked = f"/allocation_candidates?resources=VCPU:1&in_tree={host}&required=HW_CPU_X86_AVX"
    path = f"/resource_providers/{host}/traits"
    for traits in (["HW_CPU_X86_AVX"], [], ["HW_CPU_X86_AVX", "HW_CPU_X86_SSE"]):
        at = service.ask("GET", path)[1]["resource_provider_generation"]
        body = {"traits": traits, "resource_provider_generation": at}
        assert service.ask("PUT", path, body)[0] == 200
        assert bool(service.ask("GET", asked)[1]["allocation_requests"]) == bool(traits)
    until(lambda: service.is_up() and len(workers(service)) >= count)


class Claimant(threading.Thread):
    """Claims one CPU after the other, and after each looks whether a search knows of all of them.

    ``asked`` and ``told`` are shared: how many claims were sent, and how many acknowledged.
    """

    def __init__(self, service: Served, host: str, counts: dict[str, int], lock: Any) -> None:
        super().__init__()
        self._service, self._host, self._counts, self._lock = service, host, counts, lock
        self.refusals: list[Any] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self.refusals:
            self._count("asked")
            job = str(uuid.uuid4())
            status, said = self._service.ask("PUT", f"/allocations/{job}", claim(self._host))
            if status == 204:
                least = self._count("told")
            else:
                self.refusals.append((status, said))
                least = self._counts["told"]
            found = used(self._service, self._host)
            most = self._counts["asked"]
            if not least <= found <= most:
                self.wrong.append(f"{least} were acknowledged, {most} asked, {found} are told")

    def _count(self, what: str) -> int:
        with self._lock:
            self._counts[what] += 1
            return self._counts[what]


def claims_that_fit_are_never_refused(service: Served, clients: int) -> None:
    """Many want one host at once: each CPU is given once, and the first refusal is that it is full.

    A claim that fits has no conflict with another one, whichever worker it comes to.
    """
    host, counts, lock = made(service), {"asked": 0, "told": 0}, threading.Lock()
    claimants = [Claimant(service, host, counts, lock) for _ in range(clients)]
    for one in claimants:
        one.start()
    for one in claimants:
        one.join(300)
    assert not any(one.is_alive() for one in claimants)
    assert [text for one in claimants for text in one.wrong] == []
    assert counts["told"] == CPUS
    for status, said in (refusal for one in claimants for refusal in one.refusals):
        [error] = said["errors"]
        assert (status, error["code"]) == (409, "placement.undefined_code"), error
        assert f"VCPU requested 1, free 0 of {CPUS}" in error["detail"]


def test_searches_know_all_that_any_worker_acknowledged(service: Served) -> None:
    searches_know_all_that_was_acknowledged(service, 2)


def test_claims_that_fit_are_never_refused(service: Served) -> None:
    claims_that_fit_are_never_refused(service, 6)


@pytest.mark.long
@pytest.mark.law(2, 4)
def test_workers_know_of_each_other_on_every_database(database_url: str, tmp_path: Path) -> None:
    SQLBackend.upgrade_database(database_url)
    with served(tmp_path, database_url, "--workers", "4") as service:
        searches_know_all_that_was_acknowledged(service, 4)
        for _ in range(5):
            claims_that_fit_are_never_refused(service, 12)
        assert "Traceback" not in service.log
    assert problems(database_url) == []
    with ro.connect(database_url) as ledger:
        assert not ledger.audit()
