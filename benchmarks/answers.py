"""What the answers cost that operators ask for: how many fit, what is stranded, when it would fit.

Hosts are diverse and in use: by chance each has some CPUs and memory taken, and devices. Figures
are the processor's time, the least of some rounds.
"""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import resource_objects as ro
from benchmarks.measure import Row
from resource_objects.requests import Gang, Member, Request, RequestGroup

HOSTS, DEVICE_HOSTS = 10_000, 1_000
ROUNDS = 3
START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def rows() -> Iterator[Row]:
    """Yield a row for each question."""
    yield from _how_many()


def _how_many() -> Iterator[Row]:
    snapshot = _counted(HOSTS)
    asked = "VCPU=4,MEMORY_MB=8192"
    yield _row(f"how many of counts, {HOSTS:,} hosts", lambda: snapshot.how_many(asked), 100)
    mix = Gang([Member("small", "VCPU=2,MEMORY_MB=4096", 3), Member("large", "VCPU=16")])
    name = f"capacity report with a mix of two, {HOSTS:,} hosts"
    yield _row(name, lambda: snapshot.report(mix).whole)
    ends = {f"job-host{n:05}": START + datetime.timedelta(minutes=n % 997) for n in range(HOSTS)}
    full = "VCPU=64,MEMORY_MB=65536"
    yield _row(f"when, by the ends of {HOSTS:,} claims", lambda: snapshot.when(full, ends))
    snapshot = _of_devices(DEVICE_HOSTS)
    groups = [RequestGroup("PGPU=1", suffix="_gpu"), RequestGroup("CUSTOM_NIC=1", suffix="_nic")]
    request = Request("VCPU=4", groups=groups, group_policy="none")
    name = f"how many of two groups of devices, {DEVICE_HOSTS:,} hosts"
    yield _row(name, lambda: snapshot.how_many(request), 1000)


def _row(name: str, act: Callable[[], Any], most: float | None = None) -> Row:
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        act()
        taken.append((time.process_time() - start) * 1000)
    if most is None:
        return Row(name, "ms", min(taken))
    return Row(name, "ms", min(taken), target=f"at most {most:,.0f} ms", met=min(taken) <= most)


def _counted(hosts: int) -> Any:
    """Return a snapshot of hosts of which each has some taken."""
    chance = random.Random(1)
    with ro.connect("memory://") as ledger:
        for first in range(0, hosts, 1_000):
            some = [
                ro.Provider(
                    f"host{n:05}", {"VCPU": chance.choice((16, 32, 64)), "MEMORY_MB": 65536}
                )
                for n in range(first, first + 1_000)
            ]
            ledger.sync(*some)
            for one in some:
                used = f"VCPU={chance.randint(1, 16)},MEMORY_MB={1024 * chance.randint(1, 48)}"
                ledger.claim(f"job-{one.name}", {one.name: used})
        return ledger.snapshot()


def _of_devices(hosts: int) -> Any:
    """Return a snapshot of hosts with GPUs and network cards, a provider each, some taken."""
    chance = random.Random(1)
    with ro.connect("memory://") as ledger:
        every = []
        for number in range(hosts):
            host = ro.Provider(f"host{number:05}", {"VCPU": chance.choice((32, 64))})
            for card in range(8):
                host.add(f"{host.name}/gpu{card}", "PGPU=1")
            for card in range(4):
                host.add(f"{host.name}/nic{card}", "CUSTOM_NIC=2")
            every.append(host)
        ledger.sync(*every)
        for one in every:
            taken: dict[str, str] = {one.name: f"VCPU={chance.randint(1, 24)}"}
            for card in range(8):
                if chance.random() < 0.4:
                    taken[f"{one.name}/gpu{card}"] = "PGPU=1"
            for card in range(4):
                if used := chance.randint(0, 2):
                    taken[f"{one.name}/nic{card}"] = f"CUSTOM_NIC={used}"
            ledger.claim(f"job-{one.name}", taken)
        return ledger.snapshot()
