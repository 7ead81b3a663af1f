"""How the NUMA decision grows with the cells of a host and of a request: part of the numa part."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from benchmarks.measure import Row, per_call
from benchmarks.numa_asked import MEMORY_MB, host, row
from resource_objects.exceptions import CapacityException
from resource_objects.resources.numa import (
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    numa,
)

HOSTS = (2, 4, 8, 16, 32, 64)
GUESTS = (1, 2, 4, 8, 16)
#: What is called polynomial here.
MOST_EXPONENT = 3
#: How long a point is measured in one round.
POINT_NS = 8e6

Question: TypeAlias = tuple[NUMATopologyInventory, NUMATopologyAmount]


def rows() -> Iterator[Row]:
    """Yield a point for each size of host and of request, and the exponents that fit them."""
    for name, question in (
        ("fits, all cells equal", _equal),
        ("fits in one way only, no two cells equal", _stairs),
        ("refused: any guest cell fits alone, all at once they do not", _clash),
    ):
        points = [
            _point(f"growth: {name}", *question(hosts, guests))
            for hosts, guests in itertools.product(HOSTS, GUESTS)
            if guests <= hosts and (question is not _clash or guests > 1)
        ]
        yield from points
        yield from exponents(f"growth: {name}", points)


def _equal(hosts: int, guests: int) -> Question:
    return host(hosts), numa(cells=guests, dedicated=4 * guests, memory_mb=1024 * guests)


def _stairs(hosts: int, guests: int, *, clash: bool = False) -> Question:
    """Each host cell has one CPU more than the one before, each guest cell asks for one more.

    They fit in one way only: the guest cell that asks for most on the host cell that has most, and
    so on down. In a clash, two of them ask for that one.
    """
    cells = [
        HostCell(number, dedicated=cpus, memory_mb=MEMORY_MB)
        for number, cpus in enumerate(_ranges(range(1, hosts + 1)))
    ]
    asked = list(range(hosts - guests + 1, hosts + 1))
    if clash:
        asked[-2] = asked[-1]
    return NUMATopologyInventory(cells), NUMATopologyAmount(
        GuestCell(dedicated=vcpus, memory_mb=1024) for vcpus in _ranges(asked)
    )


def _clash(hosts: int, guests: int) -> Question:
    return _stairs(hosts, guests, clash=True)


def _ranges(counts: Iterable[int]) -> Iterator[range]:
    """Yield ranges of so many numbers each, one after another from 0."""
    first = 0
    for count in counts:
        yield range(first, first + count)
        first += count


def _point(name: str, inventory: NUMATopologyInventory, amount: NUMATopologyAmount) -> Row:
    def once() -> None:
        with contextlib.suppress(CapacityException):
            inventory.fit(amount)

    calls = max(1, int(POINT_NS / per_call(once, 1)))
    found = row(name, "us", once, calls=(calls, 1), rounds=3)
    return dataclasses.replace(found, point=(len(inventory.cells), len(amount.cells)))


def exponents(
    name: str,
    points: Iterable[Row],
    words: tuple[str, str] = ("host cells", "guest cells"),
    least: int = 8,
) -> Iterator[Row]:
    """Yield the exponents a, b of ``c * hosts ** a * guests ** b`` that fit points best.

    Of least squares of logarithms, over hosts of so many cells and more: below, what every call
    costs hides the rest.

    :param words: what the two sizes of a point are
    :param least: the smallest first size that counts
    """
    import numpy

    large = [found for found in points if found.point is not None and found.point[0] >= least]
    sizes = [[1.0, *map(math.log, found.point or ())] for found in large]
    figures = [math.log(found.ours) for found in large]
    found = numpy.linalg.lstsq(numpy.array(sizes), numpy.array(figures), rcond=None)[0]
    for what, exponent in zip(words, found[1:], strict=True):
        yield Row(
            f"{name}: exponent of {what}",
            "",
            round(float(exponent), 2),
            target=f"at most {MOST_EXPONENT}",
            met=bool(exponent <= MOST_EXPONENT),
        )
