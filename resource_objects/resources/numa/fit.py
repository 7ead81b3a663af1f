"""The decision: every guest cell on a host cell of its own. Pure; the inputs do not change.

How it is complete and never factorial:

1. each kind of guest cell is looked at once on each host cell that may be used (:mod:`.pair`);
2. who may be where is then a graph, and a placement is a complete matching (:mod:`.matching`);
3. networks, and devices that are near, are host cells that have to be used (:mod:`.covers`),
   sockets are parts of the host that are looked at one by one, limits bound single pairs: all of
   them narrow the graph before anything is matched;
4. only where the host as a whole has less left than its cells (``room``) do totals count; what they
   come to depends on the choice only where cores are left empty or any page size will do.

Networks and devices that several host cells are next to are the one thing that is hard in general
(a cover): it is decided exactly within a budget, and beyond it
:class:`~resource_objects.exceptions.SearchLimitReached` says that it is neither yes nor no. Without
them, or with one guest cell, or with cells of a constant number of kinds, it is polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects.exceptions import CapacityException, SearchLimitReached
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import matching
from resource_objects.resources.budget import DECISION, Budget
from resource_objects.resources.context import AffinityConstraint, Context
from resource_objects.resources.distances import distance_table, sets_by_distance, total_distance
from resource_objects.resources.numa.amount import NUMATopologyAmount, PlacedCell
from resource_objects.resources.numa.cell_fit import (
    CellChoice,
    CellDemand,
    NUMATopologyLimit,
    cell_failures,
    cpu_layout,
)
from resource_objects.resources.numa.cells import Cell
from resource_objects.resources.numa.cpuset import CPUSet
from resource_objects.resources.numa.problem import (
    TOPOLOGY,
    CellProblem,
    draw_of,
    draw_varies,
    has_room,
    least,
    least_draw,
    not_in_one_socket,
    pose,
    totals,
    within_room,
)
from resource_objects.resources.numa.required_cells import RequiredCells


def place(
    cells: Sequence[Cell],
    amount: NUMATopologyAmount,
    limit: NUMATopologyLimit | None,
    room: Mapping[str, int] | None,
    context: Context,
) -> NUMATopologyAmount:
    """Return the amount, assigned.

    :raises CapacityException: if there is no placement; if there is one for which only
        ``context.near`` is not met, with ``Rule.AFFINITY`` alone
    :raises SearchLimitReached: if the budget ran out before it was known
    """
    problem = pose(cells, amount, limit, room, context)
    hosts = _decide(problem)
    if hosts is None:
        is_alone = not context.near or not _may_fit(problem._replace(constraints=()))
        raise CapacityException(reasons(problem) if is_alone else far(context.near))
    return _assigned(problem, _closest(problem, hosts))


def _may_fit(problem: CellProblem) -> bool:
    """Return whether there is a placement, for all that is known."""
    try:
        return _decide(problem) is not None
    except SearchLimitReached:
        return True


# --- the choice of host cells ---------------------------------------------------------------------


def _decide(problem: CellProblem) -> list[int] | None:
    """Return a place for each guest cell, None if there is no way."""
    if problem.room is not None and is_short(problem):
        return None
    if not all(map(any, problem.choices.values())):
        return None  # before cells are ranked: mostly it is no because of one kind of guest cell
    ranking = _ranking(problem)
    budget = Budget(DECISION)
    if draw_varies(problem):
        best = _least(problem, ranking, budget)
        if best is None or has_room(problem, best):
            return best
        # CPUs come first in what is least: with more of them it may take less memory, and fit
    for part in _parts(problem, ranking):
        hosts = _in_part(problem, part, ranking, budget)
        if hosts is not None:
            return hosts
    return None


def _least(problem: CellProblem, ranking: Sequence[int], budget: Budget) -> list[int] | None:
    """Return the placement that draws least on the host as a whole, None if there is none.

    It does not depend on what the host has left: so counts beside a topology may be taken before
    it or after it. It comes before all orders of preference.
    """
    best: list[int] | None = None
    least: tuple[float, float] = math.inf, math.inf
    try:
        for part in _parts(problem, ranking):
            for hosts in _least_in_part(problem, part, ranking, budget):
                drawn = draw_of(problem, hosts)
                if drawn < least:
                    best, least = hosts, drawn
    except SearchLimitReached:
        if best is None:
            raise
        # it does fit; that nothing draws less is a preference, which is not worth a refusal
    return best


def _least_in_part(
    problem: CellProblem, part: int, ranking: Sequence[int], budget: Budget
) -> Iterator[list[int]]:
    """Yield placements on some cells until one draws the least that is possible there."""
    may = problem.may(part)
    if not all(may) or not matching.is_complete(may):
        return
    covers = RequiredCells(problem, may, part, ranking, budget)
    free = least_draw(problem, may, ranking, ())
    assert free is not None, "there is a complete matching"
    if problem.constraints and covers.is_enough(sum(1 << place for place in free)):
        yield free  # mostly the cells that are the best anyway will do
        return
    bound = draw_of(problem, free)
    for required in covers.found():
        hosts = least_draw(problem, may, ranking, required)
        if hosts is not None:
            yield hosts
            if draw_of(problem, hosts) == bound:
                return


def _ranking(problem: CellProblem) -> list[int]:
    """Return the places, the best first: those devices draw to, then by what is free."""
    needs_cpus = any(need.cpus for need in problem.needs)

    def key(place: int) -> tuple[int, ...]:
        cell = problem.cells[place]
        free = cell.free_dedicated if needs_cpus else cell.free_shared
        ident, memory = cell.facts.id, cell.available_mb
        if not problem.pack:
            free, memory = -free, -memory
        return -problem.pull.get(ident, 0), free, memory, ident

    return sorted(range(len(problem.cells)), key=key)


def _parts(problem: CellProblem, ranking: Iterable[int]) -> Iterator[int]:
    """Yield the sets of places that may be used together: all of them, or socket by socket."""
    if not problem.one_socket:
        yield problem.allowed
        return
    sockets: dict[int, int] = {}
    for place in ranking:  # so the socket of the best cell is tried first
        socket = problem.cells[place].facts.socket
        if socket is not None:
            sockets[socket] = sockets.get(socket, 0) | 1 << place
    for places in sockets.values():
        yield places & problem.allowed


def _in_part(
    problem: CellProblem, part: int, ranking: Sequence[int], budget: Budget
) -> list[int] | None:
    may = problem.may(part)
    if not all(may) or not matching.is_complete(may):
        return None
    covers = RequiredCells(problem, may, part, ranking, budget)
    if problem.constraints:  # mostly the cells that are the best anyway will do
        best = _chosen(may, ranking, ()) or ()
        if covers.is_enough(sum(1 << place for place in best)) and has_room(problem, best):
            return list(best)
    for required in covers.found():
        hosts = _chosen(may, ranking, required)
        if hosts is None or has_room(problem, hosts):
            return hosts
        hosts = within_room(problem, may, required, budget)
        if hosts is not None:
            return hosts
    return None


def _closest(problem: CellProblem, hosts: list[int]) -> list[int]:
    """Return the placement on the host cells that are closest to each other.

    It draws as much on the host as a whole as ``hosts``, a placement that was found, and it is
    ``hosts`` unless there is a closer one. Of equally close sets of host cells the best one by the
    ranking is used.
    """
    facts = [cell.facts for cell in problem.cells]
    if not 1 < len(hosts) < len(facts) or not any(one.distances for one in facts):
        return hosts
    table = distance_table([one.id for one in facts], {one.id: one.distances for one in facts})
    if table is None:
        return hosts
    distance, drawn = total_distance(table, hosts), draw_of(problem, hosts)
    varies = draw_varies(problem)
    ranking = _ranking(problem)
    rank = {place: at for at, place in enumerate(ranking)}
    parts = list(_parts(problem, ranking))
    may = problem.may(problem.allowed)
    conditions = RequiredCells(problem, may, problem.allowed, ranking, Budget(DECISION))
    for closer, sets in sets_by_distance(table, len(hosts)):
        if closer >= distance:
            break
        for places in sorted(sets, key=lambda some: sorted(rank[place] for place in some)):
            mask = sum(1 << place for place in places)
            if all(mask & ~part for part in parts) or not conditions.is_enough(mask):
                continue
            within = [allowed & mask for allowed in may]
            if not matching.is_complete(within):
                continue
            if not varies:
                return matching.first_assignment(within, mask)
            found = least_draw(problem, within, ranking, ())
            if found is not None and draw_of(problem, found) == drawn:
                return found
    return hosts


def _chosen(
    may: Sequence[int], ranking: Iterable[int], required: Sequence[int]
) -> list[int] | None:
    """Return the places of the best set of host cells, guest by guest; it holds the required."""
    found = matching.best(may, ranking, required)
    if len(found) < len(may) or not set(required) <= set(found):
        return None
    return matching.first_assignment(may, sum(1 << place for place in found))


# --- the outcome ---


def _assigned(problem: CellProblem, hosts: Sequence[int]) -> NUMATopologyAmount:
    placed: list[PlacedCell] = []
    emulator: int | None = None
    for guest, host in enumerate(hosts):
        need = problem.needs[guest]
        found = problem.choices[need][host]
        assert found is not None, "a guest cell is only put where it may be"
        cell, was = put(problem.amount, guest, need, problem.cells[host], found)
        placed.append(cell)
        emulator = was if was is not None else emulator
    return problem.amount._evolve(placed=tuple(placed), emulator_cpu=emulator)


def put(
    amount: NUMATopologyAmount, guest: int, need: CellDemand, cell: Cell, found: CellChoice
) -> tuple[PlacedCell, int | None]:
    """Return where a guest cell is, given what it takes of a host cell, and the emulator's CPU."""
    laid = cpu_layout(
        cell.facts.cores, found.taken, need.dedicated, need.thread_policy, need.has_emulator
    )
    assert laid is not None, "what was chosen can be laid out"
    requested, shared = amount.cells[guest], cell.facts.shared_ids
    if requested.shared and cell.serves_either_way:
        shared = CPUSet.from_mask(cell.shared_cpus(found.taken))
    placed = PlacedCell._construct(
        cell=cell.facts.id,
        pins=tuple(zip(requested.dedicated, laid.vcpus, strict=True)),
        idle=laid.idle,
        shared=shared if requested.shared else (),
        page_size_kib=found.page_size_kib,
    )
    return placed, laid.emulator


