"""What one version of the library answers: questions come as lines of JSON, and answers go so.

Run by the Python of each version, as a file: it imports nothing of the tests, and of the library
what both versions have. Objects come as their wire forms without versions, and without the words
that one version has alone (:func:`written`).

=============  =====================================================================================
``query``      Placement's query string, read and written again
``amounts``    amounts as text, read and written again
``cells``      a topology on the cells of a host
``devices``    devices, near to some host cells or anywhere
``both``       a topology and devices together, by ``Inventories``
``search``     candidates on some trees, as a set; and the reasons where there are none
``claims``     claims, moves and releases on such trees, one after the other: what became of each,
               and what is used and held after it
=============  =====================================================================================
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.base import ResourceObject
from resource_objects.requests import query
from resource_objects.resources import Amounts, Inventories, numa
from resource_objects.resources.pci import PCIInventory

#: Fields that one version has alone, and those that say when or in which process a thing was made.
NOT_SAID = {"beside", "taken", "withdrawn", "writes_before", "near", "near_policy"}
NOT_SAID |= {"disabled", "adopted_at", "generation", "generations", "reported_at"}
#: The resource of devices, which the version before calls otherwise.
DEVICES, HERE = "DEVICES", "DEVICES" if hasattr(ro, "DEVICES") else "PCI_DEVICES"
#: Kinds whose objects are known by name once their rooms are imported.
ROOMS = (numa, ro.Provider)
#: More candidates than so many are not compared.
MOST = 300


# --- objects ---


def written(value: Any) -> Any:
    """Return objects as plain data that either version reads."""
    if isinstance(value, ResourceObject):
        return _written(value.obj_to_primitive())
    if isinstance(value, (list, tuple)):
        return [written(one) for one in value]
    return value


def _written(wire: Any) -> Any:
    if isinstance(wire, Mapping):
        name = wire.get("versioned_object.name")
        if name is not None:
            data = wire["versioned_object.data"]
            return {"is": name, "has": _written({k: data[k] for k in data.keys() - NOT_SAID})}
        return {_renamed(key, HERE, DEVICES): _written(wire[key]) for key in sorted(wire)}
    if isinstance(wire, (list, tuple)):
        return [_written(one) for one in wire]
    return _renamed(wire, HERE, DEVICES)


def read(said: Any) -> Any:
    """Return what was written as objects of this version."""
    if isinstance(said, list):
        return [read(one) for one in said]
    if isinstance(said, dict):
        return ResourceObject.obj_from_primitive(_wire(said))
    return said


def _wire(said: Any) -> Any:
    if isinstance(said, list):
        return [_wire(one) for one in said]
    if not isinstance(said, dict):
        return _renamed(said, DEVICES, HERE)
    if "is" not in said:
        return {_renamed(key, DEVICES, HERE): _wire(said[key]) for key in said}
    # imported late: the library imports it first, without what that would load besides
    from oslo_versionedobjects.base import VersionedObjectRegistry

    kind = VersionedObjectRegistry.obj_classes()[said["is"]][0]
    unsaid = {name: _plain(kind.fields[name].default) for name in NOT_SAID & set(kind.fields)}
    wire = {"name": said["is"], "version": kind.VERSION, "data": unsaid | _wire(said["has"])}
    wire["namespace"] = kind.OBJ_PROJECT_NAMESPACE
    return {f"versioned_object.{word}": wire[word] for word in wire}


def _plain(default: Any) -> Any:
    return sorted(default) if isinstance(default, (frozenset, tuple)) else default


def _renamed(value: Any, name: str, other: str) -> Any:
    return other if value == name else value


# --- answers ---


def refused(error: Exception) -> dict[str, Any]:
    """Return an error as data: its type, and each rule that was broken with what is told of it."""
    found: dict[str, Any] = {"refused": type(error).__name__}
    if isinstance(error, exceptions.CapacityException):
        found["reasons"] = _told(error.reasons)
    else:
        found["told"] = str(error).replace(HERE, DEVICES)
    return found


def _told(reasons: Iterable[Any]) -> list[list[str]]:
    return sorted([one.rule.name, str(one).replace(HERE, DEVICES)] for one in reasons)


def _query(case: Mapping[str, Any]) -> Any:
    parsed = query.parse(case["text"])
    return {"query": query.format(parsed.request, parsed.limit), "object": written(parsed.request)}


def _amounts(case: Mapping[str, Any]) -> Any:
    found = Amounts.parse(case["text"])
    return {"text": str(found), "object": written(found)}


def _cells(case: Mapping[str, Any]) -> Any:
    inventory, amount, limit = (read(case[word]) for word in ("inventory", "amount", "limit"))
    assigned = inventory.fit(amount, limit)
    inventory.consume(assigned)
    usage = written(inventory)["has"]["usage"]
    return {"assigned": written(assigned), "usage": usage}


def _devices(case: Mapping[str, Any]) -> Any:
    inventory = PCIInventory(read(case["devices"]), usage=read(case["usage"]))
    assigned = inventory.fit(read(case["amount"]), **_near(case["chosen"], case["sockets"]))
    inventory.consume(assigned)
    return {"assigned": written(assigned), "usage": written(inventory)["has"]["usage"]}


def _near(chosen: list[int] | None, sockets: list[list[int]]) -> dict[str, Any]:
    """Return how an inventory is asked for devices near to some host cells."""
    if chosen is None:
        return {}
    there = dict(sockets)
    if HERE == DEVICES:
        from resource_objects.resources.context import CellMap, ChosenCells, Context

        return {"context": Context(chosen=ChosenCells(CellMap(there, {}), chosen))}
    from resource_objects.resources.together import Cells  # type: ignore[import-not-found]

    return {"cells": Cells(sockets=there, distances={}), "chosen": chosen}


def _both(case: Mapping[str, Any]) -> Any:
    devices = PCIInventory(read(case["devices"]), usage=read(case["usage"]))
    host = Inventories({"NUMA_TOPOLOGY": read(case["cells"]), HERE: devices})
    asked = Amounts({"NUMA_TOPOLOGY": read(case["topology"]), HERE: read(case["amount"])})
    return {"assigned": written(host.fit(asked))}


def _search(case: Mapping[str, Any]) -> Any:
    with ro.connect("memory://") as ledger:
        ledger.sync(*read(case["trees"]))
        filled = _filled(ledger, case["used"])
        found = ledger.snapshot().candidates(read(case["request"]), limit=MOST)
        every = [_candidate(one) for one in found]
        if len(every) == MOST:
            every = []
        answer: dict[str, Any] = {"filled": filled, "candidates": sorted(every, key=json.dumps)}
        if not found:
            answer["reasons"] = _told(found.explain().reasons)
        return answer


def _candidate(one: Any) -> Any:
    taken = sorted([a.provider, a.resource_class, str(a.amount)] for a in one.allocations)
    givers = {suffix: list(one.mappings[suffix]) for suffix in sorted(one.mappings)}
    return {"takes": taken, "groups": givers}


def _filled(ledger: Any, used: Iterable[Any]) -> list[Any]:
    """Let a consumer that stands for many use what it can of each inventory; return what."""
    return [_outcome(lambda: _fill(ledger, *one)) for one in used]  # noqa: B023


def _fill(ledger: Any, provider: str, name: str, amount: int) -> Any:
    ledger.adjust("others", {provider: {name: amount}}, aggregate=True)
    return amount


def _claims(case: Mapping[str, Any]) -> Any:
    with ro.connect("memory://") as ledger:
        ledger.sync(*read(case["trees"]))
        return [
            {"step": _outcome(lambda: _step(ledger, step)), **_state(ledger, case["consumers"])}  # noqa: B023
            for step in case["steps"]
        ]


def _step(ledger: Any, step: Mapping[str, Any]) -> Any:
    """Do one step; return who holds what by it."""
    if not step.get("is_request"):
        what = step.get("what", {})
        return _written_step(ledger, step, {name: _asked(what[name]) for name in what})
    found = ledger.snapshot().candidates(read(step["what"]))
    try:
        return _written_step(ledger, step, found)
    except exceptions.NoCandidates as error:
        return {"refused": type(error).__name__, "reasons": _told(found.explain().reasons)}


def _written_step(ledger: Any, step: Mapping[str, Any], found: Any) -> Any:
    who = step["consumer"]
    if step["do"] == "move":
        return _claim(ledger.move(who, found, leaving=step["leaving"]))
    if step["do"] in ("release", "swap"):
        getattr(ledger, step["do"])(who, *step.get("other", ()))
        return None
    return _claim(getattr(ledger, step["do"])(who, found))


def _asked(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {_renamed(name, DEVICES, HERE): read(amounts[name]) for name in amounts}


def _claim(claim: Any) -> Any:
    return [claim.consumer, claim.state, _held(claim)]


def _held(claim: Any) -> Any:
    return sorted(
        [one.provider, one.resource_class, str(one.amount), sorted(one.units)]
        for one in claim.allocations
    )


def _state(ledger: Any, consumers: Iterable[str]) -> dict[str, Any]:
    holds = {name: _outcome(lambda: _held(ledger.held(name))) for name in consumers}  # noqa: B023
    used = {f"{one.provider} {one.resource_class}": one.used for one in ledger.usage()}
    return {"used": {name: used[name] for name in sorted(used) if used[name]}, "holds": holds}


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (exceptions.ResourceObjectsError, ValueError) as error:
        return refused(error)


ANSWERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "query": _query,
    "amounts": _amounts,
    "cells": _cells,
    "devices": _devices,
    "both": _both,
    "search": _search,
    "claims": _claims,
}


def answer(case: Mapping[str, Any]) -> Any:
    """Return the answer to a question; a refusal is one."""
    return _outcome(lambda: ANSWERS[case["kind"]](case))


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
