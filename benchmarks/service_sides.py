"""Both services as somebody runs them: gunicorn with the same settings, processes of their own.

Ours is ``resource-objects serve``. Placement's application stands under the same server: what
:mod:`resource_objects.rest.serving` sets up, with another application in it. Both log a line for
each request, believe what a token says, and ask their policy for the roles of it.

``python -m benchmarks.service_sides URL HOST:PORT WORKERS`` serves Placement.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

from benchmarks import peer

HEADERS = {
    "x-auth-token": "admin",
    "x-roles": "admin,service",
    "openstack-api-version": peer.VERSION,
    "accept": "application/json",
}
#: Seconds in which a service comes up, in which it goes, and that an answer may take.
_START, _STOP, _PATIENCE = 120.0, 60.0, 120.0


class Service(NamedTuple):
    """A service that runs: where it listens, and the process that its workers are children of."""

    port: int
    number: int

    def client(self) -> Client:
        """Return a new connection."""
        return Client(self.port)

    def workers(self) -> list[int]:
        """Return the numbers of its worker processes."""
        path = pathlib.Path(f"/proc/{self.number}/task/{self.number}/children")
        return [int(one) for one in path.read_text().split()]

    def seconds(self) -> float:
        """Return the time of the processor that its workers took."""
        ticks = 0
        for one in self.workers():
            said = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += int(said[11]) + int(said[12])
        return ticks / 100

    def megabytes(self, key: str) -> list[float]:
        """Return a figure of each worker's memory, such as ``Pss``."""
        return [_rolled_up(one, key) for one in self.workers()]


def _rolled_up(process: int, key: str) -> float:
    for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(key)


class Client:
    """A connection that is kept open, and asks as an administrator."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)

    def answer(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        headers, data = HEADERS, None
        if body is not None:
            headers, data = {**HEADERS, "content-type": "application/json"}, json.dumps(body)
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request opens it again
            raise

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the body of an answer that is none of an error."""
        status, found = self.answer(method, path, body)
        if status >= 400:
            raise peer.Refused(status, found.decode())
        return found

    def claim(self, provider: str, resources: Mapping[str, int]) -> int:
        """Claim for a new consumer; return the status."""
        path = f"/allocations/{uuid.uuid4()}"
        return self.answer("PUT", path, peer.claim_body(provider, resources))[0]


@contextlib.contextmanager
def ours(url: str, workers: int) -> Iterator[Service]:
    """Run our service on a database that has its schema."""
    with _running(
        lambda bind: [
            *(sys.executable, "-W", "ignore", "-m", "resource_objects", "--database", url),
            *("serve", "--auth", "noauth2", "--bind", bind, "--workers", str(workers)),
        ]
    ) as found:
        yield found


@contextlib.contextmanager
def theirs(url: str, workers: int) -> Iterator[Service]:
    """Run Placement on a database that has its schema."""
    with _running(
        lambda bind: [
            *(sys.executable, "-W", "ignore", "-m", "benchmarks.service_sides"),
            *(url, bind, str(workers)),
        ]
    ) as found:
        yield found


@contextlib.contextmanager
def _running(command: Callable[[str], list[str]]) -> Iterator[Service]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command(f"127.0.0.1:{port}"), stdout=log, stderr=log)
        try:
            _wait(process, port, log)
            found = Service(port, process.pid)
            _settle(found)
            yield found
        finally:
            process.terminate()
            try:
                process.wait(_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Any) -> None:
    """Wait until a service answers."""
    patience = time.monotonic() + _START
    while True:
        try:
            Client(port).ask("GET", "/")
            return
        except (OSError, http.client.HTTPException):
            if process.poll() is not None or time.monotonic() > patience:
                log.seek(0)
                raise RuntimeError(log.read()[-4000:].decode(errors="replace")) from None
            time.sleep(0.1)


def _settle(service: Service) -> None:
    """Wait until no worker is still starting."""
    before = -1.0
    while service.seconds() > before:
        before = service.seconds()
        time.sleep(0.5)


class _Theirs:
    """Placement's application, made by the workers and not by the process that starts them."""

    _main = os.getpid()

    def __init__(self, url: str, **said: Any) -> None:
        self._application: Any = None
        if os.getpid() != self._main:
            with tempfile.TemporaryDirectory() as folder:  # its configuration is read once
                made = peer.Placement(url, pathlib.Path(folder), sync=False)
            self._application = made.application

    def __call__(self, *asked: Any) -> Any:
        return self._application(*asked)

    def close(self) -> None:
        """Nothing: the process ends."""


def main() -> None:
    """Serve Placement until a signal ends it."""
    from resource_objects.rest import serving

    url, bind, workers = sys.argv[1:]
    logging.getLogger("placement.requestlog").setLevel(logging.INFO)
    with mock.patch.object(serving, "application", _Theirs):
        serving.serve(url, bind, auth="noauth2", workers=int(workers))


if __name__ == "__main__":
    main()
