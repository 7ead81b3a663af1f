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

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects.exceptions import CapacityException, SearchLimitReached
from resource_objects.resources.numa import matching, refusal, threads, totals
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.cells import Cell
from resource_objects.resources.numa.covers import Covers
from resource_objects.resources.numa.guest import PlacedCell
from resource_objects.resources.numa.order import Order, apart, distance
from resource_objects.resources.numa.pair import Need, Pick
from resource_objects.resources.numa.question import Limit, Question, Steps, lay
from resource_objects.resources.together import Near


def place(
    cells: Sequence[Cell],
    amount: NUMATopologyAmount,
    limit: Limit | None,
    room: Mapping[str, int] | None,
    order: Order,
    within: Collection[int] | None,
    nears: Sequence[Near] = (),
) -> NUMATopologyAmount:
    """Return the amount, assigned.

    :param nears: what others need of the host cells that are used
    :raises CapacityException: if there is no placement; if there is one for which only ``nears``
        are not met, with ``Rule.AFFINITY`` alone
    :raises SearchLimitReached: if the budget ran out before it was known
    """
    question = lay(cells, amount, limit, room, order, within, nears)
    hosts = _decide(question)
    if hosts is None:
        is_alone = not nears or not _may_fit(question._replace(nears=()))
        raise CapacityException.of(refusal.reasons(question) if is_alone else refusal.far(nears))
    return _assigned(question, hosts)


def _may_fit(question: Question) -> bool:
    """Return whether there is a placement, for all that is known."""
    try:
        return _decide(question) is not None
    except SearchLimitReached:
        return True


# --- the choice of host cells ---------------------------------------------------------------------


def _decide(question: Question) -> list[int] | None:
    """Return a place for each guest cell, None if there is no way."""
    if question.room is not None and refusal.is_short(question):
        return None
    needs_cpus = any(need.cpus for need in question.needs)
    ranking = question.order.rank(question.cells, needs_cpus)
    steps = Steps()
    for part in _parts(question, ranking):
        hosts = _in_part(question, part, ranking, steps)
        if hosts is not None:
            return hosts
    return None


def _parts(question: Question, ranking: Iterable[int]) -> Iterator[int]:
    """Yield the sets of places that may be used together: all of them, or socket by socket."""
    if not question.amount.one_socket:
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
    question: Question, part: int, ranking: Sequence[int], steps: Steps
) -> list[int] | None:
    may = question.may(part)
    if not all(may) or not matching.is_complete(may):
        return None
    covers = Covers(question, may, part, ranking, steps)
    if question.nears:  # mostly the cells that are the best anyway will do
        best = _nearest(question, may, ranking, ()) or ()
        if covers.is_enough(sum(1 << place for place in best)) and totals.has_room(question, best):
            return list(best)
    for required in covers.found():
        hosts = _nearest(question, may, ranking, required)
        if hosts is None or totals.has_room(question, hosts):
            return hosts
        hosts = totals.within_room(question, may, required, steps)
        if hosts is not None:
            return hosts
    return None


def _nearest(
    question: Question, may: Sequence[int], ranking: Sequence[int], required: Sequence[int]
) -> list[int] | None:
    if not question.order.is_nearest:
        return _chosen(may, ranking, required)
    best: list[int] | None = None
    least = 0
    for start in ranking:
        near = sorted(ranking, key=functools.partial(_farness, question, start))
        hosts = _chosen(may, near, required)
        far = apart([question.cells[place] for place in hosts or ()])
        if hosts is not None and (best is None or far < least):
            best, least = hosts, far
    return best


def _farness(question: Question, start: int, place: int) -> tuple[bool, int]:
    """Sort a place by how far it is from where one starts, which comes first."""
    return place != start, distance(question.cells[start], question.cells[place])


def _chosen(
    may: Sequence[int], ranking: Iterable[int], required: Sequence[int]
) -> list[int] | None:
    """Return the places of the best set of host cells, guest by guest; it holds the required."""
    found = matching.best(may, ranking, required)
    if found.size < len(may) or not set(required) <= set(found.host_of):
        return None
    return matching.first_assignment(may, sum(1 << place for place in found.host_of))


# --- the outcome ---


def _assigned(question: Question, hosts: Sequence[int]) -> NUMATopologyAmount:
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
    amount: NUMATopologyAmount, guest: int, need: Need, cell: Cell, found: Pick
) -> tuple[PlacedCell, int | None]:
    """Return where a guest cell is, given what it takes of a host cell, and the emulator's CPU."""
    laid = threads.layout(
        cell.facts.cores, found.taken, need.dedicated, need.thread_policy, need.has_emulator
    )
    assert laid is not None, "what was chosen can be laid out"
    asked = amount.cells[guest]
    placed = PlacedCell._as_kept(
        cell=cell.facts.id,
        pins=tuple(zip(asked.dedicated, laid.vcpus, strict=True)),
        idle=laid.idle,
        shared=cell.facts.shared_ids if asked.shared else (),
        page_size_kib=found.page_size_kib,
    )
    return placed, laid.emulator
