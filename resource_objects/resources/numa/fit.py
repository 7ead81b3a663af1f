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

from resource_objects.exceptions import CapacityException, Reason, Rule, SearchLimitReached
from resource_objects.resources.context import AffinityConstraint, Context
from resource_objects.resources.numa import matching, problem
from resource_objects.resources.numa.amount import NUMATopologyAmount, PlacedCell
from resource_objects.resources.numa.cell_fit import (
    CellChoice,
    CellDemand,
    NUMATopologyLimit,
    cell_failures,
    cpu_layout,
)
from resource_objects.resources.numa.cpus import cpus_of
from resource_objects.resources.numa.host import Cell
from resource_objects.resources.numa.problem import (
    TOPOLOGY,
    Budget,
    Problem,
    draw_of,
    draw_varies,
    has_room,
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
    question = pose(cells, amount, limit, room, context)
    hosts = _decide(question)
    if hosts is None:
        is_alone = not context.near or not _may_fit(question._replace(nears=()))
        raise CapacityException.of(reasons(question) if is_alone else far(context.near))
    return _assigned(question, hosts)


def _may_fit(question: Problem) -> bool:
    """Return whether there is a placement, for all that is known."""
    try:
        return _decide(question) is not None
    except SearchLimitReached:
        return True


# --- the choice of host cells ---------------------------------------------------------------------


def _decide(question: Problem) -> list[int] | None:
    """Return a place for each guest cell, None if there is no way."""
    if question.room is not None and is_short(question):
        return None
    ranking = _ranking(question)
    steps = Budget()
    if draw_varies(question):
        best = _least(question, ranking, steps)
        if best is None or has_room(question, best):
            return best
    for part in _parts(question, ranking):
        hosts = _in_part(question, part, ranking, steps)
        if hosts is not None:
            return hosts
    return None


def _least(question: Problem, ranking: Sequence[int], steps: Budget) -> list[int] | None:
    """Return the placement that draws least on the host as a whole, None if there is none.

    It does not depend on what the host has left: so counts beside a topology may be taken before
    it or after it. It comes before all orders of preference.
    """
    best: list[int] | None = None
    least: tuple[float, float] = math.inf, math.inf
    try:
        for part in _parts(question, ranking):
            for hosts in _least_in_part(question, part, ranking, steps):
                drawn = draw_of(question, hosts)
                if drawn < least:
                    best, least = hosts, drawn
    except SearchLimitReached:
        if best is None:
            raise
    return best


def _least_in_part(
    question: Problem, part: int, ranking: Sequence[int], steps: Budget
) -> Iterator[list[int]]:
    """Yield placements on some cells until one draws the least that is possible there."""
    may = question.may(part)
    if not all(may) or not matching.is_complete(may):
        return
    covers = RequiredCells(question, may, part, ranking, steps)
    free = least_draw(question, may, ranking, ())
    assert free is not None, "there is a complete matching"
    if question.nears and covers.is_enough(sum(1 << place for place in free)):
        yield free  # mostly the cells that are the best anyway will do
        return
    bound = draw_of(question, free)
    for required in covers.found():
        hosts = least_draw(question, may, ranking, required)
        if hosts is not None:
            yield hosts
            if draw_of(question, hosts) == bound:
                return


def _ranking(question: Problem) -> list[int]:
    """Return the places, the best first: those devices draw to, then by what is free."""
    needs_cpus = any(need.cpus for need in question.needs)

    def key(place: int) -> tuple[int, ...]:
        cell = question.cells[place]
        free = cell.free_dedicated if needs_cpus else cell.free_shared
        ident, memory = cell.facts.id, cell.available_mb
        if not question.pack:
            free, memory = -free, -memory
        return -question.pull.get(ident, 0), free, memory, ident

    return sorted(range(len(question.cells)), key=key)


def _parts(question: Problem, ranking: Iterable[int]) -> Iterator[int]:
    """Yield the sets of places that may be used together: all of them, or socket by socket."""
    if not question.one_socket:
        yield question.allowed
        return
    sockets: dict[int, int] = {}
    for place in ranking:
        socket = question.cells[place].facts.socket
        if socket is not None:
            sockets[socket] = sockets.get(socket, 0) | 1 << place
    for places in sockets.values():
        yield places & question.allowed


def _in_part(
    question: Problem, part: int, ranking: Sequence[int], steps: Budget
) -> list[int] | None:
    may = question.may(part)
    if not all(may) or not matching.is_complete(may):
        return None
    covers = RequiredCells(question, may, part, ranking, steps)
    if question.nears:  # mostly the cells that are the best anyway will do
        best = _chosen(may, ranking, ()) or ()
        if covers.is_enough(sum(1 << place for place in best)) and has_room(question, best):
            return list(best)
    for required in covers.found():
        hosts = _chosen(may, ranking, required)
        if hosts is None or has_room(question, hosts):
            return hosts
        hosts = within_room(question, may, required, steps)
        if hosts is not None:
            return hosts
    return None


def _chosen(
    may: Sequence[int], ranking: Iterable[int], required: Sequence[int]
) -> list[int] | None:
    """Return the places of the best set of host cells, guest by guest; it holds the required."""
    found = matching.best(may, ranking, required)
    if found.size < len(may) or not set(required) <= set(found.host_of):
        return None
    return matching.first_assignment(may, sum(1 << place for place in found.host_of))


# --- the outcome ---


def _assigned(question: Problem, hosts: Sequence[int]) -> NUMATopologyAmount:
    placed: list[PlacedCell] = []
    emulator: int | None = None
    for guest, host in enumerate(hosts):
        need = question.needs[guest]
        found = question.picks[need][host]
        assert found is not None, "a guest cell is only put where it may be"
        cell, was = put(question.amount, guest, need, question.cells[host], found)
        placed.append(cell)
        emulator = was if was is not None else emulator
    return question.amount._altered(placed=tuple(placed), emulator_cpu=emulator)


def put(
    amount: NUMATopologyAmount, guest: int, need: CellDemand, cell: Cell, found: CellChoice
) -> tuple[PlacedCell, int | None]:
    """Return where a guest cell is, given what it takes of a host cell, and the emulator's CPU."""
    laid = cpu_layout(
        cell.facts.cores, found.taken, need.dedicated, need.thread_policy, need.has_emulator
    )
    assert laid is not None, "what was chosen can be laid out"
    asked, shared = amount.cells[guest], cell.facts.shared_ids
    if asked.shared and cell.serves_either_way:
        shared = cpus_of(cell.shared_cpus(found.taken))
    placed = PlacedCell._as_kept(
        cell=cell.facts.id,
        pins=tuple(zip(asked.dedicated, laid.vcpus, strict=True)),
        idle=laid.idle,
        shared=shared if asked.shared else (),
        page_size_kib=found.page_size_kib,
    )
    return placed, laid.emulator


# --- why a topology does not fit ------------------------------------------------------------------


def reasons(question: Problem) -> tuple[Reason, ...]:
    """Return every reason why there is no placement, at least one.

    Kinds of guest cells that fit nowhere come first, with each host cell; if there are none, what
    keeps them from fitting all at once.
    """
    found = list(_too_few(question)) or list(_nowhere(question)) or list(_not_together(question))
    asked = len(question.needs)
    return tuple(found) or (Reason(Rule.TOGETHER, asked, asked - 1, 0, TOPOLOGY),)


def far(nears: Sequence[AffinityConstraint], met: int = 0) -> tuple[Reason, ...]:
    """Return the reason if only those who cannot be near stand against it.

    What they lack is for them to say.

    :param met: how many of them are near enough, at most
    """
    asked = len(nears)
    return (Reason(Rule.AFFINITY, asked, min(met, asked - 1), 0, TOPOLOGY),)


def far_from(nears: Sequence[AffinityConstraint], cells: Collection[int]) -> tuple[Reason, ...]:
    """Return the reason if host cells that are chosen already do not meet all of ``nears``."""
    met = sum(near.is_met(cells) for near in nears)
    return far(nears, met) if met < len(nears) else ()


def _too_few(question: Problem) -> Iterator[Reason]:
    there, asked = question.allowed.bit_count(), len(question.needs)
    if there < asked:
        yield Reason(Rule.HOST_CELLS, asked, there, 0, TOPOLOGY)


def _nowhere(question: Problem) -> Iterator[Reason]:
    for need, row in question.picks.items():
        if not any(row):
            yield from _of_need(question, need)


def _of_need(question: Problem, need: CellDemand) -> Iterator[Reason]:
    """Yield what keeps one kind of guest cell from each host cell where it cannot be."""
    guest = question.needs.index(need) if len(question.picks) > 1 else None
    for place in cpus_of(question.allowed):
        cell = question.cells[place]
        if question.picks[need][place] is not None:
            continue
        for failed in cell_failures(cell, need, question.bounds[place]):
            yield Reason(
                failed.rule,
                failed.asked,
                failed.bound,
                failed.used,
                failed.resource,
                unit=failed.word,
                cell=cell.facts.id,
                guest=guest,
            )


def _not_together(question: Problem) -> Iterator[Reason]:
    asked = len(question.needs)
    may = question.may(question.allowed)
    most = matching.best(may, range(len(question.cells))).size
    if most < asked:
        yield Reason(Rule.TOGETHER, asked, most, 0, TOPOLOGY)
        for need in question.picks:
            yield from _of_need(question, need)
        return
    short = list(_short(question)) or list(_too_much(question, question.allowed))
    yield from short or _networks_and_sockets(question)


def is_short(question: Problem) -> bool:
    """Return whether the host as a whole has too little, wherever the guest cells go."""
    return next(_short(question), None) is not None


def _short(question: Problem) -> Iterator[Reason]:
    """Yield what the host as a whole has less of than is asked."""
    for name, count in question.amount.of_host.items():
        left = None if question.room is None else question.room.get(name)
        if left is not None and count > left:
            yield Reason(Rule.CAPACITY, count, left, 0, name)


def _too_much(question: Problem, within: int) -> Iterator[Reason]:
    """Yield what the least placement of each class takes too much of, if the host has less left.

    Which cores are left empty, and whether memory is in huge pages, depends on the host cells.
    """
    for weights in ((1, 0), (0, 1)) if question.room else ():
        hosts = problem.least(question, question.may(within), weights, ())
        if hosts is None:
            return
        found = totals(question, hosts)
        over = {name: pair for name, pair in found.items() if pair[0] > pair[1]}
        yield from (Reason(Rule.CAPACITY, n, left, 0, name) for name, (n, left) in over.items())
        if over:
            return


def _networks_and_sockets(question: Problem) -> Iterator[Reason]:
    asked = len(question.needs)
    for name, places in question.networks.items():
        able = question.may(places)
        if not any(able):
            yield Reason(Rule.NETWORK, asked, 0, 0, TOPOLOGY, unit=name)
            return
    sockets = _sockets(question)
    every = range(len(question.cells))
    most = max((matching.best(question.may(its), every).size for its in sockets), default=1)
    if question.one_socket and most < asked:
        cells = [question.cells[place] for place in cpus_of(question.allowed)]
        yield from not_in_one_socket(cells, asked, most)
    elif question.networks:
        names = f"each of {', '.join(question.networks)}"
        yield Reason(Rule.NETWORK, asked, 0, 0, TOPOLOGY, unit=names)
    else:
        yield from (reason for places in sockets for reason in _too_much(question, places))


def _sockets(question: Problem) -> list[int]:
    """Return the places of each known socket that may be used."""
    found: dict[int, int] = {}
    for place in cpus_of(question.allowed):
        socket = question.cells[place].facts.socket
        if socket is not None:
            found[socket] = found.get(socket, 0) | 1 << place
    return list(found.values())
