"""Replay of a trace on a ledger: jobs start and end in the order of their times, without waiting.

A trace is read from CSV files with the columns of the public GPU cluster traces of Alibaba
(``openb_node_list_*.csv``, ``openb_pod_list_*.csv``): CPUs in thousandths, MiB of memory, GPUs, and
thousandths of a GPU for a job that uses a part of one; times in seconds. Further columns are
ignored.

Several processes can share the jobs: each searches individually, and the ledger decides races.
Every write has an operation id that follows from the job. So a process that was killed is started
again from its first job, and repeats nothing.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import heapq
import itertools
import logging
import multiprocessing
import os
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from resource_objects.exceptions import CapacityException, InvalidInput, PluginError
from resource_objects.fields import MAX_FIGURE
from resource_objects.host.partitions import thousandths
from resource_objects.ledger import Ledger, connect
from resource_objects.providers import Provider
from resource_objects.requests import Request
from resource_objects.scheduler.driver import Scheduler
from resource_objects.scheduler.pipeline import Pipeline
from resource_objects.search import Candidates, Order

_invalid_trace = functools.partial(InvalidInput, "trace")

#: The number of parts of a GPU.
PARTS = 1000
#: The resource classes of hosts and jobs.
CPU, MEMORY, GPU = "CUSTOM_CPU_MILLI", "MEMORY_MB", "PGPU"
GPU_PART = "CUSTOM_PGPU_THOUSANDTHS"
#: More GPUs than any host has.
_MOST_GPUS = 1024
#: The number of candidates of a search: more than one for lost races.
_CANDIDATES = 5
#: The number of hosts that are written in one transaction.
_BATCH = 200
#: The namespace of operation ids.
_SPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "trace.resource_objects")

_HOST_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")
_JOB_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    *("creation_time", "deletion_time"),
)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class TraceHost:
    """A host of a trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int

    def provider(self) -> Provider:
        """Return the host with a provider for each GPU, which is allocated whole or in parts."""
        counts = {CPU: self.cpu_milli, MEMORY: self.memory_mib}
        host = Provider(self.name, {name: total for name, total in counts.items() if total})
        for number in range(self.gpus):
            thousandths(host.add(f"{self.name}/gpu{number}", {GPU: 1}))
        return host


@dataclasses.dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace, with its start and end in seconds (None: it does not end)."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int  #: of each of its GPUs: 1000, or less of one
    created: float = 0.0
    deleted: float | None = None

    @property
    def gpu_parts(self) -> int:
        """The requested thousandths of GPUs."""
        return self.gpus * self.gpu_milli

    def request(self) -> Request:
        """Return the request of the job."""
        amounts = {CPU: self.cpu_milli, MEMORY: self.memory_mib}
        is_whole = self.gpu_milli == PARTS
        amounts |= {GPU: self.gpus} if is_whole else {GPU_PART: self.gpu_parts}
        return Request({name: amount for name, amount in amounts.items() if amount})


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """Hosts and jobs.

    >>> trace = Trace.generated(hosts=10, jobs=100, seed=1)
    >>> len(trace.hosts), len(trace.jobs), trace.gpu_parts
    (10, 100, 60000)
    """

    hosts: Sequence[TraceHost]
    jobs: Sequence[TraceJob]

    @property
    def gpu_parts(self) -> int:
        """The thousandths of GPUs of all hosts."""
        return PARTS * sum(host.gpus for host in self.hosts)

    @classmethod
    def read(cls, hosts: str | os.PathLike[str], jobs: str | os.PathLike[str]) -> Trace:
        """Return the trace of two CSV files.

        :raises InvalidInput: with the file and the line: for a missing column, a value that is no
            number or too large, a repeated name, a job that ends before it starts
        """
        return cls(_rows(hosts, _HOST_COLUMNS, _host), _rows(jobs, _JOB_COLUMNS, _job))

    @classmethod
    def generated(cls, *, hosts: int, jobs: int, seed: int = 0) -> Trace:
        """Return a random trace similar to the published ones; equal seeds have equal traces.

        Hosts have 2, 4 or 8 GPUs with 12 to 16 CPUs for each. A seventh of the jobs uses no GPU,
        half of the others a part of one, a few several.
        """
        chance = random.Random(seed)
        trace_hosts = []
        for number in range(hosts):
            gpus = chance.choice([2, 4, 8, 8])
            cpus = gpus * chance.choice([12, 16])
            trace_hosts.append(TraceHost(f"host-{number:04}", cpus * 1000, cpus * 6144, gpus))
        return cls(trace_hosts, [_random_job(number, chance) for number in range(jobs)])


def _random_job(number: int, chance: random.Random) -> TraceJob:
    kind = chance.random()
    gpus, milli = (0, 0) if kind < 1 / 7 else (1, PARTS)
    if kind > 0.97:
        gpus = chance.choice([2, 4, 8])
    elif kind > 4 / 7:
        milli = chance.choice([160, 230, 320, 470, 500, 650, 810])
    cpus = chance.choice([2, 4, 6, 8]) * max(1, gpus)
    start, end = float(number), number + chance.expovariate(1 / 200)
    return TraceJob(f"job-{number:05}", cpus * 1000, cpus * 2048, gpus, milli, start, end)


