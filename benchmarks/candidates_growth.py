"""How a search grows with providers, what freshness costs, and what a snapshot weighs.

Part of the candidates part: on SQLite files, with hosts of three classes. Who writes meanwhile has
a ledger object of its own, as another process would.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import itertools
import pathlib
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator

import resource_objects as ro
from benchmarks import candidates_asked as asked
from benchmarks import candidates_beside as sides
from benchmarks import servers
from benchmarks.measure import Row
from benchmarks.peer_process import running
from resource_objects.requests import Request, query

SIZES = (1_000, 10_000, 100_000)
LIMITS = (1, 10, 100)
#: How many writes one refresh absorbs; of hosts defined anew fewer, for they take long to make.
CLAIMS, DEFINED = (1, 10, 100, 1_000), (1, 10, 100)
LARGE_MS = 50.0
MOST_MB = 200.0
ROUNDS = 3


def rows() -> Iterator[Row]:
    """Yield a row per size, and the points of the grids."""
    for size in SIZES:
        with servers.database("sqlite") as url:
            yield from servers.in_a_process(of_size, url, size)
            if size == SIZES[-1]:
                yield from servers.in_a_process(weighing, url, size)


def of_size(url: str, size: int) -> Iterator[Row]:
    """Yield what is measured on a fleet of so many hosts; to be run in a process of its own."""
    warnings.simplefilter("ignore")
    with sides.filled(url, asked.flat(size)) as ledger:
        yield from _beside(ledger, size)
        yield from _limits(ledger, size)
        if size > SIZES[0]:
            yield from _refreshing(ledger, url, size)


def _beside(ledger: ro.Ledger, size: int) -> Iterator[Row]:
    under = LARGE_MS if size == SIZES[-1] else None
    case = asked.Case(f"growth: {size:,} hosts", asked.words(), under, capped=False)
    with running("sqlite") as theirs:
        theirs.keep(ledger.backend.read())
        for row in sides.compared(ledger, theirs, case):
            yield dataclasses.replace(row, point=(size, 1), axes=None) if row.peer else row


def _limits(ledger: ro.Ledger, size: int) -> Iterator[Row]:
    request = query.parse(asked.words()).request
    for limit in LIMITS:
        once = sides.searching(ledger, request, limit, holds=True)
        yield _point("growth: a search for so many", size, limit, sides.milliseconds(once))


def _point(name: str, size: int, other: int, figure: float, one: str = "candidate") -> Row:
    return Row(name, "ms", figure, point=(size, other), axes=("hosts", one))


# --- freshness ------------------------------------------------------------------------------------


def _refreshing(ledger: ro.Ledger, url: str, size: int) -> Iterator[Row]:
    """Yield what the next snapshot costs after so many writes, each a transaction of its own."""
    still = sides.milliseconds(ledger.snapshot)
    yield Row(f"freshness: {size:,} hosts, nothing was written", "ms", still)
    numbers, chance = itertools.count(), random.Random(size)
    with ro.connect(url) as other:

        def claim() -> None:
            host = f"host-{chance.randrange(size):06}"
            other.claim(f"job-{next(numbers)}", {host: Request(asked.ASKED).resources})

        def define() -> None:
            has = {**asked.HAS, "DISK_GB": 2_000 + next(numbers)}
            other.sync(ro.Provider(f"host-{chance.randrange(size):06}", has))

        for name, once, counts in (
            ("freshness: a snapshot after claims by others", claim, CLAIMS),
            ("freshness: a snapshot after hosts were defined anew", define, DEFINED),
        ):
            for count in counts:
                yield _point(name, size, count, _absorbed(ledger, once, count), "change")
        once = lambda: other.names.traits.ensure(f"CUSTOM_BENCHMARK_{next(numbers)}")  # noqa: E731
        said = f"freshness: {size:,} hosts, a trait was made, so everything is read"
        yield Row(said, "ms", _absorbed(ledger, once, 1))


def _absorbed(ledger: ro.Ledger, once: Callable[[], object], count: int) -> float:
    """Return the milliseconds of a snapshot that absorbs so many changes."""
    times = []
    for _ in range(ROUNDS):
        ledger.snapshot()
        for _ in range(count):
            once()
        start = time.perf_counter()
        found = ledger.snapshot()
        times.append(time.perf_counter() - start)
        if found.refreshed.changes != count:
            raise AssertionError(f"not {count} changes: {found.refreshed}")
    return statistics.median(times) * 1e3


# --- memory ---------------------------------------------------------------------------------------


def weighing(url: str, size: int) -> Iterator[Row]:
    """Yield what a snapshot adds to a process that did nothing else."""
    warnings.simplefilter("ignore")
    with ro.connect("memory://") as small:  # imports all there is to import
        small.sync(ro.Provider("host", asked.HAS))
        small.snapshot().candidates(Request(asked.ASKED))
    with ro.connect(url) as ledger:
        ledger.feed.cursor()
        before = _megabytes()
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
        kept = [ledger.snapshot()]
        most = _status("VmHWM") - before
        name = f"memory: a snapshot of {size:,} hosts of {asked.CLASSES} classes"
        held = _megabytes() - before
        yield Row(name, "MB", held, target=f"under {MOST_MB:g} MB", met=held < MOST_MB)
        yield Row("memory: at most, while it is read", "MB", most)
        ledger.claim("job", kept[0].candidates(Request(asked.ASKED)))
        kept.append(ledger.snapshot())
        two = _megabytes() - before
        yield Row("memory: the next one beside it, one claim later", "MB", two - held)


def _megabytes() -> float:
    """Return what the process has, without what it could give back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def _status(key: str) -> float:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(key)
