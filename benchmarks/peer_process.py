"""Placement in a process of its own, which is stopped where an answer takes too long.

What it takes is measured there, around the call of its WSGI application, so the way between the
processes is not in it.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import pathlib
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks import peer, servers
from resource_objects.providers.columns import Columns

#: How it comes, and what it offers against requests that take too long.
DEFAULT: Mapping[str, Any] = {}
CAPPED: Mapping[str, Any] = {
    "max_allocation_candidates": 1000,  # as many as Nova asks for
    "allocation_candidates_generation_strategy": "breadth-first",
    "optimize_for_wide_provider_trees": True,
}
_GROUPS = {"optimize_for_wide_provider_trees": "workarounds"}
#: Seconds in which it starts, and in which a fleet is put into it.
_START = 300.0


class Answer(NamedTuple):
    """How long it took, and how many candidates there were."""

    seconds: float
    candidates: int


class Process:
    """Placement on a database of its own; after it was stopped, the next question starts it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._child: Any = None
        self._pipe: Connection | None = None
        self._is_new = True

    def keep(self, columns: Columns) -> None:
        """Put a fleet in the place of all that it has."""
        found = self._asked(("keep", columns), _START)
        assert found is not None, "a fleet is not put into Placement in time"
        if not self._url.startswith("sqlite"):
            servers.analyze(self._url)

    def ask(self, words: str, most: float, options: Mapping[str, Any] = DEFAULT) -> Answer | None:
        """Return how long ``GET /allocation_candidates`` takes, None if more than so many seconds.

        :param options: of its configuration, where they are not as they come
        """
        found: Answer | None = self._asked(("ask", words, dict(options)), most)
        return found

    def stop(self) -> None:
        """Stop it."""
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._child = None

    def _asked(self, what: tuple[Any, ...], most: float) -> Any:
        if self._child is None:
            self._start()
        assert self._pipe is not None
        self._pipe.send(what)
        if not self._pipe.poll(most):
            self.stop()
            return None
        kind, value = self._pipe.recv()
        if kind == "error":
            raise RuntimeError(value)
        return value

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._child = spawn.Process(target=_serve, args=(theirs, self._url, self._is_new))
        self._child.start()
        theirs.close()
        self._is_new = False
        assert self._pipe.poll(_START), "Placement does not start"
        kind, value = self._pipe.recv()
        if kind == "error":
            raise RuntimeError(value)


@contextlib.contextmanager
def running(kind: str) -> Iterator[Process]:
    """Lend a Placement on an empty database of a kind."""
    with servers.database(kind) as url:
        process = Process(url)
        try:
            yield process
        finally:
            process.stop()


def _serve(pipe: Connection, url: str, sync: bool) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:  # its configuration is read once
            service = peer.Placement(url, pathlib.Path(folder), sync=sync)
        pipe.send(("value", None))
        while True:
            what, *given = pipe.recv()
            value = _keep(service, *given) if what == "keep" else _ask(service, *given)
            pipe.send(("value", value))
    except EOFError:
        return
    except Exception:
        pipe.send(("error", traceback.format_exc()))


def _keep(service: peer.Placement, columns: Columns) -> bool:
    from benchmarks import peer_fleet

    peer_fleet.keep(service, columns)
    return True


def _ask(service: peer.Placement, words: str, options: Mapping[str, Any]) -> Answer:
    for name in CAPPED:
        service.config.clear_override(name, _GROUPS.get(name, "placement"))
    for name, value in options.items():
        service.config.set_override(name, value, _GROUPS.get(name, "placement"))
    start = time.perf_counter()
    found = service.ask("GET", f"/allocation_candidates?{words}")
    return Answer(time.perf_counter() - start, len(found["allocation_requests"]))
