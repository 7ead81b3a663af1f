"""An amount of devices laid over a shelf: which groups each demand may have some of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.pci.amount import PCIAmount
from resource_objects.resources.pci.near import Where, rings
from resource_objects.resources.pci.shelf import Shelf
from resource_objects.resources.pci.wish import DeviceRequest

#: How many ways to divide devices between those who want them whole and in parts are looked at.
BUDGET = 10_000


class Demand(NamedTuple):
    """What one request needs of the shelf."""

    request: int  #: its place in the amount
    asked: DeviceRequest
    needed: int  #: how many devices
    serving: tuple[int, ...]  #: groups of which it may have some, wherever they are


class Question(NamedTuple):
    """Demands laid over a shelf; groups are by their number."""

    shelf: Shelf
    demands: Sequence[Demand]
    free: Mapping[int, Sequence[Any]]  #: devices that may be had, by group
    may: Sequence[Sequence[int]]  #: the groups of each demand, the best first

    @property
    def counts(self) -> list[int]:
        """How many devices each demand asks for."""
        return [demand.needed for demand in self.demands]


def demands_of(shelf: Shelf, amount: PCIAmount) -> list[Demand]:
    """Return the demands of an amount: one for each request, or each provider that it names."""
    found: list[Demand] = []
    for place, request in enumerate(amount.requests):
        if not request.providers:
            found.append(Demand(place, request, request.count, shelf.serving(request)))
            continue
        for provider, count in sorted(Counter(request.providers).items()):
            found.append(Demand(place, request, count, shelf.serving(request, provider)))
    return found


def lay(
    shelf: Shelf,
    demands: Sequence[Demand],
    where: Where | None,
    within: Collection[str] | None = None,
) -> Question:
    """Return demands laid over a shelf.

    :param where: the host cells there are, and those that are chosen; None if nobody asks for any
    :param within: addresses that may be used, None for all
    """
    wanted = {group for demand in demands for group in demand.serving}
    free: dict[int, Sequence[Any]] = {group: shelf.free[group] for group in wanted}
    if within is not None:
        free = {
            group: [address for address in some if address in within]
            for group, some in free.items()
        }
    may = [_ranked(shelf, demand, free, where) for demand in demands]
    return Question(shelf, demands, free, may)


def _ranked(
    shelf: Shelf, demand: Demand, free: Mapping[int, Sequence[Any]], where: Where | None
) -> list[int]:
    """Return the groups of a demand that have a device near enough, the best first.

    By ring and distance (:mod:`.near`), then plain devices before those with tags, then those that
    break no physical function that is whole, then the group with the fewest that will do, else the
    one with the most, so that the fewest functions are broken; then by address.
    """
    far = rings(demand.asked.affinity, where)
    keyed: list[tuple[Any, ...]] = []
    for group in demand.serving:
        some = free[group]
        if not some:
            continue
        distance = far(shelf.groups[group].node)
        if distance is not None:
            cost = shelf.groups[group].cost
            keyed.append(
                (distance, cost, *_breaks(shelf, group, len(some), demand.needed), some[0], group)
            )
    if len(keyed) > 1:
        keyed.sort()
    return [key[-1] for key in keyed]


def _breaks(shelf: Shelf, group: int, count: int, wanted: int) -> tuple[int, int, int]:
    """Return what it breaks to take devices of a group, to sort by."""
    whole = shelf.whole.get(group)
    if whole is not None:
        if not shelf.free[whole]:
            return 0, 0, 0
        return (1, 0, count) if count >= wanted else (1, 1, -count)
    parts = shelf.parts.get(group)
    if parts is None:
        return 0, 0, 0
    return 1, 0, sum(len(shelf.free[part]) for part in parts)


class Steps:
    """Counted steps, so that every decision ends."""

    def __init__(self) -> None:
        self.left = BUDGET

    def spend(self, count: int = 1) -> None:
        """Take steps.

        :raises SearchLimitReached: if none is left
        """
        self.left -= count
        if self.left < 0:
            raise SearchLimitReached(BUDGET)
