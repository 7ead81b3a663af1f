"""Candidates: the same requests asked of us and of the real Placement, on the same fleets.

Runs only where openstack-placement is installed (``tox -e placement``). Placement answers in a
process of its own, without a network, and is stopped where an answer takes more than
:data:`~benchmarks.candidates_asked.PATIENCE` seconds: the row says so, and its ratio is a bound.
*placement 16* is as it comes; *with its caps* has a maximum of 1,000 candidates, breadth first, and
its workaround for wide trees. We are asked through the front door, for a fresh snapshot and a
search each time: ``ledger.snapshot().candidates(request)``. Medians by wall clock, in turn.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator

import resource_objects as ro
from benchmarks import candidates_asked, candidates_groups, candidates_growth, servers
from benchmarks import candidates_beside as sides
from benchmarks.candidates_asked import FLEETS, Case
from benchmarks.measure import Row
from benchmarks.peer_process import running
from resource_objects.requests import Request

COLD_MS = 1000.0


def rows() -> Iterator[Row]:
    """Yield every comparison on each kind of database, then how we grow."""
    for kind in servers.reachable():
        for row in servers.in_a_process(beside, kind):
            yield dataclasses.replace(row, name=f"{servers.SHOWN[kind]}: {row.name}")
    yield from candidates_growth.rows()
    yield from candidates_groups.rows()


def beside(kind: str) -> Iterator[Row]:
    """Yield the comparisons on one kind of database; to be run in a process of its own."""
    warnings.simplefilter("ignore")
    with running(kind) as theirs:
        for place, fleet in enumerate(FLEETS):
            with servers.database(kind) as url, sides.filled(url, fleet.make()) as ledger:
                theirs.keep(ledger.backend.read())
                for case in fleet.cases:
                    yield from sides.compared(ledger, theirs, case)
                if place == 0:
                    yield from _more(ledger, fleet.cases[0])
                    yield from _cold(url, fleet.cases[0])


# --- ours alone -----------------------------------------------------------------------------------


def _more(ledger: ro.Ledger, case: Case) -> Iterator[Row]:
    """Yield other orders, and the search after somebody else's claim."""
    request = Request(candidates_asked.ASKED)
    for order, seed in (("pack", None), ("spread", None), ("spread", 1), ("random", 1)):
        said = order if seed is None or order == "random" else f"{order}, one of the best by seed"
        once = sides.searching(
            ledger, request, candidates_asked.LIMIT, True, order=order, seed=seed
        )
        yield sides.alone(f"{case.name}, our semantics, order {said}", once, None)
    yield sides.judged(f"{case.name}, after a claim", after_claims(ledger, request), case.under)
    yield sides.alone(f"{case.name}, a snapshot where nothing was written", ledger.snapshot, None)


def after_claims(ledger: ro.Ledger, request: Request, calls: int = 3 * sides.CALLS) -> float:
    """Return the milliseconds of snapshot and search where one claim came in between."""
    times = []
    for number in range(calls):
        ledger.claim(f"between-{number}", ledger.snapshot().candidates(request, limit=1))
        start = time.perf_counter()
        found = ledger.snapshot()
        if not found.candidates(request, limit=candidates_asked.LIMIT):
            raise AssertionError("it does not fit any more")
        times.append(time.perf_counter() - start)
        if found.refreshed.changes != 1:
            raise AssertionError(f"not one claim: {found.refreshed}")
    return statistics.median(times) * 1e3


_NEW_PROCESS = """
import sys
import resource_objects as ro
with ro.connect(sys.argv[1]) as ledger:
    assert ledger.snapshot().candidates(sys.argv[2])
"""


def _cold(url: str, case: Case) -> Iterator[Row]:
    """Yield the first search: of a new ledger object, and of a new process with its imports."""
    request = Request(candidates_asked.ASKED)

    def first() -> None:
        with ro.connect(url) as ledger:
            sides.searching(ledger, request, candidates_asked.LIMIT, True)

    yield sides.alone(f"{case.name}, the first search: connect and read", first, COLD_MS, calls=5)
    asked = [sys.executable, "-W", "ignore", "-c", _NEW_PROCESS, url, str(request.resources)]
    process = sides.alone("", lambda: subprocess.run(asked, check=True), None, calls=3)
    yield dataclasses.replace(process, name=f"{case.name}, the same in a new process")
