"""A network between a program and its database that a test can have swallow packets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from sqlalchemy import make_url

_SOCKETS = {"postgresql": "{host}/.s.PGSQL.{port}", "mysql": "{unix_socket}"}


class Network:
    """Forwards connections to a server, as long as it is asked to."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self._server = _address_of(parsed)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._requests, self._answers = threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        kept = {name: v for name, v in parsed.query.items() if name not in _PLACES}
        through = parsed.set(host="127.0.0.1", port=port, query=kept)
        #: the database, seen through this network
        self.url = through.render_as_string(hide_password=False)
        self.mend()
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self, *, requests: bool = True, answers: bool = True) -> None:
        """Swallow what is sent from now on; nobody is told."""
        if requests:
            self._requests.clear()
        if answers:
            self._answers.clear()

    def mend(self) -> None:
        """Forward what is sent on new connections; the old ones end."""
        self._end_all()
        self._requests.set()
        self._answers.set()

    def close(self) -> None:
        """End it."""
        self._listening.close()
        self._end_all()

    def _end_all(self) -> None:
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        self._pairs.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                family = socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET
                server = socket.socket(family)
                server.connect(self._server)
                self._pairs.append((client, server))
                for pair in ((client, server, self._requests), (server, client, self._answers)):
                    threading.Thread(target=_forward, args=pair, daemon=True).start()


_PLACES = ("host", "port", "unix_socket")


def _address_of(url: Any) -> Any:
    query = {"port": 5432, **url.query}
    if not url.host:
        return _SOCKETS[url.get_backend_name()].format(**query)
    return url.host, url.port or {"postgresql": 5432, "mysql": 3306}[url.get_backend_name()]


def _forward(source: socket.socket, target: socket.socket, works: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while said := source.recv(65536):
            if works.is_set():
                target.sendall(said)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def network(url: str) -> Iterator[Network]:
    """Lend a network to the server of a URL."""
    made = Network(url)
    try:
        yield made
    finally:
        made.close()
