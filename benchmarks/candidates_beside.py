"""One request asked of us and of Placement in turn: part of the candidates part."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import resource_objects as ro
from benchmarks import peer, servers
from benchmarks.candidates_asked import PATIENCE, Case
from benchmarks.measure import Row
from benchmarks.peer_process import CAPPED, DEFAULT, Process
from resource_objects.ledger import backend_for
from resource_objects.requests import Request, query

CAPS = f"{peer.NAME} with its caps"
#: Calls of ours in a round, rounds, and rounds where Placement takes more than SLOW seconds.
CALLS, ROUNDS, SLOW_ROUNDS, SLOW = 9, 3, 1, 2.0


def filled(url: str, roots: Iterable[ro.Provider]) -> ro.Ledger:
    """Return a ledger of a new database with some trees."""
    backend_for(url).upgrade_database(url)
    ledger = ro.connect(url)
    for some in _some(roots, 1_000):
        ledger.sync(*some)
    if not url.startswith(("sqlite", "memory")):
        servers.analyze(url)
    return ledger


def _some(roots: Iterable[ro.Provider], count: int) -> Iterator[list[ro.Provider]]:
    left = iter(roots)
    while found := list(itertools.islice(left, count)):
        yield found


# --- side by side ---------------------------------------------------------------------------------


def compared(ledger: ro.Ledger, theirs: Process, case: Case) -> Iterator[Row]:
    """Yield a row per way to ask Placement, and one of our own semantics."""
    asked = query.parse(case.words)
    once = searching(ledger, asked.request, asked.limit, case.holds, every=case.every)
    ways = {peer.NAME: DEFAULT, **({CAPS: CAPPED} if case.capped else {})}
    for place, (name, options) in enumerate(ways.items()):
        found = _row(case, once, lambda options=options: theirs.ask(case.words, PATIENCE, options))
        yield dataclasses.replace(found, peer_name=name, **(_NO_TARGET if place else {}))
    request = asked.request.replace(compatibility=None)
    own = searching(ledger, request, asked.limit, case.holds, every=case.every)
    yield alone(f"{case.name}, our semantics", own, case.under)


_NO_TARGET: Mapping[str, Any] = {"target": "", "met": None}


def _row(case: Case, once: Callable[[], Any], theirs: Callable[[], Any]) -> Row:
    """Return ours beside one way to ask Placement."""
    rounds: list[tuple[float, float]] = []
    stopped = False
    while len(rounds) < (ROUNDS if not rounds or rounds[0][1] < SLOW * 1e3 else SLOW_ROUNDS):
        mine, answer = milliseconds(once), theirs()
        stopped = answer is None
        if answer is not None and bool(answer.candidates) is not case.holds:
            raise AssertionError(f"placement finds {answer.candidates} for {case.words}")
        rounds.append((mine, (PATIENCE if answer is None else answer.seconds) * 1e3))
    found = judged(case.name, statistics.median(mine for mine, _ in rounds), case.under)
    ratio = statistics.median(mine / other for mine, other in rounds)
    if case.times is not None:
        said = f"at most {case.times:g} times"
        found = dataclasses.replace(found, target=said, met=ratio <= case.times)
    return dataclasses.replace(
        found,
        peer=statistics.median(other for _, other in rounds),
        ratio=ratio,
        point=case.point,
        axes=None if case.point is None else ("devices", "group"),
        stopped=stopped,
    )


def searching(
    ledger: ro.Ledger,
    request: Request,
    limit: int | None,
    holds: bool,
    *,
    every: bool = False,
    **options: Any,
) -> Callable[[], None]:
    """Return what asks for a fresh snapshot and searches it.

    :param every: whether each candidate is built, and its host and allocations are read
    """

    def once() -> None:
        found = ledger.snapshot().candidates(request, limit=limit, **options)
        if every and not all(one.host and one.allocations for one in found):
            raise AssertionError(f"{request}: a candidate without allocations")
        if bool(found) is not holds:
            raise AssertionError(f"{request} {'does not fit' if holds else 'fits'}")

    once()
    return once


def milliseconds(once: Callable[[], Any], calls: int = CALLS) -> float:
    """Return the median of what a call takes by wall clock."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def alone(name: str, once: Callable[[], Any], under: float | None, calls: int = 3 * CALLS) -> Row:
    """Return what a call of ours takes."""
    return judged(name, milliseconds(once, calls), under)


def judged(name: str, figure: float, under: float | None) -> Row:
    """Return milliseconds, and whether they are few enough."""
    return Row(
        name,
        "ms",
        figure,
        target="" if under is None else f"under {under:g} ms",
        met=None if under is None else figure < under,
    )
