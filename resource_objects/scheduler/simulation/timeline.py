"""A trace on a ledger: jobs come and go in the order of their times, as fast as the ledger can.

Several processes share the jobs, each searching for itself; the ledger has the last word. Every
write has an operation id that follows from the job, so a process that died is begun again from its
first job and does nothing twice.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import logging
import multiprocessing
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from resource_objects.exceptions import CapacityException, InvalidInput
from resource_objects.ledger import Ledger, connect
from resource_objects.scheduler.driver import Scheduler
from resource_objects.scheduler.pipeline import Pipeline
from resource_objects.scheduler.simulation.trace import Trace, TraceJob
from resource_objects.search import Candidates, Order

#: So many candidates are at hand for lost races.
_CANDIDATES = 5
#: Hosts that are written in one transaction.
_BATCH = 200
#: In which the ids of operations are named.
_SPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "trace.resource_objects")


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """What became of the jobs of one process."""

    placed: int
    refused: int  #: no host could hold them when they came
    released: int
    lost_races: int  #: writes that the ledger refused because somebody was faster
    seconds: float
    #: after each job that came: what was asked and what is held then, in thousandths of a GPU
    arrived: tuple[int, ...] = ()
    held: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        """Jobs that came in a second."""
        return (self.placed + self.refused) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        told = f"{self.placed} placed, {self.refused} refused, {self.released} released"
        return f"{told}, {self.lost_races} lost races ({self.rate:.0f} jobs a second)"


def put_hosts(ledger: Ledger, trace: Trace) -> None:
    """Write the hosts of a trace, those that are there already as the trace says."""
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
    """Let the jobs of a trace come and go on a ledger that has its hosts.

    :param order: in which hosts are taken, as for ``snapshot.candidates``
    :param pipeline: the filters and weighers of a scheduler, which go before the order; None: none
    :param share: ``(number, processes)``: only every so many-th job, from that number on
    :param name: of this replay, in operation ids. The same again on the same ledger repeats what
        was done, as a process that died has to; another replay needs another name
    :param progress: called after each job that came with how many did, and of how many
    :raises InvalidInput: for a share that is none

    >>> import resource_objects as ro
    >>> trace = Trace.generated(hosts=4, jobs=30, seed=5)
    >>> with ro.connect("memory://") as ledger:
    ...     put_hosts(ledger, trace)
    ...     done = replay(ledger, trace)
    >>> done.placed + done.refused, done.lost_races
    (30, 0)
    """
    number, processes = share
    if not 0 <= number < processes:
        raise InvalidInput("field", "share", share, "(number from 0, how many processes)")
    jobs = sorted(trace.jobs, key=lambda job: job.created)[number::processes]
    running = _Running(ledger, name, Order.of(order), pipeline)
    arrived, held = [], []
    begun = time.perf_counter()
    with _Races() as races:
        for come, job in enumerate(jobs, 1):
            running.end_until(job.created)
            running.begin(job)
            arrived.append(job.gpu_parts)
            held.append(running.gpu_parts)
            if progress is not None:
                progress(come, len(jobs))
        running.end_until(float("inf"))
    seconds = time.perf_counter() - begun
    return Replay(
        running.placed,
        len(jobs) - running.placed,
        running.released,
        races.count,
        seconds,
        tuple(itertools.accumulate(arrived)),
        tuple(held),
    )


def replay_by_processes(
    url: str,
    trace: Trace,
    processes: int,
    *,
    order: Order | str = "random",
    pipeline: Pipeline | None = None,
    name: str = "trace",
) -> tuple[Replay, ...]:
    """Let several processes share the jobs of a trace, each on a ledger of its own at ``url``.

    :param order: in which hosts are taken; who all take the first one lose races
    :param pipeline: as for :func:`replay`; each process gets a copy
    :raises InvalidInput: for a number of processes below 1
    """
    if processes < 1:
        raise InvalidInput("field", "processes", processes, "1 or more")
    shares = [(number, processes) for number in range(processes)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return tuple(pool.map(partial(_share, url, trace, order, pipeline, name), shares))


def _share(
    url: str,
    trace: Trace,
    order: Order | str,
    pipeline: Pipeline | None,
    name: str,
    share: tuple[int, int],
) -> Replay:
    with connect(url) as ledger:
        return replay(ledger, trace, order=order, pipeline=pipeline, share=share, name=name)


class _Running:
    """The jobs that hold something."""

    def __init__(self, ledger: Ledger, name: str, order: Order, pipeline: Pipeline | None) -> None:
        self._ledger, self._name, self._order = ledger, name, order
        self._scheduler = None
        if pipeline is not None:
            self._scheduler = Scheduler(ledger, pipeline=pipeline, order=order)
        self._ends: list[tuple[float, str, int]] = []
        self.placed = self.released = 0
        self.gpu_parts = 0

    def _operation(self, job: str, what: str) -> str:
        return str(uuid.uuid5(_SPACE, f"{self._name}/{job}/{what}"))

    def _found(self, job: TraceJob) -> Candidates:
        if self._scheduler is not None:
            return self._scheduler.candidates(job.request())
        return self._ledger.snapshot().candidates(
            job.request(), limit=_CANDIDATES, per_host=1, order=self._order
        )

    def begin(self, job: TraceJob) -> None:
        """Place a job where there is room for it."""
        found = self._found(job)
        try:
            self._ledger.claim(job.name, found, operation=self._operation(job.name, "begin"))
        except CapacityException:
            return
        self.placed += 1
        self.gpu_parts += job.gpu_parts
        if job.deleted is not None:
            heapq.heappush(self._ends, (job.deleted, job.name, job.gpu_parts))

    def end_until(self, moment: float) -> None:
        """Release the jobs that end until then."""
        while self._ends and self._ends[0][0] <= moment:
            _, name, parts = heapq.heappop(self._ends)
            self._ledger.release(name, operation=self._operation(name, "end"))
            self.released += 1
            self.gpu_parts -= parts


class _Races(logging.Handler):
    """Counts the races that the ledger's log tells of."""

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
