#!/usr/bin/env python3
"""Copy what a Placement keeps to another one, by their API, and compare them.

    export OS_TOKEN=$(openstack token issue -f value -c id)
    python3 copy_placement.py http://old.example/placement http://new.example:8778
    python3 copy_placement.py http://old.example/placement http://new.example:8778 --compare

Either may be Placement or ``resource-objects serve``: the same command leads back. The new one has
to be empty. Nobody may write to the old one meanwhile; ``--compare`` tells what differs. Providers
keep uuids, names and places in trees; consumers keep theirs, with project, user, type. Generations
begin anew. It takes the role ``admin`` or ``service``. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

VERSION, UNTYPED = "1.39", "1.37"  # the newest that does not ask for a type of consumers
#: So many requests are on their way at once, and so many consumers are written by one.
THREADS, BATCH = 8, 50
#: What Placement calls the type of a consumer that has none.
UNKNOWN = "unknown"
#: More than anybody holds: until allocations are written, inventories take all that is held.
MOST = 2**31 - 1

#: Sends a request, (method, path, body, microversion), and returns status and body.
Send = Callable[[str, str, Any, str], tuple[int, Any]]


class Failed(Exception):
    """A request was refused."""


class Placement:
    """What is kept, by its API."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def ask(self, method: str, path: str, body: Any = None, version: str = VERSION) -> Any:
        status, told = self._send(method, path, body, version)
        if status >= 300:
            raise Failed(f"{method} {path}: {status}: {json.dumps(told)}")
        return told

    def names(self) -> tuple[set[str], set[str]]:
        """Return the resource classes and the traits that are not standard."""
        classes = self.ask("GET", "/resource_classes")["resource_classes"]
        traits = self.ask("GET", "/traits?name=startswith:CUSTOM_")["traits"]
        custom = {one["name"] for one in classes if one["name"].startswith("CUSTOM_")}
        return custom, set(traits)

    def providers(self) -> dict[str, dict[str, Any]]:
        """Return all of them by uuid, parents first, with all that they have."""
        listed = self.ask("GET", "/resource_providers")["resource_providers"]
        below: dict[str | None, list[dict[str, Any]]] = {}
        for one in listed:
            below.setdefault(one["parent_provider_uuid"], []).append(one)
        level, ordered = below.get(None, []), []
        while level:
            ordered += level
            level = [child for one in level for child in below.get(one["uuid"], [])]
        return {
            one["uuid"]: had for one, had in zip(ordered, each(self._has, ordered), strict=True)
        }

    def _has(self, one: dict[str, Any]) -> dict[str, Any]:
        path = f"/resource_providers/{one['uuid']}"
        inventories = self.ask("GET", f"{path}/inventories")["inventories"]
        return {
            "name": one["name"],
            "parent_provider_uuid": one["parent_provider_uuid"],
            "inventories": inventories,
            "traits": sorted(self.ask("GET", f"{path}/traits")["traits"]),
            "aggregates": sorted(self.ask("GET", f"{path}/aggregates")["aggregates"]),
            "consumers": sorted(self.ask("GET", f"{path}/allocations")["allocations"]),
        }

    def consumers(self, providers: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return what each consumer of some providers holds, and whose it is."""
        found = sorted({one for had in providers.values() for one in had["consumers"]})
        return dict(zip(found, each(self._holds, found), strict=True))

    def _holds(self, consumer: str) -> dict[str, Any]:
        told = self.ask("GET", f"/allocations/{consumer}")
        held = told["allocations"]
        return {
            "allocations": {uuid: {"resources": held[uuid]["resources"]} for uuid in held},
            "project_id": told["project_id"],
            "user_id": told["user_id"],
            "consumer_type": told["consumer_type"],
        }

    def everything(self) -> dict[str, Any]:
        """Return all that is copied, to be compared."""
        classes, traits = self.names()
        providers = self.providers()
        consumers = self.consumers(providers)
        return {
            **{f"resource class {one}": True for one in classes},
            **{f"trait {one}": True for one in traits},
            **{f"provider {uuid}": had for uuid, had in providers.items()},
            **{f"consumer {uuid}": holds for uuid, holds in consumers.items()},
        }

    # --- writing ---

    def define(self, uuid: str, had: dict[str, Any]) -> None:
        """Make a provider with all that it has; its inventories take whatever is held."""
        said = {"uuid": uuid, "name": had["name"]}
        if had["parent_provider_uuid"] is not None:
            said["parent_provider_uuid"] = had["parent_provider_uuid"]
        at = self.ask("POST", "/resource_providers", said)["generation"]
        path = f"/resource_providers/{uuid}"
        wide = {"total": MOST, "reserved": 0, "min_unit": 1, "max_unit": MOST, "step_size": 1}
        if had["inventories"]:
            inventories = dict.fromkeys(had["inventories"], wide)
            at = self._put(f"{path}/inventories", at, inventories=inventories)
        if had["traits"]:
            at = self._put(f"{path}/traits", at, traits=had["traits"])
        if had["aggregates"]:
            self._put(f"{path}/aggregates", at, aggregates=had["aggregates"])

    def bound(self, uuid: str, had: dict[str, Any]) -> None:
        """Let the inventories of a provider be what they are."""
        if had["inventories"]:
            path = f"/resource_providers/{uuid}/inventories"
            at = self.ask("GET", path)["resource_provider_generation"]
            self._put(path, at, inventories=had["inventories"])

    def _put(self, path: str, at: int, **said: Any) -> int:
        told = self.ask("PUT", path, {"resource_provider_generation": at, **said})
        return int(told["resource_provider_generation"])

    def hold(self, some: dict[str, dict[str, Any]]) -> None:
        """Let consumers that are new hold what they hold, all of them or none."""
        for typed in (True, False):
            said = {
                uuid: {"consumer_generation": None, **one}
                for uuid, one in some.items()
                if (one["consumer_type"] != UNKNOWN) == typed
            }
            for one in said.values():
                if not typed:
                    del one["consumer_type"]
            if said:
                self.ask("POST", "/allocations", said, VERSION if typed else UNTYPED)


def each(call: Callable[[Any], Any], some: Iterable[Any]) -> list[Any]:
    """Return what a call returns for each of some, several at a time."""
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, some))


def copy(old: Placement, new: Placement, say: Callable[[str], object] = print) -> None:
    """Copy all that one keeps to one that keeps nothing.

    :raises Failed: if the new one is not empty, or a request is refused: begin again with a new one
    """
    if new.ask("GET", "/resource_providers")["resource_providers"]:
        raise Failed("there are providers already: copy to an empty one")
    classes, traits = old.names()
    for name in sorted(classes):
        new.ask("PUT", f"/resource_classes/{name}")
    for name in sorted(traits):
        new.ask("PUT", f"/traits/{name}")
    providers = old.providers()
    for uuid, had in providers.items():  # one after the other: parents first
        new.define(uuid, had)
    say(f"{len(providers)} providers")
    consumers = old.consumers(providers)
    names = list(consumers)
    for at in range(0, len(names), BATCH):
        new.hold({name: consumers[name] for name in names[at : at + BATCH]})
    say(f"{len(consumers)} consumers")
    for uuid, had in providers.items():
        new.bound(uuid, had)


def differences(old: Placement, new: Placement) -> list[str]:
    """Return what is kept in one of them alone, or otherwise."""
    here, there = old.everything(), new.everything()
    found = [f"{name}: not in the new one" for name in here.keys() - there.keys()]
    found += [f"{name}: not in the old one" for name in there.keys() - here.keys()]
    both = here.keys() & there.keys()
    found += [f"{name}: {here[name]} / {there[name]}" for name in both if here[name] != there[name]]
    return sorted(found)


def over_http(url: str, token: str) -> Send:
    """Return what sends requests to an endpoint."""

    def send(method: str, path: str, body: Any, version: str) -> tuple[int, Any]:
        headers = {
            "x-auth-token": token,
            "accept": "application/json",
            "content-type": "application/json",
            "openstack-api-version": f"placement {version}",
        }
        text = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url.rstrip("/") + path, text, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                status, found = response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, found = error.code, error.read()
        return status, json.loads(found) if found else None

    return send


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", metavar="URL", help="the endpoint to copy from")
    parser.add_argument("new", metavar="URL", help="the endpoint to copy to")
    parser.add_argument("--compare", action="store_true", help="copy nothing, tell what differs")
    said = parser.parse_args()
    token = os.environ.get("OS_TOKEN", "")
    old, new = (Placement(over_http(url, token)) for url in (said.old, said.new))
    try:
        if not said.compare:
            copy(old, new)
            return 0
        found = differences(old, new)
    except (Failed, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for line in found:
        print(line)
    print(f"{len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
