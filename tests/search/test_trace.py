"""A cluster's jobs, placed one by one: each is refused exactly where no host has enough of all.

The jobs and hosts are those of a public trace (Alibaba's GPU cluster of 2023), where it is at hand,
and of a file made like it, which always is. A judge that knows lists of numbers alone looks, before
each job, whether some host has the CPUs and memory, and either a GPU with so many thousandths left
or so many GPUs that nobody uses.
"""

from __future__ import annotations

import csv
import dataclasses
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects.host.partitions import thousandths
from tests.support.lengths import some

_DATA = Path(__file__).resolve().parents[3] / "shared/data/alibaba-gpu-v2023"
_FRACTION = "CUSTOM_PGPU_THOUSANDTHS"
_CPU = "CUSTOM_CPU_MILLI"
_HOST_COLUMNS = "sn,cpu_milli,memory_mib,gpu,model"
_JOB_COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"


@dataclasses.dataclass
class Job:
    """What a job asks for: whole GPUs, or thousandths of one."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int

    @property
    def is_part(self) -> bool:
        return self.gpus == 1 and self.gpu_milli < 1000

    def request(self) -> ro.Request:
        asked = {_CPU: self.cpu_milli, "MEMORY_MB": self.memory_mib}
        asked |= {_FRACTION: self.gpu_milli} if self.is_part else {"PGPU": self.gpus}
        return ro.Request({name: amount for name, amount in asked.items() if amount})


@dataclasses.dataclass
class Host:
    """A host as the judge keeps it: what is free, and of each GPU how many thousandths."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: list[int]

    def provider(self) -> ro.Provider:
        made = ro.Provider(self.name, {_CPU: self.cpu_milli, "MEMORY_MB": self.memory_mib})
        for number, _ in enumerate(self.gpus):
            thousandths(made.add(f"{self.name}/gpu{number}", "PGPU=1"))
        return made

    def holds(self, job: Job) -> bool:
        if job.is_part:
            has_gpus = max(self.gpus, default=0) >= job.gpu_milli
        else:
            has_gpus = self.gpus.count(1000) >= job.gpus
        return has_gpus and self.cpu_milli >= job.cpu_milli and self.memory_mib >= job.memory_mib


def hosts_of(lines: Iterable[str]) -> list[Host]:
    return [
        Host(
            row["sn"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            [1000] * int(row["gpu"] or 0),
        )
        for row in csv.DictReader(lines)
    ]


def jobs_of(lines: Iterable[str]) -> list[Job]:
    return [
        Job(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"] or 0),
        )
        for row in csv.DictReader(lines)
    ]


def check(hosts: list[Host], jobs: list[Job], order: str) -> tuple[int, int]:
    """Place the jobs; return how many were placed, and how many refused."""
    judge = {host.name: host for host in hosts}
    placed = refused = 0
    with ro.connect("memory://") as ledger:
        ledger.sync(*(host.provider() for host in hosts))
        for job in jobs:
            found = ledger.snapshot().candidates(job.request(), limit=1, order=order)
            assert bool(found) is any(host.holds(job) for host in hosts), job
            if not found:
                refused += 1
                continue
            claim = ledger.claim(job.name, found)
            (root,) = {one.provider.partition("/")[0] for one in claim.allocations}
            host = judge[root]
            for one in claim.allocations:
                take(host, one.provider, one.resource_class, int(str(one.amount)))
            placed += 1
        used = ledger.snapshot()
        left = sum(host.cpu_milli for host in hosts)
        assert used.free(_CPU) == left
        assert used.free(_FRACTION) == sum(sum(host.gpus) for host in hosts)
    return placed, refused


def take(host: Host, provider: str, resource_class: str, amount: int) -> None:
    """Let the judge note what was given, which has to be there."""
    if resource_class == _CPU:
        host.cpu_milli -= amount
    elif resource_class == "MEMORY_MB":
        host.memory_mib -= amount
    else:
        gpu = int(provider.rpartition("gpu")[2])
        host.gpus[gpu] -= amount if resource_class == _FRACTION else 1000 * amount
    assert min(host.cpu_milli, host.memory_mib, *host.gpus, 0) == 0, host


def made_like_it(seed: int) -> tuple[list[str], list[str]]:
    """Return the lines of both files, drawn."""
    chance = random.Random(seed)
    hosts, jobs = [_HOST_COLUMNS], [_JOB_COLUMNS]
    for number in range(8):
        gpus = chance.choice([0, 1, 2, 8])
        cpus, memory = chance.choice([32, 64, 96]), chance.choice([128, 256])
        hosts.append(f"host-{number},{1000 * cpus},{1024 * memory},{gpus},T4")
    for number in range(120):
        gpus = chance.choice([0, 1, 1, 1, 1, 2, 4])
        part = chance.choice([1000, 1000, 500, 460, chance.randrange(1, 1000)])
        cpus, memory = chance.randrange(1, 16), chance.randrange(1, 64)
        milli = 0 if not gpus else part if gpus == 1 else 1000
        jobs.append(f"job-{number},{1000 * cpus},{1024 * memory},{gpus},{milli}")
    return hosts, jobs


@pytest.mark.parametrize("order", ["pack", "spread"])
@pytest.mark.parametrize("seed", some(range(20), fast=2))
def test_drawn_jobs_are_refused_where_no_host_has_enough(seed: int, order: str) -> None:
    hosts, jobs = made_like_it(seed)
    placed, refused = check(hosts_of(hosts), jobs_of(jobs), order)
    assert placed >= 20 and refused >= 20


@pytest.mark.parametrize(("hosts", "jobs"), some([(12, 250), (150, 3000)]))
def test_jobs_of_a_trace_are_refused_where_no_host_has_enough(hosts: int, jobs: int) -> None:
    if not _DATA.exists():
        pytest.skip(f"the trace is not in this checkout: no {_DATA}")
    kept = hosts_of((_DATA / "openb_node_list_gpu_node.csv").read_text().splitlines())
    asked = jobs_of((_DATA / "openb_pod_list_default.csv").read_text().splitlines())
    assert (len(kept), sum(len(host.gpus) for host in kept)) == (1213, 6212)
    assert (len(asked), sum(job.is_part for job in asked)) == (8152, 3078)
    placed, refused = check(kept[:: len(kept) // hosts], asked[:jobs], "pack")
    assert placed > jobs / 5 and refused > jobs / 10
