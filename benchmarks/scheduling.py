"""What one scheduler takes for a request: hosts, filters, weighers, and all the way to a claim.

In memory, of the processor's time; a figure is the best of some rounds, because a busy machine only
ever makes it worse. How diverse the fleets are stands in :func:`plain` and :func:`located`. The
part ``schedulers`` is about many at once.

Cells, devices and weighers are measured beside Nova's own filters and weighers, where it is
installed (:mod:`benchmarks.nova_filters`): per host, in turn in the same rounds, ours on all hosts,
Nova's on :data:`BESIDE` of the same ones. Equal hosts are decided once here; so their rows say how
many states there are, and those of as many states as hosts have no two alike.
"""

from __future__ import annotations

import functools
import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks import nova_filters
from benchmarks.measure import Row
from resource_objects.providers.statistics import Statistic
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
from resource_objects.resources.pci import DeviceRequest, DeviceSpec
from resource_objects.scheduler import Pipeline, RequestSpec, Scheduler
from resource_objects.scheduler.pipeline import PipelineRun
from resource_objects.scheduler.states import Reports

HOSTS, MANY = 10_000, 100_000
ROUNDS = 7
#: So many steps of a search are enough for all hosts.
EVERY = 10**9
#: How many of the hosts Nova is asked about.
BESIDE = 200
#: How many states hosts of :func:`located` have by cells, CPUs and GPUs, and memory.
STATES = 2 * 3 * 5
TRAIT = "CUSTOM_SSD"
LOAD = functools.partial(Statistic, "load")
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


def located(count: int, *, differ: bool = False) -> Iterator[ro.Provider]:
    """Yield hosts with NUMA cells, and GPUs on these, as :func:`parts` has them."""
    for number in range(count):
        cells, devices = parts(number, differ=differ)
        cpus = sum(len(cell.dedicated) for cell in cells.cells)
        host = ro.Provider(f"host{number:06}", {"PCPU": cpus, "DISK_GB": 100})
        host.add_parts("NUMA_TOPOLOGY", cells)
        host.add_parts("DEVICES", devices)
        yield host


def parts(number: int, *, differ: bool) -> tuple[NUMATopologyInventory, ro.PCIInventory]:
    """Return 2 or 4 cells of 4 or 8 dedicated CPUs and 8 to 12 GiB, and 2 to 4 GPUs on these.

    :param differ: whether no two hosts have the same memory; else there are :data:`STATES` states
    """
    cells, cpus, gpus = 2 + 2 * (number % 2), 4 + 4 * (number % 3 == 0), 2 + number % 3
    made = [
        HostCell(
            n,
            dedicated=range(n * cpus, (n + 1) * cpus),
            siblings=[[cpu] for cpu in range(n * cpus, (n + 1) * cpus)],
            memory_mb=1024 * (8 + number % 5) + number * differ,
            socket=n // 2,
        )
        for n in range(cells)
    ]
    devices = [
        ro.Device(f"0000:{n:02x}:00.0", "10de", "2330", numa_node=n % cells, resource_class="PGPU")
        for n in range(gpus)
    ]
    return NUMATopologyInventory(made), ro.PCIInventory(devices)


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
        yield from _filtered(ledger, differ=False)
    with filled(located(HOSTS, differ=True)) as ledger:
        yield from _filtered(ledger, differ=True)
    yield from _weighed()


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
        order = PipelineRun(pipeline, spec, reports).order(ro.Order())
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
    scheduler = Scheduler(ledger, weighers={"free": {"PCPU": 1}})
    numbers = itertools.count()

    def select() -> None:
        # another request each time: nothing is known of it
        scheduler.select_destinations(_asked(next(numbers)), alternates=9)

    name = f"{HOSTS:,} hosts with cells and GPUs: the best ten for two cells and a GPU"
    yield _row(name, 300, select)


def _asked(number: int, *, cpus: int = 4, gpus: int = 1) -> ro.Request:
    """Return a request for two cells and for GPUs near them; of a hundred, no two the same.

    :param cpus: in both cells together; 0: no cells
    :param gpus: 0: none
    """
    asked: dict[str, Any] = {"DISK_GB": 1 + number % 90}
    if cpus:
        memory_mb = 4096 - 2 * (number % 100)
        asked["NUMA_TOPOLOGY"] = numa(cells=2, dedicated=cpus, memory_mb=memory_mb)
    if gpus:
        asked["DEVICES"] = ro.devices("PGPU", gpus)
    return ro.Request(asked)


# --- beside Nova ----------------------------------------------------------------------------------


