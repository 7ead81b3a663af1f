"""An amount laid over host cells: who may be where, before anything is chosen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.reasons import Reason, Rule
from resource_objects.resources import matching
from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.resources.context import AffinityConstraint, Context
from resource_objects.resources.numa.amount import ISOLATE, NUMATopologyAmount
from resource_objects.resources.numa.cell_fit import (
    NO_BOUNDS,
    Bounds,
    CellChoice,
    CellDemand,
    NUMATopologyLimit,
    cell_demands,
    choose_cell,
)
from resource_objects.resources.numa.cells import SMALL, Cell
from resource_objects.resources.numa.cpuset import CPUSet

TOPOLOGY = "NUMA_TOPOLOGY"

#: What the tunnelled networks are called where networks have names.
TUNNEL = "tunnelled networks"


class CellProblem(NamedTuple):
    """An amount laid over host cells; places are indices of ``cells``."""

    cells: Sequence[Cell]
    amount: NUMATopologyAmount
    needs: Sequence[CellDemand]  #: by guest cell
    bounds: Sequence[Bounds]  #: by place
    room: Mapping[str, int] | None
    pull: Mapping[int, int]  #: by cell id: cells with more are taken first
    pack: bool  #: whether of equal ones those with the least free are taken first
    allowed: int  #: places that may be used, as a mask
    choices: Mapping[CellDemand, Sequence[CellChoice | None]]  #: by need, then place
    networks: Mapping[str, int]  #: places next to each network that is asked for, where it counts
    constraints: Sequence[AffinityConstraint]  #: what others need of the cells that are used

    @property
    def one_socket(self) -> bool:
        """Whether sockets matter: one guest cell is always in one."""
        return self.amount.one_socket and len(self.needs) > 1

    def may(self, within: int) -> list[int]:
        """Return the places where each guest cell may be, as masks."""
        masks = {
            need: sum(1 << place for place, found in enumerate(row) if found) & within
            for need, row in self.choices.items()
        }
        return [masks[need] for need in self.needs]

    def draw(self, need: CellDemand, place: int) -> tuple[int, int]:
        """Return what of the host as a whole depends on the place, where a guest cell may be.

        These are dedicated CPUs, those left empty included, and MiB of ordinary memory.
        """
        found = self.choices[need][place]
        assert found is not None, "a guest cell is only put where it may be"
        return found.taken.bit_count(), need.memory_mb if found.page_size_kib is None else 0


def pose(
    cells: Sequence[Cell],
    amount: NUMATopologyAmount,
    limit: NUMATopologyLimit | None,
    room: Mapping[str, int] | None,
    context: Context,
) -> CellProblem:
    """Return the amount laid over the cells by id, however they are listed: who may be where."""
    cells = sorted(cells, key=lambda cell: cell.facts.id)  # the same answer however they are kept
    needs = cell_demands(amount)
    bounds: list[Bounds] = [NO_BOUNDS] * len(cells)
    if limit is not None:
        bounds = [limit.of_cell(cell.facts.id) for cell in cells]
    allowed = (1 << len(cells)) - 1
    if (ids := context.allowed) is not None:
        allowed = sum(1 << place for place, cell in enumerate(cells) if cell.facts.id in ids)
    choices = {
        need: [
            _choice(cell, need, bounds[place]) if allowed >> place & 1 else None
            for place, cell in enumerate(cells)
        ]
        for need in dict.fromkeys(needs)
    }
    networks = networks_of(cells, amount)
    pull = _pull(context)
    return CellProblem(
        cells,
        amount,
        needs,
        bounds,
        room,
        pull,
        context.pack,
        allowed,
        choices,
        networks,
        context.near,
    )


#: How many different needs a host cell remembers the answer for.
_REMEMBERED = 64


def _choice(cell: Cell, need: CellDemand, bounds: Bounds) -> CellChoice | None:
    """Return how a guest cell would be on a host cell; without bounds, what was found before."""
    known = cell.choices
    if known is None or bounds is not NO_BOUNDS:
        return choose_cell(cell, need, bounds)
    if need not in known:
        if len(known) >= _REMEMBERED:
            known = cell.choices = {}  # not one by one: other threads may read it
        known[need] = choose_cell(cell, need, bounds)
    found: CellChoice | None = known[need]
    return found


def _pull(context: Context) -> Mapping[int, int]:
    """Return how much devices draw to each cell, by id, or keep away: to be left to others."""
    if not context.near:
        return {cell: -count for cell, count in context.spare.items()}
    found: Counter[int] = Counter()
    for constraint in context.near:
        found.update(constraint.counts)
    return found


def networks_of(cells: Sequence[Cell], amount: NUMATopologyAmount) -> dict[str, int]:
    """Return the places next to each network asked for; one that no cell declares is anywhere.

    Source: Nova's soft rule of network affinity.
    """
    found = {
        name: sum(1 << place for place, cell in enumerate(cells) if name in cell.facts.physnets)
        for name in sorted(amount.physnets)
    }
    if amount.tunneled:
        found[TUNNEL] = sum(1 << place for place, cell in enumerate(cells) if cell.facts.tunneled)
    return {name: places for name, places in found.items() if places}


def not_in_one_socket(cells: Iterable[Cell], requested: int, most: int) -> Iterator[Reason]:
    """Yield that guest cells are not in one socket, and each host cell whose socket nobody knows.

    :param most: how many guest cells are
    """
    yield Reason(Rule.ONE_SOCKET, requested, most, 0, TOPOLOGY)
    for cell in cells:
        if cell.facts.socket is None:
            yield Reason(Rule.SOCKET_UNKNOWN, requested, 0, 0, TOPOLOGY, cell=cell.facts.id)


# --- what a placement uses of the host as a whole -------------------------------------------------
# It depends on the placement only where cores are left empty or any page size will do. The least
# of one total is a cheapest matching; two totals at once are tried out, within the budget.


def has_room(problem: CellProblem, hosts: Sequence[int]) -> bool:
    """Return whether the host as a whole has left what a placement uses of it."""
    return not any(used > left for used, left in totals(problem, hosts).values())


def totals(problem: CellProblem, hosts: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Return what a placement uses of the host as a whole, and what that has left, by class."""
    if problem.room is None:
        return {}
    cpus, memory = draw_of(problem, hosts)
    shared = sum(need.shared for need in problem.needs)
    used = {"VCPU": shared, "PCPU": cpus, "MEMORY_MB": memory}
    return {
        name: (used[name], problem.room[name])
        for name in used
        if name in problem.room and used[name]
    }


