"""A real ``openstack`` client with osc-placement, against the service as it is run.

Whoever has a cloud types these commands; they log in by a password, for which osc-placement has a
way of its own (``http_basic``).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import bcrypt
import pytest

from tests.support.served import Served, served

_WHY = "the environment of tox -e placement has it"
pytest.importorskip("osc_placement", reason=_WHY)
shell = pytest.importorskip("openstackclient.shell", reason=_WHY)

pytestmark = pytest.mark.filterwarnings("ignore")

Ask: TypeAlias = Callable[..., Any]

#: osc-placement asks for 1.0 unless it is told; the newest has all options.
OLDEST, NEWEST = "1.0", "1.39"
WORD = "geheim"
#: Commands that say nothing.
SILENT = re.compile("delete|^(resource class|trait) (create|set)")
JOB, PROJECT, USER = (str(uuid.uuid4()) for _ in range(3))


@pytest.fixture(scope="module", autouse=True)
def _empty() -> None:
    """No Placement is needed here."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with passwords, on an empty ledger."""
    folder = tmp_path_factory.mktemp("served")
    digest = bcrypt.hashpw(WORD.encode(), bcrypt.gensalt(4)).decode()
    (folder / "passwords").write_text(f"root:{digest}\nann:{digest}\n")
    (folder / "roles").write_text(f"root:admin\nann:reader:{PROJECT}\n")
    options = ["--auth", "http_basic", "--password-file", str(folder / "passwords")]
    options += ["--roles-file", str(folder / "roles")]
    with served(folder, f"sqlite:///{folder}/lab.db", *options, policy="secure") as running:
        yield running


@pytest.fixture
def openstack(service: Served, capfd: pytest.CaptureFixture[str]) -> Ask:
    """Run a command, and return what it says: JSON, if it says anything."""

    def ask(*words: str, version: str = NEWEST, user: str = "root", password: str = WORD) -> Any:
        login = ["--os-auth-type", "http_basic", "--os-endpoint", service.url]
        login += ["--os-username", user, "--os-password", password]
        said = [*words[0].split(), *words[1:]]
        shown = [] if SILENT.search(words[0]) else ["-f", "json"]
        command = [*login, "--os-placement-api-version", version, *said, *shown]
        if (version, user, password) == (NEWEST, "root", WORD):
            status = shell.main(command)
        else:  # in one process it remains with whom it logged in as first, and with a version
            program = [sys.executable, "-P", "-m", "openstackclient.shell", *command]
            status = subprocess.run(program, check=False).returncode
        out, err = capfd.readouterr()
        if status:
            raise Refused(err)
        return json.loads(out) if out.strip() else None

    return ask


class Refused(Exception):
    """The command failed; with what it said."""


