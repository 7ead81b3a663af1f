"""Claims per second through the front door: memory, and a SQLite file on one thread."""

from __future__ import annotations

import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator

import resource_objects as ro
from benchmarks.measure import Row, rate

REQUEST = "VCPU=1,MEMORY_MB=512,DISK_GB=1"
LEAST = 1000.0


def rows() -> Iterator[Row]:
    """Yield claims per second of each backend, with the disk's flush time beside them."""
    yield from _backend("memory", "memory://")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        flush = _flush(path)
        yield Row("disk: one flush", "ms", flush * 1000)
        yield Row("disk: flushes", "per second", 1 / flush)
        normal = f"sqlite:///{path}/normal.db?synchronous=NORMAL"
        yield from _backend("SQLite, synchronous=NORMAL", normal)
        yield from _backend(
            "SQLite, synchronous=FULL (a flush per commit)",
            f"sqlite:///{path}/full.db?synchronous=FULL",
            LEAST,
        )


def _backend(name: str, url: str, least: float | None = None) -> Iterator[Row]:
    with ro.connect(url) as ledger:
        for number in range(4):
            host = ro.Provider(f"host{number}", f"VCPU=1000000,{_plenty()}")
            ledger.sync(host)
        found = ledger.snapshot().candidates(ro.Request(REQUEST))
        yield rate(f"{name}: claim", _claimer(ledger, found), 400, least=least)
        yield rate(f"{name}: release", lambda n: ledger.release(f"job-{n}"), 400)
    with ro.connect(url) as ledger:
        if not list(ledger.trees()):
            ledger.sync(ro.Provider("host0", f"VCPU=1000000,{_plenty()}"))
        request = ro.Request(REQUEST)
        kept = ledger.snapshot()

        def place(number: int) -> None:
            ledger.claim(f"placed-{number}", kept.candidates(request, limit=1))

        yield rate(f"{name}: search in a kept snapshot, and claim", place, 400, least=least)

        def whole(number: int) -> None:
            ledger.claim(f"whole-{number}", ledger.snapshot().candidates(request, limit=1))
            ledger.release(f"whole-{number}")

        yield rate(f"{name}: snapshot of 1,200 consumers, search, claim and release", whole, 200)


def _claimer(ledger: ro.Ledger, found: object) -> Callable[[int], object]:
    return lambda number: ledger.claim(f"job-{number}", found)  # type: ignore[arg-type]


def _plenty() -> str:
    return "MEMORY_MB=2000000000,DISK_GB=2000000000"


def _flush(folder: pathlib.Path, count: int = 50) -> float:
    """Return the seconds one small write and fsync takes here."""
    with open(folder / "flush", "wb") as file:
        start = time.perf_counter()
        for _ in range(count):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - start) / count
