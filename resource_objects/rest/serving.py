"""The service under gunicorn: several worker processes on one database.

Gunicorn because it forks workers, replaces one that dies, and stops gracefully; waitress serves in
one process alone, and a search takes a processor. Each worker opens the ledger for itself and keeps
its own snapshot, which is fresh at the moment of each request.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication

from resource_objects import clock
from resource_objects.exceptions import InvalidInput, ResourceObjectsError
from resource_objects.rest import errors
from resource_objects.rest.auth import is_loopback
from resource_objects.rest.wsgi import Numbered, application

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_invalid_field = functools.partial(InvalidInput, "field")

LOG = logging.getLogger("resource_objects.rest")

#: Seconds that a worker may take for a request, and for what is left when it is to stop.
TIMEOUT, GRACE = 120, 30
THREADS = 4
#: Seconds until a worker that could not begin tries again, if somebody asks.
AGAIN = 1
#: Bytes of a path with its query: the most that gunicorn bounds.
MAX_LINE = 8190


def serve(
    database_url: str,
    bind: str = "127.0.0.1:8778",
    *,
    auth: str,
    workers: int = 2,
    statsd: str | None = None,
    **said: Any,
) -> None:
    """Serve a ledger until a signal ends it: SIGTERM gracefully, SIGINT at once.

    :param bind: ``host:port``, or ``unix:path``
    :param auth: who is believed, as for :func:`~resource_objects.rest.wsgi.application`
    :param workers: how many processes
    :param statsd: ``host:port`` to which gunicorn sends its counts
    :param said: as for :func:`~resource_objects.rest.wsgi.application`
    :raises InvalidInput: if whatever a token says would be believed (``noauth2``) where others than
        this machine can ask, or at a socket that systemd hands over; for a number of workers below
        1; for a ledger in memory, of which each worker would have its own; else as for the
        application
    :raises DatabaseError: before anything is served
    """
    if type(workers) is not int or workers < 1:
        raise _invalid_field("workers", workers, "an integer from 1")
    if statsd is not None and not re.fullmatch(r".+:[0-9]{1,5}", statsd):
        raise _invalid_field("statsd", statsd, "an address, as 127.0.0.1:8125")
    if database_url.startswith("memory:"):
        raise _invalid_field("database", database_url, "one that processes share")
    if auth == "noauth2" and not (reaches_only_itself(bind) and _binds_itself()):
        expected = "a loopback address, as nobody is asked who he is: 127.0.0.1:8778"
        raise _invalid_field("bind", bind, expected)
    application(
        database_url, auth=auth, **said
    ).close()  # what is wrong is told here, not by each worker
    _log_to_stderr()
    if auth == "http_basic" and not reaches_only_itself(bind):
        LOG.warning("passwords are sent to %s in the clear, unless a proxy before it has TLS", bind)
    _Server(database_url, bind, workers, statsd, {"auth": auth, **said}).run()  # type: ignore[no-untyped-call]


def reaches_only_itself(bind: str) -> bool:
    """Return whether only this machine can reach an address that is bound.

    >>> [reaches_only_itself(one) for one in ("127.0.0.1:80", "[::1]:80", "localhost:80")]
    [True, True, True]
    >>> [reaches_only_itself(one) for one in ("unix:/run/a", "0.0.0.0:80", ":80", "10.0.0.1:80")]
    [True, False, False, False]
    """
    return bind.startswith("unix:") or is_loopback(bind.rpartition(":")[0].strip("[]"))


def _binds_itself() -> bool:
    """Return whether gunicorn will bind what it is told, and not take sockets of systemd's."""
    return os.environ.get("LISTEN_PID") != str(os.getpid())


def _log_to_stderr() -> None:
    """Log requests and what is wrong; whatever was set up before, as by the command, was not."""
    form = "%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=logging.WARNING, format=form, force=True)
    LOG.setLevel(logging.INFO)


class _Server(BaseApplication):
    def __init__(
        self, database_url: str, bind: str, workers: int, statsd: str | None, said: dict[str, Any]
    ) -> None:
        self._database_url, self._said = database_url, said
        self._settings = {
            "bind": bind,
            "workers": workers,
            "worker_class": "resource_objects.rest.worker.Worker",
            "threads": THREADS,
            "limit_request_line": MAX_LINE,
            # nobody is believed who says, by a header, for whom or for which path he asks
            "forwarded_allow_ips": "",
            "forwarder_headers": "",
            "timeout": TIMEOUT,
            "graceful_timeout": GRACE,
            "proc_name": "resource-objects",
        }
        if statsd is not None:
            self._settings |= {"statsd_host": statsd, "statsd_prefix": "resource_objects"}
        super().__init__()  # type: ignore[no-untyped-call]

    def load_config(self) -> None:
        assert self.cfg is not None, "it is made before this is called"
        for name, value in self._settings.items():
            self.cfg.set(name, value)
        if "control_socket_disable" in self.cfg.settings:  # it would lie in somebody's home
            self.cfg.set("control_socket_disable", True)

    def load(self) -> WSGIApplication:
        """Return the application of a worker, made after it was forked."""
        return Opening(lambda: application(self._database_url, threads=THREADS, **self._said))


class Opening:
    """The application of a worker as soon as it can be made; until then everybody is told 503.

    A worker begins whenever one died, or an operator wants new ones. If the database is away just
    then, or a file has a slip, gunicorn would give up, and end those that answer, too.
    """

    def __init__(self, make: Callable[[], WSGIApplication]) -> None:
        self._make, self._lock, self._next = make, threading.Lock(), 0.0
        self._made: WSGIApplication | None = None
        self._refusing = Numbered(self._refuse, None)
        self._try()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        made = self._made or self._again() or self._refusing
        return made(environ, start_response)

    def _again(self) -> WSGIApplication | None:
        if clock.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._try()
            finally:
                self._lock.release()
        return self._made

    def _try(self) -> None:
        try:
            self._made = self._made or self._make()
        except ResourceObjectsError as error:
            LOG.error("a worker cannot serve yet: %s", error)
            self._next = clock.monotonic() + AGAIN

    def _refuse(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        said = "The service cannot begin yet; the log tells why."
        told: Iterable[bytes] = errors.Refused(503, said).response(environ)(environ, start_response)
        return told