# --- CSV files ------------------------------------------------------------------------------------


def _rows(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    make: Callable[[Mapping[str, str], str], T],
) -> list[T]:
    """Return what ``make(row, "file: line n")`` returns for each row of a file."""
    result: list[T] = []
    lines_by_name: dict[str, int] = {}
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise _invalid_trace(f"{path}: line 1", missing[0], "a column of that name")
        try:
            for row in reader:
                at = f"{path}: line {reader.line_num}"
                if None in row.values() or None in row:
                    expected = f"{len(reader.fieldnames or ())} values"
                    raise _invalid_trace(at, ",".join(map(str, row.values())), expected)
                name = row[columns[0]]
                if name in lines_by_name:
                    expected = f"a name that line {lines_by_name[name]} does not have"
                    raise _invalid_trace(at, name, expected)
                lines_by_name[name] = reader.line_num
                result.append(make(row, at))
        except (csv.Error, UnicodeDecodeError) as error:
            at = f"{path}: line {reader.line_num + 1}"
            raise _invalid_trace(at, str(error), "comma-separated text") from error
    return result


def _host(row: Mapping[str, str], at: str) -> TraceHost:
    cpus, memory = _number(row, "cpu_milli", at), _number(row, "memory_mib", at)
    return TraceHost(row["sn"], cpus, memory, _number(row, "gpu", at, _MOST_GPUS))


def _job(row: Mapping[str, str], at: str) -> TraceJob:
    gpus, milli = _number(row, "num_gpu", at, _MOST_GPUS), _number(row, "gpu_milli", at, PARTS)
    if (gpus > 1 and milli != PARTS) or bool(gpus) != bool(milli):
        value = f"{gpus} GPUs of {milli} thousandths"
        raise _invalid_trace(at, value, "whole GPUs, or a part of one")
    cpus, memory = _number(row, "cpu_milli", at), _number(row, "memory_mib", at)
    if not (cpus or memory or gpus):
        raise _invalid_trace(at, row["name"], "a job that requests something")
    created, deleted = (_seconds(row, name, at) for name in ("creation_time", "deletion_time"))
    if created is not None and deleted is not None and deleted < created:
        raise _invalid_trace(at, deleted, f"a deletion_time from {created:g} on")
    return TraceJob(row["name"], cpus, memory, gpus, milli, created or 0.0, deleted)


def _number(row: Mapping[str, str], name: str, at: str, most: int = MAX_FIGURE) -> int:
    text = row[name]
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise _invalid_trace(f"{at}: {name}", text, f"an integer from 0 to {most}")
    return int(text)


def _seconds(row: Mapping[str, str], name: str, at: str) -> float | None:
    if not row[name]:
        return None
    try:
        seconds = float(row[name])
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise _invalid_trace(f"{at}: {name}", row[name], "seconds from 0, or nothing")
    return seconds


# --- on a ledger ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """The result of one process."""

    placed: int
    refused: int  #: no host had capacity for them when they started
    released: int
    lost_races: int  #: writes that the ledger refused because another process was faster
    seconds: float
    #: after each job that started: the requested and the allocated thousandths of GPUs
    arrived: tuple[int, ...] = ()
    allocated: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        """Jobs that started in a second."""
        return (self.placed + self.refused) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        jobs = f"{self.placed} placed, {self.refused} refused, {self.released} released"
        return f"{jobs}, {self.lost_races} lost races ({self.rate:.0f} jobs a second)"


def put_hosts(ledger: Ledger, trace: Trace) -> None:
    """Create the hosts of a trace in a ledger, or update them."""
    for first in range(0, len(trace.hosts), _BATCH):
        ledger.sync(*(host.provider() for host in trace.hosts[first : first + _BATCH]))


def replay(
    ledger: Ledger,
    trace: Trace,
    *,
    order: Order | str = "pack",
    pipeline: Pipeline | None = None,
    share: tuple[int, int] = (0, 1),
    name: str = "trace",
    progress: Callable[[int, int], object] | None = None,
) -> Replay:
    """Claim and release the jobs of a trace on a ledger with its hosts.

    :param order: the order of hosts, as for ``snapshot.candidates``
    :param pipeline: the filters and weighers of a scheduler, which come before the order
    :param share: ``(number, processes)``: every job whose number modulo ``processes`` is ``number``
    :param name: of this replay, in operation ids. A replay of the same name on the same ledger
        repeats what was done, as a process that was killed needs; another replay needs another name
    :param progress: called after each job that started with the number of these, and of all
    :raises InvalidInput: for an invalid share

    >>> import resource_objects as ro
    >>> trace = Trace.generated(hosts=4, jobs=30, seed=5)
    >>> with ro.connect("memory://") as ledger:
    ...     put_hosts(ledger, trace)
    ...     result = replay(ledger, trace)
    >>> result.placed + result.refused, result.lost_races
    (30, 0)
    """
    number, processes = share
    if not 0 <= number < processes:
        raise InvalidInput("field", "share", share, "(number from 0, how many processes)")
    jobs = sorted(trace.jobs, key=lambda job: job.created)[number::processes]
    running = _Running(ledger, name, Order.of(order), pipeline)
    allocated = []
    start = time.perf_counter()
    with _Races() as races:
        for started, job in enumerate(jobs, 1):
            running.release_until(job.created)
            running.start(job)
            allocated.append(running.gpu_parts)
            if progress is not None:
                progress(started, len(jobs))
        running.release_until(float("inf"))
    seconds = time.perf_counter() - start
    placed, released = running.placed, running.released
    arrived = tuple(itertools.accumulate(job.gpu_parts for job in jobs))
    refused = len(jobs) - placed
    return Replay(placed, refused, released, races.count, seconds, arrived, tuple(allocated))


