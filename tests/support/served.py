"""The service as it is run: ``resource-objects serve`` in processes of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.patience import until

#: as it is logged: a request's id, who asked, what, and what became of it
HEADERS = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}


@dataclasses.dataclass(frozen=True)
class Served:
    """A service that runs."""

    port: int
    process: subprocess.Popen[bytes]
    _log: Path
    #: what systemd would be told
    notified: bytes

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """All that it said until now."""
        return self._log.read_text(encoding="utf-8")

    @property
    def workers(self) -> list[int]:
        """The ids of its processes but for the first one, which starts and replaces them."""
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout: float = 30,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Return the status of a request, and what was answered, over a connection of its own.

        :raises OSError: if no answer came
        """
        said = HEADERS | (headers or {})
        text = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        if body is not None:
            said = {"content-type": "application/json"} | said
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            try:
                connection.request(method, path, text, said)
                response = connection.getresponse()
                found = response.read()
            except http.client.HTTPException as error:
                raise ConnectionError(str(error)) from error
            return response.status, json.loads(found) if found else None

    def is_up(self) -> bool:
        try:
            return self.ask("GET", "/health")[0] == 200
        except OSError:
            return False


@contextlib.contextmanager
def served(
    folder: Path, database_url: str, *options: str, policy: str = "legacy"
) -> Iterator[Served]:
    """Serve a ledger; it has to stop gracefully in the end.

    :param folder: where its log goes
    :param options: of the command
    """
    port, path = free_port(), folder / "served.log"
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(f"\0{folder}/{port}")  # of the abstract kind: a path may be too long
    command = [sys.executable, "-m", "resource_objects", "--database", database_url, "serve"]
    said = ["--bind", f"127.0.0.1:{port}", "--auth", "noauth2", "--policy", policy, *options]
    environment = os.environ | {"NOTIFY_SOCKET": f"@{folder}/{port}"}
    with (
        told,
        path.open("wb") as log,
        subprocess.Popen(command + said, stdout=log, stderr=log, env=environment) as server,
    ):
        this = Served(port, server, path, b"")
        try:
            until(lambda: this.is_up() or server.poll() is not None)
            assert server.poll() is None, this.log
            told.settimeout(30)
            yield dataclasses.replace(this, notified=told.recv(1000))
        finally:
            server.terminate()
            try:
                server.wait(60)
            finally:
                server.kill()
    assert server.returncode == 0, this.log


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
