"""What cells, and amounts that are assigned to them, come to in counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from resource_objects.resources import Amount
from resource_objects.resources.numa import (
    NUMA_TOPOLOGY,
    OF_HOST,
    CellUsage,
    HostCell,
    NUMATopologyAmount,
    words,
)
from resource_objects.resources.numa.host import KIB

_AmountT = TypeVar("_AmountT", bound=Amount)

#: The resource of the cells, and that of their dedicated CPUs.
NUMA, CPUS = NUMA_TOPOLOGY.name, OF_HOST[1]

#: Host cells, and what is used of each.
Content: TypeAlias = tuple[tuple[HostCell, ...], tuple[CellUsage, ...]]


class Figures(NamedTuple):
    """What cells come to."""

    dedicated: int  #: CPUs
    taken: int  #: of these
    huge_mb: int  #: MiB in huge pages
    used_pages_mb: int


def figures_of(cells: Iterable[HostCell], usage: Iterable[CellUsage]) -> Figures:
    """Return what cells come to."""
    dedicated = taken = huge = used = 0
    for cell in cells:
        dedicated += len(cell.dedicated)
        huge += sum([pool.total * pool.size_kib for pool in cell.huge_pages])
    for one in usage:
        taken += len(one.pinned) + one.loose
        used += sum([size * count for size, count in one.pages])
    return Figures(dedicated, taken, -(-huge // KIB), used // KIB)


class Counts(NamedTuple):
    """What an assigned amount comes to, negative if it gives back.

    ``said`` are the counts that go with what was asked (D1), ``taken`` what it takes of the host as
    a whole: CPUs left empty, and the memory that a request for pages of any size found, are more
    than was said. ``vcpus`` are the dedicated ones, ``pages_mb`` is its memory in huge pages.
    """

    said: Mapping[str, int]
    taken: Mapping[str, int]
    vcpus: int
    pages_mb: int

    def beyond(self, name: str) -> int:
        """Return how much it takes that was not said."""
        return self.taken.get(name, 0) - self.said.get(name, 0)


def said_by(amount: NUMATopologyAmount) -> Mapping[str, int]:
    """Return the counts that go with what was asked, wherever it is (D1).

    Memory that may be in huge pages is not said. (It is ``amount.unassigned().of_host``, without
    making another amount.)
    """
    counts = amount.located
    if amount.page_size in ("", words.SMALL):
        return counts
    return {name: count for name, count in counts.items() if name != "MEMORY_MB"}


def counts_of(assigned: NUMATopologyAmount) -> Counts:
    """Return what an assigned amount comes to."""
    sign = -1 if assigned.is_negative else 1
    taken = assigned.of_host
    return Counts(
        {name: sign * count for name, count in said_by(assigned).items()},
        {name: sign * count for name, count in taken.items()},
        sign * sum([len(cell.dedicated) for cell in assigned.cells]),
        sign * (assigned.memory_mb - taken.get("MEMORY_MB", 0)),
    )


def gives_back_first(pending: Iterable[_AmountT]) -> list[_AmountT]:
    """Return amounts in an order in which what is given back can be taken again."""
    return sorted(pending, key=lambda one: not one.is_negative)


def taken_of_host(pending: Iterable[NUMATopologyAmount], name: str) -> int:
    """Return how much of a class of the host some assigned amounts take in all."""
    return sum(
        -amount.of_host.get(name, 0) if amount.is_negative else amount.of_host.get(name, 0)
        for amount in pending
    )
