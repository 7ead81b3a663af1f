"""What it costs to ask why nobody can hold a request.

Hosts of 64 CPUs and four GPUs, a provider each; consumers hold some CPUs of each, and two, three or
all of its GPUs. The line is the answer in one line; the data are all reasons of all hosts with
everybody who holds something, whether each host could if nobody did, and the nearest hosts, as
plain data. What the search itself takes, which is empty, is a row of its own.
"""

from __future__ import annotations

import gc
import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import Row
from resource_objects.providers.columns import (
    AllocationColumns,
    Columns,
    InventoryColumns,
    ProviderColumns,
    TraitColumns,
)
from resource_objects.requests import Request, RequestGroup
from resource_objects.search import Snapshot

HOSTS, MANY = 10_000, 100_000
#: In milliseconds.
LINE, DATA, LINE_OF_MANY = 50.0, 500.0, 500.0
ROUNDS = 5

_GROUPS = [RequestGroup("PGPU=1", suffix=f"_{name}", required=["CUSTOM_H100"]) for name in "ABC"]
CASES = {
    "more than is free": Request("VCPU=49,MEMORY_MB=1"),
    "more than there is": Request("VCPU=65"),
    "devices with a trait": Request("VCPU=16,MEMORY_MB=65536,PGPU=3", required=["CUSTOM_H100"]),
    "three groups apart": Request("VCPU=4", groups=_GROUPS, group_policy="isolate"),
}


def rows() -> Iterator[Row]:
    """Yield the rows of each size."""
    snapshot = Snapshot(columns(HOSTS))
    for name, request in CASES.items():
        said = f"{name}, {HOSTS:,} hosts"
        yield Row(f"the empty search: {said}", "ms", _best(lambda r=request: _found(snapshot, r)))
        yield _row(f"why, in a line: {said}", LINE, snapshot, request, lambda told: told.answer)
        yield _row(f"why, all data: {said}", DATA, snapshot, request, lambda told: told.to_dict())
    snapshot = Snapshot(columns(MANY))
    for name, request in CASES.items():
        said = f"why, in a line: {name}, {MANY:,} hosts"
        yield _row(said, LINE_OF_MANY, snapshot, request, lambda told: told.answer)


def _row(
    name: str, most: float, snapshot: Snapshot, request: Request, ask: Callable[[Any], Any]
) -> Row:
    taken = []
    for _ in range(ROUNDS):
        found = _found(snapshot, request)
        gc.collect()
        start = time.process_time()
        ask(found.explain())
        taken.append((time.process_time() - start) * 1000)
    best = min(taken)
    return Row(name, "ms", best, target=f"at most {most:.0f} ms", met=best <= most)


def _found(snapshot: Snapshot, request: Request) -> Any:
    found = snapshot.candidates(request)
    assert not found, "nobody can"
    return found


def _best(act: Callable[[], Any]) -> float:
    """Return the milliseconds of the processor that something takes, the least of some rounds."""
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        act()
        taken.append(time.process_time() - start)
    return min(taken) * 1000


#: Figures of an inventory of so many: reserved to ratio, all of which is there.
_PLAIN = (0, 1, None, 1, 1_000_000)


def columns(hosts: int, seed: int = 1) -> Columns:
    """Return what a ledger of such hosts keeps."""
    chance = random.Random(seed)
    providers: list[Any] = []
    inventories: list[Any] = []
    held: list[Any] = []
    traits: list[Any] = []
    for number in range(hosts):
        root, name = 5 * number, f"host{number:06}"
        jobs, gpus = chance.choice((1, 2)), chance.choice((2, 3, 4))
        providers.append((root, _uuid(root), name, None, root, 1))
        inventories.append((root, "VCPU", 64, *_PLAIN, 64, 16 * jobs))
        inventories.append((root, "MEMORY_MB", 515_000, *_PLAIN, 515_000, 0))
        held += [(root, "VCPU", f"job-{number}-{job}", 16) for job in range(jobs)]
        for gpu in range(4):
            place = root + 1 + gpu
            providers.append((place, _uuid(place), f"{name}/gpu{gpu}", root, root, 1))
            inventories.append((place, "PGPU", 1, *_PLAIN, 1, int(gpu < gpus)))
            traits.append((place, "CUSTOM_H100"))
            if gpu < gpus:
                held.append((place, "PGPU", f"job-{number}-0", 1))
    return Columns(
        ProviderColumns(*zip(*providers, strict=True)),
        InventoryColumns(*zip(*inventories, strict=True)),
        TraitColumns(*zip(*traits, strict=True)),
        AllocationColumns(*zip(*held, strict=True)),
    )


def _uuid(number: int) -> str:
    return str(uuid.UUID(int=number))
