"""Why a topology does not fit: for each host cell the rule that failed, with its figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from resource_objects.exceptions import Reason, Rule
from resource_objects.resources.numa import matching, totals
from resource_objects.resources.numa.cpus import cpus_of
from resource_objects.resources.numa.pair import Need, failures

if TYPE_CHECKING:
    from resource_objects.resources.numa.question import Question
    from resource_objects.resources.together import Near

TOPOLOGY = "NUMA_TOPOLOGY"


def reasons(question: Question) -> tuple[Reason, ...]:
    """Return every reason why there is no placement, at least one.

    Kinds of guest cells that fit nowhere come first, with each host cell; if there are none, what
    keeps them from fitting all at once.
    """
    found = list(_too_few(question)) or list(_nowhere(question)) or list(_not_together(question))
    asked = len(question.needs)
    return tuple(found) or (Reason(Rule.TOGETHER, asked, asked - 1, 0, TOPOLOGY),)


def far(nears: Sequence[Near], met: int = 0) -> tuple[Reason, ...]:
    """Return the reason if only those who cannot be near stand against it.

    What they lack is for them to say.

    :param met: how many of them are near enough, at most
    """
    asked = len(nears)
    return (Reason(Rule.AFFINITY, asked, min(met, asked - 1), 0, TOPOLOGY),)


def far_from(nears: Sequence[Near], cells: Collection[int]) -> tuple[Reason, ...]:
    """Return the reason if host cells that are chosen already do not meet all of ``nears``."""
    met = sum(near.is_met(cells) for near in nears)
    return far(nears, met) if met < len(nears) else ()


def _too_few(question: Question) -> Iterator[Reason]:
    there, asked = question.allowed.bit_count(), len(question.needs)
    if there < asked:
        yield Reason(Rule.HOST_CELLS, asked, there, 0, TOPOLOGY)


def _nowhere(question: Question) -> Iterator[Reason]:
    for need, row in question.picks.items():
        if not any(row):
            yield from _of_need(question, need)


def _of_need(question: Question, need: Need) -> Iterator[Reason]:
    """Yield what keeps one kind of guest cell from each host cell where it cannot be."""
    guest = question.needs.index(need) if len(question.picks) > 1 else None
    for place in cpus_of(question.allowed):
        cell = question.cells[place]
        if question.picks[need][place] is not None:
            continue
        for failed in failures(cell, need, question.bounds[place]):
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


def _not_together(question: Question) -> Iterator[Reason]:
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


def is_short(question: Question) -> bool:
    """Return whether the host as a whole has too little, wherever the guest cells go."""
    return next(_short(question), None) is not None


def _short(question: Question) -> Iterator[Reason]:
    """Yield what the host as a whole has less of than is asked."""
    for name, count in question.amount.of_host.items():
        left = None if question.room is None else question.room.get(name)
        if left is not None and count > left:
            yield Reason(Rule.CAPACITY, count, left, 0, name)


def _too_much(question: Question, within: int) -> Iterator[Reason]:
    """Yield what the least placement of each class takes too much of, if the host has less left.

    Which cores are left empty, and whether memory is in huge pages, depends on the host cells.
    """
    for weights in ((1, 0), (0, 1)) if question.room else ():
        hosts = totals.least(question, question.may(within), weights, ())
        if hosts is None:
            return
        found = totals.totals(question, hosts)
        over = {name: pair for name, pair in found.items() if pair[0] > pair[1]}
        yield from (Reason(Rule.CAPACITY, n, left, 0, name) for name, (n, left) in over.items())
        if over:
            return


def _networks_and_sockets(question: Question) -> Iterator[Reason]:
    asked = len(question.needs)
    for name, places in question.networks.items():
        able = question.may(places)
        if not any(able):
            yield Reason(Rule.NETWORK, asked, 0, 0, TOPOLOGY, unit=name)
            return
    sockets = _sockets(question)
    every = range(len(question.cells))
    most = max((matching.best(question.may(its), every).size for its in sockets), default=0)
    if question.amount.one_socket and most < asked:
        yield Reason(Rule.TOGETHER, asked, most, 0, TOPOLOGY, unit="socket")
    elif question.networks:
        names = f"each of {', '.join(question.networks)}"
        yield Reason(Rule.NETWORK, asked, 0, 0, TOPOLOGY, unit=names)
    else:
        yield from (reason for places in sockets for reason in _too_much(question, places))


def _sockets(question: Question) -> list[int]:
    """Return the places of each known socket that may be used."""
    found: dict[int, int] = {}
    for place in cpus_of(question.allowed):
        socket = question.cells[place].facts.socket
        if socket is not None:
            found[socket] = found.get(socket, 0) | 1 << place
    return list(found.values())