def within_room(
    problem: CellProblem, may: Sequence[int], required: Sequence[int], budget: Budget
) -> list[int] | None:
    """Return the placement that uses least of the host as a whole, if it has that much.

    Only CPUs left empty and ordinary memory depend on the placement. If one alone is short, the
    least of it decides; where it takes both together, placements are tried, within the budget.
    """
    for weights, name in (((1, 0), "PCPU"), ((0, 1), "MEMORY_MB"), ((1, 1), None)):
        hosts = least(problem, may, weights, required)
        if hosts is None:
            return None
        used = totals(problem, hosts)
        if all(taken <= left for taken, left in used.values()):
            return hosts
        taken, left = used.get(name or "", (0, 0))
        if taken > left:
            return None
    return _tried(problem, may, required, budget)


#: The places of the first guest cells, and the dedicated CPUs and MiB that they draw.
_Tried: TypeAlias = tuple[tuple[int, ...], int, int]


def _tried(
    problem: CellProblem, may: Sequence[int], required: Sequence[int], budget: Budget
) -> list[int] | None:
    """Return the first placement for which there is room and that uses the required cells.

    Equal guest cells are considered once: each goes to a later cell than the one before.
    """
    guests = sorted(
        range(len(may)), key=lambda guest: (may[guest].bit_count(), problem.needs[guest][:4])
    )
    costs = [
        {place: problem.draw(problem.needs[guest], place) for place in CPUSet.from_mask(may[guest])}
        for guest in guests
    ]
    least = [[min(cost[kind] for cost in row.values()) for row in costs] for kind in (0, 1)]
    # what those after one draw at least: a beginning that leaves less than that is given up
    rest = [(sum(least[0][at + 1 :]), sum(least[1][at + 1 :])) for at in range(len(guests))]

    def following(state: _Tried) -> Iterator[_Tried | Solution[list[int]]]:
        hosts, cpus, memory = state
        at = len(hosts)
        if at == len(guests):
            if set(required) <= set(hosts):
                yield Solution([place for _, place in sorted(zip(guests, hosts, strict=True))])
            return
        is_same = at > 0 and problem.needs[guests[at]] == problem.needs[guests[at - 1]]
        after = hosts[-1] if is_same else -1
        for place, (some, mb) in costs[at].items():
            used = cpus + some, memory + mb
            in_all = used[0] + rest[at][0], used[1] + rest[at][1]
            if place > after and place not in hosts and _is_within(problem, in_all):
                yield (*hosts, place), *used

    start: _Tried = ((), 0, 0)
    return next(solutions(start, following, budget), None)


