"""``contrib/copy_placement.py``: there and back, and nothing is lost."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import webob

from resource_objects.rest import application
from tests.support.served import Served

PROGRAM = Path(__file__).parents[2] / "contrib" / "copy_placement.py"


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("copy_placement", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


copying = program()


def placement(app: Any) -> Any:
    """Return what is asked in this process."""

    def send(method: str, path: str, body: Any, version: str) -> tuple[int, Any]:
        headers = {"x-auth-token": "admin", "openstack-api-version": f"placement {version}"}
        request = webob.Request.blank(path, method=method, headers=headers)
        if body is not None:
            request.body, request.content_type = json.dumps(body).encode(), "application/json"
        response = request.get_response(app)
        return response.status_int, response.json if response.body else None

    return copying.Placement(send)


@pytest.fixture
def services() -> Iterator[list[Any]]:
    """Three empty ones."""
    with contextlib.ExitStack() as stack:
        made = [application("memory://", auth="noauth2", policy="open") for _ in range(3)]
        for app in made:
            stack.callback(app.close)
        yield [placement(app) for app in made]


def fill(one: Any, seed: int = 7, hosts: int = 3) -> None:
    """Make trees with pools, and consumers with types, without, and one that holds too much."""
    chance = random.Random(seed)

    def new() -> str:
        return str(uuid.UUID(int=chance.getrandbits(128), version=4))

    one.ask("PUT", "/resource_classes/CUSTOM_FPGA")
    one.ask("PUT", "/traits/CUSTOM_FAST")
    rack, made = new(), []
    for number in range(hosts):
        root = new()
        for uuid_, name, parent in ((root, f"h{number}", None), (new(), f"h{number}/c", root)):
            vcpu = {"total": 8, "reserved": 1, "allocation_ratio": 1.5, "max_unit": 4}
            fpga = {"total": 4, "min_unit": 2, "step_size": 2}
            had = {"name": name, "parent_provider_uuid": parent, "aggregates": [rack]}
            had |= {"inventories": {"VCPU": vcpu, "CUSTOM_FPGA": fpga}, "traits": ["CUSTOM_FAST"]}
            one.define(uuid_, had)
            one.bound(uuid_, had)
            made.append(uuid_)
    for number in range(2 * hosts):
        where = chance.sample(made, 2)
        held = {host: {"resources": {"VCPU": 2, "CUSTOM_FPGA": 2}} for host in where}
        kind = ("INSTANCE", "MIGRATION", copying.UNKNOWN)[number % 3]
        with contextlib.suppress(copying.Failed):  # some find no room
            whose = {"project_id": new(), "user_id": new(), "consumer_type": kind}
            one.hold({new(): {"allocations": held, **whose}})
    path = f"/resource_providers/{made[0]}/inventories"
    at = one.ask("GET", path)["resource_provider_generation"]
    job = {"allocations": {made[0]: {"resources": {"VCPU": 4}}}, "consumer_type": "INSTANCE"}
    with contextlib.suppress(copying.Failed):
        one.hold({new(): {**job, "project_id": "lab", "user_id": "ann"}})
        at = one.ask("GET", path)["resource_provider_generation"]
    shrunk = {"VCPU": {"total": 2}, "CUSTOM_FPGA": {"total": 4, "min_unit": 4, "step_size": 4}}
    one.ask("PUT", path, {"resource_provider_generation": at, "inventories": shrunk})


def test_there_and_back_nothing_is_lost(services: list[Any]) -> None:
    old, new, back = services
    fill(old)
    said: list[str] = []
    copying.copy(old, new, said.append)
    assert said == [
        "6 providers",
        f"{sum('consumer' in one for one in old.everything())} consumers",
    ]
    assert copying.differences(old, new) == []
    copying.copy(new, back, said.append)
    assert copying.differences(old, back) == []
    kinds = {one["consumer_type"] for name, one in back.everything().items() if "consumer " in name}
    assert kinds == {"INSTANCE", "MIGRATION", copying.UNKNOWN}


def test_what_differs_is_told(services: list[Any]) -> None:
    old, new, _ = services
    fill(old)
    copying.copy(old, new, str)
    new.ask("PUT", "/traits/CUSTOM_MORE")
    consumer = next(name for name in old.everything() if name.startswith("consumer "))
    new.ask("DELETE", f"/allocations/{consumer.split()[1]}")
    found = copying.differences(old, new)
    assert f"{consumer}: not in the new one" in found
    assert "trait CUSTOM_MORE: not in the old one" in found
    assert any(line.startswith("provider ") for line in found), "it tells of its consumers too"
    with pytest.raises(copying.Failed, match="copy to an empty one"):
        copying.copy(old, new, str)


def test_it_speaks_http(service: Served, services: list[Any]) -> None:
    over_http = copying.Placement(copying.over_http(service.url, "admin"))
    copying.copy(over_http, services[0], str)
    assert copying.differences(over_http, services[0]) == []
    with pytest.raises(copying.Failed, match="GET /nowhere: 404"):
        over_http.ask("GET", "/nowhere")
