"""Hosts with cells for the tests of topologies in a ledger, and short ways to look at them."""

from __future__ import annotations

from typing import Any

import resource_objects as ro
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
)

TOPOLOGY = "NUMA_TOPOLOGY"


def cells(**figures: Any) -> NUMATopologyInventory:
    """Return two cells: four shared CPUs each, four dedicated ones, 4 GiB of which half in pages.

    CPUs 0 to 3 and 8 to 11 are shared, 4 to 7 and 12 to 15 dedicated.
    """
    pages = [PagePool(size_kib=4, total=2048 * 256), PagePool(size_kib=2048, total=1024)]
    return NUMATopologyInventory(
        [
            HostCell(
                number,
                shared=range(8 * number, 8 * number + 4),
                dedicated=range(8 * number + 4, 8 * number + 8),
                memory_mb=4096,
                pages=pages,
            )
            for number in (0, 1)
        ],
        **figures,
    )


def small(**figures: Any) -> NUMATopologyInventory:
    """Return two cells of four dedicated CPUs and 1 GiB each."""
    return NUMATopologyInventory(
        [HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=1024, **figures) for n in (0, 1)]
    )


def used(ledger: ro.Ledger, provider: str = "host0") -> dict[str, int]:
    """Return what is used of a tree, as ``{"provider CLASS": amount}``, nothing left out."""
    return {f"{u.provider} {u.resource_class}": u.used for u in ledger.usage(provider) if u.used}


def held(ledger: ro.Ledger, consumer: str) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    """Return ``{(provider, class): (amount, units)}`` of a consumer."""
    return {
        (one.provider, one.resource_class): (int(one.amount), one.units)  # type: ignore[call-overload]
        for one in ledger.get_claim(consumer).allocations
    }


def topology(ledger: ro.Ledger, consumer: str, host: str = "host0") -> NUMATopologyAmount:
    """Return where the ledger says that a consumer is."""
    found = ledger.assigned_amounts(consumer)[host][TOPOLOGY]
    assert isinstance(found, NUMATopologyAmount)
    return found
