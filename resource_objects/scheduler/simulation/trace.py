"""A trace: hosts, and jobs with when each comes and goes; read from CSV, or made from a seed.

The columns are those of the public GPU cluster traces of Alibaba (``openb_node_list_*.csv``,
``openb_pod_list_*.csv``): CPUs in thousandths, MiB of memory, GPUs, and of a job that takes a part
of one GPU how many thousandths; times in seconds. Further columns are ignored.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_FIGURE
from resource_objects.host.partitions import thousandths
from resource_objects.providers import Provider
from resource_objects.requests import Request

_invalid_trace = functools.partial(InvalidInput, "trace")

#: Into how many parts a GPU can be divided.
PARTS = 1000
#: The classes that hosts and jobs are said in.
CPU, MEMORY, GPU, GPU_PART = (
    "CUSTOM_CPU_MILLI",
    "MEMORY_MB",
    "PGPU",
    "CUSTOM_PGPU_THOUSANDTHS",
)
#: More GPUs than any host has.
_MOST_GPUS = 1024

_HOST_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")
_JOB_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    *("creation_time", "deletion_time"),
)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class TraceHost:
    """A host: what it has of counts, and how many GPUs."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int

    def provider(self) -> Provider:
        """Return it as a tree of providers: each GPU one, to be had whole or in parts."""
        counts = {CPU: self.cpu_milli, MEMORY: self.memory_mib}
        host = Provider(self.name, {name: total for name, total in counts.items() if total})
        for number in range(self.gpus):
            thousandths(host.add(f"{self.name}/gpu{number}", {GPU: 1}))
        return host


@dataclasses.dataclass(frozen=True, slots=True)
class TraceJob:
    """A job: what it takes, from when and until when (in seconds; None: it stays)."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int  #: of each of its GPUs: 1000, or less of one
    created: float = 0.0
    deleted: float | None = None

    @property
    def gpu_parts(self) -> int:
        """All that it takes of GPUs, in thousandths."""
        return self.gpus * self.gpu_milli

    def request(self) -> Request:
        """Return what it asks for."""
        asked = {CPU: self.cpu_milli, MEMORY: self.memory_mib}
        whole = self.gpu_milli == PARTS
        asked |= {GPU: self.gpus} if whole else {GPU_PART: self.gpu_parts}
        return Request({name: amount for name, amount in asked.items() if amount})


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
        """All GPUs of the hosts, in thousandths."""
        return PARTS * sum(host.gpus for host in self.hosts)

    @classmethod
    def read(cls, hosts: str | os.PathLike[str], jobs: str | os.PathLike[str]) -> Trace:
        """Return a trace of two CSV files.

        :raises InvalidInput: naming the file and the line: for a column that is missing, a value
            that is no number or too large, a name that comes twice, a job that goes before it comes
        """
        return cls(_rows(hosts, _HOST_COLUMNS, _host), _rows(jobs, _JOB_COLUMNS, _job))

    @classmethod
    def generated(cls, *, hosts: int, jobs: int, seed: int = 0) -> Trace:
        """Return a trace made like the published ones: the same again for the same seed.

        Hosts have 2, 4 or 8 GPUs with 12 to 16 CPUs for each; of the jobs every seventh takes no
        GPU, half of the others a part of one, a few several.
        """
        chance = random.Random(seed)
        have = [2, 4, 8, 8]
        made = []
        for number in range(hosts):
            gpus = chance.choice(have)
            cpus = gpus * chance.choice([12, 16])
            made.append(TraceHost(f"host-{number:04}", cpus * 1000, cpus * 6144, gpus))
        return cls(made, [_made_job(number, chance) for number in range(jobs)])

    def check_gpus(self) -> None:
        """Raise if there is nothing to place, or no place.

        :raises InvalidInput: if no host has a GPU, or no job asks for one
        """
        if not self.gpu_parts or not any(job.gpu_parts for job in self.jobs):
            raise _invalid_trace("trace", "no GPUs", "hosts with GPUs, and jobs for them")

    def drawn(self, load: float, seed: int) -> Iterator[TraceJob]:
        """Yield jobs drawn at random, with repetition, until they ask for ``load`` of all GPUs.

        :raises InvalidInput: if no host has a GPU, or no job asks for one
        """
        self.check_gpus()
        there = self.gpu_parts
        chance, asked = random.Random(seed), 0
        while asked < load * there:
            job = self.jobs[chance.randrange(len(self.jobs))]
            asked += job.gpu_parts
            yield job


def _made_job(number: int, chance: random.Random) -> TraceJob:
    kind = chance.random()
    gpus, milli = (0, 0) if kind < 1 / 7 else (1, PARTS)
    if kind > 0.97:
        gpus = chance.choice([2, 4, 8])
    elif kind > 4 / 7:
        milli = chance.choice([160, 230, 320, 470, 500, 650, 810])
    cpus = chance.choice([2, 4, 6, 8]) * max(1, gpus)
    created = float(number)
    lasts = chance.expovariate(1 / 200)
    return TraceJob(
        f"job-{number:05}", cpus * 1000, cpus * 2048, gpus, milli, created, created + lasts
    )


# --- reading --------------------------------------------------------------------------------------


def _rows(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    made: Callable[[Mapping[str, str], str], T],
) -> list[T]:
    found: list[T] = []
    seen: dict[str, int] = {}
    with open(path, encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
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
                if name in seen:
                    expected = f"a name that line {seen[name]} has not"
                    raise _invalid_trace(at, name, expected)
                seen[name] = reader.line_num
                found.append(made(row, at))
        except (csv.Error, UnicodeDecodeError) as error:
            at = f"{path}: line {reader.line_num + 1}"
            raise _invalid_trace(at, str(error), "comma-separated text") from error
    return found


def _host(row: Mapping[str, str], at: str) -> TraceHost:
    return TraceHost(
        row["sn"],
        _number(row, "cpu_milli", at),
        _number(row, "memory_mib", at),
        _number(row, "gpu", at, _MOST_GPUS),
    )


def _job(row: Mapping[str, str], at: str) -> TraceJob:
    gpus, milli = _number(row, "num_gpu", at, _MOST_GPUS), _number(row, "gpu_milli", at, PARTS)
    if (gpus > 1 and milli != PARTS) or bool(gpus) != bool(milli):
        told = f"{gpus} GPUs of {milli} thousandths"
        raise _invalid_trace(at, told, "whole GPUs, or a part of one")
    if not any(_number(row, name, at) for name in ("cpu_milli", "memory_mib", "num_gpu")):
        raise _invalid_trace(at, row["name"], "a job that asks for something")
    created = _moment(row, "creation_time", at)
    deleted = _moment(row, "deletion_time", at)
    if created is not None and deleted is not None and deleted < created:
        raise _invalid_trace(at, deleted, f"a deletion_time from {created:g} on")
    return TraceJob(
        row["name"],
        _number(row, "cpu_milli", at),
        _number(row, "memory_mib", at),
        gpus,
        milli,
        created or 0.0,
        deleted,
    )


def _number(row: Mapping[str, str], name: str, at: str, most: int = MAX_FIGURE) -> int:
    text = row[name]
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise _invalid_trace(f"{at}: {name}", text, f"an integer from 0 to {most}")
    return int(text)


def _moment(row: Mapping[str, str], name: str, at: str) -> float | None:
    """Return a time in seconds, None where there is none."""
    if not row[name]:
        return None
    try:
        found = float(row[name])
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise _invalid_trace(f"{at}: {name}", row[name], "seconds from 0, or nothing")
    return found
