"""Hosts and requests that the NUMA benchmarks ask about, and how an answer is timed."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import nova_numa
from benchmarks.measure import Row, per_call
from resource_objects.exceptions import CapacityException
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    numa,
)

CPUS = 16  #: of a host cell: half shared, half dedicated, in cores of two threads
MEMORY_MB = 65536


# --- hosts and requests ---------------------------------------------------------------------------


def host(cells: int) -> NUMATopologyInventory:
    """Return an empty host of so many equal cells, two to a socket."""
    return NUMATopologyInventory([_cell(number) for number in range(cells)])


def _cell(number: int) -> HostCell:
    first, middle, end = (number * CPUS + cpu for cpu in (0, CPUS // 2, CPUS))
    ordinary = MEMORY_MB - 1024 * 2 - 8 * 1024
    return HostCell(
        number,
        shared=range(first, middle),
        dedicated=range(middle, end),
        siblings=[(cpu, cpu + 1) for cpu in range(first, end, 2)],
        memory_mb=MEMORY_MB,
        pages=[
            PagePool(size_kib=4, total=ordinary * 256),
            PagePool(size_kib=2048, total=1024),
            PagePool(size_kib=1048576, total=8),
        ],
        socket=number // 2,
    )


def too_much(guests: int) -> NUMATopologyAmount:
    """Return a request in which each guest cell wants one dedicated CPU more than a cell has."""
    return numa(cells=guests, dedicated=guests * (CPUS // 2 + 1), memory_mb=guests * 1024)


def refusal(inventory: NUMATopologyInventory, amount: NUMATopologyAmount) -> CapacityException:
    """Return the refusal of a request that does not fit, with its reasons."""
    try:
        inventory.fit(amount)
    except CapacityException as error:
        return error
    raise AssertionError(f"{amount} fits")


# --- measuring ------------------------------------------------------------------------------------

_UNITS = {"us": 1e3, "ms": 1e6}


def row(
    name: str,
    unit: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any] | None = None,
    *,
    most: float | None = None,
    target: str = "",
    under: float | None = None,
    calls: tuple[int, int] = (200, 200),
    rounds: int = 9,
) -> Row:
    """Return what was measured.

    :param most: bound on the ratio to the peer
    :param under: bound on our figure, in the unit
    :param calls: ours and the peer's, in one round
    """
    pairs = list(_pairs(ours, theirs or (lambda: None), calls, rounds))
    mine, other = (statistics.median(side) / _UNITS[unit] for side in zip(*pairs, strict=True))
    ratio = statistics.median(one / two for one, two in pairs)
    met = None if under is None else mine < under
    if most is not None and theirs is not None:
        met = ratio <= most
    is_beside = theirs is not None
    return Row(
        name,
        unit,
        mine,
        other if is_beside else None,
        nova_numa.NAME if is_beside else "",
        ratio if is_beside else None,
        target if met is not None else "",
        met,
    )


def _pairs(
    ours: Callable[[], Any], theirs: Callable[[], Any], calls: tuple[int, int], rounds: int
) -> Iterator[tuple[float, float]]:
    ours(), theirs()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            yield per_call(ours, calls[0]), per_call(theirs, calls[1])
    finally:
        gc.enable()