# --- why a topology does not fit ------------------------------------------------------------------


def reasons(problem: CellProblem) -> tuple[Reason, ...]:
    """Return every reason why there is no placement, at least one.

    Too few host cells come first, then kinds of guest cells that fit nowhere, with each host cell;
    if there is neither, what keeps them from fitting all at once.
    """
    found = [*_too_few(problem), *_nowhere(problem)] or list(_not_together(problem))
    requested = len(problem.needs)
    return tuple(found) or (Reason(Rule.TOGETHER, requested, requested - 1, 0, TOPOLOGY),)


def far(constraints: Sequence[AffinityConstraint], met: int = 0) -> tuple[Reason, ...]:
    """Return the reason if only those who cannot be near stand against it.

    What they lack is for them to say.

    :param met: how many of them are near enough, at most
    """
    requested = len(constraints)
    return (Reason(Rule.AFFINITY, requested, min(met, requested - 1), 0, TOPOLOGY),)


def far_from(
    constraints: Sequence[AffinityConstraint], cells: Collection[int]
) -> tuple[Reason, ...]:
    """Return the reason if host cells that are chosen already do not meet all of them."""
    met = sum(near.is_met(cells) for near in constraints)
    return far(constraints, met) if met < len(constraints) else ()


def _too_few(problem: CellProblem) -> Iterator[Reason]:
    there, requested = problem.allowed.bit_count(), len(problem.needs)
    if there < requested:
        yield Reason(Rule.HOST_CELLS, requested, there, 0, TOPOLOGY)


