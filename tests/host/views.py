"""Shared by the tests of a compute node as a view of a ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode

HOST = "VCPU=8:allocation_ratio=2,MEMORY_MB=16384:reserved=512,CUSTOM_SEATS=3"
OPERATION = "0b6f7c1e-58a5-4a5b-8c39-3d7f3f0f5f11"


def held(ledger: ro.Ledger, consumer: str) -> str:
    try:
        return str(ledger.get_claim(consumer).amounts)
    except exceptions.NotFound as error:
        if not error.is_about("consumer"):
            raise
        return "nothing"


def used(ledger: ro.Ledger, kind: str = "VCPU") -> int:
    return ledger.usage()["host0", kind].used


def claims(ledger: ro.Ledger) -> dict[str, Any]:
    """Return the allocations of each consumer that has some."""
    return {name: ledger.get_claim(name).allocations for name in ledger.usage().consumers}


def owners(ledger: ro.Ledger) -> dict[str, str]:
    """Return the consumer of each allocated unit."""
    return {
        unit: name
        for name, allocations in claims(ledger).items()
        for allocation in allocations
        for unit in allocation.units
    }


def pending_topologies(node: ComputeNode) -> tuple[ro.Amount, ...]:
    """Return the topologies that a view consumed or released since its last save."""
    return node.pending_placed.get("NUMA_TOPOLOGY", ())


def pending_devices(node: ComputeNode) -> tuple[ro.Amount, ...]:
    """Return the devices that a view consumed or released since its last save."""
    return node.pending_placed.get("DEVICES", ())


def lose_connection(monkeypatch: pytest.MonkeyPatch, ledger: ro.Ledger, *, done: bool) -> None:
    """Lose the connection at the next write, after or before it is done."""
    commit = ledger.backend.commit

    def lost(*args: Any, **kwargs: Any) -> None:
        monkeypatch.undo()
        if done:
            commit(*args, **kwargs)
        raise exceptions.DatabaseError("lost", "ledger")

    monkeypatch.setattr(ledger.backend, "commit", lost)


def before_next(
    monkeypatch: pytest.MonkeyPatch, target: object, name: str, action: Callable[[], object]
) -> None:
    """Run an action once, before the next call of a method."""
    method = getattr(target, name)

    def delayed(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        action()
        return method(*args, **kwargs)

    monkeypatch.setattr(target, name, delayed)