def _filtered(ledger: ro.Ledger, *, differ: bool) -> Iterator[Row]:
    """Yield what it takes to find out which hosts have room, all of them, per host."""
    snapshot = ledger.snapshot()
    states = HOSTS if differ else STATES
    hosts = f"{HOSTS:,} hosts of {states:,} states"
    for what, theirs, asked in (
        ("10 CPUs in two cells", "NUMATopologyFilter", {"cpus": 10, "gpus": 0}),
        ("3 GPUs", "PciPassthroughFilter", {"cpus": 0, "gpus": 3}),
        ("10 CPUs in two cells and 2 GPUs near", "both filters", {"cpus": 10, "gpus": 2}),
    ):
        numbers = itertools.count()

        def ours(asked: dict[str, int] = asked, numbers: Iterator[int] = numbers) -> int:
            request = _asked(next(numbers), **asked)  # nothing is known of it
            found = snapshot.candidates(request, limit=None, per_host=1, budget=EVERY)
            return len(found)

        peer = _their_filters(ours() / HOSTS, differ, **asked)
        yield _per_host(f"{hosts}: all that have room for {what} ({theirs})", ours, peer)


def _their_filters(share: float, differ: bool, *, cpus: int, gpus: int) -> Callable[[], Any] | None:
    """Return what asks Nova's filters the same, having seen that they pass as many hosts.

    :param share: of the hosts that we find
    """
    if not nova_filters.is_installed():
        return None
    states = [
        nova_filters.state(f"host{number:06}", *parts(number, differ=differ))
        for number in range(BESIDE)
    ]
    topology = numa(cells=2, dedicated=cpus, memory_mb=4096) if cpus else None
    gpu = DeviceSpec(vendor_id="10de", product_id="2330")
    devices = [DeviceRequest([gpu], count=gpus)] if gpus else []
    spec = nova_filters.request(topology, devices)
    some = nova_filters.filters(cells=bool(cpus), devices=bool(gpus))

    def once() -> list[Any]:
        for state in states:
            state.allocation_candidates = [{"mappings": {}}]
        return nova_filters.passing(some, states, spec)

    passed = len(once())
    if abs(passed / BESIDE - share) > 0.02:
        raise AssertionError(f"nova passes {passed} of {BESIDE}, we {share:.0%}")
    return once


def _weighed() -> Iterator[Row]:
    """Yield what it takes to weigh hosts by CPUs, memory, disk, devices and operations."""
    with filled(plain(HOSTS)) as ledger:
        operations = functools.partial(Statistic, "io_workload")
        told = {f"host{n:06}": [operations(n % 97)] for n in range(HOSTS)}
        ledger.statistics.put(told)
        weighers = {
            "free": {"VCPU": 1, "MEMORY_MB": 1, "DISK_GB": 1},
            "devices": {},
            "statistics": {"weights": {"io_workload": -1}},
        }
        spec, reports = RequestSpec("VCPU=4,MEMORY_MB=8192"), Reports(ledger)
        pipeline, fleet = Pipeline.of((), weighers), ledger.snapshot().fleet
        trees = fleet.tree[fleet.roots]

        def ours() -> None:
            fleet.__dict__.pop("_totals", None)  # as after a claim of everything
            order = PipelineRun(pipeline, spec, reports).order(ro.Order())
            assert order.weigh is not None
            order.weigh(fleet, spec.request, trees)

        name = f"{HOSTS:,} hosts of 12 sizes: CPUs, memory, disk, devices, operations (5 weighers)"
        yield _per_host(name, ours, _their_weighers())


def _their_weighers() -> Callable[[], Any] | None:
    if not nova_filters.is_installed():
        return None
    states = [
        nova_filters.state(
            host.name,
            counts={kind: one.total for kind, one in host.inventories.by_name()},  # type: ignore[attr-defined]
            operations=number % 97,
        )
        for number, host in enumerate(plain(BESIDE))
    ]
    spec = nova_filters.request()
    return lambda: nova_filters.weigh(states, spec)


def _per_host(name: str, ours: Callable[[], Any], theirs: Callable[[], Any] | None) -> Row:
    """Return the microseconds of a host, ours on all and Nova's on some, best of as many rounds."""
    ours()
    mine, peers = [], []
    for _ in range(ROUNDS):
        mine.append(_spent(ours, 1) / HOSTS / 1e3)
        if theirs is not None:
            peers.append(_spent(theirs, 1) / BESIDE / 1e3)
    if theirs is None:
        return Row(name, "us per host", min(mine))
    ratio = min(mine) / min(peers)
    return Row(name, "us per host", min(mine), min(peers), nova_filters.NAME, ratio)


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