def _nowhere(problem: CellProblem) -> Iterator[Reason]:
    for need, row in problem.choices.items():
        if not any(row):
            yield from _of_need(problem, need, problem.allowed)


def _of_need(problem: CellProblem, need: CellDemand, within: int) -> Iterator[Reason]:
    """Yield what keeps one kind of guest cell from each of some host cells where it cannot be."""
    guest = problem.needs.index(need) if len(problem.choices) > 1 else None
    for place in CPUSet.from_mask(within):
        cell = problem.cells[place]
        if problem.choices[need][place] is not None:
            continue
        for failed in cell_failures(cell, need, problem.bounds[place]):
            yield Reason(
                failed.rule,
                failed.requested,
                failed.bound,
                failed.used,
                failed.resource,
                unit=failed.word,
                cell=cell.facts.id,
                guest=guest,
            )


def _of_needs(problem: CellProblem, within: int) -> Iterator[Reason]:
    for need in problem.choices:
        yield from _of_need(problem, need, within)


def _not_together(problem: CellProblem) -> Iterator[Reason]:
    requested = len(problem.needs)
    may = problem.may(problem.allowed)
    most = len(matching.best(may, range(len(problem.cells))))
    if most < requested:
        yield Reason(Rule.TOGETHER, requested, most, 0, TOPOLOGY)
        yield from _of_needs(problem, problem.allowed)
        return
    short = list(_short(problem)) or list(_too_much(problem, problem.allowed))
    yield from short or _networks_and_sockets(problem)


