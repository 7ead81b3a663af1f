"""What devices need of the host cells that are chosen for what is beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping

from resource_objects.resources.budget import DECISION, Budget
from resource_objects.resources.context import CellMap, ChosenCells
from resource_objects.resources.pci.amount import PCIAmount
from resource_objects.resources.pci.device import SOCKET
from resource_objects.resources.pci.device_groups import DeviceGroups
from resource_objects.resources.pci.fit import (
    DeviceDemand,
    DeviceProblem,
    Flow,
    demands_of,
    divide,
    lay,
    relaxed,
    rings,
)


class RequestedDevices:
    """Devices that are asked for, as an
    :class:`~resource_objects.resources.context.AffinityConstraint`.

    It is monotone: every policy allows more devices the more cells are chosen.
    """

    def __init__(
        self,
        shelf: DeviceGroups,
        amount: PCIAmount,
        cells: CellMap,
        within: Collection[str] | None = None,
    ) -> None:
        self._shelf = shelf
        self._cells = cells
        self._within = within
        self._asked = demands_of(shelf, amount)
        self._budget = Budget(DECISION)
        self._met: dict[frozenset[int], bool] = {}
        laid = lay(shelf, self._asked, None, within)
        self._free, self._demands = laid.free, laid.demands
        #: how many devices that would do are at each host cell
        self.counts: Mapping[int, int] = self._counted()

    def _counted(self) -> dict[int, int]:
        counts: Counter[int] = Counter()
        for group, some in self._free.items():
            node = self._shelf.groups[group].node
            if node is not None and some:
                counts[node] += len(some)
        return dict(counts)

    def is_met(self, cells: Collection[int]) -> bool:
        """Return whether all requests can be met at once, were just these host cells chosen.

        :raises SearchLimitReached: if the budget ran out before it was known
        """
        chosen = frozenset(cells)
        if chosen not in self._met:
            self._met[chosen] = divide(self._problem(chosen), self._budget) is not None
        return self._met[chosen]

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        """Return the host cells of which at least one has to be chosen too.

        Requests that are short together need a device that these cells do not allow.
        """
        chosen = frozenset(cells)
        problem = self._problem(chosen)
        every = frozenset(range(len(self._demands)))
        opening = [self._gains(problem, some) for some in relaxed(problem).short() or [every]]
        return min((frozenset(gains) - chosen for gains in opening), key=len)

    def needed(self, cells: Collection[int], among: Collection[int]) -> int:
        """Return how many host cells it takes at least beside these, which are not enough.

        As if every cell brought all that it could to those who are short. More than there are:
        no number will do.
        """
        problem = self._problem(frozenset(cells))
        flow = relaxed(problem)
        return max((self._least(problem, flow, some, among) for some in flow.short()), default=1)

    def _least(
        self, problem: DeviceProblem, flow: Flow, short: Collection[int], among: Collection[int]
    ) -> int:
        lacking = sum(flow.missing[number] for number in short)
        gains = self._gains(problem, short)
        for count, gain in enumerate(sorted((gains.get(c, 0) for c in among), reverse=True), 1):
            lacking -= gain
            if lacking <= 0:
                return count
        return len(among) + 1

    def _gains(self, problem: DeviceProblem, short: Collection[int]) -> Counter[int]:
        gains: Counter[int] = Counter()
        for group, some in self._free.items():
            cells: set[int] = set()
            for number in short:
                demand = self._demands[number]
                if group in demand.serving and group not in problem.may[number]:
                    cells.update(self._opening(demand, group))
            gains.update(dict.fromkeys(cells, len(some)))
        return gains

    def _opening(self, demand: DeviceDemand, group: int) -> Iterator[int]:
        """Yield the host cells that would let a demand have a group that is too far as yet."""
        node, sockets = self._shelf.groups[group].node, self._cells.sockets
        if node is None or not self._free[group]:
            return
        if node in sockets:
            yield node
        if demand.wanted.affinity == SOCKET and sockets.get(node) is not None:
            yield from (cell for cell, socket in sockets.items() if socket == sockets[node])

    def symmetry_key(self, cell: int) -> Hashable:
        """Return what host cells have in common that can stand for each other."""
        groups = [
            (*self._demands_served(group), len(some), self._relatives(group))
            for group, some in self._free.items()
            if some and self._shelf.groups[group].node == cell
        ]
        counts = Counter(groups)
        by_socket = any(demand.wanted.affinity == SOCKET for demand in self._demands)
        socket = self._cells.sockets.get(cell) if by_socket else None
        return frozenset(counts.items()), socket

    def _demands_served(self, group: int) -> tuple[int, ...]:
        return tuple(n for n, demand in enumerate(self._demands) if group in demand.serving)

    def _relatives(self, group: int) -> Hashable:
        """Return what a group excludes and is excluded by, for groups that are alike."""
        shelf = self._shelf
        whole = shelf.whole.get(group, group)
        family = [whole, *shelf.parts.get(whole, ())]
        if len(family) == 1:
            return ()
        return tuple(
            sorted(
                (
                    self._demands_served(n),
                    len(self._free.get(n, ())),
                    n == group,
                    n == whole,
                    self._beside(n, group),
                )
                for n in family
            )
        )

    def _beside(self, group: int, other: int) -> int:
        """Return where a group is, as seen from another: at the same host cell, or at which."""
        node = self._shelf.groups[group].node
        if node == self._shelf.groups[other].node:
            return -2
        return -1 if node is None else node

    def _problem(self, chosen: frozenset[int]) -> DeviceProblem:
        return lay(self._shelf, self._asked, ChosenCells(self._cells, chosen), self._within)


class AssignedDevices:
    """Devices that are chosen already, as a condition on host cells."""

    def __init__(self, amount: PCIAmount, cells: CellMap) -> None:
        self._cells = cells
        self._needs = {
            (amount.requests[device.request].affinity, device.numa_node) for device in amount.placed
        }
        counts = Counter(d.numa_node for d in amount.placed if d.numa_node is not None)
        self.counts: Mapping[int, int] = dict(counts)

    def is_met(self, cells: Collection[int]) -> bool:
        """Return whether every device is near enough to these host cells."""
        return not self._far(cells)

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        """Return the host cells of which at least one has to be chosen too."""
        sockets = self._cells.sockets
        for affinity, node in self._far(cells):
            if node is None:
                return frozenset()
            beside = affinity == SOCKET and sockets.get(node) is not None
            found = {cell for cell in sockets if beside and sockets[cell] == sockets[node]}
            return frozenset(found | ({node} & set(sockets))) - frozenset(cells)
        return frozenset()

    def symmetry_key(self, cell: int) -> Hashable:
        """Return what host cells have in common that can stand for each other."""
        here = frozenset(affinity for affinity, node in self._needs if node == cell)
        return here or None, self._cells.sockets.get(cell), cell if here else None

    def _far(self, cells: Collection[int]) -> list[tuple[str, int | None]]:
        where = ChosenCells(self._cells, frozenset(cells))
        far = [n for n in self._needs if rings(n[0], where)(n[1]) is None]
        return sorted(far, key=lambda need: (need[0], -1 if need[1] is None else need[1]))
