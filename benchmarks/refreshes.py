"""What a fresh snapshot costs after one change, where there are many hosts, in memory.

As :mod:`benchmarks.jobs`, it can be run by older versions.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import resource_objects as ro
from benchmarks.measure import Row

HOSTS = 10_000


def rows() -> Iterator[Row]:
    """Yield a row per kind of change."""
    with ro.connect("memory://") as ledger:
        for first in range(0, HOSTS, 1_000):
            ledger.sync(*(_host(f"host{n:05}", n) for n in range(first, first + 1_000)))
        ledger.snapshot()
        numbers = itertools.count()
        acts: dict[str, Callable[[int], object]] = {
            "a claim": lambda n: ledger.claim(f"job-{n}", {"host00500": "VCPU=1"}),
            "a host defined anew": lambda n: ledger.sync(_host("host00500", n, 64 + n)),
            "a new host": lambda n: ledger.sync(_host(f"host00500-{n}", n)),
        }
        for name, act in acts.items():
            taken = []
            for _ in range(7):
                act(next(numbers))
                start = time.process_time()
                ledger.snapshot()
                taken.append(time.process_time() - start)
            yield Row(f"memory: refresh of {HOSTS:,} hosts after {name}", "ms", min(taken) * 1000)


def _host(name: str, number: int, cpus: int = 64) -> ro.Provider:
    has = f"VCPU={cpus},MEMORY_MB=515000,DISK_GB=1000"
    return ro.Provider(name, has, traits=["CUSTOM_A"], aggregates=[f"rack-{number // 40}"])
