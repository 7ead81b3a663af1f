"""What one scheduler takes for a request: hosts, filters, weighers, and all the way to a claim.

In memory, of the processor's time; a figure is the best of some rounds, because a busy machine only
ever makes it worse. How diverse the fleets are stands in :func:`plain` and :func:`located`. The
part ``schedulers`` is about many at once.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks.measure import Row
from resource_objects.providers.statistics import StatisticType
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
from resource_objects.scheduler import Pipeline, RequestSpec, Scheduler
from resource_objects.scheduler.pipeline import Asked
from resource_objects.scheduler.reports import Reports

HOSTS, MANY = 10_000, 100_000
ROUNDS = 7
TRAIT = "CUSTOM_SSD"
LOAD = StatisticType("load", "decimal", "%")
WEIGHERS = {
    "free": {"VCPU": 1, "MEMORY_MB": 1, "DISK_GB": 0.5},
    "devices": {},
    "traits": {TRAIT: 1},
    "soft_affinity": {},
    "statistics": {"weights": {"load": -1}},
}


def plain(count: int) -> Iterator[ro.Provider]:
    """Yield hosts of 12 sizes in racks of 40, of which two in three have a trait."""
    for number in range(count):
        cpus, more = 16 * (1 + number % 4), 2 + number % 3
        yield ro.Provider(
            f"host{number:06}",
            {"VCPU": cpus, "MEMORY_MB": 2048 * more * cpus, "DISK_GB": 1000 * more},
            traits=[TRAIT] if number % 3 else [],
            aggregates=[f"rack{number // 40}"],
        )


def located(count: int) -> Iterator[ro.Provider]:
    """Yield hosts with 2 or 4 NUMA cells of 4 or 8 dedicated CPUs, and 2 to 4 GPUs on these."""
    for number in range(count):
        cells, cpus, gpus = 2 + 2 * (number % 2), 4 + 4 * (number % 3 == 0), 2 + number % 3
        host = ro.Provider(f"host{number:06}", {"PCPU": cells * cpus, "DISK_GB": 100})
        made = [
            HostCell(
                n,
                dedicated=range(n * cpus, (n + 1) * cpus),
                memory_mb=1024 * (8 + number % 5),
                socket=n // 2,
            )
            for n in range(cells)
        ]
        host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(made))
        devices = [
            ro.Device(f"0000:{n:02x}:00.0", "10de", "2330", numa_node=n % cells,
                      resource_class="PGPU")
            for n in range(gpus)
        ]  # fmt: skip
        host.add_parts("DEVICES", ro.PCIInventory(devices))
        yield host


def rows() -> Iterator[Row]:
    """Yield a row for each figure."""
    with filled(plain(HOSTS)) as ledger:
        yield from _selecting(ledger)
        yield from _trying(ledger)
        yield from _jobs(ledger)
    with filled(plain(MANY)) as ledger:
        scheduler = Scheduler(ledger)
        asked = "VCPU=4,MEMORY_MB=8192"
        name = f"{MANY:,} hosts: a host for counts"
        yield _row(name, 100, lambda: scheduler.select_destinations(asked))
    with filled(located(HOSTS)) as ledger:
        yield from _located(ledger)


def filled(hosts: Iterable[ro.Provider]) -> ro.Ledger:
    """Return a ledger in memory with some hosts, which were looked at."""
    ledger, given = ro.connect("memory://"), iter(hosts)
    while some := list(itertools.islice(given, 1000)):
        ledger.sync(*some)
    ledger.snapshot()
    return ledger


def _selecting(ledger: ro.Ledger) -> Iterator[Row]:
    every = f"{HOSTS:,} hosts: "
    racks = [f"rack{number}" for number in range(0, HOSTS // 40, 3)]
    spec = RequestSpec(
        ro.Request("VCPU=4,MEMORY_MB=8192", required=[TRAIT], member_of=[racks]),
        extra_specs={"aggregate_instance_extra_specs:ssd": "true"},
    )
    metadata = {"metadata": {rack: {"ssd": "true"} for rack in racks}}
    scheduler = Scheduler(ledger, filters={"aggregate_metadata": metadata, "capabilities": {}})
    name = every + "a host for counts, traits and aggregates, by all filters"
    yield _row(name, 10, lambda: scheduler.select_destinations(spec, alternates=9))
    told = {f"host{n:06}": [LOAD(n % 97)] for n in range(HOSTS)}
    ledger.statistics.put(told)
    reports, pipeline = Reports(ledger), Pipeline.of((), WEIGHERS)
    fleet = ledger.snapshot().fleet
    trees = fleet.tree[fleet.roots]

    def weigh() -> None:
        fleet.__dict__.pop("_totals", None)  # as after a claim of everything
        order = Asked(pipeline, spec, reports).order(ro.Order())
        assert order.weigh is not None
        order.weigh(fleet, spec.request, trees)

    yield _row(every + "five weighers, of all hosts", 10, weigh)
    weighing = Scheduler(ledger, weighers=WEIGHERS, reports_for=3600)
    name = every + "a host for counts and traits, by five weighers"
    yield _row(name, 10, lambda: weighing.select_destinations(spec, alternates=9))
    reading = Scheduler(ledger, weighers=WEIGHERS)
    name = every + "the same, with a statistic of each host read anew"
    yield _row(name, None, lambda: reading.select_destinations(spec, alternates=9))


def _trying(ledger: ro.Ledger) -> Iterator[Row]:
    snapshot = ledger.snapshot()
    found = snapshot.candidates("VCPU=4,MEMORY_MB=8192", limit=100)
    places = itertools.cycle(found)
    yield _row(f"{HOSTS:,} hosts: fork a snapshot", 1, snapshot.fork, calls=1000)
    scenario = snapshot.fork()
    numbers = itertools.count()

    def claim() -> None:
        scenario.claim(f"new-{next(numbers)}", next(places))

    name = f"{HOSTS:,} hosts: a claim in a scenario"
    yield _row(name, 0.1, claim, calls=40)


def _jobs(ledger: ro.Ledger) -> Iterator[Row]:
    request, numbers = ro.Request("VCPU=2,MEMORY_MB=4096"), itertools.count()

    for by in ("name", "pack", "spread"):

        def place(order: str = by) -> None:
            found = ledger.snapshot().candidates(request, limit=1, order=order)
            ledger.claim(f"job-{next(numbers)}", found)

        best = 1e9 / min(_spent(place, 60) for _ in range(ROUNDS))
        name = f"{HOSTS:,} hosts: jobs by {by}: snapshot, search with the order, claim"
        yield Row(name, "per second", best, target="at least 1,000", met=best >= 1000)


def _located(ledger: ro.Ledger) -> Iterator[Row]:
    asked = {
        "NUMA_TOPOLOGY": numa(cells=2, dedicated=4, memory_mb=4096),
        "DEVICES": ro.devices("PGPU", 1),
    }
    scheduler = Scheduler(ledger, weighers={"free": {"PCPU": 1}})
    numbers = itertools.count()

    def select() -> None:
        # another request each time: nothing is known of it
        request = ro.Request({**asked, "DISK_GB": 1 + next(numbers) % 90})
        scheduler.select_destinations(request, alternates=9)

    name = f"{HOSTS:,} hosts with cells and GPUs: the best ten for two cells and a GPU"
    yield _row(name, 300, select)


def _row(name: str, most: float | None, once: Callable[[], Any], calls: int = 3) -> Row:
    """Return the milliseconds of a call."""
    once()
    best = min(_spent(once, calls) for _ in range(ROUNDS)) / 1e6
    target = "" if most is None else f"at most {most:g}"
    return Row(name, "ms", best, target=target, met=None if most is None else best <= most)


def _spent(once: Callable[[], Any], calls: int) -> float:
    """Return the processor's nanoseconds of a call."""
    gc.collect()
    start = time.process_time_ns()
    for _ in range(calls):
        once()
    return (time.process_time_ns() - start) / calls
