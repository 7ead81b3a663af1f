"""What a fresh snapshot costs after one change, where there are many hosts, in memory.

A claim costs what it touches, and a definition its tree, not the fleet; the first snapshot reads
everything. As :mod:`benchmarks.jobs`, it can be run by older versions. ``HOSTS`` of the environment
names sizes in place of :data:`SIZES`: a million take some GB and as many minutes.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator

import resource_objects as ro
from benchmarks.measure import Row

SIZES = (10_000, 80_000)
CHUNK = 1_000
ROUNDS = 7


def rows() -> Iterator[Row]:
    """Yield a row per size and kind of change."""
    sizes = os.environ.get("HOSTS")
    for size in SIZES if sizes is None else map(int, sizes.split(",")):
        yield from _of_size(size)


def _of_size(size: int) -> Iterator[Row]:
    with ro.connect("memory://") as ledger:
        for first in range(0, size, CHUNK):
            ledger.sync(*(_host(f"host{n:05}", n) for n in range(first, first + CHUNK)))
        yield Row(f"memory: first snapshot of {size:,} hosts", "ms", _took(ledger.snapshot))
        asked = ro.Request("VCPU=4,MEMORY_MB=4096,DISK_GB=10", required=["CUSTOM_A"])
        search = lambda: len(ledger.snapshot().candidates(asked, limit=1))  # noqa: E731
        took = min(_took(search) for _ in range(ROUNDS))
        yield Row(f"memory: search of {size:,} hosts for one", "ms", took)
        numbers = itertools.count()
        acts: dict[str, Callable[[int], object]] = {
            "a claim": lambda n: ledger.claim(f"job-{n}", {"host00500": "VCPU=1"}),
            "a host defined anew": lambda n: ledger.sync(_host("host00500", n, 64 + n)),
            "a new host": lambda n: ledger.sync(_host(f"host00500-{n}", n)),
        }
        for name, act in acts.items():
            taken = []
            for _ in range(ROUNDS):
                act(next(numbers))
                taken.append(_took(ledger.snapshot))
            yield Row(f"memory: refresh of {size:,} hosts after {name}", "ms", min(taken))


def _took(once: Callable[[], object]) -> float:
    """Return the milliseconds of processor time of one call."""
    start = time.process_time()
    once()
    return (time.process_time() - start) * 1000


def _host(name: str, number: int, cpus: int = 64) -> ro.Provider:
    has = f"VCPU={cpus},MEMORY_MB=515000,DISK_GB=1000"
    return ro.Provider(name, has, traits=["CUSTOM_A"], aggregates=[f"rack-{number // 40}"])
