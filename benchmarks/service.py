"""The service, next to the real Placement if it is installed: the same requests over HTTP.

Both run under gunicorn with the settings of :mod:`resource_objects.rest.serving`, without
authentication, each on a database of its own with the same providers. A client keeps its connection
open. Next to the rate is the CPU time of the service itself. The last rows read our service as a
ledger (``placement+http``); the client counts the requests.

``python -m benchmarks.service URL HOST:PORT`` serves Placement.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import http.client
import itertools
import json
import logging
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from benchmarks import fleets, peer, servers
from benchmarks.measure import RATE, Row, seconds

HOSTS = int(os.environ.get("HOSTS", "10000"))
CAPACITY = {"VCPU": 64, "MEMORY_MB": 262144, "DISK_GB": 2000}
SEARCH = "/allocation_candidates?resources=VCPU:4,MEMORY_MB:8192,DISK_GB:40&limit=10"
AMOUNTS = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
ROUNDS = 3
SECONDS = 4.0
#: Concurrent clients of one process. On a SQLite file Placement answers half of the concurrent
#: writes with 500, so there is one client.
CLIENTS = {"sqlite": 1, "postgresql": 3}
LEAST_SEARCHES, LEAST_WRITES = 50.0, 10.0
HEADERS = {
    "x-auth-token": "admin",
    "x-roles": "admin,service",
    "openstack-api-version": peer.VERSION,
    "accept": "application/json",
}
#: Seconds in which a service starts and stops, and an answer arrives.
_START, _STOP, _ANSWER = 120.0, 60.0, 120.0


def rows() -> Iterator[Row]:
    """Yield the rows of each kind of database."""
    for kind in servers.reachable():
        with contextlib.ExitStack() as stack:
            ours = stack.enter_context(servers.ledger_database(kind))
            urls = [ours]
            if peer.is_installed():
                urls.append(stack.enter_context(servers.database(kind)))
            [uuids] = servers.in_a_process(fill, *urls)
            services = [
                stack.enter_context(running(command(url)))
                for command, url in zip((_our_command, _placement_command), urls, strict=False)
            ]
            yield from _compared(kind, services, uuids)
            if kind == "sqlite":
                yield from _remote(services[0])


def fill(ours: str, other: str | None = None) -> Iterator[list[str]]:
    """Declare the hosts in both databases, and yield their uuids; for a process of its own."""
    import resource_objects as ro

    warnings.simplefilter("ignore")
    hosts = (ro.Provider(f"host-{number:06}", CAPACITY) for number in range(HOSTS))
    with ro.connect(ours) as ledger:
        providers = fleets.sync(ledger, hosts).backend.read().providers
    if other is not None:
        with tempfile.TemporaryDirectory() as folder:
            _fill_placement(peer.Placement(other, pathlib.Path(folder)), providers)
    for url in (ours, *([] if other is None else [other])):
        servers.analyze(url)
    yield list(providers.uuid)


def _fill_placement(placement: peer.Placement, providers: Any) -> None:
    """Insert the providers into Placement's tables; its requests would take minutes."""
    from placement.db.sqlalchemy import models

    numbers = range(1, len(providers.uuid) + 1)
    columns = zip(numbers, providers.uuid, providers.name, strict=True)
    with placement.engine.begin() as connection:
        classes = connection.execute(models.ResourceClass.__table__.select())
        ids = {row.name: row.id for row in classes}
        connection.execute(
            models.ResourceProvider.__table__.insert(),
            [
                {"id": n, "uuid": key, "name": name, "generation": 1, "root_provider_id": n}
                for n, key, name in columns
            ],
        )
        inventory = {"reserved": 0, "min_unit": 1, "step_size": 1, "allocation_ratio": 1.0}
        connection.execute(
            models.Inventory.__table__.insert(),
            [
                {
                    **inventory,
                    "resource_provider_id": number,
                    "resource_class_id": ids[name],
                    "total": total,
                    "max_unit": total,
                }
                for number in numbers
                for name, total in CAPACITY.items()
            ],
        )


# --- rows -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Load:
    """A kind of request: its title, how a client sends one, and the number of clients."""

    title: str
    send: Callable[[Client, str], None]
    clients: int
    least_ratio: float

    def run(self, service: Service, uuids: list[str]) -> tuple[float, float]:
        """Return the requests per second, and the milliseconds of CPU of the service for each."""
        spent, start = service.cpu_seconds(), time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(self.clients) as threads:
            first = range(self.clients)
            count = sum(threads.map(lambda n: self._client(service, uuids[n:]), first))
        duration = time.perf_counter() - start
        return count / duration, 1e3 * (service.cpu_seconds() - spent) / count

    def _client(self, service: Service, uuids: list[str]) -> int:
        client, providers, count = Client(service.port), itertools.cycle(uuids), 0
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            self.send(client, next(providers))
            count += 1
        return count


