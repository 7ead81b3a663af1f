"""What it costs to try something: a fork, a claim in it, a larger host, a drain; and relaxations.

Hosts are diverse: CPUs and memory of 12 sizes by number, 40 to a rack, every third one without a
trait, and three to five jobs on each that leave little room. Where it is said so, each host has
eight GPUs, a provider each, of which jobs hold most; or two host cells and nothing else.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks.measure import Row
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa

HOSTS, DEVICE_HOSTS = 10_000, 2_000
ROUNDS = 5
#: In milliseconds.
FORK, CLAIM, RELAXATIONS = 1.0, 0.1, 2_000.0


def rows() -> Iterator[Row]:
    """Yield a row for each thing that is tried."""
    chance = random.Random(1)
    with ro.connect("memory://") as ledger:
        _fill(ledger, HOSTS, chance, gpus=0)
        yield from _scenarios(ledger.snapshot())
        snapshot = ledger.snapshot()
        cases = {
            "CPUs and memory that nobody has free": ro.Request("VCPU=40,MEMORY_MB=65536"),
            "more than any host has": ro.Request("VCPU=1000"),
            "a trait that nobody has": ro.Request("VCPU=4", required=["CUSTOM_FAST"]),
        }
        yield from _relaxations(snapshot, cases, HOSTS)
    with ro.connect("memory://") as ledger:
        _fill(ledger, DEVICE_HOSTS, chance, gpus=8)
        cases = {"eight GPUs, each a provider": ro.Request("VCPU=8,PGPU=8")}
        yield from _relaxations(ledger.snapshot(), cases, DEVICE_HOSTS)
    with ro.connect("memory://") as ledger:
        _fill_cells(ledger, DEVICE_HOSTS, chance)
        cases = {"13 CPUs of one cell": ro.Request({"NUMA_TOPOLOGY": numa(cells=1, dedicated=13)})}
        yield from _relaxations(ledger.snapshot(), cases, DEVICE_HOSTS)


def _scenarios(snapshot: Any) -> Iterator[Row]:
    of = f"{HOSTS:,} hosts"
    yield _row(f"fork, {of}", _best(snapshot.fork), FORK)
    found = list(snapshot.candidates("VCPU=1", limit=1000))
    scenario, start = snapshot.fork(), time.process_time_ns()
    scenario.claim("first", found[0])
    first = (time.process_time_ns() - start) / 1e6
    yield _row(f"the first claim of a snapshot, which looks up who holds what, {of}", first, None)
    unseen = _claims(scenario, "more", found[1:500], lambda: None)
    yield _row(f"claim in a scenario, {of}", unseen, CLAIM)
    seen = _claims(scenario, "other", found[500:], lambda: scenario.snapshot)
    yield _row(f"claim in a scenario that somebody looked at, {of}", seen, CLAIM)
    yield _row(f"what differs after 1,000 claims, {of}", _best(scenario.diff), None)
    one = snapshot.fork()
    yield _row(f"a larger host in a scenario, {of}", _best(lambda: _larger(one)), None)
    hosts = [f"host{number:06}" for number in range(20)]
    for some in (hosts[:1], hosts):
        taken = _best(lambda some=some: snapshot.rehearse_drain(*some))
        yield _row(f"a drain of {len(some)}, rehearsed, {of}", taken, None)


def _claims(scenario: Any, name: str, found: Any, look: Callable[[], object]) -> float:
    """Return the milliseconds that the median claim takes, each after a look."""
    taken = []
    for number, one in enumerate(found):
        look()
        start = time.process_time_ns()
        scenario.claim(f"{name}-{number}", one)
        taken.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(taken)


def _larger(scenario: Any) -> None:
    scenario.resize(f"host{HOSTS // 2:06}", "VCPU=500")
    scenario.undo()


def _relaxations(snapshot: Any, cases: dict[str, ro.Request], hosts: int) -> Iterator[Row]:
    for name, request in cases.items():
        taken = _best(lambda request=request: snapshot.relaxations(request, 5))
        yield _row(f"the five smallest relaxations of {name}, {hosts:,} hosts", taken, RELAXATIONS)


def _fill(ledger: Any, hosts: int, chance: random.Random, *, gpus: int) -> None:
    roots, claims = [], []
    for number in range(hosts):
        cpus, more = 16 * (1 + number % 4), 2 + number % 3
        name = f"host{number:06}"
        root = ro.Provider(
            name,
            {"VCPU": cpus, "MEMORY_MB": 2048 * more * cpus},
            traits=["CUSTOM_SSD"] if number % 3 else [],
            aggregates=[f"rack{number // 40}"],
        )
        for gpu in range(gpus):
            root.add(f"{name}/gpu{gpu}", "PGPU=1")
        roots.append(root)
        left = cpus - chance.randrange(1, 4)
        for job in range(chance.randrange(3, 6)):
            count = max(1, left // 5)
            held: dict[str, Any] = {name: f"VCPU={count},MEMORY_MB={1024 * count}"}
            if job < gpus - 1:
                held[f"{name}/gpu{job}"] = "PGPU=1"
            claims.append((f"job-{number}-{job}", held))
    for start in range(0, hosts, 1000):
        ledger.sync(*roots[start : start + 1000])
    for start in range(0, len(claims), 1000):
        ledger.claim_all(dict(claims[start : start + 1000]))


def _fill_cells(ledger: Any, hosts: int, chance: random.Random) -> None:
    """Make hosts of two cells of 16 CPUs, on which jobs hold most of them."""
    cells = [HostCell(cell, dedicated=range(16 * cell, 16 * cell + 16)) for cell in range(2)]
    for number in range(hosts):
        root = ro.Provider(f"host{number:06}", "DISK_GB=1000")
        root.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells))
        ledger.sync(root)
        for job in range(5):
            asked = numa(cells=1, dedicated=chance.choice([2, 4, 6]))
            request = ro.Request({"NUMA_TOPOLOGY": asked}, in_tree=root.name)
            found = ledger.snapshot().candidates(request, limit=1)
            if found:
                ledger.claim(f"job-{number}-{job}", found)


def _best(function: Callable[[], Any]) -> float:
    """Return the milliseconds of the processor of the best of some rounds."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        function()
        found.append((time.process_time_ns() - start) / 1e6)
    return min(found)


def _row(name: str, taken: float, most: float | None) -> Row:
    if most is None:
        return Row(name, "ms", taken)
    return Row(name, "ms", taken, target=f"under {most:g} ms", met=taken < most)
