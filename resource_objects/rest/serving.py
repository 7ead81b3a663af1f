"""The service under gunicorn: several worker processes on one database.

gunicorn forks workers, replaces a worker that dies, and stops gracefully. waitress has one process,
and a search occupies a processor. Each worker opens the ledger and keeps its own snapshot, which is
refreshed for each request.
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
from resource_objects.rest.wsgi import RequestLog, application

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_invalid_field = functools.partial(InvalidInput, "field")

LOG = logging.getLogger("resource_objects.rest")

#: The seconds of a request, and of the remaining requests of a worker that stops.
TIMEOUT, GRACE = 120, 30
THREADS = 4
#: The seconds after which a worker that could not start tries again, at the next request.
RETRY_AFTER = 1
#: The maximum bytes of a path with its query; gunicorn allows no larger limit.
MAX_LINE = 8190


def serve(
    database_url: str,
    bind: str = "127.0.0.1:8778",
    *,
    auth: str,
    workers: int = 2,
    statsd: str | None = None,
    **options: Any,
) -> None:
    """Serve a ledger until a signal ends it: SIGTERM gracefully, SIGINT at once.

    :param bind: ``host:port``, or ``unix:path``
    :param auth: as for :func:`~resource_objects.rest.wsgi.application`
    :param workers: the number of processes
    :param statsd: ``host:port`` to which gunicorn sends its counts
    :param options: further arguments of :func:`~resource_objects.rest.wsgi.application`
    :raises InvalidInput: if ``noauth2`` is used with an address that other machines can reach, or
        with a socket of systemd; for a number of workers below 1; for a ledger in memory, which
        processes cannot share; otherwise as for the application
    :raises DatabaseError: before the first request is served
    """
    if type(workers) is not int or workers < 1:
        raise _invalid_field("workers", workers, "an integer from 1")
    if statsd is not None and not re.fullmatch(r".+:[0-9]{1,5}", statsd):
        raise _invalid_field("statsd", statsd, "an address, as 127.0.0.1:8125")
    if database_url.startswith("memory:"):
        raise _invalid_field("database", database_url, "one that processes share")
    # with this variable gunicorn uses sockets of systemd in place of the address
    has_systemd_sockets = os.environ.get("LISTEN_PID") == str(os.getpid())
    if auth == "noauth2" and (has_systemd_sockets or not reaches_only_itself(bind)):
        expected = "a loopback address, as noauth2 accepts every token: 127.0.0.1:8778"
        raise _invalid_field("bind", bind, expected)
    application(database_url, auth=auth, **options).close()  # reports errors before workers start
    _log_to_stderr()
    if auth == "http_basic" and not reaches_only_itself(bind):
        LOG.warning(
            "passwords are sent to %s in clear text, unless a proxy in front of it has TLS", bind
        )
    _Server(database_url, bind, workers, statsd, {"auth": auth, **options}).run()  # type: ignore[no-untyped-call]


def reaches_only_itself(bind: str) -> bool:
    """Return True if only this machine can reach an address.

    >>> [reaches_only_itself(address) for address in ("127.0.0.1:80", "[::1]:80", "localhost:80")]
    [True, True, True]
    >>> [reaches_only_itself(address) for address in ("unix:/run/a", "0.0.0.0:80", ":80")]
    [True, False, False]
    """
    return bind.startswith("unix:") or is_loopback(bind.rpartition(":")[0].strip("[]"))


def _log_to_stderr() -> None:
    """Log requests and errors on standard error, in place of an earlier configuration."""
    form = "%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=logging.WARNING, format=form, force=True)
    LOG.setLevel(logging.INFO)


class _Server(BaseApplication):
    def __init__(
        self, database_url: str, bind: str, workers: int, statsd: str | None, options: Any
    ) -> None:
        self._database_url, self._options = database_url, options
        self._settings = {
            "bind": bind,
            "workers": workers,
            "worker_class": "resource_objects.rest.worker.Worker",
            "threads": THREADS,
            "limit_request_line": MAX_LINE,
            # no header may override the address of the client or the path
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
        assert self.cfg is not None, "the base class creates it first"
        for name, value in self._settings.items():
            self.cfg.set(name, value)
        if "control_socket_disable" in self.cfg.settings:  # a socket in the user's home
            self.cfg.set("control_socket_disable", True)

    def load(self) -> WSGIApplication:
        """Return the application of a worker. gunicorn calls this after the fork."""
        return RetryingStart(
            lambda: application(self._database_url, threads=THREADS, **self._options)
        )


class RetryingStart:
    """The application of a worker; until it can be created, every request is answered by a 503.

    A worker starts after another one died, or after a SIGHUP. If the database is unavailable or a
    file is invalid at that moment, gunicorn would stop, and end all other workers too.
    """

    def __init__(self, create: Callable[[], WSGIApplication]) -> None:
        self._create, self._lock, self._next = create, threading.Lock(), 0.0
        self._application: WSGIApplication | None = None
        self._refusing = RequestLog(self._refuse, None)
        self._try()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        serving = self._application or self._retry() or self._refusing
        return serving(environ, start_response)

    def _retry(self) -> WSGIApplication | None:
        if clock.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._try()
            finally:
                self._lock.release()
        return self._application

    def _try(self) -> None:
        try:
            self._application = self._application or self._create()
        except ResourceObjectsError as error:
            LOG.error("a worker cannot serve yet: %s", error)
            self._next = clock.monotonic() + RETRY_AFTER

    def _refuse(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        refused = errors.Refused(503, "The service cannot start yet; the log tells why.")
        body: Iterable[bytes] = refused.response(environ)(environ, start_response)
        return body
