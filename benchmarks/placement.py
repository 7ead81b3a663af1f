"""The ledger and the real Placement side by side, on SQLite and on PostgreSQL.

Runs only where openstack-placement is installed (``tox -e placement``). On each kind of database
both sides have a database of their own on the same disk or server, with the same durability:
``synchronous=FULL`` on SQLite, what PostgreSQL does by itself there. We are asked through the
front door; what Placement's figures include, :mod:`benchmarks.peer` says: the row of a peer called
*placement 16* is of its WSGI application, the one called *its objects* of the layer below, beside
the same figure of ours. Both sides do the same thing, in turn, and the medians of the rounds are
told.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import pathlib
import statistics
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import resource_objects as ro
from benchmarks import hot, peer, servers, statements
from benchmarks.measure import Row, Side, beside
from resource_objects.ledger import backend_for
from resource_objects.providers.reshape import Move, Part, Reshape

HAS = {"VCPU": 1_000_000, "MEMORY_MB": 2_000_000_000, "DISK_GB": 2_000_000_000}
ASKED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
TRAITS = ("COMPUTE_NODE", "HW_CPU_X86_AVX2")
OWNER: dict[str, Any] = {
    "project": peer.PROJECT,
    "user": peer.USER,
    "consumer_type": peer.TYPE,
}

#: How many times as fast as Placement a claim, and eight processes on one provider, shall be.
CLAIMS = {"sqlite": 20.0, "postgresql": 10.0}
CREATED, MOVED, READ = 50.0, 20.0, 5.0

HOSTS = 100  #: of the search
MANY = 1000  #: providers in one sync
MOVING = 500  #: consumers of a reshape
READERS = 20  #: consumers of the provider that is read


def rows() -> Iterator[Row]:
    """Yield every comparison on each kind of database."""
    for kind in servers.reachable():
        with servers.database(kind) as mine, servers.database(kind) as other:
            yield from servers.flushes(kind, mine)
            yield from servers.in_a_process(one_thread, kind, mine, other)
        yield from _hot(kind)


def one_thread(kind: str, mine: str, other: str) -> Iterator[Row]:
    """Yield what is measured on one thread; to be run in a process of its own."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with _opened(kind, mine, other) as both:
        for part in (_searching, _creating, _claiming, _moving, _reading):
            for row in part(both):
                yield dataclasses.replace(row, name=f"{servers.SHOWN[kind]}: {row.name}")


class Both:
    """Both sides, opened."""

    def __init__(self, kind: str, mine: str, other: str, folder: pathlib.Path) -> None:
        self.kind = kind
        self.url = mine
        self._other = other
        prepare(mine)
        self.ledger = ro.connect(mine)
        self.theirs = peer.Placement(other, folder)
        self._numbers = itertools.count()

    def name(self, word: str) -> str:
        """Return a name that was not used before."""
        return f"{word}-{next(self._numbers)}"

    def analyze(self) -> None:
        """Give both databases of a server the statistics that it makes by itself in a minute."""
        for url in (self.url, self._other) if self.kind != "sqlite" else ():
            servers.analyze(url)

    def host(self, has: Mapping[str, int] = HAS) -> tuple[str, str]:
        """Make a provider on each side; return the uuids."""
        name = self.name("host")
        self.ledger.sync(ro.Provider(name, dict(has)))
        return str(self.ledger.provider(name).uuid), self.theirs.create(name, has)


def prepare(url: str) -> None:
    """Make the schema of a ledger."""
    backend_for(url).upgrade_database(url)


@contextlib.contextmanager
def _opened(kind: str, mine: str, other: str) -> Iterator[Both]:
    with tempfile.TemporaryDirectory() as folder:
        both = Both(kind, mine, other, pathlib.Path(folder))
        with both.ledger:
            yield both


# --- creating ---


def _creating(both: Both) -> Iterator[Row]:
    """Providers with three inventories, two traits and an aggregate."""
    aggregate = str(uuid.uuid4())

    def provider() -> ro.Provider:
        return ro.Provider(both.name("host"), HAS, traits=TRAITS, aggregates=[aggregate])

    peers = {
        peer.NAME: Side(
            lambda: both.theirs.create(both.name("host"), HAS, TRAITS, [aggregate]), calls=15
        ),
        peer.OBJECTS: Side(
            lambda: both.theirs.create_objects(both.name("host"), HAS, TRAITS, [aggregate]),
            calls=15,
        ),
    }
    yield from beside(
        f"providers made, {MANY:,} in one call",
        Side(lambda: both.ledger.sync(*(provider() for _ in range(MANY))), calls=1, items=MANY),
        peers,
        least=CREATED,
        rounds=3,
    )
    yield from beside(
        "providers made, a call each",
        Side(lambda: both.ledger.sync(provider()), calls=50),
        peers,
        rounds=3,
    )


