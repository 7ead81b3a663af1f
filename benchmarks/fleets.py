"""Fleets of hosts, and the cost of a fleet in memory: declaration, snapshots and refreshes.

``HOSTS=1000000 python -m benchmarks --only fleets`` measures other sizes than :data:`SIZES`. A
million hosts take some minutes and 3 GB.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import random
from collections.abc import Callable, Iterable, Iterator

import resource_objects as ro
from benchmarks import servers
from benchmarks.measure import RATE, Row, least_seconds, milliseconds, seconds

SIZES = (10_000, 300_000)
TREES, GPUS = 2_000, 8
RACK = 40
TRAIT = "CUSTOM_SSD"
CHUNK = 1_000


# --- hosts ----------------------------------------------------------------------------------------


def plain(count: int, first: int = 0) -> Iterator[ro.Provider]:
    """Yield hosts of 12 sizes in racks of 40; two of three have the trait."""
    for number in range(first, first + count):
        cpus, factor = 16 * (1 + number % 4), 2 + number % 3
        yield ro.Provider(
            f"host{number:06}",
            {"VCPU": cpus, "MEMORY_MB": 2048 * factor * cpus, "DISK_GB": 1000 * factor},
            traits=[TRAIT] if number % 3 else [],
            aggregates=[f"rack{number // RACK}"],
        )


def gpu_trees(count: int, gpus: int = GPUS) -> Iterator[ro.Provider]:
    """Yield hosts with two cells, and GPUs below the cells, each GPU a provider."""
    for number in range(count):
        name = f"host{number:06}"
        root = ro.Provider(name, "VCPU=64,MEMORY_MB=262144,DISK_GB=2000")
        cells = [root.add(f"{name}/cell{cell}") for cell in range(2)]
        for gpu in range(gpus):
            cells[gpu % 2].add(f"{name}/gpu{gpu}", "PGPU=1")
        yield root


def sync(ledger: ro.Ledger, hosts: Iterable[ro.Provider]) -> ro.Ledger:
    """Declare hosts in calls of a thousand, and return the ledger."""
    iterator = iter(hosts)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        ledger.sync(*chunk)
    return ledger


def in_memory(hosts: Iterable[ro.Provider]) -> ro.Ledger:
    """Return a ledger in memory with the hosts, whose first snapshot is read."""
    ledger = sync(ro.connect("memory://"), hosts)
    ledger.snapshot()
    return ledger


def with_jobs(ledger: ro.Ledger, hosts: int) -> ro.Ledger:
    """Allocate most CPUs of each of the :func:`plain` hosts to three to five jobs."""
    generator = random.Random(1)
    claims: dict[str, dict[str, str]] = {}
    for number in range(hosts):
        free = 16 * (1 + number % 4) - generator.randrange(1, 4)
        for job in range(generator.randrange(3, 6)):
            cpus = max(1, free // 5)
            amounts = f"VCPU={cpus},MEMORY_MB={1024 * cpus}"
            claims[f"job-{number}-{job}"] = {f"host{number:06}": amounts}
    items = iter(claims.items())
    while batch := dict(itertools.islice(items, CHUNK)):
        ledger.claim_all(batch)
    return ledger


# --- rows -----------------------------------------------------------------------------------------


def rows() -> Iterator[Row]:
    """Yield the rows of unchanged trees, then those of each size."""
    yield from servers.in_a_process(_unchanged_trees)
    sizes = os.environ.get("HOSTS")
    for size in SIZES if sizes is None else map(int, sizes.split(",")):
        yield from servers.in_a_process(_fleet, size)


def _unchanged_trees() -> Iterator[Row]:
    name = f"memory: {TREES:,} unchanged trees of {GPUS + 3} providers synced"
    with ro.connect("memory://") as ledger:
        ledger.sync(*gpu_trees(TREES))
        trees = list(gpu_trees(TREES))
        yield milliseconds(name, lambda: ledger.sync(*trees), rounds=3)


def _fleet(size: int) -> Iterator[Row]:
    title = f"memory: {size:,} hosts"
    with ro.connect("memory://") as ledger:
        duration = seconds(lambda: sync(ledger, plain(size)))
        yield Row(f"{title}, synced", RATE, size / duration)
        yield Row(f"{title}, the first snapshot", "ms", seconds(ledger.snapshot) * 1e3)
        yield Row(f"{title}, memory of the process", "MB", _resident_megabytes())
        request = ro.Request("VCPU=4,MEMORY_MB=4096,DISK_GB=10", required=[TRAIT])
        yield milliseconds(
            f"{title}, snapshot and search for one",
            lambda: ledger.snapshot().candidates(request, limit=1)[0],
        )
        numbers = itertools.count()
        middle = size // 2
        changes: dict[str, Callable[[], object]] = {
            "a claim": lambda: ledger.claim(f"job-{next(numbers)}", {f"host{middle:06}": "VCPU=1"}),
            "a host is redefined": lambda: ledger.sync(
                ro.Provider(f"host{middle:06}", {"VCPU": 64 + next(numbers)})
            ),
            "a new host": lambda: ledger.sync(*plain(1, first=size + next(numbers))),
        }
        for change, act in changes.items():
            duration = least_seconds(ledger.snapshot, before=act)
            yield Row(f"{title}, snapshot after {change}", "ms", duration * 1e3)


def _resident_megabytes() -> float:
    """Return the resident memory of this process."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmRSS in /proc/self/status")