def _compared(kind: str, services: Sequence[Service], uuids: list[str]) -> Iterator[Row]:
    database, clients = servers.TITLES[kind], CLIENTS[kind]
    title = "one client" if clients == 1 else f"{clients} clients"
    search = f"{database}: GET /allocation_candidates, {HOSTS:,} providers, limit 10"
    put = f"{database}: PUT /allocations/{{consumer}}, {title} of one process"
    for load in (
        _Load(search, _search, 1, LEAST_SEARCHES),
        _Load(put, _put, clients, LEAST_WRITES),
    ):
        rounds = [[load.run(service, uuids) for service in services] for _ in range(ROUNDS)]
        for number, (suffix, unit) in enumerate((("", RATE), (": CPU of the service", "ms"))):
            figures = [
                statistics.median(sides[side][number] for sides in rounds)
                for side in range(len(services))
            ]
            least_ratio = load.least_ratio if unit == RATE else None
            yield _row(f"{load.title}{suffix}", unit, figures, least_ratio=least_ratio)
    memory = [service.worker_megabytes() for service in services]
    yield _row(f"{database}: memory of a worker with {HOSTS:,} providers", "MB", memory)


def _row(name: str, unit: str, figures: list[float], **target: float | None) -> Row:
    ours, *others = figures
    return Row(name, unit, ours, others[0] if others else None, peer.NAME, **target)


def _search(client: Client, _: str) -> None:
    document = json.loads(client.ask("GET", SEARCH))
    if len(document["allocation_requests"]) != 10:
        raise AssertionError(document)


def _put(client: Client, provider: str) -> None:
    client.ask("PUT", f"/allocations/{uuid.uuid4()}", peer.claim_body(provider, AMOUNTS))


def _remote(service: Service) -> Iterator[Row]:
    """Yield the cost of our service as a remote ledger."""
    import requests
    from keystoneauth1 import session as sessions
    from keystoneauth1 import token_endpoint

    import resource_objects as ro

    url = f"http://127.0.0.1:{service.port}"
    http_session = requests.Session()
    http_session.trust_env = False  # no proxies
    session = sessions.Session(auth=token_endpoint.Token(url, "admin"), session=http_session)
    with ro.connect(f"placement+{url}", session=session) as ledger:
        title = f"placement+http: {HOSTS:,} providers"
        clock = time.perf_counter
        yield Row(f"{title}, the first snapshot", "s", seconds(ledger.snapshot, clock))
        duration = min(seconds(ledger.snapshot, clock) for _ in range(ROUNDS))
        yield Row(f"{title}, a snapshot without changes", "ms", duration * 1e3)
        candidates = ledger.snapshot().candidates(AMOUNTS, limit=3)
        duration = seconds(lambda: ledger.claim("job", candidates), clock)
        yield Row(f"{title}, a claim", "ms", duration * 1e3)


# --- processes ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Service:
    """A running service: its port, and the process whose children are its workers."""

    port: int
    process: int

    def _workers(self) -> list[int]:
        path = pathlib.Path(f"/proc/{self.process}/task/{self.process}/children")
        return [int(number) for number in path.read_text().split()]

    def cpu_seconds(self) -> float:
        """Return the CPU time of its workers."""
        ticks = 0
        for worker in self._workers():
            stat = pathlib.Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
            ticks += int(stat[11]) + int(stat[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def worker_megabytes(self) -> float:
        """Return the resident memory of its largest worker."""
        lines = [
            line
            for worker in self._workers()
            for line in pathlib.Path(f"/proc/{worker}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        ]
        return max(int(line.split()[1]) for line in lines) / 1024


class Client:
    """A connection that stays open, with the headers of an administrator."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER)

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the body of an answer.

        :raises Refused: for a status of 400 or more
        """
        headers, data = HEADERS, None
        if body is not None:
            headers, data = {**HEADERS, "content-type": "application/json"}, json.dumps(body)
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request opens it again
            raise
        if response.status >= 400:
            raise peer.Refused(response.status, text.decode())
        return text


def _our_command(url: str) -> list[str]:
    return [
        *(sys.executable, "-W", "ignore", "-m", "resource_objects", "--database", url),
        *("serve", "--auth", "noauth2", "--workers", "1", "--bind"),
    ]


def _placement_command(url: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "benchmarks.service", url]


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[Service]:
    """Run a service on a free port, which is appended to its command as ``host:port``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, f"127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            _wait(process, port, log)
            yield Service(port, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Any) -> None:
    """Wait until a service answers.

    :raises RuntimeError: with the end of its log, if it ends or does not answer in time
    """
    end = time.monotonic() + _START
    while True:
        try:
            Client(port).ask("GET", "/")
            return
        except (OSError, http.client.HTTPException):
            if process.poll() is not None or time.monotonic() > end:
                log.seek(0)
                raise RuntimeError(log.read()[-4000:].decode(errors="replace")) from None
            time.sleep(0.1)


class _PlacementApplication:
    """Placement's application, created in the workers and not in the process that forks them."""

    _main = os.getpid()

    def __init__(self, url: str, **options: Any) -> None:
        self._application: Any = None
        if os.getpid() != self._main:
            with tempfile.TemporaryDirectory() as folder:  # its configuration is read once
                placement = peer.Placement(url, pathlib.Path(folder), sync=False)
            self._application = placement.application

    def __call__(self, *args: Any) -> Any:
        return self._application(*args)

    def close(self) -> None:
        """Do nothing; the process ends."""


def main() -> None:
    """Serve Placement until a signal ends the process."""
    from resource_objects.rest import serving

    url, bind = sys.argv[1:]
    logging.getLogger("placement.requestlog").setLevel(logging.INFO)
    with mock.patch.object(serving, "application", _PlacementApplication):
        serving.serve(url, bind, auth="noauth2", workers=1)


if __name__ == "__main__":
    main()