def _is_within(problem: CellProblem, used: tuple[int, int]) -> bool:
    """Return whether the host as a whole has so many dedicated CPUs and MiB left."""
    room = problem.room or {}
    return not any(
        count > room.get(name, count)
        for name, count in zip(("PCPU", "MEMORY_MB"), used, strict=True)
        if count
    )


def draw_of(problem: CellProblem, hosts: Sequence[int]) -> tuple[int, int]:
    """Return the dedicated CPUs and MiB of ordinary memory that a placement draws on the host."""
    draws = [problem.draw(*pair) for pair in zip(problem.needs, hosts, strict=True)]
    return sum(cpus for cpus, _ in draws), sum(memory for _, memory in draws)


def draw_varies(problem: CellProblem) -> bool:
    """Return whether what a placement draws on the host as a whole depends on the placement."""
    amount = problem.amount
    if amount.thread_policy != ISOLATE and amount.page_size in ("", SMALL):
        return False  # as many CPUs and as much ordinary memory as asked, wherever it is
    draws = (
        {problem.draw(need, place) for place, found in enumerate(row) if found is not None}
        for need, row in problem.choices.items()
    )
    return any(len(found) > 1 for found in draws)


def least_draw(
    problem: CellProblem, may: Sequence[int], ranking: Sequence[int], required: Sequence[int]
) -> list[int] | None:
    """Return the placement that draws least on the host as a whole and uses the required cells.

    Dedicated CPUs count before ordinary memory. Of equal placements it is the one on the best set
    of cells by ``ranking``, and of the ways to use this set the first, guest by guest.
    """
    memory = problem.amount.memory_mb + 1
    hosts = least(problem, may, (memory, 1), required, ranking)
    if hosts is None:
        return None
    left = sorted(hosts)
    table = [
        {
            place: _weighed(problem.draw(need, place), (memory, 1))
            for place in left
            if row >> place & 1
        }
        for need, row in zip(problem.needs, may, strict=True)
    ]
    total = sum(row[place] for row, place in zip(table, hosts, strict=True))
    for guest, row in enumerate(table):
        for place in left:
            if place not in row:
                continue
            others = [other for other in left if other != place]
            rest = [[after.get(other) for other in others] for after in table[guest + 1 :]]
            if row[place] + _least_sum(rest) == total:
                hosts[guest], left, total = place, others, total - row[place]
                break
    return hosts


def _least_sum(costs: Sequence[Sequence[int | None]]) -> float:
    """Return the least sum of a complete matching, infinity if there is none."""
    hosts = matching.cheapest(costs) if costs else []
    if hosts is None:
        return math.inf
    found = (row[host] for row, host in zip(costs, hosts, strict=True))
    return sum(cost for cost in found if cost is not None)


def least(
    problem: CellProblem,
    may: Sequence[int],
    weights: tuple[int, int],
    required: Sequence[int],
    ranking: Sequence[int] = (),
) -> list[int] | None:
    """Return the placement of least weighted draw that uses the required cells.

    :param ranking: of equal placements, the one on the best set of cells by this order is taken
    """
    count = len(problem.cells)
    # the sum is least where the binary number with a digit for each cell, the best one first, is
    # largest: so of two sets the one with the best cell that only one of them has
    late = {place: (1 << count) - (1 << count - at) for at, place in enumerate(ranking, 1)}
    scale = (len(may) << count) + 1 if ranking else 1  # more than all that: draws count first
    table = [
        [
            _weighed(problem.draw(need, place), weights) * scale + late.get(place, 0)
            if may[guest] >> place & 1
            else None
            for place in range(count)
        ]
        for guest, need in enumerate(problem.needs)
    ]
    if required:  # any cell beside them costs more than all placements without it
        every = 1 + sum(max((cost for cost in row if cost is not None), default=0) for row in table)
        table = [
            [
                cost if cost is None or place in required else cost + every
                for place, cost in enumerate(row)
            ]
            for row in table
        ]
    hosts = matching.cheapest(table)
    return hosts if hosts is not None and set(required) <= set(hosts) else None


def _weighed(draw: tuple[int, int], weights: tuple[int, int]) -> int:
    return draw[0] * weights[0] + draw[1] * weights[1]
