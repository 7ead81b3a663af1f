"""The start states of Placement's own API tests, recorded and replayed over the REST API.

The fixtures of these tests write with Placement's database objects, so they cannot prepare another
service. Run as a program, this file starts each fixture that it is called with on Placement's own
database in memory, reads the resulting state over the API, and prints all as JSON::

    python gabbi_states.py FIXTURE [FIXTURE...]   ->   {FIXTURE: {"environ": ..., "state": ...}}

:func:`write` then creates such a state in an empty service: with the same uuids and the same
generations of providers and consumers.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import webob

State: TypeAlias = dict[str, Any]

_INVENTORY = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


class Client:
    """A client of a WSGI application with all roles, in this process."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def call(self, method: str, path: str, body: Any = None, version: str = "1.39") -> Any:
        """Return the JSON of a successful response; fail with the response if it is an error."""
        request = webob.Request.blank(path, method=method)
        request.headers.update(
            {
                "x-auth-token": "admin",
                "x-roles": "admin,service,member,reader",
                "accept": "application/json",
                "openstack-api-version": f"placement {version}",
            }
        )
        if body is not None:
            request.content_type = "application/json"
            request.body = json.dumps(body).encode()
        response = request.get_response(self._app)
        assert response.status_int < 300, (method, path, version, response.status, response.text)
        return response.json if response.body else None


def read(client: Client) -> State:
    """Return the state of a service as far as its API shows it."""
    classes = client.call("GET", "/resource_classes")["resource_classes"]
    traits = client.call("GET", "/traits")["traits"]
    rows = client.call("GET", "/resource_providers")["resource_providers"]
    providers = {row["uuid"]: _read_provider(client, row) for row in rows}
    consumers = {
        consumer
        for uuid in providers
        for consumer in client.call("GET", f"/resource_providers/{uuid}/allocations")["allocations"]
    }
    return {
        "resource_classes": sorted(
            row["name"] for row in classes if row["name"].startswith("CUSTOM_")
        ),
        "traits": sorted(trait for trait in traits if trait.startswith("CUSTOM_")),
        "providers": providers,
        "consumers": {uuid: _read_consumer(client, uuid) for uuid in sorted(consumers)},
    }


def _read_provider(client: Client, row: dict[str, Any]) -> dict[str, Any]:
    def get(part: str) -> Any:
        return client.call("GET", f"/resource_providers/{row['uuid']}/{part}")[part]

    return {
        "name": row["name"],
        "parent": row["parent_provider_uuid"],
        "root": row["root_provider_uuid"],
        "generation": row["generation"],
        "inventories": {
            resource_class: {key: record[key] for key in _INVENTORY}
            for resource_class, record in get("inventories").items()
        },
        "traits": sorted(get("traits")),
        "aggregates": sorted(get("aggregates")),
    }


def _read_consumer(client: Client, uuid: str) -> dict[str, Any]:
    answer = client.call("GET", f"/allocations/{uuid}")
    keys = "project_id", "user_id", "consumer_generation", "consumer_type"
    allocations = {
        provider: {"resources": part["resources"]}
        for provider, part in answer["allocations"].items()
    }
    return {"allocations": allocations, **{key: answer[key] for key in keys}}


def write(client: Client, state: State) -> None:
    """Create a state in an empty service.

    Each part is written at the microversion that raises the generation the least. The generations
    that are missing then are made up by writes that change nothing else.
    """
    for name in state["resource_classes"]:
        client.call("PUT", f"/resource_classes/{name}", version="1.7")
    for name in state["traits"]:
        client.call("PUT", f"/traits/{name}", version="1.6")
    for uuid in _parents_first(state["providers"]):
        _write_provider(client, uuid, state["providers"][uuid])
    for uuid, consumer in state["consumers"].items():
        _write_consumer(client, uuid, consumer)
    for uuid, provider in state["providers"].items():  # last: allocations raise generations too
        _raise(
            lambda uuid=uuid: _generation(client, uuid),
            provider["generation"],
            lambda generation, uuid=uuid, provider=provider: client.call(
                "PUT",
                f"/resource_providers/{uuid}/aggregates",
                {
                    "resource_provider_generation": generation,
                    "aggregates": provider["aggregates"],
                },
                version="1.19",
            ),
        )


def _parents_first(providers: dict[str, dict[str, Any]]) -> Iterator[str]:
    def depth(uuid: str) -> int:
        parent = providers[uuid]["parent"]
        return 0 if parent is None else 1 + depth(parent)

    return iter(sorted(providers, key=depth))


def _generation(client: Client, uuid: str) -> int:
    generation: int = client.call("GET", f"/resource_providers/{uuid}")["generation"]
    return generation


def _write_provider(client: Client, uuid: str, provider: dict[str, Any]) -> None:
    parent = {"parent_provider_uuid": provider["parent"]} if provider["parent"] else {}
    body = {"uuid": uuid, "name": provider["name"], **parent}
    client.call("POST", "/resource_providers", body, version="1.20")
    for part, version in (("inventories", "1.26"), ("traits", "1.6")):
        if provider[part]:
            generation = _generation(client, uuid)
            body = {"resource_provider_generation": generation, part: provider[part]}
            client.call("PUT", f"/resource_providers/{uuid}/{part}", body, version=version)
    if provider["aggregates"]:  # before 1.19 this leaves the generation as it is
        path = f"/resource_providers/{uuid}/aggregates"
        client.call("PUT", path, provider["aggregates"], version="1.18")


def _write_consumer(client: Client, uuid: str, consumer: dict[str, Any]) -> None:
    path = f"/allocations/{uuid}"
    keys = ["allocations", "project_id", "user_id"]
    version = "1.28"
    if consumer["consumer_type"] != "unknown":
        keys, version = [*keys, "consumer_type"], "1.38"
    body = {key: consumer[key] for key in keys}

    def put(generation: int | None) -> None:
        client.call("PUT", path, {**body, "consumer_generation": generation}, version=version)

    put(None)
    _raise(
        lambda: client.call("GET", path, version="1.28")["consumer_generation"],
        consumer["consumer_generation"],
        put,
    )


def _raise(current: Callable[[], int], wanted: int, write: Callable[[int], object]) -> None:
    """Write until a generation is the wanted one; fail if a write does not raise it."""
    generation = current()
    while generation < wanted:
        write(generation)
        before, generation = generation, current()
        assert generation > before, "a write did not raise the generation"


def record(fixture_name: str) -> dict[str, Any]:
    """Start a fixture of Placement's API tests; return its environment variables and state."""
    from placement.tests.functional.fixtures import gabbits

    before = dict(os.environ)
    fixture = getattr(gabbits, fixture_name)()
    fixture.start_fixture()
    try:
        state = read(Client(gabbits.setup_app()))
        environ = {key: value for key, value in os.environ.items() if before.get(key) != value}
    finally:
        fixture.stop_fixture()
        os.environ.clear()
        os.environ.update(before)
    return {"environ": environ, "state": state}


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):  # the fixtures capture it, too
        recorded = {name: record(name) for name in sys.argv[1:]}
    print(json.dumps(recorded), file=sys.__stdout__)
