"""An experiment: 1 to 16 schedulers place jobs on one ledger, each searching for itself.

Every scheduler is a process: it takes a fresh snapshot, searches it, and claims what it found,
until nine tenths of the fleet are taken. Nobody coordinates them; the ledger has the last word. Two
kinds of jobs, on hosts that are all alike: such that eight go on a host, and such that take all of
one.

* A *lost race* is a commit that the ledger refused, because somebody was faster: the next candidate
  is tried, then a fresh search made.
* *Changed, and taken at once* are claims whose host was changed by somebody else between the
  snapshot and the commit, and which succeeded at the first try all the same, because there was
  still room: what would have been refused if any change of a host were a conflict. This is counted
  afterwards, from the change feed, which numbers all writes of a tree in their order.
* *Refused in the end* are claims for which all candidates were gone, of all fresh searches that the
  retry policy makes, although a tenth of the fleet is free: there must be none.

Each figure is of one run of some seconds: on a small machine races are what the moment makes them.
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
from benchmarks import servers
from benchmarks.candidates_beside import filled
from benchmarks.measure import Row
from resource_objects.exceptions import CapacityException, Stale
from resource_objects.providers.feed import Cursor
from resource_objects.requests import Request
from resource_objects.search.order import Order

SCHEDULERS = (1, 4, 16)
#: By its name: an order, and whether each search has a seed of its own, so that hosts are shuffled.
ORDERS: Mapping[str, tuple[str, bool]] = {
    "name": ("name", False),
    "pack": ("pack", False),
    "spread": ("spread", False),
    "pack by seed": ("pack", True),
    "spread by seed": ("spread", True),
    "random": ("random", True),
}
#: With a seed, so many of the hosts are near enough to the best: one in four.
ONE_IN = 4
HAS = {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 80}
FULL = 0.9
#: Seconds after which a run is ended, full or not.
PATIENCE = 10.0


class Jobs(NamedTuple):
    """What is placed, and on how many hosts."""

    name: str
    per_host: int
    hosts: int

    @property
    def request(self) -> Request:
        """What one job asks."""
        return Request({name: total // self.per_host for name, total in HAS.items()})

    def order(self, name: str) -> Order:
        """Return one of :data:`ORDERS`."""
        by, _ = ORDERS[name]
        return Order(by, among=max(1, self.hosts // ONE_IN))

    @property
    def count(self) -> int:
        """How many are placed."""
        return int(self.hosts * self.per_host * FULL)


SMALL, WHOLE = Jobs("eighths of hosts", 8, 64), Jobs("whole hosts", 1, 300)


class Taken(NamedTuple):
    """One claim: where the feed was when it was searched for, and how often it was tried."""

    consumer: str
    cursor: Cursor
    tries: int


class Result(NamedTuple):
    """What schedulers did."""

    taken: list[Taken]
    searches: int
    lost: int
    given_up: int
    seconds: float


def rows() -> Iterator[Row]:
    """Yield the points of four grids for each kind of database and of jobs."""
    for kind in servers.reachable():
        for jobs in (SMALL, WHOLE):
            yield from servers.in_a_process(points, kind, jobs)


def points(
    kind: str,
    jobs: Jobs,
    schedulers: Sequence[int] = SCHEDULERS,
    orders: Sequence[str] = tuple(ORDERS),
) -> Iterator[Row]:
    """Yield the points of the grids of one kind of database and of jobs.

    To be run in a process that has no connections: it forks.
    """
    warnings.simplefilter("ignore")
    for number, order in itertools.product(schedulers, orders):
        for (what, unit), figure in run(kind, jobs, order, number).items():
            name = f"{servers.SHOWN[kind]}, {jobs.name}: {what}"
            yield Row(name, unit, figure, point=(number, order), axes=("schedulers", "order"))


def run(kind: str, jobs: Jobs, order: str, schedulers: int) -> dict[tuple[str, str], float]:
    """Return the figures of one run, by what they are and their unit."""
    with servers.database(kind) as url:
        hosts = (ro.Provider(f"host-{number:03}", HAS) for number in range(jobs.hosts))
        filled(url, hosts).close()
        found = _all(url, jobs, order, schedulers)
        changed = changed_meanwhile(url, found.taken)
    claims = max(1, len(found.taken))
    figures = {
        ("claims", "per second"): claims / found.seconds,
        ("lost races", "per 100 claims"): 100 * found.lost / claims,
        ("searches", "per 100 claims"): 100 * found.searches / claims,
        ("refused in the end", "of 100 claims"): 100 * found.given_up / claims,
    }
    if jobs.per_host > 1:  # else nothing is left of a host that was changed
        figures["changed, and taken at once", "of 100 claims"] = 100 * changed / claims
    return figures


def _all(url: str, jobs: Jobs, order: str, schedulers: int) -> Result:
    fork = multiprocessing.get_context("fork")
    barrier, results, count = fork.Barrier(schedulers), fork.SimpleQueue(), fork.Value("i", 0)
    children = [
        fork.Process(target=_schedule, args=(url, jobs, order, number, barrier, count, results))
        for number in range(schedulers)
    ]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    for one in found:
        if isinstance(one, str):
            raise RuntimeError(one)
    return Result(
        [taken for one in found for taken in one.taken],
        sum(one.searches for one in found),
        sum(one.lost for one in found),
        sum(one.given_up for one in found),
        max(one.seconds for one in found),
    )


# --- one scheduler --------------------------------------------------------------------------------


def _schedule(
    url: str, jobs: Jobs, order: str, number: int, barrier: Any, count: Any, results: Any
) -> None:
    try:
        with ro.connect(url) as ledger:
            scheduler = Scheduler(ledger, jobs, order, number)
            ledger.snapshot().candidates(scheduler.request)
            barrier.wait(60)
            start = time.perf_counter()
            while count.value < jobs.count and time.perf_counter() < start + PATIENCE:
                if scheduler.place():
                    with count.get_lock():
                        count.value += 1
            results.put(scheduler.result(time.perf_counter() - start))
    except BaseException:
        barrier.abort()
        results.put(traceback.format_exc())


class Scheduler:
    """A loop of searches and claims that counts what it does."""

    def __init__(self, ledger: ro.Ledger, jobs: Jobs, order: str, number: int) -> None:
        self.request = jobs.request
        self._order, self._is_seeded = jobs.order(order), ORDERS[order][1]
        self._number = number
        self._chance = random.Random(number)
        self.ledger = ledger
        self._taken: list[Taken] = []
        self._searches = self._tries = self._lost = self._given_up = 0
        self._count_commits(ledger.backend)
        self._snapshot = ledger.snapshot
        ledger.snapshot = self._counted  # type: ignore[method-assign]  # claim() searches again

    def _counted(self, at: str | None = None) -> Any:
        self._searches += 1
        return self._snapshot(at)

    def _count_commits(self, backend: Any) -> None:
        commit = backend.commit

        def counted(*given: Any, **named: Any) -> Any:
            self._tries += 1
            try:
                return commit(*given, **named)
            except (CapacityException, Stale):
                self._lost += 1
                raise

        backend.commit = counted

    def place(self) -> bool:
        """Place one job; return whether it was placed."""
        consumer = f"job-{self._number}-{len(self._taken) + self._given_up}"
        seed = self._chance.getrandbits(32) if self._is_seeded else None
        snapshot = self.ledger.snapshot()
        found = snapshot.candidates(self.request, order=self._order, seed=seed)
        before = self._tries
        try:
            self.ledger.claim(consumer, found)
        except CapacityException:
            self._given_up += 1
            return False
        self._taken.append(Taken(consumer, snapshot.cursor, self._tries - before))
        return True

    def result(self, seconds: float) -> Result:
        """Return what was done."""
        return Result(self._taken, self._searches, self._lost, self._given_up, seconds)


# --- afterwards -----------------------------------------------------------------------------------


def changed_meanwhile(url: str, taken: list[Taken]) -> int:
    """Return how many claims took at the first try what others had changed since the snapshot."""
    writes: dict[str, tuple[str, int, int]] = {}
    numbers: dict[str, list[int]] = defaultdict(list)
    with ro.connect(url) as ledger:
        cursor = Cursor((0,) * len(ledger.feed.cursor().heads))
        while True:
            changes = ledger.feed.changes(cursor)
            cursor = changes.cursor
            if not changes:
                break
            for one in changes:
                for uuid in one.providers:
                    numbers[uuid].append(one.number)
                    writes.update((name, (uuid, one.shard, one.number)) for name in one.consumers)
    count = 0
    for claim in taken:
        uuid, shard, number = writes[claim.consumer]
        ours = sorted(numbers[uuid])
        seen = bisect.bisect_right(ours, claim.cursor.heads[shard])
        count += claim.tries == 1 and seen < bisect.bisect_left(ours, number)
    return count