# --- claiming ---


def _claiming(both: Both) -> Iterator[Row]:
    """Three classes of one provider, for a new consumer with project, user and type."""
    mine, other = both.host()
    asked = {mine: ASKED}
    yield from beside(
        "claims on one thread",
        Side(lambda: both.ledger.claim(both.name("job"), asked, **OWNER), calls=150),
        {
            peer.NAME: Side(lambda: both.theirs.claim(other, ASKED), calls=25),
            peer.OBJECTS: Side(lambda: both.theirs.claim_objects(other, ASKED), calls=25),
        },
        least=CLAIMS[both.kind],
    )
    with statements.counted() as count:
        counted = ro.connect(both.url)
        claimed = _statements(
            count, lambda: counted.claim(both.name("job"), asked, **OWNER), warm=True
        )
        counted.close()
        both.theirs.reconnect()
        theirs = _statements(count, lambda: both.theirs.claim(other, ASKED), warm=True)
        below = _statements(count, lambda: both.theirs.claim_objects(other, ASKED))
    both.theirs.reconnect()
    yield Row("a claim", "statements", claimed, theirs, peer.NAME, claimed / theirs)
    yield Row("a claim", "statements", claimed, below, peer.OBJECTS, claimed / below)


def _statements(count: statements.Count, once: Callable[[], Any], *, warm: bool = False) -> int:
    """Return how many statements it sends; ``warm``: not counting what only the first one does."""
    if warm:
        once()
    count.reset()
    once()
    return count.statements


# --- searching ---


def _searching(both: Both) -> Iterator[Row]:
    for _ in range(HOSTS):
        both.host()
    request = ro.Request(ASKED)
    asked = ",".join(f"{kind}:{amount}" for kind, amount in ASKED.items())

    def theirs() -> None:
        found = both.theirs.ask("GET", f"/allocation_candidates?resources={asked}&limit=10")
        if len(found["allocation_requests"]) != 10:
            raise RuntimeError(found)

    def mine() -> None:
        found = both.ledger.snapshot().candidates(request, limit=10)
        if len(found) != 10:
            raise RuntimeError(found)

    yield from beside(
        f"searches for 10 of {HOSTS} hosts",
        Side(mine, calls=20),
        {peer.NAME: Side(theirs, calls=5)},
        rounds=3,
    )


# --- moving ---