def test_a_lab_is_set_up_and_used(openstack: Ask) -> None:
    made = openstack("resource provider create", "host0")
    host = made["uuid"]
    assert (made["name"], made["generation"], made["root_provider_uuid"]) == ("host0", 0, host)
    child = openstack("resource provider create", "host0/numa0", "--parent-provider", host)["uuid"]
    openstack("resource class create CUSTOM_FPGA")
    assert "CUSTOM_FPGA" in {one["name"] for one in openstack("resource class list")}
    assert openstack("resource class show CUSTOM_FPGA") == {"name": "CUSTOM_FPGA"}
    openstack("trait create CUSTOM_FAST")
    assert {"name": "CUSTOM_FAST"} in openstack("trait list")
    assert openstack("trait show CUSTOM_FAST") == {"name": "CUSTOM_FAST"}

    inventories = ["--resource", "VCPU=8", "--resource", "VCPU:allocation_ratio=2.0"]
    inventories += ["--resource", "CUSTOM_FPGA=2", "--resource", "CUSTOM_FPGA:max_unit=1"]
    openstack("resource provider inventory set", host, *inventories)
    openstack("resource provider inventory set", child, "--resource", "MEMORY_MB=2048")
    openstack("resource provider inventory class set", child, "MEMORY_MB", "--total", "4096")
    found = {
        one["resource_class"]: one for one in openstack("resource provider inventory list", host)
    }
    assert (found["VCPU"]["total"], found["VCPU"]["allocation_ratio"]) == (8, 2.0)
    assert found["CUSTOM_FPGA"]["max_unit"] == 1
    shown = openstack("resource provider inventory show", child, "MEMORY_MB")
    assert (shown["total"], shown["used"]) == (4096, 0)

    openstack("resource provider trait set", "--trait", "CUSTOM_FAST", host)
    assert openstack("resource provider trait list", host) == [{"name": "CUSTOM_FAST"}]
    rack = str(uuid.uuid4())
    at = openstack("resource provider show", host)["generation"]
    aggregate = ["resource provider aggregate set", host, "--aggregate", rack]
    openstack(*aggregate, "--generation", str(at))
    assert openstack("resource provider aggregate list", host) == [{"uuid": rack}]
    with pytest.raises(Refused, match="409"):
        openstack(*aggregate, "--generation", str(at))
    in_rack = openstack("resource provider list", "--member-of", rack, "--resource", "VCPU=1")
    assert [one["uuid"] for one in in_rack] == [host]

    asked = ["--resource", "VCPU=2", "--required", "CUSTOM_FAST"]
    [candidate] = openstack("allocation candidate list", *asked)
    assert candidate["resource provider"] == host
    assert candidate["allocation"] == "VCPU=2"

    claim = [
        f"--allocation=rp={host},VCPU=2,CUSTOM_FPGA=1",
        f"--allocation=rp={child},MEMORY_MB=512",
    ]
    whose = ["--project-id", PROJECT, "--user-id", USER, "--consumer-type", "JOB"]
    openstack("resource provider allocation set", JOB, *claim, *whose)
    held = {
        one["resource_provider"]: one["resources"]
        for one in openstack("resource provider allocation show", JOB)
    }
    assert held == {host: {"VCPU": 2, "CUSTOM_FPGA": 1}, child: {"MEMORY_MB": 512}}
    shown = openstack("resource provider show", host, "--allocations")
    assert JOB in str(shown["allocations"])
    usage = {
        one["resource_class"]: one["usage"]
        for one in openstack("resource provider usage show", host)
    }
    assert usage == {"VCPU": 2, "CUSTOM_FPGA": 1}

    [used] = openstack("resource usage show", PROJECT, user="ann")
    sums = {"VCPU": 2, "CUSTOM_FPGA": 1, "MEMORY_MB": 512, "consumer_count": 1}
    assert (used["resource_class"], used["usage"]) == ("JOB", sums)
    with pytest.raises(Refused, match="409"):
        openstack("resource provider inventory delete", host, "--resource-class", "VCPU")
    openstack("resource provider allocation unset", JOB, "--resource-class", "CUSTOM_FPGA")
    openstack("resource provider allocation unset", JOB, "--provider", child)
    [left] = openstack("resource provider allocation show", JOB)
    assert (left["resource_provider"], left["resources"]) == (host, {"VCPU": 2})
    openstack("resource provider allocation delete", JOB)
    assert openstack("resource provider allocation show", JOB) == []

    openstack("resource provider trait delete", host)
    openstack("resource provider inventory delete", host)
    openstack("resource provider set", child, "--name", "host0/cell0")
    assert openstack("resource provider show", child)["name"] == "host0/cell0"
    openstack("resource provider delete", child)
    openstack("resource provider delete", host)
    openstack("resource class delete CUSTOM_FPGA")
    openstack("trait delete CUSTOM_FAST")
    assert openstack("resource provider list") == []


def test_the_client_asks_for_the_oldest_version_unless_it_is_told(openstack: Ask) -> None:
    made = openstack("resource provider create old0", version=OLDEST)
    host = made["uuid"]
    openstack("resource provider inventory set", host, "--resource", "VCPU=4", version=OLDEST)
    job = str(uuid.uuid4())
    openstack(
        "resource provider allocation set", job, f"--allocation=rp={host},VCPU=1", version=OLDEST
    )
    [held] = openstack("resource provider allocation show", job, version=OLDEST)
    assert held["resources"] == {"VCPU": 1}
    openstack("resource provider allocation delete", job, version=OLDEST)
    openstack("resource provider delete", host, version=OLDEST)


def test_every_version_lists_providers(openstack: Ask) -> None:
    for version in ("1.14", "1.28", "1"):
        assert openstack("resource provider list", version=version) == []


def test_who_may_not_is_told(openstack: Ask) -> None:
    with pytest.raises(Refused, match="HTTP 403"):
        openstack("resource provider list", user="ann")
    with pytest.raises(Refused, match="HTTP 401"):
        openstack("resource provider list", password="wrong")


def test_what_does_not_fit_is_told_with_the_reason(openstack: Ask) -> None:
    host = openstack("resource provider create", "full0")["uuid"]
    openstack("resource provider inventory set", host, "--resource", "VCPU=2")
    job = str(uuid.uuid4())
    claim = ["resource provider allocation set", job, f"--allocation=rp={host},VCPU=3"]
    claim += ["--project-id", PROJECT, "--user-id", USER, "--consumer-type", "JOB"]
    with pytest.raises(Refused, match=r"full0: VCPU requested 3, free 2 of 2"):
        openstack(*claim)
    openstack("resource provider delete", host)
