"""Placement's own API tests, 1,316 of them, against the service: all pass, wording included.

They are read from the installed openstack-placement package and run by gabbi in this process, in
memory and on every kind of database. On PostgreSQL Placement itself fails six of them; the service
passes these too, as the standard of SQL and the reported order of traits demand.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from resource_objects.ledger import backend_for
from resource_objects.rest import application
from tests.peers.placement import gabbi_states

pytest.importorskip("placement", reason="the environment of tox -e placement has it")
driver = pytest.importorskip("gabbi.driver", reason="the environment of tox -e placement has it")
fixture = pytest.importorskip("gabbi.fixture")

pytestmark = pytest.mark.filterwarnings("ignore")

#: Tests in all files of openstack-placement 16.0.0.
COUNT = 1316
#: The policy for which a file is written, by the end of its name; "legacy" for all others.
_POLICIES = {"secure-rbac.yaml": "secure", "policy.yaml": "open"}
_CORS = {
    "cors_allowed_origin": ["http://valid.example.com"],
    "cors_allow_headers": ["openstack-api-version"],
}


def files() -> list[Path]:
    from placement.tests import functional

    return sorted((Path(functional.__file__).parent / "gabbits").glob("*.yaml"))


def options(name: str) -> dict[str, Any]:
    policies = (policy for end, policy in _POLICIES.items() if name.endswith(f"-{end}"))
    cors = _CORS if name == "cors.yaml" else {}
    return {"policy": next(policies, "legacy"), **cors}


@pytest.fixture(scope="session")
def states() -> dict[str, Any]:
    """The recorded start states by the names of Placement's fixtures."""
    documents = (yaml.safe_load(path.read_text()) for path in files())
    names = sorted({name for document in documents for name in document.get("fixtures", [])})
    command = [sys.executable, gabbi_states.__file__, *names]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    recorded: dict[str, Any] = json.loads(ran.stdout)
    return recorded


class Service:
    """A WSGI application that a fixture starts: gabbi needs it when it builds the tests."""

    def __init__(self, url: str, file_name: str) -> None:
        self._url, self._options = url, options(file_name)
        self._app: Any = None

    def __call__(self, environ: Any, start_response: Any) -> Any:
        return self._app(environ, start_response)

    @contextlib.contextmanager
    def start(self, state: dict[str, Any]) -> Iterator[None]:
        """Serve a new ledger that has a state; the state is read back and compared."""
        backend_for(self._url).upgrade_database(self._url)
        with contextlib.closing(
            application(self._url, auth="noauth2", **self._options)
        ) as self._app:
            client = gabbi_states.Client(self._app)
            gabbi_states.write(client, state)
            assert gabbi_states.read(client) == state
            yield


class Fixtures:
    """The module of fixtures for gabbi: each of its names is a fixture with a recorded state."""

    def __init__(self, service: Service, states: dict[str, Any]) -> None:
        self._service, self._states = service, states

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        service, recorded = self._service, self._states[name]
        stack = contextlib.ExitStack()

        def start(_: object) -> None:
            os.environ.update(recorded["environ"])
            stack.enter_context(service.start(recorded["state"]))

        methods = {"start_fixture": start, "stop_fixture": lambda _: stack.close()}
        return type(name, (fixture.GabbiFixture,), methods)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_placements_own_tests_pass(
    path: Path,
    everywhere_url: str,
    states: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / path.name).symlink_to(path)  # gabbi takes a directory
    for key in {key for recorded in states.values() for key in recorded["environ"]}:
        monkeypatch.setenv(key, "")  # so that it is restored
    service = Service(everywhere_url, path.name)
    suite = driver.build_tests(
        str(tmp_path),
        unittest.TestLoader(),
        intercept=lambda: service,
        test_loader_name="gabbits",
        fixture_module=Fixtures(service, states),
    )
    tests = [test for file_suite in suite for test in file_suite]
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun == len(tests) == len(yaml.safe_load(path.read_text())["tests"])
    assert not result.failures + result.errors + result.unexpectedSuccesses
    # a fixture that fails is reported as skipped tests; only the file itself may skip some
    assert all("fixture" not in reason for _, reason in result.skipped)


def test_every_api_test_of_placement_is_run() -> None:
    assert sum(len(yaml.safe_load(path.read_text())["tests"]) for path in files()) == COUNT
