"""What the tests of a compute node as a view of a ledger share."""

from __future__ import annotations

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode

HOST = "VCPU=8:allocation_ratio=2,MEMORY_MB=16384:reserved=512,CUSTOM_SEATS=3"


def held(ledger: ro.Ledger, consumer: str) -> str:
    try:
        return str(ledger.get_claim(consumer).amounts)
    except exceptions.NotFound as error:
        if not error.is_about("consumer"):
            raise
        return "nothing"


def used(ledger: ro.Ledger, kind: str = "VCPU") -> int:
    return ledger.usage()["host0", kind].used


def pending_topologies(node: ComputeNode) -> tuple[ro.Amount, ...]:
    """Return what a view took of the cells, or gave back, and did not save."""
    return node.pending_placed.get("NUMA_TOPOLOGY", ())


def pending_devices(node: ComputeNode) -> tuple[ro.Amount, ...]:
    """Return what a view took of the devices, or gave back, and did not save."""
    return node.pending_placed.get("DEVICES", ())
