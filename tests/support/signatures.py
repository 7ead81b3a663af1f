"""Calls that mypy accepts, and calls that it rejects: an ignored error that is none is an error.

Not run: ``mypy`` checks this file with the package.
"""

from __future__ import annotations

import resource_objects as ro
from resource_objects.requests import Gang, Member


def accepted(ledger: ro.Ledger, node: ro.ComputeNode) -> None:
    """Requests, amounts and inventories may be text, mappings or the objects themselves."""
    snapshot = ledger.snapshot()
    for request in ("VCPU=4", ro.Request("VCPU=4"), ro.Amounts(VCPU=4)):
        snapshot.candidates(request)
        snapshot.how_many(request)
        Member("worker", request)
    snapshot.candidates({"VCPU": 4})
    snapshot.candidates({ro.VCPU: ro.IntegerAmount(4)})
    snapshot.how_many(Gang([Member("worker", {"VCPU": 4}, count=2)]))
    ledger.feed.changes(snapshot.cursor)
    ledger.change("host0", inventories={"VCPU": 8})
    ro.Provider("host0", {ro.VCPU: 8}, children=[])
    print(node.inventories["VCPU"].total, node.inventories[ro.VCPU].free)
    print(ro.Amounts("VCPU=4")["VCPU"].value + 1)
    print(ro.NUMATopologyInventory([ro.HostCell(0, shared=[0])]).consume(ro.numa(shared=1)).cpuset)


def rejected(ledger: ro.Ledger) -> None:
    """A number is no request, no amounts and no inventories."""
    snapshot = ledger.snapshot()
    snapshot.candidates(12345)  # type: ignore[arg-type]
    snapshot.fork().candidates(12345)  # type: ignore[arg-type]
    snapshot.how_many(12345)  # type: ignore[arg-type]
    snapshot.bundle(12345)  # type: ignore[arg-type]
    snapshot.relaxations(12345)  # type: ignore[arg-type]
    snapshot.when(12345, ends={})  # type: ignore[arg-type]
    ledger.earliest_start(12345)  # type: ignore[arg-type]
    ledger.change("host0", inventories=12345)  # type: ignore[arg-type]
    ro.Request(12345)  # type: ignore[arg-type]
    ro.Request("VCPU=4").with_group("_A", 12345)  # type: ignore[arg-type]
    ro.RequestGroup(12345)  # type: ignore[arg-type]
    ro.Amounts(12345)  # type: ignore[arg-type]
    ro.Inventories(12345)  # type: ignore[arg-type]
    ro.Provider("host0", 12345)  # type: ignore[arg-type]
    Member("worker", 12345)  # type: ignore[arg-type]
