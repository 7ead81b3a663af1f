"""The service under gunicorn: several worker processes on one database.

Gunicorn because it forks workers, replaces one that dies, and stops gracefully; waitress serves in
one process alone, and a search takes a processor. Each worker opens the ledger for itself and keeps
its own snapshot, which is fresh at the moment of each request.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication

from resource_objects import exceptions
from resource_objects.ledger import connect
from resource_objects.rest.wsgi import application

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

#: Seconds that a worker may take for a request, and for what is left when it is to stop.
TIMEOUT, GRACE = 120, 30
THREADS = 4


def serve(
    database_url: str, bind: str = "127.0.0.1:8778", *, workers: int = 2, **said: Any
) -> None:
    """Serve a ledger until a signal ends it: SIGTERM gracefully, SIGINT at once.

    :param bind: ``host:port``, or ``unix:path``
    :param workers: how many processes
    :param said: as for :func:`~resource_objects.rest.wsgi.application`
    :raises InvalidField: if whatever a token says would be believed (``noauth2``) where others than
        this machine can ask; for a number of workers below 1; for a ledger in memory, of which each
        worker would have its own
    :raises DatabaseUnavailable, SchemaTooOld: before anything is served
    """
    if type(workers) is not int or workers < 1:
        raise exceptions.InvalidField("workers", workers, "an integer from 1")
    if database_url.startswith("memory:"):
        raise exceptions.InvalidField("database", database_url, "one that processes share")
    if said.get("auth", "noauth2") == "noauth2" and not is_loopback(bind):
        expected = "a loopback address, as nobody is asked who he is: 127.0.0.1:8778"
        raise exceptions.InvalidField("bind", bind, expected)
    connect(database_url).close()  # what is wrong with it is told here, not by each worker
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    _Server(database_url, bind, workers, said).run()  # type: ignore[no-untyped-call]


def is_loopback(bind: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> [is_loopback(one) for one in ("127.0.0.1:80", "[::1]:80", "localhost:80", "unix:/run/a")]
    [True, True, True, True]
    >>> [is_loopback(one) for one in ("0.0.0.0:80", ":80", "lab.example:80", "10.0.0.1:80")]
    [False, False, False, False]
    """
    if bind.startswith("unix:"):
        return True
    host = bind.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Server(BaseApplication):
    def __init__(self, database_url: str, bind: str, workers: int, said: dict[str, Any]) -> None:
        self._database_url, self._said = database_url, said
        self._settings = {
            "bind": bind,
            "workers": workers,
            "worker_class": "gthread",
            "threads": THREADS,
            "timeout": TIMEOUT,
            "graceful_timeout": GRACE,
            "proc_name": "resource-objects",
        }
        super().__init__()  # type: ignore[no-untyped-call]

    def load_config(self) -> None:
        assert self.cfg is not None, "it is made before this is called"
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> WSGIApplication:
        """Return the application of a worker, made after it was forked."""
        return application(self._database_url, **self._said)
