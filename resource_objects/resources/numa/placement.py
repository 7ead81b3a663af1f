"""The placement of all guest cells: every guest cell on a host cell of its own. Pure.

Source of the rules: Nova's ``numa_fit_instance_to_host``, which tries permutations of host cells.
The search here is complete and polynomial where that is possible:

1. Each kind of guest cell is compared once with each host cell (:mod:`.cell_fit`).
2. The pairs that fit are a bipartite graph, and a placement is a complete matching of it
   (:mod:`~resource_objects.resources.matching`).
3. A network or a device requires host cells near it (:class:`_RequiredCells`). A socket is a subset
   of the host cells, and sockets are searched one after the other. A limit excludes pairs. All of
   them narrow the graph.
4. The free counts of the whole host (``room``) matter only if they are less than its cells have
   free. What a placement uses of them depends on the host cells only if siblings remain idle or if
   several page sizes are accepted.

Networks and devices near several host cells make the search a cover problem, which is hard in
general. It is decided exactly within a budget of steps.

Host cells are numbered by their index in ascending order of ids. A set of host cells is a mask of
indices. A placement is a list: by guest cell, the index of its host cell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from resource_objects.exceptions import CapacityException, SearchLimitReached
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import matching
from resource_objects.resources.backtracking import DECISION, Budget, Solution, solutions
from resource_objects.resources.context import AffinityConstraint, Context
from resource_objects.resources.distances import distance_table, sets_by_distance, total_distance
from resource_objects.resources.matching import bits
from resource_objects.resources.numa.amount import (
    ISOLATE,
    CellDemand,
    NUMATopologyAmount,
    NUMATopologyLimit,
    PlacedCell,
)
from resource_objects.resources.numa.cell_fit import (
    NO_LIMITS,
    CellChoice,
    assign_cpus,
    cell_failures,
    fit_cell,
)
from resource_objects.resources.numa.cells import SMALL, CellState
from resource_objects.resources.numa.cpuset import CPUSet, mask_of

TOPOLOGY = "NUMA_TOPOLOGY"
#: The name of tunnelled networks where networks have names.
TUNNEL = "tunnelled networks"

#: Chooses a placement from the host cells of each guest cell; it uses all required host cells.
_Choose: TypeAlias = Callable[[Sequence[int], Sequence[int]], list[int] | None]

#: The number of demands for which a host cell remembers how they fit.
MAX_REMEMBERED = 64

_by_id = attrgetter("cell.id")


def place_cells(
    states: Iterable[CellState],
    amount: NUMATopologyAmount,
    limit: NUMATopologyLimit | None,
    room: Mapping[str, int] | None,
    context: Context,
) -> NUMATopologyAmount:
    """Return the amount assigned to host cells and CPUs.

    :param room: free counts of the whole host by class, None for no bound
    :raises CapacityException: if there is no placement; with ``Rule.AFFINITY`` alone if only
        ``context.near`` excludes all placements, or if the search without it was cut short
    :raises SearchLimitReached: if the budget ended before the search
    """
    search = _Search(states, amount, limit, room, context)
    hosts = search.find()
    if hosts is not None:
        with contextlib.suppress(SearchLimitReached):  # a shorter distance is only a preference
            hosts = search.closest(hosts)
        return search.assign(hosts)
    if context.near and search.may_fit_without_affinity():
        raise CapacityException([affinity_reason(context.near, 0)])
    raise CapacityException(search.reasons())


def assign_cell(
    state: CellState, amount: NUMATopologyAmount, guest: int, choice: CellChoice
) -> tuple[PlacedCell, int | None]:
    """Return a guest cell assigned to a host cell, and the CPU of the emulator if it is there."""
    demand, cell = amount.demands[guest], amount.cells[guest]
    pins: tuple[tuple[int, int], ...] = ()
    shared = state.cell.shared if demand.shared else ()
    idle: tuple[int, ...] = ()
    emulator: int | None = None
    if demand.cpus:
        count, policy = demand.dedicated, demand.thread_policy
        assignment = assign_cpus(state.facts.cores, choice.cpus, count, policy, demand.has_emulator)
        assert assignment is not None, "the chosen CPUs have a purpose"
        vcpus, emulator, idle = assignment
        pins = tuple(zip(cell.dedicated, vcpus, strict=True))
    if demand.shared and state.facts.dual:
        shared = CPUSet.from_mask(state.shared_cpus(choice.cpus))
    placed = PlacedCell._construct(
        cell=state.cell.id,
        pins=pins,
        idle=idle,
        shared=shared,
        page_size_kib=choice.page_size_kib,
    )
    return placed, emulator


def near_networks(states: Sequence[CellState], amount: NUMATopologyAmount) -> dict[str, int]:
    """Return the mask of the host cells near each requested network, by its name.

    A network that no host cell is near is left out: the rule is soft, as in Nova.
    """
    near = {
        name: mask_of(n for n, state in enumerate(states) if name in state.cell.physnets)
        for name in sorted(amount.physnets)
    }
    if amount.tunneled:
        near[TUNNEL] = mask_of(n for n, state in enumerate(states) if state.cell.tunneled)
    return {name: cells for name, cells in near.items() if cells}


class _Search:
    """The search for a placement of one amount on the cells of one host, and its reasons."""

    def __init__(
        self,
        states: Iterable[CellState],
        amount: NUMATopologyAmount,
        limit: NUMATopologyLimit | None,
        room: Mapping[str, int] | None,
        context: Context,
    ) -> None:
        self.states = states = sorted(states, key=_by_id)
        self.amount = amount
        self.demands = amount.demands
        self.room = room
        self.near: Sequence[AffinityConstraint] = context.near
        self.limits = [limit.of_cell(state.cell.id) if limit else NO_LIMITS for state in states]
        self.allowed = (1 << len(states)) - 1
        if (ids := context.allowed) is not None:
            self.allowed = mask_of(n for n, state in enumerate(states) if state.cell.id in ids)
        #: by kind of guest cell, how it fits each host cell, None where it does not
        self.choices: dict[CellDemand, list[CellChoice | None]] = {}
        #: by kind of guest cell, the host cells that it fits
        self.fits: dict[CellDemand, int] = {}
        for demand in self.demands:
            if demand not in self.choices:
                self._compare(demand)
        self.networks = near_networks(states, amount)
        self.one_socket = amount.one_socket and len(self.demands) > 1
        self.ranking = self._ranking(context)
        self.usage_varies = self._usage_varies()

    def _compare(self, demand: CellDemand) -> None:
        row = self.choices[demand] = [None] * len(self.states)
        fits = 0
        for n, state in enumerate(self.states):
            limits, choices = self.limits[n], state.choices
            if not self.allowed >> n & 1:
                continue
            if limits is not NO_LIMITS:
                choice = fit_cell(state, demand, limits)
            elif demand in choices:
                choice = choices[demand]
            else:
                if len(choices) >= MAX_REMEMBERED:
                    choices = state.choices = {}  # other threads may read the one before
                choice = choices[demand] = fit_cell(state, demand, limits)
            if choice is not None:
                row[n] = choice
                fits |= 1 << n
        self.fits[demand] = fits

    def _ranking(self, context: Context) -> list[int]:
        """Return the host cells in the order of preference.

        Cells with more devices that the request may use come first, then cells with more free CPUs
        and memory, or with less (``context.pack``). Without devices in the request, cells with
        fewer free devices come first. Source: Nova's order of host cells.
        """
        devices = context.spare
        if context.near:
            devices = Counter()
            for constraint in context.near:
                devices.subtract(constraint.counts)
        uses_dedicated = self.demands[0].cpus or any(demand.cpus for demand in self.demands)
        sign = 1 if context.pack else -1
        order: list[tuple[int, int, int, int]] = []
        for n, state in enumerate(self.states):
            free = state.free_dedicated if uses_dedicated else state.free_shared
            near = devices.get(state.cell.id, 0) if devices else 0
            order.append((near, sign * free, sign * state.free_physical_mb, n))
        return [n for *_, n in sorted(order)]

    # --- the search ---

    def find(self) -> list[int] | None:
        """Return the first placement in the order of preference, None if there is none.

        The least usage of the whole host comes before the order of preference. It is independent of
        the free counts, so plain counts of the same request can be allocated before or after it.
        """
        if any(host_shortage(self.amount, self.room)) or not all(self.fits.values()):
            return None
        if not (self.networks or self.near or self.one_socket or self.usage_varies):
            fits = self._fits_within(self.allowed)  # for most requests, the best host cells suffice
            hosts = self._best(fits, ()) if matching.is_complete(fits) else None
            if hosts is None or self._has_room(hosts):
                return hosts
        budget = Budget(DECISION)
        if self.usage_varies:
            hosts = self._least_usage(budget)
            if hosts is None or self._has_room(hosts):
                return hosts
            # dedicated CPUs count first: with more of them, memory may suffice
        for part in self._parts():
            hosts = self._find_within(part, budget)
            if hosts is not None:
                return hosts
        return None

    def may_fit_without_affinity(self) -> bool:
        """Return False if no placement exists without the affinity constraints; True: perhaps."""
        near, self.near = self.near, ()
        try:
            return self.find() is not None
        except SearchLimitReached:
            return True
        finally:
            self.near = near

    def _find_within(self, part: int, budget: Budget) -> list[int] | None:
        """Return the first placement on some host cells, None if there is none."""
        fits = self._fits_within(part)
        for required, hosts in self._placements(part, fits, self._best, budget):
            if self._has_room(hosts):
                return hosts
            if required is not None:
                least = self._within_room(fits, required, budget)
                if least is not None:
                    return least
        return None

    def _parts(self) -> list[int]:
        """Return the sets of host cells that may be used together: all, or each socket."""
        return self._sockets(self.ranking) if self.one_socket else [self.allowed]

    def _sockets(self, cells: Iterable[int]) -> list[int]:
        """Return the allowed host cells of each known socket, in the order of some cells."""
        sockets: dict[int, int] = {}
        for n in cells:
            socket = self.states[n].cell.socket
            if socket is not None and self.allowed >> n & 1:
                sockets[socket] = sockets.get(socket, 0) | 1 << n
        return [*sockets.values()]

    def _fits_within(self, part: int) -> list[int]:
        """Return the host cells of a set that each guest cell fits."""
        return [self.fits[demand] & part for demand in self.demands]

    def _placements(
        self, part: int, fits: Sequence[int], choose: _Choose, budget: Budget
    ) -> Iterator[tuple[Sequence[int] | None, list[int]]]:
        """Yield placements near the requested networks and devices, with their required cells.

        The first choice may meet the conditions without them; its required cells are None.
        """
        first = choose(fits, ()) if matching.is_complete(fits) else None
        if first is None:
            return
        if not self.networks and not self.near:
            yield (), first
            return
        conditions = _RequiredCells(self, fits, part, budget)
        if self.near and conditions.are_met(mask_of(first)):
            yield None, first
        for required in conditions.sets():
            hosts = choose(fits, required)
            if hosts is not None:
                yield required, hosts

    def _best(self, fits: Sequence[int], required: Sequence[int]) -> list[int] | None:
        """Return the placement on the best set of host cells with the required ones."""
        cells = matching.best(fits, self.ranking, required)
        if len(cells) < len(fits) or not set(required).issubset(cells):
            return None
        return matching.first_assignment(fits, mask_of(cells))

    def closest(self, hosts: list[int]) -> list[int]:
        """Return the placement on the host cells with the least distance between each other.

        It uses as much of the whole host as ``hosts``, and it is ``hosts`` unless another one is
        closer. Of equally close sets of host cells the best by the ranking is used. Beyond 16,384
        sets of this size, ``hosts`` is returned.
        """
        if not 1 < len(hosts) < len(self.states):
            return hosts
        distances = {
            state.cell.id: dict(state.cell.distances)
            for state in self.states
            if state.cell.distances
        }
        ids = [state.cell.id for state in self.states] if distances else []
        table = distance_table(ids, distances)
        if table is None:
            return hosts
        distance, usage = total_distance(table, hosts), self.host_usage(hosts)
        rank = {cell: position for position, cell in enumerate(self.ranking)}
        parts, fits = self._parts(), self._fits_within(self.allowed)
        conditions = _RequiredCells(self, fits, self.allowed, Budget(DECISION))
        for closer, sets in sets_by_distance(table, len(hosts)):
            if closer >= distance:
                break
            for indices in sorted(sets, key=lambda indices: sorted(rank[n] for n in indices)):
                mask = mask_of(indices)
                within = [row & mask for row in fits]
                if (
                    any(not mask & ~part for part in parts)
                    and conditions.are_met(mask)
                    and matching.is_complete(within)
                ):
                    if not self.usage_varies:
                        return matching.first_assignment(within, mask)
                    least = self._cheapest(within, ())
                    if least is not None and self.host_usage(least) == usage:
                        return least
        return hosts

    def assign(self, hosts: Sequence[int]) -> NUMATopologyAmount:
        """Return the amount assigned to host cells."""
        placed: list[PlacedCell] = []
        emulator_cpu: int | None = None
        for guest, n in enumerate(hosts):
            choice = self.choices[self.demands[guest]][n]
            assert choice is not None, "a guest cell is assigned to a host cell that it fits"
            cell, emulator = assign_cell(self.states[n], self.amount, guest, choice)
            placed.append(cell)
            emulator_cpu = emulator if emulator is not None else emulator_cpu
        return self.amount._evolve(placed=tuple(placed), emulator_cpu=emulator_cpu)

    # --- the usage of the whole host ---
    # It depends on the placement only if siblings remain idle or several page sizes are accepted.
    # The least usage of one class is a cheapest matching. Of two classes at once, placements are
    # searched within the budget.

    def _pair_usage(self, demand: CellDemand, n: int) -> tuple[int, int]:
        """Return the dedicated CPUs and the MiB of ordinary memory of a guest cell on a cell."""
        choice = self.choices[demand][n]
        assert choice is not None, "a guest cell is placed where it fits"
        return choice.cpus.bit_count(), demand.memory_mb if choice.page_size_kib is None else 0

    def host_usage(self, hosts: Iterable[int]) -> tuple[int, int]:
        """Return the dedicated CPUs and the MiB of ordinary memory of a placement."""
        usage = [self._pair_usage(*pair) for pair in zip(self.demands, hosts, strict=True)]
        return sum(cpus for cpus, _ in usage), sum(memory for _, memory in usage)

    def _usage_varies(self) -> bool:
        """Return whether the usage of the whole host depends on the placement."""
        if self.amount.thread_policy != ISOLATE and self.amount.page_size in ("", SMALL):
            return False
        return any(
            len({self._pair_usage(demand, n) for n, choice in enumerate(row) if choice}) > 1
            for demand, row in self.choices.items()
        )

    def _exceeded(self, hosts: Sequence[int]) -> dict[str, tuple[int, int]]:
        """Return by class the usage of a placement and the free count that it exceeds."""
        room = self.room
        if not room:
            return {}
        cpus, memory = self.host_usage(hosts)
        shared = sum(demand.shared for demand in self.demands)
        usage = {"VCPU": shared, "PCPU": cpus, "MEMORY_MB": memory}
        return {
            name: (count, room[name])
            for name, count in usage.items()
            if count and count > room.get(name, count)
        }

    def _has_room(self, hosts: Sequence[int]) -> bool:
        return not self._exceeded(hosts)

    def _least_usage(self, budget: Budget) -> list[int] | None:
        """Return the placement with the least usage of the whole host, None if there is none.

        It does not depend on the free counts of the host.
        """
        best: list[int] | None = None
        least: tuple[float, float] = math.inf, math.inf
        bound: tuple[int, int] = 0, 0

        def choose(fits: Sequence[int], required: Sequence[int]) -> list[int] | None:
            nonlocal bound
            hosts = self._cheapest(fits, required)
            if not required and hosts is not None:
                bound = self.host_usage(hosts)  # no placement on these host cells has less
            return hosts

        try:
            for part in self._parts():
                for _, hosts in self._placements(part, self._fits_within(part), choose, budget):
                    usage = self.host_usage(hosts)
                    if usage < least:
                        best, least = hosts, usage
                    if usage == bound:
                        break
        except SearchLimitReached:
            if best is None:
                raise
            # there is a placement: that its usage is the least is only a preference
        return best

    def _cheapest(self, fits: Sequence[int], required: Sequence[int]) -> list[int] | None:
        """Return the first placement with the least usage that uses the required cells.

        Dedicated CPUs count before memory. Of equal usage, the best set of host cells by ranking
        comes first; of the same set, the lowest host cells, guest cell by guest cell.
        """
        count, guests = len(self.states), len(fits)
        # Usage is the most significant part of a cost. Next is the set of host cells: its sum is
        # least where the binary number with a digit for each cell, the best one first, is largest.
        # Last are the host cells as the digits of a number, the host cell of guest cell 0 first.
        width = count**guests
        late = [0] * count
        for position, n in enumerate(self.ranking, 1):
            late[n] = ((1 << count) - (1 << count - position)) * width
        scale = ((guests << count) + 1) * width
        return self._matching(
            fits,
            (self.amount.memory_mb + 1, 1),
            required,
            lambda guest, n: late[n] + n * count ** (guests - 1 - guest),
            scale,
        )

    def _matching(
        self,
        fits: Sequence[int],
        weights: tuple[int, int],
        required: Sequence[int],
        tie_break: Callable[[int, int], int] = lambda guest, n: 0,
        scale: int = 1,
    ) -> list[int] | None:
        """Return a placement with the least weighted usage that uses the required cells."""
        costs: list[list[int | None]] = []
        for guest, demand in enumerate(self.demands):
            row: list[int | None] = [None] * len(self.states)
            for n in bits(fits[guest]):
                cpus, memory = self._pair_usage(demand, n)
                usage = cpus * weights[0] + memory * weights[1]
                row[n] = usage * scale + tie_break(guest, n)
            costs.append(row)
        if required:  # any other cell costs more than all placements without it
            penalty = 1 + sum(max((c for c in row if c is not None), default=0) for row in costs)
            for row in costs:
                for n, cost in enumerate(row):
                    if cost is not None and n not in required:
                        row[n] = cost + penalty
        hosts = matching.cheapest(costs)
        return hosts if hosts is not None and set(required).issubset(hosts) else None

    def _within_room(
        self, fits: Sequence[int], required: Sequence[int], budget: Budget
    ) -> list[int] | None:
        """Return a placement for which the whole host has room, None if there is none.

        If one class is short, its least usage decides. If both are short together, placements are
        searched within the budget.
        """
        for weights, name in (((1, 0), "PCPU"), ((0, 1), "MEMORY_MB"), ((1, 1), "")):
            hosts = self._matching(fits, weights, required)
            if hosts is None:
                return None
            exceeded = self._exceeded(hosts)
            if not exceeded:
                return hosts
            if name in exceeded:
                return None
        return self._search_within_room(fits, required, budget)

    def _search_within_room(
        self, fits: Sequence[int], required: Sequence[int], budget: Budget
    ) -> list[int] | None:
        """Return the first placement for which the whole host has room, in depth first order.

        Equal guest cells are tried in one order only, that of their host cells.
        """
        demands = self.demands
        guests = sorted(
            range(len(fits)), key=lambda guest: (fits[guest].bit_count(), demands[guest][:4])
        )
        usage = [
            {n: self._pair_usage(demands[guest], n) for n in bits(fits[guest])} for guest in guests
        ]
        least = [[min(pair[kind] for pair in row.values()) for row in usage] for kind in (0, 1)]
        room = self.room or {}
        bounds = [room.get(name, math.inf) for name in ("PCPU", "MEMORY_MB")]

        def expand(state: _Partial) -> Iterator[_Partial | Solution[list[int]]]:
            hosts, cpus, memory = state
            at = len(hosts)
            if at == len(guests):
                if set(required).issubset(hosts):
                    yield Solution([n for _, n in sorted(zip(guests, hosts, strict=True))])
                return
            is_same = at > 0 and demands[guests[at]] == demands[guests[at - 1]]
            first = hosts[-1] + 1 if is_same else 0
            # the least usage of the remaining guest cells: a beginning that leaves less is given up
            later = [sum(of_kind[at + 1 :]) for of_kind in least]
            for n, (more_cpus, more_mb) in usage[at].items():
                total = cpus + more_cpus, memory + more_mb
                has_room = all(
                    not usage + least or usage + least <= bound
                    for usage, least, bound in zip(total, later, bounds, strict=True)
                )
                if n >= first and n not in hosts and has_room:
                    yield (*hosts, n), *total

        start: _Partial = ((), 0, 0)
        return next(solutions(start, expand, budget), None)

    # --- why there is no placement ---

    def reasons(self) -> tuple[Reason, ...]:
        """Return every reason why there is no placement, at least one.

        Too few host cells come first, then kinds of guest cells that fit nowhere, with each host
        cell. If there is neither, the reasons why they do not fit together.
        """
        reasons: list[Reason] = []
        requested, allowed = len(self.demands), self.allowed.bit_count()
        if allowed < requested:
            reasons.append(Reason(Rule.HOST_CELLS, requested, allowed, 0, TOPOLOGY))
        for demand, fits in self.fits.items():
            if not fits:
                reasons += self._pair_failures(self.allowed, [demand])
        reasons = reasons or [*self._reasons_together()]
        return tuple(reasons) or (Reason(Rule.TOGETHER, requested, requested - 1, 0, TOPOLOGY),)

    def _pair_failures(
        self, cells: int, demands: Iterable[CellDemand] | None = None
    ) -> Iterator[Reason]:
        """Yield why each kind of guest cell does not fit the host cells of a set."""
        for demand in self.choices if demands is None else demands:
            guest = self.demands.index(demand) if len(self.choices) > 1 else None
            for n in bits(cells & ~self.fits[demand]):
                for reason in cell_failures(self.states[n], demand, self.limits[n]):
                    yield dataclasses.replace(reason, guest=guest) if guest is not None else reason

    def _reasons_together(self) -> Iterator[Reason]:
        requested = len(self.demands)
        most = self._most_guests(self.allowed)
        if most < requested:
            yield Reason(Rule.TOGETHER, requested, most, 0, TOPOLOGY)
            yield from self._pair_failures(self.allowed)
            return
        shortage = [*host_shortage(self.amount, self.room)] or [*self._excess_usage(self.allowed)]
        if shortage:
            yield from shortage
            return
        for name, cells in self.networks.items():
            if not any(self._fits_within(cells)):
                yield Reason(Rule.NETWORK, requested, 0, 0, TOPOLOGY, unit=name)
                yield from self._pair_failures(cells & self.allowed)
                return
        sockets = self._sockets(bits(self.allowed))
        most = max(map(self._most_guests, sockets), default=1)
        if self.one_socket and most < requested:
            yield from socket_reasons((self.states[n] for n in bits(self.allowed)), requested, most)
            yield from self._pair_failures(self.allowed)
        elif self.networks:
            names = f"each of {', '.join(self.networks)}"
            yield Reason(Rule.NETWORK, requested, 0, 0, TOPOLOGY, unit=names)
        else:
            for cells in sockets:
                yield from self._excess_usage(cells)

    def _most_guests(self, cells: int) -> int:
        return len(matching.best(self._fits_within(cells), range(len(self.states))))

    def _excess_usage(self, cells: int) -> Iterator[Reason]:
        """Yield the classes of which every placement on some cells uses too much."""
        for weights in ((1, 0), (0, 1)) if self.room else ():
            hosts = self._matching(self._fits_within(cells), weights, ())
            if hosts is None:
                return
            exceeded = self._exceeded(hosts)
            for name, (count, free) in exceeded.items():
                yield Reason(Rule.CAPACITY, count, free, 0, name)
            if exceeded:
                return


#: The host cells of the first guest cells, and their dedicated CPUs and MiB of ordinary memory.
_Partial: TypeAlias = tuple[tuple[int, ...], int, int]


def host_shortage(amount: NUMATopologyAmount, room: Mapping[str, int] | None) -> Iterator[Reason]:
    """Yield the classes of which the whole host has too little free.

    :param room: free counts of the whole host by class, None for no bound
    """
    if room:
        for name, count in amount.host_usage.items():
            if count > room.get(name, count):
                yield Reason(Rule.CAPACITY, count, room[name], 0, name)


def affinity_reason(near: Sequence[AffinityConstraint], met: int) -> Reason:
    """Return the ``AFFINITY`` reason; its requested and bound count constraints.

    :param met: the maximum number of constraints that are met at once
    """
    return Reason(Rule.AFFINITY, len(near), min(met, len(near) - 1), 0, TOPOLOGY)


def socket_reasons(states: Iterable[CellState], requested: int, maximum: int) -> Iterator[Reason]:
    """Yield that guest cells are not in one socket, and each host cell whose socket is unknown.

    :param maximum: the maximum number of guest cells in one socket
    """
    yield Reason(Rule.ONE_SOCKET, requested, maximum, 0, TOPOLOGY)
    for state in states:
        if state.cell.socket is None:
            yield Reason(Rule.SOCKET_UNKNOWN, requested, 0, 0, TOPOLOGY, cell=state.cell.id)


# --- networks and devices -------------------------------------------------------------------------
# A requested network, and each AffinityConstraint of a device, is a condition on the set of host
# cells that are used. Conditions are monotone: an additional cell never breaks one. The search
# builds a set R of required cells until R meets every condition. A placement that uses R then meets
# them too, on whichever further cells. A condition that R does not meet names cells of which every
# larger set that meets it contains at least one. Each of these cells is tried.
#
# The search is complete. Let S be the cells of a placement that meets every condition, and R a
# subset of S, such as the empty set. If R meets every condition, it is found. Otherwise S contains
# one of the named cells, and the branch with this cell is a subset of S again. A branch is left out
# only where its result is known:
#
# - A cell whose branch is done is left out of the branches after it. So are the cells equal to it:
#   the same guest cells fit, with the same usage of the host, near the same networks, and no
#   condition distinguishes the cells. Exchanging them yields a placement too.
# - Named cells are collected until they meet every condition. The collected groups are disjoint,
#   and S contains a cell of each. More groups than remaining guest cells mean that there is no
#   placement; so does a condition that names no cells.
# - A condition may know the minimum number of further cells (``needed``).
#
# The search is polynomial without conditions, for one guest cell, and for a constant number of
# kinds of equal cells. In general it is a cover problem.


class _Network(NamedTuple):
    """The condition of a network: at least one of the host cells near it is used."""

    cells: int

    def is_met(self, cells: int) -> bool:
        return bool(cells & self.cells)

    def extensions(self, cells: int) -> int:
        return self.cells

    def symmetry_key(self, n: int) -> Hashable:
        return self.cells >> n & 1

    def needed(self, cells: int, among: int) -> int:
        return 1


class _Affinity:
    """The condition of an affinity constraint, on indices of host cells in place of ids."""

    def __init__(self, constraint: AffinityConstraint, ids: Sequence[int]) -> None:
        self._constraint = constraint
        self._ids = ids
        self._met: dict[int, bool] = {}

    def is_met(self, cells: int) -> bool:
        if cells not in self._met:
            self._met[cells] = self._constraint.is_met(self._ids_of(cells))
        return self._met[cells]

    def extensions(self, cells: int) -> int:
        extensions = self._constraint.extensions(self._ids_of(cells))
        return mask_of([n for n, cell in enumerate(self._ids) if cell in extensions])

    def symmetry_key(self, n: int) -> Hashable:
        return self._constraint.symmetry_key(self._ids[n])

    def needed(self, cells: int, among: int) -> int:
        count: Callable[..., int] | None = getattr(self._constraint, "needed", None)
        return 1 if count is None else count(self._ids_of(cells), self._ids_of(among))

    def _ids_of(self, cells: int) -> frozenset[int]:
        return frozenset([self._ids[n] for n in bits(cells)])


_Condition: TypeAlias = _Network | _Affinity


class _Node(NamedTuple):
    """Host cells that are required, and those that may become required."""

    chosen: tuple[int, ...]
    mask: int
    open: int


class _RequiredCells:
    """The sets of host cells that meet the conditions of the requested networks and devices.

    :param fits: the host cells that each guest cell fits, all of them in ``part``
    """

    def __init__(self, search: _Search, fits: Sequence[int], part: int, budget: Budget) -> None:
        self._search = search
        self._fits = fits
        self._budget = budget
        ids = [state.cell.id for state in search.states]
        near = sorted((cells & part for cells in search.networks.values()), key=int.bit_count)
        self._networks = [_Network(cells) for cells in near]
        self._affinities = [_Affinity(constraint, ids) for constraint in search.near]
        self._keys: dict[int, Hashable] = {}
        self._is_direct = True  #: whether the first choices led to a set so far

    def are_met(self, cells: int) -> bool:
        """Return whether host cells meet every condition."""
        return not self._unmet(cells)

    def sets(self) -> Iterator[tuple[int, ...]]:
        """Yield sets that meet every condition, the preferred first, in depth.

        Each is built by adding cells that a condition needs; a subset of it may suffice.

        :raises SearchLimitReached: if the budget ended
        """
        union = 0
        for cells in self._fits:
            union |= cells
        if not self.are_met(union):
            return iter(())  # then no set of host cells meets every condition
        return solutions(_Node((), 0, union), self._expand, self._budget)

    def _unmet(self, cells: int) -> list[_Condition]:
        """Return the conditions that are not met; of networks, the one with the fewest cells."""
        networks = [network for network in self._networks if not network.is_met(cells)]
        affinities = [affinity for affinity in self._affinities if not affinity.is_met(cells)]
        return [*networks[:1], *affinities]

    def _expand(self, node: _Node) -> Iterator[_Node | Solution[tuple[int, ...]]]:
        unmet = self._unmet(node.mask)
        if not unmet:
            yield Solution(node.chosen)
            return
        cells = self._named_cells(node, unmet)
        if not cells:
            self._is_direct = False  # from now on, looking ahead saves more than it costs
        open_ = node.open
        for n in self._search.ranking if cells else ():
            if not (cells & open_) >> n & 1:
                continue
            chosen = (*node.chosen, n)
            if len(matching.best(self._fits, (), chosen)) == len(chosen):
                yield _Node(chosen, node.mask | 1 << n, open_ & ~(1 << n))
            key = self._symmetry_key(n)
            open_ &= ~mask_of([other for other in bits(open_) if self._symmetry_key(other) == key])

    def _named_cells(self, node: _Node, unmet: list[_Condition]) -> int:
        """Return host cells of which at least one has to become required, 0 for a dead end."""
        remaining = len(self._fits) - len(node.chosen)
        if any(condition.needed(node.mask, node.open) > remaining for condition in unmet):
            return 0
        first, collected = 0, node.mask
        while unmet:
            outside = node.open & ~collected
            named = min((c.extensions(collected) & outside for c in unmet), key=int.bit_count)
            remaining -= 1
            if not named or remaining < 0:
                return 0
            first = first or named
            if node.chosen and self._is_direct:
                return first  # looking ahead costs more than it saves, until the first dead end
            collected |= named
            unmet = self._unmet(collected)
        return first

    def _symmetry_key(self, n: int) -> Hashable:
        """Return a key that is the same for host cells of which one can replace the other."""
        if n not in self._keys:
            search = self._search
            guests = [guest for guest, cells in enumerate(self._fits) if cells >> n & 1]
            usage = [search._pair_usage(search.demands[guest], n) for guest in guests]
            conditions: list[_Condition] = [*self._networks, *self._affinities]
            keys = [condition.symmetry_key(n) for condition in conditions]
            self._keys[n] = tuple(guests), tuple(usage), *keys
        return self._keys[n]