def _moving(both: Both) -> Iterator[Row]:
    """All inventories of a provider and what is allocated of them, to its child and back."""
    pair = _Ends(both, MOVING)
    with pair:
        yield from beside(
            f"consumers moved ({MOVING} with {MOVING * 3:,} allocations, in one reshape)",
            Side(pair.mine, calls=1, items=MOVING),
            {
                peer.NAME: Side(pair.theirs, calls=1, items=MOVING),
                peer.OBJECTS: Side(pair.theirs_objects, calls=1, items=MOVING),
            },
            least=MOVED,
            rounds=2,
        )
    for consumers in (MOVING // 10, MOVING):
        with statements.counted() as count:
            both.theirs.reconnect()
            with _Ends(both, consumers, ledger=ro.connect(both.url)) as pair:
                mine = _statements(count, pair.mine)
                theirs = _statements(count, pair.theirs)
                below = _statements(count, pair.theirs_objects)
        both.theirs.reconnect()
        name = f"a reshape of {consumers} consumers"
        yield Row(name, "statements", mine, theirs, peer.NAME, mine / theirs)
        yield Row(name, "statements", mine, below, peer.OBJECTS, mine / below)


class _Ends:
    """A provider and its child on each side, and consumers that are moved between them."""

    def __init__(self, both: Both, consumers: int, ledger: ro.Ledger | None = None) -> None:
        self._both = both
        self._own = ledger
        self._ledger = ledger or both.ledger
        self._names = [both.name("host"), both.name("child")]
        top = ro.Provider(self._names[0], HAS)
        top.add(self._names[1])
        self._ledger.sync(top)
        asked = {self._names[0]: ASKED}
        self._ledger.claim_all({both.name("job"): asked for _ in range(consumers)})
        self._ends = [both.theirs.create(name, {}) for name in self._names]
        both.theirs.put_inventories(self._ends[0], HAS, both.theirs.generation(self._ends[0]))
        self._consumers = both.theirs.claim_many(self._ends[0], ASKED, consumers)
        self._generation = 1

    def __enter__(self) -> _Ends:
        return self

    def __exit__(self, *error: object) -> None:
        if self._own is not None:
            self._own.close()

    def mine(self) -> None:
        """Move."""
        source, target = self._names
        parts = (Part(target),)
        moves = (Move(source, kind, parts, fill=True) for kind in HAS)
        self._ledger.reshape(Reshape(moves=tuple(moves)))
        self._names.reverse()

    def theirs(self) -> None:
        """Move by a request."""
        source, target = self._ends
        self._both.theirs.reshape(
            self._both.theirs.reshape_body(
                source, target, HAS, self._consumers, ASKED, self._generation
            )
        )
        self._moved()

    def theirs_objects(self) -> None:
        """Move by its objects."""
        source, target = self._ends
        self._both.theirs.reshape_objects(source, target, HAS, self._consumers, ASKED)
        self._moved()

    def _moved(self) -> None:
        self._generation += 1
        self._ends.reverse()


# --- reading ---


def _reading(both: Both) -> Iterator[Row]:
    """One provider with a few consumers, and one of these."""
    both.analyze()
    mine, other = both.host()
    jobs = [both.name("job") for _ in range(READERS)]
    both.ledger.claim_all({job: {mine: ASKED} for job in jobs})
    job, uuids = jobs[0], both.theirs.claim_many(other, ASKED, READERS)
    ledger, theirs = both.ledger, both.theirs
    for name, ours, path, below in (
        (
            "usages of a provider read",
            lambda: ledger.totals(provider=mine),
            f"/resource_providers/{other}/usages",
            lambda: theirs.usages_objects(other),
        ),
        (
            f"allocations of a provider read ({READERS} consumers)",
            lambda: list(ledger.consumers(provider=mine)),
            f"/resource_providers/{other}/allocations",
            lambda: theirs.held_by_provider_objects(other),
        ),
        (
            "allocations of a consumer read",
            lambda: ledger.get_claim(job),
            f"/allocations/{uuids[0]}",
            lambda: theirs.held_objects(uuids[0]),
        ),
    ):
        yield from beside(
            name,
            Side(ours, calls=200),
            {
                peer.NAME: Side(lambda path=path: theirs.ask("GET", path), calls=30),
                peer.OBJECTS: Side(below, calls=30),
            },
            least=READ,
            rounds=3,
        )


# --- one hot provider ---


def _hot(kind: str) -> Iterator[Row]:
    """Eight processes claim at one provider; each side has a new database and the machine."""
    rounds = []
    with servers.database(kind) as mine, servers.database(kind) as other:
        [(one, two)] = servers.in_a_process(_hosts, kind, mine, other)
        for _ in range(3):
            [ours] = servers.in_a_process(hot.run, hot.ours, mine, one, ASKED)
            [theirs] = servers.in_a_process(hot.run, hot.theirs, other, two, ASKED)
            rounds.append((ours, theirs))
    yield from _hot_rows(kind, rounds)


def _hosts(kind: str, mine: str, other: str) -> Iterator[tuple[str, str]]:
    with _opened(kind, mine, other) as both:
        yield both.host()


def _hot_rows(kind: str, rounds: list[tuple[hot.Result, hot.Result]]) -> Iterator[Row]:
    name = f"{servers.SHOWN[kind]}: {hot.PROCESSES} processes on one provider"
    ratio = statistics.median(ours.rate / theirs.rate for ours, theirs in rounds)
    yield Row(
        f"{name}, claims",
        "per second",
        statistics.median(ours.rate for ours, _ in rounds),
        statistics.median(theirs.rate for _, theirs in rounds),
        peer.NAME,
        ratio,
        f"at least {CLAIMS[kind]:g} times",
        ratio >= CLAIMS[kind],
    )
    failed = max(ours.failed for ours, _ in rounds)
    for ours, _ in rounds:
        if ours.kinds:
            print(f"{name}: {ours.kinds}", file=sys.stderr)
    yield Row(
        f"{name}, calls that ended with an error",
        "percent",
        failed,
        statistics.median(theirs.failed for _, theirs in rounds),
        peer.NAME,
        target="none",
        met=failed == 0,
    )
