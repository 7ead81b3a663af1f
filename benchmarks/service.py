"""The service beside the real Placement: the same requests, by the same client, over HTTP.

Runs only where openstack-placement is installed (``tox -e placement-benchmarks``). Both stand under
gunicorn with the same settings (:mod:`benchmarks.service_sides`), each on a database of its own on
the same disk or server, with the same providers of the same uuids. A connection is kept open, and
both are asked in turn. Besides what a client waits for, the time of the processor is told that the
service itself took for a request.

The fleets and what is asked of them are those of the part *candidates*.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks import candidates_asked as asked
from benchmarks import hot, peer, peer_fleet, servers, service_sides
from benchmarks.candidates_beside import filled
from benchmarks.measure import Row
from benchmarks.service_sides import Client, Service

#: How many times as fast as Placement.
SEARCHED, SEARCHED_TREES, WRITTEN = 50.0, 100.0, 10.0
HOSTS, TREES, MANY = 10_000, 1_000, 100_000
#: What is put: little, so that all of it fits.
PUT = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
#: What the hot provider has.
HOT = {"VCPU": 1_000_000, "MEMORY_MB": 64_000_000, "DISK_GB": 1_000_000}
WORKERS = 4
MIXED_SECONDS, BUSY_SECONDS = 8.0, 4.0
#: So many keep a process busy that waits for a server. They are threads, which take least from it.
CLIENTS = 3
#: Where one process is asked to write by many at once. On a file of SQLite Placement answers half
#: of them with 500; there one client asks after the other.
AT_ONCE = ("postgresql",)


def rows() -> Iterator[Row]:
    """Yield every comparison on each kind of database, then what a process weighs."""
    for kind in servers.reachable():
        for part in (_flat, _trees, _hot):
            yield from part(kind)
    yield from _weighed()


# --- both, on one fleet ---------------------------------------------------------------------------


class Both(NamedTuple):
    """The databases of both sides, with the same fleet in them."""

    kind: str
    mine: str
    other: str
    uuids: list[str]  #: of the roots

    @contextlib.contextmanager
    def served(self, workers: int) -> Iterator[tuple[Service, Service]]:
        """Run both services."""
        with (
            service_sides.ours(self.mine, workers) as ours,
            service_sides.theirs(self.other, workers) as theirs,
        ):
            yield ours, theirs


@contextlib.contextmanager
def on_both(kind: str, fleet: str, count: int) -> Iterator[Both]:
    """Lend databases of both sides with a fleet of :data:`FLEETS` in them."""
    with servers.database(kind) as mine, servers.database(kind) as other:
        [uuids] = servers.in_a_process(fill, mine, other, fleet, count)
        yield Both(kind, mine, other, uuids)


@contextlib.contextmanager
def on_ours(kind: str, fleet: str, count: int) -> Iterator[Both]:
    """Lend a database of our side alone."""
    with servers.database(kind) as url:
        [uuids] = servers.in_a_process(fill, url, None, fleet, count)
        yield Both(kind, url, "", uuids)


def fill(mine: str, other: str | None, fleet: str, count: int) -> Iterator[list[str]]:
    """Make a fleet on both sides; yield the uuids of its roots. For a process of its own."""
    warnings.simplefilter("ignore")
    with filled(mine, FLEETS[fleet](count)) as ledger:
        columns = ledger.backend.read()
    if other is not None:
        with tempfile.TemporaryDirectory() as folder:
            peer_fleet.keep(peer.Placement(other, pathlib.Path(folder)), columns)
        if not other.startswith("sqlite"):
            servers.analyze(other)
    table = columns.providers
    yield [
        uuid
        for uuid, number, root in zip(table.uuid, table.provider_id, table.root_id, strict=True)
        if number == root
    ]


def _one_hot(count: int) -> Iterator[Any]:
    import resource_objects as ro

    yield from (ro.Provider(f"hot-{number}", HOT) for number in range(count))


FLEETS: dict[str, Callable[[int], Iterator[Any]]] = {
    "flat": asked.flat,
    "trees": asked.trees,
    "hot": _one_hot,
}


def compared(
    name: str,
    both: tuple[Service, Service],
    once: Callable[[Client], object],
    calls: tuple[int, int],
    *,
    least: float | None = None,
    rounds: int = 3,
) -> Iterator[Row]:
    """Yield how often per second a client is answered by each, and what that costs the service.

    :param calls: how often each is asked in a round
    """
    for service in both:
        once(service.client())
    found: list[list[tuple[float, float]]] = []
    for _ in range(rounds):
        sides = zip(both, calls, strict=True)
        found.append([_measured(service, once, count) for service, count in sides])
    yield from _told(name, found, least)


def _told(name: str, found: list[list[tuple[float, float]]], least: float | None) -> Iterator[Row]:
    """Yield medians of rounds, in each of which both sides had a rate and a cost."""
    ratios = [mine[0] / other[0] for mine, other in found]
    ratio = statistics.median(ratios)
    rates, costs = ([[side[at] for side in one] for one in found] for at in (0, 1))
    mine, other = (statistics.median(side) for side in zip(*rates, strict=True))
    target = "" if least is None else f"at least {least:g} times"
    met = None if least is None else ratio >= least
    yield Row(name, "per second", mine, other, peer.NAME, ratio, target, met)
    mine, other = (statistics.median(side) for side in zip(*costs, strict=True))
    yield Row(f"{name}: CPU of the service", "ms", mine, other, peer.NAME, mine / other)


def _measured(
    service: Service, once: Callable[[Client], object], calls: int
) -> tuple[float, float]:
    """Return calls per second, and milliseconds of the processor for each."""
    client = service.client()  # one that waits for its turn is closed after 2 seconds
    took, start = service.seconds(), time.perf_counter()
    for _ in range(calls):
        once(client)
    passed = time.perf_counter() - start
    return calls / passed, (service.seconds() - took) / calls * 1e3


# --- searching and writing ------------------------------------------------------------------------


def _flat(kind: str) -> Iterator[Row]:
    """Searches of 10,000 providers, allocations put, and both by many at the same time."""
    shown = servers.SHOWN[kind]
    with on_both(kind, "flat", HOSTS) as sides:
        with sides.served(1) as services:
            yield from compared(
                f"{shown}: GET /allocation_candidates, {HOSTS:,} providers, limit {asked.LIMIT}",
                services,
                _searching(asked.words()),
                (150, 1),
                least=SEARCHED,
            )
            yield from compared(
                f"{shown}: PUT /allocations/{{consumer}}, one client of one process",
                services,
                _putting(sides.uuids),
                (200, 25),
                least=None if kind in AT_ONCE else WRITTEN,
                rounds=5,
            )
            if kind in AT_ONCE:
                yield from _busy(shown, services, sides.uuids)
        yield from _mixed(sides)


def _trees(kind: str) -> Iterator[Row]:
    with on_both(kind, "trees", TREES) as sides, sides.served(1) as services:
        yield from compared(
            f"{servers.SHOWN[kind]}: GET /allocation_candidates, {TREES:,} trees of "
            f"{asked.GPUS + 3} providers, 2 isolated groups of a GPU",
            services,
            _searching(asked.equal(2)),
            (75, 1),
            least=SEARCHED_TREES,
        )


def _busy(shown: str, both: tuple[Service, Service], uuids: list[str]) -> Iterator[Row]:
    """Yield what one process of each does that some clients keep busy."""
    found: list[list[tuple[float, float]]] = []
    for _ in range(3):
        pair = []
        for service in both:
            took, start = service.seconds(), time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
                counts = clients.map(
                    lambda number, service=service: _put_for_seconds(service, uuids[number:]),
                    range(CLIENTS),
                )
                done = sum(counts)
            passed = time.perf_counter() - start
            pair.append((done / passed, 1e3 * (service.seconds() - took) / done))
        found.append(pair)
    name = f"{shown}: PUT /allocations/{{consumer}}, {CLIENTS} clients of one process"
    yield from _told(name, found, WRITTEN)


def _put_for_seconds(service: Service, uuids: list[str]) -> int:
    """Return how many allocations one client puts until the time is over."""
    client, once, count = service.client(), _putting(uuids), 0
    until = time.perf_counter() + BUSY_SECONDS
    while time.perf_counter() < until:
        once(client)
        count += 1
    return count


def _searching(words: str) -> Callable[[Client], None]:
    def once(client: Client) -> None:
        found = json.loads(client.ask("GET", f"/allocation_candidates?{words}"))
        if len(found["allocation_requests"]) != asked.LIMIT:
            raise AssertionError(f"{len(found['allocation_requests'])} candidates for {words}")

    return once


def _putting(uuids: list[str]) -> Callable[[Client], None]:
    places = itertools.cycle(uuids)

    def once(client: Client) -> None:
        status = client.claim(next(places), PUT)
        if status != 204:
            raise AssertionError(f"PUT of allocations that fit: {status}")

    return once


# --- many at the same time ------------------------------------------------------------------------


def _hot(kind: str) -> Iterator[Row]:
    """Eight clients, each a process, put allocations on one provider."""
    with on_both(kind, "hot", 1) as sides:
        [uuid] = sides.uuids
        results = []
        for side, url in ((service_sides.ours, sides.mine), (service_sides.theirs, sides.other)):
            with side(url, WORKERS) as service:
                results += servers.in_a_process(hot.run, putting, service.port, uuid)
    mine, other = results
    name = f"{servers.SHOWN[kind]}: {hot.PROCESSES} clients on one provider, {WORKERS} processes"
    for side, found in (("ours", mine), (peer.NAME, other)):
        _complain(f"{name}: {side}", found)
    yield Row(
        f"{name}: PUT", "per second", mine.rate, other.rate, peer.NAME, mine.rate / other.rate
    )
    yield Row(
        f"{name}: answered 409, 500 or not at all",
        "percent",
        mine.failed,
        other.failed,
        peer.NAME,
        target="none",
        met=mine.failed == 0,
    )


def _complain(name: str, found: hot.Result) -> None:
    """Say which errors there were."""
    if found.kinds:
        print(f"{name}: {found.kinds}", file=sys.stderr)


def putting(port: int, uuid: str, tag: str) -> Callable[[int], Any]:
    """Return what claims at one provider over HTTP."""
    client = Client(port)
    return lambda number: client.ask(*_claim(tag, number, uuid))


def _claim(tag: str, number: int, uuid: str) -> tuple[str, str, Any]:
    return "PUT", f"/allocations/{_consumer(tag, number)}", peer.claim_body(uuid, PUT)


def _consumer(tag: str, number: int) -> str:
    """Return a consumer of a process of :mod:`benchmarks.hot`."""
    return f"{tag[:24]}{(number + 2**20) % 2**48:012x}"


def _mixed(both: Both) -> Iterator[Row]:
    """Eight clients, of whose ten requests two write."""
    results = []
    for side, url in ((service_sides.ours, both.mine), (service_sides.theirs, both.other)):
        with side(url, WORKERS) as service:
            results += servers.in_a_process(
                _for_seconds, MIXED_SECONDS, hot.PROCESSES, mixing, service.port, both.uuids
            )
    mine, other = results
    name = (
        f"{servers.SHOWN[both.kind]}: {hot.PROCESSES} clients, 80 % reads, {HOSTS:,} providers, "
        f"{WORKERS} processes"
    )
    for side, found in (("ours", mine), (peer.NAME, other)):
        _complain(f"{name}: {side}", found)
    yield Row(
        f"{name}: answers", "per second", mine.rate, other.rate, peer.NAME, mine.rate / other.rate
    )
    for part, said in ((0.5, "half of the answers within"), (0.99, "99 % of the answers within")):
        ours, theirs = (1e3 * found.within(part) for found in (mine, other))
        yield Row(f"{name}: {said}", "ms", ours, theirs, peer.NAME, ours / theirs)
    yield Row(f"{name}: errors", "percent", mine.failed, other.failed, peer.NAME)


def _for_seconds(seconds: float, clients: int, *args: Any) -> Iterator[hot.Result]:
    yield from hot.run(*args, seconds=seconds, processes=clients)


def mixing(port: int, uuids: list[str], tag: str) -> Callable[[int], Any]:
    """Return what reads and writes over HTTP: of ten requests four search, four read, two write.

    What a process asks in turn is shuffled, by its own seed.
    """
    client, chance = Client(port), random.Random(tag)
    put = [0]

    def search() -> object:
        return client.ask("GET", f"/allocation_candidates?{asked.words()}")

    def usages() -> object:
        return client.ask("GET", f"/resource_providers/{chance.choice(uuids)}/usages")

    def holds() -> object:
        return client.ask("GET", f"/allocations/{_consumer(tag, put[0])}")

    def write() -> object:
        put[0] += 1
        return client.ask(*_claim(tag, put[0], chance.choice(uuids)))

    kinds: list[Callable[[], object]] = [*[search] * 4, *[usages] * 2, *[holds] * 2, *[write] * 2]
    turns: list[Callable[[], object]] = []

    def once(number: int) -> None:
        if not turns:
            turns.extend(chance.sample(kinds, len(kinds)))
        turns.pop()()

    return once


# --- memory ---------------------------------------------------------------------------------------


def _weighed() -> Iterator[Row]:
    for count in (HOSTS, MANY):
        is_beside = count == HOSTS
        with (on_both if is_beside else on_ours)("sqlite", "flat", count) as kept:
            ours = _weight(service_sides.ours, kept.mine)
            other = _weight(service_sides.theirs, kept.other) if is_beside else None
        for at, said in ((0, "memory of a worker"), (1, "of which no other process has")):
            yield Row(
                f"{count:,} providers: {said}",
                "MB",
                ours[at],
                None if other is None else other[at],
                "" if other is None else peer.NAME,
                None if other is None else ours[at] / other[at],
            )


def _weight(side: Callable[..., Any], url: str) -> tuple[float, float]:
    """Return the resident memory of a worker, and its own part of it."""
    with side(url, 1) as service:
        once, client = _searching(asked.words()), service.client()
        for _ in range(3):
            once(client)
        [resident], [clean], [dirty] = (
            service.megabytes(key) for key in ("Rss", "Private_Clean", "Private_Dirty")
        )
    return resident, clean + dirty
