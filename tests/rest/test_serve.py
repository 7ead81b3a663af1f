"""``resource-objects serve``: several processes on one database, stopped gracefully."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.cli.main import main
from resource_objects.rest.serving import serve
from tests.support.patience import until

HOST = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
JOBS = [f"f5a91a0a-e111-4a9c-8a33-7b320ae1e5{n:02d}" for n in range(8)]


def ask(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Return the status of a request, and what was answered."""
    headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["content-type"] = "application/json"
    url = f"http://127.0.0.1:{port}{path}"
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
            return response.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def is_up(port: int) -> bool:
    try:
        return ask(port, "GET", "/health")[0] == 200
    except OSError:
        return False


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Where a service of two processes listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    url = f"sqlite:///{tmp_path}/lab.db"
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=4", uuid=HOST))
    command = [sys.executable, "-m", "resource_objects", "--database", url, "serve"]
    options = ["--bind", f"127.0.0.1:{number}", "--workers", "2", "--policy", "legacy"]
    log = (tmp_path / "log").open("wb")
    with log, subprocess.Popen([*command, *options], stdout=log, stderr=log) as server:
        try:
            until(lambda: is_up(number))
            yield number
        finally:
            server.terminate()
            assert server.wait(60) == 0, (tmp_path / "log").read_text()


def test_what_is_acknowledged_every_process_knows(port: int) -> None:
    """Four jobs fit: whichever process is asked, the fifth is refused, and none by a conflict."""
    answers = []
    for job in JOBS:
        claim = {
            "allocations": {HOST: {"resources": {"VCPU": 1}}},
            "project_id": "lab",
            "user_id": "ann",
            "consumer_generation": None,
            "consumer_type": "JOB",
        }
        answers.append(ask(port, "PUT", f"/allocations/{job}", claim)[0])
        _, found = ask(port, "GET", "/allocation_candidates?resources=VCPU:1")
        assert bool(found["allocation_requests"]) == (answers.count(204) < 4)
    assert answers == [204] * 4 + [409] * 4


def test_who_believes_any_token_listens_on_loopback_only() -> None:
    with pytest.raises(exceptions.InvalidField, match=r"bind: got '0\.0\.0\.0:8778'"):
        serve("sqlite:///lab.db", "0.0.0.0:8778")
    with pytest.raises(exceptions.InvalidField, match="database: got 'memory://'"):
        serve("memory://")
    with pytest.raises(exceptions.InvalidField, match="workers: got 0"):
        serve("sqlite:///lab.db", workers=0)


def test_a_misuse_of_the_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--database", "memory://", "serve"]) == 2
    assert "database: got 'memory://'" in capsys.readouterr().err


def test_options_of_keystone_without_it_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--database", f"sqlite:///{tmp_path}/lab.db", "serve", "--keystone", "auth_url=x"]
    assert main(command) == 2
    assert "--keystone: it needs --auth keystone" in capsys.readouterr().err
