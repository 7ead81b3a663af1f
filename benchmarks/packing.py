"""An experiment: policies that pack GPUs. Jobs of a trace are placed one by one, and none ends.

Hosts are rows of arrays, without a ledger. A job on 1,200 hosts costs some 100 microseconds
(``fgd``: twice that)::

    python -m benchmarks.packing --generate 60,1500 --runs 3
    python -m benchmarks.packing --hosts hosts.csv --jobs jobs.csv --policy fgd

The policies are those of Q. Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), section 5:

=============  ====================================================================================
``random``     any host that can hold the job, and any of its GPUs
``best-fit``   the host with the least free, CPUs and GPUs as fractions of the largest host's; the
               GPU with the least free
``fgd``        the host, and on it the GPU, where fragmentation grows least, to a hundredth
=============  ====================================================================================

``fgd`` scores hosts in hundredths, so that nearly equal hosts are used in turn, as the simulator of
the authors does; with exact figures the result is a percent worse.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.scheduler.replay import PARTS, Trace, TraceJob
from resource_objects.scheduler.weighers.fragmentation import (
    Task,
    Workload,
    fragmentation,
    growth,
)
from resource_objects.search.arrays import Figures, Integers

#: The usual tasks are the most frequent ones that make up this part of a trace.
USUAL = 0.95
#: Jobs for more than this many times all GPUs show nothing new.
MOST_LOAD = 1000
#: The best score of a host.
_SCORES = 100


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """The result: arrays with an entry after each job, as fractions of all GPUs."""

    policy: str
    seed: int
    arrived: Figures  #: requested so far
    allocated: Figures
    fragmented: Figures  #: free, and useless for the usual tasks
    placed: int  #: the number of jobs that were placed

    def __str__(self) -> str:
        allocated = f"{self.policy}: allocated {self.allocated[-1]:.2%} of all GPUs"
        return f"{allocated}, fragmented {self.fragmented[-1]:.2%} ({self.placed} jobs)"


def pack(trace: Trace, policy: str = "fgd", *, seed: int = 0, load: float = 1.3) -> Packing:
    """Place random jobs of a trace until they requested ``load`` times all GPUs.

    Equal arguments have equal results.

    :raises InvalidInput: without GPUs, or jobs for them; for an unknown policy, or an invalid seed
        or load

    >>> trace = Trace.generated(hosts=20, jobs=500, seed=7)
    >>> for policy in ("random", "best-fit", "fgd"):
    ...     print(pack(trace, policy, seed=1))
    random: allocated 88.75% of all GPUs, fragmented 9.99% (146 jobs)
    best-fit: allocated 97.48% of all GPUs, fragmented 2.39% (146 jobs)
    fgd: allocated 97.97% of all GPUs, fragmented 1.97% (147 jobs)
    """
    if policy not in POLICIES:
        raise InvalidInput("field", "policy", policy, f"one of {', '.join(POLICIES)}")
    if type(seed) is not int or seed < 0:
        raise InvalidInput("field", "seed", seed, "an integer of 0 or more")
    if not isinstance(load, int | float) or not 0 < load <= MOST_LOAD:
        raise InvalidInput("field", "load", load, f"a number above 0, at most {MOST_LOAD}")
    if not trace.gpu_parts or not any(job.gpu_parts for job in trace.jobs):
        raise InvalidInput("trace", "trace", "no GPUs", "hosts with GPUs, and jobs for them")
    fleet = Fleet(trace)
    choose = POLICIES[policy](fleet, np.random.default_rng(seed))
    arrived = allocated = placed = 0
    lost = float(fleet.fragmented.sum())
    series: list[tuple[int, int, float]] = []
    for job in random_jobs(trace, load, seed):
        arrived += job.gpu_parts
        able = fleet.able(job)
        if len(able):
            host, device = choose(job, able)
            lost += fleet.place(job, host, device)
            allocated, placed = allocated + job.gpu_parts, placed + 1
        series.append((arrived, allocated, lost))
    figures = np.array(series, dtype=np.float64).T / trace.gpu_parts
    return Packing(policy, seed, *figures, placed)


def random_jobs(trace: Trace, load: float, seed: int) -> Iterator[TraceJob]:
    """Yield random jobs, with repetition, until they request ``load`` times all GPUs."""
    chance, requested = random.Random(seed), 0
    while requested < load * trace.gpu_parts:
        job = trace.jobs[chance.randrange(len(trace.jobs))]
        requested += job.gpu_parts
        yield job


class Fleet:
    """The free resources of all hosts as arrays."""

    def __init__(self, trace: Trace) -> None:
        hosts = trace.hosts
        gpus = np.array([host.gpus for host in hosts])
        self.counts: Integers = np.array([(host.cpu_milli, host.memory_mib) for host in hosts])
        #: the free parts of each GPU, -1 for none
        self.devices: Integers = np.where(np.arange(max(gpus)) < gpus[:, None], PARTS, -1)
        self.whole: Integers = gpus.copy()  #: GPUs without any allocation
        self.largest: Integers = self.devices.max(1).clip(0)  #: the most free of one GPU
        self.free: Integers = gpus * PARTS
        self.workload = Workload.of(_usual_tasks(trace.jobs), ("cpu", "memory"))
        self.fragmented = fragmentation(self.counts, self.devices, self.workload)
        #: the hosts on which a job was placed, in that order
        self.log: list[int] = []

    def able(self, job: TraceJob) -> Integers:
        """Return the hosts that can hold a job."""
        able = (self.counts[:, 0] >= job.cpu_milli) & (self.counts[:, 1] >= job.memory_mib)
        if job.gpus and job.gpu_milli < PARTS:
            able &= self.largest >= job.gpu_milli
        elif job.gpus:
            able &= self.whole >= job.gpus
        return np.flatnonzero(able)

    def place(self, job: TraceJob, host: int, device: int) -> float:
        """Allocate a job on a host, and a part of a device; return the growth of fragmentation."""
        self.counts[host] -= job.cpu_milli, job.memory_mib
        here = self.devices[host]
        if device >= 0:
            here[device] -= job.gpu_milli
        elif job.gpus:
            here[np.flatnonzero(here == PARTS)[: job.gpus]] = 0
        self.whole[host] = np.count_nonzero(here == PARTS)
        self.largest[host] = here.max()
        self.free[host] -= job.gpu_parts
        self.log.append(host)
        row, before = slice(host, host + 1), self.fragmented[host]
        (self.fragmented[host],) = fragmentation(self.counts[row], self.devices[row], self.workload)
        return float(self.fragmented[host] - before)


def _usual_tasks(jobs: Iterable[TraceJob]) -> list[Task]:
    """Return the most frequent tasks; memory is not a part of a task, as in the paper."""
    frequencies = Counter((job.cpu_milli, job.gpus, job.gpu_milli) for job in jobs)
    tasks: list[Task] = []
    covered = 0
    for (cpus, gpus, milli), count in frequencies.most_common():
        if covered >= USUAL * frequencies.total():
            break
        covered += count
        tasks.append(Task({"cpu": cpus}, milli, gpus, float(count)))
    return tasks


# --- policies -------------------------------------------------------------------------------------

#: Returns the host of a job, and the GPU if the job uses a part of one, else -1.
Choose: TypeAlias = Callable[[TraceJob, Integers], tuple[int, int]]


def _needs_part(job: TraceJob) -> bool:
    return job.gpus == 1 and job.gpu_milli < PARTS


def _random(fleet: Fleet, chance: np.random.Generator) -> Choose:
    def choose(job: TraceJob, able: Integers) -> tuple[int, int]:
        host = int(able[chance.integers(len(able))])
        if not _needs_part(job):
            return host, -1
        enough = np.flatnonzero(fleet.devices[host] >= job.gpu_milli)
        return host, int(enough[chance.integers(len(enough))])

    return choose


def _best_fit(fleet: Fleet, chance: np.random.Generator) -> Choose:
    cpus, gpus = max(1, fleet.counts[:, 0].max()), max(1, fleet.free.max())

    def choose(job: TraceJob, able: Integers) -> tuple[int, int]:
        rest = fleet.counts[able, 0] / cpus + fleet.free[able] / gpus
        host = int(able[rest.argmin()])
        if not _needs_part(job):
            return host, -1
        here = fleet.devices[host]
        return host, int(np.where(here >= job.gpu_milli, here, PARTS + 1).argmin())

    return choose


def _least_fragmentation(fleet: Fleet, chance: np.random.Generator) -> Choose:
    #: by task the score and GPU of each host, and the length of the log when they were computed
    cache: dict[Task | tuple[int, ...], tuple[Integers, Integers, int]] = {}

    def choose(job: TraceJob, able: Integers) -> tuple[int, int]:
        key = job.cpu_milli, job.gpus, job.gpu_milli
        if key in cache:
            score, device, at = cache[key]
            changed = np.array([*set(fleet.log[at:])], dtype=np.int64)
        else:
            changed = np.arange(len(fleet.counts))
            score, device = np.zeros_like(changed), np.full(len(changed), -1)
        if len(changed):
            grown, device[changed] = growth(
                Task({"cpu": job.cpu_milli}, job.gpu_milli, job.gpus),
                fleet.counts[changed],
                fleet.devices[changed],
                fleet.workload,
                PARTS,
                before=fleet.fragmented[changed],
            )
            score[changed] = _SCORES / (1 + np.exp(grown / PARTS))
        cache[key] = score, device, len(fleet.log)
        host = int(able[score[able].argmax()])
        return host, int(device[host])

    return choose


POLICIES: dict[str, Callable[[Fleet, np.random.Generator], Choose]] = {
    "random": _random,
    "best-fit": _best_fit,
    "fgd": _least_fragmentation,
}


# --- the program ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each run of each policy."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--hosts", metavar="CSV", help="sn, cpu_milli, memory_mib, gpu")
    add("--jobs", metavar="CSV", help="name, cpu_milli, memory_mib, num_gpu, gpu_milli, ...")
    add("--generate", metavar="HOSTS,JOBS", help="a random trace in place of the files")
    add("--seed", type=int, default=0)
    add("--policy", action="append", help="random, best-fit or fgd; may be repeated; else all")
    add("--runs", type=int, default=1, metavar="N", help="runs of each policy, with further seeds")
    add("--load", type=float, default=1.3, help="the requested multiple of all GPUs (1.3)")
    options = parser.parse_args(arguments)
    if bool(options.generate) == bool(options.hosts and options.jobs):
        parser.error("--generate, or --hosts and --jobs")
    if options.generate:
        hosts, jobs = map(int, options.generate.split(","))
        trace = Trace.generated(hosts=hosts, jobs=jobs, seed=options.seed)
    else:
        trace = Trace.read(options.hosts, options.jobs)
    for policy in options.policy or POLICIES:
        for run in range(options.runs):
            print(pack(trace, policy, seed=options.seed + run, load=options.load))


if __name__ == "__main__":
    main()