class _Running:
    """The jobs with allocations."""

    def __init__(self, ledger: Ledger, name: str, order: Order, pipeline: Pipeline | None) -> None:
        self._ledger, self._name, self._order = ledger, name, order
        self._scheduler = (
            None if pipeline is None else Scheduler(ledger, pipeline=pipeline, order=order)
        )
        self._ends: list[tuple[float, str, int]] = []
        self.placed = self.released = self.gpu_parts = 0

    def start(self, job: TraceJob) -> None:
        """Claim a job if a host has capacity for it."""
        try:
            self._ledger.claim(job.name, self._candidates(job), operation=self._operation(job.name))
        except CapacityException:
            return
        self.placed += 1
        self.gpu_parts += job.gpu_parts
        if job.deleted is not None:
            heapq.heappush(self._ends, (job.deleted, job.name, job.gpu_parts))

    def release_until(self, moment: float) -> None:
        """Release the jobs that end until a moment."""
        while self._ends and self._ends[0][0] <= moment:
            _, job, parts = heapq.heappop(self._ends)
            self._ledger.release(job, operation=self._operation(job, "end"))
            self.released += 1
            self.gpu_parts -= parts

    def _candidates(self, job: TraceJob) -> Candidates:
        if self._scheduler is not None:
            return self._scheduler.candidates(job.request())
        snapshot, limit = self._ledger.snapshot(), _CANDIDATES
        return snapshot.candidates(job.request(), limit=limit, per_host=1, order=self._order)

    def _operation(self, job: str, step: str = "begin") -> str:
        return str(uuid.uuid5(_SPACE, f"{self._name}/{job}/{step}"))


def replay_by_processes(
    url: str,
    trace: Trace,
    processes: int,
    *,
    order: Order | str = "random",
    pipeline: Pipeline | None = None,
    name: str = "trace",
) -> tuple[Replay, ...]:
    """Let several processes share the jobs of a trace, each with a ledger of its own at ``url``.

    :param order: the order of hosts; processes with the same first host lose races
    :param pipeline: as for :func:`replay`; each process has a copy
    :raises InvalidInput: for fewer than one process
    """
    if processes < 1:
        raise InvalidInput("field", "processes", processes, "1 or more")
    shares = [(number, processes) for number in range(processes)]
    options = {"order": order, "pipeline": pipeline, "name": name}
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return tuple(pool.map(functools.partial(_share, url, trace, options), shares))


def _share(url: str, trace: Trace, options: Mapping[str, Any], share: tuple[int, int]) -> Replay:
    with connect(url) as ledger:
        return replay(ledger, trace, share=share, **options)


class _Races(logging.Handler):
    """Counts the lost races in the log of the ledger."""

    _LOGGER = logging.getLogger("resource_objects.ledger")

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "tried again" in record.msg

    def __enter__(self) -> _Races:
        self._before = self._LOGGER.level, self._LOGGER.propagate
        self._LOGGER.setLevel(logging.DEBUG)
        self._LOGGER.propagate = False
        self._LOGGER.addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._LOGGER.removeHandler(self)
        level, self._LOGGER.propagate = self._before
        self._LOGGER.setLevel(level)


def plot_replays(
    replays: Mapping[str, Replay], gpu_parts: int, path: str | os.PathLike[str]
) -> None:
    """Draw the allocated GPUs after each job that started, a line for each replay.

    :param replays: by label
    :param gpu_parts: the thousandths of GPUs of all hosts
    :param path: its suffix is the format: ``.svg``, ``.png``, ``.pdf``
    :raises PluginError: if Matplotlib (the extra ``plot``) is not installed
    :raises InvalidInput: if there are no GPUs
    """
    if not gpu_parts:
        raise _invalid_trace("plot", "no GPUs", "hosts with GPUs")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        expected = "it is not installed: pip install 'resource_objects[plot]'"
        raise PluginError("matplotlib", "plots", expected) from error
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for label, result in replays.items():
        percent = [100 * allocated / gpu_parts for allocated in result.allocated]
        axes.plot(percent, linewidth=1, label=f"{label}: {result.refused} refused")
    axes.legend()
    axes.set_xlabel("jobs that started")
    axes.set_ylabel("allocated, % of all GPUs")
    figure.savefig(path)
