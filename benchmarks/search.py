"""Searches, gangs, reasons, scenarios and the scheduler, on fleets in memory.

Figures are CPU time, the best of several rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import resource_objects as ro
from benchmarks import fleets
from benchmarks.measure import RATE, Row, least_seconds, milliseconds
from resource_objects.requests import Gang, Member, Request, RequestGroup
from resource_objects.scheduler import RequestSpec, Scheduler
from resource_objects.search import Snapshot

HOSTS, GPU_HOSTS, TREES, FEW = 10_000, 1_213, 1_000, 20
COUNTS = "VCPU=4,MEMORY_MB=8192"
LOOPS_PER_SECOND, GPU_LOOPS_PER_SECOND = 1_200.0, 1_000.0


def rows() -> Iterator[Row]:
    """Yield the rows of each fleet."""
    with fleets.in_memory(fleets.plain(HOSTS)) as ledger:
        yield from _plain_hosts(ledger)
        yield from _gangs(ledger.snapshot())
        yield from _scheduler(ledger)
    with fleets.in_memory(fleets.gpu_trees(GPU_HOSTS)) as ledger:
        request = Request("VCPU=4,PGPU=1")
        yield _loop(f"{GPU_HOSTS:,} hosts of 8 GPUs", ledger, request, GPU_LOOPS_PER_SECOND)
    with fleets.in_memory(fleets.gpu_trees(TREES)) as ledger:
        yield from _groups(ledger.snapshot())
    with fleets.with_jobs(fleets.in_memory(fleets.plain(HOSTS)), HOSTS) as ledger:
        yield from _scenarios(ledger.snapshot())
        yield from _reasons(f"{HOSTS:,} hosts", ledger.snapshot())
    with fleets.with_jobs(fleets.in_memory(fleets.plain(FEW)), FEW) as ledger:
        yield from _reasons(f"{FEW} hosts", ledger.snapshot())


def _plain_hosts(ledger: ro.Ledger) -> Iterator[Row]:
    snapshot, title = ledger.snapshot(), f"{HOSTS:,} hosts"
    request = Request(COUNTS, required=[fleets.TRAIT])
    for order in ("name", "pack"):
        yield milliseconds(
            f"{title}: ten candidates for counts and a trait, order {order}",
            lambda order=order: len(snapshot.candidates(request, limit=10, order=order)),
            calls=5,
        )
    yield _loop(f"{HOSTS:,} plain hosts", ledger, Request(COUNTS), LOOPS_PER_SECOND)


def _loop(title: str, ledger: ro.Ledger, request: Request, limit: float) -> Row:
    numbers = itertools.count()

    def loop() -> None:
        name = f"job-{next(numbers)}"
        ledger.claim(name, ledger.snapshot().candidates(request, limit=1))
        ledger.release(name)

    figure = 1 / least_seconds(loop, calls=100)
    return Row(f"{title}: snapshot, search, claim and release", RATE, figure, limit=limit)


def _gangs(snapshot: Snapshot) -> Iterator[Row]:
    levels = {"rack": [f"rack{number}" for number in range(HOSTS // fleets.RACK)]}
    for title, gang, limit in (
        ("4", Gang([Member("worker", COUNTS, count=4)]), 2.0),
        ("512", Gang([Member("worker", COUNTS, count=512)]), 100.0),
        (
            "512, at most 4 in a rack, and a driver",
            Gang(
                [Member("worker", COUNTS, count=512), Member("driver", "VCPU=2")],
                at_most={"rack": 4},
            ),
            100.0,
        ),
    ):
        yield milliseconds(
            f"{HOSTS:,} hosts: gang of {title}",
            lambda gang=gang: snapshot.fit_gang(gang, levels=levels),
            limit=limit,
        )


def _scheduler(ledger: ro.Ledger) -> Iterator[Row]:
    racks = [f"rack{number}" for number in range(0, HOSTS // fleets.RACK, 3)]
    spec = RequestSpec(
        Request(COUNTS, required=[fleets.TRAIT], member_of=[racks]),
        extra_specs={"aggregate_instance_extra_specs:ssd": "true"},
    )
    metadata = {"metadata": {rack: {"ssd": "true"} for rack in racks}}
    scheduler = Scheduler(
        ledger,
        filters={"aggregate_metadata": metadata, "capabilities": {}},
        weighers={"free": {"VCPU": 1, "MEMORY_MB": 1}, "traits": {fleets.TRAIT: 1}},
    )
    yield milliseconds(
        f"{HOSTS:,} hosts: the best ten by two filters and two weighers",
        lambda: scheduler.select_destinations(spec, alternates=9),
        calls=3,
        limit=10,
    )


def _groups(snapshot: Snapshot) -> Iterator[Row]:
    groups = [RequestGroup("PGPU=1", suffix=f"_{number}") for number in (1, 2)]
    isolated = Request("VCPU=4", groups=groups, group_policy="isolate")
    yield milliseconds(
        f"{TREES:,} trees of 11 providers: ten candidates for two isolated groups",
        lambda: len(snapshot.candidates(isolated, limit=10)),
    )


def _scenarios(snapshot: Snapshot) -> Iterator[Row]:
    title = f"{HOSTS:,} hosts in use"
    yield milliseconds(
        f"{title}: how many more consumers fit", lambda: snapshot.how_many(COUNTS), limit=100
    )
    scenario, numbers = snapshot.fork(), itertools.count()
    candidates = itertools.cycle(list(snapshot.candidates("VCPU=1", limit=1000)))
    yield milliseconds(
        f"{title}: a claim in a scenario",
        lambda: scenario.claim(f"new-{next(numbers)}", next(candidates)),
        calls=40,
        limit=0.1,
    )
    hosts = [f"host{number:06}" for number in range(20)]
    yield milliseconds(
        f"{title}: a drain of 20 hosts, rehearsed", lambda: snapshot.rehearse_drain(*hosts)
    )
    yield milliseconds(
        f"{title}: the five smallest relaxations of a request",
        lambda: snapshot.relaxations(Request("VCPU=40,MEMORY_MB=65536"), 5),
        rounds=3,
        limit=2_000,
    )


def _reasons(title: str, snapshot: Snapshot) -> Iterator[Row]:
    request = Request("VCPU=40,MEMORY_MB=65536")
    few = title.startswith(str(FEW))
    yield milliseconds(
        f"{title}: the reason of a refusal in a line",
        lambda: snapshot.candidates(request).explain().answer,
        limit=None if few else 50,
    )
    yield milliseconds(
        f"{title}: all reasons of a refusal as data",
        lambda: snapshot.candidates(request).explain().to_dict(),
        limit=1 if few else 150,
    )
