"""An experiment: several schedulers place jobs on one ledger, each with snapshots of its own.

Each scheduler is a process that reads a snapshot, searches it and claims the result, until nine
tenths of the fleet are allocated. They are not coordinated; only the ledger refuses. There are two
sizes of jobs on equal hosts: eight on a host, and one on a host.

* A *lost race* is a commit that the ledger refused because another scheduler was faster. The next
  candidate is tried, then a new search.
* *Changed, allocated at once* are claims whose host changed between the snapshot and the commit,
  and which took effect at the first try because there was still capacity. They would be refused if
  any change of a host were a conflict. The change feed, which orders all writes of a tree, counts
  them afterwards.
* *Refused in the end* are claims whose retries were exhausted although a tenth of the fleet is
  free. There must be none.

Each figure is of one run of some seconds, so on a small machine races vary from run to run.
"""

from __future__ import annotations

import bisect
import itertools
import multiprocessing
import random
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import resource_objects as ro
from benchmarks import fleets, servers
from benchmarks.measure import RATE, Row
from resource_objects.exceptions import CapacityException, ResourceObjectsError
from resource_objects.providers.feed import Cursor
from resource_objects.requests import Request
from resource_objects.search.order import Order

SCHEDULERS = (1, 4, 16)
#: Titles of orders, and whether each search has a seed of its own, which shuffles the best hosts.
ORDERS: Mapping[str, tuple[str, bool]] = {
    "name": ("name", False),
    "pack": ("pack", False),
    "pack by seed": ("pack", True),
    "random": ("random", True),
}
#: With a seed, this part of the hosts is among the best.
ONE_IN = 4
HAS = {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 80}
FULL = 0.9
#: Seconds after which a run ends.
LONGEST = 10.0


