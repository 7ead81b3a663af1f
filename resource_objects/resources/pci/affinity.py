"""The constraints that devices put on the choice of host cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping

from resource_objects.resources.backtracking import DECISION, Budget
from resource_objects.resources.context import CellMap, ChosenCells
from resource_objects.resources.pci.amount import PCIAmount
from resource_objects.resources.pci.device import SOCKET
from resource_objects.resources.pci.device_index import DeviceIndex
from resource_objects.resources.pci.fit import (
    DeviceProblem,
    affinity_tier,
    build_problem,
    demands_of,
    solve,
)


class RequestedDevices:
    """The :class:`~resource_objects.resources.context.AffinityConstraint` of requested devices.

    It is monotone: each affinity policy allows more devices if more host cells are chosen.
    ``counts`` is the number of matching free devices of each host cell.
    """

    def __init__(
        self,
        index: DeviceIndex,
        amount: PCIAmount,
        cells: CellMap,
        allowed: Collection[str] | None = None,
    ) -> None:
        self._index = index
        self._cells = cells
        self._allowed = allowed
        self._requested = demands_of(index, amount)
        self._budget = Budget(DECISION)
        self._results: dict[frozenset[int], bool] = {}
        problem = build_problem(index, self._requested, None, allowed)
        self._free, self._demands = problem.free, problem.demands
        self.counts: Mapping[int, int] = index.counts_by_cell(self._free.items())

    def is_met(self, cells: Collection[int]) -> bool:
        """Return whether all requests can be met at once with just these host cells chosen.

        :raises SearchLimitReached: if the budget ended before the answer was known
        """
        chosen = frozenset(cells)
        if chosen not in self._results:
            self._results[chosen] = solve(self._problem(chosen), self._budget) is not None
        return self._results[chosen]

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        """Return host cells of which at least one has to be chosen in addition.

        Demands that lack devices together need a device that these cells do not allow.
        """
        chosen = frozenset(cells)
        problem = self._problem(chosen)
        all_demands = frozenset(range(len(self._demands)))
        short_demands = problem.max_flow().short_demands() or [all_demands]
        gains = [self._gains(problem, short) for short in short_demands]
        return min((frozenset(by_cell) - chosen for by_cell in gains), key=len)

    def needed(self, cells: Collection[int], among: Collection[int]) -> int:
        """Return a lower bound on the number of host cells needed in addition to these.

        It assumes that each cell adds all of its devices to the demands that lack some. A result
        larger than ``among`` means that no number suffices.
        """
        problem = self._problem(frozenset(cells))
        flow = problem.max_flow()
        bounds = [1]
        for short in flow.short_demands():
            missing, by_cell = sum(flow.missing[n] for n in short), self._gains(problem, short)
            count = 0
            for gain in sorted((by_cell.get(cell, 0) for cell in among), reverse=True):
                if missing <= 0:
                    break
                missing, count = missing - gain, count + 1
            bounds.append(count if missing <= 0 else len(among) + 1)
        return max(bounds)

    def _gains(self, problem: DeviceProblem, short: Collection[int]) -> Counter[int]:
        """Return the number of devices that each further host cell adds to some demands."""
        sockets = self._cells.sockets
        gains: Counter[int] = Counter()
        for group, addresses in self._free.items():
            node = self._index.groups[group].node
            if node is None or not addresses:
                continue
            cells: set[int] = set()
            for number in short:
                demand = self._demands[number]
                if group not in demand.groups or group in problem.choices[number]:
                    continue
                cells |= {node} & sockets.keys()
                if demand.request.affinity == SOCKET:
                    cells |= _same_socket(self._cells, node)
            gains.update(dict.fromkeys(cells, len(addresses)))
        return gains

    def symmetry_key(self, cell: int) -> Hashable:
        """Return a value that is equal for host cells that are interchangeable."""
        counts = Counter(
            (self._users(group), len(addresses), self._family_key(group))
            for group, addresses in self._free.items()
            if addresses and self._index.groups[group].node == cell
        )
        by_socket = any(demand.request.affinity == SOCKET for demand in self._demands)
        return frozenset(counts.items()), self._cells.sockets.get(cell) if by_socket else None

    def _users(self, group: int) -> tuple[int, ...]:
        return tuple(n for n, demand in enumerate(self._demands) if group in demand.groups)

    def _family_key(self, group: int) -> Hashable:
        """Return a value that distinguishes the groups of the card of a group."""
        index = self._index
        card = index.card_of.get(group, group)
        origin = index.groups[group].node

        def location(number: int) -> int:
            node = index.groups[number].node
            return -2 if node == origin else -1 if node is None else node

        if card not in index.parts:
            return ()
        return tuple(
            sorted(
                (self._users(n), len(self._free.get(n, ())), n == group, n == card, location(n))
                for n in (card, *index.parts[card])
            )
        )

    def _problem(self, chosen: frozenset[int]) -> DeviceProblem:
        cells = ChosenCells(self._cells, chosen)
        return build_problem(self._index, self._requested, cells, self._allowed)


class AssignedDevices:
    """The affinity constraint of assigned devices; ``counts`` is their number by host cell."""

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
        """Return host cells of which at least one has to be chosen in addition."""
        for affinity, node in self._far(cells):
            if node is None:
                break
            near = {node} & self._cells.sockets.keys()
            if affinity == SOCKET:
                near |= _same_socket(self._cells, node)
            return frozenset(near) - frozenset(cells)
        return frozenset()

    def symmetry_key(self, cell: int) -> Hashable:
        """Return a value that is equal for host cells that are interchangeable."""
        affinities = frozenset(affinity for affinity, node in self._needs if node == cell)
        return affinities or None, self._cells.sockets.get(cell), cell if affinities else None

    def _far(self, cells: Collection[int]) -> list[tuple[str, int | None]]:
        chosen = ChosenCells(self._cells, frozenset(cells))
        far = [need for need in self._needs if affinity_tier(*need, chosen) is None]
        return sorted(far, key=lambda need: (need[0], -1 if need[1] is None else need[1]))


def _same_socket(cells: CellMap, node: int) -> set[int]:
    """Return the host cells in the socket of a cell, none if its socket is not known."""
    socket = cells.sockets.get(node)
    if socket is None:
        return set()
    return {cell for cell, other in cells.sockets.items() if other == socket}
