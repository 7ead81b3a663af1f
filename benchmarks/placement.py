"""Claims and candidates against the real Placement, in this process, side by side.

Runs only where openstack-placement is installed (``tox -e placement``). Placement is asked through
its WSGI application without a network and without authentication, on a SQLite file of its own; we
are asked through the front door, on one too. What a difference of interfaces costs is part of what
is compared: that is what their users wait for.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks.measure import Row

PEER = "placement 16"
HOSTS = 100
FIGURES = {"VCPU": 64, "MEMORY_MB": 262144, "DISK_GB": 4000}
ASKED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}


def rows() -> Iterator[Row]:
    """Yield claims, and searches over 100 hosts."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = _Placement(pathlib.Path(folder))
        providers = [theirs.host(f"host{number}") for number in range(HOSTS)]
        ledger = ro.connect(f"sqlite:///{folder}/ours.db")
        ledger.sync(*(ro.Provider(f"host{n}", dict(FIGURES)) for n in range(HOSTS)))
        request = ro.Request(dict(ASKED))
        found = ledger.snapshot().candidates(request)
        numbers = iter(range(10**9))
        yield _pair(
            "claim of three classes at one host",
            lambda: ledger.claim(f"job-{next(numbers)}", found),
            lambda: theirs.claim(providers[0]),
            calls=15,
        )
        yield _pair(
            f"candidates: 10 of {HOSTS} hosts, read and search",
            lambda: ledger.snapshot().candidates(request, limit=10),
            theirs.candidates,
            calls=5,
        )


def _pair(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], *, calls: int, rounds: int = 3
) -> Row:
    ours(), theirs()
    pairs = [(_seconds(ours, calls), _seconds(theirs, calls)) for _ in range(rounds)]
    return Row(
        name,
        "ms",
        statistics.median(mine for mine, _ in pairs) * 1000,
        statistics.median(other for _, other in pairs) * 1000,
        PEER,
        statistics.median(mine / other for mine, other in pairs),
    )


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


class _Placement:
    """The service, asked in its own words."""

    def __init__(self, folder: pathlib.Path) -> None:
        from oslo_config import cfg
        from placement import conf, db_api, deploy

        config = cfg.ConfigOpts()
        conf.register_opts(config)
        (folder / "placement.conf").write_text(
            f"[api]\nauth_strategy = noauth2\n[placement_database]\nsync_on_startup = true\n"
            f"connection = sqlite:///{folder}/placement.db\n"
        )
        config(["--config-file", str(folder / "placement.conf")], project="placement")
        db_api.configure(config)
        self._app = deploy.loadapp(config)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        import webob

        asked = webob.Request.blank(path, method=method)
        asked.headers.update({"x-auth-token": "admin", "openstack-api-version": "placement 1.27"})
        if body is not None:
            asked.content_type = "application/json"
            asked.body = json.dumps(body).encode()
        answer = asked.get_response(self._app)
        if answer.status_int >= 400:
            raise RuntimeError(answer.text)
        return answer.json if answer.body else None

    def host(self, name: str) -> str:
        """Make a host and return its uuid."""
        key = str(uuid.uuid4())
        self._ask("POST", "/resource_providers", {"name": name, "uuid": key})
        inventories = {kind: {"total": total} for kind, total in FIGURES.items()}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        self._ask("PUT", f"/resource_providers/{key}/inventories", body)
        return key

    def claim(self, provider: str) -> None:
        """Claim for a new consumer."""
        body = {
            "allocations": {provider: {"resources": ASKED}},
            "project_id": "project",
            "user_id": "user",
        }
        self._ask("PUT", f"/allocations/{uuid.uuid4()}", body)

    def candidates(self) -> None:
        """Search as the scheduler does, without a round trip over a network."""
        asked = ",".join(f"{kind}:{amount}" for kind, amount in ASKED.items())
        found = self._ask("GET", f"/allocation_candidates?resources={asked}&limit=10")
        if len(found["allocation_requests"]) != 10:
            raise RuntimeError(found)