def is_short(problem: CellProblem) -> bool:
    """Return whether the host as a whole has too little, wherever the guest cells go."""
    return next(_short(problem), None) is not None


def _short(problem: CellProblem) -> Iterator[Reason]:
    """Yield what the host as a whole has less of than is asked."""
    for name, count in problem.amount.host_usage.items():
        left = None if problem.room is None else problem.room.get(name)
        if left is not None and count > left:
            yield Reason(Rule.CAPACITY, count, left, 0, name)


def _too_much(problem: CellProblem, within: int) -> Iterator[Reason]:
    """Yield what the least placement of each class takes too much of, if the host has less left.

    Which cores are left empty, and whether memory is in huge pages, depends on the host cells.
    """
    for weights in ((1, 0), (0, 1)) if problem.room else ():
        hosts = least(problem, problem.may(within), weights, ())
        if hosts is None:
            return
        found = totals(problem, hosts)
        over = {name: pair for name, pair in found.items() if pair[0] > pair[1]}
        yield from (Reason(Rule.CAPACITY, n, left, 0, name) for name, (n, left) in over.items())
        if over:
            return


def _networks_and_sockets(problem: CellProblem) -> Iterator[Reason]:
    requested = len(problem.needs)
    for name, places in problem.networks.items():
        able = problem.may(places)
        if not any(able):
            yield Reason(Rule.NETWORK, requested, 0, 0, TOPOLOGY, unit=name)
            yield from _of_needs(problem, places & problem.allowed)
            return
    sockets = _sockets(problem)
    every = range(len(problem.cells))
    most = max((len(matching.best(problem.may(its), every)) for its in sockets), default=1)
    if problem.one_socket and most < requested:
        cells = [problem.cells[place] for place in CPUSet.from_mask(problem.allowed)]
        yield from not_in_one_socket(cells, requested, most)
        yield from _of_needs(problem, problem.allowed)
    elif problem.networks:
        names = f"each of {', '.join(problem.networks)}"
        yield Reason(Rule.NETWORK, requested, 0, 0, TOPOLOGY, unit=names)
    else:
        yield from (reason for places in sockets for reason in _too_much(problem, places))


def _sockets(problem: CellProblem) -> list[int]:
    """Return the places of each known socket that may be used."""
    found: dict[int, int] = {}
    for place in CPUSet.from_mask(problem.allowed):
        socket = problem.cells[place].facts.socket
        if socket is not None:
            found[socket] = found.get(socket, 0) | 1 << place
    return list(found.values())
