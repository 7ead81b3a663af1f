"""Placement's own API tests, 1,316 of them, against the service: all pass, wording included.

They are run by ``../shared/tools/placement_gabbi``, in this process, file by file: in memory and on
every kind of database. On PostgreSQL Placement itself fails six of them; the service passes these
too, as the standard of SQL and the order of traits that it tells demand.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
TOOLS = ROOT.parent / "shared" / "tools" / "placement_gabbi"

pytest.importorskip("placement", reason="the environment of tox -e placement has it")
pytest.importorskip("gabbi", reason="the environment of tox -e placement has it")
if not TOOLS.is_dir():
    pytest.skip(f"{TOOLS} is not there", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")

#: The rest is asked of the policy of old.
_POLICIES = {"legacy-rbac.yaml": "legacy", "secure-rbac.yaml": "secure", "policy.yaml": "open"}
_CORS = {
    "cors_allowed_origin": ["http://valid.example.com"],
    "cors_allow_headers": ["openstack-api-version"],
}


def files() -> list[Path]:
    from placement.tests import functional

    return sorted((Path(functional.__file__).parent / "gabbits").glob("*.yaml"))


def options_of(name: str) -> dict[str, Any]:
    if name == "cors.yaml":
        return _CORS
    for end, policy in _POLICIES.items():
        if name.endswith(f"-{end}"):
            return {"policy": policy}
    return {}


@pytest.fixture(scope="session")
def states() -> dict[str, Any]:
    """The start states, which Placement itself writes in a process of its own."""
    said = (yaml.safe_load(path.read_text()).get("fixtures", []) for path in files())
    fixtures = sorted({name for some in said for name in some})
    command = [sys.executable, str(TOOLS / "snapshot.py"), *fixtures]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_placements_own_tests_pass(
    path: Path, everywhere_url: str, states: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (TOOLS, Path(__file__).parent):
        monkeypatch.syspath_prepend(str(place))
    worker = importlib.import_module("worker")
    asked = types.SimpleNamespace(
        app="gabbi_app:factory",
        db_url=everywhere_url,
        options=json.dumps(options_of(path.name)),
        file=str(path),
        strict_fixtures=False,
        ignore_error_text=False,
    )
    before = dict(os.environ)
    try:
        told = worker.run(asked, states)
    finally:
        importlib.import_module("gabbi_app").close()
        os.environ.clear()
        os.environ.update(before)
    assert told["tests"]
    failed = {one["name"]: one["detail"] for one in told["tests"] if one["outcome"] != "passed"}
    assert not failed
