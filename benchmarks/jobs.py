"""What a scheduler does for one job, in memory and on a server.

Everything here is asked through names that every version has, so that an older one can run it:
``python -m benchmarks --against REVISION --same --only jobs``. A figure is the best of many short
rounds, because a busy machine only ever makes it worse: of the processor's time in memory, of the
clock on a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import resource_objects as ro
from benchmarks import servers
from benchmarks.measure import Row
from resource_objects.ledger import backend_for

REQUEST = "VCPU=1,MEMORY_MB=512,DISK_GB=1"
ASKED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
PLENTY = "VCPU=1000000,MEMORY_MB=2000000000,DISK_GB=2000000000"


def rows() -> Iterator[Row]:
    """Yield claims and releases of each backend."""
    yield from _claims("memory", "memory://", 40, 20)
    for kind in servers.reachable():
        with servers.database(kind) as url:
            backend_for(url).upgrade_database(url)
            if kind != "sqlite":  # that one is measured by the part ledgers
                yield from _claims(servers.SHOWN[kind], url, 6, 10)


def _claims(name: str, url: str, rounds: int, calls: int) -> Iterator[Row]:
    with ro.connect(url) as ledger:
        for number in range(4):
            ledger.sync(ro.Provider(f"host{number}", PLENTY))
        request = ro.Request(REQUEST)
        kept = ledger.snapshot()
        found = kept.candidates(request)
        clock = time.process_time if url.startswith("memory:") else time.perf_counter
        ways: dict[str, Callable[[str], object]] = {
            "of candidates": lambda job: ledger.claim(job, found),
            "of amounts": lambda job: ledger.claim(job, {"host0": ASKED}),
            "searched in a kept snapshot": lambda job: ledger.claim(
                job, kept.candidates(request, limit=1)
            ),
            "searched in a fresh snapshot": lambda job: ledger.claim(
                job, ledger.snapshot().candidates(request, limit=1)
            ),
        }
        for way, claim in ways.items():
            claims, releases = [], []
            for number in range(rounds):
                jobs = [f"{way.replace(' ', '-')}-{number}-{call}" for call in range(calls)]
                claims.append(_seconds(claim, jobs, clock))
                releases.append(_seconds(ledger.release, jobs, clock))
            yield Row(f"{name}: claim {way}", "us", min(claims) * 1e6)
            if way.startswith("of "):
                yield Row(f"{name}: release of a claim {way}", "us", min(releases) * 1e6)


def _seconds(once: Callable[[str], object], jobs: list[str], clock: Callable[[], float]) -> float:
    """Return the seconds of one call."""
    start = clock()
    for job in jobs:
        once(job)
    return (clock() - start) / len(jobs)
