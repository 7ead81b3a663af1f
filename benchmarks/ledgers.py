"""Claims per second: in memory (of CPU time), in a SQLite file and on PostgreSQL, on one thread.

The duration of a flush of the disk is a row of its own: with a flush for each commit it limits the
rate of claims.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator

import resource_objects as ro
from benchmarks import servers
from benchmarks.measure import RATE, Row, rate

REQUEST = "VCPU=1,MEMORY_MB=512,DISK_GB=1"
CAPACITY = "VCPU=1000000,MEMORY_MB=2000000000,DISK_GB=2000000000"
LEAST = 1000.0
CALLS = 400


def rows() -> Iterator[Row]:
    """Yield the rows of each backend."""
    yield from _backend("memory", "memory://")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        flush = _flush_seconds(path)
        yield Row("disk: one flush", "ms", flush * 1000)
        yield Row("disk: flushes", RATE, 1 / flush)
        normal = f"sqlite:///{path}/normal.db?synchronous=NORMAL"
        yield from _backend("SQLite, synchronous=NORMAL", normal)
        full = f"sqlite:///{path}/full.db?synchronous=FULL"
        yield from _backend("SQLite, synchronous=FULL (a flush per commit)", full, LEAST)
    with contextlib.ExitStack() as stack:
        if "postgresql" in servers.reachable():
            url = stack.enter_context(servers.ledger_database("postgresql"))
            yield from _backend("PostgreSQL (a flush per commit)", url)


def _backend(name: str, url: str, limit: float | None = None) -> Iterator[Row]:
    clock = time.process_time if url.startswith("memory:") else time.perf_counter
    with ro.connect(url) as ledger:
        for number in range(4):
            ledger.sync(ro.Provider(f"host{number}", CAPACITY))
        request = ro.Request(REQUEST)
        candidates = ledger.snapshot().candidates(request)

        def claim(number: int) -> None:
            ledger.claim(f"job-{number}", candidates)

        yield rate(f"{name}: claim", claim, CALLS, limit=limit, clock=clock)
        yield rate(f"{name}: release", lambda n: ledger.release(f"job-{n}"), CALLS, clock=clock)
    with ro.connect(url) as ledger:
        if not list(ledger.trees()):  # a new ledger in memory
            ledger.sync(ro.Provider("host0", CAPACITY))
        snapshot = ledger.snapshot()

        def search_and_claim(number: int) -> None:
            ledger.claim(f"placed-{number}", snapshot.candidates(request, limit=1))

        yield rate(
            f"{name}: search in a kept snapshot, and claim", search_and_claim, CALLS, clock=clock
        )

        def loop(number: int) -> None:
            ledger.claim(f"whole-{number}", ledger.snapshot().candidates(request, limit=1))
            ledger.release(f"whole-{number}")

        yield rate(
            f"{name}: snapshot of 1,200 consumers, search, claim and release",
            loop,
            200,
            clock=clock,
        )


def _flush_seconds(folder: pathlib.Path, count: int = 50) -> float:
    """Return the mean seconds of a write of 4 KiB with fsync."""
    with open(folder / "flush", "wb") as file:
        start = time.perf_counter()
        for _ in range(count):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - start) / count