class Jobs(NamedTuple):
    """Equal jobs: a title, the number that fit on a host, and the number of hosts."""

    name: str
    per_host: int
    hosts: int

    @property
    def request(self) -> Request:
        """The request of one job."""
        return Request({name: total // self.per_host for name, total in HAS.items()})

    def order(self, name: str) -> Order:
        """Return one of :data:`ORDERS`."""
        return Order(ORDERS[name][0], among=max(1, self.hosts // ONE_IN))

    @property
    def count(self) -> int:
        """The number of jobs that are placed."""
        return int(self.hosts * self.per_host * FULL)


SMALL, WHOLE = Jobs("eighths of hosts", 8, 64), Jobs("whole hosts", 1, 300)


class Placed(NamedTuple):
    """A claim: its consumer, the feed's cursor of its snapshot, and the number of tries."""

    consumer: str
    cursor: Cursor
    tries: int


class Result(NamedTuple):
    """The claims of schedulers, and their counts."""

    placed: list[Placed]
    searches: int
    lost: int
    given_up: int
    seconds: float


def rows() -> Iterator[Row]:
    """Yield the rows of each kind of database and of jobs."""
    for kind in servers.reachable():
        for jobs in (SMALL, WHOLE):
            yield from servers.in_a_process(experiments, kind, jobs)


def experiments(
    kind: str,
    jobs: Jobs,
    schedulers: Sequence[int] = SCHEDULERS,
    orders: Sequence[str] = tuple(ORDERS),
) -> Iterator[Row]:
    """Yield the rows of runs with each number of schedulers and each order.

    It forks, so it runs in a process without connections.
    """
    warnings.simplefilter("ignore")
    for number, order in itertools.product(schedulers, orders):
        title = f"{servers.TITLES[kind]}, {jobs.name}, {number} schedulers, order {order}"
        for (name, unit), figure in run(kind, jobs, order, number).items():
            yield Row(f"{title}: {name}", unit, figure)


def run(kind: str, jobs: Jobs, order: str, schedulers: int) -> dict[tuple[str, str], float]:
    """Return the figures of one run, by name and unit."""
    hosts = (ro.Provider(f"host-{number:03}", HAS) for number in range(jobs.hosts))
    with servers.ledger_database(kind) as url:
        with ro.connect(url) as ledger:
            fleets.sync(ledger, hosts)
        servers.analyze(url)
        result = _run_processes(url, jobs, order, schedulers)
        changed = changed_meanwhile(url, result.placed)
    claims = max(1, len(result.placed))
    figures = {
        ("claims", RATE): claims / result.seconds,
        ("lost races", "per 100 claims"): 100 * result.lost / claims,
        ("searches", "per 100 claims"): 100 * result.searches / claims,
        ("refused in the end", "of 100 claims"): 100 * result.given_up / claims,
    }
    if jobs.per_host > 1:  # else a changed host has no capacity left
        figures["changed, allocated at once", "of 100 claims"] = 100 * changed / claims
    return figures


def _run_processes(url: str, jobs: Jobs, order: str, schedulers: int) -> Result:
    fork = multiprocessing.get_context("fork")
    barrier, queue, count = fork.Barrier(schedulers), fork.SimpleQueue(), fork.Value("i", 0)
    children = [
        fork.Process(target=_schedule, args=(url, jobs, order, number, barrier, count, queue))
        for number in range(schedulers)
    ]
    for child in children:
        child.start()
    results = [queue.get() for _ in children]
    for child in children:
        child.join()
    for result in results:
        if isinstance(result, str):
            raise RuntimeError(result)
    return Result(
        [claim for result in results for claim in result.placed],
        sum(result.searches for result in results),
        sum(result.lost for result in results),
        sum(result.given_up for result in results),
        max(result.seconds for result in results),
    )


# --- one scheduler --------------------------------------------------------------------------------


def _schedule(
    url: str, jobs: Jobs, order: str, number: int, barrier: Any, count: Any, queue: Any
) -> None:
    try:
        with ro.connect(url) as ledger:
            scheduler = Scheduler(ledger, jobs, order, number)
            ledger.snapshot().candidates(scheduler.request)
            barrier.wait(60)
            start = time.perf_counter()
            while count.value < jobs.count and time.perf_counter() < start + LONGEST:
                if scheduler.place():
                    with count.get_lock():
                        count.value += 1
            queue.put(scheduler.result(time.perf_counter() - start))
    except BaseException:
        barrier.abort()
        queue.put(traceback.format_exc())


class Scheduler:
    """A loop of searches and claims that counts searches, tries and lost races."""

    def __init__(self, ledger: ro.Ledger, jobs: Jobs, order: str, number: int) -> None:
        self.request = jobs.request
        self._order, self._is_seeded = jobs.order(order), ORDERS[order][1]
        self._number = number
        self._random = random.Random(number)
        self.ledger = ledger
        self._placed: list[Placed] = []
        self._searches = self._tries = self._lost = self._given_up = 0
        self._count_commits(ledger.backend)
        self._snapshot = ledger.snapshot
        ledger.snapshot = self._counting_snapshot  # type: ignore[method-assign]  # claim() searches

    def _counting_snapshot(self, at: str | None = None) -> Any:
        self._searches += 1
        return self._snapshot(at)

    def _count_commits(self, backend: Any) -> None:
        commit = backend.commit

        def counting_commit(*args: Any, **options: Any) -> Any:
            self._tries += 1
            try:
                return commit(*args, **options)
            except ResourceObjectsError:
                self._lost += 1
                raise

        backend.commit = counting_commit

    def place(self) -> bool:
        """Place one job; return True if it was placed."""
        consumer = f"job-{self._number}-{len(self._placed) + self._given_up}"
        seed = self._random.getrandbits(32) if self._is_seeded else None
        snapshot = self.ledger.snapshot()
        candidates = snapshot.candidates(self.request, order=self._order, seed=seed)
        before = self._tries
        try:
            self.ledger.claim(consumer, candidates)
        except CapacityException:
            self._given_up += 1
            return False
        self._placed.append(Placed(consumer, snapshot.cursor, self._tries - before))
        return True

    def result(self, seconds: float) -> Result:
        """Return the claims and counts."""
        return Result(self._placed, self._searches, self._lost, self._given_up, seconds)


# --- the change feed ------------------------------------------------------------------------------


def changed_meanwhile(url: str, placed: list[Placed]) -> int:
    """Return the number of claims that took effect at the first try on a changed host."""
    writes: dict[str, tuple[str, int, int]] = {}
    numbers: dict[str, list[int]] = defaultdict(list)
    with ro.connect(url) as ledger:
        cursor = Cursor((0,) * len(ledger.feed.cursor().heads))
        while changes := ledger.feed.changes(cursor):
            cursor = changes.cursor
            for change in changes:
                for key in change.providers:
                    numbers[key].append(change.number)
                    names = change.consumers
                    writes.update((name, (key, change.shard, change.number)) for name in names)
    count = 0
    for claim in placed:
        key, shard, number = writes[claim.consumer]
        changes_of_host = sorted(numbers[key])
        seen = bisect.bisect_right(changes_of_host, claim.cursor.heads[shard])
        count += claim.tries == 1 and seen < bisect.bisect_left(changes_of_host, number)
    return count
